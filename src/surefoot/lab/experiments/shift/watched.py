"""A learner with a test of the task beside it: after its alarm only the safe policy is deployed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from surefoot.arrays import Integers
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.learning.event import Event
from surefoot.learning.method import SAFE_ONLY, Account, Deployed, Method, Observes, Step
from surefoot.learning.shift_test import ShiftState, ShiftTest


@dataclass(frozen=True, eq=False)
class WatchedState:
    inner: Any
    test: ShiftState


@dataclass(frozen=True, eq=False)
class Watched(Method):
    """The inner method as long as the test has raised no alarm."""

    inner: Method
    test: ShiftTest
    certified: bool = True
    observes: ClassVar[Observes] = "transitions"

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def units(self) -> Units:
        return self.inner.units

    def start(self) -> WatchedState:
        return WatchedState(self.inner.start(), self.test.start())

    def deployed(self, state: WatchedState) -> Deployed:
        return self.inner.deployed(state.inner) if state.test.alarm is None else SAFE_ONLY

    def policy(self, state: WatchedState, index: int) -> Policy:
        return self.inner.policy(state.inner, index)

    def absorb(self, state: WatchedState, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        if state.test.alarm is not None:
            return Step(state, len(outcomes))
        step = self.inner.absorb(state.inner, episode, drawn, outcomes)
        test = self.test.observe(state.test, outcomes[: step.used])
        events = () if test.alarm is None else (Event(test.alarm, "alarm", "the task is not one of those trained for"),)
        return Step(WatchedState(step.state, test), step.used, events)

    def abandon(self, state: WatchedState, episode: int, drawn: int) -> Step:
        raise TypeError("episodes of an experiment are never abandoned")

    def account(self, state: WatchedState) -> Account:
        return self.inner.account(state.inner)
