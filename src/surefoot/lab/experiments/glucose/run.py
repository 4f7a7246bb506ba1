"""`surefoot reproduce glucose`: settings of an insulin pump found day by day, on fresh simulated patients."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.bounds.cells import Cells
from surefoot.bounds.settings import Envelopes, LearnedSignals
from surefoot.calibration import calibrate
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import Task
from surefoot.lab.experiments.frame import Bench, Experiment
from surefoot.lab.experiments.glucose.page import page, tables
from surefoot.lab.experiments.glucose.settings import (
    ADAPTING,
    CALIBRATED,
    EARLY,
    KNOWN,
    LEAST_GAIN,
    QUICK,
    GlucoseSettings,
    configure,
)
from surefoot.lab.experiments.glucose.simulators import fresh_patients, simulator_of, training_simulator
from surefoot.lab.experiments.judging import STANDARD_ERRORS, JudgedTask, PolicyMeans, available, best
from surefoot.lab.pump.simulated_days import BUDGET
from surefoot.learning.calibrated import Calibration
from surefoot.learning.certified.choice import path_to_boldness
from surefoot.learning.learner import Learner
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.metrics import binomial_interval
from surefoot.simulate.pool import EpisodePool, EpisodeStream
from surefoot.simulate.runner import ask_and_tell
from surefoot.streams import Stream
from surefoot.training.policy_set import policy_set

POLICY_SET = "glucose.policyset"  # its file
# Settings of the usual path, chosen by a pilot: those before take time, the one after was unsafe on 3 of 60 patients.
BOLD = slice(3, 5)


def run(settings: GlucoseSettings, bench: Bench) -> dict[str, Any]:
    """Search, bound, calibrate and adapt."""
    clock = Clock()
    policies = bench.policy_sets[POLICY_SET] = train_pump_policies(settings, bench, clock)
    found = calibrate_pump(policies, settings, bench)
    clock.lap("calibrating")
    contenders, refused = available_contenders(policies, settings, found)
    patients = adapt_to_patients(policies, contenders, settings, bench)
    clock.lap("adapting and judging")
    told = information(policies, settings, bench)
    clock.lap("what a day says")
    return {
        "seconds_by_stage": clock.seconds,
        **summarise_patients(policies, contenders, patients, settings),
        "refused": refused,
        "calibration": None if found is None else found.plain(),
        "information": told,
    }


class Clock:
    """Wall time by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage], self._last = now - self._last, now


def train_pump_policies(settings: GlucoseSettings, bench: Bench, clock: Clock) -> PolicyValueSet:
    """Settings by search, and what they do to as good as every patient."""
    simulator = training_simulator(settings)
    tasks = simulator.tasks
    safe, candidates = simulator.search(tasks, settings, bench)
    clock.lap("searching settings")
    policies = policy_set(
        tasks,
        safe=safe,
        candidates=candidates,
        seed=settings.seed,
        envelopes=Envelopes(
            cells=settings.cells, holdout=settings.holdout, uncovered=settings.uncovered, episodes=settings.episodes
        ),
        signals=LearnedSignals(tasks=settings.learned_patients, episodes=settings.learned_days),
        jobs=bench.jobs,
        progress=bench.progress,
    )
    clock.lap("bounding what they do")
    return policies


def calibrate_pump(policies: PolicyValueSet, settings: GlucoseSettings, bench: Bench) -> Calibration | None:
    """How bold `ADAPTING` may be, counted on patients of whom none is among those of the experiment."""
    if not settings.calibrated or ADAPTING not in settings.methods:
        return None
    return calibrate(
        policies,
        simulator_of(settings).tasks,
        method=ADAPTING,
        path=path_to_boldness(policies, settings.risk)[BOLD],
        attempt=0,
        episodes=settings.days,
        risk=settings.risk,
        runs=settings.calibrated,
        seed=settings.seed,
        jobs=bench.jobs,
        progress=bench.progress,
    )


# ----------------------------------------------------------------------------------------------------------- contenders


@dataclass(frozen=True)
class Contender:
    """A method at a risk; runs at another risk than that of the experiment, or calibrated, have labels of their own."""

    label: str
    method: str
    risk: float
    calibration: Calibration | None = None

    def learner(self, policies: PolicyValueSet, days: int, seed: int = 0) -> Learner:
        return learner(
            policies,
            method=KNOWN[self.method],
            episodes=days,
            risk=self.risk,
            seed=seed,
            calibration=self.calibration,
        )


