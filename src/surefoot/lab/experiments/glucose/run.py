"""`surefoot reproduce glucose`: settings of an insulin pump found day by day, on fresh simulated patients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.bounds.settings import Envelopes, LearnedSignals
from surefoot.calibration import calibrate_side_by_side
from surefoot.lab.experiments.adapting import AdaptedTask as PatientRuns
from surefoot.lab.experiments.adapting import (
    Clock,
    Contender,
    Judging,
    adapt_to_task,
    calibrated_label,
    known_cell_summary,
    mean_reward,
    settings_to_try,
    summarise_runs,
)
from surefoot.lab.experiments.frame import Bench, Experiment
from surefoot.lab.experiments.glucose.page import page, tables
from surefoot.lab.experiments.glucose.settings import (
    EARLY,
    HOVORKA,
    KNOWN,
    LEAST_GAIN,
    QUICK,
    GlucoseSettings,
    configure,
)
from surefoot.lab.experiments.glucose.simulators import fresh_patients, simulator_of, training_simulator
from surefoot.lab.experiments.judging import available
from surefoot.lab.experiments.savings import ADAPTING, CALIBRATED
from surefoot.lab.pump.simulated_days import BUDGET
from surefoot.learning.calibrated import Calibration, Setting
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.streams import Stream
from surefoot.training.policy_set import policy_set

POLICY_SET = "glucose.policyset"  # its file
# Settings of the usual path of `ADAPTING`, chosen by a pilot on our own patients: those before take time, the one after
# was unsafe on 3 of 60.
BOLD = slice(3, 5)


def run(settings: GlucoseSettings, bench: Bench) -> dict[str, Any]:
    """Search, bound, calibrate and adapt."""
    clock = Clock()
    policies = bench.policy_sets[POLICY_SET] = train_pump_policies(settings, bench, clock)
    calibrations = calibrate_methods(policies, settings, bench)
    clock.lap("calibrating")
    contenders, refused = available_contenders(policies, settings, calibrations)
    patients = adapt_to_patients(policies, contenders, settings, bench)
    clock.lap("adapting and judging")
    told = information(policies, settings, bench)
    clock.lap("what a day says")
    return {
        "seconds_by_stage": clock.seconds,
        **summarise_patients(policies, contenders, patients, settings),
        "refused": refused,
        "calibrations": {name: found.plain() for name, found in calibrations.items()},
        "information": told,
    }


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


def calibrate_methods(policies: PolicyValueSet, settings: GlucoseSettings, bench: Bench) -> dict[str, Calibration]:
    """How bold methods may be, counted on patients of whom none is among those of the experiment."""
    paths = {name: path_of(name, policies, settings) for name in CALIBRATED if name in settings.methods}
    if not paths or not settings.calibrated:
        return {}
    return calibrate_side_by_side(
        policies,
        simulator_of(settings).tasks,
        paths,
        attempt=0,
        episodes=settings.days,
        risk=settings.risk,
        runs=settings.calibrated,
        seed=settings.seed,
        jobs=bench.jobs,
        progress=bench.progress,
    )


def path_of(name: str, policies: PolicyValueSet, settings: GlucoseSettings) -> Sequence[Setting]:
    """Settings that are tried of a method, from cautious to bold."""
    found = settings_to_try(name, policies, settings.risk, bounded=not settings.transferred)
    return found[BOLD] if (name, settings.simulator) == (ADAPTING, HOVORKA) else found


# ----------------------------------------------------------------------------------------------------------- contenders


def available_contenders(
    policies: PolicyValueSet, settings: GlucoseSettings, calibrations: Mapping[str, Calibration]
) -> tuple[list[Contender], dict[str, str]]:
    """Methods at the risk of the experiment first, then at others; and why some of these cannot be had."""
    asked = [Contender(name, name, settings.risk) for name in settings.methods]
    asked += [Contender(calibrated_label(name), name, settings.risk, found) for name, found in calibrations.items()]
    if ADAPTING in settings.methods:
        asked += [Contender(f"{ADAPTING}, risk {risk:g}", ADAPTING, risk) for risk in settings.other_risks]
    by_label = {one.label: one for one in asked}
    labels, refused = available(by_label, lambda label: by_label[label].learner(policies, settings.days, known=KNOWN))
    return [by_label[label] for label in labels], refused


# --------------------------------------------------------------------------- one patient: what was deployed day by day


# Within a point of the budget values are wanted to 0.1 points (two standard errors), however clear it is.
NEAR, PRECISE = 0.01, 0.0005


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
    learners = [each.learner(policies, settings.days, seed, known=KNOWN) for each in contenders]
    evaluation = [settings.seed, Stream.GLUCOSE_EVALUATION, number]
    judging = Judging(evaluation, settings.judged_days, settings.most_judged_days, NEAR, PRECISE)
    return adapt_to_task(policies, learners, task, settings.days, seed, judging)


# ----------------------------------------------------------------------------------------- what results.json has of it


def summarise_patients(
    policies: PolicyValueSet,
    contenders: Sequence[Contender],
    patients: Sequence[PatientRuns],
    settings: GlucoseSettings,
) -> dict[str, Any]:
    """The methods of results.json, and all that the page shows besides. Nothing is certified for patients that neither
    a proof nor a calibration is about."""
    few = patients[: settings.compared_patients]
    methods, risks = {}, {}
    for place, one in enumerate(contenders):
        certified = one.learner(policies, settings.days, known=KNOWN).certified
        certified = certified and settings.covers_fresh_patients(one.calibration is not None)
        if one.label in settings.rows:
            methods[one.label] = summary(patients, place, certified=certified, risk=one.risk)
        if one.method == ADAPTING and one.calibration is None:
            risks[f"{one.risk:g}"] = summary(few, place, certified=certified, risk=one.risk)
    cells = policies.cells
    return {
        "methods": methods,
        "risks": dict(sorted(risks.items(), key=lambda item: float(item[0]))),
        "cell_known": known_cell_summary(patients, BUDGET),
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
    """One contender over all patients, as plain data: what `summarise_runs` has, and time in range."""
    found = summarise_runs(
        patients, contender, certified=certified, risk=risk, budget=BUDGET, least_gain=LEAST_GAIN, early=EARLY
    )
    return {**found, "in_range": mean_reward(patients, contender)}


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
