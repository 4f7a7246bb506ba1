"""The random streams that share a seed, each with a number of its own.

Everything that a user starts with one seed draws from several streams, so that asking for more tasks here does not
change the episodes there. Their numbers are fixed: another number would change every result.

NumPy pads short entropy with zeros: `default_rng([seed, k])` and `default_rng([seed, k, 0])` are the same stream. A new
stream therefore takes a number that is not in this table and `SeedSequence(seed, spawn_key=(stream, k))`, which does
not pad. `calibration` and `simulate.runner`, whose seeds are their own, have always done so.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """The second number of the entropy. Names with equal values are one stream if they share a seed; see the tests."""

    # training: `train`, `policy_set`, `affine`
    HELD_OUT_TASKS = 2
    SAFE_POLICY_TASKS = 3
    SIMULATED_EVERY_TASK = 4
    SIMULATED_SAMPLE = 5
    SIMULATED_HELD_OUT = 6
    SIMULATED_SAFE_POLICY = 7
    TRIED_TASKS = 8
    TRIED_EPISODES = 9
    GIVEN_POLICY_EPISODES = 10
    SIGNAL_TASKS = 11
    SIGNAL_FIRST_EPISODE = 11
    SIGNAL_FEATURE_EPISODES = 11
    SIGNAL_EPISODES = 12
    AFFINE_TASKS = 13
    KEPT_TASKS = 41
    KEPT_EPISODES = 42

    # experiments of the laboratory, which hand their seed on to training
    PROMISE_FAMILIES = 0
    PROMISE_FAMILY_TASKS = 1
    PROMISE_FAMILY_RUNS = 2
    PROMISE_GRIDWORLD_TASKS = 3
    PROMISE_GRIDWORLD_RUNS = 4
    GRIDWORLD_TASKS = 1
    GRIDWORLD_FRESH_TASKS = 2
    GRIDWORLD_FRESH_RUNS = 5
    FAMILIES_TASKS = 1
    SHIFT_RUNS = 5
    SHIFT_NEAR_TASKS = 6
    SHIFT_NEAR_RUNS = 7
    SHIFT_FRESH_TASKS = 8
    GLUCOSE_PATIENTS = 1
    GLUCOSE_RUNS = 2
    GLUCOSE_EVALUATION = 7
    GLUCOSE_INFORMATION = 8
    LOCOMOTION_TASKS = 1
    LOCOMOTION_LEARNING = 2
    LOCOMOTION_EVALUATION = 3
    LOCOMOTION_EXPERT = 4
    LOCOMOTION_VALIDATION = 49
    LOCOMOTION_SHARED_LEARNING = 51
    LOCOMOTION_SHARED_EVALUATION = 52
    LOCOMOTION_SHARED_CHOICE = 53
    COVERING_SAMPLE = 21
    COVERING_COVER = 22
    CALIBRATION_TASKS = 31
    CALIBRATION_RUNS = 32
    TAIL_TASKS = 31
    RIVALS_TASKS = 33
    RIVALS_RUNS = 34
    RIVALS_EVALUATION = 35
    WATER_TOWNS = 43
    WATER_RUNS = 44
    WATER_EVALUATION = 45
    BUILDINGS_TASKS = 46
    BUILDINGS_RUNS = 47
    BUILDINGS_EVALUATION = 48

    # suites for authors of worlds and oracles
    SUITE_WORLD_EPISODES = 1
    SUITE_WORLD_ACTIONS = 2
    SUITE_ORACLE_EPISODES = 1

    def rng(self, seed: int, *numbers: int) -> np.random.Generator:
        """The generator of this stream, or of a part of it, such as that of one task."""
        return np.random.default_rng([seed, self, *numbers])

    def seed(self, seed: int, *numbers: int) -> int:
        """A seed for something that takes one, such as a simulated run."""
        return int(np.random.SeedSequence([seed, self, *numbers]).generate_state(1)[0])
