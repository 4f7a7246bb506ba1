"""Regret that is certified while a method runs: the most that surviving cells allow (docs, Theorem 10)."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot.arrays import Floats, Mask
from surefoot.errors import InvalidInput
from surefoot.lab.analysis.optimum_bounds import optimum_bounds
from surefoot.learning.certified.method import Certified
from surefoot.learning.learner import Learner
from surefoot.learning.method import Method
from surefoot.tabular.expansion import box_values


class RegretCertificate:
    """Adds up, episode by episode, the largest gap to the optimum that the surviving cells allow.

    With probability at least 1 - risk the regret of the first k episodes is at most the k-th of `totals`, for all k at
    once. `note` is the observer of a simulated run, or is called after every outcome that is told.
    """

    def __init__(self, learner: Learner, optimum: Floats) -> None:
        """Args:
        optimum: [J] upper bounds on the optimal reward of every task of each cell, see `cell_optima`.
        """
        if not isinstance(learner.method, Certified) or learner.method.calibration is not None:
            raise InvalidInput(f"learner must be one of a certified method with cells, got {learner.name}")
        if learner.settings.get("shift"):
            raise InvalidInput(
                "learner must have no shift: the optima are those of the tasks of its cells, not of tasks around them, "
                f"got shift {learner.settings['shift']:g}"
            )
        self.learner, self.method, self.optimum = learner, learner.method, optimum
        self._planned: dict[int, Floats] = {}  # [J] lower bounds on the rewards of planned policies
        self._first = learner.state.episode
        self._gaps: list[tuple[int, float]] = []  # each with the number of episodes told when it began to hold
        self.note(self._first)

    def note(self, done: int, _: int = 0) -> None:
        """After `done` episodes: what is deployed from now on."""
        deployed, state = self.learner.deployed, self.learner.state.method
        lower = np.stack([self._reward_lower(state, int(index)) for index in deployed.indices], axis=1)
        self._gaps.append((done, largest_gap(self.optimum, lower @ deployed.weights, state.surviving)))

    def totals(self, episodes: int) -> Floats:
        """[K] certified regret after each of the first K episodes since the learner was taken over."""
        since, gaps = zip(*self._gaps, strict=True)
        lengths = np.diff(since, append=max(since[-1], self._first + episodes))
        total: Floats = np.cumsum(np.repeat(gaps, lengths))[:episodes]
        return total

    def _reward_lower(self, state: Any, index: int) -> Floats:
        """[J]"""
        known = len(self.method.policies.policies)
        if index < known:
            of_set: Floats = self.method.cells.lower[:, index, 0]
            return of_set
        if index not in self._planned:
            self._planned[index] = _planned_lower(self.method, state.planned[index - known].policy)
        return self._planned[index]


def largest_gap(optimum: Floats, reward_lower: Floats, surviving: Mask) -> float:
    """max_j V*_upper[j] - lower[j] over the surviving cells; over all of them if there are none, which has no more than
    the probability of the risk."""
    gap = optimum - reward_lower
    return max(0.0, float(gap[surviving].max() if surviving.any() else gap.max()))


def cell_optima(method: Method) -> Floats:
    """[J] upper bounds on the optimal reward of every task of each cell, for boxes of an affine family."""
    if not isinstance(method, Certified) or method.calibration is not None:
        raise InvalidInput(f"method must be a certified one with cells, got {method.name}")
    cells = method.cells
    if cells.model is None or cells.model.affine is None:
        raise InvalidInput(f"cells must be boxes of an affine family for bounds on optima, got {cells.source!r} ones")
    centres = [cells.model.task(centre, method.units) for centre in cells.centre]
    return optimum_bounds(cells.model.affine_tables(), centres, cells.low, cells.high)


def _planned_lower(method: Certified, policy: Any) -> Floats:
    """[J] by Theorem 1a on every cell, the least possible where a box is too wide."""
    cells, least = method.cells, method.units.possible_values(ends=False)[0][0]
    example = cells.model.task(cells.centre[0], method.units)  # type: ignore[union-attr]
    lower, _ = box_values(cells.model.affine_tables(), example, policy, cells.low, cells.high, np.zeros(0, np.int64))  # type: ignore[union-attr]
    bound: Floats = np.maximum(lower[:, 0, 0], least)
    return bound
