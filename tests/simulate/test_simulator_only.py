"""A task that can only be simulated, with networks for policies, goes all the way: Algorithm 1 with given oracles,
file, methods, journal. What is really true is known in closed form (`point_mass`) and to nothing but these tests."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from point_mass import PointMass, lane, speed, true_margins, true_values
from surefoot.arrays import Floats
from surefoot.cmdp.task import ReadableTask, Task
from surefoot.cmdp.units import Units
from surefoot.deploy.verify import verify
from surefoot.estimates import value_bounds
from surefoot.lab.experiments.adapt import Adaptation, adapt_one
from surefoot.lab.experiments.adapt import page as adapt_page
from surefoot.lab.experiments.frame import write_report
from surefoot.learning.learner import Learner
from surefoot.oracles import FeasiblePolicy, Oracles, ParameterDistance, PolicyValues
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import silent
from surefoot.simulate.run import Run
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.testing import oracle_suite

UNITS = {"discounted": lane(budget=0.3), "episodic": lane(budget=2.0, discount=1.0, horizon=8)}
WEAK, STRONG = 0.42, 0.75  # drifts of the tasks at hand
EPISODES = 3000
# Tasks to simulate: as usual, or a third of them.
ENVELOPES = {"discounted": sf.Envelopes(), "episodic": sf.Envelopes(cells=100, holdout=150)}


# ------------------------------------------------------------------------------------------------- what a user writes


def point_masses(units: Units) -> TaskDistribution:
    return sf.tasks.family(
        lambda drift: PointMass(drift, units), sf.tasks.Uniform(0.4, 0.8), coordinates=lambda drifts: drifts
    )


def optimal(task: PointMass, epsilon: float, delta: float, rng: np.random.Generator) -> PolicyValues:
    """The fastest of some speeds that simulation shows to be feasible."""
    for level in np.linspace(1.0, 0.3, 8):
        found = simulated(task, float(level), delta / 8, rng)
        if found.margin[0] >= 0:
            return found
    raise sf.Infeasible("no speed is feasible")


def feasible(tasks: list[PointMass], xi: float | None, delta: float, rng: np.random.Generator) -> FeasiblePolicy:
    found = [simulated(task, 0.2, delta / len(tasks), rng) for task in tasks]
    return FeasiblePolicy(
        found[0].policy, np.array([each.reward for each in found]), np.array([each.margin for each in found])
    )


def simulated(task: PointMass, level: float, error: float, rng: np.random.Generator) -> PolicyValues:
    policy, steps = speed(level), task.units.episode_length
    outcomes = task.episodes(policy, steps).run(4000, rng)
    return PolicyValues(policy, float(outcomes.reward.mean()), value_bounds(outcomes, task.units, steps, error)[0][1:])


@cache
def trained(kind: str, envelopes: sf.Envelopes | None = None) -> PolicyValueSet:
    tasks = point_masses(UNITS[kind])
    oracles = Oracles(ParameterDistance(lambda drifts: drifts), optimal, feasible)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the paper's theorem, which asks for a much finer cover
        settings: Any = {"oracles": oracles, "envelopes": envelopes or ENVELOPES[kind]}
        return sf.train(tasks, epsilon=0.06, delta=0.1, seed=0, progress=False, **settings)


# --------------------------------------------------------------------------------------------------------- Algorithm 1


@pytest.mark.short_for(kind=["episodic"])
@pytest.mark.parametrize("kind", list(UNITS))
def test_training_covers_the_tasks_and_bounds_the_values_of_fresh_ones(kind: str) -> None:
    tasks, policies = point_masses(UNITS[kind]), trained(kind)
    assert isinstance(tasks.example, Task)
    assert not isinstance(tasks.example, ReadableTask)
    assert len(policies) > 1
    for entry in policies.entries:
        task = tasks.task(entry.parameter)
        assert true_values(task, entry.policy).margin[0] >= 0
        assert true_values(task, policies.safe_policy).margin[0] >= entry.safe_margin[0] > 0
    cells = policies.cells
    assert cells is not None
    assert (cells.source, cells.model, cells.start_lower) == ("monte-carlo", None, None)
    assert cells.uncovered == policies.safe_risk == 0.03
    fresh = tasks.sample(200, np.random.default_rng(5))
    broken = [breaks(policies, tasks.task(drift), int(np.argmin(np.abs(cells.low - drift)))) for drift in fresh]
    assert np.mean(broken) <= 0.03


def breaks(policies: PolicyValueSet, task: PointMass, cell: int) -> bool:
    """Whether the true values lie outside of the bounds of a cell."""
    values = np.array([[found.reward, *found.margin] for found in (true_values(task, p) for p in policies.policies)])
    assert policies.cells is not None
    return bool(((values < policies.cells.lower[cell]) | (values > policies.cells.upper[cell])).any())


def test_training_without_cells_says_how_often_the_safe_policy_fails() -> None:
    policies = trained("discounted", sf.Envelopes(cells=0))
    assert policies.cells is None
    assert policies.safe_risk is not None
    assert 0 < policies.safe_risk < 0.05


def test_training_without_oracles_says_what_to_pass() -> None:
    with pytest.raises(sf.InvalidInput, match=r"oracles=Oracles\(check, optimal, feasible\).* of type PointMass"):
        sf.train(point_masses(UNITS["discounted"]), epsilon=0.06, delta=0.1, seed=0, progress=False)


# ------------------------------------------------------------------------------------------------- file, then methods


@pytest.fixture(params=list(UNITS))
def policies(request: pytest.FixtureRequest, tmp_path: Path) -> PolicyValueSet:
    """Trained, saved and loaded."""
    before = trained(request.param)
    before.save(tmp_path / "set")
    after = PolicyValueSet.load(tmp_path / "set")
    assert after.digest() == before.digest()
    assert after.units.same_as(before.units)
    return after


def run(policies: PolicyValueSet, method: str, drift: float, **options: Any) -> Run:
    task = PointMass(drift, policies.units)
    return sf.adapt(policies, task, method=method, episodes=EPISODES, risk=0.1, seed=1, **options)


def check_record(policies: PolicyValueSet, found: Run, drift: float) -> None:
    """It says estimated, its intervals hold what is true, and nothing unsafe was deployed."""
    output = float(found.output.weights @ true_margins(PointMass(drift, policies.units), found.output.components))
    assert found.certified
    assert not found.exact
    assert found.error is not None
    assert np.isnan(found.regret).all()
    assert abs(found.margin.mean() - output) <= found.error[:, 1].mean()
    assert output >= 0
    assert found.unsafe_episodes == 0


@pytest.mark.short_for(policies=["episodic"])
@pytest.mark.parametrize("method", ["paper", "safe-only"])
def test_methods_that_stay_with_the_safe_policy_here(policies: PolicyValueSet, method: str) -> None:
    """The paper's phases are far longer than this run."""
    found = run(policies, method, STRONG)
    check_record(policies, found, STRONG)
    assert not found.weight.any()


