"""Orders and outcomes of many rows as columns of numbers: a journal that is long is long by these.

Whoever writes them has one way to write each (`chain.canonical`), so a pattern finds the numbers several times faster
than a parser of JSON. What is written in any other way is read as every single row is, by `forms.checked`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats
from surefoot.deploy.chain import STRANGE, Damaged, RawRow, Row, named
from surefoot.deploy.forms import checked
from surefoot.deploy.sums import sums_of
from surefoot.errors import SurefootError

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


class Orders(NamedTuple):
    """The orders among some rows, their episodes and policies."""

    rows: list[RawRow]
    episodes: NDArray[np.int64]
    policies: list[int]


class Outcomes(NamedTuple):
    """The outcomes among some rows, their episodes and sums [n, 1+m]: the reward, then every cost."""

    rows: list[RawRow]
    episodes: NDArray[np.int64]
    sums: Floats


class Columns(NamedTuple):
    orders: Orders
    outcomes: Outcomes
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
            Orders(orders, *_orders(orders, where)),
            Outcomes(outcomes, *_outcomes(outcomes, where, discount, constraints)),
            others,
        )
    except (SurefootError, *STRANGE):
        return None
    return found if (np.abs(found.outcomes.sums) < LARGEST).all() else None


def told_sums(row: Row, data: Mapping[str, Any], discount: float) -> list[float]:
    """The reward and the costs of an outcome, which must be finite."""
    reward, cost = sums_of(data, discount)
    values = [float(reward), *map(float, cost)]
    if not all(math.isfinite(value) and abs(value) < LARGEST for value in values):
        raise Damaged(f"row {row.n} must tell finite sums, found {values}", row.n)
    return values


def _orders(rows: Sequence[RawRow], where: Path) -> tuple[NDArray[np.int64], list[int]]:
    found = _matches(ORDER, rows)
    if found is None:
        single = [checked(named(row, where)) for row in rows]
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
        single = [(row, checked(row)) for row in (named(row, where) for row in rows)]
        episodes = [data["episode"] for _, data in single]
        sums = [told_sums(row, _without_breach(data), discount) for row, data in single]
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
