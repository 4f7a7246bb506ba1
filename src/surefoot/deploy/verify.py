"""Check a journal without trusting who wrote it: every row is computed again from the policy set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from surefoot.adapt.learner import Learner
from surefoot.deploy.chain import Damaged, canonical, read
from surefoot.deploy.replay import Departure, OtherPolicySet, Replay, check_header
from surefoot.errors import SurefootError

Observer = Callable[[int], None]  # rows checked so far


@dataclass(frozen=True)
class Verdict:
    """Attributes:
    holds: whether every row follows from the policy set and the rows before it.
    rows, episodes: checked and found right.
    head: hash of the last row that is right.
    first_bad: number of the first row that is not; None if all are.
    reason: what is wrong with it.
    """

    holds: bool
    rows: int
    episodes: int
    head: str
    first_bad: int | None = None
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_header(path: str | PathLike[str]) -> Mapping[str, Any]:
    """The payload of row 0: method, settings and the digest of the policy set."""
    for row in read(path):
        data = _parsed(row.payload, row.data) if row.kind == "open" else None
        if isinstance(data, Mapping) and isinstance(data.get("settings"), Mapping):
            return data
        break
    raise Damaged(f"{path}: row 0 must open a journal", 0)


def verify(
    path: str | PathLike[str], learner: Learner, *, head: str | None = None, observer: Observer | None = None
) -> Verdict:
    """Replay the journal at `path` with a fresh learner made as row 0 says; snapshots are not looked at.

    Args:
        head: a hash published earlier; the journal must contain it.
        observer: called now and then with the number of rows checked.
    """
    replay, count, last, published = Replay(learner), 0, "", head is None
    try:
        for row in read(path):
            data = _parsed(row.payload, row.data)
            if row.n == 0:
                if row.kind != "open":
                    raise Departure(f"{row.kind!r} where 'open' must come")
                check_header(data, learner, str(path))
            else:
                replay.follow(row.kind, data)
            count, last = row.n + 1, row.hash.hex()
            published = published or last == head
            if observer and not count % 1000:
                observer(count)
    except Damaged as error:
        if error.row is None:
            raise
        return Verdict(False, count, learner.state.episode, last, error.row, str(error))
    except OtherPolicySet:
        raise
    except (Departure, SurefootError, ValueError, RecursionError) as error:
        return Verdict(False, count, learner.state.episode, last, count, f"row {count} does not follow: {error}")
    if not published:
        reason = f"no row has the published hash {head}: the journal was rewritten or cut before row {count}"
        return Verdict(False, count, learner.state.episode, last, count, reason)
    return Verdict(True, count, learner.state.episode, last)


def _parsed(payload: bytes, data: Any) -> Any:
    if canonical(data) != payload:
        raise Departure("its payload is not written in the canonical form")
    return data
