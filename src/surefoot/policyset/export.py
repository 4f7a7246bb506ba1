"""A single policy as a file of its own, for controllers that run no Python: safetensors, or ONNX."""

from __future__ import annotations

import importlib
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from surefoot.cmdp.external_policy import ExternalPolicy
from surefoot.cmdp.policy import Policy
from surefoot.control.mlp_policy import CategoricalPolicy, MLPPolicy
from surefoot.errors import InvalidInput
from surefoot.files import write_file
from surefoot.tabular.policy import TabularPolicy, TimedPolicy

OPSET, IR_VERSION = 13, 8  # of 2020 and 2021: read by every runtime in use


def write_policy(policy: Policy, path: str | PathLike[str]) -> None:
    """Write `policy` to `path`, in the form that its suffix names: .safetensors or .onnx."""
    target = Path(path)
    if isinstance(policy, ExternalPolicy):
        raise InvalidInput(
            f"policy {policy.name!r} is a controller of its owner's, which the set holds no data of, only the name: it "
            "cannot be written to a file"
        )
    match target.suffix:
        case ".safetensors":
            arrays = {name: np.ascontiguousarray(array) for name, array in policy.to_arrays().items()}
            content = safetensors.numpy.save(arrays, metadata={"kind": policy.kind})
        case ".onnx":
            content = onnx_model(policy)
        case other:
            raise InvalidInput(f"out must end in .safetensors or .onnx, got {other!r}")
    write_file(target, content)


def onnx_model(policy: Policy) -> bytes:
    """The policy as a graph of float64 operations. Needs the extra `onnx`.

    Tabular: states [n] int64 -> probabilities [n, A]; timed: states and steps [n] int64 -> the same. MLP: observations
    [n, d] -> mean [n, k] and log_std [k]. Categorical MLP: observations [n, d] -> logits [n, k].
    """
    try:
        onnx: Any = importlib.import_module("onnx")
    except ImportError:
        raise InvalidInput("onnx must be installed to write ONNX files: pip install 'surefoot[onnx]'") from None
    match policy:
        case TabularPolicy():
            graph = _table_graph(policy, onnx)
        case TimedPolicy():
            graph = _timed_graph(policy, onnx)
        case MLPPolicy() | CategoricalPolicy():
            graph = _network_graph(policy, onnx)
        case _:
            raise InvalidInput(
                f"policy must be tabular, timed or an MLP to be written as ONNX, got kind {policy.kind!r}"
            )
    opset = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(graph, producer_name="surefoot", opset_imports=opset)
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content


def _table_graph(policy: TabularPolicy, onnx: Any) -> Any:
    """One Gather of the table."""
    helper, kinds = onnx.helper, onnx.TensorProto
    return helper.make_graph(
        [helper.make_node("Gather", ["table", "states"], ["probabilities"], axis=0)],
        "policy",
        [helper.make_tensor_value_info("states", kinds.INT64, ["n"])],
        [helper.make_tensor_value_info("probabilities", kinds.DOUBLE, ["n", policy.probabilities.shape[1]])],
        [_constant("table", policy.probabilities, onnx)],
    )


def _timed_graph(policy: TimedPolicy, onnx: Any) -> Any:
    """One Gather of all tables, one behind the other: row min(step, H-1)·S + state."""
    node, kinds, value = onnx.helper.make_node, onnx.TensorProto, onnx.helper.make_tensor_value_info
    steps, states, actions = policy.probabilities.shape
    nodes = [
        node("Min", ["steps", "last"], ["table"]),
        node("Mul", ["table", "states_per_table"], ["first"]),
        node("Add", ["first", "states"], ["row"]),
        node("Gather", ["tables", "row"], ["probabilities"], axis=0),
    ]
    numbers = {"last": steps - 1, "states_per_table": states}
    return onnx.helper.make_graph(
        nodes,
        "policy",
        [value(name, kinds.INT64, ["n"]) for name in ("states", "steps")],
        [value("probabilities", kinds.DOUBLE, ["n", actions])],
        [
            _constant("tables", policy.probabilities.reshape(-1, actions), onnx),
            *(onnx.numpy_helper.from_array(np.array(number), name) for name, number in numbers.items()),
        ],
    )


def _network_graph(policy: MLPPolicy | CategoricalPolicy, onnx: Any) -> Any:
    """Normalise, clip, then one Gemm per layer with Tanh between them."""
    node, kinds, value = onnx.helper.make_node, onnx.TensorProto, onnx.helper.make_tensor_value_info
    nodes = [
        node("Sub", ["observations", "shift"], ["centred"]),
        node("Div", ["centred", "scale"], ["normalised"]),
        node("Clip", ["normalised", "lowest", "highest"], ["hidden.0"]),
    ]
    last, actions = len(policy.weights) - 1, len(policy.biases[-1])
    for k in range(last):
        nodes.append(node("Gemm", [f"hidden.{k}", f"weights.{k}", f"biases.{k}"], [f"sum.{k}"], transB=1))
        nodes.append(node("Tanh", [f"sum.{k}"], [f"hidden.{k + 1}"]))
    out = "mean" if isinstance(policy, MLPPolicy) else "logits"
    nodes.append(node("Gemm", [f"hidden.{last}", f"weights.{last}", f"biases.{last}"], [out], transB=1))
    told = [value(out, kinds.DOUBLE, ["n", actions])]
    constants = policy.to_arrays()
    clip = constants.pop("clip")
    constants |= {"lowest": -clip, "highest": clip}
    if isinstance(policy, MLPPolicy):
        constants["fixed_log_std"] = constants.pop("log_std")
        nodes.append(node("Identity", ["fixed_log_std"], ["log_std"]))
        told.append(value("log_std", kinds.DOUBLE, [actions]))
    given = [value("observations", kinds.DOUBLE, ["n", len(policy.shift)])]
    return onnx.helper.make_graph(
        nodes, "policy", given, told, [_constant(name, array, onnx) for name, array in constants.items()]
    )


def _constant(name: str, array: Any, onnx: Any) -> Any:
    return onnx.numpy_helper.from_array(np.array(array, dtype=np.float64), name)
