"""Truncated, flipped, cut, shuffled or rewritten: opened safely or refused, and `verify` names the first bad row."""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deployments
import pytest
from deployments import fresh
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.deploy.chain import BEGINNING, canonical, chained, read
from surefoot.deploy.session import Deployment
from surefoot.deploy.verify import verify
from surefoot.errors import ArtifactError

EPISODES = 25


@cache
def whole() -> tuple[bytes, list[tuple[str, bytes, bytes]]]:
    """The bytes of a closed journal, and its rows."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        deployments.deployed(path, EPISODES)
        return path.read_bytes(), deployments.contents(path)


def check_damaged(content: bytes) -> None:
    """Whoever opens it gets an error, or a deployment that stands where the true one stood at some time."""
    rows = whole()[1]
    hashes = [digest.hex() for _, _, digest in rows]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        path.write_bytes(content)
        try:
            verdict = verify(path, fresh())
        except ArtifactError:
            pass  # not even a journal
        else:
            if verdict.holds:
                assert verdict.head in hashes
            else:
                assert verdict.first_bad is not None
                assert verdict.first_bad <= len(rows)
                assert verdict.reason
        try:
            with Deployment.open(path, fresh()) as deployment:
                at = hashes.index(deployment.head())
                told = sum(kind in ("outcome", "abandoned") for kind, _, _ in rows[: at + 1])
                assert deployment.status().episodes == deployment.learner.state.episode == told
                assert deployment.ask().episode == told
        except ArtifactError:
            pass


@given(st.integers(0, 10**9))
def test_truncated_anywhere(place: int) -> None:
    content = whole()[0]
    check_damaged(content[: place % len(content)])


def test_truncated_at_page_boundaries() -> None:
    content = whole()[0]
    for length in range(0, len(content), 4096):
        check_damaged(content[:length])


@given(st.integers(0, 10**9), st.integers(1, 255))
def test_any_byte_flipped(place: int, flip: int) -> None:
    content = bytearray(whole()[0])
    content[place % len(content)] ^= flip
    check_damaged(bytes(content))


def altered(folder: Path, statements: list[tuple[str, tuple[Any, ...]]]) -> Path:
    path = folder / "journal"
    path.write_bytes(whole()[0])
    connection = sqlite3.connect(path)
    for statement, values in statements:
        connection.execute(statement, values)
    connection.commit()
    connection.close()
    return path


def first_bad(path: Path) -> int | None:
    verdict = verify(path, fresh())
    assert not verdict.holds
    with pytest.raises(ArtifactError):
        Deployment.open(path, fresh())
    return verdict.first_bad


@settings(max_examples=25)
@given(st.integers(0, 10**9))
def test_a_removed_row_is_named(place: int) -> None:
    row = place % len(whole()[1])
    with TemporaryDirectory() as folder:
        assert first_bad(altered(Path(folder), [("DELETE FROM rows WHERE n = ?", (row,))])) == row


@settings(max_examples=25)
@given(st.integers(0, 10**9))
def test_a_cut_tail_is_named(place: int) -> None:
    row = place % len(whole()[1])
    with TemporaryDirectory() as folder:
        assert first_bad(altered(Path(folder), [("DELETE FROM rows WHERE n >= ?", (row,))])) == row


@settings(max_examples=25)
@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_reordered_rows_are_named(one: int, other: int) -> None:
    count = len(whole()[1])
    first, second = sorted((one % count, other % count))
    if first == second:
        return
    swap = [
        ("UPDATE rows SET n = -1 WHERE n = ?", (first,)),
        ("UPDATE rows SET n = ? WHERE n = ?", (first, second)),
        ("UPDATE rows SET n = ? WHERE n = -1", (second,)),
    ]
    with TemporaryDirectory() as folder:
        assert first_bad(altered(Path(folder), swap)) == first


@settings(max_examples=25)
@given(st.integers(0, 10**9), st.sampled_from(["payload", "kind", "hash"]))
def test_a_rewritten_row_is_named(place: int, column: str) -> None:
    row = place % len(whole()[1])
    value: Any = b"\0" * 32 if column == "hash" else "outcome2" if column == "kind" else '{"episode":0}'
    with TemporaryDirectory() as folder:
        assert first_bad(altered(Path(folder), [(f"UPDATE rows SET {column} = ? WHERE n = ?", (value, row))])) == row


def rehashed(folder: Path, change: dict[int, tuple[str, Any]]) -> Path:
    """A forger's journal: some rows replaced, then every hash computed anew."""
    statements: list[tuple[str, tuple[Any, ...]]] = [("DELETE FROM rows", ()), ("DELETE FROM snapshots", ())]
    previous = BEGINNING
    for n, (kind, payload, _) in enumerate(whole()[1]):
        if n in change:
            kind, data = change[n]
            payload = canonical(data)
        previous = chained(previous, kind.encode(), payload)
        statements.append(("INSERT INTO rows VALUES (?, ?, ?, ?)", (n, kind, payload.decode(), previous)))
    statements.append(("UPDATE head SET hash = ?", (previous,)))
    return altered(folder, statements)


