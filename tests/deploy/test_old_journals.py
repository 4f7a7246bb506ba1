"""Journals and policy sets of earlier versions must keep loading, replaying and going on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from surefoot.deploy.chain import read
from surefoot.deploy.replay import recorded_settings
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
    settings = recorded_settings(read_header(path))
    assert settings.get("assume_safe", False) == (settings["method"] == "paper")
    assert verify(path, learner(policies, **settings)).holds
