"""`reproduce locomotion` on a toy family whose values are known: what is deployed, what it is worth, the page."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

import numpy as np
import pytest
from kept_results import kept
from matplotlib.figure import Figure
from runner import BUDGET, FAMILY, JITTER, LEVELS, Runner, policy_set, pushing, true_values
from scipy import stats
from scipy.optimize import linprog

from bandit_world import BanditTask
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.lab.baselines.fixed_network import DOMAIN_RANDOMISED
from surefoot.lab.baselines.history_policy import HISTORY_CONDITIONED, HistoryPolicy
from surefoot.lab.baselines.rollout_buffer import safe_network
from surefoot.lab.experiments import frame
from surefoot.lab.experiments.judging import best
from surefoot.lab.experiments.locomotion import figure, page, policy_sets, run, tuning
from surefoot.lab.experiments.locomotion.policy_sets import (
    HELD_OUT,
    SAMPLE,
    SIGNALS,
    FamilyPolicies,
    Origin,
    load_shipped,
    load_trained,
)
from surefoot.lab.experiments.locomotion.run import SharedEpisodes, TaskRuns, adapt_to_task, learning_episodes
from surefoot.lab.experiments.locomotion.settings import (
    ADAPTING,
    DEFAULT_METHODS,
    FAMILIES,
    FIXED,
    KNOWN,
    NETWORKS,
    QUICK,
    LocomotionSettings,
)
from surefoot.learning.paper import published
from surefoot.learning.paper.published import HOPPER, ON_ROBOTS
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.metrics import ratio_interval
from surefoot.report.page import render
from surefoot.simulate.run import Spans
from surefoot.streams import Stream
from test_cli import surefoot

DOCS = Path(__file__).parents[3] / "docs"
METHODS = tuple(name for name in DEFAULT_METHODS if name not in (*NETWORKS, *FIXED))


@cache
def policies() -> PolicyValueSet:
    return policy_set()


def trained(**starts: Any) -> FamilyPolicies:
    simulated = {SAMPLE: 300, HELD_OUT: 700, SIGNALS: 50}
    told = Origin("made by hand", 0, policies().digest(), "0", 1.5, 4500, 2000, simulated=simulated)
    return FamilyPolicies(policies(), starts, told)


@pytest.fixture(scope="module", autouse=True)
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The toy in place of the robots, twice, with sets as they are shipped."""
    families, folder = {"runner": FAMILY, "again": FAMILY}, tmp_path_factory.mktemp("trained")
    for name in families:
        policies().save(folder / f"{name}.policyset")
        told = {"command": "made by hand", "seed": 0, "digest": policies().digest(), "version": "0", "seconds": 1.5}
        (folder / f"{name}.json").write_text(json.dumps(told))
    with mock.patch.dict(FAMILIES, families, clear=True), mock.patch.object(policy_sets, "TRAINED", folder):
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody looks at figures: drawing takes longest."""
    monkeypatch.setattr(Figure, "savefig", lambda _, target, **__: target.write(b"<svg/>"))


def small(**changes: Any) -> LocomotionSettings:
    given = {"families": ("runner",), "tasks": 4, "episodes": 1500, "methods": METHODS, "risk": 0.2, "watched": 60}
    return LocomotionSettings(**{**given, "judged": 400, "judged_others": 200, "judged_idle": 100, **changes})


# ------------------------------------------------------------------------------------------------------------- settings


BAD = {
    **{"families": ("mars",), "methods": ("pce", "nobody"), "risk": 1.5, "share": 0.0, "seed": -1},
    **{"tasks": 0, "watched": 0, "judged": 1, "judged_idle": 1},
    **{"network_tasks": -1, "network_episodes": 0, "experts": -1},
}


@pytest.mark.parametrize("name", BAD)
def test_settings_are_checked(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{name} must"):
        small(**{name: BAD[name]})


@pytest.mark.long
def test_nothing_of_robots_is_loaded_before_it_is_needed() -> None:
    code = (
        "import sys, surefoot.lab.experiments.frame; print({'jax', 'mujoco', 'optax', 'gymnasium'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


# ------------------------------------------------------------------------------ the constants behind the paper's figure


def test_published_radii_and_weights_by_hand() -> None:
    rules, entry = HOPPER, replace(policies().entries[0], safe_margin=np.array([0.36]))
    assert rules.reward_radius(np.array([600]))[0] == pytest.approx(10 + 28)
    assert rules.margin_radius(np.array([600]))[0] == pytest.approx(1 + 1)
    weights = [0.0]
    for step in range(15):
        assert rules.phase_length(entry, step, weights[-1]) == 350
        weights.append(rules.next_weight(entry, step, weights[-1]))
    assert rules.phase_length(entry, 15, weights[-1]) == math.inf
    assert weights[1] == pytest.approx(0.36 / 2.36)
    # 1/α - 1 shrinks by 2/3 in every step
    assert weights[15] == pytest.approx(1 / (1 + (2 / 3) ** 14 * (2.36 / 0.36 - 1)))


def test_published_raises_every_350_episodes_and_drops_what_is_far_off() -> None:
    where = small(episodes=1100)
    source = SharedEpisodes(Runner(np.array([1.0])), policies(), where, [0])
    spans = run.run_method(policies(), ON_ROBOTS, source, where, 0, {})
    assert [begin for begin, _ in _merged(spans)] == [0, 350, 700, 1050]
    assert spans[-1][0] == 1100
    strict = replace(HOPPER, reward_radius=lambda count: np.full(len(count), 1e-3))
    with mock.patch.object(published, "HOPPER", strict):
        spans = run.run_method(policies(), ON_ROBOTS, source, where, 0, {})
    assert _merged(spans) == [(0, {("", 0): 1.0})]  # every candidate fails its first test, on the safe policy


def _merged(spans: Any) -> Any:
    return [span for k, span in enumerate(spans) if k == 0 or span[1] != spans[k - 1][1]]


# ----------------------------------------------------------------------------------------- episodes, and what they show


def test_whoever_runs_a_policy_for_the_nth_time_gets_its_nth_episode() -> None:
    first, second = (SharedEpisodes(Runner(np.array([0.9])), policies(), small(), [3]) for _ in range(2))
    watching, summing = (learner(policies(), method=KNOWN[name], risk=0.2) for name in (ADAPTING, "pce"))
    together = first.pool(watching).upcoming(np.full(200, 2))
    second.pool(watching).upcoming(np.zeros(7, dtype=int))
    pool, drawn = second.pool(summing), np.array([2, 0, 2, 2, 0, 2, 2])
    for done in range(0, 200, 5):
        part = pool.upcoming(drawn)
        assert part.reward[drawn == 2].tolist() == together.reward[done : done + 5].tolist()
        assert part.observed is None
        pool.use(drawn)
    assert together.observed is not None
    assert len(set(together.reward[:60])) == 60
    assert set(together.reward[60:]) <= set(together.reward[:60])  # drawn from those there are
    assert len(set(together.reward[60:])) > 40


def test_methods_that_cannot_move_are_not_simulated() -> None:
    found = {name: learning_episodes(policies(), KNOWN[name], small()) for name in METHODS}
    assert found == {
        **dict.fromkeys(("safe-only", "paper"), 0),
        **dict.fromkeys((ON_ROBOTS.name, "pce"), 1500),
        **dict.fromkeys(("certified-model-free", "certified-returns", ADAPTING, "identify-and-look-up"), 60),
    }
    assert learning_episodes(policies(), KNOWN[ADAPTING], small(episodes=20)) == 20


@cache
def together() -> TaskRuns:
    return adapt_to_task(trained(), "runner", METHODS, np.array([0.8]), 1, small())


def test_a_method_alone_does_what_it_did_among_others() -> None:
    alone = adapt_to_task(trained(), "runner", (ADAPTING,), np.array([0.8]), 1, small())
    assert np.array_equal(together().deployed[ADAPTING].rows, alone.deployed[ADAPTING].rows)
    assert np.array_equal(together().deployed[ADAPTING].begins, alone.deployed[ADAPTING].begins)
    for spans in together().deployed.values():
        assert spans.begins[0] == 0
        assert (np.diff(spans.begins) > 0).all()
        assert spans.rows.sum(axis=1) == pytest.approx(np.ones(len(spans.rows)))
    assert together().deployed[ADAPTING].begins.max() <= 60  # then it keeps what it has
    assert together().deployed["pce"].rows[0].max() == 1


def test_values_are_those_of_the_formulas() -> None:
    found = together()
    assert (np.abs(found.mean - true_values(0.8, LEVELS)) < 5 * found.error + 1e-9).all()
    used = {name: spans.rows.any(axis=0) for name, spans in found.deployed.items()}
    deployed, certified = (
        np.any([mask for name, mask in used.items() if KNOWN[name].certified or anybody], axis=0)
        for anybody in (True, False)
    )
    assert (found.count[certified] >= 400).all()
    assert (found.count[deployed] >= 200).all()
    assert (found.count[~deployed] == 100).all()


# -------------------------------------------------------------------------------------------------------- plain numbers


def task_runs(weights: Any, begins: Any, mean: Any, error: float = 0.0) -> TaskRuns:
    values = np.array(mean, dtype=float)
    possible = best(BUDGET - values[None, :, 1], values[:, 0])
    spans = Spans(np.array(begins), np.array(weights, dtype=float), 100)
    return TaskRuns(np.array([1.0]), values, np.full_like(values, error), np.full(3, 9), possible, {"own": spans})


MEAN = [[1.0, 0.1], [2.0, 0.4], [4.0, 0.9]]  # the best within 0.5: half of the first, half of the third, hence 2.5


def test_the_interval_of_a_share_ends_at_all_of_it() -> None:
    low, high = ratio_interval([1.0, 1.0, 2.5], [2.0, 2.0, 4.0])
    assert run.share_interval([1.0, 1.0, 2.5], [2.0, 2.0, 4.0]) == [low, high]
    assert run.share_interval([1.0, 4.0], [2.0, 4.0]) == [pytest.approx(5 / 6 - 12.706 * 2 / 9, abs=1e-3), 1.0]
    assert run.share_interval([1.0], [2.0]) is None
    assert run.share_interval([0.0, 0.0], [0.0, 0.0]) is None


def test_a_summary_by_hand() -> None:
    task = task_runs([[1, 0, 0], [0.5, 0.5, 0], [0, 0.82, 0.18], [0, 1, 0]], [0, 10, 20, 60], MEAN)
    other = task_runs([[1, 0, 0]], [0], MEAN)
    best_of_set = linprog([-1, -2, -4], A_ub=[[0.1, 0.4, 0.9]], b_ub=[0.5], A_eq=[[1, 1, 1]], b_eq=[1])
    assert task.possible_gain == pytest.approx(-best_of_set.fun - 1, abs=1e-6)
    found = run.summary([task, other], "own", BUDGET, certified=True, learned=7)
    assert found["share_final"] == pytest.approx(1 / 3, abs=1e-6)
    assert found["gains"] == pytest.approx([1.0, 0.0])
    half = stats.t.ppf(0.975, 1) * np.std([0.5, -0.5], ddof=1) / np.sqrt(2) / 1.5  # both could gain 1.5
    assert found["share_interval"] == pytest.approx([1 / 3 - half, 1.0], abs=1e-6)  # nobody gains more than all
    assert found["share"] == pytest.approx((0 * 10 + 0.5 * 10 + 1.36 * 40 + 1 * 40) / 100 / 3, abs=1e-6)
    assert found["reward_final"] == 1.5
    assert found["until"] == [20]  # 1.36 is the first that is at least 0.9; the other task has nothing to count
    assert (found["worst_cost"], found["worst_episode"]) == (pytest.approx(0.49), 21)
    assert (found["tasks"], found["moved"], found["unsafe_tasks"], found["learned"]) == (2, 1, 0, 7)
    curve = found["curve"]
    at = {episode: k for k, episode in enumerate(curve["episode"])}
    assert curve["reward_mean"][at[10]] == 1.0
    assert curve["reward_mean"][at[11]] == 1.25
    assert curve["cost_mean"][-1] == 0.25
    assert curve["gain_mean"] == pytest.approx([each - 1.0 for each in curve["reward_mean"]])
    assert (curve["episode"][0], curve["episode"][-1]) == (1, 100)


@pytest.mark.parametrize(
    ("error", "expected"), [(0.0, "unsafe"), (0.0333, "unsafe"), (0.034, "undecided"), (1.0, "undecided")]
)
def test_too_close_to_tell_is_undecided(error: float, expected: str) -> None:
    own = task_runs([[0, 0.6, 0.4]], [0], MEAN, error)  # costs 0.6
    assert run.verdict(*own.excess(own.deployed["own"].rows, BUDGET)) == expected
    found = run.summary([own], "own", BUDGET, certified=False, learned=7)
    assert (found["unsafe_tasks"], found["undecided_tasks"]) == (expected == "unsafe", expected == "undecided")
    assert found["share_final"] == pytest.approx(1)  # what is bought with cost does not count


def test_totals_are_sums() -> None:
    own = {"certified": True, "tasks": 3, "moved": 2, "unsafe_tasks": 1, "undecided_tasks": 2}
    families = {"a": {"methods": {"x": own, "y": own}}, "b": {"methods": {"x": {**own, "certified": False}}}}
    found = run.totals(families)
    assert {key: found["x"][key] for key in own} == {
        "certified": False, "tasks": 6, "moved": 4, "unsafe_tasks": 2, "undecided_tasks": 4,
    }  # fmt: skip
    assert found["y"]["certified"]


# ----------------------------------------------------------------------------------------------------------- end to end


@pytest.fixture(scope="module")
def folder(toy: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("locomotion")
    run.EXPERIMENT.reproduce(small(families=("runner", "again")), out, jobs=1)
    return out


def test_a_run_writes_what_it_says(folder: Path) -> None:
    results = json.loads((folder / "results.json").read_text())
    assert results["experiment"] == "locomotion"
    assert {"version", "settings", "seconds", "families", "methods"} <= set(results)
    assert list(results["families"]) == ["runner", "again"]
    for name, found in results["methods"].items():
        each = [family["methods"][name] for family in results["families"].values()]
        assert found["tasks"] == 8 == sum(own["tasks"] for own in each)
        assert found["unsafe_tasks"] == sum(own["unsafe_tasks"] for own in each)
        assert found["certified"] == (name not in (ON_ROBOTS.name, "pce", "identify-and-look-up"))
    assert results["methods"]["pce"]["unsafe_tasks"] > 0
    own = results["families"]["runner"]["methods"]
    assert own["safe-only"]["share_final"] == own["paper"]["share_final"] == 0
    assert own[ADAPTING]["share_final"] > 0.1
    assert own[ADAPTING]["learned"] == 60
    assert own["pce"]["training_steps"] == 2000 + 1000 + 3 * 500
    assert own["safe-only"]["training_steps"] == 4500  # the safe policy begins with an expert's
    simulated = results["families"]["runner"]["origin"]["simulated"]
    assert simulated == policy_sets.simulated_steps(FAMILY.tasks(), FAMILY.envelopes, FAMILY.signals, 5)
    bounds = simulated[SAMPLE] + simulated[HELD_OUT]
    steps = {name: own[name]["simulator_steps"] for name in ("pce", "safe-only", "certified-returns", ADAPTING)}
    assert steps == {
        **dict.fromkeys(("safe-only", "certified-returns"), 4500 + bounds),
        "pce": 4500,
        ADAPTING: 4500 + bounds + simulated[SIGNALS],
    }
    left = [results["methods"][name]["moved"] for name in ("safe-only", "paper", ADAPTING)]
    assert left[:2] == [0, 0]
    assert left[2] > 0
    for name in ("figure4.png", "figure4.svg", "report.html"):
        assert (folder / name).stat().st_size > 1000


def test_verdicts_and_rewards_are_the_true_ones(folder: Path) -> None:
    """By the formulas: `pce` deploys the strongest push first, which is unsafe where s²(k² + jitter²) > budget."""
    family = json.loads((folder / "results.json").read_text())["families"]["runner"]
    gains = [parameter[0] for parameter in family["parameters"]]
    values = [true_values(gain, LEVELS) for gain in gains]
    strongest = np.array([value[-1] for value in values])
    assert family["methods"]["pce"]["unsafe_tasks"] == (strongest[:, 1] > BUDGET).sum()
    assert family["methods"]["pce"]["worst_cost"] == pytest.approx(strongest[:, 1].max(), rel=0.02)
    assert family["methods"]["pce"]["curve"]["reward_mean"][0] == pytest.approx(strongest[:, 0].mean(), rel=0.01)
    assert family["reward_safe"] == pytest.approx([value[0, 0] for value in values], rel=0.03)
    possible = [best(BUDGET - value[None, :, 1], value[:, 0]) @ value[:, 0] - value[0, 0] for value in values]
    assert family["possible_gain"] == pytest.approx(possible, abs=0.03)


def test_the_page_is_made_from_results_alone_and_begins_with_the_verdict(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (folder / "report.html").read_text()
    places = ["no certified method", "Figure 4", "Unsafe tasks", "its code, and this", "The policies", "Settings"]
    found = [text.index(place) for place in places]
    assert found == sorted(found)
    assert policies().digest()[:16] in text
    monkeypatch.setattr(frame, "png", lambda figure: b"")
    assert render(page.page(frame.read_results(folder)).page) == text


def test_pages_without_the_usual_methods_and_with_unsafe_certified_ones(folder: Path, undrawn: None) -> None:
    results = json.loads((folder / "results.json").read_text())
    results["methods"]["paper"]["unsafe_tasks"] = 2
    assert "unsafe policies were deployed, though certified, by ‘paper’ on 2 of" in render(page.page(results).page)
    del results["families"]["again"]
    own = results["families"]["runner"]
    own["methods"], own["refused"] = {"pce": own["methods"]["pce"]}, {ADAPTING: "no signals"}
    results["methods"] = {"pce": results["methods"]["pce"]}
    text = render(page.page(results).page)
    assert "was not run: no signals" in text
    assert "certified method ever" not in text
    assert len(page.tables(results)["Runner, unknown motors"].rows) == 1


def test_the_verdict_tells_what_networks_gained_and_with_how_many_steps(folder: Path, undrawn: None) -> None:
    results = json.loads((folder / "results.json").read_text())
    assert "train networks" not in page.page(results).page.verdict.sentence  # none was run
    for name, family in zip(("cpo-online", "meta-cpo"), results["families"].values(), strict=True):
        steps = family["methods"][ADAPTING]["simulator_steps"]
        new = {"share_final": 0.4 if name == "meta-cpo" else 0.7, "simulator_steps": steps // 4, "unsafe_tasks": 1}
        family["methods"][name] = {**family["methods"]["pce"], **new}
    words = page.page(results).page.verdict.sentence
    assert "train networks gained 40 % to 70 % with 25 % of its simulator steps, unsafe in 2 of 8 runs" in words


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 4])
def test_the_legend_fits_below_any_number_of_families(count: int) -> None:
    (hopper,) = kept("locomotion")["families"].values()
    drawn = figure.gain_and_cost({str(k): hopper for k in range(count)})
    drawn.draw_without_rendering()
    legend, whole = drawn.legends[0].get_window_extent(), drawn.bbox
    assert whole.x0 <= legend.x0
    assert legend.x1 <= whole.x1


def test_costs_that_are_named_at_the_edge_can_be_read() -> None:
    (hopper,) = kept("locomotion")["families"].values()
    drawn = figure.gain_and_cost({"hopper": hopper})
    drawn.draw_without_rendering()
    boxes = [text.get_window_extent() for text in drawn.axes[1].texts]
    assert [text.get_text() for text in drawn.axes[1].texts] == ["42.3", "70.5", "94.2"]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_the_figure_shows_means_and_the_budget(folder: Path) -> None:
    families = json.loads((folder / "results.json").read_text())["families"]
    drawn = figure.gain_and_cost(families)
    gain, cost = drawn.axes[0], drawn.axes[2]  # row by row
    for axes, what in ((gain, "gain"), (cost, "cost")):
        lines = {line.get_label(): line for line in axes.lines}
        own = families["runner"]["methods"]
        mean, episode = own[ADAPTING]["curve"][f"{what}_mean"], own[ADAPTING]["curve"]["episode"]
        learned = sum(each <= 60 for each in episode)
        assert list(lines[ADAPTING].get_xdata()) == [*episode[:learned], 61]  # it learns from 60 and keeps what it has
        assert list(lines[ADAPTING].get_ydata()) == [*mean[:learned], mean[-1]]
        assert list(lines["pce (uncertified)"].get_ydata()) == own["pce"]["curve"][f"{what}_mean"]
        assert lines["safe-only"].get_xdata()[-1] == 1500
        assert "paper" not in lines  # it shares the line of the safe policy
    assert set(next(line for line in gain.lines if line.get_label() == "safe-only").get_ydata()) == {0.0}
    assert any(list(line.get_ydata()) == [BUDGET, BUDGET] for line in cost.lines)
    assert cost.get_xscale() == "log"
    assert any("paper" in text.get_text() for text in drawn.legends[0].get_texts())
    looks = [figure.line_style(name, KNOWN[name].certified) for name in DEFAULT_METHODS]
    assert len({(own["color"], own["marker"], own["linestyle"]) for own in looks}) == len(looks)


def test_methods_that_cannot_be_had_are_named_with_the_reason() -> None:
    bare = replace(trained(), policies=replace(policies(), cells=None))
    methods, refused = run.available_methods(bare, small(methods=(*METHODS, *FIXED)))
    assert all("was trained for this family" in refused[name] for name in FIXED)
    assert "pce" in methods
    assert set(refused) >= {"certified-returns", ADAPTING}
    with pytest.raises(InvalidInput, match="methods must hold one that can be run"):
        run.available_methods(bare, small(methods=(ADAPTING,)))


def test_the_command(tmp_path: Path, undrawn: None) -> None:
    words = ["--families", "runner", "--tasks", "1", "--episodes", "300", "--methods", "safe-only,pce", "--quick"]
    told = surefoot("reproduce", "locomotion", *words, "--jobs", "1", "--out", tmp_path)
    assert told.code == 0
    assert "Runner, unknown motors" in told.out
    settings = json.loads((tmp_path / "results.json").read_text())["settings"]
    chosen = {"episodes": 300, "tasks": 1, "retrain": False, "judged_idle": QUICK["judged_idle"]}
    assert {name: settings[name] for name in chosen} == chosen


# ---------------------------------------------------------------------------------------------------------- policy sets


def test_sets_are_what_their_origin_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_shipped("runner")
    origin = found.origin
    assert found.policies.digest() == origin.digest == policies().digest()
    assert found.starts == {}
    assert (origin.steps, origin.meta_steps, origin.seconds) == (4500, 0, 1.5)
    monkeypatch.setattr(policy_sets, "TRAINED", tmp_path)
    with pytest.raises(InvalidInput, match="--retrain"):
        load_shipped("runner")
    policies().save(tmp_path / "runner.policyset")
    told = {"command": "c", "seed": 0, "digest": "0" * 64, "version": "0", "seconds": 1}
    (tmp_path / "runner.json").write_text(json.dumps(told))
    with pytest.raises(ArtifactError, match="digest"):
        load_shipped("runner")
    for bad, match in ((json.dumps({**told, "seed": "none"}), "'seed' is missing or no"), ("{", "not JSON")):
        (tmp_path / "runner.json").write_text(bad)
        with pytest.raises(ArtifactError, match=match):
            load_shipped("runner")


def test_the_page_says_which_meta_policies_are_the_safe_policy(folder: Path) -> None:
    """By what was loaded, not by name."""
    results = json.loads((folder / "results.json").read_text())
    families = results["families"].values()
    for names in ([], ["meta-cpo"], ["safe-meta-control", "meta-cpo"]):
        for family in families:
            family["methods"] |= dict.fromkeys(NETWORKS, family["methods"]["pce"])
            family["unmoved"] = names
        said = [
            f"The meta-policy of ‘{name}’ is the safe policy itself, bit for bit, in both families: its meta-training "
            "never moved it, and what is shown of it says nothing about meta-training."
            for name in names
        ]
        assert page._meta_policy_sentences(results) == said
    del results["families"]["runner"]["unmoved"]
    assert "is not told by the version that wrote these results" in page._meta_policy_sentences(results)[0]


def test_the_page_says_how_far_an_adaptation_goes(folder: Path) -> None:
    family = json.loads((folder / "results.json").read_text())["families"]["runner"]
    family["methods"] |= dict.fromkeys(NETWORKS, family["methods"]["pce"])
    assert "were not tuned" in page._step_size_sentence(family)
    tried = [{"divergence": 1.0, "reward_penalty": 0.1}, {"divergence": 1.0, "reward_penalty": 1.0}]
    chosen = {name: {"tried": tuning.STEPS, "chosen": {"divergence": 0.1}, "steps": 2} for name in NETWORKS}
    chosen["safe-meta-control"] = {"tried": tried, "chosen": tried[0], "steps": 2}
    family["origin"]["tuning"] = chosen
    said = page._step_size_sentence(family)
    assert "tasks: reward penalty 0.1 (‘safe-meta-control’), divergence 0.1 (‘meta-cpo’)" in said
    assert f"σ = {JITTER:.2g} to {JITTER:.2g}" in said


def test_retraining_leaves_the_set_and_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None
) -> None:
    MetaTrained = pytest.importorskip("surefoot.lab.baselines.meta_training").MetaTrained
    asked: dict[str, Any] = {}

    def train_policies(family: Any, **words: Any) -> PolicyValueSet:
        asked.update(words, family=family)
        words["progress"]("experts", 1, 2)
        return policies()

    meta = replace(safe_network(policies()), clip=3.0)
    monkeypatch.setattr("surefoot.lab.experiments.locomotion.training.train_policies", train_policies)
    tuned = {
        name: tuning.Tuning(({"divergence": 0.1}, {"divergence": 0.3}), (1.0, 2.0), (0, 1), {"divergence": 0.1}, 48)
        for name in NETWORKS
    }
    monkeypatch.setattr(tuning, "tune_baselines", lambda *given, **words: tuned)

    def meta_policy(family: Any, method: str, safe: Any, options: Any, seed: int, share: float) -> Any:
        assert (options, seed, share) in [({"divergence": 0.1}, 3, 0.5), ({"divergence": 0.1}, 4, 0.5)]
        return MetaTrained(meta, (), 7)

    monkeypatch.setattr("surefoot.lab.experiments.locomotion.training.meta_policy", meta_policy)

    def train_across_domains(family: Any, method: str, safe: Any, seed: int, share: float) -> Any:
        return HistoryPolicy.looking_away(meta) if method == HISTORY_CONDITIONED.name else meta

    monkeypatch.setattr("surefoot.lab.experiments.locomotion.training.train_across_domains", train_across_domains)
    where = small(retrain=True, share=0.5, seed=3, methods=("safe-only",), tasks=1)
    said: list[Any] = []
    results = run.EXPERIMENT.reproduce(where, tmp_path, jobs=1, progress=lambda *far: said.append(far))
    assert said[0] == ("experts", 1, 2)
    del asked["progress"]
    assert asked == {"family": FAMILY, "seed": 3, "jobs": 1, "share": 0.5, "bounds": True}
    assert PolicyValueSet.load(tmp_path / "runner.policyset").digest() == policies().digest()
    origin = json.loads((tmp_path / "runner.json").read_text())
    assert origin == json.loads(json.dumps(results["families"]["runner"]["origin"]))
    assert origin["steps"] == 2250
    assert origin["accepted"] == dict.fromkeys(["safe-meta-control", "meta-cpo", "maml-penalty"], 7)
    assert origin["tuning"] == json.loads(json.dumps({name: asdict(found) for name, found in tuned.items()}))
    assert "--retrain-baselines --share 0.5 --seed 3" in origin["baselines"]
    assert origin["meta_steps"] == 50 * 2 * 6 * 2000  # updates, before and after, tasks, steps on each
    assert "--share 0.5" in origin["command"]
    monkeypatch.setattr(policy_sets, "TRAINED", tmp_path)  # what is left can be shipped
    found = load_shipped("runner")
    assert found.origin.steps == 2250
    assert found.starts["maml-penalty"].to_arrays().keys() == meta.to_arrays().keys()
    assert found.starts["maml-penalty"].clip == found.starts[DOMAIN_RANDOMISED.name].clip == 3.0
    assert found.starts[HISTORY_CONDITIONED.name].length == HistoryPolicy.looking_away(meta).length
    assert run._options(found, "maml-penalty").pop("divergence") == 0.1
    monkeypatch.delattr(tuning, "tune_baselines")  # steps that were tuned before are not tuned again
    how: dict[str, Any] = {"seed": 4, "share": 0.5, "jobs": 1, "bounds": False, "tuning": found.origin.tuning}
    policy_sets.train_from_scratch("runner", tmp_path / "another", **how)
    assert (asked["seed"], asked["bounds"]) == (4, False)
    assert load_trained("runner", tmp_path / "another").origin.tuning == found.origin.tuning
    (tmp_path / "runner.maml-penalty.safetensors").write_bytes(b"another")
    with pytest.raises(ArtifactError, match="its digest is not the one that was told"):
        load_shipped("runner")


@pytest.mark.long
def test_steps_are_tuned_on_tasks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A robot in one line: CPO gains from its batches, and more of it within a larger divergence."""
    pytest.importorskip("jax")
    monkeypatch.setattr(tuning, "CONTROL_METHODS", {"cpo-online": KNOWN["cpo-online"]})
    monkeypatch.setattr(tuning, "STEPS", ({"divergence": 1e-4}, {"divergence": 0.3}))
    found = tuning.tune_baselines(FAMILY.tasks(), policies(), seed=0, jobs=1)["cpo-online"]
    assert found.gains[1] > found.gains[0] + 0.005
    assert found.chosen == {"divergence": 0.3} or found.unsafe[1] > found.unsafe[0]
    assert found.steps == 2 * 6 * 4 * 40 * policies().units.episode_length
    assert tuning.tune_baselines(FAMILY.tasks(), policies(), seed=0, jobs=1)["cpo-online"] == found


