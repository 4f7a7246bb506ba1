"""Algorithm 1: sample tasks, cover them greedily, solve each centre, find one policy feasible for all."""

from __future__ import annotations

import warnings

import numpy as np

from surefoot.bounds.envelopes import build_value_bounds, signals_to_learn
from surefoot.bounds.settings import DEFAULT, Envelopes, LearnedSignals
from surefoot.bounds.time_limit import plan_simulation
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.fan_out import check_jobs
from surefoot.oracles.exact import exact_oracles
from surefoot.oracles.interface import FeasiblePolicy, Oracles, PolicyValues
from surefoot.policyset.certifiable import advice
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.progress import Progress, progress_reporter, say
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.cover import cover_tasks
from surefoot.training.preflight import LongTrainingWarning, Preflight, UncertifiedWarning, preflight

# A policy on the boundary of a constraint may miss it by this much in rounding (unit scale).
ROUNDING = 1e-8


def train(
    tasks: TaskDistribution,
    *,
    epsilon: float,
    delta: float,
    xi: float | None = None,
    oracles: Oracles | None = None,
    seed: int,
    progress: bool | Progress = True,
    cells: int | None = None,
    envelopes: Envelopes | None = None,
    signals: bool | LearnedSignals | None = None,
    jobs: int = 1,
) -> PolicyValueSet:
    """The policy-value set Û and the safe policy π_s for a distribution over tasks.

    Args:
        epsilon: accuracy of the cover in the paper's distance d (unit scale).
        delta: the paper's δ; at most 3δ of the sampled tasks stay uncovered.
        xi: margin (unit scale) that π_s must keep on every centre; None asks for feasibility and records what was
            attained.
        oracles: check, optimal and feasible; exact ones for tables when not given, needed for any other tasks.
        progress: show how far it is, as a bar on a terminal; or a function that is told (stage, done, in all).
        cells: number of cells for the certified methods, about; 0 builds none. Short for Envelopes(cells=...).
        envelopes: how the value bounds for the certified methods are made.
        signals: what is learned to be read from episodes, as evidence; by default signals of what was observed, where
            tasks must be simulated and show it. False learns none.
        jobs: tasks simulated at a time for these bounds, in processes of their own or by the active backend of joblib;
            the numbers are the same for any of them.
    """
    check_jobs(jobs)
    envelopes, to_learn = _envelopes(cells, envelopes), signals_to_learn(signals, tasks.example)
    rng, oracles = np.random.default_rng(seed), oracles or exact_oracles(tasks)
    guard = preflight(tasks, epsilon=epsilon, delta=delta, xi=xi, oracles=oracles)
    _warn(guard)
    with progress_reporter(progress) as show:
        if guard.expected:
            show(guard.expected, 0, 0)
        entries, safe, attained, samples = _algorithm_1(tasks, epsilon, delta, xi or 0.0, oracles, rng, show)
        show("bounding the values of every policy over all tasks", 0, 0)
        policies = [safe, *(entry.policy for entry in entries)]
        plan = plan_simulation(tasks, policies, envelopes, to_learn, jobs=jobs, show=show)
        bounds = build_value_bounds(tasks, policies, plan.envelopes, plan.signals, seed, jobs, show)

    verdict = guard.at_margin(attained)
    if guard.satisfied and not verdict.satisfied:
        warnings.warn(verdict.warning, UncertifiedWarning, stacklevel=2)
    record = {"seed": seed, "samples": samples, "cover_size": len(entries), **verdict.facts, **plan.facts}
    values = (bounds.cells, bounds.safe_risk)
    made = PolicyValueSet(
        entries, safe, tasks.units, epsilon, delta, attained, tasks.digest(), tasks.recipe, record, *values
    )
    say(progress, *advice(made).lines)
    return made


def _envelopes(cells: int | None, envelopes: Envelopes | None) -> Envelopes:
    if cells is None:
        return envelopes or DEFAULT
    if envelopes is not None:
        raise InvalidInput(f"give either cells or envelopes, got cells={cells!r} and {envelopes}")
    return Envelopes(cells=cells)


def _warn(guard: Preflight) -> None:
    """Warnings to whoever called `train`."""
    if not guard.satisfied:
        warnings.warn(guard.warning, UncertifiedWarning, stacklevel=3)
    if guard.is_long:
        warnings.warn(guard.long_warning, LongTrainingWarning, stacklevel=3)


def _algorithm_1(
    tasks: TaskDistribution,
    epsilon: float,
    delta: float,
    xi: float,
    oracles: Oracles,
    rng: np.random.Generator,
    show: Progress,
) -> tuple[tuple[Entry, ...], Policy, float, int]:
    """Û, π_s, the margin (unit scale) that π_s keeps on every centre, and N: the listing, by its lines."""
    # 2-7: sample N tasks, cover them by U, double N until U covers as good as every task.
    samples, centres = cover_tasks(tasks, epsilon, delta, oracles.check, rng, show)
    cover = [tasks.task(samples[j]) for j in centres]
    # 8-10: a near-optimal policy for each task of U, in an order that suits the oracle.
    optimal: dict[int, PolicyValues] = {}
    for number, k in enumerate(oracles.order(samples[centres])):
        show("solving the centres of the cover", number, len(cover))
        optimal[k] = oracles.optimal(cover[k], epsilon, delta / (2 * len(cover)), rng)
    # 11: one policy that is feasible on all of U.
    show("looking for one policy feasible on every centre", 0, 0)
    safe = oracles.feasible(cover, xi, delta / 2, rng)
    attained = _attained_margin(tasks.units, safe, xi)
    # 12: Û, Eq. (constructpolicy), per task of U its policy with the values of that and of π_s there.
    entries = tuple(
        Entry(samples[j], best.policy, best.reward, best.margin, float(safe_reward), safe_margin)
        for j, (_, best), safe_reward, safe_margin in zip(
            centres, sorted(optimal.items()), safe.reward, safe.margin, strict=True
        )
    )
    return entries, safe.policy, attained, len(samples)


def _attained_margin(units: Units, safe: FeasiblePolicy, xi: float) -> float:
    """ξ that π_s keeps on every centre (unit scale), or an error when the oracle broke its promise."""
    attained = float(units.unit_margin(safe.margin).min())
    if not attained >= xi - ROUNDING:
        raise InvalidInput(
            f"the feasible oracle must return a policy with unit margin {xi:g} on every centre, got {attained:.6g}"
        )
    return max(attained, xi)
