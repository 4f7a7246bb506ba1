"""Algorithm 2 against plain transcriptions of it, one episode at a time, and the corners of its constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.made_up import made_up_set
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.units import Units
from surefoot.learning.learner import Learner
from surefoot.learning.method import SAFE
from surefoot.learning.paper.algorithm_2 import SafeCandidates
from surefoot.learning.paper.constants import PaperRules, Rules
from surefoot.learning.paper.published import PUBLISHED, PooledCandidates
from surefoot.policyset.policy_value_set import PolicyValueSet

# ----------------------------------------------------------------------- Algorithm 2 as the paper writes it, unit scale


@dataclass
class Tuple:
    """(u, v, u_s, v_s) in unit scale; v and v_s have one number per constraint."""

    u: float
    v: list[float]
    u_s: float
    v_s: list[float]


def algorithm_2(
    candidates: list[Tuple],
    episodes: list[tuple[float, list[float]]],
    *,
    K: int,
    delta: float,
    epsilon: float,
    gamma: float,
    reward_width: float,
    width: list[float],
    worst: float,
) -> tuple[list[tuple], list[tuple]]:
    """Decisions (k, what, candidate, weight) and deployed (candidate, weight) per episode, given all (R_k, C_k).

    The paper's pseudo-code with the repairs: C_l with ε and weights by the recursion (E1, E2), union over all phases
    (E4), phases counted by k-k₀+1, safe policy once nobody is left (E12), candidates without margin never raised (E13);
    several constraints by the smallest margin, true ranges `reward_width` of r, `width` of c and `worst` of -V_c.
    """
    L = 1 / (1 - gamma) + 2 * gamma / (1 - gamma) ** 2

    def m_of(j: int) -> int:
        v_s = min(candidates[j].v_s)
        if v_s <= 2 * epsilon * (L + 2) or min(candidates[j].v) < -epsilon:
            return 0
        C_l = (2 * v_s + (4 * L + 9) * epsilon) / (3 * v_s)
        m = 0
        while C_l < 1 and C_l**m > epsilon:
            m += 1
        return m

    phases = 0
    for j in range(len(candidates)):
        phases += m_of(j) + 1
    log = math.log(2 * (1 + len(width)) * K * phases / delta)

    def hoeffding(n: int, w: float) -> float:
        return w * math.sqrt(log / (2 * n)) / (1 - gamma)

    decisions, deployed = [], []
    left = list(range(len(candidates)))
    k_0, m, alpha, R, C = 1, 0, 0.0, 0.0, [0.0] * len(width)
    for k in range(1, len(episodes) + 1):
        if not left:
            deployed.append((None, 0.0))
            continue
        j = left[0]
        for other in left:
            if candidates[other].u > candidates[j].u:
                j = other
        deployed.append((j, alpha))
        u_lm = alpha * candidates[j].u + (1 - alpha) * candidates[j].u_s
        v_lm = [alpha * v + (1 - alpha) * v_s for v, v_s in zip(candidates[j].v, candidates[j].v_s, strict=True)]
        R += episodes[k - 1][0]
        for i in range(len(width)):
            C[i] += episodes[k - 1][1][i]
        n = k - k_0 + 1
        violated = abs(R / n - u_lm) > hoeffding(n, reward_width) + epsilon * (L + 1)
        for i in range(len(width)):
            violated = violated or abs(C[i] / n - v_lm[i]) > hoeffding(n, width[i]) + epsilon * (L + 1)
        long_enough = True
        for i in range(len(width)):
            long_enough = long_enough and v_lm[i] > 0 and hoeffding(n, width[i]) <= v_lm[i] / 4
        if violated:
            decisions.append((k, "eliminated", j, alpha))
            left.remove(j)
            if not left:
                decisions.append((k, "exhausted", None, 0.0))
            k_0, m, alpha, R, C = k + 1, 0, 0.0, 0.0, [0.0] * len(width)
        elif long_enough and m < m_of(j):
            v_s = min(candidates[j].v_s)
            if m == 0:
                gain = v_s - 2 * epsilon * (L + 2)
                alpha = gain / (gain + 2 * worst)
            else:
                alpha = max(alpha, 3 * v_s * alpha / ((2 + alpha) * v_s + (4 * L + 9) * epsilon))
            k_0, m, R, C = k + 1, m + 1, 0.0, [0.0] * len(width)
            decisions.append((k, "weight", j, alpha))
    return decisions, deployed


# ----------------------------------------------------------------------------------------- the learner on made-up truth


@dataclass
class Truth:
    """True means of every policy (safe first) in the user's units, and the size of the noise around them."""

    reward: np.ndarray  # [1+n]
    cost: np.ndarray  # [1+n, m]
    noise: float
    cost_noise: np.ndarray  # [m]


