"""Packages whose names are imported when they are first used (PEP 562): a command that needs two of them loads two."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazy_attributes(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that takes from `modules` the names listed for each.

    Its own modules are named without the package, those of another package in full. Its submodules can be reached as
    attributes too, imported or not.
    """
    namespace = sys.modules[package].__dict__
    homes = {
        name: module if module.startswith("surefoot.") else f"{package}.{module}"
        for module, names in modules.items()
        for name in names.split()
    }

    def take(name: str) -> Any:
        if name in homes:
            found = getattr(import_module(homes[name]), name)
        elif not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            found = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return namespace.setdefault(name, found)

    def names() -> list[str]:
        return sorted({*namespace, *homes})

    return take, names
