"""Numbers in words; whoever only reads a journal needs these and no arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNKNOWN = "unknown"


def kind_of_cost(discount: float, horizon: int | None) -> str:
    """What a budget is on: stands beside every printed one."""
    over = "" if horizon is None else f" over {horizon} step{'s' if horizon > 1 else ''}"
    return f"expected cost{over}" if discount == 1 else f"expected discounted cost{over} (discount {discount:g})"


def number(value: float | None) -> str:
    """Three to four telling digits, thousands set apart, a true minus sign; below 1e-9 is rounding, shown as 0."""
    if value is None:
        return UNKNOWN
    size = abs(value)
    if size < 1e-9:
        return "0"
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    text = f"{value:.1e}" if size < 1e-3 else f"{value:,.{digits}f}"
    return text.replace("-", "−")


def setting_in_words(setting: Any) -> str:
    """A nominal level, or options by name."""
    options = setting if isinstance(setting, Mapping) else {"level": setting}
    return ", ".join(f"{name} {value:g}" for name, value in sorted(options.items()))
