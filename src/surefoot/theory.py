"""The paper on one page: every formula of Ni & Kamgarpour once, as a pure function.

Everything here is in the paper's unit scale: r in [0, 1], c in [-1, 1], a policy is feasible when V_c >= 0.
`cmdp.units.Units` converts to and from the user's "cost <= budget". Where the paper is in error the repair is
named by its row in docs/guarantees.md, section "Errata" (E1 ... E15).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def lipschitz_constant(discount: float) -> float:
    """L = 1/(1-γ) + 2γ/(1-γ)², Lemma "smooth"; valid when all tasks share their start distribution (E5)."""
    return 1 / (1 - discount) + 2 * discount / (1 - discount) ** 2


def shift_bound(signal: Any, spread: Any, discount: float) -> Any:
    """(σ + γ·osc)/(1-γ): how far a value moves per unit of distance, from any first state (docs, Lemma 8).

    σ is the unit of the signal and osc the most by which its value differs between states. With σ = 1 and osc =
    2/(1-γ), the most that c in [-1, 1] allows, it is L of Lemma "smooth".
    """
    return (signal + discount * spread) / (1 - discount)


def horizon(discount: float, tolerance: float) -> int:
    """Steps after which the discounted tail Σ_{t≥H} γ^t is at most `tolerance`, steps counted from t = 0 (E3)."""
    return max(1, math.ceil(math.log(1 / (tolerance * (1 - discount))) / math.log(1 / discount)))


# ------------------------------------------------------------------------------------------------ training (Alg. 1)


def initial_sample_size(delta: float) -> int:
    """N = ⌈ln²(δ)/δ²⌉, the first sample size of Algorithm 1."""
    return max(1, math.ceil(math.log(delta) ** 2 / delta**2))


def coverage_error(cover_size: int, samples: int, delta: float) -> float:
    """√(|U| ln(2N/δ) / (N - |U|)), line 5 of Algorithm 1; infinite when every sample is a centre."""
    if cover_size >= samples:
        return math.inf
    return math.sqrt(cover_size * math.log(2 * samples / delta) / (samples - cover_size))


def samples_until_stop(cover_size: int, delta: float) -> int:
    """The N = N₀·2^k at which Algorithm 1 stops if its cover has `cover_size` centres."""
    samples = initial_sample_size(delta)
    while coverage_error(cover_size, samples, delta) > delta:
        samples *= 2
    return samples


def slater_requirement(epsilon: float, discount: float) -> float:
    """(8L+18)ε, which the precondition of the theorem bounds by the safety margin ξ."""
    return (8 * lipschitz_constant(discount) + 18) * epsilon


def largest_epsilon(xi: float, discount: float) -> float:
    """The largest ε with (8L+18)ε ≤ ξ."""
    return xi / (8 * lipschitz_constant(discount) + 18)


def theorem_probability(delta: float, cover_number: int) -> float:
    """1 - 26δ - 9δ ln C, the probability of the paper's theorem; zero or less says that it is vacuous."""
    return 1 - 26 * delta - 9 * delta * math.log(max(cover_number, 1))


# --------------------------------------------------------------------------------------------------- test (Alg. 2)


def log_term(episodes: int, phases: int, delta: float, quantities: int = 2) -> float:
    """ln(2qKΦ/δ): two-sided union over q averaged quantities, K episodes and Φ phases.

    The paper has ln(4K/δ), i.e. q = 2 and Φ = 1, which its argument does not support since phase starts depend on
    the data (E4).
    """
    return math.log(2 * quantities * episodes * phases / delta)


def deviation(count: int, log_term: float, discount: float, width: float) -> float:
    """w/(1-γ)·√(ln(·)/(2n)): Hoeffding for discounted sums of terms in an interval of length w.

    With the paper's w = 2 this is the √(2 ln(4K/δ)/(n(1-γ)²)) of its Eq. (condition).
    """
    return width / (1 - discount) * math.sqrt(log_term / (2 * count))


def elimination_slack(epsilon: float, discount: float) -> float:
    """ε(L+1), the training error granted to a correct candidate in Eq. (condition)."""
    return epsilon * (lipschitz_constant(discount) + 1)


def phase_length(mixture_margin: float, log_term: float, discount: float, width: float) -> float:
    """8w² ln(·)/((1-γ)² v²), the least number of episodes that makes `deviation` a quarter of the margin v.

    With w = 2 it is the 32 ln(4K/δ)/((1-γ)² v²) of Algorithm 2, line 11. Infinite when v ≤ 0 (E13).
    """
    if mixture_margin <= 0:
        return math.inf
    return 8 * width**2 * log_term / ((1 - discount) ** 2 * mixture_margin**2)


def first_weight(safe_margin: float, epsilon: float, discount: float, worst_value: float) -> float:
    """α₁ = (v_s - 2ε(L+2)) / (v_s - 2ε(L+2) + 2·V₋), Eq. (closeform) for m = 0, never below 0 (E13).

    `worst_value` V₋ bounds -V_c of any policy from above; the paper takes 1/(1-γ).
    """
    gain = safe_margin - 2 * epsilon * (lipschitz_constant(discount) + 2)
    return max(0.0, gain / (gain + 2 * worst_value)) if gain > 0 else 0.0


def next_weight(weight: float, safe_margin: float, epsilon: float, discount: float) -> float:
    """α_{m+1} = 3 v_s α_m / ((2+α_m) v_s + (4L+9)ε): the recursion behind Eq. (closeform) (E1, E2)."""
    return 3 * safe_margin * weight / ((2 + weight) * safe_margin + _step_slack(epsilon, discount))


def contraction(safe_margin: float, epsilon: float, discount: float) -> float:
    """C_l = (2v_s + (4L+9)ε)/(3v_s), with the ε that the main text drops (E1)."""
    return (2 * safe_margin + _step_slack(epsilon, discount)) / (3 * safe_margin)


