"""The town's pumps: a day of EPANET against wntr's own run of it, and what a family of tasks must keep."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot as sf
from surefoot.errors import InvalidInput
from surefoot.lab.water.family import BUDGET, MOST_POWER, RESERVE, SimulatedDays, _remember_set
from surefoot.lab.water.network import network_digest, network_file, open_network, time_below
from surefoot.lab.water.settings import CANDIDATES, SAFE, PumpSpeed
from surefoot.policyset.stored_arrays import DECODERS


@pytest.fixture(scope="module")
def epanet() -> Any:
    """wntr, if it is here with a library that loads."""
    wntr = pytest.importorskip("wntr", reason="needs surefoot[water]")
    try:
        open_network("Net3")
    except InvalidInput as error:
        pytest.skip(str(error))
    return wntr


# ------------------------------------------------------------------------------------------------------ against EPANET


@pytest.mark.parametrize("speed", [0.8, 1.0, 1.15])
def test_a_day_is_that_of_wntr(epanet: Any, speed: float, tmp_path: Path) -> None:
    network, rng = open_network("Net3"), np.random.default_rng(int(100 * speed))
    demand, fill = 0.8 * network.demand * rng.uniform(0.7, 1.3, len(network.demand)), rng.uniform(0.45, 0.65, 3)
    network.set_roughness(0.9)
    network.begin_day(demand, fill)
    hours = [network.advance(speed, RESERVE) for _ in range(24)]
    own = np.stack([hour.fill for hour in hours])

    model = run_by_wntr(epanet, demand, fill, 0.9, speed, tmp_path)
    results = epanet.sim.EpanetSimulator(model).run_sim(file_prefix=str(tmp_path / "run"))
    tanks = [model.get_node(name) for name in model.tank_name_list]
    low, high = (np.array([getattr(tank, end) for tank in tanks]) for end in ("min_level", "max_level"))
    theirs = (results.node["pressure"][model.tank_name_list].to_numpy()[1:25] - low) / (high - low)
    assert own == pytest.approx(theirs, abs=1e-4)

    power = epanet.metrics.pump_power(results.link["flowrate"], results.node["head"], model) / 1000
    steady = np.abs(np.diff(power.sum(axis=1).to_numpy()[:25])) < 20.0  # no pump was switched within these hours
    energy = np.array([hour.energy for hour in hours])
    assert steady.sum() >= 6
    assert energy[steady] == pytest.approx(power.sum(axis=1).to_numpy()[:24][steady], rel=0.06)


def run_by_wntr(wntr: Any, demand: Any, fill: Any, smoothness: float, speed: float, folder: Path) -> Any:
    """The same day as a model of wntr, with the speed written into the file: its controls would start pumps at 1."""
    text = network_file("Net3").read_text("latin-1")
    text = re.sub(r"(Link (?:10|335)) OPEN", rf"\1 {speed}", text).replace("[PATTERNS]", f" 335 {speed}\n[PATTERNS]")
    (folder / "day.inp").write_text(text, "latin-1")
    model = wntr.network.WaterNetworkModel(str(folder / "day.inp"))
    model.options.time.duration = 24 * 3600
    for (_, junction), own in zip(model.junctions(), demand, strict=True):
        junction.demand_timeseries_list[0].base_value = own * 6.30901964e-5  # gallons a minute in m³/s
    for _, pipe in model.pipes():
        pipe.roughness *= smoothness
    for (_, tank), own in zip(model.tanks(), fill, strict=True):
        tank.init_level = tank.min_level + own * (tank.max_level - tank.min_level)
    return model


def test_the_most_power_is_that_of_the_curves(epanet: Any) -> None:
    """Largest flow times head, both pumps at their fastest, at the file's efficiency of 75 %."""
    model = epanet.library.model_library.get_model("Net3")
    most = 0.0
    for _, pump in model.pumps():
        head, slope, power = pump.get_head_curve_coefficients()
        flow = (head / slope / (1 + power)) ** (1 / power)
        most += 9.81 * flow * (head - slope * flow**power) / 0.75 * 1.2**3
    assert 0.98 * MOST_POWER < most < MOST_POWER