@pytest.mark.short_for(policies=["episodic"])
@pytest.mark.parametrize("method", ["certified-returns", "certified-model-free"])
@pytest.mark.parametrize("drift", [WEAK, STRONG])
def test_methods_that_leave_the_safe_policy_on_sums_alone(policies: PolicyValueSet, method: str, drift: float) -> None:
    found = run(policies, method, drift)
    check_record(policies, found, drift)
    assert found.weight[-1] > 0.2
    if drift == WEAK:
        assert found.weight[-1] > 0.2 + found.weight[0], "most of what may be had is learned on the way"


@pytest.mark.short_for(policies=["episodic"])
def test_certified_chooses_what_sums_allow(policies: PolicyValueSet) -> None:
    found = run(policies, "certified", WEAK)
    assert "certified-returns" in found.events[0].message
    assert np.array_equal(found.weight, run(policies, "certified-returns", WEAK).weight)


@pytest.mark.long
@pytest.mark.short_for(policies=["episodic"])
def test_a_journal_of_sums_verifies_and_can_be_reopened(policies: PolicyValueSet, tmp_path: Path) -> None:
    task, journal, rng = PointMass(WEAK, policies.units), tmp_path / "lane.journal", np.random.default_rng(3)

    def made() -> Learner:
        return sf.learner(policies, method="certified", risk=0.1, seed=2)

    for rounds in (1, 2):
        with sf.Deployment.open(journal, made()) as deployment:
            for _ in range(150):
                order = deployment.ask()
                told = task.episodes(order.policy, policies.units.episode_length).run(1, rng)
                deployment.tell(order, reward=float(told.reward[0]), cost=float(told.cost[0, 0]))
            assert deployment.status().episodes == 150 * rounds
            assert true_weighted_margin(policies, task, deployment) >= 0
    verdict = verify(journal, made())
    assert verdict.holds, verdict.reason
    assert verdict.episodes == 300


def true_weighted_margin(policies: PolicyValueSet, task: PointMass, deployment: sf.Deployment) -> float:
    deployed = deployment.learner.deployed
    margins: Floats = true_margins(task, policies.policies)
    return float(deployed.weights @ margins[deployed.indices])


@pytest.mark.short_for(policies=["episodic"])
def test_a_report_says_estimated(policies: PolicyValueSet, tmp_path: Path) -> None:
    settings = Adaptation((WEAK,), "certified-returns", episodes=500, risk=0.1)
    results = adapt_one(policies, point_masses(policies.units), settings, silent)
    found = results["methods"]["certified-returns"]
    assert found["estimated"]
    assert found["regret_mean"] is None, "nobody told the optimum"
    assert found["unsafe_tasks"] == 0
    low, high = found["min_margin_interval"]
    assert low <= found["min_margin"] <= high
    write_report(tmp_path, results, adapt_page(results))
    page = (tmp_path / "report.html").read_text()
    assert "estimated" in page
    assert "exact" not in page


# ------------------------------------------------------------------------------------------------- the shipped suites


def test_these_oracles_keep_the_contract_and_liars_do_not() -> None:
    task, tasks = PointMass(WEAK, UNITS["discounted"]), [PointMass(each, UNITS["discounted"]) for each in (0.45, 0.7)]
    oracle_suite.conforms_to_optimal_oracle(optimal, task, epsilon=0.06)  # type: ignore[arg-type]
    oracle_suite.conforms_to_feasible_oracle(feasible, tasks, 0.0, epsilon=0.06)  # type: ignore[arg-type]

    def boasting(*arguments: Any) -> PolicyValues:
        found = optimal(*arguments)
        return PolicyValues(found.policy, found.reward, found.margin + 0.2)

    def forgetful(*arguments: Any) -> FeasiblePolicy:
        found = feasible(*arguments)
        return FeasiblePolicy(speed(0.9), found.reward, found.margin)

    with pytest.raises(AssertionError, match="the oracle says"):
        oracle_suite.conforms_to_optimal_oracle(boasting, task, epsilon=0.06)
    with pytest.raises(AssertionError, match="the oracle says"):
        oracle_suite.conforms_to_feasible_oracle(forgetful, tasks, 0.0, epsilon=0.06)
