"""One policy, one certificate: bounds on its expected reward and costs that hold however often one looks (Theorem 14).

    sf.certify(task, policy, budget=0.5)                             simulated, until the verdict is clear
    sf.certify("episodes.csv", budget=0.5, cost_range=(0.0, 1.0))    logged

The sums of independent episodes are bounded, and bets on them give intervals for their means that are all right, after
every number of episodes, with probability 1 - risk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from surefoot.arrays import Floats, check_int, check_unit_interval, finite_array
from surefoot.cmdp.controllers import as_policy
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task
from surefoot.cmdp.units import Units
from surefoot.cmdp.wording import fit_in_words, number
from surefoot.confidence import State
from surefoot.deploy.logs import episodes_of
from surefoot.deploy.outcomes import Episode, outcome_of, record
from surefoot.errors import InvalidInput
from surefoot.estimates import SIMULATED, Intervals, check_ranges
from surefoot.learning.checks import check_outcomes
from surefoot.learning.fit import fit_p_value
from surefoot.learning.method import SAFE
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent

Verdict: TypeAlias = Literal["within", "above", "undecided", "bounds"]
Logged: TypeAlias = str | PathLike[str] | Outcomes | Sequence[Episode] | ArrayLike

MOST = 10_000  # episodes that are simulated by default
FIRST_ROUND = 100  # episodes that are simulated before the first look; then as many as all before
FARTHEST = 2.0**20  # times the episodes there are, beyond which nobody waits for a verdict
HALVINGS = 12
ONE_STEP = 1  # as which the sums of a log without a policy set count
LOGGED = "sums of logged episodes must lie in their ranges"


class Bound(NamedTuple):
    """Of an expected sum: the mean seen, and the least and the most that it can be."""

    mean: float
    lower: float
    upper: float


@dataclass(frozen=True)
class PolicyCertificate:
    """What is known of a policy; all bounds hold at once, and for all numbers of episodes, with probability 1 - risk.

    Attributes:
        verdict: "within" if every budget is kept, "above" if one is not, "undecided" if that is not clear yet, "bounds"
            if no budget was given.
        more: how many more episodes might make it clear, if they are like those there are; None if it is, or if that
            is not in sight.
        reward: None where its range is not known.
        fit: p-value of "the episodes come from a task that the policy set was trained for", where there is a set with
            cells; it too may be looked at whenever one likes.
    """

    verdict: Verdict
    episodes: int
    risk: float
    reward: Bound | None
    cost: tuple[Bound, ...]
    budget: tuple[float, ...] | None
    more: int | None = None
    fit: float | None = None

    def as_dict(self) -> dict[str, Any]:
        plain = asdict(self)
        plain["reward"] = None if self.reward is None else self.reward._asdict()
        return {**plain, "cost": [each._asdict() for each in self.cost]}

    def __str__(self) -> str:
        return "\n".join(f"{name:<10} {value}" for name, value in self.facts())

    def facts(self) -> tuple[tuple[str, str], ...]:
        """Names and sentences."""
        names = ["cost"] if len(self.cost) == 1 else [f"cost {k + 1}" for k in range(len(self.cost))]
        budgets = [""] * len(names) if self.budget is None else [f"; budget {value:g}" for value in self.budget]
        return (
            ("verdict", self._sentence()),
            *((name, _in_words(b) + budget) for name, b, budget in zip(names, self.cost, budgets, strict=True)),
            *(() if self.reward is None else (("reward", _in_words(self.reward)),)),
            ("episodes", f"{self.episodes:,}"),
            *(() if self.fit is None else (("simulator", f"the episodes {fit_in_words(self.fit)}"),)),
        )

    def _sentence(self) -> str:
        confidence = f"at confidence {100 * (1 - self.risk):g} %"
        what = "budget" if self.budget is None or len(self.budget) == 1 else "every budget"
        if self.verdict == "undecided":
            wait = "no end in sight" if self.more is None else f"about {float(f'{self.more:.2g}'):,.0f} more episodes"
            return f"undecided {confidence}, {wait}"
        words = {"within": f"within {what}", "above": "above budget", "bounds": "bounds, since no budget was given,"}
        return f"{words[self.verdict]} {confidence}"


def _in_words(bound: Bound) -> str:
    return f"between {number(bound.lower)} and {number(bound.upper)}, mean {number(bound.mean)}"


def certify(
    episodes: Task | Logged,
    policy: Policy | int | None = None,
    budget: ArrayLike | None = None,
    *,
    policies: PolicyValueSet | None = None,
    reward_range: ArrayLike | None = None,
    cost_range: ArrayLike | None = None,
    risk: float = 0.05,
    most: int = MOST,
    horizon: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> PolicyCertificate:
    """Bounds on the expected reward and costs of one policy, and whether it keeps its budgets.

    Args:
        episodes: a task, to simulate `policy` on until the verdict is clear; or independent episodes of it that were
            logged: a file ending in .csv or .jsonl, a journal, `Outcomes`, a sequence of what `Deployment.tell` takes,
            or an array [n] or [n, m] of their costs. Every episode from some time on must be there, whatever happened
            in it.
        policy: what to simulate, a policy or a function of an observation; of a log with a policy set, the number of
            the policy that was run, by default 0, the safe one.
        budget: a number, or [m]; by default that of the task or of the policy set. Without one there are bounds only.
        policies: for a log, the set with its ranges and budgets, and with cells also whether the episodes fit them.
        reward_range, cost_range: for a log without a set, (low, high) of what one episode can pay and cost in all, and
            [m, 2] for several costs that differ in it. Without a range of the reward nothing is said of it.
        risk: probability with which any of the bounds is ever wrong.
        most: episodes to simulate at the most.
        horizon: steps after which an episode is cut off; by default as for `surefoot.learner`.
        seed: of the simulated episodes.
        progress: told (what is done, how many episodes of how many).
    """
    risk = check_unit_interval("risk", risk)
    if isinstance(episodes, Task):
        _check_left_out(policies=policies, reward_range=reward_range, cost_range=cost_range)
        return _certify_task(episodes, policy, budget, risk, check_int("most", most), horizon, seed, progress)
    if policies is not None:
        _check_left_out(reward_range=reward_range, cost_range=cost_range)
        return _certify_by_set(episodes, policies, policy, budget, risk, horizon)
    _check_left_out(policy=policy, horizon=horizon)
    return _certify_log(episodes, budget, reward_range, cost_range, risk)


def _check_left_out(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(
                f"{name} must be left out here, got {value!r}"[:160] + "; a policy belongs to a task or a policy set, "
                "ranges to a log without a policy set, and a policy set to a log"
            )


def _certify_task(
    task: Task,
    policy: Any,
    budget: ArrayLike | None,
    risk: float,
    most: int,
    horizon: int | None,
    seed: int,
    progress: Progress,
) -> PolicyCertificate:
    """Simulate until it is clear on which side of the budgets the policy is."""
    if policy is None:
        raise InvalidInput("policy must be the policy to simulate on the task, got None")
    units, rng = _with_budget(task.units, budget), np.random.default_rng(check_int("seed", seed, least=0))
    steps = units.steps(horizon)
    simulated, seen = task.episodes(as_policy(policy, "policy"), steps), _Seen.start(units, steps, risk)
    while seen.count < most:
        seen = seen.update(simulated.run(min(max(FIRST_ROUND, seen.count), most - seen.count), rng))
        progress("simulating episodes", seen.count, most)
        if _verdict(seen.bounds()[1:], units.budget) != "undecided":
            break
    return _certificate(seen, units.budget, risk)


def _certify_by_set(
    log: Logged, policies: PolicyValueSet, policy: Any, budget: ArrayLike | None, risk: float, horizon: int | None
) -> PolicyCertificate:
    """Of a policy of the set, and whether the log fits the tasks that the set is for."""
    units = _with_budget(policies.units, budget)
    steps, run = units.steps(horizon), SAFE if policy is None else number_in_set(policy, policies)
    outcomes = _read_log(log, len(units.budget), units.discount, steps, run)
    check_outcomes(outcomes, len(outcomes), units)
    seen = _Seen.start(units, steps, risk).update(outcomes, LOGGED)
    fit = None if policies.cells is None else fit_p_value(policies, outcomes, run, horizon)
    return replace(_certificate(seen, units.budget, risk), fit=fit)


def number_in_set(policy: Any, policies: PolicyValueSet) -> int:
    run, count = check_int("policy", policy, least=0), len(policies.policies)
    if run >= count:
        raise InvalidInput(f"policy must be the number of one of the {count} policies in the set, got {run}")
    return run


def _certify_log(
    log: Logged, budget: ArrayLike | None, reward_range: ArrayLike | None, cost_range: ArrayLike | None, risk: float
) -> PolicyCertificate:
    """Of episodes of which nothing is known but the ranges of their sums."""
    if cost_range is None:
        raise InvalidInput(
            "cost_range must be the least and the most that one episode can cost, or no mean can be bounded, got None; "
            "a policy set (policies) has ranges too"
        )
    limits = None if budget is None else np.atleast_1d(finite_array("budget", budget))
    outcomes = _read_log(log, None if limits is None else len(limits), 1.0, None, costs_alone=reward_range is None)
    paid: Any = (0.0, 0.0) if reward_range is None else reward_range
    spent: Any = cost_range
    budgets = np.zeros(outcomes.cost.shape[-1]) if limits is None else limits
    units = Units(1.0, paid, spent, budgets, ONE_STEP, reward_sum_range=paid, cost_sum_range=spent)
    check_outcomes(outcomes, len(outcomes), units)
    seen = _Seen.start(units, ONE_STEP, risk, reward=reward_range is not None).update(outcomes, LOGGED)
    return _certificate(seen, limits, risk)


def _with_budget(units: Units, budget: ArrayLike | None) -> Units:
    if budget is None:
        return units
    limits = np.atleast_1d(finite_array("budget", budget))
    if limits.shape != units.budget.shape:
        raise InvalidInput(f"budget must hold {len(units.budget)} numbers, one per cost, got {limits.tolist()}")
    return replace(units, budget=limits)


# ------------------------------------------------------------------------------------------------------------ from bets


@dataclass(frozen=True, eq=False)
class _Seen:
    """Episodes of one policy: what the intervals remember of them, and their sums [1+m]."""

    intervals: Intervals
    state: State
    total: Floats
    reward: bool

    @classmethod
    def start(cls, units: Units, steps: int, risk: float, reward: bool = True) -> _Seen:
        """The risk is shared by the bounds below and above the costs and, if it is asked for, the reward."""
        numbers = len(units.budget) + reward
        intervals = Intervals(units, steps, risk / (2 * numbers))
        return cls(intervals, intervals.start(), np.zeros(len(units.reachable)), reward)

    def update(self, outcomes: Outcomes, rule: str = SIMULATED) -> _Seen:
        check_ranges(outcomes, self.intervals.units, rule)
        state = self.intervals.update(self.state, outcomes)
        return replace(self, state=state, total=self.total + outcomes.sums.sum(axis=0))

    @property
    def count(self) -> int:
        return int(self.state.count)

    def bounds(self, times: float = 1.0) -> list[Bound]:
        """[1+m] of the reward and the costs, if all episodes had been seen so many times."""
        lower, upper = self.intervals.bounds(State(self.state.count * times, self.state.sums * times))
        budget, mean = self.intervals.units.budget, self.total / max(self.count, 1)
        least, most = np.append(lower[0], budget - upper[1:]), np.append(upper[0], budget - lower[1:])
        return [Bound(*map(float, each)) for each in zip(mean, least, most, strict=True)]


def _verdict(costs: Sequence[Bound], budget: Floats) -> Verdict:
    """By bounds that are right: above a budget for certain, within all of them for certain, or neither."""
    if any(bound.lower > limit for bound, limit in zip(costs, budget, strict=True)):
        return "above"
    return "within" if all(bound.upper <= limit for bound, limit in zip(costs, budget, strict=True)) else "undecided"


def _episodes_missing(seen: _Seen, budget: Floats) -> int | None:
    """How many more make the verdict clear if they repeat those there are; None if that takes too many."""
    low, high = 1.0, 2.0
    while _verdict(seen.bounds(high)[1:], budget) == "undecided":
        low, high = high, 2 * high
        if high > FARTHEST:
            return None
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        undecided = _verdict(seen.bounds(middle)[1:], budget) == "undecided"
        low, high = (middle, high) if undecided else (low, middle)
    return math.ceil((high - 1) * seen.count)


def _certificate(seen: _Seen, budget: Floats | None, risk: float) -> PolicyCertificate:
    reward, *costs = seen.bounds()
    verdict = "bounds" if budget is None else _verdict(costs, budget)
    return PolicyCertificate(
        verdict,
        seen.count,
        risk,
        reward if seen.reward else None,
        tuple(costs),
        None if budget is None else tuple(budget.tolist()),
        _episodes_missing(seen, budget) if budget is not None and verdict == "undecided" and seen.count else None,
    )


# ----------------------------------------------------------------------------------------------------- what was logged


def _read_log(
    log: Logged,
    constraints: int | None,
    discount: float,
    longest: int | None,
    policy: int = SAFE,
    *,
    costs_alone: bool = False,
) -> Outcomes:
    """Outcomes of a file, of a sequence of episodes, of an array of costs, or as they are."""
    if isinstance(log, Outcomes):
        found = log
    elif isinstance(log, str | PathLike) or (isinstance(log, Sequence) and any(isinstance(k, Mapping) for k in log)):
        told: Any = episodes_of(log, policy)  # type: ignore[arg-type]
        told = [_without_reward(each) for each in told] if costs_alone else told
        count = _count_costs(told[0]) if constraints is None else constraints
        plain = [record(each, count, longest) for each in told]
        found = Outcomes.joined([Outcomes.single(outcome_of(each, discount)) for each in plain])
    elif not costs_alone:
        raise InvalidInput(
            f"episodes must hold rewards and costs, got {type(log).__name__}; an array of costs is for a log of which "
            "nothing but their range is known"
        )
    else:
        costs = finite_array("episodes", log)
        if costs.ndim not in (1, 2) or not costs.size:
            raise InvalidInput(f"episodes must hold costs [n] or [n, m], got shape {list(costs.shape)}")
        found = Outcomes(np.zeros(len(costs)), costs.reshape(len(costs), -1))
    if not len(found):
        raise InvalidInput("episodes must hold at least one episode, got none")
    return replace(found, reward=np.zeros(len(found))) if costs_alone else found


def _without_reward(told: Mapping[str, Any]) -> dict[str, Any]:
    """An episode of which only the costs are looked at."""
    if "costs" in told:
        return {"costs": told["costs"], "rewards": np.zeros(len(told["costs"]))}
    return {"cost": told["cost"], "reward": 0.0} if "cost" in told else dict(told)


def _count_costs(told: Mapping[str, Any]) -> int:
    try:
        return int(np.shape(told["costs"])[1]) if "costs" in told else int(np.size(told["cost"]))
    except (LookupError, ValueError):  # one sequence of costs; whatever else it is, it is refused where it is read
        return 1
