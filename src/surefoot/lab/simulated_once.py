"""For simulators that take seconds: few different tasks, each simulated once and kept for other processes and runs."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np

from surefoot.arrays import Floats, check_int
from surefoot.errors import InvalidInput
from surefoot.files import write_file
from surefoot.tasks.distribution import Finite, ParameterDistribution, Uniform

MOST_GRID = 100


def uniform_or_grid(low: tuple[float, float], high: tuple[float, float], grid: int) -> ParameterDistribution:
    """Two numbers, each uniform between its ends; or one of `grid` evenly spaced ones, each pair equally likely."""
    if grid == 1 or check_int("grid", grid, least=0) > MOST_GRID:
        raise InvalidInput(f"grid must be 0, or lie within 2 and {MOST_GRID}, got {grid}")
    lines = np.linspace(low, high, grid).T
    return Finite(np.stack(np.meshgrid(*lines), axis=-1).reshape(-1, 2)) if grid else Uniform(low, high)


def keep_arrays(keep: str, digest: Callable[[], str], simulate: Callable[[], dict[str, Floats]]) -> dict[str, Floats]:
    """What is simulated, or was before and is in the folder `keep` by its digest; "" for no folder."""
    if not keep:
        return simulate()
    place = Path(keep) / f"{digest()[:24]}.npz"
    if not place.exists():
        content = BytesIO()
        np.savez_compressed(content, **simulate())  # type: ignore[arg-type]  # numpy's stub has one of its own options
        write_file(place, content.getvalue(), argument="keep")
    with np.load(place, allow_pickle=False) as found:
        return dict(found)
