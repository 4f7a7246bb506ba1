"""What a test-phase method is: a mixture of policies to deploy, and a pure step from what was observed to the next."""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.bounds.cells import Cells
from surefoot.cmdp.episode import LEVELS as LEVELS
from surefoot.cmdp.episode import Observes as Observes
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.episode import includes as includes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.learning.event import Event
from surefoot.policyset.policy_value_set import PolicyValueSet

SAFE = 0  # index of the safe policy among a method's policies


@dataclass(frozen=True, eq=False)
class Mixture:
    """The mixture in force until the next decision: policy indices [k] and their probabilities [k]."""

    indices: Integers
    weights: Floats

    @cached_property
    def weight(self) -> float:
        """Probability of leaving the safe policy."""
        return float(self.weights[self.indices != SAFE].sum())

    def components(self, uniform: Floats) -> Integers:
        """[n] policies that uniform numbers [n] draw."""
        place = np.searchsorted(self._cumulative, uniform, side="right")
        drawn: Integers = self.indices[np.minimum(place, len(self.indices) - 1)]
        return drawn

    def probabilities(self, policies: int) -> Floats:
        """[P] of all policies, 0 of those that are not in it."""
        found = np.zeros(policies)
        found[self.indices] = self.weights
        return found

    @cached_property
    def _cumulative(self) -> Floats:
        return np.cumsum(self.weights)


SAFE_MIXTURE = Mixture(np.array([SAFE]), np.array([1.0]))


@dataclass(frozen=True, eq=False)
class Step:
    """What a method made of a block: its next state, how many episodes it used, and what happened.

    A method uses episodes up to and including the first one after which it deploys something else, accounts otherwise
    for it, or has something to tell.
    """

    state: Any
    used: int
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, eq=False)
class Certificate:
    """What a method says of the mixture it deploys.

    Attributes:
        surviving, total: cells or candidates that are still possible, and all of them.
        margin: [m] lower bound on the margins for the certified methods, the prediction under test for Algorithm 2;
            None when nothing is claimed.
    """

    surviving: int
    total: int
    margin: Floats | None


@dataclass(frozen=True)
class RiskSplit:
    """How the risk is spent: on tasks that are not covered, on ruling out what is true, and on bounds of values."""

    coverage: float = 0.0
    elimination: float = 0.0
    values: float = 0.0


if TYPE_CHECKING:
    member = property
else:

    class member:  # noqa: N801
        """A property that a field of a dataclass may replace: the class itself has no such attribute, which would be
        taken for the default of the field."""

        def __init__(self, default):
            self.default = default

        def __get__(self, instance, owner=None):
            if instance is None:
                raise AttributeError("only an instance has this member")
            return self.default(instance)


