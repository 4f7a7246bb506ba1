"""`surefoot` itself: every name leads to its object, and nothing is imported before it is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import surefoot


@pytest.mark.parametrize("package", ["surefoot", "surefoot.deploy"])
def test_names_are_those_that_type_checkers_see(package: str) -> None:
    found = import_module(package)
    tree = ast.parse(Path(str(found.__file__)).read_text())
    seen = {}
    for block in tree.body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            imports = [line for line in block.body if isinstance(line, ast.ImportFrom)]
            seen = {each.name: str(line.module) for line in imports for each in line.names}
    assert sorted(seen) == sorted(found.__all__)
    for name, home in seen.items():
        assert getattr(found, name) is getattr(import_module(home), name), name
    assert set(found.__all__) <= set(dir(found))


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    assert not hasattr(surefoot, "nonsense")
    assert not hasattr(surefoot, "__wrapped__")


def test_nothing_is_imported_before_it_is_used() -> None:
    script = "import sys, surefoot; assert 'numpy' not in sys.modules; surefoot.Units; assert 'numpy' in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
