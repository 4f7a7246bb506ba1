"""What a page shows of a journal, gathered row by row in bounded space: rows can be added while somebody looks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from surefoot.cmdp.units import Units
from surefoot.deploy.chain import Damaged, Row
from surefoot.deploy.forms import checked, opening
from surefoot.deploy.observed import RunningMean
from surefoot.deploy.status import Status, Tally
from surefoot.deploy.sums import sums_of
from surefoot.errors import InvalidInput

POINTS = 256  # of a curve at least, once there are so many; at most twice as many
LARGEST = 1e300
NOTEWORTHY = 0.001  # a plan may leave the safe policy once in a million episodes, which is not yet running

Standing = Literal["running", "safe", "alarm"]

T = TypeVar("T")


@dataclass(frozen=True)
class Means:
    """Of the reward and of each cost, after an episode."""

    episode: int
    reward: RunningMean
    costs: tuple[RunningMean, ...]


@dataclass(frozen=True)
class Decided:
    """From an episode on: the weight off the safe policy, what survives, and the margins claimed, if any are."""

    episode: int
    weight: float
    surviving: int
    margin: tuple[float, ...] | None


@dataclass
class Stretch:
    """Some consecutive episodes: which policies were ordered how often, and the rewards told."""

    ordered: Counter[int] = field(default_factory=Counter)
    reward: float = 0.0
    told: int = 0

    def merged(self, other: Stretch) -> Stretch:
        return Stretch(self.ordered + other.ordered, self.reward + other.reward, self.told + other.told)


class Thinned(Generic[T]):
    """Ever more values in bounded space: neighbours become one by `merge`."""

    def __init__(self, merge: Callable[[T, T], T]) -> None:
        self.values: list[T] = []
        self._merge, self._each, self._last = merge, 1, 0  # values per place, and in the last place

    def add(self, value: T) -> None:
        if self.values and self._last < self._each:
            self.values[-1] = self._merge(self.values[-1], value)
            self._last += 1
            return
        self.values.append(value)
        self._last = 1
        if len(self.values) == 2 * POINTS:
            pairs = zip(self.values[::2], self.values[1::2], strict=True)
            self.values = [self._merge(one, other) for one, other in pairs]
            self._each *= 2
            self._last = self._each


class History:
    """Rows in, pictures out. What one row costs does not depend on how many there were.

    Attributes:
        standing: "running" if the safe policy is left now and then, "safe" if hardly or never, "alarm" if never again.
        since: the episode since which that is so.
        ordered: how often each policy was ordered.
        stretches, stretch: consecutive runs of episodes, and how many episodes each has.
    """

    def __init__(self, sealed: bool = False) -> None:
        self.tally = Tally(sealed)
        self.opened: Mapping[str, Any] = {}
        self.decision: Mapping[str, Any] = {}
        self.order: Mapping[str, Any] = {}
        self.reward, self.costs = RunningMean(0.0, 0.0), [RunningMean(0.0, 0.0)]
        self.means: Thinned[Means] = Thinned(lambda _, later: later)
        self.decided: Thinned[Decided] = Thinned(_lower)
        self.stretches: list[Stretch] = []
        self.stretch = 1
        self.ordered: Counter[int] = Counter()
        self.abandoned: list[dict[str, Any]] = []
        self.standing: Standing = "safe"
        self.since = 0
        self._last: Row | None = None

    def add(self, row: Row) -> None:
        data = checked(row)
        self.tally.add(row)
        self._last = row
        match row.kind:
            case "open":
                self._open(opening(row, "the journal"))
            case "event":
                self._stand(data["episode"])
            case "decision":
                self._decide(data)
            case "order":
                self.order = data
                self.ordered[data["policy"]] += 1
                self._stretch_of(data["episode"]).ordered[data["policy"]] += 1
            case "outcome":
                self._tell(row, data)
                self._stand(data["episode"] + 1)  # a breach is an alarm before its event is there
            case "abandoned":
                self.abandoned.append(data)

    def status(self) -> Status:
        if self._last is None:
            raise Damaged("row 0 must open a journal", 0)
        return self.tally.status(self._last.n + 1, self._last.hash)

    def _open(self, opened: Mapping[str, Any]) -> None:
        self.opened = opened
        names = ("discount", "reward_range", "cost_range", "budget", "reward_sum_range", "cost_sum_range")
        declared: dict[str, Any] = {name: opened.get(name) for name in names}
        try:
            units = Units(**declared, horizon=opened.get("task_horizon"))
        except InvalidInput as error:
            raise Damaged(f"row 0 must declare units: {error}", 0) from None
        self.reward, *self.costs = (RunningMean(low, high) for low, high in units.reachable.tolist())

    def _decide(self, data: Mapping[str, Any]) -> None:
        self.decision = data
        margin = None if data["margin"] is None else tuple(data["margin"])
        if len(margin or self.costs) != len(self.costs):
            raise Damaged(f"decision of episode {data['episode']} must have {len(self.costs)} margins, found {margin}")
        self.decided.add(Decided(data["episode"], data["weight"], data["surviving"], margin))
        self._stand(data["episode"])

    def _tell(self, row: Row, data: Mapping[str, Any]) -> None:
        reward, cost = sums_of(data, self.opened["discount"])
        values = [float(reward), *map(float, cost)]
        if not all(math.isfinite(value) and abs(value) < LARGEST for value in values):
            raise Damaged(f"row {row.n} must tell finite sums, found {values}", row.n)
        means = zip((self.reward, *self.costs), values, strict=True)
        self.reward, *self.costs = (mean.told(value) for mean, value in means)
        stretch = self._stretch_of(data["episode"])
        stretch.reward, stretch.told = stretch.reward + values[0], stretch.told + 1
        self.means.add(Means(data["episode"] + 1, self.reward, tuple(self.costs)))

    def _stand(self, episode: int) -> None:
        """Take note of when the standing changed."""
        running = self.decision.get("weight", 0.0) >= NOTEWORTHY
        standing: Standing = "alarm" if self.tally.alarmed is not None else "running" if running else "safe"
        if standing != self.standing:
            self.standing, self.since = standing, episode

    def _stretch_of(self, episode: int) -> Stretch:
        while episode // self.stretch >= 2 * POINTS:
            padded = [*self.stretches, *([Stretch()] if len(self.stretches) % 2 else [])]
            pairs = zip(padded[::2], padded[1::2], strict=True)
            self.stretches = [one.merged(other) for one, other in pairs]
            self.stretch *= 2
        place = episode // self.stretch
        self.stretches += [Stretch() for _ in range(place + 1 - len(self.stretches))]
        return self.stretches[place]


def _lower(one: Decided, other: Decided) -> Decided:
    """The later decision from the earlier episode on, with the smaller margins: thinning hides no small one."""
    margins = [each.margin for each in (one, other) if each.margin is not None]
    margin = tuple(map(min, zip(*margins, strict=True))) if margins else None
    return Decided(one.episode, other.weight, other.surviving, margin)
