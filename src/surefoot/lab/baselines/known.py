"""What every baseline is told besides its safe policy: rewards, costs, start, and which transitions are possible.

Planners with `layers` take the task to be a finite-horizon one in layers (`tasks/layered_tasks.py`). Their theorems are
about H steps of one base task, and what they pool over layers and the undiscounted sums they plan for mean nothing on
any other task, so the structure is checked and not believed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Integers
from surefoot.errors import InvalidInput
from surefoot.learning.spec import MethodSpec
from surefoot.policyset.policy_value_set import PolicyValueSet

# The row of a method that learns a table without a proof.
tables_spec = partial(MethodSpec, certified=False, needs="tables", observes="transitions", needs_cover=True)

# Rewards and costs of layer h are γ^(-h) times those of layer 0 up to rounding, relative to the largest.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class KnownModel:
    """What all tasks of a family share.

    Attributes:
        classes: [S, A, S] which transitions are alike in every task; -1 where they are impossible in all.
        reward, cost, start: [S, A], [m, S, A], [S].
    """

    classes: Integers
    reward: Floats
    cost: Floats
    start: Floats


def known_model(policies: PolicyValueSet, method: str) -> KnownModel:
    """The tables shared by all tasks of the family; their probabilities are for the certified methods alone."""
    model = None if policies.cells is None else policies.cells.model
    if model is None:
        raise InvalidInput(
            f"policies must hold cells with a transition model for method {method!r}, which needs the reward and cost "
            "of every state and action and the possible successors, got none; train on a tabular family"
        )
    if policies.units.horizon is not None:
        raise InvalidInput(
            f"policies must be for tasks without a horizon for method {method!r}, {_why_endless(method)}, got horizon "
            f"{policies.units.horizon}"
        )
    if model.reward is None or model.cost is None:
        raise InvalidInput(
            f"policies must be for tasks that share the reward and cost of every state and action for method "
            f"{method!r}, got a family whose payments depend on the next state or on the task"
        )
    return KnownModel(model.class_table, model.reward, model.cost, model.start)


def _why_endless(method: str) -> str:
    if method.startswith(("dope", "optpess")):
        return (
            "which takes the steps of an episode as states of their own: write the tasks in layers "
            "(sf.tasks.layered), whose sums are the same, and give layers=H"
        )
    return "whose formulas are for discounted sums without end"


# ------------------------------------------------------------------------------------------------------ tasks in layers


def check_layers(model: KnownModel, discount: float, layers: int) -> None:
    """Refuse a model that is not `layers` copies of a base task, each leading to the next and the last to the end.

    Transitions of all layers are alike if they are of the same classes: equal in every cell of the policy set.
    """
    size = base_states(len(model.start), layers)
    _check_transitions(model.classes, size, layers)
    late = np.flatnonzero(model.start[size:] > 0)
    if late.size:
        raise _layers_error(layers, f"an episode that starts in state {size + int(late[0])}, beyond the first layer")
    for name, signal in (("reward", model.reward), ("cost", model.cost[0])):
        _check_signal(name, signal, size, discount, layers)


def base_states(states: int, layers: int) -> int:
    """S of a task with layers·S states and the end."""
    size, rest = divmod(states - 1, layers)
    if layers < 2 or rest or not size:
        raise InvalidInput(
            f"layers must be at least 2 and divide the number of states but one, {states - 1}, got {layers}"
        )
    return size


def _check_transitions(classes: Integers, size: int, layers: int) -> None:
    expected = np.full(classes.shape, -1)
    base, end = classes[:size, :, size : 2 * size], layers * size
    for here in range(0, end - size, size):
        expected[here : here + size, :, here + size : here + 2 * size] = base
    expected[end - size :, :, end] = classes[end - size :, :, end]
    elsewhere, unlike = (classes >= 0) & (expected < 0), classes != expected
    if elsewhere.any():
        raise _layers_error(
            layers, f"a possible transition from {_first(elsewhere)}, which is not in the layer that follows"
        )
    if unlike.any():
        raise _layers_error(layers, f"a transition from {_first(unlike)} unlike that of the first layer")


def _first(marked: NDArray[np.bool_]) -> str:
    """The first transition marked in [S, A, S], in words."""
    state, action, successor = np.argwhere(marked)[0].tolist()
    return f"state {state} under action {action} to state {successor}"


def _check_signal(name: str, signal: Floats, size: int, discount: float, layers: int) -> None:
    growth = discount ** -np.arange(layers, dtype=np.float64)
    expected = np.concatenate([*(factor * signal[:size] for factor in growth), np.zeros((1, signal.shape[1]))])
    wrong = np.abs(signal - expected) > ROUNDING * np.abs(expected).max()
    if wrong.any():
        state, action = np.argwhere(wrong)[0].tolist()
        raise _layers_error(
            layers,
            f"{name}[{state}, {action}] = {signal[state, action]:g} where {expected[state, action]:g} makes the "
            "discounted sum that of the layers' steps",
        )


def _layers_error(layers: int, got: str) -> InvalidInput:
    return InvalidInput(
        f"layers must be left out unless the task is that many copies of a base task, one per step, and an end "
        f"(`surefoot.tasks.layered_tasks`); got {layers} and {got}"
    )
