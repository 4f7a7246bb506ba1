"""Theorem 10: the regret on a fresh task is *ever* above what was certified of it with probability at most the risk.

Counted with exact regret against the risk, by the test that the promise is held to; broken variants must be caught.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

import surefoot as sf
from guarantees import mutants
from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.lab.analysis.certified_regret import RegretCertificate, cell_optima, largest_gap, optimum_bounds
from surefoot.learning.certified.method import Certified
from surefoot.learning.learner import Learner
from surefoot.methods import learner
from surefoot.simulate.runner import run_learner

FALSE_ALARM = 1e-4
ROOMS, POLICIES = mutants.rooms(), mutants.rooms_policies()
OPTIMA = cell_optima(learner(POLICIES, method="certified-likelihood").method)


def exceeded(
    risk: float,
    tasks: int,
    *,
    method: str = "certified-likelihood",
    optima: Floats = OPTIMA,
    mutate: Callable[[Certified], object] = lambda method: method,
    episodes: int = 200,
) -> int:
    intact = learner(POLICIES, method=method, risk=risk).method
    count = 0
    for number, parameter in enumerate(ROOMS.sample(tasks, np.random.default_rng(7))):
        chosen = Learner(mutate(intact), seed=number)
        certificate = RegretCertificate(chosen, optima)
        task = ROOMS.task(parameter)
        run = run_learner(chosen, task, episodes=episodes, seed=number, observer=certificate.note)
        count += bool((run.regret > certificate.totals(episodes) * (1 + 1e-9)).any())
    return count


def p_value(count: int, tasks: int, risk: float) -> float:
    return float(stats.binomtest(count, tasks, risk, alternative="greater").pvalue)


@pytest.mark.short_for(method=["certified-returns"], risk=[0.05])
@pytest.mark.parametrize("risk", [0.05, 0.5])
@pytest.mark.parametrize("method", ["certified-likelihood", "certified-returns"])
def test_regret_stays_below_what_was_certified(method: str, risk: float) -> None:
    assert p_value(exceeded(risk, 15, method=method), 15, risk) > FALSE_ALARM


@pytest.mark.parametrize(
    "broken",
    [
        {"mutate": mutants.only_the_likeliest_cell},  # the maximum over cells is dropped
        pytest.param({"optima": OPTIMA - np.ptp(OPTIMA)}, marks=pytest.mark.long),  # of the wrong end of the family
    ],
)
def test_broken_certificates_are_caught(broken: dict[str, object]) -> None:
    assert p_value(exceeded(0.05, 15, **broken), 15, 0.05) < FALSE_ALARM


def test_no_task_of_a_box_has_a_better_optimum() -> None:
    """Against the linear program at tasks all over the boxes; and the bound of a tiny box is the optimum itself."""
    cells = POLICIES.cells
    assert cells is not None
    rng = np.random.default_rng(3)
    for j in range(0, len(cells), 7):
        for parameter in rng.uniform(cells.low[j], cells.high[j], (4, 1)):
            optimum = sf.solve(ROOMS.task(parameter)).values.reward
            assert optimum <= OPTIMA[j] <= optimum + 0.1
    assert cells.model is not None
    point = np.array([[0.11]])
    exact = optimum_bounds(cells.model.affine_tables(), [ROOMS.task(point[0])], point, point)
    assert np.isclose(exact[0], sf.solve(ROOMS.task(point[0])).values.reward, rtol=1e-5)


def test_the_gap_is_the_largest_over_the_cells_that_survive() -> None:
    optimum, lower = np.array([3.0, 5.0, 4.0]), np.array([2.0, 1.0, 3.5])
    assert largest_gap(optimum, lower, np.array([True, False, True])) == 1.0
    assert largest_gap(optimum, lower, np.array([False, False, False])) == 4.0, "nothing fits: anything may be true"
    assert largest_gap(lower, optimum, np.array([True, True, True])) == 0.0


def test_other_methods_are_refused() -> None:
    with pytest.raises(InvalidInput, match="learner must be one of a certified method with cells, got safe-only"):
        RegretCertificate(learner(POLICIES, method="safe-only"), OPTIMA)
    with pytest.raises(InvalidInput, match=r"learner must have no shift: .* got shift 0.001"):
        RegretCertificate(learner(POLICIES, method="certified-ball", shift=0.001), OPTIMA)
    finite = mutants.rooms_policies(tasks=mutants.two_rooms())
    with pytest.raises(InvalidInput, match="cells must be boxes of an affine family"):
        cell_optima(learner(finite, method="certified-likelihood").method)
