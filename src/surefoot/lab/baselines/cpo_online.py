"""CPO online (Achiam, Held, Tamar and Abbeel 2017): one constrained update after every batch, from the safe policy on.

The update is that of `control.cpo`, in the metric of the divergence, with its line search.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from surefoot.control.cpo import cpo_update
from surefoot.control.networks import Actor
from surefoot.control.trust_region import Region
from surefoot.lab.baselines.control_specs import CpoRules
from surefoot.lab.baselines.told_episodes import NetworkAdaptation
from surefoot.lab.baselines.weighed_steps import Samples, adapting, lesson_of
from surefoot.learning.spec import Terms
from surefoot.policyset.policy_value_set import PolicyValueSet


def method(policies: PolicyValueSet, terms: Terms, *, start: Any = None, **options: Any) -> NetworkAdaptation:
    """`cpo-online`; options are the fields of `CpoRules`."""
    rules = CpoRules(**options)
    return adapting(policies, terms, start, rules, partial(adapt, rules=rules))


def adapt(actor: Actor, samples: Samples, rules: CpoRules) -> Actor:
    region = Region(divergence=rules.divergence, damping=rules.damping)
    return cpo_update(actor, lesson_of(samples, np.zeros(samples.excess.shape)), region)
