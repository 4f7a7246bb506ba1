"""The three oracles of the training phase, as typed callables. A task is whatever the oracles of one set agree on.

`epsilon` and `xi` are in the paper's unit scale (r in [0, 1], c in [-1, 1], feasible means V_c ≥ 0), so that one number
bounds rewards and constraints alike; values come back in the user's units, as everywhere outside the theory.
With V* the value of the best feasible policy of a task, a policy is
    ε-optimal             if V_r(π) ≥ V* - ε,
    relaxed ε-feasible    if V_c(π) ≥ -ε, in every constraint,
    ξ-feasible            if V_c(π) ≥ ξ, in every constraint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.policy import Policy

Task: TypeAlias = Any


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


@dataclass(frozen=True)
class Oracles:
    """The three oracles that Algorithm 1 calls; all of them must understand the same tasks."""

    check: CheckOracle
    optimal: OptimalOracle
    feasible: FeasibleOracle
