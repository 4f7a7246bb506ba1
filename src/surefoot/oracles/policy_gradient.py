"""O_l and O_s for tabular tasks by natural policy gradient, with exact policy evaluation at every step.

Everything in here is in unit scale: signals [1+m, S, A] are r and the m constraints c, feasible means V_c ≥ 0.
Both O_l end on a proof of what they promise: by weak duality V* ≤ max_π V_r(π) + Σᵢ λᵢ V_cᵢ(π) for any λ ≥ 0, and the
maximum is an unconstrained problem that policy iteration solves exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from surefoot.cmdp.evaluate import evaluate, solve_discounted
from surefoot.cmdp.model import Floats, TabularCMDP
from surefoot.cmdp.policy import TabularPolicy, as_tabular
from surefoot.cmdp.solve import OccupancyLP
from surefoot.errors import Infeasible, InvalidInput
from surefoot.oracles.interface import FeasibleOracle, FeasiblePolicy, OptimalOracle, PolicyValues

# Change of policy and multipliers below which the primal-dual iteration is taken to rest.
REST = 1e-9
# CRPO stops as soon as its certificate meets ε; the certificate costs a few steps, so it is asked for now and then.
CERTIFY_EVERY = 250

# Margins are exact up to this; a policy on the boundary must not fail by rounding.
ROUNDING = 1e-9
# What a linear program solver may miss its constraints by.
SOLVER_ERROR = 1e-7
# Tasks whose safest policy is tried before turning to the gradient.
CANDIDATES = 20

FirstGuess: TypeAlias = TabularCMDP | TabularPolicy | ArrayLike | None

# ------------------------------------------------------------------------------------------------------ O_l, primal-dual


def natural_policy_gradient(
    *, steps: int = 10_000, entropy: float = 0.01, policy_step: float = 1.0, dual_step: float = 1.0
) -> OptimalOracle:
    """O_l by entropy-regularised natural policy gradient on the Lagrangian, alternating with multiplier steps.

    π ∝ π^(1-f) exp(f·Q/β) with f = η_p β/(1-γ), then λ ← [λ - η·V_c]₊, one λ for each constraint; Q belongs to
    r + λ·c + β·entropy. The published solver has, in the units of its gridworld where r and c are 10 times larger,
    β = 0.1, η_p = (1-γ)/β, η = 0.1 and 10⁴ steps: the defaults here.

    Two things are added, because with the published constants alone the last iterate cycles for ever on many tasks
    (the gridworld at noise 0.1 among them): the step of a multiplier is halved when its constraint changes sign, and
    grows back slowly; and the entropy weight is divided by four whenever the iteration rests short of ε.

    Args:
        steps: at most this many alternations, over all entropy weights together.
        entropy: β, in unit scale.
        policy_step: f in (0, 1]; 1 replaces the policy by the softmax of Q/β.
        dual_step: the largest η, in unit scale.
    """
    _require_positive(steps=steps, entropy=entropy, policy_step=policy_step, dual_step=dual_step)

    def optimal(task: TabularCMDP, epsilon: float, delta: float, rng: np.random.Generator) -> PolicyValues:
        signals = _unit_signals(task)
        beta = entropy
        log_policy = np.full(task.reward.shape, -np.log(task.n_actions))
        multipliers, constraint = np.zeros(task.n_constraints), np.zeros(task.n_constraints)
        step = np.full(task.n_constraints, dual_step)
        for _ in range(steps):
            policy = np.exp(log_policy)
            surprise = -log_policy[None]
            values = _state_values(task, np.concatenate([signals, surprise]), policy)
            previous, constraint = constraint, values[1:-1] @ task.start

            weights = np.concatenate([[1.0], multipliers])
            q = _action_values(task, np.tensordot(weights, signals, 1), np.append(weights, beta) @ values)
            log_policy = _log_softmax((1 - policy_step) * log_policy + policy_step * q / beta)

            step = np.where(constraint * previous < 0, step / 2, np.minimum(1.01 * step, dual_step))
            moved = np.maximum(multipliers - dual_step * constraint, 0) - multipliers
            multipliers = np.maximum(multipliers - step * constraint, 0)
            if max(np.abs(moved).max(), np.abs(np.exp(log_policy) - policy).max()) <= REST:
                if _shortfall(task, signals, policy, multipliers) <= epsilon:
                    break
                beta, step = beta / 4, np.full(task.n_constraints, dual_step)
        return _certified(task, signals, np.exp(log_policy), multipliers, epsilon, f"steps = {steps}")

    return optimal


# ------------------------------------------------------------------------------------------------------------ O_l, CRPO


def crpo(*, steps: int = 10_000, step_size: float = 0.1, tolerance: float | None = None) -> OptimalOracle:
    """O_l by constraint-rectified policy optimisation (Xu, Liang and Lan 2021), tabular and with exact values.

    A natural policy gradient step on the reward while every V_c ≥ -tolerance, on the most violated constraint
    otherwise. Their theorem is about a uniform draw among the iterates at which the reward was ascended; this returns
    the one of them with the largest reward, which is no worse than the draw in reward and, like each of them, within
    tolerance. The multipliers of the certificate are those of their proof: λᵢ is the number of steps spent on
    constraint i over the number spent on the reward, and the regret bound of the natural gradient closes the gap.

    Args:
        steps: at most this many; fewer once the certificate meets ε.
        step_size: the policy is multiplied by exp(step_size · advantage), the advantage in unit scale.
        tolerance: in unit scale; ε when not given.
    """
    _require_positive(steps=steps, step_size=step_size)

    def optimal(task: TabularCMDP, epsilon: float, delta: float, rng: np.random.Generator) -> PolicyValues:
        signals = _unit_signals(task)
        allowed = epsilon if tolerance is None else tolerance
        log_policy = np.full(task.reward.shape, -np.log(task.n_actions))
        spent = np.zeros(1 + task.n_constraints)
        best, best_reward = np.exp(log_policy), -np.inf
        for step in range(1, steps + 1):
            policy = np.exp(log_policy)
            values = _state_values(task, signals, policy)
            reward, *constraint = values @ task.start
            ascended = 0 if min(constraint) >= -allowed else 1 + int(np.argmin(constraint))
            if ascended == 0 and reward > best_reward:
                best, best_reward = policy, reward
            elif best_reward == -np.inf:
                best = policy
            spent[ascended] += 1

            advantage = _action_values(task, signals[ascended], values[ascended]) - values[ascended][:, None]
            log_policy = _log_softmax(log_policy + step_size * advantage)
            if step % CERTIFY_EVERY == 0 and _shortfall(task, signals, best, _implied(spent)) <= epsilon:
                break
        return _certified(task, signals, best, _implied(spent), epsilon, f"steps = {steps}")

    return optimal


def _implied(spent: Floats) -> Floats:
    return spent[1:] / max(spent[0], 1.0)


# ---------------------------------------------------------------------------------------------------- O_s, worst task


def worst_task_then_gradient(
    first_guess: FirstGuess = None, *, steps: int = 2000, step_size: float = 0.5
) -> FeasibleOracle:
    """O_s by trying the policies most likely to be safe, then worst-case policy gradient; certified by evaluation.

    One stationary policy feasible on several tasks is not a linear program. In this order:
    1. the first guess;
    2. the safest policy of a task (the linear program with the largest tightening it can bear), starting with the task
       on which the first guess is worst, then with the one on which the last policy tried was;
    3. from the best of these, natural gradient ascent on the smallest margin over tasks and constraints (Xu and Zhu).
       Only tasks that have been worst before are evaluated at each step: the others are looked at once these pass.
    The first policy with margin at least ξ on every task, evaluated exactly, is returned.

    Args:
        first_guess: a policy believed to be safe everywhere, or a task whose optimal policy is.
        steps: gradient steps in all.
        step_size: the policy is multiplied by exp(step_size/√t · advantage), the largest advantage scaled to 1.
    """
    _require_positive(steps=steps, step_size=step_size)

    def feasible(
        tasks: Sequence[TabularCMDP], xi: float | None, delta: float, rng: np.random.Generator
    ) -> FeasiblePolicy:
        if not len(tasks):
            raise InvalidInput("tasks must hold at least one task, got none")
        required = 0.0 if xi is None else xi
        best = _best_candidate(tasks, first_guess, required)
        if not best.meets(required):
            best = _ascend_worst_margin(tasks, best, required, steps, step_size)
        if not best.meets(required):
            raise _no_common_policy(tasks, best, required)
        return FeasiblePolicy(TabularPolicy(best.probabilities), best.reward, best.margin)

    return feasible


@dataclass(frozen=True, eq=False)
class _Tried:
    """A policy [S, A] evaluated on all n tasks: reward [n] and margin [n, m] as the user has them, unit margin [n, m]."""

    probabilities: Floats
    reward: Floats
    margin: Floats
    constraint: Floats

    @property
    def smallest(self) -> float:
        return float(self.constraint.min())

    @property
    def worst_task(self) -> int:
        return int(self.constraint.min(axis=1).argmin())

    def meets(self, required: float) -> bool:
        return self.smallest >= required - ROUNDING


def _try(tasks: Sequence[TabularCMDP], probabilities: Floats) -> _Tried:
    values = [evaluate(task, probabilities) for task in tasks]
    margin = np.stack([value.margin for value in values])
    unit = np.stack([task.units.unit_margin(row) for task, row in zip(tasks, margin, strict=True)])
    return _Tried(probabilities, np.array([value.reward for value in values]), margin, unit)


def _best_candidate(tasks: Sequence[TabularCMDP], first_guess: FirstGuess, required: float) -> _Tried:
    """The first guess if it will do, else the safest policies of the worst tasks in turn; the best if none will do."""
    program = OccupancyLP()
    best = latest = _try(tasks, _first_policy(tasks[0], first_guess, program))
    if first_guess is not None and best.meets(required):
        return best
    asked: set[int] = set()
    while latest.worst_task not in asked and len(asked) < CANDIDATES:
        asked.add(worst := latest.worst_task)
        latest = _try(tasks, _safest_policy(tasks[worst], program))
        if float(latest.constraint[worst].min()) < required - SOLVER_ERROR:
            raise _no_policy_at_all(tasks, worst, latest, required)
        best = max(best, latest, key=lambda tried: tried.smallest)
        if latest.meets(required):
            return latest
    return best


def _first_policy(task: TabularCMDP, first_guess: FirstGuess, program: OccupancyLP) -> Floats:
    """[S, A] probabilities of the first guess; uniform, only to see which task is worst, where there is none."""
    if first_guess is None:
        return np.full(task.reward.shape, 1 / task.n_actions)
    if isinstance(first_guess, TabularCMDP):
        return program.solve(first_guess, 0.0).policy.probabilities
    return as_tabular(first_guess, (task.n_states, task.n_actions)).probabilities


def _safest_policy(task: TabularCMDP, program: OccupancyLP) -> Floats:
    """[S, A] the policy of largest unit margin on `task`, and among those of largest reward.

    With costs in unit scale one tightening for all constraints is a margin for all; an impossible tightening makes the
    linear program name the least cost, hence the largest possible one.
    """
    scale = task.units.cost_scale
    scaled = TabularCMDP(
        task.transitions, task.reward, task.cost / scale[:, None, None], task.budget / scale, task.start, task.discount
    )
    impossible = 3 / (1 - task.discount)  # |V_c| ≤ 1/(1-γ)
    try:
        return program.solve(scaled, impossible).policy.probabilities
    except Infeasible as error:
        largest = float((scaled.budget - error.least_cost).min())
    return program.solve(scaled, largest - SOLVER_ERROR).policy.probabilities


def _ascend_worst_margin(
    tasks: Sequence[TabularCMDP], candidate: _Tried, required: float, steps: int, step_size: float
) -> _Tried:
    """Natural gradient ascent on the smallest unit margin over tasks and constraints; the best policy met on the way."""
    spread = 0.9 * candidate.probabilities + 0.1 / candidate.probabilities.shape[1]  # softmax cannot leave a corner
    log_policy = np.log(spread)
    active = [candidate.worst_task]
    best, best_smallest = spread, -np.inf
    for step in range(1, steps + 1):
        policy = np.exp(log_policy)
        values = [_state_values(tasks[k], _unit_signals(tasks[k]), policy) for k in active]
        constraint = np.stack([value[1:] @ tasks[k].start for k, value in zip(active, values, strict=True)])
        if constraint.min() > best_smallest:
            best, best_smallest = policy, float(constraint.min())
        if constraint.min() >= required:
            everywhere = _try(tasks, policy)
            if everywhere.meets(required):
                return everywhere
            active.append(everywhere.worst_task)
            best_smallest = everywhere.smallest
            continue
        k, i = np.unravel_index(int(constraint.argmin()), constraint.shape)
        task, value = tasks[active[k]], values[k][1 + i]
        advantage = _action_values(task, _unit_signals(task)[1 + i], value) - value[:, None]
        log_policy = _log_softmax(log_policy + step_size / np.sqrt(step) * advantage / np.abs(advantage).max())
    return max(candidate, _try(tasks, best), key=lambda tried: tried.smallest)


def _no_policy_at_all(tasks: Sequence[TabularCMDP], index: int, safest: _Tried, required: float) -> Infeasible:
    margin = safest.constraint[index].min()
    return Infeasible(
        f"task {index} of {len(tasks)} has no policy of unit margin {required:.6g}: the largest any policy reaches is "
        f"{margin:.6g} (cost {_cost(tasks, safest, index)}, budget {tasks[index].budget.tolist()}); "
        "lower xi or leave the task out",
        tasks[index].budget - safest.margin[index],
    )


def _no_common_policy(tasks: Sequence[TabularCMDP], best: _Tried, required: float) -> Infeasible:
    index = best.worst_task
    return Infeasible(
        f"no policy found with unit margin {required:.6g} on all {len(tasks)} tasks: the best one has {best.smallest:.6g} "
        f"on task {index} (cost {_cost(tasks, best, index)}, budget {tasks[index].budget.tolist()}); "
        "lower xi, raise steps, or split the family",
        tasks[index].budget - best.margin[index],
    )


def _cost(tasks: Sequence[TabularCMDP], tried: _Tried, index: int) -> list[float]:
    return [round(float(cost), 6) for cost in tasks[index].budget - tried.margin[index]]


# ---------------------------------------------------------------------------------------------- shared, in unit scale


def _unit_signals(task: TabularCMDP) -> Floats:
    """[1+m, S, A] the paper's r and c."""
    return np.concatenate([task.units.unit_reward(task.reward)[None], task.units.unit_constraint(task.cost)])