def run(
    policies: PolicyValueSet, rules: Rules, truth: Truth, rng: np.random.Generator, episodes: int, block: int = 50
) -> tuple[Learner, list[tuple[float, list[float]]], list[tuple]]:
    """The learner, the outcomes it was told, in the user's units, and what it deployed in each episode."""
    made = PooledCandidates if rules is PUBLISHED else SafeCandidates
    learner = Learner(made(policies, rules), seed=int(rng.integers(1000)))
    outcomes: list[tuple[float, list[float]]] = []
    deployed: list[tuple] = []
    units = policies.units
    while len(outcomes) < episodes:
        orders = learner.ask_block(min(block, episodes - len(outcomes)))
        n = len(orders.drawn)
        reward = truth.reward[orders.drawn] + truth.noise * rng.uniform(-1, 1, n)
        cost = truth.cost[orders.drawn] + truth.cost_noise * rng.uniform(-1, 1, (n, truth.cost.shape[1]))
        reward, cost = np.clip(reward, *units.reward_value_range), np.clip(cost, *units.cost_value_range.T)
        used = learner.tell_block(orders, Outcomes(reward, cost))
        outcomes += list(zip(reward[:used].tolist(), cost[:used].tolist(), strict=True))
        candidate = [index - 1 for index in orders.deployed.indices.tolist() if index != SAFE]
        weight = float(orders.deployed.weights[orders.deployed.indices != SAFE].sum())
        deployed += [(candidate[0] if candidate else None, weight)] * used
    assert not learner.state.voided
    return learner, outcomes, deployed


def decisions(learner: Learner) -> list[tuple]:
    return [
        (event.episode, event.kind, event.data.get("candidate"), event.data.get("weight", 0.0))
        for event in learner.events
    ]


def agree(learner: Learner, deployed: list[tuple], expected: tuple[list[tuple], list[tuple]]) -> None:
    """The same decisions at the same episodes, the same deployments; weights up to rounding."""
    found = decisions(learner)
    assert [each[:3] for each in found] == [each[:3] for each in expected[0]]
    assert [each[3] for each in found] == pytest.approx([each[3] for each in expected[0]], rel=1e-12, abs=1e-15)
    # At weight 0 the candidate under test is nobody's business: the safe policy runs.
    assert [c for c, _ in deployed] == [c if weight > 0 else None for c, weight in expected[1]]
    assert [weight for _, weight in deployed] == pytest.approx([w for _, w in expected[1]], rel=1e-12, abs=1e-15)


def in_unit_scale(
    policies: PolicyValueSet, outcomes: list[tuple[float, list[float]]], ends: bool
) -> tuple[list[Tuple], list[tuple[float, list[float]]], dict[str, Any]]:
    """Candidates, episodes, and widths of r and c with V₋, from r = (reward - low)/range and c = ((1-γ)·budget -
    cost)/scale; where episodes may end a step may also pay 0."""
    units, gamma = policies.units, policies.units.discount
    low, high = units.reward_range
    scale, width, worst = [], [], []
    for (least, most), b in zip(units.cost_range.tolist(), units.budget.tolist(), strict=True):
        even = (1 - gamma) * b
        scale.append(max(most - least, abs(even - least), abs(most - even)))
        paid = [least, most, 0.0] if ends else [least, most]
        width.append((max(paid) - min(paid)) / scale[-1])
        worst.append(max(0.0, (max(paid) - even) / (1 - gamma)) / scale[-1])
    earned = [low, high, 0.0] if ends else [low, high]
    ranges = {"reward_width": (max(earned) - min(earned)) / (high - low), "width": width, "worst": max(worst)}

    def reward(value: float) -> float:
        return (value - low / (1 - gamma)) / (high - low)

    def margin(values: Any) -> list[float]:
        return [float(value) / s for value, s in zip(values, scale, strict=True)]

    candidates = [
        Tuple(reward(e.reward), margin(e.margin), reward(e.safe_reward), margin(e.safe_margin))
        for e in policies.entries
    ]
    episodes = [(reward(R), margin(units.budget - np.array(C))) for R, C in outcomes]
    return candidates, episodes, ranges


