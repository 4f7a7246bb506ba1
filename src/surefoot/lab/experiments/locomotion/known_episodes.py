"""Where tasks of a family differ in nothing but rewards: each policy of the set is simulated once for all of them.

Tasks then share noise. Methods are compared on the same episodes as ever; but what is seen on one task is no longer
independent of what is seen on another, and intervals over tasks, which take them to be, are too narrow. Each task
learns from episodes drawn out of several times as many, so that two of them have only some in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.lab.experiments.frame import Bench
from surefoot.lab.experiments.locomotion.settings import FAMILIES, LocomotionSettings
from surefoot.lab.robots.recording import Recording, record
from surefoot.streams import Stream

POOL = 4  # times as many episodes of a policy as a task learns from, at most


@dataclass(frozen=True, eq=False)
class KnownEpisodes:
    """Of one policy.

    Attributes:
        pool: that tasks learn from.
        judged: on each task, fresh ones to judge the policy by.
    """

    pool: Recording
    judged: Sequence[Outcomes]

    def to_learn_from(self, task: Any, number: int, settings: LocomotionSettings) -> Outcomes:
        """Those of task `number`, drawn from the pool without replacement."""
        rng = _rng(settings.seed, Stream.LOCOMOTION_SHARED_CHOICE, number)
        chosen = rng.permutation(len(self.pool.outcomes))[: settings.watched]
        return self.pool[chosen].outcomes_on(task)


def known_episodes(
    name: str, policies: Sequence[Policy], parameters: Floats, settings: LocomotionSettings, bench: Bench
) -> list[KnownEpisodes]:
    """Of each policy, where all tasks of the family can have the same; none otherwise."""
    family = FAMILIES[name].tasks()
    if not family.shared_costs:
        return []
    tasks = [family.task(parameter) for parameter in parameters]
    return bench.map(
        f"simulating, {name}",
        know_policy,
        [(tasks, policy, index, settings) for index, policy in enumerate(policies)],
    )


def know_policy(tasks: Sequence[Any], policy: Policy, index: int, settings: LocomotionSettings) -> KnownEpisodes:
    """Policies are judged on the same random numbers, each on as many episodes as any could need."""
    learning = _rng(settings.seed, Stream.LOCOMOTION_SHARED_LEARNING, index)
    judging = _rng(settings.seed, Stream.LOCOMOTION_SHARED_EVALUATION)
    judged = max(2 * settings.judged, 2 * settings.judged_others, settings.judged_idle)
    pool = record(tasks[0], policy, min(POOL, len(tasks)) * settings.watched, learning)
    fresh = record(tasks[0], policy, judged, judging)
    outcomes = [fresh.outcomes_on(task) for task in tasks]
    return KnownEpisodes(pool, [Outcomes(each.reward, each.cost) for each in outcomes])


def _rng(seed: int, *key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
