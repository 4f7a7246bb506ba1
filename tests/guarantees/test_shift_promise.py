"""The promise for tasks at a distance from those trained for (Theorem 8), and without any relation to them (Theorem 6).

Fresh tasks are moved by `shift` on purpose, each against the very policy that it pays to deploy. Unsafe tasks are
counted with exact values and compared with the risk by a binomial test of false-alarm rate FALSE_ALARM. Learners with
either half of the widening left out must be caught by the same count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

from guarantees import mutants
from guarantees.mutants import HURT, RICH, STAY_CALM, STAY_RICH
from surefoot.arrays import Floats
from surefoot.bounds.envelopes import Envelopes, build_cells
from surefoot.bounds.widening import without_payments
from surefoot.learning.certified.method import Certified
from surefoot.learning.certified.model_free import ModelFree
from surefoot.learning.learner import Learner
from surefoot.learning.method import Method
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.simulate.run import Run
from surefoot.simulate.runner import run_learner
from surefoot.tabular.distance import distance
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.robust import worst_within
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution, family

FALSE_ALARM = 1e-4
TASKS = 24
BALL, RETURNS, MODEL_FREE = "certified-ball", "certified-returns", "certified-model-free"
BALL_HERE = [BALL, pytest.param(RETURNS, marks=pytest.mark.long)]
Mutant = Callable[[Certified], Method]


# ------------------------------------------------------------------------------------- a family in which evidence errs

START, LIT, DARK = range(3)
LOOK, BOLD = (TabularPolicy(np.eye(2)[[action] * 3]) for action in range(2))
DANGEROUS, MILD = 0.0, 1.0
CHANCE = {DANGEROUS: 0.5, MILD: 0.6}  # of light, after a look
LAMP_SHIFT = 0.06


# Of the smaller budget looking leaves next to nothing, so that nobody is bold before the light tells that it is not
# dangerous; of the larger one enough to be bold now and then, and one such episode tells more than the light.
TIGHT, ROOMY = 0.555, 1.0


def lamp_task(dangerous: bool, chance: float, budget: float) -> TabularCMDP:
    """Whoever looks sees light with some chance; whoever is bold earns more and, if it is dangerous, pays for it."""
    transitions = np.zeros((3, 2, 3))
    transitions[START, 0, [LIT, DARK]] = chance, 1 - chance
    transitions[START, 1, DARK] = 1.0
    transitions[[LIT, DARK], :, START] = 1.0
    reward = np.array([[0.0, 2.0], [1.0, 1.0], [0.0, 0.0]])
    cost = np.array([[0.2, 3.0 if dangerous else 0.0], [0.0, 0.0], [0.0, 0.0]])
    return TabularCMDP(transitions, reward, cost, budget, [1 / 3] * 3, 0.5, (0.0, 2.0), (0.0, 3.0))


def lamps(budget: float) -> TaskDistribution:
    def build(parameter: Floats) -> TabularCMDP:
        return lamp_task(bool(parameter[0] == DANGEROUS), CHANCE[float(parameter[0])], budget)

    return family(build, Finite([DANGEROUS, MILD], [0.5, 0.5]))


def misleading() -> TabularCMDP:
    """As dangerous as can be, and within LAMP_SHIFT of the dangerous lamp, but with lights more like the mild one's."""
    return lamp_task(True, CHANCE[DANGEROUS] + LAMP_SHIFT, TIGHT)


@cache
def lamp_policies(budget: float) -> PolicyValueSet:
    tasks = lamps(budget)
    mild = tasks.task([MILD])
    bold, look = evaluate(mild, BOLD), evaluate(mild, LOOK)
    entry = Entry(np.array([MILD]), BOLD, bold.reward, bold.margin, look.reward, look.margin)
    cells = build_cells(tasks, [LOOK, BOLD], seed=0, envelopes=Envelopes())
    return PolicyValueSet((entry,), LOOK, mild.units, 0.01, 0.05, 0.0, tasks.digest(), {}, {}, cells)


@cache
def rooms_policies() -> PolicyValueSet:
    return mutants.rooms_policies()


# ------------------------------------------------------------------------------------------------------------- mutants


def bounds_not_widened(method: Certified) -> Method:
    known = method.policies.cells
    assert known is not None
    assert len(known) == len(method.cells)
    return replace(method, cells=replace(method.cells, lower=known.lower, upper=known.upper))


def evidence_not_widened(method: Certified) -> Method:
    known = method.policies.cells
    assert known is not None
    cells = without_payments(known)
    changes = {"cells": cells, "model": cells.model} if hasattr(method.evidence, "model") else {"cells": cells}
    return replace(method, evidence=replace(method.evidence, **changes))  # type: ignore[type-var]


# ------------------------------------------------------------------------------------------------------------- counts


def unsafe_rooms(
    method: str, risk: float, tasks: int, shift: float, mutate: Mutant | None = None, episodes: int = 300
) -> int:
    """Fresh rooms, each moved by `shift` to where the rich room hurts most."""
    rooms, policies = mutants.rooms(), rooms_policies()
    parameters = rooms.sample(tasks, np.random.default_rng([11, 0]))
    intact = learner(policies, method=method, risk=risk, shift=shift).method
    unsafe = 0
    for number, parameter in enumerate(parameters):
        near = rooms.task(parameter)
        task = worst_within(near, STAY_RICH, shift)
        assert distance(near, task) <= shift + 1e-12
        assert (evaluate(task, STAY_CALM).margin >= 0).all()
        unsafe += run_on(mutate(intact) if mutate else intact, task, episodes, number).unsafe_episodes > 0
    return unsafe


