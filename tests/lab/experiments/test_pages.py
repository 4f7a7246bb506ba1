"""Every page answers first, in one frame; what was unsafe is said at once; figures are drawn into the page, safely."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, reduce
from operator import getitem
from typing import Any
from xml.etree import ElementTree

import pytest
from kept_results import results_of
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from surefoot.lab.experiments import PAGES, find
from surefoot.lab.experiments.frame import Report
from surefoot.lab.experiments.promise.page import counts_and_risks, powerful
from surefoot.report import figures
from surefoot.report.figures import learning_curves
from surefoot.report.metrics import binomial_interval
from surefoot.report.page import render
from surefoot.report.palette import ON_DARK

NAMES = sorted(PAGES)
# Of each kind one: curves, bars, intervals, several figures. The long part draws all.
FEW = ("baselines", "calibration", "glucose", "promise", "shift")


@pytest.fixture(scope="module", autouse=True)
def without_files() -> Iterator[None]:
    """The PNG files beside the pages are not looked at here, and take longest."""
    drawn = Figure.savefig

    def savefig(figure: Figure, target: Any, **options: Any) -> None:
        if options["format"] != "png":
            drawn(figure, target, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", savefig)
        yield


@cache
def report(name: str) -> Report:
    return PAGES[name](results_of(name))


@cache
def page(name: str) -> str:
    return render(report(name).page)


# ----------------------------------------------------------------------------------------------------------- the frame


@pytest.mark.short_for(name=FEW)
@pytest.mark.parametrize("name", NAMES)
def test_the_answer_comes_first_then_the_picture_and_settings_last(name: str) -> None:
    found, text = report(name).page, page(name)
    assert found.verdict.sentence.endswith(".")
    assert found.verdict.sentence.count(". ") == 0, "one sentence"
    assert found.verdict.answers[-1].name == "Time"
    assert found.contents[-1] == "Settings"
    places = [
        text.index('class="verdict"'),
        *(text.index(f"<h2>{answer.name}</h2>") for answer in found.verdict.answers),
        text.index('<nav aria-label="Contents"'),
        text.index("<svg"),
        text.index("<table"),
        text.index("<h2>Settings</h2>"),
    ]
    assert places == sorted(places)


@pytest.mark.short_for(name=FEW)
@pytest.mark.parametrize("name", NAMES)
def test_contents_lead_to_sections(name: str) -> None:
    targets = re.findall(r'<a href="#([^"]+)">', page(name))
    assert len(targets) == len(report(name).page.contents) > 1
    assert all(page(name).count(f'id="{target}"') == 1 for target in targets)


@pytest.mark.parametrize("names", [FEW, pytest.param(NAMES, marks=pytest.mark.long)], ids=["few", "all"])
def test_the_frame_is_not_repeated(names: Sequence[str]) -> None:
    """What the pages have in common is in one place: whichever page, the same head."""
    styles = {page(name).partition("<style>")[2].partition("</style>")[0] for name in names}
    assert len(styles) == 1


# --------------------------------------------------------------------------------------------- what was unsafe is said


# Where in the results a method, a row or a run is, and what makes it unsafe.
UNSAFE: dict[str, dict[tuple[str | int, ...], dict[str, Any]]] = {
    "gridworld": {("methods", "certified-likelihood"): {"unsafe_tasks": 2}},
    "glucose": {("methods", "certified-signals"): {"unsafe_tasks": 2}},
    "locomotion": {("methods", "certified-signals"): {"unsafe_tasks": 2}},
    "water": {("methods", "certified-signals"): {"unsafe_tasks": 2}},
    "buildings": {("methods", "certified-signals"): {"unsafe_tasks": 2}},
    "adapt": {("methods", "certified"): {"unsafe_tasks": 1, "unsafe_episodes": 5}},
    "families": {("families", "windy", "methods", "certified-ball"): {"unsafe_tasks": 1}},
    "baselines": {("benchmarks", "media", "methods", "certified-likelihood"): {"unsafe_tasks": 1}},
    "rivals": {
        ("systems", "pump", "methods", "certified", "default"): {
            "unsafe": 60,
            "interval": list(binomial_interval(60, 200)),
        }
    },
    "tail": {("rows", 0): {"unsafe": 1}},
    "lower-bound": {("rows", 0): {"unsafe": 1}},
    "regret": {("runs", 0): {"unsafe": True}},
    "shift": {("near", 0): {"unsafe": 1}},
    "calibration": {
        ("calibration",): {"level": 0.15, "counts": [[0.15, 20]]},
        ("fresh",): {"unsafe": 60, "interval": list(binomial_interval(60, 400))},
    },
    "promise": {
        ("counts", 0): {"unsafe_tasks": 300, "interval": list(binomial_interval(300, 2000)), "verdict": "broken"}
    },
}


def test_whatever_deploys_can_be_unsafe() -> None:
    assert set(PAGES) - set(UNSAFE) == {"covering"}, "which deploys nothing"


@pytest.mark.short_for(name=sorted(UNSAFE.keys() - {"families"}))  # drawn as the gridworld is
@pytest.mark.parametrize("name", sorted(UNSAFE))
def test_a_run_in_which_something_was_unsafe_says_so_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Figure, "savefig", lambda _, target, **__: target.write(b"<svg/>"))
    monkeypatch.setattr(figures, "freeze_layout", lambda figure: None)
    before = PAGES[name](results_of(name)).page.verdict
    assert before.tone != "bad"
    results = results_of(name)
    for place, change in UNSAFE[name].items():
        reduce(getitem, place, results).update(change)
    after = PAGES[name](results).page
    assert after.verdict.tone == "bad"
    assert after.verdict.sentence != before.sentence
    assert "unsafe" in after.verdict.sentence
    assert "nothing unsafe" not in after.verdict.sentence
    assert '<header class="bad">' in render(after)


def test_methods_without_a_proof_that_were_unsafe_are_named_in_the_count() -> None:
    assert "of 1 without a proof 1 did" in report("glucose").page.verdict.sentence
    assert "1 was ever unsafe" in report("baselines").page.verdict.sentence
    assert "most often ‘dope-published, media’, in 17 episodes" in page("baselines")


# ------------------------------------------------------------------------------------------------------------- figures


@pytest.mark.short_for(name=FEW)
@pytest.mark.parametrize("name", NAMES)
def test_figures_are_drawn_into_the_page_with_ids_of_their_own(name: str) -> None:
    drawings = [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page(name), re.DOTALL)]
    assert len(drawings) == sum(section.figure is not None for section in report(name).page.sections) > 0
    assert len(report(name).figures) > 0
    ids = Counter(re.findall(r'\bid="([^"]+)"', page(name)))
    assert [each for each, times in ids.items() if times > 1] == []
    for drawing in drawings:
        own = {element.get("id") for element in drawing.iter()} - {None}
        text = ElementTree.tostring(drawing, encoding="unicode")
        assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text)) <= own
        assert drawing.get("aria-label")
        assert not [element.tag for element in drawing.iter() if element.tag in ("script", "style", "image")]
        left = {colour for colour in re.findall(r"#[0-9a-f]{6}", text) if colour in ON_DARK}
        assert left == set(), "what the page cannot colour on a dark screen"


@pytest.mark.short_for(name=FEW)
@pytest.mark.parametrize("name", NAMES)
def test_pages_fetch_nothing_and_name_every_colour(name: str) -> None:
    text = page(name)
    assert not re.search(r"https?:|@import|<script|<link|<img|\bon[a-z]+=", text)
    asked, defined = set(re.findall(r"var\((--[\w-]+)\)", text)), set(re.findall(r"(--[\w-]+):", text))
    assert asked <= defined


def test_equal_results_give_equal_pages() -> None:
    assert render(PAGES["promise"](results_of("promise")).page) == page("promise")


@pytest.mark.short_for(name=["gridworld"])
@pytest.mark.parametrize("name", ["gridworld", "families", "baselines"])
def test_names_at_the_lines_come_in_the_order_of_the_table(name: str) -> None:
    results = results_of(name)
    part = {"gridworld": (), "families": ("families", "windy"), "baselines": ("benchmarks", "media")}[name]
    methods = reduce(getitem, part, results)["methods"]
    rows = next(iter(find(name).tables(results).values())).rows
    first = learning_curves(methods, budgets=[1.5], closer=True).axes[0]
    names = [text for text in first.texts if isinstance(text, Annotation)]
    names.sort(key=lambda text: -text.xy[1])
    assert [text.get_text().removesuffix(" (uncertified)") for text in names] == [row[0] for row in rows]


def test_the_promise_is_drawn_with_exact_intervals_against_the_risk() -> None:
    rows = results_of("promise")["counts"]
    panels = counts_and_risks(rows).axes
    assert [axes.get_title() for axes in panels] == ["risk 0.05", "risk 0.5"]
    for axes, risk in zip(panels, (0.05, 0.5), strict=True):
        own = [row for row in rows if row["risk"] == risk]
        spans = [line.get_xdata() for line in axes.get_lines() if line.get_linewidth() == 3]
        for row, span in zip(own, spans, strict=True):
            assert tuple(span) == pytest.approx([100 * end for end in binomial_interval(row["unsafe_tasks"], 2000)])
        dots = [line for line in axes.get_lines() if line.get_marker() == "o"]
        assert [float(dot.get_xdata()[0]) for dot in dots] == [100 * row["unsafe_tasks"] / 2000 for row in own]
        assert [dot.get_markerfacecolor() == dot.get_color() for dot in dots] == list(map(powerful, own))
        assert [text.get_text().split(": ")[1].split(";")[0] for text in axes.texts] == [row["verdict"] for row in own]
        assert 100 * risk in [float(line.get_xdata()[0]) for line in axes.get_lines() if line.is_dashed()]
    answers = {answer.name: answer.value for answer in report("promise").page.verdict.answers}
    assert (answers["Kept"], answers["Power"], answers["Unsafe"]) == ("6 of 8", "6 of 8", "265 of 16,000")
