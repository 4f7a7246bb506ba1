"""What a page shows of a journal, gathered row by row in bounded space: rows can be added while somebody looks.

`History.add` says what a row means. `History.extend` takes in many with the same result, to the last bit: a journal
that is long is long by its orders and outcomes, and whoever writes these has one way to write each
(`chain.canonical`), so a pattern finds the numbers several times faster than a parser of JSON. What is written in any
other way is read as every single row is, by `forms.check_payload`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats
from surefoot.cmdp.units import Units
from surefoot.confidence import mixture_boundary
from surefoot.deploy.chain import STRANGE, Damaged, JournalRow, RawRow, decode_row
from surefoot.deploy.forms import check_payload
from surefoot.deploy.status import SAFE, Ends, Status, Tally
from surefoot.deploy.sums import sums_of
from surefoot.errors import InvalidInput, SurefootError

POINTS = 256  # of a curve at least, once there are so many; at most twice as many
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

    def merge(self, other: Stretch) -> Stretch:
        return Stretch(self.ordered + other.ordered, self.reward + other.reward, self.told + other.told)


@dataclass
class Earned:
    """Rewards of some episodes."""

    episodes: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / max(1, self.episodes)


class Thinned(Generic[T]):
    """Ever more values in bounded space: neighbours become one by `merge`."""

    def __init__(self, merge: Callable[[T, T], T]) -> None:
        self.values: list[T] = []
        self._merge, self._each, self._last = merge, 1, 1  # values per place, and in the last place

    @property
    def room(self) -> int:
        """How many of the next values share a place; a place that makes the others double takes one."""
        if self._last < self._each:
            return self._each - self._last
        return 1 if len(self.values) == 2 * POINTS - 1 else self._each

    def add(self, value: T, number: int = 1) -> None:
        """One value, or what `number` of them, at most `room`, are when they are merged."""
        if self._last < self._each:
            self.values[-1] = self._merge(self.values[-1], value)
            self._last += number
            return
        self.values.append(value)
        self._last = number
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
        earned: rewards told of episodes of the safe policy, and of all others.
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
        self.earned = Earned(), Earned()
        self.abandoned: Ends[dict[str, Any]] = Ends()
        self.standing: Standing = "safe"
        self.since = 0
        self._last: JournalRow | None = None

    def add(self, row: JournalRow) -> None:
        data = check_payload(row)
        self.tally.add(row)
        self._last = row
        match row.kind:
            case "open":
                self._open(data)
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
                self.abandoned.add(data)

    def extend(self, rows: Sequence[RawRow], where: Path) -> None:
        """Add these rows. Of orders and outcomes, which a long journal is made of, whole columns are taken in at once;
        rows that those do not cover, and all rows wherever anything is unusual, are added one by one."""
        if rows and not self.opened:
            self.add(decode_row(rows[0], where))
            rows = rows[1:]
        found = columns(rows, where, self.opened["discount"], len(self.costs)) if self.opened else None
        paths = None if found is None else self._paths(found.outcomes.sums)
        if found is None or paths is None:
            for row in rows:
                self.add(decode_row(row, where))
            return
        wider = self._wider(found)
        if wider is not None:  # where stretches are merged, sums are added up in another order
            place = rows.index(wider)
            self.extend(rows[:place], where)
            self.add(decode_row(wider, where))
            self.extend(rows[place + 1 :], where)
            return
        self._earn_all(found)
        self._order_all(found.orders)
        self._tell_all(found.outcomes, paths)
        last = {some[-1]: len(some) for some in (found.orders.rows, found.outcomes.rows) if some}
        for row in sorted([*found.others, *last]):
            if row in last:
                self._count(decode_row(row, where), last[row])
            else:
                self.add(decode_row(row, where))

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

    def _tell(self, row: JournalRow, data: Mapping[str, Any]) -> None:
        values = finite_sums(row, data, self.opened["discount"])
        means = zip((self.reward, *self.costs), values, strict=True)
        self.reward, *self.costs = (mean.add(value) for mean, value in means)
        if not all(math.isfinite(mean.squares) for mean in (self.reward, *self.costs)):
            raise Damaged(f"row {row.n} must tell sums whose squares are finite, found {values}", row.n)
        stretch = self._stretch_of(data["episode"])
        stretch.reward, stretch.told = stretch.reward + values[0], stretch.told + 1
        if self.order.get("episode") == data["episode"]:
            self._earn(self.order["policy"] == SAFE, values[:1])
        self.means.add(Means(data["episode"] + 1, self.reward, tuple(self.costs)))

    def _earn(self, safe: bool, rewards: Sequence[float] | Floats) -> None:
        earned = self.earned[not safe]
        earned.episodes += len(rewards)
        earned.total = float(np.cumsum(np.concatenate([[earned.total], rewards]))[-1])  # one after the other

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
            self.stretches = [one.merge(other) for one, other in pairs]
            self.stretch *= 2
        place = episode // self.stretch
        self.stretches += [Stretch() for _ in range(place + 1 - len(self.stretches))]
        return self.stretches[place]

    # ------------------------------------------------------------------------------------------- many rows at once

    def _paths(self, sums: Floats) -> list[tuple[Floats, Floats]] | None:
        """Of the reward and of each cost, what its running mean goes through; None if it leaves what is finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            paths = [mean.path(values) for mean, values in zip((self.reward, *self.costs), sums.T, strict=True)]
        return paths if all(np.isfinite(squares).all() for _, squares in paths) else None

    def _wider(self, found: Columns) -> RawRow | None:
        """The first row whose episode makes the stretches wider."""
        end = 2 * POINTS * self.stretch
        firsts = [
            some.rows[int(np.argmax(some.episodes >= end))]
            for some in (found.orders, found.outcomes)
            if (some.episodes >= end).any()
        ]
        return min(firsts, default=None)

    def _earn_all(self, found: Columns) -> None:
        """Each outcome belongs to the last order before it, if they are of one episode."""
        orders, outcomes = found.orders, found.outcomes
        last = np.searchsorted([row[0] for row in orders.rows], [row[0] for row in outcomes.rows])
        episodes = np.array([self.order.get("episode", -1), *orders.episodes.tolist()])[last]
        policies = np.array([self.order.get("policy", -1), *orders.policies])[last]
        for safe in (True, False):
            theirs = (episodes == outcomes.episodes) & ((policies == SAFE) == safe)
            self._earn(safe, outcomes.sums[theirs, 0])

    def _order_all(self, orders: OrderColumns) -> None:
        if not orders.rows:
            return
        self._stretch_of(int(orders.episodes.max()))
        for stretch, part in self._runs(orders.episodes):
            counts = Counter(orders.policies[part])
            self.ordered.update(counts)
            stretch.ordered.update(counts)

    def _tell_all(self, outcomes: OutcomeColumns, paths: Sequence[tuple[Floats, Floats]]) -> None:
        if not outcomes.rows:
            return
        before = (self.reward, *self.costs)

        def means(told: int) -> list[RunningMean]:
            """After so many of these outcomes."""
            return [
                replace(mean, count=mean.count + told, total=float(totals[told - 1]), squares=float(squares[told - 1]))
                for mean, (totals, squares) in zip(before, paths, strict=True)
            ]

        told = 0
        while told < len(outcomes.rows):  # of those that share a place the last stays
            number = min(self.means.room, len(outcomes.rows) - told)
            told += number
            reward, *costs = means(told)
            self.means.add(Means(int(outcomes.episodes[told - 1]) + 1, reward, tuple(costs)), number)
        self.reward, *self.costs = means(told)
        self._stretch_of(int(outcomes.episodes.max()))
        for stretch, part in self._runs(outcomes.episodes):
            some = outcomes.sums[part, 0]
            stretch.reward = float(np.cumsum(np.concatenate([[stretch.reward], some]))[-1])  # one after the other
            stretch.told += len(some)

    def _runs(self, episodes: NDArray[np.int64]) -> Iterator[tuple[Stretch, slice]]:
        """Which of these episodes follow each other in one stretch."""
        places = episodes // self.stretch
        ends = [*(np.flatnonzero(np.diff(places)) + 1).tolist(), len(places)]
        for first, end in pairwise([0, *ends]):
            yield self.stretches[places[first]], slice(first, end)

    def _count(self, last: JournalRow, number: int) -> None:
        """Count `number` orders or outcomes, of which this is the last."""
        self._last = last
        self.tally.counts[last.kind] = self.tally.counts.get(last.kind, 0) + number - 1
        self.tally.add(last)
        if last.kind == "order":
            self.order = check_payload(last)


