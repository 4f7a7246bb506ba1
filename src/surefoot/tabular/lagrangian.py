"""One-constraint CMDPs by their Lagrangian dual: for tasks too large for the occupancy linear program, and for tasks
with a horizon, where the best response to a price is one backward induction.

The dual function g(λ) = max_π R(π) - λ (C(π) - limit) is convex and piecewise linear in the price λ of cost. Every
deterministic policy is a point (C, R); the answer lies on the edge of their upper hull that crosses the limit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from numpy.typing import ArrayLike, NDArray

from surefoot.arrays import Floats, finite_array
from surefoot.cmdp.task import Values
from surefoot.errors import Infeasible, InvalidInput, SurefootError
from surefoot.tabular.evaluate import evaluate, occupancy, step_visits
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.tables import Tables

# Certified duality gap at which the search for the price stops, relative to the largest state value.
GAP = 1e-10
# What rounding leaves of a reward and a cost that cancel each other, relative to their size: where cost is in
# proportion to reward, all policies tie at one price, and the largest state value is nothing but this.
CANCELLED = 1e-14
# Up to this many states a linear system is solved by factorisation.
DIRECT = 200
# Far more rounds than policy iteration ever takes; the guard against rounding at discounts next to 1.
ROUNDS = 1000
# A discounted number of visits that rounding alone can produce: such states count as never visited.
UNVISITED = 1e-11
# Excess cost, relative to the largest value a cost can reach, below which a budget counts as met.
FEASIBILITY = 1e-11


@dataclass(frozen=True, eq=False)
class Solution:
    """An optimal policy; values and occupancy are recomputed exactly from it, never read off the optimiser."""

    policy: Any  # a TabularPolicy, or for a task with a horizon a TimedPolicy
    values: Values
    dual: Floats  # [m] reward lost per unit of budget taken away, ≥ 0
    occupancy: Floats  # [S, A]


def solve_lagrangian(cmdp: Tables, tighten: ArrayLike = 0.0) -> Solution:
    """Maximise the reward subject to cost ≤ budget - tighten, for a task with one constraint.

    Starting with the richest and the thriftiest policy, take the price of cost at which the two tie and find the best
    response to it. Unless it ties too, which proves that mixing the two is optimal, it replaces the one on its side
    of the limit.

    Raises:
        Infeasible: naming the least achievable cost.
    """
    if cmdp.n_constraints != 1:
        raise InvalidInput(f"solve_lagrangian takes one constraint, this task has {cmdp.n_constraints}: use solve")
    limit = float(spending_limit(cmdp, tighten)[0])
    noise = float(rounding(cmdp)[0])
    rich = _respond(cmdp, (1.0, 0.0))
    if rich.cost <= limit + noise:
        return _solution(cmdp, rich.policy, 0.0)
    thrifty = _respond(cmdp, (0.0, 1.0))
    if thrifty.cost > limit + noise:
        raise infeasible(cmdp, thrifty.policy, tighten)
    while True:
        price = (rich.reward - thrifty.reward) / (rich.cost - thrifty.cost)
        point = _respond(cmdp, (1.0, price), rich, thrifty)
        gap = point.bound - (rich.reward - price * rich.cost)
        if gap <= point.tolerance or rich.cost - thrifty.cost <= noise:
            return _mix(cmdp, rich, thrifty, point, limit)
        if point.cost > max(limit, thrifty.cost):
            rich = point
        else:
            thrifty = point


# -------------------------------------------------------------------------- shared with the linear program


def spending_limit(cmdp: Tables, tighten: ArrayLike) -> Floats:
    """[m] budget - tighten."""
    amount = finite_array("tighten", tighten)
    if amount.shape not in {(), (1,), (cmdp.n_constraints,)}:
        raise InvalidInput(f"tighten must be a number or one per constraint ([{cmdp.n_constraints}]), got {tighten!r}")
    limit: Floats = cmdp.budget - amount
    return limit


def rounding(cmdp: Tables) -> Floats:
    """[m] excess of each cost that counts as none."""
    largest: Floats = np.abs(cmdp.cost).max(axis=(1, 2)) / cmdp.units.rate
    return FEASIBILITY * largest


def infeasible(cmdp: Tables, least: TabularPolicy | TimedPolicy, tighten: ArrayLike) -> Infeasible:
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


def action_shares(visits: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Action probabilities [..., A] of the policy with occupancy `visits`, and which states [...] it never visits.

    There the probabilities are uniform, for the caller to replace.
    """
    visits = np.maximum(visits, 0.0)
    total = visits.sum(axis=-1)
    unvisited = total <= UNVISITED
    visits[unvisited], total[unvisited] = 1.0, visits.shape[-1]
    return visits / total[..., None], unvisited


