"""Box bounds of affine families, against exact values at many parameters inside the boxes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from random_tasks import random_distributions, random_policy, seeds
from surefoot.arrays import Floats
from surefoot.tabular import expansion
from surefoot.tabular.affine import AffineTables, affine_of_arrays
from surefoot.tabular.expansion import CHUNK, box_values, reward_and_margin
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy


@dataclass
class Family:
    """P_θ = (1 - Σθ)·Q₀ + Σ θ_k·Q_k: a mixture of kernels, valid for θ in the simplex. Signals may vary too."""

    affine: tuple[Floats, Floats]
    example: TabularCMDP
    policy: TabularPolicy
    signal_slope: Floats | float = 0.0  # [d, 1+m, S, A]

    def exact(self, parameter: Floats) -> Floats:
        """[1+m, 1+S] reward and margins from the start and from every state, by one dense solve per signal."""
        task, probabilities = self.example, self.policy.probabilities
        transitions = self.affine[0].copy()
        for theta, slope in zip(parameter, self.affine[1], strict=True):
            transitions += theta * slope
        chain = sum(probabilities[:, [a]] * transitions[:, a] for a in range(task.n_actions))
        rows = []
        changes = np.broadcast_to(self.signal_slope, (len(parameter), 1 + len(task.cost), *task.reward.shape))
        for k, table in enumerate([task.reward, *task.cost]):
            for theta, change in zip(parameter, changes, strict=True):
                table = table + theta * change[k]
            values = np.linalg.solve(np.eye(len(chain)) - task.discount * chain, (probabilities * table).sum(axis=1))
            values = np.array([task.start @ values, *values])
            rows.append(values if k == 0 else task.budget[k - 1] - values)
        return np.stack(rows)

    def bounds(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        return box_values(self.tables, self.example, self.policy, low, high)

    @property
    def tables(self) -> AffineTables:
        shared = affine_of_arrays(self.affine, self.example)
        return replace(shared, signal_slope=np.broadcast_to(self.signal_slope, shared.signal_slope.shape))

    def norm(self, half: Floats) -> float:
        """ρ of a box with these half-widths, from the definition."""
        reach = 0.0
        for h, slope in zip(half, self.affine[1], strict=True):
            chain = np.einsum("sa,sat->st", self.policy.probabilities, slope)
            reach += h * max(np.abs(row).sum() for row in chain)
        return self.example.discount / (1 - self.example.discount) * reach


def random_family(rng: np.random.Generator, parameters: int, discount: float = 0.8, constraints: int = 1) -> Family:
    states, actions = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    kernels = random_distributions(rng, (1 + parameters, states, actions, states), 0.7)
    example = TabularCMDP(
        kernels[0],
        rng.normal(size=(states, actions)),
        rng.normal(size=(constraints, states, actions)),
        rng.normal(size=constraints),
        random_distributions(rng, (states,), 0.7),
        discount,
    )
    changes = rng.normal(size=(parameters, 1 + constraints, states, actions)) if rng.random() < 0.5 else 0.0
    return Family((kernels[0], kernels[1:] - kernels[0]), example, random_policy(rng, example), changes)


def random_boxes(rng: np.random.Generator, family: Family, boxes: int, reach: float) -> tuple[Floats, Floats]:
    """Boxes in the simplex with ρ at most `reach`."""
    parameters = len(family.affine[1])
    centre = rng.uniform(0.1, 0.9, (boxes, parameters)) / parameters
    half = rng.uniform(0.2, 1.0, (boxes, parameters)) * 0.1 / parameters
    half *= [[min(1.0, reach / max(family.norm(h), 1e-12))] for h in half]
    return centre - half, centre + half


def points_in(rng: np.random.Generator, low: Floats, high: Floats, count: int) -> Floats:
    """Corners and random points of a box."""
    corners = np.array(list(product(*zip(low, high, strict=True))))
    return np.concatenate([corners, rng.uniform(low, high, (count, len(low)))])


@pytest.fixture(params=["dense", "sparse"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of expanding, whatever the number of states."""
    if request.param == "sparse":
        monkeypatch.setattr(expansion, "DENSE_STATES", 0)


@pytest.mark.usefixtures("way")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seeds, st.integers(1, 3), st.sampled_from([0.3, 0.8, 0.95]), st.integers(1, 2))
def test_exact_values_lie_inside_the_bounds(seed: int, parameters: int, discount: float, constraints: int) -> None:
    rng = np.random.default_rng(seed)
    family = random_family(rng, parameters, discount, constraints)
    low, high = random_boxes(rng, family, 3, reach=0.9)
    lower, upper = family.bounds(low, high)
    assert lower.shape == upper.shape == (3, 1 + constraints, 1 + family.example.n_states)
    for j in range(3):
        for parameter in points_in(rng, low[j], high[j], 12):
            exact = family.exact(parameter)
            assert (lower[j] <= exact).all()
            assert (exact <= upper[j]).all()


