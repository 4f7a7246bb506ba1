"""What happened on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """Something a reader of the record should know: a decision, an elimination, an alarm.

    Attributes:
        episode: number of episodes told before it happened.
        kind: "eliminated", "weight", "exhausted", "alarm", ...
        message: one sentence.
        data: the numbers behind it, plain JSON values.
    """

    episode: int
    kind: str
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)