def rows_of(kind: str) -> list[tuple[int, dict[str, Any]]]:
    with TemporaryDirectory() as folder:
        path = altered(Path(folder), [])
        return [(row.n, row.data) for row in read(path) if row.kind == kind]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("order", {"policy": 1}),
        ("order", {"draw": 0.123}),
        ("order", {"episode": 99}),
        ("decision", {"weight": 0.5}),
        ("decision", {"margin": [1.0]}),
        ("decision", {"surviving": 1}),
        ("outcome", {"episode": 99}),
        ("outcome", {"rewards": [0.5], "costs": [[9.0]]}),
        ("outcome", {"first_state": 0}),
        ("abandoned", {"episode": 99}),
        ("open", {"seed": 6}),
        ("open", {"format_version": [2, 0]}),
    ],
)
def test_a_forged_row_with_right_hashes_is_named(tmp_path: Path, kind: str, changes: dict[str, Any]) -> None:
    """Hashes do not stop a forger; the replay from the policy set does."""
    n, data = rows_of(kind)[-1]
    path = rehashed(tmp_path, {n: (kind, {**data, **changes})})
    list(read(path))  # the chain itself is in order
    assert first_bad(path) == n


def test_a_forged_history_shows_against_a_published_head(tmp_path: Path) -> None:
    """The last outcome replaced by another possible one: only a head that was published earlier can tell."""
    n, data = rows_of("outcome")[-1]
    forged = {**data, "costs": [[0.0]] * len(data["costs"])}
    path = rehashed(tmp_path, {n: ("outcome", forged)})
    assert verify(path, fresh()).holds
    published = whole()[1][-1][2].hex()
    verdict = verify(path, fresh(), head=published)
    assert not verdict.holds
    assert "published" in verdict.reason
    honest = tmp_path / "honest"
    honest.write_bytes(whole()[0])
    assert verify(honest, fresh(), head=published).holds
    assert verify(honest, fresh(), head=whole()[1][5][2].hex()).holds


def test_triggers_and_strange_tables_are_refused(tmp_path: Path) -> None:
    for name, statement in enumerate(
        (
            "CREATE TRIGGER t AFTER INSERT ON rows BEGIN DELETE FROM rows WHERE n = 1; END",
            "CREATE VIEW v AS SELECT * FROM rows",
            "CREATE INDEX i ON rows (kind)",
            "CREATE TABLE more (x)",
            "PRAGMA application_id = 5",
        )
    ):
        folder = tmp_path / f"{name}"
        folder.mkdir()
        path = altered(folder, [(statement, ())])
        with pytest.raises(ArtifactError, match="not a journal of a deployment, or its tables were altered"):
            Deployment.open(path, fresh())
        with pytest.raises(ArtifactError):
            verify(path, fresh())


def test_a_tampered_snapshot_is_not_believed_by_verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged snapshot is ignored; a forged one may mislead a writer that trusts its own disk, but not `verify`."""
    from surefoot.deploy import session

    monkeypatch.setattr(session, "SNAPSHOT_EVERY", 10)
    path = tmp_path / "journal"
    head = deployments.deployed(path, 25)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM snapshots").fetchone()[0] == 2
    connection.execute("UPDATE snapshots SET state = x'5b5d'")
    connection.commit()
    connection.close()
    assert verify(path, fresh()).holds
    with Deployment.open(path, fresh()) as deployment:
        assert deployment.head() == head
        assert deployment.learner.state.episode == 25
