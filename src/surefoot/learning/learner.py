"""The ask/tell protocol. A learner is a state plus a pure transition: `ask` reads it, `tell` is the only step.

A method decides which mixture of policies is deployed; the learner draws the component of each episode with a
counter-based generator, checks what it is told, and stops trusting the certificate when an observation leaves its
declared range. Because the draw depends only on (seed, episode) and the state only on what was told, a block of
episodes and the same episodes one at a time give the same state, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from surefoot.arrays import Floats, Integers, check_int, make_readonly
from surefoot.cmdp.episode import Outcome, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.errors import InvalidInput
from surefoot.estimates import check_ranges
from surefoot.learning.checks import check_observed, check_outcomes, range_alarm, trusted_episodes
from surefoot.learning.event import Event
from surefoot.learning.fit import history_event
from surefoot.learning.method import SAFE_MIXTURE, Certificate, Method, Mixture, Step, as_method

# Random numbers kept at hand.
AHEAD = 256


@dataclass(frozen=True, eq=False)
class Order:
    """Run `policy` for one whole episode, then tell the learner how it went.

    `policy_name` is its name in the policy set; None if nobody named it.
    """

    episode: int
    policy_index: int
    policy: Policy
    weight: float
    deployed: Mixture
    policy_name: str | None = None


@dataclass(frozen=True, eq=False)
class Orders:
    """The next n orders, valid as long as no decision falls among them: `drawn` [n] are policy indices."""

    episode: int
    deployed: Mixture
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
        self,
        method: Method,
        *,
        seed: int = 0,
        horizon: int | None = None,
        settings: Mapping[str, Any] | None = None,
        state_classes: tuple[type, ...] = (),
    ) -> None:
        """Args:
        horizon: the most steps that an episode takes; None if that is not known.
        settings: plain JSON data from which the same learner can be made again, but that a calibration among them is
            then claimed; {} when it cannot.
        state_classes: of which the method's states are made, see `MethodSpec.state`; without them no snapshot is kept.
        """
        if check_int("seed", seed, least=0) >= 2**63:
            raise InvalidInput(f"seed must be less than 2^63, got {seed!r}")
        self.method = as_method(method)
        self.seed = int(seed)
        self.horizon = horizon
        self.settings: Mapping[str, Any] = dict(settings or {})
        self.state_classes = state_classes
        self.state = LearnerState(self.method.start())
        note = self.method.note
        self.events: tuple[Event, ...] = (Event(0, "method", note),) if note else ()
        self._asked: tuple[LearnerState | None, Orders] = None, Orders(0, SAFE_MIXTURE, np.empty(0, dtype=np.int64))

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def certified(self) -> bool:
        """Whether the method comes with a proof and no alarm has voided it, the learner's or the method's own."""
        return self.method.certified and not (self.state.voided or self.method.voided(self.state.method))

    @property
    def risk_split(self) -> Mapping[str, float]:
        """How the risk is spent: coverage, elimination, value bounds; empty for methods that do not say."""
        split = self.method.risk_split
        return {} if split is None else asdict(split)

    @property
    def deployed(self) -> Mixture:
        return SAFE_MIXTURE if self.state.voided else self.method.mixture(self.state.method)

    def ask(self) -> Order:
        """The next order. Asking again before telling returns an equal one."""
        orders = self.ask_block(1)
        index = int(orders.drawn[0])
        weight, name = orders.deployed.weight, self.policy_name(index)
        return Order(orders.episode, index, self.policy(index), weight, orders.deployed, name)

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

    def learn_from_history(self, outcomes: Outcomes) -> None:
        """Take episodes of the safe policy on this very system, from before the first order, for evidence.

        They must be all that were run from some time on, until some time that may depend on them, with neither the
        policy set nor the method chosen by them (docs/guarantees.md, Theorem 13). They are no episodes of the learner,
        whose first order is still for episode 0.
        """
        if self.state.episode or self.history:
            told = f"{self.history} earlier ones" if self.history else f"{self.state.episode}"
            raise InvalidInput(f"history must come before everything else, got a learner that was told {told}")
        if not len(outcomes):
            raise InvalidInput("history must hold at least one episode, got none")
        check_outcomes(outcomes, len(outcomes), self.method.units)
        check_observed(outcomes, self.method, self.horizon)
        check_ranges(outcomes, self.method.units, "sums in history must lie in the declared ranges")
        step = self.method.learn_from_history(self.state.method, outcomes)
        self.state = LearnerState(step.state)
        self.events += (history_event(self.method.policies, outcomes, self.horizon), *step.events)

    @property
    def history(self) -> int:
        """How many episodes of the safe policy from before the first order it was told."""
        return next((event.data["episodes"] for event in self.events if event.kind == "history"), 0)

    def certificate(self) -> Certificate:
        """What the method says of `deployed`; after a breach nothing."""
        found = self.method.certificate(self.state.method)
        return Certificate(0, found.total, None) if self.state.voided else found

    def policy(self, index: int) -> Policy:
        return self.method.policy(self.state.method, index)

    def policy_name(self, index: int) -> str | None:
        """Of the policy set that the method chooses from, if there is one and it has names."""
        return None if self.method.policies is None else self.method.policies.name(index)

    def ask_block(self, episodes: int) -> Orders:
        state, orders = self._asked  # what is told is compared with what was asked for, in the same state
        if state is not self.state or len(orders.drawn) != episodes:
            deployed, first = self.deployed, self.state.episode
            drawn = deployed.components(counter_uniforms(self.seed, first, episodes))
            orders = Orders(first, deployed, make_readonly(drawn))
            self._asked = self.state, orders
        return orders

    def tell_block(self, orders: Orders, outcomes: Outcomes) -> int:
        """Use outcomes in order until a decision falls; returns how many were used, the rest were never run."""
        self._check_orders(orders)
        check_outcomes(outcomes, len(orders.drawn), self.method.units)
        check_observed(outcomes, self.method, self.horizon)
        if self.state.voided:
            self.state = replace(self.state, episode=self.state.episode + len(outcomes))
            return len(outcomes)
        trusted = trusted_episodes(outcomes, self.method.units)
        step = Step(self.state.method, 0)
        if trusted:
            step = self.method.update(step.state, self.state.episode, orders.drawn[:trusted], outcomes.first(trusted))
        used, events = step.used, step.events
        # After a decision the next order may be another one, so what was told for the old one was never run.
        voided = used == trusted < len(outcomes) and not events and self._is_unchanged_by(step)
        if voided:
            used += 1
            events += (range_alarm(self.state.episode + used, outcomes[trusted : trusted + 1], self.method.units),)
        self.state = LearnerState(step.state, self.state.episode + used, voided)
        self.events += events
        return used

    def _is_unchanged_by(self, step: Step) -> bool:
        """Whether the same is deployed afterwards, and accounted for alike."""
        before, after = (_visible_state(self.method, state) for state in (self.state.method, step.state))
        return all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))

    def _check_orders(self, orders: Orders) -> None:
        """Refuse orders that are not the next ones."""
        if orders.episode != self.state.episode:
            raise InvalidInput(
                f"order is for episode {orders.episode}, but the learner expects episode {self.state.episode}; "
                "each order is told once, in turn"
            )
        expected = self.ask_block(len(orders.drawn)).drawn
        if orders.drawn is not expected and not np.array_equal(orders.drawn, expected):
            other = int(np.argmax(orders.drawn != expected))
            raise InvalidInput(
                f"order for episode {orders.episode + other} must name policy {expected[other]}, which the learner "
                f"ordered, got {orders.drawn[other]}"
            )


def _visible_state(method: Method, state: Any) -> tuple[Any, ...]:
    deployed, account = method.mixture(state), method.certificate(state)
    return deployed.indices, deployed.weights, account.surviving, account.total, account.margin


def counter_uniforms(seed: int, first: int, count: int) -> Floats:
    """Uniform numbers number `first` ... `first + count - 1` of the Philox stream with key `seed`."""
    place = first % AHEAD
    if place + count <= AHEAD:
        return _uniforms_ahead(seed, first - place)[place : place + count]
    return _uniforms(seed, first, count)


@lru_cache(maxsize=8)
def _uniforms_ahead(seed: int, first: int) -> Floats:
    """Single orders ask for one number at a time, several times each, and setting the generator up takes longest."""
    return make_readonly(_uniforms(seed, first, AHEAD))


def _uniforms(seed: int, first: int, count: int) -> Floats:
    philox = np.random.Philox(key=seed)
    philox.advance(first // 4)  # one counter value yields four 64-bit words
    words = philox.random_raw(first % 4 + count)[first % 4 :]
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
