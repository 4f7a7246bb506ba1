"""Which mixture is deployed: the linear program against a second solver, and the repair that makes it safe exactly."""

from __future__ import annotations

import threading
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from random_tasks import seeds
from surefoot.arrays import Floats
from surefoot.learning.certified import selection
from surefoot.learning.certified.selection import best_mixture, best_pair, most_promising, promises, repair_mixture
from surefoot.learning.method import SAFE, Mixture

# The second solver's own feasibility tolerance allows for this much, relative to the size of the rewards.
SECOND_SOLVER = 1e-5


def random_problem(
    rng: np.random.Generator, rows: int, policies: int, safe_margin: float = 1.0
) -> tuple[Floats, Floats]:
    """Margins [R, P], those of the safe policy non-negative, and rewards [P] that favour the others."""
    margin = rng.normal(size=(rows, policies)) - 0.3
    margin[:, SAFE] = safe_margin * rng.random(rows)
    reward = rng.normal(size=policies)
    reward[SAFE] = reward.min() - rng.random()
    return margin, reward


@given(seeds, st.integers(2, 12), st.integers(2, 6), st.sampled_from([1e-12, 1e-9, 1e6]))
def test_units_change_nothing(seed: int, rows: int, policies: int, unit: float) -> None:
    """The solver's tolerances are absolute; margins of one constraint and rewards may come in any units."""
    margin, reward = random_problem(np.random.default_rng(seed), rows, policies)
    unit = 2.0 ** round(np.log2(unit))
    plain = full_weights(best_mixture(margin, reward), policies)
    scaled = margin.copy()
    scaled[::2] *= unit
    found = full_weights(best_mixture(scaled, unit * reward), policies)
    assert reward @ found == pytest.approx(reward @ plain, abs=1e-6 * np.abs(reward).max())


def full_weights(deployed: Mixture, policies: int) -> Floats:
    weights = np.zeros(policies)
    weights[deployed.indices] = deployed.weights
    return weights


def check_safe(deployed: Mixture, margin: Floats) -> Floats:
    """Weights [P], after checking that they are a distribution and that no certified margin is negative.

    In floating point exactly; in exact arithmetic up to the rounding of one inner product.
    """
    policies = margin.shape[1]
    assert len(set(deployed.indices.tolist())) == len(deployed.indices)
    weights = full_weights(deployed, policies)
    assert (weights >= 0).all()
    assert abs(weights.sum() - 1) <= policies * 1e-16 + 1e-15
    if len(deployed.indices) > 1 or deployed.indices[0] != SAFE:
        assert ((margin @ weights) >= 0).all()
        for row in margin:
            terms = [Fraction(m) * Fraction(w) for m, w in zip(row.tolist(), weights.tolist(), strict=True)]
            assert sum(terms) >= -Fraction(policies, 10**16) * sum(map(abs, terms))
    return weights


def second_solver(margin: Floats, reward: Floats) -> float:
    result = linprog(-reward, A_ub=-margin, b_ub=np.zeros(len(margin)), A_eq=np.ones((1, len(reward))), b_eq=[1.0])
    assert result.status == 0
    return float(-result.fun)


