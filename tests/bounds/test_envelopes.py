"""Cross-task envelopes: what they claim of the tasks of a cell, and how often fresh tasks break it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from random_tasks import seeds
from surefoot.arrays import Floats
from surefoot.bounds import conformal
from surefoot.bounds.affine import affine_cells
from surefoot.bounds.cells import Cells
from surefoot.bounds.conformal import ALL_SHARE, DOUBT_SHARE, conformal_quantile
from surefoot.bounds.envelopes import build_cells
from surefoot.bounds.exact import Evaluator, finite_cells, first_states, table_evaluator
from surefoot.bounds.holdout import holdout_cells
from surefoot.bounds.settings import Envelopes, ResolvedBounds
from surefoot.confidence import binomial_upper
from surefoot.errors import InvalidInput
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks.affine_detection import Affinity, affinity
from surefoot.tasks.distribution import Finite, Normal, ParameterDistribution, Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family, from_arrays

FALSE_ALARM = 1e-4

# Two states, calm and hurt. Action 0 is careful: it hurts half as often.
CAREFUL = TabularPolicy(np.array([[1.0, 0.0]] * 2))
HASTY = TabularPolicy(np.array([[0.0, 1.0]] * 2))
SLOPE = np.array([[[[-0.5, 0.5], [-1.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]])
BASE = np.array([[[1.0, 0.0], [1.0, 0.0]], [[0.5, 0.5], [0.5, 0.5]]])


def hurting(rate: float, budget: float = 1.0, horizon: int | None = None) -> TabularCMDP:
    paid, ranges = ([[0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 1.0]]), [(0.0, 1.0)] * 2
    return TabularCMDP(BASE + rate * SLOPE[0], *paid, budget, [0.75, 0.25], 0.8, *ranges, horizon=horizon)


def affine_family(distribution: ParameterDistribution, budget: float = 1.0) -> TaskDistribution:
    return family(lambda theta: hurting(theta[0], budget), distribution, affine=(BASE, SLOPE))


def squared_family(distribution: ParameterDistribution, budget: float = 3.0) -> TaskDistribution:
    """The rate is θ², so that nothing is affine."""
    return family(lambda theta: hurting(theta[0] ** 2, budget), distribution)


def closed_form(rate: float, budget: float) -> dict[str, Floats]:
    """Reward and margin of both policies from the two states: V = (I - γP)⁻¹ r by hand for two states."""
    values = {}
    for name, reward, leave in (("careful", 0.0, rate / 2), ("hasty", 1.0, rate)):
        # hurt: C_h = 1 + γ(C_h + C_c)/2;  calm: C_c = γ((1-p) C_c + p C_h)
        matrix = np.array([[1 - 0.8 * (1 - leave), -0.8 * leave], [-0.4, 1 - 0.4]])
        cost, gain = np.linalg.solve(matrix, [0.0, 1.0]), np.linalg.solve(matrix, [reward, 0.0])
        values[name] = np.stack([gain, budget - cost])
    return values


# --------------------------------------------------------------------------------------------------------------- affine


def test_affine_cells_fill_the_support_except_where_the_safe_policy_may_fail() -> None:
    tasks = affine_family(Normal(0.5, std=0.2, low=0.0, high=1.0, how="truncated"), budget=1.0)
    cells = affine_cells(tasks, [CAREFUL, HASTY], cells=50)
    assert cells.source == "affine"
    edges = np.linspace(0, 1, 51)
    kept = {round(float(low), 12) for low in cells.low[:, 0]}
    dropped = [(a, b) for a, b in pairwise(edges) if round(float(a), 12) not in kept]
    assert 5 < len(dropped) < 45
    np.testing.assert_allclose(cells.outside[:, 0], [(a + b) / 2 for a, b in dropped], rtol=0, atol=1e-12)
    law = stats.truncnorm(-2.5, 2.5, loc=0.5, scale=0.2)
    np.testing.assert_allclose(cells.prior, law.cdf(cells.high[:, 0]) - law.cdf(cells.low[:, 0]), rtol=1e-9)
    assert cells.uncovered == pytest.approx(1 - cells.prior.sum(), abs=1e-12)
    assert cells.uncovered == pytest.approx(sum(law.cdf(b) - law.cdf(a) for a, b in dropped), rel=1e-9)
    for a, b in zip(cells.low[:, 0], cells.high[:, 0], strict=True):
        for rate in np.linspace(a, b, 5):
            assert 0.75 * closed_form(rate, 1.0)["careful"][1, 0] + 0.25 * closed_form(rate, 1.0)["careful"][1, 1] >= 0
    # Only the cell on the boundary may be dropped without need.
    worst = [evaluate(hurting(b, 1.0), CAREFUL).margin[0] for _, b in dropped]
    assert sum(margin > 0.01 for margin in worst) <= 1


@given(seeds, st.integers(1, 60), st.sampled_from([Uniform(0.1, 0.9), Normal(0.5, std=0.2, low=0.0, high=1.0)]))
def test_affine_bounds_hold_inside_every_cell(seed: int, cells: int, distribution: ParameterDistribution) -> None:
    rng = np.random.default_rng(seed)
    found = affine_cells(affine_family(distribution, budget=3.0), [CAREFUL, HASTY], max(cells, 12))
    assert found.start_lower is not None
    assert found.start_upper is not None
    for j in rng.integers(len(found), size=4):
        exact = closed_form(float(rng.uniform(found.low[j, 0], found.high[j, 0])), 3.0)
        for p, name in enumerate(("careful", "hasty")):
            assert (found.start_lower[j, p] <= exact[name]).all()
            assert (exact[name] <= found.start_upper[j, p]).all()
            from_start = exact[name] @ [0.75, 0.25]
            assert (found.lower[j, p] <= from_start).all()
            assert (from_start <= found.upper[j, p]).all()


def test_mass_of_atoms_on_the_edges_of_boxes_is_not_counted_as_covered() -> None:
    """Closed boxes share an atom on their edge. Its mass must not make up for tasks that are in no cell."""
    points, weights = [0.0, 0.25, 0.5, 0.75, 1.0], [0.1, 0.2, 0.3, 0.2, 0.2]
    cells = affine_cells(affine_family(Finite(points, weights), budget=1.7), [CAREFUL], cells=40)
    feasible = [evaluate(hurting(point, 1.7), CAREFUL).margin[0] >= 0 for point in points]
    assert feasible == [True, True, True, False, False]
    assert cells.uncovered >= 0.4 - 1e-12
    assert cells.prior.sum() <= 0.6 + 1e-12


def test_families_that_are_not_what_they_call_affine_are_refused() -> None:
    squared = family(lambda theta: hurting(theta[0] ** 2), Uniform(0.0, 1.0), affine=(BASE, SLOPE))
    with pytest.raises(InvalidInput, match="affine must give the transitions of every task"):
        affine_cells(squared, [CAREFUL], 40)

    def richer(theta: Floats) -> TabularCMDP:
        task = hurting(theta[0])
        reward = task.reward * (1 - theta[0] / 2)
        return TabularCMDP(task.transitions, reward, task.cost, 1.0, task.start, 0.8, (0.0, 1.0), (0.0, 1.0))

    with pytest.raises(InvalidInput, match="affine families must share one reward"):
        affine_cells(family(richer, Uniform(0.0, 1.0), affine=(BASE, SLOPE)), [CAREFUL], 40)


def test_a_safe_policy_that_is_feasible_nowhere_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least one cell on which the safe policy is feasible"):
        affine_cells(affine_family(Uniform(0.8, 1.0), budget=0.1), [HASTY], 10)


def test_two_parameters_make_a_grid() -> None:
    slopes = np.concatenate([SLOPE, 0.1 * SLOPE])
    tasks = family(
        lambda theta: hurting(theta[0] + 0.1 * theta[1], 3.0), Uniform([0.1, 0.0], [0.5, 1.0]), affine=(BASE, slopes)
    )
    cells = affine_cells(tasks, [CAREFUL, HASTY], cells=40)
    assert len(cells) == 36
    assert cells.prior.sum() == pytest.approx(1.0)
    assert np.prod(cells.high - cells.low, axis=1).sum() == pytest.approx(0.4)
    assert cells.model is not None
    assert cells.model.affine is not None


# Three successors with probabilities θ₁, θ₂ and 1 - θ₁ - θ₂: the parameters of tasks fill a triangle, not a box.
WEIGHTS_BASE = np.array([[[0.0, 0.0, 1.0]]] * 3)
WEIGHTS_SLOPE = np.array(
    [np.broadcast_to([[[1.0, 0.0, -1.0]]], (3, 1, 3)), np.broadcast_to([[[0.0, 1.0, -1.0]]], (3, 1, 3))]
)
ONLY = TabularPolicy(np.ones((3, 1)))


def weighted(theta: Floats, budget: float = 3.0) -> TabularCMDP:
    kernel = WEIGHTS_BASE + np.tensordot(theta, WEIGHTS_SLOPE, axes=1)
    cost = [[1.0], [1.0], [0.0]]
    return TabularCMDP(
        np.maximum(kernel, 0.0), [[0.0], [1.0], [0.0]], cost, budget, [0.0, 0.0, 1.0], 0.8, (0.0, 1.0), (0.0, 1.0)
    )


def triangle(total: float, count: int = 60) -> Finite:
    """Weights on the line θ₁ + θ₂ = total, whose smallest box is a square that holds as many non-tasks as tasks."""
    first = np.linspace(0.0, total, count)
    return Finite(np.stack([first, total - first], axis=1))


@pytest.mark.parametrize("total", [1.0, 0.9999, 0.93])
@pytest.mark.parametrize("per_axis", [10, 20])
def test_parameters_of_no_task_are_no_alternatives(total: float, per_axis: int) -> None:
    distribution = triangle(total)
    tasks = family(lambda theta: weighted(theta, 3.3), distribution, affine=(WEIGHTS_BASE, WEIGHTS_SLOPE))
    cells = affine_cells(tasks, [ONLY], per_axis**2)
    assert cells.model is not None
    every = cells.model.class_probability(np.concatenate([cells.centre, cells.outside]))
    assert every.min() >= -1e-12
    assert every.max() <= 1 + 1e-12
    held = (
        (distribution.points[:, None] >= cells.low - 1e-12) & (distribution.points[:, None] <= cells.high + 1e-12)
    ).all(axis=2)
    covered = held.any(axis=1)
    assert cells.uncovered >= distribution.weights[~covered].sum() - 1e-12
    for point, cell in zip(distribution.points[covered], held[covered].argmax(axis=1), strict=True):
        margin = evaluate(weighted(point, 3.3), ONLY).margin[0]
        assert cells.lower[cell, 0, 1] <= margin <= cells.upper[cell, 0, 1]


def test_every_task_of_a_triangle_stays_covered() -> None:
    """With a budget that is kept everywhere nothing is uncovered, although most boxes at the edge are cut by it."""
    tasks = family(weighted, triangle(1.0), affine=(WEIGHTS_BASE, WEIGHTS_SLOPE))
    cells = affine_cells(replace(tasks, build=lambda theta: weighted(theta, 9.0)), [ONLY], 225)
    assert cells.uncovered == 0.0
    assert cells.prior.sum() == pytest.approx(1.0)


def test_weights_that_sum_to_one_are_one_parameter_too_many() -> None:
    """P = θ₁K₁ + θ₂K₂ + θ₃K₃ has rows that sum to 1 on a plane only; one weight must be written as the rest."""
    kernels = np.eye(3)[:, None, None, :].repeat(3, axis=1)
    points = np.random.default_rng(0).dirichlet(np.ones(3), 20)

    def build(theta: Floats) -> TabularCMDP:
        return weighted(theta[:2], 3.0)

    tasks = family(build, Finite(points), affine=(np.zeros((3, 1, 3)), kernels))
    with pytest.raises(InvalidInput, match=r"slopes whose rows sum to 0.*one is no parameter of its own"):
        affine_cells(tasks, [ONLY], 64)


def test_bounds_do_not_depend_on_the_units_of_the_costs() -> None:
    """Costs and budgets in other units: the same cells, and bounds in those units."""
    cells = {}
    for scale in (1.0, 2.0**-40):

        def build(theta: Floats, scale: float = scale) -> TabularCMDP:
            task = hurting(theta[0], 1.0)
            return TabularCMDP(
                task.transitions, task.reward, scale * task.cost, scale, task.start, 0.8, (0.0, 1.0), (0.0, scale)
            )

        cells[scale] = affine_cells(family(build, Uniform(0.0, 0.4), affine=(BASE, SLOPE)), [CAREFUL, HASTY], 40)
    plain, tiny = cells.values()
    np.testing.assert_allclose(tiny.low, plain.low)
    np.testing.assert_allclose(tiny.lower[:, :, 1] * 2.0**40, plain.lower[:, :, 1], rtol=1e-12)


# --------------------------------------------------------------------------------------------------------------- finite


def test_finite_cells_are_the_feasible_tasks_with_their_exact_values() -> None:
    rates, weights = [0.1, 0.3, 0.9, 0.5], [0.4, 0.3, 0.2, 0.1]
    tasks = from_arrays([hurting(rate, 1.7) for rate in rates], weights)
    cells = finite_cells(tasks, [CAREFUL, HASTY])
    feasible = [k for k, rate in enumerate(rates) if evaluate(hurting(rate, 1.7), CAREFUL).margin[0] >= 0]
    assert feasible == [0, 1, 3]
    assert cells.source == "finite"
    assert cells.low[:, 0].tolist() == cells.high[:, 0].tolist() == feasible
    assert cells.prior.tolist() == [weights[k] for k in feasible]
    assert cells.uncovered == pytest.approx(0.2)
    assert cells.start_lower is not None
    for j, k in enumerate(feasible):
        for p, policy in enumerate((CAREFUL, HASTY)):
            exact = evaluate(hurting(rates[k], 1.7), policy)
            for bound in (cells.lower, cells.upper):
                np.testing.assert_allclose(bound[j, p], [exact.reward, *exact.margin], rtol=0, atol=1e-9)
            assert (cells.lower[j, p] <= [exact.reward, *exact.margin]).all()
            by_state = closed_form(rates[k], 1.7)["careful" if p == 0 else "hasty"]
            np.testing.assert_allclose(cells.start_lower[j, p], by_state, rtol=1e-9, atol=1e-9)
    assert (cells.lower[:, 0, 1] >= 0).all()
    assert cells.model is not None
    assert not cells.model.radius.any()


def test_finite_cells_need_a_finite_distribution() -> None:
    with pytest.raises(InvalidInput, match="distribution must be Finite, got Uniform"):
        finite_cells(squared_family(Uniform(0.1, 0.5)), [CAREFUL])


def test_the_strongest_source_is_taken() -> None:
    few = Envelopes(cells=10, holdout=69, uncovered=0.05)
    assert build_cells(affine_family(Uniform(0.0, 0.5)), [CAREFUL], seed=0, envelopes=few).source == "affine"
    assert build_cells(from_arrays([hurting(0.1)]), [CAREFUL], seed=0, envelopes=few).source == "finite"
    assert build_cells(squared_family(Uniform(0.1, 0.5)), [CAREFUL], seed=0, envelopes=few).source == "holdout"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cells": -1}, "cells must be a whole number of at least 0, got -1"),
        ({"holdout": 0}, "holdout must be a whole number of at least 1, got 0"),
        ({"holdout": 10.0}, "holdout must be a whole number of at least 1, got 10.0"),
        ({"episodes": 0}, "episodes must be a whole number of at least 1, got 0"),
        ({"attempt": 0}, "attempt must be a whole number of at least 1, got 0"),
        ({"uncovered": 0.0}, "uncovered must lie strictly between 0 and 1, got 0.0"),
        ({"uncovered": np.nan}, "uncovered must lie strictly between 0 and 1, got nan"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Envelopes(**wrong)  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------------------------------- holdout


BOTH = table_evaluator([CAREFUL, HASTY])


def small_holdout(tasks: TaskDistribution, seed: int, values: Evaluator = BOTH, **options: Any) -> Cells:
    settings = ResolvedBounds(**{"cells": 4, "holdout": 17, "uncovered": 0.2, **options})
    return holdout_cells(tasks, values, np.random.default_rng(seed), settings, not_affine(tasks))


@cache
def not_affine(tasks: TaskDistribution) -> Affinity:
    found = affinity(tasks, 0)
    assert found.tables is None
    return found


def breaks(cells: Cells, tasks: TaskDistribution, parameter: Floats) -> bool:
    """Whether a task breaks the bounds of its cell, or lies outside its ball."""
    j = int(np.argmin(np.abs(cells.low[:, 0] - parameter[0])))
    task = tasks.task(parameter)
    for p, policy in enumerate((CAREFUL, HASTY)):
        exact = evaluate(task, policy)
        values = np.array([exact.reward, *exact.margin])
        if (values < cells.lower[j, p] - 1e-12).any() or (values > cells.upper[j, p] + 1e-12).any():
            return True
    if cells.model is None:
        return False
    centre = tasks.task(cells.low[j])
    return bool(np.abs(task.transitions - centre.transitions).sum(axis=2).max() / 2 > cells.model.radius[j] + 1e-12)


# What the first attempt may spend on bounds from all held-out tasks, of the 0.2 that `small_holdout` grants.
SPENT = ALL_SHARE * 0.2 / 2


def broken(repeats: int, build: Callable[[TaskDistribution, int], Cells], beta: float = SPENT) -> tuple[int, float]:
    """Fresh tasks, one per training, that break their bounds; and the p-value of so many against β."""
    tasks = squared_family(Normal(0.5, std=0.2, low=0.05, high=0.95))
    count = sum(
        breaks(build(tasks, seed), tasks, tasks.sample(1, np.random.default_rng([seed, 1]))[0])
        for seed in range(repeats)
    )
    return count, float(stats.binomtest(count, repeats, beta, alternative="greater").pvalue)


@pytest.mark.parametrize("repeats", [100, pytest.param(300, marks=pytest.mark.long)])
def test_a_fresh_task_breaks_the_bounds_with_probability_at_most_uncovered(repeats: int) -> None:
    count, p_value = broken(repeats, small_holdout)
    assert p_value > FALSE_ALARM
    assert count > repeats / 60, "bounds that are never broken would show nothing"


@pytest.mark.long
def test_bounds_that_were_not_widened_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same count for bounds that hold on their own sample only."""
    monkeypatch.setattr(conformal, "conformal_quantile", lambda *told: (0.0, 0.0))
    assert broken(150, small_holdout)[1] < FALSE_ALARM


