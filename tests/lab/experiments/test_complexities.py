"""Table 1 of the paper: its exponents, read off by changing one number at a time, and what the command prints of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from surefoot.cli.commands import app
from surefoot.errors import InvalidInput
from surefoot.lab.analysis.complexities import Problem, largest_useful_cover, problem, sample_complexities
from surefoot.policyset import PolicyValueSet
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.training.train import train

PROBLEM = Problem(states=49, actions=4, discount=0.9, xi=0.1, epsilon=0.01, cover=20)

# ξ, ε, 1-γ, |S|, |A|, C, as printed; LB-SGD where ε is the smaller of the two (E15).
EXPONENTS = {
    "OptPess-LP": (-2, -2, -7, 3, 1, 0),
    "DOPE": (-2, -2, -7, 2, 1, 0),
    "DOPE+": (-2, -2, -6, 2, 1, 0),
    "LB-SGD": (0, -6, -22, 0, 0, 0),
    "this method": (-2, -2, -5, 0, 0, 1),
}


def samples(given: Problem) -> dict[str, float]:
    return {row.method: row.samples for row in sample_complexities(given)}


def test_exponents_are_those_of_the_paper() -> None:
    changes = (
        replace(PROBLEM, xi=2 * PROBLEM.xi),
        replace(PROBLEM, epsilon=2 * PROBLEM.epsilon),
        replace(PROBLEM, discount=1 - 2 * (1 - PROBLEM.discount)),
        replace(PROBLEM, states=2 * PROBLEM.states),
        replace(PROBLEM, actions=2 * PROBLEM.actions),
        replace(PROBLEM, cover=2 * PROBLEM.cover),
    )
    before = samples(PROBLEM)
    for method, exponents in EXPONENTS.items():
        found = [math.log2(samples(change)[method] / before[method]) for change in changes]
        assert found == pytest.approx(exponents, abs=1e-9), method
    assert [row.trained for row in sample_complexities(PROBLEM)] == [False] * 4 + [True]


def test_lb_sgd_grows_as_epsilon_falls_below_xi_and_not_before() -> None:
    coarse = replace(PROBLEM, xi=0.1, epsilon=0.5)
    assert samples(coarse)["LB-SGD"] == samples(replace(coarse, epsilon=0.2))["LB-SGD"]
    assert samples(replace(coarse, epsilon=0.05))["LB-SGD"] == pytest.approx(64 * samples(coarse)["LB-SGD"])


@given(st.integers(1, 10**6), st.integers(1, 100), st.floats(0.1, 0.999), st.floats(1e-4, 1.0), st.floats(1e-4, 1.0))
def test_training_pays_up_to_the_largest_useful_cover(S: int, A: int, discount: float, xi: float, eps: float) -> None:
    useful = largest_useful_cover(Problem(S, A, discount, xi, eps, 1))
    for cover in {max(1, math.floor(useful * 0.999)), math.ceil(useful * 1.001)}:
        *others, ours = sample_complexities(Problem(S, A, discount, xi, eps, cover))
        assert (ours.samples <= min(row.samples for row in others)) == (cover <= useful)


@pytest.fixture(scope="module")
def trained() -> PolicyValueSet:
    return train(gridworld(), epsilon=0.02, delta=0.1, cells=0, seed=1, progress=False)


@pytest.mark.filterwarnings("ignore::surefoot.training.preflight.UncertifiedWarning")
def test_a_policy_set_says_what_it_knows(trained: PolicyValueSet) -> None:
    found = problem(trained, {"epsilon": 0.5})
    assert (found.states, found.actions, found.discount, found.epsilon) == (49, 4, 0.9, 0.5)
    assert (found.cover, found.xi) == (len(trained.entries), trained.xi)
    with pytest.raises(InvalidInput, match="states, actions, discount, epsilon, cover must be given"):
        problem(None, {"xi": 0.1})


@pytest.mark.filterwarnings("ignore::surefoot.training.preflight.UncertifiedWarning")
def test_the_command(trained: PolicyValueSet, tmp_path: Path) -> None:
    trained.save(tmp_path / "set")
    run = CliRunner().invoke
    shown = run(app, ["plan", "--table", str(tmp_path / "set")])
    assert shown.exit_code == 0, shown.output
    assert "OptPess-LP" in shown.output
    assert "training pays as long as" in shown.output
    own = ["--states", "9", "--actions", "2", "--discount", "0.5", "--xi", "0.1", "--epsilon", "0.1", "--cover", "3"]
    found = json.loads(run(app, ["plan", "--table", *own, "--json"]).stdout)
    assert found["rows"][-1]["samples"] == pytest.approx(3 * 100 * 100 * 2**5)
    assert found["largest_useful_cover"] == pytest.approx(9**2 * 2 * 2)
    refused = run(app, ["plan", str(tmp_path / "set"), "--cover", "3"])
    assert refused.exit_code != 0
