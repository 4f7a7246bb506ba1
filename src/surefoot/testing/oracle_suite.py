"""What every oracle of tabular tasks without a horizon must do, whoever wrote it.

The references are independent of the library: values by inverting I - γP, optima by SciPy's linear programs on the
unit-scaled task. SciPy's optimum is good to 1e-5 (its own feasibility tolerance), hence `SOLVER`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog

from surefoot.arrays import Floats
from surefoot.cmdp.policy import Policy
from surefoot.oracles.interface import CheckOracle, FeasibleOracle, FeasiblePolicy, OptimalOracle, PolicyValues
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.testing.require import require

EVALUATION = 1e-9
SOLVER = 1e-5


def conforms_to_check_oracle(
    oracle: CheckOracle, first: TabularCMDP, second: TabularCMDP, epsilon: float, delta: float = 1e-6, seed: int = 0
) -> bool:
    """The answer on a pair, after checking it against the promise and itself; `delta` small enough to demand it."""
    answer = oracle(first, second, epsilon, delta, np.random.default_rng(seed))
    require(isinstance(answer, bool), f"the answer must be True or False, got {answer!r}")
    again = oracle(first, second, epsilon, delta, np.random.default_rng(seed))
    require(answer == again, "the answer is not a function of the generator")
    gap = reference_distance(first, second)
    if gap <= epsilon:
        require(answer, f"tasks at distance {gap} called further than {epsilon}")
    if gap > 2 * epsilon:
        require(not answer, f"tasks at distance {gap} called closer than {epsilon}")
    require(oracle(first, first, epsilon, delta, np.random.default_rng(seed)), "a task is far from itself")
    return answer


def conforms_to_optimal_oracle(
    oracle: OptimalOracle, task: TabularCMDP, epsilon: float, delta: float = 0.05, seed: int = 0
) -> PolicyValues:
    """The oracle's answer, after checking it: honest values, ε-optimal, relaxed ε-feasible, task untouched."""
    before = task.digest()
    found = oracle(task, epsilon, delta, np.random.default_rng(seed))
    require(task.digest() == before, "the oracle changed the task")
    _check_values(task, found.policy, found.reward, found.margin)
    require((task.units.unit_margin(found.margin) >= -epsilon - EVALUATION).all(), "not relaxed ε-feasible")
    best = reference_optimum(task)
    if best is None:
        raise AssertionError("the oracle answered on an infeasible task")
    require(float(task.units.unit_reward_value(found.reward)) >= best - epsilon - SOLVER, "not ε-optimal")
    return found


def conforms_to_feasible_oracle(
    oracle: FeasibleOracle, tasks: Sequence[TabularCMDP], xi: float | None, delta: float = 0.05, seed: int = 0
) -> FeasiblePolicy:
    """The oracle's answer, after checking it: honest values on every task, and ξ-feasible on every task."""
    found = oracle(tasks, xi, delta, np.random.default_rng(seed))
    require(found.reward.shape == (len(tasks),), f"reward must be one number per task, got {found.reward.shape}")
    for task, reward, margin in zip(tasks, found.reward, found.margin, strict=True):
        _check_values(task, found.policy, float(reward), margin)
        require((task.units.unit_margin(margin) >= (xi or 0.0) - 2 * EVALUATION).all(), "not ξ-feasible")
    return found


def _check_values(task: TabularCMDP, policy: Policy, reward: float, margin: Floats) -> None:
    """The values that the oracle states are those of its policy."""
    require(margin.shape == (task.n_constraints,), f"margin must have shape [m], got {list(margin.shape)}")
    expected_reward, expected_margin = reference_values(task, tables(policy))
    require(
        np.isclose(reward, expected_reward, rtol=EVALUATION, atol=EVALUATION),
        f"reward is {expected_reward!r}, the oracle says {reward!r}",
    )
    rounding = EVALUATION * task.units.cost_scale.max()
    require(
        np.allclose(margin, expected_margin, rtol=EVALUATION, atol=rounding),
        f"margins are {expected_margin.tolist()}, the oracle says {margin.tolist()}",
    )


def tables(policy: Policy) -> Floats:
    """[S, A] probabilities."""
    if not isinstance(policy, TabularPolicy):
        raise AssertionError(f"the policy must be a TabularPolicy, got one of kind {policy.kind!r}")
    return policy.probabilities


# ---------------------------------------------------------------------------------------------------------- references


def reference_values(task: TabularCMDP, probabilities: Floats) -> tuple[float, Floats]:
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


def _chain(task: TabularCMDP, probabilities: Floats) -> Floats:
    table = task.rows.toarray().reshape(task.n_states, task.n_actions, task.n_states)
    chain: Floats = np.einsum("sa,sat->st", probabilities, table)
    return chain
