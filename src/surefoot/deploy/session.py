"""A learner on the real system: every order and every outcome is on the disk before anything depends on it."""

from __future__ import annotations

import copy
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import islice, takewhile
from os import PathLike
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from surefoot.deploy import chain, outcomes, snapshots
from surefoot.deploy.blocks import Blocks
from surefoot.deploy.chain import Damaged, JournalRow, Observer
from surefoot.deploy.forms import check_opening, opening
from surefoot.deploy.journal import Entry, Journal, JournalError
from surefoot.deploy.logs import Log, episodes_of
from surefoot.deploy.outcomes import Episode
from surefoot.deploy.replay import TOLD, Departure, Replay, check_header, header
from surefoot.deploy.status import Status, Tally
from surefoot.errors import InvalidInput, SurefootError
from surefoot.interrupts import defer_sigint
from surefoot.learning.learner import Learner, Order
from surefoot.learning.method import SAFE, SAFE_MIXTURE

# Number of an order that is not in the journal: the safe policy, because nothing else may be ordered now.
FALLBACK = -1
SNAPSHOT_EVERY = 500  # episodes

Maker = Callable[[Mapping[str, Any] | None], Learner]

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


class Closed(SurefootError):
    """The deployment was closed, or belongs to another process; open the journal again."""


def _alone(method: Callable[Concatenate[Deployment, P], R]) -> Callable[Concatenate[Deployment, P], R]:
    """One thread after the other, and nobody after `close` or in a forked child."""

    @wraps(method)
    def run_alone(self: Deployment, /, *arguments: P.args, **keywords: P.kwargs) -> R:
        if self._process != os.getpid():
            raise Closed("the deployment belongs to the process that opened it, not to one forked from it")
        with self._turn:
            if self._closed:
                raise Closed("the deployment is closed; open the journal again")
            return method(self, *arguments, **keywords)

    return run_alone


