"""`surefoot reproduce gridworld`: Figures 1 and 2 of the paper, with exact values of every deployed policy."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from surefoot.arrays import Floats
from surefoot.calibration import calibrate
from surefoot.lab.analysis.regret_limit import least_regret, limits
from surefoot.lab.experiments import frame
from surefoot.lab.experiments.frame import Applies, Bench, Report, Results, option
from surefoot.learning.calibrated import Calibration, parse_calibration
from surefoot.learning.event import Event
from surefoot.methods import BASELINES, CALIBRATED, METHODS, RIVALS, adapt, plan
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report import verdict
from surefoot.report.calibration import settings_table
from surefoot.report.figures import STYLE, learning_curves, svg
from surefoot.report.metrics import Totals, sort_by_regret, summarise, totals
from surefoot.report.page import Section
from surefoot.report.table import Table, events_table, plan_table, results_table
from surefoot.report.verdict import Verdict
from surefoot.simulate.run import Run
from surefoot.streams import Stream
from surefoot.tabular.evaluate import state_values
from surefoot.tabular.solve import solve
from surefoot.tasks.gridworld_tasks import (
    BUDGET,
    GOAL,
    HEIGHT,
    MOVES,
    PUBLISHED_TEST_NOISES,
    RED_CELLS,
    STATES,
    WIDTH,
    gridworld,
)
from surefoot.training.train import train

DEFAULT_METHODS = (
    "safe-only",
    "paper",
    "published",
    "pce",
    "certified-likelihood",
    "certified-ball",
    "certified-returns",
    "certified-model-free",
    "safe-meta-published",
    "dope-plus-published",
    "dope-published",
    "lb-sgd-published",
)
# `certified` is one of the others, whichever is the strongest that the policy set allows; signals are learned where
# tasks can only be simulated; rivals have an experiment of their own.
ALL_METHODS = tuple(name for name in METHODS if name not in ("certified", "certified-signals", *RIVALS))

# Radius of the cover in the paper's distance: noise levels up to 0.0053 apart. It yields about as many candidates as
# the ten in the authors' stored set.
EPSILON = 0.004
DELTA = 0.05

FIGURE_1_NOISES = (0.1, 0.3)
POLICY_SET = "gridworld.policyset"  # its file

# Of the limit that no method stays below: more dangerous noises, how near the nearest is, and points of the curve.
ALTERNATIVES, NEAREST = 32, 4e-4
FIRST_POINT, POINTS = 100, 4

CALIBRATES = Applies(lambda settings: bool(settings.calibrated), "with calibrated methods")


@dataclass(frozen=True)
class GridworldSettings(frame.ExperimentSettings):
    """Attributes:
    tasks: those of the figure; beyond the ten published noises they are drawn from the distribution.
    fresh: further tasks, all drawn from the distribution, for a table of their own.
    methods: ("all",) stands for all of them.
    calibrated: those that are run calibrated as well, each on `calibration_runs` simulated tasks.
    """

    episodes: int = frame.episodes_option(40_000, "Episodes per task.", fact="episodes per task")
    tasks: int = option(len(PUBLISHED_TEST_NOISES), "Test tasks, the first ten the published ones.", least=1)
    fresh: int = option(0, "Further tasks drawn from the distribution, for a table of their own.", least=0)
    methods: tuple[str, ...] = option(
        DEFAULT_METHODS,
        f"all, or comma-separated names out of {', '.join(METHODS)}.",
        default_words="the paper's, ours, and the baselines of its figure",
        choices=METHODS,
        fact=("methods", ", ".join),
    )
    calibrated: tuple[str, ...] = option(
        (), "Methods that are run calibrated as well.", default_words="none", choices=CALIBRATED
    )
    calibration_runs: int = option(300, "Simulated tasks for calibrating each.", least=1, applies=CALIBRATES)
    risk: float = frame.risk_option()
    seed: int = frame.seed_option()
    epsilon: float = EPSILON
    delta: float = DELTA

    def __post_init__(self) -> None:
        if self.methods == ("all",):
            object.__setattr__(self, "methods", ALL_METHODS)
        super().__post_init__()


# -------------------------------------------------------------------------------------------------------------- the run


def run(settings: GridworldSettings, bench: Bench) -> dict[str, Any]:
    """Train, and run every method on the test tasks and on fresh ones."""
    began = time.perf_counter()
    bench.progress("training", 0, 1)
    ε, δ = settings.epsilon, settings.delta
    policies = train(gridworld(), epsilon=ε, delta=δ, seed=settings.seed, progress=bench.progress)
    bench.policy_sets[POLICY_SET] = policies
    noises, trained = noises_under_test(settings), time.perf_counter()
    found = {name: calibrate_method(policies, name, settings, bench) for name in settings.calibrated}
    calibrated = time.perf_counter()
    seeds = [settings.seed + 1000 * (k + 1) for k in range(settings.tasks)]
    runs = run_methods("adapting", policies, found, noises, seeds, settings, bench)
    adapted, fresh = time.perf_counter(), dict[str, list[Run]]()
    if settings.fresh:
        fresh = run_methods("fresh tasks", policies, found, *fresh_tasks(settings), settings, bench)
    seconds = {
        "training": trained - began,
        **({"calibrating": calibrated - trained} if found else {}),
        "adapting": adapted - calibrated,
        "fresh": time.perf_counter() - adapted,
    }
    results = frame.experiment_results(
        "gridworld",
        settings={**asdict(settings), "noises": noises.tolist(), "candidates": len(policies)},
        seconds=seconds,
        methods={name: summarise(one) for name, one in runs.items()},
        events={name: [run.events for run in one] for name, one in runs.items()},
        policies=policies,
        plan=plan(policies, episodes=settings.episodes, risk=settings.risk, progress=bench.progress),
    )
    return {
        **results,
        "limit": limit(policies, noises, settings, bench),
        **({"calibrations": {name: each.plain() for name, each in found.items()}} if found else {}),
        "fresh": {name: totals(one) for name, one in fresh.items()},
        "figure1": [optimal_policy(noise) for noise in FIGURE_1_NOISES],
    }


def noises_under_test(settings: GridworldSettings) -> Floats:
    """The published test noises, continued by fresh draws when more are asked for."""
    published = np.array(PUBLISHED_TEST_NOISES[: settings.tasks])
    extra = settings.tasks - len(published)
    if not extra:
        return published
    return np.concatenate([published, gridworld().sample(extra, Stream.GRIDWORLD_TASKS.rng(settings.seed))[:, 0]])


def fresh_tasks(settings: GridworldSettings) -> tuple[Floats, list[int]]:
    """Noises drawn from the distribution, and a seed for each."""
    noises = gridworld().sample(settings.fresh, Stream.GRIDWORLD_FRESH_TASKS.rng(settings.seed))[:, 0]
    seeds = np.random.SeedSequence([settings.seed, Stream.GRIDWORLD_FRESH_RUNS]).generate_state(settings.fresh)
    return noises, seeds.tolist()


def calibrate_method(policies: PolicyValueSet, method: str, settings: GridworldSettings, bench: Bench) -> Calibration:
    return calibrate(
        policies,
        gridworld(),
        method=method,
        episodes=settings.episodes,
        risk=settings.risk,
        runs=settings.calibration_runs,
        seed=settings.seed,
        jobs=bench.jobs,
        progress=bench.progress,
    )


def run_methods(
    what: str,
    policies: PolicyValueSet,
    calibrations: Mapping[str, Calibration],
    noises: Floats,
    seeds: Sequence[int],
    settings: GridworldSettings,
    bench: Bench,
) -> dict[str, list[Run]]:
    """Runs of every method, one per task, in the order of the tasks; each has its seed, whatever the order of work."""
    options: dict[str, dict[str, Any]] = {name: {"method": name} for name in settings.methods}
    for name, found in calibrations.items():
        if found.level is not None:
            options[f"{name}, calibrated"] = {"method": name, "calibration": found}
    tasks = list(zip(noises.tolist(), seeds, strict=True))
    calls = [(policies, noise, settings, seed, each) for noise, seed in tasks for each in options.values()]
    runs = bench.map(what, _adapt, calls)
    return {label: runs[k :: len(options)] for k, label in enumerate(options)}


def _adapt(
    policies: PolicyValueSet, noise: float, settings: GridworldSettings, seed: int, options: Mapping[str, Any]
) -> Run:
    task = gridworld().task([noise])
    return adapt(policies, task, episodes=settings.episodes, risk=settings.risk, seed=seed, **options)


def optimal_policy(noise: float) -> dict[str, Any]:
    """One panel of Figure 1: the optimal policy [S, A] of a task and its values [S] and V*."""
    task = gridworld().task([noise])
    best = solve(task)
    chances = best.policy.probabilities
    return {
        "noise": noise,
        "policy": chances.tolist(),
        "state_values": state_values(task, chances)[0].tolist(),
        "optimal_value": float(best.values.reward),
    }


def limit(policies: PolicyValueSet, noises: Floats, settings: GridworldSettings, bench: Bench) -> dict[str, Any]:
    """What no method can stay below that keeps the promise wherever the certified ones do, in the mean and per task."""
    highest = float(policies.cells.high.max()) if policies.cells is not None else 0.0
    calls = [(float(noise), highest, settings.episodes, settings.risk) for noise in noises]
    curves = bench.map("limits", limit_curve, calls)
    mean = np.mean([curve["regret"] for curve in curves], axis=0)
    return {"episode": curves[0]["episode"], "mean": mean.tolist(), "tasks": [curve["regret"][-1] for curve in curves]}


@cache
def limit_curve(noise: float, highest: float, episodes: int, risk: float) -> dict[str, list[float]]:
    """A lower bound on the expected regret of any method that keeps its promise up to the noise `highest`, after some
    numbers of episodes, the last one included (docs, Theorem 11)."""
    counts = np.unique(np.geomspace(min(FIRST_POINT, episodes), episodes, POINTS).round().astype(np.int64))
    if noise + NEAREST >= highest:
        return {"episode": counts.tolist(), "regret": [0.0] * len(counts)}
    tasks, more = gridworld(), np.geomspace(NEAREST, highest - noise, ALTERNATIVES)
    known = limits(tasks.task([noise]), [tasks.task([noise + each]) for each in more])
    return {"episode": counts.tolist(), "regret": [least_regret(known, int(count), risk) for count in counts]}


# ------------------------------------------------------------------------------------------------------------- the page


TEST, FRESH, PLAN = "On the test tasks", "On fresh tasks", "How long each method stays on the safe policy"


def page(results: Results) -> Report:
    """Figures 1 and 2, the tables, and where to read how the paper's text and its figure differ."""
    settings, shown = results["settings"], tables(results)
    curves = learning_curves(results["methods"], budgets=[BUDGET], closer=True, limit=results.get("limit"))
    # Runs of earlier versions have the first figure as a picture only.
    first = {"figure1.png": policies_and_values(results["figure1"])} if "figure1" in results else {}
    events = {name: [[Event(**event) for event in run] for run in runs] for name, runs in results["events"].items()}
    noises = ", ".join(f"{noise:.3f}" for noise in settings["noises"][:10])
    return frame.report(
        results,
        GridworldSettings,
        title="The paper's gridworld, reproduced",
        verdict=_verdict(results),
        lead=(
            f"{settings['tasks']} gridworlds whose noise the learner does not know, {settings['episodes']:,} episodes "
            "on each. Every number below is the exact value of the deployed policy on the true task."
        ),
        facts=(
            ("test tasks", f"{settings['tasks']}, noise {noises}"),
            ("cover", f"ε = {settings['epsilon']:g}, δ = {settings['delta']:g}: {settings['candidates']} candidates"),
            ("tasks sampled in training", f"{results['training']['samples']:,}"),
        ),
        sections=(
            _figure_2(results, svg(curves), shown[TEST]),
            *([_fresh_section(results, shown[FRESH])] if FRESH in shown else []),
            *(Section("Figure 1: optimal policies", _FIGURE_1, svg(each), _CAPTION_1) for each in first.values()),
            *_calibration_sections(results),
            Section("Why the certified methods may move sooner", _explain_certificates(settings["risk"])),
            Section(PLAN, _PLAN, table=shown[PLAN]),
            Section("What happened on the way", table=events_table(events)),
            Section("Where the paper's text and its figure disagree", _DISCREPANCIES),
        ),
        figures={**first, "figure2.png": curves},
    )