def test_atoms_are_one_cell_each() -> None:
    """A clipped normal draws the ends of its support again and again."""
    tasks = squared_family(Normal(0.5, std=1.0, low=0.2, high=0.8, how="clipped"))
    cells = small_holdout(tasks, 0, cells=20)
    assert len(np.unique(cells.low)) == len(cells) < 20
    assert cells.prior.sum() == pytest.approx(0.8)
    assert (cells.prior > 0).all()
    assert np.isfinite(cells.lower).all()


def test_a_few_tasks_without_a_feasible_safe_policy_are_among_the_uncovered() -> None:
    """θ ~ U(0, 1) and a budget that the careful policy keeps for almost all of them: nothing comes on top."""
    tasks = squared_family(Uniform(0.0, 1.0), budget=2.2)
    infeasible = np.mean([evaluate(hurting(t**2, 2.2), CAREFUL).margin[0] < 0 for t in np.linspace(0, 1, 1001)])
    assert 0.002 < infeasible < 0.03
    cells = small_holdout(tasks, 0, holdout=199)
    assert cells.uncovered == 0.2
    assert (cells.lower[:, 0, 1] >= 0).all(), "on every covered task the safe policy is feasible"


BUDGET = 2.0  # θ ~ U(0, 1): the careful policy breaks it on one task in eight


