"""`surefoot methods`: parsing and printing only."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from typing import Annotated, Any

import typer

from surefoot.cli.terminal import SENTENCES, Json, print_json, print_lines, show_sentences
from surefoot.methods import spec_of, specs
from surefoot.report.table import Table

app = typer.Typer(rich_markup_mode=None)

MARGIN = 10  # columns of the words before a sentence
PROMISE = "nothing unsafe is ever deployed, with probability at least 1 - risk"
TOLD = {
    "sums": "sums",
    "first-state": "first state, sums",
    "signals": "signals, sums",
    "transitions": "transitions",
    "steps": "every step",
}


@app.command("methods")
def methods_command(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One method, in detail.")] = None,
    as_json: Json = False,
) -> None:
    """Every method: what it needs, what it promises or that it is uncertified, and what it costs."""
    if name is not None:
        found = spec_of(name).described()
        if as_json:
            print_json(found)
        else:
            print_lines(_detail(found))
        return
    rows = [spec.described() for spec in specs()]
    if as_json:
        print_json(rows)
        return
    show_sentences(_table(rows))
    print_lines(["", "surefoot methods NAME says it in detail; docs/guarantees.md has the theorems"])


def _table(rows: list[dict[str, Any]]) -> Table:
    cells = tuple(
        (
            row["method"],
            "certified" if row["certified"] else "uncertified",
            TOLD[row["observes"]],
            f"{row['promises']}. Needs {', '.join(row['needs'])}. Costs: {row['costs']}.",
        )
        for row in rows
    )
    return Table(("method", "promise", "told of an episode", "why, needs and costs"), cells)


def _detail(row: Mapping[str, Any]) -> list[str]:
    sentences = {
        "needs": "; ".join(row["needs"]),
        "told": f"{TOLD[row['observes']]} of every episode",
        "promises": f"{PROMISE if row['certified'] else 'uncertified'}: {row['promises']}",
        "proof": f"docs/guarantees.md, {', '.join(row['proof'])}" if row["proof"] else "none",
        "costs": row["costs"],
        "options": ", ".join(row["options"]) or "none",
    }
    lines = [row["method"]]
    for word, sentence in sentences.items():
        first, *rest = wrap(sentence, SENTENCES - MARGIN)
        lines += [f"{word:<{MARGIN}}{first}", *(" " * MARGIN + part for part in rest)]
    return lines
