"""Methods on tasks that end after H steps, without discount: a made-up set for a task that is no table."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import surefoot as sf
from contracts.spending import BUDGET, DIALS, HORIZON, UNITS, OpenSpending, Spending, spending_set, true_values
from surefoot.deploy.outcomes import breach
from surefoot.deploy.verify import verify
from surefoot.errors import InvalidInput
from surefoot.lab.experiments.promise.counts import overconfident
from surefoot.learning.paper.constants import PaperRules
from surefoot.methods import METHODS
from surefoot.policyset.certifiable import advice
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.testing import learner_suite
from surefoot.training.train import train

RUNNING = (
    "safe-only", "paper", "published", "pce", "pce-theory", "certified", "certified-returns", "certified-model-free"
)  # fmt: skip
PLANNED = 5000


def fresh(name: str, **changes: Any) -> sf.Learner:
    return sf.learner(spending_set(), **{"method": name, "episodes": PLANNED, "risk": 0.2, "seed": 1, **changes})


@pytest.mark.short_for(name=["certified-model-free"])
@pytest.mark.parametrize("name", RUNNING)
def test_methods_keep_the_contract(name: str) -> None:
    learner_suite.check(lambda: fresh(name), learner_suite.EpisodeSource(Spending(0.4), HORIZON, 400))


@pytest.mark.parametrize("name", ["paper", "certified-returns", "certified-model-free"])
def test_certified_methods_move_and_stay_safe(name: str) -> None:
    """Margins by hand, on the tasks of both entries and on one between them."""
    moved = 0
    for seed, hazard in enumerate((0.3, 0.45, 0.6)):
        run = sf.adapt(spending_set(), OpenSpending(hazard), method=name, episodes=PLANNED, risk=0.2, seed=seed)
        assert run.certified
        assert run.margin.min() >= 0
        moved += run.weight[-1] > 0.1
    assert moved >= 2


@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param("certified-returns", marks=pytest.mark.long), "certified-model-free"])
def test_the_promise_is_kept(name: str) -> None:
    """At risk 0.5, on hazards for which both candidates break the budget; a twin without confidence bounds does not."""

    def fails(twin: bool, seed: int) -> bool:
        learner = sf.learner(spending_set(), method=name, risk=0.5, seed=seed)
        if twin:
            method = overconfident(learner.method)
            assert method is not None
            learner = sf.Learner(method, seed=seed, horizon=HORIZON)
        return unsafe_run(learner, np.random.default_rng(seed))

    tasks = 60
    kept, lost = (sum(fails(twin, seed) for seed in range(tasks)) for twin in (False, True))
    assert stats.binomtest(kept, tasks, 0.5, alternative="greater").pvalue > 1e-6
    assert stats.binomtest(lost, tasks, 0.5, alternative="greater").pvalue < 1e-6


def unsafe_run(learner: sf.Learner, rng: np.random.Generator, episodes: int = 1000) -> bool:
    """Whether any mixture deployed on a fresh task costs more than the budget, by hand."""
    task = Spending(float(rng.uniform(0.6, 0.8)))
    cost = np.array([true_values(task.hazard, share)[1] for share in DIALS])
    broken = False
    while learner.state.episode < episodes:
        orders = learner.ask_block(50)
        broken |= bool(orders.deployed.weights @ cost[orders.deployed.indices] > BUDGET + 1e-9)
        streams = {i: task.episodes(learner.policy(i), HORIZON).run(50, rng) for i in set(orders.drawn.tolist())}
        learner.tell_block(orders, _picked(streams, orders.drawn))
    return broken


def _picked(streams: dict[int, sf.Outcomes], drawn: np.ndarray) -> sf.Outcomes:
    reward = np.array([streams[int(index)].reward[k] for k, index in enumerate(drawn)])
    return sf.Outcomes(reward, np.array([streams[int(index)].cost[k] for k, index in enumerate(drawn)]))


def test_the_papers_constants_are_those_of_H_steps() -> None:
    """1/(1-γ) becomes H, and γ/(1-γ)² becomes H(H-1); scales are 1 here."""
    epsilon, K, delta = 1e-5, 3000, 0.1
    rules = PaperRules(spending_set(epsilon=epsilon), K, delta)
    lipschitz = HORIZON + 2 * HORIZON * (HORIZON - 1)
    count = np.array([1, 50])
    radius = HORIZON * np.sqrt(rules.log_term / (2 * count)) + epsilon * (lipschitz + 1)
    np.testing.assert_allclose(rules.reward_radius(count), radius, rtol=1e-12)
    np.testing.assert_allclose(rules.margin_radius(count)[:, 0], radius, rtol=1e-12)
    entry = rules.policies.entries[0]
    assert rules.phase_length(entry, 0, 0.0) == pytest.approx(8 * rules.log_term * HORIZON**2 / BUDGET**2)
    gain = BUDGET - 2 * epsilon * (lipschitz + 2)
    assert rules.next_weight(entry, 0, 0.0) == pytest.approx(gain / (gain + 2 * (HORIZON - BUDGET)))


def test_the_horizon_is_that_of_the_set_unless_it_is_less() -> None:
    assert fresh("safe-only").horizon == fresh("safe-only").settings["horizon"] == HORIZON
    assert fresh("certified-returns", horizon=15).horizon == 15
    with pytest.raises(InvalidInput, match=f"horizon must be at most that of the policy set, {HORIZON}, got 21"):
        fresh("safe-only", horizon=HORIZON + 1)
    with pytest.raises(InvalidInput, match="horizon must be a whole number"):
        fresh("safe-only", horizon=0)


def test_episodes_cut_off_early_are_paid_for() -> None:
    """Half of the steps may hide half of the cost: bounds on margins are less by that much."""
    whole, half = (fresh("certified-model-free", horizon=steps, assume_safe=True).method for steps in (20, 10))
    states = whole.start(), half.start()
    gap = whole._lowest_margin(states[0], 0) - half._lowest_margin(states[1], 0)
    np.testing.assert_allclose(gap, HORIZON / 2)
    with pytest.raises(InvalidInput, match="horizon must be long enough that the cut-off tail, 10 "):
        fresh("paper", horizon=10)


def test_sums_beyond_the_horizons_range_are_refused_and_journals_hold(tmp_path: Path) -> None:
    path = tmp_path / "spending.journal"
    rng = np.random.default_rng(0)
    with sf.Deployment.open(path, fresh("certified-returns")) as deployment:
        first = deployment.ask()
        with pytest.raises(InvalidInput, match="reward"):
            deployment.tell(first, reward=HORIZON + 0.5, cost=0.0)
        deployment.tell(first, reward=HORIZON - 0.5, cost=0.0)
        for _ in range(60):
            order = deployment.ask()
            found = Spending(0.4).episodes(order.policy, HORIZON).run(1, rng)
            deployment.tell(order, reward=found.reward[0], cost=found.cost[0])
    verdict = verify(path, fresh("certified-returns"))
    assert verdict.holds, verdict.reason


def test_ranges_on_both_sides_of_zero_are_no_way_around() -> None:
    """An undiscounted sum of 30 in 20 steps of at most 1 is out of range, whatever the range begins with."""
    units = sf.Units(1.0, (-1.0, 1.0), np.array([[-1.0, 1.0]]), np.array([BUDGET]), HORIZON)
    assert breach({"reward": 30.0, "cost": [0.0]}, units)
    assert breach({"reward": 0.0, "cost": [30.0]}, units)
    assert not breach({"reward": 19.0, "cost": [-19.0]}, units)


# ---------------------------------------------------------------------------------------------- what asks for tables


@cache
def tables_with_a_horizon() -> PolicyValueSet:
    """A gridworld set whose units say that episodes end: no training makes such a set."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policies = train(gridworld(), epsilon=0.02, delta=0.1, seed=0, progress=False, cells=20)
    return replace(policies, units=replace(policies.units, horizon=400))