def random_case(rng: np.random.Generator) -> tuple[PolicyValueSet, Truth, int, float]:
    """A set with short phases, some of whose values are wrong, the truth, K and δ."""
    gamma, m, n = float(rng.uniform(0.02, 0.15)), int(rng.integers(1, 4)), int(rng.integers(1, 6))
    reward_low = float(rng.uniform(-5, 5))
    reward_range = (reward_low, reward_low + float(rng.uniform(0.5, 9)))
    low = rng.uniform(-3, 3, m)
    high = low + rng.uniform(0.5, 9, m)
    even = low + (high - low) * rng.uniform(0.6, 1.1, m)  # the even spending rate, near the top: large margins
    units = Units(gamma, reward_range, np.stack([low, high], axis=1), even / (1 - gamma))

    # True values, as shares of what is possible: the safe policy spends little, candidates more.
    reward_share = np.append(rng.uniform(0.1, 0.4), rng.uniform(0.3, 0.9, n))
    spent = np.concatenate([rng.uniform(0.0, 0.15, (1, m)), rng.uniform(0.1, 0.6, (n, m))])
    reward = (reward_range[0] + (reward_range[1] - reward_range[0]) * reward_share) / (1 - gamma)
    cost = (low + (high - low) * spent) / (1 - gamma)
    truth = Truth(reward, cost, 0.1 * (reward_range[1] - reward_range[0]), 0.1 * (high - low))

    unit_reward, unit_margin = units.unit_reward_value(reward), units.unit_margin(units.budget - cost)
    wrong = rng.choice(3, n, p=[0.3, 0.4, 0.3])  # right; wrong about itself; wrong about the safe policy, too
    values = [
        (
            unit_reward[1 + k] + (wrong[k] > 0) * rng.uniform(-0.4, 0.4),
            unit_margin[1 + k] + (wrong[k] > 0) * rng.uniform(-0.2, 0.4, m),
            unit_reward[0] + (wrong[k] > 1) * rng.uniform(-0.7, 0.7),
            unit_margin[0] + (wrong[k] > 1) * rng.uniform(-0.2, 0.2, m),
        )
        for k in range(n)
    ]
    policies = made_up_set(units, values, epsilon=float(10 ** rng.uniform(-6, -2.5)))
    return policies, truth, int(rng.integers(100, 1000)), float(rng.uniform(0.05, 0.9))


@pytest.mark.short_for(cases=[25], ends=[True])
@pytest.mark.parametrize("cases", [25, 60])
@pytest.mark.parametrize("ends", [False, True], ids=["tables", "episodes may end"])
def test_decides_as_the_pseudo_code_does(ends: bool, cases: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PolicyValueSet, "may_end", ends)
    seen: dict[str, int] = {"exhausted": 0, "raises": 0, "at weight 0": 0, "at positive weight": 0, "several": 0}
    for seed in range(cases):
        rng = np.random.default_rng(seed)
        policies, truth, K, delta = random_case(rng)
        rules = PaperRules(policies, K, delta)
        learner, outcomes, deployed = run(policies, rules, truth, rng, 2500)
        candidates, episodes, ranges = in_unit_scale(policies, outcomes, ends)
        expected = algorithm_2(
            candidates,
            episodes,
            K=K,
            delta=delta,
            epsilon=policies.epsilon,
            gamma=policies.units.discount,
            **ranges,
        )
        agree(learner, deployed, expected)
        kinds = [(kind, weight > 0) for _, kind, _, weight in expected[0]]
        seen["exhausted"] += ("exhausted", False) in kinds
        seen["raises"] += sum(kind == "weight" for kind, _ in kinds)
        seen["at weight 0"] += ("eliminated", False) in kinds
        seen["at positive weight"] += ("eliminated", True) in kinds
        seen["several"] += len(ranges["width"]) > 1
    # The comparison means something only if the streams make the algorithm do all it can do.
    assert min(seen.values()) >= cases // 6, seen


# -------------------------------------------------------------------------------------- the constants behind the figure


