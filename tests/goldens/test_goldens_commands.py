"""What must not change between versions: the words of the command line and its exit codes, what its commands print, and
the names that packages offer."""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from record import check
from test_goldens_trainings import gridworld_set

import surefoot as sf
from surefoot.cli import main

ASSETS = Path(__file__).parents[1] / "assets"
COMMANDS = (
    *("reproduce", "train", "plan", "methods", "calibrate", "adapt", "report", "deploy", "status", "watch", "verify"),
    *("export", "backup", "export-policy", "bench", "certify"),
)
EXPERIMENTS = (
    *("gridworld", "promise", "shift", "families", "baselines", "glucose", "locomotion", "calibration", "covering"),
    *("lower-bound", "regret", "tail", "rivals", "water", "buildings"),
)
PACKAGES = ("surefoot", *(f"surefoot.{name}" for name in ("tasks", "deploy", "report", "oracles")))
JOURNAL, SET = ASSETS / "journal-1.0-returns.journal", ASSETS / "journal-1.0-returns.policyset"
BAD = (
    "nonsense",
    "reproduce",
    "reproduce gridworld",
    "reproduce mars --out never",
    "reproduce gridworld --out never --episodes abc",
    "reproduce gridworld --out never --risk 2",
    "reproduce gridworld --out never --methods published,magic",
    "reproduce gridworld --out never --frobnicate",
    "reproduce baselines --out never --benchmarks media --methods lb-sgd-theory",
    "train mars --out never",
    "train factored --out never --std 77",
    "train gridworld --out never --epsilon 1e-9",
    "train gridworld --out never --delta 0.5",
    "adapt nowhere --task 0.3",
    f"adapt {SET} --task 0.3",
    "plan nowhere",
    "plan --table --states 0",
    "methods magic",
    "report nowhere",
    "status nowhere",
    f"verify {JOURNAL}",
    f"verify {JOURNAL} --policies nowhere",
    f"verify {JOURNAL} --policies {ASSETS / 'journal-1.0-paper.policyset'}",
    "export nowhere",
    "backup nowhere copy",
    "watch nowhere --port 0.5",
    f"deploy {SET} --journal new --method pce --risk 0.1",
    f"export-policy {SET} 99 --out policy.onnx",
    "bench --quick=maybe",
)
PRINTED = (
    "--version",
    "methods",
    "methods --json",
    "methods certified-returns",
    "methods meta-cpo",
    "plan --table --states 41 --actions 4 --discount 0.9 --xi 0.1 --epsilon 0.01 --cover 10",
    "plan SET --episodes 2000 --risk 0.3",
    "plan SET --table --json",
    "adapt SET --task 0.31 --episodes 60 --method published --json",
    "adapt SET --task 0.31 --episodes 60 --method certified --risk 0.3 --json",
    "train two-walls --out new --epsilon 0.05 --delta 0.2 --json",
)


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


def answer(*words: str | Path) -> Answer:
    """`surefoot` with these arguments, in this process, at a terminal of 100 columns without colours."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["surefoot", *map(str, words)]),
        mock.patch.object(sys.modules["__main__"], "__package__", None),  # else help names `python -m pytest`
        mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}),
        warnings.catch_warnings(),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as stop,
    ):
        main()
    return Answer(int(stop.value.code or 0), out.getvalue(), err.getvalue())


def help_of(words: str) -> list[str]:
    found = answer(*words.split(), "--help")
    return [f"exit code {found.code}", *found.out.splitlines()]


def refusal(words: str) -> int:
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        return answer(*words.split()).code


@cache
def stored_set() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    gridworld_set().save(Path(folder.name) / "set")
    return folder


def printed(words: str) -> Any:
    """What a command answers: JSON without times, or lines."""
    given = words.replace("SET", f"{stored_set().name}/set").split()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        found = answer(*given)
    content = without_times(json.loads(found.out)) if "--json" in given else found.out.splitlines()
    return {"code": found.code, "out": content}


def without_times(found: Any) -> Any:
    """Results without what differs between two runs of the same."""
    if isinstance(found, dict):
        changing = {key for key in found if key.startswith(("seconds", "version")) or key in ("path", "machine")}
        return {key: without_times(each) for key, each in found.items() if key not in changing}
    return [without_times(each) for each in found] if isinstance(found, list) else found


def public_names(package: str) -> list[str]:
    found = import_module(package)
    assert all(hasattr(found, name) for name in found.__all__)
    return sorted(found.__all__)


def fields_of_methods() -> dict[str, Any]:
    both = {**sf.METHODS, **sf.CONTROL_METHODS}
    return {
        name: [spec.certified, spec.observes, spec.needs_episodes, list(spec.options)] for name, spec in both.items()
    }


CASES = {
    "surefoot --help": partial(help_of, ""),
    **{f"surefoot {name} --help": partial(help_of, name) for name in COMMANDS},
    **{f"surefoot reproduce {name} --help": partial(help_of, f"reproduce {name}") for name in EXPERIMENTS},
    **{f"names of {package}": partial(public_names, package) for package in PACKAGES},
    "exit codes": lambda: {words.replace(str(ASSETS), "assets"): refusal(words) for words in BAD},
    **{f"surefoot {words}": partial(printed, words) for words in PRINTED},
    "methods": fields_of_methods,
}


LONG = ("surefoot plan SET --episodes 2000 --risk 0.3",)  # tries every method in simulation


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.long] * (case in LONG)) for case in CASES])
def test_the_command_line_is_as_recorded(case: str) -> None:
    check("commands", case, CASES[case])
