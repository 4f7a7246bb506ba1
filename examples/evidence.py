"""What each kind of evidence is worth where only a simulator is known: sums of episodes, signals learned from them, and
signals with bounds as narrow as simulated tasks allow.

    python examples/evidence.py gridworld --simulated 16000  # told as a simulator: states, and no model of them
    python examples/evidence.py cartpole                     # Gymnasium's, with an unknown force (needs gymnasium)
    python examples/evidence.py pendulum
    python examples/evidence.py half-cheetah-motors          # or hopper-motors: shipped policies (needs mujoco)
    python examples/evidence.py pump --policies glucose.policyset --episodes 90   # of `surefoot reproduce glucose`

The gridworld's safe policy is close to its budget: fewer simulated episodes do not show that it keeps it.

Prints, for `certified-returns` on sums, for `certified-signals`, and with --calibrated N for the latter (on the
gridworld for `posterior`) calibrated on N further tasks: the regret of the gridworld's ten published tasks, exactly; of
the environments how many episodes it takes to 90 % of the reward that is safely possible with the policies of the set,
over never adapting. With --fresh N the calibrated method is run on N fresh tasks, and those on which anything unsafe
was deployed are counted.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import binomtest

import surefoot as sf
from surefoot.cmdp.units import Units
from surefoot.lab.experiments.glucose.run import BOLD
from surefoot.lab.experiments.locomotion.policy_sets import load_shipped
from surefoot.lab.experiments.locomotion.settings import FAMILIES
from surefoot.learning.certified.choice import path_to_boldness
from surefoot.learning.certified.selection import best_mixture
from surefoot.tasks.gridworld_tasks import PUBLISHED_TEST_NOISES

SUMS, SIGNALS = "certified-returns", "certified-signals"
RISK, ENOUGH = 0.05, 0.9
JUDGED = 4000  # episodes of each policy
MOTORS, MOTORS_JUDGED = ("half-cheetah-motors", "hopper-motors"), 60  # of 15 ms, and hardly different from each other


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


# A bet on 300 episodes shows a slack of 0.1 on Half-Cheetah, and not on Hopper, whose safe policy has less of a margin.
MOTORS_CALIBRATION = {
    "method": SIGNALS,
    "path": [{"width": width, "evidence_width": 2 * width, "level": 0.1, "slack": 0.1} for width in (0.2, 0.1, 0.05)],
    "judged_on": 300,
    "attempt": 0,
}

# What is deployed is close to its budget, which only many episodes show, and is off by what simulation leaves open of
# the values; the slack is for both. The fourth attempt: two with `certified-signals` and a slack of 0.03 failed, and
# one with `posterior` and a larger share passed with more slack than was hoped for.
GRIDWORLD_CALIBRATION = {
    "method": "posterior",
    "path": [{"share": 0.001, "temperature": 2.0, "slack": slack} for slack in (0.1, 0.08)],
    "judged_on": 4_000_000,
    "attempt": 4,
}


def gridworld(given: argparse.Namespace) -> None:
    tables, episodes = sf.tasks.gridworld(), 40_000
    hidden = sf.tasks.TaskDistribution(Hidden(tables), tables.distribution)
    policies = kept(given, lambda: gridworld_policies(tables, hidden, given))
    published = [tables.task([noise]) for noise in PUBLISHED_TEST_NOISES]
    for name, options in contenders(policies, hidden, episodes, given, GRIDWORLD_CALIBRATION).items():
        runs = adapt_to_all(policies, published, episodes, given.jobs, options)
        regret, unsafe = np.array([run.regret[-1] for run in runs]), sum(run.unsafe_episodes > 0 for run in runs)
        print(f"{name}: regret {regret.mean():,.0f} (mean of {len(runs)} tasks), {unsafe} ever unsafe", flush=True)
        count_unsafe(policies, tables, episodes, given, options)


def gridworld_policies(tables: Any, hidden: Any, given: argparse.Namespace) -> sf.PolicyValueSet:
    trained = sf.train(tables, epsilon=0.004, delta=0.05, seed=0, cells=0, progress=False)
    return sf.policy_set(
        hidden,
        safe=trained.safe_policy,
        candidates={f"noise {entry.parameter[0]:.3f}": entry.policy for entry in trained.entries},
        seed=0,
        envelopes=sf.Envelopes(cells=400, holdout=299, uncovered=0.03, episodes=given.simulated),
        jobs=given.jobs,
    )


def environment(given: argparse.Namespace) -> None:
    episodes, judged = given.episodes, MOTORS_JUDGED if given.what in MOTORS else JUDGED
    counted: dict[str, Any] = {"method": SIGNALS, "judged_on": 2 * judged}
    if given.what == "pump":
        family, policies = sf.tasks.glucose(), sf.PolicyValueSet.load(given.policies)
        counted |= {"path": path_to_boldness(policies, RISK)[BOLD], "attempt": 0}
    elif given.what in MOTORS:
        family, policies, counted = FAMILIES[given.what].tasks(), load_shipped(given.what).policies, MOTORS_CALIBRATION
    else:
        example = import_module(given.what)
        controllers = {each.name: each for each in (example.SAFE, *example.CANDIDATES)}
        family, policies = example.tasks(), kept(given, lambda: environment_policies(example, given), controllers)
    tasks = [family.task(parameter) for parameter in family.sample(given.tasks, np.random.default_rng(1))]
    bests = Parallel(n_jobs=given.jobs)(delayed(possible)(task, policies, k, judged) for k, task in enumerate(tasks))
    for name, options in contenders(policies, family, episodes, given, counted).items():
        runs = adapt_to_all(policies, tasks, episodes, given.jobs, options, judged)
        gained = [
            (np.asarray(run.reward) - safe) / (best - safe) for run, (safe, best) in zip(runs, bests, strict=True)
        ]
        waits = [int(np.argmax(each >= ENOUGH)) if (each >= ENOUGH).any() else np.inf for each in gained]
        median = np.median(waits)
        wait = f"{median:,.0f}" if np.isfinite(median) else f"more than {episodes:,}"
        print(
            f"{name}: {wait} episodes to {ENOUGH:.0%} of the possible gain (median of {len(tasks)} tasks, "
            f"{np.isinf(waits).sum()} did not reach it in {episodes}); {np.mean(gained):.0%} of it on average",
            flush=True,
        )
        count_unsafe(policies, family, episodes, given, options, judged)


def environment_policies(example: Any, given: argparse.Namespace) -> sf.PolicyValueSet:
    return sf.policy_set(
        example.tasks(),
        safe=example.SAFE,
        candidates=example.CANDIDATES,
        seed=0,
        envelopes=sf.Envelopes(episodes=given.simulated),
        jobs=given.jobs,
    )


def kept(
    given: argparse.Namespace, make: Callable[[], sf.PolicyValueSet], controllers: Any = None
) -> sf.PolicyValueSet:
    """The policy set of the file that was named, made if there is none."""
    if given.policies and Path(given.policies).exists():
        return sf.PolicyValueSet.load(given.policies, controllers=controllers)
    policies = make()
    if given.policies:
        policies.save(given.policies)
    return policies


def contenders(
    policies: Any, tasks: Any, episodes: int, given: argparse.Namespace, counted: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """What `adapt` is told, by name; `counted` says how it is calibrated."""
    found: dict[str, dict[str, Any]] = {SUMS: {"method": SUMS}, SIGNALS: {"method": SIGNALS}}
    if given.calibrated:
        calibration = sf.calibrate(
            policies,
            tasks,
            episodes=episodes,
            risk=RISK,
            runs=given.calibrated,
            seed=1,
            jobs=given.jobs,
            **counted,
        )
        for (setting, unsafe), gain in zip(calibration.counts, calibration.gains or (), strict=True):
            print(f"  {setting}: {unsafe} not shown safe, {calibration.allowed} allowed; gain {gain:.4g}", flush=True)
        if calibration.level is not None:
            found[f"{calibration.method}, calibrated"] = {"method": calibration.method, "calibration": calibration}
    return found


def adapt_to_all(
    policies: Any, tasks: Any, episodes: int, jobs: int, options: dict[str, Any], judged: int = JUDGED
) -> list[sf.Run]:
    """A run on each task, in their order."""

    def adapt(seed: int, task: Any) -> sf.Run:
        return sf.adapt(policies, task, episodes=episodes, risk=RISK, seed=seed, judged_on=judged, **options)

    return Parallel(n_jobs=jobs)(delayed(adapt)(seed, task) for seed, task in enumerate(tasks))


def count_unsafe(
    policies: Any, tasks: Any, episodes: int, given: argparse.Namespace, options: dict[str, Any], judged: int = JUDGED
) -> None:
    """On fresh tasks, of the calibrated method."""
    if given.fresh and "calibration" in options:
        fresh = [tasks.task(parameter) for parameter in tasks.sample(given.fresh, np.random.default_rng(2))]
        print(f"  {unsafe_tasks(adapt_to_all(policies, fresh, episodes, given.jobs, options, judged))}", flush=True)


def unsafe_tasks(runs: list[sf.Run]) -> str:
    """Runs in which something unsafe was deployed, in words."""
    unsafe, undecided = sum(run.unsafe_episodes > 0 for run in runs), sum(run.undecided_episodes > 0 for run in runs)
    interval = binomtest(unsafe, len(runs)).proportion_ci()
    counted = f"of {len(runs):,} fresh tasks {unsafe} unsafe ({interval.low:.1%} to {interval.high:.1%})"
    return counted + (f", {undecided} not judged to the end" if undecided else "")


def possible(task: Any, policies: sf.PolicyValueSet, seed: int, judged: int = JUDGED) -> tuple[float, float]:
    """Rewards of the safe policy, and of the best mixture that keeps the budget, from many episodes of each policy."""
    steps, units = task.units.episode_length, task.units
    played = [task.episodes(each, steps).run(judged, np.random.default_rng([seed, 9])) for each in policies.policies]
    reward = np.array([outcomes.reward.mean() for outcomes in played])
    margin = np.array([units.budget - outcomes.cost.mean(axis=0) for outcomes in played])
    best = best_mixture(np.maximum(margin.T, np.where(np.arange(len(played)) == 0, 0.0, -np.inf)), reward)
    return float(reward[0]), float(best.weights @ reward[best.indices])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["gridworld", "cartpole", "pendulum", "pump", *MOTORS])
    parser.add_argument("--policies", help="file of the policy set: taken from there, or kept there")
    parser.add_argument("--simulated", type=int, default=1000, help="episodes per task and policy, for the bounds")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--calibrated", type=int, default=0, help="further tasks for calibrating; 0: not calibrated")
    parser.add_argument("--fresh", type=int, default=0, help="further tasks on which unsafe ones are counted")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    (gridworld if given.what == "gridworld" else environment)(given)
