"""What is distributed: the wheel holds the whole package and nothing else, and works where only its own needs are."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from surefoot import __version__
from test_locks import pins

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/surefoot"


def build(kind: str, source: Path, out: Path) -> Path:
    """A wheel or an sdist of `source`, by the installed backend: nothing is fetched."""
    script = f"import sys; from hatchling.build import build_{kind}; build_{kind}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", script, str(out)], cwd=source, env=bare(), check=True, capture_output=True)
    (made,) = out.iterdir()
    return made


def bare() -> dict[str, str]:
    """The environment without what leads to the sources."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def contents(wheel: Path) -> dict[str, str]:
    """SHA-256 of every file in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


@pytest.fixture(scope="module")
def described(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return Parser().parsestr(archive.read(f"surefoot-{__version__}.dist-info/METADATA").decode())


# ------------------------------------------------------------------------------------------------------ what is in it


def test_the_wheel_is_the_package_and_its_description(contents: dict[str, str]) -> None:
    """Code, py.typed, templates, trained sets; no tests, no pages of the documentation, no results."""
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    expected = {f"surefoot/{path.relative_to(PACKAGE).as_posix()}" for path in files}
    assert {name for name in contents if ".dist-info/" not in name} == expected
    about = f"surefoot-{__version__}.dist-info"
    beside = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    assert contents.keys() - expected == {f"{about}/{name}" for name in beside}
    for suffix in ("py.typed", ".html.j2", ".js", ".policyset/policies.safetensors"):
        assert any(name.endswith(suffix) for name in expected), suffix


@pytest.mark.long
def test_the_source_distribution_makes_the_same_wheel(contents: dict[str, str], tmp_path: Path) -> None:
    for folder in ("sdist", "wheel"):
        (tmp_path / folder).mkdir()
    with tarfile.open(build("sdist", ROOT, tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / f"surefoot-{__version__}"
    assert {path.name for path in unpacked.iterdir()} >= {"tests", "docs", "examples", "Makefile", "requirements.lock"}
    assert not {path.name for path in unpacked.iterdir()} & {"out", ".venv", ".git", ".hypothesis"}
    with zipfile.ZipFile(build("wheel", unpacked, tmp_path / "wheel")) as archive:
        again = {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}
    assert again == contents


def test_the_description_is_complete_and_agrees_with_the_documents(described: Message) -> None:
    assert (described["Name"], described["Version"]) == ("surefoot", __version__)
    assert (described["License-Expression"], described["License-File"]) == ("MIT", "LICENSE")
    assert described["Requires-Python"] == ">=3.11"
    assert described["Summary"]
    assert described["Author"]
    assert described["Keywords"]
    assert "Typing :: Typed" in described.get_all("Classifier", [])
    assert described["Description-Content-Type"] == "text/markdown"
    assert described.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    latest = re.search(r"^## \[(.+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited is not None
    assert latest is not None
    assert cited[1] == latest[1] == __version__


# ------------------------------------------------------------------------------------------------ where it is installed


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the wheel and the packages of requirements.lock, by links to those that are here."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in core():
        found = metadata.distribution(name)
        for top in {file.parts[0] for file in found.files or []} - {"..", "__pycache__"}:
            (site / top).symlink_to(str(found.locate_file(top)))
    install = (
        "-m",
        "pip",
        "--python",
        folder / "bin/python",
        "install",
        "--no-index",
        "--no-deps",
        "--no-compile",
        "-q",
        wheel,
    )
    subprocess.run([sys.executable, *map(str, install)], env=bare(), check=True)
    return folder / "bin/python"


def core() -> list[str]:
    """The packages of requirements.lock that this interpreter needs."""
    pinned = [Requirement(line.partition(" --hash")[0]) for line in pins("requirements.lock").values()]
    return [each.name for each in pinned if each.marker is None or each.marker.evaluate()]


def say(*words: str | Path, folder: Path) -> str:
    return subprocess.run(
        list(map(str, words)), cwd=folder, env=bare(), check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.long
def test_the_installed_wheel_trains_and_adapts_without_any_extra(python: Path, tmp_path: Path) -> None:
    """In an empty folder: nothing of this repository, and none of the packages that only tests and extras need."""
    script = "import surefoot, importlib.util as u; print(surefoot.__file__, u.find_spec('jax'), u.find_spec('pytest'))"
    place, *extras = say(python, "-c", script, folder=tmp_path).split()
    assert Path(place).is_relative_to(python.parents[1])
    assert extras == ["None", "None"]
    command = python.parent / "surefoot"
    assert say(command, "--version", folder=tmp_path) == f"surefoot {__version__}\n"
    assert "reproduce" in say(command, "--help", folder=tmp_path)
    say(command, "train", "gridworld", "--out", "set", "--epsilon", "0.02", folder=tmp_path)
    words = ("--task", "0.31", "--episodes", "20", "--out", "run")
    assert "certified" in say(command, "adapt", "set", *words, folder=tmp_path)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["curves.png", "report.html", "results.json"]
