"""The return e-process: fair whatever the law inside the envelope, and the sums it keeps are all that is needed."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from random_tasks import random_distributions, seeds
from surefoot.arrays import Floats
from surefoot.bounds.affine import affine_cells
from surefoot.bounds.cells import Cells
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.learning.certified.evidence.returns import (
    BET_WEIGHTS,
    LOWEST_STAKE,
    SETTLED_AGAINST,
    ReturnProcess,
    ReturnState,
)
from surefoot.learning.certified.replanning import Planned
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import family
from surefoot.testing.learner_suite import fingerprint

STATES, POLICIES = 3, 2
FOREVER = 10**6  # steps of episodes that miss nothing


def made_up(rng: np.random.Generator, cells: int = 5, constraints: int = 1) -> tuple[Cells, Units]:
    """Cells with random bounds; rewards in [-1, 2], costs in [0, 3] or [1, 2] a step, discount 0.5."""
    cost_range = np.array([[0.0, 3.0], [1.0, 2.0]][:constraints])
    units = Units(0.5, (-1.0, 2.0), cost_range, np.full(constraints, 3.0))
    low, high = np.array([-2.0, *units.cost_value_range[:, 0]]), np.array([4.0, *units.cost_value_range[:, 1]])
    ends = np.sort(rng.random((2, cells, POLICIES, STATES, 1 + constraints)) ** 2, axis=0)
    sums = low + ends * (high - low)
    lower, upper = sums.copy()
    lower[..., 1:], upper[..., 1:] = units.budget - sums[1][..., 1:], units.budget - sums[0][..., 1:]
    start_lower, start_upper = lower.transpose(0, 1, 3, 2), upper.transpose(0, 1, 3, 2)
    centre = np.linspace(0, 1, cells)[:, None]
    prior = np.full(cells, 1 / cells)
    from_start = start_lower.mean(axis=-1), start_upper.mean(axis=-1)
    return Cells(
        centre, centre, prior, *from_start, start_lower, start_upper, "holdout", 0.0, None, np.empty((0, 1))
    ), units


def with_stakes(process: ReturnProcess, stakes: Floats) -> ReturnState:
    return replace(process.start(), stakes=stakes)


def random_stakes(rng: np.random.Generator, signals: int) -> Floats:
    """One vector per bet; negative entries of a vector sum to -0.9 at least."""
    stakes = rng.normal(size=(len(BET_WEIGHTS), signals)) * 3
    depth = -np.minimum(stakes, 0).sum(axis=1, keepdims=True)
    return stakes * np.minimum(1.0, 0.9 / np.maximum(depth, 0.9))


def ends_of(units: Units) -> tuple[Floats, Floats]:
    """Smallest and largest sums, 0 included: an episode may stop at once."""
    low = np.array([units.reward_value_range[0], *units.cost_value_range[:, 0]])
    high = np.array([units.reward_value_range[1], *units.cost_value_range[:, 1]])
    return np.minimum(low, 0.0), np.maximum(high, 0.0)


def told(units: Units, scaled: Floats, first: Any) -> Outcomes:
    """Outcomes with scaled returns [n, k] from first states [n]."""
    low, high = ends_of(units)
    sums = low + scaled * (high - low)
    return Outcomes(sums[:, 0], sums[:, 1:], np.asarray(first)[:, None])


def envelope(
    cells: Cells, units: Units, truncation: float, j: int, policy: int, first: int | None
) -> tuple[Floats, Floats]:
    """Scaled bounds on the mean cut-off sums, from the definition; over the start distribution if `first` is None."""
    assert cells.start_lower is not None
    assert cells.start_upper is not None
    lower, upper = cells.lower[j, policy], cells.upper[j, policy]
    if first is not None:
        lower, upper = cells.start_lower[j, policy, :, first], cells.start_upper[j, policy, :, first]
    low = np.array([lower[0], *(units.budget - upper[1:])])
    high = np.array([upper[0], *(units.budget - lower[1:])])
    least, most = ends_of(units)
    scaled = [(low - truncation * most - least) / (most - least), (high - truncation * least - least) / (most - least)]
    return np.clip(scaled[0], 0, 1), np.clip(scaled[1], 0, 1)


def random_law(rng: np.random.Generator, mean: Floats) -> tuple[Floats, Floats]:
    """Points [n, k] in the unit cube and probabilities [n] with the given mean: corners, mixed with a tighter law."""
    corners = np.array(list(product((0.0, 1.0), repeat=len(mean))))
    independent = np.prod(np.where(corners == 1, mean, 1 - mean), axis=1)
    width = rng.random() * np.minimum(mean, 1 - mean)
    close = mean + (2 * corners - 1) * width
    share = rng.random()
    points = np.concatenate([corners, close])
    return points, np.concatenate([share * independent, np.full(len(corners), (1 - share) / len(corners))])


@given(seeds, st.integers(1, 2), st.sampled_from([3, FOREVER]))
def test_factors_average_to_one_at_most_for_every_law_in_the_envelope(
    seed: int, constraints: int, horizon: int
) -> None:
    rng = np.random.default_rng(seed)
    cells, units = made_up(rng, constraints=constraints)
    process, truncation = ReturnProcess(cells, units, horizon), 0.5**horizon
    state = with_stakes(process, random_stakes(rng, 1 + constraints))
    everyone = np.ones(len(cells), dtype=bool)
    for j, policy, first in ((0, 0, 0), (1, 1, 2), (4, 1, 1)):
        low, high = envelope(cells, units, truncation, j, policy, first)
        inner = rng.uniform(low, high)
        for mean in (inner, low, high, np.where(rng.random(low.shape) < 0.5, low, high)):
            points, probability = random_law(rng, mean)
            np.testing.assert_allclose(probability @ points, mean, rtol=0, atol=1e-12)
            factors = []
            for point in points:
                seen = process.observe(state, np.array([policy]), told(units, point[None], [first]))
                factors.append(np.exp(process.settle(seen, everyone, ()).capital[:, j]))
            assert (probability @ np.array(factors) <= 1 + 1e-9).all()


def test_laws_outside_the_envelope_are_bet_against() -> None:
    """The check above has teeth: below an envelope a stake on low returns gains."""
    rng = np.random.default_rng(0)
    cells, units = made_up(rng)
    process = ReturnProcess(cells, units, FOREVER)
    state = with_stakes(process, np.full((len(BET_WEIGHTS), 2), -0.4))
    low, _ = envelope(cells, units, 0.0, 0, 0, 0)
    assert (low > 0.01).all()
    points, probability = random_law(rng, low / 2)
    factors = [
        np.exp(
            process.settle(
                process.observe(state, np.array([0]), told(units, point[None], [0])), np.ones(5, dtype=bool), ()
            ).capital[:, 0]
        )
        for point in points
    ]
    assert (probability @ np.array(factors) > 1).all()


def random_episodes(rng: np.random.Generator, count: int, signals: int, policies: int = POLICIES) -> Any:
    """Policies drawn [n], first states [n] and scaled returns [n, k]."""
    return rng.integers(policies, size=count), rng.integers(STATES, size=count), rng.random((count, signals))


@given(seeds, st.integers(1, 2))
def test_capital_is_the_product_of_the_factors(seed: int, constraints: int) -> None:
    """Over several settlements, one episode at a time and with the formula of the theorem."""
    rng = np.random.default_rng(seed)
    cells, units = made_up(rng, constraints=constraints)
    truncation, signals = 0.5**7, 1 + constraints
    process = ReturnProcess(cells, units, 7, settled_against=math.inf)
    state = with_stakes(process, random_stakes(rng, signals))
    surviving = rng.random(len(cells)) < 0.8
    expected = np.zeros((len(BET_WEIGHTS), len(cells)))
    for size in (1, 7, 20):
        stakes = state.stakes
        drawn, first, scaled = random_episodes(rng, size, signals)
        for policy, s, x in zip(drawn, first, scaled, strict=True):
            for b, j in np.ndindex(expected.shape):
                low, high = envelope(cells, units, truncation, j, policy, s)
                most = sum(max(stakes[b, k] * low[k], stakes[b, k] * high[k]) for k in range(signals))
                expected[b, j] += math.log(1 + sum(stakes[b, k] * x[k] for k in range(signals))) - math.log(1 + most)
        state = process.observe(state, drawn, told(units, scaled, first))
        assert np.array_equal(state.stakes, stakes), "stakes change at settlements only"
        state = process.settle(state, surviving, ())
        np.testing.assert_allclose(state.capital, expected, rtol=0, atol=1e-9)
    average = np.log(BET_WEIGHTS @ np.exp(expected))
    np.testing.assert_allclose(process.log_evidence(state), average, rtol=0, atol=1e-9)


def test_bets_share_one_unit_of_capital() -> None:
    assert BET_WEIGHTS.sum() == pytest.approx(1.0, abs=1e-15)
    assert (BET_WEIGHTS > 0).all()
    process = ReturnProcess(*made_up(np.random.default_rng(0)), FOREVER)
    np.testing.assert_allclose(process.log_evidence(process.start()), 0.0, rtol=0, atol=1e-15)


@given(seeds, st.integers(1, 2))
def test_blocks_and_single_episodes_give_the_same_state_to_the_last_bit(seed: int, constraints: int) -> None:
    rng = np.random.default_rng(seed)
    cells, units = made_up(rng, constraints=constraints)
    process = ReturnProcess(cells, units, 10)
    drawn, first, scaled = random_episodes(rng, 60, 1 + constraints)
    outcomes = told(units, scaled, first)
    surviving = np.ones(len(cells), dtype=bool)
    ends = []
    for sizes in ([60], [1] * 60, [7, 13, 40]):
        state = with_stakes(process, random_stakes(np.random.default_rng(1), 1 + constraints))
        begin = 0
        for size in sizes:
            part = slice(begin, begin + size)
            state = process.observe(state, drawn[part], outcomes[part])
            begin += size
        ends.append((fingerprint(state), fingerprint(process.settle(state, surviving, ()))))
    assert ends[0] == ends[1] == ends[2]


def unknown_policy(cells: Cells, units: Units) -> Planned:
    """A planned policy of which nothing is known: its bounds are the whole range, 0 included."""
    low, high = ends_of(units)
    lower = np.broadcast_to([low[0], *(units.budget - high[1:])], (STATES, len(cells), len(low)))
    upper = np.broadcast_to([high[0], *(units.budget - low[1:])], (STATES, len(cells), len(low)))
    margin = np.tile(units.budget - high[1:], (len(cells), 1))
    return Planned(TabularPolicy(np.ones((STATES, 1))), np.zeros(len(cells)), margin, lower, upper, 0)


def test_policies_of_which_nothing_is_known_leave_the_capital_unchanged() -> None:
    rng = np.random.default_rng(2)
    cells, units = made_up(rng)
    process = ReturnProcess(cells, units, 10)
    state = with_stakes(process, random_stakes(rng, 2))
    unknown = unknown_policy(cells, units)
    outcomes = told(units, rng.random((9, 2)), rng.integers(STATES, size=9))
    seen = process.settle(
        process.observe(state, np.full(9, POLICIES), outcomes), np.ones(len(cells), dtype=bool), (unknown,)
    )
    assert np.array_equal(seen.capital, state.capital)
    known = replace(unknown, start_lower=unknown.start_lower.copy(), start_upper=unknown.start_upper.copy())
    known.start_lower[:, 2], known.start_upper[:, 2] = 0.4, 0.6
    seen = process.settle(
        process.observe(state, np.full(9, POLICIES), outcomes), np.ones(len(cells), dtype=bool), (known,)
    )
    changed = (seen.capital != state.capital).any(axis=0)
    assert changed.tolist() == [False, False, True, False, False]


@given(seeds, st.integers(1, 2))
def test_stakes_leave_something_whatever_happens(seed: int, constraints: int) -> None:
    """1 + β·X is smallest where X is 1 for the negative entries and 0 for the others."""
    rng = np.random.default_rng(seed)
    cells, units = made_up(rng, constraints=constraints)
    process = ReturnProcess(cells, units, 10)
    state = process.start()
    largest = 0.0
    for _ in range(12):
        drawn, first, scaled = random_episodes(rng, int(rng.integers(1, 40)), 1 + constraints)
        scaled = scaled ** rng.uniform(0.2, 5.0)  # mostly far from what the cells say
        state = process.settle(
            process.observe(state, drawn, told(units, scaled, first)), rng.random(len(cells)) < 0.7, ()
        )
        smallest = 1 + np.minimum(state.stakes, 0.0).sum(axis=1)
        assert (smallest >= 1 + LOWEST_STAKE - 1e-12).all()
        assert np.isfinite(state.capital).all()
        largest = max(largest, float(np.abs(state.stakes).max()))
    assert largest > 0.5, "otherwise nothing was staked"


def test_a_cell_is_frozen_once_there_is_enough_evidence_against_it() -> None:
    rng = np.random.default_rng(3)
    cells, units = made_up(rng)
    process = ReturnProcess(cells, units, FOREVER)
    capital = np.zeros((len(BET_WEIGHTS), len(cells)))
    capital[:, 1] = SETTLED_AGAINST + 0.1
    state = replace(with_stakes(process, random_stakes(rng, 2)), capital=capital)
    drawn, first, scaled = random_episodes(rng, 20, 2)
    outcomes = told(units, scaled, first)
    after = process.settle(process.observe(state, drawn, outcomes), np.ones(5, dtype=bool), ())
    assert (after.capital[:, 1] == capital[:, 1]).all()
    assert (after.capital[:, 0] != 0).any()
    higher = replace(process, settled_against=20.0)
    after = higher.settle(higher.observe(state, drawn, outcomes), np.ones(5, dtype=bool), ())
    assert (after.capital[:, 1] != capital[:, 1]).any()


@given(seeds)
def test_an_abandoned_episode_proves_no_more_than_any_outcome_would(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells, units = made_up(rng)
    process = ReturnProcess(cells, units, 10)
    state = with_stakes(process, random_stakes(rng, 2))
    everyone = np.ones(len(cells), dtype=bool)
    gone = process.log_evidence(process.settle(process.abandon(state, 0), everyone, ()))
    for point in [*product((0.0, 1.0), repeat=2), *rng.random((4, 2))]:
        for policy, first in product(range(POLICIES), range(STATES)):
            seen = process.observe(state, np.array([policy]), told(units, np.array([point]), [first]))
            assert (gone <= process.log_evidence(process.settle(seen, everyone, ())) + 1e-12).all()


# -------------------------------------------------------------------------------------------------- a family of tasks


def drifting(rate: float) -> TabularCMDP:
    """One action; state 1, in which reward and cost are earned, is left with probability `rate`."""
    kernel = [[[0.5, 0.5]], [[rate, 1 - rate]]]
    return TabularCMDP(kernel, [[0.0], [1.0]], [[0.2], [1.0]], 9.0, [0.5, 0.5], 0.9, (0.0, 1.0), (0.0, 1.0))


def drifting_cells(boxes: int) -> Cells:
    base = np.array([[[0.5, 0.5]], [[0.0, 1.0]]])
    slope = np.array([[[[0.0, 0.0]], [[1.0, -1.0]]]])
    tasks = family(lambda theta: drifting(theta[0]), Uniform(0.1, 0.6), affine=(base, slope))
    return affine_cells(tasks, [TabularPolicy(np.ones((2, 1)))], boxes)


def cut_off_means(rate: float, horizon: int) -> Floats:
    """[S, 2] expected reward and cost of the first `horizon` steps, by backward recursion."""
    task, values = drifting(rate), np.zeros((2, 2))
    signals = np.stack([task.reward[:, 0], task.cost[0, :, 0]], axis=1)
    for _ in range(horizon):
        values = signals + 0.9 * task.transitions[:, 0] @ values
    return values


@pytest.mark.parametrize("horizon", [3, 10, 40])
def test_means_of_cut_off_episodes_are_allowed_for(horizon: int) -> None:
    """A law with the mean of an episode of H steps, for many members of every cell, gains nothing on average.

    Without the allowance for the tail it does, if the tail is long.
    """
    cells = drifting_cells(20)
    units = drifting(0.1).units
    rng = np.random.default_rng(0)

    def gain(declared: int) -> float:
        process = ReturnProcess(cells, units, declared)
        state = with_stakes(process, np.array([[-0.9, 0.0], [0.0, -0.9], [-0.4, -0.5], [0.4, -0.9]]))
        found = 0.0
        for j in range(0, len(cells), 4):
            means = cut_off_means(float(rng.uniform(cells.low[j, 0], cells.high[j, 0])), horizon)
            for first in (0, 1):
                points, probability = random_law(rng, means[first] / 10)
                factors = [
                    np.exp(
                        process.settle(
                            process.observe(state, np.array([0]), told(units, point[None], [first])),
                            np.ones(len(cells), dtype=bool),
                            (),
                        ).capital[:, j]
                    )
                    for point in points
                ]
                found = max(found, float((probability @ np.array(factors)).max()))
        return found

    assert gain(horizon) <= 1 + 1e-9
    if horizon == 3:
        assert gain(FOREVER) > 1.01


def test_wrong_cells_are_ruled_out_and_the_belief_finds_the_true_one() -> None:
    cells, units = drifting_cells(20), drifting(0.1).units
    process = ReturnProcess(cells, units, 60)
    rng = np.random.default_rng(1)
    state = process.start()
    surviving = np.ones(len(cells), dtype=bool)
    truth = 0.31
    kernel = drifting(truth).transitions[:, 0]
    for _ in range(60):
        states = np.empty((30, 61), dtype=int)
        states[:, 0] = rng.integers(2, size=30)
        for t in range(60):
            states[:, t + 1] = rng.random(30) < kernel[states[:, t], 1]
        discounts = 0.9 ** np.arange(60)
        reward = (states[:, :-1] == 1) @ discounts
        outcomes = Outcomes(reward, np.where(states[:, :-1] == 1, 1.0, 0.2) @ discounts[:, None], states)
        state = process.settle(process.observe(state, np.zeros(30, int), outcomes), surviving, ())
        surviving = process.log_evidence(state) < math.log(20)
    true_cell = int(np.flatnonzero((cells.low[:, 0] <= truth) & (truth <= cells.high[:, 0]))[0])
    assert surviving[true_cell]
    more_dangerous = cells.danger > cells.danger[true_cell]
    assert not surviving[cells.high[:, 0] < truth - 0.1].any()
    assert more_dangerous[cells.high[:, 0] < truth].all(), "bets are against the more dangerous cells"
    belief = process.belief(state)
    assert belief.sum() == pytest.approx(1.0)
    assert abs(belief @ cells.centre[:, 0] - truth) < 0.05


@pytest.mark.parametrize("first", [-1, STATES])
def test_first_states_that_do_not_exist_are_refused(first: int) -> None:
    cells, units = made_up(np.random.default_rng(0))
    process = ReturnProcess(cells, units, FOREVER)
    with pytest.raises(InvalidInput, match=f"states must lie in .0, {STATES}., got {first}"):
        process.observe(process.start(), np.zeros(1, int), told(units, np.zeros((1, 2)), [first]))
    outcome = told(units, np.zeros((1, 2)), [0])
    with pytest.raises(InvalidInput, match="at least the first state"):
        process.observe(process.start(), np.zeros(1, int), replace(outcome, states=None))


def test_without_first_states_the_bounds_are_those_of_the_start_distribution() -> None:
    rng = np.random.default_rng(4)
    cells, units = made_up(rng)
    process = ReturnProcess(cells, units, 3, first_states=False)
    state = with_stakes(process, random_stakes(rng, 2))
    drawn, _, scaled = random_episodes(rng, 25, 2)
    outcomes = replace(told(units, scaled, np.zeros(25, int)), states=None)
    settled = process.settle(process.observe(state, drawn, outcomes), np.ones(len(cells), dtype=bool), ())
    for bet, j in np.ndindex(*settled.capital.shape):
        stake, expected = state.stakes[bet], 0.0
        for policy, x in zip(drawn, scaled, strict=True):
            low, high = envelope(cells, units, 0.5**3, j, policy, None)
            expected += math.log1p(float(stake @ x)) - math.log1p(float(np.maximum(stake * low, stake * high).sum()))
        assert settled.capital[bet, j] == pytest.approx(expected, abs=1e-9)


def test_memory_does_not_grow_with_the_episodes() -> None:
    cells, units = made_up(np.random.default_rng(0))
    process = ReturnProcess(cells, units, 10)
    rng = np.random.default_rng(1)
    sizes = []
    state = process.start()
    for _ in range(5):
        drawn, first, scaled = random_episodes(rng, 300, 2)
        state = process.observe(state, drawn, told(units, scaled, first))
        sizes.append(len(state.pending))
    assert max(sizes) == POLICIES * STATES
    assert process.settle(state, np.ones(5, dtype=bool), ()).pending == {}


def test_random_distributions_have_the_mean_they_are_given() -> None:
    """The helper that the other tests rest on."""
    rng = np.random.default_rng(0)
    for mean in random_distributions(rng, (5, 3)):
        points, probability = random_law(rng, mean)
        assert probability.sum() == pytest.approx(1.0)
        assert ((points >= -1e-15) & (points <= 1 + 1e-15)).all()
        np.testing.assert_allclose(probability @ points, mean, atol=1e-12)


def test_bounds_for_some_first_states_count_as_before_and_nothing_is_staked_elsewhere() -> None:
    """The same capital as with bounds for all states where episodes begin in the former, none gained or lost else."""
    rng = np.random.default_rng(0)
    cells, units = made_up(rng)
    assert cells.start_lower is not None
    assert cells.start_upper is not None
    known = np.array([0, 2])
    bounds = {"start_lower": cells.start_lower[..., known], "start_upper": cells.start_upper[..., known]}
    some = replace(cells, **bounds, first_states=known)
    stakes, scaled = random_stakes(rng, 2), rng.random((6, 2))
    drawn = np.array([0, 1, 0, 1, 0, 1])
    settled = []
    for each in (cells, some):
        process = ReturnProcess(each, units, 12)
        state = process.observe(with_stakes(process, stakes), drawn, told(units, scaled, [0, 2, 2, 0, 0, 2]))
        settled.append(process.settle(state, np.ones(len(cells), dtype=bool), ()).capital)
    np.testing.assert_allclose(settled[1], settled[0], rtol=1e-12)
    process = ReturnProcess(some, units, 12)
    state = process.observe(with_stakes(process, stakes), drawn, told(units, scaled, [1, 1, 1, 1, 1, 1]))
    assert not process.settle(state, np.ones(len(cells), dtype=bool), ()).capital.any()
