"""Tables as values: the page and the terminal print the same ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Literal

from surefoot.cmdp.wording import number as number
from surefoot.errors import InvalidInput
from surefoot.learning.event import Event
from surefoot.learning.spec import PlanLine
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
    optional: indices of the columns that a narrow terminal leaves out; a page shows them all.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    numbers: tuple[int, ...] = ()
    optional: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for index, row in enumerate(self.rows):
            if len(row) != len(self.headers):
                raise InvalidInput(f"rows[{index}] must have {len(self.headers)} cells like headers, got {len(row)}")

    @staticmethod
    def of(rows: Iterable[Mapping[str, Any]], *columns: Column) -> Table:
        """One row for each of `rows`, with the cells that `columns` make of it."""
        return Table(
            tuple(column.header for column in columns),
            tuple(tuple(column.cell(row) for column in columns) for row in rows),
            numbers=tuple(k for k, column in enumerate(columns) if column.form is not None),
            optional=tuple(k for k, column in enumerate(columns) if column.optional),
        )


@dataclass(frozen=True)
class Column:
    """Attributes:
    key: of the value in a row, or what the value is, given the row; None is shown as missing.
    form: the format of a number; without one the column holds text.
    optional: left out on a narrow terminal.
    """

    header: str
    key: str | Callable[[Any], Any]
    form: str | None = None
    optional: bool = False

    def cell(self, row: Mapping[str, Any]) -> str | Cell:
        value = row[self.key] if isinstance(self.key, str) else self.key(row)
        if value is None:
            return MISSING
        return value if isinstance(value, Cell) else format(value, self.form or "")


# -------------------------------------------------------------------------------------------------- methods and events


def results_table(
    methods: Mapping[str, Totals],
    compared_with: Mapping[str, str] = MappingProxyType({"safe-only": "safe-only"}),
    limit: float | None = None,
) -> Table:
    """One row per method, in the order given. What is estimated is called so, with how far it may be off.

    Args:
        compared_with: whose regret the others' is also given as a multiple of, where they are present: what to call
            them, and their names.
        limit: a regret that no method stays below which keeps its promise.
    """
    present = {label: methods[name] for label, name in compared_with.items() if name in methods}
    told = any("reward_mean" in found for found in methods.values())
    estimated = ", estimated" if any(found.get("estimated") for found in methods.values()) else ""
    headers = (
        "method",
        "certified",
        f"regret, mean{estimated}",
        "95 % interval",
        *(f"times {label}" for label in present),
        *([] if limit is None else ["times the limit"]),
        *([f"reward, mean{estimated}"] if told else []),
        "unsafe tasks",
        "unsafe episodes",
        f"smallest margin{estimated}",
    )
    rows = tuple(
        (
            name,
            certified(found),
            regret(found),
            interval(found["regret_interval"]),
            *(_times(found["regret_mean"], other["regret_mean"]) for other in present.values()),
            *([] if limit is None else [_times(found["regret_mean"], limit)]),
            *([_reward(found)] if told else []),
            unsafe_tasks(found),
            unsafe_episodes(found),
            smallest_margin(found),
        )
        for name, found in methods.items()
    )
    optional = tuple(range(3, 4 + len(present) + (limit is not None)))  # the interval and the multiples
    return Table(headers, rows, numbers=tuple(range(2, len(headers))), optional=optional)


def plan_table(lines: Sequence[Mapping[str, Any]]) -> Table:
    """How long each method stays on the safe policy, from its plan as plain data."""
    return Table.of(
        lines,
        Column("method", "method"),
        Column("certified", lambda line: "yes" if line["certified"] else "uncertified"),
        Column("episodes on the safe policy", _format_plan_episodes, ""),
        Column("why", "reason"),
    )


def _format_plan_episodes(line: Mapping[str, Any]) -> str:
    return {None: "all", "unknown": "unknown"}.get(line["episodes"]) or f"{line['episodes']:,.0f}"


def plain_plan(plan: Sequence[PlanLine]) -> list[dict[str, Any]]:
    """The plan as plain data; JSON has neither infinity nor NaN: never is null, and what nobody knows "unknown"."""
    words = {"inf": None, "nan": "unknown"}
    return [{**asdict(line), "episodes": words.get(str(line.episodes), line.episodes)} for line in plan]


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


def _by_kind(tasks: Sequence[Sequence[Event]]) -> dict[str, list[tuple[int, Event]]]:
    """Events with the number of their task, by kind in the order of first appearance."""
    found: dict[str, list[tuple[int, Event]]] = defaultdict(list)
    for task, events in enumerate(tasks):
        for event in events:
            found[event.kind].append((task, event))
    return found


# --------------------------------------------------------------------------------------- the cells of a row of totals


def certified(found: Totals) -> Cell:
    return Cell("yes", "good") if found["certified"] else Cell("uncertified", "quiet")


def regret(found: Totals) -> str:
    """The mean over the tasks on which it is known, and on how many that is if not on all."""
    known = sum(each is not None for each in found["regret"])
    text = _within(found["regret_mean"], found.get("regret_error"))
    return text if known in (0, len(found["regret"])) else f"{text} on {known} of {found['tasks']}"


def unsafe_tasks(found: Totals) -> str | Cell:
    text = f"{found['unsafe_tasks']} of {found['tasks']}"
    return _safety_cell(found, text, found.get("undecided_tasks", 0))


def unsafe_episodes(found: Totals) -> str | Cell:
    return _safety_cell(found, f"{found['unsafe_episodes']:,}", found.get("undecided_episodes", 0))


def smallest_margin(found: Totals) -> str | Cell:
    text, bounds = number(found["min_margin"]), found.get("min_margin_interval")
    return _safety_cell(found, text if bounds is None else f"{text} ({interval(bounds)})", 0)


def _safety_cell(found: Totals, text: str, undecided: int) -> str | Cell:
    """In colour if anything was unsafe for certain; what cannot be told is said beside it."""
    full = f"{text}, {undecided:,} undecided" if undecided else text
    return Cell(full, "bad") if found["unsafe_tasks"] else full


def _reward(found: Totals) -> str:
    return _within(found.get("reward_mean"), found.get("reward_error"))


def _times(value: float | None, base: float | None) -> str:
    return f"{value / base:.2f}" if value is not None and base is not None and base > 0 else MISSING


# ------------------------------------------------------------------------------------------------------------- numbers


def interval(ends: Sequence[float] | None, form: str = "") -> str:
    """Low and high, by `number` or in a format of their own."""
    if ends is None:
        return MISSING
    low, high = (format(end, form).replace("-", "−") if form else number(end) for end in ends)
    return f"{low} – {high}"


def _within(value: float | None, error: float | None) -> str:
    return number(value) if value is None or not error else f"{number(value)} ± {number(error)}"
