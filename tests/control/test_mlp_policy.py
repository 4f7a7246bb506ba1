"""Neural policies: what they compute, as arrays, in a policy set on disk, and as ONNX."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest

from surefoot.cmdp.units import Units
from surefoot.control.mlp_policy import CategoricalPolicy, MLPPolicy
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.policyset.export import onnx_model, write_policy
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet


def network(seed: int = 0, sizes: tuple[int, ...] = (11, 24, 12, 3)) -> MLPPolicy:
    rng = np.random.default_rng(seed)
    pairs = list(itertools.pairwise(sizes))
    return MLPPolicy(
        tuple(rng.normal(size=(outputs, inputs)) for inputs, outputs in pairs),
        tuple(rng.normal(size=outputs) for _, outputs in pairs),
        rng.normal(size=sizes[-1]),
        rng.normal(size=sizes[0]),
        rng.uniform(0.5, 2.0, sizes[0]),
        clip=3.0,
    )


def mean_by_hand(policy: MLPPolicy, observation: np.ndarray) -> list[float]:
    values = [
        min(max((x - s) / d, -policy.clip), policy.clip)
        for x, s, d in zip(observation, policy.shift, policy.scale, strict=True)
    ]
    for k, (weight, bias) in enumerate(zip(policy.weights, policy.biases, strict=True)):
        sums = [sum(w * x for w, x in zip(row, values, strict=True)) + b for row, b in zip(weight, bias, strict=True)]
        values = sums if k == len(policy.weights) - 1 else [float(np.tanh(x)) for x in sums]
    return values


@pytest.mark.parametrize("sizes", [(11, 24, 12, 3), (2, 1), (4, 5, 2)])
def test_the_mean_is_the_networks_output(sizes: tuple[int, ...]) -> None:
    policy = network(1, sizes)
    observations = np.random.default_rng(2).normal(scale=6.0, size=(20, sizes[0]))  # some beyond the clip
    expected = [mean_by_hand(policy, observation) for observation in observations]
    np.testing.assert_allclose(policy.mean(observations), expected, rtol=1e-12, atol=1e-12)


def test_actions_are_normal_around_the_mean() -> None:
    policy, rng = network(), np.random.default_rng(3)
    observation = np.ones(11)
    drawn = policy.act(np.tile(observation, (20_000, 1)), 0, rng)
    error = np.exp(policy.log_std) / np.sqrt(len(drawn))
    assert (np.abs(drawn.mean(axis=0) - policy.mean(observation)) < 5 * error).all()
    np.testing.assert_allclose(drawn.std(axis=0), np.exp(policy.log_std), rtol=0.03)
    again = np.random.default_rng(3)
    np.testing.assert_allclose(policy.act(observation, 0, again), drawn[0], rtol=1e-12)


def test_onnx_computes_the_same(tmp_path: Path) -> None:
    policy = network()
    write_policy(policy, tmp_path / "policy.onnx")
    model = onnx.load(tmp_path / "policy.onnx")
    observations = np.random.default_rng(4).normal(scale=6.0, size=(50, 11))
    mean, log_std = onnx.reference.ReferenceEvaluator(model).run(None, {"observations": observations})
    np.testing.assert_allclose(mean, policy.mean(observations), rtol=1e-12, atol=1e-12)
    assert (log_std == policy.log_std).all()


def test_other_kinds_have_no_onnx_form() -> None:
    class Unknown:
        kind = "unknown"

        def to_arrays(self) -> dict[str, Any]:
            return {}

    with pytest.raises(InvalidInput, match="got kind 'unknown'"):
        onnx_model(Unknown())


def policy_set(*policies: MLPPolicy) -> PolicyValueSet:
    units = Units(0.99, (0.0, 1.0), np.array([[0.0, 1.0]]), np.array([5.0]))
    entries = tuple(Entry(np.array([0.5]), policy, 10.0, np.array([1.0]), 9.0, np.array([2.0])) for policy in policies)
    return PolicyValueSet(entries, network(9), units, 0.1, 0.05, 0.01, "0" * 64, {}, {})


def test_a_policy_set_of_networks_survives_the_disk(tmp_path: Path) -> None:
    policies = policy_set(network(1), network(2))
    policies.save(tmp_path / "set")
    loaded = PolicyValueSet.load(tmp_path / "set")
    for before, after in zip(policies.policies, loaded.policies, strict=True):
        assert isinstance(after, MLPPolicy)
        for name, array in before.to_arrays().items():
            assert (after.to_arrays()[name] == array).all()
    assert loaded.digest() == policies.digest()
    mixed = policy_set(network(1, (11, 5, 3)))
    mixed.save(tmp_path / "mixed")
    assert PolicyValueSet.load(tmp_path / "mixed").digest() == mixed.digest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": ()}, "one array per layer, got 0 and 3"),
        ({"biases": network().biases[:2]}, "one array per layer, got 3 and 2"),
        ({"weights": (np.ones((24, 11)), np.ones((12, 23)), np.ones((3, 12)))}, r"weights\[1\] must have shape"),
        ({"log_std": np.zeros(4)}, r"log_std must have shape \[3\], got \[4\]"),
        ({"scale": np.zeros(11)}, "scale must be positive, got 0.0"),
        ({"shift": np.full(11, np.nan)}, r"shift\[0\] must be finite"),
        ({"clip": -1.0}, "clip must be a positive number, got -1.0"),
    ],
)
def test_malformed_networks_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(network(), **change)
    if "log_std" not in change:
        arrays = {name: value for name, value in vars(network()).items() if name != "log_std"}
        with pytest.raises(InvalidInput, match=message):
            CategoricalPolicy(**{**arrays, **change})


def test_stored_networks_with_missing_or_misshapen_arrays_are_refused(tmp_path: Path) -> None:
    arrays = network().to_arrays()
    with pytest.raises(InvalidInput, match="clip must be one number"):
        MLPPolicy.from_arrays({**arrays, "clip": np.ones(2)})
    with pytest.raises(KeyError):
        MLPPolicy.from_arrays({name: array for name, array in arrays.items() if name != "biases.1"})
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match="must be a folder"):
        write_policy(network(), tmp_path / "file" / "policy.safetensors")
