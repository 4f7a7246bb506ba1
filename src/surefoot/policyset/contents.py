"""What a policy-value set holds, checked on construction. Values are in the user's units, as everywhere in the API."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from surefoot.arrays import Floats, assign, finite_array
from surefoot.bounded_json import plain
from surefoot.bounds.cells import Cells
from surefoot.cmdp.controllers import checked_name
from surefoot.cmdp.own_policy import OwnPolicy
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput


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
class Contents:
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


# ------------------------------------------------------------------------------------------------ checks, in call order


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
        checked_name("names", name)
        if isinstance(policy, OwnPolicy) and policy.name != name:
            raise InvalidInput(f"names must have {policy.name!r} for the controller of that name, got {name!r}")
