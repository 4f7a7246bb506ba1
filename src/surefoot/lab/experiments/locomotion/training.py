"""Training for a family of robots: Algorithm 1 (experts on a cover, one safe policy for all of it, bounds on what they
do), meta-policies, and experts of single tasks. Takes JAX."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from surefoot.cmdp.policy import Policy
from surefoot.control.cpo import crpo
from surefoot.control.improvement import Settings as Loop
from surefoot.control.improvement import improve, resume
from surefoot.control.trust_region import Region
from surefoot.lab.baselines.control_specs import BatchRules, MetaCpoRules, PenaltyRules, SafeMetaRules
from surefoot.lab.baselines.history_policy import HISTORY_CONDITIONED, HistoryPolicy, HistoryWorld
from surefoot.lab.baselines.meta_training import MetaSettings, MetaTrained, meta_train
from surefoot.lab.baselines.network_adaptation import META_LEARNERS
from surefoot.lab.baselines.rollout_buffer import NetworkPolicy
from surefoot.lab.experiments.locomotion.settings import FIXED, LocomotionFamily
from surefoot.oracles.exact import ParameterDistance
from surefoot.oracles.interface import FeasibleOracle, FeasiblePolicy, Oracles, from_neighbour_to_neighbour
from surefoot.oracles.learned import Schooling, Solved, learned_experts, learned_safe_policy, side_by_side
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.preflight import UncertifiedWarning
from surefoot.training.train import train

DELTA = 0.02  # of the cover: at most 3δ of the sampled tasks are left out


def train_policies(
    family: LocomotionFamily,
    *,
    seed: int,
    jobs: int = 2,
    share: float = 1.0,
    bounds: bool = True,
    progress: Progress = silent,
) -> PolicyValueSet:
    """The policy set of a family.

    Args:
        share: of the steps of training; less than all of them makes worse policies sooner.
        bounds: False bounds nothing but how often the safe policy is infeasible.
    """
    tasks = family.tasks()
    experts = Schooling(
        settings=Loop(steps=round(share * family.steps)),
        warm_steps=round(share * family.warm_steps),
        loosened=family.loosened,
        least_length=family.least_length,
    )
    safe = replace(experts, warm_steps=round(share * family.safe_steps), lanes=60, tested=400)  # on every centre
    solved: Solved = []
    check, feasible = ParameterDistance(family.points), learned_safe_policy(safe, solved)
    budget = float((tasks.units.unit_margin(np.abs(tasks.units.budget))).min())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)  # said on the page: the paper's theorem is not claimed
        return train(
            tasks,
            epsilon=family.epsilon,
            delta=DELTA,
            xi=family.xi * budget,
            oracles=Oracles(
                check,
                learned_experts(experts, solved),
                feasible_on_corners(feasible, tasks) if family.corners else feasible,
                order=from_neighbour_to_neighbour,
            ),
            seed=seed,
            envelopes=family.envelopes if bounds else replace(family.envelopes, cells=0),
            signals=bounds and family.signals,
            jobs=jobs,
            progress=progress,
        )


def feasible_on_corners(oracle: FeasibleOracle, family: TaskDistribution) -> FeasibleOracle:
    """The same oracle, asked for a policy that keeps the margin on the corners of the family too: the outermost centres
    of a cover lie inside."""
    corners = [family.task(np.array(corner)) for corner in itertools.product(*family.distribution.support)]

    def feasible(tasks: Sequence[Any], xi: float | None, delta: float, rng: np.random.Generator) -> FeasiblePolicy:
        found, own = oracle([*tasks, *corners], xi, delta, rng), slice(len(tasks))
        return FeasiblePolicy(found.policy, found.reward[own], found.margin[own])

    return feasible


# Of meta-training: tasks, spread evenly over the family, and lanes of each.
META_TASKS, META_LANES = 6, 10
META_SETTINGS = MetaSettings(iterations=100, batch=2_000, region=Region(divergence=0.01))
META_RULES: Mapping[str, type[BatchRules]] = {
    "safe-meta-control": SafeMetaRules,
    "meta-cpo": MetaCpoRules,
    "maml-penalty": PenaltyRules,
}


def meta_policy(
    family: LocomotionFamily,
    method: str,
    safe: NetworkPolicy,
    options: Mapping[str, Any],
    seed: int,
    share: float = 1.0,
) -> MetaTrained:
    """What a meta-learner begins with on a new task: trained on tasks of the family, from the safe policy on, adapting
    with these options. An error if meta-training never moves it."""
    first, *others = meta_tasks(family)
    return meta_train(
        first.world(META_LANES, *others),
        np.repeat(np.arange(META_TASKS), META_LANES).tolist(),
        META_LEARNERS[method],
        settings=_meta_settings(share),
        rules=META_RULES[method](**options),
        rng=np.random.default_rng([seed, list(META_RULES).index(method)]),
        start=safe,
    )


def train_across_domains(
    family: LocomotionFamily,
    method: str,
    safe: NetworkPolicy,
    seed: int,
    share: float = 1.0,
) -> Policy:
    """The network of a method that never adapts: the safe policy trained further by CRPO on the tasks of meta-training,
    for as many steps as a meta-policy: up the reward of all of them, or down the cost where it is worst."""
    tasks, rules = meta_tasks(family), Schooling(lanes=META_TASKS * META_LANES)
    course, stream = side_by_side(tasks, np.zeros(1), rules), len(META_RULES) + list(FIXED).index(method)
    settings = replace(rules.settings, steps=meta_steps(tasks[0].units.episode_length, share))
    memory = HistoryPolicy.looking_away(safe) if method == HISTORY_CONDITIONED.name else None
    first, world = (safe, course.world) if memory is None else (memory.network, HistoryWorld(course.world))
    rng = np.random.default_rng([seed, stream])
    start = resume(first, world, settings, rng)
    words: Any = {"groups": course.groups, "budget": course.budget, "start": start}
    network: Any = improve(world, crpo(), settings=settings, rng=rng, **words).policy
    return network if memory is None else replace(memory, network=network)


def meta_tasks(family: LocomotionFamily) -> list[Any]:
    """Spread evenly over the family, from corner to corner, its ends left out."""
    tasks = family.tasks()
    low, high = tasks.distribution.support.T
    return [tasks.task(parameter) for parameter in np.linspace(low, high, META_TASKS + 2)[1:-1]]


def meta_steps(horizon: int, share: float = 1.0) -> int:
    """Of training one of them: on each task before and after its adaptations."""
    settings = _meta_settings(share)
    each = META_LANES * max(settings.batch // META_LANES, horizon)
    return settings.iterations * (settings.local + 1) * META_TASKS * each


def _meta_settings(share: float) -> MetaSettings:
    return replace(META_SETTINGS, iterations=max(1, round(share * META_SETTINGS.iterations)))


def task_expert(family: LocomotionFamily, task: Any, start: NetworkPolicy, rng: np.random.Generator) -> NetworkPolicy:
    """A policy trained on the very test task, from `start`, for as long as an expert that begins with its neighbour's:
    what methods are held against, and none can have that must stay safe.

    Untested: whoever judges it sees what it costs, and mixes in no more of it than the budget allows.
    """
    rules = Schooling()
    course = side_by_side([task], np.zeros(len(task.units.budget)), rules)
    return improve(
        course.world,
        rules.update,
        settings=replace(rules.settings, steps=family.warm_steps),
        rng=rng,
        budget=course.budget,
        start=resume(start, course.world, rules.settings, rng),
    ).policy
