"""Controllers that exist already, as policies: plain functions, anything with `predict`, recurrent ones included.

The code stays with its owner: a policy set stores a name, and how to recognise the controller (`external_policy`).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Mask, assign, check_int, generator
from surefoot.cmdp.policy import Policy
from surefoot.errors import InvalidInput

LONGEST_NAME = 100
# Actions of one controller on two machines may differ by this much, absolutely or relatively, whichever is more.
ACTION_TOLERANCE = 1e-4
NUMBERS = (int, float, bool, np.bool_, np.int64, np.float64)
# (observation or observations, step, what is remembered, whether episodes begin, rng) -> (action, what to remember)
Step: TypeAlias = Callable[[Any, Any, Any, Any, np.random.Generator], tuple[Any, Any]]

SIGNATURES = (
    "f(observation), f(observation, rng) or f(observation, step, rng), by these names of the latter two, or an object "
    "with predict(observation, state=None, episode_start=None, deterministic=False) -> (action, state) or "
    "predict(observation, deterministic=False) -> action"
)


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
        check_name("name", self.name)
        if self.fingerprint is not None:
            check_name("fingerprint", self.fingerprint)
        if self.observation_shape is not None:
            shape = tuple(check_int("observation_shape", length) for length in self.observation_shape)
            assign(self, observation_shape=shape)
        assign(self, _step=step_of(self.function, self.name, self.deterministic))

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
        """An action at one observation, or n actions [n, ...] at n of them [n, ...] with a step each [n] or for all."""
        generator("rng", rng)
        observations = np.asarray(observation)
        single = not is_batch(observations, step, self.observation_shape, self.name)
        if single and not self.vectorised:
            return self._once(observations, step, rng)
        if single:
            observations = observations[None]
        steps = np.asarray(step) if np.ndim(step) else np.full(len(observations), step)
        if steps.shape != (len(observations),):
            raise InvalidInput(f"step must be one, or one of {len(observations)} each, got shape {list(steps.shape)}")
        starts = self._episode_starts(steps)
        ask = self._at_once if self.vectorised else self._one_by_one
        actions = ask(observations, steps, starts, rng)
        return actions[0] if single else actions

    def _once(self, observation: NDArray[Any], step: Any, rng: np.random.Generator) -> Any:
        """The same as `_one_by_one` for a single episode, without arrays of one: most environments are stepped so."""
        memory, state = self._memory, None
        if step == 0:
            memory.episodes = 1
        elif memory.state is not None:
            self._episode_starts(np.full(1, step))
            (state,) = memory.state
        raw, state = self._step(_plain(observation), int(step), state, np.array([step == 0]), rng)
        memory.state = None if state is None else [state]
        action = as_action(raw, self.name)
        return action[0] if action.shape == (1,) and action.dtype.kind == "i" else action.copy()[()]

    def _episode_starts(self, steps: NDArray[Any]) -> Mask:
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
        return self._stack_actions([raw for raw, _ in found])

    def _stack_actions(self, raws: list[Any]) -> NDArray[Any]:
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


def check_name(argument: str, name: Any) -> str:
    """`name` as a text that fits a line of JSON and of a terminal."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise InvalidInput(
            f"{argument} must be a printable text of at most {LONGEST_NAME} characters, got {name!r}"[:300]
        )
    return name


# ----------------------------------------------------------------------------------------------- conventions of calling
# They are told apart by signatures. Nothing is imported for it: tensors are recognised by their methods,
# Stable-Baselines3 by its four arguments.


def step_of(function: Any, name: str, deterministic: bool) -> Step:
    if isinstance(function, type):
        raise InvalidInput(f"controller {name!r} must be an object, got the class {function.__name__}; make one of it")
    predict = predict_of(function)
    if predict is not None:
        parameters = parameters_of(predict)
        asked = {"deterministic": deterministic} if takes_deterministic(parameters) else {}
        return _Predicting(predict, takes_state(predict), "rng" in parameters, asked, name)
    if not callable(function):
        raise InvalidInput(f"controller {name!r} must be {SIGNATURES}; got {type(function).__name__}")
    parameters = parameters_of(function)
    wanted = tuple(each for each in ("step", "rng") if each in parameters)
    others = [key for key, each in list(parameters.items())[1:] if _is_required(each) and key not in wanted]
    if others or next(iter(parameters), "step") in wanted or not _takes_one(parameters):
        raise InvalidInput(
            f"controller {name!r} must be {SIGNATURES}; got one that takes ({', '.join(parameters) or 'nothing'})"
        )
    return _Calling(function, wanted, name)


