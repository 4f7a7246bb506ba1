"""e-processes from observed transitions: which cells can still hold the task (docs/guarantees.md, Theorems 2 and 3).

For each cell j a nonnegative process E(j) that, if the task lies in j, ever reaches 1/δ with probability at most δ.
Only the true cell has to survive, so there is no union over cells, and each cell may be tested against alternatives of
its own: those that are less dangerous than itself, since only ruling out dangerous cells lets the learner move on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import gammaln

from surefoot.adapt.replanning import Planned
from surefoot.cmdp.episode import Integers, Outcomes, discounted_sum
from surefoot.cmdp.model import Floats, Units
from surefoot.errors import InvalidInput
from surefoot.policyset.cells import Cells, Mask, TransitionModel

# Alternatives of a cell: normal kernels whose widths are these fractions of the spread of the tasks, so weighted.
# Chosen to minimise the summed width of the confidence bound over 1 ... 40 000 episodes.
LOCAL_SCALES = (1.0, 1 / 6)
LOCAL_WEIGHTS = (0.19, 0.75)
# All cells and the uncovered part of the box, so that a task out there empties the set.
GLOBAL_WEIGHT = 0.04
# Models of their own for every row type and for every row, so that dynamics outside the family empty the set too.
ROW_TYPE_WEIGHT, ROW_WEIGHT = 0.01, 0.01

# Alternatives whose likelihood is below this fraction of the best one are left out.
NEGLIGIBLE = 1e-12

# Newton sweeps over the parameters: for the overall maximum, and within each cell.
PEAK_SWEEPS, CELL_SWEEPS = 10, 2

# The largest bet on a transition, relative to even.
LARGEST_RATIO = 1e6

# Most steps of an episode, where nobody said.
LONGEST_EPISODE = 1000

# Observed sums may differ from those of the visited states and actions by rounding only, relative to their range.
SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each transition was observed, [S, A, S], and whether something impossible in every cell was.

    Of `abandoned` episodes nothing is known but that they took at most as many steps as they may.
    """

    transitions: Floats
    contradicted: bool = False
    abandoned: int = 0


