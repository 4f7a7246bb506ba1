"""O_l and O_s for tabular tasks by natural policy gradient, with exact policy evaluation at every step.

Everything in here is in unit scale: signals [1+m, S, A] are r and the m constraints c, feasible means V_c ≥ 0.
O_l ends on a proof of what it promises: by weak duality V* ≤ max_π V_r(π) + Σᵢ λᵢ V_cᵢ(π) for any λ ≥ 0, and the
maximum is an unconstrained problem that policy iteration solves exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from surefoot.arrays import Floats
from surefoot.errors import Infeasible, InvalidInput
from surefoot.oracles.interface import FeasibleOracle, FeasiblePolicy, OptimalOracle, PolicyValues
from surefoot.tabular.evaluate import chain, evaluate, solve_discounted
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy, TimedPolicy, as_tables, as_tabular
from surefoot.tabular.solve import solve
from surefoot.tabular.tables import endless

# CRPO stops as soon as its certificate meets ε; the certificate costs a few steps, so it is asked for now and then.
CERTIFY_EVERY = 250
# Margins are exact up to this; a policy on the boundary must not fail by rounding.
ROUNDING = 1e-9
# What a linear program solver may miss its constraints by.
SOLVER_ERROR = 1e-7
# Steps of the worst-case gradient between two looks at all tasks, and the size at which a step is policy iteration.
LOOK_AROUND = 100
LARGEST_STEP = 1e6
# Worst tasks whose own policies are tried before turning to the gradient.
CANDIDATES = 20

FirstGuess: TypeAlias = TabularCMDP | TabularPolicy | TimedPolicy | ArrayLike | None

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
            if step % CERTIFY_EVERY == 0 and _shortfall(task, signals, best, _implied_multipliers(spent)) <= epsilon:
                break
        return _certify(task, signals, best, _implied_multipliers(spent), epsilon, f"steps = {steps}")

    return optimal


def _implied_multipliers(spent: Floats) -> Floats:
    multipliers: Floats = spent[1:] / max(spent[0], 1.0)
    return multipliers


# ---------------------------------------------------------------------------------------------------- O_s, worst task


def worst_task_then_gradient(
    first_guess: FirstGuess = None, *, steps: int = 2000, step_size: float = 0.5
) -> FeasibleOracle:
    """O_s by trying the policies most likely to be safe, then worst-case policy gradient; certified by evaluation.

    One stationary policy feasible on several tasks is not a linear program. In this order:
    1. the first guess;
    2. optimal policies of one task with tightened budgets, of the task on which the first guess (or, without one, the
       uniform policy) is worst, then of the one on which the last policy tried is worst, and so on;
    3. from the best of these, natural gradient ascent on the smallest margin over tasks and constraints (Xu and Zhu).
       The step grows while the same task and constraint stay worst and shrinks when another one becomes so. Only
       tasks that have been worst are evaluated at each step: the others are looked at now and then, and at the end.
    The first policy with margin at least ξ on every task, evaluated exactly, is returned. Tasks with a horizon end with
    step 2: their policies look at the clock, and no gradient does.

    Args:
        first_guess: a policy believed to be safe everywhere, or a task whose optimal policy is.
        steps: gradient steps in all.
        step_size: at first, the policy is multiplied by exp(step_size · advantage), the largest advantage scaled to 1.
    """
    _require_positive(steps=steps, step_size=step_size)

    def feasible(
        tasks: Sequence[TabularCMDP], xi: float | None, delta: float, rng: np.random.Generator
    ) -> FeasiblePolicy:
        if not len(tasks):
            raise InvalidInput("tasks must hold at least one task, got none")
        if xi is not None and not xi >= 0:
            raise InvalidInput(f"xi must be None or a margin of at least 0, got {xi!r}")
        required = 0.0 if xi is None else xi
        best = _best_candidate(tasks, first_guess, required)
        if not best.meets(required):
            best = _ascend_worst_margin(tasks, best, required, steps, step_size)
        if not best.meets(required):
            raise _no_common_policy(tasks, best, required)
        return FeasiblePolicy(_policy(best.probabilities), best.reward, best.margin)

    return feasible


@dataclass(frozen=True, eq=False)
class _Tried:
    """A policy, [S, A] or with a horizon [H, S, A], and its values on all n tasks: reward [n] and margin [n, m] as
    users read them, V_c [n, m]."""

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
    values = [evaluate(task, _policy(probabilities)) for task in tasks]
    margin = np.stack([value.margin for value in values])
    unit = np.stack([task.units.unit_margin(row) for task, row in zip(tasks, margin, strict=True)])
    return _Tried(probabilities, np.array([value.reward for value in values]), margin, unit)


def _best_candidate(tasks: Sequence[TabularCMDP], first_guess: FirstGuess, required: float) -> _Tried:
    """The first guess if it will do, else the cautious policies of the worst tasks in turn; the best if none does."""
    best = latest = _try(tasks, _first_policy(tasks[0], first_guess))
    if first_guess is not None and best.meets(required):
        return best
    asked: set[int] = set()
    while latest.worst_task not in asked and len(asked) < CANDIDATES:
        asked.add(worst := latest.worst_task)
        for probabilities in _cautious_policies(tasks[worst], f"task {worst} of {len(tasks)}", required):
            latest = _try(tasks, probabilities)
            if latest.meets(required):
                return latest
            best = max(best, latest, key=lambda tried: tried.smallest)
    return best


def _first_policy(task: TabularCMDP, first_guess: FirstGuess) -> Floats:
    """Probabilities of the first guess; uniform, only to see which task is worst, where there is none."""
    if first_guess is None:
        return np.full(task.reward.shape, 1 / task.n_actions)
    guess = solve(first_guess).policy if isinstance(first_guess, TabularCMDP) else first_guess
    shape = (task.n_states, task.n_actions)
    return as_tables(guess, shape) if isinstance(guess, TimedPolicy) else as_tabular(guess, shape).probabilities


def _policy(probabilities: Floats) -> TabularPolicy | TimedPolicy:
    return TabularPolicy(probabilities) if probabilities.ndim == 2 else TimedPolicy(probabilities)


def _cautious_policies(task: TabularCMDP, name: str, required: float) -> Iterator[Floats]:
    """Optimal policies of `task` with its budgets tightened: to the margin asked for, half-way, to the limit.

    Where no margin is asked for, half of the largest possible one is: a safe policy on the boundary is of little use.
    With costs in unit scale one tightening for all constraints is a margin for all; an impossible tightening makes the
    solver name the least cost, hence the largest margin.
    """
    scale = task.units.cost_scale
    cost, budget = task.cost / scale[:, None, None], task.budget / scale
    scaled = TabularCMDP(
        task.transitions, task.reward, cost, budget, task.start, task.discount, horizon=task.units.horizon
    )
    try:
        solve(scaled, 3 / task.units.rate)  # |V_c| ≤ 1/(1-γ), so this is impossible
    except Infeasible as error:
        least_cost = error.least_cost
    largest = float((scaled.budget - least_cost).min())
    if largest < required - ROUNDING:
        raise Infeasible(
            f"{name} has no policy of unit margin {required:.6g}: the largest that any policy reaches is {largest:.6g} "
            f"(cost {_round_values(least_cost * scale)}, budget {task.budget.tolist()}); lower xi or leave the task "
            "out",
            least_cost * scale,
        )
    lowest = required if required > 0 else largest / 2
    for tighten in (lowest + SOLVER_ERROR, (lowest + largest) / 2, largest - SOLVER_ERROR):
        yield solve(scaled, min(tighten, largest - SOLVER_ERROR)).policy.probabilities


def _ascend_worst_margin(
    tasks: Sequence[TabularCMDP], candidate: _Tried, required: float, steps: int, step_size: float
) -> _Tried:
    """Natural gradient ascent on the smallest unit margin over tasks and constraints; the best policy met."""
    best = candidate
    policy = 0.9 * candidate.probabilities + 0.1 / candidate.probabilities.shape[1]  # softmax cannot leave a corner
    log_policy = np.log(policy)
    peak, peak_policy = -np.inf, policy
    active = {candidate.worst_task: _unit_signals(tasks[candidate.worst_task])}
    ascended: tuple[int, int] | None = None
    for step in range(1, steps + 1):
        policy = np.exp(log_policy)
        values = {k: _state_values(tasks[k], signals, policy) for k, signals in active.items()}
        constraints = {(k, i): float(v @ tasks[k].start) for k, each in values.items() for i, v in enumerate(each) if i}
        (worst, i), smallest = min(constraints.items(), key=lambda item: item[1])
        if smallest > peak:
            peak, peak_policy = smallest, policy
        if smallest >= required or step % LOOK_AROUND == 0:
            everywhere = _try(tasks, peak_policy)
            best, peak = max(best, everywhere, key=lambda tried: tried.smallest), -np.inf
            if best.meets(required):
                return best
            active.setdefault(everywhere.worst_task, _unit_signals(tasks[everywhere.worst_task]))

        advantage = _action_values(tasks[worst], active[worst][i], values[worst][i]) - values[worst][i][:, None]
        if (largest := float(np.abs(advantage).max())) <= ROUNDING:
            break  # the best that any policy can do in this constraint
        step_size = min(1.2 * step_size, LARGEST_STEP) if ascended == (worst, i) else 0.7 * step_size
        ascended = (worst, i)
        log_policy = _log_softmax(log_policy + step_size * advantage / largest)
    return max(best, _try(tasks, peak_policy), key=lambda tried: tried.smallest)


def _no_common_policy(tasks: Sequence[TabularCMDP], best: _Tried, required: float) -> Infeasible:
    index = best.worst_task
    budget = tasks[index].budget
    cost = budget - best.margin[index]
    return Infeasible(
        f"no policy found of unit margin {required:.6g} on all {len(tasks)} tasks: the best has {best.smallest:.6g} "
        f"on task {index} (cost {_round_values(cost)}, budget {budget.tolist()}); lower xi or take more steps",
        cost,
    )


def _round_values(cost: Floats) -> list[float]:
    return [float(f"{value:.6g}") for value in cost]


# ---------------------------------------------------------------------------------------------- shared, in unit scale


def _unit_signals(task: TabularCMDP) -> Floats:
    """[1+m, S, A] the paper's r and c."""
    endless(task, "a policy gradient")
    return np.concatenate([task.units.unit_reward(task.reward)[None], task.units.unit_constraint(task.cost)])