# ------------------------------------------------------------------------------------- one price, one response


@dataclass(frozen=True, eq=False)
class _Response:
    """A policy optimal for the signal direction[0]·r - direction[1]·c, and the proof of how nearly so."""

    direction: tuple[float, float]
    policy: TabularPolicy | TimedPolicy
    signal_values: Floats  # [S]
    other_values: Floats  # [S] of the cost, or of the reward when the signal is the cost alone
    reward: float
    cost: float
    bound: float  # no policy has a larger value of the signal
    tolerance: float  # differences of the signal's value up to this are not significant


def _respond(cmdp: Tables, direction: tuple[float, float], *between: _Response) -> _Response:
    """The best response to r·direction[0] - c·direction[1], searched from what two others say about it."""
    guess, other_guess = _interpolate(direction, *between) if between else np.zeros((2, cmdp.n_states))
    signal = direction[0] * cmdp.reward - direction[1] * cmdp.cost[0]
    other = cmdp.cost[0] if direction[0] else cmdp.reward
    policy: TabularPolicy | TimedPolicy
    if cmdp.units.horizon is None:
        values, actions, residual = _policy_iteration(cmdp, signal, guess)
        policy = TabularPolicy(np.eye(cmdp.n_actions)[actions])
        other_values = _policy_values(cmdp, actions, other[np.arange(cmdp.n_states), actions], other_guess)
    else:
        policy, values, other_values, residual = *_backward(cmdp, signal, other), 0.0
    value, other_value = float(cmdp.start @ values), float(cmdp.start @ other_values)
    slack = residual / cmdp.units.rate
    return _Response(
        direction,
        policy,
        values,
        other_values,
        reward=value + direction[1] * other_value if direction[0] else other_value,
        cost=other_value if direction[0] else -value,
        bound=value + slack,
        tolerance=max(GAP * _scale(values, signal), 4 * slack, CANCELLED * _size(cmdp, direction)),
    )


def _size(cmdp: Tables, direction: tuple[float, float]) -> float:
    """The largest value that either part of the signal can have by itself."""
    reward, cost = (float(np.abs(table).max()) for table in (cmdp.reward, cmdp.cost[0]))
    return (direction[0] * reward + abs(direction[1]) * cost) / cmdp.units.rate


def _interpolate(direction: tuple[float, float], rich: _Response, thrifty: _Response) -> tuple[Floats, Floats]:
    """Guesses of the signal's and the cost's state values [S] at a price between two known ones.

    The first is an upper bound, for optimal values are convex and homogeneous in the signal.
    """
    x, y = np.linalg.solve(np.array([rich.direction, thrifty.direction]).T, direction)
    thrifty_cost = thrifty.other_values if thrifty.direction[0] else -thrifty.signal_values
    return (
        x * rich.signal_values + y * thrifty.signal_values,
        (x * rich.other_values + y * thrifty_cost) / (x + y),
    )


def _backward(cmdp: Tables, signal: Floats, other: Floats) -> tuple[TimedPolicy, Floats, Floats]:
    """The policy that is best for `signal` on a task with a horizon, and its values [S] of that and of `other`."""
    tables = np.empty((cmdp.units.episode_length, *signal.shape))
    onwards, both = np.zeros((cmdp.n_states, 2)), np.stack([signal, other], axis=2)
    for table in tables[::-1]:
        ahead = both + cmdp.discount * (cmdp.matrix @ onwards).reshape(both.shape)
        table[:] = np.eye(cmdp.n_actions)[ahead[:, :, 0].argmax(axis=1)]
        onwards = np.einsum("sa,sak->sk", table, ahead)
    return TimedPolicy(tables), onwards[:, 0], onwards[:, 1]


