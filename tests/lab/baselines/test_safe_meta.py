"""Safe Meta-RL: the closed form and its dual against direct maximisation, estimates by hand, the learner's contract."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from grid_baselines import check_abandoned, check_contract, grid_policies, grid_world
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import rel_entr

from random_tasks import random_cmdp, random_distributions, seeds
from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.batch_adaptation import BatchAdaptation
from surefoot.lab.baselines.safe_meta import PRESETS, VisitSums, adapt_policy, add_visits, closed_form_policy, penalties
from surefoot.learning.learner import Learner
from surefoot.methods import learner
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.rollout import Simulator
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.testing import learner_suite as suite

NAMES = ("safe-meta-theory", "safe-meta-published")


def made(name: str = "safe-meta-published", **options: Any) -> BatchAdaptation:
    method: Any = learner(grid_policies(), method=name, **options).method
    return method


# ----------------------------------------------------------------------------------------------------- the closed form


def problem(seed: int, constraints: int) -> tuple[Floats, Floats, Floats, Floats]:
    """π_φ [S, A], advantages [1+m, S, A] of mean 0 under it, ν [S], λ_c [m]."""
    rng = np.random.default_rng(seed)
    policy = random_distributions(rng, (3, 3))
    advantages = rng.normal(size=(1 + constraints, 3, 3))
    advantages -= (advantages * policy).sum(axis=2, keepdims=True)
    return policy, advantages, random_distributions(rng, (3,)), rng.uniform(0.1, 1.0, constraints)


def spent(pi: Floats, policy: Floats, advantages: Floats, states: Floats, cost_penalty: Floats) -> Floats:
    """[m] E_ν[E_π A_c + (1-γ)·λ_c·KL] for γ = 0.9."""
    divergence = states @ rel_entr(pi, policy).sum(axis=1)
    used: Floats = (pi * advantages[1:]).sum(axis=2) @ states + 0.1 * cost_penalty * divergence
    return used


def best_policy(policy: Floats, loss: Any, constraints: Any = ()) -> tuple[Floats, float]:
    """The policy [S, A] that minimises `loss`, found over its logits by a general solver."""
    found = minimize(
        lambda theta: loss(_policy(theta)),
        np.log(policy).ravel(),
        method="SLSQP",
        constraints=constraints,
        options={"maxiter": 2000, "ftol": 1e-14},
    )
    return _policy(found.x), float(found.fun)


def _policy(theta: Floats) -> Floats:
    logits = theta.reshape(3, 3)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    normalised: Floats = weights / weights.sum(axis=1, keepdims=True)
    return normalised


@settings(max_examples=8)
@given(seed=seeds, constraints=st.integers(1, 2))
def test_the_closed_form_maximises_the_lagrangian(seed: int, constraints: int) -> None:
    """It is stationary, which is enough since the loss is convex in the policy, and a general solver, which may end
    early where the best policy is nearly deterministic, finds nothing better."""
    policy, advantages, states, cost_penalty = problem(seed, constraints)
    multipliers = np.random.default_rng(seed).uniform(0, 2, constraints)

    def loss(pi: Floats) -> float:
        gain = states @ ((pi * advantages[0]).sum(axis=1) - 0.5 * rel_entr(pi, policy).sum(axis=1))
        return float(multipliers @ spent(pi, policy, advantages, states, cost_penalty) - gain)

    ours = closed_form_policy(policy, advantages, multipliers, 0.5, cost_penalty, 0.9)
    around = (np.log(ours).ravel() + sign * 1e-5 * np.eye(ours.size) for sign in (1, -1))
    ahead, behind = (np.array([loss(_policy(theta)) for theta in rows]) for rows in around)
    assert (ahead - behind) / 2e-5 == pytest.approx(0.0, abs=1e-8)
    assert loss(ours) <= best_policy(policy, loss)[1] + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_the_dual_steps_solve_the_constrained_problem(seed: int) -> None:
    """With many short steps, against a general solver of the problem itself; the constraint binds in most cases."""
    policy, advantages, states, cost_penalty = problem(seed, 1)
    room = np.array([0.02])
    ours, multipliers = adapt_policy(
        policy, advantages, states, room, 0.5, cost_penalty, discount=0.9, dual_step=0.5, dual_steps=4000
    )

    def loss(pi: Floats) -> float:
        return -float(states @ ((pi * advantages[0]).sum(axis=1) - 0.5 * rel_entr(pi, policy).sum(axis=1)))

    within = {"type": "ineq", "fun": lambda t: room - spent(_policy(t), policy, advantages, states, cost_penalty)}
    _, least = best_policy(policy, loss, [within])
    left = room - spent(ours, policy, advantages, states, cost_penalty)
    assert left[0] >= -1e-6
    assert multipliers[0] * left[0] == pytest.approx(0, abs=1e-5)
    assert loss(ours) == pytest.approx(least, abs=1e-5)


def test_the_dual_begins_at_zero_and_ends_one_step_short_as_published() -> None:
    """30 steps: the policy is that of the multiplier before the last step; two steps by hand."""
    policy, advantages, states, cost_penalty = problem(1, 1)
    room = np.array([-1.0])  # no policy near π_φ is feasible: the multiplier grows
    first, zero = adapt_policy(
        policy, advantages, states, room, 0.5, cost_penalty, discount=0.9, dual_step=1.0, dual_steps=1
    )
    weights = policy * np.exp(advantages[0] / 0.5)
    assert zero.tolist() == [0.0]
    assert first == pytest.approx(weights / weights.sum(axis=1, keepdims=True))
    second, one = adapt_policy(
        policy, advantages, states, room, 0.5, cost_penalty, discount=0.9, dual_step=1.0, dual_steps=2
    )
    u = spent(first, policy, advantages, states, cost_penalty) - room
    assert one == pytest.approx(u)
    weights = policy * np.exp((advantages[0] - u[0] * advantages[1]) / (0.5 + 0.1 * u[0] * cost_penalty[0]))
    assert second == pytest.approx(weights / weights.sum(axis=1, keepdims=True))


def test_actions_that_the_policy_never_takes_stay_so() -> None:
    policy = np.array([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    adapted = closed_form_policy(policy, 1e3 * np.ones((2, 3, 3)), np.ones(1), 1e-3, np.ones(1), 0.9)
    assert (adapted[policy == 0] == 0).all()
    assert np.isfinite(adapted).all()


# ----------------------------------------------------------------------------------------------------------- estimates


@pytest.mark.parametrize("discounted", [False, True])
def test_advantages_are_every_visit_means(discounted: bool) -> None:
    task = random_cmdp(np.random.default_rng(2), states=4, actions=3, constraints=2, discount=0.8)
    signals = np.concatenate([task.reward[None], task.cost])
    episodes = Simulator(task, np.full((4, 3), 1 / 3), 6).run(3, np.random.default_rng(2), transitions=True)
    sums = add_visits(signals, 0.8, discounted, VisitSums.empty(signals), episodes)
    q: dict[tuple[int, int], list[Floats]] = {}
    v: dict[int, list[Floats]] = {}
    presence = np.zeros(4)
    for j in range(3):
        total = np.zeros(3)
        for t in reversed(range(6)):
            s, a = int(episodes.states[j, t]), int(episodes.actions[j, t])
            total = signals[:, s, a] + 0.8 * total
            q.setdefault((s, a), []).append(total)
            v.setdefault(s, []).append(total)
            presence[s] += 0.8**t if discounted else 1.0
    expected = np.zeros((3, 4, 3))
    for (s, a), each in q.items():
        expected[:, s, a] = np.mean(each, axis=0) - np.mean(v[s], axis=0)
    assert 0 < len(q) < 12  # some actions were not taken
    assert sums.advantages() == pytest.approx(expected)
    assert sums.presence == pytest.approx(presence)
    assert sums.cost / 3 == pytest.approx(episodes.cost.mean(axis=0))


# ---------------------------------------------------------------------------------------------------------- the method


def test_presets() -> None:
    published, theory = made(), made("safe-meta-theory")
    units = grid_policies().units
    assert penalties(units, PRESETS[published.name]) == (0.2, [0.2])
    assert published.mixture(published.start()).indices.tolist() == [1]
    assert isinstance(published.meta, TabularPolicy)
    assert (published.meta.probabilities > 0).all()
    task = gridworld().task([0.4])
    safe = evaluate(task, grid_policies().safe_policy.to_arrays()["probabilities"])
    assert evaluate(task, published.meta).reward == pytest.approx(safe.reward, abs=1e-2)
    assert penalties(units, PRESETS[theory.name])[0] == pytest.approx(2 * 0.9 * 10 / 0.1**3)
    assert theory.mixture(theory.start()).indices.tolist() == [0]
    assert "safe policy" in theory.note


def test_the_theory_hardly_moves_and_the_published_constants_do() -> None:
    moved = {}
    for name in NAMES:
        learner = Learner(made(name))
        suite.tell_in_blocks(learner, grid_world(name), 150, [50])
        first, *_, last = learner.state.method.policies[-4:]
        moved[name] = np.abs(first.probabilities - last.probabilities).max()
        assert len([event for event in learner.events if event.kind == "adapted"]) == 3
    assert moved["safe-meta-theory"] < 0.02
    assert moved["safe-meta-published"] > 0.5


def test_each_adaptation_begins_at_the_last() -> None:
    """Two adaptations by the parts tested above, from the episodes that the learner was told."""
    method, world = made(batch=20), grid_world("twice")
    learner = Learner(method)
    for index in (1, 2):
        orders = learner.ask_block(20)
        outcomes = world.outcomes(learner, orders)
        before = learner.policy(index).to_arrays()["probabilities"]
        sums: Any = method.add(method.empty, outcomes)
        learner.tell_block(orders, outcomes)
        expected, _ = adapt_policy(
            before,
            sums.advantages(),
            sums.presence / sums.presence.sum(),
            0.1 * (1.5 - outcomes.cost.mean(axis=0)),
            0.2,
            np.array([0.2]),
            discount=0.9,
            dual_step=1.0,
            dual_steps=30,
        )
        assert learner.policy(index + 1).to_arrays()["probabilities"] == pytest.approx(expected)


def test_options_are_checked() -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"temperature": 1.0}, {"reward_penalty": 0.0}, {"cost_penalty": -1.0}, {"dual_steps": 0}, {"batch": 0},
        {"allowance": -1.0}, {"start": np.ones((2, 2)) / 2},
    )  # fmt: skip
    for options in wrong:
        with pytest.raises(InvalidInput):
            made(**options)
    with pytest.raises(InvalidInput, match="safe-meta-theory"):
        made("safe-meta")


# -------------------------------------------------------------------------------------------------------- the contract


def maker(name: str) -> suite.Make:
    return lambda: Learner(made(name, batch=33), seed=5)


@pytest.mark.short_for(name=["safe-meta-published"])
@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str) -> None:
    check_contract(maker(name), grid_world(name + " contract"))


@cache
def told_singly(name: str) -> suite.Story:
    return suite.tell_singly(maker(name)(), grid_world(name + " contract"), 130)


@settings(max_examples=4)
@given(sizes=st.lists(st.integers(1, 70), min_size=1, max_size=12), name=st.sampled_from(NAMES))
def test_blocks_tell_the_same_story(sizes: list[int], name: str) -> None:
    story = told_singly(name)
    assert len(set(story.drawn)) == 4
    suite.blocks_tell_the_same_story(maker(name), grid_world(name + " contract"), sizes, story)


def test_an_abandoned_episode_is_as_if_it_had_not_been_run() -> None:
    check_abandoned(maker("safe-meta-published"), 33)
