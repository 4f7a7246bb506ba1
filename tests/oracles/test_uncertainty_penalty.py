"""Caution where models disagree: the penalty by hand, with Gymnasium's robots, and what it does to a policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from bandit_world import BUDGET, STEPS, BanditTask, BanditWorld
from gym_robots import with_motors
from surefoot.cmdp.world import ForeseeingWorld
from surefoot.control.improvement import Settings
from surefoot.control.ppo_lagrangian import Clipping, ppo_lagrangian
from surefoot.errors import Infeasible, InvalidInput
from surefoot.oracles import uncertainty_penalty
from surefoot.oracles.learned import Course, Schooling
from surefoot.oracles.uncertainty_penalty import PenalisedWorld, disagreement, uncertainty_penalised_policy
from surefoot.testing import oracle_suite

QUICK = Schooling(
    ppo_lagrangian(Clipping(rate=1e-2, minibatch=500)),
    Settings(steps=120_000, batch=4_000, hidden=(8,), discount=0.9, log_std=-1.5),
    warm_steps=60_000,
    tested=4_000,
)
GAINS = (0.5, 1.0, 2.0)
TASKS = [BanditTask(np.array([gain])) for gain in GAINS]
UNIT = 0.01  # 1 in the scale of the oracles is 100 in cost and reward


def gain_of(policy: Any) -> float:
    return float(np.diff(policy.mean(np.array([[-1.0], [1.0]]))[:, 0])[0] / 2)


# ------------------------------------------------------------------------------------------------ what models would do


@pytest.fixture
def _where_logs_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("family", [sf.tasks.hopper_motors, sf.tasks.half_cheetah_motors])
def test_a_world_foresees_its_own_steps_bit_by_bit(family: Any) -> None:
    """Also after falls, beside lanes that rest, and although it foresees other models in between."""
    tasks, rng = family(), np.random.default_rng(3)
    task, other = tasks.task(1.0), tasks.task(1.3)
    world, undisturbed = task.world(5), task.world(5)
    assert isinstance(world, ForeseeingWorld)
    foresee = world.foresight([task, other, task])
    for each in (world, undisturbed):
        each.begin(np.ones(5, bool), np.random.default_rng(0))
    ended = np.zeros(5, bool)
    for t in range(120):
        actions = rng.normal(size=(5, world.shapes.action))
        foreseen, step = foresee(actions), world.step(actions)
        assert foreseen.shape == (3, *step.observation.shape)
        assert (foreseen[0] == step.observation).all()
        assert (foreseen[2] == step.observation).all()
        assert (foreseen[1] != step.observation)[~ended].any(axis=1).all()
        assert (foreseen[1] == step.observation)[ended].all()
        assert (disagreement(foreseen[::2]) == 0).all()
        assert (step.observation == undisturbed.step(actions).observation).all()
        ended = step.ended
        if ended.all() or t % 40 == 39:
            for each in (world, undisturbed):
                each.begin(ended, np.random.default_rng(t))
            ended = np.zeros(5, bool)


@pytest.mark.usefixtures("_where_logs_may_be")
def test_the_penalty_is_that_of_gymnasiums_environments() -> None:
    """Each model an environment of its own, put into the state of the nominal one before every step."""
    tasks, gains, weight = sf.tasks.half_cheetah_motors(), (0.7, 1.0, 1.35), 0.3
    nominal = tasks.task(1.1)
    plain, inner = nominal.world(2), nominal.world(2)
    world = PenalisedWorld(inner, inner.foresight([tasks.task(gain) for gain in gains]), weight, 0.8)
    envs = [[with_motors("HalfCheetah-v5", gain) for gain in (1.1, *gains)] for _ in range(2)]
    everything = np.ones(2, bool)
    assert (
        world.begin(everything, np.random.default_rng(5)) == plain.begin(everything, np.random.default_rng(5))
    ).all()
    for lane, seed in enumerate(np.random.default_rng(5).integers(2**31, size=2)):
        for env in envs[lane]:
            env.reset(seed=int(seed))
    rng, penalties, cut = np.random.default_rng(6), np.zeros(2), []
    for _ in range(12):
        actions = rng.normal(scale=0.6, size=(2, 6)).clip(-1, 1)
        step, unpenalised = world.step(actions), plain.step(actions)
        for lane, (own, *others) in enumerate(envs):
            shown = []
            for env in others:
                env.data.qpos[:], env.data.qvel[:] = own.data.qpos, own.data.qvel
                env.data.qacc_warmstart[:], env.data.time = own.data.qacc_warmstart, own.data.time
                shown.append(env.step(actions[lane])[0])
            own.step(actions[lane])
            spread = np.mean([np.mean((column - np.mean(column)) ** 2) for column in np.transpose(shown)])
            cut.append(spread > 0.8)
            penalties[lane] += weight * min(spread, 0.8)
            expected = unpenalised.cost[lane, 0] + weight * min(spread, 0.8)
            assert step.cost[lane, 0] == pytest.approx(expected, rel=1e-9)
        assert step.sums[:, 1] == pytest.approx(unpenalised.sums[:, 1] + penalties, rel=1e-9)
        assert (step.sums[:, 0] == unpenalised.sums[:, 0]).all()
        assert (step.observation == unpenalised.observation).all()
    assert any(cut)
    assert not all(cut)
    begun = world.begin(np.array([True, False]), rng)
    assert begun.shape == step.observation.shape
    after = world.step(np.full((2, 6), 0.1))
    assert after.sums[0, 1] == pytest.approx(after.cost[0, 0])
    assert after.sums[1, 1] > step.sums[1, 1]


def test_other_families_are_no_models() -> None:
    world = sf.tasks.hopper_motors().task(1.0).world(1)
    with pytest.raises(InvalidInput, match=r"others\[1\] must be of the family of this world"):
        world.foresight([sf.tasks.hopper_motors().task(0.9), sf.tasks.hopper_velocity().task(0.5)])


# ----------------------------------------------------------------------------------------------------------- the oracle


@pytest.mark.long
def test_penalties_make_a_policy_as_cautious_as_they_should() -> None:
    """E[cost] + λ E[disagreement] = (1 + λ Var gains) k² per step: of the policies a = kx that is closed form. Without
    penalties the middle task is all there is, and the strongest one is unsafe."""
    found = oracle_suite.conforms_to_feasible_oracle(
        uncertainty_penalised_policy(QUICK, weight=12.0), TASKS, None, 0.1, epsilon=UNIT
    )
    assert gain_of(found.policy) == pytest.approx(np.sqrt(BUDGET / (1 + 12 * np.var(GAINS))), abs=0.05)
    with pytest.raises(Infeasible, match="on task 2 of 3") as refused:
        strict(replace(QUICK, settings=replace(QUICK.settings, steps=60_000)), 0.0)
    assert refused.value.least_cost[0] > 2 * BUDGET * STEPS


def strict(schooling: Schooling, weight: float) -> Any:
    """No second try."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uncertainty_penalty, "RETRIES", 1)
        oracle = uncertainty_penalised_policy(schooling, weight=weight)
        return oracle(TASKS, None, 0.1, np.random.default_rng(0))


