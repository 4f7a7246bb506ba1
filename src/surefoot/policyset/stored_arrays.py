"""The arrays of a policy set on disk: which file holds which, and what is made of them again."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats
from surefoot.cmdp.policy import Policy
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.policyset.cells import Cells
from surefoot.policyset.contents import Contents
from surefoot.policyset.manifest import CELLS, INTEGERS, MANIFEST, POLICIES, Manifest, StoredCells
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.transition_model import TransitionModel

DECODERS: dict[str, Callable[[dict[str, NDArray[Any]]], Policy]] = {
    "tabular": TabularPolicy.from_arrays,
    "timed": TimedPolicy.from_arrays,
    "mlp": MLPPolicy.from_arrays,
}

BOUNDS = ("low", "high", "prior", "lower", "upper")
BY_START = ("start_lower", "start_upper")
TRANSITIONS = ("classes", "row_type", "probability", "radius", "reward", "cost", "start")

Arrays: TypeAlias = dict[str, NDArray[Any]]


# -------------------------------------------------------------------------------------------------------------- writing


def grouped(policy_set: Contents) -> dict[str, Arrays]:
    """File name -> the arrays in it."""
    each = [policy.to_arrays() for policy in policy_set.policies]
    groups = {POLICIES: {key: _lossless(key, np.stack([arrays[key] for arrays in each])) for key in sorted(each[0])}}
    if policy_set.cells is not None:
        groups[CELLS] = _cell_arrays(policy_set.cells)
    return groups


def _lossless(name: str, array: NDArray[Any]) -> Floats:
    if array.dtype not in (np.float16, np.float32, np.float64):
        raise ArtifactError(f"policy array {name!r} has type {array.dtype}, must be float64 or a smaller float")
    return np.ascontiguousarray(array, dtype="<f8")


def _cell_arrays(cells: Cells) -> Arrays:
    arrays: Arrays = {name: getattr(cells, name) for name in BOUNDS}
    if cells.start_lower is not None:
        arrays |= {name: getattr(cells, name) for name in BY_START}
    if cells.first_states is not None:
        arrays["first_states"] = cells.first_states
    if len(cells.outside):
        arrays["outside"] = cells.outside
    if cells.model is not None:
        arrays |= {f"model.{name}": getattr(cells.model, name) for name in TRANSITIONS}
        if cells.model.affine is not None:
            arrays["model.base"], arrays["model.slope"] = cells.model.affine
    return {
        name: np.ascontiguousarray(array, dtype="<i8" if name in INTEGERS else "<f8") for name, array in arrays.items()
    }


# -------------------------------------------------------------------------------------------------------------- reading


def policies_of(folder: Path, manifest: Manifest, stacked: Arrays) -> list[Policy]:
    path = folder / POLICIES
    decode = DECODERS.get(manifest.policy_kind)
    if decode is None:
        raise ArtifactError(
            f"{folder / MANIFEST}: policy_kind must be one of {sorted(DECODERS)}, "
            f"found {reprlib.repr(manifest.policy_kind)}"
        )
    count = 1 + len(manifest.entries)
    for name, array in stacked.items():
        if array.shape[:1] != (count,):
            raise ArtifactError(
                f"{path}: {name} has shape {list(array.shape)}, must be [{count}, …]: "
                f"the safe policy and one per entry of {MANIFEST}"
            )
    policies = []
    for k in range(count):
        try:
            policies.append(decode({name: array[k] for name, array in stacked.items()}))
        except KeyError as missing:
            raise ArtifactError(f"{path}: must hold the array {missing}, found {sorted(stacked)}") from None
        except InvalidInput as error:
            raise ArtifactError(f"{path}: policy {k} (0 is the safe one): {error}") from None
    expected = sorted(policies[0].to_arrays())
    if expected != sorted(stacked):
        raise ArtifactError(f"{path}: must hold exactly the arrays {expected}, found {sorted(stacked)}")
    return policies


def cells_of(path: Path, stored: StoredCells, arrays: Arrays) -> Cells:
    expected = {
        *BOUNDS,
        *(BY_START if stored.by_start else ()),
        *(("first_states",) if stored.first_states else ()),
        *(("outside",) if stored.outside else ()),
        *((f"model.{name}" for name in TRANSITIONS) if stored.model != "none" else ()),
        *(("model.base", "model.slope") if stored.model == "affine" else ()),
    }
    if set(arrays) != expected:
        raise ArtifactError(
            f"{path}: must hold exactly the arrays {sorted(expected)} that {MANIFEST} announces, found {sorted(arrays)}"
        )
    try:
        return Cells(
            **{name: arrays[name] for name in BOUNDS},
            start_lower=arrays.get("start_lower"),
            start_upper=arrays.get("start_upper"),
            source=stored.source,
            uncovered=stored.uncovered,
            model=None if stored.model == "none" else _model(arrays),
            outside=arrays.get("outside", np.empty((0, *arrays["low"].shape[1:]))),
            first_states=arrays.get("first_states"),
        )
    except InvalidInput as error:
        raise ArtifactError(f"{path}: {error}") from None


def _model(arrays: Arrays) -> TransitionModel:
    affine = (arrays["model.base"], arrays["model.slope"]) if "model.base" in arrays else None
    try:
        return TransitionModel(**{name: arrays[f"model.{name}"] for name in TRANSITIONS}, affine=affine)
    except InvalidInput as error:
        raise InvalidInput(f"model.{error}") from None
