from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import surefoot as sf
from random_tasks import random_arrays, random_cmdp, random_policy, random_sparse_cmdp, task_arrays
from surefoot.arrays import Floats
from surefoot.cmdp.episode import Outcomes, discounted_sum
from surefoot.errors import InvalidInput
from surefoot.tabular import rollout
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.rollout import Simulator, alias_tables, joint_table
from surefoot.tasks.gridworld_tasks import gridworld

# Means are compared at five standard errors: a seeded test of a correct simulator is unlucky with probability 6e-7.
SIGMAS = 5.0
# Chi-square tests reject below this probability.
CHI_SQUARE_LEVEL = 1e-6


# ------------------------------------------------------------------------------------------------------ alias tables


def slot_masses(accept: Floats, alias: np.ndarray) -> Floats:
    """[S, K] probability with which each slot is drawn, slot by slot."""
    S, K = accept.shape
    mass = np.zeros((S, K))
    for s in range(S):
        for k in range(K):
            mass[s, k] += accept[s, k] / K
            mass[s, alias[s, k]] += (1 - accept[s, k]) / K
    return mass


weight_rows = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=12),
    elements=st.one_of(st.sampled_from([0.0, 1.0, 1e-12, 0.25, 1 / 3]), st.floats(0, 1, allow_subnormal=False)),
).map(lambda rows: np.where(rows.sum(axis=1, keepdims=True) > 1e-6, rows, 1.0))


@given(weight_rows)
def test_alias_tables_hold_exactly_the_given_probabilities(weights: Floats) -> None:
    probability = weights / weights.sum(axis=1, keepdims=True)
    accept, alias = alias_tables(probability)
    assert ((accept >= 0) & (accept <= 1)).all()
    np.testing.assert_allclose(slot_masses(accept, alias), probability, rtol=0, atol=1e-14)


@given(weight_rows)
def test_alias_tables_never_lead_to_an_impossible_outcome(weights: Floats) -> None:
    accept, alias = alias_tables(weights)
    assert (accept[weights == 0] == 0).all()
    assert (np.take_along_axis(weights, alias, axis=1)[accept < 1] > 0).all()


def test_alias_tables_of_a_wide_state() -> None:
    probability = np.random.default_rng(0).dirichlet(np.full(3000, 0.1), 2)
    np.testing.assert_allclose(slot_masses(*alias_tables(probability)), probability, rtol=0, atol=1e-13)


def table_masses(cmdp: TabularCMDP, policy: TabularPolicy) -> Floats:
    """[S, A, S] joint probabilities read off the table that the simulator steps with."""
    table = joint_table(cmdp, policy)
    mass = np.zeros((cmdp.n_states, cmdp.n_actions, cmdp.n_states))
    for slot in range(cmdp.n_states * table.width):
        kept = table.cut[slot] - slot
        for outcome, share in ((2 * slot, kept), (2 * slot + 1, 1 - kept)):
            here, action, there = slot // table.width, table.action[outcome], table.next_state[outcome]
            mass[here, action, there] += share / table.width
            if share > 0:
                assert table.next_base[outcome] == there * table.width
                assert table.signals[outcome, 0] == cmdp.reward[here, action]
                np.testing.assert_array_equal(table.signals[outcome, 1:], cmdp.cost[:, here, action])
    return mass


@given(task_arrays())
def test_joint_table_reproduces_policy_times_transitions(drawn: tuple[dict[str, Any], np.random.Generator]) -> None:
    arrays, rng = drawn
    dense = TabularCMDP(**arrays)
    policy = random_policy(rng, dense)
    joint = policy.probabilities[:, :, None] * arrays["transitions"]
    np.testing.assert_allclose(table_masses(dense, policy), joint, rtol=0, atol=1e-12)
    sparse = TabularCMDP(
        **{**arrays, "transitions": sp.csr_array(arrays["transitions"].reshape(-1, len(arrays["start"])))}
    )
    np.testing.assert_allclose(table_masses(sparse, policy), joint, rtol=0, atol=1e-12)


# ----------------------------------------------------------------------------------------------------------- returns


