from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from random_tasks import random_arrays, seeds
from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks import Finite, Independent, Normal, TaskDistribution, Uniform, family, from_arrays, gridworld


def lazy_walk(parameter: Floats, **changes: Any) -> TabularCMDP:
    """Two states; θ = (chance to move, reward of moving)."""
    move, reward = parameter
    arguments: dict[str, Any] = {
        "transitions": [[[1 - move, move], [1, 0]], [[move, 1 - move], [0, 1]]],
        "reward": [[reward, 0.0], [0.0, 0.0]],
        "cost": [0.0, 1.0],
        "budget": 3.0,
        "start": [1.0, 0.0],
        "discount": 0.9,
        "reward_range": (0.0, 2.0),
        "cost_range": (0.0, 1.0),
    }
    return TabularCMDP(**{**arguments, **changes})


BOX = Uniform([0.0, 0.0], [1.0, 2.0])


def test_family_samples_and_builds() -> None:
    tasks = family(lazy_walk, BOX, safe_parameter=[0.1, 1.0], recipe={"name": "lazy", "size": (1, 2)})
    assert isinstance(tasks, TaskDistribution)
    assert tasks.dimension == 2
    sample = tasks.sample(10, np.random.default_rng(0))
    np.testing.assert_array_equal(sample, BOX.sample(10, np.random.default_rng(0)))
    assert tasks.task(sample[3]).digest() == lazy_walk(sample[3]).digest()
    assert tasks.task([0.5, 1]).digest() == lazy_walk(np.array([0.5, 1.0])).digest()
    assert tasks.units.same_as(lazy_walk(sample[0]).units)
    assert tasks.safe_parameter is not None
    np.testing.assert_array_equal(tasks.safe_parameter, [0.1, 1.0])
    assert tasks.recipe == {"name": "lazy", "size": [1, 2]}  # as it would come back from a file
    assert (tasks.coordinates, tasks.affine) == (None, None)


def test_tasks_outside_the_support_can_be_built() -> None:
    tasks = family(lazy_walk, Uniform([0.2, 0.0], [0.4, 1.0]))
    assert tasks.task([0.9, 1.5]).transitions[0, 0, 1] == 0.9


def test_a_number_will_do_for_a_single_parameter() -> None:
    tasks = family(lambda theta: lazy_walk(np.array([theta[0], 1.0])), Uniform(0, 1))
    assert tasks.task(0.25).digest() == tasks.task([0.25]).digest()


@pytest.mark.parametrize("parameter", [0.5, [0.5], [[0.5, 1.0]], [0.5, 1.0, 1.0], [], [np.nan, 1.0], ["a", "b"]])
def test_task_refuses_bad_parameters(parameter: Any) -> None:
    with pytest.raises(InvalidInput, match="parameter"):
        family(lazy_walk, BOX).task(parameter)


