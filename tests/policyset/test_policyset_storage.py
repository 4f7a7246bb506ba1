"""Policy sets on disk: exact round trips, atomic saving, and a clear refusal of every damaged or forged folder."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surefoot.cmdp.model import Units
from surefoot.cmdp.policy import TabularPolicy
from surefoot.errors import ArtifactError
from surefoot.policyset import Entry, PolicyValueSet, storage

PER_TEST_FOLDER = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def make_set(
    entries: int = 2, states: int = 3, actions: int = 2, constraints: int = 2, seed: int = 0
) -> PolicyValueSet:
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
        units=Units(0.9, (-1.0, 2.5), np.stack([low, low + rng.random(constraints)], axis=1), rng.random(constraints)),
        epsilon=1e-4,
        delta=0.05,
        xi=0.15,
        task_digest="5a" * 32,
        recipe={"family": "gridworld", "std": 0.03, "kernel": "published"},
        training={"samples": 2048, "name": "Ünïcode \n", "nested": [1, 2.0, None, True, {"x": -0.0}]},
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
    assert first.digest() == second.digest()


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

    def vector(size: int) -> list[float]:
        return draw(st.lists(numbers, min_size=size, max_size=size))

    def policy() -> TabularPolicy:
        weights = np.array(
            [draw(st.lists(st.integers(0, 5), min_size=actions, max_size=actions)) for _ in range(states)]
        )
        weights[:, 0] += weights.sum(axis=1) == 0
        return TabularPolicy(weights / weights.sum(axis=1, keepdims=True))

    return PolicyValueSet(
        entries=tuple(
            Entry(vector(d), policy(), draw(numbers), vector(m), draw(numbers), vector(m))  # type: ignore[arg-type]
            for _ in range(n)
        ),
        safe_policy=policy(),
        units=Units(
            draw(fractions),
            tuple(sorted(vector(2))),  # type: ignore[arg-type]
            np.sort(np.array([vector(2) for _ in range(m)]), axis=1),
            np.array(vector(m)),
        ),
        epsilon=draw(st.floats(min_value=0, exclude_min=True, allow_infinity=False)),
        delta=draw(fractions),
        xi=draw(st.floats(min_value=0, allow_infinity=False)),
        task_digest="5a" * 32,
        recipe=draw(st.dictionaries(text, plain, max_size=3)),
        training=draw(st.dictionaries(text, plain, max_size=3)),
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
    assert sorted(contents(first)) == ["manifest.json", "policies.safetensors"]


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
    assert (manifest["format"], manifest["format_version"]) == ("surefoot.policyset", [1, 0])
    assert manifest["budget"] == list(policies.units.budget)
    assert manifest["cost_range"] == policies.units.cost_range.tolist()
    assert manifest["policy_kind"] == "tabular"
    record = manifest["files"]["policies.safetensors"]
    content = (tmp_path / "set/policies.safetensors").read_bytes()
    assert record["bytes"] == len(content)
    assert record["sha256"] == hashlib.sha256(content).hexdigest()
    assert record["shapes"] == {"probabilities": [3, 3, 2]}


def test_loading_gives_the_same_digest_as_before_and_every_change_gives_another(tmp_path: Path) -> None:
    policies = make_set()
    policies.save(tmp_path / "set")
    digests = {PolicyValueSet.load(tmp_path / "set").digest(), policies.digest()}
    assert len(digests) == 1
    for name in ("entries", "seed", "constraints", "states"):
        digests.add(make_set(**{name: 4}).digest())
    assert len(digests) == 5


def test_digest_does_not_depend_on_library_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = make_set().digest()
    monkeypatch.setattr(storage, "_library_version", lambda: "99.0")
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
    with pytest.raises(ArtifactError, match=r"policies of kind 'net' cannot be saved, must be one of \['tabular'\]"):
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
    with pytest.raises(ArtifactError, match=r"cannot save a policy set there \(.*\); choose a writable folder"):
        make_set().save(tmp_path / "file" / "set")


def test_a_path_that_no_system_accepts_is_refused() -> None:
    for act in (make_set().save, PolicyValueSet.load):
        with pytest.raises(ArtifactError):
            act("a\0b")


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("failing", ["policies.safetensors", "manifest.json"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt("by the user")])
def test_a_failed_write_leaves_everything_as_it_was(
    existing: bool, failing: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if existing:
        make_set(seed=1).save(tmp_path / "set")
    before, write = contents(tmp_path), storage._write

    def broken(path: Path, content: bytes) -> None:
        if path.name == failing:
            path.write_bytes(content[: len(content) // 2])
            raise error
        write(path, content)

    monkeypatch.setattr(storage, "_write", broken)
    expected = ArtifactError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected, match=str(error.args[-1])):
        make_set(seed=2).save(tmp_path / "set")
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
storage._write, storage._sync_folder = dying(storage._write), dying(storage._sync_folder)
Path.rename = dying(Path.rename)
PolicyValueSet.load(sys.argv[1]).save(sys.argv[2])
"""


