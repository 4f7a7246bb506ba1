"""The policy-value set: the output of Algorithm 1 and the whole input of the test phase.

It is checked on construction. Values are in the user's units, as everywhere in the API.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from surefoot.arrays import Floats, assign, finite_array
from surefoot.bounded_json import plain
from surefoot.bounds.cells import MAX_CELLS, Cells
from surefoot.cmdp.controllers import check_name
from surefoot.cmdp.external_policy import ExternalPolicy
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.policyset import manifest as manifests
from surefoot.policyset import storage
from surefoot.policyset.manifest import CELLS, MANIFEST, POLICIES, Arrays, StoredEntry
from surefoot.policyset.stored_arrays import (
    DECODERS,
    cell_arrays,
    cell_fields,
    cells_of,
    policies_of,
    policy_arrays,
    policy_fields,
)
from surefoot.signals.signals import OwnFunction
from surefoot.tabular.policy import TabularPolicy, TimedPolicy

# Fields of the manifest that are called as here, and are plain data.
UNITS = tuple(field.name for field in fields(Units))
ENTRY = ("parameter", "reward", "margin", "safe_reward", "safe_margin")
PLAIN = ("epsilon", "delta", "xi", "task_digest", "recipe", "training", "names")

AnySet = TypeVar("AnySet", bound="PolicyValueSet")


@dataclass(frozen=True, eq=False)
class Entry:
    """A policy and a task: one centre of the cover with its (π, u, v, u_s, v_s), in the user's units.

    Attributes:
        parameter: [d] the task at the centre; without a cover the one that this policy suits best of those looked at.
        policy: π, near-optimal for that task; without a cover whatever it was given as.
        reward: u, the discounted reward of π there.
        margin: [m] v, budget minus discounted cost of π there.
        safe_reward: u_s, the discounted reward of the safe policy there.
        safe_margin: [m] v_s, budget minus discounted cost of the safe policy there.
    """

    parameter: Floats
    policy: Policy
    reward: float
    margin: Floats
    safe_reward: float
    safe_margin: Floats

    def __post_init__(self) -> None:
        _check_policy("policy", self.policy)
        assign(self, parameter=_vector("parameter", self.parameter))
        assign(self, reward=_scalar("reward", self.reward))
        assign(self, margin=_vector("margin", self.margin))
        assign(self, safe_reward=_scalar("safe_reward", self.safe_reward))
        assign(self, safe_margin=_vector("safe_margin", self.safe_margin))
        if self.margin.shape != self.safe_margin.shape:
            raise InvalidInput(
                f"margin and safe_margin must have one number per constraint each, "
                f"got {self.margin.size} and {self.safe_margin.size}"
            )


@dataclass(frozen=True, eq=False)
class PolicyValueSet:
    """The policies a deployment may choose from, with the values that training computed for them.

    Attributes:
        entries: at least one; the order is the order in which the cover was built.
        safe_policy: π_s, feasible on every task of the cover.
        units: discount, horizon, ranges and budgets, shared by all tasks of the family.
        epsilon, delta: the accuracy and the confidence that training was asked for; None if there is no cover, since
            the policies were given. Values of entries then speak of single tasks, and methods that conclude from them
            to others are refused.
        xi: ξ in unit scale, the least margin of the safe policy over the cover; None without one.
        task_digest: digest of the task distribution trained on.
        recipe: plain JSON data from which that distribution can be built again; {} when it cannot.
        training: plain JSON data that tells how training went.
        cells: value bounds over everything the task may be, for the certified methods; None if not built.
        safe_risk: bound on the probability that the safe policy breaks a budget on a task of the distribution; what the
            cells leave uncovered where there are cells, None where nothing is known.
        names: of all policies, the safe one first, by which orders name them; None if nobody named them.
    """

    entries: tuple[Entry, ...]
    safe_policy: Policy
    units: Units
    epsilon: float | None
    delta: float | None
    xi: float | None
    task_digest: str
    recipe: Mapping[str, Any]
    training: Mapping[str, Any]
    cells: Cells | None = None
    safe_risk: float | None = None
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        assign(self, entries=tuple(self.entries))
        if not isinstance(self.units, Units):
            raise InvalidInput(f"units must be a Units, got {type(self.units).__name__}")
        _check_policy("safe_policy", self.safe_policy)
        _check_entries(self.entries, constraints=self.units.budget.size)
        _check_alike(self.policies)
        _check_names(self.names, self.policies)
        assign(self, names=None if self.names is None else tuple(self.names))
        self._check_accuracy()
        if not isinstance(self.task_digest, str) or not self.task_digest or not self.task_digest.isascii():
            raise InvalidInput(f"task_digest must be a non-empty ASCII string, got {self.task_digest!r}")
        for name in ("recipe", "training"):
            if not isinstance(getattr(self, name), Mapping):
                raise InvalidInput(f"{name} must be a mapping, got {type(getattr(self, name)).__name__}")
            assign(self, **{name: plain(name, getattr(self, name))})
        if self.cells is not None and self.cells.lower.shape[1:] != (len(self.policies), 1 + self.units.budget.size):
            raise InvalidInput(
                f"cells must bound reward and {self.units.budget.size} margin(s) of {len(self.policies)} policies, "
                f"got shape {list(self.cells.lower.shape)}"
            )
        known = self.safe_risk if self.cells is None else self.cells.uncovered
        if known is not None:
            known = _scalar("safe_risk", known)
            if not 0 <= known <= 1:
                raise InvalidInput(f"safe_risk must be a probability, got {known!r}")
        assign(self, safe_risk=known)

    def _check_accuracy(self) -> None:
        given = [name for name in ("epsilon", "delta", "xi") if getattr(self, name) is not None]
        if len(given) not in (0, 3):
            raise InvalidInput(f"epsilon, delta and xi must be given all, or None without a cover, got only {given}")
        for name in given:
            value = _scalar(name, getattr(self, name))
            low, high = {"epsilon": (0.0, math.inf), "delta": (0.0, 1.0), "xi": (-math.inf, math.inf)}[name]
            if not low < value < high:
                raise InvalidInput(f"{name} must lie strictly between {low:g} and {high:g}, got {value!r}")
            assign(self, **{name: value})
        if self.xi is not None and self.xi < 0:
            raise InvalidInput(f"xi must not be negative, since the safe policy is feasible, got {self.xi!r}")

    @property
    def radius(self) -> float:
        """epsilon, for what is proved of a cover only."""
        if self.epsilon is None:
            raise InvalidInput("policies must come with a cover, as from train, got a set of given policies without")
        return self.epsilon

    def __len__(self) -> int:
        return len(self.entries)

    @cached_property
    def policies(self) -> tuple[Policy, ...]:
        """Every policy that may be deployed: index 0 is the safe policy, i + 1 is entries[i].policy."""
        return (self.safe_policy, *(entry.policy for entry in self.entries))

    @property
    def may_end(self) -> bool:
        """Whether episodes may end before their last step, after which nothing is paid. Tables never end, and cells
        with a model of transitions are of tables; of all other tasks nobody knows."""
        return self.cells is None or self.cells.model is None

    def name(self, index: int) -> str | None:
        """Of the policy of that index; None if nobody named it, as those that are planned on the way."""
        return self.names[index] if self.names is not None and index < len(self.names) else None

    def save(self, path: str | PathLike[str], *, force: bool = True) -> None:
        """Write the folder `path`, replacing a policy set there unless `force` is False; see `storage`."""
        _check_kinds(self.policies)
        _check_fit("the policy set", self)
        storage.save(_plain_fields(self), _array_groups(self), path, force=force)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        controllers: Mapping[str, Any] | None = None,
        features: OwnFunction | None = None,
    ) -> Self:
        """Read the folder `path` without running any code it names; see `storage`.

        Args:
            controllers: those of one's own by name, which a set does not hold. They are checked against what the set
                knows of them. Without, they can be ordered by name and do not act here.
            features: the function of one's own that signals are made of, which a set does not hold either. It must have
                the values that the set knows of it. Without, signals can be told and not computed here.
        """
        folder = Path(path)
        try:
            return _read_set(cls, folder, controllers or {}, features)
        except MemoryError:
            raise ArtifactError(f"{folder}: does not fit into memory; load it on a larger machine") from None

    def digest(self) -> str:
        """SHA-256 of the content; the same before saving, after loading and in every later library version."""
        return manifests.digest(_plain_fields(self), _array_groups(self))


# ----------------------------------------------------------------------------------------------- checks on construction


def _check_policy(name: str, policy: Any) -> None:
    if not isinstance(policy, Policy):
        raise InvalidInput(
            f"{name} must be a policy with a kind, act and to_arrays (a TabularPolicy has), got {type(policy).__name__}"
        )


def _vector(name: str, value: Any) -> Floats:
    array = finite_array(name, value)
    if array.ndim != 1 or array.size == 0:
        raise InvalidInput(f"{name} must be a vector with at least one number, got shape {list(array.shape)}")
    return array


def _scalar(name: str, value: Any) -> float:
    array = finite_array(name, value)
    if array.ndim:
        raise InvalidInput(f"{name} must be a number, got shape {list(array.shape)}")
    return float(array)


def _check_entries(entries: tuple[Any, ...], constraints: int) -> None:
    if not entries:
        raise InvalidInput("entries must hold at least one Entry, got none")
    for k, entry in enumerate(entries):
        if not isinstance(entry, Entry):
            raise InvalidInput(f"entries[{k}] must be an Entry, got {type(entry).__name__}")
        if entry.margin.size != constraints:
            raise InvalidInput(
                f"entries[{k}].margin must have one number per constraint of units ({constraints}), "
                f"got {entry.margin.size}"
            )
        if entry.parameter.size != entries[0].parameter.size:
            raise InvalidInput(
                f"entries[{k}].parameter must have as many coordinates as entries[0] ({entries[0].parameter.size}), "
                f"got {entry.parameter.size}"
            )


def _check_alike(policies: tuple[Policy, ...]) -> None:
    """Tables of the same states and actions, networks of the same observations and actions; kinds may differ."""
    known: dict[str, tuple[int, dict[str, list[int]]]] = {}
    for k, policy in enumerate(policies):
        spaces = _spaces(policy)
        first, expected = known.setdefault(min(spaces, default=""), (k, spaces))
        if spaces != expected:
            whose = "the safe policy" if not first else f"entries[{first - 1}].policy"
            raise InvalidInput(f"entries[{k - 1}].policy must be for {expected} as {whose}, got {spaces}")


def _spaces(policy: Policy) -> dict[str, list[int]]:
    """What tells for which observations and actions a policy is, by its arrays; {} if they do not."""
    arrays = policy.to_arrays()
    if "probabilities" in arrays:
        return {"states and actions": list(arrays["probabilities"].shape[-2:])}
    if "shift" in arrays and "log_std" in arrays:
        return {"observations": list(arrays["shift"].shape), "actions": list(arrays["log_std"].shape)}
    return {}


def _check_names(names: Any, policies: tuple[Policy, ...]) -> None:
    if names is None:
        return
    if isinstance(names, str) or len(names) != len(policies) or len(set(names)) < len(policies):
        raise InvalidInput(f"names must be {len(policies)} different ones, the safe policy's first, got {names!r}")
    for name, policy in zip(names, policies, strict=True):
        check_name("names", name)
        if isinstance(policy, ExternalPolicy) and policy.name != name:
            raise InvalidInput(f"names must have {policy.name!r} for the controller of that name, got {name!r}")


# ------------------------------------------------------------------------------------------------- to the disk and back


def _plain_fields(policy_set: PolicyValueSet) -> dict[str, Any]:
    """The manifest's fields that come from the set itself, as plain JSON data, without what is None."""
    units, cells = policy_set.units, policy_set.cells
    found = {
        **{name: getattr(units, name) for name in UNITS},
        **{name: getattr(policy_set, name) for name in PLAIN},
        **policy_fields(policy_set.policies),
        "entries": [{name: _json(getattr(entry, name)) for name in ENTRY} for entry in policy_set.entries],
        "cells": None if cells is None else cell_fields(cells),
        "safe_risk": policy_set.safe_risk if cells is None else None,
    }
    return {name: _json(value) for name, value in found.items() if value is not None}


