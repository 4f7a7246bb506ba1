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
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from surefoot.bounded_json import Limits, parse
from surefoot.cmdp.external_policy import ExternalPolicy
from surefoot.deploy import outcomes
from surefoot.deploy.journal import JournalError
from surefoot.deploy.session import FALLBACK, Deployment
from surefoot.errors import InvalidInput, SurefootError
from surefoot.learning.learner import Order
from surefoot.learning.method import SAFE, SAFE_MIXTURE

# Lines beyond these are refused unparsed, so that none takes much memory. An episode of 100,000 steps fits, with state,
# action, reward and cost of each in 80 bytes; or of 60,000 with four observations and an action.
LONGEST_LINE = 8 * 2**20  # bytes, with the end of line
LIMITS = Limits(size=LONGEST_LINE, values=1_000_000, depth=16)

LONGEST_ECHO = 200  # characters of a value that an error repeats
LONGEST_MESSAGE = 1000

FIELDS: dict[str, frozenset[str]] = {
    "ask": frozenset(),
    "tell": outcomes.FIELDS | {"episode"},
    "abandon": frozenset({"episode", "reason"}),
    "status": frozenset(),
    "policy": frozenset({"policy"}),
}


class BadRequest(InvalidInput):
    """A line that is no request."""


def serve(deployment: Deployment, lines: Iterable[bytes | MemoryError], send: Callable[[str], None]) -> None:
    """Answer every line in turn, also one that memory could not hold."""
    for line in lines:
        if isinstance(line, MemoryError):
            send(_text(failure(line)))
        elif line and not line.isspace():
            send(_text(answer(deployment, line)))


def answer(deployment: Deployment, line: bytes) -> dict[str, Any]:
    request: Mapping[str, Any] = {}
    try:
        request = _parse_request(line)
        _check(request)
        reply = {"ok": True, **_dispatch(deployment, request)}
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
    return {"ok": False, "error": {"kind": kind, "message": " ".join(message.split())[:LONGEST_MESSAGE]}}


def _text(reply: Mapping[str, Any]) -> str:
    """One line, also of what JSON cannot hold."""
    try:
        return json.dumps(reply, allow_nan=False)
    except (ValueError, MemoryError) as error:
        return json.dumps(failure(error))


def _parse_request(line: bytes) -> Mapping[str, Any]:
    """The object in a line, with an id that can be repeated."""
    try:
        request = parse(line.removeprefix(BOM_UTF8), LIMITS)
    except ValueError as error:
        raise BadRequest(f"a line must be one JSON object: {error}") from None
    if not isinstance(request, dict):
        raise BadRequest(f"a line must be one JSON object, got {type(request).__name__}")
    try:
        json.dumps(request.get("id"), allow_nan=False)
    except ValueError:
        raise BadRequest("id must hold finite numbers, got one that is too large") from None
    return request


def _check(request: Mapping[str, Any]) -> None:
    """A known request with known fields."""
    what = request.get("do")
    if not isinstance(what, str) or what not in FIELDS:
        raise BadRequest(f"do must be one of {', '.join(FIELDS)}, got {_echo(what)}")
    unknown = sorted(set(request) - FIELDS[what] - {"do", "id"})
    if unknown:
        raise BadRequest(f"{what} takes no field {_echo(unknown[0])}")


def _echo(value: Any) -> str:
    return repr(value)[:LONGEST_ECHO]


def _dispatch(deployment: Deployment, request: Mapping[str, Any]) -> dict[str, Any]:
    match request["do"]:
        case "ask":
            return {"order": _order(deployment, deployment.ask())}
        case "tell":
            deployment.tell(_resolve_order(deployment, request), **_tell_arguments(request))
            return {"episodes": deployment.learner.state.episode}
        case "abandon":
            deployment.abandon(_resolve_order(deployment, request), request.get("reason", ""))
            return {"episodes": deployment.learner.state.episode}
        case "policy":
            return {"policy": _policy(deployment, request.get("policy"))}
        case _:
            return {"status": deployment.status().as_dict()}


def _tell_arguments(request: Mapping[str, Any]) -> dict[str, Any]:
    """What is told of the episode: numbers, lists of them, and objects of both."""
    told = {name: value for name, value in request.items() if name not in ("do", "id", "episode")}
    if not isinstance(told.get("breach", False), bool):
        raise InvalidInput(f"breach must be true or false, got {_echo(told['breach'])}")
    transitions = told.get("transitions")
    for name, value in [*told.items(), *(transitions.items() if isinstance(transitions, dict) else ())]:
        # NumPy would pad every text of a list to the longest one.
        if name not in ("breach", "transitions") and not _numbers(value):
            raise InvalidInput(f"{name} must be numbers, got {_echo(value)}")
    if isinstance(transitions, list) and not _numbers(transitions):
        raise InvalidInput(f"transitions must be numbers, got {_echo(transitions)}")
    return told


def _numbers(value: Any) -> bool:
    """Whether JSON holds nothing but numbers there, at any depth; null stands for nothing told."""
    if not isinstance(value, list):
        return value is None or type(value) in (int, float)
    kinds = set(map(type, value))
    return kinds <= {int, float, list} and (list not in kinds or all(map(_numbers, value)))


def _order(deployment: Deployment, order: Order) -> dict[str, Any]:
    fallback = order.episode == FALLBACK
    return {
        "episode": None if fallback else order.episode,
        "policy": order.policy_index,
        "name": order.policy_name,
        "weight": order.weight,
        "horizon": deployment.learner.horizon,
        "fallback": fallback,
        "why": deployment.status().why if fallback else "",
    }


def _resolve_order(deployment: Deployment, request: Mapping[str, Any]) -> Order:
    """The order of the episode named; of a fallback order the episode is null."""
    episode, outstanding = request.get("episode", "nothing"), deployment.outstanding
    if episode is None:
        episode = FALLBACK
    elif not isinstance(episode, int) or isinstance(episode, bool) or episode < 0:
        raise InvalidInput(
            f"episode must be the number in the order, or null for a fallback order, got {_echo(episode)}"
        )
    if outstanding is not None and outstanding.episode == episode:
        return outstanding
    return Order(episode, SAFE, deployment.learner.policy(SAFE), 0.0, SAFE_MIXTURE)


def _policy(deployment: Deployment, index: Any) -> dict[str, Any]:
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise InvalidInput(f"policy must be the number in an order, got {_echo(index)}")
    try:
        policy = deployment.learner.policy(index)
    except IndexError:
        raise InvalidInput(f"policy must be the number in an order, got {_echo(index)}, which does not exist") from None
    arrays = {name: array.tolist() for name, array in policy.to_arrays().items()}
    own = {"fingerprint": policy.fingerprint} if isinstance(policy, ExternalPolicy) else {}
    return {"kind": policy.kind, "name": deployment.learner.policy_name(index), **own, "arrays": arrays}
