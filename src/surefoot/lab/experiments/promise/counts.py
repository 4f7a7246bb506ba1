"""Counts of unsafe tasks: how a run is watched, the overconfident twin that shows the power of a count, and what the
count says about the risk: kept, broken, or nothing."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.special import betainc

from surefoot.arrays import Floats
from surefoot.bounds.cells import Cells
from surefoot.bounds.exact import evaluator
from surefoot.learning.certified.method import Certified
from surefoot.learning.certified.model_free import ModelFree, ModelFreeState
from surefoot.learning.learner import Learner
from surefoot.learning.method import Method, Observes
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.metrics import binomial_interval
from surefoot.simulate.run import Run
from surefoot.simulate.runner import run_learner
from surefoot.tabular.distance import distance
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.task_distribution import TaskDistribution

Conclusion: TypeAlias = Literal["kept", "broken", "too few tasks to tell", "no power"]

# A promise that is kept to the letter is called broken with at most this probability, per count.
FALSE_ALARM = 1e-4


@dataclass(frozen=True)
class Count:
    """How often one method broke its promise at one risk, and whether it would have been noticed.

    Attributes:
        unsafe_tasks: tasks on which a deployed mixture ever broke a budget.
        covered, lost: tasks that lie in a cell, and those of them whose cell was ever ruled out: the event of
            Theorems 2, 3 and 5. None for methods without cells.
        tested: tasks on which the method ever used more than half of the margin that the safe policy leaves.
        twin_tasks, twin_unsafe: the same count for the method's overconfident twin, on fewer tasks.
    """

    tasks: int
    unsafe_tasks: int
    tested: int
    twin_tasks: int
    twin_unsafe: int
    covered: int | None = None
    lost: int | None = None

    @property
    def interval(self) -> tuple[float, float]:
        return binomial_interval(self.unsafe_tasks, self.tasks)

    @property
    def lost_interval(self) -> tuple[float, float] | None:
        return binomial_interval(self.lost, self.covered) if self.covered and self.lost is not None else None

    def chance(self, risk: float) -> float:
        """The smaller probability of a count like this, or worse, if the promise is kept: of unsafe or of lost."""
        lost = tail(self.lost, self.covered, risk) if self.covered and self.lost is not None else 1.0
        return min(tail(self.unsafe_tasks, self.tasks, risk), lost)

    def has_power(self, risk: float) -> bool:
        """Whether the twin is caught, and the method went far enough on enough tasks to be caught itself."""
        twin = self.twin_tasks > 0 and tail(self.twin_unsafe, self.twin_tasks, risk) < FALSE_ALARM
        return twin and tail(self.tested, self.tasks, risk) < FALSE_ALARM

    def verdict(self, risk: float) -> Conclusion:
        if self.chance(risk) < FALSE_ALARM:
            return "broken"
        if tail(self.tasks, self.tasks, risk) >= FALSE_ALARM:  # nothing could be called broken
            return "too few tasks to tell"
        if not self.has_power(risk):
            return "no power"
        return "kept" if self.interval[1] <= risk else "too few tasks to tell"

    def summary(self, risk: float) -> dict[str, Any]:
        """Plain data for results.json."""
        return {
            "tasks": self.tasks,
            "unsafe_tasks": self.unsafe_tasks,
            "fraction": self.unsafe_tasks / self.tasks,
            "interval": list(self.interval),
            "covered": self.covered,
            "lost": self.lost,
            "lost_interval": None if self.lost_interval is None else list(self.lost_interval),
            "tested": self.tested,
            "twin_tasks": self.twin_tasks,
            "twin_unsafe": self.twin_unsafe,
            "verdict": self.verdict(risk),
        }


def tail(count: int, trials: int, probability: float) -> float:
    """P(at least `count` of `trials`) if each has this probability."""
    return float(betainc(count, trials - count + 1, probability)) if count else 1.0


# ------------------------------------------------------------------------------------------------------- a run, watched


@dataclass(frozen=True)
class RunAudit:
    """Attributes:
    lost: whether the cell that holds the task was ever ruled out; None if none does or nobody asked.
    tested: whether it used enough of the margin, see `uses_margin`.
    """

    unsafe_episodes: int
    lost: bool | None
    tested: bool


def audit_run(
    method: Method, task: TabularCMDP, *, safe: Any, episodes: int, seed: int, horizon: int, cell: int | None
) -> RunAudit:
    """Run `method` for `episodes` episodes of `horizon` steps and look at every decision."""
    learner = Learner(method, seed=seed, horizon=horizon)
    lost: list[bool] = []

    def look(done: int = 0, total: int = 0) -> None:
        if cell is not None and isinstance(method, Certified):
            lost.append(not learner.state.method.surviving[cell])

    look()
    run = run_learner(learner, task, episodes=episodes, seed=seed, optimal_reward=0.0, observer=look)
    return RunAudit(run.unsafe_episodes, any(lost) if lost else None, uses_margin(run, task, safe))


def uses_margin(run: Run, task: TabularCMDP, safe: Any) -> bool:
    """Whether a run ever used more than half of the margin that the safe policy leaves: less can hardly be unsafe."""
    return float(run.margin.min()) < float(evaluate(task, safe).margin.min()) / 2


def true_cell(tasks: TaskDistribution, policies: PolicyValueSet, parameter: Floats) -> int | None:
    """The cell that holds the task of a parameter, None if it is not covered (docs/guarantees.md, section 2)."""
    cells = policies.cells
    if cells is None:
        return None
    if cells.source in ("affine", "finite"):
        inside = ((cells.low <= parameter) & (parameter <= cells.high)).all(axis=1)
        return int(np.argmax(inside)) if inside.any() else None
    extent = np.ptp(tasks.distribution.support, axis=1)
    scaled = (cells.centre - parameter) / np.where(extent > 0, extent, 1.0)
    nearest = int(np.argmin((scaled**2).sum(axis=1)))
    return nearest if _keeps_bounds(tasks, policies, cells, nearest, parameter) else None


def _keeps_bounds(
    tasks: TaskDistribution, policies: PolicyValueSet, cells: Cells, cell: int, parameter: Floats
) -> bool:
    """Whether the exact values lie within the bounds of the cell, and the transitions within its box or radius."""
    values, _ = evaluator(tasks, policies.policies)(tasks.task(parameter))
    bounds = [(values[..., 0], cells.lower[cell], cells.upper[cell])]
    if cells.start_lower is not None and cells.start_upper is not None:
        bounds.append((values[..., 1:], cells.start_lower[cell], cells.start_upper[cell]))
    kept = all(((low <= value) & (value <= high)).all() for value, low, high in bounds)
    feasible = (values[0, 1:, 0] >= 0).all()
    if cells.model is None:
        return bool(kept and feasible)
    if cells.model.affine is not None:
        near = ((cells.low[cell] <= parameter) & (parameter <= cells.high[cell])).all()
    else:
        near = distance(tasks.task(parameter), tasks.task(cells.centre[cell])) <= cells.model.radius[cell]
    return bool(kept and feasible and near)


# -------------------------------------------------------------------------------------------------- overconfident twins


def overconfident(method: Method) -> Method | None:
    """The twin: safe on the cell that the least speaks against, or by mean costs; None for methods that have none."""
    if isinstance(method, Certified):
        return replace(method, evidence=BestCell(method.evidence), splitter=None)
    if isinstance(method, ModelFree):
        return SampleMean(**{field.name: getattr(method, field.name) for field in fields(method)})
    return None


@dataclass(frozen=True, eq=False)
class ChangedEvidence:
    """Another evidence, to be changed in one place."""

    inner: Any

    @property
    def observes(self) -> Observes:
        observes: Observes = self.inner.observes
        return observes

    def start(self) -> Any:
        return self.inner.start()

    def observe(self, *arguments: Any) -> Any:
        return self.inner.observe(*arguments)

    def impossible(self, *arguments: Any) -> Any:
        return self.inner.impossible(*arguments)

    def abandon(self, *arguments: Any) -> Any:
        return self.inner.abandon(*arguments)

    def settle(self, *arguments: Any) -> Any:
        return self.inner.settle(*arguments)

    def log_evidence(self, state: Any) -> Floats:
        evidence: Floats = self.inner.log_evidence(state)
        return evidence

    def belief(self, state: Any) -> Floats:
        belief: Floats = self.inner.belief(state)
        return belief


@dataclass(frozen=True, eq=False)
class BestCell(ChangedEvidence):
    """Rules out every cell but the one that the least speaks against."""

    def log_evidence(self, state: Any) -> Floats:
        evidence = self.inner.log_evidence(state)
        return np.where(evidence <= np.nanmin(evidence), 0.0, np.inf)


@dataclass(frozen=True, eq=False)
class SampleMean(ModelFree):
    """The sample mean of costs in place of their confidence bound."""

    def _lowest_margin(self, state: ModelFreeState, index: int) -> Floats:
        sequence, seen = self._sequence(index), state.costs[index]
        low, high = self._cost_ends
        if not seen.count:
            return self.units.budget - high
        # At the smallest stake b, Σ ln(1 - bX) is -b ΣX but for less than half a percent.
        mean = -seen.sums[..., 0] / (seen.count * sequence.stakes[0])
        margin: Floats = self.units.budget - (low + mean * (high - low))
        return margin