def available_contenders(
    policies: PolicyValueSet, settings: GlucoseSettings, found: Calibration | None
) -> tuple[list[Contender], dict[str, str]]:
    """Methods at the risk of the experiment first, then at others; and why some of these cannot be had."""
    asked = [Contender(name, name, settings.risk) for name in settings.methods]
    if found is not None:
        asked.append(Contender(CALIBRATED, ADAPTING, settings.risk, found))
    if ADAPTING in settings.methods:
        asked += [Contender(f"{ADAPTING}, risk {risk:g}", ADAPTING, risk) for risk in settings.other_risks]
    by_label = {one.label: one for one in asked}
    labels, refused = available(by_label, lambda label: by_label[label].learner(policies, settings.days))
    return [by_label[label] for label in labels], refused


# --------------------------------------------------------------------------- one patient: what was deployed day by day


# Within a point of the budget values are wanted to 0.1 points (two standard errors), however clear it is.
NEAR, PRECISE = 0.01, 0.0005


@dataclass(frozen=True, eq=False)
class PatientRuns(JudgedTask):
    """What contenders did with one patient: rewards are times in range, costs times below it.

    Attributes:
        deployed: [c, D, P] by each contender on each day, the probabilities of the settings.
        cell_known: [P] the best mixture that is certified on all cells whose bounds the patient keeps.
    """

    deployed: Floats
    cell_known: Floats


def adapt_to_patients(
    policies: PolicyValueSet, contenders: Sequence[Contender], settings: GlucoseSettings, bench: Bench
) -> list[PatientRuns]:
    """Every patient with every contender; those at other risks with the first patients only."""
    parameters = fresh_patients(settings).sample(settings.patients, Stream.GLUCOSE_PATIENTS.rng(settings.seed))
    everywhere = [one for one in contenders if one.label in settings.rows]
    calls = [
        (policies, contenders if k < settings.compared_patients else everywhere, parameter, k, settings)
        for k, parameter in enumerate(parameters)
    ]
    return bench.map("adapting to patients", adapt_to_patient, calls)


def adapt_to_patient(
    policies: PolicyValueSet, contenders: Sequence[Contender], parameter: Floats, number: int, settings: GlucoseSettings
) -> PatientRuns:
    """Patient `number` with every contender, all of whom see the same days under the same settings."""
    task = fresh_patients(settings).task(parameter)
    seed = Stream.GLUCOSE_RUNS.seed(settings.seed, number)
    learners = [each.learner(policies, settings.days, seed) for each in contenders]
    days = day_streams(task, policies.policies, settings.days, seed)
    deployed = np.stack([day_by_day(each, days, settings.days, len(policies.policies)) for each in learners])
    judge = PolicyMeans(
        task, policies.policies, [settings.seed, Stream.GLUCOSE_EVALUATION, number], settings.judged_days
    )
    mixtures = np.unique(deployed.reshape(-1, deployed.shape[-1]), axis=0)
    judge.decide(mixtures, settings.most_judged_days, near=NEAR, precise=PRECISE)
    mean, budget = judge.mean, float(task.units.budget[0])
    possible = known = best(budget - mean[None, :, 1], mean[:, 0])
    if policies.cells is not None:
        known = _best_within_cells(policies.cells, mean, judge.error, budget)
    return PatientRuns(parameter, mean, judge.error, judge.count, possible, deployed, known)


def day_streams(task: Task, policies: Sequence[Policy], days: int, seed: int) -> Callable[[int], EpisodeStream]:
    """The days that methods learn from, of one patient under each of the settings, simulated when first asked for."""

    @cache
    def stream(policy: int) -> EpisodeStream:
        simulated = task.episodes(policies[policy], task.units.episode_length)
        return EpisodeStream(simulated, np.random.default_rng([seed, policy]), [days], order=np.arange(days))

    return stream


def day_by_day(learner: Learner, stream: Callable[[int], EpisodeStream], days: int, policies: int) -> Floats:
    """[D, P] the mixture deployed on each day."""
    weights = np.zeros((days, policies))
    for begin, deployed in ask_and_tell(learner, EpisodePool(stream), days):
        weights[begin:] = 0.0
        weights[begin:, deployed.indices] = deployed.weights
    return weights


def _best_within_cells(cells: Cells, mean: Floats, error: Floats, budget: float) -> Floats:
    """[P] what the bounds alone allow: on all cells that hold the patient's values [P, 2], as far as these are known;
    of a patient whom none holds, the safe settings."""
    own, doubt = np.column_stack([mean[:, 0], budget - mean[:, 1]]), STANDARD_ERRORS * error
    holds = ((cells.lower <= own + doubt) & (cells.upper >= own - doubt)).all(axis=(1, 2))
    return best(cells.lower[holds, :, 1], mean[:, 0]) if holds.any() else np.eye(len(mean))[0]


# ----------------------------------------------------------------------------------------- what results.json has of it


REACHED = 0.9  # of the possible gain


