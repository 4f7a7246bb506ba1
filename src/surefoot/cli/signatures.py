"""Commands whose options are read off a table rather than written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from typing import Any


def with_options(command: Callable[..., None], options: Mapping[str, Any]) -> Callable[..., None]:
    """A command that takes further options by keyword, with these options in its signature, where typer looks.

    Args:
        options: the annotation of each; their default is None, for "not given".
    """
    own = [each for each in signature(command, eval_str=True).parameters.values() if each.kind is not each.VAR_KEYWORD]
    further = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in options.items()]
    parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in own] + further

    def called(**words: Any) -> None:
        command(**words)

    called.__doc__ = command.__doc__
    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called
