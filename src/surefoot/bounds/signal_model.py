"""Signals learned in simulation: which numbers of an episode say most about the task (docs/guarantees.md, 5.1).

Tasks and episodes for this are drawn apart, and nothing else is made of them: signals are fixed before the first
episode is simulated that bounds their means. How well they were learned decides how fast cells are ruled out, never
whether rightly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from surefoot.arrays import Floats, Integers
from surefoot.bounds.cells import Readings
from surefoot.bounds.settings import LearnedSignals
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task, run_policies
from surefoot.errors import InvalidInput
from surefoot.fan_out import Workers
from surefoot.progress import Progress
from surefoot.signals.features import Keys, frequent_transitions, of_states
from surefoot.signals.signals import FURTHEST, Kind, OwnFeatures, Signals, bins, features_of, own_values
from surefoot.streams import Stream
from surefoot.tasks.task_distribution import TaskDistribution

MOST_TRANSITIONS = 400  # that are counted
LOOK_TASKS = 8  # at which it is looked which transitions occur
PROBES = 2  # episodes that features of one's own are recognised by
LEARN_SHARE = 0.75  # of the tasks; the others say how much the regression is shrunk
SHRINKAGES = 10.0 ** np.arange(-1, 5)  # as by so many episodes at which features say nothing
MOST_PARAMETERS, MOST_MIXED = 4, 2  # that are read one by one, and also two at a time
WINDOW = 1.25  # half of a window, in spreads of what a map reads on one task; windows are one spread apart
OUTERMOST = 0.02  # part of the tasks on either side that windows need not reach
NARROWEST = 1e-3  # spread, in ranks: of a map that always reads the same
BINS = 24
PARTS = 4096  # of which a law gives so many to each bin


@dataclass(frozen=True, eq=False)
class SignalModel:
    """What is learned before any bound is made: signals, and bins [k, L] for the laws of an episode's numbers."""

    signals: Signals
    edges: Floats
    values: Floats

    def readings(self, lower: Floats, upper: Floats, seen: Floats) -> Readings:
        """Of cells with bounds [J, P, q] on the means of signals, whose episodes were in bins [J, P, k, L]."""
        least, most = np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)
        return Readings(self.signals, least, most, self.edges, self.values, round_law(seen))

    def count(self, numbers: Floats) -> Floats:
        """[k, L] how many of the numbers [n, k] of episodes are in each bin."""
        counts = np.zeros(self.values.shape)
        np.add.at(counts, (np.arange(len(counts)), bins(self.edges, numbers)), 1.0)
        return counts


def round_law(seen: Floats) -> Floats:
    """[..., L] how often things were seen, as parts of 1 in steps of 1/`PARTS` that sum to 1 exactly. Bets need no
    more, and files of such numbers can be compressed to a fraction of their size."""
    upto = np.cumsum(seen, axis=-1)
    law: Floats = np.diff(np.round(PARTS * upto / upto[..., -1:]), axis=-1, prepend=0.0) / PARTS
    return law


class EpisodeFeatures(NamedTuple):
    """Of one task: features [P, E, F] of E episodes of every policy, and their scaled sums [P, E, 1+m]."""

    features: Floats
    sums: Floats


def learn_signals(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    settings: LearnedSignals,
    seed: int,
    workers: Workers,
    show: Progress,
) -> SignalModel | None:
    """Signals of every policy: a linear map of features onto what tasks differ in, seen through a few windows. None
    where tasks do not show what they would be read from, and need not, or where there is nothing to tell apart."""
    if not _shows_observations(tasks.example, policies[0], settings, seed):
        return None
    parameters = tasks.sample(settings.tasks, Stream.SIGNAL_TASKS.rng(seed))
    keys, own = _choose_features(tasks, policies, parameters, settings, seed)
    work = partial(_episode_features, tasks, tuple(policies), settings.episodes, keys, own, settings.paid)
    calls = [(parameter, [seed, Stream.SIGNAL_EPISODES, k]) for k, parameter in enumerate(parameters)]
    found = list(workers.map("learning to read episodes", work, calls, show))
    features = np.stack([each.features for each in found], axis=1)  # [P, T, E, F]
    sums = np.stack([each.sums for each in found], axis=1)  # [P, T, E, 1+m]
    targets = _targets(parameters, sums)
    steps = tasks.units.episode_length
    if own is not None and settings.signals is not None:
        signals = _identity_signals(features, steps, own)
    elif targets.shape[1]:
        paid = sums.shape[-1] if settings.paid else 0
        signals = _fit_signals(features, targets, steps, settings.windows, keys, own, paid)
    else:
        return None  # all tasks are one
    return _fit_bins(signals, features, sums)


