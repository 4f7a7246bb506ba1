"""The promise of Algorithm 2: with probability at least 1-δ no deployed policy ever breaks a budget.

It holds for every set of candidates, however wrong their values, as long as the safe policy keeps its budget. So the
candidates here lie: they are tried first, since they promise most, and most of them are infeasible. Simulate, look at
the exact margin of everything deployed, count the runs in which it was ever negative and compare the count with δ by a
binomial test. A correct method fails one such test with probability below FALSE_ALARM; everything is seeded. The broken
variants must be caught by the same counting.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, TypeAlias

import numpy as np
import pytest
from scipy import stats

from contracts.made_up import made_up_set, values_of_all
from surefoot.arrays import Floats
from surefoot.cmdp.episode import Outcomes
from surefoot.learning.learner import Learner
from surefoot.learning.method import SAFE, Mixture
from surefoot.learning.paper.algorithm_2 import SafeCandidates
from surefoot.learning.paper.constants import PaperRules
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.simulate.runner import run_learner
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.rollout import Simulator
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family
from surefoot.training.train import train

FALSE_ALARM = 1e-4
GROUP = 50  # runs whose episodes are simulated together

Make: TypeAlias = Callable[[PolicyValueSet, int, float], SafeCandidates]


def p_value(unsafe: int, runs: int, delta: float) -> float:
    """Probability of that many unsafe runs or more if each is unsafe with probability δ."""
    return float(stats.binomtest(unsafe, runs, delta, alternative="greater").pvalue)


# --------------------------------------------------------------------------------------------------------- one scenario


@dataclass(frozen=True, eq=False)
class Scenario:
    """A task, and a set whose promises about it may be lies."""

    task: TabularCMDP
    policies: PolicyValueSet
    episodes: int
    horizon: int

    @cached_property
    def margin(self) -> Floats:
        """[P, m] exact margins of all policies."""
        return values_of_all(self.task, self.policies.policies).margin

    def exact_margin(self, deployed: Mixture) -> float:
        """Smallest margin of a mixture whose component is drawn once per episode."""
        return float((deployed.weights @ self.margin[deployed.indices]).min())

    def runs(self, count: int, seed: int) -> Iterator[list[Outcomes]]:
        """For each run, the episodes of every policy: number k is what episode k would be under it."""
        rng = np.random.default_rng(seed)
        simulators = [Simulator(self.task, policy, self.horizon) for policy in self.policies.policies]
        for _ in range(-(-count // GROUP)):
            pools = [simulator.run(GROUP * self.episodes, rng) for simulator in simulators]
            for run in range(GROUP):
                yield [pool[run * self.episodes : (run + 1) * self.episodes] for pool in pools]


@dataclass
class Count:
    """Over all runs: how many deployed an unsafe policy, and how far they came."""

    runs: int
    unsafe: int
    final_weight: list[float]
    final_candidate: list[int]


def count_unsafe(make: Make, scenario: Scenario, runs: int, delta: float, seed: int = 0) -> Count:
    count = Count(runs, 0, [], [])
    for number, episodes in zip(range(runs), scenario.runs(runs, seed), strict=False):
        learner = Learner(make(scenario.policies, scenario.episodes, delta), seed=number)
        worst, told = math.inf, 0
        while told < scenario.episodes:
            orders = learner.ask_block(min(600, scenario.episodes - told))
            worst = min(worst, scenario.exact_margin(orders.deployed))
            told += learner.tell_block(orders, _upcoming(episodes, orders.drawn, told))
        assert not learner.state.voided
        count.unsafe += worst < -1e-9
        count.final_weight.append(learner.deployed.weight)
        count.final_candidate.append(int(learner.deployed.indices[-1]))
    return count


def _upcoming(episodes: list[Outcomes], drawn: np.ndarray, told: int) -> Outcomes:
    places = told + np.arange(len(drawn))
    reward, cost = np.empty(len(drawn)), np.empty((len(drawn), episodes[0].cost.shape[1]))
    for index in np.unique(drawn):
        rows = drawn == index
        reward[rows], cost[rows] = episodes[index].reward[places[rows]], episodes[index].cost[places[rows]]
    return Outcomes(reward, cost)


def correct(policies: PolicyValueSet, episodes: int, delta: float) -> SafeCandidates:
    return SafeCandidates(policies, PaperRules(policies, episodes, delta))


@cache
def liars(constraints: int = 1) -> Scenario:
    """Three infeasible candidates that promise ever less, each lying in another way, and an honest one.

    Steps are independent of what was done; what varies is how much they pay and cost. In unit scale the safe policy has
    V_c = 0.75, the infeasible candidate -0.31: more than 70% of it is too much.
    """
    slow, fast = np.array([[0.0, 0.9], [0.2, 1.0]]), np.array([[0.1, 1.0], [0.1, 0.9]])
    cost = np.stack([slow, fast])[:constraints]
    reward = np.array([[0.0, 1.0], [0.4, 0.6]])
    chance = np.full((2, 2, 2), 0.5)
    budget = np.full(constraints, 0.7 / 0.8)
    task = TabularCMDP(chance, reward, cost, budget, [0.5, 0.5], 0.2, (0.0, 1.0), (0.0, 1.0))
    policies = [TabularPolicy(np.array([[1 - p, p]] * 2)) for p in (0.0, 1.0, 1.0, 1.0, 0.6)]
    values = values_of_all(task, policies)
    u, v = task.units.unit_reward_value(values.reward), task.units.unit_margin(values.margin)
    safe = (u[0], v[0])
    promises = [
        (u[1] + 0.02, [0.6] * constraints, *safe),  # claims to be nearly as safe as the safe policy
        (u[1] + 0.01, [0.0] * constraints, *safe),  # claims to be just feasible
        (u[1], [0.3] * constraints, u[0], 1.2 * v[0]),  # exaggerates the margin of the safe policy, too
        (u[4], v[4], *safe),  # tells the truth
    ]
    return Scenario(task, made_up_set(task.units, promises, epsilon=1e-4, policies=policies), 4500, 6)


def test_the_scenario_is_what_it_says() -> None:
    margin = liars().task.units.unit_margin(liars().margin)[:, 0]
    assert margin.tolist() == pytest.approx([0.75, -0.3125, -0.3125, -0.3125, 0.1125])
    assert (liars(2).margin[SAFE] > 0).all()
    assert (liars(2).margin[1] < 0).all()


# ---------------------------------------------------------------------------------------------------------- the promise


@pytest.mark.long
@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_liars_are_found_out_in_time_and_the_honest_candidate_is_reached(delta: float) -> None:
    runs = 500
    count = count_unsafe(correct, liars(), runs, delta)
    assert p_value(count.unsafe, runs, delta) > FALSE_ALARM
    # Staying on the safe policy for ever would be as safe, but it is not what is promised.
    honest = sum(candidate == 4 and weight > 0.5 for candidate, weight in _ends(count))
    assert honest >= (1 - delta) * runs


@pytest.mark.short_for(delta=[0.5])
@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_every_constraint_is_kept(delta: float) -> None:
    runs = GROUP if delta == 0.5 else 3 * GROUP
    count = count_unsafe(correct, liars(2), runs, delta)
    assert p_value(count.unsafe, runs, delta) > FALSE_ALARM
    assert sum(weight > 0.3 for weight in count.final_weight) >= (1 - delta) * runs


def windy(parameter: Floats) -> TabularCMDP:
    """Going fast pays, but leads into rough terrain with probability θ, where going on is expensive."""
    wind = float(parameter[0])
    transitions = [[[1 - 0.1 * wind, 0.1 * wind], [1 - wind, wind]], [[0.8, 0.2], [1 - wind, wind]]]
    reward, cost = [[0.2, 1.0], [0.0, 0.8]], [[0.0, 0.1], [0.6, 1.0]]
    return TabularCMDP(transitions, reward, cost, 0.9, [0.8, 0.2], 0.5, (0.0, 1.0), (0.0, 1.0))


def windy_family() -> TaskDistribution:
    return family(windy, Uniform(0.3, 0.9), coordinates=lambda parameters: parameters)


@pytest.mark.parametrize("runs", [pytest.param(15, id="few"), pytest.param(500, id="many", marks=pytest.mark.long)])
def test_a_trained_set_is_safe_on_tasks_drawn_anew(runs: int) -> None:
    """The whole way: train with the theorem's precondition met, then adapt to tasks inside the cover and outside."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policies = train(windy_family(), epsilon=0.0075, delta=0.1, xi=0.5, seed=0, progress=False, cells=0)
    rng = np.random.default_rng(1)
    unsafe, delta = 0, 0.05
    left = 0
    for number in range(runs):
        task = windy(windy_family().sample(1, rng)[0])
        learner = Learner(correct(policies, 6000, delta), seed=number, horizon=20)
        run = run_learner(learner, task, episodes=6000, seed=number, optimal_reward=0.0)
        unsafe += run.unsafe_episodes > 0
        left += run.weight.max() > 0
    assert p_value(unsafe, runs, delta) > FALSE_ALARM
    assert left > 0.7 * runs


