"""A controller of one's own in a policy set: its name, how it is recognised, and, if it is here, the controller.

A controller is recognised by what it does: its actions at a few observations, which are stored as data, so that the
owner can check it in any language. Numbers are compared with a tolerance, since machines and versions of libraries
round differently; a hash of rounded actions would break at every number that happens to lie between two roundings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from surefoot.arrays import Floats, make_readonly
from surefoot.cmdp.controllers import (
    ACTION_TOLERANCE,
    Controller,
    check_name,
    controller,
    is_batch,
    parameters_of,
    predict_of,
    takes_deterministic,
)
from surefoot.errors import InvalidInput

MOST_PROBES, MOST_NUMBERS = 64, 2**16  # observations that are kept, and numbers in them
LANES, ASKED, STEPS, SHOWN = 64, 64, 2, 8  # copies of an observation, how often, at how many steps, and of how many
RESOLUTION = 1e-6  # part of the range of all actions that is rounding
FALSE_ALARM = 1e-12  # of each number of lanes that might share their draws

ObservationType: TypeAlias = Literal["float64", "float32", "int64", "int32", "int16", "int8", "uint8", "bool"]


@dataclass(frozen=True, eq=False)
class ExternalPolicy:
    """Attributes:
    name: by which orders name it.
    deterministic: whether its `predict` was asked for the likeliest action when its values were found.
    observations: [n, ...] where it is recognised; none if its owner gave a fingerprint, or its actions cannot be
        drawn again.
    actions: [n, ...] what it does there, in the first step of an episode.
    asked_likeliest: whether `actions` are the likeliest ones, of a controller that draws from a generator of its own.
    given: the owner's fingerprint.
    controller: None where it is not here: it can be ordered by name, and does not act.
    """

    name: str
    deterministic: bool
    observations: NDArray[Any]
    actions: NDArray[Any]
    asked_likeliest: bool = False
    given: str | None = None
    controller: Controller | None = None
    kind: ClassVar[str] = "own"

    def __post_init__(self) -> None:
        check_name("name", self.name)
        if self.given is not None:
            check_name("fingerprint", self.given)
        if self.observation_type not in get_args(ObservationType):
            raise InvalidInput(
                f"controller {self.name!r} must take observations of numbers, got type {self.observations.dtype}"
            )
        if len(self.actions) != len(self.observations):
            raise InvalidInput(
                f"actions must be one for each of {len(self.observations)} observations, got {len(self.actions)}"
            )
        make_readonly(self.observations)
        make_readonly(self.actions)

    @property
    def observation_type(self) -> ObservationType:
        """In which the controller is shown what it is recognised by."""
        return str(self.observations.dtype)  # type: ignore[return-value]  # checked when it was made

    @property
    def fingerprint(self) -> str | None:
        """The owner's, or a SHA-256 of observations and actions; None if only the name is known."""
        if self.given is not None or not len(self.actions):
            return self.given
        sha = hashlib.sha256(repr((self.observations.shape, self.actions.shape)).encode())
        for array in (self.observations, self.actions):
            sha.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
        return sha.hexdigest()

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
        if self.controller is None:
            raise InvalidInput(
                f"controller {self.name!r} is not here, only its name is: run it where it is, or load the policy set "
                f"with controllers={{{self.name!r}: ...}}"
            )
        return self.controller.act(observation, step, rng)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """What it is recognised by, if anything; it cannot be made of them."""
        arrays = {"observations": self.observations, "actions": self.actions}
        return {name: array.astype(np.float64) for name, array in arrays.items() if len(array)}

    def with_controller(self, given: Any) -> ExternalPolicy:
        """The same with a controller that acts, refused if it is another one."""
        found = given if isinstance(given, Controller) else self._as_evaluated(given)
        if found.deterministic != self.deterministic:
            raise InvalidInput(
                f"controller {self.name!r} was evaluated with deterministic={self.deterministic}, got one with "
                f"{found.deterministic}: that is another policy"
            )
        if found.fingerprint != self.given:
            raise InvalidInput(
                f"controller {self.name!r} must have the fingerprint {self.given!r}, got {found.fingerprint!r}: give "
                "surefoot.controller(..., fingerprint=...)"
            )
        found = replace(found, name=self.name, observation_shape=self.observations.shape[1:])
        if len(self.actions):
            _compare(self.actions, _actions(found, self.observations, self.asked_likeliest), self)
        return replace(self, controller=found)

    def _as_evaluated(self, given: Any) -> Controller:
        predict = predict_of(given)
        asks = predict is not None and takes_deterministic(parameters_of(predict))
        return controller(given, name=self.name, deterministic=self.deterministic if asks else None)


