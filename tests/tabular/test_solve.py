"""The solvers against linprog, value iteration, the published gridworld, each other, and themselves when cold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import linprog

from random_tasks import Arrays, as_sparse, random_cmdp, random_sparse_cmdp, task_arrays
from surefoot.arrays import Floats
from surefoot.errors import Infeasible, InvalidInput
from surefoot.tabular import lagrangian
from surefoot.tabular import solve as solve_module
from surefoot.tabular.evaluate import evaluate, occupancy
from surefoot.tabular.lagrangian import Solution, solve_lagrangian
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.solve import OccupancyLP, solve, solve_many

PUBLISHED = {0.0: 62.565, 0.1: 59.737, 0.2: 56.433, 0.3: 51.963, 0.4: 44.915}


def gridworld(noise: float, budget: float = 1.5) -> TabularCMDP:
    """The published 7×7 gridworld, written down a second time and cell by cell."""
    transitions = np.zeros((49, 4, 49))
    for s in range(49):
        y, x = divmod(s, 7)
        targets = [(x + 1, y), (x, y + 1), (x - 1, y), (x, y - 1)]
        inside = [7 * v + u for u, v in targets if 0 <= u < 7 and 0 <= v < 7]
        for a, (u, v) in enumerate(targets):
            intended = 7 * v + u if 0 <= u < 7 and 0 <= v < 7 else s
            blown = inside if intended in inside else [*inside, intended]
            transitions[s, a, intended] += 1 - noise
            transitions[s, a, blown] += noise / len(blown)
    transitions[45] = np.eye(49)[45]
    red = np.isin(np.arange(49), [7 * y + x for x in (2, 4) for y in (1, 2, 3, 4)])
    reward = np.where(np.arange(49) == 45, 10.0, 0.0)
    return TabularCMDP(transitions, reward, np.where(red, 10.0, 0.0), budget, np.where(red, 0, 1 / 41), 0.9)


def sparse_copy(cmdp: TabularCMDP) -> TabularCMDP:
    return TabularCMDP(cmdp.rows, cmdp.reward, cmdp.cost, cmdp.budget, cmdp.start, cmdp.discount)


def with_budget(cmdp: TabularCMDP, budget: Any) -> TabularCMDP:
    return TabularCMDP(cmdp.transitions, cmdp.reward, cmdp.cost, budget, cmdp.start, cmdp.discount)


def reference(arrays: Arrays, budget: Floats, excess: bool = False) -> Any:
    """scipy's solution of the occupancy program, or of the least worst excess over the budget, by dense matrices."""
    states, actions = arrays["reward"].shape
    m, pairs = len(budget), states * actions
    flow = np.repeat(np.eye(states), actions, axis=0) - arrays["discount"] * arrays["transitions"].reshape(pairs, -1)
    relax = np.ones((m, 1)) if excess else np.zeros((m, 1))
    return linprog(
        np.append(np.zeros(pairs) if excess else -arrays["reward"].ravel(), float(excess)),
        A_eq=np.column_stack([flow.T, np.zeros(states)]),
        b_eq=arrays["start"],
        A_ub=np.column_stack([arrays["cost"].reshape(m, -1), -relax]),
        b_ub=budget,
        bounds=[(0, None)] * pairs + [(None, None) if excess else (0, 0)],
        method="highs",
    )


def task_between(arrays: Arrays, share: float, sparse: bool) -> TabularCMDP:
    """Budgets from the least possible (share 0, and linprog's tolerance) to what uniform actions spend (1) or more."""
    budget = arrays["budget"] + (1 - share) * reference(arrays, arrays["budget"], excess=True).x[-1] + 1e-6
    return TabularCMDP(**{**(as_sparse(arrays) if sparse else arrays), "budget": budget})


def best_value(cmdp: TabularCMDP, signal: Floats) -> Floats:
    """[S] optimal state values of a signal [S, A], by value iteration until rounding."""
    values = np.zeros(cmdp.n_states)
    for _ in range(int(np.ceil(np.log(1e-15) / np.log(cmdp.discount)))):
        values = (signal + cmdp.discount * (cmdp.rows @ values).reshape(signal.shape)).max(axis=1)
    return values


