"""`surefoot reproduce regret`: measured regret beside what is certified while it runs, and beside the paper's bound."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from surefoot import theory
from surefoot.arrays import Floats
from surefoot.fan_out import workers
from surefoot.lab.analysis.certified_regret import RegretCertificate, cell_optima
from surefoot.lab.analysis.covering_number import covering_number
from surefoot.lab.experiments import frame
from surefoot.lab.experiments.frame import Bench, Report, Results, option
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.figures import STYLE, svg
from surefoot.report.page import Section
from surefoot.report.palette import COLOURS, INK, REFERENCE, stroke
from surefoot.report.table import Column, Table
from surefoot.report.verdict import Answer, Verdict, elapsed_time, unsafe
from surefoot.simulate.runner import run_learner
from surefoot.tasks.gridworld_tasks import MEAN_NOISE, gridworld
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.train import train

METHODS = ("certified-likelihood", "certified-returns")
EPSILON, DELTA = 0.004, 0.05  # of training, as for the reproduction of the gridworld
POINTS = 60  # of a curve over episodes
RADII = 40  # ε at which the theorem is tried
FINEST = 1e-4  # of them, as a part of the largest that it allows
ROUNDING = 1e-9  # of regret, relative
NOISE_TO_DISTANCE = 0.75  # d(M_i, M_j) = 0.75·|i - j|

ResultRow: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class GridworldVariant:
    """A gridworld. The spread of its noise moves C, and ξ as far as a safe policy has less margin on rarer tasks; the
    noise that its safe policy is the best for moves ξ alone."""

    std: float = 0.03
    safe_noise: float = 0.4


BASE = GridworldVariant()
SWEEPS: Mapping[str, tuple[GridworldVariant, ...]] = MappingProxyType(
    {
        "cover": (GridworldVariant(std=0.01), GridworldVariant(std=0.018), BASE, GridworldVariant(std=0.045)),
        "margin": (
            GridworldVariant(safe_noise=0.37),
            GridworldVariant(safe_noise=0.385),
            BASE,
            GridworldVariant(safe_noise=0.435),
        ),
    }
)
TITLES: Mapping[str, str] = MappingProxyType(
    {"episodes": "episodes K", "cover": "covering number C", "margin": "margin ξ of the safe policy"}
)


@dataclass(frozen=True)
class RegretSweeps(frame.ExperimentSettings):
    """Attributes:
    tasks: of each family, at evenly spaced quantiles of its noise.
    """

    sweeps: tuple[str, ...] = option(
        tuple(SWEEPS), "What to vary besides the episodes, comma-separated.", choices=SWEEPS
    )
    methods: tuple[str, ...] = option(METHODS, "Comma-separated names.", choices=METHODS)
    tasks: int = option(4, "Tasks of each family.", least=1, fact="tasks of each family")
    episodes: int = frame.episodes_option(10_000, "Episodes per task.", fact="episodes")
    risk: float = frame.risk_option()
    seed: int = frame.seed_option()

    @property
    def families(self) -> tuple[GridworldVariant, ...]:
        """Those of the sweeps, each once; the first is that of the curves over episodes."""
        return tuple(dict.fromkeys([BASE, *(each for name in self.sweeps for each in SWEEPS[name])]))


# -------------------------------------------------------------------------------------------------------------- the run


def run(settings: RegretSweeps, bench: Bench) -> dict[str, Any]:
    """Train and adapt on every family."""
    families = settings.families
    with workers(bench.jobs) as ready:
        sets = list(ready.map("training", train_family, [(family, settings) for family in families], bench.progress))
        calls = [
            (family, made, method, quantile, settings)
            for family, made in zip(families, sets, strict=True)
            for method in settings.methods
            for quantile in quantiles(settings.tasks)
        ]
        runs = list(ready.map("adapting", regret_curves, calls, bench.progress))
    bounded = [
        {**asdict(family), **bounds(family, made.policies, settings)}
        for family, made in zip(families, sets, strict=True)
    ]
    return {"families": bounded, "runs": runs}


class TrainedFamily(NamedTuple):
    policies: PolicyValueSet
    optima: Floats  # [J] upper bounds on the optimal reward of the tasks of each cell


def train_family(family: GridworldVariant, settings: RegretSweeps) -> TrainedFamily:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the paper's theorem does not apply at this ε, which the page says
        policies = train(gridworld(**asdict(family)), epsilon=EPSILON, delta=DELTA, seed=settings.seed, progress=False)
    method = learner(policies, method=settings.methods[0], risk=settings.risk).method
    return TrainedFamily(policies, cell_optima(method))


def quantiles(tasks: int) -> list[float]:
    return [(2 * k + 1) / (2 * tasks) for k in range(tasks)]


def regret_curves(
    family: GridworldVariant, made: TrainedFamily, method: str, quantile: float, settings: RegretSweeps
) -> dict[str, Any]:
    """One method on one task: its regret and what was certified of it, at a few episodes on the way."""
    noise = MEAN_NOISE + family.std * NormalDist().inv_cdf(quantile)
    task = gridworld(**asdict(family)).task([noise])
    chosen = learner(made.policies, method=method, risk=settings.risk, seed=settings.seed)
    certificate = RegretCertificate(chosen, made.optima)
    run = run_learner(chosen, task, episodes=settings.episodes, seed=settings.seed, observer=certificate.note)
    certified = certificate.totals(settings.episodes)
    kept = np.unique(np.geomspace(1, settings.episodes, POINTS).round().astype(np.int64)) - 1
    return {
        **asdict(family),
        "method": method,
        "noise": noise,
        "episode": (kept + 1).tolist(),
        "regret": run.regret[kept].tolist(),
        "certified": certified[kept].tolist(),
        "safe_gap": run.optimal_reward - float(task.values(made.policies.safe_policy).reward),
        "exceeded": bool((run.regret > certified * (1 + ROUNDING)).any()),
        "unsafe": bool(run.unsafe.any()),
    }


# ---------------------------------------------------------------------------------------------------- the paper's bound


def bounds(family: GridworldVariant, policies: PolicyValueSet, settings: RegretSweeps) -> dict[str, Any]:
    """The paper's bound for this family, on the way to the last episode, in the user's units."""
    tasks, units, xi = gridworld(**asdict(family)), policies.units, float(policies.xi or 0.0)
    episodes = np.unique(np.geomspace(1, settings.episodes, POINTS).round().astype(np.int64)).tolist()
    cover, choices = cover_number(tasks, EPSILON / 2, DELTA), accuracies(tasks, xi, settings.risk)
    in_units = {
        "trivial": [theory.trivial_regret(k, units.discount) for k in episodes],
        "shape": [theory.regret_bound(k, cover, EPSILON, xi, units.discount) for k in episodes],
        "theorem": [smallest_bound(choices, k, xi, units.discount) for k in episodes],
    }
    return {
        "cover": cover,
        "candidates": len(policies),
        "xi": xi,
        "episode": episodes,
        **{name: [units.reward_scale * each for each in values] for name, values in in_units.items()},
        "says_something_after": says_something_after(choices, xi, units.discount),
    }


class Accuracy(NamedTuple):
    """ε and δ of a training, and the covering number C_{ε/2}(D, δ)."""

    epsilon: float
    delta: float
    cover: int


def accuracies(tasks: TaskDistribution, xi: float, risk: float) -> list[Accuracy]:
    """Trainings for which the theorem holds with probability 1 - risk: of ε, what (8L+18)ε ≤ ξ allows."""
    largest = theory.largest_epsilon(xi, tasks.units.discount)
    return [_accuracy(tasks, float(epsilon), risk) for epsilon in np.geomspace(FINEST * largest, largest, RADII)]


def _accuracy(tasks: TaskDistribution, epsilon: float, risk: float) -> Accuracy:
    """26δ + 9δ ln C ≤ risk: a smaller δ makes C hardly larger, so that this is found in a few steps."""
    delta, cover = risk / 26, 2
    while theory.theorem_probability(delta, cover) < 1 - risk or cover != cover_number(tasks, epsilon / 2, delta):
        cover = cover_number(tasks, epsilon / 2, delta)
        delta = min(delta, 0.99 * risk / (26 + 9 * math.log(cover)))
    return Accuracy(epsilon, delta, cover)


def smallest_bound(choices: Sequence[Accuracy], episodes: float, xi: float, discount: float) -> float:
    """The theorem's bound, unit scale, with the training that makes it smallest."""
    return min(
        theory.regret_bound_with_constants(episodes, each.cover, each.epsilon, xi, each.delta, discount)
        for each in choices
    )


