"""Independent pieces of work on several cores or machines, with progress.

Whatever backend of joblib is active is used: its own processes, or those of a cluster, as in

    with joblib.parallel_config(backend="ray"):
        surefoot.train(..., jobs=8)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from joblib import Parallel, delayed
from joblib.externals.loky.backend import resource_tracker as loky_tracker
from joblib.externals.loky.backend.reduction import dump

from surefoot.arrays import check_int
from surefoot.interrupts import mask_sigint
from surefoot.progress import Progress, silent

T = TypeVar("T")

# Where results can only be had by the chunk, so many chunks: progress is shown after each.
CHUNKS = 16


def parallel_map(
    what: str, work: Callable[..., T], calls: Sequence[tuple[Any, ...]], jobs: int, show: Progress
) -> Iterator[T]:
    """`work(*call)` for every call, `jobs` at a time; results in the order of the calls."""
    with workers(jobs) as ready:
        yield from ready.map(what, work, calls, show)


@contextmanager
def workers(jobs: int) -> Iterator[Workers]:
    """Workers for several lots of work one after the other: a cluster takes seconds to start them."""
    try:
        parallel = Parallel(jobs, return_as="generator")
    except ValueError:  # Ray has no generators
        parallel = Parallel(jobs)
    with parallel:
        yield Workers(parallel, jobs)


@dataclass(frozen=True)
class Workers:
    parallel: Any
    jobs: int

    def map(
        self, what: str, work: Callable[..., T], calls: Sequence[tuple[Any, ...]], show: Progress = silent
    ) -> Iterator[T]:
        """`work(*call)` for every call; results in the order of the calls."""
        show(what, 0, len(calls))
        for done, result in enumerate(self._results(work, calls), 1):
            yield result
            show(what, done, len(calls))

    def _results(self, work: Callable[..., T], calls: Sequence[tuple[Any, ...]]) -> Iterator[T]:
        size = len(calls) if self.parallel.return_generator else max(4 * self.jobs, -(-len(calls) // CHUNKS))
        for first in range(0, len(calls), size or 1):
            yield from self._submit(delayed(work)(*call) for call in calls[first : first + size])

    def _submit(self, calls: Iterator[Any]) -> Iterable[Any]:
        """The results as they come. Workers start with the first calls, or again after a long time without any."""
        if self.jobs == 1 or not self.parallel.return_generator:
            results: Iterable[Any] = self.parallel(calls)
            return results
        _start_trackers()
        with mask_sigint():
            results = self.parallel(calls)
        return results


def _start_trackers() -> None:
    """The processes that clear up after workers; started among them, they would let Ctrl-C be heard again."""
    if os.name == "posix":
        resource_tracker.ensure_running()
        loky_tracker.ensure_running()


def can_be_sent(*things: Any) -> bool:
    """Whether another process can have these."""
    try:
        dump(things, BytesIO())
    except Exception:  # whatever somebody's own objects raise
        return False
    return True


def check_jobs(jobs: int) -> None:
    check_int("jobs", jobs)