def _policy_iteration(cmdp: Tables, signal: Floats, values: Floats) -> tuple[Floats, NDArray[np.intp], float]:
    """State values [S], their greedy actions [S] and Bellman residual, by inexact policy iteration from `values`."""
    states = np.arange(cmdp.n_states)
    for _ in range(ROUNDS):
        ahead = signal + cmdp.discount * (cmdp.rows @ values).reshape(signal.shape)
        actions = ahead.argmax(axis=1)
        change = ahead[states, actions] - values
        residual = float(np.abs(change).max())
        if residual <= _negligible(cmdp) * _scale(values, signal):
            return values, actions, residual
        values = values + _correction(_matrix(cmdp, actions), change, cmdp.discount)
    raise SurefootError(f"policy iteration left a Bellman residual of {residual:g} after {ROUNDS} rounds")


def _policy_values(cmdp: Tables, actions: NDArray[np.intp], signal: Floats, values: Floats) -> Floats:
    """[S] values of a per-state signal [S] under fixed actions, refined from the guess `values`."""
    matrix = _matrix(cmdp, actions)
    for _ in range(ROUNDS):
        residual = signal - matrix @ values
        if np.abs(residual).max() <= _negligible(cmdp) * _scale(values, signal):
            return values
        values = values + _correction(matrix, residual, cmdp.discount)
    raise SurefootError(f"policy evaluation left a residual of {np.abs(residual).max():g} after {ROUNDS} rounds")


def _negligible(cmdp: Tables) -> float:
    """Bellman residual, relative to the values, that is a tenth of the gap once divided by 1-γ; or rounding."""
    return max(0.1 * GAP * (1 - cmdp.discount), 2e-14)


def _scale(values: Floats, signal: Floats) -> float:
    return max(float(np.abs(values).max()), float(np.abs(signal).max()))


def _matrix(cmdp: Tables, actions: NDArray[np.intp]) -> Any:
    """[S, S] I - γP of a deterministic policy, sparse."""
    kernel = cmdp.rows[np.arange(cmdp.n_states) * cmdp.n_actions + actions]
    return (sp.identity(cmdp.n_states, format="csr") - cmdp.discount * kernel).tocsr()


def _correction(matrix: Any, right: Floats, discount: float) -> Floats:
    """About matrix⁻¹ right: by a Krylov method when large, or, where that breaks down, one sweep of the iteration
    x ← right + γPx, which always contracts."""
    if len(right) <= DIRECT:
        return np.linalg.solve(matrix.toarray(), right)
    size = np.linalg.norm(right)  # the breakdown test of bicgstab is absolute
    solution, _ = spla.bicgstab(matrix, right / size, rtol=min(0.01, (1 - discount) / 2), atol=0.0, maxiter=300)
    if np.linalg.norm(right / size - matrix @ solution) < 0.5:
        return np.asarray(size * solution)
    return right


# --------------------------------------------------------------------------------------------------- the answer


def _mix(cmdp: Tables, rich: _Response, thrifty: _Response, point: _Response, limit: float) -> Solution:
    """The policy whose occupancy, of every step if there is a horizon, is the mixture of the two that spends the
    limit."""
    visits = np.stack([_visits(cmdp, thrifty.policy), _visits(cmdp, rich.policy)])
    weight = (limit - thrifty.cost) / (rich.cost - thrifty.cost)
    for _ in range(2):  # the second time if rounding left an excess, aiming below the limit by as much
        weight = min(max(weight, 0.0), 1.0)
        probabilities, unvisited = action_shares(np.tensordot([1 - weight, weight], visits, 1))
        probabilities[unvisited] = point.policy.probabilities[unvisited]
        policy = replace(point.policy, probabilities=probabilities)
        excess = float(evaluate(cmdp, policy).cost[0]) - limit
        if excess <= 0:
            break
        weight -= 2 * excess / (rich.cost - thrifty.cost)
    return _solution(cmdp, policy, point.direction[1])


def _visits(cmdp: Tables, policy: TabularPolicy | TimedPolicy) -> Floats:
    """[S, A] discounted visits, or [H, S, A] probabilities of each step."""
    if isinstance(policy, TabularPolicy):
        return occupancy(cmdp, policy)
    return step_visits(cmdp, policy.probabilities, len(policy.probabilities))[0]


def _solution(cmdp: Tables, policy: TabularPolicy | TimedPolicy, price: float) -> Solution:
    return Solution(policy, evaluate(cmdp, policy), np.array([price]), occupancy(cmdp, policy))