def says_something_after(choices: Sequence[Accuracy], xi: float, discount: float) -> float | None:
    """The least power of ten of episodes at which the theorem's bound is below the trivial one."""
    powers = (10.0**power for power in range(1, 25))
    below = (k for k in powers if smallest_bound(choices, k, xi, discount) < theory.trivial_regret(k, discount))
    return next(below, None)


def cover_number(tasks: TaskDistribution, radius: float, delta: float) -> int:
    """C of balls in the paper's distance, which is a multiple of that between noises."""
    return covering_number(tasks.distribution, radius / NOISE_TO_DISTANCE, delta)


# ------------------------------------------------------------------------------------------------------------- the page


QUANTITY = {"cover": "cover", "margin": "xi"}  # what a sweep is drawn against
BOUNDS = ("trivial", "shape", "theorem")


def page(results: Results) -> Report:
    settings = results["settings"]
    sweeps = {name: [_last(results, family, name) for family in SWEEPS[name]] for name in settings["sweeps"]}
    figure = regret_and_bounds(_curves(results), sweeps, settings["methods"])
    return frame.report(
        results,
        RegretSweeps,
        title="Regret, and what is proved of it",
        verdict=_verdict(results),
        lead=_LEAD,
        sections=(
            Section("Regret and bounds", figure=svg(figure), caption=_CAPTION),
            *(Section(title, table=table, notes=_NOTES) for title, table in tables(results).items()),
        ),
        figures={"regret.png": figure},
        facts=(("training", f"ε = {EPSILON:g}, δ = {DELTA:g}"),),
    )


