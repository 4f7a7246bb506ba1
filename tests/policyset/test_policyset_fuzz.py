"""Policy sets damaged by accident and forged on purpose: each is refused in one sentence, or is a set that works."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import safetensors.numpy
from policy_sets import make_mixed, make_set, seal

from peak_memory import in_a_process
from surefoot.cmdp.episode import Observed
from surefoot.errors import ArtifactError, SurefootError
from surefoot.learning.certified.choice import CERTIFIED
from surefoot.methods import learner
from surefoot.policyset import PolicyValueSet

Files: TypeAlias = dict[str, bytes]
Mutation: TypeAlias = Callable[[np.random.Generator, Files], Files]

HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 2**31, 2**63, 2**64, 10**400, 0.5, -0.0, 1e308, -1e308, 5e-324, 1e-9),
    *("", "x", "\0", "é\n", "../x", "policies.safetensors", "x" * 5000, [], {}, [[]], [[1.0]], {"a": 1}, [0.0] * 3),
    *([1e308, -1e308], [2**40, 2**40], [1] * 9, [None], [[[[[[[[]]]]]]]], {"": {"": {}}}),
)
NUMBERS = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, 1e300, -1e300, 5e-324, 1e-12, 0.5)
KINDS = ("moments", "transitions", "own")
SAVED = (None, "none", "balls", "affine", "affine-transitions", "mixed", *KINDS)
USED = ("safe-only", "pce", "paper", *CERTIFIED)


def fuzz(count: int, seed: int) -> dict[str, Any]:
    """Load that many mutants, and use those that load; returns how many were refused, loaded and used."""
    rng = np.random.default_rng(seed)
    counted: Counter[str] = Counter()
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers as large as numbers are
        folder = Path(place) / "set"
        originals = [saved(folder, model) for model in SAVED]
        for _ in range(count):
            files = originals[rng.integers(len(originals))]
            mutation = MUTATIONS[rng.integers(len(MUTATIONS))]
            replace_files(folder, mutation(rng, files))
            counted[f"{mutation.__name__}: {fate(rng, folder)}"] += 1
    total = {what: sum(n for name, n in counted.items() if name.endswith(what)) for what in ("refused", "loaded")}
    return {**total, "by_mutation": dict(counted)}


def saved(folder: Path, model: str | None) -> Files:
    if model in KINDS:
        make_set(model="none", readings=model).save(folder)
    else:
        (make_mixed() if model == "mixed" else make_set(model=model)).save(folder)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def replace_files(folder: Path, files: Files) -> None:
    for file in folder.iterdir():
        file.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def fate(rng: np.random.Generator, folder: Path) -> str:
    try:
        policies = PolicyValueSet.load(folder)
    except ArtifactError as error:
        return "refused" if len(str(error)) < 2000 else "refused at length"
    assert all(np.isfinite(array).all() for policy in policies.policies for array in policy.to_arrays().values())
    method, readings = USED[rng.integers(len(USED))], policies.cells and policies.cells.readings
    with contextlib.suppress(SurefootError):  # a set may be whole and yet not suit a method
        learner(policies, method=method, episodes=100, risk=0.1, seed=0, horizon=1000).ask()
    if readings is not None:
        with contextlib.suppress(SurefootError):  # or not read such episodes
            signals = readings.signals.of(
                0, Observed(rng.integers(9, size=(2, 5)), np.ones((2, 4), int), np.full(2, 4))
            )
            assert ((signals >= 0) & (signals <= 1)).all()
    return "loaded"


# -------------------------------------------------------------------------------------------------- damage by accident


def flipped_bits(rng: np.random.Generator, files: Files) -> Files:
    name = any_name(rng, files)
    content = bytearray(files[name])
    for place in rng.integers(len(content), size=rng.integers(1, 4)):
        content[place] ^= 1 << rng.integers(8)
    return {**files, name: bytes(content)}


def cut(rng: np.random.Generator, files: Files) -> Files:
    name = any_name(rng, files)
    return {**files, name: files[name][: rng.integers(len(files[name]))]}


def grown(rng: np.random.Generator, files: Files) -> Files:
    name = any_name(rng, files)
    content, place = files[name], int(rng.integers(len(files[name]) + 1))
    return {**files, name: content[:place] + rng.bytes(int(rng.integers(1, 100))) + content[place:]}


def missing_or_swapped(rng: np.random.Generator, files: Files) -> Files:
    first, second = any_name(rng, files), any_name(rng, files)
    if first == second:
        return {name: content for name, content in files.items() if name != first}
    return {**files, first: files[second], second: files[first]}


def any_name(rng: np.random.Generator, files: Files) -> str:
    return str(rng.choice(sorted(files)))


# -------------------------------------------------------------------------------------- forgeries with hashes made anew


def forged_manifest(rng: np.random.Generator, files: Files) -> Files:
    """One to three places of the manifest replaced, left out, doubled or exchanged."""
    document = json.loads(files["manifest.json"])
    for _ in range(rng.integers(1, 4)):
        parent, key = any_place(rng, document)
        match rng.integers(6):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, list):
                parent.append(parent[key])
            case 1:
                parent["extra"] = HOSTILE[rng.integers(len(HOSTILE))]
            case 2 if isinstance(parent[key], float):
                parent[key] *= 10.0 ** int(rng.integers(-20, 20))
            case 3:
                other, name = any_place(rng, document)
                parent[key] = json.loads(json.dumps(other[name]))
            case _:
                parent[key] = HOSTILE[rng.integers(len(HOSTILE))]
        if not document:
            break
    return sealed(files, document)


def any_place(rng: np.random.Generator, document: Any) -> tuple[Any, Any]:
    """A container somewhere in `document`, and one of its keys or indices."""
    while True:
        key = list(document)[rng.integers(len(document))] if isinstance(document, dict) else rng.integers(len(document))
        key = key if isinstance(key, str) else int(key)
        below = document[key]
        if not isinstance(below, dict | list) or not below or rng.random() < 0.2:
            return document, key
        document = below


def forged_arrays(rng: np.random.Generator, files: Files) -> Files:
    """One to three arrays with other numbers, shapes, types or names; mostly with shapes to match in the manifest."""
    name = str(rng.choice([each for each in sorted(files) if each.endswith(".safetensors")]))
    arrays = safetensors.numpy.load(files[name])
    for _ in range(rng.integers(1, 4)):
        key = str(rng.choice(sorted(arrays)))
        match rng.integers(8):
            case 0 if len(arrays) > 1:
                del arrays[key]
            case 1:
                arrays[str(rng.choice(["extra", "lower", "model.base", "signals.keys", ""]))] = arrays[key]
            case 2:
                arrays[key] = resized(rng, arrays[key])
            case 3:
                arrays[key] = arrays[key].astype(rng.choice(["f4", "i8", "i4", "f8", "u1"]))
            case _:
                arrays[key] = renumbered(rng, arrays[key])
    arrays = {key: np.ascontiguousarray(array) for key, array in arrays.items()}
    document = json.loads(files["manifest.json"])
    if rng.random() < 0.9:
        document["files"][name]["shapes"] = {key: list(array.shape) for key, array in arrays.items()}
    return sealed({**files, name: safetensors.numpy.save(arrays)}, document)


def resized(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    axis = int(rng.integers(array.ndim)) if array.ndim else 0
    match rng.integers(5):
        case 0:
            return array.T
        case 1:
            return array.ravel()
        case 2 if array.ndim:
            return np.repeat(array, int(rng.integers(1, 4)), axis=axis)
        case 3 if array.ndim:
            return np.delete(array, 0, axis=axis)
        case _:
            return array[None]


def renumbered(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    changed = array.copy()
    if not changed.size:
        return changed
    place = rng.integers(changed.size, size=rng.integers(1, 4))
    if changed.dtype.kind in "iu":
        changed.flat[place] = rng.choice([-(2**31), -2, -1, 0, 1, 2, 3, 100]) if changed.dtype.kind == "i" else 3
        return changed
    match rng.integers(4):
        case 0:
            changed *= 10.0 ** int(rng.integers(-20, 20))
        case 1:
            changed.flat[:] = rng.permutation(changed.ravel())
        case 2:
            changed.flat[place] += rng.normal()
        case _:
            changed.flat[place] = NUMBERS[rng.integers(len(NUMBERS))]
    return changed


def forged_bytes(rng: np.random.Generator, files: Files) -> Files:
    """Any damage to the arrays' files, header and all, under hashes that say it is meant."""
    name = str(rng.choice([each for each in sorted(files) if each.endswith(".safetensors")]))
    damage = (flipped_bits, cut, grown)[rng.integers(3)]
    content = damage(rng, {name: files[name]})[name]
    return sealed({**files, name: content}, json.loads(files["manifest.json"]))


def sealed(files: Files, document: Any) -> Files:
    """Sizes and hashes of everything computed anew."""
    if isinstance(document.get("files"), dict):
        for name, record in document["files"].items():
            if name in files and isinstance(record, dict):
                record["bytes"] = len(files[name])
                record["sha256"] = hashlib.sha256(files[name]).hexdigest()
    return {**files, "manifest.json": seal(document)}


MUTATIONS: tuple[Mutation, ...] = (
    *(flipped_bits, cut, grown, missing_or_swapped),
    *(forged_manifest, forged_arrays, forged_bytes) * 3,
)


@pytest.mark.parametrize(
    ("count", "seed"),
    [pytest.param(80, 0, id="80 sets"), pytest.param(12_000, 1, id="12000 sets", marks=pytest.mark.long)],
)
def test_every_mutant_is_refused_or_works(count: int, seed: int) -> None:
    found = in_a_process("policyset", f"test_policyset_fuzz.fuzz({count}, {seed})")
    assert found["refused"] + found["loaded"] == count
    assert found["loaded"] > count / 50, found  # otherwise nothing but hashes was tested
    assert found["peak"] < 512, found