_FIGURE_1 = (
    "The agent wants to reach the green goal; time in the red cells counts as cost. With little wind the best policy "
    "takes the corridor between the red walls. With more wind the corridor gets risky, and from more and more cells "
    "the best policy walks around.",
)
_CAPTION_1 = (
    "Optimal policy and value of every cell at noise 0.1 and 0.3. Several arrows in a cell: the policy chooses among "
    "them at random. The paper prints V* = 59.74 and 51.96."
)
_CAPTION_2 = (
    "Top: cumulative regret, on the paper's axes. Middle: expected discounted cost of the deployed policy; above the "
    f"dashed budget of {BUDGET} it is unsafe. Lines are means over the test tasks; bands hold 80 % of them, drawn "
    "where no other line runs through. Broken lines belong to methods without a proof; a cross marks the worst policy "
    "deployed by a method that exceeded the budget. Bottom: the same regret on logarithmic axes"
)
_NOTES_2 = (
    "Read off the paper's figure at 40,000 episodes: Safe-PCE ≈ 40 k (method 'published' here), PCE ≈ 13 k and "
    "unsafe, Safe Meta-RL ≈ 92 k, DOPE+ ≈ 106 k, DOPE ≈ 108 k, LB-SGD ≈ 154 k (here 'safe-meta-published', "
    "'dope-plus-published', 'dope-published', 'lb-sgd-published').",
    "Baselines end in their preset: ‘theory’ has the constants that their guarantee needs, with which most of "
    "them never leave their first policy in a run of this length; ‘published’ has what the paper's figure was "
    "made with, and no guarantee. DOPE+ and 'dope-published' are reconstructed from what is public of them.",
)
_PLAN = (
    "Computed before the first episode. The paper's constants are sound once its slips are mended, but they ask for "
    "more episodes than any run here has: 'paper' then equals 'safe-only'.",
)
_DISCREPANCIES = (
    "docs/experiments.md lists every place: what the text says, what the figure was made with, and what was done here.",
)


