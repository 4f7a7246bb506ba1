"""Journals and policy sets of earlier versions must keep loading, replaying and going on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from deployments import deployed, fresh
from mutations import forge

from surefoot.deploy.chain import canonical, read
from surefoot.deploy.marks import mark_path
from surefoot.deploy.replay import header_settings
from surefoot.deploy.session import Deployment
from surefoot.deploy.verify import read_header, verify
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet

ASSETS = Path(__file__).parents[1] / "assets"
JOURNALS = sorted(ASSETS.glob("journal-*.journal"))


def test_there_are_some() -> None:
    assert JOURNALS


@pytest.mark.parametrize("asset", JOURNALS, ids=lambda path: path.stem)
def test_an_old_journal_still_works(asset: Path, tmp_path: Path) -> None:
    policies = PolicyValueSet.load(asset.with_suffix(".policyset"))
    path = tmp_path / "journal"
    shutil.copyfile(asset, path)
    expected = json.loads(asset.with_suffix(".json").read_text())
    settings = read_header(path)["settings"]
    verdict = verify(path, learner(policies, **settings))
    assert verdict.holds, verdict.reason
    assert (verdict.head, verdict.rows, verdict.episodes) == tuple(expected.values())
    with Deployment.open(path, learner(policies, **settings)) as deployment:
        order = deployment.ask()
        deployment.abandon(order, "test")
        assert deployment.status().episodes == expected["episodes"] + 1
    assert [row.n for row in read(path)][-1] >= expected["rows"]


@pytest.mark.parametrize("asset", JOURNALS, ids=lambda path: path.stem)
def test_the_learner_of_an_old_journal_takes_a_feasible_safe_policy_for_granted(asset: Path, tmp_path: Path) -> None:
    """As the command line makes it; what was an assumption then is one that is spelt out now."""
    policies = PolicyValueSet.load(asset.with_suffix(".policyset"))
    path = tmp_path / "journal"
    shutil.copyfile(asset, path)
    settings = header_settings(read_header(path))
    assert settings.get("assume_safe", False) == (settings["method"] == "paper")
    assert verify(path, learner(policies, **settings)).holds


def test_an_event_may_be_worded_otherwise_but_its_kind_and_numbers_may_not(tmp_path: Path) -> None:
    """A journal with the sentences of another version holds, goes on, and keeps them."""
    path, method = tmp_path / "journal", "paper"
    deployed(path, 240, method)
    mark_path(path).unlink()
    rows = [(row.kind, row.data) for row in read(path)]
    events = [n for n, (kind, _) in enumerate(rows) if kind == "event"]
    assert events
    reworded = [(kind, {**data, "message": "as it was said once"} if kind == "event" else data) for kind, data in rows]
    forge(path, [(kind, canonical(data)) for kind, data in reworded])
    verdict = verify(path, fresh(method))
    assert verdict.holds, verdict.reason
    assert "as it was said once" not in verdict.alarms
    with Deployment.open(path, fresh(method)) as deployment:
        assert not deployment.ask().episode < 0
    assert [row.data["message"] for row in read(path) if row.n in events] == ["as it was said once"] * len(events)
    mark_path(path).unlink()
    for other in ({"kind": "praise"}, {"episode": 0}, {"data": {"weight": 0.5}}, {"message": 7}):
        n = events[-1]
        wrong = {**reworded[n][1], **other}
        forge(path, [(kind, canonical(wrong if k == n else data)) for k, (kind, data) in enumerate(reworded)])
        assert verify(path, fresh(method)).first_bad == n, other
