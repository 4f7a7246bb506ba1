"""A policy set on disk: a folder with `manifest.json` and one safetensors file per group of arrays.

    manifest.json          everything but the arrays; size and SHA-256 of every other file, and of itself
    policies.safetensors   each array of a policy, stacked: [1+n, ...], the safe policy first

Nothing in it is code, and loading imports nothing that it names. Each check comes before the work it protects: sizes
before reading, hashes before parsing arrays, shapes before making them. There are no timestamps: the same set gives
the same bytes. A further group of arrays is one more key in `_groups` and `READABLE_FILES`, taken up in `_rebuild`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import os
import re
import reprlib
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeAlias

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from surefoot.cmdp.model import Floats, Units
from surefoot.cmdp.policy import Policy, TabularPolicy
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet

FORMAT = "surefoot.policyset"
FORMAT_VERSION = (1, 0)  # a reader refuses a newer major; a newer minor loads as long as it uses nothing new
MANIFEST = "manifest.json"
POLICIES = "policies.safetensors"
READABLE_FILES = frozenset({POLICIES})

MAX_MANIFEST_BYTES = 32 * 2**20
MAX_HEADER_BYTES = 2**20
MAX_ELEMENTS = 2**29  # float64: 4 GiB over all files
MAX_FILE_BYTES = 8 * MAX_ELEMENTS + MAX_HEADER_BYTES

DECODERS: dict[str, Callable[[dict[str, NDArray[Any]]], Policy]] = {"tabular": TabularPolicy.from_arrays}

Arrays: TypeAlias = dict[str, Floats]
Count: TypeAlias = Annotated[int, Field(ge=1, le=MAX_FILE_BYTES)]
Shape: TypeAlias = Annotated[list[Count], Field(max_length=8)]
Sha256: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Bounds: TypeAlias = Annotated[list[float], Field(min_length=2, max_length=2)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


class _File(_Strict):
    sha256: Sha256
    bytes: Count
    shapes: dict[str, Shape]


class _Entry(_Strict):
    parameter: list[float]
    reward: float
    margin: list[float]
    safe_reward: float
    safe_margin: list[float]


class _Manifest(_Strict):
    format: str
    format_version: Annotated[list[int], Field(min_length=2, max_length=2)]
    library_version: str
    discount: float
    reward_range: Bounds
    cost_range: list[Bounds]
    budget: list[float]
    epsilon: float
    delta: float
    xi: float
    task_digest: str
    recipe: dict[str, Any]
    training: dict[str, Any]
    policy_kind: str
    entries: Annotated[list[_Entry], Field(min_length=1)]
    files: dict[str, _File]
    manifest_sha256: Sha256  # of the canonical JSON of all the fields above


class _Tensor(_Strict):
    """One line of a safetensors header."""

    dtype: Literal["F64"]
    shape: Shape
    data_offsets: list[int]


# --------------------------------------------------------------------------------------------------------------- saving


def save(policy_set: PolicyValueSet, path: str | PathLike[str]) -> None:
    """Write `policy_set` as the folder `path`, replacing a policy set (and nothing else) that is already there.

    The files are completed and flushed in a hidden folder beside `path`, which is then renamed. A process killed in
    the midst of replacing leaves at `path` the old set, the new set or, between two renames, nothing: both sets are
    then whole in the hidden folder. Half a set is never there.
    """
    contents = _encode(policy_set)
    try:
        target = Path(path).resolve()
        _refuse_foreign(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except (OSError, RuntimeError, ValueError) as error:  # the latter two: circular links, NUL in the path
        raise ArtifactError(f"{path}: cannot save a policy set there ({error}); choose a writable folder") from None
    fresh, replaced = scratch / "new", scratch / "old"
    try:
        fresh.mkdir()
        for name, content in contents.items():
            _write(fresh / name, content)
        _sync_folder(fresh)
        _swap(fresh, target, replaced)
    except OSError as error:
        raise ArtifactError(f"{target}: the policy set could not be saved ({error}); save it elsewhere") from None
    finally:
        # The old set goes only when a set stands in its place.
        if target.exists() or not replaced.exists():
            shutil.rmtree(scratch, ignore_errors=True)


def digest(policy_set: PolicyValueSet) -> str:
    """SHA-256 over values and arrays, free of everything that depends on the library versions that wrote a file."""
    arrays = {
        name: {key: {"shape": list(array.shape), "sha256": _sha256(array.tobytes())} for key, array in group.items()}
        for name, group in _groups(policy_set).items()
    }
    return _sha256(_canonical({"format": FORMAT, **_fields(policy_set), "arrays": arrays}))


def _encode(policy_set: PolicyValueSet) -> dict[str, bytes]:
    """File name -> content, the manifest last; refused here if `load` would refuse it later."""
    kind = policy_set.safe_policy.kind
    if kind not in DECODERS:
        raise ArtifactError(f"policies of kind {kind!r} cannot be saved, must be one of {sorted(DECODERS)}")
    groups = _groups(policy_set)
    contents = {name: safetensors.numpy.save(arrays) for name, arrays in groups.items()}
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "format_version": list(FORMAT_VERSION),
        "library_version": _library_version(),
        **_fields(policy_set),
        "files": {
            name: {
                "sha256": _sha256(content),
                "bytes": len(content),
                "shapes": {key: list(array.shape) for key, array in groups[name].items()},
            }
            for name, content in contents.items()
        },
    }
    manifest["manifest_sha256"] = _sha256(_canonical(manifest))
    text = json.dumps(manifest, indent=1, sort_keys=True, allow_nan=False) + "\n"
    contents[MANIFEST] = text.encode("ascii")
    _check_size("the policy set's manifest", len(contents[MANIFEST]), MAX_MANIFEST_BYTES)
    _parse_manifest("the policy set", contents[MANIFEST])
    return contents


def _groups(policy_set: PolicyValueSet) -> dict[str, Arrays]:
    """File name -> the arrays in it, float64."""
    each = [policy.to_arrays() for policy in policy_set.policies]
    return {POLICIES: {key: _lossless(key, np.stack([arrays[key] for arrays in each])) for key in sorted(each[0])}}


def _lossless(name: str, array: NDArray[Any]) -> Floats:
    if array.dtype not in (np.float16, np.float32, np.float64):
        raise ArtifactError(f"policy array {name!r} has type {array.dtype}, must be float64 or a smaller float")
    return np.ascontiguousarray(array, dtype="<f8")


def _fields(policy_set: PolicyValueSet) -> dict[str, Any]:
    """The manifest's fields that come from the set itself, as plain JSON data."""
    units = policy_set.units
    return {
        "discount": units.discount,
        "reward_range": list(units.reward_range),
        "cost_range": units.cost_range.tolist(),
        "budget": units.budget.tolist(),
        "epsilon": policy_set.epsilon,
        "delta": policy_set.delta,
        "xi": policy_set.xi,
        "task_digest": policy_set.task_digest,
        "recipe": policy_set.recipe,
        "training": policy_set.training,
        "policy_kind": policy_set.safe_policy.kind,
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
    }