# ------------------------------------------------------------------------------------------------- parts, in call order


def _shows_observations(task: Task, policy: Policy, settings: LearnedSignals, seed: int) -> bool:
    """Whether a task shows what was observed step by step."""
    run = task.episodes(policy, task.units.episode_length).run
    outcomes = run(1, Stream.SIGNAL_FIRST_EPISODE.rng(seed), transitions=True)
    shown = outcomes.observed is not None or (outcomes.states is not None and outcomes.actions is not None)
    if not shown and not settings.if_possible:
        raise InvalidInput(
            "signals must be False for tasks that do not show what was observed step by step as arrays "
            f"(Outcomes.observed), got {type(task).__name__}"
        )
    if shown and settings.paid and outcomes.watched().paid is None:
        raise InvalidInput(
            "paid must be False for tasks that do not show what each step paid (Observed.paid), "
            f"got True and {type(task).__name__}"
        )
    return shown


def _choose_features(
    tasks: TaskDistribution, policies: Sequence[Policy], parameters: Floats, settings: LearnedSignals, seed: int
) -> tuple[Keys | None, OwnFeatures | None]:
    """Which transitions to count, or features of one's own; neither where moments will do."""
    own = settings.features or settings.signals
    seen = []
    for k, parameter in enumerate(parameters[: 1 if own else LOOK_TASKS]):
        task, rng = tasks.task(parameter), Stream.SIGNAL_FEATURE_EPISODES.rng(seed, k)
        for policy in policies[: 1 if own else None]:
            seen.append(_episodes(task, policy, settings.episodes, rng).watched())
    if own is not None:
        probes = seen[0][:PROBES]
        return None, OwnFeatures(settings.name, probes, own_values(own, settings.name, probes), own)
    if not of_states(seen[0]):
        return None, None
    return frequent_transitions(Observed.joined(seen), MOST_TRANSITIONS), None


def _episodes(task: Task, policy: Policy, episodes: int, rng: np.random.Generator) -> Outcomes:
    return task.episodes(policy, task.units.episode_length).run(episodes, rng, transitions=True)


def _episode_features(
    tasks: TaskDistribution,
    policies: Sequence[Policy],
    episodes: int,
    keys: Keys | None,
    own: OwnFeatures | None,
    paid: bool,
    parameter: Floats,
    entropy: list[int],
) -> EpisodeFeatures:
    task, features, sums = tasks.task(parameter), [], []
    generators = np.random.default_rng(entropy).spawn(len(policies))
    for outcomes in run_policies(task, policies, episodes, generators, transitions=True):
        features.append(features_of(outcomes.watched(), keys, own, paid))
        sums.append(task.units.scaled(outcomes.sums))
    return EpisodeFeatures(np.stack(features), np.stack(sums))


def _targets(parameters: Floats, sums: Floats) -> Floats:
    """[T, R] what is to be read from an episode, in ranks from 0 to 1: each parameter; of many parameters nothing but
    the costs that they lead to, as means over all policies, since that is what the safety of tasks differs in."""
    few = parameters.shape[1] <= MOST_PARAMETERS
    raw = parameters if few else sums[..., 1:].mean(axis=(0, 2))
    ranks: Floats = (_mean_ranks(raw) - 0.5) / len(raw)
    return ranks[:, np.ptp(raw, axis=0) > 0]


