"""`surefoot calibrate`, and the deployment that takes what it writes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from surefoot.cli.calibrate import _calibration_lines, _tasks_of
from surefoot.deploy.calibration_files import read_calibration
from surefoot.deploy.replay import header_settings
from surefoot.deploy.verify import read_header
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.learning.calibrated import Calibration
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.tasks.task_distribution import TaskDistribution
from test_cli import refused, surefoot

SMALL = ["--episodes", "20", "--risk", "0.4", "--runs", "12", "--levels", "0.5", "--jobs", "1"]


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrate")
    assert surefoot("train", "gridworld", "--out", folder / "set", "--epsilon", "0.02").code == 0
    return folder / "set"


def test_what_is_written_is_what_deploy_takes(policies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, journal = tmp_path / "calibration.json", tmp_path / "journal"
    answer = surefoot("calibrate", policies, *SMALL, "--out", file)
    assert answer.code == 0, answer.err
    assert "level 0.5: 0 of 12 simulated tasks unsafe, passed" in answer.out
    assert "certified-likelihood at level 0.5, risk 0.4, at most 20 episodes" in answer.out
    monkeypatch.setattr("surefoot.cli.deploy._lines", lambda: iter([b'{"do": "ask"}\n']))
    given = ["--method", "certified-likelihood", "--risk", "0.4", "--calibration", file]
    assert surefoot("deploy", policies, "--journal", journal, *given).code == 0
    assert "claimed calibration" in surefoot("deploy", policies, "--journal", journal, *given).err
    recorded = header_settings(read_header(journal))["calibration"]
    assert recorded == read_calibration(file)
    assert "up to 2 of 12 may be unsafe" in answer.out


def test_a_sealed_or_recounted_one_is_certified(
    policies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, key = tmp_path / "calibration.json", tmp_path / "key"
    key.write_bytes(b"k" * 32)
    assert surefoot("calibrate", policies, *SMALL, "--out", file, "--key", key).code == 0
    monkeypatch.setattr("surefoot.cli.deploy._lines", lambda: iter([b'{"do": "ask"}\n']))
    given = ("--method", "certified-likelihood", "--risk", "0.4", "--calibration", file)
    for name, how, standing in (("a", ("--key", key), "sealed"), ("b", ("--recount", "5"), "recounted")):
        answer = surefoot("deploy", policies, "--journal", tmp_path / name, *given, *how)
        assert answer.code == 0, answer.err
        header = read_header(tmp_path / name)
        assert header["certified"]
        assert header["settings"]["calibration"]["standing"] == standing
    assert "5 of 12 runs computed again, drawn with seed" in answer.err
    checked = surefoot("verify", tmp_path / "b", "--policies", policies, "--recount", "5")
    assert checked.code == 0
    assert "all are as the calibration says" in checked.out


def test_a_changed_one_is_found_out(policies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It deploys as claimed; counting again refuses it, and so does checking the journal."""
    file, journal = tmp_path / "calibration.json", tmp_path / "journal"
    content = surefoot("calibrate", policies, *SMALL, "--out", file, "--json").json
    content |= {"counts": [[0.5, 2]], "unsafe_runs": [[0, 1]]}  # unlike in truth: any difference will do
    file.write_text(json.dumps(content))
    monkeypatch.setattr("surefoot.cli.deploy._lines", lambda: iter([b'{"do": "ask"}\n']))
    given = ("--method", "certified-likelihood", "--risk", "0.4", "--calibration", file)
    assert "are not as it says" in surefoot("deploy", policies, "--journal", journal, *given, "--recount", "12").err
    assert not journal.exists()
    assert surefoot("deploy", policies, "--journal", journal, *given).code == 0
    assert not read_header(journal)["certified"]
    said = surefoot("verify", journal, "--policies", policies).out
    assert "(uncertified)" in said
    assert "claimed" in said
    assert "are not as it says" in surefoot("verify", journal, "--policies", policies, "--recount", "12").err


