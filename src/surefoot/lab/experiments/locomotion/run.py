"""`surefoot reproduce locomotion`: the paper's Figure 4, on fresh robots of five families."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.rollout_buffer import first_network
from surefoot.lab.experiments.frame import Bench, Experiment
from surefoot.lab.experiments.judging import STANDARD_ERRORS, JudgedTask, PolicyMeans, available, best
from surefoot.lab.experiments.locomotion.known_episodes import KnownEpisodes, known_episodes
from surefoot.lab.experiments.locomotion.page import page, tables
from surefoot.lab.experiments.locomotion.policy_sets import (
    FamilyPolicies,
    load_shipped,
    steps_before,
    train_baselines,
    train_from_scratch,
)
from surefoot.lab.experiments.locomotion.settings import FAMILIES, FIXED, KNOWN, NETWORKS, QUICK, LocomotionSettings
from surefoot.learning.learner import Learner
from surefoot.learning.spec import MethodArgs, MethodSpec
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.metrics import binomial_interval, ratio_interval
from surefoot.simulate.pool import EpisodePool, EpisodeStream
from surefoot.simulate.run import Spans
from surefoot.simulate.runner import ask_and_tell
from surefoot.streams import Stream


def run(settings: LocomotionSettings, bench: Bench) -> dict[str, Any]:
    """Load or train, adapt and judge."""
    sets = {name: family_policies(name, settings, bench) for name in settings.families}
    families = {name: adapt_family(name, trained, settings, bench) for name, trained in sets.items()}
    return {"families": families, "methods": totals(families)}


def family_policies(name: str, settings: LocomotionSettings, bench: Bench) -> FamilyPolicies:
    how: dict[str, Any] = {"seed": settings.seed, "share": settings.share}
    how |= {"jobs": bench.jobs, "progress": bench.progress}
    if settings.retrain:
        return train_from_scratch(name, bench.out, **how)
    shipped = load_shipped(name)
    if settings.retrain_baselines:
        return train_baselines(name, shipped.policies, shipped.origin, bench.out, **how)
    return shipped


def adapt_family(name: str, trained: FamilyPolicies, settings: LocomotionSettings, bench: Bench) -> dict[str, Any]:
    """One family: every method on fresh tasks."""
    began = time.perf_counter()
    methods, refused = available_methods(trained, settings)
    parameters = FAMILIES[name].tasks().sample(settings.tasks, Stream.LOCOMOTION_TASKS.rng(settings.seed))
    known = known_episodes(name, trained.policies.policies, parameters, settings, bench)
    calls = [(trained, name, methods, each, number, settings, known) for number, each in enumerate(parameters)]
    tasks = bench.map(f"adapting, {name}", adapt_to_task, calls)
    return {
        **summarise_family(name, trained, methods, tasks, settings),
        "refused": refused,
        "seconds": time.perf_counter() - began,
    }


def available_methods(trained: FamilyPolicies, settings: LocomotionSettings) -> tuple[list[str], dict[str, str]]:
    """The methods that can be had with a policy set, and why the others cannot."""

    def make(name: str) -> None:
        if name in NETWORKS and not settings.network_tasks:
            raise InvalidInput("network_tasks is 0")
        if name in FIXED and name not in trained.starts:
            raise InvalidInput("no such network was trained for this family (--retrain-baselines)")
        learner(trained.policies, method=KNOWN[name], episodes=settings.episodes, risk=settings.risk)

    return available(settings.methods, make)


# ---------------------------------------------------------- one task: what was deployed on it, and what that is worth

CHUNK = 40  # episodes simulated at once
LARGEST_BLOCK = 1024  # episodes told at once

Key: TypeAlias = tuple[str, int]  # of a policy: "" and its number in the set, or a method and a number of its own


@dataclass(frozen=True, eq=False)
class TaskRuns(JudgedTask):
    """What methods did on one task. Policies are those of the set first, then those that methods trained on the task.

    Attributes:
        deployed: by method the probabilities [s, P] of the policies; not all methods need to be there.
        expert: [2] reward and cost of the best mixture of the set's policies and of one trained on the task itself, if
            one was.
    """

    deployed: Mapping[str, Spans]
    expert: Floats | None = None

    @property
    def expert_gain(self) -> float | None:
        """By how much that mixture is better than the safe policy."""
        return None if self.expert is None else max(0.0, float(self.expert[0] - self.mean[0, 0]))


def adapt_to_task(
    trained: FamilyPolicies,
    family: str,
    methods: Sequence[str],
    parameter: Floats,
    number: int,
    settings: LocomotionSettings,
    known: Sequence[KnownEpisodes] = (),
) -> TaskRuns:
    """Task `number` with every method, all of which see the same episodes of the same policies; `known` are those of
    the set's."""
    task, policies = FAMILIES[family].tasks().task(parameter), trained.policies
    learned = [each.to_learn_from(task, number, settings) for each in known]
    source = SharedEpisodes(task, policies, settings, [settings.seed, Stream.LOCOMOTION_LEARNING, number], learned)
    mixtures = {
        name: run_method(policies, KNOWN[name], source, settings, number, _options(trained, name))
        for name in methods
        if name not in NETWORKS or number < settings.network_tasks
    }
    deployed = {name: _spans(found, list(source.policies), settings.episodes) for name, found in mixtures.items()}
    judge = PolicyMeans(
        task,
        list(source.policies.values()),
        [settings.seed, Stream.LOCOMOTION_EVALUATION, number],
        settings.judged_idle,
        {**{index: each.judged[number] for index, each in enumerate(known)}, **source.of_trained_policies()},
    )
    for name, spans in deployed.items():
        enough = settings.judged if KNOWN[name].certified else settings.judged_others
        judge.watch_until(np.flatnonzero(spans.rows.any(axis=0)), enough)
        judge.decide(spans.rows, 2 * enough)
    own, possible = len(policies.policies), np.zeros(len(judge.mean))
    possible[:own] = _best_of(judge.mean[:own], task)
    expert = None
    if number < settings.experts:
        expert = _with_expert(family, task, policies, judge.mean[:own], settings, number)
    return TaskRuns(parameter, judge.mean, judge.error, judge.count, possible, deployed, expert)


