"""The report on covering numbers, made from results.json alone."""

from __future__ import annotations

from surefoot.lab.experiments.covering.figure import covering_numbers
from surefoot.lab.experiments.results import Report, Results
from surefoot.report.figures import png, svg
from surefoot.report.page import Page, Section, versions
from surefoot.report.table import MISSING, Table
from surefoot.report.verdict import Answer, Verdict, took


def covering_page(results: Results) -> Report:
    """The figure and the table."""
    settings, rows = results["settings"], results["rows"]
    figure = covering_numbers(rows, settings["delta"])
    page = Page(
        title="How many tasks cover a family",
        verdict=_verdict(results),
        lead=(
            "The paper's bounds grow with C, the number of balls of radius ε that hold all but δ of the tasks. For one "
            "normal or uniform parameter it is known exactly; for any family with coordinates it follows from sampled "
            "tasks, up to an interval. Algorithm 1 does not know it, and finds a cover of about that size."
        ),
        facts=(
            ("δ", f"{settings['delta']:g}"),
            ("sampled tasks", f"{settings['points']:,}"),
            ("seed", str(settings["seed"])),
            ("time", f"{results['seconds']:.0f} s"),
            *versions(),
        ),
        sections=(
            Section("Covering numbers and covers", figure=svg(figure), caption=_CAPTION),
            *(Section(title, table=table, notes=_NOTES) for title, table in tables(results).items()),
        ),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {"covering.png": png(figure)})


_CAPTION = (
    "Line: C exactly, with δ and, dashed, with the 3δ that Algorithm 1 may leave out. Band: 95 % interval from sampled "
    "tasks. Dots: centres that Algorithm 1 chose. Both axes are logarithmic."
)
_NOTES = (
    "Algorithm 1 leaves up to 3δ of its samples uncovered and takes its centres from them: the last column is what its "
    "cover is to be held against. With several parameters the lower end is loose: it rests on the largest ball alone.",
)


def tables(results: Results) -> dict[str, Table]:
    """Every family at every radius."""
    rows = tuple(
        (
            row["family"],
            f"{row['epsilon']:g}",
            _count(row["exact"]),
            f"{row['lower']:,} to {row['upper']:,}",
            f"{row['found']:,}",
            f"{row['sampled']:,}",
            _count(row["exact_as_left"]),
        )
        for row in results["rows"]
    )
    headers = ("family", "ε", "C", "from samples", "Algorithm 1", "out of", "C with 3δ")
    return {"Counts": Table(headers, rows, numbers=(1, 2, 3, 4, 5, 6), optional=(5,))}


def _verdict(results: Results) -> Verdict:
    """Nothing is deployed here, so that nothing is unsafe."""
    rows = results["rows"]
    ratios = [row["found"] / row["exact_as_left"] for row in rows if row["exact_as_left"]]
    inside = [row["lower"] <= row["exact"] <= row["upper"] for row in rows if row["exact"]]
    span = f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else MISSING
    told = f" of {span} times the smallest size where that is known" if ratios else ""
    return Verdict(
        f"Algorithm 1 finds covers{told}, without knowing how many tasks cover the family.",
        (
            Answer(
                "Size of the covers", span, "times C with 3δ, the least number of centres, where it is known exactly"
            ),
            Answer(
                "How sure", f"{sum(inside)} of {len(inside)}", "intervals from samples (95 %) hold C where it is known"
            ),
            took(results["seconds"], f"{len(rows)} covers, {results['settings']['points']:,} sampled tasks"),
        ),
    )


def _count(value: int | None) -> str:
    return MISSING if value is None else f"{value:,}"
