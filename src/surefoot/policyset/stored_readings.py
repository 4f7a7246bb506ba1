"""The arrays of readings on disk, in the file of the cells.

They are called `readings.…`, those of signals `signals.…`, and the episodes that features of somebody's own are
recognised by `features.…`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import refuse, taken
from surefoot.bounds.readings import Readings
from surefoot.cmdp.episode import Observed
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.policyset.stored_fields import StoredFeatures, StoredReadings
from surefoot.signals.signals import OwnFeatures, Signals

READINGS = ("lower", "upper", "edges", "values", "law")
SIGNALS = ("centre", "scale", "weights", "offset", "source", "low", "high")
FEATURES = ("observations", "actions", "steps", "values")


def reading_arrays(readings: Readings) -> dict[str, NDArray[Any]]:
    signals = readings.signals
    arrays = {f"readings.{name}": getattr(readings, name) for name in READINGS}
    arrays |= {f"signals.{name}": getattr(signals, name) for name in SIGNALS}
    if signals.keys is not None:
        arrays["signals.keys"] = signals.keys
    if signals.own is not None:
        probes = signals.own.probes
        parts = (
            _storable("observations", probes.observations, probes.steps + 1),
            _storable("actions", probes.actions, probes.steps),
            probes.steps,
            signals.own.values,
        )
        arrays |= {f"features.{name}": part for name, part in zip(FEATURES, parts, strict=True)}
    return arrays


def reading_names(stored: StoredReadings | None) -> list[str]:
    """The arrays that there must be."""
    if stored is None:
        return []
    return [
        *(f"readings.{name}" for name in READINGS),
        *(f"signals.{name}" for name in SIGNALS),
        *(("signals.keys",) if stored.kind == "transitions" else ()),
        *(f"features.{name}" for name in FEATURES if stored.own is not None),
    ]


def readings_of(stored: StoredReadings, arrays: dict[str, NDArray[Any]]) -> Readings:
    """Of arrays that are all there."""
    own = None if stored.own is None else _features_of(stored.own, *(arrays[f"features.{name}"] for name in FEATURES))
    try:
        signals = Signals(
            kind=stored.kind,
            **{name: arrays[f"signals.{name}"] for name in SIGNALS},
            steps=stored.steps,
            keys=arrays.get("signals.keys"),
            own=own,
            paid=stored.paid is True,
        )
    except InvalidInput as error:
        raise InvalidInput(f"signals.{error}") from None
    if own is not None and not (signals.paid or own.values.shape[1] == signals.centre.shape[1]):
        raise InvalidInput(
            f"features.values must be {signals.centre.shape[1]} for each episode, as signals.centre, "
            f"got shape {list(own.values.shape)}"
        )
    try:
        return Readings(signals, **{name: arrays[f"readings.{name}"] for name in READINGS})
    except InvalidInput as error:
        raise InvalidInput(f"readings.{error}") from None


def typed(name: str, array: NDArray[Any], kind: str) -> NDArray[Any]:
    """As it was before it became float64."""
    refuse(name, array, ~np.isfinite(array), "must be finite")
    if np.dtype(kind).kind != "f":
        refuse(name, array, np.abs(array) >= 2**53, "must be below 2^53")
    with np.errstate(over="ignore"):
        found = array.astype(kind)
    refuse(name, array, found != array, f"must be of type {kind}")
    return found


def _storable(name: str, rows: NDArray[Any], steps: NDArray[Any]) -> NDArray[Any]:
    """[n, H, ...] as float64, with zeros after the steps of each episode, where anything may stand."""
    rest = np.arange(rows.shape[1]) >= steps[:, None]
    filled = np.where(rest.reshape(*rest.shape, *[1] * (rows.ndim - 2)), 0.0, rows)
    try:
        typed(f"features.{name}", filled, str(rows.dtype))
    except InvalidInput as error:
        raise ArtifactError(f"{error}: the episodes that features are recognised by must be numbers") from None
    return filled


def _features_of(
    stored: StoredFeatures,
    observations: NDArray[Any],
    actions: NDArray[Any],
    steps: NDArray[Any],
    values: NDArray[Any],
) -> OwnFeatures:
    """The name and what they are recognised by; the function is not in the file."""
    sizes: dict[str, int] = {}
    steps, values = taken("features.steps", steps, "n", sizes, np.int64), taken("features.values", values, "n F", sizes)
    for name, rows, more in (("observations", observations, 1), ("actions", actions, 0)):
        length = actions.shape[1] + more if actions.ndim > 1 else None
        if rows.shape[:2] != (len(steps), length):
            raise InvalidInput(
                f"features.{name} must have shape [n, H{'+1' if more else ''}, ...] with n = {len(steps)}, "
                f"got {list(rows.shape)}"
            )
    refuse("features.steps", steps, (steps < 1) | (steps > actions.shape[1]), f"must lie in [1, {actions.shape[1]}]")
    probes = Observed(
        typed("features.observations", observations, stored.observation_type),
        typed("features.actions", actions, stored.action_type),
        steps,
    )
    return OwnFeatures(stored.name, probes, values)
