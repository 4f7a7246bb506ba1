"""Meta-training that the meta-learners share: run the meta-policy on several tasks, adapt it to each, run what came
out, update the meta-policy.

The lanes of a world belong to the tasks, as many to each. What tells one learner from another is how it adapts and how
it updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.cmdp.world import World
from surefoot.control.critics import advantages_and_targets, fit_critics, new_critics
from surefoot.control.improvement import Batch, Collector, steps_worth
from surefoot.control.networks import Actor, Normaliser, actor_of, new_actor, numpy_policy
from surefoot.control.trust_region import Region
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.advantages import Samples, samples_of
from surefoot.lab.baselines.control_specs import BatchRules
from surefoot.lab.baselines.rollout_buffer import NetworkPolicy
from surefoot.progress import Progress, silent


@dataclass(frozen=True)
class MetaSettings:
    """Of the loop; how policies are adapted has rules of its own.

    Attributes:
        iterations: updates of the meta-policy.
        batch: steps on each task before and after every adaptation, at least an episode in each lane.
        local: adaptations, each from steps of its own, between one update and the next.
        hidden, log_std: of the network, and of a new policy's action noise.
        region: how far one update may go.
        normaliser_steps: after as many observations the normaliser stays as it is.
    """

    iterations: int = 300
    batch: int = 8_000
    local: int = 1
    hidden: tuple[int, ...] = (24, 12)
    log_std: float = 0.0
    region: Region = field(default_factory=lambda: Region(divergence=1e-4, damping=1e-2))
    normaliser_steps: int = 400_000


class Experience(NamedTuple):
    """On G tasks [G, ...]: samples from before each local adaptation, and from after the last one."""

    before: tuple[Samples, ...]
    after: Samples


class MetaProgress(NamedTuple):
    """Mean sums [1+m] of the episodes on each task [G, 1+m], of the meta-policy and of the adapted ones."""

    before: Floats
    after: Floats


@dataclass(frozen=True, eq=False)
class MetaTrained:
    """Attributes:
    accepted: updates of the meta-policy whose line search accepted a step, at least one; by the others it stayed as it
        was.
    """

    policy: NetworkPolicy
    history: tuple[MetaProgress, ...]
    accepted: int


class MetaLearner(NamedTuple):
    """Attributes:
    adapt: (policy, samples, rules) -> the policy adapted to one task.
    update: (meta-policy, experience, memory, rules, settings) -> (the next meta-policy, or None if no step was
        accepted; memory), memory being None at first.
    """

    adapt: Callable[..., Actor]
    update: Callable[[Actor, Experience, Any, Any, MetaSettings], tuple[Actor | None, Any]]


def meta_train(
    world: World,
    groups: Sequence[int],
    learner: MetaLearner,
    *,
    rules: BatchRules,
    settings: MetaSettings,
    rng: np.random.Generator,
    start: NetworkPolicy | None = None,
    progress: Progress = silent,
) -> MetaTrained:
    """A meta-policy for the tasks that the lanes are of, `groups` [lanes] = 0, 1, ...; from nothing, or from `start`,
    whose normaliser it then keeps."""
    lanes = _lanes(world, groups)
    meta = actor_of(start) if start is not None else new_actor(world.shapes, settings.hidden, rng, settings.log_std)
    seen = _TaskRunner(world, lanes, rules, settings, rng)
    if start is not None:
        seen.normaliser = Normaliser.from_policy(start.shift, start.scale, settings.normaliser_steps)
    adapt_all = jax.jit(jax.vmap(partial(learner.adapt, rules=rules)))
    history, memory, accepted = [], None, 0
    for iteration in range(settings.iterations):
        progress("meta-training", iteration, settings.iterations)
        actors = jax.tree.map(lambda each: jnp.repeat(each[None], len(lanes), axis=0), meta)
        before, worth = [], []
        for stage in range(settings.local):
            samples, sums = seen.run(actors, stage)
            actors = adapt_all(actors, samples)
            before.append(samples)
            worth.append(sums)
        after, sums = seen.run(actors, settings.local)
        found, memory = learner.update(meta, Experience(tuple(before), after), memory, rules, settings)
        if found is not None:
            meta, accepted = found, accepted + 1
        history.append(MetaProgress(worth[0], sums))
        seen.normalise()
    if not accepted:
        raise _no_step_error(rules, settings)
    return MetaTrained(numpy_policy(meta, seen.normaliser), tuple(history), accepted)


def pool_samples(samples: Samples) -> Samples:
    """Those of all tasks [G, n, ...] as of one [G·n, ...]; the excess stays as it is."""
    flat: Samples = jax.tree.map(lambda each: each.reshape(-1, *each.shape[2:]), samples)
    return flat._replace(excess=samples.excess)


# ------------------------------------------------------------------------------------------------- parts, in call order


def _lanes(world: World, groups: Sequence[int]) -> Integers:
    """[G, L] the lanes of each task."""
    group = np.asarray(groups)
    counts = np.bincount(group) if group.shape == (world.lanes,) and group.dtype.kind in "iu" else np.zeros(1)
    if not counts.all() or (counts != counts[0]).any():
        raise InvalidInput(
            f"groups must name the task 0, 1, ... of each of {world.lanes} lanes, as many lanes for each, got {groups}"
        )
    return np.argsort(group, kind="stable").reshape(len(counts), -1)


def _no_step_error(rules: BatchRules, settings: MetaSettings) -> InvalidInput:
    """A meta-policy that is what it began with must not pass for a trained one."""
    region = settings.region
    return InvalidInput(
        "settings.region and rules must let the meta-policy move: its line search accepted no step in "
        f"{settings.iterations} updates, {region.tries} tries each and the shortest "
        f"{region.shrink ** (region.tries - 1):.2g} of the step; try smaller steps in the rules, more tries or a "
        f"larger divergence in the region, got {rules} and {region}"
    )


class _TaskRunner:
    """Runs policies on all tasks at once; keeps the normaliser, and critics for each stage of adaptation."""

    def __init__(
        self, world: World, lanes: Integers, rules: BatchRules, settings: MetaSettings, rng: np.random.Generator
    ) -> None:
        self.world, self.lanes, self.rules, self.settings, self.rng = world, lanes, rules, settings, rng
        self.normaliser = Normaliser.new(world.shapes.observation)
        signals = 1 + len(world.units.budget)
        self.critics = [new_critics(world.shapes.observation, signals, rng) for _ in range(settings.local + 1)]
        self.steps = max(settings.batch // lanes.shape[1], world.units.episode_length)
        self._observations: list[Floats] = []

    def run(self, actors: Actor, stage: int) -> tuple[Samples, Floats]:
        """Samples and mean sums [G, 1+m] of fresh episodes of one policy per task, actors [G, ...]."""
        each = [jax.tree.map(lambda part, g=g: part[g], actors) for g in range(len(self.lanes))]
        policy = _OnePerTask(tuple(numpy_policy(actor, self.normaliser) for actor in each), self.lanes)
        batch = Collector(self.world, self.rng).collect(policy, self.steps)
        self._observations.append(batch.observations.reshape(-1, batch.observations.shape[-1]))
        inputs, after = (self.normaliser(part) for part in (batch.observations, batch.after))
        ends = batch.terminated, batch.ended
        advantages, targets = advantages_and_targets(
            self.critics[stage], batch.paid, inputs, after, *ends, self.rules.discount, self.rules.trace
        )
        flat_inputs, flat_targets = (part.reshape(-1, part.shape[-1]) for part in (inputs, targets))
        self.critics[stage] = fit_critics(self.critics[stage], flat_inputs, flat_targets, self.rng)
        sums, excess = zip(*(self._of_task(batch, lanes) for lanes in self.lanes), strict=True)
        parts = []
        for actor, lanes, over in zip(each, self.lanes, excess, strict=True):
            shown, taken, weights = (_of_lanes(part, lanes) for part in (inputs, batch.actions, advantages))
            parts.append(samples_of(actor, shown, taken, weights, over, self.rules.standardised))
        return jax.tree.map(lambda *all_parts: jnp.stack(all_parts), *parts), np.stack(sums)

    def normalise(self) -> None:
        """Let the normaliser see what was observed, between two iterations only: samples of one are all alike."""
        if self.normaliser.count < self.settings.normaliser_steps:
            for observations in self._observations:
                self.normaliser = self.normaliser.update(observations)
        self._observations = []

    def _of_task(self, batch: Batch, lanes: Integers) -> tuple[Floats, Floats]:
        """Mean sums [1+m] and excess [m] of a task's episodes that ended."""
        here = np.isin(batch.lane, lanes)
        sums = batch.sums[here].mean(axis=0)
        worth = steps_worth(batch.cost[:, lanes], batch.sums[here], batch.lengths[here])
        return sums, (sums[1:] - self.world.units.budget) / worth


def _of_lanes(part: Any, lanes: Integers) -> Any:
    """Of [T, n, ...] what is of these lanes, in a row [T·L, ...]."""
    return part[:, lanes].reshape(-1, *part.shape[2:])


class _OnePerTask:
    """A policy for n lanes, those of each task [G, L] following one of their own."""

    kind: ClassVar[str] = "one per task"

    def __init__(self, policies: tuple[NetworkPolicy, ...], lanes: Integers) -> None:
        self.policies, self.lanes = policies, lanes

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
        drawn = [
            policy.act(observation[lanes], 0, rng) for policy, lanes in zip(self.policies, self.lanes, strict=True)
        ]
        return np.concatenate(drawn)[np.argsort(self.lanes.ravel())]

    def to_arrays(self) -> dict[str, Any]:
        return {}
