"""Lines of every kind, sensible, damaged and hostile: each gets one answer, and the journal verifies afterwards."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployments import fresh, told

from peak_memory import in_a_process
from surefoot.deploy import protocol
from surefoot.deploy.session import Deployment
from surefoot.deploy.verify import verify

METHODS = (
    "safe-only",
    "paper",
    "published",
    "certified-returns",
    "certified-likelihood",
    "certified-ball",
    "certified-model-free",
    "certified-signals",
)

HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 7, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 10**400, 0.5, -0.0, 1e308, 5e-324),
    *(float("inf"), float("nan"), "", "0", "x" * 300, "\0", "\ud800", "é\n", "NaN", [], {}, [[]], [[], {}], {"a": [1]}),
    *([0.5] * 50, [[0.5, 0.5]] * 50, ["x" * 999, ""], [True], [None], [[1], [1, 2]], [10**400], [2**64, -1], {"": 0}),
)
FIELDS = sorted({name for fields in protocol.FIELDS.values() for name in fields} | {"do", "id", "states", "extra"})


def fuzz(lines: int, seed: int) -> dict[str, Any]:
    """Send that many lines to each method; returns how many answers there were of each kind."""
    kinds: Counter[str] = Counter()
    for number, method in enumerate(METHODS):
        rng = np.random.default_rng([seed, number])
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        with tempfile.TemporaryDirectory(dir=memory) as folder:
            journal = Path(folder) / "journal"
            answers: list[str] = []
            with Deployment.open(journal, fresh(method)) as deployment:
                protocol.serve(deployment, written(rng, deployment, method, lines), answers.append)
                episodes = deployment.status().episodes
            assert len(answers) == lines
            kinds.update(kind_of(answer) for answer in answers)
            verdict = verify(journal, fresh(method))
            assert verdict.holds, verdict.reason
            assert verdict.episodes == episodes
    return {"lines": lines * len(METHODS), "kinds": dict(kinds)}


def kind_of(answer: str) -> str:
    found = json.loads(answer)
    assert "\n" not in answer
    return "ok" if found["ok"] is True else str(found["error"]["kind"])


# ---------------------------------------------------------------------------------------------------------- the grammar


def written(rng: np.random.Generator, deployment: Deployment, method: str, count: int) -> Iterator[bytes]:
    """Requests as a controller writes them, most of them spoilt in one way or another; no line is blank."""
    for _ in range(count):
        line = encoded(rng, spoilt(rng, request(rng, deployment, method)))
        while rng.random() < 0.3:
            line = damaged(rng, line)
        yield (line.replace(b"\n", b" ").strip() or b"0") + b"\n"


def request(rng: np.random.Generator, deployment: Deployment, method: str) -> dict[str, Any]:
    """A request that can be met."""
    what = str(rng.choice(["ask", "tell", "tell", "abandon", "status", "policy"]))
    order = deployment.outstanding
    if what in ("tell", "abandon") and order is None:
        what = "ask"
    made: dict[str, Any] = {"do": what}
    if order is not None and what in ("tell", "abandon"):
        made["episode"] = order.episode
    if order is not None and what == "tell":
        made |= told(order, method)
    if what == "abandon":
        made["reason"] = "stopped"
    if what == "policy":
        made["policy"] = int(rng.integers(5))
    if rng.random() < 0.5:
        made["id"] = anything(rng)
    return made


def anything(rng: np.random.Generator) -> Any:
    return HOSTILE[rng.integers(len(HOSTILE))]


def spoilt(rng: np.random.Generator, value: Any) -> Any:
    """The same, or with one part replaced, left out, added or put inside another; anywhere."""
    if rng.random() < 0.4:
        return value
    if isinstance(value, dict) and value and rng.random() < 0.8:
        name = str(rng.choice(list(value)))
        match rng.integers(5):
            case 0:
                return {key: part for key, part in value.items() if key != name}
            case 1:
                return {**value, str(rng.choice(FIELDS)): anything(rng)}
            case 2:
                return {**value, name: anything(rng)}
            case _:
                return {**value, name: spoilt(rng, value[name])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = int(rng.integers(len(value)))
        match rng.integers(4):
            case 0:
                return value[:place]
            case 1:
                return [*value, *value[place:]]
            case _:
                return [*value[:place], spoilt(rng, value[place]), *value[place + 1 :]]
    if isinstance(value, float) and rng.random() < 0.5:
        return value + float(rng.normal()) * 10.0 ** int(rng.integers(-12, 4))
    return anything(rng) if rng.random() < 0.7 else [value]


def encoded(rng: np.random.Generator, value: Any) -> bytes:
    """JSON, now and then in another spelling or encoding; 1e999 where a number is infinite."""
    text = json.dumps(value, ensure_ascii=bool(rng.random() < 0.8))
    if rng.random() < 0.8:
        text = text.replace("Infinity", "1e999")
    if rng.random() < 0.02:
        return text.encode("utf-16", errors="surrogatepass")
    return text.encode("utf-8", errors="surrogatepass")


def damaged(rng: np.random.Generator, line: bytes) -> bytes:
    """Bytes changed, cut, doubled, put in front, or something else altogether."""
    place = int(rng.integers(len(line) + 1))
    match rng.integers(12):
        case 0:
            return line[:place]
        case 1:
            return line[:place] + rng.bytes(int(rng.integers(1, 9))) + line[place:]
        case 2:
            return line[:place] + line
        case 3:
            return rng.bytes(int(rng.integers(1, 200)))
        case 4:
            return line[:place] + b'[{":,]}\\"e9.'[int(rng.integers(12)) :][:1] + line[place + 1 :]
        case 5:
            return b"\xef\xbb\xbf" + line
        case 6:
            return line[:-1] + b',"do":"status"}'
        case 7:
            return b'{"do":"ask","id":' + b"[" * int(rng.integers(100)) + b"1" + b"]" * int(rng.integers(100)) + b"}"
        case 8:
            return b'{"do":"tell","episode":' + b"9" * int(rng.integers(1, 6000)) + b',"reward":1,"cost":1}'
        case 9 if rng.random() < 0.05:
            return huge(rng)
        case _:
            flipped = np.frombuffer(line, dtype=np.uint8).copy()
            for index in rng.integers(len(line), size=3) if line else ():
                flipped[index] ^= 1 << rng.integers(8)
            return flipped.tobytes()


def huge(rng: np.random.Generator) -> bytes:
    """About as much as a line may hold, or more."""
    size = int(protocol.LIMITS.size * rng.choice([0.1, 0.5, 1.5]))
    before, piece, after = (
        (b'{"do":"tell","episode":0,"costs":[1],"rewards":[', b"0.5,", b"1]}"),
        (b'{"do":"tell","episode":0,"transitions":[', b"[0,0,1,1,0],", b"[0,0,1,1,0]]}"),
        (b'{"do":"ask","id":[', b"[],", b"1]}"),
        (b'{"do":"ask","id":[', b'{"a":1},', b"1]}"),
        (b'{"do":"ask","id":', b"[", b"1"),
        (b'{"do":{', b'"a":{', b"}"),
        (b'{"do":"ask","id":"', b"\\\\", b'"}'),
        (b'{"do":"abandon","episode":0,"reason":"', "é".encode(), b'"}'),
        (b'{"do":"tell","episode":0,"costs":[1],"rewards":["' + b"x" * 10**6, b'","', b'"]}'),
    )[rng.integers(9)]
    return before + piece * (size // len(piece)) + after


# ------------------------------------------------------------------------------------------------------------ the tests


@pytest.mark.parametrize(
    ("lines", "seed"),
    [
        pytest.param(15, 0, id="120 lines"),
        pytest.param(7_500, 1, id="60000 lines", marks=pytest.mark.long),
    ],
)
def test_every_line_gets_an_answer_and_the_journal_verifies(lines: int, seed: int) -> None:
    found = in_a_process("deploy", f"test_protocol_fuzz.fuzz({lines}, {seed})")
    assert found["lines"] == lines * len(METHODS)
    assert found["kinds"].keys() <= {"ok", "request", "invalid"}, found
    assert min(found["kinds"].values()) > found["lines"] / 20, found
    assert found["peak"] < 512, found
