"""`surefoot reproduce lower-bound`: who looks for the best gate finds it, in as many samples as the bound says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from made_runs import made_run
from surefoot.lab.experiments import PAGES
from surefoot.lab.experiments.frame import redraw
from surefoot.lab.experiments.lower_bound import (
    BASE,
    EXPERIMENT,
    EXPONENTS,
    METHODS,
    SWEEPS,
    LowerBound,
    abscissa,
    fits,
    gap,
    gates,
    loop_samples,
    tables,
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("lower-bound")
    settings = LowerBound(quantities=("epsilon",), methods=("certified-likelihood",), repeats=1)
    return out, EXPERIMENT.reproduce(settings, out, jobs=1)


def test_samples_grow_with_the_power_of_the_bound(ran: tuple[Path, dict[str, Any]]) -> None:
    """Twice: no method can do with less, and none needs more than a logarithm more."""
    _, results = ran
    (fit,) = results["fits"]
    assert abs(fit["exponent"] - EXPONENTS["epsilon"]) < 0.5
    assert all(row["unsafe"] == 0 for row in results["rows"])


def test_the_page_is_drawn_again_from_its_results(ran: tuple[Path, dict[str, Any]]) -> None:
    out, results = ran
    page = (out / "report.html").read_bytes()
    redraw(out, PAGES["lower-bound"])
    assert (out / "report.html").read_bytes() == page
    assert (out / "lower-bound.png").stat().st_size > 10_000
    assert len(tables(results)["Exponents"].rows) == 1
    assert len(tables(results)["Runs"].rows) == len(SWEEPS["epsilon"])


@pytest.mark.parametrize("method", METHODS)
def test_only_who_is_optimistic_leaves_the_gate_that_is_known(method: str) -> None:
    """On task 3 gate 3 is best. Gate 0 is as good on all tasks, and expected to be better than any other."""
    task, optimum = BASE.task(3), BASE.optimum(3)
    runs = {
        optimistic: sf.adapt(
            gates(BASE), task, method=method, episodes=8000, seed=1, optimal_reward=optimum, optimistic=optimistic
        )
        for optimistic in (False, True)
    }
    last = {optimistic: run.regret[-1] - run.regret[-2] for optimistic, run in runs.items()}
    assert last[False] > 0.9 * gap(BASE)
    assert last[True] < 1e-6
    assert not any(run.unsafe.any() for run in runs.values())


def test_samples_in_loops_are_those_of_powers_of_the_transition_matrix() -> None:
    """Of a policy that goes to the last gate, whose loop has q₀ on task 0, and enters it half of the time."""
    n, task = BASE.tasks, BASE.task(0)
    chances = np.full((BASE.states, 2), 0.5)
    chances[: n - 1] = [0.0, 1.0]
    visits, now = np.zeros(BASE.states), np.eye(BASE.states)[0]
    moves = np.einsum("sa,sat->st", chances, np.asarray(task.transitions))
    for _ in range(2000):
        visits, now = visits + now, now @ moves
    safe = sf.adapt(gates(BASE), task, method="safe-only", episodes=1, seed=0)
    entering = made_run("entering", True, [sf.evaluate(task, sf.TabularPolicy(chances)).reward], 0.0)
    assert loop_samples(BASE, safe)[0] == 0.0, "the safe policy enters none"
    assert np.isclose(loop_samples(BASE, entering)[0], visits[3 * n - 1 : 4 * n - 1].sum(), rtol=1e-9)


def test_exponents_are_those_of_a_power_law() -> None:
    rows = [
        {"quantity": "xi", "method": "own", "value": x, "samples": [3 * x**1.7, 3 * x**1.7]} for x in (1.0, 2.0, 5.0)
    ]
    (fit,) = fits(rows)
    assert np.isclose(fit["exponent"], 1.7)
    assert abs(fit["error"]) < 1e-9
    assert fits([*rows, {**rows[0], "samples": [None]}])[0]["exponent"] is None


def test_the_bound_is_drawn_against_what_it_is_a_power_of() -> None:
    assert abscissa("tasks", BASE) == 3
    assert np.isclose(abscissa("epsilon", BASE), 5)
    assert np.isclose(abscissa("xi", BASE), 1 / 0.3)
    assert np.isclose(abscissa("discount", BASE), 20)
