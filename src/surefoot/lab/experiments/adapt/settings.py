"""What `surefoot adapt` runs, as plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """One method on the task of one parameter."""

    task: tuple[float, ...]
    method: str = "certified"
    episodes: int = 40_000
    risk: float = 0.05
    seed: int = 0
