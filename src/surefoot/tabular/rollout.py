"""Batches of simulated episodes: one uniform draw per step, from one alias table over (action, next state).

A step of policy π in state s draws the pair (a, s') with probability π(a|s)·P(s'|s,a). Each state has its own alias
table (Walker, Vose) over its pairs, all padded to the widest state's K slots, so that slot k of state s is row s·K + k
of one table and a step of thousands of episodes is a dozen NumPy calls on arrays that stay in cache. A timed policy
has such a table for each of its H steps, one behind the other: row (t·S + s)·K + k, whose outcomes lead to table
min(t+1, H-1). Stepping is the same, and touches one of the H tables at a time.

Accuracy: positions s·K + u·K are float64, rounded to S·K·2⁻⁵² at worst, so the law of a step differs from
π(a|s)·P(s'|s,a) by at most (S+K)·K·2⁻⁵⁰ in total variation (H·S in place of S for a timed policy), 1e-12 for the
gridworld; pairs of probability 0 never occur.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from surefoot.arrays import Floats, Integers, check_int, generator
from surefoot.cmdp.episode import Outcomes
from surefoot.tabular.policy import TabularPolicy, TimedPolicy, as_tables
from surefoot.tabular.tables import Tables

# Episodes stepped together: enough to hide the cost of a NumPy call, few enough for every array to stay in L2 cache.
CHUNK = 8192


class Simulator:
    """Episodes of one policy on one task, `horizon` steps each, or as many as the task has if those are fewer.

    Building it costs more than a short batch: keep one per (task, policy), not one per batch.
    """

    def __init__(self, cmdp: Tables, policy: TabularPolicy | TimedPolicy | Floats, horizon: int) -> None:
        self.horizon = min(check_int("horizon", horizon), cmdp.units.horizon or horizon)
        self.discount = cmdp.discount
        self.table = joint_table(cmdp, policy)

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        """Simulate `episodes` episodes; equal generators and numbers of episodes give equal outcomes.

        Returns discounted sums over t = 0, ..., H-1 in the user's units and, with `transitions`, the visited states
        [n, H+1] and actions [n, H]. These have the smallest signed type that also holds the index s·A + a; widen them
        before computing larger indices.
        """
        episodes = check_int("episodes", episodes)
        generator("rng", rng)
        table = self.table
        totals = np.zeros((episodes, table.signals.shape[1]))
        states = np.empty((episodes, self.horizon + 1), table.next_state.dtype) if transitions else None
        actions = np.empty((episodes, self.horizon), table.action.dtype) if transitions else None
        for first in range(0, episodes, CHUNK):
            part = slice(first, first + CHUNK)
            path = self._run_chunk(totals[part], rng, transitions)
            if states is not None and actions is not None:
                states[part], actions[part] = path[0].T, path[1].T
        return Outcomes(totals[:, 0].copy(), totals[:, 1:].copy(), states, actions)

    def _run_chunk(self, totals: Floats, rng: np.random.Generator, transitions: bool) -> tuple[Integers, Integers]:
        """Step n episodes side by side, adding to totals [n, 1+m]; states [H+1, n] and actions [H, n] if wanted."""
        table, n = self.table, len(totals)
        state = np.searchsorted(table.start, rng.random(n), side="right")
        base = state.astype(np.float64) * table.width  # the first position of each episode's state
        position, cut, outcome, signals = np.empty(n), np.empty(n), np.empty(n, np.intp), np.empty_like(totals)
        refused = np.empty(n, np.bool_)
        # One row per step: writing columns of an [n, H] array would touch a cache line per episode and step.
        recorded = self.horizon if transitions else 0
        states, actions = (
            np.empty((recorded + 1, n), table.next_state.dtype),
            np.empty((recorded, n), table.action.dtype),
        )
        states[0] = state

        for t in range(self.horizon):
            rng.random(out=position)
            position *= table.scale
            position += base
            np.copyto(outcome, position, casting="unsafe")  # the slot, rounded down
            # Indices are in range by construction; "wrap" only spares NumPy a check.
            table.cut.take(outcome, out=cut, mode="wrap")
            np.greater_equal(position, cut, out=refused)
            outcome += outcome
            outcome += refused
            table.next_base.take(outcome, out=base, mode="wrap")
            table.signals.take(outcome, axis=0, out=signals, mode="wrap")
            signals *= self.discount**t
            totals += signals
            if transitions:
                table.next_state.take(outcome, out=states[t + 1], mode="wrap")
                table.action.take(outcome, out=actions[t], mode="wrap")
        return states, actions


# --------------------------------------------------------------------------------------------------------- the table


@dataclass(frozen=True, eq=False)
class JointTable:
    """Alias tables of all states in one, with N = H·S·K slots; outcome 2·slot is its own pair, 2·slot+1 its alias.

    Attributes:
        width: K, slots per state.
        scale: K less one rounding step, so that no position can round up into the next state's slots.
        start: [S] cumulative start distribution.
        cut: [N] position from which on a slot stands for its alias.
        next_base: [2N] first position of s' in the next step's table, for each outcome; K·s' for a stationary policy.
        signals: [2N, 1+m] reward and costs of each outcome.
        next_state, action: [2N] s' and a of each outcome.
    """

    width: int
    scale: float
    start: Floats
    cut: Floats
    next_base: Floats
    signals: Floats
    next_state: Integers
    action: Integers


def joint_table(cmdp: Tables, policy: TabularPolicy | TimedPolicy | Floats) -> JointTable:
    """The joint alias table of (action, next state) under `policy`, its rows the pairs (min(t, H-1), s)."""
    S, A = cmdp.n_states, cmdp.n_actions
    tables = as_tables(policy, (S, A))
    H = len(tables)
    new, same = _distinct_rows(tables)
    state = np.nonzero(new)[1]
    rows = cmdp.rows if H == 1 else cmdp.rows[(A * state[:, None] + np.arange(A)).ravel()]
    probability, action, next_state = _joint_outcomes(rows, tables[new])
    D, K = probability.shape
    accept, alias = alias_tables(probability)
    pair = np.stack([np.broadcast_to(np.arange(K), (D, K)), alias], axis=2).reshape(D, 2 * K)
    action = np.take_along_axis(action, pair, axis=1)
    next_state = np.take_along_axis(next_state, pair, axis=1)
    signals = np.ascontiguousarray(cmdp.payments.at(np.broadcast_to(state[:, None], action.shape), action, next_state))
    next_state = next_state[same]
    following = S * np.minimum(np.arange(H) + 1, H - 1).repeat(S)  # first row of the next step's table
    start = np.cumsum(cmdp.start)
    return JointTable(
        width=K,
        scale=float(K - 2 * np.spacing(float(H * S * K))),
        start=start / start[-1],
        cut=np.arange(H * S * K) + accept[same].ravel(),
        next_base=(K * (following[:, None] + next_state)).ravel().astype(np.float64),
        signals=signals[same].reshape(2 * H * S * K, -1),
        next_state=next_state.ravel().astype(np.min_scalar_type(-S * A)),
        action=action.astype(np.min_scalar_type(-A))[same].ravel(),
    )


def alias_tables(probability: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """(accept, alias), each [S, K]: in slot k keep k with probability accept[s, k], else take alias[s, k].

    Vose's sweep, in closed form so that all states are done at once. Let w = K·probability, D and E the running sums of
    the light slots' lacks (1-w)₊ and of the heavy slots' surpluses (w-1)₊. The sweep fills light slot k from the first
    heavy j with E_j > D_{k-1}; heavy j itself falls below 1 at the first light with D ≥ E_j, keeps 1 + E_j - D, and is
    filled from the next heavy.
    """
    K = probability.shape[1]
    weight = probability * (K / probability.sum(axis=1, keepdims=True))
    lack, surplus = np.maximum(1 - weight, 0), np.maximum(weight - 1, 0)
    D, E = np.cumsum(lack, axis=1), np.cumsum(surplus, axis=1)
    heavy = surplus > 0
    before = np.concatenate([np.zeros((len(D), 1)), D[:, :-1]], axis=1)
    last = np.argmax(E[:, -1:] == E, axis=1)[:, None]  # the last heavy; rounding must not lead beyond it
    alias = np.minimum(_count(E, np.where(heavy, E, before), or_equal=True), last)
    drained = np.take_along_axis(D, np.minimum(_count(D, E, or_equal=False), K - 1), axis=1)
    accept = np.where(heavy, np.clip(1 + E - drained, 0, 1), np.minimum(weight, 1))
    return accept, alias


def _distinct_rows(tables: Floats) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """(new [H, S], same [H·S]): where a state's probabilities differ from the step before, and to which of the new
    rows each row is equal. Planners repeat themselves from step to step, and alias tables are the expensive part.
    """
    H, S, _ = tables.shape
    new = np.ones((H, S), np.bool_)
    new[1:] = (tables[1:] != tables[:-1]).any(axis=2)
    since = np.maximum.accumulate(np.where(new, np.arange(H)[:, None], 0), axis=0)
    number = np.cumsum(new.ravel()) - 1
    return new, number[(since * S + np.arange(S)).ravel()]


def _joint_outcomes(rows: sp.csr_array, probabilities: Floats) -> tuple[Floats, NDArray[np.intp], NDArray[np.intp]]:
    """(probability, action, next state), each [D, K]: the pairs that can occur in each of D states, padded with 0.

    rows [D·A, S] are transition probabilities, probabilities [D, A] those of the actions.
    """
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    joint = rows.data * probabilities.ravel()[row]
    possible = joint > 0
    joint, row, there = joint[possible], row[possible], rows.indices[possible]
    state, action = np.divmod(row, probabilities.shape[1])
    count = np.bincount(state, minlength=len(probabilities))
    slot = np.arange(len(state)) - np.repeat(np.cumsum(count) - count, count)
    shape = (len(probabilities), int(count.max()))
    probability, actions, next_state = np.zeros(shape), np.zeros(shape, np.intp), np.zeros(shape, np.intp)
    probability[state, slot], actions[state, slot], next_state[state, slot] = joint, action, there
    return probability, actions, next_state


def _count(ascending: Floats, values: Floats, *, or_equal: bool) -> NDArray[np.intp]:
    """[S, K] per row, how many entries of `ascending` [S, K] are less than (or equal to) each of `values` [S, K]."""
    K = values.shape[1]
    both = np.concatenate([ascending, values] if or_equal else [values, ascending], axis=1)
    order = np.argsort(both, axis=1, kind="stable")
    counts = np.empty_like(order)
    np.put_along_axis(counts, order, np.cumsum((order < K) == or_equal, axis=1), axis=1)
    return counts[:, K:] if or_equal else counts[:, :K]
