"""The report on the insulin pump, made from results.json alone, for readers from outside the field."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from surefoot.lab.experiments.adapting import calibrated_label
from surefoot.lab.experiments.frame import Report, Results, report
from surefoot.lab.experiments.glucose.settings import (
    CALIBRATED_ROWS,
    CELLS,
    EARLY,
    ELIMINATION,
    EPISODES,
    KNOWN,
    LEAST_GAIN,
    SLOWER,
    GlucoseSettings,
)
from surefoot.lab.experiments.glucose.words import about, absorption, naming, what_is_known, whose_settings
from surefoot.lab.experiments.savings import ADAPTING, REFERENCE
from surefoot.lab.pump.simulated_days import BUDGET
from surefoot.learning.calibrated import parse_calibration
from surefoot.report import table, verdict
from surefoot.report.calibration import settings_figure, settings_table
from surefoot.report.figures import STYLE, svg
from surefoot.report.page import Section
from surefoot.report.palette import BUDGET_COLOUR, GREY, INK, PAPER, SOFT, stroke
from surefoot.report.table import MISSING, Cell, Column, Table
from surefoot.report.verdict import Answer, Verdict


def page(results: Results) -> Report:
    """What it is about, patients over days, all methods, and what bounds them."""
    methods = results["methods"]
    compared = (REFERENCE, ELIMINATION.name, ADAPTING, *CALIBRATED_ROWS)
    # A line shows whether a method is certified by itself: left out are those that are so on other patients only.
    drawn = [
        name
        for name in compared
        if name in methods and (name in CALIBRATED_ROWS or methods[name]["certified"] == KNOWN[name].certified)
    ] or list(methods)[:3]
    patients = patients_over_days(results["shown"], results["policies"], drawn)
    gain = gain_over_days(methods, results["cell_known"])
    return report(
        results,
        GlucoseSettings,
        title="The insulin pump of a new patient",
        verdict=_verdict(results),
        lead=f"{_DISCLAIMER} {_LEAD}",
        facts=_facts(results),
        sections=(
            Section("Three patients over days", figure=svg(patients), caption=_PATIENTS),
            _all_methods(results, svg(gain)),
            _safety(results),
            *(_calibration(name, plain) for name, plain in results.get("calibrations", {}).items()),
            *_limits(results),
            about(results["settings"]),
        ),
        figures={"patients.png": patients, "gain.png": gain},
    )


# --------------------------------------------------------------------------------------------------------------- tables


def tables(results: Results) -> dict[str, Table]:
    return {"Methods": methods_table(results), "Safety": safety_table(results)}


def methods_table(results: Results) -> Table:
    left, until, *shares = _gain_columns(results["settings"]["days"], " of the possible gain", optional=True)
    in_range = Column("mean time in range", lambda row: percent(row["in_range"]), "", optional=True)
    return Table.of(_rows(results["methods"]), *_METHOD, left, until, *shares, in_range)


def safety_table(results: Results) -> Table:
    return Table.of(
        _rows(results["methods"]),
        *_METHOD,
        _UNSAFE,
        Column("undecided", "undecided_tasks", ""),
        Column(
            "95 % interval, %",
            lambda row: table.interval([100 * end for end in row["unsafe_interval"]], ".1f"),
            "",
            optional=True,
        ),
        Column("days above 4 %", "unsafe_days", ","),
        Column(
            "largest time below range, %",
            lambda row: f"{100 * row['largest_below']:.2f} ± {100 * row['largest_below_error']:.2f}",
            "",
        ),
    )


def risks_table(results: Results) -> Table:
    """By risk, and what knowing more beforehand would be worth."""
    known = {"the cell known": results["cell_known"]["share"], "the patient known": 1.0}
    rows = [
        *_rows(results["risks"]),
        *({"name": name, "share_early": share, "share": share} for name, share in known.items()),
    ]
    return Table.of(rows, Column("risk", "name"), *_gain_columns(results["settings"]["days"]), _UNSAFE)


def information_table(results: Results) -> Table:
    """Per patient the safe settings, and those that were made for one like that."""
    names, told = results["policies"], results["information"]["rows"]
    if any("patient" in row for row in told):
        rows = [row for row in told if row["policy"] in (0, len(names) // 2)]
        first = Column("patient", "patient")
    else:
        rows = [row for row in told if row["policy"] in (0, _closest(names, row["parameter"][0]))]
        first = Column("sensitivity", lambda row: f"{row['parameter'][0]:g}")
    return Table.of(
        rows,
        first,
        Column("settings", lambda row: names[row["policy"]] if row["policy"] else "safe for everybody"),
        Column("from the two sums", lambda row: _error(row["sums"]), ""),
        Column("from sums and signals", lambda row: _error(row["signals"]), ""),
    )


def _rows(found: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": name, **own} for name, own in found.items()]


def _gain_columns(days: int, until: str = "", optional: bool = False) -> tuple[Column, ...]:
    """How soon there is how much of what can be gained; whether a narrow terminal may leave out the first."""
    return (
        Column(
            "median day of leaving what is safe for everybody",
            lambda row: _days(row, "median_moved", days),
            "",
            optional,
        ),
        Column(f"median days until 90 %{until}", lambda row: _days(row, "median_days", days), ""),
        Column(f"share of the gain, first {min(EARLY, days)} days", lambda row: percent(row["share_early"]), ""),
        Column(f"all {days} days", lambda row: percent(row["share"]), ""),
    )


def _days(row: Mapping[str, Any], key: str, days: int) -> str | None:
    if key not in row:
        return None
    return f"> {days}" if row[key] is None else f"{row[key]:g}"


def _unsafe_cell(row: Mapping[str, Any]) -> str | Cell | None:
    if "tasks" not in row:
        return None
    text = f"{row['unsafe_tasks']} of {row['tasks']}"
    return Cell(text, "bad") if row["unsafe_tasks"] else text


_METHOD = (Column("method", "name"), Column("certified", table.certified))
_UNSAFE = Column("patients ever above 4 %", _unsafe_cell, "")


def _closest(names: Sequence[str], sensitivity: float) -> int:
    """The settings that were made for the patient of closest sensitivity, by their names."""
    made_for = [float(name.removeprefix("sensitivity ").split(",")[0]) for name in names[1:]]
    return 1 + min(range(len(made_for)), key=lambda k: abs(made_for[k] / sensitivity - 1))


def percent(share: float) -> str:
    return f"{100 * share:.0f} %".replace("-", "−")


def _error(error: float | None) -> str:
    return MISSING if error is None else f"{error:.2f}" if error < 10 else "> 10"


# ---------------------------------------------------------------------------------------------------------------- words


_DISCLAIMER = (
    "This is a simulation and no medical device. The patients are equations; nothing here says what any person should "
    "be given."
)
_LEAD = (
    "A new patient’s body is unknown to the pump. Settings that are safe for everybody give too little insulin to "
    "most; settings that suit one patient put another dangerously low. The pump may try other settings only once the "
    "days it has seen prove, up to a risk chosen beforehand, that these keep the time below 70 mg/dl within 4 % of "
    "the day."
)
_PATIENTS = (
    "Top: expected time in range of the settings in use on each day; dotted, the most that any mixture of the settings "
    "reaches within 4 % below range on this very patient. Middle: time below range against the 4 %. Bottom: which "
    f"settings are used by the method named there, from the safe ones (grey) to the strongest. ‘{REFERENCE}’ never "
    f"adapts; ‘{ELIMINATION.name}’ adapts without a certificate: it tries settings outright, the most promising first, "
    "until the days contradict what they promise. All lines are true values of what was deployed, not of single days."
)


def _verdict(results: Results) -> Verdict:
    settings, methods = results["settings"], results["methods"]
    certified = {name: own for name, own in methods.items() if own["certified"] and name != REFERENCE}
    adapting = max(certified, key=lambda name: certified[name]["share"], default=ADAPTING)
    found = methods.get(adapting)
    days = f"over the first {settings['days']} days"
    worth = "" if found is None else f"‘{adapting}’ had {percent(found['share'])} of the possible gain {days}, and "
    soon = ""
    if found is not None and found["median_days"] is not None:
        soon = f"; half of the patients had 90 % of it by day {found['median_days']:.0f}"
    return Verdict(
        f"In simulation {worth}{verdict.in_words(methods, settings['risk'], 'patients')}.",
        (
            Answer(
                "Gained",
                "nothing" if found is None else percent(found["share"]),
                f"of the time in range that is safely possible, {days}{soon}",
            ),
            verdict.safety(methods, settings["risk"]),
            verdict.sureness(methods, settings["risk"], "patients"),
            verdict.elapsed_time(results["seconds"], f"{len(methods)} methods on {settings['patients']} patients"),
        ),
    )


def _facts(results: Results) -> list[tuple[str, str]]:
    """The bounds, and a word where they are coarser than usual."""
    settings, bounds = results["settings"], results["bounds"]
    made = (
        f"{bounds['cells']} cells, {settings['holdout']} held-out patients, {settings['episodes']} days on average per "
        f"patient and settings; {bounds['uncovered']:.2g} uncovered"
    )
    if settings["cells"] == CELLS and settings["episodes"] in (EPISODES, SLOWER["episodes"]):
        return [("bounds", made)]
    coarse = (
        f"Made with coarser bounds than usual ({settings['cells']} cells and {settings['episodes']} days instead of "
        f"{CELLS} and {EPISODES}): a first look, at which the certified methods do worse than they can."
    )
    return [("bounds", made), ("first look", coarse)]


def _all_methods(results: Results, figure: bytes) -> Section:
    methods, patients = results["methods"], results["settings"]["patients"]
    counted = next(iter(methods.values()))["counted"]
    reached = [f"{name}: {own['reached']} of {own['counted']} got there." for name, own in methods.items()]
    return Section(
        "All methods, all patients",
        paragraphs=(
            "The gain is time in range beyond that of the settings that are safe for everybody. What is possible is "
            "the best mixture of the settings for each very patient, within 4 % below range; nobody knows it before.",
        ),
        figure=figure,
        caption=(
            "Share of the possible gain on each day: sums over all patients. A day counts at most what is safely "
            "possible; methods without a certificate buy some of theirs with time below range. ‘The cell known’: what "
            "the bounds would allow if it were known from the first day which patients this one is like."
        ),
        table=methods_table(results),
        notes=(
            f"Days until 90 %: of the {counted} of {patients} patients who have at least {100 * LEAST_GAIN:g} points "
            "of time in range to gain; those who never got there count as later than the last day. "
            + " ".join(reached),
            *_refusals(results, among=(*results["settings"]["methods"], *CALIBRATED_ROWS)),
        ),
    )


def _refusals(results: Results, among: Collection[str]) -> list[str]:
    return [f"{name} was not run: {why}." for name, why in results["refused"].items() if name in among]


def _safety(results: Results) -> Section:
    settings, errors = results["settings"], results["errors"]
    return Section(
        "Who was ever below range for more than 4 % of the day",
        paragraphs=(
            "A patient is unsafe if on any day the mixture in use has an expected time below range above 4 %, however "
            f"slightly. The certified methods promise that this happens to at most {percent(settings['risk'])} of "
            "patients.",
        ),
        table=safety_table(results),
        notes=(
            f"Values are means over fresh days, {errors['days']:,} in all, {settings['judged_days']:,} to "
            f"{errors['most_days']:,} per patient and settings: most where a mixture in use is close to 4 %. Largest "
            f"standard error of a time below range between 3 and 5 %: {100 * errors['below_near_budget']:.3f} points; "
            f"of a time in range: {100 * errors['in_range']:.2f} points. Unsafe and safe are said at three standard "
            "errors; in between a patient is undecided.",
        ),
    )


def _calibration(name: str, plain: Mapping[str, Any]) -> Section:
    found = parse_calibration(plain)
    return Section(
        f"How bold simulated patients allow ‘{name}’ to be",
        paragraphs=(
            f"‘{calibrated_label(name)}’ is as bold as {found.runs} further simulated patients allow. At each setting "
            f"all of them live {found.episodes} days, and whoever is not shown to keep the 4 % throughout, by a test "
            "on fresh days, counts as unsafe. The promise is then about a patient drawn like these, and lasts for as "
            "many days.",
        ),
        figure=svg(settings_figure(found)),
        table=settings_table(found),
        notes=(f"At most {found.allowed} may count as unsafe (docs/guarantees.md, Theorem 12c).",),
    )


def _limits(results: Results) -> Iterable[Section]:
    settings, told = results["settings"], results["information"]
    few = min(settings["compared_patients"], settings["patients"])
    if results["risks"]:
        yield Section(
            "What bounds it: the price of the risk",
            paragraphs=(
                "Before other settings are used, every kind of patient whom they would harm must be ruled out with "
                "odds of one over the risk. Evidence grows in proportion to the days, so halving the risk costs a "
                f"constant number of days. ‘{ADAPTING}’ at several risks, on the first {few} patients. Of every risk "
                f"the probability {results['bounds']['uncovered']:.3g} is already spent on patients whom the bounds "
                "may not hold for.",
            ),
            table=risks_table(results),
            notes=tuple(_refusals(results, among=results["refused"].keys() - {*settings["methods"], *CALIBRATED_ROWS})),
        )
    yield Section(
        "What bounds it: what a day says",
        paragraphs=(
            "How well one day tells the sensitivity to insulin: the standard error of its logarithm, from the two "
            "numbers of the day (time in and below range) and from the signals that were learned in simulation to be "
            f"read from all its readings. {what_is_known(told['day_to_day'])}After n "
            "days the error is smaller by √n. An error of 0.7 is a factor of two.",
        ),
        table=information_table(results),
        notes=(
            f"Linear Fisher information at {absorption(settings)}, which is taken for known; {told['days']:,} days "
            f"on either side. {whose_settings(settings)}",
        ),
    )


# -------------------------------------------------------------------------------------------------------------- figures


HIGHEST_BELOW = 12.0  # per cent of the day; what lies above is named at the edge
SETTINGS_COLOURS = matplotlib.colormaps["YlGnBu"]
SAFE_COLOUR = "#d9d9d9"
POSSIBLE = INK
SMALL_PRINT: dict[str, Any] = {"fontsize": 8, "color": SOFT}
UNCERTIFIED_LINE = (0, (4, 2))


def patients_over_days(shown: Sequence[Mapping[str, Any]], policies: Sequence[str], drawn: Sequence[str]) -> Figure:
    """A column per patient: time in range, time below it against the budget, and the settings of the last method."""
    adapting = drawn[-1]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(3.9 * len(shown), 5.2), 8.2), layout="constrained")
        rows = figure.subplots(3, len(shown), sharex=True, sharey="row", squeeze=False, height_ratios=[1.2, 1.1, 0.9])
        for column, patient in enumerate(shown):
            _draw_lines(rows[0][column], patient, drawn, "in_range", 100.0)
            possible = rows[0][column].axhline(
                100 * patient["possible"][0], color=POSSIBLE, linestyle=":", linewidth=1.2
            )
            rows[0][column].set_title(_title(patient), fontsize=10, fontweight="bold")
            _draw_lines(rows[1][column], patient, drawn, "below", HIGHEST_BELOW)
            budget = rows[1][column].axhline(100 * BUDGET, color=BUDGET_COLOUR, linestyle="--", linewidth=1.2)
            _draw_settings(rows[2][column], patient["methods"][adapting]["weights"], policies)
            _mark_leaving(rows[:, column], patient["methods"][adapting]["weights"])
            rows[2][column].set_xlabel("day")
        rows[0][0].set_ylim(0, 100)
        rows[1][0].set_ylim(0, HIGHEST_BELOW)
        rows[0][0].set_ylabel("time in range, % of the day")
        rows[1][0].set_ylabel("time below range, % of the day")
        rows[2][0].set_ylabel(f"settings in use, %\n({adapting})")
        figure.align_ylabels()
        handles, labels = rows[0][0].get_legend_handles_labels()
        words = ["the most that is safely possible", "at most 4 % below range"]
        first = figure.legend(
            [*handles, possible, budget],
            [*labels, *words],
            loc="outside upper center",
            ncols=5 if len(shown) > 1 else 2,
            fontsize=9,
        )
        figure.add_artist(first)
        patches, names = rows[2][0].get_legend_handles_labels()
        title = f"settings, from least to most insulin, each named by {naming(policies)}"
        figure.legend(patches, names, loc="outside lower center", ncols=3, fontsize=8, title=title, title_fontsize=8)
    return figure


def gain_over_days(methods: Mapping[str, Any], cell_known: Mapping[str, Any]) -> Figure:
    """The share of the safely possible gain on each day, all patients together."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.0, 4.2), layout="constrained")
        axes = figure.subplots()
        days = 0
        for name, found in methods.items():
            share = 100 * np.array(found["share_by_day"])
            days = max(days, len(share))
            width = 2.2 if name in (ADAPTING, *CALIBRATED_ROWS) else 1.5
            axes.plot(np.arange(1, len(share) + 1), share, linewidth=width, **_look(name, found["certified"]))
        axes.axhline(100, color=POSSIBLE, linestyle=":", linewidth=1.2, label="the patient known")
        axes.axhline(100 * cell_known["share"], color=GREY, linestyle="-.", linewidth=1.2, label="the cell known")
        axes.set(xlim=(1, max(days, 2)), ylim=(min(-3.0, axes.dataLim.y0), 105))
        axes.set(xlabel="day", ylabel="share of the possible gain, %")
        figure.legend(loc="outside right upper", fontsize=8.5)
    return figure


