"""Episodes side by side: the same as one by one, under every rule by which lanes are reset."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from scipy import stats

import gym_strangers as strangers
import surefoot as sf
from gym_strangers import DECLARED, Walk
from surefoot.tasks.gym_tasks import RandomActions

MODES = list(AutoresetMode)


def side_by_side(kind: Any, mode: AutoresetMode) -> Any:
    return lambda theta, n: SyncVectorEnv([lambda: kind(theta)] * n, autoreset_mode=mode)


class Lines:
    """A NumPy environment of its own, with the bare methods: lanes fall after `ends` steps and then return nonsense."""

    def __init__(self, ends: list[int], cost: Any = None) -> None:
        self.ends, self.given = np.array(ends), cost

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return np.zeros((len(self.ends), 1)), {}

    def step(self, actions: Any) -> Any:
        self.t += 1
        alive = self.t <= self.ends
        reward, cost = np.where(alive, 1.0, np.nan), np.where(alive, 0.5, 1e9)
        ended = self.t >= self.ends
        info = {"cost": cost if self.given is None else self.given}
        return np.full((len(self.ends), 1), float(self.t)), reward, ended, ~alive, info


def run(make_env: Any, make_vector: Any, episodes: int = 12, seed: int = 0, **declared: Any) -> sf.Outcomes:
    tasks = sf.tasks.from_gym(make_env, sf.tasks.Uniform(0, 1), make_vector=make_vector, **DECLARED | declared)
    policy = RandomActions(make_env.action_space)
    found = tasks.task(0.6).episodes(policy, 30).run(episodes, np.random.default_rng(seed))
    assert isinstance(found, sf.Outcomes)
    return found


# ----------------------------------------------------------------------------------------------------- equal to the bit


@pytest.mark.parametrize("mode", [None, *MODES])
def test_observations_and_actions_of_several_parts_are_shown_as_one_array(mode: AutoresetMode | None) -> None:
    """In the order of their names, also where an episode has ended: there it is the last one before the reset."""

    class Ever(strangers.Parts):
        @property
        def ended(self) -> bool:
            return bool(abs(self.x) > 1.2)

    class Right:
        def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
            assert set(observation) == {"x", "left"}
            return np.ones((*np.shape(step), 2), dtype=np.int64)

    vector = None if mode is None else side_by_side(Ever, mode)
    tasks = sf.tasks.from_gym(Ever, sf.tasks.Uniform(0, 1), make_vector=vector, **DECLARED)
    seen = tasks.task(0.6).episodes(Right(), 30).run(12, np.random.default_rng(0), transitions=True).observed
    assert seen is not None
    assert seen.observations.shape[2:] == seen.actions.shape[2:] == (2,)
    for shown, steps in zip(seen.observations, seen.steps, strict=True):
        assert np.array_equal(shown[: steps + 1, 0], shown[: steps + 1, 1] < 0)
        assert (np.abs(shown[1:steps, 1]) <= 1.2).all()
        assert abs(shown[steps, 1]) > 1.2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("with_function", [False, True])
def test_every_mode_gives_the_sums_of_one_by_one(mode: AutoresetMode, with_function: bool) -> None:
    """Seeds decide about all but the actions, which are the same here: nothing is lost or added at an end."""

    class Fixed(Walk):
        def moved(self, action: Any) -> float:
            return 0.3

    cost = (lambda seen, action, then, info: np.abs(then[..., 0]) / 20) if with_function else None
    alone = run(Fixed, None, cost=cost, after_termination=(0.5, 0.25))
    together = run(Fixed, side_by_side(Fixed, mode), cost=cost, after_termination=(0.5, 0.25))
    np.testing.assert_allclose(together.reward, alone.reward, rtol=1e-12)
    np.testing.assert_allclose(together.cost, alone.cost, rtol=1e-12)
    assert len(set(alone.reward)) == len(alone)


@pytest.mark.parametrize("mode", MODES)
def test_several_costs_in_every_mode(mode: AutoresetMode) -> None:
    class Fixed(strangers.TwoCosts):
        def moved(self, action: Any) -> float:
            return 0.3

    alone = run(Fixed, None, budget=[5.0, 1.0])
    together = run(Fixed, side_by_side(Fixed, mode), budget=[5.0, 1.0])
    np.testing.assert_allclose(together.cost, alone.cost, rtol=1e-12)


def test_lanes_that_ended_are_not_counted_any_further() -> None:
    found = run(Walk, lambda theta, n: Lines([3, 30, 1, 40]), episodes=4)
    assert found.reward.tolist() == [3.0, 30.0, 1.0, 30.0]
    assert found.cost[:, 0].tolist() == [1.5, 15.0, 0.5, 15.0]
    paid = run(Walk, lambda theta, n: Lines([3, 30, 1, 40]), episodes=4, after_termination=(0.0, 1.0))
    assert paid.cost[:, 0].tolist() == [1.5 + 27, 15.0, 0.5 + 29, 15.0]


@pytest.mark.parametrize("mode", [None, *MODES])
@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_what_steps_paid_adds_up_to_the_sums(mode: AutoresetMode | None, discount: float) -> None:
    """One by one and side by side; the last step of a system holds what was declared of those that it then lacks."""
    make_vector = None if mode is None else side_by_side(strangers.TwoCosts, mode)
    declared = {**DECLARED, "budget": [5.0, 1.0], "discount": discount, "after_termination": (0.5, (0.25, 1.0))}
    tasks = sf.tasks.from_gym(strangers.TwoCosts, sf.tasks.Uniform(0, 1), make_vector=make_vector, **declared)
    policy = RandomActions(Walk.action_space)
    found = tasks.task(0.9).episodes(policy, 30).run(12, np.random.default_rng(3), transitions=True)
    shown: Any = found.watched()
    assert shown.paid.shape == (*shown.actions.shape[:2], 3)
    assert len(set(shown.steps.tolist())) > 2
    for k, length in enumerate(shown.steps.tolist()):
        paid, after = shown.paid[k, :length], shown.observations[k, 1 : length + 1, 0]
        np.testing.assert_allclose(discount ** np.arange(length) @ paid, found.sums[k], rtol=1e-12)
        np.testing.assert_allclose(paid[:-1, 0], 1 / (1 + after[:-1] ** 2), rtol=1e-12)
        np.testing.assert_allclose(paid[:-1, 2], np.abs(after[:-1]) / 20, rtol=1e-12)
        owed = sum(discount**t for t in range(1, 31 - length)) if abs(after[-1]) > 3 else 0.0
        assert paid[-1, 1] == pytest.approx(float(abs(after[-1]) > 1) + 0.25 * owed, rel=1e-12)


def test_more_episodes_than_lanes() -> None:
    sizes: list[int] = []

    def make_vector(theta: Any, n: int) -> Any:
        sizes.append(n)
        return Lines([5] * n)

    assert run(Walk, make_vector, episodes=10, lanes=4).reward.tolist() == [5.0] * 10
    assert sizes == [4, 4, 2]


# --------------------------------------------------------------------------------------------------- the same in law


def cart_pole(theta: Any, n: int | None = None) -> Any:
    env = gymnasium.make("CartPole-v1") if n is None else gymnasium.make_vec("CartPole-v1", num_envs=n)
    env.unwrapped.length = 0.5 + float(theta[0])
    env.unwrapped.polemass_length = env.unwrapped.masspole * env.unwrapped.length
    return env


def test_gymnasiums_vector_cart_pole_is_the_single_one_in_law() -> None:
    declared = {"budget": 5.0, "horizon": 60, "reward_range": (0, 1), "cost_range": (0, 1)}

    def cost(seen: Any, action: Any, then: Any, info: Any) -> Any:
        return np.minimum(np.abs(then[..., 0]), 1.0)

    found = []
    for make_vector in (None, cart_pole):
        tasks = sf.tasks.from_gym(cart_pole, sf.tasks.Uniform(0, 1), cost=cost, make_vector=make_vector, **declared)
        task = tasks.task(0.6)
        policy = RandomActions(gymnasium.spaces.Discrete(2))
        found.append(task.episodes(policy, 60).run(200, np.random.default_rng(1)))
    alone, together = found
    assert stats.ks_2samp(alone.reward, together.reward).pvalue > 1e-4
    assert stats.ks_2samp(alone.cost[:, 0], together.cost[:, 0]).pvalue > 1e-4
    assert np.ptp(together.reward) > 10
    sf.check_env(cart_pole, 0.6, cost=cost, make_vector=cart_pole, **declared)


@pytest.mark.forks
def test_processes_side_by_side() -> None:
    def make_vector(theta: Any, n: int) -> Any:
        return AsyncVectorEnv([lambda: strangers.Steady(theta)] * n, autoreset_mode=AutoresetMode.DISABLED)

    alone, together = (run(strangers.Steady, each, episodes=2) for each in (None, make_vector))
    assert together.reward.shape == alone.reward.shape == (2,)


# --------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("mode", MODES)
def test_a_cost_lost_at_the_end_is_found_in_every_mode(mode: AutoresetMode) -> None:
    """In SAME_STEP and NEXT_STEP the top level then holds a cost of 0 of a step that was none."""
    with pytest.raises(sf.InvalidInput, match="where the episode ended: the cost of its last step would be lost"):
        run(strangers.CostLostAtTheEnd, side_by_side(strangers.CostLostAtTheEnd, mode))
    with pytest.raises(sf.InvalidInput, match=r"is missing at step 0; "):
        run(strangers.CostFree, side_by_side(strangers.CostFree, mode))


def test_costs_that_gymnasium_would_cut_to_whole_numbers_are_refused() -> None:
    class Whole(Walk):
        def cost(self) -> Any:
            return 0 if abs(self.x) < 0.5 else 0.7  # an int in some lanes

    with pytest.raises(sf.InvalidInput, match=r"must be a float in every lane, got int64.* cut 0.7 to 0"):
        run(Whole, side_by_side(Whole, AutoresetMode.DISABLED))


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (np.array([0.5, 0.5, 0.5, 1.5]), r"cost must lie in cost_range.* got 1.5 at step 0"),
        (np.zeros((4, 2)), r"cost must be an array \[4, 1\], one for each budget, got shape \[4, 2\] at step 0"),
        (0.5, r"cost must be an array \[4, 1\]"),
        (np.array([0.5, np.nan, 0.5, 0.5]), "must be finite"),
    ],
)
def test_wrong_costs_stop_the_run(cost: Any, message: str) -> None:
    with pytest.raises(sf.InvalidInput, match=message):
        run(Walk, lambda theta, n: Lines([9] * n, cost), episodes=4)


def test_a_time_limit_in_a_lane_is_refused() -> None:
    with pytest.raises(sf.InvalidInput, match="truncated after 10, at step 9"):
        run(strangers.Limited, side_by_side(strangers.Limited, AutoresetMode.NEXT_STEP))


def test_wrong_numbers_of_lanes_and_actions_are_refused() -> None:
    with pytest.raises(sf.InvalidInput, match="make_vector must return 12 environments when asked for as many, got 11"):
        run(Walk, lambda theta, n: side_by_side(Walk, MODES[0])(theta, n - 1))
    tasks = sf.tasks.from_gym(Walk, sf.tasks.Uniform(0, 1), make_vector=lambda theta, n: Lines([9] * n), **DECLARED)

    class One(RandomActions):
        def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
            return 1

    with pytest.raises(sf.InvalidInput, match="must be a whole number for each of 4 episodes, got 1"):
        tasks.task(0.5).episodes(One(Walk.action_space), 30).run(4, np.random.default_rng(0))


def test_check_env_looks_at_the_lanes() -> None:
    class Blind(Lines):
        """All lanes are one and the same."""

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return np.full(super().reset()[0].shape, np.random.default_rng(seed).random()), {}

    class Unseeded(Lines):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.ends = np.random.default_rng().integers(1, 30, len(self.ends))
            return super().reset()

    with pytest.raises(sf.InvalidInput, match="lanes of make_vector must be independent"):
        sf.check_env(Walk, 0.5, make_vector=lambda theta, n: Blind([9] * n), **DECLARED)
    with pytest.raises(sf.InvalidInput, match="the seed must decide about episodes side by side"):
        sf.check_env(Walk, 0.5, make_vector=lambda theta, n: Unseeded([9] * n), **DECLARED)
    for mode in MODES:
        sf.check_env(Walk, 0.5, make_vector=side_by_side(Walk, mode), **DECLARED)
