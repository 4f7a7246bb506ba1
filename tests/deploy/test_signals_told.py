"""Episodes told by what was observed, or by signals read from it: recorded, computed again, and refused if wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployments import contents, drive, fresh, task
from mutations import forge
from test_own_controllers import Client, surefoot

import surefoot as sf
from shown_wheel import effects, shown_set, turn, turn_told
from surefoot.bounds.settings import LearnedSignals
from surefoot.cmdp.episode import Observed, Outcome, Outcomes
from surefoot.cmdp.policy import Policy
from surefoot.deploy import protocol
from surefoot.deploy.chain import canonical, read
from surefoot.deploy.outcomes import record
from surefoot.deploy.replay import FeaturesMissing
from surefoot.deploy.session import Deployment
from surefoot.deploy.verify import Verification, verify
from surefoot.errors import InvalidInput
from surefoot.learning.checks import signals_of
from surefoot.learning.learner import Learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tabular.model import TabularCMDP
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import family
from surefoot.testing import learner_suite
from surefoot.testing.learner_suite import fingerprint, snapshot
from wheel import QUICK, STEPS

METHOD = "certified-signals"
SCHEMA = json.loads((Path(__file__).parents[2] / "docs/deployment-protocol.schema.json").read_text())


def learner(policies: PolicyValueSet) -> Learner:
    return sf.learner(policies, method=METHOD, risk=0.5, seed=5)


def outcomes_in(path: Path) -> list[dict[str, Any]]:
    return [row.data for row in read(path) if row.kind == "outcome"]


def signals_of_turn(order: sf.Order, made: Learner) -> list[float]:
    """What the set reads from it, without anything of the deployment."""
    observed, reads = turn(order).observed, signals_of(made.method)
    assert observed is not None
    assert reads is not None
    signals: list[float] = reads.of(order.policy_index, observed)[0].tolist()
    return signals


# --------------------------------------------------------------------------------------------- what is told is recorded


def test_observations_of_several_parts_are_recorded_as_one_array() -> None:
    steps = [{"speed": 0.5, "at": [1, 2]}, {"speed": 0.25, "at": [3, 4]}]
    told: Any = {"reward": 1.0, "cost": 0.5, "actions": [0]}
    plain = record({**told, "observations": steps}, 1)
    assert plain == record({**told, "observations": [[1, 2, 0.5], [3, 4, 0.25]]}, 1)
    assert plain == record({**told, "observations": [(each["at"], each["speed"]) for each in steps]}, 1)
    for wrong in ([{"at": "home"}, {"at": "away"}], [{"at": [1, 2]}, {"at": [1]}], [{"at": [[1], [1, 2]]}] * 2):
        with pytest.raises(InvalidInput, match="observations must"):
            record({**told, "observations": wrong}, 1)


def test_what_was_observed_and_what_was_read_from_it_stand_in_the_journal(tmp_path: Path) -> None:
    made = fresh(METHOD)
    with Deployment.open(tmp_path / "journal", made) as deployment:
        for _ in range(12):
            order = deployment.ask()
            told, signals = turn_told(order), signals_of_turn(order, made)
            deployment.tell(order, **told)
            assert outcomes_in(tmp_path / "journal")[-1] == {"episode": order.episode, **told, "signals": signals}
    verdict = verify(tmp_path / "journal", fresh(METHOD))
    assert (verdict.holds, verdict.episodes, verdict.rounding) == (True, 12, 0.0), verdict.reason


def test_an_interrupted_deployment_tells_the_story_of_one_that_was_not(tmp_path: Path) -> None:
    """Killed between order and outcome, abandoned episodes and all: row for row, hash for hash."""
    with Deployment.open(tmp_path / "whole", fresh(METHOD)) as deployment:
        drive(deployment, 40, METHOD)
        deployment.ask()
    for episodes in (1, 7, 8, 23, 40):
        with Deployment.open(tmp_path / "parts", fresh(METHOD)) as deployment:
            drive(deployment, episodes, METHOD)
            deployment.ask()
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    decisions = [row for row in read(tmp_path / "whole") if row.kind == "decision"]
    assert len(decisions) > 3
    assert verify(tmp_path / "parts", fresh(METHOD)).holds


def test_signals_told_are_as_good_as_what_they_are_read_from(tmp_path: Path) -> None:
    """The learner ends in the same state, told by observations, by signals, or without a journal."""
    plain = fresh(METHOD)
    paths = {name: tmp_path / name for name in ("observations", "signals")}
    opened = {name: Deployment.open(path, fresh(METHOD)) for name, path in paths.items()}
    for _ in range(30):
        order = plain.ask()
        told = turn_told(order)
        signals = signals_of_turn(order, plain)
        plain.tell(order, turn(order))
        opened["observations"].tell(opened["observations"].ask(), **told)
        opened["signals"].tell(opened["signals"].ask(), reward=told["reward"], cost=told["cost"], signals=signals)
    for name, deployment in opened.items():
        assert fingerprint(deployment.learner.state) == fingerprint(plain.state)
        deployment.close()
        assert verify(paths[name], fresh(METHOD)).holds
    assert "signals" in outcomes_in(paths["signals"])[0]
    assert "observations" not in outcomes_in(paths["signals"])[0]


def test_rewards_and_costs_may_be_told_step_by_step_beside_observations(tmp_path: Path) -> None:
    with Deployment.open(tmp_path / "journal", fresh(METHOD)) as deployment:
        order = deployment.ask()
        told = turn_told(order)
        angles = np.array(told["observations"])[1:, 0]
        deployment.tell(
            order,
            rewards=told["actions"],
            costs=(np.abs(angles) > 1).astype(float),
            observations=np.array(told["observations"], dtype=np.float32),
            actions=np.array(told["actions"]),
        )
        assert outcomes_in(tmp_path / "journal")[0]["observations"] == told["observations"]
    assert verify(tmp_path / "journal", fresh(METHOD)).holds


def test_telling_twice_is_a_no_op_if_it_is_the_same(tmp_path: Path) -> None:
    with Deployment.open(tmp_path / "journal", fresh(METHOD)) as deployment:
        order = deployment.ask()
        told = turn_told(order)
        deployment.tell(order, **told)
        deployment.ask()
        before = deployment.head()
        deployment.tell(order, **told)
        assert deployment.head() == before
        others = {**told, "observations": [[9.0, 0.0], *told["observations"][1:]]}
        sums = {"reward": told["reward"], "cost": told["cost"]}
        for other in (others, {**sums, "signals": signals_of_turn(order, deployment.learner)}, sums):
            with pytest.raises(InvalidInput, match="what was told cannot be changed"):
                deployment.tell(order, **other)
        assert deployment.head() == before


def test_a_breach_is_recorded_with_what_was_observed(tmp_path: Path) -> None:
    with Deployment.open(tmp_path / "journal", fresh(METHOD)) as deployment:
        order = deployment.ask()
        told = {**turn_told(order), "reward": 99.0}
        with pytest.raises(InvalidInput, match="or with breach=True"):
            deployment.tell(order, **told)
        deployment.tell(order, **told, breach=True)
        assert not deployment.learner.certified
        deployment.tell(order := deployment.ask(), **turn_told(order))
    found = outcomes_in(tmp_path / "journal")
    assert (found[0]["breach"], "signals" in found[0], len(found)) == (True, True, 2)
    assert verify(tmp_path / "journal", fresh(METHOD)).holds


# ------------------------------------------------------------------------------------------------------------- refusals

STEP = [0.5, 0.0]
GOOD = {"observations": [STEP] * (STEPS + 1), "actions": [1] * STEPS}
BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "certified-signals needs the signals of every episode, or observations (or states) and actions"),
    ({"observations": GOOD["observations"]}, "observations must come with actions, got none"),
    (
        {"actions": GOOD["actions"]},
        "actions must come with observations, or with states as transitions, got them alone",
    ),
    ({**GOOD, "signals": [0.5] * 2}, "signals must not be told beside observations and actions, which they are"),
    ({**GOOD, "first_state": 0}, "first_state must not be told beside transitions or observations"),
    ({**GOOD, "transitions": {"states": [0, 1], "actions": [0]}}, "actions must be told once"),
    (
        {"observations": [STEP] * 2, "transitions": {"states": [0, 1], "actions": [0]}},
        "observations must not be told beside transitions, got both",
    ),
    (
        {"transitions": {"states": [0, 1], "actions": [0], "observations": []}},
        "transitions must hold states and actions",
    ),
    (
        {"transitions": {"states": [0, 1], "actions": [0]}, "signals": [0.5] * 2},
        "signals must not be told beside states",
    ),
    ({**GOOD, "observations": [STEP] * STEPS}, "observations must be one more than actions (6), got 6"),
    ({**GOOD, "observations": [STEP] * 9}, "observations must be one more than actions (6), got 9"),
    ({"observations": [STEP] * 8, "actions": [1] * 7}, "actions must be at most 6, the learner's horizon, got 7"),
    ({**GOOD, "observations": [STEP] * STEPS + [[0.5]]}, "observations must be numbers"),
    ({**GOOD, "observations": [STEP] * STEPS + [[0.5, None]]}, "observations must be numbers"),
    ({**GOOD, "observations": [STEP] * STEPS + [[0.5, "1"]]}, "observations must be numbers"),
    ({**GOOD, "observations": [STEP] * STEPS + [[0.5, np.nan]]}, "observations[6, 1] must be finite, got nan"),
    ({**GOOD, "observations": [STEP] * STEPS + [[0.5, -np.inf]]}, "observations[6, 1] must be finite, got -inf"),
    (
        {**GOOD, "observations": [[-1e200, 0.0], *[[1e200, 0.0]] * STEPS]},
        "observations must be of a size that signals can be",
    ),
    ({**GOOD, "observations": [0.5] * (STEPS + 1)}, "observations and actions must be as those of the training tasks"),
    ({**GOOD, "observations": [[0.5] * 3] * (STEPS + 1)}, "observations and actions must be as those of the training"),
    ({**GOOD, "observations": 0.5}, "observations must hold numbers for every step, got shape []"),
    ({**GOOD, "observations": []}, "observations must hold numbers for every step, got shape [0]"),
    ({"observations": [STEP], "actions": []}, "actions must hold numbers for every step, got shape [0]"),
    ({**GOOD, "actions": [[1, 1]] * STEPS}, "observations and actions must be as those of the training tasks"),
    ({**GOOD, "actions": [True] * STEPS}, "actions must be numbers"),
    ({"signals": [0.5] * 3}, "signals must be 2 numbers, got 3"),
    ({"signals": 0.5}, "signals must be numbers in a row, got shape []"),
    ({"signals": [[0.5] * 2]}, "signals must be numbers in a row, got shape [1, 2]"),
    ({"signals": [0.5, 1.0000001]}, "signals[1] must lie in [0, 1], got 1.0000001"),
    ({"signals": [0.5, -1e-9]}, "signals[1] must lie in [0, 1], got -1e-09"),
    ({"signals": [0.5, np.nan]}, "signals[1] must be finite, got nan"),
    ({"signals": ["0.5"] * 2}, "signals must be numbers"),
]


@pytest.mark.parametrize("breach", [False, True])
def test_what_is_malformed_is_refused_and_nothing_changes(breach: bool, tmp_path: Path) -> None:
    with Deployment.open(tmp_path / "journal", fresh(METHOD)) as deployment:
        order, before = deployment.ask(), deployment.head()
        for told, message in BAD[breach:]:  # sums alone are enough to say that something was out of range
            with pytest.raises(InvalidInput, match=re.escape(message)):
                deployment.tell(order, reward=1.0, cost=0.0, breach=breach, **told)
            assert deployment.head() == before
            assert deployment.ask() is order
        with pytest.raises(InvalidInput, match=re.escape("actions must be as many as rewards (5), got 6")):
            deployment.tell(order, rewards=[1.0] * 5, costs=[0.0] * 5, breach=breach, **GOOD)
        deployment.tell(order, reward=1.0, cost=0.0, **GOOD)


@pytest.mark.parametrize("method", ["safe-only", "certified-returns", "certified-likelihood"])
@pytest.mark.parametrize("breach", [False, True])
def test_methods_without_signals_refuse_what_they_have_no_use_for(method: str, breach: bool, tmp_path: Path) -> None:
    """A longer journal that nothing follows from is no service."""
    with Deployment.open(tmp_path / "journal", fresh(method)) as deployment:
        order, before = deployment.ask(), deployment.head()
        for told, name in ((GOOD, "observations"), ({"signals": [0.5]}, "signals")):
            with pytest.raises(InvalidInput, match=f"{name} must be left out: {method} has no use for them"):
                deployment.tell(order, reward=1.0, cost=0.5, breach=breach, **told)
        assert deployment.head() == before


def without(outcome: Outcome, **changes: Any) -> Outcome:
    return replace(outcome, observed=None, **changes)


def test_a_learner_refuses_the_same() -> None:
    made = fresh(METHOD)
    order = made.ask()
    good = turn(order)
    assert good.observed is not None
    seen, acted, steps = good.observed.observations, good.observed.actions, good.observed.steps
    late = np.pad(seen, [(0, 0), (0, 2), (0, 0)])
    unknown = seen.copy()
    unknown[0, 3, 1] = np.nan
    huge = np.full(seen.shape, 1e200) * (-1.0) ** np.arange(STEPS + 1)[:, None]
    wrong: list[tuple[Outcome, str]] = [
        (without(good), "certified-signals needs the signals of every episode"),
        (replace(good, signals=np.full(2, 0.5)), "signals must be told once"),
        (without(good, signals=np.full(3, 0.5)), "signals must be 2 numbers per episode, got shape [3]"),
        (without(good, signals=np.full((1, 2), 0.5)), "signals must be 2 numbers per episode, got shape [1, 2]"),
        (without(good, signals=np.array([0.5, np.nan])), "signals[0, 1] must lie in [0, 1], got nan"),
        (without(good, signals=np.array([0.5, 1.5])), "signals[0, 1] must lie in [0, 1], got 1.5"),
        (replace(good, observed=Observed(seen[:, 1:], acted, steps)), "must have shapes [1, H+1, ...], [1, H, ...]"),
        (replace(good, observed=Observed(seen, acted[0], steps)), "must have shapes [1, H+1, ...], [1, H, ...]"),
        (replace(good, observed=Observed(seen, acted, steps[:0])), "must have shapes [1, H+1, ...], [1, H, ...]"),
        (replace(good, observed=Observed(seen[:0], acted[:0], steps[:0])), "must have shapes [1, H+1, ...]"),
        (replace(good, observed=Observed(seen, acted, steps + 1)), "steps[0] must lie in [1, 6], got 7"),
        (replace(good, observed=Observed(seen, acted, steps * 0)), "steps[0] must lie in [1, 6], got 0"),
        (
            replace(good, observed=Observed(late, np.pad(acted, [(0, 0), (0, 2)]), steps + 1)),
            "steps[0] must lie in [1, 6], got 7",
        ),
        (replace(good, observed=Observed(unknown, acted, steps)), "observations must be finite"),
        (replace(good, observed=Observed(huge, acted, steps)), "must be of a size that signals can be"),
        (replace(good, observed=Observed(seen.astype(str), acted, steps)), "observations must be numbers"),
    ]
    before = learner_suite.snapshot(made)
    for outcome, message in wrong:
        with np.errstate(all="ignore"), pytest.raises(InvalidInput, match=re.escape(message)):
            made.tell(order, outcome)
        assert learner_suite.snapshot(made) == before
    late[0, -2:] = np.nan  # behind the last step anything may stand
    made.tell(order, replace(good, observed=Observed(late, np.pad(acted, [(0, 0), (0, 2)]), steps)))
    other = fresh(METHOD)
    other.tell(order, good)
    assert learner_suite.snapshot(made) == learner_suite.snapshot(other) != before


# ----------------------------------------------------------------------------------------------------------- forgeries


def forged(path: Path, change: Callable[[dict[str, Any]], None]) -> Verification:
    """The verdict on the journal with one outcome changed by somebody who computes all hashes again."""
    rows = [(row.kind, row.payload) for row in read(path)]
    outcomes = {n: json.loads(payload) for n, (kind, payload) in enumerate(rows) if kind == "outcome"}
    # One whose signals are not at the ends of their windows: there an observation may change without them.
    place, data = next((n, told) for n, told in outcomes.items() if any(0 < each < 1 for each in told["signals"]))
    change(data)
    rows[place] = ("outcome", canonical(data))
    other = path.with_name("forged")
    other.write_bytes(path.read_bytes())
    forge(other, rows)
    verdict = verify(other, fresh(METHOD))
    assert verdict.holds or verdict.first_bad is not None
    if not verdict.holds and "signals[" in verdict.reason:
        assert verdict.first_bad == place
    return verdict


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    with Deployment.open(tmp_path / "journal", fresh(METHOD)) as deployment:
        drive(deployment, 12, METHOD)
    return tmp_path / "journal"


def test_a_signal_that_does_not_follow_is_found(journal: Path) -> None:
    """Too small a change to alter any decision, but a change."""

    def nudged(by: float) -> Callable[[dict[str, Any]], None]:
        def change(data: dict[str, Any]) -> None:
            inside = next(k for k, value in enumerate(data["signals"]) if 0 < value < 1)
            data["signals"][inside] += by

        return change

    verdict = forged(journal, nudged(1e-6))
    assert not verdict.holds
    assert re.search(r"signals\[\d\] must be 0\.\d+, found 0\.\d+, computed from what was observed", verdict.reason)
    rounded = forged(journal, nudged(1e-13))  # as another processor might have it
    assert rounded.holds, rounded.reason
    assert 0 < rounded.rounding < 1e-12


def test_an_observation_that_was_changed_is_found(journal: Path) -> None:
    def change(data: dict[str, Any]) -> None:
        data["observations"][3][0] += 1e-3

    verdict = forged(journal, change)
    assert not verdict.holds
    assert "computed from what was observed" in verdict.reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data.pop("signals"), "outcome must be written"),
        (lambda data: data.update(signals=[]), "must be"),
        (lambda data: data.update(signals=None), "must be"),
        (lambda data: data.update(signals=[*data["signals"], 0.5]), "signals must be"),
        (lambda data: data.update(signals=[str(each) for each in data["signals"]]), "signals"),
        (lambda data: data.pop("actions"), "observations must come with actions"),
        (lambda data: data.pop("observations"), "actions must come with observations"),
        (lambda data: data["observations"].pop(), "observations must be one more than actions"),
        (lambda data: data.update(states=[0] * 7), "observations must not be told beside transitions|actions must be"),
        (lambda data: data.update(observations=[[1, 1]] * 7), "computed from what was observed"),
    ],
)
def test_outcomes_that_nobody_told_are_found(change: Any, reason: str, journal: Path) -> None:
    verdict = forged(journal, change)
    assert not verdict.holds
    assert re.search(reason, verdict.reason), verdict.reason


# ------------------------------------------------------------------------------------------------- systems with states


class Hidden:
    """A table that only its simulator knows."""

    def __init__(self, slip: float) -> None:
        self.truth: TabularCMDP = task(slip)
        self.units, self.spaces = replace(self.truth.units, horizon=20), self.truth.spaces

    def digest(self) -> str:
        return self.truth.digest()

    def episodes(self, policy: Policy, steps: int) -> Any:
        return self.truth.episodes(policy, min(steps, 20))


def hidden(parameter: np.ndarray) -> Hidden:
    return Hidden(float(parameter[0]))


def test_signals_of_a_system_with_states_are_read_from_its_transitions(tmp_path: Path) -> None:
    policies = [sf.TabularPolicy(np.array([[1 - p, p]] * 2)) for p in (0.0, 0.3, 0.6)]
    lesson = LearnedSignals(tasks=20, episodes=4, windows=2)
    made = sf.policy_set(
        family(hidden, Uniform(0.1, 0.5)),
        safe=policies[0], candidates=policies[1:], seed=1, envelopes=QUICK, progress=False, signals=lesson,
    )  # fmt: skip
    assert made.cells is not None
    assert made.cells.readings is not None
    assert made.cells.readings.signals.kind == "transitions"
    with Deployment.open(tmp_path / "journal", learner(made)) as deployment:
        for k in range(10):
            order = deployment.ask()
            ran: Outcomes = Hidden(0.2).episodes(order.policy, 20).run(1, np.random.default_rng(k), transitions=True)
            assert ran.states is not None
            assert ran.actions is not None
            states = {"states": ran.states[0].tolist(), "actions": ran.actions[0].tolist()}
            deployment.tell(order, reward=ran.reward[0], cost=ran.cost[0], transitions=states)
            signals = made.cells.readings.signals.of(order.policy_index, ran.watched())[0]
            assert outcomes_in(tmp_path / "journal")[-1]["signals"] == signals.tolist()
        told = {"observations": states["states"], "actions": states["actions"]}
        deployment.tell(deployment.ask(), reward=1.0, cost=0.5, **told)  # states are observations too
    assert verify(tmp_path / "journal", learner(made)).holds


# ---------------------------------------------------------------------------------------------- features of one's own


@pytest.mark.long
def test_features_of_ones_own_are_needed_to_compute_and_not_to_tell(tmp_path: Path) -> None:
    shown_set(own=True).save(tmp_path / "set")
    bare = PolicyValueSet.load(tmp_path / "set")
    whole = PolicyValueSet.load(tmp_path / "set", features=effects)
    with (
        Deployment.open(tmp_path / "here", learner(whole)) as here,
        Deployment.open(tmp_path / "elsewhere", learner(bare)) as elsewhere,
    ):
        for _ in range(12):
            order = here.ask()
            told = turn_told(order)
            here.tell(order, **told)
            signals = outcomes_in(tmp_path / "here")[-1]["signals"]
            assert signals == signals_of_turn(order, learner(whole))  # in single precision, as in simulation
            with pytest.raises(InvalidInput, match=r"features 'effects' must be here for signals to be computed"):
                elsewhere.tell(elsewhere.ask(), **told)
            elsewhere.tell(elsewhere.ask(), reward=told["reward"], cost=told["cost"], signals=signals)
        assert fingerprint(here.learner.state) == fingerprint(elsewhere.learner.state)
    assert verify(tmp_path / "here", learner(whole)).holds
    assert verify(tmp_path / "elsewhere", learner(bare)).holds
    with pytest.raises(FeaturesMissing, match=r"features 'effects', which are not here: .* with features="):
        verify(tmp_path / "here", learner(bare))
    with pytest.raises(FeaturesMissing, match=r"features 'effects', which are not here: .* with features="):
        Deployment.open(tmp_path / "here", learner(bare))
    code, _, errors = surefoot("verify", tmp_path / "here", "--policies", tmp_path / "set")
    assert (code, "load the policy set in Python with features=" in " ".join(errors.split())) == (2, True)


def test_features_of_ones_own_refuse_episodes_of_another_form(tmp_path: Path) -> None:
    with Deployment.open(tmp_path / "journal", learner(shown_set(own=True))) as deployment:
        order = deployment.ask()
        for told, message in (
            ({**GOOD, "observations": [0.5] * 7}, r"observations must have the shape .*, \[2\], got \[\]"),
            ({**GOOD, "actions": [[1]] * 6}, r"actions must have the shape .*, \[\], got \[1\]"),
            (
                {**GOOD, "actions": [0.5] * 6},
                r"actions\[0, 0\] must be of type int64 as in the training tasks, got 0.5",
            ),
        ):
            with pytest.raises(InvalidInput, match=message):
                deployment.tell(order, reward=1.0, cost=0.0, **told)
        deployment.tell(order, reward=1.0, cost=0.0, **{**GOOD, "actions": [1.0] * 6})


# ----------------------------------------------------------------------------------------------- in lines, from outside


@pytest.mark.long
def test_from_any_language_with_a_crash_to_the_verified_journal(tmp_path: Path) -> None:
    shown_set().save(tmp_path / "set")
    journal = tmp_path / "journal"
    words = ("deploy", tmp_path / "set", "--journal", journal, "--method", METHOD, "--risk", 0.5, "--seed", 5)
    client, asked = Client(*words), learner(shown_set())
    for number in range(20):
        order = client.call(do="ask")["order"]
        asking = asked.ask()
        assert (order["policy"], order["horizon"]) == (asking.policy_index, STEPS)
        if number == 4:
            client.call(do="abandon", episode=number, reason="sensor fell off")
            asked.abandon(asking)
            continue
        if number == 9:
            client.kill()  # in the midst of an episode
            client = Client(*words[:4])
            assert client.call(do="ask")["order"] == order
        request = {"do": "tell", "episode": number, **turn_told(asking)}
        client.call(**request)
        asked.tell(asking, turn(asking))
    client.kill()
    code, lines, errors = surefoot("verify", journal, "--policies", tmp_path / "set")
    assert (code, errors) == (0, "")
    assert "of 20 episodes follow" in lines[0]
    assert any(line.startswith("weights, margins and signals agree to 0") for line in lines)


def line(deployment: Deployment, **request: Any) -> dict[str, Any]:
    return protocol.answer(deployment, json.dumps(request).encode())


def test_lines_that_are_malformed_get_an_answer(tmp_path: Path) -> None:
    with Deployment.open(tmp_path / "journal", fresh(METHOD)) as deployment:
        line(deployment, do="ask")
        for told, message in BAD:
            answer = line(deployment, do="tell", episode=0, reward=1.0, cost=0.0, **told)
            assert answer["error"]["kind"] in ("invalid", "request"), answer
            if "nan" not in message and "inf" not in message and "numbers" not in message:
                assert message in answer["error"]["message"]
        good = {"do": "tell", "episode": 0, "reward": 1.0, "cost": 0.0, "signals": [0, 1.0]}
        assert line(deployment, **good) == {"ok": True, "episodes": 1}
    assert outcomes_in(tmp_path / "journal")[0]["signals"] == [0.0, 1.0]


def test_the_schema_takes_what_is_taken_and_little_else() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    sums = {"do": "tell", "episode": 0, "reward": 1.0, "cost": 0.0}
    for told in ({}, GOOD, {"signals": [0, 0.5, 1.0]}, {"observations": [0, 1, 2], "actions": [[0.5], [1.5]]}):
        jsonschema.validate({**sums, **told}, SCHEMA)
    for told in ({"signals": [1.5]}, {"signals": []}, {"observations": 1}, {"actions": ["x"]}, {"signal": [0.5]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**sums, **told}, SCHEMA)


def test_a_day_of_five_minute_steps_fits_a_line_easily() -> None:
    number = repr(-1 / 3)
    day = {"observations": [[-1 / 3] * 4] * 289, "actions": [-1 / 3] * 288}
    text = json.dumps({"do": "tell", "episode": 0, "reward": 1.0, "cost": 0.0, **day})
    assert len(text) < protocol.LIMITS.size / 200
    assert text.count(number) == 289 * 4 + 288
    for steps, fits in ((60_000, True), (100_000, False)):
        long = {"observations": [[-1 / 3] * 4] * (steps + 1), "actions": [-1 / 3] * steps}
        content = json.dumps({"do": "tell", "episode": 0, "reward": 1.0, "cost": 0.0, **long}).encode()
        assert (len(content) <= protocol.LIMITS.size) == fits


# ------------------------------------------------------------------------------------------- earlier episodes, observed


def test_a_history_is_read_as_told_episodes_are(tmp_path: Path) -> None:
    """By observations, by the signals that they show, or simulated: the same evidence, computed again to the bit."""
    made = learner(shown_set())
    orders = [sf.Order(k, 0, made.policy(0), 0.0, made.deployed) for k in range(40)]
    observed = [turn_told(order) for order in orders]
    signals = [
        {"reward": told["reward"], "cost": told["cost"], "signals": signals_of_turn(order, made)}
        for told, order in zip(observed, orders, strict=True)
    ]
    states = []
    for name, history in (("observed", observed), ("signals", signals), ("none", None)):
        with Deployment.open(tmp_path / name, learner(shown_set()), history=history) as deployment:  # type: ignore[arg-type]
            for _ in range(5):
                order = deployment.ask()
                deployment.tell(order, **turn_told(order))
            states.append(snapshot(deployment.learner))
        assert verify(tmp_path / name, learner(shown_set())).holds
    assert states[0] == states[1] != states[2]
