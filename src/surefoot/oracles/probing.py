"""Whether two tasks are close, asked of what a few policies do on both: for any task that can be simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from surefoot.arrays import Floats, fraction
from surefoot.cmdp.policy import Policy
from surefoot.confidence import Betting
from surefoot.errors import InvalidInput
from surefoot.oracles.interface import CheckOracle

# Episodes of one comparison, at first and at most; differences that these do not resolve are refused.
FIRST_ROUND, MOST_COMPARED = 256, 20_000
REMEMBERED = 4096  # rounds of a task's episodes


def check_by_episodes(
    policies: Sequence[Policy], seed: int = 0, *, most: int = MOST_COMPARED, called: str = "episodes"
) -> CheckOracle:
    """O_c in another distance than the paper's: the largest difference, between two tasks, of the unit values of any of
    `policies`.

    Each with probability at least 1-δ: True if it is at most ε, False if it exceeds 2ε. That other policies do alike on
    both is likely and not proved. All tasks see the same random numbers, drawn from `seed` whatever the generator, so
    that the episodes of a task that is compared often are remembered; what is 1-δ is over the draw of these numbers.
    Differences are bounded by betting (docs/guarantees.md, section 6) after rounds of more and more episodes until they
    decide. An ε for which the paper's theorem would hold is far below what 20 000 episodes resolve, and refused.

    Args:
        most: episodes of each policy at most.
        called: what an episode is called in errors.
    """
    if not len(policies):
        raise InvalidInput("policies must hold at least one policy, got none")

    @lru_cache(maxsize=REMEMBERED)
    def seen(task: _Known, first: int, episodes: int) -> Floats:
        """[episodes, policies, 1+m] sums, scaled from their ranges to [0, 1]."""
        streams = (np.random.default_rng([seed, first]) for _ in policies)
        each = zip(policies, streams, strict=True)
        return np.stack([_scaled_sums(task.task, policy, episodes, rng) for policy, rng in each], axis=1)

    def check(first: Any, second: Any, epsilon: float, delta: float, rng: np.random.Generator) -> bool:
        fraction("delta", delta)
        pair = [_Known(task.digest(), task) for task in (first, second)]
        near, far = _bounds(first.units, epsilon)
        values = (len(policies), len(near))
        sequence = Betting(delta / (values[0] * values[1]))
        state, begun, count = sequence.start(values), 0, FIRST_ROUND
        while begun < most:
            one, other = (seen(task, begun, count) for task in pair)
            state = sequence.update(state, (1 + one - other) / 2)
            begun += count
            count = begun
            least, largest = (2 * end - 1 for end in sequence.interval(state))
            if (np.maximum(least, -largest) > near).any():
                return False
            if (np.maximum(largest, -least) <= far).all():
                return True
        raise InvalidInput(f"epsilon must be larger, {most} {called} do not resolve differences of {epsilon!r}")

    return check


# ------------------------------------------------------------------------------------------------- parts, in call order


@dataclass(frozen=True)
class _Known:
    """A task by its digest: one that was made again is the same."""

    digest: str
    task: Any = field(compare=False)


def _scaled_sums(task: Any, policy: Policy, episodes: int, rng: np.random.Generator) -> Floats:
    outcomes = task.episodes(policy, task.units.episode_length).run(episodes, rng)
    scaled: Floats = task.units.scaled(outcomes.sums)
    return scaled


def _bounds(units: Any, epsilon: float) -> tuple[Floats, Floats]:
    """[1+m] what differences of scaled sums must exceed to show more than ε between unit values, and stay within to
    show at most 2ε; two episodes without a horizon may miss a tail each."""
    span = np.ptp(units.reachable, axis=1)
    step = np.array([units.reward_scale, *units.cost_scale]) / np.where(span > 0, span, 1.0)
    lost = 2 * units.truncation_bias(units.episode_length)
    return step * (epsilon + lost), step * (2 * epsilon - lost)
