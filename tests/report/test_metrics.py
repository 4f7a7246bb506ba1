"""Summaries of hand-made runs, thinning that hides nothing, and intervals against tables and simulation."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from made_runs import made_run
from surefoot.errors import InvalidInput
from surefoot.report.metrics import binomial_interval, mean_interval, ratio_interval, summarise, totals
from surefoot.simulate.run import Run


def run(gaps, margin, weight=0.0, *, method="certified", certified=True) -> Run:
    """A run with the given regret per episode."""
    return made_run(method, certified, -np.asarray(gaps, dtype=float), margin, weight)


def test_summary_of_two_tasks_worked_by_hand():
    summary = summarise([run([2, 1, 1], [0.5, 0.25, -0.1], [0, 0.5, 1]), run([4, 2, 0], [0.3, 0.25, 0.1], [0, 0, 0.5])])
    assert summary["certified"] is True
    assert (summary["tasks"], summary["episodes"]) == (2, 3)
    assert summary["regret"] == [4.0, 6.0]
    assert summary["regret_mean"] == 5.0
    # mean 5, standard error 1, t quantile 12.7062 for one degree of freedom
    assert summary["regret_interval"] == pytest.approx([5 - 12.70620474, 5 + 12.70620474], abs=1e-7)
    assert summary["unsafe_tasks"] == 1
    assert summary["unsafe_episodes"] == 1
    assert summary["min_margin"] == -0.1
    curve = summary["curve"]
    assert curve["episode"] == [1, 2, 3]
    assert curve["regret_mean"] == [3.0, 4.5, 5.0]
    assert curve["regret_low"] == pytest.approx([2.2, 3.3, 4.2])
    assert curve["regret_high"] == pytest.approx([3.8, 5.7, 5.8])
    assert curve["margin_mean"] == pytest.approx([0.4, 0.25, 0.0])
    assert curve["margin_low"] == pytest.approx([0.32, 0.25, -0.08])
    assert curve["margin_high"] == pytest.approx([0.48, 0.25, 0.08])
    assert curve["margin_min"] == pytest.approx([0.3, 0.25, -0.1])
    assert curve["weight_mean"] == pytest.approx([0.0, 0.25, 0.75])


def test_unsafe_counts_add_up_over_tasks_and_ignore_rounding():
    safe, rounding = run([1, 1, 1], [0.1, 0.0, 0.1]), run([1, 1, 1], [0.1, -1e-12, 0.1])
    summary = summarise([safe, rounding, run([1, 1, 1], [-0.1, 0.1, -0.2]), run([1, 1, 1], [0.1, 0.1, -0.3])])
    assert (summary["unsafe_tasks"], summary["unsafe_episodes"], summary["min_margin"]) == (2, 3, -0.3)
    assert summary["unsafe_interval"] == pytest.approx([0.06759, 0.93241], abs=1e-5)


def test_summary_is_plain_json_and_a_single_task_has_no_interval():
    summary = summarise([run([1.0] * 1000, [0.5] * 1000)])
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["regret_interval"] is None


@given(st.integers(1, 3000), st.integers(3, 60), st.integers(0, 10**6))
def test_thinning_keeps_first_last_and_the_worst_episode(episodes, points, seed):
    rng = np.random.default_rng(seed)
    runs = [run(rng.random(episodes), rng.normal(size=episodes), rng.random(episodes)) for _ in range(3)]
    curve = summarise(runs, points)["curve"]
    shown = np.array(curve["episode"])
    margin = np.stack([each.margin for each in runs])
    assert len(shown) <= points
    assert {len(values) for values in curve.values()} == {len(shown)}
    assert (np.diff(shown) > 0).all()
    assert (shown[0], shown[-1]) == (1, episodes)
    assert int(margin.min(axis=0).argmin()) + 1 in shown
    assert curve["regret_mean"] == pytest.approx(np.mean([each.regret[shown - 1] for each in runs], axis=0).tolist())
    starts = np.concatenate([[0], shown[:-1]])
    for low, high, least in zip(starts, shown, curve["margin_min"], strict=True):
        assert least == margin[:, low:high].min()


def test_thinning_shows_the_first_episodes_closely():
    shown = summarise([run(np.ones(40_000), np.ones(40_000))])["curve"]["episode"]
    assert 300 < len(shown) <= 400
    assert sum(episode <= 100 for episode in shown) >= 30
    assert max(np.diff(shown)) <= 40_000 / 300


def test_totals_of_runs_are_those_of_their_summary():
    found = [run([1, 2], [0.5, -0.1]), run([3, 5], [0.2, 0.4])]
    summary = summarise(found)
    assert totals(found) == {k: v for k, v in summary.items() if k != "curve"}
    with pytest.raises(InvalidInput, match="one method"):
        totals([found[0], run([3, 5], [0.2, 0.4], method="paper")])
    with pytest.raises(InvalidInput, match=r"runs\[1\]\.margin"):
        totals([found[0], run([1, 1], [1, math.nan])])


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], "at least one run"),
        ([run([1], [1]), run([1, 1], [1, 1])], "one number of episodes"),
        ([run([1], [1]), run([1], [1], method="paper")], "one method"),
        ([run([1], [1]), run([1], [1], certified=False)], "one certified"),
        ([run([1, 1], [1, math.nan])], r"runs\[0\]\.margin"),
        ([run([], [])], "at least one episode"),
    ],
)
def test_runs_that_cannot_be_summarised_are_refused(runs, message):
    with pytest.raises(InvalidInput, match=message):
        summarise(runs)


def test_binomial_interval_against_published_values():
    assert binomial_interval(0, 10) == (0.0, pytest.approx(1 - 0.025 ** (1 / 10), abs=1e-12))
    assert binomial_interval(10, 10) == (pytest.approx(0.025 ** (1 / 10), abs=1e-12), 1.0)
    assert binomial_interval(2, 10) == pytest.approx((0.0252, 0.5561), abs=5e-5)


@pytest.mark.parametrize("trials", [1, 7, 30])
@pytest.mark.parametrize("probability", [0.01, 0.2, 0.5, 0.93])
def test_binomial_interval_covers_at_its_level(trials, probability):
    """Coverage summed exactly over all outcomes."""
    counts = np.arange(trials + 1)
    bounds = np.array([binomial_interval(int(count), trials, level=0.9) for count in counts])
    inside = (bounds[:, 0] <= probability) & (probability <= bounds[:, 1])
    assert stats.binom.pmf(counts[inside], trials, probability).sum() >= 0.9


def test_binomial_ends_leave_exactly_the_tail():
    """Second computation: at either end the observed count has exactly the tail's probability."""
    for level, tail in ((0.95, 0.025), (0.9, 0.05)):
        low, high = binomial_interval(3, 20, level)
        assert stats.binom.sf(2, 20, low) == pytest.approx(tail, abs=1e-12)
        assert stats.binom.cdf(3, 20, high) == pytest.approx(tail, abs=1e-12)