def infeasible_probability() -> float:
    return float(np.mean([evaluate(hurting(t**2, BUDGET), CAREFUL).margin[0] < 0 for t in np.linspace(0, 1, 10_001)]))


@pytest.mark.long
def test_the_probability_of_an_infeasible_safe_policy_comes_on_top_when_it_is_too_large() -> None:
    """No draw of held-out tasks is refused for it, so that nobody is tempted to draw until one pleases."""
    tasks, true = squared_family(Uniform(0.0, 1.0), budget=BUDGET), infeasible_probability()
    assert 0.05 < true < 0.2
    for seed in range(5):
        cells = small_holdout(tasks, seed, holdout=399, uncovered=0.02)
        assert true < cells.uncovered - 0.02 < true + 0.12
        assert cells.prior.sum() == pytest.approx(1 - cells.uncovered)
        assert (cells.lower[:, 0, 1] >= 0).all(), "on every covered task the safe policy is feasible"


def drawn_until_it_pleases(seed: int, declared: bool) -> float:
    """What somebody claims who wants the safe policy to fail on fewer than a tenth of the tasks, and draws held-out
    tasks, on each of which it does with probability 0.1, until it seems so."""
    rng, claims = np.random.default_rng(seed), []
    for attempt in range(1, 5 if declared else 26):
        scores = np.where(rng.random(1999) < 0.1, np.inf, rng.random(1999))
        claims.append(conformal_quantile(scores, alpha=0.1 / 2 ** (attempt if declared else 1))[1])
    return min(claims)


