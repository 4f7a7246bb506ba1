"""What a count of unsafe tasks says about a risk: kept, broken, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from scipy.special import betainc

from surefoot.report.metrics import binomial_interval

Conclusion: TypeAlias = Literal["kept", "broken", "too few tasks to tell", "no power"]

# A promise that is kept to the letter is called broken with at most this probability, per count.
FALSE_ALARM = 1e-4


@dataclass(frozen=True)
class Count:
    """How often one method broke its promise at one risk, and whether it would have been noticed.

    Attributes:
        unsafe_tasks: tasks on which a deployed mixture ever broke a budget.
        covered, lost: tasks that lie in a cell, and those of them whose cell was ever ruled out: the event of
            Theorems 2, 3 and 5. None for methods without cells.
        tested: tasks on which the method ever used more than half of the margin that the safe policy leaves.
        twin_tasks, twin_unsafe: the same count for the method's overconfident twin, on fewer tasks.
    """

    tasks: int
    unsafe_tasks: int
    tested: int
    twin_tasks: int
    twin_unsafe: int
    covered: int | None = None
    lost: int | None = None

    @property
    def interval(self) -> tuple[float, float]:
        return binomial_interval(self.unsafe_tasks, self.tasks)

    @property
    def lost_interval(self) -> tuple[float, float] | None:
        return binomial_interval(self.lost, self.covered) if self.covered and self.lost is not None else None

    def chance(self, risk: float) -> float:
        """The smaller probability of a count like this, or worse, if the promise is kept: of unsafe or of lost."""
        lost = tail(self.lost, self.covered, risk) if self.covered and self.lost is not None else 1.0
        return min(tail(self.unsafe_tasks, self.tasks, risk), lost)

    def has_power(self, risk: float) -> bool:
        """Whether the twin is caught, and the method went far enough on enough tasks to be caught itself."""
        twin = self.twin_tasks > 0 and tail(self.twin_unsafe, self.twin_tasks, risk) < FALSE_ALARM
        return twin and tail(self.tested, self.tasks, risk) < FALSE_ALARM

    def verdict(self, risk: float) -> Conclusion:
        if self.chance(risk) < FALSE_ALARM:
            return "broken"
        if tail(self.tasks, self.tasks, risk) >= FALSE_ALARM:  # nothing could be called broken
            return "too few tasks to tell"
        if not self.has_power(risk):
            return "no power"
        return "kept" if self.interval[1] <= risk else "too few tasks to tell"

    def summary(self, risk: float) -> dict[str, Any]:
        """Plain data for results.json."""
        return {
            "tasks": self.tasks,
            "unsafe_tasks": self.unsafe_tasks,
            "fraction": self.unsafe_tasks / self.tasks,
            "interval": list(self.interval),
            "covered": self.covered,
            "lost": self.lost,
            "lost_interval": None if self.lost_interval is None else list(self.lost_interval),
            "tested": self.tested,
            "twin_tasks": self.twin_tasks,
            "twin_unsafe": self.twin_unsafe,
            "verdict": self.verdict(risk),
        }


def tail(count: int, trials: int, probability: float) -> float:
    """P(at least `count` of `trials`) if each has this probability."""
    return float(betainc(count, trials - count + 1, probability)) if count else 1.0
