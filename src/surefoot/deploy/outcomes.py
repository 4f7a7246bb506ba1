"""What a user tells of an episode, in one of four forms, as a plain record; and the learner's outcome of a record.

    sums          the discounted reward and costs
    sequences     the reward and the costs of every step
    transitions   all states and actions, with the rewards and costs of every step or their discounted sums
    observations  all observations and actions, likewise, for methods that read signals from them; or these signals;
                  with the rewards and costs of every step, for methods that learn networks from them, and with the
                  actions as they were drawn, where others were taken

A record holds what was told, so that a reader of the journal sees it and can compute the rest again. The signals that
were computed from it stand beside it: what they are decides, and other machines may round them differently.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

import numpy as np

from surefoot.arrays import Floats, finite_array, join_parts, raise_at
from surefoot.bounded_json import check
from surefoot.cmdp.episode import RANGE_TOLERANCE, Observed, Outcome, Outcomes, first_breach
from surefoot.cmdp.units import Units
from surefoot.deploy import chain
from surefoot.deploy.sums import sums_of
from surefoot.errors import InvalidInput
from surefoot.learning.checks import check_length, signals_of
from surefoot.learning.method import Method

TRANSITIONS = ("reward", "cost", "rewards", "costs", "states", "actions")
KEYS = (*TRANSITIONS, "observations", "drawn", "signals")
LONGEST_REASON = 1000
FEW = 50_000  # numbers that a row holds however they are written
# What is written must be read again; the rest of a row is for the signals that are computed from it.
LIMITS = replace(chain.LIMITS, size=chain.LIMITS.size * 3 // 4, values=chain.LIMITS.values * 4 // 5)


class Episode(TypedDict, total=False):
    """What may be told of an episode, by name, as `Deployment.tell` explains it.

    Python, the line protocol and a journal that is replayed tell it like this, and `record` is the one check of it. Its
    learner checks what the method needs beyond that, since it may also be told of simulated episodes.
    """

    reward: Any
    cost: Any
    rewards: Any
    costs: Any
    transitions: Any
    first_state: Any
    observations: Any
    actions: Any
    drawn: Any
    signals: Any
    breach: bool


FIELDS = frozenset(Episode.__annotations__)


def record(episode: Episode, constraints: int, longest: int | None = None) -> dict[str, Any]:
    """The told values as plain data, or an error that names the one that is missing, malformed or too many.

    `longest` is the most steps that an episode may take; what an abandoned one may have held rests on it.
    """
    told: dict[str, Any] = {name: episode.get(name) for name in KEYS}
    for name, value in _of_transitions(episode.get("transitions")).items():
        if told[name] is not None:
            raise InvalidInput(f"{name} must be told once, got it both by itself and among the transitions")
        told[name] = value
    if episode.get("first_state") is not None:
        if told["states"] is not None or told["observations"] is not None:
            raise InvalidInput("first_state must not be told beside transitions or observations, which begin with it")
        told["states"] = [episode["first_state"]]
    _check_told_once(told)
    sums = [name for name in ("reward", "cost") if told[name] is not None]
    sequences = [name for name in ("rewards", "costs") if told[name] is not None]
    if (len(sums), len(sequences)) not in ((2, 0), (0, 2)):
        raise InvalidInput(
            "an outcome must hold reward and cost (discounted sums), or rewards and costs (one per step), "
            f"got {', '.join([*sums, *sequences]) or 'neither'}"
        )
    plain = _plain_sums(told, constraints) if sums else _plain_sequences(told, constraints)
    read = _indices if told["observations"] is None else _rows
    readers = {"states": _indices, "actions": read, "observations": _rows, "drawn": _rows, "signals": _fractions}
    for name, reader in readers.items():
        if told[name] is not None:
            plain[name] = reader(name, told[name])
    _check_lengths(plain, longest)
    _check_size(plain)
    return plain


def with_signals(plain: Mapping[str, Any], method: Method, policy: int) -> dict[str, Any]:
    """The record of an episode of a policy, with the signals that the method reads from it if they were not told."""
    reads = signals_of(method)
    if method.observes == "steps" and "signals" not in plain:
        return dict(plain)  # it looks at the steps themselves
    if reads is None:
        for name in ("observations", "signals"):
            if name in plain:
                raise InvalidInput(
                    f"{name} must be left out: {method.name} has no use for them; it observes {method.observes}"
                )
        return dict(plain)
    if "signals" in plain:
        if len(plain["signals"]) != len(reads):
            raise InvalidInput(f"signals must be {len(reads)} numbers, got {len(plain['signals'])}")
        return dict(plain)
    if "actions" not in plain:
        return dict(plain)  # for the learner to refuse
    with np.errstate(all="ignore"):  # of numbers as large as numbers are
        signals = reads.of(policy, _to_observed(plain))[0]
    return {**plain, "signals": signals.tolist()}


def drop_computed_signals(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A record without the signals that were computed from it."""
    return {name: value for name, value in payload.items() if name != "signals" or "actions" not in payload}


