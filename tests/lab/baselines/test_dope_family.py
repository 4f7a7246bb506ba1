"""DOPE, DOPE+ and OptPess-LP as methods: the learner's contract, constants by hand, and runs on tiny tasks."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.bounds.exact import finite_cells
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.dope import OptimisticPlanning
from surefoot.lab.baselines.dope_planning import FiniteHorizonPlanner, RelaxedOccupancy
from surefoot.lab.baselines.empirical_model import known_support
from surefoot.learning.learner import Learner
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.simulate.run import Run
from surefoot.simulate.runner import run_learner
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.solve import solve
from surefoot.tasks.layered_tasks import layered
from surefoot.tasks.task_distribution import from_arrays
from surefoot.testing import learner_suite as suite

STEPS, LENGTH, EPISODES, PLANNED = 12, 1500, 60, 1000
HORIZON = 4  # of the layered task
NAMES = [
    f"{algorithm}-{preset}" for algorithm in ("dope", "dope-plus", "optpess-lp") for preset in ("theory", "published")
]

# Small widths and a short warm-up, so that every method plans within a few dozen episodes.
QUICK: dict[str, Any] = {"scale": 1e-3, "warm_up": 20}
SETTINGS = [
    (name, kind, replan) for name in NAMES for kind, replan in (("discounted", "doubling"), ("layered", "growth"))
]
SETTINGS += [("dope-theory", "discounted", "episode"), ("dope-theory", "layered", "doubling")]
SETTINGS += [("dope-theory", "discounted", 0.1), ("optpess-lp-theory", "layered", 0.03)]


@cache
def base() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three states in a ring; advancing pays, more in later states, and costs. It fails one time in five."""
    stay = np.eye(3)
    advance = 0.8 * np.roll(stay, 1, axis=1) + 0.2 * stay
    reward = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]])
    cost = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 2.0]])
    return np.stack([stay, advance], axis=1), reward, cost


@cache
def task_of(kind: str) -> TabularCMDP:
    transitions, reward, cost = base()
    if kind == "layered":
        return layered(transitions, reward, cost, 3.0, np.eye(3)[0], HORIZON)
    return TabularCMDP(transitions, reward, cost, 1.2, np.eye(3)[0], 0.5)


@cache
def policies_of(kind: str) -> PolicyValueSet:
    """The safe policy spends half of the budget and tries every action everywhere."""
    task = task_of(kind)
    optimal = solve(task)
    lazy = 0.95 * np.eye(2)[np.zeros(task.n_states, dtype=np.int64)] + 0.025
    share = next(p for p in np.linspace(1, 0, 201) if cost_of(task, p, lazy) <= 0.5 * task.budget[0])
    safe = TabularPolicy(share * np.full_like(lazy, 0.5) + (1 - share) * lazy)
    values = evaluate(task, safe)
    entry = Entry(
        *(np.zeros(1), optimal.policy, optimal.values.reward, optimal.values.margin, values.reward, values.margin)
    )
    cells = finite_cells(from_arrays([task]), [safe, optimal.policy])
    return PolicyValueSet((entry,), safe, task.units, 0.1, 0.1, 0.01, "made up", {}, {}, cells)


def cost_of(task: TabularCMDP, share: float, lazy: np.ndarray) -> float:
    return float(evaluate(task, TabularPolicy(share * np.full_like(lazy, 0.5) + (1 - share) * lazy)).cost[0])


def method_of(name: str, kind: str, episodes: int = PLANNED, **options: Any) -> OptimisticPlanning:
    if kind == "layered":
        options["layers"] = HORIZON
    made: Any = learner(policies_of(kind), method=name, episodes=episodes, risk=0.1, horizon=STEPS, **options).method
    return made


def maker(name: str, kind: str, replan: str | float) -> suite.Make:
    return lambda: Learner(method_of(name, kind, replan=replan, **QUICK), seed=3)


def world(kind: str) -> suite.EpisodeSource:
    """A fresh one each time: what policy a number stands for depends on what was told."""
    return suite.EpisodeSource(task_of(kind), STEPS, LENGTH)


