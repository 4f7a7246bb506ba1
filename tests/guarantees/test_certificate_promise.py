"""One policy, one certificate (Theorem 14): how often a bound is ever wrong, at any of many looks at a growing log."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import surefoot as sf
from surefoot import certificate, confidence
from surefoot.arrays import Floats

FALSE_ALARM = 1e-4
TRIALS, LOOKS = 20, (1, 8, 64, 256)
MEANS = {"cost": 0.3, "other cost": 2.0, "reward": -0.5}
RANGES = {"cost_range": [[0.0, 1.0], [-1.0, 4.0]], "reward_range": (-3.0, 1.0)}


def log(seed: int) -> sf.Outcomes:
    """Sums of two values each, at the ends of their ranges or nearly so: where means are hardest to bound."""
    draws = np.random.default_rng([41, seed]).random((LOOKS[-1], 3))
    (low, high), (least, most), (worst, best) = [*RANGES["cost_range"], RANGES["reward_range"]]  # type: ignore[misc]
    ends = np.array([[low, high], [least, most], [worst, best]])
    chance = (np.array(list(MEANS.values())) - ends[:, 0]) / (ends[:, 1] - ends[:, 0])
    sums = np.where(draws < chance, ends[:, 1], ends[:, 0])
    return sf.Outcomes(sums[:, 2], sums[:, :2])


def is_ever_wrong(seed: int, risk: float) -> bool:
    told = log(seed)
    for look in LOOKS:
        found = sf.certify(told[:look], risk=risk, **RANGES)  # type: ignore[arg-type]
        bounds = dict(zip(MEANS, (*found.cost, found.reward), strict=True))
        if any(not bound.lower - 1e-12 <= MEANS[name] <= bound.upper + 1e-12 for name, bound in bounds.items()):
            return True
    return False


def verdicts(seed: int, budget: float, risk: float) -> set[str]:
    costs = log(seed).cost[:, 0]
    return {sf.certify(costs[:look], budget=budget, cost_range=(0.0, 1.0), risk=risk).verdict for look in LOOKS}


def p_value(count: int, trials: int, level: float) -> float:
    return float(stats.binomtest(count, trials, level, alternative="greater").pvalue)


@pytest.mark.parametrize("risk", [0.9, 0.2])
def test_bounds_are_wrong_as_seldom_as_promised(risk: float) -> None:
    wrong = sum(is_ever_wrong(seed, risk) for seed in range(TRIALS))
    assert p_value(wrong, TRIALS, risk) > FALSE_ALARM
    if risk == 0.9:
        assert wrong > 0, "bounds that are never wrong are too wide"


def test_a_verdict_is_wrong_as_seldom_as_promised() -> None:
    just_above, just_within = MEANS["cost"] - 1e-9, MEANS["cost"] + 1e-9
    wrong = sum("within" in verdicts(seed, just_above, 0.2) for seed in range(TRIALS))
    assert p_value(wrong, TRIALS, 0.2) > FALSE_ALARM
    wrong = sum("above" in verdicts(seed, just_within, 0.2) for seed in range(TRIALS))
    assert p_value(wrong, TRIALS, 0.2) > FALSE_ALARM


def test_the_sample_mean_for_a_bound_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def mean(logs: Floats, count: Floats, stakes: Floats, threshold: float) -> Floats:
        return np.asarray(-np.expm1(logs / count[..., None]) / stakes)[..., 0]  # of the smallest stake

    monkeypatch.setattr(confidence, "_largest_mean", mean)
    wrong = sum("within" in verdicts(seed, MEANS["cost"] - 1e-9, 0.2) for seed in range(TRIALS))
    assert p_value(wrong, TRIALS, 0.2) < FALSE_ALARM


def test_an_interval_for_one_look_that_is_looked_at_often_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def normal(self: certificate._Seen, times: float = 1.0) -> list[certificate.Bound]:
        mean = self.total / max(self.count, 1)
        radius = stats.norm.ppf(1 - self.intervals.error) * np.sqrt(0.3 * 0.7 / max(self.count, 1))
        return [certificate.Bound(float(each), float(each - radius), float(each + radius)) for each in mean]

    monkeypatch.setattr(certificate._Seen, "bounds", normal)
    wrong = sum("above" in verdicts(seed, MEANS["cost"] + 1e-9, 0.2) for seed in range(2 * TRIALS))
    wrong += sum("within" in verdicts(seed, MEANS["cost"] - 1e-9, 0.2) for seed in range(2 * TRIALS))
    assert p_value(wrong, 2 * TRIALS, 0.2) < FALSE_ALARM
