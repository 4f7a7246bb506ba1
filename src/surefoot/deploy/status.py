"""Where a deployment stands, and what its certificate rests on, by its journal alone: no policy set, no replay."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, Generic, TypeVar

from surefoot.cmdp.wording import calibration_in_words, fit_in_words, kind_of_cost
from surefoot.deploy.chain import Damaged, JournalRow, Observer, check_key, raise_as_damaged, read, resolve_journal_path
from surefoot.deploy.forms import ASSUMED, ASSUMING, FIRST_VERSION, check_opening, check_payload

# Events that put a deployment back on the safe policy.
ALARMS = ("alarm", "exhausted", "ended")
MOST_EVENTS = 200  # that a page lists
SAFE = 0  # number of the safe policy
BREACHED = "a value outside its declared range was observed: certificate void, safe policy from now on"

Chances = tuple[tuple[int, float], ...]  # policies and their probabilities
Names = Sequence[str] | None  # of the policies, if the policy set has some
T = TypeVar("T")


@dataclass(frozen=True)
class Status:
    """Attributes:
    state: "learning", "safe" (an alarm keeps it on the safe policy) or "fault" (the journal cannot be written).
    why: one sentence.
    certified: whether what is ordered now is; `promised`, whether it was when the journal was begun.
    episodes: told or abandoned so far; `abandoned` of them have no outcome, `breaches` left the declared ranges.
    outstanding: the episode that was ordered and not told yet.
    next_order: policies that the next order may name, each with its probability; the one outstanding, if there is one.
    weight: probability with which the mixture in force leaves the safe policy.
    surviving, total: cells or candidates that are still possible, and all.
    margin: [m] what the method says of the mixture: a lower bound if certified.
    budget: [m], and `kind` of cost that it is on, in words.
    names: of the policies, as orders have them.
    alarms: messages; of very many the first and the last.
    rows, head: of the journal; the head is the hash of its last row.
    assumptions: what the certificate rests on, in sentences.
    """

    state: str
    why: str
    method: str
    certified: bool
    promised: bool
    episodes: int
    abandoned: int
    breaches: int
    outstanding: int | None
    next_order: Chances
    weight: float
    surviving: int
    total: int
    margin: list[float] | None
    alarms: tuple[str, ...]
    rows: int
    head: str
    policies: str | None
    settings: dict[str, Any]
    budget: list[float]
    kind: str
    names: Names
    assumptions: tuple[Fact, ...]

    def as_dict(self) -> dict[str, Any]:
        return plain_data(self)


def plain_data(found: Any) -> dict[str, Any]:
    """A dataclass as plain JSON data, lists in place of tuples."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(found)))
    return plain


def facts(status: Status) -> tuple[Fact, ...]:
    """A status in words, as the terminal and the page show it."""
    risk = status.settings.get("risk")
    claim = "certified margin" if status.certified else "claimed margin"
    margin = "none" if status.margin is None else ", ".join(f"{value:.6g}" for value in status.margin)
    budget = ", ".join(f"{value:g}" for value in status.budget)
    meaning = "the probability of ever ordering what breaks a budget" if status.certified else "asked for, not promised"
    return (
        ("state", f"{status.state}: {status.why}"),
        ("method", f"{status.method}, {certificate_in_words(status.promised, status.certified)}"),
        *(() if risk is None else (("risk", f"{risk}, {meaning}"),)),
        ("episodes", f"{status.episodes:,} (abandoned {status.abandoned:,})"),
        *((("breaches", f"{status.breaches:,} outside the declared ranges"),) if status.breaches else ()),
        ("next order", _next_order_in_words(status)),
        ("weight", f"{status.weight:.6g}, the probability of leaving the safe policy"),
        ("still possible", possible_in_words(status)),
        ("budget", f"{budget} on the {status.kind}"),
        (claim, margin),
        *(("alarm", alarm) for alarm in status.alarms),
        *status.assumptions,
        ("settings", _settings_in_words(status.settings) or "as by default"),
        ("policy set", status.policies or "not recorded"),
        ("head", f"{status.head} ({status.rows:,} rows)"),
    )


def certificate_in_words(promised: bool, certified: bool) -> str:
    return "with a certificate" if certified else "certificate void" if promised else "uncertified"


def _next_order_in_words(status: Status) -> str:
    words = order_in_words(status.next_order, status.names)
    if status.state == "fault":
        return f"{words}, as a fallback"
    if status.outstanding is not None:
        return f"episode {status.outstanding:,}: {words}, ordered and not told yet"
    return f"episode {status.episodes:,}: {words}"


def order_in_words(chances: Chances, names: Names = None, most: int = 4) -> str:
    """The likeliest policies of an order."""
    if not chances:
        return "unknown"
    if len(chances) == 1:
        return policy_name(chances[0][0], names)
    return ", ".join(f"{policy_name(policy, names)} {share(chance)}" for policy, chance in chances[:most])


