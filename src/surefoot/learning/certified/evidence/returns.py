"""The cell-wise return e-process: evidence from what an episode returned and where it started (docs, Theorem 5).

If the task lies in cell j, an episode of policy π from first state s has mean returns inside the envelope at (j, π, s).
For a stake β with 1 + β·X > 0, the factor (1 + β·X)/(1 + max over the envelope of β·mean) has mean at most 1 there.
Products of such factors, and averages of products, are e-processes; they pool all policies, first states, reward and
costs. The returns X enter only through Σ log(1 + β·X), the same for all cells, so nothing is kept per episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from surefoot.arrays import Floats, Integers, Mask, check_indices
from surefoot.bounds.cells import Cells
from surefoot.cmdp.episode import Outcomes, add_in_order
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.learning.certified.replanning import Planned
from surefoot.learning.method import Observes

# Bets: multiples of the stake that grows fastest against the most dangerous cell left, and one on whatever direction
# the returns deviate from the best cell, so that a task outside the family raises the alarm.
BOLDNESS = (0.5, 1.0, 2.0)
BET_WEIGHTS = np.array([0.3, 0.35, 0.3, 0.05])
LOWEST_STAKE, HIGHEST_STAKE = -0.9, 50.0  # 1 + β·X stays positive for X in [0, 1]

# A bet against a cell that grows by less than this part of the best one is none: what is deployed does not tell.
TELLING = 1e-9

# Cells with more evidence against them than e^this are not bet against any longer.
SETTLED_AGAINST = 10.0
# What the spread of scaled returns is taken for before there are data, worth this many episodes.
PRIOR_SPREAD, PRIOR_EPISODES = 0.05, 5.0


@dataclass(frozen=True, eq=False)
class ReturnState:
    """Capital and the sums since the last settlement; X is (reward, costs) scaled to [0, 1], k = 1+m of them.

    Attributes:
        capital: [B, J] log-capital of each bet against each cell.
        stakes: [B, k] in force until the next settlement.
        pending: {(policy, first state): (episodes, Σ X [k], Σ log(1 + β·X) [B])}, in order of first appearance.
        squares: [k, k] Σ X Xᵀ of pending episodes.
        fit: [J] log-weights of a normal approximation, for the belief.
        spread: [k, k] summed squares of deviations from the best cell; `deviation` [k] their sum; over `episodes`.
    """

    capital: Floats
    stakes: Floats
    pending: Mapping[tuple[int, int], tuple[float, Floats, Floats]]
    squares: Floats
    fit: Floats
    spread: Floats
    deviation: Floats
    episodes: float


@dataclass(frozen=True, eq=False)
class ReturnProcess:
    """Evidence from discounted sums and first states alone.

    Attributes:
        horizon: the most steps of an episode, which may miss what would have followed.
        first_states: whether means are bounded given the first state; otherwise over the start distribution, which asks
            for no observation but the sums and learns less from them.
        settled_against: evidence from which on a cell is not bet against any longer; above the log(1/δ) in use.
    """

    cells: Cells
    units: Units
    horizon: int
    settled_against: float = SETTLED_AGAINST
    first_states: bool = True

    @property
    def observes(self) -> Observes:
        return "first-state" if self.first_states else "sums"

    def start(self) -> ReturnState:
        signals = 1 + len(self.units.budget)
        return ReturnState(
            np.zeros((len(BET_WEIGHTS), len(self.cells))),
            np.zeros((len(BET_WEIGHTS), signals)),
            {},
            np.zeros((signals, signals)),
            np.log(np.maximum(self.cells.prior, 1e-300)),
            PRIOR_EPISODES * PRIOR_SPREAD**2 * np.eye(signals),
            np.zeros(signals),
            PRIOR_EPISODES,
        )

    def observe(self, state: ReturnState, drawn: Integers, outcomes: Outcomes) -> ReturnState:
        """One episode after the other, so that blocks and single episodes round alike."""
        scaled = self.units.scaled(outcomes.sums)
        # Not a matrix product: its rounding depends on the number of rows.
        gains = np.log1p((scaled[:, None, :] * state.stakes).sum(axis=-1))
        alike: dict[tuple[int, int], list[int]] = {}
        for k, kind in enumerate(zip(drawn.tolist(), self._places(outcomes).tolist(), strict=True)):
            alike.setdefault(kind, []).append(k)
        pending = dict(state.pending)
        nothing = 0.0, np.zeros(scaled.shape[1]), np.zeros(gains.shape[1])
        for kind, rows in alike.items():
            episodes, total, gained = pending.get(kind, nothing)
            own = (scaled, gains) if len(rows) == len(scaled) else (scaled[rows], gains[rows])
            pending[kind] = episodes + len(rows), add_in_order(total, own[0]), add_in_order(gained, own[1])
        return replace(
            state,
            pending=pending,
            squares=add_in_order(state.squares, scaled[:, :, None] * scaled[:, None, :]),
        )

    def impossible(self, outcomes: Outcomes, before: ReturnState, after: ReturnState) -> Mask:
        """[n] none: every sum within its range has some chance in every cell."""
        return np.zeros(len(outcomes), dtype=bool)

    def abandon(self, state: ReturnState, drawn: int) -> ReturnState:
        """Every bet is paid the least that it can be: the gain of the worst X, less the largest mean allowed."""
        worst, best = np.minimum(state.stakes, 0.0).sum(axis=1), np.maximum(state.stakes, 0.0).sum(axis=1)
        return replace(state, capital=state.capital + (np.log1p(worst) - np.log1p(best))[:, None])

    def settle(self, state: ReturnState, surviving: Mask, planned: tuple[Planned, ...]) -> ReturnState:
        """Pay out the pending bets and place new ones against the most dangerous of the surviving cells on which other
        returns are expected of what was deployed."""
        open_cells = np.flatnonzero(self.log_evidence(state) < self.settled_against)
        if not state.pending or not open_cells.size:
            return state
        count, total, gain = (np.array(part) for part in zip(*state.pending.values(), strict=True))
        low, high = self._envelopes(list(state.pending), open_cells, planned)  # [N, J', k]
        capital, fit = state.capital.copy(), np.full(len(self.cells), -np.inf)
        capital[:, open_cells] += _payoff(state.stakes, count, gain, low, high)
        middle = (low + high) / 2
        fit[open_cells] = state.fit[open_cells] + _normal_fit(middle, count, total, state.spread / state.episodes)
        best = middle[:, int(np.argmax(fit[open_cells]))]
        seen = replace(
            state,
            capital=capital,
            pending={},
            squares=np.zeros_like(state.squares),
            fit=fit,
            spread=state.spread + _squared_deviations(state.squares, count, total, best),
            deviation=state.deviation + (total - count[:, None] * best).sum(axis=0),
            episodes=state.episodes + count.sum(),
        )
        mean = np.einsum("n,njk->jk", count / count.sum(), middle)
        return replace(seen, stakes=self._stakes(seen, surviving[open_cells], open_cells, mean))

    def log_evidence(self, state: ReturnState) -> Floats:
        """[J] log of the weighted mean capital."""
        return np.asarray(np.logaddexp.reduce(state.capital + np.log(BET_WEIGHTS)[:, None]))

    def belief(self, state: ReturnState) -> Floats:
        weights: Floats = np.exp(state.fit - np.logaddexp.reduce(state.fit))
        return weights

    def _stakes(self, state: ReturnState, surviving: Mask, open_cells: Integers, mean: Floats) -> Floats:
        """[B, k] Σ⁻¹·(expected minus mean at the cell bet against), the fastest growing stake for small differences."""
        alive = np.flatnonzero(surviving)
        if not alive.size:
            return np.zeros_like(state.stakes)
        expected = self.belief(state)[open_cells] @ mean
        precision = np.linalg.inv(state.spread / state.episodes + 1e-12 * np.eye(len(state.spread)))
        apart = expected - mean[alive]
        growth = ((apart @ precision) * apart).sum(axis=1)
        told = alive[growth >= TELLING * growth.max()]
        worst = int(told[np.argmax(self.cells.danger[open_cells[told]])])
        against_worst = precision @ (expected - mean[worst])
        misfit = precision @ (state.deviation / state.episodes)
        stakes = np.stack([*(bold * against_worst for bold in BOLDNESS), misfit])
        # Scale whole vectors down, so that 1 + β·X ≥ 1 + LOWEST_STAKE whatever X in [0, 1]^k is.
        depth = -np.minimum(stakes, 0.0).sum(axis=1, keepdims=True)
        stakes = stakes * np.minimum(1.0, -LOWEST_STAKE / np.maximum(depth, -LOWEST_STAKE))
        capped: Floats = np.minimum(stakes, HIGHEST_STAKE)
        return capped

    def _places(self, outcomes: Outcomes) -> Integers:
        """[n] rows of the tables for the first states, or an error that names one that does not exist; 0 where they do
        not matter."""
        if not self.first_states:
            return np.zeros(len(outcomes), dtype=np.int64)
        if outcomes.states is None:
            raise InvalidInput("states must hold at least the first state of each episode, got None")
        first, known = outcomes.states[:, 0], self.cells.first_states
        if known is None:
            check_indices("states", first, self._tables[0].shape[1])
            return first
        place = np.minimum(np.searchsorted(known, first), len(known) - 1)
        return np.where(known[place] == first, place, len(known))  # elsewhere: the last row, of which nothing is known

    def _envelopes(
        self, places: list[tuple[int, int]], open_cells: Integers, planned: tuple[Planned, ...]
    ) -> tuple[Floats, Floats]:
        """Lower and upper [N, J', k] mean scaled returns of (policy, first state) pairs, truncation included."""
        policies, firsts = np.array(places).T
        shape = (len(places), len(open_cells), 1 + len(self.units.budget))
        lower, upper = np.empty(shape), np.empty(shape)
        for policy in np.unique(policies):
            rows = np.flatnonzero(policies == policy)
            pick = np.ix_(firsts[rows], open_cells)
            if policy < len(self._tables[0]):
                lower[rows], upper[rows] = self._tables[0][policy][pick], self._tables[1][policy][pick]
            else:
                plan = planned[policy - len(self._tables[0])]
                sides = (plan.start_lower, plan.start_upper)
                lower[rows], upper[rows] = (
                    side[pick] for side in self._with_elsewhere(*self.units.scaled_sums(*sides, self.horizon))
                )
        return lower, upper

    @cached_property
    def _tables(self) -> tuple[Floats, Floats]:
        """[P, S, J, k] scaled bounds of the policies in the set; [P, 1, J, k] over the start distribution;
        [P, F+1, J, k] where there are bounds for some first states only."""
        low, high = self.cells.lower[..., None], self.cells.upper[..., None]  # [J, P, k, 1]
        if self.first_states:
            if self.cells.start_lower is None or self.cells.start_upper is None:
                raise InvalidInput("cells must have bounds per first state for first_states=True, got none")
            low, high = self.cells.start_lower, self.cells.start_upper
        order = (1, 3, 0, 2)  # from [J, P, k, S]
        scaled = self._with_elsewhere(
            *self.units.scaled_sums(low.transpose(order), high.transpose(order), self.horizon)
        )
        return np.ascontiguousarray(scaled[0]), np.ascontiguousarray(scaled[1])

    def _with_elsewhere(self, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
        """Bounds [..., F, J, k] with one more row, for first states that no bounds were made for: anything goes."""
        if not self.first_states or self.cells.first_states is None:
            return lower, upper
        nothing = np.zeros_like(lower[..., :1, :, :])
        return np.concatenate([lower, nothing], axis=-3), np.concatenate([upper, nothing + 1.0], axis=-3)


def _payoff(stakes: Floats, count: Floats, gain: Floats, low: Floats, high: Floats) -> Floats:
    """[B, J'] growth of the log-capital: gains [N, B] less what the envelopes [N, J', k] allow on average.

    Where nothing is known of a policy on a cell (its bounds are the whole range), nothing is staked on it there.
    """
    spread = stakes[:, None, None, :]
    most = np.maximum(spread * low, spread * high).sum(axis=-1)  # [B, N, J']
    known = (high - low < 1.0).any(axis=-1)  # [N, J']
    growth: Floats = np.where(known, gain.T[:, :, None] - count[:, None] * np.log1p(most), 0.0).sum(axis=1)
    return growth


def _normal_fit(middle: Floats, count: Floats, total: Floats, covariance: Floats) -> Floats:
    """[J] log-likelihood of the returns, up to a constant, if they were normal around the middle of each envelope."""
    precision = np.linalg.inv(covariance + 1e-12 * np.eye(len(covariance)))
    leaning = middle @ precision  # [N, J, k]
    fit: Floats = np.einsum("njk,nk->j", leaning, total) - np.einsum("njk,njk,n->j", leaning, middle, count) / 2
    return fit


def _squared_deviations(squares: Floats, count: Floats, total: Floats, best: Floats) -> Floats:
    """[k, k] Σ (X - b)(X - b)ᵀ from the sums of X, of XXᵀ, and the means b [N, k] of each group."""
    cross = total.T @ best
    summed: Floats = squares - cross - cross.T + (best * count[:, None]).T @ best
    return summed
