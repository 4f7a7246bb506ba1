"""`reproduce glucose`: settings, what patients are worth by a second computation, the page, a small run end to end."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.optimize import linprog

import surefoot as sf
from surefoot.errors import InvalidInput
from surefoot.lab.experiments import frame
from surefoot.lab.experiments.adapting import day_by_day, day_streams
from surefoot.lab.experiments.glucose import run, simulators
from surefoot.lab.experiments.glucose.page import page, tables
from surefoot.lab.experiments.glucose.run import (
    EXPERIMENT,
    NEAR,
    PRECISE,
    Contender,
    PatientRuns,
    adapt_to_patient,
    available_contenders,
    standard_error,
    summarise_patients,
    summary,
)
from surefoot.lab.experiments.glucose.settings import (
    ADAPTING,
    CALIBRATED_ROWS,
    DEFAULT_METHODS,
    ELIMINATION,
    QUICK,
    GlucoseSettings,
    configure,
)
from surefoot.lab.experiments.judging import PolicyMeans, best
from surefoot.lab.pump.settings import AVERAGE_SETTINGS
from surefoot.lab.simglucose.patients import number_of
from surefoot.learning.calibrated import parse_calibration
from surefoot.methods import learner
from surefoot.report.page import render

needs_package = pytest.mark.skipif(
    find_spec("simglucose") is None, reason="needs simglucose: pip install --no-deps simglucose==0.2.11"
)
BUDGET = 0.04
SMALL = GlucoseSettings(
    **{
        **QUICK,
        **{"patients": 3, "days": 12, "compared_patients": 2, "risk": 0.5, "other_risks": (0.1, 0.7), "calibrated": 8},
        **{"candidates": 1, "cells": 10, "holdout": 19, "uncovered": 0.3, "episodes": 150},
        **{"learned_patients": 8, "judged_days": 100, "most_judged_days": 200},
    }
)
BAD = {
    **{"patients": 0, "days": 0, "judged_days": 0, "risk": 1.5, "other_risks": (0.0,), "uncovered": 0.0},
    "methods": ("pce-days", "nobody"),
}


@pytest.mark.parametrize("name", BAD)
def test_settings_are_checked(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{name} must"):
        GlucoseSettings(**{name: BAD[name]})


def test_quick_runs_of_slower_patients_are_smaller() -> None:
    """And what is given stays as it is, whoever the patients are."""
    usual, quick = configure(simulator="simglucose"), configure(**QUICK, simulator="simglucose")
    assert (usual.candidates, usual.patients) == (9, 120)
    assert (quick.holdout, quick.patients, quick.candidates) == (39, 8, QUICK["candidates"])
    assert configure(**{**QUICK, "patients": 30}, simulator="simglucose").patients == 30
    assert configure(**QUICK) == GlucoseSettings(**QUICK)
    assert configure(simulator="simglucose", trained_on="hovorka").transferred
    assert not usual.transferred


@pytest.mark.parametrize(
    ("given", "proved", "calibrated"),
    [
        ({}, True, True),
        ({"simulator": "simglucose", "trained_on": "hovorka"}, False, True),
        ({"simulator": "simglucose", "left_out": "adult#007"}, False, False),
    ],
)
def test_nothing_is_certified_for_patients_that_no_promise_is_about(
    given: dict[str, str], proved: bool, calibrated: bool
) -> None:
    settings = configure(**given)
    assert settings.covers_fresh_patients(False) == proved
    assert settings.covers_fresh_patients(True) == calibrated


def test_patients_left_out_are_simglucoses() -> None:
    with pytest.raises(InvalidInput, match="simulator simglucose"):
        frame.check_applies(configure(left_out="adult#007"), ["left_out"])


@needs_package
def test_whoever_is_left_out_is_tested_and_not_trained_for() -> None:
    settings = configure(simulator="simglucose", left_out="adult#007")
    number, rng = number_of("adult#007"), np.random.default_rng(0)
    assert number not in simulators.simulator_of(settings).tasks.sample(300, rng)[:, 0]
    assert set(simulators.fresh_patients(settings).sample(10, rng)[:, 0]) == {number}


@needs_package
def test_what_is_made_on_our_own_patients_fits_the_others() -> None:
    settings = configure(simulator="simglucose", trained_on="hovorka")
    trained, deployed = simulators.training_simulator(settings).tasks, simulators.simulator_of(settings).tasks
    assert trained.recipe["family"] == "glucose"
    assert trained.units.same_as(deployed.units)
    assert trained.example.spaces == deployed.example.spaces


# ------------------------------------------------------------------------------------------------- what it is all worth


def patient(deployed: Any, mean: Any, error: Any = None) -> PatientRuns:
    """With one contender."""
    mean, deployed = np.array(mean, dtype=float), np.array(deployed, dtype=float)
    errors = np.zeros_like(mean) if error is None else np.array(error, dtype=float)
    possible = best(BUDGET - mean[None, :, 1], mean[:, 0])
    count, known = np.full(len(mean), 10), np.eye(len(mean))[0]
    return PatientRuns(np.array([1.0, 55.0]), mean, errors, count, possible, deployed[None], known)


def test_values_agree_with_days_of_another_seed() -> None:
    task, policies = sf.tasks.glucose().task((1.0, 55.0)), [AVERAGE_SETTINGS.scaled(gain) for gain in (0.6, 1.1)]
    judge = PolicyMeans(task, policies, [0, 1], 200)
    judge.decide(np.array([[0.3, 0.7]]), 400, near=NEAR, precise=PRECISE)
    assert (judge.count >= 200).all()
    for k, policy in enumerate(policies):
        days = task.episodes(policy, 288).run(1000, np.random.default_rng(99))
        seen = np.column_stack([days.reward, days.cost])
        spread = seen.std(axis=0, ddof=1)
        together = np.hypot(judge.error[k], spread / np.sqrt(1000))
        assert (np.abs(judge.mean[k] - seen.mean(axis=0)) < 4.5 * together + 1e-9).all()
        assert judge.error[k] == pytest.approx(spread / np.sqrt(judge.count[k]), rel=0.5)


def test_more_days_are_watched_where_it_matters() -> None:
    """Of two settings only the one that leaves a mixture open, and no more days than allowed."""
    task, policies = sf.tasks.glucose().task((1.0, 55.0)), [AVERAGE_SETTINGS.scaled(gain) for gain in (0.4, 1.02, 2.0)]
    judge = PolicyMeans(task, policies, [0, 1], 50)
    judge.decide(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), 300, near=NEAR, precise=PRECISE)
    assert judge.count.tolist() == [50, 300, 50]


def test_possible_is_the_linear_program() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        mean = np.column_stack([rng.uniform(0.2, 0.8, 5), rng.uniform(0, 0.2, 5)])
        mean[0, 1] = 0.01
        own = best(BUDGET - mean[None, :, 1], mean[:, 0]) @ mean
        found = linprog(-mean[:, 0], A_ub=mean[None, :, 1], b_ub=[BUDGET], A_eq=np.ones((1, 5)), b_eq=[1.0])
        assert own[0] == pytest.approx(-found.fun, abs=1e-6)
        assert own[1] <= BUDGET


def test_gain_and_days_until_most_of_it() -> None:
    mean = [[0.4, 0.0], [0.6, 0.02], [0.9, 0.3]]  # possible: 0.6 plus a little of the third
    share = (BUDGET - 0.02) / 0.28
    possible = 0.2 + share * 0.3
    deployed = [[1, 0, 0], [1, 0, 0], [0.5, 0.5, 0], [0, 1 - share, share], [0, 0, 1]]
    found = summary([patient(deployed, mean)], 0, certified=True, risk=0.05)
    assert found["share_by_day"] == pytest.approx([0, 0, 0.1 / possible, 1, 1], abs=1e-6)
    assert (found["median_days"], found["median_moved"], found["reached"]) == (4, 3, 1)
    assert (found["unsafe_tasks"], found["unsafe_days"], found["undecided_tasks"]) == (1, 1, 0)
    assert found["largest_below"] == pytest.approx(0.3)
    assert found["share"] == pytest.approx(np.mean(found["share_by_day"]))


def test_an_unsafe_day_is_no_day_of_success() -> None:
    mean = [[0.4, 0.0], [0.9, 0.3]]
    found = summary([patient([[0, 1], [0, 1]], mean)], 0, certified=False, risk=0.05)
    assert found["days_until"] == [None]
    assert found["median_days"] is None


@pytest.mark.parametrize(
    ("error", "expected"), [(0.0, (1, 0)), (0.0003, (1, 0)), (0.0004, (0, 1)), (0.01, (0, 1))], ids=str
)
def test_too_close_to_tell_is_undecided(error: float, expected: tuple[int, int]) -> None:
    """A mixture at 4.1 %: unsafe at three standard errors, or undecided."""
    own = patient([[0, 1]], [[0.4, 0.0], [0.9, 0.041]], [[0, 0], [0, error]])
    found = summary([own], 0, certified=True, risk=0.05)
    assert (found["unsafe_tasks"], found["undecided_tasks"]) == expected
    safe = patient([[0, 1]], [[0.4, 0.0], [0.9, 0.039]], [[0, 0], [0, error]])
    assert summary([safe], 0, certified=True, risk=0.05)["unsafe_tasks"] == 0


def test_patients_with_nothing_to_gain_are_not_counted() -> None:
    little = patient([[1, 0]], [[0.4, 0.0], [0.41, 0.02]])
    much = patient([[0, 1]], [[0.4, 0.0], [0.7, 0.02]])
    found = summary([little, much], 0, certified=True, risk=0.05)
    assert (found["counted"], found["days_until"]) == (1, [1])
    assert found["share"] == pytest.approx(0.3 / 0.31)


def test_information_of_normal_numbers() -> None:
    """Against the formula: means 2θ and θ/2 with spreads 3 and 1 tell θ to 1/√(4/9 + 1/4)."""
    rng = np.random.default_rng(0)
    below, above = (rng.normal([2 * theta, theta / 2], [3.0, 1.0], (200_000, 2)) for theta in (-0.5, 0.5))
    assert standard_error(below, above, 1.0) == pytest.approx((4 / 9 + 1 / 4) ** -0.5, rel=0.02)
    assert standard_error(below, below, 1.0) is None


# ----------------------------------------------------------------------------------------------------------- end to end


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With settings that are given: the search for them is tested by itself, and takes longest. Days have 288 steps,
    whoever lives them: the short part only draws the page, from results that were kept."""
    out = tmp_path_factory.mktemp("glucose")
    found = AVERAGE_SETTINGS.scaled(0.4), {"sensitivity 0.60, 50 min": AVERAGE_SETTINGS.scaled(1.5)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulators, "insulin_candidates", lambda *_, **__: found)
        patch.setattr(run, "INFORMATION_DAYS", 100)
        EXPERIMENT.reproduce(SMALL, out, jobs=1)
    return out


