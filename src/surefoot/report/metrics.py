"""From runs to numbers: one summary per method over several tasks, in plain JSON values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, stdtrit

from surefoot.arrays import Floats, check_unit_interval, finite_array
from surefoot.errors import InvalidInput
from surefoot.simulate.run import Run

LOW, HIGH = 0.1, 0.9  # the band of the paper's figures


T = TypeVar("T", bound="Totals")


class Curve(TypedDict):
    """Lists of one length. Low and high are the 10 % and 90 % quantiles over the tasks, at that episode.

    `margin_min` is the smallest margin of any task since the point before, so that thinning hides no excess. Where
    values are estimated, low is a quantile of the lower ends of their intervals and high one of the upper ends. Where
    the regret is unknown on all tasks it is null, and the reward of the deployed policies is there in its place.
    """

    episode: list[int]
    regret_mean: list[float] | list[None]
    regret_low: list[float] | list[None]
    regret_high: list[float] | list[None]
    margin_mean: list[float]
    margin_low: list[float]
    margin_high: list[float]
    margin_min: list[float]
    weight_mean: list[float]
    reward_mean: NotRequired[list[float]]
    reward_low: NotRequired[list[float]]
    reward_high: NotRequired[list[float]]


class Totals(TypedDict):
    """One method over several tasks, at the end. `regret` is per task; intervals are at level 95 %.

    `unsafe_tasks` counts the tasks with an unsafe episode and `unsafe_episodes` the episodes, over all tasks, whose
    deployed policy exceeds a budget; `unsafe_interval` is for the fraction of tasks, `regret_interval` for the mean
    (None for a single task). A regret that nobody knows is None and counts in no mean. `moved` counts the tasks on
    which anything but the safe policy was ever deployed; older results do not have it.

    Only where values are estimated: `estimated` itself; tasks and episodes that are `undecided`, since the interval of
    a margin holds 0 (a task only if none of its episodes is certainly unsafe); the interval of the smallest margin; by
    how much the mean regret may be off, given V*. Only where a regret is unknown or estimated: the mean reward per
    episode of the deployed policies, and by how much it may be off.
    """

    certified: bool
    tasks: int
    episodes: int
    regret: list[float | None]
    regret_mean: float | None
    regret_interval: list[float] | None
    unsafe_tasks: int
    unsafe_interval: list[float]
    unsafe_episodes: int
    min_margin: float
    moved: NotRequired[int]
    estimated: NotRequired[bool]
    undecided_tasks: NotRequired[int]
    undecided_episodes: NotRequired[int]
    min_margin_interval: NotRequired[list[float]]
    regret_error: NotRequired[float | None]
    reward_mean: NotRequired[float | None]
    reward_error: NotRequired[float]


class Summary(Totals):
    """And on the way there."""

    curve: Curve


def totals(runs: Sequence[Run]) -> Totals:
    """Totals of one method's runs, one per task. Only spans are read: arrays over the episodes of many runs would fill
    the memory."""
    _check_alike(runs)
    for index, run in enumerate(runs):
        _check_run(f"runs[{index}]", run)
    regret = [run.total_regret if run.regret_known else None for run in runs]
    known = np.array([each for each in regret if each is not None])
    unsafe_tasks = sum(run.unsafe_episodes > 0 for run in runs)
    found = Totals(
        certified=runs[0].certified,
        tasks=len(runs),
        episodes=runs[0].episodes,
        regret=regret,
        regret_mean=float(known.mean()) if len(known) else None,
        regret_interval=list(mean_interval(known)) if len(known) > 1 else None,
        moved=sum(run.moved for run in runs),
        unsafe_tasks=unsafe_tasks,
        unsafe_interval=list(binomial_interval(unsafe_tasks, len(runs))),
        unsafe_episodes=sum(run.unsafe_episodes for run in runs),
        min_margin=min(run.min_margin for run in runs),
    )
    if not all(run.exact for run in runs):
        found.update(_estimation_totals(runs))
    if found.get("estimated") or len(known) < len(runs):
        found.update(_rewards(runs))
    return found


def _estimation_totals(runs: Sequence[Run]) -> Any:
    """What is added where values are estimated. The sum |V* - V(π_k)| is off by no more than the V(π_k) together."""
    errors = [run.episodes * run.mean_reward_error for run in runs if run.regret_known]
    lows, highs = zip(*(run.min_margin_bounds for run in runs), strict=True)
    return {
        "estimated": True,
        "undecided_tasks": sum(run.undecided_episodes > 0 and not run.unsafe_episodes for run in runs),
        "undecided_episodes": sum(run.undecided_episodes for run in runs),
        "min_margin_interval": [min(lows), min(highs)],
        "regret_error": float(np.mean(errors)) if errors else None,
    }


def _rewards(runs: Sequence[Run]) -> Any:
    return {
        "reward_mean": float(np.mean([run.mean_reward for run in runs])),
        "reward_error": float(np.mean([run.mean_reward_error for run in runs])),
    }


def summarise(runs: Sequence[Run], points: int = 400) -> Summary:
    """Summary of one method's runs, one run per task; the curve keeps at most `points` episodes."""
    _check_alike(runs)
    if points < 3:
        raise InvalidInput(f"points must be at least 3 (first, worst and last episode), got {points}")
    return Summary(**totals(runs), curve=_curve(runs, points))


