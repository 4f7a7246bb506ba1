"""O_c from samples: the check oracle for tasks that can be drawn from but not read.

Derivation. For one state-action pair let T = TV(P₁, P₂) and T̂ = TV(P̂₁, P̂₂), with P̂ᵢ the frequencies of n draws each.
    bias        T ≤ E T̂ ≤ T + √((k-1)/n) for k possible outcomes: TV is convex, and
                E TV(P̂, P) ≤ ½ Σ_x √(p(1-p)/n) ≤ ½ √((k-1)/n), once for each task;
    deviation   one of the 2n draws moves T̂ by at most 1/n, so that by McDiarmid's inequality
                P(T̂ - E T̂ ≥ t) and P(E T̂ - T̂ ≥ t) are each at most exp(-n t²).
If d ≤ ε, a wrong "far" needs T̂ > τ in one of N comparisons; if d > 2ε, a wrong "near" needs T̂ ≤ τ in the one comparison
that attains d. Each has probability at most δ when
    (τ - ε)√n ≥ √(k-1) + √ln(N/δ)    and    (2ε - τ)√n ≥ √ln(1/δ),
and their sum is `samples_needed`. Rewards and costs are returned by the generative model as they are, and compared
exactly.
"""

from __future__ import annotations

import math

import numpy as np

from surefoot.arrays import Floats, fraction
from surefoot.errors import InvalidInput
from surefoot.oracles.interface import CheckOracle
from surefoot.tabular.model import TabularCMDP

# Rows of next-state frequencies held at a time: bounds memory on large tasks.
BLOCK_ENTRIES = 4_000_000


def check_by_sampling(successors: int | None = None) -> CheckOracle:
    """O_c by comparing empirical distributions of next and first states.

    Args:
        successors: an upper bound on the number of states that one state-action pair may lead to, in either task;
            the number of states when not known. Smaller means fewer samples.
    """
    if successors is not None and successors < 1:
        raise InvalidInput(f"successors must be at least 1, got {successors!r}")

    def check(first: TabularCMDP, second: TabularCMDP, epsilon: float, delta: float, rng: np.random.Generator) -> bool:
        _require_comparable(first, second)
        if _signal_distance(first, second) > epsilon:
            return False
        comparisons = first.n_states * first.n_actions + 1
        outcomes = min(successors or first.n_states, first.n_states)

        starts = samples_needed(epsilon, delta, first.n_states, comparisons)
        start = _empirical_distance(first.start[None], second.start[None], starts, rng)
        if start > threshold(epsilon, delta, first.n_states, comparisons):
            return False

        draws = samples_needed(epsilon, delta, outcomes, comparisons)
        limit = threshold(epsilon, delta, outcomes, comparisons)
        block = max(1, BLOCK_ENTRIES // first.n_states)
        for row in range(0, comparisons - 1, block):
            rows = slice(row, row + block)
            if _empirical_distance(_rows(first, rows), _rows(second, rows), draws, rng) > limit:
                return False
        return True

    return check


def samples_needed(epsilon: float, delta: float, outcomes: int, comparisons: int) -> int:
    """n = ⌈(√(k-1) + √ln(N/δ) + √ln(1/δ))²/ε²⌉ draws of each distribution, from each task.

    Args:
        outcomes: k, the number of values that a draw can take.
        comparisons: N, the number of distributions compared.
    """
    if not epsilon > 0:
        raise InvalidInput(f"epsilon must be positive, got {epsilon!r}: no number of samples decides d = 0")
    fraction("delta", delta)
    return math.ceil(((_false_alarm(delta, outcomes, comparisons) + math.sqrt(math.log(1 / delta))) / epsilon) ** 2)


def threshold(epsilon: float, delta: float, outcomes: int, comparisons: int) -> float:
    """τ in (ε, 2ε): the empirical distance above which two tasks are called far."""
    far = _false_alarm(delta, outcomes, comparisons)
    return epsilon * (1 + far / (far + math.sqrt(math.log(1 / delta))))


def _false_alarm(delta: float, outcomes: int, comparisons: int) -> float:
    """√(k-1) + √ln(N/δ): by how much, times √n, the largest of N empirical distances may exceed the true one."""
    return math.sqrt(outcomes - 1) + math.sqrt(math.log(comparisons / delta))


def _require_comparable(first: TabularCMDP, second: TabularCMDP) -> None:
    if first.cost.shape != second.cost.shape or first.discount != second.discount:
        raise InvalidInput(
            "tasks must share constraints, states, actions and discount, got "
            f"{first.cost.shape} at {first.discount} and {second.cost.shape} at {second.discount}"
        )


def _signal_distance(first: TabularCMDP, second: TabularCMDP) -> float:
    reward = first.units.unit_reward(first.reward) - second.units.unit_reward(second.reward)
    constraint = first.units.unit_constraint(first.cost) - second.units.unit_constraint(second.cost)
    return float(max(np.abs(reward).max(), np.abs(constraint).max()))


def _empirical_distance(first: Floats, second: Floats, draws: int, rng: np.random.Generator) -> float:
    """Largest total variation between the frequencies of `draws` draws from rows of first and second [k, S]."""
    counts = _counts(first, draws, rng) - _counts(second, draws, rng)
    return float(np.abs(counts).sum(axis=1).max() / (2 * draws))


def _counts(rows: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """[k, S] how often each outcome came up: the law of `draws` single draws from each row, made in one go."""
    probabilities = rows / rows.sum(axis=1, keepdims=True)  # rows may miss 1 by more than the sampler accepts
    return rng.multinomial(draws, probabilities).astype(np.float64)


def _rows(task: TabularCMDP, part: slice) -> Floats:
    """[k, S] next-state distributions of the pairs s·A + a in `part`."""
    dense: Floats = task.rows[part].toarray() if task.is_sparse else task.transitions.reshape(-1, task.n_states)[part]
    return dense
