"""One task: what every method deployed on it, and what that is worth."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task
from surefoot.lab.baselines.rollout_buffer import first_network
from surefoot.lab.experiments.judging import Judge, JudgedTask, best
from surefoot.lab.experiments.locomotion.families import FAMILIES
from surefoot.lab.experiments.locomotion.settings import KNOWN, NETWORKS, LocomotionSettings
from surefoot.lab.experiments.locomotion.shipped import School
from surefoot.learning.learner import Learner
from surefoot.learning.spec import MethodArgs, MethodSpec
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.simulate.pool import EpisodePool, EpisodeStream
from surefoot.simulate.run import Spans
from surefoot.simulate.runner import ask_and_tell
from surefoot.streams import Stream

CHUNK = 40  # episodes simulated at once
LARGEST_BLOCK = 1024  # episodes told at once

Key: TypeAlias = tuple[str, int]  # of a policy: "" and its number in the set, or a method and a number of its own


@dataclass(frozen=True, eq=False)
class Faced(JudgedTask):
    """Policies are those of the set first, then those that methods trained on the task.

    Attributes:
        courses: by method the probabilities [s, P] of the policies; not all methods need to be there.
        expert: [2] reward and cost of the best mixture of the set's policies and of one trained on the task itself, if
            one was.
    """

    courses: Mapping[str, Spans]
    expert: Floats | None = None


def face(
    school: School, family: str, methods: Sequence[str], parameter: Floats, number: int, settings: LocomotionSettings
) -> Faced:
    """Task `number` with every method, all of which see the same episodes of the same policies."""
    task, policies = FAMILIES[family].tasks().task(parameter), school.policies
    streams = Streams(task, policies, settings, [settings.seed, Stream.LOCOMOTION_LEARNING, number])
    followed = {
        name: _mixtures(policies, KNOWN[name], streams, settings, number, _options(school, family, name))
        for name in methods
        if name not in NETWORKS or number < settings.network_tasks
    }
    courses = {name: _course(found, list(streams.policies), settings.episodes) for name, found in followed.items()}
    judge = Judge(
        task,
        list(streams.policies.values()),
        [settings.seed, Stream.LOCOMOTION_EVALUATION, number],
        settings.judged_idle,
    )
    for name, course in courses.items():
        enough = settings.judged if KNOWN[name].certified else settings.judged_others
        judge.watch_until(np.flatnonzero(course.rows.any(axis=0)), enough)
        judge.decide(course.rows, 2 * enough)
    own, possible = len(policies.policies), np.zeros(len(judge.mean))
    possible[:own] = _best_of(judge.mean[:own], task)
    expert = None
    if number < settings.experts:
        expert = _with_expert(family, task, policies, judge.mean[:own], settings, number)
    return Faced(parameter, judge.mean, judge.error, judge.count, possible, courses, expert)


def _options(school: School, family: str, method: str) -> dict[str, Any]:
    """Of a method that trains networks: what it begins with, and how it adapts to tasks of this family."""
    rules = FAMILIES[family].rules.get(method)
    options: dict[str, Any] = {} if rules is None else asdict(rules)
    return {**options, "start": school.starts[method]} if method in school.starts else options


def _best_of(mean: Floats, task: Task) -> Floats:
    """[P] the mixture of policies of this reward and cost [P, 2] that earns most within the budget."""
    return best(float(task.units.budget[0]) - mean[None, :, 1], mean[:, 0])


def _with_expert(
    family: str, task: Task, policies: PolicyValueSet, mean: Floats, settings: LocomotionSettings, number: int
) -> Floats:
    """[2] reward and cost of the best mixture with a policy trained on the task, which begins with the best of the
    set's, whose values are `mean` [P, 2]."""
    # Imported when it is needed: training takes JAX, adapting does not.
    from surefoot.lab.experiments.locomotion.own_expert import own_expert

    seed = [settings.seed, Stream.LOCOMOTION_EXPERT, number]
    start = first_network(policies, policies.policies[int(_best_of(mean, task).argmax())])
    found = own_expert(FAMILIES[family], task, start, np.random.default_rng(seed))
    judged = Judge(task, [found], seed, settings.judged).mean
    both = np.concatenate([mean, judged])
    value: Floats = _best_of(both, task) @ both
    return value


