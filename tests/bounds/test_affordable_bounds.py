"""Simulated bounds that cost no more than they must: rounds, laziness, one side, ranges of sums, a budget of steps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from point_mass import PointMass, Rollouts, lane, speed, true_values
from surefoot.arrays import Floats
from surefoot.bounds import simulated as simulated_cells
from surefoot.bounds.cells import Cells
from surefoot.bounds.conformal import conformal_quantile, quantile_rank
from surefoot.bounds.envelopes import build_cells, safe_policy_risk
from surefoot.bounds.settings import SAMPLED_PER_HELD_OUT, Envelopes
from surefoot.bounds.simulation import DEEPER, FIRST_PART, LOOK_PART, Simulation
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.confidence import State
from surefoot.errors import InvalidInput
from surefoot.estimates import Intervals, bounds_in_rounds, rounds
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family, from_arrays

FALSE_ALARM = 1e-4
UNITS = lane(budget=0.3, horizon=6)
POLICIES: list[Policy] = [speed(0.2), speed(0.7), speed(1.0)]
RNG = np.random.default_rng


def masses(units: Units = UNITS, low: float = 0.5, high: float = 0.8) -> TaskDistribution:
    return family(lambda drift: PointMass(drift, units), Uniform(low, high))


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts simulated steps."""
    run, count = Rollouts.run, Counter[str]()

    def counted(self: Rollouts, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        count["steps"] += episodes * self.steps
        return run(self, episodes, rng, transitions)

    monkeypatch.setattr(Rollouts, "run", counted)
    return count


# --------------------------------------------------------------------------------------------------------------- rounds


@given(st.integers(1, 5000))
def test_rounds_add_up_and_double(most: int) -> None:
    sizes = list(rounds(most))
    assert sum(sizes) == most
    assert all(size == sum(sizes[:k]) for k, size in enumerate(sizes) if 0 < k < len(sizes) - 1)


def stopped_at_the_worst_time(count: int, error: float) -> int:
    """How often a lower bound lies above the reward if the rounds end as soon as it does: the most that a rule of
    stopping can do to it."""
    task, policy = PointMass(0.6, UNITS), speed(0.7)
    truth, intervals = true_values(task, policy).reward, Intervals(UNITS, 6, error)

    def enough(lower: Floats, upper: Floats) -> bool:
        return bool(lower[0] > truth)

    found = [bounds_in_rounds(task.episodes(policy, 6), intervals, 256, RNG([7, k]), enough)[0] for k in range(count)]
    return sum(lower[0] > truth for lower in found)


def p_value(wrong: int, count: int, error: float) -> float:
    return float(stats.binomtest(wrong, count, error, alternative="greater").pvalue)


@pytest.mark.short_for(error=[0.1])
@pytest.mark.parametrize("error", [0.1, 0.4])
def test_stopping_whenever_one_likes_makes_no_bound_wrong_more_often(error: float) -> None:
    assert p_value(stopped_at_the_worst_time(200, error), 200, error) > FALSE_ALARM


def test_intervals_for_one_time_only_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The normal approximation, right at any fixed number of episodes."""

    def start(self: Intervals) -> Any:
        return []

    def update(self: Intervals, state: Any, outcomes: Outcomes) -> Any:
        return [*state, *outcomes.reward]

    def bounds(self: Intervals, state: Any) -> tuple[Floats, Floats]:
        if not state:
            return np.full(2, -np.inf), np.full(2, np.inf)
        reach = stats.norm.isf(self.error) * np.std(state) / np.sqrt(len(state))
        return np.array([np.mean(state) - reach, -np.inf]), np.array([np.mean(state) + reach, np.inf])

    for name, mutant in (("start", start), ("update", update), ("bounds", bounds)):
        monkeypatch.setattr(Intervals, name, mutant)
    assert p_value(stopped_at_the_worst_time(200, 0.1), 200, 0.1) < FALSE_ALARM


def test_one_side_alone_is_that_side_of_both() -> None:
    outcomes = PointMass(0.6, UNITS).episodes(speed(0.7), 6).run(300, RNG(0))
    both, one = Intervals(UNITS, 6, 0.01), Intervals(UNITS, 6, 0.01, margins_only=True)
    (lower, _), (below, above) = (each.bounds(each.update(each.start(), outcomes)) for each in (both, one))
    assert below[1:].tolist() == lower[1:].tolist()
    assert below[0] == -np.inf
    assert (above == np.inf).all()


# ------------------------------------------------------------------------------------------------------------- laziness


def engines(strongest: float) -> TaskDistribution:
    """Four engines of unknown strength: values within a cell vary by more than simulation blurs them."""
    return family(lambda drifts: PointMass(drifts, lane(budget=0.4, horizon=10)), Uniform([0.1] * 4, [strongest] * 4))


ENGINES = Envelopes(cells=4, holdout=120, uncovered=0.2, episodes=60)
PUSHES = [speed(*[0.1] * 4), *(speed(*row) for row in np.eye(4)[:2])]


def cells_with(
    decide: Callable[[Floats, float], int],
    monkeypatch: pytest.MonkeyPatch,
    *,
    spare: int = 10**9,
    seed: int = 0,
    strongest: float = 0.6,
) -> Cells:
    """Cells where as many of the largest scores as `decide` says must be known as well as they can be, and there are
    so many episodes for that."""
    monkeypatch.setattr(simulated_cells, "quantile_rank", decide)
    monkeypatch.setattr(Simulation, "spare_episodes", lambda self, tasks: spare)
    return build_cells(engines(strongest), PUSHES, seed=seed, envelopes=ENGINES)


def every(scores: Floats, alpha: float) -> int:
    return len(scores)


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "strongest"), [(0, 0.6), *(pytest.param(*each, marks=pytest.mark.long) for each in ((1, 0.6), (0, 2.2)))]
)
def test_what_is_left_out_changes_nothing(
    seed: int, strongest: float, steps: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the safe policy is infeasible on some tasks, which are then counted."""
    lazy = cells_with(quantile_rank, monkeypatch, seed=seed, strongest=strongest)
    cost = steps.pop("steps")
    whole = cells_with(every, monkeypatch, seed=seed, strongest=strongest)
    assert (lazy.uncovered > 0.2) == (strongest == 2.2)
    assert [lazy.lower.tobytes(), lazy.upper.tobytes()] == [whole.lower.tobytes(), whole.upper.tobytes()]
    assert lazy.uncovered == whole.uncovered
    assert cost < steps["steps"]


@pytest.mark.long
def test_too_few_episodes_for_those_that_decide_make_bounds_wider_and_never_narrower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds = [cells_with(quantile_rank, monkeypatch, spare=spare) for spare in (0, 3000, 10**9)]
    for wide, narrow in pairwise(bounds):
        assert (wide.lower <= narrow.lower).all()
        assert (wide.upper >= narrow.upper).all()
    assert not np.array_equal(bounds[0].lower, bounds[-1].lower)


@pytest.mark.long
def test_leaving_out_too_much_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores after a few episodes, taken for those of tasks that do not decide."""
    lazy = cells_with(quantile_rank, monkeypatch)
    assert not np.array_equal(cells_with(lambda scores, alpha: 0, monkeypatch).lower, lazy.lower)


@given(st.lists(st.floats(0, 10), min_size=60, max_size=60), st.floats(0.03, 0.3))
def test_the_widening_is_the_least_of_the_scores_that_decide(scores: list[float], alpha: float) -> None:
    found = np.array(scores)
    top = np.sort(found)[-quantile_rank(found, alpha) :]
    assert conformal_quantile(found, alpha) == (top[0], 0.0)


def test_no_more_is_simulated_than_there_may_be(steps: Counter[str]) -> None:
    build_cells(engines(0.6), PUSHES, seed=0, envelopes=replace(ENGINES, holdout=40))
    once = len(PUSHES) * 10
    assert FIRST_PART < 1 < DEEPER
    assert steps["steps"] <= (math.ceil(LOOK_PART * SAMPLED_PER_HELD_OUT * 40) + 40) * 60 * once


def test_the_safe_policy_alone_is_simulated_until_it_is_shown(steps: Counter[str]) -> None:
    few = Envelopes(holdout=50, uncovered=0.1, episodes=400)
    easy = safe_policy_risk(masses(), speed(0.2), seed=0, envelopes=few)
    cost = steps.pop("steps")
    hard = safe_policy_risk(masses(), speed(0.66), seed=0, envelopes=few)
    assert easy < hard
    assert cost == 50 * 100 * 6 < steps["steps"] <= 50 * 400 * 6


# ------------------------------------------------------------------------------------------------------ budget of steps


def test_a_budget_of_steps_is_kept(steps: Counter[str]) -> None:
    tasks = (math.ceil(LOOK_PART * SAMPLED_PER_HELD_OUT * 40) + 40) * 3 * 6
    found = build_cells(
        masses(), POLICIES, seed=0, envelopes=Envelopes(cells=3, holdout=40, uncovered=0.2, steps=100 * tasks)
    )
    same = Envelopes(cells=3, holdout=40, uncovered=0.2, episodes=100)
    assert 0 < steps["steps"] <= 100 * tasks
    assert np.array_equal(build_cells(masses(), POLICIES, seed=0, envelopes=same).lower, found.lower)
    few, points = from_arrays([PointMass(0.5, UNITS)]), Envelopes(uncovered=0.2, steps=200 * 3 * 6)
    steps.clear()
    build_cells(few, POLICIES, seed=0, envelopes=points)
    assert steps["steps"] == 200 * 3 * 6


def test_a_budget_that_can_show_nothing_is_refused_with_the_least_that_might(steps: Counter[str]) -> None:
    few = from_arrays([PointMass(0.5, UNITS)])
    with pytest.raises(
        InvalidInput, match=r"steps must be at least .* for 1 tasks, 3 policies and episodes of 6 steps"
    ):
        build_cells(few, POLICIES, seed=0, envelopes=Envelopes(steps=10))
    with pytest.raises(InvalidInput, match="steps must be at least") as refused:
        safe_policy_risk(masses(), POLICIES[0], seed=0, envelopes=Envelopes(steps=10, holdout=100))
    assert steps["steps"] == 0, "before anything is simulated"
    least = int(str(refused.value).split("at least ")[1].split()[0])
    assert safe_policy_risk(masses(), speed(0.0), seed=0, envelopes=Envelopes(steps=least, holdout=100)) < 1
    with pytest.raises(InvalidInput, match="steps must be"):
        Envelopes(steps=0)


# ------------------------------------------------------------------------------------------------------- ranges of sums


def test_a_range_of_sums_makes_bounds_narrower_and_no_less_right() -> None:
    """Per step a cost of up to 10 is declared, where it is at most 1."""
    plain = Units(0.5, (0.0, 1.0), [(0.0, 10.0)], [0.3], 6)
    known = Units(0.5, (0.0, 1.0), [(0.0, 10.0)], [0.3], 6, cost_sum_range=(0.0, 2.0))
    truth = true_values(PointMass(0.6, plain), speed(0.7)).margin[0]
    widths = []
    for units in (plain, known):
        outcomes = PointMass(0.6, units).episodes(speed(0.7), 6).run(400, RNG(0))
        intervals = Intervals(units, 6, 0.01)
        lower, upper = intervals.bounds(intervals.update(intervals.start(), outcomes))
        assert lower[1] <= truth <= upper[1]
        widths.append(upper[1] - lower[1])
    assert widths[1] < 0.9 * widths[0]


def test_a_range_of_sums_that_is_not_kept_is_refused() -> None:
    liar = Units(0.5, (0.0, 1.0), [(0.0, 1.0)], [0.3], 6, cost_sum_range=(0.0, 0.1))
    with pytest.raises(InvalidInput, match="simulated sums must lie in the ranges that it declares"):
        build_cells(masses(liar), POLICIES, seed=0, envelopes=Envelopes(cells=3, holdout=40, uncovered=0.2))


def test_a_range_of_sums_that_is_not_enforced_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """With clipped sums instead of a refusal the upper bound on the cost is wrong."""
    liar = Units(0.5, (0.0, 1.0), [(0.0, 1.0)], [0.3], 6, cost_sum_range=(0.0, 0.1))
    monkeypatch.setattr("surefoot.estimates.first_breach", lambda outcomes, units: len(outcomes))
    task, intervals = PointMass(0.8, liar), Intervals(liar, 6, 0.01)
    state: State = intervals.update(intervals.start(), task.episodes(speed(1.0), 6).run(400, RNG(0)))
    assert intervals.bounds(state)[0][1] > true_values(task, speed(1.0)).margin[0]
