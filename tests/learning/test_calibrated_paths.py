"""Calibration along a path of settings: any method, interrupted and resumed, and what follows the last episode."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from contracts.spending import HORIZON, Spending, spending_set
from contracts.test_own_method import HALFWAY, Halfway
from guarantees import mutants
from shown_wheel import shown_set, shown_wheels
from surefoot import calibration
from surefoot.bounds.time_limit import Speed
from surefoot.calibration import FEWER, JUDGED_ON, RUNS, calibrate_side_by_side, fewest_runs, fit_to_time
from surefoot.deploy.status import read_status
from surefoot.errors import InvalidInput
from surefoot.learning.calibrated import Calibration, parse_calibration
from surefoot.learning.method import SAFE, Mixture, Step
from surefoot.learning.posterior import chance_constrained_pair, temper
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import family
from surefoot.testing import learner_suite

TASKS = family(Spending, Uniform(0.2, 0.8))
GIVEN: dict[str, Any] = {"episodes": 40, "risk": 0.3, "runs": 20, "seed": 2, "jobs": 1, "judged_on": 1000}
PATH = [{"width": 1.0, "level": 0.3, "slack": 0.1}, {"width": 0.2, "level": 0.5, "slack": 0.1}]


@cache
def policies() -> PolicyValueSet:
    return spending_set(cells=40)


@cache
def found(jobs: int = 1, reserve: float = 0.0, abandoned: float = 0.0) -> Calibration:
    given = {**GIVEN, "jobs": jobs, "reserve": reserve, "abandoned": abandoned}
    return sf.calibrate(policies(), TASKS, method="certified-returns", path=PATH, **given)


def learner(**options: Any) -> sf.Learner:
    return sf.learner(policies(), method="certified-returns", risk=0.3, calibration=found(**options))


@pytest.mark.long
def test_it_depends_on_its_seed_alone_and_survives_plain_data() -> None:
    assert found(jobs=2) == found()
    again = parse_calibration({**found().plain(), "standing": "counted"})
    assert again == found()
    assert "judge_error" in found().plain()
    assert "judge_error" not in replace(found(), judge_error=0.0).plain()


def test_an_interrupted_one_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from surefoot.calibration_runs import CalibrationRuns

    def count(record: Path | None) -> Calibration:
        return sf.calibrate(policies(), TASKS, method="certified-returns", path=PATH, record=record, **GIVEN)

    record = tmp_path / "runs"
    assert count(record) == found()
    lines = record.read_text().splitlines()
    assert len(lines) == 1 + GIVEN["runs"]
    record.write_text("\n".join(lines[:12]) + "\n" + lines[12][:5])  # killed while it wrote
    simulated: list[int] = []
    run = CalibrationRuns.run
    monkeypatch.setattr(CalibrationRuns, "run", lambda self, n, alive: simulated.append(n) or run(self, n, alive))
    assert count(record) == found()
    assert simulated == list(range(11, 20))
    assert record.read_text().splitlines() == lines
    with pytest.raises(InvalidInput, match="record must be of this calibration"):
        sf.calibrate(policies(), TASKS, method="certified-returns", record=record, **{**GIVEN, "seed": 3})


def test_runs_can_be_counted_again() -> None:
    assert sf.recount(found(), policies(), TASKS, seed=1, jobs=1).standing == "recounted"
    with pytest.raises(InvalidInput, match="tasks must be those of the calibration"):
        sf.recount(found(), policies(), family(Spending, Uniform(0.2, 0.7)), seed=1, jobs=1)


@pytest.mark.short_for(reserve=[0.1])
@pytest.mark.parametrize("reserve", [0.0, 0.1])
def test_the_contract_of_learners(reserve: float) -> None:
    source = learner_suite.EpisodeSource(Spending(0.4), HORIZON, 400)
    learner_suite.check(lambda: learner(reserve=reserve), source)


def test_with_a_reserve_the_proved_method_takes_over_with_all_that_was_seen() -> None:
    run = sf.adapt(
        policies(),
        Spending(0.4),
        method="certified-returns",
        risk=0.3,
        seed=4,
        episodes=80,
        judged_on=500,
        calibration=found(reserve=0.1),
    )
    alone = sf.adapt(
        policies(), Spending(0.4), method="certified-returns", risk=0.1, seed=4, episodes=80, judged_on=500
    )
    (ended,) = (event for event in run.events if event.kind == "ended")
    assert ended.episode == 40
    assert "certified-returns as it is proved takes over at risk 0.1" in ended.message
    assert run.weight[40] > alone.weight[0]  # it has learned from the forty episodes
    assert found(reserve=0.1).countable_risk == pytest.approx(0.3 - 0.1 - 0.03)


def test_abandoned_episodes_end_it_unless_they_were_calibrated_for() -> None:
    for abandoned, stays in ((0.0, False), (0.05, True)):
        made = learner(abandoned=abandoned)
        made.abandon(made.ask())
        assert (made.deployed.weight > 0) == stays


def test_a_journal_says_what_it_rests_on(tmp_path: Path) -> None:
    with sf.Deployment.open(tmp_path / "journal", learner(reserve=0.1, abandoned=0.05)) as deployment:
        deployment.ask()
    said = dict(read_status(tmp_path / "journal").assumptions)["calibration"]
    assert "level 0.5, slack 0.1, width 0.2 for 40 episodes, from 20 simulated tasks" in said
    assert (
        ", judged on up to 1,000 fresh episodes of each policy, 5 % of the episodes abandoned, 0.1 of the risk" in said
    )


def test_a_method_of_ones_own() -> None:
    path = [{"share": share} for share in (0.1, 0.2, 0.9)]
    own = sf.calibrate(policies(), TASKS, method=HALFWAY, path=path, **GIVEN)
    assert own.level in path[:-1]
    made = sf.learner(policies(), method=HALFWAY, risk=0.3, calibration=own)
    assert made.certified
    with pytest.raises(InvalidInput, match="path must be given for method"):
        sf.calibrate(policies(), TASKS, method=HALFWAY, **GIVEN)
    with pytest.raises(InvalidInput, match="reserve must be 0 for"):
        sf.calibrate(policies(), TASKS, method=HALFWAY, path=path, reserve=0.1, **GIVEN)


@dataclass(frozen=True, eq=False)
class Idle(Halfway):
    def update(self, state: Any, episode: int, drawn: Any, outcomes: Any) -> Step:
        return Step(state, 0)


@dataclass(frozen=True, eq=False)
class Sparing(Halfway):
    def mixture(self, state: Any) -> Mixture:
        return Mixture(np.array([SAFE, 1]), np.array([0.5, 0.4]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Idle, "update of method 'halfway' must use some of the episodes told"),
        (Sparing, r"weights of a mixture of method 'halfway' must be at least 0 and sum to 1, got \[0.5, 0.4\]"),
        (lambda policies, share: None, "make must return a Method, got None"),
    ],
)
def test_methods_of_which_no_count_would_mean_anything(make: Any, message: str) -> None:
    spec = replace(HALFWAY, make=lambda policies, terms, share: make(policies, share))
    with pytest.raises(InvalidInput, match=message):
        sf.calibrate(policies(), TASKS, method=spec, path=[{"share": 0.5}], **GIVEN)


def test_a_setting_may_be_a_word() -> None:
    spec = replace(HALFWAY, make=lambda policies, terms, share: Halfway(policies, {"low": 0.1, "high": 0.2}[share]))
    own = sf.calibrate(policies(), TASKS, method=spec, path=[{"share": "low"}], **GIVEN)
    assert "share low, calibrated for 40" in sf.learner(policies(), method=spec, risk=0.3, calibration=own).method.note


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"path": PATH, "levels": [0.4]}, "path and levels must not both be given"),
        ({"path": []}, "levels must be increasing"),
        ({"path": [{}]}, "path must hold options by their names"),
        ({"path": [3.0]}, "levels must lie strictly .* an option of a method is given by its name"),
        ({"path": [{"width": np.int64(1)}]}, "path must hold options that a journal can keep"),
        ({"path": [{"width": 2.0}]}, "width must lie strictly"),
        ({"path": [{"breadth": 1.0}]}, "takes no option 'breadth'"),
        ({"reserve": 0.3}, "error must be less than the risk"),
        ({"abandoned": 1.0}, "abandoned must lie strictly"),
        ({"judged_on": 0}, "judged_on must be a whole number"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        sf.calibrate(policies(), TASKS, method="certified-returns", **{**GIVEN, "path": PATH, **changed})


def test_time_decides_on_numbers_that_make_the_same_calibration_again(monkeypatch: pytest.MonkeyPatch) -> None:
    speed = Speed(begin=0.0, episode=1e-3, steps=HORIZON)
    monkeypatch.setattr(calibration, "measure_speed", lambda *_, **__: speed)
    given = {name: value for name, value in GIVEN.items() if name not in ("runs", "judged_on")}
    given |= {"method": "certified-returns", "path": PATH[:1]}
    untried = replace(found(), level=None, counts=(), unsafe_runs=None, gains=None, runs=RUNS, judged_on=JUDGED_ON)
    several = len(policies().policies)
    for minutes in (0.5, 1.0, 5.0, 1e4):
        planned = fit_to_time(untried, policies(), TASKS, minutes, jobs=2)
        assert planned.runs * several * (128 + planned.judged_on) * 1e-3 <= 2 * 60 * minutes
        assert planned.allowed >= 0
        enough = planned.runs >= 2 * fewest_runs(untried, 1)
        assert enough or planned.judged_on == FEWER[-1], "first fewer episodes, then fewer tasks"
    assert (planned.runs, planned.judged_on) == (RUNS, JUDGED_ON)
    assert replace(untried, runs=(few := fewest_runs(untried, 1))).allowed == 1
    assert replace(untried, runs=few - 1).allowed == 0
    timed = sf.calibrate(policies(), TASKS, minutes=0.2, **given)
    assert timed == sf.calibrate(policies(), TASKS, **{**given, "runs": timed.runs, "judged_on": timed.judged_on})
    with pytest.raises(InvalidInput, match="minutes must be given without runs and judged_on"):
        sf.calibrate(policies(), TASKS, minutes=0.2, **{**given, "runs": 20})
    monkeypatch.setattr(calibration, "measure_speed", lambda *_, **__: replace(speed, episode=10.0))
    with pytest.raises(InvalidInput, match=r"minutes must be at least \d+ for these tasks, got 2"):
        sf.calibrate(policies(), TASKS, minutes=2, **given)


def test_side_by_side_they_are_what_each_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the bold settings of one are given up early."""
    monkeypatch.setattr("surefoot.calibration.ROUND", 10)
    given = {**GIVEN, "runs": 24, "judged_on": 400}
    paths: dict[str, list[Any]] = {
        "certified-returns": PATH,
        "posterior": [{"share": 0.1, "temperature": 2.0, "slack": 0.2}, {"share": 0.9}],
    }
    together = calibrate_side_by_side(policies(), TASKS, paths, **given)
    assert together == {
        name: sf.calibrate(policies(), TASKS, method=name, path=path, **given) for name, path in paths.items()
    }
    assert together["posterior"].counts[-1][1] > together["posterior"].allowed


