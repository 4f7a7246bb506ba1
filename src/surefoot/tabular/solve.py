"""Optimal policies of CMDPs by the occupancy linear program, warm-started from task to task.

maximise Σ d·r   over d(s, a) ≥ 0
subject to Σ_a d(s, a) - γ Σ P(s | s', a') d(s', a') = ρ(s)   and   Σ d·cost_i ≤ budget_i - tighten_i

With a horizon H there is a d_t, the probabilities of s and a, for each of the steps t = 0, ..., H-1:

maximise Σ_t γ^t Σ d_t·r   over d_t(s, a) ≥ 0
subject to Σ_a d_0(s, a) = ρ(s),   Σ_a d_t+1(s, a) = Σ P(s | s', a') d_t(s', a')
and Σ_t γ^t Σ d_t·cost_i ≤ budget_i - tighten_i
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.lapack import dgetrf, dgetrs

from surefoot.arrays import Floats, Mask
from surefoot.errors import Infeasible, SurefootError
from surefoot.tabular.evaluate import chain, evaluate, occupancy, solve_discounted
from surefoot.tabular.lagrangian import Solution, action_shares, infeasible, rounding, solve_lagrangian, spending_limit
from surefoot.tabular.linear_program import INFINITY, Optimum, Program, maximise, new_solver, pass_program, run
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.tables import Tables, endless

__all__ = ["LAGRANGIAN_FROM", "OccupancyLP", "Solution", "solve", "solve_many"]

# From this many state-action pairs on, one constraint is cheaper by its Lagrangian dual than by the linear program.
LAGRANGIAN_FROM = 4000

# Up to this many rows a dense factorisation is cheaper than setting up the solver.
CONFIRM_UP_TO = 150

TOLERANCE = 1e-10
DUAL_SIMPLEX, PRIMAL_SIMPLEX = 1, 4  # values of simplex_strategy
OPTIONS: dict[str, Any] = {
    "presolve": "off",
    "solver": "simplex",
    "simplex_scale_strategy": 0,  # the program is built in scale
    "primal_feasibility_tolerance": TOLERANCE,
    "dual_feasibility_tolerance": TOLERANCE,
    "small_matrix_value": 1e-12,
}


def solve(cmdp: Tables, tighten: ArrayLike = 0.0) -> Solution:
    """The policy of largest reward among those with cost ≤ budget - tighten (a number or [m], in the user's units):
    a stationary one, or for a task with a horizon one that looks at the clock.

    Raises:
        Infeasible: no policy does; names the least achievable cost.
    """
    return _solve(OccupancyLP(), cmdp, tighten)


def solve_many(cmdps: Iterable[Tables], tighten: ArrayLike = 0.0) -> list[Solution]:
    """`solve` for every task, each started from the optimal basis of a similar one.

    Raises:
        Infeasible: as for `solve`, and names the task.
    """
    tasks = list(cmdps)
    program = OccupancyLP()
    solutions: dict[int, Solution] = {}
    for k in sorted(range(len(tasks)), key=lambda k: _position(tasks[k])):
        try:
            solutions[k] = _solve(program, tasks[k], tighten)
        except Infeasible as error:
            raise Infeasible(f"cmdps[{k}]: {error}", error.least_cost) from None
    return [solutions[k] for k in range(len(tasks))]


def _solve(program: OccupancyLP, cmdp: Tables, tighten: ArrayLike) -> Solution:
    large = cmdp.units.horizon is not None or cmdp.reward.size >= LAGRANGIAN_FROM
    if cmdp.n_constraints == 1 and large:
        return solve_lagrangian(cmdp, tighten)
    if cmdp.units.horizon is not None:
        return solve_horizon(cmdp, tighten)
    return program.solve(cmdp, tighten)


def _position(cmdp: Tables) -> tuple[Any, ...]:
    """A key that puts similar tasks next to each other, all along a family with one parameter that acts linearly.

    It is the shape, then a fixed irregular projection of the tables.
    """
    tables = (
        cmdp.transitions.data if cmdp.is_sparse else cmdp.transitions.ravel(),
        cmdp.reward.ravel(),
        cmdp.cost.ravel(),
    )
    return *cmdp.cost.shape, sum(float(_irregular(table.size) @ table) for table in tables)


@lru_cache(maxsize=8)
def _irregular(size: int) -> Floats:
    return np.asarray(np.sin(np.arange(1.0, size + 1)))


def _solve_program(
    cmdp: Tables,
    tighten: ArrayLike,
    most_reward: Callable[[Floats, bool], Solution | None],
    least_excess: Callable[[Floats], TabularPolicy | TimedPolicy],
) -> Solution:
    """The best policy within budget - tighten by a linear program that is solved again where rounding asks for it.

    Args:
        most_reward: the solution of the program with cost ≤ limit [m], and whether one was tried before; None if the
            solver finds none.
        least_excess: the policy that minimises t where cost_i ≤ limit_i + t for every i.
    """
    limit = spending_limit(cmdp, tighten)
    found = most_reward(limit, False)
    if found is None:
        # No verdict of the solver is trusted here: the least excess over the limit, exactly evaluated, decides.
        least = least_excess(limit)
        achievable = evaluate(cmdp, least).cost
        if np.any(achievable > limit + rounding(cmdp)):
            raise infeasible(cmdp, least, tighten)
        found = most_reward(np.maximum(limit, achievable), True)
    if found is None:
        raise SurefootError(f"HiGHS could not solve the occupancy linear program of {cmdp}")
    excess = np.maximum(found.values.cost - limit, 0.0)
    if np.any(excess > rounding(cmdp)):  # steps and discounts next to 1 magnify the solver's tolerance: aim lower, once
        found = most_reward(limit - 2 * excess, True) or found
    return found


def _units(cmdp: Tables) -> tuple[float, Floats]:
    """What rewards and costs [m] are divided by, so that they are at most 1 in size."""
    cost_unit = np.abs(cmdp.cost).max(axis=(1, 2))
    cost_unit[cost_unit == 0] = 1.0
    return float(np.abs(cmdp.reward).max()) or 1.0, cost_unit


# ------------------------------------------------------------------------------------------------- without a horizon


class OccupancyLP:
    """The linear program of one task after another; keeps the solver, the sparsity pattern and the last basis."""

    def __init__(self) -> None:
        self._highs = new_solver(**OPTIONS)
        self._pattern: _Pattern | None = None
        self._basis: Any = None
        self._basic: NDArray[np.intp] | None = None  # the columns of the basis, slacks counted after the others

    def solve(self, cmdp: Tables, tighten: ArrayLike = 0.0) -> Solution:
        """As the function `solve`, always by the linear program."""
        endless(cmdp, "this linear program")
        return _solve_program(cmdp, tighten, partial(self._most_reward, cmdp), partial(self._least_excess, cmdp))

    def _most_reward(self, cmdp: Tables, limit: Floats, again: bool) -> Solution | None:
        program = self._program(cmdp, limit)
        if again:
            optimum = self._optimise(program, self._basis, PRIMAL_SIMPLEX)
        else:
            optimum = self._confirm(program) or self._optimise(program, self._basis)
        return None if optimum is None else _solution(cmdp, optimum)

    def _program(self, cmdp: Tables, limit: Floats) -> Program:
        """The program of `cmdp`, with rewards and costs scaled to at most 1."""
        pattern = self._pattern
        if pattern is None or pattern.shape != cmdp.cost.shape:
            pattern, self._basis, self._basic = _pattern(cmdp), None, None
        elif not pattern.holds(cmdp):  # another sparsity, but the last basis is still a good guess
            pattern = _pattern(cmdp)
        self._pattern = pattern
        reward_unit, cost_unit = _units(cmdp)
        entries = pattern.diagonal.copy()
        entries[pattern.transition_at] -= cmdp.discount * pattern.read(cmdp)
        entries[pattern.cost_at] = cmdp.cost.reshape(cmdp.n_constraints, -1) / cost_unit[:, None]
        return Program(
            objective=cmdp.reward.ravel() / reward_unit,
            column_lower=np.zeros(len(pattern.starts)),
            column_upper=np.full(len(pattern.starts), INFINITY),
            row_lower=np.concatenate([cmdp.start, np.full(len(limit), -INFINITY)]),
            row_upper=np.concatenate([cmdp.start, limit / cost_unit]),
            starts=pattern.starts,
            rows=pattern.rows,
            entries=entries,
        )

    def _confirm(self, program: Program) -> Optimum | None:
        """The optimum if the last basis is optimal here too, by one dense factorisation; else None.

        So it is for most neighbours in a family, and this takes a third of the time of setting the solver up.
        """
        if self._basic is None or self._pattern is None:
            return None
        height, width = len(program.row_upper), len(program.objective)
        matrix = np.zeros((height, width + height))
        matrix[program.rows, self._pattern.columns] = program.entries
        matrix[np.arange(height), np.arange(width, width + height)] = 1.0
        objective = np.concatenate([program.objective, np.zeros(height)])
        factors, pivots, singular = dgetrf(matrix[:, self._basic])
        if singular:
            return None
        basic_values, _ = dgetrs(factors, pivots, program.row_upper)
        multipliers, _ = dgetrs(factors, pivots, objective[self._basic], trans=1)
        gain = objective - multipliers @ matrix
        values = np.zeros(width + height)
        values[self._basic] = basic_values
        equations = slice(width, width + self._pattern.shape[1])  # the flow rows: slacks zero, multipliers free
        gain[equations] = np.abs(values[equations])
        optimal = values.min() >= -TOLERANCE and gain.max() <= TOLERANCE  # False for NaN too
        return (values[:width], multipliers) if optimal else None

    def _optimise(self, program: Program, basis: Any = None, strategy: int = DUAL_SIMPLEX) -> Optimum | None:
        """Run the solver, from `basis` if given; None if it finds no optimum.

        A basis is a policy, whose occupancy is non-negative on every task: a start for the primal simplex.
        """
        self._highs.setOptionValue("simplex_strategy", strategy if basis is None else PRIMAL_SIMPLEX)
        pass_program(self._highs, program)
        if basis is not None:
            self._highs.setBasis(basis)
        found = run(self._highs)
        if found is None:
            return None
        self._basis = self._highs.getBasis()
        self._basic = None
        if len(program.row_upper) <= CONFIRM_UP_TO:
            variables = np.asarray(self._highs.getBasicVariables()[1])  # a row's slack is -1 - row
            self._basic = np.where(variables >= 0, variables, len(program.objective) - 1 - variables)
        return found

    def _least_excess(self, cmdp: Tables, limit: Floats) -> TabularPolicy:
        """The policy that minimises t where cost_i ≤ limit_i + t for every i."""
        relaxed = _with_excess(self._program(cmdp, limit), _row_prices(cmdp)[cmdp.n_states :])
        optimum = self._optimise(relaxed) or self._optimise(relaxed, strategy=PRIMAL_SIMPLEX)
        self._basis = self._basic = None
        if optimum is None:
            raise SurefootError(f"HiGHS could not find the least cost of {cmdp}")
        return TabularPolicy(action_shares(optimum[0][:-1].reshape(cmdp.reward.shape))[0])


@dataclass(frozen=True, eq=False)
class _Pattern:
    """Where the numbers of a task go in the column-wise matrix of its program; column s·A + a is d(s, a)."""

    shape: tuple[int, ...]  # (m, S, A)
    source: tuple[NDArray[Any], ...]  # where the transitions lie in the task: flat places, or CSR structure
    starts: NDArray[np.int32]  # [S·A] first entry of each column
    rows: NDArray[np.int32]  # row of each entry
    columns: NDArray[np.intp]  # column of each entry
    diagonal: Floats  # 1 at the entries of row s in column (s, a), else 0
    transition_at: NDArray[np.intp]  # entry of each transition
    cost_at: NDArray[np.intp]  # [m, S·A] entry of each cost

    def holds(self, cmdp: Tables) -> bool:
        """Whether every transition of `cmdp`, of the same shape, has its place."""
        if cmdp.is_sparse != (len(self.source) == 2):
            return False
        if cmdp.is_sparse:
            structure = (cmdp.transitions.indptr, cmdp.transitions.indices)
            return all(map(np.array_equal, self.source, structure))
        return int(np.count_nonzero(self.read(cmdp))) == int(np.count_nonzero(cmdp.transitions))

    def read(self, cmdp: Tables) -> Floats:
        """The transition probabilities in the order of `transition_at`."""
        return np.asarray(cmdp.transitions.data if cmdp.is_sparse else cmdp.transitions.ravel()[self.source[0]])


def _pattern(cmdp: Tables) -> _Pattern:
    m, states, actions = cmdp.cost.shape
    pairs = np.arange(states * actions)
    source: tuple[NDArray[Any], ...]
    if cmdp.is_sparse:
        source = (cmdp.transitions.indptr, cmdp.transitions.indices)
        column, row = np.repeat(pairs, np.diff(source[0])), source[1]
    else:
        source = (np.flatnonzero(cmdp.transitions),)
        column, row = np.divmod(source[0], states)
    stays = row == column // actions
    absent = np.setdiff1d(pairs, column[stays])
    columns = np.concatenate([column, absent, np.tile(pairs, m)])
    rows = np.concatenate([row, absent // actions, np.repeat(np.arange(states, states + m), len(pairs))])
    order = np.argsort(columns, kind="stable")
    entry = np.empty_like(order)
    entry[order] = np.arange(len(order))
    transition_at, absent_at, cost_at = np.split(entry, [len(column), len(column) + len(absent)])
    diagonal = np.zeros(len(order))
    diagonal[transition_at[stays]] = diagonal[absent_at] = 1.0
    return _Pattern(
        cmdp.cost.shape,
        source,
        np.searchsorted(columns[order], pairs).astype(np.int32),
        rows[order].astype(np.int32),
        columns[order],
        diagonal,
        transition_at,
        cost_at.reshape(m, -1),
    )


def _with_excess(program: Program, per_unit: Floats) -> Program:
    """`program` with one more column t, free, that relaxes every cost row by t in the user's units; minimise t.

    `per_unit` [m] is the user's reward per unit of each cost row's multiplier.
    """
    constraints = len(per_unit)
    flow_rows = len(program.row_lower) - constraints
    return replace(
        program,
        objective=np.append(np.zeros(len(program.objective)), -1.0),
        column_lower=np.append(program.column_lower, -INFINITY),
        column_upper=np.append(program.column_upper, INFINITY),
        starts=np.append(program.starts, np.int32(len(program.entries))),
        rows=np.append(program.rows, np.arange(flow_rows, flow_rows + constraints, dtype=np.int32)),
        entries=np.append(program.entries, -per_unit / per_unit.max()),
    )


def _row_prices(cmdp: Tables) -> Floats:
    """[S + m] the user's reward per unit of each row's multiplier."""
    reward_unit, cost_unit = _units(cmdp)
    return np.concatenate([np.full(cmdp.n_states, reward_unit), reward_unit / cost_unit])


def _solution(cmdp: Tables, optimum: Optimum) -> Solution:
    visits, multipliers = optimum
    prices = multipliers * _row_prices(cmdp)
    dual = np.maximum(prices[cmdp.n_states :], 0.0)
    policy = _policy(cmdp, visits, dual, prices[: cmdp.n_states])
    return Solution(policy, evaluate(cmdp, policy), dual, occupancy(cmdp, policy))


def _policy(cmdp: Tables, visits: Floats, dual: Floats, values: Floats) -> TabularPolicy:
    """The policy with occupancy `visits` [S·A]; where it never goes, greedy for r - dual·c from `values` [S] on."""
    probabilities, unvisited = action_shares(visits.reshape(cmdp.reward.shape))
    if unvisited.any():
        signal = cmdp.reward - np.tensordot(dual, cmdp.cost, 1)
        one_hot = np.eye(cmdp.n_actions)
        # The multipliers of unvisited states only bound their values from above, hence the policy iteration.
        ahead, worse = _ahead(cmdp, signal, values), unvisited
        while worse.any():
            probabilities[worse] = one_hot[ahead[worse].argmax(axis=1)]
            expected = (probabilities * signal).sum(axis=1, keepdims=True)
            values = solve_discounted(chain(cmdp, probabilities), expected, cmdp.discount)[:, 0]
            ahead = _ahead(cmdp, signal, values)
            worse = unvisited & (ahead.max(axis=1) > values + 1e-9 * (np.abs(values).max() + np.abs(signal).max()))
    return TabularPolicy(probabilities)


def _ahead(cmdp: Tables, signal: Floats, values: Floats) -> Floats:
    """[S, A] signal now plus values [S] one step later."""
    ahead: Floats = signal + cmdp.discount * (cmdp.transitions @ values).reshape(signal.shape)
    return ahead


# --------------------------------------------------------------------------------------------------- with a horizon


def solve_horizon(cmdp: Tables, tighten: ArrayLike = 0.0) -> Solution:
    """`solve` for a task with a horizon, always by the linear program."""
    program = _StepProgram(cmdp)
    return _solve_program(cmdp, tighten, program.most_reward, program.least_excess)


class _StepProgram:
    """The program of one task, with rewards and costs scaled to at most 1."""

    def __init__(self, cmdp: Tables) -> None:
        self.cmdp, self.steps = cmdp, cmdp.units.episode_length
        S, A, H = cmdp.n_states, cmdp.n_actions, self.steps
        self.weights = cmdp.discount ** np.arange(H)
        self.reward_unit, self.cost_unit = _units(cmdp)
        leaving = sp.kron(sp.eye_array(H), sp.kron(sp.eye_array(S), np.ones((1, A))))
        arriving = sp.kron(sp.eye_array(H, k=-1), cmdp.rows.T)
        costs = np.kron(self.weights, cmdp.cost.reshape(cmdp.n_constraints, -1) / self.cost_unit[:, None])
        self.matrix = sp.csc_array(sp.vstack([leaving - arriving, sp.csr_array(costs)]))
        self.start = np.concatenate([cmdp.start, np.zeros((H - 1) * S)])

    def most_reward(self, limit: Floats, again: bool = False) -> Solution | None:
        objective = np.kron(self.weights, self.cmdp.reward.ravel() / self.reward_unit)
        found = self._maximise(objective, np.zeros(len(objective)), self.matrix, limit)
        return None if found is None else self._solution(*found)

    def least_excess(self, limit: Floats) -> TimedPolicy:
        """The policy that minimises t where cost_i ≤ limit_i + t for every i: one more column, free."""
        columns = self.matrix.shape[1]
        relief = np.concatenate([np.zeros(len(self.start)), -self.cost_unit.min() / self.cost_unit])
        found = self._maximise(
            np.append(np.zeros(columns), -1.0),
            np.append(np.zeros(columns), -INFINITY),
            sp.csc_array(sp.hstack([self.matrix, sp.csc_array(relief[:, None])])),
            limit,
        )
        if found is None:
            raise SurefootError(f"HiGHS could not find the least cost of {self.cmdp}")
        return TimedPolicy(self._shares(found[0][:-1])[0])

    def _maximise(self, objective: Floats, lower: Floats, matrix: sp.csc_array, limit: Floats) -> Optimum | None:
        return maximise(
            objective,
            matrix,
            np.concatenate([self.start, np.full(len(limit), -INFINITY)]),
            np.concatenate([self.start, limit / self.cost_unit]),
            column_lower=lower,
            primal_feasibility_tolerance=TOLERANCE,
            dual_feasibility_tolerance=TOLERANCE,
        )

    def _solution(self, visits: Floats, multipliers: Floats) -> Solution:
        dual = np.maximum(multipliers[len(self.start) :] * self.reward_unit / self.cost_unit, 0.0)
        policy = self._policy(visits, dual)
        return Solution(policy, evaluate(self.cmdp, policy), dual, occupancy(self.cmdp, policy))

    def _policy(self, visits: Floats, dual: Floats) -> TimedPolicy:
        """The policy with occupancy `visits` [H·S·A]; where it never goes, greedy for r - dual·c from there on."""
        cmdp = self.cmdp
        probabilities, unvisited = self._shares(visits)
        signal = cmdp.reward - np.tensordot(dual, cmdp.cost, 1)
        onwards = np.zeros(cmdp.n_states)
        for table, never in zip(probabilities[::-1], unvisited[::-1], strict=True):
            ahead = signal + cmdp.discount * (cmdp.matrix @ onwards).reshape(signal.shape)
            table[never] = np.eye(cmdp.n_actions)[ahead[never].argmax(axis=1)]
            onwards = (table * ahead).sum(axis=1)
        return TimedPolicy(probabilities)

    def _shares(self, visits: Floats) -> tuple[Floats, Mask]:
        """Action probabilities [H, S, A], and which states [H, S] are never visited at each step."""
        shape = (self.steps, *self.cmdp.reward.shape)
        return action_shares(visits.reshape(shape))
