"""`surefoot report`: parsing and printing only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.deployment import learner_of
from surefoot.cli.journals import KeyFile, read_key, reading
from surefoot.cli.terminal import Json, print_json, print_path
from surefoot.cli.watching import Policies
from surefoot.deploy.page import deployment_page
from surefoot.deploy.verify import Possible, read_header
from surefoot.errors import InvalidInput
from surefoot.files import check_file, write_file
from surefoot.lab.experiments.results import redraw
from surefoot.lab.experiments.table import PAGES
from surefoot.policyset.policy_value_set import PolicyValueSet

app = typer.Typer(rich_markup_mode=None)


@app.command("report")
def report_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of an earlier run, or journal of a deployment.")],
    policies: Policies = None,
    key: KeyFile = None,
    as_json: Json = False,
) -> None:
    """Draw the figures and the HTML page of an earlier run, or of a deployment, again."""
    if run.is_file():
        page = report_journal(run, policies=policies, key=read_key(key))
    elif policies is not None or key is not None:
        given = "--policies" if policies is not None else "--key"
        raise InvalidInput(f"{given} must be left out unless RUN is the journal of a deployment, got {run}")
    else:
        redraw(run, lambda results: PAGES[results["experiment"]](results))
        page = run / "report.html"
    if as_json:
        print_json({"report": str(page)})
    else:
        print_path(page)


def report_journal(path: Path, out: Path | None = None, policies: Path | None = None, key: bytes | None = None) -> Path:
    """The HTML page of a journal; by default beside it."""
    target = out if out is not None else path.with_name(path.name + ".html")
    check_file(target)
    possible = None if policies is None else Possible(learner_of(PolicyValueSet.load(policies), read_header(path)))
    with reading(path) as observer:
        page = deployment_page(path, possible, observer, key)
    write_file(target, page.encode())
    return target
