"""TabularCMDP refuses what is wrong, keeps what is right, and converts units."""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from random_tasks import Arrays, as_sparse, random_arrays, random_policy, task_arrays
from surefoot.arrays import ROW_SUM_TOLERANCE
from surefoot.errors import InvalidInput
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP

either = pytest.mark.parametrize("layout", [dict, as_sparse], ids=["dense", "sparse"])


def refused(arrays: Arrays, *parts: str) -> None:
    """Building the task fails, and the message contains every part, literally."""
    with pytest.raises(InvalidInput) as caught:
        TabularCMDP(**arrays)
    for part in parts:
        assert part in str(caught.value)


def random_index(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(rng.integers(n)) for n in shape)


def corrupted(arrays: Arrays, name: str, index: Any, value: float) -> Arrays:
    array = np.array(arrays[name])
    array[index] = value
    return {**arrays, name: array}


def named(name: str, index: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, index))}] "


# ------------------------------------------------------------------------------------------- one bad entry, anywhere


@either
@pytest.mark.parametrize("name", ["transitions", "reward", "cost", "budget", "start"])
@given(task=task_arrays(), bad=st.sampled_from([np.nan, np.inf, -np.inf]))
def test_entry_that_is_not_finite(task: Any, name: str, bad: float, layout: Any) -> None:
    arrays, rng = task
    index = random_index(rng, np.shape(arrays[name]))
    refused(layout(corrupted(arrays, name, index, bad)), named(name, index) + "must be finite", f"got {bad}")


@either
@pytest.mark.parametrize("name", ["transitions", "start"])
@given(task=task_arrays(min_states=2), size=st.floats(1e-300, 0.5))
def test_negative_probability(task: Any, size: float, name: str, layout: Any) -> None:
    arrays, rng = task
    index = random_index(rng, arrays[name].shape)
    other = (*index[:-1], (index[-1] + 1) % arrays[name].shape[-1])
    moved = arrays[name][index] + size
    arrays = corrupted(arrays, name, index, -size)
    arrays = corrupted(arrays, name, other, arrays[name][other] + moved)  # the sum stays 1: only the sign is wrong
    refused(layout(arrays), named(name, index) + "must not be negative", f"got {-size!r}")


@either
@given(task=task_arrays(), excess=st.floats(2e-9, 0.5), sign=st.sampled_from([-1, 1]))
def test_row_that_does_not_sum_to_one(task: Any, excess: float, sign: int, layout: Any) -> None:
    arrays, rng = task
    s, a, _ = random_index(rng, arrays["transitions"].shape)
    factor = 1 + sign * excess
    bad = corrupted(arrays, "transitions", (s, a), arrays["transitions"][s, a] * factor)
    refused(layout(bad), f"transitions[{s}, {a}] must sum to 1 ", "1e-09", f"got {bad['transitions'][s, a].sum():.12g}")
    bad = {**arrays, "start": arrays["start"] * factor}
    refused(layout(bad), "start must sum to 1 ", "1e-09", f"got {bad['start'].sum():.12g}")


@either
@given(task=task_arrays(), excess=st.floats(0, 0.9 * ROW_SUM_TOLERANCE), sign=st.sampled_from([-1, 1]))
def test_rounding_within_the_tolerance_is_accepted(task: Any, excess: float, sign: int, layout: Any) -> None:
    arrays, _ = task
    factor = 1 + sign * excess
    arrays = {**arrays, "transitions": arrays["transitions"] * factor, "start": arrays["start"] * factor}
    assert TabularCMDP(**layout(arrays)).n_states == len(arrays["start"])


@given(task=task_arrays(), excess=st.floats(1e-9, 1e6), above=st.booleans())
def test_value_outside_a_declared_range(task: Any, excess: float, above: bool) -> None:
    arrays, rng = task
    for name in ("reward", "cost"):
        table = arrays[name]
        low, high = float(table.min()), float(table.max())
        index = random_index(rng, table.shape)
        value = high + excess if above else low - excess
        assert TabularCMDP(**arrays, **{f"{name}_range": (low, high)}).n_states == len(arrays["start"])
        bad = {**corrupted(arrays, name, index, value), f"{name}_range": (low, high)}
        refused(bad, named(name, index) + f"must lie in {name}_range", str([low, high]), f"got {value!r}")