# --------------------------------------------------------------------------------------- broken variants must be caught


class OneSided(SafeCandidates):
    """Sign of the constraint confused in the test: eliminates who is safer than promised, not who is less safe."""

    def _evaluate_condition(self, state: Any, entry: Any, seen: Any) -> tuple[np.ndarray, np.ndarray]:
        promised = state.weight * entry.margin + (1 - state.weight) * entry.safe_margin
        excess = (self.units.budget - seen.cost / seen.count[:, None]) - promised
        failed: np.ndarray = (excess > self.rules.margin_radius(seen.count)).any(axis=1)
        return failed, ~failed


class Flipped(SafeCandidates):
    """Sign of the constraint flipped throughout: cost - budget is compared with the promised budget - cost."""

    def _evaluate_condition(self, state: Any, entry: Any, seen: Any) -> tuple[np.ndarray, np.ndarray]:
        promised = state.weight * entry.margin + (1 - state.weight) * entry.safe_margin
        gap = np.abs((seen.cost / seen.count[:, None] - self.units.budget) - promised)
        failed: np.ndarray = (gap > self.rules.margin_radius(seen.count)).any(axis=1)
        return failed, ~failed


class NeverEliminate(PaperRules):
    """Nothing observed ever counts against a candidate."""

    def reward_radius(self, count: np.ndarray) -> Floats:
        return np.full(len(count), np.inf)

    def margin_radius(self, count: np.ndarray) -> Floats:
        return np.full((len(count), 1), np.inf)


