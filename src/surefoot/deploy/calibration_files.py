"""Calibrations as files: JSON, with the seal of a key if there is one. What a file says of its standing is not read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from hmac import compare_digest
from os import PathLike
from pathlib import Path
from typing import Any

from surefoot.bounded_json import Limits, parse_strictly
from surefoot.deploy.chain import calibration_seal, canonical, check_key
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.files import read_file, write_file
from surefoot.learning.calibrated import Calibration, parse_calibration

LIMITS = Limits(size=2**22, values=2**19, depth=4)
OWN = ("standing", "seal")  # of the file, not of what was counted


def write_calibration(path: str | PathLike[str], found: Calibration, key: bytes | None = None) -> dict[str, Any]:
    """Writes a calibration, sealed if there is a key, and returns what is in the file."""
    if key is not None and found.standing == "claimed":
        raise InvalidInput("calibration must be counted, sealed or recounted to be sealed, got one that is claimed")
    content: dict[str, Any] = json.loads(
        json.dumps({name: value for name, value in found.plain().items() if name not in OWN})
    )
    if key is not None:
        content["seal"] = _seal(key, content)
    write_file(Path(path), json.dumps(content, indent=1).encode() + b"\n")
    return content


def read_calibration(path: str | PathLike[str], key: bytes | None = None) -> Calibration:
    """What `write_calibration` wrote: "sealed" if it has the seal of this key, "claimed" otherwise."""
    try:
        content = parse_strictly(read_file(Path(path), LIMITS.size), LIMITS)
    except ValueError as error:
        raise ArtifactError(f"calibration: {path} is not JSON: {error}") from None
    if not isinstance(content, Mapping):
        raise ArtifactError(f"calibration: {path} must hold an object, as calibrate writes it, got {content!r:.80}")
    found = parse_calibration({name: value for name, value in content.items() if name not in OWN})
    if key is None or "seal" not in content:
        return found
    if not compare_digest(_seal(key, content).encode(), str(content["seal"]).encode()):
        raise ArtifactError(
            f"calibration: {path} has not the seal of this key: it was changed, or sealed with another key"
        )
    return replace(found, standing="sealed")


def _seal(key: bytes, content: Mapping[str, Any]) -> str:
    check_key(key)
    return calibration_seal(key, canonical({name: value for name, value in content.items() if name not in OWN})).hex()
