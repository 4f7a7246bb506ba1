"""Random streams: each has a number of its own, but for those known to share one."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from surefoot.streams import Stream

# Numbers that were given twice before there was a table. No promise rests on their independence, so they stay, and with
# them every result. Two experiments never meet; an experiment and the training that it starts with its own seed do.
SHARED = {
    1: "PROMISE_FAMILY_TASKS GRIDWORLD_TASKS FAMILIES_TASKS GLUCOSE_PATIENTS LOCOMOTION_TASKS SUITE_WORLD_EPISODES "
    "SUITE_ORACLE_EPISODES",
    2: "HELD_OUT_TASKS PROMISE_FAMILY_RUNS GRIDWORLD_FRESH_TASKS GLUCOSE_RUNS LOCOMOTION_LEARNING SUITE_WORLD_ACTIONS",
    3: "SAFE_POLICY_TASKS PROMISE_GRIDWORLD_TASKS LOCOMOTION_EVALUATION",
    4: "SIMULATED_EVERY_TASK PROMISE_GRIDWORLD_RUNS LOCOMOTION_EXPERT",
    5: "SIMULATED_SAMPLE GRIDWORLD_FRESH_RUNS SHIFT_RUNS",
    6: "SIMULATED_HELD_OUT SHIFT_NEAR_TASKS",
    7: "SIMULATED_SAFE_POLICY SHIFT_NEAR_RUNS GLUCOSE_EVALUATION",
    8: "TRIED_TASKS SHIFT_FRESH_TASKS GLUCOSE_INFORMATION",
    11: "SIGNAL_TASKS SIGNAL_FIRST_EPISODE SIGNAL_FEATURE_EPISODES",
    31: "CALIBRATION_TASKS TAIL_TASKS",
}


def test_no_two_streams_are_alike_but_those_that_always_were() -> None:
    by_number = defaultdict(set)
    for name, stream in Stream.__members__.items():
        by_number[int(stream)].add(name)
    found = {number: names for number, names in by_number.items() if len(names) > 1}
    assert found == {number: set(names.split()) for number, names in SHARED.items()}


def test_streams_are_those_of_a_list_of_numbers() -> None:
    assert _same(Stream.TRIED_TASKS.rng(7), np.random.default_rng([7, 8]))
    assert _same(Stream.HELD_OUT_TASKS.rng(7, 1), np.random.default_rng([7, 2, 1]))
    assert Stream.SHIFT_RUNS.seed(7, 3) == np.random.SeedSequence([7, 5, 3]).generate_state(1)[0]


def test_numpy_pads_entropy_but_not_the_key_of_a_child() -> None:
    assert _same(np.random.default_rng([7, 11]), np.random.default_rng([7, 11, 0]))
    assert not _same(_child(7, 11), _child(7, 11, 0))
    assert not _same(_child(7, 11), np.random.default_rng([7, 11]))


def _child(seed: int, *key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def _same(one: np.random.Generator, other: np.random.Generator) -> bool:
    return one.integers(2**63) == other.integers(2**63)
