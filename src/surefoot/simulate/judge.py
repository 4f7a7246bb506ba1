"""Whether what a learner deployed on a task was shown to keep the budgets: by values, or by fresh episodes.

On a simulator nobody can read a value, so a mixture counts as safe only once a bet on fresh episodes has shown it
(docs/guarantees.md, Theorem 12c). Each mixture is tested at the judge's error by itself: if one of them is unsafe, the
judge errs only by calling that one safe, so there is no union over what was deployed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from surefoot.arrays import Floats
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Episodes, ReadableTask, Task, Values
from surefoot.estimates import Intervals
from surefoot.learning.certified.selection import best_mixture
from surefoot.learning.learner import Learner
from surefoot.learning.method import SAFE, Mixture
from surefoot.simulate.evaluator import mixture_worth

Weighted: TypeAlias = tuple[tuple[int, ...], tuple[float, ...]]  # policies and their probabilities
SAFE_ALONE: Weighted = (SAFE,), (1.0,)

FIRST_ROUND = 250  # episodes of each policy after which it is first looked whether they are enough
# A mixture whose mean cost is so many standard errors above its budget will not be shown safe by further episodes. To
# give up early only counts more tasks as unsafe.
HOPELESS = 3.0


class Judge:
    """Of everything that is deployed on one task, at whatever settings of a learner.

    Args:
        policies: those of the policy set; learners may add others.
        steps: of an episode.
        error: probability with which something unsafe may count as safe.
        most: fresh episodes of each policy; a mixture that they do not show safe counts as unsafe.
        seed: of the fresh episodes, none of which a learner has seen; policy k has stream (k, 2).
        rounding: by how much an exactly computed margin may miss 0 and count as 0.
    """

    def __init__(
        self,
        task: Task,
        policies: Sequence[Policy],
        *,
        steps: int,
        error: float,
        most: int,
        seed: int,
        rounding: float,
    ) -> None:
        self.task, self.steps, self.error, self.most = task, steps, error, most
        self.seed, self.rounding, self._first_round = seed, rounding, min(FIRST_ROUND, most)
        self._policies, self._known = list(policies), len(policies)
        self._numbers = {id(policy): k for k, policy in enumerate(policies)}
        self._fresh: dict[int, _FreshEpisodes] = {}
        self._values: dict[int, Values] = {}
        self._verdicts: dict[Weighted, bool] = {}

    def mixture(self, learner: Learner, deployed: Mixture) -> Weighted:
        """What a learner deployed, by the numbers that its policies have here."""
        numbers = [self._number(learner.policy(index)) for index in deployed.indices.tolist()]
        return tuple(numbers), tuple(deployed.weights.tolist())

    def shows_safe(self, mixtures: Iterable[Weighted]) -> bool:
        """Whether all of them are shown to keep every budget."""
        return all(self._shows_safe(mixture) for mixture in strictest(mixtures))

    def reward(self, mixture: Weighted) -> float:
        """Its value, or the mean over the first fresh episodes."""
        numbers, shares = mixture
        return float(np.dot(shares, [self._value(k).reward for k in numbers]))

    def possible_gain(self) -> float:
        """Reward of the best mixture of the policy set within the budgets, beyond that of the safe policy: by values,
        or by the means over the first fresh episodes. The safe policy is always possible."""
        values = [self._value(k) for k in range(self._known)]
        reward, margin = np.array([each.reward for each in values]), np.stack([each.margin for each in values], axis=1)
        margin[:, SAFE] = np.maximum(margin[:, SAFE], 0.0)
        best = best_mixture(margin, reward)
        return max(0.0, float(best.weights @ reward[best.indices] - reward[SAFE]))

    def _number(self, policy: Policy) -> int:
        if id(policy) not in self._numbers:
            self._numbers[id(policy)] = len(self._policies)
            self._policies.append(policy)
        return self._numbers[id(policy)]

    def _shows_safe(self, mixture: Weighted) -> bool:
        if mixture not in self._verdicts:
            test = self._is_safe if isinstance(self.task, ReadableTask) else self._bet
            self._verdicts[mixture] = test(mixture)
        return self._verdicts[mixture]

    def _is_safe(self, mixture: Weighted) -> bool:
        numbers, shares = mixture
        return mixture_worth(np.array(shares), [self._value(k) for k in numbers]).margin >= -self.rounding

    def _value(self, number: int) -> Values:
        """Of a policy: exact, or the means over its first fresh episodes."""
        if number not in self._values:
            if isinstance(self.task, ReadableTask):
                self._values[number] = self.task.values(self._policies[number])
            else:
                seen = self._episodes(number, self._first_round)
                cost = seen.cost.mean(axis=0)
                self._values[number] = Values(float(seen.reward.mean()), cost, self.task.units.budget - cost)
        return self._values[number]

    def _bet(self, mixture: Weighted) -> bool:
        """The n-th fresh episodes of its policies, weighted, have the mixture's costs as their mean."""
        units = self.task.units
        intervals = Intervals(units, self.steps, self.error, margins_only=True)
        for count in self._rounds():
            costs = self._costs(mixture, count)
            outcomes = Outcomes(np.full(count, units.reachable[0, 0]), costs)
            lower, _ = intervals.bounds(intervals.update(intervals.start(), outcomes))
            if (lower[1:] >= 0).all():
                return True
            standard_error = costs.std(axis=0) / np.sqrt(count)
            if (costs.mean(axis=0) - HOPELESS * standard_error > units.budget).any():
                return False
        return False

    def _costs(self, mixture: Weighted, count: int) -> Floats:
        """[n, m]"""
        total: Floats = np.sum(
            [share * self._episodes(k, count).cost for k, share in zip(*mixture, strict=True)], axis=0
        )
        return total

    def _episodes(self, number: int, count: int) -> Outcomes:
        """The first fresh episodes of a policy, the same for all mixtures."""
        if number not in self._fresh:
            stream = np.random.SeedSequence(self.seed, spawn_key=(number, 2))
            episodes = self.task.episodes(self._policies[number], self.steps)
            rng = np.random.default_rng(stream)
            self._fresh[number] = _FreshEpisodes(episodes, rng, episodes.run(self._first_round, rng))
        return self._fresh[number].first(count)

    def _rounds(self) -> Iterator[int]:
        count = self._first_round
        while count < self.most:
            yield count
            count *= 2
        yield self.most


def strictest(mixtures: Iterable[Weighted]) -> list[Weighted]:
    """Those that show all of them safe. A mixture's cost is linear in its shares: where the safe policy and the largest
    share of one other beside it keep the budgets, so do all smaller shares."""
    distinct = list(dict.fromkeys(mixtures))
    if SAFE_ALONE not in distinct:
        return distinct
    others, largest = list[Weighted](), dict[tuple[int, ...], Weighted]()
    for numbers, shares in distinct:
        if len(numbers) != 2 or numbers[0] != SAFE:
            others.append((numbers, shares))
        elif numbers not in largest or shares[1] > largest[numbers][1][1]:
            largest[numbers] = numbers, shares
    return [*others, *largest.values()]


class _FreshEpisodes:
    def __init__(self, episodes: Episodes, rng: np.random.Generator, outcomes: Outcomes) -> None:
        self._simulated, self._rng, self._outcomes = episodes, rng, outcomes

    def first(self, count: int) -> Outcomes:
        missing = count - len(self._outcomes)
        if missing > 0:
            self._outcomes = Outcomes.joined([self._outcomes, self._simulated.run(missing, self._rng)])
        return self._outcomes[:count]
