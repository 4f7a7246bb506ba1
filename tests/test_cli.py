"""The command line as a user meets it: what it prints, what it writes, and one sentence with exit code 2 otherwise."""

from __future__ import annotations

import inspect
import io
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from typer.main import get_group

from surefoot import __version__
from surefoot.cli import commands, terminal
from surefoot.cli.commands import COMMANDS
from surefoot.cli.train import FAMILIES, build_family
from surefoot.lab.bench import rows as bench
from surefoot.lab.experiments import HELPS, find, frame
from surefoot.lab.experiments import gridworld as gridworld_experiment
from surefoot.lab.experiments.frame import options_of
from surefoot.methods import METHODS, specs
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.table import Cell, Table
from surefoot.simulate import plan

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def surefoot(*words: str | Path) -> Answer:
    """`surefoot` with these arguments, in this process."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["surefoot", *map(str, words)]
    with (
        mock.patch.object(sys, "argv", argv),
        warnings.catch_warnings(),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as stop,
    ):
        commands.run()
    code = stop.value.code
    return Answer(0 if code is None else int(code), out.getvalue(), err.getvalue())


def refused(*words: str | Path) -> str:
    """The one sentence with which these arguments are refused."""
    answer = surefoot(*words)
    assert answer.code == 2
    assert answer.out == ""
    lines = answer.err.splitlines()
    assert len(lines) == 1, answer.err
    assert lines[0].startswith("error: ")
    return lines[0].removeprefix("error: ")


@pytest.fixture(scope="module", autouse=True)
def figures_in_pages_only() -> Iterator[None]:
    """The files beside the pages take as long again, and other tests look at them."""
    with mock.patch.object(frame, "png", return_value=b"PNG"):
        yield


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a policy set ("set"), which the tests only read, and what was said when it was trained ("said")."""
    folder = tmp_path_factory.mktemp("cli")
    answer = surefoot("train", "gridworld", "--out", folder / "set", "--epsilon", "0.01")
    assert answer.code == 0, answer.err
    (folder / "said").write_text(answer.out)
    return folder


@pytest.fixture(scope="module")
def run_folder(workplace: Path) -> Path:
    """The folder of a short run that the tests only read."""
    folder = workplace / "run"
    words = ("--task", "0.31", "--episodes", "50", "--method", "published", "--out", folder)
    answer = surefoot("adapt", workplace / "set", *words)
    assert answer.code == 0, answer.err
    return folder


@contextmanager
def short_plan() -> Iterator[None]:
    """The plan tries the certified methods in simulation; a few episodes are enough here, and limits from few tasks."""
    with mock.patch.object(plan, "TRIAL_EPISODES", 20), mock.patch.object(gridworld_experiment, "ALTERNATIVES", 3):
        yield


def small(methods: str = "safe-only,published") -> list[str]:
    return ["--episodes", "1200", "--tasks", "2", "--methods", methods, "--jobs", "1"]


# -------------------------------------------------------------------------------------------------- what it consists of


def test_the_list_of_commands_says_what_they_say_themselves() -> None:
    said = {name: command.load_command(name).help.partition("\n\n")[0] for name, command in COMMANDS.items()}
    assert said == {name: command.help for name, command in COMMANDS.items()}
    modules = {import_module(f"surefoot.cli.{command.module}") for command in COMMANDS.values()}
    assert {name for module in modules for name in get_group(module.app).commands} == set(COMMANDS)


