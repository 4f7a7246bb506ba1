"""What must not change between versions, as JSON files beside this one; `python tests/goldens/record.py` writes them.

`record.py NAME/CASE ...` writes only these cases, or files, and `record.py --exact FILE` writes them to one file
instead: two versions of the code compute the same on one machine if they leave the same file.

Numbers may differ in their last bits between machines (BLAS and libm choose instructions by processor). So every file
names the machine that it was recorded on. There, everything is compared bit for bit. Elsewhere floats are compared to
nine digits, and digests of what was computed in floating point (`Bits`, those of arrays) not at all. What depends on
decisions that a last bit may turn (`CHAOTIC`) is not compared there: record it before a change, and compare after it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded

import numpy as np
import pytest
import scipy

HERE = Path(__file__).parent
NAMES = ("tasks", "trainings", "files", "methods", "journals", "commands", "experiments")
CHAOTIC = ("trainings", "methods", "journals", "experiments")
LONGEST_LIST = 24  # of numbers; longer ones are stored as their digest and a few sums
TOLERANCE = 1e-9
BITS = "bits:"

Cases: TypeAlias = Mapping[str, Callable[[], Any]]


class Bits(str):
    """A digest of something computed in floating point."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Record what must not change between versions.")
    parser.add_argument("names", nargs="*", help=f"FILE or FILE/CASE, of files {', '.join(NAMES)}; all by default")
    parser.add_argument("--exact", metavar="FILE", type=Path, help="write to FILE instead")
    given = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    for name, _, case in (name.partition("/") for name in given.names or NAMES):
        found.setdefault(name, {}).update(recorded(name, case))
    if given.exact:
        given.exact.write_text(as_json(found), encoding="utf-8")
        return
    for name, cases in found.items():
        stored = json.loads(path(name).read_text(encoding="utf-8")) if path(name).exists() else {}
        known = stored["cases"] if stored.get("machine") == machine() else {}
        merged = {case: {**known, **cases}[case] for case in cases_of(name) if case in known or case in cases}
        path(name).write_text(as_json({"machine": machine(), "cases": merged}), encoding="utf-8")


def recorded(name: str, only: str = "") -> dict[str, Any]:
    """The cases of a file by name, long ones included."""
    cases = cases_of(name)
    if only and only not in cases:
        raise SystemExit(f"{name} has no case {only!r}, but {', '.join(cases)}")
    return {case: plain(made()) for case, made in cases.items() if only in ("", case)}


def cases_of(name: str) -> Cases:
    cases: Cases = import_module(f"test_goldens_{name}").CASES
    return cases


def check(name: str, case: str, made: Callable[[], Any]) -> None:
    """Fail with the first difference between a case as it was recorded and as it is now."""
    stored = json.loads(path(name).read_text(encoding="utf-8"))
    exact = stored["machine"] == machine()
    if not exact and name in CHAOTIC:
        pytest.skip(f"was recorded on {stored['machine']}, this is {machine()}")
    first = next(differences(stored["cases"][case], plain(made()), exact), None)
    if first is not None:
        raise AssertionError(f"{name}, {case}{first} ({'bit for bit' if exact else 'to nine digits'})")


def differences(stored: Any, found: Any, exact: bool, where: str = "") -> Iterator[str]:
    """Where two plain values differ, and how."""
    if isinstance(stored, dict) and isinstance(found, dict):
        for key in [*stored, *(key for key in found if key not in stored)]:
            if key not in stored or key not in found:
                yield f"{where}.{key}: {'new' if key in found else 'missing'}"
            else:
                yield from differences(stored[key], found[key], exact, f"{where}.{key}")
    elif isinstance(stored, list) and isinstance(found, list) and len(stored) == len(found):
        for index, (before, now) in enumerate(zip(stored, found, strict=True)):
            yield from differences(before, now, exact, f"{where}[{index}]")
    elif not alike(stored, found, exact):
        yield f"{where}: was {stored!r}, is {found!r}"


def alike(stored: Any, found: Any, exact: bool) -> bool:
    if type(stored) is not type(found):
        return False
    if exact:
        return bool(stored == found)
    if isinstance(stored, float):
        return math.isclose(stored, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    both_bits = isinstance(stored, str) and stored.startswith(BITS) and found.startswith(BITS)
    return both_bits or bool(stored == found)


def plain(value: Any) -> Any:
    """A value as JSON keeps it; arrays and long lists of numbers as digest, shape, ends and sums."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return array_facts(value) if value.size > LONGEST_LIST else plain(value.tolist())
    if isinstance(value, list | tuple):
        numbers = len(value) > LONGEST_LIST and all(type(each) in (int, float) for each in value)
        return array_facts(np.array(value)) if numbers else [plain(each) for each in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return f"{BITS}{value}" if isinstance(value, Bits) else value


def array_facts(values: np.ndarray) -> dict[str, Any]:
    flat = np.ascontiguousarray(values).ravel()
    facts = {"shape": list(values.shape), "dtype": str(values.dtype), "digest": Bits(digest(flat.tobytes()))}
    if values.dtype.kind in "biuf":
        sums = {"sum": math.fsum(flat), "weighed": math.fsum(flat * np.linspace(0, 1, flat.size))}
        facts |= {"first": flat[0].item(), "last": flat[-1].item(), **sums}
    return {key: plain(each) for key, each in facts.items()}


def digest(content: bytes | str) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def machine() -> str:
    """What the last bits of a number may depend on."""
    try:
        models = re.findall(r"model name\s*:\s*(.+)|CPU part\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        processor = " ".join(models[0]).strip() if models else ""
    except OSError:
        processor = ""
    python = ".".join(platform.python_version_tuple()[:2])
    return f"{platform.machine()} {processor}, Python {python}, NumPy {np.__version__}, SciPy {scipy.__version__}"


def as_json(found: Any) -> str:
    return json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def path(name: str) -> Path:
    return HERE / f"{name}.json"


if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    import_module("record").main()  # by the name that the tests know it by: `Bits` is one class