class Streams:
    """Episodes of one task that methods learn from, the same for all that run the same policy.

    Of each policy `settings.watched` are simulated; later ones are drawn from these.

    Attributes:
        policies: of the set, and those of a method's own that were deployed so far.
    """

    def __init__(self, task: Task, policies: PolicyValueSet, settings: LocomotionSettings, seed: list[int]) -> None:
        self.task, self.settings, self.seed = task, settings, seed
        self.policies: dict[Key, Policy] = {("", index): policy for index, policy in enumerate(policies.policies)}
        self._streams: dict[Key, EpisodeStream] = {}

    def pool(self, learner: Learner) -> EpisodePool:
        """What a learner is told. Steps of thousands of episodes would be copied for nobody if it reads only sums."""

        def stream(index: int) -> EpisodeStream:
            key = self.key(learner, index)
            if key not in self._streams:
                self._streams[key] = self._begin(key, learner.policy(index))
            return self._streams[key]

        return EpisodePool(stream, sums_only=learner.method.observes == "sums")

    def key(self, learner: Learner, index: int) -> Key:
        """Of one of its policies."""
        return "" if self.policies.get(("", index)) is learner.policy(index) else learner.name, index

    def _begin(self, key: Key, policy: Policy) -> EpisodeStream:
        owner, index = key
        rng = np.random.default_rng([*self.seed, zlib.crc32(owner.encode()), index])
        size, further = self.settings.watched, max(self.settings.episodes - self.settings.watched, 0)
        order = np.append(np.arange(size), rng.integers(size, size=further))
        chunks = [CHUNK] * (size // CHUNK) + [size % CHUNK]
        return EpisodeStream(self.task.episodes(policy, self.task.units.episode_length), rng, chunks, order=order)


# ----------------------------------------------------------------------------------------------- one method on one task

Mixtures: TypeAlias = list[tuple[int, dict[Key, float]]]  # each with the number of episodes before it


def _mixtures(
    policies: PolicyValueSet,
    spec: MethodSpec,
    streams: Streams,
    settings: LocomotionSettings,
    number: int,
    options: Mapping[str, Any],
) -> Mixtures:
    """What a method deploys, the last of which it keeps."""
    seed = int(np.random.SeedSequence([*streams.seed, number]).generate_state(1)[0])
    own = learner(policies, method=spec, episodes=settings.episodes, risk=settings.risk, seed=seed, **options)
    episodes = lessons(policies, spec, settings)
    spans = ask_and_tell(own, streams.pool(own), episodes, block=LARGEST_BLOCK)
    mixtures = []
    for begin, deployed in [*spans, (episodes, own.deployed)]:
        keys = [streams.key(own, index) for index in deployed.indices.tolist()]
        streams.policies.update({key: own.policy(key[1]) for key in keys})
        mixtures.append((begin, dict(zip(keys, deployed.weights.tolist(), strict=True))))
    return mixtures


def lessons(policies: PolicyValueSet, spec: MethodSpec, settings: LocomotionSettings) -> int:
    """From how many episodes a method learns. None, if it says itself that it stays on the safe policy."""
    terms = MethodArgs(spec.name, settings.episodes, settings.risk, policies.units.episode_length)
    if callable(spec.plan) and spec.plan(policies, terms).episodes >= settings.episodes:
        return 0
    if spec.name in NETWORKS:
        return min(settings.network_episodes, settings.episodes)
    sees_sums_only = spec.observes == "sums"
    return settings.episodes if sees_sums_only and not spec.certified else min(settings.watched, settings.episodes)


def _course(mixtures: Mixtures, keys: Sequence[Key], episodes: int) -> Spans:
    rows = [[mixture.get(key, 0.0) for key in keys] for _, mixture in mixtures]
    return Spans.of([begin for begin, _ in mixtures], rows, episodes)
