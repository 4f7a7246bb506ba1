"""Figure 1 of the paper: the gridworld with its optimal policy and state values, one panel per noise level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from surefoot.arrays import Floats
from surefoot.errors import InvalidInput
from surefoot.report.figures import STYLE
from surefoot.tasks.gridworld_tasks import GOAL, HEIGHT, MOVES, RED_CELLS, STATES, WIDTH

SHORTEST, LONGEST = 0.2, 0.5  # arrows of actions taken almost never and surely, in cells
FAINTEST = 0.02  # probabilities below are rounding of the solver, or too rare to draw

RED, GREEN, INK = "#e2564a", "#3fa66a", "#1f2328"
SHADES = LinearSegmentedColormap.from_list("values", ["#ffffff", "#c9def0"])


@dataclass(frozen=True, eq=False)
class Panel:
    """One noise level.

    Attributes:
        policy: [S, A] action probabilities of the optimal policy.
        state_values: [S] its expected discounted reward from every state.
        optimal_value: V*, the same from the start distribution.
    """

    noise: float
    policy: Floats
    state_values: Floats
    optimal_value: float

    def __post_init__(self) -> None:
        for name, array, shape in (
            ("policy", self.policy, (STATES, len(MOVES))),
            ("state_values", self.state_values, (STATES,)),
        ):
            if np.shape(array) != shape:
                raise InvalidInput(f"{name} must have shape {list(shape)}, got {list(np.shape(array))}")


def policies_and_values(panels: Sequence[Panel]) -> Figure:
    """Arrows show the policy (length and opacity by probability), shades and numbers the value of each state."""
    if not panels:
        raise InvalidInput("panels must hold at least one panel, got none")
    values = np.concatenate([panel.state_values for panel in panels])
    shades = Normalize(float(values.min()), float(values.max()))  # one scale, so that panels can be compared
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.1 * len(panels), 4.4), layout="compressed")
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _draw_cells(axes, panel, shades)
            _draw_arrows(axes, panel.policy)
            axes.set_title(f"noise {panel.noise:g}, V* = {panel.optimal_value:.2f}", fontsize=11)
    return figure


def _draw_cells(axes: Axes, panel: Panel, shades: Normalize) -> None:
    for state, value in enumerate(panel.state_values):
        x, y = _place(state)
        colour = RED if state in RED_CELLS else GREEN if state == GOAL else SHADES(shades(value))
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="#b9c0c7", linewidth=0.8))
        axes.text(
            x - 0.45,
            y - 0.45,
            f"{value:.0f}",
            fontsize=6.5,
            color="white" if state in RED_CELLS or state == GOAL else "#6b7680",
            ha="left",
            va="bottom",
        )
    axes.text(*_place(GOAL), "goal", fontsize=9, fontweight="bold", color="white", ha="center", va="center")
    axes.set(xlim=(-0.52, WIDTH - 0.48), ylim=(-0.52, HEIGHT - 0.48), aspect="equal")
    axes.set_axis_off()


def _draw_arrows(axes: Axes, policy: Floats) -> None:
    """All arrows of a panel in one quiver; none at the goal, which is absorbing.

    The arrows of a state share their tail, placed so that the cell's centre is the middle of their mean.
    """
    state, action = np.nonzero(policy >= FAINTEST)
    moving = state != GOAL
    state, action = state[moving], action[moving]
    chance = policy[state, action]
    arrow = np.array(MOVES)[action] * (SHORTEST + (LONGEST - SHORTEST) * chance)[:, None]
    mean = np.zeros((STATES, 2))
    np.add.at(mean, state, chance[:, None] * arrow)
    tail = np.stack([state % WIDTH, state // WIDTH], axis=1) - mean[state] / 2
    axes.quiver(
        *tail.T,
        *arrow.T,
        color=[(*to_rgb(INK), 0.25 + 0.75 * float(p)) for p in chance],
        angles="xy",
        scale_units="xy",
        scale=1,
        width=0.0075,
        headwidth=4.2,
        headlength=4.2,
        headaxislength=3.8,
        minlength=0,
        zorder=3,
    )


def _place(state: int) -> tuple[int, int]:
    """(x, y) of state 7y + x; y = 0 is the bottom row."""
    return state % WIDTH, state // WIDTH
