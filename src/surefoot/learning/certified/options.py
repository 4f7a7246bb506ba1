"""Options of the certified methods, each written once: its name, type and default, and the methods that take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from surefoot.arrays import flag
from surefoot.bounds.widening import check_shift
from surefoot.cmdp.episode import Observes
from surefoot.policyset.certifiable import CELL_METHODS


def _for(*methods: str) -> Mapping[str, Any]:
    """The methods that take an option, besides `certified`, which takes all."""
    return {"methods": ("certified", *methods)}


@dataclass(frozen=True)
class Options:
    """Attributes:
    replan: add policies on the way; by default where transitions are observed and their model is known.
    optimistic: deploy, as the paper's Algorithm 2 does, as much as is safe of whoever promises most on some task that
        is still possible, instead of what is expected to earn most: it costs regret on most families, and finds the
        best policy where only trying tells which that is.
    split: on affine families, halve cells that survive and limit what is deployed: for two or more parameters, of which
        there are never enough cells.
    shift: the task may lie at this distance, the paper's d, from those trained for; for methods with cells.
    assume_safe: for "certified-model-free", and with a shift, that the safe policy is feasible on this very system is
        known from elsewhere and need not be paid for.
    observes: what the real system shows of an episode: all transitions or observations, signals and discounted sums,
        its first state and the sums, or the sums alone.
    """

    replan: bool | None = field(
        default=None, metadata=_for("certified-likelihood", "certified-ball", "certified-returns")
    )
    optimistic: bool = field(default=False, metadata=_for(*CELL_METHODS))
    split: bool = field(default=False, metadata=_for("certified-likelihood"))
    shift: float = field(default=0.0, metadata=_for(*CELL_METHODS))
    assume_safe: bool = field(
        default=False, metadata=_for("certified-ball", "certified-returns", "certified-model-free")
    )
    observes: Observes = field(default="transitions", metadata=_for())

    def __post_init__(self) -> None:
        for name, default in DEFAULTS.items():
            if default is False:
                flag(name, getattr(self, name))
        object.__setattr__(self, "shift", check_shift(self.shift))


DEFAULTS: Mapping[str, Any] = MappingProxyType({each.name: each.default for each in fields(Options)})

# Those that the learner of a calibration may have been made with: what is observed is for `certified` to choose by.
CALIBRATED_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {name: DEFAULTS[name] for name in DEFAULTS if name != "observes"}
)


def options_of(method: str) -> tuple[str, ...]:
    """Names of the options that a certified method takes."""
    own = tuple(each.name for each in fields(Options) if method in each.metadata["methods"])
    return (*own, "calibration") if method in CELL_METHODS else own
