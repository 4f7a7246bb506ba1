"""One self-contained HTML page that answers first: no script, no outside resource, readable offline, on a phone, on a
dark screen and on paper."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import jinja2
from markupsafe import Markup

from surefoot.errors import InvalidInput
from surefoot.report.palette import ON_DARK
from surefoot.report.verdict import Verdict

if TYPE_CHECKING:
    from surefoot.report.table import Table

DRAWN = {"svg", "g", "defs", "clipPath", "path", "rect", "circle", "use", "text", "tspan"}
LEFT_OUT = {"metadata", "style", "title"}  # a style would reach out into the page, which has what it says
KEPT = {
    *("id", "class", "d", "x", "y", "width", "height", "viewBox", "cx", "cy", "r", "transform", "style", "href"),
    *("clip-path", "clip-rule", "fill-rule"),
}
LARGEST = 1.55  # pixels per point: texts of small figures are no larger than those around them
_COLOUR = re.compile("|".join(ON_DARK), re.IGNORECASE)
_LONG = re.compile(r"(\d\.\d\d)\d+")  # a hundredth of a point is finer than any screen
_NAMED = re.compile(r"url\(#([^)]+)\)")


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
    return template("surefoot.report", "page").render(page=page, drawing=_drawing, colours=_colours()) + "\n"


@cache
def template(package: str, name: str) -> jinja2.Template:
    """A page of a package; it may include what is in this one, for instance the style that all pages share."""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.loader = jinja2.ChoiceLoader([jinja2.PackageLoader(each, "") for each in (package, "surefoot.report")])
    environment.filters["unbroken"] = lambda text: text.replace(" %", "\u00a0%")
    return environment.get_template(f"{name}.html.j2")


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
    return Markup(inline_svg(section.figure or b"", f"figure-{place}", section.title))


def _colours() -> tuple[tuple[str, str, str], ...]:
    """What the page calls each colour of figures, and what that is on white and on dark."""
    return tuple((variable(light)[4:-1], light, dark) for light, dark in ON_DARK.items())


# ------------------------------------------------------------------------------------------- figures as parts of a page
# Sharp at every size, and coloured by the page, so that they suit light and dark.


def is_svg(content: bytes) -> bool:
    return content.lstrip().startswith((b"<?xml", b"<svg")) and b"<svg" in content


def inline_svg(content: bytes, prefix: str, label: str) -> str:
    """The drawing alone as one <svg> element, every colour of figures a variable of the page.

    Args:
        prefix: of every id in it, so that several may stand on one page.
        label: what a reader without eyes for it is told.
    """
    root = ElementTree.fromstring(content)
    _strip(root)
    named = {name for element in root.iter() for name in _names(element)}
    for element in root.iter():
        _rename(element, named, prefix)
        if "style" in element.attrib:
            element.set("style", _COLOUR.sub(lambda found: variable(found[0]), element.get("style", "")))
        if "d" in element.attrib:
            element.set("d", " ".join(_LONG.sub(r"\1", element.get("d", "")).split()))
    width = float(root.attrib.pop("width", "0").removesuffix("pt"))
    root.attrib.pop("height", None)
    if width:
        root.set("style", f"max-width: {LARGEST * width:.0f}px")
    root.attrib |= {"role": "img", "aria-label": label}
    return ElementTree.tostring(root, encoding="unicode")


def variable(colour: str) -> str:
    """What the page calls a colour."""
    return f"var(--c{colour[1:].lower()})"


def _strip(element: ElementTree.Element) -> None:
    """Elements and attributes that draw, without their namespaces; anything else is refused or left out."""
    element.tag = element.tag.rpartition("}")[2]
    if element.tag not in DRAWN:
        raise InvalidInput(f"figure must be drawn by {', '.join(sorted(DRAWN))}, got <{element.tag}>")
    plain = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
    element.attrib = {name: value for name, value in plain.items() if name in KEPT}
    for child in list(element):
        if child.tag.rpartition("}")[2] in LEFT_OUT:
            element.remove(child)
        else:
            _strip(child)


def _names(element: ElementTree.Element) -> list[str]:
    """The ids that an element refers to."""
    href = element.get("href", "")
    if href and not href.startswith("#"):
        raise InvalidInput(f"figure must not refer to anything outside of it, got {href[:40]!r}")
    found = [
        name for value in (element.get("clip-path", ""), element.get("style", "")) for name in _NAMED.findall(value)
    ]
    return [href[1:], *found] if href else found


def _rename(element: ElementTree.Element, named: set[str], prefix: str) -> None:
    name = element.attrib.pop("id", None)
    if name in named:
        element.set("id", f"{prefix}-{name}")
    if "href" in element.attrib:
        element.set("href", f"#{prefix}-{element.get('href', '')[1:]}")
    for attribute in ("clip-path", "style"):
        if attribute in element.attrib:
            element.set(attribute, _NAMED.sub(rf"url(#{prefix}-\1)", element.get(attribute, "")))