def _look(name: str, certified: bool) -> dict[str, Any]:
    """Colour, stroke and label of a method; what has no certificate is dashed and says so."""
    colour = stroke("pce" if name == ELIMINATION.name else name).colour
    if certified:
        return {"color": colour, "linestyle": "-", "label": name}
    return {"color": colour, "linestyle": UNCERTIFIED_LINE, "label": f"{name} (uncertified)"}


def _draw_lines(axes: Axes, patient: Mapping[str, Any], drawn: Sequence[str], what: str, most: float) -> None:
    for name in drawn:
        values = 100 * np.array(patient["methods"][name][what])
        days, look = np.arange(1, len(values) + 1), _look(name, name in CALIBRATED_ROWS or KNOWN[name].certified)
        width = 2.2 if name in (ADAPTING, *CALIBRATED_ROWS) else 1.5
        axes.step(days, np.minimum(values, most), where="mid", linewidth=width, **look)
        if values.max() > most:
            axes.text(
                min(days[values > most].max() + 1, 0.7 * days.max()),
                0.93 * most,
                f"up to {values.max():.0f} %",
                fontsize=8,
                color=look["color"],
                bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.0},
            )


def _draw_settings(axes: Axes, weights: Any, policies: Sequence[str]) -> None:
    """How likely each of the settings is on each day, stacked: the safe ones below."""
    shares = 100 * np.array(weights)
    shades = [SAFE_COLOUR, *(SETTINGS_COLOURS(each) for each in np.linspace(0.2, 1.0, max(len(policies) - 1, 1)))]
    days = np.arange(1, len(shares) + 1)
    names = ["safe for everybody", *policies[1:]]
    axes.stackplot(days, shares.T, colors=shades[: len(policies)], labels=names, step="mid", linewidth=0)
    axes.set(ylim=(0, 100), xlim=(1, max(len(shares), 2)))
    axes.grid(False)


def _mark_leaving(column: Any, weights: Any) -> None:
    """The first day on which something was deployed that is not safe for everybody."""
    shares = np.array(weights)
    left = np.flatnonzero((shares != shares[0]).any(axis=1))
    if not left.size:
        column[0].text(0.03, 0.04, "keeps to what is safe for everybody", transform=column[0].transAxes, **SMALL_PRINT)
        return
    day = int(left[0]) + 1
    for axes in column:
        axes.axvline(day, color=GREY, linewidth=0.9, linestyle=(0, (1, 1.5)))
    column[0].annotate(
        f"leaves what is safe\nfor everybody: day {day}",
        (day, 2),
        xytext=(4, 2),
        textcoords="offset points",
        **SMALL_PRINT,
    )


def _title(patient: Mapping[str, Any]) -> str:
    if "patient" in patient:
        return str(patient["patient"]).replace(", ", "\n", 1)
    sensitivity, minutes = patient["parameter"]
    word = "sensitive" if sensitivity > 1.25 else "average" if sensitivity > 0.8 else "insensitive"
    return f"{word}: sensitivity {sensitivity:.2f}, {minutes:.0f} min"
