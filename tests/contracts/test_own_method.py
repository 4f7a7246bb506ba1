"""A method of one's own is one object: everything that the library does for its own methods follows from it."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from typer.testing import CliRunner

import surefoot as sf
from contracts.made_up import made_up_set
from contracts.spending import HORIZON, UNITS, OpenSpending, Spending, spending_set
from surefoot.cli.commands import app
from surefoot.cmdp.policy import Policy
from surefoot.deploy import session, snapshots
from surefoot.deploy.verify import verify
from surefoot.errors import InvalidInput
from surefoot.learning.method import SAFE, SAFE_MIXTURE, Certificate, Method, Mixture, Observes, Step
from surefoot.learning.spec import MethodArgs, MethodSpec, PlanLine
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report import results_table
from surefoot.report.metrics import summarise
from surefoot.report.palette import COLOURS, stroke
from surefoot.simulate.plan import plan_methods
from surefoot.testing import learner_suite
from surefoot.testing.learner_suite import fingerprint

# ------------------------------------------------------------------------------------------------------- the one object


@dataclass(frozen=True, eq=False)
class Ledger:
    """Episodes so far, what they cost in all, and whether the candidate is in."""

    count: int
    spent: np.ndarray
    trusting: bool


@dataclass(frozen=True, eq=False)
class Halfway:
    """Every tenth episode: mix the first candidate in at `share` if episodes cost less than half of the budget."""

    policies: PolicyValueSet
    share: float
    name: ClassVar[str] = "halfway"
    certified: ClassVar[bool] = False
    observes: ClassVar[Observes] = "sums"

    @property
    def units(self) -> sf.Units:
        return self.policies.units

    def start(self) -> Ledger:
        return Ledger(0, np.zeros(len(self.units.budget)), False)

    def mixture(self, state: Ledger) -> Mixture:
        mixture = Mixture(np.array([SAFE, 1]), np.array([1 - self.share, self.share]))
        return mixture if state.trusting else SAFE_MIXTURE

    def policy(self, state: Ledger, index: int) -> Policy:
        return self.policies.policies[index]

    def update(self, state: Ledger, episode: int, drawn: np.ndarray, outcomes: sf.Outcomes) -> Step:
        used = min(len(outcomes), 10 - state.count % 10)
        spent = state.spent
        for cost in outcomes.cost[:used]:
            spent = spent + cost
        return self._moved(Ledger(state.count + used, spent, state.trusting), used)

    def abandon(self, state: Ledger, episode: int, drawn: int) -> Step:
        worst = self.units.cost_value_range[:, 1]
        return self._moved(Ledger(state.count + 1, state.spent + worst, state.trusting), 1)

    def certificate(self, state: Ledger) -> Certificate:
        return Certificate(0, 0, None)

    def _moved(self, state: Ledger, used: int) -> Step:
        if state.count % 10:
            return Step(state, used)
        return Step(replace(state, trusting=bool((state.spent / state.count < self.units.budget / 2).all())), used)


def _halfway(policies: PolicyValueSet, terms: MethodArgs, share: float = 0.5) -> Halfway:
    return Halfway(policies, share)


HALFWAY = MethodSpec(
    "halfway", _halfway, certified=False, why="a toy", options=("share",), state=(Ledger,), needs_episodes=True
)

# ------------------------------------------------------------------------------------------------- and all that follows


@dataclass(frozen=True, eq=False)
class Inheriting(Method):
    """The same with what `Method` has by default; its fields have no defaults, although `Method` has some for them."""

    policies: PolicyValueSet
    share: float
    name: ClassVar[str] = "halfway"

    start, mixture, update = Halfway.start, Halfway.mixture, Halfway.update
    abandon, certificate, _moved = Halfway.abandon, Halfway.certificate, Halfway._moved


def fresh(**options: Any) -> sf.Learner:
    return sf.learner(spending_set(), method=HALFWAY, episodes=500, seed=3, **options)


def test_it_passes_the_shipped_suite() -> None:
    learner_suite.check(fresh, learner_suite.EpisodeSource(Spending(0.4), HORIZON, 300))


def test_who_inherits_need_not_write_the_defaults() -> None:
    spec = replace(HALFWAY, make=lambda policies, terms, share=0.5: Inheriting(policies, share))

    def inheriting() -> sf.Learner:
        return sf.learner(spending_set(), method=spec, episodes=500, seed=3)

    learner_suite.check(inheriting, learner_suite.EpisodeSource(Spending(0.4), HORIZON, 300))
    made, plain = inheriting(), fresh()
    for one in (made, plain):
        assert (one.certified, one.risk_split, one.events, one.method.observes) == (False, {}, (), "sums")
        assert one.method.units is one.method.policies.units
        assert one.method.share == 0.5
    assert isinstance(made.method, Inheriting)
    with pytest.raises(TypeError, match="share"):
        Inheriting(spending_set())  # type: ignore[call-arg]


def test_what_is_abstract_must_be_written() -> None:
    class Halves(Method):
        name = "halves"

    with pytest.raises(TypeError, match="abstract method"):
        Halves()  # type: ignore[abstract]


def test_it_has_snapshots_and_its_journal_verifies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SNAPSHOT_EVERY", 10)
    path, key = tmp_path / "halfway.journal", bytes(range(32))
    world = learner_suite.EpisodeSource(Spending(0.4), HORIZON, 100)

    def told(deployment: sf.Deployment, episodes: int) -> None:
        for _ in range(episodes):
            order = deployment.ask()
            outcome = world.outcome(deployment.learner, order.episode, order.policy_index)
            deployment.tell(order, reward=outcome.reward, cost=outcome.cost)

    with sf.Deployment.open(path, fresh(), key=key) as deployment:
        told(deployment, 35)
        assert deployment.learner.deployed.weight == 0.5
        state = fingerprint(deployment.learner.state)
    with sqlite3.connect(path) as connection:
        (content,) = connection.execute("SELECT state FROM snapshots ORDER BY n DESC").fetchone()
    found = snapshots.decode(content, snapshots.classes(fresh()))[0]
    assert isinstance(found.method, Ledger)
    assert found.episode == 30
    with sf.Deployment.open(path, fresh(), key=key) as deployment:
        assert fingerprint(deployment.learner.state) == state
        told(deployment, 5)
    verdict = verify(path, fresh(), key=key)
    assert verdict.holds, verdict.reason
    assert (verdict.episodes, verdict.method) == (40, "halfway")


def test_the_command_line_says_how_its_journal_is_verified(tmp_path: Path) -> None:
    units = sf.Units(0.5, (0.0, 1.0), np.array([[0.0, 1.0]]), np.array([1.0]))
    policies = made_up_set(units, [(0.5, [0.5], 0.5, [0.5])], epsilon=0.1)
    policies.save(tmp_path / "set")
    with sf.Deployment.open(tmp_path / "journal", sf.learner(policies, method=HALFWAY, episodes=5)) as deployment:
        deployment.tell(deployment.ask(), reward=1.0, cost=0.0)
    said = CliRunner().invoke(app, ["verify", str(tmp_path / "journal"), "--policies", str(tmp_path / "set")])
    assert said.exit_code != 0
    words = " ".join((said.output + str(said.exception)).replace("│", " ").split())
    assert "a method of the user's own, 'halfway': make its learner again in Python" in words


def test_without_its_state_classes_a_snapshot_is_missed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session, "SNAPSHOT_EVERY", 1)
    bare = replace(HALFWAY, state=())
    learner = sf.learner(spending_set(), method=bare, episodes=5)
    with sf.Deployment.open(tmp_path / "journal", learner, key=bytes(16)) as deployment:
        deployment.tell(deployment.ask(), reward=3.0, cost=0.0)
        assert deployment.status().episodes == 1
    assert "no snapshot: the state of halfway holds a Ledger" in caplog.text


def test_it_has_a_colour_and_a_row_of_results() -> None:
    run = sf.adapt(spending_set(), OpenSpending(0.4), method=HALFWAY, episodes=60, seed=1)
    assert (run.method, run.certified) == ("halfway", False)
    assert json.loads(json.dumps(run.settings)) == {
        "method": "halfway", "episodes": 60, "risk": 0.05, "seed": 1, "horizon": HORIZON
    }  # fmt: skip
    safe = sf.adapt(spending_set(), OpenSpending(0.4), method="safe-only", episodes=60, seed=1)
    table = results_table({"halfway": summarise([run]), "safe-only": summarise([safe])})
    assert any("halfway" in str(row) for row in table.rows)
    assert stroke("halfway").colour in COLOURS


def test_it_takes_its_options_and_no_others() -> None:
    assert fresh(share=0.25).settings["share"] == 0.25
    with pytest.raises(InvalidInput, match="method 'halfway' takes no option 'pace'; it takes share"):
        fresh(pace=1)
    with pytest.raises(InvalidInput, match="needs the number of episodes in advance"):
        sf.learner(spending_set(), method=HALFWAY)


def test_it_may_have_a_plan() -> None:
    mine = replace(HALFWAY, plan=lambda policies, terms: PlanLine(terms.name, False, 10, "decides after ten"))
    tried = replace(HALFWAY, name="tried", plan="trial")
    lines = plan_methods([HALFWAY, mine, tried], spending_set(), episodes=100, risk=0.1)
    assert [(line.method, line.episodes) for line in lines[:1]] == [("halfway", 10)]
    assert np.isnan(lines[1].episodes), "nobody knows without a family to try it on"


def test_names_of_others_and_things_that_are_no_methods_are_refused() -> None:
    impostor = replace(HALFWAY, name="paper")
    with pytest.raises(InvalidInput, match="method must have a name of its own, got a MethodSpec named 'paper'"):
        sf.learner(spending_set(), method=impostor, episodes=5)
    for wrong in ("halfway", None, ["paper"], Halfway):
        with pytest.raises(InvalidInput, match=r"method must be one of safe-only, .*or a MethodSpec of your own, got"):
            sf.learner(spending_set(), method=wrong, episodes=5)  # type: ignore[arg-type]
    assert sf.learner(spending_set(), method=sf.METHODS["paper"], episodes=5).name == "paper"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "name must be a text, got ''"),
        (
            {"observes": "pixels"},
            "observes must be one of sums, first-state, signals, transitions, steps, got 'pixels'",
        ),
        ({"state": (dict,)}, "state must hold dataclasses, got <class 'dict'>"),
        ({"state": (Ledger, Ledger)}, "state must hold classes of different names"),
    ],
)
def test_rows_are_checked(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(HALFWAY, **change)


def test_units_of_the_toy_are_those_of_the_task() -> None:
    assert fresh().method.units.same_as(UNITS)


# -------------------------------------------------------------------------------------- the suite catches what is wrong


class Hasty(Halfway):
    """Decides at the end of a block, wherever that falls."""

    def update(self, state: Ledger, episode: int, drawn: np.ndarray, outcomes: sf.Outcomes) -> Step:
        spent = state.spent + outcomes.cost.sum(axis=0)
        return Step(Ledger(state.count + len(outcomes), spent, True), len(outcomes))


class Talkative(Halfway):
    """Accounts otherwise for the same mixture after every episode, and goes on."""

    def certificate(self, state: Ledger) -> Certificate:
        return Certificate(state.count, 500, None)


class Moody(Halfway):
    """Tosses a coin that nobody can toss again."""

    def _moved(self, state: Ledger, used: int) -> Step:
        return Step(replace(state, trusting=bool(np.random.default_rng().random() < 0.5)), used)


class Greedy(Halfway):
    """Weights that sum to more than 1."""

    def mixture(self, state: Ledger) -> Mixture:
        return Mixture(np.array([SAFE, 1]), np.array([0.6, 0.6]))


class Careless(Halfway):
    """Writes into the state that it was handed."""

    def abandon(self, state: Ledger, episode: int, drawn: int) -> Step:
        state.spent[:] += 1.0
        return super().abandon(state, episode, drawn)


class Idle(Halfway):
    """Uses nothing of what it is told."""

    def update(self, state: Ledger, episode: int, drawn: np.ndarray, outcomes: sf.Outcomes) -> Step:
        return Step(state, 0)


class Secretive(Halfway):
    """Keeps its state in something that no file can hold."""

    def start(self) -> Any:
        return replace(super().start(), trusting=object())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Hasty, "tell another story than single episodes"),
        (Talkative, "blocks of .* tell another story"),
        (Moody, "equal outcomes gave another story|blocks of .* tell another story"),
        (Greedy, r"weights must sum to 1, got \[0.6, 0.6\]"),
        (Careless, "an earlier state was changed"),
        (Idle, "0 of 1 episodes were used"),
        (Secretive, "a state is plain data, not object"),
    ],
)
def test_methods_that_break_the_contract_are_caught(wrong: type[Halfway], message: str) -> None:
    spec = replace(HALFWAY, make=lambda policies, terms: wrong(policies, 0.5))
    with pytest.raises(AssertionError, match=message):
        learner_suite.check(
            lambda: sf.learner(spending_set(), method=spec, episodes=500, seed=3),
            learner_suite.EpisodeSource(Spending(0.4), HORIZON, 300),
        )


def test_a_state_that_its_row_does_not_list_is_caught() -> None:
    spec = replace(HALFWAY, state=())
    with pytest.raises(AssertionError, match="the state holds a Ledger, which"):
        learner_suite.check(
            lambda: sf.learner(spending_set(), method=spec, episodes=500, seed=3),
            learner_suite.EpisodeSource(Spending(0.4), HORIZON, 300),
        )
