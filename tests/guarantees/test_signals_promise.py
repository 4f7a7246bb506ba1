"""The promise of certified-signals: what its bounds say of a fresh task, and what it deploys there (Theorems 1b, 4, 7).

One trial is a fresh training and a fresh task, as in the theorem: learn signals, simulate bounds, draw a task, run the
method on it, and look at what is really true, exactly and by nothing of the library (`rough_family`): whether the task
breaks the bounds of its cell, whether its cell was ever ruled out, and whether anything deployed was unsafe. Each count
is compared with what is promised by a binomial test, which a correct method fails with probability below FALSE_ALARM;
everything is seeded. With one error each the same counts must fail.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from joblib import Parallel, delayed
from scipy import stats

from rough_family import BINS, UNITS, Lever, broken, levers, trained
from surefoot.arrays import Floats, Integers
from surefoot.bounds import conformal, settings, simulation
from surefoot.bounds import signal_model as signal_fit
from surefoot.bounds import simulated as simulated_cells
from surefoot.bounds.conformal import ALL_SHARE
from surefoot.bounds.settings import Envelopes, LearnedSignals
from surefoot.bounds.simulation import HoldoutBounds, Simulation
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.learning.certified.evidence.signals import FRACTIONS, SignalProcess, SignalState
from surefoot.learning.learner import Learner
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.streams import Stream
from surefoot.tasks.task_distribution import TaskDistribution

FALSE_ALARM = 1e-4
PROMISE_TASKS = int(os.environ.get("SUREFOOT_PROMISE_TASKS", "60"))
EPISODES, MANY_EPISODES = 60, 150  # to keep a promise, and to be caught
TRAININGS = 3  # that many tasks share

LESSON = LearnedSignals(tasks=30, episodes=8)
ENVELOPES = {
    0.5: Envelopes(cells=12, holdout=47, uncovered=0.2, episodes=400),
    0.1: Envelopes(cells=12, holdout=119, uncovered=0.06, episodes=400),
}
# Of the uncovered, what a first attempt spends on bounds from all held-out tasks.
SPENT = {risk: ALL_SHARE * (made.uncovered or 0.0) / 2 for risk, made in ENVELOPES.items()}


class Trial(NamedTuple):
    """Whether a fresh task broke its cell's bounds, had its cell ever ruled out, was ever unsafe; and how often
    anything but the safe lever was pulled at the end."""

    broke: bool
    lost: bool
    unsafe: bool
    used: float


Evidence = Callable[[SignalProcess], SignalProcess]
Told = Callable[[Lever, Outcomes], Outcomes | None]  # what of an episode reaches the learner, if anything


def as_it_was(task: Lever, outcomes: Outcomes) -> Outcomes:
    return outcomes


def intact(process: SignalProcess) -> SignalProcess:
    return process


def trial(
    risk: float,
    seed: int,
    evidence: Evidence = intact,
    told: Told = as_it_was,
    episodes: int = EPISODES,
    trainings: int | None = None,
) -> Trial:
    """Of a training of its own, or of one of a few."""
    tasks = levers()
    make = trained if trainings is None else _kept
    policies, base = make(tasks, seed if trainings is None else seed % trainings, ENVELOPES[risk], LESSON)
    rng = np.random.default_rng([seed, 1])
    parameter = tasks.sample(1, rng)
    task, j = tasks.task(parameter[0]), int(base.cell_of(parameter)[0])
    method: Any = learner(policies, method="certified-signals", risk=risk).method
    made = Learner(replace(method, evidence=evidence(method.evidence)), seed=seed)
    margin, lost, unsafe = UNITS.budget - task.cost, False, False
    for _ in range(episodes):
        order = made.ask()
        unsafe |= bool(order.deployed.weights @ margin[order.deployed.indices] < -1e-12)
        outcomes = told(task, task.episodes(order.policy, 1).run(1, rng, transitions=True))
        if outcomes is None:
            made.abandon(order)
        else:
            made.tell_block(made.ask_block(1), outcomes)
        lost |= not made.state.method.surviving[j]
    return Trial(broke(policies, j, task), lost, unsafe, made.deployed.weight)


@cache
def _kept_set(seed: int, envelopes: Envelopes) -> tuple[PolicyValueSet, simulated_cells.SurrogateBounds]:
    return trained(levers(), seed, envelopes, LESSON)


def _kept(
    tasks: TaskDistribution, seed: int, envelopes: Envelopes, signals: LearnedSignals
) -> tuple[PolicyValueSet, simulated_cells.SurrogateBounds]:
    return _kept_set(seed, envelopes)


def broke(policies: PolicyValueSet, j: int, task: Lever) -> bool:
    assert policies.cells is not None
    return broken(policies.cells, j, task)


def p_value(count: int, trials: int, level: float) -> float:
    """Probability of so many or more if each trial has probability `level`."""
    return float(stats.binomtest(count, trials, level, alternative="greater").pvalue)


def p_values(trials: list[Trial], risk: float) -> list[float]:
    """Of the tasks that broke their bounds, those that lost their cell, and the unsafe ones."""
    levels = SPENT[risk], risk - (ENVELOPES[risk].uncovered or 0.0) + SPENT[risk], risk
    counts = np.array(trials)[:, :3].sum(axis=0).astype(int).tolist()
    return [p_value(count, len(trials), level) for count, level in zip(counts, levels, strict=True)]


# ---------------------------------------------------------------------------------------------------- promises, counted


def test_the_promise_is_kept_near_the_budget() -> None:
    """With the trainings that catch what is broken."""
    check_promise(0.1, [trial(0.1, seed, episodes=MANY_EPISODES, trainings=TRAININGS) for seed in range(6)])


@pytest.mark.long
@pytest.mark.parametrize(("risk", "trials"), [(0.5, 20), (0.1, 10)])
def test_the_promise_is_kept_after_as_many_trainings(risk: float, trials: int) -> None:
    check_promise(risk, [trial(risk, seed) for seed in range(trials)])


@pytest.mark.long
@pytest.mark.parametrize("risk", [0.5, 0.1])
def test_the_promise_counted_at_length(risk: float, capsys: pytest.CaptureFixture[str]) -> None:
    """SUREFOOT_PROMISE_TASKS trainings and tasks, in two processes; the counts are printed."""
    trials: list[Trial] = Parallel(n_jobs=2)(delayed(trial)(risk, seed) for seed in range(PROMISE_TASKS))
    broke, lost, unsafe, _ = np.array(trials).sum(axis=0)
    with capsys.disabled():
        print(  # noqa: T201
            f"\nrisk {risk:g}: of {len(trials)} tasks {broke:g} broke their bounds, {lost:g} lost their cell, "
            f"{unsafe:g} were ever unsafe"
        )
    check_promise(risk, trials)


def check_promise(risk: float, trials: list[Trial]) -> None:
    assert min(p_values(trials, risk)) > FALSE_ALARM
    assert np.median([each.used for each in trials]) > 0.05, "whoever stays with the safe lever needs no promise"


# --------------------------------------------------------------------------------------------- broken variants, caught


def count_broken(trials: int, tasks: TaskDistribution, envelopes: Envelopes, signals: LearnedSignals) -> int:
    """Fresh tasks, one per training, that break the bounds of their cell."""
    count = 0
    for seed in range(trials):
        given: Any = tasks.drawn_with(seed) if isinstance(tasks, SameTasks) else tasks
        policies, base = trained(given, seed, envelopes, signals)
        parameter = tasks.distribution.sample(1, np.random.default_rng([seed, 1]))
        count += broke(policies, int(base.cell_of(parameter)[0]), tasks.task(parameter[0]))
    return count


def means_for_bounds(held: HoldoutBounds, numbers: Floats) -> HoldoutBounds:
    """What a held-out task showed is taken for the truth."""
    mean = numbers.mean(axis=0)
    return replace(held, lower=mean, upper=mean, done=10**9)


@pytest.mark.long
def test_a_widening_of_too_low_rank_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A score that most exceed in place of one that hardly any does, where no surface follows the tasks and what each
    shows is close to what it is."""
    rough = levers(roughness=0.2)
    monkeypatch.setattr(HoldoutBounds, "update", means_for_bounds)
    assert p_value(count_broken(8, rough, ENVELOPES[0.5], LESSON), 8, SPENT[0.5]) > FALSE_ALARM
    monkeypatch.setattr(conformal, "conformal_quantile", lambda scores, *_: (float(np.quantile(scores, 0.2)), 0.0))
    assert p_value(count_broken(12, rough, ENVELOPES[0.5], LESSON), 12, SPENT[0.5]) < FALSE_ALARM