def duality_gap(cmdp: TabularCMDP, solution: Solution, limit: Floats) -> float:
    """How far the policy may be from optimal: weak duality with the reported multipliers, and value iteration."""
    bound = cmdp.start @ best_value(cmdp, cmdp.reward - np.tensordot(solution.dual, cmdp.cost, 1))
    return float(bound + solution.dual @ limit - solution.values.reward)


def check_optimal(cmdp: TabularCMDP, solution: Solution, limit: Floats) -> None:
    """Feasible, consistent, and optimal by a certificate that knows nothing of the solver."""
    horizon = 1 / (1 - cmdp.discount)
    unit = horizon * np.abs(cmdp.reward).max() + solution.dual @ (horizon * np.abs(cmdp.cost).max(axis=(1, 2)))
    assert (solution.dual >= 0).all()
    assert (solution.values.cost <= limit + 1e-9 * horizon * np.abs(cmdp.cost).max(axis=(1, 2))).all()
    assert abs(duality_gap(cmdp, solution, limit)) <= 1e-8 * unit
    exact = evaluate(cmdp, solution.policy)
    assert solution.values.reward == exact.reward
    assert np.array_equal(solution.values.cost, exact.cost)
    assert np.array_equal(solution.values.margin, exact.margin)
    assert np.array_equal(solution.occupancy, occupancy(cmdp, solution.policy))


# ------------------------------------------------------------------------------------------- random tasks, two solvers


@given(task=task_arrays(), share=st.floats(0.001, 1.2), sparse=st.booleans())
def test_against_linprog(task: Any, share: float, sparse: bool) -> None:
    arrays, _ = task
    cmdp = task_between(arrays, share, sparse)
    solution, plain = OccupancyLP().solve(cmdp), reference(arrays, cmdp.budget)
    check_optimal(cmdp, solution, cmdp.budget)
    scale = max(1.0, np.abs(arrays["reward"]).max() / (1 - cmdp.discount))
    assert abs(solution.values.reward + plain.fun) < 1e-5 * scale * (1 + solution.dual.sum())


@given(task=task_arrays(), beyond=st.floats(1e-3, 1.0), sparse=st.booleans())
def test_infeasible_names_the_least_worst_excess(task: Any, beyond: float, sparse: bool) -> None:
    arrays, _ = task
    excess = reference(arrays, arrays["budget"], excess=True).x[-1]
    budget = arrays["budget"] + excess - beyond
    cmdp = TabularCMDP(**{**(as_sparse(arrays) if sparse else arrays), "budget": budget})
    for solver in [solve] if cmdp.n_constraints > 1 else [solve, solve_lagrangian]:
        with pytest.raises(Infeasible) as caught:
            solver(cmdp)
        assert (caught.value.least_cost - budget).max() == pytest.approx(beyond, abs=1e-6)
        assert f"{caught.value.least_cost[0]:.10g}" in str(caught.value)
        assert f"{budget[0]:.10g}" in str(caught.value)


@given(task=task_arrays(max_constraints=1), share=st.floats(0.001, 1.2), sparse=st.booleans())
def test_lagrangian_agrees_with_the_program(task: Any, share: float, sparse: bool) -> None:
    arrays, _ = task
    cmdp = task_between(arrays, share, sparse)
    program, dual = OccupancyLP().solve(cmdp), solve_lagrangian(cmdp)
    check_optimal(cmdp, dual, cmdp.budget)
    scale = np.abs(cmdp.reward).max() / (1 - cmdp.discount)
    assert abs(program.values.reward - dual.values.reward) < 1e-8 * scale * (1 + float(dual.dual[0]))


@pytest.mark.parametrize("discount", [0.9, 0.99])
@pytest.mark.parametrize("seed", range(2))
def test_lagrangian_on_tasks_large_enough_for_krylov(discount: float, seed: int) -> None:
    cmdp = random_sparse_cmdp(np.random.default_rng(seed), states=250, actions=3, discount=discount)
    assert cmdp.n_states > lagrangian.DIRECT
    cmdp = with_budget(cmdp, 0.7 * cmdp.budget)
    program, dual = OccupancyLP().solve(cmdp), solve_lagrangian(cmdp)
    assert dual.dual[0] > 0
    check_optimal(cmdp, dual, cmdp.budget)
    assert dual.values.reward == pytest.approx(program.values.reward, rel=1e-9)
    assert dual.dual[0] == pytest.approx(program.dual[0], rel=1e-6)
    assert dual.values.margin[0] >= 0


