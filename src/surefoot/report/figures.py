"""Figures that every experiment shares. Nothing here touches pyplot's global state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation

from surefoot.errors import InvalidInput
from surefoot.report.metrics import Summary, sort_by_regret
from surefoot.report.palette import BUDGET_COLOUR, FAINT, GREY, INK, PAPER, REFERENCE, SOFT, stroke

# Fixed rather than taken from the reader's matplotlibrc, so that the same numbers give the same picture.
STYLE: Any = {  # not dict[str, Any]: newer releases of matplotlib type the keys as literals
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "legend.frameon": False,
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "savefig.facecolor": PAPER,
    "figure.autolayout": False,
    "figure.constrained_layout.use": False,
    "svg.fonttype": "none",  # texts stay texts: found by searching, read out by screen readers
}

LIMIT: Any = {"color": INK, "linestyle": (0, (1, 1.2)), "linewidth": 2.2, "label": "limit of any method"}
BAND = 0.14
FEW = 6  # methods that still have room for their names in a low panel
CLOSE_UP = 400  # times as many episodes at the end of the logarithmic panel as at its beginning
LEADER = 16.0  # points from the end of a line to its name
SIZE = 8.5


def learning_curves(
    methods: Mapping[str, Summary],
    *,
    budgets: Sequence[float],
    title: str = "",
    closer: bool = False,
    limit: Mapping[str, Any] | None = None,
) -> Figure:
    """Figure 2 of the paper: reward regret and constraint value of every method against the episodes.

    Lines are means over the tasks, with their names at the ends; bands are the 10 % to 90 % quantiles, with the
    intervals of values that are estimated, and are drawn where no other line runs through them. A cross marks the worst
    policy deployed by a method that certainly exceeded the budget anywhere, which a mean and a band can hide. Where
    nobody knows the regret of any method, the upper panel shows the reward.

    Args:
        methods: summaries by method name.
        budgets: of the constraints. With one, the lower panel shows its cost, budget - margin; with several, by how
            much a cost exceeds its budget, the largest of them.
        closer: a third panel shows regret on logarithmic axes, where small ones can be told apart.
        limit: what nobody stays below who keeps the promise, for that panel: its `mean` after each number of episodes
            in `episode`.
    """
    if not methods:
        raise InvalidInput("methods must hold at least one summary, got none")
    budget = budgets[0] if len(budgets) == 1 else 0.0
    shown = sort_by_regret(methods)
    with matplotlib.rc_context(STYLE):
        figure, (earned, cost, *third) = _panels(len(methods), closer or limit is not None)
        labels = [
            *end_labels(earned, _draw_earned(earned, shown)),
            *end_labels(cost, {**_draw_cost(cost, shown, budget), **_mark_budget(cost, budgets)}),
            *(label for axes in third for label in end_labels(axes, _draw_closer(axes, shown, limit))),
        ]
        estimated = ", estimated" if any(summary.get("estimated") for summary in methods.values()) else ""
        earned.set_ylabel(("reward regret" if regret_known(methods) else "expected discounted reward") + estimated)
        cost.set_ylabel(("expected discounted cost" if len(budgets) == 1 else "largest cost − budget") + estimated)
        cost.set_xlabel("episode")
        cost.set_xlim(0, max(summary["curve"]["episode"][-1] for summary in methods.values()))
        cost.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        _finish(figure, labels, methods, title)
    return figure


def panels_in_words(methods: Mapping[str, Summary], budgets: Sequence[float], closer: bool = False) -> str:
    """What the panels of `learning_curves` show."""
    earned = "cumulative regret" if regret_known(methods) else "expected discounted reward of the deployed policy"
    if len(budgets) == 1:
        cost = f"expected discounted cost of the deployed policy, with the budget {budgets[0]:g}"
    else:
        limits = ", ".join(f"{budget:g}" for budget in budgets)
        cost = f"by how much the deployed policy's costs exceed their budgets {limits}, the largest; below 0 is safe"
    estimated = any(summary.get("estimated") for summary in methods.values())
    unsafe = any(summary["unsafe_tasks"] for summary in methods.values())
    return (
        f"Top: {earned}. {'Middle' if closer else 'Bottom'}: {cost}."
        + (" Bottom: the same regret on logarithmic axes." if closer else "")
        + (" Bands hold the intervals of what is estimated." if estimated else "")
        + (" A cross marks the worst policy deployed by a method that exceeded a budget." if unsafe else "")
    )


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
    """The figure as an SVG file; equal figures give equal bytes. On a page it takes the page's colours."""
    buffer = BytesIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": "surefoot"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _panels(methods: int, closer: bool) -> tuple[Figure, list[Axes]]:
    """Regret, cost and, where it is wanted, regret once more; the first two share their episodes."""
    heights = [3.2, 2.9, 3.6][: 2 + closer] if methods <= FEW else [4.0, 3.6, 4.6][: 2 + closer]
    figure = Figure(figsize=(9.6 if methods <= FEW else 11.0, sum(heights)), layout="constrained")
    panels = list(figure.subplots(len(heights), 1, height_ratios=heights))
    panels[0].sharex(panels[1])
    panels[0].tick_params(labelbottom=False)
    return figure, panels


