"""What every experiment has from the frame: settings that are refused if they make no sense, a command that makes a
page again, and pages from results.json alone."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from kept_results import results_of

from surefoot.arrays import check_unit_interval
from surefoot.cli import main
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.lab.experiments import HELPS, PAGES, find
from surefoot.lab.experiments.frame import (
    Experiment,
    ExperimentSettings,
    Report,
    command_line,
    option,
    options_of,
    redraw,
    report,
    setting,
)
from surefoot.report.verdict import Answer, Verdict

REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("covering", {"delta": 0.4}, "delta must be above 0 and below 1/3, got 0.4"),
    ("covering", {"families": ("nobody",)}, "families must be names out of gridworld, two-walls, windy, got nobody"),
    ("covering", {"epsilons": ()}, "epsilons must be at least one number, got none"),
    ("covering", {"epsilons": (0.1, 2.0)}, "epsilons must lie strictly between 0 and 1, got 2.0"),
    ("covering", {"points": 10}, "points must be a whole number of at least 1000, got 10"),
    ("tail", {"tasks": 0}, "tasks must be a whole number of at least 1, got 0"),
    ("tail", {"level": 1.0}, "level must lie strictly between 0 and 1, got 1.0"),
    ("tail", {"threshold": 4.0}, "threshold must lie between 0 and the budget"),
    ("lower-bound", {"methods": ("nobody",)}, "methods must be names"),
    ("lower-bound", {"quantities": ("delta",)}, "quantities must be names"),
    ("lower-bound", {"repeats": 0}, "repeats must"),
    ("lower-bound", {"most": 10}, "most must"),
    ("regret", {"methods": ("paper",)}, "methods must be names"),
    ("regret", {"sweeps": ("delta",)}, "sweeps must be names"),
    ("regret", {"tasks": 0}, "tasks must"),
    ("calibration", {"levels": ()}, "levels must be at least one number"),
    ("calibration", {"error": 0.05}, "error must be at least 0 and less than the risk"),
    ("calibration", {"method": "paper"}, "method must be names out of"),
    ("shift", {"near": 0}, "near must"),
    ("shift", {"distances": ()}, "distances must be at least one number"),
    ("shift", {"distances": (0.1, 0.1)}, "distances must be different numbers"),
    ("shift", {"distances": (-0.1,)}, "shift must be a distance"),
    ("families", {"families": ("desert",)}, "families must be names out of windy, maintenance, got desert"),
    ("families", {"families": ()}, "families must be names out of windy, maintenance, got none"),
    ("families", {"families": ("windy", "windy")}, "families must be different names"),
    ("families", {"methods": ("magic",)}, "methods must be names out of"),
    ("families", {"methods": ("safe-only", "safe-only")}, "methods must be different names"),
    ("families", {"episodes": -1}, "episodes must be a whole number of at least 1, got -1"),
    ("families", {"cells": 0}, "cells must be a whole number of at least 1, got 0"),
    ("gridworld", {"episodes": 0}, "episodes must be a whole number of at least 1, got 0"),
    ("gridworld", {"tasks": -1}, "tasks must be a whole number of at least 1, got -1"),
    ("gridworld", {"methods": ("magic",)}, "methods must be names out of .* got magic"),
    ("baselines", {"benchmarks": ("desert",)}, "benchmarks must be names out of factored, media, inventory, two-w"),
    ("baselines", {"methods": ()}, "methods must be names out of .*, got none"),
    ("baselines", {"benchmarks": ("two-walls",), "methods": ("dope-theory",)}, "methods must hold one that runs on"),
    ("baselines", {"benchmarks": ("media",), "methods": ("dope-theory", "lb-sgd-theory")}, "methods must run on bench"),
    ("baselines", {"runs": 0}, "runs must be a whole number of at least 1, got 0"),
    ("baselines", {"cells": -1}, "cells must be a whole number of at least 1, got -1"),
    ("promise", {"families": "maze"}, "families must be gridworld or random"),
    ("promise", {"families": "random", "number": 0}, "number must be a whole number of at least 1"),
    ("promise", {"families": "random", "methods": ("paper",)}, "methods must be names out of certified-likelihood"),
    ("promise", {"families": "random", "kind": "odd"}, "kind must be names out of every, affine"),
    ("promise", {"families": "random", "risks": (1.5,)}, "risks must lie strictly between 0 and 1"),
    ("promise", {"risks": ()}, "risks must be at least one number, got none"),
    ("promise", {"number": 10}, "number is that of random families"),
    *((name, {"seed": -1}, "seed must be a whole number of at least 0, got -1") for name in HELPS),
    *(
        (name, {"risk": 1.0}, "risk must lie strictly between 0 and 1, got 1.0")
        for name in HELPS
        if name not in ("covering", "promise")  # which have none, and several
    ),
)


@pytest.mark.parametrize(("name", "change", "message"), REFUSED)
def test_settings_that_make_no_sense_are_refused(name: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        find(name).settings_for(**change)


@pytest.mark.parametrize("name", HELPS)
def test_the_command_of_a_page_gives_its_settings_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings of the command alone: `quick` may set others as well."""
    experiment, runs = find(name), []
    options = options_of(experiment.settings)
    quick = {option: value for option, value in experiment.quick.items() if option in options}
    settings = replace(experiment.settings(**quick), seed=7)
    stored = json.loads(json.dumps(asdict(settings)))
    words = command_line(name, experiment.settings, stored).replace("\\\n", "").replace("DIR", str(tmp_path)).split()
    monkeypatch.setattr(Experiment, "reproduce", lambda _, given, *__, **___: runs.append(given) or {})
    monkeypatch.setattr(sys, "argv", [*words, "--json"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    assert runs == [settings]


def test_no_command_where_an_earlier_version_had_fewer_options() -> None:
    stored = asdict(find("covering").settings_for())
    assert command_line("covering", find("covering").settings, stored).startswith("surefoot reproduce covering --fam")
    del stored["delta"]
    assert command_line("covering", find("covering").settings, stored) == ""


def test_results_of_an_unknown_experiment_are_refused(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps({**results_of("covering"), "experiment": "frame"}))
    with pytest.raises(ArtifactError, match="damaged or from another version"):
        redraw(tmp_path, lambda results: PAGES[results["experiment"]](results))
    with pytest.raises(LookupError, match="no experiment 'frame'"):
        find("frame")


@dataclass(frozen=True)
class Toy(ExperimentSettings):
    names: tuple[str, ...] = option(("a",), "Names.", choices=("a", "b"), fact=("names", ", ".join))
    runs: int | None = option(None, "Runs.", least=1, fact="runs")
    share: float = option(0.5, "A part.", check=check_unit_interval, fact="share")
    loud: bool = option(False, "Noise.")
    hidden: int = setting(3, least=2)


def toy_page(**changes: Any) -> Report:
    results = {"experiment": "toy", "version": "1", "seconds": 2.0, "settings": asdict(Toy(**changes))}
    told = Verdict("Found.", (Answer("A", "1", ""), Answer("B", "2", ""), Answer("C", "3", "")))
    return report(results, Toy, title="Toy", verdict=told, lead="", sections=(), figures={}, facts=(("own", "fact"),))


def test_facts_and_the_command_come_from_the_settings() -> None:
    page = toy_page(names=("b", "a"), runs=2000, loud=True).page
    assert page.facts[:5] == (
        ("names", "b, a"),
        ("runs", "2,000"),
        ("share", "0.5"),
        ("own", "fact"),
        ("time", "2.0 s"),
    )
    assert page.command == "surefoot reproduce toy --names b,a --runs 2000 --share 0.5 --loud --out DIR"
    assert page.footer == "surefoot 1"
    assert toy_page().page.command == "surefoot reproduce toy --names a --share 0.5 --out DIR"


@pytest.mark.parametrize("change", [{"names": ()}, {"names": ("c",)}, {"runs": 0}, {"share": 1.5}, {"hidden": 1}])
def test_every_rule_of_a_field_is_checked(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"^{next(iter(change))} must"):
        Toy(**change)
