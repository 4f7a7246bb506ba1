"""A calibration as one HTML page: how often each setting was unsafe and what it earned, and the operating
characteristics of the one that was found, as adaptive clinical trials report them, by the parameters of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import surefoot
from surefoot.arrays import Floats
from surefoot.calibration_runs import ENOUGH, TaskOutcomes, read_record
from surefoot.cmdp.wording import number, setting_in_words
from surefoot.errors import InvalidInput
from surefoot.learning.calibrated import Calibration, options_at
from surefoot.report.figures import SIZE, STYLE, svg
from surefoot.report.metrics import binomial_interval
from surefoot.report.page import Page, Section, render
from surefoot.report.palette import BUDGET_COLOUR, INK, SOFT, stroke
from surefoot.report.table import MISSING, Cell, Column, Table, interval
from surefoot.report.verdict import Answer, Verdict, percent

PARTS = 3  # into which the sampled tasks are cut by each parameter
MOST_NAMES = 8  # of settings that have room on an axis

CAPTION = (
    "A task counts as unsafe if anything that was deployed on it is not shown to keep the budgets, or if the safe "
    "policy is not. Settings are tried from the left, on the same simulated tasks, until one fails; the last that "
    "passed is used. A count breaks off once it is too large: where a setting failed there may be many more."
)


@dataclass(frozen=True)
class Characteristics:
    """Of the runs on some tasks at one setting.

    Attributes:
        unsafe: how many of `tasks`.
        gain: mean reward of an episode beyond that of the safe policy; None if it was not recorded.
        possible: the same of the best mixture of the policy set on each task.
        wait: median episodes to nearly all of that, over tasks on which anything can be gained; infinite if most never
            got there.
    """

    tasks: int
    unsafe: int
    gain: float | None
    possible: float | None = None
    wait: float | None = None

    @property
    def share(self) -> float | None:
        """Of the possible gain, over all tasks and episodes."""
        return None if self.gain is None or not self.possible else self.gain / self.possible


def calibration_page(found: Calibration, record: str | PathLike[str] | Sequence[TaskOutcomes]) -> str:
    """The page of what `calibrate` returned, from the file or the list that it kept its runs in."""
    rows = read_record(record) if isinstance(record, str | PathLike) else record
    tried = setting_characteristics(found, rows)
    if not rows or [seen.unsafe for seen in tried] != [unsafe for _, unsafe in found.counts]:
        raise InvalidInput(f"record must hold the runs of this calibration, got {len(rows)} that are not")
    chosen = max(len(found.passed) - 1, 0)
    by_task = Section(
        f"Operating characteristics at {setting_in_words(found.counts[chosen][0])}",
        paragraphs=_which_setting(found),
        table=characteristics_table(found, rows, chosen),
        notes=(_HOW_COUNTED,),
    )
    page = Page(
        f"How bold {found.method} may be",
        _verdict(found, tried[chosen]),
        lead=_lead(found),
        sections=(
            Section("Risk and gain", figure=svg(settings_figure(found, rows)), caption=CAPTION),
            Section("What each setting earns", table=settings_table(found, rows), notes=_common_options_note(found)),
            by_task,
        ),
        facts=tuple(_facts(found)),
        footer=f"surefoot {surefoot.__version__}",
    )
    return render(page)


# ---------------------------------------------------------------------------------------------- what the numbers say


def setting_characteristics(found: Calibration, rows: Sequence[TaskOutcomes] = ()) -> list[Characteristics]:
    """Of each setting that was tried; without the runs themselves only what the calibration says of them."""
    if rows:
        return [characteristics(rows, k) for k in range(len(found.counts))]
    gains = found.gains or (None,) * len(found.counts)
    return [Characteristics(found.runs, unsafe, gain) for (_, unsafe), gain in zip(found.counts, gains, strict=True)]


def characteristics(rows: Sequence[TaskOutcomes], place: int) -> Characteristics:
    """Of the runs at one place on the path; it was not run on all tasks if it was given up."""
    seen = [(row.possible or 0.0, row.outcomes[place]) for row in rows if place < len(row.outcomes)]
    waits = [np.inf if outcome.reached is None else outcome.reached for possible, outcome in seen if possible > 0]
    return Characteristics(
        tasks=len(seen),
        unsafe=sum(outcome.unsafe for _, outcome in seen),
        gain=float(np.mean([outcome.gain for _, outcome in seen])),
        possible=float(np.mean([possible for possible, _ in seen])),
        wait=float(np.median(waits)) if waits else None,
    )


def parts_by_parameter(rows: Sequence[TaskOutcomes], parts: int = PARTS) -> Iterator[tuple[str, list[TaskOutcomes]]]:
    """The tasks cut by each parameter into as many parts of about equal size, in words and as they are; fewer where
    many tasks share one value."""
    parameters: Floats = np.array([row.parameter for row in rows])
    for k, values in enumerate(parameters.T):
        ends = np.unique(np.quantile(values, np.arange(1, parts) / parts, method="higher"))
        place = np.searchsorted(ends, values, side="right")
        name = "parameter" if parameters.shape[1] == 1 else f"parameter {k + 1}"
        for each in np.unique(place):
            inside = np.flatnonzero(place == each).tolist()
            low, high = values[inside].min(), values[inside].max()
            words = f"{name}: {low:.3g}" if low == high else f"{name}: {low:.3g} to {high:.3g}"
            yield words.replace("-", "−"), [rows[n] for n in inside]


# -------------------------------------------------------------------------------------------------------------- tables


def settings_table(found: Calibration, rows: Sequence[TaskOutcomes] = ()) -> Table:
    """Each setting that was tried: how often unsafe, what it earned, and whether it passed."""
    shown = [
        {"setting": name, "seen": seen, "passed": k < len(found.passed)}
        for k, (name, seen) in enumerate(zip(_names(found), setting_characteristics(found, rows), strict=True))
    ]

    def unsafe_of(row: Mapping[str, Any]) -> str:
        or_more = "" if row["passed"] or rows else " or more"  # a count breaks off once it is too large
        return f"{row['seen'].unsafe:,}{or_more} of {row['seen'].tasks:,}"

    return Table.of(
        shown,
        Column("setting", "setting"),
        Column("unsafe", unsafe_of, ""),
        Column("95 % interval", lambda row: _risk_interval(row["seen"]) if row["passed"] else None, ""),
        *_earned_columns(found, rows),
        Column("verdict", lambda row: Cell("passed", "good") if row["passed"] else Cell("failed", "bad")),
    )


def characteristics_table(found: Calibration, rows: Sequence[TaskOutcomes], place: int) -> Table:
    """Risk, gain and waiting at one place on the path, by each parameter of the tasks and over all of them."""
    parts = {"all tasks": list(rows), **dict(parts_by_parameter(rows))}
    shown = [{"tasks": words, "seen": characteristics(part, place)} for words, part in parts.items()]
    return Table.of(
        shown,
        Column("tasks", "tasks"),
        Column("unsafe", lambda row: f"{row['seen'].unsafe:,} of {row['seen'].tasks:,}", ""),
        Column("95 % interval", lambda row: _risk_interval(row["seen"]), ""),
        *_earned_columns(found, rows),
    )


def _earned_columns(found: Calibration, rows: Sequence[TaskOutcomes]) -> Iterator[Column]:
    """Of rows with the characteristics that were `seen`, as far as they are known."""
    if found.gains is not None:
        yield Column("gain of an episode", lambda row: _words_of(row["seen"].gain, number), "")
    if rows:
        yield Column("of the possible", lambda row: _words_of(row["seen"].share, percent), "")
        yield Column(f"episodes to {100 * ENOUGH:.0f} %, median", lambda row: _wait(row["seen"], found), "")


def _words_of(value: float | None, words: Callable[[float], str]) -> str | None:
    return None if value is None else words(value)


def _wait(seen: Characteristics, found: Calibration) -> str | None:
    if seen.wait is None:
        return None
    return f"{seen.wait:,.0f}" if np.isfinite(seen.wait) else f"more than {found.episodes:,}"


def _risk_interval(seen: Characteristics) -> str:
    return interval([100 * end for end in binomial_interval(seen.unsafe, seen.tasks)], ".1f") + " %"


# -------------------------------------------------------------------------------------------------------------- figure


def settings_figure(
    found: Calibration, rows: Sequence[TaskOutcomes] = (), fresh: Mapping[str, Any] | None = None
) -> Figure:
    """Unsafe tasks at every setting that was tried, with what is allowed, above what the settings earn.

    Args:
        rows: the runs, if they were kept.
        fresh: `unsafe` of other `tasks` at the setting that was found, for comparison.
    """
    tried, passed = setting_characteristics(found, rows), len(found.passed)
    earned = found.gains is not None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 6.0 if earned else 3.8), layout="constrained")
        panels = figure.subplots(1 + earned, 1, sharex=True, height_ratios=[1.35, 1.0][: 1 + earned], squeeze=False)
        risk, *gain = panels[:, 0]
        places = _place_settings(panels[-1, 0], found)
        _draw_risk(risk, found, tried, places, complete=bool(rows))
        if fresh is not None and passed:
            _draw_fresh(risk, fresh, places, passed - 1)
        _draw_limits(risk, found)
        for axes in gain:
            _draw_gain(axes, found, tried, places)
        figure.align_ylabels()
        figure.legend(*risk.get_legend_handles_labels(), loc="outside upper left", ncols=3, fontsize=SIZE)
    return figure


def _place_settings(axes: Axes, found: Calibration) -> list[float]:
    """Places on the axis: nominal levels are numbers, options by name are taken one after the other."""
    levels = [setting for setting, _ in found.counts if not isinstance(setting, Mapping)]
    if len(levels) == len(found.counts):
        span = 0.15 * (max(levels) - min(levels)) or 0.25 * max(levels)
        axes.set_xlim(max(0.0, min(levels) - span), max(levels) + span)
        axes.set_xlabel("nominal level")
        return levels
    places = [float(k) for k in range(1, len(found.counts) + 1)]
    few = len(places) <= MOST_NAMES
    axes.set_xticks(places, [name.replace(", ", "\n") if few else f"{k + 1}" for k, name in enumerate(_names(found))])
    axes.set_xlim(0.5, len(places) + 0.5)
    axes.set_xlabel("settings, from cautious to bold" if few else "place on the path, from cautious to bold")
    return places


def _draw_risk(
    axes: Axes, found: Calibration, tried: Sequence[Characteristics], places: Sequence[float], *, complete: bool
) -> None:
    """Dots with 95 % intervals; a triangle where a setting failed, whose count was broken off."""
    look: Any = {"color": stroke(found.method).colour, "clip_on": False}
    for k, (seen, place) in enumerate(zip(tried, places, strict=True)):
        if k < len(found.passed):
            label = "_again" if k else "passed, 95 % interval"
            _draw_interval(axes, seen.unsafe, seen.tasks, place, fmt="o", markersize=7, label=label, **look)
        else:
            label = "failed" if complete else "failed: so many or more"
            share = 100 * seen.unsafe / seen.tasks
            axes.errorbar(place, share, fmt="^", markersize=8, fillstyle="none", label=label, **look)
    axes.set_ylabel("unsafe tasks in %")


def _draw_fresh(axes: Axes, fresh: Mapping[str, Any], places: Sequence[float], chosen: int) -> None:
    """Beside the setting that was found."""
    low, high = axes.get_xlim()
    place = places[chosen] + 0.015 * (high - low)
    look: Any = {"fmt": "s", "color": INK, "markersize": 5, "label": "fresh tasks, at the setting that was found"}
    _draw_interval(axes, fresh["unsafe"], fresh["tasks"], place, **look)


def _draw_interval(axes: Axes, unsafe: int, tasks: int, place: float, **look: Any) -> None:
    low, high = binomial_interval(unsafe, tasks)
    share = unsafe / tasks
    axes.errorbar(place, 100 * share, [[100 * (share - low)], [100 * (high - share)]], elinewidth=1.5, **look)


def _draw_limits(axes: Axes, found: Calibration) -> None:
    """The most that passes, dashed, and what is promised, dotted."""
    allowed = 100 * found.allowed / found.runs
    axes.set_ylim(0, 1.15 * max(axes.get_ylim()[1], 100 * found.risk))
    lines = (
        (allowed, f"allowed: {found.allowed:,} of {found.runs:,}", (0, (5, 3)), "right", "top"),
        (100 * found.risk, f"risk {found.risk:g}", (0, (1, 2)), "left", "bottom"),
    )
    for height, words, dashes, side, above in lines:
        axes.axhline(height, color=BUDGET_COLOUR, linewidth=1.2, linestyle=dashes, zorder=1.5)
        axes.annotate(
            words, (0.01 if side == "left" else 0.99, height), xycoords=("axes fraction", "data"), ha=side, va=above,
            xytext=(0, 3 if above == "bottom" else -3), textcoords="offset points", fontsize=SIZE, color=BUDGET_COLOUR,
        )  # fmt: skip


def _draw_gain(axes: Axes, found: Calibration, tried: Sequence[Characteristics], places: Sequence[float]) -> None:
    """Means, each with its share of the possible, which is drawn as well."""
    colour, gains = stroke(found.method).colour, [seen.gain or 0.0 for seen in tried]
    axes.plot(places, gains, color=colour, linewidth=1.2, alpha=0.5)
    for k, (place, seen) in enumerate(zip(places, tried, strict=True)):
        passed = k < len(found.passed)
        axes.plot(
            place, gains[k], "o" if passed else "^", color=colour, markersize=7, fillstyle="full" if passed else "none"
        )
        if seen.share is not None:
            axes.annotate(
                percent(seen.share), (place, gains[k]), xytext=(0, -8), textcoords="offset points",
                ha="center", va="top", fontsize=SIZE, color=INK,
            )  # fmt: skip
    possible = tried[0].possible
    if possible:
        axes.axhline(possible, color=SOFT, linewidth=1.2, linestyle=(0, (5, 3)))
        axes.annotate(
            "possible", (0.01, possible), xycoords=("axes fraction", "data"),
            xytext=(0, 3), textcoords="offset points", fontsize=SIZE, color=SOFT,
        )  # fmt: skip
    axes.set_ylim(min(0.0, *gains), 1.15 * max(possible or 0.0, *gains) or 1.0)
    axes.set_ylabel("gain of an episode")


# ------------------------------------------------------------------------------------------------------------ in words


_HOW_COUNTED = (
    "Gain: mean reward of an episode beyond that of the safe policy. Possible: the best mixture of the policy set that "
    "keeps the budgets on the task at hand, which nobody knows beforehand; where values cannot be read, by the means "
    "over the first fresh episodes of each policy. Each interval is by itself: of many groups one may lie above the "
    "risk by chance, and the promise is about tasks as they are drawn, not about each group."
)


def _names(found: Calibration) -> list[str]:
    """The settings that were tried, in words, without the options that all of them share."""
    shared = _common_options(found)
    return [
        setting_in_words({name: value for name, value in options_at(setting).items() if name not in shared})
        for setting, _ in found.counts
    ]


def _common_options(found: Calibration) -> dict[str, Any]:
    """Options that are the same at all settings, if these differ at all."""
    first, *others = [options_at(setting) for setting, _ in found.counts]
    return {name: value for name, value in first.items() if others and all(each.get(name) == value for each in others)}


def _common_options_note(found: Calibration) -> tuple[str, ...]:
    shared = _common_options(found)
    return (f"All settings have {setting_in_words(shared)}.",) if shared else ()


def _lead(found: Calibration) -> str:
    return (
        f"{found.method} was run on simulated tasks for {found.episodes:,} episodes each, at settings from cautious to "
        f"bold. A setting passes if at most {found.allowed:,} of {found.runs:,} tasks are unsafe. What is promised "
        "then is joint over this calibration, the task and its episodes."
    )


def _which_setting(found: Calibration) -> tuple[str, ...]:
    if found.level is not None:
        return ()
    return ("No setting passed: these are of the most cautious, as far as it was run.",)


def _verdict(found: Calibration, seen: Characteristics) -> Verdict:
    unsafe, allowed = f"{seen.unsafe:,} of {seen.tasks:,}", f"allowed: {found.allowed:,} of {found.runs:,}"
    if found.level is None:
        return Verdict(
            f"No setting passed: {found.method} is best used as it is proved, if it has a proof.",
            (
                Answer("Gained", "nothing", "no setting may be used"),
                Answer("Unsafe", unsafe, f"simulated tasks at the most cautious setting; {allowed}", "bad"),
                Answer("Risk", f"{found.risk:g}", f"for {found.episodes:,} episodes"),
            ),
        )
    low, high = (percent(end) for end in binomial_interval(seen.unsafe, seen.tasks))
    share, wait = _words_of(seen.share, percent) or MISSING, _wait(seen, found) or MISSING
    return Verdict(
        f"For {found.episodes:,} episodes at risk {found.risk:g} simulated tasks let {found.method} be as bold as "
        f"{setting_in_words(found.level)}.",
        (
            Answer("Gained", share, f"of what is possible: {number(seen.gain)} an episode beyond the safe policy"),
            Answer(
                f"Episodes to {100 * ENOUGH:.0f} %", wait, "of the possible gain, median of tasks on which there is any"
            ),
            Answer("Unsafe", unsafe, f"simulated tasks; {allowed}", "good"),
            Answer("How sure", f"{low} to {high}", "of tasks are unsafe, 95 % interval of this count alone"),
        ),
    )


def _facts(found: Calibration) -> Iterator[tuple[str, str]]:
    """What the calibration rests on."""
    tasks, _, digest = (found.tasks or "not recorded").partition(", digest ")
    yield "method", found.method
    yield "tasks", tasks
    if digest:
        yield "digest of the tasks", digest
    yield "digest of the policy set", found.digest
    yield "episodes", f"{found.episodes:,} of at most {found.horizon:,} steps"
    yield "risk", f"{found.risk:g}"
    if found.error:
        yield "risk, for a calibration that goes wrong", f"{found.error:g}"
    if found.judge_error:
        yield "risk, for judging", f"{found.judge_error:g}, on up to {found.judged_on:,} fresh episodes of each policy"
    else:
        yield "judged", "by exact values"
    if found.reserve:
        yield "risk, in reserve", f"{found.reserve:g} for the method as it is proved, after the last episode"
    yield "abandoned episodes", percent(found.abandoned)
    yield "runs at each setting", f"{found.runs:,}"
    yield "attempt", f"{found.attempt}" if found.attempt else "the only one"
    yield "seed", "not recorded" if found.seed is None else f"{found.seed}"
    if found.options:
        yield "options", ", ".join(f"{name} {value}" for name, value in sorted(found.options.items()))
