"""How the baselines on networks adapt and learn to, where the answer is known: closed forms against general solvers,
derivatives against differences, and meta-training on a bandit whose tasks have different gains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, rel_entr, softmax

from bandit_world import BUDGET, STEPS, BanditWorld
from surefoot.arrays import Floats
from surefoot.control.cpo import constrained_step
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.control.networks import Actor, Network
from surefoot.control.trust_region import Region
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.advantages import Samples, samples_of
from surefoot.lab.baselines.control_specs import (
    PUBLISHED,
    BatchRules,
    CpoRules,
    MetaCpoRules,
    PenaltyRules,
    SafeMetaRules,
)
from surefoot.lab.baselines.meta_training import MetaSettings, MetaTrained, meta_train
from surefoot.lab.baselines.network_adaptation import (
    ADAPTATIONS,
    META_LEARNERS,
    adapt_with_dual,
    inner_step,
    maml_adapt,
    mean_divergence,
    meta_objective,
    meta_step,
    safe_meta_adapt,
)
from surefoot.lab.baselines.safe_meta import closed_form_policy

S, A = 3, 3  # states and choices of the tables below: networks without a hidden layer that see which state it is
UNIFORM = Actor(Network((jnp.zeros((A, S)),), (jnp.zeros(A),)), jnp.zeros(0))
RADIUS = jnp.sqrt(2 * 0.05)  # of meta-CPO's steps
CONTROL_RULES: dict[str, type[BatchRules]] = {name: type(rules) for name, rules in PUBLISHED.items()}
EVERY_STATE, EVERY_ACTION = np.repeat(np.arange(S), A), np.tile(np.arange(A), S)


def table(actor: Actor) -> Floats:
    """[S, A] probabilities."""
    logits = np.asarray(actor.network.weights[0], np.float64).T + np.asarray(actor.network.biases[0], np.float64)
    probabilities: Floats = softmax(logits, axis=1)
    return probabilities


def policy_of(theta: Floats) -> Floats:
    """[S, A] of flat parameters: weights [A, S], then biases [A]."""
    probabilities: Floats = softmax(theta[: A * S].reshape(A, S).T + theta[A * S :], axis=1)
    return probabilities


def every_action_once(advantages: Floats, excess: Floats) -> Samples:
    """Samples of the uniform policy [S, A, 1+m] whose means are its expectations."""
    return samples_of(UNIFORM, np.eye(S)[EVERY_STATE], EVERY_ACTION, advantages.reshape(S * A, -1), excess)


def random_advantages(rng: np.random.Generator, costs: int = 1) -> Floats:
    advantages = rng.normal(size=(S, A, 1 + costs))
    centred: Floats = advantages - advantages.mean(axis=1, keepdims=True)
    return centred


def slope_of(function: Callable[[Floats], float], at: Floats, step: float = 1e-4) -> Floats:
    """By central differences."""
    steps = step * np.eye(len(at))
    return np.array([(function(at + each) - function(at - each)) / (2 * step) for each in steps])


# -------------------------------------------------------------------------------------------------- meta-CPO's step


def by_the_dual(g: Floats, b: Floats, c: float, delta: float) -> Floats:
    """The same problem by CPO's closed form, of another kind: Theorem 2 of Achiam et al. with H = 1."""
    found = constrained_step(g @ g, g @ b, b @ b, c, delta)
    if found.recovering:
        return -np.sqrt(2 * delta / (b @ b)) * b
    return (g - found.multiplier * b) / found.lagrange


@given(st.integers(0, 10**6))
def test_the_inner_step_of_meta_cpo_solves_its_problem(seed: int) -> None:
    rng = np.random.default_rng(seed)
    g, b, c = rng.normal(size=4), rng.normal(size=4), float(rng.normal() * rng.choice([0.0, 0.2, 1.0]))
    found = np.asarray(jax.jit(inner_step)(jnp.asarray(g), jnp.asarray(b), jnp.asarray(c), RADIUS))
    np.testing.assert_allclose(found, by_the_dual(g, b, c, 0.05), atol=2e-4)


