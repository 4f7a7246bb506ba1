"""Cells and their transition model: what construction refuses, what it leaves alone, and the values derived from it."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dense_models import dense_model
from surefoot.bounds.cells import Cells, Readings
from surefoot.cmdp.episode import Observed
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.signals.signals import OwnFeatures, OwnFunction, Signals, own_values
from surefoot.tabular.transition_model import TransitionModel


def make_cells(
    rng: np.random.Generator,
    *,
    cells: int = 3,
    policies: int = 2,
    constraints: int = 2,
    states: int = 3,
    actions: int = 2,
    parameters: int = 2,
    by_start: bool = True,
    model: str = "affine",
    outside: int = 2,
    readings: str | None = None,
) -> Cells:
    """Valid cells with random numbers; `model` is "none", "balls" or "affine", of the latter two also what pays
    "-transitions" or "-unknown"; `readings` the kind of features that signals are made of."""
    low = rng.random((cells, parameters)) / 2
    high = low + rng.random((cells, parameters)) / 2
    lower = rng.normal(size=(cells, policies, 1 + constraints))
    start_lower = rng.normal(size=(cells, policies, 1 + constraints, states))
    uncovered = 0.25 * rng.random()
    return Cells(
        low=low,
        high=high,
        prior=(1 - uncovered) * rng.dirichlet(np.ones(cells)),
        lower=lower,
        upper=lower + rng.random(lower.shape),
        start_lower=start_lower if by_start else None,
        start_upper=start_lower + rng.random(start_lower.shape) if by_start else None,
        source={"none": "monte-carlo", "balls": "holdout", "affine": "affine"}[model.partition("-")[0]],  # type: ignore[arg-type]
        uncovered=uncovered,
        model=None if model == "none" else make_model(rng, (low + high) / 2, constraints, states, actions, model),
        outside=rng.random((outside, parameters)),
        readings=None if readings is None else make_readings(rng, readings, cells, policies, constraints),
    )


def make_readings(rng: np.random.Generator, kind: str, cells: int, policies: int, constraints: int) -> Readings:
    """Random numbers that are valid, of up to four signals."""
    signals = make_signals(rng, kind, policies)
    count, bins = 1 + constraints + len(signals), int(rng.integers(2, 5))
    lower = rng.random((cells, policies, len(signals)))
    return Readings(
        signals,
        lower,
        lower + rng.random(lower.shape),
        np.sort(rng.random((count, bins - 1)), axis=1),
        rng.random((count, bins)),
        rng.dirichlet(np.ones(bins), size=(cells, policies, count)),
    )


def make_signals(rng: np.random.Generator, kind: str, policies: int) -> Signals:
    own = make_features(rng) if kind == "own" else None
    features = 13 if kind == "moments" else 3  # moments of episodes with one observed number and one action
    maps, count = (int(n) for n in rng.integers(1, 5, size=2))
    low = rng.normal(size=count)
    return Signals(
        kind,  # type: ignore[arg-type]
        rng.normal(size=(policies, features)),
        rng.random((policies, features)) + 0.1,
        rng.normal(size=(policies, maps, features)),
        rng.normal(size=(policies, maps)),
        rng.integers(maps, size=count),
        low,
        low + rng.random(count) + 1e-3,
        int(rng.integers(1, 300)),
        rng.integers(9, size=(features, 3)) if kind == "transitions" else None,
        own,
    )


def extent(seen: np.ndarray, acted: np.ndarray) -> list[float]:
    """Features of one's own, for the tests."""
    return [float(np.ptp(seen)), float(acted.mean()), float(len(acted))]


def make_features(rng: np.random.Generator, function: OwnFunction = extent) -> OwnFeatures:
    """Probes of one of several types and shapes, with anything behind the last step of each."""
    steps = rng.integers(1, 5, size=3)
    seen, acted = rng.normal(size=(3, 5, 2)), rng.normal(size=(3, 4))
    seen[np.arange(5) > steps[:, None]] = np.nan
    types = (
        (seen, acted),
        (seen.astype(np.float32), acted > 0),
        (rng.integers(9, size=(3, 5)), acted.astype(np.int64)),
    )
    probes = Observed(*types[rng.integers(3)], steps)
    return OwnFeatures("extent", probes, own_values(function, "extent", probes))


