"""The shipped sets of the experiment on robots: what their files and their meta-policies are, and what they took."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from runner import LEVELS, Runs, pushing, runners

from surefoot.bounds.envelopes import build_cells
from surefoot.bounds.settings import Envelopes, LearnedSignals
from surefoot.errors import InvalidInput
from surefoot.lab.baselines.history_policy import LENGTH, HistoryPolicy
from surefoot.lab.baselines.rollout_buffer import safe_network
from surefoot.lab.experiments.locomotion import policy_sets
from surefoot.lab.experiments.locomotion.policy_sets import (
    HELD_OUT,
    SAMPLE,
    SIGNALS,
    TRAINED,
    FamilyPolicies,
    load_shipped,
    same_network,
    simulated_steps,
)
from surefoot.lab.experiments.locomotion.settings import FAMILIES, FIXED, SHIPPED
from surefoot.lab.experiments.locomotion.tuning import best_trial
from surefoot.methods import CONTROL_METHODS
from surefoot.oracles.interface import FeasiblePolicy


@pytest.fixture(scope="module")
def shipped() -> dict[str, FamilyPolicies]:
    """Loaded, which checks the digests of sets and meta-policies against those that are told."""
    return {name: load_shipped(name) for name in SHIPPED}


def test_every_family_is_shipped_with_its_meta_policies(shipped: dict[str, FamilyPolicies]) -> None:
    assert sorted(SHIPPED) == sorted(path.stem for path in TRAINED.glob("*.policyset"))
    for found in shipped.values():
        assert set(found.starts) == {"safe-meta-control", "meta-cpo", "maml-penalty", *FIXED}


def test_a_family_that_is_not_shipped_says_how_to_train_it() -> None:
    for name in FAMILIES.keys() - set(SHIPPED):
        with pytest.raises(InvalidInput, match=f"{name} is not shipped with this package: use --retrain"):
            load_shipped(name)
    assert FAMILIES.keys() > set(SHIPPED)


def test_meta_policies_moved_and_say_how(shipped: dict[str, FamilyPolicies]) -> None:
    for found in shipped.values():
        assert found.unchanged_starts == []
        origin = found.origin
        assert origin.accepted.keys() == {"safe-meta-control", "meta-cpo", "maml-penalty"}
        assert all(count > 50 for count in origin.accepted.values())
        assert set(origin.tuning) == set(CONTROL_METHODS)
        for tuning in origin.tuning.values():
            best = best_trial(tuning["gains"], tuning["unsafe"])
            assert tuning["chosen"] == tuning["tried"][best]
        assert "--retrain-baselines" in origin.baselines


@pytest.mark.long
@pytest.mark.parametrize("method", FIXED)
def test_networks_that_never_adapt_take_the_steps_that_are_told(
    shipped: dict[str, FamilyPolicies], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = pytest.importorskip("surefoot.lab.experiments.locomotion.training")
    name, steps = "half-cheetah-motors", []
    safe = safe_network(shipped[name].policies)
    improve = training.improve

    def count_steps(*given: Any, **words: Any) -> Any:
        return improve(*given, **words, observer=lambda batch: steps.append(batch.steps))

    monkeypatch.setattr(training, "improve", count_steps)
    found, again = (training.train_across_domains(FAMILIES[name], method, safe, seed=0, share=0.01) for _ in range(2))
    assert steps[-1] == training.meta_steps(200, 0.01) == 24_000
    assert not same_network(found, safe)
    assert same_network(found, again)
    if isinstance(found, HistoryPolicy):
        assert (found.length, found.observations) == (LENGTH, len(safe.shift))
        assert np.abs(found.network.weights[0][:, found.observations :]).max() > 0  # it goes by what it remembers


def test_a_safe_policy_is_trained_on_the_corners_of_the_family_as_well() -> None:
    training = pytest.importorskip("surefoot.lab.experiments.locomotion.training")
    family, asked = FAMILIES["half-cheetah-dynamics"].tasks(), []

    def oracle(tasks: list[Any], xi: float | None, delta: float, rng: np.random.Generator) -> FeasiblePolicy:
        asked.extend(task.parameter.tolist() for task in tasks)
        values = np.arange(float(len(tasks)))
        return FeasiblePolicy("safe", values, values[:, None])

    middle = [1.0, 1.0]
    feasible = training.feasible_on_corners(oracle, family)
    found = feasible([family.task(np.array(middle))], 0.3, 0.1, np.random.default_rng(0))
    assert asked[0] == middle
    assert sorted(asked[1:]) == [[0.5, 0.57], [0.5, 1.43], [2.0, 0.57], [2.0, 1.43]]
    assert (found.policy, found.reward.tolist(), found.margin.tolist()) == ("safe", [0.0], [[0.0]])


def test_the_safe_policy_keeps_the_budget_on_the_corners(shipped: dict[str, FamilyPolicies]) -> None:
    found, family = shipped["half-cheetah-dynamics"].policies, FAMILIES["half-cheetah-dynamics"].tasks()
    for corner in itertools.product(*family.distribution.support):
        episodes = family.task(np.array(corner)).episodes(found.safe_policy, 200)
        assert episodes.run(20, np.random.default_rng(0)).cost.mean() < 0.75 * found.units.budget[0]


# ------------------------------------------------------------------------------------------------------ simulator steps


def test_steps_of_bounds_and_signals_are_those_that_training_simulates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted where they are simulated. Held-out tasks may take less than all of theirs."""
    counted: Counter[str] = Counter()
    simulate, stage = Runs.run, [SIGNALS]

    def counting(self: Runs, episodes: int, rng: np.random.Generator, transitions: bool = False) -> Any:
        counted[stage[0]] += episodes * self.task.units.episode_length
        return simulate(self, episodes, rng, transitions)

    def noted(what: str, done: int, total: int) -> None:
        places = {"simulating the tasks": SAMPLE, "simulating held-out": HELD_OUT, "simulating the held-out": HELD_OUT}
        stage[0] = next((place for words, place in places.items() if what.startswith(words)), stage[0])

    monkeypatch.setattr(Runs, "run", counting)
    envelopes = Envelopes(cells=10, holdout=41, uncovered=0.15, episodes=60)
    signals = LearnedSignals(tasks=12, episodes=4)
    pushes = [pushing(level) for level in LEVELS[:3]]
    build_cells(runners(), pushes, seed=0, envelopes=envelopes, signals=signals, show=noted)
    told = simulated_steps(runners(), envelopes, signals, len(pushes))
    assert counted[SAMPLE] == told[SAMPLE]
    assert 0.7 * told[HELD_OUT] < counted[HELD_OUT] <= told[HELD_OUT]
    assert counted[SIGNALS] == told[SIGNALS] + 10  # one episode more, to see whether anything is observed


