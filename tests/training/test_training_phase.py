"""Algorithm 1 against a plain transcription of its loops, and every promise about what it returns."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from random_tasks import nearby, random_arrays, seeds
from surefoot.arrays import Floats
from surefoot.bounds.settings import Envelopes
from surefoot.errors import Infeasible, InvalidInput
from surefoot.oracles import Oracles, check_by_enumeration, exact_oracles
from surefoot.oracles.interface import FeasiblePolicy, PolicyValues, from_neighbour_to_neighbour
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.tabular.distance import distance
from surefoot.tabular.evaluate import evaluate
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.solve import solve
from surefoot.tasks.distribution import Uniform
from surefoot.tasks.gridworld_tasks import gridworld
from surefoot.tasks.task_distribution import TaskDistribution, family, from_arrays
from surefoot.training import cover
from surefoot.training.cover import Comparison, cover_by_comparison, cover_points, greedy_cover
from surefoot.training.preflight import UncertifiedWarning, preflight
from surefoot.training.train import train

FEW = Envelopes(cells=0, holdout=99)  # nothing here is about how often the safe policy fails
RANGES = {"reward_range": (-5.0, 15.0), "cost_range": (-2.0, 15.0)}


def quiet_train(tasks: TaskDistribution, **arguments: Any) -> PolicyValueSet:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncertifiedWarning)
        return train(tasks, **{"progress": False, "seed": 0, "envelopes": FEW, **arguments})


def windy_task(parameter: Floats) -> TabularCMDP:
    """Two states; wind θ blows action 1 into the expensive one. d between two of them is |θ - θ'|."""
    wind = float(parameter[0])
    transitions = np.array([[[1.0, 0.0], [1 - wind, wind]], [[1.0, 0.0], [1.0, 0.0]]])
    return TabularCMDP(transitions, [[0.2, 1.0], [0.0, 0.0]], [0.0, 1.0], 0.15, [1.0, 0.0], 0.3, (0.0, 1.0), (0.0, 1.0))


def windy(low: float = 0.2, high: float = 0.6) -> TaskDistribution:
    return family(windy_task, Uniform(low, high), coordinates=lambda parameters: parameters)


def random_family(seed: int, tasks: int, discount: float = 0.5, slack: float = 1.0) -> list[TabularCMDP]:
    """Neighbours at distances around 0.05, with budgets that the uniform policy keeps on all of them."""
    rng = np.random.default_rng(seed)
    first = random_arrays(rng, states=3, actions=2, constraints=2, discount=discount)
    arrays = [first, *(nearby(rng, first, float(rng.uniform(0.02, 0.15))) for _ in range(tasks - 1))]
    uniform = np.full((3, 2), 0.5)
    spent = [evaluate(TabularCMDP(**each, **RANGES), uniform).cost for each in arrays]
    return [TabularCMDP(**{**each, "budget": np.max(spent, axis=0) + slack}, **RANGES) for each in arrays]


# ------------------------------------------------------------------------------------------------------------ the cover


def subroutine(near: np.ndarray, delta: float) -> list[int]:
    """The appendix's "Finding a CMDP set", step by step, on the full N x N matrix."""
    N = len(near)
    U: list[int] = []
    T = set(range(N))
    while len(T) > 3 * delta * N:
        gains = near[sorted(T)].sum(axis=0)
        j = max((j for j in range(N) if j not in U), key=lambda j: (gains[j], -j))
        U.append(j)
        T -= {i for i in T if near[i, j]}
    return U


def algorithm_1_cover(
    tasks: TaskDistribution, near: Any, delta: float, seed: int
) -> tuple[Floats, list[int], list[int]]:
    """(parameters of the last sample, centres, all sample sizes), lines 1-6 of Algorithm 1."""
    rng = np.random.default_rng(seed)
    N = math.ceil(math.log(delta) ** 2 / delta**2)
    sizes = []
    while True:
        sizes.append(N)
        parameters = tasks.sample(N, rng)
        U = subroutine(near(parameters), delta)
        if len(U) < N and math.sqrt(len(U) * math.log(2 * N / delta) / (N - len(U))) <= delta:
            return parameters, U, sizes
        N *= 2


