"""Strangers' controllers as policies: whatever they are called by and whatever they return."""

from __future__ import annotations

import functools
import pickle
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import surefoot as sf
from surefoot.cmdp.controllers import Controller, as_policy
from surefoot.cmdp.external_policy import MOST_PROBES, ExternalPolicy, fingerprint_controller
from surefoot.cmdp.policy import EpisodeMixture, Policy
from surefoot.errors import InvalidInput
from surefoot.tabular.policy import TabularPolicy

OBSERVATIONS = np.random.default_rng(1).normal(size=(5, 3))
EXPECTED = (OBSERVATIONS[:, 0] > 0).astype(int)
START = np.zeros(5, int)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


class Tensor:
    """As those of PyTorch: no array, but it becomes one."""

    def __init__(self, value: Any) -> None:
        self.value = np.asarray(value)

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> Any:
        return self.value


class Rule:
    def __call__(self, observation: Any) -> int:
        return int(observation[0] > 0)

    def method(self, observation: Any, *, sharp: bool = True) -> Any:
        return np.int64(observation[0] > 0)


class Baselines3:
    """As a model of Stable-Baselines3: batches in, (actions, None) out; drawn from a generator of its own."""

    def __init__(self) -> None:
        self.hidden = np.random.default_rng()

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        likeliest = (observation[:, 0] > 0).astype(np.int64)
        return (likeliest if deterministic else self.hidden.integers(2, size=len(observation))), None


class Short:
    """As an actor of OmniSafe."""

    def predict(self, obs: Any, deterministic: bool = False) -> Tensor:
        return Tensor(np.float32(obs[:2]))


class Counting:
    """Recurrent, for batches: the action is the step, which it counts itself."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        count = np.zeros(len(observation), int) if state is None else np.where(episode_start, 0, state)
        return count, count + 1


class CountingOne:
    """The same for one observation at a time."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        count = 0 if state is None or episode_start[0] else state
        return np.array([count]), count + 1


def above(level: float, observation: Any) -> bool:
    return bool(observation[0] > level)


PLAIN = [
    lambda o: o[0] > 0,
    lambda o: int(o[0] > 0),
    lambda o: np.array(int(o[0] > 0)),
    lambda o: np.array([int(o[0] > 0)]),
    lambda o: [int(o[0] > 0)],
    lambda o: Tensor(int(o[0] > 0)),
    lambda o: Baselines3().predict(o[None], deterministic=True),
    functools.partial(above, 0.0),
    Rule(),
    Rule().method,
    functools.partial(Baselines3().predict, deterministic=True),
    sf.controller(Baselines3(), name="it", deterministic=True),
    sf.controller(lambda o: o[:, :1] > 0, name="it", vectorised=True),
]


@pytest.mark.parametrize("function", PLAIN)
def test_a_discrete_action_is_a_whole_number_however_it_is_returned(function: Any) -> None:
    policy = as_policy(function, "it")
    assert isinstance(policy, Policy)
    found = policy.act(OBSERVATIONS, START, rng())
    assert (found.dtype, found.tolist()) == (np.int64, EXPECTED.tolist())
    for k in range(5):
        one = policy.act(OBSERVATIONS[k], 0, rng())
        assert np.shape(one) == ()
        assert one == EXPECTED[k]


def test_actions_of_numbers_keep_their_shape() -> None:
    found = as_policy(Short(), "short").act(OBSERVATIONS, START, rng())
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, OBSERVATIONS[:, :2], rtol=1e-6)
    assert as_policy(lambda o: [o[0]], "one").act(OBSERVATIONS, START, rng()).shape == (5, 1)
    assert as_policy(lambda o: float(o[0]), "none").act(OBSERVATIONS, START, rng()).shape == (5,)
    assert as_policy(lambda o: [0, 1, 2], "several").act(OBSERVATIONS, START, rng()).shape == (5, 3)


def test_step_and_rng_are_given_by_name() -> None:
    def drawn(observation: Any, step: int, rng: np.random.Generator) -> float:
        return step + rng.random()

    def late(observation: Any, *, rng: np.random.Generator | None = None) -> float:
        assert rng is not None
        return rng.random()

    policy = as_policy(drawn, "drawn")
    np.testing.assert_array_equal(policy.act(OBSERVATIONS, np.arange(5), rng()), np.arange(5) + rng().random(5))
    np.testing.assert_array_equal(as_policy(late, "late").act(OBSERVATIONS, START, rng()), rng().random(5))


