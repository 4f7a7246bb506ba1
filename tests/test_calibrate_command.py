"""`surefoot calibrate`, and the deployment that takes what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from surefoot.cli.calibrating import read_calibration
from surefoot.deploy.replay import recorded_settings
from surefoot.deploy.verify import read_header
from surefoot.errors import ArtifactError
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
    monkeypatch.setattr("surefoot.cli.deployment._lines", lambda: iter([b'{"do": "ask"}\n']))
    given = ["--method", "certified-likelihood", "--risk", "0.4", "--calibration", file]
    assert surefoot("deploy", policies, "--journal", journal, *given).code == 0
    assert recorded_settings(read_header(journal))["calibration"] == read_calibration(file)


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
    given = ("--episodes", "5", "--runs", "30", "--error", "0.01")
    assert "runs must be at least 113, or not even 0" in refused("calibrate", policies, *given, "--out", out)
    assert not out.exists()
