"""One policy for all tasks by caution where models disagree (extra `control`).

SPiDR (As et al. 2025, arXiv 2509.18648): a policy is trained on one nominal task only. At every step the same action is
tried, from the same state, in other models of the family, and where these disagree about what is observed next, the
cost is raised: a policy that keeps its budget then stays where all models are alike. The paper bounds the cost on the
real system by a multiple of the disagreement that nobody knows; here that multiple is searched for, and what is found
is tested on fresh episodes of every task. Tasks that differ in what is paid alone do not disagree: there this is of no
use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from surefoot.arrays import Floats, Mask, number, whole
from surefoot.cmdp.units import Units
from surefoot.cmdp.world import Actions, ForeseeingWorld, Foresight, Shapes, Stepped, World
from surefoot.control.crpo import crpo
from surefoot.errors import InvalidInput
from surefoot.oracles.interface import FeasibleOracle, FeasiblePolicy
from surefoot.oracles.learned import RETRIES, Course, Schooling, side_by_side, tightened, trained_and_tested
from surefoot.tasks.task_distribution import TaskDistribution

MODELS, MOST = 32, 1000.0  # as published
# Where no weight is given: how often one is tried, 0 at first; the penalties of the next one, were the policy to stay
# as it is, as a part of the budget; and by which factor it then grows.
WEIGHTS, FIRST, FACTOR = 6, 0.5, 3.0


def uncertainty_penalised_policy(
    schooling: Schooling | None = None,
    *,
    weight: float | None = None,
    models: int = MODELS,
    family: TaskDistribution | None = None,
    most: float = MOST,
) -> FeasibleOracle:
    """O_s: one policy, trained on the task in the middle with costs raised by weight · `disagreement`.

    With probability 1-δ it is ξ-feasible on all tasks given: tested on fresh episodes.

    Args:
        schooling: `crpo` unless it says otherwise.
        weight: λ, in units of cost per squared unit of observation. A policy that fails with it is trained further, on
            a smaller budget. If None, larger and larger ones are tried until the policy is feasible, beginning with 0.
        models: in which steps are tried.
        family: from which models are drawn; from the tasks given if None.
        most: largest disagreement that counts.
    """
    rules = schooling or Schooling(update=crpo())
    given = None if weight is None else number("weight", weight)
    whole("models", models)

    def feasible(tasks: Sequence[Any], xi: float | None, delta: float, rng: np.random.Generator) -> FeasiblePolicy:
        if not len(tasks):
            raise InvalidInput("tasks must hold at least one task, got none")
        needed = tasks[0].units.user_margin(xi or 0.0)
        plain = side_by_side([_middle(tasks)], needed, rules)
        if not isinstance(plain.world, ForeseeingWorld):
            raise InvalidInput(
                "tasks must be such that their worlds know what other models would do (ForeseeingWorld), got tasks of "
                f"{type(tasks[0]).__name__}"
            )
        foresight = plain.world.foresight(_models(tasks, family, models, rng))
        course = plain._replace(world=PenalisedWorld(plain.world, foresight, given or 0.0, most))
        harder, tries = (_heavier, WEIGHTS) if given is None else (tightened, RETRIES)
        return trained_and_tested(tasks, needed, delta, rules, rng, course=course, harder=harder, retries=tries)[1]

    return feasible


def disagreement(observations: Floats) -> Floats:
    """[n] the variance over k models of what they show next [k, n, o], its mean over the o numbers that they show."""
    apart = observations - observations[0]  # so that models that agree do so without rounding
    variance: Floats = apart.var(axis=0).mean(axis=-1)
    return variance


class PenalisedWorld:
    """A world whose steps cost `weight` times what models disagree by, besides: each of its costs alike.

    Penalties weigh γ^t in the sums, γ being the discount of the units.

    Attributes:
        disagreement: the mean so far.
    """

    def __init__(self, world: World, foresight: Foresight, weight: float, most: float = MOST) -> None:
        self.world, self.weight = world, weight
        self._foresight, self._most = foresight, most
        self._time, self._penalties = np.zeros(world.lanes, np.int64), np.zeros(world.lanes)
        self._seen, self._steps = 0.0, 0

    @property
    def lanes(self) -> int:
        return self.world.lanes

    @property
    def shapes(self) -> Shapes:
        return self.world.shapes

    @property
    def units(self) -> Units:
        return self.world.units

    @property
    def disagreement(self) -> float:
        return self._seen / max(self._steps, 1)

    def begin(self, lanes: Mask, rng: np.random.Generator) -> Floats:
        self._time[lanes], self._penalties[lanes] = 0, 0.0
        return self.world.begin(lanes, rng)

    def step(self, actions: Actions) -> Stepped:
        apart = np.minimum(disagreement(self._foresight(actions)), self._most)
        step = self.world.step(actions)
        self._penalties += self.units.discount**self._time * self.weight * apart
        self._time += 1
        self._seen, self._steps = self._seen + float(apart.sum()), self._steps + self.lanes
        sums = step.sums.copy()
        sums[:, 1:] += self._penalties[:, None]
        return step._replace(cost=step.cost + self.weight * apart[:, None], sums=sums)

    def heavier(self) -> PenalisedWorld:
        """The same with the next weight of the search."""
        units = self.units
        even = float(np.abs(units.rate * units.budget).max()) or float(units.cost_scale.max())
        weight = FACTOR * self.weight or FIRST * even / self.disagreement
        return PenalisedWorld(self.world, self._foresight, weight, self._most)


# ------------------------------------------------------------------------------------------------- parts, in call order


def _middle(tasks: Sequence[Any]) -> Any:
    """The task whose parameter is nearest to the mean, each coordinate in units of its spread."""
    parameters = np.array([task.parameter for task in tasks])
    spread = np.ptp(parameters, axis=0)
    apart = np.abs(parameters - parameters.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return tasks[int(np.argmin(apart.max(axis=1)))]


def _models(
    tasks: Sequence[Any], family: TaskDistribution | None, count: int, rng: np.random.Generator
) -> Sequence[Any]:
    """Drawn from the family, or else from the tasks: all of them if there are no more."""
    if family is not None:
        return [family.task(parameter) for parameter in family.sample(count, rng)]
    if len(tasks) <= count:
        return tasks
    return [tasks[k] for k in rng.choice(len(tasks), count, replace=False)]


def _heavier(course: Course, lacking: Floats) -> Course:
    """Larger penalties; where models never disagree, these would be 0 for ever, and the budget is smaller instead."""
    world = course.world
    if not isinstance(world, PenalisedWorld) or not world.disagreement:
        return tightened(course, lacking)
    return course._replace(world=world.heavier())