OF_TRANSITIONS = [name for name in METHODS if METHODS[name].observes == "transitions"]


@pytest.mark.parametrize("name", [name for name in OF_TRANSITIONS if name.startswith("certified")])
def test_certified_methods_read_tables_with_a_horizon(name: str) -> None:
    policies = tables_with_a_horizon()
    assert advice(policies, "transitions").method == "certified-likelihood"
    made = sf.learner(policies, method=name, risk=0.2).method
    assert made.observes == "transitions"
    assert made.replanner is not None


@pytest.mark.parametrize(
    "name", [name for name in OF_TRANSITIONS if not name.startswith(("certified", "certainty", "posterior"))]
)
def test_methods_that_read_tables_without_a_horizon_say_so(name: str) -> None:
    policies = tables_with_a_horizon()
    with pytest.raises(InvalidInput, match=r"without a horizon.*got .*horizon 400"):
        sf.learner(policies, method=name, episodes=100, risk=0.2)


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].observes == "transitions"])
def test_methods_that_read_tables_refuse_sets_without_them(name: str) -> None:
    if name in ("certified", "posterior", "certainty-equivalence"):  # which take what there is
        return
    with pytest.raises(InvalidInput, match="transition model"):
        sf.learner(spending_set(), method=name, episodes=100, risk=0.2)


def test_without_a_horizon_nothing_changes() -> None:
    endless = sf.Units(0.95, (0.0, 1.0), UNITS.cost_range, UNITS.budget)
    assert endless.effective_discount == endless.discount
    assert endless.episode_length == math.ceil(math.log(1e6) / math.log(1 / 0.95))
