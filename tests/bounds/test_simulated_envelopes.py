"""Envelopes of tasks that are no tables: simulated intervals, exact values without tables, tables with a clock."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import stats
from test_envelopes import BASE, CAREFUL, HASTY, SLOPE, hurting

from held_out import cells_and_places
from point_mass import PointMass, ReadablePointMass, lane, speed, true_values
from surefoot.arrays import Floats
from surefoot.bounds import conformal
from surefoot.bounds.cells import Cells
from surefoot.bounds.conformal import ALL_SHARE
from surefoot.bounds.envelopes import build_cells, safe_policy_risk
from surefoot.bounds.settings import SAMPLED_PER_HELD_OUT, SIMULATED, SIMULATION_SHARE, Envelopes, ResolvedBounds
from surefoot.bounds.simulation import Trial, limit_episodes
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Episodes
from surefoot.cmdp.units import Units
from surefoot.confidence import Betting, State
from surefoot.errors import InvalidInput
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.policy import TimedPolicy
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family, from_arrays

FALSE_ALARM = 1e-4
UNITS = lane(budget=0.3, horizon=6)
SLOW, FAST = POLICIES = [speed(0.2), speed(1.0)]
NUMBERS = 2 * 2 * 2  # a lower and an upper bound on reward and margin of each policy
RNG = np.random.default_rng


def masses(kind: type[PointMass] = PointMass, low: float = 0.5, high: float = 0.8) -> TaskDistribution:
    return family(lambda drift: kind(drift, UNITS), Uniform(low, high))


def truth(task: PointMass) -> Floats:
    """[P, 1+m]"""
    return np.array([[found.reward, *found.margin] for found in (true_values(task, policy) for policy in POLICIES)])


def outside(values: Floats, lower: Floats, upper: Floats) -> bool:
    return bool(((values < lower - 1e-9) | (values > upper + 1e-9)).any())


# ------------------------------------------------------------------------------------------------------------ intervals


def wrong_intervals(count: int, error: float, episodes: int = 60) -> int:
    """Tasks of which some interval does not hold the true value."""
    tasks, rng, each = masses(), RNG(0), error / NUMBERS
    trial, sampled = Trial(tasks, tuple(POLICIES)), tasks.sample(count, rng)
    found = [(tasks.task(drift), trial.bound(drift, [0, k], episodes, each)) for k, drift in enumerate(sampled)]
    return sum(outside(truth(task), known.lower[..., 0], known.upper[..., 0]) for task, known in found)


@pytest.mark.short_for(error=[0.05])
@pytest.mark.parametrize("error", [0.5, 0.05])
def test_intervals_of_a_task_are_wrong_as_rarely_as_they_say(error: float) -> None:
    wrong = wrong_intervals(200, error)
    assert stats.binomtest(wrong, 200, error, alternative="greater").pvalue > FALSE_ALARM


def test_intervals_half_as_wide_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = Betting.interval

    def halved(self: Betting, state: State) -> tuple[Floats, Floats]:
        lower, upper = exact(self, state)
        return lower + (upper - lower) / 4, upper - (upper - lower) / 4

    monkeypatch.setattr(Betting, "interval", halved)
    assert stats.binomtest(wrong_intervals(200, 0.05), 200, 0.05, alternative="greater").pvalue < FALSE_ALARM


class Steady:
    """Every step is worth the same, so that an episode which is cut off lacks a known share of the whole."""

    spaces = ()

    def __init__(self, worth: float, shortest: int) -> None:
        ends = tuple(sorted((0.9 * worth, 1.1 * worth)))
        self.units = Units(0.9, ends, [ends], np.array([0.0]))
        self.worth, self.shortest = worth, shortest

    def digest(self) -> str:
        return hashlib.sha256(repr(self.worth).encode()).hexdigest()

    def episodes(self, policy: Policy, steps: int) -> Episodes:
        return self

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        total = self.worth * (1 - 0.9**self.shortest) / 0.1
        return Outcomes(np.full(episodes, total), np.full((episodes, 1), total))


@pytest.mark.parametrize("worth", [5.0, -5.0])
def test_cut_off_tails_are_allowed_for_when_no_step_is_worth_nothing(
    worth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Episodes of 4 steps: most of the value lies in the tail, far from the width of the range."""
    monkeypatch.setattr(Units, "episode_length", 4)
    trial = Trial(family(lambda _: Steady(worth, 4), Uniform(0.0, 1.0)), (SLOW,))
    lower, upper, _ = trial.bound(np.array([0.5]), [0], 10_000, 0.1)
    assert not outside(np.array([[10 * worth, -10 * worth]]), lower[..., 0], upper[..., 0])


