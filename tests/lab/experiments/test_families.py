"""`reproduce families` in small: what it writes, that it repeats, and that adapting pays and is safe."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot.errors import ArtifactError, InvalidInput
from surefoot.lab.experiments.families import EXPERIMENT, FAMILIES, FurtherFamilies, methods_table, page
from surefoot.lab.experiments.frame import redraw
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.solve import solve

pytestmark = pytest.mark.filterwarnings("ignore::surefoot.training.preflight.UncertifiedWarning")

QUICK = FurtherFamilies(episodes=400, tasks=3, epsilon=0.03, delta=0.12, cells=784)
FILES = ["maintenance.png", "maintenance.policyset", "report.html", "results.json", "windy.png", "windy.policyset"]
# Share of the regret of never adapting that so short a run may leave; 'certified-model-free' needs a longer one.
LEFT = {"certified-likelihood": 0.5, "certified-likelihood-split": 0.5, "certified-ball": 0.5, "certified-returns": 0.9}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("families") / "new"
    EXPERIMENT.reproduce(QUICK, folder, jobs=1)
    return folder


@pytest.fixture(scope="module")
def results(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "results.json").read_text()))


def test_files(out: Path) -> None:
    assert sorted(file.name for file in out.iterdir()) == FILES
    for name in FAMILIES:
        policies = PolicyValueSet.load(out / f"{name}.policyset")
        assert policies.task_digest == FAMILIES[name]().digest()
        assert policies.recipe["family"] == name


def test_results_name_everything_that_was_run(results: dict[str, Any]) -> None:
    assert results["experiment"] == "families"
    assert results["settings"]["episodes"] == QUICK.episodes
    assert list(results["families"]) == ["windy", "maintenance"]
    for family in results["families"].values():
        assert tuple(family["methods"]) == QUICK.methods
        assert set(family["seconds_per_run"]) == set(QUICK.methods)
        assert min(family["seconds_per_run"].values()) > 0
        assert family["cells"] == 784
        assert family["uncovered"] < 1e-12
        assert len(family["settings"]["parameters"]) == QUICK.tasks
        for summary in family["methods"].values():
            assert summary["certified"] is True
            assert (summary["tasks"], summary["episodes"]) == (QUICK.tasks, QUICK.episodes)
    assert results["seconds"] == pytest.approx(sum(family["seconds"] for family in results["families"].values()))


@pytest.mark.parametrize("name", list(FAMILIES))
def test_regret_of_never_adapting_by_hand(results: dict[str, Any], out: Path, name: str) -> None:
    family = results["families"][name]
    safe = PolicyValueSet.load(out / f"{name}.policyset").safe_policy
    for parameter, regret in zip(
        family["settings"]["parameters"], family["methods"]["safe-only"]["regret"], strict=True
    ):
        task = FAMILIES[name]().task(parameter)
        gap = solve(task).values.reward - evaluate(task, safe).reward
        assert regret == pytest.approx(QUICK.episodes * gap, rel=1e-9)


@pytest.mark.parametrize("name", list(FAMILIES))
def test_splitting_leaves_less_regret_than_eight_times_as_many_cells(results: dict[str, Any], name: str) -> None:
    methods = results["families"][name]["methods"]
    split, whole = (np.mean(methods[f"certified-likelihood{how}"]["regret"]) for how in ("-split", ""))
    assert split < whole


@pytest.mark.parametrize("name", list(FAMILIES))
def test_adapting_pays_and_is_safe(results: dict[str, Any], name: str) -> None:
    methods = results["families"][name]["methods"]
    never = methods["safe-only"]["regret"]
    for method, share in LEFT.items():
        assert np.mean(methods[method]["regret"]) < share * np.mean(never), method
    for method, summary in methods.items():
        assert (np.array(summary["regret"]) <= np.array(never) * (1 + 1e-9)).all(), method
        # 3 tasks at risk 0.05: not a statistical test, but seeded and exact, so that a wrong bound shows.
        assert summary["unsafe_episodes"] == 0, method
        assert summary["min_margin"] >= 0, method


def test_the_same_whatever_the_number_of_workers(results: dict[str, Any], tmp_path: Path) -> None:
    settings = replace(QUICK, families=("maintenance",), methods=("certified-returns", "safe-only"))
    again = EXPERIMENT.reproduce(settings, tmp_path / "again", jobs=2)["families"]["maintenance"]
    for method in settings.methods:
        assert again["methods"][method] == results["families"]["maintenance"]["methods"][method]


def test_the_report_can_be_drawn_again(out: Path) -> None:
    before = {name: (out / name).read_bytes() for name in ("report.html", "windy.png", "maintenance.png")}
    redraw(out, page)
    assert {name: (out / name).read_bytes() for name in before} == before


def test_the_report_shows_intervals_and_times(results: dict[str, Any]) -> None:
    report = page(results)
    assert sorted(report.figures) == ["maintenance.png", "windy.png"]
    assert "no certified method ever deployed anything unsafe" in report.page.verdict.sentence
    table = methods_table(results["families"]["windy"])
    by_name = {row[0]: row for row in table.rows}
    assert set(by_name) == set(QUICK.methods)
    assert by_name["safe-only"][3:6] == ("1.00", "0 of 3", "0.000 – 0.708")  # 1 - 0.025^(1/3)
    assert report.page.command == (
        "surefoot reproduce families --episodes 400 --tasks 3 \\\n"
        "  --methods safe-only,certified-likelihood,certified-likelihood-split,certified-ball,certified-returns,"
        "certified-model-free \\\n"
        "  --risk 0.05 --seed 0 --out DIR"
    )


def test_an_unsafe_method_is_shown_as_such(results: dict[str, Any]) -> None:
    family = json.loads(json.dumps(results["families"]["windy"]))
    family["methods"]["certified-ball"].update(unsafe_tasks=2, unsafe_episodes=17)
    shown = page({**results, "families": {"windy": family}}).page
    assert (
        "unsafe policies were deployed, though certified, by ‘windy: certified-ball’ on 2 of 3"
        in shown.verdict.sentence
    )
    (cell,) = (row[4] for row in methods_table(family).rows if row[0] == "certified-ball")
    assert (cell.text, cell.tone) == ("2 of 3", "bad")


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    settings = replace(QUICK, families=("maintenance",), methods=("safe-only",), tasks=2, episodes=10)
    EXPERIMENT.reproduce(settings, tmp_path, jobs=1, progress=lambda *step: told.append(step))
    assert told[0] == ("maintenance: training", 0, 1)
    assert [step for step in told if step[0] == "maintenance: adapting"] == [
        ("maintenance: adapting", done, 2) for done in range(3)
    ]


def test_nothing_is_done_for_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="out must be a folder"):
        EXPERIMENT.reproduce(QUICK, tmp_path / "file")
    with pytest.raises(InvalidInput, match="jobs must be a whole number of at least 1, got 0"):
        EXPERIMENT.reproduce(QUICK, tmp_path / "new", jobs=0)
    assert not (tmp_path / "new").exists()
