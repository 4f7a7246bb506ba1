"""What all commands share: consoles, common options, progress bars, tables and error lines."""

from __future__ import annotations

import json
import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cache
from inspect import Parameter, Signature, signature
from io import TextIOWrapper
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, ClassVar, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from surefoot.errors import InvalidInput
from surefoot.progress import Progress, progress_reporter

if TYPE_CHECKING:
    from rich.console import Console

    from surefoot.report.table import Table

LARGEST_SEED = 2**32 - 1
LONGEST_LABEL = 24
SENTENCES = 80  # columns that they are wrapped to, or fewer
TONES = {"good": "green", "bad": "bold red", "quiet": "dim"}

Out = Annotated[Path, typer.Option("--out", help="Folder to write to.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=LARGEST_SEED, help="Same seed, same result.")]
SetPath = Annotated[Path, typer.Argument(metavar="SET", help="Policy set saved by train.")]
Risk = Annotated[float, typer.Option("--risk", help="Probability with which any deployed policy may break a budget.")]


class Listing(TyperGroup):
    """Commands with all that they say of themselves in one line, however long."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].help) for name in self.list_commands(ctx)])


class OnDemand(Listing):
    """Knows its commands by name and one line of help; the one that is called is loaded with all its options."""

    helps: ClassVar[Mapping[str, str]]  # in the order of the list

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {name: TyperCommand(name, help=words) for name, words in self.helps.items()}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.helps)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, found, rest = super().resolve_command(ctx, args)
        return name, found if name is None or found is None else self.load(name), rest

    @abstractmethod
    def load(self, name: str) -> Any:
        """The command of that name, imported with all its options."""


def with_options(command: Callable[..., None], options: Mapping[str, Any]) -> Callable[..., None]:
    """A command that takes further options by keyword, with these options in its signature, where typer looks.

    Args:
        options: the annotation of each; their default is None, for "not given".
    """
    own = [each for each in signature(command, eval_str=True).parameters.values() if each.kind is not each.VAR_KEYWORD]
    further = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in options.items()]
    parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in own] + further

    def run(**words: Any) -> None:
        command(**words)

    run.__doc__ = command.__doc__
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def optional(hint: Any, *names: str, **told: Any) -> Any:
    """An option of this type that may be left out; one of several values is a text, separated by commas."""
    kinds = () if takes_several(hint) else (hint, *get_args(hint))
    kind: Any = next((each for each in (bool, int, float) if each in kinds), str)
    return Annotated[kind | None, typer.Option(*names, **told)]


def drop_none(**options: Any) -> dict[str, Any]:
    """The options that were not left out."""
    return {name: value for name, value in options.items() if value is not None}


def takes_several(hint: Any) -> bool:
    return Ellipsis in get_args(hint)


@cache
def console() -> Console:
    from rich.console import Console

    # A pipe or a file has no width to wrap tables to.
    return Console(width=None if sys.stdout.isatty() else 400)


@cache
def errors() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def progress(enabled: bool) -> AbstractContextManager[Progress]:
    """A bar on a terminal, one plain line per stage elsewhere, nothing when disabled."""
    return progress_reporter(enabled, errors() if enabled else None)


def show(table: Table) -> None:
    """A table of the report without lines; columns of numbers flush right. Where it gets tight, optional columns are
    left out, then sentences and intervals wrap; names and labels stay whole."""
    from rich.table import Table as Lines
    from rich.text import Text

    rows = [
        [Text(cell) if isinstance(cell, str) else Text(cell.text, TONES[cell.tone]) for cell in row]
        for row in table.rows
    ]
    longest = [max(map(len, header.split())) for header in table.headers]
    widths = [max([least, *(len(row[index]) for row in rows)]) for index, least in enumerate(longest)]
    tight = sum(min(width, LONGEST_LABEL) + 2 for width in widths) > console().width
    kept = [index for index in range(len(widths)) if not (tight and index in table.optional)]
    lines = Lines(box=None, pad_edge=False)
    for index in kept:
        number, header, width = index in table.numbers, table.headers[index], widths[index]
        lines.add_column(
            header.replace(" ", "\n") if number and console().is_terminal else header,
            justify="right" if number else "left",
            min_width=None if number or width > LONGEST_LABEL else width,
        )
    for row in rows:
        lines.add_row(*(row[index] for index in kept))
    console().print(lines)


def show_sentences(table: Table) -> None:
    """A table whose last column holds sentences: each below its row, so that all of it is read at 80 columns."""
    rows = [[cell if isinstance(cell, str) else cell.text for cell in row] for row in table.rows]
    widths = [max(len(row[index]) for row in (table.headers, *rows)) for index in range(len(table.headers) - 1)]

    def line(cells: Sequence[str]) -> str:
        numbered = enumerate(zip(cells, widths, strict=False))
        return "  ".join(
            cell.rjust(width) if k in table.numbers else cell.ljust(width) for k, (cell, width) in numbered
        )

    console().print(line(table.headers), style="bold", markup=False, highlight=False, soft_wrap=True)
    for row in rows:
        console().print(line(row).rstrip(), markup=False, highlight=False, soft_wrap=True)
        for part in wrap(row[-1], min(console().width, SENTENCES) - 4):
            console().print(f"    {part}", style="dim", markup=False, highlight=False, soft_wrap=True)


def show_all(tables: Mapping[str, Table], seconds: float) -> None:
    """Every table below its title."""
    for title, table in tables.items():
        console().print(title, style="bold", markup=False, highlight=False)
        show(table)
        console().print()
    console().print(f"{seconds:.1f} s", style="dim", highlight=False)


def printable(text: str) -> str:
    """Without what would steer a terminal: a journal may hold anything."""
    return text if text.isprintable() else text.translate(_Escapes())


class _Escapes(dict[int, int | str]):
    """By character; the printable ones stay as they are."""

    def __missing__(self, code: int) -> int | str:
        return code if chr(code).isprintable() else ascii(chr(code))[1:-1]


def numbers(name: str, text: str) -> tuple[float, ...]:
    """What was typed for an option that takes numbers."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(
            f"{name} must be numbers separated by commas, such as 0.31 or 0.05,0.5, got {text!r}"
        ) from None


def usage_message(error: Any, words: Sequence[str]) -> str:
    """What typer found wrong with the words typed, the value given, and where to read what would be right."""
    command = error.ctx.command_path if error.ctx else "surefoot"
    message = error.format_message().rstrip(".")
    written = _value_of(getattr(getattr(error, "param", None), "opts", ()), words)
    if written is not None and repr(written) not in message:
        message += f", got {written!r}"
    return f"{message} (help: {command} --help)"


def _value_of(names: Sequence[str], words: Sequence[str]) -> str | None:
    """The word typed for an option of these names, which typer's errors do not carry."""
    for name, word in zip(words, [*words[1:], None], strict=True):
        if name in names:
            return word
        option, equals, value = name.partition("=")
        if equals and option in names:
            return value
    return None


def check_words(words: Sequence[str]) -> None:
    """What was typed must be text: no name of a file can be printed, or written into a report, otherwise."""
    for word in words:
        if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in word):
            raise InvalidInput(f"arguments must be text in UTF-8 without NUL, got {word!a}")


