"""DOPE, DOPE+ and OptPess-LP: plan optimistically for reward and pessimistically for cost on an empirical model.

All three know rewards, costs, start and which transitions are possible, play the safe policy first, and fall back to it
whenever no plan keeps the pessimistic cost within the budget. Their formulas are for costs and rewards in [0, 1] per
step and for H steps; tasks are brought there by their declared ranges. On a discounted task, step h weighs γ^h, H is a
truncation, and where H bounds a value it is Σ_{h<H} γ^h; the safe policy follows from step H on and the budget is
smaller by the most it could cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from surefoot.arrays import Floats, Integers, check_int
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.dope_planning import (
    WARM_UP,
    Algorithm,
    Constants,
    FiniteHorizonPlanner,
    Preset,
    RelaxedOccupancy,
    Widths,
    planning_problem,
    total_weight,
)
from surefoot.lab.baselines.empirical_model import Counts, Support, known_support
from surefoot.lab.baselines.known import KnownModel, check_layers, known_model, tables_spec
from surefoot.learning.certified.method import next_decision
from surefoot.learning.event import Event
from surefoot.learning.method import SAFE, SAFE_MIXTURE, Certificate, Method, Mixture, Observes, Step
from surefoot.learning.spec import MethodArgs, MethodSpec
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tabular.policy import TabularPolicy, TimedPolicy

Schedule: TypeAlias = Literal["growth", "doubling", "episode"]
Layout: TypeAlias = Literal["timed", "layered", "stationary"]

# A planner makes one or two policies of the counts, in the compact form of `Layout`, with weights; None if it fails.
Planner: TypeAlias = Callable[[Counts], tuple[NDArray[Any], Floats] | None]

# Plan again when some visit count has grown by this fraction. The regret is then within 3 % of what planning before
# every episode brings (docs/baselines.md), at a fiftieth of the plans.
VISIT_GROWTH = 0.03
# Episodes looked at together for a visit count that has grown so.
CHUNK = 256
NEVER = 2**62


@dataclass(frozen=True)
class PlanningOptions:
    """Everything that may be chosen.

    Attributes:
        layers: the task is layered, states h·S + s for h < layers and an end state; plan on its base task and pool
            counts over layers, as DOPE's authors do. Refused where the task is not like that. The last step leads to
            the end, so there is nothing to count or to be unsure of: it is planned without a bonus. The authors pay
            one there, and count a last successor, which a layered task does not have.
        replan: when to plan again after the warm-up: a number x, when some visit count n(s, a) is 1 + x times what it
            was at the last plan; "doubling", for x = 1; "growth", when episodes have grown by 1/24, which is cheap but
            keeps a bad plan for long; "episode", always, as their authors do.
        scale: multiplies all widths and bonuses; below 1 to show the algorithm at its best, without a guarantee.
        widths: dope-published alone. "factored" for those of the authors' factored script, whose β̄ is over all states,
            the impossible ones too, and not cut at 1; "inventory" for those of their inventory script, which adds no
            bonus to the reward either.
        warm_up: episodes of the safe policy before the first plan; by default the preset's.
        planning_horizon: H on a discounted task; by default from `dope_planning.TOLERANCE`.
    """

    layers: int | None = None
    replan: Schedule | float = VISIT_GROWTH
    scale: float = 1.0
    widths: Widths = "bernstein"
    warm_up: int | None = None
    planning_horizon: int | None = None

    def __post_init__(self) -> None:
        replan: Any = self.replan
        if not self.scale >= 0:
            raise InvalidInput(f"scale must not be negative, got {self.scale!r}")
        is_number = isinstance(replan, int | float | np.number) and not isinstance(replan, bool)
        if not (0 < replan < math.inf if is_number else replan in get_args(Schedule)):
            raise InvalidInput(f"replan must be one of {', '.join(get_args(Schedule))} or positive, got {replan!r}")
        if self.warm_up is not None:
            check_int("warm_up", self.warm_up, least=0)
        if self.planning_horizon is not None:
            check_int("planning_horizon", self.planning_horizon)


def dope_method(
    algorithm: Algorithm, preset: Preset, policies: PolicyValueSet, terms: MethodArgs, **options: Any
) -> OptimisticPlanning:
    """DOPE, DOPE+ or OptPess-LP with one of its sets of constants; `options` are those of `PlanningOptions`."""
    chosen, episodes = PlanningOptions(**options), terms.planned()
    model, safe = _model_and_safe_policy(policies, terms.name, chosen)
    as_in_figure = preset == "published" and chosen.layers is None and algorithm != "optpess-lp"
    _check_combination(terms.name, chosen, as_in_figure)
    support = known_support(model.classes, chosen.layers, ends=as_in_figure)
    planner: Planner
    layout: Layout
    if as_in_figure:
        planner = RelaxedOccupancy(policies.units, model, support, algorithm, episodes, chosen.scale)
        wait, layout = WARM_UP, "stationary"
    else:
        problem, margin = planning_problem(policies, model, support, chosen.planning_horizon)
        steps = problem.horizon if chosen.layers else max(problem.horizon, terms.horizon)
        constants = Constants(
            algorithm, preset, episodes, terms.risk, steps, margin, total_weight(problem), chosen.scale, chosen.widths
        )
        planner = FiniteHorizonPlanner(problem, constants, _by_layer(safe, chosen.layers))
        wait, layout = constants.warm_up(*problem.reward.shape), "layered" if chosen.layers else "timed"
    proved = preset == "theory" and chosen.scale == 1 and chosen.warm_up is None and algorithm != "dope-plus"
    safe_enough = policies.safe_risk is not None and policies.safe_risk <= terms.risk
    return OptimisticPlanning(
        terms.name,
        policies.units,
        safe,
        support,
        planner,
        layout,
        episodes,
        wait if chosen.warm_up is None else int(chosen.warm_up),
        chosen.replan,
        certified=proved and safe_enough and (chosen.layers is not None or wait >= episodes),
    )


def _model_and_safe_policy(
    policies: PolicyValueSet, name: str, chosen: PlanningOptions
) -> tuple[KnownModel, TabularPolicy]:
    """What the method knows of the task, if it is one that it can plan on."""
    model, safe = known_model(policies, name), policies.safe_policy
    if len(model.cost) != 1:
        raise InvalidInput(f"method {name!r} takes one constraint, this task has {len(model.cost)}")
    if not isinstance(safe, TabularPolicy):
        raise InvalidInput(f"safe_policy must be tabular for method {name!r}, got {safe.kind!r}")
    if chosen.layers is not None:
        check_layers(model, policies.units.discount, chosen.layers)
    return model, safe


def _check_combination(name: str, chosen: PlanningOptions, as_in_figure: bool) -> None:
    """Options that not every method takes on every task."""
    if chosen.widths not in get_args(Widths) or (chosen.widths != "bernstein" and name != "dope-published"):
        raise InvalidInput(
            "widths must be 'bernstein', or 'factored' or 'inventory' for dope-published, got "
            f"{chosen.widths!r} for {name}"
        )
    if chosen.planning_horizon is not None and (as_in_figure or chosen.layers):
        raise InvalidInput(
            f"planning_horizon must be left out for {name!r} on this task, got {chosen.planning_horizon}"
        )


def _by_layer(safe: TabularPolicy, layers: int | None) -> Floats:
    """The safe policy's tables, [S, A] or [H, S, A]."""
    tables = safe.probabilities
    return tables if layers is None else tables[:-1].reshape(layers, -1, tables.shape[1])


