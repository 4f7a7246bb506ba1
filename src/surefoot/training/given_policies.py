"""Whatever people bring as a controller, as a policy that fits the tasks, with a name."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from surefoot.arrays import Floats, check_indices, finite_array
from surefoot.cmdp.controllers import Controller, as_policy, checked_name
from surefoot.cmdp.own_policy import OwnPolicy, Watched, recognised
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task
from surefoot.errors import InvalidInput
from surefoot.streams import Stream
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, TimedPolicy

SAFE_NAME = "safe"
WATCHED_EPISODES = 4  # in which a controller meets the observations by which it is recognised


def named(safe: Any, candidates: Any) -> tuple[tuple[str, ...], list[Any]]:
    """Names of all, the safe one's first, and the controllers themselves; those without a name are numbered."""
    if isinstance(candidates, Mapping):
        pairs = list(candidates.items())
    elif isinstance(candidates, Sequence) and not isinstance(candidates, str):
        pairs = [(_own_name(each, f"candidate {k}"), each) for k, each in enumerate(candidates, 1)]
    else:
        raise InvalidInput(
            f"candidates must be controllers by name or in a list, got {type(candidates).__name__}: for one alone, [it]"
        )
    if not pairs:
        raise InvalidInput("candidates must hold at least one controller, got none")
    pairs = [(_own_name(safe, SAFE_NAME), safe), *pairs]
    names = tuple(checked_name("a candidate's name", name) for name, _ in pairs)
    twice = [name for k, name in enumerate(names) if name in names[:k]]
    if twice:
        raise InvalidInput(f"controllers must have different names, got {twice[0]!r} twice")
    return names, [each for _, each in pairs]


def usable(example: Task, given: Any, name: str, seed: int) -> Policy:
    """`given` as a policy for tasks like `example`."""
    if isinstance(given, OwnPolicy):
        if given.controller is None:
            raise InvalidInput(f"controller {given.name!r} must be here to be evaluated, got its name only")
        given = given.controller
    if isinstance(example, TabularCMDP):
        return _table(example, given, name)
    policy = as_policy(given, name)
    if not isinstance(policy, Controller):
        return policy
    shape = policy.observation_shape or getattr(example, "observation_shape", None)  # which a task may tell
    return _recognised(example, replace(policy, name=name, observation_shape=shape), seed)


def _own_name(given: Any, otherwise: str) -> str:
    return given.name if isinstance(given, Controller | OwnPolicy) else otherwise


# --------------------------------------------------------------------------------------------------------------- tables


def _table(example: TabularCMDP, given: Any, name: str) -> Policy:
    """As data: probabilities as they are, functions of the state by asking them in every state."""
    if isinstance(given, np.ndarray | list | tuple):
        return _of_array(example, given, name)
    policy = as_policy(given, name)
    if not isinstance(policy, Controller):
        return policy
    steps = example.units.horizon if policy.looks_at_step else 1
    if steps is None:
        raise InvalidInput(
            f"controller {name!r} must not look at the step where tables have no horizon, got a function of it; give "
            "probabilities [H, S, A]"
        )
    tables = np.stack([_asked(example, policy, step) for step in range(steps)])
    return TabularPolicy(tables[0]) if steps == 1 else TimedPolicy(tables)


def _of_array(example: TabularCMDP, given: Any, name: str) -> Policy:
    array = finite_array(f"controller {name!r}", given)
    if array.ndim == 1:
        return TabularPolicy(_one_hot(example, np.asarray(given), name))
    return TimedPolicy(array) if array.ndim == 3 else TabularPolicy(array)


def _asked(example: TabularCMDP, own: Controller, step: int) -> Floats:
    """[S, A] what a function of the state does in every state, which must be the same every time."""
    states = np.arange(example.n_states)
    first, second = (own.act(states, np.full(len(states), step), np.random.default_rng(k)) for k in (1, 2))
    if own.remembers or not np.array_equal(first, second):
        raise InvalidInput(
            f"controller {own.name!r} must be a function of the state to become a table, got one that "
            f"{'remembers its episode' if own.remembers else 'draws its actions'}; give probabilities [S, A]"
        )
    return _one_hot(example, np.asarray(first), own.name)


def _one_hot(example: TabularCMDP, actions: Any, name: str) -> Floats:
    if actions.shape != (example.n_states,) or actions.dtype.kind not in "iu":
        raise InvalidInput(
            f"controller {name!r} must have one action 0, 1, ... for each of {example.n_states} states, "
            f"got type {actions.dtype} and shape {list(actions.shape)}"
        )
    check_indices(f"actions of controller {name!r}", actions, example.n_actions)
    table: Floats = np.eye(example.n_actions)[actions]
    return table


# ------------------------------------------------------------------------------------------------ all that is simulated


def _recognised(example: Task, own: Controller, seed: int) -> OwnPolicy:
    def simulate(watched: Watched) -> None:
        steps = example.units.episode_length
        example.episodes(watched, steps).run(WATCHED_EPISODES, Stream.GIVEN_POLICY_EPISODES.rng(seed))

    policy = recognised(own, simulate)
    if policy.fingerprint is None:
        warnings.warn(
            f"controller {own.name!r} draws its actions from a generator of its own: the same seed need not give the "
            "same result, and in a stored set it is known by its name only; let it draw from rng, or give "
            "surefoot.controller(..., fingerprint=...)",
            stacklevel=4,
        )
    return policy
