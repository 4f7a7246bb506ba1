"""What a learner refuses to be told, and what it stops trusting its certificate for."""

from __future__ import annotations

import numpy as np

from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.learning.event import Event
from surefoot.learning.method import Method, includes


def check_outcomes(outcomes: Outcomes, expected: int, units: Units) -> None:
    """Refuse outcomes of the wrong number or shape, and NaN or infinite sums."""
    if outcomes.reward.shape != (expected,):
        raise InvalidInput(f"reward must be one number per order ({expected}), got shape {list(outcomes.reward.shape)}")
    constraints = len(units.budget)
    if outcomes.cost.shape != (expected, constraints):
        raise InvalidInput(
            f"cost must hold {constraints} discounted sum(s) per episode, got shape {list(outcomes.cost.shape)}"
        )
    for name, values in (("reward", outcomes.reward), ("cost", outcomes.cost)):
        if values.dtype.kind not in "fiu":
            raise InvalidInput(f"{name} must be a number, got {values.flat[0]!r}")
        if not np.isfinite(values).all():
            raise InvalidInput(f"{name} must be finite, got {values[~np.isfinite(values)].flat[0]}")


def check_observed(outcomes: Outcomes, method: Method) -> None:
    """Refuse outcomes that lack the states [n, H+1] and actions [n, H], or the first states, that a method needs."""
    states, actions = outcomes.states, outcomes.actions
    if method.observes == "transitions" and (states is None or actions is None):
        raise InvalidInput(f"{method.name} needs the visited states and the actions of every episode, got none")
    if includes(method.observes, "first-state") and states is None:
        raise InvalidInput(f"{method.name} needs states with at least the first state of every episode, got none")
    count = len(outcomes)
    if states is not None and (states.ndim != 2 or len(states) != count or not states.shape[1]):
        raise InvalidInput(f"states must have shape [{count}, H+1], got {list(states.shape)}")
    if states is not None and actions is not None and actions.shape != (count, states.shape[1] - 1):
        raise InvalidInput(
            f"states and actions must have shapes [{count}, H+1] and [{count}, H], "
            f"got {list(states.shape)} and {list(actions.shape)}"
        )


def range_alarm(episode: int, outcome: Outcomes, units: Units) -> Event:
    reward, cost = float(outcome.reward[0]), outcome.cost[0].tolist()
    return Event(
        episode,
        "alarm",
        f"observed reward {reward:g}, cost {cost} outside the declared ranges {_sum_ranges(units)}: "
        "certificate void, safe policy from now on",
        {"reward": reward, "cost": cost},
    )


def _sum_ranges(units: Units) -> str:
    """Those of sums where they are declared, otherwise what follows from those of steps."""
    reward = units.reward_value_range if units.reward_sum_range is None else units.reward_sum_range
    cost = units.cost_value_range if units.cost_sum_range is None else units.cost_sum_range
    return f"{list(reward)}, {cost.tolist()}"


def risk_left(risk: float, failing: float, remedy: str = "") -> float:
    """What tasks on which the safe policy is infeasible leave of the risk."""
    if risk <= failing:
        raise InvalidInput(
            f"risk must exceed {failing:.3g}, the bound on the probability that the safe policy itself breaks a budget "
            f"on a fresh task, got {risk:g}{remedy}"
        )
    return risk - failing
