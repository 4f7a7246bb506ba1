"""A policy-value set of controllers that exist already: no training, only what they are worth."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from surefoot.arrays import Floats, check_indices, check_int, finite_array
from surefoot.bounds.envelopes import ValueBounds, build_value_bounds, limit_simulation, signals_to_learn
from surefoot.bounds.settings import MISS_RATE, TRIED_EPISODES, TRIED_TASKS, Envelopes, LearnedSignals
from surefoot.bounds.simulation import DEEPER, FIRST_PART, alpha_of_each, episodes_to_show
from surefoot.bounds.time_limit import SimulationPlan, plan_simulation
from surefoot.cmdp.controllers import Controller, as_policy, check_name
from surefoot.cmdp.external_policy import ExternalPolicy, RecordingController, fingerprint_controller
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import ReadableTask, Task
from surefoot.errors import InvalidInput
from surefoot.estimates import check_ranges
from surefoot.fan_out import check_jobs, parallel_map
from surefoot.policyset.certifiable import advice
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.progress import Progress, progress_reporter, say
from surefoot.streams import Stream
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import TaskDistribution

DOUBTFUL = 2.0  # times as many episodes as there may be must be needed, by an estimate, before these are refused
SAFE_NAME = "safe"
WATCHED_EPISODES = 4  # in which a controller meets the observations by which it is recognised


def policy_set(
    tasks: TaskDistribution,
    *,
    safe: Any,
    candidates: Mapping[str, Any] | Sequence[Any],
    seed: int,
    envelopes: Envelopes | None = None,
    signals: bool | LearnedSignals | None = None,
    jobs: int | None = None,
    progress: bool | Progress = True,
    keep: str | PathLike[str] | None = None,
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
        envelopes: how the value bounds are made; by default as well as two minutes of simulation make them.
        signals: what is learned to be read from episodes, as evidence; by default signals of what was observed, where
            tasks must be simulated and show it. False learns none.
        jobs: processes that simulate, with the same numbers; by default two where simulation is limited by time.
        progress: show what is done and what came of it; or a function that is told (stage, done, in all).
        keep: folder in which simulated episodes are kept, so that another call with the same seed goes on where this
            one ended. Bounds that were looked at and shall be narrower are another attempt (`Envelopes.attempt`).

    A controller is a policy of Surefoot, probabilities [S, A] or [H, S, A] or actions [S] where tasks are tables,
    anything with `predict`, or a function of an observation; `surefoot.controller` says more about one, its name
    included. On tables, functions of the state become tables. Elsewhere the code stays with its owner, and the set
    stores the name of the controller and a few of its actions, to recognise it by.
    """
    _check(tasks, seed, jobs)
    to_learn = signals_to_learn(signals, tasks.example)
    names, given = name_controllers(safe, candidates)
    with progress_reporter(progress) as show:
        show("looking at the controllers", 0, 0)
        policies = [policy_of(tasks.example, own, name, seed) for name, own in zip(names, given, strict=True)]
        plan = plan_simulation(tasks, policies, envelopes, to_learn, jobs=jobs, show=show, keep=keep)
    say(progress, *plan.lines)
    with progress_reporter(progress) as show:
        parameters, values, spread = _try_out(tasks, policies, seed, plan.jobs, show)
        failing = _check_safe(tasks, names[0], parameters, values[:, 0])
        _check_episodes(tasks, names[0], plan.envelopes, len(policies), values[:, 0, 1:], spread)
        bounds, seconds = _bound_values(tasks, policies, plan, names[0], values[:, 0], seed, show, keep)
    made = PolicyValueSet(
        _entries(parameters, policies, values),
        policies[0],
        tasks.units,
        *(None, None, None, tasks.digest(), tasks.recipe),
        {"seed": int(seed), "given": True, "samples": len(parameters), "safe_fails_on": failing, **plan.facts},
        *(bounds.cells, bounds.safe_risk, names),
    )
    say(progress is True and failing > 0, f"{names[0]} broke a budget on {failing} of {len(parameters)} tasks tried")
    say(progress, *(bounds.prospects.lines(names, seconds) if bounds.prospects else ()), *advice(made).lines)
    return made


def _check(tasks: Any, seed: int, jobs: int | None) -> None:
    if not isinstance(tasks, TaskDistribution):
        raise InvalidInput(
            f"tasks must be a task distribution, such as family or from_gym make, got {type(tasks).__name__}"
        )
    check_int("seed", seed, least=0)
    if jobs is not None:
        check_jobs(jobs)