@pytest.mark.long
def test_whoever_draws_again_and_says_so_keeps_the_promise_and_whoever_does_not_breaks_it() -> None:
    runs, alpha = 400, DOUBT_SHARE * 0.1
    for declared in (True, False):
        wrong = sum(drawn_until_it_pleases(seed, declared) < 0.1 for seed in range(runs))
        kept = stats.binomtest(wrong, runs, alpha, alternative="greater").pvalue > FALSE_ALARM
        assert kept == declared, f"{wrong} of {runs} claims are wrong"


@pytest.mark.short_for(attempt=[1])
@pytest.mark.parametrize("uncovered", [0.1, 0.03, 0.007])
@pytest.mark.parametrize("attempt", [1, 3])
def test_too_few_held_out_tasks_are_refused_with_the_number_that_would_do(uncovered: float, attempt: int) -> None:
    tasks = squared_family(Uniform(0.1, 0.5))
    with pytest.raises(InvalidInput, match="holdout must be at least") as refused:
        small_holdout(tasks, 0, holdout=5, uncovered=uncovered, attempt=attempt)
    assert refused.value.argument == "holdout"
    needed = int(re.search(r"at least (\d+)", str(refused.value))[1])  # type: ignore[index]
    with pytest.raises(InvalidInput, match="holdout must be at least"):
        small_holdout(tasks, 0, holdout=needed - 1, uncovered=uncovered, attempt=attempt)
    assert small_holdout(tasks, 0, holdout=needed, uncovered=uncovered, attempt=attempt).uncovered == uncovered