@pytest.mark.parametrize("steps", range(7))
def test_a_killed_process_leaves_a_whole_set(steps: int, tmp_path: Path) -> None:
    """Two writes, a flush, two renames, a flush: killed before each of them, and not at all."""
    make_set(seed=1).save(tmp_path / "set")
    make_set(seed=2).save(tmp_path / "other")
    command = [sys.executable, "-c", KILLED_WHILE_SAVING, str(tmp_path / "other"), str(tmp_path / "set"), str(steps)]
    source = str(Path(storage.__file__).parents[2])
    result = subprocess.run(command, env={**os.environ, "PYTHONPATH": source}, check=False)
    assert result.returncode == (9 if steps < 6 else 0)
    if steps == 4:  # between the two renames
        assert not (tmp_path / "set").exists()
        (whole,) = tmp_path.glob(".set.*/old")
    else:
        whole = tmp_path / "set"
    assert_same(PolicyValueSet.load(whole), make_set(seed=1 if steps <= 4 else 2))


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "MAX_ELEMENTS", 17)
    with pytest.raises(ArtifactError, match="files declare 18 array elements, must be at most 17"):
        make_set().save(tmp_path / "set")
    monkeypatch.setattr(storage, "MAX_MANIFEST_BYTES", 100)
    with pytest.raises(ArtifactError, match=r"manifest: has .* bytes, must have at most 100"):
        make_set().save(tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------------------------------------- accidents: any byte


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    make_set().save(tmp_path / "set")
    return tmp_path / "set"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    make_small().save(tmp_path / "small")
    return tmp_path / "small"


def make_small() -> PolicyValueSet:
    return make_set(entries=1, states=1, constraints=1)


def _refused_or_unchanged(folder: Path) -> bool:
    """Whether loading is refused; what loads nevertheless must be the very same set."""
    try:
        loaded = PolicyValueSet.load(folder)
    except ArtifactError:
        return True
    assert_same(loaded, make_small())
    return False


@pytest.mark.parametrize("name", ["manifest.json", "policies.safetensors"])
def test_truncated_at_any_byte(name: str, small: Path) -> None:
    content = (small / name).read_bytes()
    loadable = []
    for length in range(len(content)):
        (small / name).write_bytes(content[:length])
        if not _refused_or_unchanged(small):
            loadable.append(length)
    assert loadable == ([len(content) - 1] if name == "manifest.json" else [])  # only the final newline is dispensable


@pytest.mark.parametrize("name", ["manifest.json", "policies.safetensors"])
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
    name = data.draw(st.sampled_from(["manifest.json", "policies.safetensors"]))
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


@pytest.mark.parametrize("name", ["manifest.json", "policies.safetensors"])
def test_files_missing_swapped_linked_or_grown(name: str, saved: Path, tmp_path: Path) -> None:
    original, content = saved / name, (saved / name).read_bytes()
    original.write_bytes(content + b" x")
    with pytest.raises(ArtifactError, match=rf"{name}: (must be JSON|has \d+ bytes, must have at most)"):
        PolicyValueSet.load(saved)
    original.unlink()
    with pytest.raises(ArtifactError, match=f"{name}: is missing, must be in the policy set folder"):
        PolicyValueSet.load(saved)
    (tmp_path / "elsewhere").write_bytes(content)
    original.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtifactError, match=f"{name}: is a symbolic link, must be a plain file"):
        PolicyValueSet.load(saved)
    original.unlink()
    original.mkdir()
    with pytest.raises(ArtifactError, match=f"{name}: is not a file, must be a plain file"):
        PolicyValueSet.load(saved)
    original.rmdir()
    os.mkfifo(original)  # opening it would wait for a writer for ever
    with pytest.raises(ArtifactError, match=f"{name}: is not a file, must be a plain file"):
        PolicyValueSet.load(saved)