# ---------------------------------------------------------------------------------------------------------- the method


@dataclass(frozen=True, eq=False)
class Compact:
    """A planned policy: actions [H, S] for a timed or layered one, probabilities [S, A] for a stationary one."""

    table: NDArray[Any]


@dataclass(frozen=True, eq=False)
class PlanningState:
    """Attributes:
    counts: [S, A, D] transitions so far.
    visits: [S, A] when the last plan was made.
    next_plan: the episode before which to plan, unless a visit count has grown enough before.
    planned: policies 1, 2, … of the method.
    voided: whether an episode was abandoned or there were more than planned for: no certificate holds any more.
    """

    counts: Counts
    visits: Counts
    next_plan: int
    deployed: Mixture
    planned: tuple[Compact, ...] = ()
    voided: bool = False


@dataclass(frozen=True, eq=False)
class OptimisticPlanning(Method):
    """Warm up with the safe policy, then plan on the counts, deploy the plan, count on, and plan again.

    The linear program's two optimal deterministic policies are mixed once per episode; its own policy mixes them in
    every state. Both have the same pessimistic cost, and hence the same guarantee.

    An abandoned episode is not counted. The theorems say nothing of that: if episodes are abandoned because of how they
    went, the estimate is biased. So the first one ends the certificate, as does a plan after more than `episodes`;
    planning goes on as before.

    Attributes:
        replan: see `PlanningOptions`.
        certified: their theorem promises zero violation with probability 1 - risk. True where the warm-up outlasts the
            run, and for `theory` of DOPE and OptPess-LP on layered tasks, which it is about (docs/guarantees.md,
            section 10, says which constants these are); DOPE+ is reconstructed, so nothing is claimed for it. Never
            where the safe policy may be infeasible with more than the risk, or nobody knows.
    """

    name: str
    units: Units
    safe_policy: TabularPolicy
    support: Support
    planner: Planner
    layout: Layout
    episodes: int
    warm_up: int
    replan: Schedule | float
    certified: bool

    @property
    def observes(self) -> Observes:
        return "transitions" if self.plans else "sums"

    @property
    def plans(self) -> bool:
        """Whether there will ever be a plan; otherwise this is the safe policy and counting would be idle."""
        return self.warm_up < self.episodes

    @property
    def visit_growth(self) -> float | None:
        """The fraction by which some visit count must have grown for a new plan; None where none need have."""
        return 1.0 if self.replan == "doubling" else None if isinstance(self.replan, str) else float(self.replan)

    @property
    def note(self) -> str:
        """Said when a learner is made with it."""
        if self.plans:
            return ""
        return (
            f"{self.name} plays the safe policy for {self.warm_up:.3g} episodes first, at least the {self.episodes} "
            "there are: it never leaves it"
        )

    def start(self) -> PlanningState:
        blank = np.zeros(self.support.possible.shape, dtype=np.int64)
        return PlanningState(blank, blank.sum(axis=2), max(self.warm_up, 1), SAFE_MIXTURE)

    def mixture(self, state: PlanningState) -> Mixture:
        return state.deployed

    def policy(self, state: PlanningState, index: int) -> Policy:
        return self.safe_policy if index == SAFE else _policy(state.planned[index - 1], self.safe_policy, self.layout)

    def update(self, state: PlanningState, episode: int, drawn: Integers, outcomes: Outcomes) -> Step:
        if not self.plans:
            return Step(state, len(outcomes))
        states, actions = outcomes.states, outcomes.actions
        if states is None or actions is None:
            raise InvalidInput(f"{self.name} needs the visited states and the actions of every episode, got none")
        used = min(len(outcomes), state.next_plan - episode)
        grown = 0
        if self.visit_growth is not None and episode >= self.warm_up:
            grown = self._first_grown(state, self.visit_growth, states[:used], actions[:used])
            used = grown or used
        counts = state.counts + self.support.count(states[:used], actions[:used])
        return self._plan_if_due(replace(state, counts=counts), episode, used, due=grown > 0)

    def abandon(self, state: PlanningState, episode: int, drawn: int) -> Step:
        if not self.plans:
            return Step(state, 1)
        state, alarm = self._void_certificate(state, episode + 1, "runs with an abandoned episode")
        step = self._plan_if_due(state, episode, 1)
        return replace(step, events=alarm + step.events)

    def certificate(self, state: PlanningState) -> Certificate:
        """Nothing is ruled out and no margin is claimed."""
        return Certificate(0, 0, None)

    def _first_grown(self, state: PlanningState, growth: float, states: Integers, actions: Integers) -> int:
        """How many episodes until some n(s, a) is 1 + growth times what the last plan had; 0 if not within these."""
        visits = state.counts.sum(axis=2)
        target = np.maximum((1 + growth) * state.visits, state.visits + 1)
        for first in range(0, len(states), CHUNK):
            part = slice(first, first + CHUNK)
            so_far = visits + self.support.visits_by_episode(states[part], actions[part]).cumsum(axis=0)
            reached = (so_far >= target).any(axis=(1, 2))
            if reached.any():
                return first + int(np.argmax(reached)) + 1
            visits = so_far[-1]
        return 0

    def _plan_if_due(self, state: PlanningState, episode: int, used: int, due: bool = False) -> Step:
        now = episode + used
        if not due and now < state.next_plan:
            return Step(state, used)
        following = {"episode": now + 1, "growth": next_decision(now)}.get(str(self.replan), NEVER)
        state = replace(state, visits=state.counts.sum(axis=2), next_plan=following)
        events: tuple[Event, ...] = ()
        if now > self.episodes:
            state, events = self._void_certificate(
                state, now, f"more than the {self.episodes} episodes it was made for"
            )
        found = self.planner(state.counts)
        was_safe = state.deployed.weight == 0
        if found is None:
            if not was_safe:
                events += (Event(now, "infeasible", "no plan is within the budget: safe policy"),)
            return Step(replace(state, deployed=SAFE_MIXTURE), used, events)
        planned, deployed = _deployment(state, *found)
        if was_safe:
            events += (Event(now, "planned", "the first plan within the budget"),)
        return Step(replace(state, planned=planned, deployed=deployed), used, events)

    def voided(self, state: PlanningState) -> bool:
        return state.voided

    def _void_certificate(
        self, state: PlanningState, now: int, unproved: str
    ) -> tuple[PlanningState, tuple[Event, ...]]:
        """The state without a certificate, and the alarm that says so if there was one."""
        message = f"{self.name} is not proved for {unproved}: certificate void, planning goes on"
        alarm = () if state.voided or not self.certified else (Event(now, "alarm", message),)
        return replace(state, voided=True), alarm


