"""Figure 4 of the paper: reward gained and cost of what every method deploys, a column per family of robots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from surefoot.lab.experiments.locomotion.settings import ADAPTING, FIXED, REFERENCE
from surefoot.learning.paper.published import ON_ROBOTS
from surefoot.report.figures import STYLE, is_clear
from surefoot.report.palette import BUDGET_COLOUR, INK, PAPER, SOFT, Stroke, stroke

HIGHEST = 2.2  # of the budget; what lies above is named at the edge
LOWEST = -1.0  # of what can be gained; what lies below is named at the edge
CROWDED = 4.0  # words at the edge begin lower if they belong to less than this times an earlier episode
POSSIBLE = INK


def gain_and_cost(families: Mapping[str, Any]) -> Figure:
    """Gain is reward beyond the safe policy's on the same tasks: methods may be run on different ones. Lines are means
    over tasks and end where a method stops learning; bands hold 80 % of the tasks where no other line runs through.
    What has no certificate is dashed. A cross marks the worst policy that a method deployed which was unsafe on any
    task. Methods that never leave the safe policy share its line.
    """
    with matplotlib.rc_context(STYLE):
        width = max(3.25 * len(families) + 0.5, 9.0)
        figure = Figure(figsize=(width, 6.8), layout="constrained")
        rows = figure.subplots(2, len(families), sharex=True, squeeze=False, height_ratios=[1.15, 1])
        for column, family in enumerate(families.values()):
            gain, cost = rows[0][column], rows[1][column]
            _draw_gain(gain, family)
            _draw_cost(cost, family)
            gain.set_title(family["title"].replace(", ", "\n"), fontsize=10.5, fontweight="bold")
            cost.set_xlabel("episode")
            cost.set_xscale("log")
            cost.set_xlim(1, max(own["curve"]["episode"][-1] for own in family["methods"].values()) + 1)
            cost.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        rows[0][0].set_ylabel("expected reward of an episode\nbeyond the safe policy’s")
        rows[1][0].set_ylabel("expected cost of an episode")
        figure.align_ylabels()
        _legend(figure, families)
    return figure


def line_style(name: str, certified: bool) -> dict[str, Any]:
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
    return stroke("published" if name == ON_ROBOTS.name else name, FIXED[name].colour if name in FIXED else None)


def _moving(family: Mapping[str, Any]) -> dict[str, Any]:
    """The methods that have a line of their own, the reference first: it lies below the rest."""
    methods = family["methods"]
    safe = methods.get(REFERENCE)
    own = {
        name: {**found, "curve": _curve(name, found, family["reward_safe"])}
        for name, found in methods.items()
        if name == REFERENCE or safe is None or found["curve"] != safe["curve"]
    }
    return dict(sorted(own.items(), key=lambda item: (item[0] != REFERENCE, item[0] == ADAPTING)))


def _curve(name: str, own: Mapping[str, Any], reward_safe: Sequence[float]) -> dict[str, list[float]]:
    """As far as the method learns, with the first episode of what it then keeps; to the end if it never learns.

    Older results have no gain: its mean follows from that of the reward, on the first tasks; its quantiles do not.
    """
    curve = dict(own["curve"])
    if "gain_mean" not in curve:
        curve["gain_mean"] = (np.array(curve["reward_mean"]) - np.mean(reward_safe[: own["tasks"]])).tolist()
        curve |= {f"gain_{part}": curve["gain_mean"] for part in ("low", "high")}
    last = own["learned"] + 1
    if not own["learned"] or last >= curve["episode"][-1]:
        return curve
    drawn = sum(episode < last for episode in curve["episode"])
    ended = {part: [*values[:drawn], values[-1]] for part, values in curve.items()}
    return {**ended, "episode": [*curve["episode"][:drawn], last]}


def _draw_gain(axes: Axes, family: Mapping[str, Any]) -> None:
    possible = float(np.mean(family["possible_gain"]))
    axes.axhline(possible, color=POSSIBLE, linestyle=":", linewidth=1.2, zorder=1.5)
    _draw_lines(axes, family, "gain")
    high = max(axes.dataLim.y1, possible)
    low = max(min(axes.dataLim.y0, 0.0), LOWEST * high)
    axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    below = {name: own for name, own in _moving(family).items() if own["curve"]["gain_mean"][-1] < low}
    for place, (name, own) in enumerate(sorted(below.items(), key=lambda item: item[1]["curve"]["gain_mean"][-1])):
        _mark_below(axes, name, own, low, place)


def _draw_cost(axes: Axes, family: Mapping[str, Any]) -> None:
    budget, top = family["budget"], HIGHEST * family["budget"]
    _draw_lines(axes, family, "cost")
    reached = max(budget, axes.dataLim.y1)
    high = min(top, budget + 1.08 * (reached - budget) + 0.06 * budget)
    low = min(axes.dataLim.y0, 0.9 * budget)
    axes.set_ylim(low - 0.04 * (high - low), high)
    axes.axhspan(budget, high, color=BUDGET_COLOUR, alpha=0.05, linewidth=0, zorder=0)
    axes.axhline(budget, color=BUDGET_COLOUR, linestyle=(0, (5, 3)), linewidth=1.2, zorder=1.5)
    unsafe = {name: own for name, own in family["methods"].items() if own["unsafe_tasks"]}
    labelled: list[int] = []
    for name, own in sorted(unsafe.items(), key=lambda item: item[1]["worst_episode"]):
        episode = own["worst_episode"]
        _mark_worst(axes, name, own, high, sum(episode < CROWDED * other for other in labelled))
        if own["worst_cost"] > high:
            labelled.append(episode)


def _draw_lines(axes: Axes, family: Mapping[str, Any], what: str) -> None:
    moving = _moving(family)
    for order, (name, own) in enumerate(moving.items(), start=2):
        curve, drawn = own["curve"], line_style(name, own["certified"])
        low, mean, high = (curve[f"{what}_{part}"] for part in ("low", "mean", "high"))
        if is_clear(name, moving, what):
            axes.fill_between(curve["episode"], low, high, step="post", color=drawn["color"], alpha=0.1, linewidth=0)
        every = max(1, len(mean) // 6)
        places = (3 * order % every, every)  # so that markers do not lie on each other
        axes.plot(curve["episode"], mean, drawstyle="steps-post", zorder=order, markevery=places, **drawn)
        if name != REFERENCE:
            end: Any = {"marker": "o", "markersize": 5, "color": drawn["color"], "markeredgecolor": PAPER}
            axes.plot(curve["episode"][-1:], mean[-1:], linestyle="none", zorder=order + 50, **end)


def _mark_below(axes: Axes, name: str, own: Mapping[str, Any], low: float, place: int) -> None:
    """A gain that would leave no room for the others, the lowest one first."""
    colour, at = _stroke(name).colour, (own["curve"]["episode"][-1], low)
    text = f"{own['curve']['gain_mean'][-1]:.3g}".replace("-", "−")
    axes.plot(*at, linestyle="none", marker="v", markersize=6, color=colour, zorder=100, clip_on=False)
    _annotate(axes, text, at, (7, 11 * place), color=colour, va="center")


def _mark_worst(axes: Axes, name: str, own: Mapping[str, Any], high: float, place: int) -> None:
    """A cross, at the top with its cost where that would leave no room for the others: below labels that are near."""
    cost, episode, colour = own["worst_cost"], own["worst_episode"], _stroke(name).colour
    cross: Any = {"marker": "X", "markersize": 8, "color": colour, "markeredgecolor": PAPER, "clip_on": False}
    axes.plot(episode, min(cost, high), linestyle="none", zorder=100, **cross)
    if cost > high:
        side = "left" if episode < own["curve"]["episode"][-1] ** 0.5 else "right"  # of the words, towards the middle
        box = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0, "alpha": 0.85}
        away = (6 if side == "left" else -6, -4 - 11 * place)
        _annotate(axes, f"{cost:.3g}", (episode, high), away, color=colour, ha=side, va="top", bbox=box)


def _annotate(axes: Axes, text: str, at: tuple[float, float], away: tuple[float, float], **look: Any) -> None:
    """Words above everything else, so many points away from a place."""
    axes.annotate(text, at, xytext=away, textcoords="offset points", fontsize=8, zorder=101, **look)


def _legend(figure: Figure, families: Mapping[str, Any]) -> None:
    """One list for all panels, certified methods first."""
    methods = {name: own["certified"] for family in families.values() for name, own in family["methods"].items()}
    moving = {name for family in families.values() for name in _moving(family)}
    ordered = sorted((item for item in methods.items() if item[0] in moving), key=lambda item: not item[1])
    handles = [Line2D([], [], **line_style(name, certified)) for name, certified in ordered]
    for handle, (name, _) in zip(handles, ordered, strict=True):
        handle.set_label(f"{handle.get_label()}{_where(name, families)}")
    staying = [name for name in methods if name not in moving]
    if staying:
        handles[0].set_label(f"{handles[0].get_label()}; {', '.join(staying)} never left it")
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
    """On how many tasks of a family its line rests."""
    counts = sorted({own["methods"][name]["tasks"] for own in families.values() if name in own["methods"]})
    told = " to ".join(str(count) for count in dict.fromkeys([counts[0], counts[-1]]))
    return f", {told} {'task' if counts[-1] == 1 else 'tasks'}"
