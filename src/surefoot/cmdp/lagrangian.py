"""One-constraint CMDPs by their Lagrangian dual: for tasks too large for the occupancy linear program.

The dual function g(λ) = max_π R(π) - λ (C(π) - limit) is convex and piecewise linear in the price λ of cost. Every
deterministic policy is a point (C, R); the answer lies on the edge of their upper hull that crosses the limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from numpy.typing import ArrayLike, NDArray

from surefoot.cmdp.evaluate import Values, evaluate, occupancy, solve_discounted
from surefoot.cmdp.model import Floats, TabularCMDP, finite_array
from surefoot.cmdp.policy import TabularPolicy
from surefoot.errors import Infeasible, InvalidInput, SurefootError

# Certified duality gap at which the search for the price stops, relative to the largest state value.
GAP = 1e-10
# Share of the gap that policy iteration may leave; what remains is enough to tell a better policy from an equal one.
SLACK = 0.1
# A discounted number of visits that rounding alone can produce: such states count as never visited.
RTOL = 0.01
UNVISITED = 1e-11
# Excess cost, relative to the largest value a cost can reach, below which a budget counts as met.
FEASIBILITY = 1e-11


@dataclass(frozen=True, eq=False)
class Solution:
    """An optimal policy; values and occupancy are recomputed exactly from it, never read off the optimiser."""

    policy: TabularPolicy
    values: Values
    dual: Floats  # [m] reward lost per unit of budget taken away, ≥ 0
    occupancy: Floats  # [S, A]


def solve_lagrangian(cmdp: TabularCMDP, tighten: ArrayLike = 0.0) -> Solution:
    """Maximise the reward subject to cost ≤ budget - tighten, for a task with one constraint.

    Starting from the richest and the thriftiest policy, respond to the price at which the two Lagrangians tie; the
    response replaces the one on its side of the limit, until no response beats the tie by more than the gap.

    Raises:
        Infeasible: naming the least achievable cost.
    """
    if cmdp.n_constraints != 1:
        raise InvalidInput(f"solve_lagrangian takes one constraint, this task has {cmdp.n_constraints}: use solve")
    limit = float(spending_limit(cmdp, tighten)[0])
    rich = _respond(cmdp, (1.0, 0.0), np.zeros(cmdp.n_states))
    if rich.cost <= limit:
        return _solution(cmdp, rich.policy, 0.0)
    thrifty = _respond(cmdp, (0.0, 1.0), np.zeros(cmdp.n_states))
    if thrifty.cost > limit + FEASIBILITY * np.abs(cmdp.cost).max() / (1 - cmdp.discount):
        raise infeasible(cmdp, thrifty.policy, tighten)
    while True:
        price = (rich.reward - thrifty.reward) / (rich.cost - thrifty.cost)
        point = _respond(cmdp, (1.0, price), _interpolate(rich, thrifty, price))
        gap = point.bound - (rich.reward - price * rich.cost)
        if gap <= point.tolerance:
            return _mix(cmdp, rich, thrifty, point, limit, price)
        if point.cost > limit:
            rich = point
        else:
            thrifty = point


# -------------------------------------------------------------------------- shared with the linear program


def spending_limit(cmdp: TabularCMDP, tighten: ArrayLike) -> Floats:
    """[m] budget - tighten."""
    amount = finite_array("tighten", tighten)
    if amount.shape not in {(), (1,), (cmdp.n_constraints,)}:
        raise InvalidInput(f"tighten must be a number or one per constraint ([{cmdp.n_constraints}]), got {tighten!r}")
    limit: Floats = cmdp.budget - amount
    return limit


def infeasible(cmdp: TabularCMDP, least: TabularPolicy, tighten: ArrayLike) -> Infeasible:
    """The error for a task whose worst excess is smallest under the policy `least`."""
    cost, limit = evaluate(cmdp, least).cost, spending_limit(cmdp, tighten)
    budget = _show(cmdp.budget)
    if np.any(limit != cmdp.budget):
        budget = f"{_show(limit)} (budget {budget} tightened by {_show(cmdp.budget - limit)})"
    what = "the least achievable cost is" if len(cost) == 1 else "the policy with the smallest worst excess costs"
    return Infeasible(f"no policy keeps the cost within {budget}: {what} {_show(cost)}", cost)


def _show(numbers: Floats) -> str:
    text = [f"{number:.10g}" for number in numbers]
    return text[0] if len(text) == 1 else f"[{', '.join(text)}]"


# ------------------------------------------------------------------------------------- one price, one response


@dataclass(frozen=True, eq=False)
class _Response:
    """A policy optimal for the signal direction[0]·r - direction[1]·c, and the proof of how nearly so."""

    direction: tuple[float, float]
    state_values: Floats  # [S] of the signal
    policy: TabularPolicy
    reward: float
    cost: float
    bound: float  # no policy has a larger value of the signal
    tolerance: float  # gap at which a value of the signal counts as optimal


def _respond(cmdp: TabularCMDP, direction: tuple[float, float], guess: Floats) -> _Response:
    signal = direction[0] * cmdp.reward - direction[1] * cmdp.cost[0]
    values, actions, residual = _policy_iteration(cmdp, signal, guess)
    policy = TabularPolicy(np.eye(cmdp.n_actions)[actions])
    exact = evaluate(cmdp, policy)
    slack = residual / (1 - cmdp.discount)
    scale = max(float(np.abs(values).max()), float(np.abs(signal).max()))
    return _Response(
        direction,
        values,
        policy,
        exact.reward,
        float(exact.cost[0]),
        float(cmdp.start @ values) + slack,
        max(GAP * scale, 4 * slack),
    )


def _interpolate(rich: _Response, thrifty: _Response, price: float) -> Floats:
    """[S] state values at a price between two known ones: an upper bound, for optimal values are convex and
    homogeneous in the signal, and close to it near the end of the search."""
    x, y = np.linalg.solve(np.array([rich.direction, thrifty.direction]).T, [1.0, price])
    return np.asarray(x * rich.state_values + y * thrifty.state_values)


def _policy_iteration(cmdp: TabularCMDP, signal: Floats, values: Floats) -> tuple[Floats, NDArray[np.intp], float]:
    """State values [S] with Bellman residual, and the greedy actions [S], by inexact policy iteration from `values`.

    Each policy is evaluated only to a tenth of the residual that remains, by a Krylov method; once that stops paying,
    exactly, which is plain policy iteration and ends by itself.
    """
    states = np.arange(cmdp.n_states)
    for _ in range(1000):
        ahead = signal + cmdp.discount * (cmdp.transitions @ values).reshape(signal.shape)
        actions = ahead.argmax(axis=1)
        change = ahead[states, actions] - values
        residual = float(np.abs(change).max())
        scale = max(float(np.abs(values).max()), float(np.abs(signal).max()))
        if residual <= max(SLACK * GAP * (1 - cmdp.discount), 2e-14) * scale:
            return values, actions, residual
        values = values + _evaluate_change(_rows_of(cmdp, actions), change, cmdp.discount)
    raise SurefootError


def _rows_of(cmdp: TabularCMDP, actions: NDArray[np.intp]) -> Any:
    """[S, S] chain of a deterministic policy."""
    states = np.arange(cmdp.n_states)
    return cmdp.transitions[states * cmdp.n_actions + actions] if cmdp.is_sparse else cmdp.transitions[states, actions]


def _evaluate_change(kernel: Any, change: Floats, discount: float) -> Floats:
    if not sp.issparse(kernel):
        return solve_discounted(kernel, change[:, None], discount)[:, 0]
    length = np.linalg.norm(change)
    matrix = (sp.identity(kernel.shape[0], format="csr") - discount * kernel).tocsr()
    solution, _ = spla.bicgstab(matrix, change / length, rtol=RTOL, atol=0.0, maxiter=200)
    if np.linalg.norm(change / length - matrix @ solution) < 0.5:
        return np.asarray(length * solution)
    return change


# --------------------------------------------------------------------------------------------------- the answer


def _mix(
    cmdp: TabularCMDP, rich: _Response, thrifty: _Response, point: _Response, limit: float, price: float
) -> Solution:
    """The stationary policy whose occupancy is the mixture of the two that spends the limit."""
    weight = (limit - thrifty.cost) / (rich.cost - thrifty.cost)
    for _ in range(2):  # once more if rounding left an excess, aiming below the limit by twice that
        weight = min(max(weight, 0.0), 1.0)
        visits = weight * occupancy(cmdp, rich.policy) + (1 - weight) * occupancy(cmdp, thrifty.policy)
        solution = _solution(cmdp, policy_of(visits, point.policy.probabilities), price)
        excess = solution.values.cost[0] - limit
        if excess <= 0:
            break
        weight -= 2 * excess / (rich.cost - thrifty.cost)
    return solution


def policy_of(visits: Floats, elsewhere: Floats) -> TabularPolicy:
    """The policy with occupancy `visits` [S, A], following `elsewhere` [S, A] in states it never visits."""
    visits = np.maximum(visits, 0.0)
    total = visits.sum(axis=1, keepdims=True)
    return TabularPolicy(np.where(total > UNVISITED, visits / np.maximum(total, UNVISITED), elsewhere))


def _solution(cmdp: TabularCMDP, policy: TabularPolicy, price: float) -> Solution:
    return Solution(policy, evaluate(cmdp, policy), np.array([price]), occupancy(cmdp, policy))