def _lower(one: Decided, other: Decided) -> Decided:
    """The later decision from the earlier episode on, with the smaller margins: thinning hides no small one."""
    margins = [each.margin for each in (one, other) if each.margin is not None]
    margin = tuple(map(min, zip(*margins, strict=True))) if margins else None
    return Decided(one.episode, other.weight, other.surviving, margin)


# -------------------------------------------------------------------------------------------------------- running means

LEVEL = 0.05  # probability that the interval of one mean ever misses


@dataclass(frozen=True)
class RunningMean:
    """The sum of numbers in [low, high] that arrive one by one, and Σ (X_i - the mean before it)² as `squares`.

    The interval of the mean may be looked at after every one of them.
    """

    low: float
    high: float
    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / max(1, self.count)

    def add(self, value: float) -> RunningMean:
        away = value - (self.mean if self.count else self._middle)
        return replace(self, count=self.count + 1, total=self.total + value, squares=self.squares + away * away)

    def path(self, values: Floats) -> tuple[Floats, Floats]:
        """`total` and `squares` after each of these values, to the last bit as by `add`, one after the other."""
        totals = np.cumsum(np.concatenate([[self.total], values]))
        before = totals[:-1] / np.maximum(1, np.arange(self.count, self.count + len(values)))
        if not self.count:
            before[:1] = self._middle
        squares = np.cumsum(np.concatenate([[self.squares], (values - before) ** 2]))
        return totals[1:], squares[1:]

    @property
    def interval(self) -> tuple[float, float]:
        if not self.count:
            return self.low, self.high
        radius = float(mixture_boundary(self.squares, self.high - self.low, LEVEL / 2)) / self.count
        return max(self.low, self.mean - radius), min(self.high, self.mean + radius)

    @property
    def _middle(self) -> float:
        return (self.low + self.high) / 2


