"""Families of one task have no signals, and those whose parameter is plainly shown have some."""

from __future__ import annotations

import pytest

import surefoot as sf
from shown_wheel import _shown_wheel
from surefoot.tasks.distribution import Finite
from surefoot.tasks.task_distribution import family
from wheel import CONTROLLERS, QUICK


@pytest.mark.parametrize(("pushes", "some"), [([[0.4]], False), ([[0.4], [0.9]], True)])
def test_signals_are_learned_where_tasks_differ(pushes: list[list[float]], some: bool) -> None:
    safe, *others = (sf.controller(function, name=name) for name, function in CONTROLLERS.items())
    tasks = family(_shown_wheel, Finite(pushes))
    lesson = sf.LearnedSignals(tasks=8, episodes=4)
    made = sf.policy_set(tasks, safe=safe, candidates=others, seed=0, envelopes=QUICK, signals=lesson, progress=False)
    assert made.cells is not None
    assert (made.cells.readings is not None) == some
