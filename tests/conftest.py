"""Settings shared by all tests; pytest puts this folder on the import path, so tests may `import random_tasks`."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

# Derandomised: a property test is the same test on every run. No deadline: shared machines stall. More examples in the
# long run.
EXAMPLES = int(os.environ.get("SUREFOOT_EXAMPLES", "6"))
settings.register_profile("surefoot", derandomize=True, deadline=None, max_examples=EXAMPLES)
settings.load_profile("surefoot")

# Who runs the tests in the background has Ctrl-C ignored, and so would all processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent

# What takes longest begins first, so that no process is left with it when the others are done.
LONGEST_FILES = (
    "test_session.py",  # and with it all that fork
    "test_cli.py",
    "test_judged_promise.py",
    "test_learner_contract.py",
    "test_signals_promise.py",
    "test_streams.py",
    "test_blocks.py",
    "test_calibrated_promise.py",
    "test_locomotion_experiment.py",
    "test_experiments.py",
    "test_calibrated_paths.py",
    "test_control_methods.py",
    "test_simulator_only.py",
    "test_affine_detection.py",
    "test_simulated_envelopes.py",
    "test_calibrate_command.py",
    "test_packaging.py",
    "test_certified.py",
    "test_affinity_promise.py",
    "test_envelopes.py",
    "test_control_adaptation.py",
    "test_examples.py",
    "test_pages.py",
    "test_runner.py",
    "test_bombs.py",
    "test_random_families.py",
    "test_networks.py",
    "test_goldens_methods.py",
    "test_shift_promise.py",
    "test_paper_safety.py",
    "test_calibration_experiment.py",
    "test_watch.py",
    "test_locomotion_tasks.py",
    "test_confidence.py",
    "test_horizon_promise.py",
    "test_certified_promise.py",
    "test_policy_gradient_oracles.py",
    "test_signals_told.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """The second of two processes collects from behind: what one has compiled, the other only reads."""
    if os.environ.get("PYTEST_XDIST_WORKER") == "gw1" and config.args == config.getini("testpaths"):
        parts = [each for each in TESTS.iterdir() if each.is_dir() or each.match("test_*.py")]
        config.args[:] = map(str, sorted(parts, reverse=True))


@pytest.hookimpl(tryfirst=True)  # before cases are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cases with other parameters than `short_for` names are long. Files come longest first."""
    for item in items:
        for mark in item.iter_markers("short_for"):
            if any(item.callspec.params[name] not in values for name, values in mark.kwargs.items()):
                item.add_marker(pytest.mark.long)
    place = {name: number for number, name in enumerate(LONGEST_FILES)}
    items.sort(key=lambda item: (place.get(item.path.name, len(place)), str(item.path)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collecting leaves stays until the end: garbage collectors that walk over it find nothing, for a twentieth of
    the time that the tests take."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# -------------------------------------------------------------------------------------------------------------- forking
# JAX has threads, and a process with threads must not be forked: its child may wait for a lock that nobody holds.

FORKING_FILES = (
    "deploy/test_alarms_seen.py",
    "deploy/test_crashes.py",
    "deploy/test_lost_rows.py",
    "deploy/test_session.py",
    "deploy/test_sharing.py",
    "tasks/test_gym_vector.py",
    "test_files.py",
)


class ForkingFilesTogether(LoadFileScheduling):  # type: ignore[misc]
    """A file to a process, and those that fork to the same one: a single process that forks is then enough."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "forking" if file.endswith(FORKING_FILES) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return ForkingFilesTogether(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Tests that fork run in a process of their own where other tests have loaded JAX: the short ones of all files
    together, the long ones of each file."""
    if "jax" not in sys.modules or pyfuncitem.get_closest_marker("forks") is None:
        return None
    chosen, file = str(pyfuncitem.config.option.markexpr) or "forks", str(pyfuncitem.path)
    together = chosen == "not long" and file.endswith(FORKING_FILES)
    files = tuple(str(TESTS / each) for each in FORKING_FILES) if together else (file,)
    outcomes, said = _forking_tests(files, str(pyfuncitem.config.rootpath), chosen)
    outcome = outcomes.get(pyfuncitem.nodeid)
    if outcome == "SKIPPED":
        pytest.skip("skipped in a process of its own")
    assert outcome == "PASSED", said
    return True


@cache
def _forking_tests(files: tuple[str, ...], folder: str, chosen: str) -> tuple[Mapping[str, str], str]:
    """PASSED, SKIPPED or FAILED of every test of the files that forks, by its name; and all that was printed."""
    marks = f"forks and ({chosen})"
    command = [sys.executable, "-m", "pytest", "-vv", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", marks, *files]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    return dict(re.findall(r"^(\S.*?::.*?) (PASSED|SKIPPED|FAILED|ERROR)\b", said, re.MULTILINE)), said


def _fork_without_jax() -> int:
    if "jax" in sys.modules:
        raise RuntimeError("a process that has loaded JAX must not be forked: mark the test with pytest.mark.forks")
    return _fork()


if hasattr(os, "fork"):
    _fork, os.fork = os.fork, _fork_without_jax
