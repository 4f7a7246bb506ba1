"""Whether logged episodes fit the simulator: a test that the task is in none of the cells (docs, Theorem 13).

For every cell the average capital of bets that are fair, or worse, on each task of it: on the means of sums and signals
(Theorems 5 and 7), and, where transitions were told, the likelihood ratio of Theorem 9. The least of them over the
cells is evidence that the task is not among those trained for, whenever one looks.
"""

from __future__ import annotations

import math

import numpy as np

from surefoot.arrays import Floats
from surefoot.bounds.cells import Cells
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.wording import fit_in_words
from surefoot.confidence import Betting
from surefoot.errors import InvalidInput
from surefoot.learning.event import Event
from surefoot.learning.method import SAFE
from surefoot.learning.shift_test import ShiftTest
from surefoot.policyset.policy_value_set import PolicyValueSet

_BETS = Betting(0.5)  # for the bets; nobody asks for its intervals


def fit_p_value(policies: PolicyValueSet, outcomes: Outcomes, policy: int = SAFE, horizon: int | None = None) -> float:
    """Anytime-valid p-value of "`outcomes`, of policy number `policy`, come from a task of some cell": it ever falls to
    p on such a task with probability at most p.

    Args:
        horizon: the most steps of an episode, as for `surefoot.learner`.
    """
    if policies.cells is None:
        raise InvalidInput("policies must hold value bounds over tasks (cells) for a test of the fit, got none")
    parts = [_log_evidence_of_means(policies, policies.cells, outcomes, policy, policies.units.steps(horizon))]
    if policies.cells.model is not None and outcomes.states is not None and outcomes.actions is not None:
        test = ShiftTest(policies)
        parts.append(test.log_ratios(test.observe(test.start(), outcomes)))
    least = float((np.logaddexp.reduce(parts) - math.log(len(parts))).min())
    return math.exp(-max(least, 0.0))


def _log_evidence_of_means(
    policies: PolicyValueSet, cells: Cells, outcomes: Outcomes, policy: int, steps: int
) -> Floats:
    """[J] log of the average over the numbers of an episode, all with bounds on their means in every cell."""
    units, readings = policies.units, cells.readings
    numbers = units.scaled(outcomes.sums)
    lower, upper = units.scaled_sums(cells.lower[:, policy], cells.upper[:, policy], steps)  # [J, k]
    told = outcomes.signals is not None or outcomes.observed is not None or outcomes.actions is not None
    if readings is not None and told and steps == readings.signals.steps:
        signals = readings.signals.of_outcomes(np.full(len(outcomes), policy), outcomes)
        numbers = np.concatenate([numbers, signals], axis=1)
        lower = np.concatenate([lower, readings.lower[:, policy]], axis=1)
        upper = np.concatenate([upper, readings.upper[:, policy]], axis=1)
    state = _BETS.update(_BETS.start((numbers.shape[1],)), numbers)
    total: Floats = np.logaddexp.reduce(_BETS.log_evidence(state, lower, upper), axis=1) - math.log(numbers.shape[1])
    return total


def history_event(policies: PolicyValueSet | None, outcomes: Outcomes, horizon: int | None) -> Event:
    """That earlier episodes were taken for evidence, and whether they fit the cells, where there are any."""
    found = None if policies is None or policies.cells is None else fit_p_value(policies, outcomes, SAFE, horizon)
    message = f"{len(outcomes)} earlier episodes of the safe policy are evidence"
    if found is not None:
        message += f"; they {fit_in_words(found)}"
    return Event(0, "history", message, {"episodes": len(outcomes), "fit": found})