def test_few_feasible_held_out_tasks_say_how_few_they_are() -> None:
    tasks = squared_family(Uniform(0.0, 1.0), budget=0.7)
    true = np.mean([evaluate(hurting(t**2, 0.7), CAREFUL).margin[0] < 0 for t in np.linspace(0, 1, 1001)])
    assert true < small_holdout(tasks, 0, holdout=199, uncovered=0.1).uncovered < true + 0.3
    with pytest.raises(InvalidInput, match="holdout must leave tasks on which the safe policy is feasible, got none"):
        small_holdout(squared_family(Uniform(0.0, 1.0), budget=0.01), 0, holdout=199, uncovered=0.1)


def test_a_hair_above_one_is_rounding() -> None:
    """Rows that sum to 1 but for rounding may hold a probability of 1 + 2e-16."""
    reward, cost = [[0.0], [1.0]], [[0.0], [1.0]]
    above = np.nextafter(1.0, 2.0)

    def build(theta: Floats) -> TabularCMDP:
        kernel = [[[1 - theta[0] ** 2, theta[0] ** 2]], [[0.0, above]]]
        return TabularCMDP(kernel, reward, cost, 9.0, [1.0, 0.0], 0.8, (0.0, 1.0), (0.0, 1.0))

    tasks = family(build, Uniform(0.1, 0.5))
    only = TabularPolicy(np.ones((2, 1)))
    cells = small_holdout(tasks, 0, table_evaluator([only], first_states(tasks)))
    assert cells.model is not None
    assert cells.model.probability.max() == 1.0


