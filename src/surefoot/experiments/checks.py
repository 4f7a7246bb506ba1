"""What the settings of every experiment are held to."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from surefoot.arrays import fraction, whole
from surefoot.errors import InvalidInput


def check_counts(settings: Any, *names: str) -> None:
    """Each of these fields is a positive number, or None where that stands for a default."""
    for name in names:
        value = getattr(settings, name)
        if value is not None:
            whole(name, value)


def check_risk(risk: float, name: str = "risk") -> None:
    fraction(name, risk)


def check_seed(seed: int) -> None:
    if seed < 0:
        raise InvalidInput(f"seed must not be negative, got {seed}")


def check_names(what: str, names: tuple[str, ...], known: Collection[str]) -> None:
    """At least one, all known, none twice."""
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise InvalidInput(f"{what} must be names out of {', '.join(known)}, got {', '.join(unknown) or 'none'}")
    if len(set(names)) < len(names):
        raise InvalidInput(f"{what} must be different names, got {', '.join(names)}")
