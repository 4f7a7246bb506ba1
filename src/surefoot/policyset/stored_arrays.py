"""Policies and cells as fields of the manifest and arrays of the safetensors files, and what is made of these again.

`CELL_ARRAYS` is the table of all arrays that cells have: writing, reading, the version of the format and the types that
are accepted follow from it. The arrays of policies are those of their `to_arrays`.
"""

from __future__ import annotations

import math
import pkgutil
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, as_shape, raise_at
from surefoot.bounds.cells import Cells, Readings
from surefoot.cmdp.episode import Observed
from surefoot.cmdp.external_policy import ExternalPolicy
from surefoot.cmdp.policy import Policy
from surefoot.control.mlp_policy import CategoricalPolicy, MLPPolicy
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.policyset.manifest import (
    CELLS,
    MANIFEST,
    MAX_ELEMENTS,
    MIXED,
    POLICIES,
    Arrays,
    Manifest,
    StoredCells,
    StoredFeatures,
    StoredOwn,
    StoredPolicy,
    StoredReadings,
)
from surefoot.signals.signals import OwnFeatures, Signals
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.transition_model import LARGEST_TABLE, TransitionModel, structure_of


def _decode_settings(kind: str, arrays: Arrays) -> Policy:
    """Settings of the laboratory's systems, whose module is imported when a set holds some."""
    decode: Callable[[Arrays], Policy] = pkgutil.resolve_name(f"surefoot.lab.{kind}.from_arrays")
    return decode(arrays)


DECODERS: dict[str, Callable[[Arrays], Policy]] = {
    "tabular": TabularPolicy.from_arrays,
    "timed": TimedPolicy.from_arrays,
    "mlp": MLPPolicy.from_arrays,
    "categorical-mlp": CategoricalPolicy.from_arrays,
    "insulin": partial(_decode_settings, "pump.settings:InsulinSettings"),
    "restart-hour": partial(_decode_settings, "buildings.settings:RestartHour"),
    "pump-speed": partial(_decode_settings, "water.settings:PumpSpeed"),
}

# Types on disk, the usual one first. Single precision is for what no guarantee rests on, where it loses nothing: sets
# that are shipped should be small.
FLOAT, WHOLE, NARROW = ("F64",), ("I64",), ("F64", "F32")

# The manifest's record of the cells, without what is None.
Record: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Stored:
    """An array in the file of the cells.

    Attributes:
        part: what has it: the cells themselves, or their model, readings, signals or features of somebody's own.
        name: of the array there.
        types: accepted on disk.
        since: the version of the format that has it first.
        announced: whether the record says that it is there.
    """

    part: str
    name: str
    types: tuple[str, ...]
    since: tuple[int, int]
    announced: Callable[[Record], bool]

    @property
    def key(self) -> str:
        """Its name in the file."""
        return f"{self.part}.{self.name}" if self.part else self.name


def _together(
    part: str, names: str, types: tuple[str, ...], since: tuple[int, int], announced: Callable[[Record], bool]
) -> list[Stored]:
    return [Stored(part, name, types, since, announced) for name in names.split()]


def _has_model(cells: Record) -> bool:
    return bool(cells["model"] != "none")


def _has_readings(cells: Record) -> bool:
    return "readings" in cells


def _has_features(cells: Record) -> bool:
    return _has_readings(cells) and "own" in cells["readings"]


