"""`surefoot reproduce lower-bound`: samples until the best policy is found, on the tasks that make this hardest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from surefoot.arrays import Floats
from surefoot.lab.experiments import frame
from surefoot.lab.experiments.frame import Bench, Report, Results, option
from surefoot.lab.families.hard_instance import AVOID, HardInstances
from surefoot.methods import adapt
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.figures import STYLE, svg
from surefoot.report.page import Section
from surefoot.report.palette import GREY, stroke
from surefoot.report.table import MISSING, Column, Table
from surefoot.report.verdict import Answer, Verdict, certain, elapsed_time, unsafe
from surefoot.simulate.run import Run
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.solve import solve
from surefoot.training.policy_set import policy_set

# With the constants c₂ and c₃ of the paper's own order of size nobody tells the tasks apart in any number of episodes
# that can be simulated. The exponents do not depend on them.
BASE = HardInstances(2, epsilon=0.2, xi=0.3, discount=0.95, constants=(3.0, 150.0, 300.0))

QUANTITIES = ("tasks", "epsilon", "xi", "discount")

# Instances that differ from BASE in one of the four quantities of the bound.
SWEEPS: Mapping[str, tuple[HardInstances, ...]] = MappingProxyType(
    {
        "tasks": tuple(replace(BASE, depth_of_tree=m) for m in (1, 2, 3, 4, 5)),
        "epsilon": tuple(replace(BASE, epsilon=epsilon) for epsilon in (0.4, 0.28, 0.2, 0.14, 0.1)),
        "xi": tuple(replace(BASE, xi=xi) for xi in (0.6, 0.42, 0.3, 0.21, 0.15)),
        "discount": tuple(replace(BASE, discount=discount) for discount in (0.93, 0.95, 0.96, 0.97, 0.98)),
    }
)
TITLES: Mapping[str, str] = MappingProxyType(
    {"tasks": "tasks to rule out, |Ω|-1", "epsilon": "1/ε", "xi": "1/ξ", "discount": "1/(1-γ)"}
)
EXPONENTS: Mapping[str, int] = MappingProxyType({"tasks": 1, "epsilon": 2, "xi": 2, "discount": 5})  # the bound's

METHODS = ("certified-likelihood", "certified-ball", "certified-returns")
FIRST = 1000  # episodes of a run at first; twice as many each time that this does not do
NEAR = 0.1  # of the difference between the optima of two tasks: who is as near to the optimum has found the best gate


@dataclass(frozen=True)
class LowerBound(frame.ExperimentSettings):
    """Attributes:
    most: episodes after which a method that has not found the best policy is given up.
    """

    quantities: tuple[str, ...] = option(QUANTITIES, "What to vary, comma-separated.", choices=QUANTITIES)
    methods: tuple[str, ...] = option(
        METHODS[:2],
        f"Comma-separated names, of {', '.join(METHODS)}; the last takes ten times the samples.",
        choices=METHODS,
    )
    repeats: int = option(6, "Runs of each method on each set of tasks.", least=1, fact="runs of each")
    risk: float = frame.risk_option()
    seed: int = frame.seed_option()
    most: int = option(2_000_000, "Episodes of a run at most.", least=1000)


# -------------------------------------------------------------------------------------------------------------- the run


def run(settings: LowerBound, bench: Bench) -> dict[str, Any]:
    """Count samples, and fit their growth."""
    calls = [
        (quantity, instances, method, settings)
        for quantity in settings.quantities
        for instances in SWEEPS[quantity]
        for method in settings.methods
    ]
    rows = bench.map("hard instances", count_samples, calls)
    return {"rows": rows, "fits": fits(rows)}


def count_samples(quantity: str, instances: HardInstances, method: str, settings: LowerBound) -> dict[str, Any]:
    """One method on task 0, on which every other one has to be ruled out, as in the proof of the bound."""
    searches = [search(instances, method, settings, repeat) for repeat in range(settings.repeats)]
    return {
        "quantity": quantity,
        "value": abscissa(quantity, instances),
        "method": method,
        "tasks": instances.tasks,
        "alpha": instances.alpha,
        "gap": gap(instances),
        "samples": [found.samples for found in searches],
        "episodes": [found.episodes for found in searches],
        "unsafe": sum(found.unsafe for found in searches),
    }


def abscissa(quantity: str, instances: HardInstances) -> float:
    """What the bound is a power of."""
    if quantity == "tasks":
        return float(instances.tasks - 1)
    if quantity == "discount":
        return 1 / (1 - instances.discount)
    return float(1 / getattr(instances, quantity))


class Search(NamedTuple):
    """Episodes until the best policy was deployed for good and samples in loops by then, None if it was not; whether
    anything unsafe was deployed."""

    episodes: int | None
    samples: float | None
    unsafe: bool


def search(instances: HardInstances, method: str, settings: LowerBound, repeat: int) -> Search:
    """For good: to the end of a run that is twice as long."""
    policies, task, episodes = gates(instances), instances.task(0), FIRST
    while True:
        found = adapt(
            policies,
            task,
            method=method,
            episodes=episodes,
            risk=settings.risk,
            seed=settings.seed + repeat,
            optimal_reward=instances.optimum(0),
            optimistic=True,
        )
        far = np.flatnonzero(np.diff(found.regret, prepend=0.0) > NEAR * gap(instances))
        until = int(far[-1]) + 1 if far.size else 0
        unsafe = bool(found.unsafe.any())
        if 2 * until <= episodes:
            return Search(until, float(loop_samples(instances, found)[:until].sum()), unsafe)
        if 2 * episodes > settings.most:
            return Search(None, None, unsafe)
        episodes *= 2


@lru_cache(maxsize=8)
def gates(instances: HardInstances) -> PolicyValueSet:
    """The best policy of every task, and one that enters no loop."""
    tasks = instances.family()
    best = {f"task {k}": solve(instances.task(k)).policy for k in range(instances.tasks)}
    safe = TabularPolicy(np.eye(2)[np.full(instances.states, AVOID)])
    return policy_set(tasks, safe=safe, candidates=best, seed=0, progress=False)


def gap(instances: HardInstances) -> float:
    """Between the optima of task 0 and of any other."""
    return instances.optimum(1) - instances.optimum(0)


def loop_samples(instances: HardInstances, run: Run) -> Floats:
    """[K] the samples that the bound counts, transitions from loops, expected of the policy deployed in each episode.

    Nothing but steps in loops pays, 1 each, discounted: entering one with q₀ at step t is worth γᵗ/(1-γq₀), and takes
    1/(1-q₀) samples.
    """
    q0, γ = instances.loops[0], instances.discount
    entered = np.asarray(run.reward) * (1 - γ * q0) / γ**instances.arrival / instances.reward
    samples: Floats = entered / (1 - q0)
    return samples


def fits(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Exponents by least squares on logarithms, with their standard errors; none where a run did not end."""
    lines: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        lines.setdefault((row["quantity"], row["method"]), []).append(row)
    return [{"quantity": quantity, "method": method, **_fit(own)} for (quantity, method), own in lines.items()]


