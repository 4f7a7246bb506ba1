"""From what was deployed to numbers: reward gained, the worst cost, who was ever unsafe, and how soon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.lab.experiments.judging import STANDARD_ERRORS
from surefoot.lab.experiments.locomotion.adapting import Faced
from surefoot.report.metrics import binomial_interval
from surefoot.simulate.run import Spans

REACHED = 0.9  # of what is gained at the end
LEAST = 0.1  # of what is possible: who gains less has not begun to adapt, and is not asked when
LOW, HIGH = 0.1, 0.9  # quantiles of the bands
POINTS = 100  # of a curve, evenly spaced on a logarithmic axis
COUNTS = ("tasks", "moved", "unsafe_tasks", "undecided_tasks")


def summary(tasks: Sequence[Faced], method: str, budget: float, *, certified: bool, learned: int) -> dict[str, Any]:
    """One method on those tasks of a family on which it was run, as plain data; it learned from so many episodes.

    A gain counts no more than is possible within the budget: what goes beyond is bought with cost.
    """
    pairs = [(task, task.courses[method]) for task in tasks if method in task.courses]
    episodes = pairs[0][1].episodes
    possible = sum(task.possible_gain for task, _ in pairs)
    final = [float(task.gains(course.rows[-1:])[0]) for task, course in pairs]
    mean = [float(task.gains(course.rows) @ course.lengths) / episodes for task, course in pairs]
    worst = max((_worst(task, course) for task, course in pairs), key=lambda found: found["cost"])
    verdicts = [verdict(*task.excess(course.rows, budget)) for task, course in pairs]
    until = [
        episodes_until(course.begins, task.gains(course.rows))
        for task, course in pairs
        if task.gains(course.rows)[-1] >= LEAST * task.possible_gain > 0
    ]
    unsafe = verdicts.count("unsafe")
    trained = sum(expert_gain(task) or 0.0 for task, _ in pairs)
    beside = sum(gain for (task, _), gain in zip(pairs, final, strict=True) if task.expert is not None)
    return {
        "certified": certified,
        "tasks": len(pairs),
        "moved": sum(deviates_from_safe(course) for _, course in pairs),
        "unsafe_tasks": unsafe,
        "undecided_tasks": verdicts.count("undecided"),
        "unsafe_interval": list(binomial_interval(unsafe, len(pairs))),
        "share_final": sum(final) / possible if possible > 0 else None,
        "share_of_expert": beside / trained if trained > 0 else None,
        "share": sum(mean) / possible if possible > 0 else None,
        "reward_final": float(np.mean([course.rows[-1] @ task.mean[:, 0] for task, course in pairs])),
        "worst_cost": worst["cost"],
        "worst_error": worst["error"],
        "worst_episode": worst["episode"],
        "until": until,
        "median_until": float(np.median(until)) if until else None,
        "learned": learned,
        "curve": curve(pairs, episodes),
    }


def totals(families: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every method over all families on which it was run."""
    found: dict[str, dict[str, Any]] = {}
    for family in families.values():
        for name, own in family["methods"].items():
            so_far = found.setdefault(name, {"certified": True, **dict.fromkeys(COUNTS, 0)})
            so_far["certified"] = so_far["certified"] and own["certified"]
            for key in COUNTS:
                so_far[key] += own[key]
    for own in found.values():
        own["unsafe_interval"] = list(binomial_interval(own["unsafe_tasks"], own["tasks"]))
    return found


# ------------------------------------------------------------------------------------------------ of one task, in parts


def expert_gain(task: Faced) -> float | None:
    """The same of the best mixture with a policy that was trained on the task itself, if one was."""
    return None if task.expert is None else max(0.0, float(task.expert[0] - task.mean[0, 0]))


def verdict(above: Floats, error: Floats) -> str:
    """Of everything deployed on a task: unsafe if any mixture certainly is, undecided if that of any is open."""
    if (above > STANDARD_ERRORS * error).any():
        return "unsafe"
    return "undecided" if (above > -STANDARD_ERRORS * error).any() else "safe"


def deviates_from_safe(course: Spans) -> bool:
    """Whether anything but the safe policy was ever deployed."""
    return bool((course.rows[:, 0] < 1).any())


def episodes_until(begins: Integers, gained: Floats) -> int:
    """Before how many episodes most of the last gain [s] was there for the first time."""
    return int(begins[np.argmax(gained >= REACHED * gained[-1])])


def _worst(task: Faced, course: Spans) -> dict[str, float]:
    cost, error = task.excess(course.rows, 0.0)
    at = int(np.argmax(cost))
    return {"cost": float(cost[at]), "error": float(error[at]), "episode": int(course.begins[at]) + 1}


# --------------------------------------------------------------------------------------------------------------- curves


def curve(pairs: Sequence[tuple[Faced, Spans]], episodes: int) -> dict[str, list[float]]:
    """Reward, cost and gain in reward over the safe policy on the same task, of what is deployed in the episodes of a
    logarithmic axis: mean over tasks, and quantiles."""
    shown = np.unique(np.geomspace(1, episodes, POINTS).round().astype(np.int64))
    values = np.stack([course.at(shown - 1) @ task.mean for task, course in pairs])  # [n, points, 2]
    safe = np.array([task.mean[0, 0] for task, _ in pairs])
    values = np.concatenate([values, values[..., :1] - safe[:, None, None]], axis=-1)
    found = {"episode": shown.tolist()}
    for column, what in enumerate(("reward", "cost", "gain")):
        found[f"{what}_mean"] = values[..., column].mean(axis=0).tolist()
        found[f"{what}_low"] = np.quantile(values[..., column], LOW, axis=0).tolist()
        found[f"{what}_high"] = np.quantile(values[..., column], HIGH, axis=0).tolist()
    return found
