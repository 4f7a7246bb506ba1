"""The dual against the linear program itself, and both against what is known by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from random_tasks import random_distributions, seeds
from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.empirical_model import estimate, known_support
from surefoot.lab.baselines.extended_planning import GAP, Plan, PlanningProblem, plan_extended, policy_values
from surefoot.lab.bench.planning import extended_lp
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy

# The linear program is solved by HiGHS to 1e-9 per row.
TOLERANCE = 1e-6


def random_problem(
    rng: np.random.Generator, discount: float, horizon: int, frugality: float
) -> tuple[PlanningProblem, Floats]:
    """A problem whose budget lies at `frugality` between the least and the largest cost of a step, and P̂; every other
    one has rewards and costs of its own in the last step."""
    states, actions = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    kernel = random_distributions(rng, (states, actions, states), 0.6)
    support = known_support(np.where(kernel > 0, 0, -1))
    counts = rng.integers(0, 6, support.possible.shape) * support.possible
    cost = rng.random((1, states, actions)) - rng.random()
    steps = (discount ** np.arange(horizon)).sum()
    last = rng.random((states, actions)) - 0.3, cost[0].min() + rng.random((states, actions)) * np.ptp(cost)
    problem = PlanningProblem(
        rng.random((states, actions)) - 0.3,
        cost,
        float((cost.min() + frugality * np.ptp(cost)) * steps),
        random_distributions(rng, (states,)),
        support.successors,
        support.possible,
        discount,
        horizon,
        last if rng.random() < 0.5 else None,
    )
    return problem, estimate(counts, support.possible)


def widths_of(kind: str, rng: np.random.Generator, probability: Floats) -> Floats:
    named = {"none": np.zeros_like(probability), "all": np.ones_like(probability)}
    return named.get(kind, rng.random(probability.shape) * float(rng.choice([0.05, 0.5])))


problems = {
    "seed": seeds,
    "kind": st.sampled_from(["none", "all", "random"]),
    "discount": st.sampled_from([1.0, 0.9, 0.5]),
    "horizon": st.integers(1, 6),
    "frugality": st.sampled_from([-0.1, 0.15, 0.3, 0.5, 0.8]),
}


@given(**problems)
def test_the_dual_finds_what_the_linear_program_finds(
    seed: int, kind: str, discount: float, horizon: int, frugality: float
) -> None:
    rng = np.random.default_rng(seed)
    problem, probability = random_problem(rng, discount, horizon, frugality)
    widths = widths_of(kind, rng, probability)
    plan, exact = plan_extended(problem, probability, widths), extended_lp(problem, probability, widths)
    assert (plan is None) == (exact is None)
    if plan is None or exact is None:
        return
    assert plan.reward == pytest.approx(exact, abs=TOLERANCE)
    assert plan.bound == pytest.approx(exact, abs=TOLERANCE)
    assert plan.cost <= problem.budget + 1e-9
    assert plan.reward <= plan.bound + 1e-9
    assert plan.price >= 0
    assert plan.weights.sum() == pytest.approx(1, abs=1e-12)
    assert (plan.weights > 0).all()
    assert len(plan.weights) == 1 or plan.cost == pytest.approx(problem.budget)


@given(**problems)
def test_policies_are_as_good_as_promised_under_the_best_transitions(
    seed: int, kind: str, discount: float, horizon: int, frugality: float
) -> None:
    """With widths 0 the plan's own policies have its reward and cost under P̂; wider boxes only promise more."""
    rng = np.random.default_rng(seed)
    problem, probability = random_problem(rng, discount, horizon, frugality)
    plain = plan_extended(problem, probability, np.zeros_like(probability))
    if plain is not None:
        reward, cost = mixture_values(problem, probability, plain)
        assert reward == pytest.approx(plain.reward, abs=1e-9)
        assert cost == pytest.approx(plain.cost, abs=1e-9)
        wide = plan_extended(problem, probability, widths_of(kind, rng, probability))
        assert wide is not None
        assert wide.reward >= plain.reward - 1e-7


def mixture_values(problem: PlanningProblem, probability: Floats, plan: Plan) -> tuple[float, float]:
    one_hot = np.eye(problem.reward.shape[1])
    values = np.array([policy_values(problem, probability, one_hot[actions]) for actions in plan.actions])
    reward, cost = plan.weights @ values
    return float(reward), float(cost)