def _draw_earned(axes: Axes, shown: Mapping[str, Summary]) -> dict[str, Line2D]:
    """Regret or, where nobody knows it, reward; a method of which that is not known is left out."""
    what = "regret" if regret_known(shown) else "reward"
    known = {name: each for name, each in shown.items() if _curve(each).get(f"{what}_mean", [None])[0] is not None}
    lines: dict[str, Line2D] = {}
    for name, summary in _back_to_front(known):
        if is_clear(name, known, what):
            low, high = (_curve(summary)[f"{what}_{part}"] for part in ("low", "high"))
            axes.fill_between(_curve(summary)["episode"], low, high, color=stroke(name).colour, alpha=BAND, linewidth=0)
        (lines[_label(name, summary)],) = axes.plot(
            _curve(summary)["episode"], _curve(summary)[f"{what}_mean"], **_line(name, summary)
        )
    if what == "regret":
        axes.set_ylim(bottom=min(0.0, axes.dataLim.y0))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    return {_label(name, summary): lines[_label(name, summary)] for name, summary in known.items()}


def _draw_cost(axes: Axes, shown: Mapping[str, Summary], budget: float) -> dict[str, Line2D]:
    lines: dict[str, Line2D] = {}
    for order, (name, summary) in enumerate(_back_to_front(shown), start=2):
        curve, colour = _curve(summary), stroke(name).colour
        low, mean, high, worst = (
            budget - np.asarray(curve[f"margin_{part}"], dtype=float) for part in ("high", "mean", "low", "min")
        )
        if is_clear(name, shown, "margin"):
            axes.fill_between(curve["episode"], low, high, color=colour, alpha=BAND, linewidth=0)
        (lines[_label(name, summary)],) = axes.plot(curve["episode"], mean, **_line(name, summary), zorder=order)
        if summary["unsafe_tasks"]:
            at = int(np.argmax(worst))
            mark: Any = {"marker": "X", "markersize": 8, "color": colour, "markeredgecolor": PAPER, "clip_on": False}
            where = ([curve["episode"][at]], [worst[at]])
            axes.plot(*where, linestyle="none", label=f"worst of {name}", zorder=order + 100, **mark)
    return {_label(name, summary): lines[_label(name, summary)] for name, summary in shown.items()}


