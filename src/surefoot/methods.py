"""The methods by name: a learner for a real system, or a simulated run on a task."""

from __future__ import annotations

from typing import Any

import numpy as np

from surefoot import theory
from surefoot.arrays import fraction, whole
from surefoot.baselines.dope import dope_method
from surefoot.baselines.log_barrier import lb_sgd_method
from surefoot.baselines.safe_meta import safe_meta_method
from surefoot.cmdp.task import Task
from surefoot.errors import InvalidInput
from surefoot.learning.certified.choice import CERTIFIED, SAFE_POLICY_RISK, certified_method
from surefoot.learning.learner import Learner
from surefoot.learning.method import Method
from surefoot.learning.paper.algorithm_2 import VerifyCandidates
from surefoot.learning.paper.constants import PaperRules, PublishedRules
from surefoot.learning.paper.elimination import EliminationRules, PublishedEliminationRules
from surefoot.learning.paper.safe_only import SafeOnly
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.simulate.run import Run
from surefoot.simulate.runner import Observer, run_learner

# Each with the constants that its guarantee needs, and with those of the paper's figure or of its authors' code.
BASELINES = tuple(
    f"{name}-{preset}"
    for name in ("dope", "dope-plus", "optpess-lp", "lb-sgd", "safe-meta")
    for preset in ("theory", "published")
)

METHODS = (
    "safe-only",
    "paper",
    "published",
    "pce",
    "pce-theory",
    *CERTIFIED,
    *BASELINES,
)

# Simulated episodes are cut where the discounted tail is below this fraction of the whole.
TRUNCATION = 1e-6


def learner(
    policies: PolicyValueSet,
    *,
    method: str,
    episodes: int | None = None,
    risk: float = 0.05,
    seed: int = 0,
    horizon: int | None = None,
    **options: Any,
) -> Learner:
    """A learner for a new task.

    Args:
        method: one of `METHODS`.
        episodes: how many will be run; methods whose proof needs it in advance say so.
        risk: probability with which any deployed policy may ever break a budget.
        seed: of the component drawn in each episode.
        horizon: steps of an episode that does not end by itself, for the bias of cut-off sums and for what an
            abandoned episode may have held; by default as many as make the discounted tail negligible (`TRUNCATION`).
        options: further constants of the method.
    """
    fraction("risk", risk)
    horizon = default_horizon(policies.units.discount) if horizon is None else whole("horizon", horizon)
    episodes = None if episodes is None else whole("episodes", episodes)
    seed = int(seed) if isinstance(seed, np.integer) else seed
    chosen = _method(policies, method, episodes, risk, horizon, options)
    settings = {"method": method, "episodes": episodes, "risk": risk, "seed": seed, "horizon": horizon, **options}
    return Learner(chosen, seed=seed, horizon=horizon, settings=settings)


def adapt(
    policies: PolicyValueSet,
    task: Task,
    *,
    method: str,
    episodes: int,
    risk: float = 0.05,
    seed: int,
    horizon: int | None = None,
    optimal_reward: float | None = None,
    observer: Observer | None = None,
    **options: Any,
) -> Run:
    """Run a method on a simulated task; regret and margins in the record are exact where the task can be read, and
    otherwise estimated with an error.

    Args:
        horizon: steps per episode; by default as many as make the discounted tail negligible (`TRUNCATION`).
        optimal_reward: V* of a task that cannot say so itself; without it the regret on such a task is unknown (NaN).
        observer: called with (episodes done, episodes in all), for progress bars.
    """
    episodes = whole("episodes", episodes)
    horizon = default_horizon(policies.units.discount) if horizon is None else whole("horizon", horizon)
    chosen = learner(policies, method=method, episodes=episodes, risk=risk, seed=seed, horizon=horizon, **options)
    return run_learner(chosen, task, episodes=episodes, seed=seed, optimal_reward=optimal_reward, observer=observer)


def default_horizon(discount: float) -> int:
    """Steps after which the discounted tail is below `TRUNCATION` of the whole."""
    return theory.horizon(discount, TRUNCATION / (1 - discount))


def _method(
    policies: PolicyValueSet, name: str, episodes: int | None, risk: float, horizon: int, options: dict[str, Any]
) -> Method:
    truncation = policies.units.discount**horizon
    if name in CERTIFIED:
        # `replan` and `pairs` for the methods with cells, `observes` for the one that chooses.
        allowed = {"certified": {"replan", "pairs", "observes"}, "certified-model-free": {"assume_safe"}}
        _check_options(name, options, allowed.get(name, {"replan", "pairs"}))
        return certified_method(policies, name, risk, truncation=truncation, horizon=horizon, **options)
    if name in BASELINES:
        return _baseline(policies, name, episodes, risk, horizon, options)
    _check_options(name, options, {"assume_safe"} if name in ("safe-only", "paper") else set())
    failing = 0.0 if options.get("assume_safe") else policies.safe_risk
    match name:
        case "safe-only":
            return SafeOnly(policies, risk, failing)
        case "paper":
            return _paper(policies, episodes, risk, failing, horizon)
        case "published":
            return VerifyCandidates(policies, PublishedRules(policies))
        case "pce":
            return VerifyCandidates(policies, PublishedEliminationRules(policies))
        case "pce-theory":
            return VerifyCandidates(policies, EliminationRules(_paper_rules(policies, name, episodes, risk, horizon)))
        case _:
            raise InvalidInput(f"method must be one of {', '.join(METHODS)}, got {name!r}")


def _check_options(name: str, options: dict[str, Any], allowed: set[str]) -> None:
    unknown = sorted(set(options) - allowed)
    if unknown:
        raise InvalidInput(f"method {name!r} takes no option {unknown[0]!r}")


def _paper(
    policies: PolicyValueSet, episodes: int | None, risk: float, failing: float | None, horizon: int
) -> VerifyCandidates:
    """Theorem P at what tasks with an infeasible safe policy leave of the risk; at all of it if that is not known, when
    it speaks of tasks on which the safe policy is feasible."""
    if failing is None:
        return VerifyCandidates(policies, _paper_rules(policies, "paper", episodes, risk, horizon))
    if risk <= failing:
        raise InvalidInput(f"risk must exceed {failing:.3g}, {SAFE_POLICY_RISK}, got {risk:g}")
    rules = _paper_rules(policies, "paper", episodes, risk - failing, horizon)
    return VerifyCandidates(policies, rules, {"coverage": failing, "elimination": risk - failing, "values": 0.0})


def _baseline(
    policies: PolicyValueSet, name: str, episodes: int | None, risk: float, horizon: int, options: dict[str, Any]
) -> Method:
    if name.startswith("safe-meta"):
        return safe_meta_method(policies, name, **options)
    make = lb_sgd_method if name.startswith("lb-sgd") else dope_method
    return make(policies, name, episodes=_planned_episodes(name, episodes), risk=risk, horizon=horizon, **options)


def _paper_rules(policies: PolicyValueSet, name: str, episodes: int | None, risk: float, horizon: int) -> PaperRules:
    planned = _planned_episodes(name, episodes)
    bias = policies.units.truncation_bias(horizon)
    if bias > policies.epsilon:
        raise InvalidInput(
            f"horizon must be long enough that the cut-off tail, {bias:.2g} (unit scale), is at most "
            f"epsilon = {policies.epsilon:g} of the policy set, got {horizon}"
        )
    return PaperRules(policies, planned, risk)


def _planned_episodes(name: str, episodes: int | None) -> int:
    if episodes is None:
        raise InvalidInput(f"method {name!r} needs the number of episodes in advance: pass episodes=…, got None")
    return episodes