def test_side_by_side_one_may_look_at_sums_and_another_at_signals() -> None:
    given: dict[str, Any] = {**GIVEN, "episodes": 12, "judged_on": 300}
    paths: dict[str, list[Any]] = {"titration": [{"every": 3}], "posterior": [{"share": 0.1, "temperature": 2.0}]}
    together = calibrate_side_by_side(shown_set(), shown_wheels(), paths, **given)
    assert together == {
        name: sf.calibrate(shown_set(), shown_wheels(), method=name, path=path, **given) for name, path in paths.items()
    }


# ------------------------------------------------------------------------------------------------------ the posterior


@pytest.mark.parametrize("seed", range(20))
def test_the_chance_constraint_against_a_search(seed: int) -> None:
    """Of all weights on a grid, none that earns more keeps the constraint, and the one chosen does."""
    rng = np.random.default_rng(seed)
    belief = rng.dirichlet(np.ones(12))
    values = rng.normal(size=(12, 4, 3))
    values[:, 0, 1:] = np.abs(values[:, 0, 1:])
    share, reward = 0.2, belief @ values[:, :, 0]

    def broken(policy: int, weight: float) -> float:
        margin = (1 - weight) * values[:, 0, 1:] + weight * values[:, policy, 1:]
        return float(belief[(margin < -1e-9).any(axis=1)].sum())

    chosen = chance_constrained_pair(belief, values, share)
    policy, weight = int(chosen.indices[-1]), chosen.weight
    assert broken(policy, weight) <= share + 1e-9
    earned = weight * (reward[policy] - reward[0])
    for other in range(1, 4):
        for more in np.linspace(0, 1, 101):
            if broken(other, float(more)) <= share:
                assert more * (reward[other] - reward[0]) <= earned + 0.02 * abs(reward).max()


def test_a_temperature_flattens_the_posterior() -> None:
    belief = np.array([0.9, 0.09, 0.01])
    assert temper(belief, 1.0) == pytest.approx(belief)
    assert temper(belief, 2.0) == pytest.approx(np.sqrt(belief) / np.sqrt(belief).sum())


def test_the_posterior_on_tables_and_simulators() -> None:
    source = learner_suite.EpisodeSource(Spending(0.4), HORIZON, 400)
    learner_suite.check(lambda: sf.learner(policies(), method="posterior", risk=0.3), source)
    rooms = mutants.rooms_policies()
    run = sf.adapt(rooms, mutants.rooms().task([0.1]), method="posterior", episodes=60, risk=0.3, seed=1)
    assert not run.certified
    assert run.moved
