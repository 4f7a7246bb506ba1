"""Every experiment in small, run once: what it writes, that its page follows from results.json alone, what it shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
from kept_results import results_of

from surefoot.errors import ArtifactError, InvalidInput
from surefoot.lab.experiments import (
    PAGES,
    baselines,
    families,
    find,
    frame,
    gridworld,
    lower_bound,
    regret,
    shift,
    tail,
)
from surefoot.lab.families.shifted_gridworlds import SHIFTS
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.page import render
from surefoot.simulate import plan
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.solve import solve
from surefoot.tasks import gridworld_tasks

pytestmark = pytest.mark.filterwarnings("ignore::surefoot.training.preflight.UncertifiedWarning")

OURS = ("safe-only", "certified-likelihood")
SMALL: dict[str, dict[str, Any]] = {
    "baselines": {"methods": OURS, "episodes": 300, "runs": 2, "cells": 60},
    "covering": {"families": ("gridworld", "two-walls"), "epsilons": (0.05, 0.01, 0.004), "points": 40_000},
    "families": {"episodes": 400, "tasks": 3, "epsilon": 0.03, "delta": 0.12, "cells": 400},
    "gridworld": {"episodes": 1500, "tasks": 2, "methods": ("safe-only", "paper", "published", "pce")},
    "lower-bound": {"quantities": ("epsilon",), "methods": ("certified-likelihood",), "repeats": 1},
    "promise": {
        **{"families": "random", "number": 10, "tasks": 2, "episodes": 40, "twins": 1, "patience": 1},
        "methods": ("certified-likelihood",),
    },
    "rivals": {
        **{"systems": ("gridworld",), "tasks": 2, "runs": 30, "grid": 1, "small": True},
        "methods": ("safe-only", "certified", "seldonian"),
    },
    "regret": {"sweeps": ("margin",), "methods": ("certified-likelihood",), "tasks": 1, "episodes": 600},
    "shift": {
        **{"methods": ("certified-returns",), "runs": 2, "episodes": 300, "fresh": 3, "near": 2},
        "distances": (0.0, 0.001),
    },
    "tail": {"tasks": 2, "episodes": 400},
}
# Their pages are drawn from stored results in `test_pages.py` all the same.
LONG = ("baselines", "families", "lower-bound", "promise", "regret", "rivals", "shift", "tail")
NAMES = [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in SMALL]
FIGURES = {
    "baselines": ("factored", "inventory", "media", "two-walls"),
    "families": ("maintenance", "windy"),
    "gridworld": ("figure1", "figure2"),
    "rivals": ("gridworld",),
    "shift": ("power", "price"),
}
PNG = b"\x89PNG\r\n\x1a\n"


class Ran(NamedTuple):
    settings: Any
    out: Path
    results: dict[str, Any]
    progress: list[tuple[str, int, int]]


Runs = Callable[[str], Ran]


@contextmanager
def in_small(name: str) -> Iterator[None]:
    """Plans that try the certified methods for a few episodes only, limits from few tasks, and of the sweeps of regret
    one family, trained coarsely: what is certified does not rest on the candidates. Figures are drawn into the page;
    the files beside it, which take as long again, are left to one experiment."""
    draw = frame.png if name == "covering" else lambda figure: PNG
    with (
        mock.patch.object(frame, "png", draw),
        mock.patch.object(plan, "TRIAL_EPISODES", 20),
        mock.patch.object(gridworld, "ALTERNATIVES", 3),
        mock.patch.object(regret, "EPSILON", 0.02),
        mock.patch.object(regret, "SWEEPS", {"cover": (regret.BASE,), "margin": (regret.BASE,)}),
    ):
        yield


def reproduce(name: str, out: Path, *, jobs: int = 1, **changes: Any) -> Ran:
    settings, told = find(name).settings_for(**{**SMALL[name], **changes}), []
    with in_small(name):
        find(name).reproduce(settings, out, jobs=jobs, progress=lambda *step: told.append(step))
    return Ran(settings, out, json.loads((out / "results.json").read_text()), told)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The small run of an experiment by name, made when it is first asked for."""
    return cache(lambda name: reproduce(name, tmp_path_factory.mktemp(name) / "new" / "folder"))


# ---------------------------------------------------------------------------------------------------------- all of them


