"""What a policy-value set holds, checked on construction. Values are in the user's units, as everywhere in the API."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from surefoot.arrays import Floats, assign, finite_array
from surefoot.bounded_json import plain
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.policyset.cells import Cells


@dataclass(frozen=True, eq=False)
class Entry:
    """One centre of the cover with its policy: the paper's (π, u, v, u_s, v_s), in the user's units.

    Attributes:
        parameter: [d] the task at the centre.
        policy: π, near-optimal for that task.
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
        epsilon, delta: the accuracy and the confidence that training was asked for.
        xi: ξ in unit scale, the least margin of the safe policy over the cover.
        task_digest: digest of the task distribution trained on.
        recipe: plain JSON data from which that distribution can be built again; {} when it cannot.
        training: plain JSON data that tells how training went.
        cells: value bounds over everything the task may be, for the certified methods; None if not built.
        safe_risk: bound on the probability that the safe policy breaks a budget on a task of the distribution; what the
            cells leave uncovered where there are cells, None where nothing is known.
    """

    entries: tuple[Entry, ...]
    safe_policy: Policy
    units: Units
    epsilon: float
    delta: float
    xi: float
    task_digest: str
    recipe: Mapping[str, Any]
    training: Mapping[str, Any]
    cells: Cells | None = None
    safe_risk: float | None = None

    def __post_init__(self) -> None:
        assign(self, entries=tuple(self.entries))
        if not isinstance(self.units, Units):
            raise InvalidInput(f"units must be a Units, got {type(self.units).__name__}")
        _check_policy("safe_policy", self.safe_policy)
        _check_entries(self.entries, constraints=self.units.budget.size)
        _check_alike(self.policies)
        for name, low, high in (("epsilon", 0.0, math.inf), ("delta", 0.0, 1.0)):
            value = _scalar(name, getattr(self, name))
            if not low < value < high:
                raise InvalidInput(f"{name} must lie strictly between {low:g} and {high:g}, got {value!r}")
            assign(self, **{name: value})
        assign(self, xi=_scalar("xi", self.xi))
        if self.xi < 0:
            raise InvalidInput(f"xi must not be negative, since the safe policy is feasible, got {self.xi!r}")
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

    def __len__(self) -> int:
        return len(self.entries)

    @cached_property
    def policies(self) -> tuple[Policy, ...]:
        """Every policy that may be deployed: index 0 is the safe policy, i + 1 is entries[i].policy."""
        return (self.safe_policy, *(entry.policy for entry in self.entries))


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
    first, *others = policies
    kind, shapes = first.kind, _shapes(first)
    for k, policy in enumerate(others):
        if policy.kind != kind:
            raise InvalidInput(f"entries[{k}].policy must be of the safe policy's kind {kind!r}, got {policy.kind!r}")
        if _shapes(policy) != shapes:
            raise InvalidInput(
                f"entries[{k}].policy must have arrays of the safe policy's shapes {shapes}, got {_shapes(policy)}"
            )


def _shapes(policy: Policy) -> dict[str, list[int]]:
    return {name: list(array.shape) for name, array in policy.to_arrays().items()}
