"""A learner on the real system: every order and every outcome is on the disk before anything depends on it."""

from __future__ import annotations

import logging
from os import PathLike
from types import TracebackType
from typing import Any

from surefoot.adapt.learner import SAFE, SAFE_ONLY, Learner, Order
from surefoot.deploy import outcomes, snapshots
from surefoot.deploy.chain import Damaged, RawRow, Row, canonical
from surefoot.deploy.journal import Journal, JournalError
from surefoot.deploy.replay import TOLD, Departure, Replay, check_header, header
from surefoot.deploy.status import Status, Tally
from surefoot.errors import InvalidInput, SurefootError

# Number of an order that is not in the journal: the safe policy, because nothing else may be ordered now.
FALLBACK = -1
SNAPSHOT_EVERY = 500  # episodes
LONGEST_REASON = 1000

log = logging.getLogger(__name__)


class Deployment:
    """Ask for an order, run its policy for one whole episode, tell how it went; or abandon it.

    with Deployment.open("pump-7.journal", learner) as deployment:
        order = deployment.ask()
        deployment.tell(order, rewards=[...], costs=[...])

    Killed at any moment and opened again, it goes on as if nothing had happened. When the journal cannot be written,
    `ask` returns a fallback order: the safe policy, for which nothing needs to be told.
    """

    def __init__(self, journal: Journal, replay: Replay, tally: Tally) -> None:
        self._journal, self._replay, self._tally = journal, replay, tally
        self._fault: str | None = None  # why the journal cannot be written
        self._suspended: str | None = None  # why the outstanding order must not be repeated
        self._unrecorded: tuple[str, dict[str, Any]] | None = None  # told, but the journal could not take it
        self._kept = replay.learner.state.episode  # episodes of the latest snapshot

    @classmethod
    def open(cls, path: str | PathLike[str], learner: Learner) -> Deployment:
        """Begin a journal at `path` or go on with the one there. `learner` must be fresh and made as it was then."""
        if learner.state.episode:
            raise InvalidInput(f"learner must be fresh, got one that was told {learner.state.episode} episodes")
        journal = Journal.open(path, ("open", header(learner)))
        try:
            replay, tally = _resumed(journal, learner)
            return cls(journal, replay, tally)
        except BaseException:
            journal.close()
            raise

    @property
    def learner(self) -> Learner:
        return self._replay.learner

    @property
    def outstanding(self) -> Order | None:
        """The order that has been asked for and neither told nor abandoned."""
        return self._replay.outstanding

    def ask(self) -> Order:
        """The next order, or the same again as long as it has not been told or abandoned."""
        if self._suspended is not None:
            return self._fallback()
        try:
            if self._unrecorded is not None:
                self._record(*self._unrecorded)
            if self._replay.outstanding is None:
                entries = self._replay.owed()
                self._append(entries)
                self._replay.wrote(entries)
        except JournalError as error:
            log.error("%s", error)
            return self._fallback()
        return self._replay.outstanding or self._fallback()

    def tell(
        self,
        order: Order,
        *,
        reward: Any = None,
        cost: Any = None,
        rewards: Any = None,
        costs: Any = None,
        transitions: Any = None,
        first_state: Any = None,
        breach: bool = False,
    ) -> None:
        """How the episode went, in the user's units and in one of three forms.

        Args:
            reward, cost: discounted sums Σ γ^t; cost a number, or [m] with several constraints.
            rewards, costs: [H] and [H] or [H, m], one per step.
            transitions: {"states": [H+1], "actions": [H]} with rewards and costs in it or beside it, or H steps
                (state, action, reward, cost, next state).
            first_state: where sums and sequences must come with it.
            breach: a value outside the declared ranges is no mistake: record it, void the certificate.
        """
        if order.episode == FALLBACK:
            return
        units = self.learner.method.units
        plain = outcomes.record(
            len(units.budget),
            self.learner.horizon,
            reward=reward,
            cost=cost,
            rewards=rewards,
            costs=costs,
            transitions=transitions,
            first_state=first_state,
        )
        payload = {"episode": order.episode, **plain, **({"breach": True} if breach else {})}
        if self._settled("outcome", order, payload):
            return
        outside = None if breach else outcomes.breach(plain, units)
        if outside:
            self._suspended = f"the outcome of episode {order.episode} was out of range: {outside}"
            raise InvalidInput(f"{outside}; tell it again as it should be, or with breach=True if it was observed so")
        self._record("outcome", payload)

    def abandon(self, order: Order, reason: str) -> None:
        """The order was begun and has no outcome; every conclusion takes the one that is worst for it."""
        if order.episode == FALLBACK:
            return
        payload = {"episode": order.episode, "reason": _checked_reason(reason)}
        if not self._settled("abandoned", order, payload):
            self._record("abandoned", payload)

    def status(self) -> Status:
        return self._tally.status(self._journal.count, self._journal.hash, self._fault or self._suspended)

    def head(self) -> str:
        """The hash of the last row. Publish it elsewhere: a journal that ends in it cannot be rewritten unseen."""
        return self._journal.hash.hex()

    def close(self) -> None:
        """Also writes the events that the next order would have brought along."""
        try:
            if self._unrecorded is not None:
                self._record(*self._unrecorded)
            if self._replay.outstanding is None:
                events = [entry for entry in self._replay.owed() if entry[0] == "event"]
                if events:
                    self._append(events)
                    self._replay.wrote(events)
        except JournalError as error:
            log.error("%s", error)
        finally:
            self._journal.close()

    def __enter__(self) -> Deployment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _settled(self, kind: str, order: Order, payload: dict[str, Any]) -> bool:
        """Whether exactly this was recorded before; an error if something else was, or nothing can be."""
        outstanding = self._replay.outstanding
        if outstanding is not None and order.episode == outstanding.episode:
            if order.policy_index != outstanding.policy_index:
                raise InvalidInput(
                    f"order for episode {order.episode} must name policy {outstanding.policy_index}, "
                    f"which was ordered, got {order.policy_index}"
                )
            return False
        earlier = self._journal.find(TOLD, order.episode) if order.episode < self.learner.state.episode else None
        if earlier is None:
            raise InvalidInput(f"order is for episode {order.episode}, which was not ordered; ask for an order first")
        if (earlier.kind, earlier.payload) != (kind, canonical(payload)):
            raise InvalidInput(
                f"episode {order.episode} is already recorded as {earlier.kind} {earlier.payload.decode()[:80]}; "
                "what was told cannot be changed"
            )
        return True

    def _record(self, kind: str, payload: dict[str, Any]) -> None:
        """Commit what was told, then let the learner move."""
        try:
            moved = self._replay.after(kind, payload)
        except InvalidInput:
            raise
        except Exception as error:
            self._suspended = f"the method failed on the outcome of episode {payload['episode']}: {error}"
            raise
        self._unrecorded = kind, payload  # `ask` tries again if this fails
        self._append([(kind, payload)])
        self._unrecorded = self._suspended = None
        self._replay.move(moved)
        if self.learner.state.episode - self._kept >= SNAPSHOT_EVERY:
            self._snapshot()

    def _append(self, entries: list[tuple[str, Any]]) -> None:
        try:
            rows = self._journal.append(entries)
        except JournalError as error:
            self._fault = str(error)
            raise
        self._fault = None
        for row in rows:
            self._tally.add(row)

    def _snapshot(self) -> None:
        replay = self._replay
        self._kept = replay.learner.state.episode
        try:
            state = snapshots.encode((replay.learner.state, replay.learner.events, replay.events, replay.decision))
        except snapshots.NotPlain:
            return  # a method whose state has no form for disks: the next opening replays everything
        self._journal.save_snapshot(state)

    def _fallback(self) -> Order:
        return Order(FALLBACK, SAFE, self.learner.policy(SAFE), 0.0, SAFE_ONLY)