def test_what_falling_back_costs_is_said(policies: Path, tmp_path: Path) -> None:
    found = Calibration("certified-likelihood", 20, 0.05, 0.0, None, 19, ((0.1, 1),), 20, "0" * 64, gains=(0.5,))
    said = " ".join(_calibration_lines(found))
    assert "no setting passed: use certified-likelihood as it is proved" in said
    assert "joint risk of at most 0.068 instead of 0.05" in said
    assert "elsewhere its risk is joint over the training" in said
    assert "calibrating again is attempt 3" in " ".join(
        _calibration_lines(replace(found, attempt=2, runs=200, counts=((0.1, 9),)))
    )


def test_a_file_that_holds_null_is_refused(policies: Path, tmp_path: Path) -> None:
    (tmp_path / "null.json").write_text("null")
    given = ("--method", "certified-likelihood", "--calibration", tmp_path / "null.json")
    answer = surefoot("deploy", policies, "--journal", tmp_path / "journal", *given)
    assert (answer.code, "must hold an object" in answer.err) == (2, True)
    answer = surefoot("deploy", policies, "--journal", tmp_path / "journal", "--recount", "9")
    assert (answer.code, "recount must come with a calibration" in answer.err) == (2, True)
    assert not (tmp_path / "journal").exists()


def test_json(policies: Path, tmp_path: Path) -> None:
    found = surefoot("calibrate", policies, *SMALL, "--out", tmp_path / "calibration.json", "--json").json
    assert found == json.loads((tmp_path / "calibration.json").read_text())
    assert found["level"] == 0.5
    assert found["error"] == 0


