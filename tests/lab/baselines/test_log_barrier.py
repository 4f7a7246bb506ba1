"""LB-SGD: each part by hand, the step's promise with exact values, its own benchmark, and the learner's contract."""

from __future__ import annotations

import math
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from grid_baselines import check_abandoned, check_contract, grid_policies, grid_world
from hypothesis import given, settings
from hypothesis import strategies as st

from random_tasks import random_cmdp, seeds
from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.log_barrier import AISTATS, LogBarrier, adaptive_step, theory_batch
from surefoot.lab.baselines.softmax import entropy_regularised, smoothed_safe_policy, softmax
from surefoot.lab.families.two_walls import two_walls
from surefoot.learning.learner import Learner
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.simulate.runner import run_learner
from surefoot.tabular.evaluate import evaluate, occupancy, solve_discounted
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.rollout import Simulator
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.tasks.task_distribution import from_arrays
from surefoot.testing import learner_suite as suite
from surefoot.training.train import train


@cache
def wall_policies() -> PolicyValueSet:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(from_arrays([two_walls().task([0.1])]), epsilon=0.1, delta=0.1, seed=0, progress=False)


def made(name: str = "lb-sgd-published", **options: Any) -> LogBarrier:
    method: Any = learner(grid_policies(), method=name, episodes=3000, risk=0.05, horizon=60, **options).method
    return method


# ------------------------------------------------------------------------------------------------------- step and batch


def exact(task: TabularCMDP, policy: Floats) -> tuple[Floats, Floats]:
    """[1+m] unit values and [1+m, S, A] their gradients by the policy gradient theorem."""
    units = task.units
    signals = np.concatenate([units.unit_reward(task.reward)[None], units.unit_constraint(task.cost)])
    values = solve_discounted(task.kernel(policy), np.einsum("ksa,sa->sk", signals, policy), task.discount).T
    q = signals + task.discount * (task.rows @ values.T).T.reshape(signals.shape)
    return values @ task.start, occupancy(task, policy) * (q - values[:, :, None])


@settings(max_examples=30)
@given(seed=seeds, barrier=st.sampled_from([1e-3, 0.1, 3.0]), constraints=st.integers(1, 3))
def test_no_margin_loses_more_than_half_and_the_barrier_never_falls(
    seed: int, barrier: float, constraints: int
) -> None:
    """With exact values, and with the smoothness that the method proves for softmax."""
    rng = np.random.default_rng(seed)
    task = random_cmdp(rng, states=3, actions=2, constraints=constraints, discount=0.5)
    slack = rng.uniform(0.01, 1.0, constraints) * task.units.cost_scale
    task = TabularCMDP(task.transitions, task.reward, task.cost, task.budget + slack, task.start, task.discount)
    logits = 0.1 * rng.normal(size=(3, 2))
    values, slopes = exact(task, softmax(logits))
    if (values[1:] <= 0).any():
        return
    ascent = slopes[0] + barrier * np.tensordot(1 / values[1:], slopes[1:], 1)
    length = float(np.linalg.norm(ascent))
    along = np.abs((slopes[1:] * ascent).sum(axis=(1, 2))) / length
    step = adaptive_step(length, values[1:], along, np.full(1 + constraints, 2.5 / (1 - task.discount) ** 2), barrier)
    after, _ = exact(task, softmax(logits + step * ascent))
    assert (after[1:] >= values[1:] / 2 - 1e-12).all()
    assert after[0] + barrier * np.log(after[1:]).sum() >= values[0] + barrier * np.log(values[1:]).sum() - 1e-12


def test_the_step_by_hand() -> None:
    lower, along, rough = np.array([0.5, 2.0]), np.array([0.25, 1.0]), np.array([3.0, 2.0, 8.0])
    kept = min(0.5 / (1 + 0.5), 2 / (4 + 2)) / 4
    local = 3 + 10 * 0.1 * (2 / 0.5 + 8 / 2) + 8 * 0.1 * (0.25 + 0.25)
    assert adaptive_step(4.0, lower, along, rough, 0.1) == pytest.approx(min(kept, 1 / local))
    assert adaptive_step(4.0, lower, along, rough / 1e18, 1e-15) == pytest.approx(1 / 4)


