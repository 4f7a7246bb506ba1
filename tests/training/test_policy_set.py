"""Policy sets of given controllers: tables, simulators, and what is refused."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.errors import InvalidInput
from surefoot.methods import BASELINES, METHODS
from surefoot.tabular.policy import TabularPolicy, TimedPolicy
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import family, from_arrays
from surefoot.training.policy_set import _suits_best
from wheel import UNITS, Wheel, wheel_set, wheels

QUICK = sf.Envelopes(cells=4, holdout=39, uncovered=0.2, episodes=80)


def never(observation: Any) -> int:
    return 0


def always(observation: Any) -> int:
    return 1


def low(observation: Any) -> int:
    return int(observation[0] < 0.2)


@cache
def plain() -> sf.PolicyValueSet:
    return made()


def made(**changes: Any) -> sf.PolicyValueSet:
    given = {"safe": never, "candidates": {"low": low, "always": always}, "seed": 3, "envelopes": QUICK}
    return sf.policy_set(wheels(), progress=False, **(given | changes))


def test_controllers_of_a_simulator_get_bounds_names_and_no_cover() -> None:
    policies = plain()
    assert policies.names == ("safe", "low", "always")
    assert policies.units.same_as(UNITS), "those of the tasks"
    assert (policies.epsilon, policies.delta, policies.xi) == (None, None, None)
    assert [policy.kind for policy in policies.policies] == ["own"] * 3
    assert policies.cells is not None
    assert policies.cells.source == "monte-carlo"
    assert policies.safe_risk == 0.2
    for entry, name in zip(policies.entries, ("low", "always"), strict=True):
        assert entry.policy.name == name  # type: ignore[attr-defined]
        assert 0.2 <= entry.parameter[0] <= 1.2
        assert entry.safe_reward == 0
    assert made().digest() == policies.digest()


@pytest.mark.long
def test_several_processes_give_the_same_set() -> None:
    """Functions without a name go to other processes too."""
    changes = {"candidates": {"lambda": lambda observation: int(observation[0] < 0.1)}}
    assert made(jobs=2, **changes).digest() == made(**changes).digest()


def test_certified_runs_on_it_and_methods_that_need_a_cover_refuse() -> None:
    policies = plain()
    run = sf.adapt(policies, wheels().task(0.3), method="certified", risk=0.5, episodes=300, seed=0)
    assert run.events[0].message.startswith("certified-returns, since ")
    assert run.weight.max() > 0
    assert run.unsafe_episodes == 0
    for name, spec in METHODS.items():
        if spec.needs_cover:
            with pytest.raises(InvalidInput, match=f"method '{name}' needs a policy set that train made"):
                sf.learner(policies, method=name, episodes=100, risk=0.5)
    refused = {name for name, spec in METHODS.items() if spec.needs_cover}
    assert {"paper", "published", "pce", "pce-theory", *BASELINES} == refused
    lines = {line.method: line for line in sf.plan(policies, episodes=100)}
    assert "not possible: method 'paper' needs a policy set that train made" in lines["paper"].reason


def test_what_safe_only_claims_without_a_cover_is_what_the_cells_say() -> None:
    policies = plain()
    assert policies.cells is not None
    account = sf.learner(policies, method="safe-only", risk=0.5).certificate()
    np.testing.assert_array_equal(account.margin, policies.cells.lower[:, 0, 1:].min(axis=0))
    bare = made(envelopes=sf.Envelopes(cells=0, holdout=39, uncovered=0.2, episodes=80))
    assert bare.cells is None
    assert bare.safe_risk is not None
    assert sf.learner(bare, method="safe-only", risk=0.5).certificate().margin is None


def test_candidates_in_order_are_numbered_unless_they_have_a_name() -> None:
    """One of them a network: wheels want whole numbers, which networks do not return, and rounded they do."""
    network = MLPPolicy((np.zeros((1, 2)),), (np.zeros(1),), np.zeros(1), np.zeros(2), np.ones(2))

    def rounded(observation: Any, rng: np.random.Generator) -> int:
        return int(network.act(observation, 0, rng)[0] > 1)

    safe, fast = sf.controller(never, name="off"), sf.controller(always, name="full speed")
    policies = made(candidates=[rounded, fast], safe=safe)
    assert policies.names == ("off", "candidate 1", "full speed")


def test_an_unsafe_safe_controller_is_refused_with_where_and_by_how_much() -> None:
    tasks = family(lambda parameter: Wheel(float(parameter[0])), Uniform(1.1, 1.2))
    with pytest.raises(InvalidInput, match=r"safe must keep the budget on most tasks, got 'safe', which breaks .*1\.5"):
        sf.policy_set(tasks, safe=always, candidates=[never], seed=0, envelopes=QUICK, progress=False)


def test_too_few_episodes_to_show_that_the_safe_controller_is_safe() -> None:
    few = sf.Envelopes(cells=4, holdout=39, uncovered=0.2, episodes=2)
    with pytest.raises(InvalidInput, match=r"must leave .* On 16 tasks tried 'safe' seems to keep the budget on 16"):
        made(envelopes=few)


def test_a_generator_of_its_own_is_told() -> None:
    hidden = np.random.default_rng()
    with pytest.warns(UserWarning, match="'dice' draws its actions from a generator of its own"):
        policies = made(candidates={"dice": lambda o: int(hidden.integers(2))})
    assert policies.entries[0].policy.fingerprint is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"candidates": []}, "candidates must hold at least one controller, got none"),
        (
            {"candidates": low},
            r"candidates must be controllers by name or in a list, got function: for one alone, \[it\]",
        ),
        ({"candidates": {"safe": low}}, "controllers must have different names, got 'safe' twice"),
        ({"candidates": {"a\n": low}}, "name must be a printable text"),
        ({"candidates": [3]}, "controller 'candidate 1' must be f"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"jobs": 0}, "jobs must be"),
    ],
)
def test_bad_calls_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        made(**changes)
    with pytest.raises(InvalidInput, match=r"tasks must be a task distribution, .* got Wheel"):
        sf.policy_set(Wheel(0.3), safe=never, candidates=[low], seed=0)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------------------- tables


def chain(slip: float) -> sf.TabularCMDP:
    """Three states in a ring; action 1 moves on unless it slips, and costs in state 2."""
    transitions = np.zeros((3, 2, 3))
    for state in range(3):
        transitions[state, 0, state] = 1
        transitions[state, 1, (state + 1) % 3] = 1 - slip
        transitions[state, 1, state] += slip
    reward = np.array([[0.0, 1.0]] * 3)
    cost = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    return sf.TabularCMDP(transitions, reward, cost, 2.0, np.array([1.0, 0, 0]), 0.9, (0, 1), (0, 1))


def test_on_tables_everything_becomes_a_table_with_exact_values() -> None:
    tasks = from_arrays([chain(slip) for slip in (0.0, 0.2, 0.5)])
    candidates = {
        "function": lambda state: int(state == 0),
        "probabilities": np.full((3, 2), 0.5),
        "actions": [1, 1, 1],
        "policy": TabularPolicy(np.eye(2)[[1, 0, 0]]),
        "clock": TimedPolicy(np.stack([np.eye(2)[[1, 1, 1]], np.eye(2)[[0, 0, 0]]])),
    }
    policies = sf.policy_set(tasks, safe=lambda state: 0, candidates=candidates, seed=0, progress=False)
    assert [policy.kind for policy in policies.policies] == ["tabular"] * 5 + ["timed"]
    np.testing.assert_array_equal(policies.policies[1].probabilities, np.eye(2)[[1, 0, 0]])  # type: ignore[attr-defined]
    assert policies.cells is not None
    assert policies.cells.source == "finite"
    for index, policy in enumerate(policies.policies):
        for cell, slip in enumerate((0.0, 0.2, 0.5)):
            exact = sf.evaluate(chain(slip), policy)  # type: ignore[arg-type]
            np.testing.assert_allclose(policies.cells.lower[cell, index], [exact.reward, *exact.margin], atol=1e-8)
    for entry in policies.entries:
        exact = sf.evaluate(tasks.task(entry.parameter), entry.policy)  # type: ignore[arg-type]
        np.testing.assert_allclose([entry.reward, *entry.margin], [exact.reward, *exact.margin])


@pytest.mark.parametrize(
    ("controller", "message"),
    [
        (lambda state: 2, r"actions of controller 'it' must lie in \[0, 2\), got 2"),
        (lambda state: 0.5, "must have one action 0, 1, ... for each of 3 states, got type float64"),
        (lambda state, rng: int(rng.integers(2)), "got one that draws its actions; give probabilities"),
        (lambda state, step: 0, "must not look at the step where tables have no horizon"),
        (np.full((2, 2), 0.5), "policy must"),
        ([0, 1], "must have one action .* for each of 3 states"),
    ],
)
def test_tables_refuse_what_is_no_table(controller: Any, message: str) -> None:
    tasks = from_arrays([chain(0.1)])
    with pytest.raises(InvalidInput, match=message):
        sf.policy_set(tasks, safe=lambda s: 0, candidates={"it": controller}, seed=0, progress=False)


# ------------------------------------------------------------------------------------------- what a candidate is for


def test_a_candidate_stands_for_the_task_where_it_is_ahead_of_all_that_are_feasible() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        values = rng.normal(size=(5, 4, 3))
        chosen = _suits_best(values, 2)
        scores = []
        for task in range(5):
            feasible = [p for p in range(4) if (values[task, p, 1:] >= 0).all()]
            if 2 in feasible:
                others = [values[task, p, 0] for p in feasible if p != 2]
                scores.append((values[task, 2, 0] - max(others) if others else np.inf, task))
        if scores:
            assert (max(score for score, _ in scores), chosen) in scores
        else:
            assert chosen == np.argmax(values[:, 2, 1:].min(axis=1))


def by_hand(push: float, name: str, episodes: int, rng: np.random.Generator) -> np.ndarray:
    """[2] mean reward and margin of the wheel's controllers, written a second time and without them."""
    angle, reward, cost = np.zeros(episodes), np.zeros(episodes), np.zeros(episodes)
    for step in range(6):
        action = {
            "rest": np.zeros(episodes),
            "careful": 1.0 * (angle < 0.2),
            "every second": np.full(episodes, step % 2),
        }
        reward += action[name]
        angle = 0.5 * angle + push * action[name] + 0.2 * rng.normal(size=episodes)
        cost += np.abs(angle) > 1
    return np.array([reward.mean(), 1.5 - cost.mean()])


def test_bounds_hold_for_fresh_tasks_computed_by_hand() -> None:
    """Of 40 fresh tasks at most as many break their cell's bounds as probability 0.2 lets expect."""
    policies, rng = wheel_set(), np.random.default_rng(11)
    cells = policies.cells
    assert cells is not None
    broken = 0
    for push in rng.uniform(0.2, 1.2, 40):
        cell = int(np.argmin(np.abs(cells.low[:, 0] - push)))
        true = np.array([by_hand(push, name, 4000, rng) for name in policies.names or ()])
        noise = 0.1
        broken += bool((true < cells.lower[cell] - noise).any() or (true > cells.upper[cell] + noise).any())
    assert broken <= 8
    middle = (cells.lower + cells.upper) / 2
    near = np.array([[by_hand(low, name, 4000, rng) for name in policies.names or ()] for low in cells.low[:, 0]])
    assert np.abs(middle - near).max() < 2.5  # and they are about the controllers of that name
    for entry, name in zip(policies.entries, (policies.names or ())[1:], strict=True):
        np.testing.assert_allclose(
            [entry.reward, *entry.margin], by_hand(entry.parameter[0], name, 9000, rng), atol=0.7
        )