def test_files_that_are_no_calibrations(policies: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("{")
    with pytest.raises(ArtifactError, match=r"calibration: .* is not JSON"):
        read_calibration(tmp_path / "empty.json")
    (tmp_path / "other.json").write_text("{}")
    answer = surefoot(
        *("deploy", policies, "--journal", tmp_path / "journal", "--method", "certified-likelihood"),
        *("--calibration", tmp_path / "other.json"),
    )
    assert answer.code == 2
    assert "calibration must hold method, episodes" in answer.err


def test_refused_before_anything_is_run(policies: Path, tmp_path: Path) -> None:
    out = tmp_path / "calibration.json"
    assert "runs must be at least" in refused("calibrate", policies, "--episodes", "5", "--runs", "3", "--out", out)
    given = ("--episodes", "5", "--runs", "30", "--error", "0.01", "--attempt", "0")
    assert "runs must be at least 113, or not even 0" in refused("calibrate", policies, *given, "--out", out)
    assert not out.exists()


# ------------------------------------------------------------------------------------------- paths, a pilot and a page


def without_levels() -> list[str]:
    return [word for word in SMALL if word not in ("--levels", "0.5")]


def test_a_page_from_the_record_or_from_memory(policies: Path, tmp_path: Path) -> None:
    record = ("--record", tmp_path / "runs")
    for name, further in (("kept", record), ("resumed", record), ("memory", ())):
        answer = surefoot(
            *("calibrate", policies, *SMALL, "--out", tmp_path / "found.json", "--page", tmp_path / f"{name}.html"),
            *further,
        )
        assert answer.code == 0, answer.err
        assert str(tmp_path / f"{name}.html") in answer.out
    kept, resumed, memory = ((tmp_path / f"{name}.html").read_text() for name in ("kept", "resumed", "memory"))
    assert kept == resumed == memory
    assert "certified-likelihood be as bold as level 0.5" in kept
    assert len((tmp_path / "runs").read_text().splitlines()) == 13


def test_a_path_from_a_file_and_a_pilot_among_several(policies: Path, tmp_path: Path) -> None:
    (tmp_path / "path.json").write_text('[0.45, {"level": 0.5, "slack": 0.1}]')
    (tmp_path / "paths.json").write_text('[[{"level": 0.41, "slack": 0.9}], [0.45, 0.5]]')
    given = ("calibrate", policies, *without_levels(), "--out", tmp_path / "found.json", "--json")
    found = surefoot(*given, "--path", tmp_path / "path.json").json
    assert [setting for setting, _ in found["counts"]] == [0.45, {"level": 0.5, "slack": 0.1}]
    found = surefoot(*given, "--path", tmp_path / "paths.json", "--pilot", "5").json
    assert [setting for setting, _ in found["counts"]] == [0.45, 0.5], "the one that earns more"


def test_what_is_no_path_is_refused(policies: Path, tmp_path: Path) -> None:
    given = ("calibrate", policies, *without_levels(), "--out", tmp_path / "found.json")
    assert "pilot must come with --path FILE" in refused(*given, "--pilot", "5")
    for text, message in (("{", "is not JSON"), ('{"level": 0.5}', "must hold a list"), ("[]", "levels must be")):
        (tmp_path / "path.json").write_text(text)
        answer = surefoot(*given, "--path", tmp_path / "path.json")
        assert (answer.code, message in answer.err) == (2, True), answer.err
    (tmp_path / "path.json").write_text("[0.45, 0.5]")
    assert "paths must be lists of settings" in refused(*given, "--path", tmp_path / "path.json", "--pilot", "5")
    assert "path and levels must not both be given" in refused(
        *given, "--path", tmp_path / "path.json", "--levels", "0.5"
    )
    assert not (tmp_path / "found.json").exists()


# ------------------------------------------------------------------------------------------- tasks of one's own


def slippery() -> TaskDistribution:
    """Other tasks than the policies were trained on."""
    return gridworld(std=0.02)


def not_tasks() -> str:
    return "gridworld"


HERE = f"{__name__}:slippery"


def test_runs_on_other_tasks_are_counted_again_on_these(
    policies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, journal = tmp_path / "calibration.json", tmp_path / "journal"
    assert surefoot("calibrate", policies, *SMALL, "--out", file, "--tasks", HERE).code == 0
    monkeypatch.setattr("surefoot.cli.deploy._lines", lambda: iter([b'{"do": "ask"}\n']))
    begin = ("deploy", policies, "--journal", journal, "--method", "certified-likelihood", "--risk", "0.4")
    begin += ("--calibration", file, "--recount", "5")
    said = surefoot(*begin).err
    assert "tasks must be those that the calibration was made on, gridworld (kernel published, std 0.02" in said
    assert "but SET was trained on others" in said
    assert "--tasks MODULE:NAME" in said
    assert "that returns tasks, got str" in surefoot(*begin, "--tasks", f"{__name__}:not_tasks").err
    assert not journal.exists()
    answer = surefoot(*begin, "--tasks", HERE)
    assert answer.code == 0, answer.err
    assert read_header(journal)["settings"]["calibration"]["standing"] == "recounted"

    check = ("verify", journal, "--policies", policies)
    assert "but SET was trained on others" in surefoot(*check, "--recount", "5").err
    checked = surefoot(*check, "--recount", "5", "--tasks", HERE)
    assert (checked.code, "all are as the calibration says" in checked.out) == (0, True)
    assert "tasks must come with recount" in refused(*check, "--tasks", HERE)
    assert "tasks must come with recount" in surefoot(*begin[:-2], "--tasks", HERE).err


def test_tasks_of_a_module_in_the_folder_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_tasks.py").write_text("from surefoot.tasks.gridworld_tasks import gridworld as make\n")
    monkeypatch.setattr("sys.path", list(sys.path))
    with pytest.raises(InvalidInput, match="No module named 'my_own_tasks'"):
        _tasks_of("my_own_tasks:make")
    monkeypatch.chdir(tmp_path)
    assert _tasks_of("my_own_tasks:make").digest() == gridworld().digest()


# ------------------------------------------------------------------------------------------------------- in the plan


def test_a_plan_has_a_line_for_it(policies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surefoot.simulate.plan.TRIAL_EPISODES", 20)
    monkeypatch.setattr("surefoot.simulate.plan.TRIAL_TASKS", 1)
    file, key = tmp_path / "calibration.json", tmp_path / "key"
    key.write_bytes(b"k" * 32)
    assert surefoot("calibrate", policies, *SMALL, "--out", file, "--key", key).code == 0
    plan = ("plan", policies, "--risk", "0.4", "--calibration", file)
    for how, certified, words in (((), False, "claimed calibration"), (("--key", key), True, "certified by calibr")):
        line = surefoot(*plan, *how, "--json").json[1]
        assert (line["method"], line["certified"]) == ("certified-likelihood, calibrated", certified)
        assert words in line["reason"]
    assert "certified-likelihood, calibrated  uncertified" in surefoot(*plan).out
    assert "key must come with a calibration" in refused("plan", policies, "--key", key)
    assert "calibration must be left out with --table" in refused("plan", policies, "--table", "--calibration", file)
