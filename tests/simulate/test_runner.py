"""Simulated runs: blocks change nothing but the speed, and the record holds exact values."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from shown_wheel import ShownWheel, shown_set
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import EpisodeMixture
from surefoot.errors import InvalidInput
from surefoot.learning.learner import Learner, Orders
from surefoot.learning.method import SAFE, Mixture
from surefoot.methods import METHODS, adapt, learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.simulate import runner
from surefoot.simulate.pool import FIRST_CHUNK, EpisodePool, EpisodeStream, growing_chunks
from surefoot.simulate.run import Run
from surefoot.simulate.runner import LARGEST_BLOCK, run_learner
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.rollout import Simulator
from surefoot.tabular.solve import solve
from surefoot.tasks.gridworld_tasks import PUBLISHED_TEST_NOISES, gridworld
from surefoot.testing.learner_suite import fingerprint
from trained_gridworld import gridworld_set as policies

TABULAR = [name for name in METHODS if name != "certified-signals"]  # that one is for tasks that are no tables
TASK = gridworld().task([0.25])  # near the most promising candidates, so that none is dropped at once


class Watched(Learner):
    """A learner that keeps what it deployed and what it was told."""

    def tell_block(self, orders: Orders, outcomes: Outcomes) -> int:
        used = super().tell_block(orders, outcomes)
        self.__dict__.setdefault("blocks", []).append((orders.deployed, orders.drawn[:used], outcomes[:used]))
        return used

    @property
    def mixtures(self) -> list[Mixture]:
        """What was deployed in each episode."""
        return [deployed for deployed, drawn, _ in self.__dict__["blocks"] for _ in drawn]

    def rewards(self, index: int) -> np.ndarray:
        """Rewards told for the policy `index`, in turn."""
        return np.concatenate([outcomes.reward[drawn == index] for _, drawn, outcomes in self.__dict__["blocks"]])


def watched(name: str, seed: int = 7) -> Watched:
    return Watched(learner(policies(), method=name, episodes=5000, risk=0.2).method, seed=seed, horizon=80)


def simulate(fresh: Learner, episodes: int, task: TabularCMDP = TASK, **options: Any) -> Run:
    return run_learner(fresh, task, episodes=episodes, **{"seed": 3, "optimal_reward": 51.0, **options})


def content(run: Run) -> Any:
    """Everything in a record that may not depend on the block size."""
    mixture = [component.probabilities for component in run.output.components], run.output.weights
    return fingerprint((run.regret, run.margin, run.weight, run.events, mixture, run.certified, run.method))


@pytest.mark.short_for(name=["paper", "pce", "certified", "certified-model-free", "dope-theory", "lb-sgd-theory"])
@pytest.mark.parametrize("name", TABULAR)
def test_block_sizes_change_nothing(name: str) -> None:
    episodes = 400
    expected = content(simulate(watched(name), episodes, block=1))
    for block in (LARGEST_BLOCK, 7):
        assert content(simulate(watched(name), episodes, block=block)) == expected


@pytest.mark.long
@pytest.mark.parametrize("name", ["published", "pce"])
def test_block_sizes_change_nothing_in_a_run_with_many_decisions(name: str) -> None:
    """Noise 0.1 is far from every training task, so that candidates are tried and dropped one after the other."""
    task = gridworld().task([0.1])
    one, default = watched(name), watched(name)
    slow, fast = simulate(one, 6000, task, block=1), simulate(default, 6000, task)
    assert len(slow.events) >= 4
    assert content(slow) == content(fast)
    assert fingerprint(one.state) == fingerprint(default.state)


@pytest.mark.short_for(name=["safe-only", "paper", "published", "pce", "certified", "dope-theory", "lb-sgd-theory"])
@pytest.mark.parametrize("name", TABULAR)
def test_record_holds_exact_values_of_what_was_deployed(name: str) -> None:
    fresh = watched(name)
    episodes = 3000 if name in ("published", "pce") else 300
    task = gridworld().task([0.33]) if name == "pce" else TASK  # whose most promising candidates are unsafe
    run = simulate(fresh, episodes, task)
    assert run.episodes == episodes == len(run.margin) == len(run.weight)
    values: dict[Any, Any] = {}
    rewards, margins = [], []
    for deployed in fresh.mixtures:
        key = fingerprint(deployed)
        if key not in values:
            mixture = EpisodeMixture(tuple(fresh.policy(int(k)) for k in deployed.indices), deployed.weights)
            values[key] = evaluate(task, mixture)
        rewards.append(values[key].reward)
        margins.append(values[key].margin.min())
    np.testing.assert_allclose(run.margin, margins, rtol=0, atol=1e-11)
    np.testing.assert_allclose(run.regret, np.cumsum(np.abs(51.0 - np.array(rewards))), rtol=1e-12)
    assert run.weight.tolist() == [deployed.weight for deployed in fresh.mixtures]
    assert run.unsafe_episodes == (np.array(margins) < -1e-9).sum()
    if name == "pce":
        assert run.unsafe_episodes > 0, "otherwise the count is not tested"

    output = evaluate(task, run.output)
    assert output.reward == pytest.approx(np.mean(rewards), rel=1e-12)
    assert output.margin.min() == pytest.approx(np.mean(margins), rel=1e-9)
    assert run.events == fresh.events


def test_margin_is_the_smallest_of_several() -> None:
    """The mixture's smallest margin, not the mixture of the smallest margins: which is smaller changes on the way."""
    cost = np.stack([TASK.cost[0], TASK.reward / 50])  # the second one is what the reward is, only smaller
    two = TabularCMDP(TASK.transitions, TASK.reward, cost, [1.5, 1.5], TASK.start, 0.9, (0, 10), (0, 10))
    entries = [
        replace(
            entry,
            margin=np.append(entry.margin, 1.5 - entry.reward / 50),
            safe_margin=np.append(entry.safe_margin, 1.5 - entry.safe_reward / 50),
        )
        for entry in policies().entries
    ]
    kept = {field: getattr(policies(), field) for field in ("safe_policy", "epsilon", "delta", "xi", "task_digest")}
    wider = PolicyValueSet(entries=tuple(entries), units=two.units, recipe={}, training={}, **kept)
    fresh = Watched(learner(wider, method="published").method, seed=0, horizon=80)
    run = run_learner(fresh, two, episodes=2500, seed=0, optimal_reward=51.0)
    for k in (0, 1200, 2499):
        deployed = fresh.mixtures[k]
        mixture = EpisodeMixture(tuple(fresh.policy(int(i)) for i in deployed.indices), deployed.weights)
        assert run.margin[k] == pytest.approx(evaluate(two, mixture).margin.min(), rel=1e-12)
    smallest = [evaluate(two, fresh.policy(int(i))).margin.min() for i in deployed.indices]
    assert run.margin[-1] > deployed.weights @ smallest + 0.01


