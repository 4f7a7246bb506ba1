"""What every oracle must do, whoever wrote it: call these from the tests of an implementation.

The references are independent of the library: values by inverting I - γP, optima by SciPy's linear programs on the
unit-scaled task. SciPy's optimum is good to 1e-5 (its own feasibility tolerance), hence `SOLVER`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog

from surefoot.oracles.interface import CheckOracle, FeasibleOracle, FeasiblePolicy, OptimalOracle, PolicyValues
from surefoot.tabular.model import TabularCMDP

EVALUATION = 1e-9
SOLVER = 1e-5


def conforms_to_check_oracle(
    oracle: CheckOracle, first: TabularCMDP, second: TabularCMDP, epsilon: float, delta: float = 1e-6, seed: int = 0
) -> bool:
    """The answer on a pair, after checking it against the promise and itself; `delta` small enough to demand it."""
    answer = oracle(first, second, epsilon, delta, np.random.default_rng(seed))
    assert isinstance(answer, bool)
    assert answer == oracle(first, second, epsilon, delta, np.random.default_rng(seed)), "not a function of rng"
    gap = reference_distance(first, second)
    if gap <= epsilon:
        assert answer, f"tasks at distance {gap} called further than {epsilon}"
    if gap > 2 * epsilon:
        assert not answer, f"tasks at distance {gap} called closer than {epsilon}"
    assert oracle(first, first, epsilon, delta, np.random.default_rng(seed)), "a task is far from itself"
    return answer


def conforms_to_optimal_oracle(
    oracle: OptimalOracle, task: TabularCMDP, epsilon: float, delta: float = 0.05, seed: int = 0
) -> PolicyValues:
    """The oracle's answer, after checking it: honest values, ε-optimal, relaxed ε-feasible, task untouched."""
    before = task.digest()
    found = oracle(task, epsilon, delta, np.random.default_rng(seed))
    assert task.digest() == before

    reward, margin = reference_values(task, found.policy.probabilities)
    assert np.isclose(found.reward, reward, rtol=EVALUATION, atol=EVALUATION)
    assert found.margin.shape == (task.n_constraints,)
    np.testing.assert_allclose(found.margin, margin, rtol=EVALUATION, atol=EVALUATION * task.units.cost_scale.max())

    assert (task.units.unit_margin(found.margin) >= -epsilon - EVALUATION).all(), "not relaxed ε-feasible"
    best = reference_optimum(task)
    assert best is not None, "the oracle answered on an infeasible task"
    assert float(task.units.unit_reward_value(found.reward)) >= best - epsilon - SOLVER, "not ε-optimal"
    return found


def conforms_to_feasible_oracle(
    oracle: FeasibleOracle, tasks: Sequence[TabularCMDP], xi: float | None, delta: float = 0.05, seed: int = 0
) -> FeasiblePolicy:
    """The oracle's answer, after checking it: honest values on every task, and ξ-feasible on every task."""
    found = oracle(tasks, xi, delta, np.random.default_rng(seed))
    assert found.reward.shape == (len(tasks),)
    assert found.margin.shape == (len(tasks), tasks[0].n_constraints)
    for task, reward, margin in zip(tasks, found.reward, found.margin, strict=True):
        expected_reward, expected_margin = reference_values(task, found.policy.probabilities)
        assert np.isclose(reward, expected_reward, rtol=EVALUATION, atol=EVALUATION)
        np.testing.assert_allclose(
            margin, expected_margin, rtol=EVALUATION, atol=EVALUATION * task.units.cost_scale.max()
        )
        assert (task.units.unit_margin(margin) >= (xi or 0.0) - 2 * EVALUATION).all(), "not ξ-feasible"
    return found


# ---------------------------------------------------------------------------------------------------------- references


def reference_values(task: TabularCMDP, probabilities: np.ndarray) -> tuple[float, np.ndarray]:
    """Reward and margin [m] in the user's units, from the inverse of I - γP."""
    visits = task.start @ np.linalg.inv(np.eye(task.n_states) - task.discount * _chain(task, probabilities))
    pairs = visits[:, None] * probabilities
    return float((pairs * task.reward).sum()), task.budget - (pairs * task.cost).sum(axis=(1, 2))


def reference_optimum(task: TabularCMDP) -> float | None:
    """V* in unit scale, or None where no policy is feasible."""
    units = task.units
    flow = np.repeat(np.eye(task.n_states), task.n_actions, axis=1) - task.discount * task.rows.toarray().T
    solved = linprog(
        -units.unit_reward(task.reward).ravel(),
        A_ub=-units.unit_constraint(task.cost).reshape(task.n_constraints, -1),
        b_ub=np.zeros(task.n_constraints),
        A_eq=flow,
        b_eq=task.start,
        method="highs",
    )
    return -float(solved.fun) if solved.status == 0 else None


def reference_distance(first: TabularCMDP, second: TabularCMDP) -> float:
    """The paper's d, row by row."""
    rows = zip(first.rows.toarray(), second.rows.toarray(), strict=True)
    gaps = [float(np.abs(a - b).sum() / 2) for a, b in rows]
    gaps.append(float(np.abs(first.start - second.start).sum() / 2))
    low_a, high_a = first.units.reward_range
    low_b, high_b = second.units.reward_range
    unit_a, unit_b = (first.reward - low_a) / (high_a - low_a or 1.0), (second.reward - low_b) / (high_b - low_b or 1.0)
    gaps.append(float(np.abs(unit_a - unit_b).max()))
    for i in range(first.n_constraints):
        sides = [((1 - t.discount) * t.budget[i] - t.cost[i]) / t.units.cost_scale[i] for t in (first, second)]
        gaps.append(float(np.abs(sides[0] - sides[1]).max()))
    return max(gaps)


def _chain(task: TabularCMDP, probabilities: np.ndarray) -> np.ndarray:
    table = task.rows.toarray().reshape(task.n_states, task.n_actions, task.n_states)
    return np.einsum("sa,sat->st", probabilities, table)
