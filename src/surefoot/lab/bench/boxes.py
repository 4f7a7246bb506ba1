"""Bounds on values over all tasks of many boxes, against the values of single tasks by dense linear algebra."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from surefoot.arrays import Floats
from surefoot.errors import SurefootError
from surefoot.lab.bench.rows import BenchRow, Sizes, agree, duration, race
from surefoot.tabular.expansion import box_values
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks.affine_detection import affine_tables
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family

SIDE, DISCOUNT = 20, 0.99


def boxes(sizes: Sizes) -> list[BenchRow]:
    """Ours bounds the values of a policy for every task of every box; the plain way only evaluates the middle ones."""
    tasks = slippery_grid()
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
    return [
        BenchRow(
            f"bounds on values over {sizes.tasks} boxes, {SIDE * SIDE} states",
            f"{duration(bounds.seconds)} (every task of every box)",
            f"{duration(values.seconds)} (one task of each, dense solves)",
            values.seconds / bounds.seconds,
            f"bounds at most {float((upper - lower).max()):.1e} apart",
        )
    ]


def slippery_grid() -> TaskDistribution:
    """A goal in the corner; with an unknown probability a step goes anywhere."""
    squares = np.arange(SIDE * SIDE)
    rows, columns = np.divmod(squares, SIDE)
    moves = ((0, 1), (1, 0), (0, -1), (-1, 0))
    after = np.stack([np.clip([rows + r, columns + c], 0, SIDE - 1).T @ [SIDE, 1] for r, c in moves], axis=1)
    row, column = np.repeat(np.arange(4 * len(squares)), 4), np.repeat(after, 4, axis=0).ravel()
    intended = np.tile(np.eye(4).ravel(), len(squares))
    goal, start = 1.0 * (squares == squares[-1]), np.eye(len(squares))[0]

    def build(parameter: Floats) -> TabularCMDP:
        chances = (1 - parameter[0]) * intended + parameter[0] / 4
        transitions = sp.csr_array((chances, (row, column)), shape=(4 * len(squares), len(squares)))
        return TabularCMDP(transitions, goal, goal, 1.0, start, DISCOUNT, (0.0, 1.0), (0.0, 1.0))

    return family(build, Uniform(0.0, 0.3))


def dense_reward(task: TabularCMDP, policy: TabularPolicy) -> float:
    """ρ·(I - γP)⁻¹ r"""
    chain = np.einsum("sa,sat->st", policy.probabilities, task.rows.toarray().reshape(len(task.start), 4, -1))
    reward = (policy.probabilities * task.reward).sum(axis=1)
    return float(task.start @ np.linalg.solve(np.eye(len(chain)) - task.discount * chain, reward))
