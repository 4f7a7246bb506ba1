"""The page on how often a promise was broken, and its figure, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from surefoot.lab.experiments.frame import Report, Results
from surefoot.lab.experiments.promise.counts import Count
from surefoot.report.figures import STYLE, png, svg
from surefoot.report.page import Page, Section, versions
from surefoot.report.palette import BUDGET_COLOUR, INK, PAPER, SOFT, stroke
from surefoot.report.table import MISSING, Cell, Column, Table, interval
from surefoot.report.verdict import Answer, Verdict, elapsed_time, join_words

LEGEND = (
    "kept: the 95 % interval lies below the risk, and the count has power.",
    "broken: a method that keeps its promise would be counted like this with probability below 0.0001.",
    "no power: the count could not have told. Either the method used more than half of the safe policy's margin on too "
    "few tasks (tested), or its overconfident twin, which takes its best estimate for the truth, was unsafe on so few "
    "that it would have passed as well.",
    "too few tasks to tell: the interval reaches beyond the risk.",
)
TONES: dict[str, Any] = {"kept": "good", "broken": "bad", "no power": "quiet", "too few tasks to tell": "quiet"}


def promise_page(results: Results) -> Report:
    """The page of either count."""
    settings = results["settings"]
    random = settings.get("families") == "random"
    counted = [row for row in results["counts"] if row["tasks"]]
    figure = counts_and_risks(counted) if counted else None
    first, *others = (Section(title, table=table) for title, table in tables(results).items())
    picture = [] if figure is None else [Section("Unsafe tasks against the risk", figure=svg(figure), caption=_CAPTION)]
    legend = Section("How to read the tables", paragraphs=LEGEND)
    if random:
        others += [_worst_section(results), _refused_section(results)]
    page = Page(
        title="The promise, counted",
        verdict=_summary(results, counted),
        lead=_random_lead(settings) if random else _gridworld_lead(settings),
        facts=(("seed", str(settings["seed"])), ("time", f"{results['seconds']:.0f} s"), *versions()),
        sections=(*picture, first, legend, *others),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {} if figure is None else {"promise.png": png(figure)})


_CAPTION = (
    "Dots: unsafe tasks, with their exact 95 % intervals (Clopper and Pearson); dashed: the risk, which the promise "
    "keeps them below. A filled dot has power: the method's overconfident twin, which takes its best estimate for the "
    "truth, was unsafe so often that it would have been caught, and the method itself went far enough on enough tasks. "
    "A hollow dot says nothing."
)


def _summary(results: Results, counted: Sequence[Mapping[str, Any]]) -> Verdict:
    verdicts = [row.get("verdict") for row in counted]
    kept, broken, power = verdicts.count("kept"), verdicts.count("broken"), sum(map(powerful, counted))
    unsafe, tasks = (sum(row[key] for row in counted) for key in ("unsafe_tasks", "tasks"))
    allowed = sum(row["risk"] * row["tasks"] for row in counted)
    found = f"{unsafe:,} of {tasks:,} tasks were unsafe, where the risks allow {allowed:,.0f}"
    if broken:
        names = join_words(
            [f"‘{row['method']}’ at risk {row['risk']:g}" for row in counted if row["verdict"] == "broken"]
        )
        words = f"{broken} of {len(counted)} promises were broken, by {names}; {found}"
    elif counted and kept == len(counted):
        words = f"All {kept} promises were kept, and would have been seen to be broken if they were; {found}"
    else:
        words = f"No promise was seen to be broken, {kept} of {len(counted)} were seen to be kept; {found}"
    return Verdict(
        f"{words}.",
        (
            Answer("Kept", f"{kept} of {len(counted)}", "promises: interval below the risk, and a count with power"),
            Answer(
                "Unsafe",
                f"{unsafe:,} of {tasks:,}",
                f"tasks, all counts together; the risks allow {allowed:,.0f}",
                "bad" if broken else "good" if kept == len(counted) else "",
            ),
            Answer("Power", f"{power} of {len(counted)}", "counts that could have shown a broken promise"),
            elapsed_time(results["seconds"], f"{len(counted)} counts"),
        ),
    )


def tables(results: Results) -> dict[str, Table]:
    """The counts; on random families all together, and by method those of each kind of family."""
    if results["settings"].get("families") != "random":
        return {"Counts": _gridworld_table(results["counts"])}
    by_method = {
        method: _random_table("kind", [row for row in results["kinds"] if row["method"] == method])
        for method in results["settings"]["methods"]
    }
    return {"All families together": _random_table("method", results["counts"]), **by_method}


def _gridworld_table(counts: Sequence[Mapping[str, Any]]) -> Table:
    return Table.of(
        counts,
        Column("method", "method"),
        *_PROMISE,
        *_UNSAFE,
        Column("unsafe episodes", "unsafe_episodes", ","),
        *_POWER,
        Column("regret", "regret_mean", ",.0f"),
    )


def _random_table(first: str, counts: Sequence[Mapping[str, Any]]) -> Table:
    return Table.of(
        (row for row in counts if row["families"]),
        Column(first, first),
        *_PROMISE,
        Column("families", "families", ","),
        *_UNSAFE,
        Column("lost", lambda row: _of(row["lost"], row["covered"]), ""),
        Column("95 % interval", lambda row: interval(row["lost_interval"], ".3f"), ""),
        *_POWER,
    )


def _verdict(row: Mapping[str, Any]) -> Cell:
    """In colour; earlier versions did not look for power."""
    return Cell(row.get("verdict") or MISSING, TONES.get(row.get("verdict") or "", "quiet"))


def _of(part: int | None, whole: int | None) -> str | None:
    return None if part is None or not whole else f"{part:,} of {whole:,}"


_PROMISE = (Column("risk", "risk", "g"), Column("promise", _verdict))
_UNSAFE = (
    Column("unsafe tasks", lambda row: _of(row["unsafe_tasks"], row["tasks"]), ""),
    Column("95 % interval", lambda row: interval(row["interval"], ".3f"), ""),
)
_POWER = (
    Column("tested", lambda row: _of(row.get("tested"), row["tasks"]), ""),
    Column("twin", lambda row: _of(row.get("twin_unsafe"), row.get("twin_tasks")), ""),
)


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


def _worst_section(results: Results) -> Section:
    told = "The family that speaks most against each promise; the probability is multiplied by the number of families."
    table = Table.of(
        ({**row["worst"], "method": row["method"], "risk": row["risk"]} for row in results["counts"] if row["worst"]),
        Column("method", "method"),
        Column("risk", "risk", "g"),
        Column("family", lambda row: f"{row['kind']}, number {row['number']}"),
        Column("unsafe tasks", lambda row: _of(row["unsafe_tasks"], row["tasks"]), ""),
        Column("lost", lambda row: _of(row["lost"], row["covered"]), ""),
        Column("probability", lambda row: Cell(f"{row['chance']:.2g}", "bad" if row["broken"] else "quiet"), ""),
    )
    return Section("The worst family", (told,), table=table)


def _refused_section(results: Results) -> Section:
    table = Table.of(
        results["refusals"],
        Column("kind", "kind"),
        Column("method", "method"),
        Column("risk", "risk", "g"),
        Column("families", "families", ","),
        Column("reason", "reason"),
    )
    return Section("Refused", ("Families for which a method cannot be had, and why.",), table=table)


# ----------------------------------------------------------------------------------------------------------- the figure


def counts_and_risks(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """A panel per risk, a row per method: the share of unsafe tasks with its exact 95 % interval, and the risk."""
    risks = sorted({row["risk"] for row in rows})
    methods = list(dict.fromkeys(row["method"] for row in rows))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(8.0, 4.6 * len(risks)), 0.78 * len(methods) + 1.3), layout="constrained")
        panels = figure.subplots(1, len(risks), sharey=True, squeeze=False)[0]
        for axes, risk in zip(panels, risks, strict=True):
            _draw(axes, risk, [row for row in rows if row["risk"] == risk], methods)
        panels[0].set_yticks([-k for k in range(len(methods))], methods)
        panels[0].set_ylim(-len(methods) + 0.4, 0.45)
    return figure


def powerful(row: Mapping[str, Any]) -> bool:
    """Whether the count could have shown a broken promise; earlier versions did not look."""
    if row.get("tested") is None or not row["tasks"]:
        return False
    counted = (row[key] for key in ("tasks", "unsafe_tasks", "tested", "twin_tasks", "twin_unsafe"))
    return Count(*counted).has_power(row["risk"])


def _draw(axes: Axes, risk: float, rows: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> None:
    for row in rows:
        y, colour = -methods.index(row["method"]), stroke(row["method"]).colour
        low, high = (100 * end for end in row["interval"])
        axes.plot([low, high], [y, y], color=colour, linewidth=3, solid_capstyle="butt")
        share, face = 100 * row["unsafe_tasks"] / row["tasks"], colour if powerful(row) else PAPER
        axes.plot(share, y, "o", color=colour, markerfacecolor=face, markersize=8, clip_on=False, zorder=3)
        place: Any = {"xytext": (5, -14), "textcoords": "offset points", "fontsize": 8, "va": "center", "color": SOFT}
        axes.annotate(_words(row), (0, y), **place)
    highest = max([risk, *(row["interval"][1] for row in rows)])
    axes.set_xlim(0, 100 * min(1.0, 1.25 * highest))
    axes.axvline(100 * risk, color=BUDGET_COLOUR, linestyle=(0, (5, 3)), linewidth=1.2)
    axes.axvspan(100 * risk, axes.get_xlim()[1], color=BUDGET_COLOUR, alpha=0.06, linewidth=0, zorder=0)
    axes.set_title(f"risk {risk:g}", fontsize=10.5, fontweight="bold", color=INK)
    axes.set_xlabel("unsafe tasks, %")
    axes.grid(axis="y", visible=False)
    axes.tick_params(left=False)


def _words(row: Mapping[str, Any]) -> str:
    """The count, the verdict, and what the twin did that shows the power of it."""
    told = f"{row['unsafe_tasks']:,} of {row['tasks']:,}: {row.get('verdict') or 'not judged'}"
    twin = f"; overconfident twin {row['twin_unsafe']} of {row['twin_tasks']}" if row.get("twin_tasks") else ""
    return told + twin
