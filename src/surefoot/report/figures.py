"""Figures that every experiment shares. Nothing here touches pyplot's global state."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from surefoot.errors import InvalidInput
from surefoot.methods import CONTROL_METHODS, METHODS
from surefoot.report.metrics import Summary

# Fixed rather than taken from the reader's matplotlibrc, so that the same numbers give the same picture.
STYLE: Any = {  # not dict[str, Any]: newer releases of matplotlib type the keys as literals
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": "#222222",
    "axes.labelcolor": "#222222",
    "axes.edgecolor": "#888888",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.8,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}

# Okabe and Ito's palette without black and yellow, then wine and indigo of Tol's: told apart by colour-blind readers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#882255", "#332288")
MARKERS = ("", "o", "s", "^")

REFERENCE = "safe-only"
BUDGET_COLOUR = "#b3261e"
LIMIT: Any = {"color": "#111111", "linestyle": (0, (1, 1.2)), "linewidth": 2.2, "label": "limit of any method"}
FEW = 6  # methods that still leave room for bands in full and a legend below


@dataclass(frozen=True)
class Stroke:
    """How a method is drawn: the same in every figure, whichever other methods appear beside it."""

    colour: str
    marker: str


def stroke(method: str) -> Stroke:
    """Grey for safe-only, else by the place in the method's row; without one it depends on the name alone. After one
    round of colours, markers."""
    if method == REFERENCE:
        return Stroke("#b4b4b4", "")
    spec = METHODS.get(method) or CONTROL_METHODS.get(method)
    place = zlib.crc32(method.encode()) if spec is None or spec.colour is None else spec.colour
    return Stroke(COLOURS[place % len(COLOURS)], MARKERS[place // len(COLOURS) % len(MARKERS)])


def learning_curves(
    methods: Mapping[str, Summary],
    *,
    budgets: Sequence[float],
    title: str = "",
    limit: Mapping[str, Any] | None = None,
) -> Figure:
    """Figure 2 of the paper: reward regret and constraint value of every method against the episodes.

    Lines are means over the tasks, bands their 10 % to 90 % quantiles, with the intervals of values that are estimated.
    A cross marks the worst policy deployed by a method that certainly exceeded the budget anywhere, which a mean and a
    band can hide. Where nobody knows the regret of any method, the upper panel shows the reward.

    Args:
        methods: summaries by method name.
        budgets: of the constraints. With one, the lower panel shows its cost, budget - margin; with several, by how
            much a cost exceeds its budget, the largest of them.
        limit: a third panel shows regret on logarithmic axes, and what nobody stays below who keeps the promise: its
            `mean` after each number of episodes in `episode`.
    """
    if not methods:
        raise InvalidInput("methods must hold at least one summary, got none")
    budget = budgets[0] if len(budgets) == 1 else 0.0
    with matplotlib.rc_context(STYLE):
        width, height = (8.0, 6.2) if len(methods) <= FEW else (11.0, 7.0)
        panels = 2 if limit is None else 3
        figure = Figure(figsize=(width, height * panels / 2), layout="constrained")
        earned, cost, *closer = figure.subplots(panels, 1, height_ratios=[1.15, 1, 1.15][:panels])
        earned.sharex(cost)
        earned.tick_params(labelbottom=False)
        band = 0.14 if len(methods) <= FEW else 0.08
        for order, (name, summary) in enumerate(_back_to_front(methods), start=2):
            _draw_earned(earned, name, summary, "regret" if regret_known(methods) else "reward", band, order)
            _draw_cost(cost, name, summary, budget, band, order)
        _mark_budget(cost, budget)
        estimated = ", estimated" if any(summary.get("estimated") for summary in methods.values()) else ""
        if regret_known(methods):
            earned.set_ylim(bottom=min(0.0, earned.dataLim.y0))
            earned.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        earned.set_ylabel(("reward regret" if regret_known(methods) else "expected discounted reward") + estimated)
        cost.set_ylabel(("expected discounted cost" if len(budgets) == 1 else "largest cost − budget") + estimated)
        cost.set_xlabel("episode")
        cost.set_xlim(0, max(summary["curve"]["episode"][-1] for summary in methods.values()))
        cost.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        if limit is not None:
            _draw_closer(closer[0], methods, limit)
        figure.align_ylabels()
        if title:
            figure.suptitle(title, fontsize=11, fontweight="bold")
        _legend(figure, methods, band, limited=limit is not None)
    return figure


def panels_in_words(methods: Mapping[str, Summary], budgets: Sequence[float]) -> str:
    """What the two panels of `learning_curves` show."""
    earned = "cumulative regret" if regret_known(methods) else "expected discounted reward of the deployed policy"
    if len(budgets) == 1:
        cost = f"expected discounted cost of the deployed policy, with the budget {budgets[0]:g}"
    else:
        limits = ", ".join(f"{budget:g}" for budget in budgets)
        cost = f"by how much the deployed policy's costs exceed their budgets {limits}, the largest; below 0 is safe"
    estimated = any(summary.get("estimated") for summary in methods.values())
    return f"Top: {earned}. Bottom: {cost}." + (" Bands hold the intervals of what is estimated." if estimated else "")


def regret_known(methods: Mapping[str, Summary]) -> bool:
    """Of any method on any task."""
    return any(summary["regret_mean"] is not None for summary in methods.values())


def png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as a PNG file; no date and no software name in it, so equal figures give equal bytes."""
    buffer = BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def svg(figure: Figure) -> bytes:
    """The figure as an SVG file; equal figures give equal bytes."""
    buffer = BytesIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": "surefoot"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _back_to_front(methods: Mapping[str, Summary]) -> list[tuple[str, Summary]]:
    """The reference lies below the rest: a method that never leaves the safe policy coincides with it."""
    return sorted(methods.items(), key=lambda item: item[0] != REFERENCE)


