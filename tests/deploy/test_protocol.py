"""JSON lines: every line gets one answer, errors are answers too, and the journal is the one that Python writes."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deployments
import numpy as np
import pytest
from deployments import fresh, told

from surefoot import bounded_json
from surefoot.cli import deploy as commands
from surefoot.deploy import chain, outcomes, protocol
from surefoot.deploy.journal import JournalError
from surefoot.deploy.session import Deployment
from surefoot.deploy.status import read_status
from surefoot.errors import InvalidInput
from surefoot.learning.learner import Order
from surefoot.methods import learner

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs" / "deployment-protocol.schema.json").read_text(encoding="utf-8")
)


def ask(deployment: Deployment, **request: Any) -> dict[str, Any]:
    answer = protocol.answer(deployment, json.dumps(request).encode())
    json.dumps(answer, allow_nan=False)
    return answer


def test_a_controller_in_another_language_writes_the_same_journal(tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "python", 30)
    with Deployment.open(tmp_path / "lines", fresh()) as deployment:
        for k in range(30):
            answer = ask(deployment, do="ask", id=k)
            assert answer["ok"]
            assert answer["id"] == k
            order = answer["order"]
            assert order["episode"] == k
            assert order["horizon"] == deployments.HORIZON
            assert not order["fallback"]
            tables = ask(deployment, do="policy", policy=order["policy"])["policy"]
            assert tables["kind"] == "tabular"
            policy = deployment.learner.policy(order["policy"])
            assert tables["arrays"]["probabilities"] == policy.to_arrays()["probabilities"].tolist()
            if k % 7 == 1:
                answer = ask(deployment, do="abandon", episode=k, reason="operator pressed stop")
            else:
                outcome = told(Order(k, order["policy"], policy, 0.0, deployment.learner.deployed))
                answer = ask(deployment, do="tell", episode=k, **outcome)
            assert answer == {"ok": True, "episodes": k + 1}
        assert ask(deployment, do="status")["status"]["episodes"] == 30
    assert deployments.contents(tmp_path / "lines") == deployments.contents(tmp_path / "python")


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        (b"nonsense", "request", "one JSON object"),
        (b"[1, 2]", "request", "one JSON object, got list"),
        (b"{}", "request", "do must be one of"),
        (b'{"do": "dance"}', "request", "do must be one of"),
        (b'{"do": ["ask"]}', "request", "do must be one of"),
        (b'{"do": "ask", "now": true}', "request", "takes no field 'now'"),
        (b'{"do": "tell", "episode": 0, "reward": NaN, "cost": 1}', "request", "NaN is not a number"),
        (b'{"do": "tell", "episode": 0, "reward": 1e999, "cost": 1}', "invalid", "reward"),
        (b'{"do": "tell", "reward": 1, "cost": 1}', "invalid", "episode must be the number"),
        (b'{"do": "tell", "episode": "0", "reward": 1, "cost": 1}', "invalid", "episode must be the number"),
        (b'{"do": "tell", "episode": 9, "reward": 1, "cost": 1}', "invalid", "was not ordered"),
        (b'{"do": "tell", "episode": 0, "reward": {}, "cost": 1}', "invalid", "reward must be numbers"),
        (b'{"do": "tell", "episode": 0, "reward": 99, "cost": 1, "first_state": 0}', "invalid", "must lie in"),
        (b'{"do": "tell", "episode": 0, "reward": 1, "cost": 1, "breach": "yes"}', "invalid", "breach must be"),
        (b'{"do": "abandon", "episode": 0}', "invalid", "reason must be"),
        (b'{"do": "policy", "policy": 99}', "invalid", "does not exist"),
        (b'{"do": "policy", "policy": -1}', "invalid", "policy must be"),
        (b'{"do": "policy"}', "invalid", "policy must be"),
        (b"\xff\xfe", "request", "one JSON object"),
        (b"[" * 100_000, "request", "must be nested at most 16 levels"),
        (b'{"do": "ask", "id": 1e999}', "request", "id must hold finite numbers"),
        (b'{"do": "ask", "id": {"a": [-1e999]}}', "request", "id must hold finite numbers"),
        (b'{"do": "ask", "id": "]]]]", "x": ' + b"[" * 17 + b"]" * 17 + b"}", "request", "16 levels"),
        (b'{"do": "ask", "id": "\\"]]]]", "x": ' + b"[" * 17 + b"]" * 17 + b"}", "request", "16 levels"),
        ('{"do": "ask"}'.encode("utf-16"), "request", "one JSON object"),
        (b'{"do": "tell", "episode": 0, "costs": [1], "rewards": ["1"]}', "invalid", "rewards must be numbers"),
        (b'{"do": "tell", "episode": 0, "costs": [1], "rewards": [true]}', "invalid", "rewards must be numbers"),
        (b'{"do": "tell", "episode": 0, "transitions": [[0, 0, "", 1, 0]]}', "invalid", "transitions must be numbers"),
        (b'{"do": "tell", "episode": 0, "transitions": {"states": [["x"]]}}', "invalid", "states must be numbers"),
        (b'{"do": "tell", "episode": 0, "reward": 0.9, "reward": 0.1, "cost": 0.5}', "request", "more than once"),
        (b'{"do": "ask", "id": {"a": 1, "a": 2}}', "request", "more than once"),
    ],
)
def test_bad_requests_get_an_answer_and_change_nothing(tmp_path: Path, line: bytes, kind: str, message: str) -> None:
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        deployment.ask()
        head = deployment.head()
        answer = protocol.answer(deployment, line)
        assert answer["ok"] is False
        assert answer["error"]["kind"] == kind
        assert message in answer["error"]["message"]
        assert "Traceback" not in answer["error"]["message"]
        assert deployment.head() == head


@pytest.mark.parametrize(
    "line",
    [
        b'{"id": 7}',
        b'{"do": "dance", "id": 7}',
        b'{"do": "ask", "id": 7, "now": true}',
        b'{"do": "tell", "id": 7, "episode": "x"}',
    ],
)
def test_an_answer_carries_the_id_wherever_one_can_be_read(tmp_path: Path, line: bytes) -> None:
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        answer = protocol.answer(deployment, line)
        assert (answer["id"], answer["ok"]) == (7, False)


def test_an_answer_that_json_cannot_hold_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        status = SimpleNamespace(as_dict=lambda: {"margin": float("nan")})
        monkeypatch.setattr(Deployment, "status", lambda self: status)
        protocol.serve(deployment, [b'{"do": "status"}'], sent.append)
    assert json.loads(sent[0])["error"]["kind"] == "internal"


def test_no_error_repeats_more_than_the_beginning_of_a_value(tmp_path: Path) -> None:
    long = "x" * 100_000
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        deployment.ask()
        for request in (
            {"do": long},
            {"do": "ask", long: 1},
            {"do": "tell", "episode": long},
            {"do": "tell", "episode": 0, "breach": long},
            {"do": "tell", "episode": 0, "rewards": [long]},
            {"do": "tell", "episode": 0, "transitions": [[0] * 10_000]},
            {"do": "tell", "episode": 0, "transitions": {long: 1}},
            {"do": "abandon", "episode": 0, "reason": long},
            {"do": "policy", "policy": long},
            {"do": "policy", "policy": 10**4000},
        ):
            message = ask(deployment, **request)["error"]["message"]
            assert len(message) <= 1000
            assert long[:300] not in message


def test_lines_beyond_the_limits_are_refused_unparsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("parsed")

    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        monkeypatch.setattr(bounded_json.json, "loads", refuse)
        for line, message in (
            (b" " * (protocol.LIMITS.size + 1), f"at most {protocol.LIMITS.size} bytes"),
            (b"1," * (protocol.LIMITS.values + 1), f"at most {protocol.LIMITS.values} values"),
            (b"[]" * (protocol.LIMITS.values + 1), f"at most {protocol.LIMITS.values} values"),
            (b'{"":' * 17 + b"1" + b"}" * 17, "at most 16 levels deep"),
        ):
            answer = protocol.answer(deployment, line)
            assert (answer["error"]["kind"], message in answer["error"]["message"]) == ("request", True)


def test_the_limits_leave_room_for_an_episode_of_100_000_steps() -> None:
    number, state = repr(-1 / 3), "100000"
    steps = [f"[{state}, 10, {number}, {number}, {state}]"] * 100_000
    bounded_json.check(
        ('{"do": "tell", "episode": 1, "transitions": [' + ", ".join(steps) + "]}\n").encode(), protocol.LIMITS
    )


def test_an_outcome_that_no_row_can_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written must be read again: an honest journal never becomes too large to open."""
    for module in (chain, outcomes):  # a tenth of what they are
        size, values = module.LIMITS.size // 10, module.LIMITS.values // 10
        monkeypatch.setattr(module, "LIMITS", replace(module.LIMITS, size=size, values=values))
    made = learner(deployments.tiny_set(), method="certified-returns", episodes=3000, risk=0.3, horizon=200_000)
    with Deployment.open(tmp_path / "journal", made) as deployment:
        order = deployment.ask()
        for steps in (52_000, 70_000):  # too long, and too many values
            rewards, costs = np.full(steps, 0.1234567890123456), np.full(steps, 0.5)
            with pytest.raises(InvalidInput, match="an outcome in the journal must h"):
                deployment.tell(order, rewards=rewards, costs=costs, first_state=0)
        deployment.tell(order, rewards=rewards[:10_000], costs=costs[:10_000], first_state=0)
    assert read_status(tmp_path / "journal").episodes == 1


