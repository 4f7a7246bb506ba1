"""Algorithm 1 on a family of robots: experts on a cover, one safe policy for all of it, and bounds on what they do."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np

from surefoot.control.crpo import crpo
from surefoot.control.improvement import Settings as Loop
from surefoot.experiments.locomotion.families import Family
from surefoot.oracles.exact import ParameterDistance
from surefoot.oracles.interface import Oracles
from surefoot.oracles.learned import Schooling, learned_experts, learned_safe_policy
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.training.preflight import UncertifiedWarning
from surefoot.training.settings import Envelopes, LearnedSignals
from surefoot.training.training_phase import train

DELTA = 0.02  # of the cover: at most 3δ of the sampled tasks are left out


@dataclass(frozen=True)
class Bounds:
    """How value bounds are made: cells at most, held-out tasks, and episodes of each with every policy; and what
    signals are learned from."""

    cells: int = 100
    holdout: int = 160
    uncovered: float = 0.03
    episodes: int = 120
    learned_tasks: int = 120
    learned_episodes: int = 16


def schooled(family: Family, bounds: Bounds, *, seed: int, jobs: int = 2, share: float = 1.0) -> PolicyValueSet:
    """The policy set of a family.

    Args:
        share: of the steps of training; less than all of them makes worse policies sooner.
    """
    tasks = family.tasks()
    experts = Schooling(settings=Loop(steps=round(share * family.steps)), warm_steps=round(share * family.warm_steps))
    safe = replace(experts, update=crpo(), settings=Loop(steps=round(share * family.safe_steps)), lanes=60)
    check = ParameterDistance(family.points)
    budget = float((tasks.units.unit_margin(np.abs(tasks.units.budget))).min())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)  # said on the page: the paper's theorem is not claimed
        return train(
            tasks,
            epsilon=family.epsilon,
            delta=DELTA,
            xi=family.xi * budget,
            oracles=Oracles(check, learned_experts(experts), learned_safe_policy(safe)),
            seed=seed,
            envelopes=Envelopes(
                cells=bounds.cells, holdout=bounds.holdout, uncovered=bounds.uncovered, episodes=bounds.episodes
            ),
            signals=LearnedSignals(tasks=bounds.learned_tasks, episodes=bounds.learned_episodes),
            jobs=jobs,
            progress=True,
        )
