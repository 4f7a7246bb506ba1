"""Policy sets on disk: exact round trips, atomic saving, and a clear refusal of every damaged or forged folder."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_cells import make_cells

from surefoot.cmdp.units import Units
from surefoot.errors import ArtifactError
from surefoot.policyset import Entry, PolicyValueSet, manifest, storage
from surefoot.policyset.cells import Cells
from surefoot.tabular.evaluate import evaluate, state_values
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy

FILES = ["manifest.json", "policies.safetensors", "cells.safetensors"]
PER_TEST_FOLDER = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def make_set(
    entries: int = 2, states: int = 3, actions: int = 2, constraints: int = 2, seed: int = 0, model: str | None = None
) -> PolicyValueSet:
    """Random numbers throughout, in ranges that allow them; with cells if `model` says of which kind."""
    rng = np.random.default_rng(seed)

    def policy() -> TabularPolicy:
        return TabularPolicy(rng.dirichlet(np.ones(actions), size=states))

    low = rng.normal(size=constraints)
    return PolicyValueSet(
        entries=tuple(
            Entry(
                rng.normal(size=2),
                policy(),
                rng.normal(),
                rng.normal(size=constraints),
                0.1,
                rng.normal(size=constraints),
            )
            for _ in range(entries)
        ),
        safe_policy=policy(),
        units=Units(
            0.9, (-1.0, 2.5), np.stack([low - 1, low + rng.random(constraints)], axis=1), rng.random(constraints)
        ),
        epsilon=1e-4,
        delta=0.05,
        xi=0.15,
        task_digest="5a" * 32,
        recipe={"family": "gridworld", "std": 0.03, "kernel": "published"},
        training={"samples": 2048, "name": "Ünïcode \n", "nested": [1, 2.0, None, True, {"x": -0.0}]},
        cells=None
        if model is None
        else make_cells(
            rng, policies=1 + entries, constraints=constraints, states=states, actions=actions, model=model
        ),
    )


def assert_same(first: PolicyValueSet, second: PolicyValueSet) -> None:
    """Equal to the last bit, compared field by field rather than by the digest under test."""

    def bits(value: Any) -> bytes:
        return np.asarray(value, dtype=np.float64).tobytes()

    assert len(first) == len(second)
    for a, b in zip(first.entries, second.entries, strict=True):
        for name in ("parameter", "reward", "margin", "safe_reward", "safe_margin"):
            assert bits(getattr(a, name)) == bits(getattr(b, name)), name
    for a, b in zip(first.policies, second.policies, strict=True):
        assert a.kind == b.kind
        assert a.probabilities.shape == b.probabilities.shape
        assert bits(a.probabilities) == bits(b.probabilities)
    for name in ("discount", "reward_range", "cost_range", "budget"):
        assert bits(getattr(first.units, name)) == bits(getattr(second.units, name)), name
    for name in ("epsilon", "delta", "xi"):
        assert bits(getattr(first, name)) == bits(getattr(second, name)), name
    assert first.task_digest == second.task_digest
    for name in ("recipe", "training"):  # as text, in which 1 is not 1.0 is not true
        assert json.dumps(getattr(first, name), sort_keys=True) == json.dumps(getattr(second, name), sort_keys=True)
    assert cell_bits(first.cells) == cell_bits(second.cells)
    assert first.digest() == second.digest()


def cell_bits(cells: Cells | None) -> dict[str, Any]:
    """Everything in the cells, arrays as (shape, bytes)."""
    if cells is None:
        return {}
    found = {f"cells.{name}": value for name, value in vars(cells).items() if name != "model"}
    if cells.model is not None:
        found |= {f"model.{name}": value for name, value in vars(cells.model).items() if name != "affine"}
        if cells.model.affine is not None:
            found["model.base"], found["model.slope"] = cells.model.affine
    for name, value in found.items():
        if isinstance(value, np.ndarray):
            assert value.dtype == (np.int64 if name in ("model.classes", "model.row_type") else np.float64), name
            assert not value.flags.writeable, name
            found[name] = (value.shape, value.tobytes())
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


# ---------------------------------------------------------------------------------------------------------- round trips

numbers = st.floats(allow_nan=False, allow_infinity=False)
fractions = st.floats(min_value=0, max_value=1, exclude_min=True, exclude_max=True)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | numbers | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def policy_sets(draw: st.DrawFn) -> PolicyValueSet:
    n, m, d, states, actions = (draw(st.integers(1, 4)) for _ in range(5))
    cells = st.builds(
        make_cells,
        st.integers(0, 2**32 - 1).map(np.random.default_rng),
        cells=st.integers(1, 4),
        policies=st.just(1 + n),
        constraints=st.just(m),
        states=st.just(states),
        actions=st.just(actions),
        parameters=st.just(d),
        by_start=st.booleans(),
        model=st.sampled_from(["none", "balls", "affine"]),
        outside=st.integers(0, 2),
    )

    low, high = (draw(st.floats(10, 1e100)) for _ in range(2))  # wide enough for the bounds in the cells

    def vector(size: int) -> list[float]:
        return draw(st.lists(numbers, min_size=size, max_size=size))

    def possible(size: int) -> list[float]:
        return draw(st.lists(st.floats(-low, high), min_size=size, max_size=size))

    def policy() -> TabularPolicy:
        weights = np.array(
            [draw(st.lists(st.integers(0, 5), min_size=actions, max_size=actions)) for _ in range(states)]
        )
        weights[:, 0] += weights.sum(axis=1) == 0
        return TabularPolicy(weights / weights.sum(axis=1, keepdims=True))

    return PolicyValueSet(
        entries=tuple(
            Entry(vector(d), policy(), *possible(1), possible(m), *possible(1), possible(m))  # type: ignore[arg-type]
            for _ in range(n)
        ),
        safe_policy=policy(),
        units=Units(
            draw(fractions),
            (-low, high),
            np.array([[-high, low]] * m),
            np.array(draw(st.lists(st.floats(-5, 5), min_size=m, max_size=m))),
        ),
        epsilon=draw(st.floats(min_value=0, exclude_min=True, allow_infinity=False)),
        delta=draw(fractions),
        xi=draw(st.floats(min_value=0, allow_infinity=False)),
        task_digest="5a" * 32,
        recipe=draw(st.dictionaries(text, plain, max_size=3)),
        training=draw(st.dictionaries(text, plain, max_size=3)),
        cells=draw(st.none() | cells),
    )


@PER_TEST_FOLDER
@given(policies=policy_sets())
def test_round_trip_is_exact_and_saving_again_gives_the_same_bytes(policies: PolicyValueSet, tmp_path: Path) -> None:
    first, second = tmp_path / "a.policyset", tmp_path / "b.policyset"
    policies.save(first)
    loaded = PolicyValueSet.load(first)
    assert_same(policies, loaded)
    loaded.save(second)
    assert contents(first) == contents(second)
    assert set(contents(first)) == {*FILES} - ({"cells.safetensors"} if policies.cells is None else set())


def test_the_files_can_be_read_with_nothing_but_json_and_safetensors(tmp_path: Path) -> None:
    policies = make_set()
    policies.save(tmp_path / "set")
    manifest = json.loads((tmp_path / "set/manifest.json").read_text())
    stacked = safetensors.numpy.load_file(tmp_path / "set/policies.safetensors")["probabilities"]
    assert stacked.dtype == np.float64
    np.testing.assert_array_equal(stacked[0], policies.safe_policy.probabilities)
    for k, (stored, entry) in enumerate(zip(manifest["entries"], policies.entries, strict=True)):
        np.testing.assert_array_equal(stacked[1 + k], entry.policy.probabilities)
        assert stored == {
            "parameter": list(entry.parameter),
            "reward": entry.reward,
            "margin": list(entry.margin),
            "safe_reward": entry.safe_reward,
            "safe_margin": list(entry.safe_margin),
        }
    assert (manifest["format"], manifest["format_version"]) == ("surefoot.policyset", [1, 1])
    assert manifest["budget"] == list(policies.units.budget)
    assert manifest["cost_range"] == policies.units.cost_range.tolist()
    assert manifest["policy_kind"] == "tabular"
    record = manifest["files"]["policies.safetensors"]
    content = (tmp_path / "set/policies.safetensors").read_bytes()
    assert record["bytes"] == len(content)
    assert record["sha256"] == hashlib.sha256(content).hexdigest()
    assert record["shapes"] == {"probabilities": [3, 3, 2]}
    assert "cells" not in manifest


def test_cells_can_be_read_with_nothing_but_json_and_safetensors(tmp_path: Path) -> None:
    cells = make_set(model="affine").cells
    make_set(model="affine").save(tmp_path / "set")
    arrays = safetensors.numpy.load_file(tmp_path / "set/cells.safetensors")
    assert cells is not None
    assert cells.model is not None
    assert cells.model.affine is not None
    names = ("low", "high", "prior", "lower", "upper", "start_lower", "start_upper", "outside")
    for name in names:
        np.testing.assert_array_equal(arrays.pop(name), getattr(cells, name))
    for name in ("classes", "row_type", "probability", "radius", "reward", "cost", "start"):
        np.testing.assert_array_equal(arrays.pop(f"model.{name}"), getattr(cells.model, name))
    np.testing.assert_array_equal(arrays.pop("model.base"), cells.model.affine[0])
    np.testing.assert_array_equal(arrays.pop("model.slope"), cells.model.affine[1])
    assert not arrays
    manifest = json.loads((tmp_path / "set/manifest.json").read_text())
    parts = {"by_start": True, "outside": True, "model": "affine"}
    assert manifest["cells"] == {"source": "affine", "uncovered": cells.uncovered, **parts}
    assert sorted(manifest["files"]) == ["cells.safetensors", "policies.safetensors"]


def test_loading_gives_the_same_digest_as_before_and_every_change_gives_another(tmp_path: Path) -> None:
    policies = make_set()
    policies.save(tmp_path / "set")
    digests = {PolicyValueSet.load(tmp_path / "set").digest(), policies.digest()}
    assert len(digests) == 1
    for name in ("entries", "seed", "constraints", "states"):
        digests.add(make_set(**{name: 4}).digest())
    assert len(digests) == 5


def test_every_change_of_the_cells_gives_another_digest() -> None:
    policies = make_set(model="affine")
    cells = policies.cells
    assert cells is not None
    assert cells.model is not None
    others = [None, replace(cells, start_lower=None, start_upper=None), replace(cells, outside=cells.outside[:0])]
    others += [replace(cells, source="finite"), replace(cells, uncovered=cells.uncovered + 1e-9)]
    others += [replace(cells, model=None), replace(cells, model=replace(cells.model, affine=None))]
    for name in ("low", "prior", "lower", "start_lower", "outside"):
        others.append(replace(cells, **{name: getattr(cells, name) * (1 - 1e-12) - (name != "prior") * 1e-12}))
    for name in ("high", "upper", "start_upper"):
        others.append(replace(cells, **{name: getattr(cells, name) + 1e-12}))
    for name in ("probability", "radius", "reward", "cost"):
        others.append(replace(cells, model=replace(cells.model, **{name: getattr(cells.model, name) * (1 - 1e-12)})))
    others.append(replace(cells, model=replace(cells.model, start=cells.model.start[::-1])))
    others.append(replace(cells, model=replace(cells.model, row_type=np.array([2, 1, 1]))))
    digests = {replace(policies, cells=other).digest() for other in [cells, *others]}
    assert len(digests) == 1 + len(others)


def test_digest_does_not_depend_on_library_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = make_set().digest()
    monkeypatch.setattr(manifest, "_library_version", lambda: "99.0")
    make_set().save(tmp_path / "set")
    assert '"99.0"' in (tmp_path / "set/manifest.json").read_text()
    assert PolicyValueSet.load(tmp_path / "set").digest() == before


def test_digest_of_a_known_set_never_changes() -> None:
    """Journals name policy sets by their digest: recomputed here from its definition."""
    policy = TabularPolicy(np.array([[0.25, 0.75]]))
    units = Units(0.5, (0.0, 1.0), np.array([[0.0, 1.0]]), np.array([1.5]))
    entry = Entry(np.array([0.3]), policy, 1.0, np.array([0.5]), 0.25, np.array([0.75]))
    policies = PolicyValueSet((entry,), policy, units, 0.01, 0.05, 0.1, "5a", {"b": 1, "a": 0.5}, {})
    rows = hashlib.sha256(np.array([0.25, 0.75, 0.25, 0.75], dtype="<f8").tobytes()).hexdigest()
    canonical = (
        '{"arrays":{"policies.safetensors":{"probabilities":{"sha256":"' + rows + '","shape":[2,1,2]}}},'
        '"budget":[1.5],"cost_range":[[0.0,1.0]],"delta":0.05,"discount":0.5,'
        '"entries":[{"margin":[0.5],"parameter":[0.3],"reward":1.0,"safe_margin":[0.75],"safe_reward":0.25}],'
        '"epsilon":0.01,"format":"surefoot.policyset","policy_kind":"tabular","recipe":{"a":0.5,"b":1},'
        '"reward_range":[0.0,1.0],"task_digest":"5a","training":{},"xi":0.1}'
    )
    assert policies.digest() == hashlib.sha256(canonical.encode()).hexdigest()

    def record(values: Any, shape: str, dtype: str = "<f8") -> str:
        content = np.array(values, dtype=dtype).tobytes()
        return f'{{"sha256":"{hashlib.sha256(content).hexdigest()}","shape":[{shape}]}}'

    bounds = np.array([[[0.25, 0.5], [0.75, 1.0]]])
    nothing = np.empty((0, 1))
    cells = Cells(
        np.array([[0.0]]),
        np.array([[1.0]]),
        np.array([0.75]),
        bounds,
        bounds,
        None,
        None,
        "holdout",
        0.25,
        None,
        nothing,
    )
    arrays = (
        f'"cells.safetensors":{{"high":{record(1, "1,1")},"low":{record(0, "1,1")},'
        f'"lower":{record(bounds, "1,2,2")},"prior":{record(0.75, "1")},"upper":{record(bounds, "1,2,2")}}},'
    )
    canonical = canonical.replace('{"policies', "{" + arrays + '"policies').replace(
        '"cost_range"',
        '"cells":{"by_start":false,"model":"none","outside":false,"source":"holdout","uncovered":0.25},"cost_range"',
    )
    assert replace(policies, cells=cells).digest() == hashlib.sha256(canonical.encode()).hexdigest()


def test_numbers_of_a_smaller_type_are_stored_without_loss_and_larger_ones_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Net:
        kind = "net"

        def __init__(self, weights: np.ndarray) -> None:
            self.weights = weights

        def to_arrays(self) -> dict[str, np.ndarray]:
            return {"weights": self.weights}

    def with_policies(weights: np.ndarray) -> PolicyValueSet:
        base = make_set(entries=1)
        one = base.entries[0]
        entry = Entry(one.parameter, Net(weights), one.reward, one.margin, one.safe_reward, one.safe_margin)
        return PolicyValueSet((entry,), Net(weights), base.units, 0.01, 0.05, 0.1, "5a", {}, {})

    single = np.array([0.1, 0.2], dtype=np.float32)
    with pytest.raises(ArtifactError, match=r"kind 'net' cannot be saved, must be one of \['mlp', .*'tabular'"):
        with_policies(single).save(tmp_path / "set")
    assert with_policies(single).digest() != with_policies(2 * single).digest()  # in memory every kind has one
    monkeypatch.setitem(storage.DECODERS, "net", lambda arrays: Net(arrays["weights"]))
    with_policies(single).save(tmp_path / "set")
    loaded = PolicyValueSet.load(tmp_path / "set").safe_policy
    assert isinstance(loaded, Net)
    assert loaded.weights.astype(np.float32).tobytes() == single.tobytes()
    with pytest.raises(ArtifactError, match="'weights' has type int64, must be float64 or a smaller float"):
        with_policies(np.array([2**60 + 1])).save(tmp_path / "set")


# --------------------------------------------------------------------------------------------------------------- saving


def test_saving_makes_missing_parents_and_leaves_nothing_beside_the_set(tmp_path: Path) -> None:
    make_set().save(str(tmp_path / "deep/er/set"))
    assert [file.name for file in (tmp_path / "deep/er").iterdir()] == ["set"]
    assert (tmp_path / "deep/er/set").stat().st_mode & 0o777 == 0o777 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_saving_replaces_a_policy_set_or_an_empty_folder(tmp_path: Path) -> None:
    target = tmp_path / "set"
    target.mkdir()
    make_set(seed=1).save(target)
    make_set(seed=2).save(target)
    assert_same(PolicyValueSet.load(target), make_set(seed=2))
    assert [file.name for file in tmp_path.iterdir()] == ["set"]


def test_replacing_a_set_with_cells_by_one_without_leaves_no_cells(tmp_path: Path) -> None:
    for model in ("affine", None, "balls", "none"):
        make_set(model=model).save(tmp_path / "set")
        assert_same(PolicyValueSet.load(tmp_path / "set"), make_set(model=model))


def test_saving_through_a_link_replaces_the_set_behind_it(tmp_path: Path) -> None:
    make_set(seed=1).save(tmp_path / "real")
    (tmp_path / "link").symlink_to("real", target_is_directory=True)
    make_set(seed=2).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert_same(PolicyValueSet.load(tmp_path / "real"), make_set(seed=2))


def _foreign_file(target: Path) -> None:
    target.write_text("mine")


def _foreign_folder(target: Path) -> None:
    target.mkdir()
    (target / "thesis.tex").write_text("mine")


def _foreign_manifest(target: Path) -> None:
    target.mkdir()
    (target / "manifest.json").write_text('{"format": "something.else"}')


def _broken_manifest(target: Path) -> None:
    target.mkdir()
    (target / "manifest.json").write_text("{")


def _tensors_only(target: Path) -> None:
    target.mkdir()
    (target / "model.safetensors").write_bytes(b"mine")


def _set_with_notes(target: Path) -> None:
    make_set(seed=1).save(target)
    (target / "notes.txt").write_text("mine")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (_foreign_file, "exists and is not a folder; choose another path"),
        (_foreign_folder, "exists and is not a policy set .it holds 'thesis.tex'."),
        (_foreign_manifest, "exists and its manifest.json is not a surefoot.policyset one"),
        (_broken_manifest, "must be JSON"),
        (_tensors_only, "exists and is not a policy set .it has no manifest.json."),
        (_set_with_notes, "exists and is not a policy set .it holds 'notes.txt'."),
    ],
)
def test_nothing_of_the_users_is_overwritten(prepare: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    prepare(target)
    before = contents(tmp_path)
    with pytest.raises(ArtifactError, match=message):
        make_set().save(target)
    assert contents(tmp_path) == before


def test_a_parent_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ArtifactError, match=r"path must be a folder, got .*file, but .*file is a file"):
        make_set().save(tmp_path / "file" / "set")


def test_a_path_that_no_system_accepts_is_refused() -> None:
    for act in (make_set().save, PolicyValueSet.load):
        with pytest.raises(ArtifactError):
            act("a\0b")


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("failing", FILES)
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt("by the user")])
def test_a_failed_write_leaves_everything_as_it_was(
    existing: bool, failing: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if existing:
        make_set(seed=1).save(tmp_path / "set")
    before, write = contents(tmp_path), storage.write_new

    def broken(path: Path, content: bytes) -> None:
        if path.name == failing:
            path.write_bytes(content[: len(content) // 2])
            raise error
        write(path, content)

    monkeypatch.setattr(storage, "write_new", broken)
    expected = ArtifactError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected, match=str(error.args[-1])):
        make_set(seed=2, model="balls").save(tmp_path / "set")
    assert contents(tmp_path) == before
    assert len(list(tmp_path.iterdir())) == existing


def test_a_failed_rename_puts_the_old_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_set(seed=1).save(tmp_path / "set")
    before, rename = contents(tmp_path), Path.rename

    def broken(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", broken)
    with pytest.raises(ArtifactError, match=r"could not be saved .*Input/output error"):
        make_set(seed=2).save(tmp_path / "set")
    assert contents(tmp_path) == before
    assert [file.name for file in tmp_path.iterdir()] == ["set"]


def test_the_old_set_is_kept_when_it_cannot_even_be_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_set(seed=1).save(tmp_path / "set")
    rename = Path.rename

    def broken(self: Path, target: Path) -> Path:
        if self.name in ("new", "old"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", broken)
    with pytest.raises(ArtifactError, match="could not be saved"):
        make_set(seed=2).save(tmp_path / "set")
    (kept,) = tmp_path.glob(".set.*/old")
    assert_same(PolicyValueSet.load(kept), make_set(seed=1))


KILLED_WHILE_SAVING = """
import os, sys
from pathlib import Path
from surefoot.policyset import PolicyValueSet, storage
left = int(sys.argv[3])
def dying(real):
    def act(*args):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return real(*args)
    return act
