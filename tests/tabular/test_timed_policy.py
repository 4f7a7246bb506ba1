"""A policy that looks at the clock equals a stationary policy of the task whose states carry the clock."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

import surefoot as sf
from random_tasks import as_sparse, random_cmdp, random_distributions, random_policy, seeds, task_arrays
from surefoot.arrays import Floats
from surefoot.cmdp.policy import EpisodeMixture, Policy
from surefoot.errors import InvalidInput
from surefoot.learning.learner import Learner
from surefoot.learning.paper.safe_only import SafeOnly
from surefoot.policyset.export import write_policy
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.simulate.runner import run_learner
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, TimedPolicy, as_tables
from surefoot.tabular.rollout import Simulator, joint_table
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.tasks.task_distribution import from_arrays
from surefoot.training.preflight import UncertifiedWarning

# Means are compared at five standard errors: a seeded test of a correct simulator is unlucky with probability 6e-7.
SIGMAS = 5.0

lengths = st.integers(1, 5)


def random_timed(rng: np.random.Generator, cmdp: TabularCMDP, steps: int) -> TimedPolicy:
    """Some tables repeat the one before in some states, as a planner's do."""
    tables = random_distributions(rng, (steps, cmdp.n_states, cmdp.n_actions), 0.7)
    for t in range(1, steps):
        kept = rng.random(cmdp.n_states) < 0.5
        tables[t, kept] = tables[t - 1, kept]
    return TimedPolicy(tables)


def time_expanded(arrays: dict[str, Any], policy: TimedPolicy) -> tuple[TabularCMDP, TabularPolicy]:
    """The task with states (min(t, H-1), s), and the timed policy as a stationary one of it."""
    H, S, A = policy.probabilities.shape
    transitions = np.zeros((H * S, A, H * S))
    for t in range(H):
        then = min(t + 1, H - 1)
        transitions[t * S : (t + 1) * S, :, then * S : (then + 1) * S] = arrays["transitions"]
    expanded = {
        **arrays,
        "transitions": transitions,
        "reward": np.tile(arrays["reward"], (H, 1)),
        "cost": np.tile(arrays["cost"], (1, H, 1)),
        "start": np.concatenate([arrays["start"], np.zeros((H - 1) * S)]),
    }
    return TabularCMDP(**expanded), TabularPolicy(policy.probabilities.reshape(H * S, A))


# ------------------------------------------------------------------------------------------------------------- values


