"""The examples run as a newcomer runs them, with less of everything, and show what they say they show."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import surefoot as sf
from surefoot.bounds.conformal import check_holdout
from surefoot.bounds.settings import LearnedSignals
from surefoot.control.improvement import Settings
from surefoot.control.ppo_lagrangian import Clipping, ppo_lagrangian
from surefoot.deploy.status import facts, read_status
from surefoot.estimates import value_bounds
from surefoot.lab.experiments.locomotion.policy_sets import simulated_steps
from surefoot.lab.experiments.locomotion.settings import FAMILIES
from surefoot.lab.pump.settings import AVERAGE_SETTINGS
from surefoot.testing import learner_suite
from trained_gridworld import gridworld_set

FOLDER = Path(__file__).parents[2] / "examples"
NAMES = ["cartpole", "pendulum", "frozen_lake"]
SMALL = sf.Envelopes(cells=2, holdout=69, uncovered=0.09, episodes=160)


def few(name: str) -> sf.tasks.Finite:
    """The ends and the middle of a family: as many tasks as cells, so that little needs to be simulated."""
    low, high = import_module(name).tasks().distribution.support[0]
    return sf.tasks.Finite(np.linspace(low, high, 3))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Something better than the safe policy is deployed, at a cost below the budget."""
    example = import_module(name)
    run = example.main(few(name), episodes=60)
    assert run.certified
    assert run.unsafe_episodes == run.undecided_episodes == 0
    assert run.weight[-1] > 0
    printed = capsys.readouterr().out
    assert re.search(r"budget [\d.]+ on the expected cost over \d+ steps", printed)


@pytest.mark.short_for(name=["frozen_lake"])
@pytest.mark.parametrize("name", NAMES)
def test_safety_is_not_trivial(name: str) -> None:
    """The safe controller keeps the budget at both ends of the family and in the middle; some candidate breaks it
    somewhere, and somewhere keeps it with a larger reward: shown beyond doubt by intervals."""
    example = import_module(name)
    family = example.tasks()
    candidates = example.CANDIDATES.values() if isinstance(example.CANDIDATES, dict) else example.CANDIDATES
    broken = better = False
    for parameter in few(name).points:
        safe, *others = (values(family.task(parameter), policy) for policy in (example.SAFE, *candidates))
        assert safe[0][1] > 0
        broken |= any(upper[1] < 0 for _, upper in others)
        better |= any(lower[1] > 0 and lower[0] > safe[1][0] for lower, _ in others)
    assert broken
    assert better


def values(task: Any, policy: Any) -> Any:
    outcomes = task.episodes(policy, task.units.horizon).run(1500, np.random.default_rng(0))
    return value_bounds(outcomes, task.units, task.units.horizon, 1e-3)


@pytest.mark.short_for(name=["frozen_lake"])
@pytest.mark.parametrize("name", NAMES)
def test_side_by_side_is_one_by_one_in_law(name: str) -> None:
    """What was written in NumPy for speed is the environment of Gymnasium."""
    example = import_module(name)
    alone = sf.tasks.from_gym(example.make_env, example.tasks().distribution, **{**example.SYSTEM, "make_vector": None})
    middle = alone.distribution.support.mean()
    policy = list(example.CANDIDATES.values() if isinstance(example.CANDIDATES, dict) else example.CANDIDATES)[-1]
    one, other = (
        family.task(middle).episodes(policy, alone.units.horizon).run(300, np.random.default_rng(5))
        for family in (alone, example.tasks())
    )
    for part in ("reward", "cost"):
        first, second = (np.ravel(getattr(each, part)) for each in (one, other))
        assert stats.ks_2samp(first, second).pvalue > 1e-4
        assert np.ptp(first) > 0


