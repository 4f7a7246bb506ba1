"""The ask/tell protocol. A learner is a state plus a pure transition: `ask` reads it, `tell` is the only step.

A method decides which mixture of policies is deployed; the learner draws the component of each episode with a
counter-based generator, checks what it is told, and stops trusting the certificate when an observation leaves its
declared range. Because the draw depends only on (seed, episode) and the state only on what was told, a block of
episodes and the same episodes one at a time give the same state, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from surefoot.adapt.run_record import Event
from surefoot.cmdp.episode import Integers, Outcome, Outcomes
from surefoot.cmdp.model import Floats, Units
from surefoot.cmdp.policy import Policy
from surefoot.errors import InvalidInput

SAFE = 0  # index of the safe policy among a method's policies

# Random numbers kept at hand.
AHEAD = 256

# A discounted sum may leave its range by rounding only.
RANGE_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Deployed:
    """The mixture in force until the next decision: policy indices [k] and their probabilities [k]."""

    indices: Integers
    weights: Floats

    @property
    def weight(self) -> float:
        """Probability of leaving the safe policy."""
        return float(self.weights[self.indices != SAFE].sum())


SAFE_ONLY = Deployed(np.array([SAFE]), np.array([1.0]))


@dataclass(frozen=True, eq=False)
class Step:
    """What a method made of a block: its next state, how many episodes it used, and what happened.

    A method uses episodes up to and including the first one after which it deploys something else.
    """

    state: Any
    used: int
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, eq=False)
class Account:
    """What a method says of the mixture it deploys.

    Attributes:
        surviving, total: cells or candidates that are still possible, and all of them.
        margin: [m] lower bound on the margins for the certified methods, the prediction under test for Algorithm 2;
            None when nothing is claimed.
    """

    surviving: int
    total: int
    margin: Floats | None


class Method(Protocol):
    """Constants of one test-phase method. Holds no state: `start`, `deployed`, `absorb` and `abandon` are pure."""

    @property
    def name(self) -> str: ...

    @property
    def certified(self) -> bool: ...

    @property
    def units(self) -> Units: ...

    @property
    def needs_transitions(self) -> bool:
        """Whether outcomes must come with all states and actions."""
        ...

    @property
    def needs_first_state(self) -> bool:
        """Whether outcomes must come with at least their first state."""
        ...

    def start(self) -> Any: ...

    def deployed(self, state: Any) -> Deployed: ...

    def policy(self, state: Any, index: int) -> Policy: ...

    def absorb(self, state: Any, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        """Fold outcomes [n] of the policies drawn [n] into the state, from episode number `episode` on."""
        ...

    def abandon(self, state: Any, episode: int, drawn: int) -> Step:
        """Episode number `episode`, of policy `drawn`, has no outcome: each test takes the one that favours it least.

        Whatever the outcome would have been, the state concludes no more than it would have with it. So leaving
        episodes out, even because of how they went, breaks no guarantee.
        """
        ...

    def account(self, state: Any) -> Account: ...


@dataclass(frozen=True, eq=False)
class Order:
    """Run `policy` for one whole episode, then tell the learner how it went."""

    episode: int
    policy_index: int
    policy: Policy
    weight: float
    deployed: Deployed


@dataclass(frozen=True, eq=False)
class Orders:
    """The next n orders, valid as long as no decision falls among them: `drawn` [n] are policy indices."""

    episode: int
    deployed: Deployed
    drawn: Integers


@dataclass(frozen=True, eq=False)
class LearnerState:
    """Everything a learner knows; equal outcomes told to equal learners give equal states."""

    method: Any
    episode: int = 0
    voided: bool = False  # an observation left its declared range: no certificate holds any more


class Learner:
    """A method at work: `ask()` for an order, run it, `tell(order, outcome)`."""

    def __init__(
        self, method: Method, *, seed: int = 0, horizon: int | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        """Args:
        horizon: the most steps that an episode takes; None if that is not known.
        settings: plain JSON data from which the same learner can be made again; {} when it cannot.
        """
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or not 0 <= seed < 2**63:
            raise InvalidInput(f"seed must be an integer in [0, 2^63), got {seed!r}")
        self.method = method
        self.seed = int(seed)
        self.horizon = horizon
        self.settings: Mapping[str, Any] = dict(settings or {})
        self.state = LearnerState(method.start())
        note = getattr(method, "note", "")
        self.events: tuple[Event, ...] = (Event(0, "method", note),) if note else ()

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def certified(self) -> bool:
        """Whether the method comes with a proof and no alarm has voided it, the learner's or the method's own."""
        return self.method.certified and not (self.state.voided or getattr(self.state.method, "voided", False))

    @property
    def risk_split(self) -> Mapping[str, float]:
        """How the risk is spent: coverage, elimination, value bounds; empty for methods that do not say."""
        return dict(getattr(self.method, "risk_split", {}))

    @property
    def deployed(self) -> Deployed:
        return SAFE_ONLY if self.state.voided else self.method.deployed(self.state.method)

    def ask(self) -> Order:
        """The next order. Asking again before telling returns an equal one."""
        orders = self.ask_block(1)
        index = int(orders.drawn[0])
        return Order(orders.episode, index, self.policy(index), orders.deployed.weight, orders.deployed)

    def tell(self, order: Order, outcome: Outcome) -> None:
        """Take note of the outcome of the latest order; a stale order or a malformed outcome changes nothing."""
        drawn = np.array([order.policy_index])
        self.tell_block(Orders(order.episode, order.deployed, drawn), Outcomes.single(outcome))

    def abandon(self, order: Order) -> None:
        """Take note that the latest order was begun and has no outcome; see `Method.abandon`."""
        self._check_orders(Orders(order.episode, order.deployed, np.array([order.policy_index])))
        step = Step(self.state.method, 1)
        if not self.state.voided:
            step = self.method.abandon(self.state.method, self.state.episode, order.policy_index)
        self.state = LearnerState(step.state, self.state.episode + 1, self.state.voided)
        self.events += step.events

    def distrust(self, order: Order, message: str) -> None:
        """The latest order was run and something left its declared range: no certificate from now on."""
        self._check_orders(Orders(order.episode, order.deployed, np.array([order.policy_index])))
        self.state = LearnerState(self.state.method, self.state.episode + 1, True)
        alarm = f"{message}: certificate void, safe policy from now on"
        self.events += (Event(self.state.episode, "alarm", alarm),)

    def account(self) -> Account:
        """What the method says of `deployed`; after a breach nothing."""
        found = self.method.account(self.state.method)
        return Account(0, found.total, None) if self.state.voided else found

    def policy(self, index: int) -> Policy:
        return self.method.policy(self.state.method, index)

    def ask_block(self, episodes: int) -> Orders:
        deployed = self.deployed
        uniform = counter_uniforms(self.seed, self.state.episode, episodes)
        component = np.searchsorted(np.cumsum(deployed.weights), uniform, side="right")
        drawn = deployed.indices[np.minimum(component, len(deployed.indices) - 1)]
        return Orders(self.state.episode, deployed, drawn)

    def tell_block(self, orders: Orders, outcomes: Outcomes) -> int:
        """Use outcomes in order until a decision falls; returns how many were used, the rest were never run."""
        self._check_orders(orders)
        check_outcomes(outcomes, len(orders.drawn), self.method.units)
        check_observed(outcomes, self.method)
        if self.horizon is not None and outcomes.actions is not None and outcomes.actions.shape[1] > self.horizon:
            raise InvalidInput(f"actions must be at most {self.horizon} per episode, got {outcomes.actions.shape[1]}")
        if self.state.voided:
            self.state = replace(self.state, episode=self.state.episode + len(outcomes))
            return len(outcomes)
        trusted = first_breach(outcomes, self.method.units)
        step = Step(self.state.method, 0)
        if trusted:
            step = self.method.absorb(step.state, self.state.episode, orders.drawn[:trusted], outcomes[:trusted])
        used, events = step.used, step.events
        # After a decision the next order may be another one, so what was told for the old one was never run.
        voided = used == trusted < len(outcomes) and _same(self.method.deployed(step.state), self.deployed)
        if voided:
            used += 1
            events += (_range_alarm(self.state.episode + used, outcomes[trusted : trusted + 1], self.method.units),)
        self.state = LearnerState(step.state, self.state.episode + used, voided)
        self.events += events
        return used

    def _check_orders(self, orders: Orders) -> None:
        """Refuse orders that are not the next ones."""
        if orders.episode != self.state.episode:
            raise InvalidInput(
                f"order is for episode {orders.episode}, but the learner expects episode {self.state.episode}; "
                "each order is told once, in turn"
            )
        expected = self.ask_block(len(orders.drawn)).drawn
        if not np.array_equal(orders.drawn, expected):
            other = int(np.argmax(orders.drawn != expected))
            raise InvalidInput(
                f"order for episode {orders.episode + other} must name policy {expected[other]}, which the learner "
                f"ordered, got {orders.drawn[other]}"
            )


def _same(first: Deployed, second: Deployed) -> bool:
    return np.array_equal(first.indices, second.indices) and np.array_equal(first.weights, second.weights)


def counter_uniforms(seed: int, first: int, count: int) -> Floats:
    """Uniform numbers number `first` ... `first + count - 1` of the Philox stream with key `seed`."""
    place = first % AHEAD
    if place + count <= AHEAD:
        return _uniforms_ahead(seed, first - place)[place : place + count]
    return _uniforms(seed, first, count)


@lru_cache(maxsize=8)
def _uniforms_ahead(seed: int, first: int) -> Floats:
    """Single orders ask for one number at a time, several times each, and setting the generator up takes longest."""
    numbers = _uniforms(seed, first, AHEAD)
    numbers.setflags(write=False)
    return numbers


def _uniforms(seed: int, first: int, count: int) -> Floats:
    philox = np.random.Philox(key=seed)
    philox.advance(first // 4)  # one counter value yields four 64-bit words
    words = philox.random_raw(first % 4 + count)[first % 4 :]
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


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
    if method.needs_transitions and (states is None or actions is None):
        raise InvalidInput(f"{method.name} needs the visited states and the actions of every episode, got none")
    if method.needs_first_state and states is None:
        raise InvalidInput(f"{method.name} needs states with at least the first state of every episode, got none")
    count = len(outcomes)
    if states is not None and (states.ndim != 2 or len(states) != count or not states.shape[1]):
        raise InvalidInput(f"states must have shape [{count}, H+1], got {list(states.shape)}")
    if states is not None and actions is not None and actions.shape != (count, states.shape[1] - 1):
        raise InvalidInput(
            f"states and actions must have shapes [{count}, H+1] and [{count}, H], "
            f"got {list(states.shape)} and {list(actions.shape)}"
        )


def first_breach(outcomes: Outcomes, units: Units) -> int:
    """Index of the first outcome outside the declared ranges; n when there is none."""
    low, high = units.reward_value_range
    cost_low, cost_high = units.cost_value_range.T
    slack, cost_slack = RANGE_TOLERANCE * (high - low), RANGE_TOLERANCE * (cost_high - cost_low)
    # A truncated episode lacks its tail, so 0 always counts as reachable.
    outside = (outcomes.reward < min(low, 0.0) - slack) | (outcomes.reward > max(high, 0.0) + slack)
    outside |= (outcomes.cost < np.minimum(cost_low, 0.0) - cost_slack).any(axis=1)
    outside |= (outcomes.cost > np.maximum(cost_high, 0.0) + cost_slack).any(axis=1)
    return int(np.argmax(outside)) if outside.any() else len(outcomes)


def _range_alarm(episode: int, outcome: Outcomes, units: Units) -> Event:
    reward, cost = float(outcome.reward[0]), outcome.cost[0].tolist()
    return Event(
        episode,
        "alarm",
        f"observed reward {reward:g}, cost {cost} outside the declared ranges "
        f"{list(units.reward_value_range)}, {units.cost_value_range.tolist()}: "
        "certificate void, safe policy from now on",
        {"reward": reward, "cost": cost},
    )
