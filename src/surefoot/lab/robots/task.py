"""A robot with one parameter that nobody tells the policy, as a task that can be simulated and stepped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surefoot.arrays import Floats, assign, finite_array, generator, whole
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.lab.robots.robots import model_text
from surefoot.lab.robots.world import Locomotion, LocomotionWorld, check_family

DIGEST_DIGITS = 12
LANES = 256  # episodes side by side


@dataclass(frozen=True, eq=False)
class LocomotionTask:
    """One robot of a family.

    What a policy observes before each step is what Gymnasium's environment of the robot shows: all positions but x,
    then all velocities. Its actions [k] are moved into [-1, 1].

    Attributes:
        system: what all tasks of the family share.
        parameter: [1] what differs between them.
    """

    system: Locomotion
    parameter: Floats

    def __post_init__(self) -> None:
        parameter, (low, high) = finite_array("parameter", self.parameter), self.system.parameters
        if parameter.shape != (1,) or not low <= parameter[0] <= high:
            raise InvalidInput(f"parameter must be [1], from {low:g} to {high:g}, got {parameter.tolist()}")
        assign(self, parameter=parameter)

    @property
    def units(self) -> Units:
        return self.system.units

    @property
    def spaces(self) -> str:
        robot = self.system.robot
        return f"1 constraint(s), observations [{robot.observations}] of {robot.name}, actions [{robot.motors}]"

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return (self.system.robot.observations,)

    def digest(self) -> str:
        """SHA-256 of the parameter, of the robot's model and of every number in what is paid."""
        told = {
            **self.system.told(),
            "model": model_text(self.system.robot),
            "parameter": f"{self.parameter[0]:.{DIGEST_DIGITS}g}",
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def episodes(self, policy: Policy, steps: int) -> SimulatedEpisodes:
        if not callable(getattr(policy, "act", None)):
            raise InvalidInput(f"policy must be one that can act, got {type(policy).__name__}")
        return SimulatedEpisodes(self, policy, min(whole("steps", steps), self.system.steps))

    def world(self, lanes: int, *others: LocomotionTask) -> LocomotionWorld:
        return world_of([self, *others], lanes)


def world_of(tasks: Sequence[LocomotionTask], lanes_each: int, threads: int | None = None) -> LocomotionWorld:
    """Tasks of one family side by side, the first `lanes_each` lanes being of the first of them, and so on.

    Args:
        threads: that step the lanes; if None as many as OMP_NUM_THREADS says, or else as there are cores.
    """
    if not tasks:
        raise InvalidInput(f"tasks must be at least one, got {tasks!r}")
    system = tasks[0].system
    check_family(system, tasks, "tasks", "tasks[0]")
    parameters = np.repeat([task.parameter for task in tasks], whole("lanes_each", lanes_each), axis=0)
    return LocomotionWorld(system, parameters, system.steps, threads)


@dataclass(frozen=True, eq=False)
class SimulatedEpisodes:
    """Episodes of a policy on one task, which end after `steps` steps at the latest."""

    task: LocomotionTask
    policy: Policy
    steps: int

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        """Sums of `episodes` episodes; if asked for with observations [n, H+1, o], actions [n, H, k] as they were done
        and what was paid, H being the steps of the longest."""
        count = whole("episodes", episodes)
        acting = np.random.default_rng(generator("rng", rng).integers(2**63, size=2))
        sizes = [min(LANES, count - done) for done in range(0, count, LANES)]
        return Outcomes.joined([self._block(size, rng, acting, transitions) for size in sizes])

    def _block(self, lanes: int, rng: np.random.Generator, acting: np.random.Generator, transitions: bool) -> Outcomes:
        world = LocomotionWorld(self.task.system, np.tile(self.task.parameter, (lanes, 1)), self.steps)
        observation, ended = world.begin(np.ones(lanes, np.bool_), rng), np.zeros(lanes, np.bool_)
        seen, done, paid, steps = [observation], [], [], np.zeros(lanes, np.int64)
        t = 0
        while not ended.all():
            actions = world.taken(self.policy.act(observation, t, acting))
            steps += ~ended
            observation, reward, cost, sums, _, ended = world.step(actions)
            t += 1
            if transitions:
                seen.append(observation)
                done.append(actions)
                paid.append(np.column_stack([reward, cost]))
        if not transitions:
            return Outcomes(sums[:, 0], sums[:, 1:])
        watched = Observed(np.stack(seen, axis=1), np.stack(done, axis=1), steps, np.stack(paid, axis=1))
        return Outcomes(sums[:, 0], sums[:, 1:], observed=watched)
