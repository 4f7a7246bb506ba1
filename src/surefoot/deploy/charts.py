"""The charts of a deployment: every cost against its budget, the reward, the policies ordered, what is possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from surefoot.cmdp.wording import number
from surefoot.confidence import mixture_boundary
from surefoot.deploy.drawing import Frame, Point, above, band, block, chart, frame, level, line, moment, steps
from surefoot.deploy.history import History, Stretch
from surefoot.deploy.observed import LEVEL, RunningMean
from surefoot.deploy.status import Status, policy_name, possible_in_words

if TYPE_CHECKING:  # who looks without a policy set needs none of what replays it
    from surefoot.deploy.possible import Possible

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
    shown = frame(status.episodes, [budget, *(y for _, y in claimed), *_telling(seen)])
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
        (("budget", f"budget {budget:g}"), ("claimed", word), ("seen", _seen_in_words(status))),
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
    key = (("seen", _seen_in_words(status)), ("recent", f"means of {RECENT} stretches"))
    return Card("Reward", picture, key)


def orders_card(history: History, status: Status) -> Card:
    """A row for each of the policies ordered most often: the darker, the larger its share just then."""
    often = [policy for policy, _ in history.ordered.most_common(MOST_POLICIES)]
    rows = sorted(often)
    rest = sum(history.ordered.values()) - sum(history.ordered[policy] for policy in rows)
    names = [*map(policy_name, rows), *(["others"] if rest else [])]
    shown = Frame(max(history.order.get("episode", 0) + 1.0, 1.0), 0.0, max(len(names), 1))
    marks = []
    for place, stretch in enumerate(history.stretches):
        total = sum(stretch.ordered.values())
        across = (place * history.stretch, (place + 1) * history.stretch)
        for row, share in enumerate(_shares(stretch, rows, total)):
            if share:
                up = (len(names) - row - 0.82, len(names) - row - 0.18)
                marks.append(block(shown, across, up, share, "safe" if names[row] == "safe" else "other"))
    ticks = [(len(names) - row - 0.5, name) for row, name in enumerate(names)]
    counts = ", ".join(f"{policy_name(policy)}: {history.ordered[policy]:,}" for policy in rows)
    label = (
        f"How often each policy was ordered: {counts}{f', others: {rest:,}' if rest else ''}."
        if counts
        else "Nothing was ordered yet."
    )
    picture = chart(label, shown, [*marks, *_alarms(history, shown)], ticks or [(0.5, "none")])
    key = (("safe", "safe policy"), ("other", "another; darker: more often"))
    return Card("Policies ordered", picture, key, f"{label} Policy numbers are those of the policy set.")


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
    """None after a breach: it rests on the declared ranges."""
    return band(shown, [] if status.breaches else [(x, low, high) for x, _, low, high in seen], "band seen")


def _seen_in_words(status: Status) -> str:
    return "observed mean so far" if status.breaches else "observed mean so far, 95 % interval"


def _telling(seen: Sequence[Seen]) -> list[float]:
    """The values that decide what is shown: all means but the first few, and the interval of the later half. The
    interval of a few episodes is as wide as all that is possible, and would flatten everything else."""
    later = seen[len(seen) // 2 :]
    return [mean for _, mean, _, _ in seen[len(seen) // 10 :]] + [end for _, _, *ends in later[-1:] for end in ends]


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
