"""Records made by hand, from a number per episode."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from surefoot.cmdp.policy import EpisodeMixture
from surefoot.simulate.run import Run, Spans


def made_run(
    method: str,
    certified: bool,
    reward: ArrayLike,
    margin: ArrayLike,
    weight: ArrayLike = 0.0,
    *,
    optimum: float = 0.0,
    error: ArrayLike | None = None,
) -> Run:
    """One span per episode, K or the same number in all of them; `error` [K, 2] is that of reward and margin."""
    errors = (0.0, 0.0) if error is None else np.asarray(error, dtype=float).T
    rows = np.column_stack(np.broadcast_arrays(reward, margin, *errors, weight)).astype(float)
    output = EpisodeMixture(("safe",), np.array([1.0]))  # type: ignore[arg-type]
    spans = Spans(np.arange(len(rows)), rows, len(rows))
    return Run(method, certified, spans, optimum, output, exact=error is None)
