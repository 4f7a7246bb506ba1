"""Environments with a budget on the tail of their cost: the same law as tables, and Gymnasium's own checker."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import surefoot as sf
from surefoot.errors import InvalidInput
from surefoot.tasks.cvar_tasks import Tail, TailEnv, with_tail


class TableEnv(gymnasium.Env[int, int]):
    """A table as an environment."""

    def __init__(self, task: sf.TabularCMDP) -> None:
        self.task, self.state = task, 0
        self.observation_space = gymnasium.spaces.Discrete(task.n_states)
        self.action_space = gymnasium.spaces.Discrete(task.n_actions)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = int(self.np_random.choice(self.task.n_states, p=self.task.start))
        return self.state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        state, row = self.state, np.asarray(self.task.transitions)[self.state, action]
        self.state = int(self.np_random.choice(self.task.n_states, p=row))
        reward, cost = float(self.task.reward[state, action]), self.task.cost[0][state, action]
        return self.state, reward, False, False, {"cost": cost}


@pytest.fixture(scope="module")
def task() -> sf.TabularCMDP:
    rng = np.random.default_rng(3)
    rows, costs = rng.dirichlet(np.ones(3), size=(3, 2)), rng.integers(0, 3, (3, 2))
    return sf.TabularCMDP(rows, rng.random((3, 2)), costs, 9.0, [1, 0, 0], 1.0, (0, 1), (0, 2), horizon=6)


@pytest.mark.short_for(episodes=[1000])
@pytest.mark.parametrize("episodes", [1000, 4000])
def test_the_environment_has_the_values_of_the_table(task: sf.TabularCMDP, episodes: int) -> None:
    """By episodes of a policy that looks at the cost so far, against the exact values of the augmented table."""
    tail, rng = Tail(0.8, 6.0, 3.0), np.random.default_rng(0)
    table = with_tail(task, tail)
    policy = sf.TabularPolicy(rng.dirichlet(np.ones(2), size=table.n_states))
    family = sf.tasks.from_gym(
        lambda _: TailEnv(TableEnv(task), tail),
        sf.tasks.Uniform(0.0, 1.0),
        budget=tail.allowed,
        horizon=6,
        reward_range=(0.0, 1.0),
        cost_range=(0.0, 2.0),
    )
    outcomes = family.task(0.5).episodes(policy, 6).run(episodes, np.random.default_rng(1))
    exact = sf.evaluate(table, policy)
    for found, expected in ((outcomes.reward, exact.reward), (outcomes.cost[:, 0], exact.cost[0])):
        assert abs(found.mean() - expected) < 4 * found.std() / np.sqrt(len(found))


def test_a_vector_has_one_more_entry() -> None:
    def effort(before: Any, action: Any, after: Any, info: Any) -> float:
        return float(np.square(action).sum())

    env = TailEnv(gymnasium.make("Pendulum-v1"), Tail(0.9, 5.0, 2.0), cost=effort)
    first, _ = env.reset(seed=0)
    assert first.shape == (4,)
    assert first[-1] == 0.0
    assert env.observation_space.contains(first)
    after, _, _, _, info = env.step(np.array([1.2], np.float32))
    assert after[-1] == pytest.approx(1.44)
    assert info["cost"] == 0.0
    after, _, _, _, info = env.step(np.array([1.2], np.float32))
    assert after[-1] == 2.0, "up to the threshold"
    assert info["cost"] == pytest.approx(0.88)
    _, _, _, _, info = env.step(np.array([1.2], np.float32))
    assert info["cost"] == pytest.approx(1.44)
    env.close()


def test_gymnasium_finds_nothing_wrong(task: sf.TabularCMDP) -> None:
    class Wrapped(gymnasium.Env[Any, Any]):
        """What the checker insists on."""

        def __init__(self) -> None:
            self.own = TailEnv(TableEnv(task), Tail(0.8, 6.0, 3.0))
            self.observation_space, self.action_space = self.own.observation_space, self.own.action_space

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return self.own.reset(seed=seed, options=options)

        def step(self, action: Any) -> Any:
            return self.own.step(action)

    check_env(Wrapped(), skip_render_check=True)


def test_what_has_no_tail_is_refused(task: sf.TabularCMDP) -> None:
    def negative(*_: Any) -> float:
        return -1.0

    env = TailEnv(TableEnv(task), Tail(0.8, 6.0, 3.0), cost=negative)
    env.reset(seed=0)
    with pytest.raises(InvalidInput, match=r"cost must not be negative where its tail has a budget, got -1\.0"):
        env.step(0)
    odd = TableEnv(task)
    odd.observation_space = gymnasium.spaces.MultiBinary(3)  # type: ignore[assignment]
    with pytest.raises(InvalidInput, match="observation_space must be a vector or states from 0 on"):
        TailEnv(odd, Tail(0.8, 6.0, 3.0))


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"discount": 0.99}, r"discount must be 1 where a tail has the budget \(TailEnv\), got 0\.99"),
        ({"budget": 6.0}, r"budget must be at most tail\.allowed, 0\.6, for a TailEnv, got \[6\.0\]"),
        ({"cost": lambda *_: 0.0}, "cost must be given to TailEnv"),
        ({"after_termination": (0.0, 1.0)}, r"after_termination must hold no cost for a TailEnv, .* got \[1\.0\]"),
    ],
)
@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: gymnasium.wrappers.TimeLimit(env, 6)])
def test_a_family_that_loses_the_tail_is_refused(
    task: sf.TabularCMDP, declared: dict[str, Any], message: str, wrap: Any
) -> None:
    class Wrapped(gymnasium.Env[Any, Any]):
        """What Gymnasium's wrappers insist on."""

        def __init__(self) -> None:
            self.env = TailEnv(TableEnv(task), Tail(0.8, 6.0, 3.0))
            self.observation_space, self.action_space = self.env.observation_space, self.env.action_space

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return self.env.reset(seed=seed, options=options)

        def step(self, action: Any) -> Any:
            return self.env.step(action)

    def one_episode(**given: Any) -> Any:
        right = {"budget": 0.6, "horizon": 6, "reward_range": (0.0, 1.0), "cost_range": (0.0, 2.0)}
        family = sf.tasks.from_gym(lambda _: wrap(Wrapped()), sf.tasks.Uniform(0.0, 1.0), **{**right, **given})
        policy = sf.TabularPolicy(np.full((12, 2), 0.5))
        return family.task(0.5).episodes(policy, 6).run(1, np.random.default_rng(0))

    assert len(one_episode()) == 1
    with pytest.raises(InvalidInput, match=message):
        one_episode(**declared)
