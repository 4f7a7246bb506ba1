"""A policy that remembers: what it is shown, and that it acts alike wherever and beside whomever its episodes run."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from bandit_world import BanditWorld
from surefoot.arrays import Floats, Integers, Mask
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.task import run_policies
from surefoot.cmdp.units import Units
from surefoot.cmdp.world import Shapes, World
from surefoot.control.mlp_policy import CategoricalPolicy, MLPPolicy
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.history_policy import LENGTH, HistoryPolicy, HistoryWorld
from surefoot.lab.robots import task as robots
from surefoot.simulate.pool import EpisodeStream
from surefoot.tasks.lane_world import LaneWorld
from surefoot.testing import world_suite

SHORT = 3  # steps of the histories here
HORIZON = 30  # steps that episodes last at most


@cache
def hopper() -> Any:
    return sf.tasks.hopper_motors().task(1.1)


def lanes(count: int) -> World:
    """Its world, with episodes as short as here."""
    return robots.LocomotionWorld(hopper().system, np.full((count, 1), 1.1), HORIZON)


@cache
def network() -> MLPPolicy:
    """Some policy for a Hopper, with which it falls after 13 to 20 steps."""
    rng = np.random.default_rng(3)
    weights, biases = [[0.03 * rng.normal(size=size) for size in sizes] for sizes in (((8, 11), (3, 8)), (8, 3))]
    return MLPPolicy(tuple(weights), tuple(biases), np.full(3, -0.5), np.zeros(11), np.ones(11))


def remembering() -> HistoryPolicy:
    """One that goes by its history."""
    policy = HistoryPolicy.looking_away(network(), SHORT)
    first, last = policy.network.weights
    some = 0.4 * np.cos(np.arange(first.size)).reshape(first.shape)
    return replace(policy, network=replace(policy.network, weights=(first + some, last)))


def outcomes(policy: Any, episodes: int = 5, seed: int = 0) -> Outcomes:
    return hopper().episodes(policy, HORIZON).run(episodes, np.random.default_rng(seed), transitions=True)


def same(one: Outcomes, other: Outcomes) -> bool:
    return np.array_equal(one.sums, other.sums) and np.array_equal(
        one.watched().observations, other.watched().observations
    )


# ----------------------------------------------------------------------------------------------------- what it is shown


def test_a_world_shows_the_last_steps_of_each_episode_and_none_of_another() -> None:
    """The newest first; at the beginning as if the robot had stood there with its motors at rest."""
    rng, shown = np.random.default_rng(0), HistoryWorld(hopper().world(2), SHORT)
    assert shown.shapes == Shapes(11 + SHORT * (11 + 3), 3, False)
    start = shown.begin(np.ones(2, np.bool_), rng)
    seen, done = [start[:, :11]] * (SHORT + 1), [np.zeros((2, 3))] * SHORT
    for t in range(8):
        if t == 5:  # the second lane is told to begin again
            start = shown.begin(np.array([False, True]), rng)
            for k in range(SHORT + 1):
                seen[k] = np.vstack([seen[k][0], start[1, :11]])
            done = [np.vstack([each[0], np.zeros(3)]) for each in done]
            assert np.array_equal(start, _beside(seen, done))
        wanted = rng.normal(size=(2, 3))
        found = shown.step(wanted).observation
        seen, done = [found[:, :11], *seen[:SHORT]], [wanted.clip(-1, 1), *done[: SHORT - 1]]
        assert np.array_equal(found, _beside(seen, done))


def _beside(seen: Sequence[Floats], done: Sequence[Floats]) -> Floats:
    pairs = [part for pair in zip(seen[1:], done, strict=True) for part in pair]
    return np.hstack([seen[0], *pairs])


def test_worlds_with_a_history_keep_the_contract() -> None:
    world_suite.check(lambda: HistoryWorld(BanditWorld(np.array([0.5, 1.0, 2.0])), SHORT))


def test_it_begins_as_the_policy_that_remembers_nothing() -> None:
    """But for the order in which a product is summed up."""
    rng, policy = np.random.default_rng(1), HistoryPolicy.looking_away(network())
    assert policy.length == LENGTH
    for t in range(2 * LENGTH):
        seen = rng.normal(size=(4, 11))
        one, other = (each.act(seen, t, np.random.default_rng(t)) for each in (policy, network()))
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    assert outcomes(policy).sums == pytest.approx(outcomes(network()).sums, abs=1e-6)


# ------------------------------------------------------------------------------------------------- wherever it is run


def on_its_world(policy: HistoryPolicy, sizes: Sequence[int], rng: np.random.Generator) -> Floats:
    """[n, 2] sums of episodes of its network on the world that shows the history, so many side by side in turn."""
    acting, found = np.random.default_rng(rng.integers(2**63, size=2)), []
    for size in sizes:
        world = HistoryWorld(lanes(size), SHORT)
        observation, ended = world.begin(np.ones(size, np.bool_), rng), np.zeros(size, np.bool_)
        for t in range(HORIZON):
            if not ended.all():
                observation, _, _, sums, _, ended = world.step(policy.network.act(observation, t, acting))
        found.append(sums)
    return np.concatenate(found)


def test_it_earns_what_its_network_does_on_the_world_with_a_history(monkeypatch: pytest.MonkeyPatch) -> None:
    assert np.array_equal(outcomes(remembering()).sums, on_its_world(remembering(), [5], np.random.default_rng(0)))
    monkeypatch.setattr(robots, "LANES", 3)
    assert np.array_equal(outcomes(remembering()).sums, on_its_world(remembering(), [3, 2], np.random.default_rng(0)))
    assert not np.allclose(outcomes(remembering()).sums, outcomes(network()).sums)


def test_its_episodes_do_not_depend_on_those_before_and_beside() -> None:
    policy, task = remembering(), hopper()
    alone = outcomes(policy)
    assert len(set(alone.watched().steps.tolist())) > 1  # some episodes end before others
    assert same(alone, outcomes(policy))
    assert not same(alone, outcomes(policy, seed=1))
    assert same(alone, outcomes(HistoryPolicy.from_arrays(policy.to_arrays())))
    assert same(alone, outcomes(pickle.loads(pickle.dumps(policy))))
    others = [network(), policy, pickle.loads(pickle.dumps(policy))]
    playing = [task.episodes(each, HORIZON) for each in others]
    beside = playing[0].run_beside(playing[1:], 5, [np.random.default_rng(seed) for seed in (4, 0, 1)], True)
    assert same(beside[1], alone)
    assert same(beside[2], outcomes(policy, seed=1))
    with pytest.raises(InvalidInput, match="another copy of this policy"):
        run_policies(task, [policy, policy], 2, [np.random.default_rng(0)] * 2)


def test_chunks_of_a_stream_remember_nothing_of_each_other() -> None:
    policy = remembering()
    playing = hopper().episodes(policy, HORIZON)
    stream = EpisodeStream(playing, np.random.default_rng(0), [3, 2])
    outcomes(policy, 7)
    rng = np.random.default_rng(0)
    fresh = [hopper().episodes(remembering(), HORIZON).run(size, rng, transitions=True) for size in (3, 2)]
    assert same(stream.episodes(0, 5), Outcomes.joined(fresh))


def test_lanes_that_begin_at_different_times_go_on_by_themselves() -> None:
    """As training collects steps: batch after batch, each lane at a step of its own."""
    collecting = pytest.importorskip("surefoot.control.improvement").Collector
    policy = remembering()
    plain, shown = (collecting(each, np.random.default_rng(0)) for each in (lanes(4), HistoryWorld(lanes(4), SHORT)))
    for _ in range(2):
        one, other = plain.collect(policy, HORIZON + 7), shown.collect(policy.network, HORIZON + 7)
        assert np.array_equal(one.actions, other.actions)
        assert np.array_equal(one.observations, other.observations[..., :11])
        assert np.array_equal(one.sums, other.sums)
    assert len(set(plain.steps.tolist())) > 1


def test_a_copy_goes_on_where_it_was_made() -> None:
    rng, policy = np.random.default_rng(0), remembering()
    for t in range(4):
        policy.act(rng.normal(size=11), t, rng)  # one robot alone
    copy, seen = pickle.loads(pickle.dumps(policy)), rng.normal(size=11)
    one, other = (each.act(seen, 4, np.random.default_rng(1)) for each in (policy, copy))
    assert one.shape == (3,)
    assert np.array_equal(one, other)


def test_what_it_cannot_do_is_refused() -> None:
    rng, policy = np.random.default_rng(0), remembering()
    with pytest.raises(InvalidInput, match=r"observation must have shape \[n, 11\], got \[2, 12\]"):
        policy.act(np.zeros((2, 12)), 0, rng)
    with pytest.raises(InvalidInput, match="step must be the next of each episode"):
        policy.act(np.zeros((2, 11)), 1, rng)
    policy.act(np.zeros((2, 11)), 0, rng)
    for count, step in ((2, 2), (3, 1), (2, [0, 2])):
        with pytest.raises(InvalidInput, match="step must be the next of each episode"):
            policy.act(np.zeros((count, 11)), np.array(step), rng)
    with pytest.raises(InvalidInput, match="length must be that of the network's history"):
        replace(policy, length=SHORT + 1)
    choice = CategoricalPolicy((np.ones((2, 11)),), (np.zeros(2),), np.zeros(11), np.ones(11))
    with pytest.raises(InvalidInput, match="policy must be a network with normal actions"):
        HistoryPolicy.looking_away(choice)


# ------------------------------------------------------------------------------------------------ what memory is for


class Flashing(LaneWorld):
    """Which way a lane must go, +1 or -1, is shown at every third of ten steps, and 0 at the others. Each step earns
    way·action."""

    def __init__(self, ways: Floats) -> None:
        super().__init__(len(ways), Shapes(1, 1, False), Units(1.0, (-1.0, 1.0), (0.0, 1.0), 5.0, 10), 10)
        self._ways = ways

    def _reset(self, lanes: Integers, seeds: Integers) -> None:
        pass

    def _move(self, lanes: Integers, actions: Any, time: Integers) -> tuple[Floats, Floats, Mask]:
        paid = np.column_stack([self._ways[lanes] * actions[:, 0].clip(-1.0, 1.0), np.zeros(len(lanes))])
        return paid, self._sums[lanes] + paid, np.zeros(len(lanes), np.bool_)

    def _observations(self) -> Floats:
        return np.where(self._time % 3 == 0, self._ways, 0.0)[:, None]


@pytest.mark.long
def test_who_remembers_does_what_was_told_some_steps_before() -> None:
    """Without a memory four of ten steps are the most that both ways can have."""
    improvement = pytest.importorskip("surefoot.control.improvement")
    cpo = pytest.importorskip("surefoot.control.cpo")
    networks = pytest.importorskip("surefoot.control.networks")
    ways, rng = np.repeat([1.0, -1.0], 10), np.random.default_rng(0)
    settings, words = improvement.Settings(steps=20_000, batch=1_000), {"groups": np.repeat([0, 1], 10).tolist()}
    blank = networks.numpy_policy(networks.new_actor(Shapes(1, 1, False), (16,), rng), networks.Normaliser.new(1))
    first, least = HistoryPolicy.looking_away(blank, 2), []
    for start, world in ((blank, Flashing(ways)), (first.network, HistoryWorld(Flashing(ways), 2))):
        begun = improvement.resume(start, world, settings, rng)
        found: Any = improvement.improve(world, cpo.crpo(), settings=settings, rng=rng, start=begun, **words).policy
        policy = found if start is blank else replace(first, network=found)
        batch = improvement.Collector(Flashing(ways), rng).collect(policy, 100)
        least.append(min(batch.sums[ways[batch.lane] == way, 0].mean() for way in (1.0, -1.0)))
    assert least[0] < 4.5
    assert least[1] > 7.0
