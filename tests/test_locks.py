"""The lock files: every version with its hashes, the same in all of them, and no development tool at run time."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
LOCKS = ("requirements.lock", "requirements-build.lock", "requirements-dev.lock")


def pins(name: str) -> dict[str, str]:
    """Package -> what is pinned of it, hashes included."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {normal(line.partition("==")[0]): line for line in lines}


def normal(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def wanted(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[>=<;\[ ]", each)[0]) for each in requirements}


def test_every_version_is_pinned_with_hashes_and_nothing_else_is_in_the_locks() -> None:
    pin = re.compile(r"[A-Za-z0-9._-]+==[^ ]+( ; [^#]+?)?( +--hash=sha256:[0-9a-f]{64})+")
    for name in LOCKS:
        found = pins(name)
        assert found
        assert [line for line in found.values() if not pin.fullmatch(line)] == []


def test_the_locks_agree_and_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    run, build, dev = (pins(name) for name in LOCKS)
    for name in run.keys() | build.keys():
        assert len({lock[name] for lock in (run, build, dev) if name in lock}) == 1, name
    assert wanted(project["project"]["dependencies"]) <= run.keys() <= dev.keys()
    tools = wanted(project["project"]["optional-dependencies"]["dev"])
    assert tools <= dev.keys()
    assert not tools & (run.keys() | build.keys())
    assert wanted(project["dependency-groups"]["docs"]) <= dev.keys() - run.keys()
    assert wanted(project["dependency-groups"]["build"]) | wanted(project["build-system"]["requires"]) <= build.keys()


def test_the_run_lock_holds_what_the_project_needs_all_the_way_down_and_no_more() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed, left = set(), {normal(Requirement(each).name) for each in project["project"]["dependencies"]}
    while left:
        name = left.pop()
        needed.add(name)
        requirements = map(Requirement, metadata.requires(name) or [])
        here = {
            normal(each.name) for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})
        }
        left |= here - needed
    locked = pins("requirements.lock")
    assert needed <= locked.keys()
    assert {name for name, pin in locked.items() if " ; " not in pin} <= needed


def test_nothing_is_installed_but_from_the_locks() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "LOCKED := --require-hashes --only-binary :all:" in makefile
    calls = re.findall(r"\$\(call install,(.*)\)\n", makefile)
    assert len(calls) == 3
    assert all(call.startswith(("$(LOCKED) -r ", "--no-index --no-deps --no-build-isolation -e")) for call in calls)
