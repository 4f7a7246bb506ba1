"""Snapshots: a learner's state as bytes and back, to the last bit, and never code."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path

import deployments
import numpy as np
import pytest
from deployments import fresh

from surefoot.deploy import snapshots
from surefoot.deploy.session import Deployment
from surefoot.deploy.verify import verify
from surefoot.lab.bench.deployment import long_journal
from surefoot.methods import METHODS
from surefoot.testing.learner_suite import fingerprint

KNOWN = snapshots.classes(fresh("certified"))


@pytest.mark.parametrize("method", METHODS)
def test_every_state_comes_back_to_the_last_bit(tmp_path: Path, method: str) -> None:
    with Deployment.open(tmp_path / "journal", fresh(method)) as deployment:
        deployments.drive(deployment, 40, method)
        state = deployment.learner.state, deployment.learner.events
        known = snapshots.classes(deployment.learner)
        content = snapshots.encode(state, known)
        assert fingerprint(snapshots.decode(content, known)) == fingerprint(state)
        assert snapshots.encode(snapshots.decode(content, known), known) == content


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, -0.0, math.inf, "text", (1, (2.5,)), [1, None], {(1, 2): (0.5, np.arange(3.0))},
        np.float64(1.5), np.int64(3), np.array([[True, False]]), np.array([np.nan, -np.inf]), np.zeros((0, 3)),
    ],
)  # fmt: skip
def test_plain_values_come_back(value: object) -> None:
    assert fingerprint(snapshots.decode(snapshots.encode(value, KNOWN), KNOWN)) == fingerprint(value)


def test_what_is_not_plain_has_no_snapshot() -> None:
    for value in (object(), np.array([object()]), lambda: 0, Path()):
        with pytest.raises(snapshots.NotPlain):
            snapshots.encode(value, KNOWN)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x80\x04.", pickle.dumps([1]), b"[1, 2]", b'["class", "Path", "/"]', b'["class", "os.system", "true"]',
        b'["array", "|O", [1], "AAAAAAAAAAA="]', b'["array", "<f8", [1000000000], "AAAAAAAAAAA="]', b'["float", "x"]',
        b'["class", "Mixture", 1, 2, 3, 4]', json.dumps([["dict", [["list"], 1]]]).encode(), b"[" * 10_000,
    ],
)  # fmt: skip
def test_strange_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(snapshots.NotPlain):
        snapshots.decode(content, KNOWN)


@pytest.mark.parametrize("method", ["paper", "published", "pce", "pce-theory"])
def test_states_of_an_earlier_version_are_no_states_of_this_one(method: str) -> None:
    """Algorithm 2 kept its state in another class then; the rows are replayed instead."""
    phase = ["class", "Phase", ["tuple", 0], *(["float", "0x0.0p+0"],) * 11]
    content = json.dumps(["class", "LearnerState", phase, 3, False]).encode()
    with pytest.raises(snapshots.NotPlain, match="Phase"):
        snapshots.decode(content, snapshots.classes(fresh(method)))


def test_a_long_journal_written_in_blocks_is_the_one_of_single_episodes(tmp_path: Path) -> None:
    """What the million-episode measurement opens is a journal that follows."""
    long_journal(tmp_path / "journal", fresh(), 300)
    verdict = verify(tmp_path / "journal", fresh())
    assert verdict.holds, verdict.reason
    assert verdict.episodes == 300
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        assert deployment.ask().episode == 300


@pytest.mark.long
def test_a_million_episodes_open(tmp_path: Path) -> None:
    """How long it takes is for `deploy_rows` to measure; here it must be right."""
    long_journal(tmp_path / "journal", fresh(), 1_000_000)
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        assert deployment.status().episodes == 1_000_000
        assert deployment.ask().episode == 1_000_000
