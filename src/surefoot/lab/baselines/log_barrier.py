"""LB-SGD: stochastic gradient ascent on a log barrier (Ni and Kamgarpour, AISTATS 2025), for tabular softmax policies.

Each iteration runs a batch of episodes of the current policy, estimates V_0 (reward) and V_i = margins with their
gradients, and takes one step on B(θ) = V_0 + η Σ_i log V_i, short enough that every V_i keeps half of its value.

- `lb-sgd-theory` has the paper's constants in unit scale, |r_i| ≤ 1, and starts from the smoothed safe policy. Where
  the paper takes the bounds M_g = M_h = 1 on the derivatives of log π, the first of which softmax exceeds, it has √2
  and 1/2. The batch is that of Lemma 3.4 for a gradient error of η/4, as the proof of Theorem 4.12 wants it. If it
  exceeds the number of episodes the method stays on its first iterate.
- `lb-sgd-published` has what the paper's figure was made with: fixed step, fixed batches, no confidence terms, and a
  start of high entropy that is not the safe policy.

`AISTATS` are the options of the experiment in LB-SGD's own paper: adaptive steps "estimated from samples", with the
smoothness estimated as in its Appendix F. That experiment cannot have had the confidence terms: with 3000 episodes
they exceed the margins it started from. Reconstructed: one smoothness for each value instead of one for all, in the
Frobenius norm as in the authors' public estimator, but with the minus that the second derivative of log π has where
theirs adds. Steps come out about ten times as long as those of the published figure.

An abandoned episode is as if it had not been run. The proof does not cover episodes that are left out because of how
they went.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.known import known_model, tables_spec
from surefoot.lab.baselines.softmax import GradientSums, as_start_policy, published_start, smoothed_safe_policy, softmax
from surefoot.learning.event import Event
from surefoot.learning.method import SAFE, Certificate, Method, Mixture, Observes, Step
from surefoot.learning.spec import MethodArgs
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tabular.policy import TabularPolicy

Smoothness: TypeAlias = Literal["bound", "estimated"]

# Entropy weight of the start behind the paper's figure.
PUBLISHED_ENTROPY = 8.0


@dataclass(frozen=True)
class BarrierRules:
    """Everything that may be chosen.

    Attributes:
        barrier: η; None for the least margin of the starting policy.
        step: a fixed step; None for the adaptive one.
        batch: episodes of an iteration; None for what Lemma 3.4 asks for.
        first_batch: of the first iteration; None for `batch`.
        floor: least margin that the barrier divides by; with 0, an iterate that seems infeasible is taken back.
        confidence: whether values and slopes are taken at the pessimistic ends of their confidence intervals.
        smoothness: "bound" proved for every policy, or "estimated" from the same episodes (adaptive step only).
        unit_scale: whether rewards and costs are rescaled such that |r_i| ≤ 1.
    """

    barrier: float | None = None
    step: float | None = None
    batch: int | None = None
    first_batch: int | None = None
    floor: float = 0.0
    confidence: bool = True
    smoothness: Smoothness = "bound"
    unit_scale: bool = True

    def __post_init__(self) -> None:
        for name in ("barrier", "step", "batch", "first_batch"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidInput(f"{name} must be positive or None, got {value!r}")
        if not self.floor >= 0:
            raise InvalidInput(f"floor must not be negative, got {self.floor!r}")
        if self.smoothness not in ("bound", "estimated"):
            raise InvalidInput(f"smoothness must be 'bound' or 'estimated', got {self.smoothness!r}")
        if self.batch is None and not self.unit_scale:
            raise InvalidInput("batch must be given where unit_scale is False: Lemma 3.4 is about |r| ≤ 1, got None")


PRESETS: Mapping[str, BarrierRules] = {
    "lb-sgd-theory": BarrierRules(),
    "lb-sgd-published": BarrierRules(
        barrier=0.1, step=4.0, batch=3000, first_batch=500, floor=0.05, confidence=False, unit_scale=False
    ),
}
AISTATS: Mapping[str, Any] = {
    "barrier": 0.01,
    "step": None,
    "batch": 3000,
    "first_batch": 3000,
    "floor": 0.0,
    "confidence": False,
    "smoothness": "estimated",
    "unit_scale": False,
}


def lb_sgd_method(policies: PolicyValueSet, terms: MethodArgs, *, start: Any = None, **options: Any) -> LogBarrier:
    """LB-SGD by the name of its preset.

    Args:
        start: a policy of full support [S, A]; the batches of Lemma 3.4 take it to keep half of the safe policy's least
            margin.
        options: the fields of `BarrierRules`.
    """
    rules = replace(PRESETS[terms.name], **options)
    known_model(policies, terms.name)  # refuses sets that lack it
    first, origin = _first_policy(policies, terms.name, start)
    return LogBarrier(terms.name, policies, rules, first, origin, terms.planned(), terms.risk, terms.horizon)


def _first_policy(policies: PolicyValueSet, name: str, start: Any) -> tuple[TabularPolicy, str]:
    """Where to start, and how to call it."""
    if start is not None:
        first, origin = as_start_policy(policies, start), "the given policy"
    else:
        regularised = published_start(policies, PUBLISHED_ENTROPY) if name == "lb-sgd-published" else None
        if regularised is None:
            first, origin = smoothed_safe_policy(policies), "the smoothed safe policy"
        else:
            first = regularised
            origin = f"the optimum of the safe task with entropy weight {PUBLISHED_ENTROPY:g}, not the safe policy"
    if not (first.probabilities > 0).all():
        raise InvalidInput("start must give every action a positive probability, got one of 0")
    return first, origin


# ---------------------------------------------------------------------------------------------------------- the method


@dataclass(frozen=True, eq=False)
class Climb:
    """State of LB-SGD.

    Attributes:
        iterates: every policy so far; iterates[k] has index k + 1.
        current, previous: positions of the iterate that is run and of the one it came from.
        logits, previous_logits: [S, A] their θ.
        batch: episodes of this iteration.
        caution: factor on the adaptive step, halved (and the batches doubled) whenever an iterate was taken back.
        sums: over the episodes of this iteration so far.
        halted: whether the current iterate is final.
    """

    iterates: tuple[TabularPolicy, ...]
    current: int
    previous: int
    logits: Floats
    previous_logits: Floats
    batch: int
    caution: float
    sums: GradientSums
    halted: bool


@dataclass(frozen=True, eq=False)
class LogBarrier(Method):
    """LB-SGD with the constants of `rules`, from the policy `first`."""

    name: str
    policies: PolicyValueSet
    rules: BarrierRules
    first: TabularPolicy
    origin: str
    episodes: int
    risk: float
    horizon: int
    observes: ClassVar[Observes] = "transitions"

    @property
    def note(self) -> str:
        text = f"{self.name} starts from {self.origin}"
        if self.first_batch > self.episodes:
            text += (
                f"; one iteration takes {self.first_batch:.3g} episodes, more than the {self.episodes} there are: it "
                "stays on its first policy"
            )
        return text

    def start(self) -> Climb:
        logits = np.log(self.first.probabilities)
        halted = self.first_batch > self.episodes
        return Climb((self.first,), 0, 0, logits, logits, self.first_batch, 1.0, self._no_episodes(), halted)

    def mixture(self, state: Climb) -> Mixture:
        return Mixture(np.array([state.current + 1]), np.array([1.0]))

    def policy(self, state: Climb, index: int) -> Policy:
        return self.policies.safe_policy if index == SAFE else state.iterates[index - 1]

    def update(self, state: Climb, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        if state.halted:
            return Step(state, len(outcomes))
        used = min(len(outcomes), state.batch - state.sums.count)
        sums = state.sums.add(self.signals, self.units.discount, outcomes[:used])
        state = replace(state, sums=sums)
        if sums.count < state.batch:
            return Step(state, used)
        state, event = self._barrier_step(state, episode + used)
        return Step(state, used, (event,))

    def abandon(self, state: Climb, episode: int, drawn: int) -> Step:
        return Step(state, 1)

    def certificate(self, state: Climb) -> Certificate:
        return Certificate(0, 0, None)

    # ------------------------------------------------------------------------------------------------- one iteration

    def _barrier_step(self, state: Climb, told: int) -> tuple[Climb, Event]:
        """One step of Algorithm 1, or what replaces it at the end and after a bad step."""
        policy, rules, eta = state.iterates[state.current].probabilities, self.rules, self.barrier
        margin = self.offset + state.sums.value[1:] / state.batch
        value_width, slope_width = self._confidence(state.batch)
        lower = margin - value_width if rules.confidence else margin
        if rules.floor == 0 and (lower <= 0).any():
            return self._backtrack(state, told, lower)
        divisor = np.maximum(margin, rules.floor) if rules.floor else margin
        slopes = state.sums.gradient(policy)
        ascent = slopes[0] + eta * np.tensordot(1 / divisor, slopes[1:], 1)
        length = float(np.linalg.norm(ascent))
        if rules.step is not None:
            step = rules.step
        elif length <= eta / 2:
            stopped = Event(told, "stopped", f"the barrier's gradient is {length:.3g}, at most η/2: no more steps")
            return replace(state, halted=True), stopped
        else:
            along = np.abs((slopes[1:] * ascent).sum(axis=(1, 2))) / length
            along = along + slope_width if rules.confidence else along
            step = state.caution * adaptive_step(length, lower, along, self._smoothness(state), eta)
        return self._next_iterate(state, told, state.logits + step * ascent, step, margin, lower)

    def _next_iterate(
        self, state: Climb, told: int, logits: Floats, step: float, margin: Floats, lower: Floats
    ) -> tuple[Climb, Event]:
        latest = TabularPolicy(softmax(logits))
        iterates = (*state.iterates, latest)
        # The next margins are at least half of these, which is what their batch must be large enough for.
        batch = self.rules.batch or theory_batch(float(lower.min()) / 2, self.barrier, *self._theory_arguments)
        moved = Climb(
            iterates,
            len(iterates) - 1,
            state.current,
            logits,
            state.logits,
            batch * round(1 / state.caution),
            state.caution,
            self._no_episodes(),
            halted=False,
        )
        data = {"iterate": len(iterates), "step": step, "margin": margin.tolist(), "batch": state.batch}
        return moved, Event(told, "iterate", f"step {step:.3g} to iterate {len(iterates)}", data)

    def _backtrack(self, state: Climb, told: int, lower: Floats) -> tuple[Climb, Event]:
        """Back to the previous iterate, with twice the episodes and half the step (their Appendix E.3)."""
        back = replace(
            state,
            current=state.previous,
            logits=state.previous_logits,
            batch=2 * state.batch,
            caution=state.caution / 2,
            sums=self._no_episodes(),
        )
        message = f"iterate {state.current + 1} may be infeasible: back to {state.previous + 1} with twice the episodes"
        return back, Event(told, "taken back", message, {"lower": lower.tolist(), "batch": back.batch})

    # ---------------------------------------------------------------------------------------------------- constants

    @cached_property
    def signals(self) -> Floats:
        """[1+m, S, A] r_0 and the r_i whose discounted sums, plus `offset`, are the margins."""
        model, units = known_model(self.policies, self.name), self.units
        if self.rules.unit_scale:
            return np.concatenate([units.unit_reward(model.reward)[None], units.unit_constraint(model.cost)])
        return np.concatenate([model.reward[None], -model.cost])

    @cached_property
    def offset(self) -> Floats:
        """[m] what the margins are beyond the discounted sums of their signals."""
        return np.zeros(len(self.units.budget)) if self.rules.unit_scale else self.units.budget

    @cached_property
    def magnitude(self) -> Floats:
        """[1+m] bounds on |r_i|."""
        if self.rules.unit_scale:
            return np.ones(len(self.signals))
        return np.append(np.abs(self.units.reward_range).max(), np.abs(self.units.cost_range).max(axis=1))

    @cached_property
    def start_margin(self) -> float:
        """Least margin that the starting policy is known to have: half of what training found for the safe policy."""
        margin = np.min([entry.safe_margin for entry in self.policies.entries], axis=0)
        return float((self.units.unit_margin(margin) if self.rules.unit_scale else margin).min()) / 2

    @cached_property
    def barrier(self) -> float:
        return self.start_margin if self.rules.barrier is None else self.rules.barrier

    @cached_property
    def first_batch(self) -> int:
        given = self.rules.first_batch or self.rules.batch
        return given or theory_batch(self.start_margin, self.barrier, *self._theory_arguments)

    @cached_property
    def level(self) -> float:
        """δ of one iteration: they fail with probability m·T·δ in all, and T ≤ K/n for the n of T = 1."""
        constraints = len(self.units.budget)
        once = self.risk / constraints
        smallest = self.rules.batch or theory_batch(
            self.start_margin, self.barrier, constraints, self.units.discount, once
        )
        return once / max(1, math.ceil(self.episodes / smallest))

    @property
    def _theory_arguments(self) -> tuple[int, float, float]:
        return len(self.units.budget), self.units.discount, self.level

    def _confidence(self, batch: int) -> tuple[Floats, Floats]:
        """([m], [m]) by how much margins and slopes may be off, with truncation: b⁰ + σ⁰√…, b¹ + σ¹√…"""
        rest = 1 - self.units.discount
        tail = self.units.discount**self.horizon / rest
        value = tail + math.sqrt(2 * math.log(2 / self.level) / batch) / rest
        slope = SCORE * tail * math.sqrt(1 / rest + self.horizon)
        slope += math.sqrt(8 * (0.25 - math.log(self.level)) / batch) * SCORE / rest**1.5
        return value * self.magnitude[1:], slope * self.magnitude[1:]

    def _smoothness(self, state: Climb) -> Floats:
        """[1+m] M_i."""
        if self.rules.smoothness == "estimated":
            curvature = state.sums.curvature(state.iterates[state.current].probabilities)
            norms: Floats = np.linalg.norm(curvature, axis=(1, 2))
            return norms
        return self.magnitude * (SCORE**2 + SCORE_SLOPE) / (1 - self.units.discount) ** 2

    def _no_episodes(self) -> GradientSums:
        return GradientSums.empty(self.signals, curvature=self.rules.smoothness == "estimated")


# ------------------------------------------------------------------------------------------------------------- by name


_row = partial(
    tables_spec,
    make=lb_sgd_method,
    costs="a gradient step for every batch of episodes; the theorem's batches exceed most runs",
    options=("start", *(field.name for field in fields(BarrierRules))),
    state=(Climb, GradientSums, TabularPolicy),
    needs_episodes=True,
)

SPECS = (
    _row(
        "lb-sgd-theory",
        why="its theorem's constants, but its first policy is safe by a bound of our own only",
        colour=15,
    ),
    _row("lb-sgd-published", why="fixed steps and batches without confidence terms: no proof", colour=10),
)


# ------------------------------------------------------------------------------------------------ formulas of the paper


# Bounds on the norms of the first two derivatives of log π with respect to θ, for softmax.
SCORE, SCORE_SLOPE = math.sqrt(2), 0.5


def adaptive_step(length: float, lower: Floats, along: Floats, smoothness: Floats, barrier: float) -> float:
    """γ_t of Eq. (4): no V_i loses more than half, and no step is longer than the barrier is locally smooth.

    Args:
        length: norm of the barrier's gradient.
        lower, along: [m] α_i and β_i, values and slopes along that gradient.
        smoothness: [1+m] of V_0 and the V_i.
    """
    rough = smoothness[1:]
    kept = (lower / (np.sqrt(rough * lower) + 2 * along)).min() / length
    local = smoothness[0] + (10 * rough * barrier / lower + 8 * barrier * along**2 / lower**2).sum()
    return float(min(kept, 1 / local))


def theory_batch(margin: float, barrier: float, constraints: int, discount: float, level: float) -> int:
    """Episodes after which, by Lemma 3.4, the barrier's gradient is known to within η/4 where all V_i ≥ margin."""
    error, rest = barrier / 4, 1 - discount
    lipschitz = SCORE / rest**2
    value = min(margin / 8, 3 * error * margin**2 / (16 * constraints * barrier * lipschitz))
    slope = 3 * error * margin / (4 * (4 * constraints * barrier + 3 * margin))
    log_slope = 0.25 - math.log(level)
    for_value = 2 * math.log(2 / level) / (rest * value) ** 2
    for_slope = 8 * SCORE**2 * log_slope / (rest**3 * slope**2)
    return math.ceil(max(for_value, for_slope, 8 * log_slope))
