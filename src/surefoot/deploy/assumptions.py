"""What a certificate rests on beside its proof, as row 0 of a journal says it; every view says the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from surefoot.deploy.forms import ASSUMED, ASSUMING, FIRST_VERSION

# How it is known what a calibration counted. The journal says so; that it is not sealed itself, or is, stands below.
STANDINGS = {
    "counted": "counted by who began the journal",
    "sealed": "its file was sealed, and the key proved it to who began the journal",
    "recounted": "a sample of its runs was computed again by who began the journal",
    "claimed": "claimed: nobody who began the journal counted it, and nothing is certified",
}
UNSEALED = "none: whoever can write the file can write all of it anew"

Fact = tuple[str, str]  # name and sentence


def assumptions(opened: Mapping[str, Any], sealed: bool) -> tuple[Fact, ...]:
    """Of the payload of row 0; `sealed` if the key of the journal was at hand and proved the seal."""
    settings, (major, minor) = opened["settings"], opened["format_version"]
    calibration = settings.get("calibration")
    return (
        *(("assumes", sentence) for sentence in _assumption_sentences(opened, settings)),
        *(() if calibration is None else (("calibration", calibration_in_words(calibration)),)),
        ("seal", _seal(opened.get("key"), sealed)),
        ("format", f"{opened['format']} {major}.{minor}"),
    )


def _assumption_sentences(opened: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[str]:
    safe = "the safe policy keeps every budget on this very system"
    if settings.get(ASSUMED):
        yield f"{safe} ({ASSUMED}): taken on trust, not proved"
    # The method called certified may have chosen one of these.
    elif opened["format_version"] == FIRST_VERSION and opened["method"] in (*ASSUMING, "certified"):
        yield f"{safe} ({ASSUMED}, taken for granted by format 1.0): not proved"
    if settings.get("shift"):
        yield f"the system lies within {settings['shift']:g} of the tasks trained for (shift): taken on trust"


def calibration_in_words(calibration: Mapping[str, Any]) -> str:
    """Level, episodes, and what they rest on; files of earlier versions say less."""
    said = {name: calibration.get(name) for name in ("attempt", "seed", "tasks", "standing")}
    attempt = "attempt not recorded" if said["attempt"] is None else f"attempt {said['attempt']}"
    if said["attempt"] == 0:
        attempt = "the only attempt"
    standing = "the journal does not say who counted it"
    if said["standing"] is not None:
        standing = STANDINGS.get(said["standing"], f"standing {said['standing']!r}, which is unknown here")
    return (
        f"level {calibration['level']:g} for {calibration['episodes']:,} episodes, from {calibration['runs']:,} "
        f"simulated tasks ({said['tasks'] or 'which, is not recorded'}), {attempt}, "
        f"{'seed not recorded' if said['seed'] is None else 'seed {}'.format(said['seed'])}; {standing}"
    )


def _seal(name: str | None, sealed: bool) -> str:
    if name is None:
        return UNSEALED
    if sealed:
        return f"sealed with this key, {name}"
    return f"names key {name}, not checked: without the key nobody can tell who wrote this"
