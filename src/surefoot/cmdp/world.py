"""Systems stepped in closed loop, many side by side: what policies are trained on.

`Task.episodes` plays whole episodes of a policy that is fixed; training wants single steps, whose policy changes every
few thousand of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from surefoot.arrays import Floats, Integers, Mask
from surefoot.cmdp.units import Units

Actions: TypeAlias = Floats | Integers  # [n, k] of a box, [n] of a finite set


class Shapes(NamedTuple):
    """How long observations are, and actions: the numbers of a box, or where `discrete` how many there are to choose
    from."""

    observation: int
    action: int
    discrete: bool


class Stepped(NamedTuple):
    """One step of n lanes.

    Attributes:
        observation: [n, o] after the step, of ended lanes their last one.
        reward, cost: [n] and [n, m] of this step, undiscounted. What the steps that an ended episode lacks up to the
            horizon would earn or cost, where that is declared, is part of its last one.
        sums: [n, 1+m] reward and costs of the episode so far, as the budget counts them.
        terminated: [n] whether the system ended.
        ended: [n] whether the episode did: terminated, or at the horizon.
    """

    observation: Floats
    reward: Floats
    cost: Floats
    sums: Floats
    terminated: Mask
    ended: Mask


class World(Protocol):
    """n lanes, each with a system of its own; lanes of one world may be of different tasks.

    A lane whose episode has ended rests until it is begun again: it keeps its last observation and sums, and earns and
    pays nothing.
    """

    @property
    def lanes(self) -> int: ...

    @property
    def shapes(self) -> Shapes: ...

    @property
    def units(self) -> Units: ...

    def begin(self, lanes: Mask, rng: np.random.Generator) -> Floats:
        """Begin new episodes in the lanes marked [n]; observations [n, o] of all lanes."""
        ...

    def step(self, actions: Actions) -> Stepped:
        """One step in every lane. Actions outside of a box are moved to its nearest end."""
        ...


@runtime_checkable
class SteppedTask(Protocol):
    """A task that can be stepped besides."""

    def world(self, lanes: int, *others: Any) -> World:
        """The system, `lanes` times side by side, and behind that as many lanes of each of the other tasks of its
        family."""
        ...
