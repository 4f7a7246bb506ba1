"""Every module can be imported by its own name, and no imports run in a circle, also not those inside functions."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import ModuleType

import grimp
import pytest

import surefoot

MODULES = ["surefoot", *sorted(module.name for module in pkgutil.walk_packages(surefoot.__path__, "surefoot."))]


@pytest.mark.parametrize("name", MODULES)
def test_every_module_is_what_its_name_leads_to(name: str) -> None:
    """`import a.b.c as m` walks over attributes: a function of the same name in a package would hide its module."""
    if name == "surefoot.optuna":
        pytest.importorskip("optuna", reason="needs Optuna: pip install 'surefoot[optuna]'")
    module = importlib.import_module(name)
    found: object = surefoot
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    assert isinstance(found, ModuleType), f"{name} is hidden by {found!r}"
    assert found is module


@pytest.mark.long
def test_modules_can_be_imported_first() -> None:
    """Each statement as a stranger writes it, the first one in a fresh process: no order of imports is needed."""
    for name in ("surefoot.simulate.runner", "surefoot.bounds.envelopes", "surefoot.policyset.storage"):
        subprocess.run([sys.executable, "-c", f"import {name} as module; module.__name__"], check=True)


def test_no_imports_run_in_a_circle() -> None:
    graph = grimp.build_graph("surefoot", cache_dir=None)
    assert set(graph.modules) == set(MODULES)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert "surefoot.tabular.policy" in imports["surefoot.tabular.evaluate"]  # the graph is not an empty one
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"these import each other: {' <- '.join(error.args[1])}")


def test_a_late_import_counts(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: two modules, one of which imports the other inside a function."""
    folder = tmp_path / "circular"  # type: ignore[operator]
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "one.py").write_text("from circular import two\n")
    (folder / "two.py").write_text("def late():\n    from circular.one import two\n    return two\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    graph = grimp.build_graph("circular", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    with pytest.raises(CycleError):
        TopologicalSorter(imports).prepare()


SLOW = {"scipy.signal", "scipy.stats", "scipy.optimize", "scipy.spatial", "matplotlib", "jinja2", "joblib", "typer"}


def loaded_by(script: str, *arguments: str) -> set[str]:
    """The modules that a fresh process has loaded after the script."""
    command = [sys.executable, "-c", f"import sys; {script}; print(*sys.modules, sep='\\n')", *arguments]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_loading_a_policy_set_imports_nothing_slow() -> None:
    """Those cost tenths of a second of every process each, and reading a set needs none of them."""
    assets = [str(Path(__file__).parent / "assets" / name) for name in ("policyset-1.0-plain", "policyset-1.0-cells")]
    loaded = loaded_by("import surefoot; [surefoot.PolicyValueSet.load(path) for path in sys.argv[1:]]", *assets)
    assert "surefoot.policyset.storage" in loaded
    assert loaded & (SLOW | {"jax", "mujoco", "gymnasium", "surefoot.lab.experiments", "surefoot.tasks"}) == set()


def test_training_and_deploying_import_nothing_that_only_others_need() -> None:
    loaded = loaded_by("import surefoot.cli.deploy, surefoot.training.train, surefoot.methods")
    assert "surefoot.bounds.signal_model" in loaded
    assert loaded & {"scipy.stats", "scipy.optimize", "scipy.signal", "matplotlib", "jinja2", "jax", "mujoco"} == set()
