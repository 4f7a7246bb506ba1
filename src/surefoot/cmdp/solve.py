"""Optimal policies of CMDPs: the occupancy linear program, warm-started from task to task.

maximise Σ d·r   over d(s, a) ≥ 0
subject to Σ_a d(s, a) - γ Σ P(s | s', a') d(s', a') = ρ(s)   and   Σ d·cost_i ≤ budget_i - tighten_i
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import highspy
import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.cmdp.evaluate import evaluate, occupancy, solve_discounted
from surefoot.cmdp.lagrangian import (
    Solution,
    action_shares,
    infeasible,
    rounding,
    solve_lagrangian,
    spending_limit,
)
from surefoot.cmdp.model import Floats, TabularCMDP
from surefoot.cmdp.policy import TabularPolicy
from surefoot.errors import SurefootError

__all__ = ["OccupancyLP", "Solution", "solve", "solve_many"]

# From this many state-action pairs on, one constraint is cheaper by its Lagrangian dual than by the linear program.
LAGRANGIAN_FROM = 4000

DUAL_SIMPLEX, PRIMAL_SIMPLEX = 1, 4  # values of simplex_strategy
OPTIONS: dict[str, Any] = {
    "output_flag": False,
    "presolve": "off",
    "solver": "simplex",
    "threads": 1,
    "simplex_scale_strategy": 0,  # the program is built in scale
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
    "small_matrix_value": 1e-12,
}


def solve(cmdp: TabularCMDP, tighten: ArrayLike = 0.0) -> Solution:
    """The policy of largest reward among those with cost ≤ budget - tighten (a number or [m], in the user's units).

    Raises:
        Infeasible: no policy does; names the least achievable cost.
    """
    return solve_many([cmdp], tighten)[0]


def solve_many(cmdps: Iterable[TabularCMDP], tighten: ArrayLike = 0.0) -> list[Solution]:
    """`solve` for every task, each started from the optimal basis of the one before."""
    program = OccupancyLP()
    return [
        solve_lagrangian(cmdp, tighten) if _suits_lagrangian(cmdp) else program.solve(cmdp, tighten) for cmdp in cmdps
    ]


def _suits_lagrangian(cmdp: TabularCMDP) -> bool:
    return cmdp.n_constraints == 1 and cmdp.n_states * cmdp.n_actions >= LAGRANGIAN_FROM


class OccupancyLP:
    """The linear program of one task after another; keeps the solver, the sparsity pattern and the last basis."""

    def __init__(self) -> None:
        self._highs = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, value in OPTIONS.items():
            self._highs.setOptionValue(name, value)
        self._pattern: _Pattern | None = None
        self._basis: Any = None

    def solve(self, cmdp: TabularCMDP, tighten: ArrayLike = 0.0) -> Solution:
        """As the function `solve`, always by the linear program."""
        limit = spending_limit(cmdp, tighten)
        program = self._program(cmdp, limit)
        if not self._optimise(program, self._basis):
            # No verdict of the solver is trusted here: the least excess over the limit, exactly evaluated, decides.
            least = self._least_excess(cmdp, program)
            achievable = evaluate(cmdp, least).cost
            if np.any(achievable > limit + rounding(cmdp)):
                raise infeasible(cmdp, least, tighten)
            program = self._program(cmdp, np.maximum(limit, achievable))
            if not self._optimise(program, strategy=PRIMAL_SIMPLEX):
                raise SurefootError(f"HiGHS could not solve the occupancy linear program of {cmdp}")
        self._basis = self._highs.getBasis()
        result = self._highs.getSolution()
        prices = np.array(result.row_dual) * program.row_price
        dual = np.maximum(prices[cmdp.n_states :], 0.0)
        policy = _policy(cmdp, np.array(result.col_value), dual, prices[: cmdp.n_states])
        return Solution(policy, evaluate(cmdp, policy), dual, occupancy(cmdp, policy))

    def _program(self, cmdp: TabularCMDP, limit: Floats) -> _Program:
        """The program of `cmdp`, with rewards and costs scaled to at most 1."""
        if self._pattern is None or self._pattern.shape != cmdp.cost.shape:
            self._pattern, self._basis = _pattern(cmdp), None
        elif not self._pattern.holds(cmdp):  # another sparsity, but the last basis is still a good guess
            self._pattern = _pattern(cmdp)
        reward_unit = float(np.abs(cmdp.reward).max()) or 1.0
        cost_unit = np.abs(cmdp.cost).max(axis=(1, 2))
        cost_unit[cost_unit == 0] = 1.0
        entries = self._pattern.diagonal.copy()
        entries[self._pattern.transition_at] -= cmdp.discount * self._pattern.read(cmdp)
        entries[self._pattern.cost_at] = cmdp.cost.reshape(cmdp.n_constraints, -1) / cost_unit[:, None]
        return _Program(
            objective=cmdp.reward.ravel() / reward_unit,
            column_lower=self._pattern.zeros,
            row_lower=np.concatenate([cmdp.start, np.full(len(limit), -highspy.kHighsInf)]),
            row_upper=np.concatenate([cmdp.start, limit / cost_unit]),
            starts=self._pattern.starts,
            rows=self._pattern.rows,
            entries=entries,
            row_price=np.concatenate([np.full(cmdp.n_states, reward_unit), reward_unit / cost_unit]),
        )

    def _optimise(self, program: _Program, basis: Any = None, strategy: int = DUAL_SIMPLEX) -> bool:
        """Run the solver, from `basis` if given; whether it found an optimum."""
        self._highs.setOptionValue("simplex_strategy", strategy)
        self._highs.passModel(*program.arguments())
        if basis is not None:
            self._highs.setBasis(basis)
        self._highs.run()
        return bool(self._highs.getModelStatus() == highspy.HighsModelStatus.kOptimal)

    def _least_excess(self, cmdp: TabularCMDP, program: _Program) -> TabularPolicy:
        """The policy that minimises t where cost_i ≤ limit_i + t for every i."""
        relaxed = _with_excess(program, cmdp.n_constraints)
        if not (self._optimise(relaxed) or self._optimise(relaxed, strategy=PRIMAL_SIMPLEX)):
            raise SurefootError(f"HiGHS could not find the least cost of {cmdp}")
        visits = np.array(self._highs.getSolution().col_value)[:-1]
        return TabularPolicy(action_shares(visits.reshape(cmdp.reward.shape))[0])


# ------------------------------------------------------------------------------------------- the program as arrays


@dataclass(frozen=True, eq=False)
class _Pattern:
    """Where the numbers of a task go in the column-wise matrix of its program; column s·A + a is d(s, a)."""

    shape: tuple[int, ...]  # (m, S, A)
    source: tuple[NDArray[Any], ...]  # where the transitions lie in the task: flat places, or CSR structure
    starts: NDArray[np.int32]  # [S·A] first entry of each column
    rows: NDArray[np.int32]  # row of each entry
    diagonal: Floats  # 1 at the entries of row s in column (s, a), else 0
    transition_at: NDArray[np.intp]  # entry of each transition
    cost_at: NDArray[np.intp]  # [m, S·A] entry of each cost
    zeros: Floats  # [S·A]

    def holds(self, cmdp: TabularCMDP) -> bool:
        """Whether every transition of `cmdp`, of the same shape, has its place."""
        if cmdp.is_sparse != (len(self.source) == 2):
            return False
        if cmdp.is_sparse:
            structure = (cmdp.transitions.indptr, cmdp.transitions.indices)
            return all(map(np.array_equal, self.source, structure))
        return np.count_nonzero(self.read(cmdp)) == np.count_nonzero(cmdp.transitions)

    def read(self, cmdp: TabularCMDP) -> Floats:
        """The transition probabilities in the order of `transition_at`."""
        return np.asarray(cmdp.transitions.data if cmdp.is_sparse else cmdp.transitions.ravel()[self.source[0]])


def _pattern(cmdp: TabularCMDP) -> _Pattern:
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
        diagonal,
        transition_at,
        cost_at.reshape(m, -1),
        np.zeros(len(pairs)),
    )


@dataclass(frozen=True, eq=False)
class _Program:
    """maximise objective·x, column_lower ≤ x, row_lower ≤ matrix·x ≤ row_upper."""

    objective: Floats  # [columns]
    column_lower: Floats  # [columns]
    row_lower: Floats  # [rows]
    row_upper: Floats  # [rows]
    starts: NDArray[np.int32]  # [columns]
    rows: NDArray[np.int32]  # [entries]
    entries: Floats  # [entries]
    row_price: Floats  # [rows] the user's reward per unit of each row's multiplier

    def arguments(self) -> tuple[Any, ...]:
        """What Highs.passModel takes."""
        columns = len(self.objective)
        return (
            *(columns, len(self.row_lower), len(self.entries)),
            *(int(highspy.MatrixFormat.kColwise), int(highspy.ObjSense.kMaximize), 0.0, self.objective),
            *(self.column_lower, np.full(columns, highspy.kHighsInf), self.row_lower, self.row_upper),
            *(self.starts, self.rows, self.entries, np.zeros(columns, dtype=np.int32)),
        )


def _with_excess(program: _Program, constraints: int) -> _Program:
    """`program` with one more column t, free, that relaxes every cost row by t in the user's units; minimise t."""
    flow_rows = len(program.row_lower) - constraints
    per_unit = program.row_price[flow_rows:]
    return replace(
        program,
        objective=np.append(np.zeros(len(program.objective)), -1.0),
        column_lower=np.append(program.column_lower, -highspy.kHighsInf),
        starts=np.append(program.starts, np.int32(len(program.entries))),
        rows=np.append(program.rows, np.arange(flow_rows, flow_rows + constraints, dtype=np.int32)),
        entries=np.append(program.entries, -per_unit / per_unit.max()),
    )


# ------------------------------------------------------------------------------------------------------ the policy


def _policy(cmdp: TabularCMDP, visits: Floats, dual: Floats, values: Floats) -> TabularPolicy:
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
            values = solve_discounted(cmdp.kernel(probabilities), expected, cmdp.discount)[:, 0]
            ahead = _ahead(cmdp, signal, values)
            worse = unvisited & (ahead.max(axis=1) > values + 1e-9 * (np.abs(values).max() + np.abs(signal).max()))
    return TabularPolicy(probabilities)


def _ahead(cmdp: TabularCMDP, signal: Floats, values: Floats) -> Floats:
    """[S, A] signal now plus values [S] one step later."""
    ahead: Floats = signal + cmdp.discount * (cmdp.transitions @ values).reshape(signal.shape)
    return ahead
