"""The promise for tasks that can only be simulated: value bounds from simulated episodes (docs/guarantees.md, 2.4).

One trial is a fresh training and a fresh task, as in the theorem: simulate value bounds, draw a task, run a certified
method on its discounted sums, and look at what every deployed mixture is really worth, in closed form and by nothing of
the library. The unsafe trials are compared with the risk by a binomial test, which a correct method fails with
probability below FALSE_ALARM; everything is seeded. With intervals shrunk to points the same count must fail.

Families in which it matters: the candidates break the budget on every task, so that the best mixture lies on it; and
there are several that are about as good, so that the one whose bounds err most to the good side is taken.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pytest
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from scipy import stats

from point_mass import PointMass, lane, speed, true_margins, true_values
from surefoot.arrays import Floats
from surefoot.bounds import simulation
from surefoot.bounds.envelopes import build_cells
from surefoot.bounds.settings import Envelopes
from surefoot.cmdp.episode import Outcomes
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.learning.learner import Learner
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family, from_arrays

FALSE_ALARM = 1e-4
PROMISE_TASKS = int(os.environ.get("SUREFOOT_PROMISE_TASKS", "60"))
EPISODES, HORIZON = 300, 6
UNITS = lane(budget=0.4, horizon=HORIZON)
ENGINES = 4


def few() -> tuple[TaskDistribution, Sequence[MLPPolicy], Envelopes]:
    """Two tasks that are easily told apart, and candidates that are almost one: only the intervals keep them safe."""
    policies = [speed(0.2), *(speed(level, gain=gain) for level in (0.97, 1.0, 1.03) for gain in (-0.04, 0.04))]
    return from_arrays([PointMass(drift, UNITS) for drift in (0.6, 1.1)]), policies, Envelopes(episodes=300)


def many() -> tuple[TaskDistribution, Sequence[MLPPolicy], Envelopes]:
    """Engines of unknown strengths, and one candidate for each: how strong an engine is on a fresh task does not depend
    on the sampled ones, on which the best looking one was weak by chance."""
    policies = [speed(*[0.05] * ENGINES), *(speed(*row) for row in np.eye(ENGINES))]
    tasks = family(lambda drifts: PointMass(drifts, UNITS), Uniform([0.55] * ENGINES, [0.75] * ENGINES))
    return tasks, policies, Envelopes(cells=1, holdout=79, uncovered=0.08, episodes=300)


WORLDS = {"few": few, "many": many}


def trial(world: str, risk: float, seed: int) -> tuple[float, float]:
    """The least true margin ever deployed on a fresh task after a fresh training, and that of the safe policy."""
    tasks, policies, envelopes = WORLDS[world]()
    rng = np.random.default_rng([seed, 1])
    trained = policy_set(tasks, policies, envelopes, seed)
    task = tasks.task(tasks.sample(1, rng)[0])
    margins = true_margins(task, policies)
    chosen = learner(trained, method="certified", risk=risk, seed=seed, horizon=HORIZON)
    return least_margin(chosen, task, policies, margins, rng), float(margins[0])


def policy_set(
    tasks: TaskDistribution, policies: Sequence[MLPPolicy], envelopes: Envelopes, seed: int
) -> PolicyValueSet:
    cells = build_cells(tasks, policies, seed=seed, envelopes=envelopes)
    example = tasks.task(cells.low[0])
    safe, *others = (true_values(example, policy) for policy in policies)
    entries = tuple(
        Entry(cells.low[0], policy, found.reward, found.margin, safe.reward, safe.margin)
        for policy, found in zip(policies[1:], others, strict=True)
    )
    return PolicyValueSet(entries, policies[0], UNITS, 0.1, 0.1, 0.0, "0" * 64, {}, {}, cells)


def least_margin(
    chosen: Learner, task: PointMass, policies: Sequence[MLPPolicy], margins: Floats, rng: np.random.Generator
) -> float:
    """Ask, simulate and tell; every policy has its own stream of episodes."""
    streams = [task.episodes(policy, HORIZON).run(EPISODES, rng) for policy in policies]
    rewards, costs = (np.stack([getattr(stream, name) for stream in streams]) for name in ("reward", "cost"))
    used, told, least = np.zeros(len(policies), dtype=np.int64), 0, np.inf
    while told < EPISODES:
        orders = chosen.ask_block(min(32, EPISODES - told))
        repeats = np.tril(orders.drawn[:, None] == orders.drawn, -1).sum(axis=1)
        place = orders.drawn, used[orders.drawn] + repeats
        done = chosen.tell_block(orders, Outcomes(rewards[place], costs[place]))
        least = min(least, float(orders.deployed.weights @ margins[orders.deployed.indices]))
        used += np.bincount(orders.drawn[:done], minlength=len(policies))
        told += done
    return least


# ---------------------------------------------------------------------------------------------------- promises, counted


@pytest.mark.short_for(risk=[0.5])
@pytest.mark.parametrize(
    ("world", "risk", "trials"),
    [("few", 0.5, 20), ("few", 0.1, 40), pytest.param("many", 0.1, 15, marks=pytest.mark.long)],
)
def test_the_promise_is_kept_near_the_budget(world: str, risk: float, trials: int) -> None:
    check_promise(risk, np.array([trial(world, risk, seed) for seed in range(trials)]))


@pytest.mark.long
@pytest.mark.parametrize("risk", [0.5, 0.1])
@pytest.mark.parametrize("world", list(WORLDS))
def test_the_promise_counted_at_length(world: str, risk: float, capsys: pytest.CaptureFixture[str]) -> None:
    """SUREFOOT_PROMISE_TASKS trainings and tasks, in two processes; the counts are printed."""
    trials = np.array(Parallel(n_jobs=2)(delayed(trial)(world, risk, seed) for seed in range(PROMISE_TASKS)))
    with capsys.disabled():
        print(f"\n{world} at risk {risk:g}: {(trials[:, 0] < 0).sum()} of {len(trials)} tasks unsafe")  # noqa: T201
    check_promise(risk, trials)


def check_promise(risk: float, trials: Floats) -> None:
    least, safe = trials.T
    assert p_value(least, risk) > FALSE_ALARM
    assert np.median(least / safe) < 0.5, "whoever stays with the safe policy needs no promise"


def p_value(least: ArrayLike, risk: float) -> float:
    """Probability of so many unsafe trials or more if each has probability `risk`."""
    unsafe = np.less(least, 0)
    return float(stats.binomtest(int(unsafe.sum()), unsafe.size, risk, alternative="greater").pvalue)


# --------------------------------------------------------------------------------------------- broken variants, caught


@pytest.mark.parametrize(("risk", "trials"), [pytest.param(0.5, 160, marks=pytest.mark.long), (0.1, 12)])
def test_intervals_shrunk_to_points_are_caught(risk: float, trials: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)
    assert p_value([trial("few", risk, seed)[0] for seed in range(trials)], risk) < FALSE_ALARM


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Means in place of intervals."""
    monkeypatch.setattr(simulation, "Betting", Means)


class Means:
    def __init__(self, level: float) -> None:
        pass

    def start(self, shape: tuple[int, ...]) -> None:
        pass

    def update(self, state: None, observations: Floats) -> Floats:
        return observations.mean(axis=0)

    def interval(self, state: Floats) -> tuple[Floats, Floats]:
        return state, state
