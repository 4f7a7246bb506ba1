"""How many simulator steps are spent before the first episode on a new task, besides those that train policies."""

from __future__ import annotations

import math
from collections.abc import Mapping

from surefoot.bounds.settings import Envelopes, LearnedSignals
from surefoot.bounds.signal_model import LOOK_TASKS
from surefoot.bounds.simulation import LOOK_PART
from surefoot.learning.spec import MethodSpec
from surefoot.tasks.task_distribution import TaskDistribution

SAMPLE, HELD_OUT, SIGNALS = "first sample", "held-out tasks", "signals"


def simulated_steps(
    tasks: TaskDistribution, envelopes: Envelopes, signals: LearnedSignals, policies: int
) -> dict[str, int]:
    """Of the value bounds of so many policies and of the signals that are learned of them, by what they are for.

    At most: episodes may end before the horizon, and on held-out tasks hopeless policies are skipped.
    """
    settled = envelopes.resolve(tasks.example, tasks.shared_costs)
    looked = max(1, math.floor(LOOK_PART * settled.episodes))
    episodes = {
        SAMPLE: settled.sample * looked,
        HELD_OUT: settled.holdout * settled.episodes,
        SIGNALS: (signals.tasks + LOOK_TASKS) * signals.episodes,
    }
    return {what: count * policies * tasks.units.episode_length for what, count in episodes.items()}


def steps_before(spec: MethodSpec, trained: int, simulated: Mapping[str, int]) -> int:
    """Before the first episode of a method whose policies took `trained` steps: what is certified rests on bounds, if
    only on the one that the safe policy is feasible, and what reads signals on signals."""
    bounds = simulated[SAMPLE] + simulated[HELD_OUT] if spec.certified else 0
    return trained + bounds + (simulated[SIGNALS] if spec.needs == "signals" else 0)
