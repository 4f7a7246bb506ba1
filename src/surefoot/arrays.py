"""Arrays and numbers from outside: the types that everything shares, and each check written once.

Every check returns the value in the form in which it is used and raises an `InvalidInput` that names the argument, the
value received and what would be right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.errors import InvalidInput

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.integer]
Mask: TypeAlias = NDArray[np.bool_]

AnyArray = TypeVar("AnyArray", bound=NDArray[Any])

# Rows of probabilities may miss 1 by this much; they are then divided by their sum. A sum of 1 - 1e-9 in place of 1
# would be wrong by e after a billion transitions. What is left is rounding, which dividing again would not mend.
ROW_SUM_TOLERANCE, ROW_SUM_ROUNDING = 1e-9, 1e-14


# -------------------------------------------------------------------------------------------------------------- numbers


def number(name: str, value: Any) -> float:
    """`value` as a finite number."""
    try:
        plain = float(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be a number, got {value!r}", argument=name) from None
    if not np.isfinite(plain):
        raise InvalidInput(f"{name} must be finite, got {plain}", argument=name)
    return plain


def check_int(name: str, value: Any, least: int = 1) -> int:
    """`value` as a plain whole number of at least `least`: NumPy's integers are none to JSON, and True is not 1."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidInput(f"{name} must be a whole number of at least {least}, got {value!r}", argument=name)
    return int(value)


def check_unit_interval(name: str, value: Any) -> float:
    """`value` as a number strictly between 0 and 1: a probability that is neither excluded nor certain."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < 1:
        raise InvalidInput(f"{name} must lie strictly between 0 and 1, got {value!r}", argument=name)
    return float(value)


def flag(name: str, value: Any) -> bool:
    """`value` as True or False: the string "no" would count as yes."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidInput(f"{name} must be True or False, got {value!r}", argument=name)
    return bool(value)


def generator(name: str, value: Any) -> np.random.Generator:
    """`value` as a source of randomness: a seed, or NumPy's global state, would be drawn from unseen."""
    if not isinstance(value, np.random.Generator):
        raise InvalidInput(f"{name} must be a numpy.random.Generator, got {type(value).__name__}", argument=name)
    return value


# --------------------------------------------------------------------------------------------------------------- arrays