@pytest.mark.parametrize("name", NAMES)
def test_results_figures_and_page_are_written(ran: Runs, name: str) -> None:
    settings, out, results, progress = ran(name)
    figures = {f"{each}.png" for each in FIGURES.get(name, (name,))}
    assert {each.name for each in out.iterdir()} == {
        "report.html",
        "results.json",
        *figures,
        *find(name).policy_sets(settings),
    }
    assert all((out / each).read_bytes().startswith(PNG) for each in figures)
    assert (results["experiment"], results["settings"]["seed"]) == (name, settings.seed)
    assert all(results["settings"][key] == json.loads(json.dumps(value)) for key, value in SMALL[name].items())
    assert progress[-1] == ("writing the report", 0, 1)
    assert len({step[0] for step in progress}) > 1
    assert all(table.rows for table in find(name).tables(results).values())


@pytest.mark.short_for(name=["covering"])
@pytest.mark.parametrize("name", NAMES)
def test_page_and_figures_are_drawn_again_from_results_alone(ran: Runs, name: str, tmp_path: Path) -> None:
    _, out, _, _ = ran(name)
    (tmp_path / "results.json").write_bytes((out / "results.json").read_bytes())
    with in_small(name):
        frame.redraw(tmp_path, PAGES[name])
    assert all(path.read_bytes() == (out / path.name).read_bytes() for path in tmp_path.iterdir())
    assert (tmp_path / "report.html").stat().st_size > 10_000


AGAIN = {
    "covering": {"families": ("two-walls",)},
    "baselines": {"benchmarks": ("inventory",)},
    "families": {"families": ("maintenance",), "methods": ("certified-returns", "safe-only")},
    "gridworld": {"methods": ("safe-only", "published")},
    "promise": {"number": 3},
}


@pytest.mark.long
@pytest.mark.parametrize("name", AGAIN)
def test_worker_processes_change_nothing(name: str, ran: Runs, tmp_path: Path) -> None:
    """Not even with fewer families or methods."""
    again, first = reproduce(name, tmp_path, jobs=2, **AGAIN[name]).results, ran(name).results
    if name == "covering":
        assert again["rows"] == first["rows"][3:]
    elif name == "promise":
        once = reproduce(name, tmp_path, **AGAIN[name]).results
        assert {**again, "seconds": 0} == {**once, "seconds": 0}
    else:
        key, part = next(iter(AGAIN[name].items()))
        each, whole = (again, first) if key == "methods" else (again[key][part[0]], first[key][part[0]])
        for method, summary in each["methods"].items():
            assert summary == whole["methods"][method]


@pytest.mark.long
def test_the_same_seed_gives_the_same_results_and_another_seed_others(ran: Runs, tmp_path: Path) -> None:
    first, again = ran("gridworld").results, reproduce("gridworld", tmp_path / "again").results
    untimed = {"seconds": 0, "seconds_by_stage": {}}
    assert {**again, **untimed} == {**first, **untimed}
    other = reproduce("gridworld", tmp_path / "other", seed=1, methods=("safe-only", "published")).results
    assert other["methods"]["published"]["regret"] != first["methods"]["published"]["regret"]


def test_a_run_may_be_repeated_into_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with mock.patch.object(frame, "png", return_value=PNG):
        for _ in range(2):
            reproduce("covering", tmp_path, families=("two-walls",), epsilons=(0.05,), points=1000)
    assert {file.name for file in tmp_path.iterdir()} == {"mine.txt", "covering.png", "report.html", "results.json"}


def test_nothing_is_done_for_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    experiment = find("families")
    for path in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(ArtifactError, match="out must be a folder"):
            experiment.reproduce(experiment.settings(), path)
    with pytest.raises(InvalidInput, match="jobs must be a whole number of at least 1, got 0"):
        experiment.reproduce(experiment.settings(), tmp_path / "new", jobs=0)
    frame.check_folder(tmp_path)
    frame.check_folder(tmp_path / "not" / "there" / "yet")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_report_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """The disk fills up while the second file is written."""
    written: list[str] = []

    def full(path: Path, content: bytes) -> None:
        if written:
            raise OSError(28, "No space left on device")
        written.append(path.name)
        path.write_bytes(content)

    results = results_of("covering")
    with (
        mock.patch.object(frame, "png", return_value=PNG),
        mock.patch("surefoot.files.write_new", full),
        pytest.raises(ArtifactError, match="No space left"),
    ):
        frame.write_report(tmp_path, results, PAGES["covering"](results))
    assert written == ["covering.png"]
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------------------------ gridworld