def make_model(
    rng: np.random.Generator, centre: np.ndarray, constraints: int, states: int, actions: int, kind: str
) -> TransitionModel:
    """Rows that stay where they are (class 0) and, given two states, rows that may also move (classes 1 and 2)."""
    classes = np.full((states, actions, states), -1)
    moves = rng.random((states, actions)) < 0.5
    moves[0, 0], moves[-1, -1] = False, True
    moves &= states > 1
    for s, a in np.ndindex(states, actions):
        classes[s, a, s] = 1 if moves[s, a] else 0
        if moves[s, a]:
            classes[s, a, (s + rng.integers(1, states)) % states] = 2
    types = 3 if states > 1 else 1
    slope = np.outer([0.0, 1.0, -1.0], rng.random(centre.shape[1]) / (2 * centre.shape[1]))[:types]
    base = np.array([1.0, 0.3, 0.7])[:types]
    stays = rng.random(len(centre))
    balls = np.stack([np.ones_like(stays), stays, 1 - stays], axis=1)[:, :types]
    kind, _, paid = kind.partition("-")
    payments: dict[str, Any] = {
        "reward": rng.normal(size=(states, actions)),
        "cost": rng.normal(size=(constraints, states, actions)),
    }
    if paid:
        entries = np.count_nonzero(classes >= 0)
        payments = {"payments": rng.normal(size=(1 + constraints, entries))} if paid == "transitions" else {}
    return dense_model(
        classes,
        row_type=np.array([0, 1, 1])[:types],
        probability=(base + centre @ slope.T if kind == "affine" else balls),
        affine=(base, slope) if kind == "affine" else None,
        radius=rng.random(len(centre)),
        start=rng.dirichlet(np.ones(states)),
        **payments,
    )


CELLS = make_cells(np.random.default_rng(0))


def changed(array: np.ndarray | None, index: Any, value: Any) -> np.ndarray:
    assert array is not None
    copy = array.copy()
    copy[index] = value
    return copy


# ------------------------------------------------------------------------------------------------------------- refusals