def test_the_theory_batch_is_the_least_that_lemma_3_4_allows() -> None:
    for margin, barrier, constraints, discount, level in ((0.02, 0.02, 1, 0.9, 1e-3), (0.5, 0.01, 2, 0.3, 1e-5)):
        n = theory_batch(margin, barrier, constraints, discount, level)

        def met(n: float, margin: float = margin, eta: float = barrier, m: int = constraints) -> bool:
            value = math.sqrt(2 * math.log(2 / level) / n) / (1 - discount)  # noqa: B023
            slope = math.sqrt(16 * (0.25 + math.log(1 / level)) / n) / (1 - discount) ** 1.5  # noqa: B023
            lipschitz = math.sqrt(2) / (1 - discount) ** 2  # noqa: B023
            # The error of the barrier's gradient, from its bound (14) with V̂ ≥ 3V/4, must be at most η/4:
            # a quarter of that for each of values, slopes and their truncations.
            error = (1 + m * eta * 4 / (3 * margin)) * slope
            second = m * eta * lipschitz * 4 / (3 * margin**2) * value
            return value <= margin / 8 and error <= eta / 16 and second <= eta / 16

        assert met(n)
        assert not met(0.99 * n)


# ------------------------------------------------------------------------------------------------------- one iteration


def test_an_iteration_of_the_published_preset_by_hand() -> None:
    """Fixed step 4, η = 0.1, the margin floored at 0.05, and the gradients step by step."""
    task = gridworld().task([0.34])
    method = made(first_batch=40)
    first = method.first.probabilities
    episodes = Simulator(task, first, 60).run(40, np.random.default_rng(0), transitions=True)
    learner = Learner(method)
    learner.tell_block(learner.ask_block(40), episodes)

    reward_slope, cost_slope, cost = np.zeros((49, 4)), np.zeros((49, 4)), 0.0
    for j in range(40):
        score = np.zeros((49, 4))
        for t in range(60):
            s, a = int(episodes.states[j, t]), int(episodes.actions[j, t])
            score[s] -= first[s]
            score[s, a] += 1
            reward_slope += 0.9**t * task.reward[s, a] * score / 40
            cost_slope += 0.9**t * task.cost[0, s, a] * score / 40
            cost += 0.9**t * task.cost[0, s, a] / 40
    ascent = reward_slope - 0.1 * cost_slope / max(1.5 - cost, 0.05)
    assert learner.deployed.indices.tolist() == [2]
    assert learner.policy(2).to_arrays()["probabilities"] == pytest.approx(softmax(np.log(first) + 4 * ascent))
    assert learner.events[-1].data["margin"] == pytest.approx([1.5 - cost])


def test_batches_starts_and_notes_of_the_presets() -> None:
    published, theory = made(), made("lb-sgd-theory")
    assert (published.start().batch, published.rules.batch) == (500, 3000)
    assert evaluate(gridworld().task([0.4]), published.first).cost == pytest.approx([1.5], abs=1e-7)
    assert "not the safe policy" in published.note
    assert theory.start().batch > 1e12
    assert "stays on its first policy" in theory.note

    learner = Learner(theory)
    suite.tell_in_blocks(learner, grid_world("theory"), 700, [50])
    assert learner.deployed.indices.tolist() == [1]
    assert suite.fingerprint(learner.state.method) == suite.fingerprint(theory.start())
    assert [event.kind for event in learner.events] == ["method"]


def test_confidence_terms_shorten_steps_and_keep_half_of_each_margin() -> None:
    """The theory's rules with a batch that can be run: every iterate is feasible, and steps are tiny."""
    task = gridworld().task([0.3])
    plain = made("lb-sgd-theory", batch=200, confidence=False, barrier=0.01)
    learner = Learner(plain)
    suite.tell_in_blocks(learner, grid_world("confidence"), 600, [200])
    steps = [event.data["step"] for event in learner.events if event.kind == "iterate"]
    assert len(steps) == 3
    assert max(steps) <= 0.1**2 / 2.5  # 1/M for the proved smoothness
    for policy in learner.state.method.iterates:
        assert (evaluate(task, policy).margin > 0).all()
    value, slope = made("lb-sgd-theory", batch=200)._confidence(200)
    level = 0.05 / (3000 / 200)
    assert value == pytest.approx([0.9**60 / 0.1 + math.sqrt(2 * math.log(2 / level) / 200) / 0.1])
    expected = math.sqrt(2) * 0.9**60 / 0.1 * math.sqrt(70)
    expected += math.sqrt(16 * math.log(math.exp(0.25) / level) / 200) / 0.1**1.5
    assert slope == pytest.approx([expected])


