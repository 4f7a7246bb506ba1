"""The reproduction of the paper's gridworld: what it writes, that it repeats, and the published numbers."""

from __future__ import annotations

import html.parser
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from surefoot.errors import ArtifactError, InvalidInput
from surefoot.lab.experiments.frame import check_folder, write_report
from surefoot.lab.experiments.gridworld import limit
from surefoot.lab.experiments.gridworld.page import TEST, gridworld_page, reference_methods, tables
from surefoot.lab.experiments.gridworld.run import EXPERIMENT, noises_under_test
from surefoot.lab.experiments.gridworld.settings import GridworldSettings
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.page import render
from surefoot.simulate import plan
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.solve import solve
from surefoot.tasks.gridworld_tasks import PUBLISHED_TEST_NOISES, gridworld

QUICK = GridworldSettings(episodes=1500, tasks=2, methods=("safe-only", "paper", "published", "pce"))
FILES = ["figure1.png", "figure2.png", "gridworld.policyset", "report.html", "results.json"]
PNG = b"\x89PNG\r\n\x1a\n"


def small(settings: GridworldSettings, out: Path) -> dict[str, Any]:
    """A reproduction in this process whose plan tries the certified methods for a few episodes only, and whose limits
    are those of few tasks."""
    brief = mock.patch.object(plan, "TRIAL_EPISODES", 20), mock.patch.object(limit, "ALTERNATIVES", 3)
    with brief[0], brief[1], pytest.warns(UserWarning, match="theorem does not apply"):
        return EXPERIMENT.reproduce(settings, out, jobs=1)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reproduction") / "new" / "folder"
    small(QUICK, folder)
    return folder


@pytest.fixture(scope="module")
def results(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "results.json").read_text()))


# ------------------------------------------------------------------------------------------------------ what it writes


def test_files(out: Path) -> None:
    assert sorted(file.name for file in out.iterdir()) == FILES
    for name in ("figure1.png", "figure2.png"):
        assert (out / name).read_bytes().startswith(PNG)


def test_results_follow_the_contract(results: dict[str, Any]) -> None:
    assert results["experiment"] == "gridworld"
    assert isinstance(results["version"], str)
    assert isinstance(results["seconds"], float)
    assert results["settings"]["episodes"] == QUICK.episodes
    assert results["settings"]["noises"] == list(PUBLISHED_TEST_NOISES[:2])
    assert tuple(results["methods"]) == QUICK.methods
    for summary in results["methods"].values():
        assert isinstance(summary["certified"], bool)
        assert len(summary["regret"]) == QUICK.tasks
        assert summary["regret_mean"] == pytest.approx(np.mean(summary["regret"]))
        assert 0 <= summary["unsafe_tasks"] <= QUICK.tasks
        assert 0 <= summary["unsafe_episodes"] <= QUICK.tasks * QUICK.episodes
        assert isinstance(summary["min_margin"], float)
        curve = summary["curve"]
        assert curve["episode"][0] == 1
        assert curve["episode"][-1] == QUICK.episodes
        assert len(curve["episode"]) == len(curve["regret_mean"]) == len(curve["margin_mean"])
        assert curve["regret_mean"][-1] == pytest.approx(summary["regret_mean"])


def test_only_methods_with_a_proof_are_called_certified(results: dict[str, Any]) -> None:
    certified = {name for name, summary in results["methods"].items() if summary["certified"]}
    assert certified == {"safe-only", "paper"}


def test_regret_of_never_adapting_by_hand(results: dict[str, Any], out: Path) -> None:
    """K times the gap between the optimal value and the safe policy's, both computed here."""
    safe = PolicyValueSet.load(out / "gridworld.policyset").safe_policy
    for (
        noise,
        regret,
    ) in zip(results["settings"]["noises"], results["methods"]["safe-only"]["regret"], strict=True):
        task = gridworld().task([noise])
        gap = solve(task).values.reward - evaluate(task, safe).reward
        assert regret == pytest.approx(QUICK.episodes * gap, rel=1e-9)


def test_paper_equals_safe_only(results: dict[str, Any]) -> None:
    never, paper = results["methods"]["safe-only"], results["methods"]["paper"]
    assert paper["regret"] == never["regret"]
    (line,) = (line for line in results["plan"] if line["method"] == "paper")
    assert line["episodes"] is None or line["episodes"] > QUICK.episodes