E, NAN = np.empty, np.nan
WRONG_CELLS: list[tuple[dict[str, Any], str]] = [
    ({"low": E((0, 2))}, "cells must hold at least one cell on which the safe policy is feasible, got none"),
    ({"low": np.ones(3)}, "low must have shape [J, d] = [≥ 1, ≥ 1], got [3]"),
    ({"low": E((3, 0))}, "low must have shape [J, d] = [≥ 1, ≥ 1], got [3, 0]"),
    ({"low": "abc"}, "low must be an array of numbers, got str of type <U3"),
    ({"low": [[True]]}, "low must be an array of numbers, got list of type bool"),
    ({"high": np.ones((3, 1))}, "high must have shape [J, d] = [3, 2], got [3, 1]"),
    ({"high": CELLS.low - 1}, "must not exceed high, got"),
    ({"prior": np.ones(2)}, "prior must have shape [J] = [3], got [2]"),
    ({"prior": changed(CELLS.prior, 1, -0.25)}, "prior[1] must not be negative, got -0.25"),
    ({"prior": np.full(3, 0.4)}, "prior must sum to at most 1, got 1.2"),
    ({"prior": np.array([0.5, 0.5, 1e-8])}, "prior must sum to at most 1, got 1.00000001"),
    ({"prior": np.full(3, 0.2), "uncovered": 0.5}, "prior and uncovered must sum to 1, got 0.6 and 0.5"),
    ({"prior": np.full(3, 0.2), "uncovered": 0.4 + 2e-6}, "prior and uncovered must sum to 1, got 0.6 and 0.4"),
    ({"uncovered": -0.1}, "uncovered must be a probability, got -0.1"),
    ({"uncovered": 1.5}, "uncovered must be a probability, got 1.5"),
    ({"uncovered": NAN}, "uncovered must be a probability, got nan"),
    ({"outside": np.ones((4, 3))}, "outside must have shape [J', d] = [any, 2], got [4, 3]"),
    ({"lower": np.ones((3, 2))}, "lower must have shape [J, P, 1+m] = [3, ≥ 1, ≥ 1], got [3, 2]"),
    ({"upper": np.ones((3, 1, 3))}, "upper must have shape [J, P, 1+m] = [3, 2, 3], got [3, 1, 3]"),
    ({"lower": changed(CELLS.lower, (2, 1, 0), 9.0)}, "lower[2, 1, 0] must not exceed upper, got 9.0"),
    ({"start_lower": None}, "start_lower and start_upper must be given both or not at all, got one of them"),
    ({"start_upper": None}, "start_lower and start_upper must be given both or not at all, got one of them"),
    ({"start_lower": np.ones((3, 2, 3))}, "start_lower must have shape [J, P, 1+m, S] = [3, 2, 3, ≥ 1], got [3, 2, 3]"),
    ({"start_upper": np.ones((3, 2, 3, 4))}, "start_upper must have shape [J, P, 1+m, S] = [3, 2, 3, 3], got [3, 2, 3"),
    (
        {"start_lower": changed(CELLS.start_lower, (0, 0, 2, 1), 9.0)},
        "start_lower[0, 0, 2, 1] must not exceed start_up",
    ),
    ({"source": "guess"}, "source must be one of ['affine', 'finite', 'holdout', 'monte-carlo'], got 'guess'"),
]
WRONG_MODEL: list[tuple[dict[str, Any], str]] = [
    ({"classes": np.zeros((3, 2), dtype=int)}, "classes must have shape [E] = ["),
    ({"classes": np.zeros(9)}, "classes must be an array of whole numbers, got ndarray of type float64"),
    ({"successor": np.arange(9)}, "successor[3] must lie in [0, 3), got 3"),
    ({"successor": np.zeros(9, dtype=int)}, "successor must ascend within every row"),
    ({"indptr": np.arange(6)}, "indptr must have 1 + S·A entries, S = 3 as in start, got 6"),
    (
        {"indptr": np.zeros(7, dtype=int)},
        "indptr must rise from 0 to 9, a successor in every row, got none in row (0, 0)",
    ),
    ({"reward": None}, "reward and cost must be given both, payments instead"),
    (
        {"payments": np.ones((3, 9))},
        "reward and cost must be given both, payments instead of them, or none of the three",
    ),
    ({"row_type": np.zeros((3, 1), dtype=int)}, "row_type must have shape [C] = [≥ 1], got [3, 1]"),
    ({"row_type": np.array([0, 1, 3])}, "row_type[2] must lie in [0, 3), got 3"),
    ({"row_type": np.array([0, -1, 1])}, "row_type[1] must lie in [0, 3), got -1"),
    ({"probability": np.ones((3, 2))}, "probability must have shape [J, C] = [≥ 1, 3], got [3, 2]"),
    ({"radius": np.ones(2)}, "radius must have shape [J] = [3], got [2]"),
    ({"radius": np.array([0.0, -1.0, 0.0])}, "radius[1] must not be negative, got -1.0"),
    ({"reward": np.ones((2, 3))}, "reward must have shape [S, A] = [3, 2], got [2, 3]"),
    ({"cost": np.ones((3, 2))}, "cost must have shape [m, S, A] = [≥ 1, 3, 2], got [3, 2]"),
    ({"start": np.ones(2) / 2}, "must lie in [0, 2), got 2"),
    ({"start": np.array([0.5, 1.0, -0.5])}, "start[2] must not be negative, got -0.5"),
    ({"start": np.array([0.5, 0.5, 1e-8])}, "start must sum to 1 (within 1e-09), got 1.00000001"),
    ({"affine": (np.ones(2), np.ones((3, 2)))}, "affine[0] must have shape [C] = [3], got [2]"),
    ({"affine": (np.ones(3), np.ones((2, 3)))}, "affine[1] must have shape [C, d] = [3, ≥ 1], got [2, 3]"),
    ({"affine": (np.ones(3), np.full((3, 2), NAN))}, "affine[1][0, 0] must be finite, got nan"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG_CELLS, ids=[message for _, message in WRONG_CELLS])
def test_cells_that_do_not_fit_together_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        replace(CELLS, **changes)


@pytest.mark.parametrize(("changes", "message"), WRONG_MODEL, ids=[message for _, message in WRONG_MODEL])
def test_models_that_do_not_fit_together_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        replace(CELLS.model, **changes)  # type: ignore[type-var]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_no_array_may_hold_anything_but_finite_numbers(value: float) -> None:
    checked = 0
    for part in (CELLS, CELLS.model):
        for field in fields(part):  # type: ignore[arg-type]
            array = getattr(part, field.name)
            if isinstance(array, np.ndarray) and array.dtype == np.float64:
                last = tuple(length - 1 for length in array.shape)
                message = re.escape(f"{field.name}[{', '.join(map(str, last))}] must be finite, got {value}")
                with pytest.raises(InvalidInput, match=message):
                    replace(part, **{field.name: changed(array, last, value)})  # type: ignore[type-var]
                checked += 1
    assert checked == 13


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"cells": 4}, "model must have as many cells as the bounds (3), got 4"),
        ({"constraints": 1}, "model must have as many constraints as the bounds (2), got 1"),
        ({"states": 4}, "model must have as many states as the bounds (3), got 4"),
        ({"parameters": 1}, "model must have as many parameters as the bounds (2), got 1"),
    ],
)
def test_a_model_of_other_tasks_is_refused(sizes: dict[str, int], message: str) -> None:
    other = make_cells(np.random.default_rng(1), **sizes)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        replace(CELLS, model=other.model)