@dataclass(frozen=True, eq=False)
class LikelihoodRatio:
    """Theorem 2: mixture of alternatives over the best likelihood in the cell, for known transition probabilities."""

    cells: Cells
    model: TransitionModel
    units: Units
    horizon: int = LONGEST_EPISODE  # most steps of an episode

    def start(self) -> Counts:
        return Counts(np.zeros(self.model.classes.shape))

    def observe(self, state: Counts, drawn: Integers, outcomes: Outcomes) -> Counts:
        return count_transitions(state, outcomes, self.model, self.units)

    def abandon(self, state: Counts, drawn: int) -> Counts:
        return replace(state, abandoned=state.abandoned + 1)

    def settle(self, state: Counts, surviving: Mask, planned: tuple[Planned, ...]) -> Counts:
        return state

    def log_evidence(self, state: Counts) -> Floats:
        """[J] log E(j)."""
        seen = class_counts(state, self.model)
        if state.contradicted or impossible_counts(state, self.model).any():
            return np.full(len(self.cells), np.inf)
        likelihood = seen @ self._log_alternatives.T
        if state.abandoned:
            steps = state.abandoned * self.horizon
            return self._least_log_mixture(likelihood, steps) - self._best_in_cell(seen)
        best = float(likelihood.max())
        relative = np.exp(likelihood - best)
        inside = relative[: len(self.cells)]
        near = np.flatnonzero(inside > NEGLIGIBLE)  # leaving alternatives out lowers E: valid, and much faster
        mixture = self._local[:, near] @ inside[near] + GLOBAL_WEIGHT * relative.mean()
        log_mixture = np.log(np.maximum(mixture, 1e-300)) + best
        log_mixture = np.logaddexp(log_mixture, np.log(ROW_TYPE_WEIGHT) + row_type_log_likelihood(seen, self.model))
        log_mixture = np.logaddexp(log_mixture, np.log(ROW_WEIGHT) + row_log_likelihood(state, self.model))
        evidence: Floats = log_mixture - self._best_in_cell(seen)
        return evidence

    def belief(self, state: Counts) -> Floats:
        """[J] posterior over cells under the task distribution; it guides the choice of policies, not their safety."""
        return posterior(class_counts(state, self.model), self.cells, self.model)

    def _best_in_cell(self, seen: Floats) -> Floats:
        """[J] upper bound on the log-likelihood over each cell, exact in one dimension but for rounding.

        In an affine family the log-likelihood is concave, so it lies below its tangent at any point: take the point of
        the box nearest to the overall maximum, and, where parameters interact, better ones from there on. Every tangent
        is a bound, so the least of them is.
        """
        if self.model.affine is None:
            return seen @ _log(self.model.probability).T
        low, high = self.cells.low, self.cells.high
        best = self.cells.centre[[int(np.argmax(_log(self.model.probability) @ seen))]]
        peak = _ascend(
            seen, self.model, best, low.min(axis=0, keepdims=True), high.max(axis=0, keepdims=True), PEAK_SWEEPS
        )
        point = np.clip(peak, low, high)
        bound = self._tangent_bound(seen, point)
        for _ in range(CELL_SWEEPS if low.shape[1] > 1 else 0):
            point = _ascend(seen, self.model, point, low, high, 1)
            bound = np.minimum(bound, self._tangent_bound(seen, point))
        return bound

    def _tangent_bound(self, seen: Floats, point: Floats) -> Floats:
        """[J] the most that the tangent of the log-likelihood at point [J, d] reaches in each cell."""
        probability = self.model.class_probability(point)
        gradient = (seen / np.maximum(probability, 1e-300)) @ self.model.affine[1]  # type: ignore[index]
        rise = np.maximum(gradient * (self.cells.low - point), gradient * (self.cells.high - point))
        bound: Floats = _log(probability) @ seen + rise.sum(axis=1)
        return bound

    def _least_log_mixture(self, likelihood: Floats, steps: int) -> Floats:
        """[J] log of the mixture of alternatives after `steps` more transitions, relative to the cell's likelihood of
        them, if each was the one that speaks most for the cell. The models learned on the way are left out."""
        weights = np.full(self._worst_step.shape, GLOBAL_WEIGHT / len(likelihood))
        weights[:, : len(self.cells)] += self._local
        least = likelihood + steps * self._worst_step
        best = least.max(axis=1, keepdims=True)
        mixture: Floats = np.log((weights * np.exp(least - best)).sum(axis=1)) + best[:, 0]
        return mixture

    @cached_property
    def _worst_step(self) -> Floats:
        """[J, J + J'] smallest log-ratio of an alternative to any member of the cell, over the possible transitions."""
        highest = self.model.probability
        if self.model.affine is not None:
            base, slope = self.model.affine
            highest = base + sum(
                np.maximum(self.cells.low[:, k, None] * slope[:, k], self.cells.high[:, k, None] * slope[:, k])
                for k in range(slope.shape[1])
            )
        worst: Floats = np.zeros((len(self.cells), len(self._log_alternatives)))
        for c in range(len(self.model.row_type)):
            ratio = self._log_alternatives[:, c] - _log(np.minimum(highest[:, c], 1.0))[:, None]
            worst = np.where(highest[:, c, None] > 0, np.minimum(worst, ratio), worst)
        return worst

    @cached_property
    def _log_alternatives(self) -> Floats:
        return _log(all_alternatives(self.cells, self.model))

    @cached_property
    def _local(self) -> Floats:
        """[J, J] weights of the alternatives of each cell."""
        return local_alternatives(self.cells)


def all_alternatives(cells: Cells, model: TransitionModel) -> Floats:
    """[J + J', C] probabilities at the centres of all cells and of the boxes outside."""
    if model.affine is None or not len(cells.outside):
        return model.probability
    outside = np.clip(model.class_probability(cells.outside), 0.0, 1.0)
    return np.concatenate([model.probability, outside])


