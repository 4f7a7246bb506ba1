"""The values of a policy on a task, exact or estimated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from surefoot.arrays import Floats


@dataclass(frozen=True, eq=False)
class Values:
    """Expected discounted values in the user's units; `margin = budget - cost` is what must not be negative.

    For n policies at once the shapes are reward [n], cost [n, m], margin [n, m].

    Attributes:
        error: [1+m] by how much reward and margins may be off, each in both directions, with the probability that
            whoever estimated them states; None where they are exact.
    """

    reward: Any  # float, or [n]
    cost: Floats  # [m]
    margin: Floats  # [m]
    error: Floats | None = None
