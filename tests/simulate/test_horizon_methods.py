"""Every method of the test phase on tasks with a horizon: a patrol as a table, and the same one as an environment.

What a method deploys is judged by sums over the steps written out here. What cannot work is refused, and says why.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pytest

import surefoot as sf
from surefoot.oracles import FeasiblePolicy, Oracles, ParameterDistance, PolicyValues
from surefoot.tabular.policy import TimedPolicy

STEPS, BUDGET, RISK = 6, 0.5, 0.2
HOME, STREET, MARKET, CAUGHT = range(4)
REST, ON = range(2)
REWARD = np.array([[0.0, 0.0], [0.3, 0.3], [1.0, 1.0], [0.0, 0.0]])
COST = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
HAZARDS = (0.05, 0.2, 0.4)

DOPE = [f"{name}-{kind}" for name in ("dope", "dope-plus", "optpess-lp") for kind in ("theory", "published")]
OTHERS = [f"{name}-{kind}" for name in ("lb-sgd", "safe-meta") for kind in ("theory", "published")]


def build(parameter: Any) -> sf.TabularCMDP:
    """One goes on or rests; on the market one is caught with probability θ, and let go at home."""
    hazard, place = float(np.ravel(parameter)[0]), np.eye(4)
    rows = np.stack([[place[HOME], place[STREET]], [place[HOME], place[MARKET]], [place[STREET], place[MARKET]],
                     [place[HOME], place[HOME]]])  # fmt: skip
    rows[MARKET, ON] = (1 - hazard) * place[MARKET] + hazard * place[CAUGHT]
    return sf.TabularCMDP(rows, REWARD, COST, BUDGET, place[HOME], 1.0, (0, 1), (0, 1), horizon=STEPS)


class Patrol(gymnasium.Env[Any, Any]):
    """The same, step by step."""

    observation_space: Any = gymnasium.spaces.Discrete(4)
    action_space: Any = gymnasium.spaces.Discrete(2)

    def __init__(self, parameter: Any) -> None:
        self.rows = np.cumsum(build(parameter).transitions, axis=2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.place = HOME
        return self.place, {}

    def step(self, action: Any) -> Any:
        before, act = self.place, int(action)
        self.place = int(np.searchsorted(self.rows[before, act], self.np_random.random(), side="right"))
        return self.place, REWARD[before, act], False, False, {"cost": COST[before, act]}


def by_hand(hazard: float, policy: Any) -> tuple[float, float]:
    """Reward and margin of one policy: the law of the place, step after step."""
    rows, place, reward, cost = np.asarray(build([hazard]).transitions), np.eye(4)[HOME], 0.0, 0.0
    tables = policy.probabilities.reshape(-1, 4, 2)
    for step in range(STEPS):
        both = place[:, None] * tables[min(step, len(tables) - 1)]
        reward, cost = reward + float((both * REWARD).sum()), cost + float((both * COST).sum())
        place = np.einsum("sa,sat->t", both, rows)
    return reward, BUDGET - cost


def check_run(run: Any, hazard: float) -> None:
    """The mixture of all that was deployed has the mean of what is told of the episodes."""
    parts = np.array([by_hand(hazard, policy) for policy in run.output.components])
    reward, margin = run.output.weights @ parts
    error = 1e-9 if run.error is None else run.error.mean(axis=0).max() + 1e-9
    assert np.mean(run.reward) == pytest.approx(reward, abs=error)
    assert np.mean(run.margin) == pytest.approx(margin, abs=error)
    if run.certified:
        assert (parts[:, 1] @ run.output.weights) >= -1e-9
        assert run.unsafe_episodes == 0


# ---------------------------------------------------------------------------------------------------------- as a table


@cache
def trained() -> sf.PolicyValueSet:
    tasks = sf.tasks.family(build, sf.tasks.Uniform(0.05, 0.4), safe_parameter=[0.4])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sf.train(tasks, epsilon=0.03, delta=0.2, seed=0, progress=False, cells=20, xi=0.01)


def test_the_set_has_boxes_with_bounds_from_all_first_states() -> None:
    cells = trained().cells
    assert cells is not None
    assert cells.source == "affine"
    assert cells.first_states.tolist() == [HOME]
    for policy, lower, upper in zip(trained().policies, cells.lower[7], cells.upper[7], strict=True):
        for hazard in (cells.low[7, 0], cells.high[7, 0]):
            values = np.array(by_hand(hazard, policy))
            assert (lower <= values).all()
            assert (values <= upper).all()


RUNNING = [name for name in sf.METHODS if name not in (*DOPE, *OTHERS, "certified-signals")]


@pytest.mark.parametrize("name", RUNNING)
def test_methods_run_on_the_table(name: str) -> None:
    run = sf.adapt(trained(), build([0.2]), method=name, episodes=60, risk=RISK, seed=1)
    assert run.exact
    check_run(run, 0.2)


@pytest.mark.parametrize("name", ["certified-ball", "certified-returns"])
def test_tasks_at_a_distance_have_bounds_with_a_horizon(name: str) -> None:
    run = sf.adapt(trained(), build([0.201]), method=name, episodes=60, risk=RISK, seed=1, shift=0.001)
    check_run(run, 0.201)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (DOPE, r"write the tasks in layers \(sf.tasks.layered\).*layers=H.*got horizon 6"),
        (OTHERS, "formulas are for discounted sums without end, got horizon 6"),
        (["certified-signals"], "certified-signals needs"),
    ],
)
def test_what_cannot_work_on_the_table_says_why(names: list[str], why: str) -> None:
    for name in names:
        with pytest.raises(sf.InvalidInput, match=why):
            sf.adapt(trained(), build([0.2]), method=name, episodes=10, risk=RISK, seed=0)


# ---------------------------------------------------------------------------------------------------- as an environment


def bold(hazard: float) -> TimedPolicy:
    policy: TimedPolicy = sf.solve(build([hazard])).policy
    return policy


def optimal(task: Any, epsilon: float, delta: float, rng: Any) -> PolicyValues:
    hazard = float(np.ravel(task.parameter)[0])
    reward, margin = by_hand(hazard, policy := bold(hazard))
    return PolicyValues(policy, reward, np.array([max(margin, 0.0)]))


def feasible(tasks: Any, xi: float | None, delta: float, rng: Any) -> FeasiblePolicy:
    policy = sf.TabularPolicy(np.eye(2)[[ON, REST, REST, REST]])  # home, street and back
    values = np.array([by_hand(float(np.ravel(task.parameter)[0]), policy) for task in tasks])
    return FeasiblePolicy(policy, values[:, 0], values[:, 1:])


@cache
def simulated() -> sf.PolicyValueSet:
    tasks = sf.tasks.from_gym(
        Patrol,
        sf.tasks.Finite([[hazard] for hazard in HAZARDS]),
        budget=BUDGET,
        horizon=STEPS,
        reward_range=(0, 1),
        cost_range=(0, 1),
    )
    oracles = Oracles(ParameterDistance(lambda points: points), optimal, feasible)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sf.train(
            tasks, epsilon=0.05, delta=0.2, seed=0, progress=False, oracles=oracles,
            envelopes=sf.Envelopes(episodes=150, uncovered=0.05), signals=sf.LearnedSignals(tasks=8, episodes=8),
        )  # fmt: skip


ON_SUMS = [name for name in sf.METHODS if name not in (*DOPE, *OTHERS, "certified-likelihood", "certified-ball")]


@pytest.mark.short_for(name=["paper", "certified", "certified-model-free", "certified-signals"])
@pytest.mark.parametrize("name", ON_SUMS)
def test_methods_run_on_the_environment(name: str) -> None:
    task: Any = simulated_task()
    run = sf.adapt(simulated(), task, method=name, episodes=40, risk=RISK, seed=1, judged_on=500)
    check_run(run, 0.2)


def simulated_task() -> Any:
    declared: dict[str, Any] = {"horizon": STEPS, "reward_range": (0, 1), "cost_range": (0, 1)}
    return sf.tasks.from_gym(Patrol, sf.tasks.Finite([[0.2]]), budget=BUDGET, **declared).task([0.2])


@pytest.mark.parametrize("name", [*DOPE, *OTHERS, "certified-likelihood", "certified-ball"])
def test_what_reads_transitions_is_refused_on_the_environment(name: str) -> None:
    with pytest.raises(sf.InvalidInput, match="transition model"):
        sf.adapt(simulated(), simulated_task(), method=name, episodes=10, risk=RISK, seed=0)