def _state_values(task: TabularCMDP, signals: Floats, policy: Floats) -> Floats:
    """[k, S] value of each of the signals [k, S, A] from every state."""
    per_state = np.einsum("ksa,sa->sk", signals, policy)
    return solve_discounted(task.kernel(policy), per_state, task.discount).T


def _action_values(task: TabularCMDP, signal: Floats, state_values: Floats) -> Floats:
    """[S, A] Q of a signal [S, A] whose policy has state values [S]."""
    return signal + task.discount * (task.rows @ state_values).reshape(signal.shape)


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def _shortfall(task: TabularCMDP, signals: Floats, policy: Floats, multipliers: Floats) -> float:
    """The least ε for which `policy` is proved to be ε-optimal and relaxed ε-feasible."""
    reward, *constraint = _state_values(task, signals, policy) @ task.start
    return float(max(_dual_value(task, signals, multipliers) - reward, -min(constraint)))


def _dual_value(task: TabularCMDP, signals: Floats, multipliers: Floats) -> float:
    """max_π V_r(π) + λ·V_c(π), an upper bound on the value of every feasible policy, by policy iteration."""
    signal = np.tensordot(np.concatenate([[1.0], multipliers]), signals, 1)
    rounding = 1e-12 * (1 + np.abs(signal).max()) / (1 - task.discount)
    states = np.arange(task.n_states)
    greedy = signal.argmax(axis=1)
    while True:
        policy = np.zeros_like(signal)
        policy[states, greedy] = 1.0
        values = _state_values(task, signal[None], policy)[0]
        q = _action_values(task, signal, values)
        if (gain := float((q.max(axis=1) - values).max())) <= rounding:
            return float(values @ task.start) + max(gain, 0.0) / (1 - task.discount)
        greedy = np.where(q.max(axis=1) > q[states, greedy] + rounding / 2, q.argmax(axis=1), greedy)


def _certified(
    task: TabularCMDP, signals: Floats, policy: Floats, multipliers: Floats, epsilon: float, settings: str
) -> PolicyValues:
    """The policy with its values, or an error if neither its quality nor the infeasibility of the task is proved."""
    shortfall = _shortfall(task, signals, policy, multipliers)
    values = evaluate(task, policy)
    if shortfall > epsilon:
        # r ≥ 0 in unit scale, so a negative bound on the value of every feasible policy says that there is none.
        if _dual_value(task, signals, multipliers) < 0:
            raise Infeasible(
                f"no policy keeps the cost within the budget {task.budget.tolist()}; the search ended at cost "
                f"{values.cost.round(6).tolist()}",
                values.cost,
            )
        raise InvalidInput(
            f"{settings} did not reach epsilon = {epsilon:g}: proved {shortfall:.3g} only; take more steps"
        )
    return PolicyValues(TabularPolicy(policy), values.reward, values.margin)


def _require_positive(**settings: float) -> None:
    for name, value in settings.items():
        if not value > 0:
            raise InvalidInput(f"{name} must be positive, got {value!r}")
