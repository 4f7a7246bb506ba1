"""A policy-value set of controllers that exist already: no training, only what they are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from surefoot.arrays import Floats, whole
from surefoot.bounds.envelopes import guarantees, signals_to_learn
from surefoot.bounds.settings import DEFAULT, Envelopes, LearnedSignals
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import ReadableTask, Task
from surefoot.errors import InvalidInput
from surefoot.fan_out import check_jobs, each
from surefoot.policyset.certifiable import advice
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.progress import Progress, say, shown
from surefoot.streams import Stream
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.given_policies import named, usable

# Sampled tasks on which everything is tried first, and episodes on each where tasks must be simulated: enough to see
# what each candidate is for, and that the safe one deserves its name. No guarantee rests on them.
TRIED_TASKS, TRIED_EPISODES = 16, 64

# Random numbers of their own, apart from those of `training.simulation`: for the tasks, and for their episodes.


def policy_set(
    tasks: TaskDistribution,
    *,
    safe: Any,
    candidates: Mapping[str, Any] | Sequence[Any],
    seed: int,
    envelopes: Envelopes | None = None,
    signals: bool | LearnedSignals | None = None,
    jobs: int = 1,
    progress: bool | Progress = True,
) -> PolicyValueSet:
    """The policy-value set of given controllers, for the certified methods.

    There is no cover of the tasks, hence no epsilon, delta and xi, and methods whose proof is about one (`paper` and
    its relatives, the baselines) refuse such a set. `certified` needs none: it rests on the value bounds alone.

    Args:
        tasks: any family: tables, simulators, environments.
        safe: the controller that keeps the budgets on as good as every task. How often it may not is bounded, and part
            of every risk that is stated later.
        candidates: the others, by name or in order. They need not be safe on every task, nor on any.
        seed: of sampled tasks and simulated episodes.
        envelopes: how the value bounds are made.
        signals: what is learned to be read from episodes, as evidence; by default signals of what was observed, where
            tasks must be simulated and show it. False learns none.
        jobs: processes that simulate.
        progress: show what is done, and which certified method will be used; or a function that is told (stage, done,
            in all).

    A controller is a policy of Surefoot, probabilities [S, A] or [H, S, A] or actions [S] where tasks are tables,
    anything with `predict`, or a function of an observation; `surefoot.controller` says more about one, its name
    included. On tables, functions of the state become tables. Elsewhere the code stays with its owner, and the set
    stores the name of the controller and a few of its actions, to recognise it by.
    """
    _check(tasks, seed, jobs)
    to_learn = signals_to_learn(signals, tasks.example)
    names, given = named(safe, candidates)
    with shown(progress) as show:
        show("looking at the controllers", 0, 0)
        policies = [usable(tasks.example, own, name, seed) for name, own in zip(names, given, strict=True)]
        parameters, values = _tried(tasks, policies, seed, jobs, show)
        failing = _check_safe(tasks, names[0], parameters, values[:, 0])
        try:
            cells, safe_risk = guarantees(tasks, policies, envelopes or DEFAULT, to_learn, seed, jobs, show)
        except InvalidInput as error:
            raise InvalidInput(f"{error}{_hint(tasks, names[0], values[:, 0], error)}") from None
    made = PolicyValueSet(
        _entries(parameters, policies, values),
        policies[0],
        tasks.units,
        *(None, None, None, tasks.digest(), tasks.recipe),
        {"seed": int(seed), "given": True, "samples": len(parameters), "safe_fails_on": failing},
        *(cells, safe_risk, names),
    )
    say(progress is True and failing > 0, f"{names[0]} broke a budget on {failing} of {len(parameters)} tasks tried")
    say(progress, *advice(made).lines)
    return made


def _check(tasks: Any, seed: int, jobs: int) -> None:
    if not isinstance(tasks, TaskDistribution):
        raise InvalidInput(
            f"tasks must be a task distribution, such as family or from_gym make, got {type(tasks).__name__}"
        )
    whole("seed", seed, least=0)
    check_jobs(jobs)


def _tried(
    tasks: TaskDistribution, policies: Sequence[Policy], seed: int, jobs: int, show: Progress
) -> tuple[Floats, Floats]:
    """Parameters [T, d] of a few tasks, and the values [T, P, 1+m] of every policy there: reward, then margins."""
    distribution = tasks.distribution
    if isinstance(distribution, Finite) and (distribution.weights > 0).sum() <= TRIED_TASKS:
        parameters = distribution.points[distribution.weights > 0]
    else:
        parameters = np.unique(tasks.sample(TRIED_TASKS, Stream.TRIED_TASKS.rng(seed)), axis=0)
    calls = [(tasks, parameter, policies, [seed, Stream.TRIED_EPISODES, k]) for k, parameter in enumerate(parameters)]
    found = each("trying every controller on a few tasks", _values_on, calls, jobs, show)
    return parameters, np.stack(list(found))


def _values_on(tasks: TaskDistribution, parameter: Floats, policies: Sequence[Policy], seed: list[int]) -> Floats:
    """[P, 1+m]"""
    task, rng = tasks.task(parameter), np.random.default_rng(seed)
    return np.array([_values_of(task, policy, rng) for policy in policies])


def _values_of(task: Task, policy: Policy, rng: np.random.Generator) -> list[float]:
    """Reward and margins, exact or the mean over a few episodes."""
    if isinstance(task, ReadableTask):
        values = task.values(policy)
        return [values.reward, *values.margin]
    outcomes = task.episodes(policy, task.units.episode_length).run(TRIED_EPISODES, rng)
    return [outcomes.reward.mean(), *(task.units.budget - outcomes.cost.mean(axis=0))]


def _check_safe(tasks: TaskDistribution, name: str, parameters: Floats, values: Floats) -> int:
    """On how many of the tasks tried the safe policy broke a budget; refused where it is safe on none of them."""
    units = tasks.units
    margin = units.unit_margin(values[:, 1:])  # [T, m]
    failing = (margin < 0).any(axis=1)
    if failing.all():
        best, worst = int(np.argmax(margin.min(axis=1))), int(np.argmin(margin.min(axis=1)))
        costs = units.budget - values[:, 1:]
        raise InvalidInput(
            f"safe must keep the budget on most tasks, got {name!r}, which breaks it on each of {len(parameters)} "
            f"tasks tried: budget {units.budget.tolist()}, cost {costs[best].tolist()} at best (parameter "
            f"{parameters[best].tolist()}) and {costs[worst].tolist()} at worst ({parameters[worst].tolist()})"
        )
    return int(failing.sum())


def _hint(tasks: TaskDistribution, name: str, values: Floats, error: InvalidInput) -> str:
    """Where the safe policy could not be shown to be feasible: that may be its fault, or that of few episodes."""
    if not str(error).startswith(("holdout", "episodes")):
        return ""
    least = (values[:, 1:] / np.abs(tasks.units.reachable[1:]).max(axis=1)).min(axis=1)
    return (
        f". On {len(values)} tasks tried {name!r} seems to keep the budget on {int((least >= 0).sum())}, with a margin "
        f"of {least.min():.2g} to {least.max():.2g} of the largest possible cost: simulated intervals must be narrower "
        "than that to show it"
    )


def _entries(parameters: Floats, policies: Sequence[Policy], values: Floats) -> tuple[Entry, ...]:
    """Per candidate the task that it suits best of those tried, with its values and those of the safe policy there.

    `certified-model-free` tries the candidate of the task that the safe policy's returns look like, so each candidate
    should stand for a task where it is the one to have. What is claimed of it does not depend on that.
    """
    entries = []
    for index in range(1, len(policies)):
        chosen = _suits_best(values, index)
        own, safe = values[chosen, index], values[chosen, 0]
        entries.append(Entry(parameters[chosen], policies[index], own[0], own[1:], safe[0], safe[1:]))
    return tuple(entries)


def _suits_best(values: Floats, index: int) -> int:
    """The task where the policy is ahead of all others that keep the budgets there by most, among those where it keeps
    them itself; if it does nowhere, the task where it comes closest."""
    least = values[:, :, 1:].min(axis=2)  # [T, P]
    feasible = least[:, index] >= 0
    if not feasible.any():
        return int(np.argmax(least[:, index]))
    rivals = np.where(least >= 0, values[:, :, 0], -np.inf)
    rivals[:, index] = -np.inf
    best = rivals.max(axis=1)
    ahead = np.where(np.isfinite(best), values[:, index, 0] - best, np.inf)
    return int(np.argmax(np.where(feasible, ahead, -np.inf)))