def local_alternatives(cells: Cells) -> Floats:
    """[J, J] per cell, weights over itself and the less dangerous cells around it; rows sum to Σ LOCAL_WEIGHTS."""
    centre, prior = cells.centre, cells.prior / cells.prior.sum()
    spread = np.sqrt(prior @ (centre - prior @ centre) ** 2)
    spread = np.where(spread > 0, spread, 1.0)
    squared = sum(((centre[:, None, k] - centre[None, :, k]) / spread[k]) ** 2 for k in range(centre.shape[1]))
    safer = cells.danger[None, :] <= cells.danger[:, None]
    volume = np.prod(np.maximum(cells.high - cells.low, 0.0), axis=1)
    volume = volume if (volume > 0).all() else np.ones(len(cells))
    weights: Floats = np.zeros((len(cells), len(cells)))
    for scale, weight in zip(LOCAL_SCALES, LOCAL_WEIGHTS, strict=True):
        kernel = np.where(safer, np.exp(-squared / (2 * scale**2)) * volume, 0.0)
        weights += weight * kernel / kernel.sum(axis=1, keepdims=True)
    return weights


def count_transitions(state: Counts, outcomes: Outcomes, model: TransitionModel, units: Units) -> Counts:
    """Add the observed transitions; note rewards, costs or first states that no cell allows."""
    states, actions, after = step_indices(outcomes)
    _check_indices(states, actions, after, model)
    flat = (states * model.classes.shape[1] + actions) * model.classes.shape[2] + after
    fresh = np.bincount(flat.ravel(), minlength=state.transitions.size).reshape(state.transitions.shape)
    contradicted = state.contradicted or not _sums_agree(states, actions, outcomes, model, units)
    return replace(state, transitions=state.transitions + fresh, contradicted=contradicted)


def step_indices(outcomes: Outcomes) -> tuple[Integers, Integers, Integers]:
    """State, action and next state of every step, each [n, H]."""
    if outcomes.states is None or outcomes.actions is None:
        raise TypeError("transitions were not observed")
    states = outcomes.states.astype(np.int64)
    return states[:, :-1], outcomes.actions.astype(np.int64), states[:, 1:]


def _check_indices(states: Integers, actions: Integers, after: Integers, model: TransitionModel) -> None:
    """An index that does not exist would be counted as another transition."""
    for name, values, count in (
        ("states", states, model.classes.shape[0]),
        ("actions", actions, model.classes.shape[1]),
        ("states", after, model.classes.shape[0]),
    ):
        outside = (values < 0) | (values >= count)
        if outside.any():
            raise InvalidInput(f"{name} must lie in [0, {count}), got {values[outside][0]}")


def _sums_agree(states: Integers, actions: Integers, outcomes: Outcomes, model: TransitionModel, units: Units) -> bool:
    """Hard tests: the first states are possible, and the sums are those of the visited states and actions."""
    if (model.start[states[:, 0]] <= 0).any():
        return False
    reward = discounted_sum(model.reward[states, actions].T, units.discount)
    cost = np.stack([discounted_sum(table[states, actions].T, units.discount) for table in model.cost], axis=1)
    reward_span = np.ptp([0.0, *units.reward_value_range])  # of constant signals, 0 to their sum
    cost_span = np.ptp(np.pad(units.cost_value_range, ((0, 0), (0, 1))), axis=1)
    return bool(
        (np.abs(reward - outcomes.reward) <= SUM_TOLERANCE * reward_span).all()
        and (np.abs(cost - outcomes.cost) <= SUM_TOLERANCE * cost_span).all()
    )


def class_counts(state: Counts, model: TransitionModel) -> Floats:
    """[C] observations per class."""
    possible = model.classes >= 0
    return np.bincount(
        model.classes[possible], weights=state.transitions[possible], minlength=len(model.row_type)
    ).astype(np.float64)


def impossible_counts(state: Counts, model: TransitionModel) -> Floats:
    """[T] observations per row type of successors that no cell's centre allows."""
    beyond = np.where(model.classes < 0, state.transitions, 0.0).sum(axis=2)
    return np.bincount(model.row_kind.ravel(), weights=beyond.ravel()).astype(np.float64)


def row_type_log_likelihood(seen: Floats, model: TransitionModel) -> float:
    """Log-probability of the transitions if each row type had class probabilities of its own, learned on the way.

    A Dirichlet prior over the classes of every row type; successors of one class are equally likely.
    """
    totals, pseudo = np.bincount(model.row_type, weights=seen), np.bincount(model.row_type) / 2
    entries = gammaln(0.5 + seen) - gammaln(0.5) - seen * np.log(model.multiplicity)
    return float(entries.sum() + (gammaln(pseudo) - gammaln(pseudo + totals)).sum())


