"""What a journal must say: the rows that follow from a learner and from what it was told. No files here.

A session writes these rows and a check compares with them, so that both follow one rule. Kinds of rows:

    open       what is deployed, with which settings, from which policy set
    history    one episode of the safe policy from before the first order; all of them follow row 0
    event      something a reader should know: an elimination, an alarm
    decision   the mixture from now on, and what the method says of it
    order      one episode: which policy, and the random number that drew it
    outcome    what was told of it
    abandoned  that it has no outcome, and why

`Replay.follow` takes over one row; `blocks` does so with many at a time.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from surefoot.cmdp.episode import Outcome, Outcomes
from surefoot.deploy.chain import JournalRow, canonical
from surefoot.deploy.forms import ASSUMED, ASSUMING, FIRST_VERSION, FORMAT, FORMAT_VERSION
from surefoot.deploy.journal import Entry
from surefoot.deploy.outcomes import (
    Episode,
    breach,
    check_reason,
    outcome_of,
    record,
    told_in,
    with_signals,
)
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.learning.calibrated import parse_calibration
from surefoot.learning.checks import signals_of
from surefoot.learning.learner import Learner, LearnerState, Order, counter_uniforms
from surefoot.learning.method import SAFE

TOLD = ("outcome", "abandoned")

# Other processors and libraries round differently; a weight or margin computed again may differ by this much.
TOLERANCE = 1e-9


class Departure(Exception):
    """A row does not follow from those before it; `row` is its number where that is known."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class OtherPolicySet(ArtifactError):
    """Nothing is wrong with the journal: it belongs to another policy set."""


class FeaturesMissing(ArtifactError):
    """Nothing is wrong with the journal: signals in it were computed by a function that is not here."""


def header(learner: Learner, key: str | None = None) -> dict[str, Any]:
    """The payload of row 0; `key` is the name of the key that seals the journal."""
    units = learner.method.units
    policies = learner.method.policies
    return _plain(
        {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "settings": dict(learner.settings),  # the first to be compared: the rest follows
            "method": learner.name,
            "certified": learner.method.certified,
            "policies": None if policies is None else policies.digest(),
            "risk_split": learner.risk_split,
            "seed": learner.seed,
            "horizon": learner.horizon,
            "discount": units.discount,
            "budget": units.budget.tolist(),
            "reward_range": list(units.reward_range),
            "cost_range": units.cost_range.tolist(),
            **({} if units.horizon is None else {"task_horizon": units.horizon}),
            **({} if units.reward_sum_range is None else {"reward_sum_range": list(units.reward_sum_range)}),
            **({} if units.cost_sum_range is None else {"cost_sum_range": units.cost_sum_range.tolist()}),
            **({} if policies is None or policies.names is None else {"names": list(policies.names)}),
            "key": key,
        }
    )


def _plain(payload: dict[str, Any]) -> dict[str, Any]:
    """As it comes back from a file."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(payload, allow_nan=False, default=np.generic.item))
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"the learner's settings must be plain data, got {payload['settings']!r} ({error})"
        ) from None
    return plain


def header_settings(found: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in the payload of row 0, from which `methods.learner` makes the same learner again."""
    settings = dict(found["settings"])
    if found.get("format_version") == FIRST_VERSION and settings.get("method") in ASSUMING:
        settings[ASSUMED] = True
    told = settings.get("calibration")
    if isinstance(told, Mapping):  # with the standing it was begun with; journals from before there were any: as then
        settings["calibration"] = parse_calibration({"standing": "counted", **told})
    return settings


def check_header(found: Any, learner: Learner, where: str, key: str | None) -> None:
    """Refuse a journal of another format, policy set, setting or key, naming what differs."""
    if not isinstance(found, Mapping) or found.get("format") != FORMAT:
        raise ArtifactError(f"{where}: row 0 must open a {FORMAT}")
    version = found.get("format_version")
    if canonical(version) not in (canonical(FIRST_VERSION), canonical(FORMAT_VERSION)):
        raise ArtifactError(f"{where}: format_version must be {FIRST_VERSION} or {FORMAT_VERSION}, found {version!r}")
    expected = header(learner, key) | {"format_version": version}
    told, made = (each["settings"].get("calibration") for each in (found, expected))
    if isinstance(told, Mapping) and isinstance(made, Mapping) and "standing" not in told:
        expected["settings"]["calibration"] = {name: made[name] for name in made if name in told}
    if "names" not in found:  # journals did not always have them
        expected.pop("names", None)
    if version == FIRST_VERSION:
        expected["settings"].pop(ASSUMED, None)
        del expected["key"]  # some of them do not have, or have less of, the risk's split
        known = found.get("risk_split", {})
        split = {name: part for name, part in expected.pop("risk_split").items() if name in known}
        expected |= {"risk_split": split} if "risk_split" in found else {}
    if found.get("policies") != expected["policies"]:
        raise OtherPolicySet(
            f"{where}: belongs to the policy set with digest {str(found.get('policies'))[:16]}…, "
            f"got one with digest {str(expected['policies'])[:16]}…"
        )
    for name in [*expected, *found]:
        if name not in expected or name not in found:
            what = "must not have" if name in found else "must have"
            raise ArtifactError(f"{where}: row 0 {what} {name!r}")
        if canonical(found[name]) != canonical(expected[name]):
            raise ArtifactError(
                f"{where}: was begun with {name} {found[name]!r}, got a learner with {expected[name]!r}"
            )


