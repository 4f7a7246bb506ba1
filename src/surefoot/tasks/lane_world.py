"""What all worlds of lanes do alike: begin episodes from seeds, count time and sums, let ended lanes rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Integers, Mask, generator
from surefoot.cmdp.units import Units
from surefoot.cmdp.world import Shapes, Stepped
from surefoot.errors import InvalidInput

SEEDS = 2**31  # of episodes; some environments take no larger ones


class LaneWorld(ABC):
    """A `World` whose episodes end after `steps` steps at the latest."""

    def __init__(self, lanes: int, shapes: Shapes, units: Units, steps: int) -> None:
        self.lanes, self.shapes, self.units, self.steps = lanes, shapes, units, steps
        self._sums, self._time = np.zeros((lanes, 1 + len(units.budget))), np.zeros(lanes, np.int64)
        self._terminated, self._ended = np.zeros(lanes, np.bool_), np.ones(lanes, np.bool_)

    def begin(self, lanes: Mask, rng: np.random.Generator) -> Floats:
        """Begin new episodes in the lanes marked [n], each from a seed below 2³¹ drawn in the order of the lanes;
        observations [n, o] of all lanes."""
        if np.shape(lanes) != (self.lanes,) or np.asarray(lanes).dtype != np.bool_:
            raise InvalidInput(f"lanes must be marked by [{self.lanes}] truth values, got {lanes!r}")
        begun = np.flatnonzero(lanes)
        self._reset(begun, generator("rng", rng).integers(SEEDS, size=len(begun)))
        self._sums[begun], self._time[begun], self._terminated[begun], self._ended[begun] = 0.0, 0, False, False
        return self._observations()

    def step(self, actions: Any) -> Stepped:
        """One step in every lane that does not rest."""
        executed, running = self.executable(actions), np.flatnonzero(~self._ended)
        if not len(running):
            raise InvalidInput("episodes must be begun before they are stepped, got a world all of whose lanes rest")
        paid, time = np.zeros_like(self._sums), self._time[running]
        paid[running], self._sums[running], terminated = self._move(running, executed[running], time)
        self._time[running] += 1
        self._terminated[running], self._ended[running] = terminated, terminated | (time + 1 >= self.steps)
        sums, terminated, ended = self._sums.copy(), self._terminated.copy(), self._ended.copy()
        return Stepped(self._observations(), paid[:, 0], paid[:, 1:], sums, terminated, ended)

    def executable(self, actions: Any) -> NDArray[Any]:
        """The actions as an array, one per lane."""
        array, shape = np.asarray(actions), (self.lanes,) if self.shapes.discrete else (self.lanes, self.shapes.action)
        if array.shape != shape:
            raise InvalidInput(f"actions must have shape {list(shape)}, got {list(array.shape)}")
        return array

    @abstractmethod
    def _reset(self, lanes: Integers, seeds: Integers) -> None:
        """New episodes in these lanes [k], from a seed each [k]."""

    @abstractmethod
    def _move(self, lanes: Integers, actions: NDArray[Any], time: Integers) -> tuple[Floats, Floats, Mask]:
        """A step, the number `time` [k] of its episode, in each of these lanes [k]: what it pays [k, 1+m], the sums
        [k, 1+m] of the episode after it, and whether the system ended [k]."""

    @abstractmethod
    def _observations(self) -> Floats:
        """[n, o] of all lanes."""
