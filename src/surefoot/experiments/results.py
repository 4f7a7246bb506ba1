"""results.json and the files beside it, written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from surefoot import __version__
from surefoot.adapt.plan import PlanLine
from surefoot.adapt.run_record import Event
from surefoot.errors import ArtifactError
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.metrics import Summary
from surefoot.report.page import Page, render

KEYS = ("experiment", "version", "settings", "seconds")  # in every results.json, whatever the experiment


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
        "plan": [{**asdict(line), "episodes": _plain(line.episodes)} for line in plan],
        "training": {**policies.training, "xi": policies.xi, "budget": policies.units.budget.tolist()},
    }


def check_folder(out: Path) -> None:
    """Refuse, before any work is done, a place that cannot hold results."""
    try:
        place = next(each for each in (out, *out.absolute().parents) if each.exists())
    except OSError as error:
        raise ArtifactError(f"out must be a folder, got {out}: {error.strerror or error}") from None
    if not place.is_dir():
        raise ArtifactError(f"out must be a folder, got {out}, but {place} is a file")
    if not os.access(place, os.W_OK):
        raise ArtifactError(f"out must be a folder that can be written to, got {out}, but {place} is read-only")


def write_report(out: Path, results: Mapping[str, Any], report: Report) -> None:
    """results.json, the figures and report.html into `out`: all of them, or none if one cannot be written."""
    contents = {
        **report.figures,
        "report.html": render(report.page).encode(),
        "results.json": json.dumps(results, indent=1, allow_nan=False).encode(),
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out, prefix=".report-") as staging:
            for name, content in contents.items():
                (Path(staging) / name).write_bytes(content)
            # Only renames are left, which do not fail halfway for lack of space.
            for name in contents:
                (Path(staging) / name).replace(out / name)
    except OSError as error:
        raise ArtifactError(f"out: cannot write to {out}: {error.strerror or error}") from None


def read_results(folder: Path) -> dict[str, Any]:
    """results.json of an earlier run."""
    path = folder / "results.json"
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ArtifactError(f"{path}: not JSON: {error}") from None
    found = results if isinstance(results, dict) else {}
    missing = [key for key in KEYS if key not in found]
    if missing:
        raise ArtifactError(f"{path}: not a results file of surefoot, {missing[0]!r} is missing")
    return found


def redraw(folder: Path, page: Callable[[Mapping[str, Any]], Report]) -> None:
    """The figures and report.html of an earlier run once more, from its results.json alone."""
    results = read_results(folder)
    try:
        report = page(results)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(
            f"{folder / 'results.json'}: damaged or from another version ({type(error).__name__}: {error})"
        ) from None
    write_report(folder, results, report)


def _plain(episodes: float) -> float | None:
    """JSON has no infinity: never is null."""
    return None if episodes == float("inf") else episodes
