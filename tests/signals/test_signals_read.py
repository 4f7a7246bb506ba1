"""Signals: always in [0, 1], one episode at a time as in blocks, and refused where they would mean something else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import surefoot as sf
from shown_wheel import ShownWheel, effects, shown_set, shown_wheels
from surefoot.bounds.cells import Readings
from surefoot.cmdp.episode import Observed, Outcomes
from surefoot.errors import InvalidInput
from surefoot.signals.signals import Signals
from surefoot.tasks.gridworld_tasks import gridworld
from wheel import CONTROLLERS, QUICK, STEPS, wheel_set, wheels

seeds = st.integers(0, 10**6)


def readings(own: bool = False) -> Readings:
    cells = shown_set(own).cells
    assert cells is not None
    assert cells.readings is not None
    return cells.readings


def shown(seed: int, n: int = 9) -> Outcomes:
    policy = sf.controller(CONTROLLERS["careful"], name="careful")
    return ShownWheel(0.7).episodes(policy, STEPS).run(n, np.random.default_rng(seed), transitions=True)


@pytest.mark.short_for(own=[True])
@pytest.mark.parametrize("own", [False, True])
@given(seed=seeds, size=st.sampled_from([0.0, 1.0, 1e3, 1e12]))
def test_signals_lie_between_nought_and_one_whatever_was_observed(own: bool, seed: int, size: float) -> None:
    rng, signals = np.random.default_rng(seed), readings(own).signals
    steps = rng.integers(1, STEPS + 1, size=5)
    seen = (size * rng.standard_cauchy((5, STEPS + 1, 2))).astype(np.float32)
    observed = Observed(seen, rng.integers(2, size=(5, STEPS)), steps)
    found = signals.of(1, observed)
    assert found.shape == (5, len(signals))
    assert ((found >= 0) & (found <= 1)).all()


@pytest.mark.parametrize("own", [False, True])
def test_blocks_and_single_episodes_have_the_same_signals(own: bool) -> None:
    signals, outcomes = readings(own).signals, shown(0)
    drawn = np.array([0, 1, 2] * 3)
    together = signals.of_outcomes(drawn, outcomes)
    alone = [signals.of_outcomes(drawn[k : k + 1], outcomes[k : k + 1])[0] for k in range(9)]
    assert together.tobytes() == np.stack(alone).tobytes()
    assert np.ptp(together, axis=0).max() > 0
    told = Outcomes(outcomes.reward, outcomes.cost, signals=together)
    assert signals.of_outcomes(drawn, told) is together


def test_a_signal_is_its_formula() -> None:
    signals, observed = readings().signals, shown(1).watched()
    features = signals.features(observed)
    for p in range(3):
        for k, row in enumerate(features):
            scaled = np.clip((row - signals.centre[p]) / signals.scale[p], -5, 5)
            mapped = signals.weights[p] @ scaled + signals.offset[p]
            expected = [
                min(max((mapped[r] - low) / (high - low), 0.0), 1.0)
                for r, low, high in zip(signals.source, signals.low, signals.high, strict=True)
            ]
            np.testing.assert_allclose(signals.of(p, observed)[k], expected, atol=1e-9)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "magic"}, "kind of signals must be one of moments, transitions, own, got 'magic'"),
        ({"kind": "transitions"}, "must come with what they count or call"),
        ({"kind": "own"}, "must come with what they count or call"),
        ({"keys": np.zeros((3, 3), int)}, "must come with what they count or call"),
        ({"scale": 0.0}, "scale.* must be positive"),
        ({"high": -1e9}, "high.* must exceed low"),
        ({"source": 99}, "source"),
    ],
)
def test_signals_that_are_none_are_refused(wrong: dict[str, Any], message: str) -> None:
    intact: Any = readings().signals
    changed = {
        name: np.full_like(getattr(intact, name), value) if isinstance(value, int | float) else value
        for name, value in wrong.items()
    }
    with pytest.raises(InvalidInput, match=message):
        replace(intact, **changed)


def test_observations_of_another_shape_are_refused() -> None:
    observed = shown(0).watched()
    wider = Observed(np.concatenate([observed.observations] * 2, axis=2), observed.actions, observed.steps)
    with pytest.raises(InvalidInput, match="observations and actions must be as those of the training tasks"):
        readings().signals.of(0, wider)
    with pytest.raises(InvalidInput, match="observations must have the shape of those in the training tasks"):
        readings(own=True).signals.of(0, wider)
    with pytest.raises(InvalidInput, match="must hold what was observed step by step"):
        readings().signals.of_outcomes(np.array([0]), Outcomes(np.array([1.0]), np.array([[0.0]])))


# ------------------------------------------------------------------------------------------------------ one's own


def made(signals: Any, tasks: Any = None) -> sf.PolicyValueSet:
    safe, *others = (sf.controller(function, name=name) for name, function in CONTROLLERS.items())
    return sf.policy_set(
        tasks or shown_wheels(), safe=safe, candidates=others, seed=1, envelopes=QUICK, progress=False, signals=signals
    )


def halves(seen: Any, acted: Any) -> Any:
    """Signals of one's own."""
    return np.array([np.mean(np.abs(seen[:, 0]) > 0.5), np.mean(acted)])


