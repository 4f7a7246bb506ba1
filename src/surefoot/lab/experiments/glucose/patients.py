"""One patient: what every method deployed day by day, and what that is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from surefoot.arrays import Floats
from surefoot.bounds.cells import Cells
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task
from surefoot.lab.experiments.glucose.settings import KNOWN, GlucoseSettings
from surefoot.lab.experiments.judging import STANDARD_ERRORS, Judge, JudgedTask, best
from surefoot.lab.pump.family import glucose
from surefoot.learning.learner import Learner
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.simulate.pool import EpisodePool, EpisodeStream
from surefoot.simulate.runner import ask_and_tell
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
class Lived(JudgedTask):
    """A patient: rewards are times in range, costs times below it.

    Attributes:
        deployed: [c, D, P] by each contender on each day, the probabilities of the settings.
        cell_known: [P] the best mixture that is certified on all cells whose bounds the patient keeps.
    """

    deployed: Floats
    cell_known: Floats


def live(
    policies: PolicyValueSet, contenders: Sequence[Contender], parameter: Floats, number: int, settings: GlucoseSettings
) -> Lived:
    """Patient `number` with every contender, all of whom see the same days under the same settings."""
    task = glucose().task(parameter)
    seed = Stream.GLUCOSE_RUNS.seed(settings.seed, number)
    learners = [
        learner(policies, method=KNOWN[each.method], episodes=settings.days, risk=each.risk, seed=seed)
        for each in contenders
    ]
    days = day_streams(task, policies.policies, settings.days, seed)
    deployed = np.stack([day_by_day(each, days, settings.days, len(policies.policies)) for each in learners])
    judge = Judge(task, policies.policies, [settings.seed, Stream.GLUCOSE_EVALUATION, number], settings.judged_days)
    mixtures = np.unique(deployed.reshape(-1, deployed.shape[-1]), axis=0)
    judge.decide(mixtures, settings.most_judged_days, near=NEAR, precise=PRECISE)
    mean = judge.mean
    possible = best(float(task.units.budget[0]) - mean[None, :, 1], mean[:, 0])
    known = possible
    if policies.cells is not None:
        known = _best_within_cells(policies.cells, mean, judge.error, float(task.units.budget[0]))
    return Lived(parameter, mean, judge.error, judge.count, possible, deployed, known)


def day_streams(task: Task, policies: Sequence[Policy], days: int, seed: int) -> Callable[[int], EpisodeStream]:
    """The days that methods learn from, of one patient under each of the settings, simulated when first asked for."""

    @cache
    def stream(policy: int) -> EpisodeStream:
        simulated = task.episodes(policies[policy], task.units.episode_length)
        return EpisodeStream(simulated, np.random.default_rng([seed, policy]), [days], order=np.arange(days))

    return stream


def day_by_day(learner: Learner, stream: Callable[[int], EpisodeStream], days: int, policies: int) -> Floats:
    """[D, P] the mixture deployed on each day."""
    weights = np.zeros((days, policies))
    for begin, deployed in ask_and_tell(learner, EpisodePool(stream), days):
        weights[begin:] = 0.0
        weights[begin:, deployed.indices] = deployed.weights
    return weights


def _best_within_cells(cells: Cells, mean: Floats, error: Floats, budget: float) -> Floats:
    """[P] what the bounds alone allow: on all cells that hold the patient's values [P, 2], as far as these are known;
    of a patient whom none holds, the safe settings."""
    own, doubt = np.column_stack([mean[:, 0], budget - mean[:, 1]]), STANDARD_ERRORS * error
    holds = ((cells.lower <= own + doubt) & (cells.upper >= own - doubt)).all(axis=(1, 2))
    return best(cells.lower[holds, :, 1], mean[:, 0]) if holds.any() else np.eye(len(mean))[0]
