"""The command line, `surefoot`."""

from surefoot.cli.app import app, main

__all__ = ["app", "main"]
