"""Spaces of environments by their attributes, so that Gymnasium, Gym and imitations of either will do: what fits them.

A space with `low` and `high` is a box, one with `n` and no shape is discrete. Several whole numbers at once
(MultiDiscrete, MultiBinary) are a box of whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import InvalidInput

ROUNDING = 1e-6  # by which an observation may leave its box, relative to the bound: they are often float32


class WholeNumbers(NamedTuple):
    """A box of whole numbers from `low` to `high`."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.low.shape

    @property
    def dtype(self) -> type[np.int64]:
        return np.int64


def as_box(space: Any) -> Any:
    """MultiDiscrete and MultiBinary as boxes; any other space as it is."""
    if hasattr(space, "nvec"):
        low = np.zeros(np.shape(space.nvec), np.int64) + np.asarray(getattr(space, "start", 0), np.int64)
        return WholeNumbers(low, low + np.asarray(space.nvec, np.int64) - 1)
    if hasattr(space, "n") and not is_discrete(space):
        return WholeNumbers(np.zeros(space.shape, np.int64), np.ones(space.shape, np.int64))
    return space


def is_box(space: Any) -> bool:
    space = as_box(space)
    return hasattr(space, "low") and hasattr(space, "high")


def is_discrete(space: Any) -> bool:
    return hasattr(space, "n") and getattr(space, "shape", ()) in ((), None)


def describe_space(space: Any) -> str:
    """What a policy must fit, in words: bounds may differ from task to task, kinds and shapes may not."""
    if isinstance(as_box(space), WholeNumbers):
        return repr(space)
    if is_box(space):
        return f"Box{list(space.shape)}"
    return f"Discrete[{space.n}]" if is_discrete(space) else repr(space)


def shape_of(space: Any) -> tuple[int, ...] | None:
    """Of one observation; None where it is no array."""
    if is_box(space):
        return tuple(as_box(space).shape)
    return () if is_discrete(space) else None


def check_action_space(space: Any) -> None:
    if not is_box(space) and not is_discrete(space):
        raise InvalidInput(
            f"action_space must be discrete, multi-discrete or a box, got {space!r}; wrap the environment in such a one"
        )


# ------------------------------------------------------------------------------------------------------------- actions


def as_env_action(space: Any, action: Any, t: int, clip: bool, batch: tuple[int, ...] = ()) -> Any:
    """`action`, or n of them for batch = (n,), in the form that the environment takes.

    Outside of the space it is refused; `clip` moves it to the nearest end of a box instead, and must have been stated,
    since it makes another policy of the one that acts.
    """
    array = np.asarray(action)
    if is_discrete(space):
        if array.dtype.kind not in "iub" or array.shape != batch:
            raise _action_error(action, t, f"a whole number{_each(batch)}")
        first = int(getattr(space, "start", 0))
        last = first + int(space.n) - 1
        lowest, highest = (array.min(), array.max()) if batch else (array, array)
        if lowest < first or highest > last:
            raise _action_error(action, t, f"from {first} to {last}")
        return array.astype(np.int64) if batch else int(array)
    space = as_box(space)
    shape = (*batch, *space.shape)
    if array.dtype.kind not in ("iu" if np.dtype(space.dtype).kind in "iu" else "iuf") or array.shape != shape:
        raise _action_error(action, t, f"an array {list(shape)} of numbers")
    array = array.astype(space.dtype)
    if clip and not np.isnan(array).any():
        return np.clip(array, space.low, space.high)
    if not ((array >= space.low) & (array <= space.high)).all():
        raise _action_error(
            action, t, f"in the box from {_short(space.low)} to {_short(space.high)} (or state clip_actions=True)"
        )
    return array


def random_action(space: Any, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> NDArray[Any]:
    """One, or n for batch = (n,); an unbounded box is tried from -1 to 1."""
    if is_discrete(space):
        return int(getattr(space, "start", 0)) + rng.integers(int(space.n), size=batch)
    space = as_box(space)
    low, high = (np.asarray(end, dtype=np.float64) for end in (space.low, space.high))
    least = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high - 1, -1.0))
    most = np.where(np.isfinite(high), high, least + np.where(np.isfinite(low), 1.0, 2.0))
    drawn = rng.uniform(least, most, (*batch, *space.shape))
    return drawn if np.dtype(space.dtype).kind == "f" else np.round(drawn).astype(space.dtype)


# -------------------------------------------------------------------------------------------------------- observations


def contains(space: Any, observation: Any) -> bool:
    """Whether an observation is of its space; of a box by shape and values, since many are float64 in a float32 box."""
    if is_box(space):
        space = as_box(space)
        array = np.asarray(observation)
        if array.dtype.kind not in "iufb" or array.shape != tuple(space.shape):
            return False
        low, high = (np.asarray(end, dtype=np.float64) for end in (space.low, space.high))
        slack = ROUNDING * (1 + sum(np.where(np.isfinite(end), np.abs(end), 0) for end in (low, high)))
        return bool(((array >= low - slack) & (array <= high + slack)).all())
    if is_discrete(space):
        array, first = np.asarray(observation), int(getattr(space, "start", 0))
        return array.dtype.kind in "iu" and not array.ndim and first <= int(array) < first + int(space.n)
    return bool(space.contains(observation)) if hasattr(space, "contains") else True


def flat(observation: Any) -> list[float | str]:
    """All numbers of an observation, in a fixed order; texts as they are."""
    if isinstance(observation, Mapping):
        return [number for key in sorted(observation) for number in flat(observation[key])]
    if isinstance(observation, str):
        return [observation]
    if isinstance(observation, tuple | list):
        return [number for part in observation for number in flat(part)]
    array = np.asarray(observation)
    return [float(number) for number in array.flat] if array.dtype.kind in "iufb" else [repr(observation)]


# -------------------------------------------------------------------------------------------------------------- errors


def _action_error(action: Any, t: int, right: str) -> InvalidInput:
    return InvalidInput(f"the action at step {t} must be {right}, got {_short(action)}")


def _each(batch: tuple[int, ...]) -> str:
    return f" for each of {batch[0]} episodes" if batch else ""


def _short(value: Any) -> str:
    text = repr(value.tolist() if isinstance(value, np.ndarray | np.generic) else value)
    return text if len(text) <= 120 else f"{text[:117]}..."
