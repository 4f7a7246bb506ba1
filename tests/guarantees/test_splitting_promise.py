"""Theorems 2a and 2b: cells may be split as the data like, and all boxes around the task survive with probability
≥ 1 - risk.

Fresh tasks of a family with two unknowns, a few wide cells that must be split to get anywhere. Counted are tasks whose
own box was ever ruled out or missing (lost), and tasks on which an unsafe mixture was ever deployed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from surefoot.arrays import Floats, Integers, Mask
from surefoot.bounds.envelopes import Envelopes, build_cells
from surefoot.learning.certified.evidence.likelihood import LikelihoodRatio
from surefoot.learning.certified.method import Certified
from surefoot.learning.certified.splitting import Boxes, Splitter
from surefoot.learning.learner import Learner
from surefoot.learning.method import Mixture
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.simulate.runner import run_learner
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks.distribution import Independent, Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family

FALSE_ALARM = 1e-4
TASKS, EPISODES = 40, 200
Mutant = Callable[[Certified], Certified]
STAY_CALM, STAY_RICH = (TabularPolicy(np.eye(2)[[action] * 3]) for action in (0, 1))


@cache
def wards() -> TaskDistribution:
    """A calm room and a rich one in which a step hurts with probability θ₀; the hurt stay so with probability θ₁."""
    calm, rich, hurt = np.eye(3)
    base = np.array([[calm, rich], [calm, rich], [calm, calm]])
    slope = np.zeros((2, 3, 2, 3))
    slope[0, 1, 1] = hurt - rich
    slope[1, 2] = hurt - calm
    reward = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    cost = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])

    def task(parameter: Floats) -> TabularCMDP:
        kernel = base + np.tensordot(parameter, slope, axes=1)
        return TabularCMDP(kernel, reward, cost, 0.25, [0.5, 0.5, 0.0], 0.8, (0.0, 1.0), (0.0, 1.0))

    return family(task, Independent([Uniform(0.05, 0.3), Uniform(0.1, 0.6)]), affine=(base, slope))


@cache
def policies(cells: int = 16) -> PolicyValueSet:
    middle = np.array([0.15, 0.35])
    task = wards().task(middle)
    rich, calm = evaluate(task, STAY_RICH), evaluate(task, STAY_CALM)
    entry = Entry(middle, STAY_RICH, rich.reward, rich.margin, calm.reward, calm.margin)
    bounds = build_cells(wards(), [STAY_CALM, STAY_RICH], seed=0, envelopes=Envelopes(cells=cells))
    return PolicyValueSet((entry,), STAY_CALM, task.units, 0.01, 0.05, 0.0, wards().digest(), {}, {}, bounds)


@dataclass(frozen=True, eq=False)
class AroundTheTask(Splitter):
    """An adversary who knows the task and halves whatever box it is in, at every decision."""

    parameter: Floats = field(default_factory=lambda: np.empty(0))

    def _limiting(self, boxes: Boxes, alive: Mask, deployed: Mixture) -> tuple[Integers, Integers]:
        inside = ((boxes.low <= self.parameter) & (self.parameter <= boxes.high)).all(axis=1)
        chosen = np.flatnonzero(inside)[:1]
        return chosen, np.argmax((boxes.high - boxes.low)[chosen] * self._change, axis=1)


def count(
    risk: float, tasks: int, seed: int, mutate: Mutant = lambda method: method, *, adversary: bool = False
) -> tuple[int, int, int]:
    """Tasks whose box was ever lost, tasks with an unsafe episode, and the most boxes that there ever were."""
    intact = mutate(learner(policies(), method="certified-likelihood", risk=risk, split=True).method)
    lost = unsafe = most = 0
    for number, parameter in enumerate(wards().sample(tasks, np.random.default_rng([seed, 0]))):
        method = intact if not adversary else with_splitter(AroundTheTask, parameter)(intact)
        watched = Learner(method, seed=number)
        seen: list[tuple[bool, int]] = []
        run = run_learner(
            watched,
            wards().task(parameter),
            episodes=EPISODES,
            seed=number,
            optimal_reward=0.0,
            observer=partial(look, seen, watched, parameter, -np.log(risk)),
        )
        lost += any(gone for gone, _ in seen)
        most = max(most, *(boxes for _, boxes in seen))
        unsafe += run.unsafe_episodes > 0
    return lost, unsafe, most


def look(seen: list[tuple[bool, int]], watched: Learner, parameter: Floats, level: float, *progress: int) -> None:
    """Whether no box around the task survives, and how many boxes there are."""
    state, splitter = watched.state.method, watched.method.splitter
    boxes = splitter.partition(state.boxes, state.planned)
    around = boxes[((boxes.low <= parameter) & (parameter <= boxes.high)).all(axis=1)]
    alive = splitter.log_evidence(state.evidence, around, np.inf) < level
    seen.append((not alive.any(), len(boxes.cell)))


def broken_margins(method: Certified, seed: int = 0) -> int:
    """At tasks drawn from every box after a run: how many margins lie below the bounds of their box."""
    made = Learner(method, seed=seed)
    run_learner(made, wards().task(np.array([0.12, 0.3])), episodes=400, seed=seed, optimal_reward=0.0)
    state, rng, broken = made.state.method, np.random.default_rng(seed), 0
    boxes = method.splitter.partition(state.boxes, state.planned)
    for number in np.flatnonzero(np.bincount(boxes.cell)[boxes.cell] > 1):
        for parameter in rng.uniform(boxes.low[number], boxes.high[number], size=(3, 2)):
            task = wards().task(parameter)
            for index in range(boxes.margin.shape[1]):
                exact = evaluate(task, method.policy(state, index)).margin
                broken += bool((exact < boxes.margin[number, index]).any())
    return broken


def p_value(failures: int, tasks: int, risk: float) -> float:
    return float(stats.binomtest(failures, tasks, risk, alternative="greater").pvalue)


@pytest.mark.parametrize("risk", [pytest.param(0.05, marks=pytest.mark.long), 0.5])
def test_boxes_around_the_task_survive_and_nothing_unsafe_is_deployed(risk: float) -> None:
    tasks = 15 if risk == 0.5 else TASKS
    lost, unsafe, most = count(risk, tasks, seed=1)
    assert p_value(lost, tasks, risk) > FALSE_ALARM
    assert p_value(unsafe, tasks, risk) > FALSE_ALARM
    assert most > 30, "a count of cells that are never split would say nothing"


@pytest.mark.long
@pytest.mark.parametrize("risk", [0.2, 0.5])
def test_the_smallest_boxes_around_the_task_survive_whoever_splits(risk: float) -> None:
    lost, _, _ = count(risk, TASKS, seed=2, adversary=True)
    assert p_value(lost, TASKS, risk) > FALSE_ALARM
    assert lost > 0, "a level that is never used would not need a theorem"


def test_margins_of_boxes_hold_for_the_tasks_in_them() -> None:
    assert broken_margins(learner(policies(), method="certified-likelihood", risk=0.05, split=True).method) == 0


# --------------------------------------------------------------------------------------------- broken variants, caught


class FittedNumerator(LikelihoodRatio):
    """The likelihood at the best point found so far for a numerator: no law."""

    def log_mixture(self, state: Any, mode: Floats | None = None) -> Floats:
        fitted = self.best_in_boxes(state, self.cells.low, self.cells.high).max()
        return np.full(len(self.cells), fitted)


class FittedIntegral(LikelihoodRatio):
    """The likelihood at the likeliest task in place of the integral around it (Theorem 2b)."""

    def _log_between(self, seen: Floats, mode: Floats | None) -> Floats:
        law = np.maximum(self.model.class_probability(self.mode(seen)), 1e-300)
        return np.full(len(self.cells), float(np.log(law) @ seen))


class BetterHalf(Splitter):
    """Bounds of the half that is better off for the whole box."""

    def tighten_bounds(self, boxes: Boxes, *rest: Any) -> Boxes:
        return replace(boxes, margin=super().tighten_bounds(half_of(boxes), *rest).margin)


class GapBetween(Splitter):
    """Halves that do not meet: half of each is forgotten."""

    def limiting_halves(self, *given: Any) -> tuple[Integers, Boxes]:
        chosen, halves = super().limiting_halves(*given)
        return chosen, half_of(halves)


def half_of(boxes: Boxes) -> Boxes:
    return replace(boxes, high=(boxes.low + boxes.high) / 2)


def with_evidence(kind: type[LikelihoodRatio]) -> Mutant:
    def mutate(method: Certified) -> Certified:
        evidence = kind(method.cells, method.evidence.model, method.units, method.evidence.horizon, True)
        return replace(method, evidence=evidence, splitter=replace(method.splitter, evidence=evidence))

    return mutate


def with_splitter(kind: type[Splitter], *more: Any) -> Mutant:
    def mutate(method: Certified) -> Certified:
        own = method.splitter
        return replace(method, splitter=kind(own.cells, own.evidence, own.units, own.policies, *more))

    return mutate


@pytest.mark.long
@pytest.mark.parametrize(("kind", "tasks"), [(FittedNumerator, 4 * TASKS), (FittedIntegral, 25 * TASKS)])
def test_numerator_fitted_to_the_data_is_caught(kind: type[LikelihoodRatio], tasks: int) -> None:
    """The integral is half of the numerator, and takes more tasks to be found out."""
    lost, _, _ = count(0.2, tasks, 2, with_evidence(kind), adversary=True)
    assert p_value(lost, tasks, 0.2) < FALSE_ALARM


@pytest.mark.long
def test_halves_that_do_not_meet_are_caught() -> None:
    lost, _, _ = count(0.05, TASKS, 1, with_splitter(GapBetween))
    assert p_value(lost, TASKS, 0.05) < FALSE_ALARM


def test_bounds_of_the_better_half_are_caught() -> None:
    method = learner(policies(), method="certified-likelihood", risk=0.05, split=True).method
    assert broken_margins(with_splitter(BetterHalf)(method)) > 0
