"""`surefoot reproduce water`: the speed of a town's pumps found day by day, on fresh towns simulated by EPANET."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from surefoot.arrays import check_unit_interval
from surefoot.bounds.settings import Envelopes, LearnedSignals
from surefoot.lab.experiments import frame, savings
from surefoot.lab.experiments.frame import Bench, Report, Results, option, setting
from surefoot.lab.experiments.savings import CALIBRATED, DEFAULT_METHODS, Study, Words, methods_table
from surefoot.lab.water.family import BUDGET, water
from surefoot.lab.water.network import open_network
from surefoot.lab.water.settings import CANDIDATES, SAFE
from surefoot.methods import METHODS
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.figures import STYLE, svg
from surefoot.report.page import Section
from surefoot.report.table import Table
from surefoot.streams import Stream
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.policy_set import policy_set

POLICY_SET = "water.policyset"  # its file
DAYS = "days"  # the folder beside it
NETWORKS = ("Net3", "Net3-coarse")
WORDS = Words("town", "towns", "speed", "speeds", "time below the reserve", BUDGET, 50.0)


@dataclass(frozen=True)
class WaterSettings(frame.ExperimentSettings):
    """Every method on the same fresh towns, with one policy set.

    Attributes:
        grid, day_set: of the family.
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
    grid: int = option(5, "Demands and coefficients on a grid of so many each; 0: any between.", least=0)
    day_set: int = option(2000, "Days, of which each is one at random; 0: every day is new.", least=0)
    trained_on: str = option("Net3", "Network that policies are bounded on: Net3 or Net3-coarse.", choices=NETWORKS)
    risk: float = frame.risk_option()
    seed: int = frame.seed_option()
    calibrated: int = option(
        200, f"Further towns on which {' and '.join(CALIBRATED)} are calibrated; 0: they are not.", least=0
    )
    calibration_days: int = setting(40_000, least=1)
    cells: int = setting(300, least=1)
    holdout: int = setting(160, least=1)
    uncovered: float = setting(0.03, check=check_unit_interval)
    episodes: int = setting(16_000, least=1)
    learned_towns: int = setting(200, least=8)
    learned_days: int = setting(32, least=2)
    candidates: int = setting(len(CANDIDATES), least=1)
    judged_days: int = setting(10_000, least=1)
    most_judged_days: int = setting(100_000, least=1)


# What takes time are days of the set, simulated once for each town and speed; drawing them costs nothing. On a grid
# nothing is held out.
QUICK = {
    **{"towns": 20, "grid": 2, "day_set": 500, "days": 30, "risk": 0.2, "calibrated": 0, "uncovered": 0.1},
    **{"learned_towns": 40, "learned_days": 16, "judged_days": 1000, "most_judged_days": 8000},
}


# -------------------------------------------------------------------------------------------------------------- the run


def run(settings: WaterSettings, bench: Bench) -> dict[str, Any]:
    """Bound, calibrate and adapt."""
    open_network(NETWORKS[0])  # whoever lacks EPANET is told before anything else
    towns, network = partial(water, grid=settings.grid, day_set=settings.day_set), settings.trained_on
    tasks, model = (towns(network=each, keep=str(bench.out.absolute() / DAYS)) for each in (NETWORKS[0], network))
    study = Study(
        WORDS,
        tasks,
        settings.towns,
        settings.days,
        settings.methods,
        settings.risk,
        settings.seed,
        settings.calibrated,
        settings.calibration_days,
        settings.judged_days,
        settings.most_judged_days,
        (Stream.WATER_TOWNS, Stream.WATER_RUNS, Stream.WATER_EVALUATION),
        bounded=network == NETWORKS[0],
    )
    return savings.run_study(study, partial(bound_speeds, settings, model, bench), bench, POLICY_SET)


def bound_speeds(settings: WaterSettings, tasks: TaskDistribution, bench: Bench) -> PolicyValueSet:
    """What the speeds do to as good as every town."""
    return policy_set(
        tasks,
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


# ------------------------------------------------------------------------------------------------------------- the page


def page(results: Results) -> Report:
    figure, trained_on = gain_and_towns(results), results["settings"]["trained_on"]
    rests = (
        f"Bounds and signals were made on {trained_on}, the towns have Net3: what is proved of one network says "
        "nothing of another, and only the calibrated rows, counted on Net3, have a certificate."
    )
    notes = savings.method_notes(WORDS, results, *([rests] if trained_on != NETWORKS[0] else []))
    return frame.report(
        results,
        WaterSettings,
        title="The pumps of a town",
        verdict=savings.judge_results(WORDS, results),
        lead=_LEAD,
        facts=savings.facts(WORDS, results, f", on {trained_on}"),
        sections=(
            Section("Energy saved, day by day", figure=svg(figure), caption=_CAPTION),
            Section("All methods, all towns", table=methods_table(results), notes=notes),
            Section(
                "Whose tanks were below their reserve",
                table=savings.safety_table(WORDS, results),
                notes=savings.safety_notes(WORDS, results),
            ),
            *(savings.calibration_section(WORDS, name, plain) for name, plain in results["calibrations"].items()),
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
    return {"Methods": methods_table(results), "Safety": savings.safety_table(WORDS, results)}


def _about(results: Results) -> Section:
    return Section(
        "What is simulated",
        paragraphs=(
            "EPANET 2.2 computes flows and levels of Net3, a network of 92 junctions with two pumps and three tanks, "
            "as wntr brings it along. A day is 24 hours from midnight. Demand varies by 8 % from day to day in the "
            "whole town and by 20 % at each junction, and tanks begin at 45 to 65 % of their height. "
            f"{_days(results['settings'])}Towns differ in demand and in the roughness of all pipes. Which pumps run is "
            "left to the network’s own controls.",
            f"Speeds to choose from: {', '.join(results['policies'])}, where safe is {SAFE.speed:g}. Each day’s speed "
            "is drawn from a mixture. What the certificate rests on is that the town at hand is one of the simulated "
            "family: docs/water.md.",
        ),
    )


def _days(settings: dict[str, Any]) -> str:
    count = settings["day_set"]
    return f"{count:,} such days were drawn once, and every day of a town is one of them, at random. " if count else ""


# --------------------------------------------------------------------------------------------------------------- figure


def gain_and_towns(results: Results) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.6, 5.0), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1.25, 1.0])
        savings.draw_gain(left, WORDS, results["methods"])
        savings.draw_tasks(right, WORDS, results["towns"], results["policies"])
        right.set(xlabel="demand, over the file’s", ylabel="Hazen–Williams C, over the file’s")
    return figure


EXPERIMENT = frame.Experiment(
    "water",
    WaterSettings,
    run,
    page,
    tables,
    "water.png, results.json, water.policyset and the folder days beside it",
    quick=QUICK,
    policy_sets=lambda settings: [POLICY_SET],
)
