"""A certified method at a level that simulation allows, not its own proof (docs/guarantees.md, Theorem 12).

Ville's inequality bounds the probability that the true cell is ever ruled out, for ever, on the worst task. What a user
is promised is less: nothing unsafe on a task drawn from the distribution, within so many episodes. That probability can
be counted on simulated tasks before anything real is touched, and the level raised until the count forbids more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import takewhile
from types import MappingProxyType
from typing import Any

from surefoot.arrays import Integers, Mask, fraction, whole
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.confidence import binomial_upper
from surefoot.errors import InvalidInput
from surefoot.learning.certified.method import Certified, CertifiedState
from surefoot.learning.event import Event
from surefoot.learning.method import SAFE_ONLY, Account, Deployed, Observes, Step


@dataclass(frozen=True)
class Calibration:
    """What was counted, and the level that it allows.

    Attributes:
        method, options, horizon, digest: the learner that was run: its method, options and steps of an episode, and the
            digest of its policy set.
        episodes: of each run, and the most for which anything is promised.
        risk: what is promised, jointly over the calibration, the task and its episodes.
        error: probability with which a level passes whose own risk exceeds `risk - error`; 0 if only the joint promise
            is asked for, which needs fewer runs or lets larger levels pass.
        level: the largest nominal level that passed; None if none did.
        runs: simulated tasks at each level.
        counts: levels tried and unsafe tasks at each, in order; a count that was broken off is the least there is.
    """

    method: str
    episodes: int
    risk: float
    error: float
    level: float | None
    runs: int
    counts: tuple[tuple[float, int], ...]
    horizon: int
    digest: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        whole("episodes", self.episodes)
        whole("runs", self.runs)
        fraction("risk", self.risk)
        if self.error != 0 and fraction("error", self.error) >= self.risk:
            raise InvalidInput(f"error must be less than the risk, {self.risk:g}, a part of it, got {self.error:g}")
        counts = tuple((fraction("levels", level), whole("unsafe", unsafe, least=0)) for level, unsafe in self.counts)
        object.__setattr__(self, "counts", counts)
        passed = [level for level, _ in takewhile(lambda count: self.passes(count[1]), self.counts)]
        if self.level != (passed[-1] if passed else None):
            raise InvalidInput(f"level must be the last before one fails among {self.counts}, got {self.level!r}")

    def passes(self, unsafe: int) -> bool:
        """Whether a level with so many unsafe tasks may be taken (Theorem 12; with an error, Theorem 12a)."""
        if self.error == 0:
            return unsafe + 1 <= self.risk * (self.runs + 1)
        return binomial_upper(unsafe, self.runs, self.error) <= self.risk - self.error


def raised(untried: Calibration, levels: Sequence[float], unsafe: Callable[[float], int]) -> Calibration:
    """Fixed-sequence testing: levels in their order, until one fails. No level is paid for twice, since a later one is
    tried only if those before it have passed."""
    found = untried
    for level in levels:
        count = unsafe(level)
        counts = (*found.counts, (level, count))
        if not found.passes(count):
            return replace(found, counts=counts)
        found = replace(found, level=level, counts=counts)
    return found


def told_calibration(told: Any) -> Calibration:
    """One from plain data, as a journal or a file keeps it."""
    names = [each.name for each in fields(Calibration)]
    if not isinstance(told, Mapping) or sorted(told) != sorted(names):
        raise InvalidInput(f"calibration must hold {', '.join(names)}, as calibrate returns it, got {told!r}")
    return Calibration(**told)


# Options of a method where nobody chose them.
UNSET: Mapping[str, Any] = MappingProxyType(
    {"replan": None, "pairs": False, "optimistic": False, "split": False, "shift": 0.0, "assume_safe": False}
    | {"declared": None}
)


def at_level(method: Certified, level: float) -> Certified:
    """A method that rules out cells at a nominal level, whatever its proof allows. *Uncertified* as it stands."""
    return replace(method, risk_split={**method.risk_split, "elimination": level}, certified=False)


def calibrated(
    method: Certified, found: Calibration, risk: float, horizon: int, options: Mapping[str, Any]
) -> Calibrated:
    """A method at the level that was found for it, and for nothing else."""
    if found.level is None:
        raise InvalidInput("calibration must have passed at some level, got one that passed at none; leave it out")
    if risk < found.risk:
        raise InvalidInput(f"risk must be at least the {found.risk:g} of the calibration, got {risk:g}")
    asked = {**UNSET, **options, "method": method.name, "horizon": horizon, "digest": method.policies.digest()}
    had = {**UNSET, **found.options, "method": found.method}
    had |= {"horizon": found.horizon, "digest": found.digest}
    for name, value in asked.items():
        if value != had[name]:
            raise InvalidInput(f"calibration must be for {name} {value!r}, got one for {had[name]!r}")
    split = {"coverage": 0.0, "elimination": found.risk, "values": 0.0}
    return Calibrated(at_level(method, found.level), found, split)


@dataclass(frozen=True, eq=False)
class CalibratedState:
    """That of the method, and whether the promise has come to its end."""

    inner: CertifiedState
    ended: bool = False

    @property
    def surviving(self) -> Mask:
        """[J] what the page of a deployment shows of it."""
        return self.inner.surviving


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A certified method at the level of a calibration. It ends in the safe policy, after the last episode that was
    calibrated for, and after one without an outcome, which no simulation had."""

    inner: Certified
    calibration: Calibration
    risk_split: Mapping[str, float]
    certified: bool = True

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def note(self) -> str:
        found = f"level {self.calibration.level:g}, calibrated for {self.calibration.episodes} episodes"
        return f"{self.inner.note}; {found}" if self.inner.note else found

    @property
    def units(self) -> Units:
        return self.inner.units

    @property
    def observes(self) -> Observes:
        return self.inner.observes

    @property
    def policies(self) -> Any:
        return self.inner.policies

    @property
    def cells(self) -> Any:
        return self.inner.cells

    def start(self) -> CalibratedState:
        return CalibratedState(self.inner.start())

    def deployed(self, state: CalibratedState) -> Deployed:
        return SAFE_ONLY if state.ended else self.inner.deployed(state.inner)

    def policy(self, state: CalibratedState, index: int) -> Policy:
        return self.inner.policy(state.inner, index)

    def absorb(self, state: CalibratedState, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        if state.ended:
            return Step(state, len(outcomes))
        left = self.calibration.episodes - episode
        step = self.inner.absorb(state.inner, episode, drawn[:left], outcomes[:left])
        return self._moved(step, episode, "the episodes that were calibrated for are over")

    def abandon(self, state: CalibratedState, episode: int, drawn: int) -> Step:
        if state.ended:
            return Step(state, 1)
        step = self.inner.abandon(state.inner, episode, drawn)
        return _ended(step, episode + 1, "an episode has no outcome, and none was calibrated for")

    def account(self, state: CalibratedState) -> Account:
        """No margin: what was calibrated is that nothing is unsafe, not that bounds of cells hold."""
        return replace(self.inner.account(state.inner), margin=None)

    def _moved(self, step: Step, episode: int, why: str) -> Step:
        if episode + step.used >= self.calibration.episodes:
            return _ended(step, episode + step.used, why)
        return replace(step, state=CalibratedState(step.state))


def _ended(step: Step, episode: int, why: str) -> Step:
    event = Event(episode, "ended", f"{why}: staying on the safe policy")
    return Step(CalibratedState(step.state, True), step.used, (*step.events, event))
