"""Transition probabilities of every cell of a partition of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from surefoot.arrays import ROW_SUM_TOLERANCE, Floats, Integers, as_shape, assign_as_shape, raise_at
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tabular.affine import AffineTables
from surefoot.tabular.model import TabularCMDP

# Probabilities computed from a parameter may miss [0, 1] by rounding, never by this much.
LAW_TOLERANCE = 1e-12
# Up to this many triples (s, a, s') a table of all of them is the fastest way to find one; it takes 16 MB at most.
LARGEST_TABLE = 2**22


@dataclass(frozen=True, eq=False)
class TransitionModel:
    """Transition probabilities of every cell, with equal ones stored once.

    E transitions are possible in some cell; they are ordered by row s·A + a, then by successor. A row type is a row up
    to the order of its successors; a class is one entry of one row type. What was observed enters every likelihood only
    through how often each class occurred.

    Attributes:
        indptr: [S·A + 1] where the transitions of each row begin.
        successor: [E] state that each leads to.
        classes: [E] class of each.
        row_type: [C] row type that each class belongs to.
        probability: [J, C] at the centre of each cell.
        affine: (base [C], slope [C, d]) when P_θ = base + slope·θ for every θ; None otherwise.
        radius: [J] total variation between a cell's centre and the farthest of its members, over all rows.
        start: [S], shared by all cells.
        reward, cost: [S, A], [m, S, A] that every step pays, in all cells; None where that is not so.
        payments: [1+m, E] reward and costs that every transition pays, in all cells, where they depend on the next
            state; None otherwise. Without either, cells differ in what they pay, and only transitions tell them apart.
    """

    indptr: Integers
    successor: Integers
    classes: Integers
    row_type: Integers
    probability: Floats
    affine: tuple[Floats, Floats] | None
    radius: Floats
    start: Floats
    reward: Floats | None = None
    cost: Floats | None = None
    payments: Floats | None = None

    def __post_init__(self) -> None:
        sizes: dict[str, int] = {}
        for name, axes in (("indptr", "1+S·A"), ("successor", "E"), ("classes", "E"), ("row_type", "C")):
            assign_as_shape(self, name, axes, sizes, np.int64)
        for name, axes in (("start", "S"), ("probability", "J C"), ("radius", "J")):
            assign_as_shape(self, name, axes, sizes)
        _check_structure(self)
        sizes["A"] = self.n_actions
        for name, axes in (("reward", "S A"), ("cost", "m S A"), ("payments", "1+m E")):
            if getattr(self, name) is not None:
                assign_as_shape(self, name, axes, sizes)
        if (self.reward is None) != (self.cost is None) or (self.reward is not None and self.payments is not None):
            raise InvalidInput("reward and cost must be given both, payments instead of them, or none of the three")
        if self.affine is not None:
            base, slope = self.affine
            pair = (as_shape("affine[0]", base, "C", sizes), as_shape("affine[1]", slope, "C d", sizes))
            object.__setattr__(self, "affine", pair)
        count = sizes["C"]
        raise_at("classes", self.classes, (self.classes < 0) | (self.classes >= count), f"must lie in [0, {count})")
        raise_at("row_type", self.row_type, (self.row_type < 0) | (self.row_type >= count), f"must lie in [0, {count})")
        raise_at("probability", self.probability, (self.probability < 0) | (self.probability > 1), "must lie in [0, 1]")
        raise_at("radius", self.radius, self.radius < 0, "must not be negative")
        raise_at("start", self.start, self.start < 0, "must not be negative")
        if abs(self.start.sum() - 1) > ROW_SUM_TOLERANCE:
            raise InvalidInput(f"start must sum to 1 (within {ROW_SUM_TOLERANCE:g}), got {self.start.sum():.12g}")
        _check_rows(self)

    @property
    def n_states(self) -> int:
        return len(self.start)

    @property
    def n_actions(self) -> int:
        return (len(self.indptr) - 1) // len(self.start)

    @property
    def n_constraints(self) -> int | None:
        """m; None where payments are not known."""
        if self.cost is not None:
            return len(self.cost)
        return None if self.payments is None else len(self.payments) - 1

    @cached_property
    def row(self) -> Integers:
        """[E] row of each transition."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))

    @cached_property
    def row_kind(self) -> Integers:
        """[S·A] row type of every row."""
        kind: Integers = self.row_type[self.classes[self.indptr[:-1]]]
        return kind

    @cached_property
    def multiplicity(self) -> Integers:
        """[C] number of successors that share each class in a row of its type: the same in all rows of a type."""
        return _multiplicity(self)

    @cached_property
    def class_table(self) -> Integers:
        """[S, A, S] class of each transition; -1 where it is impossible in every cell."""
        table = np.full((len(self.indptr) - 1, self.n_states), -1)
        table[self.row, self.successor] = self.classes
        return table.reshape(self.n_states, self.n_actions, self.n_states)

    def find(self, states: Integers, actions: Integers, successors: Integers) -> Integers:
        """[...] place 0 ... E-1 of each transition; -1 where it is impossible in every cell."""
        key = (states * self.n_actions + actions) * self.n_states + successors
        if self._places is not None:
            found: Integers = self._places[key]
            return found
        place = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        return np.where(self._keys[place] == key, place, -1)

    @cached_property
    def _keys(self) -> Integers:
        """[E] ascending."""
        return self.row * self.n_states + self.successor

    @cached_property
    def _places(self) -> Integers | None:
        size = (len(self.indptr) - 1) * self.n_states
        if size > LARGEST_TABLE:
            return None
        places = np.full(size, -1, dtype=np.int32)
        places[self._keys] = np.arange(len(self._keys))
        return places

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

    @property
    def pays(self) -> bool:
        """Whether it is known what a step pays, so that tasks can be made of it."""
        return self.reward is not None or self.payments is not None

    def task(self, parameter: Floats, units: Units) -> TabularCMDP:
        """The task of a parameter [d]; affine families whose payments are known only."""
        rows = self._matrix(self.class_probability(parameter)[self.classes])
        transitions = rows
        if len(self.indptr) * self.n_states <= LARGEST_TABLE:
            transitions = rows.toarray().reshape(self.n_states, self.n_actions, self.n_states)
        reward, cost = self._payments()
        return TabularCMDP(
            transitions,
            reward,
            cost,
            units.budget,
            self.start,
            units.discount,
            units.reward_range,
            units.cost_range,
            units.horizon,
        )

    def _payments(self) -> tuple[Any, Any]:
        """Reward and cost as a task takes them."""
        if self.payments is not None:
            reward, *cost = (self._matrix(payment) for payment in self.payments)
            return reward, cost
        if self.reward is None:
            raise InvalidInput("payments must be known to make a task, got none")
        return self.reward, self.cost

    def affine_tables(self) -> AffineTables:
        """The same family for value bounds; affine families whose payments are known only."""
        if self.affine is None or not self.pays:
            raise InvalidInput("affine and the payments must be known to bound values over boxes, got none")
        base, slope = self.affine[0][self.classes], self.affine[1][self.classes].T
        if self.reward is not None and self.cost is not None:
            signals = np.concatenate([self.reward[None], self.cost])
            return AffineTables(
                self.indptr, self.successor, base, slope, signals, np.zeros((len(slope), *signals.shape))
            )
        shape = (-1, self.n_states, self.n_actions)
        means = np.add.reduceat(np.concatenate([base[None], slope])[:, None] * self.payments, self.indptr[:-1], axis=2)
        means = means.reshape(len(means), *shape)
        return AffineTables(self.indptr, self.successor, base, slope, means[0], means[1:])

    def _matrix(self, entries: Floats) -> sp.csr_array:
        """[S·A, S]"""
        return sp.csr_array((entries, self.successor, self.indptr), shape=(len(self.indptr) - 1, self.n_states))


