"""Learned oracles under the contract of all oracles, on a toy and on Gymnasium's environments."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import cartpole
import pendulum
from bandit_world import BanditTask
from surefoot.control.cpo import crpo
from surefoot.control.improvement import Settings
from surefoot.control.mlp_policy import CategoricalPolicy, MLPPolicy
from surefoot.control.ppo_lagrangian import Clipping, ppo_lagrangian
from surefoot.control.trust_region import Region
from surefoot.oracles import learned_experts, learned_safe_policy
from surefoot.oracles.learned import Schooling
from surefoot.testing import oracle_suite

QUICK = Schooling(
    ppo_lagrangian(Clipping(rate=1e-2, minibatch=500)),
    Settings(steps=48_000, batch=4_000, hidden=(8,), discount=0.9, log_std=-1.5),
    warm_steps=24_000,
    tested=2_000,
)
UNIT = 0.02  # 1 in the scale of the oracles is 100 in cost and reward


def bandit(gain: float) -> BanditTask:
    return BanditTask(np.array([gain]))


@pytest.mark.long
def test_experts_keep_the_contract() -> None:
    found = oracle_suite.conforms_to_optimal_oracle(learned_experts(QUICK), bandit(1.2), UNIT)
    assert isinstance(found.policy, MLPPolicy)


def test_the_safe_policy_keeps_the_contract() -> None:
    safe = learned_safe_policy(replace(QUICK, update=crpo(region=Region(divergence=0.02))))
    found = oracle_suite.conforms_to_feasible_oracle(safe, [bandit(0.7), bandit(1.5)], 0.002, epsilon=UNIT)
    assert found.margin[0] > found.margin[1] > 0.2  # the weaker gain costs less


CARTS = Schooling(
    ppo_lagrangian(Clipping(rate=3e-3, minibatch=500)),
    Settings(steps=60_000, batch=3_000, hidden=(16, 16), discount=0.98),
    warm_steps=30_000,
    lanes=20,
)


@pytest.mark.long
def test_an_expert_for_cartpole() -> None:
    """Twice the reward of the careful law that the example comes with, within the budget."""
    task = cartpole.tasks().task(0.55)
    found = oracle_suite.conforms_to_optimal_oracle(learned_experts(CARTS), task, 0.6)
    assert isinstance(found.policy, CategoricalPolicy)
    calm = task.episodes(cartpole.SAFE, 80).run(400, np.random.default_rng(1))
    assert found.reward > 2 * calm.reward.mean()


@pytest.mark.long
def test_a_policy_for_pendulums_side_by_side() -> None:
    """Of two lengths, one policy: little is trained, so that little is asked of it but to keep the budget."""
    family = pendulum.tasks()
    brief = replace(CARTS, settings=replace(CARTS.settings, steps=16_000, batch=4_000), warm_steps=8_000)
    tasks = [family.task(length) for length in (0.95, 1.25)]
    found = oracle_suite.conforms_to_feasible_oracle(learned_safe_policy(brief), tasks, None, epsilon=1.0)
    assert isinstance(found.policy, MLPPolicy)
    assert found.margin.shape == (2, 1)