def published_algorithm(
    policies: PolicyValueSet, outcomes: list[tuple[float, list[float]]]
) -> tuple[list[tuple], list[tuple]]:
    """Algorithm 2 with the authors' constants, in the user's units; safe episodes are kept in lists of their own."""
    eps, entries = 0.01, policies.entries
    budget = policies.units.budget.tolist()
    decisions: list[tuple] = []
    deployed: list[tuple] = []
    left = sorted(range(len(entries)), key=lambda j: -entries[j].reward)
    order, m, alpha = 1, 0, 0.0
    window: list[tuple[float, list[float]]] = []
    pool: list[tuple[float, list[float]]] = []
    for k, outcome in enumerate(outcomes, start=1):
        if not left:
            deployed.append((None, 0.0))
            continue
        j = left[0]
        deployed.append((j, alpha))
        window.append(outcome)
        u = alpha * entries[j].reward + (1 - alpha) * entries[j].safe_reward
        v = [
            alpha * a + (1 - alpha) * b
            for a, b in zip(entries[j].margin.tolist(), entries[j].safe_margin.tolist(), strict=True)
        ]
        fails = False
        if len(window) >= 1000:
            pooled = order > 1 and m == 0
            data = pool + window if pooled else window
            n = len(data)
            fails = abs(sum(r for r, _ in data) / n - u) > math.sqrt(4000 / n) + 8 * eps
            for i, b in enumerate(budget):
                seen = b - sum(c[i] for _, c in data) / n
                fails = fails or abs(seen - v[i]) > math.sqrt((150 if pooled else 300) / n) + eps
        if fails:
            decisions.append((k, "eliminated", j, alpha))
            left = left[1:]
            if not left:
                decisions.append((k, "exhausted", None, 0.0))
            pool += window if m == 0 else []
            order, m, alpha, window = order + 1, 0, 0.0, []
        elif len(window) - 2 >= min(max(100 / min(v) ** 2, 1000), 5200) and m <= math.log(eps) / math.log(2 / 3):
            pool += window if m == 0 else []
            s = min(entries[j].safe_margin.tolist())
            alpha = (s - 2 * eps) / (s - 2 * eps + 2) if m == 0 else 3 * s * alpha / ((alpha + 2) * s + 3 * eps)
            alpha = max(0.0, min(1.0, alpha))
            m, window = m + 1, []
            decisions.append((k, "weight", j, alpha))
    return decisions, deployed


def gridworld_like(rng: np.random.Generator, constraints: int, spread: float) -> tuple[PolicyValueSet, Truth]:
    """Values as in the published experiment: rewards about 50 of 100, margins about 0.5 of 1.5."""
    units = Units(0.9, (0.0, 10.0), np.tile([0.0, 10.0], (constraints, 1)), np.full(constraints, 1.5))
    n = 4
    reward = np.append(48.0, 50 + rng.uniform(0, 3, n))
    margin = np.concatenate([rng.uniform(0.4, 0.6, (1, constraints)), rng.uniform(0.0, 0.2, (n, constraints))])
    truth = Truth(reward, units.budget - margin, 10.0, np.full(constraints, 0.8))
    values = [
        (
            (reward[1 + k] + spread * rng.uniform(0, 6)) / 10,
            (margin[1 + k] + spread * rng.uniform(-0.1, 0.1, constraints)) / 10,
            (reward[0] + spread * rng.uniform(-3, 3)) / 10,
            (margin[0] + spread * rng.uniform(-0.3, 0.3, constraints)) / 10,
        )
        for k in range(n)
    ]
    return made_up_set(units, values, epsilon=0.01), truth


@pytest.mark.long
def test_published_constants_decide_as_their_description_does() -> None:
    raises = eliminations = pooled_eliminations = exhausted = 0
    for seed, (constraints, spread) in enumerate(
        [(1, 0.0), (1, 0.5), (1, 1.0), (1, 1.5), (2, 0.5), (2, 1.2), (1, 3.0)]
    ):
        rng = np.random.default_rng(seed)
        policies, truth = gridworld_like(rng, constraints, spread)
        learner, outcomes, deployed = run(policies, PUBLISHED, truth, rng, 16_000, block=1000)
        expected = published_algorithm(policies, outcomes)
        agree(learner, deployed, expected)
        raises += sum(kind == "weight" for _, kind, _, _ in expected[0])
        eliminations += sum(kind == "eliminated" and weight > 0 for _, kind, _, weight in expected[0])
        dropped = [kind == "eliminated" and weight == 0 for _, kind, _, weight in expected[0]]
        pooled_eliminations += sum(dropped[1:])
        exhausted += expected[0][-1][1] == "exhausted" if expected[0] else 0
    assert raises >= 20
    assert eliminations >= 3
    assert pooled_eliminations >= 3
    assert exhausted >= 1


