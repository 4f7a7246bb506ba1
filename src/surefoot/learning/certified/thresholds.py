"""From which evidence on a cell is ruled out: log(1/δ) for all of them and for ever, or where more is known, less.

Ville's inequality asks for 1/δ_j, where δ_j is the probability with which cell j may be lost if the task lies in it.
The promise is joint over the task: what must hold is Σ_j P(cell j)·δ_j ≤ δ (docs/guarantees.md, Theorem 4a).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surefoot.arrays import Floats, whole
from surefoot.errors import InvalidInput
from surefoot.policyset.cells import Cells

# The part of the level that is dealt out to cells equally, so that the unlikely ones may go soon; and the most for one.
EQUALLY, MOST = 0.1, 0.9
# How a threshold falls towards the last of a declared number of episodes, per unit of log n.
FALL = 0.25


@dataclass(frozen=True)
class Thresholds:
    """Attributes:
    by_prior: unlikely cells have a larger level, at the price of a slightly smaller one for all others.
    declared: thresholds fall towards this episode, before which there is more to lose than to gain.
    """

    by_prior: bool = False
    declared: int | None = None

    def __post_init__(self) -> None:
        if self.declared is not None:
            whole("declared", self.declared)

    def highest(self, cells: Cells, level: float) -> float:
        """Evidence that rules out any cell at any time; refused where levels need probabilities that nobody knows."""
        if self.by_prior and not cells.prior_known:
            raise InvalidInput(
                f"by_prior must be False where the probabilities of cells are estimates ({cells.source}): they are "
                "known in affine families and finite lists of tasks, got True"
            )
        return float(self.at(1, cells, level).max())

    def at(self, episode: int, cells: Cells, level: float) -> Floats:
        """[J] log E(j) from which on cell j is ruled out, after so many episodes."""
        levels = cell_levels(cells.prior, level) if self.by_prior else np.full(len(cells), level)
        threshold: Floats = np.log(1 / levels) + self._ahead(episode)
        return threshold

    def _ahead(self, episode: int) -> float:
        """FALL·log(K/n) up to the declared K, 0 from then on."""
        return 0.0 if self.declared is None else FALL * max(0.0, float(np.log(self.declared / max(episode, 1))))


CONSTANT = Thresholds()


def cell_levels(prior: Floats, level: float) -> Floats:
    """[J] δ_j with Σ_j q_j δ_j ≤ δ, q_j ≥ P(cell j): (1-λ)δ + λδ/(J q_j), at most MOST."""
    q = prior / prior.sum()
    with np.errstate(divide="ignore", over="ignore"):
        spread = (1 - EQUALLY) * level + EQUALLY * level / (len(q) * q)
    levels: Floats = np.minimum(spread, max(MOST, level))
    return levels
