"""What every policy is and how it acts, and mixtures that draw their component once per episode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import (
    ROW_SUM_TOLERANCE,
    Floats,
    Integers,
    Mask,
    check_indices,
    finite_array,
    generator,
    make_readonly,
)
from surefoot.errors import InvalidInput

Batch: TypeAlias = tuple[int, ...]  # () for one observation, (n,) for n of them


@runtime_checkable
class Policy(Protocol):
    """What every part of Surefoot may ask of a policy, tabular or not: to act, and to be stored as plain arrays."""

    kind: ClassVar[str]

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
        """An action drawn at one observation, or n actions [n, ...] at n of them; `step` = 0, 1, ... of the episode, or
        one each [n]."""
        ...

    def to_arrays(self) -> dict[str, NDArray[Any]]: ...


def check_acts(policy: object) -> None:
    """Refuse what cannot act, as tasks that are simulated need it to."""
    if not callable(getattr(policy, "act", None)):
        raise InvalidInput(f"policy must be one that can act, got {type(policy).__name__}")


class Predicting(ABC):
    """The convention of Stable-Baselines3, for a policy that acts: derive from this to have `predict`.

    `predict` takes a generator besides; `Predictor` holds one for callers that know the four arguments only.
    """

    remembers_step: ClassVar[bool] = False  # whether actions depend on it

    @abstractmethod
    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any: ...

    @abstractmethod
    def likeliest(self, observation: Any, step: Any) -> Any:
        """The action of largest probability, or density, in place of a drawn one."""

    @abstractmethod
    def batch(self, observation: Any) -> Batch:
        """How many observations these are."""

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[Any, Any]:
        """(action, state): what to do now, and what to hand over at the next step of the same episodes.

        Args:
            observation: as for `act`: one, or n of them from n episodes side by side.
            state: what the call before returned; None before the first. The step of each episode for policies that
                look at the clock, None for those that do not.
            episode_start: whether an episode begins, one for all or [n]: what was remembered of it is then forgotten.
            deterministic: take the likeliest action. That is another policy: what was certified of this one, values and
                safety, is not about it.
            rng: draws the actions, so that they can be drawn again; without it they come from fresh entropy.
        """
        step = _steps(state, episode_start, self.batch(observation)) if self.remembers_step else 0
        action = self.likeliest(observation, step) if deterministic else self.act(observation, step, _ensure_rng(rng))
        return action, step + 1 if self.remembers_step else None


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
        object.__setattr__(self, "components", tuple(self.components))
        object.__setattr__(self, "weights", make_readonly(weights))

    def draw(self, rng: np.random.Generator) -> Any:
        """The component to follow for one whole episode."""
        return self.components[rng.choice(len(self.components), p=self.weights)]

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
        """Refused: drawn anew at every step, this would be another policy."""
        raise InvalidInput(
            "a mixture draws its component once per episode: follow the policy that draw(rng) returns to the end, "
            "or use predict, whose state remembers which one it is"
        )

    def predict(
        self,
        observation: Any,
        state: tuple[Any, Any] | None = None,
        episode_start: Any = None,
        deterministic: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[Any, tuple[Any, Any]]:
        """As for every policy (`Predicting.predict`), for components that are; `state` is the component and the step of
        each episode. Where `deterministic`, the component of largest weight takes its likeliest action."""
        batch = self._policies[0].batch(observation)
        if not batch:
            one = np.asarray(observation)[None]
            action, (component, step) = self.predict(one, state, episode_start, deterministic, rng)
            return action[0], (component[0], step[0])
        starts = _starts(state, episode_start, batch)
        component, step = (np.array(each_step("state", part, batch)) for part in ((0, 0) if state is None else state))
        check_indices("the component in state", component, len(self.weights))
        step[starts] = 0
        component[starts] = self._draw_components(int(starts.sum()), deterministic, rng)
        action = None
        for k in np.unique(component):
            here = component == k
            part, _ = self._policies[k].predict(np.asarray(observation)[here], step[here], None, deterministic, rng)
            action = np.empty((*batch, *part.shape[1:]), part.dtype) if action is None else action
            action[here] = part
        return action, (component, step + 1)

    @cached_property
    def _policies(self) -> tuple[Predicting, ...]:
        for component in self.components:
            if not isinstance(component, Predicting):
                raise InvalidInput(f"components must be policies that predict, got {type(component).__name__}")
        return self.components

    def _draw_components(self, count: int, deterministic: bool, rng: np.random.Generator | None) -> Any:
        if deterministic:
            return np.argmax(self.weights)
        return _ensure_rng(rng).choice(len(self.weights), count, p=self.weights)


@dataclass(frozen=True, eq=False)
class Predictor:
    """A policy with a generator of its own, for callers that know the convention of Stable-Baselines3 only."""

    policy: Predicting | EpisodeMixture
    rng: np.random.Generator

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        """(action, state), see `Predicting.predict`."""
        return self.policy.predict(observation, state, episode_start, deterministic, self.rng)


# ------------------------------------------------------------------------------------------------- parts, in call order


def _steps(state: Any, episode_start: Any, batch: Batch) -> Integers:
    """[*batch] the step of each episode: 0 where it starts, and where nothing is remembered."""
    remembered = each_step("state", 0 if state is None else state, batch)
    return np.where(_starts(state, episode_start, batch), 0, remembered)


def _starts(state: Any, episode_start: Any, batch: Batch) -> Mask:
    """[*batch] whether each episode starts: all of them do before anything is remembered."""
    if state is None:
        return np.ones(batch, np.bool_)
    return _each("episode_start", False if episode_start is None else episode_start, batch).astype(np.bool_)


def each_step(name: str, value: Any, batch: Batch) -> Integers:
    """`value` as a step of each episode [*batch]."""
    steps = _each(name, value, batch)
    if steps.dtype.kind not in "iu" or (steps < 0).any():
        raise InvalidInput(f"{name} must be a step 0, 1, ... of an episode, or one of each, got {value!r}")
    return steps


def _each(name: str, value: Any, batch: Batch) -> NDArray[Any]:
    """`value` [*batch], also from one for all."""
    array = np.asarray(value)
    if array.size == 1:
        array = array.reshape(())
    if array.shape not in ((), batch):
        raise InvalidInput(f"{name} must be one, or one of each observation {list(batch)}, got {list(array.shape)}")
    return np.broadcast_to(array, batch)


def _ensure_rng(rng: np.random.Generator | None) -> np.random.Generator:
    """Callers that know the convention only give none. A fixed seed would then repeat the same draws in every process
    that runs an episode, and every proof rests on independent episodes: fresh entropy it is."""
    return np.random.default_rng() if rng is None else generator("rng", rng)