# ---------------------------------------------------------------------------- orders and outcomes as columns of numbers

LARGEST = 1e300

# Whole numbers below 10^18 and JSON's numbers with few digits, so that nothing here is refused by `checked`.
COUNT = rb"(?:0|[1-9][0-9]{0,17}+)"
NUMBER = rb"-?(?:0|[1-9][0-9]{0,19}+)(?:\.[0-9]{1,40}+)?+(?:[eE][-+]?[0-9]{1,3}+)?+"
NUMBERS = NUMBER + rb"(?:," + NUMBER + rb")*+"
ORDER = re.compile(rb'^\{"draw":%b,"episode":(%b),"policy":(%b)\}$' % (NUMBER, COUNT, COUNT), re.MULTILINE)
OUTCOME = re.compile(
    rb'^\{"cost":\[(%b)\],"episode":(%b),"reward":(%b)(?:,"signals":\[%b\])?+(?:,"states":\[%b\])?+\}$'
    % (NUMBERS, COUNT, NUMBER, NUMBERS, COUNT),
    re.MULTILINE,
)


class OrderColumns(NamedTuple):
    """The orders among some rows, their episodes and policies."""

    rows: list[RawRow]
    episodes: NDArray[np.int64]
    policies: list[int]


class OutcomeColumns(NamedTuple):
    """The outcomes among some rows, their episodes and sums [n, 1+m]: the reward, then every cost."""

    rows: list[RawRow]
    episodes: NDArray[np.int64]
    sums: Floats


