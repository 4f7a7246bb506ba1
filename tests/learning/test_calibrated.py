"""A level that simulation allows: how it is found, what it is good for, and when it ends."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

import surefoot as sf
from guarantees import mutants
from surefoot.deploy.replay import header_settings
from surefoot.deploy.verify import read_header, verify
from surefoot.errors import InvalidInput
from surefoot.learning.calibrated import Calibration, fixed_sequence_test, parse_calibration
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.testing import learner_suite

EPISODES = 60


@cache
def policies() -> PolicyValueSet:
    return mutants.rooms_policies()


@cache
def found(jobs: int = 1) -> Calibration:
    return sf.calibrate(
        policies(),
        mutants.rooms(),
        method="certified-likelihood",
        episodes=EPISODES,
        risk=0.3,
        error=0.1,
        levels=[0.35, 0.5],
        runs=30,
        seed=3,
        jobs=jobs,
    )


def learner(**changes: Any) -> sf.Learner:
    given = {"method": "certified-likelihood", "risk": 0.3, "seed": 1, "calibration": found(), **changes}
    return sf.learner(policies(), **given)


# ---------------------------------------------------------------------------------------------------- how it is found


UNTRIED = Calibration("certified-likelihood", 100, 0.05, 0.005, None, 2000, (), 20, "0" * 64)


def test_levels_rise_until_one_fails() -> None:
    """66 unsafe of 2000 have a probability below 0.005 at a risk of 0.045, 67 have not."""
    assert stats.binom.cdf(66, 2000, 0.045) <= 0.005 < stats.binom.cdf(67, 2000, 0.045)
    counts = {0.1: 66, 0.2: 67, 0.3: 0}
    tried = fixed_sequence_test(UNTRIED, list(counts), counts.__getitem__)
    assert tried.level == 0.1
    assert tried.counts == ((0.1, 66), (0.2, 67))
    assert fixed_sequence_test(UNTRIED, [0.2], counts.__getitem__).level is None


@pytest.mark.parametrize(("runs", "risk", "error"), [(30, 0.3, 0.1), (400, 0.05, 0.005), (2000, 0.1, 0.01)])
def test_what_passes_is_what_the_binomial_law_says(runs: int, risk: float, error: float) -> None:
    found = replace(UNTRIED, runs=runs, risk=risk, error=error)
    law = stats.binom.cdf(np.arange(runs + 1), runs, risk - error) <= error
    assert [found.passes(unsafe) for unsafe in range(runs + 1)] == law.tolist()


@pytest.mark.parametrize(("runs", "risk"), [(30, 0.3), (19, 0.05), (400, 0.05), (1999, 0.05)])
def test_what_passes_for_the_joint_promise(runs: int, risk: float) -> None:
    """The chance to pass, integrated over the risk of a level, is what Theorem 12 says can go wrong at most."""
    found = replace(UNTRIED, runs=runs, risk=risk, error=0.0)
    most = max(unsafe for unsafe in range(runs + 1) if found.passes(unsafe))
    for unsafe, allowed in ((most, True), (most + 1, False)):
        wrong = integrate.quad(lambda p, x=unsafe: stats.binom.cdf(x, runs, p), 0, 1, points=[unsafe / runs])[0]
        assert (wrong <= risk + 1e-9) == allowed


def test_a_level_that_did_not_pass_cannot_be_claimed() -> None:
    with pytest.raises(InvalidInput, match="level must be the last before one fails"):
        replace(UNTRIED, level=0.2, counts=((0.1, 66), (0.2, 67)))
    with pytest.raises(InvalidInput, match="level must be the last before one fails"):
        replace(UNTRIED, level=0.3, counts=((0.2, 67), (0.3, 0)))


@pytest.mark.long
def test_a_calibration_depends_on_its_seed_alone_and_survives_json() -> None:
    assert found(2) == found(1)
    assert parse_calibration(json.loads(json.dumps(asdict(found())))) == found()
    with pytest.raises(InvalidInput, match="calibration must hold method, episodes"):
        parse_calibration({"level": 0.2})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"method": "paper"}, "path must be given for method 'paper'"),
        ({"runs": 10}, "runs must be at least 11"),
        ({"runs": 2, "error": 0}, "runs must be at least 3"),
        ({"runs": 600, "minutes": 2}, "minutes must be left out for tasks whose values are read"),
        ({"minutes": 2}, "minutes must be given without runs"),
        ({"runs": 600, "minutes": -2}, "minutes must be positive"),
        ({"runs": 0}, "runs must be a whole number"),
        ({"error": "none"}, "error must lie strictly"),
        ({"error": -0.1}, "error must lie strictly"),
        ({"levels": [0.4, 0.3]}, "levels must be increasing"),
        ({"levels": []}, "levels must be increasing"),
        ({"error": 0.3}, "error must be less than the risk"),
        ({"calibration": {}}, "options must not hold a calibration"),
        ({"episodes": 0}, "episodes must be a whole number"),
    ],
)
def test_what_cannot_be_calibrated(changed: dict[str, Any], message: str) -> None:
    given = {"method": "certified-likelihood", "episodes": 5, "risk": 0.3, "error": 0.1, "runs": 30, "seed": 0}
    given["attempt"] = 0
    with pytest.raises(InvalidInput, match=message):
        sf.calibrate(policies(), mutants.rooms(), **{**given, **changed})


def test_other_tasks_are_refused() -> None:
    with pytest.raises(InvalidInput, match="tasks must share discount, horizon, ranges and budgets"):
        sf.calibrate(policies(), gridworld(), method="certified-likelihood", episodes=5, seed=0)


# ------------------------------------------------------------------------------------------------ what it is good for


def test_the_level_is_the_one_that_was_found() -> None:
    """And what is deployed is what was counted: the same run at that level."""
    chosen = learner()
    assert chosen.certified
    assert chosen.method.method.risk_split.elimination == found().level
    assert sum(chosen.risk_split.values()) == pytest.approx(0.3)
    task = mutants.rooms().task([0.1])
    more = sf.adapt(policies(), task, method="certified-likelihood", episodes=EPISODES, risk=0.3, seed=1)
    calibrated = sf.adapt(
        policies(), task, method="certified-likelihood", episodes=EPISODES, risk=0.3, seed=1, calibration=found()
    )
    assert calibrated.regret[-1] < more.regret[-1]


def test_the_contract_of_learners() -> None:
    world = learner_suite.EpisodeSource(mutants.rooms().task([0.1]), policies().units.episode_length, 400)
    learner_suite.check(learner, world)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"method": "certified-ball"}, "calibration must be for method 'certified-ball'"),
        ({"optimistic": True}, "calibration must be for optimistic True, got one for False"),
        ({"horizon": 7}, "calibration must be for horizon 7"),
        ({"risk": 0.2}, "risk must be at least the 0.3 of the calibration"),
        ({"calibration": UNTRIED}, "passed at none"),
        ({"calibration": "file.json"}, "calibration must hold"),
    ],
)
def test_it_is_for_nothing_else(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        learner(**changed)


def test_nor_for_another_set() -> None:
    with pytest.raises(InvalidInput, match="calibration must be for digest"):
        sf.learner(
            mutants.rooms_policies(cells=40), method="certified-likelihood", risk=0.3, calibration=found(), seed=1
        )


# ------------------------------------------------------------------------------------------------------- when it ends


def test_after_the_last_episode_that_was_calibrated_for_the_safe_policy_stays() -> None:
    run = sf.adapt(
        policies(),
        mutants.rooms().task([0.1]),
        method="certified-likelihood",
        episodes=2 * EPISODES,
        risk=0.3,
        seed=1,
        calibration=found(),
    )
    assert run.weight[EPISODES - 1] > 0
    assert not run.weight[EPISODES:].any()
    assert [event.episode for event in run.events if event.kind == "ended"] == [EPISODES]


def test_after_an_episode_without_an_outcome_too() -> None:
    chosen = learner()
    chosen.abandon(chosen.ask())
    assert chosen.deployed.weight == 0
    assert chosen.events[-1].kind == "ended"
    assert chosen.certificate().margin is None


def steps(task: sf.TabularCMDP, seen: sf.Outcomes) -> dict[str, Any]:
    """One episode as it is told, step by step."""
    states, actions = seen.states[0], seen.actions[0]
    rewards, costs = task.reward[states[:-1], actions], task.cost[:, states[:-1], actions]
    return {
        "states": states.tolist(),
        "actions": actions.tolist(),
        "rewards": rewards.tolist(),
        "costs": costs[0].tolist(),
    }


def test_a_deployment_keeps_it_in_its_journal(tmp_path: Path) -> None:
    """From the first order to the verified journal, made again from what row 0 tells."""
    journal, task = tmp_path / "journal", mutants.rooms().task([0.1])
    with sf.Deployment.open(journal, learner()) as deployment:
        for k in range(20):
            order = deployment.ask()
            seen = task.episodes(order.policy, 20).run(1, np.random.default_rng(k), transitions=True)
            deployment.tell(order, transitions=steps(task, seen))
    told = header_settings(read_header(journal))["calibration"]
    assert verify(journal, learner(calibration=told)).holds
    assert not verify(journal, learner(calibration=json.loads(json.dumps(asdict(found()))))).holds  # only claimed
    assert not verify(journal, learner(calibration=None)).holds
