"""The distance between tasks, and what it promises about values (the paper's Lemma "smooth")."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from random_tasks import (
    Arrays,
    as_sparse,
    nearby,
    random_arrays,
    random_distributions,
    random_policy,
    random_sparse_cmdp,
    seeds,
    task_arrays,
)
from surefoot import theory
from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.tabular.affine import affine_through
from surefoot.tabular.distance import affine_distance, batch_distance, distance, numbers
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy

steps = st.sampled_from([0.0, 1e-6, 0.01, 0.3, 1.0])


def brute_force(a: TabularCMDP, b: TabularCMDP) -> float:
    """The definition, entry by entry, on tables scaled by hand."""

    def scaled(cmdp: TabularCMDP, s: int, x: int) -> list[float]:
        low, high = cmdp.units.reward_range
        entries = [(cmdp.reward[s, x] - low) / (high - low or 1)]
        for i in range(cmdp.n_constraints):
            even = (1 - cmdp.discount) * cmdp.budget[i]
            low, high = cmdp.units.cost_range[i]
            scale = max(high - low, abs(even - low), abs(high - even)) or 1
            entries.append((even - cmdp.cost[i, s, x]) / scale)
        return entries

    worst = sum(abs(p - q) for p, q in zip(a.start, b.start, strict=True)) / 2
    first, second = a.rows.toarray(), b.rows.toarray()
    for s in range(a.n_states):
        for x in range(a.n_actions):
            worst = max(worst, *(abs(p - q) for p, q in zip(scaled(a, s, x), scaled(b, s, x), strict=True)))
            row = s * a.n_actions + x
            worst = max(worst, sum(abs(p - q) for p, q in zip(first[row], second[row], strict=True)) / 2)
    return float(worst)


@given(task=task_arrays(), size=steps, common_start=st.booleans())
def test_against_loops_for_dense_and_sparse(task: Any, size: float, common_start: bool) -> None:
    arrays, rng = task
    other = nearby(rng, arrays, size, common_start)
    dense = TabularCMDP(**arrays), TabularCMDP(**other)
    sparse = TabularCMDP(**as_sparse(arrays)), TabularCMDP(**as_sparse(other))
    expected = brute_force(*dense)
    for a in (dense[0], sparse[0]):
        for b in (dense[1], sparse[1]):
            assert distance(a, b) == pytest.approx(expected, rel=1e-12, abs=1e-15)


@given(task=task_arrays(), first=steps, second=steps)
def test_is_a_metric(task: Any, first: float, second: float) -> None:
    arrays, rng = task
    a, b, c = (
        TabularCMDP(**each)
        for each in (arrays, nearby(rng, arrays, first, common_start=False), nearby(rng, arrays, second))
    )
    assert distance(a, a) == 0
    assert distance(a, TabularCMDP(**as_sparse(arrays))) == 0
    assert distance(a, b) == distance(b, a)
    assert distance(a, c) <= distance(a, b) + distance(b, c) + 1e-15
    assert 0 <= distance(a, b) <= 2


@pytest.mark.parametrize("part", ["reward", "cost", "start", "transitions"])
def test_every_part_counts_by_itself(part: str) -> None:
    """Half a range, half a range, and two disjoint distributions blended half and half: all are 1/2 apart."""
    transitions = np.zeros((3, 2, 3))
    transitions[..., 0] = 1
    start = np.array([0, 1.0, 0])
    table = np.zeros((3, 2))
    arrays: Arrays = {"transitions": transitions, "reward": table, "cost": table, "budget": 15.0, "start": start}
    arrays |= {"discount": 0.9, "reward_range": (-4, 4), "cost_range": (0, 6)}
    changed = arrays[part].copy()
    if part in ("reward", "cost"):
        changed[1, 0] = {"reward": 4, "cost": 3}[part]
    else:
        index = (2, 1) if part == "transitions" else ()
        changed[index] = changed[index] / 2 + np.array([0, 0, 0.5])
    a, b = TabularCMDP(**arrays), TabularCMDP(**{**arrays, part: changed})
    assert distance(a, b) == pytest.approx(0.5, rel=1e-14)
    c = TabularCMDP(**{**as_sparse({**arrays, part: changed})})
    assert distance(a, c) == pytest.approx(0.5, rel=1e-14)


def test_budgets_count_through_the_constraint() -> None:
    arrays = {**random_arrays(np.random.default_rng(0)), "cost_range": (-10, 40)}
    a, b = (TabularCMDP(**{**arrays, "budget": budget}) for budget in (30.0, 40.0))
    assert distance(a, b) == pytest.approx(0.1 * 10 / 50, rel=1e-12)  # (1-γ)·10 on a scale of 50


def test_scale_of_the_user_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    arrays = random_arrays(rng)
    other = nearby(rng, arrays, 0.2, common_start=False)

    def rescaled(task: Arrays) -> TabularCMDP:
        return TabularCMDP(
            **{**task, "reward": 3 * task["reward"] - 8, "cost": 7 * task["cost"], "budget": 7 * task["budget"]}
        )

    plain = distance(TabularCMDP(**arrays), TabularCMDP(**other))
    assert distance(rescaled(arrays), rescaled(other)) == pytest.approx(plain, rel=1e-12)


def test_large_sparse_tasks() -> None:
    a, b = (random_sparse_cmdp(np.random.default_rng(k), 600) for k in (0, 1))
    assert distance(a, b) == pytest.approx(brute_force(a, b), rel=1e-12)


def test_tasks_that_cannot_be_compared() -> None:
    def task(**sizes: Any) -> TabularCMDP:
        return TabularCMDP(**random_arrays(np.random.default_rng(0), **sizes))

    for other in (task(states=5), task(actions=4), task(constraints=2)):
        with pytest.raises(InvalidInput, match=r"equal constraints, states and actions, got \(1, 4, 3\) and"):
            distance(task(), other)
    with pytest.raises(InvalidInput, match=r"share one discount, got 0\.9 and 0\.8"):
        distance(task(), task(discount=0.8))


# ---------------------------------------------------------------------------------------------------- Lemma "smooth"


def unit_values(cmdp: TabularCMDP, policy: TabularPolicy) -> Floats:
    """[1+m] the paper's V_r and V_c."""
    values = evaluate(cmdp, policy)
    reward = np.atleast_1d(cmdp.units.unit_reward_value(values.reward))
    return np.concatenate([reward, cmdp.units.unit_margin(values.margin)])


