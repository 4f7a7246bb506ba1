"""Softmax policies: starts against other solvers, estimates against enumeration and exact derivatives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from grid_baselines import grid_policies
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from contracts.made_up import made_up_set
from random_tasks import random_cmdp
from surefoot.arrays import Floats
from surefoot.cmdp.episode import Outcomes
from surefoot.errors import Infeasible, InvalidInput
from surefoot.lab.baselines.softmax import (
    GradientSums,
    as_start_policy,
    entropy_regularised,
    published_start,
    smoothed_safe_policy,
    softmax,
    visits_and_returns,
)
from surefoot.lab.families.two_walls import two_walls
from surefoot.tabular.evaluate import evaluate, occupancy, state_values
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.rollout import Simulator
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.testing.learner_suite import fingerprint


def signals_of(task: TabularCMDP) -> Floats:
    return np.concatenate([task.reward[None], task.cost])


def with_budget(task: TabularCMDP, budget: float) -> TabularCMDP:
    return TabularCMDP(task.transitions, task.reward, task.cost, [budget] * 2, task.start, task.discount)


# --------------------------------------------------------------------------------------------------- starting policies


def test_the_published_start_on_two_walls() -> None:
    task = with_budget(two_walls().task([0.1]), 1.8)
    policy = entropy_regularised(task, 1.0)
    values = evaluate(task, policy)
    assert values.reward == pytest.approx(0.4602580949653861, abs=1e-7)
    assert values.cost == pytest.approx([1.68814960, 1.8], abs=1e-7)
    tightened = entropy_regularised(two_walls().task([0.1]), 1.0, tighten=0.2)
    assert policy.probabilities == pytest.approx(tightened.probabilities, abs=1e-12)


def test_the_published_start_on_the_gridworld_is_what_the_authors_iteration_rests_at() -> None:
    """Soft policy iteration alternating with multiplier steps, as in their code, with longer steps and exact values."""
    task, beta = gridworld().task([0.4]), 8.0
    log_policy, multiplier = np.full((49, 4), -np.log(4)), 0.0
    for _ in range(3000):
        policy = np.exp(log_policy)
        kernel = np.eye(49) - 0.9 * task.kernel(policy)
        signal = task.reward - multiplier * task.cost[0]
        values = np.linalg.solve(kernel, (policy * (signal - beta * log_policy)).sum(axis=1))
        logits = (signal + 0.9 * (task.rows @ values).reshape(49, 4)) / beta
        log_policy = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        multiplier = max(0.0, multiplier - 2.0 * float(evaluate(task, np.exp(log_policy)).margin[0]))
    ours = entropy_regularised(task, beta)
    assert ours.probabilities == pytest.approx(np.exp(log_policy), abs=1e-6)
    assert evaluate(task, ours).cost == pytest.approx([1.5], abs=1e-8)


def test_the_regularised_optimum_against_a_convex_program() -> None:
    """Over occupancies d: maximise d·r + weight Σ d log(Σ_a d / d) under the flow equations and budgets."""
    weight = 0.7
    for seed in range(6):
        task = random_cmdp(np.random.default_rng(seed), states=3, actions=2, constraints=2, discount=0.6)
        tight = TabularCMDP(task.transitions, task.reward, task.cost, task.budget - 0.02, task.start, task.discount)
        rows, shape = tight.rows.toarray(), tight.reward.shape
        flow = np.repeat(np.eye(3), 2, axis=0) - 0.6 * rows  # [S·A, S]

        def loss(d: Floats, task: TabularCMDP = tight, shape: tuple[int, ...] = shape) -> float:
            d = np.maximum(d, 1e-12).reshape(shape)
            conditional = d / d.sum(axis=1, keepdims=True)
            return -float((d * (task.reward - weight * np.log(conditional))).sum())

        constraints = [
            {"type": "eq", "fun": lambda d, flow=flow, start=tight.start: flow.T @ d - start},
            {"type": "ineq", "fun": lambda d, task=tight: task.budget - task.cost.reshape(2, -1) @ d},
        ]
        first = occupancy(tight, np.full(shape, 0.5)).ravel()
        found = minimize(
            loss, first, method="SLSQP", bounds=[(1e-9, None)] * 6, constraints=constraints, options={"maxiter": 500}
        )
        try:
            ours = entropy_regularised(tight, weight)
        except Infeasible:
            assert not found.success
            continue
        assert found.success
        assert evaluate(tight, ours).margin.min() >= -1e-7
        assert loss(occupancy(tight, ours).ravel()) == pytest.approx(found.fun, abs=2e-5)


def test_tasks_without_a_feasible_policy_are_named() -> None:
    with pytest.raises(Infeasible, match="budget"):
        entropy_regularised(gridworld().task([0.5]), 8.0)
    with pytest.raises(InvalidInput, match="weight"):
        entropy_regularised(gridworld().task([0.3]), 0.0)


def test_starts_of_a_policy_set() -> None:
    family, policies = gridworld(), grid_policies()
    smooth = smoothed_safe_policy(policies)
    assert (smooth.probabilities > 0).all()
    for entry in policies.entries:
        margin = evaluate(family.task(entry.parameter), smooth).margin
        assert (margin >= entry.safe_margin / 2).all()
    published = published_start(policies, 8.0)
    assert published is not None
    assert published.probabilities == pytest.approx(entropy_regularised(family.task([0.4]), 8.0).probabilities)

    task = random_cmdp(np.random.default_rng(0))
    uniform = TabularPolicy(np.full((4, 3), 1 / 3))
    other = made_up_set(task.units, [(0.5, [0.5], 0.4, [0.0])], epsilon=0.1, policies=[uniform, uniform])
    assert published_start(other, 8.0) is None
    with pytest.raises(InvalidInput, match="positive margin"):
        smoothed_safe_policy(other)
    with pytest.raises(InvalidInput, match=r"\[4, 3\]"):
        as_start_policy(other, np.full((3, 3), 1 / 3))


# -------------------------------------------------------------------------------------------------- estimates, exactly


def all_episodes(task: TabularCMDP, policy: Floats, horizon: int) -> tuple[Outcomes, Floats]:
    """Every possible episode, and its probability."""
    kernel = task.rows.toarray().reshape(task.n_states, task.n_actions, -1)
    paths, chances = [], []
    for first in range(task.n_states):
        steps = itertools.product(range(task.n_actions), range(task.n_states))
        for path in itertools.product(list(steps), repeat=horizon):
            states = [first, *(s for _, s in path)]
            actions = [a for a, _ in path]
            chance = task.start[first]
            for t, a in enumerate(actions):
                chance *= policy[states[t], a] * kernel[states[t], a, states[t + 1]]
            if chance > 0:
                paths.append((states, actions))
                chances.append(chance)
    states, actions = np.array([p[0] for p in paths]), np.array([p[1] for p in paths])
    return Outcomes(np.zeros(len(paths)), np.zeros((len(paths), 1)), states, actions), np.array(chances)


def by_definition(task: TabularCMDP, policy: Floats, states: Floats, actions: Floats) -> tuple[Floats, Floats]:
    """Gradient [k, SA] and Hessian [k, SA, SA] estimates of one episode, straight from the formulas."""
    signals, size = signals_of(task), policy.size
    score, slope = np.zeros(size), np.zeros((size, size))
    gradient, hessian = np.zeros((len(signals), size)), np.zeros((len(signals), size, size))
    for t, (s, a) in enumerate(zip(states, actions, strict=False)):
        row = slice(s * task.n_actions, (s + 1) * task.n_actions)
        score[row] -= policy[s]
        score[s * task.n_actions + a] += 1
        slope[row, row] -= np.diag(policy[s]) - np.outer(policy[s], policy[s])
        for k, signal in enumerate(signals):
            gradient[k] += task.discount**t * signal[s, a] * score
            hessian[k] += task.discount**t * signal[s, a] * (slope + np.outer(score, score))
    return gradient, hessian


@pytest.mark.parametrize("seed", range(3))
def test_estimates_of_every_possible_episode(seed: int) -> None:
    """Each is the formula's, and their expectations are the derivatives of the expected discounted sum."""
    rng = np.random.default_rng(seed)
    task = random_cmdp(rng, states=2, actions=2, constraints=1, discount=0.8, support=1.0)
    logits, horizon = rng.normal(size=(2, 2)), 3
    policy, signals = softmax(logits), signals_of(task)
    episodes, chances = all_episodes(task, policy, horizon)
    assert chances.sum() == pytest.approx(1.0)

    mean_gradient, mean_hessian, mean_value = np.zeros((2, 4)), np.zeros((2, 4, 4)), np.zeros(2)
    for k, chance in enumerate(chances):
        one = episodes[k : k + 1]
        sums = GradientSums.empty(signals, curvature=True).add(signals, 0.8, one)
        gradient, hessian = by_definition(task, policy, one.states[0], one.actions[0])
        assert sums.gradient(policy).reshape(2, 4) == pytest.approx(gradient, abs=1e-11)
        assert sums.curvature(policy) == pytest.approx(hessian, abs=1e-10)
        mean_gradient += chance * gradient
        mean_hessian += chance * hessian
        mean_value += chance * sums.value

    def value(theta: Floats) -> Floats:
        probabilities = softmax(theta.reshape(2, 2))
        kernel, now, total = task.kernel(probabilities), task.start, np.zeros(2)
        for t in range(horizon):
            total += 0.8**t * np.einsum("s,sa,ksa->k", now, probabilities, signals)
            now = now @ kernel
        return total

    assert mean_value == pytest.approx(value(logits.ravel()), abs=1e-11)
    steps = 1e-4 * np.eye(4)
    differences = np.stack([(value(logits.ravel() + e) - value(logits.ravel() - e)) / 2e-4 for e in steps], axis=1)
    assert mean_gradient == pytest.approx(differences, abs=1e-5)
    second = [
        [
            (value(logits.ravel() + e + f) - value(logits.ravel() + e - f) - value(logits.ravel() - e + f))
            + value(logits.ravel() - e - f)
            for f in steps
        ]
        for e in steps
    ]
    assert mean_hessian == pytest.approx(np.array(second).transpose(2, 0, 1) / 4e-8, abs=1e-4)


