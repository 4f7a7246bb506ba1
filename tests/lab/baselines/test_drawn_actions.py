"""Networks learn from actions as they were drawn, not as they were executed: what is told of them, and that nothing is
lost of it in simulators, learners, journals and the protocol."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

import pendulum
import surefoot as sf
from contracts.made_up import made_up_set
from surefoot.arrays import Floats
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.control.improvement import Collector
from surefoot.control.mlp_policy import MLPPolicy, normalise
from surefoot.control.networks import actor_of, log_probability
from surefoot.control.trust_region import slope
from surefoot.deploy import protocol
from surefoot.deploy.chain import read
from surefoot.deploy.outcomes import record
from surefoot.deploy.session import Deployment
from surefoot.deploy.verify import verify
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.advantages import samples_of
from surefoot.lab.baselines.rollout_buffer import RolloutBuffer
from surefoot.learning.learner import Learner
from surefoot.simulate.pool import EpisodeStream
from surefoot.testing import task_suite

STEPS = 100  # of a pendulum


def steady(observations: int, actions: int, level: float, noise: float) -> MLPPolicy:
    """Normal actions around a level at the edge of a box, hardly depending on what is seen."""
    weights = 0.01 * np.random.default_rng(0).normal(size=(actions, observations))
    log_std, sizes = np.full(actions, np.log(noise)), np.ones(observations)
    return MLPPolicy((weights,), (np.full(actions, level),), log_std, np.zeros(observations), sizes)


def pendulums(side_by_side: bool = True) -> Any:
    system = pendulum.SYSTEM if side_by_side else {**pendulum.SYSTEM, "make_vector": None}
    return sf.tasks.from_gym(pendulum.make_env, pendulum.LENGTHS, **system).task(1.0)


PUSHING = steady(3, 1, 1.8, 0.5)
SYSTEMS: dict[str, Any] = {
    "robot": lambda: (sf.tasks.half_cheetah_velocity().task(1.0), steady(17, 6, 0.95, 0.1)),
    "robot with a battery": lambda: (sf.tasks.half_cheetah_motors().task(1.0), steady(17, 6, 0.95, 0.1)),
    "environment": lambda: (pendulums(side_by_side=False), PUSHING),
    "environments side by side": lambda: (pendulums(), PUSHING),
}


@cache
def simulated(name: str, episodes: int = 12) -> tuple[Any, MLPPolicy, Outcomes]:
    task, policy = SYSTEMS[name]()
    ran = task.episodes(policy, task.units.episode_length).run(episodes, np.random.default_rng(2), transitions=True)
    return task, policy, ran


def residuals(policy: MLPPolicy, observed: Observed, actions: Floats) -> Floats:
    """Of all actions that were taken, in standard deviations."""
    apart = (actions - policy.mean(observed.observations[:, :-1])) / np.exp(policy.log_std)
    found: Floats = apart[np.arange(apart.shape[1]) < observed.steps[:, None]].ravel()
    return found


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_was_drawn_is_normal_around_the_mean_and_what_was_executed_is_not(name: str) -> None:
    _, policy, ran = simulated(name)
    observed: Any = ran.observed
    drawn, executed = (residuals(policy, observed, each) for each in (observed.drawn, observed.actions))
    assert np.mean(drawn**2) == pytest.approx(1, abs=5 * np.sqrt(2 / len(drawn)))
    assert stats.kstest(drawn, "norm").pvalue > 1e-6
    assert stats.kstest(executed, "norm").pvalue < 1e-6
    edge, as_executed = 2.0 if "environment" in name else 1.0, observed.drawn.astype(observed.actions.dtype)
    assert (observed.actions != as_executed).mean() > 0.1
    assert "battery" in name or np.array_equal(observed.actions, as_executed.clip(-edge, edge))


def test_buffers_hold_what_was_drawn_and_its_likelihood_is_that_of_the_noise() -> None:
    """The log-probabilities that ratios are of: in the mean the negative entropy of the noise."""
    task, policy, ran = simulated("environments side by side")
    observed: Any = ran.observed
    flat = RolloutBuffer.empty(policy, task.units).add(ran)
    assert np.array_equal(flat.actions, np.concatenate(observed.drawn))
    inputs, actor = normalise(policy, np.concatenate(observed.observations[:, :-1])), actor_of(policy)
    found = np.asarray(log_probability(actor, inputs, flat.actions.astype(np.float32)))  # type: ignore[arg-type]
    entropy = np.sum(policy.log_std + 0.5 * np.log(2 * np.pi * np.e))
    assert found.mean() == pytest.approx(-entropy, abs=5 * np.sqrt(0.5 * flat.actions.shape[1] / len(found)))


@dataclass(frozen=True)
class DrawingFrom:
    """A policy that draws from a generator of its own."""

    policy: MLPPolicy
    own: np.random.Generator
    kind: ClassVar[str] = "drawing from its own"

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
        return self.policy.act(observation, step, self.own)

    def to_arrays(self) -> dict[str, Any]:
        return self.policy.to_arrays()


def test_the_gradient_is_the_one_of_actions_as_they_are_collected_in_training() -> None:
    """The same episodes, once as they are told at test time and once by the loop that trains; clipped ones would give
    another gradient."""
    task, policy, ran = simulated("robot")
    n, steps, observed = len(ran), task.units.episode_length, ran.observed
    assert observed is not None
    rng = np.random.default_rng(2)
    acting = np.random.default_rng(rng.integers(2**63, size=2))
    batch = Collector(task.world(n), rng).collect(DrawingFrom(policy, acting), steps)
    flat, actor = RolloutBuffer.empty(policy, task.units).add(ran), actor_of(policy)
    seen, done, paid = (
        np.concatenate(np.swapaxes(each, 0, 1)) for each in (batch.observations, batch.actions, batch.paid)
    )
    inputs = normalise(policy, seen)
    assert np.array_equal(flat.paid, paid)

    def gradient(actions: Any) -> Floats:
        samples = samples_of(actor, inputs, actions, flat.paid, np.zeros(1))
        return np.asarray(slope(actor, samples.inputs, samples.actions, samples.advantages[:, 0]), np.float64)

    told, collected, clipped = map(gradient, (flat.actions, done, np.concatenate(observed.actions)))
    np.testing.assert_allclose(told, collected, rtol=1e-6)
    assert clipped @ told < 0.95 * np.linalg.norm(clipped) * np.linalg.norm(told)


@pytest.mark.parametrize("name", SYSTEMS)
def test_episodes_keep_the_contract_of_tasks(name: str) -> None:
    task, policy, _ = simulated(name)
    task_suite.episodes_stay_in_range(lambda: task, policy, episodes=4)


def test_nothing_is_told_twice_where_nothing_was_moved() -> None:
    calm = steady(3, 1, 0.0, 0.05)
    for task in (pendulums(), pendulums(side_by_side=False)):
        ran = task.episodes(calm, STEPS).run(3, np.random.default_rng(0), transitions=True)
        assert ran.watched().drawn is None
        assert ran.watched().actions.dtype == np.float32


# ------------------------------------------------------------------------------------------ learners and their journals


def policies() -> Any:
    return made_up_set(pendulums().units, [(0.5, [0.1], 0.3, [0.5])], epsilon=0.01, policies=[PUSHING, PUSHING])  # type: ignore[list-item]


def fresh(batch: int = 40) -> Learner:
    return sf.learner(policies(), method="cpo-online", risk=0.3, seed=5, batch=batch)


def as_told(ran: Outcomes, k: int, *, drawn: bool = True) -> dict[str, Any]:
    """An episode as `Deployment.tell` takes it."""
    seen: Any = ran.observed
    n = int(seen.steps[k])
    told = {
        "observations": seen.observations[k, : n + 1].tolist(),
        "actions": seen.actions[k, :n].tolist(),
        "rewards": seen.paid[k, :n, 0].tolist(),
        "costs": seen.paid[k, :n, 1:].tolist(),
    }
    return {**told, "drawn": seen.drawn[k, :n].tolist()} if drawn else told


def drive(path: Path, episodes: int, *, drawn: bool = True, lines: bool = False, batch: int = 40) -> str:
    """In Python or as a controller in another language, in as many sessions as there are episodes; the last hash."""
    _, _, ran = simulated("environments side by side")
    for k in range(episodes):
        with Deployment.open(path, fresh(batch)) as deployment:
            order, told = deployment.ask(), as_told(ran, k, drawn=drawn)
            if lines:
                line = json.dumps({"do": "tell", "episode": order.episode, **told}).encode()
                assert protocol.answer(deployment, line)["ok"]
            else:
                deployment.tell(order, **told)
            head = deployment.head()
    return head


def told_actions(path: Path) -> Any:
    with Deployment.open(path, fresh()) as deployment:
        return deployment.learner.state.method.seen.actions


def test_learners_of_simulations_are_told_what_was_drawn() -> None:
    """Also where the stream joins episodes of which some were moved and some were not."""
    task, _, _ = simulated("environments side by side")
    mixed = steady(3, 1, 0.7, 0.5)
    stream = EpisodeStream(task.episodes(mixed, STEPS), np.random.default_rng(1), iter([1] * 9))
    ran = stream.episodes(0, 9)
    seen = ran.watched()
    assert seen.drawn is not None
    moved = (seen.drawn.astype(np.float32) != seen.actions).any(axis=(1, 2))
    assert 0 < moved.sum() < 9
    learner = fresh()
    learner.tell_block(learner.ask_block(9), ran)
    assert np.array_equal(learner.state.method.seen.actions, np.concatenate(seen.drawn))


def test_journals_and_the_protocol_hold_what_was_drawn(tmp_path: Path) -> None:
    head = drive(tmp_path / "python", 4)
    assert drive(tmp_path / "lines", 4, lines=True) == head
    _, _, ran = simulated("environments side by side")
    observed: Any = ran.observed
    assert np.array_equal(told_actions(tmp_path / "lines"), np.concatenate(observed.drawn[:4]))
    verdict = verify(tmp_path / "lines", fresh())
    assert verdict.holds, verdict.reason
    assert verdict.head == head


def test_journals_without_it_are_written_and_replayed_as_ever(tmp_path: Path) -> None:
    """Then actions as they were executed are all that is known."""
    drive(tmp_path / "journal", 3, drawn=False)
    _, _, ran = simulated("environments side by side")
    observed: Any = ran.observed
    assert np.array_equal(told_actions(tmp_path / "journal"), np.concatenate(observed.actions[:3]))
    assert verify(tmp_path / "journal", fresh()).holds
    for k, row in enumerate(row for row in read(tmp_path / "journal") if row.kind == "outcome"):
        told = as_told(ran, k, drawn=False)
        written = {name: told[name] for name in ("actions", "costs")} | {"episode": k}
        written |= {name: told[name] for name in ("observations", "rewards")}
        assert row.payload == json.dumps(written, separators=(",", ":")).encode()


@pytest.mark.long
def test_adaptations_differ_by_what_was_drawn(tmp_path: Path) -> None:
    """And are the same whether episodes were simulated or told."""
    _, _, ran = simulated("environments side by side")
    found = {}
    for drawn in (True, False):
        drive(tmp_path / str(drawn), 4, drawn=drawn, batch=4)
        with Deployment.open(tmp_path / str(drawn), fresh(4)) as deployment:
            found[drawn] = deployment.learner.policy(1).to_arrays()["biases.0"]
    learner = fresh(4)
    learner.tell_block(learner.ask_block(4), ran[:4])
    assert np.array_equal(learner.policy(1).to_arrays()["biases.0"], found[True])
    assert not np.allclose(found[True], found[False], rtol=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"drawn": [[1.0]] * 99}, r"drawn must have the shape of actions, \[100, 1\], got \[99, 1\]"),
        ({"drawn": [1.0] * 100}, r"drawn must have the shape of actions, \[100, 1\], got \[100\]"),
        ({"drawn": [[np.nan]] * 100}, "drawn"),
        ({"drawn": [["1"]] * 100}, "drawn must be numbers"),
        ({"observations": None, "actions": None}, "drawn must come with observations and the actions that were taken"),
        ({"observations": None}, "actions must come with observations"),
    ],
)
def test_what_cannot_have_been_drawn_is_refused(changes: dict[str, Any], message: str) -> None:
    _, _, ran = simulated("environments side by side")
    with pytest.raises(InvalidInput, match=message):
        record({**as_told(ran, 0), **changes}, 1)  # type: ignore[typeddict-item]


def test_states_have_no_actions_but_those_taken() -> None:
    told: Any = {"transitions": {"states": [0, 1], "actions": [1]}, "reward": 1.0, "cost": 0.0, "drawn": [1]}
    with pytest.raises(InvalidInput, match="drawn must come with observations"):
        record(told, 1)


def test_simulated_episodes_with_malformed_draws_are_refused() -> None:
    _, _, ran = simulated("environments side by side")
    seen: Any = ran.observed
    learner = fresh()
    orders = learner.ask_block(len(ran))
    for wrong in (seen.drawn[:, 1:], np.full_like(seen.drawn, np.inf), seen.drawn.astype(str)):
        with pytest.raises(InvalidInput, match="drawn must be"):
            learner.tell_block(orders, replace(ran, observed=replace(seen, drawn=wrong)))
