"""The e-process for dynamics that are known only up to a radius: bets on every transition (docs, Theorem 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from surefoot.arrays import Floats, Integers, Mask
from surefoot.bounds.cells import Cells
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.units import Units
from surefoot.learning.certified.evidence.counts import (
    Counts,
    class_counts,
    count_transitions,
    impossible_counts,
    impossible_episodes,
    no_counts,
    possible_counts,
    since,
)
from surefoot.learning.certified.evidence.likelihood import (
    GLOBAL_WEIGHT,
    ROW_TYPE_WEIGHT,
    all_alternatives,
    log_floored,
    posterior,
    row_type_log_likelihood,
    row_type_prediction,
    softmax,
)
from surefoot.learning.certified.replanning import Planned
from surefoot.learning.method import Observes
from surefoot.tabular.transition_model import TransitionModel

# The largest bet on a transition, relative to even.
LARGEST_RATIO = 1e6


@dataclass(frozen=True, eq=False)
class BallState:
    """Log-capital [B, J] of the bets, the counts they were settled on, and those observed since."""

    capital: Floats
    settled: Counts
    counts: Counts


@dataclass(frozen=True, eq=False)
class TransitionBall:
    """Theorem 3: the cell's dynamics may be anything within total variation `radius` of its centre, even changing.

    Bets f = 1 + b(q/P_j - 1) on each transition, with q the current prediction, divided by the most that their mean
    can be over the ball, 1 + radius·osc(f).
    """

    cells: Cells
    model: TransitionModel
    units: Units
    horizon: int  # most steps of an episode
    boldness: tuple[float, ...] = (1.0, 0.5, 0.25)
    observes: ClassVar[Observes] = "transitions"

    def start(self) -> BallState:
        empty = no_counts(self.model)
        return BallState(np.zeros((len(self.boldness), len(self.cells))), empty, empty)

    def observe(self, state: BallState, drawn: Integers, outcomes: Outcomes) -> BallState:
        return BallState(
            state.capital, state.settled, count_transitions(state.counts, outcomes, self.model, self.units)
        )

    def impossible(self, outcomes: Outcomes, before: BallState, after: BallState) -> Mask:
        exact = not bool(self.model.radius.any())
        if possible_counts(before.counts, after.counts, exact=exact):
            return np.zeros(len(outcomes), dtype=bool)
        return impossible_episodes(outcomes, self.model, self.units, exact=exact)

    def abandon(self, state: BallState, drawn: int) -> BallState:
        return replace(state, counts=replace(state.counts, abandoned=state.counts.abandoned + 1))

    def settle(self, state: BallState, surviving: Mask, planned: tuple[Planned, ...]) -> BallState:
        """Pay out the bets on what was observed since the last settlement, all placed with the prediction of then."""
        if state.counts.contradicted:
            return BallState(np.full_like(state.capital, np.inf), state.counts, state.counts)
        fresh = since(state.counts, state.settled)
        seen = class_counts(fresh, self.model)
        prediction = self._prediction(state.settled)
        ratio = np.minimum(prediction / np.maximum(self.model.probability, 1e-300), LARGEST_RATIO)  # [J, C]
        lowest, highest = self._range_in_row(ratio)
        # Where P_j = 0: the row's largest value, as in the theorem; in a ball of radius 0 nothing larger costs more.
        ratio = np.where((self.model.probability > 0) | (self.model.radius[:, None] == 0), ratio, highest)
        spread = highest - lowest
        observed = np.flatnonzero(seen)  # a prediction of 0 is a bet that loses everything, but only if it is called
        with np.errstate(divide="ignore"):
            payoff = np.stack(
                [
                    np.log1p(bold * (ratio - 1)) - np.log1p(self.model.radius[:, None] * bold * spread)
                    for bold in self.boldness
                ]
            )
        capital = state.capital + payoff[:, :, observed] @ seen[observed]
        beyond = impossible_counts(fresh, self.model)
        if beyond.any():
            # Impossible at the centre, but not in a ball of positive radius: it pays what the row pays at most.
            most = _per_row_type(payoff, self.model.row_type)[:, :, beyond > 0] @ beyond[beyond > 0]
            capital = np.where(self.model.radius > 0, capital + most, np.inf)
        capital = np.where(np.isposinf(state.capital), np.inf, capital)
        missing = state.counts.abandoned - state.settled.abandoned
        if missing:
            # Each step of an abandoned episode may have been the one that pays least.
            worst = missing * self.horizon * np.minimum(payoff.min(axis=2), 0.0)
            capital = np.where(np.isposinf(capital), capital, capital + worst)
        return BallState(capital, state.counts, state.counts)

    def log_evidence(self, state: BallState) -> Floats:
        return np.asarray(np.logaddexp.reduce(state.capital) - np.log(len(self.boldness)))

    def belief(self, state: BallState) -> Floats:
        return posterior(class_counts(state.counts, self.model), self.cells, self.model)

    def _prediction(self, counts: Counts) -> Floats:
        """[C] probability of each class's successors, from all cells, the boxes outside and the model per row type."""
        seen = class_counts(counts, self.model)
        alternatives = self._alternatives
        outside = len(alternatives) - len(self.cells)
        log_prior = np.log(np.maximum(self.cells.prior, 1e-300) * (1 - GLOBAL_WEIGHT - ROW_TYPE_WEIGHT))
        log_prior = np.concatenate([log_prior, np.full(outside, np.log(GLOBAL_WEIGHT / max(outside, 1)))])
        log_weights = np.append(
            log_prior + log_floored(alternatives) @ seen,
            np.log(ROW_TYPE_WEIGHT) + row_type_log_likelihood(seen, self.model),
        )
        weights = softmax(log_weights)
        mixed: Floats = weights[:-1] @ alternatives + weights[-1] * row_type_prediction(seen, self.model)
        return mixed

    @cached_property
    def _alternatives(self) -> Floats:
        return all_alternatives(self.cells, self.model)

    def _range_in_row(self, ratio: Floats) -> tuple[Floats, Floats]:
        """[J, C] smallest and largest ratio where P_j > 0, within the row that each class belongs to."""
        kinds, possible = self.model.row_type, self.model.probability > 0
        high = np.full((len(ratio), kinds.max() + 1), -np.inf)
        low = np.full_like(high, np.inf)
        for c, kind in enumerate(kinds):
            high[:, kind] = np.maximum(high[:, kind], np.where(possible[:, c], ratio[:, c], -np.inf))
            low[:, kind] = np.minimum(low[:, kind], np.where(possible[:, c], ratio[:, c], np.inf))
        return low[:, kinds], high[:, kinds]


def _per_row_type(payoff: Floats, row_type: Integers) -> Floats:
    """[B, J, T] the largest payoff [B, J, C] within each row type."""
    most: Floats = np.stack([payoff[:, :, row_type == kind].max(axis=2) for kind in range(row_type.max() + 1)], axis=2)
    return most
