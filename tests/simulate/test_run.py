"""Records as spans: the arrays over episodes are the numbers of the spans, as often as these are long."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from made_runs import made_run
from surefoot.cmdp.policy import EpisodeMixture
from surefoot.simulate.run import Run, Spans

ROWS = [  # reward, margin, their errors, weight
    [1.0, 0.5, 0.1, 0.2, 0.0],
    [1.0, 0.5, 0.1, 0.2, 0.0],
    [2.5, 0.1, 0.3, 0.2, 0.4],
    [2.0, -0.5, 0.1, 0.2, 1.0],
]


def run(*, exact: bool = False, optimum: float = 2.2) -> Run:
    """Four blocks, of which the first two deployed the same."""
    output = EpisodeMixture(("safe",), np.array([1.0]))  # type: ignore[arg-type]
    return Run("paper", True, Spans.of([0, 3, 4, 9], ROWS, 11), optimum, output, exact=exact)


def test_equal_neighbours_are_one_span_and_what_begins_too_late_is_none() -> None:
    spans = Spans.of([0, 3, 4, 9], ROWS, 11)
    assert spans.begins.tolist() == [0, 4, 9]
    assert spans.lengths.tolist() == [4, 5, 2]
    assert spans.rows.tolist() == ROWS[1:]
    assert Spans.of([0, 3, 4, 9], ROWS, 9).begins.tolist() == [0, 4]
    assert Spans.of([0], [[0.5, 0.5]], 7).lengths.tolist() == [7]
    assert spans.at(np.array([0, 3, 4, 8, 9, 10]))[:, 0].tolist() == [1.0, 1.0, 2.5, 2.5, 2.0, 2.0]


@pytest.mark.parametrize("exact", [True, False])
def test_arrays_over_episodes_are_those_of_a_record_of_every_episode(exact: bool) -> None:
    found = run(exact=exact)
    rows = np.repeat(ROWS, [3, 1, 5, 2], axis=0)
    error = None if exact else rows[:, 2:4]
    single = made_run("paper", True, rows[:, 0], rows[:, 1], rows[:, 4], optimum=2.2, error=error)
    assert found.reward.tolist() == rows[:, 0].tolist()
    assert found.regret.tolist() == np.cumsum(np.abs(2.2 - rows[:, 0])).tolist()
    assert (found.error is None) == exact
    if found.error is not None:
        assert found.error.tolist() == rows[:, 2:4].tolist()
    for name in ("regret", "margin", "weight", "reward", "unsafe", "undecided"):
        assert getattr(found, name).tolist() == getattr(single, name).tolist()
        assert getattr(found, name).shape == (11,)
    assert np.array_equal(found.margin_bounds, single.margin_bounds)
    assert found.unsafe_episodes == np.count_nonzero(found.unsafe) == 2
    assert found.undecided_episodes == np.count_nonzero(found.undecided) == (0 if exact else 5)
    assert (found.total_regret, found.mean_reward) == (found.regret[-1], found.reward.mean())
    assert found.min_margin == found.margin.min()
    assert found.min_margin_bounds == tuple(bound.min() for bound in found.margin_bounds)
    assert found.moved
    assert repr(found) == repr(single)
    assert repr(found).startswith("Run(method='paper', certified=True, regret=array([1.2")


def test_arrays_are_made_once_and_cannot_be_written_to() -> None:
    found = run()
    for name in ("regret", "margin", "weight", "reward", "error"):
        assert getattr(found, name) is getattr(found, name)
        with pytest.raises(ValueError, match="read-only"):
            getattr(found, name)[0] = 0.0
    assert found != run()  # runs are compared by identity, as ever


def test_a_long_record_is_small_until_its_arrays_are_asked_for() -> None:
    output = EpisodeMixture(("safe",), np.array([1.0]))  # type: ignore[arg-type]
    found = Run("paper", True, Spans.of([0, 10], ROWS[1:3], 1_000_000), 2.2, output)
    assert (found.unsafe_episodes, found.min_margin, found.episodes) == (0, 0.1, 1_000_000)
    assert found.total_regret == pytest.approx(10 * 1.2 + 999_990 * 0.3)
    assert len(pickle.dumps(found)) < 2000
    assert len(found.regret) == 1_000_000
