"""Robots with a parameter that nobody tells the policy, stepped side by side, each lane with the parameter of its own
task; and one such robot as a task that can be simulated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from surefoot.arrays import Floats, Integers, Mask, assign, check_int, finite_array, format_digits
from surefoot.cmdp.episode import Observed, Outcomes, drawn_unless_taken
from surefoot.cmdp.policy import Policy, check_acts
from surefoot.cmdp.task import Generators, run_in_lanes
from surefoot.cmdp.units import Units
from surefoot.cmdp.world import Shapes
from surefoot.errors import InvalidInput
from surefoot.lab.robots.payments import Motion, Payment
from surefoot.lab.robots.robots import MujocoLanes, Robot, has_fallen, model_field, model_text, robot_observations
from surefoot.tasks.lane_world import LaneWorld


@dataclass(frozen=True, eq=False)
class Locomotion:
    """What all tasks of a family share.

    Attributes:
        robot: that moves.
        units: of the sums; their discount is 1, and that of a cost of its own is in `cost_discount`.
        reward, cost: of one step.
        cost_discount: γ: the cost of step t counts γ^t times in the sum on which the budget is. Rewards are not
            discounted.
        after_fall: (reward, cost) of each step that is then missing up to the horizon.
        battery: what the steps of an episode may cost together, as an empty battery or an emergency stop sees to: where
            less is left than one step can cost at most, motors rest from then on, and nothing is paid for what a robot
            at rest still does. What missing steps cost after a fall comes on top.
        factors: fields of MuJoCo's model, each with the coordinate of the parameter that multiplies it.
        payload: the coordinate of the parameter that is a load at the centre of the torso, as a share of what the
            robot weighs in MuJoCo's model; None if it carries nothing.
        parameters: [d] (low, high) of each coordinate of a parameter.
    """

    robot: Robot
    units: Units
    reward: Payment
    cost: Payment
    cost_discount: float = 1.0
    after_fall: tuple[float, float] = (0.0, 0.0)
    battery: float = np.inf
    factors: Mapping[str, int] = field(default_factory=dict)
    payload: int | None = None
    parameters: tuple[tuple[float, float], ...] = ((-np.inf, np.inf),)

    @property
    def steps(self) -> int:
        return self.units.episode_length

    @property
    def same_motion(self) -> bool:
        """Whether robots move alike on all tasks, which then differ in what is paid alone."""
        return not self.factors and self.payload is None

    def description(self) -> dict[str, Any]:
        """All of it as plain data, but for the model of the robot."""
        units = self.units
        return {
            "robot": self.robot.text,
            "horizon": self.steps,
            "ranges": [*units.reward_range, *units.cost_range[0]],
            "budget": units.budget.tolist(),
            "payments": [each.text.format(each) for each in (self.reward, self.cost)],
            "cost_discount": self.cost_discount,
            "after_fall": list(self.after_fall),
            "battery": repr(self.battery),
            "factors": dict(self.factors),
            **({} if self.payload is None else {"payload": self.payload}),
        }


class LocomotionWorld(LaneWorld):
    """n lanes with the parameters [n, d].

    The sums of an episode are Σ reward_t and Σ γ^t cost_t of its steps as they are returned: what the steps after a
    fall would pay is in the step of the fall, discounted to it.
    """

    def __init__(self, system: Locomotion, parameters: Floats, steps: int, threads: int | None = None) -> None:
        shapes = Shapes(system.robot.observations, system.robot.motors, False)
        super().__init__(len(parameters), shapes, system.units, steps)
        self._system, self._parameters = system, parameters
        self._mujoco = _make_lanes(system, parameters, threads)
        self._weights, self._missing = _weights(system.cost_discount, steps)

    def executable(self, actions: Any) -> Floats:
        """[n, k] actions as they are carried out: moved into [-1, 1], and none where the battery is empty."""
        wanted = super().executable(actions).astype(np.float64)
        if np.isnan(wanted).any():
            raise InvalidInput("actions must be numbers, got one that is none")
        executed: Floats = wanted.clip(-1.0, 1.0)
        executed[self._at_rest()] = 0.0
        return executed

    def _at_rest(self) -> Mask:
        """[n] where the battery may not suffice for one more step."""
        resting: Mask = self._sums[:, 1] + self.units.cost_range[0, 1] > self._system.battery
        return resting

    def _reset(self, lanes: Integers, seeds: Integers) -> None:
        self._mujoco.begin(lanes, seeds)

    def _move(self, lanes: Integers, actions: Floats, time: Integers) -> tuple[Floats, Floats, Mask]:
        system, parameters = self._system, self._parameters[lanes]
        velocity = self._mujoco.step(lanes, actions)
        positions, velocities = self._mujoco.positions[lanes], self._mujoco.velocities[lanes]
        fell = has_fallen(system.robot, positions, velocities)
        motion = Motion(velocity, fell, actions, positions, velocities)
        paid = np.column_stack([system.reward(motion, parameters), system.cost(motion, parameters)])
        paid[self._at_rest()[lanes], 1] = 0.0
        paid[fell] += self._missing[time[fell]] * system.after_fall
        return paid, self._sums[lanes] + self._weights[time] * paid, fell

    def _observations(self) -> Floats:
        return robot_observations(self._system.robot, self._mujoco.positions, self._mujoco.velocities)


# ------------------------------------------------------------------------------------------------- parts, in call order


TORSO = 1  # of MuJoCo's bodies; 0 is the world


def _make_lanes(system: Locomotion, parameters: Floats, threads: int | None) -> MujocoLanes:
    fields = {name: _scale_model_field(system.robot, name, parameters[:, k]) for name, k in system.factors.items()}
    if system.payload is not None:
        own = model_field(system.robot, "body_mass")
        masses = fields.setdefault("body_mass", np.tile(own, (len(parameters), 1)))
        masses[:, TORSO] += own.sum() * parameters[:, system.payload]
    return MujocoLanes(system.robot, len(parameters), fields, threads)


def _scale_model_field(robot: Robot, name: str, factors: Floats) -> Floats:
    """[n, ...] a field of the model times one factor per lane [n]."""
    own = model_field(robot, name)
    return own * factors.reshape(-1, *[1] * own.ndim)


def _weights(discount: float, steps: int) -> tuple[Floats, Floats]:
    """Of reward and cost: what step t weighs, γ^t, and what all steps after it weigh together as seen from it,
    Σ_{1≤k<steps-t} γ^k; both [steps, 2]."""
    powers: Floats = np.array([1.0, discount]) ** np.arange(steps, dtype=np.float64)[:, None]
    later: Floats = np.cumsum(powers, axis=0)[::-1] - 1.0
    return powers, later


# ---------------------------------------------------------------------------------------------------------------- tasks


LANES = 256  # episodes side by side


@dataclass(frozen=True, eq=False)
class LocomotionTask:
    """One robot of a family.

    What a policy observes before each step is what Gymnasium's environment of the robot shows: all positions but x,
    then all velocities. Its actions [k] are moved into [-1, 1].

    Attributes:
        system: what all tasks of the family share.
        parameter: [d] what differs between them.
    """

    system: Locomotion
    parameter: Floats

    def __post_init__(self) -> None:
        parameter, (low, high) = finite_array("parameter", self.parameter), np.transpose(self.system.parameters)
        if parameter.shape != low.shape or not ((low <= parameter) & (parameter <= high)).all():
            wanted = " and ".join(f"from {least:g} to {most:g}" for least, most in self.system.parameters)
            raise InvalidInput(f"parameter must be [{len(low)}], {wanted}, got {parameter.tolist()}")
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
            **self.system.description(),
            "model": model_text(self.system.robot),
            "parameter": " ".join(format_digits(self.parameter)),
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def episodes(self, policy: Policy, steps: int) -> SimulatedEpisodes:
        check_acts(policy)
        return SimulatedEpisodes(self, policy, min(check_int("steps", steps), self.system.steps))

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
    for k, task in enumerate(tasks):
        if task.system.description() != system.description():
            raise InvalidInput(f"tasks[{k}] must be of the family of tasks[0], got {task.system} in place of {system}")
    parameters = np.repeat([task.parameter for task in tasks], check_int("lanes_each", lanes_each), axis=0)
    return LocomotionWorld(system, parameters, system.steps, threads)


@dataclass(frozen=True, eq=False)
class SimulatedEpisodes:
    """Episodes of a policy on one task, which end after `steps` steps at the latest."""

    task: LocomotionTask
    policy: Policy
    steps: int
    lanes: ClassVar[int] = LANES

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        """Sums of `episodes` episodes; if asked for with observations [n, H+1, o], actions [n, H, k] as they were done
        and as they were drawn, and what was paid, H being the steps of the longest."""
        return self.run_beside([], episodes, [rng], transitions)[0]

    def run_beside(
        self, others: Sequence[SimulatedEpisodes], episodes: int, rngs: Generators, transitions: bool
    ) -> list[Outcomes]:
        """On the same task, each as if it were alone."""
        policies = [self.policy, *(other.policy for other in others)]
        return run_in_lanes(policies, episodes, rngs, LANES, partial(self._block, transitions))

    def _block(
        self, transitions: bool, policies: Sequence[Policy], size: int, rngs: Generators, acting: Generators
    ) -> list[Outcomes]:
        """`size` lanes for each policy, one policy after the other."""
        lanes = len(policies) * size
        parts = [slice(first, first + size) for first in range(0, lanes, size)]
        world = LocomotionWorld(self.task.system, np.tile(self.task.parameter, (lanes, 1)), self.steps)
        for part, rng in zip(parts, rngs, strict=True):
            observation = world.begin(_mark(part, lanes), rng)
        ended, steps = np.zeros(lanes, np.bool_), np.zeros(lanes, np.int64)
        seen, drawn, done, paid = [observation], [], [], []
        t = 0
        while not ended.all():
            wanted = np.zeros((lanes, world.shapes.action))
            for part, policy, own in zip(parts, policies, acting, strict=True):
                if not ended[part].all():  # its generator goes on in the next block
                    wanted[part] = _check_shape(policy.act(observation[part], t, own), wanted[part].shape)
            actions = world.executable(wanted)
            steps += ~ended
            observation, reward, cost, sums, _, ended = world.step(actions)
            t += 1
            if transitions:
                seen.append(observation)
                drawn.append(wanted)
                done.append(actions)
                paid.append(np.column_stack([reward, cost]))
        if not transitions:
            return [Outcomes(sums[part, 0], sums[part, 1:]) for part in parts]
        watched = []
        for part, longest in ((part, steps[part].max()) for part in parts):
            acted, wants = _rows(done, part, longest), _rows(drawn, part, longest)
            shown, numbers = _rows(seen, part, longest + 1), _rows(paid, part, longest)
            watched.append(Observed(shown, acted, steps[part], numbers, drawn_unless_taken(wants, acted)))
        return [Outcomes(sums[part, 0], sums[part, 1:], observed=own) for part, own in zip(parts, watched, strict=True)]


def _mark(part: slice, lanes: int) -> Mask:
    marked = np.zeros(lanes, np.bool_)
    marked[part] = True
    return marked


def _check_shape(actions: Any, shape: tuple[int, ...]) -> Floats:
    if np.shape(actions) != shape:
        raise InvalidInput(f"actions must have shape {list(shape)}, got {list(np.shape(actions))}")
    return np.asarray(actions, np.float64)


def _rows(steps: Sequence[Floats], part: slice, count: int) -> Floats:
    """[n, count, ...] of these lanes the first so many steps."""
    return np.stack([step[part] for step in steps[:count]], axis=1)
