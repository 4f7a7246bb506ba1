"""`surefoot reproduce promise`: the risk a method was given, against how often it was unsafe on fresh tasks."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, product
from typing import Any

import numpy as np

from surefoot.arrays import Floats, check_unit_interval
from surefoot.errors import InvalidInput
from surefoot.lab.experiments import frame
from surefoot.lab.experiments.frame import Bench, option, setting
from surefoot.lab.experiments.gridworld import DELTA, EPSILON
from surefoot.lab.experiments.promise.counts import (
    FALSE_ALARM,
    Count,
    RunAudit,
    audit_run,
    overconfident,
    true_cell,
    uses_margin,
)
from surefoot.lab.experiments.promise.page import promise_page, tables
from surefoot.lab.experiments.promise.random_families import KINDS, RandomFamily, random_family
from surefoot.learning.method import Method
from surefoot.methods import METHODS, adapt, learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.streams import Stream
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.training.train import train

MODEL_FREE = "certified-model-free"
# Those that learn and can be wrong.
COUNTED = ("certified-likelihood", "certified-ball", "certified-returns", MODEL_FREE)
EVERY = "every"  # kind of random families
BATCH = 20  # gridworlds per unit of parallel work


@dataclass(frozen=True)
class PromiseSettings(frame.ExperimentSettings):
    """Fresh gridworlds per method and risk, each with its own noise drawn from the task distribution."""

    methods: tuple[str, ...] = setting(COUNTED, choices=METHODS)
    risks: tuple[float, ...] = setting((0.05, 0.5), check=check_unit_interval)
    tasks: int = setting(2000, least=1)
    episodes: int = setting(3000, least=1)
    seed: int = setting(0, least=0)
    twins: int = setting(60, least=1)  # tasks on which the overconfident twin of each method is run
    families: str = "gridworld"


@dataclass(frozen=True)
class RandomSettings(frame.ExperimentSettings):
    """Random families of every kind, with fresh tasks of each.

    `certified-model-free` tries nothing within the first few hundred episodes, so it gets `patience` times as many.
    """

    methods: tuple[str, ...] = option(COUNTED, "Comma-separated names.", choices=COUNTED)
    risks: tuple[float, ...] = option(
        (0.5, 0.1), "Comma-separated.", default_words="0.05,0.5, or 0.5,0.1 on random", check=check_unit_interval
    )
    number: int = option(200, "Random families.", least=1)
    tasks: int = option(
        20, "Fresh tasks per method and risk.", least=1, default_words="2000 gridworlds, or 20 per random family"
    )
    episodes: int = frame.episodes_option(240, "Episodes per task.", "3000, or 240 on random families")
    patience: int = setting(4, least=1)
    seed: int = frame.seed_option()
    twins: int = setting(5, least=1)  # tasks of each family on which the overconfident twins are run
    kind: str = option(EVERY, "Of random families: one of the kinds in the report, or every.", choices=(EVERY, *KINDS))
    families: str = option("random", "gridworld, or random: small families of every kind.", default_words="gridworld")


def settings_for(families: str = "gridworld", **given: Any) -> PromiseSettings | RandomSettings:
    """The settings of the count on these families."""
    if families == "random":
        return RandomSettings(**given)
    if families != "gridworld":
        raise InvalidInput(f"families must be gridworld or random, got {families!r}")
    for name in ("number", "kind"):
        if name in given:
            raise InvalidInput(f"{name} is that of random families, got {given[name]} for the gridworld")
    return PromiseSettings(**given)


def run(settings: PromiseSettings | RandomSettings, bench: Bench) -> dict[str, Any]:
    """Counts on the gridworld, or on random families."""
    if isinstance(settings, RandomSettings):
        calls = [(number, settings) for number in range(settings.number)]
        return summarise_counts(list(chain.from_iterable(bench.map("families", count_family, calls))), settings)
    policies = train(gridworld(), epsilon=EPSILON, delta=DELTA, seed=settings.seed, progress=bench.progress)
    counts = [row for name in settings.methods for row in count_gridworlds(policies, name, settings, bench)]
    return {"seconds": sum(row["seconds"] for row in counts), "counts": counts}


# ----------------------------------------------------------------------------------------------------------- gridworlds


def count_gridworlds(
    policies: PolicyValueSet, method: str, settings: PromiseSettings, bench: Bench
) -> list[dict[str, Any]]:
    """One method at every risk on fresh tasks, the same for all; its twin knows no risk, so it is run once."""
    noises = gridworld().sample(settings.tasks, Stream.PROMISE_GRIDWORLD_TASKS.rng(settings.seed))[:, 0]
    began = time.perf_counter()
    few = [(policies, noises, batch, method, settings) for batch in _batches(min(settings.twins, settings.tasks))]
    twin = list(chain.from_iterable(bench.map(f"{method}, overconfident", _twin_batch, few)))
    rows = []
    for risk in settings.risks:
        calls = [(policies, noises, batch, method, risk, settings) for batch in _batches(settings.tasks)]
        found = list(chain.from_iterable(bench.map(f"{method} at risk {risk:g}", _batch, calls)))
        unsafe, margins, regrets, came_near = zip(*found, strict=True)
        counted = Count(len(found), sum(map(bool, unsafe)), sum(came_near), len(twin), sum(twin))
        rows.append(
            {
                "method": method,
                "risk": risk,
                **counted.summary(risk),
                "unsafe_episodes": sum(unsafe),
                "smallest_margin": min(margins),
                "regret_mean": float(np.mean([regret for regret in regrets if math.isfinite(regret)])),
                "seconds": time.perf_counter() - began,
            }
        )
        began = time.perf_counter()
    return rows


def _batches(tasks: int) -> list[range]:
    return [range(k, min(k + BATCH, tasks)) for k in range(0, tasks, BATCH)]


def _batch(
    policies: PolicyValueSet, noises: Floats, batch: range, method: str, risk: float, settings: PromiseSettings
) -> list[tuple[int, float, float, bool]]:
    """Unsafe episodes, smallest margin, regret and whether the count tests anything, for each task.

    Tasks where nothing is feasible count as they are.
    """
    rows = []
    for k in batch:
        task = gridworld().task([noises[k]])
        found = adapt(policies, task, method=method, episodes=settings.episodes, risk=risk, seed=_seed(settings, k))
        near = uses_margin(found, task, policies.safe_policy)
        rows.append((found.unsafe_episodes, float(found.margin.min()), float(found.regret[-1]), near))
    return rows


def _twin_batch(
    policies: PolicyValueSet, noises: Floats, batch: range, method: str, settings: PromiseSettings
) -> list[bool]:
    """Whether the overconfident twin was unsafe on each task; nothing for methods without one."""
    episodes, safe, horizon = settings.episodes, policies.safe_policy, policies.units.episode_length
    twin = overconfident(learner(policies, method=method, risk=max(settings.risks), episodes=episodes).method)
    if twin is None:
        return []
    found = []
    for k in batch:
        task, seed = gridworld().task([noises[k]]), _seed(settings, k)
        run = audit_run(twin, task, safe=safe, episodes=episodes, seed=seed, horizon=horizon, cell=None)
        found.append(run.unsafe_episodes > 0)
    return found


def _seed(settings: PromiseSettings, number: int) -> int:
    return Stream.PROMISE_GRIDWORLD_RUNS.seed(settings.seed, number)


# ----------------------------------------------------------------------------------------------------- random families


@dataclass(frozen=True)
class FamilyCount:
    """One method at one risk on one family: a count, or why there is none."""

    kind: str
    number: int
    method: str
    risk: float
    count: Count | None
    refused: str = ""


def count_family(number: int, settings: RandomSettings) -> list[FamilyCount]:
    """Family number `number`, all methods and risks on the same fresh tasks."""
    kind = tuple(KINDS)[number % len(KINDS)] if settings.kind == EVERY else settings.kind
    family = random_family(kind, Stream.PROMISE_FAMILIES.rng(settings.seed, number))
    parameters = family.tasks.sample(settings.tasks, Stream.PROMISE_FAMILY_TASKS.rng(settings.seed, number))
    return count_tasks(family, number, parameters, settings)


def count_tasks(family: RandomFamily, number: int, parameters: Floats, settings: RandomSettings) -> list[FamilyCount]:
    """All methods and risks on the tasks of parameters [n, d]."""
    refused = ""
    try:
        policies = family.policies()
    except InvalidInput as error:
        policies, refused = family.without_cells(), str(error)
    cells = [true_cell(family.tasks, policies, parameter) for parameter in parameters]
    counts = []
    for name in settings.methods:
        twin: list[RunAudit] | None = None
        for risk in settings.risks:
            try:
                method = _method(policies, name, risk, refused)
            except InvalidInput as error:
                counts.append(FamilyCount(family.kind, number, name, risk, None, str(error)))
                continue
            runs = _runs(family, number, method, parameters, cells, settings)
            if twin is None:  # it knows no risk
                few = parameters[: settings.twins]
                twin = _runs(family, number, overconfident(method), few, [None] * len(few), settings)
            counts.append(FamilyCount(family.kind, number, name, risk, _count(runs, twin)))
    return counts


def _method(policies: PolicyValueSet, name: str, risk: float, refused: str) -> Method:
    """The method, or what speaks against it: for those with cells, first of all that there are none."""
    if refused and name != MODEL_FREE:
        raise InvalidInput(refused)
    return learner(policies, method=name, risk=risk).method


def _runs(
    family: RandomFamily,
    number: int,
    method: Method | None,
    parameters: Floats,
    cells: Sequence[int | None],
    settings: RandomSettings,
) -> list[RunAudit]:
    if method is None:
        return []
    return [
        audit_run(
            method,
            family.tasks.task(parameter),
            safe=family.safe,
            episodes=settings.episodes * (settings.patience if method.name == MODEL_FREE else 1),
            seed=Stream.PROMISE_FAMILY_RUNS.seed(settings.seed, number, place),
            horizon=family.steps,
            cell=cell,
        )
        for place, (parameter, cell) in enumerate(zip(parameters, cells, strict=True))
    ]


def _count(runs: Sequence[RunAudit], twin: Sequence[RunAudit]) -> Count:
    verdicts = [run.lost for run in runs if run.lost is not None]
    return Count(
        tasks=len(runs),
        unsafe_tasks=sum(run.unsafe_episodes > 0 for run in runs),
        tested=sum(run.tested for run in runs),
        twin_tasks=len(twin),
        twin_unsafe=sum(run.unsafe_episodes > 0 for run in twin),
        covered=len(verdicts),
        lost=sum(verdicts),
    )


def summarise_counts(found: Sequence[FamilyCount], settings: RandomSettings) -> dict[str, Any]:
    """Counts per method and risk, the same per kind of family, and who was refused why."""
    counts, kinds = [], []
    for method in settings.methods:
        for risk in settings.risks:
            rows = [row for row in found if (row.method, row.risk) == (method, risk)]
            counts.append({"method": method, "risk": risk, **_pool_counts(rows, risk)})
        for kind, risk in product(KINDS if settings.kind == EVERY else [settings.kind], settings.risks):
            rows = [row for row in found if (row.kind, row.method, row.risk) == (kind, method, risk)]
            kinds.append({"kind": kind, "method": method, "risk": risk, **_pool_counts(rows, risk)})
    return {"counts": counts, "kinds": kinds, "refusals": _refusals(found)}


def _pool_counts(rows: Sequence[FamilyCount], risk: float) -> dict[str, Any]:
    """All families in one count; each keeps its risk, so their tasks together do. One that does not is enough."""
    parts = [row.count for row in rows if row.count is not None]
    head: dict[str, Any] = {"families": len(parts), "refused": len(rows) - len(parts), "worst": _worst(rows, risk)}
    if not parts:
        return {**head, "tasks": 0, "verdict": None}
    broken = {"verdict": "broken"} if head["worst"]["broken"] else {}
    return {**head, **sum_counts(parts).summary(risk), **broken}


def sum_counts(parts: Iterable[Count]) -> Count:
    totals: Counter[str] = Counter()
    for part in parts:
        totals.update({name: value or 0 for name, value in asdict(part).items()})
    return Count(**totals)


def _worst(rows: Sequence[FamilyCount], risk: float) -> dict[str, Any] | None:
    """The family that speaks most against the promise, its chance multiplied by the number of families looked at."""
    parts = [(row.count.chance(risk), row) for row in rows if row.count is not None]
    if not parts:
        return None
    chance, row = min(parts, key=lambda part: part[0])
    chance = min(1.0, chance * len(parts))
    return {
        **{"kind": row.kind, "number": row.number, "chance": chance, "broken": chance < FALSE_ALARM},
        **(row.count.summary(risk) if row.count else {}),
    }


def _refusals(found: Sequence[FamilyCount]) -> list[dict[str, Any]]:
    """How often each reason was given, with numbers left out so that equal reasons are one."""
    reasons = Counter(
        (row.kind, row.method, row.risk, re.sub(r"-?\d[\d.e+-]*", "…", row.refused)) for row in found if not row.count
    )
    return [
        {"kind": kind, "method": method, "risk": risk, "reason": reason, "families": count}
        for (kind, method, risk, reason), count in reasons.items()
    ]


EXPERIMENT = frame.Experiment(
    "promise",
    RandomSettings,
    run,
    promise_page,
    tables,
    "promise.png and results.json beside it",
    configure=settings_for,
    quick={"tasks": 20, "episodes": 500},
)