@pytest.mark.long
@pytest.mark.parametrize("c", [-2.0, -0.1, 0.05, 0.2, 2.0])
def test_its_derivative_is_that_of_the_solution(c: float) -> None:
    """Free, on the edge from either side, and with no way to keep the budget."""
    rng = np.random.default_rng(3)
    g, b, v = rng.normal(size=(3, 4))
    of_g = jax.grad(lambda x: v @ inner_step(x, jnp.asarray(b), jnp.asarray(c), RADIUS))(jnp.asarray(g))
    of_b = jax.grad(lambda x: v @ inner_step(jnp.asarray(g), x, jnp.asarray(c), RADIUS))(jnp.asarray(b))
    of_c = jax.grad(lambda x: v @ inner_step(jnp.asarray(g), jnp.asarray(b), x, RADIUS))(jnp.asarray(c))
    np.testing.assert_allclose(of_g, slope_of(lambda x: v @ by_the_dual(x, b, c, 0.05), g), atol=2e-3)
    np.testing.assert_allclose(of_b, slope_of(lambda x: v @ by_the_dual(g, x, c, 0.05), b), atol=2e-3)
    (expected,) = slope_of(lambda x: v @ by_the_dual(g, b, float(x[0]), 0.05), np.array([c]))
    assert float(of_c) == pytest.approx(expected, abs=2e-3)


# ------------------------------------------------------------------------- meta-gradients on a bandit with two tasks


def two_tasks(seed: int) -> tuple[list[Floats], list[float], Floats]:
    """Advantages [S, A, 2] and the excess of each task, and parameters to begin with."""
    rng = np.random.default_rng(seed)
    return [random_advantages(rng) for _ in range(2)], [0.05, -0.3], 0.3 * rng.normal(size=A * S + A)


def stacked(samples: list[Samples]) -> Samples:
    together: Samples = jax.tree.map(lambda *each: jnp.stack(each), *samples)
    return together


def actor_from(theta: Floats) -> Actor:
    actor: Actor = ravel_pytree(UNIFORM)[1](jnp.asarray(theta, jnp.float32))
    return actor


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_the_meta_gradient_of_maml_is_that_of_the_adapted_policies_worth(seed: int) -> None:
    """Against differences of an expectation over the table, its inner gradient by differences too."""
    tasks, _, theta = two_tasks(seed)
    rules = PenaltyRules(penalty=0.5, rate=0.7, divergence=None)

    def worth(theta: Floats) -> float:
        total = 0.0
        for advantages in tasks:
            both = advantages[..., 0] - 0.5 * advantages[..., 1]
            both = both / both.std()

            def inner(x: Floats, both: Floats = both) -> float:
                return float((2 * expit(2 * A * policy_of(x) - 2) * both).mean())

            total += float((policy_of(theta + 0.7 * slope_of(inner, theta)) * both).sum(axis=1).mean())
        return total / len(tasks)

    before = stacked([every_action_once(each, np.zeros(1)) for each in tasks])
    value, gradient = jax.value_and_grad(meta_objective)(actor_from(theta), (before,), before, rules)
    assert float(value) == pytest.approx(worth(theta), abs=1e-5)
    expected = slope_of(worth, theta, 1e-3)
    np.testing.assert_allclose(np.asarray(ravel_pytree(gradient)[0]), expected, atol=1e-3)
    # Without the inner step's derivative it would be another one: the test sees the difference.
    alone = [every_action_once(each, np.zeros(1)) for each in tasks]
    adapted = [maml_adapt(actor_from(theta), each, rules) for each in alone]
    slopes = [
        jax.grad(meta_objective)(actor, (), stacked([each]), rules) for actor, each in zip(adapted, alone, strict=True)
    ]
    first_order = np.mean([np.asarray(ravel_pytree(each)[0]) for each in slopes], axis=0)
    assert np.abs(first_order - expected).max() > 5e-3


