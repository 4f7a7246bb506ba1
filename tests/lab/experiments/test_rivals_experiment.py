"""The comparison with rivals: what is counted is what `adapt` says; hindsight and calibration are told apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from kept_results import results_of
from matplotlib.text import Annotation

import surefoot as sf
from shown_wheel import ShownWheel, shown_set
from surefoot.errors import InvalidInput
from surefoot.lab.experiments.frame import Bench
from surefoot.lab.experiments.rivals import run, systems
from surefoot.lab.experiments.rivals.page import gain_and_risk, points, tables
from surefoot.lab.experiments.rivals.run import Contender, Protocol, TaskRun, best_in_hindsight, run_on_task, summarise
from surefoot.lab.experiments.rivals.settings import OURS, RivalSettings
from surefoot.lab.experiments.rivals.systems import SYSTEMS, System, policies_for
from surefoot.methods import METHODS, RIVALS
from surefoot.progress import silent
from surefoot.tasks.gridworld_tasks import gridworld
from trained_gridworld import gridworld_set

SMALL = RivalSettings(small=True, grid=3, risk=0.1)


def on_gridworld(**changes: Any) -> Protocol:
    return Protocol("gridworld", gridworld(), gridworld_set(), replace(SMALL, **changes))


def test_ours_and_all_rivals_are_compared_along_their_paths() -> None:
    assert RivalSettings().methods == (*OURS, *RIVALS)
    protocol = on_gridworld()
    for name in RivalSettings().methods:
        spec, found = METHODS[protocol.method(name)], protocol.path(name)
        if spec.path is None:
            assert (name, found) == ("safe-only", ())
            continue
        whole = list(spec.path(gridworld_set(), 0.1))
        assert (found[0], found[-1], len(found)) == (whole[0], whole[-1], 3)
        assert [whole.index(each) for each in found] == sorted(whole.index(each) for each in found)
        assert on_gridworld(grid=99).path(name) == tuple(whole)
    assert on_gridworld(grid=1).path("titration") == (METHODS["titration"].path(gridworld_set(), 0.1)[-1],)


def test_marks_are_numbers_of_episodes_or_shares_of_them() -> None:
    protocol = on_gridworld()
    assert (protocol.episodes, protocol.after(0.01), protocol.after(30), protocol.after(10**6)) == (600, 6, 30, 600)
    assert replace(protocol, asked=RivalSettings()).episodes == 4000


@pytest.mark.parametrize(
    "contender", [Contender("certified", None), Contender("titration", {"every": 3, "share": 1.0})]
)
def test_tables_are_judged_as_adapt_judges_them(contender: Contender) -> None:
    protocol, parameter = on_gridworld(), np.array([0.36])
    (found,) = run_on_task(protocol, [contender], parameter, 0)
    task, seed = gridworld().task(parameter), int(run._rng(SMALL.seed, run.Stream.RIVALS_RUNS, 0).integers(2**32))
    options = {} if contender.setting is None else dict(contender.setting)  # type: ignore[call-overload]
    name = protocol.method(contender.method)
    told = sf.adapt(gridworld_set(), task, method=name, episodes=600, risk=0.1, seed=seed, **options)
    assert (found.unsafe, found.unsafe_episodes) == (told.unsafe_episodes > 0, told.unsafe_episodes)
    assert found.unsafe == (contender.method == "titration")
    values = [task.values(policy) for policy in gridworld_set().policies]
    gain = np.minimum(told.reward - values[0].reward, found.possible)
    assert (found.early, found.late) == pytest.approx((gain[:6].mean(), gain[:60].mean()))
    enough = gain >= 0.9 * found.possible
    assert found.reached == (enough.argmax() if enough.any() else np.inf)
    safe = max(each.reward for each in values if each.margin[0] >= 0) - values[0].reward
    assert found.possible >= safe - 1e-9, "a mixture is at least as good as the best that is safe by itself"


def test_simulators_are_judged_by_fresh_episodes() -> None:
    """Of two policies one breaks the budget on this wheel; both contenders see the same episodes."""
    tasks = mock.Mock(task=lambda parameter: ShownWheel(float(parameter[0])))
    wheel = System("a wheel", lambda: tasks, mock.Mock(), (40, 40), 10, 40, (100, 400))
    policies, task = shown_set(), ShownWheel(0.9)
    means = np.array(
        [
            task.episodes(policy, task.units.episode_length).run(4000, np.random.default_rng(0)).cost.mean()
            for policy in policies.policies
        ]
    )
    with mock.patch.object(run, "SYSTEMS", {"wheel": wheel}):
        asked = replace(SMALL, risk=0.3)
        found = run_on_task(
            Protocol("wheel", tasks, policies, asked),
            [Contender("safe-only", None), Contender("titration", {"every": 2, "share": 1.0})],
            np.array([0.9]),
            0,
        )
    assert means[0] < task.units.budget[0] < means.max()
    assert [each.unsafe for each in found] == [False, True]
    assert (found[0].early, found[0].late, found[0].unsafe_episodes) == (0.0, 0.0, 0)
    assert 0 < found[1].unsafe_episodes < 40
    assert found[0].possible == found[1].possible


def test_gains_are_shares_of_sums_and_hindsight_keeps_the_risk() -> None:
    nothing_to_gain = TaskRun(False, False, 0, 0.0, 0.0, 0.0, 0.0)
    tasks = [TaskRun(False, False, 0, 0.5, 1.0, 12, 2.0), TaskRun(True, False, 60, 0.0, 3.0, 30, 6.0)]
    assert summarise([*tasks, nothing_to_gain], on_gridworld())["wait"] == 21
    assert summarise([*tasks, replace(tasks[0], reached=np.inf)], on_gridworld())["wait"] == 30
    assert summarise([replace(task, reached=np.inf) for task in tasks], on_gridworld())["wait"] is None
    assert summarise([nothing_to_gain], on_gridworld())["wait"] is None
    row = summarise(tasks, on_gridworld())
    assert (row["unsafe"], row["tasks"], row["unsafe_episodes"]) == (1, 2, 60 / 1200)
    assert (row["early"], row["late"], row["late_error"]) == (0.5 / 8, 0.5, 0.0)
    rows = [{"unsafe": k, "tasks": 20, "late": late} for k, late in ((0, 0.1), (1, 0.5), (2, 0.9))]
    assert best_in_hindsight(rows, 0.05) == rows[1]
    assert best_in_hindsight(rows[1:], 0.01) is None


def test_policies_come_from_a_folder_or_are_trained_and_left(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "out", 1, silent)
    gridworld_set().save(tmp_path / "gridworld.policyset")
    found = policies_for("gridworld", gridworld(), str(tmp_path), 0, True, bench)
    assert found.digest() == gridworld_set().digest()
    assert not bench.out.exists()
    (tmp_path / "gridworld.policyset").rename(tmp_path / "pump.policyset")
    with pytest.raises(InvalidInput, match=r"policies must be for pump, got .*, which is for other tasks"):
        policies_for("pump", SYSTEMS["pump"].tasks(), str(tmp_path), 0, True, bench)
    trained = {**SYSTEMS, "gridworld": replace(SYSTEMS["gridworld"], train=lambda *given: gridworld_set())}
    with mock.patch.object(systems, "SYSTEMS", trained):
        policies_for("gridworld", gridworld(), str(tmp_path), 0, True, bench)
    assert sf.PolicyValueSet.load(bench.out / "gridworld.policyset").digest() == gridworld_set().digest()


# ------------------------------------------------------------------------------------------------------------- the page


def test_every_method_is_a_point_with_its_name_and_the_risk_is_marked() -> None:
    results = results_of("rivals")
    for system in results["systems"].values():
        axes = gain_and_risk(system, 0.05).axes[0]
        names = " · ".join(each.get_text() for each in axes.findobj(Annotation)).split(" · ")
        shown = [
            method if which == "default" else f"{method}, calibrated"
            for method, which, *_ in points(system)
            if which != "hindsight"
        ]
        assert sorted(name for name in names if name) == sorted(shown)
        assert any(text.get_text() == "allowed: 5 %" for text in axes.texts)
        dots = {
            (float(line.get_xdata()[0]), float(line.get_ydata()[0])): line.get_markerfacecolor() == line.get_color()
            for line in axes.lines
            if line.get_marker() == "o"
        }
        for _, which, _, row in points(system):
            if which != "hindsight":
                assert (100 * row["unsafe"] / row["tasks"], 100 * row["late"]) in dots
        assert any(dots.values())
        assert not all(dots.values())


def test_tables_mark_hindsight_and_what_did_not_pass() -> None:
    results = results_of("rivals")
    found = tables(results)
    assert list(found) == [f"Methods: {name}" for name in results["systems"]]
    for name, table in found.items():
        methods = results["systems"][name.removeprefix("Methods: ")]["methods"]
        assert [row[0] for row in table.rows if not str(row[0]).startswith("–")] == list(methods)
        hindsight = [row for row in table.rows if row[0] == "– best in hindsight"]
        assert all(row[2].text == "uncertified" for row in hindsight)  # type: ignore[union-attr]
        passed = [each for each in methods.values() if each["calibration"] is not None]
        calibrated = [row for row in table.rows if row[0] == "– calibrated"]
        assert len(calibrated) == len(passed)
        assert [row[1] == "no setting passed" for row in calibrated] == [each["calibrated"] is None for each in passed]
