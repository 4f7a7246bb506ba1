"""A machine to be run and maintained, with random rewards and costs and two constraints.

The machine is in one of six conditions (0 as new ... 5 nearly worn out) or broken. Running it usually makes a product,
sometimes scrap, and sometimes wears it by one condition, or breaks it, more likely so the worse its condition. When it
breaks there may be a spill. Maintaining it makes it as new, most of the time, and may take a spare part; repairing a
broken machine always takes one. Whether there is a product, a spill or a spare part to be paid for is random given
condition and action, and so are reward and costs.

A task of this library has rewards and costs r(s, a) and c(s, a). Random ones fit when the coin is part of the state:
state s = 4·condition + outcome, where the outcome (nothing, product, spill, part) is that of the step before. What a
step brings is then paid on arrival, one step later, as a function of the state: reward 1 for a product, first cost 1
for a spill, second cost 1 for a spare part. Transitions give condition and outcome jointly, and depend on the condition
and the action only. The price is one factor γ on all values; nothing else changes, and every method sees the coins as
what they are, transitions.

A task is a pair (wear, scrap), the probabilities that a run wears the machine and that it makes scrap, so transitions
are affine, P = P₀ + wear·G₁ + scrap·G₂. Action 0 runs the machine. Action 1 runs it gently: a quarter of the wear, 0.6
of the products. Action 2 maintains. Since a run moves probability `wear` and `scrap` from one successor (a product in
the same condition) to others, the paper's distance is d = max(|Δwear|, |Δscrap|, |Δwear + Δscrap|).

Budgets 0.1 for spills and 0.5 for parts, γ = 0.95, start in condition 0, 1 or 2. Both bind in the middle of the family.
Scrap changes no cost of a policy that ignores outcomes: one of the two unknowns has next to no bearing on safety.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from surefoot.arrays import Floats
from surefoot.tasks.affine_family import affine_family, check_rates, rates_and_sum
from surefoot.tasks.distribution import Independent, Normal
from surefoot.tasks.task_distribution import TaskDistribution

CONDITIONS, BROKEN = 6, 6
NOTHING, PRODUCT, SPILL, PART = OUTCOMES = range(4)
RUN, RUN_GENTLY, MAINTAIN = ACTIONS = range(3)
STATES = len(OUTCOMES) * (CONDITIONS + 1)

BREAKS = (0.0, 0.1, 0.2, 0.35, 0.6, 1.0)  # probability that wear in a condition breaks the machine
SPILLS = 0.5  # probability of a spill when it breaks
GENTLE_WEAR, GENTLE_PRODUCTION = 0.25, 0.6
MAINTAINED, NEEDS_PART = 0.9, 0.5  # probabilities that maintenance succeeds, and that it takes a part
REPAIRED = 0.5  # probability that a repair succeeds

DISCOUNT = 0.95
BUDGET = (0.1, 0.5)
MEAN_WEAR, MEAN_SCRAP = 0.1, 0.1
WEAR_RANGE, SCRAP_RANGE = (0.02, 0.2), (0.0, 0.2)

_OUTCOME = np.arange(STATES) % len(OUTCOMES)
_REWARD = np.where(_OUTCOME == PRODUCT, 1.0, 0.0)
_COST = np.repeat(np.stack([_OUTCOME == SPILL, _OUTCOME == PART])[:, :, None], len(ACTIONS), axis=2).astype(float)
_START = np.where(
    np.isin(np.arange(STATES), [len(OUTCOMES) * condition + NOTHING for condition in (0, 1, 2)]), 1 / 3, 0
)

OPTIONS = {
    "wear_std": "standard deviation of the wear",
    "scrap_std": "standard deviation of the scrap",
    "safe_wear": "wear whose optimal policy is the safe policy",
}


def maintenance(wear_std: float = 0.03, scrap_std: float = 0.04, safe_wear: float = 0.23) -> TaskDistribution:
    """Wear N(0.1, wear_std²) on [0.02, 0.2], scrap N(0.1, scrap_std²) on [0, 0.2], truncated; [wear, scrap].

    The safe policy is the optimal one at `safe_wear` and the most scrap.
    """
    wear = Normal(MEAN_WEAR, std=wear_std, low=WEAR_RANGE[0], high=WEAR_RANGE[1], how="truncated")
    scrap = Normal(MEAN_SCRAP, std=scrap_std, low=SCRAP_RANGE[0], high=SCRAP_RANGE[1], how="truncated")
    safe = np.array([float(safe_wear), SCRAP_RANGE[1]])
    check_rates("safe_wear and the most scrap", safe)
    spreads = {"wear_std": float(wear.std[0]), "scrap_std": float(scrap.std[0])}
    return affine_family(
        *transition_directions(),
        Independent([wear, scrap]),
        check=partial(check_rates, "wear and scrap"),
        coordinates=rates_and_sum,
        safe_parameter=safe,
        recipe={"family": "maintenance", **spreads, "safe_wear": float(safe[0])},
        reward=_REWARD,
        cost=_COST,
        budget=BUDGET,
        start=_START,
        discount=DISCOUNT,
    )


def transition_directions() -> tuple[Floats, Floats]:
    """(P₀ [S, A, S], G [2, S, A, S]): the transitions of (wear, scrap) are P₀ + wear·G₀ + scrap·G₁."""
    base, directions = np.zeros((STATES, len(ACTIONS), STATES)), np.zeros((2, STATES, len(ACTIONS), STATES))
    for condition in range(CONDITIONS + 1):
        rows = [_state(condition, outcome) for outcome in OUTCOMES]
        base[rows, MAINTAIN] = _after_maintenance(condition)
        idle, product = _point(condition, NOTHING), _point(condition, PRODUCT)
        if condition == BROKEN:
            base[rows, RUN] = base[rows, RUN_GENTLY] = idle
            continue
        base[rows, RUN] = product
        base[rows, RUN_GENTLY] = GENTLE_PRODUCTION * product + (1 - GENTLE_PRODUCTION) * idle
        for action, wear, scrap in ((RUN, 1.0, 1.0), (RUN_GENTLY, GENTLE_WEAR, GENTLE_PRODUCTION)):
            directions[0][rows, action] = wear * (_after_wear(condition) - product)
            directions[1][rows, action] = scrap * (idle - product)
    return base, directions


def _after_maintenance(condition: int) -> Floats:
    success, part = (REPAIRED, 1.0) if condition == BROKEN else (MAINTAINED, NEEDS_PART)
    paid = success * _point(0, PART) + (1 - success) * _point(condition, PART)
    free = success * _point(0, NOTHING) + (1 - success) * _point(condition, NOTHING)
    return part * paid + (1 - part) * free


def _after_wear(condition: int) -> Floats:
    broken = SPILLS * _point(BROKEN, SPILL) + (1 - SPILLS) * _point(BROKEN, NOTHING)
    worse = _point(min(condition + 1, CONDITIONS - 1), NOTHING)
    return BREAKS[condition] * broken + (1 - BREAKS[condition]) * worse


def _point(condition: int, outcome: int) -> Floats:
    """[S] certainty of one state."""
    point = np.zeros(STATES)
    point[_state(condition, outcome)] = 1.0
    return point


def _state(condition: int, outcome: int) -> int:
    return len(OUTCOMES) * condition + outcome
