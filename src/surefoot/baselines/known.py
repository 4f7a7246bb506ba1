"""What every baseline is told besides its safe policy: rewards, costs, start, and which transitions are possible."""

from __future__ import annotations

from surefoot.errors import InvalidInput
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tabular.transition_model import TransitionModel


def known_model(policies: PolicyValueSet, method: str) -> TransitionModel:
    """The tables shared by all tasks of the family; its probabilities are for the certified methods alone."""
    model = None if policies.cells is None else policies.cells.model
    if model is None:
        raise InvalidInput(
            f"policies must hold cells with a transition model for method {method!r}, which needs the reward and cost "
            "of every state and action and the possible successors, got none; train on a tabular family"
        )
    if policies.units.horizon is not None:
        raise InvalidInput(
            f"policies must be for tasks without a horizon for method {method!r}, whose formulas are for discounted "
            f"sums without end, got horizon {policies.units.horizon}"
        )
    return model