# --------------------------------------------------------------------------------------------------- cells, counted


SMALL = Envelopes(cells=3, holdout=32, uncovered=0.2, episodes=120)
SPENT = ALL_SHARE * 0.2 / 2  # of the 0.2, what a first attempt spends on bounds from all held-out tasks


def small(seed: int) -> Cells:
    return build_cells(masses(), POLICIES, seed=seed, envelopes=SMALL)


def broken(trials: int) -> float:
    """The p-value of so many fresh tasks, one per training, that break their cell's bounds."""
    tasks, count = masses(), 0
    for seed in range(trials):
        cells, base = cells_and_places(tasks, POLICIES, seed, SMALL)
        drift = tasks.sample(1, RNG([seed, 9]))
        j = int(base.cell_of(drift)[0])
        count += outside(truth(tasks.task(drift[0])), cells.lower[j], cells.upper[j])
    return float(stats.binomtest(count, trials, SPENT, alternative="greater").pvalue)


@pytest.mark.parametrize("trials", [12, pytest.param(40, marks=pytest.mark.long)])
def test_a_fresh_task_breaks_simulated_bounds_with_probability_at_most_uncovered(trials: int) -> None:
    assert broken(trials) > FALSE_ALARM


def test_fits_that_were_not_widened_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformal, "conformal_quantile", lambda *told: (0.0, 0.0))
    assert broken(9) < FALSE_ALARM


def test_simulated_cells_have_bounds_from_the_start_alone_and_no_model() -> None:
    cells = small(0)
    assert (cells.source, cells.model, cells.start_lower, cells.start_upper) == ("monte-carlo", None, None, None)
    assert cells.uncovered == 0.2, "the error of the intervals is part of it"
    assert (cells.lower[:, 0, 1] >= 0).all()
    assert np.array_equal(small(0).lower, cells.lower)
    assert not np.array_equal(small(1).lower, cells.lower)


class Counting(PointMass):
    """Counts what is simulated."""

    asked: ClassVar[list[tuple[float, int]]] = []

    def episodes(self, policy: Policy, steps: int) -> Any:
        self.asked.append((float(self.drift[0]), id(policy)))
        return super().episodes(policy, steps)


def test_every_task_is_simulated_with_every_policy_and_few_of_them_again() -> None:
    Counting.asked.clear()
    build_cells(masses(Counting), POLICIES, seed=0, envelopes=SMALL)
    assert len(set(Counting.asked)) == (SAMPLED_PER_HELD_OUT + 1) * 32 * 2
    assert len(Counting.asked) < 2 * len(set(Counting.asked))


def test_defaults_follow_from_the_kind_of_tasks() -> None:
    assert Envelopes().resolve(masses().example) == ResolvedBounds(
        *SIMULATED, 1, 500, simulated=True, default_episodes=True
    )
    assert Envelopes().resolve(masses(ReadablePointMass).example) == ResolvedBounds(
        800, 1999, 0.005, default_episodes=True
    )
    own = Envelopes(cells=7, holdout=9, uncovered=0.5, attempt=2, episodes=11)
    assert own.resolve(masses().example) == ResolvedBounds(7, 9, 0.5, 2, 11, simulated=True)


@pytest.mark.parametrize(("simulated", "shared_costs"), [(True, False), (False, False), (True, True)])
def test_all_attempts_together_spend_what_is_granted(simulated: bool, shared_costs: bool) -> None:
    options = {"simulated": simulated, "shared_costs": shared_costs}
    attempts = [ResolvedBounds(1, 1, 0.02, attempt, **options) for attempt in range(1, 60)]  # type: ignore[arg-type]
    assert sum(each.alpha + each.alpha_spent for each in attempts) == pytest.approx(0.02)
    assert sum(each.alpha_spent for each in attempts) == pytest.approx(attempts[0].error)
    assert attempts[0].error == (SIMULATION_SHARE * 0.02 if simulated else 0.0)
    apart = (
        sum(each.alpha_spent for each in attempts) if shared_costs else 0.0
    )  # shared costs are bounded by themselves
    assert sum(each.alpha_observed / each.power for each in attempts) + apart == pytest.approx(0.02)


