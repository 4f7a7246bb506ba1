"""Theorem 12: what is deployed at the level that a calibration let pass is unsafe with probability at most the risk.
Theorem 12a: with an error, it lets a level pass that it should not have with at most that probability.

Both are counted on calibrations without a learner: unsafe tasks at a level are a binomial count of known
probability. Then on rooms, with calibrations of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

import surefoot as sf
from guarantees import mutants
from surefoot.arrays import Floats
from surefoot.learning import calibrated as calibrations
from surefoot.learning.calibrated import Calibration, fixed_sequence_test
from surefoot.policyset.policy_value_set import PolicyValueSet

FALSE_ALARM = 1e-4
RISK, ERROR, RUNS = 0.3, 0.1, 60
UNTRIED = Calibration("certified-likelihood", 100, RISK, ERROR, None, RUNS, (), 20, "0" * 64)
LEVELS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]

# Truth as it may be: the probability of an unsafe task at each level. In the first all levels but one are too risky by
# a hair, which is worst for whoever tries many of them; in the second one after the other becomes so.
TRUTHS = {
    "by a hair": [0.05, *[RISK - ERROR + 1e-3] * 7],
    "one by one": np.linspace(0.05, 0.5, 8).tolist(),
    "none is": [RISK - ERROR + 1e-3] * 8,
}

Search = Callable[[Calibration, Sequence[float], Callable[[float], int]], Calibration]


def wrong(search: Search, truth: Sequence[float], calibrations: int = 2000) -> int:
    """Calibrations that end with a level at which the risk exceeds what is left of it."""
    chances, rng = dict(zip(LEVELS, truth, strict=True)), np.random.default_rng(5)
    levels = (
        search(UNTRIED, LEVELS, lambda level: rng.binomial(RUNS, chances[level])).level for _ in range(calibrations)
    )
    return sum(level is not None and chances[level] > RISK - ERROR for level in levels)


def chance(count: int, calibrations: int, most: float) -> float:
    """Of so many or more, if the promise is kept."""
    return float(stats.binom.sf(count - 1, calibrations, most))


@pytest.mark.parametrize("truth", TRUTHS)
def test_levels_that_are_too_risky_seldom_pass(truth: str) -> None:
    assert chance(wrong(fixed_sequence_test, TRUTHS[truth]), 2000, ERROR) > FALSE_ALARM


def test_so_many_that_the_count_has_power() -> None:
    """The error is used: otherwise nothing would be caught."""
    assert wrong(fixed_sequence_test, TRUTHS["by a hair"]) > 0.4 * ERROR * 2000


def largest_that_passes(untried: Calibration, levels: Sequence[float], unsafe: Callable[[float], int]) -> Calibration:
    """Without stopping at the first that fails: every level has a chance of its own to slip through."""
    counts = [(level, unsafe(level)) for level in levels]
    passed = [(level, count) for level, count in counts if untried.passes(count)]
    return replace(untried, level=passed[-1][0], counts=passed[-1:]) if passed else untried


def mean_below_the_risk(untried: Calibration, levels: Sequence[float], unsafe: Callable[[float], int]) -> Calibration:
    """The share itself in place of a bound on it."""
    passed = []
    for level in levels:
        count = unsafe(level)
        if count / untried.runs > untried.risk - untried.error:
            break
        passed.append((level, 0))
    return replace(untried, level=passed[-1][0], counts=tuple(passed)) if passed else untried


@pytest.mark.parametrize("mutant", [largest_that_passes, mean_below_the_risk])
def test_other_searches_are_caught(mutant: Search) -> None:
    assert chance(wrong(mutant, TRUTHS["by a hair"]), 2000, ERROR) < FALSE_ALARM


# -------------------------------------------------------------------------------------------------- the joint promise

CALIBRATIONS = 8000
JOINT = replace(UNTRIED, error=0.0, runs=20)
FINE = np.linspace(0.1, 0.6, 26).tolist()  # neighbours are so close that hardly anything of the risk is left unused
JOINT_TRUTHS = {
    "as at the levels": FINE,
    "all the same": [0.05, *[0.35] * 19],  # what a search finds that has a chance at each of them
    "up and down": [0.2, 0.45] * 10,
}


@pytest.fixture(autouse=True)
def excess_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every level that is added has all before it checked once more."""
    monkeypatch.setattr(calibrations, "expected_excess", cache(calibrations.expected_excess))


