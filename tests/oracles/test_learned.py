"""Oracles that learn: where the answer is known, on a bandit whose best constrained policy has a closed form, and under
the contract of all oracles, also on Gymnasium's environments."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import cartpole
import pendulum
from bandit_world import BUDGET, STEPS, BanditEpisodes, BanditTask
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.control.cpo import crpo
from surefoot.control.improvement import Settings, resume
from surefoot.control.mlp_policy import CategoricalPolicy, MLPPolicy
from surefoot.control.ppo_lagrangian import Clipping, ppo_lagrangian
from surefoot.control.trust_region import Region
from surefoot.errors import Infeasible, InvalidInput
from surefoot.oracles import learned
from surefoot.oracles.learned import Schooling, learned_experts, learned_safe_policy
from surefoot.testing import oracle_suite

QUICK = Schooling(
    ppo_lagrangian(Clipping(rate=1e-2, minibatch=500)),
    Settings(steps=200_000, batch=4_000, hidden=(8,), discount=0.9, log_std=-1.5),
    warm_steps=60_000,
    tested=4_000,
)
SAFE = replace(QUICK, update=crpo(region=Region(divergence=0.02)))
LOOSE = 0.05  # epsilon, unit scale


def bandit(gain: float) -> BanditTask:
    return BanditTask(np.array([gain]))


def gain_of(policy: Any) -> float:
    return float(np.diff(policy.mean(np.array([[-1.0], [1.0]]))[:, 0])[0] / 2)


@pytest.mark.long
def test_experts_use_their_budget_and_begin_with_their_neighbours() -> None:
    seen: list[int] = []
    optimal = learned_experts(replace(QUICK, observer=lambda batch: seen.append(batch.steps)))
    for k, gain in enumerate((1.0, 1.3)):
        found = optimal(bandit(gain), LOOSE, 0.1, np.random.default_rng(k))
        assert gain_of(found.policy) == pytest.approx(np.sqrt(BUDGET) / gain, abs=0.08)
        assert found.margin[0] > -0.1 * BUDGET * STEPS
        assert seen[-1] == (QUICK.settings.steps if k == 0 else QUICK.warm_steps)
        seen.clear()


Asked = list[tuple[float, bool]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """In place of training, which returns one and the same policy: the budgets, and whether each began from nothing."""
    told: Asked = []

    def note(world: Any, update: Any, *, settings: Any, rng: Any, budget: Any, start: Any, **rest: Any) -> Any:
        told.append((float(budget[0]), start is None))
        return resume(pushing(0.3), world, settings, rng)

    monkeypatch.setattr(learned, "improve", note)
    return told


def test_looser_budgets_come_first_and_only_from_nothing(asked: Asked) -> None:
    optimal = learned_experts(replace(QUICK, loosened=(3.0, 1.5), allowance=100.0))
    for gain in (1.0, 1.1):
        optimal(bandit(gain), LOOSE, 0.1, np.random.default_rng(0))
    tightest = asked[2][0]
    assert [nothing for _, nothing in asked] == [True] + [False] * (len(asked) - 1)
    assert [budget for budget, _ in asked[:3]] == pytest.approx([3 * tightest, 1.5 * tightest, tightest])
    assert all(budget <= tightest * (1 + 1e-9) for budget, _ in asked[3:])
    assert len(asked) > 3


@pytest.mark.long
@pytest.mark.parametrize("mildest_first", [True, False])
def test_the_safe_policy_begins_with_the_mildest_expert(mildest_first: bool) -> None:
    """One batch is enough for that one, whose budgets are kept from the first; not for the others."""
    tasks, rng = [bandit(gain) for gain in (0.5, 1.0, 2.0)], np.random.default_rng(0)
    settings = replace(QUICK.settings, steps=4_000)
    brief = replace(QUICK, settings=settings, warm_steps=4_000)
    pushes = (0.15, 0.6, 1.5) if mildest_first else (1.5, 0.6, 0.15)
    solved = [(tasks[0], resume(pushing(push), tasks[0].world(1), settings, rng)) for push in pushes]
    found = learned_safe_policy(brief, solved)(tasks, 0.0, 0.1, rng)
    assert (found.margin > 0).all()
    assert gain_of(found.policy) == pytest.approx(0.15, abs=0.1)
    with pytest.raises(Infeasible):
        learned_safe_policy(brief, [pair for pair in solved if gain_of(pair[1].policy) > 0.5])(tasks, 0.0, 0.1, rng)


def pushing(gain: float) -> MLPPolicy:
    return MLPPolicy((np.array([[gain]]),), (np.zeros(1),), np.array([-3.0]), np.zeros(1), np.ones(1))


@pytest.mark.long
def test_the_safe_policy_keeps_the_budget_of_every_task() -> None:
    tasks = [bandit(gain) for gain in (0.5, 1.0, 2.0)]
    found = learned_safe_policy(SAFE)(tasks, 0.0, 0.1, np.random.default_rng(0))
    assert found.margin.shape == (3, 1)
    assert (found.margin > 0).all()
    assert gain_of(found.policy) == pytest.approx(np.sqrt(BUDGET) / 2, abs=0.08)
    with pytest.raises(InvalidInput, match="at least one task, got none"):
        learned_safe_policy(SAFE)([], 0.0, 0.1, np.random.default_rng(0))


def test_what_cannot_be_shown_is_refused(asked: Asked) -> None:
    with pytest.raises(Infeasible, match=r"on task 0 of 1 the last one has .* train for longer"):
        learned_safe_policy(replace(SAFE, tested=20))([bandit(1.0)], 0.1, 0.1, np.random.default_rng(0))
    assert len(asked) == learned.RETRIES


@dataclass(frozen=True, eq=False)
class Falling(BanditTask):
    """Whose episodes are seen to last one step."""

    def episodes(self, policy: Policy, steps: int) -> Any:
        return Short(self, policy)


class Short(BanditEpisodes):
    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        whole = super().run(episodes, rng, transitions)
        observed = whole.watched()
        return replace(whole, observed=Observed(observed.observations, observed.actions, np.ones(episodes, np.int64)))


def test_a_policy_that_falls_is_no_expert(asked: Asked) -> None:
    with pytest.raises(Infeasible, match="which last 10% of the horizon"):
        learned_experts(QUICK)(Falling(np.array([0.1])), LOOSE, 0.1, np.random.default_rng(0))
    assert all(from_nothing for _, from_nothing in asked), "what has learned to end is not trained further"


# --------------------------------------------------------------------------------------------------------- the contract

BRIEF = replace(QUICK, settings=replace(QUICK.settings, steps=48_000), warm_steps=24_000, tested=2_000)
UNIT = 0.02  # 1 in the scale of the oracles is 100 in cost and reward


@pytest.mark.long
def test_experts_keep_the_contract() -> None:
    found = oracle_suite.conforms_to_optimal_oracle(learned_experts(BRIEF), bandit(1.2), UNIT)
    assert isinstance(found.policy, MLPPolicy)


@pytest.mark.long
def test_the_safe_policy_keeps_the_contract() -> None:
    safe = learned_safe_policy(replace(BRIEF, update=crpo(region=Region(divergence=0.02))))
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
