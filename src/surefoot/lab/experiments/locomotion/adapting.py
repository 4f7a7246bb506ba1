"""One task: what every method deployed on it, and what that is worth."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task
from surefoot.lab.baselines.told_episodes import first_network
from surefoot.lab.experiments.judging import Judge, best
from surefoot.lab.experiments.locomotion.families import FAMILIES
from surefoot.lab.experiments.locomotion.settings import KNOWN, NETWORKS, Settings
from surefoot.lab.experiments.locomotion.shipped import School
from surefoot.learning.learner import Learner
from surefoot.learning.method import Deployed
from surefoot.learning.spec import MethodSpec, Terms
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.streams import Stream

CHUNK = 40  # episodes simulated at once
SMALLEST_BLOCK, LARGEST_BLOCK = 16, 1024

Key: TypeAlias = tuple[str, int]  # of a policy: "" and its number in the set, or a method and a number of its own


@dataclass(frozen=True, eq=False)
class Course:
    """One method on one task.

    Attributes:
        begins: [s] before how many episodes each mixture was deployed, 0 first.
        weights: [s, P] its probabilities of the policies judged on the task.
        learned: episodes that the method learned from.
    """

    begins: Integers
    weights: Floats
    learned: int


@dataclass(frozen=True, eq=False)
class Faced:
    """Attributes:
    courses: by method; not all need to be there.
    mean, error: [P, 2] reward and cost of each policy on this task, and standard errors: those of the set first, then
        those that methods trained on it.
    count: [P] fresh episodes on which that was found out.
    possible: [P] the best mixture of the set's policies that keeps the budget, by `mean`.
    expert: [2] reward and cost of the best mixture of the set's policies and of one trained on the task itself, if one
        was.
    """

    parameter: Floats
    courses: Mapping[str, Course]
    mean: Floats
    error: Floats
    count: Integers
    possible: Floats
    expert: Floats | None = None


def face(
    school: School, family: str, methods: Sequence[str], parameter: Floats, number: int, settings: Settings
) -> Faced:
    """Task `number` with every method, all of which see the same episodes of the same policies."""
    task, policies = FAMILIES[family].tasks().task(parameter), school.policies
    pool = Pool(task, policies, settings, [settings.seed, Stream.LOCOMOTION_LEARNING, number])
    followed = {
        name: _followed(policies, KNOWN[name], pool, settings, number, _options(school, family, name))
        for name in methods
        if name not in NETWORKS or number < settings.network_tasks
    }
    courses = {name: _course(*found, list(pool.policies), settings.episodes) for name, found in followed.items()}
    judge = Judge(
        task, list(pool.policies.values()), [settings.seed, Stream.LOCOMOTION_EVALUATION, number], settings.judged_idle
    )
    for name, course in courses.items():
        enough = settings.judged if KNOWN[name].certified else settings.judged_others
        judge.watch_until(np.flatnonzero(course.weights.any(axis=0)), enough)
        judge.decide(course.weights, 2 * enough)
    own, possible = len(policies.policies), np.zeros(len(judge.mean))
    possible[:own] = _best_of(judge.mean[:own], task)
    expert = None
    if number < settings.experts:
        expert = _with_expert(family, task, policies, judge.mean[:own], settings, number)
    return Faced(parameter, courses, judge.mean, judge.error, judge.count, possible, expert)


def _options(school: School, family: str, method: str) -> dict[str, Any]:
    """Of a method that trains networks: what it begins with, and how it adapts to tasks of this family."""
    rules = FAMILIES[family].rules.get(method)
    options: dict[str, Any] = {} if rules is None else asdict(rules)
    return {**options, "start": school.starts[method]} if method in school.starts else options


def _best_of(mean: Floats, task: Task) -> Floats:
    """[P] the mixture of policies of this reward and cost [P, 2] that earns most within the budget."""
    return best(float(task.units.budget[0]) - mean[None, :, 1], mean[:, 0])


def _with_expert(
    family: str, task: Task, policies: PolicyValueSet, mean: Floats, settings: Settings, number: int
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


class Pool:
    """Episodes of one task that methods learn from, of each policy some, simulated when they are first asked for.

    Whoever runs a policy for the n-th time gets its n-th episode; after the last, episodes drawn from those there are.

    Attributes:
        policies: of the set, and those of a method's own that were ordered so far.
    """

    def __init__(self, task: Task, policies: PolicyValueSet, settings: Settings, seed: list[int]) -> None:
        self.task, self.settings, self.seed = task, settings, seed
        self.policies: dict[Key, Policy] = {("", index): policy for index, policy in enumerate(policies.policies)}
        self._random: dict[Key, np.random.Generator] = {}
        self._order: dict[Key, Integers] = {}
        self._episodes: dict[Key, Outcomes] = {}

    def key(self, learner: Learner, index: int) -> Key:
        """Of one of its policies."""
        policy = learner.policy(index)
        key = ("" if self.policies.get(("", index)) is policy else learner.name, index)
        self.policies[key] = policy
        return key

    def upcoming(self, keys: Sequence[Key], used: Mapping[Key, int], *, sums_only: bool) -> Outcomes:
        """The next episode of each [n], where so many of each were used before."""
        kinds = list(dict.fromkeys(keys))
        places = [np.flatnonzero([key == kind for key in keys]) for kind in kinds]
        parts = [self._taken(kind, used[kind], len(place)) for kind, place in zip(kinds, places, strict=True)]
        if sums_only:  # steps of thousands of episodes would be copied for nobody
            parts = [Outcomes(part.reward, part.cost) for part in parts]
        return Outcomes.joined(parts)[np.argsort(np.concatenate(places), kind="stable")]

    def _taken(self, key: Key, first: int, count: int) -> Outcomes:
        if key not in self._order:
            self._begin(key)
        wanted = self._order[key][first : first + count]
        while len(self._episodes[key]) <= wanted.max():
            self._episodes[key] = Outcomes.joined([self._episodes[key], self._simulated(key)])
        return self._episodes[key][wanted]

    def _begin(self, key: Key) -> None:
        owner, index = key
        size, further = self.settings.watched, max(self.settings.episodes - self.settings.watched, 0)
        self._random[key] = np.random.default_rng([*self.seed, zlib.crc32(owner.encode()), index])
        self._order[key] = np.append(np.arange(size), self._random[key].integers(size, size=further))
        self._episodes[key] = self._simulated(key)

    def _simulated(self, key: Key) -> Outcomes:
        done = len(self._episodes[key]) if key in self._episodes else 0
        simulated = self.task.episodes(self.policies[key], self.task.units.episode_length)
        return simulated.run(min(CHUNK, self.settings.watched - done), self._random[key], transitions=True)


# ----------------------------------------------------------------------------------------------- one method on one task

Span: TypeAlias = tuple[int, dict[Key, float]]  # before how many episodes a mixture was deployed, and the mixture


def _followed(
    policies: PolicyValueSet,
    spec: MethodSpec,
    pool: Pool,
    settings: Settings,
    number: int,
    options: Mapping[str, Any],
) -> tuple[list[Span], int]:
    """What a method deploys, the last of which it keeps, and how many episodes it learns from."""
    seed = int(np.random.SeedSequence([*pool.seed, number]).generate_state(1)[0])
    own = learner(policies, method=spec, episodes=settings.episodes, risk=settings.risk, seed=seed, **options)
    episodes, spans, used, done, last = lessons(policies, spec, settings), [], Counter[Key](), 0, 0
    while done < episodes:
        orders = own.ask_block(min(max(SMALLEST_BLOCK, 2 * last), LARGEST_BLOCK, episodes - done))
        spans.append((done, _mixture(own, orders.deployed, pool)))
        drawn = [pool.key(own, int(index)) for index in orders.drawn]
        last = own.tell_block(orders, pool.upcoming(drawn, used, sums_only=own.method.observes == "sums"))
        used.update(drawn[:last])
        done += last
    return [*spans, (done, _mixture(own, own.deployed, pool))], episodes


def lessons(policies: PolicyValueSet, spec: MethodSpec, settings: Settings) -> int:
    """From how many episodes a method learns. None, if it says itself that it stays on the safe policy."""
    terms = Terms(spec.name, settings.episodes, settings.risk, policies.units.episode_length)
    if callable(spec.plan) and spec.plan(policies, terms).episodes >= settings.episodes:
        return 0
    if spec.name in NETWORKS:
        return min(settings.network_episodes, settings.episodes)
    sees_sums_only = spec.observes == "sums"
    return settings.episodes if sees_sums_only and not spec.certified else min(settings.watched, settings.episodes)


def _mixture(own: Learner, deployed: Deployed, pool: Pool) -> dict[Key, float]:
    pairs = zip(deployed.indices, deployed.weights, strict=True)
    return {pool.key(own, int(index)): float(weight) for index, weight in pairs}


def _course(spans: Sequence[Span], learned: int, keys: Sequence[Key], episodes: int) -> Course:
    begins: list[int] = []
    weights: list[Floats] = []
    for begin, mixture in spans:
        row = np.array([mixture.get(key, 0.0) for key in keys])
        if begin < episodes and not (weights and np.array_equal(weights[-1], row)):
            begins.append(begin)
            weights.append(row)
    return Course(np.array(begins), np.stack(weights), learned)