def test_arrays_of_another_set_are_refused(saved: Path, tmp_path: Path) -> None:
    make_set(seed=1).save(tmp_path / "other")
    shutil.copy(tmp_path / "other/policies.safetensors", saved / "policies.safetensors")
    with pytest.raises(ArtifactError, match="was altered after it was saved"):
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


def reseal_arrays(folder: Path, content: bytes, shapes: dict[str, list[int]] | None = None) -> None:
    """Replace the arrays and recompute every hash on the way."""
    (folder / "policies.safetensors").write_bytes(content)

    def forge(manifest: dict[str, Any]) -> None:
        record = manifest["files"]["policies.safetensors"]
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
    (put("budget")([1.0]), r"manifest.json: units.cost_range must have shape \[1, 2\], got \[2, 2\]"),
    (put("cost_range")([[0.0, 1.0], [2.0, 1.0]]), "manifest.json: units.cost_range must have low ≤ high"),
    (put("cost_range", 0)([0.0]), "cost_range.0: list should have at least 2 items"),
    (put("discount")(1.0), "manifest.json: units.discount must lie strictly between 0 and 1, got 1.0"),
    (put("epsilon")(0.0), "manifest.json: epsilon must lie strictly"),
    (put("xi")(-1.0), "manifest.json: xi must not be negative"),
    (put("task_digest")(""), "manifest.json: task_digest must be a non-empty"),
    (put("recipe")([]), "recipe: input should be a valid dictionary"),
    (put("training")({"n": 2**64}), "manifest.json: training.n must be plain JSON data"),
    (put("policy_kind")("os.system"), r"policy_kind must be one of \['tabular'\], found 'os.system'"),
    (put("files")({}), r"files must name exactly \['policies.safetensors'\], found \[\]"),
    (put("files", "extra.safetensors")(FILE), "files must name exactly .* found .*extra.safetensors"),
    (
        put("files", "policies.safetensors", "url")("x"),
        "files.policies.safetensors.url: extra inputs are not permitted",
    ),
    (put("files", "policies.safetensors", "sha256")("0" * 63), "sha256: string should match pattern"),
    (put("files", "policies.safetensors", "sha256")("0" * 64), "was altered after it was saved"),
    (put("files", "policies.safetensors", "bytes")(10**18), "bytes: input should be less than or equal to 4296015872"),
    (put("files", "policies.safetensors", "bytes")(2**32), "has .* bytes, must have the 4294967296 that manifest.json"),
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
        ("NaN", "the number NaN"),
        ("Infinity", "the number Infinity"),
        ("-Infinity", "the number -Infinity"),
        ("1e999", "the number 1e999"),
        ('0.15, "xi": 0.2', "the key 'xi' more than once"),
        ("1" * 5000, "Exceeds the limit"),
        ("[" * 100_000, "maximum recursion depth exceeded"),
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
    with pytest.raises(ArtifactError, match=r"manifest\.json: has 1099511627776 bytes, must have at most 33554432"):
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
    yield "float32", save({"probabilities": good.astype(np.float32)}), None, "dtype: input should be 'F64', found 'F32'"
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
