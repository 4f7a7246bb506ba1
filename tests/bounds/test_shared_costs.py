"""Costs that are the same on all tasks: bounds from the episodes of all of them, wrong as rarely as they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats

from rough_family import LEVERS, Lever
from surefoot.arrays import Floats
from surefoot.bounds import simulated as module
from surefoot.bounds.envelopes import build_cells
from surefoot.bounds.settings import Envelopes, ResolvedBounds
from surefoot.bounds.simulation import PilotStats, Simulation, Trial
from surefoot.errors import InvalidInput
from surefoot.fan_out import workers
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family

FALSE_ALARM = 1e-4
COSTS = np.array([0.02, 0.25, 0.4])
ENVELOPES = Envelopes(cells=6, holdout=60, uncovered=0.2, episodes=60)
SETTINGS = ResolvedBounds(cells=6, holdout=40, uncovered=0.2, episodes=60, simulated=True, shared_costs=True)


@dataclass(frozen=True)
class Fixed(Lever):
    """A lever that costs the same whatever θ is, which only what it shows depends on."""

    costs: tuple[float, ...] = tuple(COSTS)

    @property
    def cost(self) -> Floats:
        return np.array(self.costs)


def fixed(shared: bool = True, costs: Sequence[float] = COSTS) -> TaskDistribution:
    def build(theta: Floats) -> Fixed:
        return Fixed(float(theta[0]), 0.0, 1, costs=tuple(costs))

    return family(build, Uniform(0.0, 1.0), shared_costs=shared)


def pilots(rng: np.random.Generator, tasks: int, episodes: int) -> list[PilotStats]:
    nothing = np.zeros((3, 2))
    drawn = (rng.random((tasks, episodes, 3)) < COSTS).astype(np.float64)
    return [PilotStats(nothing, nothing, costs[..., None], None) for costs in drawn]


def wrong(repeats: int, settings: ResolvedBounds, pretended: int = 1) -> int:
    """How often a bound is wrong, if each episode is counted so many times."""
    count, rng = 0, np.random.default_rng(11)
    with workers(1) as ready:
        simulation = Simulation(Trial(fixed(), LEVERS), settings, 0, ready)
    for _ in range(repeats):
        found = pilots(rng, 30, 10)
        repeated = [each._replace(costs=np.repeat(each.costs, pretended, axis=0)) for each in found]
        lower, upper = module.shared_costs(simulation, np.linspace(0, 1, 30)[:, None], repeated)
        count += bool(((lower[:, 0] > COSTS) | (upper[:, 0] < COSTS)).any())
    return count


def too_often(count: int, repeats: int) -> bool:
    return bool(stats.binomtest(count, repeats, SETTINGS.alpha_spent, alternative="greater").pvalue < FALSE_ALARM)


@pytest.mark.parametrize("repeats", [150, pytest.param(400, marks=pytest.mark.long)])
def test_bounds_are_wrong_as_rarely_as_they_say(repeats: int) -> None:
    assert SETTINGS.alpha_spent == pytest.approx(0.01)
    assert not too_often(wrong(repeats, SETTINGS), repeats)


MUTANTS = [(1, 4, 150), pytest.param(120, 1, 400, marks=pytest.mark.long)]


@pytest.mark.parametrize(("more", "pretended", "repeats"), MUTANTS)
def test_the_count_sees_bounds_that_are_wrong_more_often(
    more: int, pretended: int, repeats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: episodes that count more than once, and an error that every single bound may have at once."""
    monkeypatch.setattr(module, "_check_same", lambda *_: None)
    assert too_often(wrong(repeats, replace(SETTINGS, uncovered=more * SETTINGS.uncovered), pretended), repeats)


def test_every_cell_has_the_same_narrow_bounds_on_costs() -> None:
    assert Envelopes().resolve(fixed().example, True).shared_costs
    together, alone = (build_cells(fixed(shared), LEVERS, seed=2, envelopes=ENVELOPES) for shared in (True, False))
    margin = slice(1, 2)
    low, high = together.lower[..., margin], together.upper[..., margin]
    assert (low == low[:1]).all()
    assert (high == high[:1]).all()
    assert together.uncovered == alone.uncovered == ENVELOPES.uncovered
    truth = 0.3 - COSTS[:, None]
    assert ((low <= truth) & (truth <= high)).all()
    assert (high - low).max() < 0.6 * (alone.upper - alone.lower)[..., margin].max(axis=-1).mean()


def test_costs_that_depend_on_the_parameter_are_refused() -> None:
    tasks = replace(fixed(), build=lambda theta: Lever(float(theta[0]), 0.0, 1))
    with pytest.raises(InvalidInput, match="shared_costs must be False"):
        build_cells(tasks, LEVERS, seed=2, envelopes=replace(ENVELOPES, episodes=240))


def test_a_safe_policy_that_is_not_shown_to_be_safe_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"the safe policy must be shown to keep its budgets, got one of which \d+"):
        build_cells(fixed(costs=(0.28, 0.3, 0.4)), LEVERS, seed=2, envelopes=ENVELOPES)


def test_the_declaration_is_checked() -> None:
    with pytest.raises(InvalidInput, match="shared_costs must be True or False, got 1"):
        family(fixed().build, Uniform(0.0, 1.0), shared_costs=1)  # type: ignore[arg-type]