def derivatives(family: Family, centre: Floats, step: float = 1e-5) -> Floats:
    """[d, 1+m, 1+S] by central differences."""
    moves = step * np.eye(len(centre))
    return np.stack([(family.exact(centre + move) - family.exact(centre - move)) / (2 * step) for move in moves])


@pytest.mark.usefixtures("way")
@given(seeds, st.integers(1, 3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_bounds_shrink_quadratically_to_the_linear_range(seed: int, parameters: int) -> None:
    """What is added to Σ h_k |∂V/∂θ_k| falls at least by a factor of 4 when the box is halved, and never below 0."""
    rng = np.random.default_rng(seed)
    family = random_family(rng, parameters)
    centre = np.full(parameters, 0.5 / parameters)
    half = rng.uniform(0.5, 1.0, parameters) * 0.02 / parameters
    half *= min(1.0, 0.1 / max(family.norm(half), 1e-12))
    slopes = np.abs(derivatives(family, centre))
    added = []
    for size in (1.0, 0.5):
        lower, upper = family.bounds((centre - size * half)[None], (centre + size * half)[None])
        linear = np.einsum("d,dks->ks", size * half, slopes)
        np.testing.assert_allclose((lower[0] + upper[0]) / 2, family.exact(centre), rtol=0, atol=1e-9)
        added.append((upper[0] - lower[0]) / 2 - linear)
    assert (np.array(added) > -1e-8).all()
    curved = added[0] > 1e-6  # elsewhere only rounding is added
    np.testing.assert_array_less(added[1][curved] / added[0][curved], 0.26)


def contained(family: Family, low: Floats, high: Floats, lower: Floats, upper: Floats) -> bool:
    """Whether the corners of a box keep the given bounds."""
    exact = [family.exact(corner) for corner in points_in(np.random.default_rng(0), low, high, 0)]
    return all((lower <= values).all() and (values <= upper).all() for values in exact)


def test_bounds_without_the_second_order_are_caught_on_a_coarse_box() -> None:
    """The check above has teeth: the linear range alone misses corners of coarse boxes in every family."""
    caught = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        family = random_family(rng, 2)
        low, high = random_boxes(rng, family, 1, reach=0.9)
        lower, upper = family.bounds(low, high)
        assert contained(family, low[0], high[0], lower[0], upper[0])
        centre, half = (low[0] + high[0]) / 2, (high[0] - low[0]) / 2
        linear = np.einsum("d,dks->ks", half, np.abs(derivatives(family, centre)))
        middle = family.exact(centre)
        caught += not contained(family, low[0], high[0], middle - linear - 1e-9, middle + linear + 1e-9)
    assert caught >= 9


def test_without_the_tail_a_coarse_box_is_not_covered_for_some_family() -> None:
    """A drift that only gains speed: all orders have one sign, so two of them are not enough."""
    stay, go = np.eye(2)[:, None, :], np.array([[[0.0, 1.0]], [[0.0, 1.0]]])
    example = TabularCMDP(stay, [[0.0], [1.0]], [[0.0], [0.0]], 1.0, [1.0, 0.0], 0.9)
    family = Family((stay, (go - stay)[None]), example, TabularPolicy(np.ones((2, 1))))
    centre, half = np.array([0.06]), np.array([0.05])
    lower, _ = family.bounds((centre - half)[None], (centre + half)[None])
    slope = 0.9 * (go - stay)[:, 0]
    resolvent = np.linalg.inv(np.eye(2) - 0.9 * (stay + 0.06 * (go - stay))[:, 0])
    value = resolvent @ [0.0, 1.0]
    first = resolvent @ slope @ value
    second = resolvent @ slope @ first
    two_orders = value[0] - half[0] * abs(first[0]) - half[0] ** 2 * abs(second[0])
    exact = family.exact(centre - half)[0, 0]
    assert family.norm(half) < 1
    assert lower[0, 0, 0] <= exact < two_orders


@pytest.mark.parametrize("discount", [0.5, 0.9, 0.9999])
@pytest.mark.parametrize("size", [1, 2, expansion.SMALL_MATRIX, expansion.SMALL_MATRIX + 1, 49, 100])
def test_the_inverse_is_one(size: int, discount: float) -> None:
    """Chains that hardly move are the hardest: their diagonals are smallest."""
    rng = np.random.default_rng(size)
    moving = rng.dirichlet(np.full(size, 0.1), size=(5, size))
    for stay in (0.0, 0.999):
        matrix = np.eye(size) - discount * (stay * np.eye(size) + (1 - stay) * moving)
        found = expansion.inverse(matrix)
        np.testing.assert_allclose(found, np.linalg.inv(matrix), rtol=0, atol=1e-11 / (1 - discount))
        np.testing.assert_allclose(found[2:3], expansion.inverse(matrix[2:3]), rtol=0, atol=0)


def test_boxes_do_not_depend_on_their_company() -> None:
    """More boxes than one chunk give the bounds of each alone."""
    rng = np.random.default_rng(4)
    family = random_family(rng, 2)
    low, high = random_boxes(rng, family, CHUNK + 7, reach=0.5)
    lower, upper = family.bounds(low, high)
    for j in (0, CHUNK - 1, CHUNK, CHUNK + 6):
        alone = family.bounds(low[[j]], high[[j]])
        np.testing.assert_allclose(lower[j], alone[0][0], rtol=1e-12)
        np.testing.assert_allclose(upper[j], alone[1][0], rtol=1e-12)


@pytest.mark.usefixtures("way")
@given(seeds, st.integers(1, 3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_is_said_of_boxes_that_are_too_wide(seed: int, parameters: int) -> None:
    """ρ from its definition, with the inverse at the centre: γR·Σ_k h_k |G_k|·1."""
    rng = np.random.default_rng(seed)
    family = random_family(rng, parameters, discount=0.95)
    probabilities, centre = family.policy.probabilities, np.full(parameters, 0.5 / parameters)
    slopes = [np.einsum("sa,sat->st", probabilities, slope) for slope in family.affine[1]]
    kernel = np.einsum("sa,sat->st", probabilities, family.affine[0]) + sum(0.5 / parameters * each for each in slopes)
    direction = rng.uniform(0.1, 1.0, parameters)
    outflow = sum(h * np.abs(slope).sum(axis=1) for h, slope in zip(direction, slopes, strict=True))
    norm = float((0.95 * np.linalg.inv(np.eye(len(kernel)) - 0.95 * kernel) @ outflow).max())
    if norm < 1e-6:  # the policy never meets a row that changes
        return
    for reach, known in ((1.0 + 1e-9, False), (1.0 - 1e-6, True)):
        half = direction * reach / norm
        lower, upper = family.bounds((centre - half)[None], (centre + half)[None])
        assert np.isfinite(lower).all() == np.isfinite(upper).all() == known
        assert known or (np.isneginf(lower).all() and np.isposinf(upper).all())


@given(seeds, st.floats(-9, 9))
def test_a_series_bounds_each_of_its_boxes_in_all_units(seed: int, decades: float) -> None:
    """Hundreds of boxes, few series: every box keeps its own exact values in bounds hardly wider than for it alone."""
    rng = np.random.default_rng(seed)
    family, unit = random_family(rng, 1), 10.0**decades
    tables = replace(family.tables, slope=family.tables.slope / unit, signal_slope=family.tables.signal_slope / unit)
    edges = np.linspace(0.0, 0.9, 301)[:, None] * unit
    states = np.arange(family.example.n_states)
    arguments = tables, family.example, family.policy.probabilities
    middle, radius, reach, _ = expansion.expand_series(*arguments, edges[:-1], edges[1:], states)
    assert (reach < 1).all()
    lower, upper = reward_and_margin(middle - radius, middle + radius, family.example.units)
    for j in rng.integers(300, size=10):
        for parameter in rng.uniform(edges[j], edges[j + 1], (3, 1)) / unit:
            exact = family.exact(parameter)
            assert (lower[j] <= exact + 1e-10).all()
            assert (exact <= upper[j] + 1e-10).all()
    one = box_values(tables, family.example, family.policy, edges[:-1], edges[1:])
    width = one[1] - one[0]
    assert (upper - lower <= 1.05 * width + 0.01 * width.max(axis=(0, 2), keepdims=True) + 1e-7).all()


def test_a_single_task_has_its_own_values_up_to_rounding() -> None:
    family = random_family(np.random.default_rng(1), 2)
    point = np.array([[0.2, 0.3]])
    lower, upper = family.bounds(point, point)
    exact = family.exact(point[0])
    assert (upper - lower < 1e-8).all()
    assert (lower[0] < exact).all()
    assert (exact < upper[0]).all()


def test_costs_become_margins_with_their_bounds_exchanged() -> None:
    task = TabularCMDP([[[1.0]]], [[2.0]], [[[1.0]], [[3.0]]], [4.0, 5.0], [1.0], 0.5)
    lower, upper = np.array([[[1.0], [2.0], [3.0]]]), np.array([[[1.5], [2.5], [3.5]]])
    low, high = reward_and_margin(lower, upper, task.units)
    assert low[0, :, 0].tolist() == [1.0, 4.0 - 2.5, 5.0 - 3.5]
    assert high[0, :, 0].tolist() == [1.5, 4.0 - 2.0, 5.0 - 3.0]
