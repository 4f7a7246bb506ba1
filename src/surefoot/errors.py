"""The few exceptions a user can meet. Every message names the argument, the value and what would be right."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a command that reads a journal needs no arrays
    import numpy as np


class SurefootError(Exception):
    """Base of every error raised on purpose by this library."""


class InvalidInput(SurefootError, ValueError):
    """An argument is wrong; the message says which, what was received and what would be right.

    Attributes:
        argument: the name of the wrong argument, where a caller needs to know it without reading the message.
    """

    def __init__(self, message: str, *, argument: str | None = None) -> None:
        super().__init__(message)
        self.argument = argument


class Infeasible(SurefootError):
    """No policy keeps the cost within budget.

    Attributes:
        least_cost: [m] cost of the policy whose worst excess over the budget is smallest; with one constraint,
            the least cost that any policy can achieve.
    """

    def __init__(self, message: str, least_cost: np.ndarray) -> None:
        super().__init__(message)
        self.least_cost = least_cost


class ArtifactError(SurefootError):
    """A file on disk is missing, damaged, tampered with, or from a version this library does not read."""


def did_you_mean(word: Any, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the known one that it looks most like, if it looks like any."""
    close = get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
