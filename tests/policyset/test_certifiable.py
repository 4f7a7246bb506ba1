"""Which certified method is chosen, why, and what a stronger one would take: told, and true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from policy_sets import make_mixed, make_set

import surefoot as sf
from surefoot.cmdp.episode import LEVELS
from surefoot.errors import InvalidInput
from surefoot.policyset.certifiable import CELL_METHODS, Advice, advice
from wheel import wheel_set


def balls() -> sf.PolicyValueSet:
    """Dynamics known up to a distance."""
    found = make_set(model="balls")
    assert found.cells is not None
    assert found.cells.model is not None
    model = replace(found.cells.model, radius=np.full(len(found.cells), 0.1))
    return replace(found, cells=replace(found.cells, model=model))


SETS: list[tuple[Any, str, str, list[tuple[str, str]]]] = [
    (lambda: make_set(model="affine"), "transitions", "certified-likelihood", []),
    (balls, "transitions", "certified-ball", [("certified-likelihood", "affine in the parameter")]),
    (
        lambda: make_set(model="none"),
        "transitions",
        "certified-returns",
        [("certified-likelihood", "tables that share rewards, costs and start")],
    ),
    (
        lambda: make_set(model="affine"),
        "sums",
        "certified-returns",
        [("certified-likelihood", "states and actions told")],
    ),
    (balls, "first-state", "certified-returns", [("certified-likelihood", "affine"), ("certified-ball", "told")]),
    (wheel_set, "transitions", "certified-returns", [("certified-likelihood", "tasks that are tables")]),
    (
        make_set,
        "transitions",
        "certified-model-free",
        [("certified-likelihood", "value bounds over tasks"), ("certified-returns", "value bounds over tasks")],
    ),
    (make_mixed, "sums", "certified-model-free", [("certified-likelihood", "tables"), ("certified-returns", "cells")]),
]


@pytest.mark.parametrize(("policies", "observes", "method", "stronger"), SETS)
def test_the_method_is_named_and_what_a_stronger_one_takes(
    policies: Any, observes: Any, method: str, stronger: list[tuple[str, str]]
) -> None:
    found = advice(policies(), observes)
    assert found.method == method
    assert found.why
    names = [name for name, _ in found.stronger]
    for name, words in stronger:
        assert words in dict(found.stronger)[name]
    assert names == sorted(names, key=[*CELL_METHODS].index)
    assert len(found.lines) == 1 + len(names)
    assert method in found.lines[0]
    assert found.as_dict()["stronger"] == [{"method": name, "needs": needs} for name, needs in found.stronger]


@pytest.mark.parametrize("policies", [policies for policies, *_ in SETS])
@pytest.mark.parametrize("observes", LEVELS)
def test_certified_is_what_the_advice_says(policies: Any, observes: Any) -> None:
    made = replace(policies(), safe_risk=0.1)
    risk = 0.1 + (made.safe_risk or 0.0)
    found, learner = (
        advice(made, observes),
        sf.learner(made, method="certified", risk=min(risk, 0.99), observes=observes),
    )
    assert learner.events[0].message == f"{found.method}, since {found.why}"


def test_what_is_observed_must_be_known() -> None:
    with pytest.raises(
        InvalidInput, match="observes must be one of sums, first-state, signals, transitions, steps, got 'all'"
    ):
        sf.advice(make_set(), "all")  # type: ignore[arg-type]


def test_policy_set_and_train_say_it_when_they_show_progress(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = sf.tasks.gridworld()
    policies = sf.policy_set(
        tasks,
        safe=sf.solve(tasks.task([0.4])).policy,
        candidates=[sf.solve(tasks.task([0.3])).policy],
        seed=0,
        envelopes=sf.Envelopes(cells=10),
    )
    shown = capsys.readouterr().err
    assert "method certified will be certified-likelihood, since transitions are observed" in shown
    assert advice(policies) == Advice("certified-likelihood", advice(policies).why)


def test_what_is_no_task_is_refused_in_words() -> None:
    class Env:
        def reset(self, *, seed: int | None = None) -> Any: ...

        def step(self, action: Any) -> Any: ...

    for given, words in ((Env(), r"got Env without units, .*surefoot.tasks.from_gym"), (3, "got int without")):
        with pytest.raises(InvalidInput, match=f"task must be a task, .*{words}"):
            sf.adapt(make_set(), given, method="certified", episodes=10, seed=0)  # type: ignore[arg-type]
