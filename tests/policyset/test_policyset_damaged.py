"""Loading damaged policy sets, and what a small one may cost and claim: truncated, flipped, swapped and missing files
are refused, memory is in proportion to the files, values are those that the units allow."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from policy_sets import FILES, assert_same, entry, make_set, make_small, put, reseal, reseal_cells

from dense_models import dense_model
from surefoot.errors import ArtifactError
from surefoot.policyset import PolicyValueSet, policy_value_set, storage
from surefoot.tabular.transition_model import TransitionModel


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
    for damage, message in (
        (lambda: original.write_bytes(content + b" x"), r"(must be JSON|has \d+ bytes, must have at most)"),
        (lambda: None, "is missing, must be in the policy set folder"),
        (lambda: original.symlink_to(tmp_path / "elsewhere"), "is a symbolic link, must be a plain file"),
        (lambda: os.mkfifo(original), "is not a file, must be a plain file"),  # which would wait for a writer for ever
    ):
        original.unlink(missing_ok=True)
        damage()
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


# --------------------------------------------------------------------------------------------------------------- memory


def peak(work: Callable[[], Any]) -> float:
    """Most memory in MiB that `work` held at a time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def test_many_rows_and_many_cells_are_not_multiplied() -> None:
    states, actions, cells = 2, 4000, 4000  # a table [S·A, J] would take 244 MiB, one [S·A, C] as much again
    arrays = {
        "classes": np.tile(np.arange(states), (states, actions, 1)),
        "row_type": np.zeros(states, dtype=np.int64),
        "probability": np.full((cells, states), 0.5),
        "radius": np.zeros(cells),
        "reward": np.zeros((states, actions)),
        "cost": np.zeros((1, states, actions)),
        "start": np.full(states, 0.5),
    }
    made: list[TransitionModel] = []
    assert peak(lambda: made.append(dense_model(**arrays, affine=None))) < 16
    assert made[0].multiplicity.tolist() == [1, 1]

    types = np.arange(actions)  # every action has a row type and two classes of its own
    many = arrays | {
        "classes": np.tile(np.stack([2 * types, 2 * types + 1], axis=1), (states, 1, 1)),
        "row_type": np.repeat(types, 2),
        "probability": np.full((2, 2 * actions), 0.5),
        "radius": np.zeros(2),
    }
    assert peak(lambda: made.append(dense_model(**many, affine=None))) < 16
    assert peak(lambda: made[1].multiplicity) < 16


def test_multiplicity_counts_successors_in_a_row_of_the_type() -> None:
    classes = np.array([[[0, 0, 1], [2, 3, 3]], [[1, 0, 0], [3, 2, 3]], [[0, 1, 0], [4, -1, -1]]])
    model = dense_model(
        classes,
        np.array([0, 0, 1, 1, 2]),
        np.array([[0.25, 0.5, 0.5, 0.25, 1.0]]),
        None,
        np.zeros(1),
        np.full(3, 1 / 3),
        np.zeros((3, 2)),
        np.zeros((1, 3, 2)),
    )
    assert model.multiplicity.tolist() == [2, 1, 1, 2, 1]


def test_a_file_that_is_not_the_one_that_was_saved_takes_no_memory(with_cells: Path) -> None:
    elements = 2**23
    with (with_cells / "policies.safetensors").open("r+b") as stream:
        stream.truncate(8 * elements)  # sparse: takes no space
    shapes = put("files/policies.safetensors/shapes", {"probabilities": [elements]})
    size = put("files/policies.safetensors/bytes", 8 * elements)

    def load() -> None:
        reseal(with_cells, lambda manifest: (shapes(manifest), size(manifest)))
        with pytest.raises(ArtifactError, match="was altered after it was saved"):
            PolicyValueSet.load(with_cells)

    assert peak(load) < 8