class Deployment:
    """Ask for an order, run its policy for one whole episode, tell how it went; or abandon it.

    with Deployment.open("pump-7.journal", learner) as deployment:
        order = deployment.ask()
        deployment.tell(order, rewards=[...], costs=[...])

    Killed at any moment and opened again, it goes on as if nothing had happened. When the journal cannot be written,
    or anything else goes wrong inside, `ask` returns a fallback order: the safe policy, for which nothing needs to be
    told. Threads may share a deployment; processes may not.
    """

    def __init__(self, journal: Journal, replay: Replay, tally: Tally) -> None:
        self._journal, self._replay, self._tally = journal, replay, tally
        self._fault: str | None = None  # why nothing but the safe policy can be ordered
        self._suspended: str | None = None  # why the outstanding order must not be repeated
        self._unrecorded: Entry | None = None  # told, but the journal could not take it
        self._halfway = False  # whether the journal may be ahead of what is known here
        self._kept = replay.learner.state.episode  # episodes of the latest snapshot
        self._process, self._turn, self._closed = os.getpid(), threading.RLock(), False

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        learner: Learner | Maker,
        *,
        key: bytes | None = None,
        observer: Observer | None = None,
        history: Log | None = None,
    ) -> Deployment:
        """Begin a journal at `path` or go on with the one there.

        Args:
            learner: fresh and made as it was then; or a function that makes it of the payload of row 0, which is None
                if there is no journal yet.
            key: at least 16 random bytes that are kept elsewhere. They seal the journal, from its beginning on.
            observer: called now and then with the number of rows read, where a journal is there.
            history: episodes of the safe policy on this very system from before the first order, which certified
                methods take for evidence as if they had ordered them: a CSV or JSON-lines file, `Outcomes`, or a
                sequence of what `tell` takes. All episodes from some time on, in the order in which they were run,
                and neither the policy set nor the learner chosen by them (docs/guarantees.md, Theorem 13). They are
                recorded; opened again, the deployment has them, and other ones are refused.
        """
        earlier = None if history is None else episodes_of(history)
        if isinstance(learner, Learner):
            _check_fresh(learner)
        journal = Journal(path, chain.check_key(key))
        try:
            made = learner if isinstance(learner, Learner) else learner(_read_opening(journal))
            _check_fresh(made)
            if not journal.exists:
                if earlier is not None:  # refused before anything is written
                    Replay(copy.copy(made)).take_history(earlier)
                journal.begin(("open", header(made, chain.key_name(key))))
            with chain.raise_as_damaged(journal.path):
                replay, tally = _resume_journal(journal, made, chain.key_name(key), observer)
            _deployed.add(made)
            opened = cls(journal, replay, tally)
            if earlier is not None:
                opened._record_history(earlier)
            opened._attempt(opened._catch_up)
            return opened
        except BaseException:
            journal.close()
            raise

    def _record_history(self, earlier: Sequence[Episode]) -> None:
        """Write it below row 0; where anything else stands there already, it must be the same."""
        if self._journal.count == 1:
            rows = self._replay.take_history(earlier)
            self._append(rows, lambda _: None)
            return
        recorded = [row.payload for row in _history_rows(self._journal.path)]
        if recorded != [chain.canonical(payload) for _, payload in self._replay.history_rows(earlier)]:
            raise InvalidInput(
                f"history must be as when {self._journal.path} was begun, with {len(recorded)} earlier episodes, or be "
                f"left out, got {len(earlier)} that differ"
            )

    @property
    def learner(self) -> Learner:
        return self._replay.learner

    @property
    def outstanding(self) -> Order | None:
        """The order that has been asked for and neither told nor abandoned."""
        return self._replay.outstanding

    @_alone
    def ask(self) -> Order:
        """The next order, or the same again as long as it has not been told or abandoned."""
        if self._suspended is not None or not self._attempt(self._order):
            return self._fallback()
        return self._replay.outstanding or self._fallback()

    @_alone
    def tell(self, order: Order, **episode: Unpack[Episode]) -> None:
        """How the episode went, in the user's units and in one of four forms.

        Args:
            reward, cost: discounted sums Σ γ^t; cost a number, or [m] with several constraints.
            rewards, costs: [H] and [H] or [H, m], one per step.
            transitions: {"states": [H+1], "actions": [H]} with rewards and costs in it or beside it, or H steps
                (state, action, reward, cost, next state).
            first_state: where sums and sequences must come with it.
            observations, actions: [H+1, ...] and [H, ...] beside sums or sequences, for methods that read signals from
                them; or signals: [q] in [0, 1], where those are computed elsewhere.
            drawn: [H, ...] actions as the policy drew them, beside the actions that were taken, where these differ, as
                in a box that it left: methods that learn networks learn from what was drawn.
            breach: a value outside the declared ranges is no mistake: record it, void the certificate.
        """
        unknown = episode.keys() - outcomes.FIELDS
        if unknown:
            raise TypeError(f"tell() got an unexpected keyword argument {min(unknown)!r}")
        if order.episode == FALLBACK:
            return
        units, breach = self.learner.method.units, episode.get("breach", False)
        plain = outcomes.record(episode, len(units.budget), self.learner.horizon)
        payload = {"episode": order.episode, **plain, **({"breach": True} if breach else {})}
        if self._is_recorded("outcome", order, payload):
            return
        outside = None if breach else outcomes.breach(plain, units)
        if outside:
            self._suspended = f"the outcome of episode {order.episode} was out of range: {outside}"
            raise InvalidInput(f"{outside}; tell it again as it should be, or with breach=True if it was observed so")
        self._record("outcome", outcomes.with_signals(payload, self.learner.method, order.policy_index))

    @_alone
    def abandon(self, order: Order, reason: str) -> None:
        """The order was begun and has no outcome; every conclusion takes the one that is worst for it."""
        if order.episode == FALLBACK:
            return
        payload = {"episode": order.episode, "reason": outcomes.check_reason(reason)}
        if not self._is_recorded("abandoned", order, payload):
            self._record("abandoned", payload)

    def status(self) -> Status:
        return self._tally.status(self._journal.count, self._journal.hash, self._fault or self._suspended)

    def head(self) -> str:
        """The hash of the last row. Publish it elsewhere: a journal that ends in it cannot be rewritten unseen."""
        return self._journal.hash.hex()

    def close(self) -> None:
        """Also tries once more to record what the journal could not take. Any number of times."""
        if self._process != os.getpid():
            return  # a forked child holds nothing
        with defer_sigint(), self._turn:
            if not self._closed:
                self._closed = True
                self._finish()

    def _finish(self) -> None:
        try:
            if self._unrecorded is not None:
                self._record(*self._unrecorded)
        except Exception as error:  # this was promised to nobody
            log.error("%s", error)
        finally:
            self._journal.close()

    def __enter__(self) -> Deployment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_recorded(self, kind: str, order: Order, payload: dict[str, Any]) -> bool:
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
        recorded = chain.canonical(outcomes.drop_computed_signals(earlier.data))
        if (earlier.kind, recorded) != (kind, chain.canonical(payload)):
            raise InvalidInput(
                f"episode {order.episode} is already recorded as {earlier.kind} {earlier.payload.decode()[:80]}; "
                "what was told cannot be changed"
            )
        return True

    def _attempt(self, work: Callable[[], None]) -> bool:
        """Whether it could be done; if not, whatever the reason, the system must be told to run the safe policy."""
        try:
            work()
        except Exception as error:
            self._fault = str(error) or type(error).__name__
            log.error("%s", error, exc_info=not isinstance(error, JournalError))
            return False
        return True

    def _order(self) -> None:
        if self._unrecorded is not None:
            self._record(*self._unrecorded)
        if self._replay.outstanding is None:
            self._append(self._replay.next_rows(), self._replay.note_written)

    def _catch_up(self) -> None:
        """Write what follows from the rows there: a new journal's first decision, and what earlier versions, which
        wrote events with the next order only, left out."""
        if self._replay.outstanding is None and (following := self._replay.consequences(self.learner)):
            self._append(following, self._replay.note_written)

    def _record(self, kind: str, payload: dict[str, Any]) -> None:
        """Commit what was told with all that follows from it, then let the learner move: no reader ever sees an
        episode without the alarm that it raised."""
        try:
            moved = self._replay.after(kind, payload)
            following = self._replay.consequences(moved)
        except InvalidInput:
            raise
        except Exception as error:
            self._suspended = f"the method failed on the outcome of episode {payload['episode']}: {error}"
            raise
        self._unrecorded = kind, payload  # `ask` tries again if this fails
        self._append([(kind, payload), *following], lambda entries: self._move(moved, entries[1:]))
        self._unrecorded = self._suspended = None
        if self.learner.state.episode - self._kept >= SNAPSHOT_EVERY:
            self._snapshot()

    def _move(self, learner: Learner, following: list[Entry]) -> None:
        self._replay.move(learner)
        self._replay.note_written(following)
        self._replay.settle()

    def _append(self, entries: list[Entry], then: Callable[[list[Entry]], None]) -> None:
        """Write rows, `then` take note of them. Nothing follows if that was interrupted between the two."""
        if self._halfway:
            raise JournalError("the deployment was interrupted in the midst of a write; open the journal again")
        self._halfway = True
        try:
            rows = self._journal.append(entries)
        except JournalError as error:
            self._fault, self._halfway = str(error), False
            raise
        for row in rows:
            self._tally.add(row)
        then(entries)
        self._fault, self._halfway = None, False

    def _snapshot(self) -> None:
        replay = self._replay
        self._kept = replay.learner.state.episode
        try:
            parts = replay.learner.state, replay.learner.events, replay.events, replay.decision
            state = snapshots.encode(parts, snapshots.classes(replay.learner))
        except snapshots.NotPlain as error:  # the next opening replays everything
            log.warning("no snapshot: the state of %s holds %s; see MethodSpec.state", replay.learner.name, error)
            return
        self._journal.save_snapshot(state)

    def _fallback(self) -> Order:
        return Order(FALLBACK, SAFE, self.learner.policy(SAFE), 0.0, SAFE_MIXTURE, self.learner.policy_name(SAFE))