CELL_ARRAYS = (
    *_together("", "low high prior lower upper", FLOAT, (1, 0), lambda c: True),
    *_together("", "start_lower start_upper", FLOAT, (1, 0), lambda c: c["by_start"]),
    *_together("", "first_states", WHOLE, (1, 3), lambda c: "first_states" in c),
    *_together("", "outside", FLOAT, (1, 0), lambda c: c["outside"]),
    *_together("model", "row_type", WHOLE, (1, 0), _has_model),
    *_together("model", "probability radius start", FLOAT, (1, 0), _has_model),
    *_together("model", "classes", WHOLE, (1, 0), lambda c: _has_model(c) and "sparse" not in c),
    *_together("model", "indptr successor entry_class", WHOLE, (1, 3), lambda c: _has_model(c) and "sparse" in c),
    *_together("model", "reward cost", FLOAT, (1, 0), lambda c: _has_model(c) and "payments" not in c),
    *_together("model", "payments", FLOAT, (1, 3), lambda c: _has_model(c) and c.get("payments") == "transitions"),
    *_together("model", "base slope", FLOAT, (1, 0), lambda c: c["model"] == "affine"),
    *_together("readings", "lower upper edges values", FLOAT, (1, 4), _has_readings),
    *_together("readings", "law", NARROW, (1, 4), _has_readings),
    *_together("signals", "centre scale weights offset low high", FLOAT, (1, 4), _has_readings),
    *_together("signals", "source", WHOLE, (1, 4), _has_readings),
    *_together("signals", "keys", WHOLE, (1, 4), lambda c: _has_readings(c) and c["readings"]["kind"] == "transitions"),
    *_together("features", "observations actions values", FLOAT, (1, 4), _has_features),
    *_together("features", "steps", WHOLE, (1, 4), _has_features),
)
TYPES = {array.key: array.types for array in CELL_ARRAYS}

# Arrays that are not an attribute of that name.
ELSEWHERE: dict[str, Callable[[Any], NDArray[Any]]] = {
    "model.classes": lambda model: model.class_table,
    "model.entry_class": lambda model: model.classes,
    "model.base": lambda model: model.affine[0],
    "model.slope": lambda model: model.affine[1],
    "features.observations": lambda own: _storable("observations", own.probes.observations, own.probes.steps + 1),
    "features.actions": lambda own: _storable("actions", own.probes.actions, own.probes.steps),
    "features.steps": lambda own: own.probes.steps,
}


# ----------------------------------------------------------------------------------------------------- writing policies


def policy_fields(policies: Sequence[Policy]) -> dict[str, Any]:
    if _uniform(policies):
        return {"policy_kind": policies[0].kind}
    return {
        "policy_kind": MIXED,
        "policies": [_serialize_policy(policy).model_dump(exclude_none=True) for policy in policies],
    }


def policy_arrays(policies: Sequence[Policy]) -> Arrays:
    """Stacked [1+n, ...] where they are alike, else under a name that begins with the number of the policy."""
    each = [policy.to_arrays() for policy in policies]
    if _uniform(policies):
        return {key: _lossless(key, np.stack([arrays[key] for arrays in each])) for key in sorted(each[0])}
    return {
        f"{k}.{key}": _lossless(key, array) for k, arrays in enumerate(each) for key, array in sorted(arrays.items())
    }


def _uniform(policies: Sequence[Policy]) -> bool:
    """Whether the arrays of all policies can be stacked, and are all that there is of them."""
    first, *others = ({name: array.shape for name, array in policy.to_arrays().items()} for policy in policies)
    kinds = {policy.kind for policy in policies}
    return len(kinds) == 1 and ExternalPolicy.kind not in kinds and all(each == first for each in others)


def _serialize_policy(policy: Policy) -> StoredPolicy:
    if not isinstance(policy, ExternalPolicy):
        return StoredPolicy(kind=policy.kind)
    own = StoredOwn(
        fingerprint=policy.fingerprint,
        given=policy.given is not None,
        deterministic=policy.deterministic,
        asked_likeliest=policy.asked_likeliest,
        observation_shape=list(policy.observations.shape[1:]),
        observation_type=policy.observation_type,
        action_type="float64" if policy.actions.dtype.kind == "f" else "int64",
    )
    return StoredPolicy(kind=policy.kind, own=own)


def _lossless(name: str, array: NDArray[Any]) -> Floats:
    if array.dtype not in (np.float16, np.float32, np.float64):
        raise ArtifactError(f"policy array {name!r} has type {array.dtype}, must be float64 or a smaller float")
    return np.array(array, dtype="<f8", order="C")  # ascontiguousarray would make [1] of a single number


