"""What the settings of every experiment share: fields that are options of its command, and what they are held to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from surefoot.arrays import fraction, whole
from surefoot.errors import InvalidInput, meant

LARGEST_SEED = 2**32 - 1
MOST_EPISODES = 10**8  # a run keeps a few numbers per episode in memory


@dataclass(frozen=True)
class Applies:
    """When an option means something: where `to` says so of the settings, which `words` complete "it applies only"."""

    to: Callable[[Any], bool]
    words: str


def option(
    default: Any,
    words: str,
    *,
    least: int | None = None,
    most: int | None = None,
    default_words: str | None = None,
    applies: Applies | None = None,
) -> Any:
    """A field of settings that the command line offers as an option.

    Args:
        words: its help.
        least, most: what the command line takes.
        default_words: what the help calls its default.
        applies: when it means something; always by default.
    """
    told = {"help": words, "min": least, "max": most, "show_default": default_words or _default_text(default)}
    return field(default=default, metadata={"told": told, "applies": applies})


def _default_text(default: Any) -> str:
    return ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def episodes_option(default: int | None, words: str, default_words: str | None = None) -> Any:
    return option(default, words, least=1, most=MOST_EPISODES, default_words=default_words)


def seed_option() -> Any:
    return option(0, "Same seed, same result.", least=0, most=LARGEST_SEED)


def risk_option(default: float = 0.05) -> Any:
    return option(default, "Probability with which any deployed policy may break a budget.")


def options_of(settings: type) -> dict[str, dict[str, Any]]:
    """The options among the fields of a class of settings, by name."""
    return {each.name: dict(each.metadata["told"]) for each in fields(settings) if each.metadata}


def check_applies(settings: Any, given: Collection[str]) -> None:
    """What was given must mean something with the other settings: an option that is ignored misleads."""
    for each in fields(settings):
        applies: Applies | None = each.metadata.get("applies")
        if each.name in given and applies is not None and not applies.to(settings):
            raise InvalidInput(
                f"{each.name} must be left out: it applies only {applies.words}, got {getattr(settings, each.name)}"
            )


def check_counts(settings: Any, *names: str, least: int = 1) -> None:
    """Each of these fields is a whole number, or None where that stands for a default."""
    for name in names:
        value = getattr(settings, name)
        if value is not None:
            whole(name, value, least)


def check_risk(risk: float, name: str = "risk") -> None:
    fraction(name, risk)


def check_seed(seed: int) -> None:
    if seed < 0:
        raise InvalidInput(f"seed must not be negative, got {seed}")


def check_names(what: str, names: Sequence[str], known: Collection[str]) -> None:
    """At least one, all known, none twice."""
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise InvalidInput(
            f"{what} must be names out of {', '.join(known)}, got {', '.join(unknown) or 'none'}"
            + (meant(unknown[0], known) if unknown else "")
        )
    if len(set(names)) < len(names):
        raise InvalidInput(f"{what} must be different names, got {', '.join(names)}")