@given(task=task_arrays(min_states=2), excess=st.floats(0.1, 10))
def test_each_constraint_has_its_own_declared_range(task: Any, excess: float) -> None:
    arrays, rng = task
    cost = arrays["cost"]
    ranges = np.stack([cost.min(axis=(1, 2)), cost.max(axis=(1, 2))], axis=1)
    assert np.array_equal(TabularCMDP(**arrays, cost_range=ranges).units.cost_range, ranges)
    index = random_index(rng, cost.shape)
    value = float(ranges[index[0], 1]) + excess
    bad = {**corrupted(arrays, "cost", index, value), "cost_range": ranges}
    refused(bad, named("cost", index) + "must lie in cost_range", f"got {value!r}")


@given(task=task_arrays(max_constraints=1))
def test_index_is_reported_in_the_shape_the_user_gave(task: Any) -> None:
    arrays, rng = task
    per_pair = {**arrays, "cost": arrays["cost"][0], "budget": float(arrays["budget"][0])}
    per_state = {**per_pair, "reward": arrays["reward"][:, 0], "cost": arrays["cost"][0, :, 0]}
    for given_arrays in (per_pair, per_state):
        for name in ("reward", "cost"):
            index = random_index(rng, given_arrays[name].shape)
            refused(corrupted(given_arrays, name, index, np.nan), named(name, index), "got nan")
            bad = {**corrupted(given_arrays, name, index, 1e3), f"{name}_range": (-100, 100)}
            refused(bad, named(name, index), "got 1000.0")


@pytest.mark.parametrize("discount", [0, 1, -0.1, 1.5, np.nan, np.inf, "high", None, [0.9, 0.8]])
def test_discount(discount: Any) -> None:
    arrays = random_arrays(np.random.default_rng(0))
    refused({**arrays, "discount": discount}, "discount must ", "got ", str(discount))


# -------------------------------------------------------------------------------------------------------- wrong shapes

S, A, M = 4, 3, 2
WRONG_SHAPES = {
    "transitions": [(S, A), (S, A, S + 1), (S + 1, A, S), (A, S, S), (S, 0, S), (S * A, S), (S, S), (1, S, A, S), ()],
    "reward": [(A,), (A, S), (S, A, 1), (S, A + 1), (), (0,), (1, S, A)],
    "cost": [(A,), (A, S), (M, S), (M, A, S), (0, S, A), (M, S, A, 1), (M, S), (), (S, A, M)],
    "budget": [(), (1,), (M + 1,), (M, 1), (1, M), (0,)],
    "start": [(S, 1), (S + 1,), (1, S), (), (0,)],
    "reward_range": [(), (1,), (3,), (1, 2), (2, 1)],
    "cost_range": [(), (1,), (3,), (M + 1, 2), (2, M + 1), (1, 2), (M, 2, 1)],
}


@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name in WRONG_SHAPES for shape in WRONG_SHAPES[name]])
def test_wrong_shape(name: str, shape: tuple[int, ...]) -> None:
    arrays = random_arrays(np.random.default_rng(0), S, A, M)
    wrong = np.ones(shape) / max(shape[-1] if shape else 1, 1)
    blamed = "transitions" if name == "start" and shape == (S + 1,) else name  # start is what declares S
    refused({**arrays, name: wrong}, f"{blamed} must", "got")


@pytest.mark.parametrize("shape", [(S * A + 1, S), (S * A, S + 1), (S, S * A), (0, S), (S * A - S, S - 1)])
def test_wrong_sparse_shape(shape: tuple[int, int]) -> None:
    arrays = random_arrays(np.random.default_rng(0), S, A)
    refused({**arrays, "transitions": sp.csr_array(shape)}, "transitions must have shape [S·A, S]", str(list(shape)))


def test_sparse_vector_is_not_a_matrix() -> None:
    arrays = random_arrays(np.random.default_rng(0), S, A)
    refused({**arrays, "transitions": sp.coo_array(np.ones(S))}, "transitions must have shape [S·A, S]", "[4]")


def test_sparse_transitions_may_have_any_number_of_actions_but_the_tables_must_agree() -> None:
    arrays = as_sparse(random_arrays(np.random.default_rng(0), S, A))
    refused(
        {**arrays, "reward": np.zeros((S, A + 1))},
        f"reward must have shape [{S}, {A}], [{S}] or [{S}, {A}, {S}]",
        f"[{S}, {A + 1}]",
    )


@pytest.mark.parametrize("name", ["transitions", "reward", "cost", "budget", "start", "reward_range", "cost_range"])
@pytest.mark.parametrize("junk", ["text", object(), [[1.0], [1.0, 2.0]], {"a": 1}])
def test_not_an_array_of_numbers(name: str, junk: Any) -> None:
    arrays = random_arrays(np.random.default_rng(0))
    refused({**arrays, name: junk}, f"{name} must be an array of numbers", type(junk).__name__)


