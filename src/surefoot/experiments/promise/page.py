"""The reports on how often a promise was broken, made from results.json alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from surefoot.experiments.results import Report
from surefoot.report.page import MISSING, Cell, Page, Section, Table, versions

Rows: TypeAlias = tuple[tuple[str, ...], ...]

VERDICT = 2  # its column

LEGEND = (
    "kept: the 95 % interval lies below the risk, and the count has power.",
    "broken: a method that keeps its promise would be counted like this with probability below 0.0001.",
    "no power: the count could not have told. Either the method used more than half of the safe policy's margin on too "
    "few tasks (tested), or its overconfident twin, which takes its best estimate for the truth, was unsafe on so few "
    "that it would have passed as well.",
    "too few tasks to tell: the interval reaches beyond the risk.",
)
TONES: dict[str, Any] = {"kept": "good", "broken": "bad", "no power": "quiet", "too few tasks to tell": "quiet"}


def promise_page(results: Mapping[str, Any]) -> Report:
    """The page of either count."""
    settings = results["settings"]
    random = settings.get("families") == "random"
    sections = [
        Section(title, table=_toned(Table(headers, rows, numbers=(1, *range(VERDICT + 1, len(headers))))))
        for title, headers, rows in tables(results)
    ]
    legend = Section("How to read the tables", paragraphs=LEGEND)
    if random:
        sections += [_worst_section(results), _refused_section(results)]
    page = Page(
        title="The promise, counted",
        lead=_random_lead(settings) if random else _gridworld_lead(settings),
        facts=(("seed", str(settings["seed"])), ("time", f"{results['seconds']:.0f} s"), *versions()),
        sections=(sections[0], legend, *sections[1:]),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {})


def tables(results: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...], Rows]]:
    """Title, headers and rows of each table of counts."""
    if results["settings"].get("families") != "random":
        yield "Counts", *_gridworld_table(results["counts"])
        return
    yield "All families together", *_random_table("method", results["counts"])
    for method in results["settings"]["methods"]:
        yield method, *_random_table("kind", [row for row in results["kinds"] if row["method"] == method])


def _gridworld_table(counts: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], Rows]:
    headers = (
        "method",
        "risk",
        "promise",
        "unsafe tasks",
        "95 % interval",
        "unsafe episodes",
        "tested",
        "twin",
        "regret",
    )
    rows = (
        (
            row["method"],
            f"{row['risk']:g}",
            row.get("verdict", MISSING),  # earlier versions did not look for power
            _of(row["unsafe_tasks"], row["tasks"]),
            _interval(row["interval"]),
            f"{row['unsafe_episodes']:,}",
            _of(row.get("tested"), row["tasks"]),
            _of(row.get("twin_unsafe"), row.get("twin_tasks")),
            f"{row['regret_mean']:,.0f}",
        )
        for row in counts
    )
    return headers, tuple(rows)


def _random_table(first: str, counts: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], Rows]:
    headers = (
        *(first, "risk", "promise", "families"),
        *("unsafe tasks", "95 % interval", "lost", "95 % interval", "tested", "twin"),
    )
    rows = (
        (
            row[first],
            f"{row['risk']:g}",
            row["verdict"],
            f"{row['families']:,}",
            _of(row["unsafe_tasks"], row["tasks"]),
            _interval(row["interval"]),
            _of(row["lost"], row["covered"]),
            _interval(row["lost_interval"]),
            _of(row["tested"], row["tasks"]),
            _of(row["twin_unsafe"], row["twin_tasks"]),
        )
        for row in counts
        if row["families"]
    )
    return headers, tuple(rows)


def _gridworld_lead(settings: Mapping[str, Any]) -> str:
    return (
        "A certified method may, with probability at most its risk, ever deploy a policy that breaks the budget. "
        f"Here {settings['tasks']:,} fresh gridworlds were run for {settings['episodes']:,} episodes each, and every "
        "deployed policy was evaluated exactly. A task counts as unsafe if any of its episodes was."
    )


def _random_lead(settings: Mapping[str, Any]) -> str:
    return (
        "A certified method may, with probability at most its risk, ever deploy a policy that breaks a budget. Here "
        f"{settings['number']:,} random families of every kind were drawn, {settings['tasks']:,} fresh tasks of each, "
        f"and every policy deployed within {settings['episodes']:,} episodes was evaluated exactly "
        f"(certified-model-free: {settings['episodes'] * settings['patience']:,}). A task counts as unsafe if any of "
        "its episodes was, and as lost if the cell that holds it was ever ruled out, which a method with cells may let "
        "happen with probability at most its risk."
    )


def _worst_section(results: Mapping[str, Any]) -> Section:
    rows = tuple(
        (
            item["method"],
            f"{item['risk']:g}",
            f"{worst['kind']}, number {worst['number']}",
            _of(worst["unsafe_tasks"], worst["tasks"]),
            _of(worst["lost"], worst["covered"]),
            Cell(f"{worst['chance']:.2g}", "bad" if worst["broken"] else "quiet"),
        )
        for item in results["counts"]
        if (worst := item["worst"])
    )
    table = Table(("method", "risk", "family", "unsafe tasks", "lost", "probability"), rows, numbers=(1, 3, 4, 5))
    told = "The family that speaks most against each promise; the probability is multiplied by the number of families."
    return Section("The worst family", (told,), table=table)


def _refused_section(results: Mapping[str, Any]) -> Section:
    rows = tuple(
        (row["kind"], row["method"], f"{row['risk']:g}", f"{row['families']:,}", row["reason"])
        for row in results["refusals"]
    )
    table = Table(("kind", "method", "risk", "families", "reason"), rows, numbers=(2, 3))
    return Section("Refused", ("Families for which a method cannot be had, and why.",), table=table)


def _of(part: int | None, whole: int | None) -> str:
    return MISSING if part is None or not whole else f"{part:,} of {whole:,}"


def _interval(ends: Sequence[float] | None) -> str:
    return MISSING if ends is None else f"{ends[0]:.3f} – {ends[1]:.3f}"


def _toned(table: Table) -> Table:
    """The verdicts in colour."""
    rows = []
    for row in table.rows:
        verdict = str(row[VERDICT])
        rows.append((*row[:VERDICT], Cell(verdict, TONES.get(verdict, "quiet")), *row[VERDICT + 1 :]))
    return Table(table.headers, tuple(rows), table.numbers)
