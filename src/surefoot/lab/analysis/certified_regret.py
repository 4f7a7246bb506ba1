"""Regret that is certified while a method runs: the most that surviving cells allow (docs, Theorem 10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from surefoot.arrays import Floats, Mask
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.learning.certified.method import Certified
from surefoot.learning.learner import Learner
from surefoot.learning.method import Method
from surefoot.tabular.affine import AffineTables
from surefoot.tabular.expansion import box_values, rounding
from surefoot.tabular.solve import solve_many
from surefoot.tabular.tables import Tables


class RegretCertificate:
    """Adds up, episode by episode, the largest gap to the optimum that the surviving cells allow.

    With probability at least 1 - risk the regret of the first k episodes is at most the k-th of `totals`, for all k at
    once. `note` is the observer of a simulated run, or is called after every outcome that is told.
    """

    def __init__(self, learner: Learner, optimum: Floats) -> None:
        """Args:
        optimum: [J] upper bounds on the optimal reward of every task of each cell, see `cell_optima`.
        """
        if not isinstance(learner.method, Certified) or not learner.method.certified:
            raise InvalidInput(f"learner must be one of a certified method with cells, got {learner.name}")
        if learner.settings.get("shift"):
            raise InvalidInput(
                "learner must have no shift: the optima are those of the tasks of its cells, not of tasks around them, "
                f"got shift {learner.settings['shift']:g}"
            )
        self.learner, self.method, self.optimum = learner, learner.method, optimum
        self._planned: dict[int, Floats] = {}  # [J] lower bounds on the rewards of planned policies
        self._first = learner.state.episode
        self._gaps: list[tuple[int, float]] = []  # each with the number of episodes told when it began to hold
        self.note(self._first)

    def note(self, done: int, _: int = 0) -> None:
        """After `done` episodes: what is deployed from now on."""
        deployed, state = self.learner.deployed, self.learner.state.method
        lower = np.stack([self._reward_lower(state, int(index)) for index in deployed.indices], axis=1)
        self._gaps.append((done, largest_gap(self.optimum, lower @ deployed.weights, state.surviving)))

    def totals(self, episodes: int) -> Floats:
        """[K] certified regret after each of the first K episodes since the learner was taken over."""
        since, gaps = zip(*self._gaps, strict=True)
        lengths = np.diff(since, append=max(since[-1], self._first + episodes))
        total: Floats = np.cumsum(np.repeat(gaps, lengths))[:episodes]
        return total

    def _reward_lower(self, state: Any, index: int) -> Floats:
        """[J]"""
        known = len(self.method.policies.policies)
        if index < known:
            of_set: Floats = self.method.cells.lower[:, index, 0]
            return of_set
        if index not in self._planned:
            self._planned[index] = _box_lower_bounds(self.method, state.planned[index - known].policy)
        return self._planned[index]


def largest_gap(optimum: Floats, reward_lower: Floats, surviving: Mask) -> float:
    """max_j V*_upper[j] - lower[j] over the surviving cells; over all of them if there are none, which has no more than
    the probability of the risk."""
    gap = optimum - reward_lower
    return max(0.0, float(gap[surviving].max() if surviving.any() else gap.max()))


def cell_optima(method: Method) -> Floats:
    """[J] upper bounds on the optimal reward of every task of each cell, for boxes of an affine family."""
    if not isinstance(method, Certified) or not method.certified:
        raise InvalidInput(f"method must be a certified one with cells, got {method.name}")
    cells = method.cells
    if cells.model is None or cells.model.affine is None:
        raise InvalidInput(f"cells must be boxes of an affine family for bounds on optima, got {cells.source!r} ones")
    centres = [cells.model.task(centre, method.units) for centre in cells.centre]
    return optimum_bounds(cells.model.affine_tables(), centres, cells.low, cells.high)


def _box_lower_bounds(method: Certified, policy: Any) -> Floats:
    """[J] by Theorem 1a on every cell, the least possible where a box is too wide."""
    cells, least = method.cells, method.units.possible_values(ends=False)[0][0]
    example = cells.model.task(cells.centre[0], method.units)  # type: ignore[union-attr]
    lower, _ = box_values(cells.model.affine_tables(), example, policy, cells.low, cells.high, np.zeros(0, np.int64))  # type: ignore[union-attr]
    bound: Floats = np.maximum(lower[:, 0, 0], least)
    return bound


# ---------------------------------------------------------------------------------- the optimum of whole boxes of tasks


# Value iteration stops where what is still missing is this small, relative to the values; the bound holds anywhere.
ACCURACY = 1e-7


def optimum_bounds(affine: AffineTables, tasks: Sequence[Tables], low: Floats, high: Floats) -> Floats:
    """[J] upper bounds on the optimal reward of every task of each box [J, d]; `tasks` [J] are those at the centres.

    For any prices λ ≥ 0 of the costs, V* ≤ max_π V_r(π) - λ·(V_c(π) - budget): the best response to prices, which needs
    no constraint. The prices are those of the task at the centre, and any others would do.
    """
    prices = np.stack([np.maximum(best.dual, 0.0) for best in solve_many(tasks)])
    values = _best_responses(affine, tasks[0].units, prices, (low + high) / 2, (high - low) / 2)
    budget = tasks[0].budget
    allowance = rounding(np.abs(values).max(axis=1)[:, None], tasks[0])[:, 0]
    bound: Floats = values @ tasks[0].start + prices @ budget + allowance
    return bound


def _best_responses(affine: AffineTables, units: Units, prices: Floats, centre: Floats, half: Floats) -> Floats:
    """[J, S] no task of a box and no policy has larger values of reward - prices·costs.

    V ≥ TV with (TV)(s) = max_a sup_θ (r_θ + γP_θV)(s, a), the supremum for every s and a by itself, implies V ≥ V_θ(π)
    for all of them. V + e/(1-γ) does this if TV ≤ V + e, since T(V + c) = TV + γc. With a horizon T is applied once for
    every step, to 0.
    """
    discount = units.discount
    weights = np.concatenate([np.ones((len(prices), 1)), -prices], axis=1)  # [J, 1+m]
    shape = affine.signal_base.shape[1:]
    paid = [(weights @ part.reshape(weights.shape[1], -1)) for part in (affine.signal_base, *affine.signal_slope)]
    moves = [affine.matrix(entries) for entries in (affine.base, *affine.slope)]

    def bellman(values: Floats) -> Floats:
        """TV"""
        base, *slopes = (own + discount * (move @ values.T).T for own, move in zip(paid, moves, strict=True))
        for k, slope in enumerate(slopes):
            base = base + centre[:, [k]] * slope + half[:, [k]] * np.abs(slope)
        best: Floats = base.reshape(-1, *shape).max(axis=2)
        return best

    values = np.zeros((len(prices), shape[0]))
    if units.horizon is not None:
        for _ in range(units.horizon):
            values = bellman(values)
        return values
    while True:
        before, values = values, bellman(values)
        change = values - before
        if np.abs(change).max() <= (1 - discount) * ACCURACY * max(1e-300, float(np.abs(values).max())):
            bound: Floats = before + np.maximum(change, 0.0).max(axis=1)[:, None] / (1 - discount)
            return bound
