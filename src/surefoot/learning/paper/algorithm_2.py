"""Algorithm 2: mix the most promising candidate into the safe policy step by step, drop it when a test fails.

`SafeCandidates` is the algorithm and `PaperRules` are its constants, with the paper's proof and the repairs of
docs/guarantees.md. `published.py` has the variant behind the paper's figure, and Algorithm 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surefoot import theory
from surefoot.arrays import Floats, Integers, Mask, flag
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.units import Units
from surefoot.learning.checks import risk_left
from surefoot.learning.event import Event
from surefoot.learning.method import SAFE, SAFE_MIXTURE, Certificate, Method, Mixture, RiskSplit, Step
from surefoot.learning.paper.constants import Rules, paper_plan, paper_rules
from surefoot.learning.spec import MethodArgs, MethodSpec
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet


@dataclass(frozen=True, eq=False)
class Algorithm2State:
    """State of Algorithm 2.

    Attributes:
        alive: the candidates left, the most promising one first: it is on trial.
        weight: α_m, its weight.
        step: m, how often that was raised.
        sums: [1] over the episodes of this phase, the k₀ … k of the paper.
    """

    alive: tuple[int, ...]
    weight: float
    step: int
    sums: Sums


@dataclass(frozen=True, eq=False)
class SafeCandidates(Method):
    """Algorithm 2 with the constants of `rules`.

    Attributes:
        risk_split: how the risk is spent, on tasks where the safe policy is infeasible (coverage) and on the tests
            (elimination); None where nothing is known of the former, which is then an assumption of the theorem.
    """

    policies: PolicyValueSet
    rules: Rules
    risk_split: RiskSplit | None = None

    @property
    def name(self) -> str:
        return self.rules.name

    @property
    def certified(self) -> bool:
        return self.rules.certified

    def start(self) -> Any:
        rewards = [entry.reward for entry in self.policies.entries]
        best_first = tuple(int(k) for k in np.argsort(-np.array(rewards), kind="stable"))
        return Algorithm2State(best_first, self.rules.first_weight, 0, Sums.empty(len(self.units.budget)))

    def mixture(self, state: Algorithm2State) -> Mixture:
        if not state.alive or state.weight == 0:
            return SAFE_MIXTURE
        indices = np.array([SAFE, state.alive[0] + 1])
        return Mixture(indices, np.array([1 - state.weight, state.weight]))

    def update(self, state: Algorithm2State, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        return self._run_test(state, episode, state.sums.after(outcomes))

    def abandon(self, state: Algorithm2State, episode: int, drawn: int) -> Step:
        """The episode counts, and its sums may be anything in their ranges.

        A candidate is eliminated when it would be whatever those sums are, and its weight raised when it would be
        whatever they are. With the true sums the paper's test then decides the same, so that on the event of the proof
        the right candidate stays and every raise is one that the proof allows.
        """
        return self._run_test(state, episode, state.sums.after_abandoned())

    def certificate(self, state: Algorithm2State) -> Certificate:
        if not state.alive:
            return Certificate(0, len(self.policies), None)
        margin = promised(self.policies.entries[state.alive[0]], state.weight)[1:]
        return Certificate(len(state.alive), len(self.policies), margin)

    def surviving(self, state: Algorithm2State) -> tuple[int, ...]:
        return state.alive

    # ------------------------------------------------------------------------------------------------- one phase

    def _run_test(self, state: Algorithm2State, episode: int, seen: Sums) -> Step:
        """Up to the first episode after which the candidate fails or has earned more weight."""
        if not state.alive:
            return Step(state, len(seen))
        candidate = self.policies.entries[state.alive[0]]  # the largest u among those left
        fails, passes = self._evaluate_condition(state, candidate, seen)  # Eq. (condition)
        ripe = passes & self._long_enough(state, candidate, seen)  # line 11
        last = first(fails | ripe)
        if last is None:
            return Step(replace(state, sums=seen.at(len(seen) - 1)), len(seen))
        reached, told = replace(state, sums=seen.at(last)), episode + last + 1
        if fails[last]:
            return Step(self._next_candidate(reached), last + 1, _elimination(reached, candidate, told))
        raised = self._increase_weight(reached, candidate)
        return Step(raised, last + 1, (_raise(reached, raised, told),))

    def _evaluate_condition(self, state: Algorithm2State, candidate: Entry, seen: Sums) -> tuple[Mask, Mask]:
        """[n] whether Eq. (condition) fails after each episode, and whether it holds.

        Neither is so where it depends on what abandoned episodes would have returned.
        """
        evidence, radius = self._evidence(state, seen)
        means, promise = evidence.means(self.units), promised(candidate, state.weight)
        tested = seen.count >= self.rules.least_count
        return means.certainly_differs(promise, radius) & tested, means.certainly_agrees(promise, radius) | ~tested

    def _evidence(self, state: Algorithm2State, seen: Sums) -> tuple[Sums, Floats]:
        """The sums that are tested, and by how much [n, 1+m] their means may miss what was promised."""
        return seen, radii(self.rules.reward_radius(seen.count), self.rules.margin_radius(seen.count), self.units)

    def _long_enough(self, state: Algorithm2State, candidate: Entry, seen: Sums) -> Mask:
        """[n] whether the phase has lasted long enough for the test to have meant something."""
        enough = seen.count >= self.rules.phase_length(candidate, state.step, state.weight)
        # Without abandoned episodes a raise falls at the first that is enough; a late one is proved for n ≤ K only.
        proved: Mask = (seen.count <= self.rules.last_count) | (seen.abandoned == 0)
        return enough & proved

    def _next_candidate(self, state: Algorithm2State) -> Any:
        """The next candidate, from the first weight on."""
        return replace(self._next_phase(state), alive=state.alive[1:], step=0, weight=self.rules.first_weight)

    def _increase_weight(self, state: Algorithm2State, candidate: Entry) -> Any:
        weight = self.rules.next_weight(candidate, state.step, state.weight)
        return replace(self._next_phase(state), step=state.step + 1, weight=weight)

    def _next_phase(self, state: Algorithm2State) -> Any:
        return replace(state, sums=Sums.empty(len(self.units.budget)))


def promised(candidate: Entry, weight: float) -> Floats:
    """[1+m] u_{l,m} and v_{l,m}: reward and margins of the mixture if the task is the candidate's."""
    own, safe = np.append(candidate.reward, candidate.margin), np.append(candidate.safe_reward, candidate.safe_margin)
    mixed: Floats = theory.mixture_value(own, safe, weight)
    return mixed


