"""What must not change between versions: the policy sets that small trainings make, to the digest, for every kind of
value bounds; and with that, the random streams that training draws from."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from record import Bits, check
from test_goldens_tasks import carts, curved, lakes, layers, machines, tails

import surefoot as sf
from shown_wheel import shown_set
from wheel import wheel_set

SMALL = sf.Envelopes(cells=40, holdout=199, uncovered=0.05)


def facts(policies: sf.PolicyValueSet) -> dict[str, Any]:
    """What one may read of a policy set without knowing how it is made."""
    entries = policies.entries
    return {
        "digest": Bits(policies.digest()),
        "task_digest": policies.task_digest,
        "policies": len(policies),
        "names": policies.names,
        "accuracy": [policies.epsilon, policies.delta, policies.xi, policies.safe_risk],
        "parameters": np.array([entry.parameter for entry in entries]),
        "values": np.array([[each.reward, *each.margin, each.safe_reward, *each.safe_margin] for each in entries]),
        "recipe": policies.recipe,
        "training": policies.training,
        "may_end": policies.may_end,
        "advice": sf.advice(policies).as_dict(),
    }


def train(family: sf.tasks.TaskDistribution, **settings: Any) -> sf.PolicyValueSet:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sf.train(family, **{"epsilon": 0.02, "delta": 0.1, "seed": 3, "progress": False, **settings})


@cache
def gridworld_set() -> sf.PolicyValueSet:
    return train(sf.tasks.gridworld(), epsilon=0.004, delta=0.05, seed=0, cells=100)


@cache
def machine_set() -> sf.PolicyValueSet:
    return train(machines(), seed=0)


def controllers_on_carts() -> sf.PolicyValueSet:
    """Controllers of one's own in an environment, with signals learned from it."""
    safe, other = (sf.controller(lambda seen, level=level: [level], name=f"push {level}") for level in (0.25, 0.8))
    return sf.policy_set(
        carts(),
        safe=safe,
        candidates=[other],
        seed=2,
        envelopes=sf.Envelopes(cells=3, holdout=15, uncovered=0.4, episodes=10),
        signals=sf.LearnedSignals(tasks=8, episodes=2, windows=2),
        progress=False,
    )


SETS: dict[str, Callable[[], sf.PolicyValueSet]] = {
    "affine, one dimension": gridworld_set,
    "affine, two walls": lambda: train(sf.tasks.two_walls(), cells=30),
    "affine, factored": lambda: train(sf.tasks.factored(), cells=30),
    "affine, media": lambda: train(sf.tasks.media(), cells=30),
    "affine, inventory": lambda: train(sf.tasks.inventory(), cells=20, epsilon=0.05),
    "affine, two dimensions": lambda: train(sf.tasks.maintenance(), cells=49, epsilon=0.05, delta=0.2),
    "windy": lambda: train(sf.tasks.windy_gridworld(), cells=36, epsilon=0.06, delta=0.2),
    "finite": machine_set,
    "finite with a horizon": lambda: train(machines(6)),
    "sampled, held out": lambda: train(curved(), envelopes=SMALL),
    "second attempt": lambda: train(curved(), envelopes=sf.Envelopes(40, 399, 0.05, attempt=2)),
    "no cells": lambda: train(curved(), cells=0),
    "a margin asked for": lambda: train(machines(), xi=0.05),
    "Gymnasium table": lambda: train(lakes(sf.tasks.Finite([0.1, 0.2, 0.3]))),
    "cvar": lambda: train(tails(), epsilon=0.1),
    "layered": lambda: train(layers(), epsilon=0.05),
    "hard instances": lambda: train(sf.tasks.HardInstances(1).family(), epsilon=0.05),
    "simulated": wheel_set,
    "signals": shown_set,
    "signals of own features": lambda: shown_set(own=True),
    "Gymnasium environment": controllers_on_carts,
}
CASES = {name: (lambda made=made: facts(made())) for name, made in SETS.items()}


LONG = ("Gymnasium environment", "signals of own features", "second attempt")  # of kinds that have a shorter one


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.long] * (case in LONG)) for case in CASES])
def test_trainings_make_what_was_recorded(case: str) -> None:
    check("trainings", case, CASES[case])
