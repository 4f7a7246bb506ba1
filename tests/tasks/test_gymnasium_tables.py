"""Families from environments that show their transition table: terminations, payments, costs, what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

import surefoot as sf
from surefoot.errors import InvalidInput
from surefoot.tabular.policy import TabularPolicy

HOLES = (5, 7, 11, 12)


def lake(theta: np.ndarray) -> Any:
    return gymnasium.make("FrozenLake-v1", is_slippery=True, success_rate=1 - float(theta[0]))


def lakes(**changes: Any) -> sf.tasks.TaskDistribution:
    arguments: dict[str, Any] = {"cost": lambda s, a, after: float(after in HOLES), "budget": 0.15, "discount": 0.99}
    return sf.tasks.from_gymnasium_table(lake, sf.tasks.Uniform(0.0, 0.4), **arguments | changes)


def test_the_lake_is_the_environment_with_a_sink() -> None:
    task = lakes().task([0.3])
    P = lake(np.array([0.3])).unwrapped.P
    assert (task.n_states, task.n_actions) == (17, 4)
    rows = task.rows.toarray().reshape(17, 4, 17)
    for s in range(16):
        for a in range(4):
            expected, reward, cost = np.zeros(17), 0.0, 0.0
            if s in (*HOLES, 15):
                expected[16] = 1
            else:
                for p, after, r, _ in P[s][a]:
                    expected[after] += p
                    reward, cost = reward + p * r, cost + p * (after in HOLES)
            np.testing.assert_allclose(rows[s, a], expected, atol=1e-15)
            assert task.reward[s, a] == pytest.approx(reward, abs=1e-15)
            assert task.cost[0, s, a] == pytest.approx(cost, abs=1e-15)
    assert rows[16, :, 16].tolist() == [1.0] * 4
    assert not task.cost[0, 16].any()
    assert task.start.tolist() == [1.0, *[0.0] * 16]
    assert task.units.reward_range == (0.0, 1.0)


@pytest.mark.short_for(episodes=[1000])
@pytest.mark.parametrize("episodes", [1000, 4000])
def test_values_are_those_of_episodes_of_the_environment(episodes: int) -> None:
    """A second computation: Gymnasium steps, Surefoot solves."""
    task, env = lakes().task([0.2]), lake(np.array([0.2]))
    table = np.zeros((17, 4))
    table[:, 1], table[::2, 2] = 0.5, 0.5
    table[1::2, 1] = 1.0
    rng = np.random.default_rng(0)
    sums = np.zeros((episodes, 2))
    for k in range(episodes):
        state, _ = env.reset(seed=int(rng.integers(2**31)))
        for t in range(100):
            action = int(rng.choice(4, p=table[state]))
            state, reward, terminated, _, _ = env.step(action)
            sums[k] += 0.99**t * np.array([reward, state in HOLES])
            if terminated:
                break
    values = sf.evaluate(task, TabularPolicy(table))
    error = 4.5 * sums.std(axis=0) / np.sqrt(episodes)
    assert abs(sums[:, 0].mean() - values.reward) < error[0]
    assert abs(sums[:, 1].mean() - values.cost[0]) < error[1]


def test_all_tasks_share_payments_also_where_nothing_slips() -> None:
    tasks = lakes()
    first = tasks.task([0.0])
    for slip in (0.1, 0.4):
        assert tasks.task([slip]).payments.same_as(first.payments)


def test_costs_by_array_and_with_info_and_several() -> None:
    table = np.zeros(16)
    table[3] = 2.0
    by_state = lakes(cost=table).task([0.1])
    np.testing.assert_array_equal(by_state.cost[0, 3], 2.0)
    with_info = lakes(cost=lambda s, a, after, info: info["prob"]).task([0.4])
    assert 0 < with_info.cost.max() <= 1
    several = lakes(cost=lambda s, a, after: [float(after in HOLES), 1.0], budget=[0.15, 50.0]).task([0.1])
    assert several.n_constraints == 2
    assert several.cost[1, 0].tolist() == [1.0] * 4
    assert several.cost[1, 16].tolist() == [0.0] * 4


def table_of(P: Any, start: Any = (1.0, 0.0)) -> Any:
    env = SimpleNamespace(P=P, initial_state_distrib=np.array(start))
    return lambda theta: SimpleNamespace(unwrapped=env)


def made(P: Any, **changes: Any) -> Any:
    arguments: dict[str, Any] = {"cost": lambda s, a, after: 0.0, "budget": 1.0, "discount": 0.9}
    make_env = changes.pop("make_env", table_of(P))
    return sf.tasks.from_gymnasium_table(make_env, sf.tasks.Uniform(0, 1), **arguments | changes).task([0.5])


def test_a_state_that_may_end_an_episode_or_not_stays_and_the_end_leads_to_the_sink() -> None:
    P = {0: {0: [(0.5, 1, 1.0, True), (0.5, 1, 0.0, False)]}, 1: {0: [(1.0, 0, 0.0, False)]}}
    task = made(P)
    np.testing.assert_array_equal(task.rows.toarray(), [[0, 0.5, 0.5], [1, 0, 0], [0, 0, 1]])
    assert task.reward[0, 0] == 0.5


def test_outcomes_between_the_same_states_are_added_up() -> None:
    P = {0: {0: [(0.25, 1, 4.0, False), (0.75, 1, 0.0, False)]}, 1: {0: [(1.0, 1, 0.0, False)]}}
    task = made(P)
    np.testing.assert_array_equal(task.rows.toarray()[0], [0, 1, 0])
    assert task.reward[0, 0] == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"make_env": lambda theta: gymnasium.make("CartPole-v1")}, "unwrapped.P is its transition table, got"),
        ({"P": {0: {0: [(1.0, 0, 0.0)]}, 1: {0: []}}}, "(probability, next state, reward, terminated)"),
        ({"P": {0: {0: [(1.0, 0, 0.0, False)], 1: []}, 1: {0: []}}}, "the same actions in every state"),
        ({"start": [0.5, 0.2, 0.3]}, "start must have shape [2], got [3]"),
        ({"cost": lambda s, a, after: [0.0, 1.0]}, "one number per budget (1), got [0.0, 1.0] for state 0, action 0"),
        ({"cost": lambda s, a, after: np.nan}, "cost[0, 0, 1] must be finite, got nan"),
        (
            {"cost": lambda s, a, after: "much"},
            "cost must return numbers, equally many for all steps, got 'much' first",
        ),
        ({"cost_range": (0.0, 0.5), "cost": lambda s, a, after: 1.0}, "must lie in cost_range"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], message: str) -> None:
    P = changes.pop("P", {0: {0: [(1.0, 1, 0.0, False)]}, 1: {0: [(1.0, 1, 0.0, False)]}})
    with pytest.raises(InvalidInput) as caught:
        made(P, **changes)
    assert message in str(caught.value)


def test_an_environment_without_a_start_asks_for_one() -> None:
    bare = SimpleNamespace(P={0: {0: [(1.0, 0, 0.0, False)]}})
    with pytest.raises(InvalidInput, match="start must be given for an environment without initial_state_distrib"):
        made(None, make_env=lambda theta: SimpleNamespace(unwrapped=bare))
    assert made(None, make_env=lambda theta: SimpleNamespace(unwrapped=bare), start=[1.0]).n_states == 2