def test_time_below_by_a_fine_grid() -> None:
    rng, at = np.random.default_rng(0), np.linspace(0, 1, 20_001)[:, None]
    for _ in range(200):
        before, after = rng.uniform(0.1, 0.5, (2, 3))
        by_grid = ((1 - at) * before + at * after < 0.3).any(axis=1).mean()
        assert time_below(before, after, 0.3) == pytest.approx(by_grid, abs=2e-4)
    same = np.array([0.2, 0.4])
    assert (time_below(same, same, 0.3), time_below(same, same, 0.1)) == (1.0, 0.0)


# ---------------------------------------------------------------------------------------------------------- as a family


def test_days_do_not_depend_on_what_ran_before(epanet: Any) -> None:
    tasks = sf.tasks.water()
    first, other = tasks.task((0.8, 0.9)), tasks.task((0.7, 1.0))
    alone = first.episodes(CANDIDATES["speed 0.8"], 24).run(3, np.random.default_rng(1), transitions=True)
    other.episodes(SAFE, 24).run(2, np.random.default_rng(2))
    again = first.episodes(CANDIDATES["speed 0.8"], 24).run(3, np.random.default_rng(1), transitions=True)
    assert np.array_equal(alone.sums, again.sums)
    assert np.array_equal(alone.watched().observations, again.watched().observations)
    assert first.digest() != other.digest()
    assert sf.tasks.water(network="Net3-coarse").digest() != tasks.digest()


def test_what_is_paid_is_what_is_observed(epanet: Any) -> None:
    task = sf.tasks.water().task((0.85, 0.87))
    days = task.episodes(PumpSpeed(0.7), 24).run(30, np.random.default_rng(3), transitions=True)
    seen = days.watched().observations
    assert seen.shape == (30, 25, 4)
    assert -days.reward == pytest.approx(seen[:, 1:, 3].sum(axis=1))
    touched = (seen[:, :, :3] < RESERVE).any(axis=(1, 2))
    assert touched.any()
    assert (days.cost[touched] > 0).all()
    assert days.cost.mean() > BUDGET
    assert sf.cmdp.episode.first_breach(days, task.units) == len(days)


def test_faster_pumps_take_more_energy_and_keep_tanks_fuller(epanet: Any) -> None:
    task = sf.tasks.water().task((0.85, 0.87))
    means = [
        task.episodes(policy, 24).run(40, np.random.default_rng(4)).sums.mean(axis=0)
        for policy in (*CANDIDATES.values(), SAFE)
    ]
    reward, cost = np.stack(means).T
    assert (np.diff(reward) < 0).all()
    assert cost[0] > BUDGET > cost[-1]


def test_speeds_may_change_by_the_hour(epanet: Any) -> None:
    """Until noon as with the one speed, afterwards not; what no pump takes is moved to what it does."""
    task = sf.tasks.water().task((0.8, 0.9))
    change = sf.controller(lambda observation, step: [1.2 if step < 12 else 0.2], name="change", vectorised=False)
    days = [
        task.episodes(policy, 24).run(2, np.random.default_rng(5), transitions=True).watched()
        for policy in (change, SAFE, PumpSpeed(0.5))
    ]
    mixed, fast, slow = (each.observations for each in days)
    assert np.array_equal(mixed[:, :13], fast[:, :13])
    assert (mixed[:, 13:, 3].sum(axis=1) < 0.7 * fast[:, 13:, 3].sum(axis=1)).all()
    assert days[0].actions[:, 12:] == pytest.approx(0.5)
    assert not np.array_equal(mixed, slow)


