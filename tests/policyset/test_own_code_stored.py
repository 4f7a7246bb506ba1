"""Signals and controllers on disk: all of them but the code that is somebody's own, known by its name and values."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from policy_sets import (
    assert_same,
    contents,
    make_mixed,
    make_set,
    own_set,
    readings_of,
    reseal_cells,
    with_readings,
)
from test_cells import extent

import surefoot as sf
from surefoot.cmdp.episode import Observed
from surefoot.cmdp.external_policy import ExternalPolicy
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.policyset import Entry, PolicyValueSet
from wheel import CONTROLLERS, Pushes, wheel_set, wheels

KINDS = ("moments", "transitions", "own")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_readings_survive_the_disk_and_read_episodes_as_before(kind: str, tmp_path: Path) -> None:
    policies, rng = with_readings(kind), np.random.default_rng(0)
    policies.save(tmp_path / "set")
    again = PolicyValueSet.load(tmp_path / "set", features=extent if kind == "own" else None)
    before, after = readings_of(policies).signals, readings_of(again).signals
    observed = Observed(rng.integers(9, size=(5, 8)), rng.integers(9, size=(5, 7)), rng.integers(1, 8, size=5))
    if before.own is not None:
        before, observed = replace(before, own=before.own.found(extent)), before.own.probes
    for policy in range(3):
        np.testing.assert_array_equal(before.of(policy, observed), after.of(policy, observed))


def test_they_can_be_read_with_nothing_but_json_and_safetensors(kind: str, tmp_path: Path) -> None:
    policies = with_readings(kind)
    policies.save(tmp_path / "set")
    arrays = safetensors.numpy.load_file(tmp_path / "set/cells.safetensors")
    manifest = json.loads((tmp_path / "set/manifest.json").read_text())
    readings = readings_of(policies)
    assert manifest["format_version"] == [1, 4]
    found = manifest["cells"]["readings"]
    assert (found["kind"], found["steps"]) == (kind, readings.signals.steps)
    for name in ("lower", "upper", "edges", "values", "law"):
        np.testing.assert_array_equal(arrays[f"readings.{name}"], getattr(readings, name))
    for name in ("centre", "scale", "weights", "offset", "source", "low", "high"):
        np.testing.assert_array_equal(arrays[f"signals.{name}"], getattr(readings.signals, name))
    assert ("signals.keys" in arrays, "own" in found) == (kind == "transitions", kind == "own")
    if kind == "own":
        first = int(arrays["features.steps"][0])
        seen, acted = arrays["features.observations"][0, : first + 1], arrays["features.actions"][0, :first]
        assert extent(seen, acted) == pytest.approx(arrays["features.values"][0].tolist(), rel=1e-6)


def test_laws_are_halved_in_size_only_where_that_loses_nothing(kind: str, tmp_path: Path) -> None:
    exact = np.full_like(readings_of(with_readings(kind)).law, 0.0)
    exact[..., :2] = (1 / 4096, 4095 / 4096)
    rounded = exact.copy()
    rounded[0, 0, 0, :2] = (1 / 3, 2 / 3)
    for law, dtype in ((exact, "float32"), (rounded, "float64")):
        policies = with_readings(kind, law=law)
        policies.save(tmp_path / "set")
        assert safetensors.numpy.load_file(tmp_path / "set/cells.safetensors")["readings.law"].dtype == dtype
        again = PolicyValueSet.load(tmp_path / "set")
        assert readings_of(again).law.dtype == np.float64
        np.testing.assert_array_equal(readings_of(again).law, law)
        assert again.digest() == policies.digest()


def test_sets_without_readings_are_written_as_before(tmp_path: Path) -> None:
    make_set(model="affine").save(tmp_path / "set")
    manifest = json.loads((tmp_path / "set/manifest.json").read_text())
    assert manifest["format_version"] == [1, 3]
    assert "readings" not in manifest["cells"]


# ------------------------------------------------------------------------------------------ features that are one's own


def test_features_are_attached_if_they_are_the_same_function(tmp_path: Path) -> None:
    with_readings("own").save(tmp_path / "set")
    bare = PolicyValueSet.load(tmp_path / "set")
    own = readings_of(bare).signals.own
    assert own is not None
    with pytest.raises(InvalidInput, match="features 'extent' must be here for signals to be computed: load the"):
        readings_of(bare).signals.of(0, own.probes)
    attached = PolicyValueSet.load(tmp_path / "set", features=extent)
    assert attached.digest() == bare.digest()
    assert readings_of(attached).signals.of(0, own.probes).shape == (3, len(readings_of(bare).signals))
    attached.save(tmp_path / "again")
    assert contents(tmp_path / "set") == contents(tmp_path / "again")

    def other(seen: np.ndarray, acted: np.ndarray) -> list[float]:
        return [value + 1e-6 for value in extent(seen, acted)]

    with pytest.raises(InvalidInput, match="must be those that the policy set was made with, 'extent', got a function"):
        PolicyValueSet.load(tmp_path / "set", features=other)


@pytest.mark.parametrize(("model", "readings"), [(None, None), ("none", None), ("none", "moments")])
def test_features_for_a_set_that_has_none_are_refused(model: str | None, readings: str | None, tmp_path: Path) -> None:
    make_set(model=model, readings=readings).save(tmp_path / "set")
    with pytest.raises(InvalidInput, match="features must be left out for a policy set without features of one's own"):
        PolicyValueSet.load(tmp_path / "set", features=extent)


def test_large_observations_survive_the_disk(tmp_path: Path) -> None:
    policies = own_set(Observed(np.full((1, 3), 1e300), np.full((1, 2), 2**52), np.array([2])))
    policies.save(tmp_path / "set")
    assert_same(PolicyValueSet.load(tmp_path / "set"), policies)


@pytest.mark.parametrize(
    ("probes", "message"),
    [
        (Observed(np.ones((1, 3), np.float16), np.ones((1, 2)), np.array([2])), "observation_type: input should be 'f"),
        (
            Observed(np.ones((1, 3)), np.full((1, 2), 2**53 + 1), np.array([2])),
            r"features.actions\[0, 0\] must be belo",
        ),
    ],
)
def test_episodes_that_cannot_be_stored_are_refused_at_once(probes: Observed, message: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=message):
        own_set(probes).save(tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_readings_of_other_cells_are_refused(tmp_path: Path) -> None:
    policies = with_readings("moments")
    policies.save(tmp_path / "set")
    readings = readings_of(policies)

    def forge(arrays: dict[str, np.ndarray]) -> None:
        for name in ("lower", "upper", "law"):
            arrays[f"readings.{name}"] = np.repeat(getattr(readings, name), 2, axis=0)

    reseal_cells(tmp_path / "set", forge)
    with pytest.raises(ArtifactError, match=r"readings must be of as many cells, policies and numbers of an episode"):
        PolicyValueSet.load(tmp_path / "set")


# --------------------------------------------------------------------------------------- controllers that are one's own


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    wheel_set().save(tmp_path / "set")
    return tmp_path / "set"


def test_a_set_comes_back_with_names_and_without_code(stored: Path) -> None:
    policies, again = wheel_set(), PolicyValueSet.load(stored)
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
    assert contents(stored.parent / "copy") == contents(stored)


def test_controllers_are_attached_by_name_and_checked(stored: Path) -> None:
    again = PolicyValueSet.load(stored, controllers=CONTROLLERS)
    run = sf.adapt(again, wheels().task(0.3), method="certified", risk=0.5, episodes=50, seed=0)
    assert run.episodes == 50
    with pytest.raises(InvalidInput, match="'careful' is another one"):
        PolicyValueSet.load(stored, controllers={"careful": lambda observation: int(observation[0] < 0.1)})
    with pytest.raises(InvalidInput, match=r"controllers must be named as in the policy set, .* got 'carefree'"):
        PolicyValueSet.load(stored, controllers={"carefree": CONTROLLERS["careful"]})
    partly = PolicyValueSet.load(stored, controllers={"rest": CONTROLLERS["rest"]})
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
    again = PolicyValueSet.load(tmp_path / "set")
    assert again.digest() == policies.digest()
    assert [policy.kind for policy in again.policies] == ["mlp", "mlp", "own", "own"]
    for before, after in zip(policies.policies[:2], again.policies[:2], strict=True):
        assert isinstance(after, MLPPolicy)
        for name, array in before.to_arrays().items():
            np.testing.assert_array_equal(after.to_arrays()[name], array)
    assert again.policies[3].fingerprint == "v7"  # type: ignore[attr-defined]
    attached = PolicyValueSet.load(
        tmp_path / "set", controllers={"mine": sf.controller(Pushes(), name="x", fingerprint="v7", deterministic=True)}
    )
    assert attached.digest() == policies.digest()


def test_sets_of_one_kind_are_stored_as_ever_with_names_beside(tmp_path: Path) -> None:
    policies = make_set()
    named = replace(policies, names=("safe", "a", "b"))
    named.save(tmp_path / "set")
    assert set(safetensors.numpy.load_file(tmp_path / "set/policies.safetensors")) == {"probabilities"}
    assert PolicyValueSet.load(tmp_path / "set").names == ("safe", "a", "b")
    assert named.digest() != policies.digest()


def test_a_controller_alone_cannot_be_saved(tmp_path: Path) -> None:
    plain = make_set(entries=1)
    own = sf.controller(lambda observation: 0, name="it")
    entry = Entry(plain.entries[0].parameter, own, 0.1, plain.entries[0].margin, 0.1, plain.entries[0].margin)
    with pytest.raises(ArtifactError, match=r"kind 'controller' cannot be saved.*policy_set"):
        replace(plain, entries=(entry,)).save(tmp_path / "set")
