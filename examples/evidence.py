"""What each kind of evidence is worth where only a simulator is known: sums of episodes, or signals learned from them.

    python examples/evidence.py gridworld --simulated 4000   # told as a simulator: states, and no model of them
    python examples/evidence.py cartpole                     # Gymnasium's, with an unknown force (needs gymnasium)
    python examples/evidence.py pendulum

The gridworld's safe policy is close to its budget: fewer simulated episodes do not show that it keeps it.

Prints, for `certified-returns` on sums and for `certified-signals`: the regret of the gridworld's ten published tasks,
exactly; of the environments how many episodes it takes to 90 % of the reward that is safely possible with the policies
of the set, over never adapting.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

import surefoot as sf
from surefoot.cmdp.units import Units
from surefoot.learning.certified.selection import best_mixture
from surefoot.tasks.gridworld_tasks import PUBLISHED_TEST_NOISES

METHODS = ("certified-returns", "certified-signals")
ENOUGH = 0.9


@dataclass(frozen=True, eq=False)
class SimulatorOnly:
    """A table of which nobody may read anything: it shows episodes."""

    table: sf.TabularCMDP

    @property
    def units(self) -> Units:
        return self.table.units

    @property
    def spaces(self) -> Any:
        return self.table.spaces

    def digest(self) -> str:
        return self.table.digest()

    def episodes(self, policy: Any, steps: int) -> Any:
        return self.table.episodes(policy, steps)


@dataclass(frozen=True)
class Hidden:
    """Builds tasks of a family of tables as simulators."""

    tables: sf.tasks.TaskDistribution

    def __call__(self, parameter: Any) -> SimulatorOnly:
        return SimulatorOnly(self.tables.task(parameter))


def gridworld(simulated: int, jobs: int) -> None:
    tables = sf.tasks.gridworld()
    trained = sf.train(tables, epsilon=0.004, delta=0.05, seed=0, cells=0, progress=False)
    candidates = {f"noise {entry.parameter[0]:.3f}": entry.policy for entry in trained.entries}
    policies = sf.policy_set(
        sf.tasks.TaskDistribution(Hidden(tables), tables.distribution),
        safe=trained.safe_policy,
        candidates=candidates,
        seed=0,
        envelopes=sf.Envelopes(cells=400, holdout=299, uncovered=0.03, episodes=simulated),
        jobs=jobs,
    )
    for method in METHODS:
        noises = enumerate(PUBLISHED_TEST_NOISES)
        runs = [sf.adapt(policies, tables.task([x]), method=method, episodes=40_000, seed=k) for k, x in noises]
        regret, unsafe = np.array([run.regret[-1] for run in runs]), sum(run.unsafe_episodes > 0 for run in runs)
        print(f"{method}: regret {regret.mean():,.0f} (mean of {len(runs)} tasks), {unsafe} ever unsafe", flush=True)


def environment(name: str, number: int, episodes: int, simulated: int, jobs: int) -> None:
    example = import_module(name)
    family = example.tasks()
    envelopes = sf.Envelopes(episodes=simulated)
    policies = sf.policy_set(
        family, safe=example.SAFE, candidates=example.CANDIDATES, seed=0, envelopes=envelopes, jobs=jobs
    )
    parameters = family.sample(number, np.random.default_rng(1))
    bests = [possible(family.task(parameter), policies, k) for k, parameter in enumerate(parameters)]
    for method in METHODS:
        waits, shares = [], []
        for k, (parameter, (safe, best)) in enumerate(zip(parameters, bests, strict=True)):
            run = sf.adapt(policies, family.task(parameter), method=method, episodes=episodes, seed=k, judged_on=4000)
            gained = (np.asarray(run.reward) - safe) / (best - safe)
            reached = gained >= ENOUGH
            waits.append(int(np.argmax(reached)) if reached.any() else np.inf)
            shares.append(gained.mean())
        median = np.median(waits)
        wait = f"{median:,.0f}" if np.isfinite(median) else f"more than {episodes:,}"
        print(
            f"{method}: {wait} episodes to {ENOUGH:.0%} of the possible gain (median of {number} tasks, "
            f"{np.isinf(waits).sum()} did not reach it in {episodes}); {np.mean(shares):.0%} of it on average",
            flush=True,
        )


def possible(task: Any, policies: sf.PolicyValueSet, seed: int) -> tuple[float, float]:
    """Rewards of the safe policy, and of the best mixture that keeps the budget, from many episodes of each policy."""
    steps, units = task.units.episode_length, task.units
    played = [task.episodes(policy, steps).run(4000, np.random.default_rng([seed, 9])) for policy in policies.policies]
    reward = np.array([outcomes.reward.mean() for outcomes in played])
    margin = np.array([units.budget - outcomes.cost.mean(axis=0) for outcomes in played])
    best = best_mixture(np.maximum(margin.T, np.where(np.arange(len(played)) == 0, 0.0, -np.inf)), reward)
    return float(reward[0]), float(best.weights @ reward[best.indices])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["gridworld", "cartpole", "pendulum"])
    parser.add_argument("--simulated", type=int, default=1000, help="episodes per task and policy, for the bounds")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if given.what == "gridworld":
        gridworld(given.simulated, given.jobs)
    else:
        environment(given.what, given.tasks, given.episodes, given.simulated, given.jobs)
