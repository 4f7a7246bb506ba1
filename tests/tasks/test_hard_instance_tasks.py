"""The instances of the lower bound: their graph, their distances, and optima by linear program and in closed form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.errors import InvalidInput
from surefoot.tabular.distance import distance
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks import HardInstances

NOTED = HardInstances(depth_of_tree=2, epsilon=0.2, xi=0.3, discount=0.97)  # of the notes on the construction


@st.composite
def instances(draw: st.DrawFn) -> HardInstances:
    base = HardInstances(
        depth_of_tree=draw(st.integers(1, 3)),
        epsilon=draw(st.floats(0.05, 0.5)),
        xi=draw(st.floats(0.05, 0.5)),
        discount=draw(st.floats(0.92, 0.99)),
        reward=draw(st.sampled_from([1.0, 0.3])),
    )
    return replace(base, offset=draw(st.sampled_from([None, 0.0, base.largest_offset / 2])))


@given(instances())
def test_there_are_as_many_states_as_the_paper_says_and_tasks_are_as_far_apart(made: HardInstances) -> None:
    tasks = [made.task(index) for index in range(made.tasks)]
    assert tasks[0].n_states == 6 * made.tasks - 1 == 3 * 2 ** (made.depth_of_tree + 1) - 1
    for k, task in enumerate(tasks):
        for other in tasks[:k]:
            assert distance(task, other) == pytest.approx(made.alpha, rel=1e-9)


@given(instances())
def test_the_optimum_is_what_the_linear_program_says(made: HardInstances) -> None:
    for index in range(made.tasks):
        assert made.task(index).optimum() == pytest.approx(made.optimum(index), rel=1e-6)


@given(instances())
def test_every_loop_is_reached_at_its_step_and_the_safe_end_keeps_the_constraint_with_xi_to_spare(
    made: HardInstances,
) -> None:
    """By following single actions: no linear algebra."""
    task = made.task(0)
    rows = np.asarray(task.transitions)
    for gate in range(made.tasks):
        state, bits = 0, [int(bit) for bit in f"{gate:0{made.depth_of_tree}b}"]
        for action in [*bits, 0]:
            state = int(rows[state, action].argmax())
        assert state == 2 * made.tasks - 1 + gate
        assert int(rows[state, 0].argmax()) == state + made.tasks
        assert rows[state + made.tasks, 0, state + made.tasks] == made.going_on(0)[gate]
    avoiding = TabularPolicy(np.tile([0.0, 1.0], (task.n_states, 1)))
    values = task.values(avoiding)
    assert values.reward == 0.0
    assert float(values.margin[0]) == pytest.approx(made.xi)
    entering = task.values(TabularPolicy(np.tile([1.0, 0.0], (task.n_states, 1))))  # gate 0, which has q₁
    q0, q1, _ = made.loops
    kept = (made.b - made.xi) * (1 - made.discount * q0) / (1 - made.discount * q1)
    assert float(entering.margin[0]) == pytest.approx(kept - made.b)


def gap(made: HardInstances) -> float:
    """By how much a task's optimum is above that of task 0, by linear program."""
    return made.task(1).optimum() - made.task(0).optimum()


def test_the_gap_needs_an_offset() -> None:
    """γ = 0.97, m = 2, ζ = 0.3, ε = 0.2, constants 3, 1, 2: the gap is about thirty times as large with the largest
    offset as with the paper's b = 0."""
    assert gap(replace(NOTED, offset=0.0)) == pytest.approx(4.0e-4, rel=0.05)
    assert gap(NOTED) > 30 * gap(replace(NOTED, offset=0.0))
    assert gap(replace(NOTED, offset=0.9 * NOTED.largest_offset)) == pytest.approx(1.22e-2, rel=0.1)
    shallow = replace(NOTED, depth=NOTED.depth_of_tree + 3)
    assert shallow.task(0).optimum() != pytest.approx(NOTED.task(0).optimum(), rel=1e-3), "the depth that is printed"


def test_as_printed_every_reward_is_zero_and_that_is_refused() -> None:
    with pytest.raises(InvalidInput, match="reward must be positive, got 0"):
        replace(NOTED, reward=0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth_of_tree": 0}, "depth_of_tree must be a whole number"),
        ({"discount": 1.0}, "discount must"),
        ({"xi": -0.1}, "xi must be positive"),
        ({"offset": 100.0}, "offset must leave constraint values in"),
        ({"constants": (3.0, 2.0, 1.0)}, "constants must be positive, the second smaller"),
        ({"discount": 0.6}, "constants must be positive"),
    ],
)
def test_what_makes_no_instance_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(NOTED, **change)


def test_they_are_a_family_of_equally_likely_tasks() -> None:
    family = NOTED.family()
    assert len(family.distribution.probes()) == NOTED.tasks
    assert family.task(2).digest() == NOTED.task(2).digest()
    for index in (-1, NOTED.tasks):
        with pytest.raises(InvalidInput, match=r"task must be the index of one, 0\.\.3, got"):
            NOTED.task(index)