def test_all_tasks_must_be_of_one_kind() -> None:
    def changing_range(parameter: Floats) -> TabularCMDP:
        return lazy_walk(parameter, reward_range=None)

    def changing_states(parameter: Floats) -> TabularCMDP:
        return lazy_walk(parameter) if parameter[0] < 0.5 else TabularCMDP(np.ones((1, 1, 1)), [0], [0], 1, [1], 0.9)

    with pytest.raises(InvalidInput, match=r"task of parameter \[0.5, 1.5\] must share .*declare the ranges"):
        family(changing_range, BOX).task([0.5, 1.5])
    with pytest.raises(InvalidInput, match="declare the ranges"):
        family(changing_range, BOX).digest()
    with pytest.raises(InvalidInput, match=r"1 constraint.s., 2 states, 2 actions, got 1 constraint.s., 1 states"):
        family(changing_states, BOX).task([0.7, 1.0])
    with pytest.raises(InvalidInput, match=r"what build returns for .* must be a task, .* got tuple without units"):
        family(lambda theta: (theta,), BOX).task([0.5, 0.5])  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"build": 3}, "build must be a function"),
        ({"distribution": "uniform"}, "distribution must be a parameter distribution"),
        ({"coordinates": 0.75}, "coordinates must be a function"),
        ({"safe_parameter": [0.1]}, r"safe_parameter must have shape \[2\], got \[1\]"),
        ({"safe_parameter": [0.1, np.inf]}, r"safe_parameter\[1\] must be finite"),
        ({"recipe": "gridworld"}, "recipe must be a mapping"),
        ({"recipe": {"x": np.zeros(2)}}, r"recipe\.x must be plain JSON data"),
        ({"recipe": {"x": np.nan}}, r"recipe\.x must be plain JSON data"),
        ({"affine": np.zeros((2, 2, 2))}, "affine must be a pair of arrays"),
        ({"affine": (np.zeros((2, 2, 2)), np.zeros((1, 2, 2, 2)))}, r"\[S, A, S\] and \[2, S, A, S\]"),
    ],
)
def test_family_refuses(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        family(**{"build": lazy_walk, "distribution": BOX, **arguments})


def test_family_keeps_its_own_copies() -> None:
    safe, recipe = np.array([0.1, 1.0]), {"sizes": [1]}
    tasks = TaskDistribution(lazy_walk, BOX, safe_parameter=safe, recipe=recipe)
    safe[0], recipe["sizes"][0] = 9, 9
    assert tasks.safe_parameter is not None
    np.testing.assert_array_equal(tasks.safe_parameter, [0.1, 1.0])
    assert tasks.recipe == {"sizes": [1]}


# ------------------------------------------------------------------------------------------------------------ digest


def test_digest_depends_on_the_distribution_and_on_the_tasks_only() -> None:
    digest = family(lazy_walk, BOX).digest()
    assert len(digest) == 64
    same = family(lambda theta: lazy_walk(theta), Uniform([0, 0], [1, 2]), safe_parameter=[0.3, 1], recipe={"a": 1})
    assert same.digest() == digest
    others = [
        family(lazy_walk, Uniform([0, 0], [1, 1.99])),
        family(lazy_walk, Independent([Uniform(0, 1), Uniform(0, 2)])),
        family(lazy_walk, Normal([0.5, 1], std=1, low=[0, 0], high=[1, 2])),
        family(lazy_walk, Normal([0.5, 1], std=1, low=[0, 0], high=[1, 2], how="truncated")),
        family(lambda theta: lazy_walk(theta, budget=3.1), BOX),
        family(lambda theta: lazy_walk(np.array([theta[0] ** 2, theta[1]])), BOX),
        family(lambda theta: lazy_walk(np.array([theta[0] ** 3, theta[1]])), BOX),
        family(lambda theta: lazy_walk(np.array([theta[0], min(theta[1], 1.99)])), BOX),
    ]
    assert len({digest, *(other.digest() for other in others)}) == 1 + len(others)


@pytest.mark.parametrize("told", ["task of friction 0.3", 17, None])
def test_digests_that_are_none_are_refused(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TabularCMDP, "digest", lambda self: told)
    with pytest.raises(InvalidInput, match=r"digest\(\) of a task must return hexadecimal digits.*got " + repr(told)):
        family(lazy_walk, BOX).digest()


# ------------------------------------------------------------------------------------------------------- from_arrays


@given(seeds)
def test_from_arrays_returns_the_given_tasks(seed: int) -> None:
    arrays = {**random_arrays(np.random.default_rng(seed)), "reward_range": (-99, 99), "cost_range": (-99, 99)}
    cmdps = [TabularCMDP(**{**arrays, "start": np.eye(4)[k]}) for k in range(4)]
    tasks = from_arrays(cmdps, [0.1, 0.2, 0.3, 0.4])
    assert tasks.dimension == 1
    assert tasks.coordinates is None
    assert all(tasks.task([k]) is cmdp for k, cmdp in enumerate(cmdps))
    np.testing.assert_array_equal(np.unique(tasks.sample(400, np.random.default_rng(0))), [0, 1, 2, 3])
    assert [tasks.distribution.mass(k, k) for k in range(4)] == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=1e-15)
    digests = {
        from_arrays(cmdps).digest(),
        tasks.digest(),
        from_arrays(cmdps[::-1], [0.1, 0.2, 0.3, 0.4]).digest(),
        from_arrays([*cmdps[:3], cmdps[0]], [0.1, 0.2, 0.3, 0.4]).digest(),
    }
    assert len(digests) == 4
    assert from_arrays(tuple(cmdps), [0.1, 0.2, 0.3, 0.4]).digest() == tasks.digest()


@pytest.mark.parametrize("parameter", [-1, 2, 0.5])
def test_from_arrays_refuses_what_is_no_index(parameter: float) -> None:
    tasks = from_arrays([lazy_walk(np.array([0.5, 1])), lazy_walk(np.array([0.6, 1]))])
    with pytest.raises(InvalidInput, match=r"index of a task, 0..1, got"):
        tasks.task(parameter)


def test_from_arrays_refuses() -> None:
    first = lazy_walk(np.array([0.5, 1]))
    with pytest.raises(InvalidInput, match="at least one task"):
        from_arrays([])
    with pytest.raises(InvalidInput, match="cmdps must be a sequence"):
        from_arrays(first)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"cmdps\[1\] must be a task, .* got str without units"):
        from_arrays([first, "second"])  # type: ignore[list-item]
    with pytest.raises(InvalidInput, match=r"cmdps\[1\] must share the family's discount, horizon, budget"):
        from_arrays([first, lazy_walk(np.array([0.5, 1]), budget=2)])
    with pytest.raises(InvalidInput, match=r"cmdps\[1\] must have the family's spaces"):
        from_arrays([first, TabularCMDP(np.ones((1, 1, 1)), [0], [0], 1, [1], 0.9)])
    with pytest.raises(InvalidInput, match="weights"):
        from_arrays([first], [0.5])


# ------------------------------------------------------------------------------------------------------------- names


def test_families_survive_pickling() -> None:
    """Worker processes receive them that way."""
    for tasks in (gridworld(), from_arrays([lazy_walk(np.array([0.5, 1]))]), family(lazy_walk, Finite([[0.1, 1.0]]))):
        assert pickle.loads(pickle.dumps(tasks)).digest() == tasks.digest()
