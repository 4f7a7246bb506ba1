"""CPO online (Achiam, Held, Tamar and Abbeel 2017): one constrained update after every batch, from the safe policy on.

The update is that of `control.cpo`, in the metric of the divergence, with its line search.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from surefoot.arrays import Floats
from surefoot.control.cpo import cpo_update
from surefoot.control.improvement import AdvantageBatch
from surefoot.control.networks import Actor
from surefoot.control.trust_region import Region
from surefoot.lab.baselines.control_specs import CpoRules
from surefoot.lab.baselines.weighed_steps import Samples


def adapt(actor: Actor, samples: Samples, rules: CpoRules) -> Actor:
    region = Region(divergence=rules.divergence, damping=rules.damping)
    return cpo_update(actor, lesson_of(samples, np.zeros(samples.excess.shape)), region)


def lesson_of(samples: Samples, budget: Floats) -> AdvantageBatch:
    """The same for updates of `control`; `budget` [m] per step."""
    reward, cost = samples.advantages[:, 0], samples.advantages[:, 1:]
    spread = np.asarray(samples.advantages.std(axis=0), np.float64) + 1e-8
    return AdvantageBatch(
        samples.inputs,
        samples.actions,
        reward / spread[0],
        cost,
        jnp.ones((1, len(reward))),
        np.asarray(samples.excess, np.float64)[None],
        budget,
        spread[1:],
    )