storage.write_new, storage.sync_folder = dying(storage.write_new), dying(storage.sync_folder)
Path.rename = dying(Path.rename)
PolicyValueSet.load(sys.argv[1]).save(sys.argv[2])
"""


@pytest.mark.parametrize("steps", range(8))
def test_a_killed_process_leaves_a_whole_set(steps: int, tmp_path: Path) -> None:
    """Three writes, a flush, two renames, a flush: killed before each of them, and not at all."""
    old, new = make_set(seed=1), make_set(seed=2, model="affine")
    old.save(tmp_path / "set")
    new.save(tmp_path / "other")
    command = [sys.executable, "-c", KILLED_WHILE_SAVING, str(tmp_path / "other"), str(tmp_path / "set"), str(steps)]
    source = str(Path(storage.__file__).parents[2])
    result = subprocess.run(command, env={**os.environ, "PYTHONPATH": source}, check=False)
    assert result.returncode == (9 if steps < 7 else 0)
    if steps == 5:  # between the two renames
        assert not (tmp_path / "set").exists()
        (whole,) = tmp_path.glob(".set.*/old")
    else:
        whole = tmp_path / "set"
    assert_same(PolicyValueSet.load(whole), old if steps <= 5 else new)


MISFITS: list[tuple[dict[str, int], str]] = [
    ({"parameters": 3}, r"low is for \[3\] parameters of the entries, must be for \[2\]"),
    ({"states": 4}, r"start_lower is for \[4\] states of the policies, must be for \[3\]"),
    ({"actions": 3}, r"model.reward is for \[3, 3\] states and actions of the policies, must be for \[3, 2\]"),
]


def misfit(sizes: dict[str, int]) -> Cells:
    """Cells that are valid in themselves, for another set than `make_set()`."""
    return make_cells(np.random.default_rng(0), **{"policies": 3, **sizes})  # type: ignore[arg-type]


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "MAX_ELEMENTS", 17)
    with pytest.raises(ArtifactError, match="files declare 18 array elements, must be at most 17"):
        make_set().save(tmp_path / "set")
    monkeypatch.setattr(manifest, "MAX_MANIFEST_BYTES", 100)
    with pytest.raises(ArtifactError, match=r"manifest: has .* bytes, must have at most 100"):
        make_set().save(tmp_path / "set")
    for sizes, message in MISFITS:
        with pytest.raises(ArtifactError, match=f"the policy set: {message}"):
            replace(make_set(), cells=misfit(sizes)).save(tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------------------------------------- accidents: any byte


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    make_set().save(tmp_path / "set")
    return tmp_path / "set"


@pytest.fixture
def with_cells(tmp_path: Path) -> Path:
    make_set(model="affine").save(tmp_path / "cells")
    return tmp_path / "cells"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    make_small().save(tmp_path / "small")
    return tmp_path / "small"


def make_small() -> PolicyValueSet:
    small = make_set(entries=1, states=1, constraints=1)
    cells = make_cells(np.random.default_rng(0), cells=1, constraints=1, states=1, outside=1)
    return replace(small, cells=cells)


def _refused_or_unchanged(folder: Path) -> bool:
    """Whether loading is refused; what loads nevertheless must be the very same set."""
    try:
        loaded = PolicyValueSet.load(folder)
    except ArtifactError:
        return True
    assert_same(loaded, make_small())
    return False


@pytest.mark.parametrize("name", FILES)
def test_truncated_at_any_byte(name: str, small: Path) -> None:
    content = (small / name).read_bytes()
    loadable = []
    for length in range(len(content)):
        (small / name).write_bytes(content[:length])
        if not _refused_or_unchanged(small):
            loadable.append(length)
    assert loadable == ([len(content) - 1] if name == "manifest.json" else [])  # only the final newline is dispensable


@pytest.mark.parametrize("name", FILES)
def test_any_byte_flipped(name: str, small: Path) -> None:
    content = (small / name).read_bytes()
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        (small / name).write_bytes(flipped)
        refused = _refused_or_unchanged(small)
        assert refused or (name == "manifest.json" and _same_json(content, bytes(flipped))), place


def _same_json(first: bytes, second: bytes) -> bool:
    return repr(json.loads(first)) == repr(json.loads(second))


@PER_TEST_FOLDER
@given(data=st.data())
def test_random_edits(data: st.DataObject, small: Path) -> None:
    name = data.draw(st.sampled_from(FILES))
    content = (small / name).read_bytes()
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 20)))
    edited = content[:start] + data.draw(st.binary(max_size=20)) + content[end:]
    try:
        (small / name).write_bytes(edited)
        refused = _refused_or_unchanged(small)
    finally:
        (small / name).write_bytes(content)  # the folder serves the next example too
    assert refused or edited == content or (name == "manifest.json" and _same_json(content, edited))


@pytest.mark.parametrize("name", FILES)
def test_files_missing_swapped_linked_or_grown(name: str, with_cells: Path, tmp_path: Path) -> None:
    original, content = with_cells / name, (with_cells / name).read_bytes()
    original.write_bytes(content + b" x")
    with pytest.raises(ArtifactError, match=rf"{name}: (must be JSON|has \d+ bytes, must have at most)"):
        PolicyValueSet.load(with_cells)
    original.unlink()
    with pytest.raises(ArtifactError, match=f"{name}: is missing, must be in the policy set folder"):
        PolicyValueSet.load(with_cells)
    (tmp_path / "elsewhere").write_bytes(content)
    original.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtifactError, match=f"{name}: is a symbolic link, must be a plain file"):
        PolicyValueSet.load(with_cells)
    original.unlink()
    original.mkdir()
    with pytest.raises(ArtifactError, match=f"{name}: is not a file, must be a plain file"):
        PolicyValueSet.load(with_cells)
    original.rmdir()
    os.mkfifo(original)  # opening it would wait for a writer for ever
    with pytest.raises(ArtifactError, match=f"{name}: is not a file, must be a plain file"):
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


# -------------------------------------------------------------------------------- forgeries: with all hashes recomputed


def reseal(folder: Path, forge: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest and recompute its hash, written independently of the library."""
    manifest = json.loads((folder / "manifest.json").read_text())
    forge(manifest)
    del manifest["manifest_sha256"]
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    manifest["manifest_sha256"] = hashlib.sha256(canonical.encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def reseal_arrays(
    folder: Path, content: bytes, shapes: dict[str, list[int]] | None = None, name: str = "policies.safetensors"
) -> None:
    """Replace the arrays and recompute every hash on the way."""
    (folder / name).write_bytes(content)

    def forge(manifest: dict[str, Any]) -> None:
        record = manifest["files"][name]
        record["sha256"], record["bytes"] = hashlib.sha256(content).hexdigest(), len(content)
        record["shapes"] = shapes or record["shapes"]

    reseal(folder, forge)


def raw_tensors(header: dict[str, Any] | bytes, data: bytes) -> bytes:
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + data


def put(*keys: Any) -> Callable[[Any], Callable[[dict[str, Any]], None]]:
    """put("a", 0)(value) is the forgery that sets manifest["a"][0] = value."""

    def to(value: Any) -> Callable[[dict[str, Any]], None]:
        def forge(manifest: dict[str, Any]) -> None:
            place: Any = manifest
            for key in keys[:-1]:
                place = place[key]
            place[keys[-1]] = value

        return forge

    return to


def rename_file(name: str) -> Callable[[dict[str, Any]], None]:
    def forge(manifest: dict[str, Any]) -> None:
        manifest["files"] = {name: manifest["files"]["policies.safetensors"]}

    return forge


def drop(key: str) -> Callable[[dict[str, Any]], None]:
    def forge(manifest: dict[str, Any]) -> None:
        del manifest[key]

    return forge


FILE = {"sha256": "0" * 64, "bytes": 8, "shapes": {}}
FORGERIES = [
    (put("format")("surefoot.journal"), "format must be 'surefoot.policyset', found 'surefoot.journal'"),
    (put("format_version")([2, 0]), r"format_version must be \[1, …\] .* found \[2, 0\]; upgrade surefoot"),
    (put("format_version")([0, 9]), r"format_version must be \[1, …\] .* found \[0, 9\]"),
    (put("format_version")("1.0"), r"format_version must be \[1, …\] .* found '1.0'"),
    (put("format_version")([1]), "format_version: list should have at least 2 items .* found"),
    (put("format_version")([1, True]), "format_version.1: input should be a valid integer, found True"),
    (drop("format_version"), "format_version must be .* found None"),
    (drop("delta"), "delta: field required, found nothing"),
    (put("signature")("x"), "signature: extra inputs are not permitted, found 'x'"),
    (put("two\nlines")(1), r"two\\nlines: extra inputs are not permitted, found 1"),
    (put("entries", 0, "code")("x"), "entries.0.code: extra inputs are not permitted"),
    (put("entries", 0, "reward")("1.0"), "entries.0.reward: input should be a valid number, found '1.0'"),
    (put("entries", 0, "reward")(True), "entries.0.reward: input should be a valid number, found True"),
    (put("entries", 0, "reward")(10**400), "entries.0.reward: input should be a valid number"),
    (put("entries", 0, "margin")([1.0]), r"manifest.json: entries\[0\]: margin and safe_margin must have"),
    (put("entries", 1, "parameter")([1.0]), r"manifest.json: entries\[1\].parameter must have as many coordinates"),
    (put("entries", 1, "parameter")([]), r"manifest.json: entries\[1\]: parameter must be a vector"),
    (put("entries")([]), "entries: list should have at least 1 item"),
    (lambda m: m["entries"].append(m["entries"][0]), r"probabilities has shape \[3, 3, 2\], must be \[4, …\]"),
    (put("budget")([1.0]), r"manifest.json: cost_range must be .* \[m, 2\] with low ≤ high"),
    (put("cost_range")([[0.0, 1.0], [2.0, 1.0]]), "manifest.json: cost_range must be .* with low ≤ high"),
    (put("cost_range", 0)([0.0]), "cost_range.0: list should have at least 2 items"),
    (
        put("discount")(1.0),
        "manifest.json: discount must lie strictly between 0 and 1, or be 1 .*, got 1.0",
    ),
    (put("epsilon")(0.0), "manifest.json: epsilon must lie strictly"),
    (put("xi")(-1.0), "manifest.json: xi must not be negative"),
    (put("task_digest")(""), "manifest.json: task_digest must be a non-empty"),
    (put("recipe")([]), "recipe: input should be a valid dictionary"),
    (put("training")({"n": 2**64}), "manifest.json: training.n must be plain JSON data"),
    (put("policy_kind")("os.system"), r"policy_kind must be one of \['mlp', .*\], found 'os.system'"),
    (put("files")({}), r"files must name exactly \['policies.safetensors'\], found \[\]"),
    (put("files", "extra.safetensors")(FILE), "files must name exactly .* found .*extra.safetensors"),
    (
        put("files", "policies.safetensors", "url")("x"),
        "files.policies.safetensors.url: extra inputs are not permitted",
    ),
    (put("files", "policies.safetensors", "sha256")("0" * 63), "sha256: string should match pattern"),
    (put("files", "policies.safetensors", "sha256")("0" * 64), "was altered after it was saved"),
    (put("files", "policies.safetensors", "bytes")(10**18), "bytes: input should be less than or equal to 4296015872"),
    (
        put("files", "policies.safetensors", "bytes")(2**32),
        "policies.safetensors: has 4294967296 bytes, must have at most",
    ),
    (put("files", "policies.safetensors", "bytes")(0), "bytes: input should be greater than or equal to 1"),
    (put("files", "policies.safetensors", "bytes")(10), "policies.safetensors: has .* bytes, must have at most 10"),
    (put("files", "policies.safetensors", "shapes")({"probabilities": [2**20, 2**20]}), "files declare 1099511627776"),
    (
        put("files", "policies.safetensors", "shapes")({"probabilities": [3, 2, 3]}),
        r"holds arrays of shapes .* must be",
    ),
    (put("files", "policies.safetensors", "shapes")({"probabilities": [3, -3, -2]}), "greater than or equal to 1"),
    (put("files", "policies.safetensors", "shapes")({"probabilities": [1] * 9}), "at most 8 items"),
    *(
        (rename_file(name), "files must have plain names inside the folder")
        for name in (
            "../policies.safetensors",
            "/etc/passwd",
            "sub/policies.safetensors",
            "..",
            "",
            "sub\\policies.safetensors",
            "policies.safetensors\n",
            "policies.safetensors\0",
            "C:policies.safetensors",
        )
    ),
]


@pytest.mark.parametrize(("forge", "message"), FORGERIES, ids=[message for _, message in FORGERIES])
def test_forged_manifests_are_refused(forge: Callable[[dict[str, Any]], None], message: str, saved: Path) -> None:
    reseal(saved, forge)
    with pytest.raises(ArtifactError, match=message) as refusal:
        PolicyValueSet.load(saved)
    assert "\n" not in str(refusal.value)
    assert str(saved) in str(refusal.value)


def test_resealing_alone_changes_nothing_and_a_newer_minor_version_loads(saved: Path) -> None:
    """The forgeries above are refused for what they change, not for being resealed."""
    for forge in (lambda manifest: None, put("format_version")([1, 7])):
        reseal(saved, forge)
        assert_same(PolicyValueSet.load(saved), make_set())


def test_a_changed_value_is_noticed_unless_resealed(saved: Path) -> None:
    text = (saved / "manifest.json").read_text()
    (saved / "manifest.json").write_text(text.replace('"xi": 0.15', '"xi": 0.16'))
    with pytest.raises(ArtifactError, match=r"manifest\.json: was altered after it was saved"):
        PolicyValueSet.load(saved)


@pytest.mark.parametrize(
    ("number", "found"),
    [
        ("NaN", "NaN is not a number"),
        ("Infinity", "Infinity is not a number"),
        ("-Infinity", "-Infinity is not a number"),
        ("1e999", "the number 1e999"),
        ('0.15, "xi": 0.2', "the key 'xi' more than once"),
        ("1" * 5000, "Exceeds the limit"),
        ("[" * 100_000, "must be nested at most 36 levels deep"),
        ('"\\ud800"', "surrogates not allowed"),
        ("0x10", "Expecting ',' delimiter"),
    ],
)
def test_only_plain_finite_json_is_read(number: str, found: str, saved: Path) -> None:
    text = (saved / "manifest.json").read_text()
    (saved / "manifest.json").write_text(text.replace('"xi": 0.15', f'"xi": {number}'))
    with pytest.raises(ArtifactError, match=rf"manifest.json: must be JSON in UTF-8 .* found: .*{found}"):
        PolicyValueSet.load(saved)


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"\xff\xfe{\0}\0", b"\xef\xbb\xbf{}"])
def test_documents_that_are_no_manifest(content: bytes, saved: Path) -> None:
    (saved / "manifest.json").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"manifest.json: must (be JSON|hold a JSON object)"):
        PolicyValueSet.load(saved)


