"""`surefoot bench`: parsing and printing only."""

from __future__ import annotations

from typing import Annotated

import typer

from surefoot.cli.terminal import Json, print_json, progress, show
from surefoot.lab.bench.rows import table_of
from surefoot.lab.bench.run import run

app = typer.Typer(rich_markup_mode=None)


@app.command("bench")
def bench_command(
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes, for a first look.")] = False,
    as_json: Json = False,
) -> None:
    """Speed against the plain way of doing the same, as ratios.

    Both sides are measured in this one run.
    """
    with progress(not as_json) as report:
        rows = run(quick=quick, progress=report)
    if as_json:
        print_json([row.as_dict() for row in rows])
    else:
        show(table_of(rows))
