"""What the report on the insulin pump says of the patients, by the simulator that they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.lab.experiments.glucose.settings import HOVORKA, SIMGLUCOSE
from surefoot.report.page import Section


def about(settings: Mapping[str, Any]) -> Section:
    if settings.get("simulator", HOVORKA) == SIMGLUCOSE:
        return Section("What is simulated", paragraphs=(_SIMGLUCOSE_DAY, *_simglucose_patients(settings)))
    return Section("What is simulated", paragraphs=(_HOVORKA_DAY, *_hovorka_patients(settings)))


def naming(policies: Sequence[str]) -> str:
    """What settings are named by."""
    return "its doses over the usual ones" if policies[-1].startswith("gain") else "the patient it was made for"


def absorption(settings: Mapping[str, Any]) -> str:
    own = settings.get("simulator", HOVORKA) == SIMGLUCOSE
    return "the patient’s own absorption" if own else "absorption in 55 minutes"


def whose_settings(settings: Mapping[str, Any]) -> str:
    """Those of a row of the table about what a day says."""
    if settings.get("simulator", HOVORKA) == SIMGLUCOSE:
        return "The settings of a row are the safe ones, and those in the middle of the set."
    return "The settings of a row are those in the set made for the patient who is most like it."


def what_is_known(day_to_day: float) -> str:
    if not day_to_day:
        return ""
    return (
        f"The body’s own sensitivity varies by {day_to_day:g} from day to day, and within the day as well: about that "
        "much stays open after one day whatever is read from it. "
    )


_HOVORKA_DAY = (
    "An adult with type 1 diabetes wears a pump and a glucose sensor. A day is 288 readings, one every five minutes. "
    "Good is time in range, the share of readings within 70–180 mg/dl. Dangerous is time below range, the share below "
    "70 mg/dl: the international consensus asks for less than 4 % of the day. Meals come at random times and sizes, "
    "carbohydrates are counted wrongly, the sensor is noisy, and the body itself varies from day to day."
)


def _hovorka_patients(settings: Mapping[str, Any]) -> tuple[str, str]:
    return (
        "What differs between patients, and nobody tells the pump, is how sensitive they are to insulin (a factor of "
        f"four between the extremes) and how fast they absorb it. There are {settings['candidates'] + 1} settings to "
        f"choose from: one that is safe for everybody, and one made for each of {settings['candidates']} patients from "
        "most to least sensitive. Each day’s settings are drawn from a mixture; time in and below range are those of "
        "the mixture.",
        "Model and assumptions: docs/glucose.md. Days are independent of each other there, which those of people are "
        "not quite.",
    )


_SIMGLUCOSE_DAY = (
    "The equations, patients, meals and sensor of the package simglucose 0.2.11, an independent open version of the "
    "UVA/Padova simulator of 2008. A day is 288 readings, one every five minutes. Good is time in range, the share of "
    "readings within 70–180 mg/dl. Dangerous is time below range, the share below 70 mg/dl: the international "
    "consensus asks for less than 4 % of the day."
)


def _simglucose_patients(settings: Mapping[str, Any]) -> tuple[str, ...]:
    left_out, trained_on = settings.get("left_out"), settings.get("trained_on")
    number = "29" if left_out else "30"
    patients = (
        f"Thirty patients are no distribution. A patient is one of {number} of them, drawn at random, to whom insulin "
        "is worth more or less by a log-normal factor, and whose skin absorbs it faster or slower by another. The pump "
        f"knows the weight and none of this. There are {settings['candidates'] + 1} settings to choose from."
    )
    shift = f"Fresh patients are around {left_out}, who is none of these: no promise is about them." if left_out else ""
    transfer = (
        "Settings, signals and bounds were made on our own model of Hovorka et al. (docs/glucose.md). What is proved "
        "of them there says nothing here, and methods that rest on it have no certificate on this page; the "
        "calibration was counted on patients of simglucose, and its promise rests on these alone."
        if trained_on == HOVORKA
        else ""
    )
    ending = "Model and assumptions: docs/simglucose.md. Days are independent, which those of people are not quite."
    return tuple(text for text in (patients, shift, transfer, ending) if text)
