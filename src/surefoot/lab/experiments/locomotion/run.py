"""`surefoot reproduce locomotion`: the paper's Figure 4, on fresh robots of four families."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.control.mlp_policy import MLPPolicy
from surefoot.errors import InvalidInput
from surefoot.fan_out import parallel_map
from surefoot.lab.experiments.frame import Bench, Experiment
from surefoot.lab.experiments.locomotion.adapting import Faced, face, lessons
from surefoot.lab.experiments.locomotion.families import FAMILIES
from surefoot.lab.experiments.locomotion.measures import expert_gain, summary, totals
from surefoot.lab.experiments.locomotion.page import locomotion_page, tables
from surefoot.lab.experiments.locomotion.settings import KNOWN, NETWORKS, QUICK, LocomotionSettings
from surefoot.lab.experiments.locomotion.shipped import School, load_shipped, train_from_scratch
from surefoot.lab.experiments.locomotion.simulated_steps import steps_before
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress
from surefoot.streams import Stream


def run(settings: LocomotionSettings, bench: Bench) -> dict[str, Any]:
    """Load or train, adapt and judge."""
    jobs, show = bench.jobs, bench.progress
    sets = {name: policy_set(name, settings, bench.out, jobs, show) for name in settings.families}
    families = {name: adapt_family(name, school, settings, jobs, show) for name, school in sets.items()}
    return {"families": families, "methods": totals(families)}


def policy_set(name: str, settings: LocomotionSettings, out: Path, jobs: int, show: Progress) -> School:
    if not settings.retrain:
        return load_shipped(name)
    return train_from_scratch(name, out, seed=settings.seed, share=settings.share, jobs=jobs, progress=show)


def adapt_family(name: str, school: School, settings: LocomotionSettings, jobs: int, show: Progress) -> dict[str, Any]:
    """One family: every method on fresh tasks."""
    began, policies = time.perf_counter(), school.policies
    methods, refused = available(policies, settings)
    parameters = FAMILIES[name].tasks().sample(settings.tasks, Stream.LOCOMOTION_TASKS.rng(settings.seed))
    calls = [(school, name, methods, parameter, number, settings) for number, parameter in enumerate(parameters)]
    tasks = list(parallel_map(f"adapting, {name}", face, calls, jobs, show))
    return {
        **summarise_family(name, school, methods, tasks, settings),
        "refused": refused,
        "seconds": time.perf_counter() - began,
    }


def available(policies: PolicyValueSet, settings: LocomotionSettings) -> tuple[list[str], dict[str, str]]:
    """The methods that can be had with a policy set, and why the others cannot."""
    methods, refused = [], {}
    for name in settings.methods:
        if name in NETWORKS and not settings.network_tasks:
            refused[name] = "network_tasks is 0"
            continue
        try:
            learner(policies, method=KNOWN[name], episodes=settings.episodes, risk=settings.risk)
        except InvalidInput as error:
            refused[name] = str(error)
            continue
        methods.append(name)
    if not methods:
        raise InvalidInput(f"methods must hold one that can be run, got none: {'; '.join(refused.values())}")
    return methods, refused


def summarise_family(
    name: str, school: School, methods: Sequence[str], tasks: Sequence[Faced], settings: LocomotionSettings
) -> dict[str, Any]:
    """One family of results.json."""
    policies, origin = school.policies, school.origin
    budget = float(policies.units.budget[0])
    found = {}
    for method in methods:
        made = learner(policies, method=KNOWN[method], episodes=settings.episodes, risk=settings.risk)
        learned = lessons(policies, KNOWN[method], settings)
        own = summary(tasks, method, budget, certified=made.certified, learned=learned)
        trained = origin.steps + (origin.meta_steps if method in school.starts else 0)
        steps = steps_before(KNOWN[method], trained, origin.simulated)
        found[method] = {**own, "training_steps": trained, "simulator_steps": steps}
    cells = policies.cells
    return {
        "title": FAMILIES[name].title,
        "budget": budget,
        "parameters": [task.parameter.tolist() for task in tasks],
        "reward_safe": [float(task.mean[0, 0]) for task in tasks],
        "possible_gain": [task.possible_gain for task in tasks],
        "expert_gain": [expert_gain(task) for task in tasks],
        "judged": int(sum(task.count.sum() for task in tasks)),
        "policies": len(policies.policies),
        "cells": 0 if cells is None else len(cells),
        "uncovered": policies.safe_risk,
        "origin": asdict(origin),
        "unmoved": school.unchanged_starts,
        "own_steps": list(FAMILIES[name].rules),
        "noise": action_noise(policies),
        "methods": found,
    }


def action_noise(policies: PolicyValueSet) -> list[float] | None:
    """The least and the largest standard deviation of an action of the safe policy, where it has any."""
    safe = policies.safe_policy
    return np.exp([safe.log_std.min(), safe.log_std.max()]).tolist() if isinstance(safe, MLPPolicy) else None


EXPERIMENT = Experiment(
    "locomotion",
    LocomotionSettings,
    run,
    locomotion_page,
    tables,
    "figure4.png, figure4.svg and results.json beside it",
    quick=QUICK,
    policy_sets=lambda settings: [f"{name}.policyset" for name in settings.families if settings.retrain],
)
