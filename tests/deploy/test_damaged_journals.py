"""Truncated, flipped, cut, shuffled or rewritten: opened safely or refused, and `verify` names the first bad row."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deployments
import pytest
from deployments import fresh
from hypothesis import given
from hypothesis import strategies as st
from mutations import execute, forge

from surefoot.cli.journals import export_lines
from surefoot.deploy.chain import canonical, read
from surefoot.deploy.page import deployment_page
from surefoot.deploy.session import Deployment
from surefoot.deploy.status import read_status
from surefoot.deploy.verify import read_header, verify
from surefoot.errors import ArtifactError
from surefoot.methods import learner

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


def test_truncated_at_page_boundaries() -> None:
    content = whole()[0]
    for length in range(0, len(content), 4096):
        check_damaged(content[:length])


@given(st.integers(0, 10**9), st.integers(1, 255))
def test_any_byte_flipped(place: int, flip: int) -> None:
    content = bytearray(whole()[0])
    content[place % len(content)] ^= flip
    check_damaged(bytes(content))


def altered(folder: Path, *statements: tuple[Any, ...]) -> Path:
    path = folder / "journal"
    path.write_bytes(whole()[0])
    execute(path, *statements)
    return path


def first_bad(path: Path) -> int | None:
    verdict = verify(path, fresh())
    assert not verdict.holds
    with pytest.raises(ArtifactError):
        Deployment.open(path, fresh())
    return verdict.first_bad


@given(st.integers(0, 10**9))
def test_a_removed_row_is_named(place: int) -> None:
    row = place % len(whole()[1])
    with TemporaryDirectory() as folder:
        assert first_bad(altered(Path(folder), ("DELETE FROM rows WHERE n = ?", row))) == row


@given(st.integers(0, 10**9))
def test_a_cut_tail_is_named(place: int) -> None:
    row = place % len(whole()[1])
    with TemporaryDirectory() as folder:
        assert first_bad(altered(Path(folder), ("DELETE FROM rows WHERE n >= ?", row))) == row


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_reordered_rows_are_named(one: int, other: int) -> None:
    count = len(whole()[1])
    first, second = sorted((one % count, other % count))
    if first == second:
        return
    swap = [
        ("UPDATE rows SET n = -1 WHERE n = ?", first),
        ("UPDATE rows SET n = ? WHERE n = ?", first, second),
        ("UPDATE rows SET n = ? WHERE n = -1", second),
    ]
    with TemporaryDirectory() as folder:
        assert first_bad(altered(Path(folder), *swap)) == first


@given(st.integers(0, 10**9), st.sampled_from(["payload", "kind", "hash"]))
def test_a_rewritten_row_is_named(place: int, column: str) -> None:
    row = place % len(whole()[1])
    value: Any = b"\0" * 32 if column == "hash" else "outcome2" if column == "kind" else '{"episode":0}'
    with TemporaryDirectory() as folder:
        assert first_bad(altered(Path(folder), (f"UPDATE rows SET {column} = ? WHERE n = ?", value, row))) == row


def rehashed(folder: Path, change: dict[int, tuple[str, Any]]) -> Path:
    """A forger's journal: some rows replaced, then every hash computed anew."""
    path = altered(folder)
    rows = [(kind, payload) for kind, payload, _ in whole()[1]]
    for n, (kind, data) in change.items():
        rows[n] = (kind, canonical(data))
    forge(path, rows)
    return path


def rows_of(kind: str) -> list[tuple[int, dict[str, Any]]]:
    return [(n, json.loads(payload)) for n, (found, payload, _) in enumerate(whole()[1]) if found == kind]


