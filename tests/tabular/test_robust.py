"""Values near known tasks: the worst task within a distance, and how far any value can move (Lemma 8)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from random_tasks import random_cmdp, random_policy
from surefoot import theory
from surefoot.arrays import Floats
from surefoot.bounds.affine import affine_cells
from surefoot.errors import InvalidInput
from surefoot.tabular.distance import distance
from surefoot.tabular.evaluate import evaluate, state_values
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.robust import shift_mass, value_spreads, worst_within
from surefoot.tabular.solve import solve
from surefoot.tabular.transition_model import ball_model
from surefoot.tasks.gridworld_tasks import gridworld

ETA = 0.03


@pytest.mark.parametrize("seed", range(6))
def test_moved_mass_is_the_optimum_of_a_linear_program(seed: int) -> None:
    rng = np.random.default_rng([1, seed])
    law, value, mass = rng.dirichlet(np.ones(5)), rng.normal(size=5), 0.3 * rng.random()
    # maximise (law + up - down)·value with Σup = Σdown ≤ mass, down ≤ law
    found = linprog(
        np.concatenate([-value, value]),
        A_ub=[np.repeat([1.0, 0.0], 5)],
        b_ub=[mass],
        A_eq=[np.repeat([1.0, -1.0], 5)],
        b_eq=[0.0],
        bounds=[(0, None)] * 5 + [(0, each) for each in law],
    )
    new = shift_mass(law, value, mass)
    assert new @ value == pytest.approx(law @ value - found.fun)
    assert new.min() >= 0
    assert new.sum() == pytest.approx(1.0)
    assert np.abs(new - law).sum() / 2 <= mass + 1e-12


@pytest.mark.parametrize("seed", range(8))
def test_worst_task_is_near_and_as_dear_as_robust_value_iteration_says(seed: int) -> None:
    task, policy = _drawn(seed)
    worst = worst_within(task, policy, ETA)
    assert distance(task, worst) <= ETA + 1e-12
    value = _robust_values(task, policy)
    start = shift_mass(task.start, value, ETA)
    assert evaluate(worst, policy).cost[0] == pytest.approx(start @ value, rel=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_no_value_moves_further_than_the_lemma_says(seed: int) -> None:
    task, policy = _drawn(seed)
    worst = worst_within(task, policy, ETA)
    spread = np.ptp(state_values(task, policy.probabilities), axis=1)[1]
    scale = float(task.units.cost_scale[0])
    slack = ETA * (theory.shift_bound(scale, spread, task.discount) + spread)
    moved_by = evaluate(worst, policy).cost[0] - evaluate(task, policy).cost[0]
    assert moved_by <= slack + 1e-12
    assert moved_by >= 0.4 * slack, "or the bound would be far from sharp"
    smooth = ETA * (3 - task.discount) / (1 - task.discount) ** 2 * scale
    assert slack < smooth
    from_states = state_values(worst, policy.probabilities)[1] - state_values(task, policy.probabilities)[1]
    assert (from_states <= ETA * theory.shift_bound(scale, spread, task.discount) + 1e-12).all()


def test_lemma_smooth_is_the_case_in_which_nothing_is_known() -> None:
    """c in [-1, 1], so that values differ by at most 2/(1-γ) between states."""
    for discount in (0.5, 0.9, 0.99):
        found = theory.shift_bound(1.0, 2 / (1 - discount), discount)
        assert found == pytest.approx(theory.lipschitz_constant(discount))


def test_spreads_hold_on_all_tasks_of_a_cell() -> None:
    tasks = gridworld()
    rng = np.random.default_rng(2)
    policy = TabularPolicy(rng.dirichlet(np.ones(4), size=49))
    cells = affine_cells(tasks, [solve(tasks.task([0.4])).policy, policy], 40)
    assert cells.model is not None
    found = value_spreads(cells.model, policy, tasks.task([0.3]).units)
    assert found is not None
    for k in range(0, len(cells), 7):
        for share in (0.0, 0.31, 1.0):
            member = tasks.task(cells.low[k] + share * (cells.high[k] - cells.low[k]))
            exact = np.ptp(state_values(member, policy.probabilities), axis=1)
            assert (exact <= found[k]).all()
            assert (found[k] <= 2 * exact).all()


@pytest.mark.parametrize("seed", range(6))
def test_with_a_horizon_every_step_counts(seed: int) -> None:
    """Spreads and Lemma 8, on tasks with other transitions within the distance."""
    rng = np.random.default_rng([3, seed])
    drawn, steps = random_cmdp(rng), 6
    rows = drawn.rows.toarray().reshape(drawn.n_states, drawn.n_actions, drawn.n_states)
    policy = TimedPolicy(rng.dirichlet(np.ones(drawn.n_actions), (steps, drawn.n_states)))

    def made(transitions: Floats) -> tuple[TabularCMDP, Floats]:
        """A task and its values [H, 1+m, S] from every step."""
        task = TabularCMDP(transitions, drawn.reward, drawn.cost, drawn.budget, drawn.start, 1.0, horizon=steps)
        values = [np.zeros((1 + task.n_constraints, task.n_states))]
        for table in policy.probabilities[::-1]:
            ahead = task.signals + np.einsum("sat,kt->ksa", transitions, values[0])
            values.insert(0, np.einsum("sa,ksa->ks", table, ahead))
        return task, np.stack(values[:-1])

    centre, known = made(rows)
    found = value_spreads(ball_model([centre], np.array([ETA])), policy, centre.units)
    assert found is not None
    spread = np.ptp(known, axis=2).max(axis=0)
    scale = np.append(centre.units.reward_scale, centre.units.cost_scale)
    slack = ETA * theory.shift_bound(scale, spread, centre.units.effective_discount)
    for _ in range(10):
        _, values = made((1 - ETA) * rows + ETA * rng.dirichlet(np.full(drawn.n_states, 0.1), rows.shape[:2]))
        assert (np.ptp(values, axis=2) <= found[0]).all()
        assert (np.abs(values - known)[0] <= slack[:, None]).all()


def test_the_first_step_alone_may_hide_what_later_steps_hold() -> None:
    """Everybody is sent to one state at first, so that nothing depends on where an episode begins."""
    to_first, stay = np.eye(2)[[0, 0]], np.eye(2)
    task = TabularCMDP(np.stack([to_first, stay], axis=1), [[0, 0], [0, 1]], np.zeros((2, 2)), 1.0, [0.5, 0.5], 1.0,
                       (0, 1), (0, 1), horizon=5)  # fmt: skip
    policy = TimedPolicy(np.eye(2)[[[0, 0], [1, 1]]])
    found = value_spreads(ball_model([task], np.zeros(1)), policy, task.units)
    assert found is not None
    assert found[0, 0] == pytest.approx(4.0)


def test_a_distance_is_asked_for() -> None:
    task, policy = _drawn(0)
    with pytest.raises(InvalidInput, match="distance must lie in"):
        worst_within(task, policy, 1.0)


def _drawn(seed: int) -> tuple[TabularCMDP, TabularPolicy]:
    rng = np.random.default_rng([7, seed])
    task = random_cmdp(rng)
    return task, random_policy(rng, task)


def _robust_values(task: TabularCMDP, policy: TabularPolicy) -> Floats:
    """[S] by plain iteration, one row after the other."""
    high = task.units.cost_range[0, 1]
    cost = np.minimum(task.cost[0] + ETA * task.units.cost_scale[0], high)
    rows = task.rows.toarray().reshape(task.n_states, task.n_actions, task.n_states)
    value = np.zeros(task.n_states)
    for _ in range(int(30 / (1 - task.discount))):
        value = np.array(
            [
                sum(
                    policy.probabilities[s, a]
                    * (cost[s, a] + task.discount * shift_mass(rows[s, a], value, ETA) @ value)
                    for a in range(task.n_actions)
                )
                for s in range(task.n_states)
            ]
        )
    return value
