"""The meta-learners on robots as their authors have them: small networks from nothing with action noise σ = 1, their
rules, their settings, and a part of their iterations (all of them are 28.8 million steps each, hours on two cores).

    python examples/as_published.py half-cheetah-motors --share 0.1
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from surefoot.fan_out import parallel_map
from surefoot.lab.baselines.control_specs import PUBLISHED
from surefoot.lab.baselines.meta_training import MetaSettings, MetaTrained, meta_train
from surefoot.lab.baselines.network_adaptation import META_LEARNERS
from surefoot.lab.experiments.frame import Bench
from surefoot.lab.experiments.locomotion.policy_sets import load_shipped
from surefoot.lab.experiments.locomotion.run import adapt_family
from surefoot.lab.experiments.locomotion.settings import FAMILIES, LocomotionFamily, LocomotionSettings
from surefoot.lab.experiments.locomotion.training import META_LANES, META_RULES, META_TASKS, meta_tasks
from surefoot.progress import progress_reporter


def main(name: str, share: float, tasks: int, jobs: int) -> None:
    shipped, family = load_shipped(name), FAMILIES[name]
    settings = replace(MetaSettings(), iterations=max(1, round(share * MetaSettings().iterations)))
    each = META_LANES * max(settings.batch // META_LANES, shipped.policies.units.episode_length)
    steps = settings.iterations * (settings.local + 1) * META_TASKS * each
    calls = [(family, method, settings) for method in META_RULES]
    with progress_reporter(True) as show:
        found = list(parallel_map("meta-training", meta_train_as_published, calls, jobs, show))
    learned = dict(zip(META_RULES, found, strict=True))
    trained = replace(
        shipped,
        starts={method: found.policy for method, found in learned.items()},
        origin=replace(
            shipped.origin,
            steps=0,
            meta_steps=steps,
            tuning={method: {"chosen": asdict(rules), "steps": 0} for method, rules in PUBLISHED.items()},
        ),
    )
    chosen = LocomotionSettings(tasks=tasks, methods=("safe-only", *META_RULES))
    with TemporaryDirectory() as out, progress_reporter(True) as show:
        adapted = adapt_family(name, trained, chosen, Bench(Path(out), jobs, show))
    print(f"{name}, {settings.iterations} of {MetaSettings().iterations} iterations; gains are beyond the safe policy")
    for method, own in adapted["methods"].items():
        accepted = f", {learned[method].accepted} updates accepted" if method in learned else ""
        print(
            f"  {method:18} {own['training_steps'] / 1e6:.1f} M steps{accepted}: reward {own['reward_final']:.3g}, "
            f"{own['share_final']:.0%} of the gain, largest cost {own['worst_cost']:.3g} of {adapted['budget']:g}, "
            f"{own['unsafe_tasks']} of {own['tasks']} unsafe, {own['undecided_tasks']} undecided"
        )


def meta_train_as_published(family: LocomotionFamily, method: str, settings: MetaSettings) -> MetaTrained:
    first, *others = meta_tasks(family)
    return meta_train(
        first.world(META_LANES, *others),
        np.repeat(np.arange(META_TASKS), META_LANES).tolist(),
        META_LEARNERS[method],
        rules=PUBLISHED[method],
        settings=settings,
        rng=np.random.default_rng(0),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--share", type=float, default=0.1, help="of the authors' iterations")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    main(asked.family, asked.share, asked.tasks, asked.jobs)
