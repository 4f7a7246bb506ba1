"""What a journal must say: the rows that follow from a learner and from what it was told. No files here.

A session writes these rows and a check compares with them, so that both follow one rule. Kinds of rows:

    open       what is deployed, with which settings, from which policy set
    event      something a reader should know: an elimination, an alarm
    decision   the mixture from now on, and what the method says of it
    order      one episode: which policy, and the random number that drew it
    outcome    what was told of it
    abandoned  that it has no outcome, and why
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from surefoot.adapt.learner import Learner, Order, counter_uniforms
from surefoot.deploy.journal import Entry
from surefoot.deploy.outcomes import KEYS, breach, outcome_of, record
from surefoot.errors import ArtifactError, InvalidInput

FORMAT, FORMAT_VERSION = "surefoot-journal", (1, 0)
TOLD = ("outcome", "abandoned")

# Other processors and libraries round differently; a weight computed again may differ by this much.
TOLERANCE = 1e-9


class Departure(Exception):
    """A row does not follow from those before it."""


class OtherPolicySet(ArtifactError):
    """Nothing is wrong with the journal: it belongs to another policy set."""


def header(learner: Learner) -> dict[str, Any]:
    """The payload of row 0."""
    units = learner.method.units
    policies = getattr(learner.method, "policies", None)
    return {
        "format": FORMAT,
        "format_version": list(FORMAT_VERSION),
        "method": learner.name,
        "certified": learner.method.certified,
        "policies": None if policies is None else policies.digest(),
        "settings": dict(learner.settings),
        "risk_split": learner.risk_split,
        "seed": learner.seed,
        "horizon": learner.horizon,
        "discount": units.discount,
        "budget": units.budget.tolist(),
        "reward_range": list(units.reward_range),
        "cost_range": units.cost_range.tolist(),
    }


def check_header(found: Any, learner: Learner, where: str) -> None:
    """Refuse a journal of another format, policy set or setting, naming what differs."""
    if not isinstance(found, Mapping) or found.get("format") != FORMAT:
        raise ArtifactError(f"{where}: row 0 must open a {FORMAT}")
    version = found.get("format_version")
    if not isinstance(version, list) or version[:1] != [FORMAT_VERSION[0]]:
        raise ArtifactError(f"{where}: format_version must be [{FORMAT_VERSION[0]}, …], found {version!r}")
    expected = header(learner)
    if found.get("policies") != expected["policies"]:
        raise OtherPolicySet(
            f"{where}: belongs to the policy set with digest {str(found.get('policies'))[:16]}…, "
            f"got one with digest {str(expected['policies'])[:16]}…"
        )
    for name in ("settings", "method", "seed", "horizon", "discount", "budget", "reward_range", "cost_range"):
        if found.get(name) != expected[name]:
            raise ArtifactError(
                f"{where}: was begun with {name} {found.get(name)!r}, got a learner with {expected[name]!r}"
            )


class Replay:
    """A learner together with how much of what follows from it has been written."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.outstanding: Order | None = None
        self.events = 0  # of the learner's events, how many have been written
        self.decision: dict[str, Any] | None = None  # the latest written, without its episode

    def owed(self) -> list[Entry]:
        """The rows up to and including the next order; none while one is outstanding."""
        if self.outstanding is not None:
            return []
        learner = self.learner
        entries: list[Entry] = [("event", asdict(event)) for event in learner.events[self.events :]]
        decision = _decision(learner)
        if decision != self.decision and (self.decision is None or _difference(decision, self.decision)):
            entries.append(("decision", {"episode": learner.state.episode, **decision}))
        order = learner.ask()
        draw = float(counter_uniforms(learner.seed, order.episode, 1)[0])
        return [*entries, ("order", {"episode": order.episode, "policy": order.policy_index, "draw": draw})]

    def wrote(self, entries: list[Entry]) -> None:
        """Take note that these owed rows are written."""
        for kind, payload in entries:
            if kind == "event":
                self.events += 1
            elif kind == "decision":
                self.decision = {name: value for name, value in payload.items() if name != "episode"}
            else:
                self.outstanding = self.learner.ask()

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
        self.outstanding = None

    def follow(self, kind: str, payload: Any) -> None:
        """Take over a row that was written earlier, or say why it does not follow."""
        if not isinstance(payload, dict):
            raise Departure("its payload must be an object")
        if kind in TOLD:
            self._follow_told(kind, payload)
            return
        owed = self.owed()
        if not owed:
            raise Departure(f"{kind!r} where the outcome of episode {self._expected_episode()} must come")
        if kind != owed[0][0]:
            raise Departure(f"{kind!r} where {owed[0][0]!r} must come: {owed[0][1]}")
        different = _difference(owed[0][1], payload)
        if different:
            raise Departure(f"{kind}: {different}")
        self.wrote([owed[0]] if kind != "decision" else [(kind, payload)])

    def _follow_told(self, kind: str, payload: dict[str, Any]) -> None:
        if self.outstanding is None or payload.get("episode") != self.outstanding.episode:
            raise Departure(f"tells of episode {payload.get('episode')!r}, which is not the one ordered last")
        try:
            if kind == "outcome":
                _check_told(payload, self.learner)
            moved = self.after(kind, payload)
        except (InvalidInput, KeyError, TypeError, ValueError) as error:
            raise Departure(f"{kind} that would have been refused: {error}") from None
        self.move(moved)

    def _expected_episode(self) -> int:
        return self.learner.state.episode


def _check_told(payload: dict[str, Any], learner: Learner) -> None:
    """As if it were told now."""
    units = learner.method.units
    told = {name: value for name, value in payload.items() if name in KEYS}
    states = {name: told.pop(name) for name in ("states", "actions") if name in told}
    if "actions" in states:
        plain = record(len(units.budget), learner.horizon, **told, transitions=states)
    else:
        first_state = states["states"][0] if states else None
        plain = record(len(units.budget), learner.horizon, **told, first_state=first_state)
    expected = {"episode": payload["episode"], **plain, **({"breach": True} if payload.get("breach") else {})}
    if expected != payload:
        raise InvalidInput("it is not written as it would be")
    if not payload.get("breach") and breach(plain, units):
        raise InvalidInput(str(breach(plain, units)))


def _decision(learner: Learner) -> dict[str, Any]:
    deployed, account = learner.deployed, learner.account()
    return {
        "policies": deployed.indices.tolist(),
        "weights": deployed.weights.tolist(),
        "weight": deployed.weight,
        "surviving": account.surviving,
        "total": account.total,
        "margin": None if account.margin is None else account.margin.tolist(),
        "certified": learner.certified,
    }


def _difference(expected: Any, found: Any, where: str = "") -> str | None:
    """What differs between two payloads by more than rounding."""
    if isinstance(expected, float) and isinstance(found, float | int) and not isinstance(found, bool):
        close = math.isclose(expected, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        return None if close else f"{where} must be {expected!r}, found {found!r}"
    if isinstance(expected, Mapping) and isinstance(found, Mapping) and expected.keys() == found.keys():
        parts = [(expected[key], found[key], f"{where}.{key}" if where else str(key)) for key in expected]
    elif isinstance(expected, list | tuple) and isinstance(found, list | tuple) and len(expected) == len(found):
        parts = [(a, b, f"{where}[{k}]") for k, (a, b) in enumerate(zip(expected, found, strict=True))]
    else:
        same = type(expected) is type(found) and expected == found
        return None if same else f"{where or 'payload'} must be {expected!r}, found {found!r}"
    return next((text for text in (_difference(*part) for part in parts) if text), None)
