"""Policies of tabular tasks, and mixtures that draw their component once per episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.cmdp.model import ROW_SUM_TOLERANCE, Floats, finite_array, normalised
from surefoot.errors import InvalidInput


@runtime_checkable
class Policy(Protocol):
    """What every part of Surefoot may ask of a policy, tabular or not: to be stored as plain arrays."""

    kind: ClassVar[str]

    def to_arrays(self) -> dict[str, NDArray[Any]]: ...


@dataclass(frozen=True, eq=False)
class TabularPolicy:
    """A stationary policy: probabilities [S, A], each row a distribution over actions."""

    probabilities: Floats
    kind: ClassVar[str] = "tabular"

    def __post_init__(self) -> None:
        object.__setattr__(self, "probabilities", _checked(self.probabilities, "[S, A]"))

    def act(self, state: int, rng: np.random.Generator) -> int:
        """Draw an action in `state`."""
        return int(rng.choice(self.probabilities.shape[1], p=self.probabilities[state]))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"probabilities": self.probabilities}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> TabularPolicy:
        return cls(arrays["probabilities"])


@dataclass(frozen=True, eq=False)
class TimedPolicy:
    """A policy that looks at the clock: probabilities [H, S, A], and step t follows table min(t, H-1).

    What a finite-horizon planner returns. From step H-1 on it is the stationary policy of its last table.
    """

    probabilities: Floats
    kind: ClassVar[str] = "timed"

    def __post_init__(self) -> None:
        object.__setattr__(self, "probabilities", _checked(self.probabilities, "[H, S, A]"))

    def act(self, state: int, step: int, rng: np.random.Generator) -> int:
        """Draw an action in `state` at time `step` = 0, 1, ... of the episode."""
        if step < 0:
            raise InvalidInput(f"step must not be negative, got {step}")
        table = self.probabilities[min(step, len(self.probabilities) - 1)]
        return int(rng.choice(table.shape[1], p=table[state]))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"probabilities": self.probabilities}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> TimedPolicy:
        return cls(arrays["probabilities"])


@dataclass(frozen=True, eq=False)
class EpisodeMixture:
    """Draw one component at the start of an episode and follow it to the end, the paper's mixture policy.

    Values are linear in the weights only because of that single draw; mixing actions state by state is another policy
    with other values.
    """

    components: tuple[Any, ...]
    weights: Floats

    def __post_init__(self) -> None:
        weights = finite_array("weights", self.weights)
        if weights.shape != (len(self.components),) or not len(self.components):
            raise InvalidInput(
                f"weights must have one entry per component ({len(self.components)}), got shape {list(weights.shape)}"
            )
        if (weights < 0).any() or abs(weights.sum() - 1) > ROW_SUM_TOLERANCE:
            raise InvalidInput(f"weights must be non-negative and sum to 1, got {weights.tolist()}")
        weights.setflags(write=False)
        object.__setattr__(self, "components", tuple(self.components))
        object.__setattr__(self, "weights", weights)

    def draw(self, rng: np.random.Generator) -> Any:
        """The component to follow for one whole episode."""
        return self.components[rng.choice(len(self.components), p=self.weights)]


PolicyLike: TypeAlias = TabularPolicy | TimedPolicy | EpisodeMixture | ArrayLike


def as_tables(policy: TabularPolicy | TimedPolicy | ArrayLike, shape: tuple[int, int]) -> Floats:
    """[H, S, A] action probabilities by step, the last table for all later ones; H = 1 for a stationary policy."""
    if not isinstance(policy, TimedPolicy):
        return as_tabular(policy, shape).probabilities[None]
    if policy.probabilities.shape[1:] != shape:
        raise InvalidInput(
            f"policy must have shape [H, {shape[0]}, {shape[1]}] for this task, got {list(policy.probabilities.shape)}"
        )
    return policy.probabilities


def as_tabular(policy: TabularPolicy | ArrayLike, shape: tuple[int, int]) -> TabularPolicy:
    """`policy` as a TabularPolicy of the given [S, A] shape."""
    tabular = policy if isinstance(policy, TabularPolicy) else TabularPolicy(finite_array("policy", policy))
    if tabular.probabilities.shape != shape:
        raise InvalidInput(
            f"policy must have shape {list(shape)} for this task, got {list(tabular.probabilities.shape)}"
        )
    return tabular


def _checked(probabilities: Any, shape: str) -> Floats:
    """A read-only copy of `probabilities`, as many axes as `shape` names, each last-axis row a distribution."""
    array = finite_array("policy", probabilities)
    if array.ndim != shape.count(",") + 1 or 0 in array.shape:
        raise InvalidInput(f"policy must have shape {shape}, got {list(array.shape)}")
    if (array < 0).any():
        index = tuple(np.argwhere(array < 0)[0].tolist())
        place = ", ".join(map(str, index))
        raise InvalidInput(f"policy[{place}] must not be negative, got {float(array[index])!r}")
    sums = array.sum(axis=-1)
    bad = np.argwhere(np.abs(sums - 1) > ROW_SUM_TOLERANCE)
    if bad.size:
        index = tuple(bad[0].tolist())
        place = ", ".join(map(str, index))
        raise InvalidInput(f"policy[{place}] must sum to 1 (within {ROW_SUM_TOLERANCE:g}), got {sums[index]:.12g}")
    array = normalised(array)
    array.setflags(write=False)
    return array
