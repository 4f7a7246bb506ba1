"""A method at a setting that simulation allows, whatever its own proof says (docs/guarantees.md, Theorem 12).

What a user is promised is that nothing unsafe is deployed on a task drawn from the distribution, within so many
episodes. That probability can be counted on simulated tasks before anything real is touched, so a method, with a proof
of its own or without, may be made bolder setting by setting until the count forbids more.
"""

from __future__ import annotations

import json
import reprlib
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import takewhile
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from scipy.special import bdtr

from surefoot.arrays import Integers, check_int, check_unit_interval, number
from surefoot.bounds.cells import Cells
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.confidence import binomial_upper
from surefoot.errors import InvalidInput
from surefoot.learning.event import Event
from surefoot.learning.method import SAFE_MIXTURE, Certificate, Method, Mixture, Observes, RiskSplit, Step
from surefoot.learning.spec import drop_withdrawn
from surefoot.policyset.policy_value_set import PolicyValueSet

# A place on the path from cautious to bold: a nominal level, or options of the method by name.
Setting: TypeAlias = float | Mapping[str, Any]

CLAIMED = (
    "claimed calibration: nobody here has counted it, so nothing is certified; recount it (surefoot deploy "
    "--recount N, surefoot.recount), or prove its seal (--key FILE)"
)

# How it is known what a calibration counted: by whoever made it in this process, by a key, by counting again, or not.
Standing: TypeAlias = Literal["counted", "sealed", "recounted", "claimed"]

# The part of the risk that all attempts share; each has a part of the rest for itself (Theorem 12b).
SHARED = 0.9
MOST_RUNS, MOST_ATTEMPTS = 10**9, 1000