@pytest.mark.long
def test_a_small_run_writes_what_it_says(folder: Path) -> None:
    results = json.loads((folder / "results.json").read_text())
    assert results["experiment"] == "glucose"
    assert {"version", "settings", "seconds", "methods", "risks", "information", "patients"} <= set(results)
    assert list(results["methods"]) == [*DEFAULT_METHODS, CALIBRATED_ROWS[0]]
    assert results["calibrations"][ADAPTING]["runs"] == 8
    for name, found in results["methods"].items():
        assert found["certified"] == (name != ELIMINATION.name)
        assert found["tasks"] == 3
        assert 0 <= found["unsafe_tasks"] + found["undecided_tasks"] <= 3
        assert len(found["share_by_day"]) == SMALL.days
    safe = results["methods"]["safe-only"]
    assert safe["share"] == 0
    assert safe["moved"] == 0
    assert list(results["risks"]) == ["0.5", "0.7"]
    assert list(results["refused"]) == ["certified-signals, risk 0.1"]  # what the bounds leave open is more
    assert {each["number"] for each in results["shown"]} <= {0, 1, 2}
    for name in ("patients.png", "gain.png", "report.html"):
        assert (folder / name).stat().st_size > 1000
    assert len(sf.PolicyValueSet.load(folder / "glucose.policyset").policies) == 2


