"""Policy-gradient oracles against linear programs, on random tasks and on the published gridworld."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from random_tasks import nearby, random_arrays, random_cmdp, random_sparse_cmdp, task_arrays
from surefoot.errors import Infeasible, InvalidInput
from surefoot.oracles import crpo, linear_program, policy_gradient, worst_task_then_gradient
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.testing.oracle_suite import (
    conforms_to_feasible_oracle,
    conforms_to_optimal_oracle,
    reference_optimum,
    reference_values,
)

RNG = np.random.default_rng(0)
GRIDWORLD = gridworld()


# ----------------------------------------------------------------------------------------------------------------- O_l


@pytest.mark.parametrize("constraints", [1, 2])
def test_optimal_oracles_reach_epsilon_on_random_tasks(constraints: int) -> None:
    rng = np.random.default_rng(constraints)
    for _ in range(5):
        conforms_to_optimal_oracle(crpo(), random_cmdp(rng, states=6, constraints=constraints), epsilon=0.02)


@given(drawn=task_arrays(), epsilon=st.sampled_from([0.05, 0.005]))
def test_optimal_oracles_never_return_less_than_they_promise(drawn, epsilon: float) -> None:
    """On any task, however badly conditioned: ε is met or an error says that it is not."""
    task = TabularCMDP(**drawn[0])
    try:
        conforms_to_optimal_oracle(crpo(steps=1000), task, epsilon)
    except InvalidInput as error:
        if "did not reach epsilon" not in str(error):
            raise
        assume(False)


def test_optimal_oracles_take_sparse_tasks() -> None:
    conforms_to_optimal_oracle(crpo(), random_sparse_cmdp(np.random.default_rng(2), states=30), epsilon=0.02)


def test_scale_of_rewards_and_costs_does_not_matter() -> None:
    arrays = random_arrays(np.random.default_rng(4), states=5, constraints=2)
    scaled = {**arrays, "reward": 1000 * arrays["reward"] - 7, "cost": 1e-3 * arrays["cost"]}
    scaled["budget"] = 1e-3 * arrays["budget"]
    plain, other = (conforms_to_optimal_oracle(crpo(), TabularCMDP(**each), 0.02) for each in (arrays, scaled))
    np.testing.assert_allclose(plain.policy.probabilities, other.policy.probabilities, atol=1e-6)


@pytest.mark.parametrize("noise", [0.1, pytest.param(0.3, marks=pytest.mark.long), 0.4])
def test_crpo_on_the_gridworld(noise: float) -> None:
    conforms_to_optimal_oracle(crpo(), GRIDWORLD.task([noise]), 0.002)


@pytest.mark.parametrize("build", [partial(crpo, steps=4_000), linear_program])
def test_optimal_oracles_refuse_infeasible_tasks(build) -> None:
    task = GRIDWORLD.task([0.5])
    assert reference_optimum(task) is None
    with pytest.raises(Infeasible) as caught:
        build()(task, 0.001, 0.1, RNG)
    assert caught.value.least_cost[0] == pytest.approx(2.004, abs=0.03)


def test_too_few_steps_are_admitted() -> None:
    with pytest.raises(InvalidInput, match=r"steps = 20 did not reach epsilon = 0.001: proved .* only"):
        crpo(steps=20)(GRIDWORLD.task([0.3]), 0.001, 0.1, RNG)


def test_crpo_tolerance_bounds_the_violation() -> None:
    task = GRIDWORLD.task([0.3])
    found = conforms_to_optimal_oracle(crpo(tolerance=0.0), task, 0.01)
    assert found.margin[0] >= 0


@pytest.mark.parametrize("multipliers", [[0.0, 0.0], [0.5, 0.0], [0.3, 2.0]])
def test_dual_value_bounds_every_feasible_policy(multipliers: list[float]) -> None:
    """Weak duality, and the maximum itself against value iteration."""
    rng = np.random.default_rng(8)
    for _ in range(5):
        task = random_cmdp(rng, constraints=2)
        signals = policy_gradient._unit_signals(task)
        bound = policy_gradient._dual_value(task, signals, np.array(multipliers))
        best = reference_optimum(task)
        assert best is not None
        assert bound >= best - 1e-5
        signal, values = signals[0] + np.tensordot(multipliers, signals[1:], 1), np.zeros(task.n_states)
        for _ in range(400):
            values = (signal + task.discount * task.transitions @ values).max(axis=1)
        assert bound == pytest.approx(float(values @ task.start), abs=1e-9)


# ----------------------------------------------------------------------------------------------------------------- O_s


def conflicting_tasks() -> list[TabularCMDP]:
    """One state, three actions; in task k, action k alone costs: 1, 1 and 2 a step, γ = 0.5, budget 0.9.

    A common policy must keep π(0), π(1) ≤ 0.45 and π(2) ≤ 0.225; the largest common margin is 0.1 (0.05 in unit
    scale), at π = (0.4, 0.4, 0.2). The reward falls from action 0 to 2, so the best policies of one task, however
    tight, put more than half on one action.
    """
    common = {"reward": [[1.0, 0.5, 0.0]], "budget": 0.9, "start": [1.0], "discount": 0.5, "cost_range": (0, 2)}
    return [TabularCMDP(np.ones((1, 3, 1)), cost=np.diag([1.0, 1.0, 2.0])[k : k + 1], **common) for k in range(3)]


@pytest.mark.parametrize("xi", [None, 0.02, 0.0495])
def test_gradient_finds_what_no_single_task_offers(xi: float | None) -> None:
    tasks = conflicting_tasks()
    for task in tasks:
        for tighten in (0.0, 0.3, 0.9):
            tightened = TabularCMDP(task.transitions, task.reward, task.cost, 0.9 - tighten, task.start, task.discount)
            alone = linear_program()(tightened, 0.01, 0.1, RNG).policy.probabilities
            assert min(reference_values(each, alone)[1][0] for each in tasks) < -0.19
    found = conforms_to_feasible_oracle(worst_task_then_gradient(), tasks, xi)
    assert (found.policy.probabilities[0] <= [0.45, 0.45, 0.225]).all()
    with pytest.raises(Infeasible, match="take more steps"):
        worst_task_then_gradient(steps=1)(tasks, xi, 0.1, RNG)


def test_gradient_alone_on_the_gridworld(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a policy that breaks the budget, without the help of any linear program."""
    monkeypatch.setattr(policy_gradient, "CANDIDATES", 0)
    tasks = [GRIDWORLD.task([noise]) for noise in (0.2, 0.3, 0.35, 0.4)]
    risky = linear_program()(GRIDWORLD.task([0.1]), 0.01, 0.1, RNG).policy
    assert reference_values(tasks[-1], risky.probabilities)[1][0] < -1
    conforms_to_feasible_oracle(worst_task_then_gradient(risky), tasks, 0.02)