# --------------------------------------------------------------------------------------------------------- contract

covered_by_all = pytest.mark.parametrize(("name", "kind", "replan"), SETTINGS)


@pytest.mark.short_for(replan=["growth"], name=["dope-theory"])
@covered_by_all
def test_contract(name: str, kind: str, replan: str | float) -> None:
    make = maker(name, kind, replan)
    suite.asking_changes_nothing(make, world(kind), EPISODES)
    suite.orders_are_told_once_and_in_turn(make, world(kind), EPISODES)
    suite.malformed_outcomes_are_refused(make, world(kind), EPISODES)
    suite.deploys_mixtures_of_its_policies(make, world(kind), EPISODES)
    suite.replaying_gives_the_same_story(make, world(kind), EPISODES)
    suite.leaving_the_range_voids_the_certificate(make, world(kind), EPISODES)
    suite.a_breach_falls_alike_in_blocks(make, world(kind), EPISODES)
    suite.draws_follow_the_weights(make, world(kind), EPISODES, draws=5000)


@pytest.mark.short_for(replan=["doubling"], kind=["discounted"])
@covered_by_all
@settings(max_examples=2)
@given(sizes=st.lists(st.integers(1, 70), min_size=1, max_size=6))
def test_blocks_tell_the_same_story(name: str, kind: str, replan: str | float, sizes: list[int]) -> None:
    story = suite.tell_singly(maker(name, kind, replan)(), world(kind), 150)
    assert max(story.drawn) > 0, "this setting must plan something"
    suite.blocks_tell_the_same_story(maker(name, kind, replan), world(kind), [*sizes, 300], story)


@pytest.mark.parametrize("kind", ["discounted", "layered"])
@pytest.mark.parametrize("replan", ["doubling", "growth", "episode", 0.03])
def test_abandoned_episodes_are_not_counted_but_pass(kind: str, replan: str | float) -> None:
    learner, stage = maker("dope-theory", kind, replan)(), world(kind)
    for episode in range(60):
        order = learner.ask()
        if episode % 3 == 0:
            before = learner.state.method.counts
            learner.abandon(order)
            assert np.array_equal(learner.state.method.counts, before)
        else:
            learner.tell(order, stage.outcome(learner, order.episode, order.policy_index))
    assert learner.state.episode == 60
    assert learner.state.method.counts.sum() == 40 * (STEPS if kind == "discounted" else HORIZON - 1)
    assert learner.state.method.planned
    assert not any(event.kind == "alarm" for event in learner.events), "nothing was certified with these widths"


@pytest.mark.parametrize("name", ["dope-theory", "optpess-lp-theory"])
def test_an_abandoned_episode_ends_the_certificate(name: str) -> None:
    learner, stage = Learner(method_of(name, "layered", episodes=10**6), seed=3), world("layered")
    for _ in range(3):
        order = learner.ask()
        learner.tell(order, stage.outcome(learner, order.episode, order.policy_index))
    assert learner.certified
    learner.abandon(learner.ask())
    assert not learner.certified
    (alarm,) = (event for event in learner.events if event.kind == "alarm")
    assert (alarm.episode, "certificate void" in alarm.message) == (4, True)
    learner.abandon(learner.ask())
    assert sum(event.kind == "alarm" for event in learner.events) == 1, "said once"
    assert not learner.state.voided, "the learner itself has nothing to distrust, and planning goes on"


def test_a_plan_after_more_episodes_than_announced_ends_the_certificate() -> None:
    learner = Learner(method_of("optpess-lp-theory", "layered", episodes=3, replan="episode"))
    stage, flags = world("layered"), []
    for _ in range(5):
        order = learner.ask()
        learner.tell(order, stage.outcome(learner, order.episode, order.policy_index))
        flags.append(learner.certified)
    assert flags == [True, True, True, False, False]
    assert [event.episode for event in learner.events if event.kind == "alarm"] == [4]


