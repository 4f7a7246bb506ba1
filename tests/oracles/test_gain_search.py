"""Settings found by search: candidates from little insulin to much."""

from __future__ import annotations

import numpy as np
import pytest

from surefoot.errors import InvalidInput
from surefoot.lab.pump import gain_search
from surefoot.lab.pump.gain_search import insulin_candidates
from surefoot.tasks import glucose, gridworld

TASKS = glucose()


@pytest.mark.long
def test_candidates_go_from_little_insulin_to_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a search that is coarser than it is."""
    monkeypatch.setattr(gain_search, "GAINS", (0.4, 0.57, 0.8, 1.13, 1.6, 2.3))
    monkeypatch.setattr(gain_search, "FACTORS", ())
    safe, candidates = insulin_candidates(TASKS, count=3, days=200, seed=1)
    assert (safe, candidates) == insulin_candidates(TASKS, count=3, days=200, seed=1)
    assert list(candidates) == ["sensitivity 2.00, 67 min", "sensitivity 1.00, 55 min", "sensitivity 0.50, 45 min"]
    ratios = [settings.ratio for settings in candidates.values()]
    assert ratios == sorted(ratios, reverse=True)
    assert safe.ratio >= ratios[0]
    for parameter in ((2.0, 67.0), (0.5, 45.0)):
        cost = TASKS.task(parameter).episodes(safe, 288).run(2000, np.random.default_rng(3)).cost.mean()
        assert cost < 0.04


def test_a_search_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gain_search, "GAINS", (0.4, 0.8))
    monkeypatch.setattr(gain_search, "FACTORS", ())
    said: list[tuple[str, int, int]] = []
    insulin_candidates(TASKS, count=3, days=20, seed=1, progress=lambda *far: said.append(far))
    assert said == [("searching settings", done, 7) for done in (0, 4, 5, 6, 7)]  # four corners, then three patients


def test_other_families_have_no_settings() -> None:
    with pytest.raises(InvalidInput, match="tasks must be a family made by glucose, got tasks of TabularCMDP"):
        insulin_candidates(gridworld())
