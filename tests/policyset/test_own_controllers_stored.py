"""Policy sets of controllers that only their owner has: stored by name and by what they do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from policy_sets import make_mixed, make_set

import surefoot as sf
from surefoot.cmdp.external_policy import ExternalPolicy
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.policyset import Entry
from wheel import CONTROLLERS, Pushes, wheel_set, wheels


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    wheel_set().save(tmp_path / "set")
    return tmp_path / "set"


def test_a_set_comes_back_with_names_and_without_code(stored: Path) -> None:
    policies, again = wheel_set(), sf.PolicyValueSet.load(stored)
    assert again.digest() == policies.digest()
    assert again.names == policies.names == tuple(CONTROLLERS)
    assert again.epsilon is None
    for before, after in zip(policies.policies, again.policies, strict=True):
        assert isinstance(before, ExternalPolicy)
        assert isinstance(after, ExternalPolicy)
        assert after.fingerprint == before.fingerprint
        assert after.observations.dtype == before.observations.dtype
        assert after.actions.dtype == np.int64
    with pytest.raises(InvalidInput, match="controller 'rest' is not here, only its name is"):
        again.safe_policy.act(np.zeros(2), 0, np.random.default_rng())
    again.save(stored.parent / "copy")
    for name in ("manifest.json", "policies.safetensors", "cells.safetensors"):
        assert (stored.parent / "copy" / name).read_bytes() == (stored / name).read_bytes()


def test_controllers_are_attached_by_name_and_checked(stored: Path) -> None:
    again = sf.PolicyValueSet.load(stored, controllers=CONTROLLERS)
    run = sf.adapt(again, wheels().task(0.3), method="certified", risk=0.5, episodes=50, seed=0)
    assert run.episodes == 50
    with pytest.raises(InvalidInput, match="'careful' is another one"):
        sf.PolicyValueSet.load(stored, controllers={"careful": lambda observation: int(observation[0] < 0.1)})
    with pytest.raises(InvalidInput, match=r"controllers must be named as in the policy set, .* got 'carefree'"):
        sf.PolicyValueSet.load(stored, controllers={"carefree": CONTROLLERS["careful"]})
    partly = sf.PolicyValueSet.load(stored, controllers={"rest": CONTROLLERS["rest"]})
    assert partly.safe_policy.act(np.zeros(2), 0, np.random.default_rng()) == 0


def test_the_owner_can_check_in_any_language(stored: Path) -> None:
    """With JSON and safetensors alone."""
    manifest = json.loads((stored / "manifest.json").read_text())
    arrays = safetensors.numpy.load_file(stored / "policies.safetensors")
    assert manifest["policy_kind"] == "mixed"
    index = manifest["names"].index("careful")
    assert manifest["policies"][index]["own"]["deterministic"] is False
    observations, actions = arrays[f"{index}.observations"], arrays[f"{index}.actions"]
    assert actions.tolist() == (observations[:, 0] < 0.2).astype(float).tolist()


def test_policies_of_different_kinds_and_sizes_are_stored_one_by_one(tmp_path: Path) -> None:
    policies = make_mixed()
    policies.save(tmp_path / "set")
    again = sf.PolicyValueSet.load(tmp_path / "set")
    assert again.digest() == policies.digest()
    assert [policy.kind for policy in again.policies] == ["mlp", "mlp", "own", "own"]
    for before, after in zip(policies.policies[:2], again.policies[:2], strict=True):
        assert isinstance(after, MLPPolicy)
        for name, array in before.to_arrays().items():
            np.testing.assert_array_equal(after.to_arrays()[name], array)
    assert again.policies[3].fingerprint == "v7"  # type: ignore[attr-defined]
    attached = sf.PolicyValueSet.load(
        tmp_path / "set", controllers={"mine": sf.controller(Pushes(), name="x", fingerprint="v7", deterministic=True)}
    )
    assert attached.digest() == policies.digest()


def test_sets_of_one_kind_are_stored_as_ever_with_names_beside(tmp_path: Path) -> None:
    policies = make_set()
    named = replace(policies, names=("safe", "a", "b"))
    named.save(tmp_path / "set")
    assert set(safetensors.numpy.load_file(tmp_path / "set/policies.safetensors")) == {"probabilities"}
    assert sf.PolicyValueSet.load(tmp_path / "set").names == ("safe", "a", "b")
    assert named.digest() != policies.digest()


def test_a_controller_alone_cannot_be_saved(tmp_path: Path) -> None:
    plain = make_set(entries=1)
    own = sf.controller(lambda observation: 0, name="it")
    entry = Entry(plain.entries[0].parameter, own, 0.1, plain.entries[0].margin, 0.1, plain.entries[0].margin)
    with pytest.raises(ArtifactError, match=r"kind 'controller' cannot be saved.*policy_set"):
        replace(plain, entries=(entry,)).save(tmp_path / "set")
