"""A learner's state as bytes and back: plain data, never code. Only classes that its method lists are ever made."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from surefoot.learning.event import Event
from surefoot.learning.learner import Learner, LearnerState
from surefoot.learning.method import Mixture

# What every learner's state holds; the rest is named by its method (`MethodSpec.state`).
COMMON = (LearnerState, Mixture, Event)
Classes: TypeAlias = Mapping[str, type]

# What arrays may be made of; objects would be code.
KINDS = "biuf"


class NotPlain(Exception):
    """Something has no place in a snapshot, or a snapshot is not one."""


def classes(learner: Learner) -> Classes:
    """By name, all that the state of this learner may be made of."""
    return {each.__name__: each for each in (*learner.state_classes, *COMMON)}


def encode(value: Any, known: Classes) -> bytes:
    return json.dumps(_to_json(value, known), separators=(",", ":")).encode()


def decode(content: bytes, known: Classes) -> Any:
    try:
        return _from_json(json.loads(content), known)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise NotPlain(f"not a snapshot: {error}") from None


def _to_json(value: Any, known: Classes) -> Any:
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
    inner = partial(_to_json, known=known)
    if isinstance(value, tuple | list):
        return ["tuple" if isinstance(value, tuple) else "list", *map(inner, value)]
    if isinstance(value, Mapping):
        return ["dict", *([inner(key), inner(item)] for key, item in value.items())]
    if is_dataclass(value) and known.get(type(value).__name__) is type(value):
        return ["class", type(value).__name__, *(inner(getattr(value, field.name)) for field in fields(value))]
    raise NotPlain(f"a {type(value).__name__}")


def _from_json(value: Any, known: Classes) -> Any:
    if not isinstance(value, list):
        return value
    inner = partial(_from_json, known=known)
    match value:
        case ["float", str(text)]:
            return float.fromhex(text)
        case ["array" | "scalar" as what, str(dtype), list(shape), str(data)]:
            return _array(what, np.dtype(dtype), shape, base64.b64decode(data, validate=True))
        case ["tuple", *items]:
            return tuple(map(inner, items))
        case ["list", *items]:
            return list(map(inner, items))
        case ["dict", *pairs]:
            return {inner(key): inner(item) for key, item in pairs}
        case ["class", str(name), *values]:
            return known[name](*map(inner, values))
        case _:
            raise NotPlain(f"unknown form {str(value)[:40]}")


def _array(what: str, dtype: np.dtype[Any], shape: list[int], data: bytes) -> Any:
    if dtype.kind not in KINDS:
        raise NotPlain(f"an array of {dtype}")
    array = np.frombuffer(data, dtype=dtype).reshape(shape)  # read-only
    return array if what == "array" else array[()]