# ------------------------------------------------------------------------------------------------------ rows of a model


@given(
    seed=st.integers(0, 2**32 - 1),
    states=st.integers(1, 5),
    actions=st.integers(1, 3),
    kind=st.sampled_from(["balls", "affine", "balls-unknown", "affine-transitions"]),
    amount=st.sampled_from([0.0, 1e-12, 5e-10, 2e-9, 1e-3, 0.2]),
)
def test_rows_must_sum_to_one_in_every_cell(seed: int, states: int, actions: int, kind: str, amount: float) -> None:
    """Second computation: the dense transitions of every cell."""
    rng = np.random.default_rng(seed)
    model = make_model(rng, rng.random((4, 2)), 1, states, actions, kind)
    cell, which = rng.integers(4), rng.integers(len(model.row_type))
    old = model.probability[cell, which]
    probability = changed(model.probability, (cell, which), old + amount if old < 0.5 else old - amount)
    sums = np.append(probability, np.zeros((4, 1)), axis=1)[:, model.class_table].sum(axis=-1)
    wrong = np.argwhere(np.abs(sums - 1) > 1e-9)
    assert len(wrong) > 0 if amount > 1e-9 else len(wrong) == 0
    if not len(wrong):
        replace(model, probability=probability)
        return
    with pytest.raises(InvalidInput, match="must sum to 1") as refusal:
        replace(model, probability=probability)
    j, s, a = map(int, re.match(r"probability\[(\d+)\] .* over row \((\d+), (\d+)\)", str(refusal.value)).groups())
    assert [j, s, a] in wrong.tolist()


def test_probabilities_outside_the_unit_interval_are_refused_even_if_rows_sum_to_one() -> None:
    model = make_cells(np.random.default_rng(0)).model
    assert model is not None
    with pytest.raises(InvalidInput, match=re.escape("probability[1, 1] must lie in [0, 1], got 1.25")):
        replace(model, probability=changed(model.probability, 1, [1.0, 1.25, -0.25]))


ROWS = np.array([[[0, 1]], [[1, 0]]])  # two rows of two successors, equal up to their order


def two_rows(classes: Any, row_type: list[int]) -> TransitionModel:
    """Every class has probability 1/2, so that two possible successors sum to one whichever they are."""
    ones = np.ones((2, 1))
    return dense_model(
        np.array(classes),
        np.array(row_type),
        np.full((1, len(row_type)), 0.5),
        None,
        np.zeros(1),
        np.full(2, 0.5),
        ones,
        ones[None],
    )


def test_row_types_are_exactly_the_rows_that_agree_up_to_order() -> None:
    assert two_rows(ROWS, [0, 0]).row_type.tolist() == [0, 0]
    assert two_rows([[[0, 1]], [[2, 3]]], [0, 0, 1, 1]).row_type.tolist() == [0, 0, 1, 1]
    for classes, row_type, row in (
        ([[[0, 1]], [[0, 1]]], [0, 1], "(0, 0)"),  # one row of two types
        ([[[0, 1]], [[2, 3]]], [0, 0, 0, 0], "(1, 0)"),  # two rows of one type without a class in common
        ([[[0, 1]], [[0, 0]]], [0, 0], "(1, 0)"),  # the same classes, not equally often
    ):
        with pytest.raises(InvalidInput, match=re.escape(f"row_type must be .* row {row}").replace(r"\.\*", ".*")):
            two_rows(classes, row_type)
    with pytest.raises(InvalidInput, match="classes must hold each of 3 classes somewhere, got no 2"):
        two_rows(ROWS, [0, 0, 0])
    for wrong in (-2, 2):
        with pytest.raises(InvalidInput, match=re.escape(f"classes[1, 0, 0] must lie in [-1, 2), got {wrong}")):
            two_rows(changed(ROWS, (1, 0, 0), wrong), [0, 0])
    with pytest.raises(InvalidInput, match=re.escape("it is not for row (1, 0)")):
        two_rows(changed(ROWS, (1, 0, 0), -1), [0, 0])
    for row in (0, 1):  # nowhere to go
        with pytest.raises(InvalidInput, match=rf"a successor in every row, got none in row \({row}, 0\)"):
            two_rows(changed(ROWS, row, -1), [0, 0])