_LEAD = (
    "Gridworlds whose noise is spread more or less, with safe policies of more or less margin. Measured regret "
    "is exact. Certified is the most that the cells which are still possible allow, added up while the method "
    "runs, without knowing the task."
)
_CAPTION = (
    "Means over the tasks, all axes logarithmic; the sweeps at the last episode. Dotted: the largest regret there can "
    "be, range × K. What lies above it says nothing."
)
_NOTES = (
    "C is the covering number C_{ε/2}(D, δ) at the ε and δ of training, moved by the spread of the noise; ξ is the "
    "margin, in the paper's scale, that the safe policy attains on the cover, moved by the noise it is the best policy "
    "for.",
    "Theorem 4.2 without constants and logarithms, at the ε of training, which its precondition (8L+18)ε ≤ ξ forbids; "
    "and with the constants of its proof, errata repaired, at the ε it allows that makes it smallest and at the δ that "
    "lets it hold with probability 1 - risk. Neither is certified here.",
)


def tables(results: Results) -> dict[str, Table]:
    """Every family at the last episode."""
    families = [_last(results, GridworldVariant(each["std"], each["safe_noise"])) for each in results["families"]]
    return {
        "At the last episode": Table.of(
            families,
            Column("spread", "std", "g", optional=True),
            Column("safe for", lambda row: f"noise {row['safe_noise']:g}", "", optional=True),
            Column("C", "cover", ","),
            Column("ξ", "xi", ".3f"),
            *(
                column
                for method in results["settings"]["methods"]
                for column in (
                    Column(method, method, ",.0f"),
                    Column(f"certified, {method}", f"certified {method}", ",.0f"),
                )
            ),
            Column("safe-only", "safe-only", ",.0f"),
            Column("range × K", "trivial", ".2g"),
            Column("Theorem 4.2 without constants", "shape", ".2g"),
            Column("with constants", "theorem", ".2g"),
        )
    }


def _curves(results: Results) -> dict[str, Any]:
    """Of the first family, over the episodes."""
    family, runs = results["families"][0], _runs(results, results["families"][0])
    methods = results["settings"]["methods"]
    own = {method: [run for run in runs if run["method"] == method] for method in methods}
    gap = np.mean([run["safe_gap"] for run in own[methods[0]]])
    return {
        "episode": family["episode"],
        **{name: family[name] for name in BOUNDS},
        "safe-only": [gap * k for k in family["episode"]],
        **{method: np.mean([run["regret"] for run in own[method]], axis=0) for method in methods},
        **{f"certified {method}": np.mean([run["certified"] for run in own[method]], axis=0) for method in methods},
    }


def _last(results: Results, family: GridworldVariant, sweep: str | None = None) -> dict[str, Any]:
    """One family at the last episode, with the `value` that it is drawn at in a sweep."""
    found = next(
        each for each in results["families"] if (each["std"], each["safe_noise"]) == (family.std, family.safe_noise)
    )
    curves = _curves({**results, "families": [found]})
    last = {name: values[-1] for name, values in curves.items()}
    drawn = {} if sweep is None else {"value": found[QUANTITY[sweep]]}
    return {**{key: found[key] for key in ("std", "safe_noise", "cover", "xi")}, **last, **drawn}