def test_lagrangian_survives_a_failing_krylov_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """Policy iteration must not follow what a broken-down iteration returns."""
    cmdp = random_sparse_cmdp(np.random.default_rng(0), states=210, discount=0.6)
    cmdp = with_budget(cmdp, 0.8 * cmdp.budget)
    expected = solve_lagrangian(cmdp)
    monkeypatch.setattr(lagrangian.spla, "bicgstab", lambda matrix, right, **_: (100 * right, -10))
    actual = solve_lagrangian(cmdp)
    assert expected.dual[0] > 0
    assert actual.values.reward == pytest.approx(expected.values.reward, rel=1e-9)


# ------------------------------------------------------------------------------------------------------- the gridworld


@pytest.mark.parametrize("solver", [solve, solve_lagrangian])
@pytest.mark.parametrize("layout", [lambda cmdp: cmdp, sparse_copy])
@pytest.mark.parametrize(("noise", "value"), PUBLISHED.items())
def test_published_values(noise: float, value: float, layout: Any, solver: Any) -> None:
    solution = solver(layout(gridworld(noise)))
    assert solution.values.reward == pytest.approx(value, abs=1e-3)
    assert solution.values.cost[0] == pytest.approx(1.5, abs=1e-9)


@pytest.mark.parametrize("solver", [solve, solve_lagrangian])
def test_published_feasibility(solver: Any) -> None:
    assert solver(gridworld(0.4358)).values.margin[0] > -1e-9
    with pytest.raises(Infeasible):
        solver(gridworld(0.4360))
    with pytest.raises(Infeasible, match=r"within 1\.5: the least achievable cost is 2\.004") as caught:
        solver(gridworld(0.5))
    assert caught.value.least_cost[0] == pytest.approx(2.004, abs=5e-4)


@pytest.mark.parametrize("solver", [solve, solve_lagrangian])
def test_a_budget_of_exactly_the_least_cost_is_feasible(solver: Any) -> None:
    with pytest.raises(Infeasible) as caught:
        solver(gridworld(0.5))
    least = float(caught.value.least_cost[0])
    solution = solver(gridworld(0.5, budget=least))
    assert abs(solution.values.margin[0]) < 1e-9
    richer = solver(gridworld(0.5, budget=least + 1e-3))
    assert solution.values.reward < richer.values.reward + 1e-9


@pytest.mark.parametrize("solver", [solve, solve_lagrangian])
def test_multipliers_are_the_price_of_budget(solver: Any) -> None:
    step = 1e-5
    rise = solver(gridworld(0.3, 1.5 + step)).values.reward - solver(gridworld(0.3, 1.5 - step)).values.reward
    assert solver(gridworld(0.3)).dual[0] == pytest.approx(rise / (2 * step), rel=1e-6)
    assert solver(gridworld(0.3, budget=50.0)).dual[0] == 0


# ----------------------------------------------------------------------------------------------------------- warm start


