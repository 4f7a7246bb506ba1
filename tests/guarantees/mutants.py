"""Certified methods with one error each, and small families on which what they promise is easily broken.

Every mutant maps a method to a broken one. The counts that a correct method passes must catch all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from surefoot.arrays import Floats
from surefoot.bounds.cells import Cells
from surefoot.bounds.envelopes import Envelopes, build_cells
from surefoot.cmdp.episode import Outcomes
from surefoot.lab.experiments.promise.counts import ChangedEvidence, overconfident
from surefoot.learning.certified.method import Certified
from surefoot.learning.certified.model_free import ModelFree
from surefoot.learning.method import SAFE, Certificate, Method, Mixture, Step
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.tabular.affine import AffineTables
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tabular.tables import Payments
from surefoot.tabular.transition_model import TransitionModel, affine_model, transition_classes
from surefoot.tasks.distribution import Finite, Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family

Mutant = Callable[[Any], Method]


# --------------------------------------------------------------------------------------------------- the small families

CALM, RICH, HURT = STATES = range(3)
HEAD_CALM, HEAD_RICH = ACTIONS = range(2)
STAY_CALM = TabularPolicy(np.array([[1.0, 0.0]] * 3))
STAY_RICH = TabularPolicy(np.array([[0.0, 1.0]] * 3))


def rooms() -> TaskDistribution:
    """A calm room and a rich one in which a step hurts with probability θ, uniform on [0.06, 0.16].

    Staying in the rich room breaks the budget for every θ, so that all there is to learn is how often one may go
    there, and the true cell is all that keeps the mixture safe. Changing rooms costs: going back and forth breaks the
    budget too, although neither policy of the mixture ever does.
    """
    calm, rich, hurt = np.eye(3)
    base = np.array([[calm, rich], [calm, rich], [calm, rich]])
    slope = np.zeros((1, 3, 2, 3))
    slope[0, RICH, HEAD_RICH] = hurt - rich
    reward = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    cost = np.array([[0.0, 0.5], [0.5, 0.0], [3.0, 3.0]])

    def task(parameter: Floats) -> TabularCMDP:
        kernel = base + parameter[0] * slope[0]
        return TabularCMDP(kernel, reward, cost, 0.6, [0.5, 0.5, 0.0], 0.8, (0.0, 1.0), (0.0, 3.0))

    return family(task, Uniform(0.06, 0.16), affine=(base, slope))


def two_rooms() -> TaskDistribution:
    """Rooms in which a step hurts with probability 0.13, rarely 0.08: almost a test of one hypothesis against one.

    Likelihood evidence spreads its alternatives over the safer cells in the neighbourhood. Here these are copies of one
    and the same task, so that together they are almost all of the weight, and the level is used up as far as looking
    every few episodes only lets it be. A task that is far away makes all others close to each other.
    """
    copies, task = 20, rooms().task

    def build(parameter: Floats) -> TabularCMDP:
        return task([0.13 if parameter[0] == copies else 0.08])

    return family(build, Finite([*range(copies + 1), 4000.0], [*[0.001] * copies, 0.96, 0.02]))


def rooms_policies(cells: int = 60, tasks: TaskDistribution | None = None) -> PolicyValueSet:
    """Both policies, with their values in the middle of the family."""
    tasks = tasks or rooms()
    middle = rooms().task([0.11])
    rich, calm = evaluate(middle, STAY_RICH), evaluate(middle, STAY_CALM)
    entry = Entry(np.array([0.11]), STAY_RICH, rich.reward, rich.margin, calm.reward, calm.margin)
    bounds = build_cells(tasks, [STAY_CALM, STAY_RICH], seed=0, envelopes=Envelopes(cells=cells))
    return PolicyValueSet((entry,), STAY_CALM, middle.units, 0.01, 0.05, 0.0, tasks.digest(), {}, {}, bounds)


# ---------------------------------------------------------------------------------------------------------- the mutants


def evidence_times(factor: float) -> Mutant:
    """log E(j) multiplied: 2 takes the square root of the threshold, 4 halves the radius of the confidence set."""
    return lambda method: replace(method, evidence=_Changed(method.evidence, factor))


def only_the_likeliest_cell(method: Certified) -> Method:
    """Safe on the cell that explains the data best, in place of all that are possible: the union is dropped."""
    return replace(method, evidence=_Likeliest(method.evidence))


def cells_shifted(by: int) -> Mutant:
    """Every cell has the bounds of the one that lies `by` below it."""

    def mutate(method: Certified) -> Method:
        lower, upper = (np.roll(bounds, by, axis=0) for bounds in (method.cells.lower, method.cells.upper))
        return replace(method, cells=replace(method.cells, lower=lower, upper=upper))

    return mutate


def sign_flipped(method: Certified) -> Method:
    """Costs of the candidates must exceed the budget."""
    lower, upper = method.cells.lower.copy(), method.cells.upper.copy()
    lower[:, SAFE + 1 :, 1:] = -method.cells.upper[:, SAFE + 1 :, 1:]
    upper[:, SAFE + 1 :, 1:] = -method.cells.lower[:, SAFE + 1 :, 1:]
    return replace(method, cells=replace(method.cells, lower=lower, upper=upper), replanner=None)


def drawn_per_step(method: Certified) -> Method:
    """The action mixture of every state in place of one draw per episode."""
    return _PerStep(method)


def bound_is_the_mean(method: ModelFree) -> Method:
    """The sample mean in place of the confidence bound."""
    twin = overconfident(method)
    assert twin is not None
    return twin


@dataclass(frozen=True, eq=False)
class _Changed(ChangedEvidence):
    factor: float

    def log_evidence(self, state: Any) -> Floats:
        return self.factor * self.inner.log_evidence(state)


@dataclass(frozen=True, eq=False)
class _Likeliest(ChangedEvidence):
    def log_evidence(self, state: Any) -> Floats:
        belief = self.inner.belief(state)
        return np.where(belief == belief.max(), 0.0, np.inf)


class _PerStep:
    """Each mixture of the inner method becomes one stationary policy, with an index of its own."""

    certified, observes = True, "transitions"

    def __init__(self, inner: Certified) -> None:
        self.inner, self.name, self.units = inner, inner.name, inner.units
        self.known: dict[Any, int] = {}
        self.blends: list[TabularPolicy] = []

    def start(self) -> Any:
        return self.inner.start()

    def mixture(self, state: Any) -> Mixture:
        mixture = self.inner.mixture(state)
        key = tuple(mixture.indices.tolist()), tuple(mixture.weights.tolist())
        if key not in self.known:
            parts = np.stack([self.inner.policy(state, index).probabilities for index in mixture.indices.tolist()])
            blend = np.einsum("i,isa->sa", mixture.weights, parts)
            self.known[key] = len(self.blends)
            self.blends.append(TabularPolicy(blend / blend.sum(axis=1, keepdims=True)))
        return Mixture(np.array([self.known[key]]), np.ones(1))

    def policy(self, state: Any, index: int) -> TabularPolicy:
        return self.blends[index]

    def update(self, state: Any, episode: int, drawn: Any, outcomes: Outcomes) -> Step:
        return self.inner.update(state, episode, drawn, outcomes)

    def abandon(self, state: Any, episode: int, drawn: int) -> Step:
        return self.inner.abandon(state, episode, drawn)

    def certificate(self, state: Any) -> Certificate:
        return self.inner.certificate(state)


# ------------------------------------------------------------------------------ errors in what the evidence is made of


def with_alternatives_that_are_no_laws(original: Callable[..., Floats]) -> Callable[..., Floats]:
    """Alternatives beyond the last task of the family, negative probabilities cut off: rows sum to more than 1."""

    def alternatives(cells: Cells, model: TransitionModel) -> Floats:
        lowest, highest = cells.low.min(axis=0), cells.high.max(axis=0)
        shares = np.stack(np.meshgrid(*[(np.arange(14) + 0.5) / 14] * len(lowest)), axis=-1).reshape(-1, len(lowest))
        beyond = model.class_probability(lowest + shares * (highest - lowest))
        return np.concatenate([original(cells, model), np.clip(beyond[beyond.min(axis=1) < -1e-9], 0.0, 1.0)])

    return alternatives


def merged_in_the_unit_of_the_parameter(
    tables: AffineTables, payments: Payments | None, start: Floats, low: Floats, high: Floats
) -> TransitionModel:
    """Entries are one class if base and slope agree to 12 decimals, in whatever unit the parameter is."""
    right = affine_model(tables, payments, start, low, high)
    kept = np.isin(tables.row * len(start) + tables.successor, right.row * len(start) + right.successor)
    features = np.column_stack([tables.base, tables.slope.T])[kept]
    classes, row_type, place = transition_classes(np.round(features, 12), right.row)
    base, slope = features[place][:, 0], features[place][:, 1:]
    probability = np.clip(base + (low + high) / 2 @ slope.T, 0.0, 1.0)
    return replace(right, classes=classes, row_type=row_type, probability=probability, affine=(base, slope))
