"""Saving policy sets: atomically, replacing nothing of the user's, and nothing that could not be loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from policy_sets import (
    FILES,
    MISFITS,
    assert_same,
    contents,
    files_of,
    make_set,
    misfit,
)

from surefoot.errors import ArtifactError
from surefoot.policyset import PolicyValueSet, manifest, storage


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


FOREIGN: list[tuple[dict[str, bytes], str]] = [
    ({"target": b"mine"}, "exists and is not a folder; choose another path"),
    ({"target/thesis.tex": b"mine"}, "exists and is not a policy set .it holds 'thesis.tex'."),
    ({"target/manifest.json": b'{"format": "other"}'}, "exists and its manifest.json is not a surefoot.policyset one"),
    ({"target/manifest.json": b"{"}, "must be JSON"),
    ({"target/model.safetensors": b"mine"}, "exists and is not a policy set .it has no manifest.json."),
    (
        {**{f"target/{name}": content for name, content in files_of("plain").items()}, "target/notes.txt": b"mine"},
        "exists and is not a policy set .it holds 'notes.txt'.",
    ),
]


@pytest.mark.parametrize(("files", "message"), FOREIGN)
def test_nothing_of_the_users_is_overwritten(files: dict[str, bytes], message: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ArtifactError, match=message):
        make_set().save(tmp_path / "target")
    assert contents(tmp_path) == files


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


@pytest.mark.short_for(steps=[5])
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