def test_the_safe_policy_for_ever_needs_no_outcomes() -> None:
    """Where the warm-up outlasts the run nothing is estimated, so nothing can be biased."""
    learner = Learner(method_of("dope-theory", "layered", episodes=10))
    learner.abandon(learner.ask())
    assert learner.certified


# ------------------------------------------------------------------------------------------------------ constants


def test_the_warm_up_is_the_formula_by_hand() -> None:
    """S = 3, A = 2: on four steps H = 4, one step costs up to 2; with γ = 1/2, H is Σ (1/2)^h over 20 steps."""
    margin = float(policies_of("layered").entries[0].safe_margin[0]) / 2
    assert method_of("dope-theory", "layered").warm_up == math.ceil(9 * 2 * 4**3 / margin**2)
    margin = float(policies_of("discounted").entries[0].safe_margin[0]) / 2
    steps = math.ceil(math.log(1 / 5e-5) / 0.5)
    mass = sum(0.5**h for h in range(steps))
    assert steps == 20
    assert method_of("dope-theory", "discounted").warm_up == math.ceil(9 * 2 * mass**3 / margin**2)
    assert method_of("dope-plus-theory", "discounted").warm_up == method_of("dope-theory", "discounted").warm_up
    assert method_of("optpess-lp-theory", "discounted").warm_up == 0
    assert method_of("dope-published", "discounted").warm_up == 14_000


def test_a_method_that_never_plans_needs_no_transitions() -> None:
    short = method_of("dope-theory", "layered", episodes=method_of("dope-theory", "layered").warm_up)
    assert short.observes == "sums"
    assert method_of("dope-theory", "layered", episodes=short.warm_up + 1).observes == "transitions"
    run = run_on("layered", Learner(short), 100)
    assert np.ptp(run.margin) == 0


def test_a_warm_up_that_outlasts_the_run_is_announced() -> None:
    assert method_of("dope-theory", "layered", episodes=10**9).note == ""
    (event,) = Learner(method_of("dope-theory", "layered", episodes=10, warm_up=12)).events
    assert event.message == (
        "dope-theory plays the safe policy for 12 episodes first, at least the 10 there are: it never leaves it"
    )


def test_only_the_constants_of_a_known_theorem_are_certified() -> None:
    certified = [name for name in NAMES if method_of(name, "layered").certified]
    assert certified == ["dope-theory", "optpess-lp-theory"]
    assert not method_of("dope-theory", "layered", scale=0.5).certified
    assert not method_of("dope-theory", "layered", warm_up=5).certified
    assert not any(method_of(name, "discounted", episodes=10**15).certified for name in NAMES), "no theorem is about it"
    assert method_of("dope-theory", "discounted", episodes=1).certified, "it is the safe policy for ever"


def test_bonuses_by_hand() -> None:
    """All of n(s, a) = 1000 in one slot of each row, so that P̂(1-P̂) = 0 and widths are 14 L/3000 in every slot."""
    episodes, risk, H, S = PLANNED, 0.1, 4, 3
    margin = float(policies_of("layered").entries[0].safe_margin[0]) / 2
    support = known_support(policies_of("layered").cells.model.class_table, HORIZON)  # type: ignore[union-attr]
    counts = np.zeros(support.possible.shape, dtype=np.int64)
    counts[:, :, 0] = 1000
    slots = support.possible.sum(axis=2)

    def bonuses(name: str, **options: Any) -> Any:
        planner = method_of(name, "layered", **options).planner
        assert isinstance(planner, FiniteHorizonPlanner)
        return planner.bonuses(counts, counts / 1000.0)

    for name, L in (
        ("dope-theory", math.log(2 * 6 * 4 * episodes / risk)),
        ("dope-published", math.log(54 * 4 * episodes / risk)),
    ):
        width = 14 * L / 3000
        reward, cost, widths = bonuses(name)
        assert widths == pytest.approx(width * support.possible)
        assert cost == pytest.approx(H * width * slots)
        assert reward == pytest.approx(H**2 / margin * width * slots)
        assert bonuses(name, scale=0.25)[0] == pytest.approx(reward / 4)

    # The factored script of the authors: 14 L/(3n) for every state, and widths that may exceed 1.
    reward, cost, widths = bonuses("dope-published", widths="factored")
    assert cost == pytest.approx(np.full((3, 2), H * S * 14 * L / 3000))
    assert reward == pytest.approx(H / margin * cost)
    assert widths == pytest.approx(14 * L / 3000 * support.possible)
    counts[:, :, 0] = 2
    assert bonuses("dope-published", widths="factored")[1].min() > 2 * H, "not cut at 1 for a state"
    counts[:, :, 0] = 1000

    L = math.log(32 * 9 * 4 * episodes / risk)
    for name, one in (("optpess-lp-theory", 1), ("optpess-lp-published", 0)):
        reward, cost, widths = bonuses(name)
        assert widths.max() == 0
        assert cost == pytest.approx(np.full((3, 2), (one + S * H) * math.sqrt(L / 1000)))
        slope = (one + S * H) * (1 + 4 * H / margin)
        assert reward == pytest.approx(np.full((3, 2), slope * math.sqrt(L / 1000)))

    L = math.log(6 * 4 * episodes / risk)
    reward, cost, widths = bonuses("dope-plus-theory")
    assert widths[:, :, 0] == pytest.approx(np.full((3, 2), 2 * math.sqrt(L / 999) + 14 * L / 2997))
    assert reward == pytest.approx(H / margin * cost)