def test_warm_equals_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the whole feasible range, sparse and dense in turn, with other shapes and patterns in between."""
    rng = np.random.default_rng(0)
    tasks = [gridworld(noise) for noise in rng.uniform(0, 0.43, 20)]
    tasks += [sparse_copy(gridworld(noise)) for noise in rng.uniform(0, 0.43, 10)]
    tasks += [random_cmdp(rng, states=6, actions=3, constraints=2, sparse=bool(k % 2)) for k in range(10)]
    tasks = [tasks[k] for k in rng.permutation(len(tasks))]
    confirmed = []
    confirm = OccupancyLP._confirm
    monkeypatch.setattr(OccupancyLP, "_confirm", lambda *args: confirmed.append(confirm(*args)) or confirmed[-1])
    warm = solve_many(tasks)
    assert sum(each is not None for each in confirmed) > 10  # the last basis was often still optimal ...
    assert sum(each is None for each in confirmed) > 5  # ... and often not
    for task, solution in zip(tasks, warm, strict=True):
        cold = solve(task)
        check_optimal(task, solution, task.budget)
        assert solution.values.reward == pytest.approx(cold.values.reward, rel=1e-10)


def test_a_basis_that_stays_feasible_is_not_taken_for_optimal() -> None:
    """Rewards that move by a few percent leave the occupancies of a basis feasible but not always the best."""
    rng = np.random.default_rng(1)
    first = random_cmdp(rng, states=12, actions=4, constraints=2)
    program, changes = OccupancyLP(), 0
    before = program.solve(first)
    for _ in range(30):
        reward = first.reward + 0.03 * np.ptp(first.reward) * rng.standard_normal(first.reward.shape)
        task = TabularCMDP(first.transitions, reward, first.cost, first.budget, first.start, first.discount)
        solution = program.solve(task)
        check_optimal(task, solution, task.budget)
        changes += not np.array_equal(solution.policy.probabilities > 0, before.policy.probabilities > 0)
        before = solution
    assert 5 <= changes <= 29


def test_one_program_survives_infeasible_tasks() -> None:
    program = OccupancyLP()
    for noise in (0.3, 0.5, 0.31, 0.47, 0.0, 0.32):
        if noise > 0.4359:
            with pytest.raises(Infeasible):
                program.solve(gridworld(noise))
        else:
            solution = program.solve(gridworld(noise))
            assert solution.values.reward == pytest.approx(solve(gridworld(noise)).values.reward, rel=1e-10)


def test_solve_many_names_the_infeasible_task_and_keeps_the_order() -> None:
    noises = [0.4, 0.1, 0.3, 0.2]
    rewards = [solution.values.reward for solution in solve_many(map(gridworld, noises))]
    assert rewards == pytest.approx([PUBLISHED[noise] for noise in noises], abs=1e-3)
    with pytest.raises(Infeasible, match=r"^cmdps\[2\]: no policy .* 2\.004") as caught:
        solve_many([gridworld(noise) for noise in (0.1, 0.2, 0.5)])
    assert caught.value.least_cost[0] == pytest.approx(2.004, abs=5e-4)
    assert solve_many([]) == []


# ------------------------------------------------------------------------------------------------------------- the rest


def test_large_tasks_with_one_constraint_go_to_the_lagrangian(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    one, two = (random_cmdp(rng, states=5, actions=2, constraints=m) for m in (1, 2))
    monkeypatch.setattr(solve_module, "LAGRANGIAN_FROM", 10)
    monkeypatch.setattr(solve_module, "solve_lagrangian", lambda cmdp, tighten: (cmdp, tighten))
    assert solve(one, 0.25) == (one, 0.25)
    assert isinstance(solve(two), Solution)
    monkeypatch.setattr(solve_module, "LAGRANGIAN_FROM", 11)
    assert isinstance(solve(one), Solution)


@given(task=task_arrays(min_states=2), seed=st.integers(0, 2**32 - 1))
def test_acts_well_where_it_never_goes(task: Any, seed: int) -> None:
    """A second copy of the task's states, out of reach: optimal there for r - dual·c, as nothing else is defined."""
    arrays, _ = task
    size = len(arrays["start"])
    cost = np.random.default_rng(seed).permutation(arrays["cost"], axis=1)
    double = {
        **arrays,
        "transitions": np.stack(
            [sp.block_diag([arrays["transitions"][:, a]] * 2).toarray() for a in range(arrays["reward"].shape[1])],
            axis=1,
        ),
        "reward": np.concatenate([arrays["reward"], arrays["reward"] - 20]),
        "cost": np.concatenate([arrays["cost"], cost], axis=1),
        "start": np.append(arrays["start"], np.zeros(size)),
    }
    for layout in (TabularCMDP(**double), TabularCMDP(**as_sparse(double))):
        for solver in [solve] if layout.n_constraints > 1 else [solve, solve_lagrangian]:
            solution = solver(layout)
            assert solution.occupancy[size:].sum() == 0
            signal = layout.reward - np.tensordot(solution.dual, layout.cost, 1)
            values = best_value(layout, signal)
            ahead = signal + layout.discount * (layout.rows @ values).reshape(signal.shape)
            scale = np.abs(signal).max() / (1 - layout.discount)
            taken = (solution.policy.probabilities * ahead).sum(axis=1)
            assert np.abs(taken - values)[size:].max() < 1e-7 * scale
            assert set(np.unique(solution.policy.probabilities[size:])) <= {0.0, 1.0}


