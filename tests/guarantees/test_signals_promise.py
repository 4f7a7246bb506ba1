"""The promise of certified-signals: what its bounds say of a fresh task, and what it deploys there (Theorems 1b, 4, 7).

One trial is a fresh training and a fresh task, as in the theorem: learn signals, simulate bounds, draw a task, run the
method on it, and look at what is really true, exactly and by nothing of the library (`rough_family`): whether the task
breaks the bounds of its cell, whether its cell was ever ruled out, and whether anything deployed was unsafe. Each count
is compared with what is promised by a binomial test, which a correct method fails with probability below FALSE_ALARM;
everything is seeded. With one error each the same counts must fail.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from joblib import Parallel, delayed
from scipy import stats

from rough_family import UNITS, Lever, broken, levers, trained
from surefoot.cmdp.episode import Outcomes
from surefoot.learning.certified.evidence.signals import SignalProcess
from surefoot.learning.learner import Learner
from surefoot.methods import learner
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.conformal import ALL_SHARE
from surefoot.training.settings import Envelopes, LearnedSignals

FALSE_ALARM = 1e-4
PROMISE_TASKS = int(os.environ.get("SUREFOOT_PROMISE_TASKS", "400"))
EPISODES = 120

# By risk: how the bounds are made, and what of the uncovered a first attempt spends on bounds from all held-out tasks.
LESSON = LearnedSignals(tasks=30, episodes=8)
ENVELOPES = {
    0.5: Envelopes(cells=12, holdout=47, uncovered=0.2, episodes=600),
    0.1: Envelopes(cells=12, holdout=119, uncovered=0.06, episodes=600),
}


class Trial(NamedTuple):
    """Whether the fresh task broke its cell's bounds, had its cell ever ruled out, was ever unsafe; and by how much the
    reward of what was deployed at the end exceeded that of the safe lever."""

    broke: bool
    lost: bool
    unsafe: bool
    gained: float


Evidence = Callable[[SignalProcess, int], Any]  # of a method and the true cell
Told = Callable[[Outcomes], Outcomes]  # what of an episode reaches the learner


@dataclass(frozen=True)
class Setting:
    """What may be wrong with a deployment."""

    tasks: TaskDistribution
    signals: LearnedSignals = LESSON
    evidence: Evidence | None = None
    told: Told | None = None
    hiding: bool = False


def trial(risk: float, seed: int, setting: Setting | None = None) -> Trial:
    setting = setting or Setting(levers())
    policies, places = trained(setting.tasks, seed, ENVELOPES[risk], setting.signals)
    rng = np.random.default_rng([seed, 1])
    parameter = setting.tasks.sample(1, rng)
    task, j = setting.tasks.task(parameter[0]), int(places.cells(parameter)[0])
    method: Any = learner(policies, method="certified-signals", risk=risk).method
    if setting.evidence is not None:
        method = replace(method, evidence=setting.evidence(method.evidence, j))
    made = Learner(method, seed=seed)
    lost, unsafe = deployed(made, task, j, rng, setting)
    assert policies.cells is not None
    weights = np.bincount(made.deployed.indices, made.deployed.weights, minlength=3)
    return Trial(broken(policies.cells, j, task), lost, unsafe, float(weights[1:].sum()))


def deployed(made: Learner, task: Lever, j: int, rng: np.random.Generator, setting: Setting) -> tuple[bool, bool]:
    """Whether cell j was ever ruled out, and whether a mixture was ever unsafe."""
    method: Any = made.method
    margin = UNITS.budget - task.cost
    lost = unsafe = False
    for _ in range(EPISODES):
        order = made.ask()
        unsafe |= bool(order.deployed.weights @ margin[order.deployed.indices] < -1e-12)
        outcomes = task.episodes(order.policy, 1).run(1, rng, transitions=True)
        if setting.told is not None:
            outcomes = setting.told(outcomes)
        if setting.hiding and _speaks_for(made, j, order.policy_index, outcomes):
            made.abandon(order)
        else:
            made.tell_block(made.ask_block(1), outcomes)
        lost |= not made.state.method.surviving[j]
    return lost, unsafe


def _speaks_for(made: Learner, j: int, policy: int, outcomes: Outcomes) -> bool:
    """Whether an episode would be evidence for cell j."""
    evidence: Any = made.method.evidence  # type: ignore[attr-defined]
    state = made.state.method.evidence
    after = evidence.observe(state, np.array([policy]), outcomes)
    return bool(evidence.log_evidence(after)[j] < evidence.log_evidence(state)[j])


def p_values(trials: list[Trial], risk: float) -> dict[str, float]:
    """Probability of so many of each, or more, if each trial had the promised one."""
    counts = np.array(trials)[:, :3].sum(axis=0)
    uncovered = ENVELOPES[risk].uncovered or 0.0
    levels = ALL_SHARE * uncovered / 2, risk - uncovered / 2, risk
    names = ("broke", "lost", "unsafe")
    return {
        name: float(stats.binomtest(int(count), len(trials), level, alternative="greater").pvalue)
        for name, count, level in zip(names, counts, levels, strict=True)
    }


# ---------------------------------------------------------------------------------------------------- promises, counted


@pytest.mark.parametrize(("risk", "trials"), [(0.5, 25), (0.1, 12)])
def test_the_promise_is_kept_near_the_budget(risk: float, trials: int) -> None:
    check_promise(risk, [trial(risk, seed) for seed in range(trials)])


@pytest.mark.long
@pytest.mark.parametrize("risk", [0.5, 0.1])
def test_the_promise_counted_at_length(risk: float, capsys: pytest.CaptureFixture[str]) -> None:
    """SUREFOOT_PROMISE_TASKS trainings and tasks, in two processes; the counts are printed."""
    trials: list[Trial] = Parallel(n_jobs=2)(delayed(trial)(risk, seed) for seed in range(PROMISE_TASKS))
    broke, lost, unsafe, _ = np.array(trials).sum(axis=0)
    with capsys.disabled():
        print(  # noqa: T201
            f"\nrisk {risk:g}: of {len(trials)} tasks {broke:g} broke their bounds, {lost:g} lost their cell, "
            f"{unsafe:g} were ever unsafe"
        )
    check_promise(risk, trials)


def check_promise(risk: float, trials: list[Trial]) -> None:
    found = p_values(trials, risk)
    assert min(found.values()) > FALSE_ALARM, found
    assert np.median([each.gained for each in trials]) > 0.05, "whoever stays with the safe lever needs no promise"
