"""What `layers` may be said of: every part of the structure is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from random_tasks import random_distributions, seeds
from surefoot.bounds.exact import finite_cells
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.known import KnownModel, check_layers
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.transition_model import ball_model
from surefoot.tasks import factored, inventory, media
from surefoot.tasks.layered_tasks import layered
from surefoot.tasks.task_distribution import from_arrays

STATES, HORIZON = 3, 4


def model_of(*tasks: TabularCMDP) -> KnownModel:
    model = ball_model(tasks, np.zeros(len(tasks)))
    assert model is not None
    assert model.reward is not None
    assert model.cost is not None
    return KnownModel(model.class_table, model.reward, model.cost, model.start)


def dense_task() -> TabularCMDP:
    """Seven states, every transition possible, discounted: 7 - 1 is divisible by 2, nothing else speaks of layers."""
    rng = np.random.default_rng(0)
    reward, cost = rng.random((7, 2)), np.stack([np.zeros(7), rng.random(7)], axis=1)
    return TabularCMDP(random_distributions(rng, (7, 2, 7)), reward, cost, 1.0, np.full(7, 1 / 7), 0.9)


@pytest.mark.parametrize("name", ["dope-theory", "optpess-lp-theory", "dope-published", "dope-plus-theory"])
def test_a_task_without_layers_is_refused(name: str) -> None:
    """Planned as two steps of three states, it breaks its budget in most episodes; it was once called certified."""
    task = dense_task()
    safe = TabularPolicy(np.eye(2)[np.zeros(7, dtype=np.int64)])
    values = evaluate(task, safe)
    entry = Entry(np.zeros(1), safe, values.reward, values.margin, values.reward, values.margin)
    cells = finite_cells(from_arrays([task]), [safe, safe])
    policies = PolicyValueSet((entry,), safe, task.units, 0.1, 0.1, 0.01, "made up", {}, {}, cells)
    with pytest.raises(
        InvalidInput, match=r"layers must be left out unless .* got 2 and a possible transition from state 0"
    ):
        learner(policies, method=name, episodes=1000, risk=0.1, horizon=50, layers=2)


# What is changed in a layered task of 4 layers, 3 states each, and what is said of it.
DAMAGE: dict[str, tuple[str, Any, Any, str]] = {
    "a layer is skipped": (
        *("transitions", (4, 1), np.eye(13)[10]),
        "a possible transition from state 4 under action 1 to state 10, which is not in the layer that follows",
    ),
    "the last layer begins again": (
        *("transitions", (11, 0), np.eye(13)[0]),
        "a possible transition from state 11 under action 0 to state 0",
    ),
    "the end is left": (
        *("transitions", (12, 1), np.eye(13)[3]),
        "a possible transition from state 12 under action 1 to state 3",
    ),
    "layers differ": (
        *("transitions", (6, 0, slice(9, 12)), [0.3, 0.3, 0.4]),
        "a transition from state 6 under action 0 to state 9 unlike that of the first layer",
    ),
    "a late start": ("start", [0, 5], 0.5, "an episode that starts in state 5, beyond the first layer"),
    "costs that do not grow": ("cost", (0, 8, 1), 1.0, r"cost\[8, 1\] = 1 where"),
    "a reward of one step only": ("reward", (3, 0), 0.5, r"reward\[3, 0\] = 0.5 where 1.33333 makes"),
    "a cost at the end": ("cost", (0, 12, 0), 0.25, r"cost\[12, 0\] = 0.25 where 0 makes"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_every_part_of_the_structure_is_checked(what: str) -> None:
    name, place, value, message = DAMAGE[what]
    transitions = random_distributions(np.random.default_rng(1), (STATES, 2, STATES))
    task = layered(transitions, np.eye(STATES, 2), 2 * np.eye(STATES, 2, 1), 2.0, np.eye(STATES)[0], HORIZON)
    check_layers(model_of(task), task.discount, HORIZON)
    arrays = {each: np.array(getattr(task, each)) for each in ("transitions", "reward", "cost", "start")}
    arrays[name][place] = value
    damaged = TabularCMDP(**arrays, budget=task.budget, discount=task.discount)
    with pytest.raises(InvalidInput, match=message):
        check_layers(model_of(damaged), task.discount, HORIZON)


@settings(max_examples=20)
@given(seed=seeds)
def test_layered_tasks_are_accepted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    states, horizon = int(rng.integers(1, 4)), int(rng.integers(2, 9))
    transitions = random_distributions(rng, (states, 2, states), 0.6)
    reward, cost = rng.normal(size=(states, 2)), rng.normal(size=(states, 2))
    task = layered(
        transitions, reward, cost, 1.0, random_distributions(rng, (states,)), horizon, rng.uniform(0.3, 0.99)
    )
    model = model_of(task)
    check_layers(model, task.discount, horizon)
    with pytest.raises(InvalidInput, match="layers must be"):
        check_layers(model, task.discount, horizon + 1)


@pytest.mark.parametrize(("family", "steps"), [(factored, 6), (media, 10), (inventory, 7)])
def test_the_benchmarks_have_their_layers(family: Callable[[], Any], steps: int) -> None:
    tasks = family()
    low, high = tasks.distribution.support[0]
    ends = [tasks.task(parameter) for parameter in (low, (low + high) / 2, high)]
    check_layers(model_of(*ends), ends[0].discount, steps)
