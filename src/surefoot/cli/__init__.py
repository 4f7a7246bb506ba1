"""The command line, `surefoot`."""

from typing import TYPE_CHECKING

from surefoot.interrupts import exit_on_sigint
from surefoot.on_demand import lazy_attributes

if TYPE_CHECKING:
    from surefoot.cli.commands import app
else:
    __getattr__, __dir__ = lazy_attributes(__name__, {"commands": "app"})

__all__ = ["app", "main"]


def main() -> None:
    """Entry point of a process: Ctrl-C ends it quietly, also while it imports what it needs."""
    with exit_on_sigint():
        from surefoot.cli.commands import run

        run()
