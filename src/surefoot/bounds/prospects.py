"""What simulated bounds allow: how much of the possible gain, which bound stands in the way, what more would bring.

Nothing rests on these numbers. They compare what may be deployed on a cell with what could be if the values of its
policies were known, by estimates of these values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from surefoot.arrays import Floats
from surefoot.bounds.cells import Cells
from surefoot.bounds.simulation import SAFE
from surefoot.theory import largest_weights

MUCH = 0.9  # of the possible gain, with which nobody need ask for more
MORE = (2, 4, 8, 16, 32)  # times as many episodes
WORTHWHILE = 0.75


@dataclass(frozen=True, eq=False)
class Prospects:
    """Of J cells and P policies.

    Attributes:
        prior: [J] of each cell.
        reward, margin: [J, P], [J, P, m] estimates.
        shown: [J, P, m] margins that the bounds show.
    """

    prior: Floats
    reward: Floats
    margin: Floats
    shown: Floats

    @cached_property
    def share(self) -> float:
        """Of the possible gain, what the bounds allow; NaN where nothing can be gained."""
        return self._share(self.shown)

    @property
    def limiting(self) -> int:
        """The policy of which more would be gained than of any other if its margins were known."""
        policies = range(self.margin.shape[1])
        return int(np.argmax([self._share(_replace(self.shown, self.margin, p)) for p in policies]))

    def after(self, times: float) -> float:
        """The share with so many times as many episodes, about: bounds are then closer by the square root of that."""
        return self._share(self.margin - (self.margin - self.shown) / math.sqrt(times))

    def lines(self, names: Sequence[str], seconds: float) -> tuple[str, ...]:
        """In words, if all this took so many seconds."""
        if math.isnan(self.share):
            return ("nothing can be gained: no candidate that keeps the budgets seems better than the safe policy",)
        first = f"with these bounds about {self.share:.0%} of the possible gain can be had at most"
        if self.share >= MUCH:
            return (first,)
        times = next((each for each in MORE if self.after(each) >= WORTHWHILE), MORE[-1])
        minutes = max(1, math.ceil((times - 1) * seconds / 60))
        return (
            f"{first}; the cost bound of {names[self.limiting]!r} limits it most. About {minutes:,} minute(s) more of "
            f"simulation, {times} times as many episodes, would give {self.after(times):.0%} (an estimate)",
            "a calibration needs no such bounds: surefoot.calibrate(policies, tasks, method='posterior', episodes=…, "
            "minutes=2, seed=…) counts on simulated tasks how bold a learner may be",
        )

    def _share(self, margin: Floats) -> float:
        possible = self._gain(self.margin)
        return min(1.0, self._gain(margin) / possible) if possible > 0 else math.nan

    def _gain(self, margin: Floats) -> float:
        """Over the safe policy, as a mean over cells: of the policy that it pays most to add to it, as much as margins
        [J, P, m] leave safe."""
        gain = (largest_weights(margin) * (self.reward - self.reward[:, [SAFE]])).max(axis=1)
        return float(self.prior @ gain)


def _replace(margins: Floats, by: Floats, policy: int) -> Floats:
    """Margins [J, P, m], those of one policy replaced."""
    found = margins.copy()
    found[:, policy] = by[:, policy]
    return found


def prospects_between(cells: Cells) -> Prospects:
    """Of cells with intervals in the middle of which values seem to be."""
    middle = (cells.lower + cells.upper) / 2
    return Prospects(cells.prior, middle[..., 0], middle[..., 1:], cells.lower[..., 1:])
