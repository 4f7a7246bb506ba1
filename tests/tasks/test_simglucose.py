"""Patients of simglucose: lanes against the package's own patient, days of its laws, and a task like all."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from surefoot.errors import InvalidInput
from surefoot.lab.simglucose import patients as files
from surefoot.lab.simglucose.days import sample_days
from surefoot.lab.simglucose.family import SimglucoseTask
from surefoot.lab.simglucose.gains import USUAL_SETTINGS, gain_candidates
from surefoot.lab.simglucose.model import Bodies, insulin_at_rest, resting_action
from surefoot.lab.simglucose.patients import number_of, patients, read_table, sensor
from surefoot.tasks import simglucose
from surefoot.testing import task_suite

needs_package = pytest.mark.skipif(
    find_spec("simglucose") is None, reason="needs simglucose: pip install --no-deps simglucose==0.2.11"
)

# ------------------------------------------------------------------------------------------------------------ the body


@pytest.fixture(scope="module")
def package() -> Any:
    """The module with the package's patient. What it imports and does not use here may be missing: an old Gym, which
    the package registers itself with, and pandas, which reads its files."""
    with pytest.MonkeyPatch.context() as patch:
        names = ("gym", "gym.envs", "gym.envs.registration", "pandas", "pkg_resources")
        missing = {name for name in names if find_spec(name.split(".")[0]) is None}
        for name in names:
            if name in missing:
                stand_in = ModuleType(name)
                stand_in.register = stand_in.resource_filename = lambda *_, **__: None  # type: ignore[attr-defined]
                patch.setitem(sys.modules, name, stand_in)
        from simglucose.patient import t1dpatient

        return t1dpatient


def package_day(package: Any, name: str, start: float, insulin: Any, meals: Any) -> Any:
    """[288] mg/dl after every step, minute by minute, from a body at rest."""
    patient = patients()[number_of(name)]
    row = {r["Name"]: r for r in read_table("vpatient_params.csv")}[name]
    numbers = {key: value if key == "Name" else float(value) for key, value in row.items()}
    action, tissue = resting_action(patient, np.array([start]))
    skin1, skin2, liver, plasma, remote, *delayed = insulin_at_rest(patient, action)[:7, 0]
    glucose = start * patient.Vg
    state = [0, 0, 0, glucose, tissue[0], plasma, remote - patient.Ib, *delayed, liver, skin1, skin2, glucose]
    own = package.T1DPatient(SimpleNamespace(**numbers), init_state=np.array(state, dtype=float))
    found = []
    for t in range(288):
        for minute in range(5):
            units = insulin[t] / 5 * patient.BW / 75  # all insulin is that of a body of 75 kg
            own.step(package.Action(CHO=float(meals[5 * t + minute]), insulin=units))
        found.append(own.observation.Gsub)
    return np.array(found)


@needs_package
@pytest.mark.parametrize(
    "name", ["child#001", *(pytest.param(each, marks=pytest.mark.long) for each in ("adult#007", "adolescent#010"))]
)
def test_a_day_is_that_of_the_package(package: Any, name: str) -> None:
    """Within 0.01 mg/dl, with meals that stomachs take sharply different times for."""
    patient = patients()[number_of(name)]
    days = sample_days(1, np.random.default_rng(3), patient.meal_size)
    insulin = 0.05 + days.counted[:, 0] / 40
    body, found = Bodies(patient, days.start), []
    for t in range(288):
        body.advance(insulin[t : t + 1], days.meals[5 * t : 5 * t + 5])
        found.append(body.glucose[0])
    expected = package_day(package, name, days.start[0], insulin, days.meals[:, 0])
    assert np.ptp(expected) > 60
    np.testing.assert_allclose(found, expected, atol=0.01)


@needs_package
def test_bodies_side_by_side_are_bodies_alone() -> None:
    rng, patient = np.random.default_rng(0), patients()[8]
    start, meals = rng.uniform(80, 220, 3), rng.uniform(0, 60, (200, 3)) * (rng.random((200, 3)) < 0.02)
    together, alone = Bodies(patient, start), [Bodies(patient, start[k : k + 1]) for k in range(3)]
    for t in range(40):
        insulin, eaten = rng.uniform(0, 1, 3), meals[5 * t : 5 * t + 5]
        together.advance(insulin, eaten)
        for k, body in enumerate(alone):
            body.advance(insulin[k : k + 1], eaten[:, k : k + 1])
    np.testing.assert_allclose(together.glucose, [body.glucose[0] for body in alone], rtol=1e-9)


@needs_package
def test_a_body_at_rest_stays_there() -> None:
    for number in (0, 14, 29):
        start = np.array([90.0, 120.0, 140.0])
        body, action = Bodies(patients()[number], start), resting_action(patients()[number], start)[0]
        skin = insulin_at_rest(patients()[number], action)[0]
        basal = skin * (patients()[number].ka1 + patients()[number].kd) / (6000 / 75 / 5)
        for _ in range(60):
            body.advance(basal, np.zeros((5, 3)))
        np.testing.assert_allclose(body.glucose, start, rtol=1e-6)


# ------------------------------------------------------------------------------------------------------------ the days


@needs_package
def test_days_have_the_law_of_the_package() -> None:
    days = sample_days(4000, np.random.default_rng(0))
    assert (days.meals > 0).sum(axis=0).mean() == pytest.approx(3 * 0.95 + 3 * 0.3 * 0.97, abs=0.05)
    assert days.meals.sum(axis=0).mean() == pytest.approx(0.95 * (45 + 70 + 80) + 0.3 * 3 * 10, rel=0.02)
    assert not days.meals[: 5 * 60].any()
    assert ((days.counted > 0) == (days.meals.reshape(288, 5, -1).sum(axis=1) > 0)).all()
    by_name = sensor()
    # of a sinh of a normal number; the autoregression has variance 0.49/0.51
    mean = by_name["xi"] - by_name["lambda"] * np.exp(0.49 / 0.51 / by_name["delta"] ** 2 / 2) * np.sinh(
        by_name["gamma"] / by_name["delta"]
    )
    assert days.error[2::3].mean() == pytest.approx(mean, abs=0.1)
    quarters = days.error[2::3]
    assert np.corrcoef(quarters[50], quarters[51])[0, 1] == pytest.approx(0.7, abs=0.05)


# --------------------------------------------------------------------------------------------------- patients and task


@needs_package
def test_a_task_like_all() -> None:
    task_suite.check(lambda: simglucose().task([12, 0.1, -0.1]), [USUAL_SETTINGS], episodes=20)


@needs_package
def test_patients_are_in_the_order_of_need_and_can_be_left_out() -> None:
    assert len(patients()) == 30
    left, only = simglucose(left_out="adult#007"), simglucose(only="adult#007")
    rng, number = np.random.default_rng(0), number_of("adult#007")
    assert number not in left.sample(500, rng)[:, 0]
    assert set(only.sample(5, rng)[:, 0]) == {number}
    assert len({tasks.digest() for tasks in (left, only, simglucose())}) == 3
    drawn = simglucose().sample(2000, rng)
    assert set(drawn[:, 0]) == set(range(30))
    assert (np.abs(drawn[:, 1:]).max(axis=0) <= [0.5, 0.4]).all()
    with pytest.raises(InvalidInput, match="adult#011"):
        simglucose(left_out="adult#011")
    with pytest.raises(InvalidInput, match=r"parameter must be .*got \[30\.0"):
        SimglucoseTask(np.array([30.0, 0.0, 0.0]))


@needs_package
def test_insulin_is_worth_as_many_units_as_the_action_says() -> None:
    """Twice the action and half of the doses: the same glucose, whose sensor is all that differs."""
    patient, start = patients()[11], np.array([120.0])
    plain, doubled = Bodies(patient, start), Bodies(SimglucoseTask(np.array([11, np.log(2), 0.0])).patient, start)
    for t in range(60):
        plain.advance(np.array([0.2 + (t == 5)]), np.zeros((5, 1)))
        doubled.advance(np.array([0.1 + (t == 5) / 2]), np.zeros((5, 1)))
    assert plain.glucose[0] < 110
    np.testing.assert_allclose(plain.glucose, doubled.glucose, rtol=1e-9)


@needs_package
def test_policies_of_one_pump_fit_the_other() -> None:
    """So that what is trained on our own model can be calibrated here."""
    ours, theirs = sf.tasks.glucose(), simglucose()
    assert (ours.example.spaces, ours.units.same_as(theirs.units)) == (theirs.example.spaces, True)
    safe, others = gain_candidates(3)
    assert [each.basal for each in others.values()] == sorted(each.basal for each in others.values())
    assert safe.basal < min(each.basal for each in others.values())


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match="pip install"):
        read_table("Quest.csv")