@pytest.mark.long
def test_weights_grow_until_the_policy_is_feasible(monkeypatch: pytest.MonkeyPatch) -> None:
    weights: list[float] = []
    grown = PenalisedWorld.heavier

    def watched(world: PenalisedWorld) -> PenalisedWorld:
        heavier = grown(world)
        weights.append(heavier.weight)
        return heavier

    monkeypatch.setattr(PenalisedWorld, "heavier", watched)
    found = uncertainty_penalised_policy(QUICK)(TASKS, None, 0.1, np.random.default_rng(0))
    assert (found.margin > 0).all()
    assert 1 <= len(weights) < 6
    assert np.allclose(np.diff(np.log(weights)), np.log(3.0))
    assert 0.1 < gain_of(found.policy) < np.sqrt(BUDGET) / 2 + 0.05


def test_where_models_agree_the_budget_is_smaller_instead() -> None:
    """No weight times 0 makes a policy more cautious."""
    for others, raised in ((TASKS[1:2], False), (TASKS, True)):
        inner = TASKS[1].world(3)
        world = PenalisedWorld(inner, inner.foresight(others), 0.0)
        world.begin(np.ones(3, bool), np.random.default_rng(0))
        cost = [world.step(np.ones((3, 1))).cost for _ in range(STEPS)]
        assert np.allclose(cost, 1.0)
        assert world.disagreement == pytest.approx(np.var(GAINS) if raised else 0.0)
        before = Course(world, [0, 0, 0], np.array([2.0]))
        after = uncertainty_penalty._heavier(before, np.array([0.5]))
        assert after.budget == (2.0 if raised else 1.5)
        assert (after.world is world) is not raised
        if raised:  # the same steps would now cost half the budget more
            heavier = after.world
            heavier.begin(np.ones(3, bool), np.random.default_rng(0))
            sums = [heavier.step(np.ones((3, 1))).sums for _ in range(STEPS)][-1]
            assert np.allclose(sums[:, 1], STEPS + 0.5 * BUDGET * STEPS)


def test_models_are_drawn_from_the_family_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[float]] = []
    plain = BanditWorld.foresight

    def watched(world: BanditWorld, others: Any) -> Any:
        asked.append([float(other.parameter[0]) for other in others])
        return plain(world, others)

    monkeypatch.setattr(BanditWorld, "foresight", watched)
    brief = replace(QUICK, settings=replace(QUICK.settings, steps=4_000), warm_steps=4_000, tested=20)
    family = sf.tasks.family(lambda gain: BanditTask(gain), sf.tasks.Uniform(0.5, 2.0))
    for models, drawn in ((2, None), (5, None), (7, family)):
        with pytest.raises(Infeasible):
            uncertainty_penalised_policy(brief, weight=1.0, models=models, family=drawn)(
                TASKS, 0.01, 0.1, np.random.default_rng(0)
            )
    few, all_of_them, fresh = asked
    assert len(set(few)) == 2
    assert set(few) <= set(GAINS)
    assert tuple(all_of_them) == GAINS
    assert len(set(fresh)) == 7
    assert all(0.5 <= gain <= 2.0 for gain in fresh)


def test_what_cannot_be_asked_for_is_refused() -> None:
    oracle, rng = uncertainty_penalised_policy(QUICK), np.random.default_rng(0)
    with pytest.raises(InvalidInput, match="at least one task, got none"):
        oracle([], None, 0.1, rng)
    with pytest.raises(InvalidInput, match="models must be"):
        uncertainty_penalised_policy(models=0)
    with pytest.raises(InvalidInput, match=r"worlds know what other models would do .*, got tasks of Blind"):
        oracle([Blind(np.array([1.0]))], None, 0.1, rng)


class Blind(BanditTask):
    def world(self, lanes: int, *others: BanditTask) -> Any:
        world = super().world(lanes, *others)
        return OnlyWorld(world)


class OnlyWorld:
    def __init__(self, world: BanditWorld) -> None:
        self.lanes, self.shapes, self.units, self.begin, self.step = (
            world.lanes, world.shapes, world.units, world.begin, world.step
        )  # fmt: skip
