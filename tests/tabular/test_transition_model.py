"""Transition classes: nothing is lost by grouping, and what is grouped is alike."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from random_tasks import random_arrays, random_distributions, seeds
from surefoot.arrays import Floats
from surefoot.tabular.affine import affine_of_arrays
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.transition_model import TransitionModel, affine_model, ball_model
from surefoot.tabular.transition_model import transition_classes as sparse_classes
from surefoot.tasks.gridworld_tasks import gridworld, slip_direction


def regrouped(classes: np.ndarray, features: Floats) -> Floats:
    """[S, A, S, K] one entry after the other."""
    whole = np.zeros((*classes.shape, features.shape[1]))
    for index in np.ndindex(classes.shape):
        if classes[index] >= 0:
            whole[index] = features[classes[index]]
    return whole


def transition_classes(features: Floats) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
    """Of whole arrays [S, A, S, K]: classes [S, A, S] with -1 for nothing, row types, and where each class is."""
    place = np.nonzero(features.any(axis=-1))
    found, row_type, first = sparse_classes(features[place], place[0] * features.shape[1] + place[1])
    classes = np.full(features.shape[:3], -1)
    classes[place] = found
    return classes, row_type, tuple(axis[first] for axis in place)


def model_of(affine: tuple[Floats, Floats], example: TabularCMDP, low: Floats, high: Floats) -> TransitionModel:
    return affine_model(affine_of_arrays(affine, example), example.payments, example.start, low, high)


def coarse(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Few different values and many zeros, so that rows and entries coincide."""
    return rng.choice([0.0, 0.0, 0.25, 0.5, -0.5], size=shape)


