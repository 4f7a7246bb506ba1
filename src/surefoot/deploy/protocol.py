"""The deployment in JSON lines, for controllers in any language: one request a line, one answer a line.

    {"do": "ask"}                                         {"ok": true, "order": {"episode": 0, "policy": 0, …}}
    {"do": "tell", "episode": 0, "reward": 7.1, "cost": 0.8}                    {"ok": true, "episodes": 1}
    {"do": "abandon", "episode": 1, "reason": "operator pressed stop"}          {"ok": true, "episodes": 2}
    {"do": "status"}                                      {"ok": true, "status": {"state": "learning", …}}
    {"do": "policy", "policy": 3}                         {"ok": true, "policy": {"kind": "tabular", "arrays": …}}

An answer to a request that cannot be met is {"ok": false, "error": {"kind": …, "message": …}}, and nothing has changed.
docs/deployment-protocol.schema.json has all fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from surefoot.adapt.learner import SAFE, SAFE_ONLY, Order
from surefoot.deploy.journal import JournalError
from surefoot.deploy.session import FALLBACK, Deployment
from surefoot.errors import InvalidInput, SurefootError

# Longer lines are refused unread: an episode of a million transitions fits.
LONGEST_LINE = 64 * 2**20

FIELDS: dict[str, frozenset[str]] = {
    "ask": frozenset(),
    "tell": frozenset(
        {"episode", "reward", "cost", "rewards", "costs", "transitions", "first_state", "breach"},
    ),
    "abandon": frozenset({"episode", "reason"}),
    "status": frozenset(),
    "policy": frozenset({"policy"}),
}


class BadRequest(InvalidInput):
    """A line that is no request."""


def serve(deployment: Deployment, lines: Iterable[bytes], send: Callable[[str], None]) -> None:
    """Answer every line in turn."""
    for line in lines:
        if line.strip():
            send(json.dumps(answer(deployment, line), allow_nan=False))


def answer(deployment: Deployment, line: bytes) -> dict[str, Any]:
    request: Mapping[str, Any] = {}
    try:
        request = _parsed(line)
        reply = {"ok": True, **_done(deployment, request)}
    except Exception as error:  # a controller must get an answer, whatever happens here
        reply = failure(error)
    return {**({"id": request["id"]} if "id" in request else {}), **reply}


def failure(error: Exception) -> dict[str, Any]:
    """kind: "request" (malformed), "invalid" (refused), "journal" (not recorded: try again), "internal"."""
    match error:
        case BadRequest():
            kind = "request"
        case InvalidInput():
            kind = "invalid"
        case JournalError():
            kind = "journal"
        case SurefootError():
            kind = "artifact"
        case _:
            kind = "internal"
    message = str(error) if kind != "internal" else f"{type(error).__name__}: {error}"
    return {"ok": False, "error": {"kind": kind, "message": " ".join(message.split())}}


def _parsed(line: bytes) -> Mapping[str, Any]:
    if len(line) > LONGEST_LINE:
        raise BadRequest(f"a line must have at most {LONGEST_LINE} bytes")
    try:
        request = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"a line must be one JSON object: {error}") from None
    if not isinstance(request, dict):
        raise BadRequest(f"a line must be one JSON object, got {type(request).__name__}")
    what = request.get("do")
    if not isinstance(what, str) or what not in FIELDS:
        raise BadRequest(f"do must be one of {', '.join(FIELDS)}, got {what!r}"[:200])
    unknown = sorted(set(request) - FIELDS[what] - {"do", "id"})
    if unknown:
        raise BadRequest(f"{what} takes no field {unknown[0]!r}"[:200])
    return request


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _done(deployment: Deployment, request: Mapping[str, Any]) -> dict[str, Any]:
    match request["do"]:
        case "ask":
            return {"order": _order(deployment, deployment.ask())}
        case "tell":
            told = {name: value for name, value in request.items() if name not in ("do", "id", "episode")}
            if not isinstance(told.get("breach", False), bool):
                raise InvalidInput(f"breach must be true or false, got {told['breach']!r}"[:200])
            deployment.tell(_named(deployment, request), **told)
            return {"episodes": deployment.learner.state.episode}
        case "abandon":
            deployment.abandon(_named(deployment, request), request.get("reason", ""))
            return {"episodes": deployment.learner.state.episode}
        case "policy":
            return {"policy": _policy(deployment, request.get("policy"))}
        case _:
            return {"status": deployment.status().as_dict()}


def _order(deployment: Deployment, order: Order) -> dict[str, Any]:
    fallback = order.episode == FALLBACK
    return {
        "episode": None if fallback else order.episode,
        "policy": order.policy_index,
        "weight": order.weight,
        "horizon": deployment.learner.horizon,
        "fallback": fallback,
        "why": deployment.status().why if fallback else "",
    }


def _named(deployment: Deployment, request: Mapping[str, Any]) -> Order:
    """The order of the episode named; of a fallback order the episode is null."""
    episode, outstanding = request.get("episode", "nothing"), deployment.outstanding
    if episode is None:
        episode = FALLBACK
    elif not isinstance(episode, int) or isinstance(episode, bool) or episode < 0:
        raise InvalidInput(f"episode must be the number in the order, or null for a fallback order, got {episode!r}")
    if outstanding is not None and outstanding.episode == episode:
        return outstanding
    return Order(episode, SAFE, deployment.learner.policy(SAFE), 0.0, SAFE_ONLY)


def _policy(deployment: Deployment, index: Any) -> dict[str, Any]:
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise InvalidInput(f"policy must be the number in an order, got {index!r}"[:200])
    try:
        policy = deployment.learner.policy(index)
    except IndexError:
        raise InvalidInput(f"policy must be the number in an order, got {index}, which does not exist") from None
    return {"kind": policy.kind, "arrays": {name: array.tolist() for name, array in policy.to_arrays().items()}}
