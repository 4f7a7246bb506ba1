"""Signals that look at what steps paid: tasks that differ in nothing else are told apart, and only with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from surefoot.arrays import Floats
from surefoot.bounds.settings import Envelopes, LearnedSignals
from surefoot.cmdp.episode import Observed, Outcome, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.deploy.session import Deployment
from surefoot.deploy.verify import verify
from surefoot.errors import InvalidInput
from surefoot.learning.learner import Learner
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family

STEPS, AIMS = 5, (0.5, 0.2, 0.8)
# A step may pay from -100 to 0, and pays about -1: of the sum alone hardly anything is known.
UNITS = Units(1.0, (-100.0, 0.0), np.array([[0.0, 1.0]]), np.array([3.0]), horizon=STEPS)


@dataclass(frozen=True)
class Guess:
    """Every step aims at a number and pays by how far it is from θ, which nobody sees."""

    theta: float
    told: bool = True
    units: Units = UNITS
    spaces: str = "noise, and one number"

    def digest(self) -> str:
        return sha256(repr((self.theta, self.told)).encode()).hexdigest()

    def episodes(self, policy: Policy, steps: int) -> Guesses:
        return Guesses(self, policy)


@dataclass(frozen=True)
class Guesses:
    task: Guess
    policy: Policy

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        seen = rng.normal(size=(episodes, STEPS + 1, 1))
        aims = np.stack([np.asarray(self.policy.act(seen[:, t], t, rng)) for t in range(STEPS)], axis=1)
        reward = -np.abs(aims - self.task.theta) - 0.02 * rng.random((episodes, STEPS))
        cost = (rng.random((episodes, STEPS)) < 0.2 * aims).astype(np.float64)
        paid = np.stack([reward, cost], axis=-1) if self.task.told else None
        observed = Observed(seen, aims, np.full(episodes, STEPS), paid)
        return Outcomes(reward.sum(1), cost.sum(1, keepdims=True), observed=observed if transitions else None)


def guesses(told: bool = True) -> TaskDistribution:
    return family(lambda theta: Guess(float(theta[0]), told), Uniform(0.0, 1.0), shared_costs=True)


def aiming(aim: float) -> Any:
    return lambda observation, rng: aim


@cache
def made(paid: bool) -> sf.PolicyValueSet:
    safe, *others = (sf.controller(aiming(aim), name=f"at{k}") for k, aim in enumerate(AIMS))
    return sf.policy_set(
        guesses(),
        safe=safe,
        candidates=others,
        seed=1,
        envelopes=Envelopes(cells=20, holdout=60, uncovered=0.2, episodes=40),
        signals=LearnedSignals(tasks=24, episodes=8, paid=paid),
        progress=False,
    )


def learner(policies: sf.PolicyValueSet) -> Learner:
    return sf.learner(policies, method="certified-signals", risk=0.5, seed=5)


def turn(learner: Learner, order: sf.Order, theta: float = 0.15) -> Outcome:
    ran = Guess(theta).episodes(learner.policy(order.policy_index), STEPS)
    outcomes = ran.run(1, np.random.default_rng([order.episode, order.policy_index]), transitions=True)
    return Outcome(float(outcomes.reward[0]), outcomes.cost[0], observed=outcomes.observed)


@pytest.mark.short_for(paid=[True])
@pytest.mark.parametrize("paid", [True, False])
def test_what_steps_paid_tells_tasks_apart_that_nothing_else_does(paid: bool) -> None:
    trying = learner(made(paid))
    for _ in range(60):
        order = trying.ask()
        trying.tell(order, turn(trying, order))
    account = trying.certificate()
    assert (account.surviving < 0.5 * account.total) == paid
    if paid:
        assert trying.deployed.indices[trying.deployed.weights.argmax()] == 1, "the guess that is nearest"


def told(outcome: Outcome) -> dict[str, Any]:
    observed = outcome.observed
    assert observed is not None
    assert observed.paid is not None
    return {
        "rewards": observed.paid[0, :, 0].tolist(),
        "costs": observed.paid[0, :, 1:].tolist(),
        "observations": observed.observations[0].tolist(),
        "actions": observed.actions[0].tolist(),
    }


def test_a_deployment_reads_what_simulation_read(tmp_path: Path) -> None:
    made(True).save(tmp_path / "set")
    controllers = {f"at{k}": aiming(aim) for k, aim in enumerate(AIMS)}
    policies = sf.PolicyValueSet.load(tmp_path / "set", controllers=controllers)
    assert policies.cells is not None
    assert policies.cells.readings is not None
    assert policies.cells.readings.signals.paid
    trying = learner(policies)
    with Deployment.open(tmp_path / "journal", learner(policies)) as deployment:
        for _ in range(8):
            order = trying.ask()
            outcome = turn(trying, order)
            trying.tell(order, outcome)
            deployment.tell(deployment.ask(), **told(outcome))
        assert deployment.learner.certificate().surviving == trying.certificate().surviving
        sums = {"reward": outcome.reward, "cost": outcome.cost.tolist()}
        with pytest.raises(InvalidInput, match="need the reward and costs of every step"):
            deployment.tell(deployment.ask(), **{**told(outcome), "rewards": None, "costs": None, **sums})
    assert verify(tmp_path / "journal", learner(policies)).holds


@pytest.mark.parametrize("change", [lambda paid: paid[:, :-1], lambda paid: paid[..., :1], lambda paid: paid * np.nan])
def test_payments_of_another_shape_are_refused(change: Any) -> None:
    trying = learner(made(True))
    order = trying.ask()
    outcome = turn(trying, order)
    observed = outcome.observed
    assert observed is not None
    wrong: Floats = change(observed.paid)
    bad = Observed(observed.observations, observed.actions, observed.steps, wrong)
    with pytest.raises(InvalidInput, match="paid must be"):
        trying.tell(order, Outcome(outcome.reward, outcome.cost, observed=bad))


def test_tasks_that_do_not_show_what_steps_paid_are_refused() -> None:
    safe, *others = (sf.controller(aiming(aim), name=f"at{k}") for k, aim in enumerate(AIMS))
    with pytest.raises(InvalidInput, match=r"paid must be False for tasks that do not show .* got True and Guess"):
        sf.policy_set(guesses(False), safe=safe, candidates=others, seed=1, signals=LearnedSignals(tasks=8, paid=True))


def test_own_signals_are_used_as_they_are() -> None:
    with pytest.raises(InvalidInput, match="paid must be False beside signals of one's own"):
        LearnedSignals(signals=lambda seen, acted: [0.5], paid=True)
