"""Independent pieces of work on several cores or machines, with progress.

Whatever backend of joblib is active is used: its own processes, or those of a cluster, as in

    with joblib.parallel_config(backend="ray"):
        surefoot.train(..., jobs=8)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from joblib import Parallel, delayed

from surefoot.arrays import whole
from surefoot.progress import Progress

T = TypeVar("T")

# Where results can only be had by the chunk, so many chunks: progress is shown after each.
CHUNKS = 16


def each(what: str, work: Callable[..., T], calls: Sequence[tuple[Any, ...]], jobs: int, show: Progress) -> Iterator[T]:
    """`work(*call)` for every call, `jobs` at a time; results in the order of the calls."""
    show(what, 0, len(calls))
    for done, result in enumerate(_results(work, calls, jobs), 1):
        yield result
        show(what, done, len(calls))


def _results(work: Callable[..., T], calls: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[T]:
    try:
        parallel = Parallel(jobs, return_as="generator")
    except ValueError:  # Ray has no generators
        yield from _by_chunk(work, calls, jobs)
    else:
        yield from parallel(delayed(work)(*call) for call in calls)


def _by_chunk(work: Callable[..., T], calls: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[T]:
    size = max(4 * jobs, -(-len(calls) // CHUNKS))
    with Parallel(jobs) as parallel:
        for first in range(0, len(calls), size):
            yield from parallel(delayed(work)(*call) for call in calls[first : first + size])


def check_jobs(jobs: int) -> None:
    whole("jobs", jobs)
