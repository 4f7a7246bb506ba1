"""One line of the table of speeds, how much is measured for it, and how both of its sides are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from surefoot.errors import SurefootError
from surefoot.report.table import MISSING, Table


@dataclass(frozen=True)
class BenchRow:
    """One comparison.

    Attributes:
        ours, plain: what was measured on each side, with its unit.
        ratio: how many times faster ours is; None where there is no plain side.
        at_least: the plain side was stopped before it was done, so the ratio is a lower bound.
    """

    what: str
    ours: str
    plain: str
    ratio: float | None
    note: str = ""
    at_least: bool = False

    @property
    def ratio_text(self) -> str:
        if self.ratio is None:
            return MISSING
        text = f"{self.ratio:,.0f}×" if self.ratio >= 10 else f"{self.ratio:.1f}×"
        return f"at least {text}" if self.at_least else text

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def table_of(rows: Sequence[BenchRow]) -> Table:
    cells = tuple((row.what, row.ours, row.plain, row.ratio_text, row.note) for row in rows)
    return Table(("what", "ours", "plain way", "ratio", "note"), cells, numbers=(3,))


@dataclass(frozen=True)
class Sizes:
    """How much of everything; `plain_episodes` are few because only steps per second are compared."""

    tasks: int
    episodes: int
    plain_episodes: int
    matrix: int
    covers: tuple[int, ...]
    side: int
    time_limit: float  # seconds for the one linear program that may not end
    repeats: int
    told: int  # episodes told to each deployment
    journal: int  # episodes of the long journal
    program_horizon: int  # steps of the plan that the linear program has to make
    calibrated: int  # runs of a calibration


FULL = Sizes(500, 100_000, 500, 5_000, (100_000, 200_000, 400_000, 1_000_000), 100, 120.0, 3, 2000, 1_000_000, 10, 20)
QUICK = Sizes(100, 20_000, 100, 2_000, (50_000, 100_000, 200_000), 40, 30.0, 2, 500, 100_000, 8, 5)


Clock: TypeAlias = Callable[[], float]  # in seconds: of the wall, or of the processor


class Timed(NamedTuple):
    seconds: float
    result: Any


def race(
    ours: Callable[[], Any], plain: Callable[[], Any], repeats: int, clock: Clock = time.perf_counter
) -> tuple[Timed, Timed]:
    """The best time of each side; they take turns, so that what else the machine does hits both."""
    turns = [(measure(ours, clock), measure(plain, clock)) for _ in range(repeats)]
    best, best_plain = (min(side, key=lambda timed: timed.seconds) for side in zip(*turns, strict=True))
    return best, best_plain


def measure(work: Callable[[], Any], clock: Clock = time.perf_counter) -> Timed:
    began = clock()
    result = work()
    return Timed(clock() - began, result)


def agree(what: str, ours: Any, plain: Any, tolerance: float) -> None:
    """A ratio between two ways that compute different things would mean nothing."""
    if np.shape(ours) != np.shape(plain) or not np.all(np.abs(np.subtract(ours, plain)) <= tolerance):
        raise SurefootError(f"the two ways disagree on the {what}: {ours} and {plain}, allowed {tolerance:g}")


def times_row(what: str, ours: Timed, plain: Timed, how: str, how_plain: str, note: str, each: int = 1) -> BenchRow:
    """How long both ways took, for each of so many."""
    ours_text = f"{duration(ours.seconds / each)} {how}"
    plain_text = f"{duration(plain.seconds / each)} {how_plain}"
    return BenchRow(what, ours_text, plain_text, plain.seconds / ours.seconds, note)


def speeds_row(what: str, unit: str, ours: tuple[float, str], plain: tuple[float, str], note: str) -> BenchRow:
    """How many steps per second both ways make, in thousands or millions of them (`unit` k or M)."""
    scale = {"k": 1e3, "M": 1e6}[unit]
    ours_text, plain_text = (f"{speed / scale:.3g} {unit} steps/s ({how})" for speed, how in (ours, plain))
    return BenchRow(what, ours_text, plain_text, ours[0] / plain[0], note)


def duration(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"
