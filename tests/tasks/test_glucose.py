"""The insulin pump: a body as an independent solver sees it, days of the law they should have, and a task like all."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.integrate
from hypothesis import given
from hypothesis import strategies as st

import surefoot as sf
from surefoot.cmdp.task import run_policies
from surefoot.errors import InvalidInput
from surefoot.lab.pump import days, model
from surefoot.lab.pump.days import sample_days
from surefoot.lab.pump.family import GlucoseTask
from surefoot.lab.pump.model import AVERAGE_BASAL, Bodies, Patient, on_board_at_rest, resting_basal
from surefoot.lab.pump.simulated_days import BUDGET, LANES
from surefoot.simulate.pool import EpisodeStream, SharedStreams, growing_chunks, policy_rng
from surefoot.tasks import InsulinSettings, glucose
from surefoot.testing import task_suite

AVERAGE = GlucoseTask(np.array([1.0, 55.0]))
SETTINGS = InsulinSettings(0.4, 0.004, 35.0, 105.0)

# ------------------------------------------------------------------------------------------------------------ the body


def plain_rates(_: float, y: Any, patient: Patient, insulin: float, response: float) -> list[float]:
    """Hovorka et al. 2004 as printed, minutes and mmol, for a body of 75 kg; insulin in mU/min."""
    d1, d2, s1, s2, plasma, x1, x2, x3, q1, q2 = y
    level, s, t_i = q1 / (0.16 * 75), patient.sensitivity, patient.skin_time
    brain = 0.0097 * 75 * (1 if level >= 4.5 else level / 4.5)
    kidney = 0.003 * (level - 9) * 0.16 * 75 if level >= 9 else 0.0
    liver = max(0.0161 * 75 * (1 - response * x3), 0)
    return [
        -d1 / 40,
        (d1 - d2) / 40,
        insulin - s1 / t_i,
        (s1 - s2) / t_i,
        s2 / t_i / (0.12 * 75) - 0.138 * plasma,
        -0.006 * x1 + 0.006 * s * 51.2e-4 * plasma,
        -0.06 * x2 + 0.06 * s * 8.2e-4 * plasma,
        -0.03 * x3 + 0.03 * s * 520e-4 * plasma,
        -brain - kidney - response * x1 * q1 + 0.066 * q2 + d2 / 40 + liver,
        response * x1 * q1 - (0.066 + response * x2) * q2,
    ]


def plain_start(patient: Patient, start: float) -> Any:
    """At rest: by letting the equations run, glucose held, until nothing moves."""
    basal = resting_basal(patient, start) * 1000 / 60
    y = np.zeros(10)
    y[8] = start / 18.016 * 0.16 * 75

    def held(t: float, now: Any) -> Any:
        rates = plain_rates(t, now, patient, basal, 1.0)
        rates[8] = 0.0
        return rates

    return scipy.integrate.solve_ivp(held, (0, 20_000), y, method="LSODA", rtol=1e-9, atol=1e-12).y[:, -1]


def plain_day(patient: Patient, start: float, insulin: Any, eaten: Any, response: Any) -> Any:
    """[288] mg/dl after every step."""
    y, found = plain_start(patient, start), []
    for u, grams, today in zip(insulin, eaten, response, strict=True):
        y[0] += 0.8 * grams * 1000 / 180.16
        arguments = (patient, 1000 * u / 5, today)
        y = scipy.integrate.solve_ivp(plain_rates, (0, 5), y, args=arguments, method="LSODA", rtol=1e-8, atol=1e-10).y[
            :, -1
        ]
        found.append(y[8] / (0.16 * 75) * 18.016)
    return np.array(found)


@pytest.mark.parametrize(
    ("sensitivity", "skin_time", "gain"), [(1.0, 55.0, 1.0), (2.0, 40.0, 0.5), (0.5, 75.0, 2.0), (1.4, 60.0, 1.6)]
)
def test_a_day_is_that_of_an_independent_solver(sensitivity: float, skin_time: float, gain: float) -> None:
    """The last case is far too much insulin: glucose nearly vanishes."""
    patient, days = Patient(sensitivity, skin_time), sample_days(1, np.random.default_rng(int(10 * gain)))
    insulin = gain * (0.034 + days.eaten[:, 0] / 30)
    body, found = Bodies(patient, days.start), []
    for t in range(288):
        body.advance(insulin[t : t + 1], days.eaten[t], days.response[t])
        found.append(body.glucose[0])
    expected = plain_day(patient, days.start[0], insulin, days.eaten[:, 0], days.response[:, 0])
    assert np.ptp(expected) > 60
    np.testing.assert_allclose(found, expected, atol=0.5)


@given(st.floats(0.4, 2.5), st.floats(30.0, 90.0), st.floats(80.0, 220.0))
def test_a_body_at_rest_stays_there(sensitivity: float, skin_time: float, start: float) -> None:
    patient = Patient(sensitivity, skin_time)
    body, basal = Bodies(patient, np.array([start])), np.array([resting_basal(patient, start) / 12])
    for _ in range(100):
        body.advance(basal, np.zeros(1), np.ones(1))
    np.testing.assert_allclose(body.glucose, start, rtol=1e-9)


@given(st.integers(0, 2**32), st.floats(0.3, 3.0), st.floats(30.0, 90.0))
def test_bodies_side_by_side_are_bodies_alone(seed: int, sensitivity: float, skin_time: float) -> None:
    """And whatever is done to them, glucose is a number that is not negative."""
    rng, patient = np.random.default_rng(seed), Patient(sensitivity, skin_time)
    start = rng.uniform(80, 220, 5)
    together, alone = Bodies(patient, start), [Bodies(patient, start[k : k + 1]) for k in range(5)]
    for _ in range(40):
        insulin = rng.uniform(0, 25, 5) * (rng.random(5) < 0.1)
        grams, response = rng.uniform(0, 150, 5) * (rng.random(5) < 0.1), rng.uniform(0.3, 3, 5)
        together.advance(insulin, grams, response)
        for k, body in enumerate(alone):
            body.advance(insulin[k : k + 1], grams[k : k + 1], response[k : k + 1])
    np.testing.assert_allclose(together.glucose, [body.glucose[0] for body in alone], rtol=1e-9, atol=1e-9)
    assert (together.glucose >= 0).all()


def test_insulin_on_board_is_what_a_depot_of_mean_speed_still_holds() -> None:
    """Of a dose given t minutes ago (1 + t/55) exp(-t/55), of a basal rate b that never changed 2·55·b."""
    body, age = Bodies(Patient(0.7, 70.0), np.array([130.0])), np.arange(1, 101) * 5.0
    basal = AVERAGE_BASAL / 12
    found = []
    for t in range(100):
        body.advance(np.array([basal + (3.0 if t == 0 else 0.0)]), np.zeros(1), np.ones(1))
        found.append(body.on_board[0])
    steady = on_board_at_rest(AVERAGE_BASAL)
    assert steady == pytest.approx(AVERAGE_BASAL * 110 / 60)
    left = 3.0 * (1 + (age - 2.5) / 55) * np.exp(-(age - 2.5) / 55)  # the dose flows for five minutes
    np.testing.assert_allclose(found, steady + left, atol=0.01)


# ------------------------------------------------------------------------------------------------------------ the days


def test_days_have_the_law_that_is_documented() -> None:
    days = sample_days(20_000, np.random.default_rng(0))
    assert np.abs(days.error).mean() == pytest.approx(0.088, abs=0.001)  # the sensor's mean relative difference
    at_quarters = np.corrcoef(days.error[100], days.error[103])[0, 1]
    assert at_quarters == pytest.approx(0.7, abs=0.02)
    assert days.error[0].std() == pytest.approx(days.error[288].std(), rel=0.03)

    meals = days.eaten > 0
    assert set(np.unique(meals.sum(axis=0))) == {3, 4}
    assert meals.sum(axis=0).mean() == pytest.approx(3.5, abs=0.02)
    assert days.eaten.sum(axis=0).mean() == pytest.approx((45 + 65 + 75 + 10) * np.exp(0.25**2 / 2), rel=0.01)
    error = np.log(days.counted[meals] / days.eaten[meals])
    assert (error.mean(), error.std()) == (pytest.approx(0, abs=0.01), pytest.approx(0.25, abs=0.005))
    assert ((days.counted > 0) == meals).all()

    daily = np.log(days.response.mean(axis=0))
    assert (daily.mean(), daily.std()) == (pytest.approx(0, abs=0.005), pytest.approx(0.15, abs=0.005))
    np.testing.assert_allclose(days.response.max(axis=0) / days.response.min(axis=0), 1.15 / 0.85, rtol=2e-4)
    assert np.median(days.start) == pytest.approx(130, rel=0.01)


# ------------------------------------------------------------------------------------------------------------ the task


@pytest.mark.parametrize("parameter", [(1.0, 55.0), (2.0, 75.0)])
def test_it_keeps_the_contract_of_tasks(parameter: tuple[float, float]) -> None:
    task_suite.check(lambda: glucose().task(parameter), [SETTINGS, SETTINGS.scaled(3.0)], episodes=200)


def test_what_is_paid_follows_from_what_is_observed() -> None:
    outcomes = AVERAGE.episodes(SETTINGS, 288).run(LANES + 50, np.random.default_rng(0), transitions=True)
    observed = outcomes.watched()
    assert observed.observations.shape == (LANES + 50, 289, 4)
    assert observed.actions.shape == (LANES + 50, 288, 1)
    assert (observed.steps == 288).all()
    readings = observed.observations[..., 0]
    assert readings.min() >= 40
    assert readings.max() <= 400
    within = [sum(70 <= reading <= 180 for reading in day[1:]) / 288 for day in readings[:20].tolist()]
    below = [sum(reading < 70 for reading in day[1:]) / 288 for day in readings[:20].tolist()]
    np.testing.assert_allclose(outcomes.reward[:20], within)
    np.testing.assert_allclose(outcomes.cost[:20, 0], below)
    np.testing.assert_array_equal(observed.observations[:, 3:, 1], readings[:, 3:] - readings[:, :-3])
    for t in (0, 90, 287):
        acted = np.clip(SETTINGS.likeliest(observed.observations[:, t], t), 0, 25)
        np.testing.assert_array_equal(observed.actions[:, t], acted)


@pytest.mark.short_for(count=[3, LANES + 20])
@pytest.mark.parametrize("count", [3, 200, LANES + 20])
def test_policies_side_by_side_are_policies_alone(count: int) -> None:
    """To the bit, also where not all of them have room side by side, and where policies draw."""

    class Random:
        def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
            return rng.random((len(observation), 1)) / 10

    policies: list[Any] = [*(SETTINGS.scaled(gain) for gain in (0.5, 1.0, 1.5)), Random(), Random(), SETTINGS]

    def generators() -> list[np.random.Generator]:
        return [np.random.default_rng([7, k]) for k in range(len(policies))]

    together = run_policies(AVERAGE, policies, count, generators(), transitions=True)
    for policy, rng, found in zip(policies, generators(), together, strict=True):
        alone = AVERAGE.episodes(policy, 288).run(count, rng, transitions=True)
        assert np.array_equal(found.sums, alone.sums)
        assert np.array_equal(found.watched().observations, alone.watched().observations)
        assert np.array_equal(found.watched().actions, alone.watched().actions)


def test_streams_that_are_shared_have_the_episodes_of_each_alone() -> None:
    """Also in later chunks, and after a learner that looks at sums only."""
    policies = [SETTINGS, SETTINGS.scaled(1.2)]
    shared = SharedStreams(AVERAGE, policies, steps=288, episodes=200, seed=3, transitions=True)
    for index in (1, 0):
        alone = EpisodeStream(AVERAGE.episodes(policies[index], 288), policy_rng(3, index), growing_chunks())
        found, expected = shared[index].episodes(0, 200), alone.episodes(0, 200)
        assert np.array_equal(found.sums, expected.sums)
        assert np.array_equal(found.watched().observations, expected.watched().observations)
    assert shared.holds(1, policies[1])
    assert not shared.holds(0, policies[1]), "a learner's own policy of that number"
    assert not shared.holds(2, SETTINGS.scaled(1.5))


def test_a_day_can_be_cut_short() -> None:
    whole, part = (AVERAGE.episodes(SETTINGS, n).run(30, np.random.default_rng(0), True) for n in (1000, 100))
    assert part.watched().actions.shape == (30, 100, 1)
    np.testing.assert_array_equal(part.watched().observations[:, :100], whole.watched().observations[:, :100])


class Fixed:
    """The same action at all times."""

    kind: ClassVar[str] = "fixed"

    def __init__(self, action: Any) -> None:
        self.action = action

    def act(self, observation: Any, step: Any, rng: np.random.Generator) -> Any:
        return self.action

    def to_arrays(self) -> dict[str, Any]:
        return {}


def test_a_pump_gives_what_it_can() -> None:
    def given_by(action: float) -> set[float]:
        policy = Fixed(np.full((4, 1), action))
        observed = AVERAGE.episodes(policy, 10).run(4, np.random.default_rng(0), transitions=True).watched()
        return set(observed.actions.ravel().tolist())

    assert (given_by(-1.0), given_by(0.5), given_by(1e9)) == ({0.0}, {0.5}, {25.0})


def test_actions_that_are_none_are_refused() -> None:
    with pytest.raises(InvalidInput, match="actions must be finite, got one that is no number at step 0"):
        AVERAGE.episodes(Fixed(np.full((4, 1), np.nan)), 10).run(4, np.random.default_rng(0))
    with pytest.raises(InvalidInput, match=r"actions must have shape \[4, 1\], got \[4\] at step 0"):
        AVERAGE.episodes(Fixed(np.zeros(4)), 10).run(4, np.random.default_rng(0))
    with pytest.raises(InvalidInput, match="policy must be one that can act"):
        AVERAGE.episodes(object(), 10)  # type: ignore[arg-type]


@pytest.mark.parametrize("parameter", [(0.0, 55.0), (1.0, -55.0), (1.0,), (1.0, float("nan"))])
def test_parameters_that_are_no_patient_are_refused(parameter: tuple[float, ...]) -> None:
    with pytest.raises(InvalidInput, match="parameter"):
        GlucoseTask(np.array(parameter))


def test_the_family() -> None:
    tasks = sf.tasks.glucose()
    assert tasks.units.horizon == 288
    assert tasks.units.budget.tolist() == [BUDGET]
    assert tasks.units.reachable.tolist() == [[0, 1], [0, 1]]
    low, high = tasks.distribution.support.T
    assert (low.tolist(), high.tolist()) == ([0.5, 45.0], [2.0, 67.0])
    recipe = dict(tasks.recipe)
    assert recipe.pop("family") == "glucose"
    assert glucose(**recipe).digest() == tasks.digest()
    assert len({tasks.digest(), glucose(0.6).digest(), glucose(slowest=80.0).digest()}) == 3
    first, second = tasks.sample(2, np.random.default_rng(0))
    assert tasks.task(first).digest() == tasks.task(first).digest() != tasks.task(second).digest()
    assert tasks.task(first).observation_shape == (4,)


@pytest.mark.parametrize("module", [days, model])
def test_the_digest_holds_every_constant(module: Any) -> None:
    assert list(module.numbers()) == sorted(name for name in vars(module) if name.isupper() and name != "NUMBERS")
