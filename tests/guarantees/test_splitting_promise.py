"""Theorem 2a: cells may be split as the data like, and all boxes around the task survive with probability ≥ 1 - risk.

Fresh tasks of a family with two unknowns, a few wide cells that must be split to get anywhere. Counted are tasks whose
own box was ever ruled out or missing (lost), and tasks on which an unsafe mixture was ever deployed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from surefoot.arrays import Floats
from surefoot.learning.certified.evidence.likelihood import LikelihoodRatio
from surefoot.learning.certified.method import Certified
from surefoot.learning.certified.splitting import Boxes, Splitter, halved
from surefoot.learning.learner import Learner
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.simulate.runner import run_learner
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks.distribution import Independent, Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family
from surefoot.training.envelopes import Envelopes, build_cells

FALSE_ALARM = 1e-4
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


def count(
    risk: float, tasks: int, episodes: int, seed: int, mutate: Callable[[Certified], Certified] = lambda method: method
) -> tuple[int, int, int]:
    """Tasks whose box was ever lost, tasks with an unsafe episode, and the most boxes that there ever were."""
    method = mutate(learner(policies(), method="certified-likelihood", risk=risk).method)
    lost = unsafe = most = 0
    for number, parameter in enumerate(wards().sample(tasks, np.random.default_rng([seed, 0]))):
        watched = Learner(method, seed=number)
        seen: list[tuple[bool, int]] = []
        run = run_learner(
            watched,
            wards().task(parameter),
            episodes=episodes,
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


def p_value(failures: int, tasks: int, risk: float) -> float:
    return float(stats.binomtest(failures, tasks, risk, alternative="greater").pvalue)


@dataclass(frozen=True, eq=False)
class AroundTheTask(Splitter):
    """An adversary: halves whatever box the task is in, again and again."""

    parameter: Floats = field(default_factory=lambda: np.empty(0))

    def _limiting(self, boxes: Boxes, alive: Mask, deployed: Deployed) -> tuple[Integers, Integers]:
        inside = ((boxes.low <= self.parameter) & (self.parameter <= boxes.high)).all(axis=1)
        chosen = np.flatnonzero(inside)[:1]
        return chosen, np.argmax((boxes.high - boxes.low)[chosen] * self._change, axis=1)


@pytest.mark.parametrize("risk", [0.05, 0.5])
def test_boxes_around_the_task_survive_and_nothing_unsafe_is_deployed(risk: float) -> None:
    lost, unsafe, most = count(risk, 50, 300, seed=1)
    assert p_value(lost, 50, risk) > FALSE_ALARM
    assert p_value(unsafe, 50, risk) > FALSE_ALARM
    assert most > 30, "a count of cells that are never split would say nothing"


# --------------------------------------------------------------------------------------------- broken variants, caught


class FittedNumerator(LikelihoodRatio):
    """The likelihood at the best point found so far for a numerator: no law."""

    def log_mixture(self, state: Any) -> Floats:
        fitted = self.best_in_boxes(state, self.cells.low, self.cells.high).max()
        return np.full(len(self.cells), fitted)


class BetterHalf(Splitter):
    """Both halves have the bounds of the one that is better off."""

    def _halves(self, boxes: Boxes, *rest: Any) -> Boxes:
        halves = super()._halves(boxes, *rest)
        return replace(halves, margin=np.maximum(halves.margin, np.roll(halves.margin, len(boxes.cell), axis=0)))


class GapBetween(Splitter):
    """The upper half begins where it ends, so that half of every box is forgotten."""

    def _halves(self, boxes: Boxes, axis: Any, *rest: Any) -> Boxes:
        lower, _ = halved(boxes, axis)
        return super()._halves(replace(boxes, high=lower.high), axis, *rest)


def fitted_numerator(method: Certified) -> Certified:
    evidence = FittedNumerator(method.cells, method.evidence.model, method.units, method.evidence.horizon)
    return replace(method, evidence=evidence, splitter=replace(method.splitter, evidence=evidence))


def with_splitter(kind: type[Splitter]) -> Callable[[Certified], Certified]:
    def mutate(method: Certified) -> Certified:
        own = method.splitter
        return replace(method, splitter=kind(own.cells, own.evidence, own.units, own.policies))

    return mutate


@pytest.mark.parametrize(
    "mutate", [fitted_numerator, with_splitter(BetterHalf), with_splitter(GapBetween)], ids=["numerator", "half", "gap"]
)
def test_broken_variant_is_caught(mutate: Callable[[Certified], Certified]) -> None:
    lost, unsafe, _ = count(0.05, 40, 300, 2, mutate)
    assert min(p_value(lost, 40, 0.05), p_value(unsafe, 40, 0.05)) < FALSE_ALARM
