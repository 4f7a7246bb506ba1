"""Cells that stand for all tasks near theirs: bounds and radii widened by a distance (docs, Theorem 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from surefoot import theory
from surefoot.arrays import Floats, Mask, number
from surefoot.bounds.cells import Cells
from surefoot.bounds.settings import LESS_URGENT
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tabular.expansion import box_spreads
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.robust import value_spreads
from surefoot.tabular.transition_model import TransitionModel


def check_shift(shift: float) -> float:
    found = number("shift", shift)
    if not 0 <= found < 1:
        raise InvalidInput(f"shift must be a distance in [0, 1), got {shift!r}")
    return found


def widen_for_shift(
    cells: Cells,
    policies: Sequence[Policy],
    units: Units,
    *,
    ends: bool,
    risk: float,
    shift: float,
    assume_safe: bool,
) -> Cells:
    """The cells as they are for all tasks within `shift` of theirs; those on which the safe policy is then no longer
    sure to be feasible are left out, and what they weigh counts as uncovered.

    Args:
        ends: whether episodes may end before the horizon.
        assume_safe: the safe policy is known to be feasible on this very system, so that no cell is left out.
    """
    spread = spreads(cells, policies, units, ends=ends)
    lower, upper = widen_bounds(cells.lower, cells.upper, units, shift, spread, ends=ends, from_start=True)
    kept: Mask = np.ones(len(cells), dtype=bool)
    if assume_safe:
        lower[:, 0, 1:], upper[:, 0, 1:] = np.maximum(lower[:, 0, 1:], 0.0), np.maximum(upper[:, 0, 1:], 0.0)
    else:
        kept = np.asarray((lower[:, 0, 1:] >= 0).all(axis=1))
        _check_kept(cells, kept, risk, shift, _most_each(cells, units, spread))
    start_lower, start_upper = cells.start_lower, cells.start_upper
    if start_lower is not None and start_upper is not None:
        sides = widen_bounds(start_lower, start_upper, units, shift, spread[..., None], ends=ends, from_start=False)
        start_lower, start_upper = (side[kept] for side in sides)
    left_out = _weight(cells, ~kept)
    affine = cells.model is not None and cells.model.affine is not None
    return replace(
        cells,
        low=cells.low[kept],
        high=cells.high[kept],
        prior=cells.prior[kept] * (1 - cells.uncovered - left_out) / cells.prior[kept].sum(),
        lower=lower[kept],
        upper=upper[kept],
        start_lower=start_lower,
        start_upper=start_upper,
        uncovered=cells.uncovered + left_out,
        model=None if cells.model is None else _model_around(cells.model, kept, shift),
        outside=np.concatenate([cells.outside, cells.centre[~kept]]) if affine else cells.outside,
        readings=None,
    )


def shrink_bounds(cells: Cells, width: float) -> Cells:
    """Cells whose bounds are `width` times as wide, around what they were widened from. They need not hold: for
    `calibrate`."""
    if width == 1:
        return cells

    def sides(lower: Floats, upper: Floats, place: float | Floats = 0.5) -> tuple[Floats, Floats]:
        estimate = lower + place * (upper - lower)
        return estimate - width * (estimate - lower), estimate + width * (upper - estimate)

    place = np.full(cells.lower.shape[2], 0.5)
    if cells.source == "monte-carlo":
        place[1:] = 1 / (1 + LESS_URGENT)  # of an estimated margin between its bounds
    lower, upper = sides(cells.lower, cells.upper, place)
    start_lower, start_upper, readings = cells.start_lower, cells.start_upper, cells.readings
    if start_lower is not None and start_upper is not None:
        start_lower, start_upper = sides(start_lower, start_upper, place[:, None])
    if readings is not None:
        low, high = sides(readings.lower, readings.upper)
        readings = replace(readings, lower=low, upper=high)
    return replace(cells, lower=lower, upper=upper, start_lower=start_lower, start_upper=start_upper, readings=readings)


def widen_bounds(
    lower: Floats, upper: Floats, units: Units, shift: float, spread: Floats, *, ends: bool, from_start: bool
) -> tuple[Floats, Floats]:
    """Bounds on values, [J, P, 1+m] or, from first states, [J, P, 1+m, F], on all tasks within `shift` (Lemma 8)."""
    least, most = units.possible_values(ends=ends)
    scale = np.concatenate([[units.reward_scale], units.cost_scale])
    if not from_start:
        least, most, scale = least[:, None], most[:, None], scale[:, None]
    slack = shift * theory.shift_bound(scale, spread, units.effective_discount)
    if from_start:
        slack = slack + shift * spread  # first states are drawn otherwise, too
    return np.clip(lower - slack, least, most), np.clip(upper + slack, least, most)


def spreads(cells: Cells, policies: Sequence[Policy], units: Units, *, ends: bool) -> Floats:
    """[J, P, 1+m] the most by which values differ between states on any task of a cell, with a horizon at any step: by
    the bounds from every state, which are those of the first step, by the model, or by what the ranges allow. To have
    ended is a state as well."""
    every_state = cells.start_lower is not None and cells.first_states is None and units.horizon is None
    if every_state and cells.start_lower is not None and cells.start_upper is not None:
        spread: Floats = cells.start_upper.max(axis=3) - cells.start_lower.min(axis=3)
        return spread
    least, most = units.possible_values(ends=ends)
    found = np.tile(most - least, (*cells.lower.shape[:2], 1))
    for index, policy in enumerate(policies):
        if cells.model is not None and isinstance(policy, TabularPolicy | TimedPolicy):
            known = _model_spread(cells, cells.model, policy, units)
            if known is not None:
                found[:, index] = np.minimum(found[:, index], known)
    return found


def _model_spread(
    cells: Cells, model: TransitionModel, policy: TabularPolicy | TimedPolicy, units: Units
) -> Floats | None:
    """[J, 1+m] of one policy: over boxes with a horizon by their expansion, else by what holds around every centre."""
    if units.horizon is not None and model.affine is not None and model.pays:
        example = model.task(cells.centre[0], units)
        return box_spreads(model.affine_tables(), example, policy, cells.low, cells.high)
    return value_spreads(model, policy, units)


def without_payments(cells: Cells) -> Cells:
    """For evidence from transitions: a task at a distance may pay otherwise and begin anywhere, so that no single sum
    or first state contradicts a cell."""
    if cells.model is None:
        return cells
    anywhere = np.full(cells.model.n_states, 1 / cells.model.n_states)
    return replace(cells, model=replace(cells.model, reward=None, cost=None, payments=None, start=anywhere))


def _most_each(cells: Cells, units: Units, spread: Floats) -> Floats:
    """[J] the largest distance at which the safe policy is sure to be feasible: the slack grows in proportion."""
    slope = theory.shift_bound(units.cost_scale, spread[:, 0, 1:], units.effective_discount) + spread[:, 0, 1:]
    most: Floats = (cells.lower[:, 0, 1:] / slope).min(axis=1)
    return most


def _check_kept(cells: Cells, kept: Mask, risk: float, shift: float, most: Floats) -> None:
    """What is left out must weigh less than the risk; where nobody knows what cells weigh, none may be."""
    known = cells.prior_known
    if kept.all() or (known and kept.any() and cells.uncovered + _weight(cells, ~kept) < risk):
        return
    largest = max((each for each in most if cells.uncovered + _weight(cells, most < each) < risk), default=0.0)
    if not known:
        largest = most.min()
    raise InvalidInput(
        f"shift must be at most {max(0.999 * largest, 0.0):.4g}, up to which the safe policy keeps its budgets on all "
        f"tasks around {'enough of the cells for this risk' if known else 'every cell'} (a safer safe policy would "
        f"raise it; assume_safe=True says that it is known to be feasible on this very system), got {shift:g}"
    )


def _weight(cells: Cells, some: Mask) -> float:
    """No less than the probability of these cells: `prior` is that of all cells times something below 1 - uncovered."""
    return float(cells.prior[some].sum()) / (1 - cells.uncovered)


def _model_around(model: TransitionModel, kept: Mask, shift: float) -> TransitionModel:
    return replace(model, probability=model.probability[kept], radius=model.radius[kept] + shift)