def fingerprint_controller(own: Controller, simulate: Callable[[RecordingController], None]) -> ExternalPolicy:
    """A controller with what it is recognised by; `simulate` runs a few episodes of the policy that it is given."""
    watched = RecordingController(own)
    simulate(watched)
    observations = watched.probes()
    own = replace(own, observation_shape=observations.shape[1:])
    if own.vectorised:
        check_lanes(own, observations)
    nothing = np.empty((0, 1))
    if own.fingerprint is not None:
        return ExternalPolicy(
            own.name, own.deterministic, observations[:0], nothing, given=own.fingerprint, controller=own
        )
    likeliest = False
    if not _repeats(own, observations, likeliest):
        predict = predict_of(own.function)
        likeliest = predict is not None and takes_deterministic(parameters_of(predict))
        if not likeliest or not _repeats(own, observations, likeliest):
            return ExternalPolicy(own.name, own.deterministic, observations[:0], nothing, controller=own)
    actions = _actions(own, observations, likeliest)
    if own.vectorised:
        _check_one_by_one(own, observations, actions, likeliest)
    return ExternalPolicy(own.name, own.deterministic, observations, actions, likeliest, controller=own)


class RecordingController:
    """A controller under observation: what it is shown is kept."""

    kind: ClassVar[str] = "controller"

    def __init__(self, own: Controller) -> None:
        self.own, self.name = own, own.name
        self.seen: list[NDArray[Any]] = []

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
        observations = np.asarray(observation)
        if observations.dtype.kind not in "biuf":
            raise InvalidInput(
                f"controller {self.name!r} must get observations that are arrays of numbers, got "
                f"{type(observation).__name__}; flatten them (as gymnasium.wrappers.FlattenObservation does)"
            )
        batch = is_batch(observations, step, self.own.observation_shape, self.name)
        self.seen.append(np.array(observations if batch else observations[None]))
        return self.own.act(observation, step, rng)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {}

    def probes(self) -> NDArray[Any]:
        """[n, ...] different ones of those seen, from the first to the last."""
        if not self.seen:
            raise InvalidInput(
                f"tasks must ask controller {self.name!r} for its actions by `act`, got tasks that never do"
            )
        different = np.unique(np.concatenate(self.seen), axis=0)
        most = max(1, min(MOST_PROBES, MOST_NUMBERS // max(1, different[0].size)))
        return different[np.unique(np.linspace(0, len(different) - 1, most).astype(np.intp))]


def _actions(own: Controller, observations: NDArray[Any], likeliest: bool) -> NDArray[Any]:
    """[n, ...] in the first step of as many episodes, drawn from one seed."""
    asked = replace(own, deterministic=True) if likeliest else own
    rng = np.random.default_rng(0)
    return np.asarray(asked.act(observations, np.zeros(len(observations), np.intp), rng))


def _repeats(own: Controller, observations: NDArray[Any], likeliest: bool) -> bool:
    """Whether the same seed gives the same actions."""
    first, second = (_actions(own, observations, likeliest) for _ in range(2))
    return _agree(first, second).all().item()


def _agree(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.bool_]:
    """[n] whether actions are equal but for rounding; whole numbers must be equal."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return np.zeros(max(1, len(first)), np.bool_)
    tolerance = ACTION_TOLERANCE * np.maximum(1.0, np.abs(first)) if first.dtype.kind == "f" else 0
    near: NDArray[np.bool_] = (np.abs(first - second) <= tolerance).reshape(len(first), -1).all(axis=1)
    return near


def _compare(expected: NDArray[Any], found: NDArray[Any], whose: ExternalPolicy) -> None:
    agree = _agree(expected, found)
    if not agree.all():
        k = int(np.argmin(agree))
        what = found[k].tolist() if found.shape == expected.shape else f"actions of shape {list(found.shape)}"
        raise InvalidInput(
            f"controller {whose.name!r} is another one than the policy set was made with: at "
            f"{int((~agree).sum())} of {len(agree)} stored observations it does something else, at "
            f"{whose.observations[k].tolist()} it must do {expected[k].tolist()}, got {what}"[:600]
        )


def _check_one_by_one(own: Controller, observations: NDArray[Any], actions: NDArray[Any], likeliest: bool) -> None:
    """A function of one observation may well return n numbers for n of them: other ones."""
    singly = [_actions(own, observations[k : k + 1], likeliest) for k in range(len(observations))]
    drawn = "rng" in parameters_of(predict_of(own.function) or own.function)
    if not drawn and not _agree(actions, np.concatenate(singly)).all():
        raise InvalidInput(
            f"controller {own.name!r} must do the same with n observations as with each of them, got other actions; if "
            "it takes one observation at a time, say vectorised=False"
        )


# --------------------------------------------------------------------------------------- draws of its own in every lane
# Simulated episodes that run side by side count as independent, and are not where a controller that takes many
# observations at once draws one number for all of them. Shown copies of one observation, it then does the same in every
# lane, and something else when it is asked again: lanes that draw by themselves practically never agree like this.


def check_lanes(own: Controller, observations: NDArray[Any]) -> None:
    """Refuse a controller of which several lanes share their draws, at some of the observations [n, ...]."""
    for observation in observations[np.unique(np.linspace(0, len(observations) - 1, SHOWN).astype(np.intp))]:
        for actions in _sample_actions(own, observation):
            sharing = max(sharing_lanes(component) for component in np.moveaxis(actions, 2, 0))
            if sharing > 1:
                raise InvalidInput(
                    f"controller {own.name!r} must draw for each observation by itself, got the same draws for "
                    f"{sharing} of {LANES}: draw len(observations) numbers, as rng.random(len(observations)), or say "
                    "vectorised=False"
                )


def sharing_lanes(actions: NDArray[Any]) -> int:
    """How many lanes of [asked, lanes] always do the same and yet not always the same thing; 1 where that is chance.

    If actions are drawn independently with probabilities π, here their shares, some g lanes have one and the same
    sequence c of them, of probability π(c) ≤ x, with probability at most C(lanes, g)·x^(g-1).
    """
    values, number = _distinct(actions), actions.shape[1]
    share = np.bincount(values.ravel())[values] / values.size
    sequences, first, lanes = np.unique(values, axis=1, return_index=True, return_counts=True)
    choices = gammaln(number + 1) - gammaln(lanes + 1) - gammaln(number - lanes + 1)
    chance = choices + (lanes - 1) * np.log(share).sum(axis=0)[first]
    shared = (np.ptp(sequences, axis=0) > 0) & (chance < np.log(FALSE_ALARM))
    return int(lanes[shared].max(initial=1))


def _sample_actions(own: Controller, observation: NDArray[Any]) -> Floats:
    """[steps, asked, lanes, k] what it does in the first steps of as many episodes, all with one observation."""
    copies = np.repeat(observation[None], LANES, axis=0)
    steps = [np.full(LANES, step) for step in range(STEPS)]
    found = []
    for number in range(ASKED):
        rng = np.random.default_rng(number)
        found.append([np.asarray(own.act(copies, step, rng), np.float64).reshape(LANES, -1) for step in steps])
    actions: Floats = np.array(found).swapaxes(0, 1)
    return actions


def _distinct(actions: NDArray[Any]) -> NDArray[np.intp]:
    """Actions [asked, lanes] as numbers 0, 1, ..., equal where actions are but for rounding."""
    extent = float(np.ptp(actions))
    if extent <= ACTION_TOLERANCE * max(1.0, float(np.abs(actions).max())):
        return np.zeros(actions.shape, np.intp)
    rounded = np.round((actions - actions.min()) / (RESOLUTION * extent))
    _, values = np.unique(rounded, return_inverse=True)
    return values.reshape(actions.shape).astype(np.intp)