@given(seed=seeds)
def test_policy_values_are_those_of_a_long_discounted_task(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem, probability = random_problem(rng, 0.5, 60, 0.5)
    problem = replace(problem, last=None)
    states, actions = problem.reward.shape
    kernel = np.zeros((states, actions, states))
    s, a, d = np.nonzero(problem.possible)
    kernel[s, a, problem.successors[s, a, d]] = probability[s, a, d]
    task = TabularCMDP(kernel, problem.reward, problem.cost, problem.budget, problem.start, 0.5)
    policy = random_distributions(rng, (states, actions))
    expected = evaluate(task, TabularPolicy(policy))
    assert policy_values(problem, probability, policy) == pytest.approx((expected.reward, expected.cost[0]), abs=1e-9)


def two_armed(budget: float, **changes: object) -> PlanningProblem:
    """One state; action 1 pays 1 and costs 1, action 0 nothing."""
    ring = np.zeros((1, 2, 1), dtype=np.int64)
    problem = PlanningProblem(
        np.array([[0.0, 1.0]]), np.array([[[0.0, 1.0]]]), budget, np.ones(1), ring, ring == 0, 1.0, 4
    )
    return replace(problem, **changes)  # type: ignore[arg-type]


def test_a_budget_is_spent_by_mixing_two_policies_and_an_idle_one_has_no_price() -> None:
    plan = plan_extended(two_armed(1.5), np.ones((1, 2, 1)), np.zeros((1, 2, 1)))
    assert plan is not None
    assert (plan.reward, plan.cost, plan.price) == (1.5, 1.5, 1.0)
    assert plan.weights @ plan.actions.sum(axis=(1, 2)) == 1.5
    idle = plan_extended(two_armed(4.0), np.ones((1, 2, 1)), np.zeros((1, 2, 1)))
    assert idle is not None
    assert (idle.reward, idle.price, len(idle.weights)) == (4.0, 0.0, 1)


def test_no_plan_is_within_an_impossible_budget() -> None:
    dear = two_armed(3.9, cost=np.ones((1, 1, 2)))
    assert plan_extended(dear, np.ones((1, 2, 1)), np.zeros((1, 2, 1))) is None
    assert plan_extended(replace(dear, budget=4.0), np.ones((1, 2, 1)), np.zeros((1, 2, 1))) is not None


def test_reward_that_is_free_is_found_at_a_tie() -> None:
    """Both actions pay 1, one costs: the richest response may spend, but the price of the budget is 0."""
    plan = plan_extended(
        two_armed(1.0, reward=np.ones((1, 2)), cost=np.array([[[1.0, 0.0]]])), np.ones((1, 2, 1)), np.zeros((1, 2, 1))
    )
    assert plan is not None
    assert (plan.reward, plan.bound, plan.price) == (4.0, 4.0, 0.0)


def test_the_best_transitions_fill_the_box_from_the_top() -> None:
    """Three successors worth 0, 1, 2 at the second step, P̂ = (.5, .3, .2), β = .1: .4·0 + .3·1 + .3·2."""
    successors = np.broadcast_to(np.arange(3), (3, 1, 3)).copy()
    reward = np.array([[0.0], [1.0], [2.0]])
    problem = PlanningProblem(
        *(reward, np.zeros((1, 3, 1)), 1.0, np.eye(3)[0], successors, np.ones((3, 1, 3), np.bool_), 1.0, 2)
    )
    probability = np.broadcast_to([0.5, 0.3, 0.2], (3, 1, 3))
    plan = plan_extended(problem, probability, np.full((3, 1, 3), 0.1))
    assert plan is not None
    assert plan.reward == pytest.approx(0.9, rel=1e-14)


def test_a_long_horizon_closes_its_gap() -> None:
    """Beyond what the linear program can do: the dual's own certificate, on a problem of the gridworld's size."""
    rng = np.random.default_rng(1)
    states, actions, slots = 49, 4, 4
    successors = np.stack([rng.permutation(states)[:slots] for _ in range(states * actions)])
    problem = PlanningProblem(
        *(rng.random((states, actions)), rng.random((1, states, actions)), 2.0, np.full(states, 1 / states)),
        *(successors.reshape(states, actions, slots), np.ones((states, actions, slots), np.bool_), 0.9, 100),
    )
    probability = random_distributions(rng, (states, actions, slots))
    plan = plan_extended(problem, probability, np.full(probability.shape, 0.02))
    assert plan is not None
    assert plan.cost == pytest.approx(2.0, rel=1e-12)
    assert 0 <= plan.bound - plan.reward <= 4 * GAP * plan.bound


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cost": np.zeros((2, 1, 2))}, "cost must hold one constraint"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"discount": 1.5}, "discount must lie in"),
    ],
)
def test_malformed_problems_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        two_armed(1.0, **changes)
