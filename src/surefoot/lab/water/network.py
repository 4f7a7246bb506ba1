"""A town's pipes, pumps and tanks in EPANET 2.2, hour by hour, through the library that wntr brings along.

Between two events EPANET takes flows to be constant, so that levels of tanks are straight lines: what is told here of
an hour, its energy and how long a reserve was touched, is exact for what EPANET computes.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.errors import InvalidInput

INSTALL = "pip install 'surefoot[water]'"
LIBRARY = "SUREFOOT_EPANET"  # names a file with EPANET 2.2, where wntr brings none for the processor
HOUR, DAY = 3600, 24 * 3600
COARSE, THIN = "-coarse", 12 * 0.0254  # m: pipes that a coarse network may do without

# The toolkit's numbers, by the names that they have there.
NODECOUNT, LINKCOUNT, CONTROLCOUNT = 0, 2, 5
JUNCTION, TANK = 0, 2
PIPES, PUMP = (0, 1), 2
ELEVATION, TANKLEVEL, HEAD, MINLEVEL, MAXLEVEL = 0, 8, 10, 20, 21
ROUGHNESS, STATUS, SETTING, ENERGY = 2, 11, 12, 13
DURATION, HYDSTEP = 0, 1
FIRST_ERROR = 100  # codes below are warnings
INITFLOW = 10  # a day starts from the same flows whatever was simulated before, and nothing is saved


@dataclass(frozen=True)
class Hour:
    """What an hour took and left.

    Attributes:
        fill: [T] of the tanks at its end, 0 at the lowest level allowed and 1 at the highest.
        energy: kWh of the pumps.
        below: share of the hour in which any tank held less than the reserve.
    """

    fill: Floats
    energy: float
    below: float


def open_network(name: str) -> Network:
    """A network of wntr's own library, opened once in every process."""
    return _open(name, os.getpid())


@cache
def _open(name: str, process: int) -> Network:
    return Network(network_file(name))


class Network:
    """An open project of EPANET, simulated a day at a time.

    Attributes:
        demand: [J] as in the file; a junction has one for each kind of use.
    """

    def __init__(self, file: Path) -> None:
        self._library, self._project = _epanet(), ctypes.c_void_p()
        self._library.EN_createproject(ctypes.byref(self._project))
        self._call("EN_open", str(file).encode(), os.devnull.encode(), b"")
        self._call("EN_setstatusreport", 0)
        self._call("EN_settimeparam", DURATION, ctypes.c_long(DAY))
        self._call("EN_settimeparam", HYDSTEP, ctypes.c_long(HOUR))
        nodes, links = self._kinds("EN_getnodetype", NODECOUNT), self._kinds("EN_getlinktype", LINKCOUNT)
        junctions = [node for node, kind in nodes.items() if kind == JUNCTION]
        self._uses = [(node, use) for node in junctions for use in range(1, self._count_uses(node) + 1)]
        self._tanks = [node for node, kind in nodes.items() if kind == TANK]
        self._pumps = [link for link, kind in links.items() if kind == PUMP]
        self._pipes = [link for link, kind in links.items() if kind in PIPES]
        self._starting = [number for number in range(1, self._count(CONTROLCOUNT) + 1) if self._starts_pump(number)]
        self.demand = np.array([self._value("EN_getbasedemand", *use) for use in self._uses])
        self._roughness = np.array([self._link(pipe, ROUGHNESS) for pipe in self._pipes])
        self._lowest = self._nodes(self._tanks, MINLEVEL)
        self._height = self._nodes(self._tanks, MAXLEVEL) - self._lowest
        self._bottom = self._nodes(self._tanks, ELEVATION) + self._lowest
        self._speed: float | None = None  # not yet told on this day
        self._call("EN_openH")

    @property
    def tanks(self) -> int:
        return len(self._tanks)

    def set_roughness(self, factor: float) -> None:
        """Hazen-Williams coefficients of all pipes, as in the file times a factor."""
        self._set("EN_setlinkvalue", [(pipe, ROUGHNESS) for pipe in self._pipes], factor * self._roughness)

    def begin_day(self, demand: Floats, fill: Floats) -> None:
        """Midnight: the demand [J] where the pattern of its day is 1, and how full tanks [T] are."""
        self._set("EN_setbasedemand", self._uses, demand)
        self._set("EN_setnodevalue", [(tank, TANKLEVEL) for tank in self._tanks], self._lowest + fill * self._height)
        self._call("EN_initH", INITFLOW)
        self._fill, self._speed = fill, None

    def advance(self, speed: float, reserve: float) -> Hour:
        """An hour in which pumps that run do so at that speed, 1 being that of their curves."""
        if speed != self._speed:
            self._set_speed(speed)
        seconds, energy, below = 0, 0.0, 0.0
        now, step = ctypes.c_long(), ctypes.c_long()
        while seconds < HOUR:
            self._call("EN_runH", ctypes.byref(now))
            power = sum(self._link(pump, ENERGY) for pump in self._pumps)
            self._call("EN_nextH", ctypes.byref(step))
            before, self._fill = self._fill, (self._nodes(self._tanks, HEAD) - self._bottom) / self._height
            energy += power * step.value
            below += time_below(before, self._fill, reserve) * step.value
            seconds += step.value
        return Hour(self._fill, energy / HOUR, below / HOUR)

    def _set_speed(self, speed: float) -> None:
        """Of pumps that run, and in the controls that start one: EPANET would start it at 1."""
        for pump in self._pumps:
            if self._link(pump, STATUS):
                self._call("EN_setlinkvalue", pump, SETTING, ctypes.c_double(speed))
        for number in self._starting:
            kind, link, _, node, level = self._control(number)
            self._call("EN_setcontrol", number, kind, link, ctypes.c_double(speed), node, level)
        self._speed = speed

    def _starts_pump(self, number: int) -> bool:
        _, link, setting, *_ = self._control(number)
        return link.value in self._pumps and setting.value > 0

    def _control(self, number: int) -> tuple[Any, Any, Any, Any, Any]:
        """Kind, link, setting, node and level, as numbers of C."""
        kinds = (ctypes.c_int, ctypes.c_int, ctypes.c_double, ctypes.c_int, ctypes.c_double)
        kind, link, setting, node, level = (each() for each in kinds)
        self._call("EN_getcontrol", number, *map(ctypes.byref, (kind, link, setting, node, level)))
        return kind, link, setting, node, level

    def _kinds(self, function: str, count: int) -> dict[int, int]:
        found, kind = {}, ctypes.c_int()
        for index in range(1, self._count(count) + 1):
            self._call(function, index, ctypes.byref(kind))
            found[index] = kind.value
        return found

    def _count(self, what: int) -> int:
        count = ctypes.c_int()
        self._call("EN_getcount", what, ctypes.byref(count))
        return count.value

    def _count_uses(self, junction: int) -> int:
        count = ctypes.c_int()
        self._call("EN_getnumdemands", junction, ctypes.byref(count))
        return count.value

    def _nodes(self, nodes: list[int], code: int) -> Floats:
        return np.array([self._value("EN_getnodevalue", node, code) for node in nodes])

    def _link(self, link: int, code: int) -> float:
        return self._value("EN_getlinkvalue", link, code)

    def _value(self, function: str, index: int, code: int) -> float:
        value = ctypes.c_double()
        self._call(function, index, code, ctypes.byref(value))
        return value.value

    def _set(self, function: str, places: Sequence[tuple[int, int]], values: Floats) -> None:
        for place, value in zip(places, values.tolist(), strict=True):
            self._call(function, *place, ctypes.c_double(value))

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(self._project, *arguments)
        if code >= FIRST_ERROR:
            raise InvalidInput(f"the network and its day must be such that EPANET runs, got its error {code}")