def finite_horizon_values(cmdp: TabularCMDP, policy: TabularPolicy, horizon: int) -> Floats:
    """[1+m] expected discounted sums of the first `horizon` steps, by backward recursion."""
    signals = np.concatenate([cmdp.reward[None], cmdp.cost])
    kernel = np.einsum("sa,sat->st", policy.probabilities, np.asarray(cmdp.transitions))
    step = np.einsum("sa,ksa->ks", policy.probabilities, signals)
    values = np.zeros_like(step)
    for _ in range(horizon):
        values = step + cmdp.discount * values @ kernel.T
    return values @ cmdp.start


def assert_means_match(outcomes: Outcomes, reward: float, cost: Floats) -> None:
    sums = np.column_stack([outcomes.reward, outcomes.cost])
    errors = SIGMAS * sums.std(axis=0, ddof=1) / np.sqrt(len(sums)) + 1e-9
    assert (np.abs(sums.mean(axis=0) - [reward, *cost]) <= errors).all()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("horizon", [1, 7])
def test_mean_returns_match_the_finite_horizon_recursion(seed: int, horizon: int) -> None:
    rng = np.random.default_rng(seed)
    cmdp = random_cmdp(rng, states=5, constraints=3)
    policy = random_policy(rng, cmdp)
    reward, *cost = finite_horizon_values(cmdp, policy, horizon)
    assert_means_match(Simulator(cmdp, policy, horizon).run(20_000, rng), reward, np.array(cost))


@pytest.mark.parametrize("sparse", [False, True])
def test_mean_returns_match_evaluate(sparse: bool) -> None:
    rng = np.random.default_rng(11)
    cmdp = random_cmdp(rng, sparse=sparse, states=6, actions=2, constraints=2)
    policy = random_policy(rng, cmdp)
    exact = sf.evaluate(cmdp, policy)
    outcomes = Simulator(cmdp, policy, 300).run(2 * rollout.CHUNK + 5, rng)  # several chunks, the last one small
    assert len(outcomes) == 2 * rollout.CHUNK + 5
    assert_means_match(outcomes, exact.reward, exact.cost)
    assert_means_match(outcomes[-rollout.CHUNK :], exact.reward, exact.cost)


def test_mean_returns_of_a_large_sparse_task_match_evaluate() -> None:
    rng = np.random.default_rng(3)
    cmdp = random_sparse_cmdp(rng, 2000)
    policy = random_policy(rng, cmdp)
    exact = sf.evaluate(cmdp, policy)
    assert_means_match(Simulator(cmdp, policy, 250).run(5000, rng), exact.reward, exact.cost)


def test_mean_return_on_the_gridworld_tells_neighbouring_noises_apart() -> None:
    tasks = gridworld()
    policy = TabularPolicy(np.random.default_rng(0).dirichlet(np.ones(4), 49))
    outcomes = Simulator(tasks.task([0.3]), policy, 200).run(100_000, np.random.default_rng(1))
    right, wrong = sf.evaluate(tasks.task([0.3]), policy), sf.evaluate(tasks.task([0.4]), policy)
    assert_means_match(outcomes, right.reward, right.cost)
    with pytest.raises(AssertionError):
        assert_means_match(outcomes, wrong.reward, wrong.cost)


def test_sums_start_undiscounted_and_stop_at_the_horizon() -> None:
    cycle = TabularCMDP(
        transitions=np.eye(3)[[[1], [2], [0]]],
        reward=[1.0, 10.0, 100.0],
        cost=np.array([[[0.0], [1.0], [0.0]], [[5.0], [0.0], [0.0]]]),
        budget=[1, 1],
        start=[1, 0, 0],
        discount=0.5,
    )
    for horizon, reward, cost in [(1, 1, [0, 5]), (2, 6, [0.5, 5]), (4, 31.125, [0.5, 5.625])]:
        outcomes = Simulator(cycle, np.ones((3, 1)), horizon).run(3, np.random.default_rng(0))
        np.testing.assert_allclose(outcomes.reward, reward, rtol=1e-14)
        np.testing.assert_allclose(outcomes.cost, [cost] * 3, rtol=1e-14)


