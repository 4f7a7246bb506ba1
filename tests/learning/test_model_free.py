"""The model-free method: bounds from episodes alone, and never more of a candidate than they allow."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from confidence_paths import path
from contracts.made_up import made_up_set
from guarantees.mutants import STAY_CALM, STAY_RICH, rooms, rooms_policies
from surefoot.arrays import Floats
from surefoot.confidence import Betting
from surefoot.learning.certified.choice import certified_method
from surefoot.learning.certified.model_free import FIRST_CHOICE, ModelFree, ModelFreeState
from surefoot.learning.learner import Learner
from surefoot.learning.method import SAFE
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.simulate.runner import run_learner
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.rollout import Simulator
from surefoot.testing.learner_suite import EpisodeSource, tell_in_blocks

HORIZON = 62
TRUNCATION = 0.8**HORIZON
FALSE_ALARM = 1e-4


def model_free(policies: PolicyValueSet, risk: float, horizon: int = HORIZON) -> ModelFree:
    method = certified_method(policies, "certified-model-free", risk, horizon=horizon, assume_safe=True)
    assert isinstance(method, ModelFree)
    return method


def run(method: ModelFree, task: TabularCMDP, episodes: int, seed: int, horizon: int = HORIZON) -> Any:
    learner = Learner(method, seed=seed, horizon=horizon)
    return run_learner(learner, task, episodes=episodes, seed=seed, optimal_reward=0.0)


class Watched(ModelFree):
    """Keeps what it saw and what it decided: (costs per policy, deployed, claimed margin)."""

    seen: list[tuple[ModelFreeState, Any]]

    def update(self, state: ModelFreeState, episode: int, drawn: Any, outcomes: Any) -> Any:
        step = super().update(state, episode, drawn, outcomes)
        told = self.__dict__.setdefault("told", {index: [] for index in range(len(self.policies.policies))})
        for index in np.unique(drawn[: step.used]):
            told[int(index)].extend(outcomes.cost[: step.used][drawn[: step.used] == index].tolist())
        if step.state.next_decision != state.next_decision:
            counts = {index: len(costs) for index, costs in told.items()}
            self.__dict__.setdefault("decisions", []).append((step.state, counts))
        return step


def watched(policies: PolicyValueSet, risk: float) -> Watched:
    plain = model_free(policies, risk)
    return Watched(plain.policies, plain.risk_split, plain.horizon)


def recomputed_bound(costs: Floats, budget: Floats, largest: Floats, level: float) -> Floats:
    """[m] lower bound on the margins from the costs [n, m] of one policy, by the confidence sequence from scratch."""
    if not len(costs):
        return budget - largest - TRUNCATION * largest
    upper = [path(Betting(level, side="upper"), costs[:, i] / largest[i])[1][-1] for i in range(len(budget))]
    return budget - largest * upper - TRUNCATION * largest


def test_weights_are_what_the_bounds_allow_and_never_more() -> None:
    """At every decision: bounds recomputed from all episodes of each policy, then the pair rule by hand."""
    method = watched(rooms_policies(4), risk=0.4)
    run(method, rooms().task([0.07]), 2500, seed=0)
    units = method.units
    largest = units.cost_value_range[:, 1]
    weights = []
    for state, counts in method.__dict__["decisions"][::12]:
        costs = {index: np.array(told[: counts[index]]) for index, told in method.__dict__["told"].items()}
        safe = recomputed_bound(costs[0], units.budget, largest, 0.4 / 2)
        rich = recomputed_bound(costs[1].reshape(-1, 1), units.budget, largest, 0.4 / 2)
        allowed = 0.0
        if state.candidate is not None:
            spare = max(float(safe[0]), 0.0)
            allowed = spare / (spare - float(rich[0])) if rich[0] < 0 else 1.0
        weight = state.deployed.weight
        assert weight <= allowed + 1e-9
        assert weight == pytest.approx(allowed, abs=1e-5)
        assert state.margin[0] >= 0
        weights.append(weight)
    assert weights[0] == 0
    assert weights[-1] > 0.1


def two_constraints() -> tuple[TabularCMDP, PolicyValueSet]:
    """Every step draws its costs anew; policy 0 is safe, 1 exceeds one budget, 2 the other, 3 both."""
    chance = np.full((2, 4, 2), 0.5)
    cost = np.zeros((2, 2, 4))
    cost[0, 1], cost[1, 0] = [0.4, 1.0, 0.4, 1.0], [0.4, 0.4, 1.0, 1.0]
    task = TabularCMDP(chance, np.tile([0.0, 1.0, 1.0, 2.0], (2, 1)), cost, [0.4, 0.4], [0.5, 0.5], 0.2, (0, 2), (0, 1))
    policies = [TabularPolicy(np.eye(4)[[k, k]]) for k in range(4)]
    return task, made_up_set(task.units, [(1.0, [0.1, 0.1], 0.0, [0.1, 0.1])] * 3, epsilon=0.1, policies=policies)


def test_levels_add_up_to_the_risk_over_policies_and_constraints() -> None:
    """Half for the safe policy and half for the candidates, each shared by the constraints."""
    _, policies = two_constraints()
    method = model_free(policies, 0.1)
    levels = [method._sequence(index).level for index in range(4)]
    assert 2 * sum(levels) == pytest.approx(0.1, rel=1e-12)
    assert levels[SAFE] == pytest.approx(0.1 / 4)
    assert len(set(levels[1:])) == 1
    assert all(method._sequence(index).side == "upper" for index in range(4))


def test_bounds_hold_at_all_times_with_the_promised_probability() -> None:
    """Episodes of all policies, bounds after each block; a run fails if any bound ever exceeds the exact margin."""
    task, policies = two_constraints()
    risk, runs, horizon = 0.5, 120, 8
    method = model_free(policies, risk, horizon)
    exact = [evaluate(task, policy).margin for policy in policies.policies]
    simulators = [Simulator(task, policy, horizon) for policy in policies.policies]
    rng = np.random.default_rng(0)
    failed = 0
    for _ in range(runs):
        state, fails = method.start(), False
        for _ in range(8):
            for index, simulator in enumerate(simulators):
                state = method._update_statistics(state, np.full(25, index), simulator.run(25, rng))
                fails |= bool((method._lowest_margin(state, index) > exact[index]).any())
        failed += fails
    assert stats.binomtest(failed, runs, risk, alternative="greater").pvalue > FALSE_ALARM
    widest = [method._lowest_margin(state, index) - exact[index] for index in range(4)]
    assert (np.abs(widest) < 0.4).all(), "bounds that say nothing would hold as well"


def test_cut_off_tails_count_as_costs() -> None:
    """A cost of 1 a step for ever, seen for 4 steps: the bound may not forget the rest."""
    task = TabularCMDP([[[1.0]]], [[1.0]], [[1.0]], 8.0, [1.0], 0.9, (0.0, 1.0), (0.0, 1.0))
    policies = made_up_set(
        task.units, [(0.5, [0.0], 0.5, [0.0])], epsilon=0.1, policies=[TabularPolicy(np.ones((1, 1)))] * 2
    )
    outcomes = Simulator(task, np.ones((1, 1)), 4).run(3000, np.random.default_rng(0))
    exact = evaluate(task, np.ones((1, 1))).margin
    assert exact[0] == pytest.approx(-2.0)
    for told, fails in ((4, False), (10**6, True)):
        method = model_free(policies, 0.5, told)
        state = method._update_statistics(method.start(), np.zeros(3000, int), outcomes)
        assert bool(method._lowest_margin(state, SAFE)[0] > exact[0]) == fails


@cache
def terrible() -> tuple[TabularCMDP, PolicyValueSet]:
    """Candidates that hurt at once and for ever, praised by training as free of cost."""
    calm, rich, hurt = np.eye(3)
    kernel = np.array([[calm, rich, hurt], [calm, rich, hurt], [hurt, hurt, hurt]])
    cost = np.zeros((3, 3))
    cost[2], cost[1] = 3.0, 0.3
    task = TabularCMDP(kernel, np.ones((3, 3)), cost, 1.0, [0.5, 0.5, 0.0], 0.8, (0.0, 1.0), (0.0, 3.0))
    policies = [TabularPolicy(np.eye(3)[[action] * 3]) for action in (0, 2, 2)]
    promises = [(5.0, [0.3], 5.0, [0.28]), (5.0, [0.3], 5.0, [0.25])]
    return task, made_up_set(task.units, promises, epsilon=0.1, policies=policies)


def test_it_is_safe_when_every_candidate_is_terrible() -> None:
    task, policies = terrible()
    assert evaluate(task, policies.policies[SAFE]).margin[0] > 0.8
    assert all(evaluate(task, policy).margin[0] < -10 for policy in policies.policies[1:])
    for seed in range(10):
        record = run(model_free(policies, 0.1), task, 1500, seed)
        assert record.margin.min() >= 0
        assert record.weight.max() <= 0.1
        assert (record.weight > 0).any(), "they were tried"


def test_nothing_is_tried_before_the_first_choice() -> None:
    method = model_free(rooms_policies(4), 0.4)
    record = run(method, rooms().task([0.1]), FIRST_CHOICE + 60, seed=3)
    assert (record.weight[:FIRST_CHOICE] == 0).all()
    assert record.weight[-1] > 0
    chosen = [event for event in record.events if event.kind == "candidate"]
    assert [event.data["candidate"] for event in chosen] == [0]


def test_the_candidate_is_the_one_whose_task_explains_the_safe_policy_best() -> None:
    """Three candidates for three tasks; the safe policy's mean reward is that of the second."""
    task = TabularCMDP(
        np.full((2, 1, 2), 0.5), [[0.0], [1.0]], [[0.0], [1.0]], 1.0, [0.5, 0.5], 0.5, (0.0, 1.0), (0.0, 1.0)
    )
    policy = TabularPolicy(np.ones((2, 1)))
    truth = evaluate(task, policy)
    shifts = (-0.3, 0.0, 0.3)
    units = task.units
    promises = [
        (1.0, [0.1], float(units.unit_reward_value(truth.reward + s)), units.unit_margin(truth.margin)) for s in shifts
    ]
    policies = made_up_set(units, promises, epsilon=0.1, policies=[policy] * 4)
    method = model_free(policies, 0.2, horizon=20)
    record = run(method, task, FIRST_CHOICE + 60, seed=0, horizon=20)
    assert [event.data["candidate"] for event in record.events if event.kind == "candidate"] == [1]


def test_memory_does_not_grow_with_the_episodes() -> None:
    method = model_free(rooms_policies(4), 0.4)
    sizes = []
    for episodes in (200, 2000):
        fresh = Learner(method, seed=0)
        tell_in_blocks(fresh, EpisodeSource(rooms().task([0.1]), 20, episodes), episodes, [400])
        state = fresh.state.method
        sizes.append(sum(part.sums.size for part in state.costs) + state.returns.size + state.squares.size)
    assert sizes[0] == sizes[1]


def test_both_policies_of_the_rooms_are_known_to_it() -> None:
    method = model_free(rooms_policies(4), 0.4)
    state = method.start()
    assert method.policy(state, 0) is method.policies.policies[0]
    assert np.array_equal(method.policy(state, 0).to_arrays()["probabilities"], STAY_CALM.probabilities)
    assert np.array_equal(method.policy(state, 1).to_arrays()["probabilities"], STAY_RICH.probabilities)
    assert method.mixture(state).weight == 0
