"""One patient: what every method deployed day by day, and what that is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task
from surefoot.experiments.glucose.settings import KNOWN, Settings
from surefoot.learning.certified.selection import best_mixture
from surefoot.learning.learner import Learner
from surefoot.methods import learner
from surefoot.policyset.cells import Cells
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tasks.glucose_tasks import glucose

# A mixture is called safe or unsafe if its time below range is so many standard errors from the budget.
STANDARD_ERRORS = 3.0
# Within a point of the budget values are wanted to 0.1 points (two standard errors), however clear it is.
NEAR, PRECISE = 0.01, 0.0005
JUDGE_STAGE = 7  # of random numbers, apart from those of the days that methods learn from


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
    seed = int(np.random.SeedSequence([settings.seed, 2, number]).generate_state(1)[0])
    learners = [
        learner(policies, method=KNOWN[each.method], episodes=settings.days, risk=each.risk, seed=seed)
        for each in contenders
    ]
    days = Days(task, policies.policies, settings.days, seed)
    deployed = np.stack([day_by_day(each, days) for each in learners])
    judge = Judge(task, policies.policies, [settings.seed, JUDGE_STAGE, number], settings.judged_days)
    judge.decide(np.unique(deployed.reshape(-1, deployed.shape[-1]), axis=0), settings.most_judged_days)
    mean = judge.mean
    possible = best(float(task.units.budget[0]) - mean[None, :, 1], mean[:, 0])
    known = possible
    if policies.cells is not None:
        known = _cell_known(policies.cells, mean, judge.error, float(task.units.budget[0]))
    return Lived(parameter, deployed, mean, judge.error, judge.days, possible, known)


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


class Judge:
    """Time in range and below it, of one patient under each of the settings, from fresh days.

    Settings are judged on the same days, as far as they have as many: what they differ by is known better.
    """

    def __init__(self, task: Task, policies: Sequence[Policy], seed: list[int], days: int) -> None:
        self.task, self.policies, self.seed = task, policies, seed
        self.days: Integers = np.zeros(len(policies), dtype=np.int64)
        self._rounds = np.zeros(len(policies), dtype=np.int64)
        self._sums, self._squares = np.zeros((2, len(policies), 2))
        for policy in range(len(policies)):
            self._watch(policy, days)

    @property
    def mean(self) -> Floats:
        """[P, 2]"""
        mean: Floats = self._sums / self.days[:, None]
        return mean

    @property
    def error(self) -> Floats:
        """[P, 2] one standard error of each mean."""
        days = self.days[:, None]
        variance = np.maximum(self._squares / days - self.mean**2, 0.0) / np.maximum(days - 1, 1)
        error: Floats = np.sqrt(variance)
        return error

    def decide(self, mixtures: Floats, most: int) -> None:
        """Watch more days, at most so many of each settings, until mixtures [n, P] are known as wanted."""
        while True:
            cost, error = mixtures @ self.mean[:, 1], mixtures @ self.error[:, 1]
            distance = np.abs(cost - self.task.units.budget[0])
            open_now = (distance <= STANDARD_ERRORS * error) | ((distance <= NEAR) & (error > PRECISE))
            doubt = (mixtures[open_now] * self.error[:, 1] * (self.days < most)).max(axis=0, initial=0.0)
            if not doubt.any():
                return
            policy = int(doubt.argmax())
            self._watch(policy, int(min(self.days[policy], most - self.days[policy])))

    def _watch(self, policy: int, days: int) -> None:
        rng = np.random.default_rng([*self.seed, int(self._rounds[policy])])
        outcomes = self.task.episodes(self.policies[policy], self.task.units.episode_length).run(days, rng)
        numbers = np.column_stack([outcomes.reward, outcomes.cost])
        self._sums[policy] += numbers.sum(axis=0)
        self._squares[policy] += (numbers**2).sum(axis=0)
        self._rounds[policy] += 1
        self.days[policy] += days


def best(margin: Floats, reward: Floats) -> Floats:
    """[P] the mixture of the largest reward [P] whose margins [R, P] are all kept."""
    found = best_mixture(margin, reward)
    weights = np.zeros(len(reward))
    weights[found.indices] = found.weights
    return weights


def _cell_known(cells: Cells, mean: Floats, error: Floats, budget: float) -> Floats:
    """[P] what the bounds alone allow: on all cells that hold the patient's values [P, 2], as far as these are known;
    of a patient whom none holds, the safe settings."""
    own, doubt = np.column_stack([mean[:, 0], budget - mean[:, 1]]), STANDARD_ERRORS * error
    holds = ((cells.lower <= own + doubt) & (cells.upper >= own - doubt)).all(axis=(1, 2))
    return best(cells.lower[holds, :, 1], mean[:, 0]) if holds.any() else np.eye(len(mean))[0]
