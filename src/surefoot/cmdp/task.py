"""What training, simulated runs and reports ask of a task. Nothing here is a table.

Every task can be simulated. Some can also be read (`ReadableTask`): their values are exact and their optimum is known.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from surefoot.arrays import Floats, check_int, generator
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units


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


class Episodes(Protocol):
    """Independent episodes of one policy on one task; equal generators and numbers of episodes give equal outcomes."""

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        """Outcomes of `episodes` episodes; if asked for, with visited states and actions, or where there are no such
        with what was observed (`Outcomes.observed`)."""
        ...


@runtime_checkable
class Task(Protocol):
    """A system that can be simulated."""

    @property
    def units(self) -> Units: ...

    @property
    def spaces(self) -> Hashable:
        """What a policy must fit: equal for all tasks of a family."""
        ...

    def digest(self) -> str:
        """SHA-256, in hexadecimal, of everything that defines this task."""
        ...

    def episodes(self, policy: Policy, steps: int) -> Episodes:
        """Episodes of `policy` that end after `steps` steps at the latest; a policy of the wrong kind is refused."""
        ...


@runtime_checkable
class ReadableTask(Task, Protocol):
    """A task whose values need not be estimated."""

    def values(self, policy: Policy) -> Values:
        """Exact values."""
        ...

    def optimum(self) -> float:
        """V*, the largest reward of a policy that keeps every budget; NaN if there is none."""
        ...


@runtime_checkable
class SideBySide(Protocol):
    """Episodes that can be simulated beside those of other policies on the same task, which is sooner done as long as
    there are lanes left."""

    @property
    def lanes(self) -> int:
        """Episodes simulated side by side at most."""
        ...

    def run_beside(
        self, others: Sequence[Any], episodes: int, rngs: Sequence[np.random.Generator], transitions: bool
    ) -> list[Outcomes]:
        """Outcomes of so many of these and of each of the others, with a generator each."""
        ...


def run_policies(
    task: Task,
    policies: Sequence[Policy],
    episodes: int,
    rngs: Sequence[np.random.Generator],
    transitions: bool = False,
) -> list[Outcomes]:
    """Outcomes of so many whole episodes of each policy, with a generator each."""
    simulated = [task.episodes(policy, task.units.episode_length) for policy in policies]
    if simulated and isinstance(simulated[0], SideBySide):
        return simulated[0].run_beside(simulated[1:], episodes, rngs, transitions)
    return [each.run(episodes, rng, transitions=transitions) for each, rng in zip(simulated, rngs, strict=True)]


Generators: TypeAlias = Sequence[np.random.Generator]
# So many episodes of each of these policies in one world, drawn by the first generators and acted by the second.
Block: TypeAlias = Callable[[Sequence[Policy], int, Generators, Generators], list[Outcomes]]


def run_in_lanes(
    policies: Sequence[Policy], episodes: int, rngs: Generators, lanes: int, block: Block
) -> list[Outcomes]:
    """Outcomes of so many episodes of each policy, of as many policies at once as there are lanes for."""
    count = check_int("episodes", episodes)
    acting = [np.random.default_rng(generator("rng", rng).integers(2**63, size=2)) for rng in rngs]
    parts: list[list[Outcomes]] = [[] for _ in policies]
    for done in range(0, count, lanes):
        size = min(lanes, count - done)
        together = max(1, lanes // size)
        for first in range(0, len(policies), together):
            some = slice(first, first + together)
            for own, outcomes in zip(parts[some], block(policies[some], size, rngs[some], acting[some]), strict=True):
                own.append(outcomes)
    return [Outcomes.joined(each) for each in parts]
