"""Families whose transitions are affine in the parameter, P_θ = P₀ + Σ_k θ_k G_k, and nothing else depends on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from surefoot.arrays import Floats, make_readonly
from surefoot.errors import InvalidInput
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.distribution import ParameterDistribution, Uniform
from surefoot.tasks.layered_tasks import layered, layered_directions, layered_transitions
from surefoot.tasks.task_distribution import Coordinates, TaskDistribution

Check: TypeAlias = Callable[[Floats], None]  # raises InvalidInput for a parameter [d] that no task has


def affine_family(
    base: Floats,
    slopes: Sequence[Floats] | Floats,
    distribution: ParameterDistribution,
    *,
    check: Check,
    layers: int | None = None,
    coordinates: Coordinates | None = None,
    safe_parameter: Floats | None = None,
    recipe: Mapping[str, Any],
    **tables: Any,
) -> TaskDistribution:
    """The family with transitions `base` [S, A, S] + Σ_k θ_k·`slopes`[k], rows of `base` summing to 1, of slopes to 0.

    Args:
        check: raises InvalidInput for a parameter outside of which transitions are no probabilities.
        layers: H, for tasks of H steps, one copy of the states for each (`layered`).
        coordinates: as in `TaskDistribution`; where there is one parameter, it times the largest total variation of a
            row of its slope, unless given.
        tables: reward, cost, budget, start and the other arguments of `TabularCMDP`, or of `layered`, for all tasks.
    """
    base, slopes = make_readonly(np.array(base)), make_readonly(np.array(slopes))
    task = partial(TabularCMDP, **tables) if layers is None else partial(layered, horizon=layers, **tables)
    affine = (base, slopes)
    if layers is not None:
        affine = (
            make_readonly(layered_transitions(base, layers)),
            make_readonly(layered_directions(slopes, layers)),
        )
    if coordinates is None and len(slopes) == 1:
        coordinates = partial(np.multiply, largest_change(affine[1][0]))
    build = partial(_task, task, base, slopes, check)
    return TaskDistribution(build, distribution, coordinates, safe_parameter, recipe, affine)


def _task(
    task: Callable[[Floats], TabularCMDP], base: Floats, slopes: Floats, check: Check, parameter: Floats
) -> TabularCMDP:
    check(parameter)
    transitions = base
    for value, slope in zip(parameter, slopes, strict=True):  # one by one: digests depend on the order of additions
        transitions = transitions + value * slope
    # Rates that sum to 1 leave the intended move a probability of 0, not of minus one rounding error.
    return task(np.maximum(transitions, 0.0))


def largest_change(slope: Floats) -> float:
    """The most that one unit of a parameter moves any row of transitions [S, A, S], in total variation."""
    return float(np.abs(slope).sum(axis=2).max() / 2)


def rates_and_sum(rates: Floats) -> Floats:
    """[n, 3] coordinates of two rates [n, 2] that take probability from the same move, and from nothing else."""
    first, second = rates.T
    return np.stack([first, second, first + second], axis=1)


def check_rates(name: str, rates: Floats) -> None:
    """Refuse rates [d] that are not the probabilities of events of which at most one happens."""
    if not (np.isfinite(rates).all() and (rates >= 0).all() and rates.sum() <= 1):
        what, got = "probabilities that sum to at most 1", rates.tolist()
        if len(rates) == 1:
            what, got = "a probability", got[0]
        raise InvalidInput(f"{name} must be {what}, got {got!r}")


def uniform_rate(low: float, high: float) -> Uniform:
    """A probability that is uniform on [low, high]."""
    if not 0 <= low < high <= 1:
        raise InvalidInput(f"low and high must satisfy 0 ≤ low < high ≤ 1, got {low!r} and {high!r}")
    return Uniform(float(low), float(high))
