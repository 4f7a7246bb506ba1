"""Simulated episodes that are kept in a folder, so that a later call goes on where an earlier one ended.

Episodes are simulated in blocks with generators of their own, and tasks are drawn in lots with theirs. So the first n
of either are the same whatever n is, and what was made in several calls is to the last bit what one call makes.

Whoever looks at bounds before simulating more of the same tasks has had more than one try at them. Streams do not
depend on the attempt here, but what an attempt may spend does: each has half as much as the one before, whatever they
have in common, so that all of them together keep to `uncovered` by a union bound. The folder remembers which attempts
have ended, and with which settings.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.bounds.settings import LearnedSignals, ResolvedBounds
from surefoot.bounds.signal_model import SignalModel
from surefoot.cmdp.policy import Policy
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.files import check_folder, write_file
from surefoot.streams import Stream
from surefoot.tasks.task_distribution import TaskDistribution

BLOCK = 8  # episodes
LOT = 64  # tasks
ATTEMPTS, LESSON = "attempts.json", "signals.json"


@dataclass(frozen=True)
class KeptEpisodes:
    """Numbers [n, k'] of the episodes of policies on tasks, in a folder of their own for each family, set of policies,
    way to read episodes and seed: what is not the same is simulated anew."""

    folder: Path
    seed: int

    @classmethod
    def open(
        cls,
        folder: str | PathLike[str],
        tasks: TaskDistribution,
        policies: Sequence[Policy],
        model: SignalModel | None,
        seed: int,
    ) -> KeptEpisodes:
        told = [tasks.digest(), *(_digest(policy.to_arrays(), policy.kind, _name(policy)) for policy in policies)]
        told += ["" if model is None else _digest(vars(model.signals) | {"edges": model.edges}), str(seed)]
        place = Path(folder) / hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
        place.mkdir(parents=True, exist_ok=True)
        return cls(place, int(seed))

    def sample(self, tasks: TaskDistribution, part: int, count: int) -> Floats:
        """[n, d] parameters, of which a larger sample has the same first ones."""
        lots = [tasks.sample(LOT, self._rng(Stream.KEPT_TASKS, part, lot)) for lot in range(-(-count // LOT))]
        return np.concatenate(lots)[:count]

    def numbers(
        self, place: tuple[int, ...], first: int, count: int, simulate: Callable[[int, np.random.Generator], Floats]
    ) -> Floats:
        """[n, k'] of the episodes from `first` on, at a place (stage, task, policy); blocks that are not here yet are
        simulated."""
        path = self.folder / f"{'-'.join(map(str, place))}.npy"
        kept = [_read(path)] if path.exists() else []
        have = sum(map(len, kept))
        for block in range(have // BLOCK, -(-(first + count) // BLOCK)):
            kept.append(simulate(BLOCK, self._rng(Stream.KEPT_EPISODES, *place, block)))
        found = np.concatenate(kept)
        if len(found) > have:
            content = BytesIO()
            np.save(content, found, allow_pickle=False)
            write_file(path, content.getvalue(), argument="keep")
        return found[first : first + count]

    def check_attempt(self, settings: ResolvedBounds) -> None:
        """Refuse another look at these tasks by an attempt that has had its own."""
        used = self._attempts().get(str(settings.attempt))
        if used is not None and used != _describe(settings):
            ended = [int(each) for each in self._attempts()]
            raise InvalidInput(
                f"attempt must be {max(ended) + 1} for episodes of which bounds were made already ({used}): whoever "
                f"looks before simulating more has had a try, which must be paid for, got {settings.attempt}",
                argument="attempt",
            )

    def end_attempt(self, settings: ResolvedBounds) -> None:
        ended = {**self._attempts(), str(settings.attempt): _describe(settings)}
        write_file(self.folder / ATTEMPTS, json.dumps(ended, indent=1).encode(), argument="keep")

    def _attempts(self) -> dict[str, Any]:
        path = self.folder / ATTEMPTS
        return _read_json(path) if path.exists() else {}

    def _rng(self, stream: Stream, *numbers: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(stream, *numbers)))


def _describe(settings: ResolvedBounds) -> str:
    return f"cells {settings.cells}, holdout {settings.holdout}, episodes {settings.episodes}, {settings.uncovered:g}"


def keep_lesson(folder: str | PathLike[str], signals: LearnedSignals) -> None:
    """Remember how signals are learned: read otherwise, episodes that are kept are of no use."""
    check_folder(folder, argument="keep")
    Path(folder).mkdir(parents=True, exist_ok=True)
    told = json.dumps({"tasks": signals.tasks, "episodes": signals.episodes})
    write_file(Path(folder) / LESSON, told.encode(), argument="keep")


def kept_lesson(folder: str | PathLike[str], signals: LearnedSignals) -> LearnedSignals | None:
    """As they were learned before; None if they were not."""
    path = Path(folder) / LESSON
    return replace(signals, **_read_json(path)) if path.exists() else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError as error:
        raise ArtifactError(f"{path} must be what was written there, got {error}") from None
    return found


def _name(policy: Policy) -> str:
    return str(getattr(policy, "name", ""))


def _digest(arrays: Mapping[str, Any], *words: str) -> str:
    """Of all that is an array."""
    found = hashlib.sha256(" ".join(words).encode())
    for name, array in sorted(arrays.items()):
        if isinstance(array, np.ndarray):
            found.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _read(path: Path) -> Floats:
    try:
        found: Floats = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ArtifactError(f"{path} must hold simulated episodes, got {error}") from None
    return found
