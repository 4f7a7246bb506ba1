"""The promise of a confidence sequence: the mean leaves the interval at *any* time with probability at most `level`.

Simulate, count the sequences that ever exclude their mean, and compare the count with the level by a binomial test.
A correct sequence fails one such test with probability below FALSE_ALARM; everything is seeded. The broken variants
at the end must be caught by the same test.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from scipy import stats

from confidence_paths import path
from surefoot.confidence import DEFAULT_STAKES, Betting

FALSE_ALARM = 1e-4
LENGTH = 2000


# ---------------------------------------------------------------------------------- laws: (mean, sample(rng, n, runs))


def coin(probability):
    return probability, lambda rng, n, runs: (rng.random((n, runs)) < probability).astype(float)


def beta(a, b):
    return a / (a + b), lambda rng, n, runs: rng.beta(a, b, (n, runs))


def skewed(rng, n, runs):
    """Almost always 1/99, one time in a hundred 1: mean 0.02."""
    return np.where(rng.random((n, runs)) < 0.01, 1.0, 0.01 / 0.99)


def reacting(rng, n, runs):
    """Not independent: wild while the sum is ahead of its mean 0.3, calm while it is behind."""
    draws, values, lead = rng.random((n, runs)), np.empty((n, runs)), np.zeros(runs)
    for t in range(n):
        values[t] = np.where(lead > 0, draws[t] < 0.3, 0.2 + 0.2 * draws[t])
        lead += values[t] - 0.3
    return values


LAWS = {
    "fair coin": coin(0.5),
    "coin 0.1": coin(0.1),
    "beta": beta(1, 3),
    "skewed": (0.02, skewed),
    "reacting": (0.3, reacting),
}


# ------------------------------------------------------------------------------------------------------- the one test


def exclusions(intervals: Callable, law: str, runs: int, length: int = LENGTH) -> int:
    """How many of `runs` sequences have a time at which the interval misses the mean."""
    mean, sample = LAWS[law]
    rng = np.random.default_rng([sorted(LAWS).index(law), runs])
    missed = 0
    for _ in range(runs // 100):
        lower, upper = intervals(sample(rng, length, 100))
        missed += int(((lower > mean) | (upper < mean)).any(axis=0).sum())
    return missed


def p_value(missed: int, runs: int, level: float) -> float:
    """Probability of that many misses or more if each has probability `level`."""
    return float(stats.binomtest(missed, runs, level, alternative="greater").pvalue)


@pytest.mark.short_for(level=[0.5], law=["skewed", "reacting"])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("level", [0.05, 0.5])
def test_mean_is_ever_excluded_with_probability_at_most_the_level(level, law):
    runs = 200
    assert p_value(exclusions(partial(path, Betting(level)), law, runs, length=500), runs, level) > FALSE_ALARM


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("level", [0.05, 0.5])
def test_mean_is_ever_excluded_with_probability_at_most_the_level_more_runs(level, law):
    runs = 1000
    assert p_value(exclusions(partial(path, Betting(level)), law, runs, length=2000), runs, level) > FALSE_ALARM


@pytest.mark.short_for(side=["lower"])
@pytest.mark.parametrize("side", ["lower", "upper"])
def test_one_sided_bound_spends_the_whole_level_on_its_side(side):
    runs, level = 300, 0.5
    missed = exclusions(partial(path, Betting(level, side=side)), "coin 0.1", runs, length=500)
    assert p_value(missed, runs, level) > FALSE_ALARM
    assert missed > 0.1 * runs  # the level is used, not only kept


@pytest.mark.parametrize("law", LAWS)
def test_interval_holds_at_a_time_chosen_by_looking_at_it(law):
    """Stop as soon as the interval has halved the distance to 0 or to 1, in blocks whose size depends on the state."""
    runs, level = 600, 0.5
    mean, sample = LAWS[law]
    values = sample(np.random.default_rng(7), LENGTH, runs)
    sequence = Betting(level)
    state, stopped, missed = sequence.start((runs,)), np.zeros(runs, dtype=bool), np.zeros(runs, dtype=bool)
    while state.count < LENGTH and not stopped.all():
        size = 1 + int(10 * sequence.interval(state)[1].mean())
        state = sequence.update(state, values[state.count : state.count + size])
        lower, upper = sequence.interval(state)
        stop = ~stopped & ((lower > mean / 2) | (upper < (1 + mean) / 2))
        missed |= stop & ((lower > mean) | (upper < mean))
        stopped |= stop
    assert stopped.mean() > 0.5  # the rule does stop
    assert p_value(int(missed.sum()), runs, level) > FALSE_ALARM


# ------------------------------------------------------------- broken variants, each caught under the law named with it


def radius_halved(level):
    def halved(values):
        average = np.cumsum(values, axis=0) / np.arange(1, len(values) + 1)[:, None]
        lower, upper = path(Betting(level), values)
        return (average + lower) / 2, (average + upper) / 2

    return halved


def level_not_split_between_sides(level):
    return lambda values: (
        path(Betting(level, side="lower"), values)[0],
        path(Betting(level, side="upper"), values)[1],
    )


def best_stake_in_hindsight(level):
    """The largest capital in place of the average one: a union over the stakes that nobody paid for."""

    def best(values):
        paths = [path(Betting(level, stakes=(stake,)), values) for stake in DEFAULT_STAKES]
        return np.max([lower for lower, _ in paths], axis=0), np.min([upper for _, upper in paths], axis=0)

    return best


def hoeffding_for_one_time_used_at_all(level):
    def fixed(values):
        count = np.arange(1, len(values) + 1)[:, None]
        average, radius = np.cumsum(values, axis=0) / count, np.sqrt(np.log(2 / level) / (2 * count))
        return average - radius, average + radius

    return fixed


MUTANTS = {
    "Hoeffding for one time": (hoeffding_for_one_time_used_at_all(0.05), 0.05, "fair coin"),
    "radius halved": (radius_halved(0.05), 0.05, "skewed"),
    "best stake": (best_stake_in_hindsight(0.5), 0.5, "coin 0.1"),
    "level not split": (level_not_split_between_sides(0.5), 0.5, "beta"),
}


@pytest.mark.short_for(mutant=["Hoeffding for one time", "radius halved"])
@pytest.mark.parametrize("mutant", MUTANTS)
def test_broken_variant_is_caught(mutant):
    intervals, level, law = MUTANTS[mutant]
    runs = {"level not split": 600, "radius halved": 100}.get(mutant, 300)
    assert p_value(exclusions(intervals, law, runs), runs, level) < FALSE_ALARM
