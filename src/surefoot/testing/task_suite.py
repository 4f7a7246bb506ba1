"""What every task must do, whoever wrote it: be simulated, and where it can be read, say what the simulation shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surefoot.cmdp.episode import Outcomes, first_breach
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.task import ReadableTask, Task
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.estimates import value_bounds
from surefoot.testing.require import FALSE_ALARM, require, require_refusal

Build: TypeAlias = Callable[[], Task]

ROUNDING = 1e-9  # of exact values, relative to the range of the reward


def check(build: Build, policies: Sequence[Policy], *, episodes: int = 400, seed: int = 0) -> None:
    """All that follows. `build` makes the same task each time it is called, `policies` are some that fit it."""
    says_what_it_is(build)
    refuses_strange_policies(build)
    for policy in policies:
        episodes_are_reproducible(build, policy, seed)
        episodes_stay_in_range(build, policy, episodes, seed)
        values_agree_with_episodes(build, policy, episodes, seed)


def says_what_it_is(build: Build) -> None:
    """Units, spaces and a digest that are the same each time."""
    task, again = build(), build()
    require(isinstance(task, Task), f"a task has units, spaces, digest and episodes, {type(task).__name__} does not")
    require(isinstance(task.units, Units), f"units must be Units, got {type(task.units).__name__}")
    require(task.units.same_as(again.units), "building the task again gave other units")
    require(hash(task.spaces) == hash(again.spaces) and task.spaces == again.spaces, "spaces must not change")
    digest = task.digest()
    require(len(digest) == 64 and set(digest) <= set("0123456789abcdef"), f"digest must be a SHA-256, got {digest!r}")
    require(digest == task.digest() == again.digest(), "the digest must be the same each time")


def refuses_strange_policies(build: Build) -> None:
    """A policy of a kind that nobody knows is no policy for this task."""
    require_refusal(
        lambda: build().episodes(_Strange(), 1).run(1, np.random.default_rng(0)), "a policy of an unknown kind"
    )


def episodes_are_reproducible(build: Build, policy: Policy, seed: int = 0) -> None:
    """Equal generators give equal outcomes, on the same task and on one built again; observing changes nothing."""
    task = build()
    steps = task.units.episode_length
    first, second, other = (
        made.episodes(policy, steps).run(20, np.random.default_rng(seed), transitions=True)
        for made in (task, task, build())
    )
    require(_same(first, second), "equal generators gave different episodes")
    require(_same(first, other), "the task built again has other episodes")
    blind = task.episodes(policy, steps).run(20, np.random.default_rng(seed))
    require(_same(Outcomes(first.reward, first.cost), Outcomes(blind.reward, blind.cost)), "observing changes episodes")


def episodes_stay_in_range(build: Build, policy: Policy, episodes: int = 400, seed: int = 0) -> None:
    """Sums have their shapes, are finite and lie in the declared ranges, also when episodes are cut off early."""
    task = build()
    for steps in (1, task.units.episode_length):
        outcomes = task.episodes(policy, steps).run(episodes, np.random.default_rng(seed), transitions=True)
        constraints = len(task.units.budget)
        require(outcomes.reward.shape == (episodes,), f"reward must have shape [n], got {outcomes.reward.shape}")
        require(
            outcomes.cost.shape == (episodes, constraints), f"cost must have shape [n, m], got {outcomes.cost.shape}"
        )
        finite = np.isfinite(outcomes.reward).all() and np.isfinite(outcomes.cost).all()
        require(finite, "sums must be finite")
        breach = first_breach(outcomes, task.units)
        require(breach == episodes, f"episode {breach} leaves the declared ranges after at most {steps} steps")
        if outcomes.states is not None and outcomes.actions is not None:
            taken = outcomes.actions.shape[1]
            require(outcomes.states.shape[1] == taken + 1, "there must be one state more than actions")
            require(taken <= steps, f"episodes took {taken} steps of at most {steps}")
        if outcomes.observed is not None and outcomes.observed.drawn is not None:
            right, got = outcomes.observed.actions.shape, outcomes.observed.drawn.shape
            require(got == right, f"drawn actions must have the shape of those taken, {right}, got {got}")


def values_agree_with_episodes(build: Build, policy: Policy, episodes: int = 400, seed: int = 0) -> None:
    """Exact values lie in intervals around simulated means that miss them with probability 1e-6, and the optimum is no
    less than the reward of a feasible policy. Nothing to check on a task that cannot be read."""
    task = build()
    if not isinstance(task, ReadableTask):
        return
    values, steps = task.values(policy), task.units.episode_length
    require(values.error is None, "values of a readable task are exact")
    exact = np.array([values.reward, *values.margin])
    outcomes = task.episodes(policy, steps).run(episodes, np.random.default_rng(seed))
    lower, upper = value_bounds(outcomes, task.units, steps, FALSE_ALARM)
    require(
        ((lower <= exact) & (exact <= upper)).all(),
        f"reward and margins {exact.tolist()} are not those of episodes, from {lower.tolist()} to {upper.tolist()}",
    )
    if (values.margin >= 0).all():
        rounding = ROUNDING * float(np.ptp(task.units.reachable[0]))
        require(task.optimum() >= values.reward - rounding, f"{values.reward:g} exceeds the optimum {task.optimum():g}")


class _Strange:
    """Of no kind that a task may know; one that asks no kind but to act is told that this cannot."""

    kind: ClassVar[str] = "strange"

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
        raise InvalidInput("policy must be one that can act, got a strange one")

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        return {}


def _same(first: Outcomes, second: Outcomes) -> bool:
    """Array by array, None being equal to None alone."""
    return all(
        np.array_equal(np.asarray(getattr(first, name)), np.asarray(getattr(second, name)))
        for name in ("reward", "cost", "states", "actions")
    )