def _runs(results: Results, family: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [run for run in results["runs"] if (run["std"], run["safe_noise"]) == (family["std"], family["safe_noise"])]


def _superscript(exponent: int) -> str:
    return str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _verdict(results: Results) -> Verdict:
    runs: Sequence[Mapping[str, Any]] = results["runs"]
    ratios = [run["certified"][-1] / run["regret"][-1] for run in runs]
    exceeded, count = (sum(bool(run[key]) for run in runs) for key in ("exceeded", "unsafe"))
    after = results["families"][0]["says_something_after"]
    later = (
        "at no number of episodes up to 10²⁴"
        if after is None
        else f"only from about 10{_superscript(round(math.log10(after)))} episodes on"
    )
    kept = f"exceeded in {exceeded} of {len(runs)} runs" if exceeded else "never exceeded"
    safe = f"unsafe policies were deployed in {count}" if count else "nothing unsafe was deployed"
    return Verdict(
        f"What is certified of the regret while a method runs was {kept} and {safe}; the paper's bound says something "
        f"{later}.",
        (
            Answer(
                "Certified", f"{min(ratios):.1f} to {max(ratios):.1f} ×", "the measured regret, at the last episode"
            ),
            unsafe(count, len(runs), f"runs with an unsafe policy; risk allowed: {results['settings']['risk']:g}"),
            Answer(
                "How sure",
                f"{exceeded} of {len(runs)}",
                "runs had more regret than was certified of them",
                "bad" if exceeded else "",
            ),
            elapsed_time(results["seconds"], f"{len(runs)} runs of {results['settings']['episodes']:,} episodes"),
        ),
    )


# ----------------------------------------------------------------------------------------------------------- the figure


PAPER, TRIVIAL, SAFE = COLOURS[18], INK, stroke(REFERENCE).colour


def regret_and_bounds(curves: ResultRow, sweeps: Mapping[str, Sequence[ResultRow]], methods: Sequence[str]) -> Figure:
    """Regret over episodes, covering number and margin: measured, certified, and as the paper bounds it.

    Args:
        curves: lists over `episode`: of every method regret and what was certified, and the bounds.
        sweeps: by what was varied: rows with its `value` and the same numbers at the last episode.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.4 * (1 + len(sweeps)) + 0.4, 5.0), layout="constrained")
        over, *others = figure.subplots(1, 1 + len(sweeps), sharey=True, squeeze=False)[0]
        _draw(over, curves["episode"], curves, methods, marker="")
        over.set_xlabel(TITLES["episodes"])
        over.set_ylabel("regret")
        for axes, (name, rows) in zip(others, sweeps.items(), strict=True):
            rows = sorted(rows, key=lambda row: row["value"])
            values = [row["value"] for row in rows]
            _draw(axes, values, {key: [row[key] for row in rows] for key in rows[0]}, methods, marker="o")
            axes.set_xlabel(TITLES[name])
            axes.set_xticks(values)
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
        over.set_ylim(bottom=0.5 * float(np.min([curves[method] for method in methods])))
        over.yaxis.set_major_locator(LogLocator(numticks=20))
        over.yaxis.set_minor_formatter(NullFormatter())
        figure.legend(*over.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    return figure


def _draw(axes: Axes, where: Sequence[float], numbers: ResultRow, methods: Sequence[str], marker: str) -> None:
    look: dict[str, Any] = {"marker": marker, "markersize": 4}
    axes.plot(where, numbers["theorem"], color=PAPER, label="Theorem 4.2, constants of its proof", **look)
    axes.plot(where, numbers["shape"], "--", color=PAPER, label="Theorem 4.2, without constants", **look)
    axes.plot(where, numbers["trivial"], ":", color=TRIVIAL, linewidth=1.6, label="nobody has more: range × K")
    axes.plot(where, numbers["safe-only"], color=SAFE, linewidth=4, label="measured, safe-only")
    for method in methods:
        colour = stroke(method).colour
        axes.plot(where, numbers[f"certified {method}"], "--", color=colour, label=f"certified, {method}", **look)
        axes.plot(where, numbers[method], color=colour, label=f"measured, {method}", **look)
    axes.set_xscale("log")
    axes.set_yscale("log")


EXPERIMENT = frame.Experiment(
    "regret",
    RegretSweeps,
    run,
    page,
    tables,
    "regret.png and results.json beside it",
    quick={"tasks": 1, "episodes": 1000},
)
