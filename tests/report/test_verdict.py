"""What pages say first, by itself: tones, counts, words."""

from __future__ import annotations

from typing import Any

import pytest

from surefoot.errors import InvalidInput
from surefoot.report import verdict
from surefoot.report.verdict import Answer, Verdict

FINE = Answer("Time", "1 s", "")


def methods(**unsafe: int) -> dict[str, Any]:
    """Ten tasks each; safe-only has a regret of 100, the others of 10 and more."""
    names = {"safe_only": "safe-only", "ball": "certified-ball", "returns": "certified-returns", "pce": "pce"}
    return {
        name: {
            "certified": name != "pce",
            "tasks": 10,
            "unsafe_tasks": unsafe.get(short, 0),
            "regret_mean": {"safe-only": 100.0, "certified-ball": 10.0, "certified-returns": 20.0}.get(name, 5.0),
        }
        for short, name in names.items()
    }


def test_a_verdict_is_as_bad_as_its_worst_answer() -> None:
    good, bad = Answer("Unsafe", "0 of 3", "", "good"), Answer("Unsafe", "1 of 3", "", "bad")
    assert Verdict("So.", (FINE, FINE, FINE)).tone == ""
    assert Verdict("So.", (FINE, good, FINE)).tone == "good"
    assert Verdict("So.", (good, bad, good, FINE)).tone == "bad"


@pytest.mark.parametrize(("sentence", "answers"), [("", 3), ("So.", 2), ("So.", 5)])
def test_a_verdict_has_a_sentence_and_three_or_four_answers(sentence: str, answers: int) -> None:
    with pytest.raises(InvalidInput):
        Verdict(sentence, (FINE,) * answers)


def test_the_gain_is_that_of_the_best_certified_method() -> None:
    assert verdict.best_certified(methods()) == "certified-ball"
    assert verdict.adaptation_gain(methods()).value == "90 %"
    alone = {name: each for name, each in methods().items() if name in ("safe-only", "pce")}
    assert verdict.adaptation_gain(alone).value == "nothing"
    without = {name: each for name, each in methods().items() if name != "safe-only"}
    assert (verdict.adaptation_gain(without).name, verdict.adaptation_gain(without).value) == ("Regret", "10.00")


def test_unsafe_runs_of_certified_methods_are_counted_and_named() -> None:
    assert (verdict.safety(methods(), 0.05).value, verdict.safety(methods(), 0.05).tone) == ("0 of 30", "good")
    assert verdict.in_words(methods(), 0.05) == "no certified method ever deployed anything unsafe"
    found = methods(returns=2, pce=9)
    assert (verdict.safety(found, 0.05).value, verdict.safety(found, 0.05).tone) == ("2 of 30", "bad")
    assert "without a proof: 9 of 10" in verdict.safety(found, 0.05).beside
    assert verdict.in_words(found, 0.05) == (
        "unsafe policies were deployed, though certified, by ‘certified-returns’ on 2 of 10 tasks; of 1 without a "
        "proof 1 did"
    )
    assert verdict.safety(found, 0.2).tone == ""
    assert "no more often than the promised 20 %, by ‘certified-returns’ on 2 of 10" in verdict.in_words(found, 0.2)
    undecided = methods()
    undecided["certified-ball"]["undecided_tasks"] = 1
    assert verdict.safety(undecided, 0.05).tone == ""
    assert verdict.in_words(undecided, 0.05) == "no certified method was seen to deploy anything unsafe"
    assert (
        verdict.in_words({"pce": found["pce"]}, 0.05) == "1 of 1 methods, all without a proof, deployed unsafe policies"
    )


def test_undecided_runs_stand_with_the_methods_they_belong_to() -> None:
    found = methods(pce=3)
    found["certified-ball"]["undecided_tasks"] = 2
    found["pce"]["undecided_tasks"] = 4
    assert verdict.safety(found, 0.05).beside == (
        "runs of certified methods with an unsafe policy, 2 undecided; without a proof: 3 of 10, 4 undecided"
    )
    assert verdict.safety({"pce": found["pce"]}, 0.05).beside.endswith("without a proof: 3 of 10, 4 undecided")


def test_runs_that_never_left_the_safe_policy_are_told_apart() -> None:
    found = methods()
    for name, moved in (("safe-only", 0), ("certified-ball", 9), ("certified-returns", 7), ("pce", 10)):
        found[name]["moved"] = moved
    assert verdict.safety(found, 0.05).value == "0 of 30"
    assert (
        "; 16 of these runs left the safe policy, 14 never did; without a proof" in verdict.safety(found, 0.05).beside
    )
    del found["certified-ball"]["moved"]  # as in older results
    assert "left the safe policy" not in verdict.safety(found, 0.05).beside


def test_how_sure_is_what_the_count_alone_shows() -> None:
    """Clopper and Pearson: of ten tasks none tells of at most 1 - 0.025^(1/10), which is 31 %."""
    found = verdict.sureness(methods(pce=9), 0.05)
    assert (found.value, found.tone) == ("≤ 31 %", "")
    assert "promised: at most 5 %" in found.beside
    assert verdict.sureness(methods(ball=9), 0.05).tone == "bad"


@pytest.mark.parametrize(
    ("share", "words"),
    [(0, "0 %"), (0.0004, "under 0.1 %"), (0.018, "1.8 %"), (0.05, "5 %"), (0.947, "95 %"), (1, "100 %")],
)
def test_percentages_are_short(share: float, words: str) -> None:
    assert verdict.percent(share) == words


@pytest.mark.parametrize(("seconds", "words"), [(0.31, "0.31 s"), (36.2, "36 s"), (919, "15 min"), (8000, "2.2 h")])
def test_times_are_short(seconds: float, words: str) -> None:
    assert verdict.duration(seconds) == words
