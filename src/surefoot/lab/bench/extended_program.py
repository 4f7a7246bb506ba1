"""The extended linear program of DOPE, solved as it stands: what its Lagrangian is measured against, for small H."""

from __future__ import annotations

from typing import Any

import highspy
import numpy as np
import scipy.sparse as sp

from surefoot.arrays import Floats
from surefoot.errors import SurefootError
from surefoot.lab.baselines.extended_planning import PlanningProblem
from surefoot.tabular.linear_program import INFINITY, new_solver, pass_program, program_of


def extended_lp(problem: PlanningProblem, probability: Floats, widths: Floats) -> float | None:
    """The optimal reward by HiGHS, with every z_h(s, a, s') a variable; None if infeasible."""
    matrix, lower, upper = _constraints(problem, probability, widths)
    objective = _signal_coefficients(problem, 0)
    unit = float(np.abs(objective).max()) or 1.0
    highs = new_solver(primal_feasibility_tolerance=1e-9, dual_feasibility_tolerance=1e-9)
    pass_program(highs, program_of(objective / unit, matrix, lower, upper))
    for solver in ("simplex", "ipm"):  # on some infeasible programs the simplex gives up without a verdict
        highs.setOptionValue("solver", solver)
        highs.run()
        status = highs.getModelStatus()
        if status != highspy.HighsModelStatus.kUnknown:
            break
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    if status != highspy.HighsModelStatus.kOptimal:
        raise SurefootError(f"HiGHS could not solve the extended linear program: {highs.modelStatusToString(status)}")
    return unit * float(highs.getInfo().objective_function_value)


def _signal_coefficients(problem: PlanningProblem, which: int) -> Floats:
    """[variables] what a unit of each z_h(s, a, s') adds to the reward (0) or to the cost (1)."""
    each = problem.possible.sum(axis=2).ravel()
    every, final = (np.repeat(signals[:, :, which].ravel(), each) for signals in problem.signals)
    steps = [final if h == problem.horizon - 1 else every for h in range(problem.horizon)]
    return np.concatenate([problem.discount**h * step for h, step in enumerate(steps)])


def _constraints(problem: PlanningProblem, probability: Floats, widths: Floats) -> tuple[Any, Floats, Floats]:
    """(matrix, row lower, row upper): flow for every (h, s), the box for every variable from both sides, the cost."""
    states, width, slots = problem.possible.shape
    horizon, infinity = problem.horizon, INFINITY
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
    lower = np.concatenate([entering, np.zeros(boxes), [-infinity]])
    upper = np.concatenate([entering, np.full(boxes, infinity), [problem.budget / unit]])
    return matrix, lower, upper
