"""Progress of long work: a bar with the time to go on a terminal, one line per stage elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console

Progress: TypeAlias = Callable[[str, int, int], None]  # what, how much of it is done, how much there is; 0: unknown


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody wants to see."""


@contextmanager
def shown(enabled: bool, console: Console | None = None) -> Iterator[Progress]:
    """Yields a function that shows how far the work is, on standard error; one that is silent when not enabled."""
    if not enabled:
        yield silent
        return
    from rich.console import Console

    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield _lines(console)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, TextColumn("to go"), TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        current = "starting"

        def update(what: str, done: int, total: int) -> None:
            nonlocal current
            if what != current:  # the time to go is that of a stage
                bar.reset(task)
                current = what
            bar.update(task, description=what, completed=done, total=total or None)

        yield update


def say(enabled: bool, *lines: str) -> None:
    """Lines that stay, on standard error, for whoever wants to see progress."""
    if enabled:
        from rich.console import Console

        for line in lines:
            Console(stderr=True).print(line, highlight=False, markup=False, soft_wrap=True)


def _lines(console: Console) -> Progress:
    said: set[str] = set()

    def line(what: str, done: int, total: int) -> None:
        if what not in said:
            said.add(what)
            console.print(f"{what} ...", highlight=False, markup=False, soft_wrap=True)

    return line
