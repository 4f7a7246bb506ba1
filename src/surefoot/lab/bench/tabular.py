"""The tabular core against the plain way: linear programs, episodes, the cover, one large task, bounds over boxes."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import scipy.sparse as sp
from scipy.optimize import OptimizeResult, linprog

from surefoot.arrays import Floats
from surefoot.errors import SurefootError
from surefoot.lab.bench.rows import BenchRow, Sizes, agree, duration, measure, race, speeds_row, times_row
from surefoot.report.table import MISSING
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.expansion import box_values
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.rollout import Simulator
from surefoot.tabular.solve import solve, solve_many
from surefoot.tasks.affine_detection import affine_tables
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.gridworld_tasks import gridworld, targets
from surefoot.tasks.task_distribution import family
from surefoot.training.cover import greedy_cover

SEED = 0
SIDE = 20  # of the grid whose boxes are bounded
# Noise levels of the gridworld at which some policy is feasible; the limit is 0.4359.
FEASIBLE_NOISE = (0.0, 0.43)
# linprog meets constraints only to 1e-7, which the multipliers here turn into this much reward.
LINPROG_TOLERANCE = 1e-5
COVER_RADIUS, UNCOVERED = 1e-3, 0.15
# linprog's codes for having no optimum to show: out of time, and numerical difficulties.
UNFINISHED = {1: "stopped after ", 4: "gave up after "}


# ----------------------------------------------------------------------------------------- many small linear programs


def linear_programs(sizes: Sizes) -> list[BenchRow]:
    """The optimal oracle over many gridworld tasks: warm-started programs against one cold program each."""
    rng, grids = np.random.default_rng(SEED), gridworld()
    noises = {
        "noise uniform on [0, 0.43]": rng.uniform(*FEASIBLE_NOISE, (sizes.tasks, 1)),
        "noise from the distribution": grids.sample(sizes.tasks, rng),
    }
    rows = []
    for where, parameters in noises.items():
        cmdps = [grids.task(parameter) for parameter in parameters]
        ours, plain = race(partial(solve_many, cmdps), partial(_programs, cmdps), sizes.repeats)
        rewards = [solution.values.reward for solution in ours.result], [-program.fun for program in plain.result]
        agree("optimal rewards", *rewards, LINPROG_TOLERANCE)
        what, note = f"{sizes.tasks} gridworld tasks, {where}", "ours includes the exact value of every policy"
        how = "a task (solve_many)", "a task (linprog, HiGHS)"
        rows.append(times_row(what, ours, plain, *how, note, each=sizes.tasks))
    return rows


def _programs(cmdps: list[TabularCMDP]) -> list[OptimizeResult]:
    return [occupancy_program(cmdp) for cmdp in cmdps]


def occupancy_program(cmdp: TabularCMDP, time_limit: float | None = None) -> OptimizeResult:
    """The occupancy linear program as one would write it with SciPy: sparse, cold, default settings."""
    per_state = sp.kron(sp.identity(cmdp.n_states), np.ones((1, cmdp.n_actions)), format="csr")
    return linprog(
        -cmdp.reward.ravel(),
        A_ub=cmdp.cost.reshape(cmdp.n_constraints, -1),
        b_ub=cmdp.budget,
        A_eq=per_state - cmdp.discount * cmdp.rows.T,
        b_eq=cmdp.start,
        method="highs",
        options={} if time_limit is None else {"time_limit": time_limit},
    )


# -------------------------------------------------------------------------------------------------------- episodes


def episodes(sizes: Sizes) -> list[BenchRow]:
    """Simulated episodes of the optimal policy: batches against an environment stepped in a loop."""
    task = gridworld().task([0.3])
    policy, horizon = solve(task).policy, task.units.episode_length
    steps = f"gridworld episodes of {horizon} steps"

    def simulate() -> Floats:
        return Simulator(task, policy, horizon).run(sizes.episodes, np.random.default_rng(SEED)).reward

    try:
        from surefoot.lab.bench.stepping import TabularEnv, env_rewards
    except ModuleNotFoundError as absent:
        return [BenchRow(steps, "skipped", MISSING, None, f"{absent.name} is not installed: pip install {absent.name}")]
    ours, plain = race(
        simulate,
        lambda: env_rewards(TabularEnv(task, horizon), policy, task.discount, sizes.plain_episodes, SEED),
        sizes.repeats,
    )
    exact = evaluate(task, policy).reward
    for rewards in (ours.result, plain.result):
        error = 5 * rewards.std() / math.sqrt(len(rewards)) + 100 * task.discount**horizon
        agree("mean reward of the episodes", rewards.mean(), exact, error)
    speed = sizes.episodes * horizon / ours.seconds
    plain_speed = sizes.plain_episodes * horizon / plain.seconds
    sides = (speed, "Simulator"), (plain_speed, "Gymnasium loop")
    return [speeds_row(steps, "M", *sides, "one thread; ours includes building the table")]


# ---------------------------------------------------------------------------------------------------- greedy cover


def covers(sizes: Sizes) -> list[BenchRow]:
    """The greedy cover of tasks on a line: sorted windows against the matrix of all pairs, then alone and larger."""
    rng = np.random.default_rng(SEED)
    points = rng.random(sizes.matrix)
    ours, plain = race(
        lambda: greedy_cover(points, COVER_RADIUS, uncovered=UNCOVERED),
        lambda: greedy_cover(np.abs(points[:, None] - points) <= COVER_RADIUS, uncovered=UNCOVERED),
        sizes.repeats,
    )
    agree("centres", ours.result, plain.result, 0)
    what, note = "greedy cover of {:,} tasks", f"the same {len(ours.result)} centres"
    rows = [times_row(what.format(sizes.matrix), ours, plain, "(sorted windows)", "(matrix of pairs)", note)]
    seconds = []
    for size in sizes.covers:
        cover = partial(greedy_cover, rng.random(size), COVER_RADIUS, uncovered=UNCOVERED)
        seconds.append(min(measure(cover).seconds for _ in range(sizes.repeats)))
        growth = _growth(sizes.covers, seconds) if size == sizes.covers[-1] else ""
        rows.append(BenchRow(what.format(size), duration(seconds[-1]), MISSING, None, growth))
    return rows


def _growth(sizes: tuple[int, ...], seconds: list[float]) -> str:
    work = [size * math.log(size) for size in sizes]
    exponent = np.polyfit(np.log(work), np.log(seconds), 1)[0]
    return f"time grows as (N log N)^{exponent:.2f} from {sizes[0]:,} tasks on"


# -------------------------------------------------------------------------------------------------- one large task


def large_task(sizes: Sizes) -> list[BenchRow]:
    """The optimal policy of one large sparse task: its Lagrangian dual against the linear program."""
    task = slip_grid(sizes.side)
    ours = measure(lambda: solve(task))
    plain = measure(lambda: occupancy_program(task, sizes.time_limit))
    unfinished = UNFINISHED.get(plain.result.status, "")
    if not unfinished:
        agree("optimal reward", ours.result.values.reward, -plain.result.fun, LINPROG_TOLERANCE)
    spent = float(ours.result.values.cost[0])
    return [
        BenchRow(
            f"one task of {task.n_states:,} states, {task.n_actions} actions",
            f"{duration(ours.seconds)} (solve)",
            f"{unfinished}{duration(plain.seconds)} (linprog, HiGHS)",
            plain.seconds / ours.seconds,
            f"discount {task.discount:g}, cost {spent:.4g} of budget {task.budget[0]:g}",
            at_least=bool(unfinished),
        )
    ]


def slip_grid(side: int, discount: float = 0.99, slip: float = 0.2, hazards: float = 0.2) -> TabularCMDP:
    """A side × side grid: a goal in one corner, a share of cells that cost, moves that slip; the budget binds."""
    states = side * side
    target, _ = targets(side, side)
    actions = target.shape[1]
    every = np.broadcast_to(target[:, None], (states, actions, actions))  # where a slip may lead
    columns = np.concatenate([target[..., None], every], axis=2)
    probabilities = np.broadcast_to([1 - slip, *[slip / actions] * actions], columns.shape)
    row = np.repeat(np.arange(states * actions), 1 + actions)
    shape = (states * actions, states)
    cost = (np.random.default_rng(SEED).random(states) < hazards).astype(float)
    cost[-1] = 0.0
    return TabularCMDP(
        sp.csr_matrix((probabilities.ravel(), (row, columns.ravel())), shape=shape),
        reward=np.eye(states)[-1],
        cost=cost,
        budget=2.0,
        start=np.full(states, 1 / states),
        discount=discount,
    )


# ---------------------------------------------------------------------------------------------------- bounds over boxes


def boxes(sizes: Sizes) -> list[BenchRow]:
    """Ours bounds the values of a policy for every task of every box; the plain way only evaluates the middle ones."""
    tasks = family(lambda parameter: slip_grid(SIDE, slip=parameter[0]), Uniform(0.0, 0.3))
    affine = affine_tables(tasks)
    if affine is None:
        raise SurefootError("the grid must be affine in its slip, and was not found to be")
    policy = TabularPolicy(np.random.default_rng(0).dirichlet(np.ones(4), SIDE * SIDE))
    edges = np.linspace(0.1, 0.12, sizes.tasks + 1)
    low, high = edges[:-1, None], edges[1:, None]
    middle = [tasks.task(centre) for centre in (low + high) / 2]

    def plain() -> Floats:
        return np.array([dense_reward(task, policy) for task in middle])

    def ours() -> tuple[Floats, Floats]:
        return box_values(affine, middle[0], policy, low, high)

    bounds, values = race(ours, plain, sizes.repeats)
    lower, upper = (side[:, 0, 0] for side in bounds.result)
    agree("rewards at the centres of boxes", (lower + upper) / 2, values.result, 1e-6)
    what = f"bounds on values over {sizes.tasks} boxes, {SIDE * SIDE} states"
    how = "(every task of every box)", "(one task of each, dense solves)"
    return [times_row(what, bounds, values, *how, f"bounds at most {float((upper - lower).max()):.1e} apart")]


def dense_reward(task: TabularCMDP, policy: TabularPolicy) -> float:
    """ρ·(I - γP)⁻¹ r"""
    chain = np.einsum("sa,sat->st", policy.probabilities, task.rows.toarray().reshape(len(task.start), 4, -1))
    reward = (policy.probabilities * task.reward).sum(axis=1)
    return float(task.start @ np.linalg.solve(np.eye(len(chain)) - task.discount * chain, reward))
