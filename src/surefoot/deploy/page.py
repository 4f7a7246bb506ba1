"""A deployment as one HTML page: the verdict, five large figures, then charts, events and settings.

The same page is a file (`surefoot report JOURNAL`) and is served while rows are written (`surefoot watch JOURNAL`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.cmdp.wording import number
from surefoot.deploy import chain
from surefoot.deploy.chain import Observer
from surefoot.deploy.charts import Card, cards
from surefoot.deploy.forms import check_opening
from surefoot.deploy.history import History
from surefoot.deploy.status import ALARMS, MOST_EVENTS, UNSEALED, Status, facts, order_in_words, policy_name, share
from surefoot.report.page import template
from surefoot.report.verdict import Answer

if TYPE_CHECKING:
    from surefoot.deploy.verify import Possible


@dataclass(frozen=True)
class View:
    """All that a page says.

    Attributes:
        word: the state in one word, in its `tone`.
        verdict: why, and since when, in a sentence.
        notes: sentences below it that whoever looks should know.
    """

    name: str
    word: str
    tone: str
    verdict: str
    answers: tuple[Answer, ...] = ()
    cards: tuple[Card, ...] = ()
    events: tuple[tuple[int, str, str], ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def deployment_page(
    path: str | PathLike[str],
    possible: Possible | None = None,
    observer: Observer | None = None,
    key: bytes | None = None,
) -> str:
    """The page of the journal at `path`. With a fresh `possible`, which computes every row again from the policy set,
    it also shows what is left in the parameters of the family; with its `key`, the seal is checked."""
    history, target = read_history(path, possible, observer, key), chain.resolve_journal_path(path)
    with chain.raise_as_damaged(target):
        return render_page(view(target.name, history, possible))


def read_history(
    path: str | PathLike[str],
    possible: Possible | None = None,
    observer: Observer | None = None,
    key: bytes | None = None,
) -> History:
    history, target = History(sealed=key is not None), chain.resolve_journal_path(path)
    with chain.raise_as_damaged(target):
        for rows in chain.iter_checked_blocks(target, key=chain.check_key(key)):
            if rows[0][0] == 0:
                check_opening(chain.decode_row(rows[0], target), target)
            take_rows(rows, target, history, possible)
            if observer is not None:
                observer(rows[-1][0] + 1)
        if possible is not None:
            possible.finish()
    return history


def take_rows(rows: Sequence[chain.RawRow], path: Path, history: History, possible: Possible | None) -> None:
    history.extend(rows, path)
    if possible is not None:
        for row in rows:
            possible.add(chain.decode_row(row, path))


def view(name: str, history: History, possible: Possible | None = None) -> View:
    """What is known, in words."""
    status = history.status()
    word, tone = _state(history, status)
    return View(
        name,
        word,
        tone,
        _verdict(history, status),
        (
            _margin(status),
            _cost_figure(history, status),
            _gained(history),
            _order(history, status),
            _alarms(history, status),
        ),
        tuple(cards(history, status, possible)),
        _events(history),
        facts(status),
        tuple(_notes(status)),
    )


def render_page(shown: View, **live: Any) -> str:
    """The page as one HTML document, every text escaped.

    Args:
        live: `token` and `written`, where the page is served and asks for news by itself.
    """
    return template("surefoot.deploy", "page").render(view=shown, live=live or None, alarms=ALARMS) + "\n"


def render_body(shown: View, **live: Any) -> str:
    """What changes of a page that is served."""
    return template("surefoot.deploy", "body").render(view=shown, live=live or None, alarms=ALARMS)


# ------------------------------------------------------------------------------------------------------------- in words


def _state(history: History, status: Status) -> tuple[str, str]:
    if history.standing == "running" and history.order:
        return "Running", "good" if status.certified else "bad"
    return "Safe", "bad" if history.standing == "alarm" else ""


def _verdict(history: History, status: Status) -> str:
    """Running or safe, why, and since when."""
    if not history.order:
        return "The journal is open; nothing has been ordered yet."
    since = f"since episode {history.since:,}" if history.since else "since the beginning"
    if history.standing == "alarm":
        return f"Only the safe policy is ordered, {since}: {history.tally.alarmed}."
    if history.standing == "safe":
        how = f"in all but {share(status.weight)} of episodes" if status.weight else "alone"
        return f"The safe policy is ordered {how}, {since}: nothing else may be deployed yet."
    rest = f"still used in {share(1 - status.weight)} of episodes" if status.weight < 1 else "no longer used"
    left = f"Adapting since episode {history.since:,}: the safe policy is {rest}"
    if not status.certified:
        return f"{left}. Nothing of this is certified: {_why_uncertified(status)}."
    within = "its budget" if len(status.budget) == 1 else "every budget"
    return f"{left}; what is ordered is certified to stay within {within}."


def _why_uncertified(status: Status) -> str:
    if status.settings.get("calibration") is not None:
        return "its calibration is claimed, and nobody here has counted it"
    return f"{status.method} promises no safety"


def _notes(status: Status) -> Iterator[str]:
    """What whoever looks should know before trusting the rest."""
    for name, sentence in status.assumptions:
        if name != "format" and sentence != UNSEALED:
            yield f"{name.capitalize()}: {sentence}."


def _margin(status: Status) -> Answer:
    """What is ordered now costs at most, of the constraint with the smallest margin; the best mixture leaves none."""
    name = "Certified cost" if status.certified else "Claimed cost, uncertified"
    if status.promised and not status.certified:
        name = "Cost, certificate void"
    if status.margin is None:
        kept = status.certified and status.weight and status.settings.get("calibration") is not None
        why = "a calibration is about keeping the budgets, not by how much"
        return Answer(name, "none", why if kept else "nothing is claimed of what is ordered now")
    least = min(range(len(status.budget)), key=lambda k: status.margin[k] if status.margin else 0.0)
    margin, budget = status.margin[least], status.budget[least]
    which = (
        ""
        if len(status.budget) == 1
        else f"; of cost {least + 1}, which is closest to its budget of {len(status.budget)}"
    )
    risk = status.settings.get("risk")
    sure = f", sure to {100 * (1 - risk):.4g} %" if status.certified and risk is not None else ""
    beside = f"at most, of the budget {budget:g}, {status.kind}{sure}{which}"
    return Answer(name, f"{budget - margin:.3g}", beside, "bad" if margin < 0 else "")


def _cost_figure(history: History, status: Status) -> Answer:
    """Of the constraint that was seen closest to its budget."""
    rooms = [budget - seen.mean for budget, seen in zip(status.budget, history.costs, strict=True)]
    k = rooms.index(min(rooms))
    seen, budget = history.costs[k], f"{status.budget[k]:g}"
    if not seen.count:
        return Answer("Observed cost", "none", f"no episode was told yet; budget {budget}")
    low, high = seen.interval
    interval = f"95 % interval {number(low)} to {number(high)}"
    if status.breaches:
        low, interval = seen.mean, "no interval, since one left the declared ranges"
    beside = f"mean of {seen.count:,} episodes, {interval}; budget {budget}"
    name = "Observed cost" if len(rooms) == 1 else f"Observed cost {k + 1}"
    return Answer(name, number(seen.mean), beside, "bad" if low > status.budget[k] else "")


def _gained(history: History) -> Answer:
    """Over the safe policy, as far as its own episodes tell."""
    safe, others = history.earned
    if not others.episodes:
        return Answer("Gained", "nothing", "only the safe policy has been run so far")
    if not safe.episodes:
        return Answer("Gained", "unknown", "there is no episode of the safe policy to compare with")
    gained = others.mean - safe.mean
    beside = (
        f"of reward an episode: {number(others.mean)} in {others.episodes:,} of other policies, {number(safe.mean)} in "
        f"{safe.episodes:,} of the safe one"
    )
    return Answer("Gained", f"{'+' if gained > 0 else ''}{number(gained)}", beside)


def _order(history: History, status: Status) -> Answer:
    if status.outstanding is not None:
        name = policy_name(history.order["policy"], status.names)
        return Answer("Next order", name, f"episode {status.outstanding:,}: ordered, its outcome is awaited")
    if not status.next_order:
        return Answer("Next order", "none", "nothing was ordered yet")
    likeliest = policy_name(status.next_order[0][0], status.names)
    if len(status.next_order) == 1:
        return Answer("Next order", likeliest, f"for episode {status.episodes:,}")
    mixed = order_in_words(status.next_order, status.names)
    return Answer("Next order", likeliest, f"most likely for episode {status.episodes:,}: {mixed}")


def _alarms(history: History, status: Status) -> Answer:
    alarms = history.tally.alarms
    if not alarms.count:
        return Answer("Alarms", "0", f"in {status.episodes:,} episodes, {status.abandoned:,} of them abandoned")
    *_, last = alarms
    force = "in force" if history.standing == "alarm" else "over again"
    return Answer("Alarms", f"{alarms.count:,}", f"the last after episode {last['episode']:,}, {force}", "bad")


def _events(history: History) -> tuple[tuple[int, str, str], ...]:
    """The first and the last of many."""
    rows = [(event["episode"], event["kind"], event["message"]) for event in history.tally.events]
    rows += [(each["episode"], "abandoned", each["reason"]) for each in history.abandoned]
    rows.sort(key=lambda row: row[0])
    return tuple(rows if len(rows) <= MOST_EVENTS else rows[: MOST_EVENTS // 2] + rows[-MOST_EVENTS // 2 :])