def test_summaries_of_methods_follow_the_contract(ran: Runs) -> None:
    settings, _, results, _ = ran("gridworld")
    assert results["settings"]["noises"] == list(gridworld_tasks.PUBLISHED_TEST_NOISES[:2])
    assert tuple(results["methods"]) == settings.methods
    assert {name for name, each in results["methods"].items() if each["certified"]} == {"safe-only", "paper"}
    for summary in results["methods"].values():
        assert len(summary["regret"]) == settings.tasks
        assert summary["regret_mean"] == pytest.approx(np.mean(summary["regret"]))
        assert 0 <= summary["unsafe_tasks"] <= settings.tasks
        assert 0 <= summary["unsafe_episodes"] <= settings.tasks * settings.episodes
        assert isinstance(summary["min_margin"], float)
        curve = summary["curve"]
        assert (curve["episode"][0], curve["episode"][-1]) == (1, settings.episodes)
        assert len(curve["episode"]) == len(curve["regret_mean"]) == len(curve["margin_mean"])
        assert curve["regret_mean"][-1] == pytest.approx(summary["regret_mean"])


def test_the_methods_of_the_paper_on_its_gridworld(ran: Runs) -> None:
    """Never adapting has K times the gap between the optimal value and the safe policy's; 'paper' does the same."""
    settings, out, results, _ = ran("gridworld")
    never, paper = results["methods"]["safe-only"], results["methods"]["paper"]
    safe = PolicyValueSet.load(out / "gridworld.policyset").safe_policy
    tasks = [gridworld_tasks.gridworld().task([noise]) for noise in results["settings"]["noises"]]
    gaps = [solve(task).values.reward - evaluate(task, safe).reward for task in tasks]
    assert never["regret"] == pytest.approx(settings.episodes * np.array(gaps), rel=1e-9)
    assert paper["regret"] == never["regret"]
    (line,) = (line for line in results["plan"] if line["method"] == "paper")
    assert line["episodes"] is None or line["episodes"] > settings.episodes
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "docs/experiments.md lists every place" in page
    assert "no certified method ever deployed anything unsafe; of 2 without a proof 1 did." in page
    assert "V* = 59.74 and 51.96" in page


def test_the_limit_is_shown_and_no_method_that_keeps_the_promise_is_below_it(ran: Runs) -> None:
    """Certified methods beside it are run at length by the command itself; never adapting keeps the promise too."""
    settings, _, results, _ = ran("gridworld")
    limit, never = results["limit"], results["methods"]["safe-only"]["regret"]
    assert limit["episode"][-1] == settings.episodes
    assert limit["mean"] == sorted(limit["mean"])
    assert 0 < limit["mean"][-1] == pytest.approx(np.mean(limit["tasks"]))
    assert all(least < regret for least, regret in zip(limit["tasks"], never, strict=True))
    assert "times the limit" in gridworld.tables(results)[gridworld.TEST].headers


@pytest.mark.long
def test_fresh_tasks_have_a_table_of_their_own(tmp_path: Path) -> None:
    """Their totals are those of the runs themselves, on noises drawn from the distribution."""
    methods = ("safe-only", "lb-sgd-theory", "pce")
    results = reproduce("gridworld", tmp_path, episodes=300, tasks=1, fresh=3, methods=methods).results
    assert tuple(results["fresh"]) == methods
    assert all(len(found["regret"]) == found["tasks"] == 3 for found in results["fresh"].values())
    policies = PolicyValueSet.load(tmp_path / "gridworld.policyset")
    family = gridworld_tasks.gridworld()
    tasks = [family.task(noise) for noise in family.sample(3, np.random.default_rng([0, 2]))]
    safe = [solve(task).values.reward - evaluate(task, policies.safe_policy).reward for task in tasks]
    assert results["fresh"]["safe-only"]["regret"] == pytest.approx(300 * np.array(safe), rel=1e-9)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "On fresh tasks" in text
    assert "The best baseline that was never unsafe here is ‘lb-sgd-theory’" in text.replace("\u2011", "-")
    assert "On fresh tasks" not in render(gridworld.page({**results, "fresh": {}}).page)