def test_the_figure_planner_by_hand() -> None:
    """The paper's numbers: L = 1e-4 in the bonus and 1e-8 in the widths, 0.1 for the margin, 1 + √0.0005 as the cap."""
    planner = method_of("dope-plus-published", "discounted").planner
    assert isinstance(planner, RelaxedOccupancy)
    visits = np.full((3, 2), 1001)
    transitions = base()[0]
    reward, cost, slack = planner.bonuses(transitions, visits)
    bonus = 8 * math.sqrt(2) * (math.sqrt(12e-4 / 1000) + 14 * 3e-4 / 3000) + 2e-4 * math.sqrt(PLANNED) / 1000
    assert cost == pytest.approx(base()[2] + bonus)
    assert reward == pytest.approx(np.minimum(base()[1] + 2 * bonus / 0.1, 1 + math.sqrt(5e-4)))
    widths = 2 * np.sqrt(1e-8 * transitions / 1000) + 14e-8 / 3000
    assert slack == pytest.approx(widths.sum(axis=(1, 2)), rel=1e-12)


def test_the_figure_planner_is_exact_where_nothing_is_relaxed() -> None:
    """With scale 0 and rewards below the cap its program is the occupancy program of the task with P̂."""
    transitions, reward, cost = base()
    task = TabularCMDP(transitions, reward / 3, cost, 1.2, np.eye(3)[0], 0.5)
    cells = finite_cells(from_arrays([task]), [TabularPolicy(np.eye(2)[[0, 0, 0]])])
    assert cells.model is not None
    support = known_support(cells.model.class_table)
    counts = np.zeros(support.possible.shape, dtype=np.int64)
    s, a, d = np.nonzero(support.possible)
    counts[s, a, d] = np.rint(1000 * transitions[s, a, support.successors[s, a, d]])
    found = RelaxedOccupancy(task.units, cells.model, support, "dope-plus", 100, scale=0.0)(counts)
    assert found is not None
    values = evaluate(task, TabularPolicy(found[0][0]))
    assert values.reward == pytest.approx(solve(task).values.reward, abs=1e-6)
    assert values.cost[0] == pytest.approx(1.2, abs=1e-6)


# ----------------------------------------------------------------------------------------------------------- runs


def run_on(kind: str, learner: Learner, episodes: int) -> Run:
    task = task_of(kind)
    learner.horizon = STEPS
    return run_learner(learner, task, episodes=episodes, seed=1)


