"""The page of the comparison with rivals, made from results.json alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox

from surefoot.cmdp.wording import setting_in_words
from surefoot.lab.experiments import frame
from surefoot.lab.experiments.frame import Report, Results
from surefoot.lab.experiments.rivals.settings import RivalSettings
from surefoot.report.figures import STYLE, freeze_layout, svg
from surefoot.report.page import Section
from surefoot.report.palette import BUDGET_COLOUR, GREY, INK, PAPER, stroke
from surefoot.report.table import Cell, Column, Table, certified
from surefoot.report.verdict import Answer, Verdict, elapsed_time, percent

DEFAULT, HINDSIGHT, CALIBRATED = "default", "hindsight", "calibrated"
AT = {DEFAULT: "as it comes", HINDSIGHT: "best in hindsight", CALIBRATED: "calibrated"}


def page(results: Results) -> Report:
    figures = {name: gain_and_risk(system, results["settings"]["risk"]) for name, system in results["systems"].items()}
    shown = tables(results)
    return frame.report(
        results,
        RivalSettings,
        title="What one would use instead",
        verdict=_verdict(results),
        lead=_LEAD,
        sections=tuple(
            part
            for name, system in results["systems"].items()
            for part in (
                Section(f"Gain and risk: {system['title']}", figure=svg(figures[name]), caption=_caption(system)),
                Section(_title(name), table=shown[_title(name)], notes=_NOTES),
            )
        ),
        figures={f"{name}.png": figure for name, figure in figures.items()},
    )


_LEAD = (
    "Methods that people use today, and ours, on the same fresh tasks with the same policies and episodes. Each is run "
    "as it comes, at the setting that turned out best on these very tasks, which nobody knows beforehand, and at the "
    "boldest setting that a calibration on other simulated tasks allows."
)
_NOTES = (
    "Ever unsafe: tasks on which anything was deployed that breaks the budget, with a 95 % interval of their share; by "
    "exact values on tables, and elsewhere by fresh episodes, where a cost counts as above the budget if it is so by "
    "three standard errors. Gains are shares of what the best mixture of the policies within the budget gains over the "
    "safe policy on the same task; more than that is not counted. Episodes to 90 %: the first whose mixture gains "
    "so much, the median of tasks on which there is anything to gain.",
    "Best in hindsight is the setting with the largest gain of those unsafe on no more of these tasks than the risk "
    "allows, chosen on these tasks: an upper bound on what tuning could have found, and no way to use a method.",
)


def _title(name: str) -> str:
    return f"Methods: {name}"


def _caption(system: Mapping[str, Any]) -> str:
    return (
        f"Gain over the first {system['late']:,} of {system['episodes']:,} episodes against the share of tasks on "
        "which anything unsafe was ever deployed, with 95 % intervals. Full: certified, by a proof or by calibration; "
        "hollow: no certificate. A line leads from a method as it comes to the same method calibrated."
    )


def points(system: Mapping[str, Any]) -> Iterator[tuple[str, str, bool, Mapping[str, Any]]]:
    """Method, which of its settings, whether that is certified, and what came of it."""
    for method, found in system["methods"].items():
        yield method, DEFAULT, found["certified"], found["default"]
        for which in (HINDSIGHT, CALIBRATED):
            if found[which] is not None:
                yield method, which, which == CALIBRATED, found[which]


# -------------------------------------------------------------------------------------------------------------- tables


def tables(results: Results) -> dict[str, Table]:
    """Every method of every system, at each of its settings."""
    return {_title(name): _table(system, results["settings"]["risk"]) for name, system in results["systems"].items()}


def _table(system: Mapping[str, Any], risk: float) -> Table:
    rows = [{"method": method, "which": which, "certified": own, **row} for method, which, own, row in points(system)]
    rows += [
        {"method": method, "which": CALIBRATED, "none": True}
        for method, found in system["methods"].items()
        if found["calibration"] is not None and found[CALIBRATED] is None
    ]
    order = list(system["methods"])
    rows.sort(key=lambda row: (order.index(row["method"]), list(AT).index(row["which"])))
    return Table.of(
        rows,
        Column("method", lambda row: row["method"] if row["which"] == DEFAULT else f"– {AT[row['which']]}"),
        Column("setting", _setting, optional=True),
        Column("certified", lambda row: None if "none" in row else certified(row)),
        Column("ever unsafe", lambda row: _unsafe(row, risk), ""),
        Column("95 % interval", lambda row: _share_interval(row), ""),
        Column("unsafe episodes", lambda row: _percent(row.get("unsafe_episodes")), ""),
        Column(f"gain, first {system['early']:,}", lambda row: _percent(row.get("early")), ""),
        Column(f"first {system['late']:,}", lambda row: _percent(row.get("late")), ""),
        Column("episodes to 90 %", lambda row: _wait(row, system["episodes"]), ""),
    )


def _setting(row: Mapping[str, Any]) -> str:
    if "none" in row:
        return "no setting passed"
    setting = row.get("setting")
    return AT[DEFAULT] if setting is None else setting_in_words(setting)


def _unsafe(row: Mapping[str, Any], risk: float) -> Cell | str | None:
    if "none" in row:
        return None
    text = f"{row['unsafe']} of {row['tasks']}" + (f" (+{row['undecided']}?)" if row["undecided"] else "")
    return Cell(text, "bad") if row["unsafe"] > risk * row["tasks"] else text


def _share_interval(row: Mapping[str, Any]) -> str | None:
    return None if "none" in row else " – ".join(f"{100 * end:.1f}" for end in row["interval"]) + " %"


def _wait(row: Mapping[str, Any], episodes: int) -> str | None:
    if "none" in row:
        return None
    return f"> {episodes:,}" if row["wait"] is None else f"{row['wait']:,.0f}"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"


# -------------------------------------------------------------------------------------------------------------- verdict


def _verdict(results: Results) -> Verdict:
    risk, systems = results["settings"]["risk"], results["systems"]
    found = [(name, *point) for name, system in systems.items() for point in points(system)]
    plain = [row for _, _, which, own, row in found if which == DEFAULT and not own]
    promised = [(name, method, row) for name, method, which, own, row in found if own and which != HINDSIGHT]
    above = sum(row["unsafe"] > risk * row["tasks"] for row in plain)
    broken = sum(row["interval"][0] > risk for _, _, row in promised)
    worst = max(plain, key=lambda row: row["unsafe"] / row["tasks"], default=None)
    best = max(promised, key=lambda each: each[2]["late"], default=None)
    answers = (
        Answer(
            "Without a certificate",
            "none was run" if worst is None else percent(worst["unsafe"] / worst["tasks"]),
            "of tasks ever unsafe, the worst method as it comes",
        ),
        Answer(
            "With one",
            f"{broken} of {len(promised)}",
            f"unsafe on clearly more than the promised {percent(risk)} of tasks",
            "bad" if broken else "good",
        ),
        Answer(
            "Most gained",
            "nothing" if best is None else percent(best[2]["late"]),
            "with a certificate"
            if best is None
            else f"of what is possible: {best[1]} on {best[0]}, with a certificate",
        ),
        elapsed_time(results["seconds"], f"{sum(row['tasks'] for *_, row in found):,} runs are in the tables"),
    )
    return Verdict(
        f"As they come, {above} of {len(plain)} uncertified methods were ever unsafe on more than {percent(risk)} of "
        f"the tasks; of those with a proof or a calibration {broken} of {len(promised)} clearly were.",
        answers,
    )


# --------------------------------------------------------------------------------------------------------------- figure

TICKS = (0, 1, 5, 10, 25, 50, 75, 100)
NEAR = ((8, 8), (8, -8), (-8, 8), (-8, -8), (0, 13), (0, -13))  # where a name goes, in points
FAR = tuple((x, y) for y in (20, -20, 32, -32, 44, -44, 56, -56, 68, 80) for x in (9, -9, 40, -40, 70, 100))
CLOSE = 12.0  # pixels within which points are as good as one
WIDEST_NAME = 56  # characters in a line


def gain_and_risk(system: Mapping[str, Any], risk: float) -> Figure:
    """Every method a point: how often it was ever unsafe, and what it gained."""
    drawn = [point for point in points(system) if point[1] != HINDSIGHT]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 5.6), layout="constrained")
        axes = figure.subplots()
        axes.set_xscale("function", functions=(_root, np.square))
        axes.set(xlim=(-0.25, 104), ylim=(min(-6.0, 110 * min(row["late"] for *_, row in drawn)), 106))
        axes.set_xticks(TICKS, [f"{tick} %" for tick in TICKS])
        axes.set(xlabel="tasks on which it was ever unsafe", ylabel="gain, % of what is safely possible")
        axes.axvline(100 * risk, color=BUDGET_COLOUR, linewidth=1.4, linestyle="--")
        axes.axvspan(100 * risk, 104, color=BUDGET_COLOUR, alpha=0.05, linewidth=0)
        axes.text(
            100 * risk, 1.005, f"allowed: {percent(risk)}",
            color=BUDGET_COLOUR, fontsize=9, ha="center", va="bottom", transform=axes.get_xaxis_transform(),
        )  # fmt: skip
        _draw_moves(axes, drawn)
        for method, _, own, row in drawn:
            _draw_point(axes, stroke(method).colour, own, row)
        figure.legend(handles=_KEYS, loc="outside lower center", ncols=3, fontsize=9)
        _name_points(figure, axes, drawn)
    return figure


def _root(share: Any) -> Any:
    """Small shares are what matters: a square root, also of a little less than nothing."""
    return np.sign(share) * np.sqrt(np.abs(share))


def _look(colour: str, own: bool) -> dict[str, Any]:
    return {"marker": "o", "color": colour, "markerfacecolor": colour if own else PAPER, "markeredgewidth": 1.8}


_KEYS = (
    Line2D([], [], linestyle="none", markersize=8, label="certified, by proof or calibration", **_look(INK, True)),
    Line2D([], [], linestyle="none", markersize=8, label="no certificate", **_look(INK, False)),
    Line2D([], [], color=GREY, linewidth=1.2, linestyle=":", label="the same method, calibrated"),
)


def _place(row: Mapping[str, Any]) -> tuple[float, float]:
    return 100 * row["unsafe"] / row["tasks"], 100 * row["late"]


def _draw_moves(axes: Axes, drawn: Sequence[tuple[str, str, bool, Mapping[str, Any]]]) -> None:
    places = {(method, which): _place(row) for method, which, _, row in drawn}
    for (method, which), end in places.items():
        if which == CALIBRATED:
            begin = places[method, DEFAULT]
            axes.plot(
                *zip(begin, end, strict=True), color=stroke(method).colour, linewidth=1.2, linestyle=":", zorder=2
            )


def _draw_point(axes: Axes, colour: str, own: bool, row: Mapping[str, Any]) -> None:
    x, y = _place(row)
    low, high = (100 * end for end in row["interval"])
    error = 196 * row["late_error"]
    axes.plot([low, high], [y, y], color=colour, linewidth=1.0, alpha=0.45, zorder=2)
    axes.plot([x, x], [y - error, y + error], color=colour, linewidth=1.0, alpha=0.45, zorder=2)
    axes.plot([x], [y], linestyle="none", markersize=8, zorder=4, **_look(colour, own))


def _name_points(figure: Figure, axes: Axes, drawn: Sequence[tuple[str, str, bool, Mapping[str, Any]]]) -> None:
    """Each beside its point, at the first place where it lies upon nothing; those of one place together."""
    freeze_layout(figure)
    pixels = {_place(row): axes.transData.transform(_place(row)) for *_, row in drawn}
    names: dict[tuple[float, float], dict[str, str]] = {}
    for method, which, _, row in drawn:
        near = (place for place in names if np.abs(pixels[place] - pixels[_place(row)]).max() < CLOSE)
        together = names.setdefault(next(near, _place(row)), {})
        told = f"{method}, calibrated" if which == CALIBRATED else method
        together[method] = f"{method} (also calibrated)" if method in together else told
    size = 5 * figure.dpi / 72
    taken = [Bbox.from_extents(*(pixel - size), *(pixel + size)) for pixel in pixels.values()]
    for place, together in names.items():
        name = textwrap.fill(" · ".join(together.values()), WIDEST_NAME, break_on_hyphens=False)
        taken.append(_name_point(axes, place, name, taken))


def _name_point(axes: Axes, place: tuple[float, float], name: str, taken: Sequence[Bbox]) -> Bbox:
    """The box of the name, in pixels."""
    within, places = axes.get_window_extent(), (*NEAR, *FAR)
    for offset in places:
        side: Any = "left" if offset[0] > 0 else "right" if offset[0] < 0 else "center"
        text = axes.annotate(
            name, place, xytext=offset, textcoords="offset points", fontsize=8.5, ha=side, va="center", zorder=5,
            bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.7, "pad": 0.6},
        )  # fmt: skip
        box = text.get_window_extent()
        free = _lies_in(box, within) and not any(box.overlaps(other) for other in taken)
        if free or offset == places[-1]:
            if offset in FAR:
                leader: Any = {"arrowstyle": "-", "color": GREY, "linewidth": 0.6}
                axes.annotate("", place, xytext=offset, textcoords="offset points", arrowprops=leader)
            return box
        text.remove()
    return box


def _lies_in(box: Bbox, within: Bbox) -> bool:
    return bool(within.x0 <= box.x0 and box.x1 <= within.x1 and within.y0 <= box.y0 and box.y1 <= within.y1)
