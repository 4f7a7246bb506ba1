"""Conformal policy control: move the probabilities of a new policy in as far as weighted past losses allow.

Prinster, Fannjiang, Park, Cho, Liu, Saria and Stanton, "Conformal Policy Control", arXiv:2603.02196, 2026, and their
code (github.com/samuelstanton/conformal-policy-control). From a safe density p0 and
a new one p1 it makes p_b ∝ min(p1, e^b p0), for caps b from low to high, and deploys the last whose weighted mean loss,
with the worst loss for the next draw, is at most alpha:

    (Σ w_i·loss_i + w_next) / (Σ w_i + w_next) ≤ alpha,    w_i = p_b(a_i)/q(a_i),    w_next = max_a p_b(a)/q(a),

q being what earlier draws came from. An action is here the policy of an episode, a loss its cost on the scale of its
declared range, alpha the budget on that scale. Promised is a mean loss of at most alpha, of the next episode alone and
as a mean over the draws before it. That is no promise about the policy deployed on the task at hand.

Where it degenerates: the safe policy and a candidate overlap nowhere, p1/p0 is infinite, and no cap is finite. All that
the loss of a candidate is known to be is at most 1, so alpha less the loss of the safe policy can be mixed in of what
is unknown, spread over all candidates. That is p0 here; p1 is p0 with the places of the safe policy and of the
candidate with the largest reward exchanged, and what was mixed in makes all ratios finite. Where alpha is a small share
of the range it takes very long.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from surefoot.arrays import Floats, Integers, number
from surefoot.errors import InvalidInput
from surefoot.lab.rivals.tally import GUESS_COUNT, STATES, Rival, Tally, expected_values, mixture_of
from surefoot.learning.calibrated import Setting
from surefoot.learning.method import SAFE, SAFE_MIXTURE, Mixture
from surefoot.learning.spec import MethodArgs, MethodSpec
from surefoot.policyset.policy_value_set import PolicyValueSet

CAPS = 200
EVEN = 1.0


def make(policies: PolicyValueSet, terms: MethodArgs, share: float = EVEN) -> Rival:
    """`share`: of the budget that alpha is."""
    if not 0 < number("share", share) <= 1:
        raise InvalidInput(f"share must be positive and at most 1, got {share!r}")
    low, span = policies.units.reachable[1:, 0], np.maximum(np.ptp(policies.units.reachable[1:], axis=1), 1e-300)
    alpha = (share * policies.units.budget - low) / span
    choose = partial(_choose, expected_values(policies)[:, 0], low, span, alpha)
    return Rival(terms.name, policies, choose)


def _choose(expected: Floats, low: Floats, span: Floats, alpha: Floats, deployed: Mixture, tally: Tally) -> Mixture:
    count = tally.count[:, None]
    loss = (tally.total[:, 1:] - count * low) / span  # [P, m] sums
    safe = safe_density(loss[SAFE], int(count[SAFE, 0]), alpha, len(expected))
    reward = (GUESS_COUNT * expected + tally.total[:, 0]) / (GUESS_COUNT + tally.count)
    target = int(np.argmax(reward))
    if safe[SAFE] == 1 or target == SAFE:
        return SAFE_MIXTURE
    new = safe.copy()
    new[[SAFE, target]] = safe[[target, SAFE]]
    return mixture_of(boldest_density(safe, new, tally.density, tally.count, loss, alpha))


def safe_density(loss: Floats, count: int, alpha: Floats, policies: int) -> Floats:
    """[P] of the safe policy, whose `count` episodes lost `loss` [m] in all, with as much of the others, about whom
    nothing is known, as keeps the expected loss at alpha [m]: (1-x)·l + x = alpha, where l counts one more episode that
    is lost."""
    mean = (loss + 1) / (count + 1)
    unknown = float(np.clip((alpha - mean) / np.maximum(1 - mean, 1e-300), 0.0, 1.0).min())
    density = np.full(policies, unknown / (policies - 1))
    density[SAFE] = 1 - unknown
    return density


def boldest_density(
    safe: Floats, new: Floats, drawn_from: Floats, count: Integers, loss: Floats, alpha: Floats
) -> Floats:
    """[P] p_b for the last cap in a row that is accepted; the safe density if the first is not.

    Args:
        drawn_from: [P] what past episodes were drawn from.
        count, loss: [P], [P, m] how many there were of each policy, and what they lost in all.
    """
    ratio = np.log(new / safe)
    accepted = safe
    for cap in np.linspace(ratio.min(), ratio.max(), CAPS):
        capped = np.minimum(new, np.exp(cap) * safe)
        capped /= capped.sum()
        if not (weighted_loss(capped, drawn_from, count, loss) <= alpha).all():
            break
        accepted = capped
    return accepted


def weighted_loss(density: Floats, drawn_from: Floats, count: Integers, loss: Floats) -> Floats:
    """[m] the mean loss of past episodes, weighted as if they came from `density`, with one more that is lost; all of
    it lost if that one may be of a policy that could not be drawn."""
    if (density[drawn_from == 0] > 0).any():
        return np.ones(loss.shape[1])
    weight = np.divide(density, drawn_from, out=np.zeros_like(density), where=drawn_from > 0)
    worst = weight.max()
    found: Floats = (weight @ loss + worst) / (weight @ count + worst)
    return found


def path_to_boldness(policies: PolicyValueSet, risk: float) -> tuple[Setting, ...]:
    return tuple({"share": share} for share in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0))


SPECS = (
    MethodSpec(
        "conformal-policy-control",
        make,
        certified=False,
        why="the next episode keeps the budget as a mean over what was drawn before: no promise about what is deployed",
        costs="decisions, ever rarer, weigh the episodes of every policy for 200 caps",
        options=("share",),
        state=STATES,
        takes_risk=False,
        colour=29,
        path=path_to_boldness,
    ),
)
