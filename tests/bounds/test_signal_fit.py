"""What signals are fitted to: directions, windows and bins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

import surefoot as sf
from shown_wheel import _shown_wheel
from surefoot.arrays import Floats
from surefoot.bounds.settings import MOST_TASKS, ResolvedBounds
from surefoot.bounds.signal_model import (
    BINS,
    OUTERMOST,
    PARTS,
    WINDOW,
    _fit_bins,
    _mean_ranks,
    _mixtures,
    _windows,
    round_law,
)
from surefoot.signals.signals import Signals, bins
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import family
from wheel import CONTROLLERS, QUICK

seeds = st.integers(0, 10**6)


def as_told(count: int) -> Signals:
    """Features that are signals already."""
    nothing, maps = np.zeros((1, count)), np.eye(count)[None]
    window: Any = np.zeros(count), np.ones(count)
    return Signals("moments", nothing, nothing + 1, maps, nothing, np.arange(count), *window, 5, None, None)


def read(rng: np.random.Generator, spreads: Floats, tasks: int = 40, episodes: int = 30) -> Floats:
    """[1, T, E, R] means of tasks between 0 and 1, episodes around them."""
    means = rng.uniform(size=(1, tasks, 1, len(spreads)))
    return np.asarray(means + spreads * rng.normal(size=(1, tasks, episodes, len(spreads))))


@given(seeds, st.integers(1, 30), st.integers(1, 4), st.integers(1, 40))
def test_equal_parameters_share_their_rank(seed: int, tasks: int, parameters: int, different: int) -> None:
    values = np.random.default_rng(seed).integers(0, different, size=(tasks, parameters)).astype(np.float64)
    np.testing.assert_array_equal(_mean_ranks(values), rankdata(values, axis=0))


@given(seeds, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_nought_and_one_have_bins_of_their_own(seed: int, noughts: float, ones: float) -> None:
    """What is bet on a number that is always 0 must not be what would be right if it were sometimes nearly 0."""
    rng = np.random.default_rng(seed)
    numbers = rng.uniform(1e-9, 1 - 1e-9, size=(1, 4, 50, 2))
    numbers[rng.uniform(size=numbers.shape) < noughts] = 0.0
    numbers[rng.uniform(size=numbers.shape) < ones] = 1.0
    lesson = _fit_bins(as_told(1), numbers[..., 1:], numbers[..., :1])
    flat = numbers.reshape(-1, 2)
    found = bins(lesson.edges, flat)
    for k in range(2):
        assert ((found[:, k] == 0) == (flat[:, k] == 0)).all()
        assert ((found[:, k] == BINS - 1) == (flat[:, k] == 1)).all()
        assert lesson.values[k, 0] == 0
        assert lesson.values[k, -1] == 1
        for b in np.unique(found[:, k]):
            assert lesson.values[k, b] == pytest.approx(flat[found[:, k] == b, k].mean())


def test_two_maps_are_also_read_together() -> None:
    """Sums and differences at one size: each of them varies by √2 of what the first does from episode to episode."""
    numbers = read(np.random.default_rng(0), np.array([0.1, 0.02]), episodes=4000)
    maps = _mixtures(numbers)
    assert maps.shape == (4, 2)
    np.testing.assert_array_equal(maps[:2], np.eye(2))
    spreads = (numbers @ maps.T).std(axis=2).mean(axis=(0, 1))
    np.testing.assert_allclose(spreads[2:], np.sqrt(2) * spreads[1], rtol=0.02)
    assert maps[2, 0] * maps[2, 1] > 0 > maps[3, 0] * maps[3, 1]
    np.testing.assert_array_equal(_mixtures(read(np.random.default_rng(0), np.full(3, 0.1))), np.eye(3))


@given(seeds, st.floats(1e-4, 2.0), st.integers(1, 12))
def test_windows_leave_nothing_out_that_tasks_differ_in(seed: int, spread: float, most: int) -> None:
    numbers = read(np.random.default_rng(seed), np.array([spread, 0.3]))
    source, low, high = _windows(numbers, most)
    assert np.isin(source, [0, 1]).all()
    for k in range(2):
        means = numbers.mean(axis=2)[..., k]
        first, last = np.quantile(means, [OUTERMOST, 1 - OUTERMOST])
        below, above = low[source == k], high[source == k]
        assert 1 <= len(below) <= most
        assert below[0] <= first
        assert above[-1] >= last
        assert (above[:-1] > below[1:]).all()  # no gap between one and the next
        assert (above - below >= 2 * WINDOW * numbers.std(axis=2)[..., k].mean() - 1e-9).all()


def test_surfaces_lie_through_a_number_of_tasks_that_can_be_afforded() -> None:
    assert ResolvedBounds(cells=10, holdout=100, uncovered=0.03).sample == 300
    assert ResolvedBounds(cells=10, holdout=10, uncovered=0.03).sample == 50
    assert ResolvedBounds(cells=10, holdout=4000, uncovered=0.03).sample == MOST_TASKS


@pytest.mark.parametrize("seed", range(5))
def test_laws_are_rounded_to_parts_that_make_a_whole(seed: int) -> None:
    """Against counts of one's own: nothing is moved by as much as a part, and nothing is lost."""
    rng = np.random.default_rng(seed)
    seen = rng.exponential(size=(3, 4, BINS)) ** rng.uniform(0.5, 6)
    law = round_law(seen)
    parts = PARTS * law
    assert np.array_equal(parts, np.round(parts))
    assert (law.sum(axis=-1) == 1.0).all()
    assert (law >= 0).all()
    assert np.abs(law - seen / seen.sum(axis=-1, keepdims=True)).max() <= 1 / PARTS


@pytest.mark.parametrize(("pushes", "some"), [([[0.4]], False), ([[0.4], [0.9]], True)])
def test_signals_are_learned_where_tasks_differ(pushes: list[list[float]], some: bool) -> None:
    safe, *others = (sf.controller(function, name=name) for name, function in CONTROLLERS.items())
    tasks = family(_shown_wheel, Finite(pushes))
    lesson = sf.LearnedSignals(tasks=8, episodes=4)
    made = sf.policy_set(tasks, safe=safe, candidates=others, seed=0, envelopes=QUICK, signals=lesson, progress=False)
    assert made.cells is not None
    assert (made.cells.readings is not None) == some


@given(seeds)
def test_ranks_are_those_of_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 4, size=rng.integers(1, 30, size=2)).astype(float)  # few numbers, so many are equal
    assert np.array_equal(_mean_ranks(values), rankdata(values, axis=0))
