"""A Gaussian prior over the values of all policies, learned from tasks: safe meta-learning with finitely many policies.

Rothfuss, Koenig, Rupenyan and Krause, "Meta-Learning Priors for Safe Bayesian Optimization", CoRL 2022
(arXiv:2210.00762), choose the prior of SafeOpt by data of related tasks. Where there are finitely many policies and
sampled tasks with their values, no kernel is left to choose: the prior has the mean and the covariance of those values.

It promises nothing: values over tasks are no Gaussian vector, and beta standard deviations of each decision are no
joint statement about all of them.
"""

from __future__ import annotations

import numpy as np

from surefoot.arrays import Floats, number
from surefoot.errors import InvalidInput
from surefoot.lab.rivals.gaussian import Belief, gaussian_rival
from surefoot.lab.rivals.tally import STATES, Rival, cell_values
from surefoot.learning.calibrated import Setting
from surefoot.learning.spec import MethodArgs, MethodSpec
from surefoot.policyset.policy_value_set import PolicyValueSet

BETA = 2.0
RIDGE = 1e-6  # of the largest variance: a covariance of few tasks has no inverse


def make(policies: PolicyValueSet, terms: MethodArgs, beta: float = BETA) -> Rival:
    """`beta`: standard deviations that a mean cost must stay below its budget by."""
    if number("beta", beta) < 0:
        raise InvalidInput(f"beta must not be negative, got {beta!r}")
    prior, values = cell_values(policies, terms.name)
    return gaussian_rival(terms.name, policies, learn_prior(prior, values), beta, optimism=0.0)


def learn_prior(prior: Floats, values: Floats) -> Belief:
    """Mean and covariance of the values [J, P, 1+m] of tasks of probabilities [J]."""
    rows = values.reshape(len(values), -1)
    mean = prior @ rows
    covariance = (rows - mean).T @ (prior[:, None] * (rows - mean))
    return Belief(mean, covariance + RIDGE * covariance.diagonal().max() * np.eye(len(mean)))


def path_to_boldness(policies: PolicyValueSet, risk: float) -> tuple[Setting, ...]:
    return tuple({"beta": beta} for beta in (6.0, 5.0, 4.0, 3.4, 3.0, 2.5, 2.0, 1.0))


SPECS = (
    MethodSpec(
        "meta-gaussian",
        make,
        certified=False,
        why="a Gaussian prior over values, learned from tasks, and beta standard deviations (Rothfuss et al. 2022)",
        needs="cells",
        costs="decisions, ever rarer, solve linear equations in all values",
        options=("beta",),
        state=STATES,
        takes_risk=False,
        colour=25,
        path=path_to_boldness,
    ),
)
