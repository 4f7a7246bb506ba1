"""Records over tasks that can only be simulated: estimated, with intervals; safe, unsafe or undecided; no regret."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from unittest import mock

import drifting_point
import numpy as np
import pytest
from drifting_point import PointMass, policy_set, truth
from scipy.optimize import brentq

from made_runs import made_run
from surefoot.cli import commands, train
from surefoot.errors import InvalidInput
from surefoot.lab.experiments.adapt import Adaptation, adapt_one, tables
from surefoot.lab.experiments.adapt import page as adapt_page
from surefoot.lab.experiments.frame import redraw, write_report
from surefoot.methods import adapt
from surefoot.report.figures import learning_curves, panels_in_words
from surefoot.report.metrics import summarise, totals
from surefoot.report.page import render
from surefoot.report.table import Cell, results_table
from surefoot.simulate.run import Run

ADDED = {
    *("estimated", "undecided_tasks", "undecided_episodes", "min_margin_interval", "regret_error"),
    *("reward_mean", "reward_error"),
}
SAFE, RECKLESS = 0.4, 1.4  # targets with a margin that is large, and one far below 0
BORDER = float(brentq(lambda target: truth(0.0, target)[1], SAFE, RECKLESS))  # and the one with margin 0


def run(margin, error, *, reward=1.0, reward_error=0.1, optimum=float("nan")) -> Run:
    """A hand-made run; equal rewards of 1 unless given."""
    errors = None if error is None else np.column_stack([np.full(len(margin), reward_error), error])
    return made_run("paper", True, reward, margin, optimum=optimum, error=errors)


# ------------------------------------------------------------------------------------------------- what a run says


def test_an_episode_is_safe_unsafe_or_undecided() -> None:
    found = run([0.5, 0.1, -0.1, -0.5, 0.2], [0.2] * 5)
    assert found.unsafe.tolist() == [False, False, False, True, False]
    assert found.undecided.tolist() == [False, True, True, False, False]
    exact = run([0.5, -1e-12, -0.1], None)
    assert exact.unsafe.tolist() == [False, False, True]
    assert not exact.undecided.any()


@pytest.mark.parametrize(("target", "verdict"), [(SAFE, "safe"), (BORDER, "undecided"), (RECKLESS, "unsafe")])
def test_simulated_runs_are_judged_with_intervals_that_hold_the_truth(target: float, verdict: str) -> None:
    found = adapt(policy_set(target), PointMass(0.0), method="pce", episodes=40, seed=0)
    reward, margin = truth(0.0, target)
    last = slice(1, None)  # the first episode may be the safe policy's
    assert not found.exact
    assert found.error is not None
    assert found.reward is not None
    assert np.isnan(found.regret).all()
    assert (np.abs(found.reward - reward) <= found.error[:, 0])[last].all()
    assert (np.abs(found.margin - margin) <= found.error[:, 1])[last].all()
    told = {"safe": (0, 0), "undecided": (0, 1), "unsafe": (1, 0)}[verdict]
    assert (int(found.unsafe[-1]), int(found.undecided[-1])) == told


# ------------------------------------------------------------------------------------------------------- summaries


def test_an_unsafe_task_is_not_undecided_and_both_are_counted() -> None:
    runs = [
        run([0.5, 0.5, 0.5], [0.1] * 3),
        run([0.5, 0.05, -0.05], [0.1] * 3),
        run([0.05, -0.05, -0.5], [0.1] * 3),
    ]
    found = summarise(runs)
    assert found["estimated"] is True
    assert (found["unsafe_tasks"], found["undecided_tasks"]) == (1, 1)
    assert (found["unsafe_episodes"], found["undecided_episodes"]) == (1, 4)
    assert found["min_margin"] == -0.5
    assert found["min_margin_interval"] == pytest.approx([-0.6, -0.4])


def test_the_interval_of_the_smallest_margin_is_that_of_all_episodes() -> None:
    """The smallest estimate need not be the smallest margin."""
    found = summarise([run([0.3, 0.4], [0.05, 0.3])])
    assert found["min_margin"] == 0.3
    assert found["min_margin_interval"] == pytest.approx([0.1, 0.35])


def test_a_regret_that_nobody_knows_is_neither_refused_nor_counted() -> None:
    unknown, known = run([0.5, 0.5], [0.1] * 2), run([0.5, 0.5], [0.1] * 2, reward=[0.5, 0.75], optimum=1.0)
    found = summarise([unknown, unknown])
    assert (found["regret"], found["regret_mean"], found["regret_interval"]) == ([None, None], None, None)
    assert (found["reward_mean"], found["reward_error"]) == (1.0, pytest.approx(0.1))
    assert found["regret_error"] is None
    assert found["curve"]["regret_mean"] == [None, None]
    assert found["curve"]["reward_mean"] == [1.0, 1.0]
    assert found["curve"]["reward_low"] == pytest.approx([0.9, 0.9])
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    mixed = summarise([unknown, known])
    assert (mixed["regret"], mixed["regret_mean"]) == ([None, 0.75], 0.75)
    assert mixed["curve"]["regret_mean"] == [0.5, 0.75]
    assert mixed["curve"]["regret_high"] == pytest.approx([0.6, 0.95])  # off by 0.1 more with every episode
    assert mixed["regret_error"] == pytest.approx(0.2)


def test_exact_runs_say_nothing_new() -> None:
    found = summarise([run([0.5, -0.5], None, reward=[1, 2], optimum=3.0)])
    assert not ADDED & found.keys()
    assert not any(name.startswith("reward") for name in found["curve"])
    infeasible = summarise([run([-0.5, -0.5], None)])  # exact, but no policy keeps the budget: V* is none
    assert ADDED & infeasible.keys() == {"reward_mean", "reward_error"}
    assert infeasible["regret"] == [None]


def test_an_error_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"runs\[0\]\.error"):
        summarise([run([0.5, 0.5], [0.1, np.nan])])
    with pytest.raises(InvalidInput, match=r"runs\[0\]\.reward"):
        totals([run([0.5, 0.5], [0.1, 0.1], reward=[np.inf, 1.0])])


# ------------------------------------------------------------------------------------------------ tables and figures


def test_tables_call_estimated_what_is() -> None:
    methods = {
        "paper": totals([run([0.5], [0.1]), run([0.05], [0.1])]),
        "pce": totals([run([-0.5], [0.1]), run([0.05], [0.1])]),
    }
    table = results_table(methods)
    assert table.headers[2:] == (
        *("regret, mean, estimated", "95 % interval", "reward, mean, estimated"),
        *("unsafe tasks", "unsafe episodes", "smallest margin, estimated"),
    )
    first, second = table.rows
    assert first[2:] == (
        "unknown",
        "–",
        "1.000 ± 0.100",
        "0 of 2, 1 undecided",
        "0, 1 undecided",
        "0.050 (−0.050 – 0.150)",
    )
    assert second[5:] == (
        Cell("1 of 2, 1 undecided", "bad"),
        Cell("1, 1 undecided", "bad"),
        Cell("−0.500 (−0.600 – −0.400)", "bad"),
    )
    known = totals([run([0.5], [0.1], optimum=3.0), run([0.5], [0.1])])
    assert results_table({"paper": known}).rows[0][2] == "2.000 ± 0.100 on 1 of 2"


def test_figures_draw_the_intervals_and_the_reward_where_there_is_no_regret() -> None:
    methods = {"paper": summarise([run([0.5, 0.5], [0.1, 0.2])])}
    upper, lower = learning_curves(methods, budgets=[1.5]).axes
    assert (upper.get_ylabel(), lower.get_ylabel()) == (
        "expected discounted reward, estimated",
        "expected discounted cost, estimated",
    )
    band = lower.collections[0].get_datalim(lower.transData)
    assert (band.ymin, band.ymax) == pytest.approx((0.8, 1.2))
    box = upper.collections[0].get_datalim(upper.transData)
    assert (box.ymin, box.ymax) == pytest.approx((0.9, 1.1))
    assert not [line for line in lower.get_lines() if line.get_marker() == "X"]
    assert "Bands hold the intervals" in panels_in_words(methods, [1.5])


# -------------------------------------------------------------------------------------------------- `surefoot adapt`


@pytest.mark.short_for(target=[SAFE])
@pytest.mark.parametrize(
    ("target", "words"),
    [
        (SAFE, "deployed nothing unsafe."),
        (BORDER, "was too close to a budget to tell in "),
        (RECKLESS, "deployed unsafe policies in "),
    ],
)
def test_the_page_of_a_simulated_run_says_estimated(target: float, words: str, tmp_path: Path) -> None:
    settings = Adaptation((0.0,), "pce", 40)
    results = adapt_one(policy_set(target), drifting_point.masses(), settings, lambda *_: None)
    report = adapt_page(results)
    assert "values are estimated" in report.page.lead
    assert words in report.page.verdict.sentence
    assert report.page.verdict.tone == {SAFE: "good", BORDER: "", RECKLESS: "bad"}[target]
    assert "nobody knows the optimum" in report.page.verdict.answers[0].beside
    assert "exact" not in render(report.page)
    (table,) = tables(results).values()
    assert table.rows[0][2] == "unknown"
    write_report(tmp_path, results, report)
    page = (tmp_path / "report.html").read_bytes()
    redraw(tmp_path, adapt_page)
    assert (tmp_path / "report.html").read_bytes() == page


def test_the_command_prints_what_is_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policy_set(BORDER).save(tmp_path / "set")
    monkeypatch.setattr(train, "FAMILIES", {"point-mass": train.Family("drifting_point", "masses")})
    words = ["surefoot", "adapt", str(tmp_path / "set"), "--task", "0", "--method", "pce", "--episodes", "40"]
    with mock.patch.object(sys, "argv", words), pytest.raises(SystemExit) as stop:
        commands.run()
    assert not stop.value.code
    out = " ".join(capsys.readouterr().out.split())
    assert "smallest margin, estimated" in out
    assert "undecided" in out
    assert "unknown" in out
