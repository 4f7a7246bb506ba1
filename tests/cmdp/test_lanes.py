"""Controllers that draw once for several episodes are found out; those that do not are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import surefoot as sf
from random_tasks import seeds
from surefoot.arrays import Floats
from surefoot.cmdp.external_policy import ASKED, LANES, check_lanes, sharing_lanes
from surefoot.errors import InvalidInput
from surefoot.tasks.task_distribution import from_arrays
from wheel import Wheel

Draw = Callable[[np.random.Generator, int], Any]  # (rng, n) -> n numbers in [0, 1), drawn in one way or another
OBSERVATIONS = np.linspace(-1, 1, 8).reshape(4, 2)
HIDDEN = np.random.default_rng(5)


def each(rng: np.random.Generator, number: int) -> Floats:
    return rng.random(number)


def for_each_pair(rng: np.random.Generator, number: int) -> Floats:
    return np.repeat(rng.random(number), 2)[:number]


SHARED: dict[str, Draw] = {
    "one for all": lambda rng, number: rng.random(),
    "one for each half": lambda rng, number: rng.random(2)[np.arange(number) * 2 // number],
    "one for each pair": for_each_pair,
    "one for the first three": lambda rng, number: np.where(np.arange(number) < 3, rng.random(), rng.random(number)),
    "from a generator of its own": lambda rng, number: HIDDEN.random(),
}
LAWS: dict[str, Callable[[NDArray[Any], Any], Any]] = {
    "a coin": lambda o, u: np.full(len(o), u < 0.5).astype(int),
    "three actions": lambda o, u: np.full(len(o), np.digitize(u, [0.2, 0.9])),
    "a force": lambda o, u: o[:, 0] + u,
    "clipped": lambda o, u: np.full(len(o), np.clip(3 * u - 1, 0, 1)),
    "small numbers": lambda o, u: 1e-3 * (u + np.zeros(len(o))),
    "one of two forces": lambda o, u: np.column_stack([o[:, 0] ** 2, o[:, 1] + u]),
    "rounded differently": lambda o, u: (o[:, 0] + u) * (1 + 1e-12 * np.arange(len(o))),
    "only where it matters": lambda o, u: np.where(o[:, 0] > 0.7, u < 0.3, 1).astype(int),
    "rarely": lambda o, u: np.full(len(o), u < 0.1).astype(int),
}


def drawing(law: str, draw: Draw) -> sf.Controller:
    def act(observations: NDArray[Any], rng: np.random.Generator) -> Any:
        return LAWS[law](observations, draw(rng, len(observations)))

    return sf.controller(act, name="it", vectorised=True)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("draw", SHARED)
def test_shared_draws_are_refused(law: str, draw: str) -> None:
    if law == "rarely" and draw not in ("one for all", "one for each half", "from a generator of its own"):
        pytest.skip("a few lanes that share what happens rarely look like chance")
    with pytest.raises(InvalidInput, match=r"'it' must draw for each observation .* draw len\(observations\) numbers"):
        check_lanes(drawing(law, SHARED[draw]), OBSERVATIONS)


@pytest.mark.parametrize("law", LAWS)
def test_draws_of_their_own_are_not(law: str) -> None:
    check_lanes(drawing(law, each), OBSERVATIONS)
    check_lanes(drawing(law, lambda rng, number: HIDDEN.random(number)), OBSERVATIONS)
    check_lanes(drawing(law, lambda rng, number: 0.3), OBSERVATIONS)


class Remembering:
    """Does what it drew in the first step of the episode, one for all or not, and nothing in that step itself."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw

    def predict(
        self,
        observation: Any,
        rng: np.random.Generator,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, Any]:
        number = len(observation)
        return (np.zeros(number), self.draw(rng, number) + np.zeros(number)) if state is None else (state, state)


def test_what_is_remembered_of_a_shared_draw_is_found_out() -> None:
    check_lanes(sf.controller(Remembering(each), name="it"), OBSERVATIONS)
    with pytest.raises(InvalidInput, match="got the same draws for 64 of 64"):
        check_lanes(sf.controller(Remembering(SHARED["one for all"]), name="it"), OBSERVATIONS)


@given(seeds, st.floats(-9, 0), st.integers(2, 6))
def test_chance_is_never_taken_for_sharing(seed: int, rare: float, values: int) -> None:
    """Independent draws of few actions, one or all of them rare, or none."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(values, np.exp(rare)))
    for law in (weights, np.append(1 - 2.0 ** (rare - 1), np.full(values, 2.0 ** (rare - 1) / values))):
        assert sharing_lanes(rng.choice(len(law), p=law, size=(ASKED, LANES)).astype(float)) == 1


def test_lanes_that_differ_and_nothing_else_share_nothing() -> None:
    """As rounding may differ from lane to lane."""
    assert sharing_lanes(np.tile(np.repeat([0.0, 1.0], LANES // 2), (ASKED, 1))) == 1
    assert sharing_lanes(1 + 1e-7 * np.random.default_rng(0).random((ASKED, 1)).repeat(LANES, 1)) == 1


@pytest.mark.parametrize("seed", range(2))
def test_no_set_is_made_of_a_controller_that_draws_once_for_all(seed: int) -> None:
    """Simulated episodes of it agree with each other, not with its values."""
    tasks = from_arrays([Wheel(0.9), Wheel(1.0)])
    with pytest.raises(InvalidInput, match="'bold' must draw for each observation by itself"):
        sf.policy_set(
            tasks,
            safe=lambda observation: 0,
            candidates={"bold": drawing("a coin", SHARED["one for all"])},
            seed=seed,
            progress=False,
        )
