"""From runs to numbers: one summary per method over several tasks, in plain JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, stdtrit

from surefoot.arrays import Floats, finite_array, fraction
from surefoot.errors import InvalidInput
from surefoot.simulate.run import Run

LOW, HIGH = 0.1, 0.9  # the band of the paper's figures


class Curve(TypedDict):
    """Lists of one length. Low and high are the 10 % and 90 % quantiles over the tasks, at that episode.

    `margin_min` is the smallest margin of any task since the point before, so that thinning hides no excess.
    """

    episode: list[int]
    regret_mean: list[float]
    regret_low: list[float]
    regret_high: list[float]
    margin_mean: list[float]
    margin_low: list[float]
    margin_high: list[float]
    margin_min: list[float]
    weight_mean: list[float]


class Totals(TypedDict):
    """One method over several tasks, at the end. `regret` is per task; intervals are at level 95 %.

    `unsafe_tasks` counts the tasks with an unsafe episode and `unsafe_episodes` the episodes, over all tasks, whose
    deployed policy exceeds a budget; `unsafe_interval` is for the fraction of tasks, `regret_interval` for the mean
    (None for a single task).
    """

    certified: bool
    tasks: int
    episodes: int
    regret: list[float]
    regret_mean: float
    regret_interval: list[float] | None
    unsafe_tasks: int
    unsafe_interval: list[float]
    unsafe_episodes: int
    min_margin: float


class Summary(Totals):
    """And on the way there."""

    curve: Curve


@dataclass(frozen=True)
class Final:
    """What a run came to."""

    method: str
    certified: bool
    episodes: int
    regret: float
    unsafe_episodes: int
    min_margin: float

    @classmethod
    def of(cls, run: Run) -> Final:
        _check_run("run", run)
        unsafe, margin = run.unsafe_episodes, float(run.margin.min())
        return cls(run.method, run.certified, run.episodes, float(run.regret[-1]), unsafe, margin)


def totals(runs: Sequence[Final]) -> Totals:
    """Totals of one method's runs, one per task."""
    _check_alike(runs)
    regret = np.array([run.regret for run in runs])
    unsafe_tasks = sum(run.unsafe_episodes > 0 for run in runs)
    return Totals(
        certified=runs[0].certified,
        tasks=len(runs),
        episodes=runs[0].episodes,
        regret=regret.tolist(),
        regret_mean=float(regret.mean()),
        regret_interval=list(mean_interval(regret)) if len(runs) > 1 else None,
        unsafe_tasks=unsafe_tasks,
        unsafe_interval=list(binomial_interval(unsafe_tasks, len(runs))),
        unsafe_episodes=sum(run.unsafe_episodes for run in runs),
        min_margin=min(run.min_margin for run in runs),
    )


def summarise(runs: Sequence[Run], points: int = 400) -> Summary:
    """Summary of one method's runs, one run per task; the curve keeps at most `points` episodes."""
    _check_alike(runs)
    if points < 3:
        raise InvalidInput(f"points must be at least 3 (first, worst and last episode), got {points}")
    for index, run in enumerate(runs):
        _check_run(f"runs[{index}]", run)
    regret, margin, weight = (np.stack([getattr(run, name) for run in runs]) for name in ("regret", "margin", "weight"))
    return Summary(**totals([Final.of(run) for run in runs]), curve=_curve(regret, margin, weight, points))


def binomial_interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper-Pearson interval for a probability: covers it with at least `level`, whatever it is."""
    fraction("level", level)
    if not 0 <= successes <= trials or trials < 1:
        raise InvalidInput(f"successes must lie in 0 ... trials with trials ≥ 1, got {successes} of {trials}")
    tail = (1 - level) / 2
    low = betaincinv(successes, trials - successes + 1, tail) if successes > 0 else 0.0
    high = betaincinv(successes + 1, trials - successes, 1 - tail) if successes < trials else 1.0
    return float(low), float(high)


def mean_interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Student's t interval for the mean of independent values [n], n ≥ 2."""
    fraction("level", level)
    sample = finite_array("values", values)
    if sample.ndim != 1 or len(sample) < 2:
        raise InvalidInput(f"values must have shape [n] with n ≥ 2, got shape {list(sample.shape)}")
    mean = sample.mean()
    half = stdtrit(len(sample) - 1, (1 + level) / 2) * sample.std(ddof=1) / np.sqrt(len(sample))
    return float(mean - half), float(mean + half)


def _check_alike(runs: Sequence[Run] | Sequence[Final]) -> None:
    if not runs:
        raise InvalidInput("runs must hold at least one run, got none")
    for name, seen in (
        ("method", {run.method for run in runs}),
        ("certified", {run.certified for run in runs}),
        ("number of episodes", {run.episodes for run in runs}),
    ):
        if len(seen) > 1:
            raise InvalidInput(f"runs must share one {name}, got {sorted(seen)}")
    if runs[0].episodes == 0:
        raise InvalidInput("runs must have at least one episode, got 0")


def _check_run(where: str, run: Run) -> None:
    """A margin that is not a number would be counted as safe."""
    for name, values in (("regret", run.regret), ("margin", run.margin), ("weight", run.weight)):
        array = finite_array(f"{where}.{name}", values)
        if array.shape != (run.episodes,):
            raise InvalidInput(f"{where}.{name} must have shape [{run.episodes}], got {list(array.shape)}")


def _curve(regret: Floats, margin: Floats, weight: Floats, points: int) -> Curve:
    """Each argument [n, K]."""
    kept = _thinned(margin.min(axis=0), points)
    worst = np.minimum.reduceat(margin.min(axis=0), np.concatenate([[0], kept[:-1] + 1]))
    regret_low, regret_high = np.quantile(regret[:, kept], [LOW, HIGH], axis=0)
    margin_low, margin_high = np.quantile(margin[:, kept], [LOW, HIGH], axis=0)
    return Curve(
        episode=(kept + 1).tolist(),
        regret_mean=regret[:, kept].mean(axis=0).tolist(),
        regret_low=regret_low.tolist(),
        regret_high=regret_high.tolist(),
        margin_mean=margin[:, kept].mean(axis=0).tolist(),
        margin_low=margin_low.tolist(),
        margin_high=margin_high.tolist(),
        margin_min=worst.tolist(),
        weight_mean=weight[:, kept].mean(axis=0).tolist(),
    )


def _thinned(worst_margin: Floats, points: int) -> NDArray[np.int64]:
    """Increasing indices into [K], at most `points`: evenly spaced, a fifth of them geometrically spaced early on,
    and always the first, the last and the one with the smallest margin."""
    last = len(worst_margin) - 1
    if last < points:
        return np.arange(last + 1)
    early = (points - 1) // 5
    even = points - 1 - early
    spaced = np.concatenate(
        [
            np.linspace(0, last, even).round(),
            # The evenly spaced points take over from the second one on.
            np.geomspace(1, max(1, last // even), early).round(),
            [np.argmin(worst_margin)],
        ]
    )
    return np.unique(spaced.astype(np.int64))
