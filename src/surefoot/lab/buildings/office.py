"""A winter of DOE's small reference office in EnergyPlus, each in a process of its own: EnergyPlus has global state.

The building and the weather are files of pyenergyplus-lbnl, read and changed when a winter is simulated.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from surefoot.arrays import Floats, format_digits
from surefoot.errors import InvalidInput

INSTALL = "pip install 'surefoot[buildings]'"
PYTHON = "SUREFOOT_ENERGYPLUS"  # names a Python that has pyenergyplus, where this one cannot

WARM, SET_BACK = 21.0, 15.6  # °C to which rooms are heated, by day and by night
TOO_COLD = 20.0  # °C
OCCUPIED = (8, 18)  # hours of a working day
EVENING = 22  # when the heating is set back, as in the file
WORKING = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")  # holidays have a name of their own
HOURS, QUARTERS = 24, 4
JOULES = 3.6e6  # in a kWh
NO_LEAP_YEAR = 2023

BUILDING, WEATHER = "small_office", "usa_il_chicago"  # as pyenergyplus names them
# Schedules of the building that begin its day: heating, fans, and infiltration, which the file has less of while fans
# run.
AIR, MORNING = "INFIL_QUARTER_ON_SCH", "Until: 06:00"
RESTARTED = ("HTGSETP_SCH", "HVACOperationSchd", AIR)
METERS = ("Heating:NaturalGas", "Heating:Electricity", "Fans:Electricity")
# Of no use here: reports and tariffs. What follows is said anew.
LEFT_OUT = ("output", "utilitycost", "environmentalimpactfactors", "fuelfactors", "currencytype", "lifecyclecost")
REPLACED = ("runperiod", "simulationcontrol", "timestep")

_WHERE = "import json; from pyenergyplus.dataset import *; print(json.dumps([ref_models[{!r}], weather_files[{!r}]]))"
_RUN = """import sys; from pyenergyplus.api import EnergyPlusAPI
api = EnergyPlusAPI()
state = api.state_manager.new_state()
api.runtime.set_console_output_status(state, False)
sys.exit(api.runtime.run_energyplus(state, sys.argv[1:]))"""

# An object of an input file: its class, then its fields.
Object: TypeAlias = list[str]


@dataclass(frozen=True, eq=False)
class Winter:
    """Working days of a winter, n of them.

    Attributes:
        seen: [n, 25, 3] before each hour and after the last: the coldest room and outdoors in °C, and the kWh that
            heating and fans took in the hour before.
        cold: [n, 24] share of each hour, and of the rooms, in which somebody is there and it is too cold.
    """

    seen: Floats
    cold: Floats

    @property
    def energy(self) -> Floats:
        """[n, 24] kWh"""
        return self.seen[:, 1:, 2]


def simulate_winter(capacity: float, infiltration: float, hour: int, days: int) -> Winter:
    """Days from 1 January on; fans and heating restart at the same hour of every working day.

    Args:
        capacity: of the heating coils, over what EnergyPlus sizes them to on its design day.
        infiltration: outdoor air through the rooms' walls, over the file's. The design day has that of the file, so
            that nothing else is sized differently.
        hour: of the restart.
        days: working or not.
    """
    weather = _files()[1]
    with tempfile.TemporaryDirectory(prefix="surefoot-buildings-") as folder:
        (Path(folder) / "in.idf").write_text(_input(capacity, infiltration, hour, days), "latin-1")
        done = _run_python(_RUN, "-w", str(weather), "-d", folder, str(Path(folder) / "in.idf"), cwd=folder)
        report = Path(folder) / "eplusout.eso"
        if done.returncode or not report.exists():
            told = f"capacity {capacity:g}, infiltration {infiltration:g}, hour {hour}, days {days}"
            raise InvalidInput(f"a winter must be such that EnergyPlus runs, got {told}: {_complaint(Path(folder))}")
        return read_winter(report.read_text("latin-1"))


# ------------------------------------------------------------------------------------------------- parts, in call order


def winter_digest(capacity: float, infiltration: float, hour: int, days: int) -> str:
    """SHA-256 of all that a winter is made from."""
    told = [_input(capacity, infiltration, hour, days), building_digest(), format_digits(TOO_COLD), OCCUPIED]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _input(capacity: float, infiltration: float, hour: int, days: int) -> str:
    """The file that EnergyPlus is given."""
    objects = read_objects(_files()[0].read_text("latin-1"))
    return ";\n".join(map(",".join, change_building(objects, capacity, infiltration, hour, days))) + ";\n"


def read_objects(text: str) -> list[Object]:
    bare = "\n".join(line.partition("!")[0] for line in text.splitlines())
    return [[field.strip() for field in each.split(",")] for each in bare.split(";") if each.strip()]


def change_building(
    objects: Iterable[Object], capacity: float, infiltration: float, hour: int, days: int
) -> list[Object]:
    """The objects of an input file for one winter."""
    kept = [each for each in objects if not each[0].lower().startswith(LEFT_OUT) and each[0].lower() not in REPLACED]
    changed = []
    for each in kept:
        match each[0].lower(), each[1] if len(each) > 1 else "":
            case "sizing:system", _:
                changed.append([*each[:33], "FractionOfAutosizedHeatingCapacity", "", "", repr(capacity), *each[37:]])
            case "schedule:compact", name if name in RESTARTED:
                changed.append(restart_schedule(each, hour, infiltration if name == AIR else 1.0))
            case _:
                changed.append(each)
    last = date(NO_LEAP_YEAR, 1, 1) + timedelta(days - 1)
    rooms = [each[2] for each in kept if each[0].lower() == "zonecontrol:thermostat"]
    return [
        *changed,
        ["SimulationControl", "Yes", "Yes", "Yes", "No", "Yes"],
        ["Timestep", str(QUARTERS)],
        f"RunPeriod,Winter,1,1,,{last.month},{last.day},,Sunday,No,No,No,Yes,Yes".split(","),
        ["Output:Variable", "*", "Site Outdoor Air Drybulb Temperature", "Timestep"],
        *(["Output:Variable", room, "Zone Mean Air Temperature", "Timestep"] for room in rooms),
        *(["Output:Meter", meter, "Timestep"] for meter in METERS),
    ]


def restart_schedule(fields: Object, hour: int, factor: float = 1.0) -> Object:
    """A Schedule:Compact whose working days begin at another hour, with values times a factor; design days stay."""
    blocks: list[list[str]] = []
    for field in fields[4:]:
        if field.lower().startswith("for"):
            blocks.append([field])
        else:
            blocks[-1].append(field)
    made = [*fields[:2], "Any Number", fields[3]]
    for kinds, *rest in blocks:
        names = kinds.replace("For:", "").split()
        design = [name for name in names if name.endswith("DesignDay")]
        other = [name for name in names if name not in design]
        times, values = rest[::2], [repr(factor * float(value)) for value in rest[1::2]]
        if "Weekdays" in names:
            times = [f"Until: {hour:02}:00" if time == MORNING else time for time in times]
        pairs = [pair for pair in zip(times, values, strict=True) if pair[0] != "Until: 00:00"]
        made += [f"For: {' '.join(design)}", *rest] if design else []
        made += [f"For: {' '.join(other)}", *chain(*pairs)] if other else []
    return made


def read_winter(report: str) -> Winter:
    """The working days of what EnergyPlus reports (eplusout.eso): names of columns, then a line for each number."""
    head, _, body = report.partition("End of Data Dictionary")
    names = {line.split(",", 1)[0]: line for line in head.splitlines() if "!" in line}
    columns: dict[str, list[float]] = {number: [] for number in names}
    kinds = []
    for line in body.splitlines():
        number, _, rest = line.partition(",")
        if number in columns:
            columns[number].append(float(rest.partition(",")[0]))
        elif number == "2":  # a quarter of an hour
            kinds.append(rest.rpartition(",")[2].strip())
    rooms, outdoors, energy = (
        np.stack([np.reshape(own, (-1, HOURS, QUARTERS)) for number, own in columns.items() if word in names[number]])
        for word in ("Zone Mean Air Temperature", "Outdoor Air Drybulb", "[J]")
    )  # [columns, days, 24, 4]
    used = energy.sum(axis=(0, 3)) / JOULES
    there = np.isin(np.arange(HOURS), np.arange(*OCCUPIED))
    after = np.stack([rooms[..., -1].min(axis=0), outdoors[0, ..., -1], used], axis=-1)  # [days, 24, 3]
    before = np.concatenate([np.full_like(after[:1, -1:], np.nan), after[:-1, -1:]])  # the last hour of the day before
    working = np.isin(kinds[:: HOURS * QUARTERS], WORKING) & np.isfinite(before[:, 0, 0])
    cold = (rooms < TOO_COLD).mean(axis=(0, 3)) * there
    return Winter(np.concatenate([before, after], axis=1)[working], cold[working])


@cache
def building_digest() -> str:
    """SHA-256 of what EnergyPlus is given, but for comments."""
    building, weather = _files()
    told = [read_objects(building.read_text("latin-1")), weather.read_text("latin-1")]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def numbers() -> dict[str, ArrayLike]:
    """All constants of this file by name, of which digests are made."""
    return {"HEATED": (WARM, SET_BACK), "TOO_COLD": TOO_COLD, "OCCUPIED": OCCUPIED, "EVENING": EVENING}


@cache
def _files() -> tuple[Path, Path]:
    """The building's and the weather's, in the package."""
    try:
        done = _run_python(_WHERE.format(BUILDING, WEATHER))
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1] if done.returncode else ""
    except OSError as error:
        why = str(error)
    if why:
        raise InvalidInput(
            f"pyenergyplus-lbnl must be installed for buildings: {INSTALL}, or {PYTHON} name a Python that has it, "
            f"got {_python()}: {why}"
        )
    building, weather = json.loads(done.stdout)
    return Path(building), Path(weather)


def _run_python(code: str, *arguments: str, cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([_python(), "-c", code, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def _python() -> str:
    return os.environ.get(PYTHON, sys.executable)


def _complaint(folder: Path) -> str:
    """The first error that EnergyPlus wrote down."""
    report = folder / "eplusout.err"
    lines = report.read_text("latin-1").splitlines() if report.exists() else []
    return next((line.strip() for line in lines if "Severe" in line or "Fatal" in line), "no reason given")
