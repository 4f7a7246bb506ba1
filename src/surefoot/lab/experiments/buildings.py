"""`surefoot reproduce buildings`: when to restart the heating, found day by day on fresh buildings in EnergyPlus."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from surefoot.arrays import check_unit_interval
from surefoot.bounds.settings import Envelopes, LearnedSignals
from surefoot.lab.buildings.family import BUDGET, FEWEST_DAYS, JANUARY, MOST_DAYS, buildings
from surefoot.lab.buildings.office import building_digest
from surefoot.lab.buildings.settings import CANDIDATES, SAFE
from surefoot.lab.experiments import frame, savings
from surefoot.lab.experiments.frame import Bench, Report, Results, option, setting
from surefoot.lab.experiments.savings import CALIBRATED, DEFAULT_METHODS, Study, Words, methods_table
from surefoot.methods import METHODS
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.figures import STYLE, svg
from surefoot.report.page import Section
from surefoot.report.table import Table
from surefoot.streams import Stream
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.policy_set import policy_set

POLICY_SET = "buildings.policyset"  # its file
WINTERS = "winters"  # the folder beside it
WORDS = Words("building", "buildings", "restart hour", "restart hours", "time too cold", BUDGET, 5.0)


@dataclass(frozen=True)
class BuildingsSettings(frame.ExperimentSettings):
    """Every method on the same fresh buildings, with one policy set.

    Attributes:
        grid, winter_days: of the family.
        calibrated: further simulated buildings, on which it is counted how bold a method may be; 0 for no such rows.
        calibration_days: on which these are judged, at most, of each restart hour.
        cells, holdout, uncovered, episodes: of `Envelopes`.
        learned_buildings, learned_days: from which signals are learned, days of each at each restart hour.
        candidates: so many of the usual restart hours, from the latest on.
    """

    buildings: int = option(100, "Fresh buildings.", least=1, fact="buildings")
    days: int = frame.episodes_option(60, "Days per building.", fact="days per building")
    methods: tuple[str, ...] = option(DEFAULT_METHODS, "Comma-separated names.", choices=METHODS)
    grid: int = option(5, "Capacities and infiltrations on a grid of so many each; 0: any between.", least=0)
    winter_days: int = option(JANUARY, "Days that are simulated, from 1 January on.", least=FEWEST_DAYS, most=MOST_DAYS)
    risk: float = frame.risk_option()
    seed: int = frame.seed_option()
    calibrated: int = option(
        200, f"Further buildings on which {' and '.join(CALIBRATED)} are calibrated; 0: they are not.", least=0
    )
    calibration_days: int = setting(4000, least=1)
    cells: int = setting(300, least=1)
    holdout: int = setting(160, least=1)
    uncovered: float = setting(0.03, check=check_unit_interval)
    episodes: int = setting(4000, least=1)
    learned_buildings: int = setting(200, least=8)
    learned_days: int = setting(32, least=2)
    candidates: int = setting(len(CANDIDATES), least=1)
    judged_days: int = setting(4000, least=1)
    most_judged_days: int = setting(16_000, least=1)


# What takes time are winters, one for each building and restart hour; days drawn from them cost nothing. On a grid
# there are few of them, and nothing is held out.
QUICK = {
    **{"buildings": 20, "grid": 3, "days": 30, "risk": 0.2, "calibrated": 0, "uncovered": 0.1},
    **{"learned_buildings": 40, "learned_days": 16, "judged_days": 1000, "most_judged_days": 8000},
}


# -------------------------------------------------------------------------------------------------------------- the run


def run(settings: BuildingsSettings, bench: Bench) -> dict[str, Any]:
    """Bound, calibrate and adapt; a run that was interrupted goes on with the winters that it left."""
    building_digest()  # whoever lacks EnergyPlus is told before anything else
    keep = str(bench.out.absolute() / WINTERS)
    tasks = buildings(grid=settings.grid, winter_days=settings.winter_days, keep=keep)
    study = Study(
        WORDS,
        tasks,
        settings.buildings,
        settings.days,
        settings.methods,
        settings.risk,
        settings.seed,
        settings.calibrated,
        settings.calibration_days,
        settings.judged_days,
        settings.most_judged_days,
        (Stream.BUILDINGS_TASKS, Stream.BUILDINGS_RUNS, Stream.BUILDINGS_EVALUATION),
    )
    return savings.run_study(study, partial(bound_restarts, settings, tasks, bench), bench, POLICY_SET)


def bound_restarts(settings: BuildingsSettings, tasks: TaskDistribution, bench: Bench) -> PolicyValueSet:
    """What the restart hours do to as good as every building."""
    return policy_set(
        tasks,
        safe=SAFE,
        candidates=dict(list(CANDIDATES.items())[: settings.candidates]),
        seed=settings.seed,
        envelopes=Envelopes(
            cells=settings.cells, holdout=settings.holdout, uncovered=settings.uncovered, episodes=settings.episodes
        ),
        signals=LearnedSignals(tasks=settings.learned_buildings, episodes=settings.learned_days),
        jobs=bench.jobs,
        progress=bench.progress,
    )


# ------------------------------------------------------------------------------------------------------------- the page


def page(results: Results) -> Report:
    figure = gain_and_buildings(results)
    return frame.report(
        results,
        BuildingsSettings,
        title="The heating of a building",
        verdict=savings.judge_results(WORDS, results),
        lead=_LEAD,
        facts=savings.facts(WORDS, results),
        sections=(
            Section("Energy saved, day by day", figure=svg(figure), caption=_CAPTION),
            Section(
                "All methods, all buildings", table=methods_table(results), notes=savings.method_notes(WORDS, results)
            ),
            Section(
                "Where it was too cold",
                table=savings.safety_table(WORDS, results),
                notes=savings.safety_notes(WORDS, results),
            ),
            *(savings.calibration_section(WORDS, name, plain) for name, plain in results["calibrations"].items()),
            _about(results),
        ),
        figures={"buildings.png": figure},
    )


_LEAD = (
    "Nobody knows what the heating of an old building can still do, nor how much air its walls let through. Rooms that "
    "are heated from midnight on are warm in the morning everywhere, and waste energy in most buildings; a restart "
    "early enough for one is too late for another. Heating may restart later only once the days that were seen show, "
    "up to a risk chosen beforehand, that rooms are too cold for at most 3 % of the working hours. The buildings are "
    "DOE’s small reference office in EnergyPlus."
)
_CAPTION = (
    "Left: share of the energy that can be saved, on each day, over all buildings; a day counts at most what is safely "
    "possible. Dashed: without a certificate. Right: the buildings, and the best of the single restart hours that "
    "keeps the 3 % there: nobody tells which building it is."
)


def tables(results: Results) -> dict[str, Table]:
    return {"Methods": methods_table(results), "Safety": savings.safety_table(WORDS, results)}


def _about(results: Results) -> Section:
    return Section(
        "What is simulated",
        paragraphs=(
            "EnergyPlus computes rooms, fans and gas furnaces of DOE’s small reference office in Chicago, as "
            "pyenergyplus-lbnl brings it along, through the beginning of a typical year. Buildings differ in the "
            "capacity of the furnaces and in the infiltration of all rooms. A day is one of the working days of a "
            "winter in which heating restarts at the same hour every day, drawn at random.",
            f"Restart hours to choose from: {', '.join(results['policies'])}, where safe is {SAFE.hour}:00. Each day’s "
            "is drawn from a mixture. What the certificate rests on is that the building at hand is one of the "
            "simulated family: docs/buildings.md.",
        ),
    )


# --------------------------------------------------------------------------------------------------------------- figure


def gain_and_buildings(results: Results) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.6, 5.0), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[1.25, 1.0])
        savings.draw_gain(left, WORDS, results["methods"])
        savings.draw_tasks(right, WORDS, results["buildings"], results["policies"])
        right.set(xlabel="capacity, over that of the design day", ylabel="infiltration, over the file’s")
    return figure


EXPERIMENT = frame.Experiment(
    "buildings",
    BuildingsSettings,
    run,
    page,
    tables,
    "buildings.png, results.json, buildings.policyset and the folder winters beside it",
    quick=QUICK,
    policy_sets=lambda settings: [POLICY_SET],
)
