"""The report on the lower bound, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from surefoot.lab.experiments.lower_bound.figure import samples_needed
from surefoot.lab.experiments.lower_bound.settings import BASE, EXPONENTS, TITLES
from surefoot.lab.experiments.results import Report, Results
from surefoot.report.figures import png, svg
from surefoot.report.page import Page, Section, versions
from surefoot.report.table import MISSING, Table
from surefoot.report.verdict import Answer, Verdict, certain, took, unsafe


def lower_bound_page(results: Results) -> Report:
    """The figure and the tables."""
    settings, rows = results["settings"], results["rows"]
    figure = samples_needed(rows, settings["methods"])
    page = Page(
        title="How many samples the hardest tasks take",
        verdict=_verdict(results),
        lead=(
            "The paper's lower bound: on a family of |Ω| tasks that differ in one probability each, nobody finds a "
            "policy that is ε-optimal and feasible with fewer than about |Ω| / (ξ²ε²(1-γ)⁵) samples. The certified "
            "methods on these very tasks, looking for the best policy as Algorithm 2 does."
        ),
        facts=(
            ("unless varied", f"|Ω| = {BASE.tasks}, ε = {BASE.epsilon:g}, ξ = {BASE.xi:g}, γ = {BASE.discount:g}"),
            ("constants c₁, c₂, c₃", ", ".join(f"{each:g}" for each in BASE.constants)),
            ("runs of each", str(settings["repeats"])),
            ("risk", f"{settings['risk']:g}"),
            ("seed", str(settings["seed"])),
            ("time", f"{results['seconds']:.0f} s"),
            *versions(),
        ),
        sections=(
            Section("Samples", figure=svg(figure), caption=_CAPTION),
            *(Section(title, table=table, notes=_NOTES[title]) for title, table in tables(results).items()),
        ),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {"lower-bound.png": png(figure)})


_CAPTION = (
    "Medians, with the range of all runs, of the samples in loops on task 0 until the best gate was deployed and kept "
    "for as long again. Dashed: the growth of the bound, which says nothing of a constant. All axes are logarithmic."
)
_NOTES: Mapping[str, tuple[str, ...]] = {
    "Exponents": (
        "Fitted by least squares on logarithms, ± one standard error. The bound leaves out logarithms, and "
        "the methods' own prior over |Ω| tasks brings one of |Ω|.",
        "With b as large as constraint values allow the optima of tasks differ by the gap in the second table. What "
        "is found is the best gate, which is as good as any ε below that gap asks for.",
    ),
    "Runs": (),
}


def tables(results: Results) -> dict[str, Table]:
    """Exponents beside those of the bound, and every sweep."""
    methods = results["settings"]["methods"]
    fitted = {(fit["quantity"], fit["method"]): fit for fit in results["fits"]}
    exponents = tuple(
        (TITLES[quantity], str(EXPONENTS[quantity]), *(_exponent(fitted[quantity, method]) for method in methods))
        for quantity in results["settings"]["quantities"]
    )
    runs = tuple(
        (
            TITLES[row["quantity"]],
            f"{row['value']:.3g}",
            row["method"],
            _median(row["samples"]),
            _median(row["episodes"]),
            f"{row['gap']:.3f}",
            f"{row['unsafe']} of {len(row['samples'])}",
        )
        for row in results["rows"]
    )
    return {
        "Exponents": Table(
            ("samples grow with", "bound", *methods), exponents, numbers=tuple(range(1, 2 + len(methods)))
        ),
        "Runs": Table(
            ("varied", "value", "method", "samples", "episodes", "gap", "unsafe"),
            runs,
            numbers=(1, 3, 4, 5, 6),
            optional=(5,),
        ),
    }


def _exponent(fit: Mapping[str, Any]) -> str:
    return MISSING if fit["exponent"] is None else f"{fit['exponent']:.2f} ± {fit['error']:.2f}"


def _median(values: Sequence[float | None]) -> str:
    return MISSING if None in values else f"{np.median(np.array(values)):,.0f}"


def _verdict(results: Results) -> Verdict:
    rows, fits = results["rows"], [fit for fit in results["fits"] if fit["exponent"] is not None]
    runs, count = sum(len(row["samples"]) for row in rows), sum(row["unsafe"] for row in rows)
    off = max((abs(fit["exponent"] - EXPONENTS[fit["quantity"]]) for fit in fits), default=None)
    grow = "" if off is None else f"samples grow as the lower bound does, with exponents at most {off:.2f} off; "
    words = grow + (
        f"in {count} of {runs} runs anything unsafe was deployed" if count else "nothing unsafe was deployed"
    )
    return Verdict(
        f"{words[0].upper()}{words[1:]}.",
        (
            Answer(
                "Exponents", MISSING if off is None else f"± {off:.2f}", "how far the fitted ones are from the bound’s"
            ),
            unsafe(count, runs, "runs with an unsafe policy"),
            certain(count, runs, results["settings"]["risk"], "runs"),
            took(results["seconds"], f"{runs} runs until the best policy was found"),
        ),
    )
