"""Deployment: what it promises about orders, outcomes and going on after a stop."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import deployments
import numpy as np
import pytest
from deployments import fresh, told

from surefoot.deploy import session
from surefoot.deploy.chain import read
from surefoot.deploy.session import FALLBACK, Deployment
from surefoot.deploy.status import read_status
from surefoot.deploy.verify import verify
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.learning.method import SAFE
from surefoot.methods import METHODS, learner
from surefoot.testing.learner_suite import fingerprint


def test_orders_and_outcomes_are_on_the_disk_before_they_are_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        assert deployment.status().episodes == 0
        order = deployment.ask()
        last = list(read(path))[-1]
        assert (last.kind, last.data["episode"], last.data["policy"]) == ("order", 0, order.policy_index)
        assert 0 <= last.data["draw"] < 1
        deployment.tell(order, **told(order))
        assert list(read(path))[-1].kind == "outcome"
        assert deployment.status().episodes == deployment.learner.state.episode == 1
        assert deployment.head() == deployment.status().head == list(read(path))[-1].hash.hex()
    assert verify(path, fresh()).holds


def test_asking_again_returns_the_same_order_also_after_opening_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        deployments.drive(deployment, 12)
        order, head = deployment.ask(), deployment.head()
        assert deployment.ask() is order
        assert deployment.head() == head
    with Deployment.open(path, fresh()) as deployment:
        again = deployment.ask()
        assert deployment.head() == head
        assert (again.episode, again.policy_index, again.weight) == (order.episode, order.policy_index, order.weight)
        assert fingerprint(again.deployed) == fingerprint(order.deployed)


def test_telling_twice_is_a_no_op_if_equal_and_an_error_if_not(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        first = deployment.ask()
        deployment.tell(first, reward=1.0, cost=0.5, first_state=0)
        head = deployment.head()
        deployment.tell(first, reward=1.0, cost=0.5, first_state=0)
        with pytest.raises(InvalidInput, match=r"episode 0 is already recorded as outcome .* cannot be changed"):
            deployment.tell(first, reward=1.1, cost=0.5, first_state=0)
        with pytest.raises(InvalidInput, match="already recorded as outcome"):
            deployment.abandon(first, "changed my mind")
        second = deployment.ask()
        deployment.abandon(second, "lost")
        deployment.abandon(second, "lost")
        with pytest.raises(InvalidInput, match="already recorded as abandoned"):
            deployment.tell(second, **told(second))
        deployment.tell(first, reward=1.0, cost=0.5, first_state=0)  # any number of episodes later
        assert deployment.status().episodes == 2
        assert deployment.status().abandoned == 1
        assert deployment.head() != head
    with Deployment.open(path, fresh()) as deployment:
        deployment.tell(first, reward=1.0, cost=0.5, first_state=0)  # a retry after a crash
        assert deployment.status().episodes == 2


def test_orders_that_were_never_given_are_refused(tmp_path: Path) -> None:
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        order = fresh().ask()
        with pytest.raises(InvalidInput, match="episode 0, which was not ordered"):
            deployment.tell(order, **told(order))
        order = deployment.ask()
        for wrong in (replace(order, episode=1), replace(order, episode=7)):
            with pytest.raises(InvalidInput, match="was not ordered"):
                deployment.tell(wrong, **told(order))
        with pytest.raises(InvalidInput, match="must name policy"):
            deployment.tell(replace(order, policy_index=order.policy_index + 1), **told(order))
        deployment.tell(order, **told(order))


BAD = [
    ({"reward": np.nan, "cost": 0.5}, "reward must be finite"),
    ({"reward": 1.0, "cost": np.inf}, "cost.* must be finite"),
    ({"reward": "1", "cost": 0.5}, "reward must be numbers"),
    ({"reward": True, "cost": 0.5}, "reward must be numbers"),
    ({"reward": 1.0}, "reward and cost"),
    ({"cost": 1.0}, "reward and cost"),
    ({}, "got neither"),
    ({"reward": 1.0, "cost": [0.5, 0.5]}, "cost must hold 1 discounted"),
    ({"reward": [1.0], "cost": 0.5}, "reward must be one number"),
    ({"reward": 1.0, "cost": 0.5, "rewards": [1.0], "costs": [1.0]}, "reward, cost, rewards, costs"),
    ({"rewards": [1.0, 0.5], "costs": [0.5]}, "costs must hold 1 number"),
    ({"rewards": [], "costs": []}, "rewards must"),
    ({"rewards": [1.0, [2.0]], "costs": [0.5, 0.5]}, "rewards must be numbers"),
    ({"rewards": [1.0, 7.0], "costs": [0.5, 0.5]}, r"rewards\[1\] must lie in \[0.0, 1.0\], got 7"),
    ({"rewards": [1.0, 1.0], "costs": [0.5, -0.5]}, r"costs\[1\] must lie in \[0.0, 1.0\], got -0.5"),
    ({"reward": 2.5, "cost": 0.5}, r"must lie in \[0.0, 2.0\]"),
    ({"reward": 1.0, "cost": -0.5}, "must lie in"),
    ({"reward": 1.0, "cost": 0.5, "first_state": 7}, "states must lie in"),
    ({"reward": 1.0, "cost": 0.5, "first_state": -1}, "must not be negative"),
    ({"reward": 1.0, "cost": 0.5, "first_state": 0.5}, "whole numbers"),
    ({"reward": 1.0, "cost": 0.5, "first_state": None}, "needs states"),
    ({"reward": 1.0, "cost": 0.5, "transitions": {"states": [0, 1]}}, "actions is missing"),
    ({"reward": 1.0, "cost": 0.5, "transitions": {"states": [0], "actions": [1]}}, "one more than actions"),
    ({"transitions": [(0, 1, 1.0, 0.1, 1), (0, 1, 1.0, 0.1, 1)]}, r"transitions\[1\] must begin in state 1"),
    ({"transitions": [(0, 1, 1.0, 0.1)]}, r"transitions\[0\] must be \(state"),
    ({"transitions": {"states": [0, 1], "actions": [1], "rewards": [1.0, 1.0], "costs": [0.1, 0.1]}}, "as many as"),
    ({"transitions": {"states": [0, 1], "actions": [1], "velocity": [1]}}, "got 'velocity'"),
    ({"rewards": [0.5] * 21, "costs": [0.1] * 21}, "rewards must be at most 20, the learner's horizon, got 21"),
    ({"reward": 1.0, "cost": 0.5, "transitions": {"states": [0] * 22, "actions": [0] * 21}}, "actions must be at most"),
]


@pytest.mark.parametrize(("outcome", "message"), BAD)
def test_a_wrong_outcome_is_refused_and_nothing_changes(tmp_path: Path, outcome: dict, message: str) -> None:
    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        order = deployment.ask()
        before = deployment.head(), fingerprint(deployment.learner.state), path.stat().st_size
        if not {"first_state", "transitions"} & set(outcome):
            outcome = {**outcome, "first_state": 0}
        with pytest.raises(InvalidInput, match=message):
            deployment.tell(order, **outcome)
        assert (deployment.head(), fingerprint(deployment.learner.state), path.stat().st_size) == before
        deployment.tell(order, **told(order))  # the order still stands
        assert deployment.status().episodes == 1


@pytest.mark.parametrize("reason", ["", "  ", None, 7, "x" * 1001, "\ud800"])
def test_a_reason_is_needed(tmp_path: Path, reason: object) -> None:
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        with pytest.raises(InvalidInput, match="reason must be"):
            deployment.abandon(deployment.ask(), reason)  # type: ignore[arg-type]
        assert deployment.status().episodes == 0


def test_three_forms_of_one_episode_teach_the_same(tmp_path: Path) -> None:
    """Up to the rounding of discounted sums."""
    states = []
    for form in range(4):
        with Deployment.open(tmp_path / f"{form}", fresh("certified")) as deployment:
            for _ in range(20):
                order = deployment.ask()
                episode = deployments.steps(order)
                weights = 0.5 ** np.arange(len(episode["rewards"]))
                sums = {"reward": weights @ episode["rewards"], "cost": weights @ np.array(episode["costs"])}
                moves = {name: episode[name] for name in ("states", "actions")}
                each = zip(
                    episode["states"], episode["actions"], episode["rewards"], episode["costs"], episode["states"][1:],
                    strict=False,
                )  # fmt: skip
                outcome = (
                    {**sums, "transitions": moves},
                    {"rewards": episode["rewards"], "costs": episode["costs"], "transitions": moves},
                    {"transitions": episode},
                    {"transitions": [(s, a, r, c[0], after) for s, a, r, c, after in each]},
                )[form]
                deployment.tell(order, **outcome)
            states.append(fingerprint(deployment.learner.state))
    assert states[0] == states[1] == states[2] == states[3]


def test_a_breach_is_refused_then_falls_back_then_can_be_recorded(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        deployments.drive(deployment, 5)
        order, head = deployment.ask(), deployment.head()
        with pytest.raises(InvalidInput, match="breach=True if it was observed so"):
            deployment.tell(order, reward=99.0, cost=0.5, first_state=0)
        assert deployment.head() == head
        fallback = deployment.ask()
        assert (fallback.episode, fallback.policy_index) == (FALLBACK, SAFE)
        deployment.tell(fallback, reward=1.0, cost=0.5)  # nothing to record
        assert deployment.status().state == "fault"
        assert "out of range" in deployment.status().why
        deployment.tell(order, reward=99.0, cost=0.5, first_state=0, breach=True)
        assert deployment.status().episodes == 6
        for _ in range(10):
            after = deployment.ask()
            assert after.policy_index == SAFE
            deployment.tell(after, reward=1.0, cost=0.5, first_state=0)
        status = deployment.status()
        assert (status.state, status.certified, status.weight) == ("safe", False, 0.0)
        assert "got 99" in status.why
        assert "certificate void" in status.why
    assert verify(path, fresh()).holds
    assert read_status(path).state == "safe"


def test_another_policy_set_or_setting_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    deployments.deployed(path, 3)
    before = path.read_bytes()
    changed = replace(deployments.tiny_set(), epsilon=0.021)
    other = learner(changed, method="certified-returns", episodes=3000, risk=0.3, seed=5, horizon=deployments.HORIZON)
    for wrong, message in (
        (other, "belongs to the policy set with digest"),
        (fresh(seed=6), "settings"),
        (fresh("certified-model-free"), "settings"),
    ):
        with pytest.raises(ArtifactError, match=message):
            Deployment.open(path, wrong)
    assert path.read_bytes() == before
    used = fresh()
    used.abandon(used.ask())
    with pytest.raises(InvalidInput, match="learner must be fresh"):
        Deployment.open(path, used)


@pytest.mark.forks
def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        deployment.ask()
        with pytest.raises(ArtifactError, match="held by another deployment"):
            Deployment.open(path, fresh())
        child = os.fork()
        if child == 0:
            try:
                Deployment.open(path, fresh())
                os._exit(1)
            except ArtifactError:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert read_status(path).outstanding == 0  # readers are welcome
        deployments.drive(deployment, 3)
    with Deployment.open(path, fresh()) as deployment:
        assert deployment.status().episodes == 3


@pytest.mark.parametrize("what", ["lock", "journal", "rows"])
def test_a_lost_lock_or_a_strange_row_falls_back(tmp_path: Path, what: str) -> None:
    path = tmp_path / "journal"
    deployment = Deployment.open(path, fresh())
    deployments.drive(deployment, 3)
    head = deployment.head()
    if what == "lock":
        (tmp_path / "journal.lock").unlink()
        with Deployment.open(path, fresh()) as thief:
            thief.ask()
    elif what == "journal":
        path.rename(tmp_path / "moved")
    else:
        (tmp_path / "journal.lock").rename(tmp_path / "journal.hidden")
        with Deployment.open(path, fresh()) as thief:
            deployments.drive(thief, 4)
        (tmp_path / "journal.lock").unlink()
        (tmp_path / "journal.hidden").rename(tmp_path / "journal.lock")
    order = deployment.ask()
    assert (order.episode, order.policy_index) == (FALLBACK, SAFE)
    status = deployment.status()
    assert status.state == "fault"
    assert ("lost" in status.why) or ("removed" in status.why) or ("did not write" in status.why)
    assert deployment.head() == head
    deployment.close()


@pytest.mark.short_for(method=["paper"])
@pytest.mark.parametrize("method", METHODS)
def test_going_on_equals_never_having_stopped(tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened again after every few episodes, replayed or from snapshots, against one uninterrupted run."""
    monkeypatch.setattr(session, "SNAPSHOT_EVERY", 13)
    for key in (None, bytes(range(16))):
        whole, path = tmp_path / f"whole {key}", tmp_path / f"{key}"
        with Deployment.open(whole, fresh(method), key=key) as deployment:
            deployments.drive(deployment, 60, method)
        for until in (1, 2, 9, 17, 40, 41, 60):
            with Deployment.open(path, fresh(method), key=key) as deployment:
                deployments.drive(deployment, until, method)
        assert deployments.contents(path) == deployments.contents(whole)
    assert verify(path, fresh(method)).holds


