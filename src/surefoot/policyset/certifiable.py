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
class Need:
    """Something that a policy set must have for a kind of evidence.

    Attributes:
        met: whether a set has it.
        lacks: what a set without it ought to be.
        wanted: the same in words for who has no such set yet.
    """

    met: Callable[[PolicyValueSet], bool]
    lacks: str
    wanted: Callable[[PolicyValueSet], str]


@dataclass(frozen=True)
class Requirements:
    """What a kind of evidence that rules out cells needs.

    Attributes:
        observes: of an episode, at least.
        needs: of the policy set, in the order in which they are looked at.
        since: why it is chosen where no stronger one is possible.
    """

    observes: Observes
    needs: tuple[Need, ...]
    since: Callable[[PolicyValueSet, Observes], str]

    def lacks(self, policies: PolicyValueSet) -> str:
        """What a policy set that lacks something ought to be; "" if nothing is missing."""
        return next((need.lacks for need in self.needs if not need.met(policies)), "")

    def wanted(self, policies: PolicyValueSet) -> str:
        """All that is missing."""
        return ", and ".join(need.wanted(policies) for need in self.needs if not need.met(policies))


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

TABLES = ("tabular", "timed")


def _has_tables(policies: PolicyValueSet) -> bool:
    return any(policy.kind in TABLES for policy in policies.policies)


def _has_model(policies: PolicyValueSet) -> bool:
    return policies.cells is not None and policies.cells.model is not None


def _knows_model_exactly(policies: PolicyValueSet) -> bool:
    """Whether the likelihood of every member of a cell is known, if there is a model at all."""
    model = None if policies.cells is None else policies.cells.model
    return model is None or model.affine is not None or not model.radius.any()


def _has_readings(policies: PolicyValueSet) -> bool:
    return policies.cells is not None and policies.cells.readings is not None


def _model_wanted(policies: PolicyValueSet) -> str:
    if _has_tables(policies):
        return "a model of the transitions: tables that share rewards, costs and start and differ in transitions only"
    return "a model of the transitions: tasks that are tables (TabularCMDP), and policies of their states"


CELLS = Need(
    lambda policies: policies.cells is not None,
    "a policy set with cells: train with cells > 0, or use certified-model-free",
    lambda _: "value bounds over tasks (cells, which the envelopes of train and policy_set make unless told not to)",
)
MODEL = Need(_has_model, "a policy set with a transition model, got none; use certified-returns", _model_wanted)
EXACT_MODEL = Need(
    _knows_model_exactly,
    "transition probabilities known on every cell, got a policy set that knows them only up to a distance; use "
    "certified-ball",
    lambda _: "transitions that are affine in the parameter (family says so or finds out), or finitely many tasks",
)
READINGS = Need(
    _has_readings,
    "a policy set with signals, which train and policy_set learn of tasks that are simulated; use certified-returns",
    lambda _: "signals learned in simulation (signals=True of train or policy_set)",
)


def _since_returns(policies: PolicyValueSet, observes: Observes) -> str:
    if observes == "sums":
        return "only discounted sums are observed"
    if not _has_tables(policies):
        return "tasks that are no tables have no model of transitions: the sums of episodes it is"
    why = "the policy set has no model of transitions"
    if observes == "first-state":
        why = "transitions are not observed"
    if policies.cells is None or policies.cells.start_lower is None:
        return f"{why}, and its value bounds are not given per first state: discounted sums it is"
    return f"{why}; discounted sums and first states are"


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
            (CELLS, MODEL, EXACT_MODEL),
            lambda *_: "transitions are observed and their probabilities are known on every cell",
        ),
        "certified-ball": Requirements(
            "transitions",
            (CELLS, MODEL),
            lambda *_: "transitions are observed, their probabilities known up to a distance",
        ),
        "certified-signals": Requirements(
            "signals",
            (CELLS, READINGS),
            lambda *_: (
                "there is no model of transitions, but signals that simulation has learned to read from what is "
                "observed"
            ),
        ),
        "certified-returns": Requirements("sums", (CELLS,), _since_returns),
    }
)

# Those whose evidence is still evidence if the task lies at a distance from all that the cells stand for.
SHIFTED = ("certified-ball", "certified-returns")
