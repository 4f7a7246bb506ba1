"""The arrays of a policy set on disk: which file holds which, and what is made of them again."""

from __future__ import annotations

import math
import pkgutil
import reprlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats
from surefoot.bounds.cells import Cells
from surefoot.cmdp.own_policy import OwnPolicy
from surefoot.cmdp.policy import Policy
from surefoot.control.mlp_policy import CategoricalPolicy, MLPPolicy
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.policyset.contents import Contents
from surefoot.policyset.manifest import CELLS, INTEGERS, MANIFEST, MIXED, POLICIES, stored_densely, uniform
from surefoot.policyset.stored_fields import MAX_ELEMENTS, Manifest, StoredCells, StoredOwn, StoredPolicy
from surefoot.policyset.stored_readings import reading_arrays, reading_names, readings_of, typed
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.transition_model import TransitionModel, structure_of


def _insulin(arrays: dict[str, NDArray[Any]]) -> Policy:
    """Settings of the laboratory's pump, whose module is imported when a set holds some."""
    decode: Callable[[dict[str, NDArray[Any]]], Policy] = pkgutil.resolve_name(
        "surefoot.lab.pump.settings:InsulinSettings.from_arrays"
    )
    return decode(arrays)


DECODERS: dict[str, Callable[[dict[str, NDArray[Any]]], Policy]] = {
    "tabular": TabularPolicy.from_arrays,
    "timed": TimedPolicy.from_arrays,
    "mlp": MLPPolicy.from_arrays,
    "categorical-mlp": CategoricalPolicy.from_arrays,
    "insulin": _insulin,
}

BOUNDS = ("low", "high", "prior", "lower", "upper")
BY_START = ("start_lower", "start_upper")
TRANSITIONS = ("row_type", "probability", "radius", "start")
BY_PAIR = ("reward", "cost")
SPARSE = ("indptr", "successor", "entry_class")

Arrays: TypeAlias = dict[str, NDArray[Any]]


# -------------------------------------------------------------------------------------------------------------- writing


def grouped(policy_set: Contents) -> dict[str, Arrays]:
    """File name -> the arrays in it."""
    groups = {POLICIES: _policy_arrays(policy_set)}
    if policy_set.cells is not None:
        groups[CELLS] = _cell_arrays(policy_set.cells)
    return groups


def _policy_arrays(policy_set: Contents) -> Arrays:
    """Stacked [1+n, ...] where they are alike, else under a name that begins with the number of the policy."""
    each = [policy.to_arrays() for policy in policy_set.policies]
    if uniform(policy_set.policies):
        return {key: _lossless(key, np.stack([arrays[key] for arrays in each])) for key in sorted(each[0])}
    return {
        f"{k}.{key}": _lossless(key, array) for k, arrays in enumerate(each) for key, array in sorted(arrays.items())
    }


def _lossless(name: str, array: NDArray[Any]) -> Floats:
    if array.dtype not in (np.float16, np.float32, np.float64):
        raise ArtifactError(f"policy array {name!r} has type {array.dtype}, must be float64 or a smaller float")
    return np.array(array, dtype="<f8", order="C")  # ascontiguousarray would make [1] of a single number


def _cell_arrays(cells: Cells) -> Arrays:
    arrays: Arrays = {name: getattr(cells, name) for name in BOUNDS}
    if cells.start_lower is not None:
        arrays |= {name: getattr(cells, name) for name in BY_START}
    if cells.first_states is not None:
        arrays["first_states"] = cells.first_states
    if len(cells.outside):
        arrays["outside"] = cells.outside
    if cells.model is not None:
        arrays |= {f"model.{name}": array for name, array in _model_arrays(cells.model).items()}
    if cells.readings is not None:
        arrays |= reading_arrays(cells.readings)
    return {
        name: np.ascontiguousarray(array, dtype="<i8" if name in INTEGERS else "<f8") for name, array in arrays.items()
    }


def _model_arrays(model: TransitionModel) -> Arrays:
    arrays: Arrays = {name: getattr(model, name) for name in TRANSITIONS}
    if stored_densely(model):
        arrays["classes"] = model.class_table
    else:
        arrays |= {"indptr": model.indptr, "successor": model.successor, "entry_class": model.classes}
    arrays |= {name: getattr(model, name) for name in (*BY_PAIR, "payments") if getattr(model, name) is not None}
    if model.affine is not None:
        arrays["base"], arrays["slope"] = model.affine
    return arrays


# -------------------------------------------------------------------------------------------------------------- reading


def policies_of(folder: Path, manifest: Manifest, arrays: Arrays) -> list[Policy]:
    path, count = folder / POLICIES, 1 + len(manifest.entries)
    if (manifest.policy_kind == MIXED) != (manifest.policies is not None):
        raise ArtifactError(f"{folder / MANIFEST}: must have policies if and only if policy_kind is {MIXED!r}")
    if manifest.policies is None:
        return _stacked_policies(folder, manifest.policy_kind, count, arrays)
    if len(manifest.policies) != count:
        raise ArtifactError(
            f"{folder / MANIFEST}: policies must hold {count}, one per entry and the safe one, "
            f"found {len(manifest.policies)}"
        )
    names = manifest.names or [""] * count
    if len(names) != count:
        raise ArtifactError(f"{folder / MANIFEST}: names must hold {count}, found {len(names)}")
    parts: dict[str, Arrays] = {str(k): {} for k in range(count)}
    for key, array in arrays.items():
        number, _, name = key.partition(".")
        if number not in parts:
            raise ArtifactError(f"{path}: arrays must be named as '0.probabilities', found {reprlib.repr(key)}")
        parts[number][name] = array
    return [_decoded(folder, k, manifest.policies[k], names[k], parts[str(k)]) for k in range(count)]