def test_the_paper_moves_and_drops_in_a_journal(tmp_path: Path) -> None:
    """Otherwise the tests above would only see the safe policy; verify follows every weight and elimination."""
    path = tmp_path / "journal"
    with Deployment.open(path, fresh("paper")) as deployment:
        while deployment.status().episodes < 700:
            order = deployment.ask()
            deployment.tell(order, **told(order, "paper"))
    kinds = {row.data["kind"] for row in read(path) if row.kind == "event"}
    assert kinds == {"eliminated", "weight"}
    verdict = verify(path, fresh("paper"))
    assert (verdict.holds, verdict.episodes) == (True, 700)


def test_a_failing_method_suspends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        order = deployment.ask()

        def broken(*_: object) -> None:
            raise FloatingPointError("no convergence")

        monkeypatch.setattr(type(deployment.learner.method), "update", broken)
        with pytest.raises(FloatingPointError):
            deployment.tell(order, **told(order))
        assert deployment.ask().episode == FALLBACK
        assert "no convergence" in deployment.status().why
        monkeypatch.undo()
        deployment.tell(order, **told(order))
        assert deployment.ask().episode == 1


def test_an_empty_or_foreign_file_is_refused(tmp_path: Path) -> None:
    for name, content in (("empty", b""), ("text", b"hello" * 1000)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ArtifactError):
            Deployment.open(tmp_path / name, fresh())
        assert (tmp_path / name).read_bytes() == content
    (tmp_path / "folder").mkdir()
    with pytest.raises(ArtifactError):
        Deployment.open(tmp_path / "folder", fresh())
    (tmp_path / "orphan-wal").write_bytes(b"x")
    with pytest.raises(ArtifactError, match="without its journal"):
        Deployment.open(tmp_path / "orphan", fresh())
    with pytest.raises(ArtifactError):
        Deployment.open(tmp_path / "no" / "such" / "folder", fresh())


def test_tell_takes_no_argument_that_it_does_not_know(tmp_path: Path) -> None:
    """Not even of a fallback order, for which nothing needs to be told."""
    with Deployment.open(tmp_path / "journal", fresh()) as deployment:
        order = deployment.ask()
        for asked in (order, replace(order, episode=FALLBACK)):
            with pytest.raises(TypeError, match="unexpected keyword argument 'rewrad'"):
                deployment.tell(asked, rewrad=1.0, cost=0.5)
        assert deployment.outstanding is order
