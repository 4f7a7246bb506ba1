"""The plan agrees with what the methods then do, and names what stands in the way when they do nothing."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contracts.made_up import made_up_set
from contracts.spending import HORIZON, OpenSpending, spending_set
from contracts.test_own_method import HALFWAY
from surefoot import theory
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.learning.calibrated import Calibration
from surefoot.learning.learner import Learner
from surefoot.learning.method import SAFE
from surefoot.learning.paper.constants import PaperRules, least_episodes_to_leave
from surefoot.learning.spec import PlanLine
from surefoot.methods import METHODS, learner, plan
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.simulate.plan import TRIAL_TASKS
from surefoot.simulate.runner import simulate
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import family
from trained_gridworld import gridworld_set

UNITS = Units(0.1, (0.0, 1.0), np.array([[0.0, 1.0]]), np.array([0.7 / 0.9]))
SPENDING = family(lambda parameter: OpenSpending(float(parameter[0])), Uniform(0.2, 0.8))
SHORT = made_up_set(UNITS, [(0.6, [0.5], 0.3, [0.6]), (0.8, [0.5], 0.3, [0.7])], epsilon=1e-3)


def line(policies: PolicyValueSet, method: str, episodes: int = 40_000, risk: float = 0.05, **given: Any) -> PlanLine:
    (found,) = [each for each in plan(policies, episodes=episodes, risk=risk, **given) if each.method == method]
    return found


def episodes_on_the_safe_policy(fresh: Learner, policies: PolicyValueSet, limit: int) -> float:
    """How many a learner runs there if every episode is as the best candidate promises; infinite beyond `limit`."""
    best = max(policies.entries, key=lambda entry: entry.reward)
    while fresh.state.episode < limit:
        orders = fresh.ask_block(min(1000, limit - fresh.state.episode))
        if orders.deployed.indices.tolist() != [SAFE]:
            return fresh.state.episode
        n = len(orders.drawn)
        cost = np.tile(policies.units.budget - best.safe_margin, (n, 1))
        fresh.tell_block(orders, Outcomes(np.full(n, best.safe_reward), cost))
    return math.inf


@pytest.mark.parametrize("episodes", [200, 5000])
@pytest.mark.parametrize("risk", [0.01, 0.5])
def test_paper_leaves_the_safe_policy_when_planned(episodes: int, risk: float) -> None:
    planned = line(SHORT, "paper", episodes, risk)
    fresh = learner(SHORT, method="paper", episodes=episodes, risk=risk)
    assert planned.episodes == episodes_on_the_safe_policy(fresh, SHORT, 10_000) < 10_000
    assert planned.certified
    assert ("more than this run has" in planned.reason) == (planned.episodes > episodes)


@pytest.mark.parametrize("name", ["safe-only", "paper", "published", "pce"])
def test_gridworld_methods_do_as_planned(name: str) -> None:
    planned = line(gridworld_set(cells=0), name)
    fresh = learner(gridworld_set(cells=0), method=name, episodes=40_000, risk=0.05)
    assert planned.episodes == episodes_on_the_safe_policy(fresh, gridworld_set(cells=0), 6000)
    assert planned.certified == fresh.method.certified
    assert planned.reason


def test_every_line_is_about_a_method_that_exists() -> None:
    methods = [each.method for each in plan(gridworld_set(cells=0), episodes=1000, risk=0.05)]
    assert {"safe-only", "paper", "published", "pce"} <= set(methods) <= set(METHODS)
    assert len(set(methods)) == len(methods)


def test_gridworld_set_is_too_coarse_for_the_paper_and_the_plan_says_what_would_do() -> None:
    planned = line(gridworld_set(cells=0), "paper")
    assert planned.episodes == math.inf
    best = max(gridworld_set(cells=0).entries, key=lambda entry: entry.reward)
    margin = best.safe_margin[0] / 10
    assert "epsilon = 0.004 leaves no positive weight" in planned.reason
    assert f"epsilon ≤ {margin / 1538:.2g} it would take" in planned.reason  # 8L+18 = 1538 at discount 0.9
    finer = replace(gridworld_set(cells=0), epsilon=margin / 1538)
    failing = gridworld_set(cells=0).safe_risk
    assert failing is not None
    assert f"take {least_episodes_to_leave(finer, 0.05 - failing):.2g} episodes" in planned.reason
    finer = replace(finer, safe_risk=0.0)
    least = least_episodes_to_leave(finer, 0.05)
    # By hand: 8 ln(4KΦ/δ)/((1-γ)² v²) at v = 0.0782, Φ = 975 phases and K = 3.44 million is 3.44 million.
    assert least == pytest.approx(3.44e6, rel=1e-3)
    assert line(finer, "paper", int(least)).episodes == least
    assert line(finer, "paper", int(least) - 1).episodes > least - 1


@pytest.mark.parametrize("risk", [0.05, 0.9])
def test_least_episodes_is_the_least(risk: float) -> None:
    best = max(SHORT.entries, key=lambda entry: entry.reward)

    def enough(episodes: int) -> bool:
        return PaperRules(SHORT, episodes, risk).phase_length(best, 0, 0.0) <= episodes

    least = least_episodes_to_leave(SHORT, risk)
    assert least == next(episodes for episodes in range(1, 10_000) if enough(episodes))


def test_a_safe_policy_without_margin_is_named() -> None:
    tight = made_up_set(UNITS, [(0.8, [0.5], 0.3, [0.0])], epsilon=1e-3)
    planned = line(tight, "paper")
    assert planned.episodes == math.inf
    assert "the safe policy has no margin" in planned.reason
    assert least_episodes_to_leave(tight, 0.05) == math.inf


def test_an_infeasible_candidate_is_named() -> None:
    broken = made_up_set(UNITS, [(0.8, [-0.01], 0.3, [0.7])], epsilon=1e-3)
    planned = line(broken, "paper")
    assert planned.episodes == math.inf
    assert "breaks a budget on its own task, by 0.01" in planned.reason


def test_no_promise_is_made_where_a_finer_set_would_not_help() -> None:
    """The candidate is feasible up to the coarse ε only, so with the ε that the theorem asks for it never starts."""
    coarse = made_up_set(UNITS, [(0.8, [-0.09], 0.3, [0.7])], epsilon=0.1)
    assert theory.largest_epsilon(0.7, 0.1) < 0.09
    planned = line(coarse, "paper")
    assert planned.episodes == math.inf
    assert "it would take" not in planned.reason


# ------------------------------------------------------------------------------------------------- with a calibration


def calibrated(standing: str = "counted", reserve: float = 0.0, method: str = "certified-returns") -> Calibration:
    return Calibration(
        method=method,
        episodes=60,
        risk=0.3,
        error=0.0,
        level=0.6,
        runs=40,
        counts=((0.6, 1),),
        horizon=HORIZON,
        digest=spending_set().digest(),
        attempt=1,
        seed=5,
        tasks="spending",
        standing=standing,  # type: ignore[arg-type]
        judge_error=0.03,
        judged_on=1000,
        reserve=reserve,
    )


def calibrated_line(found: Calibration, **given: Any) -> PlanLine:
    lines = plan(spending_set(), **{"episodes": 1000, "risk": 0.3, "tasks": SPENDING, "calibration": found, **given})
    assert lines[0].method == "certified"
    assert lines[2:] == plan(spending_set(), episodes=1000, risk=0.3, tasks=SPENDING)[1:]
    return lines[1]


def test_a_calibration_has_a_line_that_says_what_it_rests_on() -> None:
    planned = calibrated_line(calibrated())
    assert (planned.method, planned.certified) == ("certified-returns, calibrated", True)
    assert "certified by calibration: level 0.6 for 60 episodes, from 40 simulated tasks (spending)" in planned.reason
    assert "judged on up to 1,000 fresh episodes of each policy, attempt 1, seed 5" in planned.reason
    assert planned.reason.endswith("after these episodes the safe policy")


@pytest.mark.long
def test_a_calibrated_method_does_as_planned() -> None:
    """The median over the tasks that every method is tried on; at a bolder level than its own it moves sooner."""
    found, alone = calibrated(), line(spending_set(), "certified-returns", risk=0.3, tasks=SPENDING)
    leaves, halves = [], []
    for seed, parameter in enumerate(SPENDING.sample(TRIAL_TASKS, np.random.default_rng(0))):
        made = learner(spending_set(), method="certified-returns", risk=0.3, seed=seed, calibration=found)
        deployed = simulate(made, SPENDING.task(parameter), episodes=60, seed=seed)
        leaves.append(next(begin for begin, mixture in deployed if mixture.weight > 0))
        halves.append(next((begin for begin, mixture in deployed if mixture.weight >= 0.5), math.inf))
    planned, half = calibrated_line(found), np.median(halves)
    assert planned.episodes == np.median(leaves)
    assert f"weight 1/2 after about {half:.0f} episodes" in planned.reason
    assert half < float(re.findall(r"about (\d+) episodes", alone.reason)[0])


@pytest.mark.long
def test_a_claimed_calibration_says_so() -> None:
    planned = calibrated_line(calibrated("claimed"))
    assert not planned.certified
    assert "claimed calibration: nobody here has counted it, so nothing is certified" in planned.reason
    assert "certified by calibration" not in planned.reason
    assert calibrated_line(calibrated().plain()) == planned  # plain data are claimed whatever they say


@pytest.mark.long
def test_what_follows_a_calibration_with_a_reserve() -> None:
    planned = calibrated_line(calibrated(reserve=0.1))
    assert planned.reason.endswith("after these episodes certified-returns as it is proved, at risk 0.1")


def test_calibrations_that_are_of_no_use_here() -> None:
    with pytest.raises(InvalidInput, match=r"risk must be at least the 0\.3 of the calibration"):
        plan(spending_set(), episodes=1000, risk=0.05, calibration=calibrated())
    with pytest.raises(InvalidInput, match="calibration must be for digest"):
        plan(spending_set(cells=20), episodes=1000, risk=0.3, calibration=calibrated())
    with pytest.raises(InvalidInput, match="calibration must have passed at some level"):
        plan(spending_set(), episodes=1000, risk=0.3, calibration=replace(calibrated(), level=None, counts=()))


def test_the_calibration_of_a_method_of_ones_own() -> None:
    found = replace(calibrated(method="halfway"), level={"share": 0.2}, counts=(({"share": 0.2}, 1),))
    with pytest.raises(InvalidInput, match=r"method must be one of .* or a MethodSpec of your own, got 'halfway'"):
        plan(spending_set(), episodes=1000, risk=0.3, calibration=found)
    planned = calibrated_line(found, method=HALFWAY)
    assert (planned.method, planned.episodes) == ("halfway, calibrated", 10)