def test_the_gradient_estimate_is_unbiased_within_its_own_error() -> None:
    """Against the policy gradient theorem, visits·π·advantage, with exact values on two walls: m = 2."""
    task = two_walls().task([0.1])
    policy, signals = entropy_regularised(task, 1.0, tighten=0.2).probabilities, signals_of(task)
    values = state_values(task, policy)
    q = signals + task.discount * (task.rows @ values.T).T.reshape(signals.shape)
    exact = occupancy(task, policy) * (q - values[:, :, None])

    episodes = Simulator(task, policy, 60).run(4000, np.random.default_rng(7), transitions=True)
    parts = [
        GradientSums.empty(signals).add(signals, task.discount, episodes[k : k + 20]).gradient(policy)
        for k in range(0, 4000, 20)
    ]
    whole = GradientSums.empty(signals).add(signals, task.discount, episodes)
    error = np.std(parts, axis=0) / np.sqrt(len(parts))
    off = np.abs(whole.gradient(policy) - exact) / np.maximum(error, 1e-6)
    assert whole.gradient(policy) == pytest.approx(np.mean(parts, axis=0), abs=1e-12)
    assert off.max() < 5.5  # 400 components, 200 groups: below 1e-4 for a correct estimate
    assert np.abs(exact).max() > 50 * np.median(error)  # the check could tell


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), cuts=st.lists(st.integers(1, 30), max_size=6))
def test_sums_do_not_depend_on_blocks(seed: int, cuts: list[int]) -> None:
    task = random_cmdp(np.random.default_rng(seed), states=4, actions=3, constraints=2)
    policy, signals = np.full((4, 3), 1 / 3), signals_of(task)
    episodes = Simulator(task, policy, 9).run(31, np.random.default_rng(seed), transitions=True)
    whole = GradientSums.empty(signals, curvature=True).add(signals, 0.9, episodes)
    sums = GradientSums.empty(signals, curvature=True)
    places = sorted({0, 31, *cuts})
    for first, last in itertools.pairwise(places):
        sums = sums.add(signals, 0.9, episodes[first:last])
    assert fingerprint(sums) == fingerprint(whole)