def row_type_prediction(seen: Floats, model: TransitionModel) -> Floats:
    """[C] probability of each class's successors in the next transition under that model."""
    totals, pseudo = np.bincount(model.row_type, weights=seen), np.bincount(model.row_type) / 2
    share: Floats = (0.5 + seen) / (pseudo + totals)[model.row_type] / model.multiplicity
    return share


def row_log_likelihood(state: Counts, model: TransitionModel) -> float:
    """Log-probability of the transitions under a Dirichlet prior for every row: any dynamics, learned on the way."""
    pseudo = np.where(model.classes >= 0, 0.5, 1e-3)
    rows = pseudo.sum(axis=2)
    seen = state.transitions > 0
    entries = gammaln(pseudo[seen] + state.transitions[seen]) - gammaln(pseudo[seen])
    totals = gammaln(rows) - gammaln(rows + state.transitions.sum(axis=2))
    return float(entries.sum() + totals.sum())


def _ascend(seen: Floats, model: TransitionModel, point: Floats, low: Floats, high: Floats, sweeps: int) -> Floats:
    """[n, d] points of higher log-likelihood within boxes: Newton steps, one parameter at a time.

    A step goes at most nine tenths of the way to an edge. On the edge a transition that was observed may be impossible,
    and Newton's method does not come back from there.
    """
    base, slope = model.affine if model.affine is not None else (np.empty(0), np.empty((0, point.shape[1])))
    base, slope, count = base[seen > 0], slope[seen > 0], seen[seen > 0]
    point = point.copy()
    for k in np.tile(np.arange(point.shape[1]), sweeps):
        ratio = slope[:, k] / np.maximum(base + point @ slope.T, 1e-300)  # [n, C]
        step = ratio @ count / np.maximum(ratio**2 @ count, 1e-300)
        point[:, k] += np.clip(step, 0.9 * (low[:, k] - point[:, k]), 0.9 * (high[:, k] - point[:, k]))
    return point


def _log(probability: Floats) -> Floats:
    return np.log(np.maximum(probability, 1e-300))


def _normalised(log_weights: Floats) -> Floats:
    weights: Floats = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    return weights


def posterior(seen: Floats, cells: Cells, model: TransitionModel) -> Floats:
    """[J] probability of each cell given the class counts, by the likelihood at its centre."""
    return _normalised(np.log(np.maximum(cells.prior, 1e-300)) + seen @ _log(model.probability).T)


def _per_row_type(payoff: Floats, row_type: Integers) -> Floats:
    """[B, J, T] the largest payoff [B, J, C] within each row type."""
    most: Floats = np.stack([payoff[:, :, row_type == kind].max(axis=2) for kind in range(row_type.max() + 1)], axis=2)
    return most


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
    boldness: tuple[float, ...] = (1.0, 0.5, 0.25)
    horizon: int = LONGEST_EPISODE  # most steps of an episode

    def start(self) -> BallState:
        empty = Counts(np.zeros(self.model.classes.shape))
        return BallState(np.zeros((len(self.boldness), len(self.cells))), empty, empty)

    def observe(self, state: BallState, drawn: Integers, outcomes: Outcomes) -> BallState:
        return BallState(
            state.capital, state.settled, count_transitions(state.counts, outcomes, self.model, self.units)
        )

    def abandon(self, state: BallState, drawn: int) -> BallState:
        return replace(state, counts=replace(state.counts, abandoned=state.counts.abandoned + 1))

    def settle(self, state: BallState, surviving: Mask, planned: tuple[Planned, ...]) -> BallState:
        """Pay out the bets on what was observed since the last settlement, all placed with the prediction of then."""
        if state.counts.contradicted:
            return BallState(np.full_like(state.capital, np.inf), state.counts, state.counts)
        fresh = Counts(state.counts.transitions - state.settled.transitions)
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
            log_prior + _log(alternatives) @ seen, np.log(ROW_TYPE_WEIGHT) + row_type_log_likelihood(seen, self.model)
        )
        weights = _normalised(log_weights)
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
