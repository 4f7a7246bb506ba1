"""Bounds over boxes of tasks with a horizon, against values at many parameters that are summed over every path, and
against the terms of the series as they are defined."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from random_tasks import random_distributions, seeds
from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.lab.analysis.certified_regret import optimum_bounds
from surefoot.tabular import timed_expansion
from surefoot.tabular.affine import AffineTables, affine_of_arrays
from surefoot.tabular.expansion import box_spreads, box_values
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.timed_expansion import expand_steps


@dataclass
class Family:
    """P_θ = (1 - Σθ)·Q₀ + Σ θ_k·Q_k, for θ in the simplex; the expected signals may change with θ as well."""

    kernels: Floats  # [1+d, S, A, S]
    signal_slope: Floats  # [d, 1+m, S, A]
    example: TabularCMDP
    policy: TabularPolicy | TimedPolicy

    @property
    def tables(self) -> AffineTables:
        shared = affine_of_arrays((self.kernels[0], self.kernels[1:] - self.kernels[0]), self.example)
        return AffineTables(*(getattr(shared, name) for name in list(vars(shared))[:5]), self.signal_slope)

    def values(self, parameter: Floats) -> Floats:
        """[H, 1+m, S] of reward and costs from every step, by plain loops over steps, states and actions."""
        transitions = (1 - parameter.sum()) * self.kernels[0] + np.tensordot(parameter, self.kernels[1:], 1)
        signals = self.example.signals + np.tensordot(parameter, self.signal_slope, 1)
        steps, (kinds, states, actions) = self.example.units.episode_length, signals.shape
        tables = self.policy.probabilities.reshape(-1, states, actions)
        found = np.zeros((steps + 1, kinds, states))
        for t in range(steps - 1, -1, -1):
            for k, s, a in product(range(kinds), range(states), range(actions)):
                onwards = signals[k, s, a] + self.example.discount * transitions[s, a] @ found[t + 1, k]
                found[t, k, s] += tables[min(t, len(tables) - 1)][s, a] * onwards
        return found[:-1]

    def exact(self, values: Floats) -> Floats:
        """[1+m, 1+S] reward and margins."""
        first = values[0]
        every = np.concatenate([first @ self.example.start[:, None], first], axis=1)
        return np.concatenate([every[:1], self.example.budget[:, None] - every[1:]])


def random_family(seed: int, parameters: int, horizon: int, discount: float, timed: int) -> Family:
    """`timed` tables of the policy, which may be fewer or more than there are steps."""
    rng = np.random.default_rng(seed)
    states, actions, m = int(rng.integers(2, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 3))
    kernels = random_distributions(rng, (1 + parameters, states, actions, states), 0.7)
    example = TabularCMDP(
        kernels[0],
        rng.normal(size=(states, actions)),
        rng.normal(size=(m, states, actions)),
        rng.normal(size=m),
        random_distributions(rng, (states,), 0.7),
        discount,
        horizon=horizon,
    )
    changes = rng.normal(size=(parameters, 1 + m, states, actions)) * (rng.random() < 0.5)
    probabilities = random_distributions(rng, (timed, states, actions))
    policy = TimedPolicy(probabilities) if timed > 1 else TabularPolicy(probabilities[0])
    return Family(kernels, changes, example, policy)


def random_boxes(rng: np.random.Generator, parameters: int, boxes: int, width: float = 0.1) -> tuple[Floats, Floats]:
    centre = rng.uniform(0.1, 0.9, (boxes, parameters)) / parameters
    half = np.minimum(rng.uniform(0.2, 1.0, centre.shape) * width, np.minimum(centre, 1 / parameters - centre))
    return centre - half, centre + half


def points_in(rng: np.random.Generator, low: Floats, high: Floats, count: int) -> Floats:
    corners = np.array(list(product(*zip(low, high, strict=True))))
    return np.concatenate([corners, rng.uniform(low, high, (count, len(low)))])


@pytest.mark.parametrize("dense", [True, False])
@given(seeds, st.integers(1, 2), st.integers(1, 6), st.sampled_from([1.0, 0.8]), st.integers(1, 5))
def test_exact_values_lie_inside(
    dense: bool, seed: int, parameters: int, horizon: int, discount: float, timed: int
) -> None:
    """Boxes as wide as the simplex allows are among them: none is too wide."""
    family, rng = random_family(seed, parameters, horizon, discount, timed), np.random.default_rng(seed)
    low, high = random_boxes(rng, parameters, 3, width=float(rng.choice([0.02, 0.1, 1.0])))
    with pytest.MonkeyPatch.context() as patch:
        if not dense:
            patch.setattr(timed_expansion, "DENSE_STATES", 0)
            patch.setattr(timed_expansion, "AT_ONCE", 1)  # a box at a time
        lower, upper = box_values(family.tables, family.example, family.policy, low, high)
        spread = box_spreads(family.tables, family.example, family.policy, low, high)
    assert np.isfinite(lower).all()
    for j in range(3):
        for parameter in points_in(rng, low[j], high[j], 6):
            values = family.values(parameter)
            exact = family.exact(values)
            assert (lower[j] <= exact).all()
            assert (exact <= upper[j]).all()
            assert (np.ptp(values, axis=2).max(axis=0) <= spread[j]).all()


@given(seeds, st.integers(1, 2), st.integers(2, 5))
def test_the_terms_are_those_of_the_series(seed: int, parameters: int, horizon: int) -> None:
    """On pairs of step and state, where R is the inverse of a matrix with ones on its diagonal."""
    family = random_family(seed, parameters, horizon, 0.9, timed=horizon)
    rng, example, tables = np.random.default_rng(seed), family.example, family.tables
    low, high = random_boxes(rng, parameters, 1)
    found = expand_steps(tables, example, family.policy.probabilities, low, high, np.arange(example.n_states))
    centre, half, n = (low + high)[0] / 2, (high - low)[0] / 2, example.n_states

    def unrolled(kernel: Floats) -> Floats:
        whole = np.zeros((horizon * n, horizon * n))
        for t in range(horizon - 1):
            chain = np.einsum("sa,sat->st", family.policy.probabilities[t], kernel)
            whole[t * n : (t + 1) * n, (t + 1) * n : (t + 2) * n] = chain
        return whole

    def paid(signals: Floats) -> Floats:
        return np.concatenate([np.einsum("ksa,sa->sk", signals, table) for table in family.policy.probabilities])

    slopes = [unrolled(kernel - family.kernels[0]) for kernel in family.kernels[1:]]
    chain = unrolled(family.kernels[0]) + sum(c * slope for c, slope in zip(centre, slopes, strict=True))
    inverse = np.linalg.inv(np.eye(horizon * n) - 0.9 * chain)
    value = inverse @ paid(tables.signals(centre))
    first = [inverse @ (0.9 * g @ value + paid(s)) for g, s in zip(slopes, tables.signal_slope, strict=True)]
    second = sum(
        half[k] * half[j] * np.abs(0.9 * inverse @ slopes[j] @ first[k])
        for k, j in product(range(parameters), repeat=2)
    )
    spilling = 0.9 * inverse @ sum(h * np.abs(slope) for h, slope in zip(half, slopes, strict=True))
    all_orders = np.linalg.inv(np.eye(horizon * n) - spilling) @ second
    radius = sum(h * np.abs(term) for h, term in zip(half, first, strict=True)) + all_orders
    np.testing.assert_allclose(found.middle[0, :, 1:], value[:n].T, atol=1e-12)
    np.testing.assert_allclose(found.radius[0, :, 1:], radius[:n].T, atol=1e-12)


def test_narrow_boxes_have_bounds_of_the_second_order() -> None:
    """What the bounds leave beside the true range falls with the square of the width."""
    family, rng = random_family(3, 1, 12, 1.0, 12), np.random.default_rng(0)
    beside = []
    for half in (0.02, 0.01):
        low, high = np.array([[0.5 - half]]), np.array([[0.5 + half]])
        lower, upper = box_values(family.tables, family.example, family.policy, low, high)
        exact = np.stack([family.exact(family.values(each)) for each in points_in(rng, low[0], high[0], 60)])
        beside.append(np.max(exact.min(axis=0) - lower[0] + upper[0] - exact.max(axis=0)))
    assert 0 < beside[1] < 0.3 * beside[0]


@given(seeds, st.integers(1, 2), st.integers(1, 4))
def test_no_task_of_a_box_has_a_larger_optimum(seed: int, parameters: int, horizon: int) -> None:
    """Theorem 10 with a horizon."""
    family, rng = random_family(seed, parameters, horizon, 1.0, 1), np.random.default_rng(seed)
    low, high = random_boxes(rng, parameters, 2)
    budget = np.full(family.example.n_constraints, 0.1)

    def task(parameter: Floats) -> TabularCMDP:
        transitions = (1 - parameter.sum()) * family.kernels[0] + np.tensordot(parameter, family.kernels[1:], 1)
        reward, cost = family.example.reward, np.abs(family.example.cost)
        cost[:, :, 0] = 0.0  # one action is free, so that every task has a feasible policy
        return TabularCMDP(transitions, reward, cost, budget, family.example.start, 1.0, horizon=horizon)

    centres = [task((a + b) / 2) for a, b in zip(low, high, strict=True)]
    tables = affine_of_arrays((family.kernels[0], family.kernels[1:] - family.kernels[0]), centres[0])
    bound = optimum_bounds(tables, centres, low, high)
    for j in range(2):
        for parameter in points_in(rng, low[j], high[j], 4):
            assert task(parameter).optimum() <= bound[j] + 1e-9
        tight = optimum_bounds(tables, centres[j : j + 1], (low + high)[j : j + 1] / 2, (low + high)[j : j + 1] / 2)
        assert tight[0] == pytest.approx(centres[j].optimum(), rel=1e-6, abs=1e-6)


def test_without_a_horizon_policies_must_not_look_at_the_clock() -> None:
    family = random_family(1, 1, 3, 0.8, 3)
    endless = TabularCMDP(
        family.kernels[0], family.example.reward, family.example.cost, family.example.budget, family.example.start, 0.8
    )
    with pytest.raises(InvalidInput, match="policy must not look at the clock"):
        box_values(family.tables, endless, family.policy, np.zeros((1, 1)), np.ones((1, 1)))
