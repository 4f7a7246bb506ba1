"""Counts against a plain loop, and every formula against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from random_tasks import random_distributions, seeds
from surefoot.errors import InvalidInput
from surefoot.lab.baselines import empirical_model as empirical
from surefoot.lab.baselines.dope_planning import Algorithm, Constants, Preset
from surefoot.lab.baselines.empirical_model import Support, estimate, known_support
from surefoot.tasks.layered_tasks import layered_transitions


def random_support(rng: np.random.Generator, states: int, actions: int) -> tuple[Support, np.ndarray]:
    kernel = random_distributions(rng, (states, actions, states), 0.6)
    return known_support(np.where(kernel > 0, 0, -1)), kernel


def walk(rng: np.random.Generator, kernel: np.ndarray, episodes: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    states, actions, _ = kernel.shape
    path = np.zeros((episodes, steps + 1), dtype=np.int8)
    taken = rng.integers(actions, size=(episodes, steps)).astype(np.int8)
    path[:, 0] = rng.integers(states, size=episodes)
    for k in range(episodes):
        for t in range(steps):
            path[k, t + 1] = rng.choice(states, p=kernel[path[k, t], taken[k, t]])
    return path, taken


@settings(max_examples=30)
@given(seed=seeds, states=st.integers(1, 5), actions=st.integers(1, 3))
def test_counts_are_those_of_a_plain_loop(seed: int, states: int, actions: int) -> None:
    rng = np.random.default_rng(seed)
    support, kernel = random_support(rng, states, actions)
    path, taken = walk(rng, kernel, 6, 9)
    dense, by_episode = np.zeros((states, actions, states)), np.zeros((6, states, actions))
    for k in range(6):
        for t in range(9):
            dense[path[k, t], taken[k, t], path[k, t + 1]] += 1
            by_episode[k, path[k, t], taken[k, t]] += 1
    counts = support.count(path, taken)
    spread = np.zeros_like(dense)
    s, a, d = np.nonzero(support.possible)
    spread[s, a, support.successors[s, a, d]] = counts[s, a, d]
    assert np.array_equal(spread, dense)
    assert counts[~support.possible].sum() == 0
    assert np.array_equal(support.visits_by_episode(path, taken), by_episode)
    assert np.array_equal(support.count(path[:2], taken[:2]) + support.count(path[2:], taken[2:]), counts)


@settings(max_examples=20)
@given(seed=seeds)
def test_layers_are_pooled(seed: int) -> None:
    rng = np.random.default_rng(seed)
    support, kernel = random_support(rng, 3, 2)
    layers = 4
    expanded = layered_transitions(kernel, layers)
    pooled = known_support(np.where(expanded > 0, 0, -1), layers)
    assert np.array_equal(pooled.successors, support.successors)
    assert np.array_equal(pooled.possible, support.possible)
    path, taken = walk(rng, kernel, 5, layers + 2)
    place = np.minimum(np.arange(layers + 3) * 3 + path, layers * 3)
    # The last layer leads to the end for sure, so there is nothing to count.
    assert np.array_equal(pooled.count(place, taken), support.count(path[:, :layers], taken[:, : layers - 1]))
    expected = support.visits_by_episode(path[:, :layers], taken[:, : layers - 1])
    assert np.array_equal(pooled.visits_by_episode(place, taken), expected)


def test_an_episode_may_end_where_it_can_no_longer_leave() -> None:
    """States 0 → 1 → 2, and 2 cannot be left: one visit to each of its actions, whatever was done there."""
    classes = np.full((3, 2, 3), -1)
    classes[0, :, 1] = classes[1, :, 2] = classes[2, :, 2] = 0
    classes[1, 1, 1] = 0
    support = known_support(classes, ends=True)
    assert support.ending is not None
    assert support.ending.tolist() == [False, False, True]
    path, taken = np.array([[0, 1, 2, 2, 2], [0, 1, 1, 1, 1]]), np.array([[0, 0, 1, 1], [1, 1, 1, 1]])
    assert support.visits_by_episode(path, taken).tolist() == [[[1, 0], [1, 0], [1, 1]], [[0, 1], [0, 3], [0, 0]]]
    assert np.array_equal(support.count(path, taken).sum(axis=2), support.visits_by_episode(path, taken).sum(axis=0))


def test_what_cannot_happen_is_refused() -> None:
    classes = np.array([[[0, -1]], [[0, 0]]])
    support = known_support(classes)
    with pytest.raises(InvalidInput, match="state 0 under action 0 to state 1"):
        support.count(np.array([[0, 1]]), np.array([[0]]))
    with pytest.raises(InvalidInput, match=r"states must lie in \[0, 2\)"):
        support.count(np.array([[0, 2]]), np.array([[0]]))
    with pytest.raises(InvalidInput, match=r"actions must lie in \[0, 1\)"):
        support.count(np.array([[0, 0]]), np.array([[1]]))
    with pytest.raises(InvalidInput, match="layers must be at least 2"):
        known_support(classes, layers=3)
    with pytest.raises(InvalidInput, match="none in row 1"):
        known_support(np.array([[[0, -1]], [[-1, -1]]]))


def test_estimates_are_frequencies_and_uniform_without_data() -> None:
    possible = np.array([[[True, True, True]], [[True, True, False]]])
    counts = np.array([[[3, 1, 0]], [[0, 0, 0]]])
    assert estimate(counts, possible).tolist() == [[[0.75, 0.25, 0.0]], [[0.5, 0.5, 0.0]]]


def test_widths_by_hand() -> None:
    """n = 4 with P̂ = (3/4, 1/4), and n = 0."""
    probability, visits = np.array([[[0.75, 0.25]], [[0.5, 0.5]]]), np.array([[4], [0]])
    possible = np.array([[[True, True]], [[True, False]]])
    bernstein = empirical.bernstein_widths(probability, visits, 0.01)
    assert bernstein[0, 0, 0] == pytest.approx(2 * math.sqrt(0.01 * 3 / 16 / 4) + 0.14 / 12, rel=1e-14)
    assert bernstein[0, 0, 1] == bernstein[0, 0, 0]
    script = empirical.script_widths(probability, visits, 0.01)
    assert script[0, 0, 0] == pytest.approx(min(math.sqrt(0.01 * 3 / 16 / 4) + 0.01 / 4, 0.01 / 2), rel=1e-14)
    wide = empirical.script_widths(probability, visits, 4.0)
    assert wide[0, 0, 0] == pytest.approx(math.sqrt(4 * 3 / 16 / 4) + 1.0, rel=1e-14)
    within = empirical.within_reach(bernstein, visits, possible)
    assert within.tolist() == [[bernstein[0, 0].tolist()], [[1.0, 0.0]]]
    assert empirical.within_reach(bernstein + 2, visits, possible).tolist() == [[[1.0, 1.0]], [[1.0, 0.0]]]
    plus = empirical.dope_plus_widths(probability, visits, 0.01)
    assert plus[0, 0].tolist() == pytest.approx([2 * math.sqrt(0.01 * p / 3) + 0.14 / 9 for p in (0.75, 0.25)])
    assert plus[1, 0, 0] == pytest.approx(2 * math.sqrt(0.005) + 0.14 / 3)
    hoeffding = empirical.hoeffding_width(visits, 9.0)
    assert hoeffding.tolist() == [[1.5], [3.0]]


def test_the_bonus_of_dope_plus_by_hand() -> None:
    """S = 2, A = 3, H = 4, K = 12, L = 1/2, n = 5."""
    last = 4 * 2 * math.sqrt(3 * 4 / 12)
    first = 8 * 2 * (math.sqrt(4 * 2 * 0.5 / 4) + 14 * 2 * 0.5 / (3 * 4)) + 2 * 0.5 * math.sqrt(12 * 4 / 3) / 4
    visits = np.array([[5]])
    assert empirical.dope_plus_bonus(visits, 0.5, 2, 3, 4.0, 12)[0, 0] == pytest.approx(first + last, rel=1e-14)
    without = empirical.dope_plus_bonus(visits, 0.5, 2, 3, 4.0, 12, last_term=False)
    assert without[0, 0] == pytest.approx(first, rel=1e-14)


@pytest.mark.parametrize(
    ("algorithm", "preset", "inside"),
    [
        ("dope", "theory", 7_200_000),
        ("dope", "published", 32_400_000),
        ("dope-plus", "theory", 3_600_000),
        ("dope-plus", "published", 32_400_000),
        ("optpess-lp", "theory", 172_800_000),
        ("optpess-lp", "published", 172_800_000),
    ],
)
def test_log_terms_by_hand(algorithm: Algorithm, preset: Preset, inside: int) -> None:
    """S = 3, A = 2, H = 6, K = 1000, δ = 0.01."""
    found = Constants(algorithm, preset, 1000, 0.01, 6, 1.0, 6.0, 1.0).log_term(3, 2)
    assert found == pytest.approx(math.log(inside))


def test_the_warm_up_by_hand() -> None:
    assert empirical.warm_up_episodes(3, 2, 6, 2.4) == 675


def test_the_true_transitions_stay_within_the_widths() -> None:
    """The union bound in the docstring of `log_term`, at a risk where a missing factor would show.

    One row, D = 6 successors, after every of 400 visits; each of 1000 runs may fail with probability 0.3 at most.
    """
    rng = np.random.default_rng(0)
    truth = np.array([0.5, 0.3, 0.1, 0.06, 0.03, 0.01])
    runs, steps = 1000, 400
    log_term = Constants("dope", "theory", 1, 0.3, steps, 1.0, 1.0, 1.0).log_term(6, 1)
    drawn = rng.random((runs, steps, 1)) < np.cumsum(truth)
    counts = np.diff(drawn.astype(np.int64), axis=2, prepend=0).cumsum(axis=1)
    visits = np.broadcast_to(np.arange(1, steps + 1), (runs, steps))
    possible = np.ones(counts.shape, dtype=np.bool_)
    probability = estimate(counts, possible)
    widths = empirical.within_reach(empirical.bernstein_widths(probability, visits, log_term), visits, possible)
    failed = (np.abs(probability - truth) > widths + 1e-12).any(axis=(1, 2)).mean()
    assert failed <= 0.3
    narrow = empirical.within_reach(empirical.bernstein_widths(probability, visits, log_term / 20), visits, possible)
    assert (np.abs(probability - truth) > narrow + 1e-12).any(axis=(1, 2)).mean() > 0.3