def radii(reward: Floats, margin: Floats, units: Units) -> Floats:
    """[n, 1+m] from the radii [n] of the reward and [n, m] of the margins, or [n] for all of them."""
    each = margin if margin.ndim == 2 else margin[:, None]
    return np.column_stack([reward, np.broadcast_to(each, (len(reward), len(units.budget)))])


def _elimination(state: Algorithm2State, candidate: Entry, told: int) -> tuple[Event, ...]:
    message = f"candidate {state.alive[0]} eliminated at weight {state.weight:.4g}, {len(state.alive) - 1} left"
    data = {"candidate": state.alive[0], "parameter": candidate.parameter.tolist(), "weight": state.weight}
    events: tuple[Event, ...] = (Event(told, "eliminated", message, data),)
    if len(state.alive) == 1:
        empty = "no candidate is left: the task fits none of the training tasks; staying on the safe policy"
        events += (Event(told, "exhausted", empty),)
    return events


def _raise(state: Algorithm2State, raised: Algorithm2State, told: int) -> Event:
    message = f"weight of candidate {state.alive[0]} raised from {state.weight:.4g} to {raised.weight:.4g}"
    return Event(told, "weight", message, {"candidate": state.alive[0], "step": raised.step, "weight": raised.weight})


# -------------------------------------------------------------------------------------------------- sums over a phase


