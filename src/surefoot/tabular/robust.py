"""Values of policies on tasks near those that are known: by how much they can differ, and the task that is worst."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tabular.evaluate import DENSE_LIMIT, solve_discounted
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, TimedPolicy, as_tables
from surefoot.tabular.tables import endless
from surefoot.tabular.transition_model import TransitionModel

CHUNK = 64  # cells at once, to bound memory
ROUNDING = 1e-9  # of values, relative to them
MOST_ROUNDS = 1000  # of the search for the worst task; a handful suffice


def value_spreads(model: TransitionModel, policy: TabularPolicy | TimedPolicy, units: Units) -> Floats | None:
    """[J, 1+m] osc: the most by which reward and costs of a policy differ between first states, on any task of a cell;
    with a horizon between the states of any step.

    Exact at the centre P; on a task within e of it V' - V = (I - γP')⁻¹(P' - P)(g + γV), at most e(osc g + γ osc
    V)/(1-γ) with g what transitions pay, and osc V' at most twice that more; with a horizon 1/(1-γ) is Σ_t γ^t. None
    for large tables, and where it is not known what steps pay.
    """
    if not model.pays or model.n_states > DENSE_LIMIT:
        return None
    tables = as_tables(policy, (model.n_states, model.n_actions))
    if units.horizon is None and len(tables) > 1:
        return None
    chunks = (slice(k, k + CHUNK) for k in range(0, len(model.radius), CHUNK))
    parts = [_centre_spreads(model, tables, units, some) for some in chunks]
    spread = np.concatenate(parts) * (1 + ROUNDING)
    paid = np.zeros(spread.shape[1])
    if model.payments is not None:
        most, least = (side.reduceat(model.payments, model.indptr[:-1], axis=1) for side in (np.maximum, np.minimum))
        paid = (most - least).max(axis=1)
    wider: Floats = spread + 2 * model.radius[:, None] * (paid + units.discount * spread) / units.rate
    return wider


def _centre_spreads(model: TransitionModel, tables: Floats, units: Units, some: slice) -> Floats:
    """[J', 1+m] at the centres of some cells, for tables [T, S, A] of the steps."""
    entries = model.probability[some][:, model.classes]  # [J', E]
    rows = np.zeros((len(entries), len(model.indptr) - 1, model.n_states))
    rows[:, model.row, model.successor] = entries
    shape = (len(entries), model.n_states, model.n_actions, model.n_states)
    signals: Any
    if model.reward is not None and model.cost is not None:
        signals = np.concatenate([model.reward[None], model.cost])[None]
    else:
        signals = np.add.reduceat(entries[:, None] * np.asarray(model.payments), model.indptr[:-1], axis=2)
        signals = signals.reshape(len(entries), -1, model.n_states, model.n_actions)
    value: Any = np.zeros((len(entries), model.n_states, signals.shape[1]))
    spreads: Floats = np.zeros((len(entries), signals.shape[1]))
    for t in reversed(range(units.horizon or 1)):
        probabilities = tables[min(t, len(tables) - 1)]
        chain = np.einsum("sa,jsat->jst", probabilities, rows.reshape(shape))
        per_state = np.broadcast_to(np.einsum("sa,jksa->jsk", probabilities, signals), value.shape)
        if units.horizon is None:
            value = np.linalg.solve(np.eye(model.n_states) - units.discount * chain, per_state)
        else:
            value = per_state + units.discount * (chain @ value)
        spreads = np.maximum(spreads, np.ptp(value, axis=1))
    return spreads


def worst_within(task: TabularCMDP, policy: TabularPolicy, distance: float, constraint: int = 0) -> TabularCMDP:
    """The task within this distance d of `task` on which a policy costs most; reward goes with it where that is free.

    Against a fixed policy the best reply is stationary: each row moves the mass it may from the successors that cost
    least to the one that costs most. Replies are improved until none is, as in policy iteration.
    """
    endless(task, "the search for the worst task")
    if not 0 <= distance < 1:
        raise InvalidInput(f"distance must lie in [0, 1), got {distance!r}")
    units = task.units
    cost = np.minimum(task.cost + distance * units.cost_scale[:, None, None], units.cost_range[:, 1, None, None])
    reward = np.maximum(task.reward - distance * units.reward_scale, units.reward_range[0])
    known = task.rows.toarray().reshape(task.n_states, task.n_actions, task.n_states)
    per_state, transitions = (cost[constraint] * policy.probabilities).sum(axis=1), known
    value, reached = np.zeros(task.n_states), -np.inf
    for _ in range(MOST_ROUNDS):
        chain = np.einsum("sa,sat->st", policy.probabilities, transitions)
        value = solve_discounted(chain, per_state[:, None], task.discount)[:, 0]
        if value.sum() - reached <= ROUNDING * abs(value.sum()):
            break
        reached, transitions = float(value.sum()), shift_mass(known, value, distance)
    start = shift_mass(task.start[None], value, distance)[0]
    ranges = (units.reward_range, units.cost_range)
    return TabularCMDP(transitions, reward, cost, task.budget, start, task.discount, *ranges)


def shift_mass(laws: Floats, value: Floats, mass: float) -> Floats:
    """[..., S] laws with this much mass, or all there is, taken from successors of the least value [S] to one of the
    greatest: the largest mean within that total variation."""
    order = np.argsort(value)
    ascending = laws[..., order]
    before = np.cumsum(ascending, axis=-1) - ascending
    taken = np.minimum(ascending, np.maximum(mass - before, 0.0))
    taken[..., -1] = 0.0
    found = ascending - taken
    found[..., -1] += taken.sum(axis=-1)
    worst = np.empty_like(found)
    worst[..., order] = found
    return worst
