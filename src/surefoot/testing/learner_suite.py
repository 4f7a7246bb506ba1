"""What every learner must do, whoever wrote its method.

`make` builds the same fresh learner each time it is called. `EpisodeSource` answers orders with simulated episodes that
depend on nothing but (episode, policy), so that every way of telling them tells the same story.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from itertools import cycle
from typing import Any, TypeAlias

import numpy as np
from scipy import stats

from surefoot.arrays import Floats
from surefoot.cmdp.episode import Outcome, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task
from surefoot.cmdp.units import Units
from surefoot.deploy import snapshots
from surefoot.learning.checks import signals_of
from surefoot.learning.learner import Learner, Order, Orders
from surefoot.learning.method import SAFE, Mixture, includes
from surefoot.testing.require import FALSE_ALARM, require, require_refusal

Make: TypeAlias = Callable[[], Learner]
Change: TypeAlias = Callable[[Outcome], Outcome]


def check(make: Make, world: EpisodeSource, episodes: int = 130) -> None:
    """All that follows; `world` must hold `episodes` + 30 episodes and some more of every policy."""
    asking_changes_nothing(make, world, episodes)
    orders_are_told_once_and_in_turn(make, world, episodes)
    malformed_outcomes_are_refused(make, world, episodes)
    deploys_mixtures_of_its_policies(make, world, episodes)
    replaying_gives_the_same_story(make, world, episodes)
    for sizes in ([episodes], [1, 2, 40], [7, 16, 3]):
        blocks_tell_the_same_story(make, world, sizes, tell_singly(make(), world, episodes))
    leaving_the_range_voids_the_certificate(make, world, episodes)
    rounding_voids_nothing(make, world)
    a_breach_falls_alike_in_blocks(make, world, episodes)
    abandoned_episodes_count(make, world, episodes)
    draws_follow_the_weights(make, world, episodes)
    snapshots_hold_the_state(make, world, episodes)


# ----------------------------------------------------------------------------------------------------------- the world


class EpisodeSource:
    """Episodes of a task, with transitions or observations where it has such: number k of a policy is always the same.

    Args:
        steps: after which an episode is cut off.
        length: episodes that there are of each policy.
    """

    def __init__(self, task: Task, steps: int, length: int, seed: int = 0) -> None:
        self.task, self.steps, self.length, self.seed = task, steps, length, seed
        self._episodes: dict[int, Outcomes] = {}
        self._changes: dict[tuple[int, int], Change] = {}

    def changed(self, episode: int, policy: int, change: Change) -> EpisodeSource:
        """The same world but for one episode of one policy."""
        other = EpisodeSource(self.task, self.steps, self.length, self.seed)
        other._episodes = self._episodes
        other._changes = {**self._changes, (episode, policy): change}
        return other

    def outcome(self, learner: Learner, episode: int, index: int) -> Outcome:
        episodes = self._of_policy(learner, index)
        outcome = Outcome(
            float(episodes.reward[episode]),
            episodes.cost[episode],
            None if episodes.states is None else episodes.states[episode],
            None if episodes.actions is None else episodes.actions[episode],
            None if episodes.observed is None else episodes.observed[episode : episode + 1],
        )
        change = self._changes.get((episode, index))
        return outcome if change is None else change(outcome)

    def outcomes(self, learner: Learner, orders: Orders) -> Outcomes:
        drawn = enumerate(orders.drawn.tolist(), orders.episode)
        return Outcomes.joined([Outcomes.single(self.outcome(learner, episode, index)) for episode, index in drawn])

    def _of_policy(self, learner: Learner, index: int) -> Outcomes:
        if index not in self._episodes:
            episodes = self.task.episodes(learner.policy(index), self.steps)
            rng = np.random.default_rng([self.seed, index])
            self._episodes[index] = episodes.run(self.length, rng, transitions=True)
        return self._episodes[index]


@dataclass(frozen=True)
class Story:
    """What was ordered for each episode, how that was deployed and accounted for, and what was left."""

    drawn: tuple[int, ...]
    deployed: tuple[Any, ...]
    state: Any
    events: Any


def tell_singly(learner: Learner, world: EpisodeSource, episodes: int) -> Story:
    """Ask and tell one episode at a time."""
    drawn, deployed = [], []
    for _ in range(episodes):
        order = learner.ask()
        drawn.append(order.policy_index)
        deployed.append(_deployment_and_account(learner))
        learner.tell(order, world.outcome(learner, order.episode, order.policy_index))
    return Story(tuple(drawn), tuple(deployed), fingerprint(learner.state), fingerprint(learner.events))


def tell_in_blocks(learner: Learner, world: EpisodeSource, episodes: int, sizes: Iterable[int]) -> Story:
    """Ask and tell blocks of these sizes, over and over; what a decision cuts off is asked for again."""
    drawn, deployed = list[int](), list[Any]()
    for size in cycle(sizes):
        orders, before = learner.ask_block(min(size, episodes - len(drawn))), _deployment_and_account(learner)
        used = learner.tell_block(orders, world.outcomes(learner, orders))
        require(1 <= used <= len(orders.drawn), f"{used} of {len(orders.drawn)} episodes were used")
        drawn += orders.drawn[:used].tolist()
        deployed += [before] * used
        if len(drawn) == episodes:
            break
    return Story(tuple(drawn), tuple(deployed), fingerprint(learner.state), fingerprint(learner.events))


def _deployment_and_account(learner: Learner) -> Any:
    return fingerprint((learner.deployed, learner.certificate(), learner.certified, len(learner.events)))


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
    plain = value is None or isinstance(value, bool | int | str)
    require(plain, f"a state is plain data, not {type(value).__name__}")
    return type(value).__name__, value


def snapshot(learner: Learner) -> Any:
    return fingerprint((learner.state, learner.events))


# ---------------------------------------------------------------------------------------------------------- the checks


def asking_changes_nothing(make: Make, world: EpisodeSource, episodes: int) -> None:
    """`ask` is idempotent and pure, single orders begin blocks, and orders carry the policy to run."""
    learner = make()
    for size in (1, 5, episodes - 6):
        before = snapshot(learner)
        first, second = learner.ask(), learner.ask()
        block = learner.ask_block(7)
        require(snapshot(learner) == before, "asking changed the learner")
        require(_comparable(first) == _comparable(second), "asking twice gave different orders")
        require(first.policy is second.policy, "asking twice gave different policies")
        require(np.array_equal(learner.ask_block(3).drawn, block.drawn[:3]), "a block depends on its length")
        require((first.episode, first.policy_index) == (block.episode, block.drawn[0]), "an order is not its block's")
        same = fingerprint(first.deployed) == fingerprint(block.deployed) == fingerprint(learner.deployed)
        require(same, "an order's mixture is not the one deployed")
        require(first.weight == first.deployed.weight, "an order's weight is not that of its mixture")
        require(isinstance(first.policy, Policy), f"an order must carry a policy, got {type(first.policy).__name__}")
        require(first.policy is learner.policy(first.policy_index), "an order carries another policy than its index")
        tell_in_blocks(learner, world, size, [size])


def orders_are_told_once_and_in_turn(make: Make, world: EpisodeSource, episodes: int) -> None:
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
        _require_outcome_refusal(learner, wrong, outcome)
    learner.tell(order, outcome)
    require(learner.state.episode == episodes + 1, "an episode that was told does not count")
    _require_outcome_refusal(learner, order, outcome)


def malformed_outcomes_are_refused(make: Make, world: EpisodeSource, episodes: int) -> None:
    """NaN, infinite, missing or wrongly shaped numbers are refused, nothing changes, and the order still stands."""
    learner = make()
    tell_in_blocks(learner, world, episodes, [episodes])
    order = learner.ask()
    good = world.outcome(learner, order.episode, order.policy_index)
    for outcome in _malformed_outcomes(good, learner):
        _require_outcome_refusal(learner, order, outcome)
    before, orders = snapshot(learner), learner.ask_block(3)
    for size in (2, 4):
        outcomes = world.outcomes(learner, learner.ask_block(size))
        require_refusal(partial(learner.tell_block, orders, outcomes), f"{size} outcomes for three orders")
        require(snapshot(learner) == before, "a refused block changed the learner")
    learner.tell(order, good)
    require(learner.state.episode == episodes + 1, "the order does not stand after an outcome was refused")


def deploys_mixtures_of_its_policies(make: Make, world: EpisodeSource, episodes: int) -> None:
    """Before every episode the weights are a distribution over policies that the learner can hand out."""
    learner = make()
    for _ in range(episodes):
        _check_mixture(learner, learner.deployed)
        order = learner.ask()
        possible = learner.deployed.indices[learner.deployed.weights > 0]
        require(order.policy_index in possible, f"policy {order.policy_index} was ordered, of {possible.tolist()}")
        learner.tell(order, world.outcome(learner, order.episode, order.policy_index))


def replaying_gives_the_same_story(make: Make, world: EpisodeSource, episodes: int) -> None:
    """Equal outcomes told to equal learners give equal orders, events and states, bit for bit; seeds alone differ."""
    story = tell_singly(make(), world, episodes)
    require(len(story.drawn) == episodes, "not every episode was ordered")
    require(tell_singly(make(), world, episodes) == story, "equal outcomes gave another story")


def blocks_tell_the_same_story(make: Make, world: EpisodeSource, sizes: Sequence[int], single: Story) -> None:
    """However the episodes are split into blocks, orders, events and state are those of `tell_singly`, bit for bit."""
    story = tell_in_blocks(make(), world, len(single.drawn), sizes)
    require(story == single, f"blocks of {list(sizes)} tell another story than single episodes")


def leaving_the_range_voids_the_certificate(make: Make, world: EpisodeSource, episodes: int) -> None:
    """A reward or cost that its declared range forbids: alarm, safe policy, no certificate, for ever."""
    for change in _breaches(make().method.units):
        learner = make()
        tell_in_blocks(learner, world, episodes, [episodes])
        method, events = fingerprint(learner.state.method), learner.events
        require(learner.certified == learner.method.certified, "the certificate is void without a breach")
        order = learner.ask()
        learner.tell(order, change(world.outcome(learner, order.episode, order.policy_index)))

        require(not learner.certified, "a breach left the certificate in force")
        only_safe = (learner.deployed.indices.tolist(), learner.deployed.weights.tolist()) == ([SAFE], [1.0])
        require(only_safe, "something else than the safe policy follows a breach")
        require(fingerprint(learner.state.method) == method, "an episode that cannot be was learned from")
        *earlier, alarm = learner.events
        require(tuple(earlier) == events, "a breach changed earlier events")
        require((alarm.kind, alarm.episode) == ("alarm", episodes + 1), f"a breach must raise an alarm, got {alarm}")
        after = tell_in_blocks(learner, world, 20, [7])
        require(set(after.drawn) == {SAFE}, "something else than the safe policy was ordered after a breach")
        require(learner.state.episode == episodes + 21, "episodes after a breach do not count")
        require(learner.events == (*events, alarm), "there are events after a breach")


def rounding_voids_nothing(make: Make, world: EpisodeSource) -> None:
    """Sums at the ends of their ranges, one rounding step beyond included, are trusted."""
    for reward, *cost in make().method.units.reachable.T:
        learner = make()
        order = learner.ask()
        outcome = world.outcome(learner, 0, order.policy_index)
        beyond = replace(outcome, reward=np.nextafter(reward, 2 * reward), cost=np.nextafter(cost, 2 * np.array(cost)))
        learner.tell(order, beyond)
        require(not learner.state.voided, "rounding counts as leaving the range")


def a_breach_falls_alike_in_blocks(make: Make, world: EpisodeSource, episodes: int) -> None:
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
                blocks_tell_the_same_story(make, breached, sizes, story)


def abandoned_episodes_count(make: Make, world: EpisodeSource, episodes: int) -> None:
    """An episode without an outcome takes its turn, changes no earlier state, and what follows is a mixture again."""
    learner = make()
    for k in range(episodes):
        order, before = learner.ask(), learner.state
        image = fingerprint(before)
        if k % 7 == 3:
            learner.abandon(order)
        else:
            learner.tell(order, world.outcome(learner, order.episode, order.policy_index))
        require(fingerprint(before) == image, "an earlier state was changed")
        require(learner.state.episode == k + 1, "an abandoned episode does not count")
        _check_mixture(learner, learner.deployed)


def draws_follow_the_weights(make: Make, world: EpisodeSource, episodes: int, draws: int = 20_000) -> None:
    """How often each component comes up is binomial with its weight."""
    learner = make()
    tell_in_blocks(learner, world, episodes, [episodes])
    orders = learner.ask_block(draws)
    counts = {int(index): int((orders.drawn == index).sum()) for index in orders.deployed.indices}
    require(sum(counts.values()) == draws, "policies beyond the mixture were drawn")
    for index, weight in zip(orders.deployed.indices, orders.deployed.weights, strict=True):
        share = float(stats.binomtest(counts[int(index)], draws, min(1.0, float(weight))).pvalue)
        require(share > FALSE_ALARM, f"policy {index} of weight {weight:g} was drawn {counts[int(index)]} of {draws}")


def snapshots_hold_the_state(make: Make, world: EpisodeSource, episodes: int) -> None:
    """State and events come back from a snapshot to the last bit; see `MethodSpec.state`."""
    learner = make()
    tell_in_blocks(learner, world, episodes, [episodes])
    known, whole = snapshots.classes(learner), (learner.state, learner.events)
    try:
        back = snapshots.decode(snapshots.encode(whole, known), known)
    except snapshots.NotPlain as error:
        raise AssertionError(f"the state holds {error}, which MethodSpec.state must list") from None
    require(fingerprint(back) == fingerprint(whole), "a snapshot does not hold the whole state")


# --------------------------------------------------------------------------------------------------------- their parts


def _comparable(order: Order) -> Any:
    return fingerprint((order.episode, order.policy_index, order.weight, order.deployed))


def _require_outcome_refusal(learner: Learner, order: Order, outcome: Outcome) -> None:
    before = snapshot(learner)
    require_refusal(lambda: learner.tell(order, outcome), f"{outcome} for episode {order.episode}")
    require(snapshot(learner) == before, "a refused outcome changed the learner")


def _malformed_outcomes(good: Outcome, learner: Learner) -> list[Any]:
    wrong: list[Any] = [replace(good, reward=value) for value in (np.nan, np.inf, -np.inf)]
    unlike: tuple[Any, ...] = (np.array([1.0]), "1", None)
    wrong += [replace(good, reward=value) for value in unlike]
    for k in range(len(good.cost)):
        wrong += [replace(good, cost=_with(good.cost, k, value)) for value in (np.nan, np.inf, -np.inf)]
    shapes: tuple[Any, ...] = (np.append(good.cost, 0.0), good.cost[:-1], good.cost[None], 0.0)
    wrong += [replace(good, cost=cost) for cost in shapes]
    if learner.method.observes == "transitions" and good.states is not None and good.actions is not None:
        wrong += [replace(good, states=None), replace(good, actions=None), replace(good, states=None, actions=None)]
        wrong += [replace(good, states=good.states[:-1]), replace(good, actions=good.actions[None])]
    if includes(learner.method.observes, "first-state") and good.states is not None:
        firsts: tuple[Any, ...] = (None, good.states[:0], good.states[0])
        wrong += [replace(good, states=states) for states in firsts]
    if learner.method.observes == "steps" and good.observed is not None and good.observed.paid is not None:
        shown, paid = good.observed, good.observed.paid
        others: tuple[Any, ...] = (None, paid[:, :-1], paid[..., :-1], paid[0], np.full_like(paid, np.nan))
        wrong += [replace(good, observed=None), *(replace(good, observed=replace(shown, paid=p)) for p in others)]
        drawn = shown.as_drawn.astype(np.float64)
        unlike = (drawn[:, :-1], drawn[0], drawn[None], np.full_like(drawn, np.nan), drawn.astype(str))
        wrong += [replace(good, observed=replace(shown, drawn=each)) for each in unlike]
    signals = signals_of(learner.method)
    if signals is not None:
        bare = replace(good, states=None, actions=None, observed=None)
        right = np.full(len(signals), 0.5)
        values: tuple[Floats, ...] = (np.append(right, 0.5), right[None], right + 1, right - 1, right * np.nan)
        wrong += [bare, replace(good, signals=right), *(replace(bare, signals=value) for value in values)]
    return wrong


def _check_mixture(learner: Learner, deployed: Mixture) -> None:
    indices, weights = deployed.indices, deployed.weights
    require(indices.shape == weights.shape and indices.ndim == 1, "a mixture has one weight per policy")
    require(len(set(indices.tolist())) == len(indices) >= 1, f"policies of a mixture differ, got {indices.tolist()}")
    require((weights >= 0).all(), f"weights must not be negative, got {weights.tolist()}")
    require(abs(weights.sum() - 1) <= 1e-12, f"weights must sum to 1, got {weights.tolist()}")
    require(0 <= deployed.weight <= 1 + 1e-12, f"weight must be a probability, got {deployed.weight!r}")
    require(indices.min() >= 0, f"indices must not be negative, got {indices.tolist()}")
    for index in indices.tolist():
        require(isinstance(learner.policy(index), Policy), f"policy {index} of a mixture is none")


def _breaches(units: Units) -> list[Change]:
    """Ways for an outcome to leave the declared ranges, on either side; a cut-off tail makes 0 always possible."""
    low, high = units.reachable.T
    step = 1e-6 * np.ptp(units.reachable, axis=1)
    changes: list[Change] = [
        lambda outcome: replace(outcome, reward=float(high[0] + step[0])),
        lambda outcome: replace(outcome, reward=float(low[0] - step[0])),
    ]
    for k in range(len(units.budget)):
        for value in (high[k + 1] + step[k + 1], low[k + 1] - step[k + 1]):
            changes.append(
                lambda outcome, k=k, value=value: replace(outcome, cost=_with(outcome.cost, k, value))  # type: ignore[misc]
            )
    return changes


def _with(array: Floats, index: int, value: float) -> Floats:
    changed = array.copy()
    changed[index] = value
    return changed