@pytest.mark.parametrize("name", ["reward_range", "cost_range"])
def test_range_must_be_ordered(name: str) -> None:
    arrays = random_arrays(np.random.default_rng(0))
    refused({**arrays, name: (100, -100)}, f"{name} must be (low, high)", "[100.0, -100.0]")
    refused({**arrays, name: (-100, np.nan)}, f"{name}[1] must be finite", "nan")


# ------------------------------------------------------------------------------------------- what is kept, and how


@either
@given(task=task_arrays())
def test_inputs_are_neither_changed_nor_kept(task: Any, layout: Any) -> None:
    arrays, _ = task
    arrays = layout(arrays)
    before = copy.deepcopy(arrays)
    cmdp = TabularCMDP(**arrays)
    digest = cmdp.digest()
    for name, value in arrays.items():
        if sp.issparse(value):
            assert (value != before[name]).nnz == 0
            value.data[:] = 7
        elif isinstance(value, np.ndarray):
            assert np.array_equal(value, before[name])
            value[...] = 7  # raises if the input was made read-only
    fresh = TabularCMDP(**before)
    assert cmdp.digest() == digest == fresh.digest()
    assert np.array_equal(cmdp.rows.toarray(), fresh.rows.toarray())


@either
def test_arrays_are_read_only(layout: Any) -> None:
    cmdp = TabularCMDP(**layout(random_arrays(np.random.default_rng(0), constraints=2)))
    units, rows = cmdp.units, cmdp.rows
    arrays = [cmdp.reward, cmdp.cost, cmdp.start, cmdp.budget, units.cost_range, units.budget, units.cost_scale]
    arrays += [rows.data, rows.indices, rows.indptr]
    if not cmdp.is_sparse:
        arrays.append(cmdp.transitions)
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[(0,) * array.ndim] = 1


@given(task=task_arrays())
def test_dense_and_sparse_hold_the_same_task(task: Any) -> None:
    arrays, rng = task
    dense, sparse = TabularCMDP(**arrays), TabularCMDP(**as_sparse(arrays))
    assert (dense.is_sparse, sparse.is_sparse) == (False, True)
    for name in ("n_states", "n_actions", "n_constraints", "discount"):
        assert getattr(dense, name) == getattr(sparse, name)
    assert dense.units.same_as(sparse.units)
    assert dense.digest() == sparse.digest()
    assert np.array_equal(dense.rows.toarray(), sparse.rows.toarray())
    assert np.array_equal(dense.rows.toarray().reshape(dense.transitions.shape), dense.transitions)

    probabilities = random_policy(rng, dense).probabilities
    chain = np.zeros((dense.n_states, dense.n_states))
    for s in range(dense.n_states):
        for a in range(dense.n_actions):
            chain[s] += probabilities[s, a] * dense.transitions[s, a]
    assert np.allclose(dense.kernel(probabilities), chain, rtol=0, atol=1e-15)
    assert sp.issparse(sparse.kernel(probabilities))
    assert np.allclose(sparse.kernel(probabilities).toarray(), chain, rtol=0, atol=1e-15)


def test_any_sparse_format_and_duplicate_entries() -> None:
    arrays = random_arrays(np.random.default_rng(1))
    flat = arrays["transitions"].reshape(-1, 4)
    expected = TabularCMDP(**arrays).digest()
    for given_as in (sp.csr_array, sp.csc_array, sp.coo_array, sp.lil_array, sp.csr_matrix, sp.coo_matrix):
        assert TabularCMDP(**{**arrays, "transitions": given_as(flat)}).digest() == expected
    rows, columns = np.nonzero(flat)
    halves = np.tile(flat[rows, columns] / 2, 2)
    twice = sp.coo_array((halves, (np.tile(rows, 2), np.tile(columns, 2))), shape=flat.shape)
    assert TabularCMDP(**{**arrays, "transitions": twice}).digest() == expected


def test_tables_per_state_are_spread_over_actions() -> None:
    arrays = random_arrays(np.random.default_rng(2), states=4, actions=3)
    reward, cost = np.arange(4.0), np.array([3.0, 1, 4, 1])
    short = TabularCMDP(**{**arrays, "reward": reward, "cost": cost, "budget": 2})
    full = {"reward": np.tile(reward[:, None], 3), "cost": np.tile(cost[:, None], 3)[None], "budget": [2.0]}
    assert short.digest() == TabularCMDP(**{**arrays, **full}).digest()
    assert (short.n_constraints, short.budget.tolist()) == (1, [2.0])
    assert short.units.reward_range == (0.0, 3.0)
    assert short.units.cost_range.tolist() == [[1.0, 4.0]]


