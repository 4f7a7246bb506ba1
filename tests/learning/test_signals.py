"""The signal e-process: every bet has a mean of at most 1 on its cell, and is placed before the episode."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import surefoot as sf
from shown_wheel import ShownWheel, shown_set
from surefoot.arrays import Floats
from surefoot.cmdp.episode import Outcomes
from surefoot.learning.certified.choice import make_evidence
from surefoot.learning.certified.evidence import signals as evidence
from surefoot.learning.certified.evidence.signals import SignalProcess, SignalState, expected_growth
from surefoot.learning.certified.method import Certified
from surefoot.testing import learner_suite as suite
from wheel import STEPS

seeds = st.integers(0, 10**6)


def process() -> SignalProcess:
    method = sf.learner(shown_set(), method="certified-signals", risk=0.3).method
    assert isinstance(method, Certified)
    assert isinstance(method.evidence, SignalProcess)
    return method.evidence


def told(numbers: Floats) -> Outcomes:
    """Episodes with numbers [n, k]: scaled reward and cost, then signals."""
    return Outcomes(STEPS * numbers[:, 0], STEPS * numbers[:, 1:2], signals=numbers[:, 2:])


def some_state(own: SignalProcess, seed: int, episodes: int) -> SignalState:
    rng, state = np.random.default_rng(seed), own.start()
    for _ in range(3):
        numbers = rng.beta(0.7, 1.0, size=(episodes, own.readings.law.shape[2]))
        state = own.observe(state, rng.integers(3, size=episodes), told(numbers))
        state = own.settle(state, np.ones(len(own.cells), bool), ())
    return state


def bounds(own: SignalProcess, policy: int) -> tuple[Floats, Floats]:
    """[J, k] what cells say of the means of an episode's numbers, by the definition of margins."""
    cells, units = own.cells, own.units
    reward = cells.lower[:, policy, :1] / STEPS, cells.upper[:, policy, :1] / STEPS
    cost = (units.budget - cells.upper[:, policy, 1:]) / STEPS, (units.budget - cells.lower[:, policy, 1:]) / STEPS
    signals = own.readings.lower[:, policy], own.readings.upper[:, policy]
    low, high = (np.concatenate([reward[k], cost[k], signals[k]], axis=1) for k in (0, 1))
    return np.clip(low, 0, 1), np.clip(high, 0, 1)


@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from([1, 20]), st.integers(0, 2))
def test_the_expected_capital_never_grows_on_a_task_of_the_cell(seed: int, episodes: int, policy: int) -> None:
    """For numbers that are 0 or 1 with any means in the cell, independent or not: the worst laws on [0, 1]."""
    own = process()
    state, rng = some_state(own, seed, episodes), np.random.default_rng([seed, 1])
    low, high = bounds(own, policy)
    for j in range(len(own.cells)):
        mean = low[j] + rng.choice([0.0, 1.0, rng.random()], size=low.shape[1]) * (high[j] - low[j])
        # One number alone decides a bet, so that expectations follow from the ends of each number.
        corners = np.concatenate([np.zeros((1, len(mean))), np.eye(len(mean))])
        drawn = np.full(len(corners), policy)
        capital = np.stack([own.observe(state, drawn[:1], told(row[None])).capital[:, j] for row in corners])
        factor = np.exp(capital - state.capital[:, j])  # [1+k, B]
        expected = factor[0] + mean @ (factor[1:] - factor[0])
        assert (expected <= 1 + 1e-9).all()


@pytest.mark.long
def test_bets_with_the_other_bound_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class Swapped(SignalProcess):
        @property
        def _means(self) -> Floats:  # type: ignore[override]
            above, below = SignalProcess._means.func(self)  # type: ignore[attr-defined]
            return np.clip(np.stack([1 - below, 1 - above]), 1e-3, 1.0)

    intact = process()
    wrong = Swapped(intact.cells, intact.readings, intact.units, intact.horizon, math.inf)  # goes on betting
    monkeypatch.setattr(f"{__name__}.process", lambda: wrong)
    inner: Any = test_the_expected_capital_never_grows_on_a_task_of_the_cell
    with pytest.raises(AssertionError):
        inner()


@given(seeds, st.integers(0, 2))
def test_bets_are_placed_before_what_they_are_about(seed: int, policy: int) -> None:
    """Between two decisions bets stay as they were, whatever is told in between."""
    own, rng = process(), np.random.default_rng(seed)
    state = some_state(own, seed, 5)
    before = own._bets(state, policy)
    numbers = rng.random((4, own.readings.law.shape[2]))
    after = own._bets(own.observe(state, np.full(4, policy), told(numbers)), policy)
    for one, other in zip(before, after, strict=True):
        assert one.tobytes() == other.tobytes()