def test_ratio_interval_covers_the_ratio_of_means():
    """Parts that vary with their wholes: some 95 of 100 intervals, and not those of a mean of ratios."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(2000):
        wholes = rng.gamma(2.0, 1.0, 20)
        low, high = ratio_interval(wholes * rng.beta(4.0, 1.0, 20), wholes)
        covered += low <= 0.8 <= high
    assert 0.9 <= covered / 2000 <= 0.97


def test_ratio_interval_by_hand():
    assert ratio_interval([1.0, 3.0], [2.0, 6.0]) == pytest.approx((0.5, 0.5))
    half = stats.t.ppf(0.975, 1) * np.std([-0.5, 0.5], ddof=1) / np.sqrt(2) / 2
    assert ratio_interval([0.0, 2.0], [1.0, 3.0]) == pytest.approx((0.5 - half, 0.5 + half))
    with pytest.raises(InvalidInput, match="one shape"):
        ratio_interval([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(InvalidInput, match="positive mean"):
        ratio_interval([1.0, 2.0], [0.0, 0.0])


def test_mean_interval_against_hand_and_library():
    values = [2.0, 4.0, 4.0, 6.0]  # mean 4, standard deviation √(8/3), t quantile 3.18245
    half = 3.182446305 * math.sqrt(8 / 3) / 2
    assert mean_interval(values) == pytest.approx((4 - half, 4 + half), abs=1e-8)
    assert mean_interval(values, level=0.8) == pytest.approx(stats.t.interval(0.8, 3, loc=4, scale=stats.sem(values)))


def test_intervals_refuse_nonsense():
    for successes, trials in ((-1, 5), (6, 5), (0, 0)):
        with pytest.raises(InvalidInput, match="successes"):
            binomial_interval(successes, trials)
    with pytest.raises(InvalidInput, match="n ≥ 2"):
        mean_interval([1.0])
    with pytest.raises(InvalidInput, match="level"):
        mean_interval([1.0, 2.0], level=1.0)
    with pytest.raises(InvalidInput, match="points"):
        summarise([run([1], [1])], points=2)
