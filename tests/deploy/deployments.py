"""Small policy sets, and episodes that depend on nothing but (episode, policy): every run tells the same story."""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from contracts.made_up import made_up_set, values_of_all
from shown_wheel import shown_set, turn_told
from surefoot.deploy.chain import read
from surefoot.deploy.session import Deployment
from surefoot.learning.learner import Learner, Order
from surefoot.methods import BASELINES, learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy
from surefoot.tasks.task_distribution import from_arrays
from surefoot.training.train import train

HORIZON = 20
OPTIONS = ("--method", "certified-returns", "--risk", "0.3", "--seed", "5", "--horizon", str(HORIZON))


def task(slip: float) -> TabularCMDP:
    """Two states, the second one costly; action 1 pays more and leads there with probability `slip`."""
    chance = np.zeros((2, 2, 2))
    chance[:, 0], chance[:, 1] = [0.8, 0.2], [1 - slip, slip]
    return TabularCMDP(
        chance, [[0.2, 1.0]] * 2, [[[0.0, 0.1], [0.6, 1.0]]], 0.7, [0.5, 0.5], 0.5, (0.0, 1.0), [[0.0, 1.0]]
    )


@cache
def tiny_set() -> PolicyValueSet:
    """Four possible tasks, with cells and a transition model: every method works on it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tasks = from_arrays([task(slip) for slip in (0.1, 0.3, 0.5, 0.7)])
        return train(tasks, epsilon=0.02, delta=0.1, seed=0, progress=False)


@cache
def short_phase_set() -> PolicyValueSet:
    """Algorithm 2 raises weights and drops candidates on it within some hundred episodes; two constraints."""
    truth = short_phase_task()
    policies = [TabularPolicy(np.array([[1 - p, p]] * 2)) for p in (0.0, 0.7, 0.6, 0.5)]
    values = values_of_all(truth, policies)
    u, v = truth.units.unit_reward_value(values.reward), truth.units.unit_margin(values.margin)
    promises = [(u[3] + 0.35, v[3], u[0], v[0]), (u[3] + 0.2, v[3] + 0.3, u[0], v[0]), (u[3], v[3], u[0], v[0])]
    return made_up_set(truth.units, promises, epsilon=1e-4, policies=policies)


@cache
def short_phase_task() -> TabularCMDP:
    reward = np.array([[0.5, 1.6], [1.0, 2.5]])
    cost = np.array([[[0.0, 0.4], [0.3, 0.9]], [[0.0, 0.8], [0.0, 2.0]]])
    chance = np.full((2, 2, 2), 0.5)
    return TabularCMDP(chance, reward, cost, [1.0, 2.05], [0.5, 0.5], 0.1, (0.0, 3.0), [[0.0, 1.0], [0.0, 2.0]])


def fresh(method: str = "certified-returns", seed: int = 5) -> Learner:
    if method == "paper":
        return learner(short_phase_set(), method=method, episodes=3000, risk=0.3, seed=seed, horizon=HORIZON)
    if method == "certified-signals":
        return learner(shown_set(), method=method, risk=0.5, seed=seed)
    return learner(tiny_set(), method=method, episodes=3000, risk=0.3, seed=seed, horizon=HORIZON)


def steps(order: Order, method: str = "certified-returns") -> dict[str, Any]:
    """One episode of the ordered policy: states [H+1], actions [H], rewards [H], costs [H, m]."""
    truth = short_phase_task() if method == "paper" else task(0.1)
    rng = np.random.default_rng([order.episode, order.policy_index])
    policy: Any = order.policy
    states, actions = [int(rng.integers(2))], []
    for action, move in rng.random((HORIZON, 2)):
        state = states[-1]
        actions.append(int(action >= policy.probabilities[state, 0]))
        states.append(int(move >= truth.transitions[state, actions[-1], 0]))
    visited = states[:-1], actions
    rewards, costs = truth.reward[visited], truth.cost[:, visited[0], visited[1]].T
    return {"states": states, "actions": actions, "rewards": rewards.tolist(), "costs": costs.tolist()}


def told(order: Order, method: str = "certified-returns") -> dict[str, Any]:
    """What to tell of that episode: transitions or observations where they are needed, sequences otherwise."""
    if method == "certified-signals":
        return turn_told(order)
    episode = steps(order, method)
    if method in (
        "certified",
        "certified-likelihood",
        "certified-ball",
        "posterior",
        "certainty-equivalence",
        *BASELINES,
    ):
        return {"transitions": episode}
    return {"rewards": episode["rewards"], "costs": episode["costs"], "first_state": episode["states"][0]}


def drive(deployment: Deployment, episodes: int, method: str = "certified-returns", acknowledge: Any = None) -> None:
    """Ask and tell until `episodes` are done; every seventh is abandoned."""
    say = acknowledge or (lambda line: None)
    while deployment.status().episodes < episodes:
        order = deployment.ask()
        say(f"order {order.episode}")
        if order.episode % 7 == 1:
            deployment.abandon(order, "operator pressed stop")
        else:
            deployment.tell(order, **told(order, method))
        say(f"told {order.episode}")


def deployed(path: Path, episodes: int, method: str = "certified-returns") -> str:
    """Run a deployment without interruption; returns its head."""
    with Deployment.open(path, fresh(method)) as deployment:
        drive(deployment, episodes, method)
        return deployment.head()


def requests(episodes: int) -> str:
    """The same story in lines of the protocol, for a controller that forgets how far it came."""
    lines: list[dict[str, Any]] = []
    for k in range(episodes):
        told = {"reward": 1.0, "cost": 0.25 + k / 1000, "first_state": 0}
        lines += [{"do": "ask"}, {"do": "tell", "episode": k, **told}]
    return "".join(json.dumps(line) + "\n" for line in lines)


def contents(path: Path) -> list[tuple[str, bytes, bytes]]:
    return [(row.kind, row.payload, row.hash) for row in read(path)]
