"""What a reader without the policy set relies on in a row: anything may be in a file, and is checked before use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from surefoot.deploy.chain import Damaged, Row

Check = Callable[[Any], bool]


def opening(row: Row, where: str) -> Mapping[str, Any]:
    """The payload of row 0."""
    if row.kind != "open":
        raise Damaged(f"{where}: row 0 must open a journal", 0)
    return checked(row)


def checked(row: Row) -> dict[str, Any]:
    """The payload of a row, if it has what is shown of its kind."""
    data, form = row.data, FORMS.get(row.kind)
    if form is None:
        raise Damaged(f"row {row.n} must be of a kind in {', '.join(FORMS)}, found {row.kind!r}"[:200], row.n)
    if not isinstance(data, dict):
        raise Damaged(f"row {row.n} must hold an object, found {type(data).__name__}", row.n)
    for name, holds in form.items():
        if not holds(data.get(name)):
            raise Damaged(f"row {row.n} ({row.kind}) has no proper {name!r}, found {data.get(name)!r}"[:200], row.n)
    return data


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_number, value))


def _counts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_count, value))


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


FORMS: dict[str, dict[str, Check]] = {
    "open": {
        "method": _text,
        "certified": _truth,
        "policies": _maybe(_text),
        "settings": lambda value: isinstance(value, dict),
        "discount": lambda value: _number(value) and 0 < value <= 1,
        "budget": _numbers,
        "task_horizon": _maybe(lambda value: _count(value) and value > 0),
    },
    "event": {"episode": _count, "kind": _text, "message": _text},
    "decision": {
        "episode": _count,
        "weight": _number,
        "policies": _counts,
        "weights": _numbers,
        "surviving": _count,
        "total": _count,
        "margin": _maybe(_numbers),
        "certified": _truth,
    },
    "order": {"episode": _count, "policy": _count},
    "outcome": {"episode": _count},
    "abandoned": {"episode": _count, "reason": _text},
}