# -------------------------------------------------------------------------------------------------------- writing cells


def cell_fields(cells: Cells) -> dict[str, Any]:
    """Those of `StoredCells`, but for what is not there."""
    model = cells.model
    found = {
        "source": cells.source,
        "uncovered": cells.uncovered,
        "by_start": cells.start_lower is not None,
        "outside": len(cells.outside) > 0,
        "first_states": None if cells.first_states is None else True,
        "model": "none" if model is None else "balls" if model.affine is None else "affine",
        "sparse": None if model is None or _uses_dense_tables(model) else True,
        "payments": None if model is None else _payments(model),
        "readings": None if cells.readings is None else _reading_fields(cells.readings),
    }
    return {name: value for name, value in found.items() if value is not None}


def _uses_dense_tables(model: TransitionModel) -> bool:
    """Small tables are written as they were before 1.3, so that sets keep their bytes and their digest."""
    return model.reward is not None and (len(model.indptr) - 1) * model.n_states <= LARGEST_TABLE


def _payments(model: TransitionModel) -> str | None:
    if model.reward is not None:
        return None
    return "unknown" if model.payments is None else "transitions"


def _reading_fields(readings: Readings) -> dict[str, Any]:
    signals, own = readings.signals, readings.signals.own
    found: dict[str, Any] = {"kind": signals.kind, "steps": signals.steps}
    if signals.paid:
        found["paid"] = True
    if own is not None:
        types = {"observation_type": own.probes.observations.dtype, "action_type": own.probes.actions.dtype}
        found["own"] = {"name": own.name, **{name: str(dtype) for name, dtype in types.items()}}
    return found


def format_version(record: Record | None) -> tuple[int, int]:
    """The first that has all the arrays, and not before 1.3, so that sets without readings keep their bytes."""
    return max([(1, 3), *(array.since for array in CELL_ARRAYS if record is not None and array.announced(record))])


def cell_arrays(cells: Cells) -> Arrays:
    record, signals = cell_fields(cells), cells.readings and cells.readings.signals
    parts: dict[str, Any] = {
        "": cells,
        "model": cells.model,
        "readings": cells.readings,
        "signals": signals,
        "features": signals and signals.own,
    }
    found = {}
    for array in CELL_ARRAYS:
        if array.announced(record):
            value = ELSEWHERE.get(array.key, attrgetter(array.name))(parts[array.part])
            found[array.key] = np.ascontiguousarray(value, dtype="<i8" if array.types is WHOLE else "<f8")
    return found


def _storable(name: str, rows: NDArray[Any], steps: NDArray[Any]) -> NDArray[Any]:
    """[n, H, ...] as float64, with zeros after the steps of each episode, where anything may stand."""
    rest = np.arange(rows.shape[1]) >= steps[:, None]
    filled = np.where(rest.reshape(*rest.shape, *[1] * (rows.ndim - 2)), 0.0, rows)
    try:
        _cast_exactly(f"features.{name}", filled, str(rows.dtype))
    except InvalidInput as error:
        raise ArtifactError(f"{error}: the episodes that features are recognised by must be numbers") from None
    return filled


# ----------------------------------------------------------------------------------------------------- reading policies


def policies_of(folder: Path, manifest: Manifest, arrays: Arrays) -> list[Policy]:
    count = 1 + len(manifest.entries)
    if (manifest.policy_kind == MIXED) != (manifest.policies is not None):
        raise ArtifactError(f"{folder / MANIFEST}: must have policies if and only if policy_kind is {MIXED!r}")
    uniform = manifest.policies is None
    stored = manifest.policies or [StoredPolicy(kind=manifest.policy_kind)] * (count if uniform else 0)
    names = manifest.names or [""] * count
    for what, found, more in (("policies", stored, ", one per entry and the safe one"), ("names", names, "")):
        if len(found) != count:
            raise ArtifactError(f"{folder / MANIFEST}: {what} must hold {count}{more}, found {len(found)}")
    parts = _rows(folder, count, arrays) if uniform else _split_by_policy(folder, count, arrays)
    return [_policy(folder, k, stored[k], names[k], parts[k]) for k in range(count)]


