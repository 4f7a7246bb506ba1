"""A learner of one's own, without a proof, on the lake of `frozen_lake.py`: calibrated in simulation, then deployed.

*Spending* is a rule that anybody might write: count how often the quick route falls in, add some standard errors, and
take that route as often as the budget allows then. How many standard errors? Nobody has proved anything about it. So it
is tried on many simulated lakes, from four standard errors down to none, and the boldest is taken that is unsafe on few
enough of them. What is promised then is counted, whatever the rule is (docs/guarantees.md, Theorems 12 and 12c).

    python examples/own_learner.py
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np

import surefoot as sf
from frozen_lake import CANDIDATES, SAFE, SYSTEM, tasks
from surefoot.deploy.verify import Verification, verify
from surefoot.learning.method import Certificate, Method, Mixture, Step

EVERY, EPISODES, RISK = 10, 100, 0.1  # episodes between decisions, and in all; risk of ever being unsafe

# --------------------------------------------------------------------------------------------------------- the learner


@dataclass(frozen=True, eq=False)
class Tally:
    """Episodes so far, those of the quick route, falls among these, and the share of episodes that take it."""

    episodes: int
    tried: int
    falls: float
    share: float


@dataclass(frozen=True, eq=False)
class Spending(Method):
    policies: sf.PolicyValueSet
    caution: float  # standard errors; the knob
    name: ClassVar[str] = "spending"

    def start(self) -> Tally:
        return self.decide(Tally(0, 0, 0.0, 0.0), 0).state

    def mixture(self, state: Tally) -> Mixture:
        return Mixture(np.array([0, 1]), np.array([1 - state.share, state.share]))  # policy 0 is the safe one

    def update(self, state: Tally, episode: int, drawn: Any, outcomes: sf.Outcomes) -> Step:
        used = min(len(outcomes), EVERY - state.episodes % EVERY)  # no further than the next decision
        quick = drawn[:used] == 1
        tried, falls = int(quick.sum()), float(outcomes.cost[:used][quick].sum())
        return self.decide(Tally(state.episodes + used, state.tried + tried, state.falls + falls, state.share), used)

    def abandon(self, state: Tally, episode: int, drawn: int) -> Step:
        """It may have fallen in."""
        return self.decide(Tally(state.episodes + 1, state.tried + drawn, state.falls + drawn, state.share), 1)

    def certificate(self, state: Tally) -> Certificate:
        return Certificate(surviving=1, total=1, margin=None)  # nothing is claimed

    def decide(self, state: Tally, used: int) -> Step:
        if state.episodes % EVERY:
            return Step(state, used)
        worst = most_falls(state.falls, state.tried, self.caution)
        share = min(1.0, 0.9 * float(self.units.budget[0]) / max(worst, 1e-9))
        return Step(Tally(state.episodes, state.tried, state.falls, share), used)


def most_falls(falls: float, tried: int, errors: float) -> float:
    """The share of falls at which so many lie so many standard errors below what is expected (Wilson 1927)."""
    if tried == 0:
        return 1.0
    mean, square = falls / tried, errors**2 / tried
    return (mean + square / 2 + math.sqrt(square * (mean * (1 - mean) + square / 4))) / (1 + square)


def make(policies: sf.PolicyValueSet, terms: Any, caution: float = 3.0) -> Spending:
    return Spending(policies, caution)


SPENDING = sf.MethodSpec(
    "spending", make, certified=False, why="nobody has proved it", options=("caution",), state=(Tally,)
)
PATH = [{"caution": errors} for errors in (4.0, 3.0, 2.0, 1.5, 1.0, 0.5, 0.0)]  # from cautious to bold

# ------------------------------------------------------------------------------------------ calibrated, then deployed


def calibrate(policies: sf.PolicyValueSet, runs: int, path: Any = PATH) -> sf.Calibration:
    """The boldest setting with few enough unsafe lakes, simulated and judged by fresh episodes."""
    given: dict[str, Any] = {"episodes": EPISODES, "risk": RISK, "judged_on": 4000, "seed": 1, "jobs": 1}
    found = sf.calibrate(policies, tasks(), method=SPENDING, path=path, runs=runs, **given)
    for (setting, unsafe), gain in zip(found.counts, found.gains or (), strict=True):
        print(f"  {setting['caution']:g} standard errors: {unsafe} lakes not shown safe, gain {gain:.2f} an episode")
    print(f"  {found.allowed} of {runs} are allowed: {found.level}")
    return found


def deploy(journal: Path, learner: sf.Learner, chance: float) -> float:
    """The loop beside the real lake, for which a simulated one stands in; returns the last share of the quick route."""
    lake, rng = tasks().task(chance), np.random.default_rng(3)
    with sf.Deployment.open(journal, learner) as deployment:
        for _ in range(EPISODES):
            order = deployment.ask()
            outcome = lake.episodes(order.policy, SYSTEM["horizon"]).run(1, rng)
            deployment.tell(order, reward=float(outcome.reward[0]), cost=float(outcome.cost[0, 0]))
    return order.deployed.weight


def main(folder: Path, runs: int = 200, path: Any = PATH, chance: float = 0.95) -> Verification:
    no_bounds = sf.Envelopes(cells=0, holdout=69, uncovered=0.09, episodes=160)  # the learner has no use for any
    policies = sf.policy_set(
        tasks(), safe=SAFE, candidates=CANDIDATES, seed=0, envelopes=no_bounds, signals=False, progress=False
    )
    found = calibrate(policies, runs, path)

    def learner() -> sf.Learner:
        return sf.learner(policies, method=SPENDING, risk=RISK, seed=2, calibration=found)

    share = deploy(folder / "lake.journal", learner(), chance)
    verdict = verify(folder / "lake.journal", learner())
    print(f"at last {100 * share:.0f} % of the episodes take the quick route; certified: {verdict.certified}")
    print(f"all {verdict.rows} rows of {verdict.episodes} episodes follow: {verdict.holds}")
    return verdict


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary))
