"""`surefoot watch` and `surefoot report`, the pages of deployments and of earlier runs: parsing and printing only.

Methods and experiments are imported when they are needed: most who look at a journal need neither.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.journals import JournalPath, KeyFile, read_key, reading
from surefoot.cli.terminal import Json, print_json, print_lines, print_path
from surefoot.deploy.page import deployment_page
from surefoot.deploy.watch import Follower, Maker, WatchServer
from surefoot.errors import InvalidInput
from surefoot.files import check_file, write_file

Policies = Annotated[
    Path | None,
    typer.Option(
        "--policies",
        metavar="SET",
        help="The policy set that was deployed: shows what is still possible in the parameters of its tasks.",
    ),
]

app = typer.Typer(rich_markup_mode=None)


@app.command("watch")
def watch_command(
    path: JournalPath,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 for any that is free.")] = 8787,
    policies: Policies = None,
    key: KeyFile = None,
    as_json: Json = False,
) -> None:
    """Serve the page of a deployment to browsers on this machine, up to date as rows are written; Ctrl-C ends it."""
    follower = Follower(path, read_key(key), None if policies is None else _maker(policies))
    with WatchServer(follower, port) as server:
        if as_json:
            print_json({"url": server.url, "journal": str(follower.path)})
        else:
            print_lines([f"{server.url} shows {follower.path}, on this machine only; Ctrl-C ends it"])
        sys.stdout.flush()  # whoever reads a pipe waits for it
        server.serve_forever()


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
        from surefoot.lab.experiments import PAGES
        from surefoot.lab.experiments.frame import redraw

        redraw(run, lambda results: PAGES[results["experiment"]](results))
        page = run / "report.html"
    if as_json:
        print_json({"report": str(page)})
    else:
        print_path(page)


def report_journal(path: Path, out: Path | None = None, policies: Path | None = None, key: bytes | None = None) -> Path:
    """The HTML page of a journal; by default beside it."""
    from surefoot.deploy.verify import read_header

    target = out if out is not None else path.with_name(path.name + ".html")
    check_file(target)
    possible = None if policies is None else _maker(policies)(read_header(path))
    with reading(path) as observer:
        page = deployment_page(path, possible, observer, key)
    write_file(target, page.encode())
    return target


def _maker(policies: Path) -> Maker:
    from surefoot.cli.deploy import learner_of
    from surefoot.deploy.verify import Possible
    from surefoot.policyset.policy_value_set import PolicyValueSet

    known = PolicyValueSet.load(policies)
    return lambda header: Possible(learner_of(known, header))
