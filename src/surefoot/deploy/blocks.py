"""A long journal is computed again many episodes at a time: between two decisions orders and outcomes alternate and
nothing changes but the draws, so that a learner may be told all of them at once. Blocks and single episodes give it the
same state, bit for bit. A block is taken only if every row of it is what `Replay.follow` would have taken; where
anything in it is out of the ordinary, its rows are followed one by one, and that finds the first one that is wrong and
says why.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from surefoot.arrays import Integers
from surefoot.cmdp.episode import Outcomes, first_breach
from surefoot.deploy.chain import STRANGE, JournalRow, canonical
from surefoot.deploy.outcomes import outcome_of
from surefoot.deploy.replay import Departure, Replay, check_written
from surefoot.errors import SurefootError
from surefoot.learning.checks import signals_of
from surefoot.learning.learner import Orders, counter_uniforms

# Rows that wait for each other, and bytes of their payloads: neither time nor memory depends on more.
MOST_ROWS, MOST_BYTES = 2048, 2**20
ORDINARY = ("order", "outcome")
SUMS = ("reward", "cost", "states")


class Blocks:
    """Follows the rows that it is given, in order; some wait until `finish`, or the end of the `with` block.

    Args:
        on_row: called with every row that was followed.
    """

    def __init__(self, replay: Replay, on_row: Callable[[JournalRow], None] = lambda row: None) -> None:
        self._replay, self._on_row = replay, on_row
        self._waiting: list[JournalRow] = []
        self._size = 0

    def add(self, row: JournalRow) -> None:
        """`Departure`, with the number of the row, if this one or one that waited does not follow."""
        if row.kind not in ORDINARY:
            self.finish()
            return self._follow(row)
        self._waiting.append(row)
        self._size += len(row.payload)
        if len(self._waiting) >= MOST_ROWS or self._size >= MOST_BYTES:
            self.finish()
        return None

    def finish(self) -> None:
        """Follow the rows that wait: as many as possible in blocks, the others one by one."""
        rows, self._waiting, self._size = self._waiting, [], 0
        taken = _take(self._replay, rows)
        for row in rows[:taken]:
            self._on_row(row)
        for row in rows[taken:]:
            self._follow(row)

    def _follow(self, row: JournalRow) -> None:
        try:
            self._replay.follow(row)
        except (Departure, *STRANGE) as error:
            raise Departure(str(error), row.n) from None
        self._on_row(row)

    def __enter__(self) -> Blocks:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Rows that wait come before whatever ended the block, and so does what is wrong with them."""
        if error is None or isinstance(error, Exception):
            self.finish()


def _take(replay: Replay, rows: Sequence[JournalRow]) -> int:
    """Follow the first of these rows, and return how many; 0 where they are not plain orders and their outcomes."""
    taken, episodes = 0, len(rows) // 2
    try:
        if episodes and _order_is_next(replay):
            drawn, outcomes = _read(replay, rows[: 2 * episodes])
            while taken < episodes and _order_is_next(replay):
                taken += _tell(replay, drawn[taken:], outcomes[taken:])
    except (Departure, SurefootError, MemoryError, *STRANGE):
        pass  # one by one it will show what that is
    return 2 * taken


def _order_is_next(replay: Replay) -> bool:
    return [kind for kind, _ in replay.next_rows()] == ["order"]


def _read(replay: Replay, rows: Sequence[JournalRow]) -> tuple[Integers, Outcomes]:
    """The policies [n] that the rows order and the outcomes that they tell, if each row is written as it must be."""
    orders, told = rows[::2], rows[1::2]
    _check(all(row.kind == "order" for row in orders) and all(row.kind == "outcome" for row in told))
    learner = replay.learner
    first, drawn = learner.state.episode, learner.ask_block(len(orders)).drawn
    draws = counter_uniforms(learner.seed, first, len(orders)).tolist()
    numbered = enumerate(zip(draws, drawn.tolist(), strict=True), first)
    written = [b'{"draw":%r,"episode":%d,"policy":%d}' % (draw, k, index) for k, (draw, index) in numbered]
    _check([row.payload for row in orders] == written)
    sums = _sums([row.payload for row in told], first)
    outcomes = _records(replay, told, drawn) if sums is None else sums
    _check(first_breach(outcomes, learner.method.units) == len(outcomes))
    return drawn, outcomes


def _sums(payloads: Sequence[bytes], first: int) -> Outcomes | None:
    """Outcomes that hold nothing but sums and, all or none of them, the first state; None if they hold more.

    However they are parsed: only what is written here anew to the byte is taken.
    """
    if sum(map(len, payloads)) > MOST_BYTES:
        return None
    told = json.loads(b"[%s]" % b",".join(payloads))
    names = told[0].keys()
    if not names <= {"episode", *SUMS} or any(each.keys() != names for each in told):
        return None
    rewards, costs, states = ([each[name] for each in told] if name in names else [] for name in SUMS)
    _check({*map(type, rewards), *map(type, chain(*costs))} == {float} and set(map(type, chain(*states))) <= {int})
    plain = [{**each, "episode": k} for k, each in enumerate(told, first)]
    written = canonical(plain)[2:-2].split(b"},{")  # there are numbers in it and no further braces
    _check([b"{%s}" % inside for inside in written] == payloads)
    starts = np.array(states, dtype=np.int64) if states else None
    _check(starts is None or (starts.shape == (len(told), 1) and starts.min() >= 0))
    return Outcomes(np.array(rewards), np.array(costs, dtype=np.float64), starts)


def _records(replay: Replay, rows: Sequence[JournalRow], drawn: Integers) -> Outcomes:
    """Outcomes of any form, but for those in which signals are computed again."""
    learner, outcomes = replay.learner, []
    for k, (row, policy) in enumerate(zip(rows, drawn.tolist(), strict=True), learner.state.episode):
        payload = row.data
        _check(isinstance(payload, dict) and not payload.get("breach"))
        _check("actions" not in payload or signals_of(learner.method) is None)
        check_written(row.kind, {"episode": k, **replay.as_told(row.kind, payload, policy)}, row.payload)
        outcomes.append(Outcomes.single(outcome_of(payload, learner.method.units.discount)))
    return Outcomes.joined(outcomes)


def _tell(replay: Replay, drawn: Integers, outcomes: Outcomes) -> int:
    """Tell the learner of these episodes up to its next decision; how many these are."""
    learner = copy.copy(replay.learner)
    orders = Orders(learner.state.episode, learner.deployed, drawn)
    used = learner.tell_block(orders, outcomes)
    _check(all(event.episode == learner.state.episode for event in learner.events[len(replay.learner.events) :]))
    replay.move(learner)
    return used


def _check(ordinary: bool) -> None:
    if not ordinary:
        raise Departure("not to be taken in a block")
