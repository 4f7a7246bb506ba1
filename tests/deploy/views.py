"""All that shows where a deployment stands, read alike: what each view says, and which policy it says comes next."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from surefoot.cli import app
from surefoot.cli.deploy import _verdict_lines
from surefoot.deploy.page import View, deployment_page, read_history, view
from surefoot.deploy.protocol import answer
from surefoot.deploy.session import Deployment
from surefoot.deploy.status import facts, order_in_words
from surefoot.deploy.verify import verify
from surefoot.deploy.watch import Follower
from surefoot.learning.learner import Learner


@dataclass(frozen=True)
class Seen:
    """Attributes:
    text: all that is said.
    next_order: the policy, or the mixture, that is said to come next.
    certified: whether what is ordered is said to be certified.
    """

    text: str
    next_order: str
    certified: bool


Maker = Callable[[], Learner]


def of_deployment(path: Path, deployment: Deployment, maker: Maker) -> Seen:
    status = deployment.status()
    return Seen(str(facts(status)), order_in_words(status.next_order, status.names), status.certified)


def of_protocol(path: Path, deployment: Deployment, maker: Maker) -> Seen:
    return _of_json(answer(deployment, b'{"do": "status"}')["status"])


def of_command(path: Path, deployment: Deployment | None, maker: Maker) -> Seen:
    told = CliRunner().invoke(app, ["status", str(path), "--json"])
    assert told.exit_code == 0, told.output
    seen = _of_json(json.loads(told.stdout))
    return Seen(CliRunner().invoke(app, ["status", str(path)]).stdout, seen.next_order, seen.certified)


def of_page(path: Path, deployment: Deployment | None, maker: Maker) -> Seen:
    return _of_view(view(path.name, read_history(path)), deployment_page(path))


def of_watch(path: Path, deployment: Deployment | None, maker: Maker) -> Seen:
    follower = followed(path)
    return _of_view(follower.view, str(follower.view))


def of_verify(path: Path, deployment: Deployment | None, maker: Maker) -> Seen:
    made = maker()
    verdict = verify(path, made)
    assert verdict.holds, verdict.reason
    text = "\n".join(_verdict_lines(path, made, verdict))
    assert ("with a certificate" in text) == verdict.certified
    next_order = re.search("^next order: (.*)$", text, re.MULTILINE)
    return Seen(text, str(next_order and next_order[1]), verdict.certified)


def followed(path: Path, key: bytes | None = None) -> Follower:
    """Whoever watches, when all that is there has been read."""
    follower = Follower(path, key)
    follower.advance(60)
    return follower


READERS = {"command": of_command, "page": of_page, "watch": of_watch, "verify": of_verify}
VIEWS: dict[str, Callable[..., Seen]] = {"deployment": of_deployment, "protocol": of_protocol, **READERS}


def _of_json(status: dict[str, Any]) -> Seen:
    order = tuple((policy, chance) for policy, chance in status["next_order"])
    return Seen(json.dumps(status), order_in_words(order, status["names"]), status["certified"])


def _of_view(shown: View, text: str) -> Seen:
    margin, _, _, order, _ = shown.answers
    certified = margin.name == "Certified cost"
    assert certified == ("with a certificate" in str(shown.facts))
    assert certified or "is certified to stay" not in text
    return Seen(text, order.value, certified)
