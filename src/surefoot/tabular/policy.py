"""Policies of tabular tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.arrays import Floats, Integers, check_indices, distributions, finite_array, generator
from surefoot.cmdp.policy import Batch, EpisodeMixture, Predicting, each_step
from surefoot.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class TabularPolicy(Predicting):
    """A stationary policy: probabilities [S, A], each row a distribution over actions.

    An observation is a state: one whole number, or an array of them for actions in an array of the same shape.
    """

    probabilities: Floats
    kind: ClassVar[str] = "tabular"

    def __post_init__(self) -> None:
        object.__setattr__(self, "probabilities", distributions("policy", self.probabilities, "[S, A]"))

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
        """Draw an action in a state, or one in each state [n]; at every `step` alike."""
        return _sample_actions(self.probabilities[_states(observation, self.probabilities)], rng)

    def likeliest(self, observation: Any, step: Any) -> Any:
        """The action of largest probability, the first of those that tie."""
        return _plain(self.probabilities[_states(observation, self.probabilities)].argmax(axis=-1))

    def batch(self, observation: Any) -> Batch:
        return np.shape(observation)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"probabilities": self.probabilities}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> TabularPolicy:
        return cls(arrays["probabilities"])


@dataclass(frozen=True, eq=False)
class TimedPolicy(Predicting):
    """A policy that looks at the clock: probabilities [H, S, A], and step t follows table min(t, H-1).

    What a finite-horizon planner returns. From step H-1 on it is the stationary policy of its last table. Observations
    are states, as for `TabularPolicy`.
    """

    probabilities: Floats
    kind: ClassVar[str] = "timed"
    remembers_step: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "probabilities", distributions("policy", self.probabilities, "[H, S, A]"))

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
        """Draw an action in a state, or one in each state [n], at time `step` = 0, 1, ... of the episode, or [n]."""
        return _sample_actions(self._rows(observation, step), rng)

    def likeliest(self, observation: Any, step: Any) -> Any:
        """The action of largest probability at that time, the first of those that tie."""
        return _plain(self._rows(observation, step).argmax(axis=-1))

    def batch(self, observation: Any) -> Batch:
        return np.shape(observation)

    def _rows(self, observation: Any, step: Any) -> Floats:
        """[..., A] probabilities of actions at observations and steps [...]."""
        states = _states(observation, self.probabilities[0])
        rows: Floats = self.probabilities[
            np.minimum(each_step("step", step, states.shape), len(self.probabilities) - 1), states
        ]
        return rows

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"probabilities": self.probabilities}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> TimedPolicy:
        return cls(arrays["probabilities"])


def _states(observation: Any, table: Floats) -> Integers:
    states = np.asarray(observation)
    if states.dtype.kind not in "iu":
        raise InvalidInput(f"observation must be a state, or an array of states, got {observation!r}"[:200])
    check_indices("observation", states, len(table))
    return states


def _sample_actions(rows: Floats, rng: np.random.Generator) -> Any:
    """Actions [...] of probabilities rows [..., A], by inversion: the first whose cumulative probability exceeds a
    uniform number. Dividing by the last sum leaves it at 1 exactly, so that no action of probability 0 occurs."""
    cumulative = np.cumsum(rows, axis=-1)
    cumulative /= cumulative[..., -1:]
    uniform = generator("rng", rng).random(rows.shape[:-1])
    return _plain((np.asarray(uniform)[..., None] >= cumulative).sum(axis=-1))


def _plain(actions: Any) -> Any:
    """A single action as a plain number, which environments ask for."""
    return actions if np.ndim(actions) else int(actions)


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
