"""One self-contained HTML page that answers first: no script, no outside resource, readable offline, on a phone, on a
dark screen and on paper."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, resources

import jinja2
from markupsafe import Markup

from surefoot.errors import InvalidInput
from surefoot.report.inline_svg import inlined, is_svg, variable
from surefoot.report.palette import ON_DARK
from surefoot.report.table import Table
from surefoot.report.verdict import Verdict


@dataclass(frozen=True)
class Section:
    """Title, then paragraphs, command lines, figure with caption, table, notes: whichever are given, in that order.

    Attributes:
        code: lines to copy.
        figure: an SVG file; the page colours it, on a dark screen too.
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
        if self.figure is not None and not is_svg(self.figure):
            raise InvalidInput(f"figure of section {self.title!r} must be an SVG file, got {self.figure[:8]!r} ...")


@dataclass(frozen=True)
class Page:
    """The frame that all pages share: verdict and large figures, contents, sections, settings last.

    Attributes:
        lead: what was done, in plain words, below the large figures.
        facts: pairs of a setting and its value.
        command: the command lines that make the page again.
        footer: one closing line, for instance who made the page with which version.
    """

    title: str
    verdict: Verdict
    lead: str = ""
    sections: tuple[Section, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    command: str = ""
    footer: str = ""

    @property
    def contents(self) -> tuple[str, ...]:
        """Titles of all sections, the settings included."""
        return (*(section.title for section in self.sections), *(["Settings"] if self.facts or self.command else []))


def render(page: Page) -> str:
    """The page as one HTML document; every text is escaped."""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.globals["drawing"] = _drawing
    environment.filters["unbroken"] = lambda text: text.replace(" %", "\u00a0%")
    template = resources.files("surefoot.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    return environment.from_string(template).render(page=page, colours=_colours()) + "\n"


def versions(packages: Sequence[str] = ("numpy", "scipy", "highspy", "matplotlib")) -> tuple[tuple[str, str], ...]:
    """Pairs of a part and its version: Python and the installed `packages`."""
    pairs = [("Python", platform.python_version())]
    for name in packages:
        try:
            pairs.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            pairs.append((name, "not installed"))
    return tuple(pairs)


def _drawing(section: Section, place: int) -> Markup:
    """Safe to put in as it is: what is no drawing was refused, and texts in it are escaped."""
    return Markup(inlined(section.figure or b"", f"figure-{place}", section.title))


def _colours() -> tuple[tuple[str, str, str], ...]:
    """What the page calls each colour of figures, and what that is on white and on dark."""
    return tuple((variable(light)[4:-1], light, dark) for light, dark in ON_DARK.items())