@pytest.mark.long
@pytest.mark.parametrize(("seed", "local"), [(0, 1), (1, 1), (2, 2)])
def test_the_meta_step_of_meta_cpo_is_the_next_step_pulled_back(seed: int, local: int) -> None:
    tasks, excesses, theta = two_tasks(seed)
    rules = MetaCpoRules(length=float(RADIUS), divergence=None)

    def slopes(theta: Floats, advantages: Floats, excess: float) -> tuple[Floats, Floats, float]:
        def mean(x: Floats, column: int) -> float:
            return float((policy_of(x) * advantages[..., column]).sum(axis=1).mean())

        g, b = (slope_of(lambda x, column=column: mean(x, column), theta) for column in (0, 1))  # type: ignore[misc]
        return g, b, excess + mean(theta, 1)

    def adapted(theta: Floats, advantages: Floats, excess: float) -> Floats:
        for _ in range(local):
            theta = theta + by_the_dual(*slopes(theta, advantages, excess), 0.05)
        return theta

    expected = np.zeros_like(theta)
    for task in zip(tasks, excesses, strict=True):
        following = by_the_dual(*slopes(adapted(theta, *task), *task), 0.05)
        expected += slope_of(lambda x, task=task, following=following: following @ adapted(x, *task), theta, 1e-3) / 2  # type: ignore[misc]
    samples = stacked([every_action_once(each, np.array([over])) for each, over in zip(tasks, excesses, strict=True)])
    found = np.asarray(meta_step(actor_from(theta), (samples,) * local, samples, rules))
    np.testing.assert_allclose(found, expected, atol=4e-3)
    assert np.abs(expected).max() > 0.05


# --------------------------------------------------------------------------------------------- SafeMeta's adaptation

EXACT = SafeMetaRules(
    reward_penalty=0.5,
    cost_penalty=0.1,
    steps=6000,
    rate=3e-3,
    dual_step=0.03,
    most=50.0,
    divergence=1e3,
    saturating=False,
)


@pytest.mark.parametrize("seed", range(6))
def test_adapted_networks_solve_the_constrained_problem(seed: int) -> None:
    """Tables as networks, against a general solver; and each is the closed form of its multiplier."""
    rng = np.random.default_rng(seed)
    advantages, excess = random_advantages(rng), float(rng.choice([-0.05, 0.05, -1.0]))
    uniform = np.full((S, A), 1 / A)
    found, (multiplier,) = adapt_with_dual(UNIFORM, every_action_once(advantages, np.array([excess])), EXACT)
    ours = table(found)

    def apart(pi: Floats) -> float:
        return float(rel_entr(pi, uniform).sum(axis=1).mean())

    def loss(pi: Floats) -> float:
        return 0.5 * apart(pi) - float((pi * advantages[..., 0]).sum(axis=1).mean())

    def room(pi: Floats) -> float:
        return -excess - float((pi * advantages[..., 1]).sum(axis=1).mean()) - 0.1 * apart(pi)

    def as_policy(theta: Floats) -> Floats:
        return np.exp(log_softmax(theta.reshape(S, A), axis=1))

    second = minimize(
        lambda theta: loss(as_policy(theta)),
        np.zeros(S * A),
        method="SLSQP",
        constraints=[{"type": "ineq", "fun": lambda theta: room(as_policy(theta))}],
        options={"maxiter": 1000, "ftol": 1e-12},
    )
    assert room(ours) >= -2e-3
    assert float(multiplier) * room(ours) == pytest.approx(0, abs=5e-3)
    assert loss(ours) == pytest.approx(second.fun, abs=2e-3)
    exact = closed_form_policy(
        uniform, np.moveaxis(advantages, 2, 0), np.array([float(multiplier)]), 0.5, np.array([1.0]), 0.9
    )
    np.testing.assert_allclose(ours, exact, atol=1e-2)


@pytest.mark.long
def test_published_adaptation_stays_near_and_its_multipliers_bounded() -> None:
    rng = np.random.default_rng(0)
    samples = every_action_once(random_advantages(rng), np.array([5.0]))
    found, multipliers = adapt_with_dual(UNIFORM, samples, PUBLISHED["safe-meta-control"])
    assert np.asarray(multipliers).tolist() == [8.0]
    assert 0 < rel_entr(table(found), 1 / A).sum(axis=1).mean() < 3.0


