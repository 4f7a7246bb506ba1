"""What every experiment shares: settings that are options of its command, a run that is timed and written, and a page.

An experiment is one module of this package, or the module `run` of a package in it. From top to bottom: its settings,
`run`, which returns what goes into results.json, `page` and `tables`, made from results.json alone, and EXPERIMENT.
"""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from surefoot import __version__, fan_out, files
from surefoot.arrays import check_int, check_unit_interval
from surefoot.bounded_json import Limits, parse_strictly
from surefoot.errors import ArtifactError, InvalidInput, SurefootError, did_you_mean
from surefoot.interrupts import defer_sigint
from surefoot.learning.event import Event
from surefoot.learning.spec import PlanLine
from surefoot.methods import MOST_EPISODES
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.policyset.storage import check_target
from surefoot.progress import Progress, silent
from surefoot.report.figures import png
from surefoot.report.metrics import Summary
from surefoot.report.page import Page, Section, render, versions
from surefoot.report.table import Table, plain_plan
from surefoot.report.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")
Results: TypeAlias = Mapping[str, Any]  # the contents of a results.json

KEYS = ("experiment", "version", "settings", "seconds")  # in every results.json, whatever the experiment
LIMITS = Limits(size=2**26, values=10**6, depth=32)  # of a results.json that is read
LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True)
class Report:
    """A page and the figures in it, by file name."""

    page: Page
    figures: Mapping[str, bytes]


@dataclass(frozen=True)
class Bench:
    """Where a run does its work.

    Attributes:
        out: the folder of its results.
        jobs: workers.
        policy_sets: those to be written beside the results, by file name.
    """

    out: Path
    jobs: int
    progress: Progress
    policy_sets: dict[str, PolicyValueSet] = field(default_factory=dict)

    def map(self, what: str, work: Callable[..., T], calls: Sequence[tuple[Any, ...]]) -> list[T]:
        """`work(*call)` for every call, several at a time; results in the order of the calls."""
        return list(fan_out.parallel_map(what, work, calls, self.jobs, self.progress))


@dataclass(frozen=True)
class Experiment:
    """An experiment by its parts.

    Attributes:
        settings: the class whose fields made by `option` are the options of the command.
        run: what was found; stands in results.json after name, version, settings and seconds, and may replace them.
        page: made from the results alone.
        tables: those of the page that the terminal shows as well, by title.
        beside: what is written beside report.html, in words.
        quick: what `--quick` sets, unless it is given; nothing where there is no such option.
        policy_sets: the file names of policy sets that a run with some settings will write.
        configure: makes settings of the options that were given; by default that class.
    """

    name: str
    settings: type
    run: Callable[[Any, Bench], Mapping[str, Any]]
    page: Callable[[Results], Report]
    tables: Callable[[Results], Mapping[str, Table]]
    beside: str
    quick: Mapping[str, Any] = field(default_factory=dict)
    policy_sets: Callable[[Any], Collection[str]] = lambda settings: ()
    configure: Callable[..., Any] | None = None

    def settings_for(self, **given: Any) -> Any:
        return (self.configure or self.settings)(**given)

    def reproduce(self, settings: Any, out: Path, *, jobs: int = 2, progress: Progress | None = None) -> dict[str, Any]:
        """The results, after writing them with figures, policy sets and report.html to `out`."""
        fan_out.check_jobs(jobs)
        check_folder(out, *self.policy_sets(settings))
        bench, began = Bench(out, jobs, progress or silent), time.perf_counter()
        found = self.run(settings, bench)
        results = {
            "experiment": self.name,
            "version": __version__,
            "settings": asdict(settings),
            "seconds": time.perf_counter() - began,
            **found,
        }
        bench.progress("writing the report", 0, 1)
        write_report(out, results, self.page(results), bench.policy_sets)
        return results


# ------------------------------------------------------------------------------------------------------------- settings