def _explain_certificates(risk: float) -> tuple[str, ...]:
    return (
        "The paper's test looks at one candidate at a time and asks: does this candidate behave as it would if it "
        "were the right one? Until that is settled it must assume the worst of the candidate, a policy that spends "
        "all its time in the red cells, and a policy that bad may be mixed in only a little at a time. The "
        "certified methods ask another question: which tasks can this still be? In training, every policy was "
        "evaluated on every task that may come, so for each possible task it is known how much each policy would "
        "cost there. Whatever mixture is affordable on all tasks that are still possible is affordable on the true "
        "one, and so it may be deployed at once, tested or not.",
        "Ruling tasks out is done by betting. For each possible task an imaginary gambler bets against it, in a "
        "game that would be fair or worse if it were the true one. If the task is true, the gambler's fortune "
        "grows twentyfold with a probability of at most 1 in 20, however long the game lasts; so at risk "
        f"{risk:g} a task is dropped when the fortune against it has grown by the inverse "
        "of that risk. Only the true task must not be dropped by mistake, so nothing is lost by testing hundreds "
        "of them at once. The likelihood method bets on every single move of the agent, the returns method only "
        "on what each episode earned and cost; the model-free method makes no use of the training tasks to judge "
        "safety and has to learn the cost of each policy by running it.",
    )