def test_published_weights_are_raised_twelve_times() -> None:
    """m ≤ log_{2/3} 0.01 = 11.4 allows m = 0, ..., 11."""
    units = Units(0.9, (0.0, 10.0), np.array([[0.0, 10.0]]), np.array([1.5]))
    policies = made_up_set(units, [(5.5, [0.05], 4.0, [0.06])], epsilon=0.01)
    rules = PUBLISHED
    lengths = [rules.phase_length(policies.entries[0], step, 0.5) for step in range(14)]
    assert [math.isfinite(length) for length in lengths] == [True] * 12 + [False] * 2
    # 100/0.55² = 331 is below the least of 1000, and 100/0.05² above the most of 5200; both wait two episodes more.
    assert lengths[0] == 1002
    poor = replace(policies.entries[0], margin=np.array([-0.5]))
    assert rules.phase_length(poor, 1, 0.5) == 5202
    assert rules.next_weight(policies.entries[0], 0, 0.0) == pytest.approx(0.58 / 2.58)
    assert rules.next_weight(policies.entries[0], 1, 0.5) == pytest.approx(0.9 / (2.5 * 0.6 + 0.03))


@pytest.mark.parametrize("margin", [0.02, 0.0, -1.98, -2.02, -40.0])
def test_published_weights_never_leave_the_unit_interval(margin: float) -> None:
    units = Units(0.9, (0.0, 10.0), np.array([[0.0, 10.0]]), np.array([1.5]))
    policies = made_up_set(units, [(5.5, [0.05], 4.0, [margin / 10])], epsilon=0.01)
    assert PUBLISHED.next_weight(policies.entries[0], 0, 0.0) == pytest.approx(0.0, abs=1e-15)
    rich = made_up_set(units, [(5.5, [0.05], 4.0, [10.0])], epsilon=0.01)
    assert 0 < PUBLISHED.next_weight(rich.entries[0], 5, 1.0) <= 1


# ----------------------------------------------------------------------------------------------- corners of the weights


SIMPLE = Units(0.1, (0.0, 1.0), np.array([[0.0, 1.0]]), np.array([0.7 / 0.9]))  # c in [-0.3, 0.7], width 1


def as_predicted(policies: PolicyValueSet, rules: Rules, episodes: int) -> Learner:
    """A learner whose every phase sees exactly what its first candidate promises."""
    learner = Learner(SafeCandidates(policies, rules), seed=0)
    best = max(policies.entries, key=lambda entry: entry.reward)
    while learner.state.episode < episodes:
        orders = learner.ask_block(min(500, episodes - learner.state.episode))
        weight, n = orders.deployed.weight, len(orders.drawn)
        reward = weight * best.reward + (1 - weight) * best.safe_reward
        margin = weight * best.margin + (1 - weight) * best.safe_margin
        learner.tell_block(orders, Outcomes(np.full(n, reward), np.tile(policies.units.budget - margin, (n, 1))))
    return learner


def test_weights_follow_the_closed_form_with_exponent_m_minus_1() -> None:
    epsilon, v_s = 1e-3, 0.7
    policies = made_up_set(SIMPLE, [(0.8, [0.5], 0.3, [v_s])], epsilon=epsilon)
    rules = PaperRules(policies, 1000, 0.3)
    learner = as_predicted(policies, rules, 20_000)
    weights = [event.data["weight"] for event in learner.events]
    L = 1 / 0.9 + 0.2 / 0.81
    a = (v_s - 2 * epsilon * (L + 2)) / (v_s - 2 * epsilon * (L + 2) + 2 * 0.3 / 0.9)
    limit, C = v_s - (4 * L + 9) * epsilon, (2 * v_s + (4 * L + 9) * epsilon) / (3 * v_s)
    closed = [limit * a / (v_s * a + (limit - v_s * a) * C ** (m - 1)) for m in range(1, 60)]
    assert len(weights) == math.ceil(math.log(epsilon, C)) == rules.steps(policies.entries[0])
    assert weights == pytest.approx(closed[: len(weights)], rel=1e-12)
    assert [event.data["step"] for event in learner.events] == list(range(1, len(weights) + 1))
    assert weights[-1] < limit / v_s
    assert learner.deployed.weight == weights[-1]


