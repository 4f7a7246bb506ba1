"""Exact values and occupancy measures of tabular policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from scipy.linalg import lu_factor, lu_solve
from scipy.sparse.csgraph import reverse_cuthill_mckee

from surefoot.arrays import Floats
from surefoot.cmdp.policy import EpisodeMixture
from surefoot.cmdp.task import Values
from surefoot.tabular.policy import PolicyLike, TabularPolicy, TimedPolicy, as_tables
from surefoot.tabular.tables import Tables, policy_transitions

# Below this many states a dense factorisation is faster than any sparse method.
DENSE_LIMIT = 300
# Numbers in the systems of many policies that are solved at once, to bound memory.
AT_ONCE = 2**22
# Chains whose states can be ordered so that steps reach no farther than this share of them have sparse factors.
NARROW = 1 / 8
# States that everything may lead to, such as the end of an episode, fill no factors: they are put last.
HUBS = 4
# Up to this many states a chain that is not narrow is taken as dense.
WIDE_DENSE_LIMIT = 1000


def evaluate(cmdp: Tables, policy: PolicyLike) -> Values:
    """Exact expected discounted reward and costs of `policy` on `cmdp`."""
    if isinstance(policy, EpisodeMixture):
        parts = [evaluate(cmdp, component) for component in policy.components]
        reward = float(policy.weights @ [part.reward for part in parts])
        cost = policy.weights @ np.stack([part.cost for part in parts])
    else:
        values = timed_state_values(cmdp, as_tables(policy, (cmdp.n_states, cmdp.n_actions))) @ cmdp.start
        reward, cost = float(values[0]), values[1:]
    return Values(reward, cost, cmdp.budget - cost)


def state_values(cmdp: Tables, probabilities: Floats, steps: int | None = None) -> Floats:
    """[1+m, S] value of reward and of each cost from every state, under action probabilities [S, A].

    `steps` of a task with a horizon are left, all of them by default.
    """
    signals = cmdp.signals
    per_state = np.einsum("ksa,sa->ks", signals, probabilities).T
    kernel, steps = chain(cmdp, probabilities), steps or cmdp.units.horizon
    if steps is None:
        return solve_discounted(kernel, per_state, cmdp.discount).T
    values: Any = per_state
    for _ in range(steps - 1):
        values = per_state + cmdp.discount * (kernel @ values)
    return np.asarray(values.T)


def values_of_each(cmdp: Tables, tables: Floats) -> Floats:
    """[P, 1+m, S] `state_values` of P policies [P, S, A]: up to so many states in one go, since setting up a system
    would take longer than solving it."""
    if cmdp.n_states > DENSE_LIMIT or cmdp.units.horizon is not None:
        return np.stack([state_values(cmdp, probabilities) for probabilities in tables])
    signals = cmdp.signals
    step = max(1, AT_ONCE // cmdp.n_states**2)
    parts = []
    for some in (tables[k : k + step] for k in range(0, len(tables), step)):
        systems = np.eye(cmdp.n_states) - cmdp.discount * _kernels(cmdp, some)
        parts.append(np.linalg.solve(systems, np.einsum("ksa,psa->psk", signals, some)))
    return np.concatenate(parts).transpose(0, 2, 1)


def _kernels(cmdp: Tables, tables: Floats) -> Floats:
    """[P, S, S] dense chains of policies [P, S, A]."""
    if not cmdp.is_sparse:
        return np.stack([cmdp.kernel(probabilities) for probabilities in tables])
    count, states, actions = tables.shape
    pairs = np.tile(np.arange(states * actions), count)
    starts = np.arange(0, count * states * actions + 1, actions)
    weights = sp.csr_array((tables.ravel(), pairs, starts), shape=(count * states, states * actions))
    return np.asarray((weights @ cmdp.rows).toarray().reshape(count, states, states))


def timed_state_values(cmdp: Tables, tables: Floats) -> Floats:
    """[1+m, S] values from step 0 when step t follows tables[min(t, T-1)], tables [T, S, A].

    The last table goes on to the end, so its stationary values end a backward recursion over the others.
    """
    horizon = cmdp.units.horizon
    tables = tables[:horizon]
    values = state_values(cmdp, tables[-1], None if horizon is None else horizon - len(tables) + 1)
    if len(tables) == 1:
        return values
    signals = cmdp.signals.transpose(1, 2, 0)  # [S, A, 1+m]
    onwards: Any = values.T
    for probabilities in tables[-2::-1]:
        action_values = signals + cmdp.discount * (cmdp.matrix @ onwards).reshape(signals.shape)
        onwards = np.matmul(probabilities[:, None, :], action_values)[:, 0]
    return np.asarray(onwards.T)


def timed_values_of_each(cmdp: Tables, policies: Sequence[Floats]) -> Floats:
    """[P, 1+m, S] `timed_state_values` of P policies [T, S, A] on a task with a horizon, all of them step by step."""
    steps = cmdp.units.episode_length
    signals = cmdp.signals.transpose(1, 2, 0)[:, :, None]  # [S, A, 1, 1+m]
    onwards: Any = np.zeros((cmdp.n_states, len(policies), signals.shape[3]))
    for t in reversed(range(steps)):
        ahead = (cmdp.matrix @ onwards.reshape(cmdp.n_states, -1)).reshape(*signals.shape[:2], *onwards.shape[1:])
        now = np.stack([tables[min(t, len(tables) - 1)] for tables in policies], axis=2)  # [S, A, P]
        onwards = (now[..., None] * (signals + cmdp.discount * ahead)).sum(axis=1)
    return np.asarray(onwards.transpose(1, 2, 0))


def occupancy(cmdp: Tables, policy: TabularPolicy | TimedPolicy | Floats) -> Floats:
    """[S, A] expected discounted visits Σ_t γ^t P(s_t = s, a_t = a); they sum to Σ_t γ^t, 1/(1-γ) without a horizon."""
    tables, horizon = as_tables(policy, (cmdp.n_states, cmdp.n_actions)), cmdp.units.horizon
    visits, arrivals = step_visits(cmdp, tables, len(tables) - 1 if horizon is None else horizon)
    total: Floats = np.tensordot(cmdp.discount ** np.arange(len(visits)), visits, 1)
    if horizon is None:
        arriving, later = chain(cmdp, tables[-1]).T, cmdp.discount ** len(visits) * arrivals
        total = total + solve_discounted(arriving, later[:, None], cmdp.discount, order=1) * tables[-1]
    return total


def step_visits(cmdp: Tables, tables: Floats, steps: int) -> tuple[Floats, Floats]:
    """P(s_t = s, a_t = a) [steps, S, A] under tables [T, S, A] as above, and P(s_t = s) [S] of the step after these."""
    visits, arrivals = np.empty((steps, *tables.shape[1:])), cmdp.start
    for t in range(steps):
        visits[t] = arrivals[:, None] * tables[min(t, len(tables) - 1)]
        arrivals = cmdp.matrix.T @ visits[t].ravel()
    return visits, arrivals


def chain(cmdp: Tables, probabilities: Floats) -> Any:
    """[S, S] the chain under action probabilities [S, A]; sparse where that is the faster way to solve for values."""
    return cmdp.kernel(probabilities) if cmdp.n_states <= DENSE_LIMIT else policy_transitions(cmdp.rows, probabilities)


def solve_discounted(kernel: Any, right: Floats, discount: float, order: float = np.inf) -> Floats:
    """x [S, k] with (I - γ·kernel) x = right [S, k]; kernel [S, S] dense or sparse.

    `order` is the norm in which the kernel does not expand: the maximum norm, or 1 for a transposed kernel.
    """
    states = kernel.shape[0]
    if states <= DENSE_LIMIT or not sp.issparse(kernel):
        dense = kernel.toarray() if sp.issparse(kernel) else kernel
        return np.linalg.solve(np.eye(states) - discount * dense, right)
    return resolvent(kernel, discount, order)(right)


def resolvent(kernel: Any, discount: float, order: float = np.inf) -> Callable[[Floats], Floats]:
    """right [S, k] to x [S, k] with (I - γ·kernel) x = right, for as many of them as there are; kernel [S, S] sparse.

    A chain on a grid has sparse factors. One whose steps lead anywhere has not: its systems are solved as if they were
    dense or, if large, by iteration, which such chains make short.
    """
    states = kernel.shape[0]
    narrow = states > DENSE_LIMIT and is_narrow(kernel)
    if not narrow and states <= WIDE_DENSE_LIMIT:
        dense = lu_factor(np.eye(states) - discount * kernel.toarray())
        return lambda right: np.asarray(lu_solve(dense, right))
    matrix = (sp.identity(states, format="csr") - discount * sp.csr_array(kernel)).tocsr()
    if narrow:
        solve = sparse_solver(matrix)
        return lambda right: np.asarray(solve(np.ascontiguousarray(right)))
    return lambda right: np.stack([_solve_sparse(matrix, column, order) for column in right.T], axis=1)


def is_narrow(kernel: Any) -> bool:
    """Whether the states, but for a few that many others lead to, can be ordered so that no step leads far."""
    entries = sp.coo_array(kernel)
    states = kernel.shape[0]
    degree = np.bincount(entries.row, minlength=states) + np.bincount(entries.col, minlength=states)
    rest = np.sort(np.argsort(degree, kind="stable")[:-HUBS])
    others = sp.csr_matrix(kernel)[rest][:, rest]
    place = np.empty(len(rest), dtype=np.int64)
    place[reverse_cuthill_mckee(others)] = np.arange(len(rest))
    row = np.repeat(np.arange(len(rest)), np.diff(others.indptr))
    reach = np.abs(place[row] - place[others.indices])
    return bool(np.mean(reach**2.0) <= (NARROW * states) ** 2) if reach.size else True


def sparse_solver(matrix: Any) -> Callable[[Floats], Floats]:
    """Solver for a sparse I - γP or its transpose. These are diagonally dominant: no pivot is needed for stability, and
    an ordering for symmetric matrices keeps the factors of a chain on a grid half as large as the usual one."""
    factors = spla.splu(
        matrix.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )
    solver: Callable[[Floats], Floats] = factors.solve
    return solver


def _solve_sparse(matrix: Any, right: Floats, order: float) -> Floats:
    """Krylov iteration, accepted only if the residual proves 12 digits; otherwise a sparse factorisation.

    In the norm of that order the inverse of I - γP is at most 1/(1-γ), so the residual bounds the error.
    """
    tolerance = 1e-12 * float(np.linalg.norm(right, order))
    solution, residual, previous = np.zeros_like(right), right, np.inf
    for _ in range(7):  # iterative refinement recovers the digits that the short recurrence loses
        error = float(np.linalg.norm(residual, order))
        if error <= tolerance:
            return np.asarray(solution)
        if not error < previous / 2:  # stagnation or breakdown
            break
        length = np.linalg.norm(residual)  # SciPy's test for breakdown is absolute: keep right-hand sides at norm 1
        correction, _ = spla.bicgstab(
            matrix, residual / length, rtol=max(1e-10, 0.1 * tolerance / error), atol=0.0, maxiter=1000
        )
        solution = solution + length * correction
        residual, previous = right - matrix @ solution, error
    return np.asarray(sparse_solver(matrix)(right))
