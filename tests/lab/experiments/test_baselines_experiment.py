"""`reproduce baselines` in small: what it writes, that it repeats, and the numbers it derives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from made_runs import made_run
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.lab.experiments.baselines.page import baselines_page, methods_table
from surefoot.lab.experiments.baselines.run import EXPERIMENT, growth, growth_exponent, last_policies, train_benchmark
from surefoot.lab.experiments.baselines.settings import BENCHMARKS, METHODS, BaselinesSettings
from surefoot.lab.experiments.frame import redraw
from surefoot.simulate.run import Run
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.solve import solve

pytestmark = pytest.mark.filterwarnings("ignore::surefoot.training.preflight.UncertifiedWarning")

OURS = ("safe-only", "certified-likelihood")
TINY = BaselinesSettings(methods=OURS, episodes=300, runs=2, cells=60)
FILES = ["factored.png", "inventory.png", "media.png", "report.html", "results.json", "two-walls.png"]
# What the safe policies cost: a fifth of the budget, and the start that LB-SGD's authors report.
SAFE_COSTS = {"factored": [0.6], "media": [1.0], "inventory": [0.7], "two-walls": [1.688, 1.800]}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("baselines") / "new"
    EXPERIMENT.reproduce(TINY, folder, jobs=1)
    return folder


@pytest.fixture(scope="module")
def results(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "results.json").read_text()))


def test_files(out: Path) -> None:
    assert sorted(file.name for file in out.iterdir()) == FILES


def test_results_name_everything_that_was_run(results: dict[str, Any]) -> None:
    assert results["experiment"] == "baselines"
    assert list(results["benchmarks"]) == list(BENCHMARKS)
    for name, benchmark in results["benchmarks"].items():
        assert tuple(benchmark["methods"]) == OURS
        assert benchmark["settings"]["episodes"] == 300
        assert benchmark["settings"]["parameter"] == list(BENCHMARKS[name].parameter)
        for key in ("growth", "last", "seconds_per_run"):
            assert tuple(benchmark[key]) == OURS
        for summary in benchmark["methods"].values():
            assert (summary["tasks"], summary["episodes"]) == (2, 300)
        np.testing.assert_allclose(benchmark["safe_cost"], SAFE_COSTS[name], atol=5e-4)
    assert results["seconds"] == pytest.approx(sum(each["seconds"] for each in results["benchmarks"].values()))
    assert results["benchmarks"]["two-walls"]["optimum"] == pytest.approx(1.07483758, abs=5e-9)


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_regret_of_never_adapting_by_hand(results: dict[str, Any], name: str) -> None:
    benchmark = BENCHMARKS[name]
    task = benchmark.family().task(benchmark.parameter)
    gap = solve(task).values.reward - evaluate(task, benchmark.safe_policy(task)).reward
    found = results["benchmarks"][name]
    assert found["methods"]["safe-only"]["regret"] == pytest.approx([300 * gap] * 2, rel=1e-9)
    assert found["growth"]["safe-only"]["exponent"] == pytest.approx(1.0, abs=1e-9)
    assert found["last"]["safe-only"]["gap"] == pytest.approx(gap, rel=1e-9)


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_the_certified_method_adapts_and_is_safe(results: dict[str, Any], name: str) -> None:
    methods = results["benchmarks"][name]["methods"]
    assert methods["certified-likelihood"]["regret_mean"] < 0.6 * methods["safe-only"]["regret_mean"]
    assert methods["certified-likelihood"]["unsafe_episodes"] == 0


def test_the_safe_policy_is_the_authors() -> None:
    policies = train_benchmark("inventory", TINY)
    benchmark = BENCHMARKS["inventory"]
    expected = benchmark.safe_policy(benchmark.family().task(benchmark.parameter))
    assert isinstance(policies.safe_policy, TabularPolicy)
    np.testing.assert_array_equal(policies.safe_policy.probabilities, expected.probabilities)


@pytest.mark.long
def test_the_same_whatever_the_number_of_workers(results: dict[str, Any], tmp_path: Path) -> None:
    settings = replace(TINY, benchmarks=("inventory",))
    again = EXPERIMENT.reproduce(settings, tmp_path / "again", jobs=2)["benchmarks"]["inventory"]
    for method in OURS:
        assert again["methods"][method] == results["benchmarks"]["inventory"]["methods"][method]


def test_options_by_benchmark() -> None:
    assert BENCHMARKS["media"].options("dope-theory") == {"horizon": 10, "layers": 10}
    assert BENCHMARKS["media"].options("safe-only") == {"horizon": 10}
    assert BENCHMARKS["two-walls"].options("safe-only") == {}
    barrier = BENCHMARKS["two-walls"].options("lb-sgd-published")
    assert (barrier["barrier"], barrier["batch"]) == (0.01, 3000)  # the authors' figure
    assert set(BENCHMARKS["two-walls"].options("lb-sgd-theory")) == {"start"}


# ------------------------------------------------------------------------------------------------------- in numbers


def run_with(regret: Sequence[float] | np.ndarray, margin: float = 0.5) -> Run:
    return made_run("dope-theory", False, -np.diff(np.asarray(regret, dtype=np.float64), prepend=0.0), margin, 1.0)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 2 / 3, 1.0])
def test_growth_exponent_of_a_power(exponent: float) -> None:
    episodes = np.arange(1, 5001)
    assert growth_exponent(3.0 * episodes**exponent) == pytest.approx(exponent, abs=1e-9)


def test_growth_looks_at_the_second_half_only() -> None:
    episodes = np.arange(1, 4001)
    regret = np.where(episodes < 1500, 5.0 * episodes, 7500.0 * (episodes / 1500) ** 0.5)
    assert growth_exponent(regret) == pytest.approx(0.5, abs=1e-9)


def test_growth_without_regret_is_unknown() -> None:
    assert growth_exponent(np.zeros(100)) is None
    assert growth_exponent(np.ones(1)) is None
    assert growth([run_with(np.zeros(100)), run_with(np.arange(1, 101))]) == {"exponent": None, "interval": None}


def test_growth_of_several_runs() -> None:
    episodes = np.arange(1, 1001)
    found = growth([run_with(episodes**0.4), run_with(episodes**0.6)])
    assert found["exponent"] == pytest.approx(0.5, abs=1e-9)
    low, high = found["interval"]
    assert low < 0.4 < 0.6 < high
    assert growth([run_with(episodes**0.4)])["interval"] is None


def test_last_policies() -> None:
    found = last_policies([run_with([3.0, 5.0, 5.5], 0.1), run_with([1.0, 2.0, 3.5], 0.3)])
    assert found == pytest.approx({"gap": 1.0, "margin": 0.2})
    assert last_policies([run_with([2.0])])["gap"] == 2.0


# ---------------------------------------------------------------------------------------------------------- the page


@pytest.mark.long
def test_the_report_can_be_drawn_again(out: Path) -> None:
    before = {name: (out / name).read_bytes() for name in FILES if name != "results.json"}
    redraw(out, baselines_page)
    assert {name: (out / name).read_bytes() for name in before} == before


def only(results: dict[str, Any], benchmark: str) -> dict[str, Any]:
    """A copy with one benchmark, whose page is drawn faster."""
    copy: dict[str, Any] = json.loads(json.dumps(results))
    copy["benchmarks"] = {benchmark: copy["benchmarks"][benchmark]}
    return copy


def with_baseline(results: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The results on the factored CMDP alone, with a baseline there, a copy of safe-only but for `changes`."""
    copy = only(results, "factored")
    benchmark = copy["benchmarks"]["factored"]
    benchmark["methods"]["dope-theory"] = {**benchmark["methods"]["safe-only"], **changes}
    for key in ("growth", "last", "seconds_per_run"):
        benchmark[key]["dope-theory"] = benchmark[key]["safe-only"]
    return copy


