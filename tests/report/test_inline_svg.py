"""Drawings in a page: nothing but what draws, names of their own, colours of the page."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from surefoot.errors import InvalidInput
from surefoot.report.figures import svg
from surefoot.report.page import inline_svg, is_svg
from surefoot.report.palette import COLOURS, INK, PAPER

HOSTILE = "<script>alert('x')</script>&\"'"


def drawn(text: str = "name") -> bytes:
    figure = Figure(figsize=(3, 2), facecolor=PAPER)
    axes = figure.subplots()
    axes.plot([0, 1, 2], [2, 0, 1], "o-", color=COLOURS[0], label=text)
    axes.set_title(text, color=INK)
    return svg(figure)


def test_colours_are_those_of_the_page_and_ids_have_the_prefix() -> None:
    found = inline_svg(drawn(), "first", "A line")
    assert "var(--c0072b2)" in found
    assert "#0072b2" not in found
    assert f"var(--c{PAPER[1:]})" in found
    names = [element.get("id") for element in ElementTree.fromstring(found).iter() if "id" in element.attrib]
    assert names
    assert all(name.startswith("first-") for name in names if name)
    other = inline_svg(drawn(), "second", "A line")
    assert other.replace("second-", "first-") == found


def test_it_scales_and_says_what_it_is() -> None:
    root = ElementTree.fromstring(inline_svg(drawn(), "a", HOSTILE))
    assert "viewBox" in root.attrib
    assert not {"width", "height"} & set(root.attrib)
    assert root.get("aria-label") == HOSTILE


def test_texts_stay_texts() -> None:
    root = ElementTree.fromstring(inline_svg(drawn(HOSTILE.replace("$", "")), "a", ""))
    assert "script" not in {element.tag for element in root.iter()}
    assert HOSTILE in {"".join(element.itertext()).strip() for element in root.iter("text")}


@pytest.mark.parametrize(
    ("inside", "told"),
    [
        ("<script>alert(1)</script>", "<script>"),
        ("<foreignObject/>", "<foreignObject>"),
        ('<image href="https://example.org/x.png"/>', "<image>"),
        ('<use href="https://example.org/x.svg#a"/>', "outside"),
    ],
)
def test_what_does_not_draw_is_refused(inside: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        inline_svg(f"<svg>{inside}</svg>".encode(), "a", "")


def test_attributes_that_do_not_draw_and_styles_that_reach_out_are_left_out() -> None:
    found = inline_svg(
        b'<svg onload="alert(1)"><style>* {color: red}</style><path onclick="x()" d="M0 0"/></svg>', "a", ""
    )
    assert "alert" not in found
    assert "onclick" not in found
    assert "red" not in found


def test_what_is_an_svg_file() -> None:
    assert is_svg(drawn())
    assert not is_svg(b"\x89PNG\r\n\x1a\n")
    assert not is_svg(b"<?xml version='1.0'?><html/>")