def weight_steps(safe_margin: float, epsilon: float, discount: float) -> int:
    """⌈m(l)⌉ with m(l) = log_{C_l} ε, Eq. (conterm): the number of times the weight is raised.

    0 when C_l ≥ 1 or v_s ≤ 0: such a candidate's weight never grows.
    """
    if safe_margin <= 0:
        return 0
    base = contraction(safe_margin, epsilon, discount)
    return math.ceil(math.log(epsilon) / math.log(base)) if base < 1 else 0


def _step_slack(epsilon: float, discount: float) -> float:
    return (4 * lipschitz_constant(discount) + 9) * epsilon


def mixture_value(candidate: Any, safe: Any, weight: float) -> Any:
    """u_{l,m} and v_{l,m}, Eq. (computeuv): numbers or arrays alike."""
    return weight * candidate + (1 - weight) * safe


# ------------------------------------------------------------------------------------------------- regret (Theorem 4.2)


def largest_weights(margin: Any) -> Any:
    """[J, P] the most of each policy that keeps all budgets when mixed with the safe one, the first, by margins
    [J, P, m]: min B_s/(B_s + [-B]₊) (docs/guarantees.md, Proposition 1, for two policies)."""
    safe = np.maximum(margin[:, :1], 0.0)
    breaks = margin < 0
    return np.where(breaks, safe / np.where(breaks, safe - margin, 1.0), 1.0).min(axis=2)


def most_candidates(cover_number: int, delta: float) -> float:
    """2C ln(1/δ) ≥ |Û|, Lemma "size_of_u", with C_{ε/2} for C (E6)."""
    return 2 * cover_number * math.log(1 / delta)


def trivial_regret(episodes: float, discount: float) -> float:
    """K/(1-γ): with rewards in [0, 1] nobody has more. A bound above it says nothing."""
    return episodes / (1 - discount)


def regret_bound_with_constants(
    episodes: float, cover_number: int, epsilon: float, xi: float, delta: float, discount: float
) -> float:
    """The regret bound of the theorem with the constants of its proof: the sum of its terms (i) to (iv).

    With v_{l,s} ≥ ξ throughout, as its last step has it; sums over the episodes of a phase inside absolute values, and
    one episode more per candidate (E7); weights by their recursion (E2); the union over phases (E4), of which there are
    ⌈m(l)⌉ + 1 per candidate. It needs (8L+18)ε ≤ ξ.
    """
    steps = weight_steps(xi, epsilon, discount)
    candidates = most_candidates(cover_number, delta)
    phases = candidates * (steps + 1)
    log = math.log(4 * episodes * phases / delta)
    constant, root = lipschitz_constant(discount), math.sqrt(phases * episodes * log)
    training = 4 * epsilon * constant * episodes * (1 + 1 / (xi * (1 - discount)))
    rest = 1 - _last_weight(xi, epsilon, discount, steps)
    mixing = 2 * rest * episodes / (1 - discount) + 32 * root / ((1 - discount) ** 2 * xi)
    testing = epsilon * (constant + 2) * episodes + 2 * math.sqrt(2) * root / (1 - discount)
    return training + mixing + testing + candidates / (1 - discount)


def _last_weight(safe_margin: float, epsilon: float, discount: float, steps: int) -> float:
    """α_m after m = `steps` raises."""
    weight = first_weight(safe_margin, epsilon, discount, 1 / (1 - discount))
    for _ in range(steps - 1):
        weight = next_weight(weight, safe_margin, epsilon, discount)
    return weight


# ------------------------------------------------------------------------------------------------- bounds, no constants


def regret_bound(episodes: float, cover_number: int, epsilon: float, xi: float, discount: float) -> float:
    """√(C K)/((1-γ)² ξ) + εK/(ξ(1-γ)³): the theorem's regret bound without constants and logarithms."""
    statistical = math.sqrt(cover_number * episodes) / ((1 - discount) ** 2 * xi)
    return statistical + epsilon * episodes / (xi * (1 - discount) ** 3)


def sample_complexity(cover_number: int, epsilon: float, xi: float, discount: float) -> float:
    """ξ⁻² ε⁻² (1-γ)⁻⁵ C: Corollary "sample" and the matching lower bound, without constants and logarithms."""
    return cover_number / (xi**2 * epsilon**2 * (1 - discount) ** 5)


def optpess_lp_complexity(states: int, actions: int, epsilon: float, xi: float, discount: float) -> float:
    """ξ⁻² ε⁻² (1-γ)⁻⁷ |S|³ |A|: Table 1, as the next three, without constants and logarithms."""
    return states**3 * actions / (xi**2 * epsilon**2 * (1 - discount) ** 7)


def dope_complexity(states: int, actions: int, epsilon: float, xi: float, discount: float) -> float:
    """ξ⁻² ε⁻² (1-γ)⁻⁷ |S|² |A|"""
    return states**2 * actions / (xi**2 * epsilon**2 * (1 - discount) ** 7)


def dope_plus_complexity(states: int, actions: int, epsilon: float, xi: float, discount: float) -> float:
    """ξ⁻² ε⁻² (1-γ)⁻⁶ |S|² |A|"""
    return states**2 * actions / (xi**2 * epsilon**2 * (1 - discount) ** 6)


def lb_sgd_complexity(epsilon: float, xi: float, discount: float) -> float:
    """(1-γ)⁻²² min{ξ, ε}⁻⁶; printed with min{ξ⁻⁶, ε⁻⁶}, which would not grow as ε goes to 0 (E15)."""
    return 1 / ((1 - discount) ** 22 * min(xi, epsilon) ** 6)
