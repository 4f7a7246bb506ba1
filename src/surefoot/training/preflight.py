"""What the paper's theorem will and will not say, told before any work is done."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from surefoot import theory
from surefoot.errors import InvalidInput
from surefoot.oracles.exact import BatchDistance, ParameterDistance, exact_check
from surefoot.oracles.interface import CheckOracle, Oracles
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.cover import expected_samples, greedy_cover

# The pilot that predicts |U|: enough tasks to see the cover's size, few enough to cost nothing, also where each must
# be built.
PILOT_SAMPLES, BUILT_PILOT_SAMPLES = 5_000, 300
# A cover that needs more than this share of the pilot is larger than the pilot can show.
RESOLVED = 0.2
# Training that needs more centres or more samples than this is announced by a warning.
MANY_CENTRES, MANY_SAMPLES = 2_000, 20_000_000
# The number of centres that such a warning finds an epsilon for.
FEW_CENTRES = 500


class UncertifiedWarning(UserWarning):
    """What follows is not covered by the paper's theorem."""


class LongTrainingWarning(UserWarning):
    """What follows will take very long."""


@dataclass(frozen=True)
class Preflight:
    """The theorem's precondition and its price for one choice of (ε, δ, ξ).

    Attributes:
        xi: the requested margin, or the largest that any policy could have when none was requested.
        needed: (8L+18)ε, which must not exceed ξ.
        cover_size: predicted |U| from a pilot sample; None where tasks are compared one by one.
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
    shrinking: float | None = None  # |U| falls with this power of ε

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
    def expected(self) -> str:
        """How much work training will be; empty if not known."""
        if self.cover_size is None or self.samples is None:
            return ""
        return f"expecting about {self.cover_size} centres to solve, out of {self.samples} sampled tasks"

    @property
    def is_long(self) -> bool:
        return (self.cover_size or 0) > MANY_CENTRES or (self.samples or 0) > MANY_SAMPLES

    @property
    def long_warning(self) -> str:
        wider = self.epsilon * ((self.cover_size or 1) / FEW_CENTRES) ** (1 / (self.shrinking or 1.0))
        return (
            f"{self.expected}: this will take very long; epsilon={wider:.2g} would do with about {FEW_CENTRES} centres"
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
    _check_accuracy(epsilon, delta, xi)
    units = tasks.units
    _, most = units.possible_values(ends=not isinstance(tasks.example, TabularCMDP))
    margin = float(units.unit_margin(most[1:]).min()) if xi is None else xi
    size, samples, shrinking = _pilot(tasks, epsilon, delta, _check_oracle(tasks, oracles))
    return Preflight(
        epsilon=epsilon,
        delta=delta,
        xi=margin,
        xi_requested=xi is not None,
        needed=theory.slater_requirement(epsilon, units.effective_discount),
        largest_epsilon=theory.largest_epsilon(margin, units.effective_discount),
        cover_size=size,
        samples=samples,
        probability=None if size is None else theory.theorem_probability(delta, size),
        shrinking=shrinking,
    )


def _check_accuracy(epsilon: float, delta: float, xi: float | None) -> None:
    """Refuse ε, δ, ξ for which Algorithm 1 makes no sense."""
    if not (np.isfinite(epsilon) and epsilon > 0):
        raise InvalidInput(f"epsilon must be a positive number, got {epsilon!r}")
    if not 0 < delta < 1 / 3:
        raise InvalidInput(f"delta must lie in (0, 1/3), since 3δ of the tasks may stay uncovered, got {delta!r}")
    if xi is not None and not (np.isfinite(xi) and xi >= 0):
        raise InvalidInput(f"xi must be None or a non-negative number, got {xi!r}")


def _check_oracle(tasks: TaskDistribution, oracles: Oracles | None) -> CheckOracle | None:
    if oracles is not None:
        return oracles.check
    if tasks.coordinates is not None:
        return ParameterDistance(tasks.coordinates)
    return exact_check(tasks) if isinstance(tasks.example, TabularCMDP) else None


def _pilot(
    tasks: TaskDistribution, epsilon: float, delta: float, check: CheckOracle | None
) -> tuple[int | None, int | None, float | None]:
    """Predicted |U| and N, and the power of ε with which |U| falls; None where tasks are compared one by one."""
    rng = np.random.default_rng(0)
    if isinstance(check, ParameterDistance):
        points = check.coordinates(tasks.sample(PILOT_SAMPLES, rng))
        cover = partial(greedy_cover, points, uncovered=3 * delta)
        size, power = _extrapolate(lambda radius: len(cover(radius)), epsilon, len(points))
        return size, theory.samples_until_stop(size, delta), power
    if not isinstance(check, BatchDistance) or isinstance(tasks.distribution, Finite):
        return None, None, None
    pilot, within = [check.prepare(parameter) for parameter in tasks.sample(BUILT_PILOT_SAMPLES, rng)], check.within
    cover = partial(greedy_cover, uncovered=3 * delta)
    size, power = _extrapolate(lambda radius: len(cover(within(pilot, pilot, radius))), epsilon, len(pilot))
    return size, expected_samples(size, delta), power


def _extrapolate(cover_size: Callable[[float], int], epsilon: float, samples: int) -> tuple[int, float]:
    """|U| at ε and the power with which it falls; from larger ε where the pilot is too small to see it."""
    radius = epsilon
    while (size := cover_size(radius)) > RESOLVED * samples:
        radius *= 2
    power = max(1.0, math.log2(size / cover_size(2 * radius)))
    return max(1, round(size * (radius / epsilon) ** power)), power
