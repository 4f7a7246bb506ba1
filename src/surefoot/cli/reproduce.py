"""`surefoot reproduce …`, a command for every experiment, made from its settings; and `surefoot bench`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args, get_type_hints

import typer
from typer.main import get_group

from surefoot.cli.terminal import (
    Json,
    OnDemand,
    Out,
    drop_none,
    numbers,
    optional,
    print_json,
    print_path,
    progress,
    show,
    show_all,
    takes_several,
    with_options,
)
from surefoot.lab.experiments import HELPS, find

if TYPE_CHECKING:
    from surefoot.lab.experiments.frame import Experiment

Jobs = Annotated[int, typer.Option(min=1, help="Worker processes.")]

app = typer.Typer(rich_markup_mode=None)


class Experiments(OnDemand):
    """The experiments; the one that is called is imported."""

    helps: ClassVar = HELPS

    def load(self, name: str) -> Any:
        alone = typer.Typer(rich_markup_mode=None)
        alone.command(name)(command_of(find(name)))
        return get_group(alone).commands[name]


app.add_typer(
    typer.Typer(
        cls=Experiments,
        rich_markup_mode=None,
        help="Reproduce an experiment of the paper, or one about the certified methods.",
    ),
    name="reproduce",
)


def command_of(experiment: Experiment) -> Callable[..., None]:
    """The command of an experiment; its options are those of the settings."""
    from surefoot.lab.experiments.frame import check_applies, options_of

    hints = get_type_hints(experiment.settings)

    def command(out: Out, jobs: Jobs = 2, as_json: Json = False, **words: Any) -> None:
        quick = words.pop("quick", None)
        given = {name: _parse_option(name, value, hints[name]) for name, value in drop_none(**words).items()}
        settings = experiment.settings_for(**{**(experiment.quick if quick else {}), **given})
        check_applies(settings, given)
        with progress(not as_json) as report:
            results = experiment.reproduce(settings, out, jobs=jobs, progress=report)
        if as_json:
            print_json(results)
            return
        show_all(experiment.tables(results), results["seconds"])
        print_path(out / "report.html", experiment.beside)

    command.__doc__ = HELPS[experiment.name]
    options = {name: optional(hints[name], **told) for name, told in options_of(experiment.settings).items()}
    return with_options(command, {**({"quick": _quick(experiment)} if experiment.quick else {}), **options})


def _quick(experiment: Experiment) -> Any:
    sizes = ", ".join(f"{name} {value}" for name, value in experiment.quick.items())
    return optional(bool, "--quick", help=f"For a first look: {sizes}, unless given.")


def _parse_option(name: str, value: Any, hint: Any) -> Any:
    if not takes_several(hint):
        return value
    return numbers(name, value) if float in get_args(hint) else tuple(part.strip() for part in value.split(","))


@app.command("bench")
def bench_command(
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes, for a first look.")] = False,
    as_json: Json = False,
) -> None:
    """Speed against the plain way of doing the same, as ratios.

    Both sides are measured in this one run.
    """
    from surefoot.lab.bench.rows import table_of
    from surefoot.lab.bench.run import run

    with progress(not as_json) as report:
        rows = run(quick=quick, progress=report)
    if as_json:
        print_json([row.as_dict() for row in rows])
    else:
        show(table_of(rows))
