"""Every experiment in one table: the command line makes its `reproduce` commands from it, and finds pages in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from surefoot.lab.experiments.adapt.page import adapt_page
from surefoot.lab.experiments.baselines import page as baselines_pages
from surefoot.lab.experiments.baselines import run as baselines
from surefoot.lab.experiments.baselines import settings as baselines_settings
from surefoot.lab.experiments.calibration import page as calibration_pages
from surefoot.lab.experiments.calibration import run as calibration
from surefoot.lab.experiments.calibration import settings as calibration_settings
from surefoot.lab.experiments.covering import page as covering_pages
from surefoot.lab.experiments.covering import run as covering
from surefoot.lab.experiments.covering import settings as covering_settings
from surefoot.lab.experiments.families import page as families_pages
from surefoot.lab.experiments.families import run as families
from surefoot.lab.experiments.families import settings as families_settings
from surefoot.lab.experiments.glucose import page as glucose_pages
from surefoot.lab.experiments.glucose import run as glucose
from surefoot.lab.experiments.glucose import settings as glucose_settings
from surefoot.lab.experiments.gridworld import page as gridworld_pages
from surefoot.lab.experiments.gridworld import run as gridworld
from surefoot.lab.experiments.gridworld import settings as gridworld_settings
from surefoot.lab.experiments.locomotion import page as locomotion_pages
from surefoot.lab.experiments.locomotion import run as locomotion
from surefoot.lab.experiments.locomotion import settings as locomotion_settings
from surefoot.lab.experiments.lower_bound import page as lower_bound_pages
from surefoot.lab.experiments.lower_bound import run as lower_bound
from surefoot.lab.experiments.lower_bound import settings as lower_bound_settings
from surefoot.lab.experiments.promise import page as promise_pages
from surefoot.lab.experiments.promise import run as promise
from surefoot.lab.experiments.promise import settings as promise_settings
from surefoot.lab.experiments.regret import page as regret_pages
from surefoot.lab.experiments.regret import run as regret
from surefoot.lab.experiments.regret import settings as regret_settings
from surefoot.lab.experiments.results import Report, Results
from surefoot.lab.experiments.shift import page as shift_pages
from surefoot.lab.experiments.shift import run as shift
from surefoot.lab.experiments.shift import settings as shift_settings
from surefoot.lab.experiments.tail import page as tail_pages
from surefoot.lab.experiments.tail import run as tail
from surefoot.lab.experiments.tail import settings as tail_settings
from surefoot.report.table import Table


@dataclass(frozen=True)
class Experiment:
    """Attributes:
    options: the dataclass whose fields made by `option` are options of its command.
    settings: makes settings of those that were given; mostly the same class.
    run: (settings, folder, jobs=, progress=), writes what `beside` names and report.html, returns the results.
    page: made from the results alone.
    tables: those of the page that the terminal shows as well, by title.
    quick: what `--quick` sets, unless it is given.
    """

    name: str
    help: str
    options: type
    settings: Callable[..., Any]
    run: Callable[..., dict[str, Any]]
    page: Callable[[Results], Report]
    tables: Callable[[Results], Mapping[str, Table]]
    beside: str = "results.json beside it"
    quick: Mapping[str, Any] = field(default_factory=dict)


EXPERIMENTS = (
    Experiment(
        "gridworld",
        "Figures 1 and 2 of the paper, with the constraint value of every deployed policy computed exactly.",
        gridworld_settings.Settings,
        gridworld_settings.Settings,
        gridworld.reproduce,
        gridworld_pages.gridworld_page,
        gridworld_pages.tables,
        "figure1.png, figure2.png, results.json and gridworld.policyset beside it",
        gridworld_settings.QUICK,
    ),
    Experiment(
        "promise",
        "How often certified methods were ever unsafe on fresh tasks, against the risk they were given.",
        promise_settings.RandomSettings,
        promise_settings.settings_for,
        promise.reproduce,
        promise_pages.promise_page,
        promise_pages.tables,
        "promise.png and results.json beside it",
    ),
    Experiment(
        "shift",
        "Tasks that nobody trained for: when an alarm is raised, what is promised at a distance, and what that costs.",
        shift_settings.Settings,
        shift_settings.Settings,
        shift.reproduce,
        shift_pages.shift_page,
        shift_pages.tables,
        "power.png, price.png and results.json beside it",
        shift_settings.QUICK,
    ),
    Experiment(
        "families",
        "The certified methods on two further families: slip and wind, and machine maintenance.",
        families_settings.Settings,
        families_settings.Settings,
        families.reproduce,
        families_pages.families_page,
        families_pages.tables,
        "a figure and a policy set per family and results.json beside it",
    ),
    Experiment(
        "baselines",
        "Every baseline on its authors' own benchmark: regret, its growth, and safety.",
        baselines_settings.Settings,
        baselines_settings.Settings,
        baselines.reproduce,
        baselines_pages.baselines_page,
        baselines_pages.tables,
        "results.json and a figure per benchmark beside it",
        baselines_settings.QUICK,
    ),
    Experiment(
        "glucose",
        "The insulin pump of a new patient: time in range gained, and who was ever below range for too long.",
        glucose_settings.Settings,
        glucose_settings.Settings,
        glucose.reproduce,
        glucose_pages.glucose_page,
        glucose_pages.tables,
        "patients.png, gain.png, results.json and glucose.policyset beside it",
        glucose_settings.QUICK,
    ),
    Experiment(
        "locomotion",
        "Figure 4 of the paper: robots whose motors or target velocity nobody tells, reward and cost while adapting.",
        locomotion_settings.Settings,
        locomotion_settings.Settings,
        locomotion.reproduce,
        locomotion_pages.locomotion_page,
        locomotion_pages.tables,
        "figure4.png, figure4.svg and results.json beside it",
        locomotion_settings.QUICK,
    ),
    Experiment(
        "calibration",
        "How far simulated tasks let a certified method's level be raised, and what that is worth on the gridworld.",
        calibration_settings.Settings,
        calibration_settings.Settings,
        calibration.reproduce,
        calibration_pages.calibration_page,
        calibration_pages.tables,
        "calibration.png and results.json beside it",
        calibration_settings.QUICK,
    ),
    Experiment(
        "covering",
        "How many tasks cover a family: exactly, from samples, and by Algorithm 1.",
        covering_settings.Settings,
        covering_settings.Settings,
        covering.reproduce,
        covering_pages.covering_page,
        covering_pages.tables,
        "covering.png and results.json beside it",
    ),
    Experiment(
        "lower-bound",
        "Samples until the best policy is found on the paper's hardest tasks, beside its lower bound.",
        lower_bound_settings.Settings,
        lower_bound_settings.Settings,
        lower_bound.reproduce,
        lower_bound_pages.lower_bound_page,
        lower_bound_pages.tables,
        "lower-bound.png and results.json beside it",
        lower_bound_settings.QUICK,
    ),
    Experiment(
        "regret",
        "Measured regret beside what is certified while a method runs, and beside the paper's bound.",
        regret_settings.Settings,
        regret_settings.Settings,
        regret.reproduce,
        regret_pages.regret_page,
        regret_pages.tables,
        "regret.png and results.json beside it",
        regret_settings.QUICK,
    ),
    Experiment(
        "tail",
        "A budget on the worst tenth of all episodes in place of one on their mean: what episodes cost then.",
        tail_settings.Settings,
        tail_settings.Settings,
        tail.reproduce,
        tail_pages.tail_page,
        tail_pages.tables,
        "tail.png and results.json beside it",
        tail_settings.QUICK,
    ),
)

# Of everything that leaves a results.json: the experiments, and `surefoot adapt`.
PAGES: Mapping[str, Callable[[Results], Report]] = {
    **{experiment.name: experiment.page for experiment in EXPERIMENTS},
    "adapt": adapt_page,
}