def test_a_coarse_network_has_the_same_demand_in_fewer_pipes(epanet: Any) -> None:
    fine, coarse = open_network("Net3"), open_network("Net3-coarse")
    assert coarse.demand.sum() == pytest.approx(fine.demand.sum())
    assert (coarse.tanks, len(coarse.demand)) == (fine.tanks, len(fine.demand))
    task, other = (sf.tasks.water(network=name).task((0.75, 0.95)) for name in ("Net3", "Net3-coarse"))
    energy = [-each.episodes(SAFE, 24).run(20, np.random.default_rng(6)).reward.mean() for each in (task, other)]
    assert energy[0] == pytest.approx(energy[1], rel=0.2)
    assert energy[0] != energy[1]
    assert network_digest("Net3-coarse") != network_digest("Net3")
    with pytest.raises(InvalidInput, match=r"^network must be one of .*Net3.*, got 'Net4'"):
        sf.tasks.water(network="Net4").digest()


def test_days_of_a_set_are_simulated_once(epanet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever draws from them draws days that a policy lives, however it is told; a folder keeps them."""
    tasks = sf.tasks.water(grid=2, day_set=6, keep=str(tmp_path / "kept"))
    task = tasks.task((0.85, 0.87))
    days = task.episodes(PumpSpeed(0.7), 24)
    drawn, again = (days.run(40, np.random.default_rng(7), transitions=True) for _ in range(2))
    assert np.array_equal(drawn.sums, again.sums)
    lived = sf.controller(lambda observation, step: [0.7], name="the same", vectorised=False)
    simulated = task.episodes(lived, 24).run(40, np.random.default_rng(7), transitions=True)
    assert np.array_equal(drawn.sums, simulated.sums)
    assert np.array_equal(drawn.watched().observations, simulated.watched().observations)
    assert np.array_equal(drawn.watched().actions, simulated.watched().actions)
    assert len(np.unique(drawn.reward)) <= 6
    half = task.episodes(PumpSpeed(0.7), 12).run(40, np.random.default_rng(7), transitions=True)
    assert np.array_equal(half.watched().observations, drawn.watched().observations[:, :13])

    _remember_set.cache_clear()
    monkeypatch.setattr(SimulatedDays, "live", None)  # nothing is simulated a second time
    assert np.array_equal(days.run(40, np.random.default_rng(7)).sums, drawn.sums)
    assert tasks.digest() == sf.tasks.water(grid=2, day_set=6).digest()
    assert tasks.digest() != sf.tasks.water(grid=2, day_set=7).digest()
    assert task.digest() != sf.tasks.water().task((0.85, 0.87)).digest()


# -------------------------------------------------------------------------------------------------------- without wntr


def test_a_speed_is_stored_as_a_number() -> None:
    again = DECODERS["pump-speed"](PumpSpeed(0.85).to_arrays())
    assert again == PumpSpeed(0.85)
    assert again.act(np.zeros((3, 4)), 0, np.random.default_rng(0)).tolist() == [[0.85]] * 3
    assert SAFE.predict(np.zeros(4))[0].tolist() == [1.2]
    with pytest.raises(InvalidInput, match=r"^speed must lie within 0\.5 and 1\.2, got 2\.0"):
        PumpSpeed(2.0)
    with pytest.raises(InvalidInput, match=r"^speed must be one number, got shape \[2\]"):
        PumpSpeed.from_arrays({"speed": np.ones(2)})


def test_towns_on_a_grid() -> None:
    drawn = sf.tasks.water(0.7, 0.8, 0.9, 1.0, grid=2).sample(50, np.random.default_rng(0))
    assert {tuple(each) for each in drawn.tolist()} == {(0.7, 0.9), (0.7, 1.0), (0.8, 0.9), (0.8, 1.0)}
    with pytest.raises(InvalidInput, match=r"^grid must be 0, or lie within 2 and 100, got 1"):
        sf.tasks.water(grid=1)
    with pytest.raises(InvalidInput, match=r"^day_set must"):
        sf.tasks.water(day_set=-1)


@pytest.mark.parametrize("parameter", [[0.0, 1.0], [0.8]])
def test_a_town_has_two_positive_numbers(parameter: list[float]) -> None:
    with pytest.raises(InvalidInput, match=r"^parameter must"):
        sf.tasks.water().task(parameter)


def test_without_wntr_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wntr", None)
    with pytest.raises(InvalidInput, match=r"^wntr must be installed .*pip install 'surefoot\[water\]'"):
        sf.tasks.water(network="Net1").digest()