def _mean_ranks(values: Floats) -> Floats:
    """[T, R] places within each column, from 1; equal values share the mean of theirs. As `scipy.stats.rankdata`, whose
    import would take every command that trains or deploys half a second."""
    columns = [(np.sort(column), column) for column in values.T]
    below, upto = (
        np.array([np.searchsorted(order, column, side) for order, column in columns]) for side in ("left", "right")
    )
    ranks: Floats = (below + upto + 1).T / 2
    return ranks


def _identity_signals(features: Floats, steps: int, own: OwnFeatures) -> Signals:
    """Features [P, T, E, F] of one's own that are signals already: every map is one of them, every window [0, 1]."""
    policies, size = len(features), features.shape[-1]
    nothing, maps = np.zeros((policies, size)), np.tile(np.eye(size), (policies, 1, 1))
    window = np.zeros(size), np.ones(size)
    return Signals("own", nothing, nothing + 1, maps, nothing, np.arange(size), *window, steps, None, own)


def _fit_signals(
    features: Floats, targets: Floats, steps: int, windows: int, keys: Keys | None, own: OwnFeatures | None, paid: int
) -> Signals:
    """Maps of the features [P, T, E, F] of each policy onto targets [T, R], and windows that suit all policies; the
    last `paid` of the features, which tasks may differ in without any linear map showing it, are looked at themselves,
    too."""
    maps = [_regression(each, targets) for each in features]
    centre, scale, weights, offset, read = (np.stack(part) for part in zip(*maps, strict=True))
    mixed = _mixtures(read)
    weights, offset, read = mixed @ weights, offset @ mixed.T, read @ mixed.T
    if paid:
        themselves = _single_features(features, centre, scale, paid)
        weights, offset, read = (
            np.concatenate(both, axis=axis)
            for both, axis in zip(zip((weights, offset, read), themselves, strict=True), (1, 1, 3), strict=True)
        )
    kind: Kind = "own" if own is not None else "moments" if keys is None else "transitions"
    return Signals(kind, centre, scale, weights, offset, *_windows(read, windows), steps, keys, own, paid > 0)


def _mixtures(read: Floats) -> Floats:
    """[R', R] the R maps that read [P, T, E, R], and sums and differences of every two of them at one size: tasks may
    differ in what neither of two maps shows by itself."""
    size = np.maximum(read.std(axis=2).mean(axis=(0, 1)), NARROWEST)
    each = np.eye(len(size))
    pairs = [(a, b) for a in range(len(size)) for b in range(a)] if len(size) <= MOST_MIXED else []
    return np.stack([*each, *(each[a] + sign * size[a] / size[b] * each[b] for a, b in pairs for sign in (1, -1))])


def _single_features(features: Floats, centre: Floats, scale: Floats, count: int) -> tuple[Floats, Floats, Floats]:
    """Maps [P, R', F], [P, R'] of standardised features that read each of the last `count` that is not always the same,
    in spreads over all policies, and what they read [P, T, E, R'] of these."""
    last = np.arange(features.shape[-1])[-count:]
    spread = features[..., last].std(axis=(0, 1, 2))
    chosen, size = last[spread > 0], spread[spread > 0]
    weights = np.eye(features.shape[-1])[chosen] * scale[:, None, :] / size[:, None]
    offset = centre[:, chosen] / size
    standard = np.clip((features - centre[:, None, None]) / scale[:, None, None], -FURTHEST, FURTHEST)
    return weights, offset, standard @ weights.transpose(0, 2, 1)[:, None] + offset[:, None, None]


class LinearMap(NamedTuple):
    """Standardised features to targets: [F], [F], [R, F], [R], and what that reads [T, E, R]."""

    centre: Floats
    scale: Floats
    weights: Floats
    offset: Floats
    read: Floats


