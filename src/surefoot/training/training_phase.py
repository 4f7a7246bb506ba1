"""Algorithm 1: sample tasks, cover them greedily, solve each centre, find one policy feasible for all."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot import theory
from surefoot.arrays import Floats
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.fan_out import check_jobs
from surefoot.oracles.exact import ParameterDistance, exact_oracles
from surefoot.oracles.interface import CheckOracle, FeasiblePolicy, Oracles, PolicyValues
from surefoot.policyset.cells import Cells
from surefoot.policyset.certifiable import advice
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.progress import Progress, say, shown
from surefoot.tasks.task_distribution import TaskDistribution
from surefoot.training.envelopes import build_cells, safe_policy_risk
from surefoot.training.greedy_cover import greedy_cover
from surefoot.training.preflight import Preflight, UncertifiedWarning, check_accuracy, preflight
from surefoot.training.settings import DEFAULT, Envelopes

# In several dimensions the cover takes time in proportion to the samples that may become centres.
MOST_CANDIDATES = 5_000

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
    progress: bool = True,
    cells: int | None = None,
    envelopes: Envelopes | None = None,
    jobs: int = 1,
) -> PolicyValueSet:
    """The policy-value set Û and the safe policy π_s for a distribution over tasks.

    Args:
        epsilon: accuracy of the cover in the paper's distance d (unit scale).
        delta: the paper's δ; at most 3δ of the sampled tasks stay uncovered.
        xi: margin (unit scale) that π_s must keep on every centre; None asks for feasibility and records what was
            attained.
        oracles: check, optimal and feasible; exact ones for tables when not given, needed for any other tasks.
        progress: show a progress bar on a terminal.
        cells: number of cells for the certified methods, about; 0 builds none. Short for Envelopes(cells=...).
        envelopes: how the value bounds for the certified methods are made.
        jobs: tasks simulated at a time for these bounds, in processes of their own or by the active backend of joblib;
            the numbers are the same for any of them.
    """
    check_accuracy(epsilon, delta, xi)
    check_jobs(jobs)
    envelopes = _envelopes(cells, envelopes)
    rng = np.random.default_rng(seed)
    oracles = oracles or exact_oracles(tasks)
    guard = preflight(tasks, epsilon=epsilon, delta=delta, xi=xi, oracles=oracles)
    if not guard.satisfied:
        warnings.warn(guard.warning, UncertifiedWarning, stacklevel=2)

    with shown(progress) as show:
        parameters, centres = _cover_until_enough(tasks, epsilon, delta, oracles.check, rng, show)
        cover = [tasks.task(parameters[j]) for j in centres]
        optimal = []
        for number, task in enumerate(cover, start=1):
            show("solving the centres of the cover", number - 1, len(cover))
            optimal.append(oracles.optimal(task, epsilon, delta / (2 * len(cover)), rng))
        show("looking for one policy feasible on every centre", 0, 0)
        safe = oracles.feasible(cover, xi or 0.0, delta / 2, rng)
        attained = _attained_margin(tasks.units, safe, xi or 0.0)
        show("bounding the values of every policy over all tasks", 0, 0)
        policies = [safe.policy, *(best.policy for best in optimal)]
        bounds = _guarantees(tasks, policies, envelopes, seed, jobs, show)

    if guard.satisfied and guard.needed > attained:
        warnings.warn(guard.at_margin(attained).warning, UncertifiedWarning, stacklevel=2)
    entries = _entries(parameters[centres], optimal, safe)
    record = _record(guard, seed, len(parameters), len(centres), attained)
    made = PolicyValueSet(
        entries, safe.policy, tasks.units, epsilon, delta, attained, tasks.digest(), tasks.recipe, record, *bounds
    )
    say(progress, *advice(made).lines)
    return made


def _envelopes(cells: int | None, envelopes: Envelopes | None) -> Envelopes:
    if cells is None:
        return envelopes or DEFAULT
    if envelopes is not None:
        raise InvalidInput(f"give either cells or envelopes, got cells={cells!r} and {envelopes}")
    return Envelopes(cells=cells)


def _cover_until_enough(
    tasks: TaskDistribution,
    epsilon: float,
    delta: float,
    check: CheckOracle,
    rng: np.random.Generator,
    show: Progress,
) -> tuple[Floats, NDArray[np.integer]]:
    """Parameters [N, d] of sampled tasks and the indices of U among them: N doubles until U covers enough of D."""
    samples = theory.initial_sample_size(delta)
    while True:
        show(f"covering {samples} sampled tasks", 0, 0)
        parameters = tasks.sample(samples, rng)
        centres = _cover(tasks, parameters, epsilon, delta, check, rng)
        if theory.coverage_error(len(centres), samples, delta) <= delta:
            return parameters, centres
        samples *= 2


def _cover(
    tasks: TaskDistribution,
    parameters: Floats,
    epsilon: float,
    delta: float,
    check: CheckOracle,
    rng: np.random.Generator,
) -> NDArray[np.integer]:
    """Indices of U (the appendix's subroutine): by coordinates when distances are known, else by asking about pairs."""
    if isinstance(check, ParameterDistance):
        return _cover_points(check.coordinates(parameters), epsilon, 3 * delta)
    # Equal parameters are equal tasks: one question per pair of different ones, and no N x N matrix of the answers.
    distinct, first, repeats = np.unique(parameters, axis=0, return_index=True, return_counts=True)
    models = [tasks.task(parameter) for parameter in distinct]
    near = np.eye(len(models), dtype=bool)
    for i, j in zip(*np.triu_indices(len(models), 1), strict=True):
        near[i, j] = near[j, i] = check(models[i], models[j], epsilon, delta / len(parameters) ** 2, rng)
    return _cover_repeated(near, first, repeats, 3 * delta)


def _cover_points(points: Floats, epsilon: float, uncovered: float) -> NDArray[np.integer]:
    """Centres among the first samples where these suffice: they are independent of the rest, so they will mostly do."""
    if points.shape[1] > 1 and len(points) > MOST_CANDIDATES:
        try:
            return greedy_cover(points, epsilon, uncovered=uncovered, candidates=np.arange(MOST_CANDIDATES))
        except InvalidInput:  # thin regions hold none of them
            pass
    return greedy_cover(points, epsilon, uncovered=uncovered)


def _cover_repeated(
    near: NDArray[np.bool_], first: NDArray[np.integer], repeats: NDArray[np.integer], uncovered: float
) -> NDArray[np.integer]:
    """The centres that `greedy_cover` finds in the [N, N] matrix of all samples, from that of the n different ones.

    Args:
        near: [n, n] who covers whom.
        first: [n] index of the first sample of each kind, which is the one that becomes a centre.
        repeats: [n] number of samples of each kind.
    """
    order = np.argsort(first)  # so that ties go to the lowest sample
    near, first, remaining = near[np.ix_(order, order)], first[order], repeats[order].copy()
    allowed = uncovered * remaining.sum()
    centres = []
    while remaining.sum() > allowed:
        best = int(np.argmax(remaining @ near))
        centres.append(first[best])
        remaining[near[:, best]] = 0
    return np.array(centres)


def _attained_margin(units: Units, safe: FeasiblePolicy, xi: float) -> float:
    """ξ that π_s keeps on every centre (unit scale), or an error when the oracle broke its promise."""
    attained = float(units.unit_margin(safe.margin).min())
    if not attained >= xi - ROUNDING:
        raise InvalidInput(
            f"the feasible oracle must return a policy with unit margin {xi:g} on every centre, got {attained:.6g}"
        )
    return max(attained, xi)


def _guarantees(
    tasks: TaskDistribution, policies: Sequence[Policy], envelopes: Envelopes, seed: int, jobs: int, show: Progress
) -> tuple[Cells | None, float | None]:
    """Envelopes of every policy, the safe one first; without them at least how often that one fails."""
    if envelopes.cells == 0:
        return None, safe_policy_risk(tasks, policies[0], seed=seed, envelopes=envelopes, jobs=jobs, show=show)
    return build_cells(tasks, policies, seed=seed, envelopes=envelopes, jobs=jobs, show=show), None


def _entries(parameters: Floats, optimal: list[PolicyValues], safe: FeasiblePolicy) -> tuple[Entry, ...]:
    """Û, Eq. (constructpolicy): per centre the policy with its values, and those of π_s there."""
    return tuple(
        Entry(parameter, best.policy, best.reward, best.margin, float(safe_reward), safe_margin)
        for parameter, best, safe_reward, safe_margin in zip(parameters, optimal, safe.reward, safe.margin, strict=True)
    )


def _record(guard: Preflight, seed: int, samples: int, cover_size: int, attained: float) -> dict[str, Any]:
    """How training went, for whoever reads the policy set."""
    return {
        "seed": seed,
        "samples": samples,
        "cover_size": cover_size,
        **guard.facts,
        "precondition_holds": guard.needed <= attained,
    }
