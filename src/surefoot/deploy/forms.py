"""What a reader without the policy set relies on in a row: anything may be in a file, and is checked before use.

The checks are a table of functions rather than pydantic models, which were measured: 100,000 orders or outcomes took
0.11 to 0.12 s of processor time instead of 0.05, and importing pydantic another 0.16 s, a third of what reading a
journal for its status imports.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from surefoot.deploy.chain import Damaged, JournalRow, check_schema, reader

FORMAT = "surefoot-journal"
# Since 1.1 row 0 names the key, if there is one, and a method may tell more of how it splits the risk.
FIRST_VERSION, FORMAT_VERSION = [1, 0], [1, 1]
# That the safe policy is feasible was taken for granted then; since, it is paid for or said in so many words.
ASSUMED, ASSUMING = "assume_safe", ("safe-only", "paper", "certified-model-free")
# What row 0 and the settings in it cannot have held then: who puts the old label on a new journal hides nothing.
LATER = frozenset({"key", "names", "task_horizon", "reward_sum_range", "cost_sum_range"})
LATER_SETTINGS = frozenset({ASSUMED, "shift", "calibration", "split", "by_prior", "declared"})

Check = Callable[[Any], bool]


def opening(row: JournalRow, path: Path | str | None = None) -> Mapping[str, Any]:
    """The payload of row 0."""
    if row.kind != "open":
        raise Damaged("row 0 must open a journal", 0, path)
    return check_payload(row)


def check_opening(row: JournalRow, path: Path) -> Mapping[str, Any]:
    """The payload of row 0, which names a key exactly if the journal at `path` has a table of seals; whether these are
    right, only the key can tell."""
    opened = opening(row, path)
    with closing(reader(path)) as connection:
        sealed = check_schema(connection, path)
    if sealed != (opened.get("key") is not None):
        found = "there is a table of seals" if sealed else "there is no table of seals"
        raise Damaged(f"row 0 names {'no key' if sealed else 'a key'}, but {found}", 0, path)
    return opened


def check_payload(row: JournalRow) -> dict[str, Any]:
    """The payload of a row, if it has what is shown of its kind."""
    data, form = row.data, FORMS.get(row.kind)
    if form is None:
        raise Damaged(f"row {row.n} must be of a kind in {', '.join(FORMS)}, found {row.kind!r}"[:200], row.n)
    if not isinstance(data, dict):
        raise Damaged(f"row {row.n} must hold an object, found {type(data).__name__}", row.n)
    for name, holds in form.items():
        if not holds(data.get(name)):
            raise Damaged(f"row {row.n} ({row.kind}) has no proper {name!r}, found {data.get(name)!r}"[:200], row.n)
    if row.kind == "open" and data["format_version"] == FIRST_VERSION:
        later = sorted(LATER & data.keys()) + sorted(LATER_SETTINGS & data["settings"].keys())
        if later:
            raise Damaged(f"row {row.n} must not have {later[0]!r}, which format 1.0 did not know", row.n)
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


def _nothing(value: Any) -> bool:
    return value is None


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _version(value: Any) -> bool:
    return isinstance(value, list) and _counts(value) and value in (FIRST_VERSION, FORMAT_VERSION)


def _key_name(value: Any) -> bool:
    return _text(value) and re.fullmatch("[0-9a-f]{16}", value) is not None


def _settings(value: Any) -> bool:
    return isinstance(value, dict) and all(holds(value.get(name)) for name, holds in SETTINGS.items())


def _calibration(value: Any) -> bool:
    return isinstance(value, dict) and all(holds(value.get(name)) for name, holds in CALIBRATION.items())


def _setting(value: Any) -> bool:
    return isinstance(value, dict) and all(_number(each) for each in value.values())


CALIBRATION: dict[str, Check] = {
    "level": lambda value: _setting(value) or (_number(value) and 0 < value < 1),
    "episodes": _count,
    "runs": _count,
    "attempt": _maybe(_count),
    "judged_on": _maybe(_count),
    "abandoned": _maybe(_number),
    "reserve": _maybe(_number),
    "seed": _maybe(_count),
    "tasks": _maybe(_text),
    "standing": _maybe(_text),
}
SETTINGS: dict[str, Check] = {
    "method": _maybe(_text),
    "risk": _maybe(_number),
    "shift": _maybe(_number),
    "assume_safe": _maybe(_truth),
    "calibration": _maybe(_calibration),
}
FORMS: dict[str, dict[str, Check]] = {
    "open": {
        "format": lambda value: value == FORMAT,
        "format_version": _version,
        "method": _text,
        "certified": _truth,
        "policies": _maybe(_text),
        "settings": _settings,
        "discount": lambda value: _number(value) and 0 < value <= 1,
        "budget": _numbers,
        "names": _maybe(lambda value: isinstance(value, list) and all(map(_text, value))),
        "task_horizon": _maybe(lambda value: _count(value) and value > 0),
        "key": _maybe(_key_name),
    },
    "history": {"episode": _count, "breach": _nothing},
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
    "outcome": {"episode": _count, "breach": _maybe(lambda value: value is True)},
    "abandoned": {"episode": _count, "reason": _text},
}
