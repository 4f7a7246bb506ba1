"""Theorem 12d: a calibration with a reserve keeps its promise for ever, since the method as it is proved takes over.

By values of tables: after the last calibrated episode anything unsafe is deployed with probability at most the
reserve, however bold the setting was before; and over all episodes with probability at most the risk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

import surefoot as sf
from guarantees import mutants
from surefoot.arrays import Integers
from surefoot.cmdp.episode import Outcomes
from surefoot.learning import calibrated as calibrations
from surefoot.learning.calibrated import CalibratedMethod, CalibratedState, Calibration, fixed_sequence_test
from surefoot.learning.learner import Learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.simulate.run import Run
from surefoot.simulate.runner import run_learner

FALSE_ALARM = 1e-4
METHOD = "certified-likelihood"


def chance(count: int, trials: int, most: float) -> float:
    """Of so many or more, if the promise is kept."""
    return float(stats.binom.sf(count - 1, trials, most))


def unsafe(run: Run, first: int = 0) -> bool:
    return bool((run.margin[first:] < -1e-9).any())


# -------------------------------------------------------------------------------------------- after the last episode

RISK, CALIBRATED, AFTERWARDS = 0.6, 10, 60
BOLD = 0.9  # the level before: whether it deserves to have passed does not matter here


@cache
def two_rooms() -> PolicyValueSet:
    """Where nearly all of a risk is used, since there are hardly more than two tasks."""
    return mutants.rooms_policies(tasks=mutants.two_rooms())


def calibrated(reserve: float) -> CalibratedMethod:
    steps, digest = two_rooms().units.episode_length, two_rooms().digest()
    found = Calibration(METHOD, CALIBRATED, RISK, 0.0, BOLD, 200, ((BOLD, 0),), steps, digest)
    found = replace(found, reserve=reserve, standing="counted")
    made = sf.learner(two_rooms(), method=METHOD, risk=RISK, calibration=found).method
    assert isinstance(made, CalibratedMethod)
    return made


def unsafe_afterwards(method: CalibratedMethod, tasks: int) -> int:
    """Tasks on which something unsafe is deployed after the last calibrated episode."""
    family, count = mutants.two_rooms(), 0
    for number, parameter in enumerate(family.sample(tasks, np.random.default_rng([1, 0]))):
        run = run_learner(
            Learner(method, seed=number),
            family.task(parameter),
            episodes=CALIBRATED + AFTERWARDS,
            seed=int(np.random.SeedSequence([1, 1, number]).generate_state(1)[0]),
            optimal_reward=0.0,
        )
        count += unsafe(run, CALIBRATED)
    return count


@pytest.mark.parametrize(
    ("reserve", "tasks"), [(0.01, 40), *(pytest.param(each, 400, marks=pytest.mark.long) for each in (0.01, 0.1, 0.4))]
)
def test_what_takes_over_is_unsafe_no_more_often_than_the_reserve(reserve: float, tasks: int) -> None:
    count = unsafe_afterwards(calibrated(reserve), tasks)
    assert chance(count, tasks, reserve) > FALSE_ALARM
    if reserve == 0.4:
        assert count > 0, "a reserve that is never used would not need a guarantee"


class Untold(CalibratedMethod):
    """The successor is told none of the episodes before it takes over."""

    def _teach(self, state: CalibratedState, drawn: Integers, outcomes: Outcomes) -> CalibratedState:
        return state


class ToldOften(CalibratedMethod):
    """The successor is told each of them eight times."""

    def _teach(self, state: CalibratedState, drawn: Integers, outcomes: Outcomes) -> CalibratedState:
        for _ in range(8):
            state = super()._teach(state, drawn, outcomes)
        return state


def at_the_whole_risk(method: CalibratedMethod) -> CalibratedMethod:
    return replace(method, successor=sf.learner(two_rooms(), method=METHOD, risk=RISK).method)


def untold_at_the_whole_risk(method: CalibratedMethod) -> CalibratedMethod:
    return made_into(Untold, at_the_whole_risk(method))


def told_often(method: CalibratedMethod) -> CalibratedMethod:
    return made_into(ToldOften, method)


def going_on(method: CalibratedMethod) -> CalibratedMethod:
    """As if it had been calibrated for any number of episodes."""
    return replace(method, calibration=replace(method.calibration, episodes=10**6))


def made_into(kind: type[CalibratedMethod], method: CalibratedMethod) -> CalibratedMethod:
    return kind(method.method, method.calibration, method.certified, method.note, method.successor)


@pytest.mark.short_for(mutant=[untold_at_the_whole_risk])
@pytest.mark.parametrize("mutant", [at_the_whole_risk, untold_at_the_whole_risk, told_often, going_on])
def test_other_successors_are_caught(mutant: Callable[[CalibratedMethod], CalibratedMethod]) -> None:
    tasks = 150 if mutant is told_often else 40
    assert chance(unsafe_afterwards(mutant(calibrated(0.01)), tasks), tasks, 0.01) < FALSE_ALARM


# ------------------------------------------------------------------------------------------------- over all episodes

SHARES = np.linspace(0.1, 0.6, 26).tolist()  # of unsafe tasks, at settings so close that the whole risk is used
UNTRIED = Calibration(METHOD, 100, 0.3, 0.0, None, 40, (), 20, "0" * 64, reserve=0.1)


TRIALS = 3000


def unsafe_in_all(untried: Calibration) -> int:
    """Calibrations, each with a task of its own afterwards that is unsafe: in the episodes that were calibrated for, or
    later, where the proved method uses up its whole reserve."""
    rng, count = np.random.default_rng(6), 0
    for _ in range(TRIALS):
        luck = rng.random(untried.runs)
        found = fixed_sequence_test(untried, SHARES, lambda share, luck=luck: int((luck < share).sum()))
        if found.level is not None:
            count += bool(rng.random() < found.level or rng.random() < UNTRIED.reserve)
    return count


def test_the_reserve_is_a_part_of_the_risk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibration that spends the whole risk on its own episodes has nothing left for those after."""
    monkeypatch.setattr(calibrations, "expected_excess", cache(calibrations.expected_excess))
    assert chance(unsafe_in_all(UNTRIED), TRIALS, UNTRIED.risk) > FALSE_ALARM
    assert chance(unsafe_in_all(replace(UNTRIED, reserve=0.0)), TRIALS, UNTRIED.risk) < FALSE_ALARM


@pytest.mark.long
def test_a_task_is_seldom_unsafe_for_as_long_as_one_likes() -> None:
    """Calibrations on rooms, and tasks of their own that are run for three times as long."""
    rooms, policies, episodes, fresh = mutants.rooms(), mutants.rooms_policies(), 40, 10
    count = deployed = 0
    for seed in range(10):
        found = sf.calibrate(
            policies,
            rooms,
            method=METHOD,
            episodes=episodes,
            risk=0.4,
            reserve=0.2,
            levels=[0.5, 0.8],
            runs=40,
            seed=seed,
            jobs=1,
        )
        if found.level is None:
            continue
        deployed += fresh
        for k, parameter in enumerate(rooms.sample(fresh, np.random.default_rng([seed, 1]))):
            task, own = rooms.task(parameter), 1000 * seed + k
            given = {"method": METHOD, "risk": 0.4, "seed": own, "calibration": found}
            count += unsafe(sf.adapt(policies, task, episodes=3 * episodes, **given))
    assert deployed > 50
    assert chance(count, deployed, 0.4) > FALSE_ALARM
