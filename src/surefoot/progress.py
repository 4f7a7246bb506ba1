"""Progress of long work: a bar with the time to go on a terminal; elsewhere a line per stage, and one now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console

# What, how much of it is done, how much there is; 0: unknown. Words may change on the way, for instance with a count:
# as long as more of the same total is done, it is the same stage.
Progress: TypeAlias = Callable[[str, int, int], None]

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
        last = ("starting", 0, 0)

        def update(what: str, done: int, total: int) -> None:
            nonlocal last
            if what != last[0] and not _goes_on(last, done, total):  # the time to go is that of a stage
                bar.reset(task)
            last = (what, done, total)
            bar.update(task, description=what, completed=done, total=total or None)

        yield update


def say(wanted: bool | Progress, *lines: str) -> None:
    """Lines that stay, on standard error, for whoever wants to see progress; not in the midst of somebody's work."""
    if wanted is True:
        from rich.console import Console

        for line in lines:
            Console(stderr=True).print(line, highlight=False, markup=False, soft_wrap=True)


def _lines(console: Console, clock: Callable[[], float] = time.monotonic) -> Progress:
    began: dict[str, tuple[float, int]] = {}  # of a stage: when, and how much was done then
    said, last = 0.0, ("", 0, 0)

    def line(what: str, done: int, total: int) -> None:
        nonlocal said, last
        now = clock()
        if what not in began and _goes_on(last, done, total):
            began[what] = began[last[0]]
        last = (what, done, total)
        if what in began and now - said < EVERY:
            return
        far = "..."
        if what in began:
            since, before = began[what]
            far = _how_far(done, total, now - since, done - before)
        began.setdefault(what, (now, done))
        said = now
        console.print(f"{what} {far}", highlight=False, markup=False, soft_wrap=True)

    return line


def _goes_on(last: tuple[str, int, int], done: int, total: int) -> bool:
    """Whether this is the stage that was shown last, under other words."""
    _, before, of = last
    return total == of > 0 and done > before


def _how_far(done: int, total: int, seconds: float, new: int) -> str:
    """`new`: what was done in these seconds, less than `done` where work was resumed."""
    if not total:
        return f"... {span(seconds)} so far"
    to_go = f", about {span(seconds * (total - done) / new)} to go" if new > 0 else ""
    return f"... {done:,} of {total:,} after {span(seconds)}{to_go}"


def span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
