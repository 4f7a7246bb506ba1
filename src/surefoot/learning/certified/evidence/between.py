"""Alternatives between the centres of cells: all tasks around one, by a normal density (docs, Theorem 2b).

A mixture over centres knows the task up to the width of a cell, and falls behind the best likelihood the further the
more is observed. An integral over all tasks does not. It is bounded from below, which only makes evidence smaller.
"""

from __future__ import annotations

import numpy as np

from surefoot.arrays import Floats
from surefoot.tabular.transition_model import TransitionModel

# Equidistant nodes along each main axis of the likelihood, in standard deviations; fewer where parameters are many, and
# none beyond: the number of nodes is a power.
NODES, FEWER_NODES = (-1.8, -0.6, 0.6, 1.8), (-1.0, 1.0)
MANY, TOO_MANY = 4, 8
# Nodes keep this part of the way to where a transition becomes impossible; regions much smaller than meant are no use.
INSIDE, LEAST_REGION = 0.9, 1e-3


def log_integral(
    seen: Floats, model: TransitionModel, mode: Floats, box: tuple[Floats, Floats], centre: Floats, width: Floats
) -> Floats:
    """[J] lower bound on log ∫ N(θ; centre_j, width_j²)·Π_c p_c(θ)^seen_c dθ over the parameters of tasks.

    Args:
        mode: [d] where the integrand is large; any point is valid.
        box: corners [d] within which tasks are looked for.
        centre, width: [J, d] of the normal densities.

    The logarithm of the integrand is concave. So its mean over a tile, a parallelepiped, is at least that over the
    corners, and by Jensen's inequality the integral over the tile is at least its volume times exp of that.
    """
    region = _region(seen, model, mode, box, width.max(axis=0))
    if region is None:
        return np.full(len(centre), -np.inf)
    nodes, log_volume = region
    used = seen > 0
    probability = model.class_probability(nodes)[:, used]
    if not (probability > 0).all():
        return np.full(len(centre), -np.inf)
    values = log_normal(nodes, centre, width) + np.log(probability) @ seen[used]
    tiles = _means_over_corners(values, nodes.shape[1])
    most = tiles.max(axis=1)
    bound: Floats = most + np.log(np.exp(tiles - most[:, None]).sum(axis=1)) + log_volume
    return bound


def log_normal(points: Floats, centre: Floats, width: Floats) -> Floats:
    """[J, n] log-density at points [n, d] of normal laws with independent components, centre and width [J, d]."""
    near, weight = points.mean(axis=0), width**-2.0
    point, middle = points - near, centre - near  # so that the squares below cancel nothing
    squares = weight @ (point**2).T - 2 * (middle * weight) @ point.T + (middle**2 * weight).sum(axis=1)[:, None]
    found: Floats = -squares / 2 - np.log(width * np.sqrt(2 * np.pi)).sum(axis=1)[:, None]
    return found


def _region(
    seen: Floats, model: TransitionModel, mode: Floats, box: tuple[Floats, Floats], scale: Floats
) -> tuple[Floats, float] | None:
    """Nodes [n, d] of a lattice around the mode along the main axes of the curvature there, all of them tasks, and the
    logarithm of the volume of each tile; None where there is no room for it."""
    dimension = len(mode)
    if model.affine is None or dimension > TOO_MANY:
        return None
    slope, steps = model.affine[1], np.array(NODES if dimension <= MANY else FEWER_NODES)
    used = seen > 0
    ratio = slope[used] * scale / np.maximum(model.class_probability(mode)[used], 1e-100)[:, None]
    size, axes = np.linalg.eigh((ratio.T * seen[used]) @ ratio + np.eye(dimension))
    lattice = np.stack(np.meshgrid(*[steps] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    offset = (lattice / np.sqrt(size)) @ axes.T * scale
    low, high = box[0] + np.abs(offset).max(axis=0), box[1] - np.abs(offset).max(axis=0)
    middle = np.where(low < high, np.clip(mode, low, np.maximum(low, high)), (box[0] + box[1]) / 2)
    here, change = model.class_probability(middle), offset @ slope.T
    falling = change < 0
    room = np.min(np.where(falling, here / np.where(falling, -change, 1.0), np.inf), initial=np.inf)
    part = min(1.0, INSIDE * float(room))
    if not part > LEAST_REGION:
        return None
    log_volume = dimension * np.log(part * (steps[1] - steps[0])) + np.log(scale).sum() - np.log(size).sum() / 2
    return middle + part * offset, float(log_volume)


def _means_over_corners(values: Floats, dimension: int) -> Floats:
    """[J, tiles] means over the corners of each tile, of values [J, n] at the nodes of a lattice."""
    side = round(values.shape[1] ** (1 / dimension))
    grid = values.reshape(len(values), *[side] * dimension)
    for axis in range(1, dimension + 1):
        before, after = np.delete(grid, -1, axis), np.delete(grid, 0, axis)
        grid = (before + after) / 2
    return grid.reshape(len(values), -1)
