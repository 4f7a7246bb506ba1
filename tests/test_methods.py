"""Methods by name: what `learner` and `adapt` accept, refuse and return."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shown_wheel import ShownWheel, shown_set
from surefoot.cmdp.policy import EpisodeMixture
from surefoot.errors import InvalidInput
from surefoot.learning.learner import Learner
from surefoot.learning.method import SAFE, includes
from surefoot.learning.spec import NEEDS, MethodArgs, MethodSpec
from surefoot.methods import BASELINES, CONTROL_METHODS, METHODS, adapt, learner, spec_of, specs
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.simulate.run import Run
from surefoot.tabular.solve import solve
from surefoot.tasks.gridworld_tasks import gridworld
from trained_gridworld import gridworld_set as policies

TASK = gridworld().task([0.3])
RISK = 0.3  # more than what is not covered of any family here
UNCERTIFIED = {"published", "pce", "pce-theory"}
NEEDS_EPISODES = ("paper", "pce-theory", *(name for name in BASELINES if not name.startswith("safe-meta")))


def where(name: str) -> tuple[PolicyValueSet, Any]:
    """A policy set that a method can use, and a task: signals are learned where nothing but a simulator is known."""
    return (shown_set(), ShownWheel(0.25)) if name == "certified-signals" else (policies(), TASK)


def test_the_methods_of_the_paper_are_there_once_each() -> None:
    assert {"safe-only", "paper", "published", "pce"} <= set(METHODS)
    assert len(set(METHODS)) == len(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_learners_carry_their_name_and_start_with_an_order(name: str) -> None:
    trained, _ = where(name)
    fresh = learner(trained, method=name, episodes=100, risk=RISK, seed=3)
    assert isinstance(fresh, Learner)
    assert fresh.name == name
    assert fresh.seed == 3
    order = fresh.ask()
    assert order.episode == 0
    assert order.policy is fresh.policy(order.policy_index)
    assert fresh.policy(SAFE) is trained.safe_policy


@pytest.mark.parametrize("name", METHODS)
def test_rows_say_what_the_methods_do(name: str) -> None:
    spec, made = METHODS[name], learner(where(name)[0], method=name, episodes=100_000_000, risk=RISK).method
    assert spec.name == name
    assert includes(spec.observes, made.observes)
    assert spec.certified >= made.certified, "a method is certified that its row says has no proof"
    assert spec.needs_episodes == (name in NEEDS_EPISODES)
    assert spec.why
    assert not spec.why.endswith(".")


def test_the_table_is_read_only_and_lists_names() -> None:
    assert list(METHODS)[:4] == ["safe-only", "paper", "published", "pce"]
    assert "paper" in METHODS
    with pytest.raises(TypeError):
        METHODS["mine"] = METHODS["paper"]  # type: ignore[index]


def test_numbers_of_numpy_are_stored_as_plain_ones() -> None:
    counts = {"episodes": np.int64(40), "horizon": np.int32(30), "seed": np.uint8(3)}
    made = learner(policies(), method="safe-only", **counts)  # type: ignore[arg-type]
    run = adapt(policies(), TASK, method="safe-only", **counts)  # type: ignore[arg-type]
    plain = {"method": "safe-only", "episodes": 40, "risk": 0.05, "seed": 3, "horizon": 30}
    for settings in (made.settings, run.settings):
        assert json.loads(json.dumps(settings)) == plain
    assert type(made.horizon) is int
    assert len(run.margin) == 40


def test_only_methods_without_a_proof_are_labelled_uncertified() -> None:
    labels = {name: learner(where(name)[0], method=name, episodes=100, risk=RISK).certified for name in METHODS}
    assert {
        name for name in ("safe-only", "paper", "published", "pce", "pce-theory") if not labels[name]
    } == UNCERTIFIED
    assert all(labels[name] for name in METHODS if name.startswith("certified"))


@pytest.mark.parametrize("name", METHODS)
def test_simulated_runs_are_complete_and_repeatable(name: str) -> None:
    trained, task = where(name)
    episodes = 20 if name in BASELINES else 70
    first, second = (adapt(trained, task, method=name, episodes=episodes, risk=RISK, seed=4) for _ in range(2))
    assert isinstance(first, Run)
    assert first.method == name
    assert first.regret.shape == first.margin.shape == first.weight.shape == (episodes,)
    assert ((first.weight >= 0) & (first.weight <= 1 + 1e-12)).all()
    assert isinstance(first.output, EpisodeMixture)
    if task is TASK:
        assert (np.diff(first.regret) >= 0).all()
        assert first.optimal_reward == pytest.approx(solve(TASK).values.reward, abs=1e-9)
    assert first.regret.tobytes() == second.regret.tobytes()
    assert first.margin.tolist() == second.margin.tolist()
    assert first.events == second.events


def test_settings_are_recorded() -> None:
    run = adapt(policies(), TASK, method="pce", episodes=20, risk=0.1, seed=4, horizon=9)
    expected = {"method": "pce", "episodes": 20, "risk": 0.1, "seed": 4, "horizon": 9}
    assert {name: run.settings[name] for name in expected} == expected
    assert adapt(policies(), TASK, method="pce", episodes=20, seed=4).settings["horizon"] == TASK.units.episode_length


def test_progress_is_reported() -> None:
    seen: list[tuple[int, int]] = []
    adapt(policies(), TASK, method="safe-only", episodes=50, seed=0, observer=lambda *done: seen.append(done))
    assert seen[-1] == (50, 50)


def test_where_no_policy_is_feasible_regret_is_undefined_but_margins_are_not() -> None:
    hopeless = gridworld().task([0.5])
    run = adapt(policies(), hopeless, method="safe-only", episodes=30, seed=0)
    assert math.isnan(run.optimal_reward)
    assert np.isnan(run.regret).all()
    assert (run.margin < 0).all()
    assert run.unsafe_episodes == 30


@pytest.mark.parametrize("name", NEEDS_EPISODES)
def test_methods_whose_proof_needs_the_number_of_episodes_say_so(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name}.* needs the number of episodes in advance"):
        learner(policies(), method=name)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in NEEDS_EPISODES])
def test_other_methods_run_for_as_long_as_one_likes(name: str) -> None:
    assert learner(where(name)[0], method=name, risk=RISK).ask().episode == 0


def test_more_risk_means_shorter_phases_for_the_paper() -> None:
    def log_term(risk: float) -> float:
        method: Any = learner(policies(), method="paper", episodes=1000, risk=risk).method
        return float(method.rules.log_term)

    failing = policies().safe_risk
    assert failing is not None
    assert log_term(0.05) - log_term(0.5) == pytest.approx(math.log((0.5 - failing) / (0.05 - failing)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"method": "magic"}, "method must be one of safe-only, paper, .*got 'magic'"),
        ({"risk": 0.0}, "risk must lie strictly between 0 and 1, got 0.0"),
        ({"risk": 1.0}, "risk must"),
        ({"risk": math.nan}, "risk must"),
        ({"episodes": 0}, "episodes must be a whole number of at least 1, got 0"),
        ({"episodes": 10.0}, "episodes must"),
        ({"episodes": True}, "episodes must"),
        ({"seed": -1}, "seed must"),
        ({"temperature": 2}, "takes no option 'temperature'"),
        ({"assume_safe": "no"}, "assume_safe must be True or False, got 'no'"),
        ({"method": "safe-only", "assume_safe": 1}, "assume_safe must be True or False, got 1"),
        ({"method": "certified-model-free", "assume_safe": "no"}, "assume_safe must be True or False, got 'no'"),
        ({"method": "certified", "split": "no"}, "split must be True or False, got 'no'"),
    ],
)
def test_learner_refuses_and_names_what_is_wrong(wrong: dict[str, Any], message: str) -> None:
    arguments = {"method": "paper", "episodes": 10, **wrong}
    with pytest.raises(InvalidInput, match=message):
        learner(policies(), **arguments)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"episodes": 0}, "episodes must be a whole number of at least 1, got 0"),
        ({"episodes": 2.5}, "episodes must"),
        ({"horizon": 0}, "horizon must be a whole number of at least 1, got 0"),
        ({"method": "magic"}, "method must be one of"),
        ({"risk": 2.0}, "risk must"),
    ],
)
def test_adapt_refuses_and_names_what_is_wrong(wrong: dict[str, Any], message: str) -> None:
    arguments = {"method": "safe-only", "episodes": 10, "seed": 0, **wrong}
    with pytest.raises(InvalidInput, match=message):
        adapt(policies(), TASK, **arguments)


@pytest.mark.parametrize("name", METHODS)
def test_unknown_options_are_refused_by_every_method(name: str) -> None:
    with pytest.raises(InvalidInput, match="takes no option 'warmth'"):
        learner(policies(), method=name, episodes=10, warmth=1)


# ------------------------------------------------------------------------- what the rows say in `surefoot methods`

DOCS = Path(__file__).parents[1] / "docs"
GUARANTEES = (DOCS / "guarantees.md").read_text()
THEOREMS = "".join(page.read_text() for page in sorted((DOCS / "guarantees").glob("*.md")))
OFFERS = ("full", "given policies", "cells alone", "no cells", "signals")


@cache
def offer(name: str) -> tuple[PolicyValueSet, set[str], bool]:
    """A policy set, what it holds of `NEEDS`, and whether its entries cover the tasks."""
    full, all_of_it = policies(), {"policies", "cells", "model", "exact-model", "tables"}
    assert full.cells is not None
    match name:
        case "full":
            return full, all_of_it, True
        case "given policies":
            return replace(full, epsilon=None, delta=None, xi=None), all_of_it, False
        case "cells alone":
            return replace(full, cells=replace(full.cells, model=None)), {"policies", "cells"}, True
        case "no cells":
            return replace(full, cells=None), {"policies"}, True
        case _:
            return shown_set(), {"policies", "cells", "signals"}, False


@pytest.mark.parametrize("offered", OFFERS)
@pytest.mark.parametrize("name", METHODS)
def test_a_method_can_be_made_of_what_it_needs_and_of_nothing_less(name: str, offered: str) -> None:
    spec, (held, holds, covers) = METHODS[name], offer(offered)
    enough = spec.needs in holds and (covers or not spec.needs_cover)
    assert (refusal(held, name) is None) == enough, refusal(held, name)


def refusal(held: PolicyValueSet, name: str) -> str | None:
    try:
        learner(held, method=name, episodes=100, risk=RISK)
    except InvalidInput as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_takes_a_risk_asks_for_it(name: str) -> None:
    asked = []

    class Watched(MethodArgs):
        def __getattribute__(self, name: str) -> Any:
            asked.append(name)
            return super().__getattribute__(name)

    held, _ = where(name)
    METHODS[name].method(held, Watched(name, 100, RISK, held.units.episode_length), {})
    assert ("risk" in asked) == METHODS[name].takes_risk


@pytest.mark.parametrize("name", CONTROL_METHODS)
def test_methods_for_networks_refuse_tables(name: str) -> None:
    assert CONTROL_METHODS[name].needs == "networks"
    with pytest.raises(InvalidInput, match=r"network|surefoot\[control\]"):
        learner(policies(), method=name, episodes=100)


@pytest.mark.parametrize("spec", specs(), ids=lambda spec: spec.name)
def test_every_method_is_described(spec: MethodSpec) -> None:
    assert spec_of(spec.name) is spec
    assert spec.described()["needs"][0] == NEEDS[spec.needs]
    assert spec.costs
    assert not spec.costs.endswith(".")
    assert bool(spec.proof) == spec.certified, "certified and nothing to show for it, or the other way round"
    theorems = re.findall(r"[0-9]+|P\b", spec.why.partition(":")[0]) if spec.why.startswith("Theorem") else []
    assert [f"Theorem {each}" for each in theorems if f"Theorem {each}" not in spec.proof] == []


@pytest.mark.parametrize("place", sorted({place for spec in specs() for place in spec.proof}))
def test_the_guarantees_have_what_methods_refer_to(place: str) -> None:
    """A section in the first column of the list of statements, a theorem on a page of its own."""
    if place.startswith("section"):
        listed = re.findall(r"^\| ([0-9., ]+) \| .*\]\(guarantees/", GUARANTEES, re.MULTILINE)
        assert place.removeprefix("section ") in {number for row in listed for number in row.split(", ")}
    else:
        assert re.search(rf"^\*\*{place}\b", THEOREMS, re.MULTILINE)


def test_the_table_of_the_guarantees_says_the_same() -> None:
    """Of methods that it has a row for: whether they see transitions, and whether they are certified."""
    rows = re.findall(r"^\| `([a-z-]+)` \|(.*)\|([^|]*)\|$", GUARANTEES.partition("## Which theorem")[0], re.MULTILINE)
    assert len(rows) > 6
    for name, told, certified in rows:
        assert METHODS[name].certified == (not certified.strip().startswith("**no**")), name
        if name != "certified":  # which is told as much as its option says
            assert ("states, actions" in told) == (METHODS[name].observes == "transitions"), name
