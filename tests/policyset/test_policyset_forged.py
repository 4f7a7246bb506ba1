"""Policy sets forged on purpose, with all hashes recomputed: each is refused in one sentence."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import safetensors.numpy
from policy_sets import (
    GONE,
    MISFITS,
    SETS,
    Forge,
    assert_same,
    contents,
    entry,
    forgeable,
    make_set,
    misfit,
    put,
    raw_tensors,
    reseal,
    reseal_arrays,
    reseal_cells,
)

from surefoot.errors import ArtifactError
from surefoot.policyset import PolicyValueSet
from surefoot.policyset.stored_arrays import CELL_ARRAYS, NARROW, WHOLE, Stored, cell_fields


def refusal(folder: Path, message: str) -> None:
    """One line that names the folder."""
    with pytest.raises(ArtifactError, match=message) as error:
        PolicyValueSet.load(folder)
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)


# ---------------------------------------------------------------------------------------------- fields of the manifest

FILE = {"sha256": "0" * 64, "bytes": 8, "shapes": {}}
POLICIES = "files/policies.safetensors"
OWN, READINGS = "policies/2/own", "cells/readings"
EXACTLY = "must hold exactly the arrays"
BOTH = r"files must name exactly \['cells.safetensors', 'policies.safetensors'\]"
NO_NAMES = ("../policies.safetensors", "/etc/passwd", "sub/policies.safetensors", "..", "", "sub\\policies.safetensors")
NO_NAMES += ("policies.safetensors\n", "policies.safetensors\0", "C:policies.safetensors")


def only(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda files: {name: files["policies.safetensors"]}


FORGERIES: list[tuple[str, str, Any, str]] = [
    ("plain", "format", "surefoot.journal", "format must be 'surefoot.policyset', found 'surefoot.journal'"),
    ("plain", "format_version", [2, 0], r"format_version must be \[1, …\] .* found \[2, 0\]; upgrade surefoot"),
    ("plain", "format_version", [0, 9], r"format_version must be \[1, …\] .* found \[0, 9\]"),
    ("plain", "format_version", "1.0", r"format_version must be \[1, …\] .* found '1.0'"),
    ("plain", "format_version", [1], "format_version: list should have at least 2 items .* found"),
    ("plain", "format_version", [1, True], "format_version.1: input should be a valid integer, found True"),
    ("plain", "format_version", GONE, "format_version must be .* found None"),
    ("plain", "budget", GONE, "budget: field required, found nothing"),
    ("plain", "delta", GONE, r"epsilon, delta and xi must be given all, or None .* got only \['epsilon', 'xi'\]"),
    ("plain", "signature", "x", "signature: extra inputs are not permitted, found 'x'"),
    ("plain", "two\nlines", 1, r"two\\nlines: extra inputs are not permitted, found 1"),
    ("plain", "entries/0/code", "x", "entries.0.code: extra inputs are not permitted"),
    ("plain", "entries/0/reward", "1.0", "entries.0.reward: input should be a valid number, found '1.0'"),
    ("plain", "entries/0/reward", True, "entries.0.reward: input should be a valid number, found True"),
    ("plain", "entries/0/reward", 10**400, "entries.0.reward: input should be a valid number"),
    ("plain", "entries/0/margin", [1.0], r"manifest.json: entries\[0\]: margin and safe_margin must have"),
    ("plain", "entries/1/parameter", [1.0], r"manifest.json: entries\[1\].parameter must have as many coordinates"),
    ("plain", "entries/1/parameter", [], r"manifest.json: entries\[1\]: parameter must be a vector"),
    ("plain", "entries", [], "entries: list should have at least 1 item"),
    ("plain", "entries", lambda old: [*old, old[0]], r"probabilities has shape \[3, 3, 2\], must be \[4, …\]"),
    ("plain", "horizon", 0, "horizon: input should be greater than or equal to 1, found 0"),
    ("plain", "horizon", 2.0, "horizon: input should be a valid integer, found 2.0"),
    ("plain", "horizon", True, "horizon: input should be a valid integer, found True"),
    ("plain", "discount", 1.0, "manifest.json: discount must lie strictly between 0 and 1, or be 1 with a .*, got 1.0"),
    ("plain", "budget", [1.0], r"manifest.json: cost_range must be .* \[m, 2\] with low ≤ high"),
    ("plain", "cost_range", [[0.0, 1.0], [2.0, 1.0]], "manifest.json: cost_range must be .* with low ≤ high"),
    ("plain", "cost_range/0", [0.0], "cost_range.0: list should have at least 2 items"),
    ("plain", "epsilon", 0.0, "manifest.json: epsilon must lie strictly"),
    ("plain", "xi", -1.0, "manifest.json: xi must not be negative"),
    ("plain", "task_digest", "", "manifest.json: task_digest must be a non-empty"),
    ("plain", "recipe", [], "recipe: input should be a valid dictionary"),
    ("plain", "training", {"n": 2**64}, "manifest.json: training.n must be plain JSON data"),
    ("plain", "policy_kind", "os.system", r"policy_kind must be one of \['cat.*', 'insulin', .*\], found 'os.system'"),
    ("plain", "names", ["a"], "names must hold 3, found 1"),
    ("plain", "files", {}, r"files must name exactly \['policies.safetensors'\], found \[\]"),
    ("plain", "files/extra.safetensors", FILE, "files must name exactly .* found .*extra.safetensors"),
    ("plain", f"{POLICIES}/url", "x", "files.policies.safetensors.url: extra inputs are not permitted"),
    ("plain", f"{POLICIES}/sha256", "0" * 63, "sha256: string should match pattern"),
    ("plain", f"{POLICIES}/sha256", "0" * 64, "was altered after it was saved"),
    ("plain", f"{POLICIES}/bytes", 10**18, "bytes: input should be less than or equal to 4296015872"),
    ("plain", f"{POLICIES}/bytes", 2**32, "policies.safetensors: has 4294967296 bytes, must have at most"),
    ("plain", f"{POLICIES}/bytes", 0, "bytes: input should be greater than or equal to 1"),
    ("plain", f"{POLICIES}/bytes", 10, "policies.safetensors: has .* bytes, must have at most 10"),
    ("plain", f"{POLICIES}/shapes", {"probabilities": [2**20, 2**20]}, "files declare 1099511627776"),
    ("plain", f"{POLICIES}/shapes", {"probabilities": [3, 2, 3]}, "holds arrays of shapes .* must be"),
    ("plain", f"{POLICIES}/shapes", {"probabilities": [3, -3, -2]}, "greater than or equal to 1"),
    ("plain", f"{POLICIES}/shapes", {"probabilities": [1] * 9}, "at most 8 items"),
    *(("plain", "files", only(name), "files must have plain names inside the folder") for name in NO_NAMES),
    ("cells", "cells/source", "guess", "cells.source: input should be 'affine', 'finite', .* found 'guess'"),
    ("cells", "cells/uncovered", -0.1, "cells.uncovered: input should be greater than or equal to 0, found -0.1"),
    ("cells", "cells/uncovered", 1.1, "cells.uncovered: input should be less than or equal to 1, found 1.1"),
    ("cells", "cells/uncovered", "0", "cells.uncovered: input should be a valid number, found '0'"),
    ("cells", "cells/uncovered", 0.9, "prior and uncovered must sum to 1, got .* and 0.9"),
    ("cells", "cells/by_start", 1, "cells.by_start: input should be a valid boolean, found 1"),
    ("cells", "cells/by_start", False, f"{EXACTLY} .* found .*'start_lower'"),
    ("cells", "cells/outside", False, f"{EXACTLY} .* found .*'outside'"),
    ("cells", "cells/model", "none", f"{EXACTLY} .* found .*'model.classes'"),
    ("cells", "cells/model", "balls", f"{EXACTLY} .* found .*'model.base'"),
    ("cells", "cells/model", "code", "cells.model: input should be 'none', 'balls' or 'affine', found 'code'"),
    ("cells", "cells/sparse", True, f"{EXACTLY} .*'model.entry_class', .* found .*'model.classes'"),
    ("cells", "cells/payments", "unknown", f"{EXACTLY} .* found .*'model.cost'"),
    ("cells", "cells/code", "x", "cells.code: extra inputs are not permitted, found 'x'"),
    ("cells", "cells", None, r"files must name exactly \['policies.safetensors'\], found \['cells.safetensors', "),
    ("cells", "cells", GONE, r"files must name exactly \['policies.safetensors'\], found \['cells.safetensors', "),
    ("cells", "files", only("policies.safetensors"), BOTH),
    ("cells", "files/extra.safetensors", FILE, BOTH),
    ("some first states", "cells/first_states", GONE, f"{EXACTLY} .* found .*'first_states'"),
    ("sparse", "cells/sparse", GONE, f"{EXACTLY} .*'model.classes', .* found .*'model.entry_class'"),
    ("sparse", "cells/payments", "unknown", f"{EXACTLY} .* found .*'model.payments'"),
    ("mixed", "policies", None, "must have policies if and only if policy_kind is 'mixed'"),
    ("mixed", "policy_kind", "mlp", "must have policies if and only if policy_kind is 'mixed'"),
    ("mixed", "policies", [{"kind": "mlp"}] * 2, "policies must hold 4, one per entry and the safe one, found 2"),
    ("mixed", "policies", [], "policies must hold 4, one per entry and the safe one, found 0"),
    ("mixed", "names", ["calm"], "names must hold 4, found 1"),
    ("mixed", "names", ["calm"] * 4, "names must be 4 different ones"),
    ("mixed", "names", None, "name must be a printable text"),
    ("mixed", "policies/0/kind", "pickle", "policy_kind must be one of .* found 'pickle'"),
    ("mixed", "policies/0/kind", "own", "policy_kind must be one of .* found 'own'"),
    ("mixed", "policies/1/kind", "tabular", "must hold the array 'probabilities'"),
    ("mixed", f"{OWN}/fingerprint", "0" * 64, "fingerprint must be that of the arrays, .*, got 000"),
    ("mixed", f"{OWN}/fingerprint", None, rf"{EXACTLY} \[\], found \['actions', 'observations'\]"),
    ("mixed", f"{OWN}/observation_shape", [4], r"observations must have shape \['n', 4\], got \[5, 3\]"),
    ("mixed", f"{OWN}/observation_shape", [2**30] * 5, "observations must have at most"),
    ("mixed", f"{OWN}/observation_type", "int8", r"observations\[.*\] must be of type int8, got"),
    ("mixed", f"{OWN}/observation_type", "object", "observation_type: input should be 'float64'"),
    ("mixed", f"{OWN}/action_type", "int64", r"actions\[.*\] must be of type int64, got"),
    ("mixed", f"{OWN}/module", "os", "policies.2.own.module: extra inputs are not permitted"),
    ("mixed", "policies/3/own/observation_shape", [2**30] * 7, "observations must have at most"),
    ("moments", f"{READINGS}/kind", "code", "readings.kind: input should be 'moments', 'transitions' or 'own'"),
    ("moments", f"{READINGS}/kind", "transitions", f"{EXACTLY} .*'signals.keys'"),
    ("transitions", f"{READINGS}/kind", "moments", f"{EXACTLY} .* found .*'signals.keys'"),
    ("moments", f"{READINGS}/kind", "own", "signals.signals of kind own must come with what they count or call"),
    ("own", f"{READINGS}/kind", "moments", "signals.signals of kind moments must come with what they count"),
    ("own", f"{READINGS}/own", None, f"{EXACTLY} .* found .*'features.actions'"),
    ("moments", f"{READINGS}/steps", 0, "cells.readings.steps: input should be greater than or equal to 1, found 0"),
    ("moments", f"{READINGS}/steps", 1.0, "cells.readings.steps: input should be a valid integer, found 1.0"),
    ("moments", f"{READINGS}/steps", 10**30, "cells.readings.steps: .*"),
    ("moments", f"{READINGS}/code", "x", "cells.readings.code: extra inputs are not permitted"),
    ("moments", READINGS, None, f"{EXACTLY} .* found .*'readings.edges'"),
    ("own", f"{READINGS}/own/name", "", "cells.readings.own.name: string should have at least 1 character"),
    ("own", f"{READINGS}/own/module", "os", "cells.readings.own.module: extra inputs are not permitted"),
    ("own", f"{READINGS}/own/observation_type", "O", "readings.own.observation_type: input should be 'float64'"),
    ("own", f"{READINGS}/own/observation_type", "uint8", r"features.observations\[.*\] must be of type uint8"),
]


@pytest.mark.parametrize(("kind", "place", "value", "message"), FORGERIES)
def test_forged_manifests_are_refused(kind: str, place: str, value: Any, message: str, tmp_path: Path) -> None:
    folder = forgeable(kind, tmp_path)
    reseal(folder, put(place, value))
    refusal(folder, message)


def test_resealing_alone_changes_nothing_and_a_newer_minor_version_loads(saved: Path) -> None:
    """The forgeries above are refused for what they change, not for being resealed."""
    for forge in (lambda manifest: None, put("format_version", [1, 7])):
        reseal(saved, forge)
        assert_same(PolicyValueSet.load(saved), make_set())


def test_a_changed_value_is_noticed_unless_resealed(saved: Path) -> None:
    text = (saved / "manifest.json").read_text()
    (saved / "manifest.json").write_text(text.replace('"xi": 0.15', '"xi": 0.16'))
    with pytest.raises(ArtifactError, match=r"manifest\.json: was altered after it was saved"):
        PolicyValueSet.load(saved)


@pytest.mark.parametrize(
    ("number", "found"),
    [
        ("NaN", "NaN is not a number"),
        ("Infinity", "Infinity is not a number"),
        ("-Infinity", "-Infinity is not a number"),
        ("1e999", "the number 1e999"),
        ('0.15, "xi": 0.2', "the key 'xi' more than once"),
        ("1" * 5000, "Exceeds the limit"),
        ("[" * 100_000, "must be nested at most 36 levels deep"),
        ('"\\ud800"', "surrogates not allowed"),
        ("0x10", "Expecting ',' delimiter"),
    ],
)
def test_only_plain_finite_json_is_read(number: str, found: str, saved: Path) -> None:
    text = (saved / "manifest.json").read_text()
    (saved / "manifest.json").write_text(text.replace('"xi": 0.15', f'"xi": {number}'))
    with pytest.raises(ArtifactError, match=rf"manifest.json: must be JSON in UTF-8 .* found: .*{found}"):
        PolicyValueSet.load(saved)


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"\xff\xfe{\0}\0", b"\xef\xbb\xbf{}"])
def test_documents_that_are_no_manifest(content: bytes, saved: Path) -> None:
    (saved / "manifest.json").write_bytes(content)
    with pytest.raises(ArtifactError, match=r"manifest.json: must (be JSON|hold a JSON object)"):
        PolicyValueSet.load(saved)


def test_a_huge_manifest_is_not_even_read(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (saved / "manifest.json").open("r+b") as stream:
        stream.truncate(2**40)  # sparse: takes no space
    monkeypatch.setattr(Path, "open", lambda *args: pytest.fail("must not be opened"))
    with pytest.raises(ArtifactError, match=r"manifest\.json: has 1099511627776 bytes, must have at most 8388608"):
        PolicyValueSet.load(saved)


# --------------------------------------------------------------------------------------------------- arrays of policies


def _probabilities(seed: int = 0) -> np.ndarray:
    return np.stack([policy.probabilities for policy in make_set(seed=seed).policies])


def _with(index: Any, value: Any) -> bytes:
    array = _probabilities()
    array[index] = value
    return safetensors.numpy.save({"probabilities": array})


def _raw(data: bytes | None = None, **changes: Any) -> bytes:
    """A file made by hand, whose header says something else."""
    tensor = {"dtype": "F64", "shape": [3, 3, 2], "data_offsets": [0, 144], **changes}
    return raw_tensors({"probabilities": tensor}, GOOD.tobytes() if data is None else data)


GOOD, save = _probabilities(), safetensors.numpy.save
TWICE = raw_tensors(b'{"probabilities": {}, "probabilities": {}}', GOOD.tobytes())
SHAPE, HUGE, NO_FILE = [3, 3, 2], [3, 3, 2**25], "must be a safetensors file"
FORGED_POLICIES: list[tuple[str, bytes, dict[str, list[int]] | None, str]] = [
    ("sum", _with((1, 2), [0.5, 0.6]), None, r"policy 1 .*: policy\[2\] must sum to 1 .* got 1.1"),
    ("negative", _with((0, 0), [-0.5, 1.5]), None, r"policy 0 .*: policy\[0, 0\] must not be negative"),
    ("nan", _with((2, 0, 0), np.nan), None, r"policy 2 .*: policy\[0, 0\] must be finite, got nan"),
    ("float32", save({"probabilities": GOOD.astype("f4")}), None, "'probabilities' must have dtype F64, found 'F32'"),
    ("name", save({"weights": GOOD}), {"weights": SHAPE}, r"must hold the array 'probabilities', found \['weights'\]"),
    ("no arrays", save({}), {"probabilities": SHAPE}, "holds arrays of shapes {}, must be"),
    (
        "more arrays",
        save({"probabilities": GOOD, "more": GOOD}),
        {"probabilities": SHAPE, "more": SHAPE},
        rf"{EXACTLY} \['probabilities'\], found \['more', 'probabilities'\]",
    ),
    ("flat", save({"probabilities": np.ones((3, 1))}), {"probabilities": [3, 1]}, r"shape \[S, A\], got \[1\]"),
    ("scalar", save({"probabilities": np.array(1.0)}), {"probabilities": []}, r"has shape \[\], must be \[3, …\]"),
    (
        "metadata",
        save({"probabilities": GOOD}, metadata={"run": "me"}),
        None,
        "__metadata__.dtype: field required",
    ),
    ("offsets", _raw(data_offsets=[0, 8]), None, NO_FILE),
    ("hole", _raw(b"\0" * 8 + GOOD.tobytes(), data_offsets=[8, 152]), None, NO_FILE),
    ("trailing", _raw(GOOD.tobytes() + b"\0"), None, NO_FILE),
    ("too short", _raw(GOOD.tobytes()[:-1]), None, NO_FILE),
    ("huge", _raw(shape=[3, 3, 2**26]), None, "holds arrays of shapes .* must be"),
    ("huge agreed", _raw(shape=[3, 3, 2**26]), {"probabilities": HUGE}, "holds arrays"),
    ("huge declared twice", _raw(shape=HUGE), {"probabilities": HUGE}, NO_FILE),
    ("negative size", _raw(shape=[3, -3, -2]), None, "shape.1: input"),
    ("twice", TWICE, None, "the key 'probabilities' more than once"),
    ("no json", raw_tensors(b"{", GOOD.tobytes()), None, "policies.safetensors: must be JSON"),
    ("list", raw_tensors(b"[]", GOOD.tobytes()), None, "content: input should be a valid dictionary"),
    ("long header", (2**63).to_bytes(8, "little") + GOOD.tobytes(), None, f"says that its header has {2**63} bytes"),
    ("tiny", b"\x01", None, "says that its header has 1 bytes"),
    ("pickle", b"\x80\x04cos\nsystem\n(S'true'\ntR.", None, "says that its header has"),
]


@pytest.mark.parametrize(
    ("content", "shapes", "message"), [pytest.param(*rest, id=name) for name, *rest in FORGED_POLICIES]
)
def test_forged_policies_are_refused(
    content: bytes, shapes: dict[str, list[int]] | None, message: str, saved: Path
) -> None:
    reseal_arrays(saved, content, shapes)
    refusal(saved, message)
    refusal(saved, re.escape(str(saved / "policies.safetensors")))


def test_arrays_resealed_with_valid_content_do_load(saved: Path) -> None:
    """So the refusals above come from the content, not from the resealing."""
    reseal_arrays(saved, safetensors.numpy.save({"probabilities": _probabilities(seed=1)}))
    np.testing.assert_array_equal(
        PolicyValueSet.load(saved).safe_policy.probabilities, make_set(seed=1).safe_policy.probabilities
    )


@pytest.mark.parametrize("name", ["observations", "actions"])
def test_a_controller_is_not_recognised_by_a_single_number(name: str, tmp_path: Path) -> None:
    folder = forgeable("mixed", tmp_path)
    arrays = safetensors.numpy.load_file(folder / "policies.safetensors") | {f"2.{name}": np.array(1.0)}
    shapes = {key: list(array.shape) for key, array in arrays.items()}
    reseal_arrays(folder, safetensors.numpy.save(arrays), shapes)
    refusal(folder, rf"policies\.safetensors: policy 2 .*: {name} must have shape .*, got \[\]")


# ------------------------------------------------------------------------------------------------------ arrays of cells

# What refusals call arrays that are put together, or compared, before they are checked.
CALLED = {"model.base": "model.affine[0]", "model.slope": "model.affine[1]", "model.entry_class": "model.classes"}


def kind_with(array: Stored) -> str:
    kinds = ("cells", "some first states", "sparse", "transitions", "own")
    return next(kind for kind in kinds if array.announced(_record(kind)))


@cache
def _record(kind: str) -> dict[str, Any]:
    cells = SETS[kind]().cells
    assert cells is not None
    return cell_fields(cells)


@pytest.mark.parametrize("array", CELL_ARRAYS, ids=lambda array: array.key)
def test_every_array_must_be_there_of_its_type_and_shape_and_finite(array: Stored, tmp_path: Path) -> None:
    folder = forgeable(kind_with(array), tmp_path)
    before, key = contents(folder), array.key
    called = re.escape(CALLED.get(key, key))
    good = safetensors.numpy.load(before["cells.safetensors"])[key]
    usual, others = ("I64", {"f8": "F64"}) if array.types is WHOLE else ("F64", {"i8": "I64", "f4": "F32"})
    first, last = tuple(0 for _ in good.shape), tuple(length - 1 for length in good.shape)

    def refuse(forge: Forge, message: str) -> None:
        for name, content in before.items():
            (folder / name).write_bytes(content)
        reseal_cells(folder, forge)
        refusal(folder, rf"cells\.safetensors: {message}")

    refuse(put(key, GONE), rf"{EXACTLY} \[.*'{key}'.*\] that manifest.json announces, found")
    for dtype, found in others.items():
        if not (array.types is NARROW and found == "F32"):
            refuse(put(key, good.astype(dtype)), f"'{key}' must have dtype {usual}, found '{found}'")
    for shape, wrong in (([1, *good.shape], good[None]), ([], good[first])):
        whose, got = (called, shape) if key != "features.actions" else ("features.observations", [3, 5, 2])
        refuse(put(key, wrong), rf"{whose} must have shape \[.*, got {re.escape(str(got))}")
    for index, value in ((first, np.nan), (last, np.inf), (last, -np.inf)) if good.dtype == np.float64 else ():
        place = re.escape(str(list(index)))
        refuse(entry(key, index, value), rf"{called}{place} must be finite, got {value}")


def test_no_other_array_may_be_there(tmp_path: Path) -> None:
    folder = forgeable("cells", tmp_path)
    reseal_cells(folder, put("more", np.ones(1)))
    refusal(folder, rf"cells\.safetensors: {EXACTLY} .* found .*'more'")


Change: TypeAlias = tuple[Any, Any] | Callable[[np.ndarray], np.ndarray]  # of one number, or of the array
# What `Cells` refuses by itself is tried without files; here a few of these, and what only files can have.
FORGED_CELLS: list[tuple[str, str, Change, str]] = [
    ("cells", "lower", ((1, 0, 0), 99.0), r"lower\[1, 0, 0\] must not exceed upper, got 99.0"),
    ("cells", "prior", lambda prior: prior * 0.99, "prior and uncovered must sum to 1, got"),
    ("cells", "start_lower", lambda low: low[..., :2], r"start_upper must have shape .* got \[3, 3, 3, 3\]"),
    ("cells", "model.cost", lambda cost: cost[:1], r"model must have as many constraints .*\(2\), got 1"),
    ("cells", "model.classes", ((0, 0, 0), 3), r"model.classes\[0, 0, 0\] must lie in \[-1, 3\), got 3"),
    ("cells", "model.classes", ((0, 0, 0), -2), r"model.classes\[0, 0, 0\] must lie in \[-1, 3\), got -2"),
    ("cells", "model.classes", ((0, 0, 0), -1), r"model.indptr must rise .*, got none in row \(0, 0\)"),
    ("cells", "model.probability", ((1, 0), 0.5), r"model.probability\[1\] must sum to 1 .* got 0.5"),
    ("cells", "model.slope", lambda slope: slope[:, :1], r"model must have as many parameters .*\(2\), got 1"),
    ("own", "readings.lower", ((0, 0, 0), 9.0), r"readings.lower\[0, 0, 0\] must not exceed upper, got 9.0"),
    ("own", "readings.edges", ((1, -1), -1.0), r"readings.edges\[1, .\] must be ascending, got -1.0"),
    ("own", "readings.edges", lambda edges: edges[:, 1:], "readings.values must be one more than edges"),
    ("own", "readings.values", ((0, 0), 1.5), r"readings.values\[0, 0\] must lie in \[0, 1\], got 1.5"),
    ("own", "readings.law", ((0, 1, 0, 0), -0.5), r"readings.law\[0, 1, 0, 0\] must not be negative, got -0.5"),
    ("own", "readings.law", ((0, 1, 0, 0), 1.5), r"readings.law\[0, 1, 0\] must sum to 1 over the bins"),
    ("own", "readings.law", lambda law: law[1:], r"readings.law must have shape \[J, P, k, L\]"),
    ("own", "signals.scale", ((1, 1), 0.0), r"signals.scale\[1, 1\] must be positive, got 0.0"),
    ("own", "signals.low", (0, 99.0), r"signals.high\[0\] must exceed low"),
    ("own", "signals.source", (0, 4), r"signals.source must lie in \[0, .\), got 4"),
    ("own", "signals.source", (0, -1), r"signals.source must lie in \[0, .\), got -1"),
    ("own", "signals.offset", lambda off: off[1:], r"signals.offset must have shape \[P, R\] = \[3, .\], got \[2, .\]"),
    ("own", "features.values", lambda old: old[1:], r"features.values must .* \[n, F\] = \[3, ≥ 1\], got \[2, 3\]"),
    ("own", "features.values", lambda old: old[:, 1:], r"features.values must be 3 for each .*, got shape \[3, 2\]"),
    ("own", "features.observations", lambda o: o[:, 1:], r"features.observations must .* \[n, H\+1, .*got \[3, 4, 2\]"),
    ("own", "features.actions", lambda old: old[1:], r"features.actions must .* \[n, H, .*with n = 3, got \[2, 4\]"),
    ("own", "features.actions", lambda old: old[:, 0], r"features.observations must have shape \[n, H\+1, ...\]"),
    ("own", "features.steps", (1, 5), r"features.steps\[1\] must lie in \[1, 4\], got 5"),
    ("own", "features.steps", (1, 0), r"features.steps\[1\] must lie in \[1, 4\], got 0"),
]


@pytest.mark.parametrize(("kind", "name", "change", "message"), FORGED_CELLS, ids=[row[3] for row in FORGED_CELLS])
def test_forged_cells_are_refused(kind: str, name: str, change: Change, message: str, tmp_path: Path) -> None:
    folder = forgeable(kind, tmp_path)
    reseal_cells(folder, put(name, change) if callable(change) else entry(name, *change))
    refusal(folder, rf"cells\.safetensors: {message}")


@pytest.mark.parametrize(("sizes", "message"), [*MISFITS, ({"policies": 2}, "cells must bound reward and 2 margin")])
def test_cells_of_another_set_are_refused_even_if_resealed(
    sizes: dict[str, int], message: str, with_cells: Path, tmp_path: Path
) -> None:
    cells = misfit(sizes)
    others = {"entries": cells.lower.shape[1] - 1, "states": 3, "actions": 2}
    others |= {name: size for name, size in sizes.items() if name in others}
    base = make_set(**others)
    longer = tuple(replace(one, parameter=np.zeros(cells.low.shape[1])) for one in base.entries)
    replace(base, entries=longer, cells=cells).save(tmp_path / "other")
    record = json.loads((tmp_path / "other/manifest.json").read_text())
    shutil.copy(tmp_path / "other/cells.safetensors", with_cells)

    def forge(manifest: dict[str, Any]) -> None:
        manifest["cells"] = record["cells"]
        manifest["files"]["cells.safetensors"] = record["files"]["cells.safetensors"]

    reseal(with_cells, forge)
    with pytest.raises(ArtifactError, match=message) as refusal:
        PolicyValueSet.load(with_cells)
    assert str(with_cells) in str(refusal.value)


def test_cells_resealed_with_valid_content_do_load(with_cells: Path) -> None:
    """So the refusals above come from the content, not from the resealing."""
    reseal_cells(with_cells, entry("lower", (1, 2, 0), -99.0))
    cells = PolicyValueSet.load(with_cells).cells
    assert cells is not None
    assert cells.lower[1, 2, 0] == -99.0