def _draw_earned(axes: Axes, name: str, summary: Summary, what: str, band: float, order: int) -> None:
    """`what` is regret or reward; a method of which it is not known is left out."""
    curve: Mapping[str, Any] = summary["curve"]
    if curve.get(f"{what}_mean", [None])[0] is None:
        return
    low, mean, high = (curve[f"{what}_{part}"] for part in ("low", "mean", "high"))
    axes.fill_between(curve["episode"], low, high, color=stroke(name).colour, alpha=band, linewidth=0)
    axes.plot(curve["episode"], mean, **_line(name, summary), zorder=order)


def _draw_closer(axes: Axes, methods: Mapping[str, Summary], limit: Mapping[str, Any]) -> None:
    """Regret on logarithmic axes, above what nobody stays below who keeps the promise."""
    for name, summary in _back_to_front(methods):
        curve: Mapping[str, Any] = summary["curve"]
        if curve["regret_mean"][0] is not None:
            axes.plot(curve["episode"], curve["regret_mean"], **{**_line(name, summary), "marker": ""})
    if any(limit["mean"]):
        axes.plot(limit["episode"], limit["mean"], **LIMIT)
        axes.fill_between(limit["episode"], limit["mean"], color=LIMIT["color"], alpha=0.06, linewidth=0)
    axes.set(xscale="log", yscale="log", xlabel="episode, logarithmic", ylabel="reward regret")
    axes.margins(x=0)


def _draw_cost(axes: Axes, name: str, summary: Summary, budget: float, band: float, order: int) -> None:
    curve = summary["curve"]
    colour = stroke(name).colour
    low, mean, high, worst = (
        budget - np.asarray(values)
        for values in (curve["margin_high"], curve["margin_mean"], curve["margin_low"], curve["margin_min"])
    )
    axes.fill_between(curve["episode"], low, high, color=colour, alpha=band, linewidth=0)
    axes.plot(curve["episode"], mean, **_line(name, summary), zorder=order)
    if summary["unsafe_tasks"]:
        at = int(np.argmax(worst))
        axes.plot(
            [curve["episode"][at]],
            [worst[at]],
            linestyle="none",
            marker="X",
            markersize=8,
            color=colour,
            markeredgecolor="white",
            label=f"worst of {name}",
            zorder=order + 100,
            clip_on=False,
        )


def _mark_budget(axes: Axes, budget: float) -> None:
    """The budget as a dashed line, everything above it tinted."""
    low, high = axes.get_ylim()
    span = max(high, budget) - min(low, budget)
    low, high = min(low, budget - 0.05 * span), max(high, budget + 0.1 * span)
    axes.axhspan(budget, high, color=BUDGET_COLOUR, alpha=0.05, linewidth=0, zorder=0)
    axes.axhline(budget, color=BUDGET_COLOUR, linestyle=(0, (5, 3)), linewidth=1.2, zorder=1.5, label="budget")
    axes.set_ylim(low, high)


def _line(name: str, summary: Summary) -> dict[str, Any]:
    look = stroke(name)
    length = len(summary["curve"]["episode"])
    return {
        "color": look.colour,
        "linestyle": "solid" if summary["certified"] else (0, (5, 2)),
        "linewidth": 4.0 if name == REFERENCE else 1.8,
        "marker": look.marker,
        "markersize": 4,
        "markevery": max(1, length // 8),
        "label": _label(name, summary),
    }


def _label(name: str, summary: Summary) -> str:
    return name if summary["certified"] else f"{name} (uncertified)"


def _legend(figure: Figure, methods: Mapping[str, Summary], band: float, limited: bool) -> None:
    """One list for both panels, in the order in which the regret curves end, top to bottom; below if it is short."""
    ranked = sorted(methods.items(), key=lambda item: -(item[1]["regret_mean"] or 0.0))
    handles: list[Any] = []
    labels: list[str] = []
    for name, summary in ranked:
        line = Line2D([], [], **{**_line(name, summary), "markevery": None})
        handles.append((Patch(color=stroke(name).colour, alpha=band, linewidth=0), line))
        labels.append(_label(name, summary))
    handles.append(Line2D([], [], color=BUDGET_COLOUR, linestyle=(0, (5, 3)), linewidth=1.2))
    labels.append("budget")
    if limited:
        handles.append(Line2D([], [], **LIMIT))
        labels.append(LIMIT["label"])
    if any(summary["unsafe_tasks"] for summary in methods.values()):
        handles.append(Line2D([], [], color="#444444", marker="X", markersize=7, linestyle="none"))
        labels.append("worst policy deployed")
    short = len(methods) <= FEW
    figure.legend(
        handles,
        labels,
        loc="outside lower center" if short else "outside right upper",
        ncols=3 if short else 1,
        fontsize=9,
        handlelength=2.4,
        handler_map={tuple: HandlerTuple(ndivide=1, pad=0)},
    )
