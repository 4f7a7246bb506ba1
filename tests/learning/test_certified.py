"""The certified engine: what it deploys follows from who survives now; and which method is picked when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from guarantees.mutants import STAY_CALM, STAY_RICH, rooms, rooms_policies
from surefoot.arrays import Floats
from surefoot.bounds.cells import Cells
from surefoot.cmdp.episode import Outcomes
from surefoot.errors import InvalidInput
from surefoot.learning.certified.choice import certified_method
from surefoot.learning.certified.evidence.ball import TransitionBall
from surefoot.learning.certified.evidence.likelihood import LikelihoodRatio
from surefoot.learning.certified.evidence.returns import ReturnProcess
from surefoot.learning.certified.method import LEAST_WAIT, Certified, CertifiedState, next_decision
from surefoot.learning.certified.model_free import ModelFree
from surefoot.learning.certified.replanning import FIRST
from surefoot.learning.learner import Learner
from surefoot.learning.method import SAFE, RiskSplit
from surefoot.methods import learner
from surefoot.policyset.certifiable import advice
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.rollout import Simulator
from surefoot.testing.learner_suite import EpisodeSource, fingerprint, tell_in_blocks, tell_singly

HORIZON = 62


# ------------------------------------------------------------------------------------------------- a scripted evidence


@dataclass(frozen=True, eq=False)
class Scripted:
    """log E(j) is read from a list, one entry per decision; beliefs are uniform."""

    script: Sequence[Any]
    cells: int
    observes = "sums"

    def start(self) -> int:
        return 0

    def observe(self, state: int, drawn: Any, outcomes: Outcomes) -> int:
        return state

    def impossible(self, outcomes: Outcomes, before: int, after: int) -> np.ndarray:
        return np.zeros(len(outcomes), dtype=bool)

    def abandon(self, state: int, drawn: int) -> int:
        return state

    def settle(self, state: int, surviving: Any, planned: Any) -> int:
        return state + 1

    def log_evidence(self, state: int) -> Floats:
        return np.asarray(self.script[min(state, len(self.script)) - 1], dtype=np.float64)

    def belief(self, state: int) -> Floats:
        return np.full(self.cells, 1 / self.cells)


def scripted(script: Sequence[Any], **changes: Any) -> Certified:
    policies = rooms_policies(cells=4)
    assert policies.cells is not None
    method = Certified("scripted", policies, policies.cells, Scripted(script, 4), RiskSplit(elimination=0.05))
    return replace(method, **changes)


def after_decisions(method: Certified, count: int) -> tuple[CertifiedState, list[str]]:
    """The state after so many decisions beyond the first, and the kinds of all events."""
    state, kinds = method.start(), []
    for _ in range(count):
        begin = state.next_decision - 1
        step = method.update(state, begin, np.zeros(1, int), Outcomes(np.zeros(1), np.zeros((1, 1))))
        state, kinds = step.state, kinds + [event.kind for event in step.events]
    return state, kinds


NOTHING = np.zeros(4)
GONE = 100.0


def weight_for(cells: Cells, worst: int) -> float:
    """Largest weight of the rich policy that the bounds on one cell allow: they fall from cell to cell."""
    safe, rich = cells.lower[worst, 0, 1], cells.lower[worst, 1, 1]
    assert rich < 0
    return float(safe / (safe - rich))


def test_the_current_set_decides_not_the_intersection() -> None:
    """A cell that was ruled out counts again as soon as its evidence has fallen."""
    script = [NOTHING, [0, 0, GONE, GONE], [0, 0, 0, GONE], [GONE, 0, GONE, GONE]]
    for number, (survivors, worst) in enumerate([([0, 1, 2, 3], 3), ([0, 1], 1), ([0, 1, 2], 2), ([1], 1)]):
        method = scripted(script)
        state, kinds = after_decisions(method, number)
        assert np.flatnonzero(state.surviving).tolist() == survivors
        assert state.deployed.weight == pytest.approx(weight_for(method.cells, worst), abs=1e-5)
        mixture = np.zeros(method.cells.lower.shape[1])  # products of other lengths round differently
        mixture[state.deployed.indices] = state.deployed.weights
        assert (method.cells.lower[state.surviving][:, :, 1] @ mixture >= 0).all()
        assert kinds == []


def test_with_intersect_what_was_ruled_out_stays_so() -> None:
    """Also after an alarm: nothing is possible then any more, and the safe policy remains."""
    script = [NOTHING, [0, 0, GONE, GONE], [0, 0, 0, GONE], [GONE, 0, GONE, GONE], [0, GONE, 0, 0], NOTHING]
    for number, survivors in enumerate([[0, 1, 2, 3], [0, 1], [0, 1], [1], [], []]):
        method = scripted(script, intersect=True)
        state, kinds = after_decisions(method, number)
        assert np.flatnonzero(state.surviving).tolist() == survivors
        assert kinds == ([] if survivors else ["alarm"])
        expected = weight_for(method.cells, max(survivors)) if survivors else 0.0
        assert state.deployed.weight == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("split", [False, True])
def test_with_intersect_a_lost_episode_undoes_nothing(split: bool) -> None:
    """The set of possible cells only shrinks; without, evidence that is lost lets cells come back."""
    task, policies = rooms().task(0.35), rooms_policies(cells=30)
    counts = {}
    for intersect in (False, True):
        chosen = learner(policies, method="certified-likelihood", risk=0.1, seed=0, split=split, intersect=intersect)
        rng, alive = np.random.default_rng(0), np.ones(30, dtype=bool)
        sizes = []
        for episode in range(60):
            order = chosen.ask()
            if 40 <= episode < 42:
                chosen.abandon(order)
            else:
                outcome = task.episodes(order.policy, HORIZON).run(1, rng, transitions=True)
                chosen.tell_block(chosen.ask_block(1), outcome)
            now = chosen.state.method.surviving
            assert not intersect or (alive | ~now).all()
            alive = now
            sizes.append(int(now.sum()))
        counts[intersect] = sizes
    assert max(counts[False][40:]) > counts[False][39]
    assert counts[True][-1] <= counts[True][39] < 30


def test_evidence_below_the_threshold_rules_nothing_out() -> None:
    threshold = math.log(20)
    state, _ = after_decisions(scripted([NOTHING, [threshold - 1e-9, threshold, threshold + 1, -math.inf]]), 1)
    assert state.surviving.tolist() == [True, False, False, True]


def test_an_empty_set_raises_the_alarm_once_and_leads_back_to_the_safe_policy() -> None:
    everyone_gone = np.full(4, math.inf)
    script = [NOTHING, everyone_gone, everyone_gone, [0, GONE, GONE, GONE], everyone_gone]
    method = scripted(script)
    for number, expected in enumerate([[], ["alarm"], ["alarm"], ["alarm", "recovered"]]):
        state, kinds = after_decisions(method, number)
        assert kinds == expected
        safe_only = expected == ["alarm"]
        assert state.alarmed == safe_only
        assert (state.deployed.weight == 0) == safe_only
    assert after_decisions(method, 4)[1] == ["alarm", "recovered", "alarm"]


def test_evidence_that_is_not_a_number_counts_for_nothing() -> None:
    state, kinds = after_decisions(scripted([NOTHING, [0, math.nan, 0, 0]]), 1)
    assert state.deployed.indices.tolist() == [SAFE]
    assert kinds == ["alarm"]


def test_rewards_are_weighed_by_the_belief_in_surviving_cells() -> None:
    """The rich policy earns more in every cell, so it is taken as far as it is safe; turned around it is not."""
    method = scripted([NOTHING])
    lower, upper = method.cells.lower.copy(), method.cells.upper.copy()
    lower[:, :, 0], upper[:, :, 0] = -method.cells.upper[:, :, 0], -method.cells.lower[:, :, 0]
    worthless = replace(method.cells, lower=lower, upper=upper)
    assert after_decisions(method, 0)[0].deployed.weight > 0
    assert after_decisions(replace(method, cells=worthless), 0)[0].deployed.weight == 0


def test_the_account_is_the_least_certified_margin() -> None:
    method = scripted([NOTHING, [0, 0, GONE, GONE], np.full(4, math.inf)])
    state, _ = after_decisions(method, 1)
    account = method.certificate(state)
    assert (account.surviving, account.total) == (2, 4)
    assert account.margin is not None
    assert account.margin[0] == pytest.approx(0.0, abs=1e-6)
    assert account.margin[0] >= 0
    assert method.certificate(after_decisions(method, 2)[0]).margin is None


# ------------------------------------------------------------------------------------------------------- the schedule


def test_decisions_get_rarer_and_never_skip_an_episode() -> None:
    times = [next_decision(0)]
    while times[-1] < 50_000:
        times.append(next_decision(times[-1]))
    waits = np.diff([0, *times])
    assert times[0] == waits[0] == LEAST_WAIT
    assert (waits >= LEAST_WAIT).all()
    assert (waits[1:] >= waits[:-1]).all()
    assert len(times) < 300
    assert all(wait <= 1 + time / 20 for time, wait in zip(times, waits[1:], strict=False) if time > 1000)


@pytest.mark.short_for(name=["certified-returns"])
@pytest.mark.parametrize("name", ["certified-likelihood", "certified-ball", "certified-returns"])
def test_decisions_do_not_depend_on_blocks(name: str) -> None:
    """Through the first planned policy; every block asks beyond the next decision."""
    world = EpisodeSource(rooms().task([0.1]), 30, FIRST + 40)
    stories = []
    for sizes in ([64], [13, 200]):
        fresh = learner(rooms_policies(cells=20), method=name, risk=0.3, seed=5, horizon=30)
        stories.append(tell_in_blocks(fresh, world, FIRST + 30, sizes))
    single = tell_singly(
        learner(rooms_policies(cells=20), method=name, risk=0.3, seed=5, horizon=30), world, FIRST + 30
    )
    assert stories[0].drawn == single.drawn
    assert stories[0] == stories[1] == single


# ------------------------------------------------------------------------------------------ the state of a whole run


@cache
def finished(name: str, episodes: int) -> tuple[Learner, CertifiedState]:
    fresh = learner(rooms_policies(cells=20), method=name, risk=0.2, seed=1, horizon=30)
    tell_in_blocks(fresh, EpisodeSource(rooms().task([0.1]), 30, episodes), episodes, [500])
    return fresh, fresh.state.method


def size_of(value: Any) -> int:
    """Numbers held by a state."""
    if isinstance(value, np.ndarray):
        return value.size
    if isinstance(value, dict):
        return sum(size_of(item) for item in value.values())
    if isinstance(value, tuple | list):
        return sum(size_of(item) for item in value)
    if hasattr(value, "__dict__"):
        return sum(size_of(item) for item in vars(value).values())
    return 1


@pytest.mark.short_for(name=["certified-returns"])
@pytest.mark.parametrize("name", ["certified-likelihood", "certified-ball", "certified-returns"])
def test_memory_does_not_grow_with_the_episodes(name: str) -> None:
    """Planned policies apart, of which there is one each time the number of episodes has doubled."""
    short, long = (finished(name, episodes)[1] for episodes in (400, 3000))
    sizes = [size_of(replace(state, planned=(), deployed=None)) for state in (short, long)]
    assert abs(sizes[1] - sizes[0]) <= 2 * 3 * 4, "pending sums of policies and first states come and go"
    assert len(long.planned) <= 1 + math.log2(3000 / FIRST)


@pytest.mark.short_for(name=["certified-likelihood"])
@pytest.mark.parametrize("name", ["certified-likelihood", "certified-ball"])
def test_planned_policies_have_valid_bounds_on_surviving_cells(name: str) -> None:
    fresh, state = finished(name, 3000)
    method = fresh.method
    assert isinstance(method, Certified)
    assert len(state.planned) >= 2
    rng = np.random.default_rng(0)
    known = len(method.policies.policies)
    for index, planned in enumerate(state.planned):
        assert fresh.policy(known + index) is planned.policy
        for j in np.flatnonzero(state.surviving):
            for theta in rng.uniform(method.cells.low[j], method.cells.high[j], (5, 1)):
                exact = evaluate(rooms().task(theta), planned.policy)
                assert planned.margin[j, 0] <= exact.margin[0] + 1e-12
                assert abs(planned.reward[j] - exact.reward) < 0.1
    used = [index for index in state.deployed.indices if index >= known]
    assert used, "planned policies are worth having"


def test_replanning_can_be_left_out() -> None:
    for replan, expected in ((None, True), (True, True), (False, False)):
        method = certified_method(rooms_policies(20), "certified-likelihood", 0.1, horizon=HORIZON, replan=replan)
        assert isinstance(method, Certified)
        assert (method.replanner is not None) == expected
    for replan, expected in ((None, False), (True, True)):
        method = certified_method(rooms_policies(20), "certified-returns", 0.1, horizon=HORIZON, replan=replan)
        assert isinstance(method, Certified)
        assert (method.replanner is not None) == expected


# ------------------------------------------------------------------------------------------------ risk, and who is best


def changed_cells(**changes: Any) -> PolicyValueSet:
    policies = rooms_policies(20)
    assert policies.cells is not None
    if "uncovered" in changes:
        changes["prior"] = policies.cells.prior * (1 - changes["uncovered"])
    return replace(policies, cells=replace(policies.cells, **changes))


def without_exact_model() -> PolicyValueSet:
    cells = rooms_policies(20).cells
    assert cells is not None
    assert cells.model is not None
    return changed_cells(model=replace(cells.model, affine=None, radius=np.full(20, 0.01)), source="holdout")


@pytest.mark.parametrize("risk", [0.02, 0.05, 0.5])
@pytest.mark.parametrize(
    "name", ["certified-likelihood", "certified-ball", "certified-returns", "certified-model-free", "certified"]
)
def test_the_risk_is_split_without_remainder(name: str, risk: float) -> None:
    method: Any = certified_method(changed_cells(uncovered=0.01), name, risk, horizon=HORIZON)
    split = method.risk_split
    assert split.coverage + split.elimination + split.values == pytest.approx(risk, rel=1e-12)
    if name != "certified-model-free":
        assert split.coverage == 0.01


def test_a_risk_that_coverage_uses_up_is_refused_with_advice() -> None:
    affine = changed_cells(uncovered=0.1)
    held_out = replace(affine, cells=replace(affine.cells, source="holdout"))  # type: ignore[type-var]
    for risk in (0.1, 0.04):
        for policies, remedy in (
            (affine, "a safer safe policy"),
            (held_out, "what the held-out tasks leave open.*more held-out tasks"),
        ):
            with pytest.raises(InvalidInput, match=f"risk must exceed 0.1, .*{remedy}.*got {risk:g}"):
                certified_method(policies, "certified-returns", risk, horizon=HORIZON)
    certified_method(affine, "certified-returns", 0.1 + 1e-9, horizon=HORIZON)
    with pytest.raises(InvalidInput, match=r"risk must exceed 0.1, .*that the safe policy itself breaks a budget"):
        certified_method(affine, "certified-model-free", 0.04, horizon=HORIZON)
    assumed = certified_method(affine, "certified-model-free", 0.04, horizon=HORIZON, assume_safe=True)
    assert isinstance(assumed, ModelFree)


@pytest.mark.parametrize("name", ["certified-likelihood", "certified-ball"])
@pytest.mark.parametrize("when", [0, 3, 11, 30])
def test_what_no_cell_allows_leads_to_the_safe_policy_in_the_next_order(name: str, when: int) -> None:
    """A told sum that is not that of the visited states, between two decisions: told singly, and in the midst of a
    block."""
    policies = rooms_policies(20)
    task = rooms().task([0.07])

    def fresh() -> Learner:
        return learner(policies, method=name, risk=0.4, horizon=30)

    def outcomes(told: Learner, count: int) -> Outcomes:
        orders, rng = told.ask_block(count), np.random.default_rng([7, told.state.episode])
        parts = [Simulator(task, told.policy(index), 30).run(1, rng, True) for index in orders.drawn.tolist()]
        return Outcomes(*(np.concatenate([getattr(part, field) for part in parts]) for field in FIELDS))

    single = fresh()
    while single.state.episode < when:
        single.tell_block(single.ask_block(1), outcomes(single, 1))
    before = single.state.episode
    fair = outcomes(single, 1)
    single.tell_block(single.ask_block(1), replace(fair, reward=fair.reward + 0.01))  # stays within its range
    assert single.ask().policy_index == SAFE
    assert single.deployed.weight == 0.0
    assert [(event.episode, event.kind) for event in single.events if event.kind == "alarm"] == [(before + 1, "alarm")]
    assert single.certified, "bad luck or another task: the promise is what it was"
    for _ in range(40):
        single.tell_block(single.ask_block(1), outcomes(single, 1))
        assert single.deployed.weight == 0.0

    block = fresh()
    block.state = replace(block.state, method=block.method.start())
    many = outcomes(block, 6)
    off = many.reward.copy()
    off[2] += 0.01
    assert block.tell_block(block.ask_block(6), replace(many, reward=off)) == 3
    assert block.deployed.weight == 0.0


FIELDS = ("reward", "cost", "states", "actions")


@pytest.mark.parametrize(
    ("policies", "observes", "expected", "why"),
    [
        (lambda: rooms_policies(20), "transitions", LikelihoodRatio, "probabilities are known on every cell"),
        (lambda: rooms_policies(20), "first-state", ReturnProcess, "transitions are not observed"),
        (lambda: rooms_policies(20), "sums", ReturnProcess, "only discounted sums"),
        (without_exact_model, "transitions", TransitionBall, "known up to a distance"),
        (lambda: changed_cells(model=None), "transitions", ReturnProcess, "no model of transitions"),
        (lambda: changed_cells(model=None), "first-state", ReturnProcess, "transitions are not observed"),
        (
            lambda: changed_cells(model=None, start_lower=None, start_upper=None, first_states=None),
            "transitions",
            ReturnProcess,
            "not given per first state",
        ),
        (
            lambda: changed_cells(start_lower=None, start_upper=None, first_states=None),
            "transitions",
            LikelihoodRatio,
            "probabilities are known",
        ),
        (
            lambda: changed_cells(start_lower=None, start_upper=None, first_states=None),
            "first-state",
            ReturnProcess,
            "not given per first",
        ),
        (lambda: replace(rooms_policies(20), cells=None), "transitions", ModelFree, "no value bounds over tasks"),
        (lambda: replace(rooms_policies(20), cells=None), "sums", ModelFree, "no value bounds over tasks"),
    ],
)
def test_certified_picks_the_strongest_method_that_is_possible(
    policies: Any, observes: Any, expected: type, why: str
) -> None:
    method: Any = certified_method(policies(), "certified", 0.1, horizon=HORIZON, observes=observes)
    assert isinstance(method if expected is ModelFree else method.evidence, expected)
    assert method.name == "certified"
    assert why in method.note
    found = advice(policies(), observes)
    assert why in found.why
    named: Any = certified_method(policies(), found.method, 0.1, horizon=HORIZON)
    assert isinstance(named if expected is ModelFree else named.evidence, expected)
    assert named.note == ""
    assert Learner(method).events[0].message == method.note
    by_first_state = expected is ReturnProcess and method.evidence.first_states
    assert by_first_state == (why in ("transitions are not observed", "no model of transitions"))
    needs = {LikelihoodRatio: "transitions", TransitionBall: "transitions"}
    assert method.observes == ("first-state" if by_first_state else needs.get(expected, "sums"))


def test_finite_families_are_exact() -> None:
    """A model without slope whose radii are all 0 knows every probability."""
    cells = rooms_policies(20).cells
    assert cells is not None
    assert cells.model is not None
    finite = changed_cells(model=replace(cells.model, affine=None, radius=np.zeros(20)), source="finite")
    method = certified_method(finite, "certified", 0.1, horizon=HORIZON)
    assert isinstance(method, Certified)
    assert isinstance(method.evidence, LikelihoodRatio)
    assert method.replanner is None


@pytest.mark.parametrize(
    ("policies", "name", "message"),
    [
        (lambda: replace(rooms_policies(20), cells=None), "certified-likelihood", "needs a policy set with cells"),
        (lambda: changed_cells(model=None), "certified-likelihood", "needs a policy set with a transition model"),
        (lambda: changed_cells(model=None), "certified-ball", "use certified-returns"),
        (without_exact_model, "certified-likelihood", "up to a distance; use certified-ball"),
        (lambda: rooms_policies(20), "certified-magic", "method must be one of certified, "),
    ],
)
def test_methods_that_are_not_possible_say_what_is(policies: Any, name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        certified_method(policies(), name, 0.1, horizon=HORIZON)


def test_planned_policies_need_first_states() -> None:
    with pytest.raises(InvalidInput, match="replan must be False for certified-returns without first states, got True"):
        certified_method(rooms_policies(20), "certified", 0.1, horizon=HORIZON, observes="sums", replan=True)


def test_what_is_observed_must_be_known() -> None:
    with pytest.raises(
        InvalidInput, match="observes must be one of sums, first-state, signals, transitions, steps, got 'pixels'"
    ):
        advice(rooms_policies(20), "pixels")  # type: ignore[arg-type]


def test_small_risks_still_rule_cells_out() -> None:
    """The return process bets on until there is more evidence than the risk asks for."""
    method = certified_method(rooms_policies(20), "certified-returns", 1e-7, horizon=HORIZON)
    assert isinstance(method, Certified)
    assert isinstance(method.evidence, ReturnProcess)
    assert method.evidence.settled_against > math.log(1e7)
    fresh = Learner(method, seed=0)
    tell_in_blocks(fresh, EpisodeSource(rooms().task([0.08]), 62, 3000), 3000, [500])
    assert fresh.state.method.surviving.sum() < 20


def test_states_are_values() -> None:
    """Telling never changes an earlier state."""
    method = certified_method(rooms_policies(20), "certified-likelihood", 0.1, horizon=HORIZON)
    before = method.start()
    image = fingerprint(before)
    world = EpisodeSource(rooms().task([0.1]), 62, 20)
    fresh = Learner(method, seed=0)
    orders = fresh.ask_block(8)
    method.update(before, 0, orders.drawn, world.outcomes(fresh, orders))
    assert fingerprint(before) == image


def test_the_rooms_are_what_the_tests_take_them_for() -> None:
    """The rich room breaks the budget for every θ, changing rooms all the time as well; the calm one never does."""
    for theta in np.linspace(0.06, 0.16, 11):
        task = rooms().task([theta])
        assert evaluate(task, STAY_CALM).margin[0] > 0.3
        assert evaluate(task, STAY_RICH).margin[0] < -0.2
        assert evaluate(task, TabularPolicy(np.full((3, 2), 0.5))).margin[0] < -0.5
