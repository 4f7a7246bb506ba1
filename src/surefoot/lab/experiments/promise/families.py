"""`surefoot reproduce promise --families random`: every certified method on random families of every kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.lab.experiments.frame import Bench, check_names
from surefoot.lab.experiments.promise.random_families import KINDS, RandomFamily, random_family
from surefoot.lab.experiments.promise.settings import EVERY, RandomSettings
from surefoot.lab.experiments.promise.twins import overconfident
from surefoot.lab.experiments.promise.verdict import FALSE_ALARM, Count
from surefoot.lab.experiments.promise.watched import RunAudit, audit_run, true_cell
from surefoot.learning.method import Method
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.streams import Stream

MODEL_FREE = "certified-model-free"


@dataclass(frozen=True)
class FamilyCount:
    """One method at one risk on one family: a count, or why there is none."""

    kind: str
    number: int
    method: str
    risk: float
    count: Count | None
    refused: str = ""


def run(settings: RandomSettings, bench: Bench) -> dict[str, Any]:
    """Count on random families of every kind, or of one."""
    check_names("kind", (settings.kind,), (EVERY, *KINDS))
    calls = [(number, settings) for number in range(settings.number)]
    return summarise_counts(
        [count for counts in bench.map("families", count_family, calls) for count in counts], settings
    )


# ----------------------------------------------------------------------------------------------------------- one family


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


# --------------------------------------------------------------------------------------------------------- all together


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
