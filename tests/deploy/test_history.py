"""Rows taken in many at a time: the history, or the error, is that of one row after the other, to the last bit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import deployments
import numpy as np
import pytest
from mutations import execute
from numpy.random import Generator

from surefoot.deploy import history, status
from surefoot.deploy.chain import (
    Damaged,
    RawRow,
    canonical,
    decode_row,
    iter_checked_blocks,
    iter_checked_rows,
    raise_as_damaged,
    read,
)
from surefoot.deploy.history import ORDER, OUTCOME, History, RunningMean, columns
from surefoot.deploy.page import view
from surefoot.deploy.status import Ends
from surefoot.errors import SurefootError

WHERE = Path("journal")
HASH = bytes(32)


def state(found: History) -> dict[str, Any]:
    """All that a history holds, in an order that shows which policy came first."""
    return {
        **{
            name: value for name, value in vars(found).items() if name not in ("tally", "means", "decided", "abandoned")
        },
        "tally": [
            sorted(each.items()) if isinstance(each, dict) else list(each) if isinstance(each, Ends) else each
            for each in vars(found.tally).values()
        ],
        "means": (found.means.values, found.means.room),
        "decided": (found.decided.values, found.decided.room),
        "abandoned": list(found.abandoned),
        "first ordered": [list(found.ordered), *(list(each.ordered) for each in found.stretches)],
    }


def by_rows(rows: Sequence[RawRow]) -> Any:
    found = History()
    try:
        with raise_as_damaged(WHERE):
            for row in rows:
                found.add(decode_row(row, WHERE))
            return repr(state(found))
    except SurefootError as error:
        return type(error), str(error), getattr(error, "row", None)


def by_blocks(rows: Sequence[RawRow], sizes: Iterator[int]) -> Any:
    found, first = History(), 0
    try:
        with raise_as_damaged(WHERE):
            while first < len(rows):
                size = next(sizes)
                found.extend(rows[first : first + size], WHERE)
                first += size
            return repr(state(found))
    except SurefootError as error:
        return type(error), str(error), getattr(error, "row", None)


# ---------------------------------------------------------------------------------------------------- random journals


def opened(constraints: int) -> dict[str, Any]:
    return {
        "format": "surefoot-journal", "format_version": [1, 1], "settings": {}, "method": "certified-returns",
        "certified": True, "policies": None, "discount": 0.9, "budget": [0.5] * constraints, "key": None,
        "reward_range": [-3.0, 7.0], "cost_range": [[0.0, 1.0]] * constraints,
    }  # fmt: skip


def number(rng: Generator) -> float | int:
    return [
        rng.normal(), float(rng.integers(9)), int(rng.integers(-9, 99)), rng.normal() * 1e-9, rng.normal() * 1e9, -0.0
    ][rng.integers(6)]  # fmt: skip


def outcome(rng: Generator, episode: int, constraints: int, form: int) -> dict[str, Any]:
    costs = [number(rng) for _ in range(constraints)]
    told: dict[str, Any] = {"episode": episode, "reward": number(rng), "cost": costs}
    match form:
        case 0:
            return {**told, "states": [int(rng.integers(3))]}
        case 1:
            return {**told, "signals": rng.random(2).tolist()}
        case 2:
            return told
        case 3:
            return {**told, "states": [0, 1], "actions": [2]}
        case _:
            steps = int(rng.integers(1, 6))
            rewards, each = rng.normal(size=steps).tolist(), rng.random((steps, constraints)).tolist()
            return {"episode": episode, "rewards": rewards, "costs": each}


def journal(rng: Generator, episodes: int, unusual: float) -> list[tuple[str, bytes]]:
    """Episodes as a deployment writes them; with the probability `unusual` per episode something that none writes."""
    constraints, form = int(rng.integers(1, 4)), int(rng.integers(6))
    rows: list[tuple[str, Any]] = [("open", opened(constraints))]
    episode = 0
    for _ in range(episodes):
        if rng.random() < 0.1:
            rows.append(
                ("event", {"episode": episode, "kind": rng.choice(["alarm", "recovered", "note"]), "message": "x"})
            )
        if rng.random() < 0.2:
            margin = None if rng.random() < 0.3 else rng.normal(size=constraints).tolist()
            weight = [0.0, 0.5][rng.integers(2)]
            decided = {"weight": weight, "policies": [0, 3], "weights": [0.5, 0.5], "certified": True, "margin": margin}
            rows.append(("decision", {"episode": episode, "surviving": 3, "total": 4, **decided}))
        rows.append(("order", {"episode": episode, "policy": int(rng.integers(4)), "draw": rng.random()}))
        if rng.random() < 0.1:
            rows.append(("abandoned", {"episode": episode, "reason": f"reason {episode}"}))
        else:
            rows.append(("outcome", outcome(rng, episode, constraints, form if form < 5 else int(rng.integers(5)))))
        if rng.random() < unusual:
            rows.append(strange(rng, episode, constraints))
        episode = int(rng.integers(10**6)) if rng.random() < unusual / 4 else episode + 1
    return [(kind, payload if isinstance(payload, bytes) else canonical(payload)) for kind, payload in rows]


def strange(rng: Generator, episode: int, constraints: int) -> tuple[str, Any]:
    fine = outcome(rng, episode, constraints, 0)
    order = {"episode": episode, "policy": 1, "draw": 0.5}
    return [
        ("outcome", {**fine, "breach": True}),
        ("outcome", json.dumps(fine).encode()),  # with spaces
        ("outcome", canonical(fine).replace(b'"reward":', b'"reward":0,"reward":')),
        ("outcome", {**fine, "episode": 2**62}),
        ("outcome", {**fine, "episode": 2**63}),
        ("outcome", {**fine, "reward": "much"}),
        ("outcome", {**fine, "reward": 1e200}),
        ("outcome", {**fine, "cost": [*fine["cost"], 1.0]}),
        ("outcome", {**fine, "cost": []}),
        ("outcome", {**fine, "cost": 1.0}),
        ("outcome", {"episode": episode}),
        ("outcome", canonical(fine) + b"\n"),
        ("outcome", canonical(fine) + b"\n" + canonical(fine)),
        ("outcome", b'{"cost":[01],"episode":1,"reward":1,"states":[0]}'),
        ("outcome", b'{"cost":[1.],"episode":1,"reward":1,"states":[0]}'),
        ("outcome", b'{"cost":[1],"episode":1,"reward":1e999,"states":[0]}'),
        ("outcome", b'{"cost":[1],"episode":1,"reward":NaN,"states":[0]}'),
        ("order", {**order, "episode": -1}),
        ("order", {**order, "episode": 1.0}),
        ("order", {**order, "policy": 10**18}),
        ("order", {**order, "policy": 2**63}),
        ("order", {**order, "draw": None}),
        ("order", b'{"draw":' + b"1" * 5000 + b',"episode":1,"policy":1}'),
        ("order", b'{"draw":00,"episode":1,"policy":1}'),
        ("order", b'{"draw":0.5,"episode":01,"policy":1}'),
        ("order", b'{"draw":0.5,"episode":1,"policy":1'),
        ("order", b""),
        ("order", b"[]"),
        ("decision", {"episode": episode}),
        ("event", {"episode": episode, "kind": 3, "message": ""}),
        ("abandoned", b"\xff"),
        ("open", opened(constraints)),
        ("wish", {}),
    ][rng.integers(33)]


def raw(rows: Sequence[tuple[str, bytes]]) -> list[RawRow]:
    return [(n, kind.encode(), payload, HASH) for n, (kind, payload) in enumerate(rows)]


@pytest.mark.short_for(unusual=[0.01, 0.2])
@pytest.mark.parametrize("unusual", [0.0, 0.01, 0.2])
def test_many_at_once_are_one_after_the_other(monkeypatch: pytest.MonkeyPatch, unusual: float) -> None:
    monkeypatch.setattr(history, "POINTS", 8)
    errors = 0
    for seed in range(50):
        rng = np.random.default_rng([seed, int(100 * unusual)])
        rows = raw(journal(rng, int(rng.integers(1, 120)), unusual))
        sizes = rng.integers(1, rng.integers(2, 200), len(rows)).tolist()
        expected = by_rows(rows)
        assert by_blocks(rows, iter(sizes)) == expected, seed
        errors += isinstance(expected, tuple)
    assert (errors > 10) == (unusual > 0)


def test_what_a_deployment_writes_is_taken_in_as_columns(tmp_path: Path) -> None:
    """Otherwise the comparison above would be of one row after the other with itself."""
    deployments.deployed(tmp_path / "journal", 20)
    rows = list(iter_checked_rows(tmp_path / "journal"))[1:]
    found = columns(rows, WHERE, 0.5, 1)
    assert found is not None
    assert (len(found.orders.rows), len(found.outcomes.rows), len(found.others)) == (20, 17, 4)
    breach = (len(rows), b"outcome", b'{"breach":true,"costs":[[9.0]],"episode":20,"rewards":[9.0]}', HASH)
    assert columns([*rows, breach], WHERE, 0.5, 1) is None
    told = {"cost": [0.1, -2e-05], "episode": 7, "reward": 3}
    for more in ({}, {"states": [0]}, {"signals": [0.5, 1.0]}, {"signals": [1e-300], "states": [4]}):
        assert OUTCOME.findall(canonical({**told, **more})) == [(b"0.1,-2e-05", b"7", b"3")]
    assert ORDER.findall(canonical({"draw": 0.1, "episode": 0, "policy": 12})) == [(b"0", b"12")]


def test_a_journal_in_blocks_is_the_journal(tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "journal", 30)
    one, many = History(), History()
    for row in read(tmp_path / "journal"):
        one.add(row)
    for rows in iter_checked_blocks(tmp_path / "journal", 7):
        assert len(rows) <= 7
        many.extend(rows, tmp_path / "journal")
    assert repr(state(one)) == repr(state(many))
    assert view("journal", one) == view("journal", many)


def test_rows_before_a_damaged_one_come_before_the_error(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    deployments.deployed(path, 5)
    rows = list(iter_checked_rows(path))
    execute(path, ("UPDATE rows SET payload = '{}' WHERE n = 5",))
    found = iter_checked_blocks(path, 3)
    assert [next(found), next(found)] == [rows[:3], rows[3:5]]
    with pytest.raises(Damaged, match="row 5 or a row before it was altered"):
        next(found)


def test_a_path_of_means_is_that_of_single_values() -> None:
    rng = np.random.default_rng(0)
    mean = RunningMean(-1.0, 3.0)
    for size in (1, 0, 5, 2, 400):
        values = rng.normal(size=size) * 10.0 ** rng.integers(-8, 8, size)
        totals, squares = mean.path(values)
        for k, value in enumerate(values.tolist()):
            mean = mean.add(value)
            assert (mean.total, mean.squares) == (totals[k], squares[k])


def test_abandoned_episodes_take_no_more_room_the_more_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "MOST_EVENTS", 3)
    found: Ends[int] = Ends()
    for k in range(100):
        found.add(k)
        assert len(list(found)) == min(k + 1, 6)
    assert list(found) == [0, 1, 2, 97, 98, 99]
    assert (found.pop(), found.count) == (99, 99)


def test_the_page_of_many_abandoned_episodes_is_as_short_as_that_of_few() -> None:
    rows = [("open", canonical(opened(1)))]
    for k in range(2000):
        rows += [("order", canonical({"episode": k, "policy": 0, "draw": 0.5}))]
        rows += [("abandoned", canonical({"episode": k, "reason": "x" * 900}))]
    found = History()
    found.extend(raw(rows), WHERE)
    assert len(list(found.abandoned)) == 2 * status.MOST_EVENTS
    assert [episode for episode, _, _ in view("journal", found).events] == [*range(100), *range(1900, 2000)]
    assert ("episodes", "2,000 (abandoned 2,000)") in view("journal", found).facts


def test_alarms_take_no_more_room_the_more_there_are() -> None:
    rows = [("open", canonical(opened(1)))]
    for k in range(1000):
        for kind in ("alarm", "recovered"):
            rows.append(("event", canonical({"episode": k, "kind": kind, "message": f"{kind} {k}"})))
    found = History()
    found.extend(raw(rows), WHERE)
    assert len(list(found.tally.events)) == len(list(found.tally.alarms)) == 2 * status.MOST_EVENTS
    shown = view("journal", found)
    assert [episode for episode, _, _ in shown.events] == [k // 2 for k in [*range(100), *range(1900, 2000)]]
    assert [each.value for each in shown.answers if each.name == "Alarms"] == ["1,000"]
    kept = [*range(200), *range(800, 1000)]
    assert found.status().alarms == tuple(f"alarm {k}" for k in kept)
