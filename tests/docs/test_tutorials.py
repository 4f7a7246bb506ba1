"""The tutorials: what a reader types in is, character by character, what runs here, and it prints what they show."""

from __future__ import annotations

import shutil
import sys
import warnings
from pathlib import Path

import pytest
from pages import Reader, blocks, differs

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """In a folder of its own; what Python imports there is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("machine", "reservoir", "doubling"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return Reader(tmp_path)


def read(reader: Reader, *pages: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*theorem does not apply")
        for page in pages:
            reader.read(DOCS / page)


def test_gridworld_in_ten_lines(reader: Reader) -> None:
    read(reader, "tutorials/gridworld.md")
    code = next(blocks(DOCS / "tutorials/gridworld.md")).code
    assert len([line for line in code.splitlines() if line]) <= 10


def test_a_table(reader: Reader) -> None:
    read(reader, "tutorials/table.md")


@pytest.mark.long
def test_a_table_and_what_goes_on_with_it(reader: Reader) -> None:
    """A deployment in Python, and a method of one's own."""
    read(reader, "tutorials/table.md", "tutorials/deployment.md", "adding-a-method.md")


@pytest.mark.long
def test_an_environment(reader: Reader) -> None:
    pytest.importorskip("gymnasium")
    read(reader, "tutorials/environment.md")


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("bash") or not shutil.which("awk"), reason="needs bash and awk")
def test_a_deployment_from_the_shell_and_from_node(reader: Reader) -> None:
    machine = next(block.code for block in blocks(DOCS / "tutorials/table.md") if block.code.startswith("# machine.py"))
    (reader.folder / "machine.py").write_text(machine)
    if shutil.which("node"):
        read(reader, "tutorials/shell.md")
        return
    text = (DOCS / "tutorials/shell.md").read_text()
    (reader.folder / "shell.md").write_text(text[: text.index("## The same from Node")])
    reader.read(reader.folder / "shell.md")


def test_every_tutorial_is_run() -> None:
    here = Path(__file__).read_text()
    pages = sorted((DOCS / "tutorials").glob("*.md"))
    assert len(pages) >= 5
    assert [page.name for page in pages if f'"tutorials/{page.name}"' not in here] == []


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("regret 2025, margin 0.05", "regret 2024, margin 0.06", True),
        ("regret 2025", "regret 2027", False),
        ("margin 0.05", "margin 0.07", False),
        ("3 of 10", "4 of 10", False),
        ("head …", "head 3be7aa", True),
        ("rows … follow", "rows 7 fall", False),
        ("a  b", "a b", True),
        ("a b", "ab", False),
        ("one\ntwo", "one", False),
        ("one", "one\ntwo", False),
    ],
)
def test_what_counts_as_the_same(shown: str, printed: str, same: bool) -> None:
    assert (differs(shown, printed) == "") is same
