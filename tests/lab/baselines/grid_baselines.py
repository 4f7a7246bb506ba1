"""One small policy set of the gridworld, and the contract of methods that run a batch of episodes and then move on."""

from __future__ import annotations

import warnings
from functools import cache

from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.testing import learner_suite as suite
from surefoot.training.train import train


@cache
def grid_policies() -> PolicyValueSet:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return train(gridworld(), epsilon=0.02, delta=0.1, seed=0, progress=False, cells=20)


@cache
def grid_world(setting: str) -> suite.EpisodeSource:
    """One world for each setting, since a world keeps the episodes of policy number k, whoever asks."""
    return suite.EpisodeSource(gridworld().task([0.31]), 60, 700)


def check_contract(make: suite.Make, world: suite.EpisodeSource, episodes: int = 130) -> None:
    """But for blocks, which have a test of their own."""
    suite.asking_changes_nothing(make, world, episodes)
    suite.orders_are_told_once_and_in_turn(make, world, episodes)
    suite.malformed_outcomes_are_refused(make, world, episodes)
    suite.deploys_mixtures_of_its_policies(make, world, episodes)
    suite.replaying_gives_the_same_story(make, world, episodes)
    suite.leaving_the_range_voids_the_certificate(make, world, episodes)
    suite.rounding_voids_nothing(make, world)
    suite.a_breach_falls_alike_in_blocks(make, world, episodes)
    suite.draws_follow_the_weights(make, world, 1)


def check_abandoned(make: suite.Make, batch: int) -> None:
    """An abandoned episode is as if it had not been run: one more completes the batch."""
    world, learner = grid_world(f"abandoned {make().name}"), make()
    suite.tell_in_blocks(learner, world, batch - 1, [batch])
    before = suite.fingerprint(learner.state.method)
    learner.abandon(learner.ask())
    assert suite.fingerprint(learner.state.method) == before
    assert learner.state.episode == batch
    assert learner.certificate().margin is None
    suite.tell_in_blocks(learner, world, 1, [1])
    assert learner.deployed.indices.tolist() == [2]
