"""The oracles of the training phase: whether two tasks are close, what is best on one, what is safe on all."""

from surefoot.on_demand import lazy_attributes
from surefoot.oracles.exact import ParameterDistance, check_by_enumeration, exact_oracles, linear_program
from surefoot.oracles.interface import (
    CheckOracle,
    FeasibleOracle,
    FeasiblePolicy,
    OptimalOracle,
    Oracles,
    PolicyValues,
    from_neighbour_to_neighbour,
)
from surefoot.oracles.policy_gradient import crpo, worst_task_then_gradient

__all__ = [
    "CheckOracle",
    "FeasibleOracle",
    "FeasiblePolicy",
    "OptimalOracle",
    "Oracles",
    "ParameterDistance",
    "PolicyValues",
    "Schooling",
    "check_by_enumeration",
    "crpo",
    "exact_oracles",
    "from_neighbour_to_neighbour",
    "insulin_candidates",
    "learned_experts",
    "learned_safe_policy",
    "linear_program",
    "worst_task_then_gradient",
]

# What needs the extra `control`, and what belongs to the laboratory's pump, is imported when it is asked for.
__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "surefoot.lab.pump.gain_search": "insulin_candidates",
        "learned": "Schooling learned_experts learned_safe_policy",
    },
)
