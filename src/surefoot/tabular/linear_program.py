"""Linear programs by HiGHS: maximise objective·x subject to bounds on the columns, x, and on the rows, matrix·x.

`maximise` solves one program; to solve many similar ones keep a solver and pass it one after another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import highspy
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from surefoot.arrays import Floats
from surefoot.errors import SurefootError

INFINITY: float = highspy.kHighsInf

Optimum: TypeAlias = tuple[Floats, Floats]  # values of the columns, multipliers of the rows


@dataclass(frozen=True, eq=False)
class Program:
    """maximise objective·x over column_lower ≤ x ≤ column_upper with row_lower ≤ matrix·x ≤ row_upper."""

    objective: Floats  # [columns]
    column_lower: Floats  # [columns]
    column_upper: Floats  # [columns]
    row_lower: Floats  # [rows]
    row_upper: Floats  # [rows]
    starts: NDArray[np.int32]  # [columns] first entry of each column of the matrix
    rows: NDArray[np.int32]  # [entries] row of each entry
    entries: Floats  # [entries]


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
    highs = new_solver(**options)
    pass_program(highs, program_of(objective, matrix, row_lower, row_upper, column_lower, column_upper))
    return run(highs)


def program_of(
    objective: Floats,
    matrix: Floats | sp.csc_array,
    row_lower: Floats,
    row_upper: Floats,
    column_lower: ArrayLike = 0.0,
    column_upper: ArrayLike = INFINITY,
) -> Program:
    """The program with a matrix [rows, columns], dense or sparse, and bounds that may be one for all columns."""
    lower, upper = (np.full(len(objective), ends, dtype=np.float64) for ends in (column_lower, column_upper))
    return Program(objective, lower, upper, row_lower, row_upper, *_by_column(matrix))


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


def pass_program(highs: Any, program: Program) -> None:
    columns, rows = len(program.objective), len(program.row_lower)
    status = highs.passModel(
        *(columns, rows, len(program.entries)),
        *(int(highspy.MatrixFormat.kColwise), int(highspy.ObjSense.kMaximize), 0.0, program.objective),
        *(program.column_lower, program.column_upper, program.row_lower, program.row_upper),
        *(program.starts, program.rows, program.entries, np.zeros(columns, dtype=np.int32)),
    )
    if status == highspy.HighsStatus.kError:
        raise SurefootError(f"HiGHS refused a linear program of {columns} columns and {rows} rows")


def run(highs: Any) -> Optimum | None:
    """Run the solver; None if it finds no optimum."""
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    solution = highs.getSolution()
    return np.array(solution.col_value), np.array(solution.row_dual)
