"""Budgets on the tail of an episode's cost, as tasks with an expected cost: state augmentation.

The mean of the worst share 1-α of all episodes, their conditional value at risk, is (Rockafellar & Uryasev 2000)

    CVaR_α(C) = min_t  t + E[(C - t)₊] / (1-α).

So for any threshold t the budget d on it is kept wherever E[(C - t)₊] ≤ (1-α)·(d - t), which is a budget on an expected
cost, if a step pays by how much it moves the episode's cost so far, y, further above t. A policy that keeps it has to
know y: states become pairs (y, s), and everything else of this library applies as it is. Nothing is lost but by the
choice of t, which a family has to share: `cvar_threshold` finds the best one for a task.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from surefoot.arrays import Floats, Integers, check_unit_interval, number
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.solve import solve
from surefoot.tasks.gym_signals import Cost, cost_of, unpack_step
from surefoot.tasks.task_distribution import Build, TaskDistribution

SAME = 1e-9  # relative difference below which a cost is a multiple of the unit


@dataclass(frozen=True)
class Tail:
    """A budget d on CVaR_α of the cost of an episode.

    Attributes:
        level: α, the share of episodes that are left out; 0.9 is about the worst tenth.
        budget: d.
        threshold: t, up to which costs are free; at most d.
        unit: of which costs and the threshold are multiples. Costs that are none are rounded up.
    """

    level: float
    budget: float
    threshold: float
    unit: float = 1.0

    def __post_init__(self) -> None:
        check_unit_interval("level", self.level)
        if not number("unit", self.unit) > 0:
            raise InvalidInput(f"unit must be positive, got {self.unit!r}")
        if not 0 <= number("threshold", self.threshold) <= number("budget", self.budget):
            raise InvalidInput(f"threshold must lie between 0 and the budget, {self.budget!r}, got {self.threshold!r}")
        if abs(self.threshold / self.unit - round(self.threshold / self.unit)) > SAME:
            raise InvalidInput(f"threshold must be a multiple of the unit, {self.unit!r}, got {self.threshold!r}")

    @property
    def levels(self) -> int:
        """How many costs so far are told apart: 0, 1, ... units, up to the threshold."""
        return round(self.threshold / self.unit) + 1

    @property
    def allowed(self) -> float:
        """(1-α)(d-t), what E[(C - t)₊] may be."""
        return (1 - self.level) * (self.budget - self.threshold)

    def units(self, costs: Floats) -> Integers:
        """Costs in units, rounded up."""
        whole: Integers = np.ceil(costs / self.unit - SAME * (1 + costs / self.unit)).astype(np.int64)
        return whole


def cvar(tasks: TaskDistribution, tail: Tail) -> TaskDistribution:
    """The family with the budget on the tail of its cost in place of that on its mean.

    State y·S + s of a task stands for state s after a cost of y units, or of at least the threshold for the last y. Its
    cost is what an episode's cost exceeds the threshold by.

    Args:
        tasks: tables with a horizon, discount 1 and one cost that is paid by state and action and not negative.
    """
    if not isinstance(tail, Tail):
        raise InvalidInput(f"tail must be a Tail, got {tail!r}")
    if not isinstance(tasks, TaskDistribution):
        raise InvalidInput(f"tasks must be a task distribution, got {type(tasks).__name__}")
    _check(tasks.example)
    return TaskDistribution(partial(_build_with_tail, tasks.build, tail), tasks.distribution)


def cvar_threshold(task: TabularCMDP, *, level: float, budget: float, unit: float = 1.0) -> float:
    """The threshold at which the best policy of a task earns most; `Infeasible` if none keeps the budget."""
    tails = [Tail(level, budget, k * unit, unit) for k in range(math.floor(budget / unit + SAME) + 1)]
    earned = np.array([with_tail(task, tail).optimum() for tail in tails])
    if np.isnan(earned).all():
        solve(with_tail(task, tails[-1]))  # raises, and says by how much
    return tails[int(np.nanargmax(earned))].threshold


def with_tail(task: TabularCMDP, tail: Tail) -> TabularCMDP:
    """One task of `cvar`; refused where its costs are not such that Proposition 3 holds."""
    _check(task)
    states, actions, levels = task.n_states, task.n_actions, tail.levels
    so_far, paid = np.arange(levels)[:, None, None], tail.units(task.cost[0])  # [L, 1, 1], [S, A]
    free = levels - 1 - so_far  # units that are still free
    excess = np.maximum(paid - free, 0) * tail.unit
    return TabularCMDP(
        _augment_transitions(task, np.minimum(so_far + paid, levels - 1)),
        np.tile(task.reward, (levels, 1)),
        excess.reshape(levels * states, actions),
        tail.allowed,
        np.concatenate([task.start, np.zeros((levels - 1) * states)]),
        1.0,
        reward_range=task.units.reward_range,
        cost_range=(0.0, float(tail.units(task.units.cost_range[0])[1]) * tail.unit),
        horizon=task.units.horizon,
    )


# ------------------------------------------------------------------------------------------------ what episodes cost


def cost_distribution(
    task: TabularCMDP, policy: TabularPolicy | TimedPolicy, tail: Tail | None = None, unit: float = 1.0
) -> tuple[Floats, Floats]:
    """Costs [n] of an episode and their probabilities [n], exactly.

    Args:
        policy: of the task; of `with_tail(task, tail)` if a tail is given.
        unit: of which costs are multiples, if no tail is given.
    """
    _check(task)
    horizon, told = task.units.horizon or 0, tail or Tail(0.5, 0.0, 0.0, unit)
    paid = told.units(task.cost[0])
    chances = np.asarray(policy.probabilities)
    chances = chances if chances.ndim == 3 else chances[None]
    now = np.zeros((horizon * int(paid.max()) + 1, task.n_states))  # [y, s]
    now[0] = task.start
    for step in range(horizon):
        table = chances[min(step, len(chances) - 1)].reshape(-1, task.n_states, task.n_actions)
        known = np.minimum(np.arange(len(now)), len(table) - 1)
        moving = now[..., None] * table[known]  # [y, s, a]
        now = _propagate_costs(task, paid, moving)
    law: Floats = now.sum(axis=1)
    found = np.flatnonzero(law > 0)
    costs: Floats = found * np.float64(told.unit)
    return costs, law[found]


def conditional_value_at_risk(costs: Floats, probabilities: Floats, level: float) -> float:
    """CVaR_α of a distribution: the minimum over t, which is at one of the costs."""
    excess = np.maximum(costs[None, :] - costs[:, None], 0.0) @ probabilities
    return float(np.min(costs + excess / (1 - check_unit_interval("level", level))))


# ------------------------------------------------------------------------------------------------- parts, in call order


def _check(task: object) -> None:
    if not isinstance(task, TabularCMDP):
        raise InvalidInput(f"tasks must be tables, got {type(task).__name__}")
    if task.units.horizon is None or task.discount != 1:
        raise InvalidInput(
            "tasks must have a horizon and discount 1, so that costs so far are known without the step, got "
            f"horizon {task.units.horizon} and discount {task.discount:g}"
        )
    if task.n_constraints != 1 or task.payments.by_transition:
        raise InvalidInput(
            f"tasks must have one cost, paid by state and action, got {task.n_constraints}"
            f"{' paid by transition' if task.payments.by_transition else ''}"
        )
    if task.units.cost_range[0, 0] < 0:
        raise InvalidInput(f"cost_range must begin at 0 or above, got {task.units.cost_range[0].tolist()}")


def _build_with_tail(build: Build, tail: Tail, parameter: Floats) -> TabularCMDP:
    return with_tail(build(parameter), tail)


def _augment_transitions(task: TabularCMDP, after: Integers) -> sp.csr_array:
    """[L·S·A, L·S] transitions to (after[y, s, a], s')."""
    rows, levels = task.rows.tocoo(), len(after)
    begin = np.arange(levels)[:, None]
    target = after.reshape(levels, -1)[:, rows.row] * task.n_states + rows.col
    source = begin * task.n_states * task.n_actions + rows.row
    shape = (levels * task.n_states * task.n_actions, levels * task.n_states)
    return sp.csr_array((np.tile(rows.data, levels), (source.ravel(), target.ravel())), shape=shape)


def _propagate_costs(task: TabularCMDP, paid: Integers, moving: Floats) -> Floats:
    """[y, s] after a step of those that move [y, s, a]."""
    after = np.zeros(moving.shape[:2])
    for cost in np.unique(paid):
        these = np.where(paid == cost, moving, 0.0).reshape(len(moving), -1) @ task.rows
        after[cost:] += these[: len(after) - cost]
    return after


# --------------------------------------------------------------------------------------------------------- environments
#
# The same for environments: observations that tell the cost so far, and costs that count above the threshold.


class TailEnv:
    """An environment with a budget on the tail of its cost, in the form of Gymnasium: give `from_gym` this one with
    `budget=tail.allowed` and discount 1. Anything under which Proposition 3 is lost is refused there.

    A vector that is observed has one more entry, the cost so far up to the threshold. A state s out of S becomes the
    state y·S + s after y units of cost, rounded up step by step. Costs after an early end are not seen: declare none.
    """

    def __init__(self, env: Any, tail: Tail, cost: Cost | None = None) -> None:
        """Args: cost: (observation, action, next observation, info) -> cost; by default what the environment says."""
        self.env, self.tail, self._cost = env, tail, cost
        self.action_space = env.action_space
        self.observation_space = _space(env.observation_space, tail)
        self._states = getattr(env.observation_space, "n", None)
        self._before, self._so_far, self._step = None, 0.0, 0

    @property
    def unwrapped(self) -> Any:
        return getattr(self.env, "unwrapped", self.env)

    def reset(self, **given: Any) -> tuple[Any, Any]:
        observation, info = self.env.reset(**given)
        self._before, self._so_far, self._step = observation, 0.0, 0
        return self._augment_observation(observation), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        said = unpack_step(self.env.step(action), self._step)
        paid = float(cost_of(said, self._before, action, self._cost, self._step))
        if not paid >= 0:
            raise InvalidInput(f"cost must not be negative where its tail has a budget, got {paid!r}")
        if self._states is not None:
            paid = float(self.tail.units(np.array(paid))) * self.tail.unit
        free = max(self.tail.threshold - self._so_far, 0.0)
        self._before, self._so_far, self._step = said.observation, self._so_far + paid, self._step + 1
        info = {**said.info, "cost": max(paid - free, 0.0)}
        return self._augment_observation(said.observation), said.reward, said.terminated, said.truncated, info

    def close(self) -> None:
        self.env.close()

    def _augment_observation(self, observation: Any) -> Any:
        known = min(self._so_far, self.tail.threshold)
        if self._states is not None:
            return round(known / self.tail.unit) * int(self._states) + int(observation)
        return np.append(np.asarray(observation), known).astype(self.observation_space.dtype)


def check_tail(env: Any, units: Units, cost: Cost | None, after_termination: Floats) -> None:
    """Whoever declares a family of such environments, wrapped or not, declares what Proposition 3 asks for."""
    tail = _tail(env)
    if tail is None:
        return
    if units.discount != 1:
        raise InvalidInput(f"discount must be 1 where a tail has the budget (TailEnv), got {units.discount:g}")
    if len(units.budget) != 1 or units.budget[0] > tail.allowed + SAME * tail.budget:
        raise InvalidInput(
            f"budget must be at most tail.allowed, {tail.allowed:g}, for a TailEnv, got {units.budget.tolist()}"
        )
    if cost is not None:
        raise InvalidInput("cost must be given to TailEnv, which tells what of it counts, got one beside it")
    if after_termination[1:].any():
        raise InvalidInput(
            "after_termination must hold no cost for a TailEnv, which cannot count it, "
            f"got {after_termination[1:].tolist()}"
        )


def _tail(env: Any) -> Tail | None:
    """Of the environment, or of one that it wraps."""
    while env is not None and not isinstance(env, TailEnv):
        env = getattr(env, "env", None)
    return None if env is None else env.tail


def _space(space: Any, tail: Tail) -> Any:
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete) and space.start == 0:
        return spaces.Discrete(int(space.n) * tail.levels)
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        low, high = np.append(space.low, 0.0), np.append(space.high, tail.threshold)
        return spaces.Box(low.astype(space.dtype), high.astype(space.dtype), dtype=space.dtype.type)
    raise InvalidInput(f"observation_space must be a vector or states from 0 on, got {space!r}")
