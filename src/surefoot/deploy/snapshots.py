"""A learner's state as bytes and back: plain data, never code. Only the classes listed here are ever made."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from surefoot.baselines.dope import Compact, PlanningState
from surefoot.baselines.log_barrier import Climb
from surefoot.baselines.safe_meta import Adaptations, VisitSums
from surefoot.baselines.softmax import GradientSums
from surefoot.confidence import State
from surefoot.learning.certified.evidence.ball import BallState
from surefoot.learning.certified.evidence.counts import Counts
from surefoot.learning.certified.evidence.returns import ReturnState
from surefoot.learning.certified.method import CertifiedState
from surefoot.learning.certified.model_free import ModelFreeState
from surefoot.learning.certified.replanning import Planned
from surefoot.learning.event import Event
from surefoot.learning.learner import LearnerState
from surefoot.learning.method import Deployed
from surefoot.learning.paper.algorithm_2 import Phase
from surefoot.tabular.policy import TabularPolicy

CLASSES: dict[str, type] = {
    each.__name__: each
    for each in (
        LearnerState,
        Deployed,
        Event,
        Phase,
        CertifiedState,
        Counts,
        BallState,
        ReturnState,
        ModelFreeState,
        State,
        Planned,
        TabularPolicy,
        PlanningState,
        Compact,
        Climb,
        GradientSums,
        Adaptations,
        VisitSums,
    )
}
# What arrays may be made of; objects would be code.
KINDS = "biuf"


class NotPlain(Exception):
    """Something has no place in a snapshot, or a snapshot is not one."""


def encode(value: Any) -> bytes:
    return json.dumps(_encoded(value), separators=(",", ":")).encode()


def decode(content: bytes) -> Any:
    try:
        return _decoded(json.loads(content))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise NotPlain(f"not a snapshot: {error}") from None


def _encoded(value: Any) -> Any:
    """JSON in which everything but None, bool, int and str is a list that begins with what it is."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if type(value) is float:
        return ["float", value.hex()]
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in KINDS:
            raise NotPlain(f"an array of {value.dtype}")
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode("ascii")
        what = "array" if isinstance(value, np.ndarray) else "scalar"
        return [what, value.dtype.str, list(value.shape), data]
    if isinstance(value, tuple | list):
        return ["tuple" if isinstance(value, tuple) else "list", *map(_encoded, value)]
    if isinstance(value, Mapping):
        return ["dict", *([_encoded(key), _encoded(item)] for key, item in value.items())]
    if is_dataclass(value) and CLASSES.get(type(value).__name__) is type(value):
        return ["class", type(value).__name__, *(_encoded(getattr(value, field.name)) for field in fields(value))]
    raise NotPlain(f"a {type(value).__name__}")


def _decoded(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    match value:
        case ["float", str(text)]:
            return float.fromhex(text)
        case ["array" | "scalar" as what, str(dtype), list(shape), str(data)]:
            return _array(what, np.dtype(dtype), shape, base64.b64decode(data, validate=True))
        case ["tuple", *items]:
            return tuple(map(_decoded, items))
        case ["list", *items]:
            return list(map(_decoded, items))
        case ["dict", *pairs]:
            return {_decoded(key): _decoded(item) for key, item in pairs}
        case ["class", str(name), *values]:
            return CLASSES[name](*map(_decoded, values))
        case _:
            raise NotPlain(f"unknown form {str(value)[:40]}")


def _array(what: str, dtype: np.dtype[Any], shape: list[int], data: bytes) -> Any:
    if dtype.kind not in KINDS:
        raise NotPlain(f"an array of {dtype}")
    array = np.frombuffer(data, dtype=dtype).reshape(shape)  # read-only
    return array if what == "array" else array[()]