def _fit(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    runs = [(row["value"], samples) for row in rows for samples in row["samples"]]
    if len(rows) < 2 or not all(samples for _, samples in runs):
        return {"exponent": None, "error": None}
    x, y = np.log(np.array(runs, np.float64)).T
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    off = y - y.mean() - slope * centred
    return {"exponent": slope, "error": float(np.sqrt(off @ off / max(1, len(x) - 2) / (centred @ centred)))}


# ------------------------------------------------------------------------------------------------------------- the page


def page(results: Results) -> Report:
    figure = samples_needed(results["rows"], results["settings"]["methods"])
    return frame.report(
        results,
        LowerBound,
        title="How many samples the hardest tasks take",
        verdict=_verdict(results),
        lead=_LEAD,
        sections=(
            Section("Samples", figure=svg(figure), caption=_CAPTION),
            *(Section(title, table=table, notes=_NOTES[title]) for title, table in tables(results).items()),
        ),
        figures={"lower-bound.png": figure},
        facts=(
            ("unless varied", f"|Ω| = {BASE.tasks}, ε = {BASE.epsilon:g}, ξ = {BASE.xi:g}, γ = {BASE.discount:g}"),
            ("constants c₁, c₂, c₃", ", ".join(f"{each:g}" for each in BASE.constants)),
        ),
    )


_LEAD = (
    "The paper's lower bound: on a family of |Ω| tasks that differ in one probability each, nobody finds a "
    "policy that is ε-optimal and feasible with fewer than about |Ω| / (ξ²ε²(1-γ)⁵) samples. The certified "
    "methods on these very tasks, looking for the best policy as Algorithm 2 does."
)
_CAPTION = (
    "Medians, with the range of all runs, of the samples in loops on task 0 until the best gate was deployed and kept "
    "for as long again. Dashed: the growth of the bound, which says nothing of a constant. All axes are logarithmic."
)
_NOTES: Mapping[str, tuple[str, ...]] = {
    "Exponents": (
        "Fitted by least squares on logarithms, ± one standard error. The bound leaves out logarithms, and "
        "the methods' own prior over |Ω| tasks brings one of |Ω|.",
        "With b as large as constraint values allow the optima of tasks differ by the gap in the second table. What "
        "is found is the best gate, which is as good as any ε below that gap asks for.",
    ),
    "Runs": (),
}


def tables(results: Results) -> dict[str, Table]:
    """Exponents beside those of the bound, and every sweep."""
    fits = {(fit["quantity"], fit["method"]): fit for fit in results["fits"]}
    exponents = [
        {"quantity": quantity, **{name: _exponent(fits[quantity, name]) for name in results["settings"]["methods"]}}
        for quantity in results["settings"]["quantities"]
    ]
    return {
        "Exponents": Table.of(
            exponents,
            Column("samples grow with", lambda row: TITLES[row["quantity"]]),
            Column("bound", lambda row: EXPONENTS[row["quantity"]], ""),
            *(Column(name, name, "") for name in results["settings"]["methods"]),
        ),
        "Runs": Table.of(
            results["rows"],
            Column("varied", lambda row: TITLES[row["quantity"]]),
            Column("value", "value", ".3g"),
            Column("method", "method"),
            Column("samples", lambda row: _median(row["samples"]), ",.0f"),
            Column("episodes", lambda row: _median(row["episodes"]), ",.0f"),
            Column("gap", "gap", ".3f", optional=True),
            Column("unsafe", lambda row: f"{row['unsafe']} of {len(row['samples'])}", ""),
        ),
    }


def _exponent(fit: Mapping[str, Any]) -> str | None:
    return None if fit["exponent"] is None else f"{fit['exponent']:.2f} ± {fit['error']:.2f}"


def _median(values: Sequence[float | None]) -> float | None:
    return None if None in values else float(np.median(np.array(values)))


def _verdict(results: Results) -> Verdict:
    rows, fits = results["rows"], [fit for fit in results["fits"] if fit["exponent"] is not None]
    runs, count = sum(len(row["samples"]) for row in rows), sum(row["unsafe"] for row in rows)
    off = max((abs(fit["exponent"] - EXPONENTS[fit["quantity"]]) for fit in fits), default=None)
    grow = "" if off is None else f"samples grow as the lower bound does, with exponents at most {off:.2f} off; "
    words = grow + (
        f"in {count} of {runs} runs anything unsafe was deployed" if count else "nothing unsafe was deployed"
    )
    return Verdict(
        f"{words[0].upper()}{words[1:]}.",
        (
            Answer(
                "Exponents", MISSING if off is None else f"± {off:.2f}", "how far the fitted ones are from the bound’s"
            ),
            unsafe(count, runs, "runs with an unsafe policy"),
            certain(count, runs, results["settings"]["risk"], "runs"),
            elapsed_time(results["seconds"], f"{runs} runs until the best policy was found"),
        ),
    )


def samples_needed(rows: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> Figure:
    """Samples against each of the four quantities of the bound, on logarithmic axes."""
    quantities = list(dict.fromkeys(row["quantity"] for row in rows))
    found = [row for row in rows if None not in row["samples"]]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3 * len(quantities) + 0.6, 3.8), layout="constrained")
        for axes, quantity in zip(
            figure.subplots(1, len(quantities), sharey=True, squeeze=False)[0], quantities, strict=True
        ):
            _draw(axes, quantity, [row for row in found if row["quantity"] == quantity], methods)
        figure.axes[0].set_ylabel("samples until the best policy is found")
        figure.axes[0].legend(loc="upper left")
    return figure


