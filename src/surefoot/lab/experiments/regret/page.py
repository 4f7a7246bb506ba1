"""The report on regret and its bounds, made from results.json alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from surefoot.lab.experiments.regret.figure import regret_and_bounds
from surefoot.lab.experiments.regret.settings import DELTA, EPSILON, SWEEPS, Family
from surefoot.lab.experiments.results import Report, Results
from surefoot.report.figures import png, svg
from surefoot.report.page import Page, Section, versions
from surefoot.report.table import Table
from surefoot.report.verdict import Answer, Verdict, took, unsafe

QUANTITY = {"cover": "cover", "margin": "xi"}  # what a sweep is drawn against
BOUNDS = ("trivial", "shape", "theorem")


def regret_page(results: Results) -> Report:
    """The figure and the table."""
    settings = results["settings"]
    methods = settings["methods"]
    sweeps = {name: [_last(results, family, name) for family in SWEEPS[name]] for name in settings["sweeps"]}
    figure = regret_and_bounds(_curves(results), sweeps, methods)
    page = Page(
        title="Regret, and what is proved of it",
        verdict=_verdict(results),
        lead=(
            "Gridworlds whose noise is spread more or less, with safe policies of more or less margin. Measured regret "
            "is exact. Certified is the most that the cells which are still possible allow, added up while the method "
            "runs, without knowing the task."
        ),
        facts=(
            ("episodes", f"{settings['episodes']:,}"),
            ("tasks of each family", str(settings["tasks"])),
            ("risk", f"{settings['risk']:g}"),
            ("training", f"ε = {EPSILON:g}, δ = {DELTA:g}"),
            ("seed", str(settings["seed"])),
            ("time", f"{results['seconds']:.0f} s"),
            *versions(),
        ),
        sections=(
            Section("Regret and bounds", figure=svg(figure), caption=_CAPTION),
            *(Section(title, table=table, notes=_NOTES) for title, table in tables(results).items()),
        ),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {"regret.png": png(figure)})


_CAPTION = (
    "Means over the tasks, all axes logarithmic; the sweeps at the last episode. Dotted: the largest regret there can "
    "be, range × K. What lies above it says nothing."
)
_NOTES = (
    "C is the covering number C_{ε/2}(D, δ) at the ε and δ of training, moved by the spread of the noise; ξ is the "
    "margin, in the paper's scale, that the safe policy attains on the cover, moved by the noise it is the best policy "
    "for.",
    "Theorem 4.2 without constants and logarithms, at the ε of training, which its precondition (8L+18)ε ≤ ξ forbids; "
    "and with the constants of its proof, errata repaired, at the ε it allows that makes it smallest and at the δ that "
    "lets it hold with probability 1 - risk. Neither is certified here.",
)


def tables(results: Results) -> dict[str, Table]:
    """Every family at the last episode."""
    methods = results["settings"]["methods"]
    families = [_last(results, Family(each["std"], each["safe_noise"])) for each in results["families"]]
    headers = (
        "spread",
        "safe for",
        "C",
        "ξ",
        *(f"{kind}{method}" for method in methods for kind in ("", "certified, ")),
        "safe-only",
        "range × K",
        "Theorem 4.2 without constants",
        "with constants",
    )
    rows = tuple(
        (
            f"{row['std']:g}",
            f"noise {row['safe_noise']:g}",
            f"{row['cover']:,}",
            f"{row['xi']:.3f}",
            *(f"{row[f'{kind}{method}']:,.0f}" for method in methods for kind in ("", "certified ")),
            f"{row['safe-only']:,.0f}",
            *(f"{row[name]:.2g}" for name in BOUNDS),
        )
        for row in families
    )
    return {"At the last episode": Table(headers, rows, numbers=tuple(range(len(headers))), optional=(0, 1))}


def _curves(results: Results) -> dict[str, Any]:
    """Of the first family, over the episodes."""
    family, runs = results["families"][0], _runs(results, results["families"][0])
    methods = results["settings"]["methods"]
    own = {method: [run for run in runs if run["method"] == method] for method in methods}
    gap = np.mean([run["safe_gap"] for run in own[methods[0]]])
    return {
        "episode": family["episode"],
        **{name: family[name] for name in BOUNDS},
        "safe-only": [gap * k for k in family["episode"]],
        **{method: np.mean([run["regret"] for run in own[method]], axis=0) for method in methods},
        **{f"certified {method}": np.mean([run["certified"] for run in own[method]], axis=0) for method in methods},
    }


def _last(results: Results, family: Family, sweep: str | None = None) -> dict[str, Any]:
    """One family at the last episode, with the `value` that it is drawn at in a sweep."""
    found = next(
        each for each in results["families"] if (each["std"], each["safe_noise"]) == (family.std, family.safe_noise)
    )
    curves = _curves({**results, "families": [found]})
    last = {name: values[-1] for name, values in curves.items()}
    drawn = {} if sweep is None else {"value": found[QUANTITY[sweep]]}
    return {**{key: found[key] for key in ("std", "safe_noise", "cover", "xi")}, **last, **drawn}


def _runs(results: Results, family: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [run for run in results["runs"] if (run["std"], run["safe_noise"]) == (family["std"], family["safe_noise"])]


def _raised(exponent: int) -> str:
    return str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _verdict(results: Results) -> Verdict:
    runs: Sequence[Mapping[str, Any]] = results["runs"]
    ratios = [run["certified"][-1] / run["regret"][-1] for run in runs]
    exceeded, count = (sum(bool(run[key]) for run in runs) for key in ("exceeded", "unsafe"))
    after = results["families"][0]["says_something_after"]
    later = (
        "at no number of episodes up to 10²⁴"
        if after is None
        else f"only from about 10{_raised(round(math.log10(after)))} episodes on"
    )
    kept = f"exceeded in {exceeded} of {len(runs)} runs" if exceeded else "never exceeded"
    safe = f"unsafe policies were deployed in {count}" if count else "nothing unsafe was deployed"
    return Verdict(
        f"What is certified of the regret while a method runs was {kept} and {safe}; the paper's bound says something "
        f"{later}.",
        (
            Answer(
                "Certified", f"{min(ratios):.1f} to {max(ratios):.1f} ×", "the measured regret, at the last episode"
            ),
            unsafe(count, len(runs), f"runs with an unsafe policy; risk allowed: {results['settings']['risk']:g}"),
            Answer(
                "How sure",
                f"{exceeded} of {len(runs)}",
                "runs had more regret than was certified of them",
                "bad" if exceeded else "",
            ),
            took(results["seconds"], f"{len(runs)} runs of {results['settings']['episodes']:,} episodes"),
        ),
    )
