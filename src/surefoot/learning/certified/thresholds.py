"""From which evidence on a cell is ruled out: log(1/δ) for ever, as Ville's inequality asks for, or at first more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surefoot.arrays import whole

# How a threshold falls towards the last of a declared number of episodes, per unit of log n.
FALL = 0.25


@dataclass(frozen=True)
class Thresholds:
    """Attributes:
    declared: thresholds fall towards this episode, before which there is more to lose than to gain.
    """

    declared: int | None = None

    def __post_init__(self) -> None:
        if self.declared is not None:
            whole("declared", self.declared)

    def highest(self, level: float) -> float:
        """Evidence that rules out a cell at any time."""
        return self.at(1, level)

    def at(self, episode: int, level: float) -> float:
        """log E(j) from which on cell j is ruled out, after so many episodes."""
        return float(np.log(1 / level)) + self._ahead(episode)

    def _ahead(self, episode: int) -> float:
        """FALL·log(K/n) up to the declared K, 0 from then on."""
        return 0.0 if self.declared is None else FALL * max(0.0, float(np.log(self.declared / max(episode, 1))))


CONSTANT = Thresholds()
