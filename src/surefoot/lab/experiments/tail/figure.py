"""What episodes cost with a budget on the mean and with one on the tail: two distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from surefoot.report.figures import STYLE
from surefoot.report.palette import COLOURS
from surefoot.report.verdict import percent

NAMES = {"mean": "budget on the mean", "tail": "budget on the tail"}
RARE = 1e-5  # probability below which nothing is drawn


def cost_laws(rows: Sequence[Mapping[str, Any]], level: float) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.6, 3.8), layout="constrained")
        axes = figure.subplots()
        for k, (budget, name) in enumerate(NAMES.items()):
            own = [row for row in rows if row["budget"] == budget]
            law, worst = np.mean([row["law"] for row in own], axis=0), float(np.mean([row["cvar"] for row in own]))
            drawn = np.flatnonzero(law > RARE)
            axes.bar(drawn + (k - 0.5) * 0.4, law[drawn], width=0.4, color=COLOURS[k], label=name)
            axes.axvline(worst, color=COLOURS[k], linestyle="--", linewidth=1.3)
            left = worst < max(row["cvar"] for row in rows) - 0.2 and budget == "tail"  # away from the other line
            axes.annotate(
                f"worst {percent(1 - level)}: {worst:.2f}",
                (worst, 0.93),
                xycoords=("data", "axes fraction"),
                xytext=(-5 if left else 5, 0),
                textcoords="offset points",
                ha="right" if left else "left",
                color=COLOURS[k],
                fontsize=9,
            )
        axes.set_yscale("log")
        axes.set_ylim(RARE, 1.0)
        axes.set_xlabel("cost of an episode: steps in red cells")
        axes.set_ylabel("probability")
        axes.legend(loc="upper right")
    return figure
