"""`surefoot reproduce regret`: measured below certified below never adapting, and the paper's bound above all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surefoot import theory
from surefoot.lab.experiments import PAGES
from surefoot.lab.experiments import regret as experiment
from surefoot.lab.experiments.frame import redraw
from surefoot.lab.experiments.regret import BASE, EXPERIMENT, SWEEPS, GridworldVariant, RegretSweeps, tables
from surefoot.tasks.gridworld_tasks import gridworld


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """One family is enough, and candidates may be few: what is certified does not rest on them."""
    out = tmp_path_factory.mktemp("regret")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(experiment, "EPSILON", 0.02)
        patched.setattr(experiment, "SWEEPS", {"cover": (BASE,), "margin": (BASE,)})
        settings = RegretSweeps(sweeps=("margin",), methods=("certified-likelihood",), tasks=1, episodes=600)
        return out, EXPERIMENT.reproduce(settings, out, jobs=1)


def test_measured_is_below_certified_and_far_below_the_paper(ran: tuple[Path, dict[str, Any]]) -> None:
    _, results = ran
    (run,), (family,) = results["runs"], results["families"]
    assert not run["exceeded"]
    assert not run["unsafe"]
    assert all(regret <= most * (1 + 1e-9) for regret, most in zip(run["regret"], run["certified"], strict=True))
    assert run["certified"][-1] < run["safe_gap"] * 600, "what is certified is better than never adapting"
    assert run["regret"][-1] < family["trivial"][-1] < family["shape"][-1] < family["theorem"][-1]
    assert family["says_something_after"] > 1e9


def test_the_page_is_drawn_again_from_its_results(ran: tuple[Path, dict[str, Any]]) -> None:
    out, results = ran
    assert (out / "regret.png").stat().st_size > 10_000
    assert len(tables(results)["At the last episode"].rows) == 1
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(experiment, "EPSILON", 0.02)
        patched.setattr(experiment, "SWEEPS", {"cover": (BASE,), "margin": (BASE,)})
        page = (out / "report.html").read_bytes()
        redraw(out, PAGES["regret"])
        assert (out / "report.html").read_bytes() == page


@pytest.mark.long
def test_the_theorem_is_taken_where_it_holds() -> None:
    for each in experiment.accuracies(gridworld(), 0.04, 0.05):
        assert theory.slater_requirement(each.epsilon, 0.9) <= 0.04 * (1 + 1e-9)
        assert theory.theorem_probability(each.delta, each.cover) >= 0.95
        assert each.cover == experiment.cover_number(gridworld(), each.epsilon / 2, each.delta)


def test_families_are_run_once_each() -> None:
    families = RegretSweeps().families
    assert families[0] == BASE
    assert len(families) == len(set(families)) == sum(map(len, SWEEPS.values())) - 1
    assert GridworldVariant(std=0.01) in families