def _figure_2(results: Results, figure: bytes, table: Table) -> Section:
    limited = ", and what no method stays below in expectation that keeps the promise."
    return Section(
        "Figure 2: regret and cost while adapting",
        figure=figure,
        caption=_CAPTION_2 + (limited if "limit" in results else "."),
        table=table,
        notes=(*_best_baseline(results["methods"]), *_limit_note(results), *_NOTES_2),
    )


def _limit_note(results: Results) -> tuple[str, ...]:
    if "limit" not in results:
        return ()
    return (
        f"The limit is {results['limit']['mean'][-1]:,.0f} in the mean: no method that is unsafe with a probability of "
        f"at most {results['settings']['risk']:g} on every single gridworld that the certified methods speak of has "
        "less expected regret, whatever it deploys (docs/guarantees.md, Theorem 11). It says nothing of methods that "
        "are unsafe.",
    )


def _fresh_section(results: Results, table: Table) -> Section:
    fresh, episodes = results["settings"]["fresh"], results["settings"]["episodes"]
    text = f"{fresh} further tasks drawn from the distribution, {episodes:,} episodes on each."
    return Section(FRESH, (text,), table=table, notes=_best_baseline(results["fresh"]))


def _calibration_sections(results: Results) -> Iterator[Section]:
    for name, told in results.get("calibrations", {}).items():
        found = parse_calibration(told)
        text = (
            f"Simulated tasks on which {name}, run for {found.episodes:,} episodes, deployed anything unsafe: "
            f"{found.allowed} of {found.runs} are allowed. At the last setting that passed it is certified, for a task "
            "drawn from the distribution (docs/guarantees.md, Theorem 12)."
        )
        yield Section(f"How bold simulated tasks let {name} be", (text,), table=settings_table(found))