def _rows(folder: Path, count: int, stacked: Arrays) -> list[Arrays]:
    for name, array in stacked.items():
        if array.shape[:1] != (count,):
            raise ArtifactError(
                f"{folder / POLICIES}: {name} has shape {list(array.shape)}, must be [{count}, …]: "
                f"the safe policy and one per entry of {MANIFEST}"
            )
    return [{name: array[k] for name, array in stacked.items()} for k in range(count)]


def _split_by_policy(folder: Path, count: int, arrays: Arrays) -> list[Arrays]:
    parts: dict[str, Arrays] = {str(k): {} for k in range(count)}
    for key, array in arrays.items():
        number, _, name = key.partition(".")
        if number not in parts:
            raise ArtifactError(
                f"{folder / POLICIES}: arrays must be named as '0.probabilities', found {reprlib.repr(key)}"
            )
        parts[number][name] = array
    return list(parts.values())


def _policy(folder: Path, k: int, stored: StoredPolicy, name: str, arrays: Arrays) -> Policy:
    """Policy k, of exactly these arrays."""
    path, decode = folder / POLICIES, DECODERS.get(stored.kind)
    if stored.kind == ExternalPolicy.kind and stored.own is not None:
        decode = partial(_external_policy, stored.own, name)
    if decode is None:
        raise ArtifactError(
            f"{folder / MANIFEST}: policy_kind must be one of {sorted(DECODERS)}, found {reprlib.repr(stored.kind)}"
        )
    try:
        policy = decode(arrays)
    except KeyError as missing:
        raise ArtifactError(f"{path}: must hold the array {missing}, found {sorted(arrays)}") from None
    except InvalidInput as error:
        raise ArtifactError(f"{path}: policy {k} (0 is the safe one): {error}") from None
    expected = sorted(policy.to_arrays())
    if expected != sorted(arrays):
        raise ArtifactError(f"{path}: must hold exactly the arrays {expected}, found {sorted(arrays)}")
    return policy


def _external_policy(stored: StoredOwn, name: str, arrays: Arrays) -> ExternalPolicy:
    """The name and what the controller is recognised by; the controller is not in the file."""
    shape, given = tuple(stored.observation_shape), stored.fingerprint if stored.given else None
    if math.prod(shape) > MAX_ELEMENTS:
        raise InvalidInput(f"observations must have at most {MAX_ELEMENTS} numbers, got shape {list(shape)}")
    nothing = stored.given or stored.fingerprint is None
    observations = np.empty((0, *shape)) if nothing else arrays["observations"]
    actions = np.empty((0, 1)) if nothing else arrays["actions"]
    if not observations.ndim or observations.shape[1:] != shape:
        raise InvalidInput(f"observations must have shape {['n', *shape]}, got {list(observations.shape)}")
    if not actions.ndim:
        raise InvalidInput("actions must have shape [n, ...], got []")
    policy = ExternalPolicy(
        name,
        stored.deterministic,
        _cast_exactly("observations", observations, stored.observation_type),
        _cast_exactly("actions", actions, stored.action_type),
        stored.asked_likeliest,
        given,
    )
    if policy.fingerprint != stored.fingerprint:
        raise InvalidInput(f"fingerprint must be that of the arrays, {policy.fingerprint}, got {stored.fingerprint}")
    return policy


def _cast_exactly(name: str, array: NDArray[Any], kind: str) -> NDArray[Any]:
    """As it was before it became float64."""
    raise_at(name, array, ~np.isfinite(array), "must be finite")
    if np.dtype(kind).kind != "f":
        raise_at(name, array, np.abs(array) >= 2**53, "must be below 2^53")
    with np.errstate(over="ignore"):
        found = array.astype(kind)
    raise_at(name, array, found != array, f"must be of type {kind}")
    return found


