"""e-processes from transitions, against products over single transitions and sums over all that could have happened."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dense_models import counts_of_table
from random_tasks import random_distributions, seeds
from surefoot.arrays import Floats
from surefoot.bounds.affine import affine_cells
from surefoot.bounds.cells import Cells
from surefoot.bounds.exact import finite_cells
from surefoot.cmdp.episode import Outcomes, discounted_sum
from surefoot.errors import InvalidInput
from surefoot.learning.certified.evidence.ball import BallState, TransitionBall
from surefoot.learning.certified.evidence.counts import Counts
from surefoot.learning.certified.evidence.likelihood import (
    GLOBAL_WEIGHT,
    LOCAL_WEIGHTS,
    ROW_TYPE_WEIGHT,
    ROW_WEIGHT,
    LikelihoodRatio,
    local_alternatives,
)
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.rollout import Simulator
from surefoot.tabular.transition_model import TransitionModel, ball_model
from surefoot.tasks.distribution import Finite, Uniform
from surefoot.tasks.task_distribution import family, from_arrays

Steps = list[tuple[int, int, int]]

UNIFORM = TabularPolicy(np.full((3, 2), 0.5))


# ------------------------------------------------------------------------------------------------------- small families


def model_of(cells: Cells) -> TransitionModel:
    assert cells.model is not None
    return cells.model


def affine_world(
    rng: np.random.Generator, parameters: int = 1, boxes: int = 9, *, partly: bool = False
) -> tuple[Cells, TabularCMDP]:
    """Cells of a random affine family with three states and two actions, and a task of it, for its units and tables.

    `partly`: the uniform policy, which is the safe one, is feasible on a part of the box only.
    """
    kernels = random_distributions(rng, (1 + parameters, 3, 2, 3), 0.8)
    kernels[:, 0, 0] = kernels[0, 0, 0]  # a row that tells nothing
    kernels[:, 1, 1] = kernels[:, 0, 1]  # rows of one type
    base, slopes = kernels[0], kernels[1:] - kernels[0]
    tables = {"reward": rng.random((3, 2)), "cost": rng.random((1, 3, 2)), "start": np.array([0.5, 0.5, 0.0])}

    def build(theta: Floats, budget: float) -> TabularCMDP:
        kernel = np.maximum(base + np.tensordot(theta, slopes, axes=1), 0.0)
        return TabularCMDP(
            kernel, budget=budget, discount=0.8, reward_range=(0.0, 1.0), cost_range=(0.0, 1.0), **tables
        )

    low, high = np.full(parameters, 0.05), np.full(parameters, 0.95 / parameters)
    budget = float(evaluate(build((low + high) / 2, 5.0), UNIFORM).cost[0]) if partly else 5.0
    tasks = family(lambda theta: build(theta, budget), Uniform(low, high), affine=(base, slopes))
    return affine_cells(tasks, [UNIFORM, TabularPolicy(np.eye(2)[[0, 1, 0]])], boxes), tasks.task(low)


def finite_world(rng: np.random.Generator, count: int = 3, support: float = 0.6) -> tuple[Cells, list[TabularCMDP]]:
    tables = {"reward": rng.random((3, 2)), "cost": rng.random((1, 3, 2)), "start": np.array([0.5, 0.5, 0.0])}
    ranges = {"reward_range": (0.0, 1.0), "cost_range": (0.0, 1.0)}
    kernels = [random_distributions(rng, (3, 2, 3), support) for _ in range(count)]
    tasks = [TabularCMDP(kernel, budget=5.0, discount=0.8, **tables, **ranges) for kernel in kernels]
    return finite_cells(from_arrays(tasks, random_distributions(rng, (count,))), [UNIFORM]), tasks


def told(model: TransitionModel, discount: float, states: Any, actions: Any) -> Outcomes:
    """Outcomes whose sums agree with states [n, H+1] and actions [n, H]."""
    states, actions = np.asarray(states), np.asarray(actions)
    reward = discounted_sum(model.reward[states[:, :-1], actions].T, discount)
    cost = np.stack([discounted_sum(table[states[:, :-1], actions].T, discount) for table in model.cost], axis=1)
    return Outcomes(reward, cost, states, actions)


def counts_of(model: TransitionModel, steps: Steps) -> Counts:
    transitions = np.zeros(model.class_table.shape)
    for step in steps:
        transitions[step] += 1
    return counts_of_table(model, transitions)


def steps_of(outcomes: Outcomes) -> Steps:
    assert outcomes.states is not None
    assert outcomes.actions is not None
    rows = zip(outcomes.states.tolist(), outcomes.actions.tolist(), strict=True)
    return [(s, a, t) for states, actions in rows for s, a, t in zip(states, actions, states[1:], strict=False)]


def kernels_of(model: TransitionModel, probability: Floats) -> Floats:
    """[S, A, S] of class probabilities [C], entry by entry."""
    kernel = np.zeros(model.class_table.shape)
    for index in np.ndindex(kernel.shape):
        kernel[index] = probability[model.class_table[index]] if model.class_table[index] >= 0 else 0.0
    return kernel


# ------------------------------------------------------------------------------------- brute force, one step at a time


def log_likelihood(kernel: Floats, steps: Steps) -> float:
    total = 0.0
    for step in steps:
        total += math.log(kernel[step]) if kernel[step] > 0 else -math.inf
    return total


def learned_per_row(model: TransitionModel, steps: Steps) -> float:
    """Each row has its own frequencies: the logarithms of the predictive probabilities, added up."""
    seen = np.where(model.class_table >= 0, 0.5, 1e-3)
    total = 0.0
    for s, a, t in steps:
        total += math.log(seen[s, a, t] / seen[s, a].sum())
        seen[s, a, t] += 1
    return total


def learned_per_row_type(model: TransitionModel, steps: Steps) -> float:
    """Each row type has frequencies of its classes, shared by its rows; successors of a class are equally likely."""
    seen = np.full(len(model.row_type), 0.5)
    total = 0.0
    for s, a, t in steps:
        c = model.class_table[s, a, t]
        if c < 0:
            return -math.inf
        alike = seen[model.row_type == model.row_type[c]].sum()
        total += math.log(seen[c] / alike / np.count_nonzero(model.class_table[s, a] == c))
        seen[c] += 1
    return total


def log_mixture(cells: Cells, model: TransitionModel, steps: Steps) -> Floats:
    """[J] the logarithm of the weighted likelihoods of all alternatives."""
    centres = [log_likelihood(kernels_of(model, row), steps) for row in model.probability]
    if model.affine is not None:
        centres += [log_likelihood(kernels_of(model, model.class_probability(point)), steps) for point in cells.outside]
    weights = np.full((len(cells), len(centres)), GLOBAL_WEIGHT / len(centres))
    weights[:, : len(cells)] += local_alternatives(cells)
    own = [
        math.log(ROW_TYPE_WEIGHT) + learned_per_row_type(model, steps),
        math.log(ROW_WEIGHT) + learned_per_row(model, steps),
    ]
    return np.array([np.logaddexp.reduce(np.append(np.log(row) + centres, own)) for row in weights])


def searched_supremum(cells: Cells, model: TransitionModel, steps: Steps, points: int) -> Floats:
    """[J] the largest log-likelihood on a grid over each cell."""
    seen = Counter(steps)
    best = []
    for low, high in zip(cells.low, cells.high, strict=True):
        grid = np.array(list(product(np.linspace(0, 1, points), repeat=len(low))))
        kernels = [kernels_of(model, model.class_probability(low + share * (high - low))) for share in grid]
        best.append(max(sum(n * math.log(kernel[step]) for step, n in seen.items()) for kernel in kernels))
    return np.array(best)


@given(seeds, st.integers(1, 2), st.booleans())
def test_evidence_is_the_ratio_of_likelihoods(seed: int, parameters: int, partly: bool) -> None:
    rng = np.random.default_rng(seed)
    cells, task = affine_world(rng, parameters, partly=partly)
    assert len(cells.outside) > 0 or not partly
    model = model_of(cells)
    outcomes = Simulator(task, UNIFORM, 12).run(4, rng, True)
    evidence = LikelihoodRatio(cells, model, task.units, 1000)
    found = evidence.log_evidence(evidence.observe(evidence.start(), np.zeros(4, int), outcomes))
    steps = steps_of(outcomes)
    best = searched_supremum(cells, model, steps, 41 if parameters == 1 else 9)
    expected = log_mixture(cells, model, steps) - best
    assert (found <= expected + 1e-9).all(), "the bound on the supremum must not be below the grid's"
    if parameters == 1:  # the supremum is exact, and the grid close to it
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


def test_supremum_over_a_cell_is_exact_after_many_transitions() -> None:
    """The true parameter lies inside one of the cells, so that suprema are attained at ends and in between."""
    rng = np.random.default_rng(5)
    cells, task = affine_world(rng)
    model = model_of(cells)
    evidence = LikelihoodRatio(cells, model, task.units, 1000)
    outcomes = Simulator(model.task(np.array([0.42]), task.units), UNIFORM, 20).run(100, rng, True)
    found = evidence.log_evidence(evidence.observe(evidence.start(), np.zeros(100, int), outcomes))
    steps = steps_of(outcomes)
    expected = log_mixture(cells, model, steps) - searched_supremum(cells, model, steps, 300)
    assert (found <= expected + 1e-9).all()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)
    assert np.ptp(found) > 100, "cells far from the truth are ruled out"


@pytest.mark.short_for(truth=[(0.42, 0.58)])
@pytest.mark.parametrize("truth", [(0.42, 0.58), (0.01, 0.99), (0.5, 0.0)])
def test_supremum_in_two_dimensions_is_close_where_it_matters(truth: tuple[float, float]) -> None:
    """On the cells that are not clearly ruled out, also where the likelihood is largest at an edge of the box."""
    rng = np.random.default_rng(6)
    cells, task = affine_world(rng, 2, boxes=16)
    model = model_of(cells)
    evidence = LikelihoodRatio(cells, model, task.units, 1000)
    outcomes = Simulator(model.task(np.array(truth), task.units), UNIFORM, 20).run(100, rng, True)
    found = evidence.log_evidence(evidence.observe(evidence.start(), np.zeros(100, int), outcomes))
    steps = steps_of(outcomes)
    expected = log_mixture(cells, model, steps) - searched_supremum(cells, model, steps, 25)
    assert (found <= expected + 1e-9).all()
    matters = expected < expected.min() + 10
    assert 0 < matters.sum() < len(cells)
    assert (found >= expected - 0.1)[matters].all()


@given(seeds)
def test_evidence_of_finite_cells_is_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells, tasks = finite_world(rng)
    model = model_of(cells)
    outcomes = Simulator(tasks[0], UNIFORM, 10).run(3, rng, True)
    steps = steps_of(outcomes)
    evidence = LikelihoodRatio(cells, model, tasks[0].units, 1000)
    found = evidence.log_evidence(evidence.observe(evidence.start(), np.zeros(3, int), outcomes))
    best = np.array([log_likelihood(task.transitions, steps) for task in tasks])
    possible = np.isfinite(best)
    expected = log_mixture(cells, model, steps) - best
    np.testing.assert_allclose(found[possible], expected[possible], rtol=0, atol=1e-9)
    assert (found[~possible] > 300).all(), "what cannot have happened in a cell rules it out"


# ------------------------------------------------------------------------------------------------- sums over everything


def paths(kernel: Floats, start: int, length: int) -> Iterator[tuple[Steps, float]]:
    """All sequences of steps under equally likely actions, with their probabilities."""
    states, actions = kernel.shape[:2]
    if length == 0:
        yield [], 1.0
        return
    for steps, probability in paths(kernel, start, length - 1):
        here = steps[-1][2] if steps else start
        for a, t in product(range(actions), range(states)):
            if kernel[here, a, t] > 0:
                yield [*steps, (here, a, t)], probability * kernel[here, a, t] / actions


def two_state_cells(rng: np.random.Generator, boxes: int = 4) -> tuple[Cells, TabularCMDP]:
    """One action, two states, P affine in one parameter on [0.1, 0.9]."""
    base = np.array([[[1.0, 0.0]], [[0.4, 0.6]]])
    slope = np.array([[[[-1.0, 1.0]], [[0.3, -0.3]]]])
    table = rng.random((2, 1))

    def build(theta: Floats) -> TabularCMDP:
        return TabularCMDP(base + theta[0] * slope[0], table, table, 5.0, [1.0, 0.0], 0.5, (0.0, 1.0), (0.0, 1.0))

    tasks = family(build, Uniform(0.1, 0.9), affine=(base, slope))
    return affine_cells(tasks, [TabularPolicy(np.ones((2, 1)))], boxes), tasks.task([0.5])


@pytest.mark.parametrize("length", [1, 3, 6])
def test_expected_evidence_is_at_most_one_everywhere_in_the_cell(length: int) -> None:
    """Exactly, by summing over all paths; at the ends of a cell, in between, for every cell."""
    cells, task = two_state_cells(np.random.default_rng(0))
    model = model_of(cells)
    evidence = LikelihoodRatio(cells, model, task.units, 1000)
    closest = 0.0
    for j in range(len(cells)):
        for theta in np.linspace(cells.low[j, 0], cells.high[j, 0], 4):
            kernel = kernels_of(model, model.class_probability(np.array([theta])))
            mean = sum(
                probability * np.exp(evidence.log_evidence(counts_of(model, steps))[j])
                for steps, probability in paths(kernel, 0, length)
            )
            assert mean <= 1 + 1e-9
            closest = max(closest, mean)
    assert closest > 0.75, "the bound is not kept by being far away"


def sharp_cells() -> tuple[Cells, TabularCMDP]:
    """A dangerous task amid copies of a milder one, so that nearly all weight is on the right alternative.

    The last task is far away in parameter space, which makes all others close to each other.
    """

    def build(theta: Floats) -> TabularCMDP:
        p = 0.5 if theta[0] == 30 else 0.2
        kernel = np.array([[[1 - p, p]], [[1 - p, p]]])
        return TabularCMDP(kernel, [[0.0], [1.0]], [[0.0], [1.0]], 9.0, [1.0, 0.0], 0.5, (0.0, 1.0), (0.0, 1.0))

    tasks = family(build, Finite([*range(31), 1e4], [*[0.01] * 30, 0.5, 0.2]))
    return finite_cells(tasks, [TabularPolicy(np.ones((2, 1)))]), tasks.task([30.0])


def lost(factor: float, level: float, length: int = 11) -> float:
    """The probability that factor·log E ever reaches log(1/δ) for the dangerous task if it is the true one: exactly."""
    cells, task = sharp_cells()
    model = model_of(cells)
    evidence = LikelihoodRatio(cells, model, task.units, 1000)

    @cache
    def log_evidence(seen: frozenset[tuple[tuple[int, int, int], int]]) -> float:
        return float(evidence.log_evidence(counts_of(model, [step for step, n in seen for _ in range(n)]))[30])

    total = 0.0
    for steps, probability in paths(task.transitions, 0, length):
        highest = max(log_evidence(frozenset(Counter(steps[:k]).items())) for k in range(1, length + 1))
        total += probability * (factor * highest >= math.log(1 / level))
    return total


@pytest.mark.short_for(level=[0.2])
@pytest.mark.parametrize("level", [0.01, 0.05, 0.2, 0.5])
def test_probability_of_ever_losing_the_true_cell_is_at_most_the_level(level: float) -> None:
    """Ville's inequality over eleven steps: the probability of all paths on which E reaches 1/δ at some time.

    Twice the evidence breaks it for small levels; so the level is not kept by being far away.
    """
    assert 0 < lost(1.0, level) <= level
    if level <= 0.2:
        assert lost(2.0, level) > level


def test_models_learned_on_the_way_are_probabilities() -> None:
    """Summed over all successors of each step they give 1, per row and per row type."""
    cells, _ = two_state_cells(np.random.default_rng(0))
    model = model_of(cells)
    for learned in (learned_per_row, learned_per_row_type):
        everything = np.ones((2, 1, 2))
        total = sum(math.exp(learned(model, steps)) for steps, _ in paths(everything, 0, 7))
        assert total == pytest.approx(1.0, abs=1e-12)


def test_weights_of_all_alternatives_sum_to_one_at_most() -> None:
    assert sum(LOCAL_WEIGHTS) + GLOBAL_WEIGHT + ROW_TYPE_WEIGHT + ROW_WEIGHT <= 1 + 1e-15


@given(seeds, st.integers(1, 2))
def test_local_alternatives_are_safer_cells(seed: int, parameters: int) -> None:
    cells, _ = affine_world(np.random.default_rng(seed), parameters, boxes=16, partly=True)
    weights = local_alternatives(cells)
    np.testing.assert_allclose(weights.sum(axis=1), sum(LOCAL_WEIGHTS), rtol=1e-12)
    assert (weights >= 0).all()
    for j, i in np.ndindex(weights.shape):
        if cells.danger[i] > cells.danger[j]:
            assert weights[j, i] == 0
    margins = [sum(cells.lower[j, p, 1:].min() for p in range(2)) for j in range(len(cells))]
    np.testing.assert_allclose(cells.danger, -np.array(margins), rtol=1e-12)


# ---------------------------------------------------------------------------------------------------------- the ball


def ball_world(rng: np.random.Generator, count: int = 3, largest: float = 0.2) -> TransitionBall:
    cells, tasks = finite_world(rng, count, support=0.4)
    model = ball_model(tasks, rng.uniform(0, largest, count))
    assert model is not None
    cells = replace(cells, model=model, source="holdout")
    return TransitionBall(cells, model, tasks[0].units, 1000)


def in_ball(rng: np.random.Generator, row: Floats, radius: float) -> list[Floats]:
    """Rows within total variation `radius`: random ones, and those that move all they may from one entry to another."""
    found = []
    for _ in range(4):
        other = rng.exponential(size=row.shape)
        other /= other.sum()
        reach = np.abs(other - row).sum() / 2
        found.append(row + (other - row) * min(1.0, radius / max(reach, 1e-12)))
    for i, k in product(np.flatnonzero(row > 0), range(len(row))):
        moved = row.copy()
        moved[i] -= min(radius, row[i])
        moved[k] += min(radius, row[i])
        found.append(moved)
    return found


def largest_gain(rng: np.random.Generator, ball: TransitionBall, radius: Floats) -> float:
    """The largest mean factor of the next transition, over rows, cells, bets, and members of balls of this radius.

    After a random history; members may also reach successors that no centre allows.
    """
    model, cells = ball.model, ball.cells
    history = np.where(model.class_table >= 0, rng.integers(0, 30, model.class_table.shape), 0).astype(float)
    state = BallState(np.zeros((len(ball.boldness), len(cells))), *(counts_of_table(model, history),) * 2)
    everyone = np.ones(len(cells), dtype=bool)
    largest = 0.0
    for s, a in np.ndindex(model.class_table.shape[:2]):
        factors = np.zeros((len(ball.boldness), len(cells), model.class_table.shape[2]))
        for t in range(model.class_table.shape[2]):
            observed = history.copy()
            observed[s, a, t] += 1
            step = counts_of_table(model, observed)
            factors[:, :, t] = np.exp(ball.settle(replace(state, counts=step), everyone, ()).capital)
        for j in range(len(cells)):
            row = kernels_of(model, model.probability[j])[s, a]
            for member in in_ball(rng, row, radius[j]):
                assert np.abs(member - row).sum() / 2 <= radius[j] + 1e-12
                largest = max(largest, float((factors[:, j] @ member).max()))
    return largest


@given(seeds)
def test_bets_gain_nothing_on_average_anywhere_in_the_ball(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ball = ball_world(rng)
    assert (ball.model.radius > 0).all()
    assert largest_gain(rng, ball, ball.model.radius) <= 1 + 1e-12


def test_outside_the_ball_bets_may_gain() -> None:
    """The check above has teeth: for balls twice as large as the fee allows for it fails."""
    rng = np.random.default_rng(0)
    ball = ball_world(rng, largest=0.15)
    assert largest_gain(rng, ball, 2 * ball.model.radius) > 1.001


def test_bets_are_placed_before_the_transitions_are_seen() -> None:
    """What is observed between settlements is paid at the odds of the last one, whatever its order or its blocks."""
    rng = np.random.default_rng(1)
    ball = ball_world(rng)
    everyone = np.ones(len(ball.cells), dtype=bool)
    task = TabularCMDP(
        kernels_of(ball.model, ball.model.probability[1]),
        ball.model.reward,
        ball.model.cost,
        5.0,
        ball.model.start,
        0.8,
    )
    first, second = (Simulator(task, UNIFORM, 15).run(6, rng, True) for _ in range(2))
    drawn = np.zeros(6, int)
    start = ball.settle(ball.observe(ball.start(), drawn, first), everyone, ())
    together = ball.settle(ball.observe(start, drawn, second), everyone, ())
    singly = start
    for k in range(6):
        singly = ball.observe(singly, drawn[:1], second[k : k + 1])
    assert np.array_equal(ball.settle(singly, everyone, ()).capital, together.capital)
    increments = np.zeros_like(start.capital)
    for step in steps_of(second):
        fresh = counts_of(ball.model, [step])
        one = replace(
            start.counts,
            transitions=start.counts.transitions + fresh.transitions,
            beyond=start.counts.beyond + fresh.beyond,
        )
        increments += ball.settle(replace(start, counts=one), everyone, ()).capital - start.capital
    np.testing.assert_allclose(together.capital - start.capital, increments, rtol=1e-9, atol=1e-9)
    average = np.exp(together.capital).mean(axis=0)
    np.testing.assert_allclose(np.exp(ball.log_evidence(together)), average, rtol=1e-12)


def test_predictions_that_underflow_do_not_spoil_the_evidence() -> None:
    """After very many transitions a successor that only a hopeless cell allows has a prediction of exactly 0."""
    states = 150
    rng = np.random.default_rng(0)
    kernels = np.zeros((2, states, 1, states))
    for s in range(states):
        p = rng.uniform(0.2, 0.8)
        kernels[:, s, 0, s], kernels[:, s, 0, (s + 1) % states] = p, 1 - p
    kernels[1, 0, 0] = 0.0
    kernels[1, 0, 0, [0, 1, 2]] = [0.3, 0.3, 0.4]
    table = np.zeros((states, 1))
    start = np.eye(states)[0]
    tasks = [TabularCMDP(kernel, table, table, 1.0, start, 0.5, (0, 1), (0, 1)) for kernel in kernels]
    cells = finite_cells(from_arrays(tasks), [TabularPolicy(np.ones((states, 1)))])
    ball = TransitionBall(cells, model_of(cells), tasks[0].units, 1000)
    state, everyone = ball.start(), np.ones(2, dtype=bool)
    for _ in range(4):
        seen = counts_of_table(ball.model, np.round(1e6 * kernels[0])).transitions
        counts = replace(state.counts, transitions=state.counts.transitions + seen)
        state = ball.settle(replace(state, counts=counts), everyone, ())
        log_evidence = ball.log_evidence(state)
        assert not np.isnan(log_evidence).any()
        assert log_evidence[0] < np.log(20)
    assert log_evidence[1] > 1000


def test_far_cells_with_missing_successors_are_ruled_out_in_spite_of_their_radius() -> None:
    """A successor that a centre lacks must not make every bet against that cell worthless."""
    kernels = [np.array([[[0.9, 0.1, 0.0]]] * 3), np.array([[[0.2, 0.4, 0.4]]] * 3)]
    table = np.zeros((3, 1))
    tasks = [TabularCMDP(kernel, table, table, 1.0, [1.0, 0.0, 0.0], 0.5, (0, 1), (0, 1)) for kernel in kernels]
    cells = finite_cells(from_arrays(tasks), [TabularPolicy(np.ones((3, 1)))])
    model = ball_model(tasks, np.array([0.02, 0.02]))
    assert model is not None
    ball = TransitionBall(replace(cells, model=model), model, tasks[0].units, 1000)
    state = ball.start()
    simulator, rng = Simulator(tasks[1], TabularPolicy(np.ones((3, 1))), 20), np.random.default_rng(0)
    for _ in range(10):
        state = ball.observe(state, np.zeros(10, int), simulator.run(10, rng, True))
        state = ball.settle(state, np.ones(2, dtype=bool), ())
    assert ball.log_evidence(state)[0] > 10
    assert ball.log_evidence(state)[1] < 1


# ------------------------------------------------------------------------------------------- belief and contradictions


@given(seeds)
def test_belief_is_the_posterior(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells, tasks = finite_world(rng, support=1.0)
    outcomes = Simulator(tasks[0], UNIFORM, 10).run(3, rng, True)
    steps = steps_of(outcomes)
    joint = cells.prior * np.exp([log_likelihood(task.transitions, steps) for task in tasks])
    for evidence in (
        LikelihoodRatio(cells, model_of(cells), tasks[0].units, 1000),
        TransitionBall(cells, model_of(cells), tasks[0].units, 1000),
    ):
        state = evidence.observe(evidence.start(), np.zeros(3, int), outcomes)
        np.testing.assert_allclose(evidence.belief(state), joint / joint.sum(), rtol=1e-9)
        np.testing.assert_allclose(evidence.belief(evidence.start()), cells.prior / cells.prior.sum(), rtol=1e-9)


NAMES = ("reward", "cost", "states", "actions")


def contradictory_world() -> tuple[Cells, TabularCMDP]:
    """Two tasks on three states; nobody starts in state 2, and state 0 never leads to it."""
    kernels = [np.array([[[p, 1 - p, 0.0]] * 2, [[0.2, 0.2, 0.6]] * 2, [[0.5, 0.5, 0.0]] * 2]) for p in (0.3, 0.6)]
    tables = {"reward": [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]], "cost": [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]}
    tasks = [TabularCMDP(kernel, budget=5.0, start=[0.5, 0.5, 0.0], discount=0.8, **tables) for kernel in kernels]
    return finite_cells(from_arrays(tasks), [UNIFORM]), tasks[0]


@pytest.mark.parametrize("kind", [LikelihoodRatio, TransitionBall])
def test_contradictions_rule_out_every_cell_for_good(kind: Any) -> None:
    cells, task = contradictory_world()
    model = model_of(cells)
    evidence = kind(cells, model, task.units, 1000)
    fair = told(model, 0.8, [[0, 1, 2, 1]], [[0, 1, 0]])
    off = replace(fair, reward=fair.reward + 1e-3), replace(fair, cost=fair.cost - 1e-3)
    impossible = told(model, 0.8, [[1, 0, 2, 1]], [[0, 1, 0]]), told(model, 0.8, [[2, 1, 1, 0]], [[0, 1, 0]])
    everyone, drawn = np.ones(2, dtype=bool), np.zeros(1, int)

    def after(*outcomes: Outcomes) -> Floats:
        state = evidence.start()
        for outcome in outcomes:
            state = evidence.settle(evidence.observe(state, drawn, outcome), everyone, ())
        return np.asarray(evidence.log_evidence(state))

    assert np.isfinite(after(fair, fair)).all()
    rounded = replace(fair, reward=fair.reward + 1e-9, cost=fair.cost - 1e-9)
    assert np.isfinite(after(rounded)).all()
    for wrong in (*off, *impossible):
        assert np.isposinf(after(wrong)).all()
        assert np.isposinf(after(wrong, fair, fair)).all()
        assert np.isposinf(after(fair, wrong, fair)).all()


@pytest.mark.parametrize("kind", [LikelihoodRatio, TransitionBall])
def test_impossible_episodes_are_named_one_by_one(kind: Any) -> None:
    cells, task = contradictory_world()
    model = model_of(cells)
    fair = told(model, 0.8, [[0, 1, 2, 1]], [[0, 1, 0]])
    wrong = [
        fair,
        replace(fair, reward=fair.reward + 1e-3),
        told(model, 0.8, [[1, 0, 2, 1]], [[0, 1, 0]]),  # state 0 never leads to state 2
        told(model, 0.8, [[2, 1, 1, 0]], [[0, 1, 0]]),  # nobody starts in state 2
    ]
    block = Outcomes(*(np.concatenate([getattr(each, name) for each in wrong]) for name in NAMES))
    balls = replace(model, radius=np.full(len(cells), 0.1))
    exact, inexact = kind(cells, model, task.units, 1000), TransitionBall(cells, balls, task.units, 1000)
    for evidence, expected in ((exact, [False, True, True, True]), (inexact, [False, True, False, True])):
        start = evidence.start()
        for part in (slice(None), slice(0, 1), slice(1, 2), slice(2, 3), slice(3, 4)):
            episodes = block[part]
            after = evidence.observe(start, np.zeros(len(episodes), int), episodes)
            assert evidence.impossible(episodes, start, after).tolist() == expected[part]


def test_evidence_does_not_drift_when_rows_miss_one_by_rounding_up() -> None:
    """Two descriptions of one task whose rows sum to 1 ± 9e-10: after 10^10 transitions neither is any likelier."""
    rows = np.array([[[0.3, 0.7]], [[0.6, 0.4]]])
    tables = {"reward": [[0.0], [1.0]], "cost": [[0.0], [1.0]], "budget": 9.0, "start": [0.5, 0.5], "discount": 0.8}
    tasks = [TabularCMDP(rows * (1 + off), **tables) for off in (-9e-10, 9e-10)]  # type: ignore[arg-type]
    cells = finite_cells(from_arrays(tasks), [TabularPolicy(np.ones((2, 1)))])
    evidence = LikelihoodRatio(cells, model_of(cells), tasks[0].units, 1000)
    seen = replace(evidence.start(), transitions=np.round(1e10 * rows).ravel())
    assert np.abs(evidence.log_evidence(seen)).max() < 0.1


@pytest.mark.parametrize("kind", [LikelihoodRatio, TransitionBall])
@pytest.mark.parametrize(("states", "actions"), [([[0, 3]], [[0]]), ([[-1, 0]], [[0]]), ([[0, 1]], [[2]])])
def test_indices_that_do_not_exist_are_refused(kind: Any, states: Any, actions: Any) -> None:
    """Counted as they are, they would stand for another transition."""
    cells, task = contradictory_world()
    evidence = kind(cells, model_of(cells), task.units, 1000)
    outcome = Outcomes(np.zeros(1), np.zeros((1, 1)), np.array(states), np.array(actions))
    with pytest.raises(InvalidInput, match="must lie in"):
        evidence.observe(evidence.start(), np.zeros(1, int), outcome)


# --------------------------------------------------------------------------------------------------- blocks and memory


@pytest.mark.parametrize("kind", [LikelihoodRatio, TransitionBall])
def test_blocks_and_single_episodes_give_the_same_state(kind: Any) -> None:
    rng = np.random.default_rng(3)
    cells, task = affine_world(rng)
    evidence = kind(cells, model_of(cells), task.units, 1000)
    outcomes = Simulator(task, UNIFORM, 15).run(40, rng, True)
    whole = evidence.observe(evidence.start(), np.zeros(40, int), outcomes)
    single = evidence.start()
    for k in range(40):
        single = evidence.observe(single, np.zeros(1, int), outcomes[k : k + 1])
    everyone = np.ones(len(cells), dtype=bool)
    ends = [evidence.log_evidence(evidence.settle(state, everyone, ())) for state in (whole, single)]
    assert np.array_equal(*ends)


@given(seeds, st.integers(0, 3))
def test_an_abandoned_episode_proves_no_more_than_any_outcome_would(seed: int, which: int) -> None:
    rng = np.random.default_rng(seed)
    cells, task = affine_world(rng, partly=True)
    model, horizon, everyone = model_of(cells), 8, np.ones(len(cells), dtype=bool)
    drawn = np.zeros(5, int)
    for evidence in (
        LikelihoodRatio(cells, model, task.units, horizon),
        TransitionBall(cells, model, task.units, horizon=horizon),
    ):
        before = evidence.observe(evidence.start(), drawn, Simulator(task, UNIFORM, horizon).run(5, rng, True))
        before = evidence.settle(before, everyone, ())
        gone = evidence.log_evidence(evidence.settle(evidence.abandon(before, 0), everyone, ()))
        other = model.task(cells.centre[which % len(cells)], task.units)
        for length in (1, horizon):
            for outcome in (Simulator(other, UNIFORM, length).run(1, rng, True) for _ in range(3)):
                seen = evidence.settle(evidence.observe(before, drawn[:1], outcome), everyone, ())
                assert (gone <= evidence.log_evidence(seen) + 1e-9).all()