def told_in(payload: Mapping[str, Any]) -> Episode:
    """What was told, by the names that `Deployment.tell` has for it, of an outcome in a journal."""
    told: Any = {name: value for name, value in drop_computed_signals(payload).items() if name in KEYS}
    if "states" in told and "actions" in told:
        told["transitions"] = {name: told.pop(name) for name in ("states", "actions")}
    elif "states" in told:
        told["first_state"] = told.pop("states")[0]
    return told  # type: ignore[no-any-return]


def outcome_of(plain: Mapping[str, Any], discount: float) -> Outcome:
    """The learner's view of a record; where there are signals it needs nothing of what they were computed from."""
    reward, cost = sums_of(plain, discount)
    if "signals" in plain:
        return Outcome(reward, cost, signals=np.array(plain["signals"], dtype=np.float64))
    if "observations" in plain:
        seen = _to_observed(plain)
        return Outcome(reward, cost, observed=replace(seen, observations=seen.observations.astype(np.float64)))
    states, actions = (None if plain.get(name) is None else np.array(plain[name]) for name in ("states", "actions"))
    return Outcome(reward, cost, states, actions)


def _to_observed(plain: Mapping[str, Any]) -> Observed:
    """One episode; what its steps paid is known where it was not told as sums."""
    drawn = np.array(plain["drawn"])[None] if "drawn" in plain else None
    seen, acted = np.array(plain["states" if "states" in plain else "observations"]), np.array(plain["actions"])
    paid = np.column_stack([plain["rewards"], plain["costs"]])[None] if "rewards" in plain else None
    return Observed(seen[None], acted[None], np.array([len(acted)]), paid, drawn)


def breach(plain: Mapping[str, Any], units: Units) -> str | None:
    """What in a record lies outside the declared ranges; None if nothing does."""
    if "rewards" in plain:
        ranges = np.array([units.reward_range, *units.cost_range])
        steps = np.column_stack([plain["rewards"], plain["costs"]])  # [H, 1+m]
        slack = RANGE_TOLERANCE * (ranges[:, 1] - ranges[:, 0])
        outside = (steps < ranges[:, 0] - slack) | (steps > ranges[:, 1] + slack)
        if outside.any():
            step, which = (int(k) for k in np.argwhere(outside)[0])
            name = "rewards" if which == 0 else "costs"
            return f"{name}[{step}] must lie in {ranges[which].tolist()}, got {steps[step, which]:g}"
    if "reward" in plain and len(plain["cost"]) == 1 and _well_inside(plain, units):
        return None
    outcome = outcome_of(plain, units.discount)
    if first_breach(Outcomes.single(outcome), units):
        return None
    return (
        f"reward and cost must lie in {units.reachable[0].tolist()} and {units.reachable[1:].tolist()}, "
        f"got {outcome.reward:g} and {outcome.cost.tolist()}"
    )


