"""The experiments: their names with one line of help, as `surefoot reproduce --help` lists them.

Each is the module of its name, or the module `run` of the package of its name, which ends in EXPERIMENT and is imported
when that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surefoot.lab.experiments.frame import Experiment, Report, Results

HELPS: Mapping[str, str] = {
    "gridworld": "Figures 1 and 2 of the paper, with the constraint value of every deployed policy computed exactly.",
    "promise": "How often certified methods were ever unsafe on fresh tasks, against the risk they were given.",
    "shift": (
        "Tasks that nobody trained for: when an alarm is raised, what is promised at a distance, and what that costs."
    ),
    "families": "The certified methods on two further families: slip and wind, and machine maintenance.",
    "baselines": "Every baseline on its authors' own benchmark: regret, its growth, and safety.",
    "glucose": "The insulin pump of a new patient: time in range gained, and who was ever below range for too long.",
    "water": "The pumps of a town in EPANET: energy saved, and whose tanks were ever below their reserve for too long.",
    "buildings": "The heating of a building in EnergyPlus: energy saved, and who was ever too cold for too long.",
    "locomotion": (
        "Figure 4 of the paper: robots whose motors, joints or target velocity nobody tells, reward and cost while "
        "adapting."
    ),
    "calibration": (
        "How far simulated tasks let a certified method's level be raised, and what that is worth on the gridworld."
    ),
    "covering": "How many tasks cover a family: exactly, from samples, and by Algorithm 1.",
    "lower-bound": "Samples until the best policy is found on the paper's hardest tasks, beside its lower bound.",
    "regret": "Measured regret beside what is certified while a method runs, and beside the paper's bound.",
    "tail": "A budget on the worst tenth of all episodes in place of one on their mean: what episodes cost then.",
    "rivals": "What an engineer would use instead, on the same tasks: who was ever unsafe, and what was gained.",
}


def find(name: str) -> Experiment:
    """The experiment of that name; LookupError if there is none."""
    if name not in HELPS:
        raise LookupError(f"no experiment {name!r}")
    found: Any = import_module(f"{__name__}.{name.replace('-', '_')}")
    if hasattr(found, "__path__"):
        found = import_module(f"{found.__name__}.run")
    experiment: Experiment = found.EXPERIMENT
    return experiment


def _page(name: str, results: Results) -> Report:
    return find(name).page(results)


def _adapt_page(results: Results) -> Report:
    from surefoot.lab.experiments.adapt import page

    return page(results)


# Of everything that leaves a results.json: the experiments, and `surefoot adapt`.
PAGES: Mapping[str, Callable[[Results], Report]] = {
    **{name: partial(_page, name) for name in HELPS},
    "adapt": _adapt_page,
}
