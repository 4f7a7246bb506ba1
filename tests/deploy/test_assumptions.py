"""What a certificate rests on is said by every view, and no journal can hide it, whatever is written into row 0."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deployments
import pytest
from deployments import HORIZON, fresh
from mutations import forge
from test_alarms_seen import calibrated
from typer.testing import CliRunner
from views import READERS, VIEWS, followed

from surefoot.cli import app
from surefoot.cli.deploy import learner_of
from surefoot.deploy.chain import canonical, key_name, read
from surefoot.deploy.journal import Journal
from surefoot.deploy.page import deployment_page
from surefoot.deploy.session import Deployment
from surefoot.deploy.status import assumptions, facts, read_status
from surefoot.deploy.verify import read_header, verify
from surefoot.errors import ArtifactError, SurefootError
from surefoot.learning.learner import Learner
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet

ASSETS = Path(__file__).parents[1] / "assets"
KEY = bytes(range(32))
Payload = dict[str, Any]


def trusting(method: str = "certified-returns", **options: Any) -> Callable[[], Learner]:
    return lambda: learner(deployments.tiny_set(), method=method, risk=0.3, seed=5, horizon=HORIZON, **options)


TRUSTED = {
    "assume_safe": (
        trusting("certified-model-free", assume_safe=True),
        "the safe policy keeps every budget on this very system (assume_safe): taken on trust, not proved",
    ),
    "shift": (trusting(shift=0.001), "the system lies within 0.001 of the tasks trained for (shift)"),
    "calibration": (calibrated, "level 0.11 for 3 episodes, from 1,000 simulated tasks"),
}


@pytest.mark.parametrize("what", TRUSTED)
def test_what_is_trusted_is_said_everywhere(tmp_path: Path, what: str) -> None:
    maker, words = TRUSTED[what]
    with Deployment.open(tmp_path / "journal", maker()) as deployment:
        deployment.tell(order := deployment.ask(), **deployments.told(order))
        for look in VIEWS:
            text = VIEWS[look](tmp_path / "journal", deployment, maker).text
            assert words in text
            assert "surefoot-journal 1.1" in text


def test_what_is_not_assumed_is_not_said(tmp_path: Path) -> None:
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        for look in VIEWS:
            assert not re.search("assume_safe|shift|level", VIEWS[look](tmp_path / "journal", deployment, fresh).text)


def test_a_calibration_says_all_that_is_known_of_it() -> None:
    opened: Payload = {"format": "surefoot-journal", "format_version": [1, 1], "method": "certified-returns"}
    opened["settings"] = {"calibration": {"level": 0.11, "episodes": 1000, "runs": 2000}}

    def said(**more: Any) -> str:
        settings = {"calibration": {**opened["settings"]["calibration"], **more}}
        return dict(assumptions({**opened, "settings": settings}, False))["calibration"]

    assert said() == (
        "level 0.11 for 1,000 episodes, from 2,000 simulated tasks (which, is not recorded), attempt not recorded, "
        "seed not recorded; the journal does not say who counted it"
    )
    known = said(attempt=2, seed=7, tasks="wheel (slip 0.1), digest 0123", standing="claimed")
    for words in ("(wheel (slip 0.1), digest 0123)", "attempt 2", "seed 7", "; claimed", "nothing is certified"):
        assert words in known
    assert "the only attempt" in said(attempt=0)
    assert "counted by who began the journal" in said(standing="counted")
    assert "computed again" in said(standing="recounted")
    assert "the key proved it" in said(standing="sealed")


# ---------------------------------------------------------------------------------------------------- an older label


def relabelled(path: Path, change: Callable[[Payload], Payload]) -> None:
    """Row 0 as somebody would write it who computes all hashes again."""
    rows = [(row.kind, row.payload) for row in read(path)]
    rows[0] = ("open", canonical(change(json.loads(rows[0][1]))))
    forge(path, rows)
    path.with_name(path.name + ".mark").unlink(missing_ok=True)


def as_first_format(opened: Payload) -> Payload:
    kept = {name: value for name, value in opened.items() if name not in ("key", "risk_split")}
    settings = {name: value for name, value in opened["settings"].items() if name != "assume_safe"}
    return {**kept, "format_version": [1, 0], "settings": settings}


def test_an_older_label_hides_no_assumption(tmp_path: Path) -> None:
    path, maker = tmp_path / "journal", trusting("certified-model-free", assume_safe=True)
    with Deployment.open(path, maker()) as deployment:
        for _ in range(3):
            deployment.tell(deployment.ask(), reward=1.0, cost=0.4)
    relabelled(path, as_first_format)
    for look in READERS:
        text = READERS[look](path, None, lambda: learner_of(deployments.tiny_set(), read_header(path))).text
        assert "assume_safe, taken for granted by format 1.0" in text
        assert "surefoot-journal 1.0" in text


@pytest.mark.parametrize("asset", sorted(ASSETS.glob("journal-1.0-*.journal")), ids=lambda path: path.stem)
def test_journals_of_the_first_format_say_what_they_took_for_granted(tmp_path: Path, asset: Path) -> None:
    path, policies = tmp_path / "journal", PolicyValueSet.load(asset.with_suffix(".policyset"))
    shutil.copyfile(asset, path)
    for look in READERS:
        text = READERS[look](path, None, lambda: learner_of(policies, read_header(path))).text
        assert ("assume_safe, taken for granted by format 1.0" in text) == ("paper" in asset.name)
        assert "surefoot-journal 1.0" in text


LATER = [
    lambda row: {**row, "key": None},
    lambda row: {**row, "task_horizon": 20},
    lambda row: {**row, "settings": {**row["settings"], "assume_safe": True}},
    lambda row: {**row, "settings": {**row["settings"], "shift": 0.0}},
    lambda row: {**row, "settings": {**row["settings"], "calibration": None}},
]


@pytest.mark.parametrize("change", LATER)
def test_the_first_format_cannot_hold_what_it_did_not_know(
    tmp_path: Path, stored: Path, change: Callable[[Payload], Payload]
) -> None:
    path = tmp_path / "journal"
    deployments.deployed(path, 3)
    relabelled(path, lambda row: change(as_first_format(row)))
    refused_by_all(path, stored, "which format 1.0 did not know")


# -------------------------------------------------------------------------------------------------------- strange rows


def refused_by_all(path: Path, stored: Path, words: str) -> None:
    """In one sentence that names the file, never by a traceback."""
    follower = followed(path)
    assert words in follower.view.verdict
    assert str(path) in follower.view.verdict
    assert follower.view.tone == "bad"
    for line in (
        ["status", path],
        ["report", path],
        ["report", path, "--policies", stored],
        ["verify", path, "--policies", stored],
        ["deploy", stored, "--journal", path],
        ["export-policy", stored, "3", "--journal", path, "--out", path.parent / "policy.safetensors"],
    ):
        told = CliRunner().invoke(app, [str(word) for word in line], input="")
        assert isinstance(told.exception, SurefootError | SystemExit), (line, told.exception)
        said = told.output if isinstance(told.exception, SystemExit) else str(told.exception)
        assert words in said, (line, said)
        assert str(path) in said, (line, said)
        assert told.exit_code


def put(name: str, value: Any) -> Callable[[Payload], Payload]:
    return lambda row: {**row, "settings": {**row["settings"], name: value}}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("calibration", value) for value in ("x", {}, 5, [1], {"level": "x", "episodes": 3, "runs": 7})),
        ("method", ["certified-returns"]),
        ("method", {}),
        ("risk", "<b>none</b>"),
        ("shift", [0.1]),
        ("assume_safe", "no"),
    ],
)  # fmt: skip
def test_malformed_settings_are_refused_in_a_sentence(tmp_path: Path, stored: Path, name: str, value: Any) -> None:
    deployments.deployed(tmp_path / "journal", 2)
    relabelled(tmp_path / "journal", put(name, value))
    refused_by_all(tmp_path / "journal", stored, "row 0 (open) has no proper 'settings'")


def test_what_is_wrong_with_a_row_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    deployments.deployed(path, 3)
    rows = [(row.kind, row.payload) for row in read(path)]
    last = max(n for n, (kind, _) in enumerate(rows) if kind == "decision")
    for payload, words in ((b"[]", f"row {last} must hold an object"), (b"{}", f"row {last} (decision) has no proper")):
        forge(path, [*rows[:last], ("decision", payload), *rows[last + 1 :]])
        path.with_name("journal.mark").unlink(missing_ok=True)
        for reader in (read_status, deployment_page):
            with pytest.raises(ArtifactError, match=re.escape(f"{path}: {words}")):
                reader(path)


# --------------------------------------------------------------------------------------------------------------- seals


@pytest.mark.parametrize("name", [5, "<b>approved</b>", {"TUV": "yes"}, "0123456789ABCDEF", "0123456789abcde", True])
def test_what_names_no_key_is_refused(tmp_path: Path, stored: Path, name: Any) -> None:
    deployments.deployed(tmp_path / "journal", 2)
    relabelled(tmp_path / "journal", lambda row: {**row, "key": name})
    refused_by_all(tmp_path / "journal", stored, "row 0 (open) has no proper 'key'")


def test_a_key_is_named_exactly_if_there_are_seals(tmp_path: Path, stored: Path) -> None:
    deployments.deployed(tmp_path / "named", 2)
    relabelled(tmp_path / "named", lambda row: {**row, "key": "0123456789abcdef"})
    refused_by_all(tmp_path / "named", stored, "row 0 names a key, but there is no table of seals")
    with Deployment.open(tmp_path / "sealed", fresh(), key=KEY) as deployment:
        deployments.drive(deployment, 2)
    relabelled(tmp_path / "sealed", lambda row: {**row, "key": None})
    with sqlite3.connect(tmp_path / "sealed") as connection:
        assert connection.execute("SELECT count(*) FROM seals").fetchone()[0]
    refused_by_all(tmp_path / "sealed", stored, "row 0 names no key, but there is a table of seals")


def test_sealed_is_said_only_where_the_key_proved_it(tmp_path: Path) -> None:
    path, name = tmp_path / "journal", key_name(KEY)
    (tmp_path / "key").write_bytes(KEY)
    with Deployment.open(path, fresh(), key=KEY) as deployment:
        deployments.drive(deployment, 3)
        assert ("seal", f"sealed with this key, {name}") in facts(deployment.status())
        for look in READERS:
            seen = READERS[look](path, None, fresh).text
            assert f"names key {name}, not checked" in seen
            assert "ealed with" not in seen
    assert ("seal", f"sealed with this key, {name}") in facts(read_status(path, key=KEY))
    assert f"Seal: sealed with this key, {name}." in deployment_page(path, key=KEY)
    assert ("seal", f"sealed with this key, {name}") in verify(path, fresh(), key=KEY).assumptions
    follower = followed(path, KEY)
    assert ("seal", f"sealed with this key, {name}") in follower.view.facts
    for command in ("status", "report"):
        assert CliRunner().invoke(app, [command, str(path), "--key", str(tmp_path / "key")]).exit_code == 0
        (tmp_path / "other").write_bytes(KEY[::-1])
        wrong = CliRunner().invoke(app, [command, str(path), "--key", str(tmp_path / "other")])
        assert "not sealed with this key" in str(wrong.exception)


# ------------------------------------------------------------------------------------------------------- old episodes


def test_an_old_episode_is_found_without_reading_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployments.deployed(tmp_path / "journal", 60)
    told = {row.data["episode"]: row for row in read(tmp_path / "journal") if row.kind in ("outcome", "abandoned")}
    asked: list[str] = []
    plain = Journal._run
    monkeypatch.setattr(Journal, "_run", lambda self, *words: (asked.append(words[0]), plain(self, *words))[1])
    journal = Journal(tmp_path / "journal")
    rows = sum(1 for _ in journal.rows())
    for episode in range(60):
        asked.clear()
        assert journal.find(("outcome", "abandoned"), episode) == told[episode]
        assert len(asked) <= rows.bit_length() + 1
    assert journal.find(("outcome", "abandoned"), 60) is None
    plan = journal._run(f"EXPLAIN QUERY PLAN {asked[0]}", (7, "outcome", "abandoned")).fetchall()
    assert b"USING INTEGER PRIMARY KEY" in plan[0][3]
    journal.close()
