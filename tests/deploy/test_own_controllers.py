"""Controllers that only their owner has, deployed: ordered by name, verified without them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import deployments
import numpy as np
import pytest
from typer.testing import CliRunner

import surefoot as sf
from surefoot.cli import app
from surefoot.errors import InvalidInput
from surefoot.policyset.export import write_policy
from wheel import CONTROLLERS, STEPS, wheel_set, wheels

COMMAND = [sys.executable, "-c", "from surefoot.cli import main; main()"]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    wheel_set().save(tmp_path / "set")
    return tmp_path / "set"


def surefoot(*words: object, lines: str = "") -> tuple[int, list[str], str]:
    """In a process of its own, which has none of the controllers."""
    done = subprocess.run([*COMMAND, *map(str, words)], input=lines, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout.splitlines(), done.stderr


class Client:
    """Whoever has the controllers; any language would do."""

    def __init__(self, *words: object) -> None:
        command = [*COMMAND, *map(str, words)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def call(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert answer["ok"], answer
        return answer

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


def episode(name: str, seed: int) -> dict[str, float]:
    """One episode on the real system with the owner's controller of that name."""
    policy = sf.controller(CONTROLLERS[name], name=name)
    outcomes = wheels().task(0.25).episodes(policy, STEPS).run(1, np.random.default_rng(seed))
    return {"reward": float(outcomes.reward[0]), "cost": float(outcomes.cost[0, 0])}


@pytest.mark.long
def test_deployment_without_the_code_from_the_first_order_to_the_verified_journal(stored: Path, tmp_path: Path) -> None:
    journal, ordered = tmp_path / "wheel.journal", []
    words = ("deploy", stored, "--journal", journal, "--risk", 0.5, "--observes", "sums")
    client = Client(*words)
    for number in range(40):
        order = client.call(do="ask")["order"]
        assert order["name"] == list(CONTROLLERS)[order["policy"]]
        ordered.append(order["name"])
        client.call(do="tell", episode=order["episode"], **episode(order["name"], number))
    described = client.call(do="policy", policy=1)["policy"]
    assert (described["kind"], described["name"], len(described["fingerprint"])) == ("own", "careful", 64)
    assert set(described["arrays"]) == {"observations", "actions"}
    pending = client.call(do="ask")["order"]
    client.kill()  # in the midst of an episode

    client = Client(*words[:4])
    order = client.call(do="ask")["order"]
    assert order == pending
    for number in range(40, 60):
        order = client.call(do="ask")["order"]
        ordered.append(order["name"])
        client.call(do="tell", episode=order["episode"], **episode(order["name"], number))
    assert client.call(do="status")["status"]["episodes"] == 60
    client.kill()
    assert set(ordered) > {"rest"}

    code, lines, errors = surefoot("verify", journal, "--policies", stored)
    assert (code, errors) == (0, "")
    assert "of 60 episodes follow" in lines[0]
    code, _, errors = surefoot("export-policy", stored, 1, "--out", tmp_path / "it.safetensors")
    assert code == 2
    assert "'careful' is a controller of its owner's" in errors
    code, lines, _ = surefoot("status", journal)
    assert code == 0
    shutil.copytree(stored, tmp_path / "other")
    manifest = tmp_path / "other/manifest.json"
    manifest.write_text(manifest.read_text().replace('"careful"', '"carefuI"'))
    code, _, errors = surefoot("verify", journal, "--policies", tmp_path / "other")
    assert (code, "was altered after it was saved" in errors) == (2, True)


def test_orders_name_policies_in_python_too(tmp_path: Path) -> None:
    policies = wheel_set()
    learner = sf.learner(policies, method="certified", risk=0.5, observes="sums")
    with sf.Deployment.open(tmp_path / "journal", learner) as deployment:
        order = deployment.ask()
        assert order.policy_name == policies.names[order.policy_index]  # type: ignore[index]
    assert sf.learner(deployments.tiny_set(), method="safe-only").ask().policy_name is None


def test_no_file_is_written_of_a_controller(tmp_path: Path) -> None:
    for suffix in ("safetensors", "onnx"):
        with pytest.raises(InvalidInput, match="policy 'rest' is a controller of its owner's"):
            write_policy(wheel_set().safe_policy, tmp_path / f"it.{suffix}")
    assert not list(tmp_path.iterdir())


# --------------------------------------------------------------------------------------------------------------- advice


def test_plan_says_which_certified_method_it_will_be(stored: Path) -> None:
    text = CliRunner().invoke(app, ["plan", str(stored), "--episodes", "100", "--risk", "0.5"])
    assert text.exit_code == 0, text.output
    assert text.stdout.splitlines()[0].startswith("method certified will be certified-returns, since ")
    assert "certified-likelihood would take a model of the transitions: tasks that are tables" in text.stdout
    lines = json.loads(CliRunner().invoke(app, ["plan", str(stored), "--json", "--risk", "0.5"]).stdout)
    assert lines[0]["method"] == "certified"
    assert lines[0]["reason"].startswith("will be certified-returns")