def test_what_was_solved_before_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal is followed by processes that begin in the middle of it."""
    rng = np.random.default_rng(0)
    problems = [random_problem(rng, int(rng.integers(1, 40)), int(rng.integers(1, 12))) for _ in range(50)]
    one_after_the_other = [best_mixture(*problem) for problem in problems]
    for problem, before in zip(problems, one_after_the_other, strict=True):
        monkeypatch.setattr(selection, "_KEPT", threading.local())
        alone = best_mixture(*problem)
        assert (alone.indices.tolist(), alone.weights.tolist()) == (before.indices.tolist(), before.weights.tolist())


@given(seeds, st.integers(1, 40), st.integers(1, 12))
def test_best_mixture_is_the_optimum_of_the_linear_program(seed: int, rows: int, policies: int) -> None:
    margin, reward = random_problem(np.random.default_rng(seed), rows, policies)
    weights = check_safe(best_mixture(margin, reward), margin)
    assert weights @ reward == pytest.approx(second_solver(margin, reward), abs=SECOND_SOLVER)


@given(seeds, st.integers(1, 20), st.integers(2, 8))
def test_candidates_make_up_for_each_other_where_the_safe_policy_has_no_margin(
    seed: int, rows: int, policies: int
) -> None:
    """Rounding must not throw the mixture away, although shrinking towards the safe policy repairs nothing here."""
    margin, reward = random_problem(np.random.default_rng(seed), rows, policies, safe_margin=0.0)
    weights = check_safe(best_mixture(margin, reward), margin)
    assert weights @ reward == pytest.approx(second_solver(margin, reward), abs=SECOND_SOLVER)


@given(seeds, st.integers(1, 300), st.sampled_from([1e-3, 1.0, 1e4]))
def test_best_mixture_over_many_similar_rows(seed: int, rows: int, scale: float) -> None:
    """As in use: hundreds of cells whose margins change little from one to the next, in the user's units."""
    rng = np.random.default_rng(seed)
    noise = np.linspace(0, 1, rows)[:, None]
    margin = scale * (rng.uniform(0, 1, 9) - noise * rng.uniform(0, 2, 9))
    margin[:, SAFE] = scale * (1.0 - 0.9 * noise[:, 0])
    reward = scale * rng.random(9)
    weights = check_safe(best_mixture(margin, reward), margin)
    expected = second_solver(margin / scale, reward / scale)
    assert weights @ reward / scale == pytest.approx(expected, abs=SECOND_SOLVER)


@given(seeds, st.integers(1, 30), st.integers(2, 10))
def test_best_pair_takes_the_largest_weight_that_is_safe_on_every_row(seed: int, rows: int, policies: int) -> None:
    """α = min_j B[j,s]/(B[j,s] + [-B[j,l]]₊), and of all l the best α·(gain over the safe policy)."""
    margin, reward = random_problem(np.random.default_rng(seed), rows, policies)
    weights = check_safe(best_pair(margin, reward), margin)
    gains = []
    for policy in range(policies):
        largest = 1.0
        for row in margin:
            if row[policy] < 0:
                largest = min(largest, row[SAFE] / (row[SAFE] - row[policy]))
        gains.append(largest * (reward[policy] - reward[SAFE]))
    assert weights @ reward - reward[SAFE] == pytest.approx(max(gains), abs=1e-8)
    assert np.count_nonzero(weights) <= 2
    assert weights @ reward <= second_solver(margin, reward) + SECOND_SOLVER, "a pair is one of the mixtures"


@given(seeds, st.integers(1, 30), st.integers(2, 10))
def test_the_most_promising_is_tried_as_far_as_it_is_safe_on_every_row(seed: int, rows: int, policies: int) -> None:
    margin, reward = random_problem(np.random.default_rng(seed), rows, policies)
    weights = check_safe(most_promising(margin, reward), margin)
    best = int(np.argmax(reward))
    largest = min((row[SAFE] / (row[SAFE] - row[best]) for row in margin if row[best] < 0), default=1.0)
    assert weights[best] == pytest.approx(1.0 if best == SAFE else largest, abs=1e-5)
    assert weights[best] + weights[SAFE] >= 1 - 1e-12


@given(seeds, st.integers(1, 8), st.integers(2, 6), st.integers(1, 3))
def test_a_promise_is_the_best_that_a_pair_earns_on_one_cell(seed: int, cells: int, policies: int, m: int) -> None:
    """Cell by cell and weight by weight, on a grid."""
    rng = np.random.default_rng(seed)
    margin, reward = rng.normal(size=(cells, policies, m)), rng.normal(size=(cells, policies))
    margin[:, SAFE] = np.abs(margin[:, SAFE])
    found, grid = promises(margin, reward), np.linspace(0, 1, 2001)
    for policy in range(policies):
        earned = []
        for cell in range(cells):
            mixed = grid[:, None] * margin[cell, policy] + (1 - grid)[:, None] * margin[cell, SAFE]
            most = grid[(mixed >= -1e-12).all(axis=1)].max()
            earned.append(most * reward[cell, policy] + (1 - most) * reward[cell, SAFE])
        assert found[policy] == pytest.approx(max(earned), abs=2e-3 * np.ptp(reward))


