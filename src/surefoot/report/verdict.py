"""What every page says first: the verdict in one sentence, and three or four large figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from surefoot.cmdp.wording import number
from surefoot.errors import InvalidInput
from surefoot.report.metrics import binomial_interval
from surefoot.report.palette import REFERENCE

Tone = Literal["good", "bad", ""]


@dataclass(frozen=True)
class Answer:
    """One large number or word.

    Attributes:
        name: what it answers.
        beside: of what it is, in small print.
        tone: coloured as well; the words alone must say everything.
    """

    name: str
    value: str
    beside: str
    tone: Tone = ""


@dataclass(frozen=True)
class Verdict:
    """What was found, in one sentence, and the large figures: what was gained, was anything unsafe, how sure that is,
    how long it took. It is bad if one of them is."""

    sentence: str
    answers: tuple[Answer, ...]

    def __post_init__(self) -> None:
        if not self.sentence:
            raise InvalidInput("sentence must say what was found, got ''")
        if len(self.answers) not in (3, 4):
            raise InvalidInput(f"answers must be three or four, got {len(self.answers)}")

    @property
    def tone(self) -> Tone:
        tones = {answer.tone for answer in self.answers}
        return "bad" if "bad" in tones else "good" if "good" in tones else ""


# -------------------------------------------------------------------------------------------- answers that pages share


def unsafe(count: int, total: int, beside: str, undecided: int = 0) -> Answer:
    """Whether anything unsafe was deployed: in so many out of all."""
    told = f", {undecided:,} undecided" if undecided else ""
    tone: Tone = "bad" if count else "" if undecided else "good"
    return Answer("Unsafe", f"{count:,} of {total:,}", f"{beside}{told}", tone)


def certain(count: int, total: int, promised: float, what: str) -> Answer:
    """How often it may happen at most, as far as a count tells, beside what was promised."""
    low, high = binomial_interval(count, total)
    beside = f"of {what} may be unsafe, by this count alone (95 % interval from {percent(low)}); promised: at most "
    return Answer("How sure", f"≤ {percent(high)}", beside + percent(promised), "bad" if low > promised else "")


def elapsed_time(seconds: float, beside: str) -> Answer:
    return Answer("Time", duration(seconds), beside)


# --------------------------------------------------------------------------------- of methods on tasks, by their totals


def best_certified(methods: Mapping[str, Any]) -> str | None:
    """The certified method of least regret, never adapting aside."""
    known = {
        name: each["regret_mean"]
        for name, each in methods.items()
        if each["certified"] and name != REFERENCE and each["regret_mean"] is not None
    }
    return min(known, key=lambda name: known[name]) if known else None


def regret_reduction(methods: Mapping[str, Any]) -> float | None:
    """The share of the regret of never adapting that the best certified method does not have."""
    best, never = best_certified(methods), methods[REFERENCE]["regret_mean"] if REFERENCE in methods else None
    return None if best is None or not never else 1 - methods[best]["regret_mean"] / never


def adaptation_gain(methods: Mapping[str, Any]) -> Answer:
    """What the best certified method is worth beside never adapting."""
    best, share = best_certified(methods), regret_reduction(methods)
    if best is None:
        return Answer("Gained", "nothing", "no certified method that adapts was run")
    found = number(methods[best]["regret_mean"])
    if share is None:
        return Answer("Regret", found, f"per task, of ‘{best}’")
    beside = f"of the regret of never adapting avoided: {found} per task instead of "
    return Answer("Gained", percent(share), f"{beside}{number(methods[REFERENCE]['regret_mean'])}, by ‘{best}’")


def safety(methods: Mapping[str, Any], promised: float) -> Answer:
    """Runs of certified methods that were unsafe, which is bad where one has more of them than it promised, and how
    many left the safe policy; those of others in small print."""
    (count, undecided, total), (others, open_others, all_others) = (_runs(methods, proof) for proof in (True, False))
    found = unsafe(count, total, "runs of certified methods with an unsafe policy", undecided)
    if count and not _broken(methods, promised):
        found = replace(found, tone="")
    words = [found.beside]
    left = [each.get("moved") for each in methods.values() if each["certified"]]
    if total and None not in left:  # older results do not tell
        words.append(f"{sum(left):,} of these runs left the safe policy, {total - sum(left):,} never did")
    if all_others:
        words.append(unsafe(others, all_others, f"without a proof: {others:,} of {all_others:,}", open_others).beside)
    return replace(found, beside="; ".join(words))


def sureness(methods: Mapping[str, Any], promised: float, what: str = "tasks") -> Answer:
    """Of the certified method that was unsafe most often, or could have been shown to be."""
    found = [each for name, each in methods.items() if each["certified"] and name != REFERENCE]
    if not found:
        return Answer("How sure", "–", "no certified method that adapts was run")
    worst = max(found, key=lambda each: (each["unsafe_tasks"] / each["tasks"], -each["tasks"]))
    return certain(worst["unsafe_tasks"], worst["tasks"], promised, what)


def in_words(methods: Mapping[str, Any], promised: float, what: str = "tasks") -> str:
    """Who deployed anything unsafe, as the end of a sentence."""
    seen = {name: each for name, each in methods.items() if each["certified"] and each["unsafe_tasks"]}
    names = [f"‘{name}’ on {each['unsafe_tasks']} of {each['tasks']} {what}" for name, each in seen.items()]
    loose = [each["unsafe_tasks"] > 0 for each in methods.values() if not each["certified"]]
    if len(loose) == len(methods):
        return f"{sum(loose)} of {len(loose)} methods, all without a proof, deployed unsafe policies"
    undecided = _runs(methods, True)[1]
    safe = "no certified method was seen to deploy" if undecided else "no certified method ever deployed"
    words = f"{safe} anything unsafe"
    if seen:
        within = (
            "though certified" if _broken(methods, promised) else f"no more often than the promised {percent(promised)}"
        )
        words = f"unsafe policies were deployed, {within}, by {join_words(names)}"
    return f"{words}; of {len(loose)} without a proof {sum(loose)} did" if any(loose) else words


def _broken(methods: Mapping[str, Any], promised: float) -> bool:
    """Whether a certified method was unsafe on more of the tasks than it promised."""
    return any(each["certified"] and each["unsafe_tasks"] > promised * each["tasks"] for each in methods.values())


def _runs(methods: Mapping[str, Any], proof: bool) -> tuple[int, int, int]:
    """Runs with a proof or without that were unsafe, that are undecided, and all of them."""
    found = [each for each in methods.values() if each["certified"] is proof]
    keys = ("unsafe_tasks", "undecided_tasks", "tasks")
    unsafe_runs, undecided, total = (sum(each.get(key, 0) for each in found) for key in keys)
    return unsafe_runs, undecided, total


# ------------------------------------------------------------------------------------------------------- numbers, words


def percent(share: float) -> str:
    """Short, and 0 or 100 only if it is."""
    if 0 < share < 0.001:
        return "under 0.1 %"
    digits = 1 if share < 0.1 and round(100 * share, 1) != round(100 * share) else 0
    return f"{100 * share:.{digits}f} %".replace("-", "−")


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def join_words(words: Sequence[str]) -> str:
    """a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