@pytest.mark.parametrize("name", NAMES)
def test_an_environment_takes_fewer_than_thirty_lines(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text()
    part = re.search(r"\n# -+ the environment\n(.*?)\n# -----", text, re.DOTALL)
    assert part
    written = [line for line in part[1].splitlines() if line.strip() and not line.strip().startswith(('"""', "#"))]
    assert 10 < len(written) < 30


@pytest.mark.long
def test_a_deployment_survives_a_crash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = import_module("deployed_cartpole")
    verdict = example.main(tmp_path, few("cartpole"), episodes=12)
    assert verdict.holds
    assert verdict.episodes == 12
    printed = capsys.readouterr().out
    assert "ended with exit code 9" in printed
    assert f"12 episodes; all {verdict.rows} rows follow" in printed
    journal = tmp_path / "cart.journal"
    assert ("budget", "6 on the expected cost over 80 steps") in facts(read_status(journal))
    tampered = journal.read_bytes().replace(b'"episode":5', b'"episode":6', 1)
    journal.write_bytes(tampered)
    with pytest.raises(sf.SurefootError):
        example.serve(tmp_path, 13)


@pytest.mark.long
def test_a_study_of_optuna_proposes_what_is_certified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna", reason="needs Optuna: pip install 'surefoot[optuna]'")
    example = import_module("optuna_study")
    study, usual = example.main(tmp_path, days=60)
    assert (len(study.trials), example.unsafe_days(study)) == (60, 0)
    assert example.unsafe_days(usual) > 20
    assert study.trials[-1].params["speed"] > example.SPEEDS[0]
    assert "0 of 60 days at an unsafe speed" in capsys.readouterr().out


def test_a_learner_of_ones_own_keeps_the_contract() -> None:
    example, lake = import_module("own_learner"), import_module("frozen_lake")
    policies = sf.policy_set(
        lake.tasks(sf.tasks.Finite([0.9, 1.0])),
        safe=lake.SAFE,
        candidates=lake.CANDIDATES,
        seed=0,
        envelopes=replace(SMALL, cells=0),
        signals=False,
        progress=False,
    )
    source = learner_suite.EpisodeSource(lake.tasks().task(0.9), 40, 300)
    learner_suite.check(lambda: sf.learner(policies, method=example.SPENDING, seed=5, caution=1.0), source)


def test_the_bound_of_a_learner_of_ones_own() -> None:
    """So many falls are as many standard errors below what is expected at the bound; without errors it is the mean."""
    most_falls = import_module("own_learner").most_falls
    bound = most_falls(3.0, 20, 2.0)
    assert (bound - 3 / 20) / np.sqrt(bound * (1 - bound) / 20) == pytest.approx(2.0)
    assert most_falls(3.0, 20, 0.0) == 3 / 20
    assert most_falls(0.0, 0, 2.0) == 1.0


@pytest.mark.long
def test_a_learner_of_ones_own_is_calibrated_and_deployed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The cautious setting passes and the bold one does not; what was deployed at the end is more than at first."""
    example = import_module("own_learner")
    verdict = example.main(tmp_path, runs=80, path=[{"caution": 4.0}, {"caution": 0.0}])
    assert (verdict.holds, verdict.certified, verdict.episodes) == (True, True, 100)
    printed = capsys.readouterr().out
    assert re.search(r"of 80 are allowed: \{'caution': 4.0\}", printed)
    assert int(re.findall(r"at last (\d+) % of the episodes", printed)[0]) > 18


@pytest.mark.long
def test_the_promise_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    promise = import_module("promise")
    found = promise.main("frozen_lake", tasks=4, risks=(0.5, 0.1), each=2, episodes=60, judged=500, envelopes=SMALL)
    assert [one.risk for one in found].count(0.1) == 4
    assert {one.verdict for one in found} <= {"safe", "undecided"}
    printed = capsys.readouterr().out
    assert "2 trainings, 4 tasks" in printed
    assert len(printed.splitlines()) == 5


@pytest.mark.long
def test_controllers_may_be_learned(capsys: pytest.CaptureFixture[str]) -> None:
    """Experts of so little training may be worse than the safe policy, and unsafe elsewhere: nothing rests on them."""
    learned = import_module("learned")
    brief = replace(
        learned.SCHOOLING,
        update=ppo_lagrangian(Clipping(rate=3e-3, minibatch=500)),
        settings=Settings(steps=36_000, batch=3_000, hidden=(16, 16), discount=0.98),
        warm_steps=9_000,
        tested=1_000,
        allowance=20.0,
        least_length=0.5,
    )
    run = learned.main(few("cartpole"), brief, experts=2, episodes=60, envelopes=replace(SMALL, episodes=800))
    assert run.certified
    assert run.unsafe_episodes == 0
    printed = capsys.readouterr().out
    assert re.search(r"safe: step \d+, reward [\d.]+, cost [\d.]+", printed)
    assert re.search(r"expert: step \d+, reward", printed)
    assert re.search(r"budget 6 on the expected cost over 80 steps", printed)


def test_intervals_of_counts() -> None:
    """Against the textbook: exactly the values at which so many, or so few, have probability 0.025."""
    promise = import_module("promise")
    low, high = promise.clopper_pearson(3, 40)
    assert stats.binom.sf(2, 40, low) == pytest.approx(0.025)
    assert stats.binom.cdf(3, 40, high) == pytest.approx(0.025)
    assert promise.clopper_pearson(0, 40)[0] == 0
    assert promise.clopper_pearson(40, 40)[1] == 1


@pytest.mark.long
def test_an_unsafe_policy_is_counted_as_such() -> None:
    """The mutant: a set whose safe policy is the one that falls in."""
    promise, lake = import_module("promise"), import_module("frozen_lake")
    family = lake.tasks()
    policies = sf.policy_set(
        sf.tasks.from_gym(lake.make_env, sf.tasks.Finite([0.95, 1.0]), **lake.SYSTEM),
        safe=lake.CANDIDATES["quick"],
        candidates={"careful": lake.SAFE},
        seed=0,
        envelopes=sf.Envelopes(uncovered=0.09, episodes=400),
        progress=False,
    )
    assert promise.tried_on(policies, family.task(0.6), 0.1, 20, 500, 0).verdict == "unsafe"
    assert promise.tried_on(policies, family.task(0.99), 0.1, 20, 500, 0).verdict == "safe"


@pytest.mark.long
def test_the_pump_from_the_first_line_to_a_verified_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every day of the page is one of the journal, whose observations give what was paid."""
    pump, pages = import_module("pump"), import_module("pump_page")
    monkeypatch.setattr(pump, "SENSOR_FAILS", 6)
    monkeypatch.setattr("surefoot.simulate.plan.TRIAL_EPISODES", 40)
    monkeypatch.setattr("surefoot.simulate.plan.TRIAL_TASKS", 1)
    settings = AVERAGE_SETTINGS.scaled(0.4), {"sensitivity 0.6": AVERAGE_SETTINGS.scaled(1.5)}
    policies = pump.trained(tmp_path, settings, replace(SMALL, holdout=67), LearnedSignals(tasks=8, episodes=8))
    verdict = pump.main(tmp_path, days=8, policies=policies)
    assert verdict.holds
    assert verdict.episodes == 8
    printed = capsys.readouterr().out
    assert "ended with exit code 9" in printed
    assert "days before it leaves the safe settings" in printed
    diary = pages.read_diary(tmp_path / "pump.journal")
    assert diary.days.tolist() == [0, 1, 2, 3, 4, 5, 7]
    assert diary.missing == {6: "the sensor failed in the afternoon"}
    readings = diary.glucose[:, 1:]
    assert diary.below == pytest.approx(100 * (readings < 70).mean(axis=1))
    assert diary.in_range == pytest.approx(100 * ((readings >= 70) & (readings <= 180)).mean(axis=1))
    page = (tmp_path / "pump.clinic.html").read_text()
    assert page.index("no medical device") < page.index("Day by day")


@pytest.mark.long
def test_four_winds(capsys: pytest.CaptureFixture[str]) -> None:
    example = import_module("four_winds")
    run = example.main(episodes=2000)
    printed = capsys.readouterr().out
    assert run.unsafe_episodes == 0
    never, whole, split = (float(each.replace(",", "")) for each in re.findall(r"regret +([\d,.]+)", printed))
    assert split == pytest.approx(run.regret[-1], abs=0.1)
    assert max(split, whole) < never / 2
    assert example.promise(2, 100) <= 1


def test_overshoot_shrinks_and_the_best_bets_are_the_fastest(capsys: pytest.CaptureFixture[str]) -> None:
    found = import_module("overshoot").main(gridworld_set(), episodes=600, tasks=1, slacks=(0.2,))
    when, beyond = found["certified-likelihood"]
    assert 0 < beyond[when >= 50].mean() < beyond[when < 50].mean()
    present, best = found["waits"].mean(axis=1)
    assert best < present
    mixed, followed, best = found["0.2"]
    assert best < min(mixed, followed)
    assert f"20% below the budget: {mixed:.0f} days" in capsys.readouterr().out


def test_the_other_simulators_cost_more_in_the_same_units() -> None:
    """So a calibration accepts them, and one on the simulator of training says too little."""
    other = import_module("other_simulator")
    cartpole = import_module("cartpole")
    pump = (AVERAGE_SETTINGS, sf.tasks.glucose(), other.other_patients(), [1.0, 55.0])
    for policy, trained, right, parameter in (
        (cartpole.CANDIDATES[0], cartpole.tasks(), other.late_carts(), [0.5]),
        pump,
    ):
        assert trained.units.same_as(right.units)
        assert trained.digest() != right.digest()
        costs = [
            tasks.task(parameter).episodes(policy, tasks.units.episode_length).run(128, np.random.default_rng(0)).cost
            for tasks in (trained, right)
        ]
        assert stats.ttest_ind(*costs, alternative="less").pvalue[0] < 0.01


@pytest.mark.parametrize("name", ["half-cheetah-dynamics", "hopper"])
@pytest.mark.parametrize("risk", [0.5, 0.2, 0.05])
@pytest.mark.parametrize("million", [3.2, 10.0])
def test_bounds_take_no_more_steps_than_are_asked_for(name: str, risk: float, million: float) -> None:
    """And most of them; the bounds may spend less than the risk, and have as many held-out tasks as that takes."""
    pytest.importorskip("mujoco")
    family = FAMILIES[name]
    tasks = family.tasks()
    episodes = 1e6 * million / tasks.units.episode_length / 7
    envelopes, signals = import_module("equal_steps").spend(tasks, episodes, risk, family.signals)
    assert 0.8e6 * million < sum(simulated_steps(tasks, envelopes, signals, 7).values()) <= 1e6 * million
    assert envelopes.uncovered is not None
    assert envelopes.uncovered < risk
    check_holdout(envelopes.resolve(tasks.example, tasks.shared_costs))


@pytest.mark.long
def test_meta_learners_as_published_take_the_steps_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mujoco")
    import_module("as_published").main("half-cheetah-motors", share=0.003, tasks=1, jobs=1)
    printed = capsys.readouterr().out
    assert "1 of 300 iterations" in printed
    for method in ("safe-meta-control", "meta-cpo", "maml-penalty"):  # 6 tasks, 10 lanes of 4 episodes, twice
        assert re.search(rf"{method} +0.1 M steps, 1 updates accepted", printed)
