"""The manifest of a policy set on disk: which fields `manifest.json` has, and how it is written, checked and read.

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
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from surefoot.bounded_json import MAX_DEPTH, Limits, parse_strictly
from surefoot.bounds.cells import Source
from surefoot.cmdp.controllers import LONGEST_NAME
from surefoot.cmdp.external_policy import ObservationType
from surefoot.errors import ArtifactError
from surefoot.signals.signals import Kind

FORMAT = "surefoot.policyset"
FORMAT_MAJOR = 1  # a reader refuses another one; a newer minor loads as long as it uses nothing new
MANIFEST = "manifest.json"
POLICIES = "policies.safetensors"
CELLS = "cells.safetensors"
MIXED = "mixed"  # the policies are of different kinds or shapes, or not data at all

MAX_HEADER_BYTES = 2**20
MAX_ELEMENTS = 2**29  # of 8 bytes each: 4 GiB over all files
MAX_FILE_BYTES = 8 * MAX_ELEMENTS + MAX_HEADER_BYTES
MAX_MANIFEST_BYTES = 8 * 2**20
LIMITS = Limits(size=MAX_MANIFEST_BYTES, values=10**6, depth=MAX_DEPTH + 4)

Arrays: TypeAlias = dict[str, NDArray[Any]]
Parsed = TypeVar("Parsed")


# --------------------------------------------------------------------------------------------------------------- fields

Count: TypeAlias = Annotated[int, Field(ge=1, le=MAX_FILE_BYTES)]
Shape: TypeAlias = Annotated[list[Count], Field(max_length=8)]
Sha256: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Bounds: TypeAlias = Annotated[list[float], Field(min_length=2, max_length=2)]
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
Probability: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


class StoredFile(_Strict):
    sha256: Sha256
    bytes: Count
    shapes: dict[str, Shape]


class StoredEntry(_Strict):
    parameter: list[float]
    reward: float
    margin: list[float]
    safe_reward: float
    safe_margin: list[float]


class StoredOwn(_Strict):
    """A controller of somebody's own: all of it but where it is recognised, which is in arrays if anywhere."""

    fingerprint: Name | None
    given: bool  # whether that is the owner's
    deterministic: bool
    asked_likeliest: bool
    observation_shape: Annotated[list[Count], Field(max_length=7)]
    observation_type: ObservationType
    action_type: Literal["int64", "float64"]


class StoredPolicy(_Strict):
    """One policy of a set whose policies are of different kinds or shapes."""

    kind: str
    own: StoredOwn | None = None


class StoredFeatures(_Strict):
    """Features of somebody's own: all of them but the episodes that they are recognised by, which are in arrays."""

    name: Name
    observation_type: ObservationType
    action_type: ObservationType


class StoredReadings(_Strict):
    """All of the readings but their arrays."""

    kind: Kind
    steps: Annotated[int, Field(ge=1, le=2**53)]
    own: StoredFeatures | None = None
    paid: Literal[True] | None = None


class StoredCells(_Strict):
    """All of the cells but their arrays, and which of the optional arrays there are."""

    source: Source
    uncovered: Probability
    by_start: bool
    outside: bool
    first_states: Literal[True] | None = None  # since 1.3: bounds are for some states and not for all
    model: Literal["none", "balls", "affine"]
    sparse: Literal[True] | None = None  # since 1.3: only the possible transitions are stored
    payments: Literal["transitions", "unknown"] | None = None  # since 1.3: not by state and action
    readings: StoredReadings | None = None  # since 1.4


class Manifest(_Strict):
    format: str
    format_version: Annotated[list[int], Field(min_length=2, max_length=2)]
    library_version: str
    discount: float
    reward_range: Bounds
    cost_range: list[Bounds]
    budget: list[float]
    horizon: Annotated[int, Field(ge=1)] | None = None  # since 1.2, and only where there is one
    reward_sum_range: Bounds | None = None  # since 1.3, and only where declared, as the next
    cost_sum_range: list[Bounds] | None = None
    epsilon: float | None = None  # since 1.3 these three are not there without a cover
    delta: float | None = None
    xi: float | None = None
    task_digest: str
    recipe: dict[str, Any]
    training: dict[str, Any]
    policy_kind: str
    policies: list[StoredPolicy] | None = None  # since 1.3, and only where policy_kind is MIXED
    names: list[Name] | None = None  # since 1.3
    entries: Annotated[list[StoredEntry], Field(min_length=1)]
    cells: StoredCells | None = None
    safe_risk: Probability | None = None  # since 1.1, and only without cells, which know it
    files: dict[str, StoredFile]
    manifest_sha256: Sha256  # of the canonical JSON of all the fields above


class Tensor(_Strict):
    """One line of a safetensors header."""

    dtype: str
    shape: Shape
    data_offsets: list[int]


# -------------------------------------------------------------------------------------------------------------- writing


def encode(fields: Mapping[str, Any], version: tuple[int, int], files: Mapping[str, tuple[bytes, Arrays]]) -> bytes:
    """The content of `manifest.json` for files given as (content, arrays in it); refused if `parse` would refuse it."""
    document: dict[str, Any] = {
        "format": FORMAT,
        "format_version": list(version),
        "library_version": _library_version(),
        **fields,
        "files": {
            name: {
                "sha256": sha256(content),
                "bytes": len(content),
                "shapes": {key: list(array.shape) for key, array in arrays.items()},
            }
            for name, (content, arrays) in files.items()
        },
    }
    document["manifest_sha256"] = sha256(_canonical(document))
    content = (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode("ascii")
    check_size("the policy set's manifest", len(content), MAX_MANIFEST_BYTES)
    parse("the policy set", content)
    return content


def digest(fields: Mapping[str, Any], groups: Mapping[str, Arrays]) -> str:
    """SHA-256 over values and arrays, free of everything that depends on the library versions that wrote a file."""
    arrays = {
        name: {key: {"shape": list(array.shape), "sha256": sha256(array.data)} for key, array in group.items()}
        for name, group in groups.items()
    }
    return sha256(_canonical({"format": FORMAT, **fields, "arrays": arrays}))


def _library_version() -> str:
    try:
        return importlib.metadata.version("surefoot")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return "0+unknown"


def _canonical(document: Any) -> bytes:
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
    manifest = validate(where, Manifest, document)
    found = sha256(_canonical({key: value for key, value in document.items() if key != "manifest_sha256"}))
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
    if not isinstance(version, list) or version[:1] != [FORMAT_MAJOR]:
        raise ArtifactError(
            f"{where}: format_version must be [{FORMAT_MAJOR}, …] for this version of surefoot, "
            f"found {reprlib.repr(version)}; upgrade surefoot if the major number is a newer one"
        )


def validate(where: Path | str, kind: type[Parsed], document: Any) -> Parsed:
    """The document as `kind`; refused for the first field that is not as it must be."""
    try:
        return TypeAdapter(kind).validate_python(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    field = repr(".".join(map(str, first["loc"])) or "content")[1:80].rstrip("'\"")  # names may hold control characters
    rule = first["msg"][0].lower() + first["msg"][1:]
    found = "nothing" if first["type"] == "missing" else reprlib.repr(first["input"])
    raise ArtifactError(f"{where}: {field}: {rule}, found {found}")


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
        check_size(f"{where}: {name}", record.bytes, 8 * elements[name] + 8 + MAX_HEADER_BYTES)
