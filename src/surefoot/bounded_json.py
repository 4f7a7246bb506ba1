"""JSON from outside, and plain data on its way there. How long JSON is, how many values it holds and how deep they are
nested is checked before parsing: a parser takes up to fifty times the memory of what it reads, and recursion ends in a
traceback.
"""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from surefoot.errors import InvalidInput

# Plain data that is nested deeper than this is a mistake, and a burden to every reader of the file.
MAX_DEPTH = 32

# Possessive, so that a match keeps no way back: a plain repetition would take more memory than the text.
STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
ALIKE = bytes.maketrans(b"{}", b"[]")


@dataclass(frozen=True)
class Limits:
    """Attributes:
    size: bytes.
    values: commas and opening brackets.
    depth: lists and objects inside one another.
    """

    size: int
    values: int
    depth: int


def parse(content: bytes, limits: Limits) -> Any:
    """The value in `content`, UTF-8, for lines that are read in a hurry: numbers such as 1e999 come out infinite.

    Raises:
        ValueError: says what is wrong with `content`, here and in `parse_strictly`.
    """
    check(content, limits)
    return _plainly.decode(content.decode("utf-8"))


def parse_strictly(content: bytes, limits: Limits) -> Any:
    """The value in `content`, whose numbers are finite, whose keys are unique and whose text is whole characters."""
    check(content, limits)
    value = _strictly.decode(content.decode("utf-8"))
    json.dumps(value, ensure_ascii=False).encode("utf-8")  # refuses escaped halves of surrogate pairs
    return value


def plain(name: str, value: Any, depth: int = 0) -> Any:
    """A deep copy of `value` that JSON holds without loss, or an error that names the place that it cannot hold."""
    import numpy as np  # here: who only reads a journal does without

    if depth > MAX_DEPTH:
        raise InvalidInput(f"{name} must be nested at most {MAX_DEPTH} levels deep")
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise InvalidInput(f"{name} must have strings as keys, got {key!r}")
            plain(f"a key of {name}", key)
        return {str(key): plain(f"{name}.{key}", item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(f"{name}[{k}]", item, depth + 1) for k, item in enumerate(value)]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value):
        return str(value)
    raise InvalidInput(
        f"{name} must be plain JSON data (mapping, list, text, finite number, 64-bit integer, bool or None), "
        f"got {ascii(value)[:60]} of type {type(value).__name__}"
    )


def check(content: bytes, limits: Limits) -> None:
    if len(content) > limits.size:
        raise ValueError(f"must have at most {limits.size} bytes")
    opened = content.count(b"[") + content.count(b"{")
    if opened + content.count(b",") > limits.values:
        raise ValueError(f"must hold at most {limits.values} values")
    if opened > limits.depth:
        brackets = STRINGS.sub(b"", content).translate(ALIKE, NO_BRACKETS)
        for _ in range(limits.depth):
            brackets = brackets.replace(b"[]", b"")  # the innermost ones
        if b"[]" in brackets or brackets.count(b"[") > limits.depth:
            raise ValueError(f"must be nested at most {limits.depth} levels deep")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is not finite")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {reprlib.repr(twice)} more than once")
    return document


# Made once: to make one takes longer than to parse a short line.
_plainly = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique)
_strictly = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique)
