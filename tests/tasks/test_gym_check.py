"""`check_env` is quiet about environments that keep the rules and names the rule that one breaks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

import gym_strangers as strangers
import surefoot as sf
from gym_strangers import DECLARED, Walk


@pytest.mark.parametrize(
    "kind", [strangers.Walk, strangers.Pushed, strangers.SixValues, strangers.Steady, strangers.Parts]
)
def test_quiet_about_those_that_keep_the_rules(kind: Callable[..., Any]) -> None:
    assert sf.check_env(kind, 0.3, **DECLARED) is None
    assert sf.check_env(kind, np.array([0.3]), **DECLARED | {"horizon": None, "discount": 0.9}) is None


def test_quiet_about_several_costs_cost_functions_and_one_environment_for_all() -> None:
    sf.check_env(strangers.TwoCosts, 0.3, **DECLARED | {"budget": [5.0, 1.0]})
    sf.check_env(strangers.CostFree, 0.3, cost=lambda seen, action, then, info: float(then[0] > 1), **DECLARED)
    once = strangers.OneForAll()
    sf.check_env(lambda theta: once, 0.3, **DECLARED)
    assert not once.closed


@pytest.mark.parametrize(
    "name", ["CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0", "Acrobot-v1", "CliffWalking-v1", "Blackjack-v1"]
)
def test_quiet_about_environments_of_gymnasium(name: str) -> None:
    def make(theta: Any) -> Any:
        wrapped = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(name, max_episode_steps=-1))
        return gymnasium.wrappers.TimeLimit(wrapped, 40)

    declared = {"budget": 5.0, "horizon": 40, "reward_range": (-200, 200), "cost_range": (0, 1)}
    sf.check_env(make, 0.3, cost=lambda seen, action, then, info: 0.5, **declared)


BROKEN = {
    "CostFree": r'info\["cost"\] is missing at step 0;.* got info with \[\]',
    "CostLostAtTheEnd": r"missing at step \d+, where the episode ended: the cost of its last step would be lost",
    "SeedDoesNothing": r"the seed must decide .* same environment, reset again",
    "SeededAtBirth": r"the seed must decide .* same environment, reset again",
    "Remembers": r"the seed must decide .* same environment, reset again.*keep nothing from one episode to the next",
    "SeedGoesNowhere": r"the seed must matter.* although the environment draws from mine",
    "BornAtRandom": r"the seed must decide .* another environment",
    "SharedGenerator": r"environments must be independent",
    "NoSeed": r"reset must take seed=",
    "OldReset": r"reset must return \(observation, info\)",
    "FourValues": r"got 4 values at step 0; four are those of old Gym",
    "SixInAnotherOrder": r"truncated, value 4 of the 6 that step returns, must be True or False",
    "InfoIsAList": r"info, the last of the 5 values .* must be a dictionary, got list at step 0",
    "RewardTooLarge": r"reward must lie in reward_range, \[0.0, 1.0\], got 2.5 at step 0",
    "RewardIsNaN": r"reward must be finite and lie in reward_range, .* got nan at step \d+",
    "RewardIsAVector": r"reward must be a number, got shape \[2\] at step 0",
    "CostTooLarge": r"cost must lie in cost_range, \[0.0, 1.0\], got \d\.\d+ at step \d+",
    "CostIsInfinite": r"cost must be finite .* got inf at step 0",
    "CostIsNone": r"cost must be a number .* got None at step 0",
    "CostIsAMatrix": r"cost must be a number, got shape \[1, 1\] at step 0",
    "TwoCosts": r"cost must be a number, got shape \[2\] at step 0",
    "ObservationOfAnotherShape": r"observations must lie in observation_space.* of shape \[2\] after reset",
    "ObservationIsNaN": r"observations must lie in observation_space.* got array.*nan.* at step \d+",
    "ManyActions": r"action_space must be discrete, multi-discrete or a box",
    "Crashes": r"raised ZeroDivisionError: no time has passed",
    "Limited": r"must go on for 30 steps \(horizon=30\) or terminate, but was truncated after 10, at step 9",
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_each_broken_rule_is_named(name: str) -> None:
    with pytest.raises(sf.SurefootError, match=re.compile(BROKEN[name], re.DOTALL)):
        sf.check_env(getattr(strangers, name), 0.3, **DECLARED)


def test_a_wrapped_environment_that_takes_no_seed_is_named() -> None:
    with pytest.raises(sf.InvalidInput, match=r"reset must take seed=, as in Gymnasium"):
        sf.check_env(lambda theta: gymnasium.wrappers.TimeLimit(strangers.NoSeed(theta), 30), 0.3, **DECLARED)


def test_an_error_of_an_environment_that_takes_a_seed_is_its_own() -> None:
    class Breaks(Walk):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            raise TypeError("the seed of a plant must be a word")

    with pytest.raises(sf.InvalidInput, match=r"raised TypeError: the seed of a plant"):
        sf.check_env(Breaks, 0.3, **DECLARED)


def test_one_cost_for_two_budgets_is_named() -> None:
    with pytest.raises(sf.InvalidInput, match=r"cost must be an array \[2\], one for each budget, got shape \[\]"):
        sf.check_env(Walk, 0.3, **DECLARED | {"budget": [5.0, 1.0]})


def test_six_values_inside_a_wrapper_for_five_are_named_and_mended() -> None:
    def wrapped(theta: Any, convert: Callable[[Any], Any]) -> Any:
        return gymnasium.wrappers.TimeLimit(convert(strangers.SixValues(theta)), 30)

    with pytest.raises(sf.InvalidInput, match=r"put sf\.tasks\.cost_in_info\(env\) innermost"):
        sf.check_env(lambda theta: wrapped(theta, lambda env: env), 0.3, **DECLARED)
    sf.check_env(lambda theta: wrapped(theta, sf.tasks.cost_in_info), 0.3, **DECLARED)


def test_one_environment_without_set_task_is_named() -> None:
    once = Walk(np.array([0.3]))
    with pytest.raises(sf.InvalidInput, match="make_env must return a new environment each time"):
        sf.check_env(lambda theta: once, 0.3, **DECLARED)


def test_things_that_are_no_environments_are_named() -> None:
    with pytest.raises(sf.InvalidInput, match="got dict without reset, step, action_space, observation_space"):
        sf.check_env(lambda theta: {}, 0.3, **DECLARED)
    with pytest.raises(sf.InvalidInput, match="make_env must be a function"):
        sf.check_env("CartPole-v1", 0.3, **DECLARED)  # type: ignore[arg-type]


def test_a_running_normaliser_is_named() -> None:
    """Its averages go on from episode to episode: these are not independent."""
    with pytest.raises(sf.InvalidInput, match="keep nothing from one episode to the next"):
        sf.check_env(lambda theta: gymnasium.wrappers.NormalizeObservation(Walk(theta)), 0.3, **DECLARED)