@pytest.mark.parametrize("make", [Counting, lambda: sf.controller(CountingOne(), name="it", vectorised=False)])
def test_what_is_remembered_is_that_of_each_episode(make: Any) -> None:
    policy = as_policy(make(), "it")
    for step in range(3):
        assert policy.act(OBSERVATIONS, np.full(5, step), rng()).tolist() == [step] * 5
    # two episodes begin anew in the midst of the others, as in vectorised environments
    assert policy.act(OBSERVATIONS, np.array([0, 3, 0, 3, 3]), rng()).tolist() == [0, 3, 0, 3, 3]
    assert policy.act(OBSERVATIONS, np.array([1, 4, 1, 4, 4]), rng()).tolist() == [1, 4, 1, 4, 4]
    with pytest.raises(InvalidInput, match=r"remembers 5 episode\(s\).*got 3"):
        policy.act(OBSERVATIONS[:3], np.array([2, 5, 2]), rng())
    for step in range(3):
        assert policy.act(OBSERVATIONS[0], step, rng()) == step


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=6))
def test_at_once_and_one_by_one_are_the_same_policy(begins: list[list[bool]]) -> None:
    both = [as_policy(Counting(), "many"), sf.controller(CountingOne(), name="one", vectorised=False)]
    step = np.zeros(3, int)
    for begin in [[True] * 3, *begins]:
        step = np.where(begin, 0, step)
        many, one = (policy.act(OBSERVATIONS[:3], step, rng()) for policy in both)
        assert many.tolist() == one.tolist() == step.tolist()
        step = step + 1


def test_policies_stay_as_they_are_and_mixtures_draw_once_per_episode() -> None:
    table = TabularPolicy(np.array([[0.5, 0.5], [1.0, 0.0]]))
    assert as_policy(table, "table") is table
    fixed = [TabularPolicy(np.eye(2)[[k, k]]) for k in range(2)]
    mixture = as_policy(EpisodeMixture(tuple(fixed), np.array([0.5, 0.5])), "mixture")
    drawn = rng()
    first = mixture.act(np.zeros(50, int), np.zeros(50, int), drawn)
    assert 0 < first.sum() < 50
    for step in range(1, 4):
        assert mixture.act(np.ones(50, int), np.full(50, step), drawn).tolist() == first.tolist()


def test_the_shape_of_an_observation_settles_what_is_one() -> None:
    image = sf.controller(lambda o: int(o.sum() > 0), name="image", observation_shape=(2, 3))
    assert np.shape(image.act(np.ones((2, 3)), 0, rng())) == ()
    assert image.act(np.ones((4, 2, 3)), 0, rng()).tolist() == [1] * 4
    with pytest.raises(InvalidInput, match=r"takes observations of shape \[2, 3\] or \['n', 2, 3\], got \[3, 2\]"):
        image.act(np.ones((3, 2)), 0, rng())
    state = sf.controller(lambda s: s % 2, name="state", observation_shape=())
    assert state.act(np.arange(4), 0, rng()).tolist() == [0, 1, 0, 1]
    assert state.act(3, 0, rng()) == 1


def test_a_controller_can_be_sent_to_another_process() -> None:
    policy = pickle.loads(pickle.dumps(as_policy(Rule(), "rule")))
    assert policy.act(OBSERVATIONS, START, rng()).tolist() == EXPECTED.tolist()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (3, r"must be f\(observation\), f\(observation, rng\) or .*predict.*got int"),
        (Rule, "must be an object, got the class Rule"),
        (lambda: 0, r"got one that takes \(nothing\)"),
        (lambda o, t: 0, r"got one that takes \(o, t\)"),
        (lambda *, o: 0, r"got one that takes \(o\)"),
        (lambda o: (1.0, 2.0), "must return its action as a number, an array or a list"),
        (lambda o: None, "must return an action, .* got None"),
        (lambda o: "left", "must return an action, .* got 'left'"),
        (lambda o: np.nan, "must return finite actions, got .*nan"),
        (lambda o: [[1], [1, 2]], "must return an action"),
        (lambda o: np.zeros(2 if o[0] > 0 else 3), "must return actions of one shape"),
        (sf.controller(lambda o: o[2], name="it", vectorised=True), "one action for each of 5 .*vectorised=False"),
    ],
)
def test_what_is_no_controller_is_refused(function: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        as_policy(function, "it").act(OBSERVATIONS, START, rng())
    assert "'it'" in str(caught.value)


def test_arguments_of_a_controller_are_checked() -> None:
    for name in ("", " it", "a\nb", "x" * 101, 3):
        with pytest.raises(InvalidInput, match="name must be a printable text"):
            sf.controller(Rule(), name=name)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"step must be one, or one of 5 each, got shape \[3\]"):
        as_policy(Rule(), "it").act(OBSERVATIONS, START[:3], rng())
    with pytest.raises(InvalidInput, match="deterministic is for controllers with predict"):
        sf.controller(Rule(), name="it", deterministic=True)
    with pytest.raises(InvalidInput, match=r"rng must be a numpy.random.Generator, got int"):
        as_policy(Rule(), "it").act(OBSERVATIONS, START, 0)  # type: ignore[arg-type]