@pytest.mark.parametrize("error", [0.05, 0.001])
def test_the_binomial_bound_fails_as_often_as_it_may(error: float) -> None:
    """By the binomial law itself: the bound from k failures is below p exactly for the k that are rare enough."""
    for trials, p in ((20, 0.3), (1999, 0.0085), (200, 0.001)):
        levels = np.array([binomial_upper(k, trials, error) for k in range(trials + 1)])
        assert (np.diff(levels) > 0).all()
        assert levels[-1] == 1.0
        fails = stats.binom.pmf(np.flatnonzero(levels < p), trials, p).sum()
        assert fails <= error


def test_cells_with_alternatives_that_are_no_tasks_are_refused() -> None:
    """As files of earlier versions may hold them."""
    tasks = family(lambda theta: weighted(theta, 9.0), triangle(1.0), affine=(WEIGHTS_BASE, WEIGHTS_SLOPE))
    cells = affine_cells(tasks, [ONLY], 225)
    assert replace(cells, outside=np.array([[0.2, 0.7]])).outside.tolist() == [[0.2, 0.7]]
    with pytest.raises(InvalidInput, match=r"outside must hold parameters of tasks .* got -0\.6.*train again"):
        replace(cells, outside=np.array([[0.2, 0.7], [0.8, 0.8]]))