@dataclass(frozen=True, eq=False)
class Sums:
    """Reward [n] and costs [n, m] summed up to each of n episodes.

    Of the `count` [n] episodes, `abandoned` [n] have no outcome and add nothing to the sums.
    """

    count: Integers
    reward: Floats
    cost: Floats
    abandoned: Integers

    @classmethod
    def empty(cls, constraints: int) -> Sums:
        """[1] before the first episode."""
        none = np.zeros(1, dtype=np.int64)
        return cls(none, np.zeros(1), np.zeros((1, constraints)), none)

    def __len__(self) -> int:
        return len(self.count)

    def at(self, index: int) -> Sums:
        """[1] up to episode number `index` of these."""
        part = slice(index, index + 1)
        return Sums(self.count[part], self.reward[part], self.cost[part], self.abandoned[part])

    def after(self, outcomes: Outcomes) -> Sums:
        """From here [1] on, one episode after the other, so that blocks and single episodes round alike."""
        return Sums(
            self.count + np.arange(1, len(outcomes) + 1),
            np.cumsum(np.concatenate([self.reward, outcomes.reward]))[1:],
            np.cumsum(np.concatenate([self.cost, outcomes.cost]), axis=0)[1:],
            np.repeat(self.abandoned, len(outcomes)),
        )

    def after_abandoned(self) -> Sums:
        """[1] with an episode more that has no outcome."""
        return Sums(self.count + 1, self.reward, self.cost, self.abandoned + 1)

    def joined(self, others: Sums) -> Sums:
        """With the episodes of `others` [1] added to each."""
        return Sums(
            self.count + others.count,
            self.reward + others.reward,
            self.cost + others.cost,
            self.abandoned + others.abandoned,
        )

    def means(self, units: Units) -> Mean:
        """[n, 1+m] of the reward and the margins: each abandoned episode may have had any sums in their ranges."""
        seen, missing = np.column_stack([self.reward, self.cost]), self.abandoned[:, None]
        low, high = ((seen + missing * end) / self.count[:, None] for end in units.reachable.T)
        return Mean(
            np.column_stack([low[:, 0], units.budget - high[:, 1:]]),
            np.column_stack([high[:, 0], units.budget - low[:, 1:]]),
        )


@dataclass(frozen=True, eq=False)
class Mean:
    """Means [n, 1+m] known to lie between `low` and `high`; the two are equal if every episode has an outcome."""

    low: Floats
    high: Floats

    def certainly_differs(self, promised: Floats, radius: Floats) -> Mask:
        """[n] whether one of them is farther than `radius` [n, 1+m] from what was promised [1+m], wherever it lies."""
        nearest = np.maximum(np.maximum(self.low - promised, promised - self.high), 0.0)
        differs: Mask = np.any(nearest > radius, axis=1)
        return differs

    def certainly_agrees(self, promised: Floats, radius: Floats) -> Mask:
        """[n] whether all of them are within `radius` [n, 1+m] of what was promised [1+m], wherever they lie."""
        farthest = np.maximum(self.high - promised, promised - self.low)
        agrees: Mask = ~np.any(farthest > radius, axis=1)
        return agrees


def first(happens: Mask) -> int | None:
    """The first of n episodes at which something happens; None if it does not."""
    return int(np.argmax(happens)) if happens.any() else None


# ------------------------------------------------------------------------------------------------------------- by name


def _paper(policies: PolicyValueSet, terms: MethodArgs, assume_safe: bool = False) -> SafeCandidates:
    """Theorem P at what tasks with an infeasible safe policy leave of the risk; at all of it if that is not known, when
    it speaks of tasks on which the safe policy is feasible."""
    failing = 0.0 if flag("assume_safe", assume_safe) else policies.safe_risk
    if failing is None:
        return SafeCandidates(policies, paper_rules(policies, terms, terms.risk))
    left = risk_left(terms.risk, failing)
    return SafeCandidates(policies, paper_rules(policies, terms, left), RiskSplit(failing, left))


SPECS = (
    MethodSpec(
        "paper",
        _paper,
        certified=True,
        why="Theorem P: the paper's constants with its errata mended",
        proof=("Theorem P",),
        costs="sums of the candidate under test; it leaves the safe policy after millions of episodes",
        options=("assume_safe",),
        state=(Algorithm2State, Sums),
        needs_cover=True,
        needs_episodes=True,
        plan=paper_plan,
        colour=2,
    ),
)