def test_equal_seeds_give_equal_runs_and_others_do_not() -> None:
    first, second = (adapt(policies(), TASK, method="pce", episodes=600, seed=11) for _ in range(2))
    assert content(first) == content(second)
    other = adapt(policies(), TASK, method="pce", episodes=600, seed=12)
    assert content(other) != content(first)


def test_policies_have_streams_of_their_own_whatever_the_method() -> None:
    """Methods are compared on the same episodes: the n-th one of a policy does not depend on who asks for it."""
    safe, published, pce = watched("safe-only"), watched("published", seed=1), watched("pce", seed=2)
    for fresh in (safe, published, pce):
        simulate(fresh, 3000)
    told = published.rewards(SAFE)
    assert 1000 < len(told) < 3000
    assert told.tolist() == safe.rewards(SAFE)[: len(told)].tolist()
    candidate = int(published.mixtures[-1].indices[1])
    shared = min(len(published.rewards(candidate)), len(pce.rewards(candidate)))
    assert shared > 20
    assert published.rewards(candidate)[:shared].tolist() == pce.rewards(candidate)[:shared].tolist()
    assert published.rewards(candidate)[:shared].tolist() != told[:shared].tolist()


@pytest.mark.parametrize("name", METHODS)
def test_the_record_says_how_the_risk_was_spent(name: str) -> None:
    """All of it, for the methods that have a risk to spend; nothing for those that promise nothing by it. Who never
    leaves the safe policy runs the risk that this one is infeasible, and no other."""
    trained, task = (policies(), TASK) if name in TABULAR else (shown_set(), ShownWheel(0.25))
    run = adapt(trained, task, method=name, episodes=20, risk=0.3, seed=0)
    assert run.risk_split == learner(trained, method=name, episodes=20, risk=0.3).risk_split
    spent = {"safe-only": policies().safe_risk, "paper": 0.3}.get(name, 0.3 if name.startswith("certified") else 0.0)
    assert sum(run.risk_split.values()) == pytest.approx(spent)