def test_steps_of_the_shipped_sets(shipped: dict[str, FamilyPolicies]) -> None:
    """The settings of the families, counted by hand: 7, 8, 13 and 5 policies, episodes of 200 steps."""
    by_hand = {
        "half-cheetah-dynamics": [420 * 13 * 7, 140 * 80 * 7, 128 * 16 * 7],
        "half-cheetah-motors": [420 * 13 * 8, 140 * 80 * 8, 128 * 16 * 8],
        "half-cheetah": [468 * 8 * 13, 156 * 50 * 13, 128 * 16 * 13],
        "hopper": [468 * 8 * 5, 156 * 50 * 5, 128 * 16 * 5],
    }
    for name, episodes in by_hand.items():
        family, count = FAMILIES[name], len(shipped[name].policies.policies)
        found = simulated_steps(family.tasks(), family.envelopes, family.signals, count)
        assert list(found.values()) == [200 * each for each in episodes]


def test_planned_steps_count_the_looser_budgets(shipped: dict[str, FamilyPolicies]) -> None:
    # Those that began warm.
    experts = {
        "half-cheetah-dynamics": 5,
        "half-cheetah-motors": 6,
        "hopper-motors": 6 + 3,
        "half-cheetah": 11,
        "hopper": 3,
    }
    for name, warm in experts.items():
        family, origin = FAMILIES[name], shipped[name].origin
        assert origin.steps == family.steps + warm * family.warm_steps + family.safe_steps
        told = {"command": "", "seed": 0, "digest": "", "version": "", "seconds": 0.0}
        assert policy_sets._origin(family, shipped[name].policies, 1.0, **told).steps == origin.steps
