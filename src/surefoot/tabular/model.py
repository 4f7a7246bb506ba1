"""Tabular constrained Markov decision processes: tasks that can be simulated and read."""

from __future__ import annotations

from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Values
from surefoot.errors import Infeasible, InvalidInput
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tabular.rollout import Simulator
from surefoot.tabular.solve import solve
from surefoot.tabular.tables import Tables


class TabularCMDP(Tables):
    """A finite CMDP as a task: its tables, its episodes, its exact values and its optimum."""

    @property
    def spaces(self) -> str:
        """Equal for all tasks of a family, in words, since errors quote it."""
        return f"{self.n_constraints} constraint(s), {self.n_states} states, {self.n_actions} actions"

    def episodes(self, policy: Policy, steps: int) -> Simulator:
        return Simulator(self, _tables(policy), steps)

    def values(self, policy: Policy) -> Values:
        return evaluate(self, _tables(policy))

    def optimum(self) -> float:
        """V*; NaN where no policy is feasible, so that regret is undefined rather than wrong."""
        try:
            return float(solve(self).values.reward)
        except Infeasible:
            return float("nan")


def _tables(policy: Policy) -> TabularPolicy | TimedPolicy:
    if not isinstance(policy, TabularPolicy | TimedPolicy):
        raise InvalidInput(f"a tabular task needs tabular or timed policies, got one of kind {policy.kind!r}")
    return policy
