"""A set with a horizon and policies that look at the clock, on disk, deployed, acting, and its journal verified."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import surefoot as sf
from surefoot.deploy.replay import OtherPolicySet
from surefoot.deploy.verify import read_header, verify
from surefoot.errors import InvalidInput
from surefoot.learning.learner import Learner
from surefoot.learning.paper.safe_only import SafeOnly

HORIZON = 4


def pump(horizon: int = HORIZON) -> sf.TabularCMDP:
    """Running fast earns 1 and wears a pump out, which costs 1 per step; nothing is discounted."""
    worn = [0.6, 0.4]
    return sf.TabularCMDP(
        [[[1.0, 0.0], worn], [worn, [0.0, 1.0]]],
        [[0.0, 1.0], [0.0, 1.0]],
        [0.0, 1.0],
        0.5,
        [1.0, 0.0],
        1.0,
        horizon=horizon,
    )


def policies(horizon: int = HORIZON) -> sf.PolicyValueSet:
    task = pump(horizon)
    safe, best = sf.solve(task, tighten=0.4), sf.solve(task)
    entry = sf.Entry(
        np.array([0.4]), best.policy, best.values.reward, best.values.margin, safe.values.reward, safe.values.margin
    )
    return sf.PolicyValueSet((entry,), safe.policy, task.units, 0.1, 0.1, 0.01, task.digest(), {}, {})


def learner(made: sf.PolicyValueSet) -> Learner:
    return Learner(SafeOnly(made), seed=3, horizon=HORIZON)


def test_a_deployment_with_a_horizon_is_verified(tmp_path: Path) -> None:
    policies().save(tmp_path / "set")
    loaded, task, rng = sf.PolicyValueSet.load(tmp_path / "set"), pump(), np.random.default_rng(0)
    with sf.Deployment.open(tmp_path / "pump.journal", learner(loaded)) as deployment:
        for _ in range(20):
            order, state, rewards, costs = deployment.ask(), 0, [], []
            for step in range(HORIZON):
                action = order.policy.act(state, step, rng)
                rewards.append(task.reward[state, action])
                costs.append(task.cost[0, state, action])
                state = int(rng.choice(2, p=task.transitions[state, action]))
            deployment.tell(order, rewards=rewards, costs=costs)
        order = deployment.ask()
        with pytest.raises(InvalidInput, match=r"rewards must be at most 4"):
            deployment.tell(order, rewards=[0.0] * 5, costs=[0.0] * 5)
        with pytest.raises(InvalidInput, match=r"must lie in \[0.0, 4.0\] and \[\[0.0, 4.0\]\], got 4.5"):
            deployment.tell(order, reward=4.5, cost=0.0)
        deployment.tell(order, reward=4.0, cost=4.0)  # as much as the horizon allows
    assert read_header(tmp_path / "pump.journal")["task_horizon"] == HORIZON
    verdict = verify(tmp_path / "pump.journal", learner(loaded))
    assert verdict.holds, verdict.reason
    assert verdict.episodes == 21
    with pytest.raises(OtherPolicySet):
        verify(tmp_path / "pump.journal", learner(policies(5)))


def test_the_header_shows_another_horizon(tmp_path: Path) -> None:
    """Also to a method that names no policy set, and so no digest of one."""

    class Nameless(SafeOnly):
        @property
        def units(self) -> sf.Units:
            return replace(pump().units, horizon=self.risk)  # type: ignore[arg-type]

    made = [Learner(Nameless(policies(), horizon), horizon=HORIZON) for horizon in (4, 5)]  # type: ignore[arg-type]
    with sf.Deployment.open(tmp_path / "journal", made[0]):
        pass
    verdict = verify(tmp_path / "journal", made[1])
    assert "was begun with task_horizon 4, got a learner with 5" in verdict.reason
