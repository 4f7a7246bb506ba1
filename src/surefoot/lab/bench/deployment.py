"""What a deployment costs besides the disk's own time: telling, opening a long journal, computing it again."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from surefoot.cmdp.episode import Outcomes
from surefoot.deploy import snapshots
from surefoot.deploy.chain import key_name, read
from surefoot.deploy.journal import Entry, Journal
from surefoot.deploy.replay import Replay, header
from surefoot.deploy.session import Deployment
from surefoot.deploy.verify import verify
from surefoot.lab.bench.planning import gridworld_policy_set
from surefoot.lab.bench.rows import BenchRow, Sizes, agree, measure, times_row
from surefoot.learning.learner import Learner, counter_uniforms
from surefoot.methods import learner
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.report.table import MISSING

RETURN_BASED = ("paper", "certified-returns", "certified-model-free")
KEY = bytes(range(32))  # with one, opening starts from the latest snapshot
REPLAYED = 50  # a part of the long journal's episodes is computed again, since row by row takes so long
PER_WRITE = 20_000  # episodes written at once when a long journal is made


def deployment(sizes: Sizes) -> list[BenchRow]:
    """`tell` of each return-based method without syncing, opening a long journal, and checking one by replay."""
    policies = gridworld_policy_set()
    told = [_tell(policies, method, sizes.told) for method in RETURN_BASED]
    return [*told, _open(policies, sizes.journal), _verify(policies, sizes.journal // REPLAYED)]


def _tell(policies: PolicyValueSet, method: str, episodes: int) -> BenchRow:
    made = learner(policies, method=method, episodes=10**6, seed=0)
    rewards, costs = _episodes(made, episodes)
    seconds = 0.0
    with tempfile.TemporaryDirectory() as folder, Deployment.open(Path(folder) / "journal", made) as deployment:
        for reward, cost in zip(rewards.tolist(), costs.tolist(), strict=True):
            order = deployment.ask()
            began = time.process_time()  # waiting for the disk does not count
            deployment.tell(order, reward=reward, cost=cost, first_state=0)
            seconds += time.process_time() - began
    return BenchRow(f"tell, {method}", f"{1e3 * seconds / episodes:.3g} ms", MISSING, None, "processor time, mean")


def _open(policies: PolicyValueSet, episodes: int) -> BenchRow:
    def fresh() -> Learner:
        return learner(policies, method="certified-returns", seed=0)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        long_journal(path, fresh(), episodes, KEY)
        made = fresh()
        began, busy = time.perf_counter(), time.process_time()
        deployment = Deployment.open(path, made, key=KEY)
        seconds, busy = time.perf_counter() - began, time.process_time() - busy
        size = path.stat().st_size / 1e6
        deployment.close()
    note = f"{size:.0f} MB, with a key: all hashes checked, {busy:.3g} s of processor time"
    return BenchRow(f"open a journal of {episodes:,} episodes", f"{seconds:.3g} s", MISSING, None, note)


def _verify(policies: PolicyValueSet, episodes: int) -> BenchRow:
    """Both sides check all hashes and compute every row again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        ours, plain, made = (learner(policies, method="certified-returns", seed=0) for _ in range(3))
        long_journal(path, made, episodes)
        in_blocks = measure(lambda: verify(path, ours), time.process_time)
        row_by_row = measure(lambda: _follow_singly(path, plain), time.process_time)
    agree("evidence", ours.state.method.evidence.capital, plain.state.method.evidence.capital, 0.0)
    what, note = f"verify a journal of {episodes:,} episodes", "without a key, processor time"
    return times_row(what, in_blocks, row_by_row, "(in blocks)", "(row by row)", note)


def _follow_singly(path: Path, made: Learner) -> None:
    replay = Replay(made)
    for row in read(path):
        if row.n:
            replay.follow(row)


def long_journal(path: Path, made: Learner, episodes: int, key: bytes | None = None) -> None:
    """The journal of a deployment of `episodes` made-up episodes, written in large pieces.

    Between decisions nothing changes but the draws, so whole blocks are told at once, which the learner counts alike.
    """
    journal, replay = Journal(path, key), Replay(made)
    try:
        journal.begin(("open", header(made, key_name(key))))
        for _ in journal.rows():
            pass
        rewards, costs = _episodes(made, episodes)
        while made.state.episode < episodes:
            entries: list[Entry] = [entry for entry in replay.next_rows() if entry[0] != "order"]
            replay.note_written(entries)
            first = made.state.episode
            orders = made.ask_block(min(PER_WRITE, episodes - first))
            part = slice(first, first + len(orders.drawn))
            states = np.zeros((len(orders.drawn), 1), dtype=np.int64)
            used = made.tell_block(orders, Outcomes(rewards[part], costs[part], states))
            draws = counter_uniforms(made.seed, first, used)
            for k, (index, draw) in enumerate(zip(orders.drawn[:used].tolist(), draws.tolist(), strict=True), first):
                outcome = {"episode": k, "reward": float(rewards[k]), "cost": costs[k].tolist(), "states": [0]}
                entries += [("order", {"episode": k, "policy": index, "draw": draw}), ("outcome", outcome)]
            journal.append(entries)
        state = made.state, made.events, replay.events, replay.decision
        journal.save_snapshot(snapshots.encode(state, snapshots.classes(made)))
    finally:
        journal.close()


def _episodes(made: Learner, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Made-up discounted sums well inside their ranges: reward [n], cost [n, m] at a third of the budget."""
    rng, units = np.random.default_rng(0), made.method.units
    low, high = units.reward_value_range
    rewards = low + (high - low) * rng.uniform(0.1, 0.3, count)
    return rewards, units.budget * rng.uniform(0.2, 0.45, (count, len(units.budget)))