def _deployment(state: PlanningState, tables: NDArray[Any], weights: Floats) -> tuple[tuple[Compact, ...], Mixture]:
    """All policies and the mixture of `tables` [k, …] with `weights` [k]; one already deployed keeps its index."""
    planned = list(state.planned)
    known = {int(index): planned[index - 1].table for index in state.deployed.indices if index != SAFE}
    shares: dict[int, float] = {}
    for table, weight in zip(tables, weights, strict=True):
        index = next((old for old, other in known.items() if np.array_equal(other, table)), 0)
        if not index:
            planned.append(Compact(table))
            index = len(planned)
            known[index] = table
        shares[index] = shares.get(index, 0.0) + float(weight)
    return tuple(planned), Mixture(np.array(list(shares)), np.array(list(shares.values())))


@lru_cache(maxsize=64)
def _policy(compact: Compact, safe: TabularPolicy, layout: Layout) -> Policy:
    if layout == "stationary":
        return TabularPolicy(compact.table)
    tables = np.eye(safe.probabilities.shape[1])[compact.table]  # [H, S, A]
    if layout == "timed":
        return TimedPolicy(np.concatenate([tables, safe.probabilities[None]]))
    return TabularPolicy(np.concatenate([tables.reshape(-1, tables.shape[2]), safe.probabilities[-1:]]))


# ------------------------------------------------------------------------------------------------------------- by name


def _row(algorithm: Algorithm, preset: Preset, why: str, colour: int, **proof: Any) -> MethodSpec:
    return tables_spec(
        f"{algorithm}-{preset}",
        partial(dope_method, algorithm, preset),
        why=why,
        costs="a plan on the empirical model whenever some count of visits has grown: steps × states² × actions",
        options=tuple(field.name for field in fields(PlanningOptions)),
        state=(PlanningState, Compact),
        needs_episodes=True,
        colour=colour,
        **proof,
    )


_PROVED = "its theorem promises zero violation on layered tasks, and while it plays the safe policy"
_CERTIFIED: dict[str, Any] = {"certified": True, "proof": ("section 10",)}
_TUNED = "the constants of its authors' code: no proof"

SPECS = (
    _row("dope", "theory", _PROVED, 16, **_CERTIFIED),
    _row("dope", "published", _TUNED, 11),
    _row("dope-plus", "theory", "reconstructed: nothing is claimed for it", 14),
    _row("dope-plus", "published", _TUNED, 9),
    _row("optpess-lp", "theory", _PROVED, 17, **_CERTIFIED),
    _row("optpess-lp", "published", _TUNED, 12),
)
