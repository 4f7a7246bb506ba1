"""The charts of a deployment: every cost against its budget, the reward, the policies ordered, what is possible.

They are SVG, sharp at every size and coloured by the page, so that they suit light and dark. They are drawn by hand
rather than by a plotting library: a page that is looked at while rows are written is drawn every second. The whole page
takes 35 ms of processor time like this; matplotlib took 75 ms for each of its four charts or more, and 0.8 s to import.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup, escape

from surefoot.cmdp.wording import number
from surefoot.confidence import mixture_boundary
from surefoot.deploy.history import LEVEL, History, RunningMean, Stretch
from surefoot.deploy.status import SAFE, Status, policy_name, possible_in_words

if TYPE_CHECKING:
    from surefoot.deploy.verify import Possible

MOST_POLICIES = 6  # that get a row of their own
RECENT = 20  # stretches of the reward's second curve
MOST_ALARMS = 50


Seen = tuple[float, float, float, float]  # episode, mean, low, high


@dataclass(frozen=True)
class Card:
    """A chart with its title, what its colours mean, and a caption."""

    title: str
    picture: Markup
    key: tuple[tuple[str, str], ...] = ()
    caption: str = ""


def cards(history: History, status: Status, possible: Possible | None) -> list[Card]:
    return [
        *(cost_card(history, status, k) for k in range(len(status.budget))),
        reward_card(history, status),
        orders_card(history, status),
        *([] if possible is None else parameter_cards(history, status, possible)),
        possible_card(history, status),
    ]


def cost_card(history: History, status: Status, k: int) -> Card:
    """What constraint k is certified to cost, and what it was seen to cost, against its budget."""
    budget, means = status.budget[k], history.means.values
    decided = history.decided.values
    claimed = [(each.episode, budget - each.margin[k]) for each in decided if each.margin is not None]
    end = decided[-1].episode if decided and decided[-1].margin is None else None  # nothing is claimed any more
    seen = _intervals([each.episode for each in means], [each.costs[k] for each in means])
    shown = frame(status.episodes, [0.0, budget, *(y for _, y in claimed), *_telling(seen, 2 * abs(budget))])
    word = "certified at most" if status.promised else "predicted, not certified"
    picture = chart(
        _cost_in_words(history, status, k, claimed),
        shown,
        [
            above(shown, budget, "over"),
            _interval(shown, seen, status),
            line(shown, [(x, mean) for x, mean, _, _ in seen], "seen"),
            steps(shown, claimed, "claimed", end),
            level(shown, budget, "budget"),
            *_alarms(history, shown),
        ],
    )
    which = "" if len(status.budget) == 1 else f" {k + 1} of {len(status.budget)}"
    return Card(
        f"Cost{which} against its budget",
        picture,
        (("budget", f"budget {budget:g}"), ("claimed", word), ("seen", _mean_label(status))),
        _until_narrow(seen, status, abs(budget)),
    )


def reward_card(history: History, status: Status) -> Card:
    means = history.means.values
    seen = _intervals([each.episode for each in means], [each.reward for each in means])
    recent = _recent(history)
    shown = frame(status.episodes, [*_telling(seen), *(y for _, y in recent)] or [0.0, 1.0])
    mean = f"{number(history.reward.mean)} so far" if history.reward.count else "nothing told yet"
    picture = chart(
        f"Reward over {status.episodes} episodes: mean {mean}.",
        shown,
        [
            _interval(shown, seen, status),
            line(shown, [(x, mean) for x, mean, _, _ in seen], "seen"),
            steps(shown, recent, "recent"),
            *_alarms(history, shown),
        ],
    )
    key = (("seen", _mean_label(status)), ("recent", f"means of {RECENT} stretches"))
    return Card("Reward", picture, key)


def orders_card(history: History, status: Status) -> Card:
    """A row for each of the policies ordered most often: the darker, the larger its share just then."""
    often = [policy for policy, _ in history.ordered.most_common(MOST_POLICIES)]
    rows = sorted(often)
    rest = sum(history.ordered.values()) - sum(history.ordered[policy] for policy in rows)
    names = [*(policy_name(policy, status.names) for policy in rows), *(["others"] if rest else [])]
    shown = Frame(max(history.order.get("episode", 0) + 1.0, 1.0), 0.0, max(len(names), 1))
    marks = []
    for place, stretch in enumerate(history.stretches):
        total = sum(stretch.ordered.values())
        across = (place * history.stretch, (place + 1) * history.stretch)
        for row, share in enumerate(_shares(stretch, rows, total)):
            if share:
                up = (len(names) - row - 0.82, len(names) - row - 0.18)
                marks.append(block(shown, across, up, share, "safe" if rows[row : row + 1] == [SAFE] else "other"))
    ticks = [(len(names) - row - 0.5, name if len(name) <= 11 else f"{name[:10]}…") for row, name in enumerate(names)]
    counts = ", ".join(f"{name}: {history.ordered[policy]:,}" for policy, name in zip(rows, names, strict=False))
    label = (
        f"How often each policy was ordered: {counts}{f', others: {rest:,}' if rest else ''}."
        if counts
        else "Nothing was ordered yet."
    )
    picture = chart(label, shown, [*marks, *_alarms(history, shown)], ticks or [(0.5, "none")])
    key = (("safe", "safe policy"), ("other", "another; darker: more often"))
    caption = label if status.names else f"{label} Policy numbers are those of the policy set."
    return Card("Policies ordered", picture, key, caption)


def possible_card(history: History, status: Status) -> Card:
    shown = frame(status.episodes, [0.0, max(status.total, 1)], room=0.04)
    points = [(each.episode, each.surviving) for each in history.decided.values]
    label = f"Still possible: {possible_in_words(status)}."
    picture = chart(label, shown, [steps(shown, points, "claimed"), *_alarms(history, shown)])
    return Card("What is still possible", picture, (("claimed", "cells or candidates not ruled out"),), label)


def parameter_cards(history: History, status: Status, possible: Possible) -> list[Card]:
    """Per parameter of the family, the smallest and the largest value that is not ruled out."""
    found = []
    for place, (low, high) in enumerate(possible.everything):
        seen = [(each.episode, *each.ranges[place]) for each in possible.ranges.values]
        shown = frame(status.episodes, [low, high])
        stairs = [point for pair in pairwise(seen) for point in (pair[0], (pair[1][0], *pair[0][1:]))]
        corners = [*stairs, *seen[-1:], *((status.episodes, *each[1:]) for each in seen[-1:])]
        name = "Parameter" if len(possible.everything) == 1 else f"Parameter {place + 1}"
        label = f"{name}: {number(seen[-1][1])} to {number(seen[-1][2])} is possible" if seen else f"{name}: unknown"
        picture = chart(f"{label}.", shown, [band(shown, corners, "band still"), *_alarms(history, shown)])
        trained = f"{label}, of {number(low)} to {number(high)} that was trained for."
        found.append(Card(f"{name} of the system", picture, (("still", "not ruled out"),), trained))
    return found


def _intervals(episodes: Sequence[int], means: Sequence[RunningMean]) -> list[Seen]:
    """(episode, mean, low, high) of each, all at once."""
    if not means:
        return []
    low, high = means[0].low, means[0].high
    counts, middle = (np.array([getattr(each, name) for each in means]) for name in ("count", "mean"))
    radius = mixture_boundary([each.squares for each in means], high - low, LEVEL / 2) / counts
    lower, upper = np.maximum(low, middle - radius), np.minimum(high, middle + radius)
    return list(zip(episodes, middle.tolist(), lower.tolist(), upper.tolist(), strict=True))


def _interval(shown: Frame, seen: Sequence[Seen], status: Status) -> Markup:
    """Where it is inside the frame; none after a breach, since it rests on the declared ranges."""
    inside = [(x, low, high) for x, _, low, high in seen if shown.low <= low and high <= shown.high]
    return band(shown, [] if status.breaches else inside, "band seen")


def _until_narrow(seen: Sequence[Seen], status: Status, budget: float) -> str:
    """When the interval of the observed mean will be as narrow as the budget; it narrows as the root of episodes."""
    if status.breaches or not seen or not budget:
        return ""
    episode, _, low, high = seen[-1]
    needed = episode * ((high - low) / budget) ** 2
    return f"The interval is narrower than the budget after about {needed:,.0f} episodes." if needed > episode else ""


def _mean_label(status: Status) -> str:
    return "observed mean so far" if status.breaches else "observed mean so far, 95 % interval"


def _telling(seen: Sequence[Seen], widest: float = math.inf) -> list[float]:
    """The values that decide what is shown: all means but the first few, and the last interval, unless it is wider than
    this or than ten times all that the means did: it would flatten everything else."""
    means = [mean for _, mean, _, _ in seen[len(seen) // 10 :]]
    ends = [end for _, _, *both in seen[-1:] for end in both]
    telling = ends and ends[1] - ends[0] <= min(widest, 10 * (max(means) - min(means)) or math.inf)
    return means + (ends if telling else [])


def _recent(history: History) -> list[Point]:
    """(first episode, mean reward) of consecutive stretches."""
    size = max(1, -(-len(history.stretches) // RECENT))
    points = []
    for first in range(0, len(history.stretches), size):
        some = history.stretches[first : first + size]
        told = sum(each.told for each in some)
        if told:
            points.append((float(first * history.stretch), sum(each.reward for each in some) / told))
    return points


def _shares(stretch: Stretch, rows: Sequence[int], total: int) -> list[float]:
    """Of these policies, and of all others together."""
    named = [stretch.ordered[policy] / total if total else 0.0 for policy in rows]
    return [*named, max(0.0, 1 - sum(named)) if total and len(stretch.ordered) > sum(map(bool, named)) else 0.0]


def _alarms(history: History, shown: Frame) -> list[Markup]:
    alarms = [event["episode"] for event in history.tally.alarms]
    return [moment(shown, episode, "alarm") for episode in alarms[-MOST_ALARMS:]]


def _cost_in_words(history: History, status: Status, k: int, claimed: Sequence[Point]) -> str:
    seen = history.costs[k]
    low, high = seen.interval
    observed = (
        f"observed mean {number(seen.mean)}, interval {number(low)} to {number(high)}" if seen.count else "no data"
    )
    bound = f"{'certified' if status.promised else 'predicted'} {number(claimed[-1][1])}" if claimed else "no bound"
    return f"Cost {k + 1} over {status.episodes} episodes: budget {status.budget[k]:g}, {bound}, {observed}."


# -------------------------------------------------------------------------------------------------------------- drawing

WIDTH, HEIGHT = 480, 230  # of a chart in its own units; text is 12 of them high
LEFT, RIGHT, TOP, BOTTOM = 84, 14, 10, 34

Point = tuple[float, float]


@dataclass(frozen=True)
class Frame:
    """The part of the plane that is shown: episodes 0 … `end` across, `low` … `high` up."""

    end: float
    low: float
    high: float

    def x(self, episode: float) -> float:
        return (WIDTH - LEFT - RIGHT) * min(1.0, episode / self.end)

    def y(self, value: float) -> float:
        """What lies far outside is drawn just outside, where it is cut off."""
        share = (value - self.low) / (self.high - self.low)
        return (HEIGHT - TOP - BOTTOM) * (1 - min(2.0, max(-1.0, share)))


def frame(episodes: float, values: Sequence[float], room: float = 0.08) -> Frame:
    """Holds all these values, and some room around them."""
    low, high = min(values), max(values)
    span = (high - low) or abs(high) or 1.0
    return Frame(max(episodes, 1.0), low - room * span, high + room * span)


def chart(label: str, shown: Frame, marks: Sequence[Markup], ticks: Sequence[tuple[float, str]] = ()) -> Markup:
    """Axes, and within them `marks`; `label` says in words what a reader without eyes for it would miss.

    Args:
        ticks: (height, text) where they are not numbers.
    """
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    parts = [Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(WIDTH, HEIGHT, label)]
    heights = ticks or [(value, format_tick(value)) for value in nice(shown.low, shown.high)]
    for value, text in heights:
        y = TOP + shown.y(value)
        if not ticks:
            parts.append(Markup('<path class="grid" d="M{} {:.1f}h{}"/>').format(LEFT, y, width))
        parts.append(Markup('<text class="up" x="{}" y="{:.1f}">{}</text>').format(LEFT - 8, y + 4, text))
    inner = Markup("").join(marks)
    parts.append(Markup('<svg x="{}" y="{}" width="{}" height="{}">{}</svg>').format(LEFT, TOP, width, height, inner))
    floor = TOP + height
    parts.append(Markup('<path class="axis" d="M{} {}h{}"/>').format(LEFT, floor, width))
    for value in nice(0, shown.end, least=1.0):  # episodes are whole
        x = LEFT + shown.x(value)
        parts.append(Markup('<path class="axis" d="M{:.1f} {}v4"/>').format(x, floor))
        parts.append(
            Markup('<text class="across" x="{:.1f}" y="{}">{}</text>').format(x, floor + 18, format_tick(value))
        )
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


# ----------------------------------------------------------------------------------------------------- marks in a chart


def line(shown: Frame, points: Sequence[Point], kind: str) -> Markup:
    return _path(kind, "M" + "L".join(_place(shown, *point) for point in points)) if points else Markup("")


def steps(shown: Frame, points: Sequence[Point], kind: str, end: float | None = None) -> Markup:
    """Each value holds until the next one, the last until the `end`, by default that of the frame."""
    if not points:
        return Markup("")
    turns = [f"H{shown.x(x):.1f}V{shown.y(y):.1f}" for x, y in points[1:]]
    return _path(kind, f"M{_place(shown, *points[0])}{''.join(turns)}H{shown.x(shown.end if end is None else end):.1f}")


def band(shown: Frame, points: Sequence[tuple[float, float, float]], kind: str) -> Markup:
    """Between the second and the third coordinate."""
    if not points:
        return Markup("")
    there = [_place(shown, x, high) for x, _, high in points]
    back = [_place(shown, x, low) for x, low, _ in reversed(points)]
    return _path(kind, "M" + "L".join([*there, *back]) + "Z")


def level(shown: Frame, value: float, kind: str) -> Markup:
    return _path(kind, f"M0 {shown.y(value):.1f}H{shown.x(shown.end):.1f}")


def above(shown: Frame, value: float, kind: str) -> Markup:
    return _path(kind, f"M0 0H{shown.x(shown.end):.1f}V{shown.y(value):.1f}H0Z")


def moment(shown: Frame, episode: float, kind: str) -> Markup:
    return _path(kind, f"M{shown.x(episode):.1f} 0v{HEIGHT}")


def block(shown: Frame, across: Point, up: Point, share: float, kind: str) -> Markup:
    """A rectangle, the fainter the smaller its share."""
    left, right = map(shown.x, across)
    top, bottom = shown.y(up[1]), shown.y(up[0])
    path = f"M{left:.1f} {top:.1f}H{right:.1f}V{bottom:.1f}H{left:.1f}Z"
    return Markup('<path class="{}" opacity="{:.2f}" shape-rendering="crispEdges" d="{}"/>').format(
        kind, 0.15 + 0.85 * share, path
    )


def _path(kind: str, path: str) -> Markup:
    return Markup('<path class="{}" d="{}"/>').format(escape(kind), path)


def _place(shown: Frame, x: float, y: float) -> str:
    return f"{shown.x(x):.1f} {shown.y(y):.1f}"


# -------------------------------------------------------------------------------------------------------------- numbers


def nice(low: float, high: float, most: int = 5, least: float = 0.0) -> list[float]:
    """A few round numbers between these two, about `most`, `least` or more apart."""
    rough = (high - low) / most
    size = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = max(least, next((size * by for by in (1, 2, 2.5, 5, 10) if size * by >= rough), size))
    first, last = math.ceil(low / step), math.floor(high / step)
    return [round(k * step, 12) for k in range(first, min(last, first + 2 * most) + 1)] or [(low + high) / 2]


def format_tick(value: float) -> str:
    """A number for a tick: short, with a true minus sign."""
    size = abs(value)
    text = f"{value / 1e6:g} M" if size >= 1e6 else f"{value:,.0f}" if size >= 1000 else f"{value:.4g}"
    return text.replace("-", "−")
