"""Rows that are followed in blocks: the same verdict and the same state as one by one, whatever is in the journal."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from unittest import mock

import deployments
import numpy as np
import pytest
from mutations import Rows, execute, forge, forged, mutated, quietly

from surefoot.deploy import blocks
from surefoot.deploy.chain import Damaged, canonical, read
from surefoot.deploy.journal import Journal
from surefoot.deploy.replay import Replay
from surefoot.deploy.session import Deployment
from surefoot.deploy.verify import Verification, verify
from surefoot.learning.learner import Learner, Order
from surefoot.testing.learner_suite import snapshot

METHODS = ("certified-returns", "paper", "certified", "certified-model-free", "safe-only", "certified-signals")
EPISODES = 60
ODD = ((None, None), (17, "abandon"), (44, "breach"))  # an episode, and how it ends


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@cache
def content(method: str, odd: tuple[int | None, str | None]) -> tuple[bytes, Rows]:
    """A journal and its rows; every third block of ten episodes is told as sums where that is enough."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        with Deployment.open(path, deployments.fresh(method)) as deployment:
            for k in range(EPISODES):
                order = deployment.ask()
                if k == odd[0] and odd[1] == "abandon":
                    deployment.abandon(order, "operator pressed stop")
                else:
                    deployment.tell(order, **told(order, method), breach=k == odd[0])
        return path.read_bytes(), [(row.kind, row.payload) for row in read(path)]


def told(order: Order, method: str) -> dict[str, object]:
    episode = deployments.told(order, method)
    if method not in ("certified-returns", "certified-model-free", "safe-only") or order.episode % 30 >= 10:
        return episode
    first = {} if method != "certified-returns" else {"first_state": episode["first_state"]}
    weight = 0.5 ** np.arange(deployments.HORIZON)
    return {"reward": float(weight @ episode["rewards"]), "cost": weight @ np.array(episode["costs"]), **first}


def one_by_one() -> AbstractContextManager[object]:
    return mock.patch.object(blocks, "_take", return_value=0)


def both_ways(path: Path, method: str) -> tuple[Verification | None, Verification | None]:
    """Verdicts by blocks and one by one, which leave their learners with the same."""
    learners, found = (deployments.fresh(method), deployments.fresh(method)), []
    for learner, way in zip(learners, (nullcontext, one_by_one), strict=True):
        with way():
            found.append(quietly(lambda learner=learner: verify(path, learner)))
    assert snapshot(learners[0]) == snapshot(learners[1])
    return found[0], found[1]


@pytest.mark.short_for(odd=[ODD[0]])
@pytest.mark.parametrize("odd", ODD)
def test_blocks_take_most_rows_and_leave_the_same_state(
    method: str, odd: tuple[int | None, str | None], tmp_path: Path
) -> None:
    path = tmp_path / "journal"
    path.write_bytes(content(method, odd)[0])
    taken, take = [], blocks._take

    def counted(replay: Replay, rows: list[object]) -> int:
        taken.append(take(replay, rows))
        return taken[-1]

    with mock.patch.object(blocks, "_take", counted):
        assert verify(path, deployments.fresh(method)).holds
    if method != "certified-signals":  # whose signals are computed again one by one
        assert sum(taken) > (EPISODES if odd[0] is None else 0)
    in_blocks, singly = both_ways(path, method)
    assert in_blocks == singly