def test_blocks_and_single_episodes_lead_to_the_same_state() -> None:
    own, rng = process(), np.random.default_rng(0)
    numbers, drawn = rng.random((12, own.readings.law.shape[2])), rng.integers(3, size=12)
    whole = own.observe(some_state(own, 0, 5), drawn, told(numbers))
    single = some_state(own, 0, 5)
    for k in range(12):
        single = own.observe(single, drawn[k : k + 1], told(numbers[k : k + 1]))
    assert suite.fingerprint(whole) == suite.fingerprint(single)


@given(seeds)
def test_bets_that_seem_best_are_nearly_so_and_their_growth_is_that_of_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    laws, values, means = rng.dirichlet(np.ones(4), size=(2, 3)), rng.random((3, 4)), rng.uniform(0.05, 1, (2, 3, 5))
    side, number = evidence.promising(laws, values, means)
    found = expected_growth(laws, values, means, side, number)  # [B, C, F, J]
    ratio = np.stack([values, 1 - values])[..., None] / means[:, :, None]  # [2, k, L, J]
    gains = [np.log(1 - fraction + fraction * ratio) for fraction in evidence.FRACTIONS]
    growth = np.array(
        [[[law[k] @ gain[s, k] for s in (0, 1) for k in range(3)] for gain in gains] for law in laws]
    )  # [B, F, 2·k, J]
    for b, c, f, j in rng.integers([2, evidence.CONSIDERED, len(evidence.FRACTIONS), 5], size=(20, 4)).tolist():
        assert found[b, c, f, j] == pytest.approx(growth[b, f, 3 * side[b, c, j] + number[b, c, j], j], abs=1e-9)
    best = growth.max(axis=(1, 2))  # [B, J]
    assert (found.max(axis=(1, 2)) >= 0.8 * best - 1e-9).mean() > 0.7


def test_fractions_leave_something_and_weights_are_one() -> None:
    assert ((evidence.FRACTIONS > 0) & (evidence.FRACTIONS < 1)).all(), "who stakes all is ruined by one episode"
    assert evidence.BET_WEIGHTS.sum() == pytest.approx(1.0)
    own = process()
    assert own.log_evidence(own.start()) == pytest.approx(np.zeros(len(own.cells)))


def test_cells_that_are_far_off_are_ruled_out_and_the_true_one_is_not() -> None:
    """With signals sooner than with sums alone."""
    policies, alive = shown_set(), {}
    for method in ("certified-signals", "certified-returns"):
        made = sf.learner(policies, method=method, risk=0.3, seed=1)
        suite.tell_in_blocks(made, suite.EpisodeSource(ShownWheel(0.25), STEPS, 200), 100, [100])
        alive[method] = made.state.method.surviving
    assert alive["certified-signals"].any()
    assert alive["certified-signals"].sum() < len(alive["certified-signals"])
    assert alive["certified-signals"].sum() <= alive["certified-returns"].sum()


def test_laws_that_are_wrong_cost_power_only() -> None:
    """The same expectation with laws that have nothing to do with the cells."""
    own = process()
    rng = np.random.default_rng(0)
    law = rng.dirichlet(np.ones(own.readings.law.shape[-1]), size=own.readings.law.shape[:-1])
    other = replace(own, readings=replace(own.readings, law=law))
    state, (low, high) = some_state(other, 1, 5), bounds(other, 1)
    for j in range(len(own.cells)):
        for mean in (low[j], high[j]):
            zero, *ones = (
                np.exp(other.observe(state, np.array([1]), told(row[None])).capital[:, j] - state.capital[:, j])
                for row in np.concatenate([np.zeros((1, len(mean))), np.eye(len(mean))])
            )
            assert (zero + mean @ (np.stack(ones) - zero) <= 1 + 1e-9).all()


def test_a_posterior_places_no_bets_and_believes_the_same() -> None:
    """Bets take most of the time, and a posterior has no use for them."""
    silent = make_evidence(shown_set(), "certified-signals", process().cells, STEPS)
    numbers = np.random.default_rng(0).random((30, len(process().readings.edges)))
    beliefs = []
    for own in (process(), silent):
        state = own.settle(own.start(), np.ones(len(own.cells), dtype=bool), ())
        state = own.observe(state, np.zeros(30, dtype=np.int64), told(numbers))
        beliefs.append(own.belief(state))
    np.testing.assert_array_equal(*beliefs)
    np.testing.assert_allclose(silent.log_evidence(state), 0.0, atol=1e-12)
