"""The twin of a certified method that takes its best estimate for the truth: no confidence bound is left in it.

A count that would let the twin pass as well has no power: it says nothing about the method.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.learning.certified.method import Certified
from surefoot.learning.certified.model_free import ModelFree, ModelFreeState
from surefoot.learning.method import Method, Observes


def overconfident(method: Method) -> Method | None:
    """The twin: safe on the cell that the least speaks against, or by mean costs; None for methods that have none."""
    if isinstance(method, Certified):
        return replace(method, evidence=BestCell(method.evidence), splitter=None)
    if isinstance(method, ModelFree):
        return SampleMean(**{field.name: getattr(method, field.name) for field in fields(method)})
    return None


@dataclass(frozen=True, eq=False)
class ChangedEvidence:
    """Another evidence, to be changed in one place."""

    inner: Any

    @property
    def observes(self) -> Observes:
        observes: Observes = self.inner.observes
        return observes

    def start(self) -> Any:
        return self.inner.start()

    def observe(self, *arguments: Any) -> Any:
        return self.inner.observe(*arguments)

    def impossible(self, *arguments: Any) -> Any:
        return self.inner.impossible(*arguments)

    def abandon(self, *arguments: Any) -> Any:
        return self.inner.abandon(*arguments)

    def settle(self, *arguments: Any) -> Any:
        return self.inner.settle(*arguments)

    def log_evidence(self, state: Any) -> Floats:
        evidence: Floats = self.inner.log_evidence(state)
        return evidence

    def belief(self, state: Any) -> Floats:
        belief: Floats = self.inner.belief(state)
        return belief


@dataclass(frozen=True, eq=False)
class BestCell(ChangedEvidence):
    """Rules out every cell but the one that the least speaks against."""

    def log_evidence(self, state: Any) -> Floats:
        evidence = self.inner.log_evidence(state)
        return np.where(evidence <= np.nanmin(evidence), 0.0, np.inf)


@dataclass(frozen=True, eq=False)
class SampleMean(ModelFree):
    """The sample mean of costs in place of their confidence bound."""

    def _lowest_margin(self, state: ModelFreeState, index: int) -> Floats:
        sequence, seen = self._sequence(index), state.costs[index]
        low, high = self._cost_ends
        if not seen.count:
            return self.units.budget - high
        # At the smallest stake b, Σ ln(1 - bX) is -b ΣX but for less than half a percent.
        mean = -seen.sums[..., 0] / (seen.count * sequence.stakes[0])
        margin: Floats = self.units.budget - (low + mean * (high - low))
        return margin
