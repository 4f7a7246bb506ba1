"""Identify and look up: estimate which task it is from the first episodes of the safe policy, and from then on deploy
the policy that is best there.

What engineers do with a simulator and a table of controllers: system identification by regression (Ljung, "System
Identification", 1999), then gain scheduling (Rugh and Shamma, Automatica 2000). The table holds the sampled tasks. The
estimate is the one whose simulated episodes are nearest, by least squares weighted with what episodes vary by; where
signals were learned, linear regressions on what is observed, they count beside the sums. It promises nothing about a
constraint: nothing is kept for the error of the estimate, nor of the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from surefoot.arrays import Floats, Integers, check_int, check_unit_interval
from surefoot.bounds.cells import Cells, Readings
from surefoot.cmdp.episode import Outcomes, add_in_order
from surefoot.lab.rivals.tally import alone, cell_values, cells_of, noise_before
from surefoot.learning.calibrated import Setting
from surefoot.learning.method import SAFE, SAFE_MIXTURE, Certificate, Method, Mixture, Observes, Step
from surefoot.learning.spec import MethodArgs, MethodSpec
from surefoot.policyset.policy_value_set import PolicyValueSet


@dataclass(frozen=True, eq=False)
class Identified:
    """State: the sum [k] of what so many episodes of the safe policy read, and what is deployed."""

    total: Floats
    count: int
    deployed: Mixture


@dataclass(frozen=True, eq=False)
class IdentifyAndLookUp(Method):
    """Attributes:
    cells: the tasks of the table; where they have readings, signals are looked at.
    values: [J, P, 1+m] reward and costs of every policy on them.
    expected: [J, k] what an episode of the safe policy reads on average on each of them.
    variance: [k] from episode to episode.
    after: episodes that the estimate is made of.
    slack: the share of the safe policy's margin that is kept on the estimated task.
    """

    name: str
    policies: PolicyValueSet
    cells: Cells
    values: Floats
    expected: Floats
    variance: Floats
    after: int
    slack: float

    @property
    def observes(self) -> Observes:
        return "sums" if self.cells.readings is None else "signals"

    def start(self) -> Identified:
        return Identified(np.zeros(len(self.variance)), 0, SAFE_MIXTURE)

    def mixture(self, state: Identified) -> Mixture:
        return state.deployed

    def update(self, state: Identified, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        if state.count == self.after:
            return Step(state, len(outcomes))
        used = min(len(outcomes), self.after - state.count)
        read = self.read(drawn[:used], outcomes.first(used))
        state = Identified(add_in_order(state.total, read), state.count + used, state.deployed)
        if state.count == self.after:
            state = replace(state, deployed=alone(self.look_up(nearest(state.total / state.count, self))))
        return Step(state, used)

    def abandon(self, state: Identified, episode: int, drawn: int) -> Step:
        return Step(state, 1)

    def certificate(self, state: Identified) -> Certificate:
        return Certificate(len(self.values), len(self.values), None)

    def read(self, drawn: Integers, outcomes: Outcomes) -> Floats:
        """[n, k] the sums of episodes, and their signals."""
        if self.cells.readings is None:
            return outcomes.sums
        return np.concatenate([outcomes.sums, self.cells.readings.signals.of_outcomes(drawn, outcomes)], axis=1)

    def look_up(self, task: int) -> int:
        """The policy that earns most of those that are expected to keep the budgets there."""
        margin = self.policies.units.budget - self.values[task, :, 1:]
        kept = (margin >= self.slack * np.maximum(margin[SAFE], 0.0)).all(axis=1)
        kept[SAFE] = True
        return int(np.argmax(np.where(kept, self.values[task, :, 0], -np.inf)))


def nearest(read: Floats, table: IdentifyAndLookUp) -> int:
    """The task j of least Σ_k (read_k - expected_jk)²/variance_k."""
    return int(np.argmin((((read - table.expected) ** 2) / table.variance).sum(axis=1)))


# ------------------------------------------------------------------------------------------------------------- by name


def make(policies: PolicyValueSet, terms: MethodArgs, after: int = 1, slack: float = 0.0) -> IdentifyAndLookUp:
    """`after`: episodes of the safe policy that the estimate is made of; `slack`: the share of its margin that is kept
    on the estimated task."""
    check_int("after", after)
    if slack != 0:
        check_unit_interval("slack", slack)
    cells, (_, values) = cells_of(policies, terms.name), cell_values(policies, terms.name)
    expected, variance = values[:, SAFE], noise_before(policies)[SAFE]
    if cells.readings is not None:
        own, spread = _simulated_signals(cells.readings)
        expected, variance = np.concatenate([expected, own], axis=1), np.concatenate([variance, spread])
    return IdentifyAndLookUp(terms.name, policies, cells, values, expected, variance, after, slack)


LEAST_SPREAD = 1e-3  # of a signal, which lies in [0, 1]


def _simulated_signals(readings: Readings) -> tuple[Floats, Floats]:
    """[J, q] means and [q] variances of the safe policy's signals."""
    count = len(readings.signals)
    law, values = readings.law[:, SAFE, -count:], readings.values[-count:]
    mean = np.einsum("jql,ql->jq", law, values)
    variance = np.einsum("jql,ql->jq", law, values**2) - mean**2
    return mean, np.maximum(variance.mean(axis=0), LEAST_SPREAD**2)


def path_to_boldness(policies: PolicyValueSet, risk: float) -> tuple[Setting, ...]:
    pairs = ((40, 0.95), (40, 0.8), (20, 0.8), (20, 0.6), (10, 0.4), (5, 0.2), (2, 0.1), (1, 0.0))
    return tuple({"after": after, "slack": slack} for after, slack in pairs)


SPECS = (
    MethodSpec(
        "identify-and-look-up",
        make,
        certified=False,
        why="the estimated task is taken for the true one, and one policy is deployed that is best there",
        needs="cells",
        costs="a least-squares fit to every cell, once",
        observes="signals",
        options=("after", "slack"),
        state=(Identified,),
        takes_risk=False,
        colour=31,
        path=path_to_boldness,
    ),
)
