"""One self-contained HTML page: no script, no outside resource, readable offline, on a phone and on paper."""

from __future__ import annotations

import base64
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, resources

import jinja2

from surefoot.errors import InvalidInput
from surefoot.report.table import Table


@dataclass(frozen=True)
class Section:
    """Title, then paragraphs, command lines, figure with caption, table, notes: whichever are given, in that order.

    Attributes:
        code: lines to copy, for instance the command that made the page.
        figure: a PNG file.
        notes: paragraphs below the rest, in small print.
    """

    title: str
    paragraphs: tuple[str, ...] = ()
    figure: bytes | None = None
    caption: str = ""
    table: Table | None = None
    code: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.figure is not None and not self.figure.startswith(b"\x89PNG\r\n\x1a\n"):
            raise InvalidInput(f"figure of section {self.title!r} must be a PNG file, got {self.figure[:8]!r} ...")


@dataclass(frozen=True)
class Page:
    """Attributes:
    lead: the whole page in one paragraph of plain words.
    facts: pairs of a setting and its value.
    footer: one closing line, for instance who made the page with which version.
    """

    title: str
    lead: str
    facts: tuple[tuple[str, str], ...] = ()
    sections: tuple[Section, ...] = ()
    footer: str = ""


def render(page: Page) -> str:
    """The page as one HTML document; every text is escaped."""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["data_uri"] = _data_uri
    template = resources.files("surefoot.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(page=page) + "\n"


def versions(packages: Sequence[str] = ("numpy", "scipy", "highspy", "matplotlib")) -> tuple[tuple[str, str], ...]:
    """Pairs of a part and its version: Python and the installed `packages`."""
    pairs = [("Python", platform.python_version())]
    for name in packages:
        try:
            pairs.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            pairs.append((name, "not installed"))
    return tuple(pairs)


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
