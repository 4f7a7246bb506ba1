"""A partition of everything the task may be, and what is known of every policy on every cell of it.

The certified test phase deploys only what is safe on each cell that has not been ruled out. The cells are not the cover
of Algorithm 1, which may leave up to 6δ of the tasks outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surefoot.cmdp.episode import Integers
from surefoot.cmdp.model import Floats, TabularCMDP, Units
from surefoot.errors import InvalidInput

Mask: TypeAlias = NDArray[np.bool_]
Source: TypeAlias = Literal["affine", "finite", "holdout", "monte-carlo"]


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

    @cached_property
    def multiplicity(self) -> Integers:
        """[C] number of successors that share each class in a row of its type."""
        rows = self.classes.reshape(-1, self.classes.shape[2])
        counts = np.zeros((len(rows), len(self.row_type)), dtype=np.int64)
        row, successor = np.nonzero(rows >= 0)
        np.add.at(counts, (row, rows[row, successor]), 1)
        most: Integers = counts.max(axis=0)
        return most

    def class_probability(self, parameters: Floats) -> Floats:
        """[..., C] at parameters [..., d]; affine families only."""
        if self.affine is None:
            raise InvalidInput("affine must be known to evaluate transitions at a parameter, got None")
        base, slope = self.affine
        return base + parameters @ slope.T

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
        count = len(self.low)
        if not count:
            raise InvalidInput("cells must hold at least one cell on which the safe policy is feasible, got none")
        for name in ("high", "prior", "lower", "upper"):
            if len(getattr(self, name)) != count:
                raise InvalidInput(f"{name} must have one row per cell ({count}), got {len(getattr(self, name))}")
        if not 0 <= self.uncovered <= 1:
            raise InvalidInput(f"uncovered must be a probability, got {self.uncovered!r}")
        if (self.lower > self.upper).any():
            raise InvalidInput("lower must not exceed upper anywhere")

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