@given(task=task_arrays(min_states=2))
def test_digest_notices_any_change(task: Any) -> None:
    arrays, rng = task
    digest = TabularCMDP(**arrays).digest()
    assert TabularCMDP(**copy.deepcopy(arrays)).digest() == digest
    for name in ("reward", "cost", "budget"):
        index = random_index(rng, arrays[name].shape)
        changed = corrupted(arrays, name, index, float(np.nextafter(arrays[name][index], np.inf)))
        assert TabularCMDP(**changed).digest() != digest
    for name in ("transitions", "start"):
        rolled = {**arrays, name: np.roll(arrays[name], 1, axis=-1)}
        assert TabularCMDP(**rolled).digest() != digest
    assert TabularCMDP(**{**arrays, "discount": 0.89}).digest() != digest
    assert TabularCMDP(**arrays, reward_range=(-100, 100)).digest() != digest
    assert TabularCMDP(**arrays, cost_range=(-100, 100)).digest() != digest


def test_repr_says_what_it_is() -> None:
    arrays = random_arrays(np.random.default_rng(0), 4, 3, 2)
    assert repr(TabularCMDP(**arrays)) == "TabularCMDP(dense, states=4, actions=3, constraints=2, discount=0.9)"
    assert re.match(r"TabularCMDP\(sparse, ", repr(TabularCMDP(**as_sparse(arrays))))


# ---------------------------------------------------------------------------------------------------------------- units


def with_random_ranges(arrays: Arrays, rng: np.random.Generator) -> Arrays:
    """Declare ranges wider than the tables, and budgets that may lie far outside what any policy can spend."""
    m = len(arrays["cost"])
    margin = rng.exponential(3, (m, 2)) * rng.integers(2, size=(m, 2))
    cost = arrays["cost"]
    ranges = np.stack([cost.min(axis=(1, 2)) - margin[:, 0], cost.max(axis=(1, 2)) + margin[:, 1]], axis=1)
    reward = arrays["reward"]
    reward_range = (reward.min() - rng.exponential(3), reward.max() + rng.exponential(3))
    budget = arrays["budget"] * rng.choice([-2, 0, 0.5, 1, 5], m)
    return {**arrays, "cost_range": ranges, "reward_range": reward_range, "budget": budget}


@given(task=task_arrays())
def test_unit_tables_lie_in_the_paper_s_ranges_and_values_convert_exactly(task: Any) -> None:
    arrays, rng = task
    cmdp = TabularCMDP(**with_random_ranges(arrays, rng))
    units, discount = cmdp.units, cmdp.discount
    r, c = units.unit_reward(cmdp.reward), units.unit_constraint(cmdp.cost)
    assert r.min() >= 0
    assert r.max() <= 1
    assert np.abs(c).max() <= 1
    for bound in (0, 1):  # the ends of the declared ranges, which the tables need not reach
        assert 0 <= units.unit_reward(np.array(units.reward_range[bound])) <= 1
        assert np.abs(units.unit_constraint(units.cost_range[:, bound])).max() <= 1
    assert (np.ptp(c, axis=(1, 2)) <= units.constraint_width(ends=False) + 1e-12).all()
    assert (units.constraint_width(ends=False) <= 1).all()

    policy = random_policy(rng, cmdp)
    unit_task = TabularCMDP(cmdp.transitions, r, c, np.zeros(len(c)), cmdp.start, discount)
    unit, user = evaluate(unit_task, policy), evaluate(cmdp, policy)
    tolerance = {"rtol": 1e-12, "atol": 1e-12 / (1 - discount)}
    assert np.allclose(units.unit_margin(user.margin), unit.cost, **tolerance)  # here cost is the paper's V_c itself
    assert np.allclose(units.unit_reward_value(user.reward), unit.reward, **tolerance)
    assert (unit.cost >= -units.worst_value(ends=False) - 1e-12 / (1 - discount)).all()
    assert np.allclose(units.user_margin(units.unit_margin(user.margin)), user.margin, rtol=1e-14, atol=0)
    assert np.allclose(units.unit_margin(units.user_margin(unit.cost)), unit.cost, rtol=1e-14, atol=0)
    assert np.array_equal(user.margin >= 0, units.unit_margin(user.margin) >= 0)
    low, high = units.cost_value_range.T
    assert ((low <= user.cost + 1e-9) & (user.cost <= high + 1e-9)).all()
    assert units.reward_value_range[0] <= user.reward <= units.reward_value_range[1]