def test_a_safe_policy_that_is_not_shown_to_be_feasible_costs_as_if_it_were_not() -> None:
    """Feasible on all tasks, but on some by so little that the intervals cannot tell: their probability is on top."""
    tasks = masses(low=0.6, high=0.8)
    nearly = [speed(0.645), FAST]
    assert all(true_values(tasks.task(drift), nearly[0]).margin[0] > 0 for drift in np.linspace(0.6, 0.8, 50))
    settings = Envelopes(cells=3, holdout=100, uncovered=0.2, episodes=80)
    cells = build_cells(tasks, nearly, seed=0, envelopes=settings)
    assert 0.2 < cells.uncovered < 0.9
    assert (cells.lower[:, 0, 1] >= 0).all()
    assert cells.prior.sum() == pytest.approx(1 - cells.uncovered)


# --------------------------------------------------------------------------------------------------- finite, simulated


def test_a_finite_family_of_simulated_tasks_is_one_cell_each_with_its_interval() -> None:
    drifts, weights = [0.5, 0.6, 0.7, 3.0], [0.4, 0.3, 0.2, 0.1]
    tasks = from_arrays([PointMass(drift, UNITS) for drift in drifts], weights)
    assert true_values(tasks.task(3), SLOW).margin[0] < 0
    cells = build_cells(tasks, POLICIES, seed=0, envelopes=Envelopes(uncovered=0.02, episodes=400))
    assert (cells.source, cells.model, cells.start_lower) == ("monte-carlo", None, None)
    assert cells.low[:, 0].tolist() == [0, 1, 2]
    assert cells.uncovered == pytest.approx(0.1 + SIMULATION_SHARE * 0.02)
    np.testing.assert_allclose(cells.prior, np.array(weights[:3]) * (1 - cells.uncovered) / 0.9)
    for j in range(3):
        assert not outside(truth(tasks.task(j)), cells.lower[j], cells.upper[j])
    assert (cells.upper - cells.lower).min() > 1e-3
    risk = safe_policy_risk(tasks, SLOW, seed=0, envelopes=Envelopes(uncovered=0.02, episodes=400))
    assert risk == pytest.approx(cells.uncovered)


@pytest.mark.long
def test_too_few_episodes_to_show_that_the_safe_policy_is_feasible_are_refused() -> None:
    tasks = from_arrays([PointMass(0.5, UNITS)])
    with pytest.raises(InvalidInput, match=r"episodes must be enough .* got 5; simulate more"):
        build_cells(tasks, POLICIES, seed=0, envelopes=Envelopes(episodes=5))
    with pytest.raises(InvalidInput, match="where tasks are simulated more episodes"):
        build_cells(masses(), POLICIES, seed=0, envelopes=Envelopes(episodes=5))


# ------------------------------------------------------------------------------------------------ readable, not a table


def test_tasks_that_can_be_read_and_are_no_tables_have_exact_values() -> None:
    tasks = masses(ReadablePointMass)
    settings = Envelopes(cells=6, holdout=799)
    cells = build_cells(tasks, POLICIES, seed=0, envelopes=settings)
    assert (cells.source, cells.model, cells.start_lower) == ("holdout", None, None)
    assert cells.uncovered == 0.005
    kept = [
        not outside(truth(tasks.task(drift)), cells.lower[j], cells.upper[j])
        for drift in tasks.sample(100, RNG(3))
        for j in [int(np.argmin(np.abs(cells.low - drift)))]
    ]
    assert np.mean(kept) > 0.97
    wide = (small(0).upper - small(0).lower).mean()
    assert (cells.upper - cells.lower).mean() < wide / 2, "nothing is lost to simulation"
    few = from_arrays([ReadablePointMass(drift, UNITS) for drift in (0.5, 0.7)])
    found = build_cells(few, POLICIES, seed=0)
    assert (found.source, found.uncovered) == ("finite", 0.0)
    np.testing.assert_allclose(found.lower, [truth(few.task(k)) for k in (0, 1)], atol=1e-8)
    assert (found.lower <= found.upper).all()