class Links(html.parser.HTMLParser):
    """Everything a page would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag in ("script", "iframe", "object", "embed", "link")
        self.found += [value for name, value in attrs if name in ("src", "href", "srcset", "data") and value]


def test_the_report_is_self_contained(out: Path) -> None:
    text = (out / "report.html").read_text(encoding="utf-8")
    links = Links()
    links.feed(text)
    assert links.scripts == 0
    assert all(link.startswith("#") for link in links.found)
    assert text.count("<svg") == 2
    assert "@import" not in text
    assert "url(" not in text.replace("url(#", "")


def test_the_report_answers_first_and_names_the_page_of_discrepancies(out: Path) -> None:
    text = (out / "report.html").read_text(encoding="utf-8")
    assert "docs/experiments.md lists every place" in text
    assert "no certified method ever deployed anything unsafe; of 2 without a proof 1 did." in text
    assert "V* = 59.74 and 51.96" in text


@pytest.mark.long
def test_fresh_tasks_have_a_table_of_their_own(tmp_path: Path) -> None:
    """Their totals are those of the runs themselves, on noises drawn from the distribution."""
    settings = GridworldSettings(episodes=300, tasks=1, fresh=3, methods=("safe-only", "lb-sgd-theory", "pce"))
    results = small(settings, tmp_path)
    assert tuple(results["fresh"]) == settings.methods
    assert all(len(found["regret"]) == found["tasks"] == 3 for found in results["fresh"].values())
    policies = PolicyValueSet.load(tmp_path / "gridworld.policyset")
    noises = gridworld().sample(3, np.random.default_rng([0, 2]))[:, 0]
    tasks = [gridworld().task([noise]) for noise in noises]
    safe = [solve(task).values.reward - evaluate(task, policies.safe_policy).reward for task in tasks]
    assert results["fresh"]["safe-only"]["regret"] == pytest.approx(300 * np.array(safe), rel=1e-9)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "On fresh tasks" in text
    assert "The best baseline that was never unsafe here is ‘lb-sgd-theory’" in text.replace("\u2011", "-")
    assert "On fresh tasks" not in _page_without_fresh(results)


def _page_without_fresh(results: dict[str, Any]) -> str:
    return render(gridworld_page({**results, "fresh": {}}).page)


def test_the_best_baseline_is_one_that_was_never_unsafe() -> None:
    def found(regret: float, unsafe: int = 0) -> Any:
        return {"regret_mean": regret, "unsafe_tasks": unsafe}

    methods = {
        "safe-only": found(90.0),
        "pce": found(1.0),
        "dope-published": found(50.0, 1),
        "lb-sgd-theory": found(80.0),
        "safe-meta-published": found(70.0),
    }
    assert reference_methods(methods) == {"safe-only": "safe-only", "best baseline": "safe-meta-published"}
    assert reference_methods({"safe-only": found(90.0), "dope-published": found(50.0, 1)}) == {"safe-only": "safe-only"}


# ------------------------------------------------------------------------------------------------------- it repeats


def without_time(results: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in results.items() if key not in ("seconds", "seconds_by_stage")}


@pytest.mark.long
def test_the_same_seed_gives_the_same_results(results: dict[str, Any], out: Path, tmp_path: Path) -> None:
    again = small(QUICK, tmp_path)
    assert json.loads(json.dumps(without_time(again))) == without_time(results)
    assert (tmp_path / "figure2.png").read_bytes() == (out / "figure2.png").read_bytes()


@pytest.mark.long
def test_another_seed_gives_others(results: dict[str, Any], tmp_path: Path) -> None:
    other = small(replace(QUICK, seed=1, methods=("safe-only", "published")), tmp_path)
    assert other["methods"]["published"]["regret"] != results["methods"]["published"]["regret"]


@pytest.mark.long
def test_worker_processes_change_nothing(results: dict[str, Any], tmp_path: Path) -> None:
    methods = ("safe-only", "published")
    with mock.patch.object(plan, "TRIAL_EPISODES", 20), pytest.warns(UserWarning, match="theorem does not apply"):
        parallel = EXPERIMENT.reproduce(replace(QUICK, methods=methods), tmp_path, jobs=2)
    for name in methods:
        assert parallel["methods"][name] == results["methods"][name]


@pytest.mark.long
def test_a_run_may_be_repeated_into_the_same_folder(tmp_path: Path) -> None:
    tiny = GridworldSettings(episodes=20, tasks=1, methods=("safe-only",))
    (tmp_path / "mine.txt").write_text("mine")
    small(tiny, tmp_path)
    small(tiny, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([*FILES, "mine.txt"])


def test_further_tasks_continue_the_published_ones() -> None:
    assert noises_under_test(GridworldSettings(tasks=3)).tolist() == list(PUBLISHED_TEST_NOISES[:3])
    thirteen = noises_under_test(GridworldSettings(tasks=13))
    assert thirteen[:10].tolist() == list(PUBLISHED_TEST_NOISES)
    assert len(set(thirteen)) == 13
    assert thirteen[:12].tolist() == noises_under_test(GridworldSettings(tasks=12)).tolist()


# --------------------------------------------------------------------------------------------------- what it refuses


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"episodes": 0}, "episodes must be a whole number of at least 1, got 0"),
        ({"tasks": -1}, "tasks must be a whole number of at least 1, got -1"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"risk": 1.0}, r"risk must lie strictly between 0 and 1, got 1\.0"),
        ({"methods": ()}, "methods must be names out of .* got none"),
        ({"methods": ("magic",)}, "methods must be names out of .* got magic"),
        ({"methods": ("pce", "pce")}, "methods must be different names, got pce, pce"),
    ],
)
def test_settings_are_checked(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(QUICK, **change)


def test_no_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="jobs must be a whole number of at least 1, got 0"):
        EXPERIMENT.reproduce(QUICK, tmp_path / "never", jobs=0)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(ArtifactError, match="out must be a folder"):
            check_folder(path)
    check_folder(tmp_path)
    check_folder(tmp_path / "not" / "there" / "yet")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_report_that_cannot_be_written_leaves_nothing(results: dict[str, Any], out: Path, tmp_path: Path) -> None:
    """The disk fills up while the second file is written. What would have been written is what the run wrote."""
    written: list[str] = []

    def full(path: Path, content: bytes) -> None:
        if written:
            raise OSError(28, "No space left on device")
        written.append(path.name)
        path.write_bytes(content)

    report = gridworld_page(results)
    assert render(report.page) == (out / "report.html").read_text(encoding="utf-8")
    assert dict(report.figures) == {name: (out / name).read_bytes() for name in ("figure1.png", "figure2.png")}
    with (
        mock.patch("surefoot.files.write_new", full),
        pytest.raises(ArtifactError, match="No space left"),
    ):
        write_report(tmp_path, results, report)
    assert written == ["figure1.png"]
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------------ the published numbers


@pytest.mark.long
def test_the_published_numbers(tmp_path: Path) -> None:
    """Never adapting costs 95.8 k; the paper's figure shows Safe-PCE near 40 k and PCE near 13 k, unsafe."""
    settings = GridworldSettings(methods=("safe-only", "paper", "published", "pce"))
    with pytest.warns(UserWarning, match="theorem does not apply"):
        methods = EXPERIMENT.reproduce(settings, tmp_path)["methods"]
    assert methods["safe-only"]["regret_mean"] == pytest.approx(95_800, abs=100)
    assert methods["paper"]["regret"] == methods["safe-only"]["regret"]
    assert 30_000 < methods["published"]["regret_mean"] < 50_000
    assert 10_000 < methods["pce"]["regret_mean"] < 20_000
    assert methods["pce"]["unsafe_tasks"] >= 8
    for name in ("safe-only", "paper"):
        assert methods[name]["unsafe_episodes"] == 0
        assert methods[name]["min_margin"] > 0.3


def test_the_limit_is_shown_and_no_method_that_keeps_the_promise_is_below_it(results: dict[str, Any]) -> None:
    """Certified methods beside it are run at length by the command itself; never adapting keeps the promise too."""
    limit = results["limit"]
    assert limit["episode"][-1] == QUICK.episodes
    assert limit["mean"] == sorted(limit["mean"])
    assert 0 < limit["mean"][-1] == pytest.approx(np.mean(limit["tasks"]))
    assert all(
        least < regret for least, regret in zip(limit["tasks"], results["methods"]["safe-only"]["regret"], strict=True)
    )
    headers = tables(results)[TEST].headers
    assert "times the limit" in headers
