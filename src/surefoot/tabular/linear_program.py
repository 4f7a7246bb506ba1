"""Linear programs by HiGHS: maximise objective·x subject to bounds on the columns, x, and on the rows, matrix·x.

`maximise` solves one program; whoever solves many similar ones keeps a solver and passes it one after another.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import highspy
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from surefoot.arrays import Floats
from surefoot.errors import SurefootError

INFINITY: float = highspy.kHighsInf

Optimum: TypeAlias = tuple[Floats, Floats]  # values of the columns, multipliers of the rows


def maximise(
    objective: Floats,
    matrix: Floats | sp.csc_array,
    row_lower: Floats,
    row_upper: Floats,
    *,
    column_lower: ArrayLike = 0.0,
    column_upper: ArrayLike = INFINITY,
    **options: Any,
) -> Optimum | None:
    """The optimum of one program by a solver with the given options; None if HiGHS finds none."""
    highs, columns = new_solver(**options), len(objective)
    lower, upper = (np.full(columns, ends, dtype=np.float64) for ends in (column_lower, column_upper))
    pass_program(highs, objective, lower, row_lower, row_upper, *_by_column(matrix), column_upper=upper)
    return run(highs)


def _by_column(matrix: Floats | sp.csc_array) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
    """First entry of each column, row and value of all entries."""
    if isinstance(matrix, sp.csc_array):
        return matrix.indptr[:-1].astype(np.int32), matrix.indices.astype(np.int32), matrix.data
    rows, columns = matrix.shape
    starts = np.arange(columns, dtype=np.int32) * np.int32(rows)
    return starts, np.tile(np.arange(rows, dtype=np.int32), columns), matrix.T.ravel()


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
    column_upper: Floats | None = None,
) -> None:
    """Hand over a program whose matrix is given column by column: first entry of each, row and value of all entries."""
    columns = len(objective)
    upper = np.full(columns, INFINITY) if column_upper is None else column_upper
    status = highs.passModel(
        *(columns, len(row_lower), len(entries)),
        *(int(highspy.MatrixFormat.kColwise), int(highspy.ObjSense.kMaximize), 0.0, objective),
        *(column_lower, upper, row_lower, row_upper),
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
