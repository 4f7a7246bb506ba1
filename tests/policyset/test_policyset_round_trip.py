"""Policy sets on disk: exact round trips, digests that never change, and sets saved in the past."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from policy_sets import (
    FILES,
    PER_TEST_FOLDER,
    SETS,
    assert_same,
    contents,
    forgeable,
    make_set,
    with_some_first_states,
)
from test_policy_value_set import Linear

from surefoot.bounds.cells import Cells
from surefoot.cmdp.units import Units
from surefoot.errors import ArtifactError
from surefoot.policyset import Entry, PolicyValueSet, manifest, policy_value_set
from surefoot.tabular.evaluate import evaluate, state_values
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy

numbers = st.floats(allow_nan=False, allow_infinity=False)
fractions = st.floats(min_value=0, max_value=1, exclude_min=True, exclude_max=True)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | numbers | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)


small, models = st.integers(1, 4), ("balls", "affine", "balls-transitions", "affine-transitions", "affine-unknown")


@st.composite
def policy_sets(draw: st.DrawFn) -> PolicyValueSet:
    """Sets of any size and kind, with numbers as large and as small as there are."""
    made = make_set(
        *(draw(small) for _ in range(4)),
        seed=draw(st.integers(0, 2**32 - 1)),
        model=draw(st.sampled_from([None, "none", *models])),
        readings=draw(st.sampled_from([None, "moments", "transitions", "own"])),
        by_start=draw(st.booleans()),
        outside=draw(st.integers(0, 2)),
    )
    horizon, wide = draw(st.none() | st.integers(1, 2**40)), draw(st.floats(10, 1e100))
    discount = draw(fractions) if horizon is None else draw(fractions | st.just(1.0))
    entries = [
        replace(one, parameter=draw(st.lists(numbers, min_size=2, max_size=2)), reward=draw(st.floats(-wide, wide)))
        for one in made.entries
    ]
    return replace(
        made,
        entries=tuple(entries),
        units=Units(discount, (-wide, wide), [[-wide, wide]] * len(made.units.budget), made.units.budget, horizon),
        epsilon=draw(st.floats(min_value=0, exclude_min=True, allow_infinity=False)),
        delta=draw(fractions),
        xi=draw(st.floats(min_value=0, allow_infinity=False)),
        recipe=draw(st.dictionaries(text, plain, max_size=3)),
        training=draw(st.dictionaries(text, plain, max_size=3)),
    )


@PER_TEST_FOLDER
@given(policies=policy_sets())
def test_round_trip_is_exact_and_saving_again_gives_the_same_bytes(policies: PolicyValueSet, tmp_path: Path) -> None:
    first, second = tmp_path / "a.policyset", tmp_path / "b.policyset"
    policies.save(first)
    loaded = PolicyValueSet.load(first)
    assert_same(policies, loaded)
    loaded.save(second)
    assert contents(first) == contents(second)
    assert set(contents(first)) == {*FILES} - ({"cells.safetensors"} if policies.cells is None else set())


@pytest.mark.parametrize("kind", SETS)
def test_every_kind_of_set_survives_the_disk(kind: str, tmp_path: Path) -> None:
    folder = forgeable(kind, tmp_path)
    loaded = PolicyValueSet.load(folder)
    assert_same(SETS[kind](), loaded)
    loaded.save(tmp_path / "again")
    assert contents(folder) == contents(tmp_path / "again")


def test_the_files_can_be_read_with_nothing_but_json_and_safetensors(tmp_path: Path) -> None:
    policies = make_set()
    policies.save(tmp_path / "set")
    manifest = json.loads((tmp_path / "set/manifest.json").read_text())
    stacked = safetensors.numpy.load_file(tmp_path / "set/policies.safetensors")["probabilities"]
    assert stacked.dtype == np.float64
    np.testing.assert_array_equal(stacked[0], policies.safe_policy.probabilities)
    for k, (stored, entry) in enumerate(zip(manifest["entries"], policies.entries, strict=True)):
        np.testing.assert_array_equal(stacked[1 + k], entry.policy.probabilities)
        assert stored == {
            "parameter": list(entry.parameter),
            "reward": entry.reward,
            "margin": list(entry.margin),
            "safe_reward": entry.safe_reward,
            "safe_margin": list(entry.safe_margin),
        }
    assert (manifest["format"], manifest["format_version"]) == ("surefoot.policyset", [1, 3])
    assert manifest["budget"] == list(policies.units.budget)
    assert manifest["cost_range"] == policies.units.cost_range.tolist()
    assert manifest["policy_kind"] == "tabular"
    record = manifest["files"]["policies.safetensors"]
    content = (tmp_path / "set/policies.safetensors").read_bytes()
    assert record["bytes"] == len(content)
    assert record["sha256"] == hashlib.sha256(content).hexdigest()
    assert record["shapes"] == {"probabilities": [3, 3, 2]}
    assert "cells" not in manifest
    assert "horizon" not in manifest


def test_cells_can_be_read_with_nothing_but_json_and_safetensors(tmp_path: Path) -> None:
    cells = make_set(model="affine").cells
    make_set(model="affine").save(tmp_path / "set")
    arrays = safetensors.numpy.load_file(tmp_path / "set/cells.safetensors")
    assert cells is not None
    assert cells.model is not None
    assert cells.model.affine is not None
    names = ("low", "high", "prior", "lower", "upper", "start_lower", "start_upper", "outside")
    for name in names:
        np.testing.assert_array_equal(arrays.pop(name), getattr(cells, name))
    np.testing.assert_array_equal(arrays.pop("model.classes"), cells.model.class_table)
    for name in ("row_type", "probability", "radius", "reward", "cost", "start"):
        np.testing.assert_array_equal(arrays.pop(f"model.{name}"), getattr(cells.model, name))
    np.testing.assert_array_equal(arrays.pop("model.base"), cells.model.affine[0])
    np.testing.assert_array_equal(arrays.pop("model.slope"), cells.model.affine[1])
    assert not arrays
    manifest = json.loads((tmp_path / "set/manifest.json").read_text())
    parts = {"by_start": True, "outside": True, "model": "affine"}
    assert manifest["cells"] == {"source": "affine", "uncovered": cells.uncovered, **parts}
    assert sorted(manifest["files"]) == ["cells.safetensors", "policies.safetensors"]


@pytest.mark.parametrize("kind", SETS)
def test_every_array_and_every_number_in_the_files_is_part_of_the_digest(kind: str) -> None:
    """That the files hold all of a set is what round trips show."""
    policies = SETS[kind]()
    plain, groups = policy_value_set._plain_fields(policies), policy_value_set._array_groups(policies)
    digests = [policies.digest()]
    for file, arrays in groups.items():
        for name, array in arrays.items():
            other = array.copy()
            other.flat[-1] = other.flat[-1] + 1 if other.dtype.kind == "i" else np.nextafter(other.flat[-1], 9.0)
            digests.append(manifest.digest(plain, {**groups, file: {**arrays, name: other}}))
            digests.append(manifest.digest(plain, {**groups, file: {**arrays, name: other[None]}}))
    for name in plain:
        digests.append(manifest.digest({key: value for key, value in plain.items() if key != name}, groups))
        digests.append(manifest.digest({**plain, name: [plain[name]]}, groups))
    assert manifest.digest(plain, groups) == digests[0]
    assert len(set(digests)) == len(digests) > 20


def test_digest_does_not_depend_on_library_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = make_set().digest()
    monkeypatch.setattr(manifest, "_library_version", lambda: "99.0")
    make_set().save(tmp_path / "set")
    assert '"99.0"' in (tmp_path / "set/manifest.json").read_text()
    assert PolicyValueSet.load(tmp_path / "set").digest() == before


def test_digest_of_a_known_set_never_changes() -> None:
    """Journals name policy sets by their digest: recomputed here from its definition."""
    policy = TabularPolicy(np.array([[0.25, 0.75]]))
    units = Units(0.5, (0.0, 1.0), np.array([[0.0, 1.0]]), np.array([1.5]))
    entry = Entry(np.array([0.3]), policy, 1.0, np.array([0.5]), 0.25, np.array([0.75]))
    policies = PolicyValueSet((entry,), policy, units, 0.01, 0.05, 0.1, "5a", {"b": 1, "a": 0.5}, {})
    rows = hashlib.sha256(np.array([0.25, 0.75, 0.25, 0.75], dtype="<f8").tobytes()).hexdigest()
    canonical = (
        '{"arrays":{"policies.safetensors":{"probabilities":{"sha256":"' + rows + '","shape":[2,1,2]}}},'
        '"budget":[1.5],"cost_range":[[0.0,1.0]],"delta":0.05,"discount":0.5,'
        '"entries":[{"margin":[0.5],"parameter":[0.3],"reward":1.0,"safe_margin":[0.75],"safe_reward":0.25}],'
        '"epsilon":0.01,"format":"surefoot.policyset","policy_kind":"tabular","recipe":{"a":0.5,"b":1},'
        '"reward_range":[0.0,1.0],"task_digest":"5a","training":{},"xi":0.1}'
    )
    assert policies.digest() == hashlib.sha256(canonical.encode()).hexdigest()

    def record(values: Any, shape: str, dtype: str = "<f8") -> str:
        content = np.array(values, dtype=dtype).tobytes()
        return f'{{"sha256":"{hashlib.sha256(content).hexdigest()}","shape":[{shape}]}}'

    bounds = np.array([[[0.25, 0.5], [0.75, 1.0]]])
    nothing = np.empty((0, 1))
    cells = Cells(
        np.array([[0.0]]),
        np.array([[1.0]]),
        np.array([0.75]),
        bounds,
        bounds,
        None,
        None,
        "holdout",
        0.25,
        None,
        nothing,
    )
    arrays = (
        f'"cells.safetensors":{{"high":{record(1, "1,1")},"low":{record(0, "1,1")},'
        f'"lower":{record(bounds, "1,2,2")},"prior":{record(0.75, "1")},"upper":{record(bounds, "1,2,2")}}},'
    )
    canonical = canonical.replace('{"policies', "{" + arrays + '"policies').replace(
        '"cost_range"',
        '"cells":{"by_start":false,"model":"none","outside":false,"source":"holdout","uncovered":0.25},"cost_range"',
    )
    assert replace(policies, cells=cells).digest() == hashlib.sha256(canonical.encode()).hexdigest()


def test_numbers_of_a_smaller_type_are_stored_without_loss_and_larger_ones_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_policies(weights: np.ndarray) -> PolicyValueSet:
        base, net = make_set(entries=1), Linear(weights)
        return replace(base, entries=(replace(base.entries[0], policy=net),), safe_policy=net)

    single = np.array([0.1, 0.2], dtype=np.float32)
    with pytest.raises(
        ArtifactError,
        match=r"kind 'linear' cannot be saved, must be one of \['categorical-mlp', 'insulin', 'mlp', .*'tabular'",
    ):
        with_policies(single).save(tmp_path / "set")
    assert with_policies(single).digest() != with_policies(2 * single).digest()  # in memory every kind has one
    monkeypatch.setitem(policy_value_set.DECODERS, "linear", lambda arrays: Linear(arrays["weights"]))
    with_policies(single).save(tmp_path / "set")
    loaded = PolicyValueSet.load(tmp_path / "set").safe_policy
    assert isinstance(loaded, Linear)
    assert loaded.weights.astype(np.float32).tobytes() == single.tobytes()
    with pytest.raises(ArtifactError, match="'weights' has type int64, must be float64 or a smaller float"):
        with_policies(np.array([2**60 + 1])).save(tmp_path / "set")


# ------------------------------------------------------------------------------ sets saved in the past, never rewritten

ASSETS = Path(__file__).parents[1] / "assets"
SAVED_IN_THE_PAST = {
    "policyset-1.0-plain": "f0c98af9e3e32fd170b0f6c4a120768fb9a4fb19071da0a20adb83d83ac25912",
    "policyset-1.0-cells": "f11a648b5366ab25e5011eda9e9bcfd2643f64f0b49dd95ac2678c981900fe81",
}


def pump(wear: float) -> TabularCMDP:
    """The family of the saved sets: a pump gets hot, or does not cool down when slowed, with probability `wear`."""
    worn, hot = [1 - wear, wear], [0.0, 1.0]
    return TabularCMDP(
        transitions=[[[1.0, 0.0], worn], [worn, hot]],
        reward=[[0.25, 1.0], [0.25, 1.0]],
        cost=[0.0, 1.0],
        budget=3.0,
        start=[1.0, 0.0],
        discount=0.9,
        reward_range=(0.0, 1.0),
        cost_range=(0.0, 1.0),
    )


@pytest.mark.parametrize(("name", "digest"), SAVED_IN_THE_PAST.items())
def test_sets_saved_in_the_past_keep_loading(name: str, digest: str, tmp_path: Path) -> None:
    """Values are compared with those of the tasks that the sets were trained on, not with what the files say."""
    loaded = PolicyValueSet.load(ASSETS / name)
    assert loaded.digest() == digest
    assert [round(float(entry.parameter[0]), 4) for entry in loaded.entries] == [0.2989, 0.3988, 0.1989]
    for entry in loaded.entries:
        task = pump(float(entry.parameter[0]))
        for policy, reward, margin in (
            (entry.policy, entry.reward, entry.margin),
            (loaded.safe_policy, entry.safe_reward, entry.safe_margin),
        ):
            values = evaluate(task, policy)  # type: ignore[arg-type]
            assert reward == pytest.approx(values.reward, abs=1e-9)
            assert margin == pytest.approx(values.margin, abs=1e-9)
    loaded.save(tmp_path / "again")
    assert_same(PolicyValueSet.load(tmp_path / "again"), loaded)


def test_cells_saved_in_the_past_still_bound_the_values() -> None:
    policies = PolicyValueSet.load(ASSETS / "policyset-1.0-cells")
    cells = policies.cells
    assert cells is not None
    assert cells.model is not None
    assert cells.start_lower is not None
    assert cells.start_upper is not None
    assert (len(cells), len(cells.outside), cells.source) == (12, 4, "affine")
    for j, share in np.ndindex(len(cells), 3):
        wear = float(cells.low[j, 0] + share / 2 * (cells.high[j, 0] - cells.low[j, 0]))
        task = pump(wear)
        np.testing.assert_allclose(cells.model.task(np.array([wear]), policies.units).transitions, task.transitions)
        for p, policy in enumerate(policies.policies):
            by_start = state_values(task, policy.probabilities)  # type: ignore[attr-defined]
            by_start[1:] = 3.0 - by_start[1:]
            assert (cells.start_lower[j, p] <= by_start).all()
            assert (by_start <= cells.start_upper[j, p]).all()
            assert (cells.lower[j, p] <= by_start[:, 0]).all()
            assert (by_start[:, 0] <= cells.upper[j, p]).all()


def test_first_states_that_are_no_states_are_refused(tmp_path: Path) -> None:
    some = with_some_first_states()
    assert some.cells is not None
    with pytest.raises(ArtifactError, match=r"first_states must be states of the policies, < 5, got 7"):
        replace(some, cells=replace(some.cells, model=None, first_states=np.array([0, 7]))).save(tmp_path / "other")