class Method(ABC):
    """Constants of one test-phase method. Holds no state: `start`, `mixture`, `update` and `abandon` are pure.

    A subclass has a `name`, the `policies` that it chooses from and what is abstract here. The rest has defaults.

    Attributes:
        name: of its row, or of the row that it was made for.
        certified: whether a proof comes with it; False by default.
        policies: the policy set that it chooses from; None if there is none.
        units: by default those of the policy set.
        observes: what outcomes must be told with; by default sums alone.
        cells: those that it rules out; None if there are none.
        risk_split: how the risk is spent; None if it does not say.
        note: what a reader of the record should know from the beginning; nothing by default.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Members under their former names count as before."""
        super().__init_subclass__(**arguments)
        for former, name in FORMER.items():
            if former in vars(cls) and name not in vars(cls):
                setattr(cls, name, vars(cls)[former])

    @member
    def name(self) -> str:
        raise InvalidInput(f"name must be given by {type(self).__name__}, a Method, got none")

    @member
    def certified(self) -> bool:
        return False

    @member
    def policies(self) -> PolicyValueSet | None:
        return None

    @member
    def units(self) -> Units:
        return self._policy_set.units

    @member
    def observes(self) -> Observes:
        return "sums"

    @member
    def cells(self) -> Cells | None:
        return None

    @member
    def risk_split(self) -> RiskSplit | None:
        return None

    @member
    def note(self) -> str:
        return ""

    @abstractmethod
    def start(self) -> Any: ...

    @abstractmethod
    def mixture(self, state: Any) -> Mixture: ...

    def policy(self, state: Any, index: int) -> Policy:
        """The policy that an index stands for; by default that of the policy set."""
        return self._policy_set.policies[index]

    @abstractmethod
    def update(self, state: Any, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        """Fold outcomes [n] of the policies drawn [n] into the state, from episode number `episode` on."""

    @abstractmethod
    def abandon(self, state: Any, episode: int, drawn: int) -> Step:
        """Episode number `episode`, of policy `drawn`, has no outcome: each test takes the one that favours it least.

        Whatever the outcome would have been, the state concludes no more than it would have with it. So leaving
        episodes out, even because of how they went, breaks no guarantee.
        """

    def learn_from_history(self, state: Any, outcomes: Outcomes) -> Step:
        """Fold outcomes [n] of the safe policy from before the first episode into the state at the start, and decide.

        Only a method whose proof allows for them takes any (docs/guarantees.md, Theorem 13); by default none does.
        """
        raise InvalidInput(
            f"history must be left out for {self.name}, of which nothing is proved with it, got {len(outcomes)} "
            "earlier episodes; the methods that are certified without a calibration take them"
        )

    @abstractmethod
    def certificate(self, state: Any) -> Certificate: ...

    def surviving(self, state: Any) -> Sequence[int] | Integers:
        """Numbers of the cells that are still possible, without cells of the entries of the policy set."""
        return ()

    def voided(self, state: Any) -> bool:
        """Whether something has happened after which its proof no longer holds."""
        return False

    @property
    def _policy_set(self) -> PolicyValueSet:
        if self.policies is None:
            raise InvalidInput(
                f"units and policy must be given by {self.name!r}, a Method without a policy set, got none"
            )
        return self.policies


def as_method(method: Any) -> Method:
    """What somebody wrote as a method, with the defaults of `Method` for what it lacks."""
    if isinstance(method, Method):
        return method
    if not hasattr(method, "start"):
        raise InvalidInput(f"make must return a Method, got {reprlib.repr(method)}")
    return Adopted(method)


FORMER = {"deployed": "mixture", "absorb": "update", "account": "certificate"}


class Adopted(Method):
    """A method whose author wrote the members of `Method` without inheriting: what it lacks is as by default."""

    def __init__(self, method: Any) -> None:
        self.method = method
        optional = [name for name in dir(Method) if not name.startswith("_") and name not in Method.__abstractmethods__]
        vars(self).update({name: getattr(method, name) for name in optional if hasattr(method, name)})
        if not isinstance(self.policies, PolicyValueSet):
            vars(self)["policies"] = None

    def __getattr__(self, name: str) -> Any:
        if name == "method":  # not yet there while a copy is made
            raise AttributeError(name)
        return getattr(self.method, name)

    def start(self) -> Any:
        return self.method.start()

    def mixture(self, state: Any) -> Mixture:
        return self._member("mixture")(state)  # type: ignore[no-any-return]

    def update(self, state: Any, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        return self._member("update")(state, episode, drawn, outcomes)  # type: ignore[no-any-return]

    def abandon(self, state: Any, episode: int, drawn: int) -> Step:
        return self.method.abandon(state, episode, drawn)  # type: ignore[no-any-return]

    def certificate(self, state: Any) -> Certificate:
        return self._member("certificate")(state)  # type: ignore[no-any-return]

    def _member(self, name: str) -> Any:
        former = next(former for former, present in FORMER.items() if present == name)
        return getattr(self.method, name if hasattr(self.method, name) else former)
