"""The certified methods by name, and the choice of the strongest that a policy set and the observations allow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from surefoot.bounds.cells import Cells
from surefoot.bounds.widening import shrink_bounds, widen_for_shift, without_payments
from surefoot.confidence import State
from surefoot.errors import InvalidInput
from surefoot.learning.calibrated import Setting
from surefoot.learning.certified.evidence.ball import BallState, TransitionBall
from surefoot.learning.certified.evidence.counts import Counts
from surefoot.learning.certified.evidence.likelihood import LikelihoodRatio
from surefoot.learning.certified.evidence.returns import SETTLED_AGAINST, ReturnProcess, ReturnState
from surefoot.learning.certified.evidence.signals import SignalProcess, SignalState
from surefoot.learning.certified.method import LEAST_WAIT, RECALL, Certified, CertifiedState, Evidence, log_threshold
from surefoot.learning.certified.model_free import ModelFree, ModelFreeState
from surefoot.learning.certified.options import Options, options_of
from surefoot.learning.certified.replanning import Planned, Replanner
from surefoot.learning.certified.splitting import Boxes, Splitter
from surefoot.learning.checks import risk_left
from surefoot.learning.method import Method, Observes, RiskSplit, includes
from surefoot.learning.spec import MethodArgs, MethodSpec
from surefoot.policyset.certifiable import CELL_METHODS, SHIFTED, advice
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.transition_model import TransitionModel

# (policies, cells, steps of an episode, evidence that rules out a cell, what is observed) -> evidence
MakeEvidence: TypeAlias = Callable[[PolicyValueSet, Cells, int, float, Observes], Evidence]


def certified_method(
    policies: PolicyValueSet, name: str, risk: float, *, horizon: int | None = None, **given: Any
) -> Certified | ModelFree:
    """A certified method of total risk `risk`.

    Args:
        name: one of `CERTIFIED`; "certified" picks the strongest that is possible and says which and why.
        horizon: the most steps that an episode takes; by default that of the units.
        given: see `Options`.
    """
    if name not in CERTIFIED:
        raise InvalidInput(f"method must be one of {', '.join(CERTIFIED)}, got {name!r}")
    kind, note, options = name, "", Options(**given)
    if name == "certified":
        chosen = advice(policies, options.observes, shifted=options.shift > 0)
        kind, note = chosen.method, f"{chosen.method}, since {chosen.why}"
    steps = policies.units.steps(horizon)
    if kind not in EVIDENCE:
        return _model_free(policies, name, note, risk, steps, options)
    cells = _cells(policies, kind, risk, options)
    spent = RiskSplit(coverage=cells.uncovered, elimination=risk - cells.uncovered)
    if spent.elimination <= 0 and options.level is not None:
        spent = replace(spent, elimination=options.level)
    told = without_payments(cells) if options.shift else shrink_bounds(cells, options.evidence_width)
    evidence = EVIDENCE[kind](policies, told, steps, log_threshold(spent.elimination), options.observes)
    evidence = _between(cells, evidence) if options.split else evidence
    cells = shrink_bounds(cells, options.width)
    if options.level is not None:
        spent = replace(spent, elimination=options.level)
    return Certified(
        name,
        policies,
        cells,
        evidence,
        spent,
        _replanner(policies, cells, evidence, kind, options),
        options.optimistic,
        note,
        SOONEST.get(kind, LEAST_WAIT),
        _splitter(policies, cells, evidence) if options.split else None,
        certified=options.proved,
        slack=options.slack,
        intersect=options.intersect,
    )


# ---------------------------------------------------------------------------------------------------------- with cells


def _cells(policies: PolicyValueSet, kind: str, risk: float, options: Options) -> Cells:
    """Those of the policy set, or, with a shift, what they are for all tasks around theirs."""
    cells, shift, lacks = policies.cells, options.shift, CELL_METHODS[kind].lacks(policies)
    if cells is None or lacks:
        raise InvalidInput(f"{kind} needs {lacks}")
    if risk <= cells.uncovered and options.level is None:
        raise InvalidInput(f"risk must exceed {cells.uncovered:.3g}, {_what_would_help(cells)}, got {risk:g}")
    if shift and kind not in SHIFTED:
        raise InvalidInput(
            f"shift must be 0 for {kind}, whose evidence is about the tasks of the cells alone, got {shift:g}; use "
            f"{' or '.join(SHIFTED)}"
        )
    if options.assume_safe and not shift:
        raise InvalidInput(f"assume_safe must be False for {kind} without a shift: its cells know, got True")
    if not shift:
        return cells
    own, units, ends = policies.policies, policies.units, policies.may_end
    return widen_for_shift(cells, own, units, ends=ends, risk=risk, shift=shift, assume_safe=options.assume_safe)


def _model(cells: Cells) -> TransitionModel:
    if cells.model is None:
        raise InvalidInput("policies must hold cells with a transition model, got none")
    return cells.model


def _likelihood(policies: PolicyValueSet, cells: Cells, steps: int, threshold: float, observes: Observes) -> Evidence:
    return LikelihoodRatio(cells, _model(cells), policies.units, steps)


def _ball(policies: PolicyValueSet, cells: Cells, steps: int, threshold: float, observes: Observes) -> Evidence:
    return TransitionBall(cells, _model(cells), policies.units, steps)


def _returns(policies: PolicyValueSet, cells: Cells, steps: int, threshold: float, observes: Observes) -> Evidence:
    first_states = cells.start_lower is not None and includes(observes, "first-state")
    return ReturnProcess(cells, policies.units, steps, _enough(threshold), first_states)


def _signals(policies: PolicyValueSet, cells: Cells, steps: int, threshold: float, observes: Observes) -> Evidence:
    if cells.readings is None:
        raise InvalidInput("policies must hold cells with readings, got none")
    if steps != cells.readings.signals.steps:
        raise InvalidInput(
            f"horizon must be {cells.readings.signals.steps} for certified-signals, the steps of the episodes in which "
            f"its signals were bounded, got {steps}"
        )
    return SignalProcess(cells, cells.readings, policies.units, steps, _enough(threshold))


def _enough(threshold: float) -> float:
    """Evidence from which on a cell is settled; a small risk asks for more."""
    return max(SETTLED_AGAINST, threshold + RECALL)


EVIDENCE: Mapping[str, MakeEvidence] = MappingProxyType(
    {
        "certified-likelihood": _likelihood,
        "certified-ball": _ball,
        "certified-signals": _signals,
        "certified-returns": _returns,
    }
)

# States of all kinds of evidence.
CELL_STATES = (Counts, BallState, ReturnState, SignalState)


def make_evidence(policies: PolicyValueSet, kind: str, cells: Cells, steps: int) -> Evidence:
    """For who wants to know what is believed of the cells, and rules out none."""
    if kind not in EVIDENCE:
        raise InvalidInput("policies must hold value bounds over tasks (cells), got none")
    evidence = EVIDENCE[kind](policies, cells, steps, SETTLED_AGAINST, "transitions")
    return replace(evidence, settled_against=-math.inf) if isinstance(evidence, SignalProcess) else evidence  # no bets


# Where every episode counts, as where only a simulator is known of the system, one decides after each of the first.
SOONEST = {"certified-signals": 1}


def _replanner(
    policies: PolicyValueSet, cells: Cells, evidence: Evidence, kind: str, options: Options
) -> Replanner | None:
    """None where nobody wants one, or nothing can be planned on: `solve` and its bounds are for affine families whose
    payments are known."""
    replan, model = options.replan, cells.model
    if replan and not includes(evidence.observes, "first-state"):
        raise InvalidInput(f"replan must be False for {kind} without first states, got True")
    wanted = evidence.observes == "transitions" if replan is None else replan
    if not wanted or model is None or model.affine is None or model.n_constraints is None:
        return None
    return Replanner(model, policies.units, options.shift)


def _between(cells: Cells, evidence: Evidence) -> LikelihoodRatio:
    """Evidence that tells tasks of one cell apart: boxes have it, and bounds of their own, in affine families alone."""
    if not (isinstance(evidence, LikelihoodRatio) and cells.source == "affine" and evidence.model.pays):
        raise InvalidInput("split must be False but for certified-likelihood on an affine family, got True")
    return replace(evidence, between=True)


def _splitter(policies: PolicyValueSet, cells: Cells, evidence: Evidence) -> Splitter:
    tables = tuple(policy for policy in policies.policies if isinstance(policy, TabularPolicy | TimedPolicy))
    return Splitter(cells, cast(LikelihoodRatio, evidence), policies.units, tables)


def _what_would_help(cells: Cells) -> str:
    """What lies behind the uncovered probability, and how to lower it."""
    if cells.prior_known:
        return "the probability of tasks on which the safe policy is infeasible (a safer safe policy would lower it)"
    return (
        "what the held-out tasks leave open: the probability granted to tasks that break their bounds, and how often "
        "the safe policy may be infeasible (more held-out tasks, a smaller uncovered or a safer safe policy would "
        "lower it)"
    )


# ------------------------------------------------------------------------------------------------------- without cells


def _model_free(policies: PolicyValueSet, name: str, note: str, risk: float, steps: int, options: Options) -> ModelFree:
    """Theorem 6, after paying for the tasks on which its assumption, a feasible safe policy, does not hold."""
    if options.shift and not options.assume_safe:
        raise InvalidInput(
            f"shift must be 0 for {name} without cells, since nothing says on which tasks nearby the safe policy is "
            f"feasible, got {options.shift:g}; say assume_safe=True if it is known to be on this very system"
        )
    failing = 0.0 if options.assume_safe else policies.safe_risk
    if failing is None:
        raise InvalidInput(
            f"{name} needs to know how often the safe policy is feasible, got a policy set that does not say: train "
            "again (with cells or without), or, if the safe policy is known to be feasible on this very "
            "system, use certified-model-free and say so (assume_safe=True, --assume-safe)"
        )
    left = risk_left(risk, failing, "; a safer safe policy (xi) or more held-out tasks would lower it")
    return ModelFree(policies, RiskSplit(coverage=failing, values=left), steps, name, note)


# ------------------------------------------------------------------------------------------------------ to calibrate

LEVELS = (1.2, 1.5, 2.0, 3.0, 4.0, 6.0)  # in risks, where bounds are exact
LARGEST_LEVEL = 0.9
# Where bounds are estimated: width of those on values and of those that evidence is held against, as shares of what is
# proved, and the level in risks. A high level helps in a few episodes, and over many it rules out the true cell.
WIDTHS_AND_LEVELS = ((0.5, 0.7, 2), (0.2, 0.4, 2), (0.1, 0.2, 2), (0.05, 0.1, 2), (0.05, 0.1, 6), (0.05, 0.1, 12))
SLACK = 0.03


def path_to_boldness(policies: PolicyValueSet, risk: float) -> tuple[Setting, ...]:
    """Settings of a method whose evidence is held against bounds, from cautious to bold."""
    if policies.cells is None or policies.cells.prior_known:
        return tuple(factor * risk for factor in LEVELS if factor * risk <= LARGEST_LEVEL)
    return tuple(
        {"width": width, "evidence_width": evidence, "level": min(factor * risk, LARGEST_LEVEL), "slack": SLACK}
        for width, evidence, factor in WIDTHS_AND_LEVELS
    )


SLACKS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.3, 0.1)


def path_to_less_slack() -> tuple[Setting, ...]:
    """From keeping most of the safe policy's margin to keeping little of it: for bounds of another simulator than the
    one that is calibrated on, which may be wrong."""
    return tuple({"slack": slack} for slack in SLACKS)


def path_by_transitions(policies: PolicyValueSet, risk: float) -> tuple[Setting, ...]:
    """The same for evidence from transitions, which has no use for bounds."""
    return tuple(
        {name: value for name, value in setting.items() if name != "evidence_width"}
        if isinstance(setting, Mapping)
        else setting
        for setting in path_to_boldness(policies, risk)
    )


# ------------------------------------------------------------------------------------------------------------- by name


def _build_method(policies: PolicyValueSet, terms: MethodArgs, **options: Any) -> Method:
    return certified_method(policies, terms.name, terms.risk, horizon=terms.horizon, **options)


DECISIONS = "decisions, ever rarer, weigh all cells that survive and solve a linear program over mixtures"

_WITH_CELLS = (CertifiedState, Planned, TabularPolicy, TimedPolicy)

SPECS = (
    MethodSpec(
        "certified",
        _build_method,
        certified=True,
        why="the strongest of the certified methods that the policy set and the observations allow",
        proof=tuple(f"Theorem {number}" for number in range(2, 8)),
        costs="what the method costs that it picks",
        observes="transitions",
        options=options_of("certified"),
        state=(*_WITH_CELLS, Boxes, Counts, BallState, ReturnState, SignalState, ModelFreeState, State),
        colour=0,
    ),
    MethodSpec(
        "certified-likelihood",
        _build_method,
        certified=True,
        why="Theorems 2 and 4: likelihood ratios rule out cells, and what is deployed is safe on all that are left",
        proof=("Theorem 2", "Theorem 4"),
        needs="exact-model",
        costs=f"counts of transitions, not episodes, are kept; {DECISIONS}, and plan further policies on the way",
        observes="transitions",
        options=options_of("certified-likelihood"),
        path=path_by_transitions,
        state=(*_WITH_CELLS, Boxes, Counts),
        plan="trial",
        colour=4,
    ),
    MethodSpec(
        "certified-ball",
        _build_method,
        certified=True,
        why="Theorems 3 and 4: bets on transitions rule out cells whose dynamics are known up to a distance",
        proof=("Theorem 3", "Theorem 4"),
        needs="model",
        costs=f"a bet per kind of transition and cell; {DECISIONS}",
        observes="transitions",
        options=options_of("certified-ball"),
        path=path_by_transitions,
        state=(*_WITH_CELLS, Counts, BallState),
        plan="trial",
        colour=5,
    ),
    MethodSpec(
        "certified-returns",
        _build_method,
        certified=True,
        why="Theorems 5 and 4: bets on discounted sums rule out cells",
        proof=("Theorem 5", "Theorem 4"),
        needs="cells",
        costs=f"a bet per cell on every sum, whose width is the declared range; {DECISIONS}",
        observes="first-state",
        options=options_of("certified-returns"),
        path=path_to_boldness,
        state=(*_WITH_CELLS, ReturnState),
        plan="trial",
        colour=6,
    ),
    MethodSpec(
        "certified-signals",
        _build_method,
        certified=True,
        why="Theorems 7 and 4: bets on sums and on signals learned in simulation rule out cells",
        proof=("Theorem 7", "Theorem 4"),
        needs="signals",
        costs=f"a bet per cell on every sum and signal of an episode; {DECISIONS}",
        observes="signals",
        options=options_of("certified-signals"),
        path=path_to_boldness,
        state=(*_WITH_CELLS, SignalState),
        plan="trial",
        colour=19,
    ),
    MethodSpec(
        "certified-model-free",
        _build_method,
        certified=True,
        why="Theorem 6: confidence sequences of costs, given a feasible safe policy",
        proof=("Theorem 6",),
        costs="a confidence sequence per policy that was tried; candidates are tried one after the other",
        options=options_of("certified-model-free"),
        state=(ModelFreeState, State),
        plan="trial",
        colour=7,
    ),
)
CERTIFIED = tuple(spec.name for spec in SPECS)
