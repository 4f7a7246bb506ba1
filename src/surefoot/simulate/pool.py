"""The n-th episode of each policy on a task, the same whoever asks for it and in blocks of whatever size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from surefoot.arrays import Integers
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Episodes, SideBySide, Task

FIRST_CHUNK, LARGEST_CHUNK = 128, 4096  # episodes simulated at once


class EpisodeStream:
    """Independent episodes of one policy, simulated ahead in chunks whose sizes do not depend on who asks.

    Args:
        chunks: sizes of these.
        transitions: whether states and actions, or observations, are kept too.
        order: numbers of simulated episodes, in the order in which they are handed out, as often as anyone likes. By
            default each is handed out in turn and is forgotten once a later one was asked for.
        first: the first chunk, where it has been simulated already.
    """

    def __init__(
        self,
        episodes: Episodes,
        rng: np.random.Generator,
        chunks: Iterable[int],
        *,
        transitions: bool = True,
        order: Integers | None = None,
        first: Outcomes | None = None,
    ) -> None:
        self._episodes, self._rng, self._chunks = episodes, rng, iter(chunks)
        self._transitions, self._order = transitions, order
        self._forgotten = 0  # episodes before those in the buffer
        self._buffer = self._simulate() if first is None else first

    def episodes(self, first: int, count: int) -> Outcomes:
        """`count` episodes, the first of which has the number `first`."""
        if self._order is not None:
            wanted = self._order[first : first + count]
            self._extend(int(wanted.max()) + 1)
            return self._buffer[wanted]
        self._extend(first + count, forget=first)
        return self._buffer[first - self._forgotten : first - self._forgotten + count]

    def _extend(self, end: int, forget: int = 0) -> None:
        """Simulate up to the episode before `end`; those before `forget` need not be kept."""
        while self._forgotten + len(self._buffer) < end:
            gone = min(forget - self._forgotten, len(self._buffer))
            self._buffer = Outcomes.joined([self._buffer[gone:], self._simulate()])
            self._forgotten += gone

    def _simulate(self) -> Outcomes:
        return self._episodes.run(next(self._chunks), self._rng, transitions=self._transitions)


def growing_chunks(size: int = FIRST_CHUNK) -> Iterator[int]:
    """Sizes that double up to the largest."""
    while True:
        yield size
        size = min(2 * size, LARGEST_CHUNK)


class SharedStreams:
    """Streams of policies on one task, for several learners with one seed: what one has simulated, the others need not.
    They keep all their episodes.

    Args:
        steps, episodes: of an episode, and of a run.
        transitions: whether any of the learners looks at more than sums.
    """

    def __init__(
        self, task: Task, policies: Sequence[Policy], *, steps: int, episodes: int, seed: int, transitions: bool
    ) -> None:
        self._policies, self._simulated = policies, [task.episodes(policy, steps) for policy in policies]
        self._rngs = [policy_rng(seed, index) for index in range(len(policies))]
        self._order, self._transitions = np.arange(episodes), transitions
        self._streams: dict[int, EpisodeStream] = {}

    def holds(self, index: int, policy: Policy) -> bool:
        """Whether that is the policy of this number here: a learner may have others of its own."""
        return index < len(self._policies) and self._policies[index] is policy

    def __getitem__(self, index: int) -> EpisodeStream:
        first = self._simulated[0]
        # Where one policy leaves most lanes free, the others are at hand for little more: nobody may ever ask for them.
        if not self._streams and isinstance(first, SideBySide) and first.lanes > 2 * FIRST_CHUNK:
            chunks = first.run_beside(self._simulated[1:], FIRST_CHUNK, self._rngs, self._transitions)
            self._streams = {k: self._stream(k, growing_chunks(2 * FIRST_CHUNK), own) for k, own in enumerate(chunks)}
        if index not in self._streams:
            self._streams[index] = self._stream(index, growing_chunks())
        return self._streams[index]

    def _stream(self, index: int, chunks: Iterator[int], first: Outcomes | None = None) -> EpisodeStream:
        return EpisodeStream(
            self._simulated[index],
            self._rngs[index],
            chunks,
            transitions=self._transitions,
            order=self._order,
            first=first,
        )


def policy_rng(seed: int, index: int) -> np.random.Generator:
    """Of the episodes of a policy in a run."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index,)))


class EpisodePool:
    """Episodes for one learner: when it runs a policy for the n-th time, it gets the n-th of that policy's stream.

    Args:
        stream: that of a policy, by its index. Pools that share streams see the same episodes.
        sums_only: whether to leave out all but the sums.
    """

    def __init__(self, stream: Callable[[int], EpisodeStream], *, sums_only: bool = False) -> None:
        self._stream, self._sums_only = stream, sums_only
        self._used = Counter[int]()

    def upcoming(self, drawn: Integers) -> Outcomes:
        """The next unused episode of each drawn policy [n], without using them up."""
        kinds = np.unique(drawn).tolist()
        if len(kinds) == 1:
            return self._next(kinds[0], len(drawn))
        places = [np.flatnonzero(drawn == index) for index in kinds]
        parts = [self._next(index, len(place)) for index, place in zip(kinds, places, strict=True)]
        return Outcomes.joined(parts)[np.argsort(np.concatenate(places), kind="stable")]

    def use(self, drawn: Integers) -> None:
        """Use up the next episode of each drawn policy [n]."""
        self._used.update(drawn.tolist())

    def _next(self, index: int, count: int) -> Outcomes:
        found = self._stream(index).episodes(self._used[index], count)
        return Outcomes(found.reward, found.cost) if self._sums_only else found