def check_reason(reason: Any) -> str:
    """Why an episode was abandoned."""
    if not isinstance(reason, str) or not reason.strip() or len(reason) > LONGEST_REASON:
        raise InvalidInput(f"reason must be a text of 1 to {LONGEST_REASON} characters, got {reason!r}"[:200])
    try:
        reason.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"reason must be text that UTF-8 can hold, got {ascii(reason)[:80]}") from None
    return reason


def _well_inside(plain: Mapping[str, Any], units: Units) -> bool:
    """The common case without arrays: one constraint, both sums strictly inside their ranges."""
    (low, high), (least, most) = units.reachable.tolist()
    inside: bool = low < plain["reward"] < high and least < plain["cost"][0] < most
    return inside


def _of_transitions(transitions: Any) -> dict[str, Any]:
    """Either a mapping with states, actions, …, or a sequence of steps (state, action, reward, cost, next state)."""
    if transitions is None:
        return {}
    if isinstance(transitions, Mapping):
        unknown = [name for name in transitions if name not in TRANSITIONS]
        missing = [name for name in ("states", "actions") if transitions.get(name) is None]
        if unknown or missing:
            found = f"got {unknown[0]!r}"[:200] if unknown else f"{missing[0]} is missing"
            raise InvalidInput(
                f"transitions must hold states and actions, and may hold {', '.join(TRANSITIONS[:4])}; {found}"
            )
        return {name: value for name, value in transitions.items() if value is not None}
    if not isinstance(transitions, Sequence) or isinstance(transitions, str) or not len(transitions):
        raise InvalidInput(f"transitions must be a mapping or a sequence of steps, got {type(transitions).__name__}")
    for t, step in enumerate(transitions):
        if not isinstance(step, Sequence) or len(step) != 5:
            raise InvalidInput(
                f"transitions[{t}] must be (state, action, reward, cost, next state), got {step!r}"[:200]
            )
        if t and step[0] != transitions[t - 1][4]:
            raise InvalidInput(f"transitions[{t}] must begin in state {transitions[t - 1][4]!r}, got {step[0]!r}"[:200])
    state, action, reward, cost, after = zip(*transitions, strict=True)
    return {"states": [*state, after[-1]], "actions": action, "rewards": reward, "costs": cost}


def _check_told_once(told: Mapping[str, Any]) -> None:
    """States or observations, each with actions; or the signals that would be computed from them."""
    observed = [name for name in ("states", "observations") if told[name] is not None]
    if len(observed) == 2:
        raise InvalidInput("observations must not be told beside transitions, got both")
    if told["observations"] is not None and told["actions"] is None:
        raise InvalidInput("observations must come with actions, got none")
    if told["actions"] is not None and not observed:
        raise InvalidInput("actions must come with observations, or with states as transitions, got them alone")
    if told["drawn"] is not None and told["observations"] is None:
        raise InvalidInput("drawn must come with observations and the actions that were taken, got it without")
    if told["signals"] is not None and told["actions"] is not None:
        raise InvalidInput(f"signals must not be told beside {observed[0]} and actions, which they are computed from")


def _plain_sums(told: Mapping[str, Any], constraints: int) -> dict[str, Any]:
    if constraints == 1 and _finite(told["reward"]) and _finite(told["cost"]):  # most are
        return {"reward": told["reward"], "cost": [told["cost"]]}
    reward, cost = _numbers("reward", told["reward"]), np.atleast_1d(_numbers("cost", told["cost"]))
    if reward.ndim:
        raise InvalidInput(f"reward must be one number, got shape {list(reward.shape)}")
    if cost.shape != (constraints,):
        raise InvalidInput(f"cost must hold {constraints} discounted sum(s), got shape {list(cost.shape)}")
    return {"reward": float(reward), "cost": cost.tolist()}


