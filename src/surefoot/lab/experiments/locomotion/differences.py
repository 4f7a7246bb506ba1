"""Where the paper's text on robots, its published code and this library differ: the list of docs/locomotion.md."""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """`text` and `code` are the paper's, `here_text` and `here` our two versions of the families of velocities."""

    place: str
    text: str
    code: str
    here_text: str
    here: str


DIFFERENCES = (
    Difference("Hopper: observations", "12", "11", "11", "11"),
    Difference(
        "Hopper: reward",
        "-|v - v*|",
        "-|v - v*| + alive - control cost",
        "as the text, at least -2",
        "as the code, the miss at most 2",
    ),
    Difference(
        "Hopper: cost",
        "control effort",
        "100 times the control cost; 100 at a fall with v5, nothing with v4",
        "0.1 Σa²",
        "as the code with v5",
    ),
    Difference(
        "Hopper: v*",
        "truncated on [0, 1], mean 0.5, variance 0.1",
        "N(0.5, standard deviation 0.1), redrawn until within [0, 1]",
        "variance 0.1 before truncation",
        "as the code",
    ),
    Difference("Hopper: budget", "not named", "5", "5", "5"),
    Difference("Hopper: after a fall", "not named", "nothing", "-2 for each missing step", "nothing"),
    Difference("HalfCheetah: reward", "-|v - v*|", "the same", "at least -4", "at least -4"),
    Difference(
        "HalfCheetah: cost",
        "head height: h - h₀ ≤ d, neither named",
        "control cost; no head height anywhere",
        "max(h - 0.55 m, 0), at most 1 m",
        "as the code",
    ),
    Difference(
        "HalfCheetah: v*",
        "truncated on [0, 2], mean 1, variance 0.3",
        "uniform on [0, 2]",
        "variance 0.3 before truncation",
        "as the code",
    ),
    Difference("HalfCheetah: budget", "not named", "10", "10", "10"),
    Difference("both: steps", "not named", "200", "200", "200"),
    Difference("both: discount", "not named", "rewards 1, costs 0.99", "as the code", "as the code"),
    Difference("both: the action that is paid for", "not named", "as asked for", "as done, within [-1, 1]", "as done"),
    Difference(
        "both: constants of Algorithm 2",
        "radii and weights of the theorem",
        "√(60000/n) + 28 and √(600/n) + 1 after 300 episodes; a step every 350 episodes while m < 15: α₁ = s/(s + 2), "
        "then 3α/(2 + α)",
        "method 'paper'",
        "method 'published-locomotion'",
    ),
    Difference(
        "baselines: where an episode ends",
        "not named",
        "at a fall only: advantages and the cost run across the ends at 200 steps",
        "as “published”",
        "each episode by itself; critics say what follows the horizon",
    ),
    Difference(
        "CPO: its line search",
        "not named",
        "demands that the cost falls",
        "as “published”",
        "lets the cost rise by what the budget leaves",
    ),
    Difference("SafeMeta: its divergence", "not named", "KL(old, new)", "as “published”", "KL(new, old)"),
    Difference(
        "figure: its lines",
        "not named",
        "means of the seeds between the 20 % and the 80 % quantile",
        "as “published”",
        "means over all tasks of what is gained on each",
    ),
    Difference(
        "figure: its axis",
        "episodes",
        "adaptations times 300 for baselines, SafeMeta's times 4 besides; to 5,000 (Hopper) and 15,000",
        "as “published”",
        "episodes",
    ),
)
