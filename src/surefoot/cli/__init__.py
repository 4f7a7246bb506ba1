"""The command line, `surefoot`."""

from typing import TYPE_CHECKING

from surefoot.interrupts import ended_by_ctrl_c
from surefoot.on_demand import taken_from

if TYPE_CHECKING:
    from surefoot.cli.commands import app
else:
    __getattr__, __dir__ = taken_from(__name__, {"commands": "app"})

__all__ = ["app", "main"]


def main() -> None:
    """Entry point of a process: Ctrl-C ends it quietly, also while it imports what it needs."""
    with ended_by_ctrl_c():
        from surefoot.cli.commands import run

        run()
