"""Settings found by search: tested on fresh days as the oracle interface asks, and worth having."""

from __future__ import annotations

import numpy as np
import pytest

from surefoot.errors import Infeasible, InvalidInput
from surefoot.lab.pump import gain_search
from surefoot.lab.pump.gain_search import (
    check_by_days,
    glucose_oracles,
    insulin_candidates,
    search_common_gains,
    search_gains,
)
from surefoot.lab.pump.settings import AVERAGE_SETTINGS, InsulinSettings
from surefoot.tasks import glucose, gridworld
from surefoot.testing import oracle_suite

TASKS = glucose()
POINT = 2.88  # a percentage point of the day, in the oracles' unit scale


def test_the_best_settings_of_a_patient() -> None:
    task = TASKS.task((0.6, 50.0))
    found = oracle_suite.conforms_to_optimal_oracle(search_gains(300, 6000), task, POINT)
    assert isinstance(found.policy, InsulinSettings)
    assert found.reward > 0.7
    careful = task.episodes(AVERAGE_SETTINGS.scaled(0.5), 288).run(1000, np.random.default_rng(1))
    assert found.reward > careful.reward.mean() + 0.3


@pytest.mark.long
def test_settings_that_are_safe_for_several_patients() -> None:
    tasks = [TASKS.task(parameter) for parameter in ((0.6, 40.0), (2.0, 75.0))]
    found = oracle_suite.conforms_to_feasible_oracle(search_common_gains(300, 6000), tasks, 0.5 * POINT, epsilon=POINT)
    assert found.margin[0] > found.margin[1]  # the sensitive one is the one in danger
    assert found.reward[1] > 0.6


@pytest.mark.long
def test_a_search_that_finds_too_much_is_followed_by_caution(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test on fresh days decides, not the search."""
    monkeypatch.setattr(gain_search, "_best", lambda *_: AVERAGE_SETTINGS.scaled(1.1))
    task = TASKS.task((1.0, 55.0))
    found = oracle_suite.conforms_to_feasible_oracle(search_common_gains(1, 4000), [task], None, epsilon=POINT)
    assert found.policy.basal < AVERAGE_SETTINGS.basal  # type: ignore[attr-defined]
    monkeypatch.setattr(gain_search, "_best", lambda *_: AVERAGE_SETTINGS.scaled(4.0))
    with pytest.raises(Infeasible, match=r"on patient 0 of 1, \[1.0, 55.0\]"):
        search_common_gains(1, 500)([task], None, 0.05, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [((1.0, 55.0), (1.01, 55.0), True), ((1.0, 55.0), (1.3, 55.0), False), ((1.0, 40.0), (1.0, 75.0), False)],
)
def test_patients_are_alike_if_the_settings_do_alike(
    first: tuple[float, float], second: tuple[float, float], alike: bool
) -> None:
    check = check_by_days((0.7, 1.0))
    pair = [TASKS.task(parameter) for parameter in (first, second)]
    assert oracle_suite.conforms_to_check_oracle(check, *pair, 3 * POINT, 0.01) is alike
    values = [
        [task.episodes(AVERAGE_SETTINGS.scaled(gain), 288).run(4000, np.random.default_rng(9)) for gain in (0.7, 1.0)]
        for task in pair
    ]
    gaps = [
        max(abs(a.reward.mean() - b.reward.mean()), abs(a.cost.mean() - b.cost.mean()))
        for a, b in zip(*values, strict=True)
    ]
    assert bool(288 * max(gaps) <= 1.5 * 3 * POINT) is alike


def test_differences_that_days_do_not_resolve_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gain_search, "MOST_COMPARED", 400)
    pair = [TASKS.task((sensitivity, 55.0)) for sensitivity in (1.0, 1.01)]
    with pytest.raises(InvalidInput, match="epsilon must be larger, 400 days do not"):
        check_by_days((1.0,))(*pair, 0.1, 0.05, np.random.default_rng(0))


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
    with pytest.raises(InvalidInput, match="tasks must hold at least one task, got none"):
        glucose_oracles().feasible([], None, 0.05, np.random.default_rng(0))