# ------------------------------------------------------------------------------------------------- arrays and semantics


WHOLE = ("indptr", "successor", "classes", "row_type")


def arrays_of(cells: Cells) -> dict[str, np.ndarray]:
    assert cells.model is not None
    assert cells.model.affine is not None
    found = {
        f"{type(part).__name__}.{name.name}": getattr(part, name.name)
        for part in (cells, cells.model)
        for name in fields(part)
    }
    found |= {"base": cells.model.affine[0], "slope": cells.model.affine[1]}
    return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}


def test_all_arrays_are_read_only() -> None:
    arrays = arrays_of(CELLS)
    assert len(arrays) == 19
    for name, array in arrays.items():
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
        assert array.dtype == (np.int64 if name.removeprefix("TransitionModel.") in WHOLE else np.float64)


def test_arrays_are_taken_over_unless_something_else_could_change_them() -> None:
    own = np.random.default_rng(0).random((3, 2))
    assert replace(CELLS, outside=own).outside is own
    base = np.random.default_rng(0).random((4, 2))
    cells = replace(CELLS, outside=base[1:])
    before = cells.outside.copy()
    base[:] = -1.0
    np.testing.assert_array_equal(cells.outside, before)


def test_smaller_types_and_lists_become_float64() -> None:
    cells = replace(CELLS, outside=[[1, 2]], low=np.zeros((3, 2), dtype=np.float32))  # type: ignore[arg-type]
    assert cells.outside.dtype == cells.low.dtype == np.float64
    assert cells.outside.tolist() == [[1.0, 2.0]]
    model = replace(CELLS.model, row_type=np.array([0, 1, 1], dtype=np.int8))  # type: ignore[type-var]
    assert model.row_type.dtype == np.int64  # type: ignore[union-attr]


def test_centre_danger_and_transitions_by_hand() -> None:
    cells = make_cells(np.random.default_rng(3), policies=3)
    for j in range(len(cells)):
        assert cells.centre[j].tolist() == [(cells.low[j, k] + cells.high[j, k]) / 2 for k in range(2)]
        worst = sum(min(cells.lower[j, p, 1], cells.lower[j, p, 2]) for p in range(3))
        assert cells.danger[j] == pytest.approx(-worst, abs=1e-14)
    model = cells.model
    assert model is not None
    assert model.affine is not None
    point, (base, slope) = np.array([0.2, 0.3]), model.affine
    costs, rewards = model.cost, model.reward
    units = Units(
        0.9,
        (rewards.min(), rewards.max()),
        np.array([[table.min(), table.max()] for table in costs]),
        np.array([1.0, 2.0]),
    )
    task = model.task(point, units)
    for s, a, t in np.ndindex(*model.class_table.shape):
        c = model.class_table[s, a, t]
        expected = 0.0 if c < 0 else base[c] + slope[c, 0] * 0.2 + slope[c, 1] * 0.3
        assert task.transitions[s, a, t] == pytest.approx(expected, abs=1e-15)
    with pytest.raises(InvalidInput, match="affine must be known"):
        replace(model, affine=None).task(point, units)


@pytest.mark.parametrize(
    ("first_states", "message"),
    [
        ([2, 0, 1], r"first_states\[1\] must be states in ascending order, got 0"),
        ([0, 1, 1], r"first_states\[2\] must be states in ascending order, got 1"),
        ([-1, 0, 1], r"first_states\[0\] must be states in ascending order, got -1"),
        ([0, 1], r"first_states must have shape \[F\] = \[3\], got \[2\]"),
        ([0.0, 1.0, 2.0], "first_states must be an array of whole numbers"),
        ([0, 1, 3], r"first_states must lie in \[0, 3\), got 3"),
    ],
)
def test_first_states_are_states(first_states: list[int], message: str) -> None:
    cells = make_cells(np.random.default_rng(0))
    with pytest.raises(InvalidInput, match=message):
        replace(cells, first_states=np.array(first_states))
    with pytest.raises(InvalidInput, match="first_states must come with start_lower and start_upper"):
        replace(cells, start_lower=None, start_upper=None, first_states=np.array([0, 1, 2]))
