"""What must not change between versions: what every method deploys in a simulated run, and what it says on the way."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from record import check
from test_goldens_tasks import carts, machine, machines, tails
from test_goldens_trainings import gridworld_set, machine_set, train

import surefoot as sf
from shown_wheel import ShownWheel, shown_set
from wheel import Wheel, wheel_set

HERE = Path(__file__).parent
RISK = 0.3  # more than what is not covered of any family here
SIGNALS = "certified-signals"
# JAX compiles the first for long; the others plan anew after every episode, in one preset as in the other.
LONG = (*(f"{name} with networks" for name in sf.CONTROL_METHODS), "optpess-lp-published on a gridworld")


def facts(run: sf.Run) -> dict[str, Any]:
    return {
        "method": run.method,
        "certified": run.certified,
        "optimal_reward": run.optimal_reward,
        "regret": run.regret,
        "margin": run.margin,
        "reward": run.reward,
        "weight": run.weight,
        "error": run.error,
        "events": [[event.kind, event.episode, event.message] for event in run.events],
        "risk_split": run.risk_split,
        "settings": run.settings,
        "output": run.output.weights,
    }


def adapt(policies: sf.PolicyValueSet, task: Any, method: str, episodes: int, **options: Any) -> dict[str, Any]:
    given = {"risk": RISK, "seed": 4, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return facts(sf.adapt(policies, task, method=method, episodes=episodes, **given))


def on_gridworld(method: str, episodes: int = 1500, **options: Any) -> dict[str, Any]:
    return adapt(gridworld_set(), sf.tasks.gridworld().task([0.3]), method, episodes, **options)


def on_machines(method: str, episodes: int = 800, **options: Any) -> dict[str, Any]:
    return adapt(machine_set(), machine(0.1), method, episodes, **options)


def on_wheel(method: str) -> dict[str, Any]:
    if method == SIGNALS:
        return adapt(shown_set(), ShownWheel(0.25), method, 60, judged_on=200)
    return adapt(wheel_set(), Wheel(0.25), method, 60, judged_on=200, optimal_reward=3.0)


def on_carts(method: str, **options: Any) -> dict[str, Any]:
    """Of those that learn networks: two batches of the simplest robot, and what they have become by then."""
    policies = sf.PolicyValueSet.load(HERE / "networks.policyset")
    return adapt(policies, carts().task([0.8]), method, 24, judged_on=16, **options)


def on_tails(method: str) -> dict[str, Any]:
    return adapt(train(tails(), epsilon=0.1), tails().task(1.0), method, 300, risk=0.4)


TABLES = [name for name in sf.METHODS if name != SIGNALS]
CASES = {
    **{f"{name} on a gridworld": partial(on_gridworld, name) for name in TABLES},
    **{f"{name} on a machine": partial(on_machines, name) for name in TABLES},
    **{f"{name} on a simulator": partial(on_wheel, name) for name in (SIGNALS, "certified-returns", "safe-only")},
    **{f"{name} with networks": partial(on_carts, name, batch=8) for name in sf.CONTROL_METHODS},
    "certified-returns with networks": partial(on_carts, "certified-returns"),
    "certified on tails": partial(on_tails, "certified"),
    "certified-returns, shifted": partial(on_machines, "certified-returns", shift=0.001),
    "certified-ball, shifted": partial(on_machines, "certified-ball", shift=0.001),
}


def plan(policies: sf.PolicyValueSet) -> list[list[Any]]:
    lines = sf.plan(policies, episodes=2000, risk=RISK)
    return [[line.method, line.certified, line.episodes, line.reason] for line in lines]


def calibration() -> dict[str, Any]:
    found = sf.calibrate(
        machine_set(),
        machines(),
        method="certified-returns",
        episodes=60,
        risk=0.4,
        levels=(0.5, 0.6),
        runs=12,
        seed=3,
        jobs=1,
    )
    return found.plain()


CASES |= {"plan on machines": lambda: plan(machine_set()), "calibrate": calibration}


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.long] * (case in LONG)) for case in CASES])
def test_methods_do_what_was_recorded(case: str) -> None:
    check("methods", case, CASES[case])