def _library_version() -> str:
    try:
        return importlib.metadata.version("surefoot")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return "0+unknown"


def _canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _refuse_foreign(target: Path) -> None:
    """Only a policy set, or an empty folder, may be replaced: never anything of the user's."""
    if not target.exists():
        return
    if not target.is_dir():
        raise ArtifactError(f"{target}: exists and is not a folder; choose another path for the policy set")
    names = sorted(file.name for file in target.iterdir())
    if not names:
        return
    foreign = [name for name in names if name != MANIFEST and not name.endswith(".safetensors")]
    if foreign or MANIFEST not in names:
        found = f"holds {foreign[0]!r}" if foreign else f"has no {MANIFEST}"
        raise ArtifactError(f"{target}: exists and is not a policy set (it {found}); choose another path")
    manifest = _parse_json(target / MANIFEST, _read(target / MANIFEST, MAX_MANIFEST_BYTES))
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ArtifactError(f"{target}: exists and its {MANIFEST} is not a {FORMAT} one; choose another path")


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _swap(fresh: Path, target: Path, replaced: Path) -> None:
    """Put `fresh` at `target`, the previous folder at `replaced`; undone if the second rename fails."""
    existed = target.exists()
    if existed:
        target.rename(replaced)
    try:
        fresh.rename(target)
    except BaseException:
        if existed:
            replaced.rename(target)
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # folders cannot be flushed there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# -------------------------------------------------------------------------------------------------------------- loading


def load(path: str | PathLike[str]) -> PolicyValueSet:
    """The policy set in the folder `path`, or an ArtifactError that says what is wrong with it."""
    folder = Path(path)
    if not folder.is_dir():
        raise ArtifactError(f"{folder}: no such folder; a policy set is a folder with {MANIFEST} and {POLICIES}")
    manifest = _parse_manifest(folder / MANIFEST, _read(folder / MANIFEST, MAX_MANIFEST_BYTES))
    groups = {name: _read_arrays(folder / name, record) for name, record in manifest.files.items()}
    return _rebuild(folder, manifest, groups)


