"""A certified method at a level that simulation allows, not its own proof (docs/guarantees.md, Theorem 12).

Ville's inequality bounds the probability that the true cell is ever ruled out, for ever, on the worst task. What a user
is promised is less: nothing unsafe on a task drawn from the distribution, within so many episodes. That probability can
be counted on simulated tasks before anything real is touched, and the level raised until the count forbids more.
"""

from __future__ import annotations

import reprlib
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import takewhile
from typing import Any, Literal, TypeAlias, get_args

from scipy.special import bdtr

from surefoot.arrays import check_int, check_unit_interval
from surefoot.confidence import binomial_upper
from surefoot.errors import InvalidInput
from surefoot.learning.certified.options import CALIBRATED_DEFAULTS
from surefoot.learning.spec import drop_withdrawn

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
        attempt: 1, 2, ... as `calibrate` was told; 0 if this was to be the only one, whatever it showed.
        seed: of the runs, from which anybody can count again; None in files that do not say.
        tasks: the distribution that tasks were drawn from, in words and by its digest; None in files that do not say.
        unsafe_runs: the numbers of the unsafe runs at each level that was tried; None in files that do not say.
        standing: "counted" by `calibrate` in this process, "sealed" by a key, "recounted" from its seed, or "claimed".
            With a claimed one a learner is not certified.
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
    attempt: int = 0
    seed: int | None = None
    tasks: str | None = None
    unsafe_runs: tuple[tuple[int, ...], ...] | None = None
    standing: Standing = "claimed"

    def __post_init__(self) -> None:
        check_int("episodes", self.episodes)
        if check_int("runs", self.runs) > MOST_RUNS:
            raise InvalidInput(f"runs must be at most {MOST_RUNS:,}, got {self.runs:,}")
        if check_int("attempt", self.attempt, least=0) > MOST_ATTEMPTS:
            raise InvalidInput(f"attempt must be at most {MOST_ATTEMPTS}, got {self.attempt}")
        check_unit_interval("risk", self.risk)
        if self.error != 0 and check_unit_interval("error", self.error) >= self.risk:
            raise InvalidInput(f"error must be less than the risk, {self.risk:g}, a part of it, got {self.error:g}")
        counts = tuple(
            (check_unit_interval("levels", level), check_int("unsafe", unsafe, least=0))
            for level, unsafe in self.counts
        )
        object.__setattr__(self, "counts", counts)
        if any(unsafe > self.runs for _, unsafe in counts):
            raise InvalidInput(f"unsafe tasks must be at most the runs, {self.runs:,}, got counts {counts}")
        if self.level != (self.passed[-1] if self.passed else None):
            raise InvalidInput(f"level must be the last before one fails among {self.counts}, got {self.level!r}")
        check_calibrated_options(self.options)
        self._check_origin()

    def passes(self, unsafe: int) -> bool:
        """Whether a level with so many unsafe tasks may be taken (Theorems 12 and 12b; with an error, 12a)."""
        if self.error:
            return binomial_upper(unsafe, self.runs, self.error * 0.5**self.attempt) <= self.risk - self.error
        shared = SHARED * self.risk if self.attempt else 0.0
        return expected_excess(unsafe, self.runs, shared) <= (self.risk - shared) * 0.5**self.attempt

    @property
    def passed(self) -> tuple[float, ...]:
        """The levels before the first that failed."""
        return tuple(level for level, _ in takewhile(lambda count: self.passes(count[1]), self.counts))

    @property
    def allowed(self) -> int:
        """The most unsafe tasks with which a level passes; -1 if none would do."""
        return bisect_left(range(self.runs + 1), True, key=lambda unsafe: not self.passes(unsafe)) - 1

    @property
    def fallback_risk(self) -> float:
        """Of a level of this calibration if one passes, and of the method as it is proved, at the same risk, if none
        does: risk + ∫ P(one of a higher risk passes), where attempts before this one count as all that they may."""
        before = (1 - 2 * 0.5**self.attempt) * (self.error or (1 - SHARED) * self.risk) if self.attempt else 0.0
        return self.risk + before + expected_excess(self.allowed, self.runs, self.risk)

    def _check_origin(self) -> None:
        if self.seed is not None:
            check_int("seed", self.seed, least=0)
        if self.tasks is not None and not isinstance(self.tasks, str):
            raise InvalidInput(f"tasks must be a text, got {self.tasks!r}")
        if self.standing not in get_args(Standing):
            raise InvalidInput(f"standing must be one of {', '.join(get_args(Standing))}, got {self.standing!r}")
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


def check_calibrated_options(options: Mapping[str, Any]) -> None:
    """Refuse options under which something is promised that no run on simulated tasks could show."""
    if not isinstance(options, Mapping) or set(drop_withdrawn(options)) - set(CALIBRATED_DEFAULTS):
        raise InvalidInput(f"options must be among {', '.join(CALIBRATED_DEFAULTS)}, got {reprlib.repr(options)}")
    if options.get("shift"):
        raise InvalidInput(
            "shift must be 0 with a calibration, whose runs are on tasks of the distribution alone and say nothing of "
            f"tasks at a distance, got {options['shift']!r}"
        )
    if options.get("assume_safe"):
        raise InvalidInput(
            "assume_safe must be False with a calibration, which counts how often the safe policy fails, got True"
        )


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