def test_block_sizes_change_nothing_where_signals_are_read() -> None:
    def ran(block: int) -> tuple[Any, ...]:
        made = learner(shown_set(), method="certified-signals", risk=0.3, seed=7)
        run = run_learner(made, ShownWheel(0.25), episodes=150, seed=3, optimal_reward=4.0, block=block)
        assert run.weight.max() > run.weight[0]
        return fingerprint((made.state, run.margin, run.weight, run.events)), run.method

    assert ran(1) == ran(7) == ran(LARGEST_BLOCK)


def test_streams_are_the_simulator_s_episodes_in_order() -> None:
    simulator = Simulator(TASK, policies().safe_policy, 30)
    stream = EpisodeStream(simulator, np.random.default_rng(5), growing_chunks())
    rng = np.random.default_rng(5)
    expected = [simulator.run(size, rng, transitions=True) for size in (FIRST_CHUNK, 2 * FIRST_CHUNK, 4 * FIRST_CHUNK)]
    seen, first = [], 0
    for size in (1, 3, FIRST_CHUNK - 2, 2, 3 * FIRST_CHUNK, 60):
        looked_at = stream.episodes(first, size)
        assert looked_at.reward.tolist() == stream.episodes(first, size).reward.tolist(), "looking uses nothing up"
        seen.append(looked_at)
        first += size
    for name in ("reward", "cost", "states", "actions"):
        whole = np.concatenate([getattr(part, name) for part in expected])
        assert np.array_equal(np.concatenate([getattr(part, name) for part in seen]), whole[: 4 * FIRST_CHUNK + 64])


def test_streams_in_an_order_keep_all_that_was_simulated() -> None:
    simulator = Simulator(TASK, policies().safe_policy, 30)
    order = np.array([0, 1, 2, 3, 4, 2, 0, 4])
    stream = EpisodeStream(simulator, np.random.default_rng(5), [2, 2, 1], order=order)
    rng = np.random.default_rng(5)
    whole = np.concatenate([simulator.run(size, rng, transitions=True).states for size in (2, 2, 1)])
    assert np.array_equal(stream.episodes(1, 2).states, whole[1:3])
    assert np.array_equal(stream.episodes(3, 5).states, whole[order[3:]])
    assert np.array_equal(stream.episodes(0, 8).states, whole[order])


def test_pools_that_share_streams_see_the_same_episodes_each_from_the_first_on() -> None:
    simulator = Simulator(TASK, policies().safe_policy, 30)

    @cache
    def stream(index: int) -> EpisodeStream:
        return EpisodeStream(simulator, np.random.default_rng(index), [50], order=np.arange(50))

    first, second = EpisodePool(stream), EpisodePool(stream, sums_only=True)
    drawn = np.array([1, 0, 1, 1, 0])
    for pool in (first, second):
        pool.use(drawn)
    told, sums = first.upcoming(drawn), second.upcoming(drawn)
    own = {index: simulator.run(50, np.random.default_rng(index), transitions=True) for index in (0, 1)}
    assert told.reward.tolist() == [own[k].reward[n] for k, n in ((1, 3), (0, 2), (1, 4), (1, 5), (0, 3))]
    assert (sums.reward.tolist(), sums.states) == (told.reward.tolist(), None)
    assert told.states is not None


