"""The insulin pump of a new patient, from the first line to a verified journal: docs/pump.md walks through it.

A simulation and no medical device. Settings are found and bounded in simulation; then days are lived one by one through
a journal. Here a simulated patient stands in for the real one, whose sensitivity only it knows. One night the process
dies, one day the sensor fails; in the end anybody who has the policy set can recompute every decision.

    python examples/pump.py [FOLDER]
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import surefoot as sf
from pump_page import clinic_page
from surefoot.deploy.verify import Verification, verify
from surefoot.oracles import insulin_candidates

RISK, STEPS = 0.1, 288
PATIENT = (0.6, 50.0)  # sensitivity to insulin, minutes of absorption: nobody tells the pump
CRASH, SENSOR_FAILS = 10, 20  # days
ENVELOPES = sf.Envelopes(cells=40, holdout=119, uncovered=0.06, episodes=300)
SIGNALS = sf.LearnedSignals(tasks=60)


def trained(
    folder: Path,
    settings: Any = None,
    envelopes: sf.Envelopes = ENVELOPES,
    signals: sf.LearnedSignals = SIGNALS,
) -> sf.PolicyValueSet:
    """Settings by search unless they are given, and bounds on what they do to as good as every patient."""
    tasks = sf.tasks.glucose()
    safe, others = settings or insulin_candidates(tasks, count=3, days=200)
    policies = sf.policy_set(tasks, safe=safe, candidates=others, seed=0, envelopes=envelopes, signals=signals, jobs=2)
    policies.save(folder / "pump.set")
    return policies


def one_day(policy: Any, day: int) -> tuple[float, float, np.ndarray, np.ndarray]:
    """What the real pump would do from midnight to midnight: time in range, time below it, readings and doses."""
    lived = sf.tasks.glucose().task(PATIENT).episodes(policy, STEPS)
    outcome = lived.run(1, np.random.default_rng([7, day]), transitions=True)
    seen = outcome.watched()
    return float(outcome.reward[0]), float(outcome.cost[0, 0]), seen.observations[0], seen.actions[0]


def live(folder: Path, days: int, crash_on: int | None = None) -> None:
    """Until so many days have been told. Orders and outcomes are on the disk before anything else happens."""
    with sf.Deployment.open(folder / "pump.journal", learner(folder)) as deployment:
        while deployment.status().episodes < days:
            order = deployment.ask()  # before midnight: whose settings tomorrow
            in_range, below, readings, doses = one_day(order.policy, order.episode)
            if order.episode == crash_on:
                os._exit(9)  # the day was lived, and nobody was told
            if order.episode == SENSOR_FAILS:
                deployment.abandon(order, "the sensor failed in the afternoon")
            else:
                deployment.tell(order, reward=in_range, cost=below, observations=readings, actions=doses)


def learner(folder: Path) -> sf.Learner:
    policies = sf.PolicyValueSet.load(folder / "pump.set")
    return sf.learner(policies, method="certified", risk=RISK, seed=1)


def main(folder: Path, days: int = 40, policies: sf.PolicyValueSet | None = None) -> Verification:
    policies = policies or trained(folder)
    for line in sf.plan(policies, episodes=days, risk=RISK, tasks=sf.tasks.glucose()):
        if line.method in ("certified", "certified-returns"):
            print(f"{line.method}: about {line.episodes:g} days before it leaves the safe settings ({line.reason})")
    first = multiprocessing.get_context("spawn").Process(target=live, args=(folder, days, min(CRASH, days // 2)))
    first.start()
    first.join()
    print(f"the first process ended with exit code {first.exitcode}")
    live(folder, days)
    verdict = verify(folder / "pump.journal", learner(folder))
    follow = "follow" if verdict.holds else f"do not follow ({verdict.reason})"
    print(f"{verdict.episodes} days; all {verdict.rows} rows {follow} from the policy set and the outcomes")
    print(f"the page for the clinic: {clinic_page(folder / 'pump.journal', policies.names)}")
    return verdict


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary))
