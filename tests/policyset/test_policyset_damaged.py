"""Policy sets damaged by accident: truncated, flipped, swapped and missing files are refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from policy_sets import FILES, assert_same, make_set, make_small

from surefoot.errors import ArtifactError
from surefoot.policyset import PolicyValueSet


def _refused_or_unchanged(folder: Path) -> bool:
    """Whether loading is refused; what loads nevertheless must be the very same set."""
    try:
        loaded = PolicyValueSet.load(folder)
    except ArtifactError:
        return True
    assert_same(loaded, make_small())
    return False


# Each of a file's bytes in the long run; here, from the end, so that the last ones are among them, some.
EACH_OR_SOME = pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.long), 59])


@EACH_OR_SOME
@pytest.mark.parametrize("name", FILES)
def test_truncated_at_any_byte(name: str, stride: int, small: Path) -> None:
    content = (small / name).read_bytes()
    loadable = []
    for length in reversed(range(len(content) - 1, -1, -stride)):
        (small / name).write_bytes(content[:length])
        if not _refused_or_unchanged(small):
            loadable.append(length)
    assert loadable == ([len(content) - 1] if name == "manifest.json" else [])  # only the final newline is dispensable


@EACH_OR_SOME
@pytest.mark.parametrize("name", FILES)
def test_any_byte_flipped(name: str, stride: int, small: Path) -> None:
    content = (small / name).read_bytes()
    for place in range(len(content) - 1, -1, -stride):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        (small / name).write_bytes(flipped)
        refused = _refused_or_unchanged(small)
        assert refused or (name == "manifest.json" and _same_json(content, bytes(flipped))), place


def _same_json(first: bytes, second: bytes) -> bool:
    return repr(json.loads(first)) == repr(json.loads(second))


@pytest.mark.parametrize("name", FILES)
def test_files_missing_linked_or_grown(name: str, with_cells: Path, tmp_path: Path) -> None:
    original, content = with_cells / name, (with_cells / name).read_bytes()
    (tmp_path / "elsewhere").write_bytes(content)
    for put, message in (
        (lambda: original.write_bytes(content + b" x"), r"(must be JSON|has \d+ bytes, must have at most)"),
        (lambda: None, "is missing, must be in the policy set folder"),
        (lambda: original.symlink_to(tmp_path / "elsewhere"), "is a symbolic link, must be a plain file"),
        (lambda: os.mkfifo(original), "is not a file, must be a plain file"),  # which would wait for a writer for ever
    ):
        original.unlink(missing_ok=True)
        put()
        with pytest.raises(ArtifactError, match=f"{name}: {message}"):
            PolicyValueSet.load(with_cells)


@pytest.mark.parametrize("name", FILES[1:])
def test_arrays_of_another_set_are_refused(name: str, with_cells: Path, tmp_path: Path) -> None:
    make_set(seed=1, model="affine").save(tmp_path / "other")
    shutil.copy(tmp_path / "other" / name, with_cells / name)
    with pytest.raises(ArtifactError, match=f"{name}: was altered after it was saved"):
        PolicyValueSet.load(with_cells)


def test_arrays_that_the_manifest_does_not_name_are_refused(saved: Path, with_cells: Path) -> None:
    (saved / "notes.txt").write_text("mine")
    assert_same(PolicyValueSet.load(saved), make_set())
    shutil.copy(with_cells / "cells.safetensors", saved)
    with pytest.raises(ArtifactError, match=r"holds 'cells.safetensors', must hold only the arrays that manifest.json"):
        PolicyValueSet.load(saved)


def test_no_folder_at_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(ArtifactError, match="no such folder; a policy set is a folder"):
            PolicyValueSet.load(path)
