"""Theorem 12b: whoever calibrates again and again, and uses any of the attempts, keeps to the risk.

What a level of unknown risk p can do at worst is computed exactly: it passes with a binomial probability, and the risk
of what is used is p if one of the attempts passes. Then calibrations are simulated, a new attempt whenever one fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from surefoot.arrays import Floats
from surefoot.learning.calibrated import SHARED, Calibration, expected_excess, fixed_sequence_test

RISK = 0.05
ONLY = Calibration("certified-likelihood", 100, RISK, 0.0, None, 19, (), 20, "0" * 64)
RISKS = np.linspace(0, 1, 20001)

Rule = Callable[[int, int], Calibration]  # (runs, attempt) -> what is asked for


def counted(runs: int, attempt: int) -> Calibration:
    return replace(ONLY, runs=runs, attempt=attempt)


def attempt_ignored(runs: int, attempt: int) -> Calibration:
    return replace(ONLY, runs=runs, attempt=0)


def never_less(runs: int, attempt: int) -> Calibration:
    return replace(ONLY, runs=runs, attempt=1)


@cache
def passing(rule: Rule, runs: int, attempt: int) -> Floats:
    """Probability that a level passes, by its risk."""
    return _at_most(rule(runs, attempt).allowed, runs)


@cache
def _at_most(allowed: int, runs: int) -> Floats:
    return stats.binom.cdf(allowed, runs, RISKS) if allowed >= 0 else np.zeros(len(RISKS))


def some_pass(rule: Rule, runs: Sequence[int]) -> Floats:
    """Probability that at least one of several attempts passes, by the risk of the level."""
    failing = [1 - passing(rule, each, attempt) for attempt, each in enumerate(runs, 1)]
    return 1 - np.prod(failing, axis=0)


def single(rule: Rule, runs: Sequence[int]) -> float:
    """Worst risk of one level that is tried until it passes."""
    return float((RISKS * some_pass(rule, runs)).max())


def joint(rule: Rule, runs: Sequence[int]) -> float:
    """Worst risk over all sequences of levels, however many: ∫ P(an attempt lets a level of risk u or more pass) du."""
    return float(integrate.trapezoid(some_pass(rule, runs), RISKS))


# ------------------------------------------------------------------------------------------------------------- attempts


@pytest.mark.parametrize(
    ("runs", "tries", "risk"), [(19, 10, 0.077), (19, 100, 0.163), (99, 10, 0.060), (2000, 10, 0.051)]
)
def test_what_attempts_that_nobody_counts_come_to(runs: int, tries: int, risk: float) -> None:
    """More than was promised, by a new seed until it passes."""
    assert single(attempt_ignored, [runs] * tries) == pytest.approx(risk, abs=6e-4)
    assert single(attempt_ignored, [runs] * tries) > RISK


HISTORIES = {
    "few runs": [50] * 100,
    "a hundred": [99] * 100,
    "many runs": [2000] * 100,
    "more and more": [50 * 2**k for k in range(10)],
    "fewer and fewer": [20_000 // 2**k for k in range(9)],
}


@pytest.mark.parametrize("runs", HISTORIES.values(), ids=HISTORIES)
def test_all_attempts_together_keep_to_the_risk(runs: Sequence[int]) -> None:
    assert joint(counted, runs) <= RISK


def test_most_of_the_risk_is_used() -> None:
    """Otherwise no mutant would be caught; and each mutant is, by any number of levels or by one of them alone."""
    assert joint(counted, HISTORIES["many runs"]) > 0.9 * RISK
    for runs in ("a hundred", "many runs"):
        assert joint(attempt_ignored, HISTORIES[runs]) > RISK < joint(never_less, HISTORIES[runs])
    assert single(attempt_ignored, HISTORIES["a hundred"]) > RISK < single(never_less, HISTORIES["a hundred"])


def test_a_first_attempt_asks_for_little_less_and_later_ones_for_ever_less() -> None:
    """As the table of the theorem's page says, and for a judged calibration the next one."""
    pages = Path(__file__).parents[2] / "docs/guarantees"
    rows = re.findall(r"^\|(( \d+ \|){6})$", (pages / "theorem-12.md").read_text(), re.MULTILINE)
    told = {int(runs): [int(each) for each in rest] for runs, *rest in (re.findall(r"\d+", row) for row, _ in rows)}
    assert told == {runs: [counted(runs, a).allowed for a in (0, 1, 2, 3, 10)] for runs in (300, 600, 2000)}
    assert told[2000] == [99, 91, 86, 82, 65]
    judged = [replace(counted(600, attempt), judge_error=RISK / 10).allowed for attempt in range(4)]
    assert "{} may be unsafe in the only attempt and {}, {} and {}".format(*judged) in " ".join(
        (pages / "theorem-12c.md").read_text().split()
    )
    assert counted(45, 1).allowed == -1 < counted(46, 1).allowed == 0