@cache
def unsafe_after(search: Search, truth: str, together: bool) -> int:
    """Calibrations, each with a task of its own afterwards, that is unsafe.

    together: a run that is unsafe at one level is so at all that are no less risky; otherwise each by itself.
    """
    levels, rng, unsafe = FINE[: len(JOINT_TRUTHS[truth])], np.random.default_rng(6), 0
    chances = dict(zip(levels, JOINT_TRUTHS[truth], strict=True))
    for _ in range(CALIBRATIONS):
        luck = rng.random(JOINT.runs)

        def count(level: float, luck: Floats = luck) -> int:
            return int(((luck if together else rng.random(JOINT.runs)) < chances[level]).sum())

        found = search(JOINT, levels, count)
        unsafe += found.level is not None and rng.random() < chances[found.level]
    return unsafe


@pytest.mark.parametrize(
    ("truth", "together"),
    [
        pytest.param("as at the levels", True, marks=pytest.mark.long),
        ("all the same", False),
        *(pytest.param(truth, truth == "all the same", marks=pytest.mark.long) for truth in JOINT_TRUTHS),
        pytest.param("up and down", True, marks=pytest.mark.long),
    ],
)
def test_a_task_after_the_calibration_is_seldom_unsafe(truth: str, together: bool) -> None:
    assert chance(unsafe_after(fixed_sequence_test, truth, together), CALIBRATIONS, RISK) > FALSE_ALARM


@pytest.mark.long
def test_nearly_all_of_the_risk_is_used() -> None:
    """6 of 21: otherwise nothing would be caught."""
    assert unsafe_after(fixed_sequence_test, "as at the levels", True) > 0.9 * 6 / 21 * CALIBRATIONS


@pytest.mark.parametrize(
    ("mutant", "truth", "together"),
    [
        (mean_below_the_risk, "as at the levels", True),
        pytest.param(largest_that_passes, "all the same", False, marks=pytest.mark.long),
    ],
)
def test_other_searches_break_the_joint_promise(mutant: Search, truth: str, together: bool) -> None:
    assert chance(unsafe_after(mutant, truth, together), CALIBRATIONS, RISK) < FALSE_ALARM


# ------------------------------------------------------------------------------------------------------- with a learner

TRIALS, FRESH, EPISODES = 12, 12, 60


@cache
def policies() -> PolicyValueSet:
    return mutants.rooms_policies()


def calibrated(seed: int, error: float) -> Calibration:
    return sf.calibrate(
        policies(),
        mutants.rooms(),
        method="certified-likelihood",
        episodes=EPISODES,
        risk=RISK,
        error=error,
        levels=[0.4, 0.6, 0.8],
        runs=RUNS,
        seed=seed,
        jobs=1,
    )


def unsafe_fresh(found: Calibration, seed: int) -> int:
    """Of tasks that are drawn anew."""
    drawn = mutants.rooms().sample(FRESH, np.random.default_rng([seed, 1]))
    runs = (
        sf.adapt(
            policies(),
            mutants.rooms().task(parameter),
            method=found.method,
            episodes=EPISODES,
            risk=RISK,
            seed=1000 * seed + k,
            calibration=found,
        )
        for k, parameter in enumerate(drawn)
    )
    return sum(run.unsafe_episodes > 0 for run in runs)


@pytest.mark.long
@pytest.mark.parametrize("error", [ERROR, 0.0])
def test_what_is_deployed_at_the_level_that_was_found_is_safe(error: float) -> None:
    unsafe = raised_levels = 0
    for seed in range(TRIALS):
        found = calibrated(seed, error)
        if found.level is not None:
            raised_levels += 1
            unsafe += unsafe_fresh(found, seed)
    assert raised_levels > TRIALS / 2
    assert chance(unsafe, TRIALS * FRESH, RISK) > FALSE_ALARM
