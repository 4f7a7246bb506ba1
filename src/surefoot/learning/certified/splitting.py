"""Cells that split while they survive: bounds become sharp where they limit what is deployed (docs, Theorem 2a).

A box inside a cell is tested with the numerator of its cell, so that all boxes around the task lie below one and the
same supermartingale, however they were chosen. Its value bounds are those of Theorem 1a or 1c on the box.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from surefoot.arrays import Floats, Integers, Mask
from surefoot.bounds.cells import Cells
from surefoot.cmdp.units import Units
from surefoot.learning.certified.evidence.counts import class_counts
from surefoot.learning.certified.evidence.likelihood import LikelihoodRatio
from surefoot.learning.certified.replanning import Planned
from surefoot.learning.method import Mixture
from surefoot.tabular.affine import AffineTables
from surefoot.tabular.expansion import DENSE_STATES, box_values
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.transition_model import LAW_TOLERANCE

# How many boxes are halved at once, and how many there may be at most, besides the cells that are whole.
AT_ONCE, MOST = 16, 1000
# A parameter that hardly matters on the whole may matter somewhere.
LEAST_CHANGE = 0.1


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes inside cells: the cell of each [N], corners [N, d], and lower bounds on the margins of all policies
    [N, P, m], trained and then planned, for the tasks of the cell in the box."""

    cell: Integers
    low: Floats
    high: Floats
    margin: Floats

    def __getitem__(self, which: Any) -> Boxes:
        return Boxes(self.cell[which], self.low[which], self.high[which], self.margin[which])

    def and_also(self, others: Boxes) -> Boxes:
        return Boxes(
            np.concatenate([self.cell, others.cell]),
            np.concatenate([self.low, others.low]),
            np.concatenate([self.high, others.high]),
            np.concatenate([self.margin, others.margin]),
        )


