"""Independent pieces of work on several cores, with progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from joblib import Parallel, delayed

from surefoot.arrays import whole
from surefoot.progress import Progress

T = TypeVar("T")


def each(what: str, work: Callable[..., T], calls: Sequence[tuple[Any, ...]], jobs: int, show: Progress) -> Iterator[T]:
    """`work(*call)` for every call, `jobs` at a time; results in the order of the calls."""
    show(what, 0, len(calls))
    results = Parallel(jobs, return_as="generator")(delayed(work)(*call) for call in calls)
    for done, result in enumerate(results, 1):
        yield result
        show(what, done, len(calls))


def check_jobs(jobs: int) -> None:
    whole("jobs", jobs)