def _mark_budget(axes: Axes, budgets: Sequence[float]) -> dict[str, Line2D]:
    """The budget as a dashed line, everything above it tinted."""
    budget = budgets[0] if len(budgets) == 1 else 0.0
    low, high = axes.get_ylim()
    span = max(high, budget) - min(low, budget)
    low, high = min(low, budget - 0.05 * span), max(high, budget + 0.1 * span)
    axes.axhspan(budget, high, color=BUDGET_COLOUR, alpha=0.06, linewidth=0, zorder=0)
    line = axes.axhline(budget, color=BUDGET_COLOUR, linestyle=(0, (5, 3)), linewidth=1.2, zorder=1.5, label="budget")
    axes.set_ylim(low, high)
    return {f"budget {budget:g}" if len(budgets) == 1 else "all budgets": line}


def _draw_closer(axes: Axes, shown: Mapping[str, Summary], limit: Mapping[str, Any] | None) -> dict[str, Line2D]:
    """Regret on logarithmic axes, above what nobody stays below who keeps the promise."""
    last = max(_curve(summary)["episode"][-1] for summary in shown.values())
    first = max(1, last // CLOSE_UP)
    lines: dict[str, Line2D] = {}
    seen: list[float] = []
    for name, summary in shown.items():
        mean = np.array(_curve(summary)["regret_mean"], dtype=float)  # NaN where nobody knows it
        episode = np.array(_curve(summary)["episode"])
        drawn = (mean > 0) & (episode >= first)
        if drawn.any():
            (lines[_label(name, summary)],) = axes.plot(episode[drawn], mean[drawn], **_line(name, summary))
            seen += mean[drawn].tolist()
    if limit is not None and any(limit["mean"]):
        (lines[LIMIT["label"]],) = axes.plot(limit["episode"], limit["mean"], **LIMIT)
        axes.fill_between(limit["episode"], limit["mean"], color=INK, alpha=0.06, linewidth=0)
        seen += [mean for mean, episode in zip(limit["mean"], limit["episode"], strict=True) if episode >= first]
    axes.set(xscale="log", yscale="log", xlabel="episode, logarithmic", ylabel="reward regret, logarithmic")
    axes.set_xlim(first, max(last, first + 1))
    if seen and min(seen) > 0:
        axes.set_ylim(min(seen) / 1.3, max(seen) * 1.3)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,g}" if value < 1 else f"{value:,.0f}")
        axis.set_minor_formatter(lambda value, _: "")
    return lines


def _finish(figure: Figure, labels: Sequence[EndLabel], methods: Mapping[str, Summary], title: str) -> None:
    figure.align_ylabels()
    if title:
        figure.suptitle(title, fontsize=11, fontweight="bold")
    if any(summary["unsafe_tasks"] for summary in methods.values()):
        cross = Line2D([], [], color=SOFT, marker="X", markersize=7, linestyle="none", label="worst policy deployed")
        figure.legend(handles=[cross], loc="outside lower center", fontsize=9)
    place(figure, labels)


def _back_to_front(methods: Mapping[str, Summary]) -> list[tuple[str, Summary]]:
    """The reference lies below the rest: a method that never leaves the safe policy coincides with it."""
    return sorted(methods.items(), key=lambda item: item[0] != REFERENCE)


def is_clear(name: str, methods: Mapping[str, Any], what: str) -> bool:
    """Whether a method's band can be read: most of the way no other method's line runs through it. Of methods that
    coincide, as those that never leave the safe policy do, one has a band."""
    own = _curve(methods[name])
    low, mean, high = (np.asarray(own[f"{what}_{part}"], dtype=float) for part in ("low", "mean", "high"))
    crossed, before = np.zeros(len(mean), dtype=bool), True
    for other, summary in _back_to_front(methods):
        curve = _curve(summary)
        line = np.interp(own["episode"], curve["episode"], np.asarray(curve[f"{what}_mean"], dtype=float))
        if other == name:
            before = False
        elif not np.allclose(line, mean):
            crossed |= (low < line) & (line < high)
        elif before:
            return False
    return bool(crossed.mean() < 0.5)


