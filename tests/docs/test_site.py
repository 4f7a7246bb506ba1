"""The documentation as a site: no warning, every link leads somewhere, nothing comes from the network.

Links and anchors of the pages themselves are looked at by `test_cli.py`, without building anything."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import surefoot
import surefoot.tasks

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(package, reason=f"{package} is not installed: requirements-dev.lock has it")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", str(DOCS), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.long
def test_every_page_is_on_the_site(site: Path) -> None:
    """Pages that no list of contents names are a warning, hence an error."""
    pages = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")]
    assert len(pages) > 20
    assert [str(page) for page in pages if not (site / page).is_file()] == []


@pytest.mark.long
def test_nothing_is_loaded_from_the_network(site: Path) -> None:
    loaded = re.compile(r"""<(?:script|img|iframe)[^>]+src=["']?(?:https?:)?//|<link[^>]+href=["']?(?:https?:)?//""")
    for page in site.rglob("*.html"):
        assert not loaded.search(page.read_text(encoding="utf-8")), page
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text(encoding="utf-8")), style


@pytest.mark.long
def test_anchors_exist(site: Path) -> None:
    """Files and headings are checked by the build; this also checks what it has made of them."""
    texts = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    known = {page.resolve(): set(re.findall(r'\bid="([^"]+)"', text)) for page, text in texts.items()}
    checked = 0
    for page, text in texts.items():
        for link in re.findall(r'<a [^>]*href="([^"#:]*)#([^"]+)"', text):
            target = (page.parent / link[0]).resolve() if link[0] else page.resolve()
            assert html.unescape(link[1]) in known[target], f"{page.name}: {link[0]}#{link[1]}"
            checked += 1
    assert checked > 100


@pytest.mark.long
def test_the_reference_shows_docstrings(site: Path) -> None:
    text = html.unescape(re.sub(r"<[^>]+>", "", (site / "reference.html").read_text(encoding="utf-8")))
    words = " ".join(text.split())
    assert "probability with which any deployed policy may ever break a budget" in words
    assert "|V* - V(π_k)|" in words


@pytest.mark.parametrize("page", ["reference.md", "reference-tasks.md"])
def test_the_reference_has_every_public_name_once(page: str) -> None:
    package = surefoot.tasks if "tasks" in page else surefoot
    names = re.findall(rf"^\.\. auto\w+:: {package.__name__}\.(\w+)$", (DOCS / page).read_text(), re.MULTILINE)
    assert Counter(names) == Counter(set(package.__all__) - {"tasks"})
