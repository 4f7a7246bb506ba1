"""The loop that all learners of policies share: collect, weigh what was done, update, fit the critics.

What tells one algorithm from another is its update (`cpo`, `crpo`, `ppo_lagrangian`). A world may hold lanes of
several tasks, called groups here: a policy that suits all of them has a budget to keep in each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from surefoot.arrays import Floats, Integers, Mask
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.world import Actions, World
from surefoot.control.critics import Critics, advantages_and_targets, fit_critics, new_critics
from surefoot.control.mlp_policy import CategoricalPolicy, MLPPolicy
from surefoot.control.networks import Actor, Normaliser, actor_of, new_actor, numpy_policy


@dataclass(frozen=True)
class Settings:
    """Of the loop; an update has settings of its own.

    Attributes:
        steps: in all lanes together.
        batch: steps per update, in all lanes together; at least an episode in each lane, so that no update goes by the
            cost of an earlier policy.
        discount, trace: γ and λ of the advantages.
        hidden: sizes of the policy's hidden layers.
        log_std: of a new policy's action noise.
        normaliser_steps: after as many observations the normaliser stays as it is.
    """

    steps: int = 1_000_000
    batch: int = 8_000
    discount: float = 0.99
    trace: float = 0.95
    hidden: tuple[int, ...] = (64, 64)
    log_std: float = -0.5
    normaliser_steps: int = 400_000


class AdvantageBatch(NamedTuple):
    """What an update learns from: n samples.

    Attributes:
        inputs: [n, o] normalised observations.
        actions: [n, k] or [n].
        reward: [n] advantages, standardised.
        cost: [n, m] advantages, centred in each group.
        weight: [G, n] 1 where a sample is of the group.
        excess: [G, m] mean cost of the group's episodes over the budget, per step: in the units of `cost`.
        budget: [m] per step.
        size: [m] of the costs' advantages: their standard deviation.
    """

    inputs: jax.Array
    actions: jax.Array
    reward: jax.Array
    cost: jax.Array
    weight: jax.Array
    excess: Floats
    budget: Floats
    size: Floats


Memory: TypeAlias = Any  # what an update keeps from one batch to the next: multipliers, an optimiser's state
Update: TypeAlias = Callable[[Actor, AdvantageBatch, Memory, np.random.Generator], tuple[Actor, Memory]]


class Progress(NamedTuple):
    """One batch: its episodes' mean sums [1+m], the largest excess over a budget in any group, and their length."""

    steps: int
    sums: Floats
    excess: float
    length: float


@dataclass(frozen=True, eq=False)
class TrainState:
    """A policy with all that is needed to go on training it."""

    actor: Actor
    normaliser: Normaliser
    critics: Critics
    memory: Memory
    history: tuple[Progress, ...]

    @property
    def policy(self) -> MLPPolicy | CategoricalPolicy:
        return numpy_policy(self.actor, self.normaliser)


