"""`surefoot report`: parsing and printing only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.terminal import Json, print_json, print_path
from surefoot.deploy.page import deployment_page
from surefoot.experiments.results import redraw
from surefoot.experiments.table import PAGES
from surefoot.files import check_file, write_file
from surefoot.report.page import render

app = typer.Typer()


@app.command("report")
def report_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of an earlier run, or journal of a deployment.")],
    as_json: Json = False,
) -> None:
    """Draw the figures and the HTML page of an earlier run, or of a deployment, again."""
    if run.is_file():
        page = report_journal(run)
    else:
        redraw(run, lambda results: PAGES[results["experiment"]](results))
        page = run / "report.html"
    if as_json:
        print_json({"report": str(page)})
    else:
        print_path(page)


def report_journal(path: Path, out: Path | None = None) -> Path:
    """The HTML page of a journal; by default beside it."""
    target = out if out is not None else path.with_name(path.name + ".html")
    check_file(target)
    write_file(target, render(deployment_page(path)).encode())
    return target
