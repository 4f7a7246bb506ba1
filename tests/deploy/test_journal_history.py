"""Earlier episodes in a journal: taken before the first order, computed again by whoever checks, and nothing forged."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deployments
import numpy as np
import pytest
from deployments import HORIZON, fresh, tiny_set
from hypothesis import given
from hypothesis import strategies as st
from mutations import Rows, forge, mutated, quietly
from typer.testing import CliRunner

from surefoot.cli import app
from surefoot.cmdp.episode import Outcomes
from surefoot.deploy.chain import canonical, read
from surefoot.deploy.page import deployment_page
from surefoot.deploy.session import Deployment
from surefoot.deploy.status import read_status
from surefoot.deploy.verify import verify
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.testing.learner_suite import snapshot

METHODS = ("certified-returns", "certified-likelihood", "certified-model-free")


@cache
def earlier(episodes: int = 60, slip: float = 0.1) -> Outcomes:
    rng = np.random.default_rng(7)
    return deployments.task(slip).episodes(tiny_set().safe_policy, HORIZON).run(episodes, rng, transitions=True)


def test_evidence_is_there_before_the_first_order(tmp_path: Path) -> None:
    with Deployment.open(tmp_path / "with", fresh(), history=earlier()) as deployment:
        told = deployment.status()
        assert deployment.ask().episode == 0
    with Deployment.open(tmp_path / "without", fresh()) as deployment:
        assert told.surviving < deployment.status().surviving
    assert told.episodes == 0
    assert ("history", "60 episodes of the safe policy on this very system are evidence: taken on trust; they fit a "
            "task that was trained for (p = 1)") in told.assumptions  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_what_follows_is_computed_again_to_the_bit(method: str, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Deployment.open(path, fresh(method), history=earlier()) as deployment:
        deployments.drive(deployment, 9, method)
        state, head = snapshot(deployment.learner), deployment.head()
    assert [row.kind for row in read(path)][:62] == ["open", *["history"] * 60, "event"]
    verdict = verify(path, again := fresh(method))
    assert verdict.holds
    assert verdict.rounding == 0.0
    assert snapshot(again) == state
    with Deployment.open(path, fresh(method)) as deployment:  # without, and with the same
        assert (deployment.head(), snapshot(deployment.learner)) == (head, state)
    with Deployment.open(path, fresh(method), history=earlier()) as deployment:
        assert deployment.head() == head
    assert dict(read_status(path).assumptions)["history"] == dict(verdict.assumptions)["history"]
    assert "60 episodes of the safe policy" in deployment_page(path)


def test_a_log_in_blocks_is_the_same_log(tmp_path: Path) -> None:
    """However the file is written: sums alone are what certified-returns looks at, with the first state."""
    log = earlier()
    lines = [
        {"reward": float(r), "cost": c.tolist(), "first_state": int(s[0])}
        for r, c, s in zip(log.reward, log.cost, log.states, strict=True)
    ]  # type: ignore[arg-type]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = [f"{line['reward']!r},x,{line['cost'][0]!r},{line['first_state']}" for line in lines]
    (tmp_path / "log.csv").write_text("\n".join(["reward,note,cost,first_state", *rows]) + "\n")
    heads = set()
    for name, history in (("a", lines), ("b", tmp_path / "log.jsonl"), ("c", str(tmp_path / "log.csv"))):
        with Deployment.open(tmp_path / name, fresh(), history=history) as deployment:  # type: ignore[arg-type]
            heads.add(deployment.head())
    assert len(heads) == 1


def test_a_journal_is_a_log_of_the_safe_policy(tmp_path: Path) -> None:
    with Deployment.open(tmp_path / "old", fresh("safe-only")) as deployment:
        for _ in range(5):
            order = deployment.ask()
            deployment.tell(order, **deployments.told(order))
    with Deployment.open(tmp_path / "new", fresh(), history=tmp_path / "old") as deployment:
        assert deployment.learner.history == 5
    deployments.deployed(tmp_path / "abandoned", 5, "safe-only")
    with pytest.raises(ArtifactError, match="no episode of the policy may be abandoned, found 1"):
        Deployment.open(tmp_path / "none", fresh(), history=tmp_path / "abandoned")


@pytest.mark.parametrize("method", ["paper", "safe-only", "posterior"])
def test_methods_without_a_proof_for_it_refuse(method: str, tmp_path: Path) -> None:
    log = [deployments.told(deployments.Order(k, 0, fresh(method).policy(0), 0.0, fresh(method).deployed), method)
           for k in range(3)]  # fmt: skip
    with pytest.raises(InvalidInput, match=f"history must be left out for {method}"):
        Deployment.open(tmp_path / "journal", fresh(method), history=log)  # type: ignore[arg-type]
    assert not (tmp_path / "journal").exists()


def test_what_is_refused(tmp_path: Path) -> None:
    path, beyond = tmp_path / "journal", Outcomes(np.array([99.0]), np.array([[0.1]]), np.array([[0]]))
    for history, message in (
        ([], "at least one episode"),
        (beyond, "sums in history must lie in the declared ranges"),
        ([{"reward": 1.0}], "must hold reward and cost"),
        ([{"reward": 1.0, "cost": 0.1}], "needs states"),
        ([{"reward": 1.0, "cost": 0.1, "first_state": 0, "weather": 3}], "'weather'"),
        (7, "episodes must be the path of a file"),
        ("log.xlsx", "must be a journal or end in .csv or .jsonl"),
    ):
        with pytest.raises(InvalidInput, match=message):
            Deployment.open(path, fresh(), history=history)  # type: ignore[arg-type]
        assert not path.exists()
    Deployment.open(path, fresh(), history=earlier()).close()
    with pytest.raises(InvalidInput, match=r"history must be as when .* was begun, with 60 earlier episodes"):
        Deployment.open(path, fresh(), history=earlier()[:59])
    Deployment.open(tmp_path / "plain", fresh()).close()
    with pytest.raises(InvalidInput, match="with 0 earlier episodes"):
        Deployment.open(tmp_path / "plain", fresh(), history=earlier())
    used = fresh()
    used.learn_from_history(earlier())
    with pytest.raises(InvalidInput, match="learner must be fresh, got one that was told 60 episodes"):
        Deployment.open(tmp_path / "used", used)
    with pytest.raises(InvalidInput, match="history must come before everything else"):
        used.learn_from_history(earlier())


def forge_alone(path: Path, rows: Rows) -> None:
    """As one file: the mark would tell that it was changed."""
    forge(path, rows)
    path.with_name(f"{path.name}.mark").unlink(missing_ok=True)


def test_killed_between_row_0_and_the_history(tmp_path: Path) -> None:
    """Whoever opens again passes it again."""
    path = tmp_path / "journal"
    with Deployment.open(path, fresh(), history=earlier()) as deployment:
        head = deployment.head()
    forge_alone(path, [(row.kind, row.payload) for row in read(path)][:1])
    with Deployment.open(path, fresh(), history=earlier()) as deployment:
        assert deployment.head() == head


def test_an_old_label_hides_no_history(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    Deployment.open(path, fresh(), history=earlier()).close()
    (kind, payload), *rows = [(row.kind, row.payload) for row in read(path)]
    opened = {**json.loads(payload), "format_version": [1, 0]}
    del opened["key"]
    forge(path, [(kind, canonical(opened)), *rows])
    with pytest.raises(ArtifactError, match=r"format 1\.0 did not know"):
        read_status(path)


# ------------------------------------------------------------------------------------------------------------ forgeries


@cache
def begun() -> list[tuple[str, bytes]]:
    with TemporaryDirectory() as folder:
        with Deployment.open(Path(folder) / "journal", fresh(), history=earlier(6)) as deployment:
            deployments.drive(deployment, 3)
        return [(row.kind, row.payload) for row in read(Path(folder) / "journal")]


@given(st.integers(0, 2**32 - 1))
def test_forged_histories(seed: int) -> None:
    """A row of it changed, dropped, repeated or moved, or all cut: it holds and opens, or neither. What holds is what a
    deployment with that history writes."""
    rng, rows = np.random.default_rng(seed), list(begun())
    place = int(rng.integers(1, 7))
    match int(rng.integers(5)):
        case 0:
            rows[place] = "history", canonical(mutated(json.loads(rows[place][1]), rng))
        case 1:
            del rows[place]
        case 2:
            rows.insert(int(rng.integers(1, len(rows))), rows[place])
        case 3:
            rows.insert(int(rng.integers(1, len(rows))), rows.pop(place))
        case _:
            rows = rows[: int(rng.integers(1, 9))]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        Deployment.open(path, fresh(), history=earlier(6)).close()
        forge_alone(path, rows)
        verdict: Any = quietly(lambda: verify(path, fresh()))
        holds = verdict is not None and verdict.holds
        quietly(lambda: read_status(path))
        quietly(lambda: deployment_page(path))
        opened = quietly(lambda: Deployment.open(path, fresh()).close() or True)
        assert (opened is True) == holds
        if holds:
            told = [json.loads(payload) for kind, payload in rows if kind == "history"]
            told = [
                {
                    "reward": t.get("reward"),
                    "cost": t.get("cost"),
                    "transitions": {k: t[k] for k in ("states", "actions")},
                }
                for t in told
            ]
            with Deployment.open(Path(folder) / "honest", fresh(), history=told or None) as honest:
                pass
            assert [row.payload for row in read(path)][: len(told) + 1] == [
                row.payload for row in read(honest._journal.path)
            ][: len(told) + 1]


# ------------------------------------------------------------------------------------------------------------- commands


def test_deploy_takes_a_history(stored: Path, tmp_path: Path) -> None:
    log, path = tmp_path / "log.csv", tmp_path / "journal"
    log.write_text("reward,cost,first_state\n" + "1.25,0.5,0\n" * 30)
    words = ["deploy", stored, "--journal", path, *deployments.OPTIONS]
    found = CliRunner().invoke(app, [*map(str, words), "--history", str(log)], input='{"do": "ask"}\n')
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["order"]["episode"] == 0
    assert "30 episodes of the safe policy" in CliRunner().invoke(app, ["status", str(path)]).stdout
    refused = CliRunner().invoke(app, [*map(str, words), "--history", str(tmp_path / "no.csv")], input="")
    assert not json.loads(refused.stdout)["ok"]