def improve(
    world: World,
    update: Update,
    *,
    settings: Settings,
    rng: np.random.Generator,
    groups: Sequence[int] | None = None,
    budget: Floats | None = None,
    start: TrainState | None = None,
    observer: Callable[[Progress], None] | None = None,
) -> TrainState:
    """A policy for the world, by as many updates as `settings.steps` allow.

    Args:
        groups: [lanes] which task each lane is of, 0, 1, ...; one task if left out.
        budget: [m] to keep in place of the world's own.
        start: a policy of a task nearby, to begin with.
    """
    group = np.zeros(world.lanes, np.int64) if groups is None else np.asarray(groups)
    allowed = world.units.budget if budget is None else budget
    now = start or _new(world, settings, rng)
    collector, length = Collector(world, rng), max(settings.batch // world.lanes, world.units.episode_length)
    history: list[Progress] = []
    for _ in range(max(1, settings.steps // (length * world.lanes))):
        batch = collector.collect(now.policy, length)
        excess = _excess(batch, group, allowed)
        lesson, targets = _estimate_advantages(batch, now, group, excess, allowed, settings)
        actor, memory = update(now.actor, lesson, now.memory, rng)
        critics = fit_critics(now.critics, np.asarray(lesson.inputs, np.float64), targets, rng)
        history.append(_progress(batch, excess, history))
        now = TrainState(actor, _update_normaliser(now.normaliser, batch, settings), critics, memory, tuple(history))
        if observer is not None:
            observer(history[-1])
    return now


def resume(
    policy: MLPPolicy | CategoricalPolicy, world: World, settings: Settings, rng: np.random.Generator
) -> TrainState:
    """A finished policy, to be trained further: its critics begin anew, its normaliser stays as it is."""
    normaliser = Normaliser.from_policy(policy.shift, policy.scale, settings.normaliser_steps)
    return TrainState(actor_of(policy), normaliser, _new_critics(world, rng), None, ())


def steps_worth(costs: Floats, sums: Floats, lengths: Integers) -> Floats:
    """[m] what an episode's cost grows by if that of every step does by 1: the number of its steps, or less where a
    budget discounts them. From costs of steps [..., m], and sums [E, 1+m] and lengths [E] of episodes."""
    steps = np.full(costs.shape[-1], lengths.mean())
    paid = costs.reshape(-1, costs.shape[-1]).mean(axis=0)
    worth = np.where(paid > 1e-9, sums[:, 1:].mean(axis=0) / np.maximum(paid, 1e-9), steps)
    return np.maximum(worth, 1e-9)


# ------------------------------------------------------------------------------------------------- parts, in call order


def _new(world: World, settings: Settings, rng: np.random.Generator) -> TrainState:
    critics = _new_critics(world, rng)
    actor = new_actor(world.shapes, settings.hidden, rng, settings.log_std)
    return TrainState(actor, Normaliser.new(world.shapes.observation), critics, None, ())


def _new_critics(world: World, rng: np.random.Generator) -> Critics:
    return new_critics(world.shapes.observation, 1 + len(world.units.budget), rng)


def _excess(batch: Batch, group: Integers, budget: Floats) -> Floats:
    """[G, m] mean cost of the episodes that ended, over the budget."""
    own = group[batch.lane]
    return np.stack([batch.sums[own == g, 1:].mean(axis=0) - budget for g in range(group.max() + 1)])


def _estimate_advantages(
    batch: Batch, now: TrainState, group: Integers, excess: Floats, budget: Floats, settings: Settings
) -> tuple[AdvantageBatch, Floats]:
    """And what critics should have said [n, 1+m]."""
    inputs, after = now.normaliser(batch.observations), now.normaliser(batch.after)
    advantages, targets = advantages_and_targets(
        now.critics, batch.paid, inputs, after, batch.terminated, batch.ended, settings.discount, settings.trace
    )
    members = [group == g for g in range(len(excess))]
    for lanes in members:
        advantages[:, lanes] -= advantages[:, lanes].mean(axis=(0, 1))
    flat, targets = (each.reshape(-1, each.shape[-1]) for each in (advantages, targets))
    reward = flat[:, 0] / (flat[:, 0].std() + 1e-8)
    weight = np.stack([np.tile(lanes, len(inputs)) for lanes in members])
    actions = batch.actions.reshape(-1, *batch.actions.shape[2:])
    worth = steps_worth(batch.cost, batch.sums, batch.lengths)
    lesson = AdvantageBatch(
        _single(inputs.reshape(-1, inputs.shape[-1])),
        jnp.asarray(actions) if now.actor.discrete else _single(actions),
        _single(reward),
        _single(flat[:, 1:]),
        _single(weight),
        excess / worth,
        budget / worth,
        flat[:, 1:].std(axis=0) + 1e-8,
    )
    return lesson, targets


def _single(array: Any) -> jax.Array:
    return jnp.asarray(array, jnp.float32)


def _progress(batch: Batch, excess: Floats, history: list[Progress]) -> Progress:
    steps = batch.reward.size + (history[-1].steps if history else 0)
    return Progress(steps, batch.sums.mean(axis=0), float(excess.max()), float(batch.lengths.mean()))


def _update_normaliser(normaliser: Normaliser, batch: Batch, settings: Settings) -> Normaliser:
    if normaliser.count >= settings.normaliser_steps:
        return normaliser
    return normaliser.update(batch.observations.reshape(-1, batch.observations.shape[-1]))


# ------------------------------------------------------------------------------------------------------ steps collected
# Episodes go on from one batch to the next.


@dataclass(frozen=True, eq=False)
class Batch:
    """T steps of n lanes.

    Attributes:
        observations: [T, n, o] before each step.
        after: [T, n, o] after it, of ended episodes the last one.
        actions: [T, n, k], or [T, n] where they are choices; before they were moved into a box.
        reward, cost: [T, n] and [T, n, m].
        terminated, ended: [T, n] whether the system ended there, and whether the episode did.
        sums: [E, 1+m] reward and costs, as the budget counts them, of the episodes that ended.
        lengths, lane: [E] their steps, and where they ran.
    """

    observations: Floats
    after: Floats
    actions: Actions
    reward: Floats
    cost: Floats
    terminated: Mask
    ended: Mask
    sums: Floats
    lengths: Integers
    lane: Integers

    @property
    def paid(self) -> Floats:
        """[T, n, 1+m] reward and costs."""
        return np.concatenate([self.reward[..., None], self.cost], axis=-1)


class Collector:
    """A world with episodes under way in every lane."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self.world, self.rng = world, rng
        self.steps = np.zeros(world.lanes, np.int64)
        self.observation = world.begin(np.ones(world.lanes, np.bool_), rng)

    def collect(self, policy: Policy, steps: int) -> Batch:
        """`steps` further steps in every lane: at least those of a whole episode, so that one ends in each."""
        rows, sums, lengths, lane = [], [], [], []
        for _ in range(steps):
            before = self.observation
            actions = policy.act(before, self.steps, self.rng)
            step = self.world.step(actions)
            self.steps += 1
            rows.append((before, step.observation, actions, step.reward, step.cost, step.terminated, step.ended))
            self.observation = step.observation
            if step.ended.any():
                sums.append(step.sums[step.ended])
                lengths.append(self.steps[step.ended])
                lane.append(np.flatnonzero(step.ended))
                self.steps[step.ended] = 0
                self.observation = self.world.begin(step.ended, self.rng)
        before, after, taken, reward, cost, terminated, ended = (np.stack(column) for column in zip(*rows, strict=True))
        total, lasted, ran = np.concatenate(sums), np.concatenate(lengths), np.concatenate(lane)
        return Batch(before, after, taken, reward, cost, terminated, ended, total, lasted, ran)
