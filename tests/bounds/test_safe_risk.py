"""How often the safe policy itself fails: what training says, and what methods make of it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import surefoot as sf
from surefoot.arrays import Floats
from surefoot.bounds.envelopes import Envelopes, safe_policy_risk
from surefoot.cli.commands import app
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks.distribution import Finite, ParameterDistribution, Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family

FALSE_ALARM = 1e-4
ONLY = TabularPolicy(np.ones((1, 1)))


def drifting(distribution: ParameterDistribution) -> TaskDistribution:
    """One state whose step costs θ; the budget 9 is broken by every policy where θ > 0.9."""

    def build(theta: Floats) -> TabularCMDP:
        return TabularCMDP([[[1.0]]], [[1.0]], [[theta[0]]], 9.0, [1.0], 0.9, (0.0, 1.0), (0.0, 1.0))

    return family(build, distribution)


@cache
def trained(**options: Any) -> PolicyValueSet:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the paper's theorem, which is not what this is about
        return sf.train(drifting(Uniform(0.0, 0.95)), epsilon=0.3, delta=0.3, seed=0, progress=False, **options)


@pytest.mark.parametrize("runs", [80, pytest.param(300, marks=pytest.mark.long)])
def test_the_bound_is_wrong_as_rarely_as_it_says(runs: int) -> None:
    """The safe policy fails on a tenth of the tasks; a bound from few of them, many times over."""
    tasks = drifting(Uniform(0.0, 1.0))
    few = Envelopes(holdout=30, uncovered=0.4)
    bounds = np.array([safe_policy_risk(tasks, ONLY, seed=seed, envelopes=few) for seed in range(runs)])
    wrong = int((bounds < 0.1).sum())
    assert stats.binomtest(wrong, runs, 0.04, alternative="greater").pvalue > FALSE_ALARM
    assert np.median(bounds) < 0.4, "a bound of 1 would never be wrong"
    shares = np.random.default_rng(0).binomial(30, 0.1, runs) / 30  # the plain fraction in place of the bound
    assert stats.binomtest(int((shares + 0.04 < 0.1).sum()), runs, 0.04, alternative="greater").pvalue < FALSE_ALARM


def test_a_finite_distribution_is_counted_exactly() -> None:
    tasks = drifting(Finite([0.5, 0.89, 0.91, 1.0], [0.4, 0.3, 0.2, 0.1]))
    assert safe_policy_risk(tasks, ONLY, seed=0, envelopes=Envelopes()) == pytest.approx(0.3)


def made_by_hand(**fields: Any) -> PolicyValueSet:
    entry = Entry(np.array([0.3]), ONLY, 10.0, np.array([6.0]), 10.0, np.array([6.0]))
    units = drifting(Uniform(0.0, 1.0)).units
    return PolicyValueSet((entry,), ONLY, units, 0.01, 0.05, 0.1, "by hand", {}, {}, **fields)


@pytest.mark.parametrize("name", ["safe-only", "paper", "certified-model-free", "certified"])
def test_where_nothing_is_known_nothing_is_certified(name: str) -> None:
    unknown = made_by_hand()
    assert unknown.safe_risk is None
    if name.startswith("certified"):
        with pytest.raises(sf.InvalidInput, match="needs to know how often the safe policy is feasible"):
            sf.learner(unknown, method=name)
    else:
        made = sf.learner(unknown, method=name, episodes=100)
        assert made.certified == (name == "paper"), "whose theorem is about tasks with a feasible safe policy"
        assert made.risk_split == {}
    if name != "certified":
        vouched = sf.learner(unknown, method=name, episodes=100, assume_safe=True)
        assert vouched.certified
        assert vouched.risk_split["coverage"] == 0.0
        assert vouched.settings["assume_safe"] is True


@pytest.mark.parametrize("name", ["safe-only", "paper", "certified-model-free", "certified"])
def test_what_is_known_is_part_of_the_risk(name: str) -> None:
    known = made_by_hand(safe_risk=0.03)
    made = sf.learner(known, method=name, episodes=100, risk=0.05)
    assert made.certified
    assert made.risk_split["coverage"] == 0.03
    assert sum(made.risk_split.values()) == pytest.approx(0.03 if name == "safe-only" else 0.05)
    if name == "safe-only":
        assert not sf.learner(known, method=name, risk=0.02).certified
    else:
        with pytest.raises(sf.InvalidInput, match=r"risk must exceed 0\.03.*got 0\.02"):
            sf.learner(known, method=name, episodes=100, risk=0.02)


def test_training_without_cells_says_how_often_the_safe_policy_fails() -> None:
    """θ ~ U(0, 0.95) and failure beyond 0.9: one task in nineteen, which no centre of a coarse cover shows."""
    without = trained(envelopes=Envelopes(cells=0, holdout=999))
    assert without.cells is None
    assert without.safe_risk is not None
    assert 1 / 19 < without.safe_risk < 0.08
    held_out = trained(envelopes=Envelopes(cells=20, holdout=199, uncovered=0.02))
    assert held_out.cells is not None
    assert held_out.safe_risk == held_out.cells.uncovered > 1 / 19


def test_it_is_stored_and_part_of_what_a_set_is(tmp_path: Any) -> None:
    known = made_by_hand(safe_risk=0.03)
    known.save(tmp_path / "set")
    found = PolicyValueSet.load(tmp_path / "set")
    assert found.safe_risk == 0.03
    assert found.digest() == known.digest() != made_by_hand().digest() != replace(known, safe_risk=0.02).digest()


def test_cells_and_envelopes_are_not_given_both() -> None:
    with pytest.raises(sf.InvalidInput, match="give either cells or envelopes"):
        trained(cells=10, envelopes=Envelopes())


def test_the_command_line_can_vouch_for_the_safe_policy(tmp_path: Any) -> None:
    made_by_hand().save(tmp_path / "set")

    def ask(journal: str, *options: str) -> Any:
        asked = ["deploy", str(tmp_path / "set"), "--journal", str(tmp_path / journal), *options]
        return CliRunner().invoke(app, asked, input='{"do": "ask"}\n')

    refused = ask("one", "--method", "certified-model-free")
    assert "--assume-safe" in refused.output
    assert not (tmp_path / "one").exists()
    vouched = ask("two", "--method", "certified-model-free", "--assume-safe")
    assert '"ok": true' in vouched.output
    assert '"ok": true' in ask("two").output, "the journal remembers it"
