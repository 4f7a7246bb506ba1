"""A Seldonian algorithm: high-confidence off-policy selection with a test on episodes that the search has not seen.

Thomas, Castro da Silva, Barto, Giguere, Brun and Brunskill, "Preventing undesirable behavior of intelligent machines",
Science 2019, whose example is an insulin pump; the safety test by Student's t of Thomas, Theocharous and Ghavamzadeh,
"High Confidence Policy Improvement", ICML 2015. The policy of every episode is drawn from a distribution. From three
fifths of the episodes a new distribution is searched that promises the largest reward and seems to pass the test; it
replaces the old one if the other two fifths, by importance weights, show with confidence 1 - delta that it keeps the
budgets. Otherwise there is no solution, and nothing changes.

Promised is that a new distribution breaks a budget with probability at most about delta: of one test, on one batch, as
far as Student's t holds for weights of which a few are large. There is a test each time the episodes have doubled, so
nothing is promised of all of them together. The first distribution, which must try every policy sometimes, is not
tested at all.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.special import stdtrit

from surefoot.arrays import Floats, check_unit_interval
from surefoot.lab.rivals.tally import STATES, Rival, Tally, expected_values, mixture_of
from surefoot.learning.calibrated import Setting
from surefoot.learning.method import SAFE, Mixture
from surefoot.learning.spec import MethodArgs, MethodSpec
from surefoot.policyset.policy_value_set import PolicyValueSet

EXPLORE = 0.05
PARTS = (0, 0, 0, 1, 1)  # three fifths to search, two to test
FIRST = 20  # episodes before the first test
WEIGHTS = np.linspace(0.1, 1.0, 10)  # of the candidate in what is searched
INFLATION = 2.0  # of the test's bound as predicted in the search


def make(policies: PolicyValueSet, terms: MethodArgs, delta: float | None = None, explore: float = EXPLORE) -> Rival:
    """`delta`: of every test, by default the risk; `explore`: probability of policies other than those selected."""
    delta = terms.risk if delta is None else check_unit_interval("delta", delta)
    check_unit_interval("explore", explore)
    count = len(policies.policies)
    first = mixture_of(searched_density(count, SAFE, 0.0, explore))
    choose = partial(_choose, expected_values(policies)[:, 0], policies.units.budget, delta, explore)
    return Rival(terms.name, policies, choose, wait=_doubling, parts=PARTS, first=first)


def _doubling(episode: int) -> int:
    return max(FIRST, 2 * episode)


def searched_density(policies: int, candidate: int, weight: float, explore: float) -> Floats:
    """[P] the safe policy with a candidate, and any of the others but the safe one for exploring."""
    density = np.full(policies, explore / (policies - 1))
    density[SAFE] = (1 - explore) * (1 - weight)
    density[candidate] += (1 - explore) * weight
    return density


def _choose(
    expected: Floats,
    budget: Floats,
    delta: float,
    explore: float,
    deployed: Mixture,
    searched: Tally,
    tested: Tally,
) -> Mixture:
    level, episodes = delta / len(budget), int(tested.count.sum())
    reward = np.where(searched.count > 0, searched.mean[:, 0], expected)
    best, promised = None, -np.inf
    for candidate in range(1, len(expected)):
        for weight in WEIGHTS:
            density = searched_density(len(expected), candidate, weight, explore)
            bound = margin_bound(density, searched, budget, level, episodes, INFLATION)
            if density @ reward > promised and (bound >= 0).all():
                best, promised = density, float(density @ reward)
    if best is None or not (margin_bound(best, tested, budget, level, episodes) >= 0).all():
        return deployed  # no solution found
    return mixture_of(best)


def margin_bound(
    density: Floats, tally: Tally, budget: Floats, level: float, episodes: int, inflation: float = 1.0
) -> Floats:
    """[m] lower confidence bound on the margins of a distribution [P] by Student's t for `episodes` episodes.

    The mean of w·(budget - cost), w = density/drawn from: each episode counts as often as the distribution would have
    drawn its policy. Past distributions are taken as one, their mixture (the balance heuristic).
    """
    count = int(tally.count.sum())
    if count < 2 or episodes < 2 or (density[tally.density == 0] > 0).any():
        return np.full(len(budget), -np.inf)
    weight = np.divide(density, tally.density, out=np.zeros_like(density), where=tally.density > 0)
    number, cost, squares = tally.count[:, None], tally.total[:, 1:], tally.squares[:, 1:]
    margin = number * budget - cost  # [P, m] sums
    square = number * budget**2 - 2 * budget * cost + squares
    mean = weight @ margin / count
    variance = np.maximum(weight**2 @ square / count - mean**2, 0.0) * count / (count - 1)
    bound: Floats = mean - inflation * np.sqrt(variance / episodes) * stdtrit(episodes - 1, 1 - level)
    return bound


def path_to_boldness(policies: PolicyValueSet, risk: float) -> tuple[Setting, ...]:
    factors = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 6.0)
    return tuple({"delta": min(factor * risk, 0.5)} for factor in factors)


SPECS = (
    MethodSpec(
        "seldonian",
        make,
        certified=False,
        why="Student's t on importance-weighted episodes, one test at a time (Thomas et al. 2019)",
        costs="decisions, each time the episodes have doubled, weigh the episodes of every policy for every mixture",
        options=("delta", "explore"),
        state=STATES,
        colour=30,
        path=path_to_boldness,
    ),
)
