"""The preflight's arithmetic, and its predictions against what training then finds."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from point_mass import PointMass, lane
from surefoot.bounds.settings import Envelopes
from surefoot.oracles import exact_oracles
from surefoot.oracles.interface import Oracles
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.distribution import Normal, Uniform
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.tasks.task_distribution import TaskDistribution, family, from_arrays
from surefoot.training.preflight import preflight
from surefoot.training.train import train

FEW = Envelopes(cells=0, holdout=99)


@pytest.mark.short_for(epsilon=[0.01])
@pytest.mark.parametrize(
    ("tasks", "epsilon", "delta"),
    [
        (gridworld(), 0.004, 0.1),
        (gridworld(), 0.001, 0.1),
        (gridworld(std=0.01), 0.002, 0.05),
        (gridworld(kernel="text"), 0.01, 0.2),
    ],
)
def test_predicts_the_cover_and_the_sample(tasks: TaskDistribution, epsilon: float, delta: float) -> None:
    predicted = preflight(tasks, epsilon=epsilon, delta=delta)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = train(tasks, epsilon=epsilon, delta=delta, seed=0, progress=False, envelopes=FEW)
    assert predicted.cover_size is not None
    assert predicted.samples is not None
    assert 0.8 * len(found) - 1 <= predicted.cover_size <= 1.25 * len(found) + 1
    assert predicted.samples / found.training["samples"] in (0.5, 1.0, 2.0)
    assert found.training["predicted_cover_size"] == predicted.cover_size
    assert found.training["predicted_samples"] == predicted.samples
    assert found.training["theorem_probability"] == predicted.probability


def test_arithmetic_by_hand() -> None:
    """γ = 0.9: L = 190 and 8L+18 = 1538. Costs of 0 ... 10, budget 1.5: nobody's unit margin exceeds 0.15."""
    report = preflight(gridworld(), epsilon=1e-4, delta=0.01)
    assert report.needed == pytest.approx(0.1538, rel=1e-12)
    assert report.xi == pytest.approx(0.15, rel=1e-12)
    assert not report.satisfied
    assert report.largest_epsilon == pytest.approx(0.15 / 1538, rel=1e-12)
    size, N = report.cover_size, report.samples
    assert size is not None
    assert N is not None
    assert report.probability == pytest.approx(1 - 0.26 - 0.09 * math.log(size))
    assert size * math.log(2 * N / 0.01) / (N - size) <= 1e-4 < size * math.log(N / 0.01) / (N / 2 - size)
    assert N % math.ceil(math.log(0.01) ** 2 / 1e-4) == 0


def test_a_horizon_is_worth_the_discount_with_as_long_episodes() -> None:
    """Ten steps, none of them discounted: 1/(1-γ) = 10, so again 8L+18 = 1538. Whoever spends nothing keeps 4."""
    tasks = family(lambda drift: PointMass(drift, lane(4.0, discount=1.0, horizon=10)), Uniform(0.1, 0.2))
    report = preflight(tasks, epsilon=1e-4, delta=0.01)
    assert report.needed == pytest.approx(0.1538, rel=1e-12)
    assert report.xi == pytest.approx(4.0, rel=1e-12)
    assert report.largest_epsilon == pytest.approx(4.0 / 1538, rel=1e-12)


def test_a_margin_asked_for_replaces_the_attainable_one() -> None:
    """Asked for beforehand, or found later."""
    report = preflight(gridworld(), epsilon=2e-5, delta=0.01, xi=0.04)
    assert (report.xi, report.xi_requested) == (0.04, True)
    assert report.satisfied  # 1538 · 2e-5 = 0.03076
    assert report.largest_epsilon == pytest.approx(0.04 / 1538)
    assert "(8L+18)ε = 0.03076 ≤ ξ = 0.04: the theorem's precondition holds" in report.lines
    later = report.at_margin(0.01)
    assert not later.satisfied
    assert later.largest_epsilon == pytest.approx(0.01 / 1538)
    assert "exceeds ξ 0.01" in later.warning


def test_lines_say_what_the_numbers_mean() -> None:
    vacuous = preflight(gridworld(), epsilon=0.004, delta=0.1)
    assert vacuous.lines[0] == vacuous.warning
    assert "exceeds any attainable ξ, at most 0.15" in vacuous.warning
    assert "epsilon ≤ 9.75e-05" in vacuous.warning
    assert any("(vacuous)" in line for line in vacuous.lines)
    assert not any("(vacuous)" in line for line in preflight(gridworld(), epsilon=0.004, delta=0.01).lines)
    assert vacuous.facts["precondition_holds"] is False
    assert vacuous == preflight(gridworld(), epsilon=0.004, delta=0.1), "the same answer every time"


def test_nothing_is_predicted_where_parameters_tell_no_distance() -> None:
    tasks = from_arrays([gridworld().task([noise]) for noise in (0.2, 0.3)])
    report = preflight(tasks, epsilon=0.01, delta=0.1)
    assert (report.cover_size, report.samples, report.probability) == (None, None, None)
    assert len(report.lines) == 1


def test_own_check_oracles_make_the_pilot_impossible() -> None:
    tasks = gridworld()
    exact = exact_oracles(tasks)
    own = Oracles(lambda a, b, epsilon, delta, rng: True, exact.optimal, exact.feasible)
    assert preflight(tasks, epsilon=0.01, delta=0.1, oracles=own).cover_size is None
    assert preflight(tasks, epsilon=0.01, delta=0.1, oracles=exact).cover_size is not None


def test_two_dimensional_families_are_covered_in_the_maximum_norm() -> None:
    def build(parameter: np.ndarray) -> TabularCMDP:
        return gridworld().task([0.3])

    box = family(build, Uniform([0.0, 0.0], [1.0, 1.0]), coordinates=lambda parameters: parameters)
    report = preflight(box, epsilon=0.251, delta=0.01)
    assert report.cover_size is not None
    assert 4 <= report.cover_size <= 12
    narrow = family(build, Normal([0.5, 0.5], std=[0.3, 1e-6], low=[0, 0], high=[1, 1]), coordinates=lambda p: p)
    assert preflight(narrow, epsilon=0.251, delta=0.01).cover_size in (2, 3)
