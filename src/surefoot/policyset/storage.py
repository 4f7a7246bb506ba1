"""A policy set on disk: a folder with `manifest.json` and one safetensors file per group of arrays.

    manifest.json          everything but the arrays; size and SHA-256 of every other file, and of itself
    policies.safetensors   each array of a policy, stacked: [1+n, ...], the safe policy first; of policies that are
                           not alike each by itself: 0.probabilities, 1.weights.0, ... A controller that is somebody's
                           own is not in it, only its name, and observations with the actions it is recognised by
    cells.safetensors      the arrays of `Cells` under their own names, those of its model as `model.…`, of its readings
                           as `readings.…`, `signals.…` and `features.…`; only if there are cells, and without the
                           optional arrays that are not there or empty. `readings.law` is in single precision where
                           that loses nothing

Nothing in it is code, and loading imports nothing that it names. Each check comes before the work it protects: sizes
before reading, hashes before parsing arrays, shapes before making them. The hashes show accidents, not forgers (see
`manifest`). There are no timestamps: the same set gives the same bytes.
"""

from __future__ import annotations

import hashlib
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from io import BufferedReader
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import safetensors
import safetensors.numpy

from surefoot.arrays import frozen
from surefoot.bounds.cells import Cells
from surefoot.cmdp.own_policy import OwnPolicy
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.files import check_folder, sync_folder, write_new
from surefoot.interrupts import held_back
from surefoot.policyset import manifest as manifests
from surefoot.policyset.contents import Contents, Entry
from surefoot.policyset.fit import check_fit
from surefoot.policyset.manifest import CELLS, MANIFEST, POLICIES
from surefoot.policyset.stored_arrays import DECODERS, Arrays, cells_of, grouped, policies_of
from surefoot.policyset.stored_fields import Manifest, StoredEntry, StoredFile
from surefoot.signals.signals import OwnFunction

AnyContents = TypeVar("AnyContents", bound=Contents)


# --------------------------------------------------------------------------------------------------------------- saving


def save(policy_set: Contents, path: str | PathLike[str], *, force: bool = True) -> None:
    """Write `policy_set` as the folder `path`, replacing a policy set (and nothing else) that is already there.

    The files are completed and flushed in a hidden folder beside `path`, which is then renamed. A process killed in
    the midst of replacing leaves at `path` the old set, the new set or, between two renames, nothing: both sets are
    then whole in the hidden folder. Half a set is never there. Without `force` a policy set is not replaced either.
    """
    contents = _encode(policy_set)
    target = check_target(path, force=force)
    with held_back():
        _put(contents, target, path)


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


def digest(policy_set: Contents) -> str:
    """SHA-256 over values and arrays, free of everything that depends on the library versions that wrote a file."""
    arrays = {
        name: {
            key: {"shape": list(array.shape), "sha256": manifests.sha256(array.data)} for key, array in group.items()
        }
        for name, group in grouped(policy_set).items()
    }
    document = {"format": manifests.FORMAT, **manifests.fields(policy_set), "arrays": arrays}
    return manifests.sha256(manifests.canonical(document))


def _encode(policy_set: Contents) -> dict[str, bytes]:
    """File name -> content, the manifest last; refused here if `load` would refuse it later."""
    for kind in sorted({policy.kind for policy in policy_set.policies} - {OwnPolicy.kind}):
        if kind not in DECODERS:
            raise ArtifactError(
                f"policies of kind {kind!r} cannot be saved, must be one of {sorted(DECODERS)}; controllers of your "
                "own can be in a set that policy_set makes, which stores their names"
            )
    check_fit("the policy set", policy_set)
    groups = grouped(policy_set)
    contents = {name: safetensors.numpy.save(_narrowed(arrays)) for name, arrays in groups.items()}
    manifest = manifests.encode(policy_set, {name: (contents[name], groups[name]) for name in groups})
    return {**contents, MANIFEST: manifest}


def _narrowed(arrays: Arrays) -> Arrays:
    """As they are written: `_read_arrays` finds the same numbers."""
    single = {name: arrays[name].astype("<f4") for name in manifests.NARROWED & arrays.keys()}
    return {**arrays, **{name: array for name, array in single.items() if (array == arrays[name]).all()}}


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


