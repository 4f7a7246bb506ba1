"""The most that any policy can earn within the budgets, over whole boxes of tasks of an affine family (Theorem 10)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.units import Units
from surefoot.tabular.affine import AffineTables
from surefoot.tabular.expansion import rounding
from surefoot.tabular.solve import solve_many
from surefoot.tabular.tables import Tables

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

    def improved(values: Floats) -> Floats:
        """TV"""
        base, *slopes = (own + discount * (move @ values.T).T for own, move in zip(paid, moves, strict=True))
        for k, slope in enumerate(slopes):
            base = base + centre[:, [k]] * slope + half[:, [k]] * np.abs(slope)
        best: Floats = base.reshape(-1, *shape).max(axis=2)
        return best

    values = np.zeros((len(prices), shape[0]))
    if units.horizon is not None:
        for _ in range(units.horizon):
            values = improved(values)
        return values
    while True:
        before, values = values, improved(values)
        change = values - before
        if np.abs(change).max() <= (1 - discount) * ACCURACY * max(1e-300, float(np.abs(values).max())):
            bound: Floats = before + np.maximum(change, 0.0).max(axis=1)[:, None] / (1 - discount)
            return bound