def _read(path: Path, limit: int) -> bytes:
    """The content of a plain file of at most `limit` bytes."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "not a file"
            raise ArtifactError(f"{path}: is {kind}, must be a plain file inside the policy set folder")
        _check_size(path, found.st_size, limit)
        with path.open("rb") as stream:
            return stream.read(found.st_size)
    except FileNotFoundError:
        raise ArtifactError(f"{path}: is missing, must be in the policy set folder") from None
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error}), must be a readable file") from None


def _check_size(where: Path | str, size: int, limit: int) -> None:
    if size > limit:
        raise ArtifactError(f"{where}: has {size} bytes, must have at most {limit}")


def _parse_manifest(where: Path | str, content: bytes) -> _Manifest:
    document = _parse_json(where, content)
    if not isinstance(document, dict):
        raise ArtifactError(f"{where}: must hold a JSON object, found {reprlib.repr(document)}")
    _check_version(where, document)
    try:
        manifest = _Manifest.model_validate(document)
    except ValidationError as error:
        _refuse(where, error)
    found = _sha256(_canonical({key: value for key, value in document.items() if key != "manifest_sha256"}))
    if found != manifest.manifest_sha256:
        raise ArtifactError(
            f"{where}: was altered after it was saved (manifest_sha256 is {manifest.manifest_sha256}, "
            f"its content gives {found}); restore it from a copy"
        )
    _check_files(where, manifest.files)
    return manifest


def _parse_json(where: Path | str, content: bytes) -> Any:
    try:
        document = json.loads(
            content.decode("utf-8"), parse_constant=_finite, parse_float=_finite, object_pairs_hook=_unique
        )
        json.dumps(document, ensure_ascii=False).encode("utf-8")  # refuses escaped halves of surrogate pairs
    except (ValueError, RecursionError) as error:
        raise ArtifactError(
            f"{where}: must be JSON in UTF-8 with finite numbers and no key twice, found: {ascii(str(error))[1:-1]}"
        ) from None
    return document


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {reprlib.repr(twice)} more than once")
    return document


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


def _check_files(where: Path | str, files: dict[str, _File]) -> None:
    for name in files:
        if not re.fullmatch(r"[a-z0-9_]+\.safetensors", name):
            raise ArtifactError(
                f"{where}: files must have plain names inside the folder (as {POLICIES}), found {reprlib.repr(name)}"
            )
    if set(files) != READABLE_FILES:
        raise ArtifactError(
            f"{where}: files must name exactly {sorted(READABLE_FILES)}, found {reprlib.repr(sorted(files))}"
        )
    elements = sum(math.prod(shape) for record in files.values() for shape in record.shapes.values())
    if elements > MAX_ELEMENTS:
        raise ArtifactError(f"{where}: files declare {elements} array elements, must be at most {MAX_ELEMENTS}")


def _read_arrays(path: Path, record: _File) -> Arrays:
    content = _read(path, limit=record.bytes)
    if len(content) < record.bytes:
        raise ArtifactError(f"{path}: has {len(content)} bytes, must have the {record.bytes} that {MANIFEST} records")
    found = _sha256(content)
    if found != record.sha256:
        raise ArtifactError(
            f"{path}: was altered after it was saved (SHA-256 is {found}, must be {record.sha256} as in {MANIFEST})"
        )
    _check_header(path, content, record.shapes)
    try:
        return safetensors.numpy.load(content)
    except safetensors.SafetensorError as error:
        raise ArtifactError(f"{path}: must be a safetensors file, found: {error}") from None


def _check_header(path: Path, content: bytes, shapes: dict[str, list[int]]) -> None:
    """The arrays in the file are the declared ones; that they fill it exactly is checked by safetensors itself."""
    length, available = int.from_bytes(content[:8], "little"), min(len(content) - 8, MAX_HEADER_BYTES)
    if length > available:
        raise ArtifactError(f"{path}: says that its header has {length} bytes, must be at most {available}")
    try:
        header = TypeAdapter(dict[str, _Tensor]).validate_python(_parse_json(path, content[8 : 8 + length]))
    except ValidationError as error:
        _refuse(path, error)
    found = {name: tensor.shape for name, tensor in header.items()}
    if found != shapes:
        raise ArtifactError(f"{path}: holds arrays of shapes {reprlib.repr(found)}, must be {reprlib.repr(shapes)}")


def _rebuild(folder: Path, manifest: _Manifest, groups: dict[str, Arrays]) -> PolicyValueSet:
    safe_policy, *policies = _policies(folder, manifest, groups[POLICIES])
    try:
        return PolicyValueSet(
            entries=tuple(_entry(k, *pair) for k, pair in enumerate(zip(manifest.entries, policies, strict=True))),
            safe_policy=safe_policy,
            units=Units(
                manifest.discount,
                (manifest.reward_range[0], manifest.reward_range[1]),
                np.array(manifest.cost_range),
                np.array(manifest.budget),
            ),
            epsilon=manifest.epsilon,
            delta=manifest.delta,
            xi=manifest.xi,
            task_digest=manifest.task_digest,
            recipe=manifest.recipe,
            training=manifest.training,
        )
    except InvalidInput as error:
        raise ArtifactError(f"{folder / MANIFEST}: {error}") from None


def _policies(folder: Path, manifest: _Manifest, stacked: Arrays) -> list[Policy]:
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


def _entry(k: int, stored: _Entry, policy: Policy) -> Entry:
    try:
        return Entry(
            np.array(stored.parameter),
            policy,
            stored.reward,
            np.array(stored.margin),
            stored.safe_reward,
            np.array(stored.safe_margin),
        )
    except InvalidInput as error:
        raise InvalidInput(f"entries[{k}]: {error}") from None
