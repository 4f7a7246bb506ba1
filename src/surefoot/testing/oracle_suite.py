"""What every oracle must do, whoever wrote it.

On tables without a horizon the references are exact and independent of the library: values by inverting I - γP, optima
by SciPy's linear programs on the unit-scaled task, good to 1e-5 (its own feasibility tolerance), hence `SOLVER`. On any
other task the references are simulated, with intervals that are wrong with probability `FALSE_ALARM`, and stated values
may be off by ε (unit scale); what the optimum is, nobody knows there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np
from scipy.optimize import linprog

from surefoot.arrays import Floats
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task
from surefoot.estimates import value_bounds
from surefoot.oracles.interface import CheckOracle, FeasibleOracle, FeasiblePolicy, OptimalOracle, PolicyValues
from surefoot.streams import Stream
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.testing.require import require

EVALUATION = 1e-9
SOLVER = 1e-5
FALSE_ALARM, EPISODES = 1e-6, 4000


def conforms_to_check_oracle(
    oracle: CheckOracle, first: Task, second: Task, epsilon: float, delta: float = 1e-6, seed: int = 0
) -> bool:
    """The answer on a pair, after checking it against the promise and itself; `delta` small enough to demand it."""
    answer = oracle(first, second, epsilon, delta, np.random.default_rng(seed))
    require(isinstance(answer, bool), f"the answer must be True or False, got {answer!r}")
    again = oracle(first, second, epsilon, delta, np.random.default_rng(seed))
    require(answer == again, "the answer is not a function of the generator")
    require(oracle(first, first, epsilon, delta, np.random.default_rng(seed)), "a task is far from itself")
    if isinstance(first, TabularCMDP) and isinstance(second, TabularCMDP):
        gap = reference_distance(first, second)
        require(answer or gap > epsilon, f"tasks at distance {gap} called further than {epsilon}")
        require(not answer or gap <= 2 * epsilon, f"tasks at distance {gap} called closer than {epsilon}")
    return answer


def conforms_to_optimal_oracle(
    oracle: OptimalOracle, task: Task, epsilon: float, delta: float = 0.05, seed: int = 0
) -> PolicyValues:
    """The oracle's answer, after checking it: honest values, relaxed ε-feasible, task untouched; ε-optimal where the
    optimum is known."""
    before = task.digest()
    found = oracle(task, epsilon, delta, np.random.default_rng(seed))
    require(task.digest() == before, "the oracle changed the task")
    _check_values(task, found.policy, found.reward, found.margin, epsilon, seed)
    require((task.units.unit_margin(found.margin) >= -epsilon - EVALUATION).all(), "not relaxed ε-feasible")
    if _endless_table(task):
        best = reference_optimum(task)
        if best is None:
            raise AssertionError("the oracle answered on an infeasible task")
        require(float(task.units.unit_reward_value(found.reward)) >= best - epsilon - SOLVER, "not ε-optimal")
    return found


def conforms_to_feasible_oracle(
    oracle: FeasibleOracle,
    tasks: Sequence[Task],
    xi: float | None,
    delta: float = 0.05,
    seed: int = 0,
    epsilon: float = 0.0,
) -> FeasiblePolicy:
    """The oracle's answer, after checking it: honest values on every task, and ξ-feasible on every task.

    `epsilon` is what the values of tasks that can only be simulated may be off by.
    """
    found = oracle(tasks, xi, delta, np.random.default_rng(seed))
    require(found.reward.shape == (len(tasks),), f"reward must be one number per task, got {found.reward.shape}")
    for task, reward, margin in zip(tasks, found.reward, found.margin, strict=True):
        _check_values(task, found.policy, float(reward), margin, epsilon, seed)
        require((task.units.unit_margin(margin) >= (xi or 0.0) - 2 * EVALUATION).all(), "not ξ-feasible")
    return found


def _endless_table(task: Task) -> TypeGuard[TabularCMDP]:
    return isinstance(task, TabularCMDP) and task.units.horizon is None


def _check_values(task: Task, policy: Policy, reward: float, margin: Floats, epsilon: float, seed: int) -> None:
    """The values that the oracle states are those of its policy."""
    constraints = len(task.units.budget)
    require(margin.shape == (constraints,), f"margin must have shape [{constraints}], got {list(margin.shape)}")
    stated = np.array([reward, *margin])
    if _endless_table(task):
        expected_reward, expected_margin = reference_values(task, tables(policy))
        low = high = np.array([expected_reward, *expected_margin])
        slack = EVALUATION * (np.abs(low) + np.array([1.0, *np.full(constraints, task.units.cost_scale.max())]))
    else:
        steps = task.units.episode_length
        outcomes = task.episodes(policy, steps).run(EPISODES, Stream.SUITE_ORACLE_EPISODES.rng(seed))
        low, high = value_bounds(outcomes, task.units, steps, FALSE_ALARM)
        slack = epsilon * np.array([task.units.reward_scale, *task.units.cost_scale])
    require(
        bool(((stated >= low - slack) & (stated <= high + slack)).all()),
        f"reward and margins lie between {low.tolist()} and {high.tolist()}, the oracle says {stated.tolist()}",
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
