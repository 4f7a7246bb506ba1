"""From which evidence on a cell is ruled out."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import surefoot as sf
from guarantees import mutants
from surefoot.errors import InvalidInput
from surefoot.learning.certified.thresholds import CONSTANT, FALL, Thresholds
from surefoot.learning.learner import Learner
from surefoot.learning.spec import drop_withdrawn
from surefoot.policyset.policy_value_set import PolicyValueSet


@cache
def rooms() -> PolicyValueSet:
    return mutants.rooms_policies()


def test_thresholds_fall_to_that_of_the_level_and_never_below() -> None:
    plain = CONSTANT.at(1, 0.1)
    assert plain == pytest.approx(np.log(10))
    falling = Thresholds(declared=1000)
    found = np.array([falling.at(episode, 0.1) for episode in (0, 1, 10, 100, 1000, 5000)])
    assert found - plain == pytest.approx(FALL * np.log([1000, 1000, 100, 10, 1, 1]))


def test_falling_thresholds_rule_out_less_and_later() -> None:
    task = mutants.rooms().task([0.07])
    runs = {
        declared: sf.adapt(rooms(), task, method="certified-likelihood", episodes=400, seed=3, declared=declared)
        for declared in (None, 400)
    }
    assert runs[400].regret[-1] > runs[None].regret[-1]
    assert runs[400].unsafe_episodes == 0


def test_a_calibration_brings_its_options() -> None:
    found = sf.calibrate(
        rooms(),
        mutants.rooms(),
        method="certified-likelihood",
        episodes=60,
        risk=0.3,
        error=0.1,
        levels=[0.4],
        runs=40,
        seed=1,
        jobs=1,
        declared=60,
    )
    assert found.level == 0.4
    made = sf.learner(rooms(), method="certified-likelihood", risk=0.3, calibration=found)
    assert made.method.inner.thresholds.declared == 60
    with pytest.raises(InvalidInput, match="calibration must be for declared 50, got one for 60"):
        sf.learner(rooms(), method="certified-likelihood", risk=0.3, calibration=found, declared=50)


def test_levels_by_prior_are_no_longer_offered() -> None:
    """Nor in a calibration; what names them and did not use them is as good as ever."""
    gone = r"^by_prior is no longer offered, got True; leave it out$"
    with pytest.raises(InvalidInput, match=gone):
        sf.learner(rooms(), method="certified-returns", risk=0.5, by_prior=True)
    named = {"method": "certified-returns", "episodes": 60, "risk": 0.3, "levels": [0.4], "runs": 10, "seed": 1}
    with pytest.raises(InvalidInput, match=gone):
        sf.calibrate(rooms(), mutants.rooms(), **named, jobs=1, by_prior=True)
    found = sf.calibrate(rooms(), mutants.rooms(), **named, jobs=1)
    for said, options in (("plain", {}), ("named", {"by_prior": False})):
        stored = replace(found, options=options, standing="claimed")
        made = sf.learner(rooms(), method="certified-returns", risk=0.3, calibration=stored)
        again = sf.learner(rooms(), **made.settings)
        assert again.settings == made.settings, said
    with pytest.raises(InvalidInput, match=gone):
        replace(found, options={"by_prior": True})


def test_a_journal_that_names_levels_by_prior_without_using_them_goes_on(tmp_path: Path) -> None:
    task = mutants.rooms().task([0.07])

    def made() -> Learner:
        return sf.learner(rooms(), method="certified-returns", risk=0.3, by_prior=False)

    for _ in range(2):
        with sf.Deployment.open(tmp_path / "run.journal", made()) as deployment:
            for number in range(12):
                order = deployment.ask()
                steps = deployment.learner.horizon
                rng = np.random.default_rng([order.episode, number])
                told = task.episodes(order.policy, steps).run(1, rng, transitions=True)
                assert told.states is not None
                first = int(told.states[0, 0])
                deployment.tell(order, reward=told.reward[0], cost=told.cost[0], first_state=first)
            head = deployment.status()
    assert head.episodes == 24
    assert head.settings["by_prior"] is False
    assert made().settings["by_prior"] is False


def test_a_method_of_ones_own_may_take_the_name() -> None:
    assert drop_withdrawn({"by_prior": 3, "declared": 5}, takes=("by_prior",)) == {"by_prior": 3, "declared": 5}
    assert drop_withdrawn({"by_prior": False, "declared": 5}) == {"declared": 5}


@pytest.mark.parametrize("declared", [0, -3, 2.5])
def test_declared_is_a_number_of_episodes(declared: float) -> None:
    with pytest.raises(InvalidInput, match="declared must be"):
        sf.learner(rooms(), method="certified-likelihood", declared=declared)
