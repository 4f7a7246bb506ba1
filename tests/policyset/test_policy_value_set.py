"""PolicyValueSet: validation on construction."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

from surefoot.cmdp.policy import EpisodeMixture
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.policyset import Entry, PolicyValueSet
from surefoot.tabular.policy import TabularPolicy

UNITS = Units(0.9, (-1.0, 3.0), np.array([[0.0, 10.0], [-2.0, 1.0]]), np.array([1.5, 4.0]))
LEFT, RIGHT = TabularPolicy(np.array([[1.0, 0.0]])), TabularPolicy(np.array([[0.25, 0.75]]))


class Linear:
    """A policy that is not a table."""

    kind = "linear"

    def __init__(self, weights: np.ndarray) -> None:
        self.weights = weights

    def act(self, observation: np.ndarray, step: int, rng: np.random.Generator) -> np.ndarray:
        return observation @ self.weights

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"weights": self.weights}


def entry(**changes: Any) -> Entry:
    fields: dict[str, Any] = {
        "parameter": [0.1],
        "policy": RIGHT,
        "reward": 2.0,
        "margin": [0.5, 0.25],
        "safe_reward": 1.0,
        "safe_margin": [1.0, 2.0],
    }
    return Entry(**{**fields, **changes})


def policy_set(**changes: Any) -> PolicyValueSet:
    fields: dict[str, Any] = {
        "entries": (entry(),),
        "safe_policy": LEFT,
        "units": UNITS,
        "epsilon": 0.01,
        "delta": 0.05,
        "xi": 0.1,
        "task_digest": "ab" * 32,
        "recipe": {},
        "training": {},
    }
    return PolicyValueSet(**{**fields, **changes})


def test_policies_start_with_the_safe_one() -> None:
    policies = policy_set(entries=(entry(policy=RIGHT), entry(policy=LEFT)))
    assert len(policies) == 2
    assert policies.policies == (policies.safe_policy, policies.entries[0].policy, policies.entries[1].policy)


def test_everything_is_read_only_and_copied() -> None:
    margin, recipe, budget = np.array([0.5, 0.25]), {"noise": [0.1, 0.2]}, np.array([1.5, 4.0])
    policies = policy_set(
        entries=[entry(margin=margin)], recipe=recipe, units=dataclasses.replace(UNITS, budget=budget)
    )
    margin[0], budget[0] = 9.0, 9.0
    recipe["noise"].append(0.3)
    assert policies.entries[0].margin.tolist() == [0.5, 0.25]
    assert policies.units.budget.tolist() == [1.5, 4.0]
    assert policies.recipe == {"noise": [0.1, 0.2]}
    for array in (policies.entries[0].margin, policies.units.budget):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        policies.xi = 0.0  # type: ignore[misc]


def test_numpy_scalars_and_tuples_become_plain_data() -> None:
    training = policy_set(training={"n": np.int64(3), "seen": (np.float64(0.5), np.bool_(True)), "of": None}).training
    assert training == {"n": 3, "seen": [0.5, True], "of": None}
    assert type(training["n"]) is int
    assert [type(item) for item in training["seen"]] == [float, bool]


def test_a_set_can_be_sent_to_another_process() -> None:
    policies = policy_set(training={"n": 3})
    assert len(policies.policies) == 2  # cached
    assert pickle.loads(pickle.dumps(policies)).digest() == policies.digest()


def test_any_kind_of_policy_will_do_in_memory() -> None:
    policies = policy_set(entries=[entry(policy=Linear(np.ones((2, 3))))], safe_policy=Linear(np.zeros((2, 3))))
    assert [policy.kind for policy in policies.policies] == ["linear", "linear"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameter": []}, r"parameter must be a vector with at least one number, got shape \[0\]"),
        ({"parameter": [[1.0]]}, r"parameter must be a vector .* got shape \[1, 1\]"),
        ({"parameter": [np.nan]}, r"parameter\[0\] must be finite, got nan"),
        ({"reward": np.inf}, "reward must be finite, got inf"),
        ({"reward": [1.0]}, r"reward must be a number, got shape \[1\]"),
        ({"safe_reward": "much"}, "safe_reward must be an array of numbers, got str"),
        ({"margin": 0.5}, r"margin must be a vector .* got shape \[\]"),
        ({"margin": [0.5, -np.inf]}, r"margin\[1\] must be finite, got -inf"),
        ({"safe_margin": [1.0]}, "margin and safe_margin must have one number per constraint each, got 2 and 1"),
        ({"policy": np.ones((1, 1))}, "policy must be a policy with a kind, act and to_arrays .* got ndarray"),
        ({"policy": EpisodeMixture((LEFT,), np.ones(1))}, "policy must be a policy .* got EpisodeMixture"),
    ],
)
def test_bad_entries_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        entry(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"entries": ()}, "entries must hold at least one Entry, got none"),
        ({"entries": (entry(), 3)}, r"entries\[1\] must be an Entry, got int"),
        ({"entries": (entry(margin=[1.0], safe_margin=[1.0]),)}, r"entries\[0\].margin must have one .* \(2\), got 1"),
        ({"entries": (entry(), entry(parameter=[1, 2]))}, r"entries\[1\].parameter must have as many .* \(1\), got 2"),
        (
            {"entries": (entry(), entry(policy=TabularPolicy(np.ones((2, 1)))))},
            r"entries\[1\].policy must be for \{'states and actions': \[1, 2\]\} as the safe policy, got .*\[2, 1\]",
        ),
        ({"epsilon": None}, r"epsilon, delta and xi must be given all, or None .* got only \['delta', 'xi'\]"),
        ({"names": ("a",)}, "names must be 2 different ones, .* got \\('a',\\)"),
        ({"names": ("a", "a")}, "names must be 2 different ones"),
        ({"names": ("a", "b\n")}, "names must be a printable text"),
        ({"safe_policy": None}, "safe_policy must be a policy .* got NoneType"),
        ({"units": 1}, "units must be a Units, got int"),
        ({"epsilon": 0.0}, "epsilon must lie strictly between 0 and inf, got 0.0"),
        ({"delta": 1.0}, "delta must lie strictly between 0 and 1, got 1.0"),
        ({"xi": -0.1}, "xi must not be negative, .* got -0.1"),
        *(({"safe_risk": wrong}, "safe_risk must be") for wrong in (-0.1, 1.1, np.nan, "much")),
        ({"task_digest": ""}, "task_digest must be a non-empty ASCII string, got ''"),
        ({"recipe": [1]}, "recipe must be a mapping, got list"),
        ({"recipe": {1: 2}}, "recipe must have strings as keys, got 1"),
        ({"recipe": {"a": {"b": [0, np.inf]}}}, r"recipe.a.b\[1\] must be plain JSON data .* got inf of type float"),
        ({"training": {"table": np.ones(2)}}, r"training.table must be plain JSON data .* of type ndarray"),
        ({"training": {"n": 2**63}}, "training.n must be plain JSON data .* of type int"),
        ({"training": {"text": "\ud800"}}, "training.text must be plain JSON data"),
        ({"training": {"\ud800": 1}}, "a key of training must be plain JSON data"),
    ],
)
def test_bad_sets_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        policy_set(**changes)


def test_data_that_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["again"] = loop
    with pytest.raises(InvalidInput, match="must be nested at most 32 levels deep"):
        policy_set(training=loop)
