"""Check a journal without trusting who wrote it: every row is computed again from the policy set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from surefoot.deploy.blocks import Blocks
from surefoot.deploy.chain import STRANGE, Damaged, Observer, Row, canonical, located, read
from surefoot.deploy.forms import opening
from surefoot.deploy.replay import Departure, FeaturesMissing, OtherPolicySet, Replay, check_header
from surefoot.deploy.seals import checked_key, key_name
from surefoot.errors import SurefootError
from surefoot.learning.learner import Learner


@dataclass(frozen=True)
class Verdict:
    """Attributes:
    holds: whether every row follows from the policy set and the rows before it.
    rows, episodes: checked and found right.
    head: hash of the last row that is right.
    first_bad: number of the first row that is not; None if all are.
    reason: what is wrong with it.
    method, risk: of the learner that was deployed.
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
    sealed: bool | None = None
    rounding: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_header(path: str | PathLike[str]) -> Mapping[str, Any]:
    """The payload of row 0: method, settings and the digest of the policy set."""
    for row in read(path):
        return opening(row, str(path))
    raise Damaged(f"{path}: row 0 is missing", 0)


def verify(
    path: str | PathLike[str],
    learner: Learner,
    *,
    head: str | None = None,
    key: bytes | None = None,
    observer: Observer | None = None,
) -> Verdict:
    """Replay the journal at `path` with a fresh learner made as row 0 says; snapshots are not looked at.

    It says whether the rows follow from the policy set and from the outcomes in them. Whether those outcomes are what
    happened, no journal can show.

    Args:
        head: a hash published earlier; the journal must contain it.
        key: the one that it was sealed with; the seal must be there and right.
        observer: called now and then with the number of rows checked.
    """
    where, replay = str(located(path)), Replay(learner)
    count, last, published = 0, "", head is None
    risk = learner.settings.get("risk")

    def verdict(holds: bool, first_bad: int | None = None, reason: str = "") -> Verdict:
        episodes, sealed = learner.state.episode, None if key is None else holds
        return Verdict(holds, count, episodes, last, first_bad, reason, learner.name, risk, sealed, replay.rounding)

    def took(row: Row) -> None:
        nonlocal count, last, published
        count, last = row.n + 1, row.hash.hex()
        published = published or last == head

    try:
        with Blocks(replay, took) as blocks:
            for row in read(path, key=checked_key(key), observer=observer):
                if row.n:
                    blocks.add(row)
                    continue
                found = opening(row, where)
                if canonical(found) != row.payload:
                    raise Departure("its payload is not written in the canonical form")
                check_header(found, learner, where, found.get("key") if key is None else key_name(key))
                took(row)
    except Damaged as error:
        if error.row is None:
            raise
        return verdict(False, error.row, str(error))
    except (OtherPolicySet, FeaturesMissing):
        raise
    except (Departure, SurefootError, *STRANGE) as error:
        return verdict(False, count, f"row {count} does not follow: {error}")
    if not published:
        reason = f"no row has the published hash {head}: the journal was rewritten or cut before row {count}"
        return verdict(False, count, reason)
    return verdict(True)