@given(task=task_arrays())
def test_worst_value_is_attained_where_every_step_costs_the_most(task: Any) -> None:
    arrays, rng = task
    cmdp = TabularCMDP(**with_random_ranges(arrays, rng))
    worst_cost = np.broadcast_to(cmdp.units.cost_range[:, 1, None, None], cmdp.cost.shape)
    worst = evaluate(
        TabularCMDP(cmdp.transitions, cmdp.reward, worst_cost, cmdp.budget, cmdp.start, cmdp.discount),
        random_policy(rng, cmdp),
    )
    found = cmdp.units.worst_value(ends=False)
    assert np.allclose(np.maximum(-cmdp.units.unit_margin(worst.margin), 0), found, rtol=1e-9, atol=1e-9)


def test_units_of_the_gridworld() -> None:
    """Worked by hand: budget 1.5, cost 0 or 10 a step, discount 0.9."""
    arrays = random_arrays(np.random.default_rng(0), states=3, actions=2)
    cost = np.array([[0.0, 10], [10, 0], [0, 0]])
    arrays |= {"cost": cost, "budget": 1.5, "cost_range": (0, 10), "reward": cost, "reward_range": (0, 10)}
    cmdp = TabularCMDP(**arrays)
    units = cmdp.units
    assert units.cost_scale.tolist() == [10]
    c = units.unit_constraint(cmdp.cost)
    assert np.allclose(sorted(set(c.ravel())), [-0.985, 0.015], rtol=0, atol=1e-15)
    assert units.constraint_width(ends=False).tolist() == [1]
    assert np.allclose(units.worst_value(ends=False), 9.85, rtol=1e-14)
    assert np.allclose(units.unit_margin([1.5]), 0.15, rtol=1e-15)  # no cost at all: the largest V_c, so ξ ≤ 0.15
    free = TabularCMDP(**{**arrays, "cost": np.zeros((3, 2))})
    assert np.allclose(free.units.unit_margin(evaluate(free, np.full((3, 2), 0.5)).margin), 0.15, rtol=1e-14)
    assert units.unit_reward(np.array([0.0, 10.0])).tolist() == [0, 1]
    assert units.reward_value_range == pytest.approx((0, 100))
    assert units.cost_value_range == pytest.approx(np.array([[0, 100]]))


def test_constant_tables_do_not_divide_by_zero() -> None:
    arrays = random_arrays(np.random.default_rng(0), states=3, actions=2, discount=0.5)
    cmdp = TabularCMDP(**{**arrays, "reward": np.full(3, 2.0), "cost": np.full(3, 1.0), "budget": 2.0})
    assert cmdp.units.cost_scale.tolist() == [1]  # spending 1 a step is exactly even: c = 0
    assert not cmdp.units.unit_constraint(cmdp.cost).any()
    assert not cmdp.units.unit_reward(cmdp.reward).any()


def test_same_as_compares_every_field() -> None:
    arrays = random_arrays(np.random.default_rng(0))
    units = TabularCMDP(**arrays).units
    assert units.same_as(TabularCMDP(**arrays).units)
    for change in (
        {"discount": 0.8},
        {"budget": arrays["budget"] + 1},
        {"reward_range": (-1e3, 1e3)},
        {"cost_range": (-1e3, 1e3)},
    ):
        assert not units.same_as(TabularCMDP(**{**arrays, **change}).units)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("off", [-9e-10, 9e-10])
def test_rows_are_divided_by_their_sum(off: float, sparse: bool) -> None:
    rows = np.array([[[0.3, 0.7], [0.1, 0.9]], [[1.0, 0.0], [0.5, 0.5]]])
    given = rows * (1 + off)
    transitions = sp.csr_array(given.reshape(4, 2)) if sparse else given
    table = [[0.0, 1.0], [0.5, 0.5]]
    task = TabularCMDP(transitions, table, table, 1.0, [0.25 * (1 + off), 0.75 * (1 + off)], 0.9)
    np.testing.assert_allclose(task.rows.toarray().reshape(2, 2, 2), rows, rtol=1e-15, atol=0)
    np.testing.assert_allclose(task.start, [0.25, 0.75], rtol=1e-15, atol=0)
    again = TabularCMDP(task.transitions, table, table, 1.0, task.start, 0.9)
    assert again.digest() == task.digest(), "what sums to 1 but for rounding is left as it is"
