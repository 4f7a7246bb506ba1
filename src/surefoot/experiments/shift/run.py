"""`surefoot reproduce shift`: certified methods on tasks they were not trained for."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from surefoot import __version__
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Episodes, Task
from surefoot.cmdp.units import Units
from surefoot.cmdp.values import Values
from surefoot.errors import InvalidInput
from surefoot.experiments.checks import check_counts, check_names
from surefoot.experiments.gridworld.settings import DELTA, EPSILON
from surefoot.experiments.parallel import Progress, check_jobs, each, silent
from surefoot.experiments.results import Report, check_folder, write_report
from surefoot.methods import METHODS, learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.page import Page, Section, Table, versions
from surefoot.simulate.runner import run_learner
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks.gridworld import RED_CELLS, gridworld
from surefoot.training.training_phase import train


@dataclass(frozen=True)
class Settings:
    """Runs per kind of shift and method."""

    methods: tuple[str, ...] = ("certified-likelihood", "certified-ball", "certified-returns")
    runs: int = 20
    episodes: int = 10_000
    risk: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        check_names("methods", self.methods, METHODS)
        check_counts(self, "runs", "episodes")


SHIFTS = (
    "noise 0.30 (no shift)",
    "noise 0.42",
    "noise 0.45",
    "noise 0.50",
    "red cell moved",
    "sticky actions 0.1",
    "sticky actions 0.3",
)


def shifted(name: str) -> Task:
    """One of `SHIFTS`: a task outside the training distribution, as it looks to the learner."""
    base: TabularCMDP = gridworld().task([0.3])
    if name.startswith("noise"):
        task: TabularCMDP = gridworld().task([float(name.split()[1])])
        return task
    if name == "red cell moved":
        # The lowest cell of the left wall moves into the corridor, one step to the right.
        cost = base.cost[0].copy()
        moved = min(RED_CELLS)
        cost[moved + 1], cost[moved] = cost[moved], 0.0
        same = (base.budget, base.start, base.discount, base.units.reward_range, base.units.cost_range)
        return TabularCMDP(base.transitions, base.reward, cost, *same)
    return sticky(base, float(name.split()[-1]))


def sticky(base: TabularCMDP, probability: float) -> PartlySeen:
    """With this probability the previous action is carried out again; the learner sees only where it is.

    The true state is s·(A+1) + previous action, with A for "none yet".
    """
    states, actions = base.n_states, base.n_actions
    kinds = actions + 1
    transitions = np.zeros((states, kinds, actions, states, kinds))
    for previous in range(kinds):
        for action in range(actions):
            carried = base.transitions[:, action]
            if previous < actions:
                carried = (1 - probability) * carried + probability * base.transitions[:, previous]
            transitions[:, previous, action, :, action] = carried
    start = np.zeros((states, kinds))
    start[:, actions] = base.start
    task = TabularCMDP(
        transitions.reshape(states * kinds, actions, states * kinds),
        np.repeat(base.reward, kinds, axis=0),
        np.repeat(base.cost, kinds, axis=1),
        base.budget,
        start.ravel(),
        base.discount,
        base.units.reward_range,
        base.units.cost_range,
    )
    return PartlySeen(task, kinds)


@dataclass(frozen=True)
class PartlySeen:
    """A task of which the learner sees the state s of the true s·kinds + k; its policies do not know k either."""

    task: TabularCMDP
    kinds: int

    @property
    def units(self) -> Units:
        return self.task.units

    @property
    def spaces(self) -> Hashable:
        return ("partly seen", self.task.spaces, self.kinds)

    def digest(self) -> str:
        return self.task.digest()

    def episodes(self, policy: Policy, steps: int) -> PartlySeenEpisodes:
        return PartlySeenEpisodes(self.task.episodes(self._lifted(policy), steps), self.kinds)

    def values(self, policy: Policy) -> Values:
        return self.task.values(self._lifted(policy))

    def optimum(self) -> float:
        """Of policies that see everything, which is no less than that of those that do not."""
        return self.task.optimum()

    def _lifted(self, policy: Policy) -> TabularPolicy:
        if not isinstance(policy, TabularPolicy):
            raise InvalidInput(f"policy must be stationary and tabular here, got one of kind {policy.kind!r}")
        return TabularPolicy(np.repeat(policy.probabilities, self.kinds, axis=0))


@dataclass(frozen=True)
class PartlySeenEpisodes:
    """Episodes of the true task with its states as they are seen."""

    true: Episodes
    kinds: int

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        outcomes = self.true.run(episodes, rng, transitions)
        return outcomes if outcomes.states is None else replace(outcomes, states=outcomes.states // self.kinds)


def reproduce(settings: Settings, out: Path, *, jobs: int = 2, progress: Progress | None = None) -> dict[str, Any]:
    """Run every method under every shift, and write results.json and report.html to `out`."""
    check_jobs(jobs)
    check_folder(out)
    began = time.perf_counter()
    show = progress or silent
    policies = train(gridworld(), epsilon=EPSILON, delta=DELTA, seed=settings.seed, progress=False)
    calls = [(policies, shift, method, settings) for shift in SHIFTS for method in settings.methods]
    rows = list(each("running", _runs, calls, jobs, show))
    results = {
        "experiment": "shift",
        "version": __version__,
        "settings": asdict(settings),
        "seconds": time.perf_counter() - began,
        "rows": rows,
    }
    write_report(out, results, shift_page(results))
    return results


def _runs(policies: PolicyValueSet, name: str, method: str, settings: Settings) -> dict[str, Any]:
    """What happened in all runs of one method under one shift."""
    task = shifted(name)
    alarms, before, after, safe_margin = [], [], [], 0.0
    for k in range(settings.runs):
        seed = int(np.random.SeedSequence([settings.seed, 5, k]).generate_state(1)[0])
        agent = learner(policies, method=method, risk=settings.risk, seed=seed)
        run = run_learner(agent, task, episodes=settings.episodes, seed=seed, optimal_reward=0.0)
        alarm = next((event.episode for event in run.events if event.kind == "alarm"), None)
        unsafe = run.unsafe
        cut = settings.episodes if alarm is None else alarm
        alarms.append(alarm)
        before.append(int(unsafe[:cut].sum()))
        after.append(int(unsafe[cut:].sum()))
        safe_margin = float(run.margin[0])
    raised = [alarm for alarm in alarms if alarm is not None]
    return {
        "shift": name,
        "method": method,
        "runs": settings.runs,
        "alarms": len(raised),
        "median_alarm": float(np.median(raised)) if raised else None,
        "last_alarm": max(raised) if raised else None,
        "runs_unsafe_before": sum(count > 0 for count in before),
        "unsafe_before_mean": float(np.mean(before)),
        "unsafe_after_mean": float(np.mean(after)),
        "first_margin": safe_margin,
    }


def shift_page(results: dict[str, Any]) -> Report:
    """The table of alarms."""
    settings = results["settings"]
    rows = tuple(
        (
            row["shift"],
            row["method"],
            f"{row['first_margin']:.3f}",
            f"{row['alarms']} of {row['runs']}",
            "–" if row["median_alarm"] is None else f"{row['median_alarm']:,.0f}",
            f"{row['runs_unsafe_before']} of {row['runs']}",
            f"{row['unsafe_before_mean']:,.0f}",
            f"{row['unsafe_after_mean']:,.0f}",
        )
        for row in results["rows"]
    )
    headers = (
        "shift",
        "method",
        "margin of the safe policy",
        "alarms",
        "median episode",
        "runs unsafe before",
        "unsafe episodes before, mean",
        "and after",
    )
    page = Page(
        title="Tasks nobody trained for",
        lead=(
            "The promise holds for tasks drawn from the training distribution. Here the task is another one: more "
            "noise than the cells cover, a red cell moved, actions that stick. What can be hoped for is an alarm, "
            "after which only the safe policy is deployed. Where the safe policy itself has a negative margin, every "
            "episode is unsafe, before and after."
        ),
        facts=(
            ("episodes", f"{settings['episodes']:,}"),
            ("risk", f"{settings['risk']:g}"),
            ("seed", str(settings["seed"])),
            ("time", f"{results['seconds']:.0f} s"),
            *versions(),
        ),
        sections=(Section("Alarms", table=Table(headers, rows, numbers=(2, 3, 4, 5, 6, 7))),),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {})
