"""Earlier episodes of the safe policy as evidence, and the test whether they fit (Theorem 13), counted exactly.

On the true machine a bold step hurts with probability 0.5, on the other one of the family with 0.3. The mixture that is
safe on both leaves the safe policy only in part; what is best for the other machine breaks the budget on this one. So a
run is unsafe exactly if the evidence ever rules out the true machine, before the first order or after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from guarantees.mutants import Mutant
from surefoot.arrays import Floats
from surefoot.bounds.envelopes import Envelopes, build_cells
from surefoot.cmdp.episode import Outcomes
from surefoot.learning import fit
from surefoot.learning.certified.method import Certified
from surefoot.learning.fit import fit_p_value
from surefoot.learning.learner import Learner
from surefoot.learning.method import Method
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.simulate.runner import simulate
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import family

FALSE_ALARM = 1e-4
TRIALS, FEW, EPISODES = 30, 8, 16
HURTS, MILD, BUDGET, STEPS = 0.5, 0.3, 0.4, 2
CAREFUL, BOLD = (TabularPolicy(np.array([[1 - p, p]] * 2)) for p in (0.5, 1.0))
LIKELIHOOD, RETURNS = "certified-likelihood", "certified-returns"
Tamper = Callable[[Outcomes], Outcomes]


def machine(hurts: float) -> TabularCMDP:
    """Two steps: a bold one pays and leads, with this probability, to the second state, which costs 1."""
    chance = np.zeros((2, 2, 2))
    chance[0, 0], chance[0, 1], chance[1] = [1.0, 0.0], [1 - hurts, hurts], [0.0, 1.0]
    return TabularCMDP(
        chance,
        [[0.0, 1.0], [0.0, 0.0]],
        [[0.0, 0.0], [1.0, 1.0]],
        BUDGET,
        [1.0, 0.0],
        1.0,
        (0.0, 1.0),
        (0.0, 1.0),
        STEPS,
    )


@cache
def policies() -> PolicyValueSet:
    tasks = family(lambda parameter: machine(parameter[0]), Finite([MILD, HURTS], [0.5, 0.5]))
    cells = build_cells(tasks, [CAREFUL, BOLD], seed=0, envelopes=Envelopes())
    bold, careful = evaluate(machine(MILD), BOLD), evaluate(machine(MILD), CAREFUL)
    entry = Entry(np.array([MILD]), BOLD, bold.reward, bold.margin, careful.reward, careful.margin)
    return PolicyValueSet((entry,), CAREFUL, machine(MILD).units, 0.01, 0.05, 0.0, tasks.digest(), {}, {}, cells)


def earlier(seed: int, episodes: int, hurts: float = HURTS) -> Outcomes:
    rng = np.random.default_rng([31, seed])
    return machine(hurts).episodes(CAREFUL, STEPS).run(episodes, rng, transitions=True)


def is_unsafe(
    method: str, risk: float, episodes: int, seed: int, tamper: Tamper | None = None, mutate: Mutant | None = None
) -> bool:
    """Whether anything deployed after a history of so many episodes costs more than the budget on the true machine."""
    chosen = Learner(mutate(intact(method, risk)) if mutate else intact(method, risk), seed=seed, horizon=STEPS)
    history = earlier(seed, episodes)
    chosen.learn_from_history(tamper(history) if tamper else history)
    deployed = [mixture for _, mixture in simulate(chosen, machine(HURTS), episodes=EPISODES, seed=seed)]
    return any(float(each.weights @ TRUE_COST[each.indices]) > BUDGET + 1e-9 for each in deployed)


@cache
def intact(method: str, risk: float) -> Any:
    options = {"replan": False} if method == LIKELIHOOD else {}
    return learner(policies(), method=method, risk=risk, horizon=STEPS, **options).method


TRUE_COST = np.array([0.5 * HURTS, HURTS])


def p_value(count: int, trials: int, level: float) -> float:
    return float(stats.binomtest(count, trials, level, alternative="greater").pvalue)


# ---------------------------------------------------------------------------------------------------- promises, counted


@pytest.mark.parametrize("method", [LIKELIHOOD, RETURNS, "certified-model-free"])
def test_the_promise_is_kept_with_a_history(method: str) -> None:
    unsafe = sum(is_unsafe(method, 0.5, 40, seed) for seed in range(TRIALS))
    assert p_value(unsafe, TRIALS, 0.5) > FALSE_ALARM
    if method == LIKELIHOOD:
        assert unsafe > 0, "a risk that is never used would not need a guarantee"


def without_mishaps(history: Outcomes) -> Outcomes:
    """A log from which every other episode that hurt was left out."""
    hurt = np.flatnonzero(np.asarray(history.states)[:, -1] == 1)
    return history[np.delete(np.arange(len(history)), hurt[::2])]


def of_another_machine(history: Outcomes) -> Outcomes:
    return earlier(int(history.reward.sum()), len(history), MILD)


def bounds_of_the_other_cell(method: Certified) -> Method:
    """Evidence is held against the bounds of another cell, before the first order and after it."""
    cells: Any = method.cells
    flipped = {name: getattr(cells, name)[::-1] for name in ("lower", "upper", "start_lower", "start_upper")}
    return replace(method, evidence=replace(method.evidence, cells=replace(cells, **flipped)))  # type: ignore[type-var]


BROKEN: dict[str, tuple[str, int, Tamper | None, Mutant | None]] = {
    "episodes left out because of how they went": (LIKELIHOOD, 600, without_mishaps, None),
    "episodes of another system": (LIKELIHOOD, 600, of_another_machine, None),
    "bounds of another cell": (RETURNS, 300, None, bounds_of_the_other_cell),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_the_theorem_does_not_allow_is_caught(broken: str) -> None:
    method, episodes, tamper, mutate = BROKEN[broken]
    unsafe = sum(is_unsafe(method, 0.05, episodes, seed, tamper, mutate) for seed in range(FEW))
    assert p_value(unsafe, FEW, 0.05) < FALSE_ALARM


# ------------------------------------------------------------------------------------------------------ the test of fit

LEVEL = 0.3
LOOKS = (5, 20, 80, 400)


def is_refused(seed: int, hurts: float, transitions: bool = True) -> bool:
    """Whether the p-value ever falls to the level, at any of several looks at one growing log."""
    log = earlier(seed, LOOKS[-1], hurts)
    log = log if transitions else Outcomes(log.reward, log.cost)
    return any(fit_p_value(policies(), log[:look], horizon=STEPS) <= LEVEL for look in LOOKS)


@pytest.mark.parametrize("transitions", [True, False])
@pytest.mark.parametrize("hurts", [MILD, HURTS])
def test_a_log_of_the_family_is_seldom_refused(hurts: float, transitions: bool) -> None:
    refused = sum(is_refused(seed, hurts, transitions) for seed in range(TRIALS))
    assert p_value(refused, TRIALS, LEVEL) > FALSE_ALARM


@pytest.mark.parametrize("transitions", [True, False])
def test_a_log_of_another_system_is_refused(transitions: bool) -> None:
    assert sum(is_refused(seed, 0.95, transitions) for seed in range(FEW)) >= FEW - 1


def test_one_refuted_cell_in_place_of_all_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    means = fit._log_evidence_of_means

    def worst(*arguments: object) -> Floats:
        found = means(*arguments)  # type: ignore[arg-type]
        return np.full_like(found, found.max())

    monkeypatch.setattr(fit, "_log_evidence_of_means", worst)
    refused = sum(is_refused(seed, HURTS, transitions=False) for seed in range(TRIALS))
    assert p_value(refused, TRIALS, LEVEL) < FALSE_ALARM