def prepare_streams() -> None:
    """Somebody must be there to hear the answer, and what their terminal has no letters for is escaped."""
    if sys.stdout is None:
        raise InvalidInput("standard output must be open, got a closed one; use >/dev/null to hear nothing")
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":  # standard error does so anyway
        sys.stdout.reconfigure(errors="backslashreplace")


def input_stream() -> BinaryIO:
    if sys.stdin is None:
        raise InvalidInput("standard input must be open, got a closed one")
    return sys.stdin.buffer


def flush() -> None:
    """What was printed may not have been written yet; at the end of Python it would be too late to say so."""
    sys.stdout.flush()


def give_up_stdout() -> None:
    """What could not be written is not tried again when Python ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def complain(message: str) -> int:
    """One line on standard error, if anybody can hear it; returns the exit code."""
    line = " ".join(message.split())
    with suppress(OSError, ValueError):
        errors().print(f"error: {line}", style="bold red", markup=False, highlight=False, soft_wrap=True)
    return 2


def print_path(path: Path, beside: str = "") -> None:
    console().print(str(path), style="bold", markup=False, highlight=False, soft_wrap=True)
    if beside:
        console().print(f"({beside})", style="dim", highlight=False, soft_wrap=True)


def print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        console().print(printable(line), markup=False, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1, allow_nan=False) + "\n")


def show_warning(message: Any, *_: Any, **__: Any) -> None:
    with suppress(OSError, ValueError):
        errors().print(f"note: {message}", style="yellow", markup=False, highlight=False, soft_wrap=True)
