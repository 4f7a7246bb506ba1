"""A method by its name: one row with all that the rest of the library has to know of it.

Each module of methods ends in its rows, `SPECS`, and `surefoot.methods.METHODS` joins them. A method of one's own is
one more row, handed to `surefoot.learner` in place of a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from surefoot.errors import InvalidInput, did_you_mean
from surefoot.learning.method import LEVELS, Method, Observes
from surefoot.policyset.policy_value_set import PolicyValueSet


@dataclass(frozen=True)
class MethodArgs:
    """What every method is made with, besides a policy set and options of its own.

    Attributes:
        name: by which it was asked for.
        episodes: how many will be run; None if nobody knows.
        risk: probability with which any deployed policy may ever break a budget.
        horizon: the most steps of an episode.
    """

    name: str
    episodes: int | None
    risk: float
    horizon: int

    def planned(self) -> int:
        """The number of episodes, for methods that need it."""
        if self.episodes is None:
            raise InvalidInput(
                f"method {self.name!r} needs the number of episodes in advance: pass episodes=…, got None"
            )
        return self.episodes


@dataclass(frozen=True)
class PlanLine:
    """One method's answer: `episodes` on π_s before it may leave it (infinite: never, NaN: nobody
    knows), and why."""

    method: str
    certified: bool
    episodes: float
    reason: str


# What a policy set must hold for a method, each in words.
Needs: TypeAlias = Literal["policies", "cells", "signals", "model", "exact-model", "tables", "networks"]
NEEDS: Mapping[Needs, str] = MappingProxyType(
    {
        "policies": "any policy set",
        "cells": "value bounds over tasks (cells)",
        "signals": "value bounds, and signals learned in simulation",
        "model": "value bounds, and tables whose transitions are known up to a distance",
        "exact-model": "value bounds, and tables that are affine in the parameter or finitely many",
        "tables": "tables that share rewards and costs and have no horizon",
        "networks": "policies that are networks, and the extra surefoot[control]",
    }
)

# Options that are no longer offered, with the value that left things as they are: records of before may hold that.
WITHDRAWN: Mapping[str, Any] = MappingProxyType({"by_prior": False, "pairs": False, "declared": None})

Make: TypeAlias = Callable[..., Method]  # (policies, terms, **options)
Plan: TypeAlias = Callable[[PolicyValueSet, MethodArgs], PlanLine]
Path: TypeAlias = Callable[[PolicyValueSet, float], Sequence[Any]]  # (policies, risk) -> settings


@dataclass(frozen=True)
class MethodSpec:
    """Attributes:
    name: in settings, journals, results and figures.
    make: `make(policies, terms, **options)`, the method.
    certified: whether a proof comes with it; a method made outside of what its proof covers says so itself.
    why: the theorem, or what is missing, in one sentence.
    proof: theorems and sections of docs/guarantees.md that carry it; none if it is not certified.
    needs: what the policy set must hold.
    costs: what it computes as episodes are told, and what that grows with.
    observes: the most that episodes must be told with.
    options: names of the options that `make` takes.
    state: dataclasses that its states are made of, besides plain data and arrays. Snapshots hold nothing else.
    needs_episodes: whether the number of episodes must be known in advance.
    needs_cover: whether it concludes from the values of entries to other tasks, which takes a cover of these (`train`).
    takes_risk: whether its constants depend on the risk; some have nothing to do with it.
    plan: how long it stays on the safe policy, told before it begins; "trial" to find out on simulated training tasks.
    colour: its place among the colours of figures; None for one that depends on the name alone.
    path: the settings that `calibrate` tries with a policy set at a risk, cautious ones first; None if it has none.
    """

    name: str
    make: Make
    certified: bool
    why: str
    proof: tuple[str, ...] = ()
    needs: Needs = "policies"
    costs: str = ""
    observes: Observes = "sums"
    options: tuple[str, ...] = ()
    state: tuple[type, ...] = ()
    needs_episodes: bool = False
    needs_cover: bool = False
    takes_risk: bool = True
    plan: Plan | Literal["trial"] | None = None
    colour: int | None = None
    path: Path | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidInput(f"name must be a text, got {self.name!r}")
        if self.needs not in NEEDS:
            raise InvalidInput(f"needs must be one of {', '.join(NEEDS)}, got {self.needs!r}")
        if self.observes not in LEVELS:
            raise InvalidInput(f"observes must be one of {', '.join(LEVELS)}, got {self.observes!r}")
        for each in self.state:
            if not (isinstance(each, type) and is_dataclass(each)):
                raise InvalidInput(f"state must hold dataclasses, got {each!r}")
        if len({each.__name__ for each in self.state}) < len(self.state):
            raise InvalidInput(f"state must hold classes of different names, got {self.state!r}")

    def method(self, policies: PolicyValueSet, terms: MethodArgs, options: Mapping[str, Any]) -> Method:
        """The method made, once it is known that it can be asked for like this."""
        options = drop_withdrawn(options, self.options)
        unknown = sorted(set(options) - set(self.options))
        if unknown:
            takes = f"; it takes {', '.join(sorted(self.options))}" if self.options else ""
            raise InvalidInput(
                f"method {self.name!r} takes no option {unknown[0]!r}{takes}{did_you_mean(unknown[0], self.options)}"
            )
        if self.needs_episodes:
            terms.planned()
        if self.needs_cover:
            self.check_cover(policies)
        return self.make(policies, terms, **options)

    def described(self) -> dict[str, Any]:
        """What it needs, promises and costs, as plain data."""
        needs = [NEEDS[self.needs], *(["a cover of the tasks (train)"] if self.needs_cover else [])]
        return {
            "method": self.name,
            "certified": self.certified,
            "needs": [*needs, *(["the number of episodes in advance"] if self.needs_episodes else [])],
            "observes": self.observes,
            "promises": self.why,
            "proof": list(self.proof),
            "costs": self.costs,
            "options": sorted((*self.options, "calibration") if self.path else self.options),
        }

    def check_cover(self, policies: PolicyValueSet) -> None:
        if policies.epsilon is None:
            raise InvalidInput(
                f"method {self.name!r} needs a policy set that train made, whose entries cover the tasks, got a set of "
                "given policies; use certified, which rests on value bounds alone"
            )


def drop_withdrawn(options: Mapping[str, Any], takes: Sequence[str] = ()) -> dict[str, Any]:
    """Options without those that are no longer offered; `takes` are names that a method gives a meaning of its own."""
    gone = WITHDRAWN.keys() - set(takes)
    for name in sorted(gone & options.keys()):
        if options[name] is not WITHDRAWN[name]:
            raise InvalidInput(f"{name} is no longer offered, got {options[name]!r}; leave it out")
    return {name: value for name, value in options.items() if name not in gone}
