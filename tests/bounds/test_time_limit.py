"""How much is simulated where a time is given: measured and decided once, with explicit numbers that do the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from surefoot.bounds.settings import LearnedSignals
from surefoot.bounds.simulation import HoldoutBounds, episodes_to_show, fewest_held_out_episodes
from surefoot.bounds.time_limit import LESSONS, SimulationPlan, Speed, measure_speed, plan_simulation
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.errors import InvalidInput
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks.distribution import Finite, Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family
from wheel import UNITS, Turns, Wheel, wheels

REST, PUSH = (sf.controller(lambda seen, action=action: action, name=f"always {action}") for action in (0, 1))


@dataclass
class Stopwatch:
    """A clock that stands still but for what simulated wheels take."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class SlowTurns:
    """Takes `begin` seconds, and `step` for each step of each episode."""

    turns: Turns
    watch: Stopwatch
    begin: float
    step: float

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        self.watch.now += self.begin + self.step * self.turns.steps * episodes
        return self.turns.run(episodes, rng, transitions)


@dataclass(frozen=True)
class SlowWheel(Wheel):
    watch: Any = None
    begin: float = 0.0
    step: float = 0.0

    def episodes(self, policy: Policy, steps: int) -> Any:
        return SlowTurns(super().episodes(policy, steps), self.watch, self.begin, self.step)


def slow_wheels(watch: Stopwatch, step: float, begin: float = 0.0, distribution: Any = None) -> TaskDistribution:
    def build(parameter: Any) -> SlowWheel:
        return SlowWheel(float(parameter[0]), watch=watch, begin=begin, step=step)

    return family(build, distribution or Uniform(0.2, 1.2))


def plan(step: float, envelopes: sf.Envelopes | None = None, **given: Any) -> SimulationPlan:
    watch = Stopwatch()
    tasks = slow_wheels(watch, step, distribution=given.pop("distribution", None))
    return plan_simulation(tasks, [REST, PUSH], envelopes, given.pop("signals", None), clock=watch, **given)


def test_speed_is_measured_by_the_run_and_by_the_episode() -> None:
    watch = Stopwatch()
    found = measure_speed(slow_wheels(watch, 1e-4, begin=0.01), [REST, PUSH], clock=watch)
    assert (found.begin, found.episode, found.steps) == (pytest.approx(0.01), pytest.approx(6e-4), 6)
    assert found.seconds(runs=10, episodes=100) == pytest.approx(10 * (0.01 + 100 * 6e-4))


def test_of_very_slow_tasks_one_episode_of_each_policy_is_enough() -> None:
    watch = Stopwatch()
    found = measure_speed(slow_wheels(watch, 2.0), [REST, PUSH], clock=watch)
    assert found == Speed(0.0, 12.0, 6)
    assert watch.now < 4 * 2 * 12


def test_fast_tasks_have_as_much_as_ever_and_slow_ones_what_fits_into_two_minutes() -> None:
    fast, slow, slower = plan(1e-7), plan(2e-4), plan(5e-4)
    assert replace(fast.envelopes, minutes=None) == sf.Envelopes(cells=100, holdout=299, uncovered=0.03, episodes=500)
    assert fast.jobs == 1, "nothing to share"
    for each in (fast, slow, slower):
        assert each.seconds is not None
        assert each.seconds <= 125
        assert each.envelopes.minutes is None
    assert slow.envelopes.episodes is not None
    assert slower.envelopes.episodes is not None
    assert 500 > slow.envelopes.episodes > slower.envelopes.episodes
    assert slower.envelopes.holdout == 138, "the fewest that uncovered=0.03 allows"
    assert slow.seconds is not None
    assert slow.seconds > 60, "the time is used"


def test_more_minutes_more_episodes_and_never_a_wider_promise() -> None:
    two, ten = plan(5e-4), plan(5e-4, sf.Envelopes(minutes=10))
    assert ten.envelopes.episodes is not None
    assert two.envelopes.episodes is not None
    assert ten.envelopes.episodes > two.envelopes.episodes
    assert {two.envelopes.uncovered, ten.envelopes.uncovered} == {0.03}
    assert plan(5e-4, sf.Envelopes(minutes=10, holdout=200)).envelopes.holdout == 200
    assert plan(5e-4, sf.Envelopes(minutes=10, uncovered=0.1)).envelopes.uncovered == 0.1


def test_signals_have_a_part_of_the_time_unless_somebody_said_how_they_are_learned() -> None:
    slow = plan(2e-3, signals=LearnedSignals())
    assert slow.signals is not None
    assert (slow.signals.tasks, slow.signals.episodes) in LESSONS[1:]
    own = plan(5e-4, signals=LearnedSignals(tasks=30))
    assert own.signals is not None
    assert own.signals.tasks == 30
    assert LESSONS[0] == (LearnedSignals().tasks, LearnedSignals().episodes), "the usual numbers"


def test_what_would_certify_nothing_in_the_time_is_refused_with_the_time_that_it_takes() -> None:
    with pytest.raises(InvalidInput, match=r"minutes must be at least \d+ on 2 core.*33 steps a second.*got 2"):
        plan(0.03)
    with pytest.raises(InvalidInput, match="minutes must be at least"):
        plan(5e-4, sf.Envelopes(minutes=0.1))