def test_the_verdict_says_who_was_unsafe(results: dict[str, Any]) -> None:
    found = baselines_page(with_baseline(results)).page.verdict
    assert found.sentence.startswith("Of 1 baselines on benchmarks of their authors 0 were ever unsafe; no")
    assert found.answers[1].beside == "no baseline was unsafe in any episode"
    assert found.answers[0].value == "1 of 1"  # copied from never adapting, which the certified method beats
    unsafe = with_baseline(results, unsafe_tasks=1, unsafe_episodes=17, certified=False)
    told = baselines_page(unsafe).page.verdict
    assert "of their authors 1 was ever unsafe" in told.sentence
    assert told.answers[1].beside == "most often ‘dope-theory, factored’, in 17 episodes"
    (cell,) = (row[5] for row in methods_table(unsafe["benchmarks"]["factored"]).rows if row[0] == "dope-theory")
    assert (cell.text, cell.tone) == ("17 in 1 of 2 runs", "bad")


def test_the_report_says_what_was_cut(results: dict[str, Any]) -> None:
    cut = only(results, "inventory")
    section = next(section for section in baselines_page(cut).page.sections if section.title == "inventory")
    assert "The authors had 1,000,000 episodes, 20 runs; this is 300 episodes, 2 runs." in section.notes
    full = only(results, "inventory")
    full["benchmarks"]["inventory"]["settings"].update(episodes=1_000_000, runs=20)
    section = next(section for section in baselines_page(full).page.sections if section.title == "inventory")
    assert "As many episodes and runs as the authors had (1,000,000 episodes, 20 runs)." in section.notes


