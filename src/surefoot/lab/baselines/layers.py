"""Whether a task is a finite-horizon one in layers (`tasks/layered_tasks.py`), as planners with `layers` take it to be.

Their theorems are about H steps of one base task. What they pool over layers, and the undiscounted sums they plan for,
mean nothing on any other task, so the structure is checked and not believed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Integers
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.known import KnownModel

# Rewards and costs of layer h are γ^(-h) times those of layer 0 up to rounding, relative to the largest.
ROUNDING = 1e-9


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