@pytest.mark.parametrize("solver", [solve, solve_lagrangian])
@pytest.mark.parametrize(("reward_unit", "cost_unit"), [(1e7, 1e-6), (1e-7, 1e6)])
def test_units_do_not_matter(solver: Any, reward_unit: float, cost_unit: float) -> None:
    plain = gridworld(0.3)
    scaled = TabularCMDP(
        plain.transitions, reward_unit * plain.reward, cost_unit * plain.cost, cost_unit * 1.5, plain.start, 0.9
    )
    expected, actual = solver(plain), solver(scaled)
    assert actual.values.reward == pytest.approx(reward_unit * expected.values.reward, rel=1e-9)
    assert actual.dual[0] == pytest.approx(reward_unit / cost_unit * expected.dual[0], rel=1e-7)


@pytest.mark.parametrize("discount", [0.999, 0.9999, 0.99999])
@pytest.mark.parametrize("constraints", [1, 2])
def test_discounts_next_to_one(discount: float, constraints: int) -> None:
    """Values grow with 1/(1-γ), and so does what a solver's tolerance does to them."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        cmdp = random_cmdp(rng, states=100, actions=3, constraints=constraints, discount=discount, support=0.1)
        if constraints == 1:  # so that the constraint binds
            cmdp = with_budget(cmdp, cmdp.budget - 0.1 * np.ptp(cmdp.cost) / (1 - discount))
        program = solve(cmdp)
        unit = np.abs(cmdp.cost).max(axis=(1, 2)) / (1 - discount)
        assert (program.values.margin >= -1e-10 * unit).all()
        if constraints == 1:
            dual = solve_lagrangian(cmdp)
            assert dual.dual[0] > 0
            assert (dual.values.margin >= -1e-10 * unit).all()
            assert dual.values.reward == pytest.approx(program.values.reward, rel=1e-7)


@given(task=task_arrays(), share=st.floats(0.1, 0.9))
def test_tightening_is_a_smaller_budget(task: Any, share: float) -> None:
    arrays, _ = task
    tighten = -(1 - share) * reference(arrays, arrays["budget"], excess=True).x[-1]
    assume(tighten > 0)
    cmdp = TabularCMDP(**arrays)
    amounts = np.linspace(1.0, 0.5, cmdp.n_constraints) * tighten
    smaller = solve(with_budget(cmdp, cmdp.budget - amounts))
    tightened = solve(cmdp, tighten=amounts)
    check_optimal(cmdp, tightened, cmdp.budget - amounts)
    assert np.array_equal(tightened.policy.probabilities, smaller.policy.probabilities)
    assert tightened.values.margin == pytest.approx(smaller.values.margin + amounts, abs=1e-9)


@pytest.mark.parametrize("solver", [solve, solve_lagrangian, lambda cmdp, tighten: solve_many([cmdp], tighten)])
@pytest.mark.parametrize("tighten", [np.nan, np.inf, [0.1, 0.2], "much", [[0.1]]])
def test_tighten_is_checked(solver: Any, tighten: Any) -> None:
    with pytest.raises(InvalidInput, match="tighten"):
        solver(gridworld(0.3), tighten)


def test_a_tightened_infeasible_task_names_both_numbers() -> None:
    for solver in (solve, solve_lagrangian):
        with pytest.raises(Infeasible, match=r"within 0\.5 \(budget 1\.5 tightened by 1\): .* cost is 1\.26564"):
            solver(gridworld(0.4), 1.0)


def test_lagrangian_takes_one_constraint() -> None:
    with pytest.raises(InvalidInput, match="one constraint, this task has 2"):
        solve_lagrangian(random_cmdp(np.random.default_rng(0), constraints=2))


@pytest.mark.parametrize("horizon", [None, 12])
def test_a_cost_in_proportion_to_the_reward_has_one_price_for_all(horizon: int | None) -> None:
    """Every policy then ties at that price: nothing but rounding is left of the signal, and the search must end."""
    rng = np.random.default_rng(3)
    rows, reward = rng.dirichlet(np.ones(6), (6, 3)), rng.random((6, 3))
    for scale in (1e-6, 0.6, 1e5):
        free = TabularCMDP(rows, reward, scale * reward, 1e9 * scale, np.ones(6) / 6, 0.9, horizon=horizon)
        most = solve_lagrangian(free).values
        task = TabularCMDP(rows, reward, scale * reward, 0.8 * most.cost[0], np.ones(6) / 6, 0.9, horizon=horizon)
        found = solve_lagrangian(task)
        assert found.values.reward == pytest.approx(0.8 * most.reward, rel=1e-9)
        assert found.values.margin[0] >= -1e-9 * most.cost[0]
