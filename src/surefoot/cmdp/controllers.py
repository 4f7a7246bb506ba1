"""Controllers that exist already, as policies: plain functions, anything with `predict`, recurrent ones included.

The code stays with its owner: a policy set stores a name, and how to recognise the controller (`own_policy`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Mask, assign, generator, whole
from surefoot.cmdp.conventions import (
    Step,
    as_action,
    parameters_of,
    predict_of,
    step_of,
    takes_deterministic,
    takes_state,
)
from surefoot.cmdp.policy import Policy
from surefoot.errors import InvalidInput

LONGEST_NAME = 100
# Actions of one controller on two machines may differ by this much, absolutely or relatively, whichever is more.
ACTION_TOLERANCE = 1e-4
NUMBERS = (int, float, bool, np.bool_, np.int64, np.float64)


@dataclass(eq=False)
class _Memory:
    """What a recurrent controller remembers of the episodes that it is in the midst of."""

    state: Any = None
    episodes: int = 0  # side by side


@dataclass(frozen=True, eq=False)
class Controller:
    """A controller of one's own, as a policy. Made by `controller`.

    Actions are arrays: whole numbers of a discrete action, float64 otherwise, n of them with a leading axis. What it
    draws from `rng` can be drawn again; of a controller that draws from a generator of its own, as PyTorch's, it is the
    owner's to see that the same seed gives the same result.

    One that remembers its episode (a recurrent `predict`) forgets it at `step` 0. In between it must be asked for the
    same episodes, all of them, in the same order: also for those that have ended, whose actions do not matter.

    Attributes:
        function: what was given.
        name: by which orders and stored policy sets name it.
        fingerprint: what its owner gave for recognising it, as the SHA-256 of a file; None if it is recognised by what
            it does.
        deterministic: what `predict` is asked for; that is another policy than the one that draws, with other values.
        vectorised: whether it takes n observations [n, ...] at once; otherwise it is called once for each.
        observation_shape: of one observation; None if `step` must tell, which is [n] for n of them.
    """

    function: Any
    name: str
    fingerprint: str | None = None
    deterministic: bool = False
    vectorised: bool = False
    observation_shape: tuple[int, ...] | None = None
    kind: ClassVar[str] = "controller"
    _step: Step = field(init=False, repr=False)
    _memory: _Memory = field(init=False, repr=False, default_factory=_Memory)

    def __post_init__(self) -> None:
        checked_name("name", self.name)
        if self.fingerprint is not None:
            checked_name("fingerprint", self.fingerprint)
        if self.observation_shape is not None:
            shape = tuple(whole("observation_shape", length) for length in self.observation_shape)
            assign(self, observation_shape=shape)
        assign(self, _step=step_of(self.function, self.name, self.deterministic))

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
        """An action at one observation, or n actions [n, ...] at n of them [n, ...] with a step each [n] or for all."""
        generator("rng", rng)
        observations = np.asarray(observation)
        single = not is_batch(observations, step, self.observation_shape, self.name)
        if single:
            observations = observations[None]
        steps = np.asarray(step) if np.ndim(step) else np.full(len(observations), step)
        if steps.shape != (len(observations),):
            raise InvalidInput(f"step must be one, or one of {len(observations)} each, got shape {list(steps.shape)}")
        starts = self._begun(steps)
        ask = self._at_once if self.vectorised else self._one_by_one
        actions = ask(observations, steps, starts, rng)
        return actions[0] if single else actions

    def _begun(self, steps: NDArray[Any]) -> Mask:
        """[n] which episodes begin; what is remembered of others must be of as many as there are now."""
        starts, memory = steps == 0, self._memory
        if starts.all():
            memory.state, memory.episodes = None, len(steps)
        elif memory.state is not None and memory.episodes != len(steps):
            raise InvalidInput(
                f"controller {self.name!r} remembers {memory.episodes} episode(s) side by side: it must be asked for "
                f"all of them at every step, got {len(steps)}"
            )
        return np.asarray(starts)

    def _at_once(
        self, observations: NDArray[Any], steps: NDArray[Any], starts: Mask, rng: np.random.Generator
    ) -> NDArray[Any]:
        raw, self._memory.state = self._step(observations, steps, self._memory.state, starts, rng)
        actions = as_action(raw, self.name)
        if actions.shape[:1] != (len(observations),):
            raise InvalidInput(
                f"controller {self.name!r} must return one action for each of {len(observations)} observation(s), "
                f"got shape {list(actions.shape)}; if it takes one observation at a time, say vectorised=False"
            )
        return _flat(actions)

    def _one_by_one(
        self, observations: NDArray[Any], steps: NDArray[Any], starts: Mask, rng: np.random.Generator
    ) -> NDArray[Any]:
        remembered = self._memory.state or [None] * len(observations)
        found = []
        for k, step in enumerate(steps.tolist()):
            state = None if starts[k] else remembered[k]
            found.append(self._step(_plain(observations[k]), step, state, starts[k : k + 1], rng))
        states = [state for _, state in found]
        self._memory.state = None if all(state is None for state in states) else states
        return self._joined([raw for raw, _ in found])

    def _joined(self, raws: list[Any]) -> NDArray[Any]:
        """[n, ...] from single actions; plain numbers, as most are, all at once."""
        if all(type(raw) in NUMBERS for raw in raws):
            return as_action(raws, self.name)
        actions = [as_action(raw, self.name) for raw in raws]
        shapes = {action.shape for action in actions}
        if len(shapes) > 1:
            raise InvalidInput(f"controller {self.name!r} must return actions of one shape, got {sorted(shapes)}")
        return _flat(np.stack(actions))

    @property
    def remembers(self) -> bool:
        """Whether it has kept something of the episodes that it is in."""
        return self._memory.state is not None

    @property
    def looks_at_step(self) -> bool:
        return "step" in parameters_of(predict_of(self.function) or self.function)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Nothing: the code stays with its owner."""
        return {}


