"""results.json and the files beside it, written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from surefoot.adapt.plan import plan
from surefoot.adapt.run_record import Event
from surefoot.errors import ArtifactError
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.metrics import Summary
from surefoot.report.page import Page, render


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
) -> dict[str, Any]:
    """The contents of results.json; `events` are per method and task."""
    lines = plan(policies, episodes=settings["episodes"], risk=settings["risk"])
    return {
        "experiment": experiment,
        "version": metadata.version("surefoot"),
        "settings": dict(settings),
        "seconds": sum(seconds.values()),
        "seconds_by_stage": dict(seconds),
        "methods": dict(methods),
        "events": {name: [[asdict(event) for event in run] for run in runs] for name, runs in events.items()},
        "plan": [{**asdict(line), "episodes": _plain(line.episodes)} for line in lines],
        "training": {**policies.training, "xi": policies.xi, "budget": policies.units.budget.tolist()},
    }


def write_report(out: Path, results: Mapping[str, Any], report: Report) -> None:
    """results.json, the figures and report.html into `out`."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in report.figures.items():
            _write(out / name, content)
        _write(out / "report.html", render(report.page).encode())
        _write(out / "results.json", json.dumps(results, indent=1, allow_nan=False).encode())
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
    missing = [key for key in ("experiment", "settings", "methods") if key not in results]
    if missing:
        raise ArtifactError(f"{path}: not a results file of surefoot, {missing[0]!r} is missing")
    return dict(results)


def _write(path: Path, content: bytes) -> None:
    """Through a temporary file in the same folder, so that a reader sees the old file or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _plain(episodes: float) -> float | None:
    """JSON has no infinity: never is null."""
    return None if episodes == float("inf") else episodes