@pytest.mark.long
def test_the_published_numbers(tmp_path: Path) -> None:
    """Never adapting costs 95.8 k; the paper's figure shows Safe-PCE near 40 k and PCE near 13 k, unsafe."""
    settings = gridworld.GridworldSettings(methods=("safe-only", "paper", "published", "pce"))
    methods = gridworld.EXPERIMENT.reproduce(settings, tmp_path)["methods"]
    assert methods["safe-only"]["regret_mean"] == pytest.approx(95_800, abs=100)
    assert methods["paper"]["regret"] == methods["safe-only"]["regret"]
    assert 30_000 < methods["published"]["regret_mean"] < 50_000
    assert 10_000 < methods["pce"]["regret_mean"] < 20_000
    assert methods["pce"]["unsafe_tasks"] >= 8
    for name in ("safe-only", "paper"):
        assert methods[name]["unsafe_episodes"] == 0
        assert methods[name]["min_margin"] > 0.3


# ------------------------------------------------------------------------------------------------- further families


@pytest.mark.long
@pytest.mark.parametrize("name", families.FAMILIES)
def test_on_further_families_adapting_pays_and_is_safe(ran: Runs, name: str) -> None:
    settings, out, results, _ = ran("families")
    found, policies = results["families"][name], PolicyValueSet.load(out / f"{name}.policyset")
    tasks = families.FAMILIES[name]()
    assert (policies.task_digest, policies.recipe["family"]) == (tasks.digest(), name)
    assert (found["cells"], tuple(found["methods"])) == (400, settings.methods)
    assert found["uncovered"] < 1e-12
    assert min(found["seconds_per_run"].values()) > 0
    regret = {method: np.array(summary["regret"]) for method, summary in found["methods"].items()}
    for parameter, never in zip(found["settings"]["parameters"], regret["safe-only"], strict=True):
        task = tasks.task(parameter)
        gap = solve(task).values.reward - evaluate(task, policies.safe_policy).reward
        assert never == pytest.approx(settings.episodes * gap, rel=1e-9)
    for method, summary in found["methods"].items():
        assert (regret[method] <= regret["safe-only"] * (1 + 1e-9)).all(), method
        # 3 tasks at risk 0.05: not a statistical test, but seeded and exact, so that a wrong bound shows.
        assert summary["certified"]
        assert summary["unsafe_episodes"] == 0, method
        assert summary["min_margin"] >= 0, method
    # Share of the regret of never adapting that so short a run may leave; without a model it takes a longer one.
    for method, share in {"likelihood": 0.5, "likelihood-split": 0.5, "ball": 0.5, "returns": 0.9}.items():
        assert regret[f"certified-{method}"].mean() < share * regret["safe-only"].mean(), method
    assert regret["certified-likelihood-split"].mean() < regret["certified-likelihood"].mean(), (
        "with an eighth of cells"
    )


@pytest.mark.long
def test_the_page_on_further_families_shows_intervals_and_who_was_unsafe(
    ran: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "png", lambda figure: b"")
    results = ran("families").results
    windy = json.loads(json.dumps(results["families"]["windy"]))
    told = families.page({**results, "families": {"windy": windy}}).page.verdict.sentence
    assert "no certified method ever deployed anything unsafe" in told
    by_name = {row[0]: row for row in families.methods_table(windy).rows}
    assert by_name["safe-only"][3:6] == ("1.00", "0 of 3", "0.000 – 0.708")  # 1 - 0.025^(1/3)
    windy["methods"]["certified-ball"].update(unsafe_tasks=2, unsafe_episodes=17)
    told = families.page({**results, "families": {"windy": windy}}).page.verdict.sentence
    assert "unsafe policies were deployed, though certified, by ‘windy: certified-ball’ on 2 of 3" in told
    (cell,) = (row[4] for row in families.methods_table(windy).rows if row[0] == "certified-ball")
    assert (cell.text, cell.tone) == ("2 of 3", "bad")


# ------------------------------------------------------------------------------------------------------------ baselines

# What the safe policies cost: a fifth of the budget, and the start that LB-SGD's authors report.
SAFE_COSTS = {"factored": [0.6], "media": [1.0], "inventory": [0.7], "two-walls": [1.688, 1.800]}


