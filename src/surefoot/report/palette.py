"""Colours of every figure: one for each method, told apart by colour-blind readers, on white and on dark screens."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from types import MappingProxyType

REFERENCE = "safe-only"

INK, SOFT, GREY, FAINT, PAPER = "#222222", "#555555", "#888888", "#e6e6e6", "#ffffff"
REFERENCE_COLOUR, BUDGET_COLOUR = "#b4b4b4", "#b3261e"

# On white and on dark, by a method's place. The first eight are Okabe and Ito's palette without black and yellow, then
# wine and indigo of Tol's; the others were chosen one by one as far from those before as can be, as seen with all
# cones, without red ones and without green ones.
_PLACES = (
    ("#0072b2", "#3f9fe8"),
    ("#d55e00", "#f2762a"),
    ("#009e73", "#81e7aa"),
    ("#e69f00", "#ffc043"),
    ("#cc79a7", "#f58ac6"),
    ("#56b4e9", "#a6dcff"),
    ("#882255", "#d4417f"),
    ("#332288", "#7f84ff"),
    ("#a568f9", "#b58aff"),
    ("#1343c7", "#71809f"),
    ("#5f2905", "#bc7e5e"),
    ("#534c84", "#9b96d4"),
    ("#4e7b79", "#a9d9d6"),
    ("#591a60", "#c066c9"),
    ("#18671e", "#a8fa55"),
    ("#7250e2", "#7e6ade"),
    ("#4eb67c", "#95b8a1"),
    ("#9c7bd2", "#cfa8ff"),
    ("#7d594f", "#af6c5a"),
    ("#1d4335", "#4fa391"),
    ("#6635a3", "#b6a1df"),
    ("#d98941", "#d98941"),
    ("#4e657f", "#88a1bd"),
    ("#ef80d6", "#cd61b6"),
    ("#7a8b00", "#c9d64a"),
    ("#0f8b8d", "#35c7c9"),
    ("#c2185b", "#ff6fa3"),
    ("#8c6d1f", "#e0c15a"),
    ("#6a9a2d", "#b4e06a"),
    ("#a3508f", "#e08fd0"),
    ("#2f6f9f", "#6fb7ea"),
    ("#b07a00", "#ffd27a"),
)
COLOURS = tuple(light for light, _ in _PLACES)
MARKERS = ("", "o", "s", "^", "D", "v")
DASHES: tuple[tuple[float, ...], ...] = ((5.0, 2.0), (2.0, 1.6), (7.0, 2.0, 1.5, 2.0), (9.0, 3.0))

# What a page draws on dark in place of the colours that figures have on white.
ON_DARK = MappingProxyType(
    {
        **dict(_PLACES),
        INK: "#e8ebee",
        SOFT: "#a3adb7",
        GREY: "#7d8791",
        FAINT: "#2a3037",
        PAPER: "#171b20",
        REFERENCE_COLOUR: "#5d666f",
        BUDGET_COLOUR: "#ff8a80",
    }
)


@dataclass(frozen=True)
class Stroke:
    """How a method is drawn: the same in every figure, whichever other methods appear beside it.

    Attributes:
        colour: of no other method.
        marker: a second cue, for readers who do not see the colour.
        dash: lengths of strokes and gaps, for those without a proof; certified methods have solid lines.
    """

    colour: str
    marker: str
    dash: tuple[float, ...]


def stroke(method: str, place: int | None = None) -> Stroke:
    """Grey for safe-only, else by the place in the method's row; without one it depends on the name alone. Of methods
    that are none of the library's the place must be told."""
    if method == REFERENCE:
        return Stroke(REFERENCE_COLOUR, "", DASHES[0])
    from surefoot.methods import CONTROL_METHODS, METHODS  # pages without methods do without them

    spec = METHODS.get(method) or CONTROL_METHODS.get(method)
    if place is None:
        place = zlib.crc32(method.encode()) if spec is None or spec.colour is None else spec.colour
    return Stroke(COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)], DASHES[place % len(DASHES)])
