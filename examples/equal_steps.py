"""The certified methods on robots when bounds and signals are simulated with as few steps as are asked for: by default
with as many as tuning and meta-training take, so that everybody's steps before the first episode are as many.

    python examples/equal_steps.py half-cheetah-dynamics
    python examples/equal_steps.py half-cheetah-motors --million 10 --train 1  # policies and baselines of another seed
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from surefoot.bounds.conformal import fewest_held_out
from surefoot.bounds.envelopes import build_value_bounds
from surefoot.bounds.settings import FEWEST_TASKS, SAMPLED_PER_HELD_OUT, Envelopes, LearnedSignals
from surefoot.bounds.signal_model import LOOK_TASKS
from surefoot.bounds.simulation import LOOK_PART
from surefoot.lab.experiments.frame import Bench
from surefoot.lab.experiments.locomotion.policy_sets import (
    FamilyPolicies,
    holds,
    load_shipped,
    load_trained,
    simulated_steps,
    train_from_scratch,
)
from surefoot.lab.experiments.locomotion.run import adapt_family
from surefoot.lab.experiments.locomotion.settings import FAMILIES, FIXED, NETWORKS, LocomotionSettings
from surefoot.progress import Progress, progress_reporter
from surefoot.tasks.task_distribution import TaskDistribution

METHODS = ("safe-only", "certified-returns", "certified-signals", "identify-and-look-up")
BASELINES = (*FIXED, *NETWORKS)  # those of shipped sets: `surefoot reproduce locomotion`
SIGNAL_TASKS, SIGNAL_PART = 60, 0.15
UNCOVERED = 0.84  # the part of the risk that bounds may spend


def main(
    name: str, seed: int | None, million: float | None, settings: LocomotionSettings, jobs: int, show: Progress
) -> None:
    trained = load_shipped(name) if seed is None else of_seed(name, seed, Path(f"out/seed-{seed}"), jobs, show)
    family, policies = FAMILIES[name], trained.policies
    tasks = family.tasks()
    as_many = trained.origin.meta_steps + trained.origin.tuning["meta-cpo"]["steps"]
    steps = as_many if million is None else round(1e6 * million)
    episodes = steps / (tasks.units.episode_length * len(policies.policies))
    envelopes, signals = spend(tasks, episodes, settings.risk, family.signals)
    bounds = build_value_bounds(tasks, policies.policies, envelopes, signals, settings.seed, jobs, show)
    simulated = simulated_steps(tasks, envelopes, signals, len(policies.policies))
    print(f"{name}: {envelopes.holdout} held-out robots, {envelopes.episodes} episodes of each policy")
    print(f"simulated {sum(simulated.values()) / 1e6:.2f} of {steps / 1e6:.2f} million steps: {simulated}")
    trained = replace(
        trained,
        policies=replace(policies, cells=bounds.cells, safe_risk=bounds.safe_risk),
        origin=replace(trained.origin, simulated=simulated),
    )
    with TemporaryDirectory() as out:
        found = adapt_family(name, trained, settings, Bench(Path(out), jobs, show))
    most = np.mean(found["reward_safe"]) + np.mean(found["possible_gain"])
    print(f"the best of the set within the budget earns {most:.4g}; refused: {found['refused'] or 'none'}")
    for method, own in found["methods"].items():
        print(
            f"  {method:22} reward {own['reward_final']:.4g}, {own['share_final']:4.0%} of the gain, 90 % of it before "
            f"episode {own['median_until']}, largest cost {own['worst_cost']:.3g} ± {3 * own['worst_error']:.2g} of "
            f"{found['budget']:g}, {own['unsafe_tasks']} of {own['tasks']} unsafe, {own['undecided_tasks']} undecided, "
            f"{own['simulator_steps'] / 1e6:.1f} million steps"
        )


def of_seed(name: str, seed: int, folder: Path, jobs: int, show: Progress) -> FamilyPolicies:
    """Policies and baselines of another training seed, without bounds, which are left in the folder. Steps of baselines
    are those that were tuned on the shipped policies, if there are any."""
    if holds(folder, name):
        return load_trained(name, folder)
    folder.mkdir(parents=True, exist_ok=True)
    tuning = load_shipped(name).origin.tuning if FAMILIES[name].shipped else None
    how: dict[str, Any] = {"bounds": False, "tuning": tuning, "progress": show}
    return train_from_scratch(name, folder, seed=seed, share=1.0, jobs=jobs, **how)


def spend(
    tasks: TaskDistribution, episodes: float, risk: float, signals: LearnedSignals
) -> tuple[Envelopes, LearnedSignals]:
    """How so many episodes of each policy are spent: on signals, then on as few held-out tasks as the risk allows and
    one more, and on a first sample of tasks a sixth as long."""
    learned = replace(
        signals, tasks=SIGNAL_TASKS, episodes=max(2, int(SIGNAL_PART * episodes / (SIGNAL_TASKS + LOOK_TASKS)))
    )
    uncovered = UNCOVERED * risk
    holdout = 1 + fewest_held_out(Envelopes(uncovered=uncovered).resolve(tasks.example, tasks.shared_costs))
    ahead = LOOK_PART * max(FEWEST_TASKS, SAMPLED_PER_HELD_OUT * holdout)
    each = max(1, int((1 - SIGNAL_PART) * episodes / (ahead + holdout)))
    return Envelopes(cells=100, holdout=holdout, uncovered=uncovered, episodes=each), learned


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--train", type=int, metavar="SEED", help="train policies and baselines into out/seed-SEED")
    parser.add_argument("--million", type=float, help="steps of bounds and signals")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--risk", type=float, default=0.05)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    methods = METHODS if asked.train is None else METHODS + BASELINES
    settings = LocomotionSettings(tasks=asked.tasks, risk=asked.risk, methods=methods)
    with progress_reporter(True) as show:
        main(asked.family, asked.train, asked.million, settings, asked.jobs, show)
