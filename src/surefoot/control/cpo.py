"""Updates in a trust region that keep budgets, for the worst of several groups: CPO and CRPO.

One update of constrained policy optimisation (CPO: Achiam, Held, Tamar and Abbeel 2017) solves, in the linear model of
reward and cost and the quadratic one of the divergence,

    max gᵀx   subject to   c + bᵀx ≤ 0,   ½ xᵀHx ≤ δ,

by its dual in closed form; where no x in the region keeps the constraint, it descends the cost. With several costs or
groups the one most above its budget, in units of its spread, is the constraint of this update.

Constraint-rectified policy optimisation (CRPO: Xu, Liang and Lan 2021) climbs the reward while every budget is kept,
and otherwise descends the cost that is most above its budget. With several groups that is the worst-case policy
gradient: one policy for all tasks, pressed down wherever it is worst.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from surefoot.control.improvement import AdvantageBatch, Memory, Update
from surefoot.control.networks import Actor
from surefoot.control.trust_region import (
    Region,
    as_numbers,
    conjugate_gradient,
    divergence_and_gains,
    line_search,
    natural_step,
    slope,
    subsample,
    trpo_update,
)


def cpo(region: Region | None = None) -> Update:
    """The update of CPO, for `improvement.improve`."""
    within = region or Region()

    def update(actor: Actor, lesson: AdvantageBatch, memory: Memory, rng: np.random.Generator) -> tuple[Actor, Memory]:
        return cpo_update(actor, lesson, within), memory

    return update


def crpo(tolerance: float = 0.0, region: Region | None = None) -> Update:
    """The update of CRPO, for `improvement.improve`.

    Args:
        tolerance: how far above its budget a cost may be before it is descended, as a part of its spread.
    """
    within = region or Region()

    def update(actor: Actor, lesson: AdvantageBatch, memory: Memory, rng: np.random.Generator) -> tuple[Actor, Memory]:
        group, j = most_pressing(lesson)
        if lesson.excess[group, j] <= tolerance * lesson.size[j]:
            advantages = lesson.reward
        else:
            advantages = -lesson.cost[:, j] * lesson.weight[group] / lesson.size[j]
        found = trpo_update(actor, lesson.inputs, lesson.actions, advantages, within)
        return actor if found is None else found, memory

    return update


class CPOStep(NamedTuple):
    """x = (H⁻¹g - ν H⁻¹b)/λ; where `recovering` -√(2δ/s)·H⁻¹b instead."""

    lagrange: float
    multiplier: float
    recovering: bool


def constrained_step(q: float, r: float, s: float, c: float, delta: float) -> CPOStep:
    """The solution of the update's problem from q = gᵀH⁻¹g, r = gᵀH⁻¹b, s = bᵀH⁻¹b, Theorem 2 of the paper.

    With A = q - r²/s and B = 2δ - c²/s the dual is, at the best ν for λ,
        -½(A/λ + Bλ) + rc/s   where ν = (λc + r)/s > 0,     -½(q/λ + 2δλ)   where ν = 0,
    each concave in λ: the better of the two maxima on their own domains.
    """
    free = np.sqrt(max(q, 0.0) / (2 * delta))
    if s <= 1e-12:
        return CPOStep(max(free, 1e-12), 0.0, False)
    least = c - np.sqrt(2 * delta * s)  # of the cost, in the region
    most = c + np.sqrt(2 * delta * s)
    if least > 0:
        return CPOStep(1.0, 0.0, True)
    if most <= 0:
        return CPOStep(max(free, 1e-12), 0.0, False)
    A, B = max(q - r**2 / s, 0.0), max(2 * delta - c**2 / s, 1e-300)
    # ν > 0 where λc + r > 0, for the cost's slope along the step of reward alone.
    edge = -r / c if c else np.inf
    if c > 0:
        bound, unbound = (max(edge, 0.0), np.inf), (0.0, max(edge, 0.0))
    elif c < 0:
        bound, unbound = (0.0, max(edge, 0.0)), (max(edge, 0.0), np.inf)
    else:
        bound, unbound = ((0.0, np.inf), (0.0, 0.0)) if r > 0 else ((0.0, 0.0), (0.0, np.inf))
    on, off = (max(float(np.clip(x, *ends)), 1e-12) for x, ends in ((np.sqrt(A / B), bound), (free, unbound)))
    f_on = -0.5 * (A / on + B * on) + r * c / s if bound[1] > bound[0] else -np.inf
    f_off = -0.5 * (q / off + 2 * delta * off) if unbound[1] > unbound[0] else -np.inf
    if f_on >= f_off:
        return CPOStep(on, max(0.0, (on * c + r) / s), False)
    return CPOStep(off, 0.0, False)


def cpo_update(actor: Actor, lesson: AdvantageBatch, region: Region) -> Actor:
    """One update of CPO; the policy itself if its line search accepts no step."""
    group, j = most_pressing(lesson)
    excess = float(lesson.excess[group, j])
    inputs, actions = lesson.inputs, lesson.actions
    cost = lesson.cost[:, j] * lesson.weight[group] / lesson.weight[group].mean()
    g, b = slope(actor, inputs, actions, lesson.reward), slope(actor, inputs, actions, cost)
    few = subsample(inputs, region)
    x, p = (conjugate_gradient(actor, few, each, region.damping, region.iterations) for each in (g, b))
    q, r, s = as_numbers(g @ x, g @ p, b @ p)
    step = constrained_step(q, r, s, excess, region.divergence)
    direction = -natural_step(b, p, region) if step.recovering else (x - step.multiplier * p) / step.lagrange
    advantages = np.stack([lesson.reward, cost], axis=1)

    def accept(tried: Actor) -> bool:
        apart, (gain, dearer) = divergence_and_gains(actor, tried, inputs, actions, advantages)
        return bool(apart <= region.divergence * 1.5 and dearer <= max(-excess, 0.0) and (gain > 0 or excess > 0))

    found = line_search(actor, direction, region, accept)
    return actor if found is None else found


def most_pressing(lesson: AdvantageBatch) -> tuple[int, int]:
    """The group and the cost most above their budget."""
    pressing = lesson.excess / lesson.size
    group, j = np.unravel_index(np.argmax(pressing), pressing.shape)
    return int(group), int(j)
