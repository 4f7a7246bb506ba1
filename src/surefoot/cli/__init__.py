"""The command line, `surefoot`."""

from surefoot.cli.commands import app, main

__all__ = ["app", "main"]
