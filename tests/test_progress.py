"""Progress without a terminal: a line per stage, and now and then how far it is and how long it will take."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from surefoot.progress import EVERY, Progress, _lines, progress_reporter


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def shown() -> tuple[Progress, Clock, StringIO]:
    out, clock = StringIO(), Clock()
    return _lines(Console(file=out, width=200), clock), clock, out


def said(out: StringIO) -> list[str]:
    return out.getvalue().splitlines()


def test_words_that_change_with_a_count_do_not_begin_a_stage(shown: tuple[Progress, Clock, StringIO]) -> None:
    show, clock, out = shown
    show("0 unsafe", 0, 100)
    for done in range(10, 70, 10):
        clock.now += EVERY / 2
        show(f"{done // 10} unsafe", done, 100)
    assert said(out) == [
        "0 unsafe ...",
        "2 unsafe ... 20 of 100 after 0:30, about 2:00 to go",
        "4 unsafe ... 40 of 100 after 1:00, about 1:30 to go",
        "6 unsafe ... 60 of 100 after 1:30, about 1:00 to go",
    ]


def test_another_stage_has_a_line_and_a_clock_of_its_own(shown: tuple[Progress, Clock, StringIO]) -> None:
    show, clock, out = shown
    show("first", 0, 10)
    show("first", 10, 10)
    show("second", 0, 10)
    clock.now += EVERY
    show("second", 1, 10)
    assert said(out) == ["first ...", "second ...", "second ... 1 of 10 after 0:30, about 4:30 to go"]


def test_what_was_done_before_says_nothing_of_the_speed(shown: tuple[Progress, Clock, StringIO]) -> None:
    """A calibration that is resumed begins with the runs of its file."""
    show, clock, out = shown
    show("0 unsafe", 80, 100)
    clock.now += EVERY
    show("1 unsafe", 90, 100)
    assert said(out)[-1] == "1 unsafe ... 90 of 100 after 0:30, about 0:30 to go"


def test_on_a_terminal_the_bar_goes_on_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.progress import Progress as Bar

    resets: list[Any] = []
    monkeypatch.setattr(Bar, "reset", lambda self, task: resets.append(task))
    with progress_reporter(True, Console(file=StringIO(), force_terminal=True)) as show:
        show("0 unsafe", 0, 100)
        before = len(resets)
        for done in (1, 2, 3):
            show(f"{done} unsafe", done, 100)
        assert len(resets) == before
        show("another", 0, 100)
        assert len(resets) == before + 1
