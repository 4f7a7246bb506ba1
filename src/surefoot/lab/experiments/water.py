"""`surefoot reproduce water`: the speed of a town's pumps found day by day, on fresh towns simulated by EPANET."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from surefoot.arrays import Floats, check_unit_interval
from surefoot.bounds.settings import Envelopes, LearnedSignals
from surefoot.calibration import calibrate_side_by_side
from surefoot.lab.experiments import frame
from surefoot.lab.experiments.adapting import (
    AdaptedTask,
    Clock,
    Contender,
    Judging,
    adapt_to_task,
    known_cell_summary,
    mean_reward,
    summarise_runs,
)
from surefoot.lab.experiments.frame import Bench, Report, Results, option, setting
from surefoot.lab.experiments.judging import available
from surefoot.lab.water.family import BUDGET, water
from surefoot.lab.water.network import open_network
from surefoot.lab.water.settings import CANDIDATES, SAFE
from surefoot.learning.calibrated import Calibration, parse_calibration
from surefoot.methods import METHODS
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report import table, verdict
from surefoot.report.calibration import settings_figure, settings_table
from surefoot.report.figures import STYLE, svg
from surefoot.report.page import Section
from surefoot.report.palette import GREY, INK, stroke
from surefoot.report.table import Cell, Column, Table
from surefoot.report.verdict import Answer, Verdict, percent
from surefoot.streams import Stream
from surefoot.training.policy_set import policy_set

POLICY_SET = "water.policyset"  # its file
NETWORKS = ("Net3", "Net3-coarse")
ADAPTING, REFERENCE, BAYESIAN = "certified-signals", "safe-only", "posterior"
DEFAULT_METHODS = (REFERENCE, "certified-returns", ADAPTING, BAYESIAN)
CALIBRATED = (ADAPTING, BAYESIAN)  # each by itself
EARLY, LEAST_GAIN = 14, 50.0  # days; kWh a day: days until most of less than this are not counted
NEAR, PRECISE = 0.005, 0.001  # within half a point of the budget values are wanted to 0.2 points (two errors)
UNCERTIFIED_LINE = (0, (4, 2))


@dataclass(frozen=True)
class WaterSettings(frame.ExperimentSettings):
    """Every method on the same fresh towns, with one policy set.

    Attributes:
        trained_on: the network of the policy set; calibration and the fresh towns have Net3.
        calibrated: further simulated towns, on which it is counted how bold a method may be; 0 for no such rows.
        calibration_days: on which these are judged, at most, of each speed.
        cells, holdout, uncovered, episodes: of `Envelopes`.
        learned_towns, learned_days: from which signals are learned, days of each at each speed.
        candidates: so many of the usual speeds, from the slowest on.
    """

    towns: int = option(100, "Fresh towns.", least=1, fact="towns")
    days: int = frame.episodes_option(60, "Days per town.", fact="days per town")
    methods: tuple[str, ...] = option(DEFAULT_METHODS, "Comma-separated names.", choices=METHODS)
    trained_on: str = option("Net3", "Network that policies are bounded on: Net3 or Net3-coarse.", choices=NETWORKS)
    risk: float = frame.risk_option()
    seed: int = frame.seed_option()
    calibrated: int = option(
        200, f"Further towns on which {' and '.join(CALIBRATED)} are calibrated; 0: they are not.", least=0
    )
    calibration_days: int = setting(4000, least=1)
    cells: int = setting(300, least=1)
    holdout: int = setting(160, least=1)
    uncovered: float = setting(0.03, check=check_unit_interval)
    episodes: int = setting(1600, least=1)
    learned_towns: int = setting(200, least=8)
    learned_days: int = setting(32, least=2)
    candidates: int = setting(len(CANDIDATES), least=1)
    judged_days: int = setting(1000, least=1)
    most_judged_days: int = setting(8000, least=1)


# Fewer days cannot show a time below the reserve to be under 3 %; a larger risk needs fewer held-out towns.
QUICK = {
    **{"towns": 6, "days": 20, "risk": 0.2, "calibrated": 0, "cells": 20, "holdout": 29, "uncovered": 0.15},
    **{"episodes": 400, "learned_towns": 24, "learned_days": 6, "candidates": 1},
    **{"judged_days": 200, "most_judged_days": 400},
}


# -------------------------------------------------------------------------------------------------------------- the run


def run(settings: WaterSettings, bench: Bench) -> dict[str, Any]:
    """Bound, calibrate and adapt."""
    open_network(NETWORKS[0])  # whoever lacks EPANET is told before anything else
    clock = Clock()
    policies = bench.policy_sets[POLICY_SET] = bound_speeds(settings, bench)
    clock.lap("bounding what speeds do")
    calibrations = calibrate_methods(policies, settings, bench)
    clock.lap("calibrating")
    contenders, refused = available_contenders(policies, settings, calibrations)
    towns = adapt_to_towns(policies, contenders, settings, bench)
    clock.lap("adapting and judging")
    return {
        "seconds_by_stage": clock.seconds,
        **summarise_towns(policies, contenders, towns, settings),
        "refused": refused,
        "calibrations": {name: found.plain() for name, found in calibrations.items()},
    }


def bound_speeds(settings: WaterSettings, bench: Bench) -> PolicyValueSet:
    """What the speeds do to as good as every town."""
    return policy_set(
        water(network=settings.trained_on),
        safe=SAFE,
        candidates=dict(list(CANDIDATES.items())[: settings.candidates]),
        seed=settings.seed,
        envelopes=Envelopes(
            cells=settings.cells, holdout=settings.holdout, uncovered=settings.uncovered, episodes=settings.episodes
        ),
        signals=LearnedSignals(tasks=settings.learned_towns, episodes=settings.learned_days),
        jobs=bench.jobs,
        progress=bench.progress,
    )


def calibrate_methods(policies: PolicyValueSet, settings: WaterSettings, bench: Bench) -> dict[str, Calibration]:
    """How bold methods may be, by their own paths, counted on towns of which none is among those of the experiment."""
    paths = {
        name: path(policies, settings.risk)
        for name in CALIBRATED
        if name in settings.methods and (path := METHODS[name].path)
    }
    if not paths or not settings.calibrated:
        return {}
    return calibrate_side_by_side(
        policies,
        water(),
        paths,
        attempt=0,
        episodes=settings.days,
        risk=settings.risk,
        runs=settings.calibrated,
        judged_on=settings.calibration_days,
        seed=settings.seed,
        jobs=bench.jobs,
        progress=bench.progress,
    )


def available_contenders(
    policies: PolicyValueSet, settings: WaterSettings, calibrations: Mapping[str, Calibration]
) -> tuple[list[Contender], dict[str, str]]:
    """Methods as they are, then calibrated; and why some of these cannot be had."""
    plain = [Contender(name, name, settings.risk) for name in settings.methods]
    bold = [Contender(f"{name}, calibrated", name, settings.risk, found) for name, found in calibrations.items()]
    by_label = {one.label: one for one in (*plain, *bold)}
    labels, refused = available(by_label, lambda label: by_label[label].learner(policies, settings.days))
    return [by_label[label] for label in labels], refused


def adapt_to_towns(
    policies: PolicyValueSet, contenders: Sequence[Contender], settings: WaterSettings, bench: Bench
) -> list[AdaptedTask]:
    parameters = water().sample(settings.towns, Stream.WATER_TOWNS.rng(settings.seed))
    adapt = partial(adapt_to_town, policies, contenders, settings)
    return bench.map("adapting to towns", adapt, list(enumerate(parameters)))


def adapt_to_town(
    policies: PolicyValueSet,
    contenders: Sequence[Contender],
    settings: WaterSettings,
    number: int,
    parameter: Floats,
) -> AdaptedTask:
    """Town `number` with every contender."""
    seed = Stream.WATER_RUNS.seed(settings.seed, number)
    learners = [each.learner(policies, settings.days, seed) for each in contenders]
    evaluation = [settings.seed, Stream.WATER_EVALUATION, number]
    judging = Judging(evaluation, settings.judged_days, settings.most_judged_days, NEAR, PRECISE)
    return adapt_to_task(policies, learners, water().task(parameter), settings.days, seed, judging)


def summarise_towns(
    policies: PolicyValueSet, contenders: Sequence[Contender], towns: Sequence[AdaptedTask], settings: WaterSettings
) -> dict[str, Any]:
    """The methods of results.json, and all that the page shows besides. What is proved on another network than that of
    the towns is not certified."""
    methods = {}
    for place, one in enumerate(contenders):
        rests = one.calibration is not None or settings.trained_on == NETWORKS[0]
        certified = one.learner(policies, settings.days).certified and rests
        found = summarise_runs(
            towns, place, certified=certified, risk=one.risk, budget=BUDGET, least_gain=LEAST_GAIN, early=EARLY
        )
        methods[one.label] = {**found, "energy": -mean_reward(towns, place)}
    cells = policies.cells
    return {
        "methods": methods,
        "cell_known": known_cell_summary(towns, BUDGET),
        "policies": [policies.name(index) for index in range(len(policies.policies))],
        "bounds": {"cells": 0 if cells is None else len(cells), "uncovered": 1.0 if cells is None else cells.uncovered},
        "towns": [
            {
                "parameter": one.parameter.tolist(),
                "energy": (-one.mean[:, 0]).tolist(),
                "below": one.mean[:, 1].tolist(),
                "possible": float(-one.possible @ one.mean[:, 0]),
            }
            for one in towns
        ],
        "judged": {
            "days": int(sum(one.count.sum() for one in towns)),
            "most_days": int(max(one.count.max() for one in towns)),
        },
    }


# ------------------------------------------------------------------------------------------------------------- the page


def page(results: Results) -> Report:
    figure = gain_and_towns(results)
    return frame.report(
        results,
        WaterSettings,
        title="The pumps of a town",
        verdict=_verdict(results),
        lead=_LEAD,
        facts=_facts(results),
        sections=(
            Section("Energy saved, day by day", figure=svg(figure), caption=_CAPTION),
            Section("All methods, all towns", table=methods_table(results), notes=_method_notes(results)),
            Section("Whose tanks were below their reserve", table=safety_table(results), notes=_safety_notes(results)),
            *(_calibration(name, plain) for name, plain in results["calibrations"].items()),
            _about(results),
        ),
        figures={"water.png": figure},
    )


_LEAD = (
    "Nobody knows how much water a town uses, nor how rough its pipes are by now. Pumps that run fast enough for every "
    "town waste energy in most; pumps that suit one town drain another’s tanks below what fires need. The speed may be "
    "lowered only once the days that were seen show, up to a risk chosen beforehand, that the tanks stay below their "
    "reserve for at most 3 % of the day. The towns are EPANET’s network Net3."
)
_CAPTION = (
    "Left: share of the energy that can be saved, on each day, over all towns; a day counts at most what is safely "
    "possible. Dashed: without a certificate. Right: the towns, and the best of the single speeds that keeps the 3 % "
    "there: nobody tells which town it is."
)


def tables(results: Results) -> dict[str, Table]:
    return {"Methods": methods_table(results), "Safety": safety_table(results)}


def methods_table(results: Results) -> Table:
    days = results["settings"]["days"]
    return Table.of(
        _rows(results),
        *_METHOD,
        Column("median days until 90 %", lambda row: _days(row["median_days"], days), ""),
        Column(f"share of the gain, first {min(EARLY, days)} days", lambda row: percent(row["share_early"]), ""),
        Column(f"all {days} days", lambda row: percent(row["share"]), ""),
        Column("kWh a day", "energy", ",.0f", optional=True),
    )


def safety_table(results: Results) -> Table:
    return Table.of(
        _rows(results),
        *_METHOD,
        Column("towns ever above 3 %", _unsafe_cell, ""),
        Column("undecided", "undecided_tasks", ""),
        Column(
            "95 % interval, %",
            lambda row: table.interval([100 * end for end in row["unsafe_interval"]], ".1f"),
            "",
            optional=True,
        ),
        Column("days above 3 %", "unsafe_days", ","),
        Column(
            "largest time below the reserve, %",
            lambda row: f"{100 * row['largest_below']:.1f} ± {100 * row['largest_below_error']:.1f}",
            "",
        ),
    )


_METHOD = (Column("method", "name"), Column("certified", table.certified))


def _rows(results: Results) -> list[dict[str, Any]]:
    return [{"name": name, **own} for name, own in results["methods"].items()]


def _days(days: float | None, most: int) -> str:
    return f"> {most}" if days is None else f"{days:g}"


def _unsafe_cell(row: Mapping[str, Any]) -> str | Cell:
    text = f"{row['unsafe_tasks']} of {row['tasks']}"
    return Cell(text, "bad") if row["unsafe_tasks"] else text


def _verdict(results: Results) -> Verdict:
    settings, methods = results["settings"], results["methods"]
    certified = {name: own for name, own in methods.items() if own["certified"] and name != REFERENCE}
    name = max(certified, key=lambda each: certified[each]["share"], default=None)
    found = None if name is None else certified[name]
    days = f"over the first {settings['days']} days"
    worth = "" if found is None else f"‘{name}’ saved {percent(found['share'])} of what is possible {days}, and "
    return Verdict(
        f"In simulation {worth}{verdict.in_words(methods, settings['risk'], 'towns')}.",
        (
            Answer(
                "Saved",
                "nothing" if found is None else percent(found["share"]),
                f"of the energy that can be saved safely, {days}",
            ),
            verdict.safety(methods, settings["risk"]),
            verdict.sureness(methods, settings["risk"], "towns"),
            verdict.elapsed_time(results["seconds"], f"{len(methods)} methods on {settings['towns']} towns"),
        ),
    )


def _facts(results: Results) -> list[tuple[str, str]]:
    settings, bounds = results["settings"], results["bounds"]
    made = (
        f"{bounds['cells']} cells, {settings['holdout']} held-out towns, {settings['episodes']} days on average per "
        f"town and speed, on {settings['trained_on']}; {bounds['uncovered']:.2g} uncovered"
    )
    return [("bounds", made)]


def _method_notes(results: Results) -> tuple[str, ...]:
    counted = next(iter(results["methods"].values()))["counted"]
    rests = (
        f"Bounds and signals were made on {results['settings']['trained_on']}, the towns have Net3: what is proved of "
        "one network says nothing of another, and only the calibrated rows, counted on Net3, have a certificate."
    )
    return (
        f"Days until 90 %: of the {counted} of {results['settings']['towns']} towns where {LEAST_GAIN:g} kWh a day or "
        "more can be saved; those that never got there count as later than the last day. With the town’s cell known "
        f"from the first day the bounds would allow {percent(results['cell_known']['share'])} of the gain.",
        *([rests] if results["settings"]["trained_on"] != NETWORKS[0] else []),
        *(f"{name} was not run: {why}." for name, why in results["refused"].items()),
    )


def _safety_notes(results: Results) -> tuple[str, ...]:
    judged, settings = results["judged"], results["settings"]
    return (
        "A town is unsafe if on any day the mixture of speeds in use has an expected time below the reserve above 3 %. "
        f"Values are means over {judged['days']:,} fresh days, {settings['judged_days']:,} to "
        f"{judged['most_days']:,} per town and speed. Unsafe and safe are said at three standard errors; in between a "
        "town is undecided.",
    )


def _calibration(name: str, plain: Mapping[str, Any]) -> Section:
    found = parse_calibration(plain)
    return Section(
        f"How bold simulated towns allow ‘{name}’ to be",
        paragraphs=(
            f"At each setting {found.runs} further towns live {found.episodes} days, and whichever is not shown to "
            "keep the 3 % throughout, by a test on fresh days, counts as unsafe. The promise is about a town drawn "
            "like these, and lasts for as many days.",
        ),
        figure=svg(settings_figure(found)),
        table=settings_table(found),
        notes=(f"At most {found.allowed} may count as unsafe (docs/guarantees.md, Theorem 12c).",),
    )


def _about(results: Results) -> Section:
    return Section(
        "What is simulated",
        paragraphs=(
            "EPANET 2.2 computes flows and levels of Net3, a network of 92 junctions with two pumps and three tanks, "
            "as wntr brings it along. A day is 24 hours from midnight. Demand varies by 8 % from day to day in the "
            "whole town and by 20 % at each junction, and tanks begin at 45 to 65 % of their height. Towns differ in "
            "demand and in the roughness of all pipes. Which pumps run is left to the network’s own controls.",
            f"Speeds to choose from: {', '.join(results['policies'])}, where safe is {SAFE.speed:g}. Each day’s speed "
            "is drawn from a mixture. What the certificate rests on is that the town at hand is one of the simulated "
            "family: docs/water.md.",
        ),
    )


# --------------------------------------------------------------------------------------------------------------- figure


def gain_and_towns(results: Results) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.6, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1.25, 1.0])
        _draw_gain(left, results["methods"])
        _draw_towns(right, results["towns"], results["policies"])
    return figure


def _draw_gain(axes: Axes, methods: Mapping[str, Any]) -> None:
    for name, found in methods.items():
        share = 100 * np.array(found["share_by_day"])
        line = "-" if found["certified"] else UNCERTIFIED_LINE
        calibrated = name.endswith(", calibrated")
        colour = stroke(name.removesuffix(", calibrated")).colour
        axes.plot(
            np.arange(1, len(share) + 1),
            share,
            color=colour,
            linestyle=line,
            linewidth=2.6 if calibrated else 1.4,
            label=name if found["certified"] else f"{name} (uncertified)",
        )
    axes.axhline(100, color=INK, linestyle=":", linewidth=1.2, label="the town known")
    axes.set(xlabel="day", ylabel="share of the possible saving, %", ylim=(min(-3.0, axes.dataLim.y0), 105))
    axes.legend(fontsize=8, loc="center right")


def _draw_towns(axes: Axes, towns: Sequence[Mapping[str, Any]], policies: Sequence[str]) -> None:
    """Demand and smoothness, coloured by the speed of least energy that keeps the budget."""
    shades = [GREY, *matplotlib.colormaps["YlGnBu"](np.linspace(0.95, 0.35, max(len(policies) - 1, 1)))]
    places = np.array([town["parameter"] for town in towns])
    best = np.array([_best_speed(town) for town in towns])
    for k, name in enumerate(policies):
        own = best == k
        if own.any():
            axes.scatter(places[own, 0], places[own, 1], color=shades[k], s=22, label=name)
    axes.set(xlabel="demand, over the file’s", ylabel="Hazen–Williams C, over the file’s")
    axes.legend(fontsize=8, title="best speed", title_fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _best_speed(town: Mapping[str, Any]) -> int:
    """Of those that keep the budget by their means; the safe one where none does."""
    energy = np.where(np.array(town["below"]) <= BUDGET, town["energy"], np.inf)
    return int(energy.argmin()) if np.isfinite(energy).any() else 0


EXPERIMENT = frame.Experiment(
    "water",
    WaterSettings,
    run,
    page,
    tables,
    "water.png, results.json and water.policyset beside it",
    quick=QUICK,
    policy_sets=lambda settings: [POLICY_SET],
)
