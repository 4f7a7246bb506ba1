"""Random families of small tasks, of every kind that can be trained for: on these the promise is counted.

All are variations of one world. Bold actions pay and expose to hazards; hazards cost; how strong the hazards are is
what a task is about. A kind says how the hazards h depend on the parameter θ and how θ is distributed. Everything else
is drawn: places, actions, constraints, rewards, costs (also negative), discount, and whether episodes end by
themselves. The safe policy keeps the budgets on the worst task by a hair, so that an error is punished.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from surefoot import theory
from surefoot.arrays import Floats
from surefoot.bounds.envelopes import build_cells, safe_policy_risk
from surefoot.bounds.settings import Envelopes
from surefoot.cmdp.units import NEGLIGIBLE
from surefoot.errors import Infeasible
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.solve import solve
from surefoot.tasks.distribution import Finite, Normal, ParameterDistribution, Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family, from_arrays

CANDIDATES = 4  # tasks whose optima are candidates
PATIENT = (0.9, 0.99, 0.995)  # discounts of tasks whose episodes end by themselves
# Envelopes from held-out tasks: few of them, so that a family takes a second.
HOLDOUT, UNCOVERED = 199, 0.02


@dataclass(frozen=True, eq=False)
class RandomFamily:
    """A family, who is safe on it and who may not be, and how finely it is to be divided."""

    kind: str
    tasks: TaskDistribution
    safe: Any  # a TabularPolicy, or with a horizon a TimedPolicy
    candidates: tuple[Any, ...]
    parameters: Floats  # [n, d] tasks that the candidates are optimal for
    cells: int
    steps: int

    def policies(self) -> PolicyValueSet:
        """The policy set with its envelopes, without the cover that `train` would look for.

        Raises:
            InvalidInput: no envelopes can be had for this family.
        """
        cells = build_cells(self.tasks, [self.safe, *self.candidates], seed=0, envelopes=self._envelopes)
        return replace(self.without_cells(), cells=cells)

    @property
    def _envelopes(self) -> Envelopes:
        return Envelopes(cells=self.cells, holdout=HOLDOUT, uncovered=UNCOVERED)

    def without_cells(self) -> PolicyValueSet:
        entries = []
        for parameter, policy in zip(self.parameters, self.candidates, strict=True):
            task = self.tasks.task(parameter)
            best, safe = evaluate(task, policy), evaluate(task, self.safe)
            entries.append(Entry(parameter, policy, best.reward, best.margin, safe.reward, safe.margin))
        failing = safe_policy_risk(self.tasks, self.safe, seed=0, envelopes=self._envelopes)
        return PolicyValueSet(
            tuple(entries), self.safe, self.tasks.units, 0.01, 0.05, 0.0, self.tasks.digest(), {}, {}, safe_risk=failing
        )


def random_family(kind: str, rng: np.random.Generator) -> RandomFamily:
    """A family of this kind, one of `KINDS`, with candidates: optima of a few tasks, which break the budgets of more
    dangerous ones, and a policy that knows no budget."""
    tasks, world, safe, cells = KINDS[kind](rng)
    parameters, found = [], []
    for parameter in tasks.sample(CANDIDATES, rng):
        try:
            found.append(solve(tasks.task(parameter)).policy)
        except Infeasible:
            continue
        parameters.append(parameter)
    example = tasks.task(tasks.sample(1, rng)[0])
    found.append(solve(without_budgets(example, example.reward)).policy)
    parameters.append(tasks.sample(1, rng)[0])
    return RandomFamily(kind, tasks, safe, tuple(found), np.array(parameters), cells, world.steps)


# --------------------------------------------------------------------------------------------------------------- kinds


class TasksAndSafePolicy(NamedTuple):
    """What a kind draws; `cells` says how finely the tasks are to be divided."""

    tasks: TaskDistribution
    world: HazardWorld
    safe: Any
    cells: int


def affine(rng: np.random.Generator, dimension: int, unit: float, *, neutral: bool) -> TasksAndSafePolicy:
    """Hazards that are affine in the parameters, which are of order `unit`."""
    hazards = dimension if dimension > 1 else int(rng.integers(1, 3))
    world = random_world(rng, hazards, neutral=neutral, discounts=_expandable(dimension, neutral))
    low: Floats = rng.uniform(0.1, 0.2, hazards) / hazards
    reach = rng.uniform(0.1, 0.3, (hazards, dimension)) / hazards / dimension * _signs(rng, hazards, dimension)
    if neutral:
        low, reach = np.zeros(hazards), rng.uniform(0.3, 0.5, (hazards, dimension)) / hazards / dimension
    low = low - np.minimum(reach, 0).sum(axis=1)
    origin = 0.0 if neutral else float(rng.choice([0.0, -1.0, 2.5]))
    base = world.base + np.tensordot(low - origin * reach.sum(axis=1), world.slope, axes=1)
    slope = np.tensordot(reach.T / unit, world.slope, axes=1)
    ends = unit * np.full(dimension, origin), unit * np.full(dimension, origin + 1)
    distribution: ParameterDistribution = Uniform(*ends)
    if rng.random() < 0.5:
        middle, how = (ends[0] + ends[1]) / 2, rng.choice(["clipped", "truncated"])
        distribution = Normal(middle, std=unit * rng.uniform(0.2, 0.6), low=ends[0], high=ends[1], how=how)
    corners = np.array(list(product((0.0, 0.5, 1.0), repeat=dimension)))
    slack = float(rng.choice([0.001, 0.01, 0.05])) if dimension == 1 else float(rng.choice([0.05, 0.1, 0.2]))
    world, safe = with_safe_policy(world, low + corners @ reach.T, slack)

    def task(parameter: Floats) -> TabularCMDP:
        return replace(world, base=base, slope=slope).task(parameter)

    cells = {1: 100, 2: 196, 3: 216}[dimension]
    return TasksAndSafePolicy(family(task, distribution, affine=(base, slope)), world, safe, cells)


def _expandable(dimension: int, neutral: bool) -> tuple[float, ...]:
    """Discounts for which boxes of the size in use are small enough for bounds (ρ < 1)."""
    return PATIENT[:1] if dimension > 1 else PATIENT[:2] if neutral else PATIENT


def _signs(rng: np.random.Generator, hazards: int, dimension: int) -> Floats:
    """[K, d] the first hazard grows with every parameter, another may fall."""
    signs = np.where(rng.random((hazards, dimension)) < 0.3, -1.0, 1.0)
    signs[0] = 1.0
    return signs


def large_units(rng: np.random.Generator) -> TasksAndSafePolicy:
    """Parameters of order 1e3 to 1e12."""
    unit = 10.0 ** int(rng.choice([3, 9, 11, 12, 12, 12]))
    return affine(rng, int(rng.integers(1, 3)), unit, neutral=bool(rng.random() < 0.75))


def triangle(rng: np.random.Generator) -> TasksAndSafePolicy:
    """Finitely many hazards whose sum must not exceed 1: most of the box around them holds no task."""
    points = rng.dirichlet(np.ones(3), size=60)[:, :2]
    on_edge = rng.random(60) < rng.choice([0.3, 0.7, 1.0])
    total = np.where(on_edge, 1 - 1e-4, points.sum(axis=1))
    points = np.vstack([points * (total / points.sum(axis=1))[:, None], [[0, 0], [1 - 1e-4, 0], [0, 1 - 1e-4]]])
    unit = float(10.0 ** rng.integers(-9, 7))
    return on_simplex(rng, unit, Finite(unit * points))


def simplex(rng: np.random.Generator) -> TasksAndSafePolicy:
    """Weights of a mixture of kernels, uniform on the simplex: a distribution that the library does not know."""
    unit = float(10.0 ** rng.integers(-9, 7))
    return on_simplex(rng, unit, UniformSimplex(int(rng.choice([2, 2, 3])), unit))


def on_simplex(rng: np.random.Generator, unit: float, distribution: ParameterDistribution) -> TasksAndSafePolicy:
    """Full exposure to hazards that sum to at most 1; the budget ends close beyond, so that boxes there are unsafe."""
    dimension = distribution.dimension
    world = random_world(rng, dimension, neutral=False, discounts=(0.5, 0.7, 0.8), alike=True)
    if dimension == 3:  # boxes as coarse as six to an axis are small enough for bounds at this discount only (ρ < 1)
        world = replace(world, discount=0.5)
    slope = world.slope / unit
    per_axis = {2: 14, 3: 6}[dimension]
    beyond = 1 + rng.uniform(1.1, 1.8) / per_axis  # boxes across the edge are to be safe, those behind them not
    world, safe = with_safe_policy(world, beyond * np.eye(dimension), 0.0)

    def task(parameter: Floats) -> TabularCMDP:
        return replace(world, slope=slope).task(parameter)

    tasks = family(task, distribution, affine=(world.base, slope))
    return TasksAndSafePolicy(tasks, world, safe, per_axis**dimension)


def smooth(rng: np.random.Generator, *, cost_varies: bool) -> TasksAndSafePolicy:
    """Hazards that are logistic or sine functions of the parameter; costs may depend on it too."""
    dimension, hazards, unit = int(rng.choice([1, 1, 2])), int(rng.integers(1, 3)), 10.0 ** rng.integers(-9, 13)
    world = random_world(rng, hazards, neutral=False, discounts=PATIENT)
    world = replace(world, largest_factor=1.3 if cost_varies else 1.0)
    low, reach = rng.uniform(0.1, 0.2, hazards) / hazards, rng.uniform(0.1, 0.3, hazards) / hazards
    direction, waves = rng.uniform(0.5, 1.5, (hazards, dimension)), bool(rng.random() < 0.5)

    def strength(parameter: Floats) -> Floats:
        lean = direction @ (parameter / unit - 0.5)
        share = (1 + np.sin(3 * lean)) / 2 if waves else 1 / (1 + np.exp(-4 * lean))
        strong: Floats = low + reach * share
        return strong

    def factor(parameter: Floats) -> float:
        return float(1 + 0.3 * np.sin(3 * parameter.sum() / unit)) if cost_varies else 1.0

    distribution = Uniform(np.zeros(dimension), np.full(dimension, unit))
    probes = distribution.sample(60, rng)
    worst = np.array([strength(probe) for probe in probes])
    factors = np.array([factor(probe) for probe in probes])
    world, safe = with_safe_policy(world, worst, float(rng.choice([0.03, 0.1])), factors)

    def task(parameter: Floats) -> TabularCMDP:
        return world.task(strength(parameter), factor(parameter))

    return TasksAndSafePolicy(family(task, distribution), world, safe, {1: 100, 2: 120}[dimension])


def finite(rng: np.random.Generator, count: int, spread: float) -> TasksAndSafePolicy:
    """So many tasks of their own, in no order; the less they are spread, the harder they are to tell apart."""
    hazards = int(rng.integers(1, 3))
    world = random_world(rng, hazards, neutral=False, discounts=PATIENT)
    around = rng.uniform(0.1, 0.3, hazards) / hazards
    strengths = around * (1 + spread * rng.uniform(-0.5, 0.5, (count, hazards)))
    world, safe = with_safe_policy(world, strengths, float(rng.choice([0.001, 0.01, 0.05, 0.3])))
    tasks = from_arrays([world.task(strength) for strength in strengths], rng.dirichlet(np.ones(count)))
    return TasksAndSafePolicy(tasks, world, safe, count)


def one_question(rng: np.random.Generator) -> TasksAndSafePolicy:
    """Nearly always one dangerous task, else one of many copies of a harmless one: a test of two hypotheses.

    A task far away makes all others close to each other, so that the copies are almost all of the alternatives.
    """
    copies, hazards = int(rng.integers(15, 25)), int(rng.integers(1, 3))
    world = random_world(rng, hazards, neutral=False, discounts=PATIENT)
    harmful = rng.uniform(0.15, 0.3, hazards) / hazards
    harmless = harmful * rng.uniform(0.4, 0.8)
    world, safe = with_safe_policy(world, harmful[None], float(rng.choice([0.01, 0.05])))

    def task(parameter: Floats) -> TabularCMDP:
        return world.task(harmful if parameter[0] == copies // 2 else harmless)

    weights = np.full(copies + 1, 0.02 / (copies - 1))
    weights[copies // 2], weights[-1] = 0.96, 0.02
    return TasksAndSafePolicy(family(task, Finite([*range(copies), 4000.0], weights)), world, safe, copies)


def with_horizon(rng: np.random.Generator) -> TasksAndSafePolicy:
    """Two to six steps without discount, and hazards that are affine in one parameter, declared or found out."""
    hazards = int(rng.integers(1, 3))
    world = random_world(rng, hazards, neutral=False, discounts=PATIENT)
    steps = min(world.steps, int(rng.integers(2, 7)))
    world = replace(world, discount=1.0, steps=steps, horizon=steps)
    low, reach = rng.uniform(0.1, 0.2, hazards) / hazards, rng.uniform(0.1, 0.3, hazards) / hazards
    world, safe = with_safe_policy(world, low + np.linspace(0, 1, 9)[:, None] * reach, float(rng.choice([0.01, 0.05])))

    def task(parameter: Floats) -> TabularCMDP:
        return world.task(low + parameter[0] * reach)

    tables = world.base + np.tensordot(low, world.slope, axes=1), np.tensordot(reach, world.slope, axes=1)[None]
    tasks = family(task, Uniform(0.0, 1.0), affine=tables if rng.random() < 0.5 else None)
    return TasksAndSafePolicy(tasks, world, safe, 60)


KINDS: Mapping[str, Callable[[np.random.Generator], TasksAndSafePolicy]] = {
    "affine": lambda rng: affine(rng, int(rng.choice([1, 1, 2, 3])), 1.0, neutral=False),
    "affine, small units": lambda rng: affine(
        rng, int(rng.integers(1, 3)), 10.0 ** rng.integers(-9, -2), neutral=bool(rng.random() < 0.5)
    ),
    "affine, large units": large_units,
    "triangle of points": triangle,
    "simplex": simplex,
    "non-affine": lambda rng: smooth(rng, cost_varies=False),
    "non-affine costs": lambda rng: smooth(rng, cost_varies=True),
    "finite": lambda rng: finite(rng, int(rng.integers(4, 15)), spread=1.0),
    "near-identical": lambda rng: finite(rng, int(rng.integers(15, 41)), spread=float(rng.choice([0.003, 0.03, 0.2]))),
    "one question": one_question,
    "horizon": with_horizon,
}


# ------------------------------------------------------------------------------------------------------------ the world


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


@dataclass(frozen=True)
class UniformSimplex:
    """Uniform on {θ ≥ 0, Σ θ ≤ unit} in `dimension` coordinates."""

    dimension: int
    unit: float = 1.0

    @property
    def support(self) -> Floats:
        return np.tile([0.0, self.unit], (self.dimension, 1))

    def sample(self, n: int, rng: np.random.Generator) -> Floats:
        return self.unit * rng.dirichlet(np.ones(self.dimension + 1), size=n)[:, :-1]

    def mass(self, low: ArrayLike, high: ArrayLike) -> float:
        """P(low ≤ θ ≤ high) from the distribution function, by inclusion and exclusion over the corners."""
        ends = np.clip(np.array([low, high], dtype=np.float64) / self.unit, 0.0, 1.0)
        corners = product((0, 1), repeat=self.dimension)
        total = sum(
            (-1.0) ** (self.dimension - sum(corner)) * self._below(ends[list(corner), range(self.dimension)])
            for corner in corners
        )
        return float(np.clip(total, 0.0, 1.0))

    def probes(self) -> Floats:
        """The corners and the centre."""
        corners = np.vstack([np.zeros(self.dimension), np.eye(self.dimension)])
        return self.unit * np.vstack([corners, corners.mean(axis=0)])

    def describe(self) -> dict[str, Any]:
        return {"kind": "uniform simplex", "dimension": self.dimension, "unit": self.unit}

    def _below(self, corner: Floats) -> float:
        """P(θ ≤ corner) = Σ over subsets A of (-1)^|A| (1 - Σ_A corner)₊^d, for unit 1."""
        chosen = np.array(list(product((0, 1), repeat=self.dimension)))
        rest = np.maximum(1 - chosen @ corner, 0.0) ** self.dimension
        return float(((-1.0) ** chosen.sum(axis=1)) @ rest)