def structure_of(class_table: Integers, count: int) -> tuple[Integers, Integers, Integers]:
    """indptr, successor and classes of a table [S, A, S] of `count` classes, as `TransitionModel.class_table` is."""
    table = as_shape("classes", class_table, "S A S", {}, np.int64)
    raise_at("classes", table, (table < -1) | (table >= count), f"must lie in [-1, {count})")
    rows = table.reshape(-1, table.shape[2])
    row, successor = np.nonzero(rows >= 0)
    return np.searchsorted(row, np.arange(len(rows) + 1)), successor, rows[row, successor]


def _check_structure(model: TransitionModel) -> None:
    """Every row of a state and an action has successors, each once and in order."""
    rows, count = len(model.indptr) - 1, len(model.successor)
    if rows <= 0 or rows % model.n_states:
        raise InvalidInput(f"indptr must have 1 + S·A entries, S = {model.n_states} as in start, got {rows + 1}")
    steps = np.diff(model.indptr)
    if model.indptr[0] != 0 or model.indptr[-1] != count or (steps <= 0).any():
        short = divmod(int(np.argmax(steps <= 0)), model.n_actions)
        raise InvalidInput(f"indptr must rise from 0 to {count}, a successor in every row, got none in row {short}")
    outside = (model.successor < 0) | (model.successor >= model.n_states)
    raise_at("successor", model.successor, outside, f"must lie in [0, {model.n_states})")
    if (np.diff(model.row * model.n_states + model.successor) <= 0).any():
        raise InvalidInput("successor must ascend within every row")


def _check_rows(model: TransitionModel) -> None:
    """Every row is a distribution in every cell, and rows of one type are made of the same classes."""
    row, kind = model.row, model.classes
    often = sp.csr_array((np.ones(len(row)), (row, kind)), shape=(len(model.indptr) - 1, len(model.row_type)))
    unused = np.bincount(kind, minlength=len(model.row_type)) == 0
    if unused.any():
        raise InvalidInput(f"classes must hold each of {len(unused)} classes somewhere, got no {np.argmax(unused)}")
    first, like = np.unique(model.row_kind, return_index=True, return_inverse=True)[1:]
    strange = np.zeros(len(model.row_kind), dtype=bool)
    strange[row[model.row_type[kind] != model.row_kind[row]]] = True
    strange[(often - often[first[like]]).nonzero()[0]] = True
    if strange.any():
        raise InvalidInput(
            "row_type must be one and the same for rows of classes that differ only in their order, and for no others; "
            f"it is not for row {divmod(int(np.argmax(strange)), model.n_actions)}"
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
        row = divmod(int(np.argmax(model.row_kind == kinds[kind])), model.n_actions)
        raise InvalidInput(
            f"{name}[{place}] must sum to 1 (within {ROW_SUM_TOLERANCE:g}) over row {row} of classes, "
            f"got {sums[place, kind]:.12g}"
        )


def _multiplicity(model: TransitionModel) -> Integers:
    count = len(model.row_type)
    successors = np.bincount(model.classes, minlength=count)
    rows = np.bincount(model.row_kind, minlength=count)
    each: Integers = successors // rows[model.row_type]
    return each
