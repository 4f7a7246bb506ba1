"""Options of the command line: none is ignored, all have --json, a shell can complete them; and progress in logs."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from surefoot import progress
from surefoot.cli.commands import COMMANDS
from test_cli import HEAVY, ROOT, refused, surefoot

REPRODUCE, NEVER = "reproduce", ("--out", "never")
JOURNAL = ROOT / "tests/assets/journal-1.0-returns.journal"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ((REPRODUCE, "locomotion", *NEVER, "--share", "0.5"), ["share", "--retrain", "0.5"]),
        ((REPRODUCE, "locomotion", *NEVER, "--methods", "pce", "--network-tasks", "1"), ["network_tasks", "networks"]),
        ((REPRODUCE, "locomotion", *NEVER, "--methods", "pce", "--network-episodes", "9"), ["network_episodes", "9"]),
        ((REPRODUCE, "locomotion", *NEVER, "--methods", "paper", "--judged-others", "9"), ["judged_others", "9"]),
        ((REPRODUCE, "glucose", *NEVER, "--methods", "safe-only", "--other-risks", "0.1"), ["other_risks", "signals"]),
        ((REPRODUCE, "glucose", *NEVER, "--methods", "pce", "--compared-patients", "3"), ["compared_patients", "3"]),
        ((REPRODUCE, "promise", *NEVER, "--number", "3"), ["number", "random", "3"]),
        ((REPRODUCE, "promise", *NEVER, "--kind", "affine"), ["kind", "random", "affine"]),
        (
            (REPRODUCE, "baselines", *NEVER, "--benchmarks", "media", "--methods", "safe-only,lb-sgd-theory"),
            ["methods", "media", "got lb-sgd-theory"],
        ),
        ((REPRODUCE, "covering", *NEVER, "--families", "windy", "--epsilons", "0.005"), ["epsilons", "windy", "0.005"]),
        (("train", "windy", *NEVER, "--kernel", "text"), ["kernel", "windy", "text"]),
        (("plan", "--table", "--episodes", "5"), ["episodes", "--table", "5"]),
        (("plan", "--table", "--risk", "0.1"), ["risk", "--table", "0.1"]),
        (("plan", "--states", "3"), ["states", "--table", "3"]),
        (("plan", "--cover", "3"), ["cover", "--table", "3"]),
        (("report", "nowhere", "--policies", "set"), ["--policies", "journal", "nowhere"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_option_that_does_not_apply_is_refused(
    words: tuple[str, ...], parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    message = refused(*words)
    assert [part for part in parts if part not in message] == [], message
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------------------------------------- --json


def leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for below in command.commands:
            yield from leaves(f"{name} {below}", command.load(below))
    else:
        yield name, command


def test_every_command_but_deploy_has_json() -> None:
    """`deploy` answers in lines of JSON as it is."""
    found = dict(pair for name, command in COMMANDS.items() for pair in leaves(name, command.load_command(name)))
    assert len(found) > 20
    assert [name for name, each in found.items() if not any("--json" in option.opts for option in each.params)] == [
        "deploy"
    ]


def test_rows_of_a_journal_as_one_document(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in surefoot("export", JOURNAL).out.splitlines()]
    assert len(lines) > 2
    assert surefoot("export", JOURNAL, "--json").json == lines
    written = surefoot("export", JOURNAL, "--out", tmp_path / "rows", "--json")
    assert written.json == {"file": str(tmp_path / "rows")}
    assert [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()] == lines


# ------------------------------------------------------------------------------------------------------ shells, imports


@pytest.mark.short_for(completed=["--json"])
@pytest.mark.parametrize(
    ("typed", "completed"), [("surefoot ad", "adapt"), ("surefoot status --j", "--json"), ("surefoot bac", "backup")]
)
def test_a_shell_can_complete_what_was_typed(typed: str, completed: str) -> None:
    code = "import sys; sys.argv[:] = ['surefoot']; from surefoot.cli import main; main()"
    asked = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" ")), "_SUREFOOT_COMPLETE": "complete_bash"}
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == ([completed], "")


def test_the_library_imports_nothing_until_it_is_used() -> None:
    code = "import sys, surefoot; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "surefoot.on_demand" in loaded
    assert loaded & (HEAVY | {"typer", "rich", "pydantic"}) == set()


# ------------------------------------------------------------------------------------------------------------- progress


def test_a_log_gets_a_line_per_stage_and_one_now_and_then() -> None:
    now = 0.0
    console = Console(file=io.StringIO(), width=200)
    line = progress._lines(console, lambda: now)
    for now in range(0, 100, 2):
        line("training", now, 100)
    line("nobody knows how long", 0, 0)
    now = 3800.0
    line("nobody knows how long", 0, 0)
    assert console.file.getvalue().splitlines() == [
        "training ...",
        "training ... 30 of 100 after 0:30, about 1:10 to go",
        "training ... 60 of 100 after 1:00, about 0:40 to go",
        "training ... 90 of 100 after 1:30, about 0:10 to go",
        "nobody knows how long ...",
        "nobody knows how long ... 1:01:42 so far",
    ]


def test_whoever_shows_progress_already_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    with progress.progress_reporter(lambda *stage: told.append(stage)) as show:
        show("stage", 1, 2)
    progress.say(lambda *stage: told.append(stage), "a line for nobody")
    assert told == [("stage", 1, 2)]
