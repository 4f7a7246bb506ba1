"""What every baseline is told besides its safe policy: rewards, costs, start, and which transitions are possible."""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.arrays import Floats, Integers
from surefoot.errors import InvalidInput
from surefoot.policyset.policy_value_set import PolicyValueSet


@dataclass(frozen=True, eq=False)
class KnownModel:
    """What all tasks of a family share.

    Attributes:
        classes: [S, A, S] which transitions are alike in every task; -1 where they are impossible in all.
        reward, cost, start: [S, A], [m, S, A], [S].
    """

    classes: Integers
    reward: Floats
    cost: Floats
    start: Floats


def known_model(policies: PolicyValueSet, method: str) -> KnownModel:
    """The tables shared by all tasks of the family; their probabilities are for the certified methods alone."""
    model = None if policies.cells is None else policies.cells.model
    if model is None:
        raise InvalidInput(
            f"policies must hold cells with a transition model for method {method!r}, which needs the reward and cost "
            "of every state and action and the possible successors, got none; train on a tabular family"
        )
    if policies.units.horizon is not None:
        raise InvalidInput(
            f"policies must be for tasks without a horizon for method {method!r}, {_why_endless(method)}, got horizon "
            f"{policies.units.horizon}"
        )
    if model.reward is None or model.cost is None:
        raise InvalidInput(
            f"policies must be for tasks that share the reward and cost of every state and action for method "
            f"{method!r}, got a family whose payments depend on the next state or on the task"
        )
    return KnownModel(model.class_table, model.reward, model.cost, model.start)


def _why_endless(method: str) -> str:
    if method.startswith(("dope", "optpess")):
        return (
            "which takes the steps of an episode as states of their own: write the tasks in layers "
            "(sf.tasks.layered), whose sums are the same, and give layers=H"
        )
    return "whose formulas are for discounted sums without end"
