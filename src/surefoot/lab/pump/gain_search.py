"""Oracles of the insulin pump: settings found by trying them on simulated days.

A search over a few numbers: the average patient's settings with all doses scaled alike, then each dose by itself, on
the same days throughout, so that differences are those of the settings. What is found is tested on fresh days. Proved
is what those days show, with the probability stated: the budget is kept up to what was asked for (docs/guarantees.md,
section 6). That nothing better exists, among these settings or others, is not: no simulation can show it, and no
theorem of the paper is claimed of what is trained with these oracles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from surefoot.arrays import Floats, fraction, number, whole
from surefoot.errors import Infeasible, InvalidInput
from surefoot.estimates import value_bounds
from surefoot.lab.pump.family import GlucoseTask
from surefoot.lab.pump.settings import AVERAGE_SETTINGS, InsulinSettings
from surefoot.oracles.interface import CheckOracle, FeasibleOracle, FeasiblePolicy, OptimalOracle, Oracles, PolicyValues
from surefoot.oracles.probing import check_by_episodes
from surefoot.progress import Progress, silent
from surefoot.tasks.task_distribution import TaskDistribution

GAINS = tuple(np.geomspace(0.25, 4.0, 17).tolist())
# By how much all doses, then each of these by itself, are varied in turn: first coarsely, then finely.
FACTORS = ((1.25, 0.8), (1.1, 0.9))
DOSES = ("basal", "feedback", "ratio", "correction_factor")
COMPARED_GAINS = (0.5, 1.0, 2.0)
# A setting counts as keeping the budget in the search if it does by so many standard errors.
CAUTION = 3.0
# Settings that fail on fresh days are followed by more cautious ones; how often, and by how much.
RETRIES, SMALLER = 8, 0.95
# Days of one comparison at most; differences that these do not resolve are refused.
MOST_COMPARED = 20_000


def glucose_oracles(days: int = 1000, tested: int = 10_000) -> Oracles:
    """The three oracles of the pump; what is proved of their answers is said at each.

    Args:
        days: of each patient on which settings are compared.
        tested: fresh days of each patient on which the settings found are tested.
    """
    return Oracles(check_by_days(), search_gains(days, tested), search_common_gains(days, tested))


def search_gains(days: int = 1000, tested: int = 10_000) -> OptimalOracle:
    """O_l: the settings of most time in range that keep the budget, as far as the search sees.

    With probability 1-δ they are relaxed ε-feasible: tested on fresh days. ε-optimal is a hope. Values are means over
    the fresh days.
    """
    whole("days", days)
    whole("tested", tested)

    def optimal(task: GlucoseTask, epsilon: float, delta: float, rng: np.random.Generator) -> PolicyValues:
        found = _searched_and_tested((task,), -epsilon, delta, days, tested, rng)
        return PolicyValues(found.policy, float(found.reward[0]), found.margin[0])

    return optimal


def search_common_gains(days: int = 1000, tested: int = 10_000) -> FeasibleOracle:
    """O_s: of the settings that keep the budget with margin ξ on every patient given, those of most time in range on
    average over them, as far as the search sees.

    With probability 1-δ they are ξ-feasible on all of them: tested on fresh days.
    """
    whole("days", days)
    whole("tested", tested)

    def feasible(
        tasks: Sequence[GlucoseTask], xi: float | None, delta: float, rng: np.random.Generator
    ) -> FeasiblePolicy:
        if not len(tasks):
            raise InvalidInput("tasks must hold at least one task, got none")
        return _searched_and_tested(tasks, xi or 0.0, delta, days, tested, rng)

    return feasible


def check_by_days(gains: Sequence[float] = COMPARED_GAINS, seed: int = 0) -> CheckOracle:
    """O_c in another distance than the paper's: the largest difference, between two patients, of the unit values of the
    average settings times any of `gains`.

    What is promised is said at `check_by_episodes`: all patients live the same days, drawn from `seed`.
    """
    compared = [AVERAGE_SETTINGS.scaled(number("gains", gain)) for gain in gains]
    return check_by_episodes(compared, seed, most=MOST_COMPARED, called="days")


def insulin_candidates(
    tasks: TaskDistribution,
    *,
    count: int = 8,
    margin: float = 0.01,
    days: int = 1000,
    seed: int = 0,
    progress: Progress = silent,
) -> tuple[InsulinSettings, dict[str, InsulinSettings]]:
    """Settings for `sf.policy_set`: those safe for every patient, and candidates by name.

    Args:
        tasks: a family made by `glucose`.
        count: candidates: the best settings of as many patients along the diagonal of the family's parameters, from
            the one who needs least insulin (most sensitive, slowest absorption) to the one who needs most.
        margin: of the safe settings at the corners of the parameters, as a share of the day.
        days: of each patient on which settings are compared.
        seed: of all days.
        progress: called with (what, patients searched for, all of them).

    Found by search: nothing is claimed of them but what `policy_set` then bounds.
    """
    if not isinstance(tasks.example, GlucoseTask):
        raise InvalidInput(f"tasks must be a family made by glucose, got tasks of {type(tasks.example).__name__}")
    rng = np.random.default_rng(seed)
    (least, most), (fast, slow) = tasks.distribution.support
    corners = [tasks.task((s, t)) for s in (least, most) for t in (fast, slow)]
    what, patients = "searching settings", len(corners) + count
    progress(what, 0, patients)
    safe, found = _best(corners, margin, days, rng), {}
    for k, (s, t) in enumerate(zip(np.geomspace(most, least, count), np.geomspace(slow, fast, count), strict=True)):
        progress(what, len(corners) + k, patients)
        found[_name(s, t)] = _best([tasks.task((s, t))], 0.0, days, rng)
    progress(what, patients, patients)
    return safe, found


# ------------------------------------------------------------------------------------------------- parts, in call order


def _searched_and_tested(
    tasks: Sequence[GlucoseTask], required: float, delta: float, days: int, tested: int, rng: np.random.Generator
) -> FeasiblePolicy:
    """Settings whose unit margin is at least `required` on every task with probability 1-δ, or `Infeasible`."""
    fraction("delta", delta)
    margin = required * tasks[0].units.rate  # as a share of the day
    settings = _best(tasks, max(margin, 0.0), days, rng)
    for _ in range(RETRIES):
        found = [_tested(task, settings, tested, delta / RETRIES / len(tasks), rng) for task in tasks]
        if min(each.least_margin for each in found) >= margin:
            return FeasiblePolicy(
                settings, np.array([each.reward for each in found]), np.array([[each.margin] for each in found])
            )
        settings = settings.scaled(SMALLER)
    worst = int(np.argmin([each.margin for each in found]))
    raise Infeasible(
        f"no settings were found that keep a margin of {margin:.4g} of the day on every patient: on patient {worst} of "
        f"{len(tasks)}, {tasks[worst].parameter.tolist()}, the last ones tried have a margin of "
        f"{found[worst].margin:.4g}, shown to be at least {found[worst].least_margin:.4g} on {tested} days; test on "
        "more days, ask for less or leave the patient out",
        tasks[worst].units.budget - found[worst].margin,
    )


def _best(tasks: Sequence[GlucoseTask], margin: float, days: int, rng: np.random.Generator) -> InsulinSettings:
    """The settings of best score, on the same days throughout."""
    seed = int(rng.integers(2**63))

    def score(settings: InsulinSettings) -> tuple[float, float]:
        return _score(tasks, settings, margin, days, seed)

    best = max((AVERAGE_SETTINGS.scaled(gain) for gain in GAINS), key=score)
    reached = score(best)
    for factor, change in ((factor, change) for pair in FACTORS for change in (None, *DOSES) for factor in pair):
        settings = best.scaled(factor) if change is None else _varied(best, change, factor)
        if (tried := score(settings)) > reached:
            best, reached = settings, tried
    return best


def _varied(settings: InsulinSettings, name: str, factor: float) -> InsulinSettings:
    changed: dict[str, Any] = {name: getattr(settings, name) * factor}
    return replace(settings, **changed)


def _score(
    tasks: Sequence[GlucoseTask], settings: InsulinSettings, margin: float, days: int, seed: int
) -> tuple[float, float]:
    """First by how much the most endangered patient misses the margin, if so; then the mean time in range."""
    missed, reward = 0.0, 0.0
    for task in tasks:
        outcomes = _days(task, settings, days, np.random.default_rng(seed))
        cost = outcomes[:, 1].mean() + CAUTION * outcomes[:, 1].std() / np.sqrt(days)
        missed = max(missed, cost + margin - task.units.budget[0])
        reward += outcomes[:, 0].mean() / len(tasks)
    return -missed, reward


def _days(task: GlucoseTask, settings: InsulinSettings, days: int, rng: np.random.Generator) -> Floats:
    """[days, 2] time in range and below it."""
    outcomes = task.episodes(settings, task.units.episode_length).run(days, rng)
    return np.column_stack([outcomes.reward, outcomes.cost])


class _Tested(NamedTuple):
    """Means over fresh days, and what the margin is at least."""

    reward: float
    margin: float
    least_margin: float


def _tested(task: GlucoseTask, settings: InsulinSettings, days: int, level: float, rng: np.random.Generator) -> _Tested:
    steps = task.units.episode_length
    outcomes = task.episodes(settings, steps).run(days, rng)
    lower, _ = value_bounds(outcomes, task.units, steps, level)
    margin = task.units.budget[0] - outcomes.cost.mean()
    return _Tested(float(outcomes.reward.mean()), float(margin), float(lower[1]))


def _name(sensitivity: float, skin_time: float) -> str:
    """The patient that the settings are made for."""
    return f"sensitivity {sensitivity:.2f}, {skin_time:.0f} min"
