"""Which of the certified methods a policy set and the observations allow, why, and what a stronger one would need.

The choice between them costs orders of magnitude of regret, so whoever trains, plans or adapts is told of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from surefoot.cmdp.episode import LEVELS, Observes, includes
from surefoot.errors import InvalidInput
from surefoot.policyset.policy_value_set import PolicyValueSet

MODEL_FREE = "certified-model-free"


@dataclass(frozen=True)
class Advice:
    """Attributes:
    method: that `certified` is.
    why: it and no stronger one.
    stronger: (method, what would have to be known for it), the strongest first.
    """

    method: str
    why: str
    stronger: tuple[tuple[str, str], ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        first = f"will be {self.method}, since {self.why}"
        return (first, *(f"{method} would take {needed}" for method, needed in self.stronger))

    @property
    def lines(self) -> tuple[str, ...]:
        """For a terminal."""
        first, *others = self.sentences
        return (f"method certified {first}", *(f"  {each}" for each in others))

    def as_dict(self) -> dict[str, Any]:
        stronger = [{"method": method, "needs": needs} for method, needs in self.stronger]
        return {"method": self.method, "why": self.why, "stronger": stronger}


@dataclass(frozen=True)
class Requirements:
    """What a kind of evidence that rules out cells needs.

    Attributes:
        observes: of an episode, at least.
        lacks: what a policy set that lacks something for it ought to be; "" if nothing is missing.
        wanted: the same in words for who has no such set yet.
        since: why it is chosen where no stronger one is possible.
    """

    observes: Observes
    lacks: Callable[[PolicyValueSet], str]
    wanted: Callable[[PolicyValueSet], str]
    since: Callable[[PolicyValueSet, Observes], str]


def advice(policies: PolicyValueSet, observes: Observes = "transitions", *, shifted: bool = False) -> Advice:
    """Which certified method `certified` is for this policy set, if the real system shows that much of an episode.

    Args:
        observes: all transitions or observations, signals and discounted sums, the first state and the sums, or the
            sums alone.
        shifted: whether the task may lie at a distance from those trained for, which not all methods allow.
    """
    if observes not in LEVELS:
        raise InvalidInput(f"observes must be one of {', '.join(LEVELS)}, got {observes!r}")
    stronger: list[tuple[str, str]] = []
    for name, kind in CELL_METHODS.items():
        if shifted and name not in SHIFTED:
            continue
        lacks, seen = kind.lacks(policies), includes(observes, kind.observes)
        if seen and not lacks:
            return Advice(name, kind.since(policies, observes), tuple(stronger))
        wanted = [] if seen else [_TO_TELL[kind.observes]]
        wanted += [kind.wanted(policies)] if lacks else []
        needed = ", and ".join(wanted)
        if needed not in dict(stronger).values():  # with as much a stronger one is possible
            stronger.append((name, needed))
    return Advice(MODEL_FREE, "the policy set has no value bounds over tasks", tuple(stronger))


# ------------------------------------------------------------------------------------------------- what each kind needs


def _lacks_cells(policies: PolicyValueSet) -> str:
    given = policies.cells is not None
    return "" if given else "a policy set with cells: train with cells > 0, or use certified-model-free"


def _lacks_model(policies: PolicyValueSet) -> str:
    if policies.cells is None:
        return _lacks_cells(policies)
    if policies.cells.model is None:
        return "a policy set with a transition model, got none; use certified-returns"
    return ""


def _lacks_exact_model(policies: PolicyValueSet) -> str:
    lacks = _lacks_model(policies)
    if lacks or _exact(policies):
        return lacks
    return (
        "transition probabilities known on every cell, got a policy set that knows them only up to a distance; use "
        "certified-ball"
    )


def _lacks_readings(policies: PolicyValueSet) -> str:
    lacks = _lacks_cells(policies)
    if lacks or (policies.cells is not None and policies.cells.readings is not None):
        return lacks
    return (
        "a policy set with signals, which train and policy_set learn of tasks that are simulated; use certified-returns"
    )


def _exact(policies: PolicyValueSet) -> bool:
    """Whether the likelihood of every member of a cell is known."""
    model = None if policies.cells is None else policies.cells.model
    return model is not None and (model.affine is not None or not model.radius.any())


def _wants_cells(policies: PolicyValueSet) -> str:
    return "value bounds over tasks (cells, which the envelopes of train and policy_set make unless told not to)"


def _wants_model(policies: PolicyValueSet) -> str:
    parts = [_wants_cells(policies)] if policies.cells is None else []
    if not any(policy.kind in TABLES for policy in policies.policies):
        parts.append("a model of the transitions: tasks that are tables (TabularCMDP), and policies of their states")
    elif policies.cells is None or policies.cells.model is None:
        parts.append(
            "a model of the transitions: tables that share rewards, costs and start and differ in transitions only"
        )
    return ", and ".join(parts)


def _wants_exact_model(policies: PolicyValueSet) -> str:
    if not _lacks_model(policies):
        return "transitions that are affine in the parameter (family says so or finds out), or finitely many tasks"
    return _wants_model(policies)


def _wants_readings(policies: PolicyValueSet) -> str:
    parts = [_wants_cells(policies)] if policies.cells is None else []
    return ", and ".join([*parts, "signals learned in simulation (signals=True of train or policy_set)"])


def _since_signals(policies: PolicyValueSet, observes: Observes) -> str:
    return "there is no model of transitions, but signals that simulation has learned to read from what is observed"


def _since_returns(policies: PolicyValueSet, observes: Observes) -> str:
    if observes == "sums":
        return "only discounted sums are observed"
    if not any(policy.kind in TABLES for policy in policies.policies):
        return "tasks that are no tables have no model of transitions: the sums of episodes it is"
    why = "the policy set has no model of transitions"
    if observes == "first-state":
        why = "transitions are not observed"
    if policies.cells is None or policies.cells.start_lower is None:
        return f"{why}, and its value bounds are not given per first state: discounted sums it is"
    return f"{why}; discounted sums and first states are"


TABLES = ("tabular", "timed")

_TO_TELL: Mapping[Observes, str] = MappingProxyType(
    {
        "transitions": "states and actions told of every episode (observes transitions)",
        "signals": "observations and actions, or signals, told of every episode (observes signals)",
    }
)

# The strongest first.
CELL_METHODS: Mapping[str, Requirements] = MappingProxyType(
    {
        "certified-likelihood": Requirements(
            "transitions",
            _lacks_exact_model,
            _wants_exact_model,
            lambda policies, observes: "transitions are observed and their probabilities are known on every cell",
        ),
        "certified-ball": Requirements(
            "transitions",
            _lacks_model,
            _wants_model,
            lambda policies, observes: "transitions are observed, their probabilities known up to a distance",
        ),
        "certified-signals": Requirements("signals", _lacks_readings, _wants_readings, _since_signals),
        "certified-returns": Requirements("sums", _lacks_cells, _wants_cells, _since_returns),
    }
)

# Those whose evidence is still evidence if the task lies at a distance from all that the cells stand for.
SHIFTED = ("certified-ball", "certified-returns")