class AllAtOnce(PaperRules):
    """A candidate that passes the first test is deployed outright."""

    def next_weight(self, entry: Any, step: int, weight: float) -> float:
        return 1.0


class ShortPhases(PaperRules):
    """Margins in raw units in formulas written for the unit scale: phases a hundred times too short."""

    def phase_length(self, entry: Any, step: int, weight: float) -> float:
        return super().phase_length(entry, step, weight) / 100


def with_rules(rules: type[PaperRules]) -> Make:
    return lambda policies, episodes, delta: SafeCandidates(policies, rules(policies, episodes, delta))


def one_sided(policies: PolicyValueSet, episodes: int, delta: float) -> SafeCandidates:
    return OneSided(policies, PaperRules(policies, episodes, delta))


def flipped(policies: PolicyValueSet, episodes: int, delta: float) -> SafeCandidates:
    return Flipped(policies, PaperRules(policies, episodes, delta))


BROKEN: dict[str, Make] = {
    "one-sided": one_sided,
    "never-eliminate": with_rules(NeverEliminate),
    "all-at-once": with_rules(AllAtOnce),
    "short-phases": with_rules(ShortPhases),
}


@pytest.mark.short_for(broken=["one-sided", "never-eliminate"], delta=[0.5])
@pytest.mark.parametrize("delta", [0.05, 0.5])
@pytest.mark.parametrize("broken", BROKEN)
def test_unsafe_variants_are_caught(broken: str, delta: float) -> None:
    runs = GROUP
    count = count_unsafe(BROKEN[broken], liars(), runs, delta)
    assert p_value(count.unsafe, runs, delta) < FALSE_ALARM


def test_a_flipped_sign_is_caught_because_nobody_is_ever_reached() -> None:
    count = count_unsafe(flipped, liars(), GROUP, 0.05)
    assert count.unsafe == 0
    assert not any(weight > 0 for weight in count.final_weight)


def _ends(count: Count) -> Iterator[tuple[int, float]]:
    return zip(count.final_candidate, count.final_weight, strict=True)


# ----------------------------------------------------------------------------------- one draw per episode, not per step


@cache
def switching_is_a_trap() -> Scenario:
    """Doing the same all the time costs nothing; whoever switches is trapped, and pays for ever."""
    fresh, did_0, did_1, trap = range(4)
    after = np.array([[did_0, did_1], [did_0, trap], [trap, did_1], [trap, trap]])
    cost = np.zeros((4, 2))
    cost[trap] = 1.0
    reward = np.array([[0.2, 0.8]] * 3 + [[0.0, 0.0]])
    task = TabularCMDP(np.eye(4)[after], reward, cost, 5.0, np.eye(4)[fresh], 0.9, (0.0, 1.0), (0.0, 1.0))
    policies = [TabularPolicy(np.tile(np.eye(2)[action], (4, 1))) for action in (0, 1)]
    values = values_of_all(task, policies)
    u, v = task.units.unit_reward_value(values.reward), task.units.unit_margin(values.margin)
    policy_set = made_up_set(task.units, [(u[1], v[1], u[0], v[0])], epsilon=1e-4, policies=policies)
    return Scenario(task, policy_set, 3000, 130)


def test_a_component_per_episode_is_safe_where_one_per_step_is_not() -> None:
    scenario, runs, delta = switching_is_a_trap(), GROUP, 0.05
    count = count_unsafe(correct, scenario, runs, delta)
    assert p_value(count.unsafe, runs, delta) > FALSE_ALARM
    assert min(count.final_weight) > 0.3

    unsafe = 0
    for number in range(runs // 5):
        unsafe += _drawn_per_step(scenario, delta, number) < -1e-9
    assert p_value(unsafe, runs // 5, delta) < FALSE_ALARM


def _drawn_per_step(scenario: Scenario, delta: float, seed: int) -> float:
    """Smallest exact margin if the mixture is taken for one over actions: a new component in every state."""
    learner = Learner(correct(scenario.policies, scenario.episodes, delta), seed=seed)
    rng = np.random.default_rng(seed)
    tables = np.stack([policy.probabilities for policy in scenario.policies.policies])
    smallest = math.inf
    while learner.state.episode < 1000:
        orders = learner.ask_block(100)
        mixed = TabularPolicy(np.tensordot(orders.deployed.weights, tables[orders.deployed.indices], axes=1))
        smallest = min(smallest, float(evaluate(scenario.task, mixed).margin.min()))
        learner.tell_block(orders, Simulator(scenario.task, mixed, scenario.horizon).run(100, rng))
    return smallest
