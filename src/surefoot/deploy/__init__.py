"""Deploying on the real system: durable orders and outcomes, resumed after a crash, checked by anyone."""

from surefoot.deploy.chain import Damaged
from surefoot.deploy.journal import JournalError
from surefoot.deploy.session import FALLBACK, Closed, Deployment
from surefoot.deploy.status import Status, read_status

__all__ = ["FALLBACK", "Closed", "Damaged", "Deployment", "JournalError", "Status", "read_status"]