HEAVY = {"numpy", "scipy", "highspy", "matplotlib", "joblib", "jinja2", "safetensors", "gymnasium", "surefoot.methods"}
SPY = """
import sys
from surefoot.cli import main
try:
    main()
finally:
    sys.stderr.write(" ".join(sys.modules))
"""


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["reproduce", "--help"],
        ["status", "--help"],
        ["status", "JOURNAL"],
        ["export", "JOURNAL"],
    ],
    ids=" ".join,
)
def test_commands_import_what_they_need(words: list[str]) -> None:
    heavy = HEAVY if len(words) > 1 else HEAVY | {"pydantic"}  # which typer itself needs for arguments
    journal = str(ROOT / "tests/assets/journal-1.0-returns.journal")
    command = [sys.executable, "-c", SPY, *(journal if word == "JOURNAL" else word for word in words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout
    loaded = set(done.stderr.split())
    assert "surefoot.cli.terminal" in loaded
    assert loaded & heavy == set()


ONLY_RANDOM = ("number", "kind")  # options of the promise, for random families


@pytest.mark.parametrize("name", HELPS)
def test_the_options_of_an_experiment_are_those_of_its_settings(name: str) -> None:
    experiment, command = find(name), COMMANDS["reproduce"].load_command("reproduce").load(name)
    common = {"out", "jobs", "as_json", *(["quick"] if experiment.quick else [])}
    assert {each.name for each in command.params} == common | set(options_of(experiment.settings))
    settings = experiment.settings_for()
    assert all(hasattr(settings, option) for option in options_of(experiment.settings) if option not in ONLY_RANDOM)
    assert experiment.settings_for(**experiment.quick) is not None
    assert command.help == HELPS[name]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_options_of_a_family_are_its_arguments(name: str) -> None:
    if name == "simglucose" and find_spec(name) is None:
        pytest.skip("needs simglucose: pip install --no-deps simglucose==0.2.11")
    assert list(FAMILIES[name].options) == list(inspect.signature(FAMILIES[name].make).parameters)
    default = {option: FAMILIES[name].default(option) for option in FAMILIES[name].options}
    if name == "water":
        pytest.importorskip("wntr", reason="needs surefoot[water]")
    if name == "buildings":
        pytest.importorskip("pyenergyplus", reason="needs surefoot[buildings]")
    assert build_family(name, default).digest() == FAMILIES[name].make().digest()


# ------------------------------------------------------------------------------------------------------ what it prints


def test_no_argument_is_a_request_for_help() -> None:
    answer = surefoot()
    assert answer.code == 0
    assert "reproduce" in answer.out
    assert answer.out == surefoot("--help").out


def test_version() -> None:
    assert surefoot("--version").out == f"surefoot {__version__}\n"


def test_train_tells_what_the_theorem_says_and_what_it_made(workplace: Path) -> None:
    said = (workplace / "said").read_text()
    assert "the paper's theorem does not apply to epsilon=0.01" in said
    assert f"{len(PolicyValueSet.load(workplace / 'set'))} policies" in said


def test_methods_are_labelled_and_progress_goes_to_standard_error(workplace: Path) -> None:
    answer = surefoot("adapt", workplace / "set", "--task", "0.31", "--episodes", "50", "--method", "published")
    assert answer.err == "published ...\n"
    row = next(line for line in answer.out.splitlines() if line.startswith("published"))
    assert "uncertified" in row
    answer = surefoot("adapt", workplace / "set", "--task", "0.31", "--episodes", "50", "--method", "safe-only")
    row = next(line for line in answer.out.splitlines() if line.startswith("safe-only"))
    assert row.split()[1] == "yes"


def test_plan_has_a_line_per_method(workplace: Path) -> None:
    with short_plan():
        answer = surefoot("plan", workplace / "set")
    words = {line.split()[0] for line in answer.out.splitlines()[1:]}
    assert {"safe-only", "paper", "published", "pce"} <= words


def test_methods_say_what_they_need_promise_and_cost() -> None:
    answer = surefoot("methods")
    assert max(map(len, answer.out.splitlines())) <= 80
    listed = {line.split()[0]: line.split()[1] for line in answer.out.splitlines()[1:-2] if not line.startswith(" ")}
    assert listed == {spec.name: "certified" if spec.certified else "uncertified" for spec in specs()}
    assert surefoot("methods", "--json").json == [spec.described() for spec in specs()]
    assert surefoot("methods", "paper", "--json").json == METHODS["paper"].described()
    detail = surefoot("methods", "certified-ball").out
    assert max(map(len, detail.splitlines())) <= 80
    assert "guarantees.md, Theorem 3, Theorem 4" in detail
    assert "did you mean 'certified'" in refused("methods", "certifed")


def test_adapt_writes_a_report_and_says_where(workplace: Path) -> None:
    folder = workplace / "adapted"
    answer = surefoot("adapt", workplace / "set", "--task", "0.31", "--episodes", "50", "--out", folder)
    assert str(folder / "report.html") in answer.out
    assert sorted(file.name for file in folder.iterdir()) == ["curves.png", "report.html", "results.json"]


def test_a_method_without_decisions_has_a_report_too(workplace: Path) -> None:
    folder = workplace / "undecided"
    words = ("--task", "0.31", "--episodes", "5", "--method", "safe-only", "--out", folder)
    assert surefoot("adapt", workplace / "set", *words).code == 0
    assert "No decision fell" in (folder / "report.html").read_text()


def test_report_draws_the_same_page_again(run_folder: Path, workplace: Path) -> None:
    copy = workplace / "copy"
    copy.mkdir()
    shutil.copy(run_folder / "results.json", copy)
    assert surefoot("report", copy).code == 0
    for name in ("results.json", "report.html", "curves.png"):
        assert (copy / name).read_bytes() == (run_folder / name).read_bytes()


@pytest.mark.long
def test_reproduce_says_where_the_page_is_and_report_draws_it_again(workplace: Path) -> None:
    folder = workplace / "reproduced"
    with short_plan():
        answer = surefoot("reproduce", "gridworld", *small(), "--out", folder)
    assert answer.code == 0, answer.err
    assert str(folder / "report.html") in answer.out
    names = ("results.json", "report.html", "figure1.png", "figure2.png")
    before = {name: (folder / name).read_bytes() for name in names}
    assert surefoot("report", folder).code == 0
    assert {name: (folder / name).read_bytes() for name in names} == before
    results = json.loads((folder / "results.json").read_text())
    del results["plan"]
    (folder / "results.json").write_text(json.dumps(results))
    message = refused("report", folder)
    assert "damaged" in message
    assert "plan" in message


@pytest.mark.short_for(experiment=["promise"])
@pytest.mark.parametrize(
    ("experiment", "words"),
    [
        ("promise", ["--tasks", "2", "--risks", "0.5"]),
        ("shift", ["--runs", "1", "--fresh", "1", "--near", "1", "--distances", "0.001"]),
        pytest.param("families", ["--tasks", "1"], marks=pytest.mark.long),
    ],
)
def test_reports_of_the_other_experiments_are_drawn_again(experiment: str, words: list[str], tmp_path: Path) -> None:
    methods = "certified-model-free"
    common = ("--episodes", "40", "--methods", methods, "--jobs", "1", "--out", tmp_path, "--json")
    answer = surefoot("reproduce", experiment, *words, *common)
    assert answer.code == 0, answer.err
    assert answer.json["experiment"] == experiment
    assert answer.json == json.loads((tmp_path / "results.json").read_text())
    page = (tmp_path / "report.html").read_bytes()
    (tmp_path / "report.html").unlink()
    assert surefoot("report", tmp_path).code == 0
    assert (tmp_path / "report.html").read_bytes() == page


@pytest.mark.parametrize(("width", "shown"), [(200, True), (40, False)])
def test_a_narrow_terminal_leaves_optional_columns_out_and_labels_whole(width: int, shown: bool) -> None:
    rows = (("certified-likelihood", "0.1 – 0.2", Cell("1 of 2", "bad")), ("[red]", "–", "0 of 2"))
    table = Table(("method", "95 % interval", "unsafe tasks"), rows, numbers=(1, 2), optional=(1,))
    console = Console(width=width, file=io.StringIO(), force_terminal=True)
    with mock.patch.object(terminal, "console", return_value=console):
        terminal.show(table)
    out = console.file.getvalue()
    assert ("0.1 – 0.2" in out) is shown
    assert "certified-likelihood" in out
    assert "[red]" in out  # text, not markup
    assert "1 of 2" in out


def test_bench_measures_once_and_prints_a_table_or_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it measures, `test_bench.py` looks at."""
    row = bench.BenchRow("what", "1 s", "2 s", 2.0)
    monkeypatch.setattr("surefoot.lab.bench.run.run", lambda quick, progress: [row] if quick else [])
    answer = surefoot("bench", "--quick")
    assert answer.code == 0, answer.err
    assert answer.out.splitlines()[0].split() == ["what", "ours", "plain", "way", "ratio", "note"]
    assert answer.out.count("×") == 1
    assert surefoot("bench", "--quick", "--json").json == [row.as_dict()]


# ---------------------------------------------------------------------------------------------------------- --json


@pytest.mark.long
def test_json_of_reproduce_is_what_is_written(workplace: Path) -> None:
    with short_plan():
        answer = surefoot("reproduce", "gridworld", *small("safe-only"), "--out", workplace / "json-run", "--json")
    assert answer.json == json.loads((workplace / "json-run" / "results.json").read_text())


def test_json_of_the_other_commands(run_folder: Path, workplace: Path) -> None:
    policies = workplace / "set"
    trained = surefoot("train", "gridworld", "--out", workplace / "json-set", "--epsilon", "0.02", "--json").json
    assert trained["policies"] == len(PolicyValueSet.load(workplace / "json-set"))
    advice = {"method": "certified-likelihood", "stronger": []}
    assert advice.items() <= trained["advice"].items()
    adapted = surefoot("adapt", policies, "--task", "0.31", "--episodes", "50", "--method", "pce", "--json").json
    assert set(adapted["methods"]) == {"pce"}
    assert adapted["advice"] == trained["advice"]
    with short_plan():
        planned = {line["method"]: line for line in surefoot("plan", policies, "--json").json}
    assert planned["safe-only"]["episodes"] is None
    assert planned["pce"]["episodes"] == 0
    assert planned["certified"]["reason"].startswith("will be certified-likelihood, since ")
    assert surefoot("report", run_folder, "--json").json == {"report": str(run_folder / "report.html")}


def test_json_of_a_policy_that_is_exported(workplace: Path, tmp_path: Path) -> None:
    file = tmp_path / "policy.safetensors"
    answer = surefoot("export-policy", workplace / "set", "0", "--out", file, "--json")
    assert answer.json == {"file": str(file), "policy": 0}
    assert file.is_file()


def test_json_means_silence_on_standard_error(workplace: Path) -> None:
    answer = surefoot("adapt", workplace / "set", "--task", "0.31", "--episodes", "50", "--json")
    assert answer.err == ""
    assert answer.json["settings"]["task"] == [0.31]


# ------------------------------------------------------------------------------------------------------- bad arguments

REPRODUCE = ("reproduce", "gridworld", "--out", "never")
TRAIN = ("train", "gridworld", "--out", "never")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("nonsense",), ["nonsense"]),
        (("reproduce",), ["surefoot reproduce --help"]),
        (("reproduce", "gridworld"), ["--out"]),
        (("reproduce", "mars", "--out", "never"), ["mars"]),
        ((*REPRODUCE, "--episodes", "abc"), ["--episodes", "integer", "'abc'"]),
        ((*REPRODUCE, "--episodes=abc"), ["--episodes", "integer", "'abc'"]),
        ((*REPRODUCE, "--episodes", "-3"), ["--episodes", "1", "'-3'"]),
        ((*REPRODUCE, "--episodes", "1e9"), ["--episodes", "'1e9'"]),
        ((*REPRODUCE, "--episodes", "1000000000000"), ["--episodes", "100000000", "'1000000000000'"]),
        ((*REPRODUCE, "--tasks", "0"), ["--tasks", "1", "'0'"]),
        ((*REPRODUCE, "--jobs", "0"), ["--jobs", "1", "'0'"]),
        ((*REPRODUCE, "--seed", "-1"), ["--seed", "0", "'-1'"]),
        ((*REPRODUCE, "--seed", str(2**64)), ["--seed", str(2**32 - 1)]),
        ((*REPRODUCE, "--risk", "2"), ["risk", "between 0 and 1", "2.0"]),
        ((*REPRODUCE, "--risk", "nan"), ["risk", "between 0 and 1", "nan"]),
        ((*REPRODUCE, "--risk", "high"), ["--risk", "number", "'high'"]),
        ((*REPRODUCE, "--methods", "published,magic"), ["methods", "safe-only", "got magic"]),
        ((*REPRODUCE, "--methods", ""), ["methods", "safe-only"]),
        ((*REPRODUCE, "--methods", "pce,pce"), ["methods", "different", "pce, pce"]),
        ((*REPRODUCE, "--frobnicate"), ["--frobnicate"]),
        (("train", "mars", "--out", "never"), ["family", "gridworld", "'mars'"]),
        (
            ("train", "factored", "--out", "never", "--kernel", "nonsense", "--std", "77"),
            ["factored", "kernel", "std 77"],
        ),
        (("train", "windy", "--out", "never", "--high", "0.5"), ["windy", "slip_std", "high 0.5"]),
        (("train", "media", "--out", "never", "--high", "2"), ["high", "1", "2"]),
        (("train", "gridworld"), ["--out"]),
        ((*TRAIN, "--epsilon", "0"), ["epsilon", "positive", "0.0"]),
        pytest.param((*TRAIN, "--epsilon", "1e-9"), ["epsilon", "larger", "1e-09"], marks=pytest.mark.long),
        ((*TRAIN, "--delta", "0.5"), ["delta", "1/3", "0.5"]),
        ((*TRAIN, "--delta", "1e-7"), ["delta", "larger", "1e-07"]),
        ((*TRAIN, "--xi", "-1"), ["xi", "non-negative", "-1.0"]),
        ((*TRAIN, "--std", "nan"), ["std", "finite", "nan"]),
        ((*TRAIN, "--kernel", "round"), ["kernel", "'published' or 'text'", "'round'"]),
        ((*TRAIN, "--safe-noise", "3"), ["safe_noise", "between 0 and 1", "3"]),
        ((*TRAIN, "--seed", "-1"), ["--seed", "0", "'-1'"]),
        (("adapt", "nowhere", "--task", "0.3"), ["nowhere", "no such folder"]),
        (("adapt", "nowhere"), ["--task"]),
        (("adapt",), ["SET"]),
        (("plan", "nowhere"), ["nowhere", "no such folder"]),
        (("plan", "nowhere", "--risk", "1"), ["risk", "between 0 and 1", "1.0"]),
        (("report", "nowhere"), ["nowhere", "No such file"]),
        (("bench", "--quick=maybe"), ["--quick"]),
    ],
    ids=" ".join,
)
def test_refused_in_one_sentence(
    words: tuple[str, ...], parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = refused(*words)
    assert [part for part in parts if part not in message] == [], message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--task", "nonsense"), ["task", "numbers", "'nonsense'"]),
        (("--task", ""), ["task", "numbers", "''"]),
        (("--task", "2"), ["task 2", "between 0 and 1"]),
        (("--task", "nan"), ["task nan", "finite"]),
        (("--task", "0.3,0.4"), ["task 0.3, 0.4", "[1]", "[2]"]),
        (("--task", "0.48"), ["task 0.48", "1.5", "1.83398"]),
        (("--task", "0.3", "--method", "magic"), ["method", "safe-only", "'magic'"]),
        (("--task", "0.3", "--episodes", "0"), ["--episodes", "1", "'0'"]),
        (("--task", "0.3", "--risk", "0"), ["risk", "between 0 and 1", "0.0"]),
        (("--task", "0.3", "--seed", "x"), ["--seed", "'x'"]),
    ],
    ids=" ".join,
)
def test_adapt_refuses_in_one_sentence(
    words: tuple[str, ...], parts: list[str], workplace: Path, tmp_path: Path
) -> None:
    message = refused("adapt", workplace / "set", "--out", tmp_path / "never", "--json", *words)
    assert [part for part in parts if part not in message] == [], message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--method", "pce", "--risk", "0.1"), "risk"),
        (("--method", "safe-meta-published", "--risk", "0.1"), "risk"),
        (("--episodes", "5"), "episodes"),
        (("--method", "safe-only", "--episodes", "5"), "episodes"),
        (("--method", "safe-only", "--shift", "0.001"), "shift"),
        (("--method", "certified-model-free", "--observes", "sums"), "observes"),
        (("--method", "certified-likelihood", "--assume-safe"), "assume_safe"),
    ],
    ids=" ".join,
)
def test_options_that_a_method_has_no_use_for_are_refused(
    words: tuple[str, ...], option: str, workplace: Path, tmp_path: Path
) -> None:
    answer = surefoot("deploy", workplace / "set", "--journal", tmp_path / "journal", *words)
    assert answer.code == 2
    assert f"{option} must be" in answer.err or f"takes no option {option!r}" in answer.err
    assert not (tmp_path / "journal").exists()
    if option == "risk":
        assert "risk must be left out" in refused("adapt", workplace / "set", "--task", "0.3", *words)


def test_an_infeasible_safe_policy_is_named(tmp_path: Path) -> None:
    answer = surefoot("train", "gridworld", "--out", tmp_path / "never", "--safe-noise", "0.45")
    assert answer.code == 2
    assert "safe_noise 0.45" in answer.err
    assert "least achievable cost" in answer.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "deeper/still"])
@pytest.mark.parametrize("command", ["reproduce", "train", "adapt"])
def test_out_must_be_a_folder(command: str, below: str, workplace: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    words = {
        "reproduce": ("reproduce", "gridworld", *small()),
        "train": ("train", "gridworld"),
        "adapt": ("adapt", workplace / "set", "--task", "0.3"),
    }[command]
    message = refused(*words, "--out", tmp_path / "file" / below)
    assert "out must be a folder" in message
    assert str(tmp_path / "file") in message
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_of_the_users_is_not_replaced_by_a_policy_set(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    answer = surefoot("train", "gridworld", "--out", tmp_path, "--epsilon", "0.02")
    assert answer.code == 2
    assert "mine.txt" in answer.err
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_an_existing_policy_set_is_replaced_only_when_forced(workplace: Path, tmp_path: Path) -> None:
    shutil.copytree(workplace / "set", tmp_path / "set")
    before = PolicyValueSet.load(tmp_path / "set").digest()
    words = ("train", "gridworld", "--out", tmp_path / "set", "--epsilon", "0.02")
    with mock.patch("surefoot.training.train.train", side_effect=AssertionError("trained")):
        message = refused(*words)
    assert "out must be a new folder" in message
    assert str(tmp_path / "set") in message
    assert "force" in message
    assert PolicyValueSet.load(tmp_path / "set").digest() == before
    assert surefoot(*words, "--force").code == 0
    assert PolicyValueSet.load(tmp_path / "set").digest() != before


@pytest.mark.parametrize("command", ["train", "adapt", "reproduce"])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    command: str, workplace: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "report.html").mkdir()
    words = {
        "reproduce": ("reproduce", "gridworld", *small()),
        "train": ("train", "gridworld"),
        "adapt": ("adapt", workplace / "set", "--task", "0.3"),
    }[command]
    trained = mock.patch("surefoot.training.train.train", side_effect=AssertionError("trained"))
    reproduced = mock.patch("surefoot.lab.experiments.gridworld.train", side_effect=AssertionError("trained"))
    adapted = mock.patch("surefoot.cli.adapt.adapt_one", side_effect=AssertionError("adapted"))
    with trained, reproduced, adapted:
        message = refused(*words, "--out", tmp_path)
    assert ("mine.txt" if command == "train" else "out must be a file") in message


def test_a_folder_at_the_place_of_the_policy_set_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "gridworld.policyset").mkdir()
    (tmp_path / "gridworld.policyset" / "mine.txt").write_text("mine")
    with mock.patch("surefoot.lab.experiments.gridworld.train", side_effect=AssertionError("trained")):
        assert "mine.txt" in refused("reproduce", "gridworld", *small(), "--out", tmp_path)


def test_a_report_does_not_write_through_links(run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    shutil.copy(run_folder / "results.json", tmp_path / "run")
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "run/report.html").symlink_to(tmp_path / "victim")
    assert surefoot("report", tmp_path / "run").code == 0
    assert (tmp_path / "victim").read_text() == "mine"
    assert (tmp_path / "run/report.html").read_bytes() == (run_folder / "report.html").read_bytes()


@pytest.mark.parametrize(
    "words",
    [
        ("train", "gridworld", "--out"),
        ("reproduce", "gridworld", "--out"),
        ("adapt", "--task", "0.3"),
        ("plan",),
        ("report",),
        ("status",),
        ("verify", "--policies", "set"),
        ("export",),
        ("deploy", "--journal", "journal"),
        ("deploy", "set", "--journal"),
        ("export-policy", "set", "0", "--out"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("path", ["a\0b", "a\udcffb"])
def test_a_path_that_is_no_text_is_refused(
    words: tuple[str, ...], path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(*words, path) == f"arguments must be text in UTF-8 without NUL, got {path!a}"
    assert list(tmp_path.iterdir()) == []


def test_running_out_of_memory_is_one_sentence(workplace: Path) -> None:
    with mock.patch("surefoot.cli.adapt.plan", side_effect=MemoryError("Unable to allocate 15 GiB")):
        assert "Unable to allocate 15 GiB" in refused("plan", workplace / "set")


def test_a_tampered_set_is_refused(workplace: Path, tmp_path: Path) -> None:
    shutil.copytree(workplace / "set", tmp_path / "set")
    arrays = tmp_path / "set" / "policies.safetensors"
    content = bytearray(arrays.read_bytes())
    content[-1] ^= 1
    arrays.write_bytes(content)
    assert "was altered" in refused("adapt", tmp_path / "set", "--task", "0.3")


def test_a_set_without_recipe_is_refused(workplace: Path, tmp_path: Path) -> None:
    policies = PolicyValueSet.load(workplace / "set")
    for recipe in ({}, {"family": "gridworld"}, {"family": []}, {"family": {}}, {"family": 1, "kernel": "text"}):
        replace(policies, recipe=recipe).save(tmp_path / "set")
        message = refused("adapt", tmp_path / "set", "--task", "0.3")
        assert "SET must carry the recipe" in message
        assert "Python" in message


@pytest.mark.parametrize(
    "change", [{"std": []}, {"std": "x"}, {"kernel": {}}, {"kernel": None}, {"safe_noise": [[0.4]]}, {"std": 10**18}]
)
def test_a_set_with_a_recipe_that_makes_nothing_is_refused(
    change: dict[str, Any], workplace: Path, tmp_path: Path
) -> None:
    policies = PolicyValueSet.load(workplace / "set")
    replace(policies, recipe={**policies.recipe, **change}).save(tmp_path / "set")
    refused("adapt", tmp_path / "set", "--task", "0.3")


def test_a_set_for_other_tasks_is_refused(workplace: Path, tmp_path: Path) -> None:
    policies = PolicyValueSet.load(workplace / "set")
    replace(policies, recipe={**policies.recipe, "std": 0.05}).save(tmp_path / "set")
    assert "trained on other tasks" in refused("adapt", tmp_path / "set", "--task", "0.3")


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "{}", '{"experiment": "gridworld"}', "null", "[" * 100_000, '{"a": ' * 100_000, '{"seconds": NaN}'],
)
def test_report_refuses_what_is_no_result(content: str, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(content)
    assert "results.json" in refused("report", tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]


def test_report_does_not_wait_for_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "results.json")
    assert "must be a file" in refused("report", tmp_path)
    assert "Not a directory" in refused("report", tmp_path / "results.json")
    (tmp_path / "results.json").unlink()
    (tmp_path / "results.json").mkdir()
    assert "must be a file" in refused("report", tmp_path)


@pytest.mark.short_for(value=["NaN", '"x"'])
@pytest.mark.parametrize("value", ["NaN", "1e999", "-Infinity", '"\\ud800"', str(10**400), "[[[]]]", "{}", '"x"'])
@pytest.mark.parametrize("key", ["seconds", "version", "settings", "methods"])
def test_values_that_no_run_has_give_a_page_or_one_sentence(
    key: str, value: str, run_folder: Path, tmp_path: Path
) -> None:
    results = json.loads((run_folder / "results.json").read_text())
    if key == "methods":
        results["methods"]["published"]["min_margin"] = "here"
    elif key == "settings":
        results["settings"]["episodes"] = "here"
    else:
        results[key] = "here"
    (tmp_path / "results.json").write_text(json.dumps(results).replace('"here"', value))
    answer = surefoot("report", tmp_path)
    if answer.code == 0:  # a version may be any text, and a number of episodes as large as it likes
        assert key in ("version", "settings")
        assert (tmp_path / "report.html").is_file()
    else:
        assert (answer.code, len(answer.err.splitlines())) == (2, 1)
        assert [file.name for file in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.parametrize("key", ["methods", "events"])
def test_report_refuses_a_damaged_result(key: str, run_folder: Path, tmp_path: Path) -> None:
    results = json.loads((run_folder / "results.json").read_text())
    del results[key]
    (tmp_path / "results.json").write_text(json.dumps(results))
    message = refused("report", tmp_path)
    assert "damaged" in message
    assert key in message
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]


# ---------------------------------------------------------------------------------------------------------- properties

NUMERIC = ("--episodes", "--tasks", "--jobs", "--seed")
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


def whole(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


@given(st.sampled_from(NUMERIC), TEXT.filter(lambda text: not whole(text)) | st.integers(max_value=-1).map(str))
@example("--episodes", "0x10")
@example("--seed", "1.5")
@example("--tasks", "-0.0")
def test_whatever_is_no_count_is_refused(option: str, text: str) -> None:
    message = refused(*REPRODUCE, f"{option}={text}")
    assert option in message
    assert not Path("never").exists()


@given(st.sampled_from([REPRODUCE, ("plan", "nowhere")]), st.floats().filter(lambda value: not 0 < value < 1))
def test_whatever_is_no_probability_is_refused(command: tuple[str, ...], value: float) -> None:
    message = refused(*command, f"--risk={value!r}")
    assert "risk must lie strictly between 0 and 1" in message
    assert repr(value) in message


@given(
    st.lists(st.sampled_from(list(METHODS)), unique=True),
    TEXT.filter(lambda text: text.strip() not in METHODS and "," not in text),
)
def test_whatever_is_no_method_is_refused(good: list[str], bad: str) -> None:
    assert "methods must be names out of" in refused(*REPRODUCE, f"--methods={','.join([*good, bad])}")


WORDS = st.sampled_from(
    [
        "reproduce",
        "gridworld",
        "train",
        "adapt",
        "plan",
        "report",
        *NUMERIC,
        "--risk",
        "--task",
        "--json",
        "-1",
        "x",
        "",
    ]
)


@given(st.lists(WORDS | TEXT.filter(lambda text: "out" not in text and "bench" not in text), max_size=6))
def test_any_words_end_in_help_or_one_sentence(words: list[str]) -> None:
    """No traceback whatever is typed; without --out and a policy set nothing can be run."""
    answer = surefoot(*words)
    assert answer.code in (0, 2)
    assert "Traceback" not in answer.err
    if answer.code == 2:
        assert answer.out == ""
        assert answer.err.startswith("error: ")
        assert answer.err.count("\n") == 1


# ------------------------------------------------------------------------------------------------------- the documents

DOCUMENTS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))


def fenced(text: str, language: str) -> list[str]:
    """The fenced blocks of a Markdown text that are in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_the_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example_code,) = fenced((ROOT / "README.md").read_text(), "python")
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    with redirect_stdout(out), pytest.warns(UserWarning, match="theorem does not apply"):
        exec(compile(example_code, "README.md", "exec"), {})
    regret, never = map(int, re.findall(r"\d+", out.getvalue().splitlines()[0]))
    assert regret < never / 2
    assert out.getvalue().endswith("unsafe episodes 0\n")


def test_the_documents_name_every_command_and_no_other() -> None:
    text = "\n".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    named = re.findall(r"(?:`|^ +|\$ )surefoot\s+((?:reproduce\s+)?[a-z][a-z-]*)", text, re.MULTILINE)
    experiments = {f"reproduce {name}" for name in HELPS}
    assert {" ".join(name.split()) for name in named} - {"reproduce"} == experiments | (set(COMMANDS) - {"reproduce"})


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", *DOCUMENTS])
def test_links_lead_somewhere(name: str) -> None:
    folder = (ROOT / name).parent
    for link in re.findall(r"\]\(([^):]+)\)", (ROOT / name).read_text()):
        file, _, anchor = link.partition("#")
        target = folder / file if file else ROOT / name
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", *DOCUMENTS])
def test_files_that_are_named_exist(name: str) -> None:
    """By their place in the repository, or in the library."""
    named = re.findall(r"`((?:[a-z_]+/)+[A-Za-z_0-9.]+\.(?:py|md|json|lock))`", (ROOT / name).read_text())
    assert [file for file in named if not any((base / file).is_file() for base in (ROOT, ROOT / "src/surefoot"))] == []


def anchors(text: str) -> set[str]:
    """What the headings of a Markdown text are called in links to them, by GitHub's rule."""
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", plain, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_anchors() -> None:
    assert anchors("# One, `two`: three's 4.5\n```\n# no heading\n```\n## γ^H") == {"one-two-threes-45", "γh"}


def test_every_symbol_is_in_its_file() -> None:
    rows = [line.split(" | ") for line in (ROOT / "docs/glossary.md").read_text().splitlines() if line.startswith("| ")]
    checked = 0
    for _, names, files in (row for row in rows if "`" in row[-1]):
        text = "".join((ROOT / "src/surefoot" / file).read_text() for file in re.findall(r"`([^`]+)`", files))
        for code in re.findall(r"`([^`]+)`", names):
            for word in re.findall(r"[A-Za-z_]{2,}", code):
                assert re.search(rf"\b{word}\b", text), f"{code}: {word} is not in {files}"
                checked += 1
    assert checked > 80