def controller(
    function: Any,
    *,
    name: str,
    vectorised: bool | None = None,
    deterministic: bool | None = None,
    fingerprint: str | None = None,
    observation_shape: tuple[int, ...] | None = None,
) -> Controller:
    """A controller of one's own, for `policy_set`.

    Args:
        function: f(observation), f(observation, rng) or f(observation, step, rng) -> action; or an object with
            `predict` as in Stable-Baselines3, recurrent or not, or as in OmniSafe.
        name: by which orders name it.
        vectorised: whether it takes n observations [n, ...] at once. By default what takes all four arguments of
            Stable-Baselines3's `predict` does, and nothing else.
        deterministic: what `predict` is asked for; by default what it does by default, which is to draw in
            Stable-Baselines3. Either is a policy of its own, with its own values: deploy it as it was evaluated.
        fingerprint: any text by which you recognise it, as the SHA-256 of its file; by default it is recognised by its
            actions at observations that are stored with a policy set.
        observation_shape: of one observation, if something other than Surefoot's own tasks will call it.
    """
    predict = predict_of(function)
    if predict is None and deterministic is not None:
        raise InvalidInput(f"deterministic is for controllers with predict, got it for {name!r}, which has none")
    parameters = {} if predict is None else parameters_of(predict)
    if deterministic and not takes_deterministic(parameters):
        raise InvalidInput(f"deterministic must be False for {name!r}, whose predict does not take it, got True")
    by_default = getattr(parameters.get("deterministic"), "default", False)
    return Controller(
        function,
        name,
        fingerprint,
        by_default is True if deterministic is None else bool(deterministic),
        predict is not None and takes_state(predict) if vectorised is None else bool(vectorised),
        observation_shape,
    )


def as_policy(candidate: Any, name: str) -> Policy:
    """`candidate` as it is if it is a policy, otherwise as a controller of that name."""
    return candidate if isinstance(candidate, Policy) else controller(candidate, name=name)


# ------------------------------------------------------------------------------------------------- parts, in call order


def is_batch(observation: NDArray[Any], step: Any, shape: tuple[int, ...] | None, name: str) -> bool:
    """Whether these are n observations: by the shape of one, else by a step each; matrices are n vectors."""
    if shape is None:
        return np.ndim(step) == 1 or observation.ndim >= 2
    if observation.shape == shape:
        return False
    if observation.shape[1:] != shape or not observation.ndim:
        raise InvalidInput(
            f"controller {name!r} takes observations of shape {list(shape)} or {['n', *shape]}, "
            f"got {list(observation.shape)}"
        )
    return True


def _plain(observation: NDArray[Any]) -> Any:
    """A single state as a plain number, which functions of it expect."""
    return observation if observation.ndim else observation.item()


def _flat(actions: NDArray[Any]) -> NDArray[Any]:
    """A discrete action is a number: [n, 1] whole ones as [n]."""
    whole_ones = actions.dtype.kind == "i" and actions.ndim == 2 and actions.shape[1] == 1
    return actions[:, 0] if whole_ones else actions


def checked_name(argument: str, name: Any) -> str:
    """`name` as a text that fits a line of JSON and of a terminal."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise InvalidInput(
            f"{argument} must be a printable text of at most {LONGEST_NAME} characters, got {name!r}"[:300]
        )
    return name
