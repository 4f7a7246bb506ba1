"""Episodes that are kept: going on is to the last bit the same as never having stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from shown_wheel import shown_wheels
from surefoot.bounds.kept_episodes import BLOCK, KeptEpisodes
from surefoot.errors import InvalidInput
from surefoot.tasks.distribution import Finite, Independent, Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family
from wheel import Turns, _wheel, wheels

REST, PUSH = (sf.controller(lambda seen, action=action: action, name=f"always {action}") for action in (0, 1))
FEW = sf.Envelopes(cells=3, holdout=25, uncovered=0.3, episodes=16)
MORE = replace(FEW, holdout=40, episodes=40, attempt=2)


def made(folder: Path | None, envelopes: sf.Envelopes, tasks: TaskDistribution | None = None, **given: Any) -> Any:
    return sf.policy_set(
        tasks or wheels(), safe=REST, candidates=[PUSH], seed=3, envelopes=envelopes, keep=folder, progress=False,
        **given,
    )  # fmt: skip


def arrays(policies: Any) -> list[Any]:
    found = [policies.cells.prior, policies.cells.lower, policies.cells.upper, policies.cells.low]
    readings = policies.cells.readings
    return found + ([] if readings is None else [readings.lower, readings.upper, readings.law])


def same(some: Any, other: Any) -> bool:
    return all(np.array_equal(*pair) for pair in zip(arrays(some), arrays(other), strict=True))


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Episodes of every run of a wheel."""
    seen: list[int] = []
    run = Turns.run

    def counted(self: Turns, episodes: int, rng: Any, transitions: bool = False) -> Any:
        seen.append(episodes)
        return run(self, episodes, rng, transitions)

    monkeypatch.setattr(Turns, "run", counted)
    return seen


@pytest.mark.parametrize(
    "tasks",
    [pytest.param(wheels(), marks=pytest.mark.long), family(_wheel, Finite(np.linspace(0.2, 1.2, 5)[:, None]))],
    ids=["sampled", "finite"],
)
def test_a_second_call_goes_on_where_the_first_ended(
    tasks: TaskDistribution, tmp_path: Path, played: list[int]
) -> None:
    little, much = FEW, MORE
    if isinstance(tasks.distribution, Finite):
        little, much = (replace(each, episodes=5 * (each.episodes or 0)) for each in (FEW, MORE))
    made(tmp_path / "a", little, tasks)
    first = sum(played)
    played.clear()
    extended = made(tmp_path / "a", much, tasks)
    rest = sum(played)
    played.clear()
    at_once = made(tmp_path / "b", much, tasks)
    assert same(extended, at_once)
    assert rest < sum(played), "what was there has not been simulated again"
    assert first > 0
    played.clear()
    assert same(made(tmp_path / "b", much, tasks, jobs=2), at_once)


def test_a_call_that_was_stopped_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = made(tmp_path / "whole", FEW)
    calls, run = [0], Turns.run

    def stopped(self: Turns, episodes: int, rng: Any, transitions: bool = False) -> Any:
        calls[0] += 1
        if calls[0] > 120:
            raise KeyboardInterrupt
        return run(self, episodes, rng, transitions)

    with monkeypatch.context() as patch:
        patch.setattr(Turns, "run", stopped)
        with pytest.raises(KeyboardInterrupt):
            made(tmp_path / "part", FEW)
    assert list((tmp_path / "part").rglob("*.npy")), "something was kept"
    assert same(made(tmp_path / "part", FEW), whole)


def test_who_has_looked_must_pay_for_another_look(tmp_path: Path) -> None:
    made(tmp_path, FEW)
    made(tmp_path, FEW)  # the same again is no other look
    with pytest.raises(InvalidInput, match="attempt must be 2 for episodes of which bounds were made already"):
        made(tmp_path, replace(FEW, episodes=40))
    made(tmp_path, MORE)


@pytest.mark.long
def test_signals_are_kept_with_the_way_they_were_learned(tmp_path: Path) -> None:
    lesson = sf.LearnedSignals(tasks=8, episodes=4, windows=2)
    made(tmp_path / "a", FEW, shown_wheels(), signals=lesson)
    before = len(list((tmp_path / "a").rglob("*.npy")))
    assert same(
        made(tmp_path / "a", MORE, shown_wheels(), signals=lesson),
        made(tmp_path / "b", MORE, shown_wheels(), signals=lesson),
    )
    assert len(list((tmp_path / "a").iterdir())) == 2, "one folder, and how signals were learned"
    assert len(list((tmp_path / "a").rglob("*.npy"))) > before
    made(tmp_path / "a", FEW, shown_wheels(), signals=replace(lesson, tasks=9))
    assert len(list((tmp_path / "a").iterdir())) == 3, "other signals, other numbers"


def test_samples_and_episodes_begin_alike_whatever_their_number(tmp_path: Path) -> None:
    kept = KeptEpisodes(tmp_path, seed=1)
    tasks = family(lambda both: _wheel(both[:1]), Independent([Uniform(0.2, 1.2), Uniform(0.0, 1.0)]))
    assert np.array_equal(kept.sample(tasks, 0, 150)[:70], kept.sample(tasks, 0, 70))
    assert not np.array_equal(kept.sample(tasks, 0, 70), kept.sample(tasks, 1, 70))

    def draw(count: int, rng: np.random.Generator) -> Any:
        return rng.random((count, 2))

    few = kept.numbers((1, 2, 0), 0, BLOCK + 1, draw)
    fresh = KeptEpisodes(tmp_path / "none", seed=1)
    (tmp_path / "none").mkdir()
    assert np.array_equal(kept.numbers((1, 2, 0), 3, 40, draw), fresh.numbers((1, 2, 0), 0, 43, draw)[3:])
    assert np.array_equal(few, fresh.numbers((1, 2, 0), 0, BLOCK + 1, draw))
    assert not np.array_equal(few, kept.numbers((1, 2, 1), 0, BLOCK + 1, draw))


def test_nothing_is_kept_where_nothing_is_simulated(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="keep must be None"):
        made(tmp_path, sf.Envelopes(cells=0, holdout=39, uncovered=0.2, episodes=80))
