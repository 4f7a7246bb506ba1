"""Whether a controller that takes many observations at once draws for each of them by itself.

Simulated episodes that run side by side count as independent, and are not where a controller draws one number for all
of them. Shown copies of one observation, it then does the same in every lane, and something else when it is asked
again: lanes that draw by themselves practically never agree like this.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from surefoot.arrays import Floats
from surefoot.cmdp.controllers import ACTION_TOLERANCE, Controller
from surefoot.errors import InvalidInput

LANES, ASKED, STEPS, SHOWN = 64, 64, 2, 8  # copies of an observation, how often, at how many steps, and of how many
RESOLUTION = 1e-6  # part of the range of all actions that is rounding
FALSE_ALARM = 1e-12  # of each number of lanes that might share their draws


def check_lanes(own: Controller, observations: NDArray[Any]) -> None:
    """Refuse a controller of which several lanes share their draws, at some of the observations [n, ...]."""
    for observation in observations[np.unique(np.linspace(0, len(observations) - 1, SHOWN).astype(np.intp))]:
        for actions in _asked(own, observation):
            sharing = max(sharing_lanes(component) for component in np.moveaxis(actions, 2, 0))
            if sharing > 1:
                raise InvalidInput(
                    f"controller {own.name!r} must draw for each observation by itself, got the same draws for "
                    f"{sharing} of {LANES}: draw len(observations) numbers, as rng.random(len(observations)), or say "
                    "vectorised=False"
                )


def sharing_lanes(actions: NDArray[Any]) -> int:
    """How many lanes of [asked, lanes] always do the same and yet not always the same thing; 1 where that is chance.

    If actions are drawn independently with probabilities π, here their shares, some g lanes have one and the same
    sequence c of them, of probability π(c) ≤ x, with probability at most C(lanes, g)·x^(g-1).
    """
    values, number = _distinct(actions), actions.shape[1]
    share = np.bincount(values.ravel())[values] / values.size
    sequences, first, lanes = np.unique(values, axis=1, return_index=True, return_counts=True)
    choices = gammaln(number + 1) - gammaln(lanes + 1) - gammaln(number - lanes + 1)
    chance = choices + (lanes - 1) * np.log(share).sum(axis=0)[first]
    shared = (np.ptp(sequences, axis=0) > 0) & (chance < np.log(FALSE_ALARM))
    return int(lanes[shared].max(initial=1))


def _asked(own: Controller, observation: NDArray[Any]) -> Floats:
    """[steps, asked, lanes, k] what it does in the first steps of as many episodes, all with one observation."""
    copies = np.repeat(observation[None], LANES, axis=0)
    steps = [np.full(LANES, step) for step in range(STEPS)]
    found = []
    for number in range(ASKED):
        rng = np.random.default_rng(number)
        found.append([np.asarray(own.act(copies, step, rng), np.float64).reshape(LANES, -1) for step in steps])
    asked: Floats = np.array(found).swapaxes(0, 1)
    return asked


def _distinct(actions: NDArray[Any]) -> NDArray[np.intp]:
    """Actions [asked, lanes] as numbers 0, 1, ..., equal where actions are but for rounding."""
    extent = float(np.ptp(actions))
    if extent <= ACTION_TOLERANCE * max(1.0, float(np.abs(actions).max())):
        return np.zeros(actions.shape, np.intp)
    rounded = np.round((actions - actions.min()) / (RESOLUTION * extent))
    _, values = np.unique(rounded, return_inverse=True)
    return values.reshape(actions.shape).astype(np.intp)
