"""The page is well formed, needs nothing from outside, escapes what it is given, and its tables say what happened."""

import platform
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from made_runs import made_run
from surefoot.errors import InvalidInput
from surefoot.learning.event import Event
from surefoot.report.figures import png, svg
from surefoot.report.metrics import summarise
from surefoot.report.page import Page, Section, inline_svg, is_svg, render, versions
from surefoot.report.palette import COLOURS, INK, PAPER
from surefoot.report.table import Cell, Table, events_table, results_table
from surefoot.report.verdict import Answer, Verdict

VOID = {"meta", "img", "link", "br", "hr", "input"}
ANSWERS = tuple(Answer(name, "1", "of 2") for name in ("Gained", "Unsafe", "Time"))
HOSTILE = "<script>alert('x')</script>\"&<img src=x onerror=alert(1)>"


class Document(HTMLParser):
    """Checks nesting while parsing; collects elements, their attributes, and the text inside each kind."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts[self.open[-1]][-1] += data

    def of(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def picture() -> bytes:
    return svg(Figure(figsize=(1, 1)))


def full_page(picture: bytes, text: str = "plain") -> Page:
    table = Table((text, "number"), ((text, "1"), (Cell(text, "bad"), Cell("2", "good"))), numbers=(1,))
    section = Section(text, (text, text), picture, text, table, code=text, notes=(text,))
    verdict = Verdict(text, (Answer(text, text, text, "bad"), *ANSWERS))
    facts = ((text, text), ("seed", "0"))
    return Page(text, verdict, text, (section, Section("bare")), facts, command=text, footer=text)


def test_page_is_well_formed_and_complete(picture):
    page = render(full_page(picture))
    document = Document(page)
    assert page.startswith("<!DOCTYPE html>")
    assert document.texts["h1"] == ["plain"]
    assert document.texts["h2"] == ["plain", "Gained", "Unsafe", "Time", "plain", "bare", "Settings"]
    assert document.texts["a"] == ["plain", "bare", "Settings"]
    assert document.of("header") == [{"class": "bad"}]
    assert document.texts["dt"] == ["plain", "seed"]
    assert document.texts["dd"] == ["plain", "0"]
    assert document.texts["figcaption"] == ["plain"]
    assert document.texts["code"] == ["plain", "plain"]
    assert document.texts["td"] == ["1", "2"]
    assert document.texts["footer"] == ["plain"]
    assert document.of("td") == [{"class": "number"}, {"class": "number good"}]
    assert [cell.get("class") for cell in document.of("th")] == [None, "number", "short", "short bad"]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in document.of("meta")


def test_page_needs_nothing_from_outside(picture):
    page = render(full_page(picture))
    document = Document(page)
    assert not re.search(r"https?:|//|@import|url\((?!#)", page)
    assert not {"script", "link", "iframe", "object", "embed", "base", "img"} & {tag for tag, _ in document.elements}
    (drawing,) = document.of("svg")
    assert (drawing["role"], drawing["aria-label"]) == ("img", "plain")


def test_hostile_text_stays_text_everywhere(picture):
    page = render(full_page(picture, HOSTILE))
    document = Document(page)
    assert {tag for tag, _ in document.elements} == {tag for tag, _ in Document(render(full_page(picture))).elements}
    assert not any(name.startswith("on") for _, attributes in document.elements for name in attributes)
    assert not document.of("img")
    assert document.of("svg")[0]["aria-label"] == HOSTILE
    assert document.texts["h1"] == [HOSTILE]
    assert document.texts["title"] == [HOSTILE]
    assert document.texts["p"].count(HOSTILE) == 7  # verdict, value and what stands beside it, lead, two, a note
    assert document.texts["code"] == [HOSTILE, HOSTILE]
    assert document.texts["dt"][0] == document.texts["dd"][0] == HOSTILE
    assert document.texts["th"][2:] == [HOSTILE, HOSTILE]


def test_dark_screens_phones_and_paper_are_provided_for(picture):
    page = render(full_page(picture))
    for query in ("prefers-color-scheme: dark", "max-width: 560px", "@media print"):
        assert query in page


def test_parts_that_cannot_be_shown_are_refused():
    with pytest.raises(InvalidInput, match=r"rows\[1\] must have 2 cells like headers, got 1"):
        Table(("a", "b"), (("1", "2"), ("3",)))
    with pytest.raises(InvalidInput, match="SVG"):
        Section("figure", figure=png(Figure(figsize=(1, 1)), dpi=20))


def runs(name, gaps, margins, *, certified=True):
    pairs = zip(gaps, margins, strict=True)
    return [made_run(name, certified, np.full(10, -gap), margin) for gap, margin in pairs]


def test_results_table():
    methods = {
        "safe-only": summarise(runs("safe-only", [400.0, 600.0], [0.5, 0.25])),
        "pce": summarise(runs("pce", [10.0, 15.0], [0.1, -0.4], certified=False)),
        "certified": summarise(runs("certified", [1.0, 2.0], [1e-12, 0.2])),
    }
    table = results_table(methods)
    assert table.headers[4] == "times safe-only"
    both = results_table(methods, {"safe-only": "safe-only", "nobody": "absent", "ours": "certified"})
    assert both.headers[4:6] == ("times safe-only", "times ours")
    assert [row[5] for row in both.rows] == ["333.33", "8.33", "1.00"]
    assert table.rows == (
        ("safe-only", Cell("yes", "good"), "5,000", "−7,706 – 17,706", "1.00", "0 of 2", "0", "0.250"),
        (
            "pce",
            Cell("uncertified", "quiet"),
            "125.0",
            "−192.7 – 442.7",
            "0.03",
            Cell("1 of 2", "bad"),
            Cell("10", "bad"),
            Cell("−0.400", "bad"),
        ),
        ("certified", Cell("yes", "good"), "15.00", "−48.53 – 78.53", "0.00", "0 of 2", "0", "0"),
    )
    Document(render(Page("results", Verdict("Nothing.", ANSWERS), sections=(Section("results", table=table),))))


def test_results_table_without_its_reference_has_no_ratio():
    methods = {"certified": summarise(runs("certified", [1.0], [-2e-5]))}
    (row,) = results_table(methods).rows
    assert (row[3], row[4]) == ("–", Cell("1 of 1", "bad"))  # a single task has no interval
    assert row[6] == Cell("−2.0e−05", "bad")


def test_events_table():
    events = (
        Event(100, "eliminated", "Candidate 2 is out."),
        Event(300, "weight", "Weight 0.5."),
        Event(1200, "weight", "Weight 0.7."),
    )
    table = events_table({"safe-only": [()], "certified": [events, (), events]})
    assert table.rows == (
        ("certified", "eliminated", "2", "2 of 3", "100", "100", "Candidate 2 is out."),
        ("certified", "weight", "4", "2 of 3", "300", "1,200", "Weight 0.5."),
    )


def test_versions():
    assert versions(["numpy", "no-such-package"]) == (
        ("Python", platform.python_version()),
        ("numpy", np.__version__),
        ("no-such-package", "not installed"),
    )


# ------------------------------------------------------------------------------------------- figures as parts of a page


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
    root = ElementTree.fromstring(inline_svg(drawn(HOSTILE), "a", ""))
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
