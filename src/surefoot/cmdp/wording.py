"""Numbers in words; whoever only reads a journal needs these and no arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNKNOWN = "unknown"
DOUBTFUL = 0.05  # the largest p-value of which it is said that nothing fits


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
    return ", ".join(f"{name} {_option(value)}" for name, value in sorted(options.items()))


def _option(value: Any) -> str:
    """A method of one's own may have options that are no numbers."""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def calibration_in_words(calibration: Mapping[str, Any]) -> str:
    """Its setting, episodes, and what they rest on; files of earlier versions say less."""
    said = {name: calibration.get(name) for name in ("attempt", "seed", "tasks")}
    attempt = "attempt not recorded" if said["attempt"] is None else f"attempt {said['attempt']}"
    if said["attempt"] == 0:
        attempt = "the only attempt"
    return (
        f"{setting_in_words(calibration['level'])} for {calibration['episodes']:,} episodes, from "
        f"{calibration['runs']:,} simulated tasks ({said['tasks'] or 'which, is not recorded'})"
        f"{_basis_of_counts(calibration)}, {attempt}, "
        f"{'seed not recorded' if said['seed'] is None else 'seed {}'.format(said['seed'])}"
    )


def _basis_of_counts(calibration: Mapping[str, Any]) -> str:
    """What the counts rest on besides, where there is anything."""
    judged, abandoned, reserve = (calibration.get(name) for name in ("judged_on", "abandoned", "reserve"))
    return (
        (f", judged on up to {judged:,} fresh episodes of each policy" if judged else "")
        + (f", {100 * abandoned:g} % of the episodes abandoned" if abandoned else "")
        + (f", {reserve:g} of the risk kept for the method as it is proved" if reserve else "")
    )


def fit_in_words(p_value: float) -> str:
    """What logged episodes do, by the p-value of `surefoot.learning.fit`."""
    if p_value > DOUBTFUL:
        return f"fit a task that was trained for (p = {p_value:.2g})"
    return f"fit no task that was trained for (p = {p_value:.2g}): the simulator is not this system"
