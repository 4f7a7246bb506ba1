"""Whether tasks are close by what policies do on them: against differences that are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from contracts.spending import Dial, Spending, true_values
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.oracles import check_by_episodes
from surefoot.testing import oracle_suite


@pytest.mark.parametrize("dials", [(0.3,), (0.2, 1.0)])
@pytest.mark.parametrize("other", [0.5, 0.51, 0.55, 0.7, 0.95])
def test_answers_are_those_of_the_true_values(dials: tuple[float, ...], other: float) -> None:
    """In the paper's unit scale, where a step's reward and cost are as they are here; between ε and 2ε nothing is
    promised."""
    check, first, second = check_by_episodes([Dial(dial) for dial in dials]), Spending(0.5), Spending(other)
    gap = max(abs(true_values(0.5, dial)[1] - true_values(other, dial)[1]) for dial in dials)
    for epsilon in (1.0, 2.5):
        answer = oracle_suite.conforms_to_check_oracle(check, first, second, epsilon, 1e-4)
        assert answer or gap > epsilon
        assert not answer or gap <= 2 * epsilon


def test_either_side_is_seen() -> None:
    check, few = check_by_episodes([Dial(1.0)]), np.random.default_rng(0)
    assert check(Spending(0.5), Spending(0.52), 1.0, 0.01, few)
    assert not check(Spending(0.5), Spending(0.7), 1.0, 0.01, few)
    assert not check(Spending(0.7), Spending(0.5), 1.0, 0.01, few)


def test_a_task_that_was_made_again_is_remembered() -> None:
    counted = Counted(0.5)
    check = check_by_episodes([Dial(0.5), Dial(1.0)])
    for other in (0.51, 0.9, 0.3):
        check(counted, Spending(other), 2.5, 0.01, np.random.default_rng(0))
    once = list(RUNS)
    check(Counted(0.5), Spending(0.9), 2.5, 0.01, np.random.default_rng(1))
    assert once == RUNS
    assert len(set(once)) * 2 == len(once)  # every round once with each policy


RUNS: list[int] = []


class Counted(Spending):
    def episodes(self, policy: Any, steps: int) -> Any:
        simulated = super().episodes(policy, steps)

        class Counting:
            def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
                RUNS.append(episodes)
                return simulated.run(episodes, rng)

        return Counting()


@dataclass(frozen=True)
class Endless:
    """Costs `share` at every step, for ever."""

    share: float
    units: ClassVar[Units] = Units(0.9, (0.0, 1.0), np.array([[0.0, 2.0]]), np.array([5.0]))
    spaces: ClassVar[str] = "one dial"

    def digest(self) -> str:
        return f"{self.share}"

    def episodes(self, policy: Any, steps: int) -> Any:
        return self

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        whole = np.full(episodes, (1 - 0.9**self.units.episode_length) / (1 - 0.9))
        return Outcomes(0.5 * whole, self.share * whole[:, None])


@pytest.mark.parametrize("ratio", [0.9, 2.1])
def test_without_a_horizon_in_units_of_the_costs_range(ratio: float) -> None:
    """1 of the unit scale is a cost of 2."""
    epsilon, check = 0.5, check_by_episodes([Dial(1.0)])
    apart = ratio * epsilon * 2 * (1 - 0.9)
    assert check(Endless(0.5), Endless(0.5 + apart), epsilon, 0.01, np.random.default_rng(0)) is (ratio < 1)


def test_what_episodes_do_not_resolve_is_refused() -> None:
    check = check_by_episodes([Dial(1.0)], most=600, called="tosses")
    with pytest.raises(InvalidInput, match=r"epsilon must be larger, 600 tosses do not resolve differences of 0.01"):
        check(Spending(0.5), Spending(0.51), 0.01, 0.05, np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="policies must hold at least one policy, got none"):
        check_by_episodes([])