@given(task_arrays(), lengths)
def test_values_are_those_of_the_time_expanded_task(
    drawn: tuple[dict[str, Any], np.random.Generator], steps: int
) -> None:
    arrays, rng = drawn
    cmdp = TabularCMDP(**arrays)
    timed = random_timed(rng, cmdp, steps)
    expected = evaluate(*time_expanded(arrays, timed))
    for task in (cmdp, TabularCMDP(**as_sparse(arrays))):
        values = evaluate(task, timed)
        assert values.reward == pytest.approx(expected.reward, rel=1e-11, abs=1e-11)
        np.testing.assert_allclose(values.cost, expected.cost, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(values.margin, expected.margin, rtol=1e-11, atol=1e-11)


@given(task_arrays(), lengths)
def test_a_repeated_table_is_the_stationary_policy(
    drawn: tuple[dict[str, Any], np.random.Generator], steps: int
) -> None:
    arrays, rng = drawn
    cmdp = TabularCMDP(**arrays)
    policy = random_policy(rng, cmdp)
    repeated = TimedPolicy(np.repeat(policy.probabilities[None], steps, axis=0))
    assert evaluate(cmdp, repeated).reward == pytest.approx(evaluate(cmdp, policy).reward, rel=1e-11, abs=1e-11)


def test_mixtures_may_hold_timed_policies() -> None:
    rng = np.random.default_rng(0)
    cmdp = random_cmdp(rng)
    parts = random_timed(rng, cmdp, 3), random_policy(rng, cmdp)
    one, other = (evaluate(cmdp, part).reward for part in parts)
    mixed = evaluate(cmdp, EpisodeMixture(parts, np.array([0.3, 0.7])))
    assert mixed.reward == pytest.approx(0.3 * one + 0.7 * other, rel=1e-12)


# ---------------------------------------------------------------------------------------------------------- episodes


@given(task_arrays(), lengths)
def test_the_table_holds_policy_times_transitions_at_every_step(
    drawn: tuple[dict[str, Any], np.random.Generator], steps: int
) -> None:
    arrays, rng = drawn
    cmdp = TabularCMDP(**arrays)
    timed = random_timed(rng, cmdp, steps)
    H, S, A = timed.probabilities.shape
    table = joint_table(cmdp, timed)
    mass = np.zeros((H, S, A, S))
    for slot in range(H * S * table.width):
        t, here = divmod(slot // table.width, S)
        kept = table.cut[slot] - slot
        for outcome, share in ((2 * slot, kept), (2 * slot + 1, 1 - kept)):
            action, there = int(table.action[outcome]), int(table.next_state[outcome])
            mass[t, here, action, there] += share / table.width
            if share > 0:
                assert table.next_base[outcome] == (min(t + 1, H - 1) * S + there) * table.width
                assert table.signals[outcome, 0] == cmdp.reward[here, action]
                np.testing.assert_array_equal(table.signals[outcome, 1:], cmdp.cost[:, here, action])
    expected = timed.probabilities[..., None] * arrays["transitions"]
    np.testing.assert_allclose(mass, expected, rtol=0, atol=1e-12)


def finite_horizon_values(cmdp: TabularCMDP, tables: Floats, horizon: int) -> Floats:
    """[1+m] expected discounted sums of `horizon` steps, forwards: the state's law is carried along."""
    signals, law, total = np.concatenate([cmdp.reward[None], cmdp.cost]), cmdp.start, np.zeros(1 + cmdp.n_constraints)
    for t in range(horizon):
        pairs = law[:, None] * tables[min(t, len(tables) - 1)]
        total += cmdp.discount**t * np.einsum("sa,ksa->k", pairs, signals)
        law = np.einsum("sa,sat->t", pairs, np.asarray(cmdp.transitions))
    return total


@pytest.mark.parametrize("horizon", [1, 3, 9])
@pytest.mark.parametrize("seed", range(3))
def test_simulated_means_match(seed: int, horizon: int) -> None:
    rng = np.random.default_rng(seed)
    cmdp = random_cmdp(rng, constraints=2)
    timed = random_timed(rng, cmdp, 4)
    outcomes = Simulator(cmdp, timed, horizon).run(20_000, rng)
    sums = np.column_stack([outcomes.reward, outcomes.cost])
    error = SIGMAS * sums.std(axis=0, ddof=1) / np.sqrt(len(sums)) + 1e-9
    assert (np.abs(sums.mean(axis=0) - finite_horizon_values(cmdp, timed.probabilities, horizon)) <= error).all()


def test_recorded_actions_follow_the_clock() -> None:
    cmdp = random_cmdp(np.random.default_rng(1), states=5, actions=3)
    plan = np.array([[0, 1, 2, 0, 1], [2, 2, 2, 1, 0], [1, 0, 1, 0, 1]])
    outcomes = Simulator(cmdp, TimedPolicy(np.eye(3)[plan]), 8).run(500, np.random.default_rng(2), transitions=True)
    assert outcomes.states is not None
    assert outcomes.actions is not None
    for t in range(8):
        np.testing.assert_array_equal(outcomes.actions[:, t], plan[min(t, 2)][outcomes.states[:, t]])
    possible = np.asarray(cmdp.transitions)[outcomes.states[:, :-1], outcomes.actions, outcomes.states[:, 1:]]
    assert (possible > 0).all()


def test_a_repeated_table_simulates_the_very_same_episodes() -> None:
    """One table behind the other changes where a row stands, not what is drawn from it."""
    cmdp = gridworld().task(np.array([0.3]))
    policy = random_policy(np.random.default_rng(3), cmdp)
    repeated = TimedPolicy(np.repeat(policy.probabilities[None], 7, axis=0))
    one, other = (
        Simulator(cmdp, chosen, 20).run(300, np.random.default_rng(4), transitions=True)
        for chosen in (policy, repeated)
    )
    np.testing.assert_array_equal(one.states, other.states)
    np.testing.assert_array_equal(one.reward, other.reward)


def test_acting_by_hand_follows_the_clock() -> None:
    timed = TimedPolicy(np.eye(3)[np.array([[0, 1], [2, 0]])])
    rng = np.random.default_rng(0)
    assert [timed.act(1, step, rng) for step in (0, 1, 2, 50)] == [1, 0, 0, 0]
    assert timed.act(0, 1, rng) == 2
    with pytest.raises(InvalidInput, match=r"step must be .* got -1"):
        timed.act(0, -1, rng)


def test_a_file_for_other_controllers_says_the_same(tmp_path: Path) -> None:
    timed = random_timed(np.random.default_rng(5), random_cmdp(np.random.default_rng(5)), 3)
    for name in ("policy.onnx", "policy.safetensors"):
        write_policy(timed, tmp_path / name)
    states, steps = np.array([0, 3, 1, 2, 0]), np.array([0, 1, 2, 3, 99])
    run = onnx.reference.ReferenceEvaluator(onnx.load(tmp_path / "policy.onnx")).run
    (found,) = run(None, {"states": states, "steps": steps})
    np.testing.assert_array_equal(found, timed.probabilities[np.minimum(steps, 2), states])
    stored = safetensors.numpy.load_file(tmp_path / "policy.safetensors")
    np.testing.assert_array_equal(stored["probabilities"], timed.probabilities)


# ----------------------------------------------------------------------------------------------------- the data class


@given(seeds)
def test_arrays_there_and_back(seed: int) -> None:
    rng = np.random.default_rng(seed)
    timed = random_timed(rng, random_cmdp(rng), 3)
    assert isinstance(timed, Policy)
    again = TimedPolicy.from_arrays(timed.to_arrays())
    np.testing.assert_array_equal(again.probabilities, timed.probabilities)
    assert TimedPolicy.kind == "timed"
    with pytest.raises(ValueError, match="read-only"):
        timed.probabilities[0, 0, 0] = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        timed.probabilities = again.probabilities  # type: ignore[misc]


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        (np.full((2, 2), 0.5), r"policy must have shape \[H, S, A\], got \[2, 2\]"),
        (np.zeros((0, 2, 2)), r"policy must have shape \[H, S, A\], got \[0, 2, 2\]"),
        ([[[1.0, 0.0]], [[1.5, -0.5]]], r"policy\[1, 0, 1\] must not be negative, got -0.5"),
        ([[[1.0, 0.0]], [[0.5, 0.25]]], r"policy\[1, 0\] must sum to 1 \(within 1e-09\), got 0.75"),
        ([[[np.nan, 1.0]]], r"policy\[0, 0, 0\] must be finite, got nan"),
    ],
)
def test_what_is_no_timed_policy(probabilities: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        TimedPolicy(probabilities)


def test_wrong_shape_for_the_task() -> None:
    cmdp = random_cmdp(np.random.default_rng(0), states=4, actions=3)
    wrong = TimedPolicy(np.full((2, 4, 2), 0.5))
    with pytest.raises(InvalidInput, match=r"policy must have shape \[H, 4, 3\] for this task, got \[2, 4, 2\]"):
        evaluate(cmdp, wrong)
    with pytest.raises(InvalidInput, match=r"\[H, 4, 3\]"):
        Simulator(cmdp, wrong, 5)


def test_tables_of_a_stationary_policy() -> None:
    tables = as_tables([[0.5, 0.5], [1.0, 0.0]], (2, 2))
    assert tables.shape == (1, 2, 2)


# --------------------------------------------------------------------------------------------------------- the runner


@dataclasses.dataclass(frozen=True, eq=False)
class Clocked(SafeOnly):
    """Deploys the safe policy in a form that looks at the clock."""

    def policy(self, state: Any, index: int) -> Policy:
        safe = super().policy(state, index)
        assert isinstance(safe, TabularPolicy)
        return TimedPolicy(np.repeat(safe.probabilities[None], 5, axis=0))


def clocked(policies: PolicyValueSet) -> Learner:
    return Learner(Clocked(policies), seed=0, horizon=50)


def test_the_runner_deploys_timed_policies() -> None:
    tasks = [gridworld().task(np.array([noise])) for noise in (0.2, 0.3)]
    with pytest.warns(UncertifiedWarning):
        trained = sf.train(from_arrays(tasks), epsilon=0.05, delta=0.2, seed=0, cells=0)
    task = tasks[1]
    run = run_learner(clocked(trained), task, episodes=50, seed=0, optimal_reward=60.0)
    assert isinstance(trained.safe_policy, TabularPolicy)
    values = evaluate(task, trained.safe_policy)
    np.testing.assert_allclose(run.margin, values.margin.min(), rtol=1e-10)
    assert isinstance(run.output.components[0], TimedPolicy)
    assert evaluate(task, run.output).reward == pytest.approx(values.reward, rel=1e-10)
