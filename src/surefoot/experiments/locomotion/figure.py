"""Figure 4 of the paper: reward and cost of what every method deploys, a column per family of robots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from surefoot.experiments.locomotion.settings import ADAPTING, REFERENCE
from surefoot.learning.paper.published import ON_ROBOTS
from surefoot.report.figures import STYLE, is_clear
from surefoot.report.palette import BUDGET_COLOUR, INK, PAPER, SOFT, Stroke, stroke

HIGHEST = 2.2  # of the budget; what lies above is named at the edge
POSSIBLE = INK


def reward_and_cost(families: Mapping[str, Any]) -> Figure:
    """Lines are means over tasks, bands hold 80 % of them where no other line runs through. What has no certificate is
    dashed. A cross marks the worst policy that a method deployed which was unsafe on any task. Methods that never leave
    the safe policy share its line.
    """
    with matplotlib.rc_context(STYLE):
        width = max(3.25 * len(families) + 0.5, 9.0)
        figure = Figure(figsize=(width, 6.8), layout="constrained")
        rows = figure.subplots(2, len(families), sharex=True, squeeze=False, height_ratios=[1.15, 1])
        for column, family in enumerate(families.values()):
            reward, cost = rows[0][column], rows[1][column]
            _draw_reward(reward, family)
            _draw_cost(cost, family)
            reward.set_title(family["title"].replace(", ", "\n"), fontsize=10.5, fontweight="bold")
            cost.set_xlabel("episode")
            cost.set_xscale("log")
            cost.set_xlim(1, max(own["curve"]["episode"][-1] for own in family["methods"].values()) + 1)
            cost.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        rows[0][0].set_ylabel("expected reward of an episode")
        rows[1][0].set_ylabel("expected cost of an episode")
        figure.align_ylabels()
        _legend(figure, families)
    return figure


def look(name: str, certified: bool) -> dict[str, Any]:
    """Colour and stroke of a method, the same in every figure."""
    drawn = _stroke(name)
    return {
        "color": drawn.colour,
        "marker": drawn.marker,
        "markersize": 4,
        "linestyle": "-" if certified else (0, drawn.dash),
        "linewidth": 4.0 if name == REFERENCE else 2.4 if name == ADAPTING else 1.6,
        "label": name if certified else f"{name} (uncertified)",
    }


def _stroke(name: str) -> Stroke:
    """The method of the paper's figure looks the same with the constants for robots."""
    return stroke("published" if name == ON_ROBOTS.name else name)


def _moving(family: Mapping[str, Any]) -> dict[str, Any]:
    """The methods that have a line of their own, the reference first: it lies below the rest."""
    methods = family["methods"]
    safe = methods.get(REFERENCE)
    own = {name: found for name, found in methods.items() if safe is None or found["curve"] != safe["curve"]}
    ordered = sorted(own.items(), key=lambda item: item[0] == ADAPTING)
    return {**({} if safe is None else {REFERENCE: safe}), **dict(ordered)}


def _draw_reward(axes: Axes, family: Mapping[str, Any]) -> None:
    possible = np.mean(family["reward_safe"]) + np.mean(family["possible_gain"])
    axes.axhline(possible, color=POSSIBLE, linestyle=":", linewidth=1.2, zorder=1.5)
    _draw_lines(axes, family, "reward")


def _draw_cost(axes: Axes, family: Mapping[str, Any]) -> None:
    budget, top = family["budget"], HIGHEST * family["budget"]
    _draw_lines(axes, family, "cost")
    reached = max(budget, axes.dataLim.y1)
    high = min(top, budget + 1.08 * (reached - budget) + 0.06 * budget)
    low = min(axes.dataLim.y0, 0.9 * budget)
    axes.set_ylim(low - 0.04 * (high - low), high)
    axes.axhspan(budget, high, color=BUDGET_COLOUR, alpha=0.05, linewidth=0, zorder=0)
    axes.axhline(budget, color=BUDGET_COLOUR, linestyle=(0, (5, 3)), linewidth=1.2, zorder=1.5)
    for name, own in family["methods"].items():
        if own["unsafe_tasks"]:
            _mark_worst(axes, name, own, high)


def _draw_lines(axes: Axes, family: Mapping[str, Any], what: str) -> None:
    moving = _moving(family)
    for order, (name, own) in enumerate(moving.items(), start=2):
        curve, drawn = own["curve"], look(name, own["certified"])
        low, mean, high = (curve[f"{what}_{part}"] for part in ("low", "mean", "high"))
        if is_clear(name, moving, what):
            axes.fill_between(curve["episode"], low, high, step="post", color=drawn["color"], alpha=0.1, linewidth=0)
        every = max(1, len(mean) // 6)
        places = (3 * order % every, every)  # so that markers do not lie on each other
        axes.plot(curve["episode"], mean, drawstyle="steps-post", zorder=order, markevery=places, **drawn)


def _mark_worst(axes: Axes, name: str, own: Mapping[str, Any], high: float) -> None:
    cost, episode = own["worst_cost"], own["worst_episode"]
    colour = _stroke(name).colour
    axes.plot(
        [episode],
        [min(cost, high)],
        linestyle="none",
        marker="X",
        markersize=8,
        color=colour,
        markeredgecolor=PAPER,
        zorder=100,
        clip_on=False,
    )
    if cost > high:
        side = "left" if episode < own["curve"]["episode"][-1] ** 0.5 else "right"  # of the words, towards the middle
        axes.annotate(
            f"{cost:.3g}",
            (episode, high),
            xytext=(6 if side == "left" else -6, -4),
            textcoords="offset points",
            ha=side,
            va="top",
            fontsize=8,
            color=colour,
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.0, "alpha": 0.85},
            zorder=101,
        )


def _legend(figure: Figure, families: Mapping[str, Any]) -> None:
    """One list for all panels, certified methods first."""
    methods = {name: own["certified"] for family in families.values() for name, own in family["methods"].items()}
    moving = {name for family in families.values() for name in _moving(family)}
    ordered = sorted((item for item in methods.items() if item[0] in moving), key=lambda item: not item[1])
    handles = [Line2D([], [], **look(name, certified)) for name, certified in ordered]
    for handle, (name, _) in zip(handles, ordered, strict=True):
        handle.set_label(f"{handle.get_label()}{_where(name, families)}")
    staying = [name for name in methods if name not in moving]
    if staying:
        handles[0].set_label(f"{REFERENCE}; {', '.join(staying)} never left it")
    handles += [
        Line2D([], [], color=POSSIBLE, linestyle=":", linewidth=1.2, label="best of the set"),
        Line2D([], [], color=BUDGET_COLOUR, linestyle=(0, (5, 3)), linewidth=1.2, label="budget"),
    ]
    if any(own["unsafe_tasks"] for family in families.values() for own in family["methods"].values()):
        worst = Line2D([], [], color=SOFT, marker="X", markersize=7, linestyle="none", label="worst unsafe policy")
        handles.append(worst)
    for columns in range(4, 0, -1):  # as many as there is room for
        legend = figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=9, handlelength=2.6)
        if legend.get_window_extent().width <= figure.bbox.width or columns == 1:
            figure.set_figheight(6.2 + 0.2 * -(-len(handles) // columns))
            break
        legend.remove()


def _where(name: str, families: Mapping[str, Any]) -> str:
    """On how many tasks of a family a method was run, if not on all of them: its mean is of other tasks."""
    run = [
        (own["methods"][name]["tasks"], len(own["parameters"])) for own in families.values() if name in own["methods"]
    ]
    return f", {run[0][0]} of {run[0][1]} tasks" if run[0][0] < run[0][1] else ""
