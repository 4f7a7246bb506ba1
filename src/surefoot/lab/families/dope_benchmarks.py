"""The three tasks on which DOPE was shown, layered, each made a family by one parameter of its transitions.

Factored: three states in a ring, and a price on every advance. Action 0 stays. Action 1 advances to the next state of
the ring, brings (s+1)/3 in state s, and costs 1. Six steps from state 0, budget 3: half of the steps may be advances,
and going round once pays best. In the authors' task an advance always succeeds; here it fails, and stays, with
probability `failure`.

Media: streaming over a wireless link, whose buffer of 0..9 packets should not run empty. In a step a packet arrives
with probability 0.9 under the fast service (action 0) and 0.1 under the slow one (action 1), and one is played with
probability `drain` (the authors' is 0.8); a packet that finds the buffer full is lost, and an empty buffer plays
nothing. The authors minimise the number of steps with an empty buffer; the reward here is 1 minus that, per step. Fast
service costs 1. Ten steps from an empty buffer, budget 5.

Inventory: order stock, 0..5, for a random demand, at a bounded expense. Action a orders a units, which arrive at once;
an order beyond the capacity is cut to what fits (the authors offer only orders that fit, so this adds no choice). Then
a demand of 0..5 units is met as far as possible. Ordering costs 4 + 2a (nothing for a = 0) and holding s + a, divided
by the largest such cost; the reward is 8d/100 for a demand d that was met in full, divided by the largest expected
revenue. Seven steps from an empty store, budget 3.5. A task shifts demand: with the authors' probabilities p = (.3, .2,
.2, .2, .05, .05), demand is p + shift·(-1, 0, 0, 1, 0, 0), so that a positive shift makes customers of those who would
not have come. Rewards are the expected revenues of the authors' demand, shift 0, in all tasks: what varies between
tasks, and has to be learnt, is how the stock moves. Revenue is computed as in the authors' program, which weighs demand
d by the probability that the stock becomes s + a - d; where the store is sold out that is the probability of any larger
demand as well.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.tasks.affine_family import affine_family, check_rates, uniform_rate
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution

FACTORED_STEPS, MEDIA_STEPS, INVENTORY_STEPS = 6, 10, 7
PUBLISHED_FAILURE, PUBLISHED_DRAIN, PUBLISHED_SHIFT = (0.0,), (0.8,), (0.0,)  # the authors' parameters

OPTIONS = {
    "most_failure": "largest failure",
    "low": "least drain",
    "high": "largest drain",
    "most_shift": "largest shift of the demand",
}


def factored(most_failure: float = 0.2) -> TaskDistribution:
    """The factored CMDP with failure uniform on [0, most_failure]; the parameter is [failure]."""
    if not 0 < most_failure <= 1:
        raise InvalidInput(f"most_failure must lie in (0, 1], got {most_failure!r}")
    stay = np.eye(3)
    advance = np.roll(stay, 1, axis=1)
    return _benchmark(
        np.stack([stay, advance], axis=1),
        np.stack([np.zeros_like(stay), stay - advance], axis=1)[None],
        Uniform(0.0, float(most_failure)),
        check=partial(check_rates, "failure"),
        recipe={"family": "factored", "most_failure": float(most_failure)},
        layers=FACTORED_STEPS,
        reward=np.stack([np.zeros(3), (np.arange(3) + 1) / 3], axis=1),
        cost=np.tile([0.0, 1.0], (3, 1)),
    )


ARRIVES = (0.9, 0.1)  # probability of a packet under each action


def media(low: float = 0.7, high: float = 0.9) -> TaskDistribution:
    """Media streaming with drain uniform on [low, high]; the parameter is [drain].

    With μ the probability of an arrival and λ the drain: up μ(1-λ), down (1-μ)λ, otherwise the buffer stays.
    """
    stay, up, down = np.eye(10), np.eye(10, k=1), np.eye(10, k=-1)
    up[-1, -1], down[0, 0] = 1.0, 1.0  # the buffer is full, or empty
    idle = np.stack([mu * up + (1 - mu) * stay for mu in ARRIVES], axis=1)
    playing = np.stack([mu * stay + (1 - mu) * down for mu in ARRIVES], axis=1)
    return _benchmark(
        idle,
        (playing - idle)[None],
        uniform_rate(low, high),
        check=partial(check_rates, "drain"),
        recipe={"family": "media", "low": float(low), "high": float(high)},
        layers=MEDIA_STEPS,
        reward=np.repeat((np.arange(10) > 0).astype(float)[:, None], len(ARRIVES), axis=1),
        cost=np.tile([1.0, 0.0], (10, 1)),
    )


LARGEST_STOCK = 5
DEMAND = (0.3, 0.2, 0.2, 0.2, 0.05, 0.05)
SHIFT = (-1.0, 0.0, 0.0, 1.0, 0.0, 0.0)
LARGEST_SHIFT = min(DEMAND[3], DEMAND[0])  # either way, before a probability turns negative
FIXED_COST, UNIT_COST, UNIT_REVENUE = 4.0, 2.0, 0.08


def inventory(most_shift: float = 0.1) -> TaskDistribution:
    """Inventory control with shift uniform on [-most_shift, most_shift]; the parameter is [shift]."""
    if not 0 < most_shift <= LARGEST_SHIFT:
        raise InvalidInput(f"most_shift must lie in (0, {LARGEST_SHIFT:g}], got {most_shift!r}")
    base = _stock_transitions(np.array(DEMAND))
    reward, cost = inventory_signals(base)
    return _benchmark(
        base,
        _stock_transitions(np.array(SHIFT))[None],
        Uniform(-float(most_shift), float(most_shift)),
        check=_check_shift,
        recipe={"family": "inventory", "most_shift": float(most_shift)},
        layers=INVENTORY_STEPS,
        reward=reward,
        cost=cost,
    )


def _stock_transitions(demand: Floats) -> Floats:
    """[S, A, S] Σ_d demand[d] · [next stock = max(stock + order - d, 0)]."""
    after, _ = _stock_after_order()
    left = np.maximum(after[:, :, None] - np.arange(len(demand)), 0).astype(np.intp)  # [S, A, D]
    rows: Floats = np.einsum("d,sadt->sat", demand, np.eye(LARGEST_STOCK + 1)[left])
    return rows


def inventory_signals(transitions: Floats) -> tuple[Floats, Floats]:
    """(reward, cost), each [S, A] and at most 1, where the stock moves by these transitions [S, A, S]."""
    after, order = _stock_after_order()
    sold = after[:, :, None] - np.arange(LARGEST_STOCK + 1)  # [S, A, S] demand that leads to each next stock
    reward = (transitions * np.where(sold > 0, UNIT_REVENUE * sold, 0.0)).sum(axis=2)
    cost = np.where(order > 0, FIXED_COST + UNIT_COST * order, 0.0) + after
    return reward / reward.max(), cost / cost.max()


def _stock_after_order() -> tuple[Floats, Floats]:
    """[S, A] stock once the order has come, and what was ordered after cutting it to the capacity."""
    stock, order = np.indices((LARGEST_STOCK + 1, LARGEST_STOCK + 1)).astype(np.float64)
    order = np.minimum(order, LARGEST_STOCK - stock)
    return stock + order, order


def _check_shift(parameter: Floats) -> None:
    shift = float(parameter[0])
    if not abs(shift) <= LARGEST_SHIFT:
        raise InvalidInput(f"shift must lie in [-{LARGEST_SHIFT:g}, {LARGEST_SHIFT:g}], got {shift!r}")


def _benchmark(base: Floats, slopes: Floats, distribution: Uniform, *, layers: int, **given: Any) -> TaskDistribution:
    """Begun in state 0, with a budget of half the steps."""
    start = np.eye(len(base))[0]
    return affine_family(base, slopes, distribution, layers=layers, budget=layers / 2, start=start, **given)
