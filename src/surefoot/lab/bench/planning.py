"""One planning step of DOPE on the gridworld: its Lagrangian against the extended linear program as it stands."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from surefoot.arrays import Floats
from surefoot.errors import SurefootError
from surefoot.lab.baselines.dope_planning import planning_problem
from surefoot.lab.baselines.empirical_model import bernstein_widths, estimate, known_support, within_reach
from surefoot.lab.baselines.extended_planning import Plan, PlanningProblem, plan_extended
from surefoot.lab.baselines.known import known_model
from surefoot.lab.bench.rows import BenchRow, Sizes, agree, duration, race, times_row
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.table import MISSING
from surefoot.tabular.linear_program import INFINITY, maximise
from surefoot.tabular.rollout import Simulator
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.training.preflight import UncertifiedWarning
from surefoot.training.train import train

EPSILON, DELTA = 0.004, 0.05  # of the gridworld experiment
HORIZON, EPISODES, LOG_TERM = 100, 20_000, 1e-3
AGREEMENT = 1e-6
TOLERANCES = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}


def planning(sizes: Sizes) -> list[BenchRow]:
    """At a horizon that the linear program can still do, and at the one of the experiments."""
    problem, probability, widths = gridworld_planning_problem()
    short = replace(problem, horizon=sizes.program_horizon, budget=problem.budget / 2)  # so that it binds in few steps
    ours, plain = race(
        partial(_plan, short, probability, widths), partial(extended_lp, short, probability, widths), sizes.repeats
    )
    agree("optimal reward of the plan", ours.result.reward, plain.result, AGREEMENT)
    long, _ = race(partial(_plan, problem, probability, widths), lambda: None, sizes.repeats)
    what, found = "DOPE's plan on the gridworld, {} steps", f"both find {ours.result.reward:.6f}"
    gap = f"duality gap {abs(long.result.bound - long.result.reward):.1e}"
    return [
        times_row(what.format(short.horizon), ours, plain, "(price on the cost)", "(HiGHS)", found),
        BenchRow(what.format(HORIZON), duration(long.seconds), MISSING, None, gap),
    ]


@cache
def gridworld_policy_set() -> PolicyValueSet:
    """The policy set that the benchmarks of learners share."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)  # nothing measured here rests on the paper's theorem
        return train(gridworld(), epsilon=EPSILON, delta=DELTA, seed=0, progress=False, cells=100)


def gridworld_planning_problem() -> tuple[PlanningProblem, Floats, Floats]:
    """The planning problem, P̂ and β after some episodes of random actions at noise 0.3, with a small log term."""
    policies = gridworld_policy_set()
    model = known_model(policies, "dope")
    support = known_support(model.classes)
    outcomes = Simulator(gridworld().task([0.3]), np.full(model.reward.shape, 0.25), HORIZON).run(
        EPISODES, np.random.default_rng(0), transitions=True
    )
    if outcomes.states is None or outcomes.actions is None:
        raise SurefootError("the simulator returned no transitions")
    counts = support.count(outcomes.states, outcomes.actions)
    probability, visits = estimate(counts, support.possible), counts.sum(axis=2)
    widths = within_reach(bernstein_widths(probability, visits, LOG_TERM), visits, support.possible)
    problem, _ = planning_problem(policies, model, support, HORIZON)
    return problem, probability, widths


def _plan(problem: PlanningProblem, probability: Floats, widths: Floats) -> Plan:
    plan = plan_extended(problem, probability, widths)
    if plan is None:
        raise SurefootError("the plan must be feasible, got none")
    return plan


def extended_lp(problem: PlanningProblem, probability: Floats, widths: Floats) -> float | None:
    """The optimal reward by HiGHS, with every z_h(s, a, s') a variable, for small H; None if infeasible."""
    matrix, lower, upper = _constraints(problem, probability, widths)
    objective = _signal_coefficients(problem, 0)
    unit = float(np.abs(objective).max()) or 1.0
    program = partial(maximise, objective / unit, matrix, lower, upper, **TOLERANCES)
    optimum = program() or program(solver="ipm")  # on some infeasible programs the simplex gives up without a verdict
    return None if optimum is None else float(objective @ optimum[0])


def _signal_coefficients(problem: PlanningProblem, which: int) -> Floats:
    """[variables] what a unit of each z_h(s, a, s') adds to the reward (0) or to the cost (1)."""
    each = problem.possible.sum(axis=2).ravel()
    every, final = (np.repeat(signals[:, :, which].ravel(), each) for signals in problem.signals)
    steps = [final if h == problem.horizon - 1 else every for h in range(problem.horizon)]
    return np.concatenate([problem.discount**h * step for h, step in enumerate(steps)])


def _constraints(problem: PlanningProblem, probability: Floats, widths: Floats) -> tuple[Any, Floats, Floats]:
    """(matrix, row lower, row upper): flow for every (h, s), the box for every variable from both sides, the cost."""
    states, width, slots = problem.possible.shape
    horizon = problem.horizon
    held = problem.possible.ravel()
    row = np.repeat(np.arange(states * width), slots)[held]  # of each variable of one step
    count = len(row)
    ones, index = np.ones(count), np.arange(count)
    leave = sp.csc_array((ones, (row // width, index)), shape=(states, count))
    enter = sp.csc_array((ones, (problem.successors.ravel()[held], index)), shape=(states, count))
    total = sp.csc_array((ones, (row, index)), shape=(states * width, count))
    same_row = total.T @ total
    flow = sp.kron(sp.eye_array(horizon), leave) - sp.kron(sp.eye_array(horizon, k=-1), enter)
    low = np.maximum(probability - widths, 0.0).ravel()[held]
    high = np.minimum(probability + widths, 1.0).ravel()[held]
    above = sp.kron(sp.eye_array(horizon), sp.eye_array(count) - sp.diags_array(low) @ same_row)
    below = sp.kron(sp.eye_array(horizon), sp.diags_array(high) @ same_row - sp.eye_array(count))
    spent = _signal_coefficients(problem, 1)
    unit = float(np.abs(spent).max()) or 1.0
    matrix = sp.csc_array(sp.vstack([flow, above, below, sp.csc_array(spent[None] / unit)]))
    entering = np.zeros(horizon * states)
    entering[:states] = problem.start
    boxes = 2 * horizon * count
    lower = np.concatenate([entering, np.zeros(boxes), [-INFINITY]])
    upper = np.concatenate([entering, np.full(boxes, INFINITY), [problem.budget / unit]])
    return matrix, lower, upper