def _options(trained: FamilyPolicies, method: str) -> dict[str, Any]:
    """Of a method that trains networks: what it begins with, and how far it adapts to tasks of this family."""
    tuning, start = trained.origin.tuning.get(method), trained.starts.get(method)
    options = {} if tuning is None else dict(tuning["chosen"])
    return options if start is None else {**options, "start": start}


def _best_of(mean: Floats, task: Task) -> Floats:
    """[P] the mixture of policies of this reward and cost [P, 2] that earns most within the budget."""
    return best(float(task.units.budget[0]) - mean[None, :, 1], mean[:, 0])


def _with_expert(
    family: str, task: Task, policies: PolicyValueSet, mean: Floats, settings: LocomotionSettings, number: int
) -> Floats:
    """[2] reward and cost of the best mixture with a policy trained on the task, which begins with the best of the
    set's, whose values are `mean` [P, 2]."""
    # Imported when it is needed: training takes JAX, adapting does not.
    from surefoot.lab.experiments.locomotion.training import task_expert

    seed = [settings.seed, Stream.LOCOMOTION_EXPERT, number]
    start = first_network(policies, policies.policies[int(_best_of(mean, task).argmax())])
    found = task_expert(FAMILIES[family], task, start, np.random.default_rng(seed))
    both = np.concatenate([mean, PolicyMeans(task, [found], seed, settings.judged).mean])
    value: Floats = _best_of(both, task) @ both
    return value


