"""The pages of the theorems: each has its five parts, is short, and names what the code and the tests really have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUMMARY = ROOT / "docs/guarantees.md"
PAGES = sorted((ROOT / "docs/guarantees").glob("*.md"))
PARTS = ["Statement", "In words", "Proof", "As implemented", "Counted by"]
WITHOUT_PARTS = {"setting", "errata", "horizon"}  # they hold no theorem
MOST_WORDS = 1500


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_theorem_has_its_five_parts_in_order(page: Path) -> None:
    headings = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
    if page.stem not in WITHOUT_PARTS:
        assert [heading for heading in headings if heading in PARTS] == PARTS


@pytest.mark.parametrize("page", [SUMMARY, *PAGES], ids=lambda page: page.stem)
def test_a_page_is_short(page: Path) -> None:
    assert len(page.read_text().split()) <= MOST_WORDS


def test_the_summary_lists_every_page_and_every_test_it_names_exists() -> None:
    text = SUMMARY.read_text()
    assert {page.stem for page in PAGES} == set(re.findall(r"\]\(guarantees/([a-z0-9-]+)\.md", text))
    counted = re.findall(r"`(?:(tests/\w+)/)?(test_\w+\.py)`", text)
    assert len(counted) > 20
    assert [name for folder, name in counted if not (ROOT / (folder or "tests/guarantees") / name).is_file()] == []


def test_every_counting_test_belongs_to_a_theorem() -> None:
    text = SUMMARY.read_text()
    files = {path.name for path in (ROOT / "tests/guarantees").glob("test_*.py")}
    assert {name for name in files if f"`{name}`" not in text} == set()


def test_names_of_the_code_exist() -> None:
    """Of classes, functions, options and constants in backticks; files are checked with those of all other pages."""
    words = set(re.findall(r"\w+", "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))))
    for page in [SUMMARY, *PAGES]:
        names = [name for name in re.findall(r"`([A-Za-z_.]{3,})`", page.read_text()) if not name.endswith(".py")]
        unknown = [name for name in names if not set(name.removeprefix("sf.").split(".")) <= words]
        assert unknown == [], page.name
