"""Cross-task envelopes: bounds on the values of every policy over all tasks of a cell (docs/guarantees.md, section 2).

Three sources, strongest first:
- affine: transitions are affine in the parameter. A second-order expansion with a rigorous remainder covers each box.
- finite: the distribution has finitely many tasks. Each is a cell of its own, evaluated exactly.
- holdout / monte-carlo: anything that can be sampled and evaluated, exactly or by simulation. Bounds are taken over one
  sample and widened until they hold on a second, independent one (a conformal quantile).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surefoot.arrays import fraction, whole
from surefoot.errors import InvalidInput
from surefoot.policyset.cells import Cells
from surefoot.policyset.fit import MAX_CELLS
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks.distribution import Finite
from surefoot.tasks.family import TaskDistribution
from surefoot.training.affine_cells import affine_cells
from surefoot.training.bounds import exact_values
from surefoot.training.sampled_cells import DOUBT_SHARE, binomial_upper, finite_cells, holdout_cells


@dataclass(frozen=True)
class Envelopes:
    """How the value bounds for the certified methods are made.

    Attributes:
        cells: how many at most (affine: boxes over the whole support; holdout: sampled tasks); 0 makes none.
        holdout: size of the second sample, for families that are neither affine nor finite.
        uncovered: for those, the probability granted to tasks that break their cell's bounds. What the second sample
            leaves open about the feasibility of the safe policy comes on top.
        attempt: 1, and one more each time that held-out tasks have been drawn, looked at and not been used. Each
            attempt has half as much to grant as the one before, so that all of them together keep to `uncovered`.
    """

    cells: int = 800
    holdout: int = 1999
    uncovered: float = 0.005
    attempt: int = 1

    def __post_init__(self) -> None:
        for name, least in (("cells", 0), ("holdout", 1), ("attempt", 1)):
            whole(name, getattr(self, name), least)
        if self.cells > MAX_CELLS:
            raise InvalidInput(f"cells must be at most {MAX_CELLS}, got {self.cells}")
        fraction("uncovered", self.uncovered)


DEFAULT = Envelopes()


def build_cells(
    tasks: TaskDistribution, policies: Sequence[TabularPolicy], *, seed: int, envelopes: Envelopes = DEFAULT
) -> Cells:
    """The strongest envelopes that the family allows, for `policies` with the safe one first."""
    if tasks.affine is not None:
        return affine_cells(tasks, policies, envelopes.cells)
    if isinstance(tasks.distribution, Finite):
        return finite_cells(tasks, policies)
    return holdout_cells(
        tasks,
        exact_values(tasks, policies),
        np.random.default_rng([seed, 2, envelopes.attempt]),
        cells=envelopes.cells,
        holdout=envelopes.holdout,
        uncovered=envelopes.uncovered,
        source="holdout",
        attempt=envelopes.attempt,
    )


def safe_policy_risk(tasks: TaskDistribution, safe: TabularPolicy, *, seed: int, envelopes: Envelopes) -> float:
    """Bound on the probability that the safe policy is infeasible on a fresh task, without any cells.

    Exact for a finite distribution; otherwise from held-out tasks, and what the bound may be wrong by is part of it.
    """
    distribution = tasks.distribution
    if isinstance(distribution, Finite):
        return min(1.0, math.fsum(distribution.weights[[not _feasible(tasks, safe, p) for p in distribution.points]]))
    held_out = tasks.sample(envelopes.holdout, np.random.default_rng([seed, 3, envelopes.attempt]))
    failures = sum(not _feasible(tasks, safe, parameter) for parameter in held_out)
    doubt = DOUBT_SHARE * envelopes.uncovered
    return min(1.0, doubt + binomial_upper(failures, len(held_out), doubt / 2**envelopes.attempt))


def _feasible(tasks: TaskDistribution, policy: TabularPolicy, parameter: np.ndarray) -> bool:
    return bool((evaluate(tasks.task(parameter), policy).margin >= 0).all())
