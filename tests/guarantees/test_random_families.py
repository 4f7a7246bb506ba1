"""The promise on random families of every kind: unsafe tasks and true cells lost, counted against the risk.

The families of `surefoot reproduce promise --families random`, fewer of them. A correct method fails one such count
with probability below FALSE_ALARM; everything is seeded. Errors that only some kinds of families bring to light must be
caught by the same count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from guarantees import mutants
from surefoot.bounds import affine as affine_cells
from surefoot.errors import InvalidInput
from surefoot.lab.experiments.promise.counts import FALSE_ALARM, Count
from surefoot.lab.experiments.promise.random_families import KINDS, RandomFamily, UniformSimplex, random_family
from surefoot.lab.experiments.promise.run import FamilyCount, RandomSettings, count_family, count_tasks, sum_counts
from surefoot.learning.certified.evidence import ball as transition_ball
from surefoot.learning.certified.evidence import likelihood
from surefoot.methods import adapt
from surefoot.tabular.evaluate import evaluate

LIKELIHOOD, BALL = "certified-likelihood", "certified-ball"
FEW = RandomSettings(number=11, tasks=4, twins=2, risks=(0.1,), seed=1)
LONG = RandomSettings(number=66, tasks=10, twins=2, seed=2)


def drawn(kind: str, count: int, seed: int = 0) -> list[RandomFamily]:
    return [random_family(kind, np.random.default_rng([seed, number])) for number in range(count)]


# -------------------------------------------------------------------------------------------------------- the generator


@pytest.mark.short_for(kind=["affine", "finite"])
@pytest.mark.parametrize("kind", KINDS)
def test_families_are_what_they_should_be(kind: str) -> None:
    """π_s keeps its budgets on most tasks, others break them on some; the same generator, the same family."""
    families = drawn(kind, 4)
    assert [family.tasks.digest() for family in drawn(kind, 1)] == [family.tasks.digest() for family in families[:1]]
    safe, broken = [], []
    for number, family in enumerate(families):
        for parameter in family.tasks.sample(10, np.random.default_rng(number)):
            task = family.tasks.task(parameter)
            safe.append(evaluate(task, family.safe).margin.min() >= 0)
            broken.append(any((evaluate(task, each).margin < 0).any() for each in family.candidates))
    assert np.mean(safe) > 0.9
    assert np.mean(broken) > 0.5


@pytest.mark.short_for(kind=["finite", "near-identical"])
@pytest.mark.parametrize("kind", KINDS)
def test_most_families_have_cells(kind: str) -> None:
    sources = []
    for family in drawn(kind, 2):
        try:
            sources.append(family.policies().cells.source)
        except InvalidInput:
            sources.append("refused")
    assert sources.count("refused") <= 1


@pytest.mark.long
def test_every_trait_occurs() -> None:
    families = [family for kind in KINDS for family in drawn(kind, 8)]
    units = [family.tasks.units for family in families]
    assert {len(each.budget) for each in units} == {1, 2, 3}
    assert {each.discount for each in units} >= {0.5, 0.7, 0.8, 0.9, 0.99, 0.995}
    assert any((each.cost_range < 0).any() for each in units)
    scales = [family.tasks.distribution.support.max() for family in families if family.tasks.affine is not None]
    assert min(scales) < 1e-6
    assert max(scales) > 1e10
    assert {family.tasks.dimension for family in families} == {1, 2, 3}
    assert any(family.steps < 10 for family in families)  # episodes that end by themselves


@pytest.mark.parametrize("dimension", [2, 3])
def test_mass_of_boxes_under_the_uniform_distribution_on_a_simplex(dimension: int) -> None:
    distribution = UniformSimplex(dimension, 1e-6)
    sample = distribution.sample(40_000, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    for _ in range(10):
        low, high = np.sort(rng.uniform(-0.2e-6, 1.2e-6, (2, dimension)), axis=0)
        share = ((sample >= low) & (sample <= high)).all(axis=1).mean()
        assert distribution.mass(low, high) == pytest.approx(share, abs=0.01)
    assert distribution.mass([-1.0] * dimension, [1.0] * dimension) == pytest.approx(1.0)


# ------------------------------------------------------------------------------------------------------------ the count


def pooled(rows: Iterable[FamilyCount], method: str, risk: float) -> Count:
    return sum_counts(row.count for row in rows if (row.method, row.risk) == (method, risk) and row.count is not None)


def check(rows: list[FamilyCount], settings: RandomSettings) -> None:
    """No promise is broken, neither on all families together nor on those of one kind."""
    for method, risk in product(settings.methods, settings.risks):
        counted = [row for row in rows if row.count is not None and (row.method, row.risk) == (method, risk)]
        for kind in {row.kind for row in counted}:
            count = pooled([row for row in counted if row.kind == kind], method, risk)
            assert count.chance(risk) * len(KINDS) > FALSE_ALARM, f"{method} at risk {risk}, {kind}: {count}"
        count = pooled(counted, method, risk)
        assert count.chance(risk) > FALSE_ALARM, f"{method} at risk {risk}: {count}"


def test_promises_are_kept_on_some_families() -> None:
    """Of two kinds: finitely many tasks, and tasks that are nearly the same."""
    check([row for number in (7, 8) for row in count_family(number, FEW)], FEW)


@pytest.mark.long
def test_promises_are_kept_on_families_of_every_kind() -> None:
    rows = [row for number in range(FEW.number) for row in count_family(number, FEW)]
    check(rows, FEW)
    for method in (LIKELIHOOD, BALL, "certified-returns"):
        assert pooled(rows, method, 0.1).has_power(0.1)


@pytest.mark.long
def test_promises_are_kept_on_families_of_every_kind_at_length(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row for number in range(LONG.number) for row in count_family(number, LONG)]
    with capsys.disabled():
        for method in LONG.methods:
            for risk in LONG.risks:
                print(f"\n{method} at risk {risk:g}: {pooled(rows, method, risk)}")  # noqa: T201
    check(rows, LONG)


# -------------------------------------------------------------------------------------------- errors that must be found


STRICT = replace(FEW, methods=(LIKELIHOOD, BALL), risks=(0.02,), tasks=4)


def check_caught(families: list[RandomFamily]) -> None:
    rows = []
    for number, family in enumerate(families):
        parameters = family.tasks.sample(STRICT.tasks, np.random.default_rng([3, number]))
        rows += count_tasks(family, number, parameters, STRICT)
    for method in STRICT.methods:
        count = pooled(rows, method, 0.02)
        assert count.chance(0.02) < FALSE_ALARM, f"{method}: {count}"


@pytest.mark.long
def test_alternatives_that_are_no_laws_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the edge of a triangle of parameters transitions are no probabilities; most of these tasks lie on it."""
    families = [family for family in drawn("triangle of points", 24) if _share_on_edge(family) > 0.9]
    broken = mutants.with_alternatives_that_are_no_laws(likelihood.all_alternatives)
    for module in (likelihood, transition_ball):
        monkeypatch.setattr(module, "all_alternatives", broken)
    check_caught(families[:7])


@pytest.mark.long
def test_rows_merged_in_the_unit_of_the_parameter_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    families = [each for each in drawn("affine, large units", 12) if each.tasks.distribution.support.max() > 1e11]
    monkeypatch.setattr(affine_cells, "affine_model", mutants.merged_in_the_unit_of_the_parameter)
    check_caught(families[:6])


def _share_on_edge(family: RandomFamily) -> float:
    totals = family.tasks.distribution.probes().sum(axis=1)
    return float(np.mean(totals > (1 - 1e-3) * totals.max()))


def test_parameters_in_tiny_units_raise_no_false_alarm() -> None:
    """Weights of order 1e-8, some of them 0 at the centre of a cell: tangents there are steep, but they are numbers."""
    family = random_family("simplex", np.random.default_rng(34))
    assert family.tasks.distribution.support.max() < 1e-7
    policies = family.policies()
    for place, parameter in enumerate(family.tasks.sample(5, np.random.default_rng(1))):
        task = family.tasks.task(parameter)
        run = adapt(policies, task, method=LIKELIHOOD, episodes=100, risk=0.1, seed=place, horizon=family.steps)
        assert not [event for event in run.events if event.kind == "alarm"]