def _curve(summary: Summary) -> Mapping[str, Any]:
    curve: Mapping[str, Any] = summary["curve"]
    return curve


def _line(name: str, summary: Summary) -> dict[str, Any]:
    look = stroke(name)
    return {
        "color": look.colour,
        "linestyle": "solid" if summary["certified"] else (0, look.dash),
        "linewidth": 4.0 if name == REFERENCE else 1.8,
        "marker": look.marker,
        "markersize": 4,
        "markevery": 0.12,  # of the way along the line
        "label": _label(name, summary),
    }


def _label(name: str, summary: Summary) -> str:
    return name if summary["certified"] else f"{name} (uncertified)"


# ------------------------------------------------------------------------------------------- names at the ends of lines
# In place of a legend: none lies upon another.


@dataclass(frozen=True, eq=False)
class EndLabel:
    """A name beside the end of a line, not yet moved away from others."""

    axes: Axes
    end: float
    text: Annotation
    leader: Line2D


def end_labels(axes: Axes, lines: Mapping[str, Line2D]) -> list[EndLabel]:
    """Names to the right of the panel, each behind a piece of its own line."""
    made = []
    for name, line in lines.items():
        text = axes.annotate(
            name,
            (1, 0.5),
            xycoords="axes fraction",
            xytext=(LEADER + 4, 0),
            textcoords="offset points",
            va="center",
            fontsize=SIZE,
            color=INK,
            annotation_clip=False,
        )
        leader = Line2D([], [])
        leader.update_from(line)  # dashes and all
        leader.set(marker="", linewidth=min(line.get_linewidth(), 2.4), clip_on=False, label="_leader")
        made.append(EndLabel(axes, float(np.asarray(line.get_ydata())[-1]), text, leader))
    return made


def place(figure: Figure, labels: Sequence[EndLabel]) -> None:
    """Lay the figure out, once and for all, and move names of one panel apart that would lie upon each other."""
    freeze_layout(figure)
    points = figure.dpi / 72
    for axes in dict.fromkeys(label.axes for label in labels):
        own = [label for label in labels if label.axes is axes]
        box, x, (low, high) = axes.get_window_extent(), axes.get_xlim()[0], axes.get_ylim()
        ends = [float(axes.transData.transform((x, min(max(label.end, low), high)))[1]) for label in own]
        apart = spread(ends, gap=1.25 * SIZE * points, low=box.y0, high=box.y1)
        for label, end, y in zip(own, ends, apart, strict=True):
            _draw(label, (end - box.y0) / box.height, (y - box.y0) / box.height, LEADER * points / box.width)


def freeze_layout(figure: Figure) -> None:
    """Lay the figure out now and never again: a file of a figure with a layout engine takes three times as long."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)


def spread(places: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """The places closest to these (least squares) that keep their order, lie `gap` apart and within [low, high].

    Of equal ones the first is the highest. Pooled as in isotonic regression: names that touch move as one block.
    """
    order = sorted(range(len(places)), key=lambda k: (places[k], -k))
    blocks: list[tuple[float, int]] = []  # mean of the places less the gaps below, and how many
    for rank, k in enumerate(order):
        mean, size = places[k] - rank * gap, 1
        while blocks and blocks[-1][0] > mean:
            other, count = blocks.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        blocks.append((mean, size))
    base = [mean for mean, size in blocks for _ in range(size)]
    room = high - (len(places) - 1) * gap
    found = [0.0] * len(places)
    for rank, k in enumerate(order):
        found[k] = max(low, min(base[rank], room)) + rank * gap
    return found


def _draw(label: EndLabel, end: float, y: float, width: float) -> None:
    """From the end of the line straight to its name."""
    label.text.xy = (1, y)
    label.leader.set_data([1, 1 + width * 0.45, 1 + width], [end, y, y])
    label.leader.set_transform(label.axes.transAxes)
    label.axes.add_artist(label.leader)
