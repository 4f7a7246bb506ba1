"""What every world must do, whoever wrote it: step lanes side by side, count what they pay, and let ended ones rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats
from surefoot.cmdp.episode import Outcomes, first_breach
from surefoot.cmdp.units import Units
from surefoot.cmdp.world import Actions, Stepped, World
from surefoot.streams import Stream
from surefoot.testing.require import require, require_refusal

Build: TypeAlias = Callable[[], World]

ROUNDING = 1e-9  # of sums, relative to the largest payment


def check(build: Build, *, cost_discount: float | None = None, seed: int = 0) -> None:
    """All that follows. `build` makes the same world each time it is called, of two lanes at least; `cost_discount` is
    that of its costs, where it is not that of its units."""
    says_what_it_is(build)
    steps_have_their_shapes(build, seed)
    sums_are_of_the_steps(build, cost_discount, seed)
    ended_lanes_rest(build, seed)
    lanes_begin_by_themselves(build, cost_discount, seed)
    steps_are_reproducible(build, seed)
    refuses_strange_actions(build, seed)


def says_what_it_is(build: Build) -> None:
    """Lanes, shapes and units."""
    world = build()
    require(world.lanes >= 2, f"the suite needs a world of two lanes at least, got {world.lanes}")
    require(min(world.shapes[:2]) >= 1, f"observations and actions must have a length, got {world.shapes}")
    require(isinstance(world.units, Units), f"units must be Units, got {type(world.units).__name__}")


def steps_have_their_shapes(build: Build, seed: int = 0) -> None:
    """Shapes and types, finite numbers, no terminated lane that has not ended, and arrays that stay as they were."""
    world = build()
    n, shapes, constraints = world.lanes, world.shapes, len(world.units.budget)
    first = _begin_all_lanes(world, seed)
    require(first.shape == (n, shapes.observation), f"begin must show [{n}, {shapes.observation}], got {first.shape}")
    expected = {
        "observation": ((n, shapes.observation), np.float64),
        "reward": ((n,), np.float64),
        "cost": ((n, constraints), np.float64),
        "sums": ((n, 1 + constraints), np.float64),
        "terminated": ((n,), np.bool_),
        "ended": ((n,), np.bool_),
    }
    kept: list[tuple[Stepped, list[NDArray[Any]]]] = []
    for step in _episode(world, seed):
        for name, (shape, kind) in expected.items():
            array = getattr(step, name)
            require(array.shape == shape and array.dtype == kind, f"{name} must be {list(shape)} of {kind.__name__}")
            require(np.isfinite(array).all(), f"{name} must be finite")
        require((step.ended | ~step.terminated).all(), "a lane has terminated and not ended")
        kept.append((step, [np.array(part) for part in step]))
    for step, copies in kept:
        for part, copy in zip(step, copies, strict=True):
            require(np.array_equal(part, copy), "what an earlier step returned was changed by a later one")


def sums_are_of_the_steps(build: Build, cost_discount: float | None = None, seed: int = 0) -> None:
    """Σ γ^t of what the steps pay, in the declared ranges, and all episodes have ended at the horizon."""
    world = build()
    each = _discounts(world.units, cost_discount)
    _begin_all_lanes(world, seed)
    sums, largest = np.zeros((world.lanes, len(each))), 1.0
    steps = 0
    for t, step in enumerate(_episode(world, seed)):
        paid = np.column_stack([step.reward, step.cost])
        sums += each**t * paid
        largest = max(largest, float(np.abs(sums).max()))
        apart = np.abs(sums - step.sums).max()
        require(apart <= ROUNDING * largest, f"sums are off by {apart:g} from those of the steps, at step {t}")
        steps = t + 1
    require(steps <= world.units.episode_length, f"episodes take {steps} steps of {world.units.episode_length}")
    breach = first_breach(Outcomes(step.sums[:, 0], step.sums[:, 1:]), world.units)
    require(breach == world.lanes, f"the sums of lane {breach} leave the declared ranges")


def ended_lanes_rest(build: Build, seed: int = 0) -> None:
    """They keep their last observation and sums, and pay nothing."""
    world = build()
    _begin_all_lanes(world, seed)
    before = None
    for step in _episode(world, seed):
        if before is not None:
            resting = before.ended
            require(step.ended[resting].all(), "an ended lane goes on although nobody has begun it")
            for name in ("observation", "sums", "terminated"):
                same = np.array_equal(getattr(step, name)[resting], getattr(before, name)[resting])
                require(same, f"{name} of an ended lane must stay as it was")
            nothing = not step.reward[resting].any() and not step.cost[resting].any()
            require(nothing, "an ended lane must earn and pay nothing")
        before = step


def lanes_begin_by_themselves(build: Build, cost_discount: float | None = None, seed: int = 0) -> None:
    """Beginning one lane leaves the others where they are, and counts anew in it alone."""
    world = build()
    _begin_all_lanes(world, seed)
    rng = Stream.SUITE_WORLD_ACTIONS.rng(seed)
    before = world.step(_actions(world, rng))
    one = np.arange(world.lanes) == world.lanes - 1
    shown = world.begin(one, rng)
    require(np.array_equal(shown[~one], before.observation[~one]), "beginning a lane changed what others show")
    after = world.step(_actions(world, rng))
    paid = np.column_stack([after.reward, after.cost])
    expected = np.where(one[:, None], paid, before.sums + _discounts(world.units, cost_discount) * paid)
    require(np.allclose(after.sums[one], expected[one]), "the sums of a new episode must be those of its first step")
    require(np.allclose(after.sums, expected), "beginning a lane changed the sums of others")


def steps_are_reproducible(build: Build, seed: int = 0) -> None:
    """Equal generators and actions give equal steps, in this world begun again and in one built again."""
    world = build()
    first, again, other = (_story(each, seed) for each in (world, world, build()))
    require(_same(first, again), "equal generators gave other steps in the same world")
    require(_same(first, other), "equal generators gave other steps in a world built again")


def refuses_strange_actions(build: Build, seed: int = 0) -> None:
    """Actions of a lane too few."""
    world = build()
    _begin_all_lanes(world, seed)
    few = _actions(world, np.random.default_rng(seed))[:-1]
    require_refusal(lambda: world.step(few), "actions for fewer lanes than there are")


# ------------------------------------------------------------------------------------------------- parts, in call order


def _begin_all_lanes(world: World, seed: int) -> Floats:
    return world.begin(np.ones(world.lanes, np.bool_), np.random.default_rng(seed))


def _episode(world: World, seed: int) -> Iterator[Stepped]:
    """Random actions until all lanes have ended, or one step more than the horizon allows."""
    rng = Stream.SUITE_WORLD_EPISODES.rng(seed)
    for _ in range(world.units.episode_length + 1):
        step = world.step(_actions(world, rng))
        yield step
        if step.ended.all():
            return


def _actions(world: World, rng: np.random.Generator) -> Actions:
    shapes = world.shapes
    if shapes.discrete:
        return rng.integers(shapes.action, size=world.lanes)
    return rng.standard_normal((world.lanes, shapes.action))


def _discounts(units: Units, of_costs: float | None) -> Floats:
    """[1+m]"""
    return np.array([units.discount, *np.full(len(units.budget), units.discount if of_costs is None else of_costs)])


def _story(world: World, seed: int) -> list[NDArray[Any]]:
    """All that an episode in every lane shows."""
    return [_begin_all_lanes(world, seed), *(part for step in _episode(world, seed) for part in step)]


def _same(first: list[NDArray[Any]], second: list[NDArray[Any]]) -> bool:
    return len(first) == len(second) and all(map(np.array_equal, first, second))