# ------------------------------------------------------------------------------------------------------- transitions


@given(task_arrays(), st.integers(1, 9))
def test_recorded_transitions_explain_the_sums(drawn: tuple[dict[str, Any], np.random.Generator], horizon: int) -> None:
    arrays, rng = drawn
    cmdp = TabularCMDP(**arrays)
    policy = random_policy(rng, cmdp)
    outcomes = Simulator(cmdp, policy, horizon).run(50, rng, transitions=True)
    states, actions = outcomes.states, outcomes.actions
    assert states is not None
    assert actions is not None
    assert states.shape == (50, horizon + 1)
    assert actions.shape == (50, horizon)
    here = states[:, :-1]
    np.testing.assert_allclose(outcomes.reward, discounted_sum(cmdp.reward[here, actions].T, cmdp.discount), rtol=1e-12)
    costs = discounted_sum(np.moveaxis(cmdp.cost[:, here, actions], 2, 0), cmdp.discount)
    np.testing.assert_allclose(outcomes.cost, costs.T, rtol=1e-12, atol=1e-12)
    assert (cmdp.start[states[:, 0]] > 0).all()
    assert (policy.probabilities[here, actions] * arrays["transitions"][here, actions, states[:, 1:]] > 0).all()


def test_recording_transitions_does_not_change_the_episodes() -> None:
    rng = np.random.default_rng(0)
    cmdp = random_cmdp(rng)
    simulator = Simulator(cmdp, random_policy(rng, cmdp), 20)
    plain = simulator.run(100, np.random.default_rng(5))
    recorded = simulator.run(100, np.random.default_rng(5), transitions=True)
    assert plain.states is None
    assert plain.actions is None
    np.testing.assert_array_equal(plain.reward, recorded.reward)
    np.testing.assert_array_equal(plain.cost, recorded.cost)