def summarise_patients(
    policies: PolicyValueSet,
    contenders: Sequence[Contender],
    patients: Sequence[PatientRuns],
    settings: GlucoseSettings,
) -> dict[str, Any]:
    """The methods of results.json, and all that the page shows besides."""
    few = patients[: settings.compared_patients]
    methods, risks = {}, {}
    for place, one in enumerate(contenders):
        proved = one.calibration is not None or not settings.transferred
        certified = one.learner(policies, settings.days).certified and proved
        if one.label in settings.rows:
            methods[one.label] = summary(patients, place, certified=certified, risk=one.risk)
        if one.method == ADAPTING and one.calibration is None:
            risks[f"{one.risk:g}"] = summary(few, place, certified=certified, risk=one.risk)
    cells = policies.cells
    return {
        "methods": methods,
        "risks": dict(sorted(risks.items(), key=lambda item: float(item[0]))),
        "cell_known": known_cell_summary(patients),
        "policies": [policies.name(index) for index in range(len(policies.policies))],
        "bounds": {"cells": 0 if cells is None else len(cells), "uncovered": 1.0 if cells is None else cells.uncovered},
        "patients": {
            "parameters": [one.parameter.tolist() for one in patients],
            "possible_gain": [one.possible_gain for one in patients],
            "in_range_possible": [float(one.possible @ one.mean[:, 0]) for one in patients],
            "in_range_safe": [float(one.mean[0, 0]) for one in patients],
        },
        "errors": _errors(patients, len(contenders)),
        "shown": [_example_patient(patients, contenders, settings, wanted) for wanted in simulator_of(settings).shown],
    }


def summary(patients: Sequence[PatientRuns], contender: int, *, certified: bool, risk: float) -> dict[str, Any]:
    """One contender over all patients, as plain data. Shares are ratios of sums over the patients.

    A day counts no more gain than is safely possible: what goes beyond is bought with time below range. Days above the
    budget are not days on which most of the gain was reached. What is deployed on the first day is deployed to
    everybody; who is given anything else has `moved`.
    """
    gains = np.stack([each.gains(each.deployed[contender]) for each in patients])  # [n, D]
    possible = np.array([each.possible_gain for each in patients])
    daily = gains.sum(axis=0) / max(possible.sum(), 1e-12)
    counted = possible >= LEAST_GAIN
    left = [_first((each.deployed[contender] != each.deployed[contender][0]).any(axis=1)) for each in patients]
    excess = [each.excess(each.deployed[contender], BUDGET) for each in patients]
    above, error = (np.stack(column) for column in zip(*excess, strict=True))  # [n, D] each
    unsafe_days = above > STANDARD_ERRORS * error
    unsafe = unsafe_days.any(axis=1)
    kept = np.where(unsafe_days, -np.inf, gains)[counted]
    until = [_first(own >= REACHED * most - 1e-12) for own, most in zip(kept, possible[counted], strict=True)]
    undecided = (above > -STANDARD_ERRORS * error).any(axis=1) & ~unsafe
    return {
        "certified": certified,
        "risk": risk,
        "tasks": len(patients),
        "unsafe_tasks": int(unsafe.sum()),
        "undecided_tasks": int(undecided.sum()),
        "unsafe_interval": list(binomial_interval(int(unsafe.sum()), len(patients))),
        "unsafe_days": int(unsafe_days.sum()),
        "largest_below": float(BUDGET + above.max()),
        "largest_below_error": float(error.flat[above.argmax()]),
        "share_early": float(daily[:EARLY].mean()),
        "share": float(daily.mean()),
        "share_by_day": daily.tolist(),
        "in_range": float(np.mean([(each.deployed[contender] @ each.mean[:, 0]).mean() for each in patients])),
        "counted": int(counted.sum()),
        "reached": sum(each is not None for each in until),
        "days_until": until,
        "median_days": _median(until),
        "moved": sum(each is not None for each in left),
        "median_moved": _median(left),
    }


def _first(days: Any) -> int | None:
    """The first day that is True, counted from 1; None if none is."""
    return int(np.argmax(days)) + 1 if np.any(days) else None


def _median(days: Sequence[int | None]) -> float | None:
    """Those who never got there got there last; None if that is the median."""
    found = float(np.median([np.inf if each is None else each for each in days])) if days else np.inf
    return found if np.isfinite(found) else None


def known_cell_summary(patients: Sequence[PatientRuns]) -> dict[str, Any]:
    """What is lost if the patient's cell is known from the first day: the width of the bounds."""
    gains = np.array([each.gains(each.cell_known[None])[0] for each in patients])
    possible = np.array([each.possible_gain for each in patients])
    unsafe = [each.excess(each.cell_known[None], BUDGET) for each in patients]
    return {
        "share": float(gains.sum() / max(possible.sum(), 1e-12)),
        "unsafe_tasks": sum(bool(over > STANDARD_ERRORS * error) for over, error in unsafe),
    }


