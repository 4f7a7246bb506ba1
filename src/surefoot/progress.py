"""A progress line for long work: a spinner on a terminal, silence elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def stages(enabled: bool) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows what is being done now."""
    console = Console(stderr=True)
    if not (enabled and console.is_terminal):
        yield lambda message: None
        return
    with console.status("starting") as status:
        yield lambda message: status.update(message)
