"""The baselines of the paper's figure on robots, by name. They learn networks with JAX, which is imported when one of
them is made and not before."""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any

from surefoot.arrays import check_int, number
from surefoot.control.mlp_policy import CategoricalPolicy, MLPPolicy
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.batch_adaptation import Adaptations
from surefoot.lab.baselines.rollout_buffer import RolloutBuffer
from surefoot.learning.method import Method
from surefoot.learning.spec import MethodArgs, MethodSpec
from surefoot.policyset.policy_value_set import PolicyValueSet


@dataclass(frozen=True)
class BatchRules:
    """What all four may choose.

    Attributes:
        batch: episodes of an adaptation; 40 of 200 steps are the published 8,000 steps.
        discount, trace: γ and λ of the advantages.
    """

    batch: int = 40
    discount: float = 0.99
    trace: float = 0.95

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_rule(field.name, getattr(self, field.name))


@dataclass(frozen=True)
class CpoRules(BatchRules):
    """Of CPO: δ, and the damping of the curvature."""

    divergence: float = 0.01
    damping: float = 0.1


@dataclass(frozen=True)
class MetaCpoRules(BatchRules):
    """Of meta-CPO: an inner step x has ½‖x‖² ≤ `divergence`, and no meta-update diverges further."""

    divergence: float = 0.01


@dataclass(frozen=True)
class PenaltyRules(BatchRules):
    """Of MAML: the advantage is A_r - penalty·Σ A_c over its standard deviation, and one step of size `rate` goes up
    its surrogate."""

    penalty: float = 0.5
    rate: float = 0.1


@dataclass(frozen=True)
class SafeMetaRules(BatchRules):
    """Of SafeMeta, in the user's units.

    Attributes:
        reward_penalty, cost_penalty: λ, and λ_c of every constraint.
        steps, rate: of Adam.
        dual_step, most: size of the step on the multipliers after each of Adam's, and the largest multiplier.
        divergence: mean divergence after which no further step is taken.
        saturating: whether ratios ρ of probabilities count as 2σ(2ρ-2), which no ratio drives far, or as they are.
    """

    reward_penalty: float = 1.0
    cost_penalty: float = 0.0
    steps: int = 100
    rate: float = 1e-3
    dual_step: float = 1.0
    most: float = 8.0
    divergence: float = 3.0
    saturating: bool = True


def _check_rule(name: str, value: Any) -> None:
    """Counts, parts of 1, penalties that may be 0, and the rest, which is positive."""
    if name in ("batch", "steps"):
        check_int(name, value)
    elif name in ("discount", "trace"):
        if not 0 <= number(name, value) <= 1:
            raise InvalidInput(f"{name} must lie in [0, 1], got {value!r}")
    elif name in ("penalty", "cost_penalty"):
        if not number(name, value) >= 0:
            raise InvalidInput(f"{name} must not be negative, got {value!r}")
    elif name != "saturating" and not number(name, value) > 0:
        raise InvalidInput(f"{name} must be positive, got {value!r}")


# ------------------------------------------------------------------------------------------------------------- by name


def _row(name: str, rules: type[BatchRules], why: str, colour: int) -> MethodSpec:
    """Its options are the fields of its rules, and `start`, the policy that is adapted first."""

    def make(policies: PolicyValueSet, terms: MethodArgs, *, start: Any = None, **options: Any) -> Method:
        for needed in ("jax", "optax"):
            if find_spec(needed) is None:
                raise InvalidInput(
                    f"method {terms.name!r} learns networks and needs {needed}, which is not installed: "
                    "pip install 'surefoot[control]'"
                )
        network_method = resolve_name("surefoot.lab.baselines.network_adaptation:network_method")
        made: Method = network_method(name, policies, terms, start, rules(**options))
        return made

    return MethodSpec(
        name,
        make,
        certified=False,
        why=why,
        needs="networks",
        costs="an update of the network in JAX for every batch of 40 episodes, after meta-training where there is one",
        observes="steps",
        options=("start", *(field.name for field in fields(rules))),
        state=(Adaptations, RolloutBuffer, MLPPolicy, CategoricalPolicy),
        takes_risk=False,
        colour=colour,
    )


MODEL = "a linear model of the cost is kept within the budget, not the cost"

SPECS = (
    _row("safe-meta-control", SafeMetaRules, "a surrogate from samples is kept within the budget, not the cost", 20),
    _row("meta-cpo", MetaCpoRules, MODEL, 21),
    _row("maml-penalty", PenaltyRules, "a penalty on the cost keeps no budget", 22),
    _row("cpo-online", CpoRules, MODEL, 23),
)