def finite_array(name: str, value: Any) -> Floats:
    """`value` as a new float64 array without NaN or infinity."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be an array of numbers, got {type(value).__name__}", argument=name) from None
    raise_at(name, array, ~np.isfinite(array), "must be finite")
    return array


def make_readonly(array: AnyArray) -> AnyArray:
    """The array itself, read-only from now on."""
    array.setflags(write=False)
    return array


def assign(target: object, **values: Any) -> None:
    """Set fields of a frozen dataclass from its own constructor; arrays become read-only."""
    for name, value in values.items():
        object.__setattr__(target, name, make_readonly(value) if isinstance(value, np.ndarray) else value)


def as_shape(name: str, value: Any, axes: str, sizes: dict[str, int], kind: type = np.float64) -> NDArray[Any]:
    """`value` read-only, of a shape such as "J P 1+m"; an axis met for the first time adds its length to `sizes`.

    Axes must not be empty unless their name ends in a prime. The array is not copied where that can be avoided.
    """
    array = np.asarray(value)
    if array.dtype.kind not in ("iu" if kind is np.int64 else "iuf"):
        what = "whole numbers" if kind is np.int64 else "numbers"
        raise InvalidInput(
            f"{name} must be an array of {what}, got {type(value).__name__} of type {array.dtype}", argument=name
        )
    labels = axes.split()
    known = [sizes.get(label, "any" if label.endswith("'") else "≥ 1") for label in labels]
    fits = array.ndim == len(labels) and all(
        sizes.setdefault(label, length) == length and (length or label.endswith("'"))
        for label, length in zip(labels, array.shape, strict=True)
    )
    if not fits:
        raise InvalidInput(
            f"{name} must have shape [{', '.join(labels)}] = [{', '.join(map(str, known))}], got {list(array.shape)}",
            argument=name,
        )
    borrowed = array.flags.writeable and not array.flags.owndata  # changing what it is a view of would change it
    array = np.array(array, dtype=kind, order="C", copy=True if borrowed else None)
    finite = np.isfinite(array)
    if not finite.all():
        raise_at(name, array, ~finite, "must be finite")
    return make_readonly(array)


def assign_as_shape(target: Any, name: str, axes: str, sizes: dict[str, int], kind: type = np.float64) -> None:
    """`as_shape`, for a field of a frozen dataclass."""
    object.__setattr__(target, name, as_shape(name, getattr(target, name), axes, sizes, kind))


def check_indices(name: str, values: Integers, size: int) -> None:
    """An index that does not exist would be counted as another one."""
    outside = (values < 0) | (values >= size)
    if outside.any():
        raise InvalidInput(f"{name} must lie in [0, {size}), got {values[outside].flat[0]}", argument=name)


def raise_at(
    name: str,
    values: NDArray[Any],
    bad: Mask,
    rule: str,
    place: Callable[[int], tuple[int, ...]] | None = None,
) -> None:
    """Raise for the first entry of `values` marked bad, naming its index; `place` maps a flat index if given."""
    if not np.count_nonzero(bad):  # several times as fast as any(), and most checks find nothing
        return
    flat = int(np.argmax(bad))
    index = place(flat) if place else np.unravel_index(flat, bad.shape)
    where = f"{name}[{', '.join(map(str, index))}]" if len(index) else name
    raise InvalidInput(f"{where} {rule}, got {values.flat[flat].item()!r}", argument=name)


# -------------------------------------------------------------------------------------------------------- probabilities


def distributions(name: str, value: Any, shape: str) -> Floats:
    """`value` as a read-only array of as many axes as `shape` such as "[S, A]" names, each last-axis row divided by
    its sum, which must be 1 within `ROW_SUM_TOLERANCE`."""
    array = finite_array(name, value)
    if array.ndim != shape.count(",") + 1 or 0 in array.shape:
        raise InvalidInput(f"{name} must have shape {shape}, got {list(array.shape)}", argument=name)
    raise_at(name, array, array < 0, "must not be negative")
    check_sums(name, array.sum(axis=-1))
    return make_readonly(normalise_rows(array))


def check_sums(name: str, sums: Any) -> None:
    """Sums [...] of rows of probabilities are 1."""
    wrong = np.abs(np.asarray(sums) - 1) > ROW_SUM_TOLERANCE
    if wrong.any():
        index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        where = f"{name}[{', '.join(map(str, index))}]" if index else name
        raise InvalidInput(
            f"{where} must sum to 1 (within {ROW_SUM_TOLERANCE:g}), got {float(np.asarray(sums)[index]):.12g}",
            argument=name,
        )


def normalise_rows(rows: Floats) -> Floats:
    """Probabilities [..., n], each last-axis row divided by its sum unless that is 1 but for rounding."""
    sums = rows.sum(axis=-1, keepdims=True)
    quotient: Floats = rows / np.where(np.abs(sums - 1) > ROW_SUM_ROUNDING, sums, 1.0)
    return quotient


DIGEST_DIGITS = 12


def format_digits(value: ArrayLike) -> list[str]:
    """To the digits that all processors agree on, for digests."""
    return [f"{each:.{DIGEST_DIGITS}g}" for each in np.ravel(value)]


def join_parts(observation: Any, batch: int = 0) -> NDArray[Any]:
    """An observation as one array: of several parts, a dictionary in the order of its names or a tuple, all numbers one
    after the other, as Gymnasium's `flatten` has them of boxes; the first `batch` axes are kept."""
    if isinstance(observation, Mapping):
        observation = tuple(observation[name] for name in sorted(observation))
    if not isinstance(observation, tuple):
        return np.array(observation)
    parts = [join_parts(part, batch) for part in observation]
    return np.concatenate([part.reshape(*part.shape[:batch], -1) for part in parts], axis=batch)
