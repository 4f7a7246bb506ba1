"""Policy-value sets made up by hand, for tests of the test phase."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from surefoot.cmdp.task import Values
from surefoot.cmdp.units import Units
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy


def made_up_set(
    units: Units,
    unit_values: Sequence[tuple[float, Sequence[float], float, Sequence[float]]],
    *,
    epsilon: float,
    policies: Sequence[TabularPolicy] | None = None,
) -> PolicyValueSet:
    """A policy-value set with the values (u, v, u_s, v_s) given in unit scale; `policies` are π_s, then one per entry.

    No training is behind it, which is what tests of the test phase need: values can be right, wrong or absurd.
    """
    if policies is None:
        share = np.linspace(0, 1, len(unit_values) + 1)
        policies = [TabularPolicy(np.array([[1 - p, p]])) for p in share]
    low = units.reward_value_range[0]
    entries = tuple(
        Entry(
            np.array([float(k)]),
            policies[k + 1],
            low + units.reward_scale * u,
            units.user_margin(np.array(v, dtype=np.float64)),
            low + units.reward_scale * u_s,
            units.user_margin(np.array(v_s, dtype=np.float64)),
        )
        for k, (u, v, u_s, v_s) in enumerate(unit_values)
    )
    return PolicyValueSet(entries, policies[0], units, epsilon, 0.1, 0.0, "made up", {}, {}, safe_risk=0.0)


def values_of_all(task: TabularCMDP, policies: Sequence[TabularPolicy]) -> Values:
    """Reward [n], cost [n, m] and margin [n, m] of n policies on one task."""
    each = [evaluate(task, policy) for policy in policies]
    reward, cost, margin = ([getattr(values, name) for values in each] for name in ("reward", "cost", "margin"))
    return Values(np.array(reward), np.array(cost), np.array(margin))