def test_failure_says_which_task_and_by_how_much() -> None:
    message = r"unit margin 0.06 on all 3 tasks: the best has 0\.0(499\d+|5) on task [012]"
    with pytest.raises(Infeasible, match=message):
        worst_task_then_gradient()(conflicting_tasks(), 0.06, 0.1, RNG)


def test_a_task_that_no_policy_satisfies_is_named() -> None:
    tasks = [GRIDWORLD.task([noise]) for noise in (0.3, 0.2, 0.5)]
    for guess in (None, GRIDWORLD.task([0.4])):
        with pytest.raises(Infeasible, match=r"task 2 of 3 .* reaches is -0.0504") as caught:
            worst_task_then_gradient(guess)(tasks, None, 0.1, RNG)
        assert caught.value.least_cost[0] == pytest.approx(2.004, abs=1e-3)


def test_first_guess_is_kept_when_it_is_safe_and_only_then() -> None:
    tasks = [GRIDWORLD.task([noise]) for noise in (0.2, 0.38)]
    guess = linear_program()(GRIDWORLD.task([0.4]), 0.01, 0.1, RNG).policy
    for first in (guess, guess.probabilities, GRIDWORLD.task([0.4])):
        found = conforms_to_feasible_oracle(worst_task_then_gradient(first), tasks, None)
        np.testing.assert_allclose(found.policy.probabilities, guess.probabilities, atol=1e-9)
    demanding = conforms_to_feasible_oracle(worst_task_then_gradient(guess), tasks, 0.03)
    assert not np.allclose(demanding.policy.probabilities, guess.probabilities)


def test_cautious_policies_do_not_give_up_the_reward() -> None:
    """With a margin asked for, the policy is the best one of the worst task with that margin, not its safest."""
    tasks = [GRIDWORLD.task([noise]) for noise in (0.3, 0.4)]
    found = conforms_to_feasible_oracle(worst_task_then_gradient(), tasks, 0.01)
    assert found.margin[1, 0] == pytest.approx(0.1, abs=1e-5)
    assert found.reward[1] > 43.5
    unasked = conforms_to_feasible_oracle(worst_task_then_gradient(), tasks, None)
    assert unasked.margin.min() > 0.1


@pytest.mark.parametrize("constraints", [1, 2])
def test_random_families_with_a_common_safe_policy(constraints: int) -> None:
    """Budgets leave a unit margin of at least 0.02 to the uniform policy; some policy of margin 0.01 must be found."""
    rng = np.random.default_rng(10 + constraints)
    for _ in range(5):
        arrays = random_arrays(rng, states=5, constraints=constraints)
        arrays |= {"reward_range": (-5.0, 15.0), "cost_range": (-2.0, 15.0)}
        family = [nearby(rng, arrays, 0.5) for _ in range(6)]
        uniform = np.full((5, 3), 1 / 3)
        spent = [each["budget"] - reference_values(TabularCMDP(**each), uniform)[1] for each in family]
        budget = np.max(spent, axis=0) + 0.02 * 17
        tasks = [TabularCMDP(**{**each, "budget": budget}) for each in family]
        conforms_to_feasible_oracle(worst_task_then_gradient(), tasks, 0.01)


def test_nothing_to_search_stops_the_gradient() -> None:
    """One action: the margin is what it is, and the error reports it."""
    build = partial(TabularCMDP, np.ones((1, 1, 1)), reward=[[0.0]], budget=1.0, start=[1.0], discount=0.5)
    with pytest.raises(Infeasible, match=r"unit margin 0.1.*reaches is 0 "):
        worst_task_then_gradient()([build(cost=[[0.5]], cost_range=(0, 1))], 0.1, 0.1, RNG)


def test_bad_arguments_are_named() -> None:
    for build, name in [
        (crpo, "step_size"),
        (worst_task_then_gradient, "steps"),
    ]:
        with pytest.raises(InvalidInput, match=f"{name} must be positive, got 0"):
            build(**{name: 0})
    with pytest.raises(InvalidInput, match="tasks"):
        worst_task_then_gradient()([], 0.1, 0.1, RNG)
    with pytest.raises(InvalidInput, match=r"xi must be None or a margin of at least 0, got -0\.1"):
        worst_task_then_gradient()([GRIDWORLD.task([0.3])], -0.1, 0.1, RNG)
    with pytest.raises(InvalidInput, match="shape"):
        worst_task_then_gradient(TabularPolicy(np.ones((2, 1))))([GRIDWORLD.task([0.3])], None, 0.1, RNG)
