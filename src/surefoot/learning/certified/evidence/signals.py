"""The signal e-process: evidence from the sums of episodes and from signals that were learned (docs, Theorem 7).

If the task lies in cell j, each number X in [0, 1] of an episode of policy π (its scaled reward and costs, its signals)
has a mean between bounds that are known for (j, π). So r = X/upper and r = (1-X)/(1-lower) have means of at most 1
there, and whoever puts a fraction f of a capital on one of them, chosen before the episode, multiplies it by
(1-f) + f·r. Products of such factors, and averages of products, are e-processes for cell j.

The bet against a cell is the one that grows fastest if episodes are distributed as in simulation on the cells that fit
best so far (or, with a small part of the capital, as they were observed): a cell far off is bet against boldly, one
nearby with care. The laws that decide it may be as wrong as they like: that costs power only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from surefoot.arrays import Floats, Integers, Mask
from surefoot.bounds.cells import Cells, Readings
from surefoot.cmdp.episode import Outcomes, add_in_order
from surefoot.cmdp.units import Units
from surefoot.learning.certified.replanning import Planned
from surefoot.learning.method import Observes

# Fractions of the capital that may be put on one number of an episode.
FRACTIONS = np.array([0.01, 0.03, 0.08, 0.2, 0.4, 0.65, 0.9, 0.98])

# Bets that are weighed against each other exactly, of those that seem best.
CONSIDERED = 3

# Bets: on what simulation says of the cells that fit best, and on what was observed, so that a task outside the family
# raises the alarm; the latter begins as the former, as if seen in so many episodes.
BET_WEIGHTS = np.array([0.8, 0.2])
PRIOR_EPISODES = 10.0

# Numbers of one episode overlap: for the belief they count as no more than so many independent ones.
INDEPENDENT = 3.0

SMALLEST_MEAN = 1e-9  # bounds on means are taken to be no closer to 0 or 1, which leaves them bounds


@dataclass(frozen=True, eq=False)
class SignalState:
    """Capital, and what bets follow from: those until the next decision from what was known at the last one.

    Attributes:
        capital: [B, J] log-capital of each bet against each cell.
        fit: [J] log-weights of the cells, for the belief; and at the last decision.
        seen: [P, k, L] how often each number of a policy's episodes was in each bin; and at the last decision.
        open_then: [J] whether there was not yet evidence enough against a cell at the last decision.
    """

    capital: Floats
    fit: Floats
    seen: Floats
    fit_then: Floats
    seen_then: Floats
    open_then: Mask


class Bets(NamedTuple):
    """Per bet and cell [B, J]: the number of the episode, 0 for X/upper or 1 for (1-X)/(1-lower), and the fraction."""

    number: Integers
    side: Integers
    fraction: Floats


@dataclass(frozen=True, eq=False)
class SignalProcess:
    """Evidence from discounted sums and signals.

    Attributes:
        horizon: steps of an episode, with which signals were bounded.
        settled_against: evidence from which on a cell is not bet against any longer; above the log(1/δ) in use.
    """

    cells: Cells
    readings: Readings
    units: Units
    horizon: int
    settled_against: float

    @property
    def observes(self) -> Observes:
        return "signals"

    def start(self) -> SignalState:
        capital, seen = np.zeros((len(BET_WEIGHTS), len(self.cells))), np.zeros(self.readings.law.shape[1:])
        fit = np.log(np.maximum(self.cells.prior, 1e-300))
        return SignalState(capital, fit, seen, fit, seen, np.ones(len(self.cells), dtype=bool))

    def observe(self, state: SignalState, drawn: Integers, outcomes: Outcomes) -> SignalState:
        """The bets of each episode paid out, one after the other, so that blocks and single episodes round alike."""
        signals = self.readings.signals.of_outcomes(drawn, outcomes)
        numbers = np.concatenate([self.units.scaled(outcomes.sums), signals], axis=1)  # [n, k]
        bins = self.readings.bins(numbers)
        growth, fit = np.zeros((len(drawn), *state.capital.shape)), np.zeros((len(drawn), len(self.cells)))
        seen, each = state.seen.copy(), np.arange(numbers.shape[1])
        for policy in np.unique(drawn):
            rows = np.flatnonzero(drawn == policy)
            bets = self._bets(state, int(policy))
            if bets.fraction.any():
                growth[rows] = np.log(self._factors(numbers[rows], int(policy), bets))
            fit[rows] = self.readings.log_law[policy, each, bins[rows]].sum(axis=1) * min(1.0, INDEPENDENT / len(each))
            np.add.at(seen, (policy, each, bins[rows]), 1.0)
        return replace(state, capital=add_in_order(state.capital, growth), fit=add_in_order(state.fit, fit), seen=seen)

    def impossible(self, outcomes: Outcomes, before: SignalState, after: SignalState) -> Mask:
        """[n] none: every number in [0, 1] has some chance in every cell."""
        return np.zeros(len(outcomes), dtype=bool)

    def abandon(self, state: SignalState, drawn: int) -> SignalState:
        """Every bet is lost: r = 0 is the least that it can pay."""
        return replace(state, capital=state.capital + np.log1p(-self._bets(state, drawn).fraction))

    def settle(self, state: SignalState, surviving: Mask, planned: tuple[Planned, ...]) -> SignalState:
        """From now on bets follow from what has been seen up to now."""
        open_now = self.log_evidence(state) < self.settled_against
        return replace(state, fit_then=state.fit, seen_then=state.seen, open_then=open_now)

    def log_evidence(self, state: SignalState) -> Floats:
        """[J] log of the weighted mean capital."""
        return np.asarray(np.logaddexp.reduce(state.capital + np.log(BET_WEIGHTS)[:, None]))

    def belief(self, state: SignalState) -> Floats:
        return _softmax(state.fit)

    def _factors(self, numbers: Floats, policy: int, bets: Bets) -> Floats:
        """[n, B, J] what each bet multiplies its capital by, given numbers [n, k]."""
        bounds = self._means[:, policy]  # [2, k, J]
        mean = bounds[bets.side, bets.number, np.arange(bounds.shape[2])]
        value = numbers[:, bets.number]
        ratio = np.where(bets.side == 0, value, 1 - value) / mean
        factors: Floats = (1 - bets.fraction) + bets.fraction * ratio
        return factors

    def _bets(self, state: SignalState, policy: int) -> Bets:
        """Against every cell the number, side and fraction of the largest expected growth; nothing where none grows."""
        cells, shape = np.flatnonzero(state.open_then), state.capital.shape
        bets = Bets(np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape))
        if not cells.size:
            return bets
        laws, means = self._expected(state, policy), self._means[:, policy][..., cells]
        side, number = promising(laws, self.readings.values, means)  # [B, C, J']
        growth = expected_growth(laws, self.readings.values, means, side, number)  # [B, C, F, J']
        flat = growth.reshape(len(growth), -1, len(cells))
        best = flat.argmax(axis=1)[:, None]
        chosen, fraction = np.unravel_index(best, growth.shape[1:3])
        bets.side[:, cells] = np.take_along_axis(side, chosen, axis=1)[:, 0]
        bets.number[:, cells] = np.take_along_axis(number, chosen, axis=1)[:, 0]
        bets.fraction[:, cells] = np.where(np.take_along_axis(flat, best, axis=1) > 0, FRACTIONS[fraction], 0.0)[:, 0]
        return bets

    def _expected(self, state: SignalState, policy: int) -> Floats:
        """[B, k, L] how the next episode of a policy is expected to be distributed."""
        simulated = np.einsum("j,jkl->kl", _softmax(state.fit_then), self.readings.law[:, policy])
        seen = state.seen_then[policy]
        observed = (PRIOR_EPISODES * simulated + seen) / (PRIOR_EPISODES + seen.sum(axis=1, keepdims=True))
        return np.stack([simulated, observed])

    @cached_property
    def _means(self) -> Floats:
        """[2, P, k, J] the largest mean of X, and of 1-X, that each cell allows."""
        sums = self.units.scaled_sums(self.cells.lower, self.cells.upper, self.horizon)
        low, high = (
            np.concatenate([side, own], axis=2)
            for side, own in zip(sums, (self.readings.lower, self.readings.upper), strict=True)
        )
        means = np.stack([high, 1 - low]).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(np.clip(means, SMALLEST_MEAN, 1.0))


def promising(laws: Floats, values: Floats, means: Floats) -> tuple[Integers, Integers]:
    """[B, C, J] each: the sides and numbers of the C bets that seem to grow fastest against each cell, by the first two
    moments of r - 1 alone: f·m - f²·v/2 at the best f; given laws [B, k, L] of numbers with values [k, L]."""
    both = np.stack([values, 1 - values])  # [2, k, L]
    first, second = (np.einsum("bkl,skl->bsk", laws, both**power)[..., None] / means**power for power in (1, 2))
    mean, square = first - 1, np.maximum(second - 2 * first + 1, SMALLEST_MEAN)  # [B, 2, k, J]
    fraction = np.clip(mean / square, 0.0, FRACTIONS[-1])
    growth = (fraction * mean - fraction**2 * square / 2).reshape(len(laws), -1, means.shape[-1])
    best = np.argsort(-growth, axis=1, kind="stable")[:, :CONSIDERED]
    side, number = np.unravel_index(best, means.shape[:2])
    return side, number


def expected_growth(laws: Floats, values: Floats, means: Floats, side: Integers, number: Integers) -> Floats:
    """[B, C, F, J] E log((1-f) + f·r) under laws [B, k, L] of numbers with values [k, L], for r = X/upper or
    (1-X)/(1-lower) by side and number [B, C, J], given means [2, k, J]."""
    mean = means[side, number, np.arange(means.shape[-1])]
    ratio = np.where(side[..., None] == 0, values[number], 1 - values[number]) / mean[..., None]  # [B, C, J, L]
    law = np.take_along_axis(laws, number.reshape(len(laws), -1, 1), axis=1).reshape(ratio.shape)
    growth = [(law * np.log((1 - fraction) + fraction * ratio)).sum(axis=-1) for fraction in FRACTIONS]
    return np.stack(growth, axis=2)


def _softmax(logarithms: Floats) -> Floats:
    weights: Floats = np.exp(logarithms - np.logaddexp.reduce(logarithms))
    return weights
