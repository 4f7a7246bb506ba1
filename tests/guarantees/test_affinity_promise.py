"""What is found out of a family (docs/guarantees.md, 2.1): that it is affine in its parameter, although it is not.

Bold steps hurt with a probability that is affine in the parameter, but for a stretch of parameters on which they hurt
nearly always. The stretch lies where it is hardest to find: in the largest gap between the tasks that training with one
seed would try. A user with another seed, who goes on from attempt to attempt until the family is taken for affine,
relies on it with a task in the stretch at hand as often as is charged for, at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy import stats

import surefoot as sf
from surefoot.arrays import Floats
from surefoot.bounds.envelopes import build_cells
from surefoot.policyset.policy_value_set import Entry, PolicyValueSet
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks import affine_detection
from surefoot.tasks.affine_detection import Affinity, affine_tables, affinity, detection_doubt
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.task_distribution import TaskDistribution, family

FALSE_ALARM = 1e-4
FEW = 10  # tasks that a guess must agree with: a doubt that is large enough to be counted
ATTEMPTS = 6
STRETCH = 0.08  # found by the first attempt with probability 0.84
CAREFUL, BOLD = TabularPolicy(np.eye(2)[[0, 0]]), TabularPolicy(np.eye(2)[[1, 0]])
Find = Callable[[TaskDistribution, int, int], Affinity]


def cliffs(low: float = 2.0, high: float = 2.0, seen: list[float] | None = None) -> TaskDistribution:
    """Careful steps stay; bold ones pay, and hurt with probability 0.1 to 0.2, or 0.9 for parameters in [low, high]."""

    def build(parameter: Floats) -> TabularCMDP:
        if seen is not None:
            seen.append(float(parameter[0]))
        hurt = 0.9 if low < parameter[0] < high else 0.1 + 0.1 * parameter[0]
        transitions = np.array([[[1.0, 0.0], [1 - hurt, hurt]], [[1.0, 0.0], [1.0, 0.0]]])
        reward, cost = np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 1.0]])
        return TabularCMDP(transitions, reward, cost, 0.35, [1.0, 0.0], 0.5, (0.0, 1.0), (0.0, 1.0))

    return family(build, Uniform(0.0, 1.0))


def hidden(look: Callable[[TaskDistribution], object], most: float = 1.0) -> tuple[TaskDistribution, float, float]:
    """The family whose stretch lies where `look` does not look, and the ends of the stretch."""
    seen: list[float] = []
    look(cliffs(seen=seen))
    points = np.unique([0.0, *seen, 1.0])
    k = int(np.argmax(np.diff(points)))
    low, high = points[k], min(points[k + 1], points[k] + most)
    return cliffs(low, high), low, high


# ------------------------------------------------------------------------------------------------------- as it is used


@cache
def between_the_tasks_of_everybody() -> tuple[TaskDistribution, float, float]:
    return hidden(affine_tables)


def test_what_the_tasks_of_everybody_miss_is_guessed_and_no_more() -> None:
    tasks, low, high = between_the_tasks_of_everybody()
    assert 0.01 < high - low < 0.02
    assert affine_tables(tasks) is not None
    assert affinity(cliffs(), seed=0).tables is not None
    assert not any(affinity(tasks, seed).tables is not None for seed in range(8))  # one would with probability 0.002


@pytest.mark.short_for(seed=[0])
@pytest.mark.parametrize("seed", [0, 7])
def test_nothing_unsafe_is_deployed_in_the_gap(seed: int) -> None:
    """All of them were unsafe, with every seed, when affinity was tested on the tasks of everybody."""
    tasks, low, high = between_the_tasks_of_everybody()
    policies = prepared(tasks, seed)

    def unsafe(at: float) -> bool:
        task = tasks.task([at])
        run = sf.adapt(policies, task, method="certified-returns", risk=0.01, episodes=3, seed=0)
        return run.unsafe_episodes > 0

    assert [sum(map(unsafe, np.linspace(*ends, 22)[1:-1])) for ends in ((low, high), (0.0, low))] == [0, 0]


def prepared(tasks: TaskDistribution, seed: int) -> PolicyValueSet:
    """Both policies, with bounds on their values over all tasks."""
    middle = tasks.task([0.5])
    bold, careful = evaluate(middle, BOLD), evaluate(middle, CAREFUL)
    entry = Entry(np.array([0.5]), BOLD, bold.reward, bold.margin, careful.reward, careful.margin)
    bounds = build_cells(tasks, [CAREFUL, BOLD], seed=seed, envelopes=sf.Envelopes(cells=40))
    return PolicyValueSet((entry,), CAREFUL, middle.units, 0.01, 0.05, 0.0, tasks.digest(), {}, {}, bounds)


# --------------------------------------------------------------------------------------------------------------- counts


def count(find: Find, users: int) -> tuple[int, float]:
    """Of all users, those who rely on it, and how many of them that may be at most: the mean of what they pay, over
    the probability of the stretch."""
    tasks, low, high = hidden(lambda tasks: find(tasks, 0, 1), STRETCH)
    found = [persistent(find, tasks, seed) for seed in range(1, users + 1)]
    relying, paid = [each.tables is not None for each in found], [each.doubt for each in found]
    return sum(relying), float(np.mean(paid)) / (high - low)


def persistent(find: Find, tasks: TaskDistribution, seed: int) -> Affinity:
    """What a user makes of it who tries again and again."""
    attempts = (find(tasks, seed, attempt) for attempt in range(1, ATTEMPTS + 1))
    found = Affinity(None)
    for found in attempts:
        if found.tables is not None:
            break
    return found


def p_value(relying: int, users: int, share: float) -> float:
    return float(stats.binom.sf(relying - 1, users, min(share, 1.0)))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affine_detection, "FRESH", FEW)


@pytest.mark.usefixtures("few")
@pytest.mark.short_for(users=[40])
@pytest.mark.parametrize("users", [40, 200])
def test_whoever_tries_again_and_again_pays_for_it(users: int) -> None:
    relying, share = count(affinity, users)
    assert p_value(relying, users, share) > FALSE_ALARM
    assert relying > 0.1 * share * users, "what nobody is ever wrong about would need no price"


def the_same_for_everybody(tasks: TaskDistribution, seed: int, attempt: int) -> Affinity:
    return affinity(tasks, 0, attempt)


def first_attempts_only(tasks: TaskDistribution, seed: int, attempt: int) -> Affinity:
    """No attempt has to look at more tasks than the first."""
    return affinity(tasks, 1000 * attempt + seed, 1)


def free_unless_found(tasks: TaskDistribution, seed: int, attempt: int) -> Affinity:
    """Only who relies on it pays."""
    found = affinity(tasks, seed, attempt)
    return found if found.tables is not None else replace(found, doubt=0.0)


@pytest.mark.usefixtures("few")
@pytest.mark.short_for(mutant=[the_same_for_everybody])
@pytest.mark.parametrize(
    ("mutant", "users"), [(the_same_for_everybody, 40), (first_attempts_only, 200), (free_unless_found, 200)]
)
def test_other_ways_to_find_out_are_caught(mutant: Find, users: int) -> None:
    relying, share = count(mutant, users)
    assert p_value(relying, users, share) < FALSE_ALARM


# ---------------------------------------------------------------------------------------------------------------- exact


@pytest.mark.parametrize("number", [1, FEW, 96, 400])
def test_the_doubt_is_enough_for_all_attempts_together(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever share p of tasks differs: p·Σ_a (1-p)^(tasks of attempt a)."""
    monkeypatch.setattr(affine_detection, "FRESH", number)
    tasks = cliffs()
    sizes = [affine_detection.sample_size(tasks, attempt) for attempt in range(1, 9)]
    shares = np.linspace(0, 1, 20_001)[:, None]
    wrong = (shares * (1 - shares) ** sizes).sum(axis=1).max()
    assert 0.5 * detection_doubt(tasks) < wrong <= detection_doubt(tasks)


def test_the_attempts_of_a_test_come_to_an_end() -> None:
    with pytest.raises(sf.InvalidInput, match="attempt must be at most 8 for a family that does not declare affine="):
        affinity(cliffs(), 0, 9)
