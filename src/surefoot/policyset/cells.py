"""A partition of everything the task may be, and what is known of every policy on every cell of it.

The certified test phase deploys only what is safe on each cell that has not been ruled out. The cells are not the cover
of Algorithm 1, which may leave up to 6δ of the tasks outside.

Arrays are taken over without a copy where possible, since there may be hundreds of megabytes of them, and are read-only
from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from surefoot.cmdp.episode import Integers
from surefoot.cmdp.model import ROW_SUM_TOLERANCE, Floats, TabularCMDP, Units
from surefoot.errors import InvalidInput

Mask: TypeAlias = NDArray[np.bool_]
Source: TypeAlias = Literal["affine", "finite", "holdout", "monte-carlo"]

# Probabilities computed from a parameter may miss [0, 1] by rounding, never by this much.
LAW_TOLERANCE = 1e-12
# Priors come from sums over samples or boxes: they miss 1 - uncovered by rounding, never by this much.
PRIOR_SUM_TOLERANCE = 1e-6


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
            _take_over(self, name, axes, sizes, np.int64)
        for name, axes in (
            ("probability", "J C"),
            ("radius", "J"),
            ("reward", "S A"),
            ("cost", "m S A"),
            ("start", "S"),
        ):
            _take_over(self, name, axes, sizes)
        if self.affine is not None:
            base, slope = self.affine
            pair = (_taken("affine[0]", base, "C", sizes), _taken("affine[1]", slope, "C d", sizes))
            object.__setattr__(self, "affine", pair)
        count = sizes["C"]
        _refuse("classes", self.classes, (self.classes < -1) | (self.classes >= count), f"must lie in [-1, {count})")
        _refuse("row_type", self.row_type, (self.row_type < 0) | (self.row_type >= count), f"must lie in [0, {count})")
        _refuse("probability", self.probability, (self.probability < 0) | (self.probability > 1), "must lie in [0, 1]")
        _refuse("radius", self.radius, self.radius < 0, "must not be negative")
        _refuse("start", self.start, self.start < 0, "must not be negative")
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
        )


@dataclass(frozen=True, eq=False)
class Cells:
    """J cells with value bounds for P policies (index 0 is the safe one) that hold for every task of a cell.

    Values are the reward and then the m margins, in the user's units.

    Attributes:
        low, high: [J, d] corners of each cell's box; equal for single tasks.
        prior: [J] probability of each cell under the task distribution; they sum to 1 - uncovered.
        lower, upper: [J, P, 1+m] bounds on the values from the start distribution.
        start_lower, start_upper: [J, P, 1+m, S] bounds given the first state; None when not computed.
        source: how the bounds were obtained.
        uncovered: probability that the task lies in no cell, or in one whose bounds it breaks; part of the risk.
        model: transitions of the cells; None when only returns can be simulated.
        outside: [J', d] parameters of boxes that are in no cell; alternatives for the alarm.
    """

    low: Floats
    high: Floats
    prior: Floats
    lower: Floats
    upper: Floats
    start_lower: Floats | None
    start_upper: Floats | None
    source: Source
    uncovered: float
    model: TransitionModel | None
    outside: Floats

    def __post_init__(self) -> None:
        if np.shape(self.low)[:1] == (0,):
            raise InvalidInput("cells must hold at least one cell on which the safe policy is feasible, got none")
        if self.source not in get_args(Source):
            raise InvalidInput(f"source must be one of {list(get_args(Source))}, got {self.source!r}")
        sizes: dict[str, int] = {}
        for name, axes in (("low", "J d"), ("high", "J d"), ("prior", "J"), ("outside", "J' d")):
            _take_over(self, name, axes, sizes)
        for name in ("lower", "upper"):
            _take_over(self, name, "J P 1+m", sizes)
        _refuse("low", self.low, self.low > self.high, "must not exceed high")
        _refuse("lower", self.lower, self.lower > self.upper, "must not exceed upper")
        if (self.start_lower is None) != (self.start_upper is None):
            raise InvalidInput("start_lower and start_upper must be given both or not at all, got one of them")
        if self.start_lower is not None and self.start_upper is not None:
            for name in ("start_lower", "start_upper"):
                _take_over(self, name, "J P 1+m S", sizes)
            _refuse("start_lower", self.start_lower, self.start_lower > self.start_upper, "must not exceed start_upper")
        object.__setattr__(self, "uncovered", float(self.uncovered))
        _check_prior(self)
        if self.model is not None:
            _check_model(self.model, sizes)
            _check_outside(self.model, self.outside)

    def __len__(self) -> int:
        return len(self.low)

    @property
    def centre(self) -> Floats:
        """[J, d]"""
        return (self.low + self.high) / 2

    @cached_property
    def danger(self) -> Floats:
        """[J] how little margin the policies have on a cell: minus the sum over policies of their smallest margin."""
        smallest: Floats = self.lower[:, :, 1:].min(axis=2).sum(axis=1)
        return -smallest


# ------------------------------------------------------------------------------------------------ checks, in call order


def _take_over(target: Any, name: str, axes: str, sizes: dict[str, int], kind: type = np.float64) -> None:
    object.__setattr__(target, name, _taken(name, getattr(target, name), axes, sizes, kind))


def _taken(name: str, value: Any, axes: str, sizes: dict[str, int], kind: type = np.float64) -> NDArray[Any]:
    """`value` read-only, of a shape such as "J P 1+m"; an axis met for the first time adds its length to `sizes`."""
    array = np.asarray(value)
    if array.dtype.kind not in ("iu" if kind is np.int64 else "iuf"):
        what = "whole numbers" if kind is np.int64 else "numbers"
        raise InvalidInput(f"{name} must be an array of {what}, got {type(value).__name__} of type {array.dtype}")
    labels = axes.split()
    known = [sizes.get(label, "any" if label == "J'" else "≥ 1") for label in labels]
    fits = array.ndim == len(labels) and all(
        sizes.setdefault(label, length) == length and (length or label == "J'")
        for label, length in zip(labels, array.shape, strict=True)
    )
    if not fits:
        raise InvalidInput(
            f"{name} must have shape [{', '.join(labels)}] = [{', '.join(map(str, known))}], got {list(array.shape)}"
        )
    borrowed = array.flags.writeable and not array.flags.owndata  # changing what it is a view of would change it
    array = np.array(array, dtype=kind, order="C", copy=True if borrowed else None)
    finite = np.isfinite(array)
    if not finite.all():
        _refuse(name, array, ~finite, "must be finite")
    array.setflags(write=False)
    return array


def _refuse(name: str, values: NDArray[Any], bad: Mask, rule: str) -> None:
    """Raise for the first entry of `values` that is marked bad."""
    if bad.any():
        index = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise InvalidInput(f"{name}[{', '.join(map(str, index))}] {rule}, got {values[index].item()!r}")


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
    _check_sums("probability", model.probability, model)


def _check_sums(name: str, probability: Floats, model: TransitionModel) -> None:
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


def _check_prior(cells: Cells) -> None:
    _refuse("prior", cells.prior, cells.prior < 0, "must not be negative")
    total = float(cells.prior.sum())
    if total > 1 + ROW_SUM_TOLERANCE:
        raise InvalidInput(f"prior must sum to at most 1, got {total:.12g}")
    if not 0 <= cells.uncovered <= 1:
        raise InvalidInput(f"uncovered must be a probability, got {cells.uncovered!r}")
    if abs(total + cells.uncovered - 1) > PRIOR_SUM_TOLERANCE:
        raise InvalidInput(f"prior and uncovered must sum to 1, got {total:.12g} and {cells.uncovered!r}")


def _check_model(model: TransitionModel, sizes: dict[str, int]) -> None:
    """The model speaks of the same cells, states, constraints and parameters as the bounds."""
    states, _, _ = model.classes.shape
    found = {"cells": len(model.probability), "constraints": len(model.cost), "states": states}
    expected = {"cells": sizes["J"], "constraints": sizes["1+m"] - 1, "states": sizes.get("S", states)}
    if model.affine is not None:
        found["parameters"], expected["parameters"] = model.affine[1].shape[1], sizes["d"]
    for name, number in found.items():
        if number != expected[name]:
            raise InvalidInput(f"model must have as many {name} as the bounds ({expected[name]}), got {number}")


def _check_outside(model: TransitionModel, outside: Floats) -> None:
    """Alternatives are tasks: a numerator of probabilities that sum to more than 1 would be evidence for nothing."""
    if model.affine is None or not len(outside):
        return
    try:
        _check_sums("transitions", model.law(outside), model)
    except InvalidInput as error:
        raise InvalidInput(f"outside must hold parameters of tasks ({error}); train again") from None
