"""The conventions by which controllers are called, told apart by their signatures, and what they return.

Nothing is imported for it: tensors are recognised by their methods, Stable-Baselines3 by its four arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import InvalidInput

# (observation or observations, step, what is remembered, whether episodes begin, rng) -> (action, what to remember)
Step: TypeAlias = Callable[[Any, Any, Any, Any, np.random.Generator], tuple[Any, Any]]

SIGNATURES = (
    "f(observation), f(observation, rng) or f(observation, step, rng), by these names of the latter two, or an object "
    "with predict(observation, state=None, episode_start=None, deterministic=False) -> (action, state) or "
    "predict(observation, deterministic=False) -> action"
)


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
    others = [key for key, each in list(parameters.items())[1:] if _required(each) and key not in wanted]
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


def _required(parameter: inspect.Parameter) -> bool:
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
