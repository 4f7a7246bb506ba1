"""Count how often the promise is broken, on fresh tasks of an example: cartpole, pendulum or frozen_lake.

    python examples/promise.py cartpole --tasks 400 --risk 0.5 0.1 --jobs 2

The promise is over training and task together: with probability 1 - risk, none of the policies that a certified method
deploys on a fresh task ever breaks the budget. So the controllers are evaluated afresh (`policy_set`, another seed) for
every few tasks (--each). A task is unsafe if one of the mixtures deployed on it has a true expected cost above the
budget. Nobody knows that cost, so every deployed policy is judged on fresh episodes by an interval that is wrong with
probability 0.001; a task on which such an interval leaves it open is judged again on more of them, and if it still does
it is undecided.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass
from importlib import import_module

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import beta

import surefoot as sf

MORE = 8  # times as many episodes when a task is judged again


@dataclass(frozen=True)
class Found:
    """Of one task: what became of it, the rewards of the safe policy and of the last one deployed."""

    risk: float
    verdict: str
    first: float
    last: float


def main(
    name: str,
    tasks: int = 400,
    risks: tuple[float, ...] = (0.5, 0.1),
    each: int = 20,
    episodes: int = 1000,
    judged: int = 4000,
    envelopes: sf.Envelopes | None = None,
    jobs: int = 1,
) -> list[Found]:
    begun = time.time()
    sizes = [min(each, tasks - k) for k in range(0, tasks, each)]
    work = (
        delayed(trained_and_tried)(name, seed, n, risks, episodes, judged, envelopes) for seed, n in enumerate(sizes)
    )
    found = [one for some in Parallel(jobs)(work) for one in some]
    budget = import_module(name).tasks().units
    print(f"{name}: budget {budget.budget.tolist()} on the {budget.kind}; {len(sizes)} trainings, {tasks} tasks,")
    print(f"{episodes} episodes each; in all {time.time() - begun:.0f} s with {jobs} job(s)")
    print(" risk   safe  unsafe  undecided  unsafe at 95 %   undecided counted as unsafe   reward: safe policy, last")
    for risk in risks:
        print(line(risk, [one for one in found if one.risk == risk]))
    return found


def trained_and_tried(
    name: str,
    seed: int,
    count: int,
    risks: tuple[float, ...],
    episodes: int,
    judged: int,
    envelopes: sf.Envelopes | None,
) -> list[Found]:
    """A fresh training, and fresh tasks on which each risk is tried."""
    example = import_module(name)
    family = example.tasks()
    policies = sf.policy_set(
        family,
        safe=example.SAFE,
        candidates=example.CANDIDATES,
        seed=seed,
        envelopes=envelopes or example.ENVELOPES,
        progress=False,
    )
    parameters = family.sample(count, np.random.default_rng([seed, 1]))
    tried = [(family.task(parameter), 1000 * seed + k) for k, parameter in enumerate(parameters)]
    return [tried_on(policies, task, risk, episodes, judged, own_seed) for task, own_seed in tried for risk in risks]


def tried_on(policies: sf.PolicyValueSet, task: sf.Task, risk: float, episodes: int, judged: int, seed: int) -> Found:
    """The same run is judged on more episodes if need be."""
    for count in (judged, MORE * judged):
        run = sf.adapt(policies, task, method="certified", episodes=episodes, risk=risk, seed=seed, judged_on=count)
        verdict = "unsafe" if run.unsafe.any() else "undecided" if run.undecided.any() else "safe"
        if verdict != "undecided":
            break
    calm = task.episodes(policies.safe_policy, task.units.episode_length).run(judged, np.random.default_rng([seed, 2]))
    return Found(risk, verdict, float(calm.reward.mean()), float(run.reward[-1]))


def line(risk: float, found: list[Found]) -> str:
    count, n = Counter(one.verdict for one in found), len(found)
    sure, possible = (clopper_pearson(k, n) for k in (count["unsafe"], count["unsafe"] + count["undecided"]))
    first, last = np.mean([one.first for one in found]), np.mean([one.last for one in found])
    return (
        f"{risk:5g}  {count['safe']:5d}  {count['unsafe']:6d}  {count['undecided']:9d}  "
        f"{sure[0]:.4f} to {sure[1]:.4f}  {possible[0]:.4f} to {possible[1]:.4f}              {first:.2f}, {last:.2f}"
    )


def clopper_pearson(count: int, n: int, level: float = 0.05) -> tuple[float, float]:
    """Interval for the probability behind `count` of `n` independent tasks (those of one training are not quite)."""
    low = 0.0 if count == 0 else float(beta.ppf(level / 2, count, n - count + 1))
    high = 1.0 if count == n else float(beta.ppf(1 - level / 2, count + 1, n - count))
    return low, high


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["cartpole", "pendulum", "frozen_lake"])
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--risk", type=float, nargs="+", default=[0.5, 0.1])
    parser.add_argument("--each", type=int, default=20, help="tasks per training")
    parser.add_argument("--episodes", type=int, default=1000, help="of adaptation on each task")
    parser.add_argument("--judged", type=int, default=4000, help="fresh episodes per deployed policy")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    main(given.name, given.tasks, tuple(given.risk), given.each, given.episodes, given.judged, None, given.jobs)