def test_phases_last_until_the_radius_is_a_quarter_of_the_margin() -> None:
    policies = made_up_set(SIMPLE, [(0.8, [0.5], 0.3, [0.7])], epsilon=1e-3)
    rules = PaperRules(policies, 1000, 0.3)
    events = as_predicted(policies, rules, 20_000).events
    starts, weights = [0, *(event.episode for event in events)], [0.0, *(event.data["weight"] for event in events)]
    for phase in range(len(events)):
        n = starts[phase + 1] - starts[phase]
        v = weights[phase] * 0.5 + (1 - weights[phase]) * 0.7
        radius = [math.sqrt(rules.log_term / (2 * count)) / 0.9 for count in (n - 1, n)]
        assert radius[1] <= v / 4 < radius[0]
    log = math.log(4 * 1000 * (rules.steps(policies.entries[0]) + 1) / 0.3)  # one candidate, reward and one constraint
    assert rules.log_term == pytest.approx(log, rel=1e-14)


def test_a_first_weight_beyond_the_limit_is_not_lowered() -> None:
    """When no policy can do much harm the first weight is large already; the recursion would take it back."""
    harmless = Units(0.1, (0.0, 1.0), np.array([[0.0, 1.0]]), np.array([0.99 / 0.9]))
    epsilon = 0.02
    policies = made_up_set(harmless, [(0.8, [0.9], 0.3, [0.9])], epsilon=epsilon)
    rules = PaperRules(policies, 1000, 0.3)
    L = 1 / 0.9 + 0.2 / 0.81
    first, limit = rules.next_weight(policies.entries[0], 0, 0.0), 1 - (4 * L + 9) * epsilon / 0.9
    assert limit < first < 1
    weights = [event.data["weight"] for event in as_predicted(policies, rules, 20_000).events]
    assert weights == [first] * rules.steps(policies.entries[0])


def test_where_no_policy_can_break_a_budget_the_first_weight_is_one() -> None:
    safe = Units(0.1, (0.0, 1.0), np.array([[0.0, 1.0]]), np.array([1.0 / 0.9]))
    policies = made_up_set(safe, [(0.8, [0.2], 0.3, [0.9])], epsilon=1e-3)
    learner = as_predicted(policies, PaperRules(policies, 1000, 0.3), 5000)
    assert learner.events[0].data["weight"] == 1.0
    assert learner.deployed.weights.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("values", "epsilon"),
    [
        ((0.8, [0.5], 0.3, [0.0]), 1e-3),  # the safe policy has no margin
        ((0.8, [0.5], 0.3, [-0.1]), 1e-3),  # nor does it keep the budget
        ((0.8, [-0.002], 0.3, [0.7]), 1e-3),  # the candidate misses relaxed feasibility
        ((0.8, [0.5], 0.3, [0.7]), 0.11),  # the first weight is not positive
        ((0.8, [0.5], 0.3, [0.7]), 0.055),  # it is, but C_l ≥ 1
    ],
)
def test_without_the_preconditions_the_safe_policy_is_never_left(values: Any, epsilon: float) -> None:
    policies = made_up_set(SIMPLE, [values], epsilon=epsilon)
    rules = PaperRules(policies, 1000, 0.3)
    assert rules.steps(policies.entries[0]) == 0
    learner = as_predicted(policies, rules, 20_000)
    assert learner.events == ()
    assert learner.deployed.indices.tolist() == [SAFE]


def test_a_candidate_at_relaxed_feasibility_may_be_raised() -> None:
    policies = made_up_set(SIMPLE, [(0.8, [-0.0009], 0.3, [0.7])], epsilon=1e-3)
    rules = PaperRules(policies, 1000, 0.3)
    assert rules.steps(policies.entries[0]) > 10
    assert as_predicted(policies, rules, 2000).deployed.weight > 0


def test_no_phase_ends_at_a_margin_of_zero() -> None:
    policies = made_up_set(SIMPLE, [(0.8, [0.0], 0.3, [0.7])], epsilon=1e-3)
    rules = PaperRules(policies, 1000, 0.3)
    entry = replace(policies.entries[0], margin=np.array([-1.0]))
    assert rules.phase_length(replace(entry, safe_margin=np.array([0.7])), 0, 0.9) == math.inf
    assert math.isfinite(rules.phase_length(policies.entries[0], 1, 0.9))


