"""Declared ranges of whole episodes' sums: what they narrow, what they leave alone, and that they are enforced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from point_mass import speed
from surefoot.cmdp.episode import Outcome, Outcomes, first_breach
from surefoot.cmdp.units import Units
from surefoot.deploy.outcomes import breach
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet

PLAIN = Units(0.9, (0.0, 1.0), [(0.0, 1.0)], [0.5])
KNOWN = Units(0.9, (0.0, 1.0), [(0.0, 1.0)], [0.5], reward_sum_range=(2.0, 20.0), cost_sum_range=(-1.0, 3.0))


def test_sums_are_bounded_by_what_is_declared_of_them_and_of_steps() -> None:
    np.testing.assert_allclose(PLAIN.reachable, [[0.0, 10.0], [0.0, 10.0]])
    np.testing.assert_allclose(KNOWN.reachable, [[2.0, 10.0], [0.0, 3.0]])
    assert KNOWN.cost_sum_range is not None
    assert KNOWN.cost_sum_range.shape == (1, 2)


def test_tails_and_values_of_any_policy_follow_from_steps() -> None:
    np.testing.assert_allclose(KNOWN.tail(20), KNOWN.missing_share(20) * PLAIN.reachable)
    assert KNOWN.tail(20).tolist() == PLAIN.tail(20).tolist()
    assert KNOWN.worst_value(ends=True).tolist() == PLAIN.worst_value(ends=True).tolist()
    assert KNOWN.truncation_bias(20) == PLAIN.truncation_bias(20)


def test_units_with_and_without_are_not_the_same() -> None:
    assert not PLAIN.same_as(KNOWN)
    assert KNOWN.same_as(Units(0.9, (0.0, 1.0), [(0.0, 1.0)], [0.5], None, (2.0, 20.0), np.array([[-1.0, 3.0]])))


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"reward_sum_range": (3.0, 2.0)}, r"reward_sum_range must be \(low, high\)"),
        ({"cost_sum_range": [(0.0, 1.0), (0.0, 1.0)]}, "cost_sum_range must be"),
        ({"cost_sum_range": (11.0, 12.0)}, "must meet what reward_range and cost_range allow for sums"),
        ({"reward_sum_range": (float("nan"), 1.0)}, "reward_sum_range"),
    ],
)
def test_ranges_that_make_no_sense_are_refused(ranges: dict[str, Any], message: str) -> None:
    with pytest.raises(sf.InvalidInput, match=message):
        Units(0.9, (0.0, 1.0), [(0.0, 1.0)], [0.5], **ranges)


@pytest.mark.parametrize(("reward", "cost", "outside"), [(5.0, 2.0, False), (1.0, 2.0, True), (5.0, 3.1, True)])
def test_sums_outside_are_found_wherever_sums_are_told(reward: float, cost: float, outside: bool) -> None:
    told = Outcomes.single(Outcome(reward, np.array([cost])))
    assert first_breach(told, PLAIN) == 1
    assert first_breach(told, KNOWN) == (0 if outside else 1)
    assert breach({"reward": reward, "cost": [cost]}, PLAIN) is None
    assert (breach({"reward": reward, "cost": [cost]}, KNOWN) is not None) == outside


def policy_set(units: Units) -> PolicyValueSet:
    entry = Entry(np.zeros(1), speed(0.5), 3.0, np.array([0.1]), 2.5, np.array([0.2]))
    return PolicyValueSet((entry,), speed(0.1), units, 0.1, 0.1, 0.0, "0" * 64, {}, {}, safe_risk=0.01)


def test_a_sum_outside_voids_the_certificate() -> None:
    learner = sf.learner(policy_set(KNOWN), method="certified-model-free", risk=0.1)
    order = learner.ask()
    learner.tell(order, Outcome(5.0, np.array([3.5])))
    assert not learner.certified
    assert "outside the declared ranges [2.0, 20.0], [[-1.0, 3.0]]" in learner.events[-1].message


def test_they_are_stored_where_declared_and_leave_other_digests_alone(tmp_path: Path) -> None:
    policy_set(KNOWN).save(tmp_path / "set")
    found = PolicyValueSet.load(tmp_path / "set")
    assert found.units.same_as(KNOWN)
    assert found.digest() == policy_set(KNOWN).digest() != policy_set(PLAIN).digest()
    policy_set(PLAIN).save(tmp_path / "plain")
    assert "sum_range" not in (tmp_path / "plain" / "manifest.json").read_text(encoding="utf-8")


def test_a_narrower_range_lets_model_free_go_further() -> None:
    """The first step away from the safe policy is as long as the dearest episode allows."""

    def weight(units: Units) -> float:
        learner = sf.learner(policy_set(units), method="certified-model-free", risk=0.1)
        for _ in range(450):
            order = learner.ask()
            learner.tell(order, Outcome(3.0 if order.policy_index else 2.5, np.array([0.0])))
        return float(learner.deployed.weight)

    assert weight(KNOWN) > 2 * weight(PLAIN) > 0


# ------------------------------------------------------------------------ steps that could be far larger than their sum


def rare_and_wide(most: float) -> Units:
    """H = 10 steps of up to `most`, of which nobody has ever seen more than 1 in an episode."""
    return Units(1.0, (0.0, 1.0), (0.0, most), [0.5], horizon=10, cost_sum_range=(0.0, 1.0))  # type: ignore[arg-type]


@pytest.mark.parametrize("most", [1.0, 1e6, 1e8, 1e15])
def test_a_sum_beyond_its_declared_range_is_an_alarm_however_wide_the_range_of_a_step(most: float) -> None:
    units = rare_and_wide(most)
    for cost, outside in ((1.0, False), (1 + 1e-12, False), (1 + 1e-8, True), (1.9, True), (-1e-8, True)):
        told = Outcomes.single(Outcome(0.5, np.array([cost])))
        assert first_breach(told, units) == (0 if outside else 1)
        assert (breach({"reward": 0.5, "cost": [cost]}, units) is not None) == outside
    learner = sf.learner(policy_set(units), method="certified-model-free", risk=0.1)
    rng = np.random.default_rng(0)
    for _ in range(400):
        learner.tell(learner.ask(), Outcome(0.5, np.array([1.9 * (rng.random() < 0.3)])))
    assert not learner.certified
    assert learner.events[-1].kind == "alarm"
    assert learner.deployed.weight == 0


@pytest.mark.parametrize("most", [1.0, 1e8])
def test_a_simulator_whose_sums_leave_their_range_is_refused(most: float) -> None:
    """1.9 with probability 0.3, on average more than the budget; what is cut off at 1 would keep it."""

    class Breaking:
        units, spaces = rare_and_wide(most), "one lever"

        def __init__(self, parameter: Any) -> None: ...

        def digest(self) -> str:
            return "0" * 64

        def episodes(self, policy: Any, steps: int) -> Breaking:
            return self

        def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
            return Outcomes(np.full(episodes, 0.5), 1.9 * (rng.random((episodes, 1)) < 0.3))

    tasks = sf.tasks.family(Breaking, sf.tasks.Finite([0.0, 1.0]))  # type: ignore[arg-type]
    lever = sf.TabularPolicy(np.ones((1, 1)))
    with pytest.raises(sf.InvalidInput, match="sums must lie in the ranges that it declares"):
        sf.policy_set(tasks, safe=lever, candidates=[lever], seed=0, signals=False, progress=False)


def test_a_sum_that_is_always_the_same_may_be_off_by_rounding() -> None:
    units = Units(1.0, (0.0, 1.0), (0.0, 1.0), [5.0], horizon=40, reward_sum_range=(3.3, 3.3))  # type: ignore[arg-type]
    reward = sum([0.1] * 33)
    assert reward != 3.3
    assert first_breach(Outcomes.single(Outcome(reward, np.zeros(1))), units) == 1
    assert first_breach(Outcomes.single(Outcome(3.3 + 1e-9, np.zeros(1))), units) == 0