class Columns(NamedTuple):
    orders: OrderColumns
    outcomes: OutcomeColumns
    others: list[RawRow]  # of all other kinds


def columns(rows: Sequence[RawRow], where: Path, discount: float, constraints: int) -> Columns | None:
    """What these rows hold; None if one of them has to be looked at by itself, be it that it is malformed or tells of
    a breach."""
    orders, outcomes = ([row for row in rows if row[1] == kind] for kind in (b"order", b"outcome"))
    ordinary = len(orders) + len(outcomes) == len(rows)
    others = [] if ordinary else [row for row in rows if row[1] not in (b"order", b"outcome")]
    if any(row[1] == b"open" for row in others):
        return None
    try:
        found = Columns(
            OrderColumns(orders, *_orders(orders, where)),
            OutcomeColumns(outcomes, *_outcomes(outcomes, where, discount, constraints)),
            others,
        )
    except (SurefootError, *STRANGE):
        return None
    return found if (np.abs(found.outcomes.sums) < LARGEST).all() else None


def finite_sums(row: JournalRow, data: Mapping[str, Any], discount: float) -> list[float]:
    """The reward and the costs of an outcome, which must be finite."""
    reward, cost = sums_of(data, discount)
    values = [float(reward), *map(float, cost)]
    if not all(math.isfinite(value) and abs(value) < LARGEST for value in values):
        raise Damaged(f"row {row.n} must tell finite sums, found {values}", row.n)
    return values


def _orders(rows: Sequence[RawRow], where: Path) -> tuple[NDArray[np.int64], list[int]]:
    found = _matches(ORDER, rows)
    if found is None:
        single = [check_payload(decode_row(row, where)) for row in rows]
        numbers = np.array([(data["episode"], data["policy"]) for data in single], dtype=np.int64)
    else:
        numbers = _whole_numbers(chain.from_iterable(found))
    episodes, policies = numbers.reshape(len(rows), 2).T
    return episodes, policies.tolist()


def _outcomes(
    rows: Sequence[RawRow], where: Path, discount: float, constraints: int
) -> tuple[NDArray[np.int64], Floats]:
    found = _matches(OUTCOME, rows)
    if found is None:
        single = [(row, check_payload(row)) for row in (decode_row(row, where) for row in rows)]
        episodes = [data["episode"] for _, data in single]
        sums = [finite_sums(row, _without_breach(data), discount) for row, data in single]
        return np.array(episodes, dtype=np.int64), np.array(sums).reshape(len(rows), 1 + constraints)
    parts = list(chain.from_iterable(found))
    costs, numbers, rewards = parts[::3], parts[1::3], parts[2::3]
    each = [costs] if constraints == 1 else zip(*(some.split(b",") for some in costs), strict=True)
    values = [list(map(float, some)) for some in (rewards, *each)]
    return _whole_numbers(numbers), np.array(values).reshape(1 + constraints, len(rows)).T


def _whole_numbers(found: Iterable[bytes]) -> NDArray[np.int64]:
    return np.fromstring(b",".join(found), dtype=np.int64, sep=",")


def _without_breach(data: Mapping[str, Any]) -> Mapping[str, Any]:
    if "breach" in data:
        raise Damaged("a breach is looked at by itself")
    return data


def _matches(pattern: re.Pattern[bytes], rows: Sequence[RawRow]) -> list[Any] | None:
    """What the pattern finds in each payload; None if one of them is written in another way."""
    text = b"\n".join([row[2] for row in rows])
    found = pattern.findall(text)
    return found if len(found) == len(rows) == text.count(b"\n") + 1 else None
