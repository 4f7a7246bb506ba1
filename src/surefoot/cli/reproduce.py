"""`surefoot reproduce …`: a command for every experiment, made from its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args, get_type_hints

import typer
from typer.main import get_group

from surefoot.cli.signatures import with_options
from surefoot.cli.terminal import Json, OnDemand, Out, numbers, print_json, print_path, progress, show_all
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
        given = {name: _parsed(name, value, hints[name]) for name, value in words.items() if value is not None}
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
    options = {name: _option(hints[name], told) for name, told in options_of(experiment.settings).items()}
    return with_options(command, {**({"quick": _quick(experiment)} if experiment.quick else {}), **options})


def _option(hint: Any, told: dict[str, Any]) -> Any:
    """An option of a field's type; several values are one text, separated by commas."""
    kinds = () if _several(hint) else (hint, *get_args(hint))
    kind: Any = next((each for each in (bool, int, float) if each in kinds), str)
    return Annotated[kind | None, typer.Option(**told)]


def _quick(experiment: Experiment) -> Any:
    sizes = ", ".join(f"{name} {value}" for name, value in experiment.quick.items())
    return Annotated[bool | None, typer.Option("--quick", help=f"For a first look: {sizes}, unless given.")]


def _parsed(name: str, value: Any, hint: Any) -> Any:
    if not _several(hint):
        return value
    return numbers(name, value) if float in get_args(hint) else tuple(part.strip() for part in value.split(","))


def _several(hint: Any) -> bool:
    return Ellipsis in get_args(hint)
