"""What a learner refuses to be told, and what it stops trusting its certificate for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, raise_at
from surefoot.bounds.cells import Readings
from surefoot.cmdp.episode import Observed, Outcomes, first_breach
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.learning.event import Event
from surefoot.learning.method import Method, includes
from surefoot.signals.signals import Signals


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


def check_observed(outcomes: Outcomes, method: Method, horizon: int | None = None) -> None:
    """Refuse outcomes that lack the states [n, H+1] and actions [n, H], the first states, or the signals [n, q] or what
    they are computed from, that a method needs; and episodes of more steps than the horizon, if there is one."""
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
    if actions is not None:
        check_length("actions", actions.shape[1], horizon)
    if method.observes == "steps":
        _check_paid(outcomes, method, horizon)
    signals = signals_of(method)
    if signals is not None:
        _check_signals(outcomes, method, signals, horizon)


def check_length(name: str, steps: int, horizon: int | None) -> None:
    """Refuse an episode of more steps than the horizon: what an abandoned one may have held rests on that."""
    if horizon is not None and steps > horizon:
        raise InvalidInput(f"{name} must be at most {horizon}, the learner's horizon, got {steps}")


def signals_of(method: Method) -> Signals | None:
    """How a method reads episodes; None for one that looks at nothing but sums, states and actions."""
    if method.observes != "signals":
        return None
    readings = getattr(getattr(method, "cells", None), "readings", None)
    if not isinstance(readings, Readings):
        raise InvalidInput(f"{method.name} observes signals: its cells must have readings, got none")
    return readings.signals


def _check_paid(outcomes: Outcomes, method: Method, horizon: int | None) -> None:
    """Observations, actions, and the reward and costs of every step."""
    observed, count = outcomes.observed, len(outcomes)
    if observed is None or observed.paid is None:
        lacking = "no observations" if observed is None else "observations and actions alone"
        raise InvalidInput(
            f"{method.name} learns from steps: outcomes must hold observations, actions, and the reward and costs of "
            f"every step (Observed.paid), got {lacking}"
        )
    _check_steps(observed, count, horizon)
    _check_payments(observed, observed.paid, len(method.units.budget))
    if observed.drawn is not None:
        _check_drawn(observed, observed.drawn)


def _check_payments(observed: Observed, paid: Floats, constraints: int) -> None:
    shape = (len(observed), observed.actions.shape[1], 1 + constraints)
    if paid.shape != shape or paid.dtype.kind not in "fiu":
        raise InvalidInput(f"paid must be numbers of shape {list(shape)}, got {paid.dtype} {list(paid.shape)}")
    if not np.isfinite(paid[np.arange(shape[1]) < observed.steps[:, None]]).all():
        raise InvalidInput("paid must be finite, got some that are not")


def _check_drawn(observed: Observed, drawn: NDArray[Any]) -> None:
    shape = observed.actions.shape
    if drawn.shape != shape or drawn.dtype.kind not in "fiub":
        raise InvalidInput(f"drawn must be numbers of shape {list(shape)}, got {drawn.dtype} {list(drawn.shape)}")
    if not np.isfinite(drawn[np.arange(shape[1]) < observed.steps[:, None]]).all():
        raise InvalidInput("drawn must be finite, got some that are not")


def _check_signals(outcomes: Outcomes, method: Method, signals: Signals, horizon: int | None) -> None:
    """Told by themselves, or as what they are computed from: observations and actions of every step, and what these
    paid if signals look at that."""
    told, count, expected = outcomes.signals, len(outcomes), len(signals)
    watched = outcomes.observed is not None or (outcomes.states is not None and outcomes.actions is not None)
    if told is None and not watched:
        raise InvalidInput(
            f"{method.name} needs the signals of every episode, or observations (or states) and actions to compute "
            "them from, got none"
        )
    if told is not None and watched:
        raise InvalidInput("signals must be told once, got them beside what they are computed from")
    if told is not None:
        if told.shape != (count, expected) or told.dtype.kind not in "fiu":
            raise InvalidInput(f"signals must be {expected} numbers per episode, got shape {list(told.shape[1:])}")
        raise_at("signals", told, ~((told >= 0) & (told <= 1)), "must lie in [0, 1]")
    if outcomes.observed is not None:
        _check_steps(outcomes.observed, count, horizon)
        if signals.paid and outcomes.observed.paid is not None:  # without, signals are refused where they are computed
            _check_payments(outcomes.observed, outcomes.observed.paid, len(method.units.budget))


def _check_steps(observed: Observed, count: int, horizon: int | None) -> None:
    seen, acted, steps = observed.observations, observed.actions, observed.steps
    length = acted.shape[1] if acted.ndim > 1 else 0
    if seen.shape[:2] != (count, length + 1) or acted.shape[:1] != (count,) or steps.shape != (count,):
        raise InvalidInput(
            f"observations, actions and steps must have shapes [{count}, H+1, ...], [{count}, H, ...] and [{count}], "
            f"got {list(seen.shape)}, {list(acted.shape)} and {list(steps.shape)}"
        )
    most = length if horizon is None else min(length, horizon)
    raise_at("steps", steps, (steps < 1) | (steps > most), f"must lie in [1, {most}]")
    for name, rows, numbers in (("observations", seen, steps + 1), ("actions", acted, steps)):
        if rows.dtype.kind not in "fiub":
            raise InvalidInput(f"{name} must be numbers, got type {rows.dtype}")
        unknown = ~np.isfinite(rows).reshape(*rows.shape[:2], -1).all(axis=2)
        if (unknown & (np.arange(rows.shape[1]) < numbers[:, None])).any():
            raise InvalidInput(f"{name} must be finite, got some that are not")


def trusted_episodes(outcomes: Outcomes, units: Units) -> int:
    """How many come before the first one outside the declared ranges; almost always all lie strictly within."""
    low, high = units.reachable.T
    sums = outcomes.sums
    return len(outcomes) if ((low < sums) & (sums < high)).all() else first_breach(outcomes, units)


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
