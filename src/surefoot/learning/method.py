"""What a test-phase method is: a mixture of policies to deploy, and a pure step from what was observed to the next."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.cmdp.episode import LEVELS as LEVELS
from surefoot.cmdp.episode import Observes as Observes
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.episode import includes as includes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.learning.event import Event

SAFE = 0  # index of the safe policy among a method's policies


@dataclass(frozen=True, eq=False)
class Deployed:
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

    @cached_property
    def _cumulative(self) -> Floats:
        return np.cumsum(self.weights)


SAFE_ONLY = Deployed(np.array([SAFE]), np.array([1.0]))


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
class Account:
    """What a method says of the mixture it deploys.

    Attributes:
        surviving, total: cells or candidates that are still possible, and all of them.
        margin: [m] lower bound on the margins for the certified methods, the prediction under test for Algorithm 2;
            None when nothing is claimed.
    """

    surviving: int
    total: int
    margin: Floats | None


class Method(Protocol):
    """Constants of one test-phase method. Holds no state: `start`, `deployed`, `absorb` and `abandon` are pure."""

    @property
    def name(self) -> str: ...

    @property
    def certified(self) -> bool: ...

    @property
    def units(self) -> Units: ...

    @property
    def observes(self) -> Observes:
        """What outcomes must be told with."""
        ...

    def start(self) -> Any: ...

    def deployed(self, state: Any) -> Deployed: ...

    def policy(self, state: Any, index: int) -> Policy: ...

    def absorb(self, state: Any, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        """Fold outcomes [n] of the policies drawn [n] into the state, from episode number `episode` on."""
        ...

    def abandon(self, state: Any, episode: int, drawn: int) -> Step:
        """Episode number `episode`, of policy `drawn`, has no outcome: each test takes the one that favours it least.

        Whatever the outcome would have been, the state concludes no more than it would have with it. So leaving
        episodes out, even because of how they went, breaks no guarantee.
        """
        ...

    def account(self, state: Any) -> Account: ...
