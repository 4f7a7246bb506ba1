"""Numbers and arrays from outside: what is refused, naming the argument and the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from surefoot import arrays
from surefoot.errors import InvalidInput

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no number": (lambda: arrays.number("risk", "much"), "'much'"),
    "infinite": (lambda: arrays.number("risk", np.inf), "inf"),
    "no whole number": (lambda: arrays.check_int("risk", 1.5), "1.5"),
    "too small": (lambda: arrays.check_int("risk", 2, least=3), "2"),
    "True for 1": (lambda: arrays.check_int("risk", True), "True"),
    "certain": (lambda: arrays.check_unit_interval("risk", 1), "1"),
    "a word for a flag": (lambda: arrays.flag("risk", "no"), "'no'"),
    "a seed for a generator": (lambda: arrays.generator("risk", 7), "int"),
    "no array": (lambda: arrays.finite_array("risk", object()), "object"),
    "an entry that is not finite": (lambda: arrays.finite_array("risk", [0, np.nan]), "nan"),
    "another type": (lambda: arrays.as_shape("risk", ["a"], "n", {}), "list"),
    "another shape": (lambda: arrays.as_shape("risk", np.zeros(2), "n", {"n": 3}), "[2]"),
    "an index too large": (lambda: arrays.check_indices("risk", np.array([1, 4]), 4), "4"),
    "negative probability": (lambda: arrays.distributions("risk", [1.5, -0.5], "[n]"), "-0.5"),
    "too few axes": (lambda: arrays.distributions("risk", [1.0], "[n, k]"), "[1]"),
    "a sum that is not 1": (lambda: arrays.distributions("risk", [0.5, 0.25], "[n]"), "0.75"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals_name_the_argument_and_the_value(what: str) -> None:
    call, value = REFUSED[what]
    with pytest.raises(InvalidInput, match=r"^risk") as refused:
        call()
    assert refused.value.argument == "risk"
    assert value in str(refused.value).partition(", got ")[2]


def test_an_error_says_nothing_of_an_argument_that_nobody_named() -> None:
    assert InvalidInput("out must be a folder, got a file").argument is None