def test_finitely_many_tasks_are_planned_for_too() -> None:
    found = plan(5e-4, distribution=Finite(np.linspace(0.2, 1.2, 30)[:, None]))
    assert found.envelopes.episodes is not None
    assert 100 < found.envelopes.episodes <= 500


@pytest.mark.parametrize("given", [sf.Envelopes(episodes=20), sf.Envelopes(), sf.Envelopes(steps=10**6)])
def test_who_says_how_much_is_not_limited_by_time(given: sf.Envelopes) -> None:
    assert plan(0.03, given) == SimulationPlan(given, None, 1)
    assert plan(0.03, given).facts == {}


def test_tasks_that_can_be_read_need_no_plan() -> None:
    tasks = sf.tasks.gridworld()
    careful = TabularPolicy(np.full((tasks.example.n_states, tasks.example.n_actions), 1 / tasks.example.n_actions))
    assert plan_simulation(tasks, [careful], None, None).seconds is None


@pytest.mark.parametrize("wrong", [{"minutes": 0}, {"minutes": 2, "episodes": 5}, {"minutes": 2, "steps": 5}])
def test_minutes_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="minutes must be"):
        sf.Envelopes(**wrong)


def test_the_numbers_that_time_decided_on_make_the_same_set_again(capsys: pytest.CaptureFixture[str]) -> None:
    def made(progress: bool = False, **given: Any) -> sf.PolicyValueSet:
        return sf.policy_set(wheels(), safe=REST, candidates=[PUSH], seed=3, progress=progress, **given)

    by_time = made(progress=True, envelopes=sf.Envelopes(minutes=1, cells=4, holdout=39, uncovered=0.2), jobs=1)
    stored = by_time.training["simulation"]
    assert stored["envelopes"]["holdout"] == 39
    again = made(envelopes=sf.Envelopes(**stored["envelopes"]))
    assert by_time.cells is not None
    assert again.cells is not None
    for name in ("prior", "lower", "upper", "low"):
        assert np.array_equal(getattr(by_time.cells, name), getattr(again.cells, name))
    assert [each.reward for each in by_time.entries] == [each.reward for each in again.entries]
    said = capsys.readouterr().err
    assert "simulating will take about" in said
    assert f"episodes={stored['envelopes']['episodes']}" in said
    assert "of the possible gain can be had at most" in said


# ------------------------------------------------------------------------------------------ what cannot be shown at all


def test_the_fewest_episodes_of_a_held_out_task_show_a_free_policy_to_be_feasible_and_no_fewer_do() -> None:
    fewest = fewest_held_out_episodes(UNITS)
    budget = float(UNITS.scaled(np.array([0.0, 1.5]))[1])

    def upper(episodes: int) -> float:
        blank = HoldoutBounds(*(np.full(2, each) for each in (0.0, 1.0, 0.95)), np.zeros((2, 2)), 0, None)  # type: ignore[arg-type]
        return float(blank.update(np.zeros((episodes, 2))).upper[1])

    assert upper(fewest) <= budget < upper(fewest - 1)


@pytest.mark.parametrize(("margin", "std"), [(0.3, 0.05), (0.05, 0.2), (0.02, 0.001)])
def test_an_estimate_of_the_episodes_that_show_it(margin: float, std: float) -> None:
    """Against bets on numbers of that mean and spread."""
    needed = float(episodes_to_show(np.array(margin), np.array(std), 0.2))
    rng, stake = np.random.default_rng(0), min(0.95, margin / std**2)
    numbers = np.clip(0.3 + std * rng.choice([-1.0, 1.0], size=(int(4 * needed) + 4, 400)), 0, 1)

    def shown(episodes: int) -> float:
        gains = np.log1p(-stake * numbers[:episodes]).sum(axis=0)
        return float(np.mean(-np.expm1((gains + np.log(0.2)) / episodes) / stake <= 0.3 + margin))

    assert shown(max(1, int(needed / 4))) < 0.5 < shown(int(4 * needed) + 1)


def steady(parameter: Any) -> Wheel:
    return Wheel(0.1, replace(UNITS, budget=np.array([0.0005])))


@pytest.mark.parametrize("distribution", [Uniform(0.0, 1.0), Finite(np.linspace(0, 1, 5)[:, None])])
def test_episodes_that_cannot_show_the_safe_policy_to_be_feasible_are_refused_first(distribution: Any) -> None:
    """It costs nothing at all, and the budget is a twelve-thousandth of what could be spent."""
    stages: list[str] = []
    show: Callable[[str, int, int], None] = lambda what, done, total: stages.append(what)  # noqa: E731
    with pytest.raises(InvalidInput, match=r"episodes must be about \d{4,} to show that 'always 0' keeps the budget"):
        sf.policy_set(
            family(steady, distribution), safe=REST, candidates=[PUSH], seed=0, progress=show,
            envelopes=sf.Envelopes(episodes=40, holdout=39, uncovered=0.2),
        )  # fmt: skip
    assert not any("simulating" in stage for stage in stages)
