"""Inventory control, the third of DOPE's benchmarks: order stock for a random demand, at a bounded expense.

The stock is 0..5. Action a orders a units, which arrive at once; an order beyond the capacity is cut to what fits (the
authors offer only orders that fit, so this adds no choice). Then a demand of 0..5 units is met as far as possible.
Ordering costs 4 + 2a (nothing for a = 0) and holding s + a, divided by the largest such cost; the reward is 8d/100
for a demand d that was met in full, divided by the largest expected revenue. Seven steps from an empty store, budget
3.5.

A task shifts demand: with the authors' probabilities p = (.3, .2, .2, .2, .05, .05), demand is p + shift·(-1, 0, 0, 1,
0, 0), so that a positive shift makes customers of those who would not have come. The authors' task is shift 0. Rewards
are the expected revenues of *their* demand in all tasks: what varies between tasks, and has to be learnt, is how the
stock moves. Revenue is computed as in the authors' program, which weighs demand d by the probability that the stock
becomes s + a - d; where the store is sold out that is the probability of any larger demand as well.
"""

from __future__ import annotations

import numpy as np

from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.tasks.affine_family import affine_family
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution

STATES = 6
DEMAND = (0.3, 0.2, 0.2, 0.2, 0.05, 0.05)
SHIFT = (-1.0, 0.0, 0.0, 1.0, 0.0, 0.0)
LARGEST_SHIFT = min(DEMAND[3], DEMAND[0])  # either way, before a probability turns negative
FIXED_COST, UNIT_COST, UNIT_REVENUE = 4.0, 2.0, 0.08
HORIZON = 7
BUDGET = HORIZON / 2
PUBLISHED_PARAMETER = (0.0,)

OPTIONS = {"most_shift": "largest shift of the demand"}


def inventory(most_shift: float = 0.1) -> TaskDistribution:
    """Inventory control, layered, with shift uniform on [-most_shift, most_shift]; the parameter is [shift]."""
    if not 0 < most_shift <= LARGEST_SHIFT:
        raise InvalidInput(f"most_shift must lie in (0, {LARGEST_SHIFT:g}], got {most_shift!r}")
    reward, cost = signals()
    return affine_family(
        *transition_directions(),
        Uniform(-float(most_shift), float(most_shift)),
        check=_check_shift,
        recipe={"family": "inventory", "most_shift": float(most_shift)},
        layers=HORIZON,
        reward=reward,
        cost=cost,
        budget=BUDGET,
        start=np.eye(STATES)[0],
    )


def transition_directions() -> tuple[Floats, Floats]:
    """(P₀ [S, A, S], G [1, S, A, S]): the base transitions are P₀ + shift·G₀."""
    return _stock_transitions(np.array(DEMAND)), _stock_transitions(np.array(SHIFT))[None]


def signals() -> tuple[Floats, Floats]:
    """(reward, cost), each [S, A] and at most 1."""
    base, _ = transition_directions()
    after, order = _stock_after_order()
    sold = after[:, :, None] - np.arange(STATES)  # [S, A, S] demand that leads to each next stock
    reward = (base * np.where(sold > 0, UNIT_REVENUE * sold, 0.0)).sum(axis=2)
    cost = np.where(order > 0, FIXED_COST + UNIT_COST * order, 0.0) + after
    return reward / reward.max(), cost / cost.max()


def _stock_after_order() -> tuple[Floats, Floats]:
    """[S, A] stock once the order has come, and what was ordered after cutting it to the capacity."""
    stock, order = np.indices((STATES, STATES)).astype(np.float64)
    order = np.minimum(order, STATES - 1 - stock)
    return stock + order, order


def _stock_transitions(demand: Floats) -> Floats:
    """[S, A, S] Σ_d demand[d] · [next stock = max(stock + order - d, 0)]."""
    after, _ = _stock_after_order()
    left = np.maximum(after[:, :, None] - np.arange(STATES), 0).astype(np.intp)  # [S, A, D]
    rows: Floats = np.einsum("d,sadt->sat", demand, np.eye(STATES)[left])
    return rows


def _check_shift(parameter: Floats) -> None:
    shift = float(parameter[0])
    if not abs(shift) <= LARGEST_SHIFT:
        raise InvalidInput(f"shift must lie in [-{LARGEST_SHIFT:g}, {LARGEST_SHIFT:g}], got {shift!r}")
