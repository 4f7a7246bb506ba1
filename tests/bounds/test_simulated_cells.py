"""What is simulated for cells: bounds that hold at all looks, one process as two, the same seed the same set."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rough_family import LEVERS, levers, trained, true_numbers
from surefoot.bounds.cells import Cells
from surefoot.bounds.envelopes import build_cells
from surefoot.bounds.settings import MISS_RATE, Envelopes, LearnedSignals, ResolvedBounds
from surefoot.bounds.simulation import HoldoutBounds, Simulation, Trial
from surefoot.confidence import one_bet
from surefoot.fan_out import workers
from surefoot.testing.learner_suite import fingerprint

FALSE_ALARM = 1e-4
SMALL, LESSON = Envelopes(cells=6, holdout=32, uncovered=0.2, episodes=60), LearnedSignals(tasks=12, episodes=4)
TASKS = levers()


def blank(stake: float, numbers: int = 1) -> HoldoutBounds:
    shape = np.zeros(numbers)
    return HoldoutBounds(shape, shape + 1, shape + stake, np.zeros((2, numbers)), 0, np.random.default_rng(0))


@given(st.integers(0, 10**6), st.lists(st.integers(1, 40), min_size=1, max_size=5), st.floats(0.01, 0.9))
def test_bounds_are_the_intersection_of_what_every_look_says(seed: int, looks: list[int], stake: float) -> None:
    numbers, held = np.random.default_rng(seed).beta(2, 5, size=(sum(looks), 2)), blank(stake, 2)
    lower, upper, until = np.zeros(2), np.ones(2), 0
    for size in looks:
        held, until = held.update(numbers[until : until + size]), until + size
        for k, column in enumerate(numbers[:until].T):
            above = one_bet(np.log(1 - stake * column).sum(), until, np.array(stake), MISS_RATE)
            below = one_bet(np.log(1 - stake * (1 - column)).sum(), until, np.array(stake), MISS_RATE)
            upper[k], lower[k] = min(upper[k], above), max(lower[k], 1 - below)
    assert held.done == len(numbers)
    np.testing.assert_allclose([held.lower, held.upper], [lower, upper], atol=1e-12)


def simulation(**changed: Any) -> Simulation:
    settings = ResolvedBounds(
        **{"cells": 6, "holdout": 32, "uncovered": 0.2, "episodes": 40, "simulated": True, **changed}
    )
    with workers(1) as ready:
        return Simulation(Trial(TASKS, LEVERS), settings, 3, ready)


def test_bounds_of_held_out_tasks_are_wrong_as_rarely_as_they_say_however_deep_one_looks() -> None:
    """Each side of each number, after all episodes that there may be."""
    made = simulation()
    parameters = TASKS.sample(120, np.random.default_rng(5))
    spreads = np.full((120, 3, 2), 0.4)
    wrong = np.zeros((3, 2, 2))
    for parameter, held in zip(
        parameters, list(made.begin(parameters, spreads, np.ones(spreads.shape[:2], bool))), strict=True
    ):
        truth = true_numbers(TASKS.task(parameter), None)
        for p, each in enumerate(held):
            while each.done < made.most_episodes:
                each = made.extend([(parameter, p, each)])[0]
            assert each.done == made.most_episodes
            wrong[p] += np.stack([each.lower > truth[p] + 1e-12, each.upper < truth[p] - 1e-12], axis=1)
    for count in wrong.ravel().astype(int).tolist():
        assert stats.binomtest(count, 120, MISS_RATE, alternative="greater").pvalue > FALSE_ALARM
    assert wrong.max() > 0


def test_what_a_policy_shows_does_not_depend_on_what_others_were_asked_for() -> None:
    made = simulation()
    parameters, spreads = TASKS.sample(2, np.random.default_rng(5)), np.full((2, 3, 2), 0.4)
    alone, among = (list(made.begin(parameters, spreads, np.ones(spreads.shape[:2], bool))) for _ in range(2))
    first = made.extend([(parameters[1], 2, alone[1][2])])[0]
    _, second = made.extend([(parameters[1], 0, among[1][0]), (parameters[1], 2, among[1][2])])
    assert (first.lower.tobytes(), first.upper.tobytes()) == (second.lower.tobytes(), second.upper.tobytes())


def arrays(cells: Cells) -> Any:
    assert cells.readings is not None
    return fingerprint(cells)


@pytest.mark.long
def test_one_process_and_two_and_the_same_seed_give_the_same_cells() -> None:
    one, again, two = (
        build_cells(TASKS, LEVERS, seed=4, envelopes=SMALL, signals=LESSON, jobs=jobs) for jobs in (1, 1, 2)
    )
    assert arrays(one) == arrays(again) == arrays(two)
    assert arrays(build_cells(TASKS, LEVERS, seed=5, envelopes=SMALL, signals=LESSON)) != arrays(one)


def test_signals_do_not_depend_on_how_bounds_are_made() -> None:
    """They are fixed before the first episode is simulated that bounds them."""
    cells = [
        build_cells(
            TASKS,
            LEVERS,
            seed=4,
            envelopes=Envelopes(cells=n, holdout=32 + n, uncovered=0.2, episodes=40 + n),
            signals=LESSON,
        )
        for n in (3, 6)
    ]
    learned = [fingerprint(each.readings.signals) for each in cells if each.readings is not None]
    assert learned[0] == learned[1]


def test_cells_say_what_is_known_of_signals() -> None:
    policies, base = trained(TASKS, 1, SMALL, LESSON)
    cells = policies.cells
    assert cells is not None
    assert cells.readings is not None
    readings = cells.readings
    assert ((readings.lower >= 0) & (readings.lower <= readings.upper) & (readings.upper <= 1)).all()
    assert (readings.upper - readings.lower).min() < 0.9, "something is known"
    np.testing.assert_allclose(readings.law.sum(axis=-1), 1.0)
    assert cells.prior.sum() == pytest.approx(1 - cells.uncovered)
    assert len(cells) <= 6
    assert math.isfinite(base.error.max())
    assert (base.error > 0).all()
    j = base.cell_of(base.centres)
    assert j.tolist() == list(range(len(cells))), "a centre lies in its own cell"
