"""What the paper's theorem will and will not say, told before any work is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surefoot import theory
from surefoot.errors import InvalidInput
from surefoot.oracles.exact import ParameterDistance
from surefoot.oracles.interface import Oracles
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.greedy_cover import greedy_cover

# The pilot that predicts |U|: enough tasks to see the cover's size, few enough to cost nothing.
PILOT_SAMPLES = 5_000


class UncertifiedWarning(UserWarning):
    """What follows is not covered by the paper's theorem."""


@dataclass(frozen=True)
class Preflight:
    """The theorem's precondition and its price for one choice of (ε, δ, ξ).

    Attributes:
        xi: the requested margin, or the largest that any policy could have when none was requested.
        needed: (8L+18)ε, which must not exceed ξ.
        cover_size: predicted |U| from a pilot sample; None where the tasks have no parameter metric.
        samples: predicted N at which Algorithm 1 stops.
        probability: 1 - 26δ - 9δ ln|U|; vacuous when not positive.
    """

    epsilon: float
    delta: float
    xi: float
    xi_requested: bool
    needed: float
    largest_epsilon: float
    cover_size: int | None
    samples: int | None
    probability: float | None

    @property
    def satisfied(self) -> bool:
        return self.needed <= self.xi

    def at_margin(self, xi: float) -> Preflight:
        """The same once π_s is known to keep the margin `xi`."""
        return replace(self, xi=xi, xi_requested=True, largest_epsilon=xi * self.epsilon / self.needed)

    @property
    def warning(self) -> str:
        what = "ξ" if self.xi_requested else "any attainable ξ, at most"
        return (
            f"(8L+18)ε = {self.needed:.4g} exceeds {what} {self.xi:.4g}: the paper's theorem does not apply to "
            f"epsilon={self.epsilon:g}; it needs epsilon ≤ {self.largest_epsilon:.3g}"
        )

    @property
    def lines(self) -> tuple[str, ...]:
        """The same as sentences, for people."""
        first = f"(8L+18)ε = {self.needed:.4g} ≤ ξ = {self.xi:.4g}: the theorem's precondition holds"
        lines = [first if self.satisfied else self.warning]
        if self.cover_size is not None and self.samples is not None and self.probability is not None:
            lines.append(f"expected cover |U| ≈ {self.cover_size}, expected samples N ≈ {self.samples}")
            verdict = "" if self.probability > 0 else " (vacuous)"
            lines.append(f"probability in the theorem: 1 - 26δ - 9δ ln|U| = {self.probability:.3g}{verdict}")
        return tuple(lines)

    @property
    def facts(self) -> Mapping[str, Any]:
        return {
            "precondition_holds": self.satisfied,
            "predicted_cover_size": self.cover_size,
            "predicted_samples": self.samples,
            "theorem_probability": self.probability,
        }


def preflight(
    tasks: TaskDistribution, *, epsilon: float, delta: float, xi: float | None = None, oracles: Oracles | None = None
) -> Preflight:
    """Check (8L+18)ε ≤ ξ and predict |U|, N and the theorem's probability from a pilot sample."""
    check_accuracy(epsilon, delta, xi)
    units = tasks.units
    attainable = float(units.unit_margin(units.budget - units.cost_value_range[:, 0]).min())
    size = _pilot_cover_size(tasks, epsilon, delta, oracles)
    return Preflight(
        epsilon=epsilon,
        delta=delta,
        xi=attainable if xi is None else xi,
        xi_requested=xi is not None,
        needed=theory.slater_requirement(epsilon, units.effective_discount),
        largest_epsilon=theory.largest_epsilon(attainable if xi is None else xi, units.effective_discount),
        cover_size=size,
        samples=None if size is None else theory.samples_until_stop(size, delta),
        probability=None if size is None else theory.theorem_probability(delta, size),
    )


def check_accuracy(epsilon: float, delta: float, xi: float | None) -> None:
    """Refuse ε, δ, ξ for which Algorithm 1 makes no sense."""
    if not (np.isfinite(epsilon) and epsilon > 0):
        raise InvalidInput(f"epsilon must be a positive number, got {epsilon!r}")
    if not 0 < delta < 1 / 3:
        raise InvalidInput(f"delta must lie in (0, 1/3), since 3δ of the tasks may stay uncovered, got {delta!r}")
    if xi is not None and not (np.isfinite(xi) and xi >= 0):
        raise InvalidInput(f"xi must be None or a non-negative number, got {xi!r}")


def _pilot_cover_size(tasks: TaskDistribution, epsilon: float, delta: float, oracles: Oracles | None) -> int | None:
    check = oracles.check if oracles else tasks.coordinates and ParameterDistance(tasks.coordinates)
    if not isinstance(check, ParameterDistance):
        return None
    pilot = tasks.sample(PILOT_SAMPLES, np.random.default_rng(0))
    return len(greedy_cover(check.coordinates(pilot), epsilon, uncovered=3 * delta))