@pytest.mark.parametrize("choose", [best_mixture, best_pair])
class TestDegenerate:
    def test_every_candidate_is_unsafe_everywhere(self, choose: Any) -> None:
        margin = np.array([[0.0, -1.0, -2.0], [1.0, -1.0, -2.0]])
        deployed = choose(margin, np.array([0.0, 1.0, 2.0]))
        assert check_safe(deployed, margin)[SAFE] == 1

    def test_the_safe_policy_has_no_margin_to_spend(self, choose: Any) -> None:
        """Only candidates that are safe themselves may be used."""
        margin = np.zeros((3, 4))
        margin[:, 1], margin[:, 2], margin[:, 3] = 0.5, [-1e-3, 1.0, 1.0], -5.0
        weights = check_safe(choose(margin, np.array([0.0, 1.0, 2.0, 3.0])), margin)
        best = second_solver(margin, np.array([0.0, 1.0, 2.0, 3.0])) if choose is best_mixture else 1.0
        assert weights @ [0, 1, 2, 3] == pytest.approx(best, abs=1e-5)

    def test_an_excess_below_the_tolerance_of_the_solver_is_an_excess(self, choose: Any) -> None:
        """No margin to spend and a candidate that misses by 1e-12: it must not be deployed alone."""
        margin = np.array([[0.0, -1e-12], [1.0, 1.0]])
        assert check_safe(choose(margin, np.array([0.0, 1.0])), margin)[SAFE] == 1

    def test_the_safe_policy_is_alone(self, choose: Any) -> None:
        deployed = choose(np.array([[0.3], [0.0]]), np.array([1.0]))
        assert deployed.indices.tolist() == [SAFE]
        assert deployed.weights.tolist() == [1.0]

    def test_a_safe_policy_without_a_certificate_is_all_that_is_left(self, choose: Any) -> None:
        deployed = choose(np.array([[-1e-9, 1.0]]), np.array([0.0, 1.0]))
        assert deployed.indices.tolist() == [SAFE]

    def test_the_safe_policy_is_the_best(self, choose: Any) -> None:
        deployed = choose(np.array([[1.0, 1.0], [1.0, 2.0]]), np.array([3.0, 1.0]))
        assert deployed.indices.tolist() == [SAFE]

    def test_duplicates(self, choose: Any) -> None:
        margin = np.array([[0.5, -0.5, -0.5, -0.5], [0.5, -0.5, -0.5, -0.5]])
        weights = check_safe(choose(margin, np.array([0.0, 1.0, 1.0, 1.0])), margin)
        assert weights[SAFE] == pytest.approx(0.5, abs=1e-6)

    def test_equal_rewards(self, choose: Any) -> None:
        margin = np.array([[0.5, -0.5, 1.0]])
        check_safe(choose(margin, np.zeros(3)), margin)

    def test_margins_of_very_different_size(self, choose: Any) -> None:
        margin = np.array([[1e-9, -1e6, 1.0], [1e6, 1.0, -1e-9]])
        weights = check_safe(choose(margin, np.array([0.0, 5.0, 1.0])), margin)
        assert weights[1] < 1e-5


@given(seeds, st.integers(1, 30), st.integers(1, 8), st.sampled_from([0.0, 1e-12, 1e-9, 1e-3, 1.0]))
def test_repair_makes_any_weights_safe(seed: int, rows: int, policies: int, safe_margin: float) -> None:
    """Weights that are unsafe, sum to a little more than 1, or are a little negative: a solver may return any."""
    rng = np.random.default_rng(seed)
    margin, _ = random_problem(rng, rows, policies, safe_margin)
    weights = rng.dirichlet(np.full(policies, 0.3)) * (1 + rng.normal() * 1e-7) + rng.normal(size=policies) * 1e-10
    check_safe(repair_mixture(margin, weights), margin)


@given(seeds, st.integers(1, 8))
def test_repair_leaves_safe_weights_alone(seed: int, policies: int) -> None:
    rng = np.random.default_rng(seed)
    margin = rng.random((5, policies))
    weights = rng.dirichlet(np.ones(policies))
    found = full_weights(repair_mixture(margin, weights), policies)
    kept = np.where(weights > 1e-9, weights, 0.0)
    np.testing.assert_allclose(found[1:], kept[1:], rtol=0, atol=1e-15)


def test_repair_takes_no_more_than_needed() -> None:
    """-0.5·0.8 + 0.5·0.2 < 0; at weight 1/2 the margin is 0."""
    margin = np.array([[0.5, -0.5]])
    weights = full_weights(repair_mixture(margin, np.array([0.2, 0.8])), 2)
    assert weights[1] == pytest.approx(0.5, abs=1e-5)
    assert margin[0] @ weights >= 0
