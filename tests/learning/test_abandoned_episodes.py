"""An episode without an outcome: no method concludes more from it than from any outcome that it could have had."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.made_up import made_up_set
from shown_wheel import ShownWheel, shown_set
from surefoot.cmdp.episode import Outcomes
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.learning.certified.evidence.likelihood import LikelihoodRatio
from surefoot.learning.certified.evidence.returns import ReturnProcess
from surefoot.learning.certified.evidence.signals import SignalProcess
from surefoot.learning.certified.method import Certified
from surefoot.learning.certified.model_free import ModelFree
from surefoot.learning.learner import Learner, Orders
from surefoot.learning.method import SAFE
from surefoot.learning.paper.algorithm_2 import SafeCandidates, Sums
from surefoot.methods import METHODS, learner
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.rollout import Simulator
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.testing import learner_suite as suite
from trained_gridworld import gridworld_set
from wheel import STEPS

HORIZON = 132


SIGNALS = "certified-signals"  # is for tasks that are no tables


def fresh(name: str) -> Learner:
    if name == SIGNALS:
        return learner(shown_set(), method=name, risk=0.3, seed=5)
    return learner(gridworld_set(), method=name, episodes=3000, risk=0.3, seed=5, horizon=HORIZON)


@cache
def world(name: str = "") -> suite.EpisodeSource:
    if name == SIGNALS:
        return suite.EpisodeSource(ShownWheel(0.25), STEPS, 300)
    return suite.EpisodeSource(gridworld().task([0.31]), HORIZON, 300)


def with_gaps(made: Learner, abandoned: set[int], episodes: int, size: int) -> suite.Story:
    """Blocks of at most `size`, with single abandoned episodes in between."""
    drawn: list[int] = []
    while made.state.episode < episodes:
        episode = made.state.episode
        if episode in abandoned:
            order = made.ask()
            made.abandon(order)
            drawn.append(order.policy_index)
            continue
        until = min([episodes, *(each for each in abandoned if each > episode)])
        orders = made.ask_block(min(size, until - episode))
        used = made.tell_block(orders, world(made.name if made.name == SIGNALS else "").outcomes(made, orders))
        drawn += orders.drawn[:used].tolist()
    return suite.Story(tuple(drawn), (), suite.fingerprint(made.state), suite.fingerprint(made.events))


@pytest.mark.short_for(name=["paper", "pce", "certified", "certified-model-free", "certified-signals", "dope-theory"])
@pytest.mark.parametrize("name", METHODS)
def test_blocks_around_abandoned_episodes_tell_the_same_story(name: str) -> None:
    abandoned = {0, 7, 8, 40, 41, 63}
    single = with_gaps(fresh(name), abandoned, 90, 1)
    assert len(single.drawn) == 90
    for size in (3, 90):
        assert with_gaps(fresh(name), abandoned, 90, size) == single


@pytest.mark.parametrize("name", METHODS)
def test_abandoning_is_a_turn_like_any_other(name: str) -> None:
    made = fresh(name)
    order = made.ask()
    made.abandon(order)
    assert made.state.episode == 1
    before = suite.snapshot(made)
    with pytest.raises(InvalidInput, match="episode 0, but the learner expects episode 1"):
        made.abandon(order)
    with pytest.raises(InvalidInput, match="must name policy"):
        made.abandon(replace(made.ask(), policy_index=made.ask().policy_index + 1))
    assert suite.snapshot(made) == before


@pytest.mark.parametrize("name", METHODS)
def test_a_method_told_nothing_at_all_concludes_nothing(name: str) -> None:
    """A thousand abandoned episodes leave every certified method where it began."""
    made = fresh(name)
    began = made.deployed.weight
    for _ in range(300):
        made.abandon(made.ask())
    assert not [event for event in made.events if event.kind in ("eliminated", "alarm", "weight")]
    assert made.deployed.weight <= began or made.method.certified is False


def told_and_abandoned(name: str, seed: int, episodes: int) -> tuple[Learner, Outcomes, int]:
    """A learner some episodes on, and an episode that its next order could have had."""
    made = fresh(name)
    suite.tell_in_blocks(made, world(), episodes, [episodes])
    order = made.ask()
    policy = order.policy
    assert isinstance(policy, TabularPolicy)
    rng = np.random.default_rng(seed)
    noise = rng.uniform(0.15, 0.45)
    length = int(rng.integers(1, HORIZON + 1))
    told = Simulator(gridworld().task([noise]), policy, length).run(1, rng, transitions=True)
    return made, told, order.policy_index


@pytest.mark.long
@given(seed=st.integers(0, 10**6), episodes=st.sampled_from([0, 1, 30, 120]), push=st.floats(0.2, 1.2))
def test_bets_on_signals_are_paid_the_least_of_all_episodes(seed: int, episodes: int, push: float) -> None:
    """Of any task, and in any number: also of episodes at the ends of all ranges."""
    made = fresh(SIGNALS)
    if episodes:
        suite.tell_in_blocks(made, world(SIGNALS), episodes, [episodes])
    method, order, rng = made.method, made.ask(), np.random.default_rng(seed)
    assert isinstance(method, Certified)
    evidence, state, drawn = method.evidence, made.state.method.evidence, np.array([order.policy_index])
    without = evidence.log_evidence(evidence.abandon(state, order.policy_index))
    told = ShownWheel(push).episodes(order.policy, STEPS).run(4, rng, transitions=True)
    assert isinstance(evidence, SignalProcess)
    for k in range(4):
        assert (without <= evidence.log_evidence(evidence.observe(state, drawn, told[k : k + 1])) + 1e-9).all()
    corner = rng.integers(0, 2, size=2 + len(evidence.readings.signals)).astype(float)
    worst = Outcomes(STEPS * corner[:1], STEPS * corner[None, 1:2], signals=corner[None, 2:])
    assert (without <= evidence.log_evidence(evidence.observe(state, drawn, worst)) + 1e-9).all()


@pytest.mark.parametrize("name", ["certified-likelihood", "certified-ball", "certified-returns"])
@given(seed=st.integers(0, 10**6), episodes=st.sampled_from([1, 30, 120]))
def test_evidence_is_never_more_than_with_an_outcome(name: str, seed: int, episodes: int) -> None:
    made, told, drawn = told_and_abandoned(name, seed, episodes)
    method, state = made.method, made.state.method
    assert isinstance(method, Certified)
    evidence = method.evidence
    settle = lambda after: evidence.settle(after, state.surviving, state.planned)  # noqa: E731
    with_outcome = evidence.log_evidence(settle(evidence.observe(state.evidence, np.array([drawn]), told)))
    without = evidence.log_evidence(settle(evidence.abandon(state.evidence, drawn)))
    assert (without <= with_outcome + 1e-9).all()
    assert np.isfinite(without).all() or name == "certified-ball"  # a bet may have lost everything


def test_the_least_factor_is_the_least_of_all_paths() -> None:
    """By brute force over two-step paths: the ratio of any alternative to any member of a cell is not smaller."""
    made = fresh("certified-likelihood").method
    assert isinstance(made, Certified)
    evidence = made.evidence
    assert isinstance(evidence, LikelihoodRatio)
    model, cells = evidence.model, evidence.cells
    last = len(cells) - 1
    for j, i in [(0, 0), (0, last), (last, 0), (20, 22)]:
        ratios = []
        for theta in np.linspace(cells.low[j], cells.high[j], 5):
            member = model.class_probability(theta[None])[0]
            possible = member > 0
            ratios.append((np.log(model.probability[i][possible]) - np.log(member[possible])).min())
        assert evidence._worst_step[j, i] == pytest.approx(min(*ratios, 0.0), abs=1e-12)


def test_return_bets_are_paid_the_least_over_the_cube() -> None:
    """The corner that pays least, for every bet in force, by enumeration of corners and of means."""
    made = fresh("certified-returns")
    suite.tell_in_blocks(made, world(), 120, [120])
    assert isinstance(made.method, Certified)
    process, state = made.method.evidence, made.state.method.evidence
    assert isinstance(process, ReturnProcess)
    assert np.abs(state.stakes).max() > 0
    corners = np.array(np.meshgrid([0.0, 1.0], [0.0, 1.0])).reshape(2, -1).T
    least = np.array([[(1 + b @ x) / (1 + b @ mean) for x in corners for mean in corners] for b in state.stakes])
    lost = process.abandon(state, SAFE).capital - state.capital
    assert np.allclose(lost, np.log(least.min(axis=1))[:, None])


def test_bounds_take_the_highest_cost() -> None:
    made = fresh("certified-model-free")
    suite.tell_in_blocks(made, world(), 60, [60])
    method, state = made.method, made.state.method
    assert isinstance(method, ModelFree)
    worst = made.method.abandon(state, 60, SAFE).state
    for cost in (0.0, 5.0, 50.0, 100.0):
        other = method._update_statistics(state, np.array([SAFE]), Outcomes(np.array([1.0]), np.array([[cost]])))
        assert (method._lowest_margin(worst, SAFE) <= method._lowest_margin(other, SAFE)).all()
    assert (method._lowest_margin(worst, SAFE) < method._lowest_margin(state, SAFE)).all()


UNITS = Units(0.1, (0.0, 3.0), np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([1.0, 3.25]))


@given(
    st.integers(1, 40),
    st.integers(0, 12),
    st.integers(0, 10**6),
)
def test_algorithm_2_decides_only_what_every_completion_decides(seen: int, missing: int, seed: int) -> None:
    """Fails (passes) with gaps implies fails (passes) with any values in them; without gaps it is one or the other."""
    rng = np.random.default_rng(seed)
    promise = (float(rng.uniform(0, 1)), rng.uniform(-0.5, 0.5, 2), 0.3, np.array([0.4, 0.4]))
    policies = made_up_set(UNITS, [promise], epsilon=1e-4)
    method = learner(policies, method="pce", episodes=3000, risk=0.3, horizon=20).method
    assert isinstance(method, SafeCandidates)
    method = replace(method, rules=_Narrow())
    state = replace(method.start(), weight=0.5)
    entry = policies.entries[0]
    low, high = np.array([0.0, 0.0, 0.0]), np.array([3.0, 1.0, 3.0]) / 0.9
    values = rng.uniform(low, high, (seen, 3))
    total, count = values.sum(axis=0), np.array([seen + missing])
    gaps = Sums(count, total[:1], total[None, 1:], np.array([missing]))
    fails, passes = method._evaluate_condition(state, entry, gaps)
    assert not (fails & passes).any()
    completions = [low, high, *rng.uniform(low, high, (8, 3))]
    outcomes = []
    for completion in completions:
        whole = total + missing * completion
        failed, passed = method._evaluate_condition(
            state, entry, Sums(count, whole[:1], whole[None, 1:], np.array([0]))
        )
        assert failed[0] != passed[0]
        assert not fails[0] or failed[0]
        assert not passes[0] or passed[0]
        outcomes.append(bool(failed[0]))
    if missing == 0:
        assert fails[0] == outcomes[0]


class _Narrow:
    """Radii that some of the made-up means pass and others fail."""

    name, certified, least_count, last_count, first_weight = "narrow", False, 1, np.inf, 0.5

    def reward_radius(self, count: np.ndarray) -> np.ndarray:
        return np.full(len(count), 0.8)

    def margin_radius(self, count: np.ndarray) -> np.ndarray:
        return np.full((len(count), 2), 0.5)

    def phase_length(self, entry: object, step: int, weight: float) -> float:
        return 10

    def next_weight(self, entry: object, step: int, weight: float) -> float:
        return 1.0


def test_abandoned_episodes_wait_for_the_others() -> None:
    """A right candidate is not raised while the gaps could hide a failure, and is raised once they cannot."""
    promise = (0.5, np.array([0.0, 0.0]), 0.5, np.array([0.0, 0.0]))
    policies = made_up_set(UNITS, [promise], epsilon=1e-4)
    method = replace(learner(policies, method="pce", horizon=20).method, rules=_Narrow())
    entry = policies.entries[0]
    right = Outcomes(np.array([entry.reward]), (UNITS.budget - entry.margin)[None])
    state, episode = method.start(), 0
    for _ in range(9):
        state, episode = method.abandon(state, episode, 1).state, episode + 1
    raised = []
    while not raised:
        step = method.update(state, episode, np.array([1]), right)
        state, episode, raised = step.state, episode + 1, [event for event in step.events if event.kind == "weight"]
    # 9 gaps of at most 10/3 · (worst distance) must weigh no more than the radius: well beyond the phase length of 10.
    assert 20 < episode < 60


def test_distrust_voids_and_counts() -> None:
    made = fresh("certified-returns")
    made.distrust(made.ask(), "the gauge was off the scale")
    assert not made.certified
    assert made.deployed.indices.tolist() == [SAFE]
    assert made.state.episode == 1
    assert made.events[-1].kind == "alarm"
    assert "off the scale" in made.events[-1].message
    made.abandon(made.ask())
    made.tell_block(Orders(2, made.deployed, made.ask_block(1).drawn), world().outcomes(made, made.ask_block(1)))
    assert made.state.episode == 3
