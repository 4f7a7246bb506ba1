"""Algorithm 4 (PCE) against a plain transcription, with the paper's radii and with those behind its figure."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from contracts.made_up import made_up_set
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.units import Units
from surefoot.learning.learner import Learner
from surefoot.learning.method import SAFE
from surefoot.learning.paper.algorithm_2 import SafeCandidates
from surefoot.learning.paper.constants import PaperRules, Rules
from surefoot.learning.paper.published import PUBLISHED_ELIMINATION, EliminationRules
from surefoot.policyset.policy_value_set import PolicyValueSet

EPSILON = 1e-3

Radius = Callable[[int], tuple[float, list[float]]]


def algorithm_4(
    policies: PolicyValueSet, outcomes: list[tuple[float, list[float]]], radius: Radius, least: int
) -> list[tuple[int, int]]:
    """(episode, candidate) of every elimination: the best one left runs until a mean strays from its promise."""
    left = dict(enumerate(policies.entries))
    eliminated, first = [], 1
    for k in range(1, len(outcomes) + 1):
        if not left:
            break
        best = max(left, key=lambda j: left[j].reward)
        n = k - first + 1
        window = outcomes[first - 1 : k]
        allowed, allowed_margin = radius(n)
        off = abs(math.fsum(r for r, _ in window) / n - left[best].reward) > allowed
        for i, budget in enumerate(policies.units.budget.tolist()):
            seen = budget - math.fsum(c[i] for _, c in window) / n
            off = off or abs(seen - left[best].margin[i]) > allowed_margin[i]
        if off and n >= least:
            del left[best]
            eliminated.append((k, best))
            first = k + 1
    return eliminated


def random_set(rng: np.random.Generator) -> tuple[PolicyValueSet, np.ndarray, np.ndarray]:
    """A set in the gridworld's units whose candidates promise too much, the best ones most; and the true means."""
    m, n = int(rng.integers(1, 3)), 5
    units = Units(0.9, (0.0, 10.0), np.tile([0.0, 10.0], (m, 1)), np.full(m, 1.5))
    reward, cost = 45 + rng.uniform(0, 3, n + 1), rng.uniform(0.5, 2.0, (n + 1, m))
    values = [
        (
            (reward[1 + k] + 9 * k * rng.random()) / 10,
            (1.5 - cost[1 + k] + k * rng.uniform(-1, 1, m)) / 10,
            4.0,
            [0.1] * m,
        )
        for k in range(n)
    ]
    return made_up_set(units, values, epsilon=EPSILON), reward, cost


def run(
    policies: PolicyValueSet, rules: Rules, reward: np.ndarray, cost: np.ndarray, rng: np.random.Generator
) -> tuple[Learner, list[tuple[float, list[float]]]]:
    learner = Learner(SafeCandidates(policies, rules), seed=1)
    outcomes: list[tuple[float, list[float]]] = []
    while len(outcomes) < 1500:
        orders = learner.ask_block(int(rng.integers(1, 300)))
        if learner.state.method.alive:
            assert set(orders.drawn.tolist()) == {learner.state.method.alive[0] + 1}, "a candidate runs outright"
        else:
            assert set(orders.drawn.tolist()) == {SAFE}
        n = len(orders.drawn)
        rewards = np.clip(reward[orders.drawn] + rng.uniform(-20, 20, n), 0, 100)
        costs = np.clip(cost[orders.drawn] + rng.uniform(-1, 1, (n, cost.shape[1])), 0, None)
        used = learner.tell_block(orders, Outcomes(rewards, costs))
        outcomes += list(zip(rewards[:used].tolist(), costs[:used].tolist(), strict=True))
    return learner, outcomes


def published_radius(constraints: int) -> Radius:
    return lambda n: (math.sqrt(3000 / n) + 8 * 0.1, [math.sqrt(600 / n) + 0.1] * constraints)


def theory_radius(constraints: int, K: int, delta: float, phases: int) -> Radius:
    """Discounted sums span 100; r = reward/10 and c = (0.15 - cost)/10, so a unit-scale error counts ten times."""
    L = 1 / 0.1 + 1.8 / 0.01
    log = math.log(2 * (1 + constraints) * K * phases / delta)

    def radius(n: int) -> tuple[float, list[float]]:
        allowed = 100 * math.sqrt(log / (2 * n)) + 10 * EPSILON * (L + 1)
        return allowed, [allowed] * constraints

    return radius


def test_published_constants_eliminate_as_the_pseudo_code_does() -> None:
    total = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        policies, reward, cost = random_set(rng)
        learner, outcomes = run(policies, PUBLISHED_ELIMINATION, reward, cost, rng)
        total += agree(learner, algorithm_4(policies, outcomes, published_radius(cost.shape[1]), least=100))
    assert total >= 20


def test_theory_constants_eliminate_as_the_pseudo_code_does() -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        policies, _, cost = random_set(rng)
        paper = PaperRules(policies, 50, 0.5)
        phases = sum(paper.steps(entry) + 1 for entry in policies.entries)
        # The ranges are so wide that only rewards far below every promise are seen within the test.
        learner, outcomes = run(policies, EliminationRules(policies, 50, 0.5), np.full(6, 20.0), cost, rng)
        agree(learner, algorithm_4(policies, outcomes, theory_radius(cost.shape[1], 50, 0.5, phases), least=1))
        assert learner.events[-1].kind == "exhausted"


def agree(learner: Learner, expected: list[tuple[int, int]]) -> int:
    assert [(e.episode, e.data["candidate"]) for e in learner.events if e.kind == "eliminated"] == expected
    assert {event.kind for event in learner.events} <= {"eliminated", "exhausted"}, "there is no weight to raise"
    return len(expected)


def test_neither_set_of_constants_claims_safety() -> None:
    policies, _, _ = random_set(np.random.default_rng(0))
    assert not PUBLISHED_ELIMINATION.certified
    assert not EliminationRules(policies, 100, 0.1).certified


def test_theory_constants_are_those_of_algorithm_2() -> None:
    policies, _, _ = random_set(np.random.default_rng(0))
    paper = PaperRules(policies, 100, 0.1)
    outright = EliminationRules(policies, 100, 0.1)
    counts = np.array([1, 7, 1000])
    assert outright.reward_radius(counts).tolist() == paper.reward_radius(counts).tolist()
    assert outright.margin_radius(counts).tolist() == paper.margin_radius(counts).tolist()
