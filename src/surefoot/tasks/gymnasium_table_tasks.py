"""Environments that show their own transition table, such as those of Gymnasium's toy text, as families of tables."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from surefoot.arrays import Floats, Integers, Mask, finite_array, raise_at
from surefoot.errors import InvalidInput
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.tables import cost_signals, payments_of, reward_signal
from surefoot.tasks.distribution import ParameterDistribution
from surefoot.tasks.task_distribution import TaskDistribution, family

# cost(state, action, next_state) or cost(state, action, next_state, info): a number, or one per budget
TableCost: TypeAlias = Callable[..., Any]
Step: TypeAlias = tuple[int, int, float, int, float, bool]  # s, a, probability, s', reward, terminated


def from_gymnasium_table(
    make_env: Callable[[Floats], Any],
    distribution: ParameterDistribution,
    *,
    cost: TableCost | ArrayLike,
    budget: ArrayLike,
    discount: float,
    horizon: int | None = None,
    start: ArrayLike | None = None,
    reward_range: tuple[float, float] | None = None,
    cost_range: ArrayLike | None = None,
) -> TaskDistribution:
    """The family of tables that `make_env(parameter).unwrapped.P` shows: P[s][a] = [(probability, s', reward, ended)].

    One more state is added, the last one: the sink, in which nothing is earned or spent. A step that ends the episode
    pays as any other, on its way into the state that it leads to; from there the next one leads to the sink.

    Args:
        cost: cost(state, action, next_state) of a step, a number or one per budget (a fourth argument gets what
            Gymnasium's `info` has, {"prob": probability}); or an array, [S], [S, A] or [S, A, S], of the environment's
            own states.
        start: [S] distribution of the first state; `make_env(parameter).unwrapped.initial_state_distrib` by default.
        reward_range, cost_range: declared for one step; what occurs at the distribution's probes when not given.
    """
    given = Given(make_env, cost, finite_array("budget", budget), discount, horizon, start)
    if reward_range is None or cost_range is None:
        found = [given.task(parameter, None, None).units for parameter in distribution.probes()]
        rewards = np.array([units.reward_range for units in found])
        costs = np.array([units.cost_range for units in found])
        reward_range = reward_range or (float(rewards[:, 0].min()), float(rewards[:, 1].max()))
        if cost_range is None:
            cost_range = np.stack([costs[:, :, 0].min(axis=0), costs[:, :, 1].max(axis=0)], axis=1)
    return family(partial(given.task, reward_range=reward_range, cost_range=cost_range), distribution)


@dataclass(frozen=True)
class Given:
    """What the user said of every task of the family."""

    make_env: Callable[[Floats], Any]
    cost: TableCost | ArrayLike
    budget: Floats
    discount: float
    horizon: int | None
    start: ArrayLike | None

    def task(self, parameter: Floats, reward_range: Any, cost_range: Any) -> TabularCMDP:
        env = self.make_env(parameter)
        table = _table(env)
        states, actions = len(table), len(table[0])
        ended = _always_ended(table, start := self._start(env, states))
        steps = [step for step in _steps(table) if not ended[step[0]]]
        costs = _costs(self.cost, steps, states, actions, self.budget.size)
        s, a, probability, after, reward, over = (np.array(column) for column in zip(*steps, strict=True))
        target = np.where(over & ~ended[after], states, after)
        over_rows = (np.flatnonzero(np.append(ended, True))[:, None] * actions + np.arange(actions)).ravel()
        row = np.concatenate([s * actions + a, over_rows])
        target = np.concatenate([target, np.full(len(over_rows), states)])
        probability = np.concatenate([probability, np.ones(len(over_rows))])
        paid = np.concatenate([np.column_stack([reward, costs]), np.zeros((len(over_rows), 1 + self.budget.size))])
        places, probability, paid = _combine_duplicates(row, target, probability, paid)

        def matrix(entries: Floats) -> sp.csr_array:
            return sp.csr_array((entries, places), shape=((states + 1) * actions, states + 1))

        rewards, *spent = map(matrix, paid.T)
        return TabularCMDP(
            matrix(probability),
            rewards,
            spent,
            self.budget,
            start,
            self.discount,
            reward_range,
            cost_range,
            self.horizon,
        )

    def _start(self, env: Any, states: int) -> Floats:
        """[S+1], the sink last."""
        given = getattr(env.unwrapped, "initial_state_distrib", None) if self.start is None else self.start
        if given is None:
            raise InvalidInput(
                "start must be given for an environment without initial_state_distrib, got none from "
                f"{type(env.unwrapped).__name__}"
            )
        array = finite_array("start", given)
        if array.shape != (states,):
            raise InvalidInput(f"start must have shape [{states}], got {list(array.shape)}")
        return np.append(array, 0.0)


def _table(env: Any) -> list[list[Any]]:
    """P as lists, by state and action."""
    table = getattr(getattr(env, "unwrapped", None), "P", None)
    if table is None:
        raise InvalidInput(
            "make_env must return an environment whose unwrapped.P is its transition table, got "
            f"{type(env).__name__} without one; sf.tasks.from_gym takes environments that can only be simulated"
        )
    rows = [table[s] for s in range(len(table))]
    each = [[row[a] for a in range(len(row))] for row in rows]
    if not each or not each[0] or len({len(row) for row in each}) != 1:
        raise InvalidInput(f"P must have the same actions in every state, got {sorted({len(row) for row in each})}")
    return each


def _steps(table: list[list[Any]]) -> Iterator[Step]:
    for s, row in enumerate(table):
        for a, outcomes in enumerate(row):
            for outcome in outcomes:
                if len(outcome) != 4:
                    raise InvalidInput(
                        "P must hold (probability, next state, reward, terminated) for every outcome, "
                        f"got {outcome!r} in P[{s}][{a}]"
                    )
                probability, after, reward, over = outcome
                yield s, a, float(probability), int(after), float(reward), bool(over)


def _combine_duplicates(
    row: Integers, target: Integers, probability: Floats, paid: Floats
) -> tuple[tuple[Integers, Integers], Floats, Floats]:
    """Row and next state of each transition [n], its probability and what it pays [n, 1+m], each transition once.

    Outcomes between the same states are added up. They mostly pay the same; where not, what they pay on average.
    """
    order = np.lexsort((target, row))
    row, target, probability, paid = row[order], target[order], probability[order], paid[order]
    first = np.flatnonzero(np.append(True, (np.diff(row) != 0) | (np.diff(target) != 0)))
    total = np.add.reduceat(probability, first)
    mean = np.add.reduceat(probability[:, None] * paid, first) / np.where(total > 0, total, 1.0)[:, None]
    alike = np.minimum.reduceat(paid, first) == np.maximum.reduceat(paid, first)
    # Equal ones are kept to the last digit, also where they have no probability in this task.
    return (row[first], target[first]), total, np.where(alike | (total == 0)[:, None], paid[first], mean)


def _always_ended(table: list[list[Any]], start: Floats) -> Mask:
    """[S] the states in which an episode has ended whenever it gets there, from the states that can be visited.

    Where it may also go on, the step that ends it leads to the sink itself.
    """
    states = len(table)
    over, goes_on = np.zeros(states, dtype=bool), start[:-1] > 0
    waiting = np.flatnonzero(goes_on).tolist()
    while waiting:
        s = waiting.pop()
        for _, _, probability, after, _, ends in _steps([table[s]]):
            if not probability > 0:
                continue
            if ends:
                over[after] = True
            elif not goes_on[after]:
                goes_on[after] = True
                waiting.append(after)
    ended: Mask = over & ~goes_on
    return ended


def _costs(cost: Any, steps: list[Step], states: int, actions: int, budgets: int) -> Floats:
    """[n, m] costs of n steps."""
    if not callable(cost):
        nothing = reward_signal(np.zeros(states), states, actions)
        payments = payments_of(nothing, cost_signals(cost, states, actions, budgets))
        s, a, _, after, _, _ = (np.array(column) for column in zip(*steps, strict=True))
        return payments.at(s, a, after)[:, 1:]
    if len(inspect.signature(cost).parameters) >= 4:
        each = [cost(s, a, after, {"prob": probability}) for s, a, probability, after, _, _ in steps]
    else:
        each = [cost(s, a, after) for s, a, _, after, _, _ in steps]
    try:
        found = np.array(each, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"cost must return numbers, equally many for all steps, got {each[0]!r} first") from None
    found = found[:, None] if found.ndim == 1 else found
    if found.shape[1:] != (budgets,):
        raise InvalidInput(
            f"cost must return one number per budget ({budgets}), got {each[0]!r} for state {steps[0][0]}, action "
            f"{steps[0][1]}, next state {steps[0][3]}"
        )

    def place(flat: int) -> tuple[int, ...]:
        s, a, _, after, _, _ = steps[flat // budgets]
        return s, a, after

    raise_at("cost", found, ~np.isfinite(found), "must be finite", place)
    return found