@pytest.mark.parametrize("error", [0.005, 0.01])
def test_with_an_error_all_attempts_share_it(error: float) -> None:
    """Theorem 12a: the probability that any of them lets a level pass that is riskier than risk - error."""
    tried = [replace(ONLY, error=error, runs=2000, attempt=attempt) for attempt in range(1, 30)]
    wrong = [stats.binom.cdf(each.allowed, each.runs, RISK - error) for each in tried if each.allowed >= 0]
    assert 0.5 * error < sum(wrong) <= error


@pytest.mark.parametrize("above", [0.0, 0.04, 0.3])
@pytest.mark.parametrize(("allowed", "runs"), [(-1, 20), (0, 20), (3, 20), (20, 20), (99, 2000)])
def test_the_expected_excess_is_the_integral(allowed: int, runs: int, above: float) -> None:
    chance = lambda u: stats.binom.cdf(allowed, runs, u) if allowed >= 0 else 0.0  # noqa: E731
    ends = sorted({above, *(p for p in (allowed / runs, 0.1) if p > above), 1.0})
    area = sum(integrate.quad(chance, low, high, limit=200)[0] for low, high in pairwise(ends))
    assert expected_excess(allowed, runs, above) == pytest.approx(area, abs=1e-9)


# ----------------------------------------------------------------------------------------------- simulated, with levels


ATTEMPTS = 100


def risk_after(rule: Rule, histories: int = 300) -> tuple[float, float]:
    """Mean risk of what is deployed by somebody who calibrates again until something passes, and its standard error."""
    levels, rng = [0.1, 0.12, 0.14], np.random.default_rng(7)  # the risk of a level is the level here
    risks = []
    for _ in range(histories):
        found = rule(50, 1)
        for attempt in range(1, ATTEMPTS + 1):
            found = fixed_sequence_test(rule(50, attempt), levels, lambda level: int(rng.binomial(50, level)))
            if found.level is not None or not found.passes(0):  # nor will a later one
                break
        risks.append(found.level or 0.0)
    return float(np.mean(risks)), float(np.std(risks) / np.sqrt(histories))


def test_calibrating_until_something_passes_is_safe_if_attempts_are_counted() -> None:
    mean, error = risk_after(counted)
    assert mean - 4 * error <= RISK
    mean, error = risk_after(attempt_ignored)
    assert mean - 4 * error > RISK


# ------------------------------------------------------------------------------------------------------ without a level


@pytest.mark.parametrize(("runs", "risk"), [(19, 0.068), (99, 0.059), (2000, 0.052)])
def test_what_falling_back_costs(runs: int, risk: float) -> None:
    """The method as it is proved where no level passes: risk + ∫ (1 - q) up to the risk if the count uses all of it."""
    found = counted(runs, 0)
    failing = lambda p: 1 - stats.binom.cdf(found.allowed, runs, p)  # noqa: E731
    assert found.fallback_risk <= RISK + integrate.quad(failing, 0, RISK)[0] + 1e-9
    assert found.fallback_risk == pytest.approx(risk, abs=6e-4)


def test_falling_back_after_several_attempts() -> None:
    """What is used is the worst of the method and of all levels that passed: ∫ from the risk on is added."""
    for attempts in (1, 2, 5):
        beyond = RISKS >= RISK
        more = integrate.trapezoid(some_pass(counted, [2000] * attempts)[beyond], RISKS[beyond])
        assert RISK + more - 1e-7 <= counted(2000, attempts).fallback_risk <= RISK + (1 - SHARED) * RISK


# ------------------------------------------------------------------------------------------ the documented calibrations


def worst(tries: Sequence[tuple[int, int]], whichever: bool = False) -> float:
    """Largest risk of single levels, each tried once, (most that pass, runs), of which the first to pass is used; or
    whichever of those that pass is riskiest."""

    def negative(risks: Floats) -> float:
        total, still = 0.0, 1.0
        for k in np.argsort(risks)[::-1] if whichever else range(len(tries)):
            chance = stats.binom.cdf(*tries[k], risks[k])
            total, still = total + still * risks[k] * chance, still * (1 - chance)
        return -total

    starts = [start * np.linspace(0.95, 1.05, len(tries)) for start in (0.03, 0.04, 0.05)]
    options = {"xatol": 1e-6, "fatol": 1e-8, "maxiter": 2000}
    return -min(optimize.minimize(negative, start, method="Nelder-Mead", options=options).fun for start in starts)


def test_the_tries_of_the_documented_level() -> None:
    """docs/experiments.md: 0.125 failed on 2,000 runs, 0.11 passed on 1,000, by the rule for only one attempt."""
    assert (counted(2000, 0).allowed, counted(1000, 0).allowed) == (99, 49)
    assert worst([(99, 2000), (49, 1000)]) == pytest.approx(0.0443, abs=5e-5)
    assert [counted(1000, attempt).allowed for attempt in (2, 4, 6, 7)] == [40, 36, 32, 30]
    assert worst([(28, 1000), (66, 2000), (99, 2000), (49, 1000)], whichever=True) == pytest.approx(0.0461, abs=1e-4)
