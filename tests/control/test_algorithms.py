"""Learners of policies where the answer is known: the step of CPO against a convex solver, and all of them on a bandit
whose best constrained policy has a closed form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from bandit_world import BUDGET, STEPS, BanditWorld
from surefoot.control.cpo import constrained_step, cpo, crpo
from surefoot.control.improvement import AdvantageBatch, Memory, Settings, TrainState, Update, improve
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.control.networks import Actor
from surefoot.control.ppo_lagrangian import Clipping, ppo_lagrangian
from surefoot.control.trust_region import Region

QUICK = Settings(steps=240_000, batch=4_000, hidden=(8,), discount=0.9, log_std=-1.5)
UPDATES: dict[str, Update] = {
    "cpo": cpo(Region(divergence=0.02)),
    "crpo": crpo(region=Region(divergence=0.02)),
    "ppo-lagrangian": ppo_lagrangian(Clipping(rate=1e-2, minibatch=500)),
}


@given(st.integers(0, 10**6))
@settings(max_examples=60)
def test_the_step_of_cpo_solves_its_problem(seed: int) -> None:
    """Against a solver that knows nothing of duals, on random constrained quadratics."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(4, 4))
    H, g, b = root @ root.T + 0.1 * np.eye(4), rng.normal(size=4), rng.normal(size=4)
    delta, c = 0.05, float(rng.normal() * rng.choice([0.0, 0.1, 0.5]))
    x, p = np.linalg.solve(H, g), np.linalg.solve(H, b)
    q, r, s = g @ x, g @ p, b @ p
    found = constrained_step(q, r, s, c, delta)
    if c - np.sqrt(2 * delta * s) > 0:
        assert found.recovering
        return
    step = (x - found.multiplier * p) / found.lagrange
    assert 0.5 * step @ H @ step <= delta * (1 + 1e-6)
    assert c + b @ step <= 1e-6
    second = minimize(
        lambda y: -g @ y,
        -np.sqrt(2 * delta / s) * p * 0.999,
        jac=lambda y: -g,
        constraints=[
            {"type": "ineq", "fun": lambda y: delta - 0.5 * y @ H @ y, "jac": lambda y: -H @ y},
            {"type": "ineq", "fun": lambda y: -c - b @ y, "jac": lambda y: -b},
        ],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert g @ step >= -second.fun - 1e-4 * (1 + abs(second.fun))


def gain_of(trained: TrainState) -> float:
    """k of a = kx, at x = ±1."""
    policy = trained.policy
    assert isinstance(policy, MLPPolicy)
    return float(np.diff(policy.mean(np.array([[-1.0], [1.0]]))[:, 0])[0] / 2)


def test_every_update_goes_by_the_cost_of_the_policy_that_it_updates() -> None:
    """However small the batch, episodes end in every lane and group, and none of an earlier policy is counted."""
    lessons = []

    def update(actor: Actor, lesson: AdvantageBatch, memory: Memory, rng: np.random.Generator) -> tuple[Actor, Memory]:
        lessons.append(lesson)
        return actor, memory

    world, groups = BanditWorld(np.ones(6)), [0, 0, 0, 1, 1, 1]
    small = replace(QUICK, batch=1, steps=3 * 6 * STEPS)
    trained = improve(world, update, settings=small, rng=np.random.default_rng(0), groups=groups)
    assert [each.steps for each in trained.history] == [6 * STEPS, 12 * STEPS, 18 * STEPS]
    assert len({float(each.sums[1]) for each in trained.history}) == 3
    assert len({tuple(lesson.excess.ravel()) for lesson in lessons}) == 3
    assert all(lesson.excess[0] != lesson.excess[1] for lesson in lessons)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(UPDATES))
def test_a_budget_that_binds_is_used_and_kept(name: str) -> None:
    world = BanditWorld(np.ones(40))
    trained = improve(world, UPDATES[name], settings=QUICK, rng=np.random.default_rng(0))
    assert trained.history[-1].steps == QUICK.steps
    spent = np.mean([each.sums[1] for each in trained.history[-10:]]) / STEPS
    assert spent == pytest.approx(BUDGET, rel=0.1)
    assert gain_of(trained) == pytest.approx(np.sqrt(BUDGET), abs=0.08)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(UPDATES))
def test_one_policy_for_several_groups_keeps_the_budget_of_the_worst(name: str) -> None:
    world = BanditWorld(np.repeat([0.5, 2.0], 20))
    groups = np.repeat([0, 1], 20)
    trained = improve(world, UPDATES[name], settings=QUICK, rng=np.random.default_rng(1), groups=groups.tolist())
    assert gain_of(trained) == pytest.approx(np.sqrt(BUDGET) / 2, abs=0.06)
    assert np.mean([each.excess for each in trained.history[-10:]]) < 0.1 * BUDGET * STEPS


@pytest.mark.long
def test_a_budget_that_does_not_bind_is_left_alone() -> None:
    world = BanditWorld(np.full(40, 0.1))
    for update in UPDATES.values():
        trained = improve(world, update, settings=QUICK, rng=np.random.default_rng(2))
        assert gain_of(trained) == pytest.approx(1.0, abs=0.1)


@pytest.mark.long
def test_a_neighbour_is_a_good_start() -> None:
    update, brief = (
        UPDATES["ppo-lagrangian"],
        Settings(steps=20_000, batch=4_000, hidden=(8,), discount=0.9, log_std=-1.5),
    )
    near = improve(BanditWorld(np.ones(40)), update, settings=QUICK, rng=np.random.default_rng(3))
    task = BanditWorld(np.full(40, 1.1))
    warm = improve(task, update, settings=brief, rng=np.random.default_rng(4), start=near)
    cold = improve(task, update, settings=brief, rng=np.random.default_rng(4))
    best = np.sqrt(BUDGET) / 1.1
    assert abs(gain_of(warm) - best) < abs(gain_of(cold) - best) / 2


@pytest.mark.long
def test_the_same_seed_gives_the_same_policy() -> None:
    brief = Settings(steps=8_000, batch=4_000, hidden=(8,))
    first, again = (
        improve(BanditWorld(np.ones(40)), UPDATES["cpo"], settings=brief, rng=np.random.default_rng(5)).policy
        for _ in range(2)
    )
    for name, array in first.to_arrays().items():
        np.testing.assert_array_equal(array, again.to_arrays()[name])


@pytest.mark.long
def test_choices_are_learned_too() -> None:
    """Actions 0 and 1 where x decides which is better: a = 1 where x > 1/2, with a budget that does not bind."""
    world = BanditWorld(np.full(40, 0.1), discrete=True)
    for update in UPDATES.values():
        policy = improve(world, update, settings=replace(QUICK, steps=60_000), rng=np.random.default_rng(6)).policy
        assert policy.likeliest(np.array([[-0.5], [1.5]]), 0).tolist() == [0, 1]
