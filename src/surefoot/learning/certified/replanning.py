"""Policies added on the way: optimal for the most dangerous task that is still possible."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surefoot.arrays import Floats, Integers, Mask
from surefoot.bounds.cells import Cells
from surefoot.bounds.widening import widen_bounds
from surefoot.cmdp.units import Units
from surefoot.errors import Infeasible, InvalidInput
from surefoot.tabular.expansion import box_spreads, box_values
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.solve import solve
from surefoot.tabular.transition_model import TransitionModel

# Plan first after this many episodes, then each time this factor more have been told.
FIRST, EVERY = 500, 2.0


@dataclass(frozen=True, eq=False)
class Planned:
    """A policy with its bounds on every cell: reward [J] (middle), margin [J, m] (lower), first-state bounds."""

    policy: TabularPolicy | TimedPolicy
    reward: Floats
    margin: Floats
    start_lower: Floats  # [F, J, 1+m]
    start_upper: Floats
    episode: int


@dataclass(frozen=True, eq=False)
class Replanner:
    """Solves for the worst surviving task of an affine family; needs its model.

    The task may lie at a distance `shift` from all of them, by which the bounds of what is planned are widened.
    """

    model: TransitionModel
    units: Units
    shift: float = 0.0

    def extend_plans(
        self, planned: tuple[Planned, ...], cells: Cells, surviving: Mask, plausible: Mask, episode: int
    ) -> tuple[Planned, ...]:
        """`planned` with one more policy if enough has been learned since the last one."""
        if episode < (EVERY * planned[-1].episode if planned else FIRST):
            return planned
        alive = np.flatnonzero(surviving)
        worst = int(alive[np.argmax(cells.danger[alive])])
        try:
            policy = solve(self.model.task(self._worst_corner(cells, worst), self.units)).policy
            return (*planned, self._evaluate_policy(policy, cells, plausible, episode))
        except (Infeasible, InvalidInput):  # nothing to gain there, or boxes too large to bound
            return planned

    def _worst_corner(self, cells: Cells, index: int) -> Floats:
        """The corner of a cell that lies in the direction of growing danger, or the last task on the way there."""
        centre, danger = cells.centre, cells.danger
        width = np.ptp(centre, axis=0)  # parameters may have very different units
        steps = (centre - centre[index]) / np.where(width > 0, width, 1.0)
        slope = np.linalg.lstsq(steps, danger - danger[index], rcond=None)[0]
        corner = np.where(slope > 0, cells.high[index], cells.low[index])
        there, here = self.model.class_probability(corner), self.model.probability[index]
        beyond = there < 0
        back = float(np.max(there[beyond] / (there[beyond] - here[beyond]), initial=0.0))
        # A hair inside, where no probability can be negative by rounding.
        inside: Floats = corner + min(1.0, back + 1e-9) * (centre[index] - corner)
        return inside

    def _evaluate_policy(
        self, policy: TabularPolicy | TimedPolicy, cells: Cells, plausible: Mask, episode: int
    ) -> Planned:
        """Bounds on the plausible cells; on the others nothing is claimed."""
        example = self.model.task(cells.centre[0], self.units)
        alive = np.flatnonzero(plausible)
        boxes = cells.low[alive], cells.high[alive]
        lower, upper = self._bounds(example, policy, boxes, cells.first_states)
        if np.isinf(lower).all():
            raise InvalidInput("cells must be small enough for the expansion (ρ < 1), got none that is")
        least, most = self.units.possible_values(ends=False)
        full_lower = np.tile(least[:, None], (len(cells), 1, lower.shape[2]))
        full_upper = np.tile(most[:, None], (len(cells), 1, lower.shape[2]))
        full_lower[alive] = np.where(np.isinf(lower), full_lower[alive], lower)
        full_upper[alive] = np.where(np.isinf(upper), full_upper[alive], upper)
        middle = (full_lower[:, 0, 0] + full_upper[:, 0, 0]) / 2
        by_start = [np.ascontiguousarray(side[:, :, 1:].transpose(2, 0, 1)) for side in (full_lower, full_upper)]
        return Planned(policy, middle, full_lower[:, 1:, 0], by_start[0], by_start[1], episode)

    def _bounds(
        self,
        example: TabularCMDP,
        policy: TabularPolicy | TimedPolicy,
        boxes: tuple[Floats, Floats],
        first_states: Integers | None,
    ) -> tuple[Floats, Floats]:
        """[J, 1+m, 1+F] on all tasks of each box, and on those around them: from the start, then from first states."""
        affine = self.model.affine_tables()
        lower, upper = box_values(affine, example, policy, *boxes, first_states)
        if not self.shift:
            return lower, upper
        spread = box_spreads(affine, example, policy, *boxes)
        start = widen_bounds(lower[..., 0], upper[..., 0], self.units, self.shift, spread, ends=False, from_start=True)
        each = widen_bounds(
            lower[..., 1:], upper[..., 1:], self.units, self.shift, spread[..., None], ends=False, from_start=False
        )
        sides = [np.concatenate([begun[..., None], rest], axis=2) for begun, rest in zip(start, each, strict=True)]
        return sides[0], sides[1]
