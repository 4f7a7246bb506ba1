"""The house rules that no linter knows: sizes, no assertions for users, nothing kept for tests alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "surefoot"
LONGEST_FILE, LONGEST_FUNCTION = 500, 60

# Called from outside: the suites by authors of oracles.
CALLED_BY_USERS = {"conforms_to_check_oracle", "conforms_to_optimal_oracle", "conforms_to_feasible_oracle", "cpo"}
# Overrides what a library calls.
OVERRIDES = {"list_commands", "format_commands", "do_GET", "log_message"}
OVERRIDES |= {"before_trial", "infer_relative_search_space", "sample_relative", "sample_independent", "after_trial"}


@dataclass(frozen=True)
class File:
    """What the rules ask about; the tree itself is large."""

    lines: int
    functions: Mapping[str, int]  # the longest of each name
    asserts: bool
    used: frozenset[str]
    defined: tuple[str, ...]  # functions and classes without a decorator
    bare_streams: tuple[int, ...]  # lines in which a random stream has a number of its own


@cache
def files() -> Mapping[Path, File]:
    return {path: _read(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def test_files_and_functions_are_short() -> None:
    assert [path.name for path, file in files().items() if file.lines > LONGEST_FILE] == []
    functions = [each for file in files().values() for each in file.functions.items()]
    assert len(functions) > 1000
    assert [name for name, lines in functions if lines > LONGEST_FUNCTION] == []


def test_users_meet_no_assertions() -> None:
    """They vanish under `python -O`, and name neither argument nor remedy."""
    assert [path.name for path, file in files().items() if file.asserts] == []


def test_everything_in_the_source_is_used_there_or_offered() -> None:
    used = {name for file in files().values() for name in file.used}
    allowed = used | CALLED_BY_USERS | OVERRIDES
    unused = {
        f"{path.relative_to(SOURCE)}: {name}"
        for path, file in files().items()
        for name in file.defined
        if not name.startswith("__") and name not in allowed
    }
    assert unused == set()
    assert not used & CALLED_BY_USERS, "no longer an exception"


def test_no_number_of_a_stream_stands_outside_the_table() -> None:
    """The table is `surefoot.streams`."""
    bare = [f"{path.relative_to(SOURCE)}:{line}" for path, file in files().items() for line in file.bare_streams]
    assert bare == []


def _read(source: str) -> File:
    nodes = list(ast.walk(ast.parse(source)))
    functions: dict[str, int] = {}
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            functions[node.name] = max(lines, functions.get(node.name, 0))
    return File(
        len(source.splitlines()),
        functions,
        any(isinstance(node, ast.Assert) for node in nodes),
        frozenset(name for node in nodes for name in _uses(node)),
        tuple(
            node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.decorator_list
        ),
        tuple(node.lineno for node in nodes if isinstance(node, ast.Call) and _has_a_bare_number(node)),
    )


def _uses(node: ast.AST) -> Iterator[str]:
    """Names read, attributes, keywords, and texts that are names: those that a package offers are listed as such."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name
        case ast.keyword(arg=str(name)):
            yield name
        case ast.Constant(value=str(name)) if name.isidentifier():
            yield name


def _has_a_bare_number(call: ast.Call) -> bool:
    makes_a_stream = isinstance(call.func, ast.Attribute) and call.func.attr in ("default_rng", "SeedSequence")
    lists = [entropy.elts for entropy in call.args if isinstance(entropy, ast.List)]
    return makes_a_stream and any(isinstance(each, ast.Constant) for elements in lists for each in elements)
