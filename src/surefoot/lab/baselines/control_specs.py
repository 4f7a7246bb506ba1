"""The baselines of the paper's figure on robots, by name. They learn networks with JAX, which is imported when one of
them is made and not before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pkgutil import resolve_name
from types import MappingProxyType
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
        divergence: largest mean divergence KL(old‖new) of one adaptation, if it is limited. A length in parameters
            means little by itself: what it changes grows as action noise falls, like 1/σ².
        standardised: whether penalties are in units of the advantages' spread, or in the user's.
    """

    batch: int = 40
    discount: float = 0.99
    trace: float = 0.95
    divergence: float | None = 0.03
    standardised: bool = True

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_rule(field.name, getattr(self, field.name))


@dataclass(frozen=True)
class CpoRules(BatchRules):
    """Of CPO: the damping of the curvature. Its steps are in the metric of the divergence, which must be limited."""

    damping: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.divergence is None:
            raise InvalidInput("divergence must be a positive number for CPO, got None")


@dataclass(frozen=True)
class MetaCpoRules(BatchRules):
    """Of meta-CPO: the length of an inner step in parameters, if it is limited."""

    length: float | None = None


@dataclass(frozen=True)
class PenaltyRules(BatchRules):
    """Of MAML: the advantage is A_r - penalty·Σ A_c over its standard deviation; one step up its surrogate, at most
    `rate` times the gradient."""

    penalty: float = 0.5
    rate: float | None = None


@dataclass(frozen=True)
class SafeMetaRules(BatchRules):
    """Of SafeMeta.

    Attributes:
        reward_penalty, cost_penalty: λ, and λ_c of every constraint.
        steps: of Adam, at most.
        rate: of Adam; by default such that about ten steps lead out of the divergence.
        dual_step, most: size of the step on the multipliers after each of Adam's, and the largest multiplier.
        saturating: whether ratios ρ of probabilities count as 2σ(2ρ-2), which no ratio drives far, or as they are.
    """

    reward_penalty: float = 1.0
    cost_penalty: float = 0.0
    steps: int = 100
    rate: float | None = None
    dual_step: float = 1.0
    most: float = 8.0
    saturating: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.divergence is None and self.rate is None:
            raise InvalidInput("divergence or rate must be a positive number, got None for both")


def _check_rule(name: str, value: Any) -> None:
    """Counts, parts of 1, penalties that may be 0, limits that there need not be, and the rest, which is positive."""
    if name in ("batch", "steps"):
        check_int(name, value)
    elif name in ("discount", "trace"):
        if not 0 <= number(name, value) <= 1:
            raise InvalidInput(f"{name} must lie in [0, 1], got {value!r}")
    elif name in ("penalty", "cost_penalty"):
        if not number(name, value) >= 0:
            raise InvalidInput(f"{name} must not be negative, got {value!r}")
    elif name in ("saturating", "standardised"):
        if not isinstance(value, bool):
            raise InvalidInput(f"{name} must be True or False, got {value!r}")
    elif not (value is None and name in ("divergence", "length", "rate")) and not number(name, value) > 0:
        raise InvalidInput(f"{name} must be positive, got {value!r}")


# As their authors have them, for networks that begin with action noise σ = 1. Cho and Sun's line search accepts no step
# that is longer than 0.01.
PUBLISHED: Mapping[str, BatchRules] = MappingProxyType(
    {
        "safe-meta-control": SafeMetaRules(divergence=3.0, rate=1e-3, standardised=False),
        "meta-cpo": MetaCpoRules(divergence=None, length=0.01, standardised=False),
        "maml-penalty": PenaltyRules(divergence=None, rate=0.1, standardised=False),
        "cpo-online": CpoRules(divergence=0.01, standardised=False),
    }
)


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
