"""The two ways in which a check ends."""

from __future__ import annotations

from collections.abc import Callable

from surefoot.errors import SurefootError

# A correct implementation fails a check with chance in it with at most this probability, whatever the seed.
FALSE_ALARM = 1e-6


def require(holds: object, message: str) -> None:
    """`assert`, also where Python runs without assertions."""
    if not holds:
        raise AssertionError(message)


def require_refusal(action: Callable[[], object], what: str) -> None:
    """The action must raise one of Surefoot's own errors."""
    try:
        action()
    except SurefootError:
        return
    raise AssertionError(f"{what} must be refused with a SurefootError")
