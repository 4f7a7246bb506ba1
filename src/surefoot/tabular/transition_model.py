"""Transition probabilities of every cell of a partition of tasks, grouped into classes that every likelihood shares."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from surefoot.arrays import (
    ROW_SUM_ROUNDING,
    ROW_SUM_TOLERANCE,
    Floats,
    Integers,
    Mask,
    as_shape,
    assign_as_shape,
    raise_at,
)
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tabular.affine import AffineTables
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.tables import Payments

# Probabilities computed from a parameter may miss [0, 1] by rounding, never by this much.
LAW_TOLERANCE = 1e-12
# Up to this many triples (s, a, s') a table of all of them is the fastest way to find one; it takes 16 MB at most.
LARGEST_TABLE = 2**22
# Entries that agree to this many digits, relative to the largest of them over all cells, are one class.
DIGITS = 12
# Transitions that are less likely than this in every cell are impossible; rounding makes such entries out of 0.
IMPOSSIBLE = 1e-15
# Where one decade of sizes ends and the next begins: not at a number that is a common probability.
DECADE = 3.7


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


# ------------------------------------------------------------------------------------------------ models of partitions


def affine_model(
    affine: AffineTables, payments: Payments | None, start: Floats, low: Floats, high: Floats
) -> TransitionModel:
    """Cells are boxes [J, d] of a family with P_θ = P₀ + Σ_k θ_k G_k; `payments` if all of its tasks share them."""
    # Entries are compared as probabilities, at the middle of all boxes and by how they change from there to the edges:
    # slopes have the units of 1/parameter, so that rounding them would merge whatever is small in those.
    lowest, highest = low.min(axis=0), high.max(axis=0)
    middle = affine.probabilities((lowest + highest) / 2)
    features = np.column_stack([middle, (((highest - lowest) / 2)[:, None] * affine.slope).T])
    possible = _possible(features)
    classes, row_type, place = transition_classes(features[possible], affine.row[possible])
    base, slope = affine.base[possible][place], affine.slope[:, possible][:, place].T
    reach = np.add.reduceat(np.abs(affine.slope), affine.indptr[:-1], axis=1).max(axis=1) / 2  # [d] TV per unit of each
    return TransitionModel(
        *_structure(affine.indptr, affine.successor, possible),
        classes,
        row_type,
        without_rounding(base + (low + high) / 2 @ slope.T),
        (base, slope),
        (high - low) / 2 @ reach,
        start,
        *_payment_arguments(payments, affine.row[possible], affine.successor[possible]),
    )


def ball_model(tasks: Sequence[TabularCMDP], radius: Floats) -> TransitionModel | None:
    """Cells are balls of radius [J] around given tasks; None unless these share one start."""
    first = tasks[0]
    if not all(np.array_equal(task.start, first.start) for task in tasks):
        return None
    shared = all(task.payments.same_as(first.payments) for task in tasks)
    anywhere = sum(task.rows for task in tasks[1:]) + first.rows if len(tasks) > 1 else first.rows
    row, successor = anywhere.nonzero()
    order = np.lexsort((successor, row))
    row, successor = row[order], successor[order]
    entries = np.column_stack([np.asarray(task.rows[row, successor]) for task in tasks])
    possible = _possible(entries)
    classes, row_type, place = transition_classes(entries[possible], row[possible])
    return TransitionModel(
        *_structure(np.searchsorted(row, np.arange(first.rows.shape[0] + 1)), successor, possible),
        classes,
        row_type,
        without_rounding(entries[possible][place].T),
        None,
        radius,
        first.start,
        *_payment_arguments(first.payments if shared else None, row[possible], successor[possible]),
    )


def transition_classes(features: Floats, row: Integers) -> tuple[Integers, Integers, Integers]:
    """Group E entries with features [E, K], of rows [E] in order: class of each, row type of each class [C], the place
    of one entry of each class [C]. Features are probabilities or differences of such, not all zero but for rounding."""
    size = np.abs(features).max(axis=1)
    decade = 10.0 ** np.ceil(np.log10(np.maximum(size, IMPOSSIBLE) / DECADE))
    # Adding 0 leaves no -0.0, so that equal bytes mean equal values.
    rounded = np.column_stack([np.round(features / decade[:, None], DIGITS) + 0.0, decade])
    keys = [hashlib.blake2b(entry.tobytes(), digest_size=16).digest() for entry in rounded]
    classes = np.empty(len(features), dtype=np.int64)
    rows: dict[tuple[bytes, ...], int] = {}
    known: dict[tuple[int, bytes], int] = {}
    row_type: list[int] = []
    places: list[int] = []
    ends = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
    for first, last in pairwise(ends):
        kind = rows.setdefault(tuple(sorted(keys[first:last])), len(rows))
        for place in range(first, last):
            entry = (kind, keys[place])
            if entry not in known:
                known[entry] = len(known)
                row_type.append(kind)
                places.append(place)
            classes[place] = known[entry]
    return classes, np.array(row_type), np.array(places)


def _possible(features: Floats) -> Mask:
    """[E] which transitions are more than rounding of 0 in some cell."""
    possible: Mask = np.abs(features).max(axis=1) > IMPOSSIBLE
    return possible


def _structure(indptr: Integers, successor: Integers, kept: Mask) -> tuple[Integers, Integers]:
    """indptr and successor of the transitions that are kept."""
    before = np.concatenate([[0], np.cumsum(kept)])
    return before[indptr], successor[kept]


def _payment_arguments(
    payments: Payments | None, row: Integers, successor: Integers
) -> tuple[Floats | None, Floats | None, Floats | None]:
    """reward, cost and payments of a transition model with E transitions."""
    if payments is None:
        return None, None, None
    if not payments.by_transition:
        return payments.by_pair[0], payments.by_pair[1:], None
    states, actions = np.divmod(row, payments.by_pair.shape[2])
    return None, None, payments.at(states, actions, successor).T


def without_rounding(probability: Floats) -> Floats:
    """Probabilities [J, C] of which some may miss [0, 1] by rounding; what misses it by more is left for all to see."""
    inside = np.clip(probability, 0.0, 1.0)
    return np.where(np.abs(probability - inside) <= ROW_SUM_ROUNDING, inside, probability)