def _json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _array_groups(policy_set: PolicyValueSet) -> dict[str, Arrays]:
    """File name -> the arrays in it."""
    groups = {POLICIES: policy_arrays(policy_set.policies)}
    if policy_set.cells is not None:
        groups[CELLS] = cell_arrays(policy_set.cells)
    return groups


def _read_set(kind: type[AnySet], folder: Path, controllers: Mapping[str, Any], features: OwnFunction | None) -> AnySet:
    manifest, groups = storage.read(folder)
    safe_policy, *policies = _attach(policies_of(folder, manifest, groups[POLICIES]), controllers)
    cells = None if manifest.cells is None else cells_of(folder, manifest.cells, groups[CELLS])
    if features is not None:
        cells = _with_features(cells, features)
    try:
        policy_set = kind(
            entries=tuple(_entry(k, *pair) for k, pair in enumerate(zip(manifest.entries, policies, strict=True))),
            safe_policy=safe_policy,
            units=Units(**{name: getattr(manifest, name) for name in UNITS}),
            cells=cells,
            safe_risk=manifest.safe_risk,
            **{name: getattr(manifest, name) for name in PLAIN},
        )
    except InvalidInput as error:
        raise ArtifactError(f"{folder / MANIFEST}: {error}") from None
    _check_fit(folder / CELLS, policy_set)
    return policy_set


