"""`reproduce promise`: what a count says about a risk, how runs are watched, and the overconfident twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surefoot.lab.experiments.promise.counts import Count, audit_run, overconfident, tail, true_cell
from surefoot.lab.experiments.promise.page import promise_page
from surefoot.lab.experiments.promise.random_families import random_family
from surefoot.lab.experiments.promise.run import PromiseSettings, RandomSettings, count_family, settings_for
from surefoot.methods import learner
from surefoot.report.page import render

SMALL = RandomSettings(number=10, tasks=2, episodes=40, twins=1, patience=1, methods=("certified-likelihood",))


# ------------------------------------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("count", "risk", "expected"),
    [
        (Count(tasks=2000, unsafe_tasks=20, tested=1500, twin_tasks=60, twin_unsafe=50), 0.05, "kept"),
        (Count(tasks=10, unsafe_tasks=0, tested=10, twin_tasks=10, twin_unsafe=10), 0.05, "too few tasks to tell"),
        (Count(tasks=2, unsafe_tasks=2, tested=2, twin_tasks=2, twin_unsafe=2), 0.5, "too few tasks to tell"),
        (Count(tasks=2000, unsafe_tasks=0, tested=20, twin_tasks=60, twin_unsafe=50), 0.05, "no power"),
        (Count(tasks=2000, unsafe_tasks=0, tested=1500, twin_tasks=60, twin_unsafe=5), 0.05, "no power"),
        (Count(tasks=2000, unsafe_tasks=0, tested=1500, twin_tasks=0, twin_unsafe=0), 0.05, "no power"),
        (Count(tasks=2000, unsafe_tasks=160, tested=1500, twin_tasks=60, twin_unsafe=50), 0.05, "broken"),
        (Count(tasks=2000, unsafe_tasks=95, tested=1500, twin_tasks=60, twin_unsafe=50), 0.05, "too few tasks to tell"),
        # The promise may be kept by luck where the theorem behind it is not.
        (Count(2000, 0, 1500, 60, 50, covered=1900, lost=400), 0.05, "broken"),
        (Count(2000, 0, 1500, 60, 50, covered=1900, lost=40), 0.05, "kept"),
    ],
)
def test_verdicts(count: Count, risk: float, expected: str) -> None:
    assert count.verdict(risk) == expected


@pytest.mark.parametrize("tasks", [1, 10, 30])
@pytest.mark.parametrize("risk", [0.05, 0.1])
def test_a_handful_of_safe_tasks_is_never_called_kept(tasks: int, risk: float) -> None:
    assert Count(tasks, 0, tasks, tasks, tasks).verdict(risk) != "kept"


def test_tail_is_that_of_the_binomial_distribution() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.binomial(20, 0.3, 200_000)
    for count in (0, 1, 6, 12, 20):
        assert tail(count, 20, 0.3) == pytest.approx((drawn >= count).mean(), abs=0.005)


# ----------------------------------------------------------------------------------------- watching runs, and the twins


@pytest.mark.short_for(method=["certified-returns"])
@pytest.mark.parametrize("method", ["certified-likelihood", "certified-returns", "certified-model-free"])
def test_twins_are_bolder_than_their_originals(method: str) -> None:
    family = random_family("finite", np.random.default_rng(0))
    policies = family.policies()
    original = learner(policies, method=method, risk=0.1).method
    twin = overconfident(original)
    assert twin is not None
    assert type(twin) is not type(original) or twin.evidence is not original.evidence

    def unsafe(chosen: Any) -> int:
        runs = (
            audit_run(
                chosen,
                family.tasks.task(parameter),
                safe=family.safe,
                episodes=700 if method == "certified-model-free" else 100,
                seed=number,
                horizon=family.steps,
                cell=None,
            )
            for number, parameter in enumerate(family.tasks.sample(8, np.random.default_rng(1)))
        )
        return sum(run.unsafe_episodes > 0 for run in runs)

    assert unsafe(original) < unsafe(twin)


def test_methods_without_a_twin_have_none() -> None:
    policies = random_family("finite", np.random.default_rng(0)).policies()
    assert overconfident(learner(policies, method="safe-only").method) is None


@pytest.mark.short_for(kind=["affine"])
@pytest.mark.parametrize("kind", ["affine", "near-identical", "non-affine"])
def test_the_true_cell_holds_the_task(kind: str) -> None:
    family = random_family(kind, np.random.default_rng(2))
    policies = family.policies()
    found = [
        true_cell(family.tasks, policies, parameter) for parameter in family.tasks.sample(40, np.random.default_rng(0))
    ]
    assert sum(cell is not None for cell in found) >= 30  # a few may be uncovered
    for cell, parameter in zip(found, family.tasks.sample(40, np.random.default_rng(0)), strict=True):
        if cell is not None and kind != "non-affine":
            assert (policies.cells.low[cell] <= parameter).all()
            assert (parameter <= policies.cells.high[cell]).all()


# ------------------------------------------------------------------------------------------------- settings and pages


def test_the_same_seed_counts_the_same() -> None:
    assert count_family(3, SMALL) == count_family(3, SMALL)


def test_pages_of_counts_that_did_not_look_for_power_can_still_be_drawn() -> None:
    count = {
        **{"method": "certified-ball", "risk": 0.05, "tasks": 10, "unsafe_tasks": 0, "unsafe_episodes": 0},
        **{"fraction": 0.0, "interval": [0.0, 0.3], "kept": True, "regret_mean": 1.0},
    }
    settings = {"seed": 0, "tasks": 10, "episodes": 5}
    old = {"settings": settings, "seconds": 1.0, "version": "1.0", "counts": [count]}
    page = render(promise_page(old).page)
    assert "0 of 10" in page
    assert ">kept<" not in page


def test_defaults_are_those_of_the_families() -> None:
    assert settings_for() == settings_for("gridworld") == PromiseSettings()
    assert settings_for("random", number=3) == RandomSettings(number=3)
