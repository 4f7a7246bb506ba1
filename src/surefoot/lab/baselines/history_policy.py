"""One network for all tasks that sees its last steps, so that it can tell within an episode which robot it moves:
dynamics randomisation with a policy that remembers (Peng et al., ICRA 2018), by a window of observations and actions as
in RMA (Kumar et al., RSS 2021), but trained in one stage. Deployed as it is, on every episode. *Uncertified*."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Integers, Mask, check_int
from surefoot.cmdp.policy import each_step
from surefoot.cmdp.world import Shapes, Stepped, World
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.fixed_network import DOMAIN_RANDOMISED, FixedNetwork
from surefoot.lab.baselines.rollout_buffer import NetworkPolicy, safe_network
from surefoot.learning.spec import MethodArgs
from surefoot.policyset.policy_value_set import PolicyValueSet

# Steps. Nothing that robots observe is noisy, so a few tell of their motors what can be told, and each is 23 more
# inputs of a Half-Cheetah's network. Eight are 0.4 s of a Half-Cheetah and 0.06 s of a Hopper.
LENGTH = 8


class History:
    """The last `length` steps of n lanes, the newest first: what was observed before each, and the action drawn there,
    moved into [-1, 1] as robots do. An episode begins as if its robot had stood there before with its motors at rest.
    """

    def __init__(self, lanes: int, length: int, observation: int, action: int) -> None:
        self._steps = np.zeros((lanes, length, observation + action))

    def begin(self, lanes: Mask, observations: Floats) -> None:
        """New episodes in the lanes marked [n], at observations [n, o]."""
        self._steps[lanes] = 0.0
        self._steps[lanes, :, : observations.shape[1]] = observations[lanes, None]

    def add(self, lanes: Mask, observations: Floats, actions: Floats) -> None:
        """A step in the lanes marked [n], at observations [n, o] with actions [n, k]."""
        newest = np.hstack([observations, np.clip(actions, -1.0, 1.0)])[lanes, None]
        self._steps[lanes] = np.concatenate([newest, self._steps[lanes, :-1]], axis=1)

    def beside(self, observations: Floats) -> Floats:
        """[n, o + length·(o+k)] observations [n, o], each with the history of its lane."""
        return np.hstack([observations, self._steps.reshape(len(observations), -1)])


class HistoryWorld:
    """A world that shows the history of each lane beside what is observed now: what a network for it is trained on."""

    def __init__(self, world: World, length: int = LENGTH) -> None:
        seen, moved, discrete = world.shapes
        self.lanes, self.units = world.lanes, world.units
        self.shapes = Shapes(seen + length * (seen + moved), moved, discrete)
        self._world, self._history = world, History(world.lanes, length, seen, moved)
        self._observation, self._running = np.zeros((world.lanes, seen)), np.zeros(world.lanes, np.bool_)

    def begin(self, lanes: Mask, rng: np.random.Generator) -> Floats:
        self._observation, self._running = self._world.begin(lanes, rng), self._running | lanes
        self._history.begin(lanes, self._observation)
        return self._history.beside(self._observation)

    def step(self, actions: Any) -> Stepped:
        found = self._world.step(actions)
        self._history.add(self._running, self._observation, actions)
        self._observation, self._running = found.observation, ~found.ended
        return found._replace(observation=self._history.beside(found.observation))


@dataclass(eq=False)
class HistoryPolicy:
    """A policy that remembers the last steps of the episodes under way: on a task it acts as `network` does on the
    task's `HistoryWorld`.

    It must be asked at every step of the same n episodes, in turn; those that are at step 0 begin.

    Attributes:
        network: from an observation and the history to an action.
        length: steps of the history.
    """

    network: MLPPolicy
    length: int
    kind: ClassVar[str] = "history-mlp"
    _history: History = field(init=False, repr=False)
    _due: Integers = field(init=False, repr=False)  # [n] the next step of each episode

    def __post_init__(self) -> None:
        inputs = len(self.network.shift) - check_int("length", self.length) * self.actions
        if inputs < 1 or inputs % (1 + self.length):
            raise InvalidInput(f"length must be that of the network's history, got {self.length}")
        self._due = np.zeros(0, np.int64)

    @property
    def actions(self) -> int:
        return len(self.network.log_std)

    @property
    def observations(self) -> int:
        return (len(self.network.shift) - self.length * self.actions) // (1 + self.length)

    @classmethod
    def looking_away(cls, policy: NetworkPolicy, length: int = LENGTH) -> HistoryPolicy:
        """One that acts as `policy` does: the weights of its history are 0."""
        if not isinstance(policy, MLPPolicy):
            raise InvalidInput(f"policy must be a network with normal actions (MLPPolicy), got {policy.kind!r}")
        first, *later = policy.weights
        still = np.zeros(len(policy.log_std))
        unseen = np.zeros((len(first), length * (len(policy.shift) + len(still))))
        network = replace(
            policy,
            weights=(np.hstack([first, unseen]), *later),
            shift=np.concatenate([policy.shift, *[policy.shift, still] * length]),
            scale=np.concatenate([policy.scale, *[policy.scale, still + 1.0] * length]),
        )
        return cls(network, length)

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Floats:
        """Draw actions [..., k] at observations [..., o]."""
        seen = np.atleast_2d(np.asarray(observation, np.float64))
        if seen.ndim != 2 or seen.shape[1] != self.observations:
            raise InvalidInput(
                f"observation must have shape [n, {self.observations}], got {list(np.shape(observation))}"
            )
        steps = each_step("step", step, (len(seen),))
        self._begin(steps, seen)
        actions = self.network.act(self._history.beside(seen), steps, rng)
        self._history.add(np.ones(len(seen), np.bool_), seen, actions)
        self._due = steps + 1
        return actions.reshape(*np.shape(observation)[:-1], self.actions)

    def _begin(self, steps: Integers, seen: Floats) -> None:
        """Episodes that are at their first step; others must go on where they are."""
        new = steps == 0
        if new.all():
            self._history, self._due = History(len(seen), self.length, self.observations, self.actions), steps
        if len(self._due) != len(seen) or (~new & (steps != self._due)).any():
            raise InvalidInput(
                f"step must be the next of each episode, {self._due.tolist()}, or 0 where one begins, "
                f"got {steps.tolist()}; other episodes need another copy of this policy, which remembers"
            )
        self._history.begin(new, seen)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {**self.network.to_arrays(), "length": np.array(self.length)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> HistoryPolicy:
        return cls(MLPPolicy.from_arrays(arrays), int(arrays["length"]))


def _make(policies: PolicyValueSet, terms: MethodArgs, start: Any = None) -> FixedNetwork:
    own = HistoryPolicy.looking_away(safe_network(policies))
    found = own if start is None else start
    if not isinstance(found, HistoryPolicy) or (found.observations, found.actions) != (own.observations, own.actions):
        raise InvalidInput(
            f"start must be a HistoryPolicy from {own.observations} observations to {own.actions} actions, "
            f"got {getattr(found, 'kind', type(found).__name__)}"
        )
    return FixedNetwork(terms.name, policies, found)


HISTORY_CONDITIONED = replace(
    DOMAIN_RANDOMISED,
    name="history-conditioned",
    make=_make,
    costs="nothing: it forgets with every episode",
    colour=5,  # which no other method for robots has
)
