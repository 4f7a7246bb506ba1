"""Episodes of an environment, one after the other.

Each begins with a fresh seed, an independent draw: episodes are independent if the seed decides about everything that
is random in one, which `check_env` tries. The policy draws from a stream of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, signature
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Integers, check_int, generator
from surefoot.cmdp.episode import Observed, Outcomes, first_breach
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.tasks.gym_signals import cost_of, unpack_step
from surefoot.tasks.gym_spaces import as_env_action
from surefoot.tasks.gym_system import System

Act: TypeAlias = Callable[[Any, int], Any]  # (observation, step) -> action

SEEDS = 2**31  # some environments take no larger ones


@dataclass(frozen=True, eq=False)
class OneByOne:
    """Episodes of `policy` that end after `steps` steps at the latest."""

    system: System
    parameter: Floats
    policy: Policy
    steps: int

    def run(self, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Outcomes:
        """Sums of `episodes` episodes, and with `transitions` what was observed, where that is arrays."""
        seeds, acting = draw_seeds(episodes, rng)
        recordings = [Recording(transitions) for _ in seeds]
        with self.system.opened(self.parameter) as env:
            each = zip(seeds.tolist(), recordings, strict=True)
            sums = np.array([self._sums(env, seed, acting, recording) for seed, recording in each])
        observed = concatenate_observed([recording.observed for recording in recordings])
        return in_range(Outcomes(sums[:, 0], sums[:, 1:], observed=observed), self.system.units)

    def _sums(self, env: Any, seed: int, acting: np.random.Generator, recording: Recording) -> Floats:
        """[1+m] discounted sums of one episode."""

        def act(observation: Any, t: int) -> Any:
            return self.policy.act(observation, t, acting)

        sums = np.zeros(1 + len(self.system.units.budget))
        for step in play_episode(env, self.system, act, seed, self.steps, recording):
            numbers = np.array(step.numbers)
            sums += self._payments.weights[step.t] * numbers
            if step.terminated:
                sums += self._payments.after[step.t + 1] * self.system.after_termination
                numbers += self._payments.owed(step.t) * self.system.after_termination
            recording.paid(numbers)
        return sums

    @cached_property
    def _payments(self) -> DiscountWeights:
        return DiscountWeights.of(self.system.units, self.steps)


class Recording:
    """What one episode, or `lanes` of them side by side, shows step by step, if it is wanted."""

    def __init__(self, wanted: bool, lanes: int | None = None) -> None:
        self._wanted, self._single = wanted, lanes is None
        self._seen: list[NDArray[Any]] = []
        self._actions: list[NDArray[Any]] = []
        self._paid: list[NDArray[Any]] = []
        self._steps = np.zeros(1 if lanes is None else lanes, np.int64)

    def begin(self, observation: Any) -> None:
        if self._wanted:
            self._seen.append(self._copy_batch(observation))

    def step(self, action: Any, observation: Any, running: Any = True) -> None:
        """An action and what followed it, in those episodes that were still going on."""
        if self._wanted:
            self._actions.append(self._copy_batch(action))
            self._seen.append(self._copy_batch(observation))
            self._steps += running

    def paid(self, numbers: Floats) -> None:
        """Reward and costs [1+m], or [n, 1+m], of that step; of a system's last one with those of the steps that the
        episode then lacks."""
        if self._wanted:
            self._paid.append(self._copy_batch(numbers))

    @property
    def observed(self) -> Observed | None:
        """None if it is not wanted, or not made of arrays of numbers."""
        if not self._wanted or any(each.dtype.kind not in "biuf" for each in self._seen):
            return None
        paid = np.stack(self._paid, axis=1)
        return Observed(np.stack(self._seen, axis=1), np.stack(self._actions, axis=1), self._steps, paid)

    def _copy_batch(self, shown: Any) -> NDArray[Any]:
        """[n, ...]; some environments write the next observation over the last one."""
        return np.array(shown)[None] if self._single else np.array(shown)


def concatenate_observed(parts: Sequence[Observed | None]) -> Observed | None:
    """Of all of them; None if it was not observed of one."""
    known = [part for part in parts if part is not None]
    return Observed.joined(known) if len(known) == len(parts) else None


class DiscountWeights(NamedTuple):
    """Weights γ^t [steps], and after [steps+1]: the sum of those from t on, what all steps after an end weigh."""

    weights: Floats
    after: Floats

    @classmethod
    def of(cls, units: Units, steps: int) -> DiscountWeights:
        weights: Floats = np.power(units.discount, np.arange(steps, dtype=np.float64))
        return cls(weights, np.append(np.cumsum(weights[::-1])[::-1], 0.0))

    def owed(self, t: int) -> float:
        """What all steps after an end at step t weigh, in units of that step."""
        return float(self.after[t + 1] / self.weights[t])


def draw_seeds(episodes: int, rng: np.random.Generator) -> tuple[Integers, np.random.Generator]:
    """A seed for each episode [n], and a stream for the policy."""
    seeds = generator("rng", rng).integers(SEEDS, size=check_int("episodes", episodes))
    return seeds, np.random.default_rng(rng.integers(2**63, size=2))


def in_range(outcomes: Outcomes, units: Units) -> Outcomes:
    """The outcomes themselves; refused where a sum leaves the range that was declared of it."""
    outside = first_breach(outcomes, units)
    if outside == len(outcomes):
        return outcomes
    raise InvalidInput(
        f"an episode's reward and cost must lie in reward_sum_range and cost_sum_range (0 included), "
        f"{units.reachable.tolist()}, got {outcomes.reward[outside]:g} and {outcomes.cost[outside].tolist()}"
    )


class Played(NamedTuple):
    """Step t: the action that was taken, the numbers [1+m] that it paid, the observation after it, whether the system
    ended there and whether a time limit was reached."""

    t: int
    action: Any
    numbers: list[float]
    observation: Any
    terminated: bool
    truncated: bool


def play_episode(
    env: Any, system: System, act: Act, seed: int, steps: int, recording: Recording | None = None
) -> Iterator[Played]:
    """One episode, step by step: up to its end, or `steps` of them."""
    recording = recording or Recording(wanted=False)
    observation = first_observation(env, seed)
    recording.begin(observation)
    for t in range(steps):
        step = one_step(env, system, observation, act(observation, t), t)
        observation = step.observation
        recording.step(step.action, observation)
        yield step
        if step.terminated:
            return
        if step.truncated and t + 1 < steps:
            raise cut_off(t, steps, system.units)


def one_step(env: Any, system: System, observation: Any, action: Any, t: int) -> Played:
    """Step t from an observation with an action that is in the action space, or moved there where that is declared."""
    taken = as_env_action(env.action_space, action, t, system.clip_actions)
    before = copy_observation(observation, system)
    signal = unpack_step(_step_env(env, taken), t)
    cost = cost_of(signal, before, taken, system.cost, t)
    numbers = system.ranges.row(signal.reward, cost, t)
    return Played(t, taken, numbers, signal.observation, bool(signal.terminated), bool(signal.truncated))


def copy_observation(observation: Any, system: System) -> Any:
    """The observation as it is now, for a cost function to see it: some environments write the next one over it."""
    return np.array(observation) if system.cost is not None and isinstance(observation, np.ndarray) else observation


def first_observation(env: Any, seed: Any) -> Any:
    """Of an episode, or of several side by side, that is seeded."""
    try:
        found = env.reset(seed=seed)
    except TypeError as error:
        if all(_takes_seed(each) for each in _layers(env)):
            raise
        raise InvalidInput(f"reset must take seed=, as in Gymnasium, got {error}") from error
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], Mapping):
        what = f"{len(found)} values" if isinstance(found, tuple) else type(found).__name__
        raise InvalidInput(f"reset must return (observation, info), info being a dictionary, got {what}")
    return found[0]


def _layers(env: Any) -> Iterator[Any]:
    """An environment, what it wraps, and so on inwards; of several side by side the first."""
    while callable(getattr(env, "reset", None)):
        yield env
        side_by_side = getattr(env, "envs", None)
        env = side_by_side[0] if side_by_side else getattr(env, "env", None)


def _takes_seed(env: Any) -> bool:
    try:
        parameters = signature(env.reset).parameters
    except (TypeError, ValueError):  # not written in Python: nobody can tell
        return True
    return "seed" in parameters or any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())


def _step_env(env: Any, action: Any) -> Any:
    try:
        return env.step(action)
    except ValueError as error:
        if "unpack" not in str(error):
            raise
        raise InvalidInput(
            f"a wrapper does not know what the environment inside it returns ({error}); if these are "
            "Safety-Gymnasium's six values, put sf.tasks.cost_in_info(env) innermost and wrappers around it"
        ) from error


def cut_off(t: int, steps: int, units: Units) -> InvalidInput:
    """A time limit is no end of the system: what would have been paid after it is unknown."""
    whole_episode = f"horizon={units.horizon}" if units.horizon else f"discount {units.discount:g} without a horizon"
    return InvalidInput(
        f"an episode must go on for {steps} steps ({whole_episode}) or terminate, but was truncated after {t + 1}, at "
        f"step {t}: its further costs would be lost; make the environment without its time limit, "
        f"e.g. gymnasium.make(..., max_episode_steps=-1), or declare horizon={t + 1}"
    )
