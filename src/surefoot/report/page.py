"""One self-contained HTML page: no script, no outside resource, readable offline, on a phone and on paper."""

from __future__ import annotations

import base64
import platform
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from types import MappingProxyType
from typing import Literal

import jinja2

from surefoot.errors import InvalidInput
from surefoot.learning.event import Event
from surefoot.report.metrics import Totals

MISSING = "–"


@dataclass(frozen=True)
class Cell:
    """A table cell whose tone is coloured as well; the text alone must say everything."""

    text: str
    tone: Literal["good", "bad", "quiet"]


@dataclass(frozen=True)
class Table:
    """Attributes:
    headers: one per column.
    rows: as many cells each; the first one names the row.
    numbers: indices of the columns that hold numbers, set flush right in figures of equal width.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    numbers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for index, row in enumerate(self.rows):
            if len(row) != len(self.headers):
                raise InvalidInput(f"rows[{index}] must have {len(self.headers)} cells like headers, got {len(row)}")


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


def results_table(
    methods: Mapping[str, Totals], compared_with: Mapping[str, str] = MappingProxyType({"safe-only": "safe-only"})
) -> Table:
    """One row per method, in the order given.

    Args:
        compared_with: whose regret the others' is also given as a multiple of, where they are present: what to call
            them, and their names.
    """
    present = {label: methods[name] for label, name in compared_with.items() if name in methods}
    rows = tuple(_result(name, found, tuple(present.values())) for name, found in methods.items())
    headers = (
        "method",
        "certified",
        "regret, mean",
        "95 % interval",
        *(f"times {label}" for label in present),
        "unsafe tasks",
        "unsafe episodes",
        "smallest margin",
    )
    return Table(headers, rows, numbers=tuple(range(2, len(headers))))


def events_table(events: Mapping[str, Sequence[Sequence[Event]]]) -> Table:
    """What happened on the way: per method and kind of event, how often, in how many tasks, when, and one example.

    Args:
        events: by method, the events of each of its tasks.
    """
    rows: list[tuple[str, ...]] = []
    for method, tasks in events.items():
        for kind, found in _by_kind(tasks).items():
            episodes = [event.episode for _, event in found]
            rows.append(
                (
                    method,
                    kind,
                    f"{len(found):,}",
                    f"{len({task for task, _ in found})} of {len(tasks)}",
                    f"{min(episodes):,}",
                    f"{max(episodes):,}",
                    found[0][1].message,
                )
            )
    headers = ("method", "event", "times", "in tasks", "first episode", "last episode", "for instance")
    return Table(headers, tuple(rows), numbers=(2, 3, 4, 5))


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


def _result(name: str, found: Totals, others: Sequence[Totals]) -> tuple[str | Cell, ...]:
    unsafe, interval = found["unsafe_tasks"], found["regret_interval"]
    return (
        name,
        Cell("yes", "good") if found["certified"] else Cell("no", "quiet"),
        _number(found["regret_mean"]),
        MISSING if interval is None else f"{_number(interval[0])} – {_number(interval[1])}",
        *(_times(found["regret_mean"], other["regret_mean"]) for other in others),
        _alarm(f"{unsafe} of {found['tasks']}", unsafe > 0),
        _alarm(f"{found['unsafe_episodes']:,}", unsafe > 0),
        _alarm(_number(found["min_margin"]), unsafe > 0),
    )


def _times(value: float, base: float) -> str:
    return f"{value / base:.2f}" if base > 0 else MISSING


def _alarm(text: str, raised: bool) -> str | Cell:
    return Cell(text, "bad") if raised else text


def _number(value: float) -> str:
    """Three to four telling digits, thousands set apart, a true minus sign; below 1e-9 is rounding, shown as 0."""
    size = abs(value)
    if size < 1e-9:
        return "0"
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    text = f"{value:.1e}" if size < 1e-3 else f"{value:,.{digits}f}"
    return text.replace("-", "−")


def _by_kind(tasks: Sequence[Sequence[Event]]) -> dict[str, list[tuple[int, Event]]]:
    """Events with the number of their task, by kind in the order of first appearance."""
    found: dict[str, list[tuple[int, Event]]] = defaultdict(list)
    for task, events in enumerate(tasks):
        for event in events:
            found[event.kind].append((task, event))
    return found
