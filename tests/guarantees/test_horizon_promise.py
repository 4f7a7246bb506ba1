"""Theorem 1c with 2, 3 and 4: policies planned on the way on tables with a horizon, on fresh tasks, exactly judged.

A few wide cells, so that what is planned for the most dangerous task left is safe by the bounds of Theorem 1c alone.
Counted are tasks on which an unsafe mixture was ever deployed. In an affine family the promise is made for each task,
so that they are also taken from where it is hardest to keep: the end of the last cell.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from surefoot.arrays import Floats
from surefoot.bounds.envelopes import Envelopes, build_cells
from surefoot.deploy import snapshots
from surefoot.learning.certified import replanning
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.simulate.runner import run_learner
from surefoot.tabular import expansion
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.timed_expansion import Expanded, expand_steps
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family
from surefoot.testing.learner_suite import fingerprint

FALSE_ALARM = 1e-4
STEPS, CELLS, RISK = 8, 4, 0.1
TASKS, EPISODES = 6, 200
STAY_CALM, STAY_RICH = (TabularPolicy(np.eye(2)[[action] * 3]) for action in (0, 1))


@cache
def shifts() -> TaskDistribution:
    """Shifts of eight steps in a calm room or in a rich one, where a step hurts with probability θ."""
    calm, rich, hurt = np.eye(3)
    base = np.array([[calm, rich], [calm, rich], [calm, calm]])
    slope = np.zeros((1, 3, 2, 3))
    slope[0, 1, 1] = hurt - rich
    reward = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    cost = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])

    def task(parameter: Floats) -> TabularCMDP:
        kernel = base + parameter[0] * slope[0]
        return TabularCMDP(kernel, reward, cost, 0.4, [0.5, 0.5, 0.0], 1.0, (0, 1), (0, 1), horizon=STEPS)

    return family(task, Uniform(0.1, 0.5), affine=(base, slope))


@cache
def policies() -> PolicyValueSet:
    """Both plain policies: whatever looks at the clock was planned on the way."""
    middle = np.array([0.3])
    task = shifts().task(middle)
    rich, calm = evaluate(task, STAY_RICH), evaluate(task, STAY_CALM)
    entry = Entry(middle, STAY_RICH, rich.reward, rich.margin, calm.reward, calm.margin)
    cells = build_cells(shifts(), [STAY_CALM, STAY_RICH], seed=0, envelopes=Envelopes(cells=CELLS))
    assert (cells.source, cells.uncovered, len(cells)) == ("affine", 0.0, CELLS)
    return PolicyValueSet((entry,), STAY_CALM, task.units, 0.01, 0.05, 0.0, shifts().digest(), {}, {}, cells)


@pytest.fixture(autouse=True)
def planning_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few episodes show what planned policies do."""
    monkeypatch.setattr(replanning, "FIRST", 40)


def fresh(tasks: int, seed: int) -> Floats:
    """[2·tasks, 1] parameters from all cells, and from the end of the last one."""
    rng = np.random.default_rng([seed, 0])
    return np.concatenate([shifts().sample(tasks, rng), rng.uniform(0.46, 0.5, (tasks, 1))])


def count(name: str, parameters: Floats, **options: Any) -> tuple[int, int, float]:
    """Tasks with an unsafe episode, tasks on which a planned policy was deployed, and the mean reward at the end."""
    unsafe = deployed = 0
    rewards = []
    for number, parameter in enumerate(parameters):
        made = learner(policies(), method=name, risk=RISK, seed=number, **options)
        used: set[int] = set()
        run = run_learner(
            made,
            task := shifts().task(parameter),
            episodes=EPISODES,
            seed=number,
            optimal_reward=0.0,
            observer=lambda *_, made=made, used=used: used.update(made.deployed.indices.tolist()),
        )
        unsafe += run.unsafe_episodes > 0
        deployed += max(used) > 1
        rewards.append(evaluate(task, run.output).reward)
        assert all(isinstance(plan.policy, TimedPolicy) for plan in made.state.method.planned)
    return unsafe, deployed, float(np.mean(rewards))


def p_value(failures: int, tasks: int) -> float:
    return float(stats.binomtest(failures, tasks, RISK, alternative="greater").pvalue)


@pytest.mark.short_for(name=["certified-likelihood"])
@pytest.mark.parametrize("name", ["certified-likelihood", "certified-ball"])
def test_the_promise_is_kept_by_what_was_planned(name: str) -> None:
    tasks = fresh(TASKS, 0)
    unsafe, deployed, _ = count(name, tasks)
    assert p_value(unsafe, len(tasks)) > FALSE_ALARM
    assert deployed > TASKS
    with_plans, without = (count(name, tasks[:2], replan=replan)[2] for replan in (True, False))
    assert with_plans > 1.5 * without


def test_boxes_that_split_have_bounds_with_a_horizon_too() -> None:
    tasks = fresh(2, 1)
    unsafe, deployed, _ = count("certified-likelihood", tasks, split=True)
    assert p_value(unsafe, len(tasks)) > FALSE_ALARM
    assert deployed > 0


def test_what_was_planned_survives_a_snapshot() -> None:
    made = learner(policies(), method="certified-likelihood", risk=RISK, seed=0)
    run_learner(made, shifts().task([0.2]), episodes=100, seed=0, optimal_reward=0.0)
    assert made.state.method.planned
    known = snapshots.classes(made)
    again = snapshots.decode(snapshots.encode(made.state, known), known)
    assert fingerprint(again) == fingerprint(made.state)


# --------------------------------------------------------------------------------------------- broken variants, caught

Expansion = Callable[..., Expanded]


def at_the_centre(*told: Any) -> Expanded:
    """The values at the centre of a box for those of the whole box."""
    found = expand_steps(*told)
    return found._replace(radius=np.zeros_like(found.radius))


def a_step_short(affine: Any, example: TabularCMDP, *told: Any) -> Expanded:
    """The last step is forgotten."""
    task = example
    shorter = TabularCMDP(
        task.transitions, task.reward, task.cost, task.budget, task.start, 1.0, (0, 1), (0, 1), horizon=STEPS - 1
    )
    return expand_steps(affine, shorter, *told)


def for_one_step(*told: Any) -> Expanded:
    """As if transitions differed from those at the centre in one of the steps alone."""
    found = expand_steps(*told)
    return found._replace(radius=found.radius / STEPS)


@pytest.mark.short_for(broken=[at_the_centre])
@pytest.mark.parametrize("broken", [at_the_centre, a_step_short, for_one_step])
def test_wrong_bounds_are_caught(broken: Expansion, monkeypatch: pytest.MonkeyPatch) -> None:
    policies()  # with bounds that are right
    monkeypatch.setattr(expansion, "expand_steps", broken)
    unsafe, *_ = count("certified-likelihood", fresh(TASKS, 0)[TASKS:])
    assert p_value(unsafe, TASKS) < FALSE_ALARM