@dataclass(frozen=True)
class Calibration:
    """What was counted, and the setting that it allows.

    Attributes:
        method, options, horizon, digest: the learner that was run: its method, options and steps of an episode, and the
            digest of its policy set.
        episodes: of each run, and the most for which anything is promised.
        risk: what is promised, jointly over the calibration, the task and its episodes.
        error: probability with which a level passes whose own risk exceeds `risk - error`; 0 if only the joint promise
            is asked for, which needs fewer runs or lets larger levels pass.
        level: the boldest setting that passed, a nominal level or options by name; None if none did.
        runs: simulated tasks at each setting.
        counts: settings tried and unsafe tasks at each, in order; a count that was broken off is the least there is.
        attempt: 1, 2, ... as `calibrate` was told; 0 if this was to be the only one, whatever it showed.
        seed: of the runs, from which anybody can count again; None in files that do not say.
        tasks: the distribution that tasks were drawn from, in words and by its digest; None in files that do not say.
        unsafe_runs: the numbers of the unsafe runs at each level that was tried; None in files that do not say.
        standing: "counted" by `calibrate` in this process, "sealed" by a key, "recounted" from its seed, or "claimed".
            With a claimed one a learner is not certified.
        judge_error: probability with which a task counts as safe though it is not, where values are not exact; a part
            of the risk (Theorem 12c).
        judged_on: the most fresh episodes of each policy on which a task was judged; 0 where values are exact.
        abandoned: the share of episodes without an outcome in every run; after one that none had, nothing is promised.
        reserve: part of the risk set aside for the method as it is proved, which takes over after the last episode.
        gains: mean reward of an episode beyond that of the safe policy, at each setting that was tried; None in files
            that do not say. No promise rests on them.
    """

    method: str
    episodes: int
    risk: float
    error: float
    level: Setting | None
    runs: int
    counts: tuple[tuple[Setting, int], ...]
    horizon: int
    digest: str
    options: Mapping[str, Any] = field(default_factory=dict)
    attempt: int = 0
    seed: int | None = None
    tasks: str | None = None
    unsafe_runs: tuple[tuple[int, ...], ...] | None = None
    standing: Standing = "claimed"
    judge_error: float = 0.0
    judged_on: int = 0
    abandoned: float = 0.0
    reserve: float = 0.0
    gains: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_int("episodes", self.episodes)
        if check_int("runs", self.runs) > MOST_RUNS:
            raise InvalidInput(f"runs must be at most {MOST_RUNS:,}, got {self.runs:,}")
        if check_int("attempt", self.attempt, least=0) > MOST_ATTEMPTS:
            raise InvalidInput(f"attempt must be at most {MOST_ATTEMPTS}, got {self.attempt}")
        check_int("judged_on", self.judged_on, least=0)
        check_unit_interval("risk", self.risk)
        for name in ("error", "judge_error", "abandoned", "reserve"):
            if getattr(self, name) != 0:
                check_unit_interval(name, getattr(self, name))
        if self.error >= self.countable_risk:
            raise InvalidInput(
                f"error must be less than the risk, {self.countable_risk:g} after what judging and the reserve take, a "
                f"part of it, got {self.error:g}"
            )
        counts = tuple((check_setting(level), check_int("unsafe", unsafe, least=0)) for level, unsafe in self.counts)
        object.__setattr__(self, "counts", counts)
        if any(unsafe > self.runs for _, unsafe in counts):
            raise InvalidInput(f"unsafe tasks must be at most the runs, {self.runs:,}, got counts {counts}")
        if self.level != (self.passed[-1] if self.passed else None):
            raise InvalidInput(f"level must be the last before one fails among {self.counts}, got {self.level!r}")
        check_options(self.options)
        self._check_origin()

    def passes(self, unsafe: int) -> bool:
        """Whether a setting with so many unsafe tasks may be taken (Theorems 12 and 12b; with an error, 12a)."""
        risk = self.countable_risk
        if self.error:
            return binomial_upper(unsafe, self.runs, self.error * 0.5**self.attempt) <= risk - self.error
        shared = SHARED * risk if self.attempt else 0.0
        return expected_excess(unsafe, self.runs, shared) <= (risk - shared) * 0.5**self.attempt

    @property
    def countable_risk(self) -> float:
        """What is left of the risk for tasks that count as unsafe (Theorem 12c)."""
        return self.risk - self.judge_error - self.reserve

    @property
    def passed(self) -> tuple[Setting, ...]:
        """The settings before the first that failed."""
        return tuple(level for level, _ in takewhile(lambda count: self.passes(count[1]), self.counts))

    @property
    def allowed(self) -> int:
        """The most unsafe tasks with which a level passes; -1 if none would do."""
        return bisect_left(range(self.runs + 1), True, key=lambda unsafe: not self.passes(unsafe)) - 1

    @property
    def fallback_risk(self) -> float:
        """Of a level of this calibration if one passes, and of the method as it is proved, at the same risk, if none
        does: risk + ∫ P(one of a higher risk passes), where attempts before this one count as all that they may."""
        risk = self.countable_risk
        before = (1 - 2 * 0.5**self.attempt) * (self.error or (1 - SHARED) * risk) if self.attempt else 0.0
        return self.risk + before + expected_excess(self.allowed, self.runs, risk)

    def plain(self) -> dict[str, Any]:
        """As JSON data. What is as by default among the later fields is left out, as in files from before them."""
        later = {each.name: each.default for each in fields(self)[-5:]}
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if name not in later or value != later[name]}

    def _check_origin(self) -> None:
        if self.seed is not None:
            check_int("seed", self.seed, least=0)
        if self.tasks is not None and not isinstance(self.tasks, str):
            raise InvalidInput(f"tasks must be a text, got {self.tasks!r}")
        if self.standing not in get_args(Standing):
            raise InvalidInput(f"standing must be one of {', '.join(get_args(Standing))}, got {self.standing!r}")
        if self.gains is not None:
            object.__setattr__(self, "gains", tuple(number("gains", gain) for gain in self.gains))
            if len(self.gains) != len(self.counts):
                raise InvalidInput(f"gains must be as many as counts, {len(self.counts)}, got {len(self.gains)}")
        if self.unsafe_runs is None:
            return
        numbers = tuple(
            tuple(check_int("unsafe_runs", number, least=0) for number in each) for each in self.unsafe_runs
        )
        object.__setattr__(self, "unsafe_runs", numbers)
        fits = [sorted({n for n in each if n < self.runs}) == list(each) for each in numbers]
        if not all(fits) or [len(each) for each in numbers] != [unsafe for _, unsafe in self.counts]:
            raise InvalidInput(f"unsafe_runs must be as many numbers below {self.runs}, increasing, as counts say")