def _resumed(journal: Journal, learner: Learner) -> tuple[Replay, Tally]:
    """Check all rows against each other, and replay those that no snapshot covers."""
    replay, tally, start = Replay(learner), Tally(), 0
    known = {n: (digest, state) for n, digest, state in journal.snapshots()}
    counts: dict[bytes, int] = {}
    latest: dict[bytes, RawRow] = {}
    for row in journal.rows():  # millions, so nothing is called for most of them
        n, kind, payload, digest = row
        counts[kind] = counts.get(kind, 0) + 1
        latest[kind] = row
        if kind == b"event":
            tally.add(Row(n, "event", payload, digest))
        elif n in known and known[n][0] == digest and _restored(replay, known[n][1]):
            start = n
        elif n == 0:
            _check_opening(Row(n, kind.decode(), payload, digest), learner, journal)
    tally.counts = {kind.decode(): count for kind, count in counts.items()}
    tally.latest = {kind.decode(): Row(row[0], kind.decode(), *row[2:]) for kind, row in latest.items()}
    for later in journal.rows_after(start):
        try:
            replay.follow(later.kind, later.data)
        except (Departure, ValueError, SurefootError) as error:
            raise Damaged(f"{journal.path}: row {later.n} does not follow: {error}", later.n) from None
    return replay, tally


def _check_opening(row: Row, learner: Learner, journal: Journal) -> None:
    try:
        found = row.data if row.kind == "open" else None
    except ValueError:
        found = None
    check_header(found, learner, str(journal.path))


def _restored(replay: Replay, state: bytes) -> bool:
    """Put a snapshot in force; false if it is none."""
    try:
        learner_state, events, written, decision = snapshots.decode(state)
    except (snapshots.NotPlain, SurefootError, ValueError, TypeError):
        return False
    replay.learner.state, replay.learner.events = learner_state, events
    replay.events, replay.decision, replay.outstanding = written, decision, None
    return True


def _checked_reason(reason: Any) -> str:
    if not isinstance(reason, str) or not reason.strip() or len(reason) > LONGEST_REASON:
        raise InvalidInput(f"reason must be a text of 1 to {LONGEST_REASON} characters, got {reason!r}"[:200])
    try:
        reason.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"reason must be text that UTF-8 can hold, got {ascii(reason)[:80]}") from None
    return reason