def policy_name(policy: int, names: Names = None) -> str:
    if names is not None and policy < len(names):
        return names[policy]
    return "safe" if policy == SAFE else f"no. {policy}"


def share(weight: float) -> str:
    """A probability as a percentage that is 0 or 100 only if it is."""
    if 0 < weight < 0.001:
        return "under 0.1 %"
    if 0.999 < weight < 1:
        return "over 99.9 %"
    return f"{100 * weight:.3g} %"


def possible_in_words(status: Status) -> str:
    """How many cells or candidates are left."""
    return f"{status.surviving:,} of {status.total:,}" if status.total else "this method rules nothing out"


def _settings_in_words(settings: Mapping[str, Any]) -> str:
    """Those that were given; method and risk stand by themselves, and a calibration among what is assumed."""
    apart = ("method", "risk", "calibration")
    given = {name: value for name, value in settings.items() if name not in apart and value is not None}
    return ", ".join(f"{name.replace('_', ' ')} {str(value)[:100]}" for name, value in sorted(given.items()))


class Ends(Generic[T]):
    """The first and the last of ever more values, as many of each as a page lists of both."""

    def __init__(self) -> None:
        self.count = 0  # of all of them
        self._first: list[T] = []
        self._last: deque[T] = deque(maxlen=MOST_EVENTS)

    def add(self, value: T) -> None:
        self.count += 1
        (self._first if len(self._first) < MOST_EVENTS else self._last).append(value)

    def pop(self) -> T:
        """Take the last one back."""
        self.count -= 1
        return (self._last or self._first).pop()

    def __iter__(self) -> Iterator[T]:
        yield from self._first
        yield from self._last


class Tally:
    """What a status needs of the rows, gathered as they pass; most payloads are not even parsed.

    An alarm is in force from the row that raised it on: a breach that was told counts before its event is there, and
    an event before the decision that follows from it.
    """

    def __init__(self, sealed: bool = False) -> None:
        """`sealed` if the rows come from who checked them against the seal with its key."""
        self.sealed = sealed
        self.counts: dict[str, int] = {}
        self.latest: dict[str, JournalRow] = {}
        self.events: Ends[Any] = Ends()
        self.alarms: Ends[Any] = Ends()  # those of the events
        self.breaches = 0
        self.alarmed: str | None = None  # the message of the alarm in force
        self._undecided = ""  # kind of the alarm in force if the decision that follows from it is not there yet
        self._fit: float | None = None  # p-value of the history
        self._told_alone = False  # whether the last of the events is a breach without its event

    def add(self, row: JournalRow) -> None:
        if (row.kind == "open") != (row.n == 0):
            raise Damaged(f"row {row.n} must {'not ' if row.n else ''}open a journal", row.n)
        self.counts[row.kind] = self.counts.get(row.kind, 0) + 1
        self.latest[row.kind] = row
        if row.kind == "history":
            self._check_history(row)
        elif row.kind == "event":
            self._add_event(check_payload(row))
        elif row.kind in ("decision", "order"):
            self._undecided = ""
        elif row.kind == "outcome" and b"breach" in row.payload and (told := check_payload(row)).get("breach"):
            self.breaches += 1
            self._add_event({"episode": told["episode"] + 1, "kind": "alarm", "message": BREACHED})
            self._told_alone = True

    def _check_history(self, row: JournalRow) -> None:
        if self.counts["history"] == 1 and check_payload(self.latest["open"])["format_version"] == FIRST_VERSION:
            raise Damaged(f"row {row.n} must not be of kind 'history', which format 1.0 did not know", row.n)

    def _add_event(self, event: Any) -> None:
        data = event.get("data")
        if event["kind"] == "history" and isinstance(data, dict) and type(data.get("fit")) is float:
            self._fit = data["fit"]
        alarm = event["kind"] in ALARMS
        if alarm and self._told_alone:
            self.events.pop()
            self.alarms.pop()
        self._told_alone = False
        self.events.add(event)
        if alarm:
            self.alarms.add(event)
            self.alarmed, self._undecided = event["message"], event["kind"]
        elif event["kind"] == "recovered":
            self.alarmed, self._undecided = None, ""

    def status(self, rows: int, head: bytes, fault: str | None = None) -> Status:
        opened = check_payload(self.latest["open"])
        decision = self._decision()
        told = self.counts.get("outcome", 0) + self.counts.get("abandoned", 0)
        order = check_payload(self.latest["order"]) if self.counts.get("order", 0) > told else None
        state, why = self._standing(decision, fault)
        return Status(
            state,
            why,
            opened["method"],
            decision.get("certified", opened["certified"]),
            opened["certified"],
            told,
            self.counts.get("abandoned", 0),
            self.breaches,
            None if order is None else order["episode"],
            ((SAFE, 1.0),) if fault is not None else _chances(order, decision),
            decision.get("weight", 0.0),
            decision.get("surviving", 0),
            decision.get("total", 0),
            decision.get("margin"),
            tuple(event["message"] for event in self.alarms),
            rows,
            head.hex(),
            opened["policies"],
            opened["settings"],
            opened["budget"],
            kind_of_cost(opened["discount"], opened.get("task_horizon")),
            opened.get("names"),
            assumptions(opened, self.sealed, self.history),
        )

    @property
    def history(self) -> str | None:
        """Of the episodes from before the first order, if there are any."""
        count = self.counts.get("history", 0)
        if not count:
            return None
        fit = "" if self._fit is None else f"; they {fit_in_words(self._fit)}"
        return f"{count:,} episodes of the safe policy on this very system are evidence: taken on trust{fit}"

    def _decision(self) -> dict[str, Any]:
        """The one in force; after an alarm that none has followed yet, the safe policy and no claim."""
        decision = check_payload(self.latest["decision"]) if "decision" in self.latest else {}
        if not self._undecided:
            return decision
        safe = {**decision, "policies": [SAFE], "weights": [1.0], "weight": 0.0, "margin": None}
        return safe if self._undecided == "ended" else {**safe, "surviving": 0, "certified": False}

    def _standing(self, decision: dict[str, Any], fault: str | None) -> tuple[str, str]:
        if fault is not None:
            return "fault", f"the safe policy is ordered, since {fault}"
        if self.alarmed is not None:
            return "safe", self.alarmed
        weight = decision.get("weight", 0.0)
        if not weight:
            return "learning", "nothing but the safe policy may be deployed yet"
        return "learning", f"the safe policy is left with probability {weight:.4g}"


