"""What the e-processes of transitions remember: how often each one was observed, and whether any was impossible."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from surefoot.arrays import Floats, Integers, Mask, check_indices
from surefoot.cmdp.episode import Outcomes, discounted_sum
from surefoot.cmdp.units import Units
from surefoot.tabular.transition_model import TransitionModel

# Observed sums may differ from those of the visited states and actions by rounding only, relative to their range.
SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each transition was observed, [S, A, S], and whether something impossible in every cell was.

    Of `abandoned` episodes nothing is known but that they took at most as many steps as they may.
    """

    transitions: Floats
    contradicted: bool = False
    abandoned: int = 0


def count_transitions(state: Counts, outcomes: Outcomes, model: TransitionModel, units: Units) -> Counts:
    """Add the observed transitions; note rewards, costs or first states that no cell allows."""
    states, actions, after = step_indices(outcomes)
    _check_steps(states, actions, after, model)
    flat = (states * model.classes.shape[1] + actions) * model.classes.shape[2] + after
    fresh = np.bincount(flat.ravel(), minlength=state.transitions.size).reshape(state.transitions.shape)
    contradicted = state.contradicted or not _sums_agree(states, actions, outcomes, model, units).all()
    return replace(state, transitions=state.transitions + fresh, contradicted=contradicted)


def impossible_episodes(outcomes: Outcomes, model: TransitionModel, units: Units, *, exact: bool) -> Mask:
    """[n] whether an episode holds a first state, a sum or, where cells have `exact` dynamics, a transition that no
    cell allows."""
    states, actions, after = step_indices(outcomes)
    _check_steps(states, actions, after, model)
    impossible: Mask = ~_sums_agree(states, actions, outcomes, model, units)
    if exact:
        impossible |= (model.classes[states, actions, after] < 0).any(axis=1)
    return impossible


def step_indices(outcomes: Outcomes) -> tuple[Integers, Integers, Integers]:
    """State, action and next state of every step, each [n, H]."""
    if outcomes.states is None or outcomes.actions is None:
        raise TypeError("transitions were not observed")
    states = outcomes.states.astype(np.int64)
    return states[:, :-1], outcomes.actions.astype(np.int64), states[:, 1:]


def _check_steps(states: Integers, actions: Integers, after: Integers, model: TransitionModel) -> None:
    for name, values, axis in (("states", states, 0), ("actions", actions, 1), ("states", after, 0)):
        check_indices(name, values, model.classes.shape[axis])


def _sums_agree(states: Integers, actions: Integers, outcomes: Outcomes, model: TransitionModel, units: Units) -> Mask:
    """[n] hard tests: the first state is possible, and the sums are those of the visited states and actions."""
    reward = discounted_sum(model.reward[states, actions].T, units.discount)
    cost = np.stack([discounted_sum(table[states, actions].T, units.discount) for table in model.cost], axis=1)
    span = np.ptp(units.reachable, axis=1)  # of constant signals, 0 to their sum
    agree: Mask = (
        (model.start[states[:, 0]] > 0)
        & (np.abs(reward - outcomes.reward) <= SUM_TOLERANCE * span[0])
        & (np.abs(cost - outcomes.cost) <= SUM_TOLERANCE * span[1:]).all(axis=1)
    )
    return agree


def class_counts(state: Counts, model: TransitionModel) -> Floats:
    """[C] observations per class."""
    possible = model.classes >= 0
    return np.bincount(
        model.classes[possible], weights=state.transitions[possible], minlength=len(model.row_type)
    ).astype(np.float64)


def impossible_counts(state: Counts, model: TransitionModel) -> Floats:
    """[T] observations per row type of successors that no cell's centre allows."""
    beyond = np.where(model.classes < 0, state.transitions, 0.0).sum(axis=2)
    return np.bincount(model.row_kind.ravel(), weights=beyond.ravel()).astype(np.float64)