# --------------------------------------------------------------------------------------------------- widths by place


def cliff(parameter: Floats) -> TabularCMDP:
    """One state. The second action is harmless for small parameters and costs 5 beyond 0.8; the first one is free."""
    cost = np.array([[0.0, 5.0 / (1.0 + np.exp(-40.0 * (parameter[0] - 0.8)))]])
    return TabularCMDP(np.ones((1, 2, 1)), [[0.0, 1.0]], cost, 1.0, [1.0], 0.5, (0.0, 1.0), (0.0, 5.0))


def test_bounds_are_widened_where_values_change_and_not_elsewhere() -> None:
    """A policy's bounds on the plain must not suffer from the cliff, nor those of a policy that never sees it."""
    still, bold = TabularPolicy(np.array([[1.0, 0.0]])), TabularPolicy(np.array([[0.0, 1.0]]))
    tasks = family(cliff, Uniform(0.0, 1.0))
    cells = build_cells(tasks, [still, bold], seed=0, envelopes=Envelopes(cells=30, holdout=399, uncovered=0.02))
    assert cells.source == "holdout"
    assert cells.lower[:, 0, 1].min() > 0.99
    plain = cells.low[:, 0] < 0.5
    assert plain.sum() > 5
    assert cells.lower[plain, 1, 1].min() > 0.9
    beyond = cells.low[:, 0] > 0.9
    assert (cells.upper[beyond, 1, 1] < 0).all(), "where it is dangerous that is known too"
    fresh = tasks.sample(400, np.random.default_rng(1))
    nearest = np.abs(fresh - cells.low[:, 0]).argmin(axis=1)
    margin = np.array([float(evaluate(tasks.task(each), bold).margin[0]) for each in fresh])
    broken = (margin < cells.lower[nearest, 1, 1]) | (margin > cells.upper[nearest, 1, 1])
    assert broken.mean() <= 0.02
