"""A policy set on disk: a folder with `manifest.json` and one safetensors file per group of arrays.

    manifest.json          everything but the arrays; size and SHA-256 of every other file, and of itself
    policies.safetensors   each array of a policy, stacked: [1+n, ...], the safe policy first; of policies that are
                           not alike each by itself: 0.probabilities, 1.weights.0, ... A controller that is somebody's
                           own is not in it, only its name, and observations with the actions it is recognised by
    cells.safetensors      the arrays of `Cells` under their own names, those of its model as `model.…`, of its readings
                           as `readings.…`, `signals.…` and `features.…`; only if there are cells, and without the
                           optional arrays that are not there or empty: see `stored_arrays.CELL_ARRAYS`

Nothing in it is code, and loading imports nothing that it names. Each check comes before the work it protects: sizes
before reading, hashes before parsing arrays, shapes before making them. The hashes show accidents, not forgers (see
`manifest`). There are no timestamps: the same set gives the same bytes.
"""

from __future__ import annotations

import hashlib
import reprlib
import shutil
import stat
import tempfile
from collections.abc import Mapping
from io import BufferedReader
from os import PathLike
from pathlib import Path
from typing import Any

import safetensors
import safetensors.numpy

from surefoot.arrays import make_readonly
from surefoot.errors import ArtifactError
from surefoot.files import check_folder, sync_folder, write_new
from surefoot.interrupts import defer_sigint
from surefoot.policyset import manifest as manifests
from surefoot.policyset.manifest import MANIFEST, POLICIES, Arrays, Manifest, StoredFile, Tensor
from surefoot.policyset.stored_arrays import FLOAT, NARROW, TYPES, format_version

# --------------------------------------------------------------------------------------------------------------- saving


def save(
    fields: Mapping[str, Any], groups: Mapping[str, Arrays], path: str | PathLike[str], *, force: bool = True
) -> None:
    """Write the fields of a manifest and the arrays of each file as the folder `path`, replacing a policy set (and
    nothing else) that is already there.

    The files are completed and flushed in a hidden folder beside `path`, which is then renamed. A process killed in
    the midst of replacing leaves at `path` the old set, the new set or, between two renames, nothing: both sets are
    then whole in the hidden folder. Half a set is never there. Without `force` a policy set is not replaced either.
    """
    contents = {name: safetensors.numpy.save(_narrow(arrays)) for name, arrays in groups.items()}
    files = {name: (contents[name], arrays) for name, arrays in groups.items()}
    contents[MANIFEST] = manifests.encode(fields, format_version(fields.get("cells")), files)
    target = check_target(path, force=force)
    with defer_sigint():
        _put(contents, target, path)


def _narrow(arrays: Arrays) -> Arrays:
    """As they are written: `_read_arrays` finds the same numbers."""
    single = {name: array.astype("<f4") for name, array in arrays.items() if TYPES.get(name) is NARROW}
    return {**arrays, **{name: array for name, array in single.items() if (array == arrays[name]).all()}}