def _state_values(task: TabularCMDP, signals: Floats, policy: Floats) -> Floats:
    """[k, S] value of each of the signals [k, S, A] from every state."""
    per_state = np.einsum("ksa,sa->sk", signals, policy)
    return solve_discounted(chain(task, policy), per_state, task.discount).T


def _action_values(task: TabularCMDP, signal: Floats, state_values: Floats) -> Floats:
    """[S, A] Q of a signal [S, A] whose policy has state values [S]."""
    expected: Floats = (task.rows @ state_values).reshape(signal.shape)
    return signal + task.discount * expected


def _log_softmax(logits: Floats) -> Floats:
    shifted: Floats = logits - logits.max(axis=1, keepdims=True)
    normaliser: Floats = np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted - normaliser


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


def _certify(
    task: TabularCMDP, signals: Floats, policy: Floats, multipliers: Floats, epsilon: float, settings: str
) -> PolicyValues:
    """The policy with its values, or an error if neither its quality nor the infeasibility of the task is proved."""
    shortfall = _shortfall(task, signals, policy, multipliers)
    values = evaluate(task, policy)
    if not shortfall <= epsilon:
        # r ≥ 0 in unit scale, so a bound on the value of every feasible policy that is negative by more than rounding
        # says that there is none.
        if _dual_value(task, signals, multipliers) < -ROUNDING:
            raise Infeasible(
                f"no policy keeps the cost within the budget {task.budget.tolist()}; the search ended at cost "
                f"{_round_values(values.cost)}",
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
