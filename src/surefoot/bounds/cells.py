"""A partition of everything the task may be, and what is known of every policy on every cell of it.

The certified test phase deploys only what is safe on each cell that has not been ruled out. The cells are not the cover
of Algorithm 1, which may leave up to 6δ of the tasks outside.

Arrays are taken over without a copy where possible, since there may be hundreds of megabytes of them, and are read-only
from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, get_args

import numpy as np

from surefoot.arrays import ROW_SUM_TOLERANCE, Floats, Integers, assign_as_shape, check_indices, raise_at
from surefoot.errors import InvalidInput
from surefoot.signals.signals import Signals, bins
from surefoot.tabular.transition_model import TransitionModel, check_class_sums

Source: TypeAlias = Literal["affine", "finite", "holdout", "monte-carlo"]

MAX_CELLS = 8192  # methods keep a number for every two of them

# No number of an episode is taken for impossible in a bin where simulation never saw it.
DOUBT = 0.02

# Priors come from sums over samples or boxes: they miss 1 - uncovered by rounding, never by this much.
PRIOR_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Cells:
    """J cells with value bounds for P policies (index 0 is the safe one) that hold for every task of a cell.

    Values are the reward and then the m margins, in the user's units.

    Attributes:
        low, high: [J, d] corners of each cell's box; equal for single tasks.
        prior: [J] probability of each cell under the task distribution; they sum to 1 - uncovered.
        lower, upper: [J, P, 1+m] bounds on the values from the start distribution.
        start_lower, start_upper: [J, P, 1+m, F] bounds given the first state; None when not computed.
        source: how the bounds were obtained.
        uncovered: probability that the task lies in no cell, or in one whose bounds it breaks; part of the risk.
        model: transitions of the cells; None when only returns can be simulated.
        outside: [J', d] parameters of boxes that are in no cell; alternatives for the alarm.
        first_states: [F] the states that `start_lower` and `start_upper` are for, ascending: those that episodes can
            begin in. None if these are all states.
        readings: what episodes look like on each cell, for evidence from signals; None if nobody learned it.
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
    first_states: Integers | None = None
    readings: Readings | None = None

    def __post_init__(self) -> None:
        if np.shape(self.low)[:1] == (0,):
            raise InvalidInput("cells must hold at least one cell on which the safe policy is feasible, got none")
        if self.source not in get_args(Source):
            raise InvalidInput(f"source must be one of {list(get_args(Source))}, got {self.source!r}")
        sizes: dict[str, int] = {}
        for name, axes in (("low", "J d"), ("high", "J d"), ("prior", "J"), ("outside", "J' d")):
            assign_as_shape(self, name, axes, sizes)
        for name in ("lower", "upper"):
            assign_as_shape(self, name, "J P 1+m", sizes)
        raise_at("low", self.low, self.low > self.high, "must not exceed high")
        raise_at("lower", self.lower, self.lower > self.upper, "must not exceed upper")
        if (self.start_lower is None) != (self.start_upper is None):
            raise InvalidInput("start_lower and start_upper must be given both or not at all, got one of them")
        if self.start_lower is not None and self.start_upper is not None:
            for name in ("start_lower", "start_upper"):
                assign_as_shape(self, name, "J P 1+m S" if self.first_states is None else "J P 1+m F", sizes)
            raise_at(
                "start_lower", self.start_lower, self.start_lower > self.start_upper, "must not exceed start_upper"
            )
        if self.first_states is not None:
            _check_first_states(self, sizes)
        object.__setattr__(self, "uncovered", float(self.uncovered))
        _check_prior(self)
        if self.model is not None:
            _check_model(self.model, sizes, self.first_states)
            _check_outside(self.model, self.outside)
        if self.readings is not None:
            _check_readings(self.readings, sizes)

    def __len__(self) -> int:
        return len(self.low)

    @property
    def centre(self) -> Floats:
        """[J, d]"""
        return (self.low + self.high) / 2

    @property
    def prior_known(self) -> bool:
        """Whether `prior` is made of probabilities, and not of estimates of them."""
        return self.source in ("affine", "finite")

    @cached_property
    def danger(self) -> Floats:
        """[J] how little margin the policies have on a cell: minus the sum over policies of their smallest margin."""
        smallest: Floats = self.lower[:, :, 1:].min(axis=2).sum(axis=1)
        return -smallest


@dataclass(frozen=True, eq=False)
class Readings:
    """Of J cells, P policies, q signals, and k = 1+m+q numbers of an episode: reward and costs scaled to [0, 1]
    (`Units.scaled`), then the signals.

    Attributes:
        signals: how episodes are read.
        lower, upper: [J, P, q] bounds on the means of the signals, which hold for the tasks of a cell together with
            those on values.
        edges: [k, L-1] ascending, that divide each number's range into L bins.
        values: [k, L] what a number in a bin is taken for.
        law: [J, P, k, L] how often it was there in simulation. Stakes and beliefs follow from it, and no guarantee
            rests on it.
    """

    signals: Signals
    lower: Floats
    upper: Floats
    edges: Floats
    values: Floats
    law: Floats

    def __post_init__(self) -> None:
        sizes = {"P": len(self.signals.centre), "q": len(self.signals)}
        for name, axes in (
            ("lower", "J P q"),
            ("upper", "J P q"),
            ("edges", "k L-1"),
            ("values", "k L"),
            ("law", "J P k L"),
        ):
            assign_as_shape(self, name, axes, sizes)
        if sizes["L"] != sizes["L-1"] + 1:
            raise InvalidInput(f"values must be one more than edges ({sizes['L-1']}), got {sizes['L']}")
        raise_at("lower", self.lower, self.lower > self.upper, "must not exceed upper")
        raise_at("edges", self.edges, np.diff(self.edges, axis=1, prepend=-np.inf) < 0, "must be ascending")
        raise_at("values", self.values, (self.values < 0) | (self.values > 1), "must lie in [0, 1]")
        raise_at("law", self.law, self.law < 0, "must not be negative")
        sums = self.law.sum(axis=-1)
        raise_at("law", sums, np.abs(sums - 1) > ROW_SUM_TOLERANCE, "must sum to 1 over the bins")

    def bins(self, numbers: Floats) -> Integers:
        """[n, k] the bin of each of the numbers [n, k]."""
        return bins(self.edges, numbers)

    @cached_property
    def log_law(self) -> Floats:
        """[P, k, L, J] of the laws, with some doubt in them."""
        law = self.law
        return np.ascontiguousarray(np.log((1 - DOUBT) * law + DOUBT / law.shape[-1]).transpose(1, 2, 3, 0))


def cells_of_bounds(
    low: Floats,
    high: Floats,
    prior: Floats,
    lower: Floats,
    upper: Floats,
    source: Source,
    uncovered: float,
    model: TransitionModel | None,
    outside: Floats | None = None,
    states: Integers | None = None,
    readings: Readings | None = None,
) -> Cells:
    """Cells from bounds [J, P, 1+m, 1+F] or [J, P, 1+m, 1], the start distribution first, then the first `states`."""
    by_start = lower.shape[-1] > 1
    return Cells(
        low,
        high,
        prior,
        np.ascontiguousarray(lower[..., 0]),
        np.ascontiguousarray(upper[..., 0]),
        np.ascontiguousarray(lower[..., 1:]) if by_start else None,
        np.ascontiguousarray(upper[..., 1:]) if by_start else None,
        source,
        uncovered,
        model,
        np.empty((0, low.shape[1])) if outside is None else outside,
        states if by_start else None,
        readings,
    )


# ------------------------------------------------------------------------------------------------ checks, in call order


def _check_first_states(cells: Cells, sizes: dict[str, int]) -> None:
    if cells.start_lower is None:
        raise InvalidInput("first_states must come with start_lower and start_upper, got neither of these")
    assign_as_shape(cells, "first_states", "F", sizes, np.int64)
    first = np.asarray(cells.first_states)
    raise_at("first_states", first, np.diff(first, prepend=-1) <= 0, "must be states in ascending order")


def _check_prior(cells: Cells) -> None:
    raise_at("prior", cells.prior, cells.prior < 0, "must not be negative")
    total = float(cells.prior.sum())
    if total > 1 + ROW_SUM_TOLERANCE:
        raise InvalidInput(f"prior must sum to at most 1, got {total:.12g}")
    if not 0 <= cells.uncovered <= 1:
        raise InvalidInput(f"uncovered must be a probability, got {cells.uncovered!r}")
    if abs(total + cells.uncovered - 1) > PRIOR_SUM_TOLERANCE:
        raise InvalidInput(f"prior and uncovered must sum to 1, got {total:.12g} and {cells.uncovered!r}")


def _check_model(model: TransitionModel, sizes: dict[str, int], first_states: Integers | None) -> None:
    """The model speaks of the same cells, states, constraints and parameters as the bounds."""
    states, constraints = model.n_states, sizes["1+m"] - 1
    known = constraints if model.n_constraints is None else model.n_constraints
    found = {"cells": len(model.probability), "constraints": known, "states": states}
    expected = {"cells": sizes["J"], "constraints": constraints, "states": sizes.get("S", states)}
    if first_states is not None:
        check_indices("first_states", first_states, states)
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
        check_class_sums("transitions", model.law(outside), model)
    except InvalidInput as error:
        raise InvalidInput(f"outside must hold parameters of tasks ({error}); train again") from None


def _check_readings(readings: Readings, sizes: dict[str, int]) -> None:
    """They speak of the same cells, policies and constraints as the bounds."""
    cells, policies, numbers, _ = readings.law.shape
    expected = (sizes["J"], sizes["P"], sizes["1+m"] + len(readings.signals))
    if (cells, policies, numbers) != expected:
        raise InvalidInput(
            "readings must be of as many cells, policies and numbers of an episode as the bounds, "
            f"{list(expected)}, got {[cells, policies, numbers]}"
        )