def test_a_file_longer_than_its_arrays_is_not_even_hashed(with_cells: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reseal(with_cells, put("files/cells.safetensors/bytes", 2**32))
    monkeypatch.setattr(storage, "_check_hash", lambda *_: pytest.fail("must not be hashed"))
    with pytest.raises(ArtifactError, match=r"cells\.safetensors: has 4294967296 bytes, must have at most"):
        PolicyValueSet.load(with_cells)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("[" + "[]," * 600_000 + "[]]", "must hold at most 1000000 values"),
        ("[" * 40 + "]" * 40, "must be nested at most 36 levels deep"),
    ],
)
def test_manifests_are_measured_before_they_are_parsed(extra: str, message: str, with_cells: Path) -> None:
    text = (with_cells / "manifest.json").read_text()
    (with_cells / "manifest.json").write_text(text.replace('"xi": ', f'"extra": {extra}, "xi": '))

    def load() -> None:
        with pytest.raises(ArtifactError, match=message):
            PolicyValueSet.load(with_cells)

    assert peak(load) < 16


def test_a_set_that_does_not_fit_into_memory_is_an_artifact_error(
    with_cells: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(content: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr(safetensors.numpy, "load", exhausted)
    with pytest.raises(ArtifactError, match="does not fit into memory"):
        PolicyValueSet.load(with_cells)


def test_more_cells_than_can_be_compared_in_pairs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_value_set, "MAX_CELLS", 2)
    with pytest.raises(ArtifactError, match="holds 3 cells, must hold at most 2"):
        make_set(model="none").save(tmp_path / "set")


# --------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("name", "index", "value"),
    [
        ("lower", (0, 1, 1), 1e300),
        ("lower", (2, 0, 0), 60.0),  # no reward is above 25
        ("upper", (0, 1, 0), -40.0),  # nor below -10
        ("start_lower", (1, 1, 2, 2), 1e300),
        ("start_upper", (1, 1, 0, 2), -1e300),
    ],
)
def test_bounds_that_no_policy_can_reach_are_refused(name: str, index: Any, value: float, with_cells: Path) -> None:
    def forge(arrays: dict[str, np.ndarray]) -> None:
        for each in ("start_lower", "start_upper") if "start" in name else ("lower", "upper"):
            arrays[each][index] = value  # both, so that lower ≤ upper

    reseal_cells(with_cells, forge)
    with pytest.raises(ArtifactError, match="must be possible with rewards and costs in the ranges of units"):
        PolicyValueSet.load(with_cells)


@pytest.mark.parametrize("key", ["reward", "margin", "safe_reward", "safe_margin"])
@pytest.mark.parametrize("value", [1e300, -1e300])
def test_values_that_no_policy_can_have_are_refused(key: str, value: float, with_cells: Path) -> None:
    forged = value if "reward" in key else [value, 0.0]
    reseal(with_cells, put(f"entries/1/{key}", forged))
    with pytest.raises(ArtifactError, match="of entries must be possible with rewards and costs in the ranges"):
        PolicyValueSet.load(with_cells)


def test_bounds_may_be_as_loose_as_they_like(with_cells: Path) -> None:
    reseal_cells(with_cells, entry("lower", (0, 1, 1), -1e300))
    reseal_cells(with_cells, entry("start_upper", (0, 1, 1, 0), 1e300))
    assert len(PolicyValueSet.load(with_cells)) == 2


# --------------------------------------------------------------------------------------------------------------- saving


def test_without_force_a_policy_set_is_not_replaced(tmp_path: Path) -> None:
    policies = make_set()
    policies.save(tmp_path / "set", force=False)
    (tmp_path / "empty").mkdir()
    policies.save(tmp_path / "empty", force=False)
    with pytest.raises(ArtifactError, match=r"path must be a new folder, got .*set, which holds a policy set"):
        make_set(seed=1).save(tmp_path / "set", force=False)
    assert PolicyValueSet.load(tmp_path / "set").digest() == policies.digest()
    make_set(seed=1).save(tmp_path / "set")
    assert PolicyValueSet.load(tmp_path / "set").digest() == make_set(seed=1).digest()