def any_start_constant(discount: float) -> float:
    """(3-γ)/(1-γ)²: what L has to be once the start distribution may differ too."""
    return (3 - discount) / (1 - discount) ** 2


@given(task=task_arrays(min_states=2), size=steps, common_start=st.booleans(), sparse=st.booleans())
def test_nearby_tasks_have_nearby_values(task: Any, size: float, common_start: bool, sparse: bool) -> None:
    arrays, rng = task
    other = nearby(rng, arrays, size, common_start)
    layout = as_sparse if sparse else dict
    a, b = TabularCMDP(**layout(arrays)), TabularCMDP(**layout(other))
    policy = random_policy(rng, a)
    gap = np.abs(unit_values(a, policy) - unit_values(b, policy)).max()
    g, rounding = a.discount, 1e-11 / (1 - a.discount)
    assert gap <= any_start_constant(g) * distance(a, b) + rounding
    # `Units` scales c to an interval of length 1 at most, where half of the terms 2γ/(1-γ)² and 2/(1-γ) suffices.
    assert gap <= (2 - g) / (1 - g) ** 2 * distance(a, b) + rounding
    if common_start:
        assert gap <= theory.lipschitz_constant(g) * distance(a, b) + rounding
        assert gap <= 1 / (1 - g) ** 2 * distance(a, b) + rounding


def drifting_pair(eps: float, common_start: bool, discount: float = 0.9) -> tuple[TabularCMDP, TabularCMDP]:
    """Two states with c = ±1; the second task is worse by eps in c, in the start and in the dynamics, all at once."""
    pair = []
    for shift in (0.0, eps):
        moved = 0.0 if common_start else shift
        transitions = np.array([[[1 - shift, shift]], [[0.0, 1.0]]])
        c = np.array([1 - shift, -1 + eps - shift])
        pair.append(TabularCMDP(transitions, [0, 0], -c, 0, [1 - moved, moved], discount, None, (-1, 1)))
    return pair[0], pair[1]


