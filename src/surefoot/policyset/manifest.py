"""The manifest of a policy set on disk: how `manifest.json` is written, checked and read.

Whatever was written by another program or version, or damaged, ends in one ArtifactError. The hashes show accidents,
not forgers: who alters a set can compute them anew. Whoever must rule that out compares the set's `digest` with
one published elsewhere.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from surefoot.bounded_json import MAX_DEPTH, Limits, parse_strictly
from surefoot.bounds.cells import Cells
from surefoot.bounds.readings import Readings
from surefoot.cmdp.own_policy import OwnPolicy
from surefoot.cmdp.policy import Policy
from surefoot.errors import ArtifactError
from surefoot.policyset.contents import Contents
from surefoot.policyset.stored_fields import (
    MAX_ELEMENTS,
    MAX_HEADER_BYTES,
    Manifest,
    StoredOwn,
    StoredPolicy,
    Tensor,
)
from surefoot.tabular.transition_model import LARGEST_TABLE, TransitionModel

FORMAT = "surefoot.policyset"
# A reader refuses a newer major; a newer minor loads as long as it uses nothing new. Sets without readings are written
# as before, to the byte.
FORMAT_VERSION, VERSION_WITHOUT_READINGS = (1, 4), (1, 3)
MANIFEST = "manifest.json"
POLICIES = "policies.safetensors"
MIXED = "mixed"  # the policies are of different kinds or shapes, or not data at all
CELLS = "cells.safetensors"

MAX_MANIFEST_BYTES = 8 * 2**20
LIMITS = Limits(size=MAX_MANIFEST_BYTES, values=10**6, depth=MAX_DEPTH + 4)

# Arrays that no guarantee rests on: in float32 where that loses nothing, for sets that are shipped should be small.
NARROWED = frozenset({"readings.law"})
# Every other array holds float64.
INTEGERS = frozenset(
    {
        "first_states",
        *(f"model.{name}" for name in ("classes", "row_type", "indptr", "successor", "entry_class")),
        *("signals.source", "signals.keys", "features.steps"),
    }
)


# -------------------------------------------------------------------------------------------------------------- writing


def encode(policy_set: Contents, files: Mapping[str, tuple[bytes, Mapping[str, NDArray[Any]]]]) -> bytes:
    """The content of `manifest.json` for files given as (content, arrays in it); refused if `parse` would refuse it."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "format_version": list(_version(policy_set)),
        "library_version": _library_version(),
        **fields(policy_set),
        "files": {
            name: {
                "sha256": sha256(content),
                "bytes": len(content),
                "shapes": {key: list(array.shape) for key, array in arrays.items()},
            }
            for name, (content, arrays) in files.items()
        },
    }
    document["manifest_sha256"] = sha256(canonical(document))
    content = (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode("ascii")
    check_size("the policy set's manifest", len(content), MAX_MANIFEST_BYTES)
    parse("the policy set", content)
    return content


def fields(policy_set: Contents) -> dict[str, Any]:
    """The manifest's fields that come from the set itself, as plain JSON data."""
    units, cells = policy_set.units, policy_set.cells
    return {
        "discount": units.discount,
        "reward_range": list(units.reward_range),
        "cost_range": units.cost_range.tolist(),
        "budget": units.budget.tolist(),
        **({} if units.horizon is None else {"horizon": units.horizon}),
        **({} if units.reward_sum_range is None else {"reward_sum_range": list(units.reward_sum_range)}),
        **({} if units.cost_sum_range is None else {"cost_sum_range": units.cost_sum_range.tolist()}),
        **(
            {}
            if policy_set.epsilon is None
            else {name: getattr(policy_set, name) for name in ("epsilon", "delta", "xi")}
        ),
        "task_digest": policy_set.task_digest,
        "recipe": policy_set.recipe,
        "training": policy_set.training,
        **_policy_fields(policy_set),
        "entries": [
            {
                "parameter": entry.parameter.tolist(),
                "reward": entry.reward,
                "margin": entry.margin.tolist(),
                "safe_reward": entry.safe_reward,
                "safe_margin": entry.safe_margin.tolist(),
            }
            for entry in policy_set.entries
        ],
        **({} if cells is None else {"cells": _cell_fields(cells)}),
        **({} if cells is not None or policy_set.safe_risk is None else {"safe_risk": policy_set.safe_risk}),
    }


def _policy_fields(policy_set: Contents) -> dict[str, Any]:
    named = {} if policy_set.names is None else {"names": list(policy_set.names)}
    if uniform(policy_set.policies):
        return {"policy_kind": policy_set.safe_policy.kind, **named}
    stored = [stored_policy(policy).model_dump(exclude_none=True) for policy in policy_set.policies]
    return {"policy_kind": MIXED, "policies": stored, **named}


def uniform(policies: Sequence[Policy]) -> bool:
    """Whether the arrays of all policies can be stacked, and are all that there is of them."""
    first, *others = ({name: array.shape for name, array in policy.to_arrays().items()} for policy in policies)
    kinds = {policy.kind for policy in policies}
    return len(kinds) == 1 and OwnPolicy.kind not in kinds and all(each == first for each in others)


def stored_policy(policy: Policy) -> StoredPolicy:
    if not isinstance(policy, OwnPolicy):
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


def _cell_fields(cells: Cells) -> dict[str, Any]:
    """Those of `StoredCells`, but for what is not there."""
    model = cells.model
    found = {
        "source": cells.source,
        "uncovered": cells.uncovered,
        "by_start": cells.start_lower is not None,
        "outside": len(cells.outside) > 0,
        "first_states": None if cells.first_states is None else True,
        "model": "none" if model is None else "balls" if model.affine is None else "affine",
        "sparse": None if model is None or stored_densely(model) else True,
        "payments": None if model is None else _payments(model),
        "readings": None if cells.readings is None else _reading_fields(cells.readings),
    }
    return {name: value for name, value in found.items() if value is not None}


def _reading_fields(readings: Readings) -> dict[str, Any]:
    signals, own = readings.signals, readings.signals.own
    found: dict[str, Any] = {"kind": signals.kind, "steps": signals.steps}
    if signals.paid:
        found["paid"] = True
    if own is not None:
        types = {"observation_type": own.probes.observations.dtype, "action_type": own.probes.actions.dtype}
        found["own"] = {"name": own.name, **{name: str(dtype) for name, dtype in types.items()}}
    return found


def stored_densely(model: TransitionModel) -> bool:
    """Small tables are written as they were before 1.3, so that sets keep their bytes and their digest."""
    return model.reward is not None and (len(model.indptr) - 1) * model.n_states <= LARGEST_TABLE


def _payments(model: TransitionModel) -> Literal["transitions", "unknown"] | None:
    if model.reward is not None:
        return None
    return "unknown" if model.payments is None else "transitions"


def _version(policy_set: Contents) -> tuple[int, int]:
    with_readings = policy_set.cells is not None and policy_set.cells.readings is not None
    return FORMAT_VERSION if with_readings else VERSION_WITHOUT_READINGS


def _library_version() -> str:
    try:
        return importlib.metadata.version("surefoot")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return "0+unknown"


def canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def sha256(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()


def check_size(where: Path | str, size: int, limit: int) -> None:
    if size > limit:
        raise ArtifactError(f"{where}: has {size} bytes, must have at most {limit}")


# -------------------------------------------------------------------------------------------------------------- reading


def parse(where: Path | str, content: bytes) -> Manifest:
    """A manifest that is whole and unaltered; that its values fit each other is for what is built from them to say."""
    document = parse_json(where, content)
    if not isinstance(document, dict):
        raise ArtifactError(f"{where}: must hold a JSON object, found {reprlib.repr(document)}")
    _check_version(where, document)
    try:
        manifest = Manifest.model_validate(document)
    except ValidationError as error:
        _refuse(where, error)
    found = sha256(canonical({key: value for key, value in document.items() if key != "manifest_sha256"}))
    if found != manifest.manifest_sha256:
        raise ArtifactError(
            f"{where}: was altered after it was saved (manifest_sha256 is {manifest.manifest_sha256}, "
            f"its content gives {found}); restore it from a copy"
        )
    _check_files(where, manifest)
    return manifest


def parse_json(where: Path | str, content: bytes) -> Any:
    try:
        return parse_strictly(content, LIMITS)
    except ValueError as error:
        raise ArtifactError(
            f"{where}: must be JSON in UTF-8 with finite numbers and no key twice, found: {ascii(str(error))[1:-1]}"
        ) from None


def _check_version(where: Path | str, document: dict[str, Any]) -> None:
    """Before all other fields, which another format or version may well name differently."""
    if document.get("format") != FORMAT:
        raise ArtifactError(f"{where}: format must be {FORMAT!r}, found {reprlib.repr(document.get('format'))}")
    version = document.get("format_version")
    if not isinstance(version, list) or version[:1] != [FORMAT_VERSION[0]]:
        raise ArtifactError(
            f"{where}: format_version must be [{FORMAT_VERSION[0]}, …] for this version of surefoot, "
            f"found {reprlib.repr(version)}; upgrade surefoot if the major number is a newer one"
        )


def _refuse(where: Path | str, error: ValidationError) -> NoReturn:
    first = error.errors(include_url=False)[0]
    field = repr(".".join(map(str, first["loc"])) or "content")[1:80].rstrip("'\"")  # names may hold control characters
    rule = first["msg"][0].lower() + first["msg"][1:]
    found = "nothing" if first["type"] == "missing" else reprlib.repr(first["input"])
    raise ArtifactError(f"{where}: {field}: {rule}, found {found}") from None


def _check_files(where: Path | str, manifest: Manifest) -> None:
    for name in manifest.files:
        if not re.fullmatch(r"[a-z0-9_]+\.safetensors", name):
            raise ArtifactError(
                f"{where}: files must have plain names inside the folder (as {POLICIES}), found {reprlib.repr(name)}"
            )
    expected = [POLICIES] if manifest.cells is None else [CELLS, POLICIES]
    if sorted(manifest.files) != expected:
        raise ArtifactError(
            f"{where}: files must name exactly {expected}, found {reprlib.repr(sorted(manifest.files))}"
        )
    elements = {name: sum(map(math.prod, record.shapes.values())) for name, record in manifest.files.items()}
    if sum(elements.values()) > MAX_ELEMENTS:
        raise ArtifactError(
            f"{where}: files declare {sum(elements.values())} array elements, must be at most {MAX_ELEMENTS}"
        )
    for name, record in manifest.files.items():
        limit = 8 * elements[name] + 8 + MAX_HEADER_BYTES
        check_size(f"{where}: {name}", record.bytes, limit)


def check_header(where: Path | str, content: bytes, shapes: dict[str, list[int]]) -> None:
    """The arrays in a safetensors file are the declared ones; that they fill it exactly is checked by safetensors."""
    length, available = int.from_bytes(content[:8], "little"), min(len(content) - 8, MAX_HEADER_BYTES)
    if length > available:
        raise ArtifactError(f"{where}: says that its header has {length} bytes, must be at most {available}")
    try:
        header = TypeAdapter(dict[str, Tensor]).validate_python(parse_json(where, content[8 : 8 + length]))
    except ValidationError as error:
        _refuse(where, error)
    found = {name: tensor.shape for name, tensor in header.items()}
    if found != shapes:
        raise ArtifactError(f"{where}: holds arrays of shapes {reprlib.repr(found)}, must be {reprlib.repr(shapes)}")
    for name, tensor in header.items():
        dtype = "I64" if name in INTEGERS else "F64"
        if tensor.dtype != dtype and not (name in NARROWED and tensor.dtype == "F32"):
            raise ArtifactError(
                f"{where}: {reprlib.repr(name)} must have dtype {dtype}, found {reprlib.repr(tensor.dtype)}"
            )