def test_brackets_in_a_text_are_not_nesting(tmp_path: Path) -> None:
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        text = "[{" * 50 + '\\"[' * 20
        assert ask(deployment, do="status", id=text)["id"] == text


@pytest.mark.parametrize("beyond", [1, 2, 99, 100, 101, 102, 200, 201, 202, 350])
def test_the_rest_of_a_line_that_is_too_long_is_no_request(
    beyond: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands at the boundary of what is read at once."""
    monkeypatch.setattr(commands, "LONGEST_LINE", 100)
    monkeypatch.setattr(protocol, "LIMITS", replace(protocol.LIMITS, size=100))
    smuggled = b'{"do": "abandon", "episode": 0, "reason": "smuggled"}'
    stream = io.BytesIO(b'{"do": "ask"}\n' + b"x" * (100 + beyond) + smuggled + b'\n{"do": "status"}\n{"do": "ask"}')
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream))
    sent: list[str] = []
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        protocol.serve(deployment, commands._lines(), sent.append)
    first, refused, status, again = map(json.loads, sent)
    assert "at most 100 bytes" in refused["error"]["message"]
    assert status["status"]["episodes"] == 0
    assert again == first


def test_a_journal_that_cannot_be_written_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        order = ask(deployment, do="ask")["order"]

        def refuse(*_: object) -> None:
            raise JournalError("disk full")

        monkeypatch.setattr(deployment._journal, "append", refuse)
        outcome = {"reward": 1.0, "cost": 0.5, "first_state": 0}
        answer = ask(deployment, do="tell", episode=order["episode"], **outcome)
        assert answer["error"]["kind"] == "journal"
        fallback = ask(deployment, do="ask")["order"]
        assert fallback["fallback"]
        assert (fallback["episode"], fallback["policy"]) == (None, 0)
        assert "disk full" in fallback["why"]
        assert ask(deployment, do="tell", episode=None, **outcome)["ok"]
        assert ask(deployment, do="status")["status"]["state"] == "fault"
        monkeypatch.undo()
        assert ask(deployment, do="ask")["order"]["episode"] == 1  # what was told has been recorded meanwhile


def test_an_internal_error_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        monkeypatch.setattr(Deployment, "status", lambda self: 1 / 0)
        assert ask(deployment, do="status")["error"]["kind"] == "internal"


def test_the_schema_names_the_same_fields() -> None:
    """docs/deployment-protocol.schema.json against the code."""
    requests = {each["properties"]["do"]["const"]: each for each in SCHEMA["$defs"]["request"]["oneOf"]}
    assert set(requests) == set(protocol.FIELDS)
    for what, fields in protocol.FIELDS.items():
        assert set(requests[what]["properties"]) == fields | {"do", "id"}
        assert requests[what]["additionalProperties"] is False


def test_the_schema_names_the_same_limits() -> None:
    limits = (f"{protocol.LIMITS.size} bytes", f"{protocol.LIMITS.values} values", f"{protocol.LIMITS.depth} levels")
    assert [limit for limit in limits if limit not in SCHEMA["description"]] == []
