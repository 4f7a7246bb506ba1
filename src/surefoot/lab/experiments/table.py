"""Every experiment in one table: the command line makes its `reproduce` commands from it, and finds pages in it.

Names and help are data; the modules of an experiment are imported when one of its parts is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surefoot.lab.experiments.results import Report, Results
    from surefoot.report.table import Table


@dataclass(frozen=True)
class Experiment:
    """The package `surefoot.lab.experiments.NAME` with its modules `settings`, `run` and `page`.

    Attributes:
        help: one sentence for the command line.
        page_maker: the function of the module `page` that makes the page.
        beside: what is written beside report.html.
        option_class: the dataclass of the module `settings` whose fields made by `option` are options of the command.
        settings_maker: makes settings of the options that were given; mostly the same class.
    """

    name: str
    help: str
    page_maker: str
    beside: str
    option_class: str = "Settings"
    settings_maker: str = "Settings"

    @property
    def options(self) -> type:
        found: type = self._part("settings", self.option_class)
        return found

    @property
    def quick(self) -> Mapping[str, Any]:
        """What `--quick` sets, unless it is given; nothing where there is no such option."""
        found: Mapping[str, Any] = self._part("settings", "QUICK", {})
        return found

    def settings(self, **given: Any) -> Any:
        return self._part("settings", self.settings_maker)(**given)

    def run(self, settings: Any, out: Path, **options: Any) -> dict[str, Any]:
        """The results, after writing what `beside` names and report.html; with jobs= and progress=."""
        found: dict[str, Any] = self._part("run", "reproduce")(settings, out, **options)
        return found

    def page(self, results: Results) -> Report:
        """Made from the results alone."""
        found: Report = self._part("page", self.page_maker)(results)
        return found

    def tables(self, results: Results) -> Mapping[str, Table]:
        """Those of the page that the terminal shows as well, by title."""
        found: Mapping[str, Table] = self._part("page", "tables")(results)
        return found

    def _part(self, module: str, name: str, *default: Any) -> Any:
        package = f"surefoot.lab.experiments.{self.name.replace('-', '_')}"
        return getattr(import_module(f"{package}.{module}"), name, *default)


EXPERIMENTS = (
    Experiment(
        "gridworld",
        "Figures 1 and 2 of the paper, with the constraint value of every deployed policy computed exactly.",
        "gridworld_page",
        "figure1.png, figure2.png, results.json and gridworld.policyset beside it",
    ),
    Experiment(
        "promise",
        "How often certified methods were ever unsafe on fresh tasks, against the risk they were given.",
        "promise_page",
        "promise.png and results.json beside it",
        "RandomSettings",
        "settings_for",
    ),
    Experiment(
        "shift",
        "Tasks that nobody trained for: when an alarm is raised, what is promised at a distance, and what that costs.",
        "shift_page",
        "power.png, price.png and results.json beside it",
    ),
    Experiment(
        "families",
        "The certified methods on two further families: slip and wind, and machine maintenance.",
        "families_page",
        "a figure and a policy set per family and results.json beside it",
    ),
    Experiment(
        "baselines",
        "Every baseline on its authors' own benchmark: regret, its growth, and safety.",
        "baselines_page",
        "results.json and a figure per benchmark beside it",
    ),
    Experiment(
        "glucose",
        "The insulin pump of a new patient: time in range gained, and who was ever below range for too long.",
        "glucose_page",
        "patients.png, gain.png, results.json and glucose.policyset beside it",
    ),
    Experiment(
        "locomotion",
        "Figure 4 of the paper: robots whose motors or target velocity nobody tells, reward and cost while adapting.",
        "locomotion_page",
        "figure4.png, figure4.svg and results.json beside it",
    ),
    Experiment(
        "calibration",
        "How far simulated tasks let a certified method's level be raised, and what that is worth on the gridworld.",
        "calibration_page",
        "calibration.png and results.json beside it",
    ),
    Experiment(
        "covering",
        "How many tasks cover a family: exactly, from samples, and by Algorithm 1.",
        "covering_page",
        "covering.png and results.json beside it",
    ),
    Experiment(
        "lower-bound",
        "Samples until the best policy is found on the paper's hardest tasks, beside its lower bound.",
        "lower_bound_page",
        "lower-bound.png and results.json beside it",
    ),
    Experiment(
        "regret",
        "Measured regret beside what is certified while a method runs, and beside the paper's bound.",
        "regret_page",
        "regret.png and results.json beside it",
    ),
    Experiment(
        "tail",
        "A budget on the worst tenth of all episodes in place of one on their mean: what episodes cost then.",
        "tail_page",
        "tail.png and results.json beside it",
    ),
)


def _adapt_page(results: Results) -> Report:
    from surefoot.lab.experiments.adapt.page import adapt_page

    return adapt_page(results)


# Of everything that leaves a results.json: the experiments, and `surefoot adapt`.
PAGES: Mapping[str, Callable[[Results], Report]] = {
    **{experiment.name: experiment.page for experiment in EXPERIMENTS},
    "adapt": _adapt_page,
}