def _stacked_policies(folder: Path, kind: str, count: int, stacked: Arrays) -> list[Policy]:
    for name, array in stacked.items():
        if array.shape[:1] != (count,):
            raise ArtifactError(
                f"{folder / POLICIES}: {name} has shape {list(array.shape)}, must be [{count}, …]: "
                f"the safe policy and one per entry of {MANIFEST}"
            )
    parts = [{name: array[k] for name, array in stacked.items()} for k in range(count)]
    return [_decoded(folder, k, StoredPolicy(kind=kind), "", part) for k, part in enumerate(parts)]


def _decoded(folder: Path, k: int, stored: StoredPolicy, name: str, arrays: Arrays) -> Policy:
    """Policy k, of exactly these arrays."""
    path, decode = folder / POLICIES, DECODERS.get(stored.kind)
    if stored.kind == OwnPolicy.kind and stored.own is not None:
        decode = partial(_own_policy, stored.own, name)
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


def _own_policy(stored: StoredOwn, name: str, arrays: Arrays) -> OwnPolicy:
    """The name and what the controller is recognised by; the controller is not in the file."""
    shape, given = tuple(stored.observation_shape), stored.fingerprint if stored.given else None
    if math.prod(shape) > MAX_ELEMENTS:
        raise InvalidInput(f"observations must have at most {MAX_ELEMENTS} numbers, got shape {list(shape)}")
    nothing = stored.given or stored.fingerprint is None
    observations = np.empty((0, *shape)) if nothing else arrays["observations"]
    actions = np.empty((0, 1)) if nothing else arrays["actions"]
    if observations.shape[1:] != shape:
        raise InvalidInput(f"observations must have shape {['n', *shape]}, got {list(observations.shape)}")
    policy = OwnPolicy(
        name,
        stored.deterministic,
        typed("observations", observations, stored.observation_type),
        typed("actions", actions, stored.action_type),
        stored.asked_likeliest,
        given,
    )
    if policy.fingerprint != stored.fingerprint:
        raise InvalidInput(f"fingerprint must be that of the arrays, {policy.fingerprint}, got {stored.fingerprint}")
    return policy


def cells_of(path: Path, stored: StoredCells, arrays: Arrays) -> Cells:
    expected = {
        *BOUNDS,
        *(BY_START if stored.by_start else ()),
        *(("first_states",) if stored.first_states else ()),
        *(("outside",) if stored.outside else ()),
        *(f"model.{name}" for name in _model_names(stored)),
        *reading_names(stored.readings),
    }
    if set(arrays) != expected:
        raise ArtifactError(
            f"{path}: must hold exactly the arrays {sorted(expected)} that {MANIFEST} announces, found {sorted(arrays)}"
        )
    try:
        bounds: dict[str, Any] = {name: arrays[name] for name in BOUNDS}
        return Cells(
            **bounds,
            start_lower=arrays.get("start_lower"),
            start_upper=arrays.get("start_upper"),
            source=stored.source,
            uncovered=stored.uncovered,
            model=None if stored.model == "none" else _model(arrays),
            outside=arrays.get("outside", np.empty((0, *arrays["low"].shape[1:]))),
            first_states=arrays.get("first_states"),
            readings=None if stored.readings is None else readings_of(stored.readings, arrays),
        )
    except InvalidInput as error:
        raise ArtifactError(f"{path}: {error}") from None


def _model_names(stored: StoredCells) -> tuple[str, ...]:
    if stored.model == "none":
        return ()
    paid = {None: BY_PAIR, "transitions": ("payments",), "unknown": ()}[stored.payments]
    structure = SPARSE if stored.sparse else ("classes",)
    return *TRANSITIONS, *structure, *paid, *(("base", "slope") if stored.model == "affine" else ())


def _model(arrays: Arrays) -> TransitionModel:
    found = {name: arrays[f"model.{name}"] for name in TRANSITIONS}
    found |= {name: arrays[f"model.{name}"] for name in (*BY_PAIR, "payments") if f"model.{name}" in arrays}
    affine = (arrays["model.base"], arrays["model.slope"]) if "model.base" in arrays else None
    try:
        if "model.classes" in arrays:
            indptr, successor, classes = structure_of(arrays["model.classes"], len(arrays["model.row_type"]))
        else:
            indptr, successor, classes = (arrays[f"model.{name}"] for name in SPARSE)
        return TransitionModel(indptr=indptr, successor=successor, classes=classes, affine=affine, **found)
    except InvalidInput as error:
        raise InvalidInput(f"model.{error}") from None
