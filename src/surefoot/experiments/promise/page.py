"""The reports on how often a promise was broken, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surefoot.experiments.results import Report
from surefoot.report.page import MISSING, Cell, Page, Section, Table, versions

VERDICTS = (
    "Kept: the 95 % interval lies below the risk, and the count has power. Broken: a method that keeps its promise "
    "would be counted like this with probability below 0.0001. No power: the count could not have told. Either the "
    "method used more than half of the safe policy's margin on too few tasks, or its overconfident twin, which takes "
    "its best estimate for the truth, would have passed as well. Too few tasks to tell: the interval reaches beyond "
    "the risk."
)


def promise_page(results: Mapping[str, Any]) -> Report:
    """The page of either count."""
    random = results["settings"].get("families") == "random"
    return Report(_random_page(results) if random else _gridworld_page(results), {})


def _gridworld_page(results: Mapping[str, Any]) -> Page:
    settings = results["settings"]
    headers = (
        "method",
        "risk",
        "unsafe tasks",
        "95 % interval",
        "unsafe episodes",
        "tested",
        "twin",
        "regret",
        "promise",
    )
    rows = tuple(
        (
            item["method"],
            f"{item['risk']:g}",
            of(item["unsafe_tasks"], item["tasks"]),
            interval(item["interval"]),
            f"{item['unsafe_episodes']:,}",
            of(item.get("tested"), item["tasks"]),
            of(item.get("twin_unsafe"), item.get("twin_tasks")),
            f"{item['regret_mean']:,.0f}",
            verdict(item.get("verdict")),
        )
        for item in results["counts"]
    )
    lead = (
        "A certified method may, with probability at most its risk, ever deploy a policy that breaks the budget. "
        f"Here {settings['tasks']:,} fresh gridworlds were run for {settings['episodes']:,} episodes each, and every "
        "deployed policy was evaluated exactly. A task counts as unsafe if any of its episodes was."
    )
    table = Table(headers, rows, numbers=(1, 2, 3, 4, 5, 6, 7))
    return _page(results, lead, (Section("Counts", table=table, notes=(VERDICTS,)),))


def _random_page(results: Mapping[str, Any]) -> Page:
    settings = results["settings"]
    lead = (
        "A certified method may, with probability at most its risk, ever deploy a policy that breaks a budget. Here "
        f"{settings['number']:,} random families of every kind were drawn, {settings['tasks']:,} fresh tasks of each, "
        f"and every policy deployed within {settings['episodes']:,} episodes was evaluated exactly "
        f"(certified-model-free: {settings['episodes'] * settings['patience']:,} episodes). A task counts as unsafe if "
        "any of its episodes was, and as lost if the cell that holds it was ever ruled out, which a method with cells "
        "may let happen with probability at most its risk."
    )
    sections = (
        Section("Counts", table=_random_table(results["counts"]), notes=(VERDICTS,)),
        Section("The worst family", ("After multiplication by the number of families.",), table=_worst(results)),
        *(
            Section(method, table=_random_table([row for row in results["kinds"] if row["method"] == method], "kind"))
            for method in settings["methods"]
        ),
        Section("Refused", ("Families for which a method cannot be had, and why.",), table=_refusals(results)),
    )
    return _page(results, lead, sections)


def _page(results: Mapping[str, Any], lead: str, sections: tuple[Section, ...]) -> Page:
    return Page(
        title="The promise, counted",
        lead=lead,
        facts=(
            ("seed", str(results["settings"]["seed"])),
            ("time", f"{results['seconds']:.0f} s"),
            *versions(),
        ),
        sections=sections,
        footer=f"surefoot {results['version']}",
    )


def _random_table(rows: list[Mapping[str, Any]], first: str = "method") -> Table:
    headers = (
        first,
        "risk",
        "families",
        "unsafe tasks",
        "95 % interval",
        "lost",
        "95 % interval",
        "tested",
        "twin",
        "promise",
    )
    return Table(headers, tuple(_random_row(row, first) for row in rows if row["families"]), numbers=tuple(range(1, 9)))


def _random_row(row: Mapping[str, Any], first: str) -> tuple[str | Cell, ...]:
    return (
        row[first],
        f"{row['risk']:g}",
        f"{row['families']:,}",
        of(row["unsafe_tasks"], row["tasks"]),
        interval(row["interval"]),
        of(row["lost"], row["covered"]),
        interval(row["lost_interval"]),
        of(row["tested"], row["tasks"]),
        of(row["twin_unsafe"], row["twin_tasks"]),
        verdict(row["verdict"]),
    )


def _worst(results: Mapping[str, Any]) -> Table:
    rows = tuple(
        (
            item["method"],
            f"{item['risk']:g}",
            f"{worst['kind']}, number {worst['number']}",
            of(worst["unsafe_tasks"], worst["tasks"]),
            of(worst["lost"], worst["covered"]),
            Cell(f"{worst['chance']:.2g}", "bad" if worst["broken"] else "quiet"),
        )
        for item in results["counts"]
        if (worst := item["worst"])
    )
    return Table(("method", "risk", "family", "unsafe tasks", "lost", "probability"), rows, numbers=(1, 3, 4, 5))


def _refusals(results: Mapping[str, Any]) -> Table:
    rows = tuple(
        (row["kind"], row["method"], f"{row['risk']:g}", f"{row['families']:,}", row["reason"])
        for row in results["refusals"]
    )
    return Table(("kind", "method", "risk", "families", "reason"), rows, numbers=(2, 3))


# ------------------------------------------------------------------------------------------------ shared with terminals


def of(part: int | None, whole: int | None) -> str:
    return MISSING if part is None or not whole else f"{part:,} of {whole:,}"


def interval(ends: list[float] | None) -> str:
    return MISSING if ends is None else f"{ends[0]:.4f} – {ends[1]:.4f}"


def verdict(word: str | None) -> str | Cell:
    tones: dict[str, Any] = {"kept": "good", "broken": "bad"}
    return MISSING if word is None else Cell(word, tones.get(word, "quiet"))