def _chances(order: Mapping[str, Any] | None, decision: Mapping[str, Any]) -> Chances:
    if order is not None:
        return ((order["policy"], 1.0),)
    pairs = zip(decision.get("policies", ()), decision.get("weights", ()), strict=True)
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))


def read_status(path: str | PathLike[str], observer: Observer | None = None, key: bytes | None = None) -> Status:
    """The status of the journal at `path`, whether or not a deployment is writing to it; with its `key`, the seal is
    checked."""
    target = resolve_journal_path(path)
    with raise_as_damaged(target):
        tally, last = tally_rows(read(target, key=check_key(key), observer=observer), key is not None)
        check_opening(tally.latest["open"], target)
        return tally.status(last.n + 1, last.hash)


def tally_rows(rows: Iterable[JournalRow], sealed: bool = False) -> tuple[Tally, JournalRow]:
    tally, last = Tally(sealed), None
    for row in rows:
        tally.add(row)
        last = row
    if last is None:
        raise Damaged("row 0 must open a journal", 0)
    return tally, last


# --------------------------------------------------------------------------------------- what a certificate rests on

# How it is known what a calibration counted. The journal says so; that it is not sealed itself, or is, stands below.
STANDINGS = {
    "counted": "counted by who began the journal",
    "sealed": "its file was sealed, and the key proved it to who began the journal",
    "recounted": "a sample of its runs was computed again by who began the journal",
    "claimed": "claimed: nobody who began the journal counted it, and nothing is certified",
}
UNSEALED = "none: whoever can write the file can write all of it anew"

Fact = tuple[str, str]  # name and sentence


def assumptions(opened: Mapping[str, Any], sealed: bool, history: str | None = None) -> tuple[Fact, ...]:
    """Of the payload of row 0; `sealed` if the key of the journal was at hand and proved the seal; `history` is what
    there is to say of earlier episodes."""
    settings, (major, minor) = opened["settings"], opened["format_version"]
    calibration = settings.get("calibration")
    return (
        *(("assumes", sentence) for sentence in _assumption_sentences(opened, settings)),
        *(() if calibration is None else (("calibration", _calibration_sentence(calibration)),)),
        *(() if history is None else (("history", history),)),
        ("seal", _seal(opened.get("key"), sealed)),
        ("format", f"{opened['format']} {major}.{minor}"),
    )


def _assumption_sentences(opened: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[str]:
    safe = "the safe policy keeps every budget on this very system"
    if settings.get(ASSUMED):
        yield f"{safe} ({ASSUMED}): taken on trust, not proved"
    # The method called certified may have chosen one of these.
    elif opened["format_version"] == FIRST_VERSION and opened["method"] in (*ASSUMING, "certified"):
        yield f"{safe} ({ASSUMED}, taken for granted by format 1.0): not proved"
    if settings.get("shift"):
        yield f"the system lies within {settings['shift']:g} of the tasks trained for (shift): taken on trust"


def _calibration_sentence(calibration: Mapping[str, Any]) -> str:
    """What it says, and how that is known."""
    standing = "the journal does not say who counted it"
    if calibration.get("standing") is not None:
        name = calibration["standing"]
        standing = STANDINGS.get(name, f"standing {name!r}, which is unknown here")
    return f"{calibration_in_words(calibration)}; {standing}"


def _seal(name: str | None, sealed: bool) -> str:
    if name is None:
        return UNSEALED
    if sealed:
        return f"sealed with this key, {name}"
    return f"names key {name}, not checked: without the key nobody can tell who wrote this"
