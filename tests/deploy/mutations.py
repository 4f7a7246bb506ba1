"""Journals with anything in them: run by test_mutations.py in a process of its own, so that its memory can be measured.

`try_variants` makes variants of one journal, a third each of raw bytes, of what a kill leaves (write-ahead log and mark
included) and of rows changed by somebody who computes all hashes again. Whoever reads one gets the journal or a
`SurefootError`. What holds for `verify` opens, and what opens holds. A journal that holds has all rows that were
acknowledged, and its derived rows are those of a deployment that was told the same, but for the sentences of events.
"""

from __future__ import annotations

import copy
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import deployments
import numpy as np

from surefoot.cli.deploy import _make_learner, _settings_of_header
from surefoot.cli.journals import export_lines
from surefoot.deploy.backup import backup
from surefoot.deploy.chain import BEGINNING, canonical, chain_hash, read
from surefoot.deploy.outcomes import drop_computed_signals
from surefoot.deploy.page import deployment_page, read_history
from surefoot.deploy.replay import TOLERANCE
from surefoot.deploy.session import Deployment
from surefoot.deploy.status import read_status
from surefoot.deploy.verify import Verification, read_header, verify
from surefoot.errors import SurefootError

EPISODES = 9
Files = dict[str, bytes]
Rows = list[tuple[str, bytes]]


def try_variants(method: str, count: int, seed: int) -> dict[str, Any]:
    rng, held = np.random.default_rng(seed), 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        closed, killed = originals(Path(folder) / "originals", method)
        whole = deployments.contents(Path(folder) / "originals" / "journal")
        rows = [(kind, payload) for kind, payload, _ in whole]
        for k in range(count):
            place = Path(folder) / f"{k}"
            place.mkdir()
            match k % 3:
                case 0:
                    write(place, {**closed, "journal": damaged(closed["journal"], rng)})
                    held += checked(place / "journal", method, [digest for _, _, digest in whole], not k % 40)
                case 1:
                    name = str(rng.choice(["journal-wal"] * 6 + ["journal", "journal.mark"]))
                    write(
                        place,
                        {**killed, name: damaged(killed[name], rng)} if rng.random() < 0.9 else lacking(killed, rng),
                    )
                    held += checked(place / "journal", method, [digest for _, _, digest in whole], not k % 40)
                case _:
                    write(place, {"journal": closed["journal"]})
                    forge(place / "journal", forged(rows, rng))
                    held += checked(place / "journal", method, None, not k % 40)
            shutil.rmtree(place)
    return {"tried": count, "held": held}


def originals(folder: Path, method: str) -> tuple[Files, Files]:
    """The files of a journal that was closed, and of the same as a kill would leave it."""
    folder.mkdir()
    deployment = Deployment.open(folder / "journal", deployments.fresh(method))
    deployments.drive(deployment, EPISODES, method)
    deployment.ask()
    killed = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "journal-shm"}
    deployment.close()
    return {file.name: file.read_bytes() for file in folder.iterdir()}, killed


def write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)


def checked(path: Path, method: str, hashes: list[bytes] | None, draw: bool) -> bool:
    """Whether the journal holds; everything that must be true of it and of whoever reads it is asserted here."""
    for reader in (read_status, lambda path: list(export_lines(path)), deployment_page if draw else read_history):
        quietly(lambda reader=reader: reader(path))
    verdict: Verification | None = quietly(lambda: verify(path, made(path, method)))
    holds = verdict is not None and verdict.holds
    copied = quietly(lambda: backup(path, path.with_name("copy")))
    if holds and hashes is not None:  # raw damage: all of it or nothing
        assert verdict is not None
        assert verdict.rows == len(hashes), f"{verdict.rows} of {len(hashes)} rows"
        assert verdict.head == hashes[-1].hex()
        assert copied is not None
    elif holds:
        assert_follows(path, method)
    opened = quietly(lambda: head_of(path, method))
    assert (opened is not None) == holds, f"opened {opened}, but verify says {verdict}"
    return holds


