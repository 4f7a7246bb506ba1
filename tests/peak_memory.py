"""The most memory that a process held, for tests that run their work in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent


def peak_mib() -> float:
    """Of this process. The kernel's own count is asked first: `ru_maxrss` begins with what the parent held."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 1024)


def in_a_process(folder: str, call: str) -> dict[str, Any]:
    """What `call`, such as "module.function(1)" of a module in tests/`folder`, returns there, with "peak" in MiB."""
    module = call.partition(".")[0]
    code = (
        f"import json, {module}, peak_memory; found = {call}; "
        "print(json.dumps({**found, 'peak': peak_memory.peak_mib()}))"
    )
    paths = os.pathsep.join([str(TESTS), str(TESTS / folder), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found
