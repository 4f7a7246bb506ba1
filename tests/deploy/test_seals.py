"""A key outside the journal: who does not hold it can neither rewrite, cut nor extend it, nor place a snapshot."""

from __future__ import annotations

import sqlite3
from hashlib import sha256
from pathlib import Path

import deployments
import numpy as np
import pytest
from deployments import fresh
from mutations import execute, forge

from surefoot.deploy import session, snapshots
from surefoot.deploy.chain import canonical, read
from surefoot.deploy.session import Deployment
from surefoot.deploy.verify import verify
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.learning.method import Mixture

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))


def sealed(path: Path, episodes: int = 25) -> str:
    with Deployment.open(path, fresh(), key=KEY) as deployment:
        deployments.drive(deployment, episodes)
        return deployment.head()


def test_a_sealed_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    head = sealed(path)
    verdict = verify(path, fresh(), key=KEY)
    assert (verdict.holds, verdict.sealed, verdict.head) == (True, True, head)
    assert verify(path, fresh()).sealed is None  # not asked for
    assert verify(path, fresh()).holds
    wrong = verify(path, fresh(), key=OTHER)
    assert (wrong.holds, wrong.sealed) == (False, False)
    assert KEY not in path.read_bytes()
    with Deployment.open(path, fresh(), key=KEY) as deployment:
        assert deployment.ask().episode == 25
    for key in (None, OTHER):
        with pytest.raises(ArtifactError, match="was begun with key"):
            Deployment.open(path, fresh(), key=key)


def test_a_key_cannot_come_later(tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "journal", 3)
    with pytest.raises(ArtifactError, match="was begun with key None"):
        Deployment.open(tmp_path / "journal", fresh(), key=KEY)
    assert not verify(tmp_path / "journal", fresh(), key=KEY).holds


@pytest.mark.parametrize("key", [b"short", "0123456789abcdef", b"x" * 5000, 7])
def test_what_is_no_key(tmp_path: Path, key: object) -> None:
    with pytest.raises(InvalidInput, match="key must be 16 to 4096 random bytes"):
        Deployment.open(tmp_path / "journal", fresh(), key=key)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("forgery", ["outcome", "cut", "extended", "unsealed", "stripped"])
def test_who_holds_no_key_changes_nothing(tmp_path: Path, forgery: str) -> None:
    """Most of these hold for whoever has no key either, because they follow from the policy set."""
    path = tmp_path / "journal"
    sealed(path)
    (tmp_path / "journal.mark").unlink()
    rows = [(row.kind, row.payload) for row in read(path)]
    last = max(n for n, (kind, _) in enumerate(rows) if kind == "outcome")
    if forgery == "outcome":
        row = list(read(path))[last]
        forged = {**row.data, "costs": [[0.0]] * len(row.data["costs"])}
        rows[last] = ("outcome", canonical(forged))
        del rows[last + 1 :]
    elif forgery == "cut":
        del rows[10:]
    elif forgery == "extended":
        other = tmp_path / "longer"
        with Deployment.open(other, fresh(), key=KEY) as deployment:
            deployments.drive(deployment, 27)
        rows = [(row.kind, row.payload) for row in read(other)]
    elif forgery == "unsealed":
        execute(path, ("DELETE FROM seals",))
    else:
        execute(path, ("DROP TABLE seals",))
    forge(path, rows)
    assert verify(path, fresh()).holds == (forgery != "stripped")  # row 0 still names a key
    verdict = verify(path, fresh(), key=KEY)
    assert not verdict.holds
    why = "there is no table of seals" if forgery == "stripped" else "not sealed with this key"
    assert why in verdict.reason
    with pytest.raises(ArtifactError, match=why):
        Deployment.open(path, fresh(), key=KEY)


# ------------------------------------------------------------------------------------------------------------ snapshots


def test_going_on_from_a_sealed_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SNAPSHOT_EVERY", 10)
    path = tmp_path / "journal"
    sealed(path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM snapshots").fetchone()[0] == 2
    followed = []
    plain = session.Replay.follow
    monkeypatch.setattr(session.Replay, "follow", lambda self, row: (followed.append(row.n), plain(self, row)))
    with Deployment.open(path, fresh(), key=KEY) as deployment:
        deployments.drive(deployment, 40)
        assert min(followed) > 20
    with Deployment.open(tmp_path / "whole", fresh(), key=KEY) as deployment:
        deployments.drive(deployment, 40)
    assert deployments.contents(path) == deployments.contents(tmp_path / "whole")
    assert verify(path, fresh(), key=KEY).holds


@pytest.mark.parametrize("state", ["another mixture", "nonsense", "no state"])
@pytest.mark.parametrize("key", [KEY, None])
def test_a_forged_snapshot_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, key: bytes | None
) -> None:
    """Whatever somebody without the key puts there, the orders are those of the rows."""
    monkeypatch.setattr(session, "SNAPSHOT_EVERY", 10)
    path = tmp_path / "journal"
    with Deployment.open(path, fresh(), key=key) as deployment:
        deployments.drive(deployment, 25)
        learner = deployment.learner
        replay = deployment._replay
        forged = {
            "another mixture": (
                Mixture(np.array([1]), np.array([1.0])),
                learner.events,
                replay.events,
                replay.decision,
            ),
            "nonsense": (1, 2, 3, 4),
            "no state": (),
        }[state]
        content = snapshots.encode(forged, snapshots.classes(learner))
    last = list(read(path))[-1]
    digest = sha256(last.hash + content).digest()
    forgery = ("INSERT INTO snapshots VALUES (?, ?, ?, ?)", last.n, last.hash, content, digest)
    execute(path, ("DELETE FROM snapshots",), forgery)
    with Deployment.open(path, fresh(), key=key) as deployment:
        order = deployment.ask()
    with Deployment.open(tmp_path / "honest", fresh(), key=key) as deployment:
        deployments.drive(deployment, 25)
        expected = deployment.ask()
    assert (order.episode, order.policy_index, order.weight) == (25, expected.policy_index, expected.weight)
    assert verify(path, fresh()).holds