def load(
    path: str | PathLike[str],
    make: Callable[..., AnyContents],
    controllers: Mapping[str, Any] | None = None,
    features: OwnFunction | None = None,
) -> AnyContents:
    """What `make` makes of the contents in the folder `path`, or an ArtifactError that says what is wrong with them.

    Args:
        controllers: by name, those of somebody's own; refused if they are not the ones that the set was made with.
        features: the function that reads episodes, if it is somebody's own; refused likewise.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise ArtifactError(f"{folder}: no such folder; a policy set is a folder with {MANIFEST} and {POLICIES}")
    try:
        manifest = manifests.parse(folder / MANIFEST, _read(folder / MANIFEST, manifests.MAX_MANIFEST_BYTES))
        _refuse_strays(folder, manifest)
        groups = {name: _read_arrays(folder / name, record) for name, record in manifest.files.items()}
        return _rebuild(folder, manifest, groups, make, controllers or {}, features)
    except MemoryError:
        raise ArtifactError(f"{folder}: does not fit into memory; load it on a larger machine") from None


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
    manifests.check_header(path, content, record.shapes)
    try:
        arrays = safetensors.numpy.load(content)
    except safetensors.SafetensorError as error:
        raise ArtifactError(f"{path}: must be a safetensors file, found: {error}") from None
    arrays |= {name: arrays[name].astype("<f8") for name in manifests.NARROWED & arrays.keys()}
    for array in arrays.values():
        frozen(array)
    return arrays


def _rebuild(
    folder: Path,
    manifest: Manifest,
    groups: dict[str, Arrays],
    make: Callable[..., AnyContents],
    controllers: Mapping[str, Any],
    features: OwnFunction | None,
) -> AnyContents:
    safe_policy, *policies = _attached(policies_of(folder, manifest, groups[POLICIES]), controllers)
    cells = None if manifest.cells is None else cells_of(folder / CELLS, manifest.cells, groups[CELLS])
    if features is not None:
        cells = _reading(cells, features)
    try:
        policy_set = make(
            entries=tuple(_entry(k, *pair) for k, pair in enumerate(zip(manifest.entries, policies, strict=True))),
            safe_policy=safe_policy,
            units=Units(
                manifest.discount,
                (manifest.reward_range[0], manifest.reward_range[1]),
                np.array(manifest.cost_range),
                np.array(manifest.budget),
                manifest.horizon,
                None
                if manifest.reward_sum_range is None
                else (manifest.reward_sum_range[0], manifest.reward_sum_range[1]),
                None if manifest.cost_sum_range is None else np.array(manifest.cost_sum_range),
            ),
            epsilon=manifest.epsilon,
            delta=manifest.delta,
            xi=manifest.xi,
            task_digest=manifest.task_digest,
            recipe=manifest.recipe,
            training=manifest.training,
            cells=cells,
            safe_risk=manifest.safe_risk,
            names=None if manifest.names is None else tuple(manifest.names),
        )
    except InvalidInput as error:
        raise ArtifactError(f"{folder / MANIFEST}: {error}") from None
    check_fit(folder / CELLS, policy_set)
    return policy_set


def _attached(policies: list[Policy], controllers: Mapping[str, Any]) -> list[Policy]:
    own = [policy.name for policy in policies if isinstance(policy, OwnPolicy)]
    unknown = sorted(set(controllers) - set(own))
    if unknown:
        raise InvalidInput(f"controllers must be named as in the policy set, {own}, got {unknown[0]!r}")
    return [
        policy.with_controller(controllers[policy.name])
        if isinstance(policy, OwnPolicy) and policy.name in controllers
        else policy
        for policy in policies
    ]


def _reading(cells: Cells | None, features: OwnFunction) -> Cells:
    """The same cells, whose episodes can be read here."""
    readings = None if cells is None else cells.readings
    own = None if readings is None else readings.signals.own
    if cells is None or readings is None or own is None:
        raise InvalidInput("features must be left out for a policy set without features of one's own, got a function")
    signals = replace(readings.signals, own=own.found(features))
    return replace(cells, readings=replace(readings, signals=signals))


def _entry(k: int, stored: StoredEntry, policy: Policy) -> Entry:
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