def _draw(axes: Axes, quantity: str, rows: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> None:
    if not rows:
        return
    for method in methods:
        own = [row for row in rows if row["method"] == method]
        where, colour = [row["value"] for row in own], stroke(method).colour
        axes.plot(where, [np.median(row["samples"]) for row in own], "o-", color=colour, markersize=4, label=method)
        for row in own:
            axes.plot([row["value"]] * 2, [min(row["samples"]), max(row["samples"])], color=colour, linewidth=1)
    _slope(axes, quantity, rows)
    axes.set_xscale("log")
    axes.set_yscale("log")
    values = sorted({row["value"] for row in rows})
    axes.set_xticks(values)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(TITLES[quantity])


def _slope(axes: Axes, quantity: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """The bound's exponent, through the fewest samples at the first value: it says nothing of a constant."""
    values = np.array(sorted({row["value"] for row in rows}))
    first = min(min(row["samples"]) for row in rows if row["value"] == values[0])
    power, line = EXPONENTS[quantity], first / 2 * (values / values[0]) ** EXPONENTS[quantity]
    label = f"as the bound grows: power {power}"
    axes.plot(values, line, "--", color=GREY, linewidth=1.2)
    axes.text(0.97, 0.04, label, ha="right", color=GREY, fontsize=8.5, transform=axes.transAxes)


EXPERIMENT = frame.Experiment(
    "lower-bound",
    LowerBound,
    run,
    page,
    tables,
    "lower-bound.png and results.json beside it",
    quick={"repeats": 2},
)