def test_what_is_unsafe_on_fewer_tasks_goes_before_what_gains_more() -> None:
    gains = np.array([1.0, 3.0, 2.0, 9.0])
    assert tuning.best_trial(gains, [0, 0, 0, 1]) == 1
    assert tuning.best_trial(gains, [2, 2, 1, 1]) == 3


@pytest.mark.parametrize("bounds", [True, False])
def test_policies_may_be_trained_without_their_bounds(bounds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    training = pytest.importorskip("surefoot.lab.experiments.locomotion.training")
    asked: dict[str, Any] = {}
    monkeypatch.setattr(training, "train", lambda tasks, **words: asked.update(words))
    training.train_policies(FAMILY, seed=1, bounds=bounds)
    assert repr(asked["signals"]) == repr(FAMILY.signals if bounds else False)
    assert asked["envelopes"] == (FAMILY.envelopes if bounds else replace(FAMILY.envelopes, cells=0))


def test_meta_training_that_fails_leaves_the_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = pytest.importorskip("surefoot.lab.experiments.locomotion.training")

    def fails(*given: Any, **words: Any) -> Any:
        raise InvalidInput("line search accepted no step")

    monkeypatch.setattr(training, "train_policies", lambda *given, **words: policies())
    monkeypatch.setattr(tuning, "tune_baselines", fails)
    with pytest.raises(InvalidInput, match="no step"):
        run.EXPERIMENT.reproduce(small(retrain=True, methods=("safe-only",), tasks=1), tmp_path, jobs=1)
    assert PolicyValueSet.load(tmp_path / "runner.policyset").digest() == policies().digest()
    assert not (tmp_path / "runner.json").exists()


@pytest.mark.parametrize("name", FIXED)
def test_a_network_that_never_adapts_is_deployed_for_ever_and_judged_by_fresh_episodes(name: str) -> None:
    safe = safe_network(policies())
    bold = replace(safe, biases=(*safe.biases[:-1], safe.biases[-1] + 0.2))
    start = HistoryPolicy.looking_away(bold) if name == HISTORY_CONDITIONED.name else bold
    few = small(methods=("safe-only", name))
    found = adapt_to_task(trained(**{name: start}), "runner", few.methods, np.array([0.9]), 0, few)
    spans = found.deployed[name]
    assert spans.rows.shape == (1, len(policies().policies) + 1)
    assert spans.rows[0, -1] == 1.0
    assert found.count[-1] >= few.judged_others
    assert found.mean[-1, 0] != found.mean[0, 0]
    family = run.summarise_family("runner", trained(**{name: start}), few.methods, [found], few)
    assert family["methods"][name]["learned"] == 0
    assert family["methods"][name]["training_steps"] == 6500
    assert family["methods"][name]["moved"] == 1
    assert family["unmoved"] == []
    said = page._how({"settings": asdict(few), "methods": family["methods"], "families": {}}).paragraphs[-1]
    assert said.startswith(f"‘{name}’ is the safe policy trained further on all tasks of meta-training")


def test_a_network_of_another_kind_is_refused() -> None:
    safe = safe_network(policies())
    wide = MLPPolicy((np.zeros((1, 2)),), (np.zeros(1),), np.zeros(1), np.zeros(2), np.ones(2))
    for start in (safe, HistoryPolicy.looking_away(wide)):
        with pytest.raises(InvalidInput, match="start must be a HistoryPolicy from 1 observations to 1 actions"):
            learner(policies(), method=HISTORY_CONDITIONED, episodes=10, start=start)


def test_meta_learners_begin_with_their_own_policy() -> None:
    pytest.importorskip("jax")
    meta = replace(safe_network(policies()), clip=3.0)
    few = small(watched=4, episodes=4, methods=("maml-penalty", "cpo-online"), network_tasks=1)
    found = adapt_to_task(trained(**{"maml-penalty": meta}), "runner", few.methods, np.array([0.9]), 0, few)
    assert found.deployed["cpo-online"].rows[0, 0] == 1.0
    assert found.deployed["maml-penalty"].rows[0, 0] == 0.0
    family = run.summarise_family("runner", trained(**{"maml-penalty": meta}), few.methods, [found], few)
    for steps in ("training_steps", "simulator_steps"):
        table = {name: own[steps] for name, own in family["methods"].items()}
        assert table == {"maml-penalty": 6500, "cpo-online": 4500}
    assert family["unmoved"] == ["maml-penalty"]  # another normaliser, the same network


@pytest.mark.long
def test_networks_are_judged_by_the_episodes_in_which_they_were_deployed() -> None:
    pytest.importorskip("jax")
    few = small(watched=40, episodes=200, methods=("safe-only", "cpo-online"), network_episodes=80)
    found = adapt_to_task(trained(), "runner", few.methods, np.array([0.9]), 0, few)
    first, last = len(policies().policies) + np.arange(2)  # after 40 episodes, and after 80, which nobody saw run
    assert found.count[first] >= 40
    assert found.count[last] >= few.judged_others
    source = SharedEpisodes(Runner(np.array([0.9])), policies(), few, [few.seed, Stream.LOCOMOTION_LEARNING, 0])
    run.run_method(policies(), KNOWN["cpo-online"], source, few, 0, {})
    (told,) = source.of_trained_policies().values()
    assert len(told) == 40
    if found.count[first] == 40:
        np.testing.assert_allclose(found.mean[first], [told.reward.mean(), told.cost.mean()])


def test_a_policy_trained_on_the_task_is_what_gains_are_held_against(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that costs too much counts as far as it can be mixed in; one that is there for some tasks, for those."""
    training = pytest.importorskip("surefoot.lab.experiments.locomotion.training")
    started: list[Any] = []

    def bold(family: Any, task: Any, start: Any, rng: np.random.Generator) -> Any:
        started.append(start)
        return pushing(1.5)

    monkeypatch.setattr(training, "task_expert", bold)
    gain, few = 0.8, small(experts=1, judged=2000, judged_idle=2000, methods=("safe-only",))
    first, second = (adapt_to_task(trained(), "runner", few.methods, np.array([gain]), k, few) for k in range(2))
    assert started == [policies().policies[int(first.possible.argmax())]]
    assert second.expert is None
    levels = (*LEVELS, 1.5)
    reward, cost = true_values(gain, levels).T
    mixed = linprog(-reward, A_ub=[cost], b_ub=[BUDGET], A_eq=[np.ones(len(levels))], b_eq=[1])
    assert first.expert == pytest.approx([-mixed.fun, BUDGET], abs=0.01)
    found = run.summary([first, second], "safe-only", BUDGET, certified=True, learned=7)
    assert found["share_of_expert"] == 0.0
    spans = Spans(np.array([0]), first.possible[None], 1500)
    both = [replace(task, deployed={"best": spans}) for task in (first, second)]
    found = run.summary(both, "best", BUDGET, certified=True, learned=7)
    assert found["share_of_expert"] == pytest.approx(first.possible_gain / first.expert_gain)
    family = run.summarise_family("runner", trained(), ["safe-only"], [first, second], few)
    assert family["expert_gain"] == [first.expert_gain, None]
    assert page.family_table(family).headers[-1].endswith("own expert’s gain")
    assert not page.family_table({**family, "expert_gain": [None, None]}).headers[-1].endswith("own expert’s gain")


@pytest.mark.long
def test_an_expert_of_the_task_is_trained_on_it() -> None:
    training = pytest.importorskip("surefoot.lab.experiments.locomotion.training")
    task = BanditTask(np.array([1.0]))
    timid = MLPPolicy((np.array([[0.1]]),), (np.zeros(1),), np.array([-1.5]), np.zeros(1), np.ones(1))
    found = training.task_expert(replace(FAMILY, warm_steps=120_000), task, timid, np.random.default_rng(0))
    before, after = (task.episodes(policy, 10**6).run(200, np.random.default_rng(1)) for policy in (timid, found))
    assert after.reward.mean() > before.reward.mean() + 2
    assert after.cost.mean() < 1.1 * task.units.budget[0]


def test_networks_are_run_on_the_first_tasks_only() -> None:
    """Any method may be said to train networks; these are not run on later tasks, and say so in the counts."""
    few = small(network_tasks=1, tasks=2)
    names = MappingProxyType({"pce": KNOWN["pce"]})
    with mock.patch.object(run, "NETWORKS", names):
        assert learning_episodes(policies(), KNOWN["pce"], few) == few.network_episodes
        tasks = [adapt_to_task(trained(), "runner", ("safe-only", "pce"), np.array([0.9]), k, few) for k in range(2)]
    assert ["pce" in task.deployed for task in tasks] == [True, False]
    family = run.summarise_family("runner", trained(), ["safe-only", "pce"], tasks, few)
    legend = [text.get_text() for text in figure.gain_and_cost({"runner": family}).legends[0].get_texts()]
    assert [text for text in legend if text.startswith("pce")] == ["pce (uncertified), 1 task"]
    assert [text for text in legend if text.startswith("safe-only")] == ["safe-only, 2 tasks"]
    assert family["methods"]["pce"]["tasks"] == 1
