"""Policies in JAX and in NumPy are the same; probabilities, divergences and advantages by second computations."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnx.reference
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree
from scipy.special import logsumexp
from scipy.stats import norm

from surefoot.cmdp.world import Shapes
from surefoot.control import networks
from surefoot.control.critics import generalised_advantages
from surefoot.control.mlp_policy import CategoricalPolicy
from surefoot.control.networks import Actor, Normaliser, actor_of, new_actor, numpy_policy
from surefoot.control.trust_region import (
    Region,
    apply_step,
    conjugate_gradient,
    divergence_and_gains,
    natural_step,
    slope,
    trpo_update,
)
from surefoot.policyset.export import write_policy

seeds = st.integers(0, 10**6)
# Compiled whole, as they are in training: their parts one by one take several times as long.
log_probability = jax.jit(networks.log_probability)
divergence, entropy = jax.jit(networks.divergence), jax.jit(networks.entropy)


def random_actor(seed: int, discrete: bool) -> tuple[Actor, Normaliser, np.random.Generator]:
    rng = np.random.default_rng(seed)
    actor = new_actor(Shapes(4, 3, discrete), (8, 6), rng)
    flat, restore = ravel_pytree(actor)
    actor = restore(flat + 0.3 * rng.standard_normal(flat.shape).astype(np.float32))
    return actor, Normaliser.new(4).update(3 + 2 * rng.standard_normal((50, 4))), rng


@settings(max_examples=settings.default.max_examples // 2)  # JAX takes most of the time, whatever the numbers
@given(seeds, st.booleans())
def test_what_is_deployed_is_what_was_trained(seed: int, discrete: bool) -> None:
    actor, normaliser, rng = random_actor(seed, discrete)
    policy, seen = numpy_policy(actor, normaliser), 3 + 4 * rng.standard_normal((20, 4))
    inputs = jnp.asarray(normaliser(seen), jnp.float32)
    if isinstance(policy, CategoricalPolicy):
        logits = policy.logits(seen)
        shares = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
        for k in range(3):
            found = np.exp(log_probability(actor, inputs, jnp.full(20, k)))
            np.testing.assert_allclose(found, shares[:, k], rtol=1e-4)
    else:
        actions = policy.act(seen, 0, rng)
        expected = norm.logpdf(actions, policy.mean(seen), np.exp(policy.log_std)).sum(axis=1)
        np.testing.assert_allclose(log_probability(actor, inputs, jnp.asarray(actions)), expected, rtol=1e-3, atol=1e-3)
    again = numpy_policy(actor_of(policy), normaliser)
    for name, array in policy.to_arrays().items():
        np.testing.assert_array_equal(array, again.to_arrays()[name])


@settings(max_examples=settings.default.max_examples // 2)
@given(seeds, st.booleans())
def test_divergence_and_entropy_are_those_of_the_distributions(seed: int, discrete: bool) -> None:
    """By sums over the actions, or by many draws."""
    old, _, rng = random_actor(seed, discrete)
    new, _, _ = random_actor(seed + 1, discrete)
    inputs = jnp.asarray(rng.standard_normal((1, 4)), jnp.float32)
    if discrete:
        actions, weight = jnp.arange(3), np.exp(log_probability(old, jnp.repeat(inputs, 3, 0), jnp.arange(3)))
    else:
        policy = numpy_policy(old, Normaliser.new(4))
        actions = jnp.asarray(policy.act(np.repeat(np.asarray(inputs), 20_000, 0), 0, rng), jnp.float32)
        weight = np.full(20_000, 1 / 20_000)
    many = jnp.repeat(inputs, len(actions), 0)
    logs = log_probability(old, many, actions)
    apart = float(weight @ np.asarray(logs - log_probability(new, many, actions)))
    assert float(divergence(old, new, inputs)[0]) == pytest.approx(apart, rel=0.05, abs=0.02)
    assert float(entropy(old, inputs)) == pytest.approx(-float(weight @ np.asarray(logs)), rel=0.02, abs=0.02)
    assert float(divergence(old, old, inputs)[0]) == pytest.approx(0.0, abs=1e-6)


def test_choices_are_drawn_as_often_as_their_probabilities_say() -> None:
    actor, normaliser, rng = random_actor(1, True)
    policy = numpy_policy(actor, normaliser)
    assert isinstance(policy, CategoricalPolicy)
    one = rng.standard_normal(4)
    drawn = np.bincount(policy.act(np.tile(one, (20_000, 1)), 0, rng), minlength=3) / 20_000
    logits = policy.logits(one)
    np.testing.assert_allclose(drawn, np.exp(logits - logsumexp(logits)), atol=0.01)
    assert policy.act(one, 0, rng).shape == ()
    assert policy.predict(one, deterministic=True)[0] == np.argmax(logits)
    stored = CategoricalPolicy.from_arrays(policy.to_arrays())
    np.testing.assert_array_equal(stored.logits(one), logits)


@given(seeds)
def test_a_normaliser_sees_batches_as_it_would_see_them_at_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seen = rng.normal(5, 3, size=(60, 3))
    cut = int(rng.integers(1, 59))
    both = Normaliser.new(3).update(seen[:cut]).update(seen[cut:])
    np.testing.assert_allclose(both.shift, seen.mean(axis=0))
    np.testing.assert_allclose(both.scale, seen.std(axis=0))


@given(seeds)
def test_advantages_are_the_sums_they_are_defined_by(seed: int) -> None:
    rng = np.random.default_rng(seed)
    T, n, discount, trace = 12, 3, 0.9, 0.8
    signal, values, after = rng.normal(size=(3, T, n))
    ended = rng.uniform(size=(T, n)) < 0.2
    terminated = ended & (rng.uniform(size=(T, n)) < 0.5)
    found = generalised_advantages(signal, values, after, terminated, ended, discount, trace)
    for t in range(T):
        for k in range(n):
            total, weight = 0.0, 1.0
            for later in range(t, T):
                follows = 0.0 if terminated[later, k] else discount * after[later, k]
                total += weight * (signal[later, k] + follows - values[later, k])
                weight *= discount * trace
                if ended[later, k]:
                    break
            assert found[t, k] == pytest.approx(total)


@pytest.mark.long
@pytest.mark.parametrize("discrete", [False, True])
def test_conjugate_gradients_solve_with_the_hessian_of_the_divergence(discrete: bool) -> None:
    actor, _, rng = random_actor(7, discrete)
    inputs = jnp.asarray(rng.standard_normal((30, 4)), jnp.float32)
    flat, restore = ravel_pytree(actor)
    hessian = jax.hessian(lambda changed: jnp.mean(divergence(actor, restore(changed), inputs)))(flat)
    vector = jnp.asarray(rng.standard_normal(flat.shape), jnp.float32)
    expected = np.linalg.solve(np.asarray(hessian, np.float64) + 0.1 * np.eye(len(flat)), np.asarray(vector))
    found = conjugate_gradient(actor, inputs, vector, 0.1, 200)
    assert np.linalg.norm(found - expected) < 0.01 * np.linalg.norm(expected)


@pytest.mark.long
def test_slopes_are_those_of_the_surrogate_and_steps_stay_in_the_region() -> None:
    actor, _, rng = random_actor(5, False)
    inputs = jnp.asarray(rng.standard_normal((400, 4)), jnp.float32)
    actions = jnp.asarray(numpy_policy(actor, Normaliser.new(4)).act(np.asarray(inputs), 0, rng), jnp.float32)
    advantages = jnp.asarray(rng.standard_normal(400), jnp.float32)
    gradient = np.asarray(slope(actor, inputs, actions, advantages))
    for _ in range(5):
        direction = rng.standard_normal(len(gradient)).astype(np.float32)
        around = (apply_step(actor, h * direction) for h in (1e-3, -1e-3))
        ahead, behind = (
            float(divergence_and_gains(actor, near, inputs, actions, advantages[:, None])[1][0]) for near in around
        )
        assert (ahead - behind) / 2e-3 == pytest.approx(float(gradient @ direction), rel=0.05, abs=0.02)
    region = Region(divergence=0.01, damping=1e-4)
    step = natural_step(gradient, conjugate_gradient(actor, inputs, gradient, 1e-4, 50), region)
    apart, (gain,) = divergence_and_gains(actor, apply_step(actor, step), inputs, actions, advantages[:, None])
    assert 0.5 * region.divergence < float(apart) < 2 * region.divergence
    better = trpo_update(actor, inputs, actions, advantages, region)
    assert better is not None
    apart, (gain,) = divergence_and_gains(actor, better, inputs, actions, advantages[:, None])
    assert 0 < float(apart) < 1.5 * region.divergence
    assert gain > 0


def test_choices_are_exported_with_the_normaliser_inside(tmp_path: Path) -> None:
    actor, normaliser, rng = random_actor(3, True)
    policy = numpy_policy(actor, normaliser)
    assert isinstance(policy, CategoricalPolicy)
    write_policy(policy, tmp_path / "policy.onnx")
    seen = 3 + 4 * rng.standard_normal((7, 4))
    model = onnx.load(tmp_path / "policy.onnx")
    (logits,) = onnx.reference.ReferenceEvaluator(model).run(None, {"observations": seen})
    np.testing.assert_allclose(logits, policy.logits(seen), rtol=1e-12)
