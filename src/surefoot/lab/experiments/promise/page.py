"""The reports on how often a promise was broken, made from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.lab.experiments.frame import Report, Results
from surefoot.lab.experiments.promise.figure import counts_and_risks, powerful
from surefoot.report.figures import png, svg
from surefoot.report.page import Page, Section, versions
from surefoot.report.table import MISSING, Cell, Table, interval
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
    headers = (
        *("method", "risk", "promise", "unsafe tasks", "95 % interval"),
        *("unsafe episodes", "tested", "twin", "regret"),
    )
    rows = (
        (
            row["method"],
            f"{row['risk']:g}",
            _verdict(row.get("verdict")),
            _of(row["unsafe_tasks"], row["tasks"]),
            interval(row["interval"], ".3f"),
            f"{row['unsafe_episodes']:,}",
            _of(row.get("tested"), row["tasks"]),
            _of(row.get("twin_unsafe"), row.get("twin_tasks")),
            f"{row['regret_mean']:,.0f}",
        )
        for row in counts
    )
    return Table(headers, tuple(rows), numbers=(1, *range(3, len(headers))))


def _random_table(first: str, counts: Sequence[Mapping[str, Any]]) -> Table:
    headers = (
        *(first, "risk", "promise", "families"),
        *("unsafe tasks", "95 % interval", "lost", "95 % interval", "tested", "twin"),
    )
    rows = (
        (
            row[first],
            f"{row['risk']:g}",
            _verdict(row["verdict"]),
            f"{row['families']:,}",
            _of(row["unsafe_tasks"], row["tasks"]),
            interval(row["interval"], ".3f"),
            _of(row["lost"], row["covered"]),
            interval(row["lost_interval"], ".3f"),
            _of(row["tested"], row["tasks"]),
            _of(row["twin_unsafe"], row["twin_tasks"]),
        )
        for row in counts
        if row["families"]
    )
    return Table(headers, tuple(rows), numbers=(1, *range(3, len(headers))))


def _verdict(text: str | None) -> Cell:
    """In colour; earlier versions did not look for power."""
    return Cell(text or MISSING, TONES.get(text or "", "quiet"))


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


def _refused_section(results: Results) -> Section:
    rows = tuple(
        (row["kind"], row["method"], f"{row['risk']:g}", f"{row['families']:,}", row["reason"])
        for row in results["refusals"]
    )
    table = Table(("kind", "method", "risk", "families", "reason"), rows, numbers=(2, 3))
    return Section("Refused", ("Families for which a method cannot be had, and why.",), table=table)


def _of(part: int | None, whole: int | None) -> str:
    return MISSING if part is None or not whole else f"{part:,} of {whole:,}"