@pytest.mark.long
def test_the_page_says_what_it_is_and_is_made_from_results_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (folder / "report.html").read_text()
    assert text.index("simulation and no medical device") < text.index("What is simulated")
    assert "uncertified" in text
    assert "coarser bounds than usual" in text
    monkeypatch.setattr(frame, "png", lambda figure: b"")
    assert render(page(frame.read_results(folder)).page) == text


@pytest.mark.long
def test_pages_without_the_usual_methods(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Figure, "savefig", lambda _, target, **__: target.write(b"<svg/>"))
    results = json.loads((folder / "results.json").read_text())
    results["methods"] = {"safe-only": results["methods"]["safe-only"]}
    results["risks"] = {}
    for shown in results["shown"]:
        shown["methods"] = {"safe-only": shown["methods"]["safe-only"]}
    results["refused"] = {"certified-returns": "no bounds"}
    text = render(page(results).page)
    assert "price of the risk" not in text
    assert "certified-returns was not run: no bounds." in text
    assert len(tables(results)["Methods"].rows) == 1


@pytest.mark.long
def test_patients_are_the_same_whoever_else_is_there(folder: Path) -> None:
    """The same seed gives the same days: a method alone does what it did among others."""
    policies = sf.PolicyValueSet.load(folder / "glucose.policyset")
    contenders = [Contender(name, name, SMALL.risk) for name in DEFAULT_METHODS]
    together = adapt_to_patient(policies, contenders, np.array([0.7, 50.0]), 0, SMALL)
    alone = adapt_to_patient(policies, contenders[-1:], np.array([0.7, 50.0]), 0, SMALL)
    assert np.array_equal(together.deployed[-1], alone.deployed[0])
    assert together.deployed.sum(axis=2) == pytest.approx(np.ones((5, SMALL.days)))
    one = summarise_patients(policies, contenders[-1:], [alone], replace(SMALL, methods=("certified-signals",)))
    assert list(one["methods"]) == ["certified-signals"]


