"""The command line: a table of its commands, each imported when it is called, and what becomes of errors."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, ClassVar, NoReturn, cast

import typer
from typer.main import get_group

from surefoot import __version__
from surefoot.cli.terminal import (
    OnDemand,
    check_words,
    complain,
    console,
    flush,
    give_up_stdout,
    prepare_streams,
    show_warning,
    usage_message,
)
from surefoot.errors import SurefootError

# Recent releases of typer carry a click of their own, so its usage errors are named through what typer exports.
UsageError = cast(type[Exception], typer.BadParameter.__base__)


def run() -> NoReturn:
    """The command that was typed; what the user can mend is one sentence on standard error and exit code 2."""
    warnings.showwarning = show_warning
    words = sys.argv[1:]
    try:
        prepare_streams()
        check_words(words)
        code = app(words or ["--help"], standalone_mode=False)
        flush()
    except SurefootError as error:
        code = complain(str(error))
    except UsageError as error:
        code = complain(usage_message(error, words))
    except MemoryError as error:
        why = f" ({error})" if str(error) else ""
        code = complain(f"this takes more memory than there is{why}; use smaller numbers or a larger machine")
    except BrokenPipeError:  # whoever read the answer has seen enough
        give_up_stdout()
        code = 1
    except OSError as error:  # a full disk behind standard output
        give_up_stdout()
        code = complain(f"{error.filename or 'standard output'}: cannot be used: {error.strerror or error}")
    sys.exit(code)


# ------------------------------------------------------------------------------------------------------- the commands


@dataclass(frozen=True)
class Command:
    """The module of this package that a command is in, and one line about it for the list of commands."""

    module: str
    help: str

    def load_command(self, name: str) -> Any:
        return get_group(import_module(f"surefoot.cli.{self.module}").app).commands[name]


COMMANDS = {
    "reproduce": Command("reproduce", "Reproduce an experiment of the paper, or one about the certified methods."),
    "train": Command("train", "Algorithm 1: a policy-value set for a family of tasks, saved to --out."),
    "plan": Command("adapt", "How many episodes each method needs before it may leave the safe policy."),
    "methods": Command(
        "adapt", "Every method: what it needs, what it promises or that it is uncertified, and what it costs."
    ),
    "calibrate": Command("calibrate", "How bold simulated tasks let a method be, before it is deployed."),
    "certify": Command(
        "certify",
        "Bounds on one policy's cost and reward from a log, or simulated; exit code 1 unless it is within budget.",
    ),
    "adapt": Command("adapt", "Algorithm 2 and its relatives on one simulated task, with the values deployed."),
    "report": Command("pages", "Draw the figures and the HTML page of an earlier run, or of a deployment, again."),
    "deploy": Command(
        "deploy", "Ask and tell in JSON lines on standard input and output, for controllers in any language."
    ),
    "status": Command("journals", "Where a deployment stands, while it runs or afterwards."),
    "watch": Command(
        "pages",
        "Serve the page of a deployment to browsers on this machine, up to date as rows are written; Ctrl-C ends it.",
    ),
    "verify": Command(
        "deploy",
        "Recompute every row from the policy set and name the first that does not follow; exit code 1 if there is one.",
    ),
    "export": Command("journals", "The rows of a journal as JSON lines."),
    "backup": Command("journals", "A copy of a journal as one file, also while a deployment writes to it."),
    "export-policy": Command("deploy", "One policy as a file of its own."),
    "bench": Command("reproduce", "Speed against the plain way of doing the same, as ratios."),
}


class Commands(OnDemand):
    helps: ClassVar = {name: command.help for name, command in COMMANDS.items()}

    def load(self, name: str) -> Any:
        return COMMANDS[name].load_command(name)


app = typer.Typer(cls=Commands, pretty_exceptions_enable=False, rich_markup_mode=None)


def _print_version(wanted: bool) -> None:
    if wanted:
        console().print(f"surefoot {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Constrained meta reinforcement learning with provable test-time safety."""