def _try_out(
    tasks: TaskDistribution, policies: Sequence[Policy], seed: int, jobs: int, show: Progress
) -> tuple[Floats, Floats, Floats]:
    """Parameters [T, d] of a few tasks, the values [T, P, 1+m] of every policy there, reward and then margins, and the
    standard deviations [T, m] of what an episode of the safe policy costs."""
    distribution = tasks.distribution
    if isinstance(distribution, Finite) and (distribution.weights > 0).sum() <= TRIED_TASKS:
        parameters = distribution.points[distribution.weights > 0]
    else:
        parameters = np.unique(tasks.sample(TRIED_TASKS, Stream.TRIED_TASKS.rng(seed)), axis=0)
    calls = [(tasks, parameter, policies, [seed, Stream.TRIED_EPISODES, k]) for k, parameter in enumerate(parameters)]
    found = list(parallel_map("trying every controller on a few tasks", _values_on, calls, jobs, show))
    return parameters, np.stack([values for values, _ in found]), np.stack([spread for _, spread in found])


def _values_on(
    tasks: TaskDistribution, parameter: Floats, policies: Sequence[Policy], seed: list[int]
) -> tuple[Floats, Floats]:
    """[P, 1+m] reward and margins, exact or the mean over a few episodes; [m] as above, 0 where values are exact."""
    task, rng = tasks.task(parameter), np.random.default_rng(seed)
    units = task.units
    if isinstance(task, ReadableTask):
        values = np.array([[exact.reward, *exact.margin] for exact in map(task.values, policies)])
        return values, np.zeros(len(units.budget))
    played = [task.episodes(policy, units.episode_length).run(TRIED_EPISODES, rng) for policy in policies]
    for outcomes in played:
        check_ranges(outcomes, units)
    values = np.array([[each.reward.mean(), *(units.budget - each.cost.mean(axis=0))] for each in played])
    return values, played[0].cost.std(axis=0)


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


def _check_episodes(
    tasks: TaskDistribution, name: str, envelopes: Envelopes, policies: int, margin: Floats, spread: Floats
) -> None:
    """Refuse before anything is simulated what would end without a result: episodes of which far more would be needed
    on every task tried, on which the safe policy has margins and standard deviations of costs [T, m]."""
    settings, units = envelopes.resolve(tasks.example), tasks.units
    if not settings.simulated or tasks.shared_costs or envelopes.cells == 0:
        return
    episodes = limit_simulation(tasks, policies, settings, envelopes.steps).episodes
    finite = isinstance(tasks.distribution, Finite)
    error = alpha_of_each(settings, policies, units) if finite else MISS_RATE
    width = np.ptp(units.reachable[1:], axis=1)
    needed = episodes_to_show(margin / width, spread / width, error).max(axis=1)  # [T]
    possible = episodes if finite else DEEPER * FIRST_PART * episodes
    if needed.min() <= DOUBTFUL * possible:
        return
    more = np.median(needed[(margin > 0).all(axis=1)]) / possible
    raise InvalidInput(
        f"episodes must be about {math.ceil(more * episodes)} to show that {name!r} keeps the budget, got {episodes}: "
        f"on {len(margin)} tasks tried its margin is {margin.min():.2g} to {margin.max():.2g} and its cost varies by "
        f"{spread.max():.2g} from episode to episode; simulate more of them (Envelopes), or take a safer one",
        argument="episodes",
    )


def _bound_values(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    plan: SimulationPlan,
    name: str,
    tried: Floats,
    seed: int,
    show: Progress,
    keep: str | PathLike[str] | None,
) -> tuple[ValueBounds, float]:
    """Value bounds, and the seconds that they took; refused with what was seen of the safe policy on tasks tried."""
    began = time.perf_counter()
    try:
        bounds = build_value_bounds(tasks, policies, plan.envelopes, plan.signals, seed, plan.jobs, show, keep)
    except InvalidInput as error:
        raise InvalidInput(f"{error}{_hint(tasks, name, tried, error)}", argument=error.argument) from None
    return bounds, time.perf_counter() - began


def _hint(tasks: TaskDistribution, name: str, values: Floats, error: InvalidInput) -> str:
    """Where the safe policy could not be shown to be feasible: that may be its fault, or that of few episodes."""
    if error.argument not in ("holdout", "episodes"):
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


# -------------------------------------------------------------------------------- whatever people bring as a controller


