"""Settings of a pump: what they give, by a computation of its own; as arrays, and in a policy set on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.errors import ArtifactError, InvalidInput
from surefoot.lab.pump.settings import AVERAGE_SETTINGS
from surefoot.policyset.export import write_policy
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.tasks import InsulinSettings, glucose

SETTINGS = InsulinSettings(0.5, 0.005, 20.0, 60.0, 115.0, 85.0)
NOTHING = np.random.default_rng(0)


def by_hand(
    settings: InsulinSettings, glucose_now: float, change: float, carbohydrates: float, on_board: float
) -> float:
    rate = settings.basal + settings.feedback * (glucose_now - settings.target)
    rate = min(max(rate, 0.0), 5 * settings.basal)
    if glucose_now < settings.suspend or glucose_now + 2 * change < settings.suspend:
        rate = 0.0
    bolus = 0.0
    if carbohydrates > 0:
        correction = (glucose_now - settings.target) / settings.correction_factor
        if correction > 0:
            correction = max(correction - max(on_board - settings.basal * 110 / 60, 0.0), 0.0)
        bolus = max(carbohydrates / settings.ratio + correction, 0.0)
    return rate * 5 / 60 + bolus


seen = st.tuples(st.floats(40, 400), st.floats(-80, 80), st.sampled_from([0.0, 5.0, 60.0]), st.floats(0, 12))


@given(st.lists(seen, min_size=1, max_size=8))
def test_insulin_is_that_of_the_formulas(observations: list[tuple[float, float, float, float]]) -> None:
    expected = [[by_hand(SETTINGS, *each)] for each in observations]
    array = np.array(observations)
    np.testing.assert_allclose(SETTINGS.act(array, 0, NOTHING), expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(SETTINGS.act(np.asfortranarray(array), 7, NOTHING), expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(SETTINGS.act(array[0], 0, NOTHING), expected[0], rtol=1e-12, atol=1e-15)
    action, state = SETTINGS.predict(array, deterministic=True)
    np.testing.assert_allclose(action, expected, rtol=1e-12, atol=1e-15)
    assert state is None


@given(seen, st.floats(0.2, 5.0))
def test_a_gain_scales_every_dose(observation: tuple[float, float, float, float], gain: float) -> None:
    """Of the same glucose and meal, with as much more insulin on board."""
    now, change, carbohydrates, on_board = observation
    single = SETTINGS.act(np.array([now, change, carbohydrates, on_board]), 0, NOTHING)
    scaled = SETTINGS.scaled(gain).act(np.array([now, change, carbohydrates, gain * on_board]), 0, NOTHING)
    np.testing.assert_allclose(scaled, gain * single, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"basal": -0.1}, "basal must be at least 0, got -0.1"),
        ({"ratio": 0.0}, "ratio must be positive, got 0.0"),
        ({"correction_factor": float("nan")}, "correction_factor must be finite"),
        ({"target": "high"}, "target must be a number, got 'high'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(SETTINGS, **changed)


def test_observations_of_another_kind_are_refused() -> None:
    for strange in (np.zeros(3), np.zeros((5, 3)), 4):
        with pytest.raises(InvalidInput, match=r"observation must have shape \[4\] or \[n, 4\]"):
            SETTINGS.act(strange, 0, NOTHING)


def policy_set(*policies: InsulinSettings) -> PolicyValueSet:
    parameter, margin = np.array([1.0, 55.0]), np.array([0.01])
    entries = tuple(Entry(parameter, policy, 0.7, margin, 0.5, margin) for policy in policies[1:])
    tasks = glucose()
    return PolicyValueSet(entries, policies[0], tasks.units, None, None, None, tasks.digest(), tasks.recipe, {})


def test_they_are_stored_as_numbers(tmp_path: Path) -> None:
    made = policy_set(AVERAGE_SETTINGS.scaled(0.4), AVERAGE_SETTINGS, SETTINGS)
    made.save(tmp_path / "set")
    loaded = PolicyValueSet.load(tmp_path / "set")
    assert loaded.policies == made.policies
    assert loaded.digest() == made.digest()
    assert InsulinSettings.from_arrays(SETTINGS.to_arrays()) == SETTINGS
    write_policy(SETTINGS, tmp_path / "policy.safetensors")
    with pytest.raises(InvalidInput, match="got kind 'insulin'"):
        write_policy(SETTINGS, tmp_path / "policy.onnx")


def test_arrays_that_are_no_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"basal must be one number, got shape \[2\]"):
        InsulinSettings.from_arrays({**SETTINGS.to_arrays(), "basal": np.zeros(2)})

    class Forged(InsulinSettings):
        def to_arrays(self) -> dict[str, Any]:
            return {**super().to_arrays(), "ratio": np.array(-1.0)}

    policy_set(Forged(0.4, 0.004, 35.0, 105.0), SETTINGS).save(tmp_path / "set")
    with pytest.raises(ArtifactError, match=r"policy 0 .*ratio must be positive, got -1\.0"):
        PolicyValueSet.load(tmp_path / "set")


@pytest.mark.parametrize(("sensitivity", "gain"), [(1.0, 1.0), (0.5, 2.0), (2.0, 0.5)])
def test_the_average_settings_are_sensible_where_they_are_made_for(sensitivity: float, gain: float) -> None:
    """And twice as much insulin is far too much."""
    task = glucose().task((sensitivity, 55.0))
    right, twice = (
        task.episodes(AVERAGE_SETTINGS.scaled(k * gain), 288).run(1500, np.random.default_rng(0)) for k in (1, 2)
    )
    assert 0.7 < right.reward.mean() < 0.8
    assert 0.02 < right.cost.mean() < 0.04
    assert twice.cost.mean() > 0.2
