"""One policy, one certificate: what is told, what is refused, and what must be true of any log."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import surefoot as sf
from guarantees import mutants
from surefoot.cli import app
from surefoot.learning.fit import fit_p_value
from surefoot.tabular.evaluate import evaluate
from surefoot.tasks.gridworld_tasks import gridworld
from trained_gridworld import gridworld_set

COSTS = np.random.default_rng(3).random(300) * 0.8


def test_verdicts() -> None:
    within = sf.certify(COSTS, budget=0.5, cost_range=(0.0, 1.0))
    assert (within.verdict, within.more, within.episodes, within.reward) == ("within", None, 300, None)
    assert str(within).splitlines()[0] == "verdict    within budget at confidence 95 %"
    above = sf.certify(COSTS, budget=0.2, cost_range=(0.0, 1.0), risk=0.1)
    assert str(above).splitlines()[0] == "verdict    above budget at confidence 90 %"
    unclear = sf.certify(COSTS[:20], budget=0.5, cost_range=(0.0, 1.0))
    assert unclear.verdict == "undecided"
    assert "about" in str(unclear)
    assert sf.certify(COSTS, cost_range=(0.0, 1.0)).verdict == "bounds"


def test_several_costs_have_several_budgets() -> None:
    both = np.column_stack([COSTS, 10 * COSTS])
    ranges = [[0.0, 1.0], [0.0, 10.0]]
    assert sf.certify(both, budget=[0.5, 5.0], cost_range=ranges).verdict == "within"
    found = sf.certify(both, budget=[0.5, 3.0], cost_range=ranges)
    assert found.verdict == "above"
    assert found.cost[1].mean == pytest.approx(10 * found.cost[0].mean)
    assert "cost 2" in str(found)


@pytest.mark.parametrize("budget", [0.41, 0.42, 0.43])
def test_the_forecast_is_right_if_episodes_repeat(budget: float) -> None:
    costs = np.resize([0.1, 0.3, 0.6, 0.6], 40)
    found = sf.certify(costs, budget=budget, cost_range=(0.0, 1.0))
    assert found.more is not None
    later = np.resize(costs, len(costs) + found.more)
    assert sf.certify(np.resize(later, len(later) + 40), budget=budget, cost_range=(0.0, 1.0)).verdict == "within"
    assert sf.certify(later[: len(later) * 9 // 10], budget=budget, cost_range=(0.0, 1.0)).verdict == "undecided"


def test_a_task_is_simulated_until_it_is_clear() -> None:
    task, policy = mutants.rooms().task([0.1]), mutants.STAY_RICH
    exact = evaluate(task, policy)
    found = sf.certify(task, policy, budget=2 * exact.cost, seed=5)
    assert found.verdict == "within"
    assert found.episodes < 10_000
    near = sf.certify(task, policy, budget=exact.cost + 1e-4, seed=5, most=200)
    assert (near.verdict, near.episodes) == ("undecided", 200)
    assert near.cost[0].lower <= exact.cost[0] <= near.cost[0].upper
    assert near.reward is not None
    assert near.reward.lower <= exact.reward <= near.reward.upper
    assert sf.certify(task, policy, seed=5).budget == (0.6,)
    assert found == sf.certify(task, policy, budget=2 * exact.cost, seed=5)


def test_with_a_policy_set_also_whether_the_log_fits() -> None:
    policies = mutants.rooms_policies(cells=8)
    log = mutants.rooms().task([0.1]).episodes(mutants.STAY_RICH, 60).run(200, np.random.default_rng(2), True)
    found = sf.certify(log, 1, policies=policies, horizon=60)
    assert found.verdict == "above"
    assert found.fit == fit_p_value(policies, log, 1, 60) > 0.05
    wrong = sf.certify(log, 0, policies=policies, horizon=60)  # it was not the safe policy that ran
    assert wrong.fit is not None
    assert wrong.fit < 1e-6
    assert "the simulator is not this system" in str(wrong)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"cost_range": None}, "cost_range must be the least and the most"),
        ({"cost_range": (0.0, 0.1)}, "sums of logged episodes must lie in their ranges"),
        ({"cost_range": (1.0, 0.0)}, "low ≤ high"),
        ({"policy": 1}, "policy must be left out"),
        ({"risk": 0.0}, "risk must lie"),
        ({"budget": [0.5, 0.5]}, "cost must hold 2"),
        ({"budget": math.nan}, "budget must be finite"),
        ({"reward_range": (0.0, 1.0)}, "must hold rewards and costs"),
        ({"episodes": []}, "episodes must hold costs"),
        ({"episodes": [[[1.0]]]}, "episodes must hold costs"),
        ({"episodes": [0.5, math.inf]}, "must be finite, got inf"),
        ({"episodes": [{"cost": "much"}]}, "cost must be numbers"),
        ({"episodes": "log.txt"}, "must be a journal or end in"),
    ],
)
def test_what_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(sf.InvalidInput, match=message):
        sf.certify(**{"episodes": COSTS, "budget": 0.5, "cost_range": (0.0, 1.0), **words})


def test_what_is_refused_of_tasks_and_sets() -> None:
    task, policies = mutants.rooms().task([0.1]), mutants.rooms_policies(cells=4)
    for words, message in (
        ({"policy": None}, "policy must be the policy to simulate"),
        ({"policy": mutants.STAY_RICH, "policies": policies}, "policies must be left out"),
        ({"policy": mutants.STAY_RICH, "budget": [1.0, 2.0]}, "budget must hold 1"),
        ({"policy": mutants.STAY_RICH, "most": 0}, "most must be"),
    ):
        with pytest.raises(sf.InvalidInput, match=message):
            sf.certify(task, **words)  # type: ignore[arg-type]
    with pytest.raises(sf.InvalidInput, match="policy must be the number of one of the 2"):
        sf.certify(sf.Outcomes(np.ones(3), np.ones((3, 1))), 2, policies=policies)


# ------------------------------------------------------------------------------------------------------- of any log


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=40),
    st.floats(0.01, 0.99),
    st.floats(-3, 3),
    st.floats(0.1, 50),
    st.floats(-0.5, 1.5),
)
def test_bounds_hold_the_mean_and_follow_the_units(
    costs: list[float], risk: float, shift: float, scale: float, budget: float
) -> None:
    plain = sf.certify(costs, budget=budget, cost_range=(0.0, 1.0), risk=risk)
    (bound,) = plain.cost
    assert 0 <= bound.lower <= bound.mean + 1e-9
    assert bound.mean - 1e-9 <= bound.upper <= 1
    moved = sf.certify(
        shift + scale * np.array(costs), budget=shift + scale * budget, cost_range=(shift, shift + scale), risk=risk
    )
    assert moved.cost[0].lower == pytest.approx(shift + scale * bound.lower, abs=1e-6)
    assert moved.cost[0].upper == pytest.approx(shift + scale * bound.upper, abs=1e-6)
    json.dumps(plain.as_dict(), allow_nan=False)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30), st.randoms(use_true_random=False), st.floats(0.02, 0.4))
def test_less_risk_is_never_more_certain(costs: list[float], random: Any, risk: float) -> None:
    bold = sf.certify(costs, cost_range=(0.0, 1.0), risk=risk).cost[0]
    careful = sf.certify(costs, cost_range=(0.0, 1.0), risk=risk / 2).cost[0]
    assert careful.lower <= bold.lower + 1e-9
    assert bold.upper <= careful.upper + 1e-9
    random.shuffle(costs)
    other = sf.certify(costs, cost_range=(0.0, 1.0), risk=risk).cost[0]
    assert other.upper == pytest.approx(bold.upper, abs=1e-8)


# ------------------------------------------------------------------------------------------------------------ command


def run(*words: object) -> Any:
    return CliRunner().invoke(app, ["certify", *map(str, words)])


def test_the_command(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("day,cost,reward\n" + "".join(f"{k},{c!r},1.5\n" for k, c in enumerate(COSTS.tolist())))
    found = run(log, "--budget", 0.5, "--cost-range", 0, 1)
    assert found.exit_code == 0
    assert found.stdout.startswith("verdict    within budget at confidence 95 %\n")
    told = json.loads(run(log, "--budget", 0.3, "--cost-range", 0, 1, "--reward-range", 0, 2, "--json").stdout)
    expected = sf.certify(log, budget=0.3, cost_range=(0.0, 1.0), reward_range=(0.0, 2.0))
    assert told == json.loads(json.dumps(expected.as_dict()))
    assert run(log, "--budget", 0.3, "--cost-range", 0, 1).exit_code == 1
    for words, message in (
        ([], "LOG or --task must be given"),
        ([log, "--task", 0.1], "LOG or --task must be given"),
        ([log, "--most", 3, "--cost-range", 0, 1], "most must come with task"),
        (["--task", 0.1], "task must come with policies"),
    ):
        refused = run(*words)
        assert refused.exit_code == 1
        assert message in str(refused.exception)


def test_the_command_simulates_a_policy_of_a_set(tmp_path: Path) -> None:
    gridworld_set().save(tmp_path / "set")
    task, words = gridworld().task([0.3]), ["--policies", tmp_path / "set", "--task", 0.3, "--json"]
    safe = run(*words)
    assert safe.exit_code == 0
    expected = sf.certify(task, gridworld_set().safe_policy, seed=0).as_dict()
    assert json.loads(safe.stdout) == json.loads(json.dumps(expected))
    bold = run(*words, "--policy", 1, "--budget", 0.01, "--most", 50, "--seed", 3)
    assert bold.exit_code == 1
    expected = sf.certify(task, gridworld_set().policies[1], 0.01, most=50, seed=3).as_dict()
    assert json.loads(bold.stdout) == json.loads(json.dumps(expected))
