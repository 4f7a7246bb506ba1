"""A study with the certified sampler is a learner: the same orders, the same state, whatever happens in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from surefoot.cmdp.episode import Outcome
from surefoot.deploy.verify import verify
from surefoot.lab.pump.settings import AVERAGE_SETTINGS

optuna = pytest.importorskip("optuna", reason="needs Optuna: pip install 'surefoot[optuna]'")
sampling = pytest.importorskip("surefoot.optuna")
CertifiedSampler, TrialState = sampling.CertifiedSampler, optuna.trial.TrialState

SPEEDS, HOURS, BUDGET, WEAR = (40.0, 80.0, 120.0), 24, 2.0, 0.05
SETTINGS = {"safe": {"speed": 40.0}, "middle": {"speed": 80.0}, "fast": {"speed": 120.0}}


def machine(parameter: Any, budget: Any = BUDGET, constraints: int = 1) -> sf.TabularCMDP:
    """Stops more often the faster it runs; while it is stopped it earns nothing and costs 1 an hour."""
    stops = 0.6 * parameter[0] * (np.array(SPEEDS) / 120) ** 2
    transitions = np.stack([np.stack([1 - stops, stops], axis=1), np.full((3, 2), 0.5)])
    cost = np.tile(np.array([[0.0] * 3, [1.0] * 3]), (constraints, 1, 1))
    return sf.TabularCMDP(transitions, [SPEEDS, [0.0] * 3], cost, budget, start=[1, 0], discount=1.0, horizon=HOURS)


def policy_set(**options: Any) -> sf.PolicyValueSet:
    machines = sf.tasks.family(lambda parameter: machine(parameter, **options), sf.tasks.Uniform(0.02, 0.4))
    safe, middle, fast = (np.full(2, action) for action in range(3))
    envelopes = sf.Envelopes(cells=40)
    candidates = {"middle": middle, "fast": fast}
    return sf.policy_set(machines, safe=safe, candidates=candidates, seed=0, envelopes=envelopes, progress=False)


@pytest.fixture(scope="module")
def policies() -> sf.PolicyValueSet:
    return policy_set()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


def learner(policies: sf.PolicyValueSet, seed: int = 1, method: str = "certified-likelihood") -> sf.Learner:
    return sf.learner(policies, method=method, episodes=100, risk=0.05, seed=seed)


def study_of(sampler: Any, **storage: Any) -> Any:
    options = {"study_name": "machine", "load_if_exists": True} if storage else {}
    return optuna.create_study(sampler=sampler, direction="maximize", **options, **storage)


def day(speed: float, number: int) -> tuple[float, float, list[int], list[int]]:
    """Reward, cost, states and actions of one day."""
    rng, states = np.random.default_rng([3, number]), [0]
    for _ in range(HOURS):
        states.append(int(rng.random() < (0.6 * WEAR * (speed / 120) ** 2 if states[-1] == 0 else 0.5)))
    stopped = float(sum(states[:-1]))
    return speed * (HOURS - stopped), stopped, states, [SPEEDS.index(speed)] * HOURS


def live(trial: Any) -> float:
    speed = trial.suggest_float("speed", 20, 150)
    reward, cost, states, actions = day(speed, trial.number)
    trial.set_constraint("cost", cost - BUDGET)
    trial.set_user_attr("observed", {"transitions": {"states": states, "actions": actions}})
    return reward


def speeds(study: Any) -> list[float]:
    return [trial.params["speed"] for trial in study.trials]


def assert_equal_states(one: sf.Learner, other: sf.Learner) -> None:
    assert one.state.episode == other.state.episode
    assert [event.message for event in one.events] == [event.message for event in other.events]
    for a, b in zip((one.deployed, one.certificate()), (other.deployed, other.certificate()), strict=True):
        for name in vars(a):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("lost", [None, 5])
def test_a_study_is_a_learner(policies: sf.PolicyValueSet, lost: int | None) -> None:
    sampler, alone, lived = CertifiedSampler(learner(policies), settings=SETTINGS), learner(policies), []
    for number in range(40):
        order = alone.ask()
        lived.append(SPEEDS[order.policy_index])
        reward, cost, states, actions = day(lived[-1], number)
        if number == lost:
            alone.abandon(order)
        else:
            alone.tell(order, Outcome(reward, np.array([cost]), np.array(states), np.array(actions)))
    study = study_of(sampler)
    study.optimize(lambda trial: live(trial) if trial.number != lost else _lose(trial), n_trials=40)
    assert speeds(study) == lived
    assert_equal_states(sampler.learner(study), alone)
    assert len(set(lived)) > 1


def _lose(trial: Any) -> float:
    live(trial)
    raise optuna.TrialPruned


@pytest.mark.parametrize("state", [TrialState.FAIL, TrialState.PRUNED])
def test_what_failed_or_was_pruned_is_abandoned(policies: sf.PolicyValueSet, state: Any) -> None:
    sampler, alone = CertifiedSampler(learner(policies), settings=SETTINGS), learner(policies)
    study = study_of(sampler)
    trial = study.ask()
    trial.suggest_float("speed", 20, 150)
    study.tell(trial, state=state)
    alone.abandon(alone.ask())
    assert_equal_states(sampler.learner(study), alone)


@pytest.mark.short_for(kind=["file"])
@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_a_stored_study_goes_on_where_it_ended(policies: sf.PolicyValueSet, tmp_path: Path, kind: str) -> None:
    def storage() -> Any:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path}/study.db"
        return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log")))

    whole = CertifiedSampler(learner(policies), settings=SETTINGS)
    study = study_of(whole)
    study.optimize(live, n_trials=12)
    for trials in (5, 7):
        sampler = CertifiedSampler(learner(policies), settings=SETTINGS)
        resumed = study_of(sampler, storage=storage())
        resumed.optimize(live, n_trials=trials)
    assert speeds(resumed) == speeds(study)
    assert_equal_states(sampler.learner(resumed), whole.learner(study))
    other = CertifiedSampler(learner(policies, method="safe-only"), settings=SETTINGS)
    with pytest.raises(sf.InvalidInput, match="learner must be made as it was for the study"):
        other.learner(study_of(other, storage=storage()))


def test_a_journal_beside_the_study(policies: sf.PolicyValueSet, tmp_path: Path) -> None:
    """What the journal lacks, the study has: a crash between the two leaves no gap."""
    storage, journal = optuna.storages.InMemoryStorage(), tmp_path / "machine.journal"
    for trials in (4, 3):
        with sf.Deployment.open(journal, learner(policies)) as deployment:
            sampler = CertifiedSampler(deployment, settings=SETTINGS)
            study = study_of(sampler, storage=storage)
            study.optimize(live, n_trials=trials)  # the last of them is told when the journal is opened again
    with sf.Deployment.open(journal, learner(policies)) as deployment:
        sampler = CertifiedSampler(deployment, settings=SETTINGS)
        assert sampler.learner(study_of(sampler, storage=storage)).state.episode == 7
    verdict = verify(journal, learner(policies))
    assert (verdict.holds, verdict.episodes) == (True, 7)


def test_one_policy_in_whichever_words(policies: sf.PolicyValueSet) -> None:
    sampler = CertifiedSampler(learner(policies), settings=SETTINGS)
    trial = study_of(sampler).ask()
    name = trial.suggest_categorical("policy", sampler.names)
    assert trial.suggest_int("speed", 40, 120) == trial.params["speed"] == SETTINGS[name]["speed"]


def test_numbers_of_policies_that_have_fields() -> None:
    """And policies by their index where nobody named them."""
    better = AVERAGE_SETTINGS.scaled(1.5)
    entry = sf.Entry(np.zeros(1), better, 1.0, np.zeros(1), 0.5, np.zeros(1))
    units = sf.tasks.glucose().units
    policies = sf.PolicyValueSet((entry,), AVERAGE_SETTINGS, units, None, None, None, "pump", {}, {}, safe_risk=0.0)
    sampler = CertifiedSampler(sf.learner(policies, method="safe-only"))
    trial = study_of(sampler).ask()
    assert sampler.names == (0, 1)
    assert trial.suggest_float("basal", 0.1, 1.0) == AVERAGE_SETTINGS.basal
    assert trial.suggest_float("ratio", 10, 50, log=True) == AVERAGE_SETTINGS.ratio
    with pytest.raises(sf.InvalidInput, match=r"0\.41\S* of 0 among them|0\.6\S* of 1 among them"):
        study_of(CertifiedSampler(sf.learner(policies, method="safe-only"))).ask().suggest_float("basal", 0.1, 0.5)


def test_constraints_are_told_by_their_names() -> None:
    two = policy_set(budget=[2.0, 3.0], constraints=2)
    sampler, alone = (learner(two, method="certified-returns") for _ in range(2))
    sampler = CertifiedSampler(sampler, settings=SETTINGS, constraints=("stopped", "idle"))
    study = study_of(sampler)
    trial = study.ask()
    trial.suggest_float("speed", 20, 150)
    trial.set_constraint("idle", 1.0 - 3.0)
    trial.set_constraint("stopped", 5.0 - 2.0)
    trial.set_user_attr("observed", {"first_state": 0})
    study.tell(trial, 900.0)
    alone.tell(alone.ask(), Outcome(900.0, np.array([5.0, 1.0]), np.array([0])))
    assert_equal_states(sampler.learner(study), alone)
    with pytest.raises(sf.InvalidInput, match=r"constraints must name 2 constraint\(s\), got \('cost',\)"):
        CertifiedSampler(learner(two), settings=SETTINGS)


def test_beyond_a_declared_range_only_the_safe_policy_remains(policies: sf.PolicyValueSet) -> None:
    sampler = CertifiedSampler(learner(policies), settings=SETTINGS)
    study = study_of(sampler)
    study.optimize(live, n_trials=25)
    assert set(speeds(study)[-5:]) != {40.0}
    trial = study.ask()
    live(trial)
    study.tell(trial, 1e9)
    study.optimize(live, n_trials=5)
    assert set(speeds(study)[-5:]) == {40.0}
    assert not sampler.learner(study).certified
    assert sampler.learner(study).state.episode == 31


def test_an_outcome_that_cannot_be_used_is_refused_and_counts_as_abandoned(policies: sf.PolicyValueSet) -> None:
    sampler, alone = CertifiedSampler(learner(policies), settings=SETTINGS), learner(policies)
    study = study_of(sampler)
    with pytest.raises(sf.InvalidInput, match=r"trial 0 must run .*: suggest 'policy'"):
        study.tell(study.ask(), 900.0)
    trial = study.ask()
    trial.suggest_float("speed", 20, 150)
    with pytest.raises(sf.InvalidInput, match=r"set_constraint\('cost', cost - budget\)"):
        study.tell(trial, 900.0)
    trial = study.ask()
    trial.suggest_float("speed", 20, 150)
    trial.set_constraint("cost", 0.0)
    with pytest.raises(sf.InvalidInput, match="needs the visited states and the actions"):
        study.tell(trial, 900.0)
    trial = study.ask()
    other = next(speed for speed in SPEEDS if speed != SPEEDS[sampler.learner(study).ask().policy_index])
    trial.suggest_float("speed", other, other)  # Optuna asks no sampler where there is no choice
    trial.set_constraint("cost", 0.0)
    with pytest.raises(sf.InvalidInput, match="trial 3 must run"):
        study.tell(trial, 900.0)
    for _ in range(4):
        alone.abandon(alone.ask())
    assert_equal_states(sampler.learner(study), alone)


def test_what_a_study_must_not_ask(policies: sf.PolicyValueSet) -> None:
    sampler = CertifiedSampler(learner(policies), settings=SETTINGS)
    with pytest.raises(sf.InvalidInput, match=r"direction='maximize'.*got \['minimize'\]"):
        optuna.create_study(sampler=sampler).ask()
    study = study_of(sampler)
    study.enqueue_trial({"speed": 120.0})
    with pytest.raises(sf.InvalidInput, match="nobody has certified them"):
        study.ask()
    trial = study.ask()
    with pytest.raises(sf.InvalidInput, match=f"trial {trial.number} must be told before the next one is asked for"):
        study.ask()
    with pytest.raises(sf.InvalidInput, match="did you mean 'speed'"):
        trial.suggest_float("sped", 20, 150)
    with pytest.raises(sf.InvalidInput, match=r"120\.0 of 'fast' among them"):
        trial.suggest_float("speed", 20, 100)
    study.tell(trial, live(trial))
    assert sampler.learner(study).state.episode == 1, "what was refused is no episode"
    with pytest.raises(sf.InvalidInput, match="sampler belongs to the study"):
        study_of(sampler).ask()
    with pytest.raises(sf.InvalidInput, match="learner must be fresh"):
        CertifiedSampler(sampler.learner(study), settings=SETTINGS)
    with pytest.raises(sf.InvalidInput, match="settings must be of the policies"):
        CertifiedSampler(learner(policies), settings={"safe": {"speed": 40.0}})
    with pytest.raises(sf.InvalidInput, match=r"settings\['middle'\] must hold \['speed'\], got \['sped'\]"):
        CertifiedSampler(learner(policies), settings={**SETTINGS, "middle": {"sped": 80.0}})
