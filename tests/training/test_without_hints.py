"""Families about which nothing is told but how to build their tasks: what is found out, foretold and refused."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy.stats import binom

from surefoot.arrays import Floats
from surefoot.bounds.settings import Envelopes
from surefoot.confidence import binomial_upper
from surefoot.errors import InvalidInput
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family
from surefoot.training.cover import SAMPLED
from surefoot.training.preflight import LongTrainingWarning, UncertifiedWarning, preflight
from surefoot.training.train import train

FEW = Envelopes(cells=0, holdout=99)


def corridor(slip: float, discount: float = 0.9, states: int = 8) -> TabularCMDP:
    """A walk along a corridor whose far end pays; whoever slips falls back to the start, which costs."""
    transitions = np.zeros((states, 2, states))
    for s in range(states):
        transitions[s, 0, s] = 1.0
        transitions[s, 1, min(s + 1, states - 1)] += 1 - slip
        transitions[s, 1, 0] += slip
    reward, cost = np.zeros((states, 2)), np.zeros((states, 2))
    reward[-1], cost[1:, 1] = 1.0, 0.2
    return TabularCMDP(transitions, reward, cost, 1.0, np.eye(states)[0], discount, (0.0, 1.0), (0.0, 1.0))


def quiet_train(tasks: TaskDistribution, **arguments: object) -> PolicyValueSet:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)
        return train(tasks, **{"progress": False, "seed": 0, "epsilon": 0.02, "delta": 0.2, **arguments})  # type: ignore[arg-type]


def test_coordinates_that_understate_distances_are_refused() -> None:
    def build(theta: Floats) -> TabularCMDP:
        return corridor(theta[0])

    with pytest.raises(
        InvalidInput,
        match=r"must not understate .* got 0\.04 between the tasks of \[0\.0?\] and \[0\.4\], "
        r"whose distance is 0\.4",
    ):
        quiet_train(family(build, Uniform(0.0, 0.4), coordinates=lambda theta: 0.1 * theta))
    known = quiet_train(family(build, Uniform(0.0, 0.4), coordinates=lambda theta: theta), envelopes=FEW)
    found = quiet_train(family(build, Uniform(0.0, 0.4)), envelopes=FEW)
    assert [one.parameter.tolist() for one in known.entries] == [one.parameter.tolist() for one in found.entries]
    overstated = quiet_train(family(build, Uniform(0.0, 0.4), coordinates=lambda theta: 2 * theta), envelopes=FEW)
    assert len(overstated) > len(known)


@pytest.mark.short_for(power=[2], parameters=[1])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("parameters", [1, 2])
def test_the_work_is_foretold(power: int, parameters: int) -> None:
    tasks = family(
        lambda theta: corridor(float((theta**power).sum())), Uniform([0.05] * parameters, [0.3] * parameters)
    )
    predicted = preflight(tasks, epsilon=0.01, delta=0.1)
    found = quiet_train(tasks, epsilon=0.01, delta=0.1, envelopes=FEW)
    assert predicted.cover_size is not None
    assert predicted.samples is not None
    assert 0.5 * len(found) - 1 <= predicted.cover_size <= 2 * len(found) + 1
    assert predicted.samples / found.training["samples"] in (0.25, 0.5, 1.0, 2.0, 4.0)
    assert predicted.expected.startswith(f"expecting about {predicted.cover_size} centres")


def test_very_long_training_is_announced_with_an_epsilon_that_would_do() -> None:
    rng = np.random.default_rng(0)
    kernels = rng.dirichlet(np.ones(6), size=(5, 6, 2))

    def build(theta: Floats) -> TabularCMDP:
        shares = np.append(1 - theta.sum(), theta)
        transitions = np.tensordot(shares, kernels, axes=1)
        return TabularCMDP(transitions, np.eye(6)[:, :2], np.eye(6)[:, 2:4], 9.0, np.eye(6)[0], 0.9, (0, 1), (0, 1))

    tasks = family(build, Uniform([0.0] * 4, [0.25] * 4))
    report = preflight(tasks, epsilon=0.002, delta=0.05)
    assert report.is_long
    wider = float(report.long_warning.split("epsilon=")[1].split()[0])
    assert 0.005 < wider < 0.1
    eased = preflight(tasks, epsilon=wider, delta=0.05)
    assert not eased.is_long
    assert eased.cover_size is not None
    assert 100 < eased.cover_size < 2500
    assert issubclass(LongTrainingWarning, UserWarning)


@pytest.mark.long
def test_boxes_too_wide_for_the_expansion_are_no_end() -> None:
    """Two parameters, discount 0.99 and few cells: bounds from held-out tasks, and a warning that says so."""
    tasks = family(lambda theta: corridor(float(theta.sum()), discount=0.995), Uniform([0.0, 0.0], [0.3, 0.3]))
    with pytest.warns(UserWarning, match="boxes over the parameters are too wide .* held-out tasks"):
        policies = quiet_train(tasks, epsilon=0.1, envelopes=Envelopes(cells=9, holdout=699))
    assert policies.cells is not None
    assert policies.cells.source == "holdout"


def test_the_test_of_a_cover_is_passed_by_bad_ones_no_more_often_than_promised() -> None:
    """A cover that misses a hair more than 4δ passes one test of level δ/2 with at most that probability, exactly."""
    delta = 0.1
    size = math.ceil(SAMPLED / delta)

    passing = [k for k in range(size) if binomial_upper(k, size, delta / 2) <= 4 * delta]
    assert binom.cdf(max(passing), size, 4 * delta + 1e-9) <= delta / 2
    assert binom.cdf(max(passing), size, 3 * delta) > 0.99  # and good ones nearly always
