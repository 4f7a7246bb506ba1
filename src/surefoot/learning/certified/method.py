"""The certified test phase: deploy only what is safe on every cell that has not been ruled out (docs, Theorem 4).

The evidence decides which cells survive; whatever it is (transitions, returns), the rest is the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from surefoot.arrays import Floats, Integers, Mask
from surefoot.bounds.cells import Cells
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.learning.certified.replanning import Planned, Replanner
from surefoot.learning.certified.selection import best_mixture, most_promising, promises
from surefoot.learning.certified.splitting import Boxes, Splitter
from surefoot.learning.event import Event
from surefoot.learning.method import SAFE, SAFE_MIXTURE, Certificate, Method, Mixture, Observes, RiskSplit, Step
from surefoot.policyset.policy_value_set import PolicyValueSet

# Decide every few episodes at first, then each time the data have grown by this fraction.
LEAST_WAIT, GROWTH = 8, 1 / 24
# Planned policies are evaluated also on cells ruled out by less than this many nats: those may come back.
RECALL = 5.0
# The same where cells split, which takes longer and makes up for it.
SPLIT_WAIT, SPLIT_GROWTH = 12, 1 / 10


class Evidence(Protocol):
    """An e-process for every cell. `settle` is called at each decision, `observe` in between; both are pure."""

    @property
    def observes(self) -> Observes:
        """What episodes must be told with."""
        ...

    def start(self) -> Any: ...

    def observe(self, state: Any, drawn: Integers, outcomes: Outcomes) -> Any: ...

    def impossible(self, outcomes: Outcomes, before: Any, after: Any) -> Mask:
        """[n] whether an episode contradicts every cell by itself, so that there is nothing to wait for; given the
        states before and after all of them were observed, which may say at a glance that none does."""
        ...

    def abandon(self, state: Any, drawn: int) -> Any:
        """An episode of policy `drawn` without an outcome: every E(j) takes the smallest factor that it could have."""
        ...

    def settle(self, state: Any, surviving: Mask, planned: tuple[Planned, ...]) -> Any: ...

    def log_evidence(self, state: Any) -> Floats:
        """[J] log E(j): if the task lies in cell j, it ever reaches log(1/δ) with probability at most δ."""
        ...

    def belief(self, state: Any) -> Floats:
        """[J] weights for estimating rewards; no guarantee rests on them."""
        ...


@dataclass(frozen=True, eq=False)
class CertifiedState:
    """Evidence so far, what is deployed until `next_decision`, and the policies planned on the way."""

    evidence: Any
    deployed: Mixture
    surviving: Mask  # [J] bool
    next_decision: int
    planned: tuple[Planned, ...] = ()
    alarmed: bool = False
    boxes: Boxes | None = None  # of the cells that are split
    margin: Floats | None = None  # [m] the least that is certified of what is deployed, where cells are split


@dataclass(frozen=True, eq=False)
class Certified(Method):
    """One of the certified methods.

    Attributes:
        risk_split: how the user's risk is spent: coverage, elimination, value bounds.
        replanner: adds policies for what is still possible; None leaves the set as trained.
        optimistic: try whoever promises most on some cell that survives, instead of what is expected to earn most.
        note: why this method was chosen, where that was not the user's choice.
        least_wait: episodes between decisions, at first.
        splitter: splits cells that survive and limit what is deployed; None leaves them whole.
        slack: the share of the safe policy's margin that is kept on every cell.
        intersect: whether a cell that was ruled out stays so.
    """

    name: str
    policies: PolicyValueSet
    cells: Cells
    evidence: Evidence
    risk_split: RiskSplit
    replanner: Replanner | None = None
    optimistic: bool = False
    note: str = ""
    least_wait: int = LEAST_WAIT
    splitter: Splitter | None = None
    certified: bool = True
    slack: float = 0.0
    intersect: bool = False

    @property
    def observes(self) -> Observes:
        return self.evidence.observes

    def start(self) -> CertifiedState:
        everything = np.ones(len(self.cells), dtype=bool)
        state = CertifiedState(self.evidence.start(), SAFE_MIXTURE, everything, 0)
        return self._decide(state, 0)[0]

    def mixture(self, state: CertifiedState) -> Mixture:
        return state.deployed

    def policy(self, state: CertifiedState, index: int) -> Policy:
        known = len(self.policies.policies)
        return self.policies.policies[index] if index < known else state.planned[index - known].policy

    def update(self, state: CertifiedState, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        used = int(min(len(outcomes), state.next_decision - episode))
        drawn, outcomes = drawn[:used], outcomes.first(used)
        evidence = self.evidence.observe(state.evidence, drawn, outcomes)
        impossible = self.evidence.impossible(outcomes, state.evidence, evidence)
        if impossible.any() and not state.alarmed:  # decide at once: the next order is the safe policy's
            used = int(np.argmax(impossible)) + 1
            evidence = self.evidence.observe(state.evidence, drawn[:used], outcomes[:used])
            state = replace(state, next_decision=episode + used)
        return self._decide_if_due(replace(state, evidence=evidence), episode, used)

    def abandon(self, state: CertifiedState, episode: int, drawn: int) -> Step:
        evidence = self.evidence.abandon(state.evidence, drawn)
        return self._decide_if_due(replace(state, evidence=evidence), episode, 1)

    def learn_from_history(self, state: CertifiedState, outcomes: Outcomes) -> Step:
        """As if the safe policy had been deployed in these episodes (docs, Theorem 13); bets are placed anew as often
        as decisions would have been taken."""
        done = 0
        while done < len(outcomes):
            end = min(next_decision(done, self.least_wait), len(outcomes))
            evidence = self.evidence.settle(state.evidence, state.surviving, ())
            evidence = self.evidence.observe(evidence, np.full(end - done, SAFE), outcomes[done:end])
            state, done = replace(state, evidence=evidence), end
            state = replace(state, surviving=self.evidence.log_evidence(evidence) < self.threshold)
        decided, events = self._decide(state, 0)
        return Step(decided, done, events)

    def certificate(self, state: CertifiedState) -> Certificate:
        """The least certified margin of what is deployed, over the surviving cells; none where no proof comes with
        it."""
        alive, count = np.flatnonzero(state.surviving), len(self.cells)
        if not alive.size or not self.certified:
            return Certificate(len(alive), count, None)
        if state.margin is not None:
            return Certificate(len(alive), count, state.margin)
        known = len(self.policies.policies)
        lower = [
            self.cells.lower[alive, index, 1:] if index < known else state.planned[index - known].margin[alive]
            for index in state.deployed.indices.tolist()
        ]
        margin: Floats = np.tensordot(state.deployed.weights, np.stack(lower), axes=1).min(axis=0)
        return Certificate(len(alive), count, margin)

    def surviving(self, state: CertifiedState) -> Integers:
        return np.flatnonzero(state.surviving)

    def _decide_if_due(self, state: CertifiedState, episode: int, used: int) -> Step:
        if episode + used < state.next_decision:
            return Step(state, used)
        decided, events = self._decide(state, episode + used)
        return Step(decided, used, events)

    def _decide(self, state: CertifiedState, episode: int) -> tuple[CertifiedState, tuple[Event, ...]]:
        """Who survives now, and the best mixture that is safe on all of them.

        The current set is used or, with `intersect`, the intersection of all so far. Both have the same guarantee; in
        the former a true cell that is lost for a while comes back, in the latter fewer cells limit what is deployed.
        """
        evidence = self.evidence.settle(state.evidence, state.surviving, state.planned)
        if self.splitter is not None:
            return self._decide_on_boxes(self.splitter, replace(state, evidence=evidence), episode)
        log_evidence = self.evidence.log_evidence(evidence)
        # Evidence that is not a number proves nothing: then no cell counts as possible, which leaves the safe policy.
        sound = not np.isnan(log_evidence).any()
        surviving = sound & (log_evidence < self.threshold) & self._possible(state)
        following = next_decision(episode, self.least_wait)
        state = replace(state, evidence=evidence, surviving=surviving, next_decision=following)
        if not surviving.any():
            return self._on_the_safe_policy(state, episode)
        belief = self._belief(evidence, surviving)
        planned = self._planned(state, log_evidence, episode)
        margin, reward = self._values(planned, surviving, belief)
        return self._deploying(replace(state, planned=planned), self._choose(margin, reward), episode)

    def _decide_on_boxes(
        self, splitter: Splitter, state: CertifiedState, episode: int
    ) -> tuple[CertifiedState, tuple[Event, ...]]:
        """The same with boxes for cells, and the boxes that limit the choice are halved.

        A cell survives as long as one of its boxes does; the boxes of one that does not are forgotten.
        """
        boxes, scale = splitter.partition(state.boxes, state.planned), splitter.scale(state.evidence)
        found = splitter.log_evidence(state.evidence, boxes, self.threshold + RECALL, scale)
        alive: Mask = (not np.isnan(found).any()) & (found < self.threshold) & self._possible(state)[boxes.cell]
        log_evidence = np.full(len(self.cells), np.inf)
        np.minimum.at(log_evidence, boxes.cell, found)
        surviving = np.bincount(boxes.cell[alive], minlength=len(self.cells)) > 0
        following = next_decision(episode, max(self.least_wait, SPLIT_WAIT), SPLIT_GROWTH)
        state = replace(state, surviving=surviving, next_decision=following)
        if not alive.any():
            return self._on_the_safe_policy(replace(state, boxes=None, margin=None), episode)
        state = replace(state, planned=self._planned(state, log_evidence, episode))
        boxes = splitter.with_planned(boxes, alive, state.planned)
        deployed, boxes, alive = self._refine_boxes(splitter, state, boxes, alive, scale)
        margin = np.tensordot(deployed.weights, boxes.margin[alive][:, deployed.indices], axes=(0, 1)).min(axis=0)
        state = replace(state, boxes=splitter.remembered(boxes, alive), margin=margin)
        return self._deploying(state, deployed, episode)

    def _possible(self, state: CertifiedState) -> Mask:
        """[J] the cells that may survive at all."""
        return state.surviving if self.intersect else np.ones(len(self.cells), dtype=bool)

    def _refine_boxes(
        self,
        splitter: Splitter,
        state: CertifiedState,
        boxes: Boxes,
        alive: Mask,
        scale: tuple[Floats, Floats],
    ) -> tuple[Mixture, Boxes, Mask]:
        """What to deploy, after halving the boxes that limit it; and the boxes, and which of them survive."""
        reward, deployed = self._expected(splitter, state, scale[1]), state.deployed
        if deployed.weights @ reward[deployed.indices] < reward.max():
            aim = deployed if deployed.weight > 0 else Mixture(np.array([int(np.argmax(reward))]), np.ones(1))
            chosen, halves = splitter.limiting_halves(boxes, alive, aim)
            found = splitter.log_evidence(state.evidence, halves, self.threshold, scale)
            living = ~(found >= self.threshold)
            among = np.append(np.delete(alive, chosen), living)
            if chosen.size and among.any():
                halves = splitter.tighten_bounds(halves, living, aim.indices, state.planned)
                boxes, alive = boxes[np.delete(np.arange(len(alive)), chosen)].and_also(halves), among
        return self._choose(_rows(boxes.margin[alive]), reward), boxes, alive

    def _expected(self, splitter: Splitter, state: CertifiedState, mode: Floats) -> Floats:
        """[P] rewards that the choice goes by: those on the likeliest task."""
        likeliest = None if self.optimistic else splitter.reward(mode, state.planned)
        if likeliest is not None:
            return likeliest
        return self._values(state.planned, state.surviving, self._belief(state.evidence, state.surviving))[1]

    @property
    def threshold(self) -> float:
        """log(1/δ), the evidence log E(j) at which cell j is ruled out (Ville's inequality), δ being the part of the
        risk that is left for it."""
        return log_threshold(self.risk_split.elimination)

    def _on_the_safe_policy(self, state: CertifiedState, episode: int) -> tuple[CertifiedState, tuple[Event, ...]]:
        events = () if state.alarmed else (_nothing_fits(episode),)
        return replace(state, deployed=SAFE_MIXTURE, alarmed=True), events

    def _deploying(
        self, state: CertifiedState, deployed: Mixture, episode: int
    ) -> tuple[CertifiedState, tuple[Event, ...]]:
        recovered = (Event(episode, "recovered", "a cell is possible again"),) if state.alarmed else ()
        return replace(state, deployed=deployed, alarmed=False), recovered

    def _planned(self, state: CertifiedState, log_evidence: Floats, episode: int) -> tuple[Planned, ...]:
        """The policies planned so far, with a new one where it is time for it."""
        if self.replanner is None:
            return state.planned
        plausible = log_evidence < self.threshold + RECALL
        return self.replanner.extend_plans(state.planned, self.cells, state.surviving, plausible, episode)

    def _choose(self, margin: Floats, reward: Floats) -> Mixture:
        choose = most_promising if self.optimistic else best_mixture
        return choose(margin, reward)

    def _belief(self, evidence: Any, surviving: Mask) -> Floats:
        """[J] belief restricted to the surviving cells."""
        belief = np.where(surviving, self.evidence.belief(evidence), 0.0)
        total = belief.sum()
        share: Floats = belief / total if total > 0 else surviving / surviving.sum()
        return share

    def _values(self, planned: tuple[Planned, ...], surviving: Mask, belief: Floats) -> tuple[Floats, Floats]:
        """Certified margins [R, P] on the surviving cells, and estimated rewards [P]."""
        lower = self.cells.lower[surviving][:, :, 1:]
        middle = (self.cells.lower[:, :, 0] + self.cells.upper[:, :, 0]) / 2
        reward = belief @ middle
        if planned:
            lower = np.concatenate([lower, np.stack([plan.margin[surviving] for plan in planned], axis=1)], axis=1)
            reward = np.append(reward, [belief @ plan.reward for plan in planned])
        if self.slack:
            lower = lower - self.slack * np.maximum(lower[:, :1], 0.0)
        if self.optimistic:
            reward = promises(lower, np.column_stack([middle, *(plan.reward for plan in planned)])[surviving])
        return _rows(lower), reward


def log_threshold(level: float) -> float:
    """log(1/δ): the evidence against the true cell ever reaches it with probability at most δ = `level`."""
    return float(np.log(1 / level))


def _rows(margin: Floats) -> Floats:
    """Margins [J, P, m] as [R, P], a row for each cell and constraint."""
    return margin.transpose(0, 2, 1).reshape(-1, margin.shape[1])


def next_decision(episode: int, least_wait: int = LEAST_WAIT, growth: float = GROWTH) -> int:
    """The episode after which to decide again; it must not depend on how episodes are blocked."""
    return episode + max(least_wait, math.floor(episode * growth))


def _nothing_fits(episode: int) -> Event:
    return Event(
        episode,
        "alarm",
        "no cell fits what was observed: the task is not one of those trained for; staying on the safe policy",
    )
