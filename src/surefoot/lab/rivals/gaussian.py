"""Beliefs that are Gaussian: a prior over the values of all policies, conditioned on means of their episodes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.lab.rivals.tally import Rival, Tally, alone, noise_before, noise_of
from surefoot.learning.method import SAFE, Mixture
from surefoot.policyset.policy_value_set import PolicyValueSet


@dataclass(frozen=True, eq=False)
class Belief:
    """Over reward and costs of P policies, as one vector [P·(1+m)]: mean and covariance."""

    mean: Floats
    covariance: Floats


def condition(belief: Belief, count: Integers, observed: Floats, noise: Floats) -> Belief:
    """Given the means `observed` of `count` independent measurements of each number, with variances `noise`, all [D].

    Conditioning on the mean of n measurements is conditioning on all of them, one after the other (a Kalman filter of
    something that does not move).
    """
    seen = np.flatnonzero(count)
    cross = belief.covariance[:, seen]
    spread = cross[seen] + np.diag(noise[seen] / count[seen])
    gain = np.linalg.solve(spread, cross.T).T
    mean = belief.mean + gain @ (observed[seen] - belief.mean[seen])
    covariance = belief.covariance - gain @ cross.T
    return Belief(mean, (covariance + covariance.T) / 2)


def gaussian_rival(name: str, policies: PolicyValueSet, prior: Belief, beta: float, optimism: float) -> Rival:
    """Whoever has the largest reward, `optimism` standard deviations above its mean, of those whose costs are within
    their budgets at `beta` of them, and of the safe policy."""
    before, budget = noise_before(policies), policies.units.budget
    return Rival(name, policies, partial(_choose, prior, before, budget, beta, optimism))


def _choose(
    prior: Belief, before: Floats, budget: Floats, beta: float, optimism: float, deployed: Mixture, tally: Tally
) -> Mixture:
    count = np.repeat(tally.count, 1 + len(budget))
    belief = condition(prior, count, tally.mean.ravel(), noise_of(tally, before).ravel())
    mean, deviation = belief.mean.reshape(before.shape), np.sqrt(np.maximum(np.diag(belief.covariance), 0.0))
    return alone(best_safe(mean, deviation.reshape(before.shape), budget, beta, optimism))


def best_safe(mean: Floats, deviation: Floats, budget: Floats, beta: float, optimism: float) -> int:
    """Of reward and costs [P, 1+m]."""
    safe = (mean[:, 1:] + beta * deviation[:, 1:] <= budget).all(axis=1) | (np.arange(len(mean)) == SAFE)
    return int(np.argmax(np.where(safe, mean[:, 0] + optimism * deviation[:, 0], -np.inf)))