@dataclass(frozen=True, eq=False)
class Splitter:
    """Halves the boxes that limit what is deployed; for affine families whose payments are known."""

    cells: Cells
    evidence: LikelihoodRatio
    units: Units
    policies: tuple[TabularPolicy | TimedPolicy, ...]

    def partition(self, boxes: Boxes | None, planned: tuple[Planned, ...]) -> Boxes:
        """What all cells consist of: the boxes of those that are split, and the others whole."""
        if boxes is None:
            return self._whole(np.arange(len(self.cells)), planned)
        whole = np.ones(len(self.cells), dtype=bool)
        whole[boxes.cell] = False
        return self._whole(np.flatnonzero(whole), planned).and_also(boxes)

    def scale(self, state: Any) -> tuple[Floats, Floats]:
        """What the evidence of every box is made of: numerators of the cells [J], and the likeliest task [d]."""
        mode = self.evidence.mode(class_counts(state, self.evidence.model))
        return self.evidence.log_mixture(state, mode), mode

    def log_evidence(
        self, state: Any, boxes: Boxes, enough: float, scale: tuple[Floats, Floats] | None = None
    ) -> Floats:
        """[N] log E of each box: the numerator of its cell over the best likelihood in the box. Where it is above
        `enough` it may be understated."""
        mixture, mode = self.scale(state) if scale is None else scale
        numerator = mixture[boxes.cell]
        best = self.evidence.best_in_boxes(state, boxes.low, boxes.high, numerator - enough, mode[None])
        found: Floats = numerator - best
        return found

    def reward(self, mode: Floats, planned: tuple[Planned, ...]) -> Floats | None:
        """[P] of all policies on the likeliest task [d], where that is soon computed: not in many states, nor with a
        horizon. No guarantee rests on it."""
        if self._tables.n_states > DENSE_STATES or self.units.horizon is not None:
            return None
        policies = np.stack([policy.probabilities for policy in self.policies + tuple(p.policy for p in planned)])
        base, slopes = self._tables.dense
        kernel = base + np.tensordot(mode, slopes, axes=1)  # [S, A, S]
        chains = np.einsum("psa,sat->pst", policies, kernel, optimize=True)
        paid = np.einsum("psa,sa->ps", policies, self._tables.signals(mode)[0])
        values = np.linalg.solve(np.eye(len(base)) - self.units.discount * chains, paid[:, :, None])[:, :, 0]
        found: Floats = values @ self.evidence.model.start
        return found

    def with_planned(self, boxes: Boxes, alive: Mask, planned: tuple[Planned, ...]) -> Boxes:
        """With bounds for policies planned since: those of the cell, and sharper ones where it is split."""
        for index in range(boxes.margin.shape[1], len(self.policies) + len(planned)):
            margin = planned[index - len(self.policies)].margin[boxes.cell][:, None]
            boxes = replace(boxes, margin=np.concatenate([boxes.margin, margin], axis=1))
            boxes = self.tighten_bounds(boxes, alive & self._is_split(boxes)[boxes.cell], np.array([index]), planned)
        return boxes

    def limiting_halves(self, boxes: Boxes, alive: Mask, aim: Mixture) -> tuple[Integers, Boxes]:
        """The boxes among the `alive` on which a mixture that one would like to deploy has the least margin, and both
        halves of each, with the bounds of the whole."""
        chosen, axis = self._limiting(boxes, alive, aim)
        first, second = bisect_boxes(boxes[chosen], axis)
        return chosen, first.and_also(second)

    def tighten_bounds(self, boxes: Boxes, which: Mask, policies: Integers, planned: tuple[Planned, ...]) -> Boxes:
        """With bounds of these policies over each of `which` boxes itself, where they are better than what is known."""
        if not which.any():
            return boxes
        margin, nowhere = boxes.margin.copy(), np.empty(0, dtype=np.int64)
        for index in policies.tolist():
            known = index < len(self.policies)
            policy = self.policies[index] if known else planned[index - len(self.policies)].policy
            lower, _ = box_values(self._tables, self._example, policy, boxes.low[which], boxes.high[which], nowhere)
            margin[which, index] = np.maximum(margin[which, index], lower[:, 1:, 0])
        return replace(boxes, margin=margin)

    def remembered(self, boxes: Boxes, alive: Mask) -> Boxes | None:
        """Of a partition, the boxes of cells that are split and survive; None if there are none."""
        found = boxes[(self._is_split(boxes) & self._survives(boxes, alive))[boxes.cell]]
        return found if len(found.cell) else None

    def _whole(self, which: Integers, planned: tuple[Planned, ...]) -> Boxes:
        margin = [self.cells.lower[which, :, 1:], *(plan.margin[which][:, None] for plan in planned)]
        return Boxes(which, self.cells.low[which], self.cells.high[which], np.concatenate(margin, axis=1))

    def _limiting(self, boxes: Boxes, alive: Mask, deployed: Mixture) -> tuple[Integers, Integers]:
        """The boxes to be halved, and along which parameter."""
        tightness = np.where(alive, self._least(boxes, deployed), np.inf)
        room = AT_ONCE if len(boxes.cell) < len(self.cells) + MOST else 0
        chosen = np.argsort(tightness, kind="stable")[:room]
        chosen = chosen[np.isfinite(tightness[chosen])]
        axis = np.argmax((boxes.high - boxes.low)[chosen] * self._change, axis=1)
        possible = np.all([self._has_task(half) for half in bisect_boxes(boxes[chosen], axis)], axis=0)
        return chosen[possible], axis[possible]

    def _least(self, boxes: Boxes, deployed: Mixture) -> Floats:
        """[N] the least certified margin of a mixture on each box, in the paper's unit."""
        margin = np.tensordot(boxes.margin[:, deployed.indices], deployed.weights, axes=(1, 0))  # [N, m]
        least: Floats = self.units.unit_margin(margin).min(axis=1)
        return least

    def _has_task(self, boxes: Boxes) -> Mask:
        """[N] whether there is a task at the centre, as Theorem 1a asks for."""
        probability = self.evidence.model.class_probability((boxes.low + boxes.high) / 2)
        found: Mask = np.all(probability >= -LAW_TOLERANCE, axis=1)
        return found

    def _is_split(self, boxes: Boxes) -> Mask:
        """[J]"""
        return np.bincount(boxes.cell, minlength=len(self.cells)) > 1

    def _survives(self, boxes: Boxes, alive: Mask) -> Mask:
        """[J] whether a box of the cell does."""
        return np.bincount(boxes.cell[alive], minlength=len(self.cells)) > 0

    @cached_property
    def _change(self) -> Floats:
        """[d] how fast danger changes with each parameter over all cells; halving goes along the one that counts."""
        centre, danger = self.cells.centre, self.cells.danger
        width = np.ptp(centre, axis=0)
        steps = (centre - centre.mean(axis=0)) / np.where(width > 0, width, 1.0)
        slope = np.abs(np.linalg.lstsq(steps, danger - danger.mean(), rcond=None)[0])
        change: Floats = np.maximum(slope, LEAST_CHANGE * slope.max()) / np.where(width > 0, width, 1.0)
        return change

    @cached_property
    def _tables(self) -> AffineTables:
        return self.evidence.model.affine_tables()

    @cached_property
    def _example(self) -> TabularCMDP:
        return self.evidence.model.task(self.cells.centre[0], self.units)


def bisect_boxes(boxes: Boxes, axis: Integers | int) -> tuple[Boxes, Boxes]:
    """The lower and the upper half of each box, along a parameter of its own."""
    rows, middle = np.arange(len(boxes.cell)), (boxes.low + boxes.high) / 2
    low, high = boxes.low.copy(), boxes.high.copy()
    low[rows, axis] = high[rows, axis] = middle[rows, axis]
    return replace(boxes, high=high), replace(boxes, low=low)