# A learner follows one journal: outcomes of one system must not steer another.
_deployed: weakref.WeakSet[Learner] = weakref.WeakSet()


def _check_fresh(learner: Learner) -> None:
    if learner.state.episode or learner.history:
        told = learner.state.episode + learner.history
        raise InvalidInput(f"learner must be fresh, got one that was told {told} episodes")
    if learner in _deployed:
        raise InvalidInput("learner must be fresh, got one that belongs to another deployment")


def _history_rows(path: Path) -> Iterator[JournalRow]:
    """Those that follow row 0."""
    return takewhile(lambda row: row.kind == "history", islice(chain.read(path), 1, None))


def _read_opening(journal: Journal) -> Mapping[str, Any] | None:
    if not journal.exists:
        return None
    with chain.raise_as_damaged(journal.path):
        return opening(chain.decode_row(next(journal.rows()), journal.path), journal.path)


def _resume_journal(
    journal: Journal, learner: Learner, key: str | None, observer: Observer | None
) -> tuple[Replay, Tally]:
    """Check all rows against each other, and replay all that no sealed snapshot covers."""
    replay, tally = Replay(learner), Tally(sealed=key is not None)
    covered = next((n for n, state in journal.snapshots() if _restore_snapshot(replay, state)), 0)
    try:
        with Blocks(replay) as blocks:
            for raw in chain.track_rows(journal.rows(), observer):
                row = chain.decode_row(raw, journal.path)
                tally.add(row)
                if row.n == 0:
                    _check_first(row, learner, journal.path, key)
                elif row.n > covered:
                    blocks.add(row)
        replay.finish_history()
    except Departure as error:
        raise Damaged(f"row {error.row} does not follow: {error}", error.row, journal.path) from None
    journal.connect()
    return replay, tally


def _check_first(row: JournalRow, learner: Learner, path: Path, key: str | None) -> None:
    try:
        check_header(check_opening(row, path), learner, str(path), key)
    except chain.STRANGE as error:
        raise Departure(str(error), 0) from None


def _restore_snapshot(replay: Replay, state: bytes) -> bool:
    """Put a snapshot in force; false if it is of another version."""
    try:
        learner_state, events, written, decision = snapshots.decode(state, snapshots.classes(replay.learner))
    except (snapshots.NotPlain, SurefootError, ValueError, TypeError):
        return False
    replay.learner.state, replay.learner.events = learner_state, events
    replay.events, replay.decision, replay.outstanding = written, decision, None
    return True