@pytest.mark.short_for(name=["dope-theory"])
@pytest.mark.parametrize("kind", [pytest.param("discounted", marks=pytest.mark.long), "layered"])
@pytest.mark.parametrize(
    ("name", "scale"), [("dope-theory", 0.05), ("dope-plus-theory", 2e-3), ("optpess-lp-theory", 0.01)]
)
def test_it_improves_on_the_safe_policy_without_a_violation(name: str, scale: float, kind: str) -> None:
    episodes = 4000
    run = run_on(kind, Learner(method_of(name, kind, episodes=episodes, scale=scale, warm_up=100), seed=0), episodes)
    assert run.margin.min() >= 0
    steps = np.diff(run.regret, prepend=0.0)
    # Bonuses still tempt it away from the optimum, but the safe policy would have a ratio of 1 in both.
    assert steps[-1] < 0.6 * steps[0]
    assert run.regret[-1] < 0.6 * episodes * steps[0]


def test_theory_is_safe_and_falls_back_at_first() -> None:
    """Nothing scaled: after a short warm-up no plan is within the budget, and the safe policy stays."""
    run = run_on("layered", Learner(method_of("dope-theory", "layered", warm_up=10)), 200)
    assert np.ptp(run.margin) == 0


@pytest.mark.long
def test_the_standard_schedule_costs_less_than_three_per_cent() -> None:
    """Against planning before every episode; planning on doubling, which costs more, shows that this can fail."""

    def regret(**options: Any) -> float:
        method = method_of("dope-theory", "layered", episodes=1500, scale=0.1, warm_up=50, **options)
        return float(np.mean([run_on("layered", Learner(method, seed=seed), 1500).regret[-1] for seed in (0, 1)]))

    always = regret(replan="episode")
    assert abs(regret() / always - 1) < 0.03
    assert regret(replan="doubling") / always - 1 > 0.05


def test_plans_fall_where_some_visit_count_has_grown_enough() -> None:
    """Re-simulated with a plain loop over the episodes: n(s, a) before the last layer, against 1.2 times the last."""
    learner, stage, warm_up = Learner(method_of("dope-theory", "layered", replan=0.2, **QUICK)), world("layered"), 20
    visits, at_last_plan, plans = np.zeros((3, 2)), np.zeros((3, 2)), []
    for episode in range(1, 121):
        order = learner.ask()
        outcome = stage.outcome(learner, order.episode, order.policy_index)
        assert outcome.states is not None
        assert outcome.actions is not None
        for step in range(HORIZON - 1):
            visits[outcome.states[step] % 3, outcome.actions[step]] += 1
        learner.tell(order, outcome)
        grown = ((visits >= 1.2 * at_last_plan) & (visits > at_last_plan)).any()
        if episode == warm_up or (episode > warm_up and grown):
            plans.append(episode)
            at_last_plan = visits.copy()
        assert np.array_equal(learner.state.method.visits, at_last_plan if plans else 0 * visits), episode
    assert 10 < len(plans) < 60


def test_doubling_is_a_growth_of_one() -> None:
    runs = [
        run_on("layered", Learner(method_of("dope-theory", "layered", replan=replan, **QUICK)), 200)
        for replan in ("doubling", 1.0, 1)
    ]
    assert all(np.array_equal(run.regret, runs[0].regret) for run in runs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "dope"}, r"method must be one of .*dope-theory"),
        ({"kind": "layered", "planning_horizon": 5}, "planning_horizon must be left out"),
        ({"name": "dope-published", "planning_horizon": 5}, "planning_horizon must be left out"),
        ({"replan": "never"}, "replan must be one of growth, doubling, episode or positive, got 'never'"),
        ({"replan": 0.0}, "replan must be one of growth, doubling, episode or positive, got 0.0"),
        ({"replan": math.inf}, "replan must be .*, got inf"),
        ({"scale": -1.0}, "scale must not be negative"),
        ({"warm_up": -1}, "warm_up must be a whole number"),
        ({"planning_horizon": 0}, "planning_horizon must be a whole number"),
        ({"pace": 1}, "takes no option 'pace'"),
        ({"widths": "inventory"}, "widths must be 'bernstein', or 'factored' or 'inventory' for dope-published"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        method_of(**{"name": "dope-theory", "kind": "discounted", **options})
