"""Finite-horizon planning when transitions are known up to a box: DOPE's extended linear program, by its dual.

maximise Σ γ^h z_h(s,a,s') r_h(s,a)   over z ≥ 0 on the support   subject to   Σ γ^h z_h(s,a,s') c_h(s,a) ≤ budget,
Σ_{a,s'} z_h(s,a,s') = Σ_{s0,a0} z_{h-1}(s0,a0,s),   Σ_{a,s'} z_0(s,a,s') = start(s),
(P̂-β) Σ_y z_h(s,a,y) ≤ z_h(s,a,s') ≤ (P̂+β) Σ_y z_h(s,a,y).

The cost is its only coupling constraint. With a price λ on it, what is left is value iteration that also chooses the
best transition inside the box. Each response is a point (cost, reward); the optimum lies on the edge of their upper
hull that crosses the budget, so two responses, mixed once per episode, are optimal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Integers
from surefoot.errors import InvalidInput

# Certified duality gap at which the search for the price stops, relative to the largest value met.
GAP = 1e-9
# Excess over the budget that rounding alone can produce, relative to the largest value met.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class PlanningProblem:
    """Attributes:
    reward, cost: [S, A], [1, S, A] of one step; bonuses included.
    budget: bound on Σ γ^h cost over the H steps.
    start: [S] distribution of the first state.
    successors, possible: [S, A, D] known support, see `empirical_model.Support`.
    discount: γ of one step, 1 for plain sums.
    horizon: H.
    last: (reward [S, A], cost [S, A]) of the last step; None where they are those of every step.
    """

    reward: Floats
    cost: Floats
    budget: float
    start: Floats
    successors: Integers
    possible: NDArray[np.bool_]
    discount: float
    horizon: int
    last: tuple[Floats, Floats] | None = None

    def __post_init__(self) -> None:
        if self.cost.shape != (1, *self.reward.shape):
            raise InvalidInput(
                f"cost must hold one constraint, shape [1, {', '.join(map(str, self.reward.shape))}], "
                f"got shape {list(self.cost.shape)}; this planner takes no more"
            )
        if self.horizon < 1:
            raise InvalidInput(f"horizon must be at least 1, got {self.horizon}")
        if not 0 < self.discount <= 1:
            raise InvalidInput(f"discount must lie in (0, 1], got {self.discount!r}")

    @property
    def signals(self) -> tuple[Floats, Floats]:
        """([S, A, 2], [S, A, 2]) reward and cost of every step but the last, and of the last one."""
        every = np.stack([self.reward, self.cost[0]], axis=2)
        return every, every if self.last is None else np.stack(self.last, axis=2)


@dataclass(frozen=True, eq=False)
class Plan:
    """One or two deterministic policies and how often to follow each.

    Attributes:
        actions: [k, H, S] action of policy k at step h in state s.
        weights: [k]
        reward, cost: of the mixture, each policy with the transitions that suit it best.
        price: λ at the optimum.
        bound: value of the dual at λ; no policy inside the box can have more reward within the budget.
    """

    actions: Integers
    weights: Floats
    reward: float
    cost: float
    price: float
    bound: float


def plan_extended(problem: PlanningProblem, probability: Floats, widths: Floats) -> Plan | None:
    """Solve the extended linear program with P̂ = `probability` and β = `widths`, both [S, A, D]; None if infeasible.

    Starts with the richest and the thriftiest response, then takes the price at which the two tie, where two tangents
    of the dual meet, and responds to that. Unless it ties as well, it replaces the one on its side of the budget.
    Widths of 0 make this ordinary planning under P̂.
    """
    box = _Box(problem, probability, widths)
    limit = problem.budget
    rich = _respond(problem, box, 1.0, 0.0)
    if rich.cost <= limit + _noise(rich):
        return _single(rich, 0.0, rich.reward)
    thrifty = _respond(problem, box, 0.0, 1.0)
    if thrifty.cost > limit + _noise(thrifty):
        return None
    while True:
        price = (rich.reward - thrifty.reward) / (rich.cost - thrifty.cost)
        if price <= 0:  # the thriftiest is among the richest
            return _single(thrifty, 0.0, thrifty.reward)
        point = _respond(problem, box, 1.0, price)
        tie = rich.reward - price * rich.cost
        gain = point.reward - price * point.cost - tie
        scale = max(abs(rich.reward), abs(thrifty.reward), price * abs(rich.cost), price * abs(thrifty.cost))
        if gain <= GAP * scale:
            return _mix_responses(rich, thrifty, limit, price, max(gain, 0.0) + tie + price * limit)
        if point.cost > limit:
            rich = point
        else:
            thrifty = point


def policy_values(problem: PlanningProblem, probability: Floats, policy: Floats) -> tuple[float, float]:
    """(reward, cost) of action probabilities [S, A] or [H, S, A] over the H steps under P̂."""
    tables = policy[None] if policy.ndim == 2 else policy
    followed = [
        _induced_chain(problem, probability, table) for table in tables
    ]  # a stationary policy has the same each step
    values = np.zeros((len(problem.start), 2))
    for h in range(problem.horizon - 1, -1, -1):
        transitions, every, last = followed[min(h, len(followed) - 1)]
        values = (last if h == problem.horizon - 1 else every) + problem.discount * transitions @ values
    reward, cost = problem.start @ values
    return float(reward), float(cost)


def _induced_chain(problem: PlanningProblem, probability: Floats, table: Floats) -> tuple[Floats, Floats, Floats]:
    """([S, S], [S, 2], [S, 2]) transitions, and reward and cost of every step and of the last, of actions [S, A]."""
    transitions = np.zeros((len(table), len(table)))
    np.add.at(transitions, (np.arange(len(table))[:, None, None], problem.successors), table[:, :, None] * probability)
    every, last = (np.einsum("sa,sak->sk", table, signals) for signals in problem.signals)
    return transitions, every, last


# ------------------------------------------------------------------------------------- the dual, helpers in call order


class _Box:
    """The transitions of every row: at least `lower`, and the rest of the mass where the value is largest.

    `every` and `last` are reward and cost of a row, [S·A, 2], in every step but the last and in the last.
    """

    def __init__(self, problem: PlanningProblem, probability: Floats, widths: Floats) -> None:
        shape = (-1, probability.shape[2])
        possible = problem.possible.reshape(shape)
        lower = np.maximum(probability - widths, 0.0).reshape(shape) * possible
        upper = np.minimum(probability + widths, 1.0).reshape(shape) * possible
        self.lower, self.room = lower, upper - lower
        self.free = np.maximum(1 - lower.sum(axis=1, keepdims=True), 0.0)
        self.successors = problem.successors.reshape(shape)
        self.first = np.arange(len(lower))[:, None] * shape[1]
        self.every, self.last = (signals.reshape(-1, 2) for signals in problem.signals)

    def best(self, order: Integers) -> Floats:
        """[S·A, D] the transitions that maximise a value that falls along `order` [S]."""
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        place = rank[self.successors].argsort(axis=1) + self.first
        poured = np.minimum(self.room.take(place).cumsum(axis=1), self.free)
        poured[:, 1:] -= poured[:, :-1].copy()
        best = self.lower.copy()
        best.ravel()[place] += poured
        return best


@dataclass(frozen=True, eq=False)
class _BestResponse:
    """A best response: its reward and cost, and its actions [H, S]."""

    reward: float
    cost: float
    actions: Integers


def _respond(problem: PlanningProblem, box: _Box, worth: float, price: float) -> _BestResponse:
    """Maximise worth·reward - price·cost over policies and transitions inside the box, backwards in time."""
    states, width = problem.reward.shape
    paid = box.last
    weights = np.array([worth, -price])
    actions = np.empty((problem.horizon, states), dtype=np.min_scalar_type(width))
    rows = np.arange(states) * width
    values, order, transitions = np.zeros((states, 2)), None, box.lower
    for h in range(problem.horizon - 1, -1, -1):
        # The best transition depends on nothing but the order of the values, and that soon settles.
        now = np.argsort(values @ -weights, kind="stable")
        if order is None or (order != now).any():
            order, transitions = now, problem.discount * box.best(now)
        ahead = np.einsum("kd,kdj->kj", transitions, values.take(box.successors, axis=0))
        ahead += paid
        paid = box.every
        chosen = (ahead @ weights).reshape(states, width).argmax(axis=1)
        actions[h] = chosen
        values = ahead.take(rows + chosen, axis=0)
    reward, cost = problem.start @ values
    return _BestResponse(float(reward), float(cost), actions)


def _noise(point: _BestResponse) -> float:
    return ROUNDING * max(abs(point.reward), abs(point.cost))


def _single(point: _BestResponse, price: float, bound: float) -> Plan:
    return Plan(point.actions[None], np.ones(1), point.reward, point.cost, price, bound)


def _mix_responses(rich: _BestResponse, thrifty: _BestResponse, limit: float, price: float, bound: float) -> Plan:
    """The two mixed so that the cost is the limit."""
    share = min(max((limit - thrifty.cost) / (rich.cost - thrifty.cost), 0.0), 1.0)
    if share == 0.0:
        return _single(thrifty, price, bound)
    weights = np.array([share, 1 - share])
    return Plan(
        np.stack([rich.actions, thrifty.actions]),
        weights,
        float(weights @ [rich.reward, thrifty.reward]),
        float(weights @ [rich.cost, thrifty.cost]),
        price,
        bound,
    )