def name_controllers(safe: Any, candidates: Any) -> tuple[tuple[str, ...], list[Any]]:
    """Names of all, the safe one's first, and the controllers themselves; those without a name are numbered."""
    if isinstance(candidates, Mapping):
        pairs = list(candidates.items())
    elif isinstance(candidates, Sequence) and not isinstance(candidates, str):
        pairs = [(_name_of(one, f"candidate {k}"), one) for k, one in enumerate(candidates, 1)]
    else:
        raise InvalidInput(
            f"candidates must be controllers by name or in a list, got {type(candidates).__name__}: for one alone, [it]"
        )
    if not pairs:
        raise InvalidInput("candidates must hold at least one controller, got none")
    pairs = [(_name_of(safe, SAFE_NAME), safe), *pairs]
    names = tuple(check_name("a candidate's name", name) for name, _ in pairs)
    twice = [name for k, name in enumerate(names) if name in names[:k]]
    if twice:
        raise InvalidInput(f"controllers must have different names, got {twice[0]!r} twice")
    return names, [one for _, one in pairs]


def policy_of(example: Task, given: Any, name: str, seed: int) -> Policy:
    """`given` as a policy for tasks like `example`."""
    if isinstance(given, ExternalPolicy):
        if given.controller is None:
            raise InvalidInput(f"controller {given.name!r} must be here to be evaluated, got its name only")
        given = given.controller
    if isinstance(example, TabularCMDP):
        return _as_table(example, given, name)
    policy = as_policy(given, name)
    if not isinstance(policy, Controller):
        return policy
    shape = policy.observation_shape or getattr(example, "observation_shape", None)  # which a task may tell
    return _external_policy(example, replace(policy, name=name, observation_shape=shape), seed)


def _name_of(given: Any, otherwise: str) -> str:
    return given.name if isinstance(given, Controller | ExternalPolicy) else otherwise


# --------------------------------------------------------------------------------------------------------------- tables


def _as_table(example: TabularCMDP, given: Any, name: str) -> Policy:
    """As data: probabilities as they are, functions of the state by asking them in every state."""
    if isinstance(given, np.ndarray | list | tuple):
        return _from_array(example, given, name)
    policy = as_policy(given, name)
    if not isinstance(policy, Controller):
        return policy
    steps = example.units.horizon if policy.looks_at_step else 1
    if steps is None:
        raise InvalidInput(
            f"controller {name!r} must not look at the step where tables have no horizon, got a function of it; give "
            "probabilities [H, S, A]"
        )
    tables = np.stack([_actions_in_every_state(example, policy, step) for step in range(steps)])
    return TabularPolicy(tables[0]) if steps == 1 else TimedPolicy(tables)


def _from_array(example: TabularCMDP, given: Any, name: str) -> Policy:
    array = finite_array(f"controller {name!r}", given)
    if array.ndim == 1:
        return TabularPolicy(_one_hot(example, np.asarray(given), name))
    return TimedPolicy(array) if array.ndim == 3 else TabularPolicy(array)


def _actions_in_every_state(example: TabularCMDP, own: Controller, step: int) -> Floats:
    """[S, A] what a function of the state does in every state, which must be the same every time."""
    states = np.arange(example.n_states)
    first, second = (own.act(states, np.full(len(states), step), np.random.default_rng(k)) for k in (1, 2))
    if own.remembers or not np.array_equal(first, second):
        raise InvalidInput(
            f"controller {own.name!r} must be a function of the state to become a table, got one that "
            f"{'remembers its episode' if own.remembers else 'draws its actions'}; give probabilities [S, A]"
        )
    return _one_hot(example, np.asarray(first), own.name)


def _one_hot(example: TabularCMDP, actions: Any, name: str) -> Floats:
    if actions.shape != (example.n_states,) or actions.dtype.kind not in "iu":
        raise InvalidInput(
            f"controller {name!r} must have one action 0, 1, ... for each of {example.n_states} states, "
            f"got type {actions.dtype} and shape {list(actions.shape)}"
        )
    check_indices(f"actions of controller {name!r}", actions, example.n_actions)
    table: Floats = np.eye(example.n_actions)[actions]
    return table


# ------------------------------------------------------------------------------------------------ all that is simulated


def _external_policy(example: Task, own: Controller, seed: int) -> ExternalPolicy:
    def simulate(watched: RecordingController) -> None:
        steps = example.units.episode_length
        example.episodes(watched, steps).run(WATCHED_EPISODES, Stream.GIVEN_POLICY_EPISODES.rng(seed))

    policy = fingerprint_controller(own, simulate)
    if policy.fingerprint is None:
        warnings.warn(
            f"controller {own.name!r} draws its actions from a generator of its own: the same seed need not give the "
            "same result, and in a stored set it is known by its name only; let it draw from rng, or give "
            "surefoot.controller(..., fingerprint=...)",
            stacklevel=4,
        )
    return policy