def _regression(features: Floats, targets: Floats) -> LinearMap:
    """Ridge regression of targets [T, R] on features [T, E, F], shrunk as is best on tasks that it has not seen."""
    flat = features.reshape(-1, features.shape[-1])
    centre, spread = flat.mean(axis=0), flat.std(axis=0)
    scale = np.where(spread > 1e-9 * (1 + np.abs(centre)), spread, 1.0)
    inputs = np.clip((features - centre) / scale, -FURTHEST, FURTHEST)
    learn = slice(0, round(LEARN_SHARE * len(targets)))
    others = slice(learn.stop, None)
    rmse = []
    for shrinkage in SHRINKAGES:
        weights, offset = _ridge(inputs[learn], targets[learn], shrinkage)
        missed = (inputs[others] @ weights.T + offset - targets[others][:, None]).reshape(-1, targets.shape[1])
        rmse.append(float(np.sqrt((missed**2).mean(axis=0)).mean()))
    weights, offset = _ridge(inputs, targets, SHRINKAGES[int(np.argmin(rmse))])
    return LinearMap(centre, scale, weights, offset, inputs @ weights.T + offset)


def _ridge(inputs: Floats, targets: Floats, shrinkage: float) -> tuple[Floats, Floats]:
    """Weights [R, F] and offset [R]."""
    rows = inputs.reshape(-1, inputs.shape[-1])
    aims = np.repeat(targets, inputs.shape[1], axis=0)
    centred, mean = rows - rows.mean(axis=0), aims.mean(axis=0)
    gram = centred.T @ centred + shrinkage * np.eye(rows.shape[1])
    weights = np.linalg.solve(gram, centred.T @ (aims - mean)).T
    return weights, mean - weights @ rows.mean(axis=0)


def _windows(read: Floats, most: int) -> tuple[Integers, Floats, Floats]:
    """Which map each window looks at [q], and from where to where [q], given what maps read [P, T, E, R].

    A window is as wide as what a map reads varies from episode to episode on one task: of a number that is spread over
    a small part of its range only the mean is known, and a mean says little. Several of them, side by side, cover what
    is read on all tasks, and are wider where there may not be as many as that takes.
    """
    source, low, high = [], [], []
    spreads, means = read.std(axis=2).mean(axis=(0, 1)), read.mean(axis=2)
    for k, spread in enumerate(np.maximum(spreads, NARROWEST)):
        first, last = np.quantile(means[..., k], [OUTERMOST, 1 - OUTERMOST])
        count = int(np.clip(math.ceil((last - first) / spread), 1, most))
        half = WINDOW * max(spread, (last - first) / count)
        for centre in first + (last - first) * (np.arange(count) + 0.5) / count:
            source.append(k)
            low.append(centre - half)
            high.append(centre + half)
    return np.array(source), np.array(low), np.array(high)


def _fit_bins(signals: Signals, features: Floats, sums: Floats) -> SignalModel:
    """Bins as full as one another over all policies and tasks; numbers of exactly 0 and 1, the ends of windows, have
    bins of their own: what is bet on them depends on whether they are that or nearly that."""
    read = [signals.transform(p, own.reshape(-1, own.shape[-1])) for p, own in enumerate(features)]
    numbers = np.concatenate([sums.reshape(-1, sums.shape[-1]), np.concatenate(read)], axis=1)
    edges, values = np.empty((numbers.shape[1], BINS - 1)), np.empty((numbers.shape[1], BINS))
    for k, column in enumerate(numbers.T):
        between = column[(column > 0) & (column < 1)]
        inner = np.quantile(between if between.size else [0.0, 1.0], np.linspace(0, 1, BINS - 1)[1:-1])
        edges[k] = [np.nextafter(0.0, 1.0), *inner, 1.0]
        found = bins(edges[k : k + 1], column[:, None])[:, 0]
        count = np.bincount(found, minlength=BINS)
        total = np.bincount(found, column, minlength=BINS)
        values[k] = np.where(count > 0, total / np.maximum(count, 1), [0.0, *edges[k]])  # an empty one: where it begins
    return SignalModel(signals, edges, values)