def test_returns_from_every_step_on() -> None:
    task = random_cmdp(np.random.default_rng(3))
    episodes = Simulator(task, np.full((4, 3), 1 / 3), 8).run(5, np.random.default_rng(3), transitions=True)
    visited, to_go = visits_and_returns(signals_of(task), 0.9, episodes)
    for j, t in itertools.product(range(5), range(8)):
        seen = [(int(s), int(a)) for s, a in zip(episodes.states[j], episodes.actions[j], strict=False)]
        expected = sum(0.9 ** (u - t) * task.reward[seen[u]] for u in range(t, 8))
        assert to_go[0, j, t] == pytest.approx(expected)
        assert visited[j, t] == seen[t][0] * 3 + seen[t][1]
    assert to_go[0, :, 0] == pytest.approx(episodes.reward)
    assert to_go[1, :, 0] == pytest.approx(episodes.cost[:, 0])


def test_malformed_episodes_are_refused() -> None:
    task = random_cmdp(np.random.default_rng(3))
    for states, actions in ((None, None), (np.array([[0, 4]]), np.array([[0]])), (np.array([[0, 1]]), np.array([[3]]))):
        with pytest.raises(InvalidInput):
            visits_and_returns(signals_of(task), 0.9, Outcomes(np.zeros(1), np.zeros((1, 1)), states, actions))
