"""Episodes that tasks share. Where the parameter is in nothing but the reward, a policy that does not see it does the
same on every task: it is simulated once, and what other tasks pay for its episodes follows from how the robot moved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from surefoot.arrays import Floats, Integers, Mask
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.errors import InvalidInput
from surefoot.lab.robots.payments import Motion, Payment
from surefoot.lab.robots.task import LANES, LocomotionTask


@dataclass(frozen=True, eq=False)
class Recording:
    """Whole episodes of one policy.

    Attributes:
        task: on which they ran.
        outcomes: there, with what was observed.
        velocity, fell: [n, H] of each step.
    """

    task: LocomotionTask
    outcomes: Outcomes
    velocity: Floats
    fell: Mask

    def __getitem__(self, part: slice | Integers) -> Recording:
        return Recording(self.task, self.outcomes[part], self.velocity[part], self.fell[part])

    def outcomes_on(self, task: LocomotionTask) -> Outcomes:
        """The same episodes on another task, bit for bit as if they had been simulated there."""
        system, observed = self.task.system, self.outcomes.watched()
        here = np.arange(self.velocity.shape[1]) < observed.steps[:, None]
        time, motion = np.nonzero(here)[1], self._motion(observed, here)
        parameters, own = (np.tile(each.parameter, (len(time), 1)) for each in (task, self.task))
        same_costs = system.same_motion and np.array_equal(system.cost(motion, parameters), system.cost(motion, own))
        if task.system.description() != system.description() or not same_costs:
            raise InvalidInput(
                "task must be of the recorded one's family and differ from it in rewards alone, got the parameter "
                f"{task.parameter.tolist()} in place of {self.task.parameter.tolist()} in {system.description()}"
            )
        reward = system.reward(motion, parameters)
        reward[motion.fell] += (system.steps - 1 - time[motion.fell]) * system.after_fall[0]
        paid = np.array(observed.paid)
        paid[here, 0] = reward
        sums = np.cumsum(paid[..., 0], axis=1)[:, -1]  # in the order in which a simulation adds
        return replace(self.outcomes, reward=sums, observed=replace(observed, paid=paid))

    def _motion(self, observed: Observed, here: Mask) -> Motion:
        """Of all steps [N], one episode after the other, as it was shown. Nobody was shown x, and nobody may pay for
        it."""
        unseen = np.full((int(here.sum()), 1), np.nan)
        shown = np.hstack([unseen, observed.observations[:, 1:][here]])
        positions, velocities = np.hsplit(shown, [self.task.system.robot.joints])
        return Motion(self.velocity[here], self.fell[here], observed.actions[here], positions, velocities)


def record(task: LocomotionTask, policy: Policy, episodes: int, rng: np.random.Generator) -> Recording:
    """So many episodes: those that `task.episodes` gives with an equal generator."""
    diary = _Diary(task.system.reward)
    watched = LocomotionTask(replace(task.system, reward=diary), task.parameter)
    outcomes = watched.episodes(policy, task.system.steps).run(episodes, rng, transitions=True)
    observed = outcomes.watched()
    velocity, fell = np.zeros(observed.actions.shape[:2]), np.zeros(observed.actions.shape[:2], np.bool_)
    for (lanes, t), motion in zip(_steps(observed.steps), diary.motions, strict=True):
        velocity[lanes, t], fell[lanes, t] = motion.velocity, motion.fell
    return Recording(task, outcomes, velocity, fell)


@dataclass(frozen=True)
class _Diary:
    """A payment that remembers what it was asked to pay for."""

    own: Payment
    motions: list[Motion] = field(default_factory=list)
    text: ClassVar[str] = "Diary({0.own})"

    def __call__(self, motion: Motion, parameters: Floats) -> Floats:
        self.motions.append(motion)
        return self.own(motion, parameters)


def _steps(lengths: Integers) -> Iterator[tuple[Integers, int]]:
    """Which episodes, of these lengths, took each step that was simulated, and the number of that step."""
    for first in range(0, len(lengths), LANES):
        block = np.arange(first, min(first + LANES, len(lengths)))
        for t in range(lengths[block].max()):
            yield block[lengths[block] > t], t
