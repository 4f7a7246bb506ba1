"""Where a deployment stands, read from its journal alone: no policy set, no replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from surefoot.cmdp.wording import kind_of_cost
from surefoot.deploy.chain import Damaged, Observer, Row, read, understood
from surefoot.deploy.forms import checked

# Events that put a deployment back on the safe policy.
ALARMS = ("alarm", "exhausted")


@dataclass(frozen=True)
class Status:
    """Attributes:
    state: "learning", "safe" (an alarm keeps it on the safe policy) or "fault" (the journal cannot be written).
    why: one sentence.
    episodes: told or abandoned so far; `abandoned` of them have no outcome.
    outstanding: the episode that was ordered and not told yet.
    weight: probability with which the mixture in force leaves the safe policy.
    surviving, total: cells or candidates that are still possible, and all.
    margin: [m] what the method says of the mixture: a lower bound if certified.
    budget: [m], and `kind` of cost that it is on, in words.
    rows, head: of the journal; the head is the hash of its last row.
    """

    state: str
    why: str
    method: str
    certified: bool
    episodes: int
    abandoned: int
    outstanding: int | None
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

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "alarms": list(self.alarms)}


def facts(status: Status) -> tuple[tuple[str, str], ...]:
    """A status in words, as the terminal and the page show it."""
    risk = status.settings.get("risk")
    claim = "certified margin" if status.certified else "claimed margin"
    margin = "none" if status.margin is None else ", ".join(f"{value:.6g}" for value in status.margin)
    budget = ", ".join(f"{value:g}" for value in status.budget)
    return (
        ("state", f"{status.state}: {status.why}"),
        ("method", f"{status.method}, {'with a certificate' if status.certified else 'uncertified'}"),
        *(() if risk is None else (("risk", f"{risk}, the probability of ever ordering what breaks a budget"),)),
        ("episodes", f"{status.episodes:,} (abandoned {status.abandoned:,})"),
        ("outstanding order", "none" if status.outstanding is None else f"episode {status.outstanding:,}"),
        ("weight", f"{status.weight:.6g}, the probability of leaving the safe policy"),
        ("still possible", possible_in_words(status)),
        ("budget", f"{budget} on the {status.kind}"),
        (claim, margin),
        *(("alarm", alarm) for alarm in status.alarms),
        ("settings", _settings_in_words(status.settings) or "as by default"),
        ("policy set", status.policies or "not recorded"),
        ("head", f"{status.head} ({status.rows:,} rows)"),
    )


def possible_in_words(status: Status) -> str:
    """How many cells or candidates are left."""
    return f"{status.surviving:,} of {status.total:,}" if status.total else "this method rules nothing out"


def _settings_in_words(settings: Mapping[str, Any]) -> str:
    """Those that were given; method and risk stand by themselves."""
    given = {name: value for name, value in settings.items() if name not in ("method", "risk") and value is not None}
    words = {name: f"for level {value['level']}" if name == "calibration" else value for name, value in given.items()}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in sorted(words.items()))


class Tally:
    """What a status needs of the rows, gathered as they pass; most payloads are not even parsed."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.latest: dict[str, Row] = {}
        self.events: list[Any] = []
        self.alarmed: str | None = None  # the message of the alarm in force

    def add(self, row: Row) -> None:
        self.counts[row.kind] = self.counts.get(row.kind, 0) + 1
        self.latest[row.kind] = row
        if row.kind == "event":
            event = checked(row)
            self.events.append(event)
            if event["kind"] in (*ALARMS, "recovered"):
                self.alarmed = event["message"] if event["kind"] in ALARMS else None

    def status(self, rows: int, head: bytes, fault: str | None = None) -> Status:
        opened = checked(self.latest["open"])
        decision = checked(self.latest["decision"]) if "decision" in self.latest else {}
        told = self.counts.get("outcome", 0) + self.counts.get("abandoned", 0)
        waiting = self.counts.get("order", 0) > told
        alarms = tuple(event["message"] for event in self.events if event["kind"] in ALARMS)
        state, why = self._standing(decision, fault)
        return Status(
            state,
            why,
            opened["method"],
            decision.get("certified", opened["certified"]),
            told,
            self.counts.get("abandoned", 0),
            checked(self.latest["order"])["episode"] if waiting else None,
            decision.get("weight", 0.0),
            decision.get("surviving", 0),
            decision.get("total", 0),
            decision.get("margin"),
            alarms,
            rows,
            head.hex(),
            opened["policies"],
            opened["settings"],
            opened["budget"],
            kind_of_cost(opened["discount"], opened.get("task_horizon")),
        )

    def _standing(self, decision: dict[str, Any], fault: str | None) -> tuple[str, str]:
        if fault is not None:
            return "fault", f"the safe policy is ordered, since {fault}"
        if self.alarmed is not None:
            return "safe", self.alarmed
        weight = decision.get("weight", 0.0)
        if not weight:
            return "learning", "nothing but the safe policy may be deployed yet"
        return "learning", f"the safe policy is left with probability {weight:.4g}"


def read_status(path: str | PathLike[str], observer: Observer | None = None) -> Status:
    """The status of the journal at `path`, whether or not a deployment is writing to it."""
    tally, last = tallied(read(path, observer=observer))
    with understood(Path(path)):
        return tally.status(last.n + 1, last.hash)


def tallied(rows: Iterable[Row]) -> tuple[Tally, Row]:
    tally, last = Tally(), None
    for row in rows:
        tally.add(row)
        last = row
    if last is None or "open" not in tally.latest:
        raise Damaged("row 0 must open a journal", 0)
    return tally, last
