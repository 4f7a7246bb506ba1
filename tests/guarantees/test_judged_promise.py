"""Theorem 12c: a calibration on a simulator, where what was deployed is judged on fresh episodes, keeps the promise.

The judge's own error is counted on mixtures that break their budget by a hair, which is worst for it. The promise is
counted on the tasks of `spending`, whose true values are known though nobody can read them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

import surefoot as sf
from contracts.spending import BUDGET, HORIZON, UNITS, Dial, Spending, spending_set, true_values
from surefoot.cmdp.episode import Outcomes
from surefoot.learning.calibrated import Calibration, fixed_sequence_test
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.simulate.judge import SAFE_ALONE, Judge, Weighted, strictest
from surefoot.simulate.runner import simulate
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import family

FALSE_ALARM = 1e-4
ERROR, MOST, JUDGED = 0.1, 1000, 800
HAZARD = 0.6
EDGE = BUDGET / HORIZON / HAZARD  # the dial whose cost is the budget


def chance(count: int, trials: int, most: float) -> float:
    """Of so many or more, if the promise is kept."""
    return float(stats.binom.sf(count - 1, trials, most))


# ------------------------------------------------------------------------------------------------- the judge by itself


def judge(seed: int, *dials: float, error: float = ERROR, most: int = MOST) -> Judge:
    policies = [Dial(dial) for dial in dials]
    return Judge(Spending(HAZARD), policies, steps=HORIZON, error=error, most=most, seed=seed, rounding=1e-9)


def calls_it_safe(seed: int, error: float = ERROR) -> bool:
    """A mixture of two dials that breaks the budget by a hair."""
    return judge(seed, EDGE - 0.1, EDGE + 0.1 + 1e-6, error=error).shows_safe([((0, 1), (0.5, 0.5))])


def mean_within_the_budget(seed: int) -> bool:
    """The mean in place of a bound on it."""
    episodes = judge(seed, EDGE + 1e-6)._episodes(0, MOST)
    return bool(episodes.cost.mean() <= BUDGET)


def best_of_many(seed: int) -> bool:
    """Judged on the episodes by which it was chosen: the dial that happened to cost least, of thirty alike."""
    found = judge(seed, *[EDGE + 1e-6] * 30)
    cheapest = min(range(30), key=lambda k: float(found._episodes(k, MOST).cost.mean()))
    return found.shows_safe([((cheapest,), (1.0,))])


def test_an_unsafe_mixture_seldom_counts_as_safe() -> None:
    assert chance(sum(calls_it_safe(seed) for seed in range(JUDGED)), JUDGED, ERROR) > FALSE_ALARM


@pytest.mark.parametrize(
    ("mutant", "trials"),
    [
        (lambda seed: calls_it_safe(seed, error=0.6), 250),
        (mean_within_the_budget, 120),
        pytest.param(best_of_many, 150, marks=pytest.mark.long),
    ],
    ids=["too lenient", "the mean itself", "the episodes it was chosen by"],
)
def test_other_judges_are_caught(mutant: Callable[[int], bool], trials: int) -> None:
    assert chance(sum(mutant(seed) for seed in range(trials)), trials, ERROR) < FALSE_ALARM


def test_what_is_safe_by_a_margin_is_shown_so_and_soon() -> None:
    """A dial that costs 5 of 6 takes the first round of episodes; one that costs 5.9 takes more; 7 is given up."""
    found = judge(0, EDGE * 5 / 6, EDGE * 5.9 / 6, EDGE * 7 / 6, most=20_000)
    assert [found.shows_safe([((k,), (1.0,))]) for k in range(3)] == [True, True, False]
    sizes = [len(found._fresh[k]._outcomes) for k in range(3)]
    assert sizes[0] == sizes[2] == 250 < sizes[1]


def test_one_that_cannot_be_shown_counts_as_unsafe() -> None:
    assert not judge(0, EDGE * 0.999).shows_safe([((0,), (1.0,))])


@pytest.mark.parametrize("seed", range(50))
def test_the_strictest_of_some_mixtures_are_safe_only_if_all_are(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cost, budget = rng.random(4), rng.random()
    pairs = [((0, other), (1 - share, share)) for other, share in zip([1, 2, 3] * 3, rng.random(9), strict=True)]
    mixtures = [SAFE_ALONE, *pairs, ((1, 2), (0.5, 0.5)), ((0, 1, 2), tuple(rng.dirichlet(np.ones(3)).tolist()))]

    def all_safe(some: Sequence[Weighted]) -> bool:
        return all(cost[list(numbers)] @ shares <= budget for numbers, shares in some)

    tested = strictest(mixtures)
    assert all_safe(tested) == all_safe(mixtures)
    assert len(tested) <= 1 + 3 + 2
    assert strictest(mixtures[1:]) == mixtures[1:], "without the safe policy nothing follows"


def test_the_episodes_are_none_of_the_learners() -> None:
    """Fresh ones: other streams of the same seed."""
    found, made = judge(7, 0.5), sf.learner(spending_set(), method="safe-only", seed=7)
    seen: list[Outcomes] = []
    update = made.method.update

    def record(state: object, episode: int, drawn: object, outcomes: Outcomes) -> object:
        seen.append(outcomes)
        return update(state, episode, drawn, outcomes)

    object.__setattr__(made.method, "update", record)
    simulate(made, Spending(HAZARD), episodes=50, seed=7)
    mine = np.concatenate([each.reward for each in seen])
    assert not np.array_equal(mine[:50], found._episodes(0, 50).reward)


# ---------------------------------------------------------------------------------------------------- the whole promise

RISK, RUNS, EPISODES = 0.3, 40, 60
TASKS = family(Spending, Uniform(0.2, 0.8))


@cache
def policies() -> PolicyValueSet:
    return spending_set(cells=40)


def calibrate(seed: int, **changes: object) -> Calibration:
    given = {"method": "certified-returns", "episodes": EPISODES, "risk": RISK, "runs": RUNS, "seed": seed, "jobs": 1}
    return sf.calibrate(policies(), TASKS, **{**given, "judged_on": 2000, **changes})


def is_unsafe(found: Calibration, seed: int) -> bool:
    """Of a task that is drawn anew, by its true values."""
    hazard = float(TASKS.sample(1, np.random.default_rng([seed, 77]))[0, 0])
    made = sf.learner(policies(), method=found.method, risk=RISK, seed=seed, calibration=found)
    deployed = simulate(made, Spending(hazard), episodes=EPISODES, seed=seed)
    costs = np.array([true_values(hazard, policy.share)[1] for policy in policies().policies])
    return any(float(each.weights @ costs[each.indices]) > BUDGET + 1e-9 for _, each in deployed)


WIDTHS_AND_LEVELS = ((1.0, 0.3), (0.5, 0.4), (0.1, 0.6), (0.0, 0.9))
PATHS_TRIED = {
    "certified-returns": [{"width": width, "level": level, "slack": 0.05} for width, level in WIDTHS_AND_LEVELS],
    "posterior": [{"share": share, "temperature": 1.0, "slack": 0.05} for share in (0.005, 0.02, 0.1, 0.3)],
}


@pytest.mark.long
@pytest.mark.parametrize("method", PATHS_TRIED)
def test_a_task_after_a_calibration_is_seldom_unsafe(method: str) -> None:
    unsafe, deployed, trials = 0, 0, 30
    for seed in range(trials):
        found = calibrate(seed, method=method, path=PATHS_TRIED[method])
        if found.level is not None:
            deployed += 1
            unsafe += is_unsafe(found, seed)
    assert deployed > trials / 2
    assert chance(unsafe, trials, RISK) > FALSE_ALARM


def test_a_calibration_on_a_simulator() -> None:
    found = calibrate(
        0, path=[{"width": 0.5, "level": 0.3, "slack": 0.05}, {"width": 0.1, "level": 0.6, "slack": 0.05}]
    )
    assert found.judge_error == pytest.approx(0.1 * RISK)
    assert found.judged_on == 2000
    assert found.level is not None
    made = sf.learner(policies(), method="certified-returns", risk=RISK, calibration=found)
    assert made.certified
    assert not sf.learner(policies(), method="certified-returns", risk=RISK, width=0.5).certified


# ------------------------------------------------------------------------------------------- choosing among paths

UNTRIED = Calibration("any", 100, RISK, 0.0, None, 20, (), 20, "0" * 64)
PATHS = 30  # each of one setting, too risky by a little
TOO_RISKY = RISK + 0.05


def unsafe_after(choose: Callable[[Sequence[int]], int], pilot: bool, trials: int = 4000) -> int:
    """Calibrations, each with a task of its own afterwards that is unsafe, on the path that `choose` takes by counts of
    unsafe tasks: those of a pilot, or those of the calibration itself."""
    rng, unsafe = np.random.default_rng(8), 0
    for _ in range(trials):
        counts = rng.binomial(UNTRIED.runs, TOO_RISKY, PATHS)
        by = rng.binomial(UNTRIED.runs, TOO_RISKY, PATHS) if pilot else counts
        chosen = int(counts[choose(by)])
        found = fixed_sequence_test(UNTRIED, [0.5], lambda _, count=chosen: count)
        unsafe += found.level is not None and rng.random() < TOO_RISKY
    return unsafe


def test_a_path_chosen_by_a_pilot_keeps_the_promise_and_one_by_the_calibration_does_not() -> None:
    def cheapest(counts: Sequence[int]) -> int:
        return int(np.argmin(counts))

    assert chance(unsafe_after(cheapest, pilot=True), 4000, RISK) > FALSE_ALARM
    assert chance(unsafe_after(cheapest, pilot=False), 4000, RISK) < FALSE_ALARM


def test_settings_in_the_order_of_their_counts_break_it() -> None:
    """Each of thirty has a chance to slip through once the order follows from what was counted."""
    rng, unsafe, trials = np.random.default_rng(9), {"declared": 0, "reordered": 0}, 1500
    for _ in range(trials):
        counts = dict(enumerate(rng.binomial(UNTRIED.runs, TOO_RISKY, PATHS).tolist()))
        settings = [{"place": place} for place in counts]
        for name, order in (
            ("declared", settings),
            ("reordered", sorted(settings, key=lambda setting: counts[setting["place"]])),
        ):
            found = fixed_sequence_test(UNTRIED, order, lambda setting, told=counts: told[setting["place"]])
            unsafe[name] += found.level is not None and rng.random() < TOO_RISKY
    assert chance(unsafe["declared"], trials, RISK) > FALSE_ALARM
    assert chance(unsafe["reordered"], trials, RISK) < FALSE_ALARM


def test_judging_and_the_reserve_are_parts_of_the_risk() -> None:
    """With them fewer tasks may be unsafe, as many as a smaller risk allows."""
    smaller = replace(UNTRIED, risk=0.2, runs=400)
    parts = replace(UNTRIED, runs=400, judge_error=0.04, reserve=0.06)
    assert parts.allowed == smaller.allowed < replace(UNTRIED, runs=400).allowed
    assert UNITS.budget[0] == BUDGET