def _attach(policies: list[Policy], controllers: Mapping[str, Any]) -> list[Policy]:
    own = [policy.name for policy in policies if isinstance(policy, ExternalPolicy)]
    unknown = sorted(set(controllers) - set(own))
    if unknown:
        raise InvalidInput(f"controllers must be named as in the policy set, {own}, got {unknown[0]!r}")
    return [
        policy.with_controller(controllers[policy.name])
        if isinstance(policy, ExternalPolicy) and policy.name in controllers
        else policy
        for policy in policies
    ]


def _with_features(cells: Cells | None, features: OwnFunction) -> Cells:
    """The same cells, whose episodes can be read here."""
    readings = None if cells is None else cells.readings
    own = None if readings is None else readings.signals.own
    if cells is None or readings is None or own is None:
        raise InvalidInput("features must be left out for a policy set without features of one's own, got a function")
    signals = replace(readings.signals, own=own.found(features))
    return replace(cells, readings=replace(readings, signals=signals))


def _entry(k: int, stored: StoredEntry, policy: Policy) -> Entry:
    try:
        return Entry(policy=policy, **{name: getattr(stored, name) for name in ENTRY})
    except InvalidInput as error:
        raise InvalidInput(f"entries[{k}]: {error}") from None


# -------------------------------------------------------------------------------------------------- what may be on disk


