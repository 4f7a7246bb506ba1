"""Ctrl-C: commands end without a traceback, files are whole, workers are ended by whoever started them.

Ctrl-C in a terminal reaches a command and its workers alike, `kill -INT` the command alone. Workers are deaf to it, so
that in both cases it is the command that stops, clears up and ends them.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 130  # exit code, as shells have it: 128 and the number of the signal
SAME = 3.0  # seconds within which a further Ctrl-C says the same again, and does not disturb the clearing up
AGAIN = 0.05  # seconds until an interrupt that was swallowed is tried again


@contextmanager
def exit_on_sigint() -> Iterator[None]:
    """Ctrl-C ends what is in here, and the process, without a word.

    What was heard counts, not what arrives: libraries turn an interrupt into errors of their own. For the main thread
    of a process that has nothing to do afterwards, and unless it was started deaf (in the background, by nohup).
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    heard: float | None = None

    def hear(number: int, frame: object) -> None:
        nonlocal heard
        now = time.monotonic()
        if heard is None or now - heard > SAME:
            heard = now
            warnings.simplefilter("ignore")  # of work left undone
            raise KeyboardInterrupt

    def swallowed(what: Any) -> None:
        """Python drops what is raised while it collects garbage."""
        nonlocal heard
        if heard is None or not issubclass(what.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(what)
            return
        heard = None
        again = threading.Timer(AGAIN, _thread.interrupt_main)
        again.daemon = True
        again.start()

    signal.signal(signal.SIGINT, hear)
    sys.unraisablehook = swallowed
    try:
        yield
    except BaseException:
        if heard is None:
            raise
        raise SystemExit(INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # from here on Python clears up
        sys.unraisablehook = sys.__unraisablehook__


@contextmanager
def defer_sigint() -> Iterator[Callable[[], None]]:
    """Ctrl-C waits until the end of this, or until a call of the function that this yields. In other threads than the
    main one, which alone is interrupted, nothing needs to wait."""
    before = signal.getsignal(signal.SIGINT)
    if before is None or before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield _nothing
        return
    heard = False

    def hold(number: int, frame: object) -> None:
        nonlocal heard
        heard = True

    def let_through() -> None:
        nonlocal heard
        if not heard:
            return
        heard = False
        try:
            signal.signal(signal.SIGINT, before)
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.signal(signal.SIGINT, hold)

    signal.signal(signal.SIGINT, hold)
    try:
        yield let_through
    finally:
        signal.signal(signal.SIGINT, before)
        if heard:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def mask_sigint() -> Iterator[None]:
    """Processes that are started in here never hear of Ctrl-C, for they inherit what this thread does not listen to."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _nothing() -> None:
    pass
