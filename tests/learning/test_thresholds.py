"""From which evidence on a cell is ruled out."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import surefoot as sf
from guarantees import mutants
from surefoot.errors import InvalidInput
from surefoot.learning.certified.thresholds import CONSTANT, FALL, Thresholds, cell_levels
from surefoot.policyset.policy_value_set import PolicyValueSet


@cache
def rooms() -> PolicyValueSet:
    return mutants.rooms_policies()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40).filter(lambda q: sum(q) > 0), st.floats(1e-6, 0.99))
def test_levels_of_cells_are_within_the_level_in_the_mean(weights: list[float], level: float) -> None:
    q = np.array(weights) / sum(weights)
    levels = cell_levels(np.array(weights), level)
    assert q @ levels <= level * (1 + 1e-12)
    assert ((levels > 0) & (levels < 1)).all()
    assert (levels >= 0.9 * level - 1e-15).all(), "likely cells give up a tenth of it at most"
    assert (np.diff(levels[np.argsort(q, kind="stable")]) <= 1e-12).all(), "the unlikelier, the larger"


def test_thresholds_fall_to_that_of_the_level_and_never_below() -> None:
    cells = rooms().cells
    assert cells is not None
    plain = CONSTANT.at(1, cells, 0.1)
    assert plain == pytest.approx(np.full(len(cells), np.log(10)))
    falling = Thresholds(declared=1000)
    found = np.array([falling.at(episode, cells, 0.1)[0] for episode in (0, 1, 10, 100, 1000, 5000)])
    assert found - plain[0] == pytest.approx(FALL * np.log([1000, 1000, 100, 10, 1, 1]))


def test_falling_thresholds_rule_out_less_and_later() -> None:
    task = mutants.rooms().task([0.07])
    runs = {
        declared: sf.adapt(rooms(), task, method="certified-likelihood", episodes=400, seed=3, declared=declared)
        for declared in (None, 400)
    }
    assert runs[400].regret[-1] > runs[None].regret[-1]
    assert runs[400].unsafe_episodes == 0


def test_a_calibration_brings_its_options() -> None:
    found = sf.calibrate(
        rooms(),
        mutants.rooms(),
        method="certified-likelihood",
        episodes=60,
        risk=0.3,
        error=0.1,
        levels=[0.4],
        runs=40,
        seed=1,
        jobs=1,
        declared=60,
    )
    assert found.level == 0.4
    made = sf.learner(rooms(), method="certified-likelihood", risk=0.3, calibration=found)
    assert made.method.inner.thresholds.declared == 60
    with pytest.raises(InvalidInput, match="calibration must be for declared 50, got one for 60"):
        sf.learner(rooms(), method="certified-likelihood", risk=0.3, calibration=found, declared=50)


def test_levels_by_prior_need_probabilities() -> None:
    cells = rooms().cells
    assert cells is not None
    estimated = replace(rooms(), cells=replace(cells, source="holdout"))
    with pytest.raises(InvalidInput, match=r"by_prior must be False where the probabilities of cells are estimates"):
        sf.learner(estimated, method="certified-returns", risk=0.5, by_prior=True)


@pytest.mark.parametrize("declared", [0, -3, 2.5])
def test_declared_is_a_number_of_episodes(declared: float) -> None:
    with pytest.raises(InvalidInput, match="declared must be"):
        sf.learner(rooms(), method="certified-likelihood", declared=declared)
