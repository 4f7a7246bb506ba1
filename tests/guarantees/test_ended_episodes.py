"""The promise where episodes end early and 0 is in none of the declared ranges: Theorems 8 and P.

A machine that has stopped earns and costs nothing any more, whatever the range of a step. Tasks are moved by `shift`
against the policy that it pays to deploy; unsafe ones are counted with exact margins and compared with the risk by a
binomial test of false-alarm rate FALSE_ALARM. The same counts must catch values whose range forgets the end, in any of
the places in which it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pytest
from scipy import stats

from contracts.made_up import made_up_set
from stopping_machine import COSTLY, CREDITED, STEADY, STEPS, Kind, machines, trained
from surefoot.arrays import Floats
from surefoot.bounds import widening
from surefoot.cmdp.episode import Outcome, Outcomes
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.learning.learner import Learner
from surefoot.learning.method import Method
from surefoot.learning.paper.algorithm_2 import SafeCandidates
from surefoot.learning.paper.constants import PaperRules
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet

FALSE_ALARM = 1e-4
RISK, SHIFT, TRAININGS, EPISODES = 0.05, 0.0024, 4, 10
Change: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def p_value(unsafe: int, count: int, risk: float) -> float:
    return float(stats.binomtest(unsafe, count, risk, alternative="greater").pvalue)


# ------------------------------------------------------------------------------------------------------------- mutants


def spread_forgets_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    intact = widening.spreads
    monkeypatch.setattr(widening, "spreads", lambda *given, ends: intact(*given, ends=False))


def bounds_are_cut_off_without_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    intact = widening.widen_bounds
    monkeypatch.setattr(
        widening,
        "widen_bounds",
        lambda *given, ends, from_start: intact(*given, ends=False, from_start=from_start),
    )


def _forget(name: str) -> Change:
    def change(monkeypatch: pytest.MonkeyPatch) -> None:
        intact = getattr(Units, name)
        monkeypatch.setattr(Units, name, lambda self, *, ends: intact(self, ends=False))

    return change


sums_vary_by_what_a_step_does, nobody_costs_more_than_by_running = _forget("constraint_width"), _forget("worst_value")


# ---------------------------------------------------------------------------------------------------------- Theorem 8


@cache
def policy_sets(kind: Kind) -> list[PolicyValueSet]:
    return [trained(kind, seed) for seed in range(TRAININGS)]


def unsafe_machines(kind: Kind, count: int, shift: float, **options: Any) -> int:
    """Fresh machines, each moved by `shift`, of as many trainings."""
    methods = [
        learner(policies, method="certified-returns", risk=RISK, shift=shift, **options).method
        for policies in policy_sets(kind)
    ]
    parameters = machines(kind).sample(count, np.random.default_rng(5))
    return sum(_unsafe(methods[k % TRAININGS], kind, theta, shift, k) for k, theta in enumerate(parameters))


def _unsafe(method: Method, kind: Kind, theta: Floats, shift: float, number: int) -> bool:
    task, rng = machines(kind).task(theta).moved(shift), np.random.default_rng([6, number])
    learning = Learner(method, seed=number)
    for _ in range(EPISODES):
        order = learning.ask()
        deployed = learning.deployed
        if deployed.weights @ task.margin[deployed.indices] < -1e-9:
            return True
        told = task.episodes(learning.policy(order.policy_index), STEPS).run(1, rng)
        learning.tell(order, Outcome(float(told.reward[0]), told.cost[0]))
    assert learning.certified
    return False


@pytest.mark.parametrize(
    "kind", [pytest.param(COSTLY, id="costly", marks=pytest.mark.long), pytest.param(CREDITED, id="credited")]
)
def test_the_promise_is_kept_on_machines_that_stop_more_or_less_often(kind: Kind) -> None:
    for theta in ([0.0], [1.0]):
        near = machines(kind).task(theta)
        assert (near.margin > 0).all()
        assert near.moved(SHIFT).margin[0] > 0 > near.moved(SHIFT).margin[1], "only the gentle way is feasible there"
    assert p_value(unsafe_machines(kind, 60, SHIFT), 60, RISK) > FALSE_ALARM


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (COSTLY, spread_forgets_the_end),
        (CREDITED, spread_forgets_the_end),
        (CREDITED, bounds_are_cut_off_without_the_end),
    ],
)
def test_ranges_of_values_without_the_end_are_caught(
    kind: Kind, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(monkeypatch)
    assert p_value(unsafe_machines(kind, 40, SHIFT), 40, RISK) < FALSE_ALARM


def test_a_distance_at_which_the_gentle_way_need_not_be_feasible_is_refused() -> None:
    """It is, and whoever knows that may say so; nobody else can."""
    with pytest.raises(InvalidInput, match=r"shift must be at most 0\.002"):
        unsafe_machines(COSTLY, 1, 0.005)
    assert machines(COSTLY).task([0.0]).moved(0.005).margin[0] > 0
    assert p_value(unsafe_machines(COSTLY, 60, 0.005, assume_safe=True), 60, RISK) > FALSE_ALARM


# ---------------------------------------------------------------------------------------------------- no false alarms


def alarms(count: int) -> int:
    """Machines that earn 1 in every step that they run, `reward_range=(1, 1)`, which raise an alarm in 160 episodes."""
    method = learner(policy_sets(STEADY)[0], method="certified-returns", risk=RISK, shift=0.0005).method
    raised = 0
    for number, theta in enumerate(machines(STEADY).sample(count, np.random.default_rng(7))):
        task, rng, learning = (
            machines(STEADY).task(theta),
            np.random.default_rng([8, number]),
            Learner(method, seed=number),
        )
        for _ in range(160):
            order = learning.ask()
            told = task.episodes(learning.policy(order.policy_index), STEPS).run(1, rng)
            learning.tell(order, Outcome(float(told.reward[0]), told.cost[0]))
        raised += any(event.kind == "alarm" for event in learning.events)
    return raised


def test_a_reward_that_is_always_the_same_contradicts_no_cell_when_episodes_end() -> None:
    assert p_value(alarms(6), 6, RISK) > FALSE_ALARM


def test_bounds_cut_off_without_the_end_contradict_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds_are_cut_off_without_the_end(monkeypatch)
    assert p_value(alarms(6), 6, RISK) < FALSE_ALARM


# ---------------------------------------------------------------------------------------------------------- Theorem P

DELTA, PLANNED = 0.01, 5000


def unsafe_runs(runs: int, cost: float, budget: float, safe: float, luck: tuple[float, float], episodes: int) -> int:
    """Runs of Algorithm 2 that deploy something unsafe. Every step that is run costs the same; the safe policy always
    runs `safe` of them. The candidate promises the same, and in a share luck[0] of its episodes runs luck[1]."""
    units = Units(1.0, (0.0, 1.0), np.array([[cost, cost]]), np.array([budget]), horizon=STEPS)
    promised = units.unit_margin([budget - cost * safe]).tolist()
    policies = made_up_set(units, [(STEPS / 2, promised, STEPS / 4, promised)], epsilon=0.001)
    share, other = luck
    margin = budget - cost * np.array([safe, share * other + (1 - share) * safe])
    unsafe = 0
    for number in range(runs):
        learning = Learner(SafeCandidates(policies, PaperRules(policies, PLANNED, DELTA)), seed=number)
        rng, told, worst = np.random.default_rng([9, number]), 0, np.inf
        while told < episodes:
            orders = learning.ask_block(min(100, episodes - told))
            worst = min(worst, float(orders.deployed.weights @ margin[orders.deployed.indices]))
            run = np.where((orders.drawn == 1) & (rng.random(len(orders.drawn)) < share), other, safe)
            reward = np.where(orders.drawn == 1, STEPS / 2, STEPS / 4)
            told += learning.tell_block(orders, Outcomes(reward, cost * run[:, None]))
        assert not learning.state.voided
        unsafe += worst < -1e-9
    return unsafe


def dear_when_it_runs_on() -> int:
    return unsafe_runs(30, cost=1.0, budget=12.0, safe=5.0, luck=(0.9, 20.0), episodes=1500)


def dear_when_it_stops() -> int:
    return unsafe_runs(10, cost=-1.0, budget=-12.0, safe=17.0, luck=(1.0, 0.0), episodes=2400)


def test_algorithm_2_is_safe_where_episodes_end() -> None:
    assert p_value(dear_when_it_runs_on(), 30, DELTA) > FALSE_ALARM
    assert p_value(dear_when_it_stops(), 10, DELTA) > FALSE_ALARM


def test_phases_for_sums_that_never_end_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    sums_vary_by_what_a_step_does(monkeypatch)
    assert p_value(dear_when_it_runs_on(), 30, DELTA) < FALSE_ALARM


def test_a_worst_value_without_the_end_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody_costs_more_than_by_running(monkeypatch)
    assert p_value(dear_when_it_stops(), 10, DELTA) < FALSE_ALARM