# ------------------------------------------------------------------------------------------------- parts, in call order


def time_below(before: Floats, after: Floats, reserve: float) -> float:
    """The share of the time in which any of some levels [T], straight lines, is below the reserve."""
    low, high = np.minimum(before, after), np.maximum(before, after)
    if low.min() >= reserve:
        return 0.0
    share = np.where(high > low, (reserve - low) / np.where(high > low, high - low, 1.0), low < reserve).clip(0.0, 1.0)
    falls = after < before
    return float(min(1.0, share[falls].max(initial=0.0) + share[~falls].max(initial=0.0)))


def network_digest(name: str) -> str:
    """SHA-256 of the file of a network, but for its comments."""
    lines = (line.partition(";")[0].split() for line in network_file(name).read_text("latin-1").splitlines())
    return hashlib.sha256(json.dumps([line for line in lines if line]).encode()).hexdigest()


@cache
def network_file(name: str) -> Path:
    """That of wntr's library; of NAME-coarse one made of it, which lasts as long as the process."""
    library = _wntr().library.model_library
    if name.endswith(COARSE):
        return _write_coarse(library.get_model(name.removesuffix(COARSE)))
    if name not in library.model_name_list:
        raise InvalidInput(f"network must be one of {', '.join(library.model_name_list)}, got {name!r}")
    return Path(library.get_filepath(name))


def _write_coarse(model: Any) -> Path:
    """Without branches of thin pipes, and with those in series or parallel merged; their demand moves along."""
    wntr, folder = _wntr(), Path(tempfile.mkdtemp(prefix="surefoot-water-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _epanet()
    with contextlib.chdir(folder):  # where wntr leaves files of its own
        coarse = wntr.morph.skeletonize(model, THIN)
        wntr.network.write_inpfile(coarse, "coarse.inp", units="GPM")
    return folder / "coarse.inp"


def _epanet() -> Any:
    """The library, as wntr loads it."""
    toolkit = _wntr().epanet.toolkit
    if LIBRARY in os.environ:
        toolkit.libepanet = os.environ[LIBRARY]
    try:
        return toolkit.ENepanet().ENlib
    except OSError as error:
        raise InvalidInput(
            f"{LIBRARY} must name a file with EPANET 2.2 for this machine, for which wntr brings none that loads, "
            f"got {os.environ.get(LIBRARY)!r}: {error}"
        ) from None


def _wntr() -> Any:
    try:
        import wntr
    except ImportError as error:
        raise InvalidInput(f"wntr must be installed for networks of EPANET: {INSTALL} ({error})") from None
    return wntr
