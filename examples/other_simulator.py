"""Trained on one simulator, deployed on another: what the promise is worth if it was calibrated on the wrong one.

    python examples/other_simulator.py cartpole                            # a motor that acts one step late
    python examples/other_simulator.py pump --policies glucose.policyset   # of `surefoot reproduce glucose`

Policies and bounds are made without the delay, and on days of another law: there patients count too many
carbohydrates, bodies vary more from day to day and the sensor reads low. Prints how many of some fresh tasks of the
other simulator are unsafe, and what is gained there, if the method is taken as it is proved for the simulator of
training, calibrated on that one, and calibrated on the right one.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import cartpole
import surefoot as sf
from evidence import RISK, SIGNALS, adapt_to_all, possible, unsafe_tasks
from surefoot.lab.pump.days import GlucoseDays, sample_days
from surefoot.lab.pump.family import GlucoseTask
from surefoot.learning.certified.choice import path_to_less_slack

# ---------------------------------------------------------------------------------------------- a cart that acts late


class Late(cartpole.Line):
    """What is done in a step is what was wanted in the one before; first it is pushed to the left."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed, options=options)
        self.wanted = np.zeros(observation.shape[:-1], dtype=np.int64)
        return observation, info

    def step(self, action: Any) -> Any:
        done, self.wanted = self.wanted, np.asarray(action)
        return super().step(done if done.ndim else int(done))


class LateCart(Late, cartpole.CartPoleEnv): ...


class LateCarts(Late, cartpole.CartPoleVectorEnv): ...


def late_carts() -> sf.tasks.TaskDistribution:
    system = {**cartpole.SYSTEM, "make_vector": lambda parameter, n: LateCarts(float(parameter[0]), num_envs=n)}
    return sf.tasks.from_gym(lambda parameter: LateCart(float(parameter[0])), cartpole.LENGTHS, **system)


# ----------------------------------------------------------------------------------------------- days of another law

COUNTED, LOWER, WILDER = 1.15, 0.04, 0.1


def other_days(n: int, rng: np.random.Generator) -> GlucoseDays:
    """Carbohydrates are counted as 15 % more, the sensor reads 4 % lower, and the body varies more."""
    days = sample_days(n, rng)
    response = days.response * np.exp(WILDER * rng.standard_normal(n))
    return replace(days, counted=COUNTED * days.counted, response=response, error=days.error - LOWER)


def other_patients() -> sf.tasks.TaskDistribution:
    return sf.tasks.TaskDistribution(partial(GlucoseTask, law=other_days), sf.tasks.glucose().distribution)


# -------------------------------------------------------------------------------------------------------- what is shown


def compare(policies: Any, family: Any, other: Any, given: argparse.Namespace) -> None:
    """On the other simulator, the method as it is proved and calibrated on either."""
    fresh = [other.task(parameter) for parameter in other.sample(given.fresh, np.random.default_rng(3))]
    bests = [possible(task, policies, k) for k, task in enumerate(fresh[: given.gains])]
    for name, tasks in {"as proved": None, "calibrated on that of training": family, "on the right one": other}.items():
        options: dict[str, Any] = {"method": SIGNALS}
        if tasks is not None:
            options["calibration"] = calibrate(policies, tasks, given)
            if options["calibration"].level is None:
                print(f"{name}: no setting passes, nothing but the safe policy may be deployed", flush=True)
                continue
        runs = adapt_to_all(policies, fresh, given.episodes, given.jobs, options)
        gains = [np.mean(run.reward) - safe for run, (safe, _) in zip(runs, bests, strict=False)]
        share = sum(gains) / sum(best - safe for safe, best in bests)
        print(f"{name}: {unsafe_tasks(runs)}; {share:.0%} of the possible gain", flush=True)


def calibrate(policies: Any, tasks: Any, given: argparse.Namespace) -> sf.Calibration:
    counted: dict[str, Any] = {"path": path_to_less_slack(), "runs": given.runs, "seed": 1, "jobs": given.jobs}
    found = sf.calibrate(policies, tasks, method=SIGNALS, episodes=given.episodes, risk=RISK, **counted)
    print(f"  {found.counts}, {found.allowed} of {found.runs} allowed", flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["cartpole", "pump"])
    parser.add_argument("--policies", help="policy set of the pump")
    parser.add_argument("--runs", type=int, default=300, help="simulated tasks for calibrating")
    parser.add_argument("--fresh", type=int, default=1000, help="tasks of the other simulator")
    parser.add_argument("--gains", type=int, default=100, help="so many of these tell what is gained")
    parser.add_argument("--episodes", type=int, default=90)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if given.what == "pump":
        compare(sf.PolicyValueSet.load(given.policies), sf.tasks.glucose(), other_patients(), given)
    else:
        carts = cartpole.tasks()
        policies = sf.policy_set(carts, safe=cartpole.SAFE, candidates=cartpole.CANDIDATES, seed=0, jobs=given.jobs)
        compare(policies, carts, late_carts(), given)
