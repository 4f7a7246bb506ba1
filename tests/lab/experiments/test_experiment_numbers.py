"""What experiments compute by themselves, without a run: exponents, samples, choices, and what settings stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from made_runs import made_run
from surefoot import theory
from surefoot.lab.experiments import baselines, gridworld, lower_bound, regret
from surefoot.lab.experiments.baselines import BENCHMARKS, BaselinesSettings, growth, growth_exponent, last_policies
from surefoot.lab.experiments.gridworld import GridworldSettings, noises_under_test, reference_methods
from surefoot.lab.experiments.lower_bound import BASE, abscissa, fits, gap, gates, loop_samples
from surefoot.simulate.run import Run
from surefoot.tasks.gridworld_tasks import PUBLISHED_TEST_NOISES

# ------------------------------------------------------------------------------------------------------------ gridworld


def test_further_tasks_continue_the_published_ones() -> None:
    assert noises_under_test(GridworldSettings(tasks=3)).tolist() == list(PUBLISHED_TEST_NOISES[:3])
    thirteen = noises_under_test(GridworldSettings(tasks=13))
    assert thirteen[:10].tolist() == list(PUBLISHED_TEST_NOISES)
    assert len(set(thirteen)) == 13
    assert thirteen[:12].tolist() == noises_under_test(GridworldSettings(tasks=12)).tolist()
    assert GridworldSettings(methods=("all",)).methods == gridworld.ALL_METHODS


def test_the_best_baseline_is_one_that_was_never_unsafe() -> None:
    def found(regret: float, unsafe: int = 0) -> Any:
        return {"regret_mean": regret, "unsafe_tasks": unsafe}

    methods = {
        "safe-only": found(90.0),
        "pce": found(1.0),
        "dope-published": found(50.0, 1),
        "lb-sgd-theory": found(80.0),
        "safe-meta-published": found(70.0),
    }
    assert reference_methods(methods) == {"safe-only": "safe-only", "best baseline": "safe-meta-published"}
    assert reference_methods({"safe-only": found(90.0), "dope-published": found(50.0, 1)}) == {"safe-only": "safe-only"}


# ------------------------------------------------------------------------------------------------------------ baselines


def run_with(regret: Sequence[float] | np.ndarray, margin: float = 0.5) -> Run:
    return made_run("dope-theory", False, -np.diff(np.asarray(regret, dtype=np.float64), prepend=0.0), margin, 1.0)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 2 / 3, 1.0])
def test_growth_exponent_of_a_power(exponent: float) -> None:
    episodes = np.arange(1, 5001)
    assert growth_exponent(3.0 * episodes**exponent) == pytest.approx(exponent, abs=1e-9)


def test_growth_looks_at_the_second_half_only() -> None:
    episodes = np.arange(1, 4001)
    found = np.where(episodes < 1500, 5.0 * episodes, 7500.0 * (episodes / 1500) ** 0.5)
    assert growth_exponent(found) == pytest.approx(0.5, abs=1e-9)


def test_growth_without_regret_is_unknown() -> None:
    assert growth_exponent(np.zeros(100)) is None
    assert growth_exponent(np.ones(1)) is None
    assert growth([run_with(np.zeros(100)), run_with(np.arange(1, 101))]) == {"exponent": None, "interval": None}


def test_growth_of_several_runs() -> None:
    episodes = np.arange(1, 1001)
    found = growth([run_with(episodes**0.4), run_with(episodes**0.6)])
    assert found["exponent"] == pytest.approx(0.5, abs=1e-9)
    low, high = found["interval"]
    assert low < 0.4 < 0.6 < high
    assert growth([run_with(episodes**0.4)])["interval"] is None


def test_last_policies() -> None:
    found = last_policies([run_with([3.0, 5.0, 5.5], 0.1), run_with([1.0, 2.0, 3.5], 0.3)])
    assert found == pytest.approx({"gap": 1.0, "margin": 0.2})
    assert last_policies([run_with([2.0])])["gap"] == 2.0


def test_options_by_benchmark() -> None:
    assert BENCHMARKS["media"].options("dope-theory") == {"horizon": 10, "layers": 10}
    assert BENCHMARKS["media"].options("safe-only") == {"horizon": 10}
    assert BENCHMARKS["two-walls"].options("safe-only") == {}
    barrier = BENCHMARKS["two-walls"].options("lb-sgd-published")
    assert (barrier["barrier"], barrier["batch"]) == (0.01, 3000)  # the authors' figure
    assert set(BENCHMARKS["two-walls"].options("lb-sgd-theory")) == {"start"}


def test_defaults_are_each_benchmarks_own_and_those_without_a_chosen_method_are_left_out() -> None:
    every = BaselinesSettings()
    assert [every.runs_on(name) for name in BENCHMARKS] == [20, 20, 20, 10]
    assert every.episodes_on("inventory") == 1_000_000
    assert (BaselinesSettings(runs=3).runs_on("media"), BaselinesSettings(episodes=7).episodes_on("media")) == (3, 7)
    assert BaselinesSettings(methods=("lb-sgd-theory",)).with_methods == ("two-walls",)
    assert every.with_methods == tuple(BENCHMARKS)
    assert {method for each in BENCHMARKS.values() for method in each.methods} == set(baselines.METHODS)


# ---------------------------------------------------------------------------------------------------------- lower bound


@pytest.mark.short_for(method=lower_bound.METHODS[:1])
@pytest.mark.parametrize("method", lower_bound.METHODS)
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
    found = [abscissa(quantity, BASE) for quantity in ("tasks", "epsilon", "xi", "discount")]
    assert found == pytest.approx([3, 5, 1 / 0.3, 20])


# --------------------------------------------------------------------------------------------------------------- regret


@pytest.mark.long
def test_the_theorem_is_taken_where_it_holds() -> None:
    tasks = sf.tasks.gridworld()
    for each in regret.accuracies(tasks, 0.04, 0.05):
        assert theory.slater_requirement(each.epsilon, 0.9) <= 0.04 * (1 + 1e-9)
        assert theory.theorem_probability(each.delta, each.cover) >= 0.95
        assert each.cover == regret.cover_number(tasks, each.epsilon / 2, each.delta)


def test_families_are_run_once_each() -> None:
    families = regret.RegretSweeps().families
    assert families[0] == regret.BASE
    assert len(families) == len(set(families)) == sum(map(len, regret.SWEEPS.values())) - 1
    assert regret.GridworldVariant(std=0.01) in families