def test_the_smallest_margin_rules_over_several_constraints() -> None:
    two = Units(0.1, (0.0, 1.0), np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([0.7, 0.7]) / 0.9)
    one = made_up_set(SIMPLE, [(0.8, [0.5], 0.3, [0.6])], epsilon=1e-3)
    both = made_up_set(two, [(0.8, [0.5, 0.6], 0.3, [0.6, 0.75])], epsilon=1e-3)
    single, double = PaperRules(one, 1000, 0.3), PaperRules(both, 1000, 0.3)
    assert double.steps(both.entries[0]) == single.steps(one.entries[0])
    for step, weight in ((0, 0.0), (1, 0.3), (2, 0.6)):
        expected = single.next_weight(one.entries[0], step, weight)
        assert double.next_weight(both.entries[0], step, weight) == expected
        ratio = double.log_term / single.log_term
        assert double.phase_length(both.entries[0], step, weight) == pytest.approx(
            ratio * single.phase_length(one.entries[0], step, weight), rel=1e-12
        )


def test_when_nobody_is_left_the_safe_policy_stays_and_says_so() -> None:
    policies = made_up_set(SIMPLE, [(0.8, [0.5], 0.3, [0.7]), (0.7, [0.5], 0.3, [0.6])], epsilon=1e-3)
    learner = Learner(SafeCandidates(policies, PaperRules(policies, 1000, 0.3)), seed=0)
    for _ in range(6):
        orders = learner.ask_block(100)
        used = learner.tell_block(orders, Outcomes(np.full(100, 1.1), np.full((100, 1), 0.1)))
    kinds = [(event.kind, event.data.get("candidate")) for event in learner.events]
    assert kinds == [("eliminated", 0), ("eliminated", 1), ("exhausted", None)]
    assert learner.events[1].episode == learner.events[2].episode
    assert learner.deployed.indices.tolist() == [SAFE]
    assert learner.certified, "the safe policy is as safe as it was"
    assert used == 100, "episodes go on"


def test_ties_go_to_the_first_entry_and_the_best_comes_first() -> None:
    policies = made_up_set(
        SIMPLE,
        [(0.6, [0.5], 0.3, [0.7]), (0.8, [0.5], 0.3, [0.7]), (0.8, [0.4], 0.3, [0.7]), (0.7, [0.5], 0.3, [0.7])],
        epsilon=1e-3,
    )
    assert SafeCandidates(policies, PaperRules(policies, 1000, 0.3)).start().alive == (1, 2, 3, 0)


@given(st.integers(1, 10**6), st.floats(1e-6, 0.9), st.sampled_from([1, 10, 1000]))
def test_radii_are_hoeffding_with_the_true_ranges_plus_the_training_error(K: int, delta: float, n: int) -> None:
    """Without cells nobody knows that tasks are tables: episodes may end, and sums be 0."""
    units = Units(0.2, (1.0, 3.0), np.array([[0.0, 2.0], [5.0, 6.0]]), np.array([1.0, 12.0]))
    policies = made_up_set(units, [(0.5, [0.1, 0.2], 0.4, [0.3, 0.4])], epsilon=1e-4)
    rules = PaperRules(policies, K, delta)
    slack = 1e-4 * (1 / 0.8 + 0.4 / 0.64 + 1)
    half = math.sqrt(rules.log_term / (2 * n))
    counts = np.array([n])
    # Discounted rewards span 3/0.8, discounted costs 2/0.8 and 6/0.8, whatever they are divided by on the way.
    assert rules.reward_radius(counts)[0] == pytest.approx(3.75 * half + 2 * slack, rel=1e-12)
    scale = [2.0, 12.0 * 0.8 - 5.0]
    expected = [2.5 * half + scale[0] * slack, 7.5 * half + scale[1] * slack]
    assert rules.margin_radius(counts)[0].tolist() == pytest.approx(expected, rel=1e-12)


def test_certificates_are_claimed_by_the_proven_constants_only() -> None:
    policies = made_up_set(SIMPLE, [(0.8, [0.5], 0.3, [0.7])], epsilon=1e-3)
    claims: dict[str, Callable[[], Rules]] = {
        "paper": lambda: PaperRules(policies, 1000, 0.3),
        "published": lambda: PUBLISHED,
    }
    learners = {name: Learner(SafeCandidates(policies, make())) for name, make in claims.items()}
    assert {name: each.certified for name, each in learners.items()} == {"paper": True, "published": False}
    assert {name: each.name for name, each in learners.items()} == {"paper": "paper", "published": "published"}
