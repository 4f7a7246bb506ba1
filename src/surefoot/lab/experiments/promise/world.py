"""The small world that all random families are variations of, as plain functions of a generator.

Bold actions pay and expose to hazards; hazards cost; how strong the hazards are is what a task is about.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surefoot import theory
from surefoot.arrays import Floats
from surefoot.cmdp.units import NEGLIGIBLE
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.solve import solve

ROUNDING = 1e-15  # a probability of 0 may come out as -1e-17


@dataclass(frozen=True, eq=False)
class HazardWorld:
    """What the tasks of a family share: P_h = base + Σ_k h_k slope_k, a transition matrix if h ≥ 0 and Σ h ≤ 1.

    Attributes:
        base, slope: [S, A, S], [K, S, A, S].
        reward, cost, start: [S, A], [m, S, A], [S].
        steps: after so many an episode is over, or the rest negligible.
        budget: [m]
        horizon: of the tasks; None where they go on.
    """

    base: Floats
    slope: Floats
    reward: Floats
    cost: Floats
    start: Floats
    discount: float
    steps: int
    budget: Floats
    largest_factor: float = 1.0
    horizon: int | None = None

    def task(self, hazards: Floats, cost_factor: float = 1.0) -> TabularCMDP:
        """The task of hazards [K], its costs multiplied by a factor of at most `largest_factor`."""
        kernel = self.base + np.tensordot(hazards, self.slope, axes=1)
        kernel[np.abs(kernel) < ROUNDING] = 0.0
        ends = [[min(table.min(), 0.0), max(table.max(), 0.0)] for table in self.largest_factor * self.cost]
        reward_range = (float(self.reward.min()), float(self.reward.max()))
        cost = cost_factor * self.cost
        return TabularCMDP(
            kernel, self.reward, cost, self.budget, self.start, self.discount, reward_range, ends, self.horizon
        )


def random_world(
    rng: np.random.Generator, hazards: int, *, neutral: bool, discounts: tuple[float, ...], alike: bool = False
) -> HazardWorld:
    """Places of work and one place per hazard; action 0 is careful, the last one bold.

    Args:
        neutral: at h = 0 all actions in all places behave alike; the hazards tell them apart, and may shrink with h.
        discounts: to choose from where episodes end by themselves.
        alike: all hazards cost the same under the first constraint.
    """
    work, actions = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    places = work + hazards
    boldness = np.linspace(0, 1, actions)
    kinds = (1, 1) if neutral else (places, 1 if rng.random() < 0.5 else actions)
    onwards = np.zeros((places, actions, places))
    onwards[..., :work] = rng.dirichlet(np.ones(work), size=kinds)
    struck = np.eye(places)[work:]
    careful = rng.uniform(-0.6 if neutral else 0.05, 0.6 if neutral else 0.3, (places, 1, 1 if alike else hazards))
    exposure = np.broadcast_to(careful + boldness[:, None] * (1 - careful), (places, actions, hazards))  # bold: in full
    if alike:
        exposure = np.concatenate([np.ones((1, actions, hazards)), exposure[1:]])  # nobody gets past the first place
        exposure[work:], onwards[work:] = exposure[work], onwards[work]
    at_rest = rng.uniform(0.3, 0.4, hazards) / hazards if neutral else np.zeros(hazards)
    base = (1 - at_rest.sum()) * onwards + at_rest @ struck
    slope = np.stack([exposure[:, :, k, None] * (struck[k] - onwards) for k in range(hazards)])

    constraints = int(rng.integers(1, 4)) if not alike else 2
    cost = rng.uniform(0, 0.2, (constraints, places, 1)) + rng.uniform(0, 0.1, (constraints, 1, 1)) * boldness
    cost[:, work:] += rng.uniform(0.1, 1.0, (constraints, hazards, 1))
    if alike:
        cost[0, work:] = 1.0
    cost -= rng.uniform(0, 0.6) * (rng.random() < 0.4)  # some are paid for being careful
    cost *= 10.0 ** rng.uniform(-1, 1, (constraints, 1, 1))
    reward = rng.uniform(0, 0.2, (places, 1)) + boldness * rng.uniform(0.5, 1.0, (places, 1))
    start = np.append(rng.dirichlet(np.ones(work)), np.zeros(hazards))
    world = HazardWorld(base, slope, reward, cost, start, 0.0, 0, np.zeros(constraints))
    if rng.random() < (0.9 if neutral else 0.3):
        discount = float(rng.choice([0.5, 0.7, 0.8]))
        return replace(world, discount=discount, steps=theory.horizon(discount, NEGLIGIBLE / (1 - discount)))
    return replace(_unroll_layers(world, int(rng.integers(2, 5))), discount=float(rng.choice(discounts)))


def _unroll_layers(world: HazardWorld, layers: int) -> HazardWorld:
    """Every episode ends after `layers` steps, in a state that pays and costs nothing."""
    places, actions = world.reward.shape
    states = layers * places + 1

    def chained(kernel: Floats) -> Floats:
        chain = np.zeros((states, actions, states))
        for layer in range(layers - 1):
            here = slice(layer * places, (layer + 1) * places)
            chain[here, :, (layer + 1) * places : (layer + 2) * places] = kernel
        return chain

    base = chained(world.base)
    base[(layers - 1) * places :, :, -1] = 1.0
    stretched = [np.concatenate([*[table] * layers, np.zeros((1, actions))]) for table in (world.reward, *world.cost)]
    return replace(
        world,
        base=base,
        slope=np.stack([chained(kernel) for kernel in world.slope]),
        reward=stretched[0],
        cost=np.stack(stretched[1:]),
        start=np.append(world.start, np.zeros(states - places)),
        steps=layers,
    )


def with_safe_policy(
    world: HazardWorld, hazards: Floats, slack: float, cost_factors: Floats | None = None
) -> tuple[HazardWorld, Any]:
    """The policy that costs least where that is most, and budgets that it keeps by a hair on tasks of hazards [n, K].

    The hair is `slack` times what the boldest policy would cost more.
    """
    factors = np.ones(len(hazards)) if cost_factors is None else cost_factors
    possible = hazards / np.maximum(hazards.sum(axis=1, keepdims=True), 1.0)
    unlimited = replace(world, budget=_no_budget(world.cost, world.discount, world.horizon))
    each = [unlimited.task(strength, factor) for strength, factor in zip(possible, factors, strict=True)]
    scale = np.abs(world.cost).max(axis=(1, 2), keepdims=True)
    least = [solve(without_budgets(task, -(task.cost / scale).sum(axis=0))) for task in each]
    safe = least[int(np.argmin([solution.values.reward for solution in least]))].policy
    bold = solve(each[0]).policy
    spent, most = (
        np.max(
            [
                factor * _discounted_cost(world, policy, strength)
                for strength, factor in zip(hazards, factors, strict=True)
            ],
            0,
        )
        for policy in (safe, bold)
    )
    return replace(world, budget=spent + slack * np.maximum(most - spent, 1e-3 * np.abs(spent))), safe


def _discounted_cost(world: HazardWorld, policy: Any, hazards: Floats) -> Floats:
    """[m] discounted costs; by the same formula where the hazards are too large for a task."""
    if world.horizon is not None:
        return evaluate(world.task(hazards), policy).cost
    kernel = world.base + np.tensordot(hazards, world.slope, axes=1)
    chain = np.einsum("sa,sat->st", policy.probabilities, kernel)
    signals = np.einsum("sa,msa->sm", policy.probabilities, world.cost)
    spent: Floats = world.start @ np.linalg.solve(np.eye(len(chain)) - world.discount * chain, signals)
    return spent


def _no_budget(cost: Floats, discount: float, horizon: int | None) -> Floats:
    """[m] more than any policy can spend."""
    enough: Floats = 3 * np.abs(cost).max(axis=(1, 2)) * (horizon or 1 / (1 - discount))
    return enough


def without_budgets(task: TabularCMDP, reward: Floats) -> TabularCMDP:
    """The task with another reward and without budgets."""
    horizon = task.units.horizon
    enough = _no_budget(task.cost, task.discount, horizon)
    return TabularCMDP(task.transitions, reward, task.cost, enough, task.start, task.discount, horizon=horizon)