@pytest.mark.long
def test_where_no_setting_passed_nobody_is_given_a_calibrated_method(folder: Path) -> None:
    policies, results = sf.PolicyValueSet.load(folder / "glucose.policyset"), frame.read_results(folder)
    passed = parse_calibration(results["calibrations"][ADAPTING])
    failed = replace(passed, level=None, counts=((passed.level, 8),), unsafe_runs=(tuple(range(8)),), gains=(0.0,))
    labels, refused = available_contenders(policies, SMALL, {ADAPTING: failed})
    assert CALIBRATED_ROWS[0] not in [one.label for one in labels]
    assert "must have passed at some level" in refused[CALIBRATED_ROWS[0]]


@pytest.mark.long
def test_elimination_is_uncertified_and_outright(folder: Path) -> None:
    policies = sf.PolicyValueSet.load(folder / "glucose.policyset")
    own = learner(policies, method=ELIMINATION, risk=0.05)
    assert not own.certified
    assert own.ask().weight == 1.0
    task = sf.tasks.glucose().task((2.0, 60.0))  # the one candidate gives far too much here
    weights = day_by_day(own, day_streams(task, policies.policies, 30, 0), 30, 2)
    assert weights[0].tolist() == [0.0, 1.0]
    assert weights[-1].tolist() == [1.0, 0.0]


# ----------------------------------------------------------------------------------------- patients that others wrote


@needs_package
@pytest.mark.long
def test_a_small_run_on_patients_of_simglucose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "INFORMATION_DAYS", 30)
    few = {"patients": 2, "days": 4, "compared_patients": 1, "candidates": 1, "cells": 5, "holdout": 9, "episodes": 150}
    bounds = {"risk": 0.9, "uncovered": 0.6, "other_risks": (0.95,), "learned_patients": 8, "learned_days": 2}
    chosen = {"methods": ("safe-only", "certified-signals"), "judged_days": 20, "most_judged_days": 40}
    settings = replace(configure(**QUICK, simulator="simglucose"), **few, **bounds, **chosen)
    results = EXPERIMENT.reproduce(settings, tmp_path, jobs=1)
    assert results["methods"]["safe-only"]["share"] == 0
    assert all("#" in each["patient"] for each in (*results["shown"], *results["information"]["rows"]))
    text = (tmp_path / "report.html").read_text()
    assert "simulation and no medical device" in text
    assert "Thirty patients are no distribution" in text
    assert "--simulator simglucose" in text