def test_an_iterate_that_seems_infeasible_is_taken_back() -> None:
    """Confidence terms make every iterate of small batches look infeasible: twice the episodes, half the step."""
    learner = Learner(made("lb-sgd-theory", batch=20))
    suite.tell_in_blocks(learner, grid_world("taken back"), 60, [7])
    assert [event.kind for event in learner.events] == ["method", "taken back", "taken back"]
    state = learner.state.method
    assert (state.batch, state.caution, state.current, len(state.iterates)) == (80, 0.25, 0, 1)


def test_it_stops_where_the_barrier_is_flat() -> None:
    near_safe = smoothed_safe_policy(grid_policies())
    learner = Learner(made(**{**AISTATS, "barrier": 1e6, "batch": 100, "first_batch": 100, "start": near_safe}))
    suite.tell_in_blocks(learner, grid_world("flat"), 100, [100])
    assert learner.events[-1].kind == "stopped"
    suite.tell_in_blocks(learner, grid_world("flat"), 50, [50])
    assert learner.deployed.indices.tolist() == [1]


def test_options_are_checked() -> None:
    for options in (
        {"temperature": 1.0},
        {"barrier": 0.0},
        {"step": -1.0},
        {"batch": 0},
        {"floor": -0.1},
        {"smoothness": "none"},
        {"batch": None, "first_batch": None},
        {"start": np.eye(4)[np.zeros(49, dtype=int)]},
    ):
        with pytest.raises(InvalidInput):
            made(**options)
    with pytest.raises(InvalidInput, match="lb-sgd-theory"):
        made("lb-sgd")


# ---------------------------------------------------------------------------------------------- the authors' benchmark


@pytest.mark.long
@pytest.mark.parametrize(("iterations", "batch", "left"), [(36, 1000, 0.3), (200, 3000, 0.025)])
def test_two_walls_with_adaptive_steps(iterations: int, batch: int, left: float) -> None:
    """Two constraints: feasible at every iterate, half of the way within 35 iterations, and near the optimum in the
    end."""
    task, episodes = two_walls().task([0.1]), iterations * batch
    options = {**AISTATS, "batch": batch, "first_batch": batch, "start": entropy_regularised(task, 1.0, tighten=0.2)}
    fresh = learner(wall_policies(), method="lb-sgd-published", episodes=episodes, seed=0, horizon=39, **options)
    run = run_learner(fresh, task, episodes=episodes, seed=0, optimal_reward=1.07483758335)
    gaps = np.diff(run.regret, prepend=0.0)[::batch]
    assert run.unsafe_episodes == 0
    assert gaps[0] == pytest.approx(1.07483758 - 0.46025809, abs=1e-6)
    assert gaps[-1] < left


# ------------------------------------------------------------------------------------------------------- the contract


def maker(name: str) -> suite.Make:
    options: dict[str, Any] = {"lb-sgd-published": {"first_batch": 33, "batch": 51}, "lb-sgd-theory": {}}[name]
    return lambda: Learner(made(name, **options), seed=5)


@pytest.mark.short_for(name=["lb-sgd-published"])
@pytest.mark.parametrize("name", ["lb-sgd-theory", "lb-sgd-published"])
def test_contract(name: str) -> None:
    check_contract(maker(name), grid_world(name))


@cache
def told_singly(smoothness: str) -> suite.Story:
    return suite.tell_singly(estimating(smoothness), grid_world(smoothness), 150)


def estimating(smoothness: str) -> Learner:
    options = {**AISTATS, "batch": 40, "first_batch": 25, "smoothness": smoothness}
    return Learner(made("lb-sgd-published", **options), seed=5)


@settings(max_examples=4)
@given(sizes=st.lists(st.integers(1, 70), min_size=1, max_size=12), smoothness=st.sampled_from(["bound", "estimated"]))
def test_blocks_tell_the_same_story(sizes: list[int], smoothness: str) -> None:
    story = told_singly(smoothness)
    assert len(set(story.drawn)) >= 3
    suite.blocks_tell_the_same_story(lambda: estimating(smoothness), grid_world(smoothness), sizes, story)


def test_an_abandoned_episode_is_as_if_it_had_not_been_run() -> None:
    check_abandoned(maker("lb-sgd-published"), 33)
