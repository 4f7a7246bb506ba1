"""The page of a calibration: what it counts, by hand, and that it says what everything rests on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from surefoot.calibration_runs import Outcome, TaskOutcomes
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.learning.calibrated import Calibration
from surefoot.report import binomial_interval, calibration_page
from surefoot.report.calibration import (
    characteristics,
    characteristics_table,
    parts_by_parameter,
    settings_figure,
    settings_table,
)

RUNS = 120


def outcome(unsafe: bool, gain: float, reached: int | None) -> Outcome:
    return Outcome(unsafe, gain, reached)


def row(n: int, settings: int = 2) -> TaskOutcomes:
    """Two parameters, of which the second has two values; a third of the tasks is as cheap as can be."""
    cautious = outcome(n % 60 == 0, 1.0, 10 if n % 3 else None)
    bold = outcome(n % 4 == 0, 1.5, 5)
    return TaskOutcomes((n / RUNS, float(n % 2)), 2.0 if n % 3 else 0.0, (cautious, bold)[:settings])


ROWS = [row(n, 2 if n < 100 else 1) for n in range(RUNS)]
SETTINGS: tuple[Any, ...] = ({"level": 0.3, "slack": 0.1}, {"level": 0.5, "slack": 0.1})


def found(settings: tuple[Any, ...] = SETTINGS, **changes: Any) -> Calibration:
    bold = tuple(n for n in range(100) if n % 4 == 0)
    given: dict[str, Any] = {
        **{"error": 0.0, "level": settings[0], "runs": RUNS, "horizon": 20, "digest": "d" * 64, "attempt": 2},
        **{"counts": ((settings[0], 2), (settings[1], 25)), "unsafe_runs": ((0, 60), bold), "gains": (1.0, 1.5)},
        **{"seed": 7, "tasks": "rooms (size 3), digest " + "e" * 64, "judge_error": 0.02, "judged_on": 900},
        **{"abandoned": 0.05, "reserve": 0.01},
    }
    return Calibration("certified-returns", 40, 0.2, **{**given, **changes})


def test_what_is_counted_of_some_runs() -> None:
    seen = characteristics(ROWS, 0)
    assert (seen.tasks, seen.unsafe, seen.gain) == (RUNS, 2, 1.0)
    assert seen.possible == pytest.approx(4 / 3)
    assert seen.share == pytest.approx(0.75)
    assert seen.wait == 10, "of tasks on which anything can be gained"
    bold = characteristics(ROWS, 1)
    assert (bold.tasks, bold.unsafe, bold.wait) == (100, 25, 5), "as far as it was run"
    slow = [replace(each, outcomes=(outcome(False, 0.0, None),)) for each in ROWS]
    assert characteristics(slow, 0).wait == float("inf")


def test_parts_are_about_equal_and_together_all_tasks() -> None:
    parts = dict(parts_by_parameter(ROWS))
    first = {words: part for words, part in parts.items() if words.startswith("parameter 1: ")}
    assert [len(part) for part in first.values()] == [40, 40, 40]
    assert next(iter(first)) == "parameter 1: 0 to 0.325"
    second = {words: part for words, part in parts.items() if words.startswith("parameter 2: ")}
    assert {words: len(part) for words, part in second.items()} == {"parameter 2: 0": 60, "parameter 2: 1": 60}
    assert [each for part in first.values() for each in part] == ROWS


def test_the_table_of_operating_characteristics() -> None:
    table = characteristics_table(found(), ROWS, 0)
    assert table.headers[1:] == (
        *("unsafe", "95 % interval", "gain of an episode", "of the possible", "episodes to 90 %, median"),
    )
    low, high = binomial_interval(2, RUNS)
    assert table.rows[0] == ("all tasks", "2 of 120", f"{100 * low:.1f} – {100 * high:.1f} %", "1.000", "75 %", "10")
    assert [each[1] for each in table.rows[1:]] == ["1 of 40", "1 of 40", "0 of 40", "2 of 60", "0 of 60"]


def test_the_table_of_settings_names_what_differs_and_what_failed() -> None:
    passed, failed = settings_table(found(), ROWS).rows
    assert (passed[0], failed[0]) == ("level 0.3", "level 0.5")
    assert (passed[1], failed[1]) == ("2 of 120", "25 of 100")
    assert [getattr(each[-1], "text", "") for each in (passed, failed)] == ["passed", "failed"]
    (_, short), *_ = [settings_table(found()).rows]
    assert short[1] == "25 or more of 120", "without the runs nobody knows of how many"
    assert settings_table(replace(found(), gains=None)).headers == ("setting", "unsafe", "95 % interval", "verdict")


def test_a_page_says_what_was_found_and_what_it_rests_on() -> None:
    page = calibration_page(found(), ROWS)
    for words in (
        *("simulated tasks let certified-returns be as bold as level 0.3, slack 0.1.", "2 of 120", "75 %"),
        *(
            "Operating characteristics at level 0.3, slack 0.1",
            "parameter 1: 0 to 0.325",
            "All settings have slack 0.1.",
        ),
        *("rooms (size 3)", "e" * 64, "d" * 64, "0.02, on up to 900 fresh episodes of each policy", "<dd>7</dd>"),
        *("0.01 for the method as it is proved, after the last episode", "<dt>attempt</dt><dd>2</dd>", "<dd>5 %</dd>"),
        *("<svg", "passed, 95 % interval", f"allowed: {found().allowed} of 120", "risk 0.2"),
    ):
        assert words in page, words
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert page == calibration_page(found(), ROWS), "nothing of the day or the machine"


def test_a_page_where_nothing_passed() -> None:
    nothing = {"level": None, "counts": ((SETTINGS[0], 30),), "unsafe_runs": (tuple(range(30)),), "gains": (1.0,)}
    rows = [replace(each, outcomes=(outcome(n < 30, 1.0, 3),)) for n, each in enumerate(ROWS)]
    page = calibration_page(found(**nothing), rows)
    assert "No setting passed" in page
    assert "30 of 120" in page


def test_runs_of_another_calibration_make_no_page(tmp_path: Path) -> None:
    for rows in ([], ROWS[:50]):
        with pytest.raises(InvalidInput, match=f"record must hold the runs of this calibration, got {len(rows)} that"):
            calibration_page(found(), rows)
    with pytest.raises(ArtifactError, match="record: cannot read"):
        calibration_page(found(), tmp_path / "nowhere")


def ticks(figure: Figure) -> list[str]:
    return [each.get_text() for each in figure.axes[-1].get_xticklabels()]


def test_levels_are_numbers_on_the_axis_and_options_have_places_with_words() -> None:
    named = settings_figure(found(), ROWS)
    assert ticks(named) == ["level 0.3", "level 0.5"]
    pairs = ({"level": 0.3, "width": 1.0}, {"level": 0.5, "width": 0.5})
    assert ticks(settings_figure(found(pairs), ROWS)) == ["level 0.3\nwidth 1", "level 0.5\nwidth 0.5"]
    levels = settings_figure(found((0.3, 0.5)), ROWS)
    assert levels.axes[-1].get_xlabel() == "nominal level"
    low, high = levels.axes[-1].get_xlim()
    assert low < 0.3 < 0.5 < high
    many = tuple({"share": k / 10} for k in range(1, 10))
    counts = tuple((each, 0) for each in many)
    more = found(many, level=many[-1], counts=counts, unsafe_runs=((),) * 9, gains=(1.0,) * 9)
    assert ticks(settings_figure(more)) == [str(k) for k in range(1, 10)]


def test_the_lines_are_where_they_should_be() -> None:
    risk, gain = settings_figure(found(), ROWS).axes
    heights = [line.get_ydata()[0] for line in risk.lines if list(line.get_xdata()) == [0, 1]]
    assert heights == pytest.approx([100 * found().allowed / RUNS, 20.0])
    assert [line.get_ydata()[0] for line in gain.lines if list(line.get_xdata()) == [0, 1]] == pytest.approx([4 / 3])
