"""The promise of the certified methods: an unsafe mixture is *ever* deployed with probability at most the risk.

Draw fresh tasks, run a method on each, evaluate everything it deploys exactly, count the tasks with an unsafe episode,
and compare with the risk by a binomial test. A correct method fails one such test with probability below FALSE_ALARM;
everything is seeded. The mutants must be caught by the same count.
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from joblib import Parallel, delayed
from scipy import stats

from guarantees import mutants
from guarantees.mutants import Mutant
from surefoot.learning.learner import Learner
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.metrics import binomial_interval
from surefoot.simulate.runner import run_learner
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.train import train

FALSE_ALARM = 1e-4
LIKELIHOOD, BALL, RETURNS, MODEL_FREE = (
    "certified-likelihood",
    "certified-ball",
    "certified-returns",
    "certified-model-free",
)

# The long runs: tasks per method and risk, and episodes per task. `surefoot reproduce promise` counts 2,000 of each.
PROMISE_TASKS = int(os.environ.get("SUREFOOT_PROMISE_TASKS", "400"))
PROMISE_EPISODES = 3000
BATCH = 20


@cache
def world(name: str) -> tuple[TaskDistribution, PolicyValueSet]:
    """A family, and the policies trained for it."""
    if name == "rooms":
        return mutants.rooms(), mutants.rooms_policies()
    if name == "two rooms":
        return mutants.two_rooms(), mutants.rooms_policies(tasks=mutants.two_rooms())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the paper's theorem does not apply; the certified methods do not need it
        return gridworld(), train(gridworld(), epsilon=0.004, delta=0.05, seed=0, progress=False)


def count_unsafe(
    method: str,
    risk: float,
    tasks: int,
    episodes: int,
    seed: int,
    mutate: Mutant | None = None,
    *,
    family: str = "gridworld",
    first: int = 0,
    **options: Any,
) -> tuple[int, int]:
    """(tasks with an unsafe episode, tasks): numbers `first` to `first + tasks - 1` of those drawn with this seed."""
    distribution, policies = world(family)
    parameters = distribution.sample(first + tasks, np.random.default_rng([seed, 0]))[first:]
    intact = learner(policies, method=method, risk=risk, **options).method
    unsafe = 0
    for number, parameter in enumerate(parameters, start=first):
        chosen = mutate(intact) if mutate else intact
        run = run_learner(
            Learner(chosen, seed=number),
            distribution.task(parameter),
            episodes=episodes,
            seed=int(np.random.SeedSequence([seed, 1, number]).generate_state(1)[0]),
            optimal_reward=0.0,
        )
        unsafe += run.unsafe_episodes > 0
    return unsafe, tasks


def p_value(unsafe: int, tasks: int, risk: float) -> float:
    """Probability of that many unsafe tasks or more if each has probability `risk`."""
    return float(stats.binomtest(unsafe, tasks, risk, alternative="greater").pvalue)


# ---------------------------------------------------------------------------------------------------- promises, counted


@pytest.mark.long
@pytest.mark.parametrize("risk", [0.05, 0.5])
def test_likelihood_method_keeps_its_promise_on_the_gridworld(risk: float) -> None:
    unsafe, tasks = count_unsafe(LIKELIHOOD, risk, 60, 1000, seed=1)
    assert p_value(unsafe, tasks, risk) > FALSE_ALARM
    if risk == 0.5:
        assert unsafe > 0, "a risk that is never used would not need a guarantee"


@pytest.mark.short_for(method=[MODEL_FREE])
@pytest.mark.parametrize("method", [BALL, RETURNS, MODEL_FREE])
def test_other_methods_keep_their_promise_in_the_rooms(method: str) -> None:
    unsafe, tasks = count_unsafe(method, 0.5, 20 if method == MODEL_FREE else 40, 400, seed=2, family="rooms")
    assert p_value(unsafe, tasks, 0.5) > FALSE_ALARM
    if method != MODEL_FREE:
        assert unsafe > 0


@pytest.mark.long
def test_sums_alone_keep_the_promise_in_the_rooms() -> None:
    unsafe, tasks = count_unsafe("certified", 0.5, 40, 400, seed=2, family="rooms", observes="sums")
    assert p_value(unsafe, tasks, 0.5) > FALSE_ALARM
    assert unsafe > 0


@pytest.mark.short_for(risk=[0.5], intersect=[False])
@pytest.mark.parametrize("intersect", [False, True])
@pytest.mark.parametrize("risk", [0.05, 0.5])
def test_likelihood_method_keeps_its_promise_where_the_risk_is_used(risk: float, intersect: bool) -> None:
    count = 80 if risk == 0.5 else 200
    unsafe, tasks = count_unsafe(LIKELIHOOD, risk, count, 100, seed=3, family="two rooms", intersect=intersect)
    assert p_value(unsafe, tasks, risk) > FALSE_ALARM
    assert unsafe > 0.1 * risk * tasks


@pytest.mark.long
@pytest.mark.parametrize("risk", [0.05, 0.5])
@pytest.mark.parametrize("method", [LIKELIHOOD, BALL, RETURNS, MODEL_FREE])
def test_promise_on_the_gridworld_counted_at_length(
    method: str, risk: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """SUREFOOT_PROMISE_TASKS tasks in two processes; run one method with -k, the counts are printed."""
    calls = (
        delayed(count_unsafe)(method, risk, min(BATCH, PROMISE_TASKS - first), PROMISE_EPISODES, 4, first=first)
        for first in range(0, PROMISE_TASKS, BATCH)
    )
    counts = Parallel(n_jobs=2)(calls)
    unsafe, tasks = (sum(part) for part in zip(*counts, strict=True))
    low, high = binomial_interval(unsafe, tasks)
    with capsys.disabled():
        print(  # noqa: T201
            f"\n{method} at risk {risk:g}: {unsafe} of {tasks} tasks unsafe, "
            f"{unsafe / tasks:.4f} (95 %: {low:.4f} to {high:.4f})"
        )
    assert tasks == PROMISE_TASKS
    assert p_value(unsafe, tasks, risk) > FALSE_ALARM


# --------------------------------------------------------------------------------------------- broken variants, caught


MUTANTS: dict[str, tuple[str, float, int, int, Mutant, dict[str, Any]]] = {
    "square root of the threshold": (
        *(LIKELIHOOD, 0.005, 450, 100, mutants.evidence_times(2)),
        {"family": "two rooms"},
    ),
    "radius halved": (
        *(LIKELIHOOD, 0.005, 150, 100, mutants.evidence_times(4)),
        {"family": "two rooms"},
    ),
    "radius halved, for good": (
        *(LIKELIHOOD, 0.005, 150, 100, mutants.evidence_times(4)),
        {"family": "two rooms", "intersect": True},
    ),
    "safe on the likeliest cell only": (*(LIKELIHOOD, 0.05, 20, 100, mutants.only_the_likeliest_cell), {}),
    "bounds of a milder cell": (*(LIKELIHOOD, 0.05, 12, 300, mutants.cells_shifted(80)), {}),
    "sign of the constraint flipped": (*(LIKELIHOOD, 0.05, 12, 300, mutants.sign_flipped), {}),
    "component drawn per step": (
        *(LIKELIHOOD, 0.05, 15, 100, mutants.drawn_per_step),
        {"family": "rooms", "replan": False},
    ),
    "sample mean for a bound": (*(MODEL_FREE, 0.05, 15, 800, mutants.bound_is_the_mean), {"family": "rooms"}),
}


LONGEST = "square root of the threshold"


@pytest.mark.short_for(mutant=["component drawn per step", "sample mean for a bound"])
@pytest.mark.parametrize(
    "mutant", [pytest.param(each, marks=pytest.mark.long) if each == LONGEST else each for each in MUTANTS]
)
def test_broken_variant_is_caught(mutant: str) -> None:
    method, risk, tasks, episodes, mutate, options = MUTANTS[mutant]
    unsafe, tasks = count_unsafe(method, risk, tasks, episodes, 5, mutate, **options)
    assert p_value(unsafe, tasks, risk) < FALSE_ALARM
    intact, tasks = count_unsafe(method, risk, min(tasks, 12), episodes, 5, **options)
    assert p_value(intact, tasks, risk) > FALSE_ALARM
