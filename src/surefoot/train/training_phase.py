"""Algorithm 1: sample tasks, cover them greedily, solve each centre, find one policy feasible for all."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot import theory
from surefoot.cmdp.model import Floats, Units
from surefoot.errors import InvalidInput
from surefoot.oracles.exact import ParameterDistance, exact_oracles
from surefoot.oracles.interface import CheckOracle, FeasiblePolicy, Oracles, PolicyValues
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.tasks.family import TaskDistribution
from surefoot.train.greedy_cover import greedy_cover
from surefoot.train.preflight import UncertifiedWarning, check_accuracy, preflight
from surefoot.train.progress import stages


def train(
    tasks: TaskDistribution,
    *,
    epsilon: float,
    delta: float,
    xi: float | None = None,
    oracles: Oracles | None = None,
    seed: int,
    progress: bool = True,
) -> PolicyValueSet:
    """The policy-value set Û and the safe policy π_s for a distribution over tasks.

    Args:
        epsilon: accuracy of the cover in the paper's distance d (unit scale).
        delta: the paper's δ; at most 3δ of the sampled tasks stay uncovered.
        xi: margin (unit scale) that π_s must keep on every centre; None asks for feasibility and records what was
            attained.
        oracles: check, optimal and feasible; exact ones for tabular families when not given.
        progress: show a progress bar on a terminal.
    """
    check_accuracy(epsilon, delta, xi)
    rng = np.random.default_rng(seed)
    oracles = oracles or exact_oracles(tasks)
    guard = preflight(tasks, epsilon=epsilon, delta=delta, xi=xi, oracles=oracles)
    if not guard.satisfied:
        warnings.warn(guard.warning, UncertifiedWarning, stacklevel=2)

    with stages(progress) as show:
        samples = theory.initial_sample_size(delta)
        while True:
            show(f"covering {samples} sampled tasks")
            parameters = tasks.sample(samples, rng)
            centres = _cover(tasks, parameters, epsilon, delta, oracles.check, rng)
            if theory.coverage_error(len(centres), samples, delta) <= delta:
                break
            samples *= 2

        cover = [tasks.task(parameters[j]) for j in centres]
        optimal = []
        for number, task in enumerate(cover, start=1):
            show(f"solving centre {number} of {len(cover)}")
            optimal.append(oracles.optimal(task, epsilon, delta / (2 * len(cover)), rng))
        show("looking for one policy feasible on every centre")
        safe = oracles.feasible(cover, xi or 0.0, delta / 2, rng)

    training = {"seed": seed, "samples": samples, "cover_size": len(centres), **guard.facts}
    return _policy_value_set(tasks, parameters[centres], cover[0].units, optimal, safe, epsilon, delta, training)


def _cover(
    tasks: TaskDistribution,
    parameters: Floats,
    epsilon: float,
    delta: float,
    check: CheckOracle | ParameterDistance,
    rng: np.random.Generator,
) -> NDArray[np.integer]:
    """Indices of U (the appendix's subroutine): by coordinates when distances are known, else by the pair matrix."""
    if isinstance(check, ParameterDistance):
        return greedy_cover(check.coordinates(parameters), epsilon, uncovered=3 * delta)
    # Equal parameters are equal tasks: ask the oracle once per pair of different ones.
    distinct, member = np.unique(parameters, axis=0, return_inverse=True)
    member = member.reshape(-1)
    models = [tasks.task(parameter) for parameter in distinct]
    near = np.eye(len(models), dtype=bool)
    for i, j in zip(*np.triu_indices(len(models), 1), strict=True):
        near[i, j] = near[j, i] = check(models[i], models[j], epsilon, delta / len(parameters) ** 2, rng)
    return greedy_cover(near[np.ix_(member, member)], uncovered=3 * delta)


def _policy_value_set(
    tasks: TaskDistribution,
    parameters: Floats,
    units: Units,
    optimal: list[PolicyValues],
    safe: FeasiblePolicy,
    epsilon: float,
    delta: float,
    training: Mapping[str, Any],
) -> PolicyValueSet:
    """Û, Eq. (constructpolicy): per centre the policy with its values, and those of π_s there."""
    entries = tuple(
        Entry(parameter, best.policy, best.reward, best.margin, float(safe_reward), safe_margin)
        for parameter, best, safe_reward, safe_margin in zip(parameters, optimal, safe.reward, safe.margin, strict=True)
    )
    attained = float(units.unit_margin(safe.margin).min())
    if attained < 0:
        raise InvalidInput(
            f"the feasible oracle must return a feasible policy, got smallest unit margin {attained:.6g}"
        )
    return PolicyValueSet(entries, safe.policy, units, epsilon, delta, attained, tasks.digest(), tasks.recipe, training)
