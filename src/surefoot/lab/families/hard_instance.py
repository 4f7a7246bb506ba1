"""The hard instances of the paper's lower bound: |Ω| = 2^m tasks that differ in one transition probability each.

A binary tree of 2|Ω|-1 routing states leads to gates s_0, ..., s_{|Ω|-1}, at step m + 1. At a gate action 0 enters the
loop s̃_i, where every step pays and the constraint is nearly kept; it goes on with probability p_i and ends in z_i,
where nothing is paid. Action 1 enters z'_i, which pays nothing and keeps the constraint with ξ to spare. Task 0 has
p_0 = q₁ and p_i = q₀ otherwise; task i ≥ 1 has p_i = q₂ besides. So the best gate of task i is the i-th, by Θ(ε), and
who does not try all loops does not know which it is.

States: routing first, then gates, loops s̃, their ends z, safe ends z', |Ω| each: 6|Ω| - 1 in all.

The paper says V_c ≥ b with b = 0. Here costs are -c and the budget is -b, which is the same. Its figure prints a reward
of 0 everywhere, so that every feasible policy would be optimal, and γ^(m+3) where the loop is reached at step m + 2:
`reward` and `depth` are 1 and m + 2 unless said otherwise. With b = 0 tasks differ in their optimum by a part of ε
only; the factor 1/(ξ(1-γ)) in the bound needs b = Θ(1/(1-γ)), as in the construction that the paper adapts (Vaswani,
Yang & Szepesvári 2022, Theorem 8). So `offset` is as large as constraint values in [-1, 1] allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surefoot.arrays import Floats, Integers, check_int, check_unit_interval, number
from surefoot.errors import InvalidInput
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.task_distribution import TaskDistribution, from_arrays

ENTER, AVOID = 0, 1  # actions at a gate


@dataclass(frozen=True)
class HardInstances:
    """Attributes:
    depth_of_tree: m; there are |Ω| = 2^m tasks.
    epsilon, xi, discount: the bound's ε, ξ and γ.
    reward: of each step in a loop.
    offset: the bound's b; None is the largest that constraint values in [-1, 1] allow.
    short: x, what a loop with q₀ is short of b; None is ξ.
    depth: D, what the powers of γ in the constraint values divide by; None is m + 2.
    constants: the paper's c₁, c₂, c₃.
    """

    depth_of_tree: int = 2
    epsilon: float = 0.2
    xi: float = 0.3
    discount: float = 0.97
    reward: float = 1.0
    offset: float | None = None
    short: float | None = None
    depth: int | None = None
    constants: tuple[float, float, float] = (3.0, 1.0, 2.0)

    def __post_init__(self) -> None:
        check_int("depth_of_tree", self.depth_of_tree)
        for name in ("epsilon", "discount"):
            check_unit_interval(name, getattr(self, name))
        for name in ("xi", "reward"):
            if not number(name, getattr(self, name)) > 0:
                raise InvalidInput(f"{name} must be positive, got {getattr(self, name)!r}")
        q0, q1, q2 = self.loops
        c1, c2, c3 = self.constants
        if not (c1 > 0 and 0 < c2 < c3 and 0 < q0 < q1 < q2 and q2 - q0 < min(q0, 1 - q0) / 2):
            raise InvalidInput(
                "constants must be positive, the second smaller than the third, and loops q₀ + α at most half way to 0 "
                f"and 1, got {self.constants} and loops {q0:g}, {q1:g}, {q2:g}"
            )
        largest = max(abs(value) for value in self.paid)
        if largest > 1 + 1e-12:
            raise InvalidInput(
                f"offset must leave constraint values in [-1, 1], at most {self.largest_offset:g}, got {self.b:g}"
            )

    @property
    def tasks(self) -> int:
        """|Ω|"""
        return 1 << self.depth_of_tree

    @property
    def states(self) -> int:
        return 6 * self.tasks - 1

    @property
    def arrival(self) -> int:
        """The step at which a loop is entered."""
        return self.depth_of_tree + 2

    @property
    def loops(self) -> tuple[float, float, float]:
        """q₀, q₁, q₂"""
        γ, (c1, c2, c3) = self.discount, self.constants
        ε = (1 - γ) * self.xi * self.epsilon  # ε'
        q0 = (1 - c1 * (1 - γ)) / γ
        step = (1 - γ * q0) ** 2 * ε / γ
        return q0, q0 + c2 * step, q0 + c3 * step

    @property
    def alpha(self) -> float:
        """α₂, the distance between any two of the tasks."""
        return self.loops[2] - self.loops[0]

    @property
    def largest_offset(self) -> float:
        γ, D = self.discount, self._depth
        in_loops = γ**D / self._leaving + self._short
        return min(in_loops, γ**D / (1 - γ) - self.xi)

    @property
    def b(self) -> float:
        return self.largest_offset if self.offset is None else self.offset

    @property
    def paid(self) -> tuple[float, float]:
        """Constraint values of a step in a loop, u, and in a safe end."""
        γ, D = self.discount, self._depth
        return (self.b - self._short) * self._leaving / γ**D, (self.b + self.xi) * (1 - γ) / γ**D

    def going_on(self, task: int) -> Floats:
        """[|Ω|] p_i on a task."""
        if not 0 <= task < self.tasks:
            raise InvalidInput(f"task must be the index of one, 0..{self.tasks - 1}, got {task!r}")
        q0, q1, q2 = self.loops
        p = np.full(self.tasks, q0)
        p[0] = q1
        if task:
            p[task] = q2
        return p

    def optimum(self, task: int) -> float:
        """V* in closed form: through the best gate, entering its loop as often as the constraint allows."""
        γ, reached = self.discount, self.discount**self.arrival
        u, safe = self.paid
        loop = reached / (1 - γ * self.going_on(task))  # discounted steps in each
        short, spare = self.b - u * loop, reached * safe / (1 - γ) - self.b
        if spare < 0:
            return float("nan")
        entering = np.where(short > 0, spare / np.maximum(spare + short, 1e-300), 1.0)
        return float((entering * self.reward * loop).max())

    def family(self) -> TaskDistribution:
        """All of them, equally likely; a task's parameter is its number."""
        return from_arrays([self.task(index) for index in range(self.tasks)])

    def task(self, index: int) -> TabularCMDP:
        rows, (_, loops, ends, safe) = self._routes.copy(), self._blocks
        p = self.going_on(index)[:, None]
        rows[loops, :, loops], rows[loops, :, ends] = p, 1 - p
        cost, reward = np.zeros(self.states), np.zeros(self.states)
        cost[loops], cost[safe] = -np.clip(self.paid, -1.0, 1.0)  # rounding
        reward[loops] = self.reward
        return TabularCMDP(
            rows,
            reward,
            cost,
            -self.b,
            np.eye(self.states)[0],
            self.discount,
            reward_range=(0.0, self.reward),
            cost_range=(-1.0, 1.0),
        )

    @cached_property
    def _routes(self) -> Floats:
        """[S, 2, S] all transitions but those of loops."""
        n, rows = self.tasks, np.zeros((self.states, 2, self.states))
        gates, loops, ends, safe = self._blocks
        for state in range(n - 1):
            for action in (0, 1):
                rows[state, action, 2 * state + action + 1] = 1.0
        rows[np.arange(n - 1, 2 * n - 1), :, gates] = 1.0
        rows[gates, ENTER, loops] = rows[gates, AVOID, safe] = 1.0
        for absorbing in (ends, safe):
            rows[absorbing, :, absorbing] = 1.0
        return rows

    @property
    def _blocks(self) -> tuple[Integers, Integers, Integers, Integers]:
        """Gates, loops, their ends and safe ends [|Ω|] each."""
        n = self.tasks
        gates, loops, ends, safe = (np.arange(n) + 2 * n - 1 + k * n for k in range(4))
        return gates, loops, ends, safe

    @property
    def _leaving(self) -> float:
        """1 - γq₀ = c₁(1-γ)"""
        return self.constants[0] * (1 - self.discount)

    @property
    def _short(self) -> float:
        return self.xi if self.short is None else self.short

    @property
    def _depth(self) -> int:
        return self.arrival if self.depth is None else self.depth
