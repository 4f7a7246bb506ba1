"""A single policy as a file of its own, for controllers that run no Python: safetensors, or ONNX."""

from __future__ import annotations

import importlib
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from surefoot.cmdp.policy import Policy, TabularPolicy
from surefoot.errors import ArtifactError, InvalidInput

OPSET = 13  # of 2020: read by every runtime in use


def write_policy(policy: Policy, path: str | PathLike[str]) -> None:
    """Write `policy` to `path`, in the form that its suffix names: .safetensors or .onnx."""
    target = Path(path)
    match target.suffix:
        case ".safetensors":
            arrays = {name: np.ascontiguousarray(array) for name, array in policy.to_arrays().items()}
            content = safetensors.numpy.save(arrays, metadata={"kind": policy.kind})
        case ".onnx":
            content = onnx_model(policy)
        case other:
            raise InvalidInput(f"out must end in .safetensors or .onnx, got {other!r}")
    try:
        target.write_bytes(content)
    except OSError as error:
        raise ArtifactError(f"{target}: cannot be written ({error.strerror or error})") from None


def onnx_model(policy: Policy) -> bytes:
    """states [n] int64 -> probabilities [n, A] float64: one Gather of the table. Needs the extra `onnx`."""
    if not isinstance(policy, TabularPolicy):
        raise InvalidInput(f"policy must be tabular to be written as ONNX, got kind {policy.kind!r}")
    try:
        onnx: Any = importlib.import_module("onnx")
    except ImportError:
        raise InvalidInput("onnx must be installed to write ONNX files: pip install 'surefoot[onnx]'") from None
    helper, kinds = onnx.helper, onnx.TensorProto
    table = onnx.numpy_helper.from_array(np.ascontiguousarray(policy.probabilities), "table")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "states"], ["probabilities"], axis=0)],
        "policy",
        [helper.make_tensor_value_info("states", kinds.INT64, ["n"])],
        [helper.make_tensor_value_info("probabilities", kinds.DOUBLE, ["n", policy.probabilities.shape[1]])],
        [table],
    )
    model = helper.make_model(graph, producer_name="surefoot", opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content