@pytest.mark.long
def test_every_adaptation_gains_reward_and_heeds_the_cost() -> None:
    """On exact advantages: with room to spare reward rises; with none the cost falls, but for the penalty's sake."""
    rng = np.random.default_rng(1)
    advantages = random_advantages(rng)
    rules: dict[str, BatchRules] = {
        "cpo-online": CpoRules(),
        "meta-cpo": MetaCpoRules(),
        "maml-penalty": PenaltyRules(),
        "safe-meta-control": SafeMetaRules(),
    }
    for name, rule in rules.items():
        for excess, column, sign in ((-5.0, 0, 1), (5.0, 1, -1)):
            changed = table(ADAPTATIONS[name](UNIFORM, every_action_once(advantages, np.array([excess])), rule))
            gained = sign * (changed * advantages[..., column]).sum(axis=1).mean()
            assert gained > 1e-3, (name, excess)


# -------------------------------------------------------------------------- steps in divergence, whatever the noise


def noisy(log_std: float, rng: np.random.Generator) -> tuple[Actor, Samples]:
    """A policy of two actions, and samples of it whose reward is the first and whose cost the second of them."""
    weights, inputs = 0.1 * rng.normal(size=(2, 3)), rng.normal(size=(400, 3))
    actor = Actor(Network((jnp.asarray(weights, jnp.float32),), (jnp.zeros(2),)), jnp.full(2, log_std))
    noise = rng.normal(size=(400, 2))
    taken = inputs @ weights.T + np.exp(log_std) * noise
    return actor, samples_of(actor, inputs, taken, 5.0 * noise, np.array([-1.0]), standardised=True)


@pytest.mark.short_for(name=["maml-penalty", "meta-cpo"])
@pytest.mark.parametrize("name", sorted(ADAPTATIONS))
def test_one_adaptation_diverges_as_far_as_its_rules_say_at_any_action_noise(name: str) -> None:
    """A rate or a length in parameters would diverge by 10⁶ times as much at σ = 10⁻³ as at σ = 1."""
    rules = CONTROL_RULES[name]()
    for log_std in (0.0, -2.0, -3.5, -7.0):
        actor, samples = noisy(log_std, np.random.default_rng(0))
        adapted = ADAPTATIONS[name](actor, samples, rules)
        apart = float(mean_divergence(actor, adapted, samples.inputs))
        assert 0.1 * rules.divergence < apart <= rules.divergence, log_std


@pytest.mark.short_for(name=["meta-cpo"])
@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_published_rules_go_further_the_less_noise_there_is(name: str) -> None:
    """What the limit is for; CPO measures its steps by the divergence and SafeMeta ends at one."""
    found = []
    for log_std in (0.0, -3.5):
        actor, samples = noisy(log_std, np.random.default_rng(0))
        found.append(float(mean_divergence(actor, ADAPTATIONS[name](actor, samples, PUBLISHED[name]), samples.inputs)))
    assert (found[1] > 100 * found[0]) == (name in ("maml-penalty", "meta-cpo")), found


def test_penalties_in_spreads_do_not_ask_for_units() -> None:
    """Rewards in units 200 times smaller: the same adaptation, where one in the user's units hardly moves."""
    rng = np.random.default_rng(2)
    inputs, taken, advantages = np.eye(S)[EVERY_STATE], EVERY_ACTION, rng.normal(size=(S * A, 2))
    rules, excess = SafeMetaRules(divergence=0.3), np.array([-0.1])
    for standardised, alike in ((True, True), (False, False)):
        large, small = (
            table(safe_meta_adapt(UNIFORM, samples_of(UNIFORM, inputs, taken, paid, over, standardised), rules))
            for paid, over in ((advantages, excess), (advantages / 200, excess / 200))
        )
        assert np.allclose(large, small, atol=1e-4) == alike


# ----------------------------------------------------------------------------------------------------- meta-training

QUICK = MetaSettings(iterations=40, batch=1_000, hidden=(8,), log_std=-1.5, region=Region(divergence=0.03))
RULES: dict[str, BatchRules] = {
    "safe-meta-control": SafeMetaRules(rate=5e-3, steps=30, discount=0.9),
    "meta-cpo": MetaCpoRules(discount=0.9),
    "maml-penalty": PenaltyRules(discount=0.9, standardised=False),
}
GROUPS = np.repeat([0, 1], 20).tolist()


