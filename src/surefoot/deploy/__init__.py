"""Deploying on the real system: durable orders and outcomes, resumed after a crash, checked by anyone."""

from typing import TYPE_CHECKING

from surefoot.on_demand import lazy_attributes

if TYPE_CHECKING:
    from surefoot.deploy.calibration_files import read_calibration, write_calibration
    from surefoot.deploy.chain import Damaged
    from surefoot.deploy.journal import JournalError
    from surefoot.deploy.session import FALLBACK, Closed, Deployment
    from surefoot.deploy.status import Status, read_status
else:  # where a deployment stands can be read without what runs it
    __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            "calibration_files": "read_calibration write_calibration",
            "chain": "Damaged",
            "journal": "JournalError",
            "session": "FALLBACK Closed Deployment",
            "status": "Status read_status",
        },
    )

__all__ = [
    "FALLBACK",
    "Closed",
    "Damaged",
    "Deployment",
    "JournalError",
    "Status",
    "read_calibration",
    "read_status",
    "write_calibration",
]
