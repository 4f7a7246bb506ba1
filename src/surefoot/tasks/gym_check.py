"""`sf.check_env`: an environment is tried before anything is trained on it, and what is wrong is named.

It is tried with random actions. What they do not reach, a rare end or a large reward, is found when it happens: every
simulated step is checked again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from surefoot.arrays import Floats
from surefoot.errors import InvalidInput, SurefootError
from surefoot.tasks.gym_lanes import LaneStep, SingleLane, first_observation
from surefoot.tasks.gym_options import GymOptions, MakeEnv, parameter_of
from surefoot.tasks.gym_spaces import contains, flat, is_box
from surefoot.tasks.gym_tasks import GymTask, RandomActions, play_randomly

SEEDS = (1, 2, 3, 4, 5)
COMPARED = 50  # steps of the episodes that are played again
TOLERANCE = 1e-6  # relative, by which equal episodes may differ: some simulators start warm
VECTOR_EPISODES = 8


def check_env(make_env: MakeEnv, parameter: ArrayLike, **options: Any) -> None:
    """Try the environment of one parameter [d] with random actions; the options are those of `sf.tasks.from_gym`.

    Returns quietly, or raises an error that names what is wrong and what would be right.
    """
    trial = _EnvCheck(GymOptions(make_env, **options), parameter_of(parameter))
    with _errors_named(trial.parameter):
        trial.environments_are_new()
        trial.episodes_keep_the_rules()
        trial.seeds_decide()
        trial.seeds_matter()
        trial.environments_are_independent()
        if trial.options.make_vector is not None:
            trial.episodes_side_by_side()


@contextmanager
def _errors_named(parameter: Floats) -> Iterator[None]:
    """What a stranger's environment raises, as an error that says so."""
    try:
        yield
    except SurefootError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"the environment of parameter {parameter.tolist()} must run with random actions of its action_space, "
            f"but raised {type(error).__name__}: {error}"
        ) from error


