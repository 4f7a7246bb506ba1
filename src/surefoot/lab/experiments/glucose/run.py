"""`surefoot reproduce glucose`: settings of an insulin pump found day by day, on fresh simulated patients."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.bounds.settings import Envelopes, LearnedSignals
from surefoot.errors import InvalidInput
from surefoot.fan_out import parallel_map
from surefoot.lab.experiments.frame import Bench, Experiment
from surefoot.lab.experiments.glucose.information import information
from surefoot.lab.experiments.glucose.measures import known_cell_summary, summary
from surefoot.lab.experiments.glucose.page import glucose_page, tables
from surefoot.lab.experiments.glucose.patients import NEAR, Contender, Lived, live
from surefoot.lab.experiments.glucose.settings import ADAPTING, KNOWN, QUICK, GlucoseSettings
from surefoot.lab.pump.family import BUDGET, glucose
from surefoot.methods import learner
from surefoot.oracles import insulin_candidates
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress
from surefoot.streams import Stream
from surefoot.training.policy_set import policy_set

POLICY_SET = "glucose.policyset"  # its file
SHOWN = (1.7, 1.0, 0.6)  # patients in the figure: those whose sensitivity is closest


def run(settings: GlucoseSettings, bench: Bench) -> dict[str, Any]:
    """Search, bound and adapt."""
    jobs, show, clock = bench.jobs, bench.progress, Clock()
    policies = bench.policy_sets[POLICY_SET] = train_pump_policies(settings, jobs, show, clock)
    contenders, refused = _contenders(policies, settings)
    patients = adapt_to_patients(policies, contenders, settings, jobs, show)
    clock.lap("adapting and judging")
    told = information(policies, settings.seed, jobs, show)
    clock.lap("what a day says")
    return {
        "seconds": sum(clock.seconds.values()),
        "seconds_by_stage": clock.seconds,
        **summarise_patients(policies, contenders, patients, settings),
        "refused": refused,
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


def train_pump_policies(settings: GlucoseSettings, jobs: int, show: Progress, clock: Clock) -> PolicyValueSet:
    """Settings by search, and what they do to as good as every patient."""
    tasks = glucose()
    safe, candidates = insulin_candidates(
        tasks, count=settings.candidates, days=settings.searched_days, seed=settings.seed, progress=show
    )
    clock.lap("searching settings")
    envelopes = Envelopes(
        cells=settings.cells, holdout=settings.holdout, uncovered=settings.uncovered, episodes=settings.episodes
    )
    policies = policy_set(
        tasks,
        safe=safe,
        candidates=candidates,
        seed=settings.seed,
        envelopes=envelopes,
        signals=LearnedSignals(tasks=settings.learned_patients, episodes=settings.learned_days),
        jobs=jobs,
        progress=show,
    )
    clock.lap("bounding what they do")
    return policies


def adapt_to_patients(
    policies: PolicyValueSet, contenders: Sequence[Contender], settings: GlucoseSettings, jobs: int, show: Progress
) -> list[Lived]:
    """Every patient with every contender; those at other risks with the first patients only."""
    parameters = glucose().sample(settings.patients, Stream.GLUCOSE_PATIENTS.rng(settings.seed))
    everywhere = [one for one in contenders if one.label in settings.methods]
    calls = [
        (policies, contenders if k < settings.compared_patients else everywhere, parameter, k, settings)
        for k, parameter in enumerate(parameters)
    ]
    return list(parallel_map("adapting to patients", live, calls, jobs, show))


def _contenders(policies: PolicyValueSet, settings: GlucoseSettings) -> tuple[list[Contender], dict[str, str]]:
    """Methods at the risk of the experiment first, then at others; and why some of these cannot be had."""
    asked = [Contender(name, name, settings.risk) for name in settings.methods]
    if ADAPTING in settings.methods:
        asked += [Contender(f"{ADAPTING}, risk {risk:g}", ADAPTING, risk) for risk in settings.other_risks]
    contenders, refused = [], {}
    for one in asked:
        try:
            learner(policies, method=KNOWN[one.method], episodes=settings.days, risk=one.risk)
        except InvalidInput as error:
            refused[one.label] = str(error)
            continue
        contenders.append(one)
    if not contenders:
        raise InvalidInput(f"methods must hold one that can be run, got none: {'; '.join(refused.values())}")
    return contenders, refused


# -------------------------------------------------------------------------------------------------------- plain numbers


def summarise_patients(
    policies: PolicyValueSet, contenders: Sequence[Contender], patients: Sequence[Lived], settings: GlucoseSettings
) -> dict[str, Any]:
    """The methods of results.json, and all that the page shows besides."""
    few = patients[: settings.compared_patients]
    methods, risks = {}, {}
    for place, one in enumerate(contenders):
        certified = learner(policies, method=KNOWN[one.method], episodes=settings.days, risk=one.risk).certified
        if one.label in settings.methods:
            methods[one.label] = summary(patients, place, certified=certified, risk=one.risk)
        if one.method == ADAPTING:
            risks[f"{one.risk:g}"] = summary(few, place, certified=certified, risk=one.risk)
    cells = policies.cells
    possible = np.array([one.possible_gain for one in patients])
    return {
        "methods": methods,
        "risks": dict(sorted(risks.items(), key=lambda item: float(item[0]))),
        "cell_known": known_cell_summary(patients),
        "policies": [policies.name(index) for index in range(len(policies.policies))],
        "bounds": {"cells": 0 if cells is None else len(cells), "uncovered": 1.0 if cells is None else cells.uncovered},
        "patients": {
            "parameters": [one.parameter.tolist() for one in patients],
            "possible_gain": possible.tolist(),
            "in_range_possible": [float(one.possible @ one.mean[:, 0]) for one in patients],
            "in_range_safe": [float(one.mean[0, 0]) for one in patients],
        },
        "errors": _errors(patients, [one.label for one in contenders]),
        "shown": [_example_patient(patients, contenders, settings, wanted) for wanted in SHOWN],
    }


def _errors(patients: Sequence[Lived], labels: Sequence[str]) -> dict[str, Any]:
    """Largest standard errors of what was deployed: of time below range within a point of the budget, and of time in
    range; and how many days they took."""
    found = []
    for one in patients:
        deployed = np.unique(one.deployed[: len(labels)].reshape(-1, one.deployed.shape[-1]), axis=0)
        near = np.abs(deployed @ one.mean[:, 1] - BUDGET) <= NEAR
        errors = deployed @ one.error  # [n, 2]
        found.append((errors[near, 1].max(initial=0.0), errors[:, 0].max()))
    below, within = (np.array(column) for column in zip(*found, strict=True))
    return {
        "below_near_budget": float(below.max()),
        "in_range": float(within.max()),
        "days": int(sum(one.count.sum() for one in patients)),
        "most_days": int(max(one.count.max() for one in patients)),
    }


def _example_patient(
    patients: Sequence[Lived], contenders: Sequence[Contender], settings: GlucoseSettings, wanted: float
) -> dict[str, Any]:
    """The patient whose sensitivity is closest to `wanted`, absorption to the mean, over the days."""
    places: Floats = np.log(np.stack([one.parameter for one in patients]) / [wanted, 55.0])
    number = int((np.abs(places) * [1.0, 0.5]).sum(axis=1).argmin())
    patient = patients[number]
    return {
        "number": number,
        "parameter": patient.parameter.tolist(),
        "possible": (patient.possible @ patient.mean).tolist(),
        "methods": {
            one.label: {
                "in_range": (deployed @ patient.mean[:, 0]).tolist(),
                "below": (deployed @ patient.mean[:, 1]).tolist(),
                "weights": deployed.tolist(),
            }
            for one, deployed in zip(contenders, patient.deployed, strict=False)
            if one.label in settings.methods
        },
    }


EXPERIMENT = Experiment(
    "glucose",
    GlucoseSettings,
    run,
    glucose_page,
    tables,
    "patients.png, gain.png, results.json and glucose.policyset beside it",
    quick=QUICK,
    policy_sets=lambda settings: [POLICY_SET],
)
