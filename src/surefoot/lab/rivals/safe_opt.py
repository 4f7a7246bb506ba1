"""SafeOpt-UCB on the finite set of policies: Gaussian processes over their coordinates.

Sui, Gotovos, Burdick and Krause, "Safe Exploration for Optimization with Gaussian Processes", ICML 2015; with several
constraints and a best guess at the safe set instead of a Lipschitz constant as Berkenkamp, Krause and Schoellig,
"Bayesian Optimization with Safety Constraints", Machine Learning 2023, whose code has beta = 2 by default and plays
the largest upper bound on the reward in its UCB variant.

It promises that every query is safe with high probability if the costs have a known norm in the kernel's space and beta
follows from it. Nobody knows that norm, and with beta = 2 nothing is promised (Fiedler, Menn, Kreisköther and Trimpe,
"On Safety in Safe Bayesian Optimization", TMLR 2024, arXiv:2403.12948).

Coordinates are the numbers of the policies where each is made of a few (gains, doses), and otherwise their places in
the order of the costs that are expected. Kernels are squared exponential. The cost of an unknown policy is taken to be
at its budget, as everywhere in SafeOpt, give or take the margin that is expected of the safe one.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import block_diag

from surefoot.arrays import Floats, number
from surefoot.errors import InvalidInput
from surefoot.lab.rivals.gaussian import Belief, gaussian_rival
from surefoot.lab.rivals.tally import STATES, Rival, cell_values, expected_values, order_of_costs
from surefoot.learning.calibrated import Setting
from surefoot.learning.method import SAFE
from surefoot.learning.spec import MethodArgs, MethodSpec
from surefoot.policyset.policy_value_set import PolicyValueSet

BETA, LENGTH = 2.0, 0.5
FEW = 12  # numbers that a policy may be made of to have coordinates of its own
JITTER = 1e-9


def make(policies: PolicyValueSet, terms: MethodArgs, beta: float = BETA, length: float = LENGTH) -> Rival:
    """`beta`: standard deviations of every bound; `length`: scale of the kernel, 1 for the whole range of settings."""
    if number("beta", beta) < 0:
        raise InvalidInput(f"beta must not be negative, got {beta!r}")
    if number("length", length) <= 0:
        raise InvalidInput(f"length must be positive, got {length!r}")
    kernel = squared_exponential(coordinates(policies), length)
    return gaussian_rival(terms.name, policies, process_prior(policies, kernel), beta, optimism=beta)


def coordinates(policies: PolicyValueSet) -> Floats:
    """[P, d] in [0, 1]."""
    arrays = [policy.to_arrays() for policy in policies.policies]
    rows = [np.concatenate([np.ravel(each[name]) for name in sorted(each)]) if each else np.empty(0) for each in arrays]
    alike = {tuple(sorted(each)) for each in arrays}
    if len(alike) == 1 and 0 < rows[0].size <= FEW and len({row.size for row in rows}) == 1:
        found = np.array(rows, dtype=np.float64)
        span = np.ptp(found, axis=0)
        if span.any():
            scaled: Floats = (found - found.min(axis=0))[:, span > 0] / span[span > 0]
            return scaled
    places = np.empty(len(arrays))
    places[order_of_costs(policies)] = np.arange(len(arrays))
    return places[:, None] / max(len(arrays) - 1, 1)


def squared_exponential(places: Floats, length: float) -> Floats:
    """[P, P] exp(-d²/2l²), d² being the mean over coordinates [P, d] of squared differences."""
    squares = ((places[:, None] - places[None]) ** 2).mean(axis=2)
    kernel: Floats = np.exp(-squares / (2 * length**2))
    return kernel


def process_prior(policies: PolicyValueSet, kernel: Floats) -> Belief:
    """Reward and costs are independent of each other; the vector has those of the first policy first."""
    expected, budget = expected_values(policies), policies.units.budget
    deviation = np.concatenate([[_reward_deviation(policies, expected)], np.abs(budget - expected[SAFE, 1:])])
    deviation = np.maximum(deviation, 1e-6 * np.ptp(policies.units.reachable, axis=1))
    mean = np.column_stack([np.full(len(expected), expected[:, 0].mean()), np.tile(budget, (len(expected), 1))])
    blocks = block_diag(*(scale**2 * (kernel + JITTER * np.eye(len(kernel))) for scale in deviation))
    order = np.arange(mean.size).reshape(len(deviation), len(expected)).T.ravel()
    return Belief(mean.ravel(), blocks[np.ix_(order, order)])


def _reward_deviation(policies: PolicyValueSet, expected: Floats) -> float:
    """Over tasks and policies; without cells over the policies alone."""
    if policies.cells is None:
        return float(expected[:, 0].std())
    prior, values = cell_values(policies, "safe-opt")
    reward = values[..., 0]
    return float(np.sqrt((prior @ (reward - expected[:, 0].mean()) ** 2).mean()))


def path_to_boldness(policies: PolicyValueSet, risk: float) -> tuple[Setting, ...]:
    pairs = ((6.0, 0.25), (4.0, 0.25), (3.0, 0.25), (3.0, 0.5), (2.0, 0.5), (2.0, 1.0), (2.0, 1.5), (1.0, 1.5))
    return tuple({"beta": beta, "length": length} for beta, length in pairs)


SPECS = (
    MethodSpec(
        "safe-opt",
        make,
        certified=False,
        why="SafeOpt-UCB with Gaussian processes over the policies: its beta rests on a norm that nobody knows",
        costs="decisions, ever rarer, solve linear equations in all values",
        options=("beta", "length"),
        state=STATES,
        takes_risk=False,
        colour=26,
        path=path_to_boldness,
    ),
)