def test_own_features_and_own_signals_are_accepted() -> None:
    signals = readings(own=True).signals
    assert (signals.kind, signals.centre.shape[1]) == ("own", 4)
    found = made(sf.LearnedSignals(signals=halves, name="halves", tasks=8, episodes=2))
    assert found.cells is not None
    assert found.cells.readings is not None
    outcomes = shown(0)
    observed = outcomes.watched()
    expected = [halves(seen, acted) for seen, acted in zip(observed.observations, observed.actions, strict=True)]
    np.testing.assert_allclose(found.cells.readings.signals.of(1, observed), expected, atol=1e-12)
    assert sf.learner(found, method="certified", risk=0.3).method.observes == "signals"


def test_own_features_are_recognised_and_others_refused() -> None:
    own = readings(own=True).signals.own
    assert own is not None
    away = replace(own, function=None)
    with pytest.raises(InvalidInput, match="features 'effects' must be here"):
        away(shown(0).watched())
    assert away.found(effects)(shown(0).watched()).tolist() == own(shown(0).watched()).tolist()
    with pytest.raises(InvalidInput, match="features must be those that the policy set was made with"):
        away.found(lambda seen, acted: effects(seen, acted) * (1 + 1e-6))


@pytest.mark.parametrize(
    "bad", [lambda s, a: 1.0, lambda s, a: [np.nan], lambda s, a: [], lambda s, a: [0.0] * (1 + int(s[1, 0] > 0))]
)
def test_features_that_are_no_numbers_are_refused(bad: Any) -> None:
    with pytest.raises(InvalidInput, match="must return finite numbers"):
        made(sf.LearnedSignals(features=bad, tasks=8, episodes=2))


# ------------------------------------------------------------------------------------------- where there are none


def test_tasks_that_show_nothing_quietly_have_no_signals_unless_asked() -> None:
    quiet = wheel_set()
    assert quiet.cells is not None
    assert quiet.cells.readings is None
    for asked in (True, sf.LearnedSignals(tasks=8)):
        with pytest.raises(InvalidInput, match="signals must be False for tasks that do not show what was observed"):
            made(asked, wheels())
    silenced = made(False)
    assert silenced.cells is not None
    assert silenced.cells.readings is None
    with pytest.raises(InvalidInput, match="certified-signals needs a policy set with signals"):
        sf.learner(silenced, method="certified-signals", risk=0.3)


def test_tasks_that_can_be_read_have_none() -> None:
    with pytest.raises(InvalidInput, match="signals must be False for tasks whose values can be read"):
        sf.train(gridworld(), epsilon=0.1, delta=0.1, seed=0, progress=False, signals=True)
    with pytest.raises(InvalidInput, match="signals must be True, False or a LearnedSignals, got 3"):
        made(3)


def test_episodes_of_another_length_are_refused() -> None:
    with pytest.raises(InvalidInput, match=f"horizon must be {STEPS} for certified-signals"):
        sf.learner(shown_set(), method="certified-signals", risk=0.3, horizon=STEPS - 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tasks": 7}, "tasks must be"),
        ({"episodes": 1}, "episodes must be"),
        ({"windows": 0}, "windows must be"),
        ({"features": 3}, "features must be a function of an episode, got 3"),
        ({"features": effects, "signals": effects}, "must not be given both"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        sf.LearnedSignals(**wrong)


def test_numbers_of_signals_that_do_not_fit_are_refused() -> None:
    made_learner, order = sf.learner(shown_set(), method="certified-signals", risk=0.3, seed=0), None
    count = len(readings().signals)
    assert isinstance(readings().signals, Signals)
    order = made_learner.ask()
    for told, message in (
        (np.full(count + 1, 0.5), f"signals must be {count} numbers"),
        (np.full(count, 1.5), "must lie in"),
        (np.full(count, np.nan), "must lie in"),
    ):
        with pytest.raises(InvalidInput, match=message):
            made_learner.tell(order, sf.Outcome(1.0, np.array([0.0]), signals=told))
    assert made_learner.state.episode == 0
