"""Families affine in their parameter whose boxes are too wide for an expansion: held-out bounds, exact likelihoods."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from random_tasks import random_distributions
from surefoot.arrays import Floats
from surefoot.bounds import conformal, holdout
from surefoot.bounds.exact import evaluator
from surefoot.bounds.settings import Envelopes
from surefoot.tasks.affine_detection import affinity, detection_doubt
from surefoot.tasks.task_distribution import TaskDistribution

RNG = np.random.default_rng(0)
KERNELS = random_distributions(RNG, (4, 6, 2, 6), 0.6)
REWARD = RNG.random((6, 2))
COST = (RNG.random((6, 2)) < 0.4) * REWARD
FEW = Envelopes(cells=60, holdout=699)


def build(weights: Floats) -> sf.TabularCMDP:
    kernel = np.tensordot([1 - weights.sum(), *weights], KERNELS, axes=1)
    return sf.TabularCMDP(kernel, REWARD, COST, 30.0, np.eye(6)[0], 0.99, (0.0, 1.0), (0.0, 1.0))


@pytest.fixture(scope="module")
def tasks() -> TaskDistribution:
    return sf.tasks.family(build, sf.tasks.Uniform([0.0] * 3, [0.3] * 3))


@pytest.fixture(scope="module")
def policies(tasks: TaskDistribution) -> sf.PolicyValueSet:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = sf.train(tasks, epsilon=0.4, delta=0.2, seed=0, progress=False, envelopes=FEW)
    assert any("too wide for bounds by expansion" in str(each.message) for each in caught)
    return made


def test_likelihoods_are_exact_on_boxes(tasks: TaskDistribution, policies: sf.PolicyValueSet) -> None:
    cells = policies.cells
    assert cells is not None
    assert (cells.source, sf.advice(policies).method) == ("holdout", "certified-likelihood")
    assert cells.uncovered == pytest.approx(0.005 + detection_doubt(tasks))
    assert cells.model is not None
    truth = tasks.task(cells.centre[7])
    again = cells.model.task(cells.centre[7], policies.units)
    np.testing.assert_allclose(again.rows.toarray(), truth.rows.toarray(), atol=1e-13)
    assert ((cells.low >= -1e-12) & (cells.high <= 0.3 + 1e-12)).all()  # nobody draws anything beyond


def test_fresh_tasks_keep_bounds_and_boxes(tasks: TaskDistribution, policies: sf.PolicyValueSet) -> None:
    """Both are broken by one task in 170 at most: 8 or more of 300 would have a probability of 0.0003."""
    assert broken_by_fresh_tasks(tasks, policies) < 8


@pytest.mark.short_for(mutant=["boxes that were not widened"])
@pytest.mark.parametrize("mutant", ["boxes that were not widened", "nothing was widened"])
def test_what_was_not_widened_is_caught(
    tasks: TaskDistribution, policies: sf.PolicyValueSet, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mutant == "nothing was widened":
        monkeypatch.setattr(conformal, "conformal_quantile", lambda *told: (0.0, 0.0))
    else:
        fit = holdout.fit_bounds

        def without_room(*given: Any) -> holdout.SampledBounds:
            return replace(fit(*given), extent=np.full(3, 1e-12))

        monkeypatch.setattr(holdout.SampledBounds, "score", score_of_values_alone)
        monkeypatch.setattr(holdout, "fit_bounds", without_room)
    settings = FEW.resolve(tasks.example)
    values = evaluator(tasks, policies.policies)
    found = affinity(tasks, seed=0)
    cells = holdout.holdout_cells(tasks, values, np.random.default_rng([0, 2, 1]), settings, found)
    assert broken_by_fresh_tasks(tasks, replace(policies, cells=cells)) >= 8


def score_of_values_alone(base: holdout.SampledBounds, found: holdout.Measurement) -> float:
    """As if it did not matter where in its cell a task lies."""
    j, low, high, _ = found
    below, above = (base.lower[j] - low) / base.width[j], (high - base.upper[j]) / base.width[j]
    return float(max(0.0, below.max(), above.max()))


def broken_by_fresh_tasks(tasks: TaskDistribution, policies: sf.PolicyValueSet) -> int:
    """Of 300, those that lie in the box of no cell whose bounds they keep."""
    cells, broken = policies.cells, 0
    assert cells is not None
    for parameter in tasks.sample(300, np.random.default_rng(9)):
        holds = (cells.low <= parameter + 1e-12).all(axis=1) & (parameter - 1e-12 <= cells.high).all(axis=1)
        values = np.array([[v.reward, *v.margin] for v in map(tasks.task(parameter).values, policies.policies)])
        inside = ((cells.lower <= values + 1e-9) & (values - 1e-9 <= cells.upper)).all(axis=(1, 2))
        broken += not (holds & inside).any()
    return broken


@pytest.mark.long
@pytest.mark.short_for(method=["certified-ball"])
@pytest.mark.parametrize("method", ["certified-likelihood", "certified-ball"])
def test_what_is_deployed_is_safe(tasks: TaskDistribution, policies: sf.PolicyValueSet, method: str) -> None:
    for k, parameter in enumerate(tasks.sample(15, np.random.default_rng(4))):
        run = sf.adapt(policies, tasks.task(parameter), method=method, episodes=400, risk=0.05, seed=k)
        assert run.unsafe_episodes == 0
