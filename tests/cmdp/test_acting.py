"""One call to act for every kind of policy, and the convention of Stable-Baselines3 beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import surefoot as sf
from random_tasks import random_distributions, seeds
from surefoot.cmdp.policy import EpisodeMixture, Policy, Predictor
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.errors import InvalidInput
from surefoot.tabular.policy import TabularPolicy, TimedPolicy

STATES, ACTIONS, STEPS = 4, 3, 5


def tabular(seed: int = 0) -> TabularPolicy:
    return TabularPolicy(random_distributions(np.random.default_rng(seed), (STATES, ACTIONS), support=0.6))


def timed(seed: int = 0) -> TimedPolicy:
    return TimedPolicy(random_distributions(np.random.default_rng(seed), (STEPS, STATES, ACTIONS), support=0.6))


def network(seed: int = 0) -> MLPPolicy:
    rng = np.random.default_rng(seed)
    return MLPPolicy((rng.normal(size=(2, 3)),), (rng.normal(size=2),), rng.normal(size=2), np.zeros(3), np.ones(3))


def observations(policy: Any, n: int, seed: int = 1) -> Any:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)) if isinstance(policy, MLPPolicy) else rng.integers(STATES, size=n)


KINDS = pytest.mark.parametrize("make", [tabular, timed, network])


# ------------------------------------------------------------------------------------------------------------------ act


@KINDS
def test_a_batch_acts_as_its_observations_do_one_by_one(make: Any) -> None:
    policy = make()
    assert isinstance(policy, Policy)
    seen = observations(policy, 50)
    together = policy.act(seen, 2, np.random.default_rng(2))
    rng = np.random.default_rng(2)
    alone = [policy.act(one, 2, rng) for one in seen]
    np.testing.assert_allclose(together, alone, rtol=1e-13)  # matrix products may round by their size
    assert len(together) == 50
    if policy.kind == "mlp":
        assert alone[0].shape == (2,)
    else:
        assert type(alone[0]) is int


@pytest.mark.parametrize("clock", [0, 3, 4, 17])
def test_actions_of_a_batch_have_the_law_of_their_tables(clock: int) -> None:
    """Counts of each pair against its probability; at 5 deviations one of 24 pairs is off with probability 1e-5."""
    n = 20_000
    for policy, table in ((tabular(3), tabular(3).probabilities), (timed(3), timed(3).probabilities[min(clock, 4)])):
        states = np.repeat(np.arange(STATES), n)
        actions = policy.act(states, clock, np.random.default_rng(clock))
        counts = np.zeros((STATES, ACTIONS))
        np.add.at(counts, (states, actions), 1)
        assert (np.abs(counts - n * table) <= 5 * np.sqrt(n * table * (1 - table))).all()  # 0 and 1 exactly
        rolled = np.roll(table, 1, axis=1)  # the mutant: probabilities of the action before
        assert (np.abs(counts - n * rolled) > 5 * np.sqrt(n * rolled * (1 - rolled))).any()


@given(seed=seeds)
def test_what_has_no_probability_is_never_drawn(seed: int) -> None:
    """Also where sums round below 1: thirds, and uniform numbers next to 0 and 1."""

    class Edge(np.random.Generator):
        def random(self, size: Any = None, *args: Any, **options: Any) -> Any:
            return np.where(rng.random(size) < 0.5, 0.0, 1 - 2**-53)

    rng = np.random.default_rng(seed)
    rows = random_distributions(rng, (STATES, 6), support=0.5)
    rows[0] = [0, 1 / 3, 1 / 3, 0, 1 / 3, 0]
    policy = TabularPolicy(rows)
    states = rng.integers(STATES, size=200)
    actions = policy.act(states, 0, Edge(np.random.PCG64(0)))
    assert (policy.probabilities[states, actions] > 0).all()


def test_each_episode_has_its_own_step() -> None:
    policy = TimedPolicy(np.eye(3)[np.array([[0, 1], [2, 0]])])
    rng = np.random.default_rng(0)
    assert policy.act([0, 0, 1, 1], [0, 1, 0, 9], rng).tolist() == [0, 2, 1, 0]
    assert policy.act(np.array([[0, 1], [1, 0]]), 1, rng).tolist() == [[2, 0], [0, 2]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rng: tabular().act(4, 0, rng), r"observation must lie in \[0, 4\), got 4"),
        (lambda rng: tabular().act(-1, 0, rng), r"observation must lie in \[0, 4\), got -1"),
        (lambda rng: tabular().act([0.0, 1.0], 0, rng), r"observation must be a state, .* got \[0.0, 1.0\]"),
        (lambda rng: tabular().act(True, 0, rng), "observation must be a state, .* got True"),
        (lambda rng: tabular().act(0, 0, 7), "rng must be a numpy.random.Generator, got int"),
        (lambda rng: timed().act(0, -1, rng), "step must be a step .* got -1"),
        (lambda rng: timed().act(0, 0.5, rng), "step must be a step .* got 0.5"),
        (lambda rng: timed().act([0, 1], [0, 1, 2], rng), r"step must be one, .* observation \[2\], got \[3\]"),
        (lambda rng: network().act(np.ones(4), 0, rng), r"observation must have shape \[3\] or \[n, 3\], got \[4\]"),
        (lambda rng: network().act(1.0, 0, rng), r"observation must have shape \[3\] or \[n, 3\], got \[\]"),
        (lambda rng: network().act(np.ones(3), 0, np.random), "rng must be a numpy.random.Generator, got module"),
        (lambda rng: EpisodeMixture((tabular(),), [1.0]).act(0, 0, rng), "draws its component once per episode"),
    ],
)
def test_what_cannot_be_acted_upon_is_named(call: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        call(np.random.default_rng(0))


# -------------------------------------------------------------------------------------------------------------- predict


@KINDS
def test_predict_draws_what_act_draws(make: Any) -> None:
    policy = make()
    seen = observations(policy, 7)
    rngs = [np.random.default_rng(5) for _ in range(3)]
    seeded, state, again = Predictor(policy, rngs[1]), None, None
    for step in range(8):
        expected = policy.act(seen, step, rngs[0])
        action, state = seeded.predict(seen, state, np.full(7, step == 0))
        other, again = policy.predict(seen, again, rng=rngs[2])
        np.testing.assert_array_equal(action, expected)
        np.testing.assert_array_equal(other, expected)
    assert (state is None) == (policy.kind != "timed")


def test_the_likeliest_action_draws_nothing() -> None:
    table = np.array([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]])
    assert TabularPolicy(table).predict(0, deterministic=True) == (1, None)
    assert TabularPolicy(table).predict([0, 1], deterministic=True)[0].tolist() == [1, 0]
    clock = TimedPolicy(np.stack([table, np.roll(table, 1, axis=1)]))
    first, state = clock.predict(0, deterministic=True)
    second, state = clock.predict(0, state, deterministic=True)
    assert (first, second, int(state)) == (1, 2, 2)
    policy = network()
    np.testing.assert_array_equal(policy.predict(np.ones(3), deterministic=True)[0], policy.mean(np.ones(3)))


def test_without_a_generator_no_two_processes_draw_alike() -> None:
    """A fixed seed behind the convention would make the episodes of two processes one and the same."""
    coins = np.zeros(64, int)
    fair = TabularPolicy(np.full((1, 2), 0.5))
    for one in (fair, TimedPolicy(fair.probabilities[None]), EpisodeMixture((fair, fair), [0.5, 0.5])):
        drawn = {tuple(one.predict(coins)[0].tolist()) for _ in range(3)}
        assert len(drawn) == 3  # equal by chance with probability 2⁻⁶²
    assert not np.array_equal(network().predict(np.ones(3))[0], network().predict(np.ones(3))[0])


def test_a_new_episode_starts_the_clock_of_its_own_only() -> None:
    policy = TimedPolicy(np.eye(6)[np.arange(6)[:, None]])  # the action is the step
    _, state = policy.predict(np.zeros(3, int), deterministic=True)
    _, state = policy.predict(np.zeros(3, int), state, deterministic=True)
    action, state = policy.predict(np.zeros(3, int), state, np.array([False, True, False]), deterministic=True)
    assert action.tolist() == [2, 0, 2]
    assert state.tolist() == [3, 1, 3]
    assert policy.predict(np.zeros(3, int), state, True, deterministic=True)[0].tolist() == [0, 0, 0]
    assert policy.predict(0, np.int64(4), np.array([False]), deterministic=True)[0] == 4
    with pytest.raises(InvalidInput, match=r"state must be one, .* \[2\], got \[3\]"):
        policy.predict([0, 0], state, deterministic=True)
    with pytest.raises(InvalidInput, match="episode_start must be one"):
        policy.predict([0, 0], state[:2], [True, False, True], deterministic=True)


# ------------------------------------------------------------------------------------------------------------- mixtures


def test_a_mixture_keeps_its_component_for_the_episode() -> None:
    """Component k always takes action k, so that actions tell which one is followed."""
    always = [TabularPolicy(np.tile(np.eye(3)[k], (STATES, 1))) for k in range(2)]
    mixture = EpisodeMixture((*always, TimedPolicy(np.tile(np.eye(3)[2], (2, STATES, 1)))), [0.2, 0.3, 0.5])
    rng, n = np.random.default_rng(0), 6000
    states = np.zeros(n, int)
    first, state = mixture.predict(states, rng=rng)
    counts = np.bincount(first, minlength=3)
    assert (np.abs(counts - n * mixture.weights) < 5 * np.sqrt(n * mixture.weights * (1 - mixture.weights))).all()
    for _ in range(3):
        action, state = mixture.predict(states, state, rng=rng)
        np.testing.assert_array_equal(action, first)
    starts = np.arange(n) < n // 2
    action, state = mixture.predict(states, state, starts, rng=rng)
    np.testing.assert_array_equal(action[n // 2 :], first[n // 2 :])
    assert (action[: n // 2] != first[: n // 2]).mean() == pytest.approx(1 - 0.04 - 0.09 - 0.25, abs=0.05)
    assert state[1].tolist() == [1] * (n // 2) + [5] * (n // 2)


def test_a_mixture_acts_alone_too_and_with_clocks_and_networks() -> None:
    clock = TimedPolicy(np.eye(6)[np.arange(6)[:, None]])
    mixture, state = EpisodeMixture((clock,), [1.0]), None
    for step in range(4):
        action, state = mixture.predict(0, state, rng=np.random.default_rng(step))
        assert action == step
    nets = EpisodeMixture((network(1), network(2)), [0.3, 0.7])
    seen = observations(network(), 4)
    action, (component, _) = nets.predict(seen, deterministic=True)
    np.testing.assert_array_equal(component, 1)
    np.testing.assert_array_equal(action, network(2).mean(seen))
    with pytest.raises(InvalidInput, match="components must be policies that predict, got ndarray"):
        EpisodeMixture((clock, np.ones((1, 6)) / 6), [0.5, 0.5]).predict(0, rng=np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="the component in state must lie in"):
        nets.predict(seen, (5, 0), rng=np.random.default_rng(0))


# ------------------------------------------------------------------------------------------ acting by hand, and values


@given(seed=seeds, horizon=st.integers(1, 6))
def test_episodes_by_predict_have_the_values_of_the_mixture(seed: int, horizon: int) -> None:
    """A batch of episodes run by hand, as a user would, against exact values; at 6 deviations."""
    rng = np.random.default_rng(seed)
    kernel = random_distributions(rng, (STATES, ACTIONS, STATES))
    cmdp = sf.TabularCMDP(
        kernel, rng.random((STATES, ACTIONS)), np.ones(STATES), 1.0, np.eye(STATES)[0], 1.0, None, None, horizon
    )
    mixture, n = EpisodeMixture((tabular(seed), timed(seed)), [0.4, 0.6]), 2000
    seeded, state, total = Predictor(mixture, rng), None, np.zeros(n)
    where = np.zeros(n, int)
    for _ in range(horizon):
        action, state = seeded.predict(where, state)
        total += cmdp.reward[where, action]
        where = (rng.random(n)[:, None] >= np.cumsum(kernel[where, action], axis=1)[:, :-1]).sum(axis=1)
    assert abs(total.mean() - sf.evaluate(cmdp, mixture).reward) <= 6 * total.std() / np.sqrt(n) + 1e-12
