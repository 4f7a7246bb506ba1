"""What policies are worth on a simulated task, for experiments that deploy mixtures of a few: values of a mixture are
linear in those of its policies, so each is judged once, on fresh episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task, run_policies
from surefoot.errors import InvalidInput
from surefoot.learning.certified.selection import best_mixture

# A mixture is called safe or unsafe if its cost is so many standard errors from the budget.
STANDARD_ERRORS = 3.0


class PolicyMeans:
    """Reward and cost of one task under each of P policies, from fresh episodes.

    Policies are judged on the same random numbers, as far as they have as many episodes: what they differ by is known
    better.

    Args:
        known: outcomes of policies, by their index, that were simulated already and had no part in making them.

    Attributes:
        count: [P] episodes so far.
    """

    def __init__(
        self,
        task: Task,
        policies: Sequence[Policy],
        seed: list[int],
        episodes: int,
        known: Mapping[int, Outcomes] = MappingProxyType({}),
    ) -> None:
        self.task, self.policies, self.seed = task, policies, seed
        self.count: Integers = np.zeros(len(policies), dtype=np.int64)
        self._rounds = np.zeros(len(policies), dtype=np.int64)
        self._sums, self._squares = np.zeros((2, len(policies), 2))
        others = [policy for policy in range(len(policies)) if policy not in known]
        fresh = run_policies(task, [policies[k] for k in others], episodes, [self._rng(k) for k in others])
        for policy, outcomes in {**known, **dict(zip(others, fresh, strict=True))}.items():
            self._add(policy, outcomes)

    @property
    def mean(self) -> Floats:
        """[P, 2]"""
        mean: Floats = self._sums / self.count[:, None]
        return mean

    @property
    def error(self) -> Floats:
        """[P, 2] one standard error of each mean."""
        count = self.count[:, None]
        variance = np.maximum(self._squares / count - self.mean**2, 0.0) / np.maximum(count - 1, 1)
        error: Floats = np.sqrt(variance)
        return error

    def watch_until(self, policies: Integers, episodes: int) -> None:
        """At least so many episodes of each of these policies."""
        for policy in policies[self.count[policies] < episodes]:
            self._watch(int(policy), episodes - int(self.count[policy]))

    def decide(self, mixtures: Floats, most: int, *, near: float = 0.0, precise: float = np.inf) -> None:
        """Watch more episodes, at most so many of each policy, until it is known on which side of the budget mixtures
        [n, P] lie, and the costs of those that are `near` it up to a standard error of `precise`."""
        while True:
            cost, error = mixtures @ self.mean[:, 1], mixtures @ self.error[:, 1]
            distance = np.abs(cost - self.task.units.budget[0])
            open_now = (distance <= STANDARD_ERRORS * error) | ((distance <= near) & (error > precise))
            doubt = (mixtures[open_now] * self.error[:, 1] * (self.count < most)).max(axis=0, initial=0.0)
            if not doubt.any():
                return
            policy = int(doubt.argmax())
            self._watch(policy, int(min(self.count[policy], most - self.count[policy])))

    def _watch(self, policy: int, episodes: int) -> None:
        playing = self.task.episodes(self.policies[policy], self.task.units.episode_length)
        self._add(policy, playing.run(episodes, self._rng(policy)))

    def _rng(self, policy: int) -> np.random.Generator:
        return np.random.default_rng([*self.seed, int(self._rounds[policy])])

    def _add(self, policy: int, outcomes: Outcomes) -> None:
        numbers = np.column_stack([outcomes.reward, outcomes.cost])
        self._sums[policy] += numbers.sum(axis=0)
        self._squares[policy] += (numbers**2).sum(axis=0)
        self._rounds[policy] += 1
        self.count[policy] += len(outcomes)


@dataclass(frozen=True, eq=False)
class JudgedTask:
    """Attributes:
    mean, error: [P, 2] reward and cost of each policy on this task, and standard errors; the safe policy is the first.
    count: [P] fresh episodes on which that was found out.
    possible: [P] the best mixture of policies known beforehand that keeps the budget, by `mean`.
    """

    parameter: Floats
    mean: Floats
    error: Floats
    count: Integers
    possible: Floats

    @property
    def possible_gain(self) -> float:
        """By how much the best mixture that keeps the budget on this very task is better than the safe policy."""
        reward = self.mean[:, 0]
        return max(0.0, float(self.possible @ reward - reward[0]))

    def gains(self, mixtures: Floats) -> Floats:
        """[n] reward of mixtures [n, P] beyond that of the safe policy, at most what is possible."""
        reward = self.mean[:, 0]
        found: Floats = np.minimum(mixtures @ reward - reward[0], self.possible_gain)
        return found

    def excess(self, mixtures: Floats, budget: float) -> tuple[Floats, Floats]:
        """[n] cost of mixtures [n, P] above the budget, and a bound on its standard error."""
        return mixtures @ self.mean[:, 1] - budget, mixtures @ self.error[:, 1]


def best(margin: Floats, reward: Floats) -> Floats:
    """[P] the mixture of the largest reward [P] whose margins [R, P] are all kept."""
    return best_mixture(margin, reward).probabilities(len(reward))


def available(methods: Iterable[str], make: Callable[[str], object]) -> tuple[list[str], dict[str, str]]:
    """The methods that can be had, by `make`, and why the others cannot."""
    found, refused = [], {}
    for name in methods:
        try:
            make(name)
        except InvalidInput as error:
            refused[name] = str(error)
        else:
            found.append(name)
    if not found:
        raise InvalidInput(f"methods must hold one that can be run, got none: {'; '.join(refused.values())}")
    return found, refused