@dataclass(frozen=True)
class _Calling:
    """f(observation), and `step` and `rng` by these names if it has them."""

    function: Callable[..., Any]
    wanted: tuple[str, ...]
    name: str

    def __call__(
        self, observation: Any, step: Any, state: Any, starts: Any, rng: np.random.Generator
    ) -> tuple[Any, Any]:
        given = {"step": step, "rng": rng} if self.wanted else {}
        found = self.function(observation, **{each: given[each] for each in self.wanted})
        return _without_state(found, self.name), None


@dataclass(frozen=True)
class _Predicting:
    """predict(observation, ...) with what it takes of `arguments`."""

    predict: Callable[..., Any]
    remembers: bool
    draws: bool
    arguments: Mapping[str, bool]
    name: str

    def __call__(
        self, observation: Any, step: Any, state: Any, starts: Any, rng: np.random.Generator
    ) -> tuple[Any, Any]:
        arguments = {**self.arguments, **({"rng": rng} if self.draws else {})}
        if not self.remembers:
            return _without_state(self.predict(observation, **arguments), self.name), None
        found = self.predict(observation, state=state, episode_start=starts, **arguments)
        if not isinstance(found, tuple) or len(found) != 2:
            raise InvalidInput(f"controller {self.name!r} must predict (action, state), got {found!r}"[:300])
        return found


def _without_state(found: Any, name: str) -> Any:
    """The action, also of (action, None); two numbers could be an action, or one and a state."""
    if not isinstance(found, tuple):
        return found
    if len(found) == 2 and found[1] is None:
        return found[0]
    raise InvalidInput(
        f"controller {name!r} must return its action as a number, an array or a list (a tuple is (action, state), for "
        f"which it must take state and episode_start), got {found!r}"[:300]
    )


def predict_of(function: Any) -> Callable[..., Any] | None:
    """The method of an object that predicts, or a function that is one, as `model.predict` itself; None otherwise."""
    method = getattr(function, "predict", None)
    if callable(method):
        return method  # type: ignore[no-any-return]
    return function if callable(function) and {"state", "episode_start"} <= set(parameters_of(function)) else None


def takes_state(predict: Callable[..., Any]) -> bool:
    """Whether this is the convention of Stable-Baselines3, or passes on whatever it is given."""
    parameters = parameters_of(predict)
    kinds = {each.kind for each in parameters.values()}
    anything = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds
    return anything or {"state", "episode_start"} <= set(parameters)


def takes_deterministic(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return "deterministic" in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """By name; none where Python cannot tell, as for functions written in C."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {"observation": inspect.Parameter("observation", inspect.Parameter.POSITIONAL_ONLY)}


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind not in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
    )


def _takes_one(parameters: Mapping[str, inspect.Parameter]) -> bool:
    """Whether the first argument can be given without its name."""
    first = next(iter(parameters.values()), None)
    return first is not None and first.kind not in (first.KEYWORD_ONLY, first.VAR_KEYWORD)


def as_action(raw: Any, name: str) -> NDArray[Any]:
    """An action or several as int64 or float64, from what libraries return: tensors, arrays, numbers, lists."""
    if type(raw) is float and math.isfinite(raw):
        return np.asarray(raw)  # much faster
    if not isinstance(raw, np.ndarray | np.generic | int | float | list):
        for conversion in ("detach", "cpu", "numpy"):  # of a tensor, wherever it lives
            raw = getattr(raw, conversion)() if callable(getattr(raw, conversion, None)) else raw
    try:
        array = np.asarray(raw)
    except ValueError:  # lists of different lengths
        array = np.asarray(None)
    if array.dtype.kind in "biu":
        return array.astype(np.int64, copy=False)
    if array.dtype.kind != "f":
        raise InvalidInput(
            f"controller {name!r} must return an action, a number or an array of them, got {raw!r}"[:300]
        )
    if not np.isfinite(array).all():
        raise InvalidInput(f"controller {name!r} must return finite actions, got {array.tolist()}"[:300])
    return array.astype(np.float64, copy=False)
