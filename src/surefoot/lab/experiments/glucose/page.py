"""The report on the insulin pump, made from results.json alone, for readers from outside the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surefoot.lab.experiments.frame import Report, Results
from surefoot.lab.experiments.glucose.elimination import ELIMINATION
from surefoot.lab.experiments.glucose.figure import gain_over_days, patients_over_days
from surefoot.lab.experiments.glucose.measures import LEAST_GAIN
from surefoot.lab.experiments.glucose.settings import ADAPTING, CELLS, EPISODES, REFERENCE
from surefoot.lab.experiments.glucose.tables import (
    information_table,
    methods_table,
    percent,
    risks_table,
    safety_table,
)
from surefoot.report import verdict
from surefoot.report.figures import png, svg
from surefoot.report.page import Page, Section, versions
from surefoot.report.table import Table
from surefoot.report.verdict import Answer, Verdict

DISCLAIMER = (
    "This is a simulation and no medical device. The patients are equations; nothing here says what any person should "
    "be given."
)


def glucose_page(results: Results) -> Report:
    """What it is about, patients over days, all methods, and what bounds them."""
    settings, methods = results["settings"], results["methods"]
    drawn = [name for name in (REFERENCE, ELIMINATION.name, ADAPTING) if name in methods] or list(methods)[:3]
    figures = {
        "patients.png": patients_over_days(results["shown"], results["policies"], drawn),
        "gain.png": gain_over_days(methods, results["cell_known"]),
    }
    page = Page(
        title="The insulin pump of a new patient",
        verdict=_verdict(results),
        lead=f"{DISCLAIMER} {_LEAD}",
        facts=(
            ("patients", str(settings["patients"])),
            ("days per patient", str(settings["days"])),
            ("risk", f"{settings['risk']:g}"),
            ("bounds", _bounds(results)),
            *(("first look", text) for text in _coarse(settings)),
            ("seed", str(settings["seed"])),
            ("time", f"{results['seconds']:.0f} s"),
            ("versions", ", ".join(f"{name} {version}" for name, version in versions())),
        ),
        sections=(
            _patients(results, svg(figures["patients.png"])),
            _all_methods(results, svg(figures["gain.png"])),
            _safety(results),
            *_limits(results),
            _about(settings),
        ),
        command=_command(settings),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {name: png(figure) for name, figure in figures.items()})


def tables(results: Results) -> dict[str, Table]:
    return {"Methods": methods_table(results), "Safety": safety_table(results)}


# ---------------------------------------------------------------------------------------------------------------- words


_LEAD = (
    "A new patient’s body is unknown to the pump. Settings that are safe for everybody give too little insulin to "
    "most; settings that suit one patient put another dangerously low. The pump may try other settings only once the "
    "days it has seen prove, up to a risk chosen beforehand, that these keep the time below 70 mg/dl within 4 % of "
    "the day."
)


def _verdict(results: Results) -> Verdict:
    settings, methods = results["settings"], results["methods"]
    found = methods.get(ADAPTING)
    days = f"over the first {settings['days']} days"
    worth = "" if found is None else f"‘{ADAPTING}’ had {percent(found['share'])} of the possible gain {days}, and "
    words = worth + verdict.in_words(methods, "patients")
    return Verdict(
        f"In simulation {words}.",
        (
            Answer(
                "Gained",
                "nothing" if found is None else percent(found["share"]),
                f"of the time in range that is safely possible, {days}{_soon(found)}",
            ),
            verdict.safety(methods),
            verdict.sureness(methods, settings["risk"], "patients"),
            verdict.elapsed_time(results["seconds"], f"{len(methods)} methods on {settings['patients']} patients"),
        ),
    )


def _soon(found: Mapping[str, Any] | None) -> str:
    if found is None or found["median_days"] is None:
        return ""
    return f"; half of the patients had 90 % of it by day {found['median_days']:.0f}"


def _about(settings: Mapping[str, Any]) -> Section:
    return Section(
        "What is simulated",
        paragraphs=(
            "An adult with type 1 diabetes wears a pump and a glucose sensor. A day is 288 readings, one every five "
            "minutes. Good is time in range, the share of readings within 70–180 mg/dl. Dangerous is time below range, "
            "the share below 70 mg/dl: the international consensus asks for less than 4 % of the day. Meals come at "
            "random times and sizes, carbohydrates are counted wrongly, the sensor is noisy, and the body itself "
            "varies from day to day.",
            "What differs between patients, and nobody tells the pump, is how sensitive they are to insulin (a factor "
            f"of four between the extremes) and how fast they absorb it. There are {settings['candidates'] + 1} "
            "settings to choose from: one that is safe for everybody, and one made for each of "
            f"{settings['candidates']} patients from most to least sensitive. Each day’s settings are drawn from a "
            "mixture; time in and below range are those of the mixture.",
            "Model and assumptions: docs/glucose.md. Days are independent of each other there, which those of people "
            "are not quite.",
        ),
    )


def _patients(results: Results, figure: bytes) -> Section:
    return Section(
        "Three patients over days",
        figure=figure,
        caption=(
            "Top: expected time in range of the settings in use on each day; dotted, the most that any mixture of the "
            "settings reaches within 4 % below range on this very patient. Middle: time below range against the 4 %. "
            f"Bottom: which settings ‘{ADAPTING}’ uses, from the safe ones (grey) to the strongest. ‘{REFERENCE}’ "
            f"never adapts; ‘{ELIMINATION.name}’ adapts without a certificate: it tries settings outright, the most "
            "promising first, until the days contradict what they promise. All lines are true values of what was "
            "deployed, not of single days."
        ),
    )


def _all_methods(results: Results, figure: bytes) -> Section:
    methods, counted = results["methods"], next(iter(results["methods"].values()))["counted"]
    patients = results["settings"]["patients"]
    return Section(
        "All methods, all patients",
        paragraphs=(
            "The gain is time in range beyond that of the settings that are safe for everybody. What is possible is "
            "the best mixture of the settings for each very patient, within 4 % below range; nobody knows it before.",
        ),
        figure=figure,
        caption=(
            "Share of the possible gain on each day: sums over all patients. A day counts at most what is safely "
            "possible; methods without a certificate buy some of theirs with time below range. ‘The cell known’: what "
            "the bounds would allow if it were known from the first day which patients this one is like."
        ),
        table=methods_table(results),
        notes=(
            f"Days until 90 %: of the {counted} of {patients} patients who have at least {100 * LEAST_GAIN:g} points "
            "of time in range to gain; those who never got there count as later than the last day. "
            + " ".join(
                f"{name}: {methods[name]['reached']} of {methods[name]['counted']} got there." for name in methods
            ),
            *(f"{name} was not run: {reason}." for name, reason in results["refused"].items() if name in methods),
        ),
    )


def _safety(results: Results) -> Section:
    settings, errors = results["settings"], results["errors"]
    return Section(
        "Who was ever below range for more than 4 % of the day",
        paragraphs=(
            "A patient is unsafe if on any day the mixture in use has an expected time below range above 4 %, however "
            f"slightly. The certified methods promise that this happens to at most {percent(settings['risk'])} of "
            "patients.",
        ),
        table=safety_table(results),
        notes=(
            f"Values are means over fresh days, {errors['days']:,} in all, {settings['judged_days']:,} to "
            f"{errors['most_days']:,} per patient and settings: most where a mixture in use is close to 4 %. Largest "
            f"standard error of a time below range between 3 and 5 %: {100 * errors['below_near_budget']:.3f} points; "
            f"of a time in range: {100 * errors['in_range']:.2f} points. Unsafe and safe are said at three standard "
            "errors; in between a patient is undecided.",
        ),
    )


def _limits(results: Results) -> tuple[Section, ...]:
    settings, told = results["settings"], results["information"]
    few = min(settings["compared_patients"], settings["patients"])
    refused = [f"{name} was not run: {why}." for name, why in results["refused"].items()]
    risk = Section(
        "What bounds it: the price of the risk",
        paragraphs=(
            "Before other settings are used, every kind of patient whom they would harm must be ruled out with odds of "
            "one over the risk. Evidence grows in proportion to the days, so halving the risk costs a constant number "
            f"of days. ‘{ADAPTING}’ at several risks, on the first {few} patients. Of every risk the probability "
            f"{results['bounds']['uncovered']:.3g} is already spent on patients whom the bounds may not hold for.",
        ),
        table=risks_table(results),
        notes=tuple(refused),
    )
    day = Section(
        "What bounds it: what a day says",
        paragraphs=(
            "How well one day tells the sensitivity to insulin: the standard error of its logarithm, from the two "
            "numbers of the day (time in and below range) and from the signals that were learned in simulation to be "
            f"read from all its readings. The body’s own sensitivity varies by {told['day_to_day']:g} from day to day, "
            "and within the day as well: about that much stays open after one day whatever is read from it. After n "
            "days the error is smaller by √n. An error of 0.7 is a factor of two.",
        ),
        table=information_table(results),
        notes=(
            f"Linear Fisher information at absorption in 55 minutes, which is taken for known; {told['days']:,} days "
            "on either side. The settings of a row are those in the set made for the patient who is most like it.",
        ),
    )
    return (risk, day) if results["risks"] else (day,)


def _bounds(results: Results) -> str:
    settings, bounds = results["settings"], results["bounds"]
    return (
        f"{bounds['cells']} cells, {settings['holdout']} held-out patients, {settings['episodes']} days on average per "
        f"patient and settings; {bounds['uncovered']:.2g} uncovered"
    )


def _coarse(settings: Mapping[str, Any]) -> tuple[str, ...]:
    if (settings["cells"], settings["episodes"]) == (CELLS, EPISODES):
        return ()
    return (
        f"Made with coarser bounds than usual ({settings['cells']} cells and {settings['episodes']} days instead of "
        f"{CELLS} and {EPISODES}): a first look, at which the certified methods do worse than they can.",
    )


def _command(settings: Mapping[str, Any]) -> str:
    return (
        f"surefoot reproduce glucose --patients {settings['patients']} --days {settings['days']} \\\n"
        f"  --methods {','.join(settings['methods'])} \\\n"
        f"  --risk {settings['risk']:g} --seed {settings['seed']} --out DIR"
    )
