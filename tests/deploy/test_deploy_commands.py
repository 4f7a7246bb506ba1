"""The commands for deployments, through a command line of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import deployments
import onnx
import pytest
import safetensors.numpy
from deployments import fresh
from mutations import execute, forge
from typer.testing import CliRunner

from surefoot.cli import app
from surefoot.cli.journals import read_key
from surefoot.cli.pages import report_journal
from surefoot.deploy.chain import canonical, read
from surefoot.deploy.session import Deployment
from surefoot.deploy.status import read_status
from surefoot.deploy.verify import verify
from surefoot.errors import ArtifactError, InvalidInput, SurefootError
from surefoot.policyset.policy_value_set import PolicyValueSet


def run(*words: object, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words], input=stdin)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    deployments.deployed(tmp_path / "journal", 30)
    return tmp_path / "journal"


def requests(*lines: dict[str, Any]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_deploy_speaks_json_lines_and_goes_on_where_it_stopped(stored: Path, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    options = ("--method", "certified-returns", "--risk", 0.3, "--horizon", 20, "--seed", 4)
    first = run(
        "deploy", stored, "--journal", path, *options,
        stdin=requests({"do": "ask"}, {"do": "tell", "episode": 0, "reward": 1, "cost": 0.5, "first_state": 0},
                       {"do": "ask"}),
    )  # fmt: skip
    assert first.exit_code == 0, first.output
    answers = [json.loads(line) for line in first.stdout.splitlines()]
    assert [answer["ok"] for answer in answers] == [True] * 3
    assert answers[2]["order"]["episode"] == 1
    again = run("deploy", stored, "--journal", path, stdin=requests({"do": "ask"}, {"do": "status"}))
    order, status = (json.loads(line) for line in again.stdout.splitlines())
    assert order["order"] == answers[2]["order"]
    assert status["status"]["settings"]["seed"] == 4
    other = run("deploy", stored, "--journal", path, "--seed", 5, stdin="")
    assert isinstance(other.exception, InvalidInput)
    assert "seed must be 4" in str(other.exception)
    assert json.loads(other.stdout)["error"]["kind"] == "invalid"


@pytest.mark.long
def test_deploy_in_a_process_of_its_own(stored: Path, tmp_path: Path) -> None:
    """A conversation over pipes, the process killed in the midst of it, and the same order afterwards."""
    script = "from surefoot.cli import app; app()"
    command = [sys.executable, "-c", script, "deploy", str(stored), "--journal", str(tmp_path / "lines")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    orders = []
    for _ in range(2):
        process = subprocess.Popen(
            [*command, "--method", "certified-returns"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write('{"do": "ask"}\n')
        process.stdin.flush()
        orders.append(json.loads(process.stdout.readline())["order"])
        process.kill()
        process.communicate()
    assert orders[0] == orders[1]
    assert orders[0]["episode"] == 0


def test_status_and_export(journal: Path, tmp_path: Path) -> None:
    text = run("status", journal)
    assert text.exit_code == 0
    assert "30 (abandoned 5)" in text.stdout
    status = json.loads(run("status", journal, "--json").stdout)
    assert status["episodes"] == 30
    lines = [json.loads(line) for line in run("export", journal).stdout.splitlines()]
    assert [line["n"] for line in lines] == list(range(len(lines)))
    assert lines[-1]["hash"] == status["head"]
    assert [line["payload"] for line in lines] == [row.data for row in read(journal)]
    assert run("export", journal, "--out", tmp_path / "rows").exit_code == 0
    assert (tmp_path / "rows").read_text() == run("export", journal).stdout
    missing = run("status", tmp_path / "nothing")
    assert isinstance(missing.exception, ArtifactError)


def test_reading_a_long_journal_says_how_far_it_is(
    journal: Path, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = run("deploy", stored, "--journal", journal, stdin="")
    assert (quiet.exit_code, quiet.stderr) == (0, "")
    monkeypatch.setattr("surefoot.cli.journals.LONG", 10)
    monkeypatch.setattr("surefoot.deploy.chain.NOW_AND_THEN", 20)
    told = run("deploy", stored, "--journal", journal, stdin="")
    assert (told.exit_code, told.stdout, told.stderr) == (0, "", "reading the journal ...\n")
    for words in (("status", journal), ("report", journal)):
        assert run(*words).stderr == "reading the journal ...\n"
    read: list[int] = []
    Deployment.open(journal, fresh(), observer=read.append).close()
    assert read[:2] == [20, 40]


def test_verify(journal: Path, stored: Path, tmp_path: Path) -> None:
    right = run("verify", journal, "--policies", stored)
    assert right.exit_code == 0
    for words in (
        "30 episodes follow",
        "method certified-returns (with a certificate), risk 0.3",
        "whether the outcomes are true cannot be seen",
    ):
        assert words in right.stdout
    verdict = verify(journal, fresh())
    assert json.loads(run("verify", journal, "--policies", stored, "--json").stdout) == verdict.as_dict()
    assert run("verify", journal, "--policies", stored, "--head", verdict.head).exit_code == 0
    assert run("verify", journal, "--policies", stored, "--head", "00" * 32).exit_code == 1
    execute(journal, ("UPDATE rows SET payload = replace(payload, '0.', '1.') WHERE n = 7",))
    wrong = run("verify", journal, "--policies", stored)
    assert wrong.exit_code == 1
    assert "first bad row 7" in wrong.stdout
    deployments.short_phase_set().save(tmp_path / "other")
    other = run("verify", journal, "--policies", tmp_path / "other")
    assert isinstance(other.exception, SurefootError) or other.exit_code == 1


def test_report(journal: Path, stored: Path) -> None:
    page = report_journal(journal)
    text = page.read_text(encoding="utf-8")
    assert page == journal.with_name("journal.html")
    assert text.count('role="img"') == 4
    assert "operator pressed stop" in text
    assert "30 (abandoned 5)" in text
    assert "Parameter of the system" in report_journal(journal, policies=stored).read_text(encoding="utf-8")
    with pytest.raises(ArtifactError):
        report_journal(journal, journal / "page.html")


def test_policies_leave_as_files(stored: Path, journal: Path, tmp_path: Path) -> None:
    out = tmp_path / "policy.safetensors"
    assert run("export-policy", stored, 2, "--out", out).exit_code == 0
    expected = PolicyValueSet.load(stored).policies[2].to_arrays()["probabilities"]
    assert (safetensors.numpy.load_file(out)["probabilities"] == expected).all()
    assert run("export-policy", stored, 2, "--out", out, "--journal", journal).exit_code == 0
    for words, message in (((99, "--out", out), "at most 3"), ((0, "--out", tmp_path / "policy.txt"), "must end in")):
        refused = run("export-policy", stored, *words)
        assert isinstance(refused.exception, InvalidInput)
        assert message in str(refused.exception)


def test_policies_leave_as_onnx(stored: Path, tmp_path: Path) -> None:
    out = tmp_path / "policy.onnx"
    assert run("export-policy", stored, 2, "--out", out).exit_code == 0
    model = onnx.load(out)
    (node,) = model.graph.node
    assert node.op_type == "Gather"
    table = onnx.numpy_helper.to_array(model.graph.initializer[0])
    assert (table == PolicyValueSet.load(stored).policies[2].to_arrays()["probabilities"]).all()


def test_onnx_says_when_it_is_missing(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    refused = run("export-policy", stored, 2, "--out", tmp_path / "policy.onnx")
    assert "pip install 'surefoot[onnx]'" in str(refused.exception)


def test_a_key_that_others_can_read_is_pointed_out(stored: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    for mode in (0o644, 0o640, 0o620):
        key.chmod(mode)
        with pytest.warns(UserWarning, match=r"other users can read or change .*key; make it private with chmod 600"):
            read_key(key)
    key.chmod(0o600)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_key(key) == bytes(range(32))


def test_a_key_is_a_plain_file(stored: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for wrong, words in (("pipe", "must be a file"), (".", "must be a file"), ("missing", "No such file")):
        done = run("deploy", stored, "--journal", tmp_path / "new", "--key", tmp_path / wrong, stdin="")
        assert isinstance(done.exception, ArtifactError)
        assert str(done.exception).startswith("key: ")
        assert words in str(done.exception)


def test_a_key_on_the_command_line(stored: Path, tmp_path: Path) -> None:
    key, other, path = tmp_path / "key", tmp_path / "other", tmp_path / "sealed"
    key.write_bytes(bytes(range(32)))
    other.write_bytes(bytes(range(1, 33)))
    for file in (key, other):
        file.chmod(0o600)
    options = ("--method", "certified-returns", "--risk", 0.3, "--horizon", 20)
    assert (
        run("deploy", stored, "--journal", path, *options, "--key", key, stdin=requests({"do": "ask"})).exit_code == 0
    )
    right = run("verify", path, "--policies", stored, "--key", key)
    assert right.exit_code == 0
    assert "sealed with this key" in right.stdout
    assert run("verify", path, "--policies", stored, "--key", other).exit_code == 1
    for words in ((), ("--key", other), ("--key", tmp_path / "missing")):
        assert isinstance(run("deploy", stored, "--journal", path, *words, stdin="").exception, SurefootError)


def test_backup(journal: Path, stored: Path, tmp_path: Path) -> None:
    made = run("backup", journal, tmp_path / "copy")
    assert made.exit_code == 0
    assert read_status(journal).head in made.stdout
    assert run("verify", tmp_path / "copy", "--policies", stored).exit_code == 0
    again = run("backup", journal, tmp_path / "copy")
    assert isinstance(again.exception, ArtifactError)
    document = json.loads(run("backup", journal, tmp_path / "more", "--json").stdout)
    assert document["rows"] == read_status(journal).rows
    older = (tmp_path / "copy").read_bytes()
    with Deployment.open(journal, fresh()) as deployment:
        deployments.drive(deployment, 31)
    journal.write_bytes(older)
    lost = run("backup", journal, tmp_path / "rest")
    assert "--accept-loss" in str(lost.exception)
    assert run("backup", journal, tmp_path / "rest", "--accept-loss").exit_code == 0


def test_files_are_never_written_through_links(journal: Path, stored: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    for name, words in (
        ("journal.html", None),
        ("rows", ("export", journal, "--out")),
        ("policy.safetensors", ("export-policy", stored, 2, "--out")),
    ):
        victim.write_text("mine")
        link = tmp_path / name
        link.symlink_to(victim)
        if words is None:
            report_journal(journal)
        else:
            assert run(*words, link).exit_code == 0
        assert victim.read_text() == "mine"
        assert not link.is_symlink()
        assert link.stat().st_size > 100


def test_a_failing_export_leaves_the_old_file(journal: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows"
    out.write_text("mine")
    execute(journal, ("UPDATE rows SET payload = '{}' WHERE n = 40",))
    assert isinstance(run("export", journal, "--out", out).exception, ArtifactError)
    assert out.read_text() == "mine"


def test_what_steers_a_terminal_is_shown_as_text(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    deployments.deployed(path, 2)
    rows = [(kind, payload) for kind, payload, _ in deployments.contents(path)]
    alarm = {"episode": 2, "kind": "alarm", "message": "\x1b[2J\x1b]0;owned\x07", "data": {}}
    forge(path, [*rows, ("event", canonical(alarm))])
    path.with_name("journal.mark").unlink()
    text = run("status", path).stdout
    assert "\x1b" not in text
    assert "\\x1b[2J" in text


def test_a_path_that_no_terminal_can_print(stored: Path, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"odd-\xff")
    deployments.deployed(path, 2)
    for words in (("status", path), ("verify", path, "--policies", stored), ("backup", path, tmp_path / "copy")):
        assert run(*words).exit_code == 0
