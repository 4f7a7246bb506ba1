"""Transition probabilities of every cell of a partition of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from surefoot.arrays import ROW_SUM_TOLERANCE, Floats, Integers, refuse, take_over, taken
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tabular.model import TabularCMDP

# Probabilities computed from a parameter may miss [0, 1] by rounding, never by this much.
LAW_TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class TransitionModel:
    """Transition probabilities of every cell, with equal ones stored once.

    A row type is a row (s, a) up to the order of its successors; a class is one entry of one row type. What was
    observed enters every likelihood only through how often each class occurred.

    Attributes:
        classes: [S, A, S] class of each transition; -1 where it is impossible in every cell.
        row_type: [C] row type that each class belongs to.
        probability: [J, C] at the centre of each cell.
        affine: (base [C], slope [C, d]) when P_θ = base + slope·θ for every θ; None otherwise.
        radius: [J] total variation between a cell's centre and the farthest of its members, over all rows.
        reward, cost, start: [S, A], [m, S, A], [S], shared by all cells.
    """

    classes: Integers
    row_type: Integers
    probability: Floats
    affine: tuple[Floats, Floats] | None
    radius: Floats
    reward: Floats
    cost: Floats
    start: Floats

    def __post_init__(self) -> None:
        sizes: dict[str, int] = {}
        for name, axes in (("classes", "S A S"), ("row_type", "C")):
            take_over(self, name, axes, sizes, np.int64)
        for name, axes in (
            ("probability", "J C"),
            ("radius", "J"),
            ("reward", "S A"),
            ("cost", "m S A"),
            ("start", "S"),
        ):
            take_over(self, name, axes, sizes)
        if self.affine is not None:
            base, slope = self.affine
            pair = (taken("affine[0]", base, "C", sizes), taken("affine[1]", slope, "C d", sizes))
            object.__setattr__(self, "affine", pair)
        count = sizes["C"]
        refuse("classes", self.classes, (self.classes < -1) | (self.classes >= count), f"must lie in [-1, {count})")
        refuse("row_type", self.row_type, (self.row_type < 0) | (self.row_type >= count), f"must lie in [0, {count})")
        refuse("probability", self.probability, (self.probability < 0) | (self.probability > 1), "must lie in [0, 1]")
        refuse("radius", self.radius, self.radius < 0, "must not be negative")
        refuse("start", self.start, self.start < 0, "must not be negative")
        if abs(self.start.sum() - 1) > ROW_SUM_TOLERANCE:
            raise InvalidInput(f"start must sum to 1 (within {ROW_SUM_TOLERANCE:g}), got {self.start.sum():.12g}")
        _check_rows(self)

    @cached_property
    def row_kind(self) -> Integers:
        """[S, A] row type of every row."""
        kind: Integers = self.row_type[self.classes.max(axis=2)]
        return kind

    @cached_property
    def multiplicity(self) -> Integers:
        """[C] number of successors that share each class in a row of its type: the same in all rows of a type."""
        return _multiplicity(self)

    def class_probability(self, parameters: Floats) -> Floats:
        """[..., C] at parameters [..., d]; affine families only."""
        if self.affine is None:
            raise InvalidInput("affine must be known to evaluate transitions at a parameter, got None")
        base, slope = self.affine
        return base + parameters @ slope.T

    def law(self, parameters: Floats) -> Floats:
        """[..., C] the same without rounding beyond [0, 1], refused where these are no probabilities."""
        probability = self.class_probability(parameters)
        inside = np.clip(probability, 0.0, 1.0)
        beyond = np.abs(probability - inside) > LAW_TOLERANCE
        if beyond.any():
            raise InvalidInput(
                "parameters must be those of tasks, with transition probabilities in [0, 1], "
                f"got {float(probability[beyond][0])!r} at one of them"
            )
        return inside

    def task(self, parameter: Floats, units: Units) -> TabularCMDP:
        """The task of a parameter [d]; affine families only."""
        per_class = np.append(self.class_probability(parameter), 0.0)  # class -1 picks the last entry
        return TabularCMDP(
            per_class[self.classes],
            self.reward,
            self.cost,
            units.budget,
            self.start,
            units.discount,
            units.reward_range,
            units.cost_range,
            units.horizon,
        )


def _check_rows(model: TransitionModel) -> None:
    """Every row (s, a) is a distribution in every cell, and rows of one type are made of the same classes."""
    states, actions, _ = model.classes.shape
    rows = model.classes.reshape(states * actions, states)
    row, successor = np.nonzero(rows >= 0)
    kind = rows[row, successor]
    often = sp.csr_array((np.ones(len(row)), (row, kind)), shape=(len(rows), len(model.row_type)))  # summed up
    unused = np.bincount(kind, minlength=len(model.row_type)) == 0
    if unused.any():
        raise InvalidInput(f"classes must hold each of {len(unused)} classes somewhere, got no {np.argmax(unused)}")
    type_of_row = model.row_type[rows.max(axis=1)]
    first, like = np.unique(type_of_row, return_index=True, return_inverse=True)[1:]
    strange = np.zeros(len(rows), dtype=bool)
    strange[row[model.row_type[kind] != type_of_row[row]]] = True
    strange[(often - often[first[like]]).nonzero()[0]] = True
    if strange.any():
        raise InvalidInput(
            "row_type must be one and the same for rows of classes that differ only in their order, and for no others; "
            f"it is not for row {divmod(int(np.argmax(strange)), actions)}"
        )
    check_class_sums("probability", model.probability, model)


def check_class_sums(name: str, probability: Floats, model: TransitionModel) -> None:
    """Probabilities [n, C] sum to 1 over every row; those of one type have the same sum."""
    kinds = np.unique(model.row_type)
    shares = probability * _multiplicity(model)
    sums = np.stack([np.bincount(model.row_type, weights=share)[kinds] for share in shares])  # [n, types]
    wrong = np.abs(sums - 1) > ROW_SUM_TOLERANCE
    if wrong.any():
        place, kind = divmod(int(np.argmax(wrong)), len(kinds))
        row = np.argwhere(model.row_type[model.classes.max(axis=2)] == kinds[kind])[0]
        raise InvalidInput(
            f"{name}[{place}] must sum to 1 (within {ROW_SUM_TOLERANCE:g}) over row {tuple(row.tolist())} of classes, "
            f"got {sums[place, kind]:.12g}"
        )


def _multiplicity(model: TransitionModel) -> Integers:
    count = len(model.row_type)
    successors = np.bincount(model.classes[model.classes >= 0], minlength=count)
    rows = np.bincount(model.row_type[model.classes.max(axis=2)].ravel(), minlength=count)
    each: Integers = successors // rows[model.row_type]
    return each
