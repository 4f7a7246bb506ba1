"""A test for "this task is not one of those trained for", at a stated probability of a false alarm (docs, Theorem 9).

For every cell the ratio between how well models of any dynamics explain the transitions seen so far and how well the
best task of the cell does; the smallest of these ratios is looked at, so that the task lies in no cell if it is large.
Among the models are some whose successors depend on the previous action as well: they see what no table of (s, a) does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import gammaln

from surefoot.arrays import Floats, Integers, check_unit_interval
from surefoot.cmdp.episode import Outcomes
from surefoot.errors import InvalidInput
from surefoot.learning.certified.evidence.counts import (
    Counts,
    class_counts,
    count_transitions,
    impossible_counts,
    no_counts,
    step_indices,
)
from surefoot.learning.certified.evidence.likelihood import (
    LikelihoodRatio,
    row_log_likelihood,
    row_type_log_likelihood,
)
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tabular.transition_model import TransitionModel

# What the models with the previous action weigh among all: one that learns every row, those in which it is repeated.
MEMORY_WEIGHT, REPEAT_WEIGHT = 0.25, 0.25
# With these probabilities the previous action is carried out again, on tasks of this many cells.
REPEATED, REPEATED_CELLS = (0.03, 0.1, 0.3), 9
# Pseudo-counts of a possible successor, and of all others together.
POSSIBLE, ELSEWHERE = 0.5, 0.05


@dataclass(frozen=True, eq=False)
class ShiftState:
    """Attributes:
    counts: of transitions, all together.
    after: [A+1, E] the same by the action before, A for none.
    elsewhere: [A+1, S·A] steps to successors that no cell's centre allows.
    repeated: [R, K] log-probability of all steps where the previous action is repeated, by how often and by cell.
    episodes: told so far.
    evidence: log of the smallest ratio over the cells, now.
    alarm: after how many episodes that first reached log(1/level); None if it did not.
    """

    counts: Counts
    after: Floats
    elsewhere: Floats
    repeated: Floats
    episodes: int = 0
    evidence: float = 0.0
    alarm: int | None = None


@dataclass(frozen=True, eq=False)
class ShiftTest:
    """Raises an alarm, ever, with probability at most `level` on a task of the cells, and so with at most `level` and
    what they leave uncovered on one from the distribution.

    Policies may be chosen in any way from what was observed before; every episode that began must be told.
    """

    policies: PolicyValueSet
    level: float = 0.05

    def __post_init__(self) -> None:
        check_unit_interval("level", self.level)
        if self.policies.cells is None or self.policies.cells.model is None:
            raise InvalidInput(
                "policies must hold cells with a transition model for a test of the task, got none; the alarm of "
                "certified-returns is what sums allow"
            )

    def start(self) -> ShiftState:
        model, kinds = self._model, self._model.n_actions + 1
        return ShiftState(
            no_counts(model),
            np.zeros((kinds, len(model.successor))),
            np.zeros((kinds, len(model.indptr) - 1)),
            np.zeros((len(REPEATED), len(self._some_cells))),
        )

    def observe(self, state: ShiftState, outcomes: Outcomes) -> ShiftState:
        """One look, after the transitions of these episodes."""
        model, steps = self._model, step_indices(outcomes, self._model)
        states, actions, successors = steps
        found, rows = model.find(*steps), states * model.n_actions + actions
        before = np.concatenate([np.full((len(rows), 1), model.n_actions), actions[:, :-1]], axis=1)
        repeated = model.find(states, np.where(before < model.n_actions, before, actions), successors)
        after, elsewhere = state.after.copy(), state.elsewhere.copy()
        np.add.at(after, (before[found >= 0], found[found >= 0]), 1.0)
        np.add.at(elsewhere, (before[found < 0], rows[found < 0]), 1.0)
        state = replace(
            state,
            counts=count_transitions(state.counts, outcomes, model, self.policies.units),
            after=after,
            elsewhere=elsewhere,
            repeated=state.repeated + self._repeated_log_likelihood(found.ravel(), repeated.ravel()),
            episodes=state.episodes + len(outcomes),
        )
        evidence = float(self.log_ratios(state).min())
        first = state.alarm is None and evidence >= math.log(1 / self.level)
        return replace(state, evidence=evidence, alarm=state.episodes if first else state.alarm)

    def log_ratios(self, state: ShiftState) -> Floats:
        """[J] log E(j)."""
        count = len(self._model.probability)
        if state.counts.contradicted:
            return np.full(count, np.inf)
        seen = class_counts(state.counts, self._model)
        own = 1 - MEMORY_WEIGHT - REPEAT_WEIGHT
        models = [
            math.log(MEMORY_WEIGHT) + memory_log_likelihood(state.after, state.elsewhere, self._model),
            math.log(REPEAT_WEIGHT / state.repeated.size) + np.logaddexp.reduce(state.repeated, axis=None),
        ]
        if self._exact is not None:
            known, best = self._exact.log_mixture(state.counts), self._exact.best_in_cells(state.counts)
            return np.asarray(np.logaddexp(math.log(own) + known, np.logaddexp.reduce(models)) - best)
        if not state.counts.beyond.any():  # of other successors these two know nothing
            models += [math.log(own / 2) + row_type_log_likelihood(seen, self._model)]
            models += [math.log(own / 2) + row_log_likelihood(state.counts, self._model)]
        return np.asarray(np.logaddexp.reduce(models) - self._best_in_balls(state.counts))

    def _repeated_log_likelihood(self, found: Integers, repeated: Integers) -> Floats:
        """[R, K] of steps [n], given where each is among the transitions, and where it would be had its action been the
        one before; -1 where it is impossible."""
        count = len(self._model.successor)
        keys, often = np.unique(found * (count + 1) + repeated + 1, return_counts=True)
        pairs = keys // (count + 1), keys % (count + 1) - 1
        laws = np.concatenate([self._model.probability[self._some_cells], np.zeros((len(self._some_cells), 1))], axis=1)
        classes = np.append(self._model.classes, laws.shape[1] - 1)  # the last one for what is impossible
        first, second = (laws[:, classes[places]] for places in pairs)  # [K, n']
        chance = np.stack([(1 - often_so) * first + often_so * second for often_so in REPEATED])
        with np.errstate(divide="ignore"):
            total: Floats = np.log(chance) @ often.astype(np.float64)
        return total

    def _best_in_balls(self, counts: Counts) -> Floats:
        """[J] bound on the log-likelihood over all dynamics of each ball, which may change with every step: none gives
        a successor more than the centre does and the radius."""
        model = self._model
        most = np.minimum(model.probability + model.radius[:, None], 1.0)
        with np.errstate(divide="ignore"):
            new = np.log(model.radius)
        beyond = impossible_counts(counts, model).sum()
        bound: Floats = np.log(np.maximum(most, 1e-300)) @ class_counts(counts, model)
        return bound + beyond * new if beyond else bound

    @property
    def _model(self) -> TransitionModel:
        cells = self.policies.cells
        if cells is None or cells.model is None:
            raise InvalidInput("policies must hold cells with a transition model, got none")
        return cells.model

    @cached_property
    def _some_cells(self) -> Integers:
        """[K] such that equally probable cells lie between them."""
        cells = self.policies.cells
        prior = np.ones(1) if cells is None else cells.prior
        shares = (np.arange(REPEATED_CELLS) + 0.5) / REPEATED_CELLS * prior.sum()
        return np.unique(np.minimum(np.searchsorted(np.cumsum(prior), shares), len(prior) - 1))

    @cached_property
    def _exact(self) -> LikelihoodRatio | None:
        """Where the likelihood of every task of a cell is known; None where cells are balls."""
        cells, model, units = self.policies.cells, self._model, self.policies.units
        if cells is None or (model.affine is None and model.radius.any()):
            return None
        return LikelihoodRatio(cells, model, units, units.episode_length)


def memory_log_likelihood(after: Floats, elsewhere: Floats, model: TransitionModel) -> float:
    """Log-probability of the transitions under a Dirichlet prior for every row and every action before it: counts
    [A+1, E], and [A+1, S·A] of successors that no centre allows, among which all are equally likely."""
    possible = np.diff(model.indptr)
    others = model.n_states - possible
    prior = POSSIBLE * possible + np.where(others > 0, ELSEWHERE, 0.0)
    visits = np.add.reduceat(after, model.indptr[:-1], axis=1) + elsewhere
    seen, strange = after[after > 0], elsewhere > 0
    entries = (gammaln(POSSIBLE + seen) - gammaln(POSSIBLE)).sum()
    totals = (gammaln(prior) - gammaln(prior + visits)).sum()
    spread = np.log(np.maximum(others, 1)) * elsewhere
    new = (gammaln(ELSEWHERE + elsewhere[strange]) - gammaln(ELSEWHERE)).sum() - spread.sum()
    return float(entries + totals + new)
