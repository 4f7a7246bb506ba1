"""The test of the task (Theorem 9): false alarms with probability at most its level, laws that are laws, and power."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

from guarantees import mutants
from guarantees.mutants import STAY_RICH
from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.lab.families.shifted_gridworlds import sticky
from surefoot.learning import shift_test
from surefoot.learning.certified.evidence.counts import Counts, class_counts
from surefoot.learning.certified.evidence.likelihood import LikelihoodRatio
from surefoot.learning.shift_test import ShiftTest, memory_log_likelihood
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy

FALSE_ALARM = 1e-4
LEVEL, TASKS, LOOKS, EPISODES = 0.5, 20, 12, 20
EITHER = TabularPolicy(np.full((3, 2), 0.5))  # previous and present action differ half of the time


@cache
def policies(cells: int = 3, balls: bool = False) -> PolicyValueSet:
    """Few cells, so that tasks lie far from their centres."""
    made = mutants.rooms_policies(cells=cells)
    assert made.cells is not None
    assert made.cells.model is not None
    model = replace(made.cells.model, affine=None) if balls else made.cells.model
    return replace(made, cells=replace(made.cells, model=model))


def alarms(known: PolicyValueSet, tasks: int = TASKS, level: float = LEVEL) -> int:
    rooms = mutants.rooms()
    parameters = rooms.sample(tasks, np.random.default_rng([21, 0]))
    return sum(alarm_on(known, rooms.task(p), level, number) is not None for number, p in enumerate(parameters))


def alarm_on(known: PolicyValueSet, task: TabularCMDP, level: float, number: int) -> int | None:
    test, rng = ShiftTest(known, level), np.random.default_rng([22, number])
    state = test.start()
    for look in range(LOOKS):
        policy = STAY_RICH if look % 2 else EITHER
        state = test.observe(state, task.episodes(policy, 40).run(EPISODES, rng, transitions=True))
    return state.alarm


def p_value(count: int, tasks: int, level: float) -> float:
    return float(stats.binomtest(count, tasks, level, alternative="greater").pvalue)


@pytest.mark.short_for(balls=[False])
@pytest.mark.parametrize("balls", [False, True])
def test_false_alarms_are_as_rare_as_promised(balls: bool) -> None:
    assert p_value(alarms(policies(balls=balls)), TASKS, LEVEL) > FALSE_ALARM


def test_a_numerator_that_is_no_law_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def more(after: Floats, elsewhere: Floats, model: object) -> float:
        return memory_log_likelihood(after, elsewhere, model) + 0.01 * float(after.sum())  # type: ignore[arg-type]

    monkeypatch.setattr(shift_test, "memory_log_likelihood", more)
    assert p_value(alarms(policies()), TASKS, LEVEL) < FALSE_ALARM


def test_the_centre_in_place_of_the_best_task_of_the_cell_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def centre(self: LikelihoodRatio, state: Counts) -> Floats:
        likelihood = np.log(np.maximum(self.model.probability, 1e-300))
        return np.asarray(class_counts(state, self.model) @ likelihood.T)

    monkeypatch.setattr(LikelihoodRatio, "best_in_cells", centre)
    assert p_value(alarms(policies(cells=1), level=0.1), TASKS, 0.1) < FALSE_ALARM


def test_what_comes_next_has_probability_one_whatever_came_before() -> None:
    model = policies().cells.model  # type: ignore[union-attr]
    assert model is not None
    rng = np.random.default_rng(5)
    kinds = model.n_actions + 1
    after = rng.poisson(2.0, (kinds, len(model.successor))).astype(float)
    elsewhere = rng.poisson(0.7, (kinds, len(model.indptr) - 1)).astype(float)
    others = model.n_states - np.diff(model.indptr)
    elsewhere[:, others == 0] = 0.0
    before = memory_log_likelihood(after, elsewhere, model)
    for kind in range(kinds):
        for row in range(len(model.indptr) - 1):
            total = 0.0
            for entry in range(model.indptr[row], model.indptr[row + 1]):
                more = after.copy()
                more[kind, entry] += 1
                total += np.exp(memory_log_likelihood(more, elsewhere, model) - before)
            if others[row]:
                new = elsewhere.copy()
                new[kind, row] += 1
                total += others[row] * np.exp(memory_log_likelihood(after, new, model) - before)
            assert total == pytest.approx(1.0)


def test_repeated_actions_make_laws_too() -> None:
    known = policies()
    test, model = ShiftTest(known), known.cells.model  # type: ignore[union-attr]
    assert model is not None
    for state in range(model.n_states):
        for action in range(model.n_actions):
            for before in range(model.n_actions):
                successors = np.arange(model.n_states)
                here, there = (model.find(np.full(3, state), np.full(3, a), successors) for a in (action, before))
                each = [test._repeated_log_likelihood(here[[k]], there[[k]]) for k in range(model.n_states)]
                assert np.exp(each).sum(axis=0) == pytest.approx(1.0)


def test_evidence_is_the_least_over_the_cells_and_no_more_than_the_true_ones() -> None:
    """Against the definition: numerator over the likelihood of the very task."""
    known, rooms = policies(), mutants.rooms()
    test = ShiftTest(known)
    task = rooms.task([0.1])
    state = test.observe(test.start(), task.episodes(EITHER, 40).run(50, np.random.default_rng(3), transitions=True))
    model = known.cells.model  # type: ignore[union-attr]
    assert model is not None
    seen = class_counts(state.counts, model)
    exact = float(seen @ np.log(np.maximum(model.law(np.array([0.1])), 1e-300)))
    holds = np.flatnonzero((known.cells.low[:, 0] <= 0.1) & (known.cells.high[:, 0] >= 0.1))  # type: ignore[union-attr]
    best = LikelihoodRatio(known.cells, model, known.units, 40).best_in_cells(state.counts)  # type: ignore[arg-type]
    assert (best[holds] >= exact - 1e-9).all()
    assert state.evidence == pytest.approx(test.log_ratios(state).min())


@pytest.mark.parametrize("balls", [False, True])
def test_sticky_actions_are_noticed(balls: bool) -> None:
    known = policies(cells=30, balls=balls)
    task = sticky(mutants.rooms().task([0.11]), 0.3)
    found = [alarm_on(known, task, 0.05, number) for number in range(3)]  # type: ignore[arg-type]
    assert all(alarm is not None for alarm in found)


def test_what_is_refused() -> None:
    with pytest.raises(InvalidInput, match="level must"):
        ShiftTest(policies(), 0.0)
    with pytest.raises(InvalidInput, match="transition model"):
        ShiftTest(replace(policies(), cells=None))
