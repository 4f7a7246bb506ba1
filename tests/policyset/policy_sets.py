"""Policy sets, what is in them bit by bit, and forgeries with all hashes recomputed."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import safetensors.numpy
from hypothesis import HealthCheck, settings
from test_cells import extent, make_cells

from surefoot.bounds.cells import Cells, Readings
from surefoot.cmdp.episode import Observed
from surefoot.cmdp.external_policy import ExternalPolicy
from surefoot.cmdp.units import Units
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.policyset import Entry, PolicyValueSet
from surefoot.signals.signals import OwnFeatures, own_values
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.testing.learner_suite import fingerprint

FILES = ["manifest.json", "policies.safetensors", "cells.safetensors"]
PER_TEST_FOLDER = settings(
    max_examples=2 * settings().max_examples, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def make_set(
    entries: int = 2,
    states: int = 3,
    actions: int = 2,
    constraints: int = 2,
    seed: int = 0,
    model: str | None = None,
    **of_cells: Any,
) -> PolicyValueSet:
    """Random numbers throughout, in ranges that allow them; with cells if `model` says of which kind."""
    rng, sizes = np.random.default_rng(seed), {"constraints": constraints, "states": states, "actions": actions}

    def policy() -> TabularPolicy:
        return TabularPolicy(rng.dirichlet(np.ones(actions), size=states))

    def entry() -> Entry:
        place, own, reward, margin = rng.normal(size=2), policy(), rng.normal(), rng.normal(size=constraints)
        return Entry(place, own, reward, margin, 0.1, rng.normal(size=constraints))

    low = rng.normal(size=constraints)
    return PolicyValueSet(
        entries=tuple(entry() for _ in range(entries)),
        safe_policy=policy(),
        units=Units(
            0.9, (-1.0, 2.5), np.stack([low - 1, low + rng.random(constraints)], axis=1), rng.random(constraints)
        ),
        epsilon=1e-4,
        delta=0.05,
        xi=0.15,
        task_digest="5a" * 32,
        recipe={"family": "gridworld", "std": 0.03, "kernel": "published"},
        training={"samples": 2048, "name": "Ünïcode \n", "nested": [1, 2.0, None, True, {"x": -0.0}]},
        cells=None if model is None else make_cells(rng, **sizes, policies=1 + entries, model=model, **of_cells),
    )


def make_mixed() -> PolicyValueSet:
    """Networks of different sizes, a controller that is recognised by what it does and one that its owner knows."""
    plain, rng = make_set(entries=1), np.random.default_rng(0)

    def network(hidden: int) -> MLPPolicy:
        weights = rng.normal(size=(hidden, 3)), rng.normal(size=(2, hidden))
        return MLPPolicy(weights, (np.zeros(hidden), np.zeros(2)), np.zeros(2), np.zeros(3), np.ones(3))

    seen = ExternalPolicy("seen", False, rng.normal(size=(5, 3)).astype(np.float32), rng.normal(size=(5, 2)))
    mine = ExternalPolicy("mine", True, np.empty((0, 3)), np.empty((0, 1)), given="v7")
    entries = tuple(replace(plain.entries[0], policy=policy) for policy in (network(4), seen, mine))
    names = ("calm", "quick", "seen", "mine")
    return replace(plain, entries=entries, safe_policy=network(9), names=names, epsilon=None, delta=None, xi=None)


def assert_same(first: PolicyValueSet, second: PolicyValueSet) -> None:
    """Equal to the last bit, compared field by field rather than by the digest under test."""
    assert bits(first) == bits(second)
    assert first.digest() == second.digest()


def bits(policies: PolicyValueSet) -> Any:
    """All of a set; plain data as text, in which 1 is not 1.0 is not true."""
    cells = policies.cells
    if cells is not None and cells.readings is not None and cells.readings.signals.own is not None:
        signals = replace(cells.readings.signals, own=without_code(cells.readings.signals.own))
        cells = replace(cells, readings=replace(cells.readings, signals=signals))
    plain = [json.dumps(each, sort_keys=True) for each in (policies.recipe, policies.training)]
    return plain, fingerprint(replace(policies, cells=cells, recipe={}, training={}))


def without_code(own: OwnFeatures) -> OwnFeatures:
    """Types and all, but for the function, and with zeros behind the last step of an episode, where anything may be."""
    probes, rows = own.probes, []
    for array, steps in ((probes.observations, probes.steps + 1), (probes.actions, probes.steps)):
        rows.append(array.copy())
        rows[-1][np.arange(array.shape[1]) >= steps[:, None]] = 0
    return OwnFeatures(own.name, Observed(*rows, probes.steps), own.values)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def make_small() -> PolicyValueSet:
    small = make_set(entries=1, states=1, constraints=1)
    cells = make_cells(np.random.default_rng(0), cells=1, constraints=1, states=1, outside=1)
    return replace(small, cells=cells)


MISFITS: list[tuple[dict[str, int], str]] = [
    ({"parameters": 3}, r"low is for \[3\] parameters of the entries, must be for \[2\]"),
    ({"states": 4}, r"start_lower is for \[4\] states of the policies, must be for \[3\]"),
    ({"actions": 3}, r"model is for \[3, 3\] states and actions of the policies, must be for \[3, 2\]"),
]


def misfit(sizes: dict[str, int]) -> Cells:
    """Cells that are valid in themselves, for another set than `make_set()`."""
    return make_cells(np.random.default_rng(0), **{"policies": 3, **sizes})  # type: ignore[arg-type]


def with_some_first_states() -> PolicyValueSet:
    policies = make_set(states=5, model="affine")
    cells = policies.cells
    assert cells is not None
    assert cells.start_lower is not None
    assert cells.start_upper is not None
    lower, upper = (bounds[..., [1, 4]] for bounds in (cells.start_lower, cells.start_upper))
    some = replace(cells, start_lower=lower, start_upper=upper, first_states=np.array([1, 4]))
    return replace(policies, cells=some)


def with_readings(kind: str, **changes: Any) -> PolicyValueSet:
    """A set with readings, of which some arrays may be others."""
    policies = make_set(model="none", readings=kind, seed=3)
    return changed(policies, lambda readings: replace(readings, **changes))


def changed(policies: PolicyValueSet, change: Callable[[Readings], Readings]) -> PolicyValueSet:
    assert policies.cells is not None
    assert policies.cells.readings is not None
    return replace(policies, cells=replace(policies.cells, readings=change(policies.cells.readings)))


def readings_of(policies: PolicyValueSet) -> Readings:
    assert policies.cells is not None
    assert policies.cells.readings is not None
    return policies.cells.readings


def replace_signals(policies: PolicyValueSet, **changes: Any) -> PolicyValueSet:
    return changed(policies, lambda readings: replace(readings, signals=replace(readings.signals, **changes)))


def own_set(probes: Observed) -> PolicyValueSet:
    values = own_values(extent, "extent", probes)
    return replace_signals(with_readings("own"), own=OwnFeatures("extent", probes, values))


def float_probes() -> PolicyValueSet:
    rng = np.random.default_rng(0)
    return own_set(Observed(rng.normal(size=(3, 5, 2)), rng.normal(size=(3, 4)), np.array([1, 4, 2])))


def with_timed_policies() -> PolicyValueSet:
    """With cells too, whose tables must be those of the policies' states and actions; and with a horizon."""
    base = make_set(model="affine")

    def timed(policy: Any) -> TimedPolicy:
        return TimedPolicy(np.stack([policy.probabilities, policy.probabilities[::-1]]))

    entries = tuple(replace(entry, policy=timed(entry.policy)) for entry in base.entries)
    units = replace(base.units, horizon=20)
    return replace(base, entries=entries, safe_policy=timed(base.safe_policy), units=units)