def tables(results: Results) -> dict[str, Table]:
    """Regret and safety on the test tasks, on fresh ones, in the order of the figure's lines; and the plan."""
    limit = results["limit"]["mean"][-1] if "limit" in results else None  # runs of earlier versions have none
    found = {TEST: results_table(sort_by_regret(results["methods"]), reference_methods(results["methods"]), limit)}
    fresh = results.get("fresh", {})  # runs of earlier versions have none
    if fresh:
        found[FRESH] = results_table(sort_by_regret(fresh), reference_methods(fresh))
    return {**found, PLAN: plan_table(results["plan"])}


def reference_methods(methods: Mapping[str, Totals]) -> dict[str, str]:
    """Whose regret the others' is measured against: never adapting, and the best baseline that was never unsafe."""
    safe = {name: found["regret_mean"] for name, found in methods.items() if not found["unsafe_tasks"]}
    baselines = {name: mean for name, mean in safe.items() if name in BASELINES and mean is not None}
    best = {"best baseline": min(baselines, key=lambda name: baselines[name])} if baselines else {}
    return {"safe-only": "safe-only", **best}


def _best_baseline(methods: Mapping[str, Totals]) -> tuple[str, ...]:
    best = reference_methods(methods).get("best baseline")
    return () if best is None else (f"The best baseline that was never unsafe here is ‘{best}’.",)


def _verdict(results: Results) -> Verdict:
    """On the test tasks; how sure it is follows from fresh ones where there are some."""
    settings, methods = results["settings"], results["methods"]
    best, share = verdict.best_certified(methods), verdict.regret_reduction(methods)
    worth = "" if share is None else f"‘{best}’ avoided {verdict.percent(share)} of the regret of never adapting, and "
    words = worth + verdict.in_words(methods, settings["risk"])
    counted = results.get("fresh") or methods
    amount = f"{len(methods)} methods on {settings['tasks']} tasks, {settings['episodes']:,} episodes each"
    return Verdict(
        f"{words[0].upper()}{words[1:]}.",
        (
            verdict.adaptation_gain(methods),
            verdict.safety(methods, settings["risk"]),
            verdict.sureness(counted, settings["risk"], "fresh tasks" if counted is not methods else "tasks"),
            verdict.elapsed_time(results["seconds"], amount),
        ),
    )


