"""Seals: HMAC-SHA256 with a key that is kept outside the journal. Who does not hold it cannot write what it covers.

The seal of the head covers the number of rows and the last hash, hence every row. There is one at a time, written with
the rows in one transaction, so that cutting rows off leaves none that fits.
"""

from __future__ import annotations

import hmac
from typing import Any

from surefoot.errors import InvalidInput

SHORTEST, LONGEST = 16, 4096  # bytes of a key


def checked_key(key: Any) -> bytes | None:
    if key is None:
        return None
    if not isinstance(key, bytes) or not SHORTEST <= len(key) <= LONGEST:
        found = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise InvalidInput(f"key must be {SHORTEST} to {LONGEST} random bytes, got {found}")
    return key


def key_name(key: bytes | None) -> str | None:
    """Tells keys apart in row 0, and gives nothing of the key away."""
    return None if key is None else _sealed(key, b"name").hex()[:16]


def head_seal(key: bytes, count: int, digest: bytes) -> bytes:
    return _sealed(key, b"head %d " % count + digest)


def snapshot_seal(key: bytes, row: int, digest: bytes, state: bytes) -> bytes:
    return _sealed(key, b"snapshot %d " % row + digest + state)


def calibration_seal(key: bytes, content: bytes) -> bytes:
    return _sealed(key, b"calibration " + content)


def same(one: bytes, other: Any) -> bool:
    return isinstance(other, bytes) and hmac.compare_digest(one, other)


def _sealed(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, b"surefoot " + message, "sha256")
