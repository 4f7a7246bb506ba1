"""The three oracles of the training phase, as typed callables. A task is whatever the oracles of one set agree on.

`epsilon` and `xi` are in the paper's unit scale (r in [0, 1], c in [-1, 1], feasible means V_c ≥ 0), so that one number
bounds rewards and constraints alike; values come back in the user's units, as everywhere outside the theory.
With V* the value of the best feasible policy of a task, a policy is
    ε-optimal             if V_r(π) ≥ V* - ε,
    relaxed ε-feasible    if V_c(π) ≥ -ε, in every constraint,
    ξ-feasible            if V_c(π) ≥ ξ, in every constraint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.policy import Policy

Task: TypeAlias = Any
Order: TypeAlias = Callable[[Floats], Sequence[int]]


@dataclass(frozen=True, eq=False)
class PolicyValues:
    """A policy with its values on the task it was made for, in the user's units.

    Attributes:
        policy: of a kind that the task runs; a `TabularPolicy` on tabular tasks.
        reward: expected discounted reward.
        margin: [m] budget minus expected discounted cost.
    """

    policy: Policy
    reward: float
    margin: Floats


@dataclass(frozen=True, eq=False)
class FeasiblePolicy:
    """One policy with its values on n tasks, in the user's units: reward [n], margin [n, m]."""

    policy: Policy
    reward: Floats
    margin: Floats


class CheckOracle(Protocol):
    """O_c, Definition "CMDP check oracle", as a two-sided gap oracle (E9).

    Each with probability at least 1-δ: True if d(first, second) ≤ ε, False if d(first, second) > 2ε. Between the two
    either answer is right, because no sampler can tell d = ε from d just above it. An exact oracle decides at ε.
    """

    def __call__(
        self, first: Task, second: Task, epsilon: float, delta: float, rng: np.random.Generator, /
    ) -> bool: ...


class OptimalOracle(Protocol):
    """O_l, Definition "Optimal policy oracle".

    With probability at least 1-δ the policy is ε-optimal and relaxed ε-feasible for the task. Raises
    `errors.Infeasible` where no policy is feasible, and never returns a policy that it knows to miss ε.
    """

    def __call__(self, task: Task, epsilon: float, delta: float, rng: np.random.Generator, /) -> PolicyValues: ...


class FeasibleOracle(Protocol):
    """O_s, Definition "Simultaneously feasible policy oracle".

    With probability at least 1-δ the policy is ξ-feasible for every task given; ξ = None asks for a margin of at least
    zero. Raises `errors.Infeasible` saying which task fails and by how much. Nothing is promised for other tasks (E14).
    """

    def __call__(
        self, tasks: Sequence[Task], xi: float | None, delta: float, rng: np.random.Generator, /
    ) -> FeasiblePolicy: ...


def as_chosen(parameters: Floats) -> list[int]:
    return list(range(len(parameters)))


def from_neighbour_to_neighbour(parameters: Floats) -> list[int]:
    """An order of tasks [n, d] in which each but the first is as close as possible to one before it: oracles that learn
    begin with what they know of that."""
    spread = np.ptp(parameters, axis=0)
    at = parameters / np.where(spread > 0, spread, 1.0)
    order, apart = [0], np.full(len(at), np.inf)
    while len(order) < len(at):
        apart = np.minimum(apart, ((at - at[order[-1]]) ** 2).sum(axis=1))
        apart[order] = np.inf
        order.append(int(np.argmin(apart)))
    return order


@dataclass(frozen=True)
class Oracles:
    """The three oracles that Algorithm 1 calls; all of them must understand the same tasks.

    Attributes:
        order: in which tasks of parameters [n, d] are solved, for oracles that begin with what they know of another one
            (`from_neighbour_to_neighbour`).
    """

    check: CheckOracle
    optimal: OptimalOracle
    feasible: FeasibleOracle
    order: Order = as_chosen
