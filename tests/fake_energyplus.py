"""A package pyenergyplus with a house of two rooms and a line of physics, for what surrounds EnergyPlus.

It reads and writes files as EnergyPlus does, as far as anything here looks at them.
"""

from __future__ import annotations

from pathlib import Path

BUILDING = """! a house
Version, 25.2;
SimulationControl, Yes, Yes, Yes, Yes, No;
Timestep, 6;   ! finer than here
RunPeriod, Annual, 1, 1, , 12, 31, , Sunday, No, No, No, Yes, Yes;
Sizing:System, loop, Sensible, {thirty} , HeatingDesignCapacity, autosize, , , VAV;
ZoneControl:Thermostat, first, Hall, any;
ZoneControl:Thermostat, second, Loft, any;
Schedule:Compact, HTGSETP_SCH, Temperature, Through: 12/31, For: Weekdays, Until: 06:00, 15.6, Until: 22:00, 21.0,
  Until: 24:00, 15.6, For: WinterDesignDay, Until: 24:00, 21.0, For: AllOtherDays, Until: 24:00, 15.6;
Schedule:Compact, HVACOperationSchd, On/Off, Through: 12/31, For: Weekdays SummerDesignDay, Until: 06:00, 0.0,
  Until: 22:00, 1.0, Until: 24:00, 0.0, For: AllOtherDays, Until: 24:00, 0.0;
Schedule:Compact, INFIL_QUARTER_ON_SCH, Fraction, Through: 12/31, For: Weekdays SummerDesignDay, Until: 06:00, 1.0,
  Until: 22:00, 0.25, Until: 24:00, 1.0, For: Sunday Holidays AllOtherDays, Until: 24:00, 1.0;
Output:Meter, Electricity:Facility, Hourly;
UtilityCost:Tariff, dear;
""".format(thirty=", ".join(["x"] * 30))

DATASET = """from pathlib import Path
here = Path(__file__).parent
ref_models = {"small_office": str(here / "house.idf")}
weather_files = {"usa_il_chicago": str(here / "sky.epw")}
"""

API = """from pathlib import Path
DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")

class EnergyPlusAPI:
    def __init__(self):
        self.state_manager = self.runtime = self

    def new_state(self):
        return 0

    def set_console_output_status(self, state, shown):
        pass

    def run_energyplus(self, state, arguments):
        folder, file = Path(arguments[3]), Path(arguments[4])
        objects = [[field.strip() for field in each.split(",")] for each in file.read_text().split(";")]
        last = next(each for each in objects if each[0] == "RunPeriod")
        days = (0, 31, 59)[int(last[5]) - 1] + int(last[6])
        capacity = float(next(each for each in objects if each[0] == "Sizing:System")[36])
        if capacity > 9:
            (folder / "eplusout.err").write_text("   ** Severe  ** capacity is out of reach\\n")
            return 1
        heat, air = ([each for each in objects if name in each][0] for name in ("HTGSETP_SCH", "INFIL_QUARTER_ON_SCH"))
        _, until, setpoint = heat[heat.index("For: Weekdays") :][:3]
        hour, leaks = int(until[7:9]) if setpoint == "15.6" else 0, float(air[-1])
        wanted = [each[1:3] for each in objects if each[0] in ("Output:Variable", "Output:Meter")]
        lines = ["Program Version,none", "1,5,Environment Title[],Latitude[deg]", "2,8,Day of Simulation[],DayType"]
        lines += [f"{k + 7},1,{','.join(each)} !TimeStep" for k, each in enumerate(wanted)]
        lines = [line.replace(",Timestep", " [J]") for line in lines]
        lines += ["End of Data Dictionary", "1,WINTER, 41.98"]
        room = 15.6
        for day in range(days):
            kind, outdoors = DAYS[day % 7], -4.0 - 8.0 * (day % 5 == 1)
            for step in range(96):
                warm = kind not in ("Saturday", "Sunday") and hour <= step // 4 < 22
                power = min(40.0 * capacity, max(0.0, 20.0 * ((21.0 if warm else 15.6) - room)))  # kW
                room += 0.1 * power - 0.01 * (1 + leaks) * (room - outdoors)
                lines.append(f"2,{day + 1}, 1,{day % 31 + 1:2d}, 0,{step // 4 + 1:2d},0.00,15.00,{kind}")
                now = {"Hall": room, "Loft": room + 1.0, "*": outdoors, "Heating:NaturalGas": 9e5 * power}
                lines += [f"{k + 7},{now.get(key, 0.0)!r}" for k, (key, _) in enumerate(wanted)]
        (folder / "eplusout.eso").write_text("\\n".join([*lines, "End of Data", ""]))
        return 0
"""


def write_package(folder: Path) -> None:
    """To be put on the path of a Python."""
    package = folder / "pyenergyplus"
    package.mkdir()
    for name, text in (("__init__.py", ""), ("dataset.py", DATASET), ("api.py", API), ("house.idf", BUILDING)):
        (package / name).write_text(text)
    (package / "sky.epw").write_text("LOCATION,Nowhere\n")