class Replay:
    """A learner together with how much of what follows from it has been written."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.outstanding: Order | None = None
        self.events = 0  # of the learner's events, how many have been written
        self.decision: dict[str, Any] | None = None  # the latest written, without its episode
        self.rounding = 0.0  # by how much the numbers of rows that were followed differ from those computed here
        self._next: Order | None = None
        self._history: list[Outcome] = []  # told, and not yet taken by the learner, which takes all of it at once
        self._settled: LearnerState | None = None  # of which all consequences are written

    def next_rows(self) -> list[Entry]:
        """The rows up to and including the next order; none while one is outstanding."""
        if self.outstanding is not None:
            return []
        self.finish_history()
        entries = self.consequences(self.learner)
        self._next = order = self.learner.ask()
        draw = float(counter_uniforms(self.learner.seed, order.episode, 1)[0])
        return [*entries, ("order", {"episode": order.episode, "policy": order.policy_index, "draw": draw})]

    def consequences(self, learner: Learner) -> list[Entry]:
        """The rows between what `learner` was told last and its next order: events, and the decision if it is new."""
        if learner.state is self._settled:
            return []
        entries: list[Entry] = [("event", asdict(event)) for event in learner.events[self.events :]]
        decision = _decision(learner)
        if decision != self.decision and _difference(decision, self.decision)[0] > TOLERANCE:
            entries.append(("decision", {"episode": learner.state.episode, **decision}))
        return entries

    def history_rows(self, episodes: Sequence[Episode]) -> list[Entry]:
        """The rows that hold these episodes of the safe policy."""
        method, rows = self.learner.method, list[Entry]()
        for k, told in enumerate(episodes):
            plain = with_signals(record(told, len(method.units.budget), self.learner.horizon), method, SAFE)
            rows.append(("history", {"episode": k, **plain}))
        return rows

    def take_history(self, episodes: Sequence[Episode]) -> list[Entry]:
        """Let the learner take these episodes; the rows that hold them."""
        rows = self.history_rows(episodes)
        self._history = [outcome_of(payload, self.learner.method.units.discount) for _, payload in rows]
        self.finish_history()
        return rows

    def finish_history(self) -> None:
        """Let the learner take the history, if there is one that it has not taken."""
        if self._history:
            moved = copy.copy(self.learner)
            moved.learn_from_history(Outcomes.joined([Outcomes.single(each) for each in self._history]))
            self._history = []
            self.learner.state, self.learner.events = moved.state, moved.events

    def settle(self) -> None:
        """Take note that all consequences of the state are written: the next order does not compute them again."""
        self._settled = self.learner.state

    def note_written(self, entries: list[Entry]) -> None:
        """Take note that these rows are written."""
        for kind, payload in entries:
            if kind == "event":
                self.events += 1
            elif kind == "decision":
                self.decision = {name: value for name, value in payload.items() if name != "episode"}
            else:
                self.outstanding = self._next

    def after(self, kind: str, payload: Mapping[str, Any]) -> Learner:
        """The learner once the outstanding order was told or abandoned like this; the one here does not move."""
        if self.outstanding is None:
            raise InvalidInput("there is no order to tell of; ask for one")
        moved = copy.copy(self.learner)
        if kind == "abandoned":
            moved.abandon(self.outstanding)
        elif payload.get("breach"):
            moved.distrust(self.outstanding, breach(payload, moved.method.units) or "observed beyond a declared range")
        else:
            moved.tell(self.outstanding, outcome_of(payload, moved.method.units.discount))
        return moved

    def move(self, learner: Learner) -> None:
        """Make what `after` returned the state."""
        self.learner.state, self.learner.events = learner.state, learner.events
        self.outstanding = self._next = None

    def follow(self, row: JournalRow) -> None:
        """Take over a row that was written earlier, or say why it does not follow."""
        if row.kind in TOLD:
            self._follow_outcome(row)
            return
        if row.kind == "history":
            self._follow_history(row)
            return
        following = self.next_rows()
        if not following:
            raise Departure(f"{row.kind!r} where the outcome of episode {self.learner.state.episode} must come")
        kind, expected = following[0]
        if row.kind != kind:
            raise Departure(f"{row.kind!r} where {kind!r} must come: {expected}")
        if kind == "order":  # the draw is exact on every machine
            check_written(kind, expected, row.payload)
        else:
            found = row.data
            check_written(kind, found, row.payload)
            size, different = _difference(_keep_message(found, json.loads(canonical(expected))), found)
            if size > TOLERANCE:
                raise Departure(f"{kind}: {different}")
            self.rounding = max(self.rounding, size)
            expected = found
        self.note_written([(kind, expected)])

    def _follow_outcome(self, row: JournalRow) -> None:
        payload = row.data
        if not isinstance(payload, dict):
            raise Departure("its payload must be an object")
        if self.outstanding is None or payload.get("episode") != self.outstanding.episode:
            raise Departure(f"tells of episode {payload.get('episode')!r}, which is not the one ordered last")
        try:
            plain = self.as_told(row.kind, payload, self.outstanding.policy_index)
            check_written(row.kind, {"episode": self.outstanding.episode, **plain}, row.payload)
            moved = self.after(row.kind, payload)
        except (InvalidInput, LookupError, TypeError, ValueError, ArithmeticError) as error:
            raise Departure(f"{row.kind} that would have been refused: {error}") from None
        self.move(moved)

    def _follow_history(self, row: JournalRow) -> None:
        payload = row.data
        if not isinstance(payload, dict) or "breach" in payload:
            raise Departure("history must be objects without a breach")
        if self.learner.history or self.decision is not None or self.events:
            raise Departure("history must follow row 0")
        try:
            plain = self.as_told(row.kind, payload, SAFE)
            check_written(row.kind, {"episode": len(self._history), **plain}, row.payload)
            self._history.append(outcome_of(payload, self.learner.method.units.discount))
        except (InvalidInput, LookupError, TypeError, ValueError, ArithmeticError) as error:
            raise Departure(f"{row.kind} that would have been refused: {error}") from None

    def as_told(self, kind: str, payload: Mapping[str, Any], policy: int) -> dict[str, Any]:
        """What would be written if it were told now, without the episode; signals as they were computed then."""
        if kind == "abandoned":
            return {"reason": check_reason(payload.get("reason"))}
        method = self.learner.method
        plain = with_signals(_rebuild_record(payload, self.learner), method, policy)
        if "signals" in payload and "actions" in payload:
            size, different = _difference(plain.get("signals"), payload["signals"], "signals")
            if size > TOLERANCE:
                raise Departure(f"outcome: {different}, computed from what was observed")
            self.rounding = max(self.rounding, size)
            plain["signals"] = payload["signals"]
        if payload.get("breach"):
            return {**plain, "breach": True}
        outside = breach(plain, method.units)
        if outside:
            raise InvalidInput(outside)
        return plain


def _rebuild_record(payload: Mapping[str, Any], learner: Learner) -> dict[str, Any]:
    told = told_in(payload)
    _check_features(told, learner)
    return record(told, len(learner.method.units.budget), learner.horizon)


def _check_features(told: Mapping[str, Any], learner: Learner) -> None:
    reads = signals_of(learner.method)
    own = None if reads is None else reads.own
    if own is not None and own.function is None and ("observations" in told or "transitions" in told):
        raise FeaturesMissing(
            f"signals in the journal were computed by features {own.name!r}, which are not here: load the policy set "
            "in Python with features=..."
        )


def check_written(kind: str, expected: Any, payload: bytes) -> None:
    """To the byte."""
    if canonical(expected) != payload:
        found = payload[:200].decode(errors="replace")
        raise Departure(f"{kind} must be written {canonical(expected)[:200].decode(errors='replace')}, found {found}")


def _decision(learner: Learner) -> dict[str, Any]:
    deployed, account = learner.deployed, learner.certificate()
    return {
        "policies": deployed.indices.tolist(),
        "weights": deployed.weights.tolist(),
        "weight": deployed.weight,
        "surviving": account.surviving,
        "total": account.total,
        "margin": None if account.margin is None else account.margin.tolist(),
        "certified": learner.certified,
    }


def _keep_message(found: Any, expected: dict[str, Any]) -> dict[str, Any]:
    """An event is known by its episode, kind and numbers. Its sentence is for people, and later versions may word it
    otherwise: the row keeps the one that it was written with."""
    sentence = found.get("message") if isinstance(found, dict) else None
    return {**expected, "message": sentence} if "message" in expected and isinstance(sentence, str) else expected


def _difference(expected: Any, found: Any, where: str = "") -> tuple[float, str]:
    """By how much two payloads differ at most, and where: floats by rounding, all else not at all or infinitely."""
    text = f"{where or 'payload'} must be {expected!r}, found {found!r}"
    if type(expected) is not type(found):
        return math.inf, text
    if isinstance(expected, float):
        return abs(expected - found) / max(1.0, abs(expected), abs(found)), text
    if isinstance(expected, dict) and expected.keys() == found.keys():
        parts = [_difference(expected[key], found[key], f"{where}.{key}" if where else key) for key in expected]
    elif isinstance(expected, list) and len(expected) == len(found):
        parts = [_difference(a, b, f"{where}[{k}]") for k, (a, b) in enumerate(zip(expected, found, strict=True))]
    else:
        return (0.0 if expected == found else math.inf), text
    return max(parts, key=lambda part: part[0], default=(0.0, ""))
