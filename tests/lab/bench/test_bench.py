"""The benchmark's plain sides must be right and ordinary, or its ratios mean nothing. No test here looks at a clock."""

from __future__ import annotations

import json
import sys
from unittest import mock

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

import random_tasks
from surefoot.errors import SurefootError
from surefoot.lab.bench import stepping, tabular
from surefoot.lab.bench.rows import BenchRow, Sizes, agree
from surefoot.lab.bench.run import run
from surefoot.lab.bench.simulators import AVERAGE, plain_days
from surefoot.lab.pump.days import sample_days
from surefoot.lab.pump.settings import AVERAGE_SETTINGS
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.lagrangian import solve_lagrangian
from surefoot.tabular.solve import OccupancyLP, solve
from surefoot.tasks.gridworld_tasks import gridworld

TINY = Sizes(5, 400, 40, 80, (500, 1000, 2000), 8, 20.0, 2, 10, 200, 4, 3)


@pytest.mark.long
def test_every_comparison_has_its_row() -> None:
    """As plain data, and progress names the stages."""
    seen: list[tuple[str, int, int]] = []
    rows = run(True, lambda *stage: seen.append(stage), TINY)
    assert [(done, total) for _, done, total in seen] == [(done, 10) for done in range(10)]
    assert len({row.what for row in rows}) == len(rows) == 2 + 1 + 1 + 1 + 1 + 1 + 3 + 1 + 2 + 1 + 5
    compared = [row for row in rows if row.ratio is not None]
    assert all(row.ratio > 0 and row.ratio_text.endswith("×") for row in compared)
    assert [row.ratio_text for row in rows if row.ratio is None] == ["–"] * 8
    assert "(N log N)^" in rows[-10].note
    assert json.loads(json.dumps([row.as_dict() for row in rows], allow_nan=False))[0]["what"] == rows[0].what


@pytest.mark.parametrize(
    ("ratio", "at_least", "text"),
    [(None, False, "–"), (3.14159, False, "3.1×"), (1234.5, False, "1,234×"), (45.2, True, "at least 45×")],
)
def test_ratio_text(ratio: float | None, at_least: bool, text: str) -> None:
    assert BenchRow("what", "ours", "plain", ratio, at_least=at_least).ratio_text == text


def test_a_linear_program_that_does_not_end_is_a_lower_bound() -> None:
    """With no time at all the plain side is stopped, and the row says so."""
    (row,) = tabular.large_task(Sizes(1, 1, 1, 1, (1,), 20, 1e-3, 1, 1, 1, 1, 1))
    assert row.at_least
    assert row.ratio_text.startswith("at least")
    assert row.plain.startswith("stopped after")


def test_a_row_whose_plain_side_is_not_installed_is_skipped_and_says_so() -> None:
    missing = {"gymnasium": None, "surefoot.lab.bench.stepping": None}
    with mock.patch.dict(sys.modules, missing):
        del sys.modules["surefoot.lab.bench.stepping"]
        (row,) = tabular.episodes(TINY)
    assert (row.ours, row.ratio_text) == ("skipped", "–")
    assert row.note == "gymnasium is not installed: pip install gymnasium"


def test_sides_that_differ_are_refused() -> None:
    agree("numbers", [1.0, 2.0], [1.0, 2.0 + 1e-7], 1e-6)
    for other in ([1.0, 2.1], [1.0], 1.0):
        with pytest.raises(SurefootError, match="disagree on the numbers"):
            agree("numbers", [1.0, 2.0], other, 1e-6)


def test_growth_of_exactly_n_log_n_is_one() -> None:
    sizes = (100, 1000, 10_000)
    assert "(N log N)^1.00 " in tabular._growth(sizes, [3e-6 * size * np.log(size) for size in sizes])
    assert "(N log N)^2.00 " in tabular._growth(sizes, [3e-6 * (size * np.log(size)) ** 2 for size in sizes])


# ------------------------------------------------------------------------------------------------- the plain sides


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_the_plain_program_finds_the_optimum(seed: int, sparse: bool) -> None:
    cmdp = random_tasks.random_cmdp(np.random.default_rng(seed), sparse=sparse)
    assert -tabular.occupancy_program(cmdp).fun == pytest.approx(solve(cmdp).values.reward, abs=1e-5)


def test_the_environment_is_an_ordinary_one() -> None:
    check_env(stepping.TabularEnv(gridworld().task([0.3]), horizon=10), skip_render_check=True)


def test_the_environment_follows_the_task() -> None:
    """Every frequency of 10,000 draws of one transition within 5 standard errors of its probability."""
    task = gridworld().task([0.3])
    environment, state, action, draws = stepping.TabularEnv(task, horizon=1), 17, 2, 10_000
    environment.reset(seed=1)
    found = np.zeros(task.n_states)
    for _ in range(draws):
        environment._state = np.int64(state)
        following, reward, terminated, truncated, info = environment.step(np.int64(action))
        found[following] += 1
    assert (reward, terminated, truncated) == (task.reward[state, action], False, True)
    assert info["cost"] == task.cost[:, state, action]
    expected = task.transitions[state, action]
    assert np.all(np.abs(found / draws - expected) <= 5 * np.sqrt(expected * (1 - expected) / draws))


def test_stepped_rewards_are_discounted_sums() -> None:
    """Exact where nothing is random: a task that pays 1 in every step."""
    task = random_tasks.random_cmdp(np.random.default_rng(3))
    environment = stepping.TabularEnv(task, horizon=5)
    environment._reward = np.ones_like(task.reward)
    policy = solve(task).policy
    found = stepping.env_rewards(environment, policy, 0.5, 3, seed=0)
    np.testing.assert_allclose(found, [1.9375] * 3, rtol=0, atol=1e-15)


def test_stepped_rewards_have_the_exact_mean() -> None:
    task = gridworld().task([0.3])
    policy = solve(task).policy
    rewards = stepping.env_rewards(stepping.TabularEnv(task, 132), policy, task.discount, 150, seed=0)
    assert abs(rewards.mean() - evaluate(task, policy).reward) < 4 * rewards.std() / np.sqrt(150) + 1e-4


@pytest.mark.parametrize("side", [8, 12])
def test_the_large_task_is_solved_the_same_way_by_three_solvers(side: int) -> None:
    task = tabular.slip_grid(side)
    assert task.is_sparse
    assert task.reward.shape == (side * side, 4)
    by_program = OccupancyLP().solve(task).values.reward
    assert solve_lagrangian(task).values.reward == pytest.approx(by_program, rel=1e-7)
    assert -tabular.occupancy_program(task).fun == pytest.approx(by_program, abs=1e-5)


def test_the_large_task_has_a_budget_that_binds() -> None:
    solution = solve(tabular.slip_grid(20))
    assert solution.values.margin[0] == pytest.approx(0.0, abs=1e-6)
    assert solution.dual[0] > 0.01


def test_plain_days_are_those_of_the_pump_day_by_day() -> None:
    """On the very same days, drawn as the task draws them; Euler's method moves a few readings over an edge."""
    rng = np.random.default_rng(4)
    rng.integers(2**63, size=2)  # the task hands this to the policy
    found = plain_days(sample_days(6, rng))
    expected = AVERAGE.episodes(AVERAGE_SETTINGS, 288).run(6, np.random.default_rng(4)).reward
    np.testing.assert_allclose(found, expected, atol=0.03)
    assert np.ptp(expected) > 0.1