def expected_excess(allowed: int, runs: int, above: float) -> float:
    """E[(p - above)₊] at most, for the p of a level that passes with up to x = `allowed` unsafe tasks of N = `runs`
    (Theorem 12b):

    ∫ P(Bin(N, u) ≤ x) du over u from s = `above` to 1 = (x+1)/(N+1)·P(Bin(N+1, s) ≤ x) - s·P(Bin(N, s) ≤ x-1).
    """
    if allowed < 0:
        return 0.0
    fewer = bdtr(allowed - 1, runs, above) if allowed else 0.0
    return float((allowed + 1) / (runs + 1) * bdtr(allowed, runs + 1, above) - above * fewer)


def check_options(options: Any) -> None:
    """Refuse options under which something is promised that no run on simulated tasks could show."""
    if not isinstance(options, Mapping):
        raise InvalidInput(f"options must be options by their names, got {reprlib.repr(options)}")
    drop_withdrawn(options)
    if options.get("shift"):
        raise InvalidInput(
            "shift must be 0 with a calibration, whose runs are on tasks of the distribution alone and say nothing of "
            f"tasks at a distance, got {options['shift']!r}"
        )
    if options.get("assume_safe"):
        raise InvalidInput(
            "assume_safe must be False with a calibration, which counts how often the safe policy fails, got True"
        )


def check_setting(setting: Any) -> Setting:
    """A nominal level, or options by name."""
    if not isinstance(setting, Mapping):
        try:
            return check_unit_interval("levels", setting)
        except InvalidInput as error:
            raise InvalidInput(f"{error}; an option of a method is given by its name, {{'name': value}}") from None
    if not setting or not all(isinstance(name, str) for name in setting):
        raise InvalidInput(f"path must hold options by their names, got {reprlib.repr(setting)}")
    try:
        json.dumps(setting)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"path must hold options that a journal can keep, such as numbers and texts, got {setting} ({error})"
        ) from None
    return dict(setting)


def options_at(setting: Setting) -> dict[str, Any]:
    """The options of the method at a setting."""
    return dict(setting) if isinstance(setting, Mapping) else {"level": setting}


def fixed_sequence_test(untried: Calibration, path: Sequence[Setting], unsafe: Callable[[Any], int]) -> Calibration:
    """Settings in their order, until one fails: none is paid for twice, since a later one is tried only if those before
    it have passed. `unsafe`: the unsafe tasks at a setting."""
    counts, level = [*untried.counts], untried.level
    for setting in path:
        counts.append((setting, unsafe(setting)))
        if not untried.passes(counts[-1][1]):
            break
        level = setting
    return replace(untried, level=level, counts=tuple(counts))


def parse_calibration(told: Any) -> Calibration:
    """One from plain data, as a journal keeps it; data of an older form say less of where they come from."""
    names = [each.name for each in fields(Calibration)]
    needed = [each.name for each in fields(Calibration) if each.default is MISSING]
    if not isinstance(told, Mapping) or not set(needed) <= set(told) <= set(names):
        raise InvalidInput(
            f"calibration must hold {', '.join(names)}, as calibrate returns it, got {reprlib.repr(told)}"
        )
    try:
        return Calibration(**told)
    except InvalidInput:
        raise
    except (TypeError, ValueError) as error:  # such as a number where counts should be
        raise InvalidInput(
            f"calibration must hold what calibrate returns, got {reprlib.repr(told)} ({error})"
        ) from None


# ----------------------------------------------------------------------------------------------------------- the method


@dataclass(frozen=True, eq=False)
class CalibratedState:
    """What was calibrated, and the method that takes over; the latter learns from all episodes as well."""

    method: Any
    successor: Any
    told: int  # episodes of policies that the successor knows
    ended: bool = False