class SharedEpisodes:
    """Episodes of one task that methods learn from, the same for all that run the same policy.

    Of each policy `settings.watched` are simulated; later ones are drawn from these.

    Args:
        known: those of the policies of the set, where they have been simulated already.

    Attributes:
        policies: of the set, and those of a method's own that were deployed so far.
    """

    def __init__(
        self,
        task: Task,
        policies: PolicyValueSet,
        settings: LocomotionSettings,
        seed: list[int],
        known: Sequence[Outcomes] = (),
    ) -> None:
        self.task, self.settings, self.seed, self.known = task, settings, seed, known
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

    def of_trained_policies(self) -> dict[int, Outcomes]:
        """What was seen of policies that methods trained on the task, by their place in `policies`: they are judged by
        it, since none of it was known when they were made."""
        return {
            place: self._streams[key].episodes(0, self.settings.watched)
            for place, key in enumerate(self.policies)
            if key[0] and key in self._streams
        }

    def key(self, learner: Learner, index: int) -> Key:
        """Of one of its policies."""
        return "" if self.policies.get(("", index)) is learner.policy(index) else learner.name, index

    def _begin(self, key: Key, policy: Policy) -> EpisodeStream:
        owner, index = key
        rng = np.random.default_rng([*self.seed, zlib.crc32(owner.encode()), index])
        size, further = self.settings.watched, max(self.settings.episodes - self.settings.watched, 0)
        order = np.append(np.arange(size), rng.integers(size, size=further))
        chunks = [CHUNK] * (size // CHUNK) + [size % CHUNK]
        first = self.known[index] if owner == "" and self.known else None
        playing = self.task.episodes(policy, self.task.units.episode_length)
        return EpisodeStream(playing, rng, chunks, order=order, first=first)


Mixtures: TypeAlias = list[tuple[int, dict[Key, float]]]  # each with the number of episodes before it


def run_method(
    policies: PolicyValueSet,
    spec: MethodSpec,
    source: SharedEpisodes,
    settings: LocomotionSettings,
    number: int,
    options: Mapping[str, Any],
) -> Mixtures:
    """What a method deploys, the last of which it keeps."""
    seed = int(np.random.SeedSequence([*source.seed, number]).generate_state(1)[0])
    own = learner(policies, method=spec, episodes=settings.episodes, risk=settings.risk, seed=seed, **options)
    episodes = learning_episodes(policies, spec, settings)
    spans = ask_and_tell(own, source.pool(own), episodes, block=LARGEST_BLOCK)
    mixtures = []
    for begin, deployed in [*spans, (episodes, own.deployed)]:
        keys = [source.key(own, index) for index in deployed.indices.tolist()]
        source.policies.update({key: own.policy(key[1]) for key in keys})
        mixtures.append((begin, dict(zip(keys, deployed.weights.tolist(), strict=True))))
    return mixtures


def learning_episodes(policies: PolicyValueSet, spec: MethodSpec, settings: LocomotionSettings) -> int:
    """From how many episodes a method learns. None, if it says itself that it stays on the safe policy."""
    terms = MethodArgs(spec.name, settings.episodes, settings.risk, policies.units.episode_length)
    if callable(spec.plan) and spec.plan(policies, terms).episodes >= settings.episodes:
        return 0
    if spec.name in NETWORKS:
        return min(settings.network_episodes, settings.episodes)
    sees_sums_only = spec.observes == "sums"
    return settings.episodes if sees_sums_only and not spec.certified else min(settings.watched, settings.episodes)


def _spans(mixtures: Mixtures, keys: Sequence[Key], episodes: int) -> Spans:
    rows = [[mixture.get(key, 0.0) for key in keys] for _, mixture in mixtures]
    return Spans.of([begin for begin, _ in mixtures], rows, episodes)


# ------------------------------------------------------------------------------------------- one family of results.json

REACHED = 0.9  # of what is gained at the end
LEAST = 0.1  # of what is possible: who gains less has not begun to adapt, and is not asked when
LOW, HIGH = 0.1, 0.9  # quantiles of the bands
POINTS = 100  # of a curve, evenly spaced on a logarithmic axis
COUNTS = ("tasks", "moved", "unsafe_tasks", "undecided_tasks")


def summarise_family(
    name: str, trained: FamilyPolicies, methods: Sequence[str], tasks: Sequence[TaskRuns], settings: LocomotionSettings
) -> dict[str, Any]:
    policies, origin, cells = trained.policies, trained.origin, trained.policies.cells
    budget, shared = float(policies.units.budget[0]), FAMILIES[name].tasks().shared_costs
    found = {}
    for method in methods:
        made = learner(policies, method=KNOWN[method], episodes=settings.episodes, risk=settings.risk)
        learned = learning_episodes(policies, KNOWN[method], settings)
        own = summary(tasks, method, budget, certified=made.certified, learned=learned)
        tuned = origin.tuning.get(method, {"steps": 0})["steps"]
        training_steps = origin.steps + tuned + (origin.meta_steps if method in trained.starts else 0)
        steps = steps_before(KNOWN[method], training_steps, origin.simulated)
        found[method] = {**own, "training_steps": training_steps, "simulator_steps": steps}
    return {
        "title": FAMILIES[name].title,
        "budget": budget,
        "parameters": [task.parameter.tolist() for task in tasks],
        "reward_safe": [float(task.mean[0, 0]) for task in tasks],
        "possible_gain": [task.possible_gain for task in tasks],
        "expert_gain": [task.expert_gain for task in tasks],
        "judged": judged_episodes(tasks, len(policies.policies), shared),
        "shared_episodes": shared,
        "policies": len(policies.policies),
        "cells": 0 if cells is None else len(cells),
        "uncovered": policies.safe_risk,
        "origin": asdict(origin),
        "unmoved": trained.unchanged_starts,
        "noise": action_noise(policies),
        "methods": found,
    }


def action_noise(policies: PolicyValueSet) -> list[float] | None:
    """The least and the largest standard deviation of an action of the safe policy, where it has any."""
    safe = policies.safe_policy
    return np.exp([safe.log_std.min(), safe.log_std.max()]).tolist() if isinstance(safe, MLPPolicy) else None


def judged_episodes(tasks: Sequence[TaskRuns], own: int, shared: bool) -> int:
    """All that were simulated; those of the set's own policies once for all tasks where these share them."""
    others = sum(task.count[own:].sum() for task in tasks)
    return int(others + sum(task.count[:own].sum() for task in (tasks[:1] if shared else tasks)))


def summary(tasks: Sequence[TaskRuns], method: str, budget: float, *, certified: bool, learned: int) -> dict[str, Any]:
    """One method on those tasks of a family on which it was run, as plain data; it learned from so many episodes.

    A gain counts no more than is possible within the budget: what goes beyond is bought with cost.
    """
    pairs = [(task, task.deployed[method]) for task in tasks if method in task.deployed]
    episodes = pairs[0][1].episodes
    each = [task.possible_gain for task, _ in pairs]
    possible = sum(each)
    gains = [task.gains(spans.rows) for task, spans in pairs]  # [s] of each task
    final = [float(task.gains(spans.rows[-1:])[0]) for task, spans in pairs]
    mean = [float(gained @ spans.lengths) / episodes for gained, (_, spans) in zip(gains, pairs, strict=True)]
    until = [
        episodes_until(spans.begins, gained)
        for gained, (task, spans) in zip(gains, pairs, strict=True)
        if gained[-1] >= LEAST * task.possible_gain > 0
    ]
    worst_cost, worst_error, worst_episode = max((_worst(*pair) for pair in pairs), key=lambda found: found[0])
    verdicts = [verdict(*task.excess(spans.rows, budget)) for task, spans in pairs]
    unsafe = verdicts.count("unsafe")
    expert = sum(task.expert_gain or 0.0 for task, _ in pairs)
    beside = sum(gain for (task, _), gain in zip(pairs, final, strict=True) if task.expert is not None)
    return {
        "certified": certified,
        "tasks": len(pairs),
        "moved": sum(deviates_from_safe(spans) for _, spans in pairs),
        "unsafe_tasks": unsafe,
        "undecided_tasks": verdicts.count("undecided"),
        "unsafe_interval": list(binomial_interval(unsafe, len(pairs))),
        "gains": final,
        "share_final": sum(final) / possible if possible > 0 else None,
        "share_interval": share_interval(final, each),
        "share_of_expert": beside / expert if expert > 0 else None,
        "share": sum(mean) / possible if possible > 0 else None,
        "reward_final": float(np.mean([spans.rows[-1] @ task.mean[:, 0] for task, spans in pairs])),
        "worst_cost": worst_cost,
        "worst_error": worst_error,
        "worst_episode": worst_episode,
        "until": until,
        "median_until": float(np.median(until)) if until else None,
        "learned": learned,
        "curve": curve(pairs, episodes),
    }


def share_interval(gained: Sequence[float], possible: Sequence[float]) -> list[float] | None:
    """95 % interval, over tasks, of the part that is gained of what is possible, which is at most all of it."""
    if len(possible) < 2 or not sum(possible) > 0:
        return None
    low, high = ratio_interval(gained, possible)
    return [low, min(high, 1.0)]


def episodes_until(begins: Integers, gained: Floats) -> int:
    """Before how many episodes most of the last gain [s] was there for the first time."""
    return int(begins[np.argmax(gained >= REACHED * gained[-1])])


def _worst(task: TaskRuns, spans: Spans) -> tuple[float, float, int]:
    """The largest cost of anything deployed, its standard error, and the first episode of it."""
    cost, error = task.excess(spans.rows, 0.0)
    at = int(np.argmax(cost))
    return float(cost[at]), float(error[at]), int(spans.begins[at]) + 1


def verdict(above: Floats, error: Floats) -> str:
    """Of everything deployed on a task: unsafe if any mixture certainly is, undecided if that of any is open."""
    if (above > STANDARD_ERRORS * error).any():
        return "unsafe"
    return "undecided" if (above > -STANDARD_ERRORS * error).any() else "safe"


def deviates_from_safe(spans: Spans) -> bool:
    """Whether anything but the safe policy was ever deployed."""
    return bool((spans.rows[:, 0] < 1).any())


def curve(pairs: Sequence[tuple[TaskRuns, Spans]], episodes: int) -> dict[str, list[float]]:
    """Reward, cost and gain in reward over the safe policy on the same task, of what is deployed in the episodes of a
    logarithmic axis: mean over tasks, and quantiles."""
    shown = np.unique(np.geomspace(1, episodes, POINTS).round().astype(np.int64))
    values = np.stack([spans.at(shown - 1) @ task.mean for task, spans in pairs])  # [n, points, 2]
    safe = np.array([task.mean[0, 0] for task, _ in pairs])
    values = np.concatenate([values, values[..., :1] - safe[:, None, None]], axis=-1)
    found = {"episode": shown.tolist()}
    for column, what in enumerate(("reward", "cost", "gain")):
        found[f"{what}_mean"] = values[..., column].mean(axis=0).tolist()
        found[f"{what}_low"] = np.quantile(values[..., column], LOW, axis=0).tolist()
        found[f"{what}_high"] = np.quantile(values[..., column], HIGH, axis=0).tolist()
    return found


def totals(families: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every method over all families on which it was run."""
    found: dict[str, dict[str, Any]] = {}
    for family in families.values():
        for name, own in family["methods"].items():
            so_far = found.setdefault(name, {"certified": True, **dict.fromkeys(COUNTS, 0)})
            so_far["certified"] = so_far["certified"] and own["certified"]
            for key in COUNTS:
                so_far[key] += own[key]
    for own in found.values():
        own["unsafe_interval"] = list(binomial_interval(own["unsafe_tasks"], own["tasks"]))
    return found


EXPERIMENT = Experiment(
    "locomotion",
    LocomotionSettings,
    run,
    page,
    tables,
    "figure4.png, figure4.svg and results.json beside it",
    quick=QUICK,
    policy_sets=lambda settings: [f"{name}.policyset" for name in settings.families if settings.retrain],
)
