"""A figure's SVG file as a part of a page: sharp at every size, and coloured by the page, so that it suits light and
dark."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from surefoot.errors import InvalidInput
from surefoot.report.palette import ON_DARK

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


def is_svg(content: bytes) -> bool:
    return content.lstrip().startswith((b"<?xml", b"<svg")) and b"<svg" in content


def inlined(content: bytes, prefix: str, label: str) -> str:
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