@pytest.mark.short_for(odd=[ODD[1]])
@pytest.mark.parametrize("odd", ODD)
def test_some_forged_rows_get_the_same_verdict(method: str, odd: tuple[int | None, str | None], tmp_path: Path) -> None:
    if method != "certified-signals":  # it takes longer
        check_forged(method, odd, 4, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("odd", ODD)
def test_many_forged_rows_get_the_same_verdict(method: str, odd: tuple[int | None, str | None], tmp_path: Path) -> None:
    check_forged(method, odd, 60, tmp_path)


def check_forged(method: str, odd: tuple[int | None, str | None], count: int, folder: Path) -> None:
    file, rows = content(method, odd)
    rng, held = np.random.default_rng([METHODS.index(method), ODD.index(odd), count]), 0
    for k in range(count):
        path = folder / f"{k}"
        path.write_bytes(file)
        forge(path, forged(rows, rng) if k % 2 else altered(rows, rng))
        with mock.patch.object(blocks, "MOST_ROWS", int(rng.choice([2, 7, 32, 2048]))):
            in_blocks, singly = both_ways(path, method)
        assert in_blocks == singly
        held += in_blocks is not None and in_blocks.holds
        path.unlink()
    assert held < count


def altered(rows: Rows, rng: np.random.Generator) -> Rows:
    """One order or outcome is another one, written as it must be."""
    places = [n for n, (kind, _) in enumerate(rows) if kind in ("order", "outcome")]
    n = int(rng.choice(places))
    return [*rows[:n], (rows[n][0], canonical(mutated(json.loads(rows[n][1]), rng))), *rows[n + 1 :]]


def told_as_sums(path: Path) -> tuple[Rows, int]:
    """The rows of a short journal at `path`, and the number of the one that holds SUMS."""
    with Deployment.open(path, deployments.fresh()) as deployment:
        for _ in range(7):
            deployment.tell(deployment.ask(), reward=0.5, cost=0.25, first_state=0)
    rows = [(row.kind, row.payload) for row in read(path)]
    return rows, rows.index(("outcome", SUMS.encode()))


SUMS = '{"cost":[0.25],"episode":3,"reward":0.5,"states":[0]}'


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"reward":0.5', '"approved":true,"reward":0.5'),
        lambda text: text.replace('"reward":0.5', '"reward":1'),
        lambda text: text.replace("[0.25]", "[1]"),
        lambda text: text.replace("[0.25]", "[0.250]"),
        lambda text: text.replace("[0.25]", "[true]"),
        lambda text: text.replace("[0.25]", "[0.25,0.25]"),
        lambda text: text.replace("[0.25]", "0.25"),
        lambda text: text.replace("[0.25]", "[1e999]"),
        lambda text: text.replace("[0.25]", "[NaN]"),
        lambda text: text.replace("[0.25]", "[-0.1]"),
        lambda text: text.replace('"states":[0]', '"states":[true]'),
        lambda text: text.replace('"states":[0]', '"states":[0.0]'),
        lambda text: text.replace('"states":[0]', '"states":[-1]'),
        lambda text: text.replace('"states":[0]', '"states":[2]'),
        lambda text: text.replace('"states":[0]', '"states":[0,1]'),
        lambda text: text.replace('"states":[0]', '"states":[]'),
        lambda text: text.replace('"states":[0]', f'"states":[{2**63}]'),
        lambda text: text.replace(',"states":[0]', ""),
        lambda text: text.replace('"episode":3', '"episode":3.0'),
        lambda text: text.replace('"episode":3', '"episode":4'),
        lambda text: text.replace(":", ": "),
        lambda text: text[:-1],
        lambda text: text + "," + text,
        lambda text: text[:30],
        lambda text: "",
        lambda text: "[" * 100_000,
        lambda text: SUMS,
    ],
)
def test_sums_are_taken_as_they_are_written_or_not_at_all(change: Callable[[str], str], tmp_path: Path) -> None:
    path = tmp_path / "journal"
    rows, place = told_as_sums(path)
    rows[place] = ("outcome", change(SUMS).encode())
    forge(path, rows)
    in_blocks, singly = both_ways(path, "certified-returns")
    assert in_blocks is not None
    assert in_blocks == singly
    assert in_blocks.holds == (change(SUMS) == SUMS)
    assert in_blocks.first_bad == (None if in_blocks.holds else place)


def test_payloads_that_only_together_make_sense_are_refused(tmp_path: Path) -> None:
    """What one row lacks the next one has too much of."""
    path = tmp_path / "journal"
    rows, place = told_as_sums(path)
    comma = SUMS.index(",") + 1
    following = rows[place + 2][1]
    rows[place] = ("outcome", SUMS[: comma - 1].encode())
    rows[place + 2] = ("outcome", SUMS[comma:].encode() + b"," + following)
    forge(path, rows)
    in_blocks, singly = both_ways(path, "certified-returns")
    assert in_blocks == singly
    assert in_blocks is not None
    assert in_blocks.first_bad == place


def test_a_row_that_waits_is_followed_before_later_damage_is_told(tmp_path: Path) -> None:
    """Row 4 does not follow and row 9 was altered: the first is named."""
    path = tmp_path / "journal"
    file, rows = content("certified-returns", (None, None))
    path.write_bytes(file)
    place = next(n for n, (kind, _) in enumerate(rows) if kind == "outcome")
    forge(path, [*rows[:place], ("outcome", b'{"episode":0}'), *rows[place + 1 :]])
    execute(path, ("UPDATE rows SET payload = '{}' WHERE n = ?", place + 5))
    verdict = verify(path, deployments.fresh())
    assert (verdict.first_bad, verdict.rows, verdict.episodes) == (place, place, 0)
    with pytest.raises(Damaged, match=f"row {place} does not follow"):
        Deployment.open(path, deployments.fresh())


def test_a_journal_whose_last_row_is_refused_is_not_opened_for_writing(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    file, rows = content("certified-returns", (None, None))
    path.write_bytes(file)
    last = max(n for n, (kind, _) in enumerate(rows) if kind == "outcome")
    forge(path, [*rows[:last], ("outcome", b'{"episode":59}')])
    opened = mock.Mock(wraps=Journal.connect)
    with (
        mock.patch.object(Journal, "connect", lambda self: opened(self)),
        pytest.raises(Damaged, match=f"row {last} does not follow"),
    ):
        Deployment.open(path, deployments.fresh())
    opened.assert_not_called()


def test_a_method_that_fails_on_a_block_is_told_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(content("certified-returns", (None, None))[0])
    tell_block = Learner.tell_block

    def only_single(self: Learner, orders: object, outcomes: object) -> int:
        if len(outcomes) > 1:  # type: ignore[arg-type]
            raise ZeroDivisionError("more than one")
        return tell_block(self, orders, outcomes)  # type: ignore[arg-type]

    with mock.patch.object(Learner, "tell_block", only_single):
        assert verify(path, deployments.fresh()).holds
