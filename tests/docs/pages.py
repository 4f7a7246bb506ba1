"""The code on a page of the documentation, run as a reader runs it, and what it prints beside what the page shows.

Fenced blocks, in their order:

- one that begins with a comment of nothing but a file name (`# machine.py`) is saved under that name;
- other `python` blocks are one program; each `sh` block is a shell script;
- a `text` block shows what the block before it prints: the same words, and the same numbers up to one unit of the last
  digit shown, since solvers and processors round differently; `…` stands for anything.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE_NAME = re.compile(r"(?:#|//) ([\w-]+\.\w+)\n")
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    line: int  # of the page, at which the code begins


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        yield Block(found[1], found[2], text.count("\n", 0, found.start(2)) + 1)


@dataclass
class Reader:
    """Somebody who types in what the pages say, one page after the other, in one folder."""

    folder: Path
    known: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tools = self.folder / ".tools"
        tools.mkdir()
        for name, program in (("python", ""), ("surefoot", '-c "from surefoot.cli import main; main()"')):
            (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -W ignore {program} "$@"\n')
            (tools / name).chmod(0o755)

    def read(self, page: Path) -> None:
        """Run the page; an error, or output that is not on the page, is an AssertionError that names the line."""
        printed = shown_at = None
        for block in blocks(page):
            if block.language == "text":
                assert printed is not None, f"{page.name}:{block.line}: nothing was run before this"
                difference = differs(block.code, printed)
                assert not difference, f"{page.name}:{block.line}: {difference}; all of it:\n{printed}"
                printed = None
                continue
            assert not printed, f"{page.name}:{shown_at}: prints what the page does not show:\n{printed}"
            printed, shown_at = self._run(block, page), block.line

    def _run(self, block: Block, page: Path) -> str | None:
        file = FILE_NAME.match(block.code)
        if file:
            (self.folder / file[1]).write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            return self._python(block, page)
        elif block.language == "sh":
            return self._shell(block, page)
        return None

    def _python(self, block: Block, page: Path) -> str:
        with redirect_stdout(io.StringIO()) as out:
            exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), self.known)
        return out.getvalue()

    def _shell(self, block: Block, page: Path) -> str:
        path = os.pathsep.join([str(self.folder / ".tools"), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            ["bash", "-c", block.code], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, (
            f"{page.name}:{block.line}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return done.stdout


def differs(shown: str, printed: str) -> str:
    """Where the printed text is not what the page shows; "" where it is."""
    expected, found = shown.rstrip().splitlines(), printed.rstrip().splitlines()
    for line, (left, right) in enumerate(zip(expected, found, strict=False), 1):
        if not _same_line(left, right):
            return f"line {line} shows {left!r}, and {right!r} is printed"
    return "" if len(expected) == len(found) else f"{len(expected)} lines are shown, and {len(found)} printed"


def _same_line(shown: str, printed: str) -> bool:
    """Words as they are, spaces as many as there may be, numbers up to their last digit, anything for an ellipsis."""
    pattern, numbers = "", []
    for part in re.split(rf"({NUMBER.pattern}|…|\s+)", shown.rstrip()):
        if part == "…":
            pattern += ".*?"
        elif NUMBER.fullmatch(part):
            pattern += rf"({NUMBER.pattern})"
            numbers.append(part)
        else:
            pattern += r"\s+" if part.isspace() else re.escape(part)
    match = re.fullmatch(pattern, printed.rstrip())
    return match is not None and all(map(_same_number, numbers, match.groups()))


def _same_number(shown: str, printed: str) -> bool:
    """Whole numbers count something unless they are long."""
    one = Decimal(1).scaleb(int(Decimal(shown).as_tuple().exponent))
    counted = one >= 1 and len(shown) < 4
    return abs(Decimal(shown) - Decimal(printed)) <= (0 if counted else one)
