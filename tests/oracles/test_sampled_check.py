"""The sampling check oracle: its sample size by hand, its promise by counting failures, and mutants that must fail."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from random_tasks import as_sparse, nearby, random_arrays, random_cmdp, seeds
from surefoot.errors import InvalidInput
from surefoot.oracles import check_by_sampling, sampled, samples_needed
from surefoot.tabular.model import TabularCMDP
from surefoot.testing.oracle_suite import conforms_to_check_oracle, reference_distance

STATES, ACTIONS = 4, 2
EPSILON, DELTA = 0.1, 0.2
TRIALS = 400
# Chance that a correct oracle failing exactly a share δ of the time is reported.
FALSE_ALARM = 1e-4


def shifted_pair(by: float, rows: slice = slice(None)) -> tuple[TabularCMDP, TabularCMDP]:
    """Two tasks that differ in `rows` of their transitions, by a total variation of `by`, and in nothing else."""
    flat = np.full((STATES * ACTIONS, STATES), 1 / STATES)
    moved = flat.copy()
    moved[rows, 0] += by
    moved[rows, 1:] -= by / (STATES - 1)
    shape = (STATES, ACTIONS, STATES)
    common = (np.zeros((STATES, ACTIONS)), np.zeros((STATES, ACTIONS)), 1.0, np.eye(STATES)[0], 0.9)
    return TabularCMDP(flat.reshape(shape), *common), TabularCMDP(moved.reshape(shape), *common)


def failures(pair: tuple[TabularCMDP, TabularCMDP], right: bool, seed: int) -> int:
    rng = np.random.default_rng(seed)
    check = check_by_sampling()
    return sum(check(*pair, EPSILON, DELTA, rng) is not right for _ in range(TRIALS))


def breaks_promise(count: int) -> bool:
    return bool(binomtest(count, TRIALS, DELTA, alternative="greater").pvalue < FALSE_ALARM)


NEAR = (shifted_pair(EPSILON), True)  # all rows at ε: the most chances to be called far
FAR = (shifted_pair(2 * EPSILON + 1e-9, slice(1)), False)  # one row just beyond 2ε: the fewest chances to be noticed


def test_the_pairs_are_as_far_as_they_say() -> None:
    assert reference_distance(*NEAR[0]) == pytest.approx(EPSILON, abs=1e-12)
    assert reference_distance(*FAR[0]) > 2 * EPSILON


@pytest.mark.parametrize(("pair", "right"), [NEAR, FAR])
def test_fails_no_more_often_than_delta(pair: tuple[TabularCMDP, TabularCMDP], right: bool) -> None:
    assert not breaks_promise(failures(pair, right, seed=1))


@pytest.mark.parametrize(
    ("case", "name", "mutant"),
    [
        (NEAR, "samples_needed", lambda *args: samples_needed(*args) // 10),
        (NEAR, "threshold", lambda epsilon, *_: epsilon),
        (FAR, "threshold", lambda epsilon, *_: 2 * epsilon),
    ],
    ids=["a tenth of the samples", "threshold at ε", "threshold at 2ε"],
)
def test_mutants_break_the_promise(monkeypatch: pytest.MonkeyPatch, case, name, mutant) -> None:
    monkeypatch.setattr(sampled, name, mutant)
    assert breaks_promise(failures(*case, seed=1))


@pytest.mark.parametrize("outcomes", [2, 10, 50])
def test_bias_and_deviation_bound(outcomes: int) -> None:
    """The inequality behind the sample size, simulated where it is tightest: two equal uniform distributions."""
    draws, delta, repeats = 1000, 0.05, 4000
    rng = np.random.default_rng(7)
    counts = rng.multinomial(draws, np.full(outcomes, 1 / outcomes), size=(2, repeats))
    estimate = np.abs(counts[0] - counts[1]).sum(axis=1) / (2 * draws)
    assert 0.5 * math.sqrt((outcomes - 1) / draws) < estimate.mean() < math.sqrt((outcomes - 1) / draws)
    exceeded = int((estimate > math.sqrt((outcomes - 1) / draws) + math.sqrt(math.log(1 / delta) / draws)).sum())
    assert binomtest(exceeded, repeats, delta, alternative="greater").pvalue > FALSE_ALARM


def test_sample_size_by_hand() -> None:
    # k = 5, N = 1, δ = e⁻⁴: (2 + 2 + 2)²/0.5² = 144; with N = e⁵, (2 + 3 + 2)²/0.5² = 196.
    assert samples_needed(0.5, math.exp(-4) * (1 + 1e-12), 5, 1) == 144
    assert sampled.threshold(0.5, math.exp(-4), 5, 1) == pytest.approx(0.5 * (1 + 4 / 6))
    assert samples_needed(0.5, math.exp(-4) * 148 / math.exp(5), 5, 148) == pytest.approx(196, abs=2)


@given(seeds, st.sampled_from([0.001, 0.02, 0.5]), st.sampled_from([0.01, 0.1]))
@settings(max_examples=25)
def test_contract(seed: int, size: float, epsilon: float) -> None:
    rng = np.random.default_rng(seed)
    arrays = random_arrays(rng, constraints=2)
    ranges = {"reward_range": (-5.0, 15.0), "cost_range": (-2.0, 15.0)}
    first = TabularCMDP(**arrays, **ranges)
    second = TabularCMDP(**as_sparse(nearby(rng, arrays, size, common_start=False)), **ranges)
    conforms_to_check_oracle(check_by_sampling(), first, second, epsilon, seed=seed)


@pytest.mark.parametrize("part", ["reward", "cost", "start", "transitions"])
def test_every_part_counts(part: str) -> None:
    arrays = random_arrays(np.random.default_rng(3), support=1.0)
    other = {**arrays, part: np.flip(arrays[part], axis=-1)}
    ranges = {"reward_range": (-5.0, 15.0), "cost_range": (-2.0, 15.0)}
    first, second = TabularCMDP(**arrays, **ranges), TabularCMDP(**other, **ranges)
    gap = reference_distance(first, second)
    assert not conforms_to_check_oracle(check_by_sampling(), first, second, gap / 2.1)
    assert conforms_to_check_oracle(check_by_sampling(), first, second, gap)


def test_blocks_do_not_change_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "BLOCK_ENTRIES", STATES)  # one row at a time
    rng = np.random.default_rng(0)
    assert check_by_sampling()(*shifted_pair(0.0), EPSILON, 1e-6, rng)
    for row in (0, 3, STATES * ACTIONS - 1):
        assert not check_by_sampling()(*shifted_pair(0.5, slice(row, row + 1)), EPSILON, 1e-6, rng)


def test_knowing_the_successors_saves_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    monkeypatch.setattr(sampled, "_empirical_distance", lambda first, second, draws, rng: drawn.append(draws) or 0.0)
    pair = shifted_pair(0.0)
    for successors in (None, 2, 99):
        check_by_sampling(successors)(*pair, EPSILON, DELTA, np.random.default_rng(0))
    start, plain, _, fewer, _, capped = drawn
    assert start == plain == capped == samples_needed(EPSILON, DELTA, STATES, STATES * ACTIONS + 1)
    assert fewer == samples_needed(EPSILON, DELTA, 2, STATES * ACTIONS + 1) < plain


def test_bad_arguments_are_named() -> None:
    rng = np.random.default_rng(0)
    task = random_cmdp(rng)
    bad = [(0.0, 0.1, "epsilon"), (-1.0, 0.1, "epsilon"), (0.1, 0.0, "delta"), (0.1, 1.0, "delta")]
    for epsilon, delta, name in bad:
        with pytest.raises(InvalidInput, match=name):
            samples_needed(epsilon, delta, 4, 9)
    with pytest.raises(InvalidInput, match="share"):
        check_by_sampling()(task, random_cmdp(rng, states=5), 0.1, 0.1, rng)
    with pytest.raises(InvalidInput, match="share"):
        check_by_sampling()(task, random_cmdp(rng, discount=0.8), 0.1, 0.1, rng)
    with pytest.raises(InvalidInput, match="successors"):
        check_by_sampling(0)
