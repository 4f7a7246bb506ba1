"""Settings of the insulin pump, found by trying them on simulated days.

A search over a few numbers: the average patient's settings with all doses scaled alike, then each dose by itself, on
the same days throughout, so that differences are those of the settings. That nothing better exists, among these
settings or others, is not shown: no simulation can show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.lab.pump.family import GlucoseTask
from surefoot.lab.pump.settings import AVERAGE_SETTINGS, InsulinSettings
from surefoot.progress import Progress, silent
from surefoot.tasks.task_distribution import TaskDistribution

GAINS = tuple(np.geomspace(0.25, 4.0, 17).tolist())
# By how much all doses, then each of these by itself, are varied in turn: first coarsely, then finely.
FACTORS = ((1.25, 0.8), (1.1, 0.9))
DOSES = ("basal", "feedback", "ratio", "correction_factor")
# A setting counts as keeping the budget in the search if it does by so many standard errors.
CAUTION = 3.0


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


def _best(tasks: Sequence[GlucoseTask], margin: float, days: int, rng: np.random.Generator) -> InsulinSettings:
    """The settings of best score, on the same days throughout."""
    seed = int(rng.integers(2**63))

    def score(settings: InsulinSettings) -> tuple[float, float]:
        return _score(tasks, settings, margin, days, seed)

    best = max((AVERAGE_SETTINGS.scaled(gain) for gain in GAINS), key=score)
    reached = score(best)
    for factor, change in ((factor, change) for pair in FACTORS for change in (None, *DOSES) for factor in pair):
        settings = best.scaled(factor) if change is None else _scale_setting(best, change, factor)
        if (tried := score(settings)) > reached:
            best, reached = settings, tried
    return best


def _scale_setting(settings: InsulinSettings, name: str, factor: float) -> InsulinSettings:
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


def _name(sensitivity: float, skin_time: float) -> str:
    """The patient that the settings are made for."""
    return f"sensitivity {sensitivity:.2f}, {skin_time:.0f} min"
