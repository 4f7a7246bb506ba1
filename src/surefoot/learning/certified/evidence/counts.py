"""What the e-processes of transitions remember: how often each one was observed, and whether any was impossible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from surefoot.arrays import Floats, Integers, Mask, check_indices
from surefoot.cmdp.episode import Outcomes, discounted_sum
from surefoot.cmdp.units import Units
from surefoot.tabular.transition_model import TransitionModel

Steps: TypeAlias = tuple[Integers, Integers, Integers]  # state, action and next state, each [n, H]

# Observed sums may differ from those of the visited states and actions by rounding only, relative to their range.
SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each of the model's transitions was observed, [E], and how often in each row one that is impossible at
    every cell's centre, [S·A]; whether something impossible in every cell was seen.

    Of `abandoned` episodes nothing is known but that they took at most as many steps as they may.
    """

    transitions: Floats
    beyond: Floats
    contradicted: bool
    abandoned: int


def no_counts(model: TransitionModel) -> Counts:
    return Counts(np.zeros(len(model.successor)), np.zeros(len(model.indptr) - 1), False, 0)


def count_transitions(state: Counts, outcomes: Outcomes, model: TransitionModel, units: Units) -> Counts:
    """Add the observed transitions; note rewards, costs or first states that no cell allows."""
    steps = step_indices(outcomes, model)
    found = model.find(*steps)
    fresh = np.bincount(found[found >= 0], minlength=len(state.transitions))
    strange = (steps[0] * model.n_actions + steps[1])[found < 0]
    contradicted = state.contradicted or not _sums_agree(steps, found, outcomes, model, units).all()
    return replace(
        state,
        transitions=state.transitions + fresh,
        beyond=state.beyond + np.bincount(strange, minlength=len(state.beyond)),
        contradicted=contradicted,
    )


def since(state: Counts, earlier: Counts) -> Counts:
    """What was observed after `earlier`."""
    return replace(state, transitions=state.transitions - earlier.transitions, beyond=state.beyond - earlier.beyond)


def possible_counts(before: Counts, after: Counts, *, exact: bool) -> bool:
    """Whether `impossible_episodes` would name none of those that were counted in between."""
    return not after.contradicted and not (exact and (after.beyond != before.beyond).any())


def impossible_episodes(outcomes: Outcomes, model: TransitionModel, units: Units, *, exact: bool) -> Mask:
    """[n] whether an episode holds a first state, a sum or, where cells have `exact` dynamics, a transition that no
    cell allows."""
    steps = step_indices(outcomes, model)
    found = model.find(*steps)
    impossible: Mask = ~_sums_agree(steps, found, outcomes, model, units)
    return impossible | (found < 0).any(axis=1) if exact else impossible


def step_indices(outcomes: Outcomes, model: TransitionModel) -> Steps:
    """State, action and next state of every step, each [n, H]."""
    if outcomes.states is None or outcomes.actions is None:
        raise TypeError("transitions were not observed")
    states, actions = outcomes.states.astype(np.int64), outcomes.actions.astype(np.int64)
    check_indices("states", states, model.n_states)
    check_indices("actions", actions, model.n_actions)
    return states[:, :-1], actions, states[:, 1:]


def _sums_agree(steps: Steps, found: Integers, outcomes: Outcomes, model: TransitionModel, units: Units) -> Mask:
    """[n] hard tests: the first state is possible, and the sums are those of what was visited, where that is known."""
    agree: Mask = model.start[steps[0][:, 0]] > 0
    paid = _step_payments(steps, found, model)
    if paid is None:
        return agree
    span = np.ptp(units.reachable, axis=1)  # of constant signals, 0 to their sum
    for sums, signal, reach in zip((outcomes.reward, *outcomes.cost.T), paid, span, strict=True):
        agree &= np.abs(discounted_sum(signal.T, units.discount) - sums) <= SUM_TOLERANCE * reach
    if model.payments is not None:
        # Nobody knows what a transition pays that is impossible at every centre.
        agree |= (found < 0).any(axis=1) & (model.start[steps[0][:, 0]] > 0)
    return agree


def _step_payments(steps: Steps, found: Integers, model: TransitionModel) -> list[Floats] | None:
    """Reward and costs of every step, [n, H] each; None where cells do not agree on them."""
    states, actions, _ = steps
    if model.reward is not None and model.cost is not None:
        row = states * model.n_actions + actions  # of tables laid flat
        return [table.take(row) for table in (model.reward, *model.cost)]
    return None if model.payments is None else [payment[found] for payment in model.payments]


def class_counts(state: Counts, model: TransitionModel) -> Floats:
    """[C] observations per class."""
    return np.bincount(model.classes, weights=state.transitions, minlength=len(model.row_type)).astype(np.float64)


def impossible_counts(state: Counts, model: TransitionModel) -> Floats:
    """[T] observations per row type of successors that no cell's centre allows."""
    return np.bincount(model.row_kind, weights=state.beyond).astype(np.float64)
