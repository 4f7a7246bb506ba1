"""The one conversion between the user's units and the paper's.

The user speaks of a reward and of costs that must stay within a budget: Σ γ^t cost ≤ budget in expectation, over H
steps or without end. The paper speaks of r in [0, 1], c in [-1, 1] and V_c ≥ 0. `Units` is the only place that knows
both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from surefoot import theory
from surefoot.arrays import Floats, assign, check_int, finite_array, make_readonly, number
from surefoot.cmdp.wording import kind_of_cost
from surefoot.errors import InvalidInput

# Episodes of a task without a horizon are cut where the discounted tail is below this fraction of the whole.
NEGLIGIBLE = 1e-6
ROUNDING = 1e-14  # of costs and budgets: one cost that is all of its budget does not differ from it


@dataclass(frozen=True)
class Units:
    """Discount, horizon, declared ranges and budgets: all that is needed to translate values. Shared by the tasks of a
    family.

    Attributes:
        discount: γ in (0, 1); 1 is allowed with a horizon.
        reward_range: (low, high) of one step's reward.
        cost_range: [m, 2] low and high of one step's cost, per constraint.
        budget: [m] bound on the expected discounted cost.
        horizon: H, after which every episode has ended; None if it goes on for ever.
        reward_sum_range: (low, high) of an episode's discounted sum of rewards where more is known of it than follows
            from reward_range; None if not.
        cost_sum_range: [m, 2] the same for each cost. Who declares these declares them of every episode of every
            policy: a sum outside voids what was concluded, as a step outside its range does.
    """

    discount: float
    reward_range: tuple[float, float]
    cost_range: Floats
    budget: Floats
    horizon: int | None = None
    reward_sum_range: tuple[float, float] | None = None
    cost_sum_range: Floats | None = None

    def __post_init__(self) -> None:
        horizon = None if self.horizon is None else check_int("horizon", self.horizon)
        discount = number("discount", self.discount)
        if not (0 < discount < 1 or (discount == 1 and horizon is not None)):
            raise InvalidInput(
                f"discount must lie strictly between 0 and 1, or be 1 with a horizon, got {discount!r}"
                f"{'' if horizon is None else f' with horizon {horizon}'}"
            )
        budget = np.atleast_1d(finite_array("budget", self.budget))
        if budget.ndim != 1 or not budget.size:
            raise InvalidInput(f"budget must be a number or [m] with m ≥ 1, got shape {list(budget.shape)}")
        assign(self, discount=discount, horizon=horizon, budget=budget)
        assign(
            self,
            reward_range=_reward_range("reward_range", self.reward_range),
            cost_range=_cost_range("cost_range", self.cost_range, len(budget)),
        )
        if self.reward_sum_range is not None:
            assign(self, reward_sum_range=_reward_range("reward_sum_range", self.reward_sum_range))
        if self.cost_sum_range is not None:
            assign(self, cost_sum_range=_cost_range("cost_sum_range", self.cost_sum_range, len(budget)))
        _check_possible(self)

    @cached_property
    def rate(self) -> float:
        """The first step's share in the whole: 1-γ without a horizon, (1-γ)/(1-γ^H) or 1/H with one.

        What every step costs at most times 1/rate is what an episode costs at most; budget·rate is its even spending.
        """
        if self.horizon is None:
            return 1 - self.discount
        if self.discount == 1:
            return 1 / self.horizon
        return (1 - self.discount) / (1 - self.discount**self.horizon)

    @property
    def effective_discount(self) -> float:
        """The γ for which 1/(1-γ) is the length of an episode: every bound of `theory` holds with it.

        With a horizon, Σ_{1≤t<H} γ^t = γ'/(1-γ') for this γ', so that the steps of the proofs go through as they are.
        """
        return self.discount if self.horizon is None else 1 - self.rate

    @cached_property
    def episode_length(self) -> int:
        """Steps of an episode: the horizon, or as many as leave a negligible tail."""
        return self.horizon or theory.horizon(self.discount, NEGLIGIBLE / (1 - self.discount))

    def steps(self, horizon: int | None) -> int:
        """The most steps of an episode that somebody cuts after `horizon` of them; `episode_length` if nobody does."""
        if horizon is None:
            return self.episode_length
        if self.horizon is not None and check_int("horizon", horizon) > self.horizon:
            raise InvalidInput(f"horizon must be at most that of the policy set, {self.horizon}, got {horizon}")
        return check_int("horizon", horizon)

    @property
    def kind(self) -> str:
        """What the budget is on, in words: stands beside every printed number."""
        return kind_of_cost(self.discount, self.horizon)

    def missing_share(self, steps: int) -> float:
        """The share of the discounted whole that an episode of `steps` steps may lack, the paper's γ^H."""
        if self.horizon is None:
            return float(self.discount**steps)
        if steps >= self.horizon:
            return 0.0
        weights = self.discount ** np.arange(self.horizon)
        return float(weights[steps:].sum() / weights.sum())

    @property
    def reward_scale(self) -> float:
        low, high = self.reward_range
        return high - low or 1.0

    @cached_property
    def cost_scale(self) -> Floats:
        """[m] divisor that puts c = (rate·budget - cost)/scale into [-1, 1]: the range itself if it suffices."""
        low, high = self.cost_range.T
        even = self.rate * self.budget
        scale: Floats = np.maximum(high - low, np.maximum(np.abs(even - low), np.abs(high - even)))
        rounding = ROUNDING * np.maximum(np.abs(even), np.abs(self.cost_range).max(axis=1))
        return make_readonly(np.where(scale > rounding, scale, 1.0))

    def reward_width(self, *, ends: bool) -> float:
        """Length of the interval in which r lies, at least 1.

        Args:
            ends: as in `possible_values`.
        """
        low, high = self._step_ranges(ends)[0]
        return max(1.0, float(high - low) / self.reward_scale)

    def constraint_width(self, *, ends: bool) -> Floats:
        """[m] length of the interval in which c lies; of tables 1 whenever the even spending rate·budget is in range.

        Args:
            ends: as in `possible_values`.
        """
        low, high = self._step_ranges(ends)[1:].T
        width: Floats = (high - low) / self.cost_scale
        return width

    def worst_value(self, *, ends: bool) -> Floats:
        """[m] V₋ ≥ -V_c of any policy; the paper's 1/(1-γ) with the true range of c.

        Args:
            ends: as in `possible_values`.
        """
        worst = self._step_ranges(ends)[1:, 1] / self.rate - self.budget
        return np.maximum(worst, 0.0) / self.cost_scale

    def possible_values(self, *, ends: bool) -> tuple[Floats, Floats]:
        """[1+m] least and greatest reward and margins of any policy from any state: what is known where nothing is.

        Args:
            ends: whether episodes may end before their last step. Steps that are then missing pay 0, or something in
                range (`after_termination`), so that 0 counts as in range. Only of tables is it known that they do not.
        """
        low, high = self._step_ranges(ends).T / self.rate
        dearest = -self.user_margin(self.worst_value(ends=ends))
        return np.array([low[0], *dearest]), np.array([high[0], *(self.budget - low[1:])])

    @property
    def reward_value_range(self) -> tuple[float, float]:
        low, high = self.reward_range
        return low / self.rate, high / self.rate

    @property
    def cost_value_range(self) -> Floats:
        """[m, 2] range of a discounted cost."""
        return self.cost_range / self.rate

    @cached_property
    def reachable(self) -> Floats:
        """[1+m, 2] range of the discounted reward and costs of an episode, which may stop early: 0 is in it, unless the
        declared range of the sums says otherwise."""
        stepwise, declared = self._stepwise, self._declared_sums
        low, high = np.maximum(stepwise[:, 0], declared[:, 0]), np.minimum(stepwise[:, 1], declared[:, 1])
        return make_readonly(np.column_stack([low, high]))

    def tail(self, steps: int) -> Floats:
        """[1+m, 2] the least and the most that steps after the first `steps` add to the discounted sums: what is known
        of whole sums says nothing of their parts."""
        return self.missing_share(steps) * self._stepwise

    def scaled(self, sums: Floats) -> Floats:
        """Discounted reward and costs [..., 1+m], mapped from their ranges to [0, 1]."""
        low, span = self._scale
        scaled: Floats = ((sums - low) / span).clip(0.0, 1.0)
        return scaled

    @cached_property
    def _scale(self) -> tuple[Floats, Floats]:
        """[1+m] each: where the ranges of sums begin, and their lengths, 1 for those of length 0."""
        span = np.ptp(self.reachable, axis=1)
        return self.reachable[:, 0], make_readonly(np.where(span > 0, span, 1.0))

    def scaled_sums(self, lower: Floats, upper: Floats, steps: int) -> tuple[Floats, Floats]:
        """Bounds on reward and margins [..., 1+m] as bounds on the means of the scaled reward and costs of episodes of
        `steps` steps, which miss a tail."""
        low = np.concatenate([lower[..., :1], self.budget - upper[..., 1:]], axis=-1)
        high = np.concatenate([upper[..., :1], self.budget - lower[..., 1:]], axis=-1)
        least, most = self.tail(steps).T
        return self.scaled(low - most), self.scaled(high - least)

    def values_of_sums(self, lower: Floats, upper: Floats, steps: int) -> tuple[Floats, Floats]:
        """The way back: bounds on the means of scaled sums [..., 1+m] as bounds on reward and margins, with the tail at
        its least and most."""
        low, span, (least, most) = self.reachable[:, 0], np.ptp(self.reachable, axis=1), self.tail(steps).T
        fewest, largest = low + span * lower + least, low + span * upper + most
        return (
            np.concatenate([fewest[..., :1], self.budget - largest[..., 1:]], axis=-1),
            np.concatenate([largest[..., :1], self.budget - fewest[..., 1:]], axis=-1),
        )

    @cached_property
    def _stepwise(self) -> Floats:
        """[1+m, 2] what the ranges of single steps allow for sums of any number of them."""
        return make_readonly(self._step_ranges(ends=True) / self.rate)

    def _step_ranges(self, ends: bool) -> Floats:
        """[1+m, 2] of one step's reward and costs; with 0, what a step pays that is missing after an end."""
        ranges = np.array([self.reward_range, *self.cost_range])
        return np.column_stack([np.minimum(ranges[:, 0], 0.0), np.maximum(ranges[:, 1], 0.0)]) if ends else ranges

    @property
    def _declared_sums(self) -> Floats:
        """[1+m, 2] infinite where nothing is declared."""
        anything = (-np.inf, np.inf)
        reward = anything if self.reward_sum_range is None else self.reward_sum_range
        cost = [anything] * len(self.budget) if self.cost_sum_range is None else self.cost_sum_range
        return np.array([reward, *cost])

    def unit_reward(self, reward: Floats) -> Floats:
        """One step's reward [...] as the paper's r in [0, 1]."""
        return (reward - self.reward_range[0]) / self.reward_scale

    def unit_constraint(self, cost: Floats) -> Floats:
        """One step's cost [m, ...] as the paper's c in [-1, 1]."""
        shape = (-1,) + (1,) * (cost.ndim - 1)
        even = self.rate * self.budget
        return (even.reshape(shape) - cost) / self.cost_scale.reshape(shape)

    def unit_reward_value(self, value: ArrayLike) -> Floats:
        """Discounted reward as the paper's V_r in [0, 1/rate]."""
        return (np.asarray(value) - self.reward_value_range[0]) / self.reward_scale

    def unit_margin(self, margin: ArrayLike) -> Floats:
        """Margin budget - cost [..., m] as the paper's V_c."""
        return np.asarray(margin) / self.cost_scale

    def user_margin(self, constraint_value: ArrayLike) -> Floats:
        """The paper's V_c [..., m] as the margin budget - cost."""
        return np.asarray(constraint_value) * self.cost_scale

    def truncation_bias(self, steps: int) -> float:
        """Largest difference, in unit scale, between discounted sums of `steps` steps and whole ones."""
        reward = np.abs(self.reward_value_range).max() / self.reward_scale
        cost = (np.abs(self.cost_value_range).max(axis=1) / self.cost_scale).max()
        return float(self.missing_share(steps) * max(reward, cost))

    def same_as(self, other: Units) -> bool:
        return (
            self.discount == other.discount
            and self.horizon == other.horizon
            and self.reward_range == other.reward_range
            and np.array_equal(self.cost_range, other.cost_range)
            and np.array_equal(self.budget, other.budget)
            and np.array_equal(self._declared_sums, other._declared_sums)
        )