def unsafe_lamps(method: str, risk: float, runs: int, mutate: Mutant | None = None) -> int:
    intact = learner(lamp_policies(TIGHT), method=method, risk=risk, shift=LAMP_SHIFT).method
    task = misleading()
    chosen = mutate(intact) if mutate else intact
    return sum(run_on(chosen, task, 800, number).unsafe_episodes > 0 for number in range(runs))


def run_on(method: Method, task: TabularCMDP, episodes: int, number: int) -> Run:
    seed = int(np.random.SeedSequence([12, number]).generate_state(1)[0])
    return run_learner(Learner(method, seed=number), task, episodes=episodes, seed=seed, optimal_reward=0.0)


def p_value(unsafe: int, tasks: int, risk: float) -> float:
    return float(stats.binomtest(unsafe, tasks, risk, alternative="greater").pvalue)


# -------------------------------------------------------------------------------------------------- Theorem 8, counted

ROOMS_SHIFT = 0.008


@pytest.mark.parametrize("method", BALL_HERE)
def test_promise_is_kept_on_tasks_at_a_distance(method: str) -> None:
    unsafe = unsafe_rooms(method, 0.2, TASKS, ROOMS_SHIFT)
    assert p_value(unsafe, TASKS, 0.2) > FALSE_ALARM


@pytest.mark.parametrize("method", BALL_HERE)
def test_bounds_that_are_not_widened_are_caught(method: str) -> None:
    unsafe = unsafe_rooms(method, 0.2, TASKS, ROOMS_SHIFT, bounds_not_widened)
    assert p_value(unsafe, TASKS, 0.2) < FALSE_ALARM


@pytest.mark.long
@pytest.mark.parametrize("method", BALL_HERE)
def test_evidence_that_is_not_widened_is_caught(method: str) -> None:
    near = lamps(TIGHT).task([DANGEROUS])
    assert distance(near, misleading()) <= LAMP_SHIFT + 1e-12
    assert p_value(unsafe_lamps(method, 0.1, TASKS, evidence_not_widened), TASKS, 0.1) < FALSE_ALARM
    assert p_value(unsafe_lamps(method, 0.1, TASKS), TASKS, 0.1) > FALSE_ALARM


@pytest.mark.parametrize("method", BALL_HERE)
def test_a_widened_learner_still_learns(method: str) -> None:
    """On the mild lamp itself, whose lights are farther from the dangerous one's than the shift."""
    chosen = learner(lamp_policies(ROOMY), method=method, risk=0.1, shift=LAMP_SHIFT).method
    run = run_on(chosen, lamps(ROOMY).task([MILD]), 4000, 0)
    assert run.unsafe_episodes == 0
    assert run.reward[-1] > 1.2 * run.reward[0]


# ------------------------------------------------------------------------------------- Theorem 6 outside D, counted


def far_away(number: int) -> TabularCMDP:
    """Rooms as nobody trained for: other dynamics in every row; staying calm is feasible there, and richness is not."""
    rng = np.random.default_rng([13, number])
    known = mutants.rooms().task([0.11])
    while True:
        noise = rng.dirichlet(np.ones(3), size=(3, 2))
        kernel = 0.8 * known.transitions + 0.2 * noise
        kernel[RICH, 1] = 0.7 * np.eye(3)[RICH] + 0.3 * np.eye(3)[HURT]  # three times as bad as anything trained for
        task = TabularCMDP(kernel, known.reward, known.cost[0], 1.4, known.start, 0.8, (0.0, 1.0), (0.0, 3.0))
        if evaluate(task, STAY_CALM).margin[0] >= 0 > evaluate(task, STAY_RICH).margin[0]:
            return task


def roomy_policies() -> PolicyValueSet:
    """Without cells, and with a budget that leaves room for other dynamics."""
    policies = rooms_policies()
    return replace(policies, cells=None, units=replace(policies.units, budget=np.array([1.4])))


def unsafe_far_away(risk: float, tasks: int, mutate: Callable[[ModelFree], Method] | None = None) -> int:
    intact = learner(roomy_policies(), method=MODEL_FREE, risk=risk, assume_safe=True).method
    chosen = mutate(intact) if mutate else intact  # type: ignore[arg-type]
    return sum(run_on(chosen, far_away(number), 800, number).unsafe_episodes > 0 for number in range(tasks))


def test_model_free_keeps_its_promise_on_tasks_that_nobody_trained_for() -> None:
    unsafe = unsafe_far_away(0.2, TASKS)
    assert p_value(unsafe, TASKS, 0.2) > FALSE_ALARM


def test_model_free_with_means_for_bounds_is_caught_there() -> None:
    unsafe = unsafe_far_away(0.2, TASKS, mutants.bound_is_the_mean)
    assert p_value(unsafe, TASKS, 0.2) < FALSE_ALARM