# ------------------------------------------------------------------------------------------------------------- figure 1


SHORTEST, LONGEST = 0.2, 0.5  # arrows of actions taken almost never and surely, in cells
FAINTEST = 0.02  # probabilities below are rounding of the solver, or too rare to draw
RED, GREEN, ARROW = "#e2564a", "#3fa66a", "#1f2328"
SHADES = LinearSegmentedColormap.from_list("values", ["#ffffff", "#c9def0"])


def policies_and_values(panels: Sequence[Mapping[str, Any]]) -> Figure:
    """The gridworld with its optimal policy and state values, one panel for each of `optimal_policy`: arrows show the
    policy (length and opacity by probability), shades and numbers the value of each state."""
    values = np.concatenate([panel["state_values"] for panel in panels])
    shades = Normalize(float(values.min()), float(values.max()))  # one scale, so that panels can be compared
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.1 * len(panels), 4.4), layout="compressed")
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _draw_cells(axes, panel["state_values"], shades)
            _draw_arrows(axes, np.array(panel["policy"]))
            axes.set_title(f"noise {panel['noise']:g}, V* = {panel['optimal_value']:.2f}", fontsize=11)
    return figure


def _draw_cells(axes: Axes, values: Sequence[float], shades: Normalize) -> None:
    for state, value in enumerate(values):
        x, y = _place(state)
        colour = RED if state in RED_CELLS else GREEN if state == GOAL else SHADES(shades(value))
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="#b9c0c7", linewidth=0.8))
        ink = "white" if state in RED_CELLS or state == GOAL else "#6b7680"
        axes.text(x - 0.45, y - 0.45, f"{value:.0f}", fontsize=6.5, color=ink, ha="left", va="bottom")
    axes.text(*_place(GOAL), "goal", fontsize=9, fontweight="bold", color="white", ha="center", va="center")
    axes.set(xlim=(-0.52, WIDTH - 0.48), ylim=(-0.52, HEIGHT - 0.48), aspect="equal")
    axes.set_axis_off()


def _draw_arrows(axes: Axes, policy: Floats) -> None:
    """All arrows of a panel in one quiver; none at the goal, which is absorbing.

    The arrows of a state share their tail, placed so that the cell's centre is the middle of their mean.
    """
    state, action = np.nonzero(policy >= FAINTEST)
    moving = state != GOAL
    state, action = state[moving], action[moving]
    chance = policy[state, action]
    arrow = np.array(MOVES)[action] * (SHORTEST + (LONGEST - SHORTEST) * chance)[:, None]
    mean = np.zeros((STATES, 2))
    np.add.at(mean, state, chance[:, None] * arrow)
    tail = np.stack([state % WIDTH, state // WIDTH], axis=1) - mean[state] / 2
    colours = [(*to_rgb(ARROW), 0.25 + 0.75 * float(p)) for p in chance]
    heads: Any = {"width": 0.0075, "headwidth": 4.2, "headlength": 4.2, "headaxislength": 3.8, "minlength": 0}
    axes.quiver(*tail.T, *arrow.T, color=colours, angles="xy", scale_units="xy", scale=1, zorder=3, **heads)


def _place(state: int) -> tuple[int, int]:
    """(x, y) of state 7y + x; y = 0 is the bottom row."""
    return state % WIDTH, state // WIDTH


EXPERIMENT = frame.Experiment(
    "gridworld",
    GridworldSettings,
    run,
    page,
    tables,
    "figure1.png, figure2.png, results.json and gridworld.policyset beside it",
    quick={"tasks": 3, "episodes": 4_000},
    policy_sets=lambda settings: [POLICY_SET],
)
