"""Certainty equivalence: take the most probable task for the true one, and deploy what is best there.

What control engineers do after identifying a system (Åström and Wittenmark, "Adaptive Control", 1995; for linear
systems it is as good as anything, Mania, Tu and Recht, NeurIPS 2019). The most probable cell is that of the posterior
that `posterior` computes. It promises nothing about a constraint: estimates err on either side, and a best policy has
no margin left.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from surefoot.arrays import check_unit_interval
from surefoot.learning.calibrated import Setting
from surefoot.learning.certified.choice import CELL_STATES
from surefoot.learning.method import SAFE_MIXTURE
from surefoot.learning.posterior import Posterior, PosteriorState
from surefoot.learning.spec import MethodArgs, MethodSpec
from surefoot.methods import METHODS
from surefoot.policyset.policy_value_set import PolicyValueSet

COLD = 1e-9  # temperature at which a posterior is as good as its most probable cell
HALF = 0.5  # of a posterior with one cell: that one must be kept


@dataclass(frozen=True, eq=False)
class CertaintyEquivalence(Posterior):
    """A posterior without any temperature, on the safe policy until there is an estimate."""

    def start(self) -> PosteriorState:
        return replace(super().start(), deployed=SAFE_MIXTURE)


def make(policies: PolicyValueSet, terms: MethodArgs, slack: float = 0.0) -> CertaintyEquivalence:
    """`slack`: the share of the safe policy's margin that is kept on the estimated task."""
    if slack != 0:
        check_unit_interval("slack", slack)
    warm = METHODS["posterior"].make(policies, terms, share=HALF, temperature=COLD, slack=slack)
    return CertaintyEquivalence(**{each.name: getattr(warm, each.name) for each in fields(Posterior)})


def path_to_boldness(policies: PolicyValueSet, risk: float) -> tuple[Setting, ...]:
    return tuple({"slack": slack} for slack in (0.98, 0.95, 0.9, 0.8, 0.6, 0.4, 0.2, 0.0))


SPECS = (
    MethodSpec(
        "certainty-equivalence",
        make,
        certified=False,
        why="the most probable task is taken for the true one, and what is best there is deployed",
        needs="cells",
        costs="a likelihood per cell",
        observes="transitions",
        options=("slack",),
        state=(PosteriorState, *CELL_STATES),
        takes_risk=False,
        colour=27,
        path=path_to_boldness,
    ),
)
