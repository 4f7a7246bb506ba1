"""Titration by a rule: one step up while costs are low, one step down when they are too high.

How doses are found in practice, for instance of insulin every week (Riddle, Rosenstock and Gerich, "The
Treat-to-Target Trial", Diabetes Care 2003). Steps are the policies in the order of the costs that are expected of them.
It promises nothing: that a step is too high is found out on that step.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from surefoot.arrays import Floats, Integers, check_int, number
from surefoot.errors import InvalidInput
from surefoot.lab.rivals.tally import STATES, Rival, Tally, alone, order_of_costs
from surefoot.learning.calibrated import Setting
from surefoot.learning.method import Mixture
from surefoot.learning.spec import MethodArgs, MethodSpec
from surefoot.policyset.policy_value_set import PolicyValueSet

EVERY, SHARE = 7, 0.5


def make(policies: PolicyValueSet, terms: MethodArgs, every: int = EVERY, share: float = SHARE) -> Rival:
    """`every`: episodes between steps; `share`: of the budget, below which the mean cost of a step allows the next."""
    check_int("every", every)
    if not 0 < number("share", share) <= 1:
        raise InvalidInput(f"share must be positive and at most 1, got {share!r}")
    choose = partial(next_step, order_of_costs(policies), policies.units.budget, share)
    return Rival(terms.name, policies, choose, wait=partial(_after, every))


def _after(every: int, episode: int) -> int:
    return episode + every


def next_step(order: Integers, budget: Floats, share: float, deployed: Mixture, tally: Tally) -> Mixture:
    """By the mean cost of all episodes on the present step."""
    present = int(deployed.indices[0])
    place, cost = int(np.flatnonzero(order == present)[0]), tally.mean[present, 1:]
    if not tally.count[present]:
        return deployed
    if (cost < share * budget).all():
        return alone(int(order[min(place + 1, len(order) - 1)]))
    if (cost > budget).any():
        return alone(int(order[max(place - 1, 0)]))
    return deployed


def path_to_boldness(policies: PolicyValueSet, risk: float) -> tuple[Setting, ...]:
    pairs = ((1000, 0.2), (300, 0.2), (90, 0.2), (30, 0.2), (30, 0.5), (14, 0.5), (7, 0.5), (3, 0.5))
    return tuple({"every": every, "share": share} for every, share in pairs)


SPECS = (
    MethodSpec(
        "titration",
        make,
        certified=False,
        why="a step up while the mean cost is below a share of the budget: too high a step is found out on it",
        costs="two sums of every policy",
        options=("every", "share"),
        state=STATES,
        takes_risk=False,
        colour=28,
        path=path_to_boldness,
    ),
)
