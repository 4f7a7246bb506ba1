"""A learner that is told of a distance: what is widened, what is left out, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from guarantees import mutants
from guarantees.mutants import STAY_CALM, STAY_RICH
from surefoot.arrays import Floats
from surefoot.bounds.cells import Cells, Source
from surefoot.bounds.settings import LESS_URGENT
from surefoot.bounds.widening import shrink_bounds, widen_bounds, widen_for_shift
from surefoot.cmdp.units import Units
from surefoot.errors import InvalidInput
from surefoot.learning.certified.method import Certified
from surefoot.learning.certified.replanning import Replanner
from surefoot.methods import adapt, learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.robust import shift_mass, worst_within

SHIFT = 0.008


@cache
def policies() -> PolicyValueSet:
    return mutants.rooms_policies()


def cells() -> Cells:
    found = policies().cells
    assert found is not None
    return found


def made(method: str = "certified-ball", **options: Any) -> Certified:
    found = learner(policies(), method=method, **options).method
    assert isinstance(found, Certified)
    return found


def test_bounds_hold_on_the_worst_tasks_around_every_cell() -> None:
    own = policies()
    wide = widen_for_shift(cells(), own.policies, own.units, ends=own.may_end, risk=0.5, shift=SHIFT, assume_safe=False)
    for k in range(0, len(wide), 9):
        for index, policy in enumerate((STAY_CALM, STAY_RICH)):
            for edge in (wide.low[k], wide.high[k]):
                worst = evaluate(worst_within(mutants.rooms().task(edge), policy, SHIFT), policy)
                assert wide.lower[k, index, 1] <= worst.margin[0]
                assert wide.lower[k, index, 1] >= worst.margin[0] - 0.35, "or nothing could be deployed"


def test_planned_policies_have_bounds_for_the_tasks_around() -> None:
    model = cells().model
    assert model is not None
    planner = Replanner(model, policies().units, SHIFT)
    everything = np.ones(len(cells()), dtype=bool)
    (plan,) = planner.extend_plans((), cells(), everything, everything, 500)
    for k in range(0, len(cells()), 13):
        worst = evaluate(worst_within(mutants.rooms().task(cells().low[k]), plan.policy, SHIFT), plan.policy)
        assert plan.margin[k, 0] <= worst.margin[0]


def test_cells_left_out_count_as_uncovered() -> None:
    largest = largest_shift(0.05)
    wide = made(shift=0.99 * largest).cells
    assert wide.prior.sum() + wide.uncovered == pytest.approx(1.0)
    assert (wide.lower[:, 0, 1:] >= 0).all()
    assert len(wide) <= len(cells())


def test_too_large_a_shift_is_refused_with_the_largest_that_would_do() -> None:
    largest = largest_shift(0.05)
    made(shift=largest)
    with pytest.raises(InvalidInput, match="shift must be at most"):
        made(shift=1.01 * largest)
    made(shift=2 * largest, assume_safe=True)


def largest_shift(risk: float) -> float:
    with pytest.raises(InvalidInput, match="shift must be at most") as refused:
        made(shift=0.5, risk=risk)
    found = re.search(r"at most ([0-9.e-]+),", str(refused.value))
    assert found is not None
    return float(found.group(1))


def test_evidence_knows_of_the_shift() -> None:
    known = cells().model
    assert known is not None
    chosen = made(shift=SHIFT).evidence
    assert chosen.model.radius == pytest.approx(known.radius[: len(chosen.model.radius)] + SHIFT)  # type: ignore[attr-defined]
    assert chosen.model.reward is None  # type: ignore[attr-defined]
    assert (chosen.model.start > 0).all()  # type: ignore[attr-defined]
    assert (made("certified-returns", shift=SHIFT).evidence.cells.lower <= cells().lower).all()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("source", "place"), [("holdout", 1 / 2), ("monte-carlo", 1 / (1 + LESS_URGENT))])
def test_narrower_bounds_are_around_what_was_estimated(source: Source, place: float) -> None:
    own = replace(cells(), source=source, model=None)
    estimate, half, same = (shrink_bounds(own, width) for width in (0.0, 0.5, 1.0))
    assert same is own
    assert np.array_equal(estimate.lower, estimate.upper)
    margins = own.lower[..., 1:] + place * (own.upper - own.lower)[..., 1:]
    np.testing.assert_allclose(estimate.lower[..., 1:], margins, rtol=1e-12)
    np.testing.assert_allclose(estimate.lower[..., 0], (own.lower + own.upper)[..., 0] / 2, rtol=1e-12)
    np.testing.assert_allclose(half.lower, (own.lower + estimate.lower) / 2, rtol=1e-12)
    np.testing.assert_allclose(half.upper, (own.upper + estimate.upper) / 2, rtol=1e-12)


def test_evidence_has_a_width_of_its_own() -> None:
    chosen = made("certified-returns", width=0.0, evidence_width=0.5, level=0.2)
    held_against: Cells = chosen.evidence.cells  # type: ignore[attr-defined]
    assert np.array_equal(chosen.cells.lower, shrink_bounds(cells(), 0.0).lower)
    assert np.array_equal(held_against.lower, shrink_bounds(cells(), 0.5).lower)
    assert not made("certified-returns", evidence_width=0.5).certified


def test_certified_is_one_that_allows_a_shift() -> None:
    assert "certified-ball" in made("certified", shift=SHIFT).note
    assert "certified-returns" in made("certified", shift=SHIFT, observes="sums").note


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("certified-likelihood", {"shift": 0.01}, "use certified-ball or certified-returns"),
        ("certified-ball", {"shift": -0.1}, "shift must be a distance"),
        ("certified-ball", {"shift": float("nan")}, "shift must be"),
        ("certified-ball", {"assume_safe": True}, "without a shift"),
        ("certified-model-free", {"shift": 0.01}, "takes no option 'shift'"),
    ],
)
def test_what_is_refused(method: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        learner(policies(), method=method, **options)


def test_no_shift_changes_nothing() -> None:
    task = mutants.rooms().task([0.1])
    plain, told = (
        adapt(policies(), task, method="certified-ball", episodes=60, seed=3, **options)
        for options in ({}, {"shift": 0.0})
    )
    assert np.array_equal(plain.regret, told.regret)


# ------------------------------------------------------------------------------------- the end of an episode is a state


@pytest.mark.parametrize("horizon", [None, 6])
@pytest.mark.parametrize("sign", [1, -1])
def test_values_move_by_no_more_than_ranges_with_the_end_allow(horizon: int | None, sign: int) -> None:
    """Chains with the end as a state of its own, and the worst ones around them, by value iteration. Every step costs
    between 0.9 and 1, or earns that, and the range says no more; without the end it allows for too little."""
    units = Units(0.8, (0.0, 1.0), np.sort(sign * np.array([[0.9, 1.0]]), axis=1), np.array([sign * 2.0]), horizon)
    broken = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        chain, cost = rng.dirichlet([1, 1, 1, 0.3], 3), sign * rng.uniform(0.9, 1.0, 3)
        start, shift = rng.dirichlet([1, 1, 1]), float(rng.uniform(0.01, 0.2))
        near = margins(units, chain, cost, start, 0.0)
        worst = margins(units, chain, cost, start, shift)
        assert worst < near
        known = np.array([[[0.5, near]]])
        for ends in (True, False):
            least, most = units.possible_values(ends=ends)
            lower, upper = widen_bounds(known, known, units, shift, most - least, ends=ends, from_start=True)
            kept = bool(lower[0, 0, 1] <= worst <= upper[0, 0, 1])
            assert kept or not ends
            broken += not kept
    assert broken >= 10


def margins(units: Units, chain: Floats, cost: Floats, start: Floats, shift: float) -> float:
    """The margin on the worst chain within `shift`: rows [3, 4], of which the last column is the end, where nothing is
    paid; the start may move as well."""
    value = np.zeros(4)
    for _ in range(units.horizon or 200):
        value = np.append(cost + units.discount * shift_mass(chain, value, shift) @ value, 0.0)
    return float(units.budget[0] - shift_mass(np.append(start, 0.0)[None], value, shift)[0] @ value)


def test_tables_know_that_they_never_end() -> None:
    assert not policies().may_end
    assert replace(policies(), cells=replace(cells(), model=None)).may_end
    assert replace(policies(), cells=None, safe_risk=0.0).may_end