def quietly(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except SurefootError:
        return None


def made(path: Path, method: str) -> Any:
    """The learner that row 0 describes."""
    sets = {"paper": deployments.short_phase_set, "certified-signals": deployments.shown_set}
    policies = sets.get(method, deployments.tiny_set)()
    return _make_learner(policies, _settings_of_header(read_header(path)))


def head_of(path: Path, method: str) -> str:
    with Deployment.open(path, made(path, method)) as deployment:
        return deployment.head()


def assert_follows(path: Path, method: str) -> None:
    """A deployment that is told the same writes the same."""
    found = list(read(path))
    honest = path.with_name("honest")
    with Deployment.open(honest, made(path, method)) as deployment:
        for row in found:
            if row.kind == "abandoned":
                deployment.abandon(deployment.ask(), row.data["reason"])
            elif row.kind == "outcome":
                deployment.tell(deployment.ask(), **as_told(row.data))
        if found[-1].kind == "order":
            deployment.ask()
    for row, expected in zip(found, read(honest), strict=False):
        assert row.kind == expected.kind, (row, expected)
        if row.kind == "event":  # its sentence is for people, and may be worded otherwise
            assert isinstance(row.data["message"], str), row
            assert_close({**row.data, "message": ""}, {**expected.data, "message": ""})
        elif row.kind == "decision":
            assert_close(row.data, expected.data)
        elif row.kind == "outcome":  # signals may be rounded otherwise
            assert_close(row.data.get("signals"), expected.data.get("signals"))
            assert canonical(drop_computed_signals(row.data)) == canonical(drop_computed_signals(expected.data)), (
                row,
                expected,
            )
        else:
            assert row.payload == expected.payload, (row, expected)


def as_told(payload: dict[str, Any]) -> dict[str, Any]:
    told = {name: value for name, value in drop_computed_signals(payload).items() if name not in ("episode", "states")}
    if "states" in payload and "actions" in payload:
        del told["actions"]
        told["transitions"] = {name: payload[name] for name in ("states", "actions")}
    elif "states" in payload:
        (told["first_state"],) = payload["states"]
    return told


def assert_close(one: Any, other: Any) -> None:
    assert type(one) is type(other), (one, other)
    if isinstance(one, dict):
        assert one.keys() == other.keys(), (one, other)
        for key in one:
            assert_close(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other), (one, other)
        for a, b in zip(one, other, strict=True):
            assert_close(a, b)
    elif isinstance(one, float):
        assert abs(one - other) <= TOLERANCE * max(1.0, abs(one), abs(other)), (one, other)
    else:
        assert one == other, (one, other)


# ------------------------------------------------------------------------------------------------------------ raw bytes


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Bits flipped, bytes overwritten, pages swapped, repeated or zeroed, cut, or filled up with noise."""
    data, size = bytearray(content), len(content)
    place, page = int(rng.integers(size)), 4096
    match int(rng.integers(7)):
        case 0:
            data[place] ^= 1 << int(rng.integers(8))
        case 1:
            for at in rng.integers(size, size=int(rng.integers(1, 20))):
                data[int(at)] = int(rng.integers(256))
        case 2:
            one, other = (int(k) * page for k in rng.integers(max(size // page, 1), size=2))
            data[one : one + page], data[other : other + page] = data[other : other + page], data[one : one + page]
        case 3:
            one, other = (int(k) * page for k in rng.integers(max(size // page, 1), size=2))
            data[one : one + page] = data[other : other + page]
        case 4:
            data[place : place + page] = bytes(len(data[place : place + page]))
        case 5:
            del data[place:]
        case _:
            data[place : place + 64] = rng.bytes(len(data[place : place + 64]))
    return bytes(data)


def lacking(files: Files, rng: np.random.Generator) -> Files:
    """Copied without one or two of its files."""
    gone = rng.choice(["journal-wal", "journal.mark", "journal.lock"], size=int(rng.integers(1, 3)), replace=False)
    return {name: content for name, content in files.items() if name not in gone}


# ------------------------------------------------------------------------------------------------ with all hashes right

STRANGE: list[Any] = [
    None, True, False, 0, 1, -1, 1.0, 0.5, -0.5, 1e-10, 1e308, 10**30, 2**63, "", "x", "\x1b[2J", "<script>", [], {},
    [[]], [0.5], {"a": 1}, "0.5", [1, 2, 3], -2**63,
]  # fmt: skip
KINDS = ("open", "event", "decision", "order", "outcome", "abandoned", "strange", "")


def forged(rows: Rows, rng: np.random.Generator) -> Rows:
    changed = list(rows)
    n = int(rng.integers(len(rows)))
    kind, payload = changed[n]
    match int(rng.integers(10)):
        case 0:
            del changed[n]
        case 1:
            changed.insert(int(rng.integers(len(rows))), changed[n])
        case 2:
            other = int(rng.integers(len(rows)))
            changed[n], changed[other] = changed[other], changed[n]
        case 3:
            changed[n] = (str(rng.choice(KINDS)), payload)
        case 4:
            del changed[max(n, 1) :]
        case 5:
            text = bytearray(payload)
            text[int(rng.integers(len(text)))] = int(rng.integers(32, 127))
            changed[n] = (kind, bytes(text))
        case _:
            changed[n] = (kind, canonical(mutated(json.loads(payload), rng)))
    return changed


def mutated(data: Any, rng: np.random.Generator) -> Any:
    """One place of a payload, at any depth: another value, one more, one less, or a number that is a little off."""
    data = copy.deepcopy(data)
    place, keys = data, list(data)
    while True:
        key: Any = keys[int(rng.integers(len(keys)))]
        inner = place[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.7:
            place, keys = inner, list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        else:
            break
    strange = STRANGE[int(rng.integers(len(STRANGE)))]
    match int(rng.integers(5)):
        case 0:
            del place[key]
        case 1 if isinstance(place, dict):
            place["approved_by"] = strange
        case 2 if isinstance(inner, int | float):
            place[key] = type(inner)(inner * (1 + float(rng.choice([1e-12, 1e-10, 1e-7, 0.1, 1.0]))))
        case 3 if isinstance(inner, bool | int):
            place[key] = float(inner) if rng.random() < 0.5 else bool(inner)
        case _:
            place[key] = strange
    return data


def forge(path: Path, rows: Rows) -> None:
    """Write these rows with the hashes that follow."""
    previous, written = BEGINNING, []
    for n, (kind, payload) in enumerate(rows):
        previous = chain_hash(previous, kind.encode(), payload)
        written.append(("INSERT INTO rows VALUES (?, ?, CAST(? AS TEXT), ?)", n, kind, payload, previous))
    head = ("UPDATE head SET count = ?, hash = ?", max(len(rows), 1), previous)
    execute(path, ("DELETE FROM rows",), *written, head)


def execute(path: Path, *statements: tuple[Any, ...]) -> None:
    """Change a journal behind its back: each statement with its values."""
    with closing(sqlite3.connect(path)) as connection:
        for statement, *values in statements:
            connection.execute(statement, values)
        connection.commit()