def test_equal_seeds_give_equal_outcomes_and_others_do_not() -> None:
    rng = np.random.default_rng(0)
    cmdp = random_cmdp(rng)
    simulator = Simulator(cmdp, random_policy(rng, cmdp), 20)
    first, second, other = (simulator.run(100, np.random.default_rng(seed), transitions=True) for seed in (1, 1, 2))
    for name in ("reward", "cost", "states", "actions"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert not np.array_equal(first.reward, other.reward)


def chi_square_probability(counts: np.ndarray, expected_rows: Floats) -> float:
    """Probability of a fit this bad if each row of counts [n, k] is multinomial with the given row of probabilities."""
    visited = counts.sum(axis=1, keepdims=True)
    expected = visited * expected_rows
    used = expected > 0
    assert counts[~used].sum() == 0
    statistic = ((counts - expected)[used] ** 2 / expected[used]).sum()
    degrees = used.sum() - (visited > 0).sum()
    return float(scipy.stats.chi2.sf(statistic, degrees))


def test_frequencies_of_starts_actions_and_next_states() -> None:
    rng = np.random.default_rng(7)
    cmdp = random_cmdp(rng, states=6, actions=3)
    policy = random_policy(rng, cmdp, support=1.0)
    outcomes = Simulator(cmdp, policy, 50).run(20_000, rng, transitions=True)
    assert outcomes.states is not None
    assert outcomes.actions is not None
    counts = np.zeros((6, 3, 6), dtype=np.int64)
    np.add.at(counts, (outcomes.states[:, :-1], outcomes.actions, outcomes.states[:, 1:]), 1)
    starts = np.bincount(outcomes.states[:, 0], minlength=6)[None]
    transitions = np.asarray(cmdp.transitions)
    assert chi_square_probability(starts, cmdp.start[None]) > CHI_SQUARE_LEVEL
    assert chi_square_probability(counts.sum(axis=2), policy.probabilities) > CHI_SQUARE_LEVEL
    assert chi_square_probability(counts.reshape(18, 6), transitions.reshape(18, 6)) > CHI_SQUARE_LEVEL
    shifted = transitions * np.linspace(0.98, 1.02, 6)
    shifted /= shifted.sum(axis=2, keepdims=True)
    assert chi_square_probability(counts.reshape(18, 6), shifted.reshape(18, 6)) < CHI_SQUARE_LEVEL


class ConstantGenerator(np.random.Generator):
    """Draws the same uniform number for ever."""

    def __init__(self, value: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.value = value

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        out = np.empty(size, dtype) if out is None else out
        out[...] = self.value
        return out


@pytest.mark.parametrize("uniform", [0.0, 2.0**-53, 0.5, 1 - 2.0**-53])
@pytest.mark.parametrize("states", [5, 3001])
def test_extreme_draws_stay_within_the_state(uniform: float, states: int) -> None:
    rng = np.random.default_rng(0)
    task = random_sparse_cmdp(rng, states)
    policy = random_policy(rng, task)
    kernel = task.kernel(policy.probabilities).toarray()
    for s in [0, states // 2, states - 2, states - 1]:
        moved = TabularCMDP(task.transitions, task.reward, task.cost, task.budget, np.eye(states)[s], task.discount)
        outcomes = Simulator(moved, policy, 1).run(1, ConstantGenerator(uniform), transitions=True)
        assert outcomes.states is not None
        assert outcomes.states[0, 0] == s
        assert kernel[s, outcomes.states[0, 1]] > 0


def test_a_draw_at_the_very_start_of_an_empty_slot_takes_its_alias() -> None:
    rows = np.zeros((2, 1, 2))
    rows[0, 0], rows[1, 0] = [0.5, 0.5], [0.0, 1.0]  # state 1 has one outcome and one empty slot
    cmdp = TabularCMDP(rows, [0, 0], [0, 0], 1, [0, 1], 0.9)
    simulator = Simulator(cmdp, np.ones((2, 1)), 1)
    start_of_slot = 1 / simulator.table.scale
    assert 2 + start_of_slot * simulator.table.scale == simulator.table.cut[3] == 3
    outcomes = simulator.run(1, ConstantGenerator(start_of_slot), transitions=True)
    assert outcomes.states is not None
    assert outcomes.states.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("states", "actions", "state_type", "action_type"),
    [(64, 2, np.int8, np.int8), (65, 2, np.int16, np.int8), (2, 200, np.int16, np.int16)],
)
def test_types_hold_the_index_of_a_state_action_pair(
    states: int, actions: int, state_type: type, action_type: type
) -> None:
    cmdp = random_sparse_cmdp(np.random.default_rng(0), states, actions)
    policy = TabularPolicy(np.eye(actions)[np.full(states, actions - 1)])
    outcomes = Simulator(cmdp, policy, 3).run(2, np.random.default_rng(0), transitions=True)
    assert outcomes.states is not None
    assert outcomes.actions is not None
    assert (outcomes.states.dtype, outcomes.actions.dtype) == (state_type, action_type)
    np.testing.assert_array_equal(outcomes.actions, actions - 1)


# ------------------------------------------------------------------------------------------------------------ checks


@pytest.mark.parametrize("value", [0, -3, 2.5, "many", None, True, np.nan])
def test_horizon_and_episodes_must_be_positive_integers(value: Any) -> None:
    cmdp = TabularCMDP(**random_arrays(np.random.default_rng(0)))
    uniform = np.full((4, 3), 1 / 3)
    with pytest.raises(InvalidInput, match="horizon must be a whole number of at least 1"):
        Simulator(cmdp, uniform, value)
    with pytest.raises(InvalidInput, match="episodes must be a whole number of at least 1"):
        Simulator(cmdp, uniform, 1).run(value, np.random.default_rng(0))


def test_generator_and_policy_are_checked() -> None:
    cmdp = TabularCMDP(**random_arrays(np.random.default_rng(0)))
    with pytest.raises(InvalidInput, match=r"policy must have shape \[4, 3\]"):
        Simulator(cmdp, np.full((4, 2), 0.5), 1)
    with pytest.raises(InvalidInput, match=r"rng must be a numpy.random.Generator, got int"):
        Simulator(cmdp, np.full((4, 3), 1 / 3), 1).run(1, 0)  # type: ignore[arg-type]
