"""The heating of an office: what EnergyPlus is told and what is read from it, and what a family of tasks must keep."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import surefoot as sf
from fake_energyplus import BUILDING, write_package
from surefoot.errors import InvalidInput
from surefoot.lab.buildings import office
from surefoot.lab.buildings.family import BUDGET, WORKING_HOURS, BuildingTask, _remember_winter
from surefoot.lab.buildings.office import change_building, read_objects, restart_schedule, simulate_winter
from surefoot.lab.buildings.settings import CANDIDATES, SAFE, RestartHour
from surefoot.policyset.stored_arrays import DECODERS

SHORT = 9  # days: two of them on a weekend, and one that nothing is known of before


def forget() -> None:
    for each in (office._files, office.building_digest, _remember_winter):
        each.cache_clear()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package of that name that takes no time."""
    write_package(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv(office.PYTHON, raising=False)
    forget()
    yield
    forget()


@pytest.fixture(scope="module")
def energyplus() -> None:
    forget()
    try:
        office.building_digest()
    except InvalidInput as error:
        pytest.skip(str(error))


# ---------------------------------------------------------------------------------------------------------- EnergyPlus


@pytest.mark.long
def test_winters_of_energyplus(energyplus: None) -> None:
    """They are the same each time; a later restart takes less energy, and a weak plant in a draughty house is late."""
    weak = BuildingTask([0.4, 2.5], SHORT)
    early, late = (weak.winter(hour) for hour in (0, 7))
    again = simulate_winter(0.4, 2.5, 7, SHORT)
    assert np.array_equal(late.seen, again.seen)
    assert np.array_equal(late.cold, again.cold)
    assert late.seen.shape == (6, 25, 3)
    assert np.array_equal(early.seen[..., 1], late.seen[..., 1])
    assert (late.energy.sum(axis=1) < early.energy.sum(axis=1)).all()
    assert late.cold.sum() >= early.cold.sum()
    assert (early.seen[:, 8, 0] > late.seen[:, 7, 0] + 1.0).all()
    assert late.energy.max() < early.energy.shape[1] * 10


# -------------------------------------------------------------------------------------- what is told, and what is read


def test_a_building_is_changed_where_it_should_be() -> None:
    objects = change_building(read_objects(BUILDING), 0.5, 2.0, 7, 40)
    by_name = {each[1]: each for each in objects if each[0] == "Schedule:Compact"}
    working = by_name["HTGSETP_SCH"][4:11]
    assert working == ["For: Weekdays", "Until: 07:00", "15.6", "Until: 22:00", "21.0", "Until: 24:00", "15.6"]
    assert by_name["HVACOperationSchd"][4:12] == [
        *("For: SummerDesignDay", "Until: 06:00", "0.0", "Until: 22:00", "1.0", "Until: 24:00", "0.0", "For: Weekdays")
    ]
    assert by_name["INFIL_QUARTER_ON_SCH"][11:18] == [
        *("For: Weekdays", "Until: 07:00", "2.0", "Until: 22:00", "0.5", "Until: 24:00", "2.0")
    ]
    sizing = next(each for each in objects if each[0] == "Sizing:System")
    assert sizing[33:] == ["FractionOfAutosizedHeatingCapacity", "", "", "0.5", "VAV"]
    period = [each for each in objects if each[0] == "RunPeriod"]
    assert [each[5:7] for each in period] == [["2", "9"]]
    assert not any("Facility" in field or field == "dear" for each in objects for field in each)
    assert [each[1] for each in objects if each[0] == "Output:Variable"] == ["*", "Hall", "Loft"]


def test_from_midnight_on_there_is_no_night_before() -> None:
    schedule = next(each for each in read_objects(BUILDING) if "HTGSETP_SCH" in each)
    assert restart_schedule(schedule, 0)[4:7] == ["For: Weekdays", "Until: 22:00", "21.0"]


def test_a_winter_is_read_by_the_hour(fake: None) -> None:
    """Of nine days from a Sunday on, working days are the second to the sixth, and the ninth."""
    winter = simulate_winter(0.5, 1.0, 6, SHORT)
    assert winter.seen.shape == (6, 25, 3)
    assert np.array_equal(winter.seen[:, :, 1][:, 1], [-12.0, -4.0, -4.0, -4.0, -4.0, -4.0])  # cold every fifth day
    assert winter.seen[1:5, 0] == pytest.approx(winter.seen[:4, 24])  # midnight is midnight, but for weekends
    assert (winter.energy[:, 6] > winter.energy[:, 12]).all()
    assert winter.energy.max() <= 20.0 + 1e-9  # kWh in an hour, at most what the plant can
    assert not winter.cold[:, :8].any()
    assert not winter.cold[:, 18:].any()
    late = simulate_winter(0.5, 1.0, 8, SHORT)
    assert 0 < late.cold[:, 8].max() < 1  # of an hour and of two rooms, one of which is a degree warmer
    assert late.energy.sum() < winter.energy.sum()


def test_what_energyplus_complains_of_is_passed_on(fake: None) -> None:
    with pytest.raises(InvalidInput, match=r"^a winter must .* capacity 10, .*capacity is out of reach"):
        simulate_winter(10.0, 1.0, 7, SHORT)


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forget()
    (tmp_path / "pyenergyplus.py").write_text("raise ImportError('nothing of the kind')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(office.PYTHON, sys.executable)
    with pytest.raises(InvalidInput, match=r"^pyenergyplus-lbnl must be .*surefoot\[buildings\].*nothing of the kind"):
        sf.tasks.buildings().digest()
    monkeypatch.setenv(office.PYTHON, str(tmp_path / "none"))
    with pytest.raises(InvalidInput, match=r"^pyenergyplus-lbnl must be .*No such file"):
        sf.tasks.buildings().digest()


# ---------------------------------------------------------------------------------------------------------- as a family


def test_days_are_drawn_from_one_winter(fake: None) -> None:
    task = sf.tasks.buildings(winter_days=SHORT).task((0.45, 2.0))
    winter = task.winter(7)
    days = task.episodes(RestartHour(7), 24).run(600, np.random.default_rng(1), transitions=True)
    again = task.episodes(RestartHour(7), 24).run(600, np.random.default_rng(1))
    assert np.array_equal(days.sums, again.sums)
    assert set(np.round(-days.reward, 9)) == set(np.round(winter.energy.sum(axis=1), 9))
    assert days.cost.mean() == pytest.approx(winter.cold.sum(axis=1).mean() / WORKING_HOURS, abs=0.02)
    seen = days.watched()
    assert seen.observations.shape == (600, 25, 3)
    assert -days.reward == pytest.approx(seen.observations[:, 1:, 2].sum(axis=1))
    assert seen.actions[0, :, 0].tolist() == [15.6] * 7 + [21.0] * 15 + [15.6] * 2
    half = task.episodes(RestartHour(7), 12).run(600, np.random.default_rng(1))
    assert (half.reward > days.reward).all()
    assert sf.cmdp.episode.first_breach(days, task.units) == len(days)


def test_winters_are_kept_in_a_folder(fake: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = sf.tasks.buildings(winter_days=SHORT, keep=str(tmp_path / "kept")).task((0.5, 1.5))
    first = task.winter(6)
    _remember_winter.cache_clear()
    monkeypatch.setattr("surefoot.lab.buildings.family.simulate_winter", None)
    again = task.winter(6)
    assert np.array_equal(first.seen, again.seen)
    assert np.array_equal(first.cold, again.cold)
    assert task.digest() == sf.tasks.buildings(winter_days=SHORT).task((0.5, 1.5)).digest()


def test_buildings_on_a_grid(fake: None) -> None:
    tasks = sf.tasks.buildings(0.4, 0.8, 1.0, 2.0, grid=3, winter_days=SHORT)
    drawn = tasks.sample(200, np.random.default_rng(0))
    assert {tuple(each) for each in drawn.round(9).tolist()} == {
        (c, i) for c in (0.4, 0.6, 0.8) for i in (1.0, 1.5, 2.0)
    }
    assert tasks.digest() != sf.tasks.buildings(0.4, 0.8, 1.0, 2.0, winter_days=SHORT).digest()
    with pytest.raises(InvalidInput, match=r"^grid must be 0, or lie within 2 and 100, got 1"):
        sf.tasks.buildings(grid=1)


def test_later_restarts_save_energy_and_are_colder(fake: None) -> None:
    task = sf.tasks.buildings(winter_days=SHORT).task((0.45, 2.5))
    means = [
        task.episodes(policy, 24).run(200, np.random.default_rng(4)).sums.mean(axis=0)
        for policy in (SAFE, *reversed(CANDIDATES.values()), RestartHour(9))
    ]
    reward, cost = np.stack(means).T
    assert (np.diff(reward) > 0).all()
    assert cost[-1] > BUDGET


# --------------------------------------------------------------------------------------------------- without simulating


def test_a_restart_hour_is_stored_as_a_number() -> None:
    again = DECODERS["restart-hour"](RestartHour(6).to_arrays())
    assert again == RestartHour(6)
    assert again.act(np.zeros((3, 3)), 5, np.random.default_rng(0)).tolist() == [[15.6]] * 3
    assert SAFE.predict(np.zeros(3))[0].tolist() == [21.0]
    with pytest.raises(InvalidInput, match=r"^hour must be at most 12, got 13"):
        RestartHour(13)
    with pytest.raises(InvalidInput, match=r"^hour must be one number, got shape \[2\]"):
        RestartHour.from_arrays({"hour": np.ones(2)})


@pytest.mark.parametrize(("parameter", "days"), [([0.0, 1.0], 31), ([0.8], 31), ([1.2, 1.0], 31), ([0.5, 1.0], 3)])
def test_a_building_has_two_positive_numbers_and_a_winter(parameter: list[float], days: int) -> None:
    with pytest.raises(InvalidInput, match=r"^(parameter|winter_days) must"):
        BuildingTask(np.array(parameter), days)


def test_what_looks_at_rooms_is_refused() -> None:
    policy = sf.controller(lambda observation, step: [21.0], name="always", vectorised=False)
    with pytest.raises(InvalidInput, match=r"^policy must be a RestartHour: a whole winter"):
        BuildingTask(np.array([0.5, 1.0])).episodes(policy, 24)
