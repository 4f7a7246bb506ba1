"""A family declared by its base and slopes is the affine family that it says it is; so are those that come along."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import surefoot as sf
from surefoot.arrays import Floats
from surefoot.bounds.affine import affine_cells
from surefoot.errors import InvalidInput
from surefoot.tasks import Independent, Uniform
from surefoot.tasks.affine_detection import affine_tables, agrees
from surefoot.tasks.affine_family import affine_family, check_rates, largest_change

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


def test_it_can_be_sent_to_a_worker_and_not_be_changed() -> None:
    family = walk()
    assert pickle.loads(pickle.dumps(family)).digest() == family.digest()
    assert family.affine is not None
    for table in family.affine:
        with pytest.raises(ValueError, match="read-only"):
            table[...] = 0
    with pytest.raises(InvalidInput, match=r"ahead and back must be probabilities that sum to at most 1, got \[0.6, "):
        family.task([0.6, 0.5])


# ----------------------------------------------------------------------------------------- the families that come along


class Known(NamedTuple):
    """How a family is made, other arguments of it, those for the safe policy only, and the distance between tasks
    whose parameters differ by [d]."""

    make: Callable[..., sf.tasks.TaskDistribution]
    other: dict[str, Any]
    safe: dict[str, Any] = {}  # noqa: RUF012
    gap: Callable[[Floats], float] = lambda change: abs(change[0])


def largest_of_sums(change: Floats) -> float:
    return float(max(*np.abs(change), abs(change.sum())))


KNOWN = {
    "gridworld": Known(
        sf.tasks.gridworld, {"kernel": "text", "std": 0.05}, {"safe_noise": 0.35}, lambda change: 0.75 * abs(change[0])
    ),
    "windy": Known(
        sf.tasks.windy_gridworld,
        {"slip_std": 0.03, "wind_std": 0.02},
        {"safe_slip": 0.3, "safe_wind": 0.25},
        largest_of_sums,
    ),
    "maintenance": Known(
        sf.tasks.maintenance, {"wear_std": 0.02, "scrap_std": 0.03}, {"safe_wear": 0.25}, largest_of_sums
    ),
    "factored": Known(sf.tasks.factored, {"most_failure": 0.1}),
    "media": Known(sf.tasks.media, {"low": 0.75, "high": 0.8}, gap=lambda change: 0.9 * abs(change[0])),
    "inventory": Known(sf.tasks.inventory, {"most_shift": 0.05}),
    "two-walls": Known(sf.tasks.two_walls, {"low": 0.1, "high": 0.12}, gap=lambda change: 0.75 * abs(change[0])),
}


@pytest.fixture(params=KNOWN)
def known(request: pytest.FixtureRequest) -> Known:
    return KNOWN[request.param]


def test_transitions_are_affine_and_coordinates_are_distances(known: Known) -> None:
    for family in (known.make(), known.make(**known.other)):
        assert family.affine is not None
        assert family.coordinates is not None
        base, slopes = family.affine
        np.testing.assert_allclose(slopes.sum(axis=3), 0, rtol=0, atol=1e-15)
        parameters = np.concatenate([corners(family.distribution.support), family.sample(3, np.random.default_rng(0))])
        tasks, points = [family.task(parameter) for parameter in parameters], family.coordinates(parameters)
        for task, parameter in zip(tasks, parameters, strict=True):
            np.testing.assert_allclose(
                task.transitions, base + np.tensordot(parameter, slopes, axes=1), rtol=0, atol=1e-15
            )
            np.testing.assert_allclose(task.transitions.sum(axis=2), 1, rtol=0, atol=1e-14)
            assert task.transitions.min() >= 0
        for k in range(1, len(parameters)):
            apart = sf.distance(tasks[k - 1], tasks[k])
            assert np.abs(points[k - 1] - points[k]).max() == pytest.approx(apart, abs=1e-14)
            assert apart == pytest.approx(known.gap(parameters[k - 1] - parameters[k]), abs=1e-14)


def corners(support: Floats) -> Floats:
    return np.stack(np.meshgrid(*support), axis=-1).reshape(-1, len(support))


@pytest.mark.parametrize("name", KNOWN)
def test_recipes_build_families_again_and_digests_see_what_tasks_depend_on(name: str) -> None:
    known = KNOWN[name]
    family = known.make(**known.other, **known.safe)
    assert family.recipe == {"family": name, **known.other, **known.safe}
    recipe = json.loads(json.dumps(dict(family.recipe)))
    assert known.make(**{key: value for key, value in recipe.items() if key != "family"}).digest() == family.digest()
    each = [known.make(), *(known.make(**{key: value}) for key, value in known.other.items())]
    assert len({one.digest() for one in each}) == len(each)
    assert known.make(**known.safe).digest() == known.make().digest()
    safe = family.safe_parameter
    assert (safe is None) == (not known.safe)
    assert safe is None or safe.tolist() == [*known.safe.values(), *([0.2] if name == "maintenance" else [])]


def test_tables_are_read_only(known: Known) -> None:
    for table in (*(known.make().affine or ()), known.make().example.transitions):
        with pytest.raises(ValueError, match="read-only"):
            table[0, 0, 0] = 1


@pytest.mark.parametrize("name", ["windy", "maintenance"])
def test_the_safe_policy_is_feasible_on_the_whole_box(name: str) -> None:
    """Bounds over boxes that fill the support, so that no task between grid points is left out."""
    family = KNOWN[name].make()
    cells = affine_cells(family, [sf.solve(family.task(family.safe_parameter)).policy], 400)
    assert (len(cells), len(cells.outside)) == (400, 0)
    assert (cells.lower[:, 0, 1:].min(axis=0) > 0).all()
    assert cells.uncovered == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("gridworld", {"kernel": "windy"}, "kernel must be 'published' or 'text', got 'windy'"),
        ("gridworld", {"kernel": ["text"]}, "kernel must be 'published' or 'text'"),
        ("gridworld", {"std": 0}, "std must be positive"),
        ("gridworld", {"std": np.inf}, "std must be finite"),
        ("gridworld", {"std": [0.03, 0.03]}, "std must be a number"),
        ("gridworld", {"safe_noise": [0.4]}, "safe_noise must be a number"),
        ("gridworld", {"safe_noise": "high"}, "safe_noise must be"),
        ("windy", {"slip_std": 0}, "std must be positive"),
        ("windy", {"wind_std": -0.1}, "std must be positive"),
        ("windy", {"safe_slip": -0.01}, "safe_slip and safe_wind must be probabilities"),
        ("windy", {"safe_slip": 0.6, "safe_wind": 0.5}, "safe_slip and safe_wind must be probabilities"),
        ("windy", {"safe_wind": np.nan}, "safe_slip and safe_wind must be probabilities"),
        ("maintenance", {"wear_std": 0}, "std must be positive"),
        ("maintenance", {"scrap_std": -0.1}, "std must be positive"),
        ("maintenance", {"safe_wear": 0.9}, "safe_wear and the most scrap must be"),
        ("maintenance", {"safe_wear": np.nan}, "safe_wear and the most scrap must be"),
        ("factored", {"most_failure": 0.0}, "most_failure must lie in"),
        ("media", {"low": 0.9, "high": 0.7}, "low and high must satisfy"),
        ("two-walls", {"low": -0.1, "high": 0.1}, "low and high must satisfy"),
        ("inventory", {"most_shift": 0.3}, "most_shift must lie in"),
    ],
)
def test_arguments_are_checked(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        KNOWN[name].make(**arguments)


@pytest.mark.parametrize(
    ("name", "parameter", "message"),
    [
        ("windy", [-0.01, 0.1], "slip and wind must be probabilities"),
        ("windy", [0.6, 0.5], "slip and wind must be probabilities"),
        ("windy", [np.nan, 0.1], "parameter.* must be finite"),
        ("maintenance", [0.1, -0.01], "wear and scrap must be probabilities"),
        ("maintenance", [0.1, 0.99], "wear and scrap must be probabilities"),
        ("factored", 1.5, "failure must be a probability, got 1.5"),
        ("media", -0.5, "drain must be a probability, got -0.5"),
        ("inventory", 0.4, "shift must lie in"),
        ("two-walls", 2.0, "noise must be a probability, got 2.0"),
    ],
)
def test_impossible_parameters_are_refused(name: str, parameter: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        KNOWN[name].make().task(parameter)
