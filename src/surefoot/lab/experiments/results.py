"""results.json and the files beside it, written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from surefoot import __version__, files
from surefoot.bounded_json import Limits, parse_strictly
from surefoot.errors import ArtifactError, SurefootError
from surefoot.interrupts import held_back
from surefoot.lab.analysis.complexities import Row
from surefoot.learning.event import Event
from surefoot.learning.spec import PlanLine
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.policyset.storage import check_target
from surefoot.report.metrics import Summary
from surefoot.report.page import Page, render
from surefoot.report.table import Table

Results: TypeAlias = Mapping[str, Any]  # the contents of a results.json

KEYS = ("experiment", "version", "settings", "seconds")  # in every results.json, whatever the experiment
NO_SETS: Mapping[str, PolicyValueSet] = MappingProxyType({})
LIMITS = Limits(size=2**26, values=10**6, depth=32)  # of a results.json that is read


@dataclass(frozen=True)
class Report:
    """A page and the figures in it, by file name."""

    page: Page
    figures: Mapping[str, bytes]


def experiment_results(
    experiment: str,
    *,
    settings: Mapping[str, Any],
    seconds: Mapping[str, float],
    methods: Mapping[str, Summary],
    events: Mapping[str, Sequence[Sequence[Event]]],
    policies: PolicyValueSet,
    plan: Sequence[PlanLine] = (),
) -> dict[str, Any]:
    """The contents of results.json; `events` are per method and task."""
    return {
        "experiment": experiment,
        "version": __version__,
        "settings": dict(settings),
        "seconds": sum(seconds.values()),
        "seconds_by_stage": dict(seconds),
        "methods": dict(methods),
        "events": {name: [[asdict(event) for event in run] for run in runs] for name, runs in events.items()},
        "plan": plain_plan(plan),
        "training": {**policies.training, "xi": policies.xi, "budget": policies.units.budget.tolist()},
    }


def plan_table(lines: Sequence[Mapping[str, Any]]) -> Table:
    """How long each method stays on the safe policy, from the plan of results.json."""
    rows = tuple(
        (
            line["method"],
            "yes" if line["certified"] else "uncertified",
            {None: "all", "unknown": "unknown"}.get(line["episodes"]) or f"{line['episodes']:,.0f}",
            line["reason"],
        )
        for line in lines
    )
    return Table(("method", "certified", "episodes on the safe policy", "why"), rows, numbers=(2,))


def complexity_table(rows: Sequence[Row]) -> Table:
    """Table 1 of the paper; ours last, and how many times as many steps the others take."""
    ours = rows[-1].samples
    cells = tuple(
        (row.method, "yes" if row.trained else "no", row.formula, f"{row.samples:.3g}", f"{row.samples / ours:.3g}")
        for row in rows
    )
    return Table(("method", "trained", "without constants", "steps", "times ours"), cells, numbers=(3, 4))


def plain_plan(plan: Sequence[PlanLine]) -> list[dict[str, Any]]:
    """The plan as plain data; JSON has neither infinity nor NaN: never is null, and what nobody knows "unknown"."""
    words = {"inf": None, "nan": "unknown"}
    return [{**asdict(line), "episodes": words.get(str(line.episodes), line.episodes)} for line in plan]


def check_folder(out: Path, *policy_sets: str) -> None:
    """Refuse, before any work is done, a place that cannot hold results, and policy sets of these names."""
    files.check_folder(out)
    for name in ("report.html", "results.json"):
        files.check_file(out / name)
    for name in policy_sets:
        check_target(out / name, argument="out")


def write_report(
    out: Path, results: Results, report: Report, policy_sets: Mapping[str, PolicyValueSet] = NO_SETS
) -> None:
    """results.json, the figures and report.html into `out`: all of them, or none if one cannot be written; and before
    them policy sets by name. Ctrl-C waits for the last of them."""
    contents = _contents(results, report)
    with held_back():
        for name, policies in policy_sets.items():
            policies.save(out / name)
        files.write_files(out, contents)


def read_results(folder: Path) -> dict[str, Any]:
    """results.json of an earlier run."""
    path = folder / "results.json"
    try:
        results = parse_strictly(files.read_file(path, LIMITS.size), LIMITS)
    except ValueError as error:
        raise ArtifactError(f"{path}: not JSON: {error}") from None
    found = results if isinstance(results, dict) else {}
    missing = [key for key in KEYS if key not in found]
    if missing:
        raise ArtifactError(f"{path}: not a results file of surefoot, {missing[0]!r} is missing")
    return found


def redraw(folder: Path, page: Callable[[Results], Report]) -> None:
    """The figures and report.html of an earlier run once more, from its results.json alone."""
    results = read_results(folder)
    try:
        contents = _contents(results, page(results))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, SurefootError) as error:
        raise ArtifactError(
            f"{folder / 'results.json'}: damaged or from another version ({type(error).__name__}: {error})"
        ) from None
    files.write_files(folder, contents)


def _contents(results: Results, report: Report) -> dict[str, bytes]:
    """The files of a run by name."""
    return {
        **report.figures,
        "report.html": render(report.page).encode(),
        "results.json": json.dumps(results, indent=1, allow_nan=False).encode(),
    }
