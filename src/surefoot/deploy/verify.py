"""A journal computed again from its policy set, row by row: whether all of it follows, without trusting who wrote it
(`verify`); and what it leaves possible in the parameters of the family, which the journal alone does not say
(`Possible`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.deploy import chain
from surefoot.deploy.blocks import Blocks
from surefoot.deploy.chain import Damaged, JournalRow, Observer
from surefoot.deploy.forms import check_opening, opening
from surefoot.deploy.history import Thinned
from surefoot.deploy.replay import Departure, FeaturesMissing, OtherPolicySet, Replay, check_header
from surefoot.deploy.status import ALARMS, Chances, Fact, Tally, assumptions, plain_data
from surefoot.errors import SurefootError
from surefoot.learning.learner import Learner
from surefoot.learning.method import Method


@dataclass(frozen=True)
class Verification:
    """Attributes:
    holds: whether every row follows from the policy set and the rows before it.
    rows, episodes: checked and found right.
    head: hash of the last row that is right.
    first_bad: number of the first row that is not; None if all are.
    reason: what is wrong with it.
    method, risk: of the learner that was deployed.
    certified: whether what is ordered after the last row is.
    alarms: those that the rows raised, also where the journal ends before the event that says so.
    breaches, abandoned: episodes outside the declared ranges, and without an outcome.
    next_order: policies that the next order may name, each with its probability.
    assumptions: what the certificate rests on, in sentences.
    sealed: whether all rows carry the seal of the key that was given; None if none was.
    rounding: by how much weights, margins and signals differ at most from those computed here.
    """

    holds: bool
    rows: int
    episodes: int
    head: str
    first_bad: int | None = None
    reason: str = ""
    method: str = ""
    risk: float | None = None
    certified: bool = False
    alarms: tuple[str, ...] = ()
    breaches: int = 0
    abandoned: int = 0
    next_order: Chances = ()
    assumptions: tuple[Fact, ...] = ()
    sealed: bool | None = None
    rounding: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return plain_data(self)


def read_header(path: str | PathLike[str]) -> Mapping[str, Any]:
    """The payload of row 0: method, settings and the digest of the policy set."""
    target = chain.resolve_journal_path(path)
    with chain.raise_as_damaged(target):
        return opening(next(chain.read(target)), target)


def verify(
    path: str | PathLike[str],
    learner: Learner,
    *,
    head: str | None = None,
    key: bytes | None = None,
    observer: Observer | None = None,
) -> Verification:
    """Replay the journal at `path` with a fresh learner made as row 0 says; snapshots are not looked at.

    It says whether the rows follow from the policy set and from the outcomes in them. Whether those outcomes are what
    happened, no journal can show.

    Args:
        head: a hash published earlier; the journal must contain it.
        key: the one that it was sealed with; the seal must be there and right.
        observer: called now and then with the number of rows checked.
    """
    replay, tally = Replay(learner), Tally(sealed=key is not None)
    count, last, published = 0, "", head is None
    found: Mapping[str, Any] = {}

    def verdict(holds: bool, first_bad: int | None = None, reason: str = "") -> Verification:
        return Verification(
            holds,
            count,
            learner.state.episode,
            last,
            first_bad,
            reason,
            **_facts(replay, tally),
            assumptions=assumptions(found, tally.sealed, tally.history) if holds else (),
            sealed=None if key is None else holds,
        )

    def on_row(row: JournalRow) -> None:
        nonlocal count, last, published
        tally.add(row)
        count, last = row.n + 1, row.hash.hex()
        published = published or last == head

    try:
        with Blocks(replay, on_row) as blocks:
            for row in chain.read(path, key=chain.check_key(key), observer=observer):
                if row.n == 0:
                    found = _check_first(row, chain.resolve_journal_path(path), learner, key)
                    on_row(row)
                else:
                    blocks.add(row)
        replay.finish_history()
    except Damaged as error:
        if error.row is None:
            raise
        return verdict(False, error.row, str(error))
    except (OtherPolicySet, FeaturesMissing):
        raise
    except (Departure, SurefootError, *chain.STRANGE) as error:
        return verdict(False, count, f"row {count} does not follow: {error}")
    rewritten = f"no row has the published hash {head}: the journal was rewritten or cut before row {count}"
    return verdict(True) if published else verdict(False, count, rewritten)


def _check_first(row: JournalRow, path: Path, learner: Learner, key: bytes | None) -> Mapping[str, Any]:
    """The payload of row 0, if the learner is the one that it names."""
    found = check_opening(row, path)
    if chain.canonical(found) != row.payload:
        raise Departure("its payload is not written in the canonical form")
    check_header(found, learner, str(path), found.get("key") if key is None else chain.key_name(key))
    return found


def _facts(replay: Replay, tally: Tally) -> dict[str, Any]:
    """What is said of a journal as far as its rows follow."""
    learner = replay.learner
    return {
        "method": learner.name,
        "risk": learner.settings.get("risk"),
        "certified": learner.certified,
        "alarms": tuple(event.message for event in learner.events if event.kind in ALARMS),
        "breaches": tally.breaches,
        "abandoned": tally.counts.get("abandoned", 0),
        "next_order": _next_order(replay),
        "rounding": replay.rounding,
    }


def _next_order(replay: Replay) -> Chances:
    if replay.outstanding is not None:
        return ((replay.outstanding.policy_index, 1.0),)
    deployed = replay.learner.deployed
    pairs = zip(deployed.indices.tolist(), deployed.weights.tolist(), strict=True)
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))


# ----------------------------------------------------------------------------------------------- what is still possible

Range = tuple[float, float]


@dataclass(frozen=True)
class Left:
    """From an episode on, the smallest and the largest value of each parameter that is not ruled out."""

    episode: int
    ranges: tuple[Range, ...]


class Possible:
    """Follows a journal with a fresh learner, made as its row 0 says; every row is computed again on the way.

    Attributes:
        everything: the range of each parameter over all cells or candidates.
    """

    def __init__(self, learner: Learner) -> None:
        self._learner, self._blocks = learner, Blocks(Replay(learner))
        low, high = _boxes(learner.method)
        self.everything: tuple[Range, ...] = _ranges(low, high)
        self.ranges: Thinned[Left] = Thinned(lambda one, other: Left(one.episode, other.ranges))

    def add(self, row: JournalRow) -> None:
        if row.n == 0:
            found = opening(row)
            check_header(found, self._learner, "the journal", found.get("key"))
            return
        with _departures():
            self._blocks.add(row)
        if row.kind == "decision":
            left = _left(self._learner)
            if left:
                self.ranges.add(Left(row.data["episode"], left))

    def finish(self) -> None:
        """Rows that were added may not have been looked at before this."""
        with _departures():
            self._blocks.finish()


@contextmanager
def _departures() -> Iterator[None]:
    try:
        yield
    except Departure as error:
        raise Damaged(f"row {error.row} does not follow from the policy set: {error}", error.row) from None


def _left(learner: Learner) -> tuple[Range, ...]:
    """Of the cells that survive, or the candidates that are alive; none if nothing is left."""
    kept = np.array(learner.method.surviving(learner.state.method), dtype=np.int64)
    low, high = _boxes(learner.method)
    return _ranges(low[kept], high[kept]) if len(kept) and len(low) else ()


def _boxes(method: Method) -> tuple[Floats, Floats]:
    """[J, d] corners of the cells, or the parameters of the candidates twice; J = 0 for a method that has neither."""
    if method.cells is not None:
        return method.cells.low, method.cells.high
    if method.policies is None:
        return np.empty((0, 0)), np.empty((0, 0))
    centres = np.array([entry.parameter for entry in method.policies.entries])
    return centres, centres


def _ranges(low: Floats, high: Floats) -> tuple[Range, ...]:
    if not len(low):
        return ()
    return tuple(zip(low.min(axis=0).tolist(), high.max(axis=0).tolist(), strict=True))
