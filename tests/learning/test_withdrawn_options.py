"""Options that are no longer offered: refused where they are used, harmless where a record names them unused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from guarantees import mutants
from surefoot.errors import InvalidInput
from surefoot.learning.learner import Learner
from surefoot.learning.spec import WITHDRAWN, drop_withdrawn
from surefoot.policyset.policy_value_set import PolicyValueSet

USED = {"by_prior": True, "pairs": True, "declared": 60}


@cache
def rooms() -> PolicyValueSet:
    return mutants.rooms_policies()


@pytest.mark.short_for(name=["pairs"])
@pytest.mark.parametrize(("name", "value"), USED.items())
def test_they_are_refused_also_in_a_calibration(name: str, value: Any) -> None:
    """What names one and did not use it is as good as ever."""
    gone = f"^{name} is no longer offered, got {value}; leave it out$"
    with pytest.raises(InvalidInput, match=gone):
        sf.learner(rooms(), method="certified-returns", risk=0.5, **{name: value})
    named = {"method": "certified-returns", "episodes": 60, "risk": 0.3, "levels": [0.4], "runs": 10, "seed": 1}
    with pytest.raises(InvalidInput, match=gone):
        sf.calibrate(rooms(), mutants.rooms(), **named, jobs=1, **{name: value})
    found = sf.calibrate(rooms(), mutants.rooms(), **named, jobs=1)
    for said, options in (("plain", {}), ("named", {name: WITHDRAWN[name]})):
        stored = replace(found, options=options, standing="claimed")
        made = sf.learner(rooms(), method="certified-returns", risk=0.3, calibration=stored)
        again = sf.learner(rooms(), **made.settings)
        assert again.settings == made.settings, said
    with pytest.raises(InvalidInput, match=gone):
        replace(found, options={name: value})


@pytest.mark.parametrize("name", USED)
def test_a_journal_that_names_one_without_using_it_goes_on(tmp_path: Path, name: str) -> None:
    task, unused = mutants.rooms().task([0.07]), WITHDRAWN[name]

    def made() -> Learner:
        return sf.learner(rooms(), method="certified-returns", risk=0.3, **{name: unused})

    for _ in range(2):
        with sf.Deployment.open(tmp_path / "run.journal", made()) as deployment:
            for number in range(12):
                order = deployment.ask()
                steps = deployment.learner.horizon
                rng = np.random.default_rng([order.episode, number])
                told = task.episodes(order.policy, steps).run(1, rng, transitions=True)
                assert told.states is not None
                first = int(told.states[0, 0])
                deployment.tell(order, reward=told.reward[0], cost=told.cost[0], first_state=first)
            head = deployment.status()
    assert head.episodes == 24
    assert head.settings[name] is unused
    assert made().settings[name] is unused


def test_a_method_of_ones_own_may_take_the_name() -> None:
    assert drop_withdrawn({"by_prior": 3, "shift": 5}, takes=("by_prior",)) == {"by_prior": 3, "shift": 5}
    assert drop_withdrawn({"by_prior": False, "shift": 5}) == {"shift": 5}


def test_a_calibration_brings_its_options() -> None:
    found = sf.calibrate(
        rooms(),
        mutants.rooms(),
        method="certified-likelihood",
        episodes=60,
        risk=0.3,
        error=0.1,
        levels=[0.4],
        runs=40,
        seed=1,
        jobs=1,
        optimistic=True,
    )
    assert found.level == 0.4
    made = sf.learner(rooms(), method="certified-likelihood", risk=0.3, calibration=found)
    assert made.method.method.optimistic
    with pytest.raises(InvalidInput, match="calibration must be for optimistic False, got one for True"):
        sf.learner(rooms(), method="certified-likelihood", risk=0.3, calibration=found, optimistic=False)