@pytest.mark.parametrize("name", ["published", "safe-meta-published"])
def test_streams_that_were_dropped_go_on_where_they_were(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = simulate(watched(name), 2500)
    monkeypatch.setattr(runner, "KEPT_STREAMS", 1)
    again = simulate(watched(name), 2500)
    assert again.regret.tolist() == whole.regret.tolist()
    assert fingerprint(again.events) == fingerprint(whole.events)


def test_rewards_told_average_to_the_exact_value() -> None:
    fresh = watched("safe-only")
    fresh.horizon = 130
    simulate(fresh, 4000)
    rewards = fresh.rewards(SAFE)
    exact = evaluate(TASK, policies().safe_policy).reward
    assert abs(rewards.mean() - exact) < 5 * rewards.std() / np.sqrt(4000)


@pytest.mark.parametrize("change", ["discount", "budget", "reward_range", "cost_range"])
def test_tasks_in_other_units_are_refused(change: str) -> None:
    arguments: dict[str, Any] = {
        "budget": 1.5,
        "discount": 0.9,
        "reward_range": (0.0, 10.0),
        "cost_range": (0.0, 10.0),
    }
    other = {"discount": 0.91, "budget": 1.6, "reward_range": (0.0, 11.0), "cost_range": (-1.0, 10.0)}[change]
    arguments[change] = other
    task = TabularCMDP(TASK.transitions, TASK.reward, TASK.cost[0], start=TASK.start, **arguments)
    with pytest.raises(InvalidInput, match="task must share discount, horizon, ranges and budgets"):
        simulate(watched("safe-only"), 10, task)


def test_tasks_of_another_shape_are_refused() -> None:
    task = TabularCMDP(np.ones((1, 4, 1)), np.ones(1), np.ones(1), 1.5, [1.0], 0.9, (0.0, 10.0), (0.0, 10.0))
    with pytest.raises(InvalidInput, match="policy must have shape"):
        simulate(watched("safe-only"), 10, task)


def test_the_observer_sees_every_episode_once() -> None:
    seen: list[tuple[int, int]] = []
    simulate(watched("pce"), 500, observer=lambda done, total: seen.append((done, total)))
    done = [each[0] for each in seen]
    assert done == sorted(set(done))
    assert seen[-1] == (500, 500)
    assert {total for _, total in seen} == {500}


def test_safe_only_reproduces_the_cost_of_never_adapting() -> None:
    """95.8 thousand over 40 000 episodes, mean of the ten published test tasks."""
    regrets = []
    for noise in PUBLISHED_TEST_NOISES:
        task = gridworld().task([noise])
        run = adapt(policies(), task, method="safe-only", episodes=40_000, seed=0, horizon=1)  # values are exact anyway
        regrets.append(run.regret[-1])
        gap = solve(task).values.reward - evaluate(task, solve(gridworld().task([0.4])).policy).reward
        assert run.regret[-1] == pytest.approx(40_000 * gap, rel=1e-6)
        assert run.unsafe_episodes == 0
        assert run.certified
    assert np.mean(regrets) == pytest.approx(95_801.6, abs=1.0)


def test_output_counts_every_component_by_its_weight() -> None:
    fresh = watched("published")
    run = simulate(fresh, 2500)
    expected: dict[int, float] = {}
    for deployed in fresh.mixtures:
        for index, weight in zip(deployed.indices.tolist(), deployed.weights.tolist(), strict=True):
            expected[index] = expected.get(index, 0.0) + weight / 2500
    assert len(run.output.components) == len(expected)
    for (index, share), component, weight in zip(
        expected.items(), run.output.components, run.output.weights, strict=True
    ):
        assert component is fresh.policy(index)
        assert weight == pytest.approx(share, rel=1e-9)