MISSING, DRAW_OFF = object(), object()


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
        ("order", {"draw": DRAW_OFF}),
        ("order", {"approved_by": "nobody"}),
        ("order", {"policy": True}),
        ("decision", {"approved_by": "nobody"}),
        ("decision", {"certified": 1}),
        ("decision", {"total": 4.0}),
        ("outcome", {"episode": 24.0}),
        ("outcome", {"states": []}),
        ("outcome", {"states": ""}),
        ("outcome", {"breach": False}),
        ("outcome", {"breach": 1}),
        ("outcome", {"approved_by": "nobody"}),
        ("abandoned", {"episode": 22.0}),
        ("abandoned", {"reason": MISSING}),
        ("abandoned", {"reason": 7}),
        ("abandoned", {"reason": " "}),
        ("abandoned", {"approved_by": "nobody"}),
        ("abandoned", {"reason": MISSING, "reward": 1.0, "cost": [0.5], "states": [0]}),
        ("open", {"seed": 6}),
        ("open", {"seed": 5.0}),
        ("open", {"certified": False}),
        ("open", {"certified": MISSING}),
        ("open", {"certified": 1}),
        ("open", {"risk_split": {"elimination": 1e-9}}),
        ("open", {"risk_split": {}}),
        ("open", {"risk_split": MISSING}),
        ("open", {"approved_by": "nobody"}),
        ("open", {"format_version": [1, 99]}),
        ("open", {"format_version": [1, 0]}),
        ("open", {"format_version": [1.0, 1]}),
        ("open", {"format_version": [2, 0]}),
        ("open", {"key": "0123456789abcdef", "horizon": 21}),
    ],
)
def test_a_forged_row_with_right_hashes_is_named(tmp_path: Path, kind: str, changes: dict[str, Any]) -> None:
    """Hashes do not stop a forger; the replay from the policy set does."""
    n, data = rows_of(kind)[-1]
    if changes == {"draw": DRAW_OFF}:
        changes = {"draw": data["draw"] + 1e-10}
    forged = {name: value for name, value in {**data, **changes}.items() if value is not MISSING}
    path = rehashed(tmp_path, {n: (kind, forged)})
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
        path = altered(folder, (statement,))
        with pytest.raises(ArtifactError, match="not a journal of a deployment, or its tables were altered"):
            Deployment.open(path, fresh())
        with pytest.raises(ArtifactError):
            verify(path, fresh())


def test_another_risk_than_the_one_that_was_split_is_named(tmp_path: Path) -> None:
    """The learner is made as row 0 says, and then the split of its risk is another."""
    n, data = rows_of("open")[0]
    settings = {**data["settings"], "risk": 0.9}
    path = rehashed(tmp_path, {n: ("open", {**data, "settings": settings})})
    made = learner(deployments.tiny_set(), **settings)
    verdict = verify(path, made)
    assert (verdict.holds, verdict.first_bad) == (False, 0)
    assert "risk_split" in verdict.reason


def test_the_verdict_tells_method_risk_and_rounding(tmp_path: Path) -> None:
    n, data = rows_of("decision")[-1]
    verdict = verify(rehashed(tmp_path, {}), fresh())
    assert (verdict.method, verdict.risk, verdict.rounding) == ("certified-returns", 0.3, 0.0)
    weights = [data["weights"][0] * (1 + 1e-10), *data["weights"][1:]]
    other = tmp_path / "other"
    other.mkdir()
    near = verify(rehashed(other, {n: ("decision", {**data, "weights": weights})}), fresh())
    assert near.holds  # as another processor might round
    assert 0 < near.rounding < 1e-9


@pytest.mark.parametrize("place", ["schema", "page"])
def test_strange_bytes_are_no_defect_of_the_reader(tmp_path: Path, place: str) -> None:
    """Text in the schema that is no UTF-8, and a page in the place of another."""
    content = bytearray(whole()[0])
    if place == "schema":
        content[content.index(b"CREATE TABLE rows") - 270] = 0xFF  # in a text that SQLite repeats in its message
    else:
        content[4096:8192], content[8192:12288] = content[8192:12288], content[4096:8192]
    path = tmp_path / "journal"
    path.write_bytes(content)
    for reader in (read_status, deployment_page, read_header, lambda path: list(export_lines(path))):
        with pytest.raises(ArtifactError):
            reader(path)
    with pytest.raises(ArtifactError):
        Deployment.open(path, fresh())
    with suppress(ArtifactError):
        assert not verify(path, fresh()).holds


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("open", "[" * 100_000), ("open", "{}"), ("open", "nonsense"), ("open", "null"), ("decision", "[1]"),
        ("decision", '{"margin":"high"}'), ("abandoned", '{"episode":22}'), ("order", '{"episode":1e999}'),
        ("event", '{"kind":"alarm"}'), ("decision", '{"weight":NaN}'),
    ],
)  # fmt: skip
def test_strange_payloads_are_no_defect_of_the_reader(tmp_path: Path, kind: str, payload: str) -> None:
    """With all hashes right; who only shows what is there refuses what it cannot show."""
    rows = [(kind, data) for kind, data, _ in whole()[1]]
    at = 0 if kind == "open" else len(rows)
    rows[at : at + 1] = [(kind, payload.encode())]
    path = tmp_path / "journal"
    path.write_bytes(whole()[0])
    forge(path, rows)
    for refusing in (deployment_page, lambda path: Deployment.open(path, fresh())):
        with pytest.raises(ArtifactError):
            refusing(path)
    for showing in (read_status, lambda path: list(export_lines(path)), read_header):
        with suppress(ArtifactError):
            showing(path)
    assert not verify(path, fresh()).holds
