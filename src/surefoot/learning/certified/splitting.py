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
from surefoot.cmdp.units import Units
from surefoot.learning.certified.evidence.likelihood import LikelihoodRatio
from surefoot.learning.certified.replanning import Planned
from surefoot.learning.method import Deployed
from surefoot.policyset.cells import Cells
from surefoot.tabular.affine import AffineTables
from surefoot.tabular.expansion import box_values
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.transition_model import LAW_TOLERANCE

# How many boxes are halved at a decision, and how many there may be at most, besides the cells that are whole.
AT_ONCE, MOST = 2, 1000
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

    def log_evidence(self, state: Any, boxes: Boxes, enough: float) -> Floats:
        """[N] log E of each box: the numerator of its cell over the best likelihood in the box. Where it is above
        `enough` it may be understated."""
        numerator = self.evidence.log_mixture(state)[boxes.cell]
        found: Floats = numerator - self.evidence.best_in_boxes(state, boxes.low, boxes.high, numerator - enough)
        return found

    def with_planned(self, boxes: Boxes, planned: tuple[Planned, ...]) -> Boxes:
        """With bounds for policies planned since: those of the cell, and sharper ones where it is split."""
        for index in range(boxes.margin.shape[1], len(self.policies) + len(planned)):
            plan = planned[index - len(self.policies)]
            boxes = replace(boxes, margin=np.concatenate([boxes.margin, plan.margin[boxes.cell][:, None]], axis=1))
            parts = np.flatnonzero(self._is_split(boxes)[boxes.cell])
            if parts.size:
                boxes.margin[parts] = self._sharpened(boxes[parts], index, plan.policy).margin
        return boxes

    def split(self, boxes: Boxes, alive: Mask, deployed: Deployed, planned: tuple[Planned, ...]) -> Boxes | None:
        """Of a partition, the boxes of cells that are split and survive, after halving those among the `alive` on which
        the mixture that is deployed, or that one would like to, has the least margin; None if no cell is split."""
        chosen, axis = self._limiting(boxes, alive, deployed)
        halves = self._halves(boxes[chosen], axis, deployed, planned)
        split = self._is_split(boxes)
        split[boxes.cell[chosen]] = True
        kept = split[boxes.cell] & self._survives(boxes, alive)[boxes.cell]
        kept[chosen] = False  # their halves take their place
        found = boxes[kept].and_also(halves)
        return found if len(found.cell) else None

    def _whole(self, which: Integers, planned: tuple[Planned, ...]) -> Boxes:
        margin = [self.cells.lower[which, :, 1:], *(plan.margin[which][:, None] for plan in planned)]
        return Boxes(which, self.cells.low[which], self.cells.high[which], np.concatenate(margin, axis=1))

    def _limiting(self, boxes: Boxes, alive: Mask, deployed: Deployed) -> tuple[Integers, Integers]:
        """The boxes to be halved, and along which parameter."""
        margin = np.tensordot(boxes.margin[:, deployed.indices], deployed.weights, axes=(1, 0))  # [N, m]
        tightness = np.where(alive, self.units.unit_margin(margin).min(axis=1), np.inf)
        room = AT_ONCE if len(boxes.cell) < len(self.cells) + MOST else 0
        chosen = np.argsort(tightness, kind="stable")[:room]
        chosen = chosen[np.isfinite(tightness[chosen])]
        axis = np.argmax((boxes.high - boxes.low)[chosen] * self._change, axis=1)
        possible = np.array([self._has_tasks(*halved(boxes[[k]], a)) for k, a in zip(chosen, axis, strict=True)], bool)
        return chosen[possible], axis[possible]

    def _has_tasks(self, *halves: Boxes) -> bool:
        """Whether each of them has a task at its centre, as Theorem 1a asks for."""
        centres = np.concatenate([(half.low + half.high) / 2 for half in halves])
        return bool((self.evidence.model.class_probability(centres) >= -LAW_TOLERANCE).all())

    def _halves(self, boxes: Boxes, axis: Integers, deployed: Deployed, planned: tuple[Planned, ...]) -> Boxes:
        """Both halves, with the bounds of the whole where those of the halves are not better or not needed yet."""
        first, second = halved(boxes, axis)
        halves = first.and_also(second)
        for index in deployed.indices.tolist() if len(boxes.cell) else ():
            known = index < len(self.policies)
            policy = self.policies[index] if known else planned[index - len(self.policies)].policy
            halves = self._sharpened(halves, index, policy)
        return halves

    def _sharpened(self, boxes: Boxes, index: int, policy: TabularPolicy | TimedPolicy) -> Boxes:
        """With the bounds of one policy over each box, where these are better than what is known."""
        lower, _ = box_values(self._tables, self._example, policy, boxes.low, boxes.high, np.empty(0, dtype=np.int64))
        margin = boxes.margin.copy()
        margin[:, index] = np.maximum(margin[:, index], lower[:, 1:, 0])
        return replace(boxes, margin=margin)

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


def halved(boxes: Boxes, axis: Integers | int) -> tuple[Boxes, Boxes]:
    """The lower and the upper half of each box, along a parameter of its own."""
    rows, middle = np.arange(len(boxes.cell)), (boxes.low + boxes.high) / 2
    low, high = boxes.low.copy(), boxes.high.copy()
    low[rows, axis] = high[rows, axis] = middle[rows, axis]
    return replace(boxes, high=high), replace(boxes, low=low)
