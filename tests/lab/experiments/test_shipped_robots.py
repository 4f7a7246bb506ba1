"""The shipped sets of the experiment on robots: what their files and their meta-policies are, and what they took."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runner import LEVELS, Runs, pushing, runners
from safetensors.numpy import load

from surefoot.bounds.envelopes import build_cells
from surefoot.bounds.settings import Envelopes, LearnedSignals
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.lab.experiments.locomotion import shipped
from surefoot.lab.experiments.locomotion.families import FAMILIES
from surefoot.lab.experiments.locomotion.settings import NETWORKS
from surefoot.lab.experiments.locomotion.shipped import Origin, School
from surefoot.lab.experiments.locomotion.simulated_steps import HELD_OUT, SAMPLE, SIGNALS, simulated_steps
from surefoot.policyset.policy_value_set import PolicyValueSet

DOCS = Path(__file__).parents[3] / "docs"
SHIPPED = Path(shipped.__file__).parent / "trained"


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.policyset")), ids=lambda path: path.stem)
def test_shipped_sets_have_the_digest_that_is_told(path: Path) -> None:
    told = json.loads(path.with_suffix(".json").read_text())
    assert PolicyValueSet.load(path).digest() == told["digest"]
    for method, digest in told.get("starts", {}).items():
        assert sha256((path.parent / f"{path.stem}.{method}.safetensors").read_bytes()).hexdigest() == digest


@pytest.fixture(scope="module")
def unmoved() -> dict[str, list[str]]:
    """Of each shipped family, the meta-learners whose meta-policy is the network of the safe policy."""
    found = {}
    for path in SHIPPED.glob("*.policyset"):
        files = {method: path.with_name(f"{path.stem}.{method}.safetensors") for method in NETWORKS}
        loaded = {method: load(file.read_bytes()) for method, file in files.items() if file.is_file()}
        starts = {method: MLPPolicy.from_arrays(arrays) for method, arrays in loaded.items()}
        assert len(starts) == 3
        found[path.stem] = School(PolicyValueSet.load(path), starts, Origin("", 0, "", "", 0.0, 0)).unchanged_starts
    return found


def test_documents_say_which_shipped_meta_policies_are_the_safe_policy(unmoved: dict[str, list[str]]) -> None:
    assert unmoved == {name: ["meta-cpo"] for name in FAMILIES}, "retrained: say so in the documents"
    for name in ("experiments.md", "baselines.md"):
        text = " ".join((DOCS / name).read_text().split())
        assert "meta-CPO's meta-policy is the safe policy itself, bit for bit, in all four shipped sets" in text
        assert "order of the baselines holds" not in text


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
    envelopes = Envelopes(cells=20, holdout=80, uncovered=0.06, episodes=60)
    signals = LearnedSignals(tasks=12, episodes=4)
    pushes = [pushing(level) for level in LEVELS]
    build_cells(runners(), pushes, seed=0, envelopes=envelopes, signals=signals, show=noted)
    told = simulated_steps(runners(), envelopes, signals, len(pushes))
    assert counted[SAMPLE] == told[SAMPLE]
    assert 0.7 * told[HELD_OUT] < counted[HELD_OUT] <= told[HELD_OUT]
    assert counted[SIGNALS] == told[SIGNALS] + 10  # one episode more, to see whether anything is observed


def test_steps_of_the_shipped_sets() -> None:
    """The settings of the families, counted by hand: 8, 13 and 5 policies, episodes of 200 steps."""
    by_hand = {
        "half-cheetah-motors": [420 * 13 * 8, 140 * 80 * 8, 128 * 16 * 8],
        "half-cheetah": [468 * 8 * 13, 156 * 50 * 13, 128 * 16 * 13],
        "hopper": [468 * 8 * 5, 156 * 50 * 5, 128 * 16 * 5],
    }
    for name, episodes in by_hand.items():
        family, count = FAMILIES[name], len(PolicyValueSet.load(SHIPPED / f"{name}.policyset").policies)
        found = simulated_steps(family.tasks(), family.envelopes, family.signals, count)
        assert list(found.values()) == [200 * each for each in episodes]


def test_planned_steps_count_the_looser_budgets() -> None:
    told = {path.stem: json.loads(path.read_text())["steps"] for path in SHIPPED.glob("*.json")}
    experts = {"half-cheetah-motors": 6, "hopper-motors": 6 + 3, "half-cheetah": 11, "hopper": 3}  # that began warm
    for name, warm in experts.items():
        family = FAMILIES[name]
        assert told[name] == family.steps + warm * family.warm_steps + family.safe_steps
        policies = PolicyValueSet.load(SHIPPED / f"{name}.policyset")
        again = shipped._origin(family, policies, 1.0, command="", seed=0, digest="", version="", seconds=0.0)
        assert again.steps == told[name]
