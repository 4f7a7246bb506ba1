"""Environments as tasks: what is summed, what an end means, what stops a run, and that nothing is lost on the way."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import gym_strangers as strangers
import surefoot as sf
from gym_strangers import DECLARED, Walk
from surefoot.cmdp.task import ReadableTask, Task
from surefoot.tasks.gym_tasks import GymTask, RandomActions
from surefoot.testing import task_suite


@dataclass(frozen=True, eq=False)
class Always:
    """One and the same action."""

    action: Any = 1
    kind: ClassVar[str] = "always"

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
        return self.action if not np.ndim(step) else np.repeat(np.asarray(self.action)[None], len(step), axis=0)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {}


class Script(gymnasium.Env[Any, Any]):
    """Pays a given reward and cost at every step, ends after the last, and counts how it is treated."""

    observation_space: Any = gymnasium.spaces.Discrete(1000)
    action_space: Any = gymnasium.spaces.Discrete(2)

    def __init__(
        self, payments: list[tuple[float, Any]], terminates: bool = True, truncated_after: int = 10**6
    ) -> None:
        self.payments, self.terminates, self.limit = payments, terminates, truncated_after
        self.seeds: list[int | None] = []
        self.open = True

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seeds.append(seed)
        self.t = 0
        return 0, {"cost": 1e9}  # nothing is paid for being reset

    def step(self, action: Any) -> Any:
        reward, cost = self.payments[self.t]
        self.t += 1
        ended = self.terminates and self.t == len(self.payments)
        return self.t, reward, ended, self.t >= self.limit, {"cost": cost}

    def close(self) -> None:
        self.open = False


def task(env: Any, **declared: Any) -> GymTask:
    built = sf.tasks.from_gym(lambda theta: env, sf.tasks.Uniform(0, 1), **DECLARED | declared).task(0.5)
    assert isinstance(built, GymTask)
    return built


def sums(env: Any, steps: int | None = None, **declared: Any) -> list[float]:
    built = task(env, **declared)
    found = built.episodes(Always(), steps or built.units.episode_length).run(1, np.random.default_rng(0))
    return [float(found.reward[0]), *found.cost[0].tolist()]


# ------------------------------------------------------------------------------------------------------ what is summed


unit = st.floats(0, 1, allow_subnormal=False)


@settings(max_examples=60, deadline=None)
@given(
    payments=st.lists(st.tuples(unit, st.tuples(unit, unit)), min_size=1, max_size=12),
    spare=st.integers(0, 5),
    discount=st.floats(0.1, 1.0),
    after=st.tuples(unit, st.tuples(unit, unit)),
)
def test_sums_are_those_of_plain_loops(payments: Any, spare: int, discount: float, after: Any) -> None:
    """Every step up to and with the last counts, what follows it is what was declared."""
    horizon = len(payments) + spare
    expected = np.zeros(3)
    for t in range(horizon):
        reward, costs = payments[t] if t < len(payments) else after
        expected += discount**t * np.array([reward, *costs])
    declared = {"budget": [1.0, 1.0], "horizon": horizon, "discount": discount, "after_termination": after}
    np.testing.assert_allclose(sums(Script(payments), **declared), expected, rtol=1e-12, atol=1e-300)


def test_by_default_the_sums_end_with_the_episode() -> None:
    assert sums(Script([(0.5, 0.25), (0.5, 1.0)]), horizon=30) == [1.0, 1.25]
    paying = {"after_termination": (0.0, 1.0)}
    assert sums(Script([(0.5, 0.25), (0.5, 1.0)]), horizon=30, **paying) == [1.0, 29.25]
    assert sums(Script([(0.5, 0.25), (0.5, 1.0)]), steps=4, horizon=30, **paying) == [1.0, 3.25]


def test_without_a_horizon_episodes_have_the_length_that_leaves_a_negligible_tail() -> None:
    length = sf.Units(0.5, (0, 1), [[0, 1]], 1.0).episode_length  # type: ignore[arg-type]
    env = Script([(1.0, 1.0)] * 1000, terminates=False)
    assert sums(env, horizon=None, discount=0.5) == [2 - 0.5 ** (length - 1)] * 2
    assert env.t == length


def test_a_time_limit_before_the_horizon_is_refused_and_at_the_horizon_it_is_none() -> None:
    endless = [(0.5, 0.5)] * 100
    with pytest.raises(sf.InvalidInput, match=r"truncated after 7, at step 6.* declare horizon=7"):
        sums(Script(endless, truncated_after=7), horizon=8)
    assert sums(Script(endless, truncated_after=7), horizon=7) == [3.5, 3.5]
    assert sums(Script(endless, truncated_after=7), horizon=8, steps=7) == [3.5, 3.5]
    assert sums(Script([(0.5, 0.5)] * 7, truncated_after=7), horizon=30) == [3.5, 3.5]  # both at once: the system ended


def test_the_cost_function_comes_before_what_the_environment_says() -> None:
    seen: list[Any] = []

    def cost(observation: Any, action: Any, after: Any, info: Any) -> float:
        seen.append((observation, action, after, info))
        return 0.5

    assert sums(Script([(0.0, 1.0)] * 2), cost=cost) == [0.0, 1.0]
    assert seen == [(0, 1, 1, {"cost": 1.0}), (1, 1, 2, {"cost": 1.0})]


def test_six_values_are_five_with_a_cost() -> None:
    rng = lambda: np.random.default_rng(3)  # noqa: E731
    five, six = (
        sf.tasks.from_gym(kind, sf.tasks.Uniform(0, 1), **DECLARED).task(0.5) for kind in (Walk, strangers.SixValues)
    )
    one, other = (each.episodes(Always(), 30).run(20, rng()) for each in (five, six))
    assert np.array_equal(one.cost, other.cost)
    assert one.cost.any()


# ------------------------------------------------------------------------------------------------------- what stops it


@pytest.mark.parametrize(
    ("payments", "message"),
    [
        ([(0.5, 0.5), (1.1, 0.5)], r"reward must lie in reward_range, \[0.0, 1.0\], got 1.1 at step 1"),
        ([(0.5, 0.5), (0.5, -0.1)], r"cost must lie in cost_range, \[0.0, 1.0\], got -0.1 at step 1"),
        ([(0.5, 0.5), (np.nan, 0.5)], r"reward must be finite .* got nan at step 1"),
        ([(0.5, 0.5), (0.5, np.inf)], r"cost must be finite .* got inf at step 1"),
        ([(0.5, [0.5, 0.5])], r"cost must be a number, got shape \[2\] at step 0"),
        ([(0.5, "much")], r"cost must be a number .* got 'much' at step 0"),
    ],
)
def test_what_is_out_of_range_stops_the_run(payments: Any, message: str) -> None:
    with pytest.raises(sf.InvalidInput, match=message):
        sums(Script(payments))


def test_a_sum_out_of_its_declared_range_stops_the_run() -> None:
    declared = {"reward_sum_range": (0, 1), "cost_sum_range": (0, 1)}
    assert sums(Script([(0.5, 0.0), (0.5, 1.0)]), **declared) == [1.0, 1.0]
    with pytest.raises(sf.InvalidInput, match=r"cost_sum_range .* got 1 and \[1.25\]"):
        sums(Script([(0.5, 0.25), (0.5, 1.0)]), **declared)


def test_rounding_is_no_breach() -> None:
    assert sums(Script([(1 + 1e-12, -1e-12)])) == [1 + 1e-12, -1e-12]
    assert sums(Script([(np.float32(1), np.array([1], np.int64))])) == [1.0, 1.0]


def run_with(kind: Any, action: Any, **declared: Any) -> sf.Outcomes:
    built = sf.tasks.from_gym(kind, sf.tasks.Uniform(0, 1), **DECLARED | declared).task(0.5)
    return built.episodes(Always(action), 30).run(3, np.random.default_rng(0))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("kind", "action", "message"),
    [
        (Walk, 2, "from 0 to 1, got 2"),
        (Walk, -1, "from 0 to 1"),
        (Walk, 0.5, "a whole number"),
        (Walk, [1], "a whole number"),
        (Walk, None, "a whole number"),
        (strangers.Pushed, np.array([0.7]), r"in the box from \[-0.5\] to \[0.5\] \(or state clip_actions=True\)"),
        (strangers.Pushed, np.array([np.nan]), "in the box"),
        (strangers.Pushed, 0.1, r"an array \[1\] of numbers, got 0.1"),
        (strangers.Parts, np.array([1, 3]), r"in the box from \[0, 0\] to \[1, 2\]"),
        (strangers.Parts, np.array([1.0, 0.5]), r"an array \[2\] of numbers"),
    ],
)
def test_actions_outside_of_their_space_are_refused(kind: Any, action: Any, message: str) -> None:
    with pytest.raises(sf.InvalidInput, match=f"the action at step 0 must be .*{message}"):
        run_with(kind, action)


def test_actions_are_clipped_only_where_that_was_stated() -> None:
    stated = run_with(strangers.Pushed, np.array([0.7]), clip_actions=True)
    assert np.array_equal(stated.reward, run_with(strangers.Pushed, np.array([0.5])).reward)
    with pytest.raises(sf.InvalidInput, match="must be in the box"):
        run_with(strangers.Pushed, np.array([np.nan]), clip_actions=True)


def test_true_is_a_discrete_action() -> None:
    assert np.array_equal(run_with(Walk, np.True_).reward, run_with(Walk, 1).reward)


# ------------------------------------------------------------------------------------------------------- seeds, digests


def test_every_episode_is_seeded_afresh_and_the_environment_is_closed() -> None:
    env = Script([(0.5, 0.5)] * 3)
    built = task(env)
    env.seeds.clear()
    built.episodes(Always(), 30).run(50, np.random.default_rng(0))
    assert len(set(env.seeds)) == 50
    assert all(type(seed) is int for seed in env.seeds)
    assert not env.open


@pytest.mark.short_for(kind=[Walk, strangers.Pushed, strangers.Parts])
@pytest.mark.parametrize("kind", [Walk, strangers.Pushed, strangers.SixValues, strangers.Steady, strangers.Parts])
def test_the_contract_of_tasks(kind: Any) -> None:
    family = sf.tasks.from_gym(kind, sf.tasks.Uniform(0, 1), **DECLARED)
    assert isinstance(family.example, Task)
    assert not isinstance(family.example, ReadableTask)
    policies = [
        RandomActions(kind.action_space),
        Always({strangers.Pushed: np.array([0.5]), strangers.Parts: np.array([1, 2])}.get(kind, 1)),
    ]
    task_suite.check(lambda: family.task(0.4), policies, episodes=60)


def test_digests_tell_tasks_apart() -> None:
    """Parameter, units, what the end means and what the environment does."""
    variants = [
        sf.tasks.from_gym(kind, sf.tasks.Uniform(0, 1), **DECLARED | more).task(theta)
        for kind in (Walk, strangers.SixValues, strangers.Steady)
        for theta in (0.3, 0.4)
        for more in ({}, {"budget": 6.0}, {"after_termination": (0.0, 1.0)}, {"clip_actions": True}, {"horizon": 31})
    ]
    digests = [each.digest() for each in variants]
    assert len(set(digests)) == len(digests)


def test_an_environment_that_is_not_seeded_has_a_digest_all_the_same() -> None:
    built = sf.tasks.from_gym(strangers.SeedDoesNothing, sf.tasks.Uniform(0, 1), **DECLARED).task(0.3)
    assert built.digest() == built.digest()


def test_families_must_share_their_spaces() -> None:
    def make(theta: Any) -> Any:
        return Walk(theta) if theta[0] < 0.5 else strangers.Pushed(theta)

    family = sf.tasks.from_gym(make, sf.tasks.Uniform(0, 1), **DECLARED)
    assert family.task(0.3).spaces == "1 constraint(s), observations Box[1], actions Discrete[2]"
    with pytest.raises(sf.InvalidInput, match=r"must have the family's spaces.* got .* actions Box\[1\]"):
        family.task(0.8)


# ------------------------------------------------------------------------------------------------------------ set_task


def test_tasks_are_set_where_environments_have_that_method() -> None:
    once = strangers.OneForAll()
    rng = lambda: np.random.default_rng(0)  # noqa: E731
    for option, factor in ((None, 1.0), (True, 1.0), (lambda theta: {"theta": 2 * theta}["theta"], 2.0)):
        family = sf.tasks.from_gym(lambda theta: once, sf.tasks.Uniform(0, 1), set_task=option, **DECLARED)
        plain = sf.tasks.from_gym(Walk, sf.tasks.Uniform(0, 2), **DECLARED)
        for theta in (0.2, 0.4):  # in turns, though there is one environment
            found = family.task(theta).episodes(Always(), 30).run(5, rng())
            assert np.array_equal(found.reward, plain.task(factor * theta).episodes(Always(), 30).run(5, rng()).reward)
    assert not once.closed
    once.set_task(0.123)
    family = sf.tasks.from_gym(lambda theta: once, sf.tasks.Uniform(0, 1), set_task=False, **DECLARED)
    family.task(0.4).episodes(Always(), 30).run(1, rng())
    assert once.theta == 0.123
    with pytest.raises(sf.InvalidInput, match="set_task must be left out"):
        sf.tasks.from_gym(Walk, sf.tasks.Uniform(0, 1), set_task=True, **DECLARED).task(0.3).digest()


def test_a_wrapped_environment_is_set_inside() -> None:
    family = sf.tasks.from_gym(
        lambda theta: gymnasium.wrappers.TimeLimit(strangers.OneForAll(), 30), sf.tasks.Uniform(0, 1), **DECLARED
    )
    assert family.task(0.3).digest() != family.task(0.4).digest()


# ----------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"after_termination": (2.0, 0.0)}, r"after_termination must be 0 or lie in reward_range, \[0.0, 1.0\], got 2"),
        ({"after_termination": (0.0, -1.0)}, "lie in cost_range"),
        ({"after_termination": (0.0, [0.0, 0.0])}, "one for each of 1 budgets"),
        ({"after_termination": 0.0}, "must be a pair"),
        ({"cost": 3}, "cost must be a function"),
        ({"make_vector": 3}, "make_vector must be a function"),
        ({"set_task": "yes"}, "set_task must be True, False or a function"),
        ({"clip_actions": 1}, "clip_actions must be True or False"),
        ({"lanes": 0}, "lanes must be a whole number of at least 1"),
        ({"horizon": None}, "discount must lie strictly between 0 and 1, or be 1 with a horizon"),
        ({"cost_range": (1, 0)}, "cost_range must be"),
    ],
)
def test_arguments_are_checked(declared: Any, message: str) -> None:
    with pytest.raises(sf.InvalidInput, match=message):
        sf.tasks.from_gym(Walk, sf.tasks.Uniform(0, 1), **DECLARED | declared)


def test_policies_that_cannot_act_are_refused() -> None:
    with pytest.raises(sf.InvalidInput, match="policy must be one that can act, got str"):
        task(Script([(0.5, 0.5)])).episodes("left", 3)  # type: ignore[arg-type]


def test_the_kind_of_budget_in_words() -> None:
    def kind(discount: float, horizon: int | None) -> str:
        return sf.Units(discount, (0, 1), [[0, 1]], 1.0, horizon).kind  # type: ignore[arg-type]

    assert kind(1.0, 200) == "expected cost over 200 steps"
    assert kind(0.99, None) == "expected discounted cost (discount 0.99)"
    assert kind(0.9, 20) == "expected discounted cost over 20 steps (discount 0.9)"


def test_the_core_needs_no_gymnasium() -> None:
    script = "import sys; sys.modules['gymnasium'] = None; import surefoot as sf; sf.check_env; sf.tasks.from_gym"
    subprocess.run([sys.executable, "-c", script], check=True)


class Overwriting(gymnasium.Env[Any, Any]):
    """One array for all observations: what was seen before is gone after a step."""

    observation_space = gymnasium.spaces.Box(0.0, 100.0, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seen = np.zeros(1)
        return self.seen, {}

    def step(self, action: Any) -> Any:
        self.seen += 1.0
        return self.seen, 0.0, False, False, {}


def test_a_cost_function_sees_what_was_before_also_where_it_is_written_over() -> None:
    def moved(observation: Any, action: Any, after: Any, info: Any) -> float:
        return float(after[0] - observation[0])

    family = sf.tasks.from_gym(
        lambda parameter: Overwriting(),
        sf.tasks.Uniform(0.0, 1.0),
        budget=9.0,
        horizon=5,
        reward_range=(0, 0),
        cost_range=(0, 1),
        cost=moved,
    )
    outcomes = family.task([0.5]).episodes(Always(0), 5).run(2, np.random.default_rng(0))
    assert outcomes.cost[:, 0].tolist() == [5.0, 5.0]


def test_that_costs_are_the_same_on_all_tasks_can_be_said() -> None:
    for said in (False, True):
        assert sf.tasks.from_gym(Walk, sf.tasks.Uniform(0, 1), **DECLARED | {"shared_costs": said}).shared_costs is said
