"""The certified methods by name, and the choice of the strongest that a policy set and the observations allow."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

from surefoot import theory
from surefoot.errors import InvalidInput
from surefoot.learning.certified.evidence.ball import TransitionBall
from surefoot.learning.certified.evidence.likelihood import LikelihoodRatio
from surefoot.learning.certified.evidence.returns import SETTLED_AGAINST, ReturnProcess
from surefoot.learning.certified.method import RECALL, Certified, Evidence
from surefoot.learning.certified.model_free import ModelFree
from surefoot.learning.certified.replanning import Replanner
from surefoot.learning.method import Method
from surefoot.policyset.cells import Cells
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tabular.transition_model import TransitionModel

Observes: TypeAlias = Literal["transitions", "first-state", "sums"]

CERTIFIED = (
    "certified",
    "certified-likelihood",
    "certified-ball",
    "certified-returns",
    "certified-model-free",
)

SAFE_POLICY_RISK = "the bound on the probability that the safe policy itself breaks a budget on a fresh task"


def certified_method(
    policies: PolicyValueSet,
    name: str,
    risk: float,
    *,
    truncation: float,
    horizon: int | None = None,
    replan: bool | None = None,
    pairs: bool = False,
    observes: Observes = "transitions",
    assume_safe: bool = False,
) -> Method:
    """A certified method of total risk `risk`.

    Args:
        name: one of `CERTIFIED`; "certified" picks the strongest that is possible and says which and why.
        truncation: γ^H, the part of the discounted whole that an episode of H steps may miss.
        horizon: H, the most steps that an episode takes; by default what `truncation` says.
        replan: add policies on the way; by default where transitions are observed and their model is known.
        pairs: mix only with the safe policy instead of solving the linear program over mixtures.
        observes: for "certified", what the real system shows of an episode: all transitions, its first state and
            discounted sums, or the sums alone.
        assume_safe: for "certified-model-free", that the safe policy is feasible on this very system is known from
            elsewhere and need not be paid for.
    """
    kind, note = name, ""
    if name == "certified":
        kind, why = strongest(policies, observes)
        note = f"{kind}, since {why}"
    if kind == "certified-model-free":
        return _model_free(policies, name, note, risk, truncation, assume_safe)
    cells = _cells(policies, kind)
    if risk <= cells.uncovered:
        raise InvalidInput(f"risk must exceed {cells.uncovered:.3g}, {_what_would_help(cells)}, got {risk:g}")
    split = {"coverage": cells.uncovered, "elimination": risk - cells.uncovered, "values": 0.0}
    discount = policies.units.discount
    steps = theory.horizon(discount, truncation / (1 - discount)) if horizon is None else horizon
    evidence = _evidence(kind, policies, cells, truncation, steps, split["elimination"], observes)
    by_first_state = not isinstance(evidence, ReturnProcess) or evidence.first_states
    if replan and not by_first_state:
        raise InvalidInput(f"replan must be False for {kind} without first states, got True")
    return Certified(
        name,
        policies,
        cells,
        evidence,
        split,
        needs_transitions=kind != "certified-returns",
        needs_first_state=by_first_state,
        replanner=_replanner(policies, cells.model, kind != "certified-returns" if replan is None else replan),
        pairs=pairs,
        note=note,
    )


def _model_free(
    policies: PolicyValueSet, name: str, note: str, risk: float, truncation: float, assume_safe: bool
) -> ModelFree:
    """Theorem 6, after paying for the tasks on which its assumption, a feasible safe policy, does not hold."""
    failing = 0.0 if assume_safe else policies.safe_risk
    if failing is None:
        raise InvalidInput(
            f"{name} needs to know how often the safe policy is feasible, got a policy set that does not say: train "
            "tabular policies (with cells or without), or, if the safe policy is known to be feasible on this very "
            "system, use certified-model-free and say so (assume_safe=True, --assume-safe)"
        )
    if risk <= failing:
        raise InvalidInput(
            f"risk must exceed {failing:.3g}, {SAFE_POLICY_RISK}, got {risk:g}; "
            "a safer safe policy (xi) or more held-out tasks would lower it"
        )
    return ModelFree(
        policies, {"coverage": failing, "elimination": 0.0, "values": risk - failing}, truncation, name, note
    )


def strongest(policies: PolicyValueSet, observes: Observes) -> tuple[str, str]:
    """The strongest certified method that is possible, and why it and no stronger one."""
    if observes not in get_args(Observes):
        raise InvalidInput(f"observes must be one of {', '.join(get_args(Observes))}, got {observes!r}")
    cells = policies.cells
    if cells is None:
        return "certified-model-free", "the policy set has no value bounds over tasks"
    if observes == "transitions" and cells.model is not None:
        if _exact(cells.model):
            return "certified-likelihood", "transitions are observed and their probabilities are known on every cell"
        return "certified-ball", "transitions are observed, their probabilities known up to a distance"
    if observes == "sums":
        return "certified-returns", "only discounted sums are observed"
    why = "transitions are not observed" if observes == "first-state" else "the policy set has no model of transitions"
    if cells.start_lower is None:
        return "certified-returns", f"{why}, and its value bounds are not given per first state: discounted sums it is"
    return "certified-returns", f"{why}; discounted sums and first states are"


def _evidence(
    kind: str, policies: PolicyValueSet, cells: Cells, truncation: float, steps: int, level: float, observes: Observes
) -> Evidence:
    match kind:
        case "certified-likelihood":
            model = _model(cells, kind)
            if not _exact(model):
                raise InvalidInput(
                    f"{kind} needs transition probabilities known on every cell, got a policy set that knows them only "
                    "up to a distance; use certified-ball"
                )
            return LikelihoodRatio(cells, model, policies.units, steps)
        case "certified-ball":
            return TransitionBall(cells, _model(cells, kind), policies.units, horizon=steps)
        case "certified-returns":
            enough = max(SETTLED_AGAINST, math.log(1 / level) + RECALL)  # a small risk asks for more evidence
            first_states = cells.start_lower is not None and observes != "sums"
            return ReturnProcess(cells, policies.units, truncation, enough, first_states)
        case _:
            raise InvalidInput(f"method must be one of {', '.join(CERTIFIED)}, got {kind!r}")


def _cells(policies: PolicyValueSet, kind: str) -> Cells:
    if policies.cells is None:
        raise InvalidInput(f"{kind} needs a policy set with cells: train with cells > 0, or use certified-model-free")
    return policies.cells


def _model(cells: Cells, kind: str) -> TransitionModel:
    if cells.model is None:
        raise InvalidInput(f"{kind} needs a policy set with a transition model, got none; use certified-returns")
    return cells.model


def _exact(model: TransitionModel) -> bool:
    """Whether the likelihood of every member of a cell is known."""
    return model.affine is not None or not model.radius.any()


def _replanner(policies: PolicyValueSet, model: TransitionModel | None, wanted: bool) -> Replanner | None:
    possible = wanted and model is not None and model.affine is not None
    return Replanner(model, policies.units) if possible and model is not None else None


def _what_would_help(cells: Cells) -> str:
    """What lies behind the uncovered probability, and how to lower it."""
    if cells.source in ("affine", "finite"):
        return "the probability of tasks on which the safe policy is infeasible (a safer safe policy would lower it)"
    return (
        "what the held-out tasks leave open: the probability granted to tasks that break their bounds, and how often "
        "the safe policy may be infeasible (more held-out tasks, a smaller uncovered or a safer safe policy would "
        "lower it)"
    )