def test_the_command_line_is_complete(results: dict[str, Any]) -> None:
    assert baselines_page(only(results, "factored")).page.command == (
        "surefoot reproduce baselines --runs 2 --episodes 300 \\\n"
        "  --methods safe-only,certified-likelihood \\\n"
        "  --seed 0 --out DIR"
    )


# ---------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"benchmarks": ("desert",)},
            "benchmarks must be names out of factored, media, inventory, two-walls, got desert",
        ),
        ({"benchmarks": ("media", "media")}, "benchmarks must be different names"),
        ({"methods": ()}, "methods must be names out of .*, got none"),
        (
            {"benchmarks": ("two-walls",), "methods": ("dope-theory",)},
            "methods must hold one that runs on benchmark two",
        ),
        ({"runs": 0}, "runs must be a whole number of at least 1, got 0"),
        ({"episodes": 0}, "episodes must be a whole number of at least 1, got 0"),
        ({"cells": -1}, "cells must be a whole number of at least 1, got -1"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"risk": 0.0}, "risk must lie strictly between 0 and 1, got 0.0"),
    ],
)
def test_settings_refuse(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        BaselinesSettings(**changes)


def test_defaults_are_each_benchmarks_own() -> None:
    assert [BaselinesSettings().runs_on(name) for name in BENCHMARKS] == [20, 20, 20, 10]
    assert BaselinesSettings().episodes_on("inventory") == 1_000_000
    assert (BaselinesSettings(runs=3).runs_on("media"), BaselinesSettings(episodes=7).episodes_on("media")) == (3, 7)


def test_benchmarks_without_a_chosen_method_are_left_out() -> None:
    assert BaselinesSettings(methods=("lb-sgd-theory",)).with_methods == ("two-walls",)
    assert BaselinesSettings().with_methods == tuple(BENCHMARKS)
    assert {method for name in BENCHMARKS for method in BENCHMARKS[name].methods} == set(METHODS)


def test_nothing_is_done_for_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="out must be a folder"):
        EXPERIMENT.reproduce(TINY, tmp_path / "file")
    with pytest.raises(InvalidInput, match="jobs must be a whole number of at least 1, got 0"):
        EXPERIMENT.reproduce(TINY, tmp_path / "new", jobs=0)
    assert not (tmp_path / "new").exists()


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    settings = replace(TINY, benchmarks=("factored",), methods=("safe-only",), episodes=10)
    EXPERIMENT.reproduce(settings, tmp_path, jobs=1, progress=lambda *step: told.append(step))
    assert told[0] == ("factored: training", 0, 1)
    assert [step for step in told if step[0] == "factored: adapting"] == [
        ("factored: adapting", done, 2) for done in range(3)
    ]
