"""A family declared by its base and slopes is the affine family that it says it is."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from surefoot.errors import InvalidInput
from surefoot.tasks import Independent, Uniform
from surefoot.tasks.affine_detection import affine_tables, agrees
from surefoot.tasks.affine_family import affine_family, check_rates, largest_change, rates_and_sum

BASE = np.stack([np.eye(3)] * 2, axis=1)  # [3, 2, 3]: every action stays
AHEAD, BACK = (np.stack([np.roll(np.eye(3), k, axis=1) - np.eye(3)] * 2, axis=1) for k in (1, -1))
AHEAD[:, 1], BACK[:, 0] = 0.0, 0.0  # the first action may move ahead, the second one back
RATES = Independent([Uniform(0.1, 0.4), Uniform(0.2, 0.5)])


def walk(**changed: Any) -> sf.tasks.TaskDistribution:
    tables = {"reward": [[0.0, 0.0], [1.0, 1.0], [0.5, 0.5]], "cost": [[0.0, 1.0]] * 3, "budget": 2.0}
    given = {**tables, "start": [1.0, 0.0, 0.0], "discount": 0.8, "recipe": {}, **changed}
    return affine_family(BASE, [AHEAD, BACK], RATES, check=partial(check_rates, "ahead and back"), **given)


def test_transitions_are_the_base_plus_the_slopes_times_the_parameter() -> None:
    for parameter in RATES.sample(20, np.random.default_rng(0)):
        task = walk().task(parameter)
        np.testing.assert_allclose(
            task.transitions, BASE + parameter[0] * AHEAD + parameter[1] * BACK, rtol=0, atol=1e-15
        )
        assert task.discount == 0.8


@pytest.mark.parametrize("layers", [None, 4])
def test_what_is_declared_affine_is_what_tasks_are(layers: int | None) -> None:
    family = walk() if layers is None else walk(layers=layers, discount=None)
    tables = affine_tables(family)
    assert tables is not None
    for parameter in RATES.sample(20, np.random.default_rng(1)):
        assert agrees(tables, family.task(parameter), family.example, parameter)
    if layers is not None:
        assert family.example.n_states == 3 * layers + 1


def test_coordinates_of_one_parameter_are_distances() -> None:
    family = affine_family(
        BASE,
        [0.5 * AHEAD],
        Uniform(0.0, 1.0),
        check=partial(check_rates, "ahead"),
        recipe={},
        reward=np.zeros((3, 2)),
        cost=np.ones((3, 2)),
        budget=1.0,
        start=[1.0, 0.0, 0.0],
        discount=0.5,
    )
    assert largest_change(0.5 * AHEAD) == 0.5
    assert family.coordinates is not None
    one, other = (family.task(value) for value in (0.25, 0.75))
    gap = np.abs(np.diff(family.coordinates(np.array([[0.25], [0.75]])), axis=0)).max()
    assert gap == pytest.approx(sf.distance(one, other))
    with pytest.raises(InvalidInput, match=r"ahead must be a probability, got 1\.5"):
        family.task(1.5)


def test_two_rates_and_their_sum() -> None:
    np.testing.assert_array_equal(rates_and_sum(np.array([[0.25, 0.5]])), [[0.25, 0.5, 0.75]])


def test_it_can_be_sent_to_a_worker_and_not_be_changed() -> None:
    family = walk()
    assert pickle.loads(pickle.dumps(family)).digest() == family.digest()
    assert family.affine is not None
    for table in family.affine:
        with pytest.raises(ValueError, match="read-only"):
            table[...] = 0
    with pytest.raises(InvalidInput, match=r"ahead and back must be probabilities that sum to at most 1, got \[0.6, "):
        family.task([0.6, 0.5])
