"""Options of the certified methods, each written once: its name, type and default, and the methods that take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from surefoot.arrays import check_unit_interval, flag
from surefoot.bounds.widening import check_shift
from surefoot.cmdp.episode import Observes
from surefoot.errors import InvalidInput
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
    intersect: a cell that was ruled out stays so, as in the running intersection of a confidence sequence: less regret,
        and what was found out survives abandoned episodes; but should it be the true one, it does not come back.
    shift: the task may lie at this distance, the paper's d, from those trained for; for methods with cells.
    assume_safe: for "certified-model-free", and with a shift, that the safe policy is feasible on this very system is
        known from elsewhere and need not be paid for.
    observes: what the real system shows of an episode: all transitions or observations, signals and discounted sums,
        its first state and the sums, or the sums alone.
    level: at which cells are ruled out, instead of what the risk leaves for it. No proof covers that: it is for
        `calibrate`, which counts what comes of it, and *uncertified* without.
    width: of the bounds on values, as a share of what is proved, around their middle; likewise.
    evidence_width: of the bounds that observations are held against, likewise. Over many episodes the smallest error of
        a mean is found out and rules out the true cell, so these shrink less.
    slack: the share of the safe policy's margin that is kept. Who deploys what is just within its budget cannot show it
        on a simulator.
    """

    replan: bool | None = field(
        default=None, metadata=_for("certified-likelihood", "certified-ball", "certified-returns")
    )
    optimistic: bool = field(default=False, metadata=_for(*CELL_METHODS))
    split: bool = field(default=False, metadata=_for("certified-likelihood"))
    intersect: bool = field(default=False, metadata=_for(*CELL_METHODS))
    shift: float = field(default=0.0, metadata=_for(*CELL_METHODS))
    assume_safe: bool = field(
        default=False, metadata=_for("certified-ball", "certified-returns", "certified-model-free")
    )
    observes: Observes = field(default="transitions", metadata=_for())
    level: float | None = field(default=None, metadata=_for(*CELL_METHODS))
    width: float = field(default=1.0, metadata=_for(*CELL_METHODS))
    evidence_width: float = field(default=1.0, metadata=_for("certified-returns", "certified-signals"))
    slack: float = field(default=0.0, metadata=_for(*CELL_METHODS))

    def __post_init__(self) -> None:
        for name, default in DEFAULTS.items():
            if default is False:
                flag(name, getattr(self, name))
        object.__setattr__(self, "shift", check_shift(self.shift))
        if self.level is not None:
            check_unit_interval("level", self.level)
        for name in ("width", "evidence_width"):
            if getattr(self, name) not in (0, 1):
                check_unit_interval(name, getattr(self, name))
        if self.slack != 0:
            check_unit_interval("slack", self.slack)
        if self.slack and self.split:
            raise InvalidInput(f"slack must be 0 where cells are split, got {self.slack:g}")
        if self.shift and not self.proved:
            raise InvalidInput(f"shift must be 0 with a level or a width of one's own, got {self.shift:g}")

    @property
    def proved(self) -> bool:
        return self.level is None and self.width == self.evidence_width == 1


DEFAULTS: Mapping[str, Any] = MappingProxyType({each.name: each.default for each in fields(Options)})


def options_of(method: str) -> tuple[str, ...]:
    """Names of the options that a certified method takes."""
    return tuple(each.name for each in fields(Options) if method in each.metadata["methods"])