def _reward_range(name: str, declared: object) -> tuple[float, float]:
    bounds = finite_array(name, declared)
    if bounds.shape != (2,) or bounds[0] > bounds[1]:
        raise InvalidInput(f"{name} must be (low, high) with low ≤ high, got {bounds.tolist()}")
    return float(bounds[0]), float(bounds[1])


def _cost_range(name: str, declared: object, constraints: int) -> Floats:
    """[m, 2], also from one (low, high) for all constraints."""
    bounds = finite_array(name, declared)
    if bounds.shape == (2,):
        bounds = np.tile(bounds, (constraints, 1))
    if bounds.shape != (constraints, 2) or (bounds[:, 0] > bounds[:, 1]).any():
        raise InvalidInput(f"{name} must be (low, high) or [m, 2] with low ≤ high, got {bounds.tolist()}")
    return bounds


def _check_possible(units: Units) -> None:
    """Declared sums must leave something of what the ranges of the steps allow."""
    low, high = units.reachable.T
    if (low > high).any():
        raise InvalidInput(
            "reward_sum_range and cost_sum_range must meet what reward_range and cost_range allow for sums, "
            f"{units._stepwise.tolist()}, got {units.reward_sum_range} and "
            f"{None if units.cost_sum_range is None else units.cost_sum_range.tolist()}"
        )