# -------------------------------------------------------------------------------------------------------- reading cells


def cells_of(folder: Path, stored: StoredCells, arrays: Arrays) -> Cells:
    path, record = folder / CELLS, stored.model_dump(exclude_none=True)
    announced = [array for array in CELL_ARRAYS if array.announced(record)]
    expected = sorted(array.key for array in announced)
    if sorted(arrays) != expected:
        raise ArtifactError(
            f"{path}: must hold exactly the arrays {expected} that {MANIFEST} announces, found {sorted(arrays)}"
        )
    parts: dict[str, Arrays] = {array.part: {} for array in announced}
    for array in announced:
        parts[array.part][array.name] = arrays[array.key]
    optional = {"start_lower": None, "start_upper": None, "outside": np.empty((0, *arrays["low"].shape[1:]))}
    own: dict[str, Any] = optional | parts[""]
    try:
        return Cells(
            source=stored.source,
            uncovered=stored.uncovered,
            model=_model_of(parts["model"]) if "model" in parts else None,
            readings=None if stored.readings is None else _readings_of(stored.readings, parts),
            **own,
        )
    except InvalidInput as error:
        raise ArtifactError(f"{path}: {error}") from None


def _model_of(arrays: Arrays) -> TransitionModel:
    rest = {name: array for name, array in arrays.items() if name not in ("base", "slope", "classes", "entry_class")}
    affine = (arrays["base"], arrays["slope"]) if "base" in arrays else None
    with _prefix_errors("model"):
        if "classes" in arrays:
            count = len(as_shape("row_type", arrays["row_type"], "C", {}, np.int64))
            structure = structure_of(arrays["classes"], count)
            rest |= dict(zip(("indptr", "successor", "classes"), structure, strict=True))
        else:
            rest["classes"] = arrays["entry_class"]
        return TransitionModel(affine=affine, **rest)


def _readings_of(stored: StoredReadings, parts: Mapping[str, Arrays]) -> Readings:
    own = None if stored.own is None else _features_of(stored.own, **parts["features"])
    signal_arrays: dict[str, Any] = parts["signals"]
    with _prefix_errors("signals"):
        signals = Signals(kind=stored.kind, steps=stored.steps, own=own, paid=stored.paid is True, **signal_arrays)
    if own is not None and not (signals.paid or own.values.shape[1] == signals.centre.shape[1]):
        raise InvalidInput(
            f"features.values must be {signals.centre.shape[1]} for each episode, as signals.centre, "
            f"got shape {list(own.values.shape)}"
        )
    with _prefix_errors("readings"):
        return Readings(signals, **parts["readings"])


def _features_of(
    stored: StoredFeatures,
    observations: NDArray[Any],
    actions: NDArray[Any],
    steps: NDArray[Any],
    values: NDArray[Any],
) -> OwnFeatures:
    """The name and what they are recognised by; the function is not in the file."""
    sizes: dict[str, int] = {}
    steps, values = (
        as_shape("features.steps", steps, "n", sizes, np.int64),
        as_shape("features.values", values, "n F", sizes),
    )
    for name, rows, more in (("observations", observations, 1), ("actions", actions, 0)):
        length = actions.shape[1] + more if actions.ndim > 1 else None
        if rows.shape[:2] != (len(steps), length):
            raise InvalidInput(
                f"features.{name} must have shape [n, H{'+1' if more else ''}, ...] with n = {len(steps)}, "
                f"got {list(rows.shape)}"
            )
    raise_at("features.steps", steps, (steps < 1) | (steps > actions.shape[1]), f"must lie in [1, {actions.shape[1]}]")
    probes = Observed(
        _cast_exactly("features.observations", observations, stored.observation_type),
        _cast_exactly("features.actions", actions, stored.action_type),
        steps,
    )
    return OwnFeatures(stored.name, probes, values)


@contextmanager
def _prefix_errors(part: str) -> Iterator[None]:
    """What is wrong there names the array with its part, as the file does."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{part}.{error}") from None
