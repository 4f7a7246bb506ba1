"""The baselines on networks as methods: what they are told and refuse, the learner's contract, and without JAX."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import surefoot as sf
from contracts.made_up import made_up_set
from point_mass import speed
from surefoot.arrays import Floats
from surefoot.cmdp.episode import Observed, Outcome, Outcomes
from surefoot.cmdp.units import Units
from surefoot.control.improvement import steps_worth
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.control.networks import actor_of
from surefoot.deploy.session import Deployment
from surefoot.deploy.verify import verify
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.advantages import (
    RIDGE,
    estimate_advantages,
    observations_before,
    ridge_fit,
    rollout_samples,
    round_down,
    value_features,
)
from surefoot.lab.baselines.batch_adaptation import BatchAdaptation
from surefoot.lab.baselines.control_specs import BatchRules
from surefoot.lab.baselines.rollout_buffer import RolloutBuffer
from surefoot.learning.learner import Learner
from surefoot.methods import CONTROL_METHODS, METHODS, adapt, learner
from surefoot.testing import learner_suite as suite
from told_point import STEPS, told_set, told_task

NAMES = tuple(CONTROL_METHODS)
BATCH = 20


def maker(name: str, **options: Any) -> suite.Make:
    policies = told_set()
    return lambda: learner(policies, method=name, risk=0.3, seed=5, batch=BATCH, **options)


@cache
def world(name: str) -> suite.EpisodeSource:
    """Policies that a method makes are its own, so each has a world of its own."""
    return suite.EpisodeSource(told_task(), STEPS, 120)


# --------------------------------------------------------------------------------------------------- what is told


def told(rng: np.random.Generator, lengths: list[int]) -> tuple[Outcomes, RolloutBuffer]:
    n, longest = len(lengths), max(lengths) + 2
    observed = Observed(
        rng.normal(size=(n, longest + 1, 1)),
        rng.normal(size=(n, longest, 1)),
        np.array(lengths),
        rng.normal(size=(n, longest, 2)),
    )
    outcomes = Outcomes(rng.normal(size=n), rng.normal(size=(n, 1)), observed=observed)
    empty = RolloutBuffer.empty(speed(0.0), Units(0.9, (0.0, 1.0), (0.0, 1.0), 1.0))
    return outcomes, empty.add(outcomes)


@given(st.integers(0, 10**6), st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_advantages_of_told_episodes_are_those_of_each_by_itself(seed: int, lengths: list[int]) -> None:
    """Each episode in a loop of its own; nothing follows it."""
    _, flat = told(np.random.default_rng(seed), lengths)
    inputs = observations_before(flat)
    found = estimate_advantages(flat, inputs, 6, 0.8, 0.6)
    time = np.concatenate([np.arange(length) for length in lengths]) / 6
    starts = np.cumsum([0, *lengths])
    episodes = [slice(*ends) for ends in pairwise(starts)]
    returns = np.concatenate([_by_hand(flat.paid[part], np.zeros((length + 1, 2)), 0.8) for part, length in zip(
        episodes, lengths, strict=True)])  # fmt: skip
    values = ridge_fit(value_features(inputs, time), returns)
    expected = [_by_hand(flat.paid[part], np.append(values[part], np.zeros((1, 2)), axis=0), 0.48) for part in episodes]
    np.testing.assert_allclose(found, np.concatenate(expected), atol=1e-9)


def _by_hand(paid: Floats, values: Floats, decay: float) -> Floats:
    """Σ decay^l δ of one episode, δ with γ = 0.8; decay is γλ."""
    errors = paid + 0.8 * values[1:] - values[:-1]
    places = range(len(errors))
    return np.array([sum(decay ** (u - t) * errors[u] for u in places[t:]) for t in places])


def test_ridge_regression_is_that_of_the_rows_that_shrink_it() -> None:
    """The same by least squares, with a row for each feature that wants it to be 0."""
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(50, 7)), rng.normal(size=(50, 2))
    rows = np.concatenate([features, np.sqrt(RIDGE * 50) * np.eye(7)])
    weights = np.linalg.lstsq(rows, np.concatenate([targets, np.zeros((7, 2))]), rcond=None)[0]
    np.testing.assert_allclose(ridge_fit(features, targets), features @ weights, atol=1e-12)


def test_values_bend_with_what_is_seen_and_with_time() -> None:
    """A value that no linear map of observations and time has, beside noise of its own size."""
    rng = np.random.default_rng(1)
    seen, time = rng.normal(size=(2000, 2)), np.tile(np.arange(50) / 50, 40)
    value = np.tanh(2 * seen[:, 0] * seen[:, 1]) * (1 - time) + np.sin(3 * seen[:, 0])
    fitted = ridge_fit(value_features(seen, time), (value + rng.normal(size=2000))[:, None])[:, 0]
    assert np.var(value - fitted) < 0.3 * np.var(value)
    linear = np.column_stack([np.ones(2000), seen, time])
    assert np.var(value - linear @ np.linalg.lstsq(linear, value)[0]) > 0.8 * np.var(value)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.sampled_from([0.9, 1.0]))
def test_the_worth_of_steps_is_what_a_cost_of_one_in_each_adds_up_to(lengths: list[int], discount: float) -> None:
    """Whoever discounts: the units, or a family by itself."""
    sums = np.array([[0.0, sum(discount**t for t in range(length))] for length in lengths])
    for cost in (0.0, 1.0):
        costs = np.full((sum(lengths), 1), cost)
        worth = np.mean(sums[:, 1]) if cost else np.mean(lengths)  # of what costs nothing no discount is seen
        assert steps_worth(costs, cost * sums, np.array(lengths)) == pytest.approx(worth)


@given(st.integers(1, 100_000))
def test_numbers_of_samples_are_few_and_nearly_all_of_them(count: int) -> None:
    kept = round_down(count)
    assert 7 / 8 * count <= kept <= count
    assert kept == count if count < 1000 or count in (1000, 2000, 4000, 8000) else kept % 125 == 0
    octave = {round_down(each) for each in range(4000, 8000)}
    assert octave == set(range(4000, 8000, 500))


def test_samples_are_centred_and_the_excess_is_per_step() -> None:
    task, policy = told_task(drift=1.0), speed(0.3)
    rng = np.random.default_rng(0)
    outcomes = task.episodes(policy, STEPS).run(30, rng, transitions=True)
    observed: Any = outcomes.observed
    flat = RolloutBuffer.empty(policy, task.units).add(outcomes)
    assert (observed.steps < STEPS).any()
    assert np.isfinite(flat.paid).all()  # behind the ends stand some that are not
    samples = rollout_samples(policy, actor_of(policy), flat, task.units, STEPS, BatchRules(standardised=False))
    assert np.abs(np.asarray(samples.advantages).mean(axis=0)).max() < 1e-5
    expected = (outcomes.cost.mean() - 1.0) / (outcomes.cost.mean() / flat.paid[:, 1].mean())
    assert float(samples.excess[0]) == pytest.approx(expected, rel=1e-5)
    assert len(samples.inputs) == observed.steps.sum()


@pytest.mark.parametrize("name", NAMES)
def test_outcomes_without_steps_are_refused(name: str) -> None:
    fresh = maker(name)()
    order = fresh.ask()
    outcome = world(name).outcome(fresh, 0, order.policy_index)
    shown: Any = outcome.observed
    with pytest.raises(InvalidInput, match=rf"{name} learns from steps: .*Observed.paid.*, got no observations"):
        fresh.tell(order, Outcome(outcome.reward, outcome.cost))
    alone = Observed(shown.observations, shown.actions, shown.steps)
    with pytest.raises(InvalidInput, match="got observations and actions alone"):
        fresh.tell(order, Outcome(outcome.reward, outcome.cost, observed=alone))
    of_others = Observed(np.repeat(shown.observations, 2, axis=2), shown.actions, shown.steps, shown.paid)
    with pytest.raises(InvalidInput, match=r"observations must be of shape \[1\] at every step, got \[2\]"):
        fresh.tell(order, Outcome(outcome.reward, outcome.cost, observed=of_others))
    fresh.tell(order, outcome)


# ---------------------------------------------------------------------------------------------------- the contract


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_contract_of_learners(name: str) -> None:
    suite.check(maker(name), world(name), episodes=45)


@pytest.mark.parametrize("name", NAMES)
def test_rows_say_what_the_methods_do(name: str) -> None:
    fresh, spec = maker(name)(), CONTROL_METHODS[name]
    assert isinstance(fresh.method, BatchAdaptation)
    assert (spec.name, fresh.name, fresh.method.observes) == (name, name, spec.observes)
    assert not spec.certified
    assert not fresh.certified
    assert "nothing is proved" in fresh.events[0].message
    assert name not in METHODS
    assert sf.CONTROL_METHODS[name] is spec


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_policies_change_with_every_batch_and_meta_policies_come_first(name: str) -> None:
    fresh, meta = maker(name)(), maker(name, start=speed(0.4))()
    assert fresh.ask().policy is told_set_safe(fresh)
    assert meta.policy(meta.ask().policy_index).biases[0].tolist() == [0.4]  # type: ignore[attr-defined]
    assert meta.policy(0) is told_set_safe(meta)
    for each, first in ((fresh, 0), (meta, 1)):
        other = suite.EpisodeSource(told_task(), STEPS, 120)
        suite.tell_in_blocks(each, other, 2 * BATCH + 3, [7])
        kinds = [event.kind for event in each.events]
        assert kinds == ["method", "adapted", "adapted"]
        assert [event.episode for event in each.events[1:]] == [BATCH, 2 * BATCH]
        assert each.deployed.indices.tolist() == [first + 2]
        before, after = (each.policy(index) for index in (first, first + 2))
        assert isinstance(after, MLPPolicy)
        assert not np.array_equal(before.biases[0], after.biases[0])  # type: ignore[attr-defined]
        np.testing.assert_array_equal(before.scale, after.scale)  # type: ignore[attr-defined]


def told_set_safe(made: Learner) -> Any:
    method: Any = made.method
    return method.policies.safe_policy


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_told_enough_they_earn_more(name: str) -> None:
    """From a slow policy with room to spare, on a point mass whose reward is its speed."""
    options: dict[str, Any] = {
        "safe-meta-control": {"rate": 1e-2, "reward_penalty": 0.05},
        "maml-penalty": {"rate": 0.02},
    }.get(name, {})
    run = adapt(told_set(), told_task(), method=name, episodes=161, seed=1, batch=40, judged_on=400, **options)
    assert run.reward is not None
    assert run.reward[-1] > run.reward[0] + 0.2


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cpo-online", {"batch": 0}, "batch must be a whole number of at least 1, got 0"),
        ("cpo-online", {"divergence": 0.0}, "divergence must be positive, got 0.0"),
        ("meta-cpo", {"discount": 1.5}, r"discount must lie in \[0, 1\], got 1.5"),
        ("maml-penalty", {"penalty": -1.0}, "penalty must not be negative, got -1.0"),
        ("safe-meta-control", {"steps": 2.5}, "steps must be a whole number"),
        ("safe-meta-control", {"cost_penalty": -1}, "cost_penalty must not be negative, got -1"),
        ("safe-meta-control", {"start": "policy"}, "start must be a network .*got str"),
        ("meta-cpo", {"start": speed(0.1, 0.2)}, "start must be a network .* from 1 to 1"),
        ("meta-cpo", {"temperature": 1}, "takes no option 'temperature'"),
    ],
)
def test_wrong_options_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        learner(told_set(), method=name, **options)


def test_sets_of_tables_are_refused() -> None:
    tables = made_up_set(Units(0.9, (0.0, 1.0), (0.0, 1.0), 1.0), [(0.5, [0.1], 0.3, [0.5])], epsilon=0.01)
    for name in NAMES:
        with pytest.raises(InvalidInput, match=r"policies must be networks .*got 'tabular'"):
            learner(tables, method=name)


@pytest.mark.long
def test_deployments_are_journalled_and_go_on_where_they_stopped(tmp_path: Path) -> None:
    def drive(until: int, path: Path) -> str:
        with Deployment.open(path, maker("cpo-online")()) as deployment:
            while deployment.status().episodes < until:
                order = deployment.ask()
                ran = told_task().episodes(order.policy, STEPS).run(1, np.random.default_rng(order.episode), True)
                shown: Any = ran.observed
                length = int(shown.steps[0])
                deployment.tell(
                    order,
                    observations=shown.observations[0, : length + 1].tolist(),
                    actions=shown.actions[0, :length].tolist(),
                    rewards=shown.paid[0, :length, 0].tolist(),
                    costs=shown.paid[0, :length, 1:].tolist(),
                )
            return deployment.head()

    for until in (5, BATCH + 2):
        drive(until, tmp_path / "parts")
    assert drive(2 * BATCH + 1, tmp_path / "parts") == drive(2 * BATCH + 1, tmp_path / "whole")
    assert verify(tmp_path / "parts", maker("cpo-online")()).holds


# --------------------------------------------------------------------------------------------------------- without JAX

WITHOUT = """
import sys
sys.modules["jax"] = None  # as if it were not installed
import surefoot as sf
from told_point import told_set
assert set(sf.CONTROL_METHODS) == {"safe-meta-control", "meta-cpo", "maml-penalty", "cpo-online"}
for name in sf.CONTROL_METHODS:
    try:
        sf.learner(told_set(), method=name)
    except sf.InvalidInput as error:
        assert f"method '{name}' learns networks and needs jax" in str(error), error
        assert "pip install 'surefoot[control]'" in str(error), error
    else:
        raise SystemExit(f"{name} was made without jax")
sf.learner(told_set(), method="safe-only").ask()
"""


def test_without_jax_they_are_listed_and_say_what_is_missing() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.long
def test_listing_methods_imports_no_jax() -> None:
    script = "import sys, surefoot as sf; sf.METHODS, sf.CONTROL_METHODS; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