@pytest.mark.short_for(seed=[0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cover_of_a_finite_family_is_that_of_the_full_matrix(seed: int) -> None:
    cmdps = random_family(seed, tasks=6)
    tasks = from_arrays(cmdps, weights=[0.3, 0.05, 0.25, 0.1, 0.1, 0.2])
    apart = np.array([[distance(a, b) for b in cmdps] for a in cmdps])
    epsilon, delta = float(np.median(apart[np.triu_indices(6, 1)])) + 1e-6, 0.15
    assert len(set((apart <= epsilon).sum(axis=1))) > 1, "some cover more than others"

    def near(parameters: Floats) -> np.ndarray:
        index = parameters[:, 0].astype(int)
        return apart[np.ix_(index, index)] <= epsilon

    parameters, centres, sizes = algorithm_1_cover(tasks, near, delta, seed)
    policies = quiet_train(tasks, epsilon=epsilon, delta=delta, seed=seed)
    assert [entry.parameter.tolist() for entry in policies.entries] == parameters[centres].tolist()
    assert policies.training["samples"] == sizes[-1]
    assert policies.training["cover_size"] == len(centres) == len(policies)


@pytest.mark.short_for(epsilon=[0.04])
@pytest.mark.parametrize("epsilon", [0.3, 0.04, 0.012])
def test_cover_by_coordinates_is_that_of_the_full_matrix(epsilon: float) -> None:
    tasks, delta = windy(), 0.2

    def near(parameters: Floats) -> np.ndarray:
        return np.abs(parameters - parameters.T) <= epsilon

    parameters, centres, sizes = algorithm_1_cover(tasks, near, delta, seed=4)
    policies = quiet_train(tasks, epsilon=epsilon, delta=delta, seed=4)
    assert [entry.parameter.tolist() for entry in policies.entries] == parameters[centres].tolist()
    assert policies.training["samples"] == sizes[-1]


def test_centres_in_two_dimensions_come_from_the_first_samples_unless_these_do_not_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cover, "MOST_CANDIDATES", 40)
    points = np.random.default_rng(0).random((2000, 2))
    centres = cover_points(points, 0.3, 0.1)
    apart = np.abs(points[:, None] - points[centres]).max(axis=2).min(axis=1)
    assert centres.max() < 40
    assert (apart <= 0.3).mean() >= 0.9
    everything = cover_points(points, 0.03, 0.1)  # 40 small boxes cannot cover nine tenths of a square
    assert everything.tolist() == greedy_cover(points, 0.03, uncovered=0.1).tolist()


def test_sample_size_doubles_until_the_stopping_rule() -> None:
    asked: list[int] = []

    class Counted(Uniform):
        def sample(self, n: int, rng: np.random.Generator) -> Floats:
            asked.append(n)
            return super().sample(n, rng)

    tasks = family(windy_task, Counted(0.2, 0.6), coordinates=lambda parameters: parameters)
    asked.clear()
    policies = quiet_train(tasks, epsilon=0.012, delta=0.2, seed=4)
    asked = [n for n in asked if n % 65 == 0]  # the preflight and the count on held-out tasks ask for other numbers
    _, _, sizes = algorithm_1_cover(windy(), lambda p: np.abs(p - p.T) <= 0.012, 0.2, seed=4)
    assert len(sizes) >= 4, "a smaller sample would do: the test is idle"
    assert asked == sizes == [65 * 2**k for k in range(len(sizes))]  # ⌈ln²(0.2)/0.04⌉ = 65
    assert policies.training["samples"] == sizes[-1]


@given(seeds, st.integers(1, 6), st.integers(1, 60), st.floats(0, 0.8))
def test_cover_of_repeated_tasks_is_that_of_all_samples(seed: int, kinds: int, samples: int, uncovered: float) -> None:
    rng = np.random.default_rng(seed)
    near = rng.random((kinds, kinds)) < 0.4
    near |= near.T | np.eye(kinds, dtype=bool)
    member = rng.integers(kinds, size=samples)
    expected = greedy_cover(near[np.ix_(member, member)], uncovered=uncovered)

    class OfKinds(Comparison):
        def prepare(self, parameters: Floats, show: Progress) -> list[Any]:
            return parameters[:, 0].astype(int).tolist()

        def all_pairs(self, batch: Sequence[Any]) -> np.ndarray:
            return near[np.ix_(batch, batch)]

    compare = OfKinds(windy(), uncertain_check, 0.1, 0.1, rng)
    assert cover_by_comparison(compare, member[:, None], uncovered, silent).tolist() == expected.tolist()


# ---------------------------------------------------------------------------------------------------- what is returned


@settings(max_examples=8)
@given(seeds)
def test_every_policy_is_optimal_and_every_value_exact(seed: int) -> None:
    cmdps = random_family(seed, tasks=4)
    policies = quiet_train(from_arrays(cmdps), epsilon=0.03, delta=0.2, seed=seed)
    for entry in policies.entries:
        task = cmdps[int(entry.parameter[0])]
        best, own, safe = solve(task).values, evaluate(task, entry.policy), evaluate(task, policies.safe_policy)
        assert entry.reward == pytest.approx(best.reward, rel=1e-7, abs=1e-7)
        assert (entry.margin >= -1e-7).all()
        assert entry.reward == pytest.approx(own.reward, rel=1e-10, abs=1e-10)
        np.testing.assert_allclose(entry.margin, own.margin, rtol=1e-9, atol=1e-9)
        assert entry.safe_reward == pytest.approx(safe.reward, rel=1e-10, abs=1e-10)
        np.testing.assert_allclose(entry.safe_margin, safe.margin, rtol=1e-9, atol=1e-9)
    smallest = min((entry.safe_margin / policies.units.cost_scale).min() for entry in policies.entries)
    assert policies.xi == pytest.approx(max(smallest, 0.0), abs=1e-12)


def test_gridworld_centres_are_optimal_and_the_safe_policy_is_that_of_noise_0_4() -> None:
    tasks = gridworld()
    policies = quiet_train(tasks, epsilon=0.01, delta=0.2)
    safe = solve(tasks.task([0.4])).policy
    for entry in policies.entries:
        task = tasks.task(entry.parameter)
        assert entry.reward == pytest.approx(solve(task).values.reward, abs=1e-6)
        assert entry.safe_reward == pytest.approx(evaluate(task, safe).reward, abs=1e-6)
        assert entry.safe_margin == pytest.approx(evaluate(task, safe).margin, abs=1e-6)
    assert policies.task_digest == tasks.digest()
    assert policies.recipe == tasks.recipe
    assert (policies.epsilon, policies.delta) == (0.01, 0.2)


def test_a_margin_asked_for_is_kept_on_every_centre() -> None:
    cmdps = random_family(3, tasks=4)
    tasks = from_arrays(cmdps)
    plain = quiet_train(tasks, epsilon=0.03, delta=0.2)
    asked = plain.xi + 0.02
    strict = quiet_train(tasks, epsilon=0.03, delta=0.2, xi=asked)
    assert strict.xi >= asked
    for entry in strict.entries:
        margin = evaluate(cmdps[int(entry.parameter[0])], strict.safe_policy).margin
        assert (margin / strict.units.cost_scale >= asked - 1e-8).all()


def test_a_margin_that_no_policy_has_and_a_task_without_a_feasible_policy_are_infeasible() -> None:
    with pytest.raises(Infeasible):
        quiet_train(gridworld(), epsilon=0.02, delta=0.2, xi=0.16)  # 0.15 is spending nothing
    with pytest.raises(Infeasible):
        quiet_train(from_arrays(random_family(3, tasks=4)), epsilon=0.03, delta=0.2, xi=2.0)
    with pytest.raises(Infeasible):
        quiet_train(gridworld(std=0.15), epsilon=0.02, delta=0.05)  # many noises above 0.4359


def test_a_safe_policy_exactly_on_the_budget_is_accepted() -> None:
    """One action: whatever the budget's last digits are, the margin is 0 up to rounding, on either side of it."""
    for budget in (0.7 / 0.3, np.nextafter(0.7 / 0.3, 3), np.nextafter(0.7 / 0.3, 2)):
        task = TabularCMDP([[[1.0]]], [[0.5]], [[0.7]], budget, [1.0], 0.7, (0.0, 1.0), (0.0, 1.0))
        policies = quiet_train(from_arrays([task]), epsilon=0.01, delta=0.2)
        assert policies.xi == pytest.approx(0.0, abs=1e-12)
        assert policies.xi >= 0


def uncertain_check(a: Any, b: Any, epsilon: float, delta: float, rng: np.random.Generator) -> bool:
    """All that O_c has to be: right up to ε and beyond 2ε, of either opinion in between."""
    return bool(distance(a, b) <= epsilon * (1 + rng.random()))


def test_equal_seeds_give_equal_sets() -> None:
    first, second, other = (quiet_train(windy(), epsilon=0.02, delta=0.2, seed=seed).digest() for seed in (5, 5, 6))
    assert first == second != other
    finite = from_arrays(random_family(0, tasks=4))
    sampled = exact_oracles(finite)
    oracles = Oracles(uncertain_check, sampled.optimal, sampled.feasible)
    digests = {quiet_train(finite, epsilon=0.1, delta=0.25, seed=5, oracles=oracles).digest() for _ in range(2)}
    assert len(digests) == 1


# ------------------------------------------------------------------------------------------------------------- oracles


def test_own_oracles_are_called_as_the_algorithm_says() -> None:
    cmdps = random_family(1, tasks=5)
    tasks, delta, epsilon = from_arrays(cmdps), 0.2, 0.05
    exact = exact_oracles(tasks)
    checks: list[tuple[float, float]] = []
    solved: list[tuple[Any, float, float]] = []
    feasible: list[tuple[Any, float | None, float]] = []

    def check(a: Any, b: Any, eps: float, level: float, rng: np.random.Generator) -> bool:
        checks.append((eps, level))
        return check_by_enumeration(a, b, eps, level, rng)

    def optimal(task: Any, eps: float, level: float, rng: np.random.Generator) -> PolicyValues:
        solved.append((task, eps, level))
        return exact.optimal(task, eps, level, rng)

    def safe(centres: Any, xi: float | None, level: float, rng: np.random.Generator) -> FeasiblePolicy:
        feasible.append((list(centres), xi, level))
        return exact.feasible(centres, xi, level, rng)

    policies = quiet_train(tasks, epsilon=epsilon, delta=delta, oracles=Oracles(check, optimal, safe))
    assert policies.digest() == quiet_train(tasks, epsilon=epsilon, delta=delta).digest()
    N, centres = policies.training["samples"], [cmdps[int(entry.parameter[0])] for entry in policies.entries]
    rounds = int(math.log2(N / 65)) + 1
    assert {eps for eps, _ in checks} == {epsilon}
    assert {level for _, level in checks} == {delta / (65 * 2**k) ** 2 for k in range(rounds)}
    assert len(checks) == rounds * 10, "once for each pair of different tasks"
    assert solved == [(task, epsilon, delta / (2 * len(centres))) for task in centres]
    assert [(c, level) for c, _, level in feasible] == [(centres, delta / 2)]


def test_an_uncertain_check_gives_a_cover_within_twice_epsilon() -> None:
    cmdps = random_family(2, tasks=5)
    tasks, epsilon, delta = from_arrays(cmdps), 0.02, 0.1
    exact = exact_oracles(tasks)
    oracles = Oracles(uncertain_check, exact.optimal, exact.feasible)
    policies = quiet_train(tasks, epsilon=epsilon, delta=delta, oracles=oracles)
    centres = [cmdps[int(entry.parameter[0])] for entry in policies.entries]
    covered = sum(min(distance(task, centre) for centre in centres) <= 2 * epsilon for task in cmdps)
    # At most 3δ = 0.3 of the samples are uncovered, and each task has about 0.2 of them: not two can be.
    assert covered >= 4
    assert 1 < len(centres) < 5


@pytest.mark.short_for(known=["own"])
@pytest.mark.parametrize("known", ["own", "tables", "affine"])
def test_covers_without_coordinates_leave_no_more_than_four_delta_uncovered(known: str) -> None:
    """The wind is squared where tables are to be compared; a check of one's own reads it off the tasks."""
    power = 2 if known == "tables" else 1
    tasks = family(lambda theta: windy_task(theta[:1] ** power), Uniform([0.2, 0.0], [0.6, 1.0]))
    exact = exact_oracles(tasks)
    asked: list[int] = []

    def wind(task: TabularCMDP) -> float:
        return float(task.transitions[0, 1, 1])

    def check(a: TabularCMDP, b: TabularCMDP, epsilon: float, delta: float, rng: np.random.Generator) -> bool:
        asked.append(1)
        return abs(wind(a) - wind(b)) <= epsilon

    oracles = Oracles(check if known == "own" else exact.check, exact.optimal, exact.feasible)
    policies = quiet_train(tasks, epsilon=0.03, delta=0.1, seed=1, oracles=oracles)
    centres = np.array([entry.parameter[0] for entry in policies.entries]) ** power
    drawn = tasks.sample(20_000, np.random.default_rng(7))[:, 0] ** power
    assert (np.abs(drawn[:, None] - centres).min(axis=1) > 0.03).mean() <= 0.4
    assert 3 < len(policies) < 20
    assert known != "own" or len(asked) < 0.2 * policies.training["samples"] ** 2


def test_an_oracle_that_breaks_its_promise_is_caught() -> None:
    tasks = from_arrays(random_family(1, tasks=3))
    exact = exact_oracles(tasks)

    def careless(centres: Any, xi: float | None, delta: float, rng: np.random.Generator) -> FeasiblePolicy:
        found = exact.feasible(centres, 0.0, delta, rng)
        return FeasiblePolicy(found.policy, found.reward, found.margin - shortfall)

    oracles = Oracles(exact.check, exact.optimal, careless)
    shortfall = 0.0
    attained = quiet_train(tasks, epsilon=0.05, delta=0.2, oracles=oracles).xi
    with pytest.raises(InvalidInput, match="feasible oracle must return a policy with unit margin"):
        quiet_train(tasks, epsilon=0.05, delta=0.2, xi=attained + 0.01, oracles=oracles)
    shortfall = 1e6
    with pytest.raises(InvalidInput, match="feasible oracle must return"):
        quiet_train(tasks, epsilon=0.05, delta=0.2, oracles=oracles)


# ------------------------------------------------------------------------------------------------ warnings and refusals


@pytest.mark.long
def test_warns_when_the_theorem_does_not_apply_and_only_then() -> None:
    with pytest.warns(UncertifiedWarning, match=r"\(8L\+18\)ε = 15.38 exceeds any attainable ξ, at most 0.15"):
        coarse = train(gridworld(), epsilon=0.01, delta=0.2, seed=0, progress=False, envelopes=FEW)
    assert not coarse.training["precondition_holds"]
    with pytest.warns(UncertifiedWarning, match="exceeds ξ 0.05"):
        train(gridworld(), epsilon=0.01, delta=0.2, xi=0.05, seed=0, progress=False, envelopes=FEW)

    with warnings.catch_warnings():
        warnings.simplefilter("error", UncertifiedWarning)
        fine = train(windy(0.3, 0.32), epsilon=0.001, delta=0.2, xi=0.05, seed=0, progress=False, envelopes=FEW)
    assert fine.training["precondition_holds"]
    assert fine.xi >= (8 * (1 / 0.7 + 0.6 / 0.49) + 18) * 0.001


def test_warns_when_the_safe_policy_found_has_too_little_margin() -> None:
    """Beforehand nothing speaks against it, but the oracle was asked for feasibility only, and gives no more."""
    tasks = windy(0.3, 0.32)
    exact = exact_oracles(tasks)

    def reckless(centres: Any, xi: float | None, delta: float, rng: np.random.Generator) -> FeasiblePolicy:
        policy = solve(windy_task(np.array([0.33]))).policy
        values = [evaluate(task, policy) for task in centres]
        return FeasiblePolicy(policy, np.array([v.reward for v in values]), np.array([v.margin for v in values]))

    oracles = Oracles(exact.check, exact.optimal, reckless)
    with pytest.warns(UncertifiedWarning, match="exceeds ξ") as caught:
        policies = train(tasks, epsilon=0.001, delta=0.2, seed=0, progress=False, envelopes=FEW, oracles=oracles)
    assert len(caught) == 1
    assert not policies.training["precondition_holds"]
    needed = (8 * (1 / 0.7 + 0.6 / 0.49) + 18) * 0.001
    assert 0 <= policies.xi < needed
    assert f"epsilon ≤ {policies.xi * 0.001 / needed:.3g}" in str(caught[0].message)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("epsilon", value) for value in (0.0, -0.1, math.nan, math.inf)),
        *(("delta", value) for value in (0.0, 1 / 3, 0.34, math.nan)),
        *(("xi", value) for value in (-0.01, math.nan, math.inf)),
    ],
)
def test_bad_arguments_are_named(name: str, wrong: float) -> None:
    for call in (quiet_train, preflight):
        with pytest.raises(InvalidInput, match=f"^{name} must"):
            call(windy(), **{"epsilon": 0.05, "delta": 0.2, name: wrong})


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 3))
def test_centres_are_solved_from_neighbour_to_neighbour(seed: int, count: int, dimension: int) -> None:
    """No other task that is left is closer to one that was solved than the next one is."""
    parameters = np.random.default_rng(seed).normal(size=(count, dimension)) * [1.0, 100.0, 0.01][:dimension]
    order = from_neighbour_to_neighbour(parameters)
    assert order[0] == 0
    assert sorted(order) == list(range(count))
    at = parameters / np.ptp(parameters, axis=0) if count > 1 else parameters
    apart = np.abs(at[:, None] - at[None]) ** 2 @ np.ones(dimension)
    for k in range(1, count):
        closest = apart[order[:k]].min(axis=0)
        assert closest[order[k]] <= closest[order[k:]].min() + 1e-12


def test_oracles_are_asked_from_neighbour_to_neighbour_and_policies_stay_with_their_tasks() -> None:
    tasks = gridworld()
    exact, asked = exact_oracles(tasks), list[float]()

    def optimal(task: TabularCMDP, *rest: Any) -> PolicyValues:
        found = exact.optimal(task, *rest)
        asked.append(found.reward)
        return found

    oracles = replace(exact, optimal=optimal, order=from_neighbour_to_neighbour)
    made = quiet_train(tasks, epsilon=0.005, delta=0.2, oracles=oracles, seed=1)
    for each in made.entries:
        np.testing.assert_allclose(each.reward, evaluate(tasks.task(each.parameter), each.policy).reward, atol=1e-9)
    order = from_neighbour_to_neighbour(np.stack([each.parameter for each in made.entries]))
    assert asked == [made.entries[k].reward for k in order]
    assert order != sorted(order), "they are not solved as they were drawn"