@given(seeds, st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_classes_reproduce_the_arrays(seed: int, states: int, actions: int, depth: int) -> None:
    features = coarse(np.random.default_rng(seed), (states, actions, states, depth))
    if not features.any():
        return
    classes, row_type, place = transition_classes(features)
    values = features[place]
    assert np.array_equal(regrouped(classes, values), features)
    assert classes.max() + 1 == len(row_type) == len(values)
    assert set(np.unique(classes)) - {-1} == set(range(len(row_type)))
    assert np.array_equal(classes < 0, ~features.any(axis=-1))


@given(seeds)
def test_rows_of_one_type_are_alike_and_of_others_are_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features = coarse(rng, (4, 3, 4, 2))
    features[0, 0, 0, 0] = 1.0
    classes, row_type, _ = transition_classes(features)
    contents: dict[int, Counter[tuple[float, ...]]] = {}
    for s, a in np.ndindex(4, 3):
        found = [k for k in classes[s, a] if k >= 0]
        if not found:
            continue
        kinds = {int(row_type[k]) for k in found}
        assert len(kinds) == 1, "a row has one type"
        content = Counter(tuple(entry) for entry in features[s, a] if entry.any())
        assert contents.setdefault(kinds.pop(), content) == content
        per_class: dict[int, set[tuple[float, ...]]] = {}
        for k, entry in zip(classes[s, a], features[s, a], strict=True):
            if k >= 0:
                per_class.setdefault(int(k), set()).add(tuple(entry))
        assert all(len(entries) == 1 for entries in per_class.values())
        assert len(per_class) == len(content), "equal entries of a row share a class"
    distinct = [frozenset(content.items()) for content in contents.values()]
    assert len(set(distinct)) == len(distinct), "equal rows share a type"


def test_entries_that_differ_beyond_the_twelfth_digit_are_one_class() -> None:
    features = np.array([[[[0.3], [0.7]]], [[[0.3 + 1e-14], [0.7 - 1e-14]]]])
    classes, row_type, place = transition_classes(features)
    values = features[place]
    assert classes.tolist() == [[[0, 1]], [[0, 1]]]
    assert row_type.tolist() == [0, 0]
    assert values[:, 0].tolist() == [0.3, 0.7]


@pytest.mark.parametrize("unit", [1e12, 1.0, 1e-9])
def test_classes_do_not_depend_on_the_units_of_the_parameter(unit: float) -> None:
    """Two rows with the same base and opposite slopes, the parameter in units from tiny to huge."""
    base = np.array([[[0.5, 0.5]], [[0.5, 0.5]]])
    slope = np.array([[[[0.3, -0.3]], [[-0.3, 0.3]]]]) / unit
    tables = {"reward": [[0.0], [1.0]], "cost": [[0.0], [1.0]], "budget": 9.0, "start": [0.5, 0.5], "discount": 0.8}
    example = TabularCMDP(base, **tables)  # type: ignore[arg-type]
    low, high = unit * np.linspace(0, 0.9, 10)[:, None], unit * np.linspace(0.1, 1, 10)[:, None]
    model = model_of((base, slope), example, low, high)
    assert model.class_table.tolist() == [[[0, 1]], [[1, 0]]]
    middle = base + ((low + high) / 2)[:, :, None, None] * slope
    found = np.stack([regrouped(model.class_table, row[:, None])[..., 0] for row in model.probability])
    np.testing.assert_allclose(found, middle, rtol=0, atol=1e-15)


def test_rows_of_different_small_probabilities_are_different_classes() -> None:
    """Probabilities around 1e-10 that differ by a tenth are not one and the same, small as the difference is."""
    features = np.array([[[[1e-10], [1 - 1e-10]]], [[[1.1e-10], [1 - 1.1e-10]]]])
    classes, _, _ = transition_classes(features)
    assert len(np.unique(classes)) == 4


def test_the_gridworld_has_few_classes() -> None:
    """Published kernel: the goal, and rows with 2, 3 or 4 neighbours, with the intended one among them or not."""
    intended, blown = slip_direction("published")
    features = np.stack([intended, blown], axis=-1)
    classes, row_type, place = transition_classes(features)
    values = features[place]
    assert len(values) < 20
    assert len(set(row_type.tolist())) < 10
    assert np.abs(regrouped(classes, values) - features).max() < 1e-15


def random_affine(rng: np.random.Generator, parameters: int) -> tuple[tuple[Floats, Floats], TabularCMDP]:
    arrays = random_arrays(rng, states=3, actions=2)
    others = random_distributions(rng, (parameters, 3, 2, 3), 0.6)
    base = arrays["transitions"]
    return (base, others - base), TabularCMDP(**arrays)


@given(seeds, st.integers(1, 3))
def test_affine_model_is_the_family(seed: int, parameters: int) -> None:
    rng = np.random.default_rng(seed)
    affine, example = random_affine(rng, parameters)
    low = rng.uniform(0, 0.3, (4, parameters)) / parameters
    high = low + rng.uniform(0, 0.2, (4, parameters)) / parameters
    model = model_of(affine, example, low, high)
    for j in range(4):
        theta = rng.uniform(low[j], high[j])
        kernel = affine[0] + sum(t * slope for t, slope in zip(theta, affine[1], strict=True))
        task = model.task(theta, example.units)
        np.testing.assert_allclose(task.transitions, kernel, rtol=0, atol=1e-15)
        assert np.array_equal(task.reward, example.reward)
        assert np.array_equal(task.cost, example.cost)
        assert np.array_equal(task.start, example.start)
        middle = affine[0] + np.tensordot((low[j] + high[j]) / 2, affine[1], axes=1)
        found = regrouped(model.class_table, model.probability[j][:, None])[..., 0]
        np.testing.assert_allclose(found, middle, rtol=0, atol=1e-15)
        distances = [
            np.abs(affine[0] + np.tensordot(corner, affine[1], axes=1) - middle).sum(axis=2).max() / 2
            for corner in np.array(list(product(*zip(low[j], high[j], strict=True))))
        ]
        assert max(distances) <= model.radius[j] + 1e-15
        if parameters == 1:
            assert model.radius[j] == pytest.approx(max(distances), abs=1e-15)


@given(seeds, st.integers(1, 4))
def test_ball_model_is_the_tasks(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = random_arrays(rng, states=3, actions=2)
    tasks = [TabularCMDP(**{**arrays, "transitions": random_distributions(rng, (3, 2, 3), 0.5)}) for _ in range(count)]
    radius = rng.random(count)
    model = ball_model(tasks, radius)
    assert model is not None
    assert model.affine is None
    assert np.array_equal(model.radius, radius)
    for j, task in enumerate(tasks):
        found = regrouped(model.class_table, model.probability[j][:, None])[..., 0]
        np.testing.assert_allclose(found, task.transitions, rtol=0, atol=1e-12)


def test_tasks_that_do_not_share_a_start_have_no_model() -> None:
    arrays = random_arrays(np.random.default_rng(0), states=3, actions=2, support=1.0)
    other = {**arrays, "start": arrays["start"][::-1].copy()}
    tasks = [TabularCMDP(**arrays), TabularCMDP(**other)]
    assert ball_model(tasks, np.zeros(2)) is None
    assert ball_model(tasks[:1] * 2, np.zeros(2)) is not None


@pytest.mark.parametrize("name", ["reward", "cost"])
def test_tasks_that_pay_differently_have_a_model_of_transitions_alone(name: str) -> None:
    arrays = random_arrays(np.random.default_rng(0), states=3, actions=2, support=1.0)
    tasks = [TabularCMDP(**arrays), TabularCMDP(**{**arrays, name: arrays[name] + 0.1})]
    model = ball_model(tasks, np.zeros(2))
    assert model is not None
    assert model.reward is model.cost is model.payments is model.n_constraints is None
    shared = ball_model(tasks[:1] * 2, np.zeros(2))
    assert shared is not None
    assert shared.n_constraints == 1


def test_radius_of_the_gridworld_is_its_distance() -> None:
    """Half a cell of width 0.01 in noise is 0.75 · 0.005 in the paper's distance."""
    tasks = gridworld()
    assert tasks.affine is not None
    model = model_of(tasks.affine, tasks.task([0.3]), np.array([[0.3]]), np.array([[0.31]]))
    assert model.radius.tolist() == pytest.approx([0.75 * 0.005])
