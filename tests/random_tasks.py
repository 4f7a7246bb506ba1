"""Random tasks and policies for tests, as plain functions of a generator, and one hypothesis strategy over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from surefoot.arrays import Floats
from surefoot.tabular.model import TabularCMDP
from surefoot.tabular.policy import TabularPolicy

Arrays = dict[str, Any]

seeds = st.integers(0, 2**32 - 1)


def random_distributions(rng: np.random.Generator, shape: tuple[int, ...], support: float = 1.0) -> Floats:
    """Distributions along the last axis; each entry but one is kept with probability `support`, the rest are 0."""
    weights = rng.exponential(size=shape) * (rng.random(shape) < support)
    forced = rng.integers(shape[-1], size=shape[:-1])[..., None]
    np.put_along_axis(weights, forced, rng.exponential(size=forced.shape) + 0.1, axis=-1)
    normalised: Floats = weights / weights.sum(axis=-1, keepdims=True)
    return normalised


def random_arrays(
    rng: np.random.Generator,
    states: int = 4,
    actions: int = 3,
    constraints: int = 1,
    discount: float = 0.9,
    support: float = 0.7,
) -> Arrays:
    """Arguments of `TabularCMDP`, dense. The budget is what the uniform policy spends, so the task is feasible."""
    transitions = random_distributions(rng, (states, actions, states), support)
    start = random_distributions(rng, (states,), support)
    reward = rng.uniform(-5, 5) + rng.uniform(0.1, 10) * rng.random((states, actions))
    cost = rng.uniform(-2, 5, (constraints, 1, 1)) + rng.uniform(0.1, 10, (constraints, 1, 1)) * rng.random(
        (constraints, states, actions)
    )
    visits = np.linalg.solve(np.eye(states) - discount * transitions.mean(axis=1).T, start)
    return {
        "transitions": transitions,
        "reward": reward,
        "cost": cost,
        "budget": np.einsum("s,msa->m", visits, cost) / actions,
        "start": start,
        "discount": discount,
    }


def random_cmdp(rng: np.random.Generator, *, sparse: bool = False, **sizes: Any) -> TabularCMDP:
    """A feasible random task; `sizes` as in `random_arrays`."""
    arrays = random_arrays(rng, **sizes)
    return TabularCMDP(**(as_sparse(arrays) if sparse else arrays))


def random_sparse_cmdp(
    rng: np.random.Generator,
    states: int,
    actions: int = 2,
    successors: int = 4,
    constraints: int = 1,
    discount: float = 0.9,
) -> TabularCMDP:
    """A task too large for a dense [S, A, S] array: every row has a few random successors."""
    rows = states * actions
    columns = rng.integers(states, size=(rows, successors))
    weights = random_distributions(rng, (rows, successors))
    transitions = sp.coo_array(
        (weights.ravel(), (np.repeat(np.arange(rows), successors), columns.ravel())), shape=(rows, states)
    )
    cost = rng.random((constraints, states, actions))
    return TabularCMDP(
        transitions,
        rng.random((states, actions)),
        cost,
        cost.mean(axis=(1, 2)) / (1 - discount),
        random_distributions(rng, (states,), 0.5),
        discount,
    )


def random_policy(rng: np.random.Generator, cmdp: TabularCMDP, support: float = 0.7) -> TabularPolicy:
    return TabularPolicy(random_distributions(rng, (cmdp.n_states, cmdp.n_actions), support))


def as_sparse(arrays: Arrays) -> Arrays:
    """The same arguments with transitions as a SciPy sparse [S·A, S] matrix."""
    dense = np.asarray(arrays["transitions"])
    return {**arrays, "transitions": sp.csr_array(dense.reshape(-1, dense.shape[-1]))}


def nearby(rng: np.random.Generator, arrays: Arrays, size: float, common_start: bool = True) -> Arrays:
    """A second task a `size` step away: distributions move towards random ones, tables by noise inside their range."""

    def blend(distributions: Floats) -> Floats:
        mixed: Floats = (1 - size) * distributions + size * random_distributions(rng, distributions.shape)
        return mixed / mixed.sum(axis=-1, keepdims=True)

    def jitter(table: Floats) -> Floats:
        low, high = table.min(), table.max()
        return np.clip(table + size * (high - low) * rng.uniform(-1, 1, table.shape), low, high)

    return {
        **arrays,
        "transitions": blend(arrays["transitions"]),
        "reward": jitter(arrays["reward"]),
        "cost": np.stack([jitter(table) for table in arrays["cost"]]),
        "start": arrays["start"] if common_start else blend(arrays["start"]),
    }


@st.composite
def task_arrays(draw: st.DrawFn, min_states: int = 1, max_constraints: int = 3) -> tuple[Arrays, np.random.Generator]:
    """Arguments of a random `TabularCMDP`, and the generator they came from to draw more."""
    rng = np.random.default_rng(draw(seeds))
    arrays = random_arrays(
        rng,
        states=draw(st.integers(min_states, 5)),
        actions=draw(st.integers(1, 3)),
        constraints=draw(st.integers(1, max_constraints)),
        discount=draw(st.sampled_from([0.1, 0.5, 0.9, 0.97])),
    )
    return arrays, rng
