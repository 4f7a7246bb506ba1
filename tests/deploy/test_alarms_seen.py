"""No false green light: what an episode raised is in every view at once, with the order that comes next, and still is
when the process is killed before it orders anything."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deployments
import pytest
from deployments import HORIZON, drive, fresh, told
from mutations import forge
from views import READERS, VIEWS

from surefoot.deploy.chain import read
from surefoot.deploy.page import read_history, view
from surefoot.deploy.session import Deployment
from surefoot.deploy.status import ALARMS, read_status
from surefoot.deploy.verify import verify
from surefoot.errors import InvalidInput
from surefoot.learning.calibrated import Calibration
from surefoot.learning.learner import Learner
from surefoot.methods import learner

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


def breach(deployment: Deployment) -> None:
    drive(deployment, 3)
    deployment.tell(deployment.ask(), reward=0.5, cost=1e6, first_state=0, breach=True)


def impossible(deployment: Deployment) -> None:
    """No state and action of the model pays that."""
    order = deployment.ask()
    episode = deployments.steps(order)
    deployment.tell(order, transitions={**episode, "rewards": [0.9] * len(episode["rewards"])})


def exhausted(deployment: Deployment) -> None:
    while not deployment.learner.events or deployment.learner.events[-1].kind != "exhausted":
        deployment.tell(deployment.ask(), reward=0.0, cost=[1.0, 2.0])


def over(deployment: Deployment) -> None:
    while deployment.learner.state.episode < 3:
        order = deployment.ask()
        deployment.tell(order, **told(order))


def without_outcome(deployment: Deployment) -> None:
    deployment.abandon(deployment.ask(), "operator pressed stop")


def out_of_range(deployment: Deployment) -> None:
    """Refused, so nothing of it is in the journal: the process knows, and whoever told."""
    drive(deployment, 3)
    with pytest.raises(InvalidInput):
        deployment.tell(deployment.ask(), reward=99.0, cost=0.5, first_state=0)


def failing(deployment: Deployment) -> None:
    drive(deployment, 3)
    order = deployment.ask()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(deployment.learner.method), "update", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            deployment.tell(order, **told(order))


def calibrated() -> Learner:
    """On the first of three episodes it leaves the safe policy."""
    digest = deployments.tiny_set().digest()
    found = Calibration("certified-returns", 3, 0.3, 0, 0.11, 1000, ((0.11, 0),), HORIZON, digest)
    return learner(
        deployments.tiny_set(), method="certified-returns", risk=0.3, seed=5, horizon=HORIZON, calibration=found
    )


@dataclass(frozen=True)
class Raised:
    """What raises an alarm, and the words in which every view must say so."""

    story: Callable[[Deployment], None]
    words: str
    maker: Callable[[], Learner] = fresh
    voids: bool = False


RAISED = {
    "breach": Raised(breach, "certificate void, safe policy from now on", voids=True),
    "impossible": Raised(impossible, "no cell fits what was observed", lambda: fresh("certified-likelihood")),
    "exhausted": Raised(exhausted, "no candidate is left", lambda: fresh("paper")),
    "calibration over": Raised(over, "the episodes that were calibrated for are over", calibrated),
    "calibration interrupted": Raised(without_outcome, "an episode has no outcome, and none was", calibrated),
}
WITHHELD = {"out of range": (out_of_range, "out of range"), "failing": (failing, "the method failed on the outcome")}


def killed(path: Path, maker: Callable[[], Learner], story: Callable[[Deployment], None]) -> None:
    """Between what was told and the next order."""
    child = os.fork()
    if child == 0:
        try:
            story(Deployment.open(path, maker()))
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


def check_seen(seen: Any, raised: Raised, learner: Learner) -> None:
    assert raised.words in seen.text
    assert seen.next_order == "safe"
    assert seen.certified == learner.certified
    assert not (raised.voids and seen.certified)


@pytest.mark.parametrize("kind", RAISED)
def test_an_alarm_is_seen_right_after_it_was_told(tmp_path: Path, kind: str) -> None:
    path, raised = tmp_path / "journal", RAISED[kind]
    with Deployment.open(path, raised.maker()) as deployment:
        raised.story(deployment)
        assert deployment.outstanding is None
        for look in VIEWS:
            check_seen(VIEWS[look](path, deployment, raised.maker), raised, deployment.learner)
        status = deployment.status()
        assert (status.state, status.weight, status.margin) == ("safe", 0.0, None)
        assert deployment.ask().policy_index == 0


@pytest.mark.forks
@needs_fork
@pytest.mark.parametrize("kind", RAISED)
def test_an_alarm_is_seen_after_a_kill(tmp_path: Path, kind: str) -> None:
    path, raised = tmp_path / "journal", RAISED[kind]
    killed(path, raised.maker, raised.story)
    judge = raised.maker()
    assert verify(path, judge).holds
    for look in READERS:
        check_seen(READERS[look](path, None, raised.maker), raised, judge)
    with Deployment.open(path, raised.maker()) as deployment:
        for look in VIEWS:
            check_seen(VIEWS[look](path, deployment, raised.maker), raised, judge)
        assert deployment.ask().policy_index == 0


def test_an_abandoned_episode_is_seen_at_once(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        without_outcome(deployment)
        for look in VIEWS:
            text = VIEWS[look](path, deployment, fresh).text
            assert "abandoned 1" in text or '"abandoned": 1' in text


@pytest.mark.forks
@needs_fork
@pytest.mark.parametrize("what", WITHHELD)
def test_what_was_refused_is_known_to_the_process_and_left_to_be_told(tmp_path: Path, what: str) -> None:
    """The process orders the safe policy. In the journal, and after a kill, the episode waits for its outcome."""
    path, (story, words) = tmp_path / "journal", WITHHELD[what]
    with Deployment.open(path, fresh()) as deployment:
        story(deployment)
        for look in ("deployment", "protocol"):
            seen = VIEWS[look](path, deployment, fresh)
            assert words in seen.text
            assert seen.next_order == "safe"
        assert deployment.ask().policy_index == 0
        assert read_status(path).outstanding == 3
    killed(tmp_path / "killed", fresh, story)
    ordered = [row.data["policy"] for row in read(tmp_path / "killed") if row.kind == "order"]
    for look in READERS:
        assert READERS[look](tmp_path / "killed", None, fresh).next_order == f"no. {ordered[3]}"
    with Deployment.open(tmp_path / "killed", fresh()) as deployment:
        assert deployment.ask().policy_index == ordered[3]


@pytest.mark.parametrize("left", ["outcome", "event"])
def test_a_breach_counts_before_what_follows_from_it_is_there(tmp_path: Path, left: str) -> None:
    """Earlier versions wrote the event with the next order or when they closed, and the decision with the order."""
    path = tmp_path / "journal"
    with Deployment.open(path, fresh()) as deployment:
        breach(deployment)
    rows = [(row.kind, row.payload) for row in read(path)]
    assert [kind for kind, _ in rows[-3:]] == ["outcome", "event", "decision"]
    forge(path, rows[: -2 if left == "outcome" else -1])
    path.with_name("journal.mark").unlink()
    for look in READERS:
        check_seen(READERS[look](path, None, fresh), RAISED["breach"], deployment.learner)
    status = read_status(path)
    assert (status.state, status.weight, status.surviving, status.margin) == ("safe", 0.0, 0, None)
    assert (status.breaches, len(status.alarms)) == (1, 1)
    page = view("journal", read_history(path))
    assert (page.word, page.tone, page.answers[4].value) == ("Safe", "bad", "1")
    assert page.verdict.startswith("Only the safe policy is ordered, since episode 4:")
    Deployment.open(path, fresh()).close()  # which writes what is missing, as if it had never been
    assert [(row.kind, row.payload) for row in read(path)] == rows


def test_every_kind_of_event_that_ends_on_the_safe_policy_is_an_alarm(tmp_path: Path) -> None:
    kinds = set()
    for name, raised in RAISED.items():
        with Deployment.open(tmp_path / name, raised.maker()) as deployment:
            raised.story(deployment)
            kinds.add(deployment.learner.events[-1].kind)
    assert kinds == set(ALARMS)


def test_a_new_journal_says_what_would_be_ordered_first(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    Deployment.open(path, fresh()).close()
    assert [row.kind for row in read(path)] == ["open", "decision"]
    with Deployment.open(path, fresh()) as deployment:
        assert read_status(path).next_order[0][0] == deployment.ask().policy_index
    assert [row.kind for row in read(path)] == ["open", "decision", "order"]
