"""Progress of long work: a bar with the time to go on a terminal; elsewhere a line per stage, and one now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console

Progress: TypeAlias = Callable[[str, int, int], None]  # what, how much of it is done, how much there is; 0: unknown


EVERY = 30.0  # seconds between lines of one stage, where there is no terminal


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody wants to see."""


@contextmanager
def progress_reporter(wanted: bool | Progress, console: Console | None = None) -> Iterator[Progress]:
    """Yields a function that shows how far the work is, on standard error; a silent one where that is not wanted, and
    that of whoever shows it already."""
    if not isinstance(wanted, bool):
        yield wanted
        return
    if not wanted:
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


def say(wanted: bool | Progress, *lines: str) -> None:
    """Lines that stay, on standard error, for whoever wants to see progress; not in the midst of somebody's work."""
    if wanted is True:
        from rich.console import Console

        for line in lines:
            Console(stderr=True).print(line, highlight=False, markup=False, soft_wrap=True)


def _lines(console: Console, clock: Callable[[], float] = time.monotonic) -> Progress:
    began: dict[str, float] = {}
    said = 0.0

    def line(what: str, done: int, total: int) -> None:
        nonlocal said
        now = clock()
        if what in began and now - said < EVERY:
            return
        far = _how_far(done, total, now - began[what]) if what in began else "..."
        began.setdefault(what, now)
        said = now
        console.print(f"{what} {far}", highlight=False, markup=False, soft_wrap=True)

    return line


def _how_far(done: int, total: int, seconds: float) -> str:
    if not total:
        return f"... {_span(seconds)} so far"
    to_go = f", about {_span(seconds * (total - done) / done)} to go" if done else ""
    return f"... {done:,} of {total:,} after {_span(seconds)}{to_go}"


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
