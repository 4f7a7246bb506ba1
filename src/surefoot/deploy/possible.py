"""What is still possible in the parameters of the family. The journal does not say; its policy set does, by replay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from surefoot.arrays import Floats
from surefoot.deploy.blocks import Blocks
from surefoot.deploy.chain import Damaged, Row
from surefoot.deploy.forms import opening
from surefoot.deploy.history import Thinned
from surefoot.deploy.replay import Departure, Replay, check_header
from surefoot.learning.learner import Learner
from surefoot.learning.method import Method

Range = tuple[float, float]


@dataclass(frozen=True)
class Left:
    """From an episode on, the smallest and the largest value of each parameter that is not ruled out."""

    episode: int
    ranges: tuple[Range, ...]


class Possible:
    """Follows a journal with a fresh learner, made as its row 0 says; every row is computed again on the way.

    Attributes:
        everything: the range of each parameter over all cells or candidates.
    """

    def __init__(self, learner: Learner) -> None:
        self._learner, self._blocks = learner, Blocks(Replay(learner))
        low, high = _boxes(learner.method)
        self.everything: tuple[Range, ...] = _ranges(low, high)
        self.ranges: Thinned[Left] = Thinned(lambda one, other: Left(one.episode, other.ranges))

    def add(self, row: Row) -> None:
        if row.n == 0:
            found = opening(row, "the journal")
            check_header(found, self._learner, "the journal", found.get("key"))
            return
        with _departures():
            self._blocks.add(row)
        if row.kind == "decision":
            left = _left(self._learner)
            if left:
                self.ranges.add(Left(row.data["episode"], left))

    def finish(self) -> None:
        """Rows that were added may not have been looked at before this."""
        with _departures():
            self._blocks.finish()


@contextmanager
def _departures() -> Iterator[None]:
    try:
        yield
    except Departure as error:
        raise Damaged(f"row {error.row} does not follow from the policy set: {error}", error.row) from None


def _left(learner: Learner) -> tuple[Range, ...]:
    """Of the cells that survive, or the candidates that are alive; none if nothing is left."""
    kept = np.array(learner.method.surviving(learner.state.method), dtype=np.int64)
    low, high = _boxes(learner.method)
    return _ranges(low[kept], high[kept]) if len(kept) and len(low) else ()


def _boxes(method: Method) -> tuple[Floats, Floats]:
    """[J, d] corners of the cells, or the parameters of the candidates twice; J = 0 for a method that has neither."""
    if method.cells is not None:
        return method.cells.low, method.cells.high
    if method.policies is None:
        return np.empty((0, 0)), np.empty((0, 0))
    centres = np.array([entry.parameter for entry in method.policies.entries])
    return centres, centres


def _ranges(low: Floats, high: Floats) -> tuple[Range, ...]:
    if not len(low):
        return ()
    return tuple(zip(low.min(axis=0).tolist(), high.max(axis=0).tolist(), strict=True))
