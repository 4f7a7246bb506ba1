"""The thirty patients of the package simglucose: their parameters, read from its files where it is installed.

Only files are read. The package itself is not imported: it would ask for an old Gym, and for pandas.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from surefoot.errors import InvalidInput, did_you_mean

FOLDER = "params"


@dataclass(frozen=True)
class Patient:
    """A row of the package's table by its own names, which are those of the model's papers, and how this body differs
    from it.

    Attributes:
        action: how many units of insulin one unit is worth to this body, relative to the row.
        absorption: how fast insulin leaves the skin, relative to the row.
    """

    Name: str
    BW: float  # kg
    kabs: float
    kmax: float
    kmin: float
    b: float
    d: float
    f: float
    Vg: float
    Vi: float
    Ib: float
    Vmx: float
    Vm0: float
    Km0: float
    k1: float
    k2: float
    kp1: float
    kp2: float
    kp3: float
    ki: float
    p2u: float
    m1: float
    m2: float
    m4: float
    m30: float
    ke1: float
    ke2: float
    Fsnc: float
    kd: float
    ka1: float
    ka2: float
    ksc: float
    action: float = 1.0
    absorption: float = 1.0

    @property
    def meal_size(self) -> float:
        """Of meals, relative to those of the package, which are an adult's whoever eats them."""
        return CHILDS_MEAL if self.Name.startswith("child") else 1.0


CHILDS_MEAL = 0.6


@cache
def patients() -> tuple[Patient, ...]:
    """All thirty, from the one who needs least insulin per kg to the one who needs most, as the package's own table of
    daily doses has it: patients with neighbouring numbers are as alike as thirty patients can be."""
    rows = {row["Name"]: row for row in read_table("vpatient_params.csv")}
    daily = {row["Name"]: float(row["TDI"]) for row in read_table("Quest.csv")}
    need = {name: daily[name] / float(row["BW"]) for name, row in rows.items()}
    return tuple(_patient(rows[name]) for name in sorted(rows, key=need.__getitem__))


def number_of(name: str) -> int:
    """The place of a patient in that order."""
    names = [each.Name for each in patients()]
    if name not in names:
        raise InvalidInput(
            f"patient must be one of adult#001 to adult#010, adolescent#001 to adolescent#010 and child#001 to "
            f"child#010, got {name!r}" + did_you_mean(name, names)
        )
    return names.index(name)


@cache
def sensor() -> Mapping[str, float]:
    """The package's sensor with a reading every five minutes."""
    (row,) = (row for row in read_table("sensor_params.csv") if row["Name"] == "GuardianRT")
    return MappingProxyType({name: float(value) for name, value in row.items() if name != "Name"})


def read_table(file: str) -> list[dict[str, str]]:
    with (package_folder() / FOLDER / file).open(newline="") as lines:
        return list(csv.DictReader(lines))


def package_folder() -> Path:
    package = find_spec("simglucose")
    if package is None or package.origin is None:
        raise InvalidInput(
            "patients of simglucose need the package: pip install 'surefoot[glucose]', or beside surefoot[gym] or "
            "surefoot[control], whose Gymnasium it refuses, pip install --no-deps simglucose==0.2.11; got none"
        )
    return Path(package.origin).parent


def _patient(row: Mapping[str, str]) -> Patient:
    numbers = {each.name: float(row[each.name]) for each in fields(Patient)[1:] if each.name in row}
    return Patient(row["Name"], **numbers)