def test_a_huge_manifest_is_not_even_read(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (saved / "manifest.json").open("r+b") as stream:
        stream.truncate(2**40)  # sparse: takes no space
    monkeypatch.setattr(Path, "open", lambda *args: pytest.fail("must not be opened"))
    with pytest.raises(ArtifactError, match=r"manifest\.json: has 1099511627776 bytes, must have at most 8388608"):
        PolicyValueSet.load(saved)


def _probabilities(seed: int = 0) -> np.ndarray:
    return np.stack([policy.probabilities for policy in make_set(seed=seed).policies])


def _forged_arrays() -> Iterator[tuple[str, bytes, dict[str, list[int]] | None, str]]:
    good, save = _probabilities(), safetensors.numpy.save
    shape, size, data = [3, 3, 2], 144, good.tobytes()
    tensor = {"dtype": "F64", "shape": shape, "data_offsets": [0, size]}
    not_one = good.copy()
    not_one[1, 2] = [0.5, 0.6]
    negative = good.copy()
    negative[0, 0] = [-0.5, 1.5]
    nan = good.copy()
    nan[2, 0, 0] = np.nan
    yield "sum", save({"probabilities": not_one}), None, r"policy 1 .*: policy\[2\] must sum to 1 .* got 1.1"
    yield "negative", save({"probabilities": negative}), None, r"policy 0 .*: policy\[0, 0\] must not be negative"
    yield "nan", save({"probabilities": nan}), None, r"policy 2 .*: policy\[0, 0\] must be finite, got nan"
    yield (
        "float32",
        save({"probabilities": good.astype(np.float32)}),
        None,
        "'probabilities' must have dtype F64, found 'F32'",
    )
    yield (
        "name",
        save({"weights": good}),
        {"weights": shape},
        r"must hold the array 'probabilities', found \['weights'\]",
    )
    yield "no arrays", save({}), {"probabilities": shape}, "holds arrays of shapes {}, must be"
    yield (
        "more arrays",
        save({"probabilities": good, "more": good}),
        {"probabilities": shape, "more": shape},
        r"must hold exactly the arrays \['probabilities'\], found \['more', 'probabilities'\]",
    )
    yield (
        "flat",
        save({"probabilities": good.reshape(3, 6)[:, :1]}),
        {"probabilities": [3, 1]},
        r"shape \[S, A\], got \[1\]",
    )
    yield "scalar", save({"probabilities": np.array(1.0)}), {"probabilities": []}, r"has shape \[\], must be \[3, …\]"
    yield (
        "metadata",
        save({"probabilities": good}, metadata={"run": "me"}),
        None,
        "__metadata__.dtype: field required, found nothing",
    )
    wrong_end = {**tensor, "data_offsets": [0, 8]}
    yield "offsets", raw_tensors({"probabilities": wrong_end}, data), None, "must be a safetensors file"
    hole = {**tensor, "data_offsets": [8, size + 8]}
    yield "hole", raw_tensors({"probabilities": hole}, b"\0" * 8 + data), None, "must be a safetensors file"
    yield "trailing", raw_tensors({"probabilities": tensor}, data + b"\0"), None, "must be a safetensors file"
    yield "too short", raw_tensors({"probabilities": tensor}, data[:-1]), None, "must be a safetensors file"
    huge = {**tensor, "shape": [3, 3, 2**26]}
    yield "huge", raw_tensors({"probabilities": huge}, data), None, "holds arrays of shapes .* must be"
    yield "huge agreed", raw_tensors({"probabilities": huge}, data), {"probabilities": [3, 3, 2**25]}, "holds arrays"
    both = {"probabilities": [3, 3, 2**25]}
    declared = {**tensor, "shape": both["probabilities"]}
    yield "huge declared twice", raw_tensors({"probabilities": declared}, data), both, "must be a safetensors file"
    yield (
        "negative size",
        raw_tensors({"probabilities": {**tensor, "shape": [3, -3, -2]}}, data),
        None,
        "shape.1: input",
    )
    twice = json.dumps({"probabilities": tensor})[:-1] + ', "probabilities": {}}'
    yield "twice", raw_tensors(twice.encode(), data), None, "the key 'probabilities' more than once"
    yield "no json", raw_tensors(b"{", data), None, "policies.safetensors: must be JSON"
    yield "list", raw_tensors(b"[]", data), None, "content: input should be a valid dictionary"
    yield (
        "long header",
        (2**63).to_bytes(8, "little") + data,
        None,
        "says that its header has 9223372036854775808 bytes",
    )
    yield "tiny", b"\x01", None, "says that its header has 1 bytes"
    yield "pickle", b"\x80\x04cos\nsystem\n(S'true'\ntR.", None, "says that its header has"


@pytest.mark.parametrize(
    ("content", "shapes", "message"), [pytest.param(*rest, id=name) for name, *rest in _forged_arrays()]
)
def test_forged_arrays_are_refused(
    content: bytes, shapes: dict[str, list[int]] | None, message: str, saved: Path
) -> None:
    reseal_arrays(saved, content, shapes)
    with pytest.raises(ArtifactError, match=message) as refusal:
        PolicyValueSet.load(saved)
    assert "\n" not in str(refusal.value)
    assert str(saved / "policies.safetensors") in str(refusal.value)


def test_arrays_resealed_with_valid_content_do_load(saved: Path) -> None:
    """So the refusals above come from the content, not from the resealing."""
    reseal_arrays(saved, safetensors.numpy.save({"probabilities": _probabilities(seed=1)}))
    np.testing.assert_array_equal(
        PolicyValueSet.load(saved).safe_policy.probabilities, make_set(seed=1).safe_policy.probabilities
    )


# --------------------------------------------------------------------------------------------------- forgeries of cells


def reseal_cells(folder: Path, forge: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Change the arrays of the cells and recompute every hash and shape on the way."""
    arrays = safetensors.numpy.load_file(folder / "cells.safetensors")
    forge(arrays)
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    reseal_arrays(folder, safetensors.numpy.save(arrays), shapes, "cells.safetensors")


def entry(name: str, index: Any, value: Any) -> Callable[[dict[str, np.ndarray]], None]:
    def forge(arrays: dict[str, np.ndarray]) -> None:
        arrays[name][index] = value

    return forge


def whole(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[dict[str, np.ndarray]], None]:
    def forge(arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = np.array(change(arrays[name]), order="C")

    return forge


FORGED_CELLS = [
    (entry("lower", (0, 1, 2), np.nan), r"lower\[0, 1, 2\] must be finite, got nan"),
    (entry("start_upper", (2, 2, 2, 2), np.inf), r"start_upper\[2, 2, 2, 2\] must be finite, got inf"),
    (entry("outside", 0, np.nan), r"outside\[0, 0\] must be finite, got nan"),
    (entry("lower", (1, 0, 0), 99.0), r"lower\[1, 0, 0\] must not exceed upper, got 99.0"),
    (entry("start_lower", (1, 0, 0, 2), 99.0), r"start_lower\[1, 0, 0, 2\] must not exceed start_upper, got 99.0"),
    (entry("low", (1, 0), 99.0), r"low\[1, 0\] must not exceed high, got 99.0"),
    (entry("prior", 1, -0.5), r"prior\[1\] must not be negative, got -0.5"),
    (entry("prior", 1, 1.5), "prior must sum to at most 1, got"),
    (whole("prior", lambda prior: prior * 0.99), "prior and uncovered must sum to 1, got"),
    (whole("lower", lambda lower: lower[:2]), r"lower must have shape \[J, P, 1\+m\] = \[3, .*\], got \[2, 3, 3\]"),
    (whole("upper", lambda upper: upper[:, :2]), r"upper must have shape .* = \[3, 3, 3\], got \[3, 2, 3\]"),
    (whole("prior", lambda prior: prior[:, None]), r"prior must have shape \[J\] = \[3\], got \[3, 1\]"),
    (whole("low", lambda low: low[0, 0]), r"low must have shape \[J, d\] = .*, got \[\]"),
    (whole("start_lower", lambda low: low[..., :2]), r"start_upper must have shape .* got \[3, 3, 3, 3\]"),
    (whole("outside", lambda outside: outside[:, :1]), r"outside must have shape \[J', d\] = \[any, 2\], got \[2, 1\]"),
    (whole("model.cost", lambda cost: cost[:1]), r"model must have as many constraints .*\(2\), got 1"),
    (entry("model.classes", (0, 0, 0), 3), r"model.classes\[0, 0, 0\] must lie in \[-1, 3\), got 3"),
    (entry("model.classes", (0, 0, 0), -2), r"model.classes\[0, 0, 0\] must lie in \[-1, 3\), got -2"),
    (entry("model.classes", (0, 0, 0), -1), r"model.row_type must be one and the same for rows .* row \(1, 0\)"),
    (entry("model.row_type", 0, 3), r"model.row_type\[0\] must lie in \[0, 3\), got 3"),
    (entry("model.row_type", 0, 1), r"model.row_type must be one and the same for rows"),
    (entry("model.probability", (1, 0), 1.5), r"model.probability\[1, 0\] must lie in \[0, 1\], got 1.5"),
    (entry("model.probability", (1, 0), 0.5), r"model.probability\[1\] must sum to 1 .* got 0.5"),
    (entry("model.radius", 1, -0.5), r"model.radius\[1\] must not be negative, got -0.5"),
    (entry("model.slope", (0, 0), np.nan), r"model.affine\[1\]\[0, 0\] must be finite, got nan"),
    (whole("model.slope", lambda slope: slope[:, :1]), r"model must have as many parameters .*\(2\), got 1"),
    (whole("model.base", lambda base: base[:2]), r"model.affine\[0\] must have shape \[C\] = \[3\], got \[2\]"),
    (whole("model.cost", lambda cost: cost[0]), r"model.cost must have shape \[m, S, A\] = .*, got \[3, 2\]"),
    (whole("model.classes", np.float64), r"'model.classes' must have dtype I64, found 'F64'"),
    (whole("lower", np.int64), r"'lower' must have dtype F64, found 'I64'"),
    (whole("lower", np.float32), r"'lower' must have dtype F64, found 'F32'"),
    (
        lambda arrays: arrays.pop("upper"),
        r"must hold exactly the arrays \['high', .* that manifest.json announces, found",
    ),
    (lambda arrays: arrays.pop("model.base"), "must hold exactly the arrays"),
    (lambda arrays: arrays.update(more=np.ones(1)), "must hold exactly the arrays .* found .*'more'"),
]


@pytest.mark.parametrize(("forge", "message"), FORGED_CELLS, ids=[message for _, message in FORGED_CELLS])
def test_forged_cells_are_refused(
    forge: Callable[[dict[str, np.ndarray]], None], message: str, with_cells: Path
) -> None:
    reseal_cells(with_cells, forge)
    with pytest.raises(ArtifactError, match=rf"cells\.safetensors: {message}") as refusal:
        PolicyValueSet.load(with_cells)
    assert "\n" not in str(refusal.value)


@PER_TEST_FOLDER
@given(data=st.data())
def test_any_number_of_the_cells_made_infinite_is_refused(data: st.DataObject, with_cells: Path) -> None:
    before = contents(with_cells)
    arrays = safetensors.numpy.load(before["cells.safetensors"])
    name = data.draw(st.sampled_from(sorted(name for name, array in arrays.items() if array.dtype == np.float64)))
    index = data.draw(st.integers(0, arrays[name].size - 1))
    value = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    field = {"model.base": "model.affine[0]", "model.slope": "model.affine[1]"}.get(name, name)
    try:
        reseal_cells(with_cells, entry(name, np.unravel_index(index, arrays[name].shape), value))
        with pytest.raises(ArtifactError) as refusal:
            PolicyValueSet.load(with_cells)
    finally:
        for file, content in before.items():  # the folder serves the next example too
            (with_cells / file).write_bytes(content)
    assert f"cells.safetensors: {field}[" in str(refusal.value)
    assert f"must be finite, got {value}" in str(refusal.value)


FORGED_CELL_RECORDS = [
    (put("cells", "source")("guess"), "cells.source: input should be 'affine', 'finite', .* found 'guess'"),
    (put("cells", "uncovered")(-0.1), "cells.uncovered: input should be greater than or equal to 0, found -0.1"),
    (put("cells", "uncovered")(1.1), "cells.uncovered: input should be less than or equal to 1, found 1.1"),
    (put("cells", "uncovered")("0"), "cells.uncovered: input should be a valid number, found '0'"),
    (put("cells", "uncovered")(0.9), "prior and uncovered must sum to 1, got .* and 0.9"),
    (put("cells", "by_start")(1), "cells.by_start: input should be a valid boolean, found 1"),
    (put("cells", "by_start")(False), "must hold exactly the arrays .* found .*'start_lower'"),
    (put("cells", "outside")(False), "must hold exactly the arrays .* found .*'outside'"),
    (put("cells", "model")("none"), "must hold exactly the arrays .* found .*'model.classes'"),
    (put("cells", "model")("balls"), "must hold exactly the arrays .* found .*'model.base'"),
    (put("cells", "model")("code"), "cells.model: input should be 'none', 'balls' or 'affine', found 'code'"),
    (put("cells", "code")("x"), "cells.code: extra inputs are not permitted, found 'x'"),
    (put("cells")(None), r"files must name exactly \['policies.safetensors'\], found \['cells.safetensors', "),
    (drop("cells"), r"files must name exactly \['policies.safetensors'\], found \['cells.safetensors', "),
    (rename_file("policies.safetensors"), r"files must name exactly \['cells.safetensors', 'policies.safetensors'\]"),
    (
        put("files", "extra.safetensors")(FILE),
        r"files must name exactly \['cells.safetensors', 'policies.safetensors'\]",
    ),
]


@pytest.mark.parametrize(("forge", "message"), FORGED_CELL_RECORDS, ids=[message for _, message in FORGED_CELL_RECORDS])
def test_forged_records_of_cells_are_refused(
    forge: Callable[[dict[str, Any]], None], message: str, with_cells: Path
) -> None:
    reseal(with_cells, forge)
    with pytest.raises(ArtifactError, match=message) as refusal:
        PolicyValueSet.load(with_cells)
    assert "\n" not in str(refusal.value)
    assert str(with_cells) in str(refusal.value)


@pytest.mark.parametrize(("sizes", "message"), [*MISFITS, ({"policies": 2}, "cells must bound reward and 2 margin")])
def test_cells_of_another_set_are_refused_even_if_resealed(
    sizes: dict[str, int], message: str, with_cells: Path, tmp_path: Path
) -> None:
    cells = misfit(sizes)
    others = {"entries": cells.lower.shape[1] - 1, "states": 3, "actions": 2}
    others |= {name: size for name, size in sizes.items() if name in others}
    base = make_set(**others)
    longer = tuple(replace(one, parameter=np.zeros(cells.low.shape[1])) for one in base.entries)
    replace(base, entries=longer, cells=cells).save(tmp_path / "other")
    record = json.loads((tmp_path / "other/manifest.json").read_text())
    shutil.copy(tmp_path / "other/cells.safetensors", with_cells)

    def forge(manifest: dict[str, Any]) -> None:
        manifest["cells"] = record["cells"]
        manifest["files"]["cells.safetensors"] = record["files"]["cells.safetensors"]

    reseal(with_cells, forge)
    with pytest.raises(ArtifactError, match=message) as refusal:
        PolicyValueSet.load(with_cells)
    assert str(with_cells) in str(refusal.value)


def test_cells_resealed_with_valid_content_do_load(with_cells: Path) -> None:
    """So the refusals above come from the content, not from the resealing."""
    reseal_cells(with_cells, entry("lower", (1, 2, 0), -99.0))
    cells = PolicyValueSet.load(with_cells).cells
    assert cells is not None
    assert cells.lower[1, 2, 0] == -99.0


# ------------------------------------------------------------------------------ sets saved in the past, never rewritten

ASSETS = Path(__file__).parents[1] / "assets"
SAVED_IN_THE_PAST = {
    "policyset-1.0-plain": "f0c98af9e3e32fd170b0f6c4a120768fb9a4fb19071da0a20adb83d83ac25912",
    "policyset-1.0-cells": "f11a648b5366ab25e5011eda9e9bcfd2643f64f0b49dd95ac2678c981900fe81",
}


def pump(wear: float) -> TabularCMDP:
    """The family of the saved sets: a pump gets hot, or does not cool down when slowed, with probability `wear`."""
    worn, hot = [1 - wear, wear], [0.0, 1.0]
    return TabularCMDP(
        transitions=[[[1.0, 0.0], worn], [worn, hot]],
        reward=[[0.25, 1.0], [0.25, 1.0]],
        cost=[0.0, 1.0],
        budget=3.0,
        start=[1.0, 0.0],
        discount=0.9,
        reward_range=(0.0, 1.0),
        cost_range=(0.0, 1.0),
    )


@pytest.mark.parametrize(("name", "digest"), SAVED_IN_THE_PAST.items())
def test_sets_saved_in_the_past_keep_loading(name: str, digest: str, tmp_path: Path) -> None:
    """Values are compared with those of the tasks that the sets were trained on, not with what the files say."""
    loaded = PolicyValueSet.load(ASSETS / name)
    assert loaded.digest() == digest
    assert [round(float(entry.parameter[0]), 4) for entry in loaded.entries] == [0.2989, 0.3988, 0.1989]
    for entry in loaded.entries:
        task = pump(float(entry.parameter[0]))
        for policy, reward, margin in (
            (entry.policy, entry.reward, entry.margin),
            (loaded.safe_policy, entry.safe_reward, entry.safe_margin),
        ):
            values = evaluate(task, policy)  # type: ignore[arg-type]
            assert reward == pytest.approx(values.reward, abs=1e-9)
            assert margin == pytest.approx(values.margin, abs=1e-9)
    loaded.save(tmp_path / "again")
    assert_same(PolicyValueSet.load(tmp_path / "again"), loaded)


def test_cells_saved_in_the_past_still_bound_the_values() -> None:
    policies = PolicyValueSet.load(ASSETS / "policyset-1.0-cells")
    cells = policies.cells
    assert cells is not None
    assert cells.model is not None
    assert cells.start_lower is not None
    assert cells.start_upper is not None
    assert (len(cells), len(cells.outside), cells.source) == (12, 4, "affine")
    for j, share in np.ndindex(len(cells), 3):
        wear = float(cells.low[j, 0] + share / 2 * (cells.high[j, 0] - cells.low[j, 0]))
        task = pump(wear)
        np.testing.assert_allclose(cells.model.task(np.array([wear]), policies.units).transitions, task.transitions)
        for p, policy in enumerate(policies.policies):
            by_start = state_values(task, policy.probabilities)  # type: ignore[attr-defined]
            by_start[1:] = 3.0 - by_start[1:]
            assert (cells.start_lower[j, p] <= by_start).all()
            assert (by_start <= cells.start_upper[j, p]).all()
            assert (cells.lower[j, p] <= by_start[:, 0]).all()
            assert (by_start[:, 0] <= cells.upper[j, p]).all()
