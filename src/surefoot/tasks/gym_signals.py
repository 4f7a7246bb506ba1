"""What one step of an environment says: reward, costs, whether it ended. Read in the forms in which it is said.

    Gymnasium           observation, reward, terminated, truncated, info      with info["cost"], or a cost function
    Safety-Gymnasium    observation, reward, cost, terminated, truncated, info

A cost that is missing is an error, never 0; what is outside its declared range stops the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.episode import RANGE_TOLERANCE
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput

# (observation, action, next observation, info) -> cost, or [m]; of n episodes side by side [n] or [n, m]
Cost: TypeAlias = Callable[[Any, Any, Any, Any], Any]

MISSING: Any = object()


class Signal(NamedTuple):
    """One step's values by name; `cost` is MISSING where they hold none."""

    observation: Any
    reward: Any
    cost: Any
    terminated: Any
    truncated: Any
    info: Any


def unpack_step(result: Any, t: int) -> Signal:
    """The values of step `t`, which are five or six."""
    count = len(result) if isinstance(result, tuple | list) else None
    if count == 5:
        observation, reward, terminated, truncated, info = result
        cost = MISSING
    elif count == 6:
        observation, reward, cost, terminated, truncated, info = result
    else:
        raise InvalidInput(
            f"step must return (observation, reward, terminated, truncated, info), or six values with the cost after "
            f"the reward, got {f'{count} values' if count is not None else type(result).__name__} at step {t}"
            f"{OLD_GYM if count == 4 else ''}"
        )
    if type(terminated) is type(truncated) is bool and type(info) is dict:
        return Signal(observation, reward, cost, terminated, truncated, info)
    for name, value in (("terminated", terminated), ("truncated", truncated)):
        if type(value) is not bool and np.asarray(value).dtype.kind != "b":
            raise InvalidInput(
                f"{name}, value {count - 3 if name == 'terminated' else count - 2} of the {count} that step returns, "
                f"must be True or False, got {value!r} at step {t}"
            )
    if not isinstance(info, Mapping):
        raise InvalidInput(
            f"info, the last of the {count} values that step returns, must be a dictionary, "
            f"got {type(info).__name__} at step {t}"
        )
    return Signal(observation, reward, cost, terminated, truncated, info)


OLD_GYM = (
    "; four are those of old Gym, whose `done` does not tell the end of a system from a time limit: convert the "
    "environment so that it does"
)


def cost_of(signal: Signal, before: Any, action: Any, function: Cost | None, t: int) -> Any:
    """The cost of step `t`: what the function says if there is one, otherwise what the environment says."""
    if function is not None:
        return function(before, action, signal.observation, signal.info)
    if signal.cost is not MISSING:
        return signal.cost
    if "cost" in signal.info:
        return signal.info["cost"]
    raise missing_cost(t, bool(np.any(signal.terminated) or np.any(signal.truncated)), list(signal.info))


def missing_cost(t: int, last: bool, found: list[str]) -> InvalidInput:
    lost = ", where the episode ended: the cost of its last step would be lost" if last else ""
    return InvalidInput(
        f'info["cost"] is missing at step {t}{lost}; a cost must come with every step (0.0 where nothing is paid), or '
        f"give cost=, a function (observation, action, next observation, info) -> cost; got info with {found}"
    )


# ------------------------------------------------------------------------------------------------------------- numbers


class Ranges:
    """The declared ranges of reward and costs, and numbers [1+m] of a step of one episode, or [n, 1+m] of n."""

    def __init__(self, units: Units) -> None:
        self.declared = np.array([units.reward_range, *units.cost_range])  # [1+m, 2]
        slack = RANGE_TOLERANCE * np.ptp(self.declared, axis=1)
        self.low, self.high = self.declared[:, 0] - slack, self.declared[:, 1] + slack
        self._ends = [*zip(self.low.tolist(), self.high.tolist(), strict=True)]
        self.constraints = len(units.budget)

    def row(self, reward: Any, cost: Any, t: int) -> Floats:
        """[1, 1+m] numbers of step `t` of one episode, which are in range."""
        if type(reward) is type(cost) is float and self.constraints == 1:  # most often, and much faster
            (least, most), (low, high) = self._ends
            if least <= reward <= most and low <= cost <= high:
                return np.array([[reward, cost]])
        row = self.rows(reward, cost, t)[None]
        self.check(row, t)
        return row

    def rows(self, reward: Any, cost: Any, t: int, batch: tuple[int, ...] = ()) -> Floats:
        """[1+m] numbers of step `t`, for batch = (n,) [n, 1+m]; not yet checked, since some lanes may have ended."""
        rewards, costs = _array("reward", reward, t), _array("cost", cost, t)
        if rewards.shape != batch:
            right = f"an array {list(batch)}" if batch else "a number"
            raise InvalidInput(f"reward must be {right}, got shape {list(rewards.shape)} at step {t}")
        if self.constraints == 1 and costs.shape == batch:
            costs = costs[..., None]
        shape = (*batch, self.constraints)
        if costs.shape != shape:
            right = "a number" if shape == (1,) else f"an array {list(shape)}, one for each budget"
            raise InvalidInput(f"cost must be {right}, got shape {list(costs.shape)} at step {t}")
        return np.concatenate([rewards[..., None], costs], axis=-1)

    def check(self, rows: Floats, t: int) -> None:
        """Rows [n, 1+m] of step `t` are in range."""
        inside = (rows >= self.low) & (rows <= self.high)
        if not inside.all():
            self._refuse(rows[np.argmin(inside.all(axis=1))], t)

    def _refuse(self, row: Floats, t: int) -> None:
        which = int(np.argmax(~((row >= self.low) & (row <= self.high))))
        name = "reward" if which == 0 else "cost" if self.constraints == 1 else f"cost[{which - 1}]"
        declared = "reward_range" if which == 0 else "cost_range"
        rule = f"must lie in {declared}, {self.declared[which].tolist()}"
        if not np.isfinite(row[which]):
            rule = f"must be finite and lie in {declared}, {self.declared[which].tolist()}"
        raise InvalidInput(f"{name} {rule}, got {row[which]} at step {t}")


def _array(name: str, value: Any, t: int) -> Floats:
    try:
        array = np.asarray(value)
        if array.dtype.kind in "iufb":
            return array.astype(np.float64)
    except ValueError:  # lists of different lengths
        pass
    raise InvalidInput(f"{name} must be a number or an array of numbers, got {value!r} at step {t}"[:300])