@pytest.mark.long
@pytest.mark.parametrize("name", baselines.BENCHMARKS)
def test_on_benchmarks_of_baselines_the_certified_method_adapts_and_is_safe(ran: Runs, name: str) -> None:
    found, benchmark = ran("baselines").results["benchmarks"][name], baselines.BENCHMARKS[name]
    assert found["settings"]["parameter"] == list(benchmark.parameter)
    assert all(tuple(found[key]) == OURS for key in ("methods", *baselines.BESIDE))
    np.testing.assert_allclose(found["safe_cost"], SAFE_COSTS[name], atol=5e-4)
    gap = solve(benchmark.task).values.reward - evaluate(benchmark.task, benchmark.safe_policy(benchmark.task)).reward
    never, certified = (found["methods"][method] for method in OURS)
    assert never["regret"] == pytest.approx([300 * gap] * 2, rel=1e-9)
    assert found["growth"]["safe-only"]["exponent"] == pytest.approx(1.0, abs=1e-9)
    assert found["last"]["safe-only"]["gap"] == pytest.approx(gap, rel=1e-9)
    assert certified["regret_mean"] < 0.6 * never["regret_mean"]
    assert certified["unsafe_episodes"] == 0
    if name == "two-walls":
        assert found["optimum"] == pytest.approx(1.07483758, abs=5e-9)


@pytest.mark.long
def test_the_safe_policy_of_a_benchmark_is_the_authors(ran: Runs) -> None:
    benchmark = baselines.BENCHMARKS["inventory"]
    policies = baselines.train_benchmark("inventory", ran("baselines").settings)
    assert isinstance(policies.safe_policy, TabularPolicy)
    expected = benchmark.safe_policy(benchmark.task).probabilities
    np.testing.assert_array_equal(policies.safe_policy.probabilities, expected)