@dataclass(frozen=True)
class ExperimentSettings:
    """What an experiment runs, as plain values, each checked by what `option` or `setting` says of its field."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value != each.default:
                _check_setting(each.name, value, each.metadata)


@dataclass(frozen=True)
class Applies:
    """When an option means something: where `to` says so of the settings, which `words` complete "it applies only"."""

    to: Callable[[Any], bool]
    words: str


def setting(
    default: Any,
    *,
    least: int | None = None,
    check: Callable[[str, Any], object] | None = None,
    choices: Collection[str] | None = None,
    fact: str | tuple[str, Callable[[Any], str]] | None = None,
    **more: Any,
) -> Any:
    """A field of settings; of several values each is checked, and there must be one.

    Args:
        default: None if the value may be left open.
        least: a whole number, at least that.
        check: raises InvalidInput, given the name and the value.
        choices: names out of these, none twice.
        fact: what the page calls it among its settings, and how it writes it there.
    """
    return field(default=default, metadata={"least": least, "check": check, "choices": choices, "fact": fact, **more})


def option(
    default: Any,
    words: str,
    *,
    least: int | None = None,
    most: int | None = None,
    default_words: str | None = None,
    applies: Applies | None = None,
    **rules: Any,
) -> Any:
    """A field of settings that the command line offers as an option, with `words` as its help; `rules` are as above.

    Args:
        most: as large a number as the command line takes.
        default_words: what the help calls its default.
        applies: when it means something; always by default.
    """
    shown = ", ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    told = {"help": words, "min": least, "max": most, "show_default": default_words or shown}
    return setting(default, least=least, told=told, applies=applies, **rules)


def episodes_option(default: int | None, words: str, default_words: str | None = None, **rules: Any) -> Any:
    return option(default, words, least=1, most=MOST_EPISODES, default_words=default_words, **rules)


def seed_option() -> Any:
    return option(0, "Same seed, same result.", least=0, most=LARGEST_SEED, fact=("seed", str))


def risk_option(default: float = 0.05) -> Any:
    words = "Probability with which any deployed policy may break a budget."
    return option(default, words, check=check_unit_interval, fact="risk")


def options_of(settings: type) -> dict[str, dict[str, Any]]:
    """The options among the fields of a class of settings, by name."""
    return {each.name: dict(each.metadata["told"]) for each in fields(settings) if "told" in each.metadata}


def check_applies(settings: Any, given: Collection[str]) -> None:
    """What was given must mean something with the other settings: an option that is ignored misleads."""
    for each in fields(settings):
        name, applies = each.name, each.metadata.get("applies")
        if name in given and applies is not None and not applies.to(settings):
            raise InvalidInput(
                f"{name} must be left out: it applies only {applies.words}, got {getattr(settings, name)}"
            )


def check_names(what: str, names: Sequence[str], known: Collection[str]) -> None:
    """At least one, all known, none twice."""
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise InvalidInput(
            f"{what} must be names out of {', '.join(known)}, got {', '.join(unknown) or 'none'}"
            + (did_you_mean(unknown[0], known) if unknown else "")
        )
    if len(set(names)) < len(names):
        raise InvalidInput(f"{what} must be different names, got {', '.join(names)}")


def _check_setting(name: str, value: Any, rules: Mapping[str, Any]) -> None:
    if value is None or not rules:
        return
    values = value if isinstance(value, tuple) else (value,)
    if rules.get("choices") is not None:
        check_names(name, values, rules["choices"])
    if not values:
        raise InvalidInput(f"{name} must be at least one number, got none")
    for one in values:
        if rules.get("least") is not None:
            check_int(name, one, rules["least"])
        if rules.get("check") is not None:
            rules["check"](name, one)


# ------------------------------------------------------------------------------------------------------------ the page


def report(
    results: Results,
    settings: type,
    *,
    title: str,
    verdict: Verdict,
    lead: str,
    sections: Sequence[Section],
    figures: Mapping[str, Figure],
    facts: Sequence[tuple[str, str]] = (),
) -> Report:
    """The page of a run, and its figures as files.

    Args:
        settings: the class whose fields say which of them are facts, and which options of the command.
        facts: further ones.
    """
    stored = results["settings"]
    page = Page(
        title=title,
        verdict=verdict,
        lead=lead,
        facts=(
            *_facts(settings, stored),
            *facts,
            ("time", f"{results['seconds']:.1f} s"),
            ("versions", ", ".join(f"{name} {version}" for name, version in versions())),
        ),
        sections=tuple(sections),
        command=command_line(results["experiment"], settings, stored),
        footer=f"surefoot {results['version']}",
    )
    return Report(page, {name: png(figure) for name, figure in figures.items()})


def _facts(settings: type, stored: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for each in fields(settings):
        fact = each.metadata.get("fact")
        if fact is not None and stored.get(each.name) is not None:
            label, text = (fact, _fact_text) if isinstance(fact, str) else fact
            yield label, text(stored[each.name])


def _fact_text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else f"{value:,}"


def command_line(name: str, settings: type, stored: Mapping[str, Any]) -> str:
    """The command that makes the results again, in lines to copy; empty where it cannot be known: settings that are no
    options of a command, or those of an earlier version, which had other options and defaults."""
    options = [each for each in fields(settings) if "told" in each.metadata]
    if not options or any(each.name not in stored for each in options):
        return ""
    run = SimpleNamespace(**stored)
    meaningful = [each for each in options if each.metadata["applies"] is None or each.metadata["applies"].to(run)]
    given = [*(_option_text(each.name, stored[each.name]) for each in meaningful), "--out DIR"]
    words = " ".join(part.replace(" ", "\0") for part in given if part)  # an option and its value on one line
    lines = textwrap.wrap(
        words, width=100, initial_indent=f"surefoot reproduce {name} ", subsequent_indent="  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return " \\\n".join(lines).replace("\0", " ")


def _option_text(name: str, value: Any) -> str:
    if value is None or value is False or (isinstance(value, list | tuple) and not value):
        return ""
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return f"--{name.replace('_', '-')}" + ("" if value is True else f" {text}")


# ------------------------------------------------------------------------------------------------- results.json, files


def experiment_results(
    experiment: str,
    *,
    settings: Mapping[str, Any],
    seconds: Mapping[str, float],
    methods: Mapping[str, Summary],
    events: Mapping[str, Sequence[Sequence[Event]]],
    policies: PolicyValueSet,
    plan: Sequence[PlanLine] = (),
) -> dict[str, Any]:
    """Results of methods on tasks with one policy set; `events` are per method and task."""
    return {
        "experiment": experiment,
        "version": __version__,
        "settings": dict(settings),
        "seconds": sum(seconds.values()),
        "seconds_by_stage": dict(seconds),
        "methods": dict(methods),
        "events": {name: [[asdict(event) for event in run] for run in runs] for name, runs in events.items()},
        "plan": plain_plan(plan),
        "training": {**policies.training, "xi": policies.xi, "budget": policies.units.budget.tolist()},
    }


def check_folder(out: Path, *policy_sets: str) -> None:
    """Refuse, before any work is done, a place that cannot hold results, and policy sets of these names."""
    files.check_folder(out)
    for name in ("report.html", "results.json"):
        files.check_file(out / name)
    for name in policy_sets:
        check_target(out / name, argument="out")


def write_report(
    out: Path, results: Results, report: Report, policy_sets: Mapping[str, PolicyValueSet] | None = None
) -> None:
    """results.json, the figures and report.html into `out`: all of them, or none if one cannot be written; and before
    them policy sets by name. Ctrl-C waits for the last of them."""
    contents = _contents(results, report)
    with defer_sigint():
        for name, policies in (policy_sets or {}).items():
            policies.save(out / name)
        files.write_files(out, contents)


def read_results(folder: Path) -> dict[str, Any]:
    """results.json of an earlier run."""
    path = folder / "results.json"
    try:
        results = parse_strictly(files.read_file(path, LIMITS.size), LIMITS)
    except ValueError as error:
        raise ArtifactError(f"{path}: not JSON: {error}") from None
    found = results if isinstance(results, dict) else {}
    if missing := [key for key in KEYS if key not in found]:
        raise ArtifactError(f"{path}: not a results file of surefoot, {missing[0]!r} is missing")
    return found


def redraw(folder: Path, page: Callable[[Results], Report]) -> None:
    """The figures and report.html of an earlier run once more, from its results.json alone."""
    results = read_results(folder)
    try:
        contents = _contents(results, page(results))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, SurefootError) as error:
        raise ArtifactError(
            f"{folder / 'results.json'}: damaged or from another version ({type(error).__name__}: {error})"
        ) from None
    files.write_files(folder, contents)


def _contents(results: Results, report: Report) -> dict[str, bytes]:
    """The files of a run by name."""
    return {
        **report.figures,
        "report.html": render(report.page).encode(),
        "results.json": json.dumps(results, indent=1, allow_nan=False).encode(),
    }
