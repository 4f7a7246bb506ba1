"""Features of observed episodes against plain loops, and alone as among others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.cmdp.episode import Observed
from surefoot.errors import InvalidInput
from surefoot.signals.features import (
    MEMORIES,
    MOST_COEFFICIENTS,
    SHRINKAGE,
    frequent_transitions,
    moments,
    of_states,
    transitions,
)

seeds = st.integers(0, 10**6)


def walks(seed: int, n: int = 7, steps: int = 9, width: int = 2) -> Observed:
    """Episodes of different lengths, in single precision."""
    rng = np.random.default_rng(seed)
    seen, acted = rng.normal(size=(n, steps + 1, width)).cumsum(axis=1), rng.normal(size=(n, steps))
    return Observed(seen.astype(np.float32), acted, rng.integers(1, steps + 1, size=n))


def tables(seed: int, n: int = 7, steps: int = 9, states: int = 4) -> Observed:
    rng = np.random.default_rng(seed)
    seen, acted = rng.integers(states, size=(n, steps + 1)), rng.integers(2, size=(n, steps))
    return Observed(seen, acted, rng.integers(1, steps + 1, size=n))


def with_junk(observed: Observed, value: float) -> Observed:
    """After the end of each episode something else."""
    seen, acted = observed.observations.copy(), observed.actions.copy()
    for k, steps in enumerate(observed.steps.tolist()):
        seen[k, steps + 1 :], acted[k, steps:] = value, value
    return Observed(seen, acted, observed.steps)


@given(seeds)
def test_an_episode_has_the_same_moments_alone_and_among_others(seed: int) -> None:
    observed = walks(seed)
    together = moments(observed)
    alone = np.concatenate([moments(observed[k : k + 1]) for k in range(len(observed))])
    assert together.tobytes() == alone.tobytes()
    backwards = moments(observed[np.arange(len(observed))[::-1]])
    assert together[::-1].tobytes() == backwards.tobytes()


@given(seeds, st.sampled_from([1e6, -3.0, 0.0]))
def test_what_comes_after_the_end_does_not_matter(seed: int, value: float) -> None:
    observed, counted = walks(seed), tables(seed)
    assert moments(with_junk(observed, value)).tobytes() == moments(with_junk(observed, 1.0)).tobytes()
    keys = frequent_transitions(with_junk(counted, 3), 40)
    assert keys.tolist() == frequent_transitions(with_junk(counted, 0), 40).tolist()
    assert transitions(with_junk(counted, 3), keys).tobytes() == transitions(with_junk(counted, 0), keys).tobytes()


def test_rows_that_are_longer_than_all_episodes_change_no_moment_but_by_rounding() -> None:
    observed = walks(3)
    longer = Observed(
        np.pad(observed.observations, [(0, 0), (0, 5), (0, 0)]),
        np.pad(observed.actions, [(0, 0), (0, 5)]),
        observed.steps,
    )
    np.testing.assert_allclose(moments(longer), moments(observed), rtol=1e-9, atol=1e-9)


@given(seeds)
def test_moments_are_those_of_a_plain_loop(seed: int) -> None:
    observed = walks(seed)
    found = moments(observed)
    for row, seen, acted, steps in zip(found, observed.observations, observed.actions, observed.steps, strict=True):
        own, actions = seen[: steps + 1].astype(np.float64), acted[:steps, None]
        expected = [
            *([steps], own.mean(axis=0), own.std(axis=0), own.min(axis=0), own.max(axis=0)),
            *(actions.mean(axis=0), actions.std(axis=0)),
        ]
        count = sum(len(part) for part in expected)
        np.testing.assert_allclose(row[:count], np.concatenate(expected), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(row[count:], ridge(own, actions).ravel(), rtol=1e-6, atol=1e-6)


def ridge(seen: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """[k, 1+k+4a] by least squares with one more row for each input, which asks for nothing at a size of its own."""
    remembered = []
    for steps in MEMORIES:
        average, kept = np.zeros(actions.shape[1]), []
        for action in actions:
            average = average + (1 - np.exp(-1 / steps)) * (action - average)
            kept.append(average)
        remembered.append(np.stack(kept))
    inputs = np.column_stack([np.ones(len(actions)), seen[:-1], actions, *remembered])
    size = np.sqrt((inputs**2).mean(axis=0)) + 1e-9
    rows = np.concatenate([inputs, np.sqrt(SHRINKAGE) * np.diag(size)])
    aims = np.concatenate([np.diff(seen, axis=0), np.zeros((inputs.shape[1], seen.shape[1]))])
    return np.asarray(np.linalg.lstsq(rows, aims, rcond=None)[0].T)


def test_a_long_episode_shows_the_laws_that_it_follows() -> None:
    """Almost without shrinkage and noise the coefficients are those of the system."""
    rng, steps = np.random.default_rng(0), 4000
    actions, seen = rng.normal(size=steps), np.zeros((steps + 1, 1))
    for t in range(steps):
        seen[t + 1] = 0.7 * seen[t] + 0.3 * actions[t] + 0.1
    found = moments(Observed(seen[None], actions[None], np.array([steps])))[0, -6:]
    np.testing.assert_allclose(found, [0.1, -0.3, 0.3, 0.0, 0.0, 0.0], atol=2e-3)


def test_effects_that_come_late_show_in_what_is_remembered() -> None:
    rng, steps = np.random.default_rng(0), 4000
    actions, seen, average = rng.normal(size=steps), np.zeros((steps + 1, 1)), 0.0
    for t in range(steps):
        average += (1 - np.exp(-1 / 16)) * (actions[t] - average)
        seen[t + 1] = 0.7 * seen[t] + 0.3 * average
    found = moments(Observed(seen[None], actions[None], np.array([steps])))[0, -6:]
    assert found[4] > 10 * np.abs(found[[2, 3, 5]]).max(), "shrunk, but what is remembered for 16 steps it is"


def test_observations_of_many_numbers_have_moments_only() -> None:
    width = int(np.sqrt(MOST_COEFFICIENTS)) + 1
    assert moments(walks(0, width=width)).shape == (7, 1 + 4 * width + 2)
    assert moments(walks(0, width=width - 2)).shape == (7, 1 + 4 * (width - 2) + 2 + (width - 2) * width), "no memory"
    assert moments(walks(0, width=2)).shape == (7, 1 + 4 * 2 + 2 + 2 * 7)


@given(seeds)
def test_transitions_are_counted_as_by_a_plain_loop(seed: int) -> None:
    observed = tables(seed)
    rng = np.random.default_rng(seed)
    keys = rng.permutation(np.unique(rng.integers([4, 2, 4], size=(20, 3)), axis=0))
    expected = [
        [sum((s, a, after) == tuple(key) for s, a, after in triples(observed, k)) for key in keys.tolist()]
        for k in range(len(observed))
    ]
    assert transitions(observed, keys).tolist() == expected
    alone = np.concatenate([transitions(observed[k : k + 1], keys) for k in range(len(observed))])
    assert alone.tolist() == expected


def triples(observed: Observed, k: int) -> list[tuple[int, int, int]]:
    steps = int(observed.steps[k])
    seen = observed.observations[k, : steps + 1].tolist()
    return list(zip(seen[:-1], observed.actions[k, :steps].tolist(), seen[1:], strict=True))


@given(seeds, st.integers(1, 12))
def test_those_are_counted_that_occur_in_most_episodes(seed: int, most: int) -> None:
    observed = tables(seed)
    sets = [set(triples(observed, k)) for k in range(len(observed))]
    count = {key: sum(key in own for own in sets) for key in set().union(*sets)}
    chosen = [tuple(key) for key in frequent_transitions(observed, most).tolist()]
    assert len(set(chosen)) == min(most, len(count))
    least = min(count[key] for key in chosen)
    assert sum(number > least for number in count.values()) <= len(chosen)
    assert all(key in chosen for key, number in count.items() if number > least)


def test_transitions_are_those_of_states() -> None:
    assert of_states(tables(0))
    assert not of_states(walks(0))
    with pytest.raises(InvalidInput, match="observations and actions must be whole numbers"):
        transitions(walks(0), np.array([[0, 0, 0]]))
