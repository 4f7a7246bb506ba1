"""`surefoot watch`: parsing and printing only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli.journals import JournalPath, KeyFile, read_key
from surefoot.cli.terminal import Json, print_json, print_lines
from surefoot.deploy.watch import Follower, Maker, WatchServer

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


def _maker(policies: Path) -> Maker:
    from surefoot.cli.deployment import learner_of  # all methods: not needed to look at a journal
    from surefoot.deploy.verify import Possible
    from surefoot.policyset.policy_value_set import PolicyValueSet

    known = PolicyValueSet.load(policies)
    return lambda header: Possible(learner_of(known, header))
