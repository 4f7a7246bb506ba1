"""A Bayesian posterior over cells with a chance constraint: what most people would do. *Uncertified* by itself.

The task distribution is the prior, episodes multiply it by their likelihood, and what is deployed keeps the budgets on
all cells but a share of the posterior. Nothing guards against cells that are wider than a point or laws that are off,
so the posterior is too sure of itself, and the share is not the risk. `surefoot.calibrate` finds the share and the
temperature at which the risk is kept (docs/guarantees.md, Theorem 12).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surefoot.arrays import Floats, Integers, check_unit_interval, number
from surefoot.bounds.cells import Cells
from surefoot.bounds.widening import shrink_bounds
from surefoot.cmdp.episode import Outcomes
from surefoot.errors import InvalidInput
from surefoot.learning.calibrated import Setting
from surefoot.learning.certified.choice import CELL_STATES, SLACK, SOONEST, make_evidence
from surefoot.learning.certified.method import LEAST_WAIT, Evidence, next_decision
from surefoot.learning.method import SAFE, SAFE_MIXTURE, Certificate, Method, Mixture, Observes, Step
from surefoot.learning.spec import MethodArgs, MethodSpec
from surefoot.policyset.certifiable import advice
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.theory import largest_weights


@dataclass(frozen=True, eq=False)
class PosteriorState:
    evidence: Any
    deployed: Mixture
    next_decision: int


@dataclass(frozen=True, eq=False)
class Posterior(Method):
    """Attributes:
    cells: with the middle of their bounds for values.
    share: of the posterior on which what is deployed may break a budget.
    temperature: by which the log-posterior is divided; above 1 it is less sure of itself.
    slack: the share of the safe policy's margin that is kept on every cell.
    """

    name: str
    policies: PolicyValueSet
    cells: Cells
    evidence: Evidence
    share: float
    temperature: float
    slack: float
    least_wait: int

    @property
    def observes(self) -> Observes:
        return self.evidence.observes

    def start(self) -> PosteriorState:
        return self._decide(PosteriorState(self.evidence.start(), SAFE_MIXTURE, 0), 0)

    def mixture(self, state: PosteriorState) -> Mixture:
        return state.deployed

    def update(self, state: PosteriorState, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        used = min(len(outcomes), state.next_decision - episode)
        evidence = self.evidence.observe(state.evidence, drawn[:used], outcomes.first(used))
        state = replace(state, evidence=evidence)
        return Step(self._decide(state, episode + used) if episode + used == state.next_decision else state, used)

    def abandon(self, state: PosteriorState, episode: int, drawn: int) -> Step:
        """What was not seen changes no belief."""
        return Step(self._decide(state, episode + 1) if episode + 1 == state.next_decision else state, 1)

    def certificate(self, state: PosteriorState) -> Certificate:
        return Certificate(len(self.cells), len(self.cells), None)

    def posterior(self, state: PosteriorState) -> Floats:
        """[J]"""
        return temper(self.evidence.belief(state.evidence), self.temperature)

    def _decide(self, state: PosteriorState, episode: int) -> PosteriorState:
        everything = np.ones(len(self.cells), dtype=bool)
        state = replace(state, evidence=self.evidence.settle(state.evidence, everything, ()))
        deployed = chance_constrained_pair(self.posterior(state), self.cells.lower, self.share, self.slack)
        return replace(state, deployed=deployed, next_decision=next_decision(episode, self.least_wait))


def temper(belief: Floats, temperature: float) -> Floats:
    """[J] p^(1/T), normalised; the prior again where nothing is possible."""
    total = belief.sum()
    if not np.isfinite(total) or total <= 0:
        return np.full(len(belief), 1 / len(belief))
    powers = (belief / belief.max()) ** (1 / temperature)
    tempered: Floats = powers / powers.sum()
    return tempered


def chance_constrained_pair(belief: Floats, values: Floats, share: float, slack: float = 0.0) -> Mixture:
    """The best mixture of the safe policy with one other that keeps all budgets but on a share of the belief.

    Args:
        belief: [J] probabilities of the cells.
        values: [J, P, 1+m] reward and margins.
    """
    margin = values[:, :, 1:]
    weights = largest_weights(margin - slack * np.maximum(margin[:, :1], 0.0))  # [J, P]
    order = np.argsort(weights, axis=0, kind="stable")
    mass = np.cumsum(belief[order], axis=0)
    first = (mass > share).argmax(axis=0)  # the first cell, from the strictest on, that must be kept
    limit = np.take_along_axis(weights, np.take_along_axis(order, first[None], axis=0), axis=0)[0]  # [P]
    reward = belief @ values[:, :, 0]
    best = int(np.argmax(limit * (reward - reward[SAFE])))
    weight = float(limit[best])
    if best == SAFE or weight == 0:
        return SAFE_MIXTURE
    return Mixture(np.array([SAFE, best]), np.array([1 - weight, weight]))


# ------------------------------------------------------------------------------------------------------------- by name


def _build_posterior(
    policies: PolicyValueSet,
    terms: MethodArgs,
    share: float | None = None,
    temperature: float = 1.0,
    slack: float = 0.0,
) -> Posterior:
    """`share`: by default the risk."""
    share = terms.risk if share is None else check_unit_interval("share", share)
    if slack != 0:
        check_unit_interval("slack", slack)
    if number("temperature", temperature) <= 0:
        raise InvalidInput(f"temperature must be positive, got {temperature!r}")
    kind = advice(policies).method
    if policies.cells is None:
        raise InvalidInput("policies must hold value bounds over tasks (cells) for a posterior, got none")
    evidence = make_evidence(policies, kind, policies.cells, terms.horizon)
    middle = shrink_bounds(policies.cells, 0.0)
    return Posterior(terms.name, policies, middle, evidence, share, temperature, slack, SOONEST.get(kind, LEAST_WAIT))


SHARES = (0.1, 0.2, 0.4, 0.7, 1.0, 2.0, 4.0, 8.0)  # in risks
LARGEST_SHARE = 0.9
TEMPERATURES = (2.0, 1.5, 1.25)  # before 1, at the smallest share


def path_to_boldness(policies: PolicyValueSet, risk: float) -> tuple[Setting, ...]:
    """Smaller temperatures and larger shares."""
    slack = 0.0 if policies.cells is None or policies.cells.prior_known else SLACK
    tempered = [(SHARES[0], temperature) for temperature in TEMPERATURES]
    return tuple(
        {"share": factor * risk, "temperature": temperature, "slack": slack}
        for factor, temperature in (*tempered, *((factor, 1.0) for factor in SHARES))
        if factor * risk <= LARGEST_SHARE
    )


SPECS = (
    MethodSpec(
        "posterior",
        _build_posterior,
        certified=False,
        why="a Bayesian posterior over cells, with a chance constraint: no proof unless it is calibrated",
        needs="cells",
        costs="a likelihood per cell; decisions, ever rarer, sort the cells once for every policy",
        observes="transitions",
        options=("share", "temperature", "slack"),
        state=(PosteriorState, *CELL_STATES),
        colour=24,
        path=path_to_boldness,
    ),
)
