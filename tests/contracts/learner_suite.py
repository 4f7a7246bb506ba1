"""What every learner must do, whoever wrote its method: call these from the tests of an implementation.

`make` builds the same fresh learner each time it is called. `World` answers orders with simulated episodes that depend
on nothing but (episode, policy), so that every way of telling them tells the same story.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import cycle
from typing import Any, TypeAlias

import numpy as np
import pytest
from scipy import stats

from surefoot.cmdp.episode import Outcome, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.learning.learner import Learner, Order, Orders
from surefoot.learning.method import SAFE, Deployed
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.rollout import Simulator

Make: TypeAlias = Callable[[], Learner]

# A correct learner fails one of the frequency checks below with at most this probability, whatever the seed.
FALSE_ALARM = 1e-6


# ----------------------------------------------------------------------------------------------------------- the world


class World:
    """Episodes of a tabular task, with transitions: number k of a policy is always the same episode."""

    def __init__(self, task: TabularCMDP, horizon: int, length: int, seed: int = 0) -> None:
        self.task, self.horizon, self.length, self.seed = task, horizon, length, seed
        self._episodes: dict[int, Outcomes] = {}
        self._changes: dict[tuple[int, int], Callable[[Outcome], Outcome]] = {}

    def changed(self, episode: int, policy: int, change: Callable[[Outcome], Outcome]) -> World:
        """The same world but for one episode of one policy."""
        other = World(self.task, self.horizon, self.length, self.seed)
        other._episodes = self._episodes
        other._changes = {**self._changes, (episode, policy): change}
        return other

    def outcome(self, learner: Learner, episode: int, index: int) -> Outcome:
        episodes = self._of_policy(learner, index)
        assert episodes.states is not None
        assert episodes.actions is not None
        outcome = Outcome(
            float(episodes.reward[episode]), episodes.cost[episode], episodes.states[episode], episodes.actions[episode]
        )
        return self._changes.get((episode, index), lambda same: same)(outcome)

    def outcomes(self, learner: Learner, orders: Orders) -> Outcomes:
        single = [self.outcome(learner, orders.episode + k, int(index)) for k, index in enumerate(orders.drawn)]
        return Outcomes(
            np.array([each.reward for each in single]),
            np.array([each.cost for each in single]),
            np.array([each.states for each in single]),
            np.array([each.actions for each in single]),
        )

    def _of_policy(self, learner: Learner, index: int) -> Outcomes:
        if index not in self._episodes:
            policy = learner.policy(index)
            assert isinstance(policy, TabularPolicy | TimedPolicy)
            simulator = Simulator(self.task, policy, self.horizon)
            self._episodes[index] = simulator.run(self.length, np.random.default_rng([self.seed, index]), True)
        return self._episodes[index]


@dataclass(frozen=True)
class Story:
    """What was ordered for each episode, and what the learner was left with."""

    drawn: tuple[int, ...]
    deployed: tuple[Any, ...]
    state: Any
    events: Any


def tell_singly(learner: Learner, world: World, episodes: int) -> Story:
    """Ask and tell one episode at a time."""
    drawn, deployed = [], []
    for _ in range(episodes):
        order = learner.ask()
        drawn.append(order.policy_index)
        deployed.append(fingerprint(order.deployed))
        learner.tell(order, world.outcome(learner, order.episode, order.policy_index))
    return Story(tuple(drawn), tuple(deployed), fingerprint(learner.state), fingerprint(learner.events))


def tell_in_blocks(learner: Learner, world: World, episodes: int, sizes: Iterable[int]) -> Story:
    """Ask and tell blocks of these sizes, over and over; what a decision cuts off is asked for again."""
    drawn: list[int] = []
    deployed: list[Any] = []
    for size in cycle(sizes):
        orders = learner.ask_block(min(size, episodes - len(drawn)))
        used = learner.tell_block(orders, world.outcomes(learner, orders))
        assert 1 <= used <= len(orders.drawn)
        drawn += orders.drawn[:used].tolist()
        deployed += [fingerprint(orders.deployed)] * used
        if len(drawn) == episodes:
            break
    return Story(tuple(drawn), tuple(deployed), fingerprint(learner.state), fingerprint(learner.events))


def fingerprint(value: Any) -> Any:
    """Everything in a state, down to the last bit, in a form that `==` compares."""
    if isinstance(value, np.ndarray | np.generic):
        return type(value).__name__, value.dtype.str, value.shape, value.tobytes()
    if is_dataclass(value):
        return type(value).__name__, *((f.name, fingerprint(getattr(value, f.name))) for f in fields(value))
    if isinstance(value, Mapping):
        return "mapping", *((fingerprint(key), fingerprint(item)) for key, item in value.items())
    if isinstance(value, tuple | list):
        return type(value).__name__, *(fingerprint(item) for item in value)
    if isinstance(value, float):
        return "float", value.hex()
    assert value is None or isinstance(value, bool | int | str), f"a state is plain data, not {type(value).__name__}"
    return type(value).__name__, value


def snapshot(learner: Learner) -> Any:
    return fingerprint((learner.state, learner.events))


# ---------------------------------------------------------------------------------------------------------- the checks


def asking_changes_nothing(make: Make, world: World, episodes: int) -> None:
    """`ask` is idempotent and pure, single orders begin blocks, and orders carry the policy to run."""
    learner = make()
    for size in (1, 5, episodes - 6):
        before = snapshot(learner)
        first, second = learner.ask(), learner.ask()
        block = learner.ask_block(7)
        assert snapshot(learner) == before
        assert _comparable(first) == _comparable(second)
        assert first.policy is second.policy
        assert np.array_equal(learner.ask_block(3).drawn, block.drawn[:3])
        assert (first.episode, first.policy_index) == (block.episode, block.drawn[0])
        assert fingerprint(first.deployed) == fingerprint(block.deployed) == fingerprint(learner.deployed)
        assert first.weight == first.deployed.weight
        assert isinstance(first.policy, Policy)
        assert first.policy is learner.policy(first.policy_index)
        tell_in_blocks(learner, world, size, [size])


def orders_are_told_once_and_in_turn(make: Make, world: World, episodes: int) -> None:
    """An order told twice, out of turn or for another policy is refused, and nothing changes."""
    learner = make()
    tell_in_blocks(learner, world, episodes, [episodes])
    order = learner.ask()
    outcome = world.outcome(learner, order.episode, order.policy_index)
    for wrong in (
        replace(order, episode=order.episode + 1),
        replace(order, episode=0),
        replace(order, policy_index=order.policy_index + 1),
    ):
        _refused(learner, wrong, outcome)
    learner.tell(order, outcome)
    assert learner.state.episode == episodes + 1
    _refused(learner, order, outcome)


def malformed_outcomes_are_refused(make: Make, world: World, episodes: int) -> None:
    """NaN, infinite, missing or wrongly shaped numbers are refused, nothing changes, and the order still stands."""
    learner = make()
    tell_in_blocks(learner, world, episodes, [episodes])
    order = learner.ask()
    good = world.outcome(learner, order.episode, order.policy_index)
    wrong = [replace(good, reward=value) for value in (np.nan, np.inf, -np.inf, np.array([1.0]), "1", None)]
    for k in range(len(good.cost)):
        spoilt = good.cost.astype(object)
        for value in (np.nan, np.inf, -np.inf):
            spoilt[k] = value
            wrong.append(replace(good, cost=spoilt.astype(np.float64)))
    wrong += [replace(good, cost=cost) for cost in (np.append(good.cost, 0.0), good.cost[:-1], good.cost[None], 0.0)]
    if getattr(learner.method, "needs_transitions", False):
        assert good.states is not None
        assert good.actions is not None
        wrong += [replace(good, states=None), replace(good, actions=None), replace(good, states=None, actions=None)]
        wrong += [replace(good, states=good.states[:-1]), replace(good, actions=good.actions[None])]
    if getattr(learner.method, "needs_first_state", False):
        assert good.states is not None
        wrong += [
            replace(good, states=None),
            replace(good, states=good.states[:0]),
            replace(good, states=good.states[0]),
        ]
    for outcome in wrong:
        _refused(learner, order, outcome)

    before, orders = snapshot(learner), learner.ask_block(3)
    short = world.outcomes(learner, learner.ask_block(2))
    for outcomes in (short, world.outcomes(learner, learner.ask_block(4))):
        with pytest.raises(InvalidInput):
            learner.tell_block(orders, outcomes)
        assert snapshot(learner) == before
    learner.tell(order, good)
    assert learner.state.episode == episodes + 1


def deploys_mixtures_of_its_policies(make: Make, world: World, episodes: int) -> None:
    """Before every episode the weights are a distribution over policies that the learner can hand out."""
    learner = make()
    for _ in range(episodes):
        _check_mixture(learner, learner.deployed)
        order = learner.ask()
        assert order.policy_index in learner.deployed.indices[learner.deployed.weights > 0]
        learner.tell(order, world.outcome(learner, order.episode, order.policy_index))


def replaying_gives_the_same_story(make: Make, world: World, episodes: int) -> None:
    """Equal outcomes told to equal learners give equal orders, events and states, bit for bit; seeds alone differ."""
    story = tell_singly(make(), world, episodes)
    assert len(story.drawn) == episodes
    assert tell_singly(make(), world, episodes) == story


def blocks_tell_the_same_story(make: Make, world: World, sizes: Sequence[int], single: Story) -> None:
    """However the episodes are split into blocks, orders, events and state are those of `tell_singly`, bit for bit."""
    assert tell_in_blocks(make(), world, len(single.drawn), sizes) == single


def leaving_the_range_voids_the_certificate(make: Make, world: World, episodes: int) -> None:
    """A reward or cost that its declared range forbids: alarm, safe policy, no certificate, for ever."""
    units = make().method.units
    for change in _breaches(units):
        learner = make()
        tell_in_blocks(learner, world, episodes, [episodes])
        method, events = fingerprint(learner.state.method), learner.events
        assert learner.certified == learner.method.certified
        order = learner.ask()
        learner.tell(order, change(world.outcome(learner, order.episode, order.policy_index)))

        assert not learner.certified
        assert learner.deployed.indices.tolist() == [SAFE]
        assert learner.deployed.weights.tolist() == [1.0]
        assert fingerprint(learner.state.method) == method, "an episode that cannot be was learned from"
        *earlier, alarm = learner.events
        assert tuple(earlier) == events
        assert (alarm.kind, alarm.episode) == ("alarm", episodes + 1)
        after = tell_in_blocks(learner, world, 20, [7])
        assert set(after.drawn) == {SAFE}
        assert learner.state.episode == episodes + 21
        assert learner.events == (*events, alarm)


def rounding_voids_nothing(make: Make, world: World) -> None:
    """Sums at the ends of their ranges, one rounding step beyond included, are trusted."""
    units = make().method.units
    low, high = units.reward_value_range
    for reward, cost in ((low, units.cost_value_range[:, 0]), (high, units.cost_value_range[:, 1])):
        learner = make()
        order = learner.ask()
        outcome = world.outcome(learner, 0, order.policy_index)
        learner.tell(
            order, replace(outcome, reward=np.nextafter(reward, 2 * reward), cost=np.nextafter(cost, 2 * cost))
        )
        assert not learner.state.voided


def a_breach_falls_alike_in_blocks(make: Make, world: World, episodes: int) -> None:
    """A breach at, just before and just after a decision: blocks still tell the story of single episodes.

    After a decision other policies run, so an outcome told for the old ones must not count.
    """
    normal = tell_singly(make(), world, episodes)
    decision = next((k for k in range(1, episodes) if normal.deployed[k] != normal.deployed[k - 1]), episodes // 2)
    length = decision + 5
    for episode in (decision - 1, decision, decision + 1):
        for policy in {normal.drawn[decision - 1], normal.drawn[decision]}:
            breached = world.changed(episode, policy, _breaches(make().method.units)[0])
            story = tell_singly(make(), breached, length)
            for sizes in ([length], [decision + 2], [decision, 3]):
                assert tell_in_blocks(make(), breached, length, sizes) == story


def draws_follow_the_weights(make: Make, world: World, episodes: int, draws: int = 20_000) -> None:
    """How often each component comes up is binomial with its weight."""
    learner = make()
    tell_in_blocks(learner, world, episodes, [episodes])
    orders = learner.ask_block(draws)
    counts = {int(index): int((orders.drawn == index).sum()) for index in orders.deployed.indices}
    assert sum(counts.values()) == draws
    for index, weight in zip(orders.deployed.indices, orders.deployed.weights, strict=True):
        assert stats.binomtest(counts[int(index)], draws, min(1.0, float(weight))).pvalue > FALSE_ALARM


def _comparable(order: Order) -> Any:
    return fingerprint((order.episode, order.policy_index, order.weight, order.deployed))


def _refused(learner: Learner, order: Order, outcome: Outcome) -> None:
    before = snapshot(learner)
    with pytest.raises(InvalidInput):
        learner.tell(order, outcome)
    assert snapshot(learner) == before


def _check_mixture(learner: Learner, deployed: Deployed) -> None:
    assert deployed.indices.shape == deployed.weights.shape
    assert deployed.indices.ndim == 1
    assert len(set(deployed.indices.tolist())) == len(deployed.indices) >= 1
    assert (deployed.weights >= 0).all()
    assert abs(deployed.weights.sum() - 1) <= 1e-12
    assert 0 <= deployed.weight <= 1 + 1e-12
    assert deployed.indices.min() >= 0
    for index in deployed.indices:
        assert isinstance(learner.policy(int(index)), Policy)


def _breaches(units: Units) -> list[Callable[[Outcome], Outcome]]:
    """Ways for an outcome to leave the declared ranges, on either side; a cut-off tail makes 0 always possible."""
    low, high = units.reward_value_range
    span = (high - low) * 1e-6
    changes: list[Callable[[Outcome], Outcome]] = [
        lambda outcome: replace(outcome, reward=max(high, 0.0) + span),
        lambda outcome: replace(outcome, reward=min(low, 0.0) - span),
    ]
    for k, (least, most) in enumerate(units.cost_value_range):
        step = (most - least) * 1e-6
        for value in (max(most, 0.0) + step, min(least, 0.0) - step):
            changes.append(lambda outcome, k=k, value=value: replace(outcome, cost=_with(outcome.cost, k, value)))
    return changes


def _with(array: np.ndarray, index: int, value: float) -> np.ndarray:
    changed = array.copy()
    changed[index] = value
    return changed


# ------------------------------------------------------------------------------------------------- sets made up by hand


def made_up_set(
    units: Units,
    unit_values: Sequence[tuple[float, Sequence[float], float, Sequence[float]]],
    *,
    epsilon: float,
    policies: Sequence[TabularPolicy] | None = None,
) -> PolicyValueSet:
    """A policy-value set with the values (u, v, u_s, v_s) given in unit scale; `policies` are π_s, then one per entry.

    No training is behind it, which is what tests of the test phase need: values can be right, wrong or absurd.
    """
    if policies is None:
        share = np.linspace(0, 1, len(unit_values) + 1)
        policies = [TabularPolicy(np.array([[1 - p, p]])) for p in share]
    low = units.reward_value_range[0]
    entries = tuple(
        Entry(
            np.array([float(k)]),
            policies[k + 1],
            low + units.reward_scale * u,
            units.user_margin(np.array(v, dtype=np.float64)),
            low + units.reward_scale * u_s,
            units.user_margin(np.array(v_s, dtype=np.float64)),
        )
        for k, (u, v, u_s, v_s) in enumerate(unit_values)
    )
    return PolicyValueSet(entries, policies[0], units, epsilon, 0.1, 0.0, "made up", {}, {}, safe_risk=0.0)