def _check_kinds(policies: tuple[Policy, ...]) -> None:
    for kind in sorted({policy.kind for policy in policies} - {ExternalPolicy.kind}):
        if kind not in DECODERS:
            raise ArtifactError(
                f"policies of kind {kind!r} cannot be saved, must be one of {sorted(DECODERS)}; controllers of your "
                "own can be in a set that policy_set makes, which stores their names"
            )


def _check_fit(where: Path | str, policy_set: PolicyValueSet) -> None:
    """Cells speak of the entries' parameters and the policies' tables, and all values are possible in the units."""
    if policy_set.cells is not None:
        _check_cells(where, policy_set, policy_set.cells)
    _check_values(where, policy_set)


def _check_cells(where: Path | str, policy_set: PolicyValueSet, cells: Cells) -> None:
    if len(cells) > MAX_CELLS:
        raise ArtifactError(f"{where}: holds {len(cells)} cells, must hold at most {MAX_CELLS}")
    tables = [policy for policy in policy_set.policies if isinstance(policy, TabularPolicy | TimedPolicy)]
    pairs = [("low", cells.low.shape[1:], policy_set.entries[0].parameter.shape, "parameters of the entries")]
    if tables:  # all of the same states and actions
        table = tables[0].probabilities.shape[-2:]
        if cells.first_states is not None:
            last = int(cells.first_states[-1])
            if last >= table[0]:
                raise ArtifactError(f"{where}: first_states must be states of the policies, < {table[0]}, got {last}")
        elif cells.start_lower is not None:
            pairs.append(("start_lower", cells.start_lower.shape[3:], table[:1], "states of the policies"))
        if cells.model is not None:
            found = (cells.model.n_states, cells.model.n_actions)
            pairs.append(("model", found, table, "states and actions of the policies"))
    for name, found, expected, what in pairs:
        if found != expected:
            raise ArtifactError(f"{where}: {name} is for {list(found)} {what}, must be for {list(expected)}")


def _check_values(where: Path | str, policy_set: PolicyValueSet) -> None:
    """No lower bound above, and no upper bound below, what rewards and costs in their ranges allow.

    Half of the check is left to tolerance: estimated values may miss the range, but hardly by as much as it reaches.
    Bounds may be as loose as they like.
    """
    least, most = policy_set.units.possible_values(ends=policy_set.may_end)
    room = np.maximum(np.abs(least), np.abs(most))
    for name, lower, upper in _bounds(policy_set):
        if (lower > most + room).any() or (upper < least - room).any():
            raise ArtifactError(
                f"{where}: {name} must be possible with rewards and costs in the ranges of units, that is lie between "
                f"{least.tolist()} and {most.tolist()} (reward, margins), got numbers from {upper.min():g} to "
                f"{lower.max():g}"
            )


def _bounds(policy_set: PolicyValueSet) -> Iterator[tuple[str, Floats, Floats]]:
    """Name, lower and upper [..., 1+m]; the same for a value."""
    entries, cells = policy_set.entries, policy_set.cells
    values = np.array([[entry.reward, *entry.margin] for entry in entries])
    yield "reward and margin of entries", values, values
    values = np.array([[entry.safe_reward, *entry.safe_margin] for entry in entries])
    yield "safe_reward and safe_margin of entries", values, values
    if cells is not None:
        yield "lower and upper", cells.lower, cells.upper
        if cells.start_lower is not None and cells.start_upper is not None:
            lower, upper = np.moveaxis(cells.start_lower, 2, 3), np.moveaxis(cells.start_upper, 2, 3)
            yield "start_lower and start_upper", lower, upper
