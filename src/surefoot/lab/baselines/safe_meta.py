"""Safe Meta-RL: adapt a safe meta-policy by a closed form (Xu and Zhu, NeurIPS 2025), for tabular tasks.

From episodes of the policy π_φ, estimate advantages A of reward and costs, then

    π(a|s) ∝ π_φ(a|s)·exp{(A_r - Σ u_i A_ci)/η_u},  η_u = λ + (1-γ) Σ u_i λ_c,

which maximises E_ν[A_r - λ·KL(π‖π_φ)] subject to J_ci + E_ν[A_ci]/(1-γ) + λ_c·E_ν[KL] ≤ budget + δ; the multipliers u
are those of projected gradient descent on the dual. Each adapted policy is the π_φ of the next adaptation.

Their meta-training is replaced by what Surefoot's training found to be safe, as the authors of the figure did. A
policy that is exactly 0 somewhere stays so: from the safe policy of a linear program, which is deterministic in almost
every state, hardly anything can be reached.

- `safe-meta-published` has the constants behind the paper's figure, and on the gridworld its start: the optimum of the
  safe task with entropy weight 0.1, which the authors' code uses for "the" optimum, of full support. Their 600 steps
  make nearly all of the states they average over the goal; this averages over the steps that were told, without
  drawing from them again.
- `safe-meta-theory` has λ = λ_c = 2γ·range/(1-γ)³, for which the surrogate bounds the true cost if KL is the largest
  over states and the advantages are exact (Schulman et al. 2015). Reconstructed: the paper's own constants were not
  available. It hardly moves, and with advantages from samples nothing is proved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import rel_entr, softmax

from surefoot.arrays import Floats
from surefoot.cmdp.episode import Outcomes, add_in_order
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.batch_adaptation import Adaptations, BatchAdaptation
from surefoot.lab.baselines.known import known_model, tables_spec
from surefoot.lab.baselines.softmax import (
    add_by_place,
    as_start_policy,
    published_start,
    safe_table,
    visits_and_returns,
)
from surefoot.learning.spec import MethodArgs
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tabular.policy import TabularPolicy

# Entropy weight of the meta-policy behind the paper's figure.
PUBLISHED_ENTROPY = 0.1


@dataclass(frozen=True)
class AdaptationRules:
    """Everything that may be chosen, in the user's units.

    Attributes:
        reward_penalty: λ; None for the constant of the surrogate bound.
        cost_penalty: λ_c of every constraint; None likewise.
        dual_step, dual_steps: size and number of the steps on the multipliers.
        allowance: δ, by which the estimated cost may exceed the budget.
        batch: episodes of an adaptation.
        discounted: whether ν weighs the state of step t by γ^t, as it should, or counts all steps alike.
    """

    reward_penalty: float | None = None
    cost_penalty: float | None = None
    dual_step: float = 1.0
    dual_steps: int = 30
    allowance: float = 0.0
    batch: int = 50
    discounted: bool = True

    def __post_init__(self) -> None:
        for name in ("reward_penalty", "cost_penalty", "dual_step", "dual_steps", "batch"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidInput(f"{name} must be positive, got {value!r}")
        if not self.allowance >= 0:
            raise InvalidInput(f"allowance must not be negative, got {self.allowance!r}")


PRESETS: Mapping[str, AdaptationRules] = {
    "safe-meta-theory": AdaptationRules(),
    "safe-meta-published": AdaptationRules(reward_penalty=0.2, cost_penalty=0.2, discounted=False),
}


def safe_meta_method(
    policies: PolicyValueSet, terms: MethodArgs, *, start: Any = None, **options: Any
) -> BatchAdaptation:
    """Safe Meta-RL by the name of its preset; neither the number of episodes nor the risk enters its constants.

    Args:
        start: the meta-policy [S, A].
        options: the fields of `AdaptationRules`.
    """
    rules = replace(PRESETS[terms.name], **options)
    model = known_model(policies, terms.name)
    safe_table(policies)  # refuses other policies
    meta = None
    if start is not None:
        meta = as_start_policy(policies, start)
    elif terms.name == "safe-meta-published":
        meta = published_start(policies, PUBLISHED_ENTROPY)
    own = "the safe policy" if meta is None else "a meta-policy that is not the safe policy itself"
    signals = np.concatenate([model.reward[None], model.cost])
    return BatchAdaptation(
        terms.name,
        policies,
        meta,
        rules.batch,
        "transitions",
        f"{terms.name} adapts {own}; meta-training is replaced by what training found to be safe",
        VisitSums.empty(signals),
        partial(add_visits, signals, policies.units.discount, rules.discounted),
        partial(adapt_tables, policies.units, rules),
    )


# ---------------------------------------------------------------------------------------------------------- the method


@dataclass(frozen=True, eq=False)
class VisitSums:
    """Sums over the episodes of one policy: discounted sums from every visit to (s, a) on, for reward and costs.

    Attributes:
        count: episodes.
        cost: [m] discounted costs.
        returns: [1+m, S, A] over the visits to (s, a).
        visits: [S, A] their number.
        presence: [S] visits to s, each weighed as ν wants it.
    """

    count: int
    cost: Floats
    returns: Floats
    visits: Floats
    presence: Floats

    @classmethod
    def empty(cls, signals: Floats) -> VisitSums:
        constraints, states, actions = len(signals) - 1, *signals.shape[1:]
        return cls(0, np.zeros(constraints), np.zeros_like(signals), np.zeros((states, actions)), np.zeros(states))

    def advantages(self) -> Floats:
        """[1+m, S, A] every-visit estimates Q - V; 0 where (s, a) was not visited."""
        q = self.returns / np.maximum(self.visits, 1)
        v = self.returns.sum(axis=2) / np.maximum(self.visits.sum(axis=1), 1)
        return np.where(self.visits > 0, q - v[:, :, None], 0.0)


def add_visits(signals: Floats, discount: float, discounted: bool, sums: VisitSums, outcomes: Outcomes) -> VisitSums:
    """The sums with these episodes, for signals [1+m, S, A] of reward and costs."""
    visited, to_go = visits_and_returns(signals, discount, outcomes)
    per_step = discount ** np.arange(visited.shape[1]) if discounted else np.ones(visited.shape[1])
    steps = np.broadcast_to(per_step, visited.shape)
    return VisitSums(
        sums.count + len(outcomes),
        add_in_order(sums.cost, to_go[1:, :, 0].T),
        np.stack([add_by_place(*each, visited) for each in zip(sums.returns, to_go, strict=True)]),
        add_by_place(sums.visits, np.ones(visited.shape), visited),
        add_by_place(sums.presence, steps, visited // signals.shape[2]),
    )


def adapt_tables(
    units: Units, rules: AdaptationRules, policy: TabularPolicy, sums: VisitSums
) -> tuple[TabularPolicy, dict[str, Any]]:
    """The policy adapted to what its episodes showed, and what the event of it tells."""
    cost = sums.cost / sums.count
    adapted, multipliers = adapt_policy(
        policy.probabilities,
        sums.advantages(),
        sums.presence / sums.presence.sum(),
        (1 - units.discount) * (units.budget + rules.allowance - cost),
        *penalties(units, rules),
        discount=units.discount,
        dual_step=rules.dual_step,
        dual_steps=rules.dual_steps,
    )
    return TabularPolicy(adapted), {"cost": cost.tolist(), "multipliers": multipliers.tolist()}


def penalties(units: Units, rules: AdaptationRules) -> tuple[float, Floats]:
    """(λ, λ_c [m])."""
    low, high = units.reward_range
    constant = 2 * units.discount / (1 - units.discount) ** 3
    reward = constant * (high - low) if rules.reward_penalty is None else rules.reward_penalty
    widths = np.ptp(units.cost_range, axis=1)
    cost = constant * widths if rules.cost_penalty is None else np.full(len(widths), rules.cost_penalty)
    return reward, cost


def adapt_policy(
    policy: Floats,
    advantages: Floats,
    states: Floats,
    room: Floats,
    reward_penalty: float,
    cost_penalty: Floats,
    *,
    discount: float,
    dual_step: float,
    dual_steps: int,
) -> tuple[Floats, Floats]:
    """(adapted policy [S, A], its multipliers [m]).

    Args:
        policy: [S, A] π_φ.
        advantages: [1+m, S, A] of reward and costs under it.
        states: [S] ν.
        room: [m] d' = (1-γ)(budget + δ - Ĵ_c).
        cost_penalty: [m] λ_c.
    """
    multipliers = following = np.zeros(len(room))
    adapted = policy
    for _ in range(dual_steps):
        multipliers = following
        adapted = closed_form_policy(policy, advantages, multipliers, reward_penalty, cost_penalty, discount)
        divergence = rel_entr(adapted, policy).sum(axis=1)
        slope = (
            room
            - ((adapted * advantages[1:]).sum(axis=2) + (1 - discount) * np.outer(cost_penalty, divergence)) @ states
        )
        following = np.maximum(multipliers - dual_step * slope, 0.0)
        if np.array_equal(following, multipliers):
            break  # at rest: the remaining steps change nothing
    return adapted, multipliers


def closed_form_policy(
    policy: Floats,
    advantages: Floats,
    multipliers: Floats,
    reward_penalty: float,
    cost_penalty: Floats,
    discount: float,
) -> Floats:
    """[S, A] the maximiser of E_ν[A_r - Σ u_i A_ci] - η_u·E_ν[KL(π‖π_φ)], state by state."""
    temperature = reward_penalty + (1 - discount) * float(multipliers @ cost_penalty)
    gain = (advantages[0] - np.tensordot(multipliers, advantages[1:], 1)) / temperature
    with np.errstate(divide="ignore"):
        weights = softmax(np.log(policy) + gain, axis=1)
    adapted: Floats = weights / weights.sum(axis=1, keepdims=True)
    return adapted


# ------------------------------------------------------------------------------------------------------------- by name


_row = partial(
    tables_spec,
    make=safe_meta_method,
    costs="steps on the dual for every batch of episodes",
    options=("start", *(field.name for field in fields(AdaptationRules))),
    state=(Adaptations, VisitSums, TabularPolicy),
    takes_risk=False,
)

SPECS = (
    _row(
        "safe-meta-theory",
        why="reconstructed, and its bound is for exact advantages, not for those of samples",
        colour=13,
    ),
    _row("safe-meta-published", why="the constants behind the paper's figure: no proof", colour=8),
)