def _errors(patients: Sequence[PatientRuns], contenders: int) -> dict[str, Any]:
    """Largest standard errors of what was deployed: of time below range within a point of the budget, and of time in
    range; and how many days they took."""
    found = []
    for one in patients:
        deployed = np.unique(one.deployed[:contenders].reshape(-1, one.deployed.shape[-1]), axis=0)
        near = np.abs(deployed @ one.mean[:, 1] - BUDGET) <= NEAR
        errors = deployed @ one.error  # [n, 2]
        found.append((errors[near, 1].max(initial=0.0), errors[:, 0].max()))
    below, within = np.max(found, axis=0).tolist()
    return {
        "below_near_budget": below,
        "in_range": within,
        "days": int(sum(one.count.sum() for one in patients)),
        "most_days": int(max(one.count.max() for one in patients)),
    }


def _example_patient(
    patients: Sequence[PatientRuns], contenders: Sequence[Contender], settings: GlucoseSettings, wanted: Floats
) -> dict[str, Any]:
    """The patient who is closest to the one of a parameter, over the days."""
    parameters = np.stack([one.parameter for one in patients])
    number = int(simulator_of(settings).distance(parameters, wanted).argmin())
    patient = patients[number]
    return {
        "number": number,
        **simulator_of(settings).name(patient.parameter),
        "parameter": patient.parameter.tolist(),
        "possible": (patient.possible @ patient.mean).tolist(),
        "methods": {
            one.label: {
                "in_range": (deployed @ patient.mean[:, 0]).tolist(),
                "below": (deployed @ patient.mean[:, 1]).tolist(),
                "weights": deployed.tolist(),
            }
            for one, deployed in zip(contenders, patient.deployed, strict=False)
            if one.label in settings.rows
        },
    }


# ------------------------------------------------------- what one day says: a bound on every method that must learn it


STEP = 0.1  # in the logarithm of the sensitivity, to either side
INFORMATION_DAYS = 1000
LEAST_VARIANCE = 1e-10  # of a number that never changes


def information(policies: PolicyValueSet, settings: GlucoseSettings, bench: Bench) -> dict[str, Any]:
    """Per patient and settings the standard error of log-sensitivity after one day: from the two sums of the day, and
    from these and the signals, if the policy set has any."""
    simulator = simulator_of(settings)
    numbers = range(len(policies.policies))
    calls = [(policies, settings, shown, policy) for shown in simulator.shown for policy in numbers]
    rows = bench.map("what a day says", day_information, calls)
    return {"day_to_day": simulator.day_to_day, "days": INFORMATION_DAYS, "rows": rows}


def day_information(
    policies: PolicyValueSet, settings: GlucoseSettings, parameter: Floats, policy: int
) -> dict[str, Any]:
    below, above = (_numbers(policies, settings, parameter, side * STEP, policy) for side in (-1.0, 1.0))
    return {
        "parameter": parameter.tolist(),
        **simulator_of(settings).name(parameter),
        "policy": policy,
        "sums": standard_error(below[:, :2], above[:, :2], 2 * STEP),
        "signals": standard_error(below, above, 2 * STEP),
    }


def _numbers(
    policies: PolicyValueSet, settings: GlucoseSettings, parameter: Floats, step: float, policy: int
) -> Floats:
    """[days, 2+q] sums of each day, then its signals; both patients live the same days."""
    simulator = simulator_of(settings)
    task = simulator.tasks.task(simulator.sensitise(parameter, step))
    watched = task.episodes(policies.policies[policy], task.units.episode_length)
    outcomes = watched.run(INFORMATION_DAYS, Stream.GLUCOSE_INFORMATION.rng(settings.seed), transitions=True)
    readings = None if policies.cells is None else policies.cells.readings
    signals = np.empty((len(outcomes), 0)) if readings is None else readings.signals.of(policy, outcomes.watched())
    return np.column_stack([outcomes.reward, outcomes.cost, signals])


def standard_error(below: Floats, above: Floats, apart: float) -> float | None:
    """1/√I with the linear Fisher information I = Δᵀ Σ⁻¹ Δ / apart², where Δ [k] is the difference in means of what is
    seen [n, k] at two tasks that far apart, and Σ its covariance within a task. None where nothing is learned.

    That is the standard error of the best linear estimate from one day, the other parameters taken for known.
    """
    difference = above.mean(axis=0) - below.mean(axis=0)
    covariance = (np.cov(below.T) + np.cov(above.T)) / 2 + LEAST_VARIANCE * np.eye(below.shape[1])
    found = float(difference @ np.linalg.solve(covariance, difference)) / apart**2
    return found**-0.5 if found > 0 else None


EXPERIMENT = Experiment(
    "glucose",
    GlucoseSettings,
    run,
    page,
    tables,
    "patients.png, gain.png, results.json and glucose.policyset beside it",
    quick=QUICK,
    policy_sets=lambda settings: [POLICY_SET],
    configure=configure,
)
