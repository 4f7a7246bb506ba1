"""Random families of small tasks, of every kind that can be trained for: on these the promise is counted.

All are variations of one world. Bold actions pay and expose to hazards; hazards cost; how strong the hazards are is
what a task is about. A kind says how the hazards h depend on the parameter θ and how θ is distributed. Everything else
is drawn: places, actions, constraints, rewards, costs (also negative), discount, and whether episodes end by
themselves. The safe policy keeps the budgets on the worst task by a hair, so that an error is punished.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.bounds.envelopes import build_cells, safe_policy_risk
from surefoot.bounds.settings import Envelopes
from surefoot.errors import Infeasible
from surefoot.lab.experiments.promise.simplex import UniformSimplex
from surefoot.lab.experiments.promise.world import HazardWorld, random_world, with_safe_policy, without_budgets
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
        digest, failing = (
            self.tasks.digest(),
            safe_policy_risk(self.tasks, self.safe, seed=0, envelopes=self._envelopes),
        )
        return PolicyValueSet(
            tuple(entries), self.safe, self.tasks.units, 0.01, 0.05, 0.0, digest, {}, {}, safe_risk=failing
        )


def random_family(kind: str, rng: np.random.Generator) -> RandomFamily:
    """A family of this kind, one of `KINDS`."""
    return KINDS[kind](kind, rng)


# --------------------------------------------------------------------------------------------------------------- kinds


def affine_box(kind: str, rng: np.random.Generator) -> RandomFamily:
    """One to three parameters in units of order one, on a box."""
    return _affine(kind, rng, dimension=int(rng.choice([1, 1, 2, 3])), unit=1.0, neutral=False)


def small_units(kind: str, rng: np.random.Generator) -> RandomFamily:
    """Parameters of order 1e-9 to 1e-3."""
    return _affine(kind, rng, int(rng.integers(1, 3)), 10.0 ** rng.integers(-9, -2), neutral=bool(rng.random() < 0.5))


def large_units(kind: str, rng: np.random.Generator) -> RandomFamily:
    """Parameters of order 1e3 to 1e12."""
    unit = 10.0 ** int(rng.choice([3, 9, 11, 12, 12, 12]))
    return _affine(kind, rng, int(rng.integers(1, 3)), unit, neutral=bool(rng.random() < 0.75))


def triangle(kind: str, rng: np.random.Generator) -> RandomFamily:
    """Finitely many hazards whose sum must not exceed 1: most of the box around them holds no task."""
    points = rng.dirichlet(np.ones(3), size=60)[:, :2]
    on_edge = rng.random(60) < rng.choice([0.3, 0.7, 1.0])
    total = np.where(on_edge, 1 - 1e-4, points.sum(axis=1))
    points = np.vstack([points * (total / points.sum(axis=1))[:, None], [[0, 0], [1 - 1e-4, 0], [0, 1 - 1e-4]]])
    unit = _unit_for_simplex(rng)
    return _on_simplex(kind, rng, unit, Finite(unit * points))


def simplex(kind: str, rng: np.random.Generator) -> RandomFamily:
    """Weights of a mixture of kernels, uniform on the simplex: a distribution that the library does not know."""
    unit = _unit_for_simplex(rng)
    return _on_simplex(kind, rng, unit, UniformSimplex(int(rng.choice([2, 2, 3])), unit))


def smooth(kind: str, rng: np.random.Generator) -> RandomFamily:
    """Hazards that are logistic or sine functions of the parameter."""
    return _smooth(kind, rng, cost_varies=False)


def smooth_costs(kind: str, rng: np.random.Generator) -> RandomFamily:
    """The same, and costs depend on the parameter too."""
    return _smooth(kind, rng, cost_varies=True)


def finite(kind: str, rng: np.random.Generator) -> RandomFamily:
    """A few tasks of their own, in no order."""
    return _finite_family(kind, rng, int(rng.integers(4, 15)), spread=1.0)


def one_question(kind: str, rng: np.random.Generator) -> RandomFamily:
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
    tasks = family(task, Finite([*range(copies), 4000.0], weights))
    return _with_candidates(kind, rng, tasks, world, safe, copies)


def near_identical(kind: str, rng: np.random.Generator) -> RandomFamily:
    """Many tasks that can hardly be told apart."""
    return _finite_family(kind, rng, int(rng.integers(15, 41)), spread=float(rng.choice([0.003, 0.03, 0.2])))


def with_horizon(kind: str, rng: np.random.Generator) -> RandomFamily:
    """Two to six steps without discount, and hazards that are affine in one parameter, declared or found out."""
    hazards = int(rng.integers(1, 3))
    world = random_world(rng, hazards, neutral=False, discounts=PATIENT)
    steps = min(world.steps, int(rng.integers(2, 7)))
    world = replace(world, discount=1.0, steps=steps, horizon=steps)
    low, reach = rng.uniform(0.1, 0.2, hazards) / hazards, rng.uniform(0.1, 0.3, hazards) / hazards
    world, safe = with_safe_policy(world, low + np.linspace(0, 1, 9)[:, None] * reach, float(rng.choice([0.01, 0.05])))

    def task(parameter: Floats) -> TabularCMDP:
        return world.task(low + parameter[0] * reach)

    affine = world.base + np.tensordot(low, world.slope, axes=1), np.tensordot(reach, world.slope, axes=1)[None]
    tasks = family(task, Uniform(0.0, 1.0), affine=affine if rng.random() < 0.5 else None)
    return _with_candidates(kind, rng, tasks, world, safe, 60)


Kind = Callable[[str, np.random.Generator], RandomFamily]
KINDS: dict[str, Kind] = {
    "affine": affine_box,
    "affine, small units": small_units,
    "affine, large units": large_units,
    "triangle of points": triangle,
    "simplex": simplex,
    "non-affine": smooth,
    "non-affine costs": smooth_costs,
    "finite": finite,
    "near-identical": near_identical,
    "one question": one_question,
    "horizon": with_horizon,
}


def _affine(kind: str, rng: np.random.Generator, dimension: int, unit: float, neutral: bool) -> RandomFamily:
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
    return _with_candidates(kind, rng, family(task, distribution, affine=(base, slope)), world, safe, cells)


def _unit_for_simplex(rng: np.random.Generator) -> float:
    return float(10.0 ** rng.integers(-9, 7))


def _on_simplex(kind: str, rng: np.random.Generator, unit: float, distribution: ParameterDistribution) -> RandomFamily:
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
    return _with_candidates(kind, rng, tasks, world, safe, per_axis**dimension)


def _smooth(kind: str, rng: np.random.Generator, cost_varies: bool) -> RandomFamily:
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

    return _with_candidates(kind, rng, family(task, distribution), world, safe, {1: 100, 2: 120}[dimension])


def _finite_family(kind: str, rng: np.random.Generator, count: int, spread: float) -> RandomFamily:
    hazards = int(rng.integers(1, 3))
    world = random_world(rng, hazards, neutral=False, discounts=PATIENT)
    around = rng.uniform(0.1, 0.3, hazards) / hazards
    strengths = around * (1 + spread * rng.uniform(-0.5, 0.5, (count, hazards)))
    world, safe = with_safe_policy(world, strengths, float(rng.choice([0.001, 0.01, 0.05, 0.3])))
    tasks = from_arrays([world.task(strength) for strength in strengths], rng.dirichlet(np.ones(count)))
    return _with_candidates(kind, rng, tasks, world, safe, count)


def _expandable(dimension: int, neutral: bool) -> tuple[float, ...]:
    """Discounts for which boxes of the size in use are small enough for bounds (ρ < 1)."""
    return PATIENT[:1] if dimension > 1 else PATIENT[:2] if neutral else PATIENT


def _signs(rng: np.random.Generator, hazards: int, dimension: int) -> Floats:
    """[K, d] the first hazard grows with every parameter, another may fall."""
    signs = np.where(rng.random((hazards, dimension)) < 0.3, -1.0, 1.0)
    signs[0] = 1.0
    return signs


def _with_candidates(
    kind: str, rng: np.random.Generator, tasks: TaskDistribution, world: HazardWorld, safe: Any, cells: int
) -> RandomFamily:
    """Optima of a few tasks, which break the budgets of more dangerous ones, and a policy that knows no budget."""
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
