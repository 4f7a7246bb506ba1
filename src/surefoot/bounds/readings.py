"""What episodes on each cell look like, in their sums and in signals: the learned evidence of a policy set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surefoot.arrays import ROW_SUM_TOLERANCE, Floats, Integers, assign_as_shape, raise_at
from surefoot.errors import InvalidInput
from surefoot.signals.signals import Signals, bins


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
