"""What must not change between versions: what stored journals of every format hold and are found to be, and the rows
that deployments write, to the last byte."""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from record import Bits, check, digest
from test_goldens_commands import answer
from test_goldens_tasks import machine
from test_goldens_trainings import machine_set

import surefoot as sf
from shown_wheel import shown_set, turn_told

ASSETS = Path(__file__).parents[1] / "assets"
STORED = sorted(ASSETS.glob("*.journal"))
HORIZON = 12
SIGNALS = "certified-signals"
# Of every way to be told of episodes: with transitions, with a first state, with signals, with sums alone.
METHODS = (
    *("safe-only", "paper", "published", "pce", "pce-theory", "certified", "certified-likelihood", "certified-ball"),
    *(
        "certified-returns",
        SIGNALS,
        "certified-model-free",
        "dope-published",
        "lb-sgd-published",
        "safe-meta-published",
    ),
)


def read(journal: Path) -> dict[str, Any]:
    """A stored journal as the command line reads it."""
    policies = journal.with_suffix(".policyset")
    rows = answer("export", journal).out.splitlines()
    return {
        "status": json.loads(answer("status", journal, "--json").out),
        "status in words": answer("status", journal).out,
        "verify": json.loads(answer("verify", journal, "--policies", policies, "--json").out),
        "rows": len(rows),
        "first rows": [json.loads(row) for row in rows[:3]],
        "all rows": digest("\n".join(rows)),
    }


def new(method: str, episodes: int = 30) -> dict[str, Any]:
    """A new journal, in which every seventh episode is abandoned."""
    policies = shown_set() if method == SIGNALS else machine_set()
    horizon = {} if method == SIGNALS else {"horizon": HORIZON}
    learner = sf.learner(policies, method=method, episodes=3000, risk=0.3, seed=5, **horizon)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        with sf.Deployment.open(path, learner) as deployment:
            for _ in range(episodes):
                order = deployment.ask()
                if order.episode % 7 == 1:
                    deployment.abandon(order, "operator pressed stop")
                else:
                    deployment.tell(order, **told(order, method))
            head = deployment.head()
        rows = [json.loads(line) for line in answer("export", path).out.splitlines()]
        status = json.loads(answer("status", path, "--json").out)
    return {
        "head": Bits(head),
        "kinds": [row["kind"] for row in rows],
        "payloads": [[key if len(str(value)) > 60 else value for key, value in row["payload"].items()] for row in rows],
        "hashes": Bits(digest(" ".join(row["hash"] for row in rows))),
        "status": {key: value for key, value in status.items() if "path" not in key and "head" not in key},
    }


def told(order: sf.Order, method: str) -> dict[str, Any]:
    """What is told of an episode, which depends on nothing but its number and its policy."""
    if method == SIGNALS:
        return turn_told(order)
    truth, rng = machine(0.1), np.random.default_rng([order.episode, order.policy_index])
    policy: Any = order.policy
    states, actions = [int(rng.integers(2))], []
    for action, move in rng.random((HORIZON, 2)):
        actions.append(int(action >= policy.probabilities[states[-1], 0]))
        states.append(int(move >= truth.transitions[states[-1], actions[-1], 0]))
    visited = states[:-1], actions
    rewards, costs = truth.reward[visited].tolist(), truth.cost[:, visited[0], visited[1]].T.tolist()
    if sf.METHODS[method].observes in ("transitions", "steps"):
        return {"transitions": {"states": states, "actions": actions, "rewards": rewards, "costs": costs}}
    return {"rewards": rewards, "costs": costs, "first_state": states[0]}


CASES = {
    **{journal.name: partial(read, journal) for journal in STORED},
    **{f"new: {method}": partial(new, method) for method in METHODS},
}


@pytest.mark.parametrize("case", CASES)
def test_journals_are_read_and_written_as_recorded(case: str) -> None:
    check("journals", case, CASES[case])