def meta_trained(name: str, gains: tuple[float, float], settings: MetaSettings, seed: int, **more: Any) -> MetaTrained:
    """On two tasks of these gains, 20 lanes each."""
    world, rng = BanditWorld(np.repeat(gains, 20)), np.random.default_rng(seed)
    given = {"groups": GROUPS, **more}
    return meta_train(world, learner=META_LEARNERS[name], rules=RULES[name], settings=settings, rng=rng, **given)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(RULES))
def test_meta_training_improves_what_comes_after_adaptation(name: str) -> None:
    trained = meta_trained(name, (0.8, 1.2), QUICK, 0)
    first, last = (
        np.mean([each.after for each in part], axis=0) for part in (trained.history[:3], trained.history[-10:])
    )
    assert len(trained.history) == QUICK.iterations
    assert 0 < trained.accepted <= QUICK.iterations
    assert last[:, 0].mean() > first[:, 0].mean() + 0.15 * STEPS  # the first policies earn about -1 in each step
    # A penalty keeps no budget, and a linear model of a cost that curves upwards keeps it nearly.
    allowed = {"safe-meta-control": 1.2, "meta-cpo": 1.6, "maml-penalty": np.inf}[name]
    assert (last[:, 1] < allowed * BUDGET * STEPS).all()


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(RULES))
def test_the_same_seed_gives_the_same_meta_policy_and_says_how_far_it_is(name: str) -> None:
    brief, said = MetaSettings(iterations=2, batch=200, local=2, hidden=(4,)), []

    def trained() -> dict[str, Any]:
        found = meta_trained(name, (0.5, 1.5), brief, 1, progress=lambda *far: said.append(far))
        return found.policy.to_arrays()

    first, again = trained(), trained()
    assert all(np.array_equal(first[part], again[part]) for part in first)
    assert said == 2 * [("meta-training", done, 2) for done in (0, 1)]


@pytest.mark.long
def test_an_unsafe_meta_policy_is_made_safe_first() -> None:
    """Tasks so dear that the first policy breaks the budget by its noise alone."""
    brief = MetaSettings(iterations=30, batch=1_000, hidden=(8,), log_std=-0.3, region=Region(divergence=0.02))
    trained = meta_trained("safe-meta-control", (1.0, 1.5), brief, 2)
    assert trained.history[0].before[1, 1] > 1.5 * BUDGET * STEPS
    assert np.mean([each.before[1, 1] for each in trained.history[-5:]]) < 1.2 * BUDGET * STEPS


def sharp(log_std: float) -> MLPPolicy:
    """Sees next to nothing of its observation, and hardly varies what it does."""
    return MLPPolicy((np.array([[0.1]]),), (np.zeros(1),), np.array([log_std]), np.zeros(1), np.ones(1))


@pytest.mark.long
def test_policies_with_hardly_any_noise_are_meta_trained_too() -> None:
    """A length in parameters that is short for a noisy policy is a long way at σ = e⁻⁷: no try of a line search along
    it would be near enough, and the meta-policy would stay what it began with."""
    found = meta_trained("meta-cpo", (0.8, 1.2), MetaSettings(iterations=2, batch=200), 0, start=sharp(-7.0))
    assert found.accepted == 2
    assert not np.array_equal(found.policy.to_arrays()["weights.0"], sharp(-7.0).weights[0])


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(META_LEARNERS))
def test_meta_training_that_accepts_no_step_ends_with_an_error(name: str) -> None:
    brief = MetaSettings(iterations=1, batch=200, region=Region(tries=0))
    with pytest.raises(InvalidInput, match="line search accepted no step in 1 updates"):
        meta_trained(name, (0.8, 1.2), brief, 0)


def test_tasks_must_have_as_many_lanes_each() -> None:
    for groups in ([0] * 30 + [1] * 10, [0] * 39, [0] * 20 + [2] * 20):
        with pytest.raises(InvalidInput, match="groups must name the task"):
            meta_trained("maml-penalty", (1.0, 1.0), QUICK, 0, groups=groups)