@dataclass(frozen=True, eq=False)
class _EnvCheck:
    options: GymOptions
    parameter: Floats

    def environments_are_new(self) -> None:
        with self._open_env() as one, self._open_env() as other:
            if one is other and self.options.task_setter(one) is None:
                raise InvalidInput(
                    "make_env must return a new environment each time, got the same object twice; one that is made "
                    "once needs a method set_task"
                )

    def episodes_keep_the_rules(self) -> None:
        """Whole episodes: the form of values, costs at every step and the last, ranges, observations, time limits."""
        with self._open_env() as env:
            for seed in SEEDS:
                _check_observation(env, first_observation(env, seed), "after reset")
                for step in self._steps(env, seed, self.options.units.episode_length, actions=seed):
                    _check_observation(env, step.observation, f"at step {step.t}")

    def seeds_decide(self) -> None:
        """The same seed gives the same episode: in an environment that has had others, and in another environment."""
        with self._open_env() as env:
            first, _, repeated = (self._episode(env, seed) for seed in (SEEDS[0], SEEDS[1], SEEDS[0]))
        with self._open_env() as env:
            elsewhere = self._episode(env, SEEDS[0])
        for found, where in ((repeated, "the same environment, reset again"), (elsewhere, "another environment")):
            if not _equal(first, found):
                raise InvalidInput(
                    f"the seed must decide about an episode, got two different ones of equal actions with "
                    f"seed={SEEDS[0]}, the second in {where}: draw all that is random from a generator that "
                    "reset(seed=...) seeds, and keep nothing from one episode to the next (as running averages do)"
                )

    def seeds_matter(self) -> None:
        """Different seeds give different episodes, unless nothing is random: then no generator was drawn from."""
        with self._open_env() as env:
            before = _generators(env)
            episodes, states = [], []
            for seed in SEEDS:
                episodes.append(self._episode(env, seed))
                states.append(_generators(env))
        if all(_equal(episodes[0], other) for other in episodes[1:]):
            used = [name for name, state in states[0].items() if state != before.get(name)]
            ignored = [name for name in used if all(state.get(name) == states[0][name] for state in states)]
            if ignored:
                raise InvalidInput(
                    f"the seed must matter, got the same episode for seeds {list(SEEDS)} although the environment "
                    f"draws from {', '.join(ignored)}: seed it with the seed that reset gets"
                )

    def environments_are_independent(self) -> None:
        """An episode is the same while another environment takes its steps in between."""
        with self._open_env() as one, self._open_env() as other:
            if one is other:
                return
            alone = self._episode(one, SEEDS[0])
            steps = self._steps_to_compare
            turns = zip(self._steps(one, SEEDS[0], steps), self._steps(other, SEEDS[1], steps), strict=False)
            together = [_numbers(step) for step, _ in turns]
        if not _equal(alone[1 : 1 + len(together)], together):
            raise InvalidInput(
                f"environments must be independent, got another episode with seed={SEEDS[0]} while a second "
                "environment took steps in between: what they share, such as a global generator, must go"
            )

    def episodes_side_by_side(self) -> None:
        """Lanes keep the same rules, are reproducible, and differ from each other where episodes do."""
        task = GymTask(self.options, self.parameter)
        with self._open_env() as env:
            policy, firsts = RandomActions(env.action_space), [flat(first_observation(env, seed)) for seed in SEEDS]
        simulated = task.episodes(policy, self.options.units.episode_length)
        one, other = (simulated.run(VECTOR_EPISODES, np.random.default_rng(SEEDS[0])) for _ in range(2))
        if not (np.array_equal(one.reward, other.reward) and np.array_equal(one.cost, other.cost)):
            raise InvalidInput(
                "the seed must decide about episodes side by side, got different ones of what make_vector returns with "
                "the same seed: draw all that is random from a generator that reset(seed=...) seeds"
            )
        with self.options.open_vector(self.parameter, VECTOR_EPISODES) as vector:
            lanes = np.asarray(first_observation(vector, SEEDS[0]))
        if len(lanes) != VECTOR_EPISODES:
            raise InvalidInput(
                f"make_vector must give one observation for each lane [{VECTOR_EPISODES}, ...], "
                f"got shape {list(lanes.shape)}"
            )
        if any(first != firsts[0] for first in firsts) and (lanes == lanes[0]).all():
            raise InvalidInput(
                "lanes of make_vector must be independent, got the same first observation in all of them"
            )

    def _open_env(self) -> AbstractContextManager[Any]:
        return self.options.open_env(self.parameter)

    def _steps(self, env: Any, seed: int, steps: int, actions: int = 0) -> Iterator[LaneStep]:
        """An episode of random actions, which a seed of their own decides about."""
        return play_randomly(SingleLane(env, self.options), seed, actions, steps)

    def _episode(self, env: Any, seed: int) -> list[list[float | str]]:
        """All that was seen in the first steps of one."""
        first = flat(first_observation(env, seed))
        return [first, *(_numbers(step) for step in self._steps(env, seed, self._steps_to_compare))]

    @property
    def _steps_to_compare(self) -> int:
        return min(COMPARED, self.options.units.episode_length)


def _check_observation(env: Any, observation: Any, where: str) -> None:
    if not contains(env.observation_space, observation):
        shape = list(np.shape(observation)) if is_box(env.observation_space) else ""
        raise InvalidInput(
            f"observations must lie in observation_space, {env.observation_space}, "
            f"got {observation!r} {f'of shape {shape} ' if shape else ''}{where}"[:600]
        )


def _numbers(step: LaneStep) -> list[float | str]:
    return [*step.paid[0].tolist(), float(step.terminated[0]), *flat(step.observation)]


def _equal(one: list[list[float | str]], other: list[list[float | str]]) -> bool:
    if [len(row) for row in one] != [len(row) for row in other]:
        return False
    pairs = ((a, b) for row, others in zip(one, other, strict=True) for a, b in zip(row, others, strict=True))
    return all(
        a == b or (not isinstance(a, str) and not isinstance(b, str) and abs(a - b) <= TOLERANCE * (abs(a) + abs(b)))
        for a, b in pairs
    )


def _generators(env: Any) -> dict[str, str]:
    """The states of all generators that an environment is seen to draw from, by name."""
    found = {"numpy.random": str(np.random.get_state()), "random": str(random.getstate())}  # noqa: NPY002
    for name, value in vars(getattr(env, "unwrapped", env)).items():
        if isinstance(value, np.random.Generator):
            found[name] = str(value.bit_generator.state)
        elif isinstance(value, np.random.RandomState):
            found[name] = str(value.get_state())
        elif isinstance(value, random.Random):
            found[name] = str(value.getstate())
    return found