def _plain_sequences(told: Mapping[str, Any], constraints: int) -> dict[str, Any]:
    rewards, costs = _numbers("rewards", told["rewards"]), _numbers("costs", told["costs"])
    if rewards.ndim != 1 or not rewards.size:
        raise InvalidInput(f"rewards must hold one number per step, got shape {list(rewards.shape)}")
    if costs.ndim == 1 and constraints == 1:
        costs = costs[:, None]
    if costs.shape != (len(rewards), constraints):
        raise InvalidInput(
            f"costs must hold {constraints} number(s) for each of the {len(rewards)} steps of rewards, "
            f"got shape {list(costs.shape)}"
        )
    return {"rewards": rewards.tolist(), "costs": costs.tolist()}


def _numbers(name: str, value: Any) -> Floats:
    try:
        kind: str = np.asarray(value).dtype.kind
    except ValueError:
        kind = "ragged"
    if kind not in "fiu":  # text and truth values would be converted to numbers without a word
        raise InvalidInput(f"{name} must be numbers, got {value!r}"[:200])
    return finite_array(name, value)


def _finite(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)


def _indices(name: str, value: Any) -> list[int]:
    if type(value) is list and len(value) == 1 and type(value[0]) is int and 0 <= value[0] < 2**63:  # a first state
        return [value[0]]
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.array(None)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
        raise InvalidInput(f"{name} must be a sequence of whole numbers, got {value!r}"[:200])
    if (array < 0).any():
        raise InvalidInput(f"{name} must not be negative, got {array[array < 0][0]}")
    listed: list[int] = array.tolist()
    return listed


def _rows(name: str, value: Any) -> list[Any]:
    """[H, ...] numbers of every step; whole ones stay whole, as those of states and numbered actions."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping | tuple):
        value = _join_steps(name, value)
    array = _numbers(name, value)
    if not array.ndim or not array.size:
        raise InvalidInput(f"{name} must hold numbers for every step, got shape {list(array.shape)}")
    given = np.asarray(value)
    listed: list[Any] = (given if given.dtype.kind in "iu" and (np.abs(array) < 2**53).all() else array).tolist()
    return listed


def _join_steps(name: str, value: Sequence[Any]) -> list[Any]:
    """Observations of several parts, each as one array."""
    try:
        return [join_parts(each) for each in value]
    except ValueError:
        raise InvalidInput(f"{name} must hold numbers in every part, got {value[0]!r:.200}") from None


def _fractions(name: str, value: Any) -> list[float]:
    array = _numbers(name, value)
    if array.ndim != 1 or not array.size:
        raise InvalidInput(f"{name} must be numbers in a row, got shape {list(array.shape)}")
    raise_at(name, array, (array < 0) | (array > 1), "must lie in [0, 1]")
    listed: list[float] = array.tolist()
    return listed


def _check_lengths(plain: Mapping[str, Any], longest: int | None) -> None:
    """One action per step, as drawn too, and one state or observation more; no more steps than an episode takes."""
    actions, rewards = plain.get("actions"), plain.get("rewards")
    name = "observations" if "observations" in plain else "states"
    for what, steps in (("rewards", rewards), ("actions", actions)):
        check_length(what, len(steps or ()), longest)
    if actions is not None and len(plain.get(name, ())) != len(actions) + 1:
        raise InvalidInput(f"{name} must be one more than actions ({len(actions)}), got {len(plain.get(name, ()))}")
    if actions is not None and rewards is not None and len(actions) != len(rewards):
        raise InvalidInput(f"actions must be as many as rewards ({len(rewards)}), got {len(actions)}")
    if "drawn" in plain and np.shape(plain["drawn"]) != np.shape(plain["actions"]):
        right, got = (list(np.shape(plain[each])) for each in ("actions", "drawn"))
        raise InvalidInput(f"drawn must have the shape of actions, {right}, got {got}")


def _check_size(plain: Mapping[str, Any]) -> None:
    if sum(map(_count, plain.values())) <= FEW:
        return
    try:
        check(chain.canonical(plain), LIMITS)
    except ValueError as error:
        raise InvalidInput(f"an outcome in the journal {error}; tell discounted sums instead of every step") from None


def _count(value: Any) -> int:
    """Numbers in an array of lists."""
    return len(value) * _count(value[0]) if isinstance(value, list) and value else 1
