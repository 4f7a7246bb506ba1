"""Linear programs for HiGHS: maximise objective·x subject to column_lower ≤ x and row_lower ≤ matrix·x ≤ row_upper."""

from __future__ import annotations

from typing import Any, TypeAlias

import highspy
import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats
from surefoot.errors import SurefootError

INFINITY: float = highspy.kHighsInf

Optimum: TypeAlias = tuple[Floats, Floats]  # values of the columns, multipliers of the rows


def new_solver(**options: Any) -> Any:
    """A silent solver with the given options."""
    highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for name, value in {"output_flag": False, **options}.items():
        highs.setOptionValue(name, value)
    return highs


def pass_program(
    highs: Any,
    objective: Floats,
    column_lower: Floats,
    row_lower: Floats,
    row_upper: Floats,
    starts: NDArray[np.int32],
    rows: NDArray[np.int32],
    entries: Floats,
) -> None:
    """Hand over a program whose matrix is given column by column: first entry of each, row and value of all entries."""
    columns = len(objective)
    status = highs.passModel(
        *(columns, len(row_lower), len(entries)),
        *(int(highspy.MatrixFormat.kColwise), int(highspy.ObjSense.kMaximize), 0.0, objective),
        *(column_lower, np.full(columns, INFINITY), row_lower, row_upper),
        *(starts, rows, entries, np.zeros(columns, dtype=np.int32)),
    )
    if status == highspy.HighsStatus.kError:
        raise SurefootError(f"HiGHS refused a linear program of {columns} columns and {len(row_lower)} rows")


def run(highs: Any) -> Optimum | None:
    """Run the solver; None if it finds no optimum."""
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    solution = highs.getSolution()
    return np.array(solution.col_value), np.array(solution.row_dual)
