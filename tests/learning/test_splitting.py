"""Boxes inside cells: what they hold, what is known of them, and what the option asks for."""

from __future__ import annotations

import numpy as np
import pytest

import surefoot as sf
from guarantees.test_splitting_promise import STAY_RICH, policies, wards
from surefoot.errors import InvalidInput
from surefoot.learning.certified.evidence.counts import class_counts
from surefoot.learning.learner import Learner
from surefoot.methods import learner
from surefoot.simulate.runner import run_learner


def after(episodes: int, seed: int = 0) -> Learner:
    made = learner(policies(), method="certified-likelihood", risk=0.05, seed=seed, split=True)
    run_learner(made, wards().task(np.array([0.12, 0.3])), episodes=episodes, seed=seed, optimal_reward=0.0)
    return made


def test_boxes_of_a_cell_fill_it_and_nothing_else() -> None:
    made = after(400)
    method, state = made.method, made.state.method
    boxes = method.splitter.partition(state.boxes, state.planned)
    assert len(boxes.cell) > len(method.cells)
    for cell in range(len(method.cells)):
        mine = boxes[boxes.cell == cell]
        assert np.prod(mine.high - mine.low, axis=1).sum() == pytest.approx(
            np.prod(method.cells.high[cell] - method.cells.low[cell])
        )
        assert (mine.low >= method.cells.low[cell]).all()
        assert (mine.high <= method.cells.high[cell]).all()


def test_margins_of_boxes_are_no_worse_than_those_of_their_cells_and_some_are_better() -> None:
    made = after(400)
    method, state = made.method, made.state.method
    boxes = method.splitter.partition(state.boxes, state.planned)
    assert (boxes.margin[:, :2] >= method.cells.lower[boxes.cell, :, 1:]).all()
    assert (boxes.margin[:, 1] > method.cells.lower[boxes.cell, 1, 1:]).any()


def test_evidence_of_a_box_is_the_numerator_of_its_cell_over_the_likelihood_of_the_best_task_in_it() -> None:
    made = after(200)
    method, state = made.method, made.state.method
    boxes = method.splitter.partition(state.boxes, state.planned)
    found = method.splitter.log_evidence(state.evidence, boxes, np.inf)
    seen = class_counts(state.evidence, method.evidence.model)
    for number in np.argsort(found)[:12]:
        grid = np.stack(np.meshgrid(*np.linspace(boxes.low[number], boxes.high[number], 60).T), axis=-1).reshape(-1, 2)
        best = (np.log(method.evidence.model.class_probability(grid)) @ seen).max()
        exact = method.evidence.log_mixture(state.evidence)[boxes.cell[number]] - best
        assert exact - 0.05 * max(1.0, abs(exact)) - 0.2 <= found[number] <= exact + 1e-9


@pytest.mark.long
def test_splitting_pays() -> None:
    task, method = wards().task(np.array([0.12, 0.3])), "certified-likelihood"
    whole, split = (
        sum(sf.adapt(policies(), task, method=method, episodes=2000, seed=k, split=each).regret[-1] for k in range(3))
        for each in (False, True)
    )
    assert split < 0.8 * whole


def test_blocks_of_episodes_make_no_difference() -> None:
    task, states = wards().task(np.array([0.12, 0.3])), []
    for block in (1, 7):
        made = learner(policies(), method="certified-likelihood", risk=0.05, seed=3, split=True)
        rng = np.random.default_rng(0)
        outcomes = task.episodes(STAY_RICH, made.horizon).run(120, rng, transitions=True)
        while made.state.episode < 120:
            orders = made.ask_block(min(block, 120 - made.state.episode))
            first = made.state.episode
            made.tell_block(orders, outcomes[first : first + len(orders.drawn)])
        states.append(made.state.method)
    np.testing.assert_array_equal(states[0].boxes.low, states[1].boxes.low)
    np.testing.assert_array_equal(states[0].boxes.margin, states[1].boxes.margin)
    np.testing.assert_array_equal(states[0].deployed.weights, states[1].deployed.weights)


def test_the_account_is_the_least_margin_over_all_boxes_that_survive() -> None:
    made = after(400)
    account = made.certificate()
    assert account.margin is not None
    assert account.margin.shape == (1,)
    assert 0 <= account.margin[0] < 0.25


def test_split_is_refused_where_boxes_have_no_evidence_of_their_own() -> None:
    for method in ("certified-returns", "certified-ball"):
        with pytest.raises(InvalidInput, match="split"):
            learner(policies(), method=method, risk=0.05, split=True)
