"""Policy sets forged on purpose, with all hashes recomputed: each is refused in one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from policy_sets import (
    MISFITS,
    PER_TEST_FOLDER,
    assert_same,
    contents,
    entry,
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


def rename_file(name: str) -> Callable[[dict[str, Any]], None]:
    def forge(manifest: dict[str, Any]) -> None:
        manifest["files"] = {name: manifest["files"]["policies.safetensors"]}

    return forge


def drop(key: str) -> Callable[[dict[str, Any]], None]:
    def forge(manifest: dict[str, Any]) -> None:
        del manifest[key]

    return forge


FILE = {"sha256": "0" * 64, "bytes": 8, "shapes": {}}
FORGERIES = [
    (put("format")("surefoot.journal"), "format must be 'surefoot.policyset', found 'surefoot.journal'"),
    (put("format_version")([2, 0]), r"format_version must be \[1, …\] .* found \[2, 0\]; upgrade surefoot"),
    (put("format_version")([0, 9]), r"format_version must be \[1, …\] .* found \[0, 9\]"),
    (put("format_version")("1.0"), r"format_version must be \[1, …\] .* found '1.0'"),
    (put("format_version")([1]), "format_version: list should have at least 2 items .* found"),
    (put("format_version")([1, True]), "format_version.1: input should be a valid integer, found True"),
    (drop("format_version"), "format_version must be .* found None"),
    (drop("budget"), "budget: field required, found nothing"),
    (drop("delta"), r"epsilon, delta and xi must be given all, or None .* got only \['epsilon', 'xi'\]"),
    (put("signature")("x"), "signature: extra inputs are not permitted, found 'x'"),
    (put("two\nlines")(1), r"two\\nlines: extra inputs are not permitted, found 1"),
    (put("entries", 0, "code")("x"), "entries.0.code: extra inputs are not permitted"),
    (put("entries", 0, "reward")("1.0"), "entries.0.reward: input should be a valid number, found '1.0'"),
    (put("entries", 0, "reward")(True), "entries.0.reward: input should be a valid number, found True"),
    (put("entries", 0, "reward")(10**400), "entries.0.reward: input should be a valid number"),
    (put("entries", 0, "margin")([1.0]), r"manifest.json: entries\[0\]: margin and safe_margin must have"),
    (put("entries", 1, "parameter")([1.0]), r"manifest.json: entries\[1\].parameter must have as many coordinates"),
    (put("entries", 1, "parameter")([]), r"manifest.json: entries\[1\]: parameter must be a vector"),
    (put("entries")([]), "entries: list should have at least 1 item"),
    (lambda m: m["entries"].append(m["entries"][0]), r"probabilities has shape \[3, 3, 2\], must be \[4, …\]"),
    (put("horizon")(0), "horizon: input should be greater than or equal to 1, found 0"),
    (put("horizon")(2.0), "horizon: input should be a valid integer, found 2.0"),
    (put("horizon")(True), "horizon: input should be a valid integer, found True"),
    (put("discount")(1.0), "discount must lie strictly between 0 and 1, or be 1 with a horizon, got 1.0"),
    (put("budget")([1.0]), r"manifest.json: cost_range must be .* \[m, 2\] with low ≤ high"),
    (put("cost_range")([[0.0, 1.0], [2.0, 1.0]]), "manifest.json: cost_range must be .* with low ≤ high"),
    (put("cost_range", 0)([0.0]), "cost_range.0: list should have at least 2 items"),
    (
        put("discount")(1.0),
        "manifest.json: discount must lie strictly between 0 and 1, or be 1 .*, got 1.0",
    ),
    (put("epsilon")(0.0), "manifest.json: epsilon must lie strictly"),
    (put("xi")(-1.0), "manifest.json: xi must not be negative"),
    (put("task_digest")(""), "manifest.json: task_digest must be a non-empty"),
    (put("recipe")([]), "recipe: input should be a valid dictionary"),
    (put("training")({"n": 2**64}), "manifest.json: training.n must be plain JSON data"),
    (
        put("policy_kind")("os.system"),
        r"policy_kind must be one of \['categorical-mlp', 'insulin', 'mlp', .*\], found 'os.system'",
    ),
    (put("files")({}), r"files must name exactly \['policies.safetensors'\], found \[\]"),
    (put("files", "extra.safetensors")(FILE), "files must name exactly .* found .*extra.safetensors"),
    (
        put("files", "policies.safetensors", "url")("x"),
        "files.policies.safetensors.url: extra inputs are not permitted",
    ),
    (put("files", "policies.safetensors", "sha256")("0" * 63), "sha256: string should match pattern"),
    (put("files", "policies.safetensors", "sha256")("0" * 64), "was altered after it was saved"),
    (put("files", "policies.safetensors", "bytes")(10**18), "bytes: input should be less than or equal to 4296015872"),
    (
        put("files", "policies.safetensors", "bytes")(2**32),
        "policies.safetensors: has 4294967296 bytes, must have at most",
    ),
    (put("files", "policies.safetensors", "bytes")(0), "bytes: input should be greater than or equal to 1"),
    (put("files", "policies.safetensors", "bytes")(10), "policies.safetensors: has .* bytes, must have at most 10"),
    (put("files", "policies.safetensors", "shapes")({"probabilities": [2**20, 2**20]}), "files declare 1099511627776"),
    (
        put("files", "policies.safetensors", "shapes")({"probabilities": [3, 2, 3]}),
        r"holds arrays of shapes .* must be",
    ),
    (put("files", "policies.safetensors", "shapes")({"probabilities": [3, -3, -2]}), "greater than or equal to 1"),
    (put("files", "policies.safetensors", "shapes")({"probabilities": [1] * 9}), "at most 8 items"),
    *(
        (rename_file(name), "files must have plain names inside the folder")
        for name in (
            "../policies.safetensors",
            "/etc/passwd",
            "sub/policies.safetensors",
            "..",
            "",
            "sub\\policies.safetensors",
            "policies.safetensors\n",
            "policies.safetensors\0",
            "C:policies.safetensors",
        )
    ),
]


@pytest.mark.parametrize(("forge", "message"), FORGERIES, ids=[message for _, message in FORGERIES])
def test_forged_manifests_are_refused(forge: Callable[[dict[str, Any]], None], message: str, saved: Path) -> None:
    reseal(saved, forge)
    with pytest.raises(ArtifactError, match=message) as refusal:
        PolicyValueSet.load(saved)
    assert "\n" not in str(refusal.value)
    assert str(saved) in str(refusal.value)


def test_resealing_alone_changes_nothing_and_a_newer_minor_version_loads(saved: Path) -> None:
    """The forgeries above are refused for what they change, not for being resealed."""
    for forge in (lambda manifest: None, put("format_version")([1, 7])):
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


def _probabilities(seed: int = 0) -> np.ndarray:
    return np.stack([policy.probabilities for policy in make_set(seed=seed).policies])


def _forged_arrays() -> Iterator[tuple[str, bytes, dict[str, list[int]] | None, str]]:
    good, save = _probabilities(), safetensors.numpy.save
    shape, size, data = [3, 3, 2], 144, good.tobytes()
    tensor = {"dtype": "F64", "shape": shape, "data_offsets": [0, size]}
    not_one = good.copy()
    not_one[1, 2] = [0.5, 0.6]
    negative = good.copy()
    negative[0, 0] = [-0.5, 1.5]
    nan = good.copy()
    nan[2, 0, 0] = np.nan
    yield "sum", save({"probabilities": not_one}), None, r"policy 1 .*: policy\[2\] must sum to 1 .* got 1.1"
    yield "negative", save({"probabilities": negative}), None, r"policy 0 .*: policy\[0, 0\] must not be negative"
    yield "nan", save({"probabilities": nan}), None, r"policy 2 .*: policy\[0, 0\] must be finite, got nan"
    yield (
        "float32",
        save({"probabilities": good.astype(np.float32)}),
        None,
        "'probabilities' must have dtype F64, found 'F32'",
    )
    yield (
        "name",
        save({"weights": good}),
        {"weights": shape},
        r"must hold the array 'probabilities', found \['weights'\]",
    )
    yield "no arrays", save({}), {"probabilities": shape}, "holds arrays of shapes {}, must be"
    yield (
        "more arrays",
        save({"probabilities": good, "more": good}),
        {"probabilities": shape, "more": shape},
        r"must hold exactly the arrays \['probabilities'\], found \['more', 'probabilities'\]",
    )
    yield (
        "flat",
        save({"probabilities": good.reshape(3, 6)[:, :1]}),
        {"probabilities": [3, 1]},
        r"shape \[S, A\], got \[1\]",
    )
    yield "scalar", save({"probabilities": np.array(1.0)}), {"probabilities": []}, r"has shape \[\], must be \[3, …\]"
    yield (
        "metadata",
        save({"probabilities": good}, metadata={"run": "me"}),
        None,
        "__metadata__.dtype: field required, found nothing",
    )
    wrong_end = {**tensor, "data_offsets": [0, 8]}
    yield "offsets", raw_tensors({"probabilities": wrong_end}, data), None, "must be a safetensors file"
    hole = {**tensor, "data_offsets": [8, size + 8]}
    yield "hole", raw_tensors({"probabilities": hole}, b"\0" * 8 + data), None, "must be a safetensors file"
    yield "trailing", raw_tensors({"probabilities": tensor}, data + b"\0"), None, "must be a safetensors file"
    yield "too short", raw_tensors({"probabilities": tensor}, data[:-1]), None, "must be a safetensors file"
    huge = {**tensor, "shape": [3, 3, 2**26]}
    yield "huge", raw_tensors({"probabilities": huge}, data), None, "holds arrays of shapes .* must be"
    yield "huge agreed", raw_tensors({"probabilities": huge}, data), {"probabilities": [3, 3, 2**25]}, "holds arrays"
    both = {"probabilities": [3, 3, 2**25]}
    declared = {**tensor, "shape": both["probabilities"]}
    yield "huge declared twice", raw_tensors({"probabilities": declared}, data), both, "must be a safetensors file"
    yield (
        "negative size",
        raw_tensors({"probabilities": {**tensor, "shape": [3, -3, -2]}}, data),
        None,
        "shape.1: input",
    )
    twice = json.dumps({"probabilities": tensor})[:-1] + ', "probabilities": {}}'
    yield "twice", raw_tensors(twice.encode(), data), None, "the key 'probabilities' more than once"
    yield "no json", raw_tensors(b"{", data), None, "policies.safetensors: must be JSON"
    yield "list", raw_tensors(b"[]", data), None, "content: input should be a valid dictionary"
    yield (
        "long header",
        (2**63).to_bytes(8, "little") + data,
        None,
        "says that its header has 9223372036854775808 bytes",
    )
    yield "tiny", b"\x01", None, "says that its header has 1 bytes"
    yield "pickle", b"\x80\x04cos\nsystem\n(S'true'\ntR.", None, "says that its header has"


@pytest.mark.parametrize(
    ("content", "shapes", "message"), [pytest.param(*rest, id=name) for name, *rest in _forged_arrays()]
)
def test_forged_arrays_are_refused(
    content: bytes, shapes: dict[str, list[int]] | None, message: str, saved: Path
) -> None:
    reseal_arrays(saved, content, shapes)
    with pytest.raises(ArtifactError, match=message) as refusal:
        PolicyValueSet.load(saved)
    assert "\n" not in str(refusal.value)
    assert str(saved / "policies.safetensors") in str(refusal.value)


def test_arrays_resealed_with_valid_content_do_load(saved: Path) -> None:
    """So the refusals above come from the content, not from the resealing."""
    reseal_arrays(saved, safetensors.numpy.save({"probabilities": _probabilities(seed=1)}))
    np.testing.assert_array_equal(
        PolicyValueSet.load(saved).safe_policy.probabilities, make_set(seed=1).safe_policy.probabilities
    )


# --------------------------------------------------------------------------------------------------- forgeries of cells


def whole(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[dict[str, np.ndarray]], None]:
    def forge(arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = np.array(change(arrays[name]), order="C")

    return forge


FORGED_CELLS = [
    (entry("lower", (0, 1, 2), np.nan), r"lower\[0, 1, 2\] must be finite, got nan"),
    (entry("start_upper", (2, 2, 2, 2), np.inf), r"start_upper\[2, 2, 2, 2\] must be finite, got inf"),
    (entry("outside", 0, np.nan), r"outside\[0, 0\] must be finite, got nan"),
    (entry("lower", (1, 0, 0), 99.0), r"lower\[1, 0, 0\] must not exceed upper, got 99.0"),
    (entry("start_lower", (1, 0, 0, 2), 99.0), r"start_lower\[1, 0, 0, 2\] must not exceed start_upper, got 99.0"),
    (entry("low", (1, 0), 99.0), r"low\[1, 0\] must not exceed high, got 99.0"),
    (entry("prior", 1, -0.5), r"prior\[1\] must not be negative, got -0.5"),
    (entry("prior", 1, 1.5), "prior must sum to at most 1, got"),
    (whole("prior", lambda prior: prior * 0.99), "prior and uncovered must sum to 1, got"),
    (whole("lower", lambda lower: lower[:2]), r"lower must have shape \[J, P, 1\+m\] = \[3, .*\], got \[2, 3, 3\]"),
    (whole("upper", lambda upper: upper[:, :2]), r"upper must have shape .* = \[3, 3, 3\], got \[3, 2, 3\]"),
    (whole("prior", lambda prior: prior[:, None]), r"prior must have shape \[J\] = \[3\], got \[3, 1\]"),
    (whole("low", lambda low: low[0, 0]), r"low must have shape \[J, d\] = .*, got \[\]"),
    (whole("start_lower", lambda low: low[..., :2]), r"start_upper must have shape .* got \[3, 3, 3, 3\]"),
    (whole("outside", lambda outside: outside[:, :1]), r"outside must have shape \[J', d\] = \[any, 2\], got \[2, 1\]"),
    (whole("model.cost", lambda cost: cost[:1]), r"model must have as many constraints .*\(2\), got 1"),
    (entry("model.classes", (0, 0, 0), 3), r"model.classes\[0, 0, 0\] must lie in \[-1, 3\), got 3"),
    (entry("model.classes", (0, 0, 0), -2), r"model.classes\[0, 0, 0\] must lie in \[-1, 3\), got -2"),
    (entry("model.classes", (0, 0, 0), -1), r"model.indptr must rise .*, got none in row \(0, 0\)"),
    (entry("model.row_type", 0, 3), r"model.row_type\[0\] must lie in \[0, 3\), got 3"),
    (entry("model.row_type", 0, 1), r"model.row_type must be one and the same for rows"),
    (entry("model.probability", (1, 0), 1.5), r"model.probability\[1, 0\] must lie in \[0, 1\], got 1.5"),
    (entry("model.probability", (1, 0), 0.5), r"model.probability\[1\] must sum to 1 .* got 0.5"),
    (entry("model.radius", 1, -0.5), r"model.radius\[1\] must not be negative, got -0.5"),
    (entry("model.slope", (0, 0), np.nan), r"model.affine\[1\]\[0, 0\] must be finite, got nan"),
    (whole("model.slope", lambda slope: slope[:, :1]), r"model must have as many parameters .*\(2\), got 1"),
    (whole("model.base", lambda base: base[:2]), r"model.affine\[0\] must have shape \[C\] = \[3\], got \[2\]"),
    (whole("model.cost", lambda cost: cost[0]), r"model.cost must have shape \[m, S, A\] = .*, got \[3, 2\]"),
    (whole("model.classes", np.float64), r"'model.classes' must have dtype I64, found 'F64'"),
    (whole("lower", np.int64), r"'lower' must have dtype F64, found 'I64'"),
    (whole("lower", np.float32), r"'lower' must have dtype F64, found 'F32'"),
    (
        lambda arrays: arrays.pop("upper"),
        r"must hold exactly the arrays \['high', .* that manifest.json announces, found",
    ),
    (lambda arrays: arrays.pop("model.base"), "must hold exactly the arrays"),
    (lambda arrays: arrays.update(more=np.ones(1)), "must hold exactly the arrays .* found .*'more'"),
]


@pytest.mark.parametrize(("forge", "message"), FORGED_CELLS, ids=[message for _, message in FORGED_CELLS])
def test_forged_cells_are_refused(
    forge: Callable[[dict[str, np.ndarray]], None], message: str, with_cells: Path
) -> None:
    reseal_cells(with_cells, forge)
    with pytest.raises(ArtifactError, match=rf"cells\.safetensors: {message}") as refusal:
        PolicyValueSet.load(with_cells)
    assert "\n" not in str(refusal.value)


@PER_TEST_FOLDER
@given(data=st.data())
def test_any_number_of_the_cells_made_infinite_is_refused(data: st.DataObject, with_cells: Path) -> None:
    before = contents(with_cells)
    arrays = safetensors.numpy.load(before["cells.safetensors"])
    name = data.draw(st.sampled_from(sorted(name for name, array in arrays.items() if array.dtype == np.float64)))
    index = data.draw(st.integers(0, arrays[name].size - 1))
    value = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    field = {"model.base": "model.affine[0]", "model.slope": "model.affine[1]"}.get(name, name)
    try:
        reseal_cells(with_cells, entry(name, np.unravel_index(index, arrays[name].shape), value))
        with pytest.raises(ArtifactError) as refusal:
            PolicyValueSet.load(with_cells)
    finally:
        for file, content in before.items():  # the folder serves the next example too
            (with_cells / file).write_bytes(content)
    assert f"cells.safetensors: {field}[" in str(refusal.value)
    assert f"must be finite, got {value}" in str(refusal.value)


FORGED_CELL_RECORDS = [
    (put("cells", "source")("guess"), "cells.source: input should be 'affine', 'finite', .* found 'guess'"),
    (put("cells", "uncovered")(-0.1), "cells.uncovered: input should be greater than or equal to 0, found -0.1"),
    (put("cells", "uncovered")(1.1), "cells.uncovered: input should be less than or equal to 1, found 1.1"),
    (put("cells", "uncovered")("0"), "cells.uncovered: input should be a valid number, found '0'"),
    (put("cells", "uncovered")(0.9), "prior and uncovered must sum to 1, got .* and 0.9"),
    (put("cells", "by_start")(1), "cells.by_start: input should be a valid boolean, found 1"),
    (put("cells", "by_start")(False), "must hold exactly the arrays .* found .*'start_lower'"),
    (put("cells", "outside")(False), "must hold exactly the arrays .* found .*'outside'"),
    (put("cells", "model")("none"), "must hold exactly the arrays .* found .*'model.classes'"),
    (put("cells", "model")("balls"), "must hold exactly the arrays .* found .*'model.base'"),
    (put("cells", "model")("code"), "cells.model: input should be 'none', 'balls' or 'affine', found 'code'"),
    (put("cells", "code")("x"), "cells.code: extra inputs are not permitted, found 'x'"),
    (put("cells")(None), r"files must name exactly \['policies.safetensors'\], found \['cells.safetensors', "),
    (drop("cells"), r"files must name exactly \['policies.safetensors'\], found \['cells.safetensors', "),
    (rename_file("policies.safetensors"), r"files must name exactly \['cells.safetensors', 'policies.safetensors'\]"),
    (
        put("files", "extra.safetensors")(FILE),
        r"files must name exactly \['cells.safetensors', 'policies.safetensors'\]",
    ),
]


@pytest.mark.parametrize(("forge", "message"), FORGED_CELL_RECORDS, ids=[message for _, message in FORGED_CELL_RECORDS])
def test_forged_records_of_cells_are_refused(
    forge: Callable[[dict[str, Any]], None], message: str, with_cells: Path
) -> None:
    reseal(with_cells, forge)
    with pytest.raises(ArtifactError, match=message) as refusal:
        PolicyValueSet.load(with_cells)
    assert "\n" not in str(refusal.value)
    assert str(with_cells) in str(refusal.value)


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