def sort_by_regret(methods: Mapping[str, T]) -> dict[str, T]:
    """From the most regret to the least, as lines end in a figure from top to bottom; unknown regret comes last."""
    return dict(sorted(methods.items(), key=lambda item: -_regret(item[1])))


def _regret(found: Totals) -> float:
    return -np.inf if found["regret_mean"] is None else found["regret_mean"]


def binomial_interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper-Pearson interval for a probability: covers it with at least `level`, whatever it is."""
    check_unit_interval("level", level)
    if not 0 <= successes <= trials or trials < 1:
        raise InvalidInput(f"successes must lie in 0 ... trials with trials ≥ 1, got {successes} of {trials}")
    tail = (1 - level) / 2
    low = betaincinv(successes, trials - successes + 1, tail) if successes > 0 else 0.0
    high = betaincinv(successes + 1, trials - successes, 1 - tail) if successes < trials else 1.0
    return float(low), float(high)


def mean_interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Student's t interval for the mean of independent values [n], n ≥ 2."""
    check_unit_interval("level", level)
    sample = finite_array("values", values)
    if sample.ndim != 1 or len(sample) < 2:
        raise InvalidInput(f"values must have shape [n] with n ≥ 2, got shape {list(sample.shape)}")
    mean = sample.mean()
    half = stdtrit(len(sample) - 1, (1 + level) / 2) * sample.std(ddof=1) / np.sqrt(len(sample))
    return float(mean - half), float(mean + half)


def ratio_interval(parts: ArrayLike, wholes: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """Interval for the ratio of two means from n ≥ 2 independent pairs [n], by linearisation: Student's t of the
    residuals, over the mean of `wholes`, which must be positive (Cochran, Sampling Techniques, chapter 6)."""
    part, whole = finite_array("parts", parts), finite_array("wholes", wholes)
    if part.shape != whole.shape:
        raise InvalidInput(f"parts and wholes must have one shape, got {list(part.shape)} and {list(whole.shape)}")
    mean = whole.mean()
    if not mean > 0:
        raise InvalidInput(f"wholes must have a positive mean, got {mean:g}")
    ratio = part.mean() / mean
    low, high = mean_interval(part - ratio * whole, level)
    return float(ratio + low / mean), float(ratio + high / mean)


def _check_alike(runs: Sequence[Run]) -> None:
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
    if np.isfinite(run.spans.rows).all() and not math.isinf(run.optimal_reward):
        return
    for name in ("margin", "weight", *(["regret"] if run.regret_known else []), "reward", "error"):
        finite_array(f"{where}.{name}", getattr(run, name))


def _curve(runs: Sequence[Run], points: int) -> Curve:
    margin = np.stack([run.margin for run in runs])
    kept = _downsample_indices(margin.min(axis=0), points)
    worst = np.minimum.reduceat(margin.min(axis=0), np.concatenate([[0], kept[:-1] + 1]))
    nothing: list[None] = [None] * len(kept)
    curve = {
        "episode": (kept + 1).tolist(),
        **{f"regret_{part}": nothing for part in ("mean", "low", "high")},
        **_spread("margin", margin[:, kept], _errors(runs, 1, kept)),
        "margin_min": worst.tolist(),
        "weight_mean": np.stack([run.weight for run in runs])[:, kept].mean(axis=0).tolist(),
    }
    known = [run for run in runs if run.regret_known]
    if known:
        regret = np.stack([run.regret for run in known])
        curve |= _spread("regret", regret[:, kept], _errors(known, 0, kept, summed=True))
    else:
        curve |= _spread("reward", np.stack([run.reward[kept] for run in runs]), _errors(runs, 0, kept))
    return cast(Curve, curve)


def _errors(runs: Sequence[Run], column: int, kept: NDArray[np.int64], summed: bool = False) -> Floats | float:
    """[n, points] of the reward (column 0) or the margin (1), or their sums so far; 0 where all are exact."""
    if all(run.exact for run in runs):
        return 0.0
    each = [np.zeros(run.episodes) if run.error is None else run.error[:, column] for run in runs]
    return np.stack([np.cumsum(error) if summed else error for error in each])[:, kept]


def _spread(name: str, values: Floats, errors: Floats | float) -> dict[str, list[float]]:
    """Mean, low and high over the tasks of values [n, points], the last two with their errors."""
    return {
        f"{name}_mean": values.mean(axis=0).tolist(),
        f"{name}_low": np.quantile(values - errors, LOW, axis=0).tolist(),
        f"{name}_high": np.quantile(values + errors, HIGH, axis=0).tolist(),
    }


def _downsample_indices(worst_margin: Floats, points: int) -> NDArray[np.int64]:
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
