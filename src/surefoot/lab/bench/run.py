"""`surefoot bench`: speed against the plain way of doing the same, both sides in one run and found to agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from surefoot.lab.bench import rows
from surefoot.lab.bench.calibrating import calibrating
from surefoot.lab.bench.deployment import deployment
from surefoot.lab.bench.planning import planning
from surefoot.lab.bench.rows import BenchRow, Sizes
from surefoot.lab.bench.simulators import pump, robots
from surefoot.lab.bench.tabular import boxes, covers, episodes, large_task, linear_programs

Progress: TypeAlias = Callable[[str, int, int], None]  # (what, done, in all)


def run(quick: bool, progress: Progress, sizes: Sizes | None = None) -> list[BenchRow]:
    """Every comparison, in the order of the table; `sizes` overrides what `quick` chooses."""
    chosen = sizes or (rows.QUICK if quick else rows.FULL)
    stages: dict[str, Callable[[Sizes], list[BenchRow]]] = {
        "linear programs": linear_programs,
        "bounds over boxes": boxes,
        "episodes": episodes,
        "days of an insulin pump": pump,
        "robots": robots,
        "greedy cover": covers,
        "one large task": large_task,
        "planning": planning,
        "calibration": calibrating,
        "deployment": deployment,
    }
    table: list[BenchRow] = []
    for done, (what, measure) in enumerate(stages.items()):
        progress(what, done, len(stages))
        table += measure(chosen)
    return table
