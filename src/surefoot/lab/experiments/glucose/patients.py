"""One patient: what every method deployed day by day, and what that is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.bounds.cells import Cells
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task
from surefoot.lab.experiments.glucose.settings import KNOWN, Settings
from surefoot.lab.experiments.judging import STANDARD_ERRORS, Judge, best
from surefoot.lab.pump.family import glucose
from surefoot.learning.learner import Learner
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.streams import Stream

# Within a point of the budget values are wanted to 0.1 points (two standard errors), however clear it is.
NEAR, PRECISE = 0.01, 0.0005


@dataclass(frozen=True)
class Contender:
    """A method at a risk; runs at another risk than that of the experiment have a label of their own."""

    label: str
    method: str
    risk: float


@dataclass(frozen=True, eq=False)
class Lived:
    """Attributes:
    deployed: [c, D, P] by each contender on each day, the probabilities of the settings.
    mean, error: [P, 2] time in range and time below it under each of the settings, and standard errors.
    judged: [P] fresh days on which that was found out.
    possible: [P] the best mixture that keeps the budget, by `mean`.
    cell_known: [P] the best mixture that is certified on all cells whose bounds the patient keeps.
    """

    parameter: Floats
    deployed: Floats
    mean: Floats
    error: Floats
    judged: Integers
    possible: Floats
    cell_known: Floats


def live(
    policies: PolicyValueSet, contenders: Sequence[Contender], parameter: Floats, number: int, settings: Settings
) -> Lived:
    """Patient `number` with every contender, all of whom see the same days under the same settings."""
    task = glucose().task(parameter)
    seed = Stream.GLUCOSE_RUNS.seed(settings.seed, number)
    learners = [
        learner(policies, method=KNOWN[each.method], episodes=settings.days, risk=each.risk, seed=seed)
        for each in contenders
    ]
    days = Days(task, policies.policies, settings.days, seed)
    deployed = np.stack([day_by_day(each, days) for each in learners])
    judge = Judge(task, policies.policies, [settings.seed, Stream.GLUCOSE_EVALUATION, number], settings.judged_days)
    mixtures = np.unique(deployed.reshape(-1, deployed.shape[-1]), axis=0)
    judge.decide(mixtures, settings.most_judged_days, near=NEAR, precise=PRECISE)
    mean = judge.mean
    possible = best(float(task.units.budget[0]) - mean[None, :, 1], mean[:, 0])
    known = possible
    if policies.cells is not None:
        known = _cell_known(policies.cells, mean, judge.error, float(task.units.budget[0]))
    return Lived(parameter, deployed, mean, judge.error, judge.count, possible, known)


class Days:
    """The days that methods learn from, of one patient under each of the settings, drawn when they are first asked for.

    Whoever uses settings for the n-th time gets their n-th day.
    """

    def __init__(self, task: Task, policies: Sequence[Policy], days: int, seed: int) -> None:
        self.task, self.policies, self.days, self.seed = task, policies, days, seed
        self._drawn: dict[int, Outcomes] = {}

    def __call__(self, policy: int, number: int) -> Outcomes:
        """[1]"""
        if policy not in self._drawn:
            simulated = self.task.episodes(self.policies[policy], self.task.units.episode_length)
            rng = np.random.default_rng([self.seed, policy])
            self._drawn[policy] = simulated.run(self.days, rng, transitions=True)
        return self._drawn[policy][number : number + 1]


def day_by_day(learner: Learner, days: Days) -> Floats:
    """[D, P] the mixture deployed on each day."""
    weights, used = np.zeros((days.days, len(days.policies))), [0] * len(days.policies)
    for day in range(days.days):
        orders = learner.ask_block(1)
        policy = int(orders.drawn[0])
        weights[day, orders.deployed.indices] = orders.deployed.weights
        learner.tell_block(orders, days(policy, used[policy]))
        used[policy] += 1
    return weights


def _cell_known(cells: Cells, mean: Floats, error: Floats, budget: float) -> Floats:
    """[P] what the bounds alone allow: on all cells that hold the patient's values [P, 2], as far as these are known;
    of a patient whom none holds, the safe settings."""
    own, doubt = np.column_stack([mean[:, 0], budget - mean[:, 1]]), STANDARD_ERRORS * error
    holds = ((cells.lower <= own + doubt) & (cells.upper >= own - doubt)).all(axis=(1, 2))
    return best(cells.lower[holds, :, 1], mean[:, 0]) if holds.any() else np.eye(len(mean))[0]