def _put(contents: Mapping[str, bytes], target: Path, path: str | PathLike[str]) -> None:
    """These files as the folder `target`, which was asked for as `path`."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise ArtifactError(f"{path}: cannot save a policy set there ({error}); choose a writable folder") from None
    fresh, replaced = scratch / "new", scratch / "old"
    try:
        fresh.mkdir()
        for name, content in contents.items():
            write_new(fresh / name, content)
        sync_folder(fresh)
        _swap(fresh, target, replaced)
    except OSError as error:
        raise ArtifactError(f"{target}: the policy set could not be saved ({error}); save it elsewhere") from None
    finally:
        # The old set goes only when a set stands in its place.
        if target.exists() or not replaced.exists():
            shutil.rmtree(scratch, ignore_errors=True)


def check_target(path: str | PathLike[str], *, force: bool = True, argument: str = "path") -> Path:
    """The folder behind `path`; refused, before any work is done, if no policy set could be saved there."""
    try:
        target = Path(path).resolve()
        _refuse_foreign(target)
    except (OSError, RuntimeError, ValueError) as error:  # the latter two: circular links, NUL in the path
        raise ArtifactError(f"{argument} must be a folder for a policy set, got {str(path)!r}: {error}") from None
    check_folder(target.parent, argument=argument)
    if not force and (target / MANIFEST).exists():
        raise ArtifactError(
            f"{argument} must be a new folder, got {path}, which holds a policy set (force replaces it)"
        )
    return target


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
    manifest = manifests.parse_json(target / MANIFEST, _read(target / MANIFEST, manifests.MAX_MANIFEST_BYTES))
    if not isinstance(manifest, dict) or manifest.get("format") != manifests.FORMAT:
        raise ArtifactError(f"{target}: exists and its {MANIFEST} is not a {manifests.FORMAT} one; choose another path")


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
    sync_folder(target.parent)


# -------------------------------------------------------------------------------------------------------------- loading


def read(folder: Path) -> tuple[Manifest, dict[str, Arrays]]:
    """The manifest in the folder and the arrays of each file, or an ArtifactError that says what is wrong with them."""
    if not folder.is_dir():
        raise ArtifactError(f"{folder}: no such folder; a policy set is a folder with {MANIFEST} and {POLICIES}")
    manifest = manifests.parse(folder / MANIFEST, _read(folder / MANIFEST, manifests.MAX_MANIFEST_BYTES))
    _refuse_strays(folder, manifest)
    return manifest, {name: _read_arrays(folder / name, record) for name, record in manifest.files.items()}


def _read(path: Path, limit: int, sha256: str | None = None) -> bytes:
    """The content of a plain file of at most `limit` bytes, and of that hash if one is given."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "not a file"
            raise ArtifactError(f"{path}: is {kind}, must be a plain file inside the policy set folder")
        manifests.check_size(path, found.st_size, limit)
        with path.open("rb") as stream:
            if sha256 is not None:
                _check_hash(path, stream, sha256)  # in pieces: a file that is not the right one takes no memory
            return stream.read(found.st_size)
    except FileNotFoundError:
        raise ArtifactError(f"{path}: is missing, must be in the policy set folder") from None
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error}), must be a readable file") from None


def _check_hash(path: Path, stream: BufferedReader, sha256: str) -> None:
    found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        raise ArtifactError(
            f"{path}: was altered after it was saved (SHA-256 is {found}, must be {sha256} as in {MANIFEST})"
        )
    stream.seek(0)


def _refuse_strays(folder: Path, manifest: Manifest) -> None:
    """Arrays that the manifest does not name are left over from another set, or are missing from the manifest."""
    try:
        strays = {file.name for file in folder.iterdir() if file.suffix == ".safetensors"} - set(manifest.files)
    except OSError as error:
        raise ArtifactError(f"{folder}: cannot be read ({error}), must be a readable folder") from None
    if strays:
        raise ArtifactError(f"{folder}: holds {min(strays)!r}, must hold only the arrays that {MANIFEST} names")


def _read_arrays(path: Path, record: StoredFile) -> Arrays:
    content = _read(path, record.bytes, record.sha256)
    if len(content) != record.bytes:
        raise ArtifactError(f"{path}: has {len(content)} bytes, must have the {record.bytes} that {MANIFEST} records")
    _check_header(path, content, record.shapes)
    try:
        arrays = safetensors.numpy.load(content)
    except safetensors.SafetensorError as error:
        raise ArtifactError(f"{path}: must be a safetensors file, found: {error}") from None
    return {
        name: make_readonly(array.astype("<f8") if TYPES.get(name) is NARROW else array)
        for name, array in arrays.items()
    }


def _check_header(path: Path, content: bytes, shapes: dict[str, list[int]]) -> None:
    """The arrays in a safetensors file are the declared ones; that they fill it exactly is checked by safetensors."""
    length, available = int.from_bytes(content[:8], "little"), min(len(content) - 8, manifests.MAX_HEADER_BYTES)
    if length > available:
        raise ArtifactError(f"{path}: says that its header has {length} bytes, must be at most {available}")
    header = manifests.validate(path, dict[str, Tensor], manifests.parse_json(path, content[8 : 8 + length]))
    found = {name: tensor.shape for name, tensor in header.items()}
    if found != shapes:
        raise ArtifactError(f"{path}: holds arrays of shapes {reprlib.repr(found)}, must be {reprlib.repr(shapes)}")
    for name, tensor in header.items():
        accepted = TYPES.get(name, FLOAT)
        if tensor.dtype not in accepted:
            raise ArtifactError(
                f"{path}: {reprlib.repr(name)} must have dtype {accepted[0]}, found {reprlib.repr(tensor.dtype)}"
            )