def test_deterministic_is_recorded_as_it_will_be_asked_for() -> None:
    assert sf.controller(Baselines3(), name="it").deterministic is False
    assert sf.controller(Baselines3(), name="it", deterministic=True).deterministic is True
    assert sf.controller(functools.partial(Baselines3().predict, deterministic=True), name="it").deterministic is True


# ---------------------------------------------------------------------------------------------------------- recognised


def known(function: Any, **more: Any) -> ExternalPolicy:
    def simulate(watched: Policy) -> None:
        for step in range(40):
            watched.act(OBSERVATIONS + step, np.full(5, step), rng())

    return fingerprint_controller(sf.controller(function, name="it", **more), simulate)


def stored(policy: ExternalPolicy) -> ExternalPolicy:
    """As it comes back from a file: without the controller."""
    parts = policy.observations, policy.actions, policy.asked_likeliest, policy.given
    return ExternalPolicy(policy.name, policy.deterministic, *parts)


def test_a_controller_is_recognised_by_what_it_does() -> None:
    policy = known(lambda o: [2.5 * o[0], -o[1]])
    assert policy.actions.shape == (MOST_PROBES, 2)
    assert re.fullmatch("[0-9a-f]{64}", policy.fingerprint or "")
    again = stored(policy)
    assert again.fingerprint == policy.fingerprint
    rounded = again.with_controller(lambda o: np.float32([2.5 * o[0], -o[1]]))  # another library, another rounding
    np.testing.assert_allclose(rounded.act(OBSERVATIONS[0], 0, rng()), [2.5 * OBSERVATIONS[0, 0], -OBSERVATIONS[0, 1]])
    for other in (lambda o: [2.5 * o[0], -1.001 * o[1]], lambda o: [2.5 * o[0]], lambda o: 1):
        with pytest.raises(InvalidInput, match="'it' is another one than the policy set was made with"):
            again.with_controller(other)
    with pytest.raises(InvalidInput, match="controller 'it' is not here, only its name is"):
        again.act(OBSERVATIONS[0], 0, rng())


def test_one_that_draws_from_rng_is_recognised_by_its_draws() -> None:
    def drawn(observation: Any, rng: np.random.Generator) -> int:
        return int(rng.random() < 0.5)

    def rarer(observation: Any, rng: np.random.Generator) -> int:
        return int(rng.random() < 0.3)

    policy = stored(known(drawn))
    policy.with_controller(drawn)
    with pytest.raises(InvalidInput, match="is another one"):
        policy.with_controller(rarer)


def test_one_that_draws_by_itself_is_recognised_by_its_likeliest_actions_or_by_name_only() -> None:
    policy = known(Baselines3())
    assert policy.asked_likeliest
    assert not policy.deterministic
    assert not stored(policy).with_controller(Baselines3()).controller.deterministic  # type: ignore[union-attr]
    with pytest.raises(InvalidInput, match="was evaluated with deterministic=False, got one with True"):
        stored(policy).with_controller(sf.controller(Baselines3(), name="it", deterministic=True))
    hidden = np.random.default_rng()
    unknown = known(lambda o: hidden.integers(10**6))
    assert unknown.fingerprint is None
    assert stored(unknown).with_controller(lambda o: 1).act(OBSERVATIONS[0], 0, rng()) == 1


def test_the_owners_fingerprint_wins() -> None:
    policy = stored(known(Rule(), fingerprint="sha256:1234"))
    assert policy.fingerprint == "sha256:1234"
    assert not policy.to_arrays()
    with pytest.raises(InvalidInput, match="must have the fingerprint 'sha256:1234', got None"):
        policy.with_controller(Rule())
    policy.with_controller(sf.controller(lambda o: 1, name="other", fingerprint="sha256:1234"))


def test_a_function_of_one_observation_that_is_said_to_take_many_is_found_out() -> None:
    with pytest.raises(InvalidInput, match="must do the same with n observations as with each of them"):
        known(lambda o: np.full(len(o), o[0, 0]), vectorised=True)
    assert isinstance(known(lambda o: o[:, 0], vectorised=True).controller, Controller)
