"""The house rules that no linter knows: sizes, no assertions for users, nothing kept for tests alone."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "surefoot"
LONGEST_FILE, LONGEST_FUNCTION = 500, 60

# Called from outside: the suites by authors of oracles.
CALLED_BY_USERS = {"conforms_to_check_oracle", "conforms_to_optimal_oracle", "conforms_to_feasible_oracle", "cpo"}
# Overrides what a library calls.
OVERRIDES = {"list_commands", "format_commands", "do_GET", "log_message"}
OVERRIDES |= {"before_trial", "infer_relative_search_space", "sample_relative", "sample_independent", "after_trial"}


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def test_files_and_functions_are_short() -> None:
    long_files = [path.name for path in trees() if len(path.read_text(encoding="utf-8").splitlines()) > LONGEST_FILE]
    assert long_files == []
    functions = [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert len(functions) > 1000
    assert [each.name for each in functions if (each.end_lineno or 0) - each.lineno >= LONGEST_FUNCTION] == []


def test_users_meet_no_assertions() -> None:
    """They vanish under `python -O`, and name neither argument nor remedy."""
    found = [path.name for path, tree in trees().items() for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    assert found == []


def test_everything_in_the_source_is_used_there_or_offered() -> None:
    used = Counter(name for tree in trees().values() for name in _uses(tree))
    unused = {
        f"{path.relative_to(SOURCE)}: {node.name}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not (node.name.startswith("__") or node.decorator_list or used[node.name])
        and node.name not in CALLED_BY_USERS | OVERRIDES
    }
    assert unused == set()
    assert not any(used[name] for name in CALLED_BY_USERS), "no longer an exception"


def _uses(tree: ast.AST) -> Iterator[str]:
    """Names read, attributes, keywords, and texts that are names: those that a package offers are listed as such."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name
            case ast.Constant(value=str(name)) if name.isidentifier():
                yield name
