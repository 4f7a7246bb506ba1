"""`surefoot reproduce rivals`: what an engineer would use instead, on the same tasks and episodes, and judged alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.arrays import Floats, Mask
from surefoot.calibration import calibrate_side_by_side
from surefoot.calibration_runs import ENOUGH
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import ReadableTask, Task
from surefoot.errors import InvalidInput
from surefoot.lab.experiments.frame import Bench, Experiment
from surefoot.lab.experiments.judging import STANDARD_ERRORS, PolicyMeans, best
from surefoot.lab.experiments.rivals.page import page, tables
from surefoot.lab.experiments.rivals.settings import QUICK, RivalSettings
from surefoot.lab.experiments.rivals.systems import SYSTEMS, System, policies_for
from surefoot.learning.calibrated import Calibration, Setting, options_at
from surefoot.learning.learner import Learner
from surefoot.learning.method import Mixture
from surefoot.methods import METHODS, learner
from surefoot.policyset.certifiable import advice
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.metrics import binomial_interval
from surefoot.simulate.pool import SharedStreams
from surefoot.simulate.runner import ROUNDING, simulate
from surefoot.streams import Stream
from surefoot.tasks.task_distribution import TaskDistribution

# -------------------------------------------------------------------------------------------------------------- the run


def run(settings: RivalSettings, bench: Bench) -> dict[str, Any]:
    return {"systems": {name: compare(name, settings, bench) for name in settings.systems}}


def compare(name: str, settings: RivalSettings, bench: Bench) -> dict[str, Any]:
    """Train, calibrate, run everybody on fresh tasks, and judge."""
    began = time.perf_counter()
    tasks = SYSTEMS[name].tasks_in(settings.policies or str(bench.out))
    policies = policies_for(name, tasks, settings.policies, settings.seed, settings.small, bench)
    protocol = Protocol(name, tasks, policies, settings)
    contenders = [Contender(method, setting) for method in settings.methods for setting in protocol.settings(method)]
    calibrations = protocol.calibrate(bench)
    parameters = tasks.sample(settings.tasks, _rng(settings.seed, Stream.RIVALS_TASKS))
    calls = [(protocol, contenders, parameter, number) for number, parameter in enumerate(parameters)]
    runs = bench.map(f"{name}: adapting", run_on_task, calls)
    rows = [summarise([own[k] for own in runs], protocol) for k in range(len(contenders))]
    return {
        **protocol.plain(),
        "seconds": time.perf_counter() - began,
        "possible": [own[0].possible for own in runs],
        "methods": {
            method: _method_results(
                protocol.certified(method),
                [(one.setting, row) for one, row in zip(contenders, rows, strict=True) if one.method == method],
                calibrations.get(protocol.method(method)),
                settings.risk,
            )
            for method in settings.methods
        },
    }


@dataclass(frozen=True)
class Contender:
    """A method at a setting; None for its defaults."""

    method: str
    setting: Setting | None


@dataclass(frozen=True, eq=False)
class Protocol:
    """What all methods have in common on a system."""

    name: str
    tasks: TaskDistribution
    policies: PolicyValueSet
    asked: RivalSettings

    @property
    def system(self) -> System:
        return SYSTEMS[self.name]

    @property
    def episodes(self) -> int:
        return self.system.episodes[self.asked.small]

    def after(self, mark: int | float) -> int:
        """So many episodes, or such a share of them."""
        return min(mark if isinstance(mark, int) else max(1, round(mark * self.episodes)), self.episodes)

    def plain(self) -> dict[str, Any]:
        return {
            "title": self.system.title,
            "episodes": self.episodes,
            "early": self.after(self.system.early),
            "late": self.after(self.system.late),
            "policies": len(self.policies.policies),
            "digest": self.policies.digest(),
            "certified": advice(self.policies).method,
        }

    def method(self, name: str) -> str:
        """`certified` by the name of the method that it is."""
        return advice(self.policies).method if name == "certified" else name

    def certified(self, name: str) -> bool:
        return METHODS[self.method(name)].certified

    def path(self, name: str) -> tuple[Setting, ...]:
        """Some settings of a method, evenly from the most cautious to the boldest."""
        spec = METHODS[self.method(name)]
        whole = () if spec.path is None else tuple(spec.path(self.policies, self.asked.risk))
        places = np.unique(np.linspace(len(whole) - 1, 0, min(self.asked.grid, len(whole))).round().astype(int))
        return tuple(whole[place] for place in places)

    def settings(self, name: str) -> tuple[Setting | None, ...]:
        return (None, *self.path(name))

    def learner(self, contender: Contender, seed: int = 0) -> Learner:
        options = {} if contender.setting is None else options_at(contender.setting)
        name, risk = self.method(contender.method), self.asked.risk
        return learner(self.policies, method=name, episodes=self.episodes, risk=risk, seed=seed, **options)

    def calibrate(self, bench: Bench) -> dict[str, Calibration]:
        """Of all methods that have settings, on tasks of which none is among those of the comparison."""
        paths = {self.method(name): path for name in self.asked.methods if (path := self.path(name))}
        if not paths or not self.asked.runs:
            return {}
        return calibrate_side_by_side(
            self.policies,
            self.tasks,
            paths,
            attempt=0,
            episodes=self.episodes,
            risk=self.asked.risk,
            runs=self.asked.runs,
            judged_on=self.system.judged[1],
            seed=self.asked.seed,
            jobs=bench.jobs,
            progress=bench.progress,
        )


def _rng(seed: int, *stream: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=stream))


# ---------------------------------------------------------------------------------------- one task, with all contenders


@dataclass(frozen=True)
class TaskRun:
    """Of a contender on a task.

    Attributes:
        unsafe: whether it ever deployed what breaks the budget.
        undecided: whether that is not known of something, and nothing is known to.
        unsafe_episodes: of those deployed mixtures.
        early, late: mean gain of the first episodes, beyond the safe policy and at most what is possible.
        reached: the first episode whose mixture gains `ENOUGH` of what is possible; infinite if none does.
        possible: gain of the best mixture of the policy set that keeps the budget on this very task.
    """

    unsafe: bool
    undecided: bool
    unsafe_episodes: int
    early: float
    late: float
    reached: float
    possible: float


def run_on_task(protocol: Protocol, contenders: Sequence[Contender], parameter: Floats, number: int) -> list[TaskRun]:
    """All of them see the same episodes of the same policies."""
    task = protocol.tasks.task(parameter)
    seed = int(_rng(protocol.asked.seed, Stream.RIVALS_RUNS, number).integers(2**32))
    learners = [protocol.learner(one, seed) for one in contenders]
    shared = shared_streams(task, protocol, seed)
    deployed = [simulate(each, task, episodes=protocol.episodes, seed=seed, shared=shared) for each in learners]
    judge = (_judge_exactly if isinstance(task, ReadableTask) else _judge_by_episodes)(task, protocol, number)
    return judge(learners, deployed)


Deployed = list[tuple[int, Mixture]]  # each with the number of episodes before it


def shared_streams(task: Task, protocol: Protocol, seed: int) -> SharedStreams | None:
    """Where simulating takes longest, episodes are kept for all learners; tables are simulated again."""
    if isinstance(task, ReadableTask):
        return None
    steps, episodes = task.units.episode_length, protocol.episodes
    own = protocol.policies.policies
    return SharedStreams(task, own, steps=steps, episodes=episodes, seed=seed, transitions=True)


def _judge_exactly(task: ReadableTask, protocol: Protocol, number: int) -> Callable[..., list[TaskRun]]:
    """By values, also of policies that a learner planned itself."""
    worth: dict[int, Floats] = {}

    def value(policy: Policy) -> Floats:
        """[2] reward and cost."""
        if id(policy) not in worth:
            found = task.values(policy)
            worth[id(policy)] = np.array([found.reward, found.cost[0]])
        return worth[id(policy)]

    def judge(learners: Sequence[Learner], deployed: Sequence[Deployed]) -> list[TaskRun]:
        own = np.stack([value(policy) for policy in protocol.policies.policies])
        rows = []
        for each, spans in zip(learners, deployed, strict=True):
            values = np.stack(
                [mixture.weights @ [value(each.policy(k)) for k in mixture.indices.tolist()] for _, mixture in spans]
            )
            rows.append(_task_run(spans, values, np.full(len(spans), ROUNDING / 2), own, task, protocol))
        return rows

    return judge


def _judge_by_episodes(task: Task, protocol: Protocol, number: int) -> Callable[..., list[TaskRun]]:
    """By fresh episodes of each policy, more of them where a mixture is close to the budget."""
    first, most = protocol.system.judged
    policies, seed = protocol.policies.policies, [protocol.asked.seed, Stream.RIVALS_EVALUATION, number]

    def judge(learners: Sequence[Learner], deployed: Sequence[Deployed]) -> list[TaskRun]:
        means = PolicyMeans(task, policies, seed, first)
        mixtures = [np.stack([_weights(mixture, len(policies)) for _, mixture in spans]) for spans in deployed]
        means.decide(np.unique(np.concatenate(mixtures), axis=0), most)
        return [
            _task_run(
                spans, rows @ means.mean, STANDARD_ERRORS * (rows @ means.error[:, 1]), means.mean, task, protocol
            )
            for spans, rows in zip(deployed, mixtures, strict=True)
        ]

    return judge


def _weights(mixture: Mixture, policies: int) -> Floats:
    if mixture.indices.max() >= policies:
        raise InvalidInput("methods must deploy policies of the set where tasks cannot be read, got one that plans")
    return mixture.probabilities(policies)


def _task_run(spans: Deployed, values: Floats, doubt: Floats, own: Floats, task: Task, protocol: Protocol) -> TaskRun:
    """Args:
    values: [s, 2] reward and cost of what was deployed; the cost may be off by `doubt` [s].
    own: [P, 2] of the policies of the set.
    """
    budget = float(task.units.budget[0])
    weights = best(np.maximum(budget - own[None, :, 1], np.where(np.arange(len(own)) == 0, 0.0, -np.inf)), own[:, 0])
    possible = max(0.0, float(weights @ own[:, 0] - own[0, 0]))
    length = np.diff([begin for begin, _ in spans], append=protocol.episodes)
    gain = np.repeat(np.minimum(values[:, 0] - own[0, 0], possible), length)
    enough = gain >= ENOUGH * possible
    unsafe: Mask = values[:, 1] - budget > doubt
    undecided = (values[:, 1] - budget > -doubt) & ~unsafe & (doubt > ROUNDING)
    return TaskRun(
        bool(unsafe.any()),
        bool(undecided.any() and not unsafe.any()),
        int(length[unsafe].sum()),
        float(gain[: protocol.after(protocol.system.early)].mean()),
        float(gain[: protocol.after(protocol.system.late)].mean()),
        float(enough.argmax()) if enough.any() else np.inf,
        possible,
    )


# ------------------------------------------------------------------------------------------ what results.json has of it


def summarise(tasks: Sequence[TaskRun], protocol: Protocol) -> dict[str, Any]:
    """Of a contender over all tasks; gains are shares of what is possible on all of them together."""
    unsafe = sum(task.unsafe for task in tasks)
    possible = np.array([task.possible for task in tasks])
    early, late = (np.array([getattr(task, name) for task in tasks]) for name in ("early", "late"))
    share = float(late.sum() / max(possible.sum(), 1e-12))
    wait = float(np.median([task.reached for task in tasks if task.possible > 0] or np.inf))
    return {
        "tasks": len(tasks),
        "unsafe": unsafe,
        "undecided": sum(task.undecided for task in tasks),
        "interval": list(binomial_interval(unsafe, len(tasks))),
        "unsafe_episodes": sum(task.unsafe_episodes for task in tasks) / (len(tasks) * protocol.episodes),
        "early": float(early.sum() / max(possible.sum(), 1e-12)),
        "late": share,
        "wait": wait if np.isfinite(wait) else None,
        "late_error": float(np.sqrt(((late - share * possible) ** 2).sum()) / max(possible.sum(), 1e-12)),
    }


def _method_results(
    certified: bool,
    rows: Sequence[tuple[Setting | None, Mapping[str, Any]]],
    found: Calibration | None,
    risk: float,
) -> dict[str, Any]:
    (_, default), *others = rows
    grid = [{"setting": setting, **row} for setting, row in others]
    passed = None if found is None or found.level is None else found.level
    return {
        "certified": certified,
        "default": dict(default),
        "grid": grid,
        "hindsight": best_in_hindsight([{"setting": None, **default}, *grid], risk) if grid else None,
        "calibrated": next((row for row in grid if passed is not None and row["setting"] == passed), None),
        "calibration": None if found is None else found.plain(),
    }


def best_in_hindsight(rows: Sequence[dict[str, Any]], risk: float) -> dict[str, Any] | None:
    """The row with the most gain of those that were unsafe on at most a share `risk` of the very tasks that tell it."""
    kept = [row for row in rows if row["unsafe"] <= risk * row["tasks"]]
    return max(kept, key=lambda row: row["late"], default=None)


EXPERIMENT = Experiment(
    "rivals",
    RivalSettings,
    run,
    page,
    tables,
    "NAME.png for every system, results.json and the policy sets that were trained beside it",
    quick=QUICK,
    policy_sets=lambda settings: [f"{name}.policyset" for name in settings.systems],
)