@dataclass(frozen=True, eq=False)
class CalibratedMethod(Method):
    """A method at the setting that a calibration allows, for as many episodes as were calibrated.

    After the last of them, and after an episode without an outcome if no simulated run had such, its successor takes
    over: the safe policy, or the method as it is proved, at the risk that was set aside for it.
    """

    method: Method
    calibration: Calibration
    certified: bool
    note: str
    successor: Method | None = None

    @property
    def name(self) -> str:
        return self.method.name

    @property
    def policies(self) -> PolicyValueSet | None:
        return self.method.policies

    @property
    def units(self) -> Units:
        return self.method.units

    @property
    def observes(self) -> Observes:
        return self.method.observes

    @property
    def cells(self) -> Cells | None:
        return self.method.cells

    @property
    def risk_split(self) -> RiskSplit:
        found = self.calibration
        return RiskSplit(elimination=found.risk - found.reserve, values=found.reserve)

    def start(self) -> CalibratedState:
        successor = None if self.successor is None else self.successor.start()
        return CalibratedState(self.method.start(), successor, 0)

    def mixture(self, state: CalibratedState) -> Mixture:
        if not state.ended:
            return self.method.mixture(state.method)
        return SAFE_MIXTURE if self.successor is None else self.successor.mixture(state.successor)

    def policy(self, state: CalibratedState, index: int) -> Policy:
        if state.ended and self.successor is not None:
            return self.successor.policy(state.successor, index)
        return self.method.policy(state.method, index)

    def update(self, state: CalibratedState, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        if state.ended:
            return self._update_successor(state, episode, drawn, outcomes)
        left = min(len(outcomes), self.calibration.episodes - episode)
        step = self.method.update(state.method, episode, drawn[:left], outcomes.first(left))
        state = replace(self._teach(state, drawn[: step.used], outcomes.first(step.used)), method=step.state)
        if episode + step.used < self.calibration.episodes:
            return replace(step, state=state)
        return self._end(state, step, episode + step.used, "the episodes that were calibrated for are over")

    def abandon(self, state: CalibratedState, episode: int, drawn: int) -> Step:
        after, events = state, tuple[Event, ...]()
        if self.successor is not None and (state.ended or drawn < self._set_size):
            taught = self.successor.abandon(state.successor, state.told, drawn)
            after = replace(state, successor=taught.state, told=state.told + 1)
            events = _at(taught.events, episode - state.told)
        if state.ended:
            return Step(after, 1, events)
        step = self.method.abandon(state.method, episode, drawn)
        state = replace(after, method=step.state)
        last = episode + 1 >= self.calibration.episodes
        if self.calibration.abandoned and not last:
            return replace(step, state=state)
        why = "the episodes that were calibrated for are over"
        if not self.calibration.abandoned:
            why = "an episode has no outcome, and none was calibrated for"
        return self._end(state, step, episode + 1, why)

    def certificate(self, state: CalibratedState) -> Certificate:
        """Of what was calibrated without margins: nothing is unsafe, which does not say that bounds of cells hold."""
        if state.ended and self.successor is not None:
            return self.successor.certificate(state.successor)
        return replace(self.method.certificate(state.method), margin=None)

    def surviving(self, state: CalibratedState) -> Sequence[int] | Integers:
        if state.ended and self.successor is not None:
            return self.successor.surviving(state.successor)
        return self.method.surviving(state.method)

    def voided(self, state: CalibratedState) -> bool:
        if state.ended and self.successor is not None:
            return self.successor.voided(state.successor)
        return self.method.voided(state.method)

    @property
    def _set_size(self) -> int:
        """Policies of the set; those that the method planned itself mean nothing to its successor."""
        return len(self._policy_set.policies)

    def _teach(self, state: CalibratedState, drawn: Integers, outcomes: Outcomes) -> CalibratedState:
        """The successor, which is not deployed yet, is told the same episodes."""
        if self.successor is None:
            return state
        known = np.flatnonzero(drawn < self._set_size)
        drawn, outcomes, after, told = drawn[known], outcomes[known], state.successor, state.told
        while len(drawn):
            step = self.successor.update(after, told, drawn, outcomes)
            drawn, outcomes, after, told = drawn[step.used :], outcomes[step.used :], step.state, told + step.used
        return replace(state, successor=after, told=told)

    def _update_successor(self, state: CalibratedState, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        if self.successor is None:
            return Step(state, len(outcomes))
        step = self.successor.update(state.successor, state.told, drawn, outcomes)
        events = _at(step.events, episode - state.told)
        return Step(replace(state, successor=step.state, told=state.told + step.used), step.used, events)

    def _end(self, state: CalibratedState, step: Step, episode: int, why: str) -> Step:
        follows = "staying on the safe policy"
        if self.successor is not None:
            follows = f"{self.successor.name} as it is proved takes over at risk {self.calibration.reserve:g}"
        event = Event(episode, "ended", f"{why}: {follows}")
        return Step(replace(state, ended=True), step.used, (*step.events, event))


def _at(events: Sequence[Event], later: int) -> tuple[Event, ...]:
    """Events of a method that was told fewer episodes than there were."""
    return tuple(replace(event, episode=event.episode + later) for event in events)