@pytest.mark.parametrize("common_start", [True, False])
def test_the_paper_s_constant_needs_a_common_start(common_start: bool) -> None:
    """With c in [-1, 1], as the paper has it, L = 190 is exceeded by 1.10 once the start moves too; 210 never is."""
    eps, discount = 1e-4, 0.9
    policy = TabularPolicy(np.ones((2, 1)))
    a, b = drifting_pair(eps, common_start)
    gap = abs(evaluate(a, policy).margin[0] - evaluate(b, policy).margin[0])  # budget 0: the margin is V_c for c itself
    d = max(np.abs(a.cost - b.cost).max(), np.abs(a.start - b.start).sum() / 2, eps)
    assert d == pytest.approx(eps, rel=1e-9)
    ratio = gap / (theory.lipschitz_constant(discount) * d)
    assert ratio == pytest.approx(1.0 if common_start else 210 / 190, abs=5e-3)
    assert gap <= any_start_constant(discount) * d
    if common_start:
        assert gap <= theory.lipschitz_constant(discount) * d
    else:
        assert ratio > 1.09


def test_units_keep_the_drifting_pair_within_the_paper_s_constant() -> None:
    """The same pair in this library's units: c spans 1, not 2, so 5 [c] + 10 [start] + 90 [dynamics] = 105 < 190."""
    eps, discount = 1e-4, 0.9
    policy = TabularPolicy(np.ones((2, 1)))
    a, b = drifting_pair(eps, common_start=False)
    gap = np.abs(unit_values(a, policy) - unit_values(b, policy)).max()
    assert distance(a, b) == pytest.approx(eps, rel=1e-9)  # start and dynamics; c moves by eps/2 only
    assert gap / eps == pytest.approx(105, rel=5e-3)
    assert gap <= theory.lipschitz_constant(discount) * eps


# -------------------------------------------------------------------------------------------------- many at once


@given(seeds, st.booleans())
def test_batches_have_the_distances_of_their_pairs(seed: int, sparse: bool) -> None:
    rng = np.random.default_rng(seed)
    ranges = {"reward_range": (-5.0, 15.0), "cost_range": (-2.0, 15.0)}
    first = random_arrays(rng, constraints=2)
    every = [first, *(nearby(rng, first, size, common_start=False) for size in (0.0, 1e-6, 0.02, 0.3, 1.0))]
    tasks = [TabularCMDP(**(as_sparse(each) if sparse and k % 2 else each), **ranges) for k, each in enumerate(every)]
    compared = [numbers(tasks[0])]
    compared += [numbers(task, compared[:1]) for task in tasks[1:]]
    expected = [[brute_force(a, b) for b in tasks] for a in tasks[:3]]
    np.testing.assert_allclose(batch_distance(compared[:3], compared), expected, rtol=0, atol=1e-13)


@given(seeds, st.integers(1, 3), st.sampled_from([1e-6, 1.0, 1e9]))
def test_affine_families_have_a_closed_form(seed: int, parameters: int, unit: float) -> None:
    """Against the definition, on tasks built one by one; signals vary in some, and rows in few directions or many."""
    rng = np.random.default_rng(seed)
    kernels = random_distributions(rng, (1 + parameters, 3, 2, 3), 0.5)
    signals = rng.random((1 + parameters, 2, 3, 2))
    if rng.random() < 0.5:
        signals[1:] = signals[0]

    def build(theta: Floats) -> TabularCMDP:
        shares = np.append(1 - theta.sum() / unit, theta / unit)
        reward, cost = np.tensordot(shares, signals, axes=1)
        ranges = {"reward_range": (0.0, 1.0), "cost_range": (0.0, 1.0)}
        return TabularCMDP(np.tensordot(shares, kernels, axes=1), reward, cost, 5.0, [1.0, 0.0, 0.0], 0.9, **ranges)

    points = rng.uniform(0.0, unit / parameters, (6, parameters))
    scale = np.full(parameters, unit)
    corners = np.vstack([np.zeros(parameters), np.eye(parameters) * unit])
    affine = affine_through([build(corner) for corner in corners], corners, scale)
    closed_form = affine_distance(affine, build(points[0]).units)
    expected = np.array([[brute_force(build(a), build(b)) for b in points] for a in points])
    np.testing.assert_allclose(closed_form.between(points, points), expected, rtol=0, atol=1e-12)
    for epsilon in np.quantile(expected, [0.3, 0.6, 0.9]) + 1e-9:
        assert (closed_form.within(points, points, float(epsilon)) == (expected <= epsilon)).all()