SETS: dict[str, Callable[[], PolicyValueSet]] = {
    "plain": make_set,
    "mixed": make_mixed,
    "cells": partial(make_set, model="affine"),
    "some first states": with_some_first_states,
    "sparse": partial(make_set, model="affine-transitions"),
    "moments": partial(with_readings, "moments"),
    "transitions": partial(with_readings, "transitions"),
    "own": float_probes,
    "small": make_small,
    "timed": with_timed_policies,
}


def forgeable(kind: str, tmp_path: Path) -> Path:
    """A folder with a set of that kind, to be forged."""
    (tmp_path / kind).mkdir()
    for name, content in files_of(kind).items():
        (tmp_path / kind / name).write_bytes(content)
    return tmp_path / kind


@cache
def files_of(kind: str) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as place:
        SETS[kind]().save(place)
        return contents(Path(place))


# -------------------------------------------------------------------------------- forgeries: with all hashes recomputed

Forge: TypeAlias = Callable[[dict[str, Any]], object]
GONE = object()


def put(place: str, value: Any) -> Forge:
    """put("a/0", value) is the forgery that sets manifest["a"][0] = value, or to value(what was there), or deletes it
    if `value` is GONE."""

    def forge(manifest: dict[str, Any]) -> None:
        *path, last = (int(key) if key.isdigit() else key for key in place.split("/"))
        inner: Any = manifest
        for key in path:
            inner = inner[key]
        if value is GONE:
            del inner[last]
        else:
            inner[last] = value(inner[last]) if callable(value) else value

    return forge


def seal(manifest: dict[str, Any]) -> bytes:
    """The manifest with its hash computed anew, written independently of the library."""
    rest = {key: value for key, value in manifest.items() if key != "manifest_sha256"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return json.dumps({**rest, "manifest_sha256": hashlib.sha256(canonical.encode()).hexdigest()}).encode()


def reseal(folder: Path, forge: Forge) -> None:
    """Change the manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    forge(manifest)
    (folder / "manifest.json").write_bytes(seal(manifest))


def reseal_arrays(
    folder: Path, content: bytes, shapes: dict[str, list[int]] | None = None, name: str = "policies.safetensors"
) -> None:
    """Replace the arrays and recompute every hash on the way."""
    (folder / name).write_bytes(content)
    record: dict[str, Any] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    reseal(folder, put(f"files/{name}", lambda old: {**old, **record, "shapes": shapes or old["shapes"]}))


def raw_tensors(header: dict[str, Any] | bytes, data: bytes) -> bytes:
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + data


def reseal_cells(folder: Path, forge: Forge) -> None:
    """Change the arrays of the cells and recompute every hash and shape on the way."""
    arrays = safetensors.numpy.load_file(folder / "cells.safetensors")
    forge(arrays)
    arrays = {name: np.array(array, order="C") for name, array in arrays.items()}
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    reseal_arrays(folder, safetensors.numpy.save(arrays), shapes, "cells.safetensors")


def entry(name: str, index: Any, value: Any) -> Forge:
    """The forgery of one number of an array."""

    def forge(arrays: dict[str, np.ndarray]) -> None:
        arrays[name][index] = value

    return forge
