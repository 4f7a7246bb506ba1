"""The promise of a confidence sequence: the mean leaves the interval at *any* time with probability at most `level`.

Simulate, count the sequences that ever exclude their mean, and compare the count with the level by a binomial test.
A correct sequence fails one such test with probability below FALSE_ALARM; everything is seeded. The broken variants
at the end must be caught by the same test.
"""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from surefoot.confidence import DEFAULT_STAKES, Betting, EmpiricalBernstein, Hoeffding, Running

FALSE_ALARM = 1e-4
LENGTH = 2000
RULES = (Hoeffding, EmpiricalBernstein, Betting)


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


def exclusions(path: Callable, law: str, runs: int, length: int = LENGTH) -> int:
    """How many of `runs` sequences have a time at which the interval of `path` misses the mean."""
    mean, sample = LAWS[law]
    rng = np.random.default_rng([sorted(LAWS).index(law), runs])
    missed = 0
    for _ in range(runs // 100):
        lower, upper = path(sample(rng, length, 100))
        missed += int(((lower > mean) | (upper < mean)).any(axis=0).sum())
    return missed


def p_value(missed: int, runs: int, level: float) -> float:
    """Probability of that many misses or more if each has probability `level`."""
    return float(stats.binomtest(missed, runs, level, alternative="greater").pvalue)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("level", [0.05, 0.5])
@pytest.mark.parametrize("rule", RULES)
def test_mean_is_ever_excluded_with_probability_at_most_the_level(rule, level, law):
    runs = 200 if rule is Betting else 600
    assert p_value(exclusions(rule(level).path, law, runs), runs, level) > FALSE_ALARM


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("level", [0.05, 0.5])
@pytest.mark.parametrize("rule", RULES)
def test_mean_is_ever_excluded_with_probability_at_most_the_level_more_runs(rule, level, law):
    runs = 2000
    assert p_value(exclusions(rule(level).path, law, runs, length=4000), runs, level) > FALSE_ALARM


@pytest.mark.parametrize("side", ["lower", "upper"])
@pytest.mark.parametrize("rule", RULES)
def test_one_sided_bound_spends_the_whole_level_on_its_side(rule, side):
    runs, level = 300, 0.5
    missed = exclusions(rule(level, side=side).path, "coin 0.1", runs)
    assert p_value(missed, runs, level) > FALSE_ALARM
    if rule is not Hoeffding:
        assert missed > 0.1 * runs  # the level is used, not only kept


@pytest.mark.parametrize("rule", RULES)
def test_running_intersection_fails_exactly_when_the_current_interval_ever_fails(rule):
    runs = 100
    running = exclusions(lambda values: final_only(Running(rule(0.5)), values), "coin 0.1", runs)
    assert running == exclusions(rule(0.5).path, "coin 0.1", runs)


def final_only(sequence, values):
    lower, upper = sequence.interval(sequence.update(sequence.start(values.shape[1:]), values))
    return lower[None], upper[None]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("rule", RULES)
def test_interval_holds_at_a_time_chosen_by_looking_at_it(rule, law):
    """Stop as soon as the interval has halved the distance to 0 or to 1, in blocks whose size depends on the state."""
    runs, level = 600, 0.5
    mean, sample = LAWS[law]
    values = sample(np.random.default_rng(7), LENGTH, runs)
    sequence = rule(level)
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


def radius_halved(rule, level):
    def path(values):
        average = np.cumsum(values, axis=0) / np.arange(1, len(values) + 1)[:, None]
        lower, upper = rule(level).path(values)
        return (average + lower) / 2, (average + upper) / 2

    return path


def level_not_split_between_sides(rule, level):
    return lambda values: (rule(level, side="lower").path(values)[0], rule(level, side="upper").path(values)[1])


def best_stake_in_hindsight(level):
    """The largest capital in place of the average one: a union over the stakes that nobody paid for."""

    def path(values):
        paths = [Betting(level, stakes=(stake,)).path(values) for stake in DEFAULT_STAKES]
        return np.max([lower for lower, _ in paths], axis=0), np.min([upper for _, upper in paths], axis=0)

    return path


def hoeffding_for_one_time_used_at_all(level):
    def path(values):
        count = np.arange(1, len(values) + 1)[:, None]
        average, radius = np.cumsum(values, axis=0) / count, np.sqrt(np.log(2 / level) / (2 * count))
        return average - radius, average + radius

    return path


def bernstein_without_its_variance_term(level):
    sequence = EmpiricalBernstein(level)

    def path(values):
        state = sequence.history(sequence.start(values.shape[1:]), values)
        weight, weighted = state.sums[..., 2], state.sums[..., 3]
        return (weighted - np.log(2 / level)) / weight, (weighted + np.log(2 / level)) / weight

    return path


MUTANTS = {
    "Hoeffding, radius halved": (radius_halved(Hoeffding, 0.05), 0.05, "fair coin"),
    "Hoeffding for one time": (hoeffding_for_one_time_used_at_all(0.05), 0.05, "fair coin"),
    "Bernstein, radius halved": (radius_halved(EmpiricalBernstein, 0.05), 0.05, "coin 0.1"),
    "Bernstein without variance": (bernstein_without_its_variance_term(0.05), 0.05, "coin 0.1"),
    "betting, radius halved": (radius_halved(Betting, 0.05), 0.05, "skewed"),
    "betting, best stake": (best_stake_in_hindsight(0.5), 0.5, "coin 0.1"),
    "betting, level not split": (level_not_split_between_sides(Betting, 0.5), 0.5, "beta"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_broken_variant_is_caught(mutant):
    path, level, law = MUTANTS[mutant]
    runs = 600 if "split" in mutant else 300
    assert p_value(exclusions(path, law, runs), runs, level) < FALSE_ALARM