# -------------------------------------------------------------------------------------------------- tables with a clock

EASY = TimedPolicy(np.stack([HASTY.probabilities, CAREFUL.probabilities]))


@pytest.mark.short_for(horizon=[5], affine=[None], policies=[[EASY, EASY]])
@pytest.mark.parametrize("affine", [(BASE, SLOPE), None])
@pytest.mark.parametrize(("horizon", "policies"), [(5, [CAREFUL, HASTY]), (None, [EASY, EASY]), (5, [EASY, EASY])])
def test_tables_with_a_horizon_or_timed_policies_have_bounds_that_hold(
    horizon: int | None, policies: list[Policy], affine: Any
) -> None:
    tasks = family(lambda rate: hurting(float(rate[0]), 3.0, horizon), Uniform(0.1, 0.5), affine=affine)
    cells = build_cells(tasks, policies, seed=0, envelopes=Envelopes(cells=5, holdout=399, uncovered=0.02))
    if horizon is None:  # without one the expansion is of policies that do not look at a clock
        assert (cells.source, cells.start_lower) == ("holdout", None)
    else:
        assert cells.source == "affine"
        assert cells.start_lower is not None
    assert cells.model is not None
    assert cells.model.affine is not None, "declared, or found out"
    for j, rate in enumerate(cells.low):
        for p, policy in enumerate(policies):
            exact = evaluate(tasks.task(rate), policy)
            assert not outside(np.array([exact.reward, *exact.margin]), cells.lower[j, p], cells.upper[j, p])
    finite = build_cells(from_arrays([hurting(rate, 3.0, horizon) for rate in (0.2, 0.3)]), policies, seed=0)
    assert (finite.source, finite.uncovered) == ("finite", 0.0)
    assert (finite.start_lower is None) == (horizon is None)
    assert finite.model is not None
    assert safe_policy_risk(tasks, policies[0], seed=0) < 0.01


# ------------------------------------------------------------------------------------------- the safe policy, simulated


@pytest.mark.long
def test_the_risk_of_a_simulated_safe_policy_is_wrong_as_rarely_as_it_says() -> None:
    """The safe policy fails where the drift exceeds 0.75, on a sixth of the tasks."""
    level, tasks = 0.75, masses()
    safe = max((speed(v) for v in np.linspace(0.4, 0.9, 200)), key=lambda p: -abs(margin(level, p)))
    assert margin(level, safe) == pytest.approx(0.0, abs=2e-3)
    few = Envelopes(holdout=25, uncovered=0.4, episodes=300)
    found = np.array([safe_policy_risk(tasks, safe, seed=seed, envelopes=few) for seed in range(60)])
    wrong = int((found < 1 / 6).sum())
    assert stats.binomtest(wrong, len(found), 0.02, alternative="greater").pvalue > FALSE_ALARM
    assert np.median(found) < 0.9, "a bound of 1 would never be wrong"
    sharp = safe_policy_risk(tasks, speed(0.2), seed=0, envelopes=Envelopes(holdout=199, uncovered=0.02, episodes=300))
    assert 0.02 * SIMULATION_SHARE < sharp < 0.05


def margin(drift: float, policy: Policy) -> float:
    return float(true_values(PointMass(drift, UNITS), policy).margin[0])


@pytest.mark.parametrize(
    ("length", "given", "episodes"),
    [(10, {}, 500), (200, {}, 100), (5000, {}, 50), (5000, {"episodes": 300}, 300), (200, {"steps": 10**9}, 500)],
)
def test_where_nobody_says_how_many_episodes_they_take_minutes_and_not_hours(
    length: int, given: dict[str, int], episodes: int
) -> None:
    """100 tasks that are fitted and 399 held-out ones, two policies."""
    units = Units(1.0, (0.0, 1.0), np.array([[0.0, 1.0]]), np.array([0.5 * length]), length)
    wanted = Envelopes(**given)
    settings = wanted.resolve(masses().example)
    found = limit_episodes(settings, wanted.steps, tasks=499, policies=2, units=units, alpha=0.1)
    assert found.episodes == episodes