@pytest.mark.long
def test_the_page_on_baselines_says_who_was_unsafe_and_what_was_cut(ran: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A baseline that is a copy of safe-only, and one that is unsafe."""
    monkeypatch.setattr(frame, "png", lambda figure: b"")
    results = ran("baselines").results
    found = json.loads(json.dumps(results["benchmarks"]["factored"]))
    for key in ("methods", *baselines.BESIDE):
        found[key]["dope-theory"] = found[key]["safe-only"]
    page = baselines.page({**results, "benchmarks": {"factored": found}}).page
    assert page.verdict.sentence.startswith("Of 1 baselines on benchmarks of their authors 0 were ever unsafe; no")
    assert page.verdict.answers[0].value == "1 of 1"
    assert page.verdict.answers[1].beside == "no baseline was unsafe in any episode"
    assert "The authors had 100,000 episodes, 20 runs; this is 300 episodes, 2 runs." in page.sections[0].notes
    found["methods"]["dope-theory"] = {
        **found["methods"]["safe-only"],
        **{"unsafe_tasks": 1, "unsafe_episodes": 17, "certified": False},
    }
    found["settings"].update(episodes=100_000, runs=20)
    page = baselines.page({**results, "benchmarks": {"factored": found}}).page
    assert "of their authors 1 was ever unsafe" in page.verdict.sentence
    assert page.verdict.answers[1].beside == "most often ‘dope-theory, factored’, in 17 episodes"
    assert "As many episodes and runs as the authors had (100,000 episodes, 20 runs)." in page.sections[0].notes
    (cell,) = (row[5] for row in baselines.methods_table(found).rows if row[0] == "dope-theory")
    assert (cell.text, cell.tone) == ("17 in 1 of 2 runs", "bad")


# ----------------------------------------------------------------------------------------------------------- the others


def test_intervals_of_covering_numbers_hold_what_is_known_and_covers_come_close(ran: Runs) -> None:
    rows = ran("covering").results["rows"]
    assert len(rows) == 6
    for row in rows:
        assert row["lower"] <= row["exact"] <= row["upper"]
        assert row["exact_as_left"] <= row["exact"]
        # Its centres are sampled tasks, and it may leave 3δ of its samples out: hardly fewer, and not many more.
        assert row["exact_as_left"] - 1 <= row["found"] <= 1.5 * row["exact_as_left"] + 1
    assert [row["found"] for row in rows[:3]] == sorted(row["found"] for row in rows[:3])


@pytest.mark.long
def test_samples_grow_with_the_power_of_the_bound(ran: Runs) -> None:
    """Twice: no method can do with less, and none needs more than a logarithm more."""
    results = ran("lower-bound").results
    (fit,) = results["fits"]
    assert abs(fit["exponent"] - lower_bound.EXPONENTS["epsilon"]) < 0.5
    assert len(results["rows"]) == len(lower_bound.SWEEPS["epsilon"])
    assert all(row["unsafe"] == 0 for row in results["rows"])


@pytest.mark.long
def test_measured_regret_is_below_the_certified_one_and_far_below_the_papers_bound(ran: Runs) -> None:
    results = ran("regret").results
    (run,), (family,) = results["runs"], results["families"]
    assert not run["exceeded"]
    assert not run["unsafe"]
    assert all(found <= most * (1 + 1e-9) for found, most in zip(run["regret"], run["certified"], strict=True))
    assert run["certified"][-1] < run["safe_gap"] * 600, "what is certified is better than never adapting"
    assert run["regret"][-1] < family["trivial"][-1] < family["shape"][-1] < family["theorem"][-1]
    assert family["says_something_after"] > 1e9


@pytest.mark.long
def test_every_random_family_is_counted_or_refused_with_a_reason(ran: Runs) -> None:
    results = ran("promise").results
    assert [row["families"] + row["refused"] for row in results["counts"]] == [10, 10]
    assert sum(row["families"] for row in results["refusals"]) == sum(row["refused"] for row in results["counts"])
    assert all(row["reason"] for row in results["refusals"])
    assert any("known on every cell" in row["reason"] for row in results["refusals"])  # likelihoods must be
    for total in results["counts"]:
        parts = [row for row in results["kinds"] if row["risk"] == total["risk"] and row["families"]]
        assert sum(row["tasks"] for row in parts) == total["tasks"]
    for table in find("promise").tables(results).values():
        assert {row[2].text for row in table.rows} <= {"kept", "broken", "no power", "too few tasks to tell"}


@pytest.mark.long
def test_the_test_of_the_task_sees_what_the_methods_miss(ran: Runs) -> None:
    found = {(row["shift"], row["test"]): row for row in ran("shift").results["rows"]}
    assert len(found) == (1 + len(SHIFTS)) * (1 + len(shift.TESTS))
    for name in ("red cell moved", "sticky actions 0.1", "sticky actions 0.3"):
        assert found[name, ""]["alarms"] == 0
        assert all(found[name, test]["alarms"] == 2 for test in shift.TESTS)
    for name in (shift.FROM_D, SHIFTS[0]):
        assert all(found[name, test]["alarms"] == 0 for test in shift.TESTS)


@pytest.mark.long
def test_the_promise_at_a_distance_is_kept_and_paid_for(ran: Runs) -> None:
    results = ran("shift").results
    found = {(row["method"], row["shift"]): row for row in results["near"]}
    for method in shift.NEAR_METHODS:
        assert found[method, 0.001]["unsafe"] == 0
        assert found[method, 0.001]["distance"] <= 0.001 + 1e-12
        assert found[method, 0.0]["regret"] < found[method, 0.001]["regret"] < found[method, 0.0]["regret_never"]
    assert all(row["unsafe"] == 0 for row in results["model_free"])
    assert {row["shift"] for row in results["model_free"]} == {SHIFTS[0], *SHIFTS[4:]}


@pytest.mark.long
def test_a_budget_on_the_mean_and_one_on_the_tail_are_kept(ran: Runs) -> None:
    """And only one of them holds the worst episodes down."""
    found = ran("tail").results["rows"]
    rows = {name: [row for row in found if row["budget"] == name] for name in ("mean", "tail")}
    assert [len(own) for own in rows.values()] == [2, 2]
    assert not any(row["unsafe"] for row in found)
    for row in found:
        assert np.isclose(sum(row["law"]), 1.0)
        assert len(row["law"]) == tail.STEPS + 1
        assert row["reward_first"] <= row["reward"] <= row["optimum"] + 1e-6
    assert all(row["mean"] <= 1.0 + 1e-9 for row in rows["mean"])
    assert all(row["cvar"] <= 3.0 + 1e-9 for row in rows["tail"])
    assert all(row["cvar"] > 3.0 for row in rows["mean"]), "or there would be nothing to hold down"
