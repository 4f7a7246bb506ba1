"""Numbers in words; whoever only reads a journal needs these and no arrays."""

from __future__ import annotations


def kind_of_cost(discount: float, horizon: int | None) -> str:
    """What a budget is on: stands beside every printed one."""
    over = "" if horizon is None else f" over {horizon} step{'s' if horizon > 1 else ''}"
    return f"expected cost{over}" if discount == 1 else f"expected discounted cost{over} (discount {discount:g})"