class SameTasks:
    """Whoever draws tasks gets the first of those that were drawn first."""

    def __init__(self, tasks: TaskDistribution, drawn: Floats | None = None) -> None:
        self.tasks, self.drawn = tasks, drawn

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tasks, name)

    def drawn_with(self, seed: int) -> SameTasks:
        return SameTasks(self.tasks, self.tasks.sample(300, np.random.default_rng([seed, 77])))

    def sample(self, count: int, rng: np.random.Generator) -> Floats:
        assert self.drawn is not None
        return self.drawn[:count]


SERIALS = 40


def every_transition(observed: Observed, most: int) -> Integers:
    return np.array([(0, lever, 1 + state) for lever in range(3) for state in range(BINS * SERIALS)])


@pytest.mark.long
def test_signals_fitted_to_the_episodes_that_bound_them_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings have so many serial numbers that these tell every episode from all others, and signals that are fitted
    to them without restraint know the tasks by heart. Bounds from other tasks and episodes say what that is worth, even
    where means are taken for the truth; bounds from the same ones do not."""
    tasks, few = levers(roughness=0.0, serials=SERIALS, steady=True), replace(ENVELOPES[0.5], episodes=2)
    lesson = LearnedSignals(tasks=50, episodes=2)
    monkeypatch.setattr(signal_fit, "frequent_transitions", every_transition)
    monkeypatch.setattr(signal_fit, "SHRINKAGES", np.array([1e-6]))
    monkeypatch.setattr(HoldoutBounds, "update", means_for_bounds)
    monkeypatch.setattr(settings, "SAMPLED_PER_HELD_OUT", 1)  # so that all of them can be the same tasks and episodes
    monkeypatch.setattr(simulation, "LOOK_PART", 1.0)
    assert p_value(count_broken(4, tasks, few, lesson), 4, SPENT[0.5]) > FALSE_ALARM
    monkeypatch.setattr(
        Simulation, "_entropy", lambda simulation, stage, number: [simulation.seed, Stream.SIGNAL_EPISODES, number]
    )
    same: Any = SameTasks(tasks)
    assert p_value(count_broken(12, same, few, lesson), 12, SPENT[0.5]) < FALSE_ALARM


def caught(trials: int, evidence: Evidence = intact, told: Told = as_it_was) -> bool:
    found = [trial(0.1, seed, evidence, told, MANY_EPISODES, trainings=TRAININGS) for seed in range(trials)]
    return min(p_values(found, 0.1)) < FALSE_ALARM


def two_further(task: Lever, outcomes: Outcomes) -> Outcomes:
    """The readings in another unit."""
    assert outcomes.states is not None
    states = outcomes.states.copy()
    states[:, 1] = 1 + np.minimum(states[:, 1] - 1 + 2, BINS - 1)
    return replace(outcomes, states=states)


@pytest.mark.long
def test_a_signal_that_differs_in_deployment_is_caught() -> None:
    assert caught(14, told=two_further)


@dataclass(frozen=True, eq=False)
class WrongBounds(SignalProcess):
    """Bets against the lower bound where the upper is meant, and the other way round."""

    @property
    def _means(self) -> Floats:  # type: ignore[override]
        above, below = SignalProcess._means.func(self)  # type: ignore[attr-defined]
        return np.clip(np.stack([1 - below, 1 - above]), 1e-3, 1.0)


@dataclass(frozen=True, eq=False)
class Hindsight(SignalProcess):
    """Bets that were chosen after the episode was seen."""

    def observe(self, state: SignalState, drawn: Integers, outcomes: Outcomes) -> SignalState:
        signals = self.readings.signals.of_outcomes(drawn, outcomes)
        numbers = np.concatenate([self.units.scaled(outcomes.sums), signals], axis=1)  # [n, k]
        ratio = np.stack([numbers, 1 - numbers])[..., None] / self._means[:, drawn]
        won = np.log1p(FRACTIONS[2] * np.maximum(ratio.max(axis=(0, 2)) - 1, 0.0)).sum(axis=0)  # [J]
        return replace(super().observe(state, drawn, outcomes), capital=state.capital + won)


@dataclass(frozen=True, eq=False)
class FreeToAbandon(SignalProcess):
    """An episode without an outcome costs nothing."""

    def abandon(self, state: SignalState, drawn: int) -> SignalState:
        return state


def as_a(kind: type[SignalProcess]) -> Evidence:
    return lambda process: kind(*(getattr(process, each.name) for each in fields(process)))


@pytest.mark.parametrize("kind", [WrongBounds, pytest.param(Hindsight, marks=pytest.mark.long)])
def test_bets_that_no_theorem_allows_are_caught(kind: type[SignalProcess]) -> None:
    assert caught(9, as_a(kind))


def only_what_is_seldom(task: Lever, outcomes: Outcomes) -> Outcomes | None:
    """Told are readings far from what is usual on this task, away from the nearer end; all others are abandoned."""
    assert outcomes.states is not None
    reading = (outcomes.states[0, 1] - 0.5) / BINS
    return outcomes if (reading > task.theta + 0.15 if task.theta < 0.5 else reading < task.theta - 0.15) else None


@pytest.mark.long
def test_episodes_abandoned_for_what_they_would_say_make_nothing_unsafe() -> None:
    assert not caught(14, told=only_what_is_seldom)


@pytest.mark.long
def test_free_abandonment_is_caught() -> None:
    assert caught(9, as_a(FreeToAbandon), only_what_is_seldom)
